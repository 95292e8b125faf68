/// Why a payload has not what is to be taken from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// There is no field of that name.
    #[error("no `{path}`: {within} has {}", list(there))]
    Missing {
        /// The path that was looked for.
        path: String,
        /// The struct that should have its last part.
        within: String,
        /// What that has.
        there: Vec<String>,
    },
    /// What stands there can't be used.
    #[error("`{path}` is {came} (allowed: {allowed})")]
    Value {
        /// Where it stands.
        path: String,
        /// Its type or its value.
        came: String,
        /// What is allowed.
        allowed: String,
    },
    /// What stands there is not what the rest of the payload says of it.
    #[error("`{path}` is {came} (allowed: {allowed})")]
    Broken {
        /// Where it stands.
        path: String,
        /// Its value, or how much it holds.
        came: String,
        /// What the rest says.
        allowed: String,
    },
    /// The payload is no struct of one row.
    #[error("the payload is {came} (allowed: a struct of one row)")]
    Payload {
        /// What it is.
        came: String,
    },
    /// A list and its names have different lengths.
    #[error("`{path}` has {values} values for the {names} of `{key}` (allowed: one for each)")]
    Length {
        /// The path of the list.
        path: String,
        /// Its values.
        values: usize,
        /// The path of the names.
        key: String,
        /// How many names there are.
        names: usize,
    },
}

impl SelectError {
    pub(super) fn value(path: impl Into<String>, came: impl ToString, allowed: impl Into<String>) -> Self {
        Self::Value {
            path: path.into(),
            came: came.to_string(),
            allowed: allowed.into(),
        }
    }

    pub(super) fn broken(path: impl Into<String>, came: impl ToString, allowed: impl Into<String>) -> Self {
        Self::Broken {
            path: path.into(),
            came: came.to_string(),
            allowed: allowed.into(),
        }
    }
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}
