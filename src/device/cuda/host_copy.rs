//! Copies of host memory by several cores.
//!
//! The threads are those of the process, started at the first copy: how many help depends on the cores of the machine and
//! on nothing that an operation is configured with. rayon's pool is not used, since handing it a job from outside
//! allocates.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Bytes that a thread copies at a time.
pub(crate) const CHUNK: usize = 128 << 10;
/// More threads than this do not copy faster.
const MOST_HELPERS: usize = 3;

/// A copy that several threads work on: each takes the next chunk by an atomic add until there is none.
#[derive(Clone, Copy)]
struct Job {
    from: *const u8,
    to: *mut u8,
    bytes: usize,
    next: *const AtomicUsize,
}

// SAFETY: whoever hands a job out keeps its memory borrowed until all helpers have left it.
unsafe impl Send for Job {}

#[derive(Default)]
struct State {
    job: Option<Job>,
    /// Helpers that work on the job.
    busy: usize,
}

#[derive(Default)]
struct Helpers {
    state: Mutex<State>,
    begin: Condvar,
    end: Condvar,
    /// Held by the thread whose job it is. Others copy by themselves meanwhile.
    owner: Mutex<()>,
}

impl Helpers {
    /// The threads that help, started when they are first needed.
    fn get() -> &'static Self {
        static HELPERS: OnceLock<Helpers> = OnceLock::new();
        static STARTED: OnceLock<()> = OnceLock::new();
        let helpers = HELPERS.get_or_init(Self::default);
        STARTED.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..MOST_HELPERS.min(cores - 1) {
                // Where a thread can't be started, the others do its part.
                let _ = std::thread::Builder::new()
                    .name("robocache-copy".into())
                    .spawn(move || helpers.help());
            }
        });
        helpers
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn help(&self) {
        let mut state = self.state();
        loop {
            let Some(job) = state.job else {
                state = self.begin.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.busy += 1;
            drop(state);
            // SAFETY: the job stays while a helper is busy.
            unsafe { job.work() };
            state = self.state();
            // No chunk is left.
            state.job = None;
            state.busy -= 1;
            if state.busy == 0 {
                self.end.notify_all();
            }
        }
    }
}

impl Job {
    /// Copies chunks until all are taken.
    ///
    /// # Safety
    /// The memory is there, and nobody else uses it.
    unsafe fn work(self) {
        loop {
            // SAFETY: as this function.
            let at = unsafe { (*self.next).fetch_add(CHUNK, Ordering::Relaxed) };
            if at >= self.bytes {
                return;
            }
            let bytes = CHUNK.min(self.bytes - at);
            // SAFETY: both ranges are within the job's, which do not overlap; each chunk is taken once.
            unsafe { std::ptr::copy_nonoverlapping(self.from.add(at), self.to.add(at), bytes) };
        }
    }
}

/// Copies all of `from` to `to`, with several cores if it is much.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "a copy is as long as its source");
    let helpers = Helpers::get();
    let owner = helpers.owner.try_lock();
    if from.len() <= 2 * CHUNK || owner.is_err() {
        to.copy_from_slice(from);
        return;
    }
    let next = AtomicUsize::new(0);
    let job = Job {
        from: from.as_ptr(),
        to: to.as_mut_ptr(),
        bytes: from.len(),
        next: &next,
    };
    helpers.state().job = Some(job);
    helpers.begin.notify_all();
    // SAFETY: both slices are borrowed until all are done, below.
    unsafe { job.work() };
    let mut state = helpers.state();
    state.job = None;
    while state.busy > 0 {
        state = helpers.end.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    drop(owner);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_from_several_threads_at_once() {
        std::thread::scope(|scope| {
            for seed in 0..4usize {
                scope.spawn(move || {
                    for bytes in [0, 1, CHUNK, 3 * CHUNK + 5, 20 * CHUNK + 1] {
                        let from: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 256 + seed) as u8).collect();
                        let mut to = vec![0; bytes];
                        copy(&from, &mut to);
                        assert!(to == from, "{bytes}");
                    }
                });
            }
        });
    }
}
