//! The configuration `from` of an input: where its payloads have the values and the stamp, as paths.
//!
//! `FromConfig::check` finds every mistake that shows without a payload, and names the key at fault.

use serde::Deserialize;

/// Configuration `from` of an input: the paths of its samples or points in a struct, and of its stamp.
///
/// ```
/// use robocache_stream::FromConfig;
///
/// let text = "{ columns: [position], names: { key: name, order: [elbow, wrist] }, stamp: header.stamp }";
/// let from: FromConfig = serde_yaml::from_str(text)?;
/// assert!(from.check(Some(2)).is_ok());
/// assert_eq!(from.check(Some(7)).unwrap_err().key, "names.order");
/// # Ok::<(), serde_yaml::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromConfig {
    /// Dotted paths of the values in a struct of one row, in the order of the values. If empty, the fields of a recognised
    /// struct are read, or the payload stays unchanged.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Names of the elements to read from the lists in `columns`; `None` to read all elements in their order.
    #[serde(default)]
    pub names: Option<NamesConfig>,
    /// Location of the capture time in the message. `None` for the key `timestamp_ns` or, if that key is absent, a recognised
    /// stamp such as `header.stamp`.
    #[serde(default)]
    pub stamp: Option<StampConfig>,
}

impl FromConfig {
    /// The names of a sample's values, for the metadata `fields`; empty if the values are not selected by name.
    pub fn fields(&self) -> Vec<String> {
        let order = self.names.as_ref().map_or(&[][..], |names| &names.order);
        match self.columns.as_slice() {
            [_] => order.to_vec(),
            paths => paths
                .iter()
                .flat_map(|path| order.iter().map(move |name| format!("{path}.{name}")))
                .collect(),
        }
    }
}

/// Names of the list elements to read, and the path of the list that names all elements.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamesConfig {
    /// Path of the list that names the elements of every list in `columns`.
    pub key: String,
    /// Names of the elements to read, in the order of the sample's values.
    pub order: Vec<String>,
}

/// Location of a message's capture time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "allowed: a path such as `header.stamp`, `{ path: PATH, unit: s | ms | us | ns }`, or `{ metadata: KEY, unit: ... }`"
)]
pub enum StampConfig {
    /// Capture time at this path in the payload: a struct of `sec` and `nanosec`, an Arrow timestamp, or an integer of ns.
    Path(String),
    /// Capture time as a number in the payload: its path and its unit.
    Number(NumberStamp),
    /// Capture time in the metadata: its key, and the unit of the value.
    Metadata(MetadataStamp),
}

/// A number of the payload that is the capture time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumberStamp {
    /// Dotted path of the number in the payload.
    pub path: String,
    /// Unit of the number.
    pub unit: TimeUnit,
}

/// A key of the metadata that has the capture time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetadataStamp {
    /// Name of the metadata key.
    pub metadata: String,
    /// Unit of the metadata key's value, which is an Integer or a Float.
    pub unit: TimeUnit,
}

/// Unit of a stamp, or of the times of a cloud's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TimeUnit {
    /// Second, 10^9 ns.
    #[serde(rename = "s")]
    Second,
    /// Millisecond, 10^6 ns.
    #[serde(rename = "ms")]
    Millisecond,
    /// Microsecond, 1000 ns.
    #[serde(rename = "us")]
    Microsecond,
    /// Nanosecond, the unit of all times in metadata.
    #[serde(rename = "ns")]
    Nanosecond,
}

impl TimeUnit {
    /// All units, the greatest first.
    pub const ALL: [Self; 4] = [Self::Second, Self::Millisecond, Self::Microsecond, Self::Nanosecond];

    /// The name of the unit in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Millisecond => "ms",
            Self::Microsecond => "us",
            Self::Nanosecond => "ns",
        }
    }

    /// Returns the step from `number`, in this unit, to the next greater float32, in ns.
    pub fn step_of_float32_ns(self, number: f32) -> f64 {
        let (number, next) = (number.abs(), number.abs().next_up());
        (f64::from(next) - f64::from(number)) * self.ns() as f64
    }

    /// The number of nanoseconds in this unit.
    pub fn ns(self) -> i64 {
        match self {
            Self::Second => 1_000_000_000,
            Self::Millisecond => 1_000_000,
            Self::Microsecond => 1000,
            Self::Nanosecond => 1,
        }
    }
}

/// Mistake in a [`FromConfig`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromError {
    /// Path of the key at fault, below `from`, such as `columns[0]`.
    pub key: String,
    /// Description of the problem: the configured value, and the values that are allowed.
    pub problem: String,
}

impl FromConfig {
    /// Checks the configuration. `dim` is the number of values of a sample; `None` for a cloud.
    ///
    /// # Errors
    /// Names the first key whose value can't be used, and the reason.
    pub fn check(&self, dim: Option<usize>) -> Result<(), FromError> {
        let refused = |key: &str, problem: String| Err(FromError::at(key, problem));
        for (i, path) in self.columns.iter().enumerate() {
            let key = format!("columns[{i}]");
            check_path(path).or_else(|problem| refused(&key, problem))?;
            if self.columns[..i].contains(path) {
                return refused(&key, format!("`{path}` is listed twice (allowed: once)"));
            }
        }
        if let Some(names) = &self.names {
            self.check_names(names, dim)?;
        }
        match &self.stamp {
            Some(StampConfig::Path(path)) => check_path(path).or_else(|problem| refused("stamp", problem)),
            Some(StampConfig::Number(stamp)) => {
                check_path(&stamp.path).or_else(|problem| refused("stamp.path", problem))
            }
            Some(StampConfig::Metadata(stamp)) if stamp.metadata.is_empty() => {
                refused("stamp.metadata", "it is empty (needed: a key)".into())
            }
            None if self.columns.is_empty() => refused(
                "columns",
                "neither `columns` nor a `stamp` is given (needed: at least one of them)".into(),
            ),
            _ => Ok(()),
        }
    }

    fn check_names(&self, names: &NamesConfig, dim: Option<usize>) -> Result<(), FromError> {
        let refused = |key: &str, problem: String| Err(FromError::at(key, problem));
        let Some(dim) = dim else {
            return refused(
                "names",
                "points have no names (allowed: `from.names` of a modality)".into(),
            );
        };
        check_path(&names.key).or_else(|problem| refused("names.key", problem))?;
        let (order, columns) = (&names.order, self.columns.len());
        if columns == 0 {
            return refused(
                "columns",
                "no columns are given (needed: the lists whose elements `names` takes)".into(),
            );
        }
        if let Some(i) = (0..order.len()).find(|&i| order[..i].contains(&order[i])) {
            return refused("names.order", format!("`{}` is listed twice (allowed: once)", order[i]));
        }
        let (names, values) = (order.len(), order.len() * columns);
        if values != dim {
            let problem = format!("{names} names of {columns} columns are {values} values (allowed: {dim}, the `dim`)");
            return refused("names.order", problem);
        }
        Ok(())
    }
}

impl FromError {
    fn at(key: &str, problem: String) -> Self {
        let key = key.to_owned();
        Self { key, problem }
    }
}

fn check_path(path: &str) -> Result<(), String> {
    let problem = || format!("`{path}` is not a path (allowed: names of fields with dots between them)");
    let is_path = !path.split('.').any(str::is_empty);
    is_path.then_some(()).ok_or_else(problem)
}
