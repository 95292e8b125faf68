//! AMD's driver, by a table of HIP's functions that is found at run time. Neither building nor running needs ROCm.
//!
//! This driver has not run on a device yet: docs/gpu.md says what was verified where.

mod library;

pub(super) use library::driver;

use super::{
    Address, Context, Driver, Event, Executable, Fault, Function, Graph, Image, Kind, Loaded, Module, Optional, Stream,
};
use library::Functions;
use ruzstd::decoding::StreamingDecoder;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The driver of HIP, which has at least one device.
pub(super) struct Hip {
    functions: Functions,
    version: i32,
    devices: usize,
    /// The image of each loaded module, kept until the module is unloaded: HIP does not promise to copy the image.
    images: Mutex<HashMap<Module, Vec<u8>>>,
}

// Numbers of HIP's header.
const MULTIPROCESSOR_COUNT: c_int = 63;
const NON_BLOCKING_STREAM: u32 = 1;
const EVENT_WITHOUT_TIMING: u32 = 2;
const PORTABLE_MEMORY: u32 = 1;
const CAPTURE_OF_THREAD: c_int = 1;
const RELAXED_CAPTURE: c_int = 2;
const POINTER_MEMORY_TYPE: c_int = 2;
const HOST_MEMORY: u32 = 1;
const INVALID_IMAGE: u32 = 200;
const NO_IMAGE_FOR_DEVICE: u32 = 209;
const NOT_READY: c_int = 600;
const NOT_SUPPORTED: u32 = 801;

/// Calls a function of the table, and checks the code that it returns.
macro_rules! call {
    ($self:ident.$name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: the function is there. Its arguments are the caller's promise, or are explained beside the call.
        $self.functions.check(stringify!($name), unsafe { ($self.functions.$name)($($arg),*) })
    };
}

/// Converts a handle to the driver's pointer.
fn pointer(handle: u64) -> *mut c_void {
    handle as *mut c_void
}

/// Makes a call that writes a handle, and returns the handle.
fn written_handle(call: impl FnOnce(*mut *mut c_void) -> Result<(), Fault>) -> Result<u64, Fault> {
    let mut handle = ptr::null_mut();
    call(&raw mut handle)?;
    Ok(handle as u64)
}

/// Makes a fault that is not a lack of memory.
fn fault(call: &'static str, name: impl Into<String>, code: u32) -> Fault {
    Fault {
        call,
        name: name.into(),
        code,
        is_memory: false,
    }
}

/// Refuses memory that processes share, which this driver does not offer.
fn not_shared<T>(call: &'static str) -> Result<T, Fault> {
    Err(fault(call, "hipErrorNotSupported", NOT_SUPPORTED))
}

impl Hip {
    /// Decompresses and loads a code object, and keeps it until its module is unloaded.
    fn load_image(&self, compressed: &[u8]) -> Result<Module, Fault> {
        let mut image = Vec::new();
        let decoder = StreamingDecoder::new(compressed).map_err(std::io::Error::other);
        let read = decoder.and_then(|mut decoder| decoder.read_to_end(&mut image));
        read.map_err(|error| fault("hipModuleLoadData", error.to_string(), INVALID_IMAGE))?;
        let module = written_handle(|module| call!(self.hipModuleLoadData(module, image.as_ptr().cast())))?;
        self.images().insert(Module(module), image);
        Ok(Module(module))
    }

    fn images(&self) -> MutexGuard<'_, HashMap<Module, Vec<u8>>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hip {
    /// Makes a call that frees memory while a thread of the process may be capturing a stream. By default the driver would refuse
    /// the call, and the capture would fail, although the two have nothing to do with each other.
    fn outside_captures<T>(&self, call: impl FnOnce() -> T) -> T {
        let mut mode = RELAXED_CAPTURE;
        let _ = call!(self.hipThreadExchangeStreamCaptureMode(&mut mode));
        let result = call();
        let _ = call!(self.hipThreadExchangeStreamCaptureMode(&mut mode));
        result
    }
}

// SAFETY: each function calls the driver's function that its error names, and returns the result of that. The arguments are the
// caller's promise, on which every `call!` below relies.
unsafe impl Driver for Hip {
    fn kind(&self) -> Kind {
        Kind::Hip
    }

    fn version(&self) -> i32 {
        self.version
    }

    fn device_count(&self) -> usize {
        self.devices
    }

    fn missing(&self, _: Optional) -> Option<&'static str> {
        None
    }

    fn name(&self, ordinal: usize) -> Result<String, Fault> {
        let mut name: [c_char; 256] = [0; 256];
        call!(self.hipDeviceGetName(name.as_mut_ptr(), 255, ordinal as c_int))?;
        // SAFETY: the last byte is 0, whatever was written.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(name.to_string_lossy().into_owned())
    }

    fn multiprocessors(&self, ordinal: usize) -> Result<u32, Fault> {
        let mut count = 0;
        call!(self.hipDeviceGetAttribute(&mut count, MULTIPROCESSOR_COUNT, ordinal as c_int))?;
        Ok(count.max(0) as u32)
    }

    fn uuid(&self, ordinal: usize) -> Result<[u8; 16], Fault> {
        let mut uuid = [0; 16];
        call!(self.hipDeviceGetUuid(&mut uuid, ordinal as c_int))?;
        Ok(uuid)
    }

    /// Returns false: mapping memory of other processes is broken in ROCm 7.1.
    fn can_share(&self, _: usize) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Returns the device's ordinal as the handle: HIP has no contexts, but each thread has a current device.
    fn open(&self, ordinal: usize) -> Result<Context, Fault> {
        call!(self.hipSetDevice(ordinal as c_int))?;
        Ok(Context(ordinal as u64))
    }

    unsafe fn close(&self, _: usize) {}

    unsafe fn make_current(&self, context: Context) -> Result<(), Fault> {
        call!(self.hipSetDevice(context.0 as c_int))
    }

    unsafe fn synchronize_all(&self) -> Result<(), Fault> {
        call!(self.hipDeviceSynchronize())
    }

    /// Tries the images of all families of GPUs in turn: the driver refuses an image of another family than the device's.
    unsafe fn load(&self, image: &Image) -> Result<Module, Fault> {
        let mut refused = None;
        for compressed in image.hip {
            match self.load_image(compressed) {
                Err(fault) if fault.code == NO_IMAGE_FOR_DEVICE => refused = Some(fault),
                loaded => return loaded,
            }
        }
        Err(refused.unwrap_or_else(|| fault("hipModuleLoadData", "there is no image", NO_IMAGE_FOR_DEVICE)))
    }

    unsafe fn unload(&self, module: Module) {
        let _ = call!(self.hipModuleUnload(pointer(module.0)));
        self.images().remove(&module);
    }

    unsafe fn function(&self, module: Module, name: &str) -> Result<Loaded, Fault> {
        let symbol = CString::new(name).unwrap_or_default();
        let function = written_handle(|at| call!(self.hipModuleGetFunction(at, pointer(module.0), symbol.as_ptr())))?;
        Ok(Loaded {
            function: Function(function),
            parameter_bytes: None,
            can_start_early: false,
        })
    }

    unsafe fn launch(
        &self,
        function: Function,
        [x, y, z]: [u32; 3],
        block: u32,
        parameters: *const c_void,
        _: bool,
        stream: Stream,
    ) -> Result<(), Fault> {
        let mut arguments = [parameters.cast_mut()];
        let (function, stream, no_extra) = (pointer(function.0), pointer(stream.0), ptr::null_mut());
        // The function takes one struct by value, which the driver copies before it returns.
        let arguments = arguments.as_mut_ptr();
        call!(self.hipModuleLaunchKernel(function, x, y, z, block, 1, 1, 0, stream, arguments, no_extra))
    }

    unsafe fn create_stream(&self) -> Result<Stream, Fault> {
        written_handle(|stream| call!(self.hipStreamCreateWithFlags(stream, NON_BLOCKING_STREAM))).map(Stream)
    }

    unsafe fn destroy_stream(&self, stream: Stream) {
        let _ = call!(self.hipStreamDestroy(pointer(stream.0)));
    }

    unsafe fn synchronize(&self, stream: Stream) -> Result<(), Fault> {
        call!(self.hipStreamSynchronize(pointer(stream.0)))
    }

    unsafe fn wait_event(&self, stream: Stream, event: Event) -> Result<(), Fault> {
        call!(self.hipStreamWaitEvent(pointer(stream.0), pointer(event.0), 0))
    }

    fn default_stream(&self, of_thread: bool) -> Stream {
        Stream(if of_thread { 2 } else { 0 })
    }

    unsafe fn create_event(&self, timed: bool) -> Result<Event, Fault> {
        let flags = if timed { 0 } else { EVENT_WITHOUT_TIMING };
        written_handle(|event| call!(self.hipEventCreateWithFlags(event, flags))).map(Event)
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<(), Fault> {
        call!(self.hipEventDestroy(pointer(event.0)))
    }

    unsafe fn record(&self, event: Event, stream: Stream) -> Result<(), Fault> {
        call!(self.hipEventRecord(pointer(event.0), pointer(stream.0)))
    }

    unsafe fn synchronize_event(&self, event: Event) -> Result<(), Fault> {
        call!(self.hipEventSynchronize(pointer(event.0)))
    }

    unsafe fn is_reached(&self, event: Event) -> Result<bool, Fault> {
        // SAFETY: as above.
        match unsafe { (self.functions.hipEventQuery)(pointer(event.0)) } {
            NOT_READY => Ok(false),
            code => self.functions.check("hipEventQuery", code).map(|()| true),
        }
    }

    unsafe fn elapsed_ms(&self, since: Event, until: Event) -> Result<f32, Fault> {
        let mut ms = 0.0;
        call!(self.hipEventElapsedTime(&mut ms, pointer(since.0), pointer(until.0)))?;
        Ok(ms)
    }

    unsafe fn begin_capture(&self, stream: Stream) -> Result<(), Fault> {
        call!(self.hipStreamBeginCapture(pointer(stream.0), CAPTURE_OF_THREAD))
    }

    unsafe fn end_capture(&self, stream: Stream) -> Result<Graph, Fault> {
        written_handle(|graph| call!(self.hipStreamEndCapture(pointer(stream.0), graph))).map(Graph)
    }

    unsafe fn instantiate(&self, graph: Graph) -> Result<Executable, Fault> {
        written_handle(|executable| call!(self.hipGraphInstantiateWithFlags(executable, pointer(graph.0), 0)))
            .map(Executable)
    }

    unsafe fn launch_graph(&self, executable: Executable, stream: Stream) -> Result<(), Fault> {
        call!(self.hipGraphLaunch(pointer(executable.0), pointer(stream.0)))
    }

    unsafe fn destroy_graph(&self, graph: Graph) {
        let _ = call!(self.hipGraphDestroy(pointer(graph.0)));
    }

    unsafe fn destroy_executable(&self, executable: Executable) {
        let _ = call!(self.hipGraphExecDestroy(pointer(executable.0)));
    }

    unsafe fn allocate(&self, bytes: usize) -> Result<Address, Fault> {
        written_handle(|memory| call!(self.hipMalloc(memory, bytes))).map(Address)
    }

    unsafe fn free(&self, address: Address) {
        let _ = self.outside_captures(|| call!(self.hipFree(pointer(address.0))));
    }

    unsafe fn allocate_host(&self, bytes: usize) -> Result<*mut u8, Fault> {
        let memory = written_handle(|memory| call!(self.hipHostMalloc(memory, bytes, PORTABLE_MEMORY)))?;
        Ok(pointer(memory).cast())
    }

    unsafe fn free_host(&self, memory: *mut u8) {
        let _ = self.outside_captures(|| call!(self.hipHostFree(memory.cast())));
    }

    unsafe fn lock_host(&self, memory: *mut u8, bytes: usize) -> Result<(), Fault> {
        call!(self.hipHostRegister(memory.cast(), bytes, PORTABLE_MEMORY))
    }

    unsafe fn unlock_host(&self, memory: *mut u8) {
        let _ = self.outside_captures(|| call!(self.hipHostUnregister(memory.cast())));
    }

    fn is_page_locked(&self, address: *const u8) -> bool {
        let mut kind = 0u32;
        let mut attribute = POINTER_MEMORY_TYPE;
        let mut to = (&raw mut kind).cast::<c_void>();
        // One attribute is asked for, and `kind` is a place for its value; the address is not read.
        let address = address.cast_mut().cast();
        let asked = call!(self.hipDrvPointerGetAttributes(1, &mut attribute, &mut to, address));
        asked.is_ok() && kind == HOST_MEMORY
    }

    unsafe fn upload(&self, to: Address, from: *const u8, bytes: usize, stream: Stream) -> Result<(), Fault> {
        call!(self.hipMemcpyHtoDAsync(pointer(to.0), from.cast(), bytes, pointer(stream.0)))
    }

    unsafe fn download(&self, to: *mut u8, from: Address, bytes: usize, stream: Stream) -> Result<(), Fault> {
        call!(self.hipMemcpyDtoHAsync(to.cast(), pointer(from.0), bytes, pointer(stream.0)))
    }

    unsafe fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<(), Fault> {
        call!(self.hipMemcpyDtoDAsync(pointer(to.0), pointer(from.0), bytes, pointer(stream.0)))
    }

    unsafe fn copy_peer(
        &self,
        (to_context, to): (Context, Address),
        (from_context, from): (Context, Address),
        bytes: usize,
        stream: Stream,
    ) -> Result<(), Fault> {
        let (to_device, from_device) = (to_context.0 as c_int, from_context.0 as c_int);
        let (to, from, stream) = (pointer(to.0), pointer(from.0), pointer(stream.0));
        call!(self.hipMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream))
    }

    unsafe fn clear(&self, to: Address, bytes: usize, stream: Stream) -> Result<(), Fault> {
        call!(self.hipMemsetD8Async(pointer(to.0), 0, bytes, pointer(stream.0)))
    }

    unsafe fn shareable_bytes(&self, _: usize, _: usize) -> Result<usize, Fault> {
        not_shared("hipMemGetAllocationGranularity")
    }

    unsafe fn create_shareable(&self, _: usize, _: usize) -> Result<(Address, OwnedFd), Fault> {
        not_shared("hipMemCreate")
    }

    unsafe fn map_shareable(&self, _: usize, _: BorrowedFd<'_>, _: usize) -> Result<Address, Fault> {
        not_shared("hipMemImportFromShareableHandle")
    }

    unsafe fn unmap_shareable(&self, _: Address, _: usize) {}
}
