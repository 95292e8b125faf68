//! Element types of arrays, and the kinds of memory that hold arrays.

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use robocache::device::Dtype;
use robocache::device::gpu::Kind;
use std::fmt;

/// The type of an array's elements: a type of numbers, or booleans for masks. Each type has exactly one DLPack code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Elements that are numbers of this type.
    Number(Dtype),
    /// Booleans of a mask, each a byte that is 0 or 1.
    Bool,
}

impl Element {
    /// The type uint16, as which bfloat16 is shown to libraries that do not know bfloat16.
    pub const BITS: Self = Self::Number(Dtype::UInt16);

    /// Name of the type as NumPy writes it, such as `float32`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Number(dtype) => dtype.name(),
            Self::Bool => "bool",
        }
    }

    /// Size of one element, bytes.
    pub fn size(self) -> usize {
        match self {
            Self::Number(dtype) => dtype.size(),
            Self::Bool => 1,
        }
    }

    /// Code of the type in DLPack, and the number of bits of an element.
    pub fn dlpack(self) -> (u8, u8) {
        let code = match self {
            Self::Bool => 6,
            Self::Number(dtype) => match dtype {
                Dtype::Int8 | Dtype::Int16 | Dtype::Int32 | Dtype::Int64 => 0,
                Dtype::UInt8 | Dtype::UInt16 | Dtype::UInt32 | Dtype::UInt64 => 1,
                Dtype::Float16 | Dtype::Float32 | Dtype::Float64 => 2,
                Dtype::BFloat16 => 4,
            },
        };
        (code, 8 * self.size() as u8)
    }

    /// Returns the type with a code and a number of bits of DLPack; `None` if the type is not supported.
    pub fn from_dlpack(code: u8, bits: u8) -> Option<Self> {
        let numbers = Dtype::ALL.into_iter().map(Self::Number);
        numbers
            .chain([Self::Bool])
            .find(|element| element.dlpack() == (code, bits))
    }
}

impl From<Dtype> for Element {
    fn from(dtype: Dtype) -> Self {
        Self::Number(dtype)
    }
}

/// Kind of memory that holds an array: the host's, or that of a GPU. Displayed as `cpu`, `cuda:N` or `hip:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Memory of the host, page-locked or not.
    Host,
    /// Memory of a GPU: CUDA or HIP, and the number of the GPU.
    Gpu(Kind, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("cpu"),
            Self::Gpu(kind, ordinal) => write!(f, "{kind}:{ordinal}"),
        }
    }
}

impl Place {
    /// Refuses a stream number that DLPack does not allow for this memory. `None` is the default stream, -1 no stream, any
    /// other number a handle. CUDA has 1 for the legacy default stream and 2 for the thread's, and refuses the ambiguous 0.
    /// ROCm has 0 for the default stream, and refuses 1 and 2. The host allows only `None`.
    pub fn check_stream(self, stream: Option<isize>) -> PyResult<()> {
        match (self, stream) {
            (_, None) | (Self::Gpu(Kind::Cuda, _), Some(-1 | 1..)) | (Self::Gpu(Kind::Hip, _), Some(-1 | 0 | 3..)) => {
                Ok(())
            }
            (Self::Gpu(Kind::Hip, _), Some(other)) => Err(PyValueError::new_err(format!(
                "stream {other} (allowed: None, -1 for none, 0 for the default stream, a handle)"
            ))),
            (Self::Gpu(Kind::Cuda, _), Some(other)) => Err(PyValueError::new_err(format!(
                "stream {other} (allowed: None, -1 for none, 1 for the legacy default stream, 2 for the thread's, a handle)"
            ))),
            (Self::Host, Some(other)) => Err(PyBufferError::new_err(format!(
                "stream {other} for memory of the host (allowed: None)"
            ))),
        }
    }
}

/// Returns `len` bytes of host memory. An empty slice is aligned to 8 bytes, so that it can be cast to any type of numbers.
///
/// # Safety
/// `len` bytes must be at `address`, and nobody may write them during `'a`.
pub unsafe fn bytes<'a>(address: u64, len: usize) -> &'a [u8] {
    match len {
        0 => bytemuck::cast_slice::<u64, u8>(&[]),
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(address as *const u8, len) },
    }
}
