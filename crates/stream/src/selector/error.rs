use robocache_yaml::listed;
use std::fmt::Display;

/// The reason why a sample, a cloud or a stamp can't be read from a payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The payload is not a struct of one row, lacks a field, or has a field whose type or value can't be used; the text is the
    /// reason.
    #[error("{0}")]
    Refused(String),
    /// A field contradicts the rest of the payload; the text is the reason.
    #[error("{0}")]
    Broken(String),
}

impl SelectError {
    /// Returns the error of a payload that is not a struct of one row.
    pub(super) fn payload(came: impl Display) -> Self {
        Self::Refused(format!("the payload is {came} (allowed: a struct of one row)"))
    }

    /// Returns the error of a path whose last part is missing. `within` describes the struct or list that lacks it, and `there`
    /// are the names that exist.
    pub(super) fn missing<'a>(path: &str, within: &str, there: impl Iterator<Item = &'a str>) -> Self {
        let there = listed(&there.collect::<Vec<_>>());
        Self::Refused(format!("no `{path}`: {within} has {there}"))
    }

    /// Returns the error of a field whose value can't be used.
    pub(super) fn value(path: impl Display, came: impl Display, allowed: impl Display) -> Self {
        Self::Refused(format!("`{path}` is {came} (allowed: {allowed})"))
    }

    /// Returns the error of a field that contradicts the rest of the payload.
    pub(super) fn broken(path: impl Display, came: impl Display, allowed: impl Display) -> Self {
        Self::Broken(format!("`{path}` is {came} (allowed: {allowed})"))
    }
}
