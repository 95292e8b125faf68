//! The CPU implementation, which is the specification.

use super::cells::CellSet;
use super::cloud::{Cloud, CloudError, Field};
use super::grid::Grid;
use super::kernels::{self, BLOCK, Exceptions};
use super::plan::{Extreme, Source};
use super::spec::{Spec, Taken};
use super::{Channel, ConfigError, Counters, VoxelLayout, VoxelizeConfig, quantum};
use crate::stream::Layout;
use std::sync::atomic::AtomicU64;

/// Makes grids of clouds: [`begin`](Self::begin), [`add`](Self::add) for each cloud, [`finish`](Self::finish), then
/// one of the `write_` methods as often as wanted.
///
/// Its memory grows to that of the largest grid it has made, and is used again.
pub struct CpuVoxelizer {
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
    /// For each field: what its sum can't take in each occupied cell; empty where that is nothing.
    pub(super) exceptions: Vec<Vec<Exceptions>>,
    /// For each field: the values of points that are kept which are unusable.
    unusable: Vec<u64>,
    /// Behind a shared reference, as the grid is when it is written.
    pub(super) saturated: AtomicU64,
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
    /// NaN where the value is unusable.
    values: Vec<f32>,
    /// As much of the value as the sum takes, 0 where it is unusable.
    fixed: Vec<i64>,
    /// The values that the sum does not take whole.
    odd: Vec<Odd>,
}

/// A value that is unusable, or too large to be summed as it is.
struct Odd {
    /// The place of its point among those that are kept.
    point: u32,
    exception: Exceptions,
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

impl CpuVoxelizer {
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
            exceptions: spec.plan.fields.iter().map(|_| Vec::new()).collect(),
            unusable: vec![0; spec.plan.fields.len()],
            saturated: AtomicU64::new(0),
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
        self.exceptions.iter_mut().for_each(Vec::clear);
        self.unusable.fill(0);
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
        let (nonfinite, outside) = (sorted.nonfinite, sorted.outside);
        let kept = n - (nonfinite + outside) as usize;
        let (keep, before) = (&keep[..n], self.points.cells.len());
        for (i, (plan, points)) in self.spec.plan.fields.iter().zip(&mut self.points.fields).enumerate() {
            let field = cloud.field(&plan.name)?;
            let scale = quantum::power_of_two(quantum::bits(self.taken.is_wide(i)));
            let (values, exact) = (&mut values[..n], &mut exact[..n]);
            if plan.extreme {
                field.to_f32(from, values);
            }
            let odd = match plan.mean {
                true => {
                    field.to_f64(from, exact);
                    kernels::count_beyond(exact, quantum::SMALL / scale, keep)
                }
                false => kernels::count_nonfinite(values, keep),
            };
            if odd > 0 {
                points.set_aside(plan.mean, values, exact, scale, keep, before);
            }
            if plan.extreme {
                kernels::append(&mut points.values, values, keep, kept);
            }
            if plan.mean {
                kernels::fix(exact, scale, fixed);
                kernels::append(&mut points.fixed, &fixed[..n], keep, kept);
            }
        }
        for (axis, points) in self.points.xyz.iter_mut().enumerate() {
            if self.spec.plan.axes[axis] {
                kernels::append(points, xyz[axis], keep, kept);
            }
        }
        kernels::append(&mut self.points.cells, &cells[..n], keep, kept);
        self.cells.insert(&self.points.cells[before..]);
        if !self.spec.needs_points() {
            self.points.cells.clear();
        }
        self.counters.dropped_nonfinite += u64::from(nonfinite);
        self.counters.dropped_outside += u64::from(outside);
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
        let per_field = self.exceptions.iter_mut().zip(&mut self.unusable).zip(fields);
        for ((exceptions, unusable), field) in per_field {
            if field.odd.is_empty() {
                continue;
            }
            exceptions.resize(self.occupied + 1, Exceptions::default());
            for odd in &field.odd {
                let of_cell = &mut exceptions[slots[odd.point as usize] as usize];
                of_cell.high += odd.exception.high;
                of_cell.unusable += odd.exception.unusable;
            }
            // The last one is of the points past max_voxels.
            let of_cells = exceptions[..self.occupied].iter();
            *unusable = of_cells.map(|of_cell| of_cell.unusable as u64).sum();
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

    /// The fields beside x, y and z that channels are computed from, in the order in which the channels first name them,
    /// each with the values that its channels can take, in words.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.spec.fields()
    }

    /// For each of the [`fields`](Self::fields): how many values of points that are kept its channels leave out, as they
    /// are not finite or beyond the bound.
    pub fn unusable(&self) -> &[u64] {
        &self.unusable
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
            field.odd.clear();
        }
    }
}

impl FieldPoints {
    /// Takes out of a block of values what the sum can't take or the extremes must not see. The points that are kept
    /// are `before` and following.
    #[cold]
    fn set_aside(
        &mut self,
        mean: bool,
        values: &mut [f32],
        exact: &mut [f64],
        scale: f64,
        keep: &[u32],
        before: usize,
    ) {
        let kept = (0..keep.len()).filter(|&i| keep[i] != 0);
        for (i, point) in kept.zip(before as u32..) {
            let scaled = exact[i] * scale;
            let (is_whole, is_usable) = match mean {
                true => (scaled.abs() <= quantum::SMALL, scaled.abs() <= quantum::LARGE),
                false => (values[i].is_finite(), values[i].is_finite()),
            };
            if is_whole {
                continue;
            }
            let mut exception = Exceptions::default();
            if is_usable {
                let (high, low) = quantum::split(kernels::round_large(scaled));
                exception.high = high;
                exact[i] = low as f64 / scale;
            } else {
                exception.unusable = 1;
                (values[i], exact[i]) = (f32::NAN, 0.0);
            }
            self.odd.push(Odd { point, exception });
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
