//! Tests of timelines that can be checked by hand: samples in the order of their arrival, times in ms, and after each sample
//! the observations that become due. Target times are 10 ms apart unless a test says otherwise.
//!
//! An observation is written as its rows, `TIME: INPUT=VALUES@AGE ...`, the newest last, `|` between them. A `!` after the
//! values means not valid, and `@-` that there is no sample at or before the row. The keys `late=` and `epoch=` are left out if
//! their value is 0. A `#N` means that the observation answers request N.
//!
//! If there is a CUDA device, or an emulator of one, its windows must have the same bits.

mod due;
mod jumps;
mod refusals;
mod samples;
mod start;
mod triggers;
mod values;

use super::gpu::GpuFuser;
use super::{
    AlignConfig, Destination, Masks, Notice, Output, PushOutcome, Refusal, SampleError, Target, Timeline, cpu,
};
use crate::ConfigError;
use robocache_device::Values;
use robocache_device::gpu::{Budget, Gpu, Kind, device_count};
use std::fmt::Write;

const MS: i64 = 1_000_000;

/// Returns a configuration with these keys and modalities, in YAML. Keys that are left out get `rate_hz: 100`, `dim: 1`,
/// `interpolation: previous`.
fn config(keys: &str, modalities: &[&str]) -> AlignConfig {
    let or = |text: &str, key: &str, default: &str| match text.contains(key) {
        true => String::new(),
        false => format!("{key}: {default}, "),
    };
    let modality = |text: &&str| {
        let (dim, mode) = (or(text, "dim", "1"), or(text, "interpolation", "previous"));
        format!("{{ {dim}{mode}{text} }}")
    };
    let modalities: Vec<String> = modalities.iter().map(modality).collect();
    let comma = if keys.is_empty() { "" } else { "," };
    let rate = or(keys, "rate_hz", "100");
    let text = format!("{{ {rate}{keys}{comma} modalities: [{}] }}", modalities.join(", "));
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns the text of the error that `config` causes; panics if `config` is valid.
fn refusal(config: &AlignConfig) -> String {
    let error: ConfigError = Timeline::new(config).err().expect("it was taken");
    error.to_string()
}

struct Script {
    timeline: Timeline,
    on_gpu: Option<GpuFuser>,
}

impl Script {
    fn new(keys: &str, modalities: &[&str]) -> Self {
        let timeline = Timeline::new(&config(keys, modalities)).unwrap();
        let mut groups = (0..timeline.modalities()).flat_map(|modality| timeline.groups(modality));
        let is_on_gpu = groups.all(|group| group.rule.mode.is_on_gpu());
        let gpu = (is_on_gpu && device_count(Kind::Cuda).is_ok()).then(|| Gpu::open(Kind::Cuda, 0).unwrap());
        let on_gpu = gpu.map(|gpu| GpuFuser::new(&timeline, 1, &gpu, &Budget::new(None)));
        Self { timeline, on_gpu }
    }

    fn modality(&self, input: &str) -> usize {
        self.timeline.inputs().position(|name| name == input).unwrap()
    }

    /// Pushes a sample of one value, and checks that exactly the observations in `due` become due.
    #[track_caller]
    fn push(&mut self, input: &str, ms: i64, value: f32, due: &[&str]) -> PushOutcome {
        self.push_all(input, ms, &[value], due)
    }

    /// Pushes a sample of several values, and checks that exactly the observations in `due` become due.
    #[track_caller]
    fn push_all(&mut self, input: &str, ms: i64, sample: &[f32], due: &[&str]) -> PushOutcome {
        let pushed = self.try_push(input, ms * MS, Values::from_f32(sample)).unwrap();
        self.falls_due(due);
        pushed
    }

    fn try_push(&mut self, input: &str, stamp_ns: i64, sample: Values<'_>) -> Result<PushOutcome, SampleError> {
        let modality = self.modality(input);
        self.timeline.push(modality, stamp_ns, sample)
    }

    #[track_caller]
    fn close(&mut self, input: &str, due: &[&str]) {
        let modality = self.modality(input);
        self.timeline.close(modality);
        self.falls_due(due);
    }

    #[track_caller]
    fn open(&mut self, input: &str, due: &[&str]) {
        let modality = self.modality(input);
        self.timeline.open(modality);
        self.falls_due(due);
    }

    /// Sends a request for the time `ms`, or with `None` for the newest time. Checks that exactly the observations in
    /// `due` become due.
    #[track_caller]
    fn ask(&mut self, ms: Option<i64>, due: &[&str]) -> Result<u64, Refusal> {
        let asked = self.timeline.ask(ms.map(|ms| ms * MS));
        self.falls_due(due);
        asked
    }

    /// Ticks the timer, and checks that exactly the observations in `due` become due.
    #[track_caller]
    fn tick(&mut self, due: &[&str]) {
        self.timeline.tick();
        self.falls_due(due);
    }

    /// Returns the number and the reason of each request that waited and was refused since the last call.
    fn refused(&mut self) -> Vec<(u64, Refusal)> {
        std::iter::from_fn(|| self.timeline.take_refused()).collect()
    }

    #[track_caller]
    fn falls_due(&mut self, due: &[&str]) {
        let mut fell = Vec::new();
        while let Some(target) = self.timeline.due() {
            fell.push(self.show(&target));
            assert!(fell.len() < 1000, "it has no end: {:?} ...", &fell[..3]);
        }
        assert_eq!(fell, due);
    }

    fn show(&mut self, target: &Target) -> String {
        let timeline = &self.timeline;
        let names: Vec<&str> = timeline.inputs().collect();
        let columns: usize = (0..names.len()).map(|modality| timeline.dim(modality)).sum();
        let mut values = vec![f32::NAN; timeline.window() * columns];
        let mut masks = Masks::default();
        cpu::window(timeline, target, 0..names.len(), &mut values, &mut masks);
        assert_eq!(masks.timestamps_ns.last(), Some(&target.time_ns));
        if let Some(on_gpu) = &mut self.on_gpu {
            let all = [Output::new(timeline, 0..names.len())];
            on_gpu.make(timeline, target, &all, &[Destination::Host]).unwrap();
            let mut masks_of_gpu = Masks::default();
            on_gpu.masks(0, timeline, target, &mut masks_of_gpu);
            let of_gpu: &[u32] = bytemuck::cast_slice(on_gpu.values(0));
            let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
            assert_eq!((of_gpu, masks_of_gpu), (&bits[..], masks.clone()));
        }
        let mut text = String::new();
        for (row, mut rest) in values.chunks_exact(columns).enumerate() {
            let bar = if row == 0 { "" } else { " | " };
            write!(text, "{bar}{}:", masks.timestamps_ns[row] as f64 / MS as f64).unwrap();
            for (modality, name) in names.iter().enumerate() {
                let (own, others) = rest.split_at(timeline.dim(modality));
                rest = others;
                let own: Vec<String> = own.iter().map(f32::to_string).collect();
                let entry = row * names.len() + modality;
                let invalid = if masks.valid[entry] == 1 { "" } else { "!" };
                let age = match masks.age_ns[entry] {
                    -1 => "-".to_owned(),
                    age => (age as f64 / MS as f64).to_string(),
                };
                write!(text, " {name}={}{invalid}@{age}", own.join(",")).unwrap();
            }
        }
        if target.late_samples > 0 {
            write!(text, " late={}", target.late_samples).unwrap();
        }
        if let Some(number) = target.request {
            write!(text, " #{number}").unwrap();
        }
        if target.epoch > 0 {
            write!(text, " epoch={}", target.epoch).unwrap();
        }
        text
    }
}
