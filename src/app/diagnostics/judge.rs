//! Derives the level of an input (ok, warn, error or stale), and the reason as text.
//!
//! Faults of the messages take precedence over silence, and silence over warnings. A health issue that the operation found can
//! only make the level worse.

use super::{Diagnosis, HealthIssue, Level, Row};
use crate::app::Dropped;
use robocache_time::{ns_to_ms, ns_to_s};
use std::time::Duration;

/// Shortest time without a message that counts as silence.
const MIN_SILENCE: Duration = Duration::from_secs(2);

/// Number of an input's mean message intervals without a message that count as silence, if they last [`MIN_SILENCE`] or longer.
const SILENCE_FACTOR: u32 = 3;

/// Largest plausible delay from a stamp to its arrival, ns. Beyond it the report warns of the stamps.
const LONGEST_DELAY_NS: i64 = 5_000_000_000;

/// Largest plausible time that a stamp is ahead of its arrival, ns. Beyond it the report warns of the stamps.
pub(super) const LONGEST_LEAD_NS: i64 = 1_000_000_000;

/// Text for each count of a row that causes a warning if it has risen, in the order of the array `counts` in `by_messages`.
const COUNT_WORDS: [&str; 5] = [
    "late",
    "dropped, as too many waited",
    "dropped for their stamps",
    "poses out of reach",
    "out of order",
];

/// True if `quiet`, the time since an input's last message, counts as silence. `usual` is the mean interval of its messages.
pub(crate) fn is_silent(quiet: Duration, usual: Duration) -> bool {
    quiet >= MIN_SILENCE.max(SILENCE_FACTOR * usual)
}

/// Facts about an input's messages since the last report for which its [`Row`] has no column.
pub(super) struct SinceReport {
    /// Longest step between capture times since the last report, ns.
    pub longest_step_ns: i64,
    /// Greatest time that a stamp is ahead of its arrival, ns. `None` unless more than half of the recent stamps are ahead by more
    /// than [`LONGEST_LEAD_NS`].
    pub lead_ns: Option<i64>,
    /// Time since the last message, or since the start if none has come.
    pub quiet: Duration,
    /// Mean interval of the messages since the start; 0 before the second message.
    pub usual: Duration,
}

/// Counts of an input's faults and dropped messages since the start.
#[derive(Clone, Copy, Default)]
pub(in crate::app) struct Faulty<'a> {
    pub faults: u64,
    /// Counts of dropped messages or samples since the start, by reason: [`Dropped`].
    pub dropped: [u64; Dropped::REASONS],
    /// Last log line about a fault of the input; empty if no fault was logged.
    pub said: &'a str,
}

/// State of an input that the collector can't see in its messages: the operation's findings, counted faults, and whether it
/// is open.
pub(in crate::app) struct InputState<'a> {
    pub diagnosis: Diagnosis,
    /// Current problem of the input, found by the operation; `None` if there is none.
    pub health_issue: Option<&'a HealthIssue>,
    pub faulty: Faulty<'a>,
    pub is_open: bool,
    /// True if silence is not an error, as for an input of requests or ticks.
    pub may_be_silent: bool,
}

/// Shortens a text to its first 400 characters, because names in it come from senders and may be of any length.
fn shortened(said: &str) -> &str {
    const MOST: usize = 400;
    said.char_indices().nth(MOST).map_or(said, |(end, _)| &said[..end])
}

/// Returns the level of an input and the reason. It compares `row` with `before`, the row in the last report, and adds the
/// health issue that the operation found.
pub(super) fn judge(row: &Row, before: &Row, lately: &SinceReport, state: &InputState<'_>) -> (Level, String) {
    let (level, words) = by_messages(row, before, lately, state);
    match state.health_issue {
        None => (level, words),
        Some(health_issue) if health_issue.level > level => {
            (health_issue.level, shortened(&health_issue.to_string()).to_owned())
        }
        // The messages show the cause, so the operation's words for it are left out.
        Some(health_issue) => (level, format!("{words}; {}", health_issue.what)),
    }
}

/// Returns the level of an input and the reason, without the health issue that the operation found.
fn by_messages(row: &Row, before: &Row, lately: &SinceReport, state: &InputState<'_>) -> (Level, String) {
    let faults = row.faults - before.faults;
    if faults > 0 {
        let said = shortened(state.faulty.said);
        let words = match row.messages {
            0 => format!("none of its messages can be used: {said}"),
            _ => format!("{faults} faults: {said}"),
        };
        return (Level::Error, words);
    }
    let seconds = lately.quiet.as_secs_f64();
    match row.messages {
        _ if !state.is_open => return (Level::Stale, "it is closed: nothing will come any more".to_owned()),
        _ if state.may_be_silent || !is_silent(lately.quiet, lately.usual) => {}
        messages => {
            let since = if messages == 0 { " since the start" } else { "" };
            return (Level::Stale, format!("nothing has come for {seconds:.1} s{since}"));
        }
    }
    let mut why = Vec::new();
    let mut say = |words: String| why.push(words);
    // Causes come before their effects.
    if row.epoch > before.epoch {
        say(format!("a clock jumped (epoch {})", row.epoch));
    }
    // An operation that puts the stamps on this host's clock reports wrong stamps itself.
    let is_put_right = state.diagnosis.clock.is_some();
    let delay = row.delay_p50_ns.filter(|&delay| delay > LONGEST_DELAY_NS);
    if let Some(delay) = delay.filter(|_| !is_put_right) {
        let delay = ns_to_s(delay);
        say(format!("its stamps are {delay:.1} s behind the clock of this host"));
    }
    if let Some(lead_ns) = lately.lead_ns.filter(|_| !is_put_right) {
        let lead = ns_to_s(lead_ns);
        say(format!(
            "its stamps are up to {lead:.1} s ahead of the clock of this host"
        ));
    }
    let counts = |row: &Row| {
        [
            row.late,
            row.dropped_overflow,
            row.dropped_stamp,
            row.dropped_unreachable,
            row.out_of_order,
        ]
    };
    for ((now, before), what) in counts(row).into_iter().zip(counts(before)).zip(COUNT_WORDS) {
        // A count may start at 0 again.
        if now > before {
            say(format!("{} {what}", now - before));
        }
    }
    let Diagnosis {
        max_gap_ns, max_age_ns, ..
    } = state.diagnosis;
    let limits = [
        ("a gap", Some(lately.longest_step_ns), "max_gap_ms", max_gap_ns),
        ("an age", row.age_max_ns, "max_age_ms", max_age_ns),
    ];
    for (what, ns, key, limit) in limits {
        if let Some((ns, limit)) = ns.zip(limit).filter(|(ns, limit)| ns > limit) {
            say(format!(
                "{what} of {:.1} ms (`{key}` {})",
                ns_to_ms(ns),
                ns_to_ms(limit)
            ));
        }
    }
    if let Some(share) = row.valid_share.filter(|&share| share < 1.0) {
        say(format!("valid in {:.1} % of the observations", share * 100.0));
    }
    match why.is_empty() {
        true => (Level::Ok, String::new()),
        false => (Level::Warn, why.join(", ")),
    }
}
