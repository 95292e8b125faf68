use super::plan::Plan;
use super::{Channel, ConfigError, VoxelGrid, VoxelLayout};
use crate::check_from;
use robocache_device::Dtype;
use robocache_geometry::RigidTransform;
use robocache_stream::{FromConfig, Reading, Wanted};
use serde::Deserialize;

/// What voxels are made of which clouds: the section `voxelize:` of a configuration.
///
/// `Default` is an empty configuration to start from in code. It is refused until a grid, channels and inputs are set.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct VoxelizeConfig {
    /// The corner of the grid with the least coordinates, metres.
    pub origin_m: [f32; 3],
    /// The edges of a cell, metres, 1e-6 to 1e6.
    pub voxel_size_m: [f32; 3],
    /// Cells along x, y and z.
    pub shape: [usize; 3],
    /// What is computed for each cell, in the order of the output.
    pub channels: Vec<Channel>,
    /// The form of the output.
    pub layout: VoxelLayout,
    /// The element type of a dense output. The types of the other layouts are fixed.
    #[serde(default = "float32")]
    pub dtype: Dtype,
    /// The greatest number of cells in a `coo` output. The first in cell order are kept.
    #[serde(default)]
    pub max_voxels: Option<usize>,
    /// How long a cloud waits for those of the other inputs, in time of the stamps. Absent: for ever.
    #[serde(default)]
    pub max_wait_ms: Option<f64>,
    /// A stamp that goes back by more than this is a clock that was set back.
    #[serde(default = "default_reset_ms")]
    pub reset_ms: f64,
    /// The streams of clouds that make up a grid.
    pub inputs: Vec<VoxelInput>,
}

/// A stream of clouds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct VoxelInput {
    /// The id of the dataflow input.
    pub input: String,
    /// Where the fields of a cloud stand in a struct, and its stamp. `None`: where that is recognised.
    #[serde(default)]
    pub from: Option<FromConfig>,
    /// Where the sensor is in the frame of the grid. Absent: the clouds are in that frame.
    #[serde(default)]
    pub extrinsic: Option<Extrinsic>,
}

/// A rotation, then a translation, from a sensor's frame to the grid's.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Extrinsic {
    /// The sensor's origin in the frame of the grid, metres.
    #[serde(default)]
    pub translation_m: [f64; 3],
    /// The quaternion x, y, z, w. It is normalized.
    #[serde(default = "identity")]
    pub rotation_xyzw: [f64; 4],
}

impl Extrinsic {
    /// Makes the transform in float64, and rounds it to float32.
    pub(super) fn transform(&self) -> RigidTransform<f32> {
        RigidTransform::new(self.rotation_xyzw, self.translation_m).rounded()
    }
}

fn float32() -> Dtype {
    Dtype::Float32
}

fn default_reset_ms() -> f64 {
    1000.0
}

fn identity() -> [f64; 4] {
    [0.0, 0.0, 0.0, 1.0]
}

impl Default for VoxelizeConfig {
    fn default() -> Self {
        Self {
            origin_m: [0.0; 3],
            voxel_size_m: [0.0; 3],
            shape: [0; 3],
            channels: Vec::new(),
            layout: VoxelLayout::Coo,
            dtype: float32(),
            max_voxels: None,
            max_wait_ms: None,
            reset_ms: default_reset_ms(),
            inputs: Vec::new(),
        }
    }
}

impl Default for Extrinsic {
    fn default() -> Self {
        Self {
            translation_m: [0.0; 3],
            rotation_xyzw: identity(),
        }
    }
}

/// The most elements of a dense output.
const MAX_DENSE: u64 = 1 << 31;
/// The most cells of any grid.
const MAX_CELLS: u64 = 1 << 32;
/// The most cells along an axis: a float32 index can't tell more of them apart.
const MAX_AXIS: usize = 1 << 24;

impl VoxelizeConfig {
    /// Checks every value. What passes can be run.
    ///
    /// # Errors
    /// The first key whose value is not allowed, the value, and what is.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_grid()?;
        self.check_channels()?;
        self.check_output()?;
        self.check_times()?;
        self.check_inputs()
    }

    /// The grid it describes.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub fn grid(&self) -> Result<VoxelGrid, ConfigError> {
        self.validate()?;
        Ok(VoxelGrid::new(self.origin_m, self.voxel_size_m, self.shape))
    }

    /// How the inputs are read.
    pub fn readings(&self) -> impl Iterator<Item = Reading> {
        let fields = Plan::new(&self.channels).fields.into_iter();
        let wanted = Wanted::These(fields.map(|field| field.name).collect());
        let inputs = self.inputs.iter();
        inputs.map(move |input| Reading::cloud(wanted.clone(), input.from.clone()))
    }

    /// Bytes of the payload of each grid, where they don't depend on the clouds. The configuration must be valid.
    pub fn message_bytes(&self) -> Option<usize> {
        let cells: usize = self.shape.iter().product();
        match self.layout {
            VoxelLayout::Dense => Some(cells * self.channels.len() * self.dtype.size()),
            VoxelLayout::Bits => Some(cells.div_ceil(8)),
            VoxelLayout::Coo => None,
        }
    }

    fn check_grid(&self) -> Result<(), ConfigError> {
        if !self.origin_m.iter().all(|v| v.is_finite()) {
            return Err(ConfigError::new(
                "origin_m",
                format!("{:?} must be finite in float32", self.origin_m),
            ));
        }
        if !self.voxel_size_m.iter().all(|v| (1e-6..=1e6).contains(v)) {
            return Err(ConfigError::new(
                "voxel_size_m",
                format!(
                    "{:?} is not allowed (each must be from 1e-6 to 1e6 metres)",
                    self.voxel_size_m
                ),
            ));
        }
        if !self.shape.iter().all(|n| (1..=MAX_AXIS).contains(n)) {
            return Err(ConfigError::new(
                "shape",
                format!("{:?} is not allowed (each must be from 1 to 2^24 cells)", self.shape),
            ));
        }
        let cells = self.shape.iter().try_fold(1u64, |n, &axis| n.checked_mul(axis as u64));
        if cells.is_none_or(|n| n > MAX_CELLS) {
            return Err(ConfigError::new(
                "shape",
                format!("{:?} is {} cells (at most 2^32)", self.shape, product(&self.shape)),
            ));
        }
        Ok(())
    }

    fn check_channels(&self) -> Result<(), ConfigError> {
        if self.channels.is_empty() {
            return Err(ConfigError::new(
                "channels",
                format!("is empty (at least one of {})", Channel::ALLOWED),
            ));
        }
        for (i, channel) in self.channels.iter().enumerate() {
            if self.channels[..i].contains(channel) {
                return Err(ConfigError::new(
                    format!("channels[{i}]"),
                    format!("`{channel}` is there twice (each channel once)"),
                ));
            }
        }
        Ok(())
    }

    fn check_output(&self) -> Result<(), ConfigError> {
        let layout = self.layout;
        if layout == VoxelLayout::Bits && self.channels != [Channel::Occupancy] {
            let names: Vec<_> = self.channels.iter().map(Channel::to_string).collect();
            return Err(ConfigError::new(
                "channels",
                format!("[{}] can't be had as `bits` (allowed: [occupancy])", names.join(", ")),
            ));
        }
        let elements = product(&self.shape) * self.channels.len() as u128;
        if layout == VoxelLayout::Dense && elements > u128::from(MAX_DENSE) {
            return Err(ConfigError::new(
                "shape",
                format!(
                    "{:?} with {} channels is {elements} elements (at most 2^31 as `dense`)",
                    self.shape,
                    self.channels.len()
                ),
            ));
        }
        if layout != VoxelLayout::Dense && self.dtype != Dtype::Float32 {
            return Err(ConfigError::new(
                "dtype",
                format!(
                    "`{}` can't be had as `{layout}`, whose types are fixed (allowed: float32)",
                    self.dtype
                ),
            ));
        }
        if !self.dtype.is_output() {
            return Err(ConfigError::new(
                "dtype",
                format!(
                    "`{}` can't be published (allowed: float32, float16, bfloat16)",
                    self.dtype
                ),
            ));
        }
        match self.max_voxels {
            Some(_) if layout != VoxelLayout::Coo => Err(ConfigError::new(
                "max_voxels",
                format!("is of no use to layout `{layout}` (allowed with: coo)"),
            )),
            Some(0) => Err(ConfigError::new(
                "max_voxels",
                "0 is not allowed (at least 1, or absent)",
            )),
            _ => Ok(()),
        }
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        let wrong = |ms: f64| !(0.0..=1e12).contains(&ms);
        if let Some(ms) = self.max_wait_ms.filter(|&ms| wrong(ms)) {
            return Err(ConfigError::new(
                "max_wait_ms",
                format!("{ms} is not allowed (0 to 1e12, or null)"),
            ));
        }
        if wrong(self.reset_ms) {
            return Err(ConfigError::new(
                "reset_ms",
                format!("{} is not allowed (0 to 1e12)", self.reset_ms),
            ));
        }
        Ok(())
    }

    fn check_inputs(&self) -> Result<(), ConfigError> {
        if self.inputs.is_empty() {
            return Err(ConfigError::new("inputs", "is empty (at least one input)"));
        }
        for (i, input) in self.inputs.iter().enumerate() {
            let key = |rest: &str| format!("inputs[{i}].{rest}");
            if input.input.is_empty() {
                return Err(ConfigError::new(key("input"), "is empty (the id of an input)"));
            }
            if self.inputs[..i].iter().any(|earlier| earlier.input == input.input) {
                return Err(ConfigError::new(
                    key("input"),
                    format!("`{}` is there twice (each input once)", input.input),
                ));
            }
            check_from(&format!("inputs[{i}]"), input.from.as_ref(), None)?;
            let Some(extrinsic) = &input.extrinsic else { continue };
            if !extrinsic.translation_m.iter().all(|v| (*v as f32).is_finite()) {
                return Err(ConfigError::new(
                    key("extrinsic.translation_m"),
                    format!("{:?} must be finite in float32", extrinsic.translation_m),
                ));
            }
            let norm = extrinsic.rotation_xyzw.iter().map(|v| v * v).sum::<f64>().sqrt();
            if !(1e-6..=1e6).contains(&norm) {
                return Err(ConfigError::new(
                    key("extrinsic.rotation_xyzw"),
                    format!(
                        "{:?} has the norm {norm} (a quaternion x, y, z, w of norm 1)",
                        extrinsic.rotation_xyzw
                    ),
                ));
            }
        }
        Ok(())
    }
}

fn product(shape: &[usize; 3]) -> u128 {
    shape.iter().map(|&n| n as u128).product()
}
