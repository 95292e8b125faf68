//! Outputs whose payloads are published in a ring.
//!
//! A payload that can't go into the ring is sent inside its message, as without a ring, so that nothing is lost.

use crate::app::rate_limit::RateLimit;
use crate::app::{Fault, OutputResidence, Residence};
use robocache_device::gpu::{Budget, Gpu};
use robocache_device::ring::{MAX_DESCRIPTOR, RingError, RingWriter, WriteCounters};
use robocache_stream::{DeviceColumn, Header, Layout, Message, Payload, SlotLayout};
use std::time::{Duration, Instant};

/// Shortest time between two log lines about payloads that were overwritten unread, or that were sent without the ring.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// The ring of an output, with the counts of missed payloads that the log has reported already.
pub(super) struct OutputRing {
    output: String,
    residence_word: &'static str,
    writer: RingWriter,
    layout: SlotLayout,
    /// Reused buffer for a payload that is made on the host and copied to a ring on a device.
    staged: Message,
    reported: WriteCounters,
    rate: RateLimit,
    /// Rate limit and count of the payloads that are sent inside their message, because they can't go into the ring.
    by_host: RateLimit,
}

/// Outcome of [`OutputRing::send`], which tells the caller what is left to send.
pub(super) enum SendOutcome {
    /// The payload is in the ring, and the header says where: the caller sends the header alone.
    InRing,
    /// The payload is not written yet: the caller writes it into the message.
    ByHost,
    /// The payload is in [`OutputRing::staged`]: the caller copies it to the message.
    Staged,
}

impl OutputRing {
    /// Makes the ring that the configuration asks for. The error says why the ring can't be made.
    pub(super) fn new(output: &str, configured: &OutputResidence) -> Result<Self, String> {
        let memory = configured.placement.host_memory();
        let (residence_word, writer) = match (configured.residence, configured.gpu()) {
            (Residence::Cuda, Some(gpu)) => {
                let budget = Budget::new(configured.placement.max_bytes());
                let writer =
                    RingWriter::on_device(output, gpu, &budget, configured.ring).map_err(|error| error.to_string())?;
                ("cuda", writer)
            }
            (Residence::Cuda, None) => {
                return Err(format!(
                    "the operation runs on {} (needed for `cuda`: a GPU)",
                    configured.placement
                ));
            }
            _ => (
                "shared",
                RingWriter::shared(output, configured.placement.gpu(), configured.ring),
            ),
        };
        Ok(Self {
            output: output.to_owned(),
            residence_word,
            writer,
            layout: SlotLayout::default(),
            staged: Message::new(&memory),
            reported: WriteCounters::default(),
            rate: RateLimit::default(),
            by_host: RateLimit::default(),
        })
    }

    /// GPU whose memory holds the ring; `None` for host memory, or while a consumer can't map the ring.
    pub(super) fn gpu(&self) -> Option<&Gpu> {
        self.writer.gpu().filter(|_| self.writer.consumers_by_host() == 0)
    }

    /// Writes a payload into the ring with `fill`, and the payload's location into `header`. Returns what the caller still has
    /// to send.
    pub(super) fn send(
        &mut self,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
        header: &mut Header,
    ) -> SendOutcome {
        self.layout.set(layout);
        if self.layout.text().len() > MAX_DESCRIPTOR || self.writer.consumers_by_host() > 0 {
            return SendOutcome::ByHost;
        }
        let Self {
            layout: slots, staged, ..
        } = self;
        let is_on_device = self.writer.gpu().is_some();
        if is_on_device {
            staged.write(layout, |payload, made| fill(payload, made));
        }
        let mut is_made = is_on_device;
        let published = self.writer.publish(slots.text(), slots.bytes(), |slot| {
            if is_on_device {
                return slots.write(staged, slot);
            }
            is_made = true;
            if let Some(mut payload) = slots.payload(slot) {
                fill(&mut payload, header);
            }
            Ok(())
        });
        match published {
            Ok(ticket) => {
                if is_on_device {
                    header.copy_from(&staged.header);
                }
                header.set_ticket(self.residence_word, &ticket);
            }
            Err(error) => {
                let now = Instant::now();
                self.by_host.add(1);
                if self.by_host.is_due(now, WARN_EVERY) {
                    let (output, counts) = (&self.output, self.by_host.counts(now));
                    tracing::warn!("output `{output}`: {error}; the payload goes by the host ({counts})");
                }
                return match is_made {
                    true => SendOutcome::Staged,
                    false => SendOutcome::ByHost,
                };
            }
        }
        self.warn_of_missed();
        SendOutcome::InRing
    }

    /// The payload that could not go into the ring, after [`SendOutcome::Staged`].
    pub(super) fn staged(&self) -> &Message {
        &self.staged
    }

    /// Copies a payload from the ring's device into the ring, and writes the payload's location into `header`.
    pub(super) fn send_on_device(
        &mut self,
        layout: &Layout,
        columns: &[DeviceColumn],
        header: &mut Header,
    ) -> Result<(), Fault> {
        self.layout.set(layout);
        let slots = &self.layout;
        let published = self.writer.publish(slots.text(), slots.bytes(), |slot| {
            columns.iter().enumerate().try_for_each(|(i, column)| {
                let (at, bytes) = slots.column(i);
                slot.copy_from(at, &column.memory, 0, bytes)
            })
        });
        let ticket = published.map_err(|error: RingError| error.to_string())?;
        header.set_ticket(self.residence_word, &ticket);
        self.warn_of_missed();
        Ok(())
    }

    /// Warns of payloads that consumers missed, at a limited rate.
    fn warn_of_missed(&mut self) {
        let now = self.writer.counters();
        let overwritten = now.overwritten_leased - self.reported.overwritten_leased;
        let timed_out = now.timed_out - self.reported.timed_out;
        if overwritten + timed_out == 0 || !self.rate.take_turn(Instant::now(), WARN_EVERY) {
            return;
        }
        let output = &self.output;
        if overwritten > 0 {
            tracing::warn!(
                "output `{output}`: {overwritten} payloads were overwritten while a consumer used them: give its ring more `slots`"
            );
        }
        if timed_out > 0 {
            tracing::warn!(
                "output `{output}`: {timed_out} times a consumer did not take a payload within `lease_timeout_ms`: it hangs, or takes longer"
            );
        }
        self.reported = now;
    }
}

impl Drop for OutputRing {
    fn drop(&mut self) {
        self.writer.wait_until_taken();
        let WriteCounters {
            published,
            overwritten_leased,
            timed_out,
            rings,
        } = self.writer.counters();
        tracing::info!(
            "output `{}`: {published} payloads in {rings} rings, {overwritten_leased} overwritten while in use, {timed_out} \
             not waited for",
            self.output
        );
    }
}
