//! The clouds that grids are made of, and the memory that grids are written to.

use crate::scene::{sweep, uniform};
use robocache::device::{Dtype, HostBuf, HostMemory};
use robocache::ops::voxelize::{CpuVoxelizer, VoxelLayout, VoxelizeConfig};
use robocache::stream::{Cells, Message};
use std::error::Error;

/// The shape of a call: clouds, beams and columns of each cloud, cells along an axis of its grid.
#[derive(Clone, Copy)]
pub struct Shape {
    pub clouds: usize,
    pub beams: usize,
    pub columns: usize,
    pub side: usize,
    /// True for points anywhere in the grid instead of sweeps of the room: hardly two are in a cell, or in nearby cells one
    /// after the other.
    pub is_uniform: bool,
}

/// Shapes of one sweep, and of the batches of the comparison with peers.
pub const SHAPES: [Shape; 7] = [
    shape(1, 128, 1024, 256),
    shape(8, 32, 128, 64),
    shape(32, 64, 256, 128),
    shape(64, 64, 1024, 256),
    shape(8, 32, 128, 64).uniform(),
    shape(32, 64, 256, 128).uniform(),
    shape(64, 64, 1024, 256).uniform(),
];
/// Number of different sweeps.
pub const SWEEPS: usize = 8;

/// Bytes of a point's x, y, z.
const POINT_BYTES: usize = 3 * 4;
/// Bytes of a voxel's x, y, z.
const COORDS_BYTES: usize = 3 * 4;
/// Bytes of a voxel's occupancy, count and three means.
const FEATURES_BYTES: usize = 5 * 4;

const EXTENT_M: f32 = 51.2;

const fn shape(clouds: usize, beams: usize, columns: usize, side: usize) -> Shape {
    Shape {
        clouds,
        beams,
        columns,
        side,
        is_uniform: false,
    }
}

impl Shape {
    const fn uniform(mut self) -> Self {
        self.is_uniform = true;
        self
    }

    /// Points of one cloud.
    pub fn points(&self) -> usize {
        self.beams * self.columns
    }

    /// Cells of one grid.
    pub fn cells(&self) -> usize {
        self.side.pow(3)
    }

    /// The name of the clouds in the rows.
    pub fn config(&self, layout: VoxelLayout) -> String {
        let side = self.side;
        let what = match self.clouds {
            1 => "room,".to_owned(),
            clouds => format!("{clouds} x"),
        };
        let points = if self.is_uniform { "uniform points" } else { "points" };
        format!(
            "{what} {} {points}, {side}x{side}x{side}, {}",
            self.points(),
            name(layout)
        )
    }

    /// The configuration of the operation: occupancy, and for sparse voxels count and mean too.
    pub fn voxelize(&self, layout: VoxelLayout) -> Result<VoxelizeConfig, serde_yaml::Error> {
        let channels = match layout {
            VoxelLayout::Coo => "occupancy, count, mean_x, mean_y, mean_z",
            _ => "occupancy",
        };
        self.voxelize_to(layout, channels)
    }

    /// The configuration of the operation with other channels.
    pub fn voxelize_to(&self, layout: VoxelLayout, channels: &str) -> Result<VoxelizeConfig, serde_yaml::Error> {
        let (corner, edge, side) = (-EXTENT_M / 2.0, EXTENT_M / self.side as f32, self.side);
        serde_yaml::from_str(&format!(
            "{{ origin_m: [{corner}, {corner}, {corner}], voxel_size_m: [{edge}, {edge}, {edge}], \
             shape: [{side}, {side}, {side}], layout: {}, channels: [{channels}], inputs: [{{ input: lidar }}] }}",
            name(layout)
        ))
    }
}

/// Bytes of inputs and outputs that a call touches, each once: all points, and the part of the output that a repeated call
/// writes. For a dense grid this part is the 32-byte sectors that the call sets, and the sectors of the last call, which it
/// clears. For bits it is the whole grid, and for sparse voxels their rows.
pub fn touched_bytes(shape: &Shape, layout: VoxelLayout, sweeps: &[Message]) -> Result<usize, Box<dyn Error>> {
    const SECTOR_BYTES: usize = 32;
    let mut voxelizer = CpuVoxelizer::new(&shape.voxelize(VoxelLayout::Bits)?)?;
    let mut bits = vec![0; shape.cells().div_ceil(8)];
    let mut out = 0;
    for (sweep, message) in sweeps.iter().enumerate() {
        let mut refused = None;
        voxelizer.gather([(0, message)], |_, error| refused = Some(error));
        refused.map_or(Ok(()), Err)?;
        let each = match layout {
            VoxelLayout::Dense => {
                voxelizer.write_bits(&mut bits);
                // 8 cells are a byte here and a sector there.
                2 * SECTOR_BYTES * bits.iter().filter(|&&byte| byte != 0).count()
            }
            VoxelLayout::Bits => bits.len(),
            VoxelLayout::Coo => voxelizer.voxels() * (COORDS_BYTES + FEATURES_BYTES),
        };
        let clouds = (0..shape.clouds).filter(|&cloud| sweep_of(0, cloud) == sweep);
        out += each * clouds.count();
    }
    Ok(shape.clouds * shape.points() * POINT_BYTES + out)
}

/// The name of a layout in a configuration.
pub fn name(layout: VoxelLayout) -> &'static str {
    match layout {
        VoxelLayout::Dense => "dense",
        VoxelLayout::Bits => "bits",
        VoxelLayout::Coo => "coo",
    }
}

/// A cloud as a tensor [points, COLUMNS].
pub fn tensor<const COLUMNS: usize>(points: &[[f32; COLUMNS]], memory: &HostMemory) -> Message {
    let mut message = Message::new(memory);
    message.rows = points.len() * COLUMNS;
    message.header.shape.set([points.len() as i64, COLUMNS as i64]);
    let column = message.add_column("", Dtype::Float32, Cells::One);
    column.data.copy_from(bytemuck::cast_slice(points.as_flattened()));
    message
}

/// The sweeps from which the clouds of a shape are taken in turn.
pub fn sweeps(shape: &Shape, memory: &HostMemory) -> Vec<Message> {
    let points = |step| {
        if shape.is_uniform {
            uniform(step, shape.points(), EXTENT_M)
        } else {
            sweep(step, shape.beams, shape.columns)
        }
    };
    (0..SWEEPS).map(|step| tensor(&points(step), memory)).collect()
}

/// Index of the sweep for cloud `cloud` of set `set`.
pub fn sweep_of(set: usize, cloud: usize) -> usize {
    (set + cloud) % SWEEPS
}

/// Columns of messages that the grids of a call are written to.
pub struct Output {
    pub dense: HostBuf,
    pub bits: HostBuf,
    coords: HostBuf,
    features: HostBuf,
    pub voxels: usize,
}

impl Output {
    /// Allocates memory for all grids of a shape in one layout.
    pub fn new(shape: &Shape, layout: VoxelLayout, memory: &HostMemory) -> Self {
        let room = |wanted, bytes| {
            let mut buffer = HostBuf::new(memory);
            buffer.resize(if layout == wanted { shape.clouds * bytes } else { 0 });
            buffer
        };
        Self {
            dense: room(VoxelLayout::Dense, shape.cells() * 4),
            bits: room(VoxelLayout::Bits, shape.cells().div_ceil(8)),
            coords: room(VoxelLayout::Coo, shape.points() * COORDS_BYTES),
            features: room(VoxelLayout::Coo, shape.points() * FEATURES_BYTES),
            voxels: 0,
        }
    }

    pub fn dense(&self) -> &[u8] {
        self.dense.bytes()
    }

    pub fn bits(&self) -> &[u8] {
        self.bits.bytes()
    }

    /// Coordinates and features of the voxels.
    pub fn coo(&self) -> (&[u8], &[u8]) {
        let coords = &self.coords.bytes()[..self.voxels * COORDS_BYTES];
        (coords, &self.features.bytes()[..self.voxels * FEATURES_BYTES])
    }

    pub fn coo_mut(&mut self) -> (&mut [i32], &mut [f32]) {
        let coords = &mut self.coords.bytes_mut()[..self.voxels * COORDS_BYTES];
        let features = &mut self.features.bytes_mut()[..self.voxels * FEATURES_BYTES];
        (bytemuck::cast_slice_mut(coords), bytemuck::cast_slice_mut(features))
    }
}
