//! Thread pools for operations on the host, and locks. A forked process never waits for threads of its parent.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Id of the process in which the module was loaded.
static LOADED_IN: OnceLock<u32> = OnceLock::new();
/// Thread pool of this process, if it was forked after the module was loaded. Before its first use it is null, or the pool of
/// the parent.
static FORKED: AtomicPtr<Forked> = AtomicPtr::new(ptr::null_mut());

struct Forked {
    process: u32,
    pool: ThreadPool,
}

/// Stores the id of the process that loads the module.
pub fn init() {
    LOADED_IN.get_or_init(process::id);
}

/// Runs `work`, whose parallel parts use threads of this process.
///
/// A forked process, such as a worker of a `DataLoader`, has none of its parent's threads, and would wait for them forever. So
/// each forked process gets a thread pool of its own.
pub fn share<R: Send>(work: impl FnOnce() -> R + Send) -> PyResult<R> {
    let process = process::id();
    if LOADED_IN.get() == Some(&process) {
        return Ok(work());
    }
    let known = FORKED.load(Ordering::Acquire);
    // SAFETY: a stored pool is never freed.
    if let Some(forked) = unsafe { known.as_ref() }.filter(|forked| forked.process == process) {
        return Ok(forked.pool.install(work));
    }
    let pool = ThreadPoolBuilder::new().build();
    let pool = pool.map_err(|error| PyRuntimeError::new_err(format!("no threads: {error}")))?;
    // The parent's pool is leaked: its threads don't exist here, and can't be ended. Two threads that come at once make two pools.
    let forked = Box::leak(Box::new(Forked { process, pool }));
    FORKED.store(forked, Ordering::Release);
    Ok(forked.pool.install(work))
}

/// Locks a mutex, even if a thread panicked while it held the lock.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
