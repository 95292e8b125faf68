//! Elements in the memory of a device, as kernels take them. A slice of a buffer is always within the buffer, and every slice is
//! aligned to its elements.

use super::device::Gpu;
use super::error::SliceError;
use super::memory::DeviceBuf;
use super::pointer::DevicePtr;
use crate::{Device, Dtype};
use std::ops::Range;

/// Elements of one type, one after the other, in the memory of a device: what a kernel reads or writes.
///
/// A slice is a view, like a pointer with a length, and borrows the memory. Launches are `unsafe`, since they may still use the
/// memory when the borrow has ended. Range and alignment were checked when the slice was made, so an operation only has to check
/// that the slice is the tensor that it [expects](Self::expect).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSlice<'a> {
    pointer: DevicePtr<'a>,
    dtype: Dtype,
    len: usize,
    device: Device,
}

impl<'a> DeviceSlice<'a> {
    /// Views `len` elements of memory that is not a [`DeviceBuf`], such as a tensor of another library.
    ///
    /// # Errors
    /// [`SliceError::Misaligned`] if the address is not a multiple of the element's size.
    ///
    /// # Safety
    /// `len` elements are at `address` of device `device`, and stay there for as long as the slice and its copies are
    /// used.
    pub unsafe fn from_raw(address: u64, dtype: Dtype, len: usize, device: Device) -> Result<Self, SliceError> {
        let pointer = DevicePtr::new(address);
        match pointer.is_aligned_to(dtype.size()) {
            true => Ok(Self {
                pointer,
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

    /// Number of elements in the slice.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of the slice, bytes.
    pub fn bytes(&self) -> usize {
        self.len * self.dtype.size()
    }

    /// The device that the elements are on.
    pub fn device(&self) -> Device {
        self.device
    }

    /// View of the elements in a range.
    ///
    /// # Errors
    /// [`SliceError::OutOfRange`] if the range is not within the slice.
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
            pointer: self.pointer.offset(elements.start * size),
            len: elements.len(),
            ..self
        })
    }

    /// Checks that the slice is `len` elements of type `dtype` on the device of `gpu`. An error names the slice `tensor`.
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
        if self.device != gpu.device() {
            return Err(SliceError::Device {
                tensor,
                expected: gpu.device(),
                came: self.device,
            });
        }
        Ok(self)
    }

    /// The address of the first element.
    pub fn pointer(&self) -> DevicePtr<'a> {
        self.pointer
    }
}

impl DeviceBuf {
    /// Views `len` elements of type `dtype`, from byte `offset` of the buffer on.
    ///
    /// # Errors
    /// [`SliceError::OutOfRange`], [`SliceError::Misaligned`].
    pub fn slice(&self, offset: usize, dtype: Dtype, len: usize) -> Result<DeviceSlice<'_>, SliceError> {
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
            pointer: self.pointer().offset(offset),
            dtype,
            len,
            device: self.gpu().device(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Kind;

    /// Makes a slice of memory that no test reads.
    fn slice(address: u64, dtype: Dtype, len: usize) -> Result<DeviceSlice<'static>, SliceError> {
        // SAFETY: nothing is launched with it.
        unsafe { DeviceSlice::from_raw(address, dtype, len, Device::Gpu(Kind::Cuda, 0)) }
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
        assert_eq!(
            (part.pointer().raw(), part.len(), part.dtype()),
            (0x1006, 4, Dtype::Float16)
        );
        assert_eq!(whole.slice(10..10).unwrap().len(), 0);
        let error = whole.slice(3..11).unwrap_err();
        assert_eq!(
            error.to_string(),
            "8 float16 elements at byte 6 reach past the end of 20 bytes of device memory (allowed: up to 7 from there)"
        );
    }
}
