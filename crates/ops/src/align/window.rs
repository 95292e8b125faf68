//! Window of an observation: its values and masks, output by output.
//!
//! The bits are the same whether the device or the CPU computes an output. After a failure of the device, the CPU computes the
//! outputs that were not taken yet.

use super::gpu::GpuFuser;
use super::{Aligner, Destination, Masks, Output, Target, Timeline, cpu};
use half::{bf16, f16};
use robocache_device::gpu::{DeviceBuf, DeviceFault};
use robocache_device::{Device, Dtype, Element, Outcome, Primitive, Work};
use std::convert::Infallible;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Window of a target that is due. Take each wanted output from it once.
pub struct Window<'a> {
    aligner: &'a mut Aligner,
    target: Target,
    device: Device,
    /// Total size of the outputs that are wanted, bytes.
    work: usize,
    /// Duration of [`Aligner::window_for`], in which a device computes all outputs in one pass.
    pass: Duration,
    /// Total time spent so far on writing outputs, or on leaving them on the device.
    taken: Duration,
    /// Time spent on the output that was taken last: on writing it, or on leaving it on the device.
    last: Duration,
}

impl Aligner {
    /// Begins the window of a target that is due, with every output in host memory.
    pub fn window(&mut self, target: Target) -> Window<'_> {
        self.window_for(target, |_| Destination::Host)
    }

    /// Begins the window of a target that is due. `wanted` gives the destination of each output.
    ///
    /// A device computes all outputs here, in one pass. The CPU computes an output when it is written.
    pub fn window_for(&mut self, target: Target, wanted: impl FnMut(usize) -> Destination) -> Window<'_> {
        let start = Instant::now();
        self.destinations.clear();
        self.destinations.extend((0..self.outputs.len()).map(wanted));
        let wanted = || self.outputs.iter().zip(&self.destinations);
        let bytes = wanted().filter(|(_, wanted)| **wanted != Destination::Nowhere);
        let work = bytes.map(|(output, _)| output.bytes()).sum();
        let stays = self.destinations.contains(&Destination::Device);
        let mut device = Device::Cpu;
        if work > 0 {
            let (outputs, destinations) = (&self.outputs, &self.destinations);
            let made = self
                .resident
                .compute(&mut self.timeline, work, stays, |fuser, timeline| {
                    fuser.make(timeline, &target, outputs, destinations)
                });
            match made {
                Outcome::Done(()) => device = self.resident.device(),
                Outcome::FellBack => {}
                Outcome::Reset => self.timeline.forget_rows_on_device(None),
            }
        }
        Window {
            aligner: self,
            target,
            device,
            work,
            pass: start.elapsed(),
            taken: Duration::ZERO,
            last: Duration::ZERO,
        }
    }
}

impl Window<'_> {
    /// The target of the window.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Layout and modalities of the output with index `output`.
    pub fn output(&self, output: usize) -> &Output {
        &self.aligner.outputs[output]
    }

    /// The memory from which to take an output: the wanted destination, but the host if the CPU computes the output.
    pub fn destination(&self, output: usize) -> Destination {
        match self.aligner.destinations[output] {
            Destination::Device if self.device == Device::Cpu => Destination::Host,
            wanted => wanted,
        }
    }

    /// Writes the values of an output to host memory: `[T, D]` elements of the published type or their bytes, newest row last.
    ///
    /// # Panics
    /// If `out` has another type or size, or is not aligned for the elements. If the output is [destined](Self::destination)
    /// elsewhere, or there is no such output.
    pub fn write<E: Primitive>(&mut self, output: usize, out: &mut [E]) {
        let start = Instant::now();
        self.aligner.timeline.dtype().assert_is::<E>();
        let out: &mut [u8] = bytemuck::cast_slice_mut(out);
        assert_eq!(
            out.len(),
            self.aligner.outputs[output].bytes(),
            "bytes of output {output}"
        );
        assert_eq!(self.destination(output), Destination::Host, "output {output}");
        let Aligner {
            resident,
            timeline,
            outputs,
            masks,
            ..
        } = &mut *self.aligner;
        let mut writing = WriteOutput {
            timeline,
            target: &self.target,
            output,
            modalities: outputs[output].modalities(),
            out,
            masks,
        };
        match (self.device, resident.on_gpu()) {
            (Device::Gpu(..), Some(on_gpu)) => {
                let Ok(()) = writing.on_gpu(on_gpu);
            }
            _ => writing.on_cpu(&mut ()),
        }
        self.took(start);
    }

    /// Leaves the values of an output on the device, `[T, D]` at the beginning of `memory`. They are complete on return.
    ///
    /// Memory of [`Aligner::output_gpu`]'s device and budget is swapped with that of the window, which costs nothing. The
    /// values are copied into any other memory.
    ///
    /// # Errors
    /// The error of the GPU driver. Report it with [`failed_to_leave`](Self::failed_to_leave).
    ///
    /// # Panics
    /// If the output is not on the device: see [`destination`](Self::destination).
    pub fn leave_on_device(&mut self, output: usize, memory: &mut DeviceBuf) -> Result<(), DeviceFault> {
        let start = Instant::now();
        assert_eq!(self.destination(output), Destination::Device, "output {output}");
        let aligner = &mut *self.aligner;
        if let Some(on_gpu) = aligner.resident.on_gpu() {
            on_gpu.masks(output, &aligner.timeline, &self.target, &mut aligner.masks);
            on_gpu.leave(output, aligner.outputs[output].bytes(), memory)?;
        }
        self.took(start);
        Ok(())
    }

    /// Reports that the device failed to leave an output, or to hand it on. The CPU computes this output again, and all other
    /// outputs that have not been taken. Take these outputs in host memory.
    pub fn failed_to_leave(&mut self, error: DeviceFault) {
        let Aligner { resident, timeline, .. } = &mut *self.aligner;
        match resident.failed::<Infallible>(timeline, self.work, error) {
            Outcome::FellBack => {}
            Outcome::Reset => timeline.forget_rows_on_device(None),
        }
        self.device = Device::Cpu;
    }

    fn took(&mut self, start: Instant) {
        self.last = start.elapsed();
        self.taken += self.last;
    }

    /// Times, validity and ages of the output that was taken last.
    pub fn masks(&self) -> &Masks {
        &self.aligner.masks
    }

    /// Device on which the output that was taken last was computed.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Compute time of the output that was taken last, plus the duration of [`Aligner::window_for`], in which a device computes all
    /// outputs.
    pub fn compute_time(&self) -> Duration {
        self.pass + self.last
    }

    /// Bytes of device memory that the operation holds.
    pub fn device_bytes(&self) -> usize {
        self.aligner.device_bytes()
    }

    /// Timeline from whose histories the window is computed.
    pub fn timeline(&self) -> &Timeline {
        &self.aligner.timeline
    }
}

/// Work that writes the values and masks of an output: copies them from the results of a device, or computes them on the CPU.
struct WriteOutput<'a> {
    timeline: &'a Timeline,
    target: &'a Target,
    output: usize,
    modalities: Range<usize>,
    out: &'a mut [u8],
    masks: &'a mut Masks,
}

impl Work for WriteOutput<'_> {
    type Cpu = ();
    type Gpu = GpuFuser;
    type Done = ();
    type Fault = Infallible;

    fn on_cpu(&mut self, (): &mut ()) {
        match self.timeline.dtype() {
            Dtype::Float16 => self.compute::<f16>(),
            Dtype::BFloat16 => self.compute::<bf16>(),
            _ => self.compute::<f32>(),
        }
    }

    fn on_gpu(&mut self, gpu: &mut GpuFuser) -> Result<(), Infallible> {
        self.out.copy_from_slice(gpu.values(self.output));
        gpu.masks(self.output, self.timeline, self.target, self.masks);
        Ok(())
    }
}

impl WriteOutput<'_> {
    fn compute<E: Element>(&mut self) {
        let (modalities, out) = (self.modalities.clone(), bytemuck::cast_slice_mut(self.out));
        cpu::window::<E>(self.timeline, self.target, modalities, out, self.masks);
    }
}

impl Drop for Window<'_> {
    /// Reports the time that the window took, by which the CPU or the device is chosen for later windows. A window with an output
    /// that stays on a device is not reported: that output saves the next operation a copy.
    fn drop(&mut self) {
        let wanted = &self.aligner.destinations;
        if self.taken > Duration::ZERO && !wanted.contains(&Destination::Device) {
            let time = self.pass + self.taken;
            self.aligner.resident.took(self.work, self.device, time);
        }
    }
}
