//! Memory of a device that other processes can map: virtual memory management, with a file descriptor as the handle.

use super::{Budget, CudaError, Gpu, probe};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The calls that this needs and nothing else does: drivers that lack them are used for everything else.
const FUNCTIONS: [&str; 11] = [
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

/// A range of addresses of a device, with memory that may be another process's, mapped to it.
pub(super) struct Mapping {
    gpu: Gpu,
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl Mapping {
    /// New memory of `bytes` bytes or more, and the descriptor that other processes map it by.
    pub fn create(gpu: &Gpu, bytes: usize) -> Result<(Self, OwnedFd), CudaError> {
        gpu.check_can_share()?;
        let prop = properties(gpu);
        let bytes = gpu.rounded(bytes)?;
        let mut handle = 0;
        // SAFETY: the context is current, and the properties are whole.
        let created = unsafe { sys::cuMemCreate(&mut handle, bytes, &raw const prop, 0) };
        created
            .result()
            .map_err(|error| CudaError::allocation(gpu.ordinal(), "device", error, bytes))?;
        let handle = Handle { gpu, handle };
        let mut descriptor = -1i32;
        // SAFETY: the handle lives, and a descriptor is an int.
        let exported = unsafe {
            sys::cuMemExportToShareableHandle((&raw mut descriptor).cast::<c_void>(), handle.handle, BY_DESCRIPTOR, 0)
        };
        exported
            .result()
            .map_err(|error| gpu.failed("cuMemExportToShareableHandle", error, format_args!("{bytes} bytes")))?;
        // SAFETY: the driver made it for the caller.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok((Self::map(&handle, bytes)?, descriptor))
    }

    /// Maps memory that another process made, of `bytes` bytes or more.
    pub fn import(gpu: &Gpu, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<Self, CudaError> {
        gpu.check_can_share()?;
        let bytes = gpu.rounded(bytes)?;
        let mut handle = 0;
        let os_handle = descriptor.as_raw_fd() as usize as *mut c_void;
        // SAFETY: the context is current; a descriptor is passed by value.
        let imported = unsafe { sys::cuMemImportFromShareableHandle(&mut handle, os_handle, BY_DESCRIPTOR) };
        imported
            .result()
            .map_err(|error| gpu.failed("cuMemImportFromShareableHandle", error, format_args!("{bytes} bytes")))?;
        Self::map(&Handle { gpu, handle }, bytes)
    }

    /// Gives the memory of a handle addresses. It stays for as long as it is mapped anywhere.
    fn map(handle: &Handle<'_>, bytes: usize) -> Result<Self, CudaError> {
        let gpu = handle.gpu;
        let failed = |call| move |error| gpu.failed(call, error, format_args!("{bytes} bytes"));
        let mut address = 0;
        // SAFETY: a range of addresses that the driver chooses.
        unsafe { sys::cuMemAddressReserve(&mut address, bytes, 0, 0, 0) }
            .result()
            .map_err(failed("cuMemAddressReserve"))?;
        // SAFETY: the range was reserved with this size, and the handle lives.
        let mapped = unsafe { sys::cuMemMap(address, bytes, 0, handle.handle, 0) }.result();
        if let Err(error) = mapped {
            // SAFETY: nothing is mapped to it.
            let _ = unsafe { sys::cuMemAddressFree(address, bytes) };
            return Err(failed("cuMemMap")(error));
        }
        let mapping = Self {
            gpu: gpu.clone(),
            address,
            bytes,
        };
        let access = sys::CUmemAccessDesc {
            location: location(gpu),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the range is mapped.
        unsafe { sys::cuMemSetAccess(address, bytes, &raw const access, 1) }
            .result()
            .map_err(failed("cuMemSetAccess"))?;
        Ok(mapping)
    }

    pub fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    /// Waits for the device first: unmapping does not.
    fn drop(&mut self) {
        if self.gpu.bound().is_ok() {
            // SAFETY: the context is current; the range is this mapping's own.
            unsafe {
                let _ = sys::cuCtxSynchronize();
                let _ = sys::cuMemUnmap(self.address, self.bytes);
                let _ = sys::cuMemAddressFree(self.address, self.bytes);
            }
        }
    }
}

/// Host memory that was made page-locked, for as long as this lives: drop it before the memory.
pub struct PageLocked {
    gpu: Gpu,
    address: *mut u8,
}

// SAFETY: the address is handed to the driver only.
unsafe impl Send for PageLocked {}
// SAFETY: as above.
unsafe impl Sync for PageLocked {}

impl PageLocked {
    /// Locks memory of the host.
    ///
    /// # Errors
    /// What the driver says: the process may lock too little, most of all.
    ///
    /// # Safety
    /// So many bytes are mapped at `address`, and stay so until the value is dropped.
    pub unsafe fn new(gpu: &Gpu, address: *mut u8, bytes: usize) -> Result<Self, CudaError> {
        let missing = ["cuMemHostRegister_v2", "cuMemHostUnregister"].into_iter();
        if let Some(missing) = missing.into_iter().find(|function| !probe::has(function)) {
            return Err(super::Unavailable::MissingSymbol(missing).into());
        }
        gpu.bound()?;
        // SAFETY: the memory is there, by the caller's promise.
        unsafe { sys::cuMemHostRegister_v2(address.cast(), bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) }
            .result()
            .map_err(|error| gpu.failed("cuMemHostRegister", error, format_args!("{bytes} bytes")))?;
        Ok(Self {
            gpu: gpu.clone(),
            address,
        })
    }
}

impl Drop for PageLocked {
    fn drop(&mut self) {
        if self.gpu.bound().is_ok() {
            // SAFETY: it is this value's own. Whoever enqueued copies has waited for them.
            let _ = unsafe { sys::cuMemHostUnregister(self.address.cast()) };
        }
    }
}

/// Memory without an address.
struct Handle<'a> {
    gpu: &'a Gpu,
    handle: sys::CUmemGenericAllocationHandle,
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.gpu.bound().is_ok() {
            // SAFETY: it is released once. Memory that is mapped stays.
            let _ = unsafe { sys::cuMemRelease(self.handle) };
        }
    }
}

fn location(gpu: &Gpu) -> sys::CUmemLocation {
    let mut location = sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        // SAFETY: all fields are integers.
        ..unsafe { std::mem::zeroed() }
    };
    location.id = gpu.ordinal() as i32;
    location
}

fn properties(gpu: &Gpu) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: BY_DESCRIPTOR,
        location: location(gpu),
        win32HandleMetaData: std::ptr::null_mut(),
        // SAFETY: all fields are integers, and 0 is what they are by default.
        allocFlags: unsafe { std::mem::zeroed() },
    }
}

impl Gpu {
    /// The device's UUID: the same in every process, whatever its ordinal is there.
    ///
    /// # Errors
    /// What the driver says.
    pub fn uuid(&self) -> Result<[u8; 16], CudaError> {
        self.check_can_share()?;
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the device is there, and `uuid` is a place for its UUID.
        unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, self.cu_device()) }
            .result()
            .map_err(|error| self.failed("cuDeviceGetUuid", error, "the device"))?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    /// Checks that memory of this device can be shared with other processes, and makes its context current.
    fn check_can_share(&self) -> Result<(), CudaError> {
        if let Some(missing) = FUNCTIONS.into_iter().find(|function| !probe::has(function)) {
            return Err(super::Unavailable::MissingSymbol(missing).into());
        }
        self.bound()?;
        for attribute in [
            Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        ] {
            let device = self.ordinal();
            if self.attribute(attribute)? == 0 {
                return Err(CudaError::NotShareable { device });
            }
        }
        Ok(())
    }

    /// A size as large as memory that is shared has to be.
    fn rounded(&self, bytes: usize) -> Result<usize, CudaError> {
        let prop = properties(self);
        let option = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let mut granularity = 0;
        // SAFETY: the properties are whole.
        unsafe { sys::cuMemGetAllocationGranularity(&mut granularity, &raw const prop, option) }
            .result()
            .map_err(|error| self.failed("cuMemGetAllocationGranularity", error, "the device"))?;
        Ok(bytes.max(1).next_multiple_of(granularity.max(1)))
    }
}

impl super::DeviceBuf {
    /// A buffer that other processes can map, of `bytes` bytes, and the descriptor that they map it by. It can't grow.
    ///
    /// # Errors
    /// No memory, or a device that can't share any; what the driver says.
    pub fn shareable(gpu: &Gpu, budget: &Budget, bytes: usize) -> Result<(Self, OwnedFd), CudaError> {
        let (mapping, descriptor) = Mapping::create(gpu, bytes)?;
        Ok((Self::of_mapping(gpu, budget, mapping)?, descriptor))
    }

    /// The buffer of another process, of `bytes` bytes, whose descriptor this is.
    ///
    /// # Errors
    /// What the driver says.
    pub fn of_process(gpu: &Gpu, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<Self, CudaError> {
        Self::of_mapping(gpu, &Budget::new(None), Mapping::import(gpu, descriptor, bytes)?)
    }
}
