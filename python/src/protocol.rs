//! The Python methods of [`Tensor`]: DLPack's protocol, copies between host and device, and views of the same memory. A
//! read-only tensor is never exported in a form that hides that it is read-only.

use crate::arrays::Arrays;
use crate::dlpack::{self, DlDevice};
use crate::element::{self, Element, Place};
use crate::stream::DeviceStream;
use crate::tensor::Tensor;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use robocache::device::{DeviceChoice, Dtype, HostBuf};
use std::sync::Arc;

#[pymethods]
impl Tensor {
    /// Makes a DLPack capsule of the tensor, with flags if `max_version` is at least 1.0. With `copy=True` the capsule owns a copy,
    /// on the host only. Refuses a `dl_device` other than the tensor's.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<isize>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.part().place.check_stream(stream)?;
        let own = DlDevice::from(self.part().place);
        if dl_device.is_some_and(|(kind, ordinal)| (DlDevice { kind, ordinal }) != own) {
            return Err(PyBufferError::new_err(format!(
                "the tensor is on {}, and is not copied to another device by DLPack (allowed: `dl_device` None; copy it with the library that takes it)",
                self.part().place
            )));
        }
        let is_versioned = max_version.is_some_and(|version| version >= (1, 0));
        if copy == Some(true) {
            if self.part().place != Place::Host {
                return Err(PyBufferError::new_err(format!(
                    "the tensor is on {}, where DLPack makes no copy of it (allowed: copy=False, None)",
                    self.part().place
                )));
            }
            let mut memory = HostBuf::default();
            memory.resize(self.part().bytes());
            // SAFETY: the memory of a tensor of the host has that number of bytes.
            let bytes = unsafe { element::bytes(self.part().address, self.part().bytes()) };
            memory.bytes_mut().copy_from_slice(bytes);
            let address = memory.bytes().as_ptr() as u64;
            return self
                .export(Arc::new(memory), address)
                .into_capsule(py, is_versioned, dlpack::IS_COPIED);
        }
        if self.part().is_read_only && !is_versioned {
            return Err(PyBufferError::new_err(
                "the tensor is read-only, which DLPack before 1.0 can't say (allowed: max_version=(1, 0), copy=True)",
            ));
        }
        self.owner().handed_out(stream);
        let flags = if self.part().is_read_only { dlpack::READ_ONLY } else { 0 };
        self.export(self.owner().clone(), self.part().address)
            .into_capsule(py, is_versioned, flags)
    }

    /// Kind and number of the tensor's device in DLPack: `(1, 0)` is the host, `(2, n)` cuda:n, `(10, n)` hip:n.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let DlDevice { kind, ordinal } = self.part().place.into();
        (kind, ordinal)
    }

    /// Makes a tensor of an array of another library. The elements are copied only if they are on the host and have gaps.
    #[staticmethod]
    fn from_dlpack(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = Arrays::new(None).take(&"array", array)?;
        // SAFETY: the array holds its elements.
        Ok(unsafe { Self::new(array.part(), Arc::new(array)) })
    }

    /// Dimensions of the tensor, outermost first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.part().shape)
    }

    /// Type of the tensor's elements, such as `float32`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.part().element.name()
    }

    /// Device of the tensor: `cpu`, `cuda:N` or `hip:N`.
    #[getter]
    fn device(&self) -> String {
        self.part().place.to_string()
    }

    /// Size of all elements, bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.part().bytes()
    }

    /// Copies the tensor to `device`: from `cpu` to `cuda:N` or `hip:N`, or back. A tensor that is on `device` already is returned
    /// itself.
    fn to<'py>(this: Bound<'py, Self>, device: &str) -> PyResult<Bound<'py, Self>> {
        let (py, tensor) = (this.py(), this.get());
        if tensor.part().place.to_string() == device {
            return Ok(this);
        }
        let copy = match (tensor.part().place, DeviceChoice::parse(device)) {
            (Place::Host, Some(DeviceChoice::Gpu(kind, Some(ordinal)))) => py.detach(|| {
                // SAFETY: the memory of a tensor of the host has that number of bytes.
                let bytes = unsafe { element::bytes(tensor.part().address, tensor.part().bytes()) };
                let stream = DeviceStream::open(kind, ordinal, None)?;
                stream.upload(bytes, tensor.part().element, tensor.part().shape.clone())
            }),
            (Place::Gpu(..), Some(DeviceChoice::Cpu)) => {
                let array = Arrays::new(None).take_to_host(&"tensor", &this)?;
                let shape = array.shape().to_vec();
                Ok(Self::of_bytes(array.bytes(), array.element(), &shape))
            }
            (place, _) => Err(PyValueError::new_err(format!(
                "a tensor on {place} can't go to {device} (allowed: from cpu to cuda:N or hip:N, and back)"
            ))),
        };
        Bound::new(py, copy?)
    }

    /// Writes `number` to the elements of each span `[begin, end)` of a tensor on a device. The caller must be the only user of the
    /// tensor.
    fn fill(&self, py: Python<'_>, spans: Vec<(usize, usize)>, number: f32) -> PyResult<()> {
        let Place::Gpu(kind, ordinal) = self.part().place else {
            return Err(PyValueError::new_err(
                "the tensor is on the host (allowed: on a device)",
            ));
        };
        let element: &[u8] = match self.part().element {
            Element::Number(Dtype::Float32) => &number.to_le_bytes(),
            Element::Number(Dtype::Float16) => &half::f16::from_f32(number).to_le_bytes(),
            Element::Number(Dtype::BFloat16) => &half::bf16::from_f32(number).to_le_bytes(),
            other => {
                return Err(PyValueError::new_err(format!(
                    "the values are {}, expected float32, float16 or bfloat16",
                    other.name()
                )));
            }
        };
        let (size, count) = (element.len(), self.part().bytes() / element.len());
        if self.part().is_read_only || spans.iter().any(|&(begin, end)| begin > end || end > count) {
            return Err(PyValueError::new_err(format!(
                "{spans:?} of {count} elements can't be written (allowed: spans within a tensor that is not read-only)"
            )));
        }
        let longest = spans.iter().map(|(begin, end)| end - begin).max().unwrap_or(0);
        let numbers = element.repeat(longest);
        let piece = |&(begin, end): &(usize, usize)| {
            (
                self.part().address + (begin * size) as u64,
                &numbers[..(end - begin) * size],
            )
        };
        let pieces: Vec<(u64, &[u8])> = spans.iter().map(piece).collect();
        // SAFETY: the spans are within the memory that the tensor holds, and nobody else has it yet.
        py.detach(|| unsafe { DeviceStream::open(kind, ordinal, None)?.put(&pieces) })
    }

    /// Returns a tensor of the same memory whose 16-bit elements have the type uint16, for NumPy, which does not know bfloat16.
    fn bits(&self) -> PyResult<Self> {
        match self.part().element.size() {
            2 => Ok(self.seen_as(Element::BITS, self.part().shape.clone())),
            _ => Err(PyValueError::new_err(format!(
                "the elements are {}, not of 16 bits",
                self.part().element.name()
            ))),
        }
    }

    /// Returns a tensor of the same memory with other dimensions, which must give the same number of elements.
    fn reshape(&self, shape: Vec<i64>) -> PyResult<Self> {
        let count = shape
            .iter()
            .try_fold(1i64, |count, &n| count.checked_mul(n).filter(|_| n >= 0));
        match count {
            Some(count) if count == self.part().shape.iter().product::<i64>() => {
                Ok(self.seen_as(self.part().element, shape))
            }
            _ => Err(PyValueError::new_err(format!(
                "the tensor has dimensions {:?}, which are not as many elements as {shape:?}",
                self.part().shape
            ))),
        }
    }

    fn __repr__(&self) -> String {
        format!(
            "Tensor({:?}, {}, {})",
            self.part().shape,
            self.part().element.name(),
            self.part().place
        )
    }
}
