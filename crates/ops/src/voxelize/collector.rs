//! Decides from stamps alone when the clouds of several inputs make a grid, and which clouds it has. With several
//! inputs, the stamps of grids increase, except after a change of clock: see [`Collector`].

use super::VoxelizeConfig;
use crate::{ConfigError, duration_ns};
use robocache_time::ms_to_ns;

/// Treatment of a cloud that has arrived. Each input keeps its newest cloud until the next grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Keep the cloud for the next grid. No other cloud of its input waited.
    Waits,
    /// Keep the cloud in place of the older waiting cloud of its input. Count the replaced cloud as superseded.
    Replaces,
    /// Drop the cloud, and count it as superseded: a newer cloud of the same input already waits.
    Superseded,
    /// Drop the cloud, and count it as late: it is not newer than the last cloud of its input that is in a grid.
    Late,
    /// Keep the cloud: the clock was set back. `dropped` waiting clouds with stamps of the former clock are in no grid.
    Jumped {
        /// Number of waiting clouds that were dropped, the one of this input included.
        dropped: usize,
    },
}

/// Multiple of `reset_ms`. If an input's stamps advance by this much and are still older than the last grid, no input
/// follows the last grid's clock any more. A delayed input also advances fast, but it catches up with the last grid.
const RESETS_BACK: i64 = 10;

/// Decides when the clouds of several inputs make a grid. It knows only the stamps; the caller keeps the clouds.
///
/// A cloud is new if it is newer than the last cloud of its own input that is in a grid; otherwise it is late. A grid
/// is due when every open input has a new cloud. When all inputs are closed, the waiting clouds make the last grid.
///
/// With `max_wait_ms`, a grid is also due when the newest waiting stamp is that long after the oldest stamp since the
/// last grid. Replaced clouds count as well, so that one input can't delay a grid for ever.
///
/// The stamp of a grid is the newest stamp of its clouds, and greater than the stamp of the grid before. Clouds that
/// are not newer than the last grid therefore wait for a cloud that is.
///
/// The exception is a last grid whose clock is gone, which means that no input follows that clock any more. This is so
/// if the waiting clouds of all open inputs are more than `reset_ms` older than the last grid. With `max_wait_ms`, one
/// input is enough, if its clouds have advanced by ten times `reset_ms`. The next grid is then made of these older
/// clouds. Waiting clouds that are not that much older are dropped.
///
/// A stamp more than `reset_ms` older than the newest stamp of its input means that the clock was set back. The stamps
/// of all grids are then forgotten, and so are waiting clouds that are more than `reset_ms` newer than this stamp.
///
/// With one input every cloud makes a grid, whatever its stamp.
pub struct Collector {
    inputs: Vec<Input>,
    max_wait: Option<i64>,
    reset: i64,
    /// The stamp of the last grid, ns; `None` before the first grid, and after a clock was set back.
    last: Option<i64>,
    /// The stamp of the grid before the last grid, ns; `None` if there was none, or if a clock was set back since.
    before_last: Option<i64>,
    valid: Vec<i64>,
    ages: Vec<i64>,
    /// Indices of the inputs whose waiting clouds were dropped when the last grid was made: they follow a clock that is
    /// gone, as [`Collector`] defines.
    left_out: Vec<usize>,
}

#[derive(Clone)]
struct Input {
    open: bool,
    waiting: Option<i64>,
    /// The oldest stamp of this input's clouds since the last grid, ns, including clouds that newer ones have replaced.
    oldest: Option<i64>,
    newest: Option<i64>,
    /// The stamp of this input's last cloud that is in a grid, ns; `None` if no grid has a cloud of this input.
    used: Option<i64>,
    /// The value of `used` before the last grid. It is restored if the grid's cloud of this input is refused.
    used_before: Option<i64>,
}

impl Collector {
    /// Creates a collector for the inputs of a configuration, all open, without waiting clouds.
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

    /// Sets how long a cloud waits for the clouds of the other inputs; `None`: for ever.
    ///
    /// # Errors
    /// If `ms` is not a duration.
    pub fn set_max_wait_ms(&mut self, ms: Option<f64>) -> Result<(), ConfigError> {
        self.max_wait = ms.map(|ms| duration_ns(|| "max_wait_ms".into(), ms)).transpose()?;
        Ok(())
    }

    /// Records that a cloud with this stamp, ns, has arrived from an input, and returns how to treat the cloud.
    ///
    /// # Panics
    /// If `input` is not the index of an input.
    pub fn arrived(&mut self, input: usize, stamp: i64) -> Arrival {
        let has_others = self.inputs.len() > 1;
        if has_others {
            let newest = self.inputs[input].newest;
            if newest.is_some_and(|newest| newest.saturating_sub(stamp) > self.reset) {
                return self.jump(input, stamp);
            }
            if self.inputs[input].used.is_some_and(|used| stamp <= used) {
                return Arrival::Late;
            }
        }
        let state = &mut self.inputs[input];
        state.newest = state.newest.max(Some(stamp));
        match state.waiting {
            Some(waiting) if stamp < waiting && has_others => Arrival::Superseded,
            replaced => {
                state.waiting = Some(stamp);
                state.oldest = Some(state.oldest.map_or(stamp, |oldest| oldest.min(stamp)));
                match replaced {
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
            // The other inputs are set back too, soon or already. Their steps back belong to this jump.
            (state.newest, state.oldest, state.used) = (state.waiting, state.waiting, None);
        }
        let state = &mut self.inputs[input];
        (state.waiting, state.oldest, state.newest) = (Some(stamp), Some(stamp), Some(stamp));
        (self.last, self.before_last) = (None, None);
        Arrival::Jumped { dropped }
    }

    /// Closes an input, so that no grid waits for it. A waiting cloud of this input still goes into the next grid.
    pub fn closed(&mut self, input: usize) {
        self.inputs[input].open = false;
    }

    /// Opens an input again, so that grids wait for its clouds.
    pub fn opened(&mut self, input: usize) {
        self.inputs[input].open = true;
    }

    /// True if a cloud of `input` waits for the next grid.
    pub fn waits(&self, input: usize) -> bool {
        self.inputs[input].waiting.is_some()
    }

    /// True if the waiting clouds make a grid now, by the rules of [`Collector`].
    pub fn due(&self) -> bool {
        self.due_up_to().is_some()
    }

    /// Returns the upper limit, ns, of the stamps of waiting clouds that belong to the grid that is due; `None` if no
    /// grid is due.
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
        // Each input is judged by itself: the clocks of two inputs may be further apart.
        let has_advanced = |input: &Input| {
            let clouds = input.waiting.zip(input.oldest).filter(|&(waiting, _)| waiting <= until);
            let advance = clouds.map(|(waiting, oldest)| waiting.saturating_sub(oldest));
            advance.is_some_and(|ns| ns >= self.reset.saturating_mul(RESETS_BACK))
        };
        let is_gone = is_complete && newest_of_open <= until || is_over && self.inputs.iter().any(has_advanced);
        is_gone.then_some(until)
    }

    /// Takes the waiting clouds for a grid, even if no grid is due. Returns the stamp of the grid, ns; `None` if
    /// no cloud waits. [`inputs_valid`](Self::inputs_valid) and [`inputs_age_ns`](Self::inputs_age_ns) then
    /// describe this grid.
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

    /// Removes from the last grid an input's cloud that could not be used. Returns the grid's stamp, ns: the newest
    /// stamp of the remaining clouds. If none of these is newer than the grid before, the stamp does not change.
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

    /// Returns by how much the last grid is older than the grid before it, ns. `None` if it is not older, or if there
    /// is only one input.
    pub(crate) fn back_ns(&self) -> Option<i64> {
        let back = self.before_last?.saturating_sub(self.last?);
        (self.inputs.len() > 1 && back > 0).then_some(back)
    }

    /// Indices of the inputs whose waiting clouds were dropped when the last grid was made. These clouds follow a clock
    /// that is gone, as [`Collector`] defines, and are in no grid.
    pub fn left_out(&self) -> &[usize] {
        &self.left_out
    }

    /// Validity of each input: 1 if a cloud of it is in the last grid, else 0.
    pub fn inputs_valid(&self) -> &[i64] {
        &self.valid
    }

    /// Age of each input's cloud: the stamp of the last grid minus the stamp of the cloud, ns; -1 if the grid has no cloud
    /// of the input.
    pub fn inputs_age_ns(&self) -> &[i64] {
        &self.ages
    }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
