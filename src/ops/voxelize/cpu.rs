//! The CPU implementation, which is the specification.

use super::cells::CellSet;
use super::cloud::{Cloud, CloudError, Field};
use super::grid::Grid;
use super::kernels::{self, BLOCK};
use super::plan::{Extreme, Source};
use super::spec::{Spec, Taken};
use super::{Channel, ConfigError, Counters, VoxelLayout, VoxelizeConfig, quantum};
use crate::stream::Layout;

/// Makes grids of clouds: [`begin`](Self::begin), [`add`](Self::add) for each cloud, [`finish`](Self::finish), then
/// one of the `write_` methods as often as wanted.
///
/// Its memory grows to that of the largest grid it has made, and is used again.
pub struct Voxelizer {
    pub(super) spec: Spec,
    pub(super) cells: CellSet,
    taken: Taken,
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

impl Voxelizer {
    /// A voxelizer for a configuration, which it checks.
    ///
    /// # Errors
    /// As [`VoxelizeConfig::validate`].
    pub fn new(config: &VoxelizeConfig) -> Result<Self, ConfigError> {
        let spec = Spec::new(config)?;
        let mut taken = Taken::default();
        taken.clear(&spec.plan);
        Ok(Self {
            cells: CellSet::new(spec.grid.cells()),
            taken,
            points: Points {
                fields: spec.plan.fields.iter().map(|_| FieldPoints::default()).collect(),
                ..Points::default()
            },
            extremes: spec.plan.extremes.iter().map(|_| Vec::new()).collect(),
            scratch: Box::new(Scratch::new()),
            order: Vec::new(),
            sums: Vec::new(),
            counters: Counters::default(),
            occupied: 0,
            output: spec.output(config.dtype),
            spec,
        })
    }

    /// The grid.
    pub fn grid(&self) -> &Grid {
        &self.spec.grid
    }

    /// The channels, in the order of the output.
    pub fn channels(&self) -> &[Channel] {
        &self.spec.channels
    }

    /// Starts a grid without points.
    pub fn begin(&mut self) {
        self.cells.clear();
        self.points.clear();
        self.taken.clear(&self.spec.plan);
        self.order.clear();
        self.counters = Counters::default();
        self.occupied = 0;
    }

    /// Whether a cloud can be added to an empty grid: it has the fields that the channels are computed from.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn check(&self, cloud: &Cloud<'_>) -> Result<(), CloudError> {
        self.spec.check(cloud)
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
        self.taken.take(&self.spec, cloud)?;
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
        if let Some(transform) = &self.spec.transforms[input] {
            kernels::transform(transform, xyz, moved);
            xyz = moved.each_ref().map(|axis| &axis[..n]);
        }
        let sorted = kernels::index(&self.spec.grid, xyz, cells, keep);
        let mut nonfinite = sorted.nonfinite;

        // Whether a point is kept must be known of every field before any of them is appended.
        for plan in &self.spec.plan.fields {
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
        for (plan, points) in self.spec.plan.fields.iter().zip(&mut self.points.fields) {
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
            if self.spec.plan.axes[axis] {
                kernels::append(points, xyz[axis], &keep[..n], kept);
            }
        }
        let before = self.points.cells.len();
        kernels::append(&mut self.points.cells, &cells[..n], &keep[..n], kept);
        self.cells.insert(&self.points.cells[before..]);
        if !self.spec.needs_points() {
            self.points.cells.clear();
        }
        self.counters.dropped_nonfinite += u64::from(nonfinite);
        self.counters.dropped_outside += u64::from(sorted.outside);
        self.counters.points_kept += kept as u64;
        Ok(())
    }

    /// Computes the cells, and says what became of the points.
    pub fn finish(&mut self) -> Counters {
        if self.spec.layout == VoxelLayout::Bits {
            let occupied = self.cells.used_words().map(|(_, word)| word.count_ones() as usize);
            self.occupied = occupied.sum();
            return self.counters;
        }
        let occupied = self.cells.number(self.spec.max_voxels, &mut self.order);
        self.occupied = occupied.min(self.spec.max_voxels);
        if self.spec.layout == VoxelLayout::Coo {
            self.output.rows = self.occupied;
        }
        if self.spec.needs_points() {
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
        let stride = self.spec.plan.stride();
        self.sums.clear();
        self.sums.resize((self.occupied + 1) * stride, 0);
        let scales = [0, 1, 2].map(|axis| quantum::power_of_two(self.spec.bits(Source::Axis(axis), &self.taken)));
        let all_axes = self.spec.plan.sums_all_axes();
        if all_axes {
            kernels::add_points(&mut self.sums, stride, slots, xyz.each_ref().map(Vec::as_slice), scales);
        } else if self.spec.plan.counts {
            kernels::add_ones(&mut self.sums, stride, slots);
        }
        for (i, source) in self.spec.plan.sums.iter().enumerate() {
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
        for (keys, &Extreme { source, greatest }) in self.extremes.iter_mut().zip(&self.spec.plan.extremes) {
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
        let bits = self.spec.bits(self.spec.plan.sums[plane - 1], &self.taken);
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
