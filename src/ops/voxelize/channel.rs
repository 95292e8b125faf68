use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// One value for each cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// 1 where there is a point, 0 elsewhere.
    Occupancy,
    /// The number of points.
    Count,
    /// The mean of a field over the points. `x`, `y`, `z` are the coordinates in the frame of the grid, metres.
    Mean(String),
    /// The greatest value of a field.
    Max(String),
    /// The least value of a field.
    Min(String),
}

impl Channel {
    pub(super) const ALLOWED: &str = "occupancy, count, mean_F, max_F, min_F for a field F such as x or intensity";

    /// The field it is computed from, where there is one.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Occupancy | Self::Count => None,
            Self::Mean(field) | Self::Max(field) | Self::Min(field) => Some(field),
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Occupancy => f.write_str("occupancy"),
            Self::Count => f.write_str("count"),
            Self::Mean(field) => write!(f, "mean_{field}"),
            Self::Max(field) => write!(f, "max_{field}"),
            Self::Min(field) => write!(f, "min_{field}"),
        }
    }
}

impl FromStr for Channel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.split_once('_')) {
            ("occupancy", _) => Ok(Self::Occupancy),
            ("count", _) => Ok(Self::Count),
            (_, Some(("mean", field))) if !field.is_empty() => Ok(Self::Mean(field.to_owned())),
            (_, Some(("max", field))) if !field.is_empty() => Ok(Self::Max(field.to_owned())),
            (_, Some(("min", field))) if !field.is_empty() => Ok(Self::Min(field.to_owned())),
            _ => Err(format!("`{text}` is no channel (allowed: {})", Self::ALLOWED)),
        }
    }
}

impl<'de> Deserialize<'de> for Channel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Name(PhantomData))
    }
}

/// Parses a name where it is read, so that an error has its key.
struct Name<T>(PhantomData<T>);

impl<T: FromStr<Err = String>> de::Visitor<'_> for Name<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoxelLayout {
    /// Every cell: a tensor `[C, X, Y, Z]`.
    Dense,
    /// One bit for each cell: UInt8, cell `i` is bit `i % 8`, least significant first, of byte `i / 8`.
    Bits,
    /// The occupied cells only, in cell order: `coords` V x 3 Int32 and `features` V x C Float32.
    Coo,
}

impl VoxelLayout {
    /// The name used in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Bits => "bits",
            Self::Coo => "coo",
        }
    }
}

impl fmt::Display for VoxelLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for VoxelLayout {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "dense" => Ok(Self::Dense),
            "bits" => Ok(Self::Bits),
            "coo" => Ok(Self::Coo),
            "pillars" | "tsdf" | "esdf" | "hash" => {
                Err(format!("`{name}` is not supported yet (allowed: dense, bits, coo)"))
            }
            _ => Err(format!("`{name}` is no layout (allowed: dense, bits, coo)")),
        }
    }
}

impl<'de> Deserialize<'de> for VoxelLayout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Name(PhantomData))
    }
}
