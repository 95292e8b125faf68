//! Finds the library of CUDA's driver, and the functions that it has. No function is called before it was looked up, since the
//! binding panics if a function is missing.

use super::super::{Kind, Unavailable};
use super::Cuda;
use cudarc::driver::sys::{self, CUevent, CUresult};
use cudarc::driver::{DriverError, result};
use std::sync::OnceLock;

/// CUDA version that a driver must support, 12.0: the oldest for which the kernels are built, as `kernels/*.cuda12.fatbin`.
const NEEDED: i32 = 12_000;

/// The functions that every driver must have. All are looked up before any is called, since the binding panics if a missing
/// function is called.
const FUNCTIONS: [&str; 47] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuLaunchKernelEx",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyPeerAsync",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuPointerGetAttributes",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
];

/// Returns CUDA's driver, which is loaded at the first call in a process and stays loaded.
pub(crate) fn driver() -> Result<&'static Cuda, Unavailable> {
    static DRIVER: OnceLock<Result<Cuda, Unavailable>> = OnceLock::new();
    DRIVER.get_or_init(probe).as_ref().map_err(Clone::clone)
}

fn probe() -> Result<Cuda, Unavailable> {
    // SAFETY: loading the driver's library runs its initializers, which is what it is installed for.
    if !unsafe { sys::is_culib_present() } {
        return Err(Unavailable::NoLibrary(Kind::Cuda));
    }
    // The version comes first: it says more about an old driver than the name of a missing function.
    FUNCTIONS[..2].iter().try_for_each(|function| find(function))?;
    let mut came = 0;
    // SAFETY: the function is there, and writes the version to `came`.
    unsafe { sys::cuDriverGetVersion(&mut came) }.result().map_err(failed)?;
    if came < NEEDED {
        return Err(Unavailable::DriverTooOld {
            kind: Kind::Cuda,
            came,
            needed: NEEDED,
        });
    }
    FUNCTIONS[2..].iter().try_for_each(|function| find(function))?;
    result::init().map_err(failed)?;
    match result::device::get_count().map_err(failed)? {
        0 => Err(Unavailable::NoDevice(Kind::Cuda)),
        count => Ok(Cuda {
            version: came,
            devices: count as usize,
        }),
    }
}

/// True if the driver has `function`. The driver's library must have been found before this call.
pub(super) fn has(function: &'static str) -> bool {
    find(function).is_ok()
}

/// Writes the time from the event `since` to the event `until` to `ms`. Calls `cuEventElapsedTime_v2` of CUDA 12.8 and later if the
/// driver has it. Otherwise calls `cuEventElapsedTime`, which older drivers have, but the binding lacks.
///
/// # Safety
/// Both events live, and their context is that of the calling thread.
pub(super) unsafe fn event_elapsed_ms(ms: &mut f32, since: CUevent, until: CUevent) -> Result<(), DriverError> {
    type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
    if has("cuEventElapsedTime_v2") {
        // SAFETY: the function is there; the events are the caller's promise.
        return unsafe { sys::cuEventElapsedTime_v2(ms, since, until) }.result();
    }
    // SAFETY: the library is present, and this is the function's type.
    let elapsed = unsafe { sys::culib().get::<Elapsed>(b"cuEventElapsedTime") };
    let elapsed = elapsed.map_err(|_| DriverError(CUresult::CUDA_ERROR_NOT_FOUND))?;
    // SAFETY: as above.
    unsafe { elapsed(ms, since, until) }.result()
}

fn find(function: &'static str) -> Result<(), Unavailable> {
    // SAFETY: the library is present, and the symbol is looked up but not called.
    match unsafe { sys::culib().get::<*const ()>(function.as_bytes()) } {
        Ok(_) => Ok(()),
        Err(_) => Err(Unavailable::MissingSymbol(Kind::Cuda, function)),
    }
}

fn failed(error: DriverError) -> Unavailable {
    match error.0 {
        CUresult::CUDA_ERROR_NO_DEVICE => Unavailable::NoDevice(Kind::Cuda),
        code => Unavailable::Init {
            kind: Kind::Cuda,
            name: format!("{code:?}"),
            code: code as u32,
        },
    }
}
