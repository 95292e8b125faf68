//! All rings that a process reads, each opened once. Taking from an open ring never waits for its producer; a new ring can be
//! opened on another thread.

use super::reader::{ReadCounters, RingPayload, RingReader};
use super::server::{Client, Request};
use super::{RingError, Ticket};
use crate::gpu::{Gpu, Kind, device_count};

/// Largest number of rings that are kept open: one for each output that the process reads, and some that were replaced.
const MAX_OPEN: usize = 64;

/// The rings of all producers that a process reads, each opened once.
#[derive(Default)]
pub struct Readers {
    open: Vec<RingReader>,
    /// Rings on devices that this process does not see: name of the ring, UUID of the device, and the connection that asks the
    /// producer for payloads through host memory.
    by_host: Vec<(String, String, Client)>,
    gpus: Vec<Gpu>,
    /// Sum of the counts of the rings that were closed.
    of_closed: ReadCounters,
}

impl Readers {
    /// Takes the payload of a ticket. If its ring is new, opens the ring first, which may take up to 10 s.
    ///
    /// A ring on a device that this process does not see gives [`RingError::OtherDevice`]. Its producer is asked to send payloads
    /// through host memory from now on. Tickets of the ring that are still under way give the same error.
    ///
    /// # Errors
    /// The errors of [`RingReader::open`] and [`RingReader::take`].
    pub fn take(&mut self, ticket: &Ticket<'_>) -> Result<RingPayload, RingError> {
        if let Some(i) = self.open.iter().position(|reader| reader.name() == ticket.ring) {
            let last = self.open.len() - 1;
            // Rings that were used last stand at the end, and are closed last.
            self.open[i..].rotate_left(1);
            return self.open[last].take(ticket);
        }
        if let Some((ring, uuid, _)) = self.by_host.iter().find(|(ring, ..)| *ring == ticket.ring) {
            return Err(RingError::OtherDevice {
                ring: ring.clone(),
                uuid: uuid.clone(),
            });
        }
        self.keep(self.opening(&ticket.ring).open())?;
        self.take(ticket)
    }

    /// True if [`take`](Self::take) does not wait for `ring`: the ring is open, or known to be on a device that this process does
    /// not see.
    pub fn is_open(&self, ring: &str) -> bool {
        self.open.iter().any(|reader| reader.name() == ring) || self.by_host.iter().any(|(name, ..)| name == ring)
    }

    /// Returns a request to open a ring, which another thread can carry out, since opening may take seconds. Pass its result to
    /// [`keep`](Self::keep).
    pub fn opening(&self, ring: &str) -> Opening {
        Opening {
            ring: ring.to_owned(),
            gpus: self.gpus.clone(),
        }
    }

    /// Adds a ring that was opened to the open rings. Closes rings that the producer has closed, and the least recently used ring
    /// if too many are open.
    ///
    /// # Errors
    /// The reason why the ring was not opened.
    pub fn keep(&mut self, opened: Opened) -> Result<(), RingError> {
        match opened.reader {
            Ok(reader) => {
                // A ring in shared memory has no GPU to add.
                let is_same_device = |known: &Gpu| reader.gpu().is_none_or(|gpu| gpu.device() == known.device());
                if !self.gpus.iter().any(is_same_device) {
                    self.gpus.extend(reader.gpu().cloned());
                }
                self.make_room();
                self.open.push(reader);
                Ok(())
            }
            Err(error) => {
                if let (RingError::OtherDevice { ring, uuid }, Some(client)) = (&error, opened.by_host) {
                    self.by_host.retain(|(.., client)| !client.is_closed());
                    self.by_host.push((ring.clone(), uuid.clone(), client));
                }
                Err(error)
            }
        }
    }

    /// Closes the rings whose producer is gone. If `MAX_OPEN` rings are open, also closes the least recently used ring, to make
    /// room for one more.
    fn make_room(&mut self) {
        let of_closed = &mut self.of_closed;
        let mut over = (self.open.len() + 1).saturating_sub(MAX_OPEN);
        self.open.retain(|reader| {
            let is_kept = !reader.is_closed() && over == 0;
            if !is_kept {
                over = over.saturating_sub(1);
                *of_closed = sum(*of_closed, reader.counters());
            }
            is_kept
        });
    }

    /// Sum of the counts of all rings, open and closed.
    pub fn counters(&self) -> ReadCounters {
        self.open
            .iter()
            .fold(self.of_closed, |all, reader| sum(all, reader.counters()))
    }
}

/// Request to open a ring, which any thread can carry out.
pub struct Opening {
    ring: String,
    gpus: Vec<Gpu>,
}

/// Result of [`Opening::open`], for [`Readers::keep`]: a reader, or the error.
pub struct Opened {
    ring: String,
    reader: Result<RingReader, RingError>,
    /// Connection that asks the producer for payloads through host memory; `None` unless the ring is on a device that this process
    /// does not see.
    by_host: Option<Client>,
}

impl Opening {
    /// Connects to the producer, waiting up to 10 s, and maps its ring. Also opens the device that the ring is on.
    pub fn open(mut self) -> Opened {
        let reader = RingReader::open_with(&self.ring, |uuid| find(&mut self.gpus, uuid));
        let by_host = match &reader {
            Err(RingError::OtherDevice { ring, .. }) => Client::connect(ring, Request::Host).ok(),
            _ => None,
        };
        Opened {
            ring: self.ring,
            reader,
            by_host: by_host.map(|welcome| welcome.client),
        }
    }
}

impl Opened {
    /// The name of the ring.
    pub fn ring(&self) -> &str {
        &self.ring
    }
}

fn sum(a: ReadCounters, b: ReadCounters) -> ReadCounters {
    ReadCounters {
        taken: a.taken + b.taken,
        stale: a.stale + b.stale,
        torn: a.torn + b.torn,
    }
}

/// Returns the device with this UUID, from `gpus` or newly opened and added to `gpus`; `None` if this process does not see the
/// device.
fn find(gpus: &mut Vec<Gpu>, uuid: [u8; 16]) -> Option<Gpu> {
    let is_same_device = |gpu: &Gpu| gpu.uuid().is_ok_and(|own| own == uuid);
    if let Some(known) = gpus.iter().find(|gpu| is_same_device(gpu)) {
        return Some(known.clone());
    }
    let all = |kind| (0..device_count(kind).unwrap_or(0)).map(move |ordinal| (kind, ordinal));
    let mut devices = Kind::ALL.into_iter().flat_map(all);
    let found = devices.find_map(|(kind, ordinal)| Gpu::open(kind, ordinal).ok().filter(is_same_device))?;
    gpus.push(found.clone());
    Some(found)
}
