use robocache_yaml::listed;
use std::fmt::Display;

/// The reason why something can't be taken from a payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The payload is not a struct of one row, or lacks a field, or the type or value of one can't be used.
    #[error("{0}")]
    Refused(String),
    /// A field contradicts the rest of the payload.
    #[error("{0}")]
    Broken(String),
}

impl SelectError {
    /// The payload is not a struct of one row, but this.
    pub(super) fn payload(came: impl Display) -> Self {
        Self::Refused(format!("the payload is {came} (allowed: a struct of one row)"))
    }

    /// A struct or a list, `within`, lacks the last part of a path.
    pub(super) fn missing<'a>(path: &str, within: &str, there: impl Iterator<Item = &'a str>) -> Self {
        let there = listed(&there.collect::<Vec<_>>());
        Self::Refused(format!("no `{path}`: {within} has {there}"))
    }

    /// The value of a field can't be used.
    pub(super) fn value(path: impl Display, came: impl Display, allowed: impl Display) -> Self {
        Self::Refused(format!("`{path}` is {came} (allowed: {allowed})"))
    }

    /// A field contradicts the rest of the payload, which allows something else.
    pub(super) fn broken(path: impl Display, came: impl Display, allowed: impl Display) -> Self {
        Self::Broken(format!("`{path}` is {came} (allowed: {allowed})"))
    }
}
