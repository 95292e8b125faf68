//! Writer of a ring: publishes the payloads of one output in slots. It never overwrites the newest payload, and never waits for a
//! reader unless it is lossless.

use super::control::{Control, Head, Leases};
use super::memory::SharedMemory;
use super::server::{Served, Server};
use super::slots::Slots;
use super::{MAX_CONSUMERS, MAX_DESCRIPTOR, MAX_SLOTS, RingError, Ticket};
use crate::gpu::{Budget, DeviceBuf, DeviceFault, Gpu, PageLocked};
use rustix::fd::OwnedFd;
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

/// Alignment of slots, bytes: more than the widest loads of a device need.
const ALIGNMENT: usize = 512;

/// Period in which a lossless writer polls whether its consumers have taken a payload.
const POLL_PERIOD: Duration = Duration::from_micros(50);

/// Configuration of a ring: its number of slots, and whether its writer waits for consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Number of slots, 2 to [`MAX_SLOTS`]. Use 2, plus for each consumer the number of payloads that it may have waiting or in
    /// use.
    pub slots: usize,
    /// Wait of the writer for its consumers; `None` if it overwrites payloads without waiting.
    pub lossless: Option<Lossless>,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            slots: 4,
            lossless: None,
        }
    }
}

/// Wait of a writer for its consumers, so that each takes every payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lossless {
    /// Number of consumers that must have connected before a payload is overwritten, 1 to [`MAX_CONSUMERS`].
    pub consumers: usize,
    /// Longest wait before a payload is overwritten. After a timeout the writer overwrites it all the same, and counts the timeout.
    pub timeout: Duration,
}

/// Numbers of payloads, timeouts and rings of a writer since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounters {
    /// Number of payloads that were published.
    pub published: u64,
    /// Number of payloads that were overwritten while a consumer was using them, since no slot was free.
    pub overwritten_leased: u64,
    /// Number of waits of a lossless writer that timed out.
    pub timed_out: u64,
    /// Number of rings that were made: the first one, and one more each time that a payload was larger than a slot.
    pub rings: u64,
}

/// Writer that publishes the payloads of one output in a ring.
pub struct RingWriter {
    output: String,
    residence: Residence,
    config: RingConfig,
    nonce: u64,
    ring: Option<Ring>,
    /// Replaced rings, each with the number of publications for which the ring stays open. Messages that name the ring may not have
    /// been read yet.
    retired: Vec<(Ring, usize)>,
    counters: WriteCounters,
}

enum Residence {
    /// Memory of the host, page-locked for this device if there is one.
    Shared(Option<Gpu>),
    Device(Gpu, Budget),
}

struct Ring {
    name: String,
    /// Page lock of the slots' memory; `None` if the memory is pageable. The field stands before `slots`, so that the lock is
    /// dropped first.
    _page_locked: Option<PageLocked>,
    slots: Slots,
    stride: usize,
    /// The writer's own record of the generation in each slot; 0 if the slot holds nothing.
    generations: Vec<u64>,
    /// Indices of the slots, from the one with the oldest payload to the one with the newest.
    by_age: Vec<usize>,
    newest: u64,
    /// Number of consumers that a lossless writer waits for: the configured number for the first ring, `expected_next` of the
    /// replaced ring for each later one. After a timeout, consumers that have not connected no longer count.
    expected: usize,
    served: Arc<Served>,
    _server: Server,
}

/// Slot that the writer fills: bytes of shared memory or of a device.
pub struct SlotMut<'a> {
    ring: &'a str,
    slots: &'a mut Slots,
    offset: usize,
    bytes: usize,
}

impl SlotMut<'_> {
    /// Copies host memory to the slot, from byte `at` of the slot on.
    ///
    /// # Errors
    /// The device's error.
    ///
    /// # Panics
    /// If the bytes do not fit the slot.
    pub fn write(&mut self, at: usize, from: &[u8]) -> Result<(), RingError> {
        self.check(at, from.len());
        match &*self.slots {
            Slots::Shared(memory) => {
                memory.write(self.offset + at, from);
                Ok(())
            }
            Slots::Device(memory) => {
                // SAFETY: `from` is borrowed until the stream is synchronized, also if the copy failed.
                let copied = unsafe { memory.upload(self.offset + at, from) };
                copied
                    .and(memory.gpu().synchronize())
                    .map_err(|error| self.failed(error))
            }
        }
    }

    /// Copies `bytes` bytes of the device buffer `other`, from its byte `from` on, to byte `at` of the slot and on.
    ///
    /// # Errors
    /// The device's error.
    ///
    /// # Panics
    /// If the bytes do not fit the slot.
    pub fn copy_from(&mut self, at: usize, other: &DeviceBuf, from: usize, bytes: usize) -> Result<(), RingError> {
        self.check(at, bytes);
        match &*self.slots {
            Slots::Shared(memory) => {
                // SAFETY: this process alone writes the mapping, and the slot is borrowed.
                let to = unsafe { memory.bytes_mut(self.offset + at, bytes) };
                other.fetch(from, to).map_err(|error| self.failed(error))
            }
            Slots::Device(memory) => memory
                .copy_from(self.offset + at, other, from, bytes)
                .map_err(|error| self.failed(error)),
        }
    }

    /// The bytes of a slot in shared memory, to be written in place; `None` for a slot on a device. They still hold an earlier
    /// payload.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &*self.slots {
            Slots::Shared(memory) => {
                // SAFETY: this process alone writes the mapping, and the slot is borrowed.
                Some(unsafe { memory.bytes_mut(self.offset, self.bytes) })
            }
            Slots::Device(_) => None,
        }
    }

    fn check(&self, at: usize, bytes: usize) {
        assert!(
            at.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at {at} of a slot of {}",
            self.bytes
        );
    }

    fn failed(&self, error: DeviceFault) -> RingError {
        RingError::device(self.ring, "the payload can't be copied to its slot")(error)
    }
}

impl RingWriter {
    /// Makes a writer whose slots are shared memory of the host. `output` becomes part of the ring's name. If a device `gpu` writes
    /// the payloads, the driver is asked to page-lock the slots, so that the device copies to them by itself.
    ///
    /// # Panics
    /// If `slots` or `consumers` of the configuration is out of its bounds.
    pub fn shared(output: &str, gpu: Option<&Gpu>, config: RingConfig) -> Self {
        Self::new(output, Residence::Shared(gpu.cloned()), config)
    }

    /// Makes a writer whose slots are memory of the device `gpu`, which counts in `budget`.
    ///
    /// # Errors
    /// The device's error, as when the device can't share memory with other processes.
    ///
    /// # Panics
    /// As [`shared`](Self::shared).
    pub fn on_device(output: &str, gpu: &Gpu, budget: &Budget, config: RingConfig) -> Result<Self, RingError> {
        let writer = Self::new(output, Residence::Device(gpu.clone(), budget.clone()), config);
        gpu.uuid()
            .map_err(RingError::device(&writer.name(1), "no slots on its device"))?;
        Ok(writer)
    }

    fn new(output: &str, residence: Residence, config: RingConfig) -> Self {
        assert!((2..=MAX_SLOTS).contains(&config.slots), "{} slots", config.slots);
        assert!(
            config
                .lossless
                .is_none_or(|it| (1..=MAX_CONSUMERS).contains(&it.consumers)),
            "{:?}",
            config.lossless
        );
        Self {
            output: output.to_owned(),
            residence,
            config,
            // Random, so that no other process, running now or earlier, has rings of the same name.
            nonce: RandomState::new().hash_one(std::process::id()),
            ring: None,
            retired: Vec::new(),
            counters: WriteCounters::default(),
        }
    }

    /// The device that the slots are on; `None` for shared memory.
    pub fn gpu(&self) -> Option<&Gpu> {
        match &self.residence {
            Residence::Shared(_) => None,
            Residence::Device(gpu, _) => Some(gpu),
        }
    }

    /// Numbers of payloads, timeouts and rings since the writer was made.
    pub fn counters(&self) -> WriteCounters {
        self.counters
    }

    /// Number of consumers that can't map the writer's rings, and asked for payloads through host memory.
    pub fn consumers_by_host(&self) -> usize {
        let rings = self.ring.iter().chain(self.retired.iter().map(|(ring, _)| ring));
        rings.map(|ring| ring.served.by_host.load(Ordering::SeqCst)).sum()
    }

    /// Waits until every consumer has taken all payloads of a [lossless](Lossless) ring, to be called before the writer is dropped:
    /// nobody can map its ring afterwards. Returns false, and counts the timeout, if a consumer does not take them in time.
    pub fn wait_until_taken(&mut self) -> bool {
        let Some(lossless) = self.config.lossless else {
            return true;
        };
        let rings = self.retired.iter().map(|(ring, _)| ring).chain(&self.ring);
        let is_taken = |ring: &Ring| {
            let mut slots = ring.by_age.iter();
            slots.all(|&slot| ring.wait(lossless.timeout, |column| ring.has_taken(slot, column)))
        };
        let in_vain = rings.filter(|ring| !is_taken(ring)).count() as u64;
        self.counters.timed_out += in_vain;
        in_vain == 0
    }

    /// Publishes a payload of `nbytes` bytes: `fill` writes it to a slot. `descriptor` is a text of at most [`MAX_DESCRIPTOR`]
    /// bytes that a reader gets with the payload.
    ///
    /// # Errors
    /// The error of `fill`, after which the slot holds nothing; no memory for the ring.
    ///
    /// # Panics
    /// If the descriptor is longer than [`MAX_DESCRIPTOR`] bytes.
    pub fn publish(
        &mut self,
        descriptor: &str,
        nbytes: usize,
        fill: impl FnOnce(&mut SlotMut<'_>) -> Result<(), RingError>,
    ) -> Result<Ticket<'_>, RingError> {
        assert!(
            descriptor.len() <= MAX_DESCRIPTOR,
            "a descriptor of {} bytes",
            descriptor.len()
        );
        let ring = match self.ring.take() {
            Some(ring) if nbytes <= ring.stride => ring,
            before => match self.larger(before.as_ref(), nbytes) {
                Ok(ring) => {
                    self.counters.rings += 1;
                    self.retired.extend(before.map(|ring| (ring, self.config.slots + 1)));
                    ring
                }
                Err(error) => {
                    self.ring = before;
                    return Err(error);
                }
            },
        };
        let ring = self.ring.insert(ring);
        let oldest = ring.by_age[0];
        let is_done = |column| ring.has_taken(oldest, column) && !ring.is_leased_by(oldest, column);
        if let Some(lossless) = self.config.lossless
            && ring.generations[oldest] != 0
            && !ring.wait(lossless.timeout, is_done)
        {
            self.counters.timed_out += 1;
            // A consumer that did not come is not waited for again.
            ring.expected = ring.expected.min(ring.served.came.load(Ordering::SeqCst));
        }
        // Consumers that have taken the payloads of this ring have taken those of the rings before: they take in order.
        let are_done = self.config.lossless.is_none() || ring.is_full();
        self.retired.retain_mut(|(_, left)| {
            *left -= usize::from(are_done);
            *left > 0
        });
        let (slot, was_leased) = ring.claim();
        self.counters.overwritten_leased += u64::from(was_leased);
        ring.served.control.set_descriptor(slot, descriptor);
        let mut slot_mut = SlotMut {
            ring: &ring.name,
            slots: &mut ring.slots,
            offset: slot * ring.stride,
            bytes: nbytes,
        };
        let written = fill(&mut slot_mut);
        let waited = ring.slots.gpu().map_or(Ok(()), Gpu::synchronize);
        // If filling or synchronizing failed, the generation stays odd, and nobody takes the slot.
        let failed = RingError::device(&ring.name, "the payload can't be written to its slot");
        written.and(waited.map_err(failed))?;
        let generation = ring.complete(slot);
        self.counters.published += 1;
        Ok(Ticket {
            ring: Cow::Borrowed(&ring.name),
            slot,
            generation,
            nbytes,
        })
    }

    /// Makes a ring whose slots hold `nbytes` bytes, to replace the ring `before`. The caller keeps `before` while its messages may
    /// be under way.
    fn larger(&self, before: Option<&Ring>, nbytes: usize) -> Result<Ring, RingError> {
        let stride = before.map_or(0, |ring| ring.stride);
        let ample = nbytes.max(stride + stride / 2).max(1).next_multiple_of(ALIGNMENT);
        let epoch = self.counters.rings + 1;
        let mut ring = Ring::new(&self.name(epoch), &self.residence, self.config.slots, ample, epoch)?;
        ring.expected = match (before, self.config.lossless) {
            (Some(before), _) => before.expected_next(),
            (None, Some(lossless)) => lossless.consumers,
            (None, None) => 0,
        };
        Ok(ring)
    }

    /// Returns the name of the writer's ring with this epoch. Of the output's name at most 40 bytes are used, since the length of a
    /// socket's name is limited.
    fn name(&self, epoch: u64) -> String {
        let end = self
            .output
            .char_indices()
            .map(|(at, _)| at)
            .take_while(|&at| at <= 40)
            .last();
        let output = match self.output.len() {
            0..=40 => self.output.as_str(),
            _ => &self.output[..end.unwrap_or(0)],
        };
        format!(
            "robocache.ring/1/{}-{:016x}/{output}/{epoch}",
            std::process::id(),
            self.nonce
        )
    }
}

impl Ring {
    fn new(name: &str, residence: &Residence, count: usize, stride: usize, epoch: u64) -> Result<Self, RingError> {
        let os = |what| move |error| RingError::os(name, what, error);
        let device = RingError::device(name, "no slots on its device");
        let bytes = count * stride;
        let mut page_locked = None;
        let (slots, memory_file, uuid): (Slots, OwnedFd, _) = match residence {
            Residence::Shared(gpu) => {
                let memory =
                    SharedMemory::create_own("robocache.ring", bytes).map_err(os("no memory for its slots"))?;
                let file = memory.file().try_clone_to_owned();
                let file = file.map_err(os("its slots can't be shared"))?;
                // SAFETY: the mapping is dropped after what locks it: see the order of the fields.
                page_locked = gpu.as_ref().map(|gpu| unsafe { PageLocked::new(gpu, memory.all()) });
                if let Some(Err(error)) = &page_locked {
                    tracing::debug!("ring `{name}`: its slots are not page-locked: {error}");
                }
                (Slots::Shared(memory), file, None)
            }
            Residence::Device(gpu, budget) => {
                let uuid = gpu.uuid().map_err(&device)?;
                let (memory, file) = DeviceBuf::shareable(gpu, budget, bytes).map_err(device)?;
                (Slots::Device(memory), file, Some(uuid))
            }
        };
        let page = SharedMemory::create_own("robocache.control", Control::bytes(count));
        let page = page.map_err(os("no control page"))?;
        let leases = || Leases::create().map_err(os("no page of leases"));
        let head = Head {
            slots: count,
            stride,
            epoch,
            pid: std::process::id(),
            uuid,
        };
        let served = Arc::new(Served {
            control: Control::create(page, &head),
            leases: [leases()?, leases()?, leases()?, leases()?],
            memory_file,
            by_host: AtomicUsize::new(0),
            mapped: AtomicUsize::new(0),
            came: AtomicUsize::new(0),
        });
        Ok(Self {
            _server: Server::start(name, served.clone())?,
            name: name.to_owned(),
            _page_locked: page_locked.and_then(Result::ok),
            slots,
            stride,
            generations: vec![0; count],
            by_age: (0..count).collect(),
            newest: 0,
            expected: 0,
            served,
        })
    }

    /// True if every slot has a payload, so that the next payload overwrites one.
    fn is_full(&self) -> bool {
        self.generations.iter().all(|&generation| generation != 0)
    }

    /// Number of consumers that the ring which replaces this ring is to wait for. That is the number that map this ring now, or
    /// `expected` if not all of them have connected.
    fn expected_next(&self) -> usize {
        match self.served.came.load(Ordering::SeqCst) < self.expected {
            true => self.expected,
            false => self.served.mapped.load(Ordering::SeqCst),
        }
    }

    /// Waits until `expected` consumers have connected, and `is_done` is true for the index of every page of leases. Returns false
    /// at the timeout.
    fn wait(&self, timeout: Duration, is_done: impl Fn(usize) -> bool) -> bool {
        let start = Instant::now();
        let are_done = || self.served.came.load(Ordering::SeqCst) >= self.expected && (0..MAX_CONSUMERS).all(&is_done);
        while !are_done() {
            if start.elapsed() >= timeout {
                return false;
            }
            std::thread::sleep(POLL_PERIOD);
        }
        true
    }

    /// True if the consumer with page of leases `column` has taken the payload of a slot, or no consumer has that page.
    fn has_taken(&self, slot: usize, column: usize) -> bool {
        self.served.leases[column].taken().load(Ordering::SeqCst) >= self.generations[slot]
    }

    fn is_leased_by(&self, slot: usize, column: usize) -> bool {
        let generation = self.generations[slot];
        generation != 0 && self.served.leases[column].lease(slot).load(Ordering::SeqCst) == generation
    }

    fn is_leased(&self, slot: usize) -> bool {
        (0..MAX_CONSUMERS).any(|column| self.is_leased_by(slot, column))
    }

    /// Chooses a slot and makes its generation odd: the oldest slot that nobody leases, else the oldest. The newest is never
    /// chosen, as its message is the next to be taken. Also returns whether the slot is leased.
    fn claim(&mut self) -> (usize, bool) {
        let free = (0..self.by_age.len() - 1).find(|&at| {
            let slot = self.by_age[at];
            if self.is_leased(slot) {
                return false;
            }
            self.start(slot);
            let is_leased = self.is_leased(slot);
            if is_leased {
                // A reader leased the slot before it saw the odd generation. Nothing was written: the payload is as it was.
                self.served.control.set_generation(slot, self.generations[slot]);
            }
            !is_leased
        });
        let at = free.unwrap_or(0);
        let slot = self.by_age[at];
        if free.is_none() {
            self.start(slot);
        }
        // The slot holds nothing until it is complete, even if filling it panics.
        self.generations[slot] = 0;
        self.by_age[..=at].rotate_right(1);
        (slot, free.is_none())
    }

    /// Makes the generation of a slot odd, by which readers see that the slot is being written.
    fn start(&self, slot: usize) {
        self.served.control.set_generation(slot, self.newest + 1);
        // A reader writes its lease and then reads the generation; the writer does both in the opposite order. One of the two sees
        // what the other did (Dekker).
        fence(Ordering::SeqCst);
    }

    /// Gives the claimed slot the next even generation, by which readers see that its payload is complete. Returns the generation.
    fn complete(&mut self, slot: usize) -> u64 {
        self.newest += 2;
        self.generations[slot] = self.newest;
        self.by_age.rotate_left(1);
        self.served.control.set_generation(slot, self.newest);
        self.newest
    }
}

impl std::fmt::Debug for RingWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingWriter")
            .field("output", &self.output)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
