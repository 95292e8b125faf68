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
pub use report::{Level, Report, Row};

/// The output of a node that reports are published on.
pub const DIAGNOSTICS: &str = "diagnostics";

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
