//! Checked configuration of voxel grids, which the CPU and the device share, and the check of a grid's clouds. A grid
//! of accepted clouds has no sum that overflows.

use super::channel::{Output, plan};
use super::grid::VoxelGrid;
use super::plan::{Plan, Source};
use super::{Channel, ConfigError, VoxelLayout, VoxelizeConfig, quantum};
use robocache_device::Dtype;
use robocache_geometry::RigidTransform;
use robocache_stream::{Cells, ColumnLayout, FieldType, Layout, PointCloud, PointCloudError};

/// Greatest number of points of a grid, so that no sum can overflow.
pub(super) const MAX_POINTS: usize = 1 << 22;

/// A cloud that can't be part of a grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// A message that is not a cloud, or lacks a field that a channel is computed from.
    #[error(transparent)]
    Cloud(#[from] PointCloudError),
    /// A field has another type than in an earlier cloud of the same grid, and the two types are summed
    /// with different scales.
    #[error(
        "field `{name}` is {dtype} here, but an earlier cloud of the grid has it as {}: \
         for mean_{name}, either all inputs must have it as a 32- or 64-bit integer, or none of them",
        if *wide { "a float or an 8- or 16-bit integer" } else { "a 32- or 64-bit integer" }
    )]
    Types {
        /// Name of the field.
        name: String,
        /// Type of the field in this cloud.
        dtype: Dtype,
        /// True if the type is a 32- or 64-bit integer.
        wide: bool,
    },
    /// The cloud would bring the grid above 2^22 points.
    #[error("{points} points in one grid are too many (allowed: 2^22; thin the clouds, or take fewer `inputs`)")]
    TooMany {
        /// Number of points that the grid would have with this cloud.
        points: usize,
    },
}

/// Checked configuration of voxel grids, and values that are derived from it.
pub(super) struct Spec {
    pub(super) grid: VoxelGrid,
    pub(super) plan: Plan,
    /// Formula of each channel, in the order of `channels`.
    pub(super) outputs: Vec<Output>,
    pub(super) layout: VoxelLayout,
    pub(super) channels: Vec<Channel>,
    /// Extrinsic of each input, from the sensor's frame to the grid's; `None` if the clouds are in the grid's frame.
    pub(super) transforms: Vec<Option<RigidTransform<f32>>>,
    pub(super) max_voxels: usize,
    coordinate_bits: [i32; 3],
}

impl Spec {
    pub(super) fn new(config: &VoxelizeConfig) -> Result<Self, ConfigError> {
        let grid = config.grid()?;
        let extrinsic = |input: &super::VoxelInput| Some(input.extrinsic.as_ref()?.transform().rounded());
        let (plan, outputs) = plan(&config.channels);
        Ok(Self {
            coordinate_bits: [0, 1, 2].map(|axis| grid.coordinate_bits(axis)),
            grid,
            plan,
            outputs,
            layout: config.layout,
            channels: config.channels.clone(),
            transforms: config.inputs.iter().map(extrinsic).collect(),
            max_voxels: config.max_voxels.unwrap_or(usize::MAX),
        })
    }

    /// Returns the name of each field beside x, y and z that channels need, and a description of its usable values.
    /// Fields are in the order in which the channels first name them.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.plan.fields.iter().map(|field| {
            let usable = match field.mean {
                true => "finite, with a magnitude up to 2^40, or up to 2^62 for 32- and 64-bit integers",
                false => "finite in float32",
            };
            (field.name.as_str(), usable)
        })
    }

    /// Returns the columns and the number of rows of the output. In layout `coo` the number of rows is 0 until a grid's
    /// occupied cells are counted.
    pub(super) fn output(&self, dtype: Dtype) -> Layout {
        let columns = self.channels.len();
        let column = |name: &'static str, dtype, elements| ColumnLayout {
            name: name.into(),
            dtype,
            cells: Cells::Fixed(elements),
        };
        match self.layout {
            VoxelLayout::Dense => Layout::flat(dtype, columns * self.grid.cells()),
            VoxelLayout::Bits => Layout::flat(Dtype::UInt8, self.grid.cells().div_ceil(8)),
            VoxelLayout::Coo => Layout {
                rows: 0,
                columns: vec![
                    column("coords", Dtype::Int32, 3),
                    column("features", Dtype::Float32, columns),
                ],
            },
        }
    }

    /// True if the cell of each point is needed again after the occupied cells are ranked: for sums, extremes or
    /// `max_voxels`.
    pub(super) fn needs_points(&self) -> bool {
        self.plan.counts || !self.plan.extremes.is_empty() || self.max_voxels != usize::MAX
    }

    /// Checks that a cloud can be added to an empty grid.
    pub(super) fn check(&self, cloud: &PointCloud<'_>) -> Result<(), CloudError> {
        for field in &self.plan.fields {
            cloud.field_type(&field.name)?;
        }
        match cloud.len() {
            0..=MAX_POINTS => Ok(()),
            points => Err(CloudError::TooMany { points }),
        }
    }

    /// Returns the exponent s with which a coordinate or field is summed: as the integers nearest to `value * 2^s`.
    pub(super) fn bits(&self, source: Source, clouds: &GridClouds) -> i32 {
        match source {
            Source::Axis(axis) => self.coordinate_bits[axis],
            Source::Field(field) => quantum::bits(clouds.is_wide(field)),
        }
    }
}

/// Number of points of the grid that is being computed, and, for each field, whether its type is a 32-
/// or 64-bit integer.
#[derive(Default)]
pub(super) struct GridClouds {
    pub(super) points: usize,
    /// True, for each field of the plan, if its type is a 32- or 64-bit integer; `None` before the first cloud.
    wide: Vec<Option<bool>>,
}

impl GridClouds {
    /// True if the field with this index in the plan is a 32- or 64-bit integer in the grid's clouds.
    pub(super) fn is_wide(&self, field: usize) -> bool {
        self.wide[field].unwrap_or(false)
    }

    pub(super) fn clear(&mut self, plan: &Plan) {
        self.points = 0;
        self.wide.clear();
        self.wide.resize(plan.fields.len(), None);
    }

    /// Adds a cloud, if each field has the same scale of sums as in the clouds before, and if the grid does not get too
    /// many points. A refused cloud changes nothing.
    pub(super) fn add(&mut self, spec: &Spec, cloud: &PointCloud<'_>) -> Result<(), CloudError> {
        spec.check(cloud)?;
        let points = self.points + cloud.len();
        if points > MAX_POINTS {
            return Err(CloudError::TooMany { points });
        }
        for (plan, wide) in spec.plan.fields.iter().zip(&self.wide) {
            let FieldType { dtype, sent } = cloud.field_type(&plan.name)?;
            let is_wide = quantum::is_wide(sent);
            if plan.mean && wide.is_some_and(|wide| wide != is_wide) {
                return Err(CloudError::Types {
                    name: plan.name.clone(),
                    dtype,
                    wide: is_wide,
                });
            }
        }
        for (plan, wide) in spec.plan.fields.iter().zip(&mut self.wide) {
            *wide = Some(quantum::is_wide(cloud.field_type(&plan.name)?.sent));
        }
        self.points = points;
        Ok(())
    }
}
