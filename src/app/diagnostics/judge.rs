//! Judges the state of an input, with the reason in words.

use super::{Ailment, Diagnosis, Level, Row};
use crate::app::Dropped;
use robocache_time::{ns_to_ms, ns_to_s};
use std::time::Duration;

/// A silence lasts at least this long.
const LONG: Duration = Duration::from_secs(2);

/// A silence also lasts this many times as long as usual.
const USUAL_TIMES: u32 = 3;

/// Stamps that are further behind this host's clock are doubtful.
const LONGEST_DELAY_NS: i64 = 5_000_000_000;

/// Stamps that are further ahead of this host's clock are doubtful.
pub(super) const LONGEST_LEAD_NS: i64 = 1_000_000_000;

/// Words for the counts of a row that are complained of.
const COUNTED: [&str; 5] = [
    "late",
    "dropped, as too many waited",
    "dropped for their stamps",
    "poses out of reach",
    "out of order",
];

/// True if an input that is quiet for this long should have sent a message.
pub(crate) fn is_silent(quiet: Duration, usual: Duration) -> bool {
    quiet >= LONG.max(USUAL_TIMES * usual)
}

/// Recent messages, as far as they are not in the row.
pub(super) struct Lately {
    /// The longest step of capture time since the last report, ns.
    pub longest_step_ns: i64,
    /// Greatest lead of the stamps over this host's clock, ns, if the lead of most of them exceeds [`LONGEST_LEAD_NS`].
    pub lead_ns: Option<i64>,
    /// Time since the last message.
    pub quiet: Duration,
    /// Usual time between messages.
    pub usual: Duration,
}

/// Faults of an input's messages up to now.
#[derive(Clone, Copy, Default)]
pub(in crate::app) struct Faulty<'a> {
    pub faults: u64,
    /// Counts by reason: [`Dropped`](crate::app::Dropped).
    pub dropped: [u64; Dropped::REASONS],
    /// The last line of the log that said so.
    pub said: &'a str,
}

/// State of an input, beside its messages.
pub(in crate::app) struct InputState<'a> {
    pub diagnosis: Diagnosis,
    /// The operation's complaint about it.
    pub ailment: Option<&'a Ailment>,
    pub faulty: Faulty<'a>,
    pub is_open: bool,
    /// True if nothing need come: the observations are asked for by requests.
    pub may_be_silent: bool,
}

/// The beginning of what was said: names in it are as long as their sender likes.
fn shortened(said: &str) -> &str {
    const MOST: usize = 400;
    said.char_indices().nth(MOST).map_or(said, |(end, _)| &said[..end])
}

/// Level of an input and the reason, by its row and the one before it, and by its operation.
pub(super) fn judge(row: &Row, before: &Row, lately: &Lately, state: &InputState<'_>) -> (Level, String) {
    let (level, words) = by_messages(row, before, lately, state);
    match state.ailment {
        None => (level, words),
        Some(ailment) if ailment.level > level => (ailment.level, shortened(&ailment.to_string()).to_owned()),
        // The messages show the cause.
        Some(ailment) => (level, format!("{words}; {}", ailment.what)),
    }
}

/// Level of an input and the reason, by its messages or their absence.
fn by_messages(row: &Row, before: &Row, lately: &Lately, state: &InputState<'_>) -> (Level, String) {
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
    // Causes before what they bring about.
    if row.epoch > before.epoch {
        say(format!("a clock jumped (epoch {})", row.epoch));
    }
    // Where the operation puts the stamps on the clock of this host, it says itself what is wrong with theirs.
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
    for ((now, before), what) in counts(row).into_iter().zip(counts(before)).zip(COUNTED) {
        // A count may begin anew.
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
