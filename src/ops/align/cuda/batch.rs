//! Windows of many recordings at once, of samples that are on the device.

use super::params::{BLOCK, FuseParams, GroupParams, ModalityParams, RUN, kernel};
use crate::device::Dtype;
use crate::device::cuda::staging::{Staging, room};
use crate::device::cuda::{Budget, CudaError, Gpu};
use crate::time::{Interpolation, Limits};
use bytemuck::Zeroable;
use std::ops::Range;

/// Channels of a [`BatchModality`] that share their rules.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchGroup {
    /// The channels.
    pub channels: Range<usize>,
    /// How values between samples are found.
    pub interpolation: Interpolation,
    /// How far from a target its samples may be.
    pub limits: Limits,
}

/// One stream of a batch, with addresses of the device. The samples of each entry are finite and in ascending time, no
/// two at the same, as an [`Timeline`](super::Timeline) keeps them.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchModality {
    /// int64 `[B, S]`, ns.
    pub times: u64,
    /// `[B, S, dim]` of `dtype`.
    pub values: u64,
    /// S.
    pub samples: usize,
    /// Values a sample.
    pub dim: usize,
    /// float32, float16 or bfloat16.
    pub dtype: Dtype,
    /// The groups; together they are all channels, each once.
    pub groups: Vec<BatchGroup>,
}

/// The targets of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchShape {
    /// B, at most 65535.
    pub entries: usize,
    /// T.
    pub rows: usize,
    /// The address of the targets, int64 `[B, T]`, in any order, ns.
    pub targets: u64,
    /// Whether every entry has the same targets, `[T]`.
    pub shared_targets: bool,
}

/// Where the results of a batch go: addresses of the device.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchOutput {
    /// `[B, T, D]` of `dtype`.
    pub values: u64,
    /// uint8 `[B, T, M]`: 1 where every group of the modality has a valid value that the type can hold, else 0.
    pub valid: u64,
    /// int64 `[B, T, M]`: target minus the newest sample at or before it, -1 where there is none, ns.
    pub age_ns: u64,
    /// float32, float16 or bfloat16.
    pub dtype: Dtype,
    /// What stands where there is no valid value.
    pub fill_value: f32,
}

/// A launch that writes the windows of a batch. It can be repeated, and recorded in a [graph](Gpu::capture).
pub struct FuseBatch {
    gpu: Gpu,
    params: FuseParams,
    columns: usize,
    dtype: Dtype,
    grid: [u32; 3],
    /// What does not travel with the launch.
    _tables: Staging,
}

impl FuseBatch {
    /// Prepares the launch.
    ///
    /// # Errors
    /// [`CudaError`].
    ///
    /// # Panics
    /// If there are more than 65535 entries or modalities, a type is none of the three, or the groups of a modality are
    /// not its channels one after the other.
    pub fn new(
        gpu: &Gpu,
        budget: &Budget,
        modalities: &[BatchModality],
        shape: &BatchShape,
        output: &BatchOutput,
    ) -> Result<Self, CudaError> {
        assert!(
            shape.entries <= 0xffff && modalities.len() <= 0xffff,
            "{} entries of {} modalities",
            shape.entries,
            modalities.len()
        );
        assert!(output.dtype.is_output(), "{} can't be written", output.dtype);
        let group_count: usize = modalities.iter().map(|modality| modality.groups.len()).sum();
        let widest = modalities.iter().map(|modality| modality.dim).max().unwrap_or(0);
        let bytes = room::<ModalityParams>(modalities.len()) + room::<GroupParams>(group_count) + room::<f32>(widest);
        let mut tables = Staging::new(gpu, budget);
        tables.begin_copied(bytes)?;
        // What is read, but not used, of a modality without samples.
        let no_sample = tables.put_each(widest, std::iter::repeat_n(0f32, widest));

        let mut groups = Vec::with_capacity(group_count);
        let columns: usize = modalities.iter().map(|modality| modality.dim).sum();
        let mut out = output.values;
        let mut describe = |modality: &BatchModality| {
            let first_group = groups.len();
            let mut next = 0;
            for group in &modality.groups {
                assert_eq!(group.channels.start, next, "a channel is in one group");
                next = group.channels.end;
                groups.push(GroupParams::new(
                    group.channels.clone(),
                    group.interpolation,
                    &group.limits,
                ));
            }
            assert_eq!(next, modality.dim, "a channel is in one group");
            assert!(modality.dtype.is_output(), "{} can't be read", modality.dtype);
            let is_empty = modality.samples == 0;
            let params = ModalityParams {
                times: modality.times,
                values: if is_empty { no_sample } else { modality.values },
                out,
                pitch: modality.samples as i64,
                head: 0,
                count: modality.samples as u32,
                mask: u32::MAX,
                dim: modality.dim as u32,
                dtype: modality.dtype.code(),
                columns: columns as u32,
                first_group: first_group as u32,
                groups: modality.groups.len() as u32,
            };
            out += (modality.dim * output.dtype.size()) as u64;
            params
        };
        let modality_params: Vec<ModalityParams> = modalities.iter().map(&mut describe).collect();

        let mut params = FuseParams::zeroed();
        params.targets = shape.targets;
        params.age = output.age_ns;
        params.valid = output.valid;
        params.target_pitch = if shape.shared_targets { 0 } else { shape.rows as i64 };
        params.rows = shape.rows as u32;
        params.fill = output.fill_value;
        if FuseParams::holds(modality_params.len(), groups.len()) {
            params.embed(&modality_params, &groups);
        } else {
            params.point_to(tables.put(&modality_params), tables.put(&groups));
        }
        // SAFETY: the block is not begun again, and the stream is synchronized.
        unsafe { tables.upload()? };
        gpu.synchronize()?;
        Ok(Self {
            gpu: gpu.clone(),
            params,
            columns,
            dtype: output.dtype,
            grid: [
                shape.rows.div_ceil(RUN as usize) as u32,
                shape.entries as u32,
                modalities.len() as u32,
            ],
            _tables: tables,
        })
    }

    /// D, the columns of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Puts the launch into the device's stream.
    ///
    /// # Errors
    /// [`CudaError`].
    ///
    /// # Safety
    /// The memory at every address is on this device, as large as is said there, and lives, as `self` does, until the
    /// stream is synchronized.
    pub unsafe fn launch(&self) -> Result<(), CudaError> {
        // SAFETY: the tables are part of `self`; the rest is the caller's promise.
        unsafe { self.gpu.launch(kernel(self.dtype), self.grid, BLOCK, &self.params) }
    }
}
