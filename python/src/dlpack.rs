//! DLPack 1.0: its structs, and the Python capsules that pass a tensor to another library.
//! Exactly one holder calls a tensor's deleter, exactly once: the consumer that renamed the capsule, else the capsule itself.
//!
//! See <https://dmlc.github.io/dlpack/latest/c_api.html>.

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

pub const CPU: i32 = 1;
/// Device kind `kDLCUDAHost`: page-locked host memory of CUDA.
pub const CUDA_HOST: i32 = 3;
/// Device kind `kDLROCMHost`: page-locked host memory of ROCm.
pub const ROCM_HOST: i32 = 11;

pub const READ_ONLY: u64 = 1;
pub const IS_COPIED: u64 = 2;

const MAJOR: u32 = 1;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
/// Name of a capsule after a consumer took its tensor. The consumer, no longer the capsule, calls the tensor's deleter.
const USED_PLAIN: &CStr = c"used_dltensor";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// `DLDevice` of DLPack: the code of a kind of devices, such as 2 for CUDA, and a number among the devices of that kind.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlDevice {
    pub kind: i32,
    pub ordinal: i32,
}

/// `DLDataType` of DLPack: the type of an element. `code` is 0 for int, 1 for uint, 2 for float, 4 for bfloat, 6 for bool.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlDataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// `DLTensor` of DLPack: a view of memory that does not own it. Strides count elements, not bytes.
#[repr(C)]
pub struct DlTensor {
    pub data: *mut c_void,
    pub device: DlDevice,
    pub ndim: i32,
    pub dtype: DlDataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// `DLManagedTensor`: a tensor and its deleter, as before DLPack 1.0, without flags.
#[repr(C)]
struct Plain {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`: a tensor and its deleter, as of DLPack 1.0, with flags.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: DlTensor,
}

/// Data that an exported tensor keeps alive until its deleter is called: its dimensions, and the owner of its memory.
pub struct Exported<O> {
    shape: Vec<i64>,
    strides: Vec<i64>,
    _owner: O,
}

/// A tensor to export in a capsule. `owner` is dropped when the consumer calls the deleter.
pub struct Export<O> {
    pub data: *mut c_void,
    pub device: DlDevice,
    pub dtype: DlDataType,
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
    pub owner: O,
}

impl<O: Send + 'static> Export<O> {
    /// Makes a capsule of the tensor: of DLPack 1.0 with `flags` if `is_versioned`, else an older capsule without flags.
    pub fn into_capsule(self, py: Python<'_>, is_versioned: bool, flags: u64) -> PyResult<Bound<'_, PyAny>> {
        let mut exported = Box::new(Exported {
            shape: self.shape,
            strides: self.strides,
            _owner: self.owner,
        });
        let tensor = DlTensor {
            data: self.data,
            device: self.device,
            ndim: exported.shape.len() as i32,
            dtype: self.dtype,
            shape: exported.shape.as_mut_ptr(),
            strides: exported.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let context: *mut c_void = Box::into_raw(exported).cast();
        if is_versioned {
            let managed = Box::new(Versioned {
                version: [MAJOR, 0],
                context,
                deleter: Some(delete_versioned::<O>),
                flags,
                tensor,
            });
            new_capsule(py, Box::into_raw(managed).cast(), VERSIONED, drop_versioned)
        } else {
            let managed = Box::new(Plain {
                tensor,
                context,
                deleter: Some(delete_plain::<O>),
            });
            new_capsule(py, Box::into_raw(managed).cast(), PLAIN, drop_plain)
        }
    }
}

fn new_capsule<'py>(
    py: Python<'py>,
    managed: *mut c_void,
    name: &'static CStr,
    destructor: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the name is static, and the destructor fits the struct that `managed` points to.
    unsafe {
        let capsule = ffi::PyCapsule_New(managed, name.as_ptr(), Some(destructor));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

unsafe extern "C" fn delete_plain<O>(managed: *mut Plain) {
    // SAFETY: both boxes were made by `into_capsule`, and the holder of the tensor deletes it once.
    unsafe { drop(Box::from_raw(Box::from_raw(managed).context.cast::<Exported<O>>())) };
}

unsafe extern "C" fn delete_versioned<O>(managed: *mut Versioned) {
    // SAFETY: as in `delete_plain`.
    unsafe { drop(Box::from_raw(Box::from_raw(managed).context.cast::<Exported<O>>())) };
}

unsafe extern "C" fn drop_plain(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule that still has this name has a tensor that nobody took.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast::<Plain>();
            release_plain(managed);
        }
    }
}

unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as in `drop_plain`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast::<Versioned>();
            release_versioned(managed);
        }
    }
}

/// Calls the deleter, if there is one, of a tensor without flags.
///
/// # Safety
/// The caller must own the tensor, and nobody may use it afterwards.
unsafe fn release_plain(managed: *mut Plain) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(deleter) = (*managed).deleter {
            deleter(managed);
        }
    }
}

/// Calls the deleter, if there is one, of a tensor with flags.
///
/// # Safety
/// The same as of [`release_plain`].
unsafe fn release_versioned(managed: *mut Versioned) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(deleter) = (*managed).deleter {
            deleter(managed);
        }
    }
}

/// A tensor of another library, taken out of its capsule. Dropping it calls the tensor's deleter.
pub struct Imported(Managed);

enum Managed {
    Plain(ManagedPlain),
    Versioned(ManagedVersioned),
}

/// Owner of a `DLManagedTensor`; dropping it calls the deleter.
struct ManagedPlain(NonNull<Plain>);

/// Owner of a `DLManagedTensorVersioned`; dropping it calls the deleter.
struct ManagedVersioned(NonNull<Versioned>);

// SAFETY: DLPack lets every thread read a tensor and call its deleter.
unsafe impl Send for Imported {}
// SAFETY: the tensor is only read.
unsafe impl Sync for Imported {}

impl Drop for ManagedPlain {
    fn drop(&mut self) {
        // SAFETY: the tensor was taken out of its capsule, which no longer releases it.
        unsafe { release_plain(self.0.as_ptr()) }
    }
}

impl Drop for ManagedVersioned {
    fn drop(&mut self) {
        // SAFETY: as for `ManagedPlain`.
        unsafe { release_versioned(self.0.as_ptr()) }
    }
}

impl Imported {
    /// Takes the tensor out of a capsule, of DLPack 1.0 or older. Fails if the tensor was taken out already.
    pub fn from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let object = capsule.cast::<PyCapsule>()?.as_ptr();
        // SAFETY: the name of the capsule tells the type of its pointer. Once it is renamed, its destructor leaves the tensor
        // alone.
        unsafe {
            if ffi::PyCapsule_IsValid(object, VERSIONED.as_ptr()) == 1 {
                let managed = ffi::PyCapsule_GetPointer(object, VERSIONED.as_ptr()).cast::<Versioned>();
                let major = (*managed).version[0];
                if major != MAJOR {
                    return Err(PyBufferError::new_err(format!(
                        "the capsule has DLPack version {major} (allowed: {MAJOR})"
                    )));
                }
                ffi::PyCapsule_SetName(object, USED_VERSIONED.as_ptr());
                return Ok(Self(Managed::Versioned(ManagedVersioned(NonNull::new_unchecked(
                    managed,
                )))));
            }
            if ffi::PyCapsule_IsValid(object, PLAIN.as_ptr()) == 1 {
                let managed = ffi::PyCapsule_GetPointer(object, PLAIN.as_ptr()).cast::<Plain>();
                ffi::PyCapsule_SetName(object, USED_PLAIN.as_ptr());
                return Ok(Self(Managed::Plain(ManagedPlain(NonNull::new_unchecked(managed)))));
            }
        }
        Err(PyBufferError::new_err(
            "the capsule holds no DLPack tensor, or one that was taken already",
        ))
    }

    /// Flags of the tensor, such as [`READ_ONLY`]; 0 if its capsule is older than DLPack 1.0.
    pub fn flags(&self) -> u64 {
        match &self.0 {
            Managed::Plain(_) => 0,
            // SAFETY: the tensor lives until it is released.
            Managed::Versioned(managed) => unsafe { managed.0.as_ref().flags },
        }
    }

    /// The view of the tensor's memory, valid while `self` lives.
    pub fn tensor(&self) -> &DlTensor {
        // SAFETY: the tensor lives until it is released.
        unsafe {
            match &self.0 {
                Managed::Plain(managed) => &managed.0.as_ref().tensor,
                Managed::Versioned(managed) => &managed.0.as_ref().tensor,
            }
        }
    }
}

impl DlTensor {
    /// Dimensions of the tensor, outermost first.
    pub fn shape(&self) -> &[i64] {
        // SAFETY: the shape has `ndim` dimensions, which live as long as the tensor.
        unsafe { dimensions(self.shape, self.ndim) }
    }

    /// Strides of the tensor, in elements, one for each dimension; empty if the tensor is row-major without gaps.
    pub fn strides(&self) -> &[i64] {
        // SAFETY: the strides are null, or there are `ndim` that live as long as the tensor.
        unsafe { dimensions(self.strides, self.ndim) }
    }

    /// Address of the tensor's first element, on its device.
    pub fn address(&self) -> u64 {
        self.data as u64 + self.byte_offset
    }
}

/// Views the shape or the strides of a tensor as a slice; empty if `to` is null.
///
/// # Safety
/// `to` is null, or points to `ndim` numbers that live for `'a`.
unsafe fn dimensions<'a>(to: *const i64, ndim: i32) -> &'a [i64] {
    match to.is_null() || ndim <= 0 {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe { std::slice::from_raw_parts(to, ndim as usize) },
    }
}
