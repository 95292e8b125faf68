//! The array arguments of one Python call. Arrays on a device must all be on the same device, and share one GPU stream.

use crate::array::{Array, place_of};
use crate::element::Place;
use crate::stream::DeviceStream;
use crate::tensor::Tensor;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use robocache::device::HostBuf;
use robocache::device::gpu::Kind;
use std::cell::OnceCell;
use std::fmt::Display;

/// The array arguments of one call. The first array on a device opens a stream on that device, on which the call works.
pub struct Arrays {
    /// Stream of the caller, by DLPack's numbering. The call's stream waits for the work in it. `None` if there is nothing to
    /// wait for.
    after: Option<isize>,
    stream: OnceCell<DeviceStream>,
}

impl Arrays {
    /// Prepares a call that has no array yet. The call's stream waits for the work in `after`, a stream of the caller by
    /// DLPack's numbering.
    pub fn new(after: Option<isize>) -> Self {
        Self {
            after,
            stream: OnceCell::new(),
        }
    }

    /// Imports an array argument without copying it between host and device; errors call it `name`. Refuses an array on a
    /// second device.
    pub fn take(&self, name: &dyn Display, object: &Bound<'_, PyAny>) -> PyResult<Array> {
        let own = object.cast_exact::<Tensor>().ok().map(Bound::get);
        let place = match own {
            Some(own) => own.part().place,
            None => place_of(name, object)?,
        };
        let Place::Gpu(kind, ordinal) = place else {
            return own.map_or_else(|| Array::new(name, object, place, None), |own| Ok(Array::of_own(own)));
        };
        place.check_stream(self.after)?;
        let stream = self.stream_of(kind, ordinal)?;
        if stream.place() != place {
            return Err(PyValueError::new_err(format!(
                "`{name}` is on {place}, another array on {} (allowed: all on one device)",
                stream.place()
            )));
        }
        match own {
            Some(own) => Ok(Array::of_own(own)),
            None => Array::new(name, object, place, Some(stream.handle())),
        }
    }

    /// Imports an array argument, and copies its elements to the host if they are on a device; errors call it `name`.
    pub fn take_to_host(&self, name: &dyn Display, object: &Bound<'_, PyAny>) -> PyResult<Array> {
        let array = self.take(name, object)?;
        let Some(stream) = self.stream.get().filter(|_| array.place() != Place::Host) else {
            return Ok(array);
        };
        let mut copy = HostBuf::default();
        copy.resize(array.len() * array.element().size());
        stream.fetch(&array, copy.bytes_mut())?;
        Ok(array.copied(copy))
    }

    fn stream_of(&self, kind: Kind, ordinal: usize) -> PyResult<&DeviceStream> {
        if self.stream.get().is_none() {
            let stream = DeviceStream::open(kind, ordinal, self.after)?;
            let _ = self.stream.set(stream);
        }
        let missing = || PyRuntimeError::new_err("no stream of a device");
        self.stream.get().ok_or_else(missing)
    }

    /// Returns the CUDA stream of the arrays' device that this Python call works on; an error if every array is on the host.
    pub fn into_stream(self) -> PyResult<DeviceStream> {
        let missing = || PyRuntimeError::new_err("no stream of a device");
        self.stream.into_inner().ok_or_else(missing)
    }
}
