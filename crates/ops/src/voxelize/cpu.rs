//! The CPU implementation, which is the specification.
//!
//! A grid is made in two passes over its clouds. The first finds the cell of each point and puts it into a bitmap; an
//! exclusive scan of that numbers the occupied cells. The second adds each point to the row of its cell.

use super::cells::CellSet;
use super::channel::table_columns;
use super::grid::VoxelGrid;
use super::kernels::{self, BLOCK, Block, INDEX_SLACK, Kept};
use super::spec::{GridClouds, Spec};
use super::sums::Sums;
use super::{Channel, CloudError, ConfigError, VoxelCounters, VoxelLayout, VoxelizeConfig};
use robocache_stream::{HostCloud, HostField, Layout, Message, PointCloudError};

/// Makes grids of clouds: [`gather`](Self::gather), then one of the `write_` methods.
///
/// Its memory grows to that of the largest grid it has made, and is used again.
pub struct CpuVoxelizer {
    pub(super) spec: Spec,
    pub(super) cells: CellSet,
    clouds: GridClouds,
    /// Memory for the clouds that are taken; empty between grids.
    taken: Vec<HostCloud<'static>>,
    points: Points,
    scratch: Box<Scratch>,
    pub(super) sums: Sums,
    /// For each field: the values of points that are kept which are unusable.
    unusable: Vec<u64>,
    pub(super) saturated: u64,
    counters: VoxelCounters,
    occupied: usize,
    output: Layout,
    /// Columns of the table that the features are, if they are made of the rows alone.
    pub(super) table_columns: Option<Vec<u8>>,
}

/// Facts of the first pass about the points that are kept.
#[derive(Default)]
struct Points {
    /// The cells of those of all clouds, and their indices in their blocks. What lies behind the first [`Self::count`] is
    /// left over.
    cells: Vec<u32>,
    indices: Vec<u16>,
    count: usize,
    /// Number of points in each block of all clouds.
    blocks: Vec<u16>,
    /// The coordinates of clouds that don't lie as float32 in the frame of the grid, of which the first
    /// [`Self::converted`] count.
    xyz: [Vec<f32>; 3],
    converted: usize,
    /// For each cloud that was taken.
    clouds: Vec<CloudPoints>,
}

/// The points of a cloud.
struct CloudPoints {
    /// Offsets of the first that is kept, in [`Points::cells`] and by blocks in [`Points::blocks`].
    first: usize,
    first_block: usize,
    /// Offset of its coordinates in [`Points::xyz`]; `None`: they are taken where they lie.
    xyz: Option<usize>,
}

/// A block of points.
struct Scratch {
    raw: [[f32; BLOCK]; 3],
    slots: [u32; BLOCK],
}

impl CpuVoxelizer {
    /// A voxelizer for a configuration, which it checks.
    ///
    /// # Errors
    /// As [`VoxelizeConfig::validate`].
    pub fn new(config: &VoxelizeConfig) -> Result<Self, ConfigError> {
        let spec = Spec::new(config)?;
        Ok(Self {
            cells: CellSet::new(spec.grid.cells()),
            clouds: GridClouds::default(),
            taken: Vec::new(),
            points: Points::default(),
            scratch: Box::new(Scratch {
                raw: [[0.0; BLOCK]; 3],
                slots: [0; BLOCK],
            }),
            sums: Sums::new(&spec.plan),
            unusable: vec![0; spec.plan.fields.len()],
            saturated: 0,
            counters: VoxelCounters::default(),
            occupied: 0,
            output: spec.output(config.dtype),
            table_columns: table_columns(&spec.plan, &spec.outputs),
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

    /// Checks that a cloud has the fields that the channels are computed from.
    ///
    /// # Errors
    /// As [`gather`](Self::gather) hands out.
    pub fn check(&self, cloud: &HostCloud<'_>) -> Result<(), CloudError> {
        self.spec.check(&(*cloud).into())
    }

    /// Makes a grid of messages, each with the input it came by, and says what became of their points. The order of the
    /// messages and of their points is of no consequence.
    ///
    /// A message that is not a cloud, lacks a field that a channel is computed from, has it in a type that doesn't go with
    /// that of the clouds before, or would make the points more than 2^22, is handed to `refused`; the grid is made of
    /// the others.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn gather<'a>(
        &mut self,
        messages: impl IntoIterator<Item = (usize, &'a Message)>,
        refused: impl FnMut(usize, CloudError),
    ) -> VoxelCounters {
        let clouds = messages.into_iter();
        self.gather_clouds(
            clouds.map(|(input, message)| (input, HostCloud::from_message(message))),
            refused,
        )
    }

    /// Makes a grid of clouds as [`gather`](Self::gather) does of messages.
    pub(super) fn gather_clouds<'a>(
        &mut self,
        clouds: impl Iterator<Item = (usize, Result<HostCloud<'a>, PointCloudError>)>,
        mut refused: impl FnMut(usize, CloudError),
    ) -> VoxelCounters {
        self.begin();
        let mut taken = emptied(std::mem::take(&mut self.taken));
        for (input, cloud) in clouds {
            let cloud = cloud.map_err(CloudError::from).and_then(|cloud| {
                self.clouds.add(&self.spec, &cloud.into())?;
                Ok(cloud)
            });
            match cloud {
                Ok(cloud) => {
                    let indexed = self.index(input, &cloud);
                    self.points.clouds.push(indexed);
                    taken.push(cloud);
                }
                Err(error) => refused(input, error),
            }
        }
        self.rank_cells();
        if self.spec.needs_points() {
            let (spec, of_grid) = (&self.spec, &self.clouds);
            self.sums
                .begin(&spec.plan, self.occupied, |source| spec.bits(source, of_grid));
            for (i, cloud) in taken.iter().enumerate() {
                self.add(i, cloud);
            }
            self.sums.count_unusable(&mut self.unusable);
        }
        self.taken = emptied(taken);
        self.counters
    }

    fn begin(&mut self) {
        self.cells.clear();
        self.points.count = 0;
        self.points.converted = 0;
        self.points.blocks.clear();
        self.points.clouds.clear();
        self.clouds.clear(&self.spec.plan);
        self.unusable.fill(0);
        self.counters = VoxelCounters::default();
    }

    /// The first pass: the cells of the points.
    fn index(&mut self, input: usize, cloud: &HostCloud<'_>) -> CloudPoints {
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

    /// Ranks the occupied cells.
    fn rank_cells(&mut self) {
        let occupied = match self.spec.layout == VoxelLayout::Bits && !self.spec.needs_points() {
            true => self.cells.count(),
            false => self.cells.rank(self.counters.points_kept as usize),
        };
        self.occupied = occupied.min(self.spec.max_voxels);
        if self.spec.layout == VoxelLayout::Coo {
            self.output.rows = self.occupied;
        }
    }

    /// The second pass: adds the points of the `i`-th cloud that are kept to their cells.
    fn add(&mut self, i: usize, cloud: &HostCloud<'_>) {
        let (plan, points) = (&self.spec.plan, &self.points);
        let of_cloud = &points.clouds[i];
        let xyz = match of_cloud.xyz {
            Some(begin) => points.xyz.each_ref().map(|axis| axis.get(begin..begin + cloud.len())),
            None => cloud.xyz().each_ref().map(|axis| axis.as_f32(0)),
        };
        let limit = self.occupied as u32;
        let mut first = of_cloud.first;
        for (i, from) in (0..cloud.len()).step_by(BLOCK).enumerate() {
            let n = BLOCK.min(cloud.len() - from);
            let kept = first..first + usize::from(points.blocks[of_cloud.first_block + i]);
            first = kept.end;
            let slots = &mut self.scratch.slots[..kept.len()];
            let over = self.cells.find(&points.cells[kept.clone()], limit, slots) as u64;
            self.counters.dropped_overflow += over;
            self.counters.points_kept -= over;
            let block = Block {
                indices: &points.indices[kept],
                slots,
            };
            // They are there if a channel needs them.
            let xyz = xyz.map(|axis| axis.map_or(&[][..], |axis| &axis[from..from + n]));
            self.sums.add_points(plan, block, xyz);
            for (i, field) in plan.fields.iter().enumerate() {
                // It was there when the cloud was taken.
                if let Ok(values) = cloud.field(&field.name) {
                    self.sums.add_field(plan, i, &values, [from, n], block);
                }
            }
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

    /// Number of occupied cells of those that the output has.
    pub fn voxels(&self) -> usize {
        self.occupied
    }

    /// The form and size of the output of the grid that was gathered last.
    pub fn layout(&self) -> &Layout {
        &self.output
    }
}

/// The memory of a list, without its clouds, for others: they may be borrowed for another time.
fn emptied<'b>(mut clouds: Vec<HostCloud<'_>>) -> Vec<HostCloud<'b>> {
    clouds.clear();
    // Of as many bytes each, they are collected in place.
    clouds.into_iter().map(|_| unreachable!("there is none")).collect()
}

/// Makes a buffer that long at least.
fn grow<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
}

/// The coordinates of a cloud, if all are contiguous float32.
fn as_they_lie<'a>(cloud: &HostCloud<'a>) -> Option<[&'a [f32]; 3]> {
    let [x, y, z] = cloud.xyz();
    Some([x.as_f32(0)?, y.as_f32(0)?, z.as_f32(0)?])
}

/// A block of coordinates in float32: as they lie if they are contiguous float32, else converted into `out`.
fn coordinates<'a>(field: &HostField<'a>, from: usize, out: &'a mut [f32]) -> &'a [f32] {
    match field.as_f32(from) {
        Some(values) => &values[..out.len()],
        None => {
            field.to_f32(from, out);
            out
        }
    }
}
