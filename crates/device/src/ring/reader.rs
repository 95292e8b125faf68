//! Reader of a ring: maps the ring once, and takes payloads in place. A payload counts only if its slot has the ticket's generation
//! after the lease was stored, and again after the bytes were read.

use super::control::{Control, Head, Leases};
use super::memory::SharedMemory;
use super::server::{Client, Request};
use super::slots::Slots;
use super::{Descriptor, RingError, Ticket};
use crate::gpu::{DeviceBuf, DeviceFault, DevicePtr, Gpu};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// Numbers of payloads that a reader has taken or missed since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounters {
    /// Number of payloads that were taken.
    pub taken: u64,
    /// Number of payloads that were overwritten before they were taken.
    pub stale: u64,
    /// Number of payloads that were overwritten while they were read or used.
    pub torn: u64,
}

/// Reader of a ring, which takes payloads that another process, or this one, publishes. Clones share the mapping and the counts.
#[derive(Clone)]
pub struct RingReader(Arc<MappedRing>);

struct MappedRing {
    name: String,
    head: Head,
    control: Control,
    slots: Slots,
    /// Page of leases; `None` if [`MAX_CONSUMERS`](super::MAX_CONSUMERS) other readers have one, so that payloads can be read but
    /// not held.
    leases: Option<Leases>,
    /// Id of the process that opened the ring. Only this process may lease slots; a forked process shares all other fields.
    pid: u32,
    client: Client,
    /// Number of times that each slot is held in this process, so that the last holder gives up the lease.
    held: Mutex<Vec<u32>>,
    taken: AtomicU64,
    stale: AtomicU64,
    torn: AtomicU64,
}

/// Memory of a payload in its slot, without a copy.
#[derive(Clone, Copy)]
pub enum SlotMemory<'a> {
    /// Shared memory of the host, which the producer may write at any time.
    Shared(&'a [AtomicU8]),
    /// Address of the payload in the memory of the ring's device.
    Device(DevicePtr<'a>),
}

impl RingReader {
    /// Connects to the producer of `ring`, waiting up to 5 s for its answer, and maps the ring. If the ring is on a device, `gpu`
    /// must be that device.
    ///
    /// # Errors
    /// Any [`RingError`] but those of [`take`](Self::take).
    pub fn open(ring: &str, gpu: Option<&Gpu>) -> Result<Self, RingError> {
        Self::open_with(ring, |uuid| {
            gpu.filter(|gpu| gpu.uuid().is_ok_and(|own| own == uuid)).cloned()
        })
    }

    /// Does what [`open`](Self::open) does. If the ring is on a device, `gpu` is called with the device's UUID to open the device.
    pub(super) fn open_with(ring: &str, gpu: impl FnOnce([u8; 16]) -> Option<Gpu>) -> Result<Self, RingError> {
        let welcome = Client::connect(ring, Request::Map)?;
        let mut files = welcome.files.into_iter();
        let (Some(page), Some(file)) = (files.next(), files.next()) else {
            return Err(RingError::no_descriptors(ring));
        };
        let mapped = |error| RingError::os(ring, "it can't be mapped", error);
        let (control, head) = Control::open(SharedMemory::open(page, false).map_err(mapped)?, ring)?;
        let leases = match welcome.column {
            Some(_) => files.next().map(|file| Leases::open(file, ring)).transpose()?,
            None => None,
        };
        let bytes = head.slots.saturating_mul(head.stride);
        let slots = match head.uuid {
            None => Slots::Shared(SharedMemory::open(file, false).map_err(mapped)?),
            Some(uuid) => {
                let Some(gpu) = gpu(uuid) else {
                    return Err(RingError::OtherDevice {
                        ring: ring.to_owned(),
                        uuid: uuid_text(&uuid),
                    });
                };
                let memory = DeviceBuf::of_process(&gpu, file.as_fd(), bytes);
                Slots::Device(memory.map_err(RingError::device(ring, "its memory can't be mapped"))?)
            }
        };
        let there = slots.bytes();
        if there < bytes {
            let what = format!("{there} bytes for {} slots of {} came", head.slots, head.stride);
            return Err(RingError::protocol(ring, what));
        }
        Ok(Self(Arc::new(MappedRing {
            name: ring.to_owned(),
            held: Mutex::new(vec![0; head.slots]),
            head,
            control,
            slots,
            leases,
            pid: std::process::id(),
            client: welcome.client,
            taken: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            torn: AtomicU64::new(0),
        })))
    }

    /// The name of the ring.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The device that the slots are on; `None` for shared memory.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.0.slots.gpu()
    }

    /// True if the reader can hold slots in use, as the first [`MAX_CONSUMERS`](super::MAX_CONSUMERS) readers of a ring can.
    pub fn can_lease(&self) -> bool {
        self.0.leases.is_some()
    }

    /// True if the producer is gone, or has replaced the ring. Memory that was mapped stays readable.
    pub fn is_closed(&self) -> bool {
        self.0.client.is_closed()
    }

    /// Numbers of payloads that were taken, stale or torn since the ring was opened.
    pub fn counters(&self) -> ReadCounters {
        ReadCounters {
            taken: self.0.taken.load(Ordering::Relaxed),
            stale: self.0.stale.load(Ordering::Relaxed),
            torn: self.0.torn.load(Ordering::Relaxed),
        }
    }

    /// Returns the payload of a ticket, in its slot and without a copy. If the reader [can](Self::can_lease) hold slots, the slot
    /// is held until the returned value is dropped.
    ///
    /// # Errors
    /// [`RingError::Stale`] if the payload was overwritten; [`RingError::NoSuchSlot`] if the ticket is not of this ring.
    pub fn take(&self, ticket: &Ticket<'_>) -> Result<RingPayload, RingError> {
        let ring = &self.0;
        let is_generation = ticket.generation > 0 && ticket.generation.is_multiple_of(2);
        if ticket.slot >= ring.head.slots || ticket.nbytes > ring.head.stride || !is_generation {
            return Err(RingError::NoSuchSlot {
                ring: ring.name.clone(),
                what: format!(
                    "slot {}, generation {}, {} bytes came (allowed: slot below {}, even generation from 2, up to {} bytes)",
                    ticket.slot, ticket.generation, ticket.nbytes, ring.head.slots, ring.head.stride
                ),
            });
        }
        let stale = |came| {
            ring.stale.fetch_add(1, Ordering::Relaxed);
            RingError::Stale {
                ring: ring.name.clone(),
                slot: ticket.slot,
                expected: ticket.generation,
                came,
            }
        };
        let came = ring.control.generation(ticket.slot);
        if came != ticket.generation {
            // The payload is lost: counted as taken, so that a lossless writer does not wait for it. A generation that the slot has
            // not reached yet is not from a ticket. A lease of the slot, for another payload, stays.
            if let Some(leases) = ring.leases()
                && came > ticket.generation
            {
                leases.taken().fetch_max(ticket.generation, Ordering::SeqCst);
            }
            return Err(stale(came));
        }
        if let Some(leases) = ring.leases() {
            let mut held = ring.held.lock().unwrap_or_else(PoisonError::into_inner);
            let lease = leases.lease(ticket.slot);
            let before = lease.swap(ticket.generation, Ordering::SeqCst);
            // The writer makes the generation odd and then reads the leases: one of the two sides sees what the other did (Dekker).
            fence(Ordering::SeqCst);
            let came = ring.control.generation(ticket.slot);
            // Stored after the lease, since a lossless writer looks for the lease next. Stored also for a payload that is lost, so
            // that the writer need not wait.
            leases.taken().fetch_max(ticket.generation, Ordering::SeqCst);
            if came != ticket.generation {
                lease.store(if held[ticket.slot] > 0 { before } else { 0 }, Ordering::SeqCst);
                return Err(stale(came));
            }
            held[ticket.slot] += 1;
        }
        ring.taken.fetch_add(1, Ordering::Relaxed);
        Ok(RingPayload {
            ring: ring.clone(),
            slot: ticket.slot,
            generation: ticket.generation,
            nbytes: ticket.nbytes,
        })
    }
}

impl MappedRing {
    /// The page of leases; `None` if this process may not lease slots.
    fn leases(&self) -> Option<&Leases> {
        self.leases.as_ref().filter(|_| self.pid == std::process::id())
    }
}

/// Payload that was taken, in its slot. If the reader [can](RingReader::can_lease) hold slots, the slot is held until the value is
/// dropped.
///
/// A writer that has no other slot overwrites the payload all the same. From then on [`is_intact`](Self::is_intact) returns false,
/// and dropping the value counts the payload as torn.
pub struct RingPayload {
    ring: Arc<MappedRing>,
    slot: usize,
    generation: u64,
    nbytes: usize,
}

impl RingPayload {
    /// The name of the payload's ring.
    pub fn ring(&self) -> &str {
        &self.ring.name
    }

    /// True if the slot is leased until the payload is dropped, so that the writer takes another slot if it has one.
    pub fn is_held(&self) -> bool {
        self.ring.leases().is_some()
    }

    /// The text that the writer gave with the payload.
    ///
    /// # Errors
    /// [`RingError::Torn`] if the payload was overwritten; [`RingError::Protocol`] if the descriptor is not UTF-8.
    pub fn descriptor(&self) -> Result<Descriptor, RingError> {
        let text = self.ring.control.descriptor(self.slot);
        self.check()?;
        text.map_err(|error| {
            RingError::protocol(
                self.ring(),
                format!("a payload described as {error}, which is not valid"),
            )
        })
    }

    /// Size of the payload, bytes.
    pub fn len(&self) -> usize {
        self.nbytes
    }

    /// True if the payload has no bytes.
    pub fn is_empty(&self) -> bool {
        self.nbytes == 0
    }

    /// The device that the payload is on; `None` for shared memory.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.ring.slots.gpu()
    }

    /// True if the payload has not been overwritten since it was published.
    pub fn is_intact(&self) -> bool {
        // Earlier reads must not be reordered behind this load of the generation.
        fence(Ordering::SeqCst);
        self.ring.control.generation(self.slot) == self.generation
    }

    /// Memory of the payload. The producer may write it at any time: copy the bytes, then check that the payload
    /// [is intact](Self::is_intact).
    pub fn memory(&self) -> SlotMemory<'_> {
        let offset = self.offset(0, self.len());
        match &self.ring.slots {
            Slots::Shared(memory) => SlotMemory::Shared(memory.bytes(offset, self.len())),
            Slots::Device(memory) => SlotMemory::Device(memory.pointer().offset(offset)),
        }
    }

    /// Copies bytes of the payload, from byte `at` on, to host memory, and checks that the payload was not overwritten meanwhile.
    /// After an error the contents of `to` are undefined.
    ///
    /// # Errors
    /// [`RingError::Torn`]; the device's error.
    ///
    /// # Panics
    /// If the range reaches past the end of the payload.
    pub fn copy_to(&self, at: usize, to: &mut [u8]) -> Result<(), RingError> {
        let offset = self.offset(at, to.len());
        match &self.ring.slots {
            Slots::Shared(memory) => memory.read(offset, to),
            Slots::Device(memory) => memory.fetch(offset, to).map_err(|error| self.failed(error))?,
        }
        self.check()
    }

    /// Copies the payload to the beginning of a buffer of a device, waits for the copy, and checks that the payload was not
    /// overwritten meanwhile.
    ///
    /// # Errors
    /// [`RingError::Torn`] if the payload was overwritten; the device's error, also if it has no memory for the buffer.
    pub fn copy_to_device(&self, to: &mut DeviceBuf) -> Result<(), RingError> {
        let offset = self.offset(0, self.len());
        to.reserve(self.len()).map_err(|error| self.failed(error))?;
        match &self.ring.slots {
            Slots::Device(memory) => to
                .copy_from(0, memory, offset, self.len())
                .map_err(|error| self.failed(error))?,
            Slots::Shared(memory) => {
                let mut bytes = vec![0; self.len()];
                memory.read(offset, &mut bytes);
                // SAFETY: the stream is synchronized before `bytes` is dropped.
                unsafe { to.upload(0, &bytes) }.map_err(|error| self.failed(error))?;
                to.gpu().synchronize().map_err(|error| self.failed(error))?;
            }
        }
        to.gpu().synchronize().map_err(|error| self.failed(error))?;
        self.check()
    }

    fn offset(&self, at: usize, bytes: usize) -> usize {
        assert!(
            at.checked_add(bytes).is_some_and(|end| end <= self.len()),
            "{bytes} bytes at {at} of a payload of {}",
            self.len()
        );
        self.slot * self.ring.head.stride + at
    }

    fn check(&self) -> Result<(), RingError> {
        match self.is_intact() {
            true => Ok(()),
            false => Err(self.torn()),
        }
    }

    fn torn(&self) -> RingError {
        RingError::Torn {
            ring: self.ring.name.clone(),
            slot: self.slot,
        }
    }

    fn failed(&self, error: DeviceFault) -> RingError {
        RingError::device(self.ring(), "its payload can't be copied")(error)
    }
}

impl Drop for RingPayload {
    fn drop(&mut self) {
        if !self.is_intact() {
            self.ring.torn.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(leases) = self.ring.leases() {
            let mut held = self.ring.held.lock().unwrap_or_else(PoisonError::into_inner);
            held[self.slot] -= 1;
            if held[self.slot] == 0 {
                leases.lease(self.slot).store(0, Ordering::SeqCst);
            }
        }
    }
}

/// Formats a UUID as `nvidia-smi -L` does.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "GPU-{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
