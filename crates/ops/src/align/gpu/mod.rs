//! Windows on a CUDA device, equal to the bit to those of [`cpu`](super::cpu).
//!
//! The timeline still decides when an observation is due, and its histories are authoritative. A [`GpuFuser`] mirrors each history
//! in a ring buffer on the device: before it computes a window, it appends the samples that have come since. One pass computes all
//! outputs of a window, with two launches and one wait, however many modalities there are. A pass also uploads new samples, and
//! downloads the results if they are large. If the samples of a stream arrive in device memory, only its ring buffer holds their
//! rows, and the timeline only their times.
//!
//! A [`FuseBatch`] computes the windows of many recordings at once, from samples that are on the device already.

mod batch;
mod params;
mod push;
mod ring;

pub use batch::{BatchGroup, BatchModality, BatchOutput, BatchShape, FuseBatch};
pub use push::{DeviceSample, FuserError};

use super::output::{Destination, Output};
use super::{Masks, Target, Timeline};
use crate::channel_groups::{GroupParams, count_kinds, rotations_first};
use bytemuck::Zeroable;
use params::{APPEND, AppendParams, BLOCK, Fresh, FuseParams, ModalityParams, NO_ROW, OVERFLOW, RUN, kernel};
use ring::Ring;
use robocache_device::gpu::staging::{DIRECT_BYTES, Staging, room};
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu, PinnedBuf};
use robocache_device::{Dtype, State};
use robocache_kernels::Kernel;
use robocache_stream::{History, Place};
use robocache_time::Interpolation;
use std::ops::Range;

/// Windows of one timeline on a device, which holds a copy of its histories. [`Aligner`](super::Aligner) adds the choice
/// between the device and the CPU.
///
/// A timeline has at most one fuser. A fuser can be used again after an error: it copies the histories anew. After an error of
/// [`push`](Self::push) or [`push_host`](Self::push_host), call [`bring_back`](Self::bring_back) first.
pub struct GpuFuser {
    gpu: Gpu,
    budget: Budget,
    /// Kernel that computes a window.
    kernel: Kernel,
    rings: Vec<Ring>,
    staging: Staging,
    /// Samples that the last pass had to copy into the ring buffer of each modality, as indices in the history.
    lacking: Vec<Range<usize>>,
    /// Layout of the results of the last pass in `result`, as byte ranges.
    pass: Pass,
    /// Device buffer for results that go to the host; used only if they are too large to be written to `result` directly.
    output: DeviceBuf,
    /// Page-locked host buffer for results that go to the host.
    result: PinnedBuf,
    /// Device buffers for results that stay on the device, one for each output.
    kept: Vec<DeviceBuf>,
    /// Device buffer for the values of one sample, in float32, before they are inserted into the ring buffer of its stream.
    row: DeviceBuf,
    /// Modality of a sample whose values were lost, and place of the sample in its history. The timeline has its time, but the ring
    /// buffer not its row. `None` if no row is lost.
    lost_row: Option<(usize, Place)>,
}

/// Alignment of the values of each output in a result, bytes: as many as a thread of the kernel writes at once.
const ALIGNMENT: usize = 16;

/// Layout of the results of a pass that go to the host, as byte ranges. The values of each output come first, then the ages of all
/// modalities of the pass, then their validity.
#[derive(Default)]
struct Pass {
    rows: usize,
    /// M, the number of modalities of all outputs that are computed.
    modalities: usize,
    parts: Vec<Part>,
    /// Byte range of the ages, int64 `[T, M]`.
    ages: Range<usize>,
    /// Byte range of the validity, uint8 `[T, M]`.
    valid: Range<usize>,
}

/// Copies of samples into ring buffers that one launch makes. The list is in the staging buffer.
struct CopyList<'a> {
    list: DevicePtr<'a>,
    count: usize,
    /// Number of elements of the largest copy of the list.
    most: u32,
}

/// Place of one output in the results of a pass.
struct Part {
    /// Byte range of the values of the output; empty if they stay on the device.
    values: Range<usize>,
    /// Range of the modalities of the output among all modalities of the pass.
    modalities: Range<usize>,
}

impl Pass {
    fn lay_out(&mut self, timeline: &Timeline, outputs: &[Output], wanted: &[Destination]) {
        self.rows = timeline.window();
        self.modalities = 0;
        self.parts.clear();
        let mut end = 0usize;
        for (output, &wanted) in outputs.iter().zip(wanted) {
            let bytes = if wanted == Destination::Host { output.bytes() } else { 0 };
            let modalities = match wanted {
                Destination::Nowhere => 0,
                _ => output.modalities().len(),
            };
            let begin = end.next_multiple_of(ALIGNMENT);
            self.parts.push(Part {
                values: begin..begin + bytes,
                modalities: self.modalities..self.modalities + modalities,
            });
            end = begin + bytes;
            self.modalities += modalities;
        }
        let begin = end.next_multiple_of(ALIGNMENT);
        let values = self.rows * self.modalities;
        self.ages = begin..begin + values * size_of::<i64>();
        self.valid = self.ages.end..self.ages.end + values;
    }

    /// Size of the results that come to the host, bytes.
    fn bytes(&self) -> usize {
        self.valid.end
    }
}

impl GpuFuser {
    /// Creates a fuser of a timeline whose windows have `outputs` outputs. The memory that it allocates on `gpu` counts in
    /// `budget`.
    ///
    /// # Panics
    /// If an interpolation is [not on GPUs](Interpolation::is_on_gpu).
    pub fn new(timeline: &Timeline, outputs: usize, gpu: &Gpu, budget: &Budget) -> Self {
        let modes = || {
            let groups = (0..timeline.modalities()).flat_map(|modality| timeline.groups(modality));
            groups.map(|group| group.rule.mode)
        };
        assert!(modes().all(Interpolation::is_on_gpu), "an interpolation is not on GPUs");
        let dims = (0..timeline.modalities()).map(|modality| timeline.dim(modality));
        Self {
            gpu: gpu.clone(),
            budget: budget.clone(),
            kernel: kernel(timeline.dtype(), modes().all(Interpolation::is_plain)),
            rings: dims.map(|dim| Ring::new(gpu, budget, dim)).collect(),
            staging: Staging::new(gpu, budget),
            lacking: Vec::new(),
            pass: Pass::default(),
            output: DeviceBuf::new(gpu, budget),
            result: PinnedBuf::new(gpu),
            kept: (0..outputs).map(|_| DeviceBuf::new(gpu, budget)).collect(),
            row: DeviceBuf::new(gpu, budget),
            lost_row: None,
        }
    }

    fn bring_back_rows(
        &self,
        timeline: &mut Timeline,
        modality: usize,
        lost_row: Option<Place>,
    ) -> Result<(), DeviceFault> {
        if !timeline.are_rows_on_device(modality) {
            return Ok(());
        }
        let (history, dim) = (timeline.history(modality), timeline.dim(modality));
        let (first, end) = (history.first(), history.first() + history.times().len() as u64);
        let mut rows = vec![0f32; history.times().len() * dim];
        let (before, after) = match lost_row.filter(|place| !place.replaces) {
            // In the ring, the samples after the lost row still have the numbers from before it came.
            Some(place) => {
                let (before, rest) = rows.split_at_mut((place.number - first) as usize * dim);
                (before, Some((place.number..end - 1, &mut rest[dim..])))
            }
            None => (rows.as_mut_slice(), None),
        };
        let ring = &self.rings[modality];
        ring.fetch(first..first + (before.len() / dim.max(1)) as u64, before)?;
        if let Some((numbers, after)) = after {
            ring.fetch(numbers, after)?;
        }
        timeline.restore_rows(modality, &rows);
        Ok(())
    }

    /// Computes the window of a target in one pass, and waits for the device. `wanted` is the destination of each output. The
    /// [`values`](Self::values) and [`masks`](Self::masks) can be read until the next call of any other function.
    ///
    /// # Errors
    /// [`DeviceFault`] of the GPU driver. After an error, the values and masks of the window are undefined.
    pub fn make(
        &mut self,
        timeline: &Timeline,
        target: &Target,
        outputs: &[Output],
        wanted: &[Destination],
    ) -> Result<(), DeviceFault> {
        self.pass.lay_out(timeline, outputs, wanted);
        let made = self.run_pass(timeline, target, outputs, wanted);
        self.settle(made)
    }

    fn run_pass(
        &mut self,
        timeline: &Timeline,
        target: &Target,
        outputs: &[Output],
        wanted: &[Destination],
    ) -> Result<(), DeviceFault> {
        self.prepare(timeline, outputs, wanted)?;
        let is_direct = self.pass.bytes() <= DIRECT_BYTES;
        let result = if is_direct {
            self.result.pointer()
        } else {
            self.output.pointer()
        };
        let mut params = FuseParams::zeroed();
        params.age = result.offset(self.pass.ages.start);
        params.valid = result.offset(self.pass.valid.start);
        params.rows = self.pass.rows as u32;
        params.fill = timeline.fill_value();
        params.overflow = OVERFLOW.into();
        let rows = (0..self.pass.rows).map(|row| timeline.row(target, row));
        let times = rows.map(|row| if row.is_there { row.time_ns } else { NO_ROW });
        params.targets = self.staging.put_each(self.pass.rows, times);

        let modalities = || made(outputs, wanted).flat_map(|(_, output)| output.modalities());
        let group_count = modalities().map(|modality| timeline.groups(modality).len()).sum();
        let groups = modalities().flat_map(|modality| group_params(timeline, modality));
        let described = self.describe(timeline, outputs, wanted, result);
        if FuseParams::holds(self.pass.modalities, group_count) {
            params.embed(described, groups);
        } else {
            let modalities = self.staging.put_each(self.pass.modalities, described);
            params.point_to(modalities, self.staging.put_each(group_count, groups));
        }
        let lacking = modalities()
            .zip(&self.lacking)
            .filter(|(_, lacking)| !lacking.is_empty());
        let fresh = lacking.map(|(modality, lacking)| {
            let (history, ring) = (timeline.history(modality), &self.rings[modality]);
            put_samples(&self.staging, history, ring, lacking)
        });
        let count = self.lacking.iter().filter(|lacking| !lacking.is_empty()).count();
        let fresh = self.put_list(count, fresh);

        let runs = self.pass.rows.div_ceil(RUN as usize) as u32;
        let grid = [runs, 1, self.pass.modalities as u32];
        // SAFETY: the parameters are those of the kernels. The rings have room for every sample, the block for what was put
        // into it, `result` for what comes to the host, and `kept` for what stays. Page-locked memory has the same address for
        // the device. All of it lives until the stream is synchronized, here or in `settle`.
        unsafe {
            self.staging.upload()?;
            self.append(&fresh)?;
            self.gpu.launch(self.kernel, grid, BLOCK, &params)?;
            if !is_direct {
                self.output.download(0, self.result.bytes_mut())?;
            }
        }
        self.gpu.synchronize()
    }

    /// Reserves the buffers of a pass, and finds the samples that the ring buffers of its modalities lack.
    fn prepare(&mut self, timeline: &Timeline, outputs: &[Output], wanted: &[Destination]) -> Result<(), DeviceFault> {
        let bytes = self.pass.bytes();
        self.result.resize(bytes)?;
        if bytes > DIRECT_BYTES && bytes > self.output.capacity() {
            self.output.reserve(bytes)?;
            // The gaps between the parts are copied to the host with them, so their bytes must be set.
            self.output.clear(0, self.output.capacity())?;
        }
        self.lacking.clear();
        let mut groups = 0;
        let mut staged = room::<i64>(self.pass.rows) + room::<Fresh<'_>>(self.pass.modalities);
        for (i, output) in made(outputs, wanted) {
            if wanted[i] == Destination::Device {
                self.kept[i].reserve(output.bytes())?;
            }
            for modality in output.modalities() {
                let history = timeline.history(modality);
                let lacking = self.rings[modality].lacking(history)?;
                staged += sample_room(history, &lacking, timeline.dim(modality));
                groups += timeline.groups(modality).len();
                self.lacking.push(lacking);
            }
        }
        if !FuseParams::holds(self.pass.modalities, groups) {
            staged += room::<ModalityParams<'_>>(self.pass.modalities) + room::<GroupParams>(groups);
        }
        self.staging.begin(staged)
    }

    /// Returns the kernel parameters of the modalities of a pass. `result` is the memory of the results that come to the host.
    fn describe<'a>(
        &'a self,
        timeline: &'a Timeline,
        outputs: &'a [Output],
        wanted: &'a [Destination],
        result: DevicePtr<'a>,
    ) -> impl Iterator<Item = ModalityParams<'a>> {
        let each = made(outputs, wanted).flat_map(|(i, output)| output.modalities().map(move |modality| (i, modality)));
        let (mut first_group, mut columns_before) = (0, 0);
        each.map(move |(i, modality)| {
            let (output, part) = (&outputs[i], &self.pass.parts[i]);
            let (history, ring) = (timeline.history(modality), &self.rings[modality]);
            let (groups, dim) = (timeline.groups(modality), timeline.dim(modality));
            let (rotations, has_curves) = count_kinds(groups.iter().map(|group| group.rule));
            if modality == output.modalities().start {
                columns_before = 0;
            }
            let values = match wanted[i] {
                Destination::Device => self.kept[i].pointer(),
                _ => result.offset(part.values.start),
            };
            let params = ModalityParams {
                times: ring.times(),
                values: ring.values(),
                out: values.offset(columns_before * timeline.dtype().size()),
                pitch: 0,
                head: ring.slot_of(history, 0),
                count: history.times().len() as u32,
                mask: ring.mask(),
                dim: dim as u32,
                dtype: Dtype::Float32.code(),
                columns: output.columns() as u32,
                first_group,
                groups: groups.len() as u32,
                rotations,
                has_curves,
            };
            columns_before += dim;
            first_group += groups.len() as u32;
            params
        })
    }

    /// Puts a list of `count` copies into the staging buffer.
    fn put_list<'a>(&'a self, count: usize, fresh: impl Iterator<Item = Fresh<'a>>) -> CopyList<'a> {
        let mut most = 0;
        let fresh = fresh.inspect(|fresh| most = most.max(fresh.elements()));
        let list = self.staging.put_each(count, fresh);
        CopyList { list, count, most }
    }

    /// Launches the kernel that copies the samples of a list into their ring buffers.
    ///
    /// # Safety
    /// The list, the samples and the ring buffers must live until the CUDA stream is synchronized.
    unsafe fn append(&self, fresh: &CopyList<'_>) -> Result<(), DeviceFault> {
        let blocks = fresh.most.div_ceil(BLOCK).min(4 * self.gpu.multiprocessors());
        let params = AppendParams { fresh: fresh.list };
        // SAFETY: the parameters are those of the kernel; the rest is the caller's promise.
        unsafe { self.gpu.launch(APPEND, [blocks, fresh.count as u32, 1], BLOCK, &params) }
    }

    /// Returns `done`, the result of device work. After an error, first waits for the work that is in flight, and marks the ring
    /// buffers as empty.
    fn settle(&mut self, done: Result<(), DeviceFault>) -> Result<(), DeviceFault> {
        if done.is_err() {
            // `done` is an error already.
            let _ = self.gpu.synchronize();
            self.rings.iter_mut().for_each(Ring::forget);
        }
        done
    }

    /// Bytes of the values of an output that the last pass computed for the host.
    pub fn values(&self, output: usize) -> &[u8] {
        &self.result.bytes()[self.pass.parts[output].values.clone()]
    }

    /// Moves the values of an output that stayed on the device, `bytes` bytes, into `memory`: swaps the two if `memory` counts
    /// in the same budget, and copies otherwise.
    pub fn leave(&mut self, output: usize, bytes: usize, memory: &mut DeviceBuf) -> Result<(), DeviceFault> {
        self.gpu.check(memory.gpu())?;
        let kept = &mut self.kept[output];
        if memory.is_of(&self.gpu, &self.budget) {
            std::mem::swap(kept, memory);
            return Ok(());
        }
        memory.reserve(bytes)?;
        memory.copy_from(0, kept, 0, bytes)?;
        memory.gpu().synchronize()
    }

    /// Writes the times, validity and ages of an output of the last pass to `masks`.
    pub fn masks(&self, output: usize, timeline: &Timeline, target: &Target, masks: &mut Masks) {
        let (pass, result) = (&self.pass, self.result.bytes());
        let own = pass.parts[output].modalities.clone();
        let ages: &[i64] = bytemuck::cast_slice(&result[pass.ages.clone()]);
        masks.timestamps_ns.clear();
        masks.valid.clear();
        masks.age_ns.clear();
        masks.overflows.clear();
        masks.overflows.resize(own.len(), 0);
        let of_rows = result[pass.valid.clone()].chunks_exact(pass.modalities);
        for (row, (valid, ages)) in of_rows.zip(ages.chunks_exact(pass.modalities)).enumerate() {
            let valid = &valid[own.clone()];
            masks.timestamps_ns.push(timeline.row(target, row).time_ns);
            masks.valid.extend(valid.iter().map(|&valid| i64::from(valid == 1)));
            masks.age_ns.extend_from_slice(&ages[own.clone()]);
            for (count, &valid) in masks.overflows.iter_mut().zip(valid) {
                *count += i64::from(valid == OVERFLOW);
            }
        }
    }
}

impl State for GpuFuser {
    type Host = Timeline;

    fn is_on_device(timeline: &Timeline) -> bool {
        (0..timeline.modalities()).any(|modality| timeline.are_rows_on_device(modality))
    }

    /// Moves the rows that only the device holds back to the timeline, and releases the memory of the device. The next sample
    /// that comes on the device moves its stream there again.
    ///
    /// # Errors
    /// The error of the GPU driver. Rows that were not copied back are lost: see [`Timeline::forget_rows_on_device`].
    fn bring_back(&mut self, timeline: &mut Timeline) -> Result<(), DeviceFault> {
        let lost_row = self.lost_row.take();
        let brought = (0..timeline.modalities()).try_for_each(|modality| {
            let lost_row = lost_row.filter(|&(of, _)| of == modality);
            self.bring_back_rows(timeline, modality, lost_row.map(|(_, place)| place))
        });
        let dims = (0..timeline.modalities()).map(|modality| timeline.dim(modality));
        self.rings = dims.map(|dim| Ring::new(&self.gpu, &self.budget, dim)).collect();
        self.staging = Staging::new(&self.gpu, &self.budget);
        self.output.release();
        self.kept.iter_mut().for_each(DeviceBuf::release);
        self.row.release();
        brought
    }
}

/// Returns the outputs that a pass computes, with their indices: all but those with the destination `Nowhere`.
fn made<'a>(outputs: &'a [Output], wanted: &'a [Destination]) -> impl Iterator<Item = (usize, &'a Output)> {
    let outputs = outputs.iter().enumerate();
    outputs.filter(|&(i, _)| wanted[i] != Destination::Nowhere)
}

/// Returns the kernel parameters of the groups of a modality, rotations first.
fn group_params(timeline: &Timeline, modality: usize) -> impl Iterator<Item = GroupParams> {
    let groups = timeline.groups(modality).iter();
    rotations_first(groups.map(|group| (group.from..group.to, group.rule)))
}

/// Returns the bytes that samples of a history take in the staging buffer: their times, and their rows unless only the device holds
/// them.
fn sample_room(history: &History, samples: &Range<usize>, dim: usize) -> usize {
    let rows = if history.are_rows_on_device() { 0 } else { samples.len() };
    room::<i64>(samples.len()) + room::<f32>(rows * dim)
}

/// Puts samples of a history into the staging buffer, and returns the copy that brings them into the ring buffer. If only the
/// device holds the rows, the copy is of the times alone.
fn put_samples<'a>(staging: &'a Staging, history: &History, ring: &'a Ring, samples: &Range<usize>) -> Fresh<'a> {
    let times = staging.put(&history.times()[samples.clone()]);
    if history.are_rows_on_device() {
        return Fresh {
            dim: 0,
            ..ring.fresh(history, samples, times, DevicePtr::NULL)
        };
    }
    let values = staging.put(history.rows(samples.clone()));
    ring.fresh(history, samples, times, values)
}
