//! Measures what it costs that host memory is pageable, not page-locked. Calls with both kinds of memory alternate, so that
//! other load on the machine affects both alike.
//!
//! Rows named `to pageable` have page-locked inputs and pageable outputs, as a node has: its outputs are in dora's memory. Rows
//! named `pageable` have both in pageable memory, as a program has its arrays.

use crate::batch::Shape as Batch;
use crate::clouds::{self, Output, SWEEPS, Shape};
use crate::resample::{self, Set};
use crate::rows::{Rows, Scope};
use crate::timing::{self, Pace};
use crate::voxelize;
use robocache::device::gpu::{Budget, DeviceBuf, DeviceFault, Gpu, PinnedBuf};
use robocache::device::{Dtype, HostBuf, HostMemory};
use robocache::ops::resample::gpu::GpuResampler;
use robocache::ops::resample::{ResampleConfig, Trajectories};
use robocache::ops::voxelize::VoxelLayout;
use robocache::ops::voxelize::gpu::GpuVoxelizer;
use robocache::stream::Message;
use std::error::Error;

/// A combination of host memories: `input` and `output` are true if the memory is page-locked.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    input: bool,
    output: bool,
}

const WAYS: [Way; 3] = [
    Way {
        name: "page-locked",
        input: true,
        output: true,
    },
    Way {
        name: "to pageable",
        input: true,
        output: false,
    },
    Way {
        name: "pageable",
        input: false,
        output: false,
    },
];

/// Sizes of the measured copies, bytes: 256 KiB, a bitmap of 256^3 cells, 16 MiB, and a dense float32 grid of 256^3 cells.
const COPIED_BYTES: [usize; 4] = [256 << 10, GRID_BYTES, 16 << 20, 64 << 20];
const GRID_BYTES: usize = 2 << 20;
/// Shapes of the measured cloud: the full room, or with `--quick` the small room.
const ROOMS: [Shape; 2] = [clouds::SHAPES[0], SMALL_ROOM];
const SMALL_ROOM: Shape = Shape {
    clouds: 1,
    ..clouds::SHAPES[1]
};
/// Number of output buffers that calls use in turn: dora's shared-memory buffers change their address from message to
/// message, too.
const OUTPUTS: usize = 4;

const BATCHES: [Batch; 5] = [
    batch(256, 50, 16, 32, Dtype::Float32),
    batch(64, 4096, 1024, 32, Dtype::BFloat16),
    batch(64, 4096, 1024, 32, Dtype::Float32),
    batch(256, 512, 256, 256, Dtype::Float32),
    batch(1024, 512, 512, 128, Dtype::BFloat16),
];

const fn batch(rows: usize, samples: usize, targets: usize, dim: usize, dtype: Dtype) -> Batch {
    Batch {
        rows,
        samples,
        targets,
        dim,
        dtype,
    }
}

type Called = Result<(), Box<dyn Error>>;
type Call<'a> = Box<dyn FnMut(usize) -> Called + 'a>;

/// Measures single copies, and batches of trajectories, on the device. Does nothing without a device.
pub fn measure(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let Some(gpu) = gpu else { return Ok(()) };
    for bytes in COPIED_BYTES.into_iter().filter(|&bytes| timing::is_wanted(bytes)) {
        copies(rows, gpu, bytes, Pace::AtOnce)?;
    }
    for shape in BATCHES.iter().filter(|shape| timing::is_wanted(shape.held_bytes())) {
        batches(rows, gpu, shape)?;
    }
    Ok(())
}

/// Measures voxel grids of clouds on the device, without pauses and at the rate of a lidar. Does nothing without a device.
pub fn grids(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let Some(gpu) = gpu else { return Ok(()) };
    let Some(room) = ROOMS.into_iter().find(|room| timing::is_wanted(room.cells())) else {
        return Ok(());
    };
    copies(rows, gpu, GRID_BYTES, Pace::Live)?;
    for layout in [VoxelLayout::Coo, VoxelLayout::Bits, VoxelLayout::Dense] {
        for pace in [Pace::AtOnce, Pace::Live] {
            grids_of(rows, gpu, &room, layout, pace)?;
        }
    }
    Ok(())
}

fn memory(gpu: &Gpu, is_page_locked: bool) -> HostMemory {
    if is_page_locked {
        HostMemory::page_locked(gpu)
    } else {
        HostMemory::pageable()
    }
}

/// Times several calls, one of each per round, and adds an output row for each. An item of `calls` is the name of the row, and
/// a function that gets the index of the round.
fn add(rows: &mut Rows, op: &str, pace: Pace, bytes: usize, calls: Vec<(String, Call<'_>)>) -> Called {
    let mut result = Ok(());
    let (names, mut calls): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    let times = timing::in_turn(calls.len(), pace, |which, run| {
        if let Err(error) = calls[which](run) {
            result = Err(error);
        }
    });
    result?;
    for (name, times) in names.iter().zip(times) {
        rows.add(op, &format!("{name}{}", pace.name()), "cuda", Scope::Host, times, bytes);
    }
    Ok(())
}

/// Measures single copies to the device and back. Each copy is waited for.
fn copies(rows: &mut Rows, gpu: &Gpu, bytes: usize, pace: Pace) -> Result<(), Box<dyn Error>> {
    let mut device = DeviceBuf::new(gpu, &Budget::new(None));
    device.reserve(bytes)?;
    device.clear(0, bytes)?;
    let device = &device;
    let mut calls: Vec<(String, Call<'_>)> = Vec::new();
    for (name, is_page_locked) in [("page-locked", true), ("pageable", false)] {
        let new = || {
            let mut buffer = HostBuf::new(&memory(gpu, is_page_locked));
            buffer.copy_from(&vec![1; bytes]);
            buffer
        };
        let mut downloads: Vec<HostBuf> = (0..OUTPUTS).map(|_| new()).collect();
        let uploads: Vec<HostBuf> = (0..OUTPUTS).map(|_| new()).collect();
        calls.push((
            format!("download of {bytes} bytes, {name}"),
            Box::new(move |run| Ok(device.fetch(0, downloads[run % OUTPUTS].bytes_mut())?)),
        ));
        calls.push((
            format!("upload of {bytes} bytes, {name}"),
            Box::new(move |run| {
                // SAFETY: the memory is left alone until the stream is synchronized.
                let copied = unsafe { device.upload(0, uploads[run % OUTPUTS].bytes()) };
                Ok(copied.and(gpu.synchronize())?)
            }),
        ));
    }
    add(rows, "copy", pace, bytes, calls)
}

/// Measures the grids of a cloud with each combination of memories, from the message to the output.
fn grids_of(rows: &mut Rows, gpu: &Gpu, room: &Shape, layout: VoxelLayout, pace: Pace) -> Result<(), Box<dyn Error>> {
    let locked = clouds::sweeps(room, &memory(gpu, true));
    let pageable = clouds::sweeps(room, &memory(gpu, false));
    let config = room.voxelize(layout)?;
    let bytes = clouds::touched_bytes(room, layout, &locked)?;
    let mut calls: Vec<(String, Call<'_>)> = Vec::new();
    for way in WAYS {
        let mut voxelizer = GpuVoxelizer::new(&config, gpu, None)?;
        let sweeps: &[Message] = if way.input { &locked } else { &pageable };
        let output = || Output::new(room, layout, &memory(gpu, way.output));
        let mut outputs: Vec<Output> = (0..OUTPUTS).map(|_| output()).collect();
        calls.push((
            format!("{}, {}", room.config(layout), way.name),
            Box::new(move |run| {
                let out = &mut outputs[run % OUTPUTS];
                voxelize::on_gpu(&mut voxelizer, layout, &sweeps[run % SWEEPS], out)
            }),
        ));
    }
    add(rows, "voxelize", pace, bytes, calls)
}

/// Measures batches of trajectories with each combination of memories, from the message to the output. Two more rows measure
/// parts of this work: reading the message, and the copies in both directions at once.
fn batches(rows: &mut Rows, gpu: &Gpu, shape: &Batch) -> Result<(), Box<dyn Error>> {
    let rules = ResampleConfig::default();
    let (locked, bytes) = resample::sets(shape, &memory(gpu, true));
    let sets = locked.len();
    let (pageable, _) = resample::sets(shape, &memory(gpu, false));
    let from = |is_locked: bool, set: usize| {
        if is_locked {
            &locked[set].message
        } else {
            &pageable[set].message
        }
    };
    let answer = |is_locked: bool| -> Vec<(HostBuf, HostBuf)> {
        let of = |set: &Set| {
            let new = |bytes| {
                let mut buffer = HostBuf::new(&memory(gpu, is_locked));
                buffer.resize(bytes);
                buffer
            };
            (new(set.values.len()), new(set.valid.len()))
        };
        locked.iter().take(OUTPUTS).map(of).collect()
    };
    let mut calls: Vec<(String, Call<'_>)> = Vec::new();
    for way in WAYS {
        let mut resampler = GpuResampler::new(&rules, gpu, None)?;
        let mut answers = answer(way.output);
        let from = &from;
        calls.push((
            format!("{}, {}", shape.config(), way.name),
            Box::new(move |run| {
                let batch = Trajectories::from_message(from(way.input, run % sets))?;
                let at = run % answers.len();
                let (values, valid) = &mut answers[at];
                match resampler.run(&batch, values.bytes_mut(), valid.bytes_mut())?.invalid {
                    0 => Ok(()),
                    invalid => Err(format!("{invalid} targets are not valid").into()),
                }
            }),
        ));
    }
    let from = &from;
    calls.push((
        format!("{}, reading the message", shape.config()),
        Box::new(move |run| {
            let batch = Trajectories::from_message(from(true, run % sets))?;
            std::hint::black_box(batch.targets());
            Ok(())
        }),
    ));
    let input: usize = locked[0].message.columns().iter().map(|column| column.data.len()).sum();
    let mut both = BothWays::new(gpu, input, locked[0].values.len() + locked[0].valid.len())?;
    calls.push((
        format!("{}, copies alone", shape.config()),
        Box::new(move |_| Ok(both.copy()?)),
    ));
    add(rows, "resample", Pace::AtOnce, bytes, calls)
}

/// Buffers for copies in both directions at once: for each direction, device memory with a stream of its own, and page-locked
/// host memory.
struct BothWays {
    up: (DeviceBuf, PinnedBuf),
    down: (DeviceBuf, PinnedBuf),
}

impl BothWays {
    fn new(gpu: &Gpu, up: usize, down: usize) -> Result<Self, DeviceFault> {
        let one = |bytes| {
            let stream = gpu.another()?;
            let (mut device, mut host) = (DeviceBuf::new(&stream, &Budget::new(None)), PinnedBuf::new(&stream));
            device.reserve(bytes)?;
            device.clear(0, bytes)?;
            host.resize(bytes)?;
            Ok::<_, DeviceFault>((device, host))
        };
        Ok(Self {
            up: one(up)?,
            down: one(down)?,
        })
    }

    fn copy(&mut self) -> Result<(), DeviceFault> {
        let ((to, up), (from, down)) = (&self.up, &mut self.down);
        // SAFETY: nobody touches the host's memory before the streams are synchronized, right below.
        let copied = unsafe {
            to.upload(0, up.bytes())
                .and_then(|()| from.download(0, down.bytes_mut()))
        };
        copied.and(to.gpu().synchronize()).and(from.gpu().synchronize())
    }
}
