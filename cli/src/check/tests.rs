//! Tests of `check` on a configuration that has every key, one of them wrong. The finding must name that key, and must not
//! contain terms of Rust.

use super::files::alone;
use super::findings::Findings;
use super::wiring;
use crate::output::Level;
use serde_yaml::Value;
use std::path::{Path, PathBuf};

const CONFIG: &str = "
device: cpu
max_device_mb: 512
chains:
  arm: { urdf: arm.urdf, base: base, tip: tip, joints: [elbow, shoulder], limits: { elbow: [-1, 1] },
         tool: { translation_m: [0, 0, 0.1], rotation_xyzw: [0, 0, 0, 1] } }
kinematics:
  - { input: joints, from: { columns: [position, velocity], names: { key: name, order: [elbow, shoulder] } }, chain: arm,
      make: [jacobian, twist], frame: tool, name: moving }
  - { input: proprio, channels: [7, 9], chain: arm, make: pose }
  - { input: target, chain: arm, make: joints,
      inverse: { task: position, position_tolerance_m: 0.001, rotation_tolerance_rad: 0.01, weights: [1, 0, 0, 1, 1, 1], seeds: 8,
                 max_iterations: 20, select: nearest, max_joint_step: 0.3, posture: 0.02, rest: [0, 0.5] } }
sim:
  seed: 1
  duration_s: 5
  start_ns: 1000
  real_time: true
  streams:
    camera: { rate_hz: 30, clock_offset_ms: 1, jitter_ms: 0.1, latency_ms: 1, latency_jitter_ms: 0.1, drop_rate: 0.1,
              dropouts: [{ start_s: 1, duration_s: 1 }] }
clock:
  inputs: [{ input: imu, clock: device, latency_ms: 1, window_s: 30, lock_s: 10, reset_ms: 100 }]
voxelize:
  origin_m: [0, 0, 0]
  voxel_size_m: [0.1, 0.1, 0.1]
  shape: [8, 8, 8]
  channels: [occupancy, mean_z]
  layout: coo
  dtype: float32
  max_voxels: 100
  max_wait_ms: 50
  reset_ms: 1000
  max_device_mb: 64
  inputs:
    - { input: lidar, from: { columns: [points.x, points.y, points.z], stamp: header.stamp },
        extrinsic: { translation_m: [0, 0, 1], rotation_xyzw: [0, 0, 0, 1] } }
    - { input: rear }
map:
  frame: world
  voxel_size_m: 0.1
  shape: [8, 8, 8]
  origin_m: [0, 0, 0]
  emit_every: 2
  max_wait_ms: 50
  reset_ms: 1000
  poses:
    base: { input: odometry, from: { columns: [pose.position, pose.orientation] }, latency_ms: 1, max_gap_ms: 50, extrapolate_ms: 5,
            reset_ms: 1000 }
  inputs:
    - { input: depth, latency_ms: 1, pose: base, extrinsic: { translation_m: [0, 0, 1], rotation_xyzw: [0, 0, 0, 1] },
        camera: { width: 4, height: 3, focal_px: [2, 2], principal_px: [1.5, 1], unit_m: 0.001, depth_m: [0.1, 5], min_cell_m: 0.05 } }
    - { input: rear, from: { columns: [points.x, points.y, points.z], stamp: header.stamp } }
  tsdf: { truncation_m: 0.4, distance: axis, weight: constant, max_weight: 64, decay: { period_ms: 100, part: 0.1 } }
  occupancy: { hit: 0.7, miss: 0.4, clamp: [0.1, 0.9], max_range_m: 10, band_m: 0.1, decay: { period_ms: 100, part: 0.1 } }
  esdf: { from: occupancy, max_distance_m: 2, slice_m: [0, 1] }
  outputs: [tsdf, esdf_slice]
fuse:
  rate_hz: 50
  window: 4
  stride: 2
  max_wait_ms: 100
  dtype: float32
  fill_value: 0
  trigger: { stream: arm, every: 2, min_interval_ms: 5, rows: period }
  residence: { fused: { kind: shared, slots: 6, backpressure: true, consumers: 2, lease_timeout_ms: 100 } }
  modalities:
    - { input: arm, dim: 2, interpolation: linear, latency_ms: 1, max_gap_ms: 50, extrapolate_ms: 5, min_period_ms: 5,
        reorder_ms: 1, wait: true, reset_ms: 500, jump_ms: 5000,
        from: { columns: [position], names: { key: name, order: [a, b] }, stamp: { metadata: t, unit: ms } } }
    - { input: pose, dim: 5, max_age_ms: 50, groups: [{ channels: [0, 4], interpolation: slerp, max_gap_ms: 40, canonical: true, order: xyzw },
                                      { channels: [4, 5], interpolation: previous, max_age_ms: 40 }] }
  attach: [{ input: voxels, output: grids, rows: 1, max_age_ms: 200, latency_ms: 1, min_period_ms: 50, reorder_ms: 1, wait: false,
             reset_ms: 500, jump_ms: 5000, max_held_mb: 64 }]
align:
  rate_hz: 50
  emit_every: 2
  modalities: [{ input: arm, dim: 2, interpolation: linear }]
group:
  policy: approximate
  queue_size: 10
  age_penalty: 0.1
  max_span_ms: 50
  max_held_mb: 64
  inputs: [{ input: a, min_period_ms: 5, latency_ms: 1, reset_ms: 500, jump_ms: 5000 }, { input: b }]
resample:
  interpolation: linear
  max_gap_ms: 50
  extrapolate_ms: 5
  fill_value: 0
record: { path: nowhere }
replay: { path: nowhere, speed: 2.0, order: stamp }
lerobot:
  robot_type: arm
  fps: 25
  task: pick
  tasks: task
  episodes: begin
  episode_gap_ms: 500
  on_invalid: hold
  truth: true
  features:
    - { name: observation.state, modalities: [arm, pose], names: [a, b, c, d, e, f, g] }
    - { name: action, stream: command, take: next, max_age_ms: 50, latency_ms: 1, dtype: bool }
    - { name: observation.images.front, images: front, take: previous }
    - { name: observation.force, window: force, samples: 10, pose_of: { chain: arm, channels: [0, 2] } }
    - { name: action.joints, stream: wanted, joints_of: { chain: arm, inverse: { seeds: 8, select: nearest } } }
";

const DATAFLOW: &str = "
nodes:
  - { id: robot, path: robocache-sim, args: --config config.yml, outputs: [camera], output_types: { camera: 'robocache/v1/CameraFeatures[dim=128]' },
      shared_memory_pool_size: 64MB, deploy: { machine: a, labels: { gpu: 'true' } }, env: { A: b } }
  - { id: group, path: robocache-group, args: --config config.yml,
      inputs: { a: robot/camera, b: { source: robot/camera, queue_size: 40, queue_policy: drop_oldest } },
      input_types: { a: 'robocache/v1/CameraFeatures[dim=128]' }, outputs: [a] }
  - { id: policy, path: policy.py, inputs: { a: group/a } }
";

/// Terms of Rust that a finding must not contain, since users of a configuration do not know them.
const OF_RUST: [&str; 35] = [
    "usize",
    "isize",
    "u64",
    "u32",
    "u16",
    "u8",
    "i64",
    "i32",
    "f64",
    "f32",
    "str`",
    "String",
    "Vec<",
    "Option",
    "Some(",
    "None",
    "struct",
    "enum",
    "tuple",
    "newtype",
    "variant",
    "identifier",
    "missing field",
    "unknown field",
    "invalid type",
    "invalid value",
    "invalid length",
    "unit value",
    ", expected",
    "deserial",
    "serde",
    "EOF",
    "trait",
    "::",
    "untagged",
];

/// Parts of errors about two keys that contradict each other. Such an error names only the key that the test did not change.
const OF_TWO: [&str; 5] = [
    "observations a second (allowed",
    "interpolation: it is missing",
    "no modality `",
    // The file of a chain's robot.
    "arm.urdf: ",
    "(os error",
];

/// YAML of the values that replace a valid value. Each is wrong for most keys.
const WRONG: [&str; 16] = [
    "null",
    "true",
    "-1",
    "0",
    "1.5",
    ".nan",
    "1e300",
    "18446744073709551615",
    "-9223372036854775808",
    "x",
    "''",
    "[]",
    "{}",
    "[1, x]",
    "{ a: 1 }",
    "!tag x",
];

/// Path to a value in a document: keys and indices, outermost first.
type Place = Vec<Value>;

/// Collects in `found` the paths of all values below `value`, whose own path is `at`.
fn places(value: &Value, at: &mut Place, found: &mut Vec<Place>) {
    let entries: Vec<(Value, &Value)> = match value {
        Value::Mapping(map) => map.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Sequence(list) => list.iter().enumerate().map(|(i, value)| (i.into(), value)).collect(),
        _ => Vec::new(),
    };
    for (key, value) in entries {
        at.push(key);
        found.push(at.clone());
        places(value, at, found);
        at.pop();
    }
}

fn at<'a>(value: &'a mut Value, place: &[Value]) -> &'a mut Value {
    place.iter().fold(value, |value, key| match key.as_u64() {
        Some(i) => &mut value[i as usize],
        None => &mut value[key.as_str().unwrap()],
    })
}

/// Temporary folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("robocache-words-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let arm = include_str!("../../../tests/common/planar.urdf");
        std::fs::write(path.join("arm.urdf"), arm).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Replaces each value of a YAML text by each mistake in turn. Returns the path of the value, the mistake and the wrong text.
fn mistakes(text: &str) -> Vec<(Place, &'static str, String)> {
    let whole: Value = serde_yaml::from_str(text).unwrap();
    let mut found = Vec::new();
    places(&whole, &mut Vec::new(), &mut found);
    let mut mistakes = Vec::new();
    for place in found {
        for wrong in WRONG {
            let mut changed = whole.clone();
            *at(&mut changed, &place) = serde_yaml::from_str(wrong).unwrap();
            mistakes.push((place.clone(), wrong, serde_yaml::to_string(&changed).unwrap()));
        }
        let (key, map) = place.split_last().unwrap();
        let mut changed = whole.clone();
        if let Value::Mapping(map) = at(&mut changed, map) {
            let value = map.remove(key).unwrap();
            let without = map.clone();
            map.insert(format!("{}x", key.as_str().unwrap()).into(), value);
            mistakes.push((place.clone(), "misspelt", serde_yaml::to_string(&changed).unwrap()));
            *at(&mut changed, &place[..place.len() - 1]) = Value::Mapping(without);
            mistakes.push((place.clone(), "absent", serde_yaml::to_string(&changed).unwrap()));
        }
    }
    mistakes
}

/// Writes a text to the file, and returns the findings of `check`. If `check` fails, its error is the last finding.
fn findings_of(file: &Path, text: &str, check: impl Fn(&mut Findings) -> eyre::Result<()>) -> Vec<(Level, String)> {
    std::fs::write(file, text).unwrap();
    let mut findings = Findings::default();
    let failed = check(&mut findings).err();
    let found = findings
        .0
        .into_iter()
        .map(|found| (found.level, format!("{}: {}", found.at, found.problem)));
    found
        .chain(failed.map(|error| (Level::Error, error.to_string())))
        .collect()
}

/// Returns a line that quotes the first term of Rust in the message `words` about `of`; `None` if there is none.
fn rust(words: &str, of: &str) -> Option<String> {
    let word = OF_RUST.iter().find(|word| words.contains(*word))?;
    Some(format!("`{word}` in: {words}\n  {of}"))
}

fn assert_none(problems: &[String]) {
    let some = problems[..problems.len().min(40)].join("\n");
    assert!(problems.is_empty(), "{}: {some}", problems.len());
}

#[test]
fn what_is_said_of_any_wrong_value_names_its_key_in_the_language_of_configurations() {
    let folder = Folder::new("config");
    let file = folder.0.join("config.yml");
    let check = |text: &str| {
        findings_of(&file, text, |findings| {
            alone(&file, findings);
            Ok(())
        })
    };
    let found = check(CONFIG);
    assert!(found.iter().all(|(level, _)| *level == Level::Note), "{found:#?}");
    let (mut refused, mut mistaken, mut problems) = (0, 0, Vec::new());
    for (place, wrong, text) in mistakes(CONFIG) {
        mistaken += 1;
        let at = format!("{place:?} {wrong}");
        let found = check(&text);
        problems.extend(found.iter().filter_map(|(_, words)| rust(words, &at)));
        let errors: Vec<&String> = found
            .iter()
            .filter(|(level, _)| *level == Level::Error)
            .map(|(_, words)| words)
            .collect();
        refused += usize::from(!errors.is_empty());
        let key = place.iter().rev().find_map(Value::as_str).unwrap();
        let names_it = |words: &&&String| words.contains(key) || OF_TWO.iter().any(|of_two| words.contains(of_two));
        if !errors.is_empty() && errors.iter().find(names_it).is_none() {
            problems.push(format!("{at}: {errors:?}"));
        }
    }
    assert_none(&problems);
    assert!(mistaken > 2500 && refused > mistaken / 2, "{refused} of {mistaken}");
}

#[test]
fn what_is_said_of_a_wrong_dataflow_is_in_its_language() {
    let folder = Folder::new("dataflow");
    let file = folder.0.join("dataflow.yml");
    std::fs::write(folder.0.join("config.yml"), CONFIG).unwrap();
    let check = |text: &str| findings_of(&file, text, |findings| wiring::check(&file, None, findings));
    let mut problems = Vec::new();
    for (place, wrong, text) in mistakes(DATAFLOW) {
        let at = format!("{place:?} {wrong}");
        problems.extend(check(&text).iter().filter_map(|(_, words)| rust(words, &at)));
    }
    assert_none(&problems);
}

#[test]
fn what_is_said_of_a_text_that_is_no_yaml_is_in_its_language() {
    let folder = Folder::new("text");
    let file = folder.0.join("config.yml");
    let mut texts: Vec<String> = [
        "",
        "[]",
        "1",
        "x",
        "a: b: c",
        "a: [1",
        "{",
        "? [a]\n: 1",
        "1: 2",
        "a: &b 1\nc: *d",
        "---\na: 1\n---\nb: 2",
        "\t",
        "a: !!int x",
        "\u{0}",
    ]
    .map(str::to_owned)
    .into();
    texts.extend((0..CONFIG.len()).step_by(37).map(|end| CONFIG[..end].to_owned()));
    let mut problems = Vec::new();
    for text in texts {
        for is_dataflow in [false, true] {
            let found = findings_of(&file, &text, |findings| match is_dataflow {
                true => wiring::check(&file, None, findings),
                false => {
                    alone(&file, findings);
                    Ok(())
                }
            });
            problems.extend(found.iter().filter_map(|(_, words)| rust(words, &text)));
        }
    }
    assert_none(&problems);
}

#[test]
fn a_chain_that_may_not_be_meant_is_a_warning() {
    let folder = std::env::temp_dir().join(format!("robocache-check-chain-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (urdf, file) = (folder.join("arm.urdf"), folder.join("robot.yml"));
    let chain = "chains: { arm: { urdf: arm.urdf, base: base, tip: tip } }";
    let entries = "kinematics: [{ input: a, chain: arm, make: pose }, { input: b, chain: arm, make: joints }]";
    std::fs::write(&file, format!("{chain}\n{entries}\n")).unwrap();
    let radians = include_str!("../../../tests/common/planar.urdf");
    let degrees = radians.replacen("lower=\"-3\" upper=\"3\"", "lower=\"-170\" upper=\"170\"", 1);
    let told: Vec<Vec<(Level, String, String)>> = [radians, &degrees]
        .map(|text| {
            std::fs::write(&urdf, text).unwrap();
            let mut findings = Findings::default();
            alone(&file, &mut findings);
            let told = findings
                .0
                .into_iter()
                .map(|finding| (finding.level, finding.at, finding.problem));
            told.collect()
        })
        .into();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(told[0].is_empty(), "{:?}", told[0].len());
    // The warning comes once, though two entries name the chain.
    assert_eq!(told[1].len(), 1);
    let (level, at, problem) = &told[1][0];
    assert!(*level == Level::Warning && at == "chains: arm");
    assert!(
        problem.contains("joint `shoulder`: limits -170 and 170 are more than two turns"),
        "{problem}"
    );
}
