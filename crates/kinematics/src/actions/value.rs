/// Meaning of an action that is a row of values, such as of joints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// The values themselves.
    Absolute,
    /// Offsets from the reference, the values before the first step.
    Relative,
    /// Offsets from the values of the previous step. The first step's offsets are from the reference.
    Delta,
    /// Velocities, per second: the values of a step are those of the previous step plus `step_s` times its velocities. The
    /// first step starts from the reference.
    Velocity {
        /// Time from one step of a chunk to the next, seconds.
        step_s: f64,
    },
}

impl ValueKind {
    /// Turns a chunk of actions into absolute values, in place. Offsets are summed from the first step on. `reference` has as
    /// many values as a step. Values of `Absolute` stay as they are.
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

    /// Turns a chunk of absolute values into actions, in place. `reference` has as many values as a step.
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
