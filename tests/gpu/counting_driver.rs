//! A driver that wraps another one, counts its calls by name, and makes one of them fail on demand.

use robocache::device::gpu::driver::{
    Address, Context, Driver, Event, Executable, Fault, Function, Graph, Loaded, Module, Optional, Stream,
};
use robocache::device::gpu::{Image, Kind};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of calls to each function of the driver, by its name.
pub type Counts = BTreeMap<&'static str, usize>;

pub struct CountingDriver {
    driver: &'static dyn Driver,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    counts: Counts,
    /// Number of calls so far that could have failed.
    fallible: usize,
    /// Index of the call that is made to fail, counted among the calls that can fail; `None` for none.
    fails_at: Option<usize>,
    failed: Option<&'static str>,
}

impl CountingDriver {
    /// Wraps a driver. The call of index `fails_at` fails, among those that can. The wrapper lives as long as the process, as
    /// drivers do.
    pub fn new(driver: &'static dyn Driver, fails_at: Option<usize>) -> &'static Self {
        let calls = Calls {
            fails_at,
            ..Calls::default()
        };
        Box::leak(Box::new(Self {
            driver,
            calls: Mutex::new(calls),
        }))
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn counts(&self) -> Counts {
        self.calls().counts.clone()
    }

    /// Number of calls so far that could have failed.
    pub fn fallible(&self) -> usize {
        self.calls().fallible
    }

    /// The name of the call that failed.
    pub fn failed(&self) -> Option<&'static str> {
        self.calls().failed
    }

    fn count(&self, call: &'static str) {
        *self.calls().counts.entry(call).or_default() += 1;
    }

    fn count_fallible(&self, call: &'static str) -> Result<(), Fault> {
        self.count(call);
        let mut calls = self.calls();
        calls.fallible += 1;
        if calls.fails_at != Some(calls.fallible - 1) {
            return Ok(());
        }
        calls.failed = Some(call);
        Err(Fault {
            call,
            name: "A_TEST".into(),
            code: 4711,
            is_memory: false,
        })
    }
}

/// Forwards calls that can fail. A call that fails is not forwarded.
macro_rules! fallible {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        fn $name(&self, $($argument: $kind),*) -> Result<$result, Fault> {
            self.count_fallible(stringify!($name))?;
            self.driver.$name($($argument),*)
        }
    )*};
    ($(unsafe $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        unsafe fn $name(&self, $($argument: $kind),*) -> Result<$result, Fault> {
            self.count_fallible(stringify!($name))?;
            // SAFETY: the caller's promise.
            unsafe { self.driver.$name($($argument),*) }
        }
    )*};
}

/// Forwards calls that wait. A call that fails has waited before, like one that reports a failure of earlier work.
macro_rules! waiting {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        unsafe fn $name(&self, $($argument: $kind),*) -> Result<(), Fault> {
            // SAFETY: the caller's promise.
            let waited = unsafe { self.driver.$name($($argument),*) };
            self.count_fallible(stringify!($name)).and(waited)
        }
    )*};
}

/// Forwards calls that release something, and can't fail.
macro_rules! infallible {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        unsafe fn $name(&self, $($argument: $kind),*) {
            self.count(stringify!($name));
            // SAFETY: the caller's promise.
            unsafe { self.driver.$name($($argument),*) }
        }
    )*};
}

// SAFETY: the other driver does what is asked for, or the call fails.
unsafe impl Driver for CountingDriver {
    fn kind(&self) -> Kind {
        self.driver.kind()
    }

    fn version(&self) -> i32 {
        self.driver.version()
    }

    fn device_count(&self) -> usize {
        self.driver.device_count()
    }

    fn missing(&self, optional: Optional) -> Option<&'static str> {
        self.driver.missing(optional)
    }

    fn default_stream(&self, of_thread: bool) -> Stream {
        self.driver.default_stream(of_thread)
    }

    fn is_page_locked(&self, address: *const u8) -> bool {
        self.driver.is_page_locked(address)
    }

    fallible! {
        name(ordinal: usize) -> String;
        multiprocessors(ordinal: usize) -> u32;
        uuid(ordinal: usize) -> [u8; 16];
        can_share(ordinal: usize) -> bool;
        open(ordinal: usize) -> Context;
    }

    fallible! {
        unsafe make_current(context: Context) -> ();
        unsafe load(image: &Image) -> Module;
        unsafe function(module: Module, name: &str) -> Loaded;
        unsafe launch(
            function: Function,
            grid: [u32; 3],
            block: u32,
            parameters: *const c_void,
            starts_early: bool,
            stream: Stream
        ) -> ();
        unsafe create_stream() -> Stream;
        unsafe wait_event(stream: Stream, event: Event) -> ();
        unsafe create_event(timed: bool) -> Event;
        unsafe destroy_event(event: Event) -> ();
        unsafe record(event: Event, stream: Stream) -> ();
        unsafe is_reached(event: Event) -> bool;
        unsafe elapsed_ms(since: Event, until: Event) -> f32;
        unsafe begin_capture(stream: Stream) -> ();
        unsafe end_capture(stream: Stream) -> Graph;
        unsafe instantiate(graph: Graph) -> Executable;
        unsafe launch_graph(executable: Executable, stream: Stream) -> ();
        unsafe allocate(bytes: usize) -> Address;
        unsafe allocate_host(bytes: usize) -> *mut u8;
        unsafe lock_host(memory: *mut u8, bytes: usize) -> ();
        unsafe upload(to: Address, from: *const u8, bytes: usize, stream: Stream) -> ();
        unsafe download(to: *mut u8, from: Address, bytes: usize, stream: Stream) -> ();
        unsafe copy(to: Address, from: Address, bytes: usize, stream: Stream) -> ();
        unsafe copy_peer(to: (Context, Address), from: (Context, Address), bytes: usize, stream: Stream) -> ();
        unsafe clear(to: Address, bytes: usize, stream: Stream) -> ();
        unsafe shareable_bytes(ordinal: usize, bytes: usize) -> usize;
        unsafe create_shareable(ordinal: usize, bytes: usize) -> (Address, OwnedFd);
        unsafe map_shareable(ordinal: usize, memory: BorrowedFd<'_>, bytes: usize) -> Address;
    }

    waiting! {
        synchronize_all();
        synchronize(stream: Stream);
        synchronize_event(event: Event);
    }

    infallible! {
        close(ordinal: usize);
        unload(module: Module);
        destroy_stream(stream: Stream);
        destroy_graph(graph: Graph);
        destroy_executable(executable: Executable);
        free(address: Address);
        free_host(memory: *mut u8);
        unlock_host(memory: *mut u8);
        unmap_shareable(address: Address, bytes: usize);
    }
}
