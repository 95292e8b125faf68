use super::driver::Address;
use bytemuck::Zeroable;
use std::marker::PhantomData;

/// Address of memory that a device reads or writes, laid out as a pointer argument of a kernel. The lifetime is that of the memory.
///
/// The default is [`NULL`](Self::NULL), which a kernel gets for memory that it is not to touch.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable)]
pub struct DevicePtr<'a> {
    address: u64,
    memory: PhantomData<&'a [u8]>,
}

impl DevicePtr<'_> {
    /// The address 0, which stands for no memory.
    pub const NULL: Self = Self::new(0);

    pub(super) const fn new(address: u64) -> Self {
        Self {
            address,
            memory: PhantomData,
        }
    }

    /// The address `bytes` bytes further on.
    #[must_use]
    pub const fn offset(self, bytes: usize) -> Self {
        Self::new(self.address + bytes as u64)
    }

    /// True if elements of `bytes` bytes can begin at the address.
    pub const fn is_aligned_to(self, bytes: usize) -> bool {
        self.address.is_multiple_of(bytes as u64)
    }

    /// The address as a number, for another library that also gets an owner of the memory.
    pub const fn raw(self) -> u64 {
        self.address
    }

    /// The same address with any lifetime.
    ///
    /// # Safety
    /// The memory stays allocated, at this address, for as long as the address is used.
    pub const unsafe fn outliving<'b>(self) -> DevicePtr<'b> {
        DevicePtr::new(self.address)
    }

    pub(super) const fn address(self) -> Address {
        Address(self.address)
    }
}
