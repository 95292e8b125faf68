//! Counts of a topic's messages, such as those without a stamp and those that can't be read. Each loss or change is counted,
//! and becomes a line for the user.

use robocache_stream::{MessageError, SelectError};

const DAY_NS: u64 = 86_400_000_000_000;

/// Counts of a topic's messages, from which the lines for the user are made.
#[derive(Default)]
pub(super) struct Tally {
    pub messages: u64,
    pub unstamped: u64,
    /// Largest distance of a stamp from the time of publication of its message, ns.
    apart_ns: u64,
    /// Number of stamps that are more than a day from the time of publication of their message.
    far: u64,
    /// Messages with a key that their type does not have.
    pub unknown: CountAndFirst,
    /// Messages in which a JSON object has the same key several times.
    pub twice: CountAndFirst,
    /// Integers that the decoder rounded to float64. Integers that a stream's selector rounds are not counted here.
    pub rounded: CountAndFirst,
    /// Number of messages without a value, before the first message that has one.
    pub empty: u64,
    /// Messages that can be decoded, but whose values no stream can hold.
    pub refused: CountAndFirst,
    /// Messages that can't be decoded as their type, or whose fields contradict one another.
    pub broken: CountAndFirst,
}

/// Reason why a message gives no sample, as text for the user.
pub(super) enum Unfit {
    /// The message can be decoded, but no stream can hold its values.
    Useless(String),
    /// Fields of the message contradict one another, such as an image's size and the length of its data.
    Broken(String),
}

impl From<MessageError> for Unfit {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::Select(SelectError::Broken(_)) => Self::Broken(error.to_string()),
            _ => Self::Useless(error.to_string()),
        }
    }
}

/// Number of messages or values of one kind, and the reason for the first one.
#[derive(Default)]
pub(super) struct CountAndFirst {
    count: u64,
    first: String,
}

impl CountAndFirst {
    pub(super) fn add(&mut self, count: u64, why: impl ToString) {
        if self.count == 0 {
            self.first = why.to_string();
        }
        self.count += count;
    }

    /// Returns a line for the user: how many of `messages` messages are `what`, and the reason for the first one; `None` if the
    /// count is 0.
    pub(super) fn line(&self, messages: u64, what: &str) -> Option<String> {
        let Self { count, first } = self;
        (*count > 0).then(|| format!("of {messages} messages {count} {what}, the first: {first}"))
    }
}

impl Tally {
    /// Counts a message without a stamp (`None`). For a message with a stamp, measures how far the stamp is from the time
    /// of publication.
    pub(super) fn stamped(&mut self, stamp_ns: Option<i64>, published_ns: i64) {
        match stamp_ns {
            None => self.unstamped += 1,
            Some(ns) => {
                let apart_ns = ns.abs_diff(published_ns);
                self.apart_ns = self.apart_ns.max(apart_ns);
                self.far += u64::from(apart_ns > DAY_NS);
            }
        }
    }

    /// Returns a line for the user if messages without a stamp got their time of publication, and other messages have stamps
    /// from another clock; else `None`.
    pub(super) fn far_from_others(&self) -> Option<String> {
        let (messages, unstamped) = (self.messages, self.unstamped);
        (unstamped > 0 && self.apart_ns > DAY_NS).then(|| {
            let days = self.apart_ns / DAY_NS;
            format!(
                "{unstamped} of {messages} messages have no stamp, and the time of their publication, which stands for it, is {days} days \
                 from the stamps of others"
            )
        })
    }

    /// Start of a line for the user, before the number of integers that were rounded to float64.
    pub(super) const ROUNDED: &str = "numbers beyond 2^53 that are rounded to float64:";

    /// True if there are messages, and all of them are counted in `refused`.
    pub(super) fn is_all_refused(&self) -> bool {
        self.messages > 0 && self.refused.count == self.messages
    }

    /// Formats the lines for the user about the topic's counts; empty if there is nothing to tell.
    pub(super) fn lines(&self) -> Vec<String> {
        let (messages, unstamped, far, empty) = (self.messages, self.unstamped, self.far, self.empty);
        let is_mixed = far > 0 && far + unstamped < messages;
        let no_stamp = "have no stamp; the time of their publication stands for it";
        let no_value = "hold no value, and came before any that does: they are left out";
        let no_place = "have keys that neither the schema nor the first message had, which are left out";
        let twice = "have a key several times in an object, whose last value is taken";
        let CountAndFirst { count, first } = &self.rounded;
        let lines = [
            (unstamped > 0).then(|| format!("{unstamped} of {messages} messages {no_stamp}")),
            is_mixed.then(|| {
                format!(
                    "the stamps of {far} of {messages} messages are over a day from the time of their publication, those of others are not"
                )
            }),
            (empty > 0).then(|| format!("of {messages} messages {empty} {no_value}")),
            self.unknown.line(messages, no_place),
            self.twice.line(messages, twice),
            (*count > 0).then(|| format!("{} {count}, the first in {first}", Self::ROUNDED)),
            self.refused.line(messages, "can't be taken"),
        ];
        lines.into_iter().flatten().collect()
    }
}
