//! What is gathered of the inputs and results of operations while somebody wants to know, and what is said of it once a
//! second. It may depend on when messages come, as nothing in an observation does.

mod figures;
mod judge;
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

/// What an operation finds wrong with one of its inputs, in the words of its log. Its row says it, and so does whoever reads
/// that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ailment {
    /// How bad it is.
    pub level: Level,
    /// What is wrong: "no observation for 12.0 s".
    pub what: String,
    /// Why.
    pub cause: String,
}

impl fmt::Display for Ailment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)
    }
}

/// What only an operation knows of one of its inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// Samples that came after their target was sent, so far.
    pub late: u64,
    /// How often a clock has jumped.
    pub epoch: i64,
    /// By how much the clock of the host is ahead of that of the device, ns, and how much faster it goes, millionths.
    pub clock: Option<(i64, f64)>,
    /// The `max_age_ms` of the input, where it has one, ns.
    pub max_age_ns: Option<i64>,
    /// The `max_gap_ms` of the input, where it has one, ns.
    pub max_gap_ns: Option<i64>,
}
