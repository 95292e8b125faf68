//! Measures fusing a batch of windows on a device, from samples that are in device memory already. The results of the first
//! input set must equal the CPU's, bit for bit.

use crate::batch::{self, Shape};
use crate::random::Random;
use crate::rows::{Rows, Scope};
use crate::slab::Slab;
use crate::timing;
use robocache::device::gpu::{Budget, DeviceFault, Gpu};
use robocache::device::{Dtype, HostMemory};
use robocache::ops::align::gpu::{BatchGroup, BatchModality, BatchOutput, BatchShape, FuseBatch};
use robocache::ops::resample::{CpuResampler, Trajectories};
use robocache::time::{Interpolation, Limits, Rule};
use std::error::Error;

/// Number of windows in the batch, number of targets in each, and samples and columns of each modality.
pub const BATCH: (usize, usize, [(usize, usize); 3]) = (32, 256, [(150, 128), (1000, 32), (5000, 16)]);

/// Mode of interpolation of each modality.
type Modes = [Interpolation; BATCH.2.len()];
const LINEAR: Modes = [Interpolation::Linear; BATCH.2.len()];

/// Name of the batch in the output rows.
pub fn batch_config() -> String {
    let (windows, rows, streams) = BATCH;
    let join = |part: fn(&(usize, usize)) -> usize, with: &str| {
        let parts: Vec<String> = streams.iter().map(|stream| part(stream).to_string()).collect();
        parts.join(with)
    };
    format!(
        "{windows}x{rows} of {} from {} bfloat16",
        join(|s| s.1, "+"),
        join(|s| s.0, "/")
    )
}

/// One input set: the targets of all windows, ns, and each modality's sizes, times and values. The benchmark uses several sets
/// in turn.
struct Windows {
    targets: Vec<i64>,
    streams: Vec<(Shape, Vec<i64>, Vec<u8>)>,
}

/// Index of the buffer with the targets in a set's device memory. The buffers after it hold the fused values, validity, ages,
/// and the times and values of each modality.
const TARGETS: usize = 0;
const OUT: usize = 1;
const VALID: usize = 2;
const AGES: usize = 3;
const STREAMS: usize = 4;

impl Windows {
    fn new(seed: u64) -> Self {
        let (windows, rows, streams) = BATCH;
        let mut random = Random::new(seed);
        let streams = streams.map(|(samples, dim)| {
            let times: Vec<i64> = (0..windows)
                .flat_map(|_| batch::stamps(&mut random, samples).collect::<Vec<_>>())
                .collect();
            let values = batch::values(&mut random, windows * samples * dim, Dtype::BFloat16);
            let shape = Shape {
                rows: windows,
                samples,
                targets: rows,
                dim,
                dtype: Dtype::BFloat16,
            };
            (shape, times, values)
        });
        let targets = (0..windows).flat_map(|window| {
            let first = streams.iter().map(|(shape, times, _)| times[window * shape.samples]);
            let last = streams
                .iter()
                .map(|(shape, times, _)| times[(window + 1) * shape.samples - 1]);
            let (first, last) = (first.max().unwrap_or(0), last.min().unwrap_or(0));
            batch::targets(&mut random, rows, first, last)
        });
        Self {
            targets: targets.collect(),
            streams: streams.into(),
        }
    }

    /// Number of bytes that a call reads or writes, each counted once: samples that a target needs, targets, values and masks.
    fn touched_bytes(&self) -> usize {
        let (windows, rows, streams) = BATCH;
        let targets = windows * rows * size_of::<i64>();
        let ages = windows * rows * streams.len() * size_of::<i64>();
        let all = self.streams.iter();
        let each = all.map(|(shape, times, _)| batch::touched_bytes(shape, times, &self.targets) - targets);
        targets + ages + each.sum::<usize>()
    }

    /// Computes the expected values on the CPU: resamples each modality separately, and joins the results side by side in
    /// each row.
    fn expected(&self, modes: Modes) -> Result<Vec<u8>, Box<dyn Error>> {
        let (windows, rows, _) = BATCH;
        let mut each = Vec::new();
        for ((shape, times, values), mode) in self.streams.iter().zip(modes) {
            let mut resampler = CpuResampler::new(&batch::rules(mode, shape.dim))?;
            let message = batch::message_of(shape, (times, values, &self.targets), &HostMemory::pageable());
            let (mut out, mut valid) = (vec![0; windows * rows * shape.dim * 2], vec![0; windows * rows]);
            resampler.run(&Trajectories::from_message(&message)?, &mut out, &mut valid);
            each.push((shape.dim * 2, out));
        }
        let row = |row: usize| each.iter().flat_map(move |(bytes, out)| &out[row * bytes..][..*bytes]);
        Ok((0..windows * rows).flat_map(row).copied().collect())
    }
}

/// Device memory of all input and output sets, which calls use in turn.
struct OnDevice {
    slab: Slab,
    first: Windows,
    sets: usize,
}

impl OnDevice {
    fn new(gpu: &Gpu) -> Result<Self, Box<dyn Error>> {
        let (windows, targets, streams) = BATCH;
        let columns: usize = streams.iter().map(|stream| stream.1).sum();
        let masks = windows * targets * streams.len();
        let mut parts = vec![windows * targets * 8, windows * targets * columns * 2, masks, masks * 8];
        for (samples, dim) in streams {
            parts.extend([windows * samples * 8, windows * samples * dim * 2]);
        }
        let first = Windows::new(0);
        let sets = timing::sets_for(first.touched_bytes());
        let slab = Slab::new(gpu, sets, &parts)?;
        for set in 0..sets {
            let windows = Windows::new(set as u64);
            slab.upload(set, TARGETS, bytemuck::cast_slice(&windows.targets))?;
            for (stream, (_, times, values)) in windows.streams.iter().enumerate() {
                slab.upload(set, STREAMS + 2 * stream, bytemuck::cast_slice(times))?;
                slab.upload(set, STREAMS + 2 * stream + 1, values)?;
            }
        }
        Ok(Self { slab, first, sets })
    }

    /// Makes a [`FuseBatch`] for each input and output set, ready to launch.
    fn fusers(&self, gpu: &Gpu, modes: Modes) -> Result<Vec<FuseBatch<'_>>, DeviceFault> {
        (0..self.sets).map(|set| fuser(gpu, &self.slab, set, modes)).collect()
    }
}

/// Launches the batch once with each input and output set, for a profiler.
pub fn launch(gpu: &Gpu) -> Result<(), Box<dyn Error>> {
    for fuser in OnDevice::new(gpu)?.fusers(gpu, LINEAR)? {
        // SAFETY: the slab outlives the launches, and its parts have the sizes that the fusers were given.
        unsafe { fuser.launch() }?;
        gpu.synchronize()?;
    }
    Ok(())
}

/// Measures the batch with linear interpolation.
pub fn measure(rows: &mut Rows, gpu: &Gpu) -> Result<(), Box<dyn Error>> {
    measure_as(rows, gpu, LINEAR, &batch_config())
}

/// Measures the batch in several combinations of modes, with linear interpolation first.
pub fn modes(rows: &mut Rows, gpu: &Gpu) -> Result<(), Box<dyn Error>> {
    use Interpolation::{Angle, Cubic, Linear, Pchip, Rot6d, Slerp};
    for modes in [
        LINEAR,
        [Linear, Angle, Slerp],
        [Linear, Angle, Rot6d],
        [Angle; 3],
        [Cubic; 3],
        [Pchip; 3],
    ] {
        let config = format!("{}, {}", batch_config(), modes.map(Interpolation::name).join(" + "));
        measure_as(rows, gpu, modes, &config)?;
    }
    Ok(())
}

fn measure_as(rows: &mut Rows, gpu: &Gpu, modes: Modes, config: &str) -> Result<(), Box<dyn Error>> {
    let on_device = OnDevice::new(gpu)?;
    let fusers = on_device.fusers(gpu, modes)?;
    // SAFETY: the slab outlives the launches, and its parts have the sizes that the fusers were given.
    let times = timing::device(gpu, fusers.len(), |set| unsafe { fusers[set].launch() })?;
    let expected = on_device.first.expected(modes)?;
    let mut actual = vec![0; expected.len()];
    on_device.slab.download(0, OUT, &mut actual)?;
    if actual != expected {
        return Err("the fused values are not those of each modality by itself".into());
    }
    let bytes = on_device.first.touched_bytes();
    rows.add("fuse", config, "cuda", Scope::Device, times, bytes);
    Ok(())
}

fn fuser<'a>(gpu: &Gpu, slab: &'a Slab, set: usize, modes: Modes) -> Result<FuseBatch<'a>, DeviceFault> {
    let (entries, rows, streams) = BATCH;
    let columns: usize = streams.iter().map(|stream| stream.1).sum();
    let modality = |(stream, &(samples, dim)): (usize, &(usize, usize))| {
        let (times, values) = (STREAMS + 2 * stream, STREAMS + 2 * stream + 1);
        Ok(BatchModality {
            times: slab.slice(set, times, Dtype::Int64, entries * samples)?,
            values: slab.slice(set, values, Dtype::BFloat16, entries * samples * dim)?,
            samples,
            dim,
            groups: batch::groups(modes[stream], dim)
                .into_iter()
                .map(|(channels, mode)| BatchGroup {
                    channels,
                    rule: Rule::new(mode, Limits::default()),
                })
                .collect(),
        })
    };
    let modalities: Result<Vec<_>, DeviceFault> = streams.iter().enumerate().map(modality).collect();
    let shape = BatchShape {
        entries,
        rows,
        targets: slab.slice(set, TARGETS, Dtype::Int64, entries * rows)?,
    };
    let masks = entries * rows * streams.len();
    let output = BatchOutput {
        values: slab.slice(set, OUT, Dtype::BFloat16, entries * rows * columns)?,
        valid: slab.slice(set, VALID, Dtype::UInt8, masks)?,
        age_ns: slab.slice(set, AGES, Dtype::Int64, masks)?,
        fill_value: 0.0,
    };
    FuseBatch::new(gpu, &Budget::new(None), &modalities?, &shape, &output)
}
