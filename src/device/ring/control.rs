//! The control page: what writer and readers tell each other through shared memory.
//!
//! Little endian, at fixed offsets. The writer alone writes the head and the generations, and never reads them back: it
//! keeps its own. A reader writes the leases of its column, and which generation it took last.
//!
//! | offset | what |
//! |---|---|
//! | 0 | magic `RCR1`, version u32, slots u32, residence u32 (0 shared, 1 cuda) |
//! | 16 | stride u64, epoch u64 |
//! | 32 | UUID of the device, 16 bytes |
//! | 48 | process id of the writer u32 |
//! | 64 | generation taken last, u64 for each column |
//! | 128 + 64 s | slot s: generation u64, lease u64 for each column |
//! | 4096 + 1024 s | slot s: length u32 and text of the payload's descriptor |

use super::memory::SharedMemory;
use super::{Descriptor, MAX_CONSUMERS, MAX_DESCRIPTOR, MAX_SLOTS, RingError};
use std::str::Utf8Error;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: [u8; 4] = *b"RCR1";
const VERSION: u32 = 1;
const TAKEN: usize = 64;
const SLOTS: usize = 128;
const LINE: usize = 64;
const DESCRIPTORS: usize = 4096;
const DESCRIPTOR: usize = 1024;
/// A column that waits for nothing: it is not in use.
pub const NOBODY: u64 = u64::MAX;

const _: () = assert!(SLOTS + MAX_SLOTS * LINE <= DESCRIPTORS && MAX_DESCRIPTOR + 4 <= DESCRIPTOR);
const _: () = assert!(8 * (1 + MAX_CONSUMERS) <= LINE);

/// What the head says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub slots: usize,
    pub stride: usize,
    pub epoch: u64,
    pub pid: u32,
    /// The device; `None` for shared memory.
    pub uuid: Option<[u8; 16]>,
}

/// The control page of a ring, mapped.
pub struct Control {
    memory: SharedMemory,
    slots: usize,
}

impl Control {
    /// Bytes of the page of a ring of so many slots.
    pub fn bytes(slots: usize) -> usize {
        DESCRIPTORS + slots * DESCRIPTOR
    }

    /// Writes the head of a new page, all zeros.
    pub fn create(memory: SharedMemory, head: &Head) -> Self {
        let mut bytes = [0; TAKEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..12].copy_from_slice(&(head.slots as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::from(head.uuid.is_some()).to_le_bytes());
        bytes[16..24].copy_from_slice(&(head.stride as u64).to_le_bytes());
        bytes[24..32].copy_from_slice(&head.epoch.to_le_bytes());
        bytes[32..48].copy_from_slice(&head.uuid.unwrap_or_default());
        bytes[48..52].copy_from_slice(&head.pid.to_le_bytes());
        memory.write(0, &bytes);
        let control = Self {
            memory,
            slots: head.slots,
        };
        (0..MAX_CONSUMERS).for_each(|column| control.taken(column).store(NOBODY, Ordering::SeqCst));
        control
    }

    /// Reads the head of a page that came from a writer, and checks that its size is right.
    pub fn open(memory: SharedMemory, ring: &str) -> Result<(Self, Head), RingError> {
        let refused = |what: String| {
            Err(RingError::Protocol {
                ring: ring.to_owned(),
                what,
            })
        };
        if memory.len() < DESCRIPTORS {
            return refused(format!("a control page of {} bytes came", memory.len()));
        }
        let mut bytes = [0; TAKEN];
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
        Ok((Self { memory, slots }, head))
    }

    /// How many slots the ring has.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The generation of a slot.
    pub fn generation(&self, slot: usize) -> &AtomicU64 {
        self.memory.atomic(SLOTS + slot * LINE)
    }

    /// The generation that a column leases of a slot, 0 where it does not.
    pub fn lease(&self, slot: usize, column: usize) -> &AtomicU64 {
        assert!(column < MAX_CONSUMERS, "column {column}");
        self.memory.atomic(SLOTS + slot * LINE + 8 * (1 + column))
    }

    /// The newest generation that a column has taken, [`NOBODY`] where nobody has the column.
    pub fn taken(&self, column: usize) -> &AtomicU64 {
        assert!(column < MAX_CONSUMERS, "column {column}");
        self.memory.atomic(TAKEN + 8 * column)
    }

    /// Writes the descriptor of a slot, which the writer has claimed.
    pub fn set_descriptor(&self, slot: usize, text: &str) {
        let at = DESCRIPTORS + slot * DESCRIPTOR;
        let text = &text.as_bytes()[..text.len().min(MAX_DESCRIPTOR)];
        self.memory.write(at, &(text.len() as u32).to_le_bytes());
        self.memory.write(at + 4, text);
    }

    /// The descriptor of a slot: the generation tells whether it was whole.
    pub fn descriptor(&self, slot: usize) -> Result<Descriptor, Utf8Error> {
        let at = DESCRIPTORS + slot * DESCRIPTOR;
        let (mut len, mut text) = ([0; 4], [0; MAX_DESCRIPTOR]);
        self.memory.read(at, &mut len);
        self.memory.read(at + 4, &mut text);
        Descriptor::new(text, u32::from_le_bytes(len) as usize)
    }
}
