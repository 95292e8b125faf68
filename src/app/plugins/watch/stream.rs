//! Watch over one stream: finds out if it is silent, and if its stamps are capture times.
//!
//! Each problem of the stamps is reported once. If stamps that stood still advance again, they are judged anew.

use super::SAY_AGAIN;
use crate::app::diagnostics::{Figure, Recent, is_silent};
use crate::app::rate_limit::RateLimit;
use crate::app::{HealthIssue, Level};
use robocache_time::{unit_of_pace, unit_of_stamp};
use std::time::{Duration, Instant};

/// Shortest time over which the pace of a stream's stamps is compared with the wall clock.
const JUDGE_AFTER: Duration = Duration::from_secs(1);
/// Fewest samples of a stream from which the pace of its stamps is compared with the wall clock.
const JUDGE_SAMPLES: u64 = 5;

/// Backward step of a stamp, ns, beyond which the sender's clock counts as set back. A smaller step is a message out of order.
const RESET_NS: i64 = 1_000_000_000;

/// Kind of the warning that stamps seem to be in another unit than ns. Each kind has a rate limit of its own.
const OTHER_UNIT: &str = "stamps in another unit";
const CONSTANT: &str = "constant stamps";

/// Watch over one stream of an operation: the times of its samples, and the faults of its stamps.
pub(in crate::app::plugins) struct StreamWatch {
    pub name: String,
    pub samples: u64,
    /// Number of messages that could not be used since the last usable message.
    pub refused: u64,
    /// Arrival of the first sample; `None` before the first sample.
    pub first: Option<Instant>,
    /// Arrival of the last sample; `None` before the first sample.
    pub last: Option<Instant>,
    /// Arrival and stamp (ns) of the sample from which the pace of the stamps is measured.
    since: Option<(Instant, i64)>,
    newest_ns: Option<i64>,
    /// Arrival of the sample with the newest stamp, and the number of later samples whose stamps are not newer.
    stands: Option<(Instant, u64)>,
    /// Last stamp minus its arrival, ns: positive if the stamp is ahead of this host's clock.
    pub lead_ns: Option<i64>,
    /// True once the unit of the stamps is judged, so that it is not judged again.
    is_judged: bool,
    /// Problem of the stream's stamps, worded as in the log; `None` if there is no problem.
    pub stamp_problem: Option<String>,
    /// True if the `stamp_problem` is that the stamps stand still.
    is_constant: bool,
    pub(super) seen: Recent<RecentRows>,
    pub said_quiet: RateLimit,
    pub said_invalid: RateLimit,
    pub health_issue: Option<HealthIssue>,
}

/// Validity, greatest age and longest step of one stream, over the newest rows of the recent observations.
pub(super) struct RecentRows {
    pub observed: u64,
    pub valid: u64,
    /// Greatest age of the stream's newest sample, ns; -1 if no row had a sample.
    pub age_ns: i64,
    /// Longest step from a stamp to the next newer stamp, ns.
    pub step_ns: i64,
}

impl Default for RecentRows {
    fn default() -> Self {
        Self {
            observed: 0,
            valid: 0,
            age_ns: -1,
            step_ns: 0,
        }
    }
}

impl Figure for RecentRows {
    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl StreamWatch {
    pub(crate) fn new(name: &str, now: Instant) -> Self {
        Self {
            name: name.to_owned(),
            samples: 0,
            refused: 0,
            first: None,
            last: None,
            since: None,
            newest_ns: None,
            stands: None,
            is_constant: false,
            lead_ns: None,
            is_judged: false,
            stamp_problem: None,
            seen: Recent::new(now),
            said_quiet: RateLimit::default(),
            said_invalid: RateLimit::default(),
            health_issue: None,
        }
    }

    /// Checks the stream's stamps after a sample with the stamp `stamp_ns`. Returns the kind of a new problem, whose text is in
    /// `stamp_problem`; `None` if there is no new problem.
    pub(crate) fn judge(&mut self, now: Instant, stamp_ns: i64, arrival_ns: Option<i64>) -> Option<&'static str> {
        let stands = self.step(now, stamp_ns);
        let Some((since, first_ns)) = self.since else {
            (self.first, self.since) = (Some(now), Some((now, stamp_ns)));
            let unit = arrival_ns.and_then(|arrival_ns| unit_of_stamp(stamp_ns, arrival_ns))?;
            self.is_judged = true;
            self.stamp_problem = Some(format!(
                "its first stamp is {stamp_ns}: the time in {unit} (needed: `timestamp_ns` in ns)"
            ));
            return Some(OTHER_UNIT);
        };
        if let Some((stood, samples)) = stands {
            self.is_judged = true;
            return self.stamp_problem.is_none().then(|| {
                self.is_constant = true;
                self.stamp_problem = Some(match samples == self.samples {
                    true => format!(
                        "its stamp is {stamp_ns} in each of {} samples (needed: `timestamp_ns`, the capture time of each)",
                        self.samples
                    ),
                    false => format!(
                        "its newest stamp stands at {} for {:.1} s and {samples} samples (needed: `timestamp_ns`, the capture \
                         time of each)",
                        self.newest_ns.unwrap_or(stamp_ns),
                        stood.as_secs_f64()
                    ),
                });
                CONSTANT
            });
        }
        let elapsed = now.saturating_duration_since(since);
        if self.is_judged || elapsed < JUDGE_AFTER || self.samples < JUDGE_SAMPLES {
            return None;
        }
        self.is_judged = true;
        let advance = stamp_ns.abs_diff(first_ns);
        let unit = unit_of_pace(elapsed.as_nanos() as f64 / advance as f64)?;
        self.stamp_problem = Some(format!(
            "its stamps went on by {advance} in {:.1} s, so they are in {unit} (needed: `timestamp_ns` in ns)",
            elapsed.as_secs_f64()
        ));
        Some(OTHER_UNIT)
    }

    /// Records a stamp. If samples keep coming without a newer stamp, returns the time since the newest stamp came, and the
    /// number of samples since.
    fn step(&mut self, now: Instant, stamp_ns: i64) -> Option<(Duration, u64)> {
        let newest_ns = *self.newest_ns.get_or_insert(stamp_ns);
        let step_ns = stamp_ns.saturating_sub(newest_ns);
        let (since, samples) = self.stands.get_or_insert((now, 0));
        if (-RESET_NS..=0).contains(&step_ns) {
            *samples += 1;
            let stood = now.saturating_duration_since(*since);
            return (stood >= JUDGE_AFTER && *samples >= JUDGE_SAMPLES).then_some((stood, *samples));
        }
        (*since, *samples) = (now, 0);
        self.newest_ns = Some(stamp_ns);
        if std::mem::take(&mut self.is_constant) {
            (self.stamp_problem, self.is_judged) = (None, false);
            self.since = Some((now, stamp_ns));
        }
        // A clock jump is not a step.
        self.seen.record(|seen| seen.step_ns = seen.step_ns.max(step_ns));
        None
    }

    /// Sets the `health_issue` to the problem of the stamps, if the stream has no other health issue.
    pub(crate) fn set_stamp_ailment(&mut self) {
        if self.health_issue.is_none() {
            self.health_issue = self.stamp_problem.as_ref().map(|stamp_problem| HealthIssue {
                level: Level::Warn,
                what: "its stamps are not capture times".to_owned(),
                cause: stamp_problem.clone(),
            });
        }
    }

    /// Time since the last sample, or since `since` if there was none; `None` if it is too short to count as silence.
    pub(crate) fn quiet(&self, now: Instant, since: Instant) -> Option<Duration> {
        let quiet = now.saturating_duration_since(self.last.unwrap_or(since));
        let usual = match (self.first, self.last) {
            (Some(first), Some(last)) if self.samples > 1 => {
                last.saturating_duration_since(first) / u32::try_from(self.samples - 1).unwrap_or(u32::MAX)
            }
            _ => Duration::ZERO,
        };
        is_silent(quiet, usual).then_some(quiet)
    }

    /// Warns if the stream is silent at `now`, at a limited rate. Before its first sample the silence counts from `since`. The
    /// text `besides` ends the line: what goes on without the stream.
    pub(crate) fn warn_if_quiet(&mut self, [now, since]: [Instant; 2], operation: &str, besides: &str) {
        if self.said_quiet.is_due(now, SAY_AGAIN)
            && let Some(quiet) = self.quiet(now, since)
        {
            self.said_quiet.take_turn(now, SAY_AGAIN);
            tracing::warn!("{operation}: `{}` {}{besides}", self.name, self.silence(quiet));
        }
    }

    /// Counts a sample that can be used.
    pub(crate) fn came(&mut self, now: Instant) {
        self.samples += 1;
        self.refused = 0;
        self.last = Some(now);
    }

    /// Formats a silence of this length for a sentence about the stream, such as `has sent nothing for 3.0 s`.
    pub(crate) fn silence(&self, quiet: Duration) -> String {
        let seconds = quiet.as_secs_f64();
        match self.refused {
            0 => format!("has sent nothing for {seconds:.1} s"),
            refused => {
                format!("has sent nothing that can be used for {seconds:.1} s ({refused} messages were refused)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_that_stop_in_the_middle_are_told_until_they_go_on() {
        let start = Instant::now();
        let mut stream = StreamWatch::new("lidar", start);
        let mut judge = |i: u64, ms: i64| {
            let now = start + Duration::from_millis(100 * i);
            stream.came(now);
            let kind = stream.judge(now, 1_000_000 * ms, None);
            stream.health_issue = None;
            stream.set_stamp_ailment();
            (kind, stream.health_issue.as_ref().map(ToString::to_string))
        };
        for i in 0..30 {
            assert_eq!(judge(i, 100 * i as i64), (None, None), "{i}");
        }
        // The newest stamp is 2900 ms; older stamps change nothing.
        for i in 30..39 {
            assert_eq!(judge(i, 2900 - (i as i64 % 2)), (None, None), "{i}");
        }
        let words = "its stamps are not capture times: its newest stamp stands at 2900000000 for 1.0 s and 10 samples (needed: \
                     `timestamp_ns`, the capture time of each)";
        assert_eq!(judge(39, 2900), (Some(CONSTANT), Some(words.to_owned())));
        assert_eq!(judge(40, 2900), (None, Some(words.to_owned())));
        assert_eq!(judge(41, 4100), (None, None));
    }

    #[test]
    fn the_unit_of_stamps_is_told_from_how_fast_they_go_on() {
        assert_eq!(unit_of_pace(1.0), None);
        assert_eq!(unit_of_pace(0.5), None);
        assert_eq!(unit_of_pace(100.0), None); // a slow replay
        assert_eq!(unit_of_pace(1.1e3), Some("microseconds"));
        assert_eq!(unit_of_pace(0.9e6), Some("milliseconds"));
        assert_eq!(unit_of_pace(1e9), Some("seconds"));
        let now_ns = 1_700_000_000_123_456_789;
        assert_eq!(unit_of_stamp(now_ns, now_ns), None);
        assert_eq!(unit_of_stamp(5_000_000_000, now_ns), None); // since a start
        assert_eq!(unit_of_stamp(now_ns / 1000, now_ns), Some("microseconds"));
        assert_eq!(unit_of_stamp(now_ns / 1_000_000, now_ns), Some("milliseconds"));
        assert_eq!(unit_of_stamp(now_ns / 1_000_000_000, now_ns), Some("seconds"));
        // Host and stamps count from a start, the host's earlier or later.
        for stamp_s in 1..100 {
            for arrival_s in 1..100 {
                let stamp_ns = stamp_s * 1_000_000_000;
                assert_eq!(
                    unit_of_stamp(stamp_ns, arrival_s * 1_000_000_000),
                    None,
                    "{stamp_s} {arrival_s}"
                );
                let us = unit_of_stamp(stamp_ns / 1000, stamp_ns + 5_000_000);
                assert_eq!(us, Some("microseconds"), "{stamp_s}");
            }
        }
    }
}
