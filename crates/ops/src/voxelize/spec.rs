//! What both backends make of a configuration, and which clouds they take.

use super::cloud::{Cloud, CloudError};
use super::grid::VoxelGrid;
use super::plan::{Plan, Source};
use super::{Channel, ConfigError, VoxelLayout, VoxelizeConfig, quantum};
use robocache_device::Dtype;
use robocache_geometry::RigidTransform;
use robocache_stream::{Cells, ColumnLayout, Layout};

/// The most points of a grid, for which no sum can overflow.
pub(super) const MAX_POINTS: usize = 1 << 22;

/// A configuration that was checked, and what follows from it.
pub(super) struct Spec {
    pub(super) grid: VoxelGrid,
    pub(super) plan: Plan,
    pub(super) layout: VoxelLayout,
    pub(super) channels: Vec<Channel>,
    /// For each input.
    pub(super) transforms: Vec<Option<RigidTransform<f32>>>,
    pub(super) max_voxels: usize,
    coordinate_bits: [i32; 3],
}

impl Spec {
    pub(super) fn new(config: &VoxelizeConfig) -> Result<Self, ConfigError> {
        let grid = config.grid()?;
        let extrinsic = |input: &super::VoxelInput| input.extrinsic.as_ref().map(super::Extrinsic::transform);
        Ok(Self {
            coordinate_bits: [0, 1, 2].map(|axis| grid.coordinate_bits(axis)),
            grid,
            plan: Plan::new(&config.channels),
            layout: config.layout,
            channels: config.channels.clone(),
            transforms: config.inputs.iter().map(extrinsic).collect(),
            max_voxels: config.max_voxels.unwrap_or(usize::MAX),
        })
    }

    /// The fields beside x, y and z in the order in which the channels first name them, each with the values that its
    /// channels can take.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.plan.fields.iter().map(|field| {
            let usable = match field.mean {
                true => "finite, of magnitude up to 2^40, of 32- and 64-bit integers up to 2^62",
                false => "finite in float32",
            };
            (field.name.as_str(), usable)
        })
    }

    /// The form of the output; without rows where they are the occupied cells.
    pub(super) fn output(&self, dtype: Dtype) -> Layout {
        let columns = self.channels.len();
        match self.layout {
            VoxelLayout::Dense => Layout::flat(dtype, columns * self.grid.cells()),
            VoxelLayout::Bits => Layout::flat(Dtype::UInt8, self.grid.cells().div_ceil(8)),
            VoxelLayout::Coo => Layout {
                rows: 0,
                columns: vec![
                    ColumnLayout {
                        name: "coords".into(),
                        dtype: Dtype::Int32,
                        cells: Cells::Fixed(3),
                    },
                    ColumnLayout {
                        name: "features".into(),
                        dtype: Dtype::Float32,
                        cells: Cells::Fixed(columns),
                    },
                ],
            },
        }
    }

    /// Whether the cell of each point is needed again after the occupied cells are known.
    pub(super) fn needs_points(&self) -> bool {
        self.plan.counts || !self.plan.extremes.is_empty() || self.max_voxels != usize::MAX
    }

    /// Whether a cloud can be added to an empty grid.
    pub(super) fn check(&self, cloud: &impl Fields) -> Result<(), CloudError> {
        for field in &self.plan.fields {
            cloud.dtype(&field.name)?;
        }
        match cloud.points() {
            0..=MAX_POINTS => Ok(()),
            points => Err(CloudError::TooMany { points }),
        }
    }

    /// Of the sum of a source the number s of its scale 2^s.
    pub(super) fn bits(&self, source: Source, taken: &Taken) -> i32 {
        match source {
            Source::Axis(axis) => self.coordinate_bits[axis],
            Source::Field(field) => quantum::bits(taken.is_wide(field)),
        }
    }
}

/// What a backend has to know of a cloud to take it.
pub(super) trait Fields {
    fn points(&self) -> usize;
    /// The type of a field, and whether it is summed as 32- and 64-bit integers are; or why it can't be had.
    fn dtype(&self, name: &str) -> Result<(Dtype, bool), CloudError>;
}

impl Fields for Cloud<'_> {
    fn points(&self) -> usize {
        self.len()
    }

    fn dtype(&self, name: &str) -> Result<(Dtype, bool), CloudError> {
        let field = self.field(name)?;
        Ok((field.dtype(), field.is_wide()))
    }
}

/// What is known of the clouds that a grid has taken so far.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) points: usize,
    /// For each field of the plan: whether its type is a 32- or 64-bit integer, once a cloud has said so.
    wide: Vec<Option<bool>>,
}

impl Taken {
    /// Whether a field of the plan is summed as 32- and 64-bit integers are.
    pub(super) fn is_wide(&self, field: usize) -> bool {
        self.wide[field].unwrap_or(false)
    }

    pub(super) fn clear(&mut self, plan: &Plan) {
        self.points = 0;
        self.wide.clear();
        self.wide.resize(plan.fields.len(), None);
    }

    /// Takes a cloud into account, if it can be added to those before.
    pub(super) fn take(&mut self, spec: &Spec, cloud: &impl Fields) -> Result<(), CloudError> {
        spec.check(cloud)?;
        let points = self.points + cloud.points();
        if points > MAX_POINTS {
            return Err(CloudError::TooMany { points });
        }
        for (plan, wide) in spec.plan.fields.iter().zip(&self.wide) {
            let (dtype, came) = cloud.dtype(&plan.name)?;
            if plan.mean && wide.is_some_and(|wide| wide != came) {
                return Err(CloudError::Types {
                    name: plan.name.clone(),
                    dtype,
                    wide: came,
                });
            }
        }
        for (plan, wide) in spec.plan.fields.iter().zip(&mut self.wide) {
            *wide = Some(cloud.dtype(&plan.name)?.1);
        }
        self.points = points;
        Ok(())
    }
}
