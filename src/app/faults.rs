//! Counts of faults, warnings and normal events, and their lines in the log.
//!
//! Each input and each output is a site, with counts of its own. Each kind of event at a site has a rate limit of its own. A
//! count that the rate limit has suppressed is logged later, at the latest at the end of the node.

use super::diagnostics::Faulty;
use super::rate_limit::RateLimit;
use std::fmt::{Display, Write};
use std::time::{Duration, Instant};

/// Shortest time between two log lines about one kind of event at one input or output.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Time after which the log gets counts of events whose own lines the rate limit has suppressed.
const SAY_AFTER: Duration = Duration::from_secs(10);

/// Reason why a sample or a message is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Dropped because more messages or samples waited than the limit allows.
    Overflow,
    /// Dropped for a NaN or an infinity among the values.
    NonFinite,
    /// Dropped for a wrong length or shape of the payload.
    Length,
    /// Dropped for a wrong or missing timestamp.
    Stamp,
    /// Dropped for a value beyond the limits of the computation.
    Range,
    /// Pose that was dropped because no joints were found for it.
    Unreachable,
}

impl Dropped {
    /// Number of reasons: the length of an array with a count for each reason.
    pub(super) const REASONS: usize = Self::Unreachable as usize + 1;
}

/// Counts of faults, warnings and normal events, by site (an input or an output) and kind. Each kind is logged at a limited
/// rate of its own.
#[derive(Default)]
pub(super) struct Faults {
    sites: Vec<Site>,
}

struct Site {
    name: String,
    kinds: Vec<Kind>,
    /// Counts of dropped samples and messages by reason, [`Dropped`], for the diagnostics.
    dropped: [u64; Dropped::REASONS],
}

struct Kind {
    /// Name of the kind in the log's summary at the end of the node. Empty for errors, whose messages describe them.
    name: &'static str,
    level: Severity,
    rate: RateLimit,
    /// Text of the last logged line, without the counts.
    words: String,
}

/// Severity of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
    Info,
}

impl Faults {
    /// Adds a site, such as "fuse: input `force`", and returns its index.
    pub(super) fn add_site(&mut self, name: String) -> usize {
        self.sites.push(Site {
            name,
            kinds: Vec::new(),
            dropped: [0; Dropped::REASONS],
        });
        self.sites.len() - 1
    }

    /// Counts `times` errors at a site: bad data, or work that failed. The message is formatted only if it is logged.
    pub(super) fn count(&mut self, site: usize, times: u64, message: impl Display) {
        self.sites[site].count("", Severity::Error, times, message, Instant::now(), LOG_EVERY);
    }

    /// Counts `times` events that are not errors, but that an operator should know of.
    pub(super) fn warn(&mut self, site: usize, kind: &'static str, times: u64, message: impl Display) {
        self.sites[site].count(kind, Severity::Warning, times, message, Instant::now(), LOG_EVERY);
    }

    /// Does the same as [`warn`](Self::warn), but logs less often: for events that may go on all the time.
    pub(super) fn warn_seldom(&mut self, site: usize, kind: &'static str, times: u64, message: impl Display) {
        self.sites[site].count(kind, Severity::Warning, times, message, Instant::now(), SAY_AFTER);
    }

    /// Counts a normal event, which is not a fault. Only the log's summary at the end of the node mentions it.
    pub(super) fn tally(&mut self, site: usize, kind: &'static str) {
        let site = &mut self.sites[site];
        let kind = site.kind(kind, Severity::Info);
        site.kinds[kind].rate.add(1);
    }

    /// Counts `times` samples or messages of a site as dropped for the reason `why`. Logs nothing.
    pub(super) fn drop(&mut self, site: usize, why: Dropped, times: u64) {
        self.sites[site].dropped[why as usize] += times;
    }

    /// Sums the faults and the dropped messages of several sites, and finds their last log line about a fault.
    pub(super) fn faulty(&self, sites: impl Iterator<Item = usize>) -> Faulty<'_> {
        let mut faulty = Faulty::default();
        let mut last_said = None;
        for site in sites.map(|site| &self.sites[site]) {
            let dropped = faulty.dropped.iter_mut().zip(site.dropped);
            dropped.for_each(|(sum, count)| *sum += count);
            for kind in site.kinds.iter().filter(|kind| kind.level == Severity::Error) {
                faulty.faults += kind.rate.count();
                if kind.rate.last() > last_said {
                    (faulty.said, last_said) = (&kind.words, kind.rate.last());
                }
            }
        }
        faulty
    }

    /// Logs the counts that the rate limit has suppressed for [`SAY_AFTER`] or longer.
    #[cfg(any(test, feature = "dora"))]
    pub(super) fn log_suppressed(&mut self, now: Instant) {
        for site in &mut self.sites {
            for kind in &mut site.kinds {
                let is_fault = kind.level != Severity::Info;
                if is_fault && kind.rate.has_suppressed() && kind.rate.is_due(now, SAY_AFTER) {
                    let words = match kind.name {
                        "" => "more errors",
                        name => name,
                    };
                    kind.say(&site.name, words, now);
                }
            }
        }
    }

    /// Every site's name, with its number of faults and warnings since the start.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.sites.iter().map(|site| {
            let count = site.faults().map(|kind| kind.rate.count()).sum();
            (site.name.as_str(), count)
        })
    }

    /// Every kind of fault or warning at each site: the site's name, the number of events, and the last line of the log about them.
    pub(super) fn causes(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        self.sites.iter().flat_map(|site| {
            site.faults()
                .map(|kind| (site.name.as_str(), kind.rate.count(), kind.words.as_str()))
        })
    }

    /// Logs the total of each count, at the end of the node. A total with events that no line has reported is logged as an
    /// error or a warning, as its kind is. The other totals are logged at the level info.
    pub(super) fn summarize(&mut self) {
        for site in &mut self.sites {
            for kind in &mut site.kinds {
                let (site, count, has_unreported) = (&site.name, kind.rate.count(), kind.rate.take_suppressed());
                let line = match kind.name {
                    "" => format!("{site}: {count} in all, such as: {}", kind.words),
                    name => format!("{site}: {name}: {count} in all"),
                };
                match kind.level {
                    Severity::Error if has_unreported => tracing::error!("{line}"),
                    Severity::Warning if has_unreported => tracing::warn!("{line}"),
                    _ => tracing::info!("{line}"),
                }
            }
        }
    }
}

impl Site {
    /// The kinds of faults and warnings, without normal events.
    fn faults(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|kind| kind.level != Severity::Info)
    }

    /// Returns the index of the kind with this name, which is added with `level` if it is missing.
    fn kind(&mut self, name: &'static str, level: Severity) -> usize {
        let found = self.kinds.iter().position(|other| other.name == name);
        found.unwrap_or_else(|| {
            self.kinds.push(Kind {
                name,
                level,
                rate: RateLimit::default(),
                words: String::new(),
            });
            self.kinds.len() - 1
        })
    }

    fn count(
        &mut self,
        kind: &'static str,
        level: Severity,
        times: u64,
        message: impl Display,
        now: Instant,
        every: Duration,
    ) {
        let at = self.kind(kind, level);
        let kind = &mut self.kinds[at];
        kind.rate.add(times);
        if kind.rate.is_due(now, every) {
            kind.words.clear();
            // Writing to a string can't fail.
            let _ = write!(kind.words, "{message}");
            shorten(&mut kind.words);
            let words = std::mem::take(&mut kind.words);
            kind.say(&self.name, &words, now);
            kind.words = words;
        }
    }
}

/// Shortens a message to its first and last 500 bytes, because names in it come from senders and may be of any length.
fn shorten(words: &mut String) {
    const MOST: usize = 1000;
    if words.len() > MOST {
        let head = words.floor_char_boundary(MOST / 2);
        let tail = words.ceil_char_boundary(words.len() - MOST / 2);
        *words = format!("{} ... {}", &words[..head], &words[tail..]);
    }
}

impl Kind {
    fn say(&mut self, site: &str, message: &str, now: Instant) {
        let counts = self.rate.counts(now);
        if self.level == Severity::Error {
            tracing::error!("{site}: {message} ({counts})");
        } else {
            tracing::warn!("{site}: {message} ({counts})");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Runs a function, and returns the lines that it logs, as level and text.
    fn logged(run: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_target(false)
            .with_ansi(false)
            .without_time()
            .finish();
        tracing::subscriber::with_default(subscriber, run);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn each_kind_at_a_site_has_a_rate_of_its_own() {
        let mut faults = Faults::default();
        let (force, camera) = (faults.add_site("force".into()), faults.add_site("camera".into()));
        let lines = logged(|| {
            faults.count(force, 1, "a sample has 3 values, not 2");
            faults.count(force, 2, "a sample has 4 values, not 2");
            faults.warn(force, "clock jump", 1, "the clock jumped by 2 s");
            faults.warn(force, "late samples", 1, "late");
            faults.warn(force, "late samples", 4, "later");
            faults.warn(camera, "clock jump", 1, "the clock jumped by 3 s");
        });
        assert_eq!(
            lines,
            [
                "ERROR force: a sample has 3 values, not 2 (1 since the last line, 1 in all)",
                "WARN force: the clock jumped by 2 s (1 since the last line, 1 in all)",
                "WARN force: late (1 since the last line, 1 in all)",
                "WARN camera: the clock jumped by 3 s (1 since the last line, 1 in all)",
            ]
        );
        assert_eq!(faults.counts().collect::<Vec<_>>(), [("force", 9), ("camera", 1)]);
        let causes: Vec<_> = faults.causes().collect();
        assert_eq!(causes[0], ("force", 3, "a sample has 3 values, not 2"));
        assert_eq!((causes.len(), causes[2]), (4, ("force", 5, "late")));
        let summary = logged(|| faults.summarize());
        assert_eq!(
            summary,
            [
                "ERROR force: 3 in all, such as: a sample has 3 values, not 2",
                "INFO force: clock jump: 1 in all",
                "WARN force: late samples: 5 in all",
                "INFO camera: clock jump: 1 in all",
            ]
        );
    }

    #[test]
    fn a_message_of_a_name_without_end_is_cut() {
        let mut faults = Faults::default();
        let lidar = faults.add_site("lidar".into());
        let name = "ü".repeat(200_000);
        let lines = logged(|| faults.count(lidar, 1, format_args!("column `{name}` is Utf8 and is not passed on")));
        assert!(lines[0].len() < 1200, "{}", lines[0].len());
        assert!(
            lines[0].starts_with("ERROR lidar: column `üü")
                && lines[0].contains("ü` is Utf8 and is not passed on (1 since")
        );
    }

    #[test]
    fn what_is_as_it_should_be_is_said_at_the_end_and_is_no_fault() {
        let mut faults = Faults::default();
        let force = faults.add_site("force".into());
        let lines = logged(|| {
            faults.tally(force, "displaced");
            faults.tally(force, "displaced");
            faults.log_suppressed(Instant::now() + 2 * SAY_AFTER);
        });
        assert!(lines.is_empty(), "{lines:?}");
        assert_eq!(faults.counts().collect::<Vec<_>>(), [("force", 0)]);
        assert_eq!(logged(|| faults.summarize()), ["INFO force: displaced: 2 in all"]);
    }

    #[test]
    fn what_the_rate_held_back_is_said_later() {
        let mut faults = Faults::default();
        let force = faults.add_site("force".into());
        let start = Instant::now();
        let lines = logged(|| {
            for message in ["first", "second", "third"] {
                faults.count(force, 1, message);
                faults.warn(force, "late samples", 1, message);
            }
            faults.log_suppressed(start + LOG_EVERY);
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        let lines = logged(|| {
            for seconds in [20, 40] {
                faults.log_suppressed(start + Duration::from_secs(seconds));
            }
        });
        assert_eq!(
            lines,
            [
                "ERROR force: more errors (2 since the last line, 3 in all)",
                "WARN force: late samples (2 since the last line, 3 in all)",
            ]
        );
    }
}
