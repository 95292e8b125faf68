//! Elements in the memory of a device, as kernels take them.

use super::{DeviceBuf, Gpu};
use crate::Dtype;
use std::ops::Range;

/// Elements of one type, one after the other, in the memory of a device: what a kernel reads or writes.
///
/// It is a view, like a pointer with a length: it neither owns the memory nor keeps it alive, which is why launches that
/// take it are `unsafe`. Its range and alignment were checked when it was made, so an operation only has to check that
/// it is the tensor that it [expects](Self::expect).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSlice {
    address: u64,
    dtype: Dtype,
    len: usize,
    device: usize,
}

/// A slice that can't be made, or is not the one that an operation expects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// It reaches past the end of the memory.
    #[error("{len} {dtype} elements at byte {offset} do not fit {available} bytes of device memory")]
    OutOfRange {
        /// The type of the elements.
        dtype: Dtype,
        /// How many were asked for.
        len: usize,
        /// The byte that they were to begin at.
        offset: usize,
        /// Bytes there are.
        available: usize,
    },
    /// An element would lie across a boundary that the device can't read it across.
    #[error("{dtype} elements can't begin at byte {offset} (allowed: multiples of {})", dtype.size())]
    Misaligned {
        /// The type of the elements.
        dtype: Dtype,
        /// The byte, or for foreign memory the address.
        offset: u64,
    },
    /// The elements are of another type.
    #[error("`{tensor}` is {came}, not {expected}")]
    Dtype {
        /// What the slice was handed over as.
        tensor: &'static str,
        /// The type that it should have.
        expected: Dtype,
        /// The type that it has.
        came: Dtype,
    },
    /// There are more or fewer elements.
    #[error("`{tensor}` has {came} elements, not {expected}")]
    Len {
        /// What the slice was handed over as.
        tensor: &'static str,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        came: usize,
    },
    /// The memory is that of another device.
    #[error("`{tensor}` is on cuda:{came}, the operation on cuda:{expected}")]
    Device {
        /// What the slice was handed over as.
        tensor: &'static str,
        /// The operation's device.
        expected: usize,
        /// The slice's.
        came: usize,
    },
}

impl DeviceSlice {
    /// `len` elements of memory that is not a [`DeviceBuf`], such as a tensor of another library.
    ///
    /// # Errors
    /// [`SliceError::Misaligned`] if the address is no multiple of the element's size.
    ///
    /// # Safety
    /// So many elements are at that address of device `device`, and stay there for as long as the slice and its copies
    /// are used.
    pub unsafe fn from_raw(address: u64, dtype: Dtype, len: usize, device: usize) -> Result<Self, SliceError> {
        match address.is_multiple_of(dtype.size() as u64) {
            true => Ok(Self {
                address,
                dtype,
                len,
                device,
            }),
            false => Err(SliceError::Misaligned { dtype, offset: address }),
        }
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * self.dtype.size()
    }

    /// The ordinal of the device, N of `cuda:N`.
    pub fn device(&self) -> usize {
        self.device
    }

    /// Some of the elements.
    ///
    /// # Errors
    /// [`SliceError::OutOfRange`].
    pub fn slice(self, elements: Range<usize>) -> Result<Self, SliceError> {
        let size = self.dtype.size();
        if elements.start > elements.end || elements.end > self.len {
            return Err(SliceError::OutOfRange {
                dtype: self.dtype,
                len: elements.len(),
                offset: elements.start.saturating_mul(size),
                available: self.bytes(),
            });
        }
        Ok(Self {
            address: self.address + (elements.start * size) as u64,
            len: elements.len(),
            ..self
        })
    }

    /// Checks that it is `len` elements of type `dtype` on the device of `gpu`. `tensor` names it in the error.
    ///
    /// # Errors
    /// [`SliceError::Dtype`], [`SliceError::Len`], [`SliceError::Device`].
    pub fn expect(self, tensor: &'static str, dtype: Dtype, len: usize, gpu: &Gpu) -> Result<Self, SliceError> {
        if self.dtype != dtype {
            return Err(SliceError::Dtype {
                tensor,
                expected: dtype,
                came: self.dtype,
            });
        }
        if self.len != len {
            return Err(SliceError::Len {
                tensor,
                expected: len,
                came: self.len,
            });
        }
        if self.device != gpu.ordinal() {
            return Err(SliceError::Device {
                tensor,
                expected: gpu.ordinal(),
                came: self.device,
            });
        }
        Ok(self)
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl DeviceBuf {
    /// `len` elements from byte `offset` of the buffer on. The slice is of no use once the buffer grows or is dropped.
    ///
    /// # Errors
    /// [`SliceError::OutOfRange`], [`SliceError::Misaligned`].
    pub fn slice(&self, offset: usize, dtype: Dtype, len: usize) -> Result<DeviceSlice, SliceError> {
        let bytes = len.checked_mul(dtype.size());
        let end = bytes.and_then(|bytes| bytes.checked_add(offset));
        if end.is_none_or(|end| end > self.capacity()) {
            return Err(SliceError::OutOfRange {
                dtype,
                len,
                offset,
                available: self.capacity(),
            });
        }
        if !offset.is_multiple_of(dtype.size()) {
            return Err(SliceError::Misaligned {
                dtype,
                offset: offset as u64,
            });
        }
        Ok(DeviceSlice {
            address: self.address() + offset as u64,
            dtype,
            len,
            device: self.gpu().ordinal(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that no test reads.
    fn slice(address: u64, dtype: Dtype, len: usize) -> Result<DeviceSlice, SliceError> {
        // SAFETY: nothing is launched with it.
        unsafe { DeviceSlice::from_raw(address, dtype, len, 0) }
    }

    #[test]
    fn foreign_memory_is_aligned_to_its_elements() {
        assert_eq!(slice(0x1008, Dtype::Int64, 3).unwrap().bytes(), 24);
        let error = slice(0x1004, Dtype::Int64, 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "int64 elements can't begin at byte 4100 (allowed: multiples of 8)"
        );
    }

    #[test]
    fn a_part_of_a_slice_lies_within_it() {
        let whole = slice(0x1000, Dtype::Float16, 10).unwrap();
        let part = whole.slice(3..7).unwrap();
        assert_eq!((part.address(), part.len(), part.dtype()), (0x1006, 4, Dtype::Float16));
        assert_eq!(whole.slice(10..10).unwrap().len(), 0);
        let error = whole.slice(3..11).unwrap_err();
        assert_eq!(
            error.to_string(),
            "8 float16 elements at byte 6 do not fit 20 bytes of device memory"
        );
    }
}
