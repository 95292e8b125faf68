//! Resample and voxelize for arrays that are in GPU memory already. A function returns after its kernels are done, so that its
//! tensors are ready in any stream.

use crate::array::Array;
use crate::batch::BatchShape;
use crate::cloud::{CloudArrays, GridParts, values_shape};
use crate::element::Element;
use crate::stream::{DeviceStream, dtype, failed, refused};
use crate::tensor::{Memory, Tensor};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use robocache::device::Dtype;
use robocache::device::gpu::DeviceBuf;
use robocache::ops::resample::ResampleConfig;
use robocache::ops::resample::gpu::{DeviceBatch, GpuResampler};
use robocache::ops::voxelize::gpu::{DeviceClouds, DeviceField, VoxelizeBatch, VoxelizeError};
use robocache::ops::voxelize::{VoxelLayout, VoxelizeConfig};
use robocache::time::is_stamp_in_range;
use std::sync::{Arc, Mutex};

/// A `VoxelizeBatch` owns the memory of its grids, and lives as long as a tensor shows one of them.
impl Memory for Mutex<VoxelizeBatch> {}

/// Resamples a batch of trajectories on the device of `stream`, and returns the values and their mask.
pub fn resample(
    stream: &DeviceStream,
    config: &ResampleConfig,
    form: &BatchShape,
    times: &Array,
    values: &Array,
    targets: &Array,
) -> PyResult<(Tensor, Tensor)> {
    let resampler = GpuResampler::new(config, &stream.gpu, None)
        .map_err(|error| PyValueError::new_err(format!("config: resample: {error}")))?;
    check_times(stream, form, times)?;
    let rows = form.rows.unwrap_or(1);
    let mut spread = stream.memory(0)?;
    let targets_ns = match form.is_shared && rows > 1 {
        false => stream.slice(targets)?,
        true => {
            let mut host = vec![0i64; targets.len()];
            stream.fetch(targets, bytemuck::cast_slice_mut(&mut host))?;
            let host = form.spread(&host);
            let bytes: &[u8] = bytemuck::cast_slice(&host);
            spread = stream.memory(bytes.len())?;
            // SAFETY: the stream is synchronized before `host` is dropped.
            unsafe { spread.upload(0, bytes) }.map_err(failed)?;
            stream.gpu.synchronize().map_err(failed)?;
            spread.slice(0, Dtype::Int64, host.len()).map_err(refused)?
        }
    };
    let (count, dim) = (rows * form.targets, form.dim.unwrap_or(1));
    let out = stream.memory(count * dim * form.dtype.size())?;
    let valid = stream.memory(count)?;
    let batch = DeviceBatch {
        rows,
        samples: form.samples,
        targets: form.targets,
        dim,
        times: stream.slice(times)?,
        values: stream.slice(values)?,
        targets_ns,
        out: out.slice(0, form.dtype, count * dim).map_err(refused)?,
        valid: valid.slice(0, Dtype::UInt8, count).map_err(refused)?,
    };
    // SAFETY: all of the memory outlives the synchronization, and the times ascend.
    let launched = unsafe { resampler.launch(&batch) };
    launched.and(stream.gpu.synchronize()).map_err(failed)?;
    drop(spread);
    let shape = |shape: Vec<usize>| shape.into_iter().map(|n| n as i64).collect();
    Ok((
        stream.tensor(out, form.dtype.into(), shape(form.values_shape()))?,
        stream.tensor(valid, Element::Bool, shape(form.valid_shape()))?,
    ))
}

/// Copies the times to the host, and checks that they ascend in each row, which the kernels rely on, and are in range.
fn check_times(stream: &DeviceStream, form: &BatchShape, times: &Array) -> PyResult<()> {
    let mut host = vec![0i64; times.len()];
    stream.fetch(times, bytemuck::cast_slice_mut(&mut host))?;
    for (row, times) in host.chunks_exact(form.samples.max(1)).enumerate() {
        if let Some(at) = times.windows(2).position(|pair| pair[0] > pair[1]) {
            let (before, came) = (times[at], times[at + 1]);
            return Err(PyValueError::new_err(format!(
                "`times_ns`: row {row}: timestamp {} is {came}, but the one before it is {before} (allowed: ascending timestamps, ties too)",
                at + 1
            )));
        }
        let mut ends = [times.first(), times.last()].into_iter().flatten();
        if let Some(time) = ends.find(|time| !is_stamp_in_range(**time)) {
            return Err(PyValueError::new_err(format!(
                "`times_ns`: row {row}: timestamp {time} ns is out of range (allowed: +-2^61)"
            )));
        }
    }
    Ok(())
}

/// Makes the voxel grid of a cloud `[N, C]` on the device of `stream`.
pub fn voxelize(stream: &DeviceStream, config: &VoxelizeConfig, cloud: &CloudArrays) -> PyResult<GridParts> {
    let array = &cloud.arrays[0];
    let (slice, dtype) = (stream.slice(array)?, dtype(array.element()));
    // The voxelizer reads clouds from a `DeviceBuf`, so the cloud is copied within the device.
    let points = stream.memory(slice.bytes())?;
    // SAFETY: the array holds its elements until the stream is synchronized.
    unsafe { points.copy_from_slice(0, slice) }.map_err(failed)?;
    let stride = cloud.fields.len() * dtype.size();
    let field = |(i, name)| DeviceField {
        name,
        dtype,
        at: i * dtype.size(),
        stride,
    };
    let fields: Vec<DeviceField<'_>> = cloud.fields.iter().map(String::as_str).enumerate().map(field).collect();
    let made = grid_of(stream, config, &points, cloud.points, &fields);
    // If making the grid failed, the copy may still be in flight.
    let done = stream.gpu.synchronize().map_err(failed);
    made.and_then(|made| done.map(|()| made))
}

fn grid_of(
    stream: &DeviceStream,
    config: &VoxelizeConfig,
    points: &DeviceBuf,
    count: usize,
    fields: &[DeviceField<'_>],
) -> PyResult<GridParts> {
    let words = |error: VoxelizeError| match error {
        VoxelizeError::Gpu(error) => failed(error),
        error => PyValueError::new_err(format!("`points`: {error}")),
    };
    let clouds = DeviceClouds::new(points, 1, count, fields)
        .map_err(|error| PyValueError::new_err(format!("`points`: {error}")))?;
    let mut batch = VoxelizeBatch::new(config, &stream.gpu, None).map_err(words)?;
    let grids = batch.run_device(&clouds).map_err(words)?;
    let (counters, saturated, unusable) = (grids.counters(0), grids.saturated(0), grids.unusable(0).to_vec());
    let rows = match config.layout {
        VoxelLayout::Coo => grids.first_row(1),
        _ => 0,
    };
    let at = |memory: &DeviceBuf| memory.pointer().raw();
    let shape = |shape: Vec<usize>| shape.into_iter().map(|n| n as i64).collect::<Vec<i64>>();
    let parts = match config.layout {
        VoxelLayout::Coo => vec![
            (at(grids.coords()), Dtype::Int32, shape(vec![rows, 3])),
            (
                at(grids.features()),
                Dtype::Float32,
                shape(vec![rows, config.channels.len()]),
            ),
        ],
        VoxelLayout::Dense => vec![(at(grids.dense()), config.dtype, shape(values_shape(config)))],
        VoxelLayout::Bits => {
            let (memory, offset) = grids.bitmap(0);
            vec![(
                memory.pointer().offset(offset).raw(),
                Dtype::UInt8,
                shape(values_shape(config)),
            )]
        }
    };
    let names = names_of_fields(config);
    let owner: Arc<dyn Memory> = Arc::new(Mutex::new(batch));
    let tensors = parts.into_iter().map(|(address, dtype, shape)| {
        // SAFETY: the batch owns the grid, and the stream that wrote it is synchronized before anybody gets the tensor.
        unsafe { stream.tensor_of(address, dtype.into(), shape, owner.clone()) }
    });
    Ok(GridParts {
        tensors: tensors.collect(),
        counters,
        saturated,
        unusable: names.into_iter().zip(unusable).collect(),
    })
}

/// Returns the fields beside x, y and z from which channels are computed, in the order of their first use.
fn names_of_fields(config: &VoxelizeConfig) -> Vec<String> {
    let mut names = Vec::new();
    for channel in &config.channels {
        let channel = channel.to_string();
        if let Some((_, field)) = channel.split_once('_')
            && !["x", "y", "z"].contains(&field)
            && names.iter().all(|name| name != field)
        {
            names.push(field.to_owned());
        }
    }
    names
}
