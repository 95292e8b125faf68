//! The NVIDIA driver and its devices.

use super::Check;
use crate::output::{Level, figure};
use robocache::device::cuda::{Unavailable, device_count, driver_version};
use robocache::prelude::*;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Points of the cloud that the CPU and a device make the same grid of.
const POINTS: usize = 20_000;

pub fn checks(root: &Path) -> Vec<Check> {
    let name = "NVIDIA driver";
    let installed = fs::read_to_string(root.join("proc/driver/nvidia/version")).ok();
    let installed = installed.as_deref().and_then(kernel_module);
    let (devices, version) = match device_count().and_then(|devices| Ok((devices, driver_version()?))) {
        Ok(found) => found,
        Err(error) => {
            let is_none = matches!(error, Unavailable::NoLibrary | Unavailable::NoDevice);
            let is_wrong = installed.is_some() || !is_none;
            let level = if is_wrong { Level::Error } else { Level::Note };
            let installed = installed.map_or_else(String::new, |version| format!("{version} is loaded, and "));
            return vec![Check::new(
                level,
                name,
                format!("{installed}{error}; everything runs on the CPU"),
            )];
        }
    };
    let installed = installed.map_or_else(String::new, |version| format!("{version}, "));
    let cuda = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
    let mut checks = vec![Check::new(
        Level::Ok,
        name,
        format!("{installed}{cuda}, {devices} devices"),
    )];
    checks.extend((0..devices).map(device));
    checks
}

/// The version in what the kernel's module says of itself: the first word that is numbers and points.
fn kernel_module(text: &str) -> Option<&str> {
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.split_whitespace().find(is_version)
}

/// Has a device make a grid, and compares it with the CPU's.
fn device(ordinal: usize) -> Check {
    let name = format!("cuda:{ordinal}");
    let choice = DeviceChoice::Cuda(Some(ordinal));
    let compared = || -> Result<(Level, String), Box<dyn std::error::Error>> {
        let placement = Placement::resolve(choice, None)?;
        let called = placement.gpu().map_or_else(String::new, |gpu| gpu.name().to_owned());
        let (expected, _, _) = grid(&Placement::cpu("to compare with"))?;
        // The first time it is loaded, and the kernels with it.
        grid(&placement)?;
        let (came, device, ms) = grid(&placement)?;
        Ok(match (device, came == expected) {
            (Device::Cuda(at), true) if at == ordinal => (
                Level::Ok,
                format!(
                    "{called}: a grid of {POINTS} points in {} ms, the same as the CPU's",
                    figure(ms)
                ),
            ),
            (Device::Cuda(_), _) => (
                Level::Error,
                format!("{called}: a grid of {POINTS} points differs from the CPU's"),
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

/// A grid of a cloud, as bytes; where it was made, and in how many ms.
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
        // Spread by a generator of Lehmer's, some of it outside the grid.
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
    Ok((voxels.columns()[0].data.bytes().to_vec(), device, ms))
}
