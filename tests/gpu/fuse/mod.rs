//! Align and fuse on devices: the bits of the CPU's windows and masks.

mod batch;
mod live;
mod recordings;

use crate::support::Random;
use half::{bf16, f16};
use robocache::device::cuda::{Budget, DeviceBuf, Gpu};
use robocache::device::{Dtype, Values};
use robocache::ops::align::cuda::{CudaFuser, DeviceSample, PushError};
use robocache::ops::align::{AlignConfig, Masks, Pushed, SampleError, Target, Timeline, cpu};
use robocache::ops::fuse;

const MS: i64 = 1_000_000;

/// An aligner on the CPU, and another with a copy of its histories on a device whose windows must be the CPU's.
struct Pair {
    oracle: Timeline,
    aligner: Timeline,
    fuser: CudaFuser,
    sample: DeviceBuf,
    on_device: DeviceBuf,
    memory: [Vec<u8>; 2],
    masks: [Masks; 2],
    windows: usize,
}

impl Pair {
    fn new(config: &AlignConfig, gpu: &Gpu) -> Self {
        let aligner = Timeline::new(config).unwrap();
        let budget = Budget::new(None);
        Self {
            fuser: CudaFuser::new(&aligner, gpu, &budget),
            sample: DeviceBuf::new(gpu, &budget),
            on_device: DeviceBuf::new(gpu, &budget),
            oracle: Timeline::new(config).unwrap(),
            aligner,
            memory: Default::default(),
            masks: Default::default(),
            windows: 0,
        }
    }

    /// A sample comes on the host.
    fn push(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<Pushed, SampleError> {
        let wanted = self.oracle.push(modality, stamp_ns, sample);
        let came = self.fuser.push_host(&mut self.aligner, modality, stamp_ns, sample);
        same_result(wanted, came)
    }

    /// A sample comes on the device.
    fn push_on_device(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<Pushed, SampleError> {
        let wanted = self.oracle.push(modality, stamp_ns, sample);
        let at = 16;
        self.sample.reserve(at + sample.bytes().len()).unwrap();
        // SAFETY: the source is not page-locked, so that it has been read on return.
        unsafe { self.sample.upload(at, sample.bytes()).unwrap() };
        self.sample.gpu().synchronize().unwrap();
        let sample = DeviceSample {
            memory: &self.sample,
            at,
            dtype: sample.dtype(),
            len: sample.len(),
        };
        let came = self.fuser.push(&mut self.aligner, modality, stamp_ns, sample);
        self.sample.clear(0, self.sample.capacity()).unwrap();
        same_result(wanted, came)
    }

    fn close(&mut self, modality: usize) {
        self.oracle.close(modality);
        self.aligner.close(modality);
    }

    fn open(&mut self, modality: usize) {
        self.oracle.open(modality);
        self.aligner.open(modality);
    }

    /// The next target, which falls due for both.
    fn due(&mut self) -> Option<Target> {
        let target = self.oracle.due();
        assert_eq!(self.aligner.due(), target);
        target
    }

    /// Holds every target that is due against the CPU: all modalities and, now and then, one by itself or the values
    /// left on the device.
    fn check_due(&mut self, random: &mut Random) {
        while let Some(target) = self.due() {
            match random.below(4) {
                0 => self.check_one(&target, random.below(self.aligner.modalities())),
                1 => self.check_on_device(&target),
                _ => {}
            }
            self.check(&target);
        }
    }

    fn check(&mut self, target: &Target) {
        let all = 0..self.aligner.modalities();
        let bytes = self.bytes(&all);
        let [wanted, came] = &mut self.memory;
        resize(wanted, bytes, 1);
        resize(came, bytes, 2);
        let [wanted_masks, masks] = &mut self.masks;
        let aligner = &self.aligner;
        match aligner.dtype() {
            Dtype::Float16 => fuse::cpu::fuse::<f16>(&self.oracle, target, cast(wanted), wanted_masks),
            Dtype::BFloat16 => fuse::cpu::fuse::<bf16>(&self.oracle, target, cast(wanted), wanted_masks),
            _ => fuse::cpu::fuse::<f32>(&self.oracle, target, cast(wanted), wanted_masks),
        }
        self.fuser.window(aligner, target, all, came, masks).unwrap();
        self.same();
    }

    fn check_one(&mut self, target: &Target, modality: usize) {
        let bytes = self.bytes(&(modality..modality + 1));
        let [wanted, came] = &mut self.memory;
        resize(wanted, bytes, 1);
        resize(came, bytes, 2);
        let [wanted_masks, masks] = &mut self.masks;
        let aligner = &self.aligner;
        match aligner.dtype() {
            Dtype::Float16 => cpu::align::<f16>(&self.oracle, target, modality, cast(wanted), wanted_masks),
            Dtype::BFloat16 => cpu::align::<bf16>(&self.oracle, target, modality, cast(wanted), wanted_masks),
            _ => cpu::align::<f32>(&self.oracle, target, modality, cast(wanted), wanted_masks),
        }
        let one = modality..modality + 1;
        self.fuser.window(aligner, target, one, came, masks).unwrap();
        self.same();
    }

    fn check_on_device(&mut self, target: &Target) {
        self.check(target);
        let all = 0..self.aligner.modalities();
        let (came, masks) = (&mut self.memory[1], &mut self.masks[1]);
        came.fill(3);
        self.fuser
            .window_on_device(&self.aligner, target, all, &mut self.on_device, masks)
            .unwrap();
        // SAFETY: the stream is synchronized before the memory is read.
        unsafe { self.on_device.download(0, came).unwrap() };
        self.on_device.gpu().synchronize().unwrap();
        self.same();
    }

    fn bytes(&self, modalities: &std::ops::Range<usize>) -> usize {
        let columns: usize = modalities.clone().map(|modality| self.aligner.dim(modality)).sum();
        self.aligner.window() * columns * self.aligner.dtype().size()
    }

    fn same(&mut self) {
        let [wanted, came] = &self.memory;
        assert_eq!(self.masks[0], self.masks[1], "masks");
        let size = self.aligner.dtype().size();
        if let Some(place) = wanted.iter().zip(came).position(|(wanted, came)| wanted != came) {
            let element = place / size;
            let bytes = element * size..(element + 1) * size;
            panic!(
                "element {element}: {:?} came, not {:?}",
                &came[bytes.clone()],
                &wanted[bytes]
            );
        }
        self.windows += 1;
    }
}

fn resize(memory: &mut Vec<u8>, bytes: usize, filler: u8) {
    memory.clear();
    memory.resize(bytes, filler);
}

/// Elements in bytes. Vectors of bytes lie at multiples of 16.
fn cast<T: bytemuck::Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}

fn config(yaml: &str) -> AlignConfig {
    serde_yaml::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

fn push(pair: &mut Pair, modality: usize, ms: i64, sample: &[f32]) {
    pair.push(modality, ms * MS, Values::from_f32(sample)).unwrap();
}

/// The same of both, but for a value that equals nothing.
fn same_result(wanted: Result<Pushed, SampleError>, came: Result<Pushed, PushError>) -> Result<Pushed, SampleError> {
    let came = came.map_err(|error| match error {
        PushError::Sample(error) => error,
        error => panic!("{error}"),
    });
    assert_eq!(format!("{came:?}"), format!("{wanted:?}"));
    came
}
