//! What became of the messages of a topic.

/// Counts of a topic, for what is said in the end.
#[derive(Default)]
pub(super) struct Tally {
    pub messages: u64,
    pub unstamped: u64,
    /// Messages with something that their type has no place for.
    pub unknown: Refusals,
    /// Messages that hold nothing that can be taken.
    pub refused: Refusals,
    /// Those that are not of their type.
    pub broken: Refusals,
}

/// How many messages, and why the first of them.
#[derive(Default)]
pub(super) struct Refusals {
    count: u64,
    first: String,
}

impl Refusals {
    pub fn add(&mut self, why: impl ToString) {
        if self.count == 0 {
            self.first = why.to_string();
        }
        self.count += 1;
    }

    /// What is to be said of them, if there are any.
    pub fn line(&self, topic: &str, kind: &str, messages: u64, what: &str) -> Option<String> {
        let Self { count, first } = self;
        let words = format!("{topic} ({kind}): of {messages} messages {count} {what}, the first: {first}");
        (*count > 0).then_some(words)
    }
}

impl Tally {
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
        unstamped.into_iter().chain(unknown).chain(refused).collect()
    }
}
