//! Results: [`Tensor`], memory with an owner that any library takes by DLPack.

use crate::arrays::Arrays;
use crate::cuda::Stream;
use crate::dlpack::{self, DlDataType, DlDevice, Export};
use crate::element::{Element, Place};
use bytemuck::Pod;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use robocache::device::{Dtype, HostBuf};
use std::ffi::c_void;
use std::sync::Arc;

/// What owns the memory of a [`Tensor`]. It is dropped with the last array that any library made of it.
pub trait Memory: Send + Sync {
    /// The tensor is handed to a library, which will use it on this stream of DLPack's numbering: `None` is the legacy
    /// default stream, -1 none that is known.
    fn handed_out(&self, stream: Option<isize>) {
        let _ = stream;
    }
}

impl Memory for HostBuf {}
impl<T: Send + Sync> Memory for Vec<T> {}

/// An array without a library: any takes it by DLPack, without a copy.
///
/// What is in it is there: nothing has to be waited for.
#[pyclass(frozen, module = "robocache")]
pub struct Tensor {
    address: u64,
    shape: Vec<i64>,
    element: Element,
    place: Place,
    is_read_only: bool,
    owner: Arc<dyn Memory>,
}

/// Memory of which a [`Tensor`] is made.
pub struct Part {
    /// The address of the first element, on the device if `place` is one.
    pub address: u64,
    /// The dimensions; row-major without gaps.
    pub shape: Vec<i64>,
    /// The type of the elements.
    pub element: Element,
    /// Where the memory is.
    pub place: Place,
    /// Whether nobody may write it.
    pub is_read_only: bool,
}

impl Tensor {
    /// A tensor of memory of `owner`.
    ///
    /// # Safety
    /// As many elements as the shape says are there for as long as the owner lives, and are written by nobody but the users
    /// of the tensor.
    pub unsafe fn new(part: Part, owner: Arc<dyn Memory>) -> Self {
        Self {
            address: part.address,
            shape: part.shape,
            element: part.element,
            place: part.place,
            is_read_only: part.is_read_only,
            owner,
        }
    }

    /// A tensor of elements of the host, one after the other.
    ///
    /// # Panics
    /// If there are more or fewer bytes than the shape says.
    pub fn of_vec<T: Pod + Send + Sync>(memory: Vec<T>, element: impl Into<Element>, shape: &[usize]) -> Self {
        let bytes: &[u8] = bytemuck::cast_slice(&memory);
        let (address, len) = (bytes.as_ptr() as u64, bytes.len());
        Self::of_owner(address, len, Arc::new(memory), element.into(), shape)
    }

    /// A tensor of host memory that holds just its elements.
    ///
    /// # Panics
    /// If there are more or fewer bytes than the shape says.
    pub fn of_host(memory: HostBuf, element: impl Into<Element>, shape: &[usize]) -> Self {
        let (address, len) = (memory.bytes().as_ptr() as u64, memory.len());
        Self::of_owner(address, len, Arc::new(memory), element.into(), shape)
    }

    /// A tensor of a copy of these bytes.
    ///
    /// # Panics
    /// If there are more or fewer than the shape says.
    pub fn of_bytes(bytes: &[u8], element: impl Into<Element>, shape: &[usize]) -> Self {
        let mut memory = HostBuf::default();
        memory.copy_from(bytes);
        Self::of_host(memory, element, shape)
    }

    fn of_owner(address: u64, len: usize, owner: Arc<dyn Memory>, element: Element, shape: &[usize]) -> Self {
        let part = Part {
            address,
            shape: shape.iter().map(|&n| n as i64).collect(),
            element,
            place: Place::Host,
            is_read_only: false,
        };
        assert_eq!(part.bytes(), len, "bytes of a tensor {shape:?} of {}", element.name());
        // SAFETY: the length was checked, and the memory does not move with its owner.
        unsafe { Self::new(part, owner) }
    }

    /// What it is made of, for calls of this package: they have used it when they return.
    pub fn parts(&self) -> (Part, Arc<dyn Memory>) {
        let part = Part {
            address: self.address,
            shape: self.shape.clone(),
            element: self.element,
            place: self.place,
            is_read_only: self.is_read_only,
        };
        (part, self.owner.clone())
    }

    fn strides(&self) -> Vec<i64> {
        let mut strides = vec![1; self.shape.len()];
        for axis in (1..strides.len()).rev() {
            strides[axis - 1] = strides[axis] * self.shape[axis].max(1);
        }
        strides
    }

    fn export(&self, owner: Arc<dyn Memory>, address: u64) -> Export<Arc<dyn Memory>> {
        Export {
            data: address as *mut c_void,
            device: self.place.into(),
            dtype: self.element.into(),
            shape: self.shape.clone(),
            strides: self.strides(),
            owner,
        }
    }

    fn bytes(&self) -> usize {
        self.shape.iter().product::<i64>() as usize * self.element.size()
    }
}

impl Part {
    fn bytes(&self) -> usize {
        self.shape.iter().product::<i64>() as usize * self.element.size()
    }
}

#[pymethods]
impl Tensor {
    /// A DLPack capsule of the memory: versioned where the consumer takes DLPack 1.0.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<isize>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.place.check_stream(stream)?;
        let own = DlDevice::from(self.place);
        if dl_device.is_some_and(|(kind, ordinal)| (DlDevice { kind, ordinal }) != own) {
            return Err(PyBufferError::new_err(format!(
                "the tensor is on {}, and is not copied to another device by DLPack",
                self.place
            )));
        }
        let is_versioned = max_version.is_some_and(|version| version >= (1, 0));
        if copy == Some(true) {
            if self.place != Place::Host {
                return Err(PyBufferError::new_err(format!(
                    "the tensor is on {}, where DLPack makes no copy of it (allowed: copy=False, None)",
                    self.place
                )));
            }
            let mut memory = HostBuf::default();
            memory.resize(self.bytes());
            // SAFETY: the memory of a tensor of the host has so many bytes.
            let bytes = unsafe { crate::element::bytes(self.address, self.bytes()) };
            memory.bytes_mut().copy_from_slice(bytes);
            let address = memory.bytes().as_ptr() as u64;
            return self
                .export(Arc::new(memory), address)
                .into_capsule(py, is_versioned, dlpack::IS_COPIED);
        }
        if self.is_read_only && !is_versioned {
            return Err(PyBufferError::new_err(
                "the tensor is read-only, which DLPack before 1.0 can't say (allowed: max_version=(1, 0), copy=True)",
            ));
        }
        self.owner.handed_out(stream);
        let flags = if self.is_read_only { dlpack::READ_ONLY } else { 0 };
        self.export(self.owner.clone(), self.address)
            .into_capsule(py, is_versioned, flags)
    }

    /// The device by DLPack's numbers: `(1, 0)` the host, `(2, n)` cuda:n.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let DlDevice { kind, ordinal } = self.place.into();
        (kind, ordinal)
    }

    /// The array of another library, which is not copied but where it lies on the host with gaps.
    #[staticmethod]
    fn from_dlpack(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = Arrays::new(None).take(&"array", array)?;
        let part = Part {
            address: array.address(),
            shape: array.shape().iter().map(|&n| n as i64).collect(),
            element: array.element(),
            place: array.place(),
            is_read_only: array.is_read_only(),
        };
        // SAFETY: the array holds its elements.
        Ok(unsafe { Self::new(part, Arc::new(array)) })
    }

    /// The dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The type of the elements, such as `float32`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.element.name()
    }

    /// `cpu` or `cuda:N`.
    #[getter]
    fn device(&self) -> String {
        self.place.to_string()
    }

    /// The size of the elements, bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes()
    }

    /// A copy on another device: on `cuda:N` of a tensor of the host, on `cpu` of one of a device. The tensor itself, where it
    /// is there already.
    fn to<'py>(this: Bound<'py, Self>, device: &str) -> PyResult<Bound<'py, Self>> {
        let (py, tensor) = (this.py(), this.get());
        if tensor.place.to_string() == device {
            return Ok(this);
        }
        let ordinal = device.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
        let copy = match (tensor.place, ordinal) {
            (Place::Host, Some(ordinal)) => py.detach(|| {
                // SAFETY: the memory of a tensor of the host has so many bytes.
                let bytes = unsafe { crate::element::bytes(tensor.address, tensor.bytes()) };
                Stream::open(ordinal, None)?.upload(bytes, tensor.element, tensor.shape.clone())
            }),
            (Place::Cuda(_), None) if device == "cpu" => {
                let array = Arrays::new(None).take_to_host(&"tensor", &this)?;
                let shape = array.shape().to_vec();
                Ok(Self::of_bytes(array.bytes(), array.element(), &shape))
            }
            (place, _) => Err(PyValueError::new_err(format!(
                "a tensor on {place} can't go to {device} (allowed: from cpu to cuda:N, and back)"
            ))),
        };
        Bound::new(py, copy?)
    }

    /// Writes a number to the elements of each span `[begin, end)` of a tensor of a device, where it lies. Nobody else may use the
    /// tensor yet.
    fn fill(&self, py: Python<'_>, spans: Vec<(usize, usize)>, number: f32) -> PyResult<()> {
        let Place::Cuda(ordinal) = self.place else {
            return Err(PyValueError::new_err(
                "the tensor is on the host (allowed: on a device)",
            ));
        };
        let element: &[u8] = match self.element {
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
        let (size, count) = (element.len(), self.bytes() / element.len());
        if self.is_read_only || spans.iter().any(|&(begin, end)| begin > end || end > count) {
            return Err(PyValueError::new_err(format!(
                "{spans:?} of {count} elements can't be written (allowed: spans within a tensor that is not read-only)"
            )));
        }
        let longest = spans.iter().map(|(begin, end)| end - begin).max().unwrap_or(0);
        let numbers = element.repeat(longest);
        let piece =
            |&(begin, end): &(usize, usize)| (self.address + (begin * size) as u64, &numbers[..(end - begin) * size]);
        let pieces: Vec<(u64, &[u8])> = spans.iter().map(piece).collect();
        // SAFETY: the spans are within the memory that the tensor holds, and nobody else has it yet.
        py.detach(|| unsafe { Stream::open(ordinal, None)?.put(&pieces) })
    }

    /// The same memory, the elements seen as uint16: bfloat16 for NumPy, which has no such type.
    fn bits(&self) -> PyResult<Self> {
        match self.element.size() {
            2 => Ok(Self {
                shape: self.shape.clone(),
                element: Element::BITS,
                owner: self.owner.clone(),
                ..*self
            }),
            _ => Err(PyValueError::new_err(format!(
                "the elements are {}, not of 16 bits",
                self.element.name()
            ))),
        }
    }

    /// The same memory with other dimensions, of as many elements.
    fn reshape(&self, shape: Vec<i64>) -> PyResult<Self> {
        let count = shape
            .iter()
            .try_fold(1i64, |count, &n| count.checked_mul(n).filter(|_| n >= 0));
        match count {
            Some(count) if count == self.shape.iter().product::<i64>() => Ok(Self {
                shape,
                owner: self.owner.clone(),
                ..*self
            }),
            _ => Err(PyValueError::new_err(format!(
                "the tensor has dimensions {:?}, which are not as many elements as {shape:?}",
                self.shape
            ))),
        }
    }

    fn __repr__(&self) -> String {
        format!("Tensor({:?}, {}, {})", self.shape, self.element.name(), self.place)
    }
}

impl From<Place> for DlDevice {
    fn from(place: Place) -> Self {
        match place {
            Place::Host => Self {
                kind: dlpack::CPU,
                ordinal: 0,
            },
            Place::Cuda(ordinal) => Self {
                kind: dlpack::CUDA,
                ordinal: ordinal as i32,
            },
        }
    }
}

impl From<Element> for DlDataType {
    fn from(element: Element) -> Self {
        let (code, bits) = element.dlpack();
        Self { code, bits, lanes: 1 }
    }
}
