//! How often a line of the log is repeated.

use std::fmt;
use std::time::{Duration, Instant};

/// Limits the rate of one kind of line, and counts what the lines are of.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateLimit {
    count: u64,
    unsaid: u64,
    last: Option<Instant>,
}

impl RateLimit {
    /// Counts events.
    pub fn add(&mut self, times: u64) {
        self.count += times;
        self.unsaid += times;
    }

    /// Says whether the last line is so long ago, or there was none.
    pub fn is_due(&self, now: Instant, every: Duration) -> bool {
        self.last
            .is_none_or(|last| now.saturating_duration_since(last) >= every)
    }

    /// Notes a line if one [is due](Self::is_due), which the caller then logs.
    pub fn take_turn(&mut self, now: Instant, every: Duration) -> bool {
        let is_due = self.is_due(now, every);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }

    /// The counts for a line that is logged now.
    pub fn counts(&mut self, now: Instant) -> Counts {
        self.last = Some(now);
        Counts {
            unsaid: std::mem::take(&mut self.unsaid),
            count: self.count,
        }
    }

    /// Events so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Forgets the events since the last line, and says whether there are any.
    pub fn take_unsaid(&mut self) -> bool {
        std::mem::take(&mut self.unsaid) > 0
    }

    /// Whether events were counted since the last line.
    pub fn has_unsaid(&self) -> bool {
        self.unsaid > 0
    }

    /// When the last line was logged.
    pub fn last(&self) -> Option<Instant> {
        self.last
    }
}

/// Events since the last line and in all, in words.
pub(crate) struct Counts {
    unsaid: u64,
    count: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} since the last line, {} in all", self.unsaid, self.count)
    }
}
