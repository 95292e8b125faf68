//! Plugin `replay`: publishes the messages of a recording, at the recorded speed or another.
//!
//! Data that can't be read is logged and skipped. The replay then ends with an error, after all other messages are published.

use crate::app::rate_limit::RateLimit;
use crate::app::{AppError, BuildContext, Fault, Outbox, Source, Wake};
use robocache_ops::ConfigError;
use robocache_ops::align::is_request;
use robocache_stream::recording::{Order, ReadError, Reader};
use robocache_stream::{Layout, Message};
use serde::{Deserialize, Deserializer, de};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest pause between two messages, ns of recorded time. A longer one is shortened to this: it comes from a wrong stamp, or
/// is longer than anybody wants to wait.
const LONGEST_PAUSE_NS: i64 = 10_000_000_000;
/// Shortest time between two warnings of one kind.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// The section `replay:` of a configuration.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ReplayConfig {
    /// Folder of the recording to replay.
    pub path: PathBuf,
    /// Speed of the replay relative to the recording; 1 if absent.
    #[serde(default)]
    pub speed: Speed,
    /// Order in which messages are published, and the times that pace them: stamps, or arrivals at the recorder. `None`: arrivals,
    /// if the recording has them, else stamps.
    pub order: Option<Order>,
}

/// Speed of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// A multiple of the recorded speed, 0.001 to 1000.
    Times(f64),
    /// The speed at which the consumers take the messages.
    Max,
}

impl Default for Speed {
    fn default() -> Self {
        Self::Times(1.0)
    }
}

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Text {
            Number(f64),
            Word(String),
        }
        let refused = |value: String| {
            de::Error::custom(format!(
                "`{value}` is not a speed (allowed: a number from 0.001 to 1000, or max)"
            ))
        };
        match Text::deserialize(deserializer) {
            Ok(Text::Number(factor)) if (0.001..=1000.0).contains(&factor) => Ok(Self::Times(factor)),
            Ok(Text::Number(factor)) => Err(refused(factor.to_string())),
            Ok(Text::Word(word)) if word == "max" => Ok(Self::Max),
            Ok(Text::Word(word)) => Err(refused(word)),
            Err(_) => Err(refused("what is neither a number nor a word".into())),
        }
    }
}

plugin! {
    /// Plugin that publishes the streams of the recording in `replay:`, in the order of time, each as an output of its name.
    ReplayPlugin(ReplayConfig), "replay": "Publishes a recording, at its pace or another."
}

fn build(config: ReplayConfig, context: &mut BuildContext<'_>) -> Result<(), AppError> {
    let reader =
        Reader::open(&config.path).map_err(|error| context.refused(&ConfigError::new("path", error.to_string())))?;
    let order = config.order.unwrap_or_else(|| reader.own_order());
    let reader = reader
        .in_order(order)
        .map_err(|error| context.refused(&ConfigError::new("order", error.to_string())))?;
    let outputs: Vec<String> = reader.streams().map(str::to_owned).collect();
    let source = Replay {
        name: context.name().to_owned(),
        speed: config.speed,
        order,
        warns_of_requests: order == Order::Stamp,
        wanted: Vec::new(),
        outputs: outputs.clone(),
        reader,
        started: false,
        pace: None,
        cut: RateLimit::default(),
        damaged: RateLimit::default(),
        first_damage: None,
        message: Message::default(),
        layout: Layout::default(),
    };
    context.add_source(outputs, source);
    Ok(())
}

struct Replay {
    name: String,
    speed: Speed,
    order: Order,
    /// True until the warning about recorded requests is logged.
    warns_of_requests: bool,
    outputs: Vec<String>,
    /// Indices of the outputs that are published, in the order of the reader's streams.
    wanted: Vec<usize>,
    reader: Reader,
    started: bool,
    /// Times at which messages are due; `None` before the first message, and always at the speed [`Speed::Max`].
    pace: Option<Pace>,
    /// Rate limit and count of the pauses that were shortened.
    cut: RateLimit,
    /// Rate limit and count of the pieces of the recording that could not be read.
    damaged: RateLimit,
    /// Error of the first piece of the recording that could not be read. It ends the replay after all other messages; `None` if
    /// all was read.
    first_damage: Option<ReadError>,
    message: Message,
    layout: Layout,
}

impl Source for Replay {
    fn wake(&mut self, now: Instant, out: &mut Outbox<'_>) -> Result<Wake, Fault> {
        if !self.started {
            self.started = true;
            self.wanted = (0..self.outputs.len())
                .filter(|&output| out.is_wanted(output))
                .collect();
            let (outputs, wanted) = (&self.outputs, &self.wanted);
            self.reader
                .retain(|name| wanted.iter().any(|&output| outputs[output] == name));
            let order = match self.order {
                Order::Arrival => "in which they came to the recorder",
                Order::Stamp => "of their stamps",
            };
            tracing::info!("{}: messages go out in the order {order}", self.name);
        }
        if let (Speed::Times(speed), Some((stamp, stream))) = (self.speed, self.reader.next_stamp()) {
            let pace = self.pace.get_or_insert_with(|| Pace::new(now, stamp));
            if let Some(gap) = pace.advance(stamp, speed)
                && is_due(&mut self.cut)
            {
                tracing::warn!(
                    "{}: stream `{}`: its next stamp is {} s after the one before it in the recording, and is \
                     waited for {} s, the longest pause at speed 1: a stamp of another clock, or a long silence ({})",
                    self.name,
                    self.outputs[self.wanted[stream]],
                    gap / 1_000_000_000,
                    LONGEST_PAUSE_NS / 1_000_000_000,
                    self.cut.counts(Instant::now())
                );
            }
            if pace.due > Instant::now() {
                return Ok(Wake::At(pace.due));
            }
        }
        match self.reader.next_into(&mut self.message) {
            Ok(Some(stream)) => self.publish(self.wanted[stream], out),
            Ok(None) => return self.end(),
            // The file that a crash left behind has no more messages, and nothing else is wrong.
            Err(error @ (ReadError::Unfinished { .. } | ReadError::NotEnded { .. })) => {
                tracing::warn!("{}: {error}", self.name)
            }
            Err(error) => {
                if is_due(&mut self.damaged) {
                    tracing::error!("{}: {error} ({})", self.name, self.damaged.counts(Instant::now()));
                }
                self.first_damage.get_or_insert(error);
            }
        }
        Ok(Wake::At(now))
    }
}

/// Pace of a replay: converts recorded stamps to the times at which their messages are due.
struct Pace {
    /// Time at which the newest message is due.
    due: Instant,
    /// Newest stamp so far, ns. After the recorded clock was set back far, it begins anew at the smaller stamp.
    newest: i64,
    /// Newest stamp before the last jump, ns. If stamps come back near to it, the replay continues from it, so that a single
    /// bad stamp counts as one jump.
    before: i64,
    /// Stamp that [`advance`](Self::advance) was called with last, ns; at first the stamp of the first message.
    last_stamp: i64,
}

impl Pace {
    fn new(now: Instant, stamp: i64) -> Self {
        Self {
            due: now,
            newest: stamp,
            before: stamp,
            last_stamp: stamp,
        }
    }

    /// Sets `due` for the message with this stamp, ns; a repeated call with the same stamp changes nothing. Returns the
    /// recorded pause before the message, ns, if it was shortened.
    fn advance(&mut self, stamp: i64, speed: f64) -> Option<i64> {
        if stamp == self.last_stamp {
            return None;
        }
        self.last_stamp = stamp;
        let is_near = |to: i64| stamp.saturating_sub(to).saturating_abs() <= LONGEST_PAUSE_NS;
        let is_jump = !is_near(self.newest);
        if is_jump {
            let is_back = is_near(self.before);
            let newest = std::mem::replace(&mut self.before, self.newest);
            self.newest = if is_back { newest } else { self.newest };
        }
        let gap = stamp.saturating_sub(self.newest);
        if gap < 0 {
            // A clock that was set back goes on from there; messages out of order wait for nothing.
            if is_jump && gap < -LONGEST_PAUSE_NS {
                self.newest = stamp;
            }
            return None;
        }
        self.newest = stamp;
        let pause = Duration::from_nanos(gap.min(LONGEST_PAUSE_NS) as u64);
        self.due += pause.div_f64(speed);
        (gap > LONGEST_PAUSE_NS).then_some(gap)
    }
}

/// Counts an event, and returns true if a line about it may be logged.
fn is_due(rate: &mut RateLimit) -> bool {
    rate.add(1);
    rate.is_due(Instant::now(), LOG_EVERY)
}

impl Replay {
    /// Ends the replay after the last message. Fails if a part of the recording could not be read.
    fn end(&mut self) -> Result<Wake, Fault> {
        match self.first_damage.take() {
            None => Ok(Wake::Done),
            Some(error) => {
                let count = self.damaged.count();
                Err(
                    format!("{count} parts of the recording could not be read, the others were published: {error}")
                        .into(),
                )
            }
        }
    }

    fn publish(&mut self, output: usize, out: &mut Outbox<'_>) {
        let message = &self.message;
        if self.warns_of_requests && message.header.unstamped.is_present() && is_request(&message.header) {
            self.warns_of_requests = false;
            tracing::warn!(
                "{}: stream `{}` has requests for the newest observation: in this order they get what is due at their \
                 stamps, and not what they got when they were recorded (`order: arrival` repeats that)",
                self.name,
                self.outputs[output]
            );
        }
        message.layout_into(&mut self.layout);
        out.send(output, &self.layout, |payload, header| {
            payload.copy_from(message);
            header.copy_from(&message.header);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns when messages with these stamps are due, ms after the first, and the lengths of the gaps that were shortened, s.
    fn paced(stamps_ms: &[i64], speed: f64) -> (Vec<u64>, Vec<i64>) {
        let start = Instant::now();
        let mut pace = Pace::new(start, stamps_ms[0] * 1_000_000);
        let mut cut = Vec::new();
        let due = stamps_ms.iter().map(|&ms| {
            let stamp = ms.saturating_mul(1_000_000);
            cut.extend(pace.advance(stamp, speed).map(|gap| gap / 1_000_000_000));
            assert_eq!(pace.advance(stamp, speed), None, "the same message");
            (pace.due - start).as_millis() as u64
        });
        (due.collect(), cut)
    }

    #[test]
    fn the_pauses_are_those_of_the_recording_but_for_what_nobody_waits_for() {
        assert_eq!(paced(&[5, 7, 7, 10, 9, 12], 1.0), (vec![0, 2, 2, 5, 5, 7], vec![]));
        assert_eq!(paced(&[0, 8000, 18_000], 2.0), (vec![0, 4000, 9000], vec![]));
        // A first stamp of 0, a clock of 1970 before one of today, and a rover that slept for a day.
        let today = 1_800_000_000_000;
        assert_eq!(
            paced(&[0, today, today + 1, today + 86_400_001, today + 86_400_003], 1.0),
            (vec![0, 10_000, 10_001, 20_001, 20_003], vec![1_800_000_000, 86_400])
        );
        // A single bad stamp, behind or ahead, is one jump.
        assert_eq!(
            paced(&[today, today + 1, 0, today + 2, today + 4], 1.0),
            (vec![0, 1, 1, 2, 4], vec![])
        );
        assert_eq!(
            paced(&[0, 1, 86_400_000, 3, 5], 1.0),
            (vec![0, 1, 10_001, 10_003, 10_005], vec![86_399])
        );
        // A clock that is set back goes on from there, also below 0.
        assert_eq!(paced(&[today, 0, 5, 9], 1.0), (vec![0, 0, 5, 9], vec![]));
        assert_eq!(paced(&[100_000, -500_000, -499_990], 1.0), (vec![0, 0, 10], vec![]));
        assert_eq!(paced(&[i64::MIN / 1_000_000, i64::MAX / 1_000_000], 1.0).0, [0, 10_000]);
    }

    #[test]
    fn a_speed_is_a_number_or_max() {
        let parse = |text: &str| serde_yaml::from_str::<ReplayConfig>(&format!("path: x\n{text}")).map(|c| c.speed);
        assert_eq!(parse("").unwrap(), Speed::Times(1.0));
        assert_eq!(parse("speed: 2").unwrap(), Speed::Times(2.0));
        assert_eq!(parse("speed: max").unwrap(), Speed::Max);
        for text in ["speed: 0", "speed: -1", "speed: .nan", "speed: fast", "speed: [1]"] {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.contains("or max"), "{refused}");
        }
        assert!(parse("sped: 1").is_err());
    }
}
