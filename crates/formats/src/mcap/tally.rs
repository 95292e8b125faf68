//! What became of the messages of a topic.

use robocache_stream::{MessageError, SelectError};

/// Counts of a topic, for what is said in the end.
#[derive(Default)]
pub(super) struct Tally {
    pub messages: u64,
    pub unstamped: u64,
    /// Messages with something that their type has no place for.
    pub unknown: Refusals,
    /// Messages with an object that has a key several times.
    pub twice: Refusals,
    /// Whole numbers that float64 does not hold, before they came to a selector.
    pub rounded: Refusals,
    /// Messages without a value, before the first that has one.
    pub empty: u64,
    /// Messages that hold nothing that can be taken.
    pub refused: Refusals,
    /// Those that are not of their type, or contradict themselves.
    pub broken: Refusals,
}

/// Why nothing is made of what a message holds.
pub(super) enum Unfit {
    /// It is whole, and of no use here.
    Useless(String),
    /// It is not what the message says of it.
    Broken(String),
}

impl From<MessageError> for Unfit {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::Select(SelectError::Broken { .. } | SelectError::Length { .. }) => {
                Self::Broken(error.to_string())
            }
            _ => Self::Useless(error.to_string()),
        }
    }
}

/// How many messages or values, and why the first of them.
#[derive(Default)]
pub(super) struct Refusals {
    count: u64,
    first: String,
}

impl Refusals {
    pub fn add(&mut self, count: u64, why: impl ToString) {
        if self.count == 0 {
            self.first = why.to_string();
        }
        self.count += count;
    }

    /// What is to be said of them, if there are any.
    pub fn line(&self, topic: &str, kind: &str, messages: u64, what: &str) -> Option<String> {
        let Self { count, first } = self;
        let words = format!("{topic} ({kind}): of {messages} messages {count} {what}, the first: {first}");
        (*count > 0).then_some(words)
    }
}

impl Tally {
    /// What is said of whole numbers that float64 does not hold.
    pub const ROUNDED: &str = "numbers beyond 2^53 that are rounded to float64:";

    /// What is to be said of the topic.
    pub fn lines(&self, topic: &str, kind: &str) -> Vec<String> {
        let unstamped = (self.unstamped > 0).then(|| {
            format!(
                "{topic} ({kind}): {} of {} messages have no stamp; the time of their publication stands for it",
                self.unstamped, self.messages
            )
        });
        let refused = self.refused.line(topic, kind, self.messages, "can't be taken");
        let what = "have keys that neither the schema nor the first message had, which are left out";
        let unknown = self.unknown.line(topic, kind, self.messages, what);
        let what = "have a key several times in an object, whose last value is taken";
        let twice = self.twice.line(topic, kind, self.messages, what);
        let Refusals { count, first } = &self.rounded;
        let rounded =
            (*count > 0).then(|| format!("{topic} ({kind}): {} {count}, the first in {first}", Self::ROUNDED));
        let empty = (self.empty > 0).then(|| {
            let what = "hold no value, and came before any that does: they are left out";
            format!("{topic} ({kind}): of {} messages {} {what}", self.messages, self.empty)
        });
        let lines = [unstamped, empty, unknown, twice, rounded, refused];
        lines.into_iter().flatten().collect()
    }
}
