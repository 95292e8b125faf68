//! Limits how often a line of the log is repeated. An event that is not logged is still counted, and the next line gives the count.

use std::time::{Duration, Instant};

/// Rate limit of one kind of log line, and the number of its events.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateLimit {
    count: u64,
    suppressed: u64,
    last: Option<Instant>,
}

impl RateLimit {
    /// Counts `times` events.
    pub(crate) fn add(&mut self, times: u64) {
        self.count += times;
        self.suppressed += times;
    }

    /// True if the last line is at least `every` ago, or there was none.
    pub(crate) fn is_due(&self, now: Instant, every: Duration) -> bool {
        self.last
            .is_none_or(|last| now.saturating_duration_since(last) >= every)
    }

    /// Returns true if a line [is due](Self::is_due), and starts the next interval: the caller logs the line.
    pub(crate) fn take_turn(&mut self, now: Instant, every: Duration) -> bool {
        let is_due = self.is_due(now, every);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }

    /// Formats the counts of events since the last line and in all, for a line that is logged now.
    pub(crate) fn counts(&mut self, now: Instant) -> String {
        self.last = Some(now);
        let suppressed = std::mem::take(&mut self.suppressed);
        format!("{suppressed} since the last line, {} in all", self.count)
    }

    /// Number of events since the start.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Resets the count of events since the last line, and returns true if it was not 0.
    pub(crate) fn take_suppressed(&mut self) -> bool {
        std::mem::take(&mut self.suppressed) > 0
    }

    /// True if events were counted since the last line.
    #[cfg(any(test, feature = "dora"))]
    pub(crate) fn has_suppressed(&self) -> bool {
        self.suppressed > 0
    }

    /// Time of the last logged line; `None` before the first.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.last
    }
}
