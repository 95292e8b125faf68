//! The cost of the operations on this machine, on the CPU and on its GPU, a JSON line for each row:
//!
//!     robocache-bench [--quick] [PART ...]
//!
//! PART is ceilings, resample, fuse, live (one robot's observation), modes (each interpolation beside `linear`),
//! voxelize, kinematics, crossover (sizes from one robot's upwards) or devices (work shared among several); all of them if none is
//! named. Three run only if they are named: copies and grids (work from and to page-locked memory, in turn with other
//! memory), and profile, which launches each kernel a few times, for Nsight Compute to look at. A row has the keys
//! - `op`, `config`, `backend` (`cpu` or `cuda`),
//! - `scope`: `device`, the work on the device alone, from a graph of many calls, or `host`, the whole operation, from a
//!   message in host memory to an output in host memory,
//! - `us_p50`, `us_p99`: of one call,
//! - `us_early_off`: the median if no kernel starts before the one ahead of it has ended ([`Gpu::set_early_start`]),
//! - `us_alone`: the median of a call that is issued and waited for by itself,
//! - `sets`: how many sets of inputs and outputs the calls go through,
//! - `touched_bytes`: what one call reads or writes of its set, each byte once; times `sets` it is several times what
//!   caches hold, but for rows that say otherwise,
//! - `gbps`, `of_copy`: the rate of these bytes, and its share of the device's copy rate.
//!
//! The middle three are null for `host`. Without a GPU there are rows of the CPU only. Progress goes to stderr. With
//! `--quick` everything is done a few times only, and nothing large: it shows that all works, not what it costs.

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

/// In the order of their rows: those after the ceilings are held against them.
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

/// Parts that run only if they are asked for.
const ONLY_ASKED: [&str; 3] = ["copies", "grids", "profile"];

/// The memory of messages, as the nodes have it.
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
