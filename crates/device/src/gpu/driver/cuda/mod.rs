//! NVIDIA's driver, called through cudarc.
//!
//! The library is loaded at run time, so that programs build and run on machines without it. A call that was refused for lack of
//! memory has done nothing; any other failure may have left work half done.

mod library;
mod sharing;

pub(super) use library::driver;

use super::{
    Address, Context, Driver, Event, Executable, Fault, Function, Graph, Image, Kind, Loaded, Module, Optional, Stream,
};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};
use cudarc::driver::{DriverError, result};
use std::ffi::{CString, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};

/// The driver of CUDA, which has at least one device.
pub(super) struct Cuda {
    version: i32,
    devices: usize,
}

/// PTX target, 90 for `compute_90`. Kernels of this target and later ones call `wait_for_previous` of kernels/types.cuh, and so may
/// start early. The image for CUDA 12 is of an older target.
const WAITING_PTX: i32 = 90;

/// Version number of CUDA 13. Drivers of this version and later ones can load the kernel images for CUDA 13.
const CUDA_13: i32 = 13_000;

/// Driver functions that wait for work, or ask if it is done.
const WAITS: [&str; 3] = ["cuStreamSynchronize", "cuEventSynchronize", "cuEventQuery"];

/// Returns a function that makes a [`Fault`] of `call` from the driver's error.
fn failed(call: &'static str) -> impl Fn(DriverError) -> Fault {
    move |DriverError(error)| Fault {
        call,
        name: format!("{error:?}"),
        code: error as u32,
        // A launch or a copy that was refused has done nothing. A wait reports errors of work that was under way, and nobody knows
        // how much of it was done.
        is_memory: error == CUresult::CUDA_ERROR_OUT_OF_MEMORY && !WAITS.contains(&call),
    }
}

/// Declares the conversions between each handle and the driver's pointer.
macro_rules! pointers {
    ($($handle:ident $pointer:ident),*) => {$(
        impl From<sys::$pointer> for $handle {
            fn from(pointer: sys::$pointer) -> Self {
                Self(pointer as u64)
            }
        }

        impl From<$handle> for sys::$pointer {
            fn from(handle: $handle) -> Self {
                handle.0 as Self
            }
        }
    )*};
}

pointers!(
    Context CUcontext, Event CUevent, Executable CUgraphExec, Function CUfunction, Graph CUgraph, Module CUmodule,
    Stream CUstream
);

fn attribute(ordinal: usize, attribute: Attribute) -> Result<i32, Fault> {
    let device = result::device::get(ordinal as i32).map_err(failed("cuDeviceGet"))?;
    // SAFETY: the device is there.
    unsafe { result::device::get_attribute(device, attribute) }.map_err(failed("cuDeviceGetAttribute"))
}

/// Makes a call that frees memory while a thread of the process may be capturing a stream. By default the driver would refuse the
/// call, and the capture would fail, although the two have nothing to do with each other.
fn outside_captures<T>(call: impl FnOnce() -> T) -> T {
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the call exchanges the mode of this thread, which can't fail for a valid mode.
    let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    let result = call();
    // SAFETY: the same.
    let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    result
}

// SAFETY: each function calls the driver's function that its error names, and returns the result of that. The arguments are the
// caller's promise, on which every `unsafe` below relies.
unsafe impl Driver for Cuda {
    fn kind(&self) -> Kind {
        Kind::Cuda
    }

    fn version(&self) -> i32 {
        self.version
    }

    fn device_count(&self) -> usize {
        self.devices
    }

    fn missing(&self, optional: Optional) -> Option<&'static str> {
        let functions: &[&str] = match optional {
            Optional::Sharing => &sharing::FUNCTIONS,
            Optional::HostLocking => &["cuMemHostRegister_v2", "cuMemHostUnregister"],
        };
        functions.iter().copied().find(|function| !library::has(function))
    }

    fn name(&self, ordinal: usize) -> Result<String, Fault> {
        let device = result::device::get(ordinal as i32).map_err(failed("cuDeviceGet"))?;
        result::device::get_name(device).map_err(failed("cuDeviceGetName"))
    }

    fn multiprocessors(&self, ordinal: usize) -> Result<u32, Fault> {
        let count = attribute(ordinal, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok(count.max(0) as u32)
    }

    fn uuid(&self, ordinal: usize) -> Result<[u8; 16], Fault> {
        sharing::uuid(ordinal)
    }

    fn can_share(&self, ordinal: usize) -> Result<bool, Fault> {
        sharing::can_share(ordinal)
    }

    fn open(&self, ordinal: usize) -> Result<Context, Fault> {
        let device = result::device::get(ordinal as i32).map_err(failed("cuDeviceGet"))?;
        // SAFETY: the device is there.
        let context = unsafe { result::primary_ctx::retain(device) };
        Ok(context.map_err(failed("cuDevicePrimaryCtxRetain"))?.into())
    }

    unsafe fn close(&self, ordinal: usize) {
        if let Ok(device) = result::device::get(ordinal as i32) {
            // SAFETY: as above. There is nobody to tell of a failure, here and wherever something is given up.
            let _ = unsafe { result::primary_ctx::release(device) };
        }
    }

    unsafe fn make_current(&self, context: Context) -> Result<(), Fault> {
        let current = result::ctx::get_current().map_err(failed("cuCtxGetCurrent"))?;
        if current.map(Context::from) == Some(context) {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { result::ctx::set_current(context.into()) }.map_err(failed("cuCtxSetCurrent"))
    }

    unsafe fn synchronize_all(&self) -> Result<(), Fault> {
        result::ctx::synchronize().map_err(failed("cuCtxSynchronize"))
    }

    unsafe fn load(&self, image: &Image) -> Result<Module, Fault> {
        let fatbin = if self.version < CUDA_13 {
            image.cuda12
        } else {
            image.cuda13
        };
        // SAFETY: the image is a whole fat binary, checked in as the compiler wrote it.
        let module = unsafe { result::module::load_data(fatbin.as_ptr().cast()) };
        Ok(module.map_err(failed("cuModuleLoadData"))?.into())
    }

    unsafe fn unload(&self, module: Module) {
        // SAFETY: as above.
        let _ = unsafe { result::module::unload(module.into()) };
    }

    unsafe fn function(&self, module: Module, name: &str) -> Result<Loaded, Fault> {
        let symbol = CString::new(name).unwrap_or_default();
        // SAFETY: as above.
        let function = unsafe { result::module::get_function(module.into(), symbol) };
        let function = function.map_err(failed("cuModuleGetFunction"))?;
        let mut parameter_bytes = None;
        // The function came with CUDA 12.4.
        if library::has("cuFuncGetParamInfo") {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is there, and both are written by it.
            unsafe { sys::cuFuncGetParamInfo(function, 0, &mut offset, &mut size) }
                .result()
                .map_err(failed("cuFuncGetParamInfo"))?;
            parameter_bytes = Some(size);
        }
        let version = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION;
        // SAFETY: the function is there.
        let version = unsafe { result::function::get_function_attribute(function, version) };
        Ok(Loaded {
            function: function.into(),
            parameter_bytes,
            can_start_early: version.map_err(failed("cuFuncGetAttribute"))? >= WAITING_PTX,
        })
    }

    /// Launches the kernel. To let it start early, uses a programmatic dependent launch, which devices of compute capability 9.0
    /// and later can do.
    unsafe fn launch(
        &self,
        function: Function,
        grid: [u32; 3],
        block: u32,
        parameters: *const c_void,
        starts_early: bool,
        stream: Stream,
    ) -> Result<(), Fault> {
        let mut arguments = [parameters.cast_mut()];
        let mut early = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue {
                programmaticStreamSerializationAllowed: 1,
            },
        };
        let [x, y, z] = grid;
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream.into(),
            attrs: &raw mut early,
            numAttrs: u32::from(starts_early),
        };
        // SAFETY: the function takes one struct by value, which the driver copies before it returns, as it does the
        // configuration.
        let launched = unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                function.into(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        launched.result().map_err(failed("cuLaunchKernelEx"))
    }

    unsafe fn create_stream(&self) -> Result<Stream, Fault> {
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        Ok(stream.map_err(failed("cuStreamCreate"))?.into())
    }

    unsafe fn destroy_stream(&self, stream: Stream) {
        // SAFETY: as above.
        let _ = unsafe { result::stream::destroy(stream.into()) };
    }

    unsafe fn synchronize(&self, stream: Stream) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { result::stream::synchronize(stream.into()) }.map_err(failed("cuStreamSynchronize"))
    }

    unsafe fn wait_event(&self, stream: Stream, event: Event) -> Result<(), Fault> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: as above.
        unsafe { result::stream::wait_event(stream.into(), event.into(), flags) }.map_err(failed("cuStreamWaitEvent"))
    }

    fn default_stream(&self, of_thread: bool) -> Stream {
        Stream(if of_thread { 2 } else { 1 })
    }

    unsafe fn create_event(&self, timed: bool) -> Result<Event, Fault> {
        let flags = if timed {
            sys::CUevent_flags::CU_EVENT_DEFAULT
        } else {
            sys::CUevent_flags::CU_EVENT_DISABLE_TIMING
        };
        Ok(result::event::create(flags).map_err(failed("cuEventCreate"))?.into())
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { result::event::destroy(event.into()) }.map_err(failed("cuEventDestroy"))
    }

    unsafe fn record(&self, event: Event, stream: Stream) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { result::event::record(event.into(), stream.into()) }.map_err(failed("cuEventRecord"))
    }

    unsafe fn synchronize_event(&self, event: Event) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { result::event::synchronize(event.into()) }.map_err(failed("cuEventSynchronize"))
    }

    unsafe fn is_reached(&self, event: Event) -> Result<bool, Fault> {
        // SAFETY: as above.
        match unsafe { result::event::query(event.into()) } {
            Ok(()) => Ok(true),
            Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(failed("cuEventQuery")(error)),
        }
    }

    unsafe fn elapsed_ms(&self, since: Event, until: Event) -> Result<f32, Fault> {
        let mut ms = 0.0;
        // SAFETY: as above.
        unsafe { library::event_elapsed_ms(&mut ms, since.into(), until.into()) }
            .map_err(failed("cuEventElapsedTime"))?;
        Ok(ms)
    }

    unsafe fn begin_capture(&self, stream: Stream) -> Result<(), Fault> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: as above.
        unsafe { result::stream::begin_capture(stream.into(), mode) }.map_err(failed("cuStreamBeginCapture"))
    }

    unsafe fn end_capture(&self, stream: Stream) -> Result<Graph, Fault> {
        // SAFETY: as above.
        let graph = unsafe { result::stream::end_capture(stream.into()) };
        Ok(graph.map_err(failed("cuStreamEndCapture"))?.into())
    }

    unsafe fn instantiate(&self, graph: Graph) -> Result<Executable, Fault> {
        // SAFETY: as above.
        let executable = unsafe { result::graph::instantiate(graph.into(), sys::CUgraphInstantiate_flags(0)) };
        Ok(executable.map_err(failed("cuGraphInstantiate"))?.into())
    }

    unsafe fn launch_graph(&self, executable: Executable, stream: Stream) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { result::graph::launch(executable.into(), stream.into()) }.map_err(failed("cuGraphLaunch"))
    }

    unsafe fn destroy_graph(&self, graph: Graph) {
        // SAFETY: as above.
        let _ = unsafe { result::graph::destroy(graph.into()) };
    }

    unsafe fn destroy_executable(&self, executable: Executable) {
        // SAFETY: as above.
        let _ = unsafe { result::graph::exec_destroy(executable.into()) };
    }

    unsafe fn allocate(&self, bytes: usize) -> Result<Address, Fault> {
        // SAFETY: as above.
        unsafe { result::malloc_sync(bytes) }
            .map(Address)
            .map_err(failed("cuMemAlloc"))
    }

    unsafe fn free(&self, address: Address) {
        // SAFETY: as above; freeing waits for the work that uses it.
        let _ = outside_captures(|| unsafe { result::free_sync(address.0) });
    }

    unsafe fn allocate_host(&self, bytes: usize) -> Result<*mut u8, Fault> {
        // Every context may use it, whichever it was allocated in.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: as above.
        let memory = unsafe { result::malloc_host(bytes, flags) };
        Ok(memory.map_err(failed("cuMemHostAlloc"))?.cast())
    }

    unsafe fn free_host(&self, memory: *mut u8) {
        // SAFETY: as above.
        let _ = outside_captures(|| unsafe { result::free_host(memory.cast()) });
    }

    unsafe fn lock_host(&self, memory: *mut u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { sys::cuMemHostRegister_v2(memory.cast(), bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) }
            .result()
            .map_err(failed("cuMemHostRegister"))
    }

    unsafe fn unlock_host(&self, memory: *mut u8) {
        // SAFETY: as above.
        let _ = outside_captures(|| unsafe { sys::cuMemHostUnregister(memory.cast()) });
    }

    fn is_page_locked(&self, address: *const u8) -> bool {
        let mut kind = 0u32;
        let mut attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        let mut to = (&raw mut kind).cast::<c_void>();
        // The call for a single attribute would give an error for other memory, which tools that watch for errors report.
        // SAFETY: one attribute is asked for, and `kind` is a place for its value; the address is not read.
        let asked = unsafe { sys::cuPointerGetAttributes(1, &mut attribute, &mut to, address as sys::CUdeviceptr) };
        asked == CUresult::CUDA_SUCCESS && kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32
    }

    unsafe fn upload(&self, to: Address, from: *const u8, bytes: usize, stream: Stream) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to.0, from.cast(), bytes, stream.into()) }
            .result()
            .map_err(failed("cuMemcpyHtoDAsync"))
    }

    unsafe fn download(&self, to: *mut u8, from: Address, bytes: usize, stream: Stream) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from.0, bytes, stream.into()) }
            .result()
            .map_err(failed("cuMemcpyDtoHAsync"))
    }

    unsafe fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { result::memcpy_dtod_async(to.0, from.0, bytes, stream.into()) }.map_err(failed("cuMemcpyDtoDAsync"))
    }

    unsafe fn copy_peer(
        &self,
        (to_context, to): (Context, Address),
        (from_context, from): (Context, Address),
        bytes: usize,
        stream: Stream,
    ) -> Result<(), Fault> {
        let (to_context, from_context, stream) = (to_context.into(), from_context.into(), stream.into());
        // SAFETY: as above.
        unsafe { result::memcpy_peer_async(to_context, to.0, from_context, from.0, bytes, stream) }
            .map_err(failed("cuMemcpyPeerAsync"))
    }

    unsafe fn clear(&self, to: Address, bytes: usize, stream: Stream) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { result::memset_d8_async(to.0, 0, bytes, stream.into()) }.map_err(failed("cuMemsetD8Async"))
    }

    unsafe fn shareable_bytes(&self, ordinal: usize, bytes: usize) -> Result<usize, Fault> {
        sharing::rounded(ordinal, bytes)
    }

    unsafe fn create_shareable(&self, ordinal: usize, bytes: usize) -> Result<(Address, OwnedFd), Fault> {
        sharing::create(ordinal, bytes)
    }

    unsafe fn map_shareable(&self, ordinal: usize, memory: BorrowedFd<'_>, bytes: usize) -> Result<Address, Fault> {
        sharing::import(ordinal, memory, bytes)
    }

    unsafe fn unmap_shareable(&self, address: Address, bytes: usize) {
        // SAFETY: as above.
        unsafe { sharing::unmap(address, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_refused_for_memory_leaves_the_device_as_it_was_but_not_a_wait_that_fails() {
        let is_memory = |call, error| failed(call)(DriverError(error)).is_memory;
        let memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        for call in ["cuLaunchKernelEx", "cuMemcpyDtoHAsync", "cuModuleLoadData"] {
            assert!(is_memory(call, memory), "{call}");
            assert!(!is_memory(call, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS), "{call}");
        }
        for call in WAITS {
            assert!(!is_memory(call, memory), "{call}");
        }
    }
}
