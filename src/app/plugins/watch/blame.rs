//! Finds the stream that is to blame if there is no observation, or if a stream is hardly ever valid.
//!
//! The worst defect is named first. If no stream has a defect, all streams that are waited for are named.

use super::{HealthIssue, Level, SAY_AGAIN, SILENT, StreamWatch, Watch, apart};
use robocache_ops::align::{StreamState, Timeline, TriggerKind};
use robocache_time::{ns_to_ms, ns_to_s};
use std::fmt::Write;
use std::time::Instant;

/// Share of valid observations below which a stream counts as hardly ever valid.
const LEAST_VALID: f64 = 0.1;

/// Fewest recent observations from which a stream's share of valid observations is judged.
const LEAST_OBSERVED: u64 = 4;

/// Greatest plausible difference of the newest stamps of streams with one clock, ns. For slow streams it is [`APART_STEPS`] of
/// their steps, if that is longer.
const APART_NS: i64 = 100_000_000;
const APART_STEPS: i64 = 3;

/// Possible defects of a stream that is waited for, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Guilt {
    /// Messages came, but none that can be used.
    Unusable,
    /// Stamps that are not times in ns.
    Stamps,
    /// Silence: no message came at all, or none for long.
    Quiet,
    /// A clock that differs from those of the other streams.
    Apart,
    None,
}

impl Watch {
    /// Returns the index of the input that is most to blame for a missing observation, and the reason as text; `None` if all
    /// inputs are closed. The text describes the trigger, then the streams with a defect, the worst first. If no stream has a
    /// defect, it names all streams that are waited for.
    pub(super) fn why_silent(&self, now: Instant, timeline: &Timeline) -> Option<(usize, String)> {
        let states: Vec<StreamState> = (0..self.streams.len()).map(|stream| timeline.stream(stream)).collect();
        if !states.iter().any(|state| state.open) {
            return None;
        }
        let waited: Vec<usize> = (0..states.len())
            .filter(|&i| states[i].open && states[i].waits)
            .collect();
        let mut blamed: Vec<_> = waited
            .iter()
            .map(|&i| {
                let apart = self.apart_ns(i, &waited, &states);
                let far = apart
                    .unsigned_abs()
                    .saturating_mul(u64::from(is_far(apart, &self.streams[i])));
                (self.guilt(i, now, apart), std::cmp::Reverse(far), i, apart)
            })
            .collect();
        blamed.sort();
        let mut why = self.why_of_trigger(now, timeline);
        let prefix = why.len();
        let has_guilty = blamed.first().is_some_and(|&(guilt, ..)| guilt != Guilt::None);
        let named = blamed
            .iter()
            .filter(|&&(guilt, ..)| guilt != Guilt::None || !has_guilty);
        for &(guilt, _, i, apart_ns) in named {
            let separator = if why.len() == prefix { "" } else { ", " };
            let stream = &self.streams[i];
            // Writing to a string can't fail.
            let _ = write!(why, "{separator}`{}`", stream.name);
            if let Some(stamp_problem) = stream.stamp_problem.as_ref().filter(|_| guilt == Guilt::Stamps) {
                let _ = write!(why, ": {stamp_problem}");
                continue;
            }
            let Some(last) = stream.last else {
                let _ = match stream.refused {
                    0 => write!(why, " has sent nothing"),
                    refused => write!(why, " sent {refused} messages, none of which can be used"),
                };
                continue;
            };
            // The text has the distance to the least guilty other stream, whichever of the two is to blame.
            let other = blamed
                .iter()
                .rev()
                .map(|&(.., other, _)| other)
                .find(|&other| other != i);
            let own_ns = states[i].newest_ns;
            if is_far(apart_ns, stream)
                && let Some((other, own_ns)) = other.zip(own_ns)
                && let Some(other_ns) = states[other].newest_ns
            {
                let _ = write!(
                    why,
                    " is {} `{}` and",
                    apart(own_ns.saturating_sub(other_ns)),
                    self.streams[other].name
                );
            }
            let ago = now.saturating_duration_since(last).as_secs_f64();
            let _ = write!(why, " sent its last sample {ago:.1} s ago");
        }
        let is_trigger = timeline.trigger() == TriggerKind::Timer && self.trigger.last.is_none();
        let guilty = blamed.first().filter(|_| !is_trigger).map(|&(.., i, _)| i);
        Some((guilty.unwrap_or(self.streams.len()), why))
    }

    fn guilt(&self, i: usize, now: Instant, apart_ns: i64) -> Guilt {
        let stream = &self.streams[i];
        let is_quiet = stream.last.is_none() || stream.quiet(now, now).is_some();
        match stream.stamp_problem {
            _ if stream.last.is_none() && stream.refused > 0 => Guilt::Unusable,
            Some(_) => Guilt::Stamps,
            None if is_quiet => Guilt::Quiet,
            None if is_far(apart_ns, stream) => Guilt::Apart,
            None => Guilt::None,
        }
    }

    /// Returns how far the clock of stream `i` is ahead of the streams `among`, ns; negative if behind, 0 if unknown. Clocks
    /// are compared by last stamp minus arrival: with the median or, of two streams, with the one nearer to this host's clock.
    /// If arrivals are not known, newest stamps are compared with the newest of `among`.
    fn apart_ns(&self, i: usize, among: &[usize], states: &[StreamState]) -> i64 {
        let newest = |i: usize| states[i].newest_ns;
        let with_samples = || among.iter().copied().filter(|&i| newest(i).is_some());
        let leads: Option<Vec<i64>> = with_samples().map(|i| self.streams[i].lead_ns).collect();
        let own_and_reference = match leads {
            Some(mut leads) if leads.len() > 1 => {
                let nearest = leads.iter().copied().min_by_key(|lead| lead.unsigned_abs());
                let middle = leads.len() / 2;
                let median = *leads.select_nth_unstable(middle).1;
                let reference = if leads.len() > 2 { Some(median) } else { nearest };
                self.streams[i].lead_ns.filter(|_| newest(i).is_some()).zip(reference)
            }
            _ => newest(i).zip(with_samples().filter_map(newest).max()),
        };
        own_and_reference.map_or(0, |(own, reference)| own.saturating_sub(reference))
    }

    /// Finds the streams that are hardly ever valid, and the stream whose clock is to blame for it. Logs them, the guilty stream
    /// first, and sets their health issues.
    pub(super) fn look_for_invalid(&mut self, now: Instant, start: Instant, timeline: &Timeline) {
        let ahead = self.ahead_of_all(timeline);
        let mut ailing = Vec::new();
        for i in 0..self.streams.len() {
            self.streams[i].seen.turn(now);
            let Some(share) = self.streams[i].valid_share(now).filter(|&share| share < LEAST_VALID) else {
                continue;
            };
            let is_left_behind = ahead.is_some_and(|(other, _)| other != i) && timeline.late_samples(i) > 0;
            let cause = match ahead {
                Some((other, ns)) if is_left_behind => format!(
                    "`{}` is {:.3} s ahead of the other streams, and observations are sent before their samples come",
                    self.streams[other].name,
                    ns_to_s(ns)
                ),
                _ => self.why_invalid(i, now, start, timeline),
            };
            let what = format!("valid in {:.1} % of the observations", share * 100.0);
            ailing.push((i, is_left_behind, what, cause));
        }
        if let Some((guilty, ns)) = ahead.filter(|_| ailing.iter().any(|&(_, is_left_behind, ..)| is_left_behind)) {
            ailing.retain(|&(i, ..)| i != guilty);
            let what = format!(
                "{:.3} s ahead of the other streams, so that observations are sent before their samples come",
                ns_to_s(ns)
            );
            let cause = "its clock differs from theirs (`latency_ms` or robocache-clock puts it right)".to_owned();
            ailing.insert(0, (guilty, false, what, cause));
        }
        for (i, _, what, cause) in ailing {
            let level = Level::Error;
            let health_issue = HealthIssue { level, what, cause };
            let stream = &mut self.streams[i];
            // A quiet stream has a line of its own in the log.
            let is_said_quiet = timeline.stream(i).open && stream.quiet(now, start).is_some();
            if !is_said_quiet && stream.said_invalid.take_turn(now, SAY_AGAIN) {
                tracing::error!("{}: input `{}`: {health_issue}", self.operation, stream.name);
            }
            stream.health_issue = Some(health_issue);
        }
    }

    /// Returns the stream whose clock is furthest ahead of the open streams, and by how much, ns. `None` if no clock is more
    /// than 100 ms ahead. [`apart_ns`](Self::apart_ns) says how clocks are compared.
    fn ahead_of_all(&self, timeline: &Timeline) -> Option<(usize, i64)> {
        let states: Vec<StreamState> = (0..self.streams.len()).map(|stream| timeline.stream(stream)).collect();
        let open: Vec<usize> = (0..states.len()).filter(|&i| states[i].open).collect();
        let leads = open.iter().map(|&i| (i, self.apart_ns(i, &open, &states)));
        leads.filter(|&(_, ns)| ns > APART_NS).max_by_key(|&(_, ns)| ns)
    }

    /// Returns the reason why a stream is hardly ever valid: it is closed or silent, its stamps are wrong, or its clock
    /// differs. Otherwise a limit such as `max_age_ms` is exceeded, or its samples are late or missing.
    fn why_invalid(&self, i: usize, now: Instant, start: Instant, timeline: &Timeline) -> String {
        let (stream, state) = (&self.streams[i], timeline.stream(i));
        if !state.open {
            return "it is closed".to_owned();
        }
        if let Some(quiet) = stream.quiet(now, start) {
            return format!("it {}", stream.silence(quiet));
        }
        if let Some(stamp_problem) = &stream.stamp_problem {
            return stamp_problem.clone();
        }
        let others = (0..self.streams.len()).filter(|&other| other != i);
        let distance = |other: usize| {
            let distance = state.newest_ns?.saturating_sub(timeline.stream(other).newest_ns?);
            Some((other, distance))
        };
        let nearest = others
            .filter_map(distance)
            .min_by_key(|(_, distance)| distance.unsigned_abs());
        if let Some((other, distance)) = nearest.filter(|&(_, distance)| is_far(distance, stream)) {
            let other = &self.streams[other].name;
            return format!(
                "its newest sample is {} `{other}`: it comes late, or their clocks differ (`latency_ms` or robocache-clock puts them right)",
                apart(distance)
            );
        }
        let seen = stream.seen.get();
        let [max_age_ns, max_gap_ns] = timeline.limits_ns(i);
        if let Some(limit) = max_age_ns.filter(|&limit| seen.age_ns > limit) {
            let (age, limit) = (ns_to_ms(seen.age_ns), ns_to_ms(limit));
            return format!("its samples are up to {age:.1} ms old when they are used (`max_age_ms` {limit})");
        }
        if let Some(limit) = max_gap_ns.filter(|&limit| seen.step_ns > limit) {
            let (step, limit) = (ns_to_ms(seen.step_ns), ns_to_ms(limit));
            return format!("its samples are up to {step:.1} ms apart (`max_gap_ms` {limit})");
        }
        match timeline.late_samples(i) {
            0 if seen.age_ns < 0 => "it has no sample at or before the observations".to_owned(),
            0 => "it has no sample after the observations (`extrapolate_ms`, `max_wait_ms`)".to_owned(),
            late => format!("its samples come after their observations are sent, {late} so far (`max_wait_ms`)"),
        }
    }
}

impl StreamWatch {
    /// Share of recent observations in which the stream is valid; `None` if they are too few to tell.
    fn valid_share(&self, now: Instant) -> Option<f64> {
        let seen = self.seen.get();
        let is_known = seen.observed >= LEAST_OBSERVED && now.saturating_duration_since(self.seen.since()) >= SILENT;
        is_known.then(|| seen.valid as f64 / seen.observed as f64)
    }
}

/// True if the clock difference `apart_ns` between a stream and other streams is implausible for streams with one clock.
fn is_far(apart_ns: i64, stream: &StreamWatch) -> bool {
    let steps_ns = stream.seen.get().step_ns.saturating_mul(APART_STEPS);
    apart_ns.unsigned_abs() > APART_NS.max(steps_ns).unsigned_abs()
}
