//! Threads that help with copies of host memory. The thread that owns a copy returns only after every helper has stopped working on
//! the copy, even if a helper panics.
//!
//! A process has one set of these threads, started at the first copy that needs them. Their number depends on the cores of the
//! machine alone, not on the configuration of an operation. rayon's pool is not used, since handing it work from outside allocates.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// Largest number of helper threads: more do not copy faster.
const MOST_HELPERS: usize = 3;

/// Function that every helper runs, at the same time as the others.
type Work<'a> = dyn Fn() + Sync + 'a;

/// Pointer to the function that the owner of a copy shares. The owner keeps the function alive until no helper runs it any more.
#[derive(Clone, Copy)]
struct Job(*const Work<'static>);

// SAFETY: any thread may run it, and it is borrowed as long as one does.
unsafe impl Send for Job {}

#[derive(Default)]
struct State {
    job: Option<Job>,
    /// Number of helpers that are running the job.
    busy: usize,
    has_panicked: bool,
}

#[derive(Default)]
struct Helpers {
    state: Mutex<State>,
    begin: Condvar,
    end: Condvar,
    /// Lock that is held by the thread whose job the helpers run. Meanwhile other threads copy without help.
    owner: Mutex<()>,
}

impl Helpers {
    /// Returns the helpers of the process, and starts their threads at the first call.
    fn get() -> &'static Self {
        static HELPERS: OnceLock<Helpers> = OnceLock::new();
        static STARTED: OnceLock<()> = OnceLock::new();
        let helpers = HELPERS.get_or_init(Self::default);
        STARTED.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..MOST_HELPERS.min(cores - 1) {
                // If a thread can't be started, the others do its part.
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
            let done = catch_unwind(AssertUnwindSafe(|| unsafe { (*job.0)() }));
            state = self.state();
            // The helper found no part of the job left, so that no other helper need begin.
            state.job = None;
            state.has_panicked |= done.is_err();
            state.busy -= 1;
            if state.busy == 0 {
                self.end.notify_all();
            }
        }
    }
}

/// Guard that, when dropped, ends the job and waits until no helper runs the job any more, even if the owner panics.
struct EndOnDrop<'a>(&'a Helpers);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.job = None;
        while state.busy > 0 {
            state = self.0.end.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Runs `own` on the calling thread, and `help` on the helpers that wake before `own` is done. Returns when `own` and every `help`
/// have returned. If the helpers are busy with another thread's job, only `own` runs.
///
/// # Panics
/// If `own` or a helper panics.
pub(super) fn share<R>(help: &Work<'_>, own: impl FnOnce() -> R) -> R {
    let helpers = Helpers::get();
    let _owner = match helpers.owner.try_lock() {
        Ok(owner) => owner,
        // An owner has panicked, but its job has ended.
        Err(TryLockError::Poisoned(owner)) => owner.into_inner(),
        Err(TryLockError::WouldBlock) => return own(),
    };
    // SAFETY: only the lifetime changes. The work is borrowed until `ending` has waited for all that were busy with it.
    let job = Job(unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(help) });
    let mut state = helpers.state();
    (state.job, state.has_panicked) = (Some(job), false);
    drop(state);
    let ending = EndOnDrop(helpers);
    helpers.begin.notify_all();
    let done = own();
    drop(ending);
    assert!(!helpers.state().has_panicked, "a thread that helped has panicked");
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_part_is_done_once_for_several_owners_at_a_time() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for parts in [0, 1, 7, 5000] {
                        let done: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                        let next = AtomicUsize::new(0);
                        let work = || {
                            while let Some(part) = done.get(next.fetch_add(1, Ordering::Relaxed)) {
                                part.fetch_add(1, Ordering::Relaxed);
                            }
                        };
                        share(&work, work);
                        assert!(done.iter().all(|part| part.load(Ordering::Relaxed) == 1), "{parts}");
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_owner_and_the_threads_help_again() {
        if std::thread::available_parallelism().map_or(1, usize::from) == 1 {
            return;
        }
        let one = || {
            let came = AtomicUsize::new(0);
            let help = || {
                came.fetch_add(1, Ordering::Relaxed);
                panic!("a helper is meant to fail");
            };
            share(&help, || {
                for _ in 0..10_000 {
                    if came.load(Ordering::Relaxed) == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        };
        for _ in 0..3 {
            // The helpers may be another test's for a while.
            while catch_unwind(one).is_ok() {}
        }
        let done = AtomicUsize::new(0);
        let count = || _ = done.fetch_add(1, Ordering::Relaxed);
        share(&count, count);
        assert!(done.into_inner() > 0);
    }
}
