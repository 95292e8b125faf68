//! The CPU implementation, which is the specification.

use super::cells::CellSet;
use super::cloud::{Cloud, CloudError, Field};
use super::grid::{Grid, Transform};
use super::kernels::{self, BLOCK};
use super::plan::{Extreme, Plan, Source};
use super::{Channel, ConfigError, Counters, VoxelLayout, VoxelizeConfig, quantum};
use crate::device::Dtype;
use crate::stream::{Cells, ColumnLayout, Layout};

/// Makes grids of clouds: [`begin`](Self::begin), [`add`](Self::add) for each cloud, [`finish`](Self::finish), then
/// one of the `write_` methods as often as wanted.
///
/// Its memory grows to that of the largest grid it has made, and is used again.
pub struct Voxelizer {
    pub(super) grid: Grid,
    pub(super) plan: Plan,
    layout: VoxelLayout,
    channels: Vec<Channel>,
    transforms: Vec<Option<Transform>>,
    max_voxels: usize,
    pub(super) coordinate_bits: [i32; 3],
    pub(super) cells: CellSet,
    points: Points,
    scratch: Box<Scratch>,
    /// The occupied cells in cell order.
    pub(super) order: Vec<u32>,
    /// For each occupied cell, and one for the points past `max_voxels`: the count and the sums.
    pub(super) sums: Vec<i64>,
    /// For each extreme: a key for each occupied cell and one more.
    pub(super) extremes: Vec<Vec<i32>>,
    counters: Counters,
    occupied: usize,
    output: Layout,
}

/// What is known of the points that are kept.
#[derive(Default)]
struct Points {
    cells: Vec<u32>,
    xyz: [Vec<f32>; 3],
    fields: Vec<FieldPoints>,
}

#[derive(Default)]
struct FieldPoints {
    /// Whether the type of the field is a 32- or 64-bit integer, once a cloud of the grid has said so.
    wide: Option<bool>,
    values: Vec<f32>,
    fixed: Vec<i64>,
}

/// A block of points.
struct Scratch {
    raw: [[f32; BLOCK]; 3],
    moved: [[f32; BLOCK]; 3],
    cells: [u32; BLOCK],
    keep: [u32; BLOCK],
    values: [f32; BLOCK],
    exact: [f64; BLOCK],
    fixed: [i64; BLOCK],
}

/// The most points of a grid, for which no sum can overflow.
pub(super) const MAX_POINTS: usize = 1 << 22;

impl Voxelizer {
    /// A voxelizer for a configuration, which it checks.
    ///
    /// # Errors
    /// As [`VoxelizeConfig::validate`].
    pub fn new(config: &VoxelizeConfig) -> Result<Self, ConfigError> {
        let grid = config.grid()?;
        let plan = Plan::new(&config.channels);
        let columns = config.channels.len();
        let output = match config.layout {
            VoxelLayout::Dense => Layout::flat(config.dtype, columns * grid.cells()),
            VoxelLayout::Bits => Layout::flat(Dtype::UInt8, grid.cells().div_ceil(8)),
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
        };
        let extrinsic = |input: &super::VoxelInput| input.extrinsic.as_ref().map(Transform::from);
        Ok(Self {
            cells: CellSet::new(grid.cells()),
            coordinate_bits: [0, 1, 2].map(|axis| grid.coordinate_bits(axis)),
            grid,
            layout: config.layout,
            channels: config.channels.clone(),
            transforms: config.inputs.iter().map(extrinsic).collect(),
            max_voxels: config.max_voxels.unwrap_or(usize::MAX),
            points: Points {
                fields: plan.fields.iter().map(|_| FieldPoints::default()).collect(),
                ..Points::default()
            },
            extremes: plan.extremes.iter().map(|_| Vec::new()).collect(),
            plan,
            scratch: Box::new(Scratch::new()),
            order: Vec::new(),
            sums: Vec::new(),
            counters: Counters::default(),
            occupied: 0,
            output,
        })
    }

    /// The grid.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The channels, in the order of the output.
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// Starts a grid without points.
    pub fn begin(&mut self) {
        self.cells.clear();
        self.points.clear();
        self.order.clear();
        self.counters = Counters::default();
        self.occupied = 0;
    }

    /// Whether a cloud can be added to an empty grid: it has the fields that the channels are computed from.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn check(&self, cloud: &Cloud<'_>) -> Result<(), CloudError> {
        for field in &self.plan.fields {
            cloud.field(&field.name)?;
        }
        match cloud.len() {
            0..=MAX_POINTS => Ok(()),
            points => Err(CloudError::TooMany { points }),
        }
    }

    /// Adds the points of a cloud of the `input`-th input. Which cloud is added first, and the order of its points,
    /// are of no consequence.
    ///
    /// # Errors
    /// A field that a channel is computed from is missing or of a type that doesn't go with that of the clouds before,
    /// or the grid would have more than 2^22 points. The grid is then as it was.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn add(&mut self, input: usize, cloud: &Cloud<'_>) -> Result<(), CloudError> {
        self.check(cloud)?;
        let points = self.counters.points_in as usize + cloud.len();
        if points > MAX_POINTS {
            return Err(CloudError::TooMany { points });
        }
        for (plan, points) in self.plan.fields.iter().zip(&self.points.fields) {
            let dtype = cloud.field(&plan.name)?.dtype();
            if plan.mean && points.wide.is_some_and(|wide| wide != quantum::is_wide(dtype)) {
                return Err(CloudError::Types {
                    name: plan.name.clone(),
                    dtype,
                    wide: quantum::is_wide(dtype),
                });
            }
        }
        for (plan, points) in self.plan.fields.iter().zip(&mut self.points.fields) {
            points.wide = Some(quantum::is_wide(cloud.field(&plan.name)?.dtype()));
        }
        for from in (0..cloud.len()).step_by(BLOCK) {
            self.add_block(input, cloud, from, BLOCK.min(cloud.len() - from))?;
        }
        self.counters.points_in += cloud.len() as u64;
        Ok(())
    }

    fn add_block(&mut self, input: usize, cloud: &Cloud<'_>, from: usize, n: usize) -> Result<(), CloudError> {
        let Scratch {
            raw,
            moved,
            cells,
            keep,
            values,
            exact,
            fixed,
        } = &mut *self.scratch;
        let [x, y, z] = raw;
        let mut xyz = [
            coordinates(&cloud.xyz()[0], from, &mut x[..n]),
            coordinates(&cloud.xyz()[1], from, &mut y[..n]),
            coordinates(&cloud.xyz()[2], from, &mut z[..n]),
        ];
        if let Some(transform) = &self.transforms[input] {
            kernels::transform(transform, xyz, moved);
            xyz = moved.each_ref().map(|axis| &axis[..n]);
        }
        let sorted = kernels::index(&self.grid, xyz, cells, keep);
        let mut nonfinite = sorted.nonfinite;

        // Whether a point is kept must be known of every field before any of them is appended.
        for plan in &self.plan.fields {
            let field = cloud.field(&plan.name)?;
            field.to_f32(from, &mut values[..n]);
            let bound = match plan.mean {
                true => {
                    field.to_f64(from, &mut exact[..n]);
                    quantum::bound(field.dtype())
                }
                false => {
                    exact[..n].fill(0.0);
                    0.0
                }
            };
            nonfinite += kernels::check(&values[..n], &exact[..n], bound, &mut keep[..n]);
        }
        let kept = n - (nonfinite + sorted.outside) as usize;
        for (plan, points) in self.plan.fields.iter().zip(&mut self.points.fields) {
            let field = cloud.field(&plan.name)?;
            if plan.extreme {
                field.to_f32(from, &mut values[..n]);
                kernels::append(&mut points.values, &values[..n], &keep[..n], kept);
            }
            if plan.mean {
                field.to_f64(from, &mut exact[..n]);
                let scale = quantum::power_of_two(quantum::field_bits(field.dtype()));
                kernels::fix(&exact[..n], scale, fixed);
                kernels::append(&mut points.fixed, &fixed[..n], &keep[..n], kept);
            }
        }
        for (axis, points) in self.points.xyz.iter_mut().enumerate() {
            if self.plan.axes[axis] {
                kernels::append(points, xyz[axis], &keep[..n], kept);
            }
        }
        let before = self.points.cells.len();
        kernels::append(&mut self.points.cells, &cells[..n], &keep[..n], kept);
        self.cells.insert(&self.points.cells[before..]);
        if !self.needs_points() {
            self.points.cells.clear();
        }
        self.counters.dropped_nonfinite += u64::from(nonfinite);
        self.counters.dropped_outside += u64::from(sorted.outside);
        self.counters.points_kept += kept as u64;
        Ok(())
    }

    /// Whether the cell of each point is needed again after the occupied cells are known.
    fn needs_points(&self) -> bool {
        self.plan.counts || !self.plan.extremes.is_empty() || self.max_voxels != usize::MAX
    }

    /// Computes the cells, and says what became of the points.
    pub fn finish(&mut self) -> Counters {
        if self.layout == VoxelLayout::Bits {
            let occupied = self.cells.used_words().map(|(_, word)| word.count_ones() as usize);
            self.occupied = occupied.sum();
            return self.counters;
        }
        let occupied = self.cells.number(self.max_voxels, &mut self.order);
        self.occupied = occupied.min(self.max_voxels);
        if self.layout == VoxelLayout::Coo {
            self.output.rows = self.occupied;
        }
        if self.needs_points() {
            let over = self.cells.find(self.occupied as u32, &mut self.points.cells) as u64;
            self.counters.dropped_overflow = over;
            self.counters.points_kept -= over;
            self.gather();
        }
        self.counters
    }

    fn gather(&mut self) {
        let Points {
            cells: slots,
            xyz,
            fields,
        } = &self.points;
        let stride = self.plan.stride();
        self.sums.clear();
        self.sums.resize((self.occupied + 1) * stride, 0);
        let scales = self.coordinate_bits.map(quantum::power_of_two);
        let all_axes = self.plan.sums_all_axes();
        if all_axes {
            kernels::add_points(&mut self.sums, stride, slots, xyz.each_ref().map(Vec::as_slice), scales);
        } else if self.plan.counts {
            kernels::add_ones(&mut self.sums, stride, slots);
        }
        for (i, source) in self.plan.sums.iter().enumerate() {
            let plane = 1 + i;
            match *source {
                Source::Axis(_) if all_axes => {}
                Source::Axis(axis) => {
                    kernels::add_axis(&mut self.sums, stride, plane, slots, &xyz[axis], scales[axis]);
                }
                Source::Field(field) => {
                    kernels::add_fixed(&mut self.sums, stride, plane, slots, &fields[field].fixed);
                }
            }
        }
        for (keys, &Extreme { source, greatest }) in self.extremes.iter_mut().zip(&self.plan.extremes) {
            keys.clear();
            keys.resize(self.occupied + 1, if greatest { i32::MIN } else { i32::MAX });
            let values = match source {
                Source::Axis(axis) => &xyz[axis],
                Source::Field(field) => &fields[field].values,
            };
            kernels::add_extreme(keys, slots, values, greatest);
        }
    }

    /// How many cells are occupied, of those that the output has.
    pub fn voxels(&self) -> usize {
        self.occupied
    }

    /// The form and size of the output of the grid that was finished last.
    pub fn layout(&self) -> &Layout {
        &self.output
    }

    /// What a sum of plane `plane` is multiplied by.
    pub(super) fn unit(&self, plane: usize) -> f64 {
        let bits = match self.plan.sums[plane - 1] {
            Source::Axis(axis) => self.coordinate_bits[axis],
            Source::Field(field) => quantum::bits(self.points.fields[field].wide.unwrap_or(false)),
        };
        quantum::power_of_two(-bits)
    }
}

/// A block of coordinates in float32: as they lie where they are contiguous float32, else converted into `out`.
fn coordinates<'a>(field: &Field<'a>, from: usize, out: &'a mut [f32]) -> &'a [f32] {
    match field.as_f32(from) {
        Some(values) => &values[..out.len()],
        None => {
            field.to_f32(from, out);
            out
        }
    }
}

impl Points {
    fn clear(&mut self) {
        self.cells.clear();
        self.xyz.iter_mut().for_each(Vec::clear);
        for field in &mut self.fields {
            field.wide = None;
            field.values.clear();
            field.fixed.clear();
        }
    }
}

impl Scratch {
    fn new() -> Self {
        Self {
            raw: [[0.0; BLOCK]; 3],
            moved: [[0.0; BLOCK]; 3],
            cells: [0; BLOCK],
            keep: [0; BLOCK],
            values: [0.0; BLOCK],
            exact: [0.0; BLOCK],
            fixed: [0; BLOCK],
        }
    }
}
