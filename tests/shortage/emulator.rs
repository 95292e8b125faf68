//! Calls of a GPU driver that the emulator is told to refuse.

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

/// The emulator, which one test has at a time, since the whole process shares it.
pub struct Emulator {
    refuse: Refuse,
    _one: MutexGuard<'static, ()>,
}

/// Kind of calls that allocate memory.
pub const ALLOCATION: c_int = 0;
/// Kind of calls that copy.
pub const COPY: c_int = 1;
/// Kind of calls that launch a kernel.
pub const LAUNCH: c_int = 2;

/// Count for `refuse`: a single call.
pub const ONE: u64 = 1;
/// Count for `refuse`: all calls from the first one on.
pub const ALL: u64 = 0;

/// Name of the library by which the emulator stands for a vendor's driver.
fn library_of(kind: Kind) -> &'static CStr {
    match kind {
        Kind::Cuda => c"libcuda.so.1",
        Kind::Hip => c"libamdhip64.so.6",
    }
}

impl Emulator {
    /// Opens the emulator; `None` if the driver is another one or missing.
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

    /// Refuses `count` calls of a kind, from the `first`-th from now on. Returns how many were refused since the last call of this
    /// function.
    pub fn refuse(&self, call_kind: c_int, first: u64, count: u64) -> c_int {
        // SAFETY: it only sets numbers.
        unsafe { (self.refuse)(call_kind, first, count) }
    }

    /// Plays a case for every `step`-th call of each kind: that call is refused, or all calls from it on. Returns the number of
    /// cases. The arguments of `play` are those of `refuse`. It returns the number of refused calls; after 0 the next kind of calls
    /// follows.
    pub fn sweep(&self, step: usize, mut play: impl FnMut(c_int, u64, u64) -> c_int) -> usize {
        let kinds = [
            (ALLOCATION, ONE),
            (ALLOCATION, ALL),
            (COPY, ONE),
            (LAUNCH, ONE),
            (LAUNCH, ALL),
        ];
        let of_kind = |(call_kind, count)| {
            let firsts = (1..).step_by(step);
            firsts.take_while(|&first| play(call_kind, first, count) != 0).count()
        };
        kinds.into_iter().map(of_kind).sum()
    }
}
