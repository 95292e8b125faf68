//! [`Window`]: the values and masks of one observation, output by output.
//!
//! The bits are the same whether the device or the CPU computes an output. After a failure of the device, the CPU computes the
//! outputs that the caller has not fetched yet.

use super::gpu::GpuFuser;
use super::{Aligner, Destination, Masks, Output, Target, Timeline, cpu};
use half::{bf16, f16};
use robocache_device::gpu::{DeviceBuf, DeviceFault};
use robocache_device::{Device, Dtype, Element, Outcome, Primitive, Work};
use std::convert::Infallible;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Values and masks of one observation. Fetch each output once, with
/// [`write`](Self::write) or [`leave_on_device`](Self::leave_on_device).
pub struct Window<'a> {
    aligner: &'a mut Aligner,
    target: Target,
    device: Device,
    /// Total size of the outputs with a destination, bytes.
    work: usize,
    /// Duration of [`Aligner::window_for`], in which a device computes all outputs in one pass.
    pass: Duration,
    /// Total time spent so far on writing outputs, or on leaving them on the device.
    taken: Duration,
    /// Time spent on the last output: on writing it, or on leaving it on the device.
    last: Duration,
}

impl Aligner {
    /// Begins the window of an observation that is due, with every output in host memory.
    pub fn window(&mut self, target: Target) -> Window<'_> {
        self.window_for(target, |_| Destination::Host)
    }

    /// Begins the window of an observation that is due. `wanted` returns the destination of the output with a given index.
    ///
    /// A device computes all outputs here, in one pass. The CPU computes an output in [`Window::write`].
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
    /// Returns the target of the window: the time of its newest row, and counts.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the layout and the modalities of the output with index `output`.
    pub fn output(&self, output: usize) -> &Output {
        &self.aligner.outputs[output]
    }

    /// Returns where the caller fetches an output: the destination that it asked for, but host memory if the CPU
    /// computes the output.
    pub fn destination(&self, output: usize) -> Destination {
        match self.aligner.destinations[output] {
            Destination::Device if self.device == Device::Cpu => Destination::Host,
            wanted => wanted,
        }
    }

    /// Writes the values of an output to host memory: `[T, D]` elements of the published type, or their bytes, the
    /// newest row last.
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

    /// Moves the values of an output into `memory` on the device, `[T, D]` from its beginning on. They are complete on return.
    ///
    /// Memory of the device and budget of [`Aligner::output_gpu`] is swapped with that of the window, without a copy. Any other
    /// memory gets a copy.
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

    /// Reports that the device failed to leave an output in device memory, or to hand it on. The CPU then computes this output
    /// again, and all outputs that were not fetched. Fetch them with [`write`](Self::write).
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

    /// Returns the times, validity and ages of the output that was fetched last.
    pub fn masks(&self) -> &Masks {
        &self.aligner.masks
    }

    /// Returns where the output that was fetched last was computed: on the CPU or on a device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the time spent on the output that was fetched last, plus the duration of [`Aligner::window_for`], in which a
    /// device computes all outputs.
    pub fn compute_time(&self) -> Duration {
        self.pass + self.last
    }

    /// Returns the size of the device memory that the aligner uses, bytes.
    pub fn device_bytes(&self) -> usize {
        self.aligner.device_bytes()
    }

    /// Returns the timeline from whose histories the window is computed.
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
    /// Reports the duration of the window, from which `device: auto` chooses the CPU or the device for later windows. A window
    /// with an output that stays on a device is not reported, because that output saves the next operation a copy.
    fn drop(&mut self) {
        let wanted = &self.aligner.destinations;
        if self.taken > Duration::ZERO && !wanted.contains(&Destination::Device) {
            let time = self.pass + self.taken;
            self.aligner.resident.took(self.work, self.device, time);
        }
    }
}
