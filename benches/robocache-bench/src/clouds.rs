//! The point clouds of the voxelize benchmarks, their configurations, and the host memory for their grids. The same shape always
//! has the same clouds.

use crate::scene::{sweep, uniform};
use robocache::device::{Dtype, HostBuf, HostMemory};
use robocache::ops::voxelize::{CpuVoxelizer, VoxelLayout, VoxelizeConfig};
use robocache::stream::{Cells, Message};
use std::error::Error;

/// Sizes of one call of voxelize: number of clouds, of beams and columns in each cloud, and of cells along each axis of a
/// grid (`side`).
#[derive(Clone, Copy)]
pub struct Shape {
    pub clouds: usize,
    pub beams: usize,
    pub columns: usize,
    pub side: usize,
    /// True for points at random places of the grid, false for lidar sweeps of a room. Random points hardly ever share a cell,
    /// and consecutive ones are in distant cells.
    pub is_uniform: bool,
}

/// Sizes at which robocache is compared with other libraries: one sweep, then batches of sweeps, then batches of random points.
pub const SHAPES: [Shape; 7] = [
    shape(1, 128, 1024, 256),
    shape(8, 32, 128, 64),
    shape(32, 64, 256, 128),
    shape(64, 64, 1024, 256),
    shape(8, 32, 128, 64).uniform(),
    shape(32, 64, 256, 128).uniform(),
    shape(64, 64, 1024, 256).uniform(),
];
/// Number of different clouds of a shape. Calls use them in turn.
pub const SWEEPS: usize = 8;

/// Size of a point's x, y, z, bytes.
const POINT_BYTES: usize = 3 * 4;
/// Size of a voxel's cell indices x, y, z in the layout `coo`, bytes.
const COORDS_BYTES: usize = 3 * 4;
/// Size of a voxel's features in the layout `coo`, bytes: occupancy, count and three means.
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

    /// Number of points in one cloud.
    pub fn points(&self) -> usize {
        self.beams * self.columns
    }

    /// Number of cells in one grid.
    pub fn cells(&self) -> usize {
        self.side.pow(3)
    }

    /// Formats the sizes of the clouds and of the grid for a line of the benchmark's output.
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

    /// Makes the configuration of `voxelize`: the channel occupancy, and for `coo` also count and means.
    pub fn voxelize(&self, layout: VoxelLayout) -> Result<VoxelizeConfig, serde_yaml::Error> {
        let channels = match layout {
            VoxelLayout::Coo => "occupancy, count, mean_x, mean_y, mean_z",
            _ => "occupancy",
        };
        self.voxelize_to(layout, channels)
    }

    /// Makes the configuration of `voxelize` with `channels`, a list of names separated by commas.
    pub fn voxelize_to(&self, layout: VoxelLayout, channels: &str) -> Result<VoxelizeConfig, serde_yaml::Error> {
        let (corner, edge, side) = (-EXTENT_M / 2.0, EXTENT_M / self.side as f32, self.side);
        serde_yaml::from_str(&format!(
            "{{ origin_m: [{corner}, {corner}, {corner}], voxel_size_m: [{edge}, {edge}, {edge}], \
             shape: [{side}, {side}, {side}], layout: {}, channels: [{channels}], inputs: [{{ input: lidar }}] }}",
            name(layout)
        ))
    }
}

/// Number of bytes that a repeated call reads or writes, each counted once: all points, and the written part of the output. In
/// a dense grid a call writes the 32-byte sectors with points, and clears the sectors of the call before. In `bits` it writes
/// the whole grid, in `coo` the rows of the occupied cells.
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
                // Eight cells are a byte of the bits and a sector of the dense grid.
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

/// Name of a layout in configurations and output rows.
pub fn name(layout: VoxelLayout) -> &'static str {
    match layout {
        VoxelLayout::Dense => "dense",
        VoxelLayout::Bits => "bits",
        VoxelLayout::Coo => "coo",
    }
}

/// Makes the message of a cloud: a tensor [points, COLUMNS] of float32.
pub fn tensor<const COLUMNS: usize>(points: &[[f32; COLUMNS]], memory: &HostMemory) -> Message {
    let mut message = Message::new(memory);
    message.rows = points.len() * COLUMNS;
    message.header.shape.set([points.len() as i64, COLUMNS as i64]);
    let column = message.add_column("", Dtype::Float32, Cells::One);
    column.data.copy_from(bytemuck::cast_slice(points.as_flattened()));
    message
}

/// Makes the [`SWEEPS`] clouds of a shape, in `memory`.
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

/// Returns the index in [`sweeps`] of cloud number `cloud` of a call that uses input set number `set`.
pub fn sweep_of(set: usize, cloud: usize) -> usize {
    (set + cloud) % SWEEPS
}

/// Host memory for the output grids of a call, in one layout. The buffers of the other layouts are empty.
pub struct Output {
    pub dense: HostBuf,
    pub bits: HostBuf,
    coords: HostBuf,
    features: HostBuf,
    pub voxels: usize,
}

impl Output {
    /// Allocates memory for all grids of a call in one layout, for as many voxels as a cloud has points.
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

    /// Coordinates and features of the first [`voxels`](Self::voxels) rows of a `coo` grid, as bytes.
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
