//! Array arguments of Python calls, imported by DLPack from any array library. A host array is copied only if it is not
//! row-major, has gaps or is not aligned. A device array is never copied.

use crate::dlpack::{self, Imported};
use crate::element::{self, Element, Place};
use crate::tensor::{Memory, Part, Tensor};
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDictMethods};
use robocache::device::gpu::Kind;
use robocache::device::{Dtype, HostBuf, Primitive};
use std::fmt::Display;
use std::sync::Arc;

/// An array argument of a Python call: row-major without gaps, on the host or on a device.
///
/// A host array that is not row-major, has gaps or is not aligned is copied. A device array like that is refused, since its own
/// library can copy it (`contiguous()`, `ascontiguousarray`).
pub struct Array {
    memory: Storage,
    address: u64,
    shape: Vec<usize>,
    element: Element,
    place: Place,
}

/// Owner of the memory that holds the elements of an `Array`.
enum Storage {
    Borrowed(Imported),
    Copied(HostBuf),
    Own {
        _owner: Arc<dyn Memory>,
        is_read_only: bool,
    },
}

impl Memory for Array {}

impl Array {
    /// Imports `object` by DLPack; its elements are in the memory `place`. Errors call the argument `name`. The library of
    /// `object` makes `stream` wait until the elements are written; `stream` is `None` for a host array.
    pub fn new(name: &dyn Display, object: &Bound<'_, PyAny>, place: Place, stream: Option<isize>) -> PyResult<Self> {
        let capsule = capsule_of(object, stream).or_else(|error| {
            let error = error.value(object.py());
            // NumPy does not export strides of a fraction of an element, nor, before 2.1, read-only arrays: a copy is taken.
            let copy = if is_numpy(object)? {
                object.call_method0("copy").ok()
            } else {
                None
            };
            match copy.map(|copy| capsule_of(&copy, stream)) {
                Some(Ok(capsule)) => Ok(capsule),
                Some(Err(_)) => Err(wrong_dtype(name, object)),
                None => Err(PyValueError::new_err(format!("`{name}`, {}: {error}", type_of(object)))),
            }
        })?;
        let imported = Imported::from_capsule(&capsule)?;
        Self::of_imported(name, imported, place)
    }

    /// Makes an array that shares the memory of `tensor`, a tensor of this package, without DLPack. The elements are ready.
    pub fn of_own(tensor: &Tensor) -> Self {
        let part = tensor.part();
        Self {
            address: part.address,
            shape: part.shape.iter().map(|&n| n as usize).collect(),
            element: part.element,
            place: part.place,
            memory: Storage::Own {
                _owner: tensor.owner().clone(),
                is_read_only: part.is_read_only,
            },
        }
    }

    /// Replaces the memory by `copy`, a copy of all elements on the host; shape and type stay.
    pub fn copied(self, copy: HostBuf) -> Self {
        Self {
            place: Place::Host,
            memory: Storage::Copied(copy),
            ..self
        }
    }

    fn of_imported(name: &dyn Display, imported: Imported, place: Place) -> PyResult<Self> {
        let tensor = imported.tensor();
        let element = Some(tensor.dtype).filter(|dtype| dtype.lanes == 1);
        let Some(element) = element.and_then(|dtype| Element::from_dlpack(dtype.code, dtype.bits)) else {
            let dlpack::DlDataType { code, bits, lanes } = tensor.dtype;
            return Err(PyTypeError::new_err(format!(
                "`{name}` has elements of DLPack's type {code} with {bits} bits and {lanes} lanes (allowed: bool, integers, \
                 floats and bfloat16 of 8 to 64 bits)"
            )));
        };
        let shape: Vec<usize> = tensor.shape().iter().map(|&n| n.max(0) as usize).collect();
        let (strides, address, size) = (tensor.strides(), tensor.address(), element.size());
        let is_contiguous = is_contiguous(&shape, strides);
        let is_aligned = address.is_multiple_of(size as u64);
        if place != Place::Host && !(is_contiguous && is_aligned) {
            return Err(PyValueError::new_err(format!(
                "`{name}` on {place} has shape {shape:?} and strides {strides:?} of {size} bytes (allowed on a device: \
                 row-major without gaps, aligned)"
            )));
        }
        if is_contiguous && is_aligned {
            return Ok(Self {
                address,
                shape,
                element,
                place,
                memory: Storage::Borrowed(imported),
            });
        }
        let mut copy = HostBuf::default();
        let bytes = shape.iter().try_fold(size, |bytes, &n| bytes.checked_mul(n));
        let Some(bytes) = bytes.filter(|&bytes| copy.try_reserve(bytes).is_ok()) else {
            return Err(PyMemoryError::new_err(format!(
                "no memory for a copy without gaps of `{name}`, whose shape is {shape:?}, {size} bytes each"
            )));
        };
        copy.resize(bytes);
        // The innermost axes without gaps between them are copied as one run.
        let at_once =
            (0..=shape.len()).find(|&axis| self::is_contiguous(&shape[axis..], strides.get(axis..).unwrap_or(&[])));
        let (apart, at_once) = shape.split_at(at_once.unwrap_or(shape.len()));
        let run = at_once.iter().product::<usize>() * size;
        let mut to = copy.bytes_mut().chunks_exact_mut(run.max(1));
        // SAFETY: DLPack's shape and strides say where elements are.
        unsafe { gather(address, apart, strides, size, &mut to) };
        Ok(Self {
            address: copy.bytes().as_ptr() as u64,
            shape,
            element,
            place,
            memory: Storage::Copied(copy),
        })
    }

    /// Dimensions of the array, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements: the product of the dimensions.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Type of the array's elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// Kind of memory that holds the elements: the host's, or that of a GPU.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Address of the first element, in the memory that [`place`](Self::place) returns.
    pub fn address(&self) -> u64 {
        match &self.memory {
            Storage::Borrowed(_) | Storage::Own { .. } => self.address,
            Storage::Copied(copy) => copy.bytes().as_ptr() as u64,
        }
    }

    /// Describes the array: address, shape, element type, and the memory that holds the elements. The description does not keep
    /// this memory alive.
    pub fn part(&self) -> Part {
        Part {
            address: self.address(),
            shape: self.shape.iter().map(|&n| n as i64).collect(),
            element: self.element,
            place: self.place,
            is_read_only: self.is_read_only(),
        }
    }

    /// True if the library of the array forbids writing it.
    fn is_read_only(&self) -> bool {
        match &self.memory {
            Storage::Borrowed(imported) => imported.flags() & dlpack::READ_ONLY != 0,
            Storage::Copied(_) => false,
            Storage::Own { is_read_only, .. } => *is_read_only,
        }
    }

    /// Bytes of all elements, in the byte order of this machine.
    ///
    /// # Panics
    /// If the elements are not on the host.
    pub fn bytes(&self) -> &[u8] {
        assert_eq!(self.place, Place::Host, "an array that is not on the host");
        // SAFETY: the array is on the host, without gaps. The caller must not write it meanwhile, as with any NumPy function
        // that releases the GIL.
        unsafe { element::bytes(self.address(), self.len() * self.element.size()) }
    }

    /// Elements of the array, row-major.
    ///
    /// # Panics
    /// If the elements are of another type than `T`, or not on the host.
    pub fn as_slice<T: Primitive>(&self) -> &[T] {
        assert_eq!(self.element, Element::Number(T::DTYPE), "elements of an array");
        bytemuck::cast_slice(self.bytes())
    }

    /// Returns the type of the elements; a `TypeError` that calls the argument `name` if the type is not in `allowed`.
    pub fn expect_dtype(&self, name: &dyn Display, allowed: &[Dtype]) -> PyResult<Dtype> {
        match self.element {
            Element::Number(dtype) if allowed.contains(&dtype) => Ok(dtype),
            came => {
                let allowed: Vec<&str> = allowed.iter().map(|dtype| dtype.name()).collect();
                Err(PyTypeError::new_err(format!(
                    "`{name}` is {} (allowed: {})",
                    came.name(),
                    allowed.join(", ")
                )))
            }
        }
    }
}

fn type_of(object: &Bound<'_, PyAny>) -> String {
    if object.is_none() {
        return "None".to_owned();
    }
    let name = object.get_type().fully_qualified_name();
    name.map_or_else(|_| "an object".to_owned(), |name| format!("a {name}"))
}

fn is_numpy(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.is_instance(&object.py().import("numpy")?.getattr("ndarray")?)
}

/// Makes the `TypeError` for a NumPy array whose dtype does not exist in DLPack.
fn wrong_dtype(name: &dyn Display, object: &Bound<'_, PyAny>) -> PyErr {
    let dtype = object.getattr("dtype").and_then(|dtype| dtype.str());
    let dtype = dtype.map_or_else(|_| "unknown".to_owned(), |dtype| dtype.to_string());
    let instead = match dtype.starts_with("datetime64") {
        true => "int64 nanoseconds, `.astype(\"datetime64[ns]\").astype(\"int64\")`",
        false => "bool, integers and floats in the byte order of this machine",
    };
    PyTypeError::new_err(format!(
        "`{name}`, {}: its dtype is {dtype} (allowed: {instead})",
        type_of(object)
    ))
}

/// Returns which memory holds the elements of an argument: the host's, or that of a GPU. Refuses objects without DLPack, and
/// masked arrays.
pub fn place_of(name: &dyn Display, object: &Bound<'_, PyAny>) -> PyResult<Place> {
    let Ok(method) = object.getattr("__dlpack_device__") else {
        return Err(PyTypeError::new_err(format!(
            "`{name}` is {} (allowed: an array that speaks DLPack, such as NumPy's, PyTorch's or CuPy's)",
            type_of(object)
        )));
    };
    if object.hasattr("filled")? {
        return Err(PyTypeError::new_err(format!(
            "`{name}` is {}, whose mask would be lost (allowed: an array without one, such as `.filled(numpy.nan)`)",
            type_of(object)
        )));
    }
    let (kind, ordinal): (i32, i32) = method.call0()?.extract()?;
    if let dlpack::CPU | dlpack::CUDA_HOST | dlpack::ROCM_HOST = kind {
        return Ok(Place::Host);
    }
    let of_gpus = Kind::ALL.into_iter().find(|of| of.dlpack() == kind);
    match (of_gpus, usize::try_from(ordinal)) {
        (Some(kind), Ok(ordinal)) => Ok(Place::Gpu(kind, ordinal)),
        _ => Err(PyValueError::new_err(format!(
            "`{name}` is on device {ordinal} of DLPack's kind {kind} (allowed: 1 the host, 2 CUDA, 10 ROCm, 3 and 11 the host's page-locked)"
        ))),
    }
}

/// Returns a capsule from the method `__dlpack__` of an array: of DLPack 1.0, or older if the library does not know 1.0. The
/// library makes `stream` wait for the elements; `stream` is `None` if the array is on the host.
fn capsule_of<'py>(object: &Bound<'py, PyAny>, stream: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let method = object.getattr("__dlpack__")?;
    let arguments = stream.map(|stream| ("stream", stream)).into_py_dict(py)?;
    let with_version = arguments.copy()?;
    with_version.set_item("max_version", (1, 0))?;
    match method.call((), Some(&with_version)) {
        // A library older than DLPack 1.0 does not know the argument `max_version`.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => method.call((), Some(&arguments)),
        result => result,
    }
}

fn is_contiguous(shape: &[usize], strides: &[i64]) -> bool {
    if strides.is_empty() || shape.contains(&0) {
        return true;
    }
    let mut step = 1;
    for (&n, &stride) in shape.iter().zip(strides).rev() {
        // The stride of an axis with a single element does not matter.
        if n > 1 && stride != step {
            return false;
        }
        step *= n as i64;
    }
    true
}

/// Copies an array with strides to the slices of `to`: one run of adjacent elements for each index of `shape`, in row-major
/// order. `strides` count elements of `size` bytes.
///
/// # Safety
/// A run of elements must lie at `address`, and at each offset from `address` that `shape` and `strides` give.
unsafe fn gather<'a>(
    address: u64,
    shape: &[usize],
    strides: &[i64],
    size: usize,
    to: &mut impl Iterator<Item = &'a mut [u8]>,
) {
    let (Some((&n, shape)), Some((&stride, strides))) = (shape.split_first(), strides.split_first()) else {
        if let Some(to) = to.next() {
            // SAFETY: a run is there.
            to.copy_from_slice(unsafe { element::bytes(address, to.len()) });
        }
        return;
    };
    for i in 0..n as i64 {
        let address = address.wrapping_add_signed(i * stride * size as i64);
        // SAFETY: the caller's promise, for one axis less.
        unsafe { gather(address, shape, strides, size, to) };
    }
}
