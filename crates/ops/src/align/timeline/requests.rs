//! Requests for observations: which are accepted, which wait, and which are refused.
//!
//! Every accepted request is answered once, with an observation or a [`Refusal`]. A request that waits delays the requests
//! after it. Terms such as G, the grid's clock, are in `timeline.rs`.

use super::due::NextTarget;
use super::{Timeline, Trigger};
use crate::align::spec::MAX_LOOK_BACK;
use robocache_time::is_stamp_in_range;
use robocache_time::ns_to_s;

/// Greatest number of requests that may wait for an answer.
const MAX_WAITING: usize = 256;

/// Greatest distance of a requested time ahead of the newest sample, ns.
const MAX_AHEAD: i64 = 10_000_000_000;

/// Reason why a request gets no observation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// 256 requests wait for an answer already, the greatest number allowed.
    #[error("{MAX_WAITING} requests are waiting already (allowed: {MAX_WAITING}; ask again when one is answered)")]
    TooMany,
    /// The requested time, ns, is not within +-2^61.
    #[error("it asks for {0} ns, which is out of range (allowed: +-2^61): times are ns since 1970")]
    OutOfRange(i64),
    /// The requested time is more than 1 s before the newest time that is due, so the samples around it may have been dropped.
    #[error(
        "it asks for {asked_ns} ns, {:.3} s before the newest time that is due (allowed: up to {} s before it)",
        ns_to_s(*behind_ns),
        MAX_LOOK_BACK / 1_000_000_000
    )]
    LongPast {
        /// The requested time, ns.
        asked_ns: i64,
        /// Distance from the requested time to the newest time that is due, ns.
        behind_ns: i64,
    },
    /// The requested time is more than 10 s ahead of the newest sample.
    #[error(
        "it asks for {asked_ns} ns, {:.3} s ahead of the newest sample (allowed: up to {} s ahead)",
        ns_to_s(*ahead_ns),
        MAX_AHEAD / 1_000_000_000
    )]
    FarAhead {
        /// The requested time, ns.
        asked_ns: i64,
        /// Distance from the newest sample to the requested time, ns.
        ahead_ns: i64,
    },
    /// A clock jumped while the request waited for this time, ns, which may now mean another instant.
    #[error("a clock jumped while the request for {0} ns waited (allowed: to ask again, by the clock as it is now)")]
    Jumped(i64),
    /// Every stream that is waited for is closed, so the requested time can't become due.
    #[error("every stream that is waited for is closed, and no sample is as new as the requested time")]
    Closed,
}

/// A request whose target is not due yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    number: u64,
    /// The requested time, ns; `None`: the newest time that is due.
    time_ns: Option<i64>,
}

impl Timeline {
    /// Adds a request for the observation at `time_ns`, or with `None` at the newest time that is due, and returns its number.
    /// Requests are answered in order of arrival: [`Target::request`](super::Target::request). Call [`due`](Self::due) after
    /// each request, and then [`take_refused`](Self::take_refused).
    ///
    /// # Errors
    /// [`Refusal`]: the reason why the request is refused at once.
    ///
    /// # Panics
    /// If the trigger is not `request`.
    pub fn ask(&mut self, time_ns: Option<i64>) -> Result<u64, Refusal> {
        assert!(
            matches!(self.spec.trigger, Trigger::Request(_)),
            "the trigger is not a request"
        );
        if let Some(time) = time_ns {
            self.judge(time)?;
        }
        if self.pending.len() == MAX_WAITING {
            return Err(Refusal::TooMany);
        }
        let number = self.asked;
        self.asked += 1;
        self.pending.push_back(PendingRequest { number, time_ns });
        Ok(number)
    }

    /// Returns the number of requests whose target is not due yet.
    pub fn waiting_requests(&self) -> usize {
        self.pending.len()
    }

    /// Returns and removes the next request that was refused after it waited: its number from [`ask`](Self::ask), and the
    /// reason. `None` if there is none.
    pub fn take_refused(&mut self) -> Option<(u64, Refusal)> {
        self.refused.pop_front()
    }

    /// Checks that a requested time is not too far in the past or the future. Before the first sample, every time in the range
    /// of stamps passes.
    fn judge(&self, asked_ns: i64) -> Result<(), Refusal> {
        if !is_stamp_in_range(asked_ns) {
            return Err(Refusal::OutOfRange(asked_ns));
        }
        self.judge_ahead(asked_ns)?;
        if let Some(behind_ns) = self.due_until().map(|until| until - asked_ns)
            && behind_ns > MAX_LOOK_BACK
        {
            return Err(Refusal::LongPast { asked_ns, behind_ns });
        }
        Ok(())
    }

    fn judge_ahead(&self, asked_ns: i64) -> Result<(), Refusal> {
        match self.clock.map(|newest| asked_ns - newest) {
            Some(ahead_ns) if ahead_ns > MAX_AHEAD => Err(Refusal::FarAhead { asked_ns, ahead_ns }),
            _ => Ok(()),
        }
    }

    /// Refuses the waiting requests whose time is out of bounds. Called at the first sample of all streams, because no bound is
    /// known before that sample.
    pub(super) fn judge_waiting(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|ask| match ask.time_ns.map(|time| self.judge(time)) {
            Some(Err(refusal)) => {
                self.refused.push_back((ask.number, refusal));
                false
            }
            _ => true,
        });
        self.pending = pending;
    }

    /// Refuses the waiting requests for a given time. Called after a clock jump, because the time may be one of the clock
    /// before the jump.
    pub(super) fn refuse_after_jump(&mut self) {
        let refused = &mut self.refused;
        self.pending.retain(|ask| {
            refused.extend(ask.time_ns.map(|time| (ask.number, Refusal::Jumped(time))));
            ask.time_ns.is_none()
        });
    }

    /// Returns the target of the first waiting request, if that target is due; `until` is the newest time that is due. Refuses
    /// requests whose target can't become due.
    pub(super) fn next_asked(&mut self, until: Option<i64>) -> Option<NextTarget> {
        let has_begun = until.is_some_and(|until| self.has_begun(until));
        if let Some(until) = until.filter(|_| has_begun) {
            let oldest_request = self.pending.iter().filter_map(|ask| ask.time_ns).min();
            let look_back = until - MAX_LOOK_BACK;
            self.forget(oldest_request.map_or(look_back, |time| time.min(look_back)));
        }
        while let Some(&PendingRequest { number, time_ns }) = self.pending.front() {
            let due = match time_ns {
                Some(time) => until.filter(|&until| until >= time).and(time_ns),
                None => until.filter(|_| has_begun),
            };
            if let Some(due) = due {
                return Some(NextTarget {
                    request: Some(number),
                    is_deterministic: time_ns.is_some(),
                    ..NextTarget::at(due)
                });
            }
            // The grid's clock may have gone back: a stream was closed, or its latency changed.
            let refusal = match time_ns.map(|time| self.judge_ahead(time)) {
                _ if self.waited_for().next().is_none() => Refusal::Closed,
                Some(Err(refusal)) => refusal,
                _ => return None,
            };
            self.pending.pop_front();
            self.refused.push_back((number, refusal));
        }
        None
    }
}
