//! In place of `cuda/stream.rs` where the package was built without CUDA: there is no stream, so nothing here is ever called.

use crate::array::Array;
use crate::element::Element;
use crate::tensor::{Lent, Tensor};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use robocache::device::ring::{RingError, Taken};
use std::sync::Arc;

/// A payload of a ring on a device, which nobody can have opened.
pub fn lend(_: &Arc<Taken>, _: bool) -> Result<Lent, RingError> {
    unreachable!("a ring on a device without CUDA")
}

pub enum Stream {}

impl Stream {
    pub fn open(ordinal: usize, _: Option<isize>) -> PyResult<Self> {
        Err(PyValueError::new_err(format!(
            "cuda:{ordinal}: this build of robocache has no CUDA (allowed: arrays of the host)"
        )))
    }

    pub fn ordinal(&self) -> usize {
        match *self {}
    }

    pub fn handle(&self) -> isize {
        match *self {}
    }

    pub fn fetch(&self, _: &Array, _: &mut [u8]) -> PyResult<()> {
        match *self {}
    }

    pub unsafe fn put(&self, _: &[(u64, &[u8])]) -> PyResult<()> {
        match *self {}
    }

    pub fn upload(&self, _: &[u8], _: Element, _: Vec<i64>) -> PyResult<Tensor> {
        match *self {}
    }
}
