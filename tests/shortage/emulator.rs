//! Failures that the emulator is told to cause.

use crate::common::kind::kind;
use robocache::device::gpu::{Kind, device_count};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `emulatorRefuse` of tests/emulator/driver.cpp.
type Refuse = unsafe extern "C" fn(c_int, u64, u64) -> c_int;

/// The emulator, which one test has at a time: all of a process share it.
pub struct Emulator {
    refuse: Refuse,
    _one: MutexGuard<'static, ()>,
}

/// Kinds of calls that it can be told to refuse.
pub const ALLOCATION: c_int = 0;
pub const COPY: c_int = 1;
pub const LAUNCH: c_int = 2;

/// In a row, from the one that is meant on.
pub const ONE: u64 = 1;
pub const ALL: u64 = 0;

/// The library that the emulator is by a vendor's calls.
fn library_of(kind: Kind) -> &'static CStr {
    match kind {
        Kind::Cuda => c"libcuda.so.1",
        Kind::Hip => c"libamdhip64.so.6",
    }
}

impl Emulator {
    /// Nothing if the driver is another one, or none.
    pub fn open() -> Option<Self> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        device_count(kind()).ok()?;
        const NOW: c_int = 2;
        let symbol = |library, name: &CStr| {
            // SAFETY: the library is loaded already, and stays.
            unsafe { dlsym(library, name.as_ptr()) }
        };
        // SAFETY: it is the driver that was loaded above.
        let library = unsafe { dlopen(library_of(kind()).as_ptr(), NOW) };
        let refuse = symbol(library, c"emulatorRefuse");
        if refuse.is_null() {
            eprintln!("skipped: this driver refuses nothing on demand");
            return None;
        }
        Some(Self {
            // SAFETY: the function is of this type.
            refuse: unsafe { std::mem::transmute::<*mut c_void, Refuse>(refuse) },
            _one: one,
        })
    }

    /// Refuses `count` calls of a kind, from the `first`-th from now on. Returns the number of calls since the last
    /// time.
    pub fn refuse(&self, asked: c_int, first: u64, count: u64) -> c_int {
        // SAFETY: it only sets numbers.
        unsafe { (self.refuse)(asked, first, count) }
    }

    /// Plays a case for each refusal in turn, of each kind of call, and gives how many there were. `play` is told the kind,
    /// which call is the first and how many are refused, and says how many were: none ends the kind. Every `step`-th call
    /// is the first one once.
    pub fn sweep(&self, step: usize, mut play: impl FnMut(c_int, u64, u64) -> c_int) -> usize {
        let kinds = [
            (ALLOCATION, ONE),
            (ALLOCATION, ALL),
            (COPY, ONE),
            (LAUNCH, ONE),
            (LAUNCH, ALL),
        ];
        let of_kind = |(asked, count)| {
            let firsts = (1..).step_by(step);
            firsts.take_while(|&first| play(asked, first, count) != 0).count()
        };
        kinds.into_iter().map(of_kind).sum()
    }
}
