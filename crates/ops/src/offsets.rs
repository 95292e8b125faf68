//! Clock errors between the streams of a recording, estimated from the arrival times of their messages.
//!
//! A message arrives a little after its capture, whatever the stream. So the *delay*, arrival minus stamp, is nearly the same
//! for all streams of one clock. If the clock of a stream is 2.5 s ahead, its delay is 2.5 s less.
//!
//! Jitter, stalls and bursts only make messages late. So arrival time is cut into *parts* of a quarter of a second, and only
//! the smallest delay of each part counts. A stream's delay in a *window* of `WINDOW` parts is the median of these smallest
//! delays. Streams are compared in each window, so that a clock set in the middle of the recording is found, and a drift once
//! it is large.
//!
//! A stream is not reported merely because some of its messages are late. No stream is reported if arrivals do not advance at
//! the rate of the stamps, as in a replay.
//!
//! ```
//! use robocache_ops::offsets::{Offsets, Severity};
//!
//! const MS: i64 = 1_000_000;
//! let mut offsets = Offsets::new([("camera", 0), ("joints", 0), ("force", 0)]);
//! for i in 0..1000 {
//!     let at = i * 10 * MS;
//!     // The camera's clock is 2.5 s ahead; all arrive 3 ms after the capture.
//!     offsets.add(0, at + 2500 * MS, at + 3 * MS);
//!     offsets.add(1, at, at + 3 * MS);
//!     offsets.add(2, at, at + 3 * MS);
//! }
//! let found = offsets.judge();
//! assert_eq!((found.len(), found[0].stream.as_str()), (1, "camera"));
//! assert_eq!((found[0].ahead_ns, found[0].severity()), (2500 * MS, Severity::Refused));
//! ```

use robocache_stream::{Message, form};
use robocache_time::{ns_to_ms, ns_to_s};
use std::collections::BTreeMap;
use std::fmt;

/// Smallest clock offset of a stream that causes a warning, ns, ahead or behind.
pub const WARNED_NS: i64 = 100_000_000;

/// Smallest clock offset for which a stream is refused, ns, ahead or behind.
pub const REFUSED_NS: i64 = 1_000_000_000;

/// Longest time that a message may take to arrive, ns. A larger offset can't be a delay, so the clock must be wrong.
const LATENCY_NS: i64 = 10_000_000_000;

/// Length of a part of arrival time, ns. Only the message with the smallest delay in a part counts.
const PART_NS: i64 = 250_000_000;

/// Number of parts, each of `PART_NS`, in a window. A stream has one delay in each window.
const WINDOW: i64 = 16;

/// Smallest number of parts with messages from which a delay is computed. For a slow stream, the parts of several windows are
/// joined until there are enough.
const LEAST_PARTS: usize = 4;

/// Greatest number of parts between two messages from which the rate of arrivals is compared with the rate of stamps.
const PACE_PARTS: usize = 8;

/// Smallest number of messages with which a stream is compared. A stream with fewer, such as a map that does not change, may
/// have stamps of any time.
const LEAST_MESSAGES: u64 = 8;

/// Greatest relative difference between the rate of arrivals and the rate of stamps. Beyond it, the arrivals are those of a
/// replay, and no stream is reported.
const MOST_DRIFT: f64 = 0.02;

/// Greatest jitter of an arrival, ns, that is ignored when the rate of arrivals is compared with the rate of stamps.
const JITTER_NS: i64 = 50_000_000;

/// Stamps and arrivals of the messages of several streams, in which [`judge`](Self::judge) finds streams with wrong clocks.
#[derive(Clone, Debug, Default)]
pub struct Offsets {
    streams: Vec<Arrivals>,
}

#[derive(Clone, Debug)]
struct Arrivals {
    name: String,
    latency_ns: i64,
    messages: u64,
    /// Message with the smallest delay in each part of arrival time; the key is `arrival_ns / PART_NS`.
    parts: BTreeMap<i64, Part>,
}

/// Stamp and arrival of the message with the smallest delay in a part of arrival time.
#[derive(Clone, Copy, Debug)]
struct Part {
    stamp_ns: i64,
    arrival_ns: i64,
}

impl Part {
    fn delay_ns(&self) -> i64 {
        self.arrival_ns.saturating_sub(self.stamp_ns)
    }
}

/// Severity of a clock offset: a warning, or the refusal of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Warning: the stream is off by [`WARNED_NS`] or more, and by less than [`REFUSED_NS`].
    Warned,
    /// Refusal: the stream is off by [`REFUSED_NS`] or more.
    Refused,
}

/// Clock offset of one stream: its size, and the streams that it was compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offset {
    /// Name of the stream with the wrong stamps.
    pub stream: String,
    /// Greatest distance by which the stamps of the stream are ahead of those of the other streams, beyond its `latency_ms`,
    /// ns. If negative, its stamps are behind, or its messages take that long to arrive.
    pub ahead_ns: i64,
    /// Distance by which the stamps of the stream are ahead of their arrival, ns, in the window that gives `ahead_ns`. Negative
    /// if the stamps are before the arrival.
    pub ahead_of_arrival_ns: i64,
    /// Time from the first arrival of any stream to the first window in which this stream is off, ns; 0: from the start.
    pub from_ns: i64,
    /// Streams that this stream is compared with: name, and distance by which their stamps are ahead of their arrival, ns.
    pub others: Vec<(String, i64)>,
    /// True if most streams agree with each other and not with this stream. If false, the streams in `others` may
    /// be wrong instead.
    pub is_outvoted: bool,
    /// Unit of the stamps, such as `milliseconds`, if they look like arrival times in that unit instead of
    /// ns; otherwise `None`.
    pub unit: Option<&'static str>,
}

impl Offset {
    /// Returns the severity: a refusal from [`REFUSED_NS`] on, ahead or behind, otherwise a warning.
    pub fn severity(&self) -> Severity {
        match self.ahead_ns.saturating_abs() {
            REFUSED_NS.. => Severity::Refused,
            _ => Severity::Warned,
        }
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ns: i64| format!("{:.3} s", ns_to_s(ns.saturating_abs()));
        let side = |ns: i64| if ns < 0 { "behind" } else { "ahead of" };
        let names = |others: &[(String, i64)]| {
            let names: Vec<String> = others.iter().map(|(name, _)| format!("`{name}`")).collect();
            names.join(", ")
        };
        let (name, ahead_ns) = (&self.stream, self.ahead_ns);
        let (ahead, others) = (format!("{} {}", seconds(ahead_ns), side(ahead_ns)), names(&self.others));
        write!(
            f,
            "`{name}`: its stamps are {ahead} those of {others}, judged by their arrival"
        )?;
        if self.from_ns > 0 {
            write!(f, ", from {} after the start on", seconds(self.from_ns))?;
        }
        if !self.is_outvoted {
            let own = |ns: i64| format!("{} {} their arrival", seconds(ns), side(ns));
            let of_it = own(self.ahead_of_arrival_ns);
            write!(f, "; which of them is wrong can't be told: its own are {of_it}")?;
            for (other, ns) in &self.others {
                write!(f, ", those of `{other}` {}", own(*ns))?;
            }
        }
        if let Some(unit) = self.unit {
            return write!(f, " (they look like the time in {unit}; needed: `timestamp_ns` in ns)");
        }
        write!(f, " (")?;
        let by_ns = ahead_ns.saturating_abs();
        if by_ns <= LATENCY_NS {
            let (by_ms, way) = (ns_to_ms(by_ns), if ahead_ns < 0 { "lower" } else { "raise" });
            write!(f, "if it is so in every run, {way} its `latency_ms` by {by_ms:.0}")?;
            if ahead_ns > 0 {
                write!(f, " and the time that its messages take to arrive")?;
            }
            write!(f, "; else ")?;
        }
        write!(f, "put `robocache-clock` before the recorder")?;
        if by_ns <= LATENCY_NS && ahead_ns < 0 {
            write!(f, "; if its messages take that long to arrive, its stamps are right")?;
        }
        write!(f, ")")
    }
}

impl Offsets {
    /// Creates an empty collection for streams, each given by its name and its `latency_ms`, here in ns.
    pub fn new<N: Into<String>>(streams: impl IntoIterator<Item = (N, i64)>) -> Self {
        let streams = streams.into_iter().map(|(name, latency_ns)| Arrivals {
            name: name.into(),
            latency_ns,
            messages: 0,
            parts: BTreeMap::new(),
        });
        Self {
            streams: streams.collect(),
        }
    }

    /// Returns the index of the stream with this name; `None` if there is none.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.streams.iter().position(|stream| stream.name == name)
    }

    /// Adds the stamp and the arrival of a message of the stream at index `stream`. Skips a message without a time of arrival,
    /// and observations, because their stamps are target times and not of a clock.
    pub fn message(&mut self, stream: usize, message: &Message) {
        let header = &message.header;
        let of_rows = || header.timestamps_ns.get()?.iter().copied().max();
        let newest_ns = header.timestamp_ns.get().or_else(of_rows);
        if let (Some(stamp_ns), Some(arrival_ns)) = (newest_ns, message.arrival_ns)
            && form::modalities.get(header).is_none()
        {
            self.add(stream, stamp_ns, arrival_ns);
        }
    }

    /// Adds the stamp and the arrival of a message of the stream at index `stream`, ns. At most four messages are kept for each
    /// second of arrival time.
    pub fn add(&mut self, stream: usize, stamp_ns: i64, arrival_ns: i64) {
        if !robocache_time::is_stamp_in_range(stamp_ns) || !robocache_time::is_stamp_in_range(arrival_ns) {
            return;
        }
        let stream = &mut self.streams[stream];
        stream.messages += 1;
        let came = Part { stamp_ns, arrival_ns };
        let part = stream.parts.entry(arrival_ns.div_euclid(PART_NS)).or_insert(came);
        if came.delay_ns() < part.delay_ns() {
            *part = came;
        }
    }

    /// Returns the streams whose stamps are off by [`WARNED_NS`] or more, in the order of [`new`](Self::new).
    ///
    /// Returns nothing for a single stream, or if arrivals do not advance at the rate of the stamps, as in a recording that was
    /// played as fast as possible.
    pub fn judge(&self) -> Vec<Offset> {
        let heard: Vec<&Arrivals> = self.streams.iter().filter(|of| of.messages >= LEAST_MESSAGES).collect();
        let mut drifts: Vec<f64> = heard.iter().flat_map(|stream| stream.drifts()).collect();
        drifts.sort_unstable_by(f64::total_cmp);
        // Only a few streams have a clock of another pace, or one that was set. So the median tells whether arrivals are live.
        let middle = drifts.get(drifts.len().saturating_sub(1) / 2);
        let firsts = heard.iter().filter_map(|stream| stream.parts.keys().next());
        let start = firsts
            .min()
            .filter(|_| heard.len() > 1 && middle.is_some_and(|&drift| drift <= MOST_DRIFT));
        let Some(&start) = start else { return Vec::new() };
        let windows: Vec<BTreeMap<i64, i64>> = heard.iter().map(|stream| stream.windows(start)).collect();
        let mut ends: Vec<i64> = windows.iter().flat_map(|windows| windows.keys().copied()).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut delays: Vec<Option<i64>> = vec![None; heard.len()];
        let mut worst: Vec<Option<Offset>> = vec![None; heard.len()];
        for (k, end) in ends.into_iter().enumerate() {
            for (delay, windows) in delays.iter_mut().zip(&windows) {
                *delay = windows.get(&end).copied().or(*delay);
            }
            for (at, mut offset) in compare(&heard, &delays) {
                // The last delay of a stream stands until it sends again, but it is only blamed for windows in which it sends.
                if !windows[at].contains_key(&end) {
                    continue;
                }
                let before = &worst[at];
                let first_ns = match k {
                    0 => 0,
                    _ => (end - WINDOW + 1 - start).max(0).saturating_mul(PART_NS),
                };
                offset.from_ns = before.as_ref().map_or(first_ns, |before| before.from_ns);
                let rank = |of: &Offset| (of.is_outvoted, of.ahead_ns.saturating_abs());
                let is_worse = |before: &Offset| rank(&offset) > rank(before);
                if before.as_ref().is_none_or(is_worse) {
                    worst[at] = Some(offset);
                }
            }
        }
        let mut found: Vec<Offset> = worst.into_iter().flatten().collect();
        // While only two streams spoke it could not be told which is off; later it could.
        let outvoted = |found: &[Offset], name: &str| found.iter().any(|of| of.is_outvoted && of.stream == name);
        let guilty: Vec<String> = found
            .iter()
            .map(|of| of.stream.clone())
            .filter(|name| outvoted(&found, name))
            .collect();
        found.retain(|of| of.is_outvoted || !of.others.iter().all(|(other, _)| guilty.contains(other)));
        found
    }
}

impl Arrivals {
    /// Returns the relative difference between the rate of arrivals and the rate of stamps, for pairs of messages a few parts
    /// apart. It is the difference between the two time spans, less [`JITTER_NS`], divided by the greater span.
    fn drifts(&self) -> Vec<f64> {
        let parts: Vec<&Part> = self.parts.values().collect();
        let step = (parts.len() / 2).clamp(1, PACE_PARTS);
        let pairs = parts.iter().zip(parts.iter().skip(step));
        let drift = |(a, b): (&&Part, &&Part)| {
            let stamps_ns = b.stamp_ns.saturating_sub(a.stamp_ns);
            let arrivals_ns = b.arrival_ns.saturating_sub(a.arrival_ns);
            let apart_ns = arrivals_ns.saturating_sub(stamps_ns).saturating_abs();
            apart_ns.saturating_sub(JITTER_NS).max(0) as f64 / stamps_ns.saturating_abs().max(arrivals_ns).max(1) as f64
        };
        pairs.map(drift).collect()
    }

    /// Returns the unit of the stamps if they look like arrival times in another unit than ns; otherwise `None`.
    fn unit(&self) -> Option<&'static str> {
        let (_, part) = self.parts.first_key_value()?;
        robocache_time::unit_of_stamp(part.stamp_ns, part.arrival_ns)
    }

    /// Returns the delay of the stream in each window, ns. The key is the index of the last part of the window; `start` is that
    /// of the first part of the recording.
    fn windows(&self, start: i64) -> BTreeMap<i64, i64> {
        let mut windows = BTreeMap::new();
        let mut parts = self.parts.iter().peekable();
        let mut gathered: Vec<i64> = Vec::new();
        while let Some((&at, part)) = parts.next() {
            gathered.push(part.delay_ns());
            let end = |at: i64| start + ((at - start).div_euclid(WINDOW) + 1) * WINDOW - 1;
            let is_last = parts.peek().is_none();
            let is_over = parts.peek().is_none_or(|(next, _)| end(**next) > end(at));
            let is_enough = gathered.len() >= LEAST_PARTS || is_last && windows.is_empty();
            if is_over && is_enough {
                windows.extend(middle(&mut gathered).map(|delay| (end(at), delay)));
                gathered.clear();
            }
        }
        windows
    }
}

/// Returns the streams that are off in one window, with their indices. `delays` has the delay of each stream, ns.
///
/// The common clock is where the sum of the distances to the streams is least. A stream allows a range from its delay to its
/// delay plus its latency, and the clock is between the two middle ends of all ranges. If these two ends are far apart, as with
/// two streams, it can't be decided which stream is wrong.
fn compare(streams: &[&Arrivals], delays: &[Option<i64>]) -> Vec<(usize, Offset)> {
    let known = delays.iter().enumerate();
    let known: Vec<(usize, i64)> = known.filter_map(|(i, delay)| Some((i, (*delay)?))).collect();
    let allowed = |&(i, delay): &(usize, i64)| {
        let latency = streams[i].latency_ns;
        [latency.min(0), latency.max(0)].map(|end| delay.saturating_add(end))
    };
    if known.len() < 2 {
        return Vec::new();
    }
    let mut ends: Vec<i64> = known.iter().flat_map(allowed).collect();
    ends.sort_unstable();
    let (low, high) = (ends[known.len() - 1], ends[known.len()]);
    let is_agreed = high.saturating_sub(low) < WARNED_NS;
    let off = |stream: &(usize, i64)| {
        let [least, most] = allowed(stream);
        // A stream with less delay than the others has stamps ahead of theirs.
        match is_agreed {
            true if most < low => low.saturating_sub(most),
            true => high.saturating_sub(least).min(0),
            false if most <= low => high.saturating_sub(most),
            false if least >= high => low.saturating_sub(least),
            false => 0,
        }
    };
    let found = known.iter().filter_map(|stream| {
        let ahead_ns = off(stream);
        let others = known.iter().filter(|other| {
            let theirs = off(other);
            let is_other_side = match is_agreed {
                true => theirs.saturating_abs() < WARNED_NS,
                false => theirs.signum() == -ahead_ns.signum(),
            };
            other.0 != stream.0 && is_other_side
        });
        (ahead_ns.saturating_abs() >= WARNED_NS).then(|| {
            let offset = Offset {
                stream: streams[stream.0].name.clone(),
                ahead_ns,
                ahead_of_arrival_ns: stream.1.saturating_neg(),
                from_ns: 0,
                others: others
                    .map(|&(i, delay)| (streams[i].name.clone(), delay.saturating_neg()))
                    .collect(),
                is_outvoted: is_agreed,
                unit: streams[stream.0].unit(),
            };
            (stream.0, offset)
        })
    });
    found.collect()
}

/// Returns the median, the lower of the two middle values if their number is even; `None` if there are no values.
fn middle(values: &mut [i64]) -> Option<i64> {
    let at = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(at).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const S: i64 = 1000 * MS;
    const START: i64 = 1_700_000_000 * S;

    /// Simulated stream: its rate, the offset of its clock at a time since the start, and when it sends, ns since the start.
    struct Made<'a> {
        name: &'a str,
        rate_hz: i64,
        latency_ms: i64,
        ahead_ms: &'a dyn Fn(i64) -> i64,
        speaks: std::ops::Range<i64>,
    }

    fn made<'a>(name: &'a str, rate_hz: i64, ahead_ms: &'a dyn Fn(i64) -> i64) -> Made<'a> {
        Made {
            name,
            rate_hz,
            latency_ms: 0,
            ahead_ms,
            speaks: 0..20 * S,
        }
    }

    /// Returns each stream that is off as `NAME OFFSET`, in s, with the time from which on it is off. A `?` means that it can't
    /// be decided which stream is wrong. `arrive` turns a capture time since the start into an arrival.
    fn found(streams: &[Made<'_>], arrive: impl Fn(i64) -> i64) -> Vec<String> {
        let mut offsets = Offsets::new(streams.iter().map(|made| (made.name, made.latency_ms * MS)));
        let mut state = 7_u64;
        for (stream, made) in streams.iter().enumerate() {
            let step = S / made.rate_hz;
            for captured in (0..)
                .map(|i| made.speaks.start + i * step)
                .take_while(|at| *at < made.speaks.end)
            {
                // Late by 2 ms, and often by up to 80 ms.
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let jitter = if state >> 63 == 1 {
                    (state >> 33) as i64 % (80 * MS)
                } else {
                    0
                };
                let stamp = START + captured + (made.ahead_ms)(captured) * MS;
                offsets.add(stream, stamp, START + arrive(captured) + 2 * MS + jitter);
            }
        }
        let said = offsets.judge().into_iter().map(|of| {
            let mark = if of.is_outvoted { "" } else { "?" };
            let from = if of.from_ns > 0 {
                format!(" from {}", of.from_ns / S)
            } else {
                String::new()
            };
            format!("{} {:+.1}{mark}{from}", of.stream, (of.ahead_ns as f64) * 1e-9)
        });
        said.collect()
    }

    fn live(captured: i64) -> i64 {
        captured
    }

    #[test]
    fn the_stream_whose_clock_is_off_is_named() {
        let right = |_| 0;
        for (ahead_ms, said) in [
            (2500, &["camera +2.5"][..]),
            (-2500, &["camera -2.5"]),
            (200, &["camera +0.2"]),
            (-400, &["camera -0.4"]),
            (80, &[]),
            (0, &[]),
            (-90_000_000, &["camera -90000.0"]),
        ] {
            let off = move |_| ahead_ms;
            for rate_hz in [2, 30, 1000] {
                let streams = [
                    made("camera", rate_hz, &off),
                    made("joints", 500, &right),
                    made("force", 1000, &right),
                ];
                assert_eq!(found(&streams, live), said, "{ahead_ms} at {rate_hz} Hz");
            }
        }
    }

    #[test]
    fn of_two_streams_both_are_named_as_of_two_against_two() {
        let (right, off) = (|_| 0, |_| 2500);
        assert_eq!(
            found(&[made("camera", 30, &off), made("joints", 500, &right)], live),
            ["camera +2.5?", "joints -2.5?"]
        );
        let four = ["a", "b", "c", "d"].map(|name| made(name, 100, if name < "c" { &off } else { &right }));
        assert_eq!(found(&four, live), ["a +2.5?", "b +2.5?", "c -2.5?", "d -2.5?"]);
        assert_eq!(found(&four[..3], live), ["c -2.5"]);
        assert_eq!(found(&four[..1], live), [] as [&str; 0]);
        // A third stream that begins late tells which is wrong.
        let mut late = made("force", 100, &right);
        late.speaks = 9 * S..20 * S;
        assert_eq!(
            found(&[made("camera", 30, &off), made("joints", 500, &right), late], live),
            ["camera +2.5"]
        );
    }

    #[test]
    fn a_latency_accounts_for_stamps_up_to_it() {
        let right = |_| 0;
        for (ahead_ms, latency_ms, said) in [
            (2500, 2500, &[][..]),
            (2500, 2450, &[]),
            (2500, 2000, &["camera +0.5"]),
            (-2500, -2500, &[]),
            (-2500, 2500, &["camera -2.5"]),
            // Stamped on arrival, 200 ms after the capture: arrivals tell nothing of it.
            (0, 200, &[]),
        ] {
            let off = move |_| ahead_ms;
            let mut camera = made("camera", 30, &off);
            camera.latency_ms = latency_ms;
            let streams = [camera, made("joints", 500, &right), made("force", 1000, &right)];
            assert_eq!(found(&streams, live), said, "{ahead_ms} with {latency_ms}");
        }
    }

    #[test]
    fn a_clock_that_is_set_or_drifts_is_seen() {
        let right = |_| 0;
        let others = || [made("joints", 500, &right), made("force", 1000, &right)];
        for by in [2500, -2500] {
            for at in [3, 10, 16] {
                let set = move |t: i64| if t < at * S { 0 } else { by };
                let [joints, force] = others();
                let said = found(&[made("camera", 30, &set), joints, force], live);
                let from = at / 4 * 4;
                // In the window in which the clock is set, most parts decide.
                let (now, next) = (
                    format!("camera {:+.1} from {from}", by as f64 / 1e3),
                    format!("camera {:+.1} from {}", by as f64 / 1e3, from + 4),
                );
                assert!(said == [now] || said == [next], "{by} at {at}: {said:?}");
            }
        }
        let drifts = |t: i64| t / S * 20;
        let [joints, force] = others();
        let said = found(&[made("camera", 30, &drifts), joints, force], live);
        assert_eq!(said, ["camera +0.4 from 4"]);
    }

    #[test]
    fn arrivals_that_tell_nothing_raise_no_alarm() {
        let (right, off) = (|_| 0, |_| 2500);
        let streams = || {
            [
                made("camera", 30, &off),
                made("joints", 500, &right),
                made("force", 1000, &right),
            ]
        };
        // Played as fast as it goes, in bursts; twice as fast; half as fast.
        for (what, arrive) in [
            ("at once", (|_| 0) as fn(i64) -> i64),
            ("fast", |t| t / 50),
            ("bursts", |t| t / (5 * S) * 100 * MS),
            ("twice", |t| t / 2),
            ("half", |t| 2 * t),
        ] {
            assert_eq!(found(&streams(), arrive), [] as [&str; 0], "{what}");
        }
        // A bag whose times of recording are the stamps themselves.
        let mut offsets = Offsets::new([("a", 0), ("b", 200 * MS), ("c", -300 * MS)]);
        for i in 0..600 {
            (0..3).for_each(|stream| offsets.add(stream, i * 33 * MS, i * 33 * MS));
        }
        assert_eq!(offsets.judge(), []);
    }

    #[test]
    fn stalls_late_starts_ends_and_maps_raise_no_alarm() {
        let right = |_| 0;
        // The recorder stood still for 3 s, at the start and later: then all comes at once.
        let stall = |t: i64| {
            if t < 3 * S {
                3 * S
            } else if (10 * S..13 * S).contains(&t) {
                13 * S
            } else {
                t
            }
        };
        let streams = || {
            [
                made("camera", 30, &right),
                made("joints", 500, &right),
                made("slow", 1, &right),
            ]
        };
        assert_eq!(found(&streams(), stall), [] as [&str; 0]);
        let [mut camera, mut joints, slow] = streams();
        (camera.speaks, joints.speaks) = (12 * S..20 * S, 0..5 * S);
        assert_eq!(found(&[camera, joints, slow], live), [] as [&str; 0]);
        // A map is of long ago, and comes again now and then.
        let of_old = |t: i64| -1_000_000 - t / MS;
        let mut map = made("map", 1, &of_old);
        map.speaks = 0..7 * S;
        let [camera, joints, slow] = streams();
        assert_eq!(found(&[camera, joints, slow, map], live), [] as [&str; 0]);
    }

    #[test]
    fn a_few_absurd_stamps_are_no_offset_and_nothing_is_too_strange() {
        let strange = |t: i64| if t % (3 * S) == 0 { 86_400_000 } else { 0 };
        let right = |_| 0;
        let streams = [
            made("camera", 30, &strange),
            made("joints", 500, &right),
            made("force", 1000, &right),
        ];
        assert_eq!(found(&streams, live), [] as [&str; 0]);
        let ends = [i64::MIN, i64::MAX, 0, 1 << 61, -(1 << 61), 1];
        let mut offsets = Offsets::new([("a", i64::MAX), ("b", i64::MIN), ("c", 0)]);
        for (i, stamp) in ends.iter().cycle().take(600).enumerate() {
            offsets.add(i % 3, *stamp, ends[i / 7 % 6]);
        }
        offsets.judge();
        assert_eq!(Offsets::default().judge(), []);
        // Fewer messages than a stream needs.
        let mut offsets = Offsets::new([("a", 0), ("b", 0)]);
        (0..7).for_each(|i| (0..2).for_each(|stream| offsets.add(stream, i * S + stream as i64 * 5 * S, i * S)));
        assert_eq!(offsets.judge(), []);
    }

    #[test]
    fn it_says_how_far_in_which_direction_and_what_to_do() {
        let (right, off, late) = (|_| 0, |_| 2500, |_| -300);
        let said = |streams: &[Made<'_>]| {
            let mut offsets = Offsets::new(streams.iter().map(|made| (made.name, 0)));
            for (stream, made) in streams.iter().enumerate() {
                for at in (0..400).map(|i| i * 50 * MS) {
                    offsets.add(stream, START + at + (made.ahead_ms)(at) * MS, START + at + 2 * MS);
                }
            }
            offsets.judge().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let [joints, force] = [made("joints", 20, &right), made("force", 20, &right)];
        assert_eq!(
            said(&[made("camera", 20, &off), joints, force]),
            [
                "`camera`: its stamps are 2.500 s ahead of those of `joints`, `force`, judged by their arrival (if it is so in every run, raise \
              its `latency_ms` by 2500 and the time that its messages take to arrive; else put `robocache-clock` before the recorder)"
            ]
        );
        // Nothing takes as long to arrive.
        let far = |_| -1_699_999_972_310;
        let clock = said(&[
            made("camera", 20, &far),
            made("joints", 20, &right),
            made("force", 20, &right),
        ]);
        assert!(
            clock[0].ends_with("judged by their arrival (put `robocache-clock` before the recorder)"),
            "{clock:?}"
        );
        let said = said(&[made("camera", 20, &late), made("joints", 20, &right)]);
        assert_eq!(
            said[0],
            "`camera`: its stamps are 0.300 s behind those of `joints`, judged by their arrival; which of them is wrong can't be told: its \
             own are 0.302 s behind their arrival, those of `joints` 0.002 s behind their arrival (if it is so in every run, lower its \
             `latency_ms` by 300; else put `robocache-clock` before the recorder; if its messages take that long to arrive, its stamps \
             are right)"
        );
        assert!(
            said[1].starts_with("`joints`: its stamps are 0.300 s ahead of those of `camera`"),
            "{said:?}"
        );
    }
}
