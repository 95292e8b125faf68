use super::reader::{ReadCounters, RingPayload, RingReader};
use super::server::{Client, Request};
use super::{RingError, Ticket};
use crate::gpu::{Gpu, Kind, device_count};

/// Number of rings that are kept open, at most: one for each output that the process reads, and some that were replaced.
const MAX_OPEN: usize = 64;

/// The rings of all producers that a process reads, each opened once.
#[derive(Default)]
pub struct Readers {
    open: Vec<RingReader>,
    /// Rings that can't be mapped here: the name, the device's UUID, and the connection by which the producer knows that.
    by_host: Vec<(String, String, Client)>,
    gpus: Vec<Gpu>,
    /// Counts of the rings that are closed by now.
    of_closed: ReadCounters,
}

impl Readers {
    /// Takes a payload. Opens its ring and waits for that, if the ring is new.
    ///
    /// A ring on a device that this process does not see is an error. Its producer is told to send payloads by the host from now
    /// on. Messages that the producer sends meanwhile are the same error.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn take(&mut self, ticket: &Ticket<'_>) -> Result<RingPayload, RingError> {
        if let Some(i) = self.open.iter().position(|reader| reader.name() == ticket.ring) {
            let last = self.open.len() - 1;
            // Rings in use come last.
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

    /// True if a ring has been opened, or was found to be one that this process can't map: taking from it does not wait.
    pub fn is_open(&self, ring: &str) -> bool {
        self.open.iter().any(|reader| reader.name() == ring) || self.by_host.iter().any(|(name, ..)| name == ring)
    }

    /// Prepares to open a ring. Opening may last seconds, and can be done on any thread.
    pub fn opening(&self, ring: &str) -> Opening {
        Opening {
            ring: ring.to_owned(),
            gpus: self.gpus.clone(),
        }
    }

    /// Keeps a ring that was opened.
    ///
    /// # Errors
    /// The reason why it was not opened.
    pub fn keep(&mut self, opened: Opened) -> Result<(), RingError> {
        match opened.reader {
            Ok(reader) => {
                let is_same_device = |known: &Gpu| reader.gpu().is_none_or(|gpu| gpu.device() == known.device());
                if !self.gpus.iter().any(is_same_device) {
                    self.gpus.extend(reader.gpu().cloned());
                }
                self.forget();
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

    /// Closes the rings whose producer has closed them, and the least recently used if there are too many.
    fn forget(&mut self) {
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

    /// Counts over all rings.
    pub fn counters(&self) -> ReadCounters {
        self.open
            .iter()
            .fold(self.of_closed, |all, reader| sum(all, reader.counters()))
    }
}

/// A ring that is to be opened.
pub struct Opening {
    ring: String,
    gpus: Vec<Gpu>,
}

/// Result of opening a ring.
pub struct Opened {
    ring: String,
    reader: Result<RingReader, RingError>,
    /// Connection by which the producer knows that its ring can't be mapped here.
    by_host: Option<Client>,
}

impl Opening {
    /// Opens the ring: waits for its producer, up to 10 s, and for its device.
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

/// Finds the device of a UUID, if this process sees the device.
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
