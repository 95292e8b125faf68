//! Memory of a device that other processes can map: virtual memory management, with a file descriptor as the handle.

use super::{Address, Fault, attribute, failed};
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Driver functions that only this module needs. A driver that lacks them can do everything but share memory.
pub(super) const FUNCTIONS: [&str; 11] = [
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemGetAllocationGranularity",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuDeviceGetUuid_v2",
];

const BY_DESCRIPTOR: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Handle of allocated device memory that has no address yet. If the memory is still mapped anywhere, it outlives the handle.
struct Pages(sys::CUmemGenericAllocationHandle);

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the handle is released once.
        let _ = unsafe { sys::cuMemRelease(self.0) };
    }
}

/// Implements [`Driver::can_share`](super::Driver::can_share).
pub(super) fn can_share(ordinal: usize) -> Result<bool, Fault> {
    for wanted in [
        Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    ] {
        if attribute(ordinal, wanted)? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Implements [`Driver::uuid`](super::Driver::uuid).
pub(super) fn uuid(ordinal: usize) -> Result<[u8; 16], Fault> {
    let device = result::device::get(ordinal as i32).map_err(failed("cuDeviceGet"))?;
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the device is there, and `uuid` is a place for its UUID.
    unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) }
        .result()
        .map_err(failed("cuDeviceGetUuid"))?;
    Ok(uuid.bytes.map(|byte| byte as u8))
}

/// Implements [`Driver::shareable_bytes`](super::Driver::shareable_bytes).
pub(super) fn rounded(ordinal: usize, bytes: usize) -> Result<usize, Fault> {
    let prop = properties(ordinal);
    let option = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    let mut granularity = 0;
    // SAFETY: the properties are whole.
    unsafe { sys::cuMemGetAllocationGranularity(&mut granularity, &raw const prop, option) }
        .result()
        .map_err(failed("cuMemGetAllocationGranularity"))?;
    Ok(bytes.max(1).next_multiple_of(granularity.max(1)))
}

/// Implements [`Driver::create_shareable`](super::Driver::create_shareable).
pub(super) fn create(ordinal: usize, bytes: usize) -> Result<(Address, OwnedFd), Fault> {
    let prop = properties(ordinal);
    let mut handle = 0;
    // SAFETY: the context is current, and the properties are whole.
    unsafe { sys::cuMemCreate(&mut handle, bytes, &raw const prop, 0) }
        .result()
        .map_err(failed("cuMemCreate"))?;
    let pages = Pages(handle);
    let mut descriptor = -1i32;
    // SAFETY: the handle lives, and a descriptor is an int.
    let exported =
        unsafe { sys::cuMemExportToShareableHandle((&raw mut descriptor).cast::<c_void>(), pages.0, BY_DESCRIPTOR, 0) };
    exported.result().map_err(failed("cuMemExportToShareableHandle"))?;
    // SAFETY: the driver made it for the caller.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    Ok((map(ordinal, &pages, bytes)?, descriptor))
}

/// Implements [`Driver::map_shareable`](super::Driver::map_shareable).
pub(super) fn import(ordinal: usize, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<Address, Fault> {
    let mut handle = 0;
    let os_handle = descriptor.as_raw_fd() as usize as *mut c_void;
    // SAFETY: the context is current; a descriptor is passed by value.
    unsafe { sys::cuMemImportFromShareableHandle(&mut handle, os_handle, BY_DESCRIPTOR) }
        .result()
        .map_err(failed("cuMemImportFromShareableHandle"))?;
    map(ordinal, &Pages(handle), bytes)
}

/// Maps pages to an address that the driver chooses, and lets the device read and write them.
fn map(ordinal: usize, pages: &Pages, bytes: usize) -> Result<Address, Fault> {
    let mut address = 0;
    // SAFETY: a range of addresses that the driver chooses.
    unsafe { sys::cuMemAddressReserve(&mut address, bytes, 0, 0, 0) }
        .result()
        .map_err(failed("cuMemAddressReserve"))?;
    // SAFETY: the range was reserved with this size, and the handle lives.
    let mapped = unsafe { sys::cuMemMap(address, bytes, 0, pages.0, 0) }.result();
    if let Err(error) = mapped {
        // SAFETY: nothing is mapped to it.
        let _ = unsafe { sys::cuMemAddressFree(address, bytes) };
        return Err(failed("cuMemMap")(error));
    }
    let access = sys::CUmemAccessDesc {
        location: location(ordinal),
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the range is mapped.
    if let Err(error) = unsafe { sys::cuMemSetAccess(address, bytes, &raw const access, 1) }.result() {
        // SAFETY: nobody has the address.
        unsafe { unmap(Address(address), bytes) };
        return Err(failed("cuMemSetAccess")(error));
    }
    Ok(Address(address))
}

/// Implements [`Driver::unmap_shareable`](super::Driver::unmap_shareable).
///
/// # Safety
/// The range was mapped by this module, and is not used again.
pub(super) unsafe fn unmap(address: Address, bytes: usize) {
    // SAFETY: the caller's promise. Unmapping does not wait for the device.
    unsafe {
        let _ = sys::cuCtxSynchronize();
        let _ = sys::cuMemUnmap(address.0, bytes);
        let _ = sys::cuMemAddressFree(address.0, bytes);
    }
}

fn location(ordinal: usize) -> sys::CUmemLocation {
    let mut location = sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        // SAFETY: all fields are integers.
        ..unsafe { std::mem::zeroed() }
    };
    location.id = ordinal as i32;
    location
}

fn properties(ordinal: usize) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: BY_DESCRIPTOR,
        location: location(ordinal),
        win32HandleMetaData: std::ptr::null_mut(),
        // SAFETY: all fields are integers, and 0 is what they are by default.
        allocFlags: unsafe { std::mem::zeroed() },
    }
}
