/// Meaning of an action that is a row of values, such as of joints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// The values.
    Absolute,
    /// Offsets to the reference.
    Relative,
    /// Offsets to the step before; of the first step to the reference.
    Delta,
    /// Velocities that lead to the step within `step_s`, from the step before; to the first step from the reference.
    Velocity {
        /// Time from one step to the next, seconds.
        step_s: f64,
    },
}

impl ValueKind {
    /// Turns a chunk of actions into absolute values, in place, summed from the first step on. `reference` has a value for each
    /// column. Values of `Absolute` stay as they are.
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

    /// Turns a chunk of absolute values into actions, in place.
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
