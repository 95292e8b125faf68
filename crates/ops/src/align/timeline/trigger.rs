//! Settings of the trigger, and times of the rows of a window.
//!
//! The times of the rows follow from the target and the configuration alone, or with `rows: samples` from the samples of the
//! stream that triggers observations.

use super::{Target, Timeline, Trigger};
use crate::align::{Rows, TriggerKind};

/// Time of one row of a window, and whether any value in the row can be valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Time of the row, ns.
    pub time_ns: i64,
    /// False if the row is before the first sample of the stream that triggers observations (`rows: samples`). Such a row has
    /// no valid value, and its time goes back in periods of `rate_hz`.
    pub is_there: bool,
}

impl Timeline {
    /// Returns the kind of the configured trigger; [`TriggerKind::Grid`] if none is configured.
    pub fn trigger(&self) -> TriggerKind {
        match self.spec.trigger {
            Trigger::Grid => TriggerKind::Grid,
            Trigger::Stream { .. } => TriggerKind::Stream,
            Trigger::Request(_) => TriggerKind::Request,
            Trigger::Timer(_) => TriggerKind::Timer,
        }
    }

    /// Returns the modality whose samples are the targets; `None` unless the trigger is `stream`.
    pub fn leader(&self) -> Option<usize> {
        match self.spec.trigger {
            Trigger::Stream { leader, .. } => Some(leader),
            _ => None,
        }
    }

    /// Returns the number of samples from one target to the next; 1 unless the trigger is `stream`.
    pub fn every(&self) -> u64 {
        match self.spec.trigger {
            Trigger::Stream { every, .. } => every as u64,
            _ => 1,
        }
    }

    /// Returns the smallest time between two targets, ns, if these are samples of a stream; 0 unless the trigger is `stream`.
    pub fn min_interval_ns(&self) -> i64 {
        match self.spec.trigger {
            Trigger::Stream { min_interval, .. } => min_interval,
            _ => 0,
        }
    }

    /// Returns the name of the input that brings requests or timer ticks; `None` unless the trigger is `request` or `timer`.
    pub fn trigger_input(&self) -> Option<&str> {
        match &self.spec.trigger {
            Trigger::Request(input) | Trigger::Timer(input) => Some(input),
            _ => None,
        }
    }

    /// Returns the time of a row in the window of a target; row 0 is the oldest.
    pub fn row(&self, target: &Target, row: usize) -> Row {
        let steps = (self.spec.window - 1 - row as i64) * self.spec.stride;
        match self.spec.trigger {
            Trigger::Stream {
                leader,
                rows: Rows::Samples,
                ..
            } => self.sample_before(leader, target.time_ns, steps),
            _ => Row {
                time_ns: self.back(target.time_ns, steps),
                is_there: true,
            },
        }
    }

    /// Returns the row at a sample of a stream: `samples` samples before its newest one at or before `time`.
    pub(super) fn sample_before(&self, modality: usize, time: i64, samples: i64) -> Row {
        let history = &self.streams[modality].history;
        let at = history.until(time) as i64 - 1 - samples;
        match usize::try_from(at).ok().and_then(|at| history.times().get(at)) {
            Some(&time_ns) => Row {
                time_ns,
                is_there: true,
            },
            None => Row {
                time_ns: self.back(history.oldest().unwrap_or(time), -at),
                is_there: false,
            },
        }
    }

    /// Returns the time that is `steps` periods of `rate_hz` before `time`, ns.
    pub(super) fn back(&self, time: i64, steps: i64) -> i64 {
        let distance = steps.checked_mul(self.spec.grid.period());
        match distance.and_then(|distance| time.checked_sub(distance)) {
            Some(back) => back,
            None => {
                let time = i128::from(time) - i128::from(steps) * i128::from(self.spec.grid.period());
                time.clamp(i64::MIN.into(), i64::MAX.into()) as i64
            }
        }
    }
}
