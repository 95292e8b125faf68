//! Decides from stamps alone in which order the frames of several inputs are fused, and when, so that the order of their arrival
//! changes nothing.
//!
//! All frames of one time are a step. Steps are done in the order of their times. A step is due when nothing can come any more that
//! belongs to it or before it. The newest stamp of every open input, poses included, is then at its time or later. With
//! `max_wait_ms`, it is also due when the newest stamp of any input is that much later.

use std::collections::BTreeSet;

/// Treatment of a frame that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The frame waits for its step.
    Waits,
    /// The frame is dropped: one of its input and its time waits already.
    Again,
    /// The frame is dropped: a step of its time or of a later one is done.
    Late,
}

/// The frames that wait, and the newest stamps of the inputs.
#[derive(Debug)]
pub(super) struct Sequence {
    /// The inputs of frames, and behind them those of poses.
    inputs: Vec<Input>,
    /// Times of the frames that wait, ns, each with its input.
    waiting: BTreeSet<(i64, usize)>,
    /// Time of the last step, ns.
    done: Option<i64>,
    max_wait: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Input {
    is_open: bool,
    newest: Option<i64>,
}

impl Sequence {
    /// Makes the sequence of `frames` inputs of frames and `poses` inputs of poses behind them, all open.
    pub(super) fn new(frames: usize, poses: usize, max_wait: Option<i64>) -> Self {
        let input = Input {
            is_open: true,
            newest: None,
        };
        Self {
            inputs: vec![input; frames + poses],
            waiting: BTreeSet::new(),
            done: None,
            max_wait,
        }
    }

    pub(super) fn set_max_wait(&mut self, max_wait: Option<i64>) {
        self.max_wait = max_wait;
    }

    /// The newest stamp of an input, ns.
    pub(super) fn newest(&self, input: usize) -> Option<i64> {
        self.inputs[input].newest
    }

    /// Notes the stamp of a pose.
    pub(super) fn saw(&mut self, input: usize, stamp: i64) {
        let newest = &mut self.inputs[input].newest;
        *newest = (*newest).max(Some(stamp));
    }

    /// Takes the stamp of a frame.
    pub(super) fn arrived(&mut self, input: usize, stamp: i64) -> Arrival {
        self.saw(input, stamp);
        if self.done.is_some_and(|done| stamp <= done) {
            return Arrival::Late;
        }
        match self.waiting.insert((stamp, input)) {
            true => Arrival::Waits,
            false => Arrival::Again,
        }
    }

    pub(super) fn set_open(&mut self, input: usize, is_open: bool) {
        self.inputs[input].is_open = is_open;
    }

    /// Time of the next step, if it is due.
    pub(super) fn due(&self) -> Option<i64> {
        let &(time, _) = self.waiting.first()?;
        let has_passed = |input: &Input| input.newest.is_some_and(|newest| newest >= time);
        let is_complete = self.inputs.iter().all(|input| !input.is_open || has_passed(input));
        let newest = self.inputs.iter().filter_map(|input| input.newest).max();
        let is_over = |max: i64| newest.is_some_and(|newest| newest.saturating_sub(time) >= max);
        (is_complete || self.max_wait.is_some_and(is_over)).then_some(time)
    }

    /// Takes the step of a time, which is done then. Returns the inputs that have a frame in it, ascending.
    pub(super) fn take(&mut self, time: i64) -> Vec<usize> {
        let step: Vec<usize> = self
            .waiting
            .range((time, 0)..=(time, usize::MAX))
            .map(|&(_, input)| input)
            .collect();
        for &input in &step {
            self.waiting.remove(&(time, input));
        }
        self.done = Some(time);
        step
    }

    /// Begins anew after the clock of `input` was set back, so that stamps after `until` are of the former clock. So is everything
    /// of an input with such a stamp, and is forgotten. Returns the frames that waited and are dropped, by their times and inputs.
    pub(super) fn jump(&mut self, input: usize, until: i64) -> Vec<(i64, usize)> {
        let is_former = |(i, state): (usize, &Input)| i == input || state.newest.is_some_and(|newest| newest > until);
        let former: Vec<bool> = self.inputs.iter().enumerate().map(is_former).collect();
        let (dropped, kept): (BTreeSet<_>, _) = self.waiting.iter().partition(|&&(_, input)| former[input]);
        self.waiting = kept;
        for (state, is_former) in self.inputs.iter_mut().zip(former) {
            state.newest = state.newest.filter(|_| !is_former);
        }
        self.done = None;
        dropped.into_iter().collect()
    }

    /// Time of the last step, ns.
    pub(super) fn done(&self) -> Option<i64> {
        self.done
    }

    /// Takes the oldest frame that waits out of the sequence, and returns its time and its input.
    pub(super) fn drop_oldest(&mut self) -> Option<(i64, usize)> {
        self.waiting.pop_first()
    }

    /// Frames that wait, by their times and inputs.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (i64, usize)> {
        self.waiting.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps that are due, with their inputs.
    fn steps(sequence: &mut Sequence) -> Vec<(i64, Vec<usize>)> {
        std::iter::from_fn(|| sequence.due().map(|time| (time, sequence.take(time)))).collect()
    }

    #[test]
    fn a_step_waits_for_every_open_input() {
        let mut sequence = Sequence::new(2, 1, None);
        assert_eq!(sequence.arrived(0, 10), Arrival::Waits);
        assert_eq!(sequence.arrived(0, 20), Arrival::Waits);
        sequence.saw(2, 15);
        assert_eq!(steps(&mut sequence), []);
        assert_eq!(sequence.arrived(1, 10), Arrival::Waits);
        assert_eq!(steps(&mut sequence), [(10, vec![0, 1])]);
        // Input 1 may still have a frame at 20, and so may the poses.
        sequence.saw(2, 20);
        assert_eq!(steps(&mut sequence), []);
        assert_eq!(sequence.arrived(1, 10), Arrival::Late);
        assert_eq!(sequence.arrived(1, 21), Arrival::Waits);
        assert_eq!(steps(&mut sequence), [(20, vec![0])]);
        sequence.set_open(0, false);
        sequence.set_open(1, false);
        assert_eq!(steps(&mut sequence), []);
        sequence.saw(2, 21);
        assert_eq!(steps(&mut sequence), [(21, vec![1])]);
    }

    #[test]
    fn a_wait_has_an_end() {
        let mut sequence = Sequence::new(2, 0, Some(50));
        sequence.arrived(0, 10);
        assert_eq!(sequence.arrived(0, 10), Arrival::Again);
        sequence.arrived(0, 59);
        assert_eq!(steps(&mut sequence), []);
        sequence.arrived(0, 60);
        assert_eq!(steps(&mut sequence), [(10, vec![0])]);
        assert_eq!(sequence.arrived(1, 10), Arrival::Late);
        assert_eq!(sequence.arrived(1, 11), Arrival::Waits);
        assert_eq!(steps(&mut sequence), [(11, vec![1])]);
        sequence.set_open(1, false);
        assert_eq!(steps(&mut sequence), [(59, vec![0]), (60, vec![0])]);
    }

    #[test]
    fn a_clock_that_is_set_back() {
        let mut sequence = Sequence::new(2, 0, None);
        sequence.arrived(0, 500);
        sequence.arrived(1, 500);
        assert_eq!(steps(&mut sequence).len(), 1);
        sequence.arrived(0, 600);
        assert_eq!(sequence.arrived(0, 400), Arrival::Late);
        assert_eq!(sequence.jump(0, 100), [(600, 0)]);
        assert_eq!(sequence.arrived(0, 0), Arrival::Waits);
        // The newest stamp of the other input is of the former clock.
        assert_eq!((sequence.newest(1), steps(&mut sequence)), (None, vec![]));
        sequence.arrived(1, 5);
        assert_eq!(steps(&mut sequence), [(0, vec![0])]);
    }
}
