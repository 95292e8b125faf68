use super::error::{CudaError, Unavailable};
use super::probe::{self, device_count};
use super::transfer::Transfer;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};
use robocache_kernels::Kernel;
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// The parameters of a kernel, laid out as its struct in the kernel's source.
///
/// # Safety
/// The type is `#[repr(C)]` and has the fields of the struct of the kernel that it is handed to.
pub unsafe trait Params: Copy {}

/// What all users of a device in this process share.
struct Context {
    cuda: Arc<CudaContext>,
    /// The CUDA version of the driver.
    driver: i32,
    name: String,
    multiprocessors: u32,
    modules: Mutex<Modules>,
}

#[derive(Default)]
struct Modules {
    loaded: HashMap<&'static str, sys::CUmodule>,
    functions: HashMap<&'static str, Function>,
}

#[derive(Clone, Copy)]
struct Function {
    handle: sys::CUfunction,
    /// Size of its parameters, where the driver can say.
    bytes: Option<usize>,
    /// Whether the kernel itself waits for the one before it, and so may be started early (programmatic dependent launch).
    waits: bool,
}

/// From this virtual architecture on, kernels are compiled to wait for the one before: `wait_for_previous` of
/// kernels/types.cuh. The image for CUDA 12 is of an older one.
const WAITING_PTX: i32 = 90;

// SAFETY: handles of modules and functions may be used by any thread; the driver locks what it must.
unsafe impl Send for Modules {}

/// A CUDA device with a stream of its own. Clones share the stream; [`Gpu::open`] makes a new one.
///
/// Several of one device share its context and its loaded kernels. It can be used from any thread.
#[derive(Clone)]
pub struct Gpu {
    context: Arc<Context>,
    stream: Arc<CudaStream>,
    starts_early: Arc<AtomicBool>,
    transfer: Arc<OnceLock<Transfer>>,
}

impl Gpu {
    /// Opens the device of that ordinal.
    ///
    /// # Errors
    /// [`Unavailable`] if there is no such device; what the driver says.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        let count = device_count()?;
        if ordinal >= count {
            return Err(Unavailable::NoSuchDevice { ordinal, count }.into());
        }
        let context = Context::open(ordinal)?;
        let failed = |error| CudaError::driver(ordinal, "cuStreamCreate", error, "a stream");
        let stream = context.cuda.new_stream().map_err(failed)?;
        let starts_early = Arc::new(AtomicBool::new(true));
        Ok(Self {
            context,
            stream,
            starts_early,
            transfer: Arc::default(),
        })
    }

    /// The device's ordinal, N of `cuda:N`.
    pub fn ordinal(&self) -> usize {
        self.context.cuda.ordinal()
    }

    /// The device's name, such as `NVIDIA H200`.
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// How many multiprocessors it has.
    pub fn multiprocessors(&self) -> u32 {
        self.context.multiprocessors
    }

    /// Sets whether a kernel may start while the one before it in the stream ends (programmatic dependent launch). It
    /// may, unless this says otherwise, on devices that can do so: compute capability 9.0 and later. Results are the
    /// same; benchmarks switch it off to show what it saves. Clones share the setting, as they share the stream, and a
    /// graph keeps the one it was captured with.
    pub fn set_early_start(&self, starts_early: bool) {
        self.starts_early.store(starts_early, Ordering::Relaxed);
    }

    /// Enqueues a kernel. A grid without blocks does nothing.
    ///
    /// # Errors
    /// [`CudaError::Parameters`] if `P` does not have the size of the kernel's parameters; what the driver says, which may
    /// be an error of earlier work.
    ///
    /// # Safety
    /// `params` is the struct of this kernel, and every address in it is memory of this device that is large enough
    /// for what the kernel does, and lives until the stream is synchronized.
    pub unsafe fn launch<P: Params>(
        &self,
        kernel: Kernel,
        grid: [u32; 3],
        block: u32,
        params: &P,
    ) -> Result<(), CudaError> {
        if grid.contains(&0) {
            return Ok(());
        }
        let Function { handle, waits, .. } = self.context.function(kernel, size_of::<P>())?;
        let mut arguments = [(&raw const *params).cast_mut().cast::<c_void>()];
        let mut starts_early = sys::CUlaunchAttribute {
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
            hStream: self.bound()?,
            attrs: &raw mut starts_early,
            numAttrs: u32::from(waits && self.starts_early.load(Ordering::Relaxed)),
        };
        // SAFETY: the function takes one struct by value, which the driver copies before it returns, as it does the
        // configuration; what the addresses in it point to is the caller's promise.
        let launched =
            unsafe { sys::cuLaunchKernelEx(&raw const config, handle, arguments.as_mut_ptr(), std::ptr::null_mut()) };
        launched.result().map_err(|error| {
            let detail = format_args!("{} with {x} x {y} x {z} blocks of {block}", kernel.name);
            self.failed("cuLaunchKernelEx", error, detail)
        })
    }

    /// Waits until the stream is idle.
    ///
    /// # Errors
    /// The first error of the work in the stream.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let stream = self.bound()?;
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(stream) }
            .map_err(|error| self.failed("cuStreamSynchronize", error, "the work so far"))
    }

    /// Captures what `work` enqueues, without running it, as a graph that can be launched again and again.
    ///
    /// Launch the kernels once before, so that they are loaded, and allocate nothing in `work`.
    ///
    /// # Errors
    /// Those of `work`; what the driver says.
    pub fn capture(&self, work: impl FnOnce() -> Result<(), CudaError>) -> Result<CudaGraph, CudaError> {
        let stream = self.bound()?;
        let failed = |call| move |error| self.failed(call, error, "a graph");
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::begin_capture(stream, mode) }.map_err(failed("cuStreamBeginCapture"))?;
        let worked = work();
        // SAFETY: the stream is being captured.
        let ended = unsafe { result::stream::end_capture(stream) }.map_err(failed("cuStreamEndCapture"));
        worked?;
        let mut graph = CudaGraph {
            gpu: self.clone(),
            graph: ended?,
            executable: std::ptr::null_mut(),
            one_thread: PhantomData,
        };
        // SAFETY: the graph is complete, and is kept beside what is made of it.
        graph.executable = unsafe { result::graph::instantiate(graph.graph, sys::CUgraphInstantiate_flags(0)) }
            .map_err(failed("cuGraphInstantiate"))?;
        Ok(graph)
    }

    /// A new event.
    ///
    /// # Errors
    /// What the driver says.
    pub fn event(&self) -> Result<Event, CudaError> {
        self.event_of_kind(sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    /// An event that is only waited for, which costs less.
    pub(super) fn untimed_event(&self) -> Result<Event, CudaError> {
        self.event_of_kind(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn event_of_kind(&self, kind: sys::CUevent_flags) -> Result<Event, CudaError> {
        self.bound()?;
        let event = result::event::create(kind).map_err(|error| self.failed("cuEventCreate", error, "an event"))?;
        Ok(Event {
            gpu: self.clone(),
            event,
        })
    }

    /// Checks that something is on this device.
    ///
    /// # Errors
    /// [`CudaError::WrongDevice`].
    pub fn check(&self, other: &Self) -> Result<(), CudaError> {
        match (self.ordinal(), other.ordinal()) {
            (expected, came) if expected == came => Ok(()),
            (expected, came) => Err(CudaError::WrongDevice { expected, came }),
        }
    }

    /// The stream, with the context made that of the calling thread.
    pub(super) fn bound(&self) -> Result<sys::CUstream, CudaError> {
        self.context
            .cuda
            .bind_to_thread()
            .map_err(|error| self.failed("cuCtxSetCurrent", error, "its context"))?;
        Ok(self.stream.cu_stream())
    }

    pub(super) fn cu_device(&self) -> sys::CUdevice {
        self.context.cuda.cu_device()
    }

    pub(super) fn attribute(&self, attribute: Attribute) -> Result<i32, CudaError> {
        let value = self.context.cuda.attribute(attribute);
        value.map_err(|error| self.failed("cuDeviceGetAttribute", error, format_args!("{attribute:?}")))
    }

    pub(super) fn cu_stream(&self) -> sys::CUstream {
        self.stream.cu_stream()
    }

    /// What copies of memory that is not page-locked go through, made at the first of them.
    ///
    /// # Errors
    /// There is no page-locked memory left; what the driver says.
    pub(super) fn transfer(&self) -> Result<&Transfer, CudaError> {
        if let Some(transfer) = self.transfer.get() {
            return Ok(transfer);
        }
        // Of the same stream, but without what it would otherwise hold itself.
        let bare = Self {
            transfer: Arc::default(),
            ..self.clone()
        };
        let made = Transfer::new(&bare)?;
        Ok(self.transfer.get_or_init(|| made))
    }

    /// Whether work of both goes into the same stream.
    pub(super) fn shares_stream(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.stream, &other.stream)
    }

    pub(super) fn cu_context(&self) -> sys::CUcontext {
        self.context.cuda.cu_ctx()
    }

    pub(super) fn failed(&self, call: &'static str, error: DriverError, detail: impl ToString) -> CudaError {
        CudaError::driver(self.ordinal(), call, error, detail)
    }
}

impl Context {
    /// The context of a device. The driver has one primary context for each device in a process, so there is one of these,
    /// too, for as long as anybody uses it.
    fn open(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        static OPEN: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|context| context.strong_count() > 0);
        let known = open.iter().filter_map(Weak::upgrade);
        if let Some(context) = known.into_iter().find(|context| context.cuda.ordinal() == ordinal) {
            return Ok(context);
        }
        let context = Arc::new(Self::new(ordinal)?);
        open.push(Arc::downgrade(&context));
        Ok(context)
    }

    fn new(ordinal: usize) -> Result<Self, CudaError> {
        let failed = |call| move |error| CudaError::driver(ordinal, call, error, "the device");
        let cuda = CudaContext::new(ordinal).map_err(failed("cuDevicePrimaryCtxRetain"))?;
        let attribute = |attribute| {
            let value = cuda.attribute(attribute).map_err(failed("cuDeviceGetAttribute"))?;
            Ok::<_, CudaError>(value.max(0) as u32)
        };
        Ok(Self {
            driver: probe::driver_version()?,
            name: cuda.name().map_err(failed("cuDeviceGetName"))?,
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            modules: Mutex::default(),
            cuda,
        })
    }

    /// The function of a kernel, loaded at its first use. `came` is the size of the parameters that it is to be launched
    /// with.
    fn function(&self, kernel: Kernel, came: usize) -> Result<Function, CudaError> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let function = match modules.functions.get(kernel.name) {
            Some(&known) => known,
            None => self.load(&mut modules, kernel)?,
        };
        match function.bytes {
            Some(expected) if expected != came => Err(CudaError::Parameters {
                device: self.cuda.ordinal(),
                kernel: kernel.name,
                expected,
                came,
            }),
            _ => Ok(function),
        }
    }

    fn load(&self, modules: &mut Modules, kernel: Kernel) -> Result<Function, CudaError> {
        let ordinal = self.cuda.ordinal();
        let failed = |call, detail: String| move |error| CudaError::driver(ordinal, call, error, detail);
        self.cuda
            .bind_to_thread()
            .map_err(failed("cuCtxSetCurrent", "its context".into()))?;
        let (name, fatbin) = (
            kernel.image.name,
            if self.driver < 13_000 {
                kernel.image.cuda12
            } else {
                kernel.image.cuda13
            },
        );
        let module = match modules.loaded.get(name) {
            Some(&module) => module,
            None => {
                let detail = format!("the kernels of {name}, {} bytes", fatbin.len());
                // SAFETY: the image is a whole fat binary, checked in as the compiler wrote it.
                let module = unsafe { result::module::load_data(fatbin.as_ptr().cast()) }
                    .map_err(failed("cuModuleLoadData", detail))?;
                modules.loaded.insert(name, module);
                module
            }
        };
        let symbol = CString::new(kernel.name).unwrap_or_default();
        // SAFETY: the module was loaded above and is unloaded with the context only.
        let handle = unsafe { result::module::get_function(module, symbol) }
            .map_err(failed("cuModuleGetFunction", kernel.name.to_owned()))?;
        let mut bytes = None;
        // It came with CUDA 12.4.
        if probe::has("cuFuncGetParamInfo") {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is there, and both are written by it.
            unsafe { sys::cuFuncGetParamInfo(handle, 0, &mut offset, &mut size) }
                .result()
                .map_err(failed("cuFuncGetParamInfo", kernel.name.to_owned()))?;
            bytes = Some(size);
        }
        let version = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION;
        // SAFETY: the function is there.
        let version = unsafe { result::function::get_function_attribute(handle, version) }
            .map_err(failed("cuFuncGetAttribute", kernel.name.to_owned()))?;
        let function = Function {
            handle,
            bytes,
            waits: version >= WAITING_PTX,
        };
        modules.functions.insert(kernel.name, function);
        Ok(function)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let modules = self.modules.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.cuda.bind_to_thread().is_ok() {
            for (_, module) in modules.loaded.drain() {
                // SAFETY: nobody has the context any more, so no function of the module can be launched.
                let _ = unsafe { result::module::unload(module) };
            }
        }
    }
}

/// A captured CUDA graph, which is launched as a whole. It can move to another thread, but not be shared.
pub struct CudaGraph {
    gpu: Gpu,
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: graphs may be used by any one thread at a time, and the type can't be shared.
unsafe impl Send for CudaGraph {}

impl CudaGraph {
    /// Enqueues the work in the stream that it was captured from.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// The memory that the work uses is still there.
    pub unsafe fn launch(&self) -> Result<(), CudaError> {
        let stream = self.gpu.bound()?;
        // SAFETY: graph and stream live as long as `self`; the memory is the caller's promise.
        unsafe { result::graph::launch(self.executable, stream) }
            .map_err(|error| self.gpu.failed("cuGraphLaunch", error, "a graph"))
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.gpu.bound().is_ok() {
            // SAFETY: both are this graph's own and are not used again. There is nobody to tell of a failure.
            unsafe {
                if !self.executable.is_null() {
                    let _ = result::graph::exec_destroy(self.executable);
                }
                let _ = result::graph::destroy(self.graph);
            }
        }
    }
}

/// A point in the stream of a device.
pub struct Event {
    gpu: Gpu,
    event: sys::CUevent,
}

// SAFETY: events may be used by any thread.
unsafe impl Send for Event {}
// SAFETY: the driver locks what it must.
unsafe impl Sync for Event {}

impl Event {
    /// Sets it to the end of the stream: it is reached once all work enqueued so far is done.
    ///
    /// # Errors
    /// What the driver says.
    pub fn record(&self) -> Result<(), CudaError> {
        let stream = self.gpu.bound()?;
        // SAFETY: event and stream live as long as `self`.
        unsafe { result::event::record(self.event, stream) }
            .map_err(|error| self.gpu.failed("cuEventRecord", error, "an event"))
    }

    /// Sets it to the end of the legacy default stream, or of the default stream of the thread.
    ///
    /// # Errors
    /// What the driver says.
    pub fn record_in_default(&self, of_thread: bool) -> Result<(), CudaError> {
        self.gpu.bound()?;
        let handle = if of_thread { 2usize } else { 1 };
        // SAFETY: the event lives as long as `self`; the default streams are always there.
        unsafe { result::event::record(self.event, handle as sys::CUstream) }
            .map_err(|error| self.gpu.failed("cuEventRecord", error, "a default stream"))
    }

    /// Waits until it is reached.
    ///
    /// # Errors
    /// The first error of the work before it.
    pub fn wait(&self) -> Result<(), CudaError> {
        self.gpu.bound()?;
        // SAFETY: the event lives as long as `self`.
        unsafe { result::event::synchronize(self.event) }
            .map_err(|error| self.gpu.failed("cuEventSynchronize", error, "an event"))
    }

    /// Whether it is reached.
    ///
    /// # Errors
    /// The first error of the work before it.
    pub fn is_reached(&self) -> Result<bool, CudaError> {
        self.gpu.bound()?;
        // SAFETY: the event lives as long as `self`.
        match unsafe { result::event::query(self.event) } {
            Ok(()) => Ok(true),
            Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(self.gpu.failed("cuEventQuery", error, "an event")),
        }
    }

    /// The time between an earlier event and this one, both of which must have been reached, us.
    ///
    /// # Errors
    /// What the driver says.
    pub fn elapsed_us(&self, since: &Self) -> Result<f64, CudaError> {
        self.gpu.bound()?;
        let mut ms = 0.0;
        // SAFETY: both events live.
        unsafe { probe::event_elapsed_ms(&mut ms, since.event, self.event) }
            .map_err(|error| self.gpu.failed("cuEventElapsedTime", error, "two events"))?;
        Ok(f64::from(ms) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.gpu.bound().is_ok() {
            // SAFETY: it is this event's own and is not used again.
            let _ = unsafe { result::event::destroy(self.event) };
        }
    }
}
