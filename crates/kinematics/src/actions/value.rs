/// Meaning of an action that is a row of values, such as of joints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// The values.
    Absolute,
    /// Offsets to the reference.
    Relative,
    /// Offsets to the step before; of the first step to the reference.
    Delta,
    /// Velocities that lead from the step before, and the first from the reference, to this one in `step_s`.
    Velocity {
        /// Time from one step to the next, seconds.
        step_s: f64,
    },
}

impl ValueKind {
    /// Makes absolute values of a chunk of actions, in place, summed from the first step on. `reference` has a value for each
    /// column; those of `Absolute` stay as they are.
    pub fn decode(self, reference: &[f64], steps: &mut [f64]) {
        let n = reference.len();
        for i in 0..steps.len() {
            let before = if i < n { reference[i] } else { steps[i - n] };
            steps[i] = match self {
                Self::Absolute => steps[i],
                Self::Relative => reference[i % n] + steps[i],
                Self::Delta => before + steps[i],
                Self::Velocity { step_s } => before + steps[i] * step_s,
            };
        }
    }

    /// Makes actions of a chunk of absolute values, in place.
    pub fn encode(self, reference: &[f64], steps: &mut [f64]) {
        let n = reference.len();
        for i in (0..steps.len()).rev() {
            let before = if i < n { reference[i] } else { steps[i - n] };
            steps[i] = match self {
                Self::Absolute => steps[i],
                Self::Relative => steps[i] - reference[i % n],
                Self::Delta => steps[i] - before,
                Self::Velocity { step_s } => (steps[i] - before) / step_s,
            };
        }
    }
}
