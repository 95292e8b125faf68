//! Copies between a device and host memory that is not page-locked.
//!
//! A device copies page-locked memory by itself (DMA). Other memory goes through a ring of page-locked chunks. The driver would do
//! that, too, but on one core, which takes several times as long as the copy by the device. Here threads share the pieces of a
//! chunk while the device copies other chunks. One thread alone, the caller, talks to the driver.

use super::driver::Address;
use super::error::DeviceFault;
use super::event::Event;
use super::helpers;
use super::pinned::PinnedBuf;
use super::stream::Stream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that a thread copies at a time.
const PIECE: usize = 128 << 10;
const PIECES: usize = 4;

/// Bytes that the device copies at a time. Each chunk costs some calls of the driver.
const CHUNK: usize = PIECES * PIECE;

/// Number of chunks in a ring: 4 MiB in all.
const CHUNKS: usize = 8;

/// Number of chunks that the side which fills them, device or threads, may be ahead of the side which empties them.
const AHEAD: usize = 3;

/// Greatest number of chunks for which waking other threads does not pay.
const ALONE: usize = 1;

/// Greatest size, bytes, for which the driver's own copy is as quick.
pub(super) const SMALL_BYTES: usize = 128 << 10;

/// The page-locked chunks of a stream, used again and again. One copy at a time uses them.
pub(super) struct Transfer(Mutex<Ring>);

struct Ring {
    stream: Arc<Stream>,
    memory: PinnedBuf,
    slots: [Slot; CHUNKS],
    /// The slot of the first chunk of the next copy.
    first: usize,
}

/// State of a chunk of the ring: the device's use of it.
struct Slot {
    /// Event at the end of the device's last copy from the chunk or to it.
    copied: Event,
    /// True if nobody has waited for this event yet.
    is_busy: bool,
}

/// Bytes of a device, and the host memory that they go to.
pub(super) struct Piece {
    pub from: Address,
    pub to: *mut u8,
    pub bytes: usize,
}

// SAFETY: it stands for a `&mut [u8]`, of which no two threads write the same part.
unsafe impl Sync for Piece {}

/// The memory of a ring, and the slot of the chunk that a copy begins with.
#[derive(Clone, Copy)]
struct Chunks {
    memory: *mut u8,
    first: usize,
}

// SAFETY: the users of a part take turns, by the counts in `Shared`.
unsafe impl Sync for Chunks {}

impl Chunks {
    /// The `bytes` bytes of a chunk from byte `at` on.
    ///
    /// # Safety
    /// They are in the chunk, and nobody else uses them meanwhile.
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

    /// Enqueues a copy of `bytes` bytes to a buffer, which the caller borrows. The function `make` writes them in rows of `row`
    /// bytes, and gets the index of the first byte. All rows are made on return.
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

    /// Copies bytes of the device to the host. They are there on return.
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

    /// Runs the caller's part of a copy, with the help of other threads if it is `wide`.
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

    /// Enqueues the device's copy of a chunk, and records its end.
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

/// A copy whose pieces several threads take in turn.
struct Shared<'a> {
    pieces: usize,
    /// Copies a piece: takes the chunk, and the number of the piece in it.
    copy: &'a (dyn Fn(usize, usize) + Sync),
    /// The next piece to take.
    next: AtomicUsize,
    /// Pieces before this one may be copied.
    open: AtomicUsize,
    /// Number of pieces that have been copied, for each slot of the ring.
    copied: [AtomicUsize; CHUNKS],
}

/// Value of [`Shared::open`] once the caller has left.
const ENDED: usize = usize::MAX;

/// Guard that sends the other threads away when it is dropped, even if the caller fails. They do not copy a piece that is not open
/// by then.
struct EndOnDrop<'a, 'b>(&'a Shared<'b>);

impl Drop for EndOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.open.store(ENDED, Ordering::Relaxed);
    }
}

/// Guard that counts a piece when it is dropped, even if the copy panics, so that nobody waits for the piece for ever.
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

    /// Allows threads to copy the chunks before this one.
    fn open(&self, chunk: usize) {
        self.open.store(chunk * PIECES, Ordering::Release);
    }

    /// Takes and copies pieces until `piece`, which is taken already, is of this chunk or a later one.
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

    /// Takes and copies pieces until no piece is left, or the caller has left.
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

/// Waits for another thread: microseconds, unless cores are short.
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

/// Returns the piece that a chunk belongs to, the chunk's first byte in the piece, and its number of bytes.
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
