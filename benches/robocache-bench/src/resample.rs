//! Measures resampling of batches of trajectories, on the CPU and on a device. The device's values must equal the CPU's, bit
//! for bit.

use crate::batch::{self, Shape};
use crate::memory;
use crate::rows::{Rows, Scope};
use crate::slab::Slab;
use crate::timing::{self, Times};
use robocache::device::gpu::{DeviceFault, Gpu, SliceError};
use robocache::device::{Dtype, HostBuf, HostMemory};
use robocache::ops::resample::gpu::{DeviceBatch, GpuResampler};
use robocache::ops::resample::{CpuResampler, ResampleConfig, ResampleCounters, Trajectories};
use robocache::stream::Message;
use robocache::time::Interpolation;
use std::error::Error;

/// Sizes of the batches: number of trajectories, samples of each, targets of each, values of a sample.
const SHAPES: [(usize, usize, usize, usize); 5] = [
    (32, 50, 32, 16),
    (64, 4096, 1024, 32),
    (16, 4096, 1024, 32),
    (256, 512, 256, 256),
    (1024, 512, 512, 128),
];

/// Number of input and output sets of the smallest batch that fit into the L2 cache together.
const SETS_IN_CACHE: usize = 8;

/// Sizes of the batches that are compared with other libraries, in bfloat16 and float32.
pub fn shapes() -> impl Iterator<Item = Shape> {
    [Dtype::BFloat16, Dtype::Float32].into_iter().flat_map(|dtype| {
        SHAPES.map(|(rows, samples, targets, dim)| Shape {
            rows,
            samples,
            targets,
            dim,
            dtype,
        })
    })
}

/// A batch as a message, and host memory for its resampled values and their mask.
pub struct Set {
    pub message: Message,
    pub values: HostBuf,
    pub valid: HostBuf,
}

/// Makes the input and output sets that calls use in turn. Also returns the number of bytes that a call on the first set reads
/// or writes.
pub fn sets(shape: &Shape, memory: &HostMemory) -> (Vec<Set>, usize) {
    let set = |seed| {
        let (mut values, mut valid) = (HostBuf::new(memory), HostBuf::new(memory));
        values.resize(shape.rows * shape.targets * shape.dim * shape.dtype.size());
        valid.resize(shape.rows * shape.targets);
        Set {
            message: batch::message(shape, seed, memory),
            values,
            valid,
        }
    };
    let first = set(0);
    let column = |name| first.message.column(name).map_or(&[][..], |c| c.data.as_slice());
    let touched = batch::touched_bytes(shape, column("timestamps_ns"), column("targets_ns"));
    let others = (1..timing::sets_for(touched) as u64).map(set);
    (std::iter::once(first).chain(others).collect(), touched)
}

/// Measures all batches on the CPU, and on the device if there is one. If a batch fails, its rows are missing, and an error is
/// returned at the end.
pub fn measure(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let mut result = Ok(());
    for shape in shapes().filter(|shape| timing::is_wanted(shape.held_bytes())) {
        if let Err(error) = one_shape(rows, gpu, &shape) {
            eprintln!("{}: {error}", shape.config());
            result = Err("not every shape could be measured".into());
        }
    }
    result
}

fn one_shape(rows: &mut Rows, gpu: Option<&Gpu>, shape: &Shape) -> Result<(), Box<dyn Error>> {
    let rules = ResampleConfig::default();
    let mut resampler = CpuResampler::new(&rules)?;
    let config = shape.config();
    let (mut sets, bytes) = sets(shape, &memory(gpu));
    let times = host(
        &mut sets,
        |batch, values, valid| Ok(resampler.run(batch, values, valid)),
    )?;
    rows.add("resample", &config, "cpu", Scope::Host, times, bytes);
    let Some(gpu) = gpu else { return Ok(()) };
    let mut on_device = GpuResampler::new(&rules, gpu, None)?;
    let expected = sets[0].values.bytes().to_vec();
    let times = device(&on_device, shape, &sets, &expected)?;
    rows.add("resample", &config, "cuda", Scope::Device, times, bytes);
    if (shape.rows, shape.dtype) == (SHAPES[0].0, Dtype::BFloat16) {
        let few = &sets[..sets.len().min(SETS_IN_CACHE)];
        let times = device(&on_device, shape, few, &expected)?;
        rows.add(
            "resample",
            &format!("{config}, in L2"),
            "cuda",
            Scope::Device,
            times,
            bytes,
        );
    }
    let times = host(&mut sets, |batch, values, valid| on_device.run(batch, values, valid))?;
    check(&expected, sets[0].values.bytes())?;
    rows.add("resample", &config, "cuda", Scope::Host, times, bytes);
    Ok(())
}

/// Indices in [`SHAPES`] of the batches in which the modes of interpolation are compared.
const MODE_SHAPES: [usize; 3] = [0, 1, 3];

/// Measures every mode of interpolation in float32, on the CPU, and on the device if it supports the mode.
pub fn modes(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let shapes: Vec<Shape> = shapes().filter(|shape| shape.dtype == Dtype::Float32).collect();
    let shapes = MODE_SHAPES.map(|at| shapes[at]);
    for shape in shapes.iter().filter(|shape| timing::is_wanted(shape.held_bytes())) {
        let (mut sets, bytes) = sets(shape, &memory(gpu));
        for mode in Interpolation::ALL {
            let rules = batch::rules(mode, shape.dim);
            let config = format!("{}, {}", shape.config(), mode.name());
            let mut resampler = CpuResampler::new(&rules)?;
            let times = host(
                &mut sets,
                |batch, values, valid| Ok(resampler.run(batch, values, valid)),
            )?;
            rows.add("resample", &config, "cpu", Scope::Host, times, bytes);
            let Some(gpu) = gpu.filter(|_| mode.is_on_gpu()) else {
                continue;
            };
            let expected = sets[0].values.bytes().to_vec();
            let times = device(&GpuResampler::new(&rules, gpu, None)?, shape, &sets, &expected)?;
            rows.add("resample", &config, "cuda", Scope::Device, times, bytes);
        }
    }
    Ok(())
}

/// Times `run` on each input and output set in turn, us, from the message to the output in host memory. Fails if a target is
/// not valid.
pub fn host(
    sets: &mut [Set],
    mut run: impl FnMut(&Trajectories<'_>, &mut [u8], &mut [u8]) -> Result<ResampleCounters, DeviceFault>,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut result: Result<(), Box<dyn Error>> = Ok(());
    let times = timing::host(sets.len(), |at| {
        let Set { message, values, valid } = &mut sets[at];
        let ran = Trajectories::from_message(message)
            .map_err(Box::<dyn Error>::from)
            .and_then(|batch| Ok(run(&batch, values.bytes_mut(), valid.bytes_mut())?));
        match ran {
            Ok(counters) if counters.invalid == 0 => {}
            Ok(counters) => result = Err(format!("{} targets are not valid", counters.invalid).into()),
            Err(error) => result = Err(error),
        }
    });
    result.map(|()| times)
}

fn device(resampler: &GpuResampler, shape: &Shape, sets: &[Set], expected: &[u8]) -> Result<Times, Box<dyn Error>> {
    let on_device = OnDevice::new(resampler.gpu(), sets)?;
    let batches = on_device.batches(shape)?;
    // SAFETY: the slab outlives the launches, and was made for batches of this shape with ascending times.
    let times = timing::device(resampler.gpu(), batches.len(), |set| unsafe {
        resampler.launch(&batches[set])
    })?;
    let mut actual = vec![0; expected.len()];
    on_device.slab.download(0, OnDevice::OUT, &mut actual)?;
    check(expected, &actual)?;
    Ok(times)
}

fn check(expected: &[u8], actual: &[u8]) -> Result<(), Box<dyn Error>> {
    if expected == actual {
        return Ok(());
    }
    Err("the device's values are not the CPU's".into())
}

/// Device memory of all input and output sets, which calls use in turn.
pub struct OnDevice {
    slab: Slab,
    sets: usize,
}

impl OnDevice {
    const COLUMNS: [&str; 3] = ["timestamps_ns", "values", "targets_ns"];
    const OUT: usize = 3;
    const VALID: usize = 4;

    /// Copies the inputs of all sets to the device, and allocates their outputs.
    pub fn new(gpu: &Gpu, sets: &[Set]) -> Result<Self, Box<dyn Error>> {
        let columns = |set: &Set| {
            let column = |name| {
                Ok(set
                    .message
                    .column(name)
                    .ok_or("a column is not there")?
                    .data
                    .bytes()
                    .to_vec())
            };
            Self::COLUMNS.into_iter().map(column).collect::<Result<Vec<_>, &str>>()
        };
        let mut parts: Vec<usize> = columns(&sets[0])?.iter().map(Vec::len).collect();
        parts.extend([sets[0].values.len(), sets[0].valid.len()]);
        let slab = Slab::new(gpu, sets.len(), &parts)?;
        for (at, set) in sets.iter().enumerate() {
            for (part, bytes) in columns(set)?.iter().enumerate() {
                slab.upload(at, part, bytes)?;
            }
        }
        let sets = sets.len();
        Ok(Self { slab, sets })
    }

    /// Returns the batch of each input and output set, ready to launch.
    pub fn batches(&self, shape: &Shape) -> Result<Vec<DeviceBatch<'_>>, SliceError> {
        let (samples, targets) = (shape.rows * shape.samples, shape.rows * shape.targets);
        let batch = |set| {
            let slice = |part, dtype, len| self.slab.slice(set, part, dtype, len);
            Ok(DeviceBatch {
                rows: shape.rows,
                samples: shape.samples,
                targets: shape.targets,
                dim: shape.dim,
                times: slice(0, Dtype::Int64, samples)?,
                values: slice(1, shape.dtype, samples * shape.dim)?,
                targets_ns: slice(2, Dtype::Int64, targets)?,
                out: slice(Self::OUT, shape.dtype, targets * shape.dim)?,
                valid: slice(Self::VALID, Dtype::UInt8, targets)?,
            })
        };
        (0..self.sets).map(batch).collect()
    }
}
