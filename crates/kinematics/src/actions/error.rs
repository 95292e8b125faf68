/// A conversion that is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConversionError {
    /// The field of [`ConversionConfig`](super::ConversionConfig), or the argument.
    pub key: &'static str,
    /// The problem: what came, and what is allowed.
    pub problem: String,
}

/// Numbers of a chunk that can't be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The reference is not what it has to be.
    #[error("the reference: {0}")]
    Reference(String),
    /// A step is not what it has to be.
    #[error("step {step}: {problem}")]
    Step {
        /// The index of the step.
        step: usize,
        /// The problem: what came, and what is allowed.
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
