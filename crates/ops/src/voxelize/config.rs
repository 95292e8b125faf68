//! The configuration of voxel grids, and the checks of its values. A configuration that [`VoxelizeConfig::validate`]
//! accepts can be run.

use super::channel::plan;
use super::{Channel, ConfigError, VoxelGrid, VoxelLayout};
use crate::{check_from, refused};
use robocache_device::Dtype;
use robocache_geometry::RigidTransform;
use robocache_stream::{CloudFields, FromConfig, Selection};
use serde::Deserialize;

/// Configuration of voxel grids and their input clouds: the section `voxelize:`.
///
/// `Default` is an empty configuration to start from in code. It is refused until a grid, channels and inputs are set.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct VoxelizeConfig {
    /// The corner of the grid with the least coordinates, metres, in the grid's coordinate frame.
    pub origin_m: [f32; 3],
    /// The edges of a cell along x, y and z, metres, 1e-6 to 1e6.
    pub voxel_size_m: [f32; 3],
    /// Number of cells along x, y and z.
    pub shape: [usize; 3],
    /// Values to compute for each cell, such as `count` or `mean_x`, in the order of the output.
    pub channels: Vec<Channel>,
    /// The form of the output: a dense tensor, a bitmap, or the occupied cells alone.
    pub layout: VoxelLayout,
    /// The element type of a dense output. The types of the other layouts are fixed.
    #[serde(default = "crate::float32")]
    pub dtype: Dtype,
    /// Greatest number of cells in a `coo` output. Of more occupied cells, the first in cell order are kept.
    /// `None`: no limit.
    pub max_voxels: Option<usize>,
    /// Time that a cloud waits for the clouds of the other inputs, ms, measured by the stamps. `None`: for ever.
    pub max_wait_ms: Option<f64>,
    /// Limit, ms: if an input's stamps go back by more than this, its clock counts as set back.
    #[serde(default = "default_reset_ms")]
    pub reset_ms: f64,
    /// The dataflow inputs whose clouds are merged into a grid.
    pub inputs: Vec<VoxelInput>,
}

/// A dataflow input of point clouds. A grid merges the clouds of all inputs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct VoxelInput {
    /// The id of the dataflow input.
    pub input: String,
    /// Paths of a cloud's fields and of its stamp in a struct payload. `None`: a struct of a known type, such as a ROS
    /// message, is recognised by its fields.
    pub from: Option<FromConfig>,
    /// Delay of the stamps behind the capture, ms: a cloud's time is its stamp minus this delay.
    #[serde(default)]
    pub latency_ms: f64,
    /// Pose of the sensor in the grid's coordinate frame. `None`: the clouds are already in that frame.
    pub extrinsic: Option<Extrinsic>,
}

/// A rotation, then a translation, from a sensor's frame to the grid's.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Extrinsic {
    /// The sensor's origin in the grid's coordinate frame, metres.
    pub translation_m: [f64; 3],
    /// The rotation as a quaternion x, y, z, w, which is normalized before use.
    pub rotation_xyzw: [f64; 4],
}

impl Extrinsic {
    /// Converts the pose to a rigid transform.
    pub(crate) fn transform(&self) -> RigidTransform<f64> {
        RigidTransform::new(self.rotation_xyzw, self.translation_m)
    }

    /// Checks the range of every field. `at` is the key of the input in the configuration, such as `inputs[0]`,
    /// for error messages.
    pub(crate) fn validate(&self, at: &str) -> Result<(), ConfigError> {
        let Self {
            translation_m,
            rotation_xyzw,
        } = self;
        if !translation_m.iter().all(|v| (*v as f32).is_finite()) {
            let problem = format!("{translation_m:?} must be finite in float32");
            return refused(format!("{at}.extrinsic.translation_m"), problem);
        }
        let norm = rotation_xyzw.iter().map(|v| v * v).sum::<f64>().sqrt();
        if !(1e-6..=1e6).contains(&norm) {
            let problem = format!("{rotation_xyzw:?} has the norm {norm} (a quaternion x, y, z, w of norm 1)");
            return refused(format!("{at}.extrinsic.rotation_xyzw"), problem);
        }
        Ok(())
    }
}

fn default_reset_ms() -> f64 {
    1000.0
}

impl Default for VoxelizeConfig {
    fn default() -> Self {
        Self {
            origin_m: [0.0; 3],
            voxel_size_m: [0.0; 3],
            shape: [0; 3],
            channels: Vec::new(),
            layout: VoxelLayout::Coo,
            dtype: Dtype::Float32,
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
            rotation_xyzw: [0.0, 0.0, 0.0, 1.0],
        }
    }
}

/// Greatest number of elements of a dense output: cells times channels.
const MAX_DENSE: u128 = 1 << 31;
/// Greatest number of cells of a grid, occupied or not, in any layout.
const MAX_CELLS: u128 = 1 << 32;
/// Greatest number of cells along an axis: float32, in which indices are computed, has every integer up to 2^24.
const MAX_AXIS: usize = 1 << 24;

impl VoxelizeConfig {
    /// Checks every value. A configuration that passes can be run.
    ///
    /// # Errors
    /// The first key whose value is not allowed, the value, and the allowed values.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_grid()?;
        self.check_channels()?;
        self.check_output()?;
        self.check_times()?;
        self.check_inputs()
    }

    /// The geometry of the grid: origin, cell size and shape.
    ///
    /// # Errors
    /// The errors of [`validate`](Self::validate).
    pub fn grid(&self) -> Result<VoxelGrid, ConfigError> {
        self.validate()?;
        Ok(VoxelGrid::new(self.origin_m, self.voxel_size_m, self.shape))
    }

    /// Lists the point fields to read from the messages of each of `inputs`: those that the channels need,
    /// and their paths.
    pub fn selections(&self) -> impl Iterator<Item = Selection> {
        let fields = plan(&self.channels).0.fields.into_iter();
        let wanted = CloudFields::Named(fields.map(|field| field.name).collect());
        let inputs = self.inputs.iter();
        inputs.map(move |input| Selection::cloud(wanted.clone(), input.from.clone()))
    }

    /// Bytes of the payload of each grid; `None` in layout `coo`, whose size depends on the clouds. The configuration
    /// must be valid.
    pub fn message_bytes(&self) -> Option<usize> {
        let cells: usize = self.shape.iter().product();
        match self.layout {
            VoxelLayout::Dense => Some(cells * self.channels.len() * self.dtype.size()),
            VoxelLayout::Bits => Some(cells.div_ceil(8)),
            VoxelLayout::Coo => None,
        }
    }

    fn check_grid(&self) -> Result<(), ConfigError> {
        let Self {
            origin_m,
            voxel_size_m,
            shape,
            ..
        } = self;
        if !origin_m.iter().all(|v| v.is_finite()) {
            return refused("origin_m", format!("{origin_m:?} must be finite in float32"));
        }
        if !voxel_size_m.iter().all(|v| (1e-6..=1e6).contains(v)) {
            let allowed = "each must be from 1e-6 to 1e6 metres";
            return refused("voxel_size_m", format!("{voxel_size_m:?} is not allowed ({allowed})"));
        }
        if !shape.iter().all(|n| (1..=MAX_AXIS).contains(n)) {
            return refused(
                "shape",
                format!("{shape:?} is not allowed (each must be from 1 to 2^24 cells)"),
            );
        }
        match product(shape) {
            cells if cells > MAX_CELLS => refused("shape", format!("{shape:?} is {cells} cells (at most 2^32)")),
            _ => Ok(()),
        }
    }

    fn check_channels(&self) -> Result<(), ConfigError> {
        if self.channels.is_empty() {
            return refused("channels", format!("is empty (at least one of {})", Channel::ALLOWED));
        }
        for (i, channel) in self.channels.iter().enumerate() {
            if self.channels[..i].contains(channel) {
                return refused(
                    format!("channels[{i}]"),
                    format!("`{channel}` is listed twice (allowed: each channel once)"),
                );
            }
        }
        Ok(())
    }

    fn check_output(&self) -> Result<(), ConfigError> {
        let Self {
            layout, shape, dtype, ..
        } = self;
        let (is_dense, channels) = (*layout == VoxelLayout::Dense, self.channels.len());
        if *layout == VoxelLayout::Bits && self.channels != [Channel::Occupancy] {
            let names: Vec<_> = self.channels.iter().map(Channel::to_string).collect();
            let names = names.join(", ");
            return refused(
                "channels",
                format!("[{names}] can't be written as `bits` (allowed: [occupancy])"),
            );
        }
        let elements = product(shape) * channels as u128;
        if is_dense && elements > MAX_DENSE {
            let size = format!("{shape:?} with {channels} channels is {elements} elements");
            return refused("shape", format!("{size} (at most 2^31 as `dense`)"));
        }
        if !is_dense && *dtype != Dtype::Float32 {
            let allowed = "whose types are fixed (allowed: float32)";
            return refused(
                "dtype",
                format!("`{dtype}` is not allowed with layout `{layout}`, {allowed}"),
            );
        }
        if !dtype.is_output() {
            let allowed = "allowed: float32, float16, bfloat16";
            return refused("dtype", format!("`{dtype}` can't be published ({allowed})"));
        }
        match self.max_voxels {
            Some(_) if *layout != VoxelLayout::Coo => refused(
                "max_voxels",
                format!("has no effect in layout `{layout}` (allowed with: coo)"),
            ),
            Some(0) => refused("max_voxels", "0 is not allowed (at least 1, or absent)"),
            _ => Ok(()),
        }
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        let is_wrong = |ms: &f64| !(0.0..=1e12).contains(ms);
        match (self.max_wait_ms.filter(is_wrong), self.reset_ms) {
            (Some(ms), _) => refused("max_wait_ms", format!("{ms} is not allowed (0 to 1e12, or null)")),
            (None, ms) if is_wrong(&ms) => refused("reset_ms", format!("{ms} is not allowed (0 to 1e12)")),
            _ => Ok(()),
        }
    }

    fn check_inputs(&self) -> Result<(), ConfigError> {
        if self.inputs.is_empty() {
            return refused("inputs", "is empty (at least one input)");
        }
        for (i, of) in self.inputs.iter().enumerate() {
            let VoxelInput {
                input,
                from,
                latency_ms,
                extrinsic,
            } = of;
            let at = format!("inputs[{i}]");
            let refused = |key: &str, problem: String| refused(format!("{at}.{key}"), problem);
            if input.is_empty() {
                return refused("input", "is empty (the id of an input)".to_owned());
            }
            if self.inputs[..i].iter().any(|earlier| earlier.input == *input) {
                return refused("input", format!("`{input}` is listed twice (allowed: each input once)"));
            }
            check_from(&at, from.as_ref(), None)?;
            if !(-1e12..=1e12).contains(latency_ms) {
                let problem = format!("{latency_ms} is not allowed (allowed: -1e12 to 1e12 ms)");
                return refused("latency_ms", problem);
            }
            if let Some(extrinsic) = extrinsic {
                extrinsic.validate(&at)?;
            }
        }
        Ok(())
    }
}

fn product(shape: &[usize; 3]) -> u128 {
    shape.iter().map(|&n| n as u128).product()
}
