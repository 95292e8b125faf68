/// Reason why a configuration of a conversion, or the width of actions, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConversionError {
    /// Name of the field of [`ConversionConfig`](super::ConversionConfig), or of the argument, that is refused.
    pub key: &'static str,
    /// Error text with the value found and the values allowed.
    pub problem: String,
}

/// Reason why a chunk of actions can't be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The reference, which is the state before the first step, has numbers that are not allowed. Holds the value found, and
    /// the values allowed.
    #[error("the reference: {0}")]
    Reference(String),
    /// A step of the chunk has numbers that are not allowed, or a pose that can't be reached.
    #[error("step {step}: {problem}")]
    Step {
        /// Index of the step in the chunk, from 0.
        step: usize,
        /// Error text with the value found and the values allowed.
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
