//! The window of an observation, output by output.

use super::{Aligner, Masks, Target, Timeline, cpu};
use half::{bf16, f16};
use robocache_device::cuda::{CudaError, DeviceBuf};
use robocache_device::{Device, Dtype, Primitive};
use robocache_stream::Layout;
use std::ops::Range;
use std::time::{Duration, Instant};

/// An output of a window: a run of modalities side by side, `[T, D]` row-major.
#[derive(Clone, Debug)]
pub struct Output {
    modalities: Range<usize>,
    offsets: Vec<i64>,
    layout: Layout,
}

impl Output {
    /// A run of the modalities of a timeline.
    pub fn new(timeline: &Timeline, modalities: Range<usize>) -> Self {
        let mut offsets = vec![0];
        let mut columns = 0;
        for modality in modalities.clone() {
            columns += timeline.dim(modality);
            offsets.push(columns as i64);
        }
        Self {
            modalities,
            offsets,
            layout: Layout::flat(timeline.dtype(), timeline.window() * columns),
        }
    }

    /// Its modalities.
    pub fn modalities(&self) -> Range<usize> {
        self.modalities.clone()
    }

    /// M + 1 offsets: the m-th of its modalities is columns `offsets[m]..offsets[m + 1]`.
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// D, its columns.
    pub fn columns(&self) -> usize {
        self.offsets.last().map_or(0, |&columns| columns as usize)
    }

    /// The form of its payload: a flat array of T * D elements.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The size of its values.
    pub fn bytes(&self) -> usize {
        let columns = self.layout.columns.iter();
        columns
            .map(|column| column.len(self.layout.rows) * column.dtype.size())
            .sum()
    }
}

/// Where an output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nowhere: it is not made.
    Nowhere,
    /// In the host's memory.
    OnHost,
    /// On the device of [`Aligner::output_gpu`].
    OnDevice,
}

/// The window of a target that is due. Take each output that is wanted from it, once.
pub struct Window<'a> {
    aligner: &'a mut Aligner,
    target: Target,
    device: Device,
    /// Bytes of all outputs that are wanted.
    work: usize,
    /// The time that the pass over all outputs took, and that of each output taken so far.
    pass: Duration,
    taken: Duration,
    /// The time of the output that was taken last.
    last: Duration,
}

impl<'a> Window<'a> {
    pub(super) fn new(aligner: &'a mut Aligner, target: Target, device: Device, work: usize, pass: Duration) -> Self {
        Self {
            aligner,
            target,
            device,
            work,
            pass,
            taken: Duration::ZERO,
            last: Duration::ZERO,
        }
    }

    /// The observation that it is of.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// An output of it.
    pub fn output(&self, output: usize) -> &Output {
        &self.aligner.outputs[output]
    }

    /// Where an output is to be taken: where it was wanted, but on the host where the CPU makes it.
    pub fn wanted(&self, output: usize) -> Wanted {
        match self.aligner.wanted[output] {
            Wanted::OnDevice if self.device == Device::Cpu => Wanted::OnHost,
            wanted => wanted,
        }
    }

    /// Writes the values of an output to host memory: `[T, D]` elements of the published type or their bytes, newest
    /// target last.
    ///
    /// # Panics
    /// If `out` is of another type, not as large or not aligned for the elements, or the output is
    /// [wanted](Self::wanted) elsewhere, or there is no such output.
    pub fn write<E: Primitive>(&mut self, output: usize, out: &mut [E]) {
        let start = Instant::now();
        self.aligner.timeline.dtype().assert_is::<E>();
        let out: &mut [u8] = bytemuck::cast_slice_mut(out);
        assert_eq!(
            out.len(),
            self.aligner.outputs[output].bytes(),
            "bytes of output {output}"
        );
        assert_eq!(self.wanted(output), Wanted::OnHost, "output {output}");
        match self.device {
            Device::Cpu => self.compute(output, out),
            Device::Cuda(_) => self.read(output, out),
        }
        self.took(start);
    }

    /// Copies what the device made of an output.
    fn read(&mut self, output: usize, out: &mut [u8]) {
        let Aligner {
            backend,
            timeline,
            masks,
            ..
        } = &mut *self.aligner;
        if let Some(cuda) = backend.resident() {
            out.copy_from_slice(cuda.values(output));
            cuda.masks(output, timeline, &self.target, masks);
        }
    }

    fn compute(&mut self, output: usize, out: &mut [u8]) {
        let Aligner {
            timeline,
            outputs,
            masks,
            ..
        } = &mut *self.aligner;
        let (target, modalities) = (&self.target, outputs[output].modalities());
        match timeline.dtype() {
            Dtype::Float16 => cpu::window::<f16>(timeline, target, modalities, bytemuck::cast_slice_mut(out), masks),
            Dtype::BFloat16 => cpu::window::<bf16>(timeline, target, modalities, bytemuck::cast_slice_mut(out), masks),
            _ => cpu::window::<f32>(timeline, target, modalities, bytemuck::cast_slice_mut(out), masks),
        }
    }

    /// Leaves the values of an output on the device, `[T, D]` at the beginning of `memory`. They are there on return.
    ///
    /// Memory of [`Aligner::output_gpu`]'s device and budget is exchanged for that of the window, which costs nothing; into
    /// any other the values are copied.
    ///
    /// # Errors
    /// What the driver says: see [`failed_to_leave`](Self::failed_to_leave).
    ///
    /// # Panics
    /// If it is not on the device: see [`wanted`](Self::wanted).
    pub fn leave_on_device(&mut self, output: usize, memory: &mut DeviceBuf) -> Result<(), CudaError> {
        let start = Instant::now();
        assert_eq!(self.wanted(output), Wanted::OnDevice, "output {output}");
        let Aligner {
            backend,
            timeline,
            outputs,
            masks,
            ..
        } = &mut *self.aligner;
        if let Some(cuda) = backend.resident() {
            cuda.masks(output, timeline, &self.target, masks);
            cuda.leave(output, outputs[output].bytes(), memory)?;
        }
        self.took(start);
        Ok(())
    }

    /// The device failed when an output was to be left there, or handed on. The CPU makes it again, and whatever else has not
    /// been taken: all of it is wanted on the host now.
    pub fn failed_to_leave(&mut self, error: CudaError) {
        self.aligner.failed(self.work, error);
        self.device = Device::Cpu;
    }

    fn took(&mut self, start: Instant) {
        self.last = start.elapsed();
        self.taken += self.last;
    }

    /// The masks of the output that was taken last.
    pub fn masks(&self) -> &Masks {
        &self.aligner.masks
    }

    /// Where the output that was taken last was made.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The time that the output taken last took, with that of the pass over all outputs.
    pub fn compute_time(&self) -> Duration {
        self.pass + self.last
    }

    /// Bytes of device memory that the operation holds.
    pub fn device_bytes(&self) -> usize {
        self.aligner.device_bytes()
    }

    /// The streams that it is of.
    pub fn timeline(&self) -> &Timeline {
        &self.aligner.timeline
    }
}

impl Drop for Window<'_> {
    /// Tells the choice of the backend how long it took. What stays on a device is no measure: it saves the next operation a
    /// copy.
    fn drop(&mut self) {
        let wanted = &self.aligner.wanted;
        if self.taken > Duration::ZERO && !wanted.contains(&Wanted::OnDevice) {
            let time = self.pass + self.taken;
            self.aligner.backend.took(self.work, self.device, time);
        }
    }
}
