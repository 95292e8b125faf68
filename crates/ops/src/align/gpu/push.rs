//! Samples that arrive in device memory: their rows (values) stay there, in the ring buffer of their stream.
//!
//! The host gets only the times, and for a check the few channels that must be rotations. If an error keeps a row out of its ring
//! buffer, the caller puts the row back: [`Timeline::restore`].

use super::params::{ALL_FINITE, BLOCK, Fresh, INSERT, InsertParams, TAKE, TAKEN_AT_ONCE, TakeParams, Verdict};
use super::{GpuFuser, put_samples, sample_room};
use crate::align::timeline::check_rotation;
use crate::align::{PushOutcome, SampleError, Timeline};
use robocache_device::gpu::staging::room;
use robocache_device::gpu::{DeviceBuf, DeviceFault, DevicePtr, DeviceSlice, SliceError};
use robocache_device::{Dtype, HostBuf, Values};
use robocache_stream::{DeviceColumn, Place};
use std::ops::Range;

/// Greatest number of thread blocks per multiprocessor that convert one sample.
const TAKING_BLOCKS: u32 = 8;

/// Greatest number of channels of one rotation: 6, with `rot6d`.
const MAX_ROTATION_CHANNELS: usize = 6;

/// Reason why a [`GpuFuser`] could not add a sample to the timeline, or added only its time.
#[derive(Debug, thiserror::Error)]
pub enum FuserError {
    /// The sample is invalid and dropped. Later samples of the stream are taken as usual.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The device failed, or has no memory left. The sample was not added to the timeline.
    #[error(transparent)]
    Gpu(#[from] DeviceFault),
    /// The device failed, or has no memory left. The timeline has the time of the sample, but its values are lost.
    #[error("{error}")]
    Lost {
        /// Error of the GPU driver.
        error: DeviceFault,
        /// Result of adding the sample's time to the timeline.
        pushed: PushOutcome,
    },
}

/// Values of a sample in the memory of a device. The work that writes them has finished.
#[derive(Clone, Copy)]
pub struct DeviceSample<'a> {
    memory: &'a DeviceBuf,
    offset: usize,
    values: DeviceSlice<'a>,
}

impl<'a> DeviceSample<'a> {
    /// Creates a sample of `len` values of type `dtype` from byte `offset` of the memory on.
    ///
    /// # Errors
    /// [`SliceError`] if the values are not within the memory, or not aligned.
    pub fn new(memory: &'a DeviceBuf, offset: usize, dtype: Dtype, len: usize) -> Result<Self, SliceError> {
        Ok(Self {
            values: memory.slice(offset, dtype, len)?,
            memory,
            offset,
        })
    }

    /// Creates a sample of the range `elements` of a tensor in device memory.
    pub(in crate::align) fn of(tensor: &'a DeviceColumn, elements: Range<usize>) -> Result<Self, DeviceFault> {
        let offset = elements.start * tensor.dtype.size();
        Ok(Self::new(&tensor.memory, offset, tensor.dtype, elements.len())?)
    }

    /// Copies the sample into `to`, in host memory, and returns its values there.
    pub(in crate::align) fn fetch(self, to: &mut HostBuf) -> Result<Values<'_>, DeviceFault> {
        to.resize(self.values.bytes());
        self.memory.fetch(self.offset, to.bytes_mut())?;
        Ok(Values::new(self.values.dtype(), to.bytes()))
    }
}

impl GpuFuser {
    /// Adds a sample that is on the device to the timeline, as [`Timeline::push`] adds a sample of the host. The caller may reuse
    /// the memory of the sample on return.
    ///
    /// From the first such sample on, only the ring buffer on the device holds the rows of its stream, and a sample in host memory
    /// must be pushed with [`push_host`](Self::push_host). [`bring_back`](robocache_device::State::bring_back) moves the rows back
    /// to the host.
    ///
    /// # Errors
    /// [`FuserError::Sample`] for an invalid sample, as from [`Timeline::push`]. All other errors are the device's. After one,
    /// [bring the rows back](robocache_device::State::bring_back), or [forget them](Timeline::forget_rows_on_device) if that fails.
    /// Then [push](Timeline::push) the sample on the host, or [restore](Timeline::restore) it after [`FuserError::Lost`].
    pub fn push(
        &mut self,
        timeline: &mut Timeline,
        modality: usize,
        stamp_ns: i64,
        sample: DeviceSample<'_>,
    ) -> Result<PushOutcome, FuserError> {
        self.gpu.check(sample.memory.gpu())?;
        timeline.check(modality, stamp_ns, sample.values.len())?;
        if let Some(Verdict { channel, value }) = self.take(sample.values)? {
            let channel = channel as usize;
            return Err(SampleError::NonFinite { channel, value }.into());
        }
        self.check_rotations(timeline, modality)?;
        self.take_rows(timeline, modality)?;
        self.make_room(timeline, modality)?;
        let (pushed, place) = timeline.push_time(modality, stamp_ns);
        let row = self.row.pointer();
        // SAFETY: the row stays as it is until the next one is taken, which comes later in the stream.
        let inserted = unsafe { self.insert(timeline, modality, place, row) };
        self.arrived(modality, place, pushed, inserted)
    }

    /// Checks that the values in the buffer `row` are rotations where a group needs one. Only these few channels are copied to the
    /// host.
    fn check_rotations(&self, timeline: &Timeline, modality: usize) -> Result<(), FuserError> {
        let mut channels = [0f32; MAX_ROTATION_CHANNELS];
        for group in timeline
            .groups(modality)
            .iter()
            .filter(|group| group.rule.mode.is_rotation())
        {
            let channels = &mut channels[..group.to - group.from];
            let offset = group.from * size_of::<f32>();
            self.row.fetch(offset, bytemuck::cast_slice_mut(channels))?;
            check_rotation(group, channels)?;
        }
        Ok(())
    }

    /// Converts a sample to float32 in the buffer `row`. Returns its first channel that is not finite; `None` if all are finite.
    fn take(&mut self, sample: DeviceSlice<'_>) -> Result<Option<Verdict>, DeviceFault> {
        let most = TAKING_BLOCKS * self.gpu.multiprocessors();
        let blocks = (sample.len() as u32).div_ceil(BLOCK * TAKEN_AT_ONCE).clamp(1, most);
        self.row.reserve(sample.len() * size_of::<f32>())?;
        self.result.resize(blocks as usize * size_of::<Verdict>())?;
        let params = TakeParams {
            sample: sample.pointer(),
            row: self.row.pointer(),
            verdicts: self.result.pointer(),
            dim: sample.len() as u32,
            dtype: sample.dtype().code(),
        };
        // SAFETY: the parameters are those of the kernel. There is room in `row` for the values and in `result` for a verdict
        // of each block. The stream is synchronized before any of it is used otherwise.
        let taken = unsafe { self.gpu.launch(TAKE, [blocks, 1, 1], BLOCK, &params) };
        taken.and(self.gpu.synchronize())?;
        let verdicts: &[Verdict] = self.result.as_slice();
        let first = verdicts.iter().min_by_key(|verdict| verdict.channel);
        Ok(first.copied().filter(|first| first.channel != ALL_FINITE))
    }

    /// Returns `pushed`, the outcome of adding a sample. If the insertion of its row into the ring buffer failed, notes the row as
    /// lost and returns [`FuserError::Lost`].
    fn arrived(
        &mut self,
        modality: usize,
        place: Option<Place>,
        pushed: PushOutcome,
        inserted: Result<(), DeviceFault>,
    ) -> Result<PushOutcome, FuserError> {
        inserted.map(|()| pushed).map_err(|error| {
            self.lost_row = place.map(|place| (modality, place));
            FuserError::Lost { error, pushed }
        })
    }

    /// Adds a sample in host memory to the timeline, as [`Timeline::push`] does. If only the device holds the rows of its stream,
    /// the row of the sample is sent there.
    ///
    /// # Errors
    /// The same as those of [`push`](Self::push).
    pub fn push_host(
        &mut self,
        timeline: &mut Timeline,
        modality: usize,
        stamp_ns: i64,
        sample: Values<'_>,
    ) -> Result<PushOutcome, FuserError> {
        if !timeline.are_rows_on_device(modality) {
            return Ok(timeline.push(modality, stamp_ns, sample)?);
        }
        self.make_room(timeline, modality)?;
        let row = timeline.read(modality, stamp_ns, sample)?;
        self.staging.begin(room::<f32>(row.len()))?;
        let row = self.staging.put(row);
        let (pushed, place) = timeline.push_time(modality, stamp_ns);
        // SAFETY: the row is in the staging block, which stays as it is until the stream is synchronized.
        let inserted = unsafe {
            let uploaded = self.staging.upload();
            uploaded.and_then(|()| self.insert(timeline, modality, place, row))
        };
        let inserted = inserted.and(self.gpu.synchronize());
        self.arrived(modality, place, pushed, inserted)
    }

    /// Moves the rows of a modality to the device: from now on only its ring buffer holds them.
    fn take_rows(&mut self, timeline: &mut Timeline, modality: usize) -> Result<(), DeviceFault> {
        if timeline.are_rows_on_device(modality) {
            return Ok(());
        }
        let caught_up = self.catch_up(timeline, modality);
        self.settle(caught_up)?;
        timeline.move_rows_to_device(modality);
        Ok(())
    }

    /// Copies the samples that the ring buffer of a modality lacks into it, and waits for the device.
    fn catch_up(&mut self, timeline: &Timeline, modality: usize) -> Result<(), DeviceFault> {
        let history = timeline.history(modality);
        let lacking = self.rings[modality].lacking(history)?;
        if lacking.is_empty() {
            return Ok(());
        }
        let bytes = sample_room(history, &lacking, timeline.dim(modality));
        self.staging.begin(bytes + room::<Fresh<'_>>(1))?;
        let fresh = put_samples(&self.staging, history, &self.rings[modality], &lacking);
        self.append_and_wait(&[fresh])
    }

    /// Makes room in the ring buffer of a modality for one more sample: moves its rows to a larger ring buffer if need be.
    fn make_room(&mut self, timeline: &Timeline, modality: usize) -> Result<(), DeviceFault> {
        let (history, ring) = (timeline.history(modality), &self.rings[modality]);
        let held = history.times().len() + 1;
        if ring.has_room(held) {
            return Ok(());
        }
        let larger = ring.larger(&self.gpu, &self.budget, held)?;
        let moves: Vec<Fresh<'_>> = larger.moves(history, ring).collect();
        self.staging.begin(room::<Fresh<'_>>(moves.len()))?;
        self.append_and_wait(&moves)?;
        drop(moves);
        self.rings[modality] = larger;
        Ok(())
    }

    /// Copies samples into ring buffers and waits for the device. The list of the copies goes into the staging buffer first.
    fn append_and_wait(&self, fresh: &[Fresh<'_>]) -> Result<(), DeviceFault> {
        let list = self.put_list(fresh.len(), fresh.iter().copied());
        // SAFETY: all of it is there until the stream is synchronized, right here.
        let appended = unsafe { self.staging.upload().and_then(|()| self.append(&list)) };
        appended.and(self.gpu.synchronize())
    }

    /// Inserts the row at device address `row` into the ring buffer of a modality, at `place` in its history. Does nothing without
    /// a place.
    ///
    /// # Safety
    /// The row must not change until the CUDA stream has executed the insertion.
    unsafe fn insert(
        &self,
        timeline: &Timeline,
        modality: usize,
        place: Option<Place>,
        row: DevicePtr<'_>,
    ) -> Result<(), DeviceFault> {
        let Some(place) = place else { return Ok(()) };
        let ring = &self.rings[modality];
        let params = InsertParams {
            row,
            ring_values: ring.values(),
            first: ring.slot(place.number),
            moved: place.moved as u32,
            mask: ring.mask(),
            dim: timeline.dim(modality) as u32,
        };
        // SAFETY: the parameters are those of the kernel, and the ring has room for every sample of the history; that
        // the row stays is the caller's promise.
        unsafe {
            self.gpu
                .launch(INSERT, [params.dim.div_ceil(BLOCK), 1, 1], BLOCK, &params)
        }
    }
}
