//! Align and fuse on devices: the bits of the CPU's windows and masks.

mod batch;
mod live;
mod recordings;

use crate::support::Random;
use half::{bf16, f16};
use robocache::device::cuda::{Budget, DeviceBuf, Gpu};
use robocache::device::{Dtype, Values};
use robocache::ops::align::cuda::CudaFuser;
use robocache::ops::align::{AlignConfig, Aligner, Masks, Target, cpu};
use robocache::ops::fuse;

const MS: i64 = 1_000_000;

/// An aligner, and a copy of its histories on a device whose windows must be the CPU's.
struct Pair {
    aligner: Aligner,
    fuser: CudaFuser,
    on_device: DeviceBuf,
    memory: [Vec<u8>; 2],
    masks: [Masks; 2],
    windows: usize,
}

impl Pair {
    fn new(config: &AlignConfig, gpu: &Gpu) -> Self {
        let aligner = Aligner::new(config).unwrap();
        let budget = Budget::new(None);
        Self {
            fuser: CudaFuser::new(&aligner, gpu, &budget),
            on_device: DeviceBuf::new(gpu, &budget),
            aligner,
            memory: Default::default(),
            masks: Default::default(),
            windows: 0,
        }
    }

    /// Holds every target that is due against the CPU: all modalities and, now and then, one by itself or the values
    /// left on the device.
    fn check_due(&mut self, random: &mut Random) {
        while let Some(target) = self.aligner.due() {
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
            Dtype::Float16 => fuse::cpu::fuse::<f16>(aligner, target, cast(wanted), wanted_masks),
            Dtype::BFloat16 => fuse::cpu::fuse::<bf16>(aligner, target, cast(wanted), wanted_masks),
            _ => fuse::cpu::fuse::<f32>(aligner, target, cast(wanted), wanted_masks),
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
            Dtype::Float16 => cpu::align::<f16>(aligner, target, modality, cast(wanted), wanted_masks),
            Dtype::BFloat16 => cpu::align::<bf16>(aligner, target, modality, cast(wanted), wanted_masks),
            _ => cpu::align::<f32>(aligner, target, modality, cast(wanted), wanted_masks),
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
    let pushed = pair.aligner.push(modality, ms * MS, Values::from_f32(sample));
    pushed.unwrap();
}
