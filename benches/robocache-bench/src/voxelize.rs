//! Measures voxel grids of lidar sweeps, of one cloud or of a batch in a call, on the CPU and on a device.

use crate::clouds::{Output, SHAPES, SWEEPS, Shape, sweep_of, sweeps, touched_bytes};
use crate::memory;
use crate::rows::{Rows, Scope};
use crate::timing;
use crate::voxelize_device;
use robocache::device::HostBuf;
use robocache::device::gpu::Gpu;
use robocache::ops::voxelize::gpu::{GpuVoxelizer, VoxelBatch, VoxelizeBatch};
use robocache::ops::voxelize::{CpuVoxelizer, VoxelLayout};
use robocache::stream::{HostCloud, Message};
use std::error::Error;

/// Layouts that are measured for a shape. Sparse voxels are measured only for a single cloud.
fn layouts(shape: &Shape) -> impl Iterator<Item = VoxelLayout> + use<> {
    let sparse = shape.clouds == 1;
    [VoxelLayout::Dense, VoxelLayout::Bits, VoxelLayout::Coo]
        .into_iter()
        .filter(move |&layout| sparse || layout != VoxelLayout::Coo)
}

/// Measures all shapes on the CPU, and on the device if there is one. If a layout fails, its rows are missing, and an error is
/// returned at the end.
pub fn measure(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let mut result = Ok(());
    let is_wanted = |shape: &Shape| timing::is_wanted(shape.clouds * shape.cells());
    for shape in SHAPES.into_iter().filter(is_wanted) {
        let sweeps = sweeps(&shape, &memory(gpu));
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
    let mut expected = Output::new(shape, layout, &memory(Some(gpu)));
    let mut voxelizer = CpuVoxelizer::new(&shape.voxelize(layout)?)?;
    on_cpu(&mut voxelizer, shape, layout, sweeps, 0, &mut expected)?;
    let bytes = touched_bytes(shape, layout, sweeps)?;
    let grids = timing::sets_for(bytes);
    for (name, times) in voxelize_device::measure(gpu, shape, layout, sweeps, &expected, grids)? {
        let config = format!("{}{name}", shape.config(layout));
        rows.add("voxelize", &config, "cuda", Scope::Device, times, bytes);
    }
    Ok(())
}

/// Measures one shape and layout, from messages to grids in host memory, on the CPU, and on the device if there is one.
pub fn hosts(
    rows: &mut Rows,
    gpu: Option<&Gpu>,
    shape: &Shape,
    layout: VoxelLayout,
    sweeps: &[Message],
) -> Result<(), Box<dyn Error>> {
    let config = shape.voxelize(layout)?;
    let mut out = Output::new(shape, layout, &memory(gpu));
    let mut voxelizer = CpuVoxelizer::new(&config)?;
    let times = host(|set| on_cpu(&mut voxelizer, shape, layout, sweeps, set, &mut out))?;
    let bytes = touched_bytes(shape, layout, sweeps)?;
    rows.add("voxelize", &shape.config(layout), "cpu", Scope::Host, times, bytes);
    let Some(gpu) = gpu else { return Ok(()) };
    let times = if shape.clouds == 1 {
        let mut voxelizer = GpuVoxelizer::new(&config, gpu, None)?;
        host(|set| on_gpu(&mut voxelizer, layout, &sweeps[set], &mut out))?
    } else {
        let mut voxelizer = VoxelizeBatch::new(&config, gpu, None)?;
        let mut out = VoxelBatch {
            cells: HostBuf::new(&memory(Some(gpu))),
            ..VoxelBatch::default()
        };
        host(|set| {
            let clouds = (0..shape.clouds).map(|cloud| HostCloud::from_message(&sweeps[sweep_of(set, cloud)]));
            Ok(voxelizer.run(&clouds.collect::<Result<Vec<_>, _>>()?, &mut out)?)
        })?
    };
    rows.add("voxelize", &shape.config(layout), "cuda", Scope::Host, times, bytes);
    Ok(())
}

/// Times calls by the CPU's clock, us. `call` gets the index of a set of inputs and outputs. If a call fails, its error is
/// returned after all calls.
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
    voxelizer: &mut CpuVoxelizer,
    shape: &Shape,
    layout: VoxelLayout,
    sweeps: &[Message],
    set: usize,
    out: &mut Output,
) -> Result<(), Box<dyn Error>> {
    let (cells, bits) = (shape.cells(), shape.cells().div_ceil(8));
    for at in 0..shape.clouds {
        let mut refused = None;
        voxelizer.gather([(0, &sweeps[sweep_of(set, at)])], |_, error| refused = Some(error));
        refused.map_or(Ok(()), Err)?;
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

/// Makes the grid of one cloud on the GPU, and copies it to `out`.
pub fn on_gpu(
    voxelizer: &mut GpuVoxelizer,
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
