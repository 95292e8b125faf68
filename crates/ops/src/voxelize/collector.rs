use super::VoxelizeConfig;
use crate::{ConfigError, duration_ns};
use robocache_time::ms_to_ns;

/// Treatment of a cloud that has arrived. Each input keeps the newest one for the next grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Keep it.
    Waits,
    /// Keep it in the place of the one that waited, which is superseded: count that.
    Replaces,
    /// Drop it: a newer one of the same input waits already. Count it as superseded.
    Superseded,
    /// Drop it: it is not newer than the last cloud of its input that is in a grid. Count it.
    Late,
    /// Keep it: the clock was set back. The clouds that waited from before, `dropped` of them, are not in the next grid.
    Jumped {
        /// Number of clouds that no longer wait, one of this input among them.
        dropped: usize,
    },
}

/// Number of times `reset_ms` by which clouds must come on and still be behind the last grid to show that its clock is
/// gone. Those of an input that was held up come at once, and get there.
const RESETS_BACK: i64 = 10;

/// Says when the clouds of several inputs make a grid. It knows stamps only; the clouds stay where they are.
///
/// A cloud is new if it is newer than the last cloud of its own input that is in a grid; one that is not is late. A grid is
/// due when every open input has a new cloud; or, with `max_wait_ms`, when the newest stamp is that far past the oldest
/// cloud since the last grid, one that was superseded among them, so that an input alone can't put it off for ever. When all
/// inputs are closed, what waits is the last grid.
///
/// The stamp of a grid is the newest stamp in it, and greater than that of the grid before: until there is a cloud from
/// after the last grid, those from before it wait. That grid was of a clock that is gone if the clouds of all open inputs wait
/// more than `reset_ms` before it, or if, with `max_wait_ms`, those of one input have come on by ten times `reset_ms` and are
/// still that far before it. Then the next grid is made all the same, and clouds that wait and are not that far before it are
/// left out.
///
/// A stamp that is more than `reset_ms` behind the last one of its input means that the clock was set back: the stamps of
/// all grids are forgotten, and so are clouds that wait from more than `reset_ms` ahead.
///
/// With one input every cloud is a grid, whatever its stamp.
pub struct Collector {
    inputs: Vec<Input>,
    max_wait: Option<i64>,
    reset: i64,
    /// The stamps of the last grid and of the one before it.
    last: Option<i64>,
    before_last: Option<i64>,
    valid: Vec<i64>,
    ages: Vec<i64>,
    /// The inputs whose clouds were left out of the last grid, for a clock that is gone.
    left_out: Vec<usize>,
}

#[derive(Clone)]
struct Input {
    open: bool,
    waiting: Option<i64>,
    /// The oldest stamp that was kept since the last grid.
    oldest: Option<i64>,
    newest: Option<i64>,
    /// The stamp of the last cloud that is in a grid, and what that was before the last grid.
    used: Option<i64>,
    used_before: Option<i64>,
}

impl Collector {
    /// A collector for the inputs of a configuration, all open.
    pub fn new(config: &VoxelizeConfig) -> Self {
        let input = Input {
            open: true,
            waiting: None,
            oldest: None,
            newest: None,
            used: None,
            used_before: None,
        };
        let n = config.inputs.len();
        Self {
            inputs: vec![input; n],
            max_wait: config.max_wait_ms.map(ms_to_ns),
            reset: ms_to_ns(config.reset_ms),
            last: None,
            before_last: None,
            valid: vec![0; n],
            ages: vec![-1; n],
            left_out: Vec::with_capacity(n),
        }
    }

    /// Sets how long a cloud waits for those of the other inputs; `None`: for ever.
    ///
    /// # Errors
    /// If it is not a duration.
    pub fn set_max_wait_ms(&mut self, ms: Option<f64>) -> Result<(), ConfigError> {
        self.max_wait = ms.map(|ms| duration_ns(|| "max_wait_ms".into(), ms)).transpose()?;
        Ok(())
    }

    /// A cloud of an input with this stamp, ns, has arrived.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn arrived(&mut self, input: usize, stamp: i64) -> Arrival {
        if self.inputs.len() > 1 {
            let newest = self.inputs[input].newest;
            if newest.is_some_and(|newest| newest.saturating_sub(stamp) > self.reset) {
                return self.jump(input, stamp);
            }
            if self.inputs[input].used.is_some_and(|used| stamp <= used) {
                return Arrival::Late;
            }
        }
        let alone = self.inputs.len() == 1;
        let state = &mut self.inputs[input];
        state.newest = state.newest.max(Some(stamp));
        match state.waiting {
            Some(waiting) if stamp < waiting && !alone => Arrival::Superseded,
            earlier => {
                state.waiting = Some(stamp);
                state.oldest = Some(state.oldest.map_or(stamp, |oldest| oldest.min(stamp)));
                match earlier {
                    Some(_) => Arrival::Replaces,
                    None => Arrival::Waits,
                }
            }
        }
    }

    fn jump(&mut self, input: usize, stamp: i64) -> Arrival {
        let mut dropped = 0;
        for (i, state) in self.inputs.iter_mut().enumerate() {
            let ahead = |waiting: i64| i == input || waiting.saturating_sub(stamp) > self.reset;
            dropped += usize::from(state.waiting.take_if(|waiting| ahead(*waiting)).is_some());
            // The other inputs are set back too, soon or already: that is this jump, not another.
            (state.newest, state.oldest, state.used) = (state.waiting, state.waiting, None);
        }
        let state = &mut self.inputs[input];
        (state.waiting, state.oldest, state.newest) = (Some(stamp), Some(stamp), Some(stamp));
        (self.last, self.before_last) = (None, None);
        Arrival::Jumped { dropped }
    }

    /// An input is closed: it no longer holds a grid up. Its cloud, if one waits, is still in the next grid.
    pub fn closed(&mut self, input: usize) {
        self.inputs[input].open = false;
    }

    /// An input is open, again.
    pub fn opened(&mut self, input: usize) {
        self.inputs[input].open = true;
    }

    /// True if a cloud of the input waits: it is in the grid that is taken next.
    pub fn waits(&self, input: usize) -> bool {
        self.inputs[input].waiting.is_some()
    }

    /// True if a grid is due.
    pub fn due(&self) -> bool {
        self.due_up_to().is_some()
    }

    /// The stamp up to which clouds that wait are in the grid that is due; `None` if none is due.
    fn due_up_to(&self) -> Option<i64> {
        let newest = self.inputs.iter().filter_map(|input| input.waiting).max()?;
        let is_complete = self.inputs.iter().all(|input| !input.open || input.waiting.is_some());
        let oldest = self.inputs.iter().filter_map(|input| input.oldest).min();
        let waited = oldest.map_or(0, |oldest| newest.saturating_sub(oldest));
        let is_over = self.max_wait.is_some_and(|max| waited >= max);
        let Some(last) = self.last.filter(|&last| self.inputs.len() > 1 && newest <= last) else {
            return (is_complete || is_over).then_some(newest);
        };
        // Clouds up to here are of another clock than the last grid.
        let until = last.saturating_sub(self.reset).saturating_sub(1);
        let of_open = self.inputs.iter().filter(|input| input.open);
        let newest_of_open = of_open.filter_map(|input| input.waiting).max().unwrap_or(newest);
        // By each input alone: the clocks of two may be further apart.
        let comes_on = |input: &Input| {
            let clouds = input.waiting.zip(input.oldest).filter(|&(waiting, _)| waiting <= until);
            let came_on = clouds.map(|(waiting, oldest)| waiting.saturating_sub(oldest));
            came_on.is_some_and(|ns| ns >= self.reset.saturating_mul(RESETS_BACK))
        };
        let is_gone = is_complete && newest_of_open <= until || is_over && self.inputs.iter().any(comes_on);
        is_gone.then_some(until)
    }

    /// Takes the clouds that wait for a grid and returns its stamp, or `None` if none waits.
    /// [`inputs_valid`](Self::inputs_valid) and [`inputs_age_ns`](Self::inputs_age_ns) are then those of this grid.
    pub fn take(&mut self) -> Option<i64> {
        let until = self.due_up_to().unwrap_or(i64::MAX);
        self.left_out.clear();
        for (i, input) in self.inputs.iter_mut().enumerate() {
            if input.waiting.take_if(|waiting| *waiting > until).is_some() {
                input.newest = input.used;
                self.left_out.push(i);
            }
        }
        let stamp = self.inputs.iter().filter_map(|input| input.waiting).max()?;
        for (i, input) in self.inputs.iter_mut().enumerate() {
            let taken = input.waiting.take();
            input.oldest = None;
            self.valid[i] = i64::from(taken.is_some());
            self.ages[i] = taken.map_or(-1, |taken| stamp.saturating_sub(taken));
            input.used_before = input.used;
            input.used = taken.or(input.used);
        }
        self.before_last = self.last.replace(stamp);
        Some(stamp)
    }

    /// The cloud of an input could not be put in the grid that was taken last. Returns the stamp of the grid without it, which
    /// stays as it is where no cloud that is left is newer than the grid before.
    pub(crate) fn refuse(&mut self, input: usize) -> i64 {
        let Some(before) = self.last else { return 0 };
        (self.valid[input], self.ages[input]) = (0, -1);
        self.inputs[input].used = self.inputs[input].used_before;
        let ages = || self.ages.iter().filter(|age| **age >= 0);
        let Some(&younger) = ages().min() else { return before };
        let stamp = before.saturating_sub(younger);
        if self.inputs.len() > 1 && self.before_last.is_some_and(|earlier| stamp <= earlier) {
            return before;
        }
        self.ages
            .iter_mut()
            .filter(|age| **age >= 0)
            .for_each(|age| *age -= younger);
        self.last = Some(stamp);
        stamp
    }

    /// Step of the last grid back behind the one before it, ns, if it is before that.
    pub(crate) fn back_ns(&self) -> Option<i64> {
        let back = self.before_last?.saturating_sub(self.last?);
        (self.inputs.len() > 1 && back > 0).then_some(back)
    }

    /// The inputs of which a cloud waited and was left out of the last grid: it is of a clock that is gone, and in no grid.
    pub fn left_out(&self) -> &[usize] {
        &self.left_out
    }

    /// For each input 1 if a cloud of it is in the last grid, else 0.
    pub fn inputs_valid(&self) -> &[i64] {
        &self.valid
    }

    /// For each input the stamp of the last grid minus the stamp of its cloud, ns; -1 if none is in it.
    pub fn inputs_age_ns(&self) -> &[i64] {
        &self.ages
    }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
