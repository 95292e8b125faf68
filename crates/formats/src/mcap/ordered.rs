//! The messages of an MCAP file in the order of their log times.

use super::form;
use super::record::{Container, MOST_BYTES, RawMessage, Record};
use super::records::{RecordRange, Records};
use crate::Error;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Reader of a file in the order of its messages' log times. Messages of the same log time keep the order of the file.
///
/// Writers with several threads or caches put messages into a file in another order. A message is held until all with earlier log
/// times were read; messages in order are not copied. The index at the end of the file has the log times of the chunks. Without it,
/// as in a file without chunks, [`MOST_BLIND`] bytes are held all the time.
pub(super) struct Ordered {
    records: Records,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: u64,
    /// The message that was given last, if it was held.
    returned: Held,
    /// Number of messages that were held.
    count: u64,
    /// The latest log time that was read, and the number of messages that stand behind one with a later log time.
    latest: u64,
    late: u64,
    is_read: bool,
    /// True if the order of the file is kept: for a stream of ours without arrival times, log times are stamps, which may go back.
    keeps_file_order: bool,
}

/// Bytes of messages that are held if the file has no index of log times.
const MOST_BLIND: u64 = 64 << 20;

#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    log_time: u64,
    /// Number of the message among all that were held: it decides between equal log times.
    number: u64,
    channel: u16,
    publish_time: u64,
    data: Vec<u8>,
}

impl Ordered {
    pub(super) fn new(records: Records) -> Self {
        let mut keeps_file_order = false;
        records.describe(&mut |record| keeps_file_order |= is_by_stamp(&record));
        Self {
            records,
            held: BinaryHeap::new(),
            held_bytes: 0,
            returned: Held::default(),
            count: 0,
            latest: 0,
            late: 0,
            is_read: false,
            keeps_file_order,
        }
    }

    /// True if the first message that is held is the next one: no earlier one is left in the file, or too many bytes are held.
    fn is_due(&self) -> bool {
        let Some(Reverse(first)) = self.held.peek() else {
            return false;
        };
        let most = if self.records.is_indexed() {
            MOST_BYTES
        } else {
            MOST_BLIND
        };
        self.is_read || first.log_time <= self.records.least_ahead() || self.held_bytes > most
    }

    /// Holds the message of a part. Returns false if the part is not a message, or is the next message to return.
    fn hold(&mut self, part: &RecordRange) -> Result<bool, Error> {
        let record = self.records.record(part)?;
        self.keeps_file_order |= is_by_stamp(&record);
        let Record::Message(message) = record else {
            return Ok(false);
        };
        if self.keeps_file_order {
            return Ok(false);
        }
        self.late += u64::from(message.log_time < self.latest);
        self.latest = self.latest.max(message.log_time);
        let first = self.held.peek().map_or(u64::MAX, |Reverse(held)| held.log_time);
        let is_next =
            message.log_time <= self.records.least_ahead() && (message.log_time < first || self.held.is_empty());
        if !is_next {
            self.count += 1;
            self.held_bytes += bytes(message.data);
            self.held.push(Reverse(Held {
                log_time: message.log_time,
                number: self.count,
                channel: message.channel,
                publish_time: message.publish_time,
                data: message.data.to_vec(),
            }));
        }
        Ok(!is_next)
    }
}

impl Container for Ordered {
    fn describe(&self, take: &mut dyn FnMut(Record<'_>)) {
        self.records.describe(take);
    }

    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        while !self.is_due() {
            match self.records.next_part()? {
                None if self.held.is_empty() => return Ok(None),
                None => self.is_read = true,
                Some(part) if self.hold(&part)? => {}
                Some(part) => return self.records.record(&part).map(Some),
            }
        }
        let Some(Reverse(next)) = self.held.pop() else {
            return Ok(None);
        };
        self.held_bytes -= bytes(&next.data);
        self.returned = next;
        Ok(Some(Record::Message(RawMessage {
            channel: self.returned.channel,
            log_time: self.returned.log_time,
            publish_time: self.returned.publish_time,
            data: &self.returned.data,
        })))
    }

    fn left_out(&self) -> Option<String> {
        self.records.left_out()
    }

    fn has_log_times(&self) -> bool {
        self.records.has_log_times()
    }

    fn is_by_stamp(&self) -> bool {
        self.keeps_file_order
    }

    fn late(&self) -> u64 {
        self.late
    }
}

/// Memory that a held message takes, bytes.
fn bytes(data: &[u8]) -> u64 {
    (size_of::<Held>() + data.len()) as u64
}

/// True if the record is the channel of a stream of ours whose log times are its stamps.
fn is_by_stamp(record: &Record<'_>) -> bool {
    let Record::Channel(channel) = record else { return false };
    let about = channel.metadata(form::ABOUT).map(form::About::from_text);
    matches!(about, Some(Ok(about)) if !about.has_arrivals)
}
