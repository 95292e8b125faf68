//! Groups messages of several streams into sets, one message of each stream. Messages are added in the order of arrival.
//!
//! Each message that is accepted is returned exactly once: as a member of a set, or as dropped, with the reason. At most
//! `max_held_mb` of messages wait.

use super::policy::Policy;
use super::spec::InputSpec;
use super::{ConfigError, DropReason, Entry, GroupingConfig, Ledger, Outcome};
use crate::held_bytes;
use robocache_time::is_stamp_in_range;

/// Groups messages of several streams into sets, one message of each stream.
///
/// Add messages with [`push`](Self::push), in order of arrival. The caller chooses an item that represents each message, such
/// as the message itself or an index. After each `push`, call [`next_outcome`](Self::next_outcome) until it returns `None`: it
/// returns items as members of a set, or as dropped, with the reason.
///
/// The settings `queue_size` and `max_held_mb` bound the number and the size of the waiting messages.
pub struct Grouper<M> {
    policy: Policy<M>,
    inputs: Vec<Input>,
    ledger: Ledger<M>,
    max_held: usize,
}

struct Input {
    spec: InputSpec,
    /// Time of the input's newest message since the last clock jump, ns; `None` if there was no message.
    newest: Option<i64>,
}

/// Result of adding a message with [`Grouper::push`]. The message itself is returned later as an [`Outcome`], unless it was
/// dropped at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Step of the stream's clock, ns, if the message shows a clock jump; negative if the clock went back. All waiting messages
    /// were then dropped. `None`: no jump.
    pub jumped_ns: Option<i64>,
    /// Time since the newest message of the stream, ns, if it is less than `min_period_ms`, so that sets may not be the best.
    /// `None`: the message is not too close.
    pub too_close_ns: Option<i64>,
    /// Reason why the message was dropped at once; `None` if it was accepted.
    pub dropped: Option<DropReason>,
}

/// Error of a message whose stamp, ns, is not within +-2^61.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stamp {0} ns is out of range (allowed: +-2^61): stamps are ns since 1970")]
pub struct StampError(pub i64);

impl<M> Grouper<M> {
    /// Creates a grouper for the inputs of a configuration. All inputs are open at first.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key, its value and the allowed values.
    pub fn new(config: &GroupingConfig) -> Result<Self, ConfigError> {
        let queue_size = config.checked_queue_size()?;
        let max_held = held_bytes(|| "max_held_mb".into(), config.max_held_mb)?;
        let policy = Policy::new(config, queue_size)?;
        let inputs = config.checked_inputs()?;
        Ok(Self {
            policy,
            ledger: Ledger::new(inputs.len()),
            inputs: inputs.into_iter().map(|spec| Input { spec, newest: None }).collect(),
            max_held,
        })
    }

    /// Names of the inputs, in the order of the configuration.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().map(|input| input.spec.name.as_str())
    }

    /// Adds a message of the input with this index, given its stamp, ns, and the size of its payload, bytes. The function
    /// `item` makes the item that represents the message. It is not called if the message is dropped at once.
    ///
    /// # Errors
    /// [`StampError`] if the stamp is not within +-2^61 ns. The message is not held.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn push(
        &mut self,
        input: usize,
        stamp_ns: i64,
        bytes: usize,
        item: impl FnOnce() -> M,
    ) -> Result<Arrival, StampError> {
        if !is_stamp_in_range(stamp_ns) {
            return Err(StampError(stamp_ns));
        }
        let time = stamp_ns - self.inputs[input].spec.latency;
        let jumped_ns = self.jump(input, time);
        let Input { spec, newest } = &mut self.inputs[input];
        let since = newest.map(|newest| time - newest);
        *newest = (*newest).max(Some(time));
        let reason = match since {
            Some(since) if since < 0 && !matches!(self.policy, Policy::Exact(_)) => Some(DropReason::OutOfOrder),
            _ => (bytes > self.max_held).then_some(DropReason::Memory),
        };
        let arrival = Arrival {
            jumped_ns,
            too_close_ns: since.filter(|since| (0..spec.min_period).contains(since)),
            dropped: reason,
        };
        if let Some(reason) = reason {
            self.ledger.count(input, reason);
            return Ok(arrival);
        }
        self.ledger.hold(input, bytes);
        let item = item();
        let entry = Entry { time, bytes, item };
        match &mut self.policy {
            Policy::Approximate(policy) => policy.push(input, entry, &mut self.ledger),
            Policy::Exact(policy) => policy.push(input, entry, &mut self.ledger),
            Policy::Epsilon(policy) => policy.push(input, entry, &mut self.ledger),
        }
        while self.ledger.held() > self.max_held {
            let greatest = self.ledger.greatest();
            match &mut self.policy {
                Policy::Approximate(policy) => policy.drop_oldest(greatest, DropReason::Memory, &mut self.ledger),
                Policy::Exact(policy) => policy.drop_first(DropReason::Memory, &mut self.ledger),
                Policy::Epsilon(policy) => policy.drop_oldest(greatest, DropReason::Memory, &mut self.ledger),
            }
        }
        Ok(arrival)
    }

    /// Checks a message at `time` for a jump of its input's clock. At a jump, drops the waiting messages of all inputs and
    /// returns the step, ns. Otherwise returns `None`.
    fn jump(&mut self, input: usize, time: i64) -> Option<i64> {
        let Input { spec, newest } = &self.inputs[input];
        let by = time - (*newest)?;
        let is_ahead_of_all = |jump: i64| {
            let newest = self.inputs.iter().filter_map(|input| input.newest);
            newest.into_iter().all(|newest| time - newest > jump)
        };
        if by >= -spec.reset && !spec.jump.is_some_and(is_ahead_of_all) {
            return None;
        }
        self.ledger.epoch += 1;
        self.clear(DropReason::Jump);
        // The other streams jump too, soon or already: that must not count as another jump.
        self.inputs.iter_mut().for_each(|input| input.newest = None);
        Some(by)
    }

    /// Drops all waiting messages of all inputs, for `reason`.
    fn clear(&mut self, reason: DropReason) {
        match &mut self.policy {
            Policy::Approximate(policy) => policy.clear(reason, &mut self.ledger),
            Policy::Exact(policy) => policy.clear(reason, &mut self.ledger),
            Policy::Epsilon(policy) => policy.clear(reason, &mut self.ledger),
        }
    }

    /// Ends all inputs: drops all waiting messages with the reason [`DropReason::Left`].
    pub fn finish(&mut self) {
        self.clear(DropReason::Left);
    }

    /// Removes and returns the next message that was published in a set or dropped, in the order of these decisions; `None` if
    /// there is none.
    pub fn next_outcome(&mut self) -> Option<Outcome<M>> {
        self.ledger.next()
    }

    /// Closes an input: no further message of it is expected. With `approximate`, a set can then be published that would
    /// otherwise wait for the input's next message.
    pub fn close(&mut self, input: usize) {
        if let Policy::Approximate(policy) = &mut self.policy {
            policy.close(input, &mut self.ledger);
        }
    }

    /// Reopens a closed input: sets wait for its next message again.
    pub fn open(&mut self, input: usize) {
        if let Policy::Approximate(policy) = &mut self.policy {
            policy.open(input);
        }
    }

    /// Returns the number of messages of an input that were dropped for `reason` so far.
    pub fn dropped(&self, input: usize, reason: DropReason) -> u64 {
        self.ledger.dropped(input, reason)
    }

    /// Returns the payload size of all waiting messages together, bytes.
    pub fn held_bytes(&self) -> usize {
        self.ledger.held()
    }

    /// Returns the greatest payload size of all waiting messages together, bytes: the setting `max_held_mb`.
    pub fn max_held_bytes(&self) -> usize {
        self.max_held
    }

    /// Time of the newest message of an input since the last clock jump, ns; `None` if there was no message.
    pub fn newest_ns(&self, input: usize) -> Option<i64> {
        self.inputs[input].newest
    }
}
