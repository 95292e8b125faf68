//! [`Tensor`], memory with an owner that any library takes by DLPack; `protocol` has its methods.

use crate::dlpack::{self, DlDataType, DlDevice, Export};
use crate::element::{Element, Place};
use bytemuck::Pod;
use pyo3::prelude::*;
use robocache::device::HostBuf;
use std::ffi::c_void;
use std::sync::Arc;

/// Owner of the memory of a [`Tensor`]. It is dropped with the last array that any library made of it.
pub trait Memory: Send + Sync {
    /// Notes that a library gets the tensor, to use it on this stream of DLPack's numbering: `None` is the legacy default
    /// stream, -1 a stream that is not known.
    fn handed_out(&self, stream: Option<isize>) {
        let _ = stream;
    }
}

impl Memory for HostBuf {}
impl<T: Send + Sync> Memory for Vec<T> {}

/// An array that any library takes by DLPack, without a copy.
///
/// Its elements are ready: no stream has to be waited for.
#[pyclass(frozen, module = "robocache")]
pub struct Tensor {
    part: Part,
    owner: Arc<dyn Memory>,
}

/// The memory of a [`Tensor`], without its owner.
pub struct Part {
    /// The address of the first element, on the device if `place` is one.
    pub address: u64,
    /// The dimensions; row-major without gaps.
    pub shape: Vec<i64>,
    /// The type of the elements.
    pub element: Element,
    /// Memory that holds the elements.
    pub place: Place,
    /// True if nobody may write the elements.
    pub is_read_only: bool,
}

impl Tensor {
    /// A tensor of memory of `owner`.
    ///
    /// # Safety
    /// The memory must hold the elements of that shape for as long as the owner lives, and only users of the tensor may write
    /// them.
    pub unsafe fn new(part: Part, owner: Arc<dyn Memory>) -> Self {
        Self { part, owner }
    }

    /// A tensor of the elements of a vector.
    ///
    /// # Panics
    /// If there are more or fewer bytes than the shape says.
    pub fn of_vec<T: Pod + Send + Sync>(memory: Vec<T>, element: impl Into<Element>, shape: &[usize]) -> Self {
        let bytes: &[u8] = bytemuck::cast_slice(&memory);
        let (address, len) = (bytes.as_ptr() as u64, bytes.len());
        Self::of_owner(address, len, Arc::new(memory), element.into(), shape)
    }

    /// A tensor of host memory that holds its elements and nothing else.
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
    /// If there are more or fewer bytes than the shape says.
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

    /// The part of memory that the tensor shows.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// The owner of the tensor's memory.
    pub fn owner(&self) -> &Arc<dyn Memory> {
        &self.owner
    }

    /// The same memory with other dimensions, or with its elements seen as another type.
    ///
    /// # Panics
    /// If the tensor would have more or fewer bytes.
    pub fn seen_as(&self, element: Element, shape: Vec<i64>) -> Self {
        let part = Part {
            element,
            shape,
            ..self.part
        };
        assert_eq!(
            part.bytes(),
            self.part.bytes(),
            "bytes of a tensor that is seen as another"
        );
        Self {
            part,
            owner: self.owner.clone(),
        }
    }

    /// Prepares an export to a library, with the elements at `address` in the memory of `owner`.
    pub fn export(&self, owner: Arc<dyn Memory>, address: u64) -> Export<Arc<dyn Memory>> {
        let part = &self.part;
        let mut strides = vec![1; part.shape.len()];
        for axis in (1..strides.len()).rev() {
            strides[axis - 1] = strides[axis] * part.shape[axis].max(1);
        }
        Export {
            data: address as *mut c_void,
            device: part.place.into(),
            dtype: part.element.into(),
            shape: part.shape.clone(),
            strides,
            owner,
        }
    }
}

impl Part {
    /// Bytes that the elements take.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<i64>() as usize * self.element.size()
    }
}

/// A payload of a ring, lent to other libraries as memory.
pub struct Lent {
    pub address: u64,
    pub place: Place,
    pub owner: Arc<dyn Memory>,
}

impl From<Place> for DlDevice {
    fn from(place: Place) -> Self {
        match place {
            Place::Host => Self {
                kind: dlpack::CPU,
                ordinal: 0,
            },
            Place::Gpu(kind, ordinal) => Self {
                kind: kind.dlpack(),
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
