//! Channels of a voxel grid, such as `mean_x`: their names, the sums and extremes that they are computed from, and
//! their values on the CPU.
//!
//! docs/architecture.md lists the files that a new channel touches.

use super::kernels;
use super::plan::{Plan, Source};
use super::sums::Sums;
use robocache_yaml::did_you_mean;
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A value that is computed for each cell, such as its count of points. `docs/semantics.md` defines the value, and
/// which values of a field are usable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// 1 in a cell with points, 0 in an empty cell.
    Occupancy,
    /// The number of points in the cell.
    Count,
    /// The mean, over the points of the cell, of the usable values of the field with this name. The fields `x`, `y` and
    /// `z` are the coordinates in the grid's frame, metres.
    Mean(String),
    /// The greatest usable value, among the points of the cell, of the field with this name; 0 if none is usable.
    Max(String),
    /// The least usable value, among the points of the cell, of the field with this name; 0 if none is usable.
    Min(String),
}

impl Channel {
    pub(super) const ALLOWED: &str = "occupancy, count, mean_F, max_F, min_F for a field F such as x or intensity";

    /// Returns every channel that can be computed from points with these fields: `occupancy`, `count`, and the mean,
    /// greatest and least value of each field.
    pub fn all<'a>(fields: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = Self> {
        let of_field = |field: &str| [Self::Mean, Self::Max, Self::Min].map(|make| make(field.to_owned()));
        let of_fields = fields.into_iter().flat_map(of_field);
        [Self::Occupancy, Self::Count].into_iter().chain(of_fields)
    }

    /// Splits the channel's name: the part up to the first `_`, such as `mean`, and the field's name. The field is
    /// `None` for `occupancy` and `count`.
    fn parts(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Occupancy => ("occupancy", None),
            Self::Count => ("count", None),
            Self::Mean(field) => ("mean", Some(field)),
            Self::Max(field) => ("max", Some(field)),
            Self::Min(field) => ("min", Some(field)),
        }
    }

    /// The name of the field that the channel is computed from; `None` for `occupancy` and `count`.
    pub fn field(&self) -> Option<&str> {
        self.parts().1
    }

    /// Adds the sums and extremes that the channel needs to `plan`, and returns the formula that computes the
    /// channel from them.
    fn output(&self, plan: &mut Plan) -> Output {
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

/// Plans the sums and extremes that channels need. Returns the plan, and the formula of each channel.
pub(super) fn plan(channels: &[Channel]) -> (Plan, Vec<Output>) {
    let mut plan = Plan::default();
    // x, y, z come first, in this order, so that the three are summed in one pass.
    for (axis, name) in ["x", "y", "z"].into_iter().enumerate() {
        if channels.contains(&Channel::Mean(name.to_owned())) {
            plan.sums.push(Source::Axis(axis));
        }
    }
    let outputs = channels.iter().map(|channel| channel.output(&mut plan)).collect();
    (plan, outputs)
}

/// Returns the index of each channel in the table that [`kernels::features`] computes for a cell. The table has only
/// the means of x, y and z, the count, and 1. Returns `None` if a channel is not in it, or if the plan has no counts.
pub(super) fn table_columns(plan: &Plan, outputs: &[Output]) -> Option<Vec<u8>> {
    let columns = outputs.iter().map(|output| output.table_column(plan));
    columns.collect::<Option<_>>().filter(|_| plan.counts)
}

/// Formula that computes a channel's value in a cell from the cell's sums and extremes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    One,
    Count,
    /// The sum with this index, divided by the number of summed values. Index 0 of a cell's sums is its
    /// count of points.
    Mean(usize),
    /// The greatest or least value with this index in [`Plan::extremes`].
    Extreme(usize),
}

impl Output {
    fn table_column(self, plan: &Plan) -> Option<u8> {
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

    /// Writes a channel's values in the occupied cells whose ranks are in the range `cells`, in rank order.
    pub(super) fn write(self, plan: &Plan, sums: &Sums, cells: Range<usize>, out: &mut [f32]) {
        match self {
            Self::One => out.fill(1.0),
            Self::Count => kernels::counts(&sums.rows[cells], out),
            Self::Mean(plane) => {
                let source = plan.sums[plane - 1];
                let (rows, unit) = (&sums.rows[cells.clone()], sums.unit(source));
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
        let of_field = text.split_once('_').filter(|(_, field)| !field.is_empty());
        match (text, of_field) {
            ("occupancy", _) => Ok(Self::Occupancy),
            ("count", _) => Ok(Self::Count),
            (_, Some(("mean", field))) => Ok(Self::Mean(field.to_owned())),
            (_, Some(("max", field))) => Ok(Self::Max(field.to_owned())),
            (_, Some(("min", field))) => Ok(Self::Min(field.to_owned())),
            _ => {
                let hint = did_you_mean(text, &["occupancy", "count"]);
                Err(format!("`{text}` is not a channel{hint} (allowed: {})", Self::ALLOWED))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Channel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
