//! The configuration of a map: the section `map:`.

use super::frame::DistanceAlong;
use super::tsdf::FrameWeight;
use crate::pose::PoseConfig;
use crate::voxelize::Extrinsic;
use robocache_device::Dtype;
use robocache_stream::{CloudFields, FromConfig, Selection};
use robocache_yaml::did_you_mean;
use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;
use std::fmt;

/// Configuration of a map: its cells, the streams that it is made from, and what is kept and published of it.
///
/// `Default` is an empty configuration to start from in code. It is refused until a shape, inputs and outputs are set.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct MapConfig {
    /// The edge of a cell, metres, 0.0001 to 1000.
    pub voxel_size_m: f64,
    /// Number of cells along x, y and z.
    pub shape: [usize; 3],
    /// Name of the world's frame, which the products have as `frame_id`. `None`: no name.
    pub frame: Option<String>,
    /// The corner of the map with the least coordinates, metres, in the world; 0 if absent. Not with `follow`.
    pub origin_m: Option<[f64; 3]>,
    /// Name of the pose that the middle of the map follows, by whole cells. `None`: the map stays where it is.
    pub follow: Option<String>,
    /// Streams of poses in the world, by the names of the moving frames.
    #[serde(default)]
    pub poses: BTreeMap<String, PoseConfig>,
    /// The streams of depth images and clouds that the map is made from.
    pub inputs: Vec<MapInput>,
    /// Signed distances to surfaces. `None`: not kept.
    pub tsdf: Option<TsdfSection>,
    /// Free and occupied cells. `None`: not kept.
    pub occupancy: Option<OccupancySection>,
    /// Distances to the nearest obstacle. `None`: not computed.
    pub esdf: Option<EsdfSection>,
    /// Products that are published.
    pub outputs: Vec<MapProduct>,
    /// Number of times of capture from one publication to the next.
    #[serde(default = "default_emit_every")]
    pub emit_every: usize,
    /// Time that a frame waits for the other inputs and for poses, ms, measured by the stamps. `None`: for ever.
    pub max_wait_ms: Option<f64>,
    /// Step back of an input's stamps, ms, above which the clock counts as set back.
    #[serde(default = "default_reset_ms")]
    pub reset_ms: f64,
}

/// A dataflow input whose frames are fused into the map.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct MapInput {
    /// The id of the dataflow input.
    pub input: String,
    /// Paths of a cloud's fields and of its stamp in a struct payload. `None`: well-known structs are recognised.
    pub from: Option<FromConfig>,
    /// Delay of the stamps behind the capture, ms: a frame's time is its stamp minus this delay.
    #[serde(default)]
    pub latency_ms: f64,
    /// Name of the moving frame that the sensor is fixed to. `None`: the sensor is fixed in the world.
    pub pose: Option<String>,
    /// Pose of the sensor in that frame. `None`: the sensor is where that frame is.
    pub extrinsic: Option<Extrinsic>,
    /// The camera of depth images. `None`: the input's messages are clouds.
    pub camera: Option<CameraSection>,
}

/// A depth camera without distortion. x points to the right of the image, y down, z forward.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CameraSection {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// Focal lengths along the columns and rows, pixels. A negative one mirrors the image.
    pub focal_px: [f32; 2],
    /// The principal point, pixels: a column and a row. The centre of pixel `(column, row)` is at these whole numbers.
    pub principal_px: [f32; 2],
    /// Unit of integer depths, metres.
    #[serde(default = "default_unit")]
    pub unit_m: f32,
    /// Least depth that is used, and the depth from which on it is not, metres.
    #[serde(default = "default_depths")]
    pub depth_m: [f32; 2],
    /// Depth of a cell, metres, up to which it is too near the camera to be updated.
    #[serde(default = "default_min_cell")]
    pub min_cell_m: f32,
}

/// Signed distances to surfaces, of depth images.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TsdfSection {
    /// Distance from a surface, metres, up to which cells are told apart.
    pub truncation_m: f32,
    /// Direction in which distances are measured.
    #[serde(default)]
    pub distance: DistanceAlong,
    /// Weight of a frame.
    #[serde(default)]
    pub weight: FrameWeight,
    /// Greatest weight of a cell, 1 to 128.
    #[serde(default = "default_max_weight")]
    pub max_weight: u32,
    /// Forgetting of cells that are not seen any more. `None`: nothing is forgotten.
    pub decay: Option<Decay>,
}

/// Free and occupied cells: of clouds by their rays, of depth images by projection.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct OccupancySection {
    /// Probability that a cell is occupied if a ray ends in it.
    #[serde(default = "default_hit")]
    pub hit: f64,
    /// Probability that a cell is occupied if a ray passes it.
    #[serde(default = "default_miss")]
    pub miss: f64,
    /// Least and greatest probability of a cell.
    #[serde(default = "default_clamp")]
    pub clamp: [f64; 2],
    /// Length of a ray, metres, beyond which it is cut.
    pub max_range_m: f32,
    /// Distance from a surface in a depth image, metres, up to which a cell is hit. `None`: the edge of a cell.
    pub band_m: Option<f32>,
    /// Forgetting of cells that are not seen any more. `None`: nothing is forgotten.
    pub decay: Option<Decay>,
}

/// Forgetting by the stamps: at each multiple of a period that they pass, a part of what a cell knows is lost.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Decay {
    /// The period, ms.
    pub period_ms: f64,
    /// The part of a cell's weight, or of the log-odds of a hit, that a period takes, above 0 and up to 1.
    pub part: f64,
}

/// Distances to the nearest obstacle.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct EsdfSection {
    /// The volume whose occupied cells are the obstacles.
    pub from: Obstacles,
    /// Greatest distance, metres. Cells further away have this distance.
    pub max_distance_m: f64,
    /// Heights in the world, metres, between which obstacles count for the slice. `None`: all.
    pub slice_m: Option<[f64; 2]>,
}

/// A volume whose occupied cells are obstacles.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Obstacles {
    /// Cells behind a surface or on it.
    Tsdf,
    /// Cells that are occupied more likely than not.
    Occupancy,
}

/// A product of a map, which is published under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapProduct {
    /// Signed distances, metres: float32 `[1, X, Y, Z]`; the truncation where no frame has seen the cell.
    Tsdf,
    /// Weights of the signed distances, in frames of weight 1: float32 `[1, X, Y, Z]`.
    Weight,
    /// Probabilities that cells are occupied, in percent, and -1 where it is not known: int8 `[1, X, Y, Z]`.
    Occupancy,
    /// Occupied cells, a bit each, as voxel grids of layout `bits` have them.
    Bits,
    /// Distances to the nearest obstacle, metres: float32 `[1, X, Y, Z]`.
    Esdf,
    /// Distances to the nearest obstacle of a band of heights, metres: float32 `[1, X, Y, 1]`.
    EsdfSlice,
}

impl MapProduct {
    /// All products.
    pub const ALL: [Self; 6] = [
        Self::Tsdf,
        Self::Weight,
        Self::Occupancy,
        Self::Bits,
        Self::Esdf,
        Self::EsdfSlice,
    ];

    /// Number of values of a map of this shape, and their type.
    pub fn values(self, shape: [usize; 3]) -> (usize, Dtype) {
        let [x, y, z] = shape;
        match self {
            Self::Tsdf | Self::Weight | Self::Esdf => (x * y * z, Dtype::Float32),
            Self::EsdfSlice => (x * y, Dtype::Float32),
            Self::Occupancy => (x * y * z, Dtype::Int8),
            Self::Bits => ((x * y * z).div_ceil(8), Dtype::UInt8),
        }
    }

    /// The name of the product's channel: `occupancy` for bits, as of a voxel grid, and `occupancy_percent` for percentages.
    pub const fn channel(self) -> &'static str {
        match self {
            Self::Occupancy => "occupancy_percent",
            Self::Bits => "occupancy",
            _ => self.name(),
        }
    }

    /// The product's name, which is also the id of its output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tsdf => "tsdf",
            Self::Weight => "weight",
            Self::Occupancy => "occupancy",
            Self::Bits => "bits",
            Self::Esdf => "esdf",
            Self::EsdfSlice => "esdf_slice",
        }
    }
}

impl fmt::Display for MapProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<'de> Deserialize<'de> for MapProduct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let names = Self::ALL.map(Self::name);
        Self::ALL
            .into_iter()
            .find(|product| product.name() == name)
            .ok_or_else(|| {
                let (hint, allowed) = (did_you_mean(&name, &names), names.join(", "));
                de::Error::custom(format!("`{name}` is not a product of a map{hint} (allowed: {allowed})"))
            })
    }
}

impl MapInput {
    /// Selection of the values that are read from a message: the points of a cloud. Depth images come as they are.
    pub fn selection(&self) -> Selection {
        match self.camera {
            Some(_) => Selection::default(),
            None => Selection::cloud(CloudFields::Named(Vec::new()), self.from.clone()),
        }
    }
}

fn default_emit_every() -> usize {
    1
}

fn default_reset_ms() -> f64 {
    1000.0
}

fn default_unit() -> f32 {
    0.001
}

fn default_depths() -> [f32; 2] {
    [0.1, 5.0]
}

fn default_min_cell() -> f32 {
    0.05
}

fn default_max_weight() -> u32 {
    64
}

fn default_hit() -> f64 {
    0.7
}

fn default_miss() -> f64 {
    0.4
}

fn default_clamp() -> [f64; 2] {
    [0.1192, 0.971]
}
