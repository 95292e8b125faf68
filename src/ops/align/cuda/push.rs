//! Samples that are on the device already: their rows never leave it.

use super::params::{BLOCK, Fresh, PLACE, PlaceParams, TAKE, TakeParams, Verdict};
use super::{CudaFuser, put_samples, sample_room};
use crate::device::cuda::staging::{self, room};
use crate::device::cuda::{CudaError, DeviceBuf};
use crate::device::{Dtype, Values};
use crate::ops::align::{Pushed, SampleError, Timeline};
use crate::stream::Place;

/// Why a sample was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The sample is dropped; the stream goes on.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The device failed, or has no memory left. The sample has not arrived.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The device failed, or has no memory left, when the sample had arrived: its values are not with it.
    #[error("{error}")]
    Unplaced {
        /// What the driver says.
        error: CudaError,
        /// What the arrival did.
        pushed: Pushed,
    },
}

/// A sample in the memory of a device.
#[derive(Clone, Copy)]
pub struct DeviceSample<'a> {
    /// The memory. What writes it has been waited for.
    pub memory: &'a DeviceBuf,
    /// The byte at which it begins, a multiple of the size of its elements.
    pub at: usize,
    /// The type of its values.
    pub dtype: Dtype,
    /// How many there are.
    pub len: usize,
}

impl CudaFuser {
    /// Puts a sample that is on the device into the aligner, as [`Timeline::push`] does with one of the host. Its memory
    /// is not needed any more on return.
    ///
    /// From its first such sample on, the rows of a stream are in its ring alone. Samples of the host then come by
    /// [`push_host`](Self::push_host), and [`bring_back`](Self::bring_back) is the way back.
    ///
    /// # Errors
    /// [`PushError::Sample`], which are those of [`Timeline::push`]. After one of the others, which are the device's, the
    /// rows have to be brought [back](Self::bring_back), or are [lost](Timeline::forget_elsewhere) with it. Then the sample
    /// can be [pushed](Timeline::push) on the host, or [restored](Timeline::restore) if it was [`PushError::Unplaced`].
    ///
    /// # Panics
    /// If the memory is smaller than the sample.
    pub fn push(
        &mut self,
        aligner: &mut Timeline,
        modality: usize,
        stamp_ns: i64,
        sample: DeviceSample<'_>,
    ) -> Result<Pushed, PushError> {
        self.gpu.check(sample.memory.gpu())?;
        aligner.check(modality, stamp_ns, sample.len)?;
        assert!(
            sample.at + sample.len * sample.dtype.size() <= sample.memory.capacity(),
            "{} {} elements at byte {} of {}",
            sample.len,
            sample.dtype,
            sample.at,
            sample.memory.capacity()
        );
        self.row.reserve(sample.len * size_of::<f32>())?;
        self.result.resize(size_of::<Verdict>())?;
        let take = TakeParams {
            sample: sample.memory.address() + sample.at as u64,
            row: self.row.address(),
            verdict: staging::address(&mut self.result),
            dim: sample.len as u32,
            dtype: sample.dtype.code(),
            element_bytes: sample.dtype.size() as u32,
            unused: 0,
        };
        // SAFETY: the parameters are those of the kernel, `row` has room for the values, and the stream is synchronized
        // before any of it is used otherwise.
        let taken = unsafe { self.gpu.launch(TAKE, [1, 1, 1], BLOCK, &take) };
        taken.and(self.gpu.synchronize())?;
        let verdict: Verdict = self.result.as_slice()[0];
        if verdict.channel != u32::MAX {
            return Err(SampleError::NonFinite {
                channel: verdict.channel as usize,
                value: verdict.value,
            }
            .into());
        }
        self.take_rows(aligner, modality)?;
        self.make_room(aligner, modality)?;
        let (pushed, place) = aligner.push_time(modality, stamp_ns);
        let row = self.row.address();
        // SAFETY: the row stays as it is until the next one is taken, which comes later in the stream.
        let placed = unsafe { self.place(aligner, modality, place, row) };
        self.arrived(modality, place, pushed, placed)
    }

    /// Ends the arrival of a sample.
    fn arrived(
        &mut self,
        modality: usize,
        place: Option<Place>,
        pushed: Pushed,
        placed: Result<(), CudaError>,
    ) -> Result<Pushed, PushError> {
        placed.map(|()| pushed).map_err(|error| {
            self.unplaced = place.map(|place| (modality, place));
            PushError::Unplaced { error, pushed }
        })
    }

    /// Puts a sample of the host into the aligner, as [`Timeline::push`] does, wherever the rows of its stream are.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_host(
        &mut self,
        aligner: &mut Timeline,
        modality: usize,
        stamp_ns: i64,
        sample: Values<'_>,
    ) -> Result<Pushed, PushError> {
        if !aligner.rows_are_elsewhere(modality) {
            return Ok(aligner.push(modality, stamp_ns, sample)?);
        }
        self.make_room(aligner, modality)?;
        let row = aligner.read(modality, stamp_ns, sample)?;
        self.staging.begin(room::<f32>(row.len()))?;
        let row = self.staging.put(row);
        let (pushed, place) = aligner.push_time(modality, stamp_ns);
        // SAFETY: the row is in the staging block, which stays as it is until the stream is synchronized.
        let placed = unsafe {
            let uploaded = self.staging.upload();
            uploaded.and_then(|()| self.place(aligner, modality, place, row))
        };
        let placed = placed.and(self.gpu.synchronize());
        self.arrived(modality, place, pushed, placed)
    }

    /// Has the rows of a modality in its ring alone from now on.
    fn take_rows(&mut self, aligner: &mut Timeline, modality: usize) -> Result<(), CudaError> {
        if aligner.rows_are_elsewhere(modality) {
            return Ok(());
        }
        let caught_up = self.catch_up(aligner, modality);
        self.settle(caught_up)?;
        aligner.send_rows_elsewhere(modality);
        Ok(())
    }

    /// Brings the ring of a modality up to date.
    fn catch_up(&mut self, aligner: &Timeline, modality: usize) -> Result<(), CudaError> {
        let (history, ring) = (aligner.history(modality), &mut self.rings[modality]);
        let lacking = ring.lacking(history)?;
        self.fresh.clear();
        if lacking.is_empty() {
            return Ok(());
        }
        let bytes = sample_room(history, &lacking, aligner.dim(modality));
        self.staging.begin(bytes + room::<Fresh>(1))?;
        let fresh = put_samples(&mut self.staging, history, ring, &lacking);
        self.append_and_wait([fresh])
    }

    /// Makes room in the ring of a modality for one more sample, and takes its rows along.
    fn make_room(&mut self, aligner: &Timeline, modality: usize) -> Result<(), CudaError> {
        let (history, ring) = (aligner.history(modality), &self.rings[modality]);
        let held = history.times().len() + 1;
        if ring.has_room(held) {
            return Ok(());
        }
        let larger = ring.larger(&self.gpu, &self.budget, held)?;
        let moves: Vec<Fresh> = larger.moves(history, ring).collect();
        self.staging.begin(room::<Fresh>(moves.len()))?;
        self.append_and_wait(moves)?;
        self.rings[modality] = larger;
        Ok(())
    }

    /// Puts samples into rings, the list of which still goes into the staging block, and waits for it.
    fn append_and_wait(&mut self, fresh: impl IntoIterator<Item = Fresh>) -> Result<(), CudaError> {
        self.fresh.clear();
        self.fresh.extend(fresh);
        let list = self.staging.put(&self.fresh);
        // SAFETY: all of it is there until the stream is synchronized, right here.
        let appended = unsafe { self.staging.upload().and_then(|()| self.append(list)) };
        appended.and(self.gpu.synchronize())
    }

    /// Puts a row, which is at that address of the device, into its place in the ring.
    ///
    /// # Safety
    /// The row stays as it is until the stream has come so far.
    unsafe fn place(
        &self,
        aligner: &Timeline,
        modality: usize,
        place: Option<Place>,
        row: u64,
    ) -> Result<(), CudaError> {
        let Some(place) = place else { return Ok(()) };
        let ring = &self.rings[modality];
        let params = PlaceParams {
            row,
            ring_values: ring.values(),
            first: ring.place_of(place.number),
            moved: place.moved as u32,
            mask: ring.mask(),
            dim: aligner.dim(modality) as u32,
        };
        // SAFETY: the parameters are those of the kernel, and the ring has room for every sample of the history; that
        // the row stays is the caller's promise.
        unsafe {
            self.gpu
                .launch(PLACE, [params.dim.div_ceil(BLOCK), 1, 1], BLOCK, &params)
        }
    }
}
