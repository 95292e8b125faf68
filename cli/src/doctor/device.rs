//! Checks the drivers of GPUs, and each GPU. A GPU passes only if its results have the same bits as the CPU's.

use super::Check;
use crate::output::{Level, figure};
use robocache::device::gpu::{Kind, Unavailable, arithmetic, device_count, driver_version};
use robocache::prelude::*;
use rustix::fs::{Access, access};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Number of points in the cloud from which the CPU and a GPU must make the same voxel grid.
const POINTS: usize = 20_000;

pub fn checks(root: &Path) -> Vec<Check> {
    Kind::ALL.into_iter().flat_map(|kind| of_kind(kind, root)).collect()
}

/// Checks the driver of a kind of GPU, and each GPU of that kind.
fn of_kind(kind: Kind, root: &Path) -> Vec<Check> {
    let (name, installed) = match kind {
        Kind::Cuda => ("NVIDIA driver", nvidia_module(root)),
        Kind::Hip => ("AMD driver", amd_module(root)),
    };
    let found = device_count(kind).and_then(|devices| Ok((devices, driver_version(kind)?)));
    let (devices, version) = match found {
        Ok(found) => found,
        Err(error) => {
            let is_none = matches!(
                error,
                Unavailable::NotBuilt(_) | Unavailable::NoLibrary(_) | Unavailable::NoDevice(_)
            );
            let is_wrong = installed.is_some() || !is_none;
            let level = if is_wrong { Level::Error } else { Level::Note };
            let installed = installed.map_or_else(String::new, |module| format!("{module}, and "));
            let others = Kind::ALL.into_iter().any(|kind| device_count(kind).is_ok());
            let then = if others { "" } else { "; everything runs on the CPU" };
            return vec![Check::new(level, name, format!("{installed}{error}{then}"))];
        }
    };
    let installed = installed.map_or_else(String::new, |module| format!("{module}, "));
    let verified = match kind.is_verified() {
        true => String::new(),
        false => format!("; not verified on a device: it must be named, `device: {kind}`"),
    };
    let found = format!("{installed}{}, {devices} devices{verified}", kind.version_text(version));
    let mut checks = vec![Check::new(Level::Ok, name, found)];
    checks.extend((0..devices).map(|ordinal| device(kind, ordinal)));
    checks
}

/// Describes the version of NVIDIA's loaded kernel module: the first word of its version file with only digits and dots. `None`
/// if no module is loaded.
fn nvidia_module(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("proc/driver/nvidia/version")).ok()?;
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    let version = text.split_whitespace().find(is_version)?;
    Some(format!("{version} is loaded"))
}

/// Describes if the user can open the device file of AMD's kernel module; `None` if the file does not exist.
fn amd_module(root: &Path) -> Option<String> {
    let file = root.join("dev/kfd");
    if !file.exists() {
        return None;
    }
    Some(match access(&file, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => "/dev/kfd is there".to_owned(),
        Err(error) => format!("/dev/kfd can't be opened: {error} (allowed: a user of the group `render`)"),
    })
}

/// Checks one GPU: its voxel grid, divisions and roots must be the same as the CPU's.
fn device(kind: Kind, ordinal: usize) -> Check {
    let name = format!("{kind}:{ordinal}");
    let choice = DeviceChoice::Gpu(kind, Some(ordinal));
    let compared = || -> Result<(Level, String), Box<dyn std::error::Error>> {
        let placement = Placement::resolve(choice, None)?;
        let called = placement.gpu().map_or_else(String::new, |gpu| gpu.name().to_owned());
        let (expected, _, _) = grid(&Placement::cpu("to compare with"))?;
        // The first run also loads the device and the kernels, and is not timed.
        grid(&placement)?;
        let (made, device, ms) = grid(&placement)?;
        let differing = placement.gpu().map_or(Ok(0), arithmetic::differing)?;
        if differing > 0 {
            let found = format!(
                "{called}: {differing} of {} divisions and roots, of subnormal numbers too, differ from the CPU's: use `device: cpu`",
                arithmetic::RESULTS
            );
            return Ok((Level::Error, found));
        }
        Ok(match (device, made == expected) {
            (at @ Device::Gpu(..), true) if at == Device::Gpu(kind, ordinal) => (
                Level::Ok,
                format!(
                    "{called}: a grid of {POINTS} points in {} ms and {} divisions and roots, the same as the CPU's",
                    figure(ms),
                    arithmetic::RESULTS
                ),
            ),
            (Device::Gpu(..), _) => (
                Level::Error,
                format!("{called}: a grid of {POINTS} points differs from the CPU's: use `device: cpu`"),
            ),
            (Device::Cpu, _) => (
                Level::Error,
                format!("{called}: it failed, and the CPU went on (RUST_LOG=info says why)"),
            ),
        })
    };
    match compared() {
        Ok((level, found)) => Check::new(level, name, found),
        Err(error) => Check::new(Level::Error, name, error.to_string()),
    }
}

/// Makes a voxel grid of a fixed random cloud. Returns the grid's bytes, the device that made it, and the time that took, ms.
fn grid(placement: &Placement) -> Result<(Vec<u8>, Device, f64), Box<dyn std::error::Error>> {
    let config = VoxelizeConfig {
        origin_m: [-8.0; 3],
        voxel_size_m: [0.25; 3],
        shape: [64; 3],
        channels: vec![Channel::Count, Channel::Mean("z".into())],
        layout: VoxelLayout::Dense,
        inputs: vec![VoxelInput {
            input: "cloud".into(),
            ..VoxelInput::default()
        }],
        ..VoxelizeConfig::default()
    };
    let mut voxelizer = Voxelizer::new(&config, placement)?;
    let mut cloud = Message::new(&placement.host_memory());
    cloud.write(&Layout::flat(Dtype::Float32, 3 * POINTS), |payload, header| {
        // Random points of a Lehmer generator, some of them outside the grid.
        let mut state = 1u64;
        payload.column::<f32>(0).fill_with(|| {
            state = state * 48_271 % 0x7fff_ffff;
            state as f32 / 0x7fff_ffff as f32 * 18.0 - 9.0
        });
        header.shape.set([POINTS as i64, 3]);
        header.timestamp_ns.set(1);
    });
    let start = Instant::now();
    let mut grid = voxelizer.push(0, &cloud)?.grid.ok_or("no grid is made of a cloud")?;
    let mut voxels = Message::default();
    voxels.write(&grid.layout().clone(), |payload, _| grid.write(payload));
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let device = grid.device();
    if let Some(error) = voxelizer.take_lost() {
        return Err(error.into());
    }
    Ok((voxels.columns()[0].data.bytes().to_vec(), device, ms))
}
