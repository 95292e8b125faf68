//! Align and fuse on devices give the bits of the CPU's windows and masks.

mod batch;
mod live;
mod recordings;
mod take;

use crate::support::Random;
use crate::support::kind;
use robocache::device::gpu::{Budget, DeviceBuf};
use robocache::device::{Device, DeviceChoice, Placement, Values};
use robocache::ops::align::gpu::DeviceSample;
use robocache::ops::align::{AlignConfig, Aligner, Destination, Masks, PushError, PushOutcome, SampleError, Target};

const MS: i64 = 1_000_000;

/// An operation on the CPU and the same one on a device, whose windows must be equal.
struct Pair {
    oracle: Aligner,
    subject: Aligner,
}

/// Fuse and align, which get the same samples.
struct Pairs {
    fused: Pair,
    aligned: Pair,
    /// Memory on the device for a sample that is pushed.
    sample: DeviceBuf,
    /// Device memory for outputs that stay on the device: a buffer of the operation's budget, and a buffer of another budget.
    left: [DeviceBuf; 2],
    windows: usize,
    /// The values of the last fused window.
    values: Vec<u8>,
}

/// Placement on the first device, for everything.
fn cuda() -> Placement {
    Placement::resolve(DeviceChoice::Gpu(kind(), Some(0)), None).unwrap()
}

impl Pairs {
    fn new(config: &AlignConfig) -> Self {
        let [cpu, cuda] = [Placement::cpu("the oracle"), cuda()];
        let pair = |new: fn(&_, &_) -> Result<Aligner, _>| Pair {
            oracle: new(config, &cpu).unwrap(),
            subject: new(config, &cuda).unwrap(),
        };
        let mut aligned = pair(Aligner::aligned);
        let gpu = cuda.gpu().unwrap();
        let (own_gpu, own_budget) = aligned.subject.output_gpu().unwrap();
        let left = [
            DeviceBuf::new(own_gpu, own_budget),
            DeviceBuf::new(gpu, &Budget::new(None)),
        ];
        Self {
            fused: pair(Aligner::fused),
            aligned,
            sample: DeviceBuf::new(gpu, &Budget::new(None)),
            left,
            windows: 0,
            values: Vec::new(),
        }
    }

    fn each(&mut self) -> [&mut Pair; 2] {
        [&mut self.fused, &mut self.aligned]
    }

    /// Pushes a sample from the host.
    fn push(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<PushOutcome, SampleError> {
        let results = self.each().map(|Pair { oracle, subject }| {
            let wanted = oracle.push(modality, stamp_ns, sample);
            same_result(wanted, subject.push(modality, stamp_ns, sample))
        });
        results.into_iter().next().unwrap()
    }

    /// Pushes a sample from the device.
    fn push_on_device(
        &mut self,
        modality: usize,
        stamp_ns: i64,
        sample: Values<'_>,
    ) -> Result<PushOutcome, SampleError> {
        let offset = 16;
        self.sample.reserve(offset + sample.bytes().len()).unwrap();
        // SAFETY: the source is not page-locked, so that it has been read on return.
        unsafe { self.sample.upload(offset, sample.bytes()).unwrap() };
        self.sample.gpu().synchronize().unwrap();
        let on_device = DeviceSample::new(&self.sample, offset, sample.dtype(), sample.len()).unwrap();
        let results = [&mut self.fused, &mut self.aligned].map(|Pair { oracle, subject }| {
            let wanted = oracle.push(modality, stamp_ns, sample);
            same_result(wanted, subject.push_on_device(modality, stamp_ns, on_device))
        });
        self.sample.clear(0, self.sample.capacity()).unwrap();
        results.into_iter().next().unwrap()
    }

    fn close(&mut self, modality: usize) {
        for Pair { oracle, subject } in self.each() {
            oracle.close(modality);
            subject.close(modality);
        }
    }

    fn open(&mut self, modality: usize) {
        for Pair { oracle, subject } in self.each() {
            oracle.open(modality);
            subject.open(modality);
        }
    }

    /// Requests an observation at `time_ns` (`None`: the newest time) from every operation.
    fn ask(&mut self, time_ns: Option<i64>) {
        for Pair { oracle, subject } in self.each() {
            assert_eq!(subject.timeline_mut().ask(time_ns), oracle.timeline_mut().ask(time_ns));
        }
    }

    /// Makes the timer of every operation tick.
    fn tick(&mut self) {
        for Pair { oracle, subject } in self.each() {
            oracle.timeline_mut().tick();
            subject.timeline_mut().tick();
        }
    }

    /// Returns the next target that is due, which must be the same for fuse and align, on the CPU and the device.
    fn due(&mut self) -> Option<Target> {
        let due = self.each().map(|Pair { oracle, subject }| {
            let target = oracle.due();
            assert_eq!(subject.due(), target);
            target
        });
        assert_eq!(due[0], due[1]);
        due[0]
    }

    /// Compares every window that is due with the CPU's. A random choice of the aligned outputs is wanted, on the host or on the
    /// device.
    fn check_due(&mut self, random: &mut Random) {
        while let Some(target) = self.due() {
            self.check_with(&target, |_| {
                random.pick(&[Destination::Host, Destination::Device, Destination::Nowhere])
            });
        }
    }

    fn check(&mut self, target: &Target) {
        self.check_with(target, |_| Destination::Host);
    }

    fn check_with(&mut self, target: &Target, wanted: impl FnMut(usize) -> Destination) {
        self.values = self.fused.check(target, |_| Destination::Host, &mut self.left);
        self.windows += 1;
        self.fused.check(target, |_| Destination::Device, &mut self.left);
        self.aligned.check(target, wanted, &mut self.left);
    }

    /// The values of the last fused window.
    fn values<T: bytemuck::Pod>(&self) -> &[T] {
        bytemuck::cast_slice(&self.values)
    }
}

impl Pair {
    /// Compares the outputs of a window with the CPU's. Returns the values of the last output.
    fn check(
        &mut self,
        target: &Target,
        mut wanted: impl FnMut(usize) -> Destination,
        left: &mut [DeviceBuf; 2],
    ) -> Vec<u8> {
        let wanted: Vec<Destination> = self
            .oracle
            .outputs()
            .iter()
            .enumerate()
            .map(|(i, _)| wanted(i))
            .collect();
        let is_any = wanted.iter().any(|&wanted| wanted != Destination::Nowhere);
        let mut window = self.subject.window_for(*target, |output| wanted[output]);
        let mut oracle = self.oracle.window(*target);
        let mut came = Vec::new();
        for (output, &wanted) in wanted.iter().enumerate() {
            assert_eq!(window.destination(output), wanted, "it was made on the device");
            let [mut expected, mut values] = [1, 2].map(|filler| vec![filler; window.output(output).bytes()]);
            match wanted {
                Destination::Nowhere => continue,
                Destination::Host => window.write(output, &mut values),
                Destination::Device => {
                    // The output is copied if the memory is of another budget.
                    let memory = &mut left[output % 2];
                    window.leave_on_device(output, memory).unwrap();
                    memory.fetch(0, &mut values).unwrap();
                }
            }
            oracle.write(output, &mut expected);
            same(
                (&expected, oracle.masks()),
                (&values, window.masks()),
                window.timeline().dtype().size(),
            );
            came = values;
        }
        assert_eq!(window.device() == Device::Gpu(kind(), 0), is_any);
        came
    }
}

fn same((wanted, wanted_masks): (&[u8], &Masks), (came, masks): (&[u8], &Masks), size: usize) {
    assert_eq!(wanted_masks, masks, "masks");
    if let Some(byte) = wanted.iter().zip(came).position(|(wanted, came)| wanted != came) {
        let element = byte / size;
        let bytes = element * size..(element + 1) * size;
        panic!(
            "element {element}: {:?} came, not {:?}",
            &came[bytes.clone()],
            &wanted[bytes]
        );
    }
}

fn config(yaml: &str) -> AlignConfig {
    serde_yaml::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

fn push(pairs: &mut Pairs, modality: usize, ms: i64, sample: &[f32]) {
    pairs.push(modality, ms * MS, Values::from_f32(sample)).unwrap();
}

/// Checks that both results are the same. Their texts are compared, since a NaN equals nothing.
fn same_result(
    wanted: Result<PushOutcome, PushError>,
    came: Result<PushOutcome, PushError>,
) -> Result<PushOutcome, SampleError> {
    assert_eq!(format!("{came:?}"), format!("{wanted:?}"));
    came.map_err(|error| match error {
        PushError::Sample(error) => error,
        error => panic!("{error}"),
    })
}
