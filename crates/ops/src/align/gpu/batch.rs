//! Windows of many recordings at once, from samples that are on the device already.
//!
//! The values have the same bits as the windows of a [`Timeline`](super::Timeline) with these samples. No value is copied to
//! the host.

use super::params::{BLOCK, FuseParams, ModalityParams, RUN, kernel};
use crate::channel_groups::{GroupParams, count_kinds, rotations_first};
use bytemuck::Zeroable;
use robocache_device::Dtype;
use robocache_device::gpu::staging::{Staging, room};
use robocache_device::gpu::{Budget, DeviceFault, DeviceSlice, Gpu};
use robocache_kernels::Kernel;
use robocache_time::Rule;
use std::ops::Range;

/// Channels of a [`BatchModality`] that share a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchGroup {
    /// Range of the channels of the group within its modality.
    pub channels: Range<usize>,
    /// Rule by which the values of these channels are computed.
    pub rule: Rule,
}

/// One stream of a batch. The samples of each entry are finite and at strictly ascending times, as a
/// [`Timeline`](super::Timeline) keeps them. They are rotations if the [rule](Rule::takes) of a group needs rotations.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchModality<'a> {
    /// Times of the samples, int64 `[B, S]`, ns.
    pub times: DeviceSlice<'a>,
    /// Values of the samples, float32, float16 or bfloat16 `[B, S, dim]`.
    pub values: DeviceSlice<'a>,
    /// S, the number of samples of an entry.
    pub samples: usize,
    /// Number of values of a sample.
    pub dim: usize,
    /// Groups of channels, in the order of their channels; together they cover each channel once.
    pub groups: Vec<BatchGroup>,
}

/// Targets of a batch: B entries, such as recordings, with T targets each.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchShape<'a> {
    /// B, the number of entries, at most 65535.
    pub entries: usize,
    /// T, the number of targets of an entry.
    pub rows: usize,
    /// Times of the targets, int64 `[B, T]`, or `[T]` if every entry has the same targets; in any order, ns.
    pub targets: DeviceSlice<'a>,
}

/// Device memory that a batch writes, and the value that it fills in.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchOutput<'a> {
    /// Values at the targets, float32, float16 or bfloat16 `[B, T, D]`.
    pub values: DeviceSlice<'a>,
    /// Validity, uint8 `[B, T, M]`: 1 if every group of the modality has a valid value that the type of `values` can hold, else 0.
    pub valid: DeviceSlice<'a>,
    /// Ages, int64 `[B, T, M]`: target minus the newest sample at or before it, -1 if there is none, ns.
    pub age_ns: DeviceSlice<'a>,
    /// Value that is written where a modality has no valid value.
    pub fill_value: f32,
}

/// Kernel launch that computes the windows of a batch, in device memory that it borrows. The launch can be repeated, and recorded
/// in a CUDA [graph](Gpu::capture).
pub struct FuseBatch<'a> {
    gpu: Gpu,
    params: FuseParams<'a>,
    columns: usize,
    kernel: Kernel,
    grid: [u32; 3],
    /// Device memory of the tables of modalities and groups, if these do not fit in the launch parameters.
    _tables: Staging,
}

impl<'a> FuseBatch<'a> {
    /// Checks the tensors and prepares the launch; nothing is computed yet.
    ///
    /// # Errors
    /// [`DeviceFault::Slice`] for a tensor of the wrong type or length, or on another device, and errors of the GPU driver.
    ///
    /// # Panics
    /// If there are more than 65535 entries or modalities, or a type of values is not float32, float16 or bfloat16. If a mode is
    /// [not on CUDA](robocache_time::Interpolation::is_on_gpu) or has another width than its group. If the groups of a modality do
    /// not cover its channels in order, each channel once.
    pub fn new(
        gpu: &Gpu,
        budget: &Budget,
        modalities: &[BatchModality<'a>],
        shape: &BatchShape<'a>,
        output: &BatchOutput<'a>,
    ) -> Result<Self, DeviceFault> {
        assert!(
            shape.entries <= 0xffff && modalities.len() <= 0xffff,
            "{} entries of {} modalities",
            shape.entries,
            modalities.len()
        );
        let dtype = output.values.dtype();
        assert!(dtype.is_output(), "{dtype} can't be written");
        let columns: usize = modalities.iter().map(|modality| modality.dim).sum();
        let rows = shape.entries * shape.rows;
        output.values.expect("output values", dtype, rows * columns, gpu)?;
        output
            .valid
            .expect("output masks", Dtype::UInt8, rows * modalities.len(), gpu)?;
        output
            .age_ns
            .expect("output ages", Dtype::Int64, rows * modalities.len(), gpu)?;
        for modality in modalities {
            let samples = shape.entries * modality.samples;
            modality.times.expect("sample times", Dtype::Int64, samples, gpu)?;
            let dtype = modality.values.dtype();
            modality
                .values
                .expect("sample values", dtype, samples * modality.dim, gpu)?;
        }
        let is_shared = shape.targets.len() == shape.rows;
        let targets = if is_shared { shape.rows } else { rows };
        shape.targets.expect("target times", Dtype::Int64, targets, gpu)?;
        let mut rules = modalities
            .iter()
            .flat_map(|modality| &modality.groups)
            .map(|group| group.rule);
        let are_plain = rules.all(|rule| rule.mode.is_plain());
        let group_count: usize = modalities.iter().map(|modality| modality.groups.len()).sum();
        let widest = modalities.iter().map(|modality| modality.dim).max().unwrap_or(0);
        let bytes =
            room::<ModalityParams<'_>>(modalities.len()) + room::<GroupParams>(group_count) + room::<f32>(widest);
        let mut tables = Staging::new(gpu, budget);
        tables.begin_copied(bytes)?;
        // Row that the kernel loads and discards for a modality without samples.
        let no_sample = tables.put_each(widest, std::iter::repeat_n(0f32, widest));
        // SAFETY: the tables are part of the result. Their block is not begun again, and no part of it moves.
        let no_sample = unsafe { no_sample.outliving() };

        let mut groups = Vec::with_capacity(group_count);
        let mut out = output.values.pointer();
        let mut describe = |modality: &BatchModality<'a>| {
            let first_group = groups.len();
            let mut next = 0;
            for group in &modality.groups {
                assert_eq!(group.channels.start, next, "a channel is in one group");
                next = group.channels.end;
                let mode = group.rule.mode;
                assert!(mode.is_on_gpu(), "{mode:?} is not on GPUs");
                let channels = group.channels.len();
                assert!(
                    mode.width().is_none_or(|width| width == channels),
                    "{mode:?} of {channels} channels"
                );
            }
            let of_modality = modality.groups.iter();
            groups.extend(rotations_first(
                of_modality.clone().map(|group| (group.channels.clone(), group.rule)),
            ));
            let (rotations, has_curves) = count_kinds(of_modality.map(|group| group.rule));
            assert_eq!(next, modality.dim, "a channel is in one group");
            let dtype = modality.values.dtype();
            assert!(dtype.is_output(), "{dtype} can't be read");
            let is_empty = modality.samples == 0;
            let params = ModalityParams {
                times: modality.times.pointer(),
                values: match is_empty {
                    true => no_sample,
                    false => modality.values.pointer(),
                },
                out,
                pitch: modality.samples as i64,
                head: 0,
                count: modality.samples as u32,
                mask: u32::MAX,
                dim: modality.dim as u32,
                dtype: dtype.code(),
                columns: columns as u32,
                first_group: first_group as u32,
                groups: modality.groups.len() as u32,
                rotations,
                has_curves,
            };
            out = out.offset(modality.dim * output.values.dtype().size());
            params
        };
        let modality_params: Vec<ModalityParams<'a>> = modalities.iter().map(&mut describe).collect();

        let mut params = FuseParams::zeroed();
        params.targets = shape.targets.pointer();
        params.age = output.age_ns.pointer();
        params.valid = output.valid.pointer();
        params.target_pitch = if is_shared { 0 } else { shape.rows as i64 };
        params.rows = shape.rows as u32;
        params.fill = output.fill_value;
        if FuseParams::holds(modality_params.len(), groups.len()) {
            params.embed(modality_params.into_iter(), groups.into_iter());
        } else {
            let (modalities, groups) = (tables.put(&modality_params), tables.put(&groups));
            // SAFETY: as above.
            unsafe { params.point_to(modalities.outliving(), groups.outliving()) };
        }
        // SAFETY: the block is not begun again, and the stream is synchronized.
        unsafe { tables.upload()? };
        gpu.synchronize()?;
        Ok(Self {
            gpu: gpu.clone(),
            params,
            columns,
            kernel: kernel(dtype, are_plain),
            grid: [
                shape.rows.div_ceil(RUN as usize) as u32,
                shape.entries as u32,
                modalities.len() as u32,
            ],
            _tables: tables,
        })
    }

    /// D, the number of columns of an output row: the sum of `dim` over all modalities.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Enqueues the launch on the device's CUDA stream.
    ///
    /// # Errors
    /// [`DeviceFault`] if the GPU driver reports an error.
    ///
    /// # Safety
    /// The memory of every slice, and `self`, must live until the CUDA stream is synchronized. Until then, nothing else may read or
    /// write the output memory.
    pub unsafe fn launch(&self) -> Result<(), DeviceFault> {
        // SAFETY: the tables are part of `self`; the rest is the caller's promise.
        unsafe { self.gpu.launch(self.kernel, self.grid, BLOCK, &self.params) }
    }
}
