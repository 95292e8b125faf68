//! The channels: the one place where their names, what they are made of and their values on the CPU stand.
//!
//! docs/architecture.md lists the files that a new one touches.

use super::cpu::CpuVoxelizer;
use super::kernels;
use super::plan::{Plan, Source};
use robocache_yaml::did_you_mean;
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// One value for each cell. `docs/semantics.md` defines it, and which values of a field are usable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// 1 where there is a point, 0 elsewhere.
    Occupancy,
    /// The number of points.
    Count,
    /// The mean of a field's usable values. `x`, `y`, `z` are the coordinates in the frame of the grid, metres.
    Mean(String),
    /// The greatest of a field's usable values.
    Max(String),
    /// The least of a field's usable values.
    Min(String),
}

/// Makes a channel of the name of its field.
type OfField = fn(String) -> Channel;

impl Channel {
    pub(super) const ALLOWED: &str = "occupancy, count, mean_F, max_F, min_F for a field F such as x or intensity";

    const OF_POINTS: [(&str, Self); 2] = [("occupancy", Self::Occupancy), ("count", Self::Count)];
    const OF_FIELDS: [(&str, OfField); 3] = [("mean", Self::Mean), ("max", Self::Max), ("min", Self::Min)];

    /// Every channel of points with these fields.
    pub fn all<'a>(fields: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = Self> {
        let of_fields = fields
            .into_iter()
            .flat_map(|field| Self::OF_FIELDS.map(|(_, make)| make(field.to_owned())));
        Self::OF_POINTS.map(|(_, channel)| channel).into_iter().chain(of_fields)
    }

    /// What its name begins with, and the field it is computed from, where there is one.
    fn parts(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Occupancy => ("occupancy", None),
            Self::Count => ("count", None),
            Self::Mean(field) => ("mean", Some(field)),
            Self::Max(field) => ("max", Some(field)),
            Self::Min(field) => ("min", Some(field)),
        }
    }

    /// The field it is computed from, where there is one.
    pub fn field(&self) -> Option<&str> {
        self.parts().1
    }

    /// What it is made of, which `plan` has gathered from now on.
    pub(super) fn output(&self, plan: &mut Plan) -> Output {
        match self {
            Self::Occupancy => Output::One,
            Self::Count => {
                plan.counts = true;
                Output::Count
            }
            Self::Mean(field) => Output::Mean(plan.sum_plane(field)),
            Self::Max(field) => Output::Extreme(plan.extreme(field, true)),
            Self::Min(field) => Output::Extreme(plan.extreme(field, false)),
        }
    }
}

/// How a channel is made of what was gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    One,
    Count,
    /// Sum plane over count.
    Mean(usize),
    /// The extreme of that index.
    Extreme(usize),
}

impl Output {
    /// Of an output that is made of the row of a cell alone, its column of the [table](kernels::features).
    pub(super) fn table_column(self, plan: &Plan) -> Option<u8> {
        match self {
            Self::One => Some(kernels::TABLE_ONE),
            Self::Count => Some(kernels::TABLE_COUNT),
            Self::Mean(plane) => match plan.sums[plane - 1] {
                Source::Axis(axis) => Some(axis as u8),
                Source::Field(_) => None,
            },
            Self::Extreme(_) => None,
        }
    }

    /// The values of the occupied cells from the `from`-th on.
    pub(super) fn write(self, voxelizer: &CpuVoxelizer, from: usize, out: &mut [f32]) {
        let (sums, cells) = (&voxelizer.sums, from..from + out.len());
        match self {
            Self::One => out.fill(1.0),
            Self::Count => kernels::counts(&sums.rows[cells], out),
            Self::Mean(plane) => {
                let source = voxelizer.spec.plan.sums[plane - 1];
                let (rows, unit) = (&sums.rows[cells.clone()], voxelizer.unit(source));
                match source {
                    Source::Axis(axis) => kernels::means_of_axis(rows, axis, unit, out),
                    Source::Field(field) => {
                        let of_field = &sums.fields[field][cells.clone()];
                        match sums.exceptions[field].get(cells) {
                            None => kernels::means(of_field, rows, unit, out),
                            Some(exceptions) => kernels::means_of_usable(of_field, rows, exceptions, unit, out),
                        }
                    }
                }
            }
            Self::Extreme(extreme) => kernels::extremes(&sums.extremes[extreme][cells], out),
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (name, None) => f.write_str(name),
            (name, Some(field)) => write!(f, "{name}_{field}"),
        }
    }
}

impl FromStr for Channel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of_points = Self::OF_POINTS.into_iter().find(|(name, _)| *name == text);
        let of_field = || {
            let (prefix, field) = text.split_once('_').filter(|(_, field)| !field.is_empty())?;
            let (_, channel) = Self::OF_FIELDS.into_iter().find(|(name, _)| *name == prefix)?;
            Some(channel(field.to_owned()))
        };
        of_points.map(|(_, channel)| channel).or_else(of_field).ok_or_else(|| {
            let hint = did_you_mean(text, &Self::OF_POINTS.map(|(name, _)| name));
            format!("`{text}` is no channel{hint} (allowed: {})", Self::ALLOWED)
        })
    }
}

impl<'de> Deserialize<'de> for Channel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Name(PhantomData))
    }
}

/// Parses a name where it is read, so that an error has its key.
pub(super) struct Name<T>(pub(super) PhantomData<T>);

impl<T: FromStr<Err = String>> de::Visitor<'_> for Name<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}
