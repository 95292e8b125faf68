//! The windows of an [`Timeline`] on a CUDA device.
//!
//! The aligner stays the one that knows when an observation is due, and its histories the truth: a [`CudaFuser`] keeps
//! a copy of them on the device, to which each window adds the samples that have come since. A window is two launches and
//! one wait, however many modalities there are, and an upload of what is new and a download of the result where they are
//! large; its values and masks are those of [`cpu`](super::cpu), to the bit. A
//! stream whose samples are on the device already has its rows there alone, and the aligner its times. A [`FuseBatch`] is many windows at once of samples that are on
//! the device already.

mod batch;
mod params;
mod push;
mod ring;

pub use batch::{BatchGroup, BatchModality, BatchOutput, BatchShape, FuseBatch};
pub use push::{DeviceSample, PushError};

use super::{Masks, Target, Timeline};
use crate::device::Dtype;
use crate::device::cuda::staging::{self, DIRECT_BYTES, Staging, room};
use crate::device::cuda::{Budget, CudaError, DeviceBuf, Gpu, PinnedBuf};
use crate::stream::{History, Place};
use bytemuck::Zeroable;
use params::{APPEND, AppendParams, BLOCK, Fresh, FuseParams, GroupParams, ModalityParams, OVERFLOW, RUN, kernel};
use ring::Ring;
use std::ops::Range;

/// Writes the windows of one aligner, whose histories it keeps on a device.
///
/// It must be the only one of its aligner. After an error it can be used again: it copies the histories anew. After one
/// of [`push`](Self::push) or [`push_host`](Self::push_host), [`bring_back`](Self::bring_back) comes first.
pub struct CudaFuser {
    gpu: Gpu,
    budget: Budget,
    rings: Vec<Ring>,
    lacking: Vec<Range<usize>>,
    modalities: Vec<ModalityParams>,
    groups: Vec<GroupParams>,
    fresh: Vec<Fresh>,
    staging: Staging,
    /// The values of a window, then its ages, then what is valid: on the device where they are many, and on the host.
    output: DeviceBuf,
    result: PinnedBuf,
    /// A sample on its way into its ring.
    row: DeviceBuf,
    /// A sample that has arrived at its history, but not in its ring.
    unplaced: Option<(usize, Place)>,
}

/// Where the parts of a window lie in the memory that it is written to.
struct Parts {
    rows: usize,
    columns: usize,
    modalities: usize,
    values_bytes: usize,
}

impl Parts {
    fn new(aligner: &Timeline, modalities: &Range<usize>) -> Self {
        let rows = aligner.window();
        let columns = modalities.clone().map(|modality| aligner.dim(modality)).sum();
        Self {
            rows,
            columns,
            modalities: modalities.len(),
            values_bytes: rows * columns * aligner.dtype().size(),
        }
    }

    /// The bytes of the ages, which follow what lies before them.
    fn ages(&self, before: usize) -> Range<usize> {
        let at = before.next_multiple_of(size_of::<i64>());
        at..at + self.rows * self.modalities * size_of::<i64>()
    }

    /// The bytes of what is valid, which follow the ages.
    fn valid(&self, before: usize) -> Range<usize> {
        let at = self.ages(before).end;
        at..at + self.rows * self.modalities
    }
}

impl CudaFuser {
    /// An empty copy of the aligner's histories on a device, whose memory counts in `budget`.
    pub fn new(aligner: &Timeline, gpu: &Gpu, budget: &Budget) -> Self {
        let dims = (0..aligner.modalities()).map(|modality| aligner.dim(modality));
        Self {
            gpu: gpu.clone(),
            budget: budget.clone(),
            rings: dims.map(|dim| Ring::new(gpu, budget, dim)).collect(),
            lacking: Vec::new(),
            modalities: Vec::new(),
            groups: Vec::new(),
            fresh: Vec::new(),
            staging: Staging::new(gpu, budget),
            output: DeviceBuf::new(gpu, budget),
            result: PinnedBuf::new(gpu),
            row: DeviceBuf::new(gpu, budget),
            unplaced: None,
        }
    }

    /// Brings the rows that are on the device alone back to the histories, so that the host goes on with them, and gives
    /// the memory of the device back. The next sample that comes there takes its stream along again.
    ///
    /// # Errors
    /// What the driver says. Rows that did not come are lost: [`Timeline::forget_elsewhere`].
    pub fn bring_back(&mut self, aligner: &mut Timeline) -> Result<(), CudaError> {
        let unplaced = self.unplaced.take();
        let brought = (0..aligner.modalities()).try_for_each(|modality| {
            let unplaced = unplaced.filter(|&(of, _)| of == modality);
            self.bring_back_rows(aligner, modality, unplaced.map(|(_, place)| place))
        });
        let dims = (0..aligner.modalities()).map(|modality| aligner.dim(modality));
        self.rings = dims.map(|dim| Ring::new(&self.gpu, &self.budget, dim)).collect();
        self.staging = Staging::new(&self.gpu, &self.budget);
        self.output.release();
        self.row.release();
        brought
    }

    fn bring_back_rows(
        &self,
        aligner: &mut Timeline,
        modality: usize,
        unplaced: Option<Place>,
    ) -> Result<(), CudaError> {
        if !aligner.rows_are_elsewhere(modality) {
            return Ok(());
        }
        let (history, dim) = (aligner.history(modality), aligner.dim(modality));
        let (first, end) = (history.first(), history.first() + history.times().len() as u64);
        let mut rows = vec![0f32; history.times().len() * dim];
        let (before, after) = match unplaced.filter(|place| !place.replaces) {
            // Samples after it still have the number in the ring that they had before it came.
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
        aligner.put_rows_back(modality, &rows);
        Ok(())
    }

    /// Writes the window of a run of modalities side by side, `[T, D]` elements of the aligner's type, newest target
    /// last, and its masks.
    ///
    /// # Errors
    /// [`CudaError`]; nothing in `out` and `masks` is of meaning then.
    ///
    /// # Panics
    /// If `out` has not T * D elements.
    pub fn window(
        &mut self,
        aligner: &Timeline,
        target: &Target,
        modalities: Range<usize>,
        out: &mut [u8],
        masks: &mut Masks,
    ) -> Result<(), CudaError> {
        let parts = Parts::new(aligner, &modalities);
        assert_eq!(
            out.len(),
            parts.values_bytes,
            "{} rows of {} columns",
            parts.rows,
            parts.columns
        );
        let written = self.write(aligner, target, &modalities, &parts, None);
        self.settle(written)?;
        out.copy_from_slice(&self.result.bytes()[..parts.values_bytes]);
        self.masks(aligner, target, &parts, parts.values_bytes, masks);
        Ok(())
    }

    /// As [`window`](Self::window), but leaves the values, `[T, D]`, on the device, at the beginning of `out`.
    ///
    /// # Errors
    /// [`CudaError`], also where `out` is on another device.
    pub fn window_on_device(
        &mut self,
        aligner: &Timeline,
        target: &Target,
        modalities: Range<usize>,
        out: &mut DeviceBuf,
        masks: &mut Masks,
    ) -> Result<(), CudaError> {
        self.gpu.check(out.gpu())?;
        let parts = Parts::new(aligner, &modalities);
        out.reserve(parts.values_bytes)?;
        let written = self.write(aligner, target, &modalities, &parts, Some(out.address()));
        self.settle(written)?;
        self.masks(aligner, target, &parts, 0, masks);
        Ok(())
    }

    /// Brings the copies of the histories up to date and writes a window, and waits for it: to `output`, and with it
    /// to `result`, the values first unless they go elsewhere.
    fn write(
        &mut self,
        aligner: &Timeline,
        target: &Target,
        modalities: &Range<usize>,
        parts: &Parts,
        elsewhere: Option<u64>,
    ) -> Result<(), CudaError> {
        let before = if elsewhere.is_some() { 0 } else { parts.values_bytes };
        let (ages, valid) = (parts.ages(before), parts.valid(before));
        self.result.resize(valid.end)?;
        let is_direct = valid.end <= DIRECT_BYTES;
        let output = if is_direct {
            staging::address(&mut self.result)
        } else {
            if valid.end > self.output.capacity() {
                self.output.reserve(valid.end)?;
                // What lies between the parts is copied with them.
                self.output.clear(0, self.output.capacity())?;
            }
            self.output.address()
        };

        let mut params = FuseParams::zeroed();
        params.out = elsewhere.unwrap_or(output);
        params.age = output + ages.start as u64;
        params.valid = output + valid.start as u64;
        params.rows = parts.rows as u32;
        params.columns = parts.columns as u32;
        params.fill = aligner.fill_value();
        params.overflow = OVERFLOW.into();
        let fresh = self.stage(aligner, target, modalities, &mut params)?;

        let grid = [parts.rows.div_ceil(RUN as usize) as u32, 1, parts.modalities as u32];
        // SAFETY: the parameters are those of the kernels. The rings have room for every sample, the staged block is as
        // large as what was put into it, `output` has room for what comes before `valid.end`, and `elsewhere` for the
        // values; page-locked memory has the same address for the device. All of it lives until the stream is
        // synchronized, which happens in here or in `settle`.
        unsafe {
            self.staging.upload()?;
            self.append(fresh)?;
            self.gpu.launch(kernel(aligner.dtype()), grid, BLOCK, &params)?;
            if !is_direct {
                self.output.download(0, self.result.bytes_mut())?;
            }
        }
        self.gpu.synchronize()
    }

    /// Puts the samples of `fresh`, a list that the device finds at that address, into their rings.
    ///
    /// # Safety
    /// The list, the samples and the rings are there until the stream is synchronized.
    unsafe fn append(&self, address: u64) -> Result<(), CudaError> {
        let elements = |fresh: &Fresh| fresh.count.saturating_mul(fresh.dim.max(1));
        let most = self.fresh.iter().map(elements).max().unwrap_or(0);
        let blocks = most.div_ceil(BLOCK).min(4 * self.gpu.multiprocessors());
        let grid = [blocks, self.fresh.len() as u32, 1];
        // SAFETY: the parameters are those of the kernel; the rest is the caller's promise.
        unsafe { self.gpu.launch(APPEND, grid, BLOCK, &AppendParams { fresh: address }) }
    }

    /// Puts what the launches need into the staging block: the targets, the samples that the device lacks, and what
    /// does not travel with the launch. Gives the address of the list of those samples.
    fn stage(
        &mut self,
        aligner: &Timeline,
        target: &Target,
        modalities: &Range<usize>,
        params: &mut FuseParams,
    ) -> Result<u64, CudaError> {
        self.lacking.clear();
        self.modalities.clear();
        self.groups.clear();
        self.fresh.clear();
        let mut column = 0;
        let mut bytes = room::<i64>(aligner.window());
        for modality in modalities.clone() {
            let (history, ring) = (aligner.history(modality), &mut self.rings[modality]);
            let (groups, dim) = (aligner.groups(modality), aligner.dim(modality));
            let lacking = ring.lacking(history)?;
            bytes += sample_room(history, &lacking, dim);
            self.modalities.push(ModalityParams {
                times: ring.times(),
                values: ring.values(),
                pitch: 0,
                head: ring.place(history, 0),
                count: history.times().len() as u32,
                mask: ring.mask(),
                dim: dim as u32,
                dtype: Dtype::Float32.code(),
                column,
                first_group: self.groups.len() as u32,
                groups: groups.len() as u32,
            });
            let rules = groups
                .iter()
                .map(|group| GroupParams::new(group.from..group.to, group.mode, &group.limits));
            self.groups.extend(rules);
            self.lacking.push(lacking);
            column += dim as u32;
        }
        bytes += room::<Fresh>(modalities.len());
        let travels = FuseParams::holds(self.modalities.len(), self.groups.len());
        if !travels {
            bytes += room::<ModalityParams>(self.modalities.len()) + room::<GroupParams>(self.groups.len());
        }

        let staging = &mut self.staging;
        staging.begin(bytes)?;
        let times = (0..aligner.window()).map(|row| aligner.row_time(target, row));
        params.targets = staging.put_each(aligner.window(), times);
        if travels {
            params.take(&self.modalities, &self.groups);
        } else {
            params.point_to(staging.put(&self.modalities), staging.put(&self.groups));
        }
        for (modality, lacking) in modalities.clone().zip(&self.lacking) {
            if !lacking.is_empty() {
                let fresh = put_samples(staging, aligner.history(modality), &self.rings[modality], lacking);
                self.fresh.push(fresh);
            }
        }
        Ok(staging.put(&self.fresh))
    }

    /// After an error nothing that was under way is waited for any more, nor relied on.
    fn settle(&mut self, written: Result<(), CudaError>) -> Result<(), CudaError> {
        if written.is_err() {
            // What it was put into the stream for has failed already.
            let _ = self.gpu.synchronize();
            self.rings.iter_mut().for_each(Ring::forget);
        }
        written
    }

    /// Reads the masks of a window out of `result`, where they come after so many bytes.
    fn masks(&self, aligner: &Timeline, target: &Target, parts: &Parts, before: usize, masks: &mut Masks) {
        let result = self.result.bytes();
        masks.timestamps_ns.clear();
        masks
            .timestamps_ns
            .extend((0..parts.rows).map(|row| aligner.row_time(target, row)));
        masks.valid.clear();
        masks
            .valid
            .extend(result[parts.valid(before)].iter().map(|&valid| i64::from(valid == 1)));
        masks.overflows.clear();
        masks.overflows.resize(parts.modalities, 0);
        for row in result[parts.valid(before)].chunks_exact(parts.modalities) {
            for (count, &valid) in masks.overflows.iter_mut().zip(row) {
                *count += i64::from(valid == OVERFLOW);
            }
        }
        masks.age_ns.clear();
        masks
            .age_ns
            .extend_from_slice(bytemuck::cast_slice(&result[parts.ages(before)]));
    }
}

/// The bytes that samples of a history take in a block.
fn sample_room(history: &History, samples: &Range<usize>, dim: usize) -> usize {
    let rows = if history.rows_are_elsewhere() { 0 } else { samples.len() };
    room::<i64>(samples.len()) + room::<f32>(rows * dim)
}

/// Puts samples of a history into a block, and says that they are to be put into its ring. Rows that are not here are in
/// the ring already.
fn put_samples(staging: &mut Staging, history: &History, ring: &Ring, samples: &Range<usize>) -> Fresh {
    let times = staging.put(&history.times()[samples.clone()]);
    if history.rows_are_elsewhere() {
        return Fresh {
            dim: 0,
            ..ring.fresh(history, samples, times, 0)
        };
    }
    let values = staging.put(history.rows(samples.clone()));
    ring.fresh(history, samples, times, values)
}
