//! Compares the robot's samples, through align and fuse, with the true signals at the targets.
//!
//! The bounds follow from the signals' derivatives. A line between samples h apart is off by at most h^2 / 8 times the second
//! derivative. A sample that is held for a time is off by at most that time times the first derivative.

use robocache::device::{Placement, Values};
use robocache::ops::align::{AlignConfig, Aligner};
use robocache_sim::config::{Dropout, SimConfig, StreamConfig};
use robocache_sim::schedule::{Schedule, Sensor};
use robocache_sim::signals::{self, CAMERA_DIM};

const MS: i64 = 1_000_000;
const START: i64 = 1_700_000_000_000_000_000;
const COLUMNS: usize = CAMERA_DIM + 6 + 15;

fn config(max_wait: &str, camera_latency_ms: f64) -> AlignConfig {
    let text = format!(
        "rate_hz: 60
window: 4
stride: 3
max_wait_ms: {max_wait}
modalities:
  - {{ input: camera, dim: 128, interpolation: previous, latency_ms: {camera_latency_ms}, max_age_ms: 100 }}
  - {{ input: force, dim: 6, interpolation: linear, max_gap_ms: 50, extrapolate_ms: 5, reorder_ms: 20 }}
  - input: proprio
    dim: 15
    latency_ms: -2.5
    groups:
      - {{ channels: [0, 6], interpolation: linear, max_gap_ms: 50 }}
      - {{ channels: [6, 11], interpolation: previous, max_age_ms: 50 }}
      - {{ channels: [11, 15], interpolation: nearest, max_age_ms: 50 }}
"
    );
    serde_yaml::from_str(&text).expect("a config")
}

/// Config of a robot for 20 s, with drop-outs, losses, clock offsets, and force messages that overtake each other.
fn robot() -> SimConfig {
    let mut sim = SimConfig {
        seed: 3,
        start_ns: Some(START),
        duration_s: Some(20.0),
        ..SimConfig::default()
    };
    let away = |start_s: f64, duration_s: f64| vec![Dropout { start_s, duration_s }];
    sim.streams.lidar = None;
    sim.streams.depth = None;
    sim.streams.camera_pose = None;
    sim.streams.camera = Some(StreamConfig {
        dropouts: away(4.0, 0.5),
        ..StreamConfig::camera()
    });
    sim.streams.force = Some(StreamConfig {
        latency_ms: 10.0,
        latency_jitter_ms: 3.0,
        drop_rate: 0.3,
        dropouts: away(7.0, 0.3),
        ..StreamConfig::force()
    });
    sim.streams.proprio = Some(StreamConfig {
        clock_offset_ms: -2.5,
        drop_rate: 0.1,
        ..StreamConfig::proprio()
    });
    sim
}

/// Result of comparing outputs with the truth: counts of observations and of valid values, and each stream's largest error as a
/// share of its bound.
#[derive(Debug, Default)]
struct Deviations {
    observations: usize,
    valid: [usize; 3],
    worst: [f64; 3],
    /// Number of ages and mask values that contradict the samples that arrived.
    misjudged: usize,
}

/// True capture times of a stream's samples that arrived, ns, ascending.
#[derive(Default)]
struct SampleTimes(Vec<i64>);

impl SampleTimes {
    /// Returns the true time of the newest sample at or before `t`, and of the oldest sample after `t`, ns.
    fn around(&self, t: i64) -> (Option<i64>, Option<i64>) {
        let until = self.0.partition_point(|&time| time <= t);
        (until.checked_sub(1).map(|i| self.0[i]), self.0.get(until).copied())
    }
}

/// Bounds of a signal's first and second derivative, from which the largest possible error of a held or interpolated value follows.
struct Bound {
    rate: f64,
    accel: f64,
}

impl Bound {
    fn held(&self, ns: i64) -> f64 {
        self.rate * ns as f64 * 1e-9
    }

    fn line(&self, (before, after): (Option<i64>, Option<i64>), t: i64, extrapolate: i64) -> Option<f64> {
        match (before?, after) {
            (before, _) if before == t => Some(0.0),
            (before, Some(after)) if after - before <= 50 * MS => {
                let gap = (after - before) as f64 * 1e-9;
                Some(self.accel * gap * gap / 8.0)
            }
            (before, None) if t - before <= extrapolate => Some(self.held(t - before)),
            _ => None,
        }
    }
}

const FORCE: Bound = Bound {
    rate: signals::WRENCH_RATE_MAX,
    accel: signals::WRENCH_ACCEL_MAX,
};
const JOINTS: Bound = Bound {
    rate: signals::JOINT_SPEED_MAX,
    accel: signals::JOINT_ACCEL_MAX,
};

/// Returns the largest error of `values` from `truth`, each error as a share of `bound` plus the rounding to float32.
fn worst(values: &[f32], truth: &[f32], bound: f64) -> f64 {
    let share = |(&value, &truth): (&f32, &f32)| {
        let rounding = 4.0 * f64::from(f32::EPSILON) * f64::from(truth.abs().max(1.0));
        f64::from(value - truth).abs() / (bound + rounding)
    };
    values.iter().zip(truth).map(share).fold(0.0, f64::max)
}

/// Error of the last joint's angle or of the tool's quaternion, of either sign, whichever is larger. It is a share of the
/// largest error of a sample that was held for `age`, ns.
fn turning(values: &[f32], truth: &[f32], age: i64) -> f64 {
    let turn = f64::from(values[0] - truth[0]).rem_euclid(std::f64::consts::TAU);
    let turn = turn.min(std::f64::consts::TAU - turn);
    let distance = |sign: f32| {
        let squares = (1..5).map(|i| f64::from(values[i] - sign * truth[i]).powi(2));
        squares.sum::<f64>().sqrt()
    };
    let tool = distance(1.0).min(distance(-1.0));
    let seconds = age as f64 * 1e-9;
    let last_joint = std::f64::consts::TAU / 12.0 * seconds + 1e-6;
    let half_angle = signals::TOOL_SPEED_MAX / 2.0 * seconds + 1e-6;
    (turn / last_joint).max(tool / half_angle)
}

fn row(t: i64, values: &[f32], valid: &[i64], age: &[i64], came: &[SampleTimes; 3], found: &mut Deviations) {
    let around = [0, 1, 2].map(|stream: usize| came[stream].around(t));
    let ages = around.map(|(before, _)| before.map_or(-1, |before| t - before));
    found.misjudged += usize::from(age != ages);
    let (camera, rest) = values.split_at(CAMERA_DIM);
    let (force, proprio) = rest.split_at(6);
    let mut features = [0.0; CAMERA_DIM];
    signals::camera_features(t, &mut features);
    let truth = signals::proprio(t);

    let line = JOINTS.line(around[2], t, 0);
    let (before, after) = around[2];
    let nearest = before
        .map(|before| t - before)
        .into_iter()
        .chain(after.map(|after| after - t))
        .min();
    let held = nearest.is_some_and(|distance| distance <= 50 * MS) && (0..=50 * MS).contains(&ages[2]);
    let worst_of = [
        (0..=100 * MS).contains(&ages[0]).then(|| {
            let rate = signals::CAMERA_RATE_MAX * ages[0] as f64 * 1e-9;
            worst(camera, &features, rate)
        }),
        FORCE
            .line(around[1], t, 5 * MS)
            .map(|bound| worst(force, &signals::wrench(t), bound)),
        line.filter(|_| held).map(|bound| {
            let opening = signals::GRIPPER_SPEED_MAX * nearest.unwrap_or(0) as f64 * 1e-9;
            worst(&proprio[..6], &truth[..6], bound)
                .max(turning(&proprio[6..11], &truth[6..11], ages[2]))
                .max(worst(&proprio[11..12], &truth[11..12], opening))
        }),
    ];
    for (stream, worst) in worst_of.into_iter().enumerate() {
        found.misjudged += usize::from((valid[stream] == 1) != worst.is_some());
        found.valid[stream] += valid[stream] as usize;
        found.worst[stream] = found.worst[stream].max(worst.unwrap_or(0.0));
    }
    // a flag has the value of the nearest sample, nothing between
    assert!(proprio[12..].iter().all(|flag| [0.0, 1.0].contains(flag)));
}

fn run(config: &AlignConfig) -> Deviations {
    let mut aligner = Aligner::fused(config, &Placement::cpu("a test")).expect("a config");
    let mut came: [SampleTimes; 3] = Default::default();
    let mut found = Deviations::default();
    let mut values = vec![0f32; config.window * COLUMNS];
    for event in Schedule::new(&robot()).expect("a robot") {
        let modality = event.sensor as usize;
        let mut features = [0.0; CAMERA_DIM];
        let (force, proprio) = (signals::wrench(event.true_ns), signals::proprio(event.true_ns));
        let sample: &[f32] = match event.sensor {
            Sensor::Force => &force,
            Sensor::Proprio => &proprio,
            _ => {
                signals::camera_features(event.true_ns, &mut features);
                &features
            }
        };
        let pushed = aligner
            .push(modality, event.stamp_ns, Values::from_f32(sample))
            .expect("a sample");
        assert_eq!(pushed.jumped_ns, None);
        let times = &mut came[modality].0;
        times.insert(times.partition_point(|&time| time < event.true_ns), event.true_ns);
        while let Some(target) = aligner.due() {
            let mut window = aligner.window(target);
            window.write(0, &mut values);
            let masks = window.masks();
            for (i, values) in values.chunks_exact(COLUMNS).enumerate() {
                let of_row = 3 * i..3 * i + 3;
                let (valid, age) = (&masks.valid[of_row.clone()], &masks.age_ns[of_row]);
                row(masks.timestamps_ns[i], values, valid, age, &came, &mut found);
            }
            found.observations += 1;
        }
    }
    found
}

#[test]
fn fused_values_are_the_truth_within_the_bounds_of_the_signals() {
    let found = run(&config("null", 33.0));
    assert_eq!(found.misjudged, 0, "{found:?}");
    assert!(found.worst.iter().all(|&share| share <= 1.0), "{found:?}");
    // nor is there much room: the bounds are nearly met
    assert!(found.worst.iter().all(|&share| share > 0.3), "{found:?}");
    // 20 s at 60 Hz, without the start, the end, and the first rows of windows
    assert!((1190..=1200).contains(&found.observations), "{found:?}");
    let rows = 4 * found.observations;
    // the camera was away for 0.5 s, less the 0.1 s for which its sample may be held, and force for 0.3 s
    let missing = [0.4, 0.3, 0.0].map(|seconds| (4.0 * 60.0 * seconds) as usize);
    for (valid, missing) in found.valid.iter().zip(missing) {
        assert!((rows - missing - 60..=rows - missing + 30).contains(valid), "{found:?}");
    }
}

#[test]
fn what_max_wait_sends_early_is_the_truth_within_the_bounds_as_well() {
    let found = run(&config("15", 33.0));
    assert_eq!(found.misjudged, 0, "{found:?}");
    assert!(found.worst.iter().all(|&share| share <= 1.0), "{found:?}");
    assert!(found.observations > 1190, "{found:?}");
    // force delays a target by its reorder_ms and more, so that some are sent without it
    assert!(found.valid[1] > 3000, "{found:?}");
}

/// A configured `latency_ms` that is wrong by half for the camera, or by 1 ms for force, makes errors beyond the bounds.
#[test]
fn a_wrong_latency_is_seen() {
    let found = run(&config("null", 16.5));
    assert!(found.worst[0] > 1.0, "{found:?}");
    let mut wrong = config("null", 33.0);
    wrong.modalities[1].latency_ms = 1.0;
    let found = run(&wrong);
    assert!(found.worst[0] <= 1.0 && found.worst[1] > 1.0, "{found:?}");
}
