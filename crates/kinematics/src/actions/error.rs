/// The reason why a conversion is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConversionError {
    /// The field of [`ConversionConfig`](super::ConversionConfig), or the argument.
    pub key: &'static str,
    /// The problem: the value found, and the values allowed.
    pub problem: String,
}

/// The reason why a chunk can't be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The reference has numbers that are not allowed.
    #[error("the reference: {0}")]
    Reference(String),
    /// A step has numbers that are not allowed, or can't be reached.
    #[error("step {step}: {problem}")]
    Step {
        /// The index of the step.
        step: usize,
        /// The problem: the value found, and the values allowed.
        problem: String,
    },
}

impl StepError {
    pub(super) fn step(step: usize, problem: impl Into<String>) -> Self {
        Self::Step {
            step,
            problem: problem.into(),
        }
    }
}
