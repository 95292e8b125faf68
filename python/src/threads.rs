//! The threads that operations on the host share their work among, and locks.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The process in which the module was loaded.
static LOADED_IN: OnceLock<u32> = OnceLock::new();
/// The threads of a process that was forked from it.
static FORKED: AtomicPtr<Forked> = AtomicPtr::new(ptr::null_mut());

struct Forked {
    process: u32,
    pool: ThreadPool,
}

/// Remembers which process this is.
pub fn init() {
    LOADED_IN.get_or_init(process::id);
}

/// Does work with threads of this process.
///
/// A fork takes none of its parent's threads along, such as to a worker of a `DataLoader`: work that waits for them there
/// never ends. So each process that was forked has threads of its own.
pub fn share<R: Send>(work: impl FnOnce() -> R + Send) -> PyResult<R> {
    let process = process::id();
    if LOADED_IN.get() == Some(&process) {
        return Ok(work());
    }
    let known = FORKED.load(Ordering::Acquire);
    // SAFETY: what is stored there is never freed.
    if let Some(forked) = unsafe { known.as_ref() }.filter(|forked| forked.process == process) {
        return Ok(forked.pool.install(work));
    }
    let pool = ThreadPoolBuilder::new().build();
    let pool = pool.map_err(|error| PyRuntimeError::new_err(format!("no threads: {error}")))?;
    // What the parent had stays where it is: its threads are not there to be ended. Two that come at once make two.
    let forked = Box::leak(Box::new(Forked { process, pool }));
    FORKED.store(forked, Ordering::Release);
    Ok(forked.pool.install(work))
}

/// A lock, also if a thread panicked with it.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
