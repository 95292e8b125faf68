use super::error::Unavailable;
use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, DriverError, result};
use std::sync::OnceLock;

/// The CUDA version that the kernels are built with, which is the least the driver must support.
const NEEDED: i32 = 13_000;

/// What is called of the driver. A function that lacks must be known before it is called: the binding panics then.
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
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncGetParamInfo",
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
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// How many CUDA devices there are, at least one. Asked of the driver once in the life of the process; never panics.
///
/// # Errors
/// Why none can be used.
pub fn device_count() -> Result<usize, Unavailable> {
    static COUNT: OnceLock<Result<usize, Unavailable>> = OnceLock::new();
    COUNT.get_or_init(probe).clone()
}

fn probe() -> Result<usize, Unavailable> {
    // SAFETY: loading the driver's library runs its initializers, which is what it is installed for.
    if !unsafe { sys::is_culib_present() } {
        return Err(Unavailable::NoLibrary);
    }
    // An old driver lacks functions, too, but its version says more.
    FUNCTIONS[..2].iter().try_for_each(|function| find(function))?;
    let mut came = 0;
    // SAFETY: the function is there, and `came` is a place for the version.
    unsafe { sys::cuDriverGetVersion(&mut came) }.result().map_err(failed)?;
    if came < NEEDED {
        return Err(Unavailable::DriverTooOld { came, needed: NEEDED });
    }
    FUNCTIONS[2..].iter().try_for_each(|function| find(function))?;
    result::init().map_err(failed)?;
    match CudaContext::device_count().map_err(failed)? {
        0 => Err(Unavailable::NoDevice),
        count => Ok(count as usize),
    }
}

fn find(function: &'static str) -> Result<(), Unavailable> {
    // SAFETY: the library is present, and the symbol is looked up but not called.
    match unsafe { sys::culib().get::<*const ()>(function.as_bytes()) } {
        Ok(_) => Ok(()),
        Err(_) => Err(Unavailable::MissingSymbol(function)),
    }
}

fn failed(error: DriverError) -> Unavailable {
    match error.0 {
        CUresult::CUDA_ERROR_NO_DEVICE => Unavailable::NoDevice,
        code => Unavailable::Init {
            name: format!("{code:?}"),
            code: code as u32,
        },
    }
}
