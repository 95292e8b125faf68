//! Stands in for [`cuda`](self) in a build without the feature `cuda`.

use super::window::{Output, Wanted};
use super::{Masks, Pushed, SampleError, Target, Timeline};
use robocache_device::cuda::{Budget, CudaError, DeviceBuf, Gpu};
use robocache_device::{HostBuf, Values};
use robocache_stream::DeviceTensor;
use std::ops::Range;

/// Why a sample was not taken.
pub enum FuserError {
    Sample(SampleError),
    Cuda(CudaError),
    Lost { error: CudaError, pushed: Pushed },
}

/// A sample in the memory of a device, of which there is none.
#[derive(Clone, Copy)]
pub struct DeviceSample<'a>(&'a DeviceBuf);

impl<'a> DeviceSample<'a> {
    pub fn of(tensor: &'a DeviceTensor, _: Range<usize>) -> Result<Self, CudaError> {
        Ok(Self(&tensor.memory))
    }

    pub fn fetch(self, _: &mut HostBuf) -> Result<Values<'_>, CudaError> {
        match *self.0 {}
    }
}

/// There is no device to follow histories on.
pub enum CudaFuser {}

impl CudaFuser {
    pub fn new(_: &Timeline, _: usize, gpu: &Gpu, _: &Budget) -> Self {
        match *gpu {}
    }

    pub fn bring_back(&mut self, _: &mut Timeline) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn make(&mut self, _: &Timeline, _: &Target, _: &[Output], _: &[Wanted]) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn values(&self, _: usize) -> &[u8] {
        match *self {}
    }

    pub fn masks(&self, _: usize, _: &Timeline, _: &Target, _: &mut Masks) {
        match *self {}
    }

    pub fn leave(&mut self, _: usize, _: usize, _: &mut DeviceBuf) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn push(&mut self, _: &mut Timeline, _: usize, _: i64, _: DeviceSample<'_>) -> Result<Pushed, FuserError> {
        match *self {}
    }

    pub fn push_host(&mut self, _: &mut Timeline, _: usize, _: i64, _: Values<'_>) -> Result<Pushed, FuserError> {
        match *self {}
    }
}
