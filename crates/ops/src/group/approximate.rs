//! Policy `approximate`: sets whose members are nearest to each other in time.
//!
//! The algorithm is that of message_filters' ApproximateTime, in integers:
//! <http://wiki.ros.org/message_filters/ApproximateTime>. Each input has a queue, with one message as its *head*. An *interval*
//! goes from the earliest to the latest of all heads.
//!
//! The first interval is the candidate for the next set. Its latest head is the *pivot*, which every later candidate must
//! contain. The search advances past the earliest head, which gives the next interval. It ends when no interval that contains
//! the pivot can be better than the candidate.

use super::{DropReason, Entry, Ledger};
use std::collections::VecDeque;

/// Factor `1 + age_penalty`, as an exact fraction. It weights the time by which a set ends later than the candidate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Penalty {
    /// Numerator of the factor, whose value is `mantissa / 2^shift`.
    mantissa: i128,
    shift: u32,
}

impl Penalty {
    /// Creates the factor; `None` if `age_penalty` is not within 0 to 1000.
    pub(super) fn new(age_penalty: f64) -> Option<Self> {
        if !(0.0..=1000.0).contains(&age_penalty) {
            return None;
        }
        let bits = (1.0 + age_penalty).to_bits();
        let exponent = (bits >> 52) as u32;
        let mantissa = i128::from(bits & ((1 << 52) - 1) | 1 << 52);
        let shift = 1023 + 52 - exponent;
        Some(Self { mantissa, shift })
    }

    /// Returns `x (1 + age_penalty)`, rounded towards zero.
    fn of(self, x: i64) -> i128 {
        // The product of 64 and 53 bits fits into 128. A division rounds towards zero, where a shift does not.
        i128::from(x) * self.mantissa / (1 << self.shift)
    }
}

/// Waiting messages of one input, oldest first. The search has advanced past the first `past` messages; the next one is
/// the *head*.
struct Queue<M> {
    entries: VecDeque<Entry<M>>,
    past: usize,
    /// Smallest time between two messages of the input, ns.
    min_period: i64,
    /// True if a message was dropped that might have made a better set than those in the queue. While this is true, the pivot
    /// can't be a message of this input.
    has_gap: bool,
    is_closed: bool,
}

impl<M> Queue<M> {
    /// Returns the time of the head, ns; `None` if the search has advanced past all messages.
    fn head(&self) -> Option<i64> {
        self.entries.get(self.past).map(|entry| entry.time)
    }

    /// Returns the time of the head, ns. If the head has not arrived yet, returns its earliest possible time, or `pivot_time`
    /// if that is later. If it has not arrived and the input is closed, returns `i64::MAX`.
    fn earliest_head(&self, pivot_time: i64) -> i64 {
        let last = || self.entries.back().map_or(i64::MIN, |entry| entry.time);
        match self.head() {
            Some(time) => time,
            None if self.is_closed => i64::MAX,
            None => last().saturating_add(self.min_period).max(pivot_time),
        }
    }
}

/// Best interval so far: it becomes the next set, unless a better interval is found.
#[derive(Clone, Copy)]
struct Candidate {
    start: i64,
    end: i64,
    pivot: usize,
    pivot_time: i64,
}

/// Returns the earliest and the latest head, each with its time and the index of its input; `None` if a queue has no head. If
/// times are equal, the first input has the earliest head, and the last input the latest.
fn interval(heads: impl Iterator<Item = Option<i64>>) -> Option<[(i64, usize); 2]> {
    let mut ends = None;
    for (input, time) in heads.enumerate() {
        let head = (time?, input);
        let [start, end] = ends.get_or_insert([head; 2]);
        if head.0 < start.0 {
            *start = head;
        }
        if head.0 >= end.0 {
            *end = head;
        }
    }
    ends
}

pub(super) struct Approximate<M> {
    queues: Vec<Queue<M>>,
    candidate: Option<Candidate>,
    queue_size: usize,
    penalty: Penalty,
    max_span: i64,
    /// Scratch memory of `publish_if_best`: number of messages of each queue that it has advanced past.
    passed_heads: Vec<usize>,
}

impl<M> Approximate<M> {
    pub(super) fn new(
        min_periods: impl Iterator<Item = i64>,
        queue_size: usize,
        penalty: Penalty,
        max_span: i64,
    ) -> Self {
        let queues: Vec<_> = min_periods
            .map(|min_period| Queue {
                entries: VecDeque::new(),
                past: 0,
                min_period,
                has_gap: false,
                is_closed: false,
            })
            .collect();
        Self {
            passed_heads: vec![0; queues.len()],
            queues,
            candidate: None,
            queue_size,
            penalty,
            max_span,
        }
    }

    pub(super) fn push(&mut self, input: usize, entry: Entry<M>, ledger: &mut Ledger<M>) {
        let queue = &mut self.queues[input];
        let was_empty = queue.head().is_none();
        queue.is_closed = false;
        queue.entries.push_back(entry);
        if was_empty {
            self.process(ledger);
        }
        if self.queues[input].entries.len() > self.queue_size {
            self.drop_oldest(input, DropReason::Overflow, ledger);
        }
    }

    /// Drops the oldest message of an input, if it has one, and restarts the search.
    pub(super) fn drop_oldest(&mut self, input: usize, reason: DropReason, ledger: &mut Ledger<M>) {
        self.queues.iter_mut().for_each(|queue| queue.past = 0);
        let queue = &mut self.queues[input];
        queue.has_gap = true;
        if let Some(entry) = queue.entries.pop_front() {
            ledger.drop(input, entry, reason);
        }
        if self.candidate.take().is_some() {
            self.process(ledger);
        }
    }

    /// Closes an input: no further message of it is expected. Publishes the candidate if that makes it the best set.
    pub(super) fn close(&mut self, input: usize, ledger: &mut Ledger<M>) {
        self.queues[input].is_closed = true;
        if self.candidate.is_some() && self.publish_if_best(ledger) {
            self.process(ledger);
        }
    }

    pub(super) fn open(&mut self, input: usize) {
        self.queues[input].is_closed = false;
    }

    pub(super) fn clear(&mut self, reason: DropReason, ledger: &mut Ledger<M>) {
        self.candidate = None;
        for (input, queue) in self.queues.iter_mut().enumerate() {
            (queue.past, queue.has_gap) = (0, false);
            for entry in queue.entries.drain(..) {
                ledger.drop(input, entry, reason);
            }
        }
    }

    /// Continues the search until some queue has no head.
    fn process(&mut self, ledger: &mut Ledger<M>) {
        while let Some(ends) = interval(self.queues.iter().map(Queue::head)) {
            let [(start, start_input), (end, end_input)] = ends;
            for (input, queue) in self.queues.iter_mut().enumerate() {
                // In any other queue no dropped message could have been better than the head.
                queue.has_gap &= input == end_input;
            }
            let candidate = match self.candidate {
                None => {
                    let reason = if end.saturating_sub(start) > self.max_span {
                        Some(DropReason::Span)
                    } else {
                        self.queues[end_input].has_gap.then_some(DropReason::Displaced)
                    };
                    if let Some(reason) = reason {
                        if let Some(entry) = self.queues[start_input].entries.pop_front() {
                            ledger.drop(start_input, entry, reason);
                        }
                        continue;
                    }
                    Candidate {
                        start,
                        end,
                        pivot: end_input,
                        pivot_time: end,
                    }
                }
                Some(best) if self.penalty.of(end - best.end) < i128::from(start - best.start) => {
                    self.forget_past(ledger);
                    Candidate { start, end, ..best }
                }
                Some(best) => best,
            };
            self.candidate = Some(candidate);
            self.queues[start_input].past += 1;
            let cannot_be_beaten = self.outlasts(candidate, end);
            if start_input == candidate.pivot || cannot_be_beaten {
                self.publish(ledger);
            } else if self.queues[start_input].head().is_none() {
                self.publish_if_best(ledger);
            }
        }
    }

    /// True if no interval that contains the pivot and ends at `end` or later can be better than `candidate`.
    fn outlasts(&self, candidate: Candidate, end: i64) -> bool {
        self.penalty.of(end.saturating_sub(candidate.end)) >= i128::from(candidate.pivot_time - candidate.start)
    }

    /// Publishes the candidate if no future message can make a better set. Assumes that the next message of each queue without
    /// a head comes at the earliest possible time. Returns true if the candidate was published.
    fn publish_if_best(&mut self, ledger: &mut Ledger<M>) -> bool {
        let Some(candidate) = self.candidate else { return false };
        self.passed_heads.fill(0);
        loop {
            let heads = self.queues.iter();
            let heads = heads.map(|queue| Some(queue.earliest_head(candidate.pivot_time)));
            let Some([(start, start_input), (end, _)]) = interval(heads) else {
                return false;
            };
            if self.outlasts(candidate, end) {
                self.publish(ledger);
                return true;
            }
            let is_better = self.penalty.of(end.saturating_sub(candidate.end)) < i128::from(start - candidate.start);
            // A missing head can't be passed. It is never the earliest here, because the pivot's head is there.
            if is_better || self.queues[start_input].head().is_none() {
                for (queue, passed_heads) in self.queues.iter_mut().zip(&self.passed_heads) {
                    queue.past -= passed_heads;
                }
                return false;
            }
            self.queues[start_input].past += 1;
            self.passed_heads[start_input] += 1;
        }
    }

    /// Drops the messages that the search has advanced past, because the current heads are the new candidate.
    fn forget_past(&mut self, ledger: &mut Ledger<M>) {
        for (input, queue) in self.queues.iter_mut().enumerate() {
            for entry in queue.entries.drain(..std::mem::take(&mut queue.past)) {
                ledger.drop(input, entry, DropReason::Displaced);
            }
        }
    }

    /// Publishes the candidate as a set: the oldest message of each input.
    fn publish(&mut self, ledger: &mut Ledger<M>) {
        let Some(candidate) = self.candidate.take() else { return };
        let members = self.queues.iter_mut().filter_map(|queue| {
            queue.past = 0;
            queue.entries.pop_front()
        });
        ledger.emit(candidate.end, candidate.end - candidate.start, members);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_penalty_is_exact_and_rounds_towards_zero() {
        let of = |penalty: f64, x: i64| Penalty::new(penalty).unwrap().of(x);
        assert_eq!(
            [0, 1, -1, i64::MAX].map(|x| of(0.0, x)),
            [0, 1, -1, i128::from(i64::MAX)]
        );
        assert_eq!([9, 10, 19, -9, -19].map(|x| of(0.1, x)), [9, 11, 20, -9, -20]);
        // 1.15 is a little less in float64.
        assert_eq!([20, -20].map(|x| of(0.15, x)), [22, -22]);
        assert_eq!(of(1000.0, i64::MIN), 1001 * i128::from(i64::MIN));
        for wrong in [-0.1, 1000.1, f64::NAN, f64::INFINITY] {
            assert!(Penalty::new(wrong).is_none());
        }
    }
}
