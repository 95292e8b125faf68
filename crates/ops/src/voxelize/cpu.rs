//! The CPU implementation, which is the specification.
//!
//! A grid is made in two passes over its clouds. The first finds the cell of each point and puts it into a bitmap; an
//! exclusive scan of that numbers the occupied cells. The second adds each point to the row of its cell.

use super::cells::CellSet;
use super::cloud::{Cloud, CloudError, Field};
use super::grid::VoxelGrid;
use super::kernels::{self, BLOCK, Block, Exceptions, INDEX_SLACK, Kept, Row};
use super::plan::{NamedField, Source};
use super::spec::{Spec, Taken};
use super::{Channel, ConfigError, VoxelCounters, VoxelLayout, VoxelizeConfig, quantum};
use robocache_stream::{Layout, Message};

/// Makes grids of clouds: [`gather`](Self::gather), then one of the `write_` methods.
///
/// Its memory grows to that of the largest grid it has made, and is used again.
pub struct CpuVoxelizer {
    pub(super) spec: Spec,
    pub(super) cells: CellSet,
    taken: Taken,
    points: Points,
    scratch: Box<Scratch>,
    pub(super) sums: Sums,
    /// For each field: the values of points that are kept which are unusable.
    unusable: Vec<u64>,
    pub(super) saturated: u64,
    counters: VoxelCounters,
    occupied: usize,
    output: Layout,
    /// How the features are made of the rows alone, where they are.
    pub(super) table_columns: Option<Vec<u8>>,
}

/// What is summed for each occupied cell, and for one more that takes the points past `max_voxels`.
pub(super) struct Sums {
    /// Those of the coordinates, and the counts.
    pub(super) rows: Vec<Row>,
    /// For each field with a mean.
    pub(super) fields: Vec<Vec<i64>>,
    /// For each extreme: a key for each cell.
    pub(super) extremes: Vec<Vec<i32>>,
    /// For each field: what its sum can't take; empty where that is nothing.
    pub(super) exceptions: Vec<Vec<Exceptions>>,
}

/// What the first pass knows of the points that are kept.
#[derive(Default)]
struct Points {
    /// The cells of those of all clouds, and their indices in their blocks. What lies behind the first [`Self::count`] is
    /// left over.
    cells: Vec<u32>,
    indices: Vec<u16>,
    count: usize,
    /// How many there are in each block of all clouds.
    blocks: Vec<u16>,
    /// The coordinates of clouds that don't lie as float32 in the frame of the grid, of which the first
    /// [`Self::converted`] count.
    xyz: [Vec<f32>; 3],
    converted: usize,
    /// For each cloud; `None`: it was refused.
    clouds: Vec<Option<CloudPoints>>,
}

/// The points of a cloud.
struct CloudPoints {
    /// Where those that are kept begin, in [`Points::cells`] and by blocks in [`Points::blocks`].
    first: usize,
    first_block: usize,
    /// Where its coordinates begin in [`Points::xyz`]; `None`: they are taken where they lie.
    xyz: Option<usize>,
}

/// A block of points.
struct Scratch {
    raw: [[f32; BLOCK]; 3],
    slots: [u32; BLOCK],
    of_field: FieldBlock,
}

/// The values of a field of a block of points.
struct FieldBlock {
    /// For the extremes; NaN where a value is unusable.
    values: [f32; BLOCK],
    /// For the mean; 0 where a value is unusable.
    exact: [f64; BLOCK],
    /// As much of the value as the sum takes.
    fixed: [i64; BLOCK],
}

impl CpuVoxelizer {
    /// A voxelizer for a configuration, which it checks.
    ///
    /// # Errors
    /// As [`VoxelizeConfig::validate`].
    pub fn new(config: &VoxelizeConfig) -> Result<Self, ConfigError> {
        let spec = Spec::new(config)?;
        let fields = spec.plan.fields.len();
        Ok(Self {
            cells: CellSet::new(spec.grid.cells()),
            taken: Taken::default(),
            points: Points::default(),
            scratch: Box::new(Scratch::new()),
            sums: Sums {
                rows: Vec::new(),
                fields: vec![Vec::new(); fields],
                extremes: vec![Vec::new(); spec.plan.extremes.len()],
                exceptions: vec![Vec::new(); fields],
            },
            unusable: vec![0; fields],
            saturated: 0,
            counters: VoxelCounters::default(),
            occupied: 0,
            output: spec.output(config.dtype),
            table_columns: spec.plan.table(),
            spec,
        })
    }

    /// The grid.
    pub fn grid(&self) -> &VoxelGrid {
        &self.spec.grid
    }

    /// The channels, in the order of the output.
    pub fn channels(&self) -> &[Channel] {
        &self.spec.channels
    }

    /// Whether a cloud can be part of a grid: it has the fields that the channels are computed from.
    ///
    /// # Errors
    /// As [`gather`](Self::gather) hands out.
    pub fn check(&self, cloud: &Cloud<'_>) -> Result<(), CloudError> {
        self.spec.check(cloud)
    }

    /// Makes a grid of messages, each with the input it came by, and says what became of their points. The order of the
    /// messages and of their points is of no consequence.
    ///
    /// A message that is no cloud, lacks a field that a channel is computed from, has it in a type that doesn't go with
    /// that of the clouds before, or would make the points more than 2^22, is handed to `refused`; the grid is made of
    /// the others.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn gather<'a>(
        &mut self,
        messages: impl IntoIterator<Item = (usize, &'a Message)> + Clone,
        mut refused: impl FnMut(usize, CloudError),
    ) -> VoxelCounters {
        self.begin();
        for (input, message) in messages.clone() {
            let cloud = Cloud::from_message(message);
            let cloud = cloud.and_then(|cloud| self.taken.take(&self.spec, &cloud).map(|()| cloud));
            let indexed = match cloud {
                Ok(cloud) => Some(self.index(input, &cloud)),
                Err(error) => {
                    refused(input, error);
                    None
                }
            };
            self.points.clouds.push(indexed);
        }
        self.number();
        if self.spec.needs_points() {
            self.begin_sums();
            for (i, (_, message)) in messages.into_iter().enumerate() {
                if let Ok(cloud) = Cloud::from_message(message) {
                    self.add(i, &cloud);
                }
            }
            self.end_sums();
        }
        self.counters
    }

    fn begin(&mut self) {
        self.cells.clear();
        self.points.count = 0;
        self.points.converted = 0;
        self.points.blocks.clear();
        self.points.clouds.clear();
        self.taken.clear(&self.spec.plan);
        self.unusable.fill(0);
        self.counters = VoxelCounters::default();
    }

    /// The first pass: the cells of the points.
    fn index(&mut self, input: usize, cloud: &Cloud<'_>) -> CloudPoints {
        let points = &mut self.points;
        let transform = self.spec.transforms[input].as_ref();
        let needs_points = self.spec.needs_points();
        let keeps_xyz = needs_points && self.spec.plan.axes.contains(&true);
        let as_they_lie = transform.is_none().then(|| as_they_lie(cloud)).flatten();
        let begin = points.converted;
        let (first, first_block) = (points.count, points.blocks.len());
        grow(&mut points.cells, first + cloud.len() + INDEX_SLACK);
        grow(&mut points.indices, first + cloud.len() + INDEX_SLACK);
        if as_they_lie.is_none() {
            let converted = if keeps_xyz { cloud.len() } else { BLOCK };
            points.xyz.iter_mut().for_each(|axis| grow(axis, begin + converted));
            points.converted += if keeps_xyz { cloud.len() } else { 0 };
        }
        let mut kept_in_all = 0;
        for from in (0..cloud.len()).step_by(BLOCK) {
            let n = BLOCK.min(cloud.len() - from);
            let xyz = match as_they_lie {
                Some(xyz) => xyz.map(|axis| &axis[from..from + n]),
                None => {
                    let at = begin + if keeps_xyz { from } else { 0 };
                    let mut converted = points.xyz.each_mut().map(|axis| &mut axis[at..at + n]);
                    match transform {
                        None => {
                            for (field, out) in cloud.xyz().iter().zip(&mut converted) {
                                field.to_f32(from, out);
                            }
                        }
                        Some(transform) => {
                            let [x, y, z] = cloud.xyz();
                            let [raw_x, raw_y, raw_z] = &mut self.scratch.raw;
                            let raw = [
                                coordinates(x, from, &mut raw_x[..n]),
                                coordinates(y, from, &mut raw_y[..n]),
                                coordinates(z, from, &mut raw_z[..n]),
                            ];
                            kernels::transform(transform, raw, converted.each_mut().map(|axis| &mut **axis));
                        }
                    }
                    converted.map(|axis| &*axis)
                }
            };
            let kept = Kept {
                cells: &mut points.cells[points.count..],
                indices: &mut points.indices[points.count..],
            };
            let indexed = self.cells.insert(&self.spec.grid, xyz, kept);
            kept_in_all += indexed.kept;
            if needs_points {
                points.count += indexed.kept;
                points.blocks.push(indexed.kept as u16);
            }
            self.counters.dropped_nonfinite += n as u64 - u64::from(indexed.finite);
            self.counters.dropped_outside += u64::from(indexed.finite) - indexed.kept as u64;
        }
        self.counters.points_in += cloud.len() as u64;
        self.counters.points_kept += kept_in_all as u64;
        CloudPoints {
            first,
            first_block,
            xyz: as_they_lie.is_none().then_some(begin),
        }
    }

    /// Numbers the occupied cells.
    fn number(&mut self) {
        let occupied = match self.spec.layout == VoxelLayout::Bits && !self.spec.needs_points() {
            true => self.cells.count(),
            false => self.cells.number(self.counters.points_kept as usize),
        };
        self.occupied = occupied.min(self.spec.max_voxels);
        if self.spec.layout == VoxelLayout::Coo {
            self.output.rows = self.occupied;
        }
    }

    fn begin_sums(&mut self) {
        let (plan, sums) = (&self.spec.plan, &mut self.sums);
        let slots = self.occupied + 1;
        if plan.counts {
            // Here and not where they are read, so that they are in the cache when points are added to them.
            sums.rows.clear();
            sums.rows.resize(slots, Row::default());
        }
        for (field, sums) in plan.fields.iter().zip(&mut sums.fields) {
            sums.clear();
            sums.resize(if field.mean { slots } else { 0 }, 0);
        }
        for (extreme, keys) in plan.extremes.iter().zip(&mut sums.extremes) {
            keys.clear();
            keys.resize(slots, if extreme.greatest { i32::MIN } else { i32::MAX });
        }
        sums.exceptions.iter_mut().for_each(Vec::clear);
    }

    /// The second pass: adds the points of the `i`-th cloud that are kept to their cells.
    fn add(&mut self, i: usize, cloud: &Cloud<'_>) {
        let (plan, sums, points) = (&self.spec.plan, &mut self.sums, &self.points);
        let Some(of_cloud) = &points.clouds[i] else { return };
        let xyz = match of_cloud.xyz {
            Some(begin) => points.xyz.each_ref().map(|axis| axis.get(begin..begin + cloud.len())),
            None => cloud.xyz().each_ref().map(|axis| axis.as_f32(0)),
        };
        let scales = [0, 1, 2].map(|axis| quantum::power_of_two(self.spec.bits(Source::Axis(axis), &self.taken)));
        let limit = self.occupied as u32;
        let mut first = of_cloud.first;
        for (i, from) in (0..cloud.len()).step_by(BLOCK).enumerate() {
            let n = BLOCK.min(cloud.len() - from);
            let kept = first..first + usize::from(points.blocks[of_cloud.first_block + i]);
            first = kept.end;
            let Scratch { slots, of_field, .. } = &mut *self.scratch;
            let slots = &mut slots[..kept.len()];
            let over = self.cells.find(&points.cells[kept.clone()], limit, slots) as u64;
            self.counters.dropped_overflow += over;
            self.counters.points_kept -= over;
            let block = Block {
                indices: &points.indices[kept],
                slots,
            };
            // They are there where a channel needs them.
            let xyz = xyz.map(|axis| axis.map_or(&[][..], |axis| &axis[from..from + n]));
            if plan.axis_sums() > 0 {
                kernels::add_points(&mut sums.rows, block, xyz, scales);
            } else if plan.counts {
                kernels::add_ones(&mut sums.rows, block);
            }
            for (extreme, keys) in plan.extremes.iter().zip(&mut sums.extremes) {
                if let Source::Axis(axis) = extreme.source {
                    kernels::add_extreme(keys, block, xyz[axis], extreme.greatest);
                }
            }
            for (i, field) in plan.fields.iter().enumerate() {
                // It was there when the cloud was taken.
                let Ok(values) = cloud.field(&field.name) else { continue };
                let scale = quantum::power_of_two(quantum::bits(self.taken.is_wide(i)));
                of_field.read(field, &values, from, n);
                if of_field.has_odd(field, scale, n) {
                    let exceptions = &mut sums.exceptions[i];
                    exceptions.resize(self.occupied + 1, Exceptions::default());
                    of_field.set_aside(field, scale, block, exceptions);
                }
                if field.mean {
                    kernels::fix(&of_field.exact[..n], scale, &mut of_field.fixed);
                    kernels::add_fixed(&mut sums.fields[i], block, &of_field.fixed);
                }
                for (extreme, keys) in plan.extremes.iter().zip(&mut sums.extremes) {
                    if extreme.source == Source::Field(i) {
                        kernels::add_extreme(keys, block, &of_field.values[..n], extreme.greatest);
                    }
                }
            }
        }
    }

    fn end_sums(&mut self) {
        let sums = &mut self.sums;
        // The last one is of the points past max_voxels.
        for (unusable, exceptions) in self.unusable.iter_mut().zip(&mut sums.exceptions) {
            exceptions.truncate(self.occupied);
            *unusable = exceptions.iter().map(|of_cell| of_cell.unusable as u64).sum();
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

    /// The form and size of the output of the grid that was gathered last.
    pub fn layout(&self) -> &Layout {
        &self.output
    }

    /// What an integer that was summed of a source is worth.
    pub(super) fn unit(&self, source: Source) -> f64 {
        quantum::power_of_two(-self.spec.bits(source, &self.taken))
    }
}

/// Makes a buffer that long at least.
fn grow<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
}

/// The coordinates of a cloud, if all are contiguous float32.
fn as_they_lie<'a>(cloud: &Cloud<'a>) -> Option<[&'a [f32]; 3]> {
    let [x, y, z] = cloud.xyz();
    Some([x.as_f32(0)?, y.as_f32(0)?, z.as_f32(0)?])
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

impl FieldBlock {
    /// Reads `n` values of a field from point `from` on.
    fn read(&mut self, plan: &NamedField, values: &Field<'_>, from: usize, n: usize) {
        if plan.extreme {
            values.to_f32(from, &mut self.values[..n]);
        }
        if plan.mean {
            values.to_f64(from, &mut self.exact[..n]);
        }
    }

    /// Whether there is a value that the sum can't take or the extremes must not see.
    fn has_odd(&self, plan: &NamedField, scale: f64, n: usize) -> bool {
        match plan.mean {
            true => kernels::any_beyond(&self.exact[..n], quantum::SMALL / scale),
            false => kernels::any_nonfinite(&self.values[..n]),
        }
    }

    /// Takes out what the sum can't take or the extremes must not see, and notes it for the cells of the points.
    #[cold]
    fn set_aside(&mut self, plan: &NamedField, scale: f64, block: Block<'_>, exceptions: &mut [Exceptions]) {
        for (i, slot) in block.points() {
            let scaled = self.exact[i] * scale;
            let (is_whole, is_usable) = match plan.mean {
                true => (scaled.abs() <= quantum::SMALL, scaled.abs() <= quantum::LARGE),
                false => (self.values[i].is_finite(), self.values[i].is_finite()),
            };
            if is_whole {
                continue;
            }
            let of_cell = &mut exceptions[slot];
            if is_usable {
                let (high, low) = quantum::split(kernels::round_large(scaled));
                of_cell.high += high;
                self.exact[i] = low as f64 / scale;
            } else {
                of_cell.unusable += 1;
                (self.values[i], self.exact[i]) = (f32::NAN, 0.0);
            }
        }
    }
}

impl Scratch {
    fn new() -> Self {
        Self {
            raw: [[0.0; BLOCK]; 3],
            slots: [0; BLOCK],
            of_field: FieldBlock {
                values: [0.0; BLOCK],
                exact: [0.0; BLOCK],
                fixed: [0; BLOCK],
            },
        }
    }
}
