//! Stands in for [`cuda`](self) in a build without the feature `cuda`.

use super::{Masks, Pushed, SampleError, Target, Timeline};
use crate::device::cuda::{Budget, CudaError, DeviceBuf, Gpu};
use crate::device::{Dtype, Values};
use std::ops::Range;

/// Why a sample was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error(transparent)]
    Sample(#[from] SampleError),
    #[error(transparent)]
    Cuda(#[from] CudaError),
    #[error("{error}")]
    Unplaced { error: CudaError, pushed: Pushed },
}

/// A sample in the memory of a device, of which there is none.
#[derive(Clone, Copy)]
pub struct DeviceSample<'a> {
    pub memory: &'a DeviceBuf,
    pub at: usize,
    pub dtype: Dtype,
    pub len: usize,
}

/// There is no device to keep histories on.
pub enum CudaFuser {}

impl CudaFuser {
    pub fn new(_: &Timeline, gpu: &Gpu, _: &Budget) -> Self {
        match *gpu {}
    }

    pub fn bring_back(&mut self, _: &mut Timeline) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn window(
        &mut self,
        _: &Timeline,
        _: &Target,
        _: Range<usize>,
        _: &mut [u8],
        _: &mut Masks,
    ) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn window_on_device(
        &mut self,
        _: &Timeline,
        _: &Target,
        _: Range<usize>,
        _: &mut DeviceBuf,
        _: &mut Masks,
    ) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn push(&mut self, _: &mut Timeline, _: usize, _: i64, _: DeviceSample<'_>) -> Result<Pushed, PushError> {
        match *self {}
    }

    pub fn push_host(&mut self, _: &mut Timeline, _: usize, _: i64, _: Values<'_>) -> Result<Pushed, PushError> {
        match *self {}
    }
}
