//! Choice of the targets by the trigger, and of the rows of a window.

use super::{Target, Timeline, Trigger};
use crate::align::{Rows, TriggerKind};

/// A row of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The time of the row, ns.
    pub time_ns: i64,
    /// True unless the row lies before the first sample of the trigger's stream. Nothing is valid in such a row, and its time
    /// goes on before that sample in steps of the grid.
    pub is_there: bool,
}

impl Timeline {
    /// The kind of trigger that makes an observation.
    pub fn trigger(&self) -> TriggerKind {
        match self.spec.trigger {
            Trigger::Grid => TriggerKind::Grid,
            Trigger::Stream { .. } => TriggerKind::Stream,
            Trigger::Request(_) => TriggerKind::Request,
            Trigger::Timer(_) => TriggerKind::Timer,
        }
    }

    /// The modality whose samples are the targets.
    pub fn leader(&self) -> Option<usize> {
        match self.spec.trigger {
            Trigger::Stream { leader, .. } => Some(leader),
            _ => None,
        }
    }

    /// Number of samples of the leader for each target; 1 without a leader.
    pub fn every(&self) -> u64 {
        match self.spec.trigger {
            Trigger::Stream { every, .. } => every as u64,
            _ => 1,
        }
    }

    /// The least time between targets that are a leader's samples, ns; 0 without a leader.
    pub fn min_interval_ns(&self) -> i64 {
        match self.spec.trigger {
            Trigger::Stream { min_interval, .. } => min_interval,
            _ => 0,
        }
    }

    /// The input of requests or ticks, which no modality has.
    pub fn trigger_input(&self) -> Option<&str> {
        match &self.spec.trigger {
            Trigger::Request(input) | Trigger::Timer(input) => Some(input),
            _ => None,
        }
    }

    /// Returns a row of the window of a target; row 0 is the oldest.
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

    /// Returns the row that is `samples` samples of a stream before its newest one at or before `time`.
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

    /// Returns the time that is `steps` grid steps before `time`, ns.
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
