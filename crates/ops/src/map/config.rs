//! Configuration of a map: the section `map:` with its cells, inputs, poses, volumes and outputs.

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

/// Configuration of a map: its cells, its inputs, the volumes that it keeps, and the outputs that it publishes.
///
/// `Default` is an empty configuration to start from in code. It is refused until a shape, inputs and outputs are set.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct MapConfig {
    /// The edge of a cell, metres, 0.0001 to 1000.
    pub voxel_size_m: f64,
    /// Number of cells along x, y and z.
    pub shape: [usize; 3],
    /// Name of the world's coordinate frame, published as `frame_id`. `None`: outputs have no `frame_id`.
    pub frame: Option<String>,
    /// Corner of the map with the least coordinates, metres, in the world; 0 if absent. Refused together with `follow`.
    pub origin_m: Option<[f64; 3]>,
    /// Name of the pose that the map follows: the map moves by whole cells to keep this pose in its middle. `None`: the
    /// map does not move.
    pub follow: Option<String>,
    /// Streams of poses in the world, by the name of the moving coordinate frame, such as `base`.
    #[serde(default)]
    pub poses: BTreeMap<String, PoseConfig>,
    /// The streams of depth images and clouds that the map is made from.
    pub inputs: Vec<MapInput>,
    /// Signed distances to surfaces, fused from depth images. `None`: the map does not keep them.
    pub tsdf: Option<TsdfSection>,
    /// Free and occupied cells. `None`: the map does not keep them.
    pub occupancy: Option<OccupancySection>,
    /// Distances to the nearest obstacle. `None`: the map does not compute them.
    pub esdf: Option<EsdfSection>,
    /// Outputs to publish, such as `tsdf` or `occupancy`.
    pub outputs: Vec<MapProduct>,
    /// Number of steps from one publication to the next. A step fuses all depth images and clouds with the
    /// same capture time.
    #[serde(default = "default_emit_every")]
    pub emit_every: usize,
    /// Time that a depth image or cloud waits for the other inputs and for poses, ms, measured by the stamps.
    /// `None`: for ever.
    pub max_wait_ms: Option<f64>,
    /// Limit, ms: if an input's stamps go back by more than this, its clock counts as set back, and the
    /// map starts empty.
    #[serde(default = "default_reset_ms")]
    pub reset_ms: f64,
}

/// A dataflow input whose depth images or clouds are fused into the map.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct MapInput {
    /// The id of the dataflow input.
    pub input: String,
    /// Paths of a cloud's fields and of its stamp in a struct payload. `None`: a struct of a known type, such as a ROS
    /// message, is recognised by its fields.
    pub from: Option<FromConfig>,
    /// Delay of the stamps behind the capture, ms: the capture time is the stamp minus this delay.
    #[serde(default)]
    pub latency_ms: f64,
    /// Name of the moving coordinate frame that the sensor is fixed to, in `poses`. `None`: the sensor is fixed
    /// in the world.
    pub pose: Option<String>,
    /// Pose of the sensor in the coordinate frame that `pose` names, or in the world. `None`: the identity.
    pub extrinsic: Option<Extrinsic>,
    /// The camera, if the input has depth images. `None`: the input has point clouds.
    pub camera: Option<CameraSection>,
}

/// A depth camera without distortion. Its x axis points to the right of the image, y down, z forward.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CameraSection {
    /// Width of the image, pixels.
    pub width: usize,
    /// Height of the image, pixels.
    pub height: usize,
    /// Focal lengths fx and fy, pixels. A negative value mirrors the image along that axis.
    pub focal_px: [f32; 2],
    /// Principal point cx and cy, pixels: a column and a row. The centre of a pixel is at its column and row.
    pub principal_px: [f32; 2],
    /// Unit of uint16 depths, metres. Float32 depths are in metres.
    #[serde(default = "default_unit")]
    pub unit_m: f32,
    /// Least depth of a pixel that is used, and upper limit of the depths, metres. A pixel at the limit or beyond it
    /// is not used.
    #[serde(default = "default_depths")]
    pub depth_m: [f32; 2],
    /// Minimum depth of a cell, metres: a cell at this depth or nearer to the camera is not updated.
    #[serde(default = "default_min_cell")]
    pub min_cell_m: f32,
}

/// Configuration of signed distances to surfaces (`tsdf:`), which are fused from depth images.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TsdfSection {
    /// Truncation distance, metres. Signed distances are clamped to it, and cells further behind a surface
    /// are not updated.
    pub truncation_m: f32,
    /// Direction in which distances are measured: the optical axis or the pixel's ray.
    #[serde(default)]
    pub distance: DistanceAlong,
    /// Weight of a depth image in a cell's mean distance.
    #[serde(default)]
    pub weight: FrameWeight,
    /// Greatest weight of a cell, 1 to 128. The limit lets the map follow changes of the world.
    #[serde(default = "default_max_weight")]
    pub max_weight: u32,
    /// Decay of the weights, so that cells that are no longer seen are forgotten. `None`: no decay.
    pub decay: Option<Decay>,
}

/// Configuration of free and occupied cells (`occupancy:`). Clouds update cells by their rays, depth
/// images by projection.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct OccupancySection {
    /// Probability that a cell is occupied after one ray ended in it, above 0.5.
    #[serde(default = "default_hit")]
    pub hit: f64,
    /// Probability that a cell is occupied after one ray passed through it, below 0.5.
    #[serde(default = "default_miss")]
    pub miss: f64,
    /// Least and greatest probability of a cell. The limits let a few scans change a cell from free to
    /// occupied or back.
    #[serde(default = "default_clamp")]
    pub clamp: [f64; 2],
    /// Greatest length of a ray, metres. A longer ray is cut at this length and ends without a hit.
    pub max_range_m: f32,
    /// Cells within this distance of a surface in a depth image count as hit, metres. `None`: the edge of a cell.
    pub band_m: Option<f32>,
    /// Decay of the log-odds towards 0, so that cells that are no longer seen are forgotten. `None`: no decay.
    pub decay: Option<Decay>,
}

/// Decay of a volume over time, measured by the stamps. It applies at each multiple of the period that the stamps pass.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Decay {
    /// Period of the decay, ms.
    pub period_ms: f64,
    /// Strength of the decay, above 0, up to 1. In `tsdf`, a period removes this part of each weight. In `occupancy`,
    /// it moves log-odds towards 0 by this part of the log-odds of a hit.
    pub part: f64,
}

/// Configuration of the distances to the nearest obstacle (`esdf:`).
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct EsdfSection {
    /// The volume whose occupied cells are the obstacles.
    pub from: Obstacles,
    /// Greatest distance, metres. Cells further from every obstacle get this distance.
    pub max_distance_m: f64,
    /// Least and greatest height of obstacles in the output `esdf_slice`, metres, z in the world. `None`: every height.
    pub slice_m: Option<[f64; 2]>,
}

/// A volume whose occupied cells are obstacles.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Obstacles {
    /// Signed distances: a cell is an obstacle if it was seen and its distance is 0 or less.
    Tsdf,
    /// Occupancy: a cell is an obstacle if its probability is above one half.
    Occupancy,
}

/// An output of a map, published under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapProduct {
    /// Signed distances, metres: float32 `[1, X, Y, Z]`. A cell that no depth image has seen has
    /// the truncation distance.
    Tsdf,
    /// Weights of the signed distances: float32 `[1, X, Y, Z]`. With `weight: constant` and no decay, a weight is the
    /// number of fused images, at most `max_weight`.
    Weight,
    /// Probabilities that cells are occupied, in percent: int8 `[1, X, Y, Z]`; -1 if a cell was never observed.
    Occupancy,
    /// Occupied cells, one bit each, packed as in a voxel grid of layout `bits`.
    Bits,
    /// Distances to the nearest obstacle, metres: float32 `[1, X, Y, Z]`.
    Esdf,
    /// Horizontal distances to the nearest obstacle between the heights of `slice_m`, metres: float32 `[1, X, Y, 1]`.
    EsdfSlice,
}

impl MapProduct {
    /// All outputs that a map can publish.
    pub const ALL: [Self; 6] = [
        Self::Tsdf,
        Self::Weight,
        Self::Occupancy,
        Self::Bits,
        Self::Esdf,
        Self::EsdfSlice,
    ];

    /// Returns the number of values of this output, for a map of `shape` cells, and their element type.
    pub fn values(self, shape: [usize; 3]) -> (usize, Dtype) {
        let [x, y, z] = shape;
        match self {
            Self::Tsdf | Self::Weight | Self::Esdf => (x * y * z, Dtype::Float32),
            Self::EsdfSlice => (x * y, Dtype::Float32),
            Self::Occupancy => (x * y * z, Dtype::Int8),
            Self::Bits => ((x * y * z).div_ceil(8), Dtype::UInt8),
        }
    }

    /// Returns the name of the output's single channel: `occupancy` for bits, `occupancy_percent` for percentages, else
    /// the output's name.
    pub const fn channel(self) -> &'static str {
        match self {
            Self::Occupancy => "occupancy_percent",
            Self::Bits => "occupancy",
            _ => self.name(),
        }
    }

    /// Returns the name in the configuration, which is also the id of the dataflow output.
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
    /// Selects the values to read from a message of this input: a cloud's points. A depth image is read as
    /// a flat array.
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
