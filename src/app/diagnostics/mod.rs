//! Diagnostics of a node: statistics of each input and of the results, reported once a second if the dataflow or a status file
//! wants them. Unlike observations, they may depend on arrival times.

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

/// Current problem of an input, found by its operation, with the text of the operation's log. The input's [`Row`] repeats
/// the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthIssue {
    /// Level of the input while the problem lasts, unless its messages show a worse level.
    pub level: Level,
    /// Symptom, such as "no observation for 12.0 s".
    pub what: String,
    /// Cause of the symptom, as text that follows the symptom in the log.
    pub cause: String,
}

impl fmt::Display for HealthIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)
    }
}

/// Values for an input's [`Row`] that its operation supplies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// Number of late samples, which arrived after the observation of their target was published.
    pub late: u64,
    /// Epoch of the operation's results: a count that goes up by one at each clock jump.
    pub epoch: i64,
    /// Host time minus device time, ns, and the excess of the host clock's rate over the device clock's, parts per million.
    /// `None` if the operation estimates no clock.
    pub clock: Option<(i64, f64)>,
    /// Greatest age at which a sample of the input is valid, ns (the key `max_age_ms`); `None` for no limit.
    pub max_age_ns: Option<i64>,
    /// Longest gap between two samples that the input's interpolation bridges, ns (the key `max_gap_ms`); `None` for no limit.
    pub max_gap_ns: Option<i64>,
}
