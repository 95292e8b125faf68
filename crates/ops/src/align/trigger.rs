//! Trigger of an observation: the section `trigger:` of align and fuse.

use serde::Deserialize;
use std::fmt;

/// Kinds of triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerKind {
    /// The grid of `rate_hz`.
    Grid,
    /// The samples of a modality.
    Stream,
    /// Messages that are each answered with an observation.
    Request,
    /// Messages that each ask for the newest observation.
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

/// Trigger of an observation, if it is not the grid.
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
    /// The samples of a modality: their times are the targets.
    Stream {
        /// The input of the modality.
        stream: String,
        /// Number of samples for one target: 2 makes every second sample a target.
        every: usize,
        /// The least time from a target to the next.
        min_interval_ms: f64,
        /// Places of the older rows of a window.
        rows: Rows,
    },
    /// The messages of an input, each of which is answered with an observation.
    Request {
        /// The input.
        request: String,
    },
    /// The messages of an input, such as a timer of dora's, each of which asks for the newest observation.
    Timer {
        /// The input.
        timer: String,
    },
}

/// Places of the rows of a window that are older than its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// Times `stride` periods of `rate_hz` apart.
    #[default]
    Period,
    /// Samples of the trigger's stream, `stride` samples apart.
    Samples,
}

/// The keys as they stand in a file.
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
    /// The kind of the trigger.
    pub(crate) fn kind(&self) -> TriggerKind {
        match self {
            Self::Stream { .. } => TriggerKind::Stream,
            Self::Request { .. } => TriggerKind::Request,
            Self::Timer { .. } => TriggerKind::Timer,
        }
    }
}
