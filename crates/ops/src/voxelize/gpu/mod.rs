//! The CUDA implementation, with the same bits as the CPU's. See the [parent module](super) for the arithmetic, and
//! `kernels/voxelize.cu` for the kernels.
//!
//! [`GpuVoxelizer`] works like [`CpuVoxelizer`](super::CpuVoxelizer): it makes one grid at a time, of clouds of messages,
//! in the caller's memory. [`VoxelizeBatch`] makes many grids at once, of messages or of points on the device, and can
//! leave the grids on the device.

mod batch;
mod builder;
mod dense;
mod live;
mod memory;
mod params;
mod points;
mod readback;
mod rows;
mod sizes;
mod source;

pub use batch::{DeviceGrids, VoxelBatch, VoxelizeBatch};
pub use live::GpuVoxelizer;
pub use robocache_stream::DeviceField;
pub use source::{DeviceClouds, DeviceInputError};

use super::spec::Spec;
use super::{CloudError, ConfigError, VoxelizeConfig};
use robocache_device::Element;
use robocache_device::gpu::DeviceFault;
use robocache_stream::PointCloudError;

/// The reason why a grid could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VoxelizeError {
    /// The configuration is not allowed, or asks for more than the kernels take.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The cloud can't be part of the grid. The grid is unchanged.
    #[error(transparent)]
    Cloud(#[from] CloudError),
    /// The device failed. The grid is lost.
    #[error(transparent)]
    Gpu(#[from] DeviceFault),
}

impl From<PointCloudError> for VoxelizeError {
    fn from(error: PointCloudError) -> Self {
        Self::Cloud(error.into())
    }
}

impl VoxelizeError {
    /// True if the device had too little memory, but can go on.
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Gpu(error) if error.is_memory())
    }
}

/// Checks a configuration, and that the kernels have room for its channels.
fn spec_for_device(config: &VoxelizeConfig) -> Result<Spec, ConfigError> {
    let spec = Spec::new(config)?;
    let refused = |problem| Err(ConfigError::new("channels", problem));
    match (spec.plan.fields.len(), spec.outputs.len()) {
        (0..=params::MAX_FIELDS, 0..=params::MAX_CHANNELS) => Ok(spec),
        (0..=params::MAX_FIELDS, channels) => refused(format!(
            "{channels} channels are too many (allowed on a GPU: at most {})",
            params::MAX_CHANNELS
        )),
        (fields, _) => refused(format!(
            "they are computed from {fields} fields beside x, y and z (allowed on a GPU: at most {})",
            params::MAX_FIELDS
        )),
    }
}

/// Writes every element of a dense tensor of `columns` channels: the features of the occupied cells, and 0 in empty
/// cells. Returns the number of features that the type can't hold.
fn scatter<E: Element>(order: &[u8], features: &[u8], columns: usize, out: &mut [E]) -> u64 {
    super::write::clear(out);
    // An empty slice may not be aligned for the casts.
    if order.is_empty() {
        return 0;
    }
    let (order, features): (&[u32], &[f32]) = (bytemuck::cast_slice(order), bytemuck::cast_slice(features));
    let cells = out.len() / columns;
    let mut saturated = 0;
    for (channel, out) in out.chunks_exact_mut(cells).enumerate() {
        for (&cell, row) in order.iter().zip(features.chunks_exact(columns)) {
            let (value, is_saturated) = super::write::saturate::<E>(row[channel]);
            saturated += u64::from(is_saturated);
            out[cell as usize] = E::from_f32(value);
        }
    }
    saturated
}
