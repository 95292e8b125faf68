//! Watch for missing sets: logs why no sets are published. It reads the wall clock, and has no influence on the sets.

use crate::app::diagnostics::is_silent;
use crate::app::rate_limit::RateLimit;
use crate::app::{Change, HealthIssue, Level};
use robocache_ops::group::Grouper;
use robocache_time::ns_to_s;
use std::time::{Duration, Instant};

/// Shortest time between two log lines that say why there is no set.
const SAY_AGAIN: Duration = Duration::from_secs(10);
const CHECK_EVERY: Duration = Duration::from_millis(500);

pub(super) struct Silence {
    operation: String,
    inputs: Vec<Input>,
    /// Time of the last set, or of the first check; `None` before both.
    since: Option<Instant>,
    /// Sequence number of the last set; -1 before the first set.
    last: i64,
    /// Longest time between two sets since the start.
    usual: Duration,
    log_limit: RateLimit,
    /// Index of the input that is to blame for a missing set, and its current problem; `None` if the last check found
    /// no problem.
    health_issue: Option<(usize, HealthIssue)>,
}

struct Input {
    name: String,
    /// Number of messages since the last set.
    messages: u64,
    is_closed: bool,
}

impl Silence {
    pub(super) fn new(operation: &str, inputs: &[String]) -> Self {
        let input = |name: &String| Input {
            name: name.clone(),
            messages: 0,
            is_closed: false,
        };
        Self {
            operation: operation.to_owned(),
            inputs: inputs.iter().map(input).collect(),
            since: None,
            last: -1,
            usual: Duration::ZERO,
            log_limit: RateLimit::default(),
            health_issue: None,
        }
    }

    /// Current problem of an input; `None` if the input is not to blame for a missing set.
    pub(super) fn health_issue(&self, input: usize) -> Option<&HealthIssue> {
        let of_input = self.health_issue.as_ref().filter(|(guilty, _)| *guilty == input);
        of_input.map(|(_, health_issue)| health_issue)
    }

    pub(super) fn message(&mut self, input: usize) {
        self.inputs[input].messages += 1;
        self.inputs[input].is_closed = false;
    }

    /// Records that a message of the set with the sequence number `number` is published. Returns true for the set's
    /// first message.
    pub(super) fn set(&mut self, number: i64) -> bool {
        if number == self.last {
            return false;
        }
        let now = Instant::now();
        if let Some(since) = self.since.filter(|_| self.last >= 0) {
            self.usual = self.usual.max(now.saturating_duration_since(since));
        }
        (self.since, self.last) = (Some(now), number);
        self.inputs.iter_mut().for_each(|input| input.messages = 0);
        true
    }

    pub(super) fn changed(&mut self, input: usize, to: Change) {
        self.inputs[input].is_closed = to == Change::Closed;
    }

    /// Logs why there is no set, if there was none for long. Returns the time of the next check.
    pub(super) fn check<M>(&mut self, now: Instant, grouper: &Grouper<M>) -> Instant {
        let quiet = now.saturating_duration_since(*self.since.get_or_insert(now));
        let some_speak = self.inputs.iter().any(|input| input.messages > 0);
        self.health_issue = None;
        if is_silent(quiet, self.usual) && some_speak {
            let (guilty, cause) = self.reason(grouper);
            let health_issue = HealthIssue {
                level: Level::Error,
                what: format!("no set for {} s", quiet.as_secs()),
                cause,
            };
            if self.log_limit.take_turn(now, SAY_AGAIN) {
                tracing::error!("{}: {health_issue}", self.operation);
            }
            self.health_issue = Some((guilty, health_issue));
        }
        now + CHECK_EVERY
    }

    /// Returns the index of the first input that is to blame for a missing set, and the reason.
    fn reason<M>(&self, grouper: &Grouper<M>) -> (usize, String) {
        let those = |is_so: fn(&Input) -> bool| {
            let those = || self.inputs.iter().enumerate().filter(|(_, input)| is_so(input));
            let names: Vec<String> = those().map(|(_, input)| format!("`{}`", input.name)).collect();
            those().next().map(|(first, _)| (first, names.join(", ")))
        };
        if let Some((first, closed)) = those(|input| input.is_closed) {
            return (first, format!("closed: {closed}"));
        }
        if let Some((first, silent)) = those(|input| input.messages == 0) {
            return (first, format!("nothing comes from {silent}"));
        }
        let newest = |input: usize| grouper.newest_ns(input).unwrap_or(0);
        let inputs = || 0..self.inputs.len();
        let behind = inputs().min_by_key(|&input| newest(input)).unwrap_or(0);
        let ahead = inputs().max_by_key(|&input| newest(input)).unwrap_or(0);
        let apart = ns_to_s(newest(ahead).saturating_sub(newest(behind)));
        let (last, first) = (&self.inputs[behind].name, &self.inputs[ahead].name);
        let cause = format!("no messages fit; the newest of `{last}` is {apart:.3} s behind that of `{first}`");
        (behind, cause)
    }
}
