//! Order and time of a map's steps, decided from stamps alone, so that the order in which messages
//! arrive changes nothing.
//!
//! A step fuses all frames (depth images and clouds) of one capture time. Steps are done in time order. A step is due
//! when every open input, poses included, has a stamp at or after the step's time. With `max_wait_ms`, it is also due
//! when the newest stamp of any input is that much later.

use std::collections::BTreeSet;

/// Treatment of a depth image or cloud that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The frame waits for its step.
    Waits,
    /// The frame is dropped: a frame of the same input with the same time already waits.
    Again,
    /// The frame is dropped: a step of the same or a later time has been done.
    Late,
}

/// Capture times of the waiting frames, and the newest stamp of each input.
#[derive(Debug)]
pub(super) struct Sequence {
    /// State of each input: first the inputs of frames, then the inputs of poses.
    inputs: Vec<Input>,
    /// Capture time, ns, and input index of each waiting frame.
    waiting: BTreeSet<(i64, usize)>,
    /// Time of the last step, ns; `None` before the first step, and after a clock was set back.
    done: Option<i64>,
    max_wait: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Input {
    is_open: bool,
    newest: Option<i64>,
    /// Newest time before a clock was set back, ns, until the input has sent a time of the new clock. Otherwise `None`.
    former: Option<i64>,
}

impl Sequence {
    /// Creates a sequence without frames, with all inputs open: `frames` inputs of frames, then `poses`
    /// inputs of poses.
    pub(super) fn new(frames: usize, poses: usize, max_wait: Option<i64>) -> Self {
        let input = Input {
            is_open: true,
            newest: None,
            former: None,
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

    /// The newest stamp of an input, ns; `None` before its first message, and after a clock was set back.
    pub(super) fn newest(&self, input: usize) -> Option<i64> {
        self.inputs[input].newest
    }

    /// Records the stamp of a pose, ns.
    pub(super) fn saw(&mut self, input: usize, stamp: i64) {
        let newest = &mut self.inputs[input].newest;
        *newest = (*newest).max(Some(stamp));
    }

    /// Records the capture time of a frame that arrives, ns, and returns how to treat the frame.
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

    /// Time of the oldest step, ns, if it is due; `None` if no step is due.
    pub(super) fn due(&self) -> Option<i64> {
        let &(time, _) = self.waiting.first()?;
        let has_passed = |input: &Input| input.newest.is_some_and(|newest| newest >= time);
        let is_complete = self.inputs.iter().all(|input| !input.is_open || has_passed(input));
        let newest = self.inputs.iter().filter_map(|input| input.newest).max();
        let is_over = |max: i64| newest.is_some_and(|newest| newest.saturating_sub(time) >= max);
        (is_complete || self.max_wait.is_some_and(is_over)).then_some(time)
    }

    /// Finds the open input that the oldest waiting frame waits for: the one whose newest stamp is the furthest behind. Also
    /// returns how far it is behind that frame, ns; `None` if it has sent nothing. The result is `None` if no frame waits.
    pub(super) fn held_back_by(&self) -> Option<(usize, Option<i64>)> {
        let &(time, _) = self.waiting.first()?;
        let inputs = self.inputs.iter().enumerate();
        let behind = inputs.filter(|(_, input)| input.is_open && input.newest.is_none_or(|newest| newest < time));
        let (input, state) = behind.min_by_key(|(_, input)| input.newest)?;
        Some((input, state.newest.map(|newest| time.saturating_sub(newest))))
    }

    /// Marks the step at `time` as done, and removes its frames. Returns the input index of each frame, ascending.
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

    /// Forgets the newest stamp and the waiting frames of `input`, whose clock was set back, and of every input whose
    /// newest stamp is after `until`, ns. Returns the time and input index of each waiting frame that is dropped.
    pub(super) fn jump(&mut self, input: usize, until: i64) -> Vec<(i64, usize)> {
        let is_former = |(i, state): (usize, &Input)| i == input || state.newest.is_some_and(|newest| newest > until);
        let former: Vec<bool> = self.inputs.iter().enumerate().map(is_former).collect();
        let (dropped, kept): (BTreeSet<_>, _) = self.waiting.iter().partition(|&&(_, input)| former[input]);
        self.waiting = kept;
        for (i, (state, is_former)) in self.inputs.iter_mut().zip(former).enumerate() {
            if is_former {
                state.former = state.newest.take().or(state.former).filter(|_| i != input);
            }
        }
        self.done = None;
        dropped.into_iter().collect()
    }

    /// True if the time of a message is from before a clock was set back. Such a time is nearer to the input's newest time on the
    /// former clock than to the newest time on the new clock. The first other time puts the input on the new clock.
    pub(super) fn is_former(&mut self, input: usize, time: i64) -> bool {
        let Some(former) = self.inputs[input].former else {
            return false;
        };
        let on_new_clock = self.inputs.iter().filter(|input| input.former.is_none());
        let newest = on_new_clock.filter_map(|input| input.newest).max();
        let is_former = newest.is_some_and(|newest| time.abs_diff(former) < time.abs_diff(newest));
        if !is_former {
            self.inputs[input].former = None;
        }
        is_former
    }

    /// Time of the last step, ns; `None` before the first step, and after a clock was set back.
    pub(super) fn done(&self) -> Option<i64> {
        self.done
    }

    /// Removes the oldest waiting frame, and returns its time, ns, and its input index.
    pub(super) fn drop_oldest(&mut self) -> Option<(i64, usize)> {
        self.waiting.pop_first()
    }

    /// Iterates over the time, ns, and the input index of each waiting frame, in time order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (i64, usize)> {
        self.waiting.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does all steps that are due, and returns the time and the input indices of each.
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
        assert_eq!(sequence.held_back_by(), Some((1, None)));
        assert_eq!(sequence.arrived(1, 10), Arrival::Waits);
        assert_eq!(steps(&mut sequence), [(10, vec![0, 1])]);
        // Input 1 may still have a frame at 20, and so may the poses.
        assert_eq!(sequence.held_back_by(), Some((1, Some(10))));
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
        // The newest stamp of the other input is of the former clock, and so is one that comes late from there.
        assert!(sequence.is_former(1, 510) && !sequence.is_former(0, 510));
        assert_eq!((sequence.newest(1), steps(&mut sequence)), (None, vec![]));
        sequence.arrived(1, 5);
        assert_eq!(steps(&mut sequence), [(0, vec![0])]);
    }
}
