//! State that writer and readers share through shared memory: the control page, which the writer alone can write, and a page of
//! leases for each column. A column is the place of a reader that can lease slots; this reader gets the page.
//!
//! Little endian, at fixed offsets. The writer never reads the control page back: it keeps its own record.
//!
//! | offset in the control page | what |
//! |---|---|
//! | 0 | magic `RCR1`, version u32, slots u32, residence u32 (0 shared, 1 cuda) |
//! | 16 | stride u64, epoch u64 |
//! | 32 | UUID of the device, 16 bytes |
//! | 48 | process id of the writer u32 |
//! | 128 + 64 s | slot s: generation u64 |
//! | 4096 + 1024 s | slot s: length u32 and text of the payload's descriptor |
//!
//! | offset in a page of leases | what |
//! |---|---|
//! | 0 | generation taken last, u64 |
//! | 64 + 8 s | slot s: the generation that is leased, u64; 0 if none is |

use super::memory::SharedMemory;
use super::{Descriptor, MAX_DESCRIPTOR, MAX_SLOTS, RingError};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::str::Utf8Error;
use std::sync::atomic::{AtomicU64, Ordering, fence};

const MAGIC: [u8; 4] = *b"RCR1";
const VERSION: u32 = 1;
const HEAD: usize = 64;
const SLOTS: usize = 128;
const LINE: usize = 64;
const DESCRIPTORS: usize = 4096;
const DESCRIPTOR: usize = 1024;
/// Bytes of a page of leases.
const LEASES: usize = 4096;
/// Value of `Leases::taken` for a column that is not in use: it counts as having taken every payload.
pub(super) const NOBODY: u64 = u64::MAX;

const _: () = assert!(SLOTS + MAX_SLOTS * LINE <= DESCRIPTORS && MAX_DESCRIPTOR + 4 <= DESCRIPTOR);
const _: () = assert!(LINE + 8 * MAX_SLOTS <= LEASES);

/// Head of a control page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub slots: usize,
    pub stride: usize,
    pub epoch: u64,
    pub pid: u32,
    /// The device; `None` for shared memory.
    pub uuid: Option<[u8; 16]>,
}

/// The control page of a ring, mapped.
pub(super) struct Control {
    memory: SharedMemory,
}

impl Control {
    /// Size of the control page of a ring with `slots` slots, bytes.
    pub(super) fn bytes(slots: usize) -> usize {
        DESCRIPTORS + slots * DESCRIPTOR
    }

    /// Writes the head of a new page, which is all zeros.
    pub(super) fn create(memory: SharedMemory, head: &Head) -> Self {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..12].copy_from_slice(&(head.slots as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::from(head.uuid.is_some()).to_le_bytes());
        bytes[16..24].copy_from_slice(&(head.stride as u64).to_le_bytes());
        bytes[24..32].copy_from_slice(&head.epoch.to_le_bytes());
        bytes[32..48].copy_from_slice(&head.uuid.unwrap_or_default());
        bytes[48..52].copy_from_slice(&head.pid.to_le_bytes());
        memory.write(0, &bytes);
        Self { memory }
    }

    /// The file of the page.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    /// Reads the head of a page that came from a writer, and checks that its size is right.
    pub(super) fn open(memory: SharedMemory, ring: &str) -> Result<(Self, Head), RingError> {
        let refused = |what: String| Err(RingError::protocol(ring, what));
        if memory.len() < DESCRIPTORS {
            return refused(format!("a control page of {} bytes came", memory.len()));
        }
        let mut bytes = [0; HEAD];
        memory.read(0, &mut bytes);
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[..4] != MAGIC || u32_at(4) != VERSION {
            return refused(format!(
                "a control page with {:?} version {} came",
                &bytes[..4],
                u32_at(4)
            ));
        }
        let slots = u32_at(8) as usize;
        if slots == 0 || slots > MAX_SLOTS || memory.len() < Self::bytes(slots) {
            return refused(format!(
                "a control page of {} bytes with {slots} slots came",
                memory.len()
            ));
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[32..48]);
        let head = Head {
            slots,
            stride: u64_at(16) as usize,
            epoch: u64_at(24),
            pid: u32_at(48),
            uuid: (u32_at(12) == 1).then_some(uuid),
        };
        Ok((Self { memory }, head))
    }

    /// Loads the generation of a slot, for a reader. Later reads get data of this generation or a newer one.
    pub(super) fn generation(&self, slot: usize) -> u64 {
        let generation = self.memory.atomic(SLOTS + slot * LINE).load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        generation
    }

    /// Stores the generation of a slot, for the writer.
    pub(super) fn set_generation(&self, slot: usize, generation: u64) {
        self.memory
            .atomic(SLOTS + slot * LINE)
            .store(generation, Ordering::SeqCst);
    }

    /// Writes the descriptor of a slot, which the writer has claimed.
    pub(super) fn set_descriptor(&self, slot: usize, text: &str) {
        let at = DESCRIPTORS + slot * DESCRIPTOR;
        let text = &text.as_bytes()[..text.len().min(MAX_DESCRIPTOR)];
        self.memory.write(at, &(text.len() as u32).to_le_bytes());
        self.memory.write(at + 4, text);
    }

    /// Copies the descriptor of a slot. The generation tells afterwards whether the copy is whole.
    pub(super) fn descriptor(&self, slot: usize) -> Result<Descriptor, Utf8Error> {
        let at = DESCRIPTORS + slot * DESCRIPTOR;
        let (mut len, mut text) = ([0; 4], [0; MAX_DESCRIPTOR]);
        self.memory.read(at, &mut len);
        self.memory.read(at + 4, &mut text);
        Descriptor::new(text, u32::from_le_bytes(len) as usize)
    }
}

/// The page of leases of a column, mapped. Writer and reader can both write it.
pub(super) struct Leases(SharedMemory);

impl Leases {
    /// Creates the page of a column that no reader has.
    pub(super) fn create() -> io::Result<Self> {
        let leases = Self(SharedMemory::create("robocache.leases", LEASES)?);
        leases.taken().store(NOBODY, Ordering::SeqCst);
        Ok(leases)
    }

    /// Maps a page that came from a writer.
    pub(super) fn open(file: OwnedFd, ring: &str) -> Result<Self, RingError> {
        let memory =
            SharedMemory::open(file, true).map_err(|error| RingError::os(ring, "its leases can't be mapped", error))?;
        match memory.len() {
            LEASES.. => Ok(Self(memory)),
            bytes => Err(RingError::protocol(
                ring,
                format!("a page of leases of {bytes} bytes came"),
            )),
        }
    }

    /// The file of the page.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    /// The newest generation that was taken, [`NOBODY`] if nobody has the column.
    pub(super) fn taken(&self) -> &AtomicU64 {
        self.0.atomic(0)
    }

    /// The generation of a slot that is leased, 0 if the slot is not leased.
    pub(super) fn lease(&self, slot: usize) -> &AtomicU64 {
        self.0.atomic(LINE + 8 * slot)
    }

    /// Clears all leases, and gives the column to a reader, with `taken` 0, or to nobody, with `NOBODY`.
    pub(super) fn reset(&self, taken: u64) {
        (0..MAX_SLOTS).for_each(|slot| self.lease(slot).store(0, Ordering::SeqCst));
        self.taken().store(taken, Ordering::SeqCst);
    }
}
