//! Figures of operations' inputs and results, gathered only if somebody wants them, and reported once a second. Unlike an
//! observation, they may depend on when messages come.

mod figures;
mod judge;
pub mod key;
mod recent;
mod report;

pub(super) use figures::Diagnostics;
pub use figures::Figures;
pub(crate) use judge::is_silent;
pub(super) use judge::{Faulty, InputState};
pub(super) use recent::{Figure, Recent};
pub use report::{Level, Report, Row};

use std::fmt;

/// Name of the output on which a node publishes its reports.
pub const DIAGNOSTICS: &str = "diagnostics";

/// A present problem of an input, which its operation found, worded as in the operation's log. The input's [`Row`] repeats it, and
/// so does everything that reads the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthIssue {
    /// Level of the input while the problem lasts, unless its messages show a worse level.
    pub level: Level,
    /// Symptom, such as "no observation for 12.0 s".
    pub what: String,
    /// Cause of the symptom, as text that follows it in the log.
    pub cause: String,
}

impl fmt::Display for HealthIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)
    }
}

/// Values of an input's [`Row`] that only its operation knows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// Number of samples that arrived after the observation at their target was sent.
    pub late: u64,
    /// Epoch of the operation's results: a number that goes up at each clock jump.
    pub epoch: i64,
    /// Host time minus device time, ns, and the excess of the rate of the host's clock over the rate of the device's, parts per
    /// million. This is `None` if the operation estimates no clock.
    pub clock: Option<(i64, f64)>,
    /// Greatest age at which a sample of the input is valid, ns (the key `max_age_ms`); `None` for no limit.
    pub max_age_ns: Option<i64>,
    /// Longest gap between two samples that the input's interpolation bridges, ns (the key `max_gap_ms`); `None` for no limit.
    pub max_gap_ns: Option<i64>,
}
