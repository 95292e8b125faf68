//! [`Tensor`], the array type of all results: memory with an owner, which any library can import by DLPack. The module
//! `protocol` has its Python methods. Elements are ready before a tensor is returned, and never move while its owner lives.

use crate::dlpack::{self, DlDataType, DlDevice, Export};
use crate::element::{Element, Place};
use bytemuck::Pod;
use pyo3::prelude::*;
use robocache::device::HostBuf;
use std::ffi::c_void;
use std::sync::Arc;

/// Owner of the memory of a [`Tensor`]. The owner is dropped with the last array that any library made of the tensor.
pub trait Memory: Send + Sync {
    /// Called when a library gets the tensor to use it on `stream`, by DLPack's numbering: `None` is the legacy default stream,
    /// -1 an unknown stream. By default nothing happens.
    fn handed_out(&self, stream: Option<isize>) {
        let _ = stream;
    }
}

impl Memory for HostBuf {}
impl<T: Send + Sync> Memory for Vec<T> {}

/// An array, row-major without gaps, that any library can import by DLPack without a copy.
///
/// Its elements are ready: no stream has to be waited for.
#[pyclass(frozen, module = "robocache")]
pub struct Tensor {
    part: Part,
    owner: Arc<dyn Memory>,
}

/// Description of a [`Tensor`] or an array without its owner: address, shape, element type, and the memory that holds
/// the elements.
pub struct Part {
    /// Address of the first element, in the memory that `place` names.
    pub address: u64,
    /// Dimensions of the array, outermost first. The elements are row-major without gaps.
    pub shape: Vec<i64>,
    /// Type of each element.
    pub element: Element,
    /// Kind of memory that holds the elements: the host's, or that of a GPU.
    pub place: Place,
    /// True if consumers must not write the elements.
    pub is_read_only: bool,
}

impl Tensor {
    /// Makes a tensor of memory that `owner` holds.
    ///
    /// # Safety
    /// The memory that `part` describes must hold its elements for as long as `owner` lives, and only users of the tensor may
    /// write them.
    pub unsafe fn new(part: Part, owner: Arc<dyn Memory>) -> Self {
        Self { part, owner }
    }

    /// Makes a tensor on the host that owns the vector `memory`.
    ///
    /// # Panics
    /// If there are more or fewer bytes than the shape says.
    pub fn of_vec<T: Pod + Send + Sync>(memory: Vec<T>, element: impl Into<Element>, shape: &[usize]) -> Self {
        let bytes: &[u8] = bytemuck::cast_slice(&memory);
        let (address, len) = (bytes.as_ptr() as u64, bytes.len());
        Self::of_owner(address, len, Arc::new(memory), element.into(), shape)
    }

    /// Makes a tensor on the host that owns the buffer `memory`.
    ///
    /// # Panics
    /// If there are more or fewer bytes than the shape says.
    pub fn of_host(memory: HostBuf, element: impl Into<Element>, shape: &[usize]) -> Self {
        let (address, len) = (memory.bytes().as_ptr() as u64, memory.len());
        Self::of_owner(address, len, Arc::new(memory), element.into(), shape)
    }

    /// Makes a tensor on the host from a copy of `bytes`.
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

    /// Address, shape, element type and kind of memory of the tensor.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Owner of the tensor's memory.
    pub fn owner(&self) -> &Arc<dyn Memory> {
        &self.owner
    }

    /// Returns a tensor of the same memory with another type or shape.
    ///
    /// # Panics
    /// If the new tensor would have more or fewer bytes.
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

    /// Prepares an export by DLPack, with the shape and type of this tensor and the elements at `address` in the memory of `owner`.
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
    /// Size of all elements, bytes.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<i64>() as usize * self.element.size()
    }
}

/// Memory of a ring's payload that other libraries use by DLPack. They have finished with it when `owner` is dropped.
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
