//! Lidar sweeps in grids, one cloud a call and batches, on the CPU and on a device.

use crate::rows::{Rows, Scope};
use crate::scene::sweep;
use crate::timing;
use robocache::device::Dtype;
use robocache::ops::voxelize::{Cloud, VoxelLayout, VoxelizeConfig, Voxelizer};
use robocache::stream::{Cells, Message};
use std::error::Error;

/// Clouds a call, beams and columns of each, cells along an axis of its grid.
#[derive(Clone, Copy)]
pub struct Shape {
    pub clouds: usize,
    pub beams: usize,
    pub columns: usize,
    pub side: usize,
}

/// One sweep, and the batches of the comparison with others.
pub const SHAPES: [Shape; 4] = [
    shape(1, 128, 1024, 256),
    shape(8, 32, 128, 64),
    shape(32, 64, 256, 128),
    shape(64, 64, 1024, 256),
];
/// Sweeps that differ.
pub const SWEEPS: usize = 8;

const EXTENT_M: f32 = 51.2;

const fn shape(clouds: usize, beams: usize, columns: usize, side: usize) -> Shape {
    Shape {
        clouds,
        beams,
        columns,
        side,
    }
}

impl Shape {
    /// Points of one cloud.
    pub fn points(&self) -> usize {
        self.beams * self.columns
    }

    /// Cells of one grid.
    pub fn cells(&self) -> usize {
        self.side.pow(3)
    }

    /// How the rows name it.
    pub fn config(&self, layout: VoxelLayout) -> String {
        let side = self.side;
        let what = match self.clouds {
            1 => "room,".to_owned(),
            clouds => format!("{clouds} x"),
        };
        format!(
            "{what} {} points, {side}x{side}x{side}, {}",
            self.points(),
            name(layout)
        )
    }

    /// The configuration of the operation: occupancy, and for sparse voxels count and mean too.
    pub fn voxelize(&self, layout: VoxelLayout) -> Result<VoxelizeConfig, serde_yaml::Error> {
        let (corner, edge, side) = (-EXTENT_M / 2.0, EXTENT_M / self.side as f32, self.side);
        let channels = match layout {
            VoxelLayout::Coo => "occupancy, count, mean_x, mean_y, mean_z",
            _ => "occupancy",
        };
        serde_yaml::from_str(&format!(
            "{{ origin_m: [{corner}, {corner}, {corner}], voxel_size_m: [{edge}, {edge}, {edge}], \
             shape: [{side}, {side}, {side}], layout: {}, channels: [{channels}], inputs: [{{ input: lidar }}] }}",
            name(layout)
        ))
    }

    /// Bytes that must move for a call, `voxels` being those of all its clouds.
    pub fn bytes(&self, layout: VoxelLayout, voxels: usize) -> usize {
        let grids = self.clouds * self.cells();
        let out = match layout {
            VoxelLayout::Dense => grids * 4,
            VoxelLayout::Bits => grids / 8,
            VoxelLayout::Coo => voxels * (3 + 5) * 4,
        };
        self.clouds * self.points() * 12 + out
    }
}

/// The layout as a configuration has it.
pub fn name(layout: VoxelLayout) -> &'static str {
    match layout {
        VoxelLayout::Dense => "dense",
        VoxelLayout::Bits => "bits",
        VoxelLayout::Coo => "coo",
    }
}

/// A cloud as a tensor [N, 3].
pub fn tensor(points: &[[f32; 3]]) -> Message {
    let mut message = Message::default();
    message.rows = points.len() * 3;
    message.shape = vec![points.len(), 3];
    let column = message.add_column("", Dtype::Float32, Cells::One);
    column.data.copy_from(bytemuck::cast_slice(points));
    message
}

/// What a voxelizer of the CPU writes to.
struct Output {
    dense: Vec<f32>,
    bits: Vec<u8>,
    coords: Vec<i32>,
    features: Vec<f32>,
}

impl Output {
    fn new(shape: &Shape, layout: VoxelLayout) -> Self {
        let size = |wanted, size| if layout == wanted { shape.clouds * size } else { 0 };
        Self {
            dense: vec![0.0; size(VoxelLayout::Dense, shape.cells())],
            bits: vec![0; size(VoxelLayout::Bits, shape.cells().div_ceil(8))],
            coords: vec![0; size(VoxelLayout::Coo, shape.points() * 3)],
            features: vec![0.0; size(VoxelLayout::Coo, shape.points() * 5)],
        }
    }
}

/// Measures all shapes on the CPU.
pub fn cpu(rows: &mut Rows) -> Result<(), Box<dyn Error>> {
    for shape in SHAPES {
        let sweeps: Vec<Message> = (0..SWEEPS)
            .map(|step| tensor(&sweep(step, shape.beams, shape.columns)))
            .collect();
        for layout in layouts(&shape) {
            let config = shape.voxelize(layout)?;
            let mut voxelizer = Voxelizer::new(&config)?;
            let mut out = Output::new(&shape, layout);
            let mut voxels = 0;
            let mut failed = None;
            let times = timing::host(SWEEPS, |set| {
                let call = (0..shape.clouds).try_fold(0, |sum, cloud| {
                    let message = &sweeps[(set + cloud) % SWEEPS];
                    Ok(sum + one_cloud(&mut voxelizer, message, &shape, layout, cloud, &mut out)?)
                });
                match call {
                    Ok(sum) => voxels = sum,
                    Err(error) => failed = Some(error),
                }
            });
            failed.map_or(Ok(()), Err::<(), Box<dyn Error>>)?;
            let bytes = shape.bytes(layout, voxels);
            rows.add("voxelize", &shape.config(layout), "cpu", Scope::Host, times, bytes);
        }
    }
    Ok(())
}

/// What is measured of a shape: sparse voxels of the one sweep only.
pub fn layouts(shape: &Shape) -> impl Iterator<Item = VoxelLayout> + use<> {
    let sparse = shape.clouds == 1;
    [VoxelLayout::Dense, VoxelLayout::Bits, VoxelLayout::Coo]
        .into_iter()
        .filter(move |&layout| sparse || layout != VoxelLayout::Coo)
}

fn one_cloud(
    voxelizer: &mut Voxelizer,
    message: &Message,
    shape: &Shape,
    layout: VoxelLayout,
    at: usize,
    out: &mut Output,
) -> Result<usize, Box<dyn Error>> {
    let (cells, bits) = (shape.cells(), shape.cells().div_ceil(8));
    voxelizer.begin();
    voxelizer.add(0, &Cloud::from_message(message)?)?;
    voxelizer.finish();
    let voxels = voxelizer.voxels();
    match layout {
        VoxelLayout::Dense => voxelizer.write_dense(&mut out.dense[at * cells..][..cells]),
        VoxelLayout::Bits => voxelizer.write_bits(&mut out.bits[at * bits..][..bits]),
        VoxelLayout::Coo => voxelizer.write_coo(&mut out.coords[..voxels * 3], &mut out.features[..voxels * 5]),
    }
    Ok(voxels)
}
