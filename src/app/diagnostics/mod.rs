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

/// The output of a node that reports are published on.
pub const DIAGNOSTICS: &str = "diagnostics";

/// An operation's complaint about one of its inputs, in the words of its log. The input's row repeats it, and so does
/// everything that reads the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthIssue {
    /// Severity.
    pub level: Level,
    /// The complaint: "no observation for 12.0 s".
    pub what: String,
    /// The cause.
    pub cause: String,
}

impl fmt::Display for HealthIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)
    }
}

/// Facts about an input that only its operation knows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// Samples that came after their target was sent, so far.
    pub late: u64,
    /// Number of the clock's jumps.
    pub epoch: i64,
    /// Lead of the host's clock over the device's, ns, and its excess of speed, millionths.
    pub clock: Option<(i64, f64)>,
    /// The `max_age_ms` of the input, if it has one, ns.
    pub max_age_ns: Option<i64>,
    /// The `max_gap_ms` of the input, if it has one, ns.
    pub max_gap_ns: Option<i64>,
}
