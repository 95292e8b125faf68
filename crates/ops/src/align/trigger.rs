//! Source of the times of observations: the section `trigger:` of align and fuse, with one of the keys `stream`, `request` and
//! `timer`. Without the section, these times are whole multiples of the period of `rate_hz`.

use serde::Deserialize;
use std::fmt;

/// Kind of a trigger: the source of the times (targets) at which observations are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerKind {
    /// Targets at whole multiples of the period of `rate_hz`.
    Grid,
    /// Targets at the times of the samples of a modality.
    Stream,
    /// Targets at the times that requests ask for; each request is answered with an observation.
    Request,
    /// Targets at the newest time that is due, one for each tick of a timer.
    Timer,
}

impl fmt::Display for TriggerKind {
    /// Writes the key of the kind in a configuration, or `grid`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grid => "grid",
            Self::Stream => "stream",
            Self::Request => "request",
            Self::Timer => "timer",
        })
    }
}

/// Source of the target times, if these are not the multiples of the period of `rate_hz`: the section `trigger:`.
///
/// ```
/// # use serde_yaml as yaml_serde;
/// use robocache_ops::align::{Rows, TriggerConfig};
///
/// let text = "{ stream: camera, every: 2, rows: samples }";
/// let trigger: TriggerConfig = yaml_serde::from_str(text)?;
/// assert_eq!(
///     trigger,
///     TriggerConfig::Stream { stream: "camera".into(), every: 2, min_interval_ms: 0.0, rows: Rows::Samples }
/// );
/// # Ok::<(), yaml_serde::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Keys")]
pub enum TriggerConfig {
    /// Samples of a stream: their times are the targets.
    Stream {
        /// Input name of the modality whose samples are the targets.
        stream: String,
        /// Number of samples from one target to the next: 2 makes every second sample a target.
        every: usize,
        /// Smallest time from a target to the next target, ms.
        min_interval_ms: f64,
        /// Times of the older rows of a window.
        rows: Rows,
    },
    /// Messages of an input, each of which is answered with an observation.
    Request {
        /// Name of the input that brings the requests.
        request: String,
    },
    /// Messages of an input, such as a timer of dora, each of which asks for the newest observation.
    Timer {
        /// Name of the input that brings the ticks.
        timer: String,
    },
}

/// Times of the rows of a window that are older than its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// Rows in steps of `stride` periods of `rate_hz`, back from the target.
    #[default]
    Period,
    /// Rows at samples of the stream that triggers observations, `stride` samples apart.
    Samples,
}

/// Keys of the section `trigger:`, before the check that exactly one kind of trigger is given.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map such as { stream: camera }")]
struct Keys {
    stream: Option<String>,
    every: Option<usize>,
    min_interval_ms: Option<f64>,
    rows: Option<Rows>,
    request: Option<String>,
    timer: Option<String>,
}

impl TryFrom<Keys> for TriggerConfig {
    type Error = String;

    fn try_from(keys: Keys) -> Result<Self, String> {
        const ALLOWED: &str = "(allowed: one of `stream`, `request`, `timer`; without `trigger` the grid)";
        let of_stream = [
            ("every", keys.every.is_some()),
            ("min_interval_ms", keys.min_interval_ms.is_some()),
            ("rows", keys.rows.is_some()),
        ];
        let alone = |trigger: Self| match of_stream.iter().find(|(_, is_there)| *is_there) {
            Some((key, _)) => Err(format!(
                "`{key}` does not go with `{}` (allowed: with `stream`)",
                trigger.kind()
            )),
            None => Ok(trigger),
        };
        match (keys.stream, keys.request, keys.timer) {
            (Some(stream), None, None) => Ok(Self::Stream {
                stream,
                every: keys.every.unwrap_or(1),
                min_interval_ms: keys.min_interval_ms.unwrap_or(0.0),
                rows: keys.rows.unwrap_or_default(),
            }),
            (None, Some(request), None) => alone(Self::Request { request }),
            (None, None, Some(timer)) => alone(Self::Timer { timer }),
            (None, None, None) => Err(format!("no kind of trigger is given {ALLOWED}")),
            (stream, request, timer) => {
                let kinds = [("stream", stream), ("request", request), ("timer", timer)];
                let came = kinds.iter().filter(|(_, input)| input.is_some());
                let came: Vec<String> = came.map(|(kind, _)| format!("`{kind}`")).collect();
                Err(format!("{} are given together {ALLOWED}", came.join(" and ")))
            }
        }
    }
}

impl TriggerConfig {
    pub(crate) fn kind(&self) -> TriggerKind {
        match self {
            Self::Stream { .. } => TriggerKind::Stream,
            Self::Request { .. } => TriggerKind::Request,
            Self::Timer { .. } => TriggerKind::Timer,
        }
    }
}
