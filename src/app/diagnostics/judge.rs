//! How an input is, and why, in words.

use super::{Ailment, Diagnosis, Level, Row};
use robocache_time::{ns_to_ms, ns_to_s};
use std::time::Duration;

/// Nothing has come for long where it is this long,
const LONG: Duration = Duration::from_secs(2);

/// and so many times as long as usual.
const USUAL_TIMES: u32 = 3;

/// Stamps that are behind the clock of this host by more,
const LONGEST_DELAY_NS: i64 = 5_000_000_000;

/// or ahead of it by more, are doubtful.
pub(super) const LONGEST_LEAD_NS: i64 = 1_000_000_000;

/// Whether what has been quiet for so long should have said something.
pub(crate) fn is_silent(quiet: Duration, usual: Duration) -> bool {
    quiet >= LONG.max(USUAL_TIMES * usual)
}

/// What came lately, beside what is in the row.
pub(super) struct Lately {
    /// The longest step of capture time since the last report, ns.
    pub longest_step_ns: i64,
    /// How far the stamps are ahead of the clock of this host at most, ns, where most of them are by more than
    /// [`LONGEST_LEAD_NS`].
    pub lead_ns: Option<i64>,
    /// For how long nothing has come,
    pub quiet: Duration,
    /// and how long that usually is.
    pub usual: Duration,
}

/// What was wrong with what came on an input, so far.
#[derive(Clone, Copy, Default)]
pub(in crate::app) struct Faulty<'a> {
    pub faults: u64,
    /// By [`Dropped`](crate::app::Dropped).
    pub dropped: [u64; 4],
    /// The last line of the log that said so.
    pub said: &'a str,
}

/// How an input stands, beside its messages.
pub(in crate::app) struct InputState<'a> {
    pub diagnosis: Diagnosis,
    /// What the operation finds wrong with it.
    pub ailment: Option<&'a Ailment>,
    pub faulty: Faulty<'a>,
    pub is_open: bool,
    /// Whether nothing need come: it is asked by requests.
    pub may_be_silent: bool,
}

/// The beginning of what was said: names in it are as long as their sender likes.
fn shortened(said: &str) -> &str {
    const MOST: usize = 400;
    said.char_indices().nth(MOST).map_or(said, |(end, _)| &said[..end])
}

/// How an input is, by its row and the one before it, and by what its operation says.
pub(super) fn judge(row: &Row, before: &Row, lately: &Lately, state: &InputState<'_>) -> (Level, String) {
    let (level, words) = by_messages(row, before, lately, state);
    match state.ailment {
        None => (level, words),
        Some(ailment) if ailment.level > level => (ailment.level, shortened(&ailment.to_string()).to_owned()),
        // What the messages show is the cause.
        Some(ailment) => (level, format!("{words}; {}", ailment.what)),
    }
}

/// How an input is, by what came on it or did not.
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
        0 => {
            return (
                Level::Stale,
                format!("nothing has come for {seconds:.1} s since the start"),
            );
        }
        _ => return (Level::Stale, format!("nothing has come for {seconds:.1} s")),
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
        say(format!(
            "its stamps are {:.1} s behind the clock of this host",
            ns_to_s(delay)
        ));
    }
    if let Some(lead_ns) = lately.lead_ns.filter(|_| !is_put_right) {
        say(format!(
            "its stamps are up to {:.1} s ahead of the clock of this host",
            ns_to_s(lead_ns)
        ));
    }
    let counts = [
        ("late", row.late, before.late),
        (
            "dropped, as too many waited",
            row.dropped_overflow,
            before.dropped_overflow,
        ),
        ("dropped for their stamps", row.dropped_stamp, before.dropped_stamp),
        ("out of order", row.out_of_order, before.out_of_order),
    ];
    for (what, now, before) in counts {
        // A count may begin anew.
        if now > before {
            say(format!("{} {what}", now - before));
        }
    }
    let gap_ns = lately.longest_step_ns;
    let limit = state.diagnosis.max_gap_ns.filter(|&limit| gap_ns > limit);
    if let Some(limit) = limit {
        say(format!(
            "a gap of {:.1} ms (`max_gap_ms` {})",
            ns_to_ms(gap_ns),
            ns_to_ms(limit)
        ));
    }
    let age = row
        .age_max_ns
        .zip(state.diagnosis.max_age_ns)
        .filter(|(age, limit)| age > limit);
    if let Some((age, limit)) = age {
        say(format!(
            "an age of {:.1} ms (`max_age_ms` {})",
            ns_to_ms(age),
            ns_to_ms(limit)
        ));
    }
    if let Some(share) = row.valid_share.filter(|&share| share < 1.0) {
        say(format!("valid in {:.1} % of the observations", share * 100.0));
    }
    match why.is_empty() {
        true => (Level::Ok, String::new()),
        false => (Level::Warn, why.join(", ")),
    }
}
