//! Reader of an MCAP file's messages in the order of their log times. The bytes of messages that wait for their turn are
//! bounded. A message that follows too many later messages in the file may still be returned out of order.

use super::form;
use super::record::{Container, MOST_BYTES, RawMessage, Record};
use super::records::{RecordRange, Records};
use crate::Error;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Reader of an MCAP file in the order of its messages' log times. Messages of the same log time keep the order of the file.
///
/// Writers with several threads or caches put messages into a file in another order. A message waits in memory until all
/// messages with earlier log times were read; messages in order are not copied. The index at the end of the file gives the log
/// times of the chunks. Without an index, up to [`MOST_BLIND`] bytes wait all the time.
pub(super) struct Ordered {
    records: Records,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: u64,
    /// Message that was returned last, if it had waited in memory: the returned record borrows its data.
    returned: Held,
    /// Number of messages so far that had to wait in memory.
    count: u64,
    /// Latest log time of the messages that were read, ns.
    latest: u64,
    /// Number of messages so far that follow a message with a later log time in the file.
    late: u64,
    is_read: bool,
    /// True if messages are returned in the order of the file. This is so if robocache wrote a stream without arrival times:
    /// the log times are then stamps, which may go back.
    keeps_file_order: bool,
}

/// Largest number of bytes of waiting messages if the file has no index of log times.
const MOST_BLIND: u64 = 64 << 20;

#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    log_time: u64,
    /// Sequence number among all waiting messages, from 1. If two log times are equal, the message with the smaller number
    /// is first.
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

    /// True if the waiting message with the earliest log time is the next to return: the file has no earlier message left, or
    /// too many bytes wait.
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

    /// Copies the message of a record to the messages that wait. Returns false if the record is not a message, or is to be
    /// returned at once.
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

/// Returns the memory of a waiting message with `data` as its bytes, in bytes.
fn bytes(data: &[u8]) -> u64 {
    (size_of::<Held>() + data.len()) as u64
}

/// True if the record is a channel of a stream that robocache wrote, and the log times of its messages are their stamps.
fn is_by_stamp(record: &Record<'_>) -> bool {
    let Record::Channel(channel) = record else { return false };
    let about = channel.metadata(form::ABOUT).map(form::About::from_text);
    matches!(about, Some(Ok(about)) if !about.has_arrivals)
}
