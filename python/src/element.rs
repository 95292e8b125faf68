//! Types of an array's elements, and the memory in which they lie.

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use robocache::device::Dtype;
use robocache::device::gpu::Kind;
use std::fmt;

/// The type of an array's elements: a type of numbers, or booleans for masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// A number.
    Number(Dtype),
    /// A byte that is 0 or 1.
    Bool,
}

impl Element {
    /// Stand-in for bfloat16 in a library that does not know it.
    pub const BITS: Self = Self::Number(Dtype::UInt16);

    /// The name, such as `float32`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Number(dtype) => dtype.name(),
            Self::Bool => "bool",
        }
    }

    /// Bytes an element takes.
    pub fn size(self) -> usize {
        match self {
            Self::Number(dtype) => dtype.size(),
            Self::Bool => 1,
        }
    }

    /// DLPack's code and bits for the type.
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

    /// The type with this code and these bits in DLPack; `None` if it is not supported.
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

/// Memory that an array can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Memory of the host.
    Host,
    /// Memory of the GPU with this kind and ordinal.
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
    /// Checks a stream by DLPack's numbering: `None` is the legacy default stream, -1 no stream, another number a handle. On
    /// CUDA 1 is the legacy default and 2 the thread's default; 0 could be either, and is refused. On ROCm 0 is the default, and
    /// 1 and 2 are refused.
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

/// Views host memory as bytes. An empty slice is aligned to 8 bytes, so that it can be cast to any type of numbers.
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
