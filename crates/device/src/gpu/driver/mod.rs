//! Drivers of GPUs: the interface below [`Gpu`](super::Gpu), which every vendor's driver implements.
//!
//! A new vendor's GPUs need an implementation of [`Driver`] and a variant of [`Kind`]. Everything above has one source for all
//! vendors, and never interprets the names or numbers of a vendor's errors.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "hip")]
mod hip;

use robocache_kernels::Image;
use std::ffi::c_void;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Kind of GPU: NVIDIA or AMD, each with its own driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// NVIDIA's GPUs, through the CUDA driver.
    Cuda,
    /// AMD's GPUs, through HIP, the part of ROCm that programs call.
    Hip,
}

impl Kind {
    /// All kinds, in the order in which `auto` looks for one.
    pub const ALL: [Self; 2] = [Self::Cuda, Self::Hip];

    /// The name of the kind, as in `cuda:0`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Hip => "hip",
        }
    }

    /// True if the tests have passed on a device of this kind. `auto` takes verified kinds only; other kinds must be named.
    pub const fn is_verified(self) -> bool {
        match self {
            Self::Cuda => true,
            Self::Hip => false,
        }
    }

    /// Returns the kind's driver, which is loaded and started once in a process. Never panics.
    ///
    /// # Errors
    /// The reason why the driver can't be used.
    pub fn driver(self) -> Result<&'static dyn Driver, Unavailable> {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda => Ok(cuda::driver()?),
            #[cfg(feature = "hip")]
            Self::Hip => Ok(hip::driver()?),
            #[cfg(not(all(feature = "cuda", feature = "hip")))]
            kind => Err(Unavailable::NotBuilt(kind)),
        }
    }

    /// The name of the kind's programming interface, `CUDA` or `HIP`.
    const fn interface(self) -> &'static str {
        match self {
            Self::Cuda => "CUDA",
            Self::Hip => "HIP",
        }
    }

    /// The name of the kind's driver in error texts.
    const fn called(self) -> &'static str {
        match self {
            Self::Cuda => "CUDA driver",
            Self::Hip => "AMD driver",
        }
    }

    /// DLPack's `DLDeviceType` of the kind: `kDLCUDA` or `kDLROCM`.
    pub const fn dlpack(self) -> i32 {
        match self {
            Self::Cuda => 2,
            Self::Hip => 10,
        }
    }

    /// File name of the driver's library, for error texts.
    pub const fn library(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so.1",
            Self::Hip => "libamdhip64.so",
        }
    }

    /// Hint in error texts at where the driver's library comes from.
    const fn library_hint(self) -> &'static str {
        match self {
            Self::Cuda => "a container needs `--gpus all` or `--runtime nvidia`",
            Self::Hip => "ROCm installs it in /opt/rocm/lib",
        }
    }

    /// Hint in error texts at why a driver may show no device.
    const fn device_hint(self) -> &'static str {
        match self {
            Self::Cuda => "`CUDA_VISIBLE_DEVICES` may hide it",
            Self::Hip => "`HIP_VISIBLE_DEVICES` may hide it, and its user must be of the group `render`",
        }
    }

    /// Formats a driver's version as people write it, such as `CUDA 12.8`.
    pub fn version_text(self, version: i32) -> String {
        match self {
            Self::Cuda => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
            Self::Hip => format!("HIP {}.{}", version / 10_000_000, version / 100_000 % 100),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason why no GPU of a kind can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The program was built without this kind of driver.
    #[error("this program was built without {} (its feature `{}`)", .0.interface(), .0)]
    NotBuilt(Kind),
    /// The driver's library is not installed, or can't be loaded.
    #[error("no {} was found ({} can't be loaded from the library path; {})", .0.called(), .0.library(), .0.library_hint())]
    NoLibrary(Kind),
    /// The driver's library lacks a function.
    #[error("the {} has no function {}: it is too old or damaged (install a newer one)", .0.called(), .1)]
    MissingSymbol(Kind, &'static str),
    /// The driver is too old for the kernels.
    #[error("the {} supports {}, too old (allowed: a driver of {} or newer)",
        kind.called(), kind.version_text(*came), kind.version_text(*needed))]
    DriverTooOld {
        /// The kind of driver.
        kind: Kind,
        /// Version of the installed driver, as its vendor numbers it.
        came: i32,
        /// Oldest driver version that can load the kernels.
        needed: i32,
    },
    /// The driver starts, but has no device.
    #[error("the {} has no device ({})", .0.called(), .0.device_hint())]
    NoDevice(Kind),
    /// The driver is installed, but does not start.
    #[error("the {} does not start: {name} ({code})", kind.called())]
    Init {
        /// The kind of driver.
        kind: Kind,
        /// Name of the driver's error.
        name: String,
        /// Number of the driver's error.
        code: u32,
    },
    /// The kind has devices, but none with this ordinal.
    #[error("there is no device {kind}:{ordinal} (allowed: {kind}:0 to {kind}:{})", count - 1)]
    NoSuchDevice {
        /// The kind of device.
        kind: Kind,
        /// Ordinal that was asked for.
        ordinal: usize,
        /// Number of devices of the kind.
        count: usize,
    },
}

/// A call of a driver that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Name of the driver function that failed.
    pub call: &'static str,
    /// Name of the driver's error.
    pub name: String,
    /// Number of the driver's error.
    pub code: u32,
    /// True if the call was refused for lack of memory, and has done nothing: the device can go on.
    pub is_memory: bool,
}

/// Declares types for a driver's handles, so that handles can't be mistaken for one another. They own nothing.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub u64);
    )*};
}

handles! {
    /// Address of memory of a device.
    Address,
    /// Handle of a context: a process's memory, modules and streams on a device.
    Context,
    /// Handle of an event: a point in a stream.
    Event,
    /// Handle of an instantiated graph, which can be launched.
    Executable,
    /// Handle of a loaded kernel.
    Function,
    /// Handle of captured work, which has to be instantiated before it is launched.
    Graph,
    /// Handle of a loaded image, which holds kernels.
    Module,
    /// Handle of a stream: work that a device does in the order in which it was enqueued.
    Stream,
}

impl Address {
    /// The address `bytes` bytes further on.
    #[must_use]
    pub const fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// Loaded kernel, with the properties that the driver reports for the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// The kernel's handle.
    pub function: Function,
    /// Size of the kernel's parameters, bytes; `None` if the driver can't tell.
    pub parameter_bytes: Option<usize>,
    /// True if the kernel's code waits for the kernel ahead of it in the stream, so that the driver may start it before that kernel
    /// has ended.
    pub can_start_early: bool,
}

/// Optional features of a driver. A driver that lacks their functions is used for everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optional {
    /// Sharing memory with other processes, which map it.
    Sharing,
    /// Page-locking host memory that was allocated otherwise.
    HostLocking,
}

/// The calls of a vendor's driver. Nothing above interprets the names and numbers of the vendor's errors.
///
/// Functions that take no device and no context work in the context that [`make_current`](Self::make_current) set for the calling
/// thread. Functions that take a stream enqueue work and return: the caller waits for the work, by
/// [`synchronize`](Self::synchronize) or an event.
///
/// # Safety
/// An implementation does what its functions say: memory that it returns exists, has that size and is nobody else's.
///
/// A caller of an `unsafe` function passes handles that this driver gave and has not taken back, in their context. Memory that the
/// caller passes is large enough, and stays until the stream is done with it.
#[expect(clippy::missing_safety_doc, reason = "what holds for all of them stands above")]
pub unsafe trait Driver: Sync {
    /// The kind of the driver's devices.
    fn kind(&self) -> Kind;
    /// The driver's version, as the vendor numbers it.
    fn version(&self) -> i32;
    /// Number of devices, at least one.
    fn device_count(&self) -> usize;
    /// The first function of an optional feature that the driver lacks; `None` if it has all.
    fn missing(&self, optional: Optional) -> Option<&'static str>;

    /// Name of a device, such as `NVIDIA H200`.
    fn name(&self, ordinal: usize) -> Result<String, Fault>;
    /// Number of multiprocessors of a device.
    fn multiprocessors(&self, ordinal: usize) -> Result<u32, Fault>;
    /// The UUID of a device, the same in every process.
    fn uuid(&self, ordinal: usize) -> Result<[u8; 16], Fault>;
    /// True if other processes can map memory of a device.
    fn can_share(&self, ordinal: usize) -> Result<bool, Fault>;

    /// Opens the context of a device. Each call of `open` needs a call of [`close`](Self::close).
    fn open(&self, ordinal: usize) -> Result<Context, Fault>;
    /// Closes the context of a device; the context is freed once there were as many calls of `close` as of `open`.
    unsafe fn close(&self, ordinal: usize);
    /// Makes a context the current one of the calling thread.
    unsafe fn make_current(&self, context: Context) -> Result<(), Fault>;
    /// Waits for all streams of the current context, also for those of other libraries.
    unsafe fn synchronize_all(&self) -> Result<(), Fault>;

    /// Loads the kernels of `image`, from the variant that the device can run.
    unsafe fn load(&self, image: &Image) -> Result<Module, Fault>;
    /// Unloads a module with its kernels.
    unsafe fn unload(&self, module: Module);
    /// Looks up a kernel of a module by its name.
    unsafe fn function(&self, module: Module, name: &str) -> Result<Loaded, Fault>;
    /// Enqueues a launch of a kernel with the parameter struct at `parameters`. The driver has copied the struct on return.
    unsafe fn launch(
        &self,
        function: Function,
        grid: [u32; 3],
        block: u32,
        parameters: *const c_void,
        starts_early: bool,
        stream: Stream,
    ) -> Result<(), Fault>;

    /// Creates a stream that does not wait for other streams.
    unsafe fn create_stream(&self) -> Result<Stream, Fault>;
    /// Destroys a stream once it is idle.
    unsafe fn destroy_stream(&self, stream: Stream);
    /// Waits until the work in a stream is done.
    unsafe fn synchronize(&self, stream: Stream) -> Result<(), Fault>;
    /// Makes later work in a stream wait for an event.
    unsafe fn wait_event(&self, stream: Stream, event: Event) -> Result<(), Fault>;
    /// Handle of a default stream of the device: the calling thread's own default stream if `of_thread`, else the legacy default
    /// stream, which all threads share.
    fn default_stream(&self, of_thread: bool) -> Stream;

    /// Creates an event, which measures times if it is `timed`.
    unsafe fn create_event(&self, timed: bool) -> Result<Event, Fault>;
    /// Destroys an event once it is reached.
    unsafe fn destroy_event(&self, event: Event) -> Result<(), Fault>;
    /// Sets an event to the end of the work that has been enqueued in `stream` so far.
    unsafe fn record(&self, event: Event, stream: Stream) -> Result<(), Fault>;
    /// Waits until an event is reached.
    unsafe fn synchronize_event(&self, event: Event) -> Result<(), Fault>;
    /// True if all work before an event is done. Does not wait.
    unsafe fn is_reached(&self, event: Event) -> Result<bool, Fault>;
    /// Time from the event `since` to the event `until`, ms. Both must have been created as `timed`.
    unsafe fn elapsed_ms(&self, since: Event, until: Event) -> Result<f32, Fault>;

    /// Captures the work that this thread enqueues in a stream from now on, instead of running it.
    unsafe fn begin_capture(&self, stream: Stream) -> Result<(), Fault>;
    /// Ends the capture of a stream, and returns the captured work.
    unsafe fn end_capture(&self, stream: Stream) -> Result<Graph, Fault>;
    /// Instantiates a captured graph, so that it can be launched.
    unsafe fn instantiate(&self, graph: Graph) -> Result<Executable, Fault>;
    /// Enqueues the work of an instantiated graph.
    unsafe fn launch_graph(&self, executable: Executable, stream: Stream) -> Result<(), Fault>;
    /// Destroys a captured graph.
    unsafe fn destroy_graph(&self, graph: Graph);
    /// Destroys an instantiated graph.
    unsafe fn destroy_executable(&self, executable: Executable);

    /// Allocates memory of the device, aligned to 256 bytes.
    unsafe fn allocate(&self, bytes: usize) -> Result<Address, Fault>;
    /// Frees memory of the device, once the work that uses it is done.
    unsafe fn free(&self, address: Address);
    /// Allocates page-locked memory of the host, which every device reads and writes at the same address.
    unsafe fn allocate_host(&self, bytes: usize) -> Result<*mut u8, Fault>;
    /// Frees memory of `allocate_host`.
    unsafe fn free_host(&self, memory: *mut u8);
    /// Page-locks host memory that was allocated otherwise.
    unsafe fn lock_host(&self, memory: *mut u8, bytes: usize) -> Result<(), Fault>;
    /// Undoes `lock_host`: makes the memory pageable again.
    unsafe fn unlock_host(&self, memory: *mut u8);
    /// True if `address` is in page-locked memory; false also if the driver can't tell. The memory is not read.
    fn is_page_locked(&self, address: *const u8) -> bool;

    /// Enqueues a copy of `bytes` bytes of host memory to the device.
    unsafe fn upload(&self, to: Address, from: *const u8, bytes: usize, stream: Stream) -> Result<(), Fault>;
    /// Enqueues a copy of `bytes` bytes of the device's memory to the host.
    unsafe fn download(&self, to: *mut u8, from: Address, bytes: usize, stream: Stream) -> Result<(), Fault>;
    /// Enqueues a copy of `bytes` bytes within the device.
    unsafe fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<(), Fault>;
    /// Enqueues a copy of `bytes` bytes from one device to another.
    unsafe fn copy_peer(
        &self,
        to: (Context, Address),
        from: (Context, Address),
        bytes: usize,
        stream: Stream,
    ) -> Result<(), Fault>;
    /// Enqueues zeroing of `bytes` bytes of the device's memory.
    unsafe fn clear(&self, to: Address, bytes: usize, stream: Stream) -> Result<(), Fault>;

    /// Rounds `bytes` up to a size that memory shared with other processes can have.
    unsafe fn shareable_bytes(&self, ordinal: usize, bytes: usize) -> Result<usize, Fault>;
    /// Allocates memory of a size from `shareable_bytes`. Also returns the file descriptor by which other processes map it.
    unsafe fn create_shareable(&self, ordinal: usize, bytes: usize) -> Result<(Address, OwnedFd), Fault>;
    /// Maps memory of another process, of a size from `shareable_bytes`, by its file descriptor.
    unsafe fn map_shareable(&self, ordinal: usize, memory: BorrowedFd<'_>, bytes: usize) -> Result<Address, Fault>;
    /// Unmaps memory of `create_shareable` or `map_shareable`, once all work of the context is done.
    unsafe fn unmap_shareable(&self, address: Address, bytes: usize);
}
