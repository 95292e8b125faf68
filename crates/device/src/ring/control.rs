//! State that writer and readers share through shared memory: the control page, which the writer alone can write, and a page of
//! leases for each reader that can lease slots. In the code the index of such a reader is its `column`.
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
/// Size of a page of leases, bytes.
const LEASES: usize = 4096;
/// Value of `Leases::taken` for a page of leases that no reader has: the page counts as if every payload were taken.
pub(super) const NOBODY: u64 = u64::MAX;

const _: () = assert!(SLOTS + MAX_SLOTS * LINE <= DESCRIPTORS && MAX_DESCRIPTOR + 4 <= DESCRIPTOR);
const _: () = assert!(LINE + 8 * MAX_SLOTS <= LEASES);

/// Fields at the beginning of a control page, which a reader needs to map the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub slots: usize,
    pub stride: usize,
    pub epoch: u64,
    pub pid: u32,
    /// UUID of the device that holds the slots; `None` for shared memory.
    pub uuid: Option<[u8; 16]>,
}

/// Mapping of a ring's control page, which the writer's process alone can write.
pub(super) struct Control {
    memory: SharedMemory,
}

impl Control {
    /// Size of the control page of a ring with `slots` slots, bytes.
    pub(super) fn bytes(slots: usize) -> usize {
        DESCRIPTORS + slots * DESCRIPTOR
    }

    /// Writes `head` to a new control page, whose memory must be all zeros.
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

    /// Descriptor by which another process maps the page.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    /// Reads the head of a control page that a writer sent, and checks its magic, version and size.
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

    /// Loads the generation of a slot, for a reader. Later reads of the slot get data of this generation or a newer one.
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

    /// Writes `text`, which describes the payload, to the control page, for a slot that the writer has claimed.
    pub(super) fn set_descriptor(&self, slot: usize, text: &str) {
        let at = DESCRIPTORS + slot * DESCRIPTOR;
        let text = &text.as_bytes()[..text.len().min(MAX_DESCRIPTOR)];
        self.memory.write(at, &(text.len() as u32).to_le_bytes());
        self.memory.write(at + 4, text);
    }

    /// Copies the text that describes the payload in a slot. The writer may change the text meanwhile: the caller has to compare
    /// the slot's generation afterwards.
    pub(super) fn descriptor(&self, slot: usize) -> Result<Descriptor, Utf8Error> {
        let at = DESCRIPTORS + slot * DESCRIPTOR;
        let (mut len, mut text) = ([0; 4], [0; MAX_DESCRIPTOR]);
        self.memory.read(at, &mut len);
        self.memory.read(at + 4, &mut text);
        Descriptor::new(text, u32::from_le_bytes(len) as usize)
    }
}

/// Mapping of one reader's page of leases, which the writer and this reader can both write.
pub(super) struct Leases(SharedMemory);

impl Leases {
    /// Creates a page of leases that no reader has yet.
    pub(super) fn create() -> io::Result<Self> {
        let leases = Self(SharedMemory::create("robocache.leases", LEASES)?);
        leases.taken().store(NOBODY, Ordering::SeqCst);
        Ok(leases)
    }

    /// Maps a page of leases that a writer sent.
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

    /// Descriptor by which another process maps the page.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    /// Newest generation that the reader of this page has taken; [`NOBODY`] if no reader has the page.
    pub(super) fn taken(&self) -> &AtomicU64 {
        self.0.atomic(0)
    }

    /// Generation that the reader of this page leases in `slot`; 0 if the reader does not lease the slot.
    pub(super) fn lease(&self, slot: usize) -> &AtomicU64 {
        self.0.atomic(LINE + 8 * slot)
    }

    /// Clears all leases of the page, and sets `taken`: 0 for a new reader, `NOBODY` if no reader has the page.
    pub(super) fn reset(&self, taken: u64) {
        (0..MAX_SLOTS).for_each(|slot| self.lease(slot).store(0, Ordering::SeqCst));
        self.taken().store(taken, Ordering::SeqCst);
    }
}
