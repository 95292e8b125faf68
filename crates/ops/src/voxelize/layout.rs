use robocache_yaml::did_you_mean;
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// The layout of a grid's payload: `dense`, `bits` or `coo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoxelLayout {
    /// Every cell: a tensor `[C, X, Y, Z]`.
    Dense,
    /// One bit for each cell, UInt8: cell `i` is bit `i % 8`, least significant first, of byte `i / 8`.
    Bits,
    /// The occupied cells only, V of them, in cell order: `coords` is V x 3 Int32, and `features` is V x C Float32,
    /// with a value for each channel.
    Coo,
}

impl VoxelLayout {
    /// The layout's name in a configuration.
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

impl<'de> Deserialize<'de> for VoxelLayout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let problem = match name.as_str() {
            "dense" => return Ok(Self::Dense),
            "bits" => return Ok(Self::Bits),
            "coo" => return Ok(Self::Coo),
            "pillars" | "hash" => "supported yet".to_owned(),
            "tsdf" | "esdf" => "a layout of a grid; the section `map:` has it".to_owned(),
            name => format!("a layout{}", did_you_mean(name, &["dense", "bits", "coo"])),
        };
        let allowed = "allowed: dense, bits, coo";
        Err(de::Error::custom(format!("`{name}` is not {problem} ({allowed})")))
    }
}
