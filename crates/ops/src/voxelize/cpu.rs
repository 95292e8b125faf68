//! The CPU implementation of voxel grids. It is the specification: the device computes the same bits.
//!
//! A grid is computed in two passes over its clouds. The first pass finds the cell of each point and marks it in a
//! bitmap. An exclusive scan of the bitmap ranks the occupied cells. The second pass adds each point to the sums
//! of its cell.

use super::cells::CellSet;
use super::channel::table_columns;
use super::grid::VoxelGrid;
use super::kernels::{self, BLOCK, Block, INDEX_SLACK, Kept};
use super::spec::{GridClouds, Spec};
use super::sums::Sums;
use super::{Channel, CloudError, ConfigError, VoxelCounters, VoxelLayout, VoxelizeConfig};
use robocache_stream::{HostCloud, HostField, Layout, Message, PointCloudError};

/// Computes voxel grids from clouds on the CPU: [`gather`](Self::gather) computes a grid, and the `write_`
/// methods write it.
///
/// Its memory grows with the largest grid so far, and is reused.
pub struct CpuVoxelizer {
    pub(super) spec: Spec,
    pub(super) cells: CellSet,
    clouds: GridClouds,
    /// Empty list whose memory is reused for the clouds of the next grid.
    accepted: Vec<HostCloud<'static>>,
    points: Points,
    scratch: Box<Scratch>,
    pub(super) sums: Sums,
    /// Number of unusable values of each field, among the points inside the grid.
    unusable: Vec<u64>,
    pub(super) saturated: u64,
    counters: VoxelCounters,
    occupied: usize,
    output: Layout,
    /// Index of each channel in the table that `kernels::features` computes for a cell. `None` if a channel is not in
    /// the table; channels are then written one by one.
    pub(super) table_columns: Option<Vec<u8>>,
}

/// Results of the first pass over the clouds: the kept points, which are those inside the grid.
#[derive(Default)]
struct Points {
    /// Cell of each kept point of all clouds. Elements after the first [`Self::count`] are stale.
    cells: Vec<u32>,
    /// Index of each kept point in its block of [`BLOCK`] points. Elements after the first [`Self::count`] are stale.
    indices: Vec<u16>,
    count: usize,
    /// Number of kept points in each block of [`BLOCK`] points, for all clouds.
    blocks: Vec<u16>,
    /// Coordinates x, y, z in the grid's frame, float32, of the clouds that are not stored in this form. Elements after
    /// the first [`Self::converted`] are stale.
    xyz: [Vec<f32>; 3],
    converted: usize,
    /// Offsets of each cloud of the grid in the buffers of this struct.
    clouds: Vec<CloudOffsets>,
}

/// Offsets of a cloud's points in [`Points`].
struct CloudOffsets {
    /// Offset of the cloud's first kept point in [`Points::cells`].
    first: usize,
    /// Offset of the cloud's first block in [`Points::blocks`].
    first_block: usize,
    /// Offset of the cloud's coordinates in [`Points::xyz`]. `None`: the coordinates are read from the cloud itself.
    xyz: Option<usize>,
}

/// Scratch memory for a block of points.
struct Scratch {
    raw: [[f32; BLOCK]; 3],
    slots: [u32; BLOCK],
}

impl CpuVoxelizer {
    /// Checks a configuration, and creates a voxelizer for it.
    ///
    /// # Errors
    /// The errors of [`VoxelizeConfig::validate`].
    pub fn new(config: &VoxelizeConfig) -> Result<Self, ConfigError> {
        let spec = Spec::new(config)?;
        Ok(Self {
            cells: CellSet::new(spec.grid.cells()),
            clouds: GridClouds::default(),
            accepted: Vec::new(),
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

    /// The geometry of the grid: origin, cell size and shape.
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
    /// The error with which [`gather`](Self::gather) would refuse the cloud.
    pub fn check(&self, cloud: &HostCloud<'_>) -> Result<(), CloudError> {
        self.spec.check(&(*cloud).into())
    }

    /// Computes a grid from messages, each with the index of its input, and returns the counts of the grid's points.
    /// The order of the messages and of their points does not matter.
    ///
    /// Calls `refused` for a message that is not a cloud, or that lacks a field that a channel needs. Also refuses a
    /// cloud that would bring the grid above 2^22 points, or a field type that is summed with another scale than in
    /// earlier clouds. The grid is computed from the remaining messages.
    ///
    /// # Panics
    /// If an index is not the index of an input.
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

    /// Computes a grid from clouds, as [`gather`](Self::gather) does from messages.
    pub(super) fn gather_clouds<'a>(
        &mut self,
        clouds: impl Iterator<Item = (usize, Result<HostCloud<'a>, PointCloudError>)>,
        mut refused: impl FnMut(usize, CloudError),
    ) -> VoxelCounters {
        self.begin();
        let mut accepted = clear_for_reuse(std::mem::take(&mut self.accepted));
        for (input, cloud) in clouds {
            let cloud = cloud.map_err(CloudError::from).and_then(|cloud| {
                self.clouds.add(&self.spec, &cloud.into())?;
                Ok(cloud)
            });
            match cloud {
                Ok(cloud) => {
                    let indexed = self.index(input, &cloud);
                    self.points.clouds.push(indexed);
                    accepted.push(cloud);
                }
                Err(error) => refused(input, error),
            }
        }
        self.rank_cells();
        if self.spec.needs_points() {
            let (spec, of_grid) = (&self.spec, &self.clouds);
            self.sums
                .begin(&spec.plan, self.occupied, |source| spec.bits(source, of_grid));
            for (i, cloud) in accepted.iter().enumerate() {
                self.add(i, cloud);
            }
            self.sums.count_unusable(&mut self.unusable);
        }
        self.accepted = clear_for_reuse(accepted);
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

    /// Runs the first pass over a cloud: finds the cell of each point.
    fn index(&mut self, input: usize, cloud: &HostCloud<'_>) -> CloudOffsets {
        let points = &mut self.points;
        let transform = self.spec.transforms[input].as_ref();
        let needs_points = self.spec.needs_points();
        let keeps_xyz = needs_points && self.spec.plan.axes.contains(&true);
        let contiguous_xyz = transform.is_none().then(|| contiguous_xyz(cloud)).flatten();
        let begin = points.converted;
        let (first, first_block) = (points.count, points.blocks.len());
        grow(&mut points.cells, first + cloud.len() + INDEX_SLACK);
        grow(&mut points.indices, first + cloud.len() + INDEX_SLACK);
        if contiguous_xyz.is_none() {
            let converted = if keeps_xyz { cloud.len() } else { BLOCK };
            points.xyz.iter_mut().for_each(|axis| grow(axis, begin + converted));
            points.converted += if keeps_xyz { cloud.len() } else { 0 };
        }
        let mut kept_in_all = 0;
        for from in (0..cloud.len()).step_by(BLOCK) {
            let n = BLOCK.min(cloud.len() - from);
            let xyz = match contiguous_xyz {
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
        CloudOffsets {
            first,
            first_block,
            xyz: contiguous_xyz.is_none().then_some(begin),
        }
    }

    /// Ranks the occupied cells, or only counts them if the output is a bitmap that needs no ranks.
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

    /// Runs the second pass over the grid's cloud with index `i`: adds its kept points to the sums of their cells.
    fn add(&mut self, i: usize, cloud: &HostCloud<'_>) {
        let (plan, points) = (&self.spec.plan, &self.points);
        let offsets = &points.clouds[i];
        let xyz = match offsets.xyz {
            Some(begin) => points.xyz.each_ref().map(|axis| axis.get(begin..begin + cloud.len())),
            None => cloud.xyz().each_ref().map(|axis| axis.as_f32(0)),
        };
        let limit = self.occupied as u32;
        let mut first = offsets.first;
        for (i, from) in (0..cloud.len()).step_by(BLOCK).enumerate() {
            let n = BLOCK.min(cloud.len() - from);
            let kept = first..first + usize::from(points.blocks[offsets.first_block + i]);
            first = kept.end;
            let slots = &mut self.scratch.slots[..kept.len()];
            let over = self.cells.find(&points.cells[kept.clone()], limit, slots) as u64;
            self.counters.dropped_overflow += over;
            self.counters.points_kept -= over;
            let block = Block {
                indices: &points.indices[kept],
                slots,
            };
            // An axis that no channel needs may be missing.
            let xyz = xyz.map(|axis| axis.map_or(&[][..], |axis| &axis[from..from + n]));
            self.sums.add_points(plan, block, xyz);
            for (i, field) in plan.fields.iter().enumerate() {
                // The field is not missing: the cloud was checked when it was added to the grid.
                if let Ok(values) = cloud.field(&field.name) {
                    self.sums.add_field(plan, i, &values, [from, n], block);
                }
            }
        }
    }

    /// Returns the name of each field beside x, y and z that channels need, and a description of its usable values.
    /// Fields are in the order in which the channels first name them.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.spec.fields()
    }

    /// Number of unusable values of each of the [`fields`](Self::fields), which the field's channels leave out. A value
    /// of a kept point is unusable if it is not finite, or is beyond the bound in the field's description.
    pub fn unusable(&self) -> &[u64] {
        &self.unusable
    }

    /// Number of occupied cells in the output of the last computed grid; at most `max_voxels`.
    pub fn voxels(&self) -> usize {
        self.occupied
    }

    /// The columns of the output, and its number of rows for the last computed grid.
    pub fn layout(&self) -> &Layout {
        &self.output
    }
}

/// Empties a list of clouds, and returns its memory as a list of clouds with another lifetime.
fn clear_for_reuse<'b>(mut clouds: Vec<HostCloud<'_>>) -> Vec<HostCloud<'b>> {
    clouds.clear();
    // Both types have the same size, so `collect` reuses the memory in place.
    clouds.into_iter().map(|_| unreachable!("there is none")).collect()
}

/// Extends a buffer to at least `len` elements.
fn grow<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
}

/// Returns the coordinates x, y, z of a cloud as slices; `None` if one of them is not contiguous float32.
fn contiguous_xyz<'a>(cloud: &HostCloud<'a>) -> Option<[&'a [f32]; 3]> {
    let [x, y, z] = cloud.xyz();
    Some([x.as_f32(0)?, y.as_f32(0)?, z.as_f32(0)?])
}

/// Returns one block of a coordinate in float32, from point `from` on. It is a slice of the field if that is contiguous
/// float32, else `out` with the converted values.
fn coordinates<'a>(field: &HostField<'a>, from: usize, out: &'a mut [f32]) -> &'a [f32] {
    match field.as_f32(from) {
        Some(values) => &values[..out.len()],
        None => {
            field.to_f32(from, out);
            out
        }
    }
}
