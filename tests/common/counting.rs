//! An allocator that counts what each thread allocates and holds.

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST_HELD: Cell<isize> = const { Cell::new(0) };
}

static OF_ALL: AtomicU64 = AtomicU64::new(0);

fn count() {
    OF_ALL.fetch_add(1, Relaxed);
    // The counter is gone while its thread ends, when nobody counts any more.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

fn hold(bytes: isize) {
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST_HELD.try_with(|most| most.set(most.get().max(held.get())));
    });
}

/// Returns the number of allocations that this thread has made so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Returns the number of allocations that all threads of the process have made so far.
pub fn allocations_of_all() -> u64 {
    OF_ALL.load(Relaxed)
}

/// Returns the bytes that this thread has allocated, less those that it has freed.
pub fn held() -> isize {
    HELD.with(Cell::get)
}

/// Returns the peak of `held()` since the last [reset](reset_most_held).
pub fn most_held() -> isize {
    MOST_HELD.with(Cell::get)
}

pub fn reset_most_held() {
    MOST_HELD.set(held());
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        count();
        hold(block.size() as isize);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, at: *mut u8, block: Block) {
        hold(-(block.size() as isize));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, block) }
    }

    unsafe fn realloc(&self, at: *mut u8, block: Block, size: usize) -> *mut u8 {
        count();
        // The old and the new block exist side by side while the bytes are copied.
        hold(size as isize);
        hold(-(block.size() as isize));
        // SAFETY: as the caller promised.
        unsafe { System.realloc(at, block, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
