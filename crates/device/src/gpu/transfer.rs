//! Copies between a device and host memory that is not page-locked.
//!
//! A device copies page-locked memory by itself (DMA). Pageable memory goes through a staging buffer of page-locked chunks, which
//! are used in turn. The driver would do that, too, but on one core, which takes several times as long as the copy by the device.
//! Here several threads copy the pieces of a chunk while the device copies other chunks. Only the caller's thread calls the driver.
//! A chunk is written again only after its last copy has ended.

use super::driver::Address;
use super::error::DeviceFault;
use super::event::Event;
use super::helpers;
use super::pinned::PinnedBuf;
use super::stream::Stream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Size of a piece, which a thread copies at a time, bytes.
const PIECE: usize = 128 << 10;
const PIECES: usize = 4;

/// Size of a chunk, which the device copies at a time, bytes. Each chunk costs some calls of the driver.
const CHUNK: usize = PIECES * PIECE;

/// Number of chunks in the staging buffer, which is 4 MiB in all.
const CHUNKS: usize = 8;

/// Largest number of chunks by which their producer may be ahead of their consumer. In an upload threads fill chunks and the device
/// empties them; in a download the device fills chunks.
const AHEAD: usize = 3;

/// Largest copy, in chunks, that the calling thread does alone, since waking other threads would take longer.
const ALONE: usize = 1;

/// Largest size, bytes, of a copy that goes through the driver instead of the staging buffer, as the driver is as fast.
pub(super) const SMALL_BYTES: usize = 128 << 10;

/// Staging buffer of a stream: page-locked chunks that are reused. One copy at a time uses the buffer.
pub(super) struct Transfer(Mutex<Ring>);

struct Ring {
    stream: Arc<Stream>,
    memory: PinnedBuf,
    slots: [Slot; CHUNKS],
    /// Index of the slot for the first chunk of the next copy.
    first: usize,
}

/// State of one chunk of the staging buffer: whether the device still uses its memory.
struct Slot {
    /// Event at the end of the device's last copy from the chunk or to it.
    copied: Event,
    /// True if the event `copied` has not been waited for yet.
    is_busy: bool,
}

/// Range of device memory to download, and the host memory that the range goes to. Not a piece of a chunk.
pub(super) struct Piece {
    pub from: Address,
    pub to: *mut u8,
    pub bytes: usize,
}

// SAFETY: it stands for a `&mut [u8]`, of which no two threads write the same part.
unsafe impl Sync for Piece {}

/// Memory of the staging buffer during one copy, and the slot of the copy's first chunk.
#[derive(Clone, Copy)]
struct Chunks {
    memory: *mut u8,
    first: usize,
}

// SAFETY: the users of a part take turns, by the counts in `Shared`.
unsafe impl Sync for Chunks {}

impl Chunks {
    /// Returns `bytes` bytes of a chunk, from its byte `at` on.
    ///
    /// # Safety
    /// These bytes are within the chunk, and nobody else uses them while the slice is borrowed.
    #[expect(clippy::mut_from_ref, reason = "parts of it are lent, as the caller promises")]
    unsafe fn part(&self, chunk: usize, at: usize, bytes: usize) -> &mut [u8] {
        let slot = (self.first + chunk) % CHUNKS;
        // SAFETY: the caller's promise; the ring outlives the copy.
        unsafe { std::slice::from_raw_parts_mut(self.memory.add(slot * CHUNK + at), bytes) }
    }
}

impl Transfer {
    /// Allocates the chunks of a stream.
    ///
    /// # Errors
    /// No page-locked memory is left; the driver's error otherwise.
    pub(super) fn new(stream: &Arc<Stream>) -> Result<Self, DeviceFault> {
        let mut memory = PinnedBuf::of(stream);
        memory.resize(CHUNKS * CHUNK)?;
        let mut slots = Vec::with_capacity(CHUNKS);
        for _ in 0..CHUNKS {
            slots.push(Slot {
                copied: Event::new(stream, false)?,
                is_busy: false,
            });
        }
        let Ok(slots) = slots.try_into() else {
            unreachable!("as many as there are chunks")
        };
        Ok(Self(Mutex::new(Ring {
            stream: stream.clone(),
            memory,
            slots,
            first: 0,
        })))
    }

    /// Enqueues an upload of `bytes` bytes, which `make` computes, to the address `to` of a buffer that the caller borrows. The
    /// function `make` gets the offset of a first byte in the upload, and the memory for whole rows of `row` bytes from there on.
    /// Every call of `make` has ended on return.
    pub(super) fn upload(
        &self,
        to: Address,
        (bytes, row): (usize, usize),
        make: &(dyn Fn(usize, &mut [u8]) + Sync),
    ) -> Result<(), DeviceFault> {
        assert!((1..=PIECE).contains(&row), "rows of {row} bytes, in pieces of {PIECE}");
        let piece = PIECE / row * row;
        let chunk_bytes = PIECES * piece;
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let chunks = ring.begin();
        let count = bytes.div_ceil(chunk_bytes);
        let fill = |chunk: usize, number: usize| {
            let at = number * piece;
            let first = chunk * chunk_bytes + at;
            if let Some(left) = bytes.checked_sub(first).filter(|&left| left > 0) {
                // SAFETY: the device is done with the chunk, and each piece is filled once.
                make(first, unsafe { chunks.part(chunk, at, left.min(piece)) });
            }
        };
        let shared = Shared::new(count, &fill);
        let stream = ring.stream.clone();
        ring.run(&shared, count > ALONE, |ring| {
            let mut piece = shared.take();
            let mut open = 0;
            for chunk in 0..count {
                while open < count.min(chunk + AHEAD + 1) {
                    ring.wait(open)?;
                    open += 1;
                    shared.open(open);
                }
                shared.copy_until(chunk + 1, &mut piece);
                shared.wait_for(chunk);
                let first = chunk * chunk_bytes;
                let bytes = chunk_bytes.min(bytes - first);
                // SAFETY: the chunk is whole, and is written again once it was waited for; the buffer is borrowed.
                ring.enqueue(chunk, || unsafe {
                    stream.upload(to.offset(first), chunks.part(chunk, 0, bytes))
                })?;
            }
            Ok(())
        })?;
        ring.first = (ring.first + count) % CHUNKS;
        Ok(())
    }

    /// Copies each of the ranges `pieces` from the device to host memory. All bytes have been copied on return.
    ///
    /// # Safety
    /// The bytes of each piece are on the device, and there is room for them at `to`, which nobody else uses.
    pub(super) unsafe fn download(&self, pieces: &[Piece]) -> Result<(), DeviceFault> {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let chunks = ring.begin();
        let count = pieces.iter().map(|piece| piece.bytes.div_ceil(CHUNK)).sum();
        let empty = |chunk: usize, number: usize| {
            let (piece, first, bytes) = locate(pieces, chunk);
            let at = number * PIECE;
            if let Some(left) = bytes.checked_sub(at) {
                let bytes = left.min(PIECE);
                // SAFETY: the device is done with the chunk; the rest is the caller's promise; each piece is emptied once.
                unsafe {
                    let from = chunks.part(chunk, at, bytes).as_ptr();
                    std::ptr::copy_nonoverlapping(from, piece.to.add(first + at), bytes);
                }
            }
        };
        let shared = Shared::new(count, &empty);
        let (mut enqueued, stream) = (0, ring.stream.clone());
        let mut enqueue_until = |ring: &mut Ring, until: usize| {
            while enqueued < count.min(until) {
                if let Some(before) = enqueued.checked_sub(CHUNKS) {
                    shared.wait_for(before);
                }
                ring.wait(enqueued)?;
                let (piece, first, bytes) = locate(pieces, enqueued);
                // SAFETY: the chunk is read, and written again, once it was waited for.
                ring.enqueue(enqueued, || unsafe {
                    stream.download(piece.from.offset(first), chunks.part(enqueued, 0, bytes))
                })?;
                enqueued += 1;
            }
            Ok(())
        };
        // The kernels before the copy may take long: threads are woken when there is something for them to do.
        let first_arrived = enqueue_until(&mut ring, AHEAD).and_then(|()| ring.wait(0));
        ring.run(&shared, first_arrived.is_ok() && count > ALONE, |ring| {
            first_arrived?;
            let mut piece = shared.take();
            for chunk in 0..count {
                enqueue_until(ring, chunk + AHEAD)?;
                ring.wait(chunk)?;
                shared.open(chunk + 1);
                shared.copy_until(chunk + 1, &mut piece);
            }
            for chunk in count.saturating_sub(CHUNKS)..count {
                shared.wait_for(chunk);
            }
            Ok(())
        })
    }
}

impl Ring {
    fn begin(&mut self) -> Chunks {
        Chunks {
            memory: self.memory.bytes_mut().as_mut_ptr(),
            first: self.first,
        }
    }

    /// Runs the caller's part of a copy, `own`. If `wide`, the helper threads copy pieces of `shared` at the same time.
    fn run(
        &mut self,
        shared: &Shared<'_>,
        wide: bool,
        own: impl FnOnce(&mut Self) -> Result<(), DeviceFault>,
    ) -> Result<(), DeviceFault> {
        let own = || {
            let _end = EndOnDrop(shared);
            own(self)
        };
        let copied = if wide {
            helpers::share(&|| shared.help(), own)
        } else {
            own()
        };
        if copied.is_err() {
            // The device may still be copying a chunk whose event could not be recorded.
            let _ = self.stream.synchronize();
        }
        copied
    }

    fn slot(&mut self, chunk: usize) -> &mut Slot {
        &mut self.slots[(self.first + chunk) % CHUNKS]
    }

    /// Waits until the device is done with a chunk.
    fn wait(&mut self, chunk: usize) -> Result<(), DeviceFault> {
        let slot = self.slot(chunk);
        if slot.is_busy {
            slot.copied.wait()?;
            slot.is_busy = false;
        }
        Ok(())
    }

    /// Calls `copy`, which enqueues the device's copy of a chunk, and records an event at the end of that copy.
    fn enqueue(&mut self, chunk: usize, copy: impl FnOnce() -> Result<(), DeviceFault>) -> Result<(), DeviceFault> {
        let slot = self.slot(chunk);
        slot.is_busy = true;
        copy()?;
        slot.copied.record()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for chunk in 0..CHUNKS {
            // There is nobody to tell of a failure.
            let _ = self.wait(chunk);
        }
    }
}

/// A copy under way, whose pieces several threads take in turn.
struct Shared<'a> {
    pieces: usize,
    /// Function that copies a piece, given the index of its chunk, and the index of the piece in the chunk.
    copy: &'a (dyn Fn(usize, usize) + Sync),
    /// Index of the next piece to take.
    next: AtomicUsize,
    /// Pieces with an index below this number may be copied; `ENDED` once the caller has finished or failed.
    open: AtomicUsize,
    /// Number of pieces that have been copied so far, for each slot of the staging buffer.
    copied: [AtomicUsize; CHUNKS],
}

/// Value of [`Shared::open`] once the caller has finished or failed: helper threads copy no more pieces.
const ENDED: usize = usize::MAX;

/// Guard that, when dropped, stops the helper threads, even if the caller fails. They copy no piece that was not open before.
struct EndOnDrop<'a, 'b>(&'a Shared<'b>);

impl Drop for EndOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.open.store(ENDED, Ordering::Relaxed);
    }
}

/// Guard that counts a piece as copied when dropped, even if the copy panics, so that no thread waits for the piece for ever.
struct CountOnDrop<'a>(&'a AtomicUsize);

impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl<'a> Shared<'a> {
    fn new(chunks: usize, copy: &'a (dyn Fn(usize, usize) + Sync)) -> Self {
        Self {
            pieces: chunks * PIECES,
            copy,
            next: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            copied: Default::default(),
        }
    }

    fn take(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn copy(&self, piece: usize) {
        let chunk = piece / PIECES;
        let _count = CountOnDrop(&self.copied[chunk % CHUNKS]);
        (self.copy)(chunk, piece % PIECES);
    }

    /// Allows threads to copy all chunks with an index below `chunk`.
    fn open(&self, chunk: usize) {
        self.open.store(chunk * PIECES, Ordering::Release);
    }

    /// Copies `piece`, and further pieces that it takes, up to the end of the chunk before `chunk`. Leaves in `piece` the first
    /// piece that was taken but not copied.
    fn copy_until(&self, chunk: usize, piece: &mut usize) {
        while *piece < chunk * PIECES {
            self.copy(*piece);
            *piece = self.take();
        }
    }

    /// Waits until all pieces of a chunk are copied.
    fn wait_for(&self, chunk: usize) {
        let all = (chunk / CHUNKS + 1) * PIECES;
        wait_until(|| self.copied[chunk % CHUNKS].load(Ordering::Acquire) >= all);
    }

    /// Takes and copies pieces until no piece is left, or the caller has finished or failed.
    fn help(&self) {
        loop {
            let piece = self.take();
            if piece >= self.pieces {
                return;
            }
            let mut open = 0;
            wait_until(|| {
                open = self.open.load(Ordering::Acquire);
                open > piece
            });
            if open == ENDED {
                return;
            }
            self.copy(piece);
        }
    }
}

/// Waits until another thread has made `is_so` true. That takes microseconds if every thread has a core.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    const SPINS: usize = 200;
    let mut spins = 0;
    while !is_so() {
        spins += 1;
        if spins < SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// Returns the element of `pieces` that a chunk of the download belongs to, the offset of the chunk in that element, and the
/// chunk's size, in bytes.
fn locate(pieces: &[Piece], mut chunk: usize) -> (&Piece, usize, usize) {
    for piece in pieces {
        let chunks = piece.bytes.div_ceil(CHUNK);
        if chunk < chunks {
            let first = chunk * CHUNK;
            return (piece, first, CHUNK.min(piece.bytes - first));
        }
        chunk -= chunks;
    }
    unreachable!("there are as many chunks as the pieces have")
}
