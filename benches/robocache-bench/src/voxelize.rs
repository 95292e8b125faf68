//! Lidar sweeps in grids, one cloud a call and batches, on the CPU and on a device.

use crate::rows::{Rows, Scope};
use crate::scene::{sweep, uniform};
use crate::timing;
use crate::voxelize_device;
use robocache::device::cuda::Gpu;
use robocache::device::{Dtype, HostBuf};
use robocache::ops::voxelize::cuda::{CudaVoxelizer, VoxelBatch, VoxelizeBatch};
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
    /// Points anywhere in the grid instead of sweeps of the room: hardly two in a cell, or near each other in memory.
    pub is_uniform: bool,
}

/// One sweep, and the batches of the comparison with others.
pub const SHAPES: [Shape; 7] = [
    shape(1, 128, 1024, 256),
    shape(8, 32, 128, 64),
    shape(32, 64, 256, 128),
    shape(64, 64, 1024, 256),
    shape(8, 32, 128, 64).uniform(),
    shape(32, 64, 256, 128).uniform(),
    shape(64, 64, 1024, 256).uniform(),
];
/// Sweeps that differ.
pub const SWEEPS: usize = 8;

/// A voxel's x, y, z, and its occupancy, count and three means.
const COORDS_BYTES: usize = 3 * 4;
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

    /// How the rows name it.
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

    /// Bytes that must move for a call, `voxels` being those of all its clouds.
    pub fn bytes(&self, layout: VoxelLayout, voxels: usize) -> usize {
        let grids = self.clouds * self.cells();
        let out = match layout {
            VoxelLayout::Dense => grids * 4,
            VoxelLayout::Bits => grids / 8,
            VoxelLayout::Coo => voxels * (COORDS_BYTES + FEATURES_BYTES),
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

/// The sweeps that clouds of a shape are taken from, in turn.
pub fn sweeps(shape: &Shape) -> Vec<Message> {
    let points = |step| {
        if shape.is_uniform {
            uniform(step, shape.points(), EXTENT_M)
        } else {
            sweep(step, shape.beams, shape.columns)
        }
    };
    (0..SWEEPS).map(|step| tensor(&points(step))).collect()
}

/// The sweep that cloud `cloud` of set `set` is.
pub fn sweep_of(set: usize, cloud: usize) -> usize {
    (set + cloud) % SWEEPS
}

/// What the grids of a call are written to: the columns of messages.
pub struct Output {
    dense: HostBuf,
    bits: HostBuf,
    coords: HostBuf,
    features: HostBuf,
    pub voxels: usize,
}

impl Output {
    /// Room for all grids of a shape in one layout.
    pub fn new(shape: &Shape, layout: VoxelLayout) -> Self {
        let room = |wanted, bytes| {
            let mut buffer = HostBuf::default();
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

    fn coo_mut(&mut self) -> (&mut [i32], &mut [f32]) {
        let coords = &mut self.coords.bytes_mut()[..self.voxels * COORDS_BYTES];
        let features = &mut self.features.bytes_mut()[..self.voxels * FEATURES_BYTES];
        (bytemuck::cast_slice_mut(coords), bytemuck::cast_slice_mut(features))
    }
}

/// What is measured of a shape: sparse voxels of one cloud only.
fn layouts(shape: &Shape) -> impl Iterator<Item = VoxelLayout> + use<> {
    let sparse = shape.clouds == 1;
    [VoxelLayout::Dense, VoxelLayout::Bits, VoxelLayout::Coo]
        .into_iter()
        .filter(move |&layout| sparse || layout != VoxelLayout::Coo)
}

/// Measures all shapes on the CPU, and on the device if there is one. What fails costs its rows alone.
pub fn measure(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let mut result = Ok(());
    let is_wanted = |shape: &Shape| timing::is_wanted(shape.clouds * shape.cells());
    for shape in SHAPES.into_iter().filter(is_wanted) {
        let sweeps = sweeps(&shape);
        for layout in layouts(&shape) {
            if let Err(error) = one_layout(rows, gpu, &shape, layout, &sweeps) {
                eprintln!("{}: {error}", shape.config(layout));
                result = Err("not every shape could be measured".into());
            }
        }
    }
    result
}

fn one_layout(
    rows: &mut Rows,
    gpu: Option<&Gpu>,
    shape: &Shape,
    layout: VoxelLayout,
    sweeps: &[Message],
) -> Result<(), Box<dyn Error>> {
    hosts(rows, gpu, shape, layout, sweeps)?;
    let Some(gpu) = gpu else { return Ok(()) };
    let mut expected = Output::new(shape, layout);
    let mut voxelizer = Voxelizer::new(&shape.voxelize(layout)?)?;
    on_cpu(&mut voxelizer, shape, layout, sweeps, 0, &mut expected)?;
    let bytes = shape.bytes(layout, expected.voxels);
    for (name, times) in voxelize_device::measure(gpu, shape, layout, sweeps, &expected)? {
        let config = format!("{}{name}", shape.config(layout));
        rows.add("voxelize", &config, "cuda", Scope::Device, times, bytes);
    }
    Ok(())
}

/// Measures one shape, messages to host memory, on the CPU and on the device if there is one.
pub fn hosts(
    rows: &mut Rows,
    gpu: Option<&Gpu>,
    shape: &Shape,
    layout: VoxelLayout,
    sweeps: &[Message],
) -> Result<(), Box<dyn Error>> {
    let config = shape.voxelize(layout)?;
    let mut out = Output::new(shape, layout);
    let mut voxelizer = Voxelizer::new(&config)?;
    let times = host(|set| on_cpu(&mut voxelizer, shape, layout, sweeps, set, &mut out))?;
    let bytes = shape.bytes(layout, out.voxels);
    rows.add("voxelize", &shape.config(layout), "cpu", Scope::Host, times, bytes);
    let Some(gpu) = gpu else { return Ok(()) };
    let times = if shape.clouds == 1 {
        let mut voxelizer = CudaVoxelizer::new(&config, gpu, None)?;
        host(|set| on_cuda(&mut voxelizer, layout, &sweeps[set], &mut out))?
    } else {
        let mut voxelizer = VoxelizeBatch::new(&config, gpu, None)?;
        let mut out = VoxelBatch::default();
        host(|set| {
            let clouds = (0..shape.clouds).map(|cloud| Cloud::from_message(&sweeps[sweep_of(set, cloud)]));
            Ok(voxelizer.run(&clouds.collect::<Result<Vec<_>, _>>()?, &mut out)?)
        })?
    };
    rows.add("voxelize", &shape.config(layout), "cuda", Scope::Host, times, bytes);
    Ok(())
}

/// Times calls, from messages to host memory.
pub fn host(mut call: impl FnMut(usize) -> Result<(), Box<dyn Error>>) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut result = Ok(());
    let times = timing::host(SWEEPS, |set| {
        if let Err(error) = call(set) {
            result = Err(error);
        }
    });
    result.map(|()| times)
}

fn on_cpu(
    voxelizer: &mut Voxelizer,
    shape: &Shape,
    layout: VoxelLayout,
    sweeps: &[Message],
    set: usize,
    out: &mut Output,
) -> Result<(), Box<dyn Error>> {
    let (cells, bits) = (shape.cells(), shape.cells().div_ceil(8));
    for at in 0..shape.clouds {
        voxelizer.begin();
        voxelizer.add(0, &Cloud::from_message(&sweeps[sweep_of(set, at)])?)?;
        voxelizer.finish();
        out.voxels = voxelizer.voxels();
        match layout {
            VoxelLayout::Dense => voxelizer.write_dense(&mut out.dense.as_mut_slice::<f32>()[at * cells..][..cells]),
            VoxelLayout::Bits => voxelizer.write_bits(&mut out.bits.bytes_mut()[at * bits..][..bits]),
            VoxelLayout::Coo => {
                let (coords, features) = out.coo_mut();
                voxelizer.write_coo(coords, features);
            }
        }
    }
    Ok(())
}

fn on_cuda(
    voxelizer: &mut CudaVoxelizer,
    layout: VoxelLayout,
    message: &Message,
    out: &mut Output,
) -> Result<(), Box<dyn Error>> {
    let mut refused = Ok(());
    voxelizer.gather([(0, message)], |_, error| refused = Err(error))?;
    refused?;
    out.voxels = voxelizer.voxels();
    match layout {
        VoxelLayout::Dense => voxelizer.write_dense(out.dense.as_mut_slice::<f32>())?,
        VoxelLayout::Bits => voxelizer.write_bits(out.bits.bytes_mut())?,
        VoxelLayout::Coo => {
            let (coords, features) = out.coo_mut();
            voxelizer.write_coo(coords, features)?;
        }
    }
    Ok(())
}
