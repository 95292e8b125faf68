//! Measures the operations on this machine, on the CPU and on its GPU, and prints a JSON line for each row. The inputs are the same
//! in every run.
//!
//!     robocache-bench [--quick] [PART ...]
//!
//! PART is one of these; all of them run if none is named:
//! - ceilings, resample, fuse, voxelize, kinematics,
//! - live (one robot's observation), modes (each interpolation beside `linear`),
//! - crossover (sizes from one robot's upwards), devices (work shared among several devices).
//!
//! Three other parts run only if they are named. The parts copies and grids compare page-locked with pageable host memory. The part
//! profile launches each kernel a few times for Nsight Compute.
//!
//! A row has the keys
//! - `op`, `config`, `backend` (`cpu` or `cuda`),
//! - `scope`: `device` for the work on the device in a graph of many calls, or `host` for the whole operation from a message to
//!   an output in host memory,
//! - `us_p50`, `us_p99`: percentiles of one call,
//! - `us_early_off`: the median if no kernel starts before its predecessor has ended ([`Gpu::set_early_start`]),
//! - `us_alone`: the median of a call that is issued and waited for by itself,
//! - `sets`: the number of sets of inputs and outputs that calls use in turn,
//! - `touched_bytes`: the number of bytes that one call reads or writes; times `sets` it is several times the size of the caches,
//!   unless the row says otherwise,
//! - `gbps`, `of_copy`: the rate of these bytes, and its share of the device's copy rate.
//!
//! The keys `us_early_off`, `us_alone` and `sets` are null for `host`. Without a GPU there are rows of the CPU only. Progress goes
//! to stderr. With `--quick` everything small runs a few times, which tests the parts and does not measure.

mod batch;
mod ceilings;
mod clouds;
mod copies;
mod crossover;
mod fuse;
mod fuse_batch;
mod kinematics;
mod profile;
mod random;
mod resample;
mod rows;
mod scene;
mod slab;
mod timing;
mod voxelize;
mod voxelize_device;

use robocache::device::HostMemory;
use robocache::device::gpu::{Gpu, Kind, device_count};
use rows::Rows;
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

type Part = fn(&mut Rows, Option<&Gpu>) -> Result<(), Box<dyn Error>>;

/// Parts of the benchmark by name, in the order in which they run. Results after `ceilings` are compared with the device's
/// copy rate.
const PARTS: [(&str, Part); 12] = [
    ("ceilings", |rows, gpu| {
        gpu.map_or(Ok(()), |gpu| Ok(ceilings::measure(rows, gpu)?))
    }),
    ("resample", resample::measure),
    ("fuse", fuse::batch),
    ("live", fuse::live),
    ("modes", |rows, gpu| {
        resample::modes(rows, gpu)?;
        fuse::modes(rows, gpu)
    }),
    ("voxelize", voxelize::measure),
    ("kinematics", kinematics::measure),
    ("crossover", |rows, gpu| {
        crossover::resample(rows, gpu)?;
        crossover::voxelize(rows, gpu)
    }),
    ("devices", |rows, _| crossover::sharded(rows)),
    ("copies", copies::measure),
    ("grids", copies::grids),
    ("profile", profile::launch),
];

/// Parts that run only if they are named.
const ONLY_ASKED: [&str; 3] = ["copies", "grids", "profile"];

/// Returns the host memory that nodes use for messages: page-locked if there is a GPU.
fn memory(gpu: Option<&Gpu>) -> HostMemory {
    gpu.map_or_else(HostMemory::pageable, HostMemory::page_locked)
}

fn main() -> ExitCode {
    let mut asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = asked.iter().position(|argument| argument == "--quick") {
        asked.remove(at);
        timing::be_quick();
    }
    if let Some(unknown) = asked.iter().find(|part| !PARTS.iter().any(|(name, _)| name == part)) {
        let names = PARTS.map(|(name, _)| name).join(", ");
        eprintln!("robocache-bench: there is no part {unknown:?} (allowed: {names})");
        return ExitCode::from(2);
    }
    let gpu = match device_count(Kind::Cuda)
        .map_err(Into::into)
        .and_then(|_| Gpu::open(Kind::Cuda, 0))
    {
        Ok(gpu) => {
            eprintln!("cuda:0 is {}", gpu.name());
            Some(gpu)
        }
        Err(error) => {
            eprintln!("without a GPU: {error}");
            None
        }
    };
    let mut rows = Rows::default();
    let mut code = ExitCode::SUCCESS;
    for (name, part) in PARTS {
        let is_asked = asked.iter().any(|asked| asked == name);
        if !is_asked && (ONLY_ASKED.contains(&name) || !asked.is_empty()) {
            continue;
        }
        let start = Instant::now();
        if let Err(error) = part(&mut rows, gpu.as_ref()) {
            eprintln!("{name}: {error}");
            code = ExitCode::FAILURE;
        }
        eprintln!("{name}: {:.0} s", start.elapsed().as_secs_f64());
    }
    code
}
