use super::channel::Name;
use robocache_yaml::did_you_mean;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

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
            _ => Err(format!(
                "`{name}` is no layout{} (allowed: dense, bits, coo)",
                did_you_mean(name, &["dense", "bits", "coo"])
            )),
        }
    }
}

impl<'de> Deserialize<'de> for VoxelLayout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Name(PhantomData))
    }
}
