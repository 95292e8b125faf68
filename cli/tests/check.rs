//! `robocache check`: each of these planted mistakes is found, and none in the project's own files.

use crate::common::{Folder, MS, command, done, record, root, run, sample};
use serde_json::Value;
use std::path::Path;

/// A mistake in the project's own files: what stands in a file, and in its place what is wrong.
struct Mistake {
    dataflow: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// What the finding says: its level, where, and a part of the problem.
    found: (&'static str, &'static str, &'static str),
}

const DEMO: &str = "dataflow.yml";
const SENSORS: &str = "examples/sensors.yml";
const REPLAY: &str = "examples/replay.yml";

const fn demo(from: &'static str, to: &'static str, found: (&'static str, &'static str, &'static str)) -> Mistake {
    Mistake {
        dataflow: DEMO,
        file: "robocache.yml",
        from,
        to,
        found,
    }
}

const fn wiring(from: &'static str, to: &'static str, found: (&'static str, &'static str, &'static str)) -> Mistake {
    Mistake {
        dataflow: DEMO,
        file: DEMO,
        from,
        to,
        found,
    }
}

const fn sensors(from: &'static str, to: &'static str, found: (&'static str, &'static str, &'static str)) -> Mistake {
    Mistake {
        dataflow: SENSORS,
        file: "examples/sensors/config.yml",
        from,
        to,
        found,
    }
}

const MISTAKES: &[Mistake] = &[
    // What the library refuses.
    demo(
        "max_wait_ms: 100",
        "max_wait: 100",
        (
            "error",
            "fuse",
            "unknown key `max_wait`, did you mean `max_wait_ms`? (allowed: rate_hz",
        ),
    ),
    demo(
        "interpolation: nearest",
        "interpolation: closest",
        ("error", "fuse", "`closest` is no interpolation"),
    ),
    // Slips of the pen, of which each names what may be meant.
    demo(
        "interpolation: nearest",
        "interpolation: neerest",
        (
            "error",
            "fuse",
            "`neerest` is no interpolation, did you mean `nearest`?",
        ),
    ),
    demo(
        "layout: dense",
        "layout: dens",
        ("error", "voxelize", "`dens` is no layout, did you mean `dense`?"),
    ),
    demo(
        "channels: [occupancy, mean_z]",
        "channels: [ocupancy, mean_z]",
        (
            "error",
            "voxelize",
            "`ocupancy` is no channel, did you mean `occupancy`?",
        ),
    ),
    demo(
        "  window: 16",
        "  residence: { observations: shared }\n  window: 16",
        (
            "error",
            "fuse",
            "`observations` is no output, did you mean `observation`?",
        ),
    ),
    demo(
        "  window: 16",
        "  residence: { observation: { kind: shared, slot: 8 } }\n  window: 16",
        (
            "error",
            "fuse",
            "residence.observation.slot: unknown key `slot`, did you mean `slots`?",
        ),
    ),
    demo(
        "drop_rate: 0.01",
        "droprate: 0.01",
        (
            "error",
            "sim",
            "streams.camera.droprate: unknown key `droprate`, did you mean `drop_rate`?",
        ),
    ),
    demo(
        "trigger: { stream: camera }",
        "trigger: { stream: camera, rows: sample }",
        (
            "error",
            "fuse",
            "`sample` is not allowed, did you mean `samples`? (allowed: period, samples)",
        ),
    ),
    // In the language of configurations, with the place.
    demo(
        "rate_hz: 30  ",
        "rate_hz: fast",
        ("error", "fuse", "rate_hz: \"fast\" is not allowed (allowed: a number)"),
    ),
    demo(
        "window: 16",
        "window: 1.5",
        (
            "error",
            "fuse",
            "window: 1.5 is not allowed (allowed: a whole number, 0 or more)",
        ),
    ),
    demo(
        "  modalities:               #",
        "  modality:                 #",
        ("error", "fuse", "unknown key `modality`, did you mean `modalities`?"),
    ),
    demo(
        "{ input: lidar }",
        "{ input: lidar, from: points }",
        (
            "error",
            "voxelize",
            "inputs[0].from: \"points\" is not allowed (allowed: a map of columns, names, stamp)",
        ),
    ),
    demo(
        "  dtype: float32\n  modalities",
        "  dtype: float32\n  window: 8\n  modalities",
        (
            "error",
            "configuration",
            "fuse: the key `window` is given twice (allowed: once) at line 27 column 3",
        ),
    ),
    // Units.
    demo(
        "max_wait_ms: 100",
        "max_wait_ms: 0.2",
        (
            "warning",
            "fuse.max_wait_ms",
            "0.2 ms, 200 us, and 0.2 s would be 200 ms (plausible: 1 to 60000 ms)",
        ),
    ),
    demo(
        "max_age_ms: 250",
        "max_age_ms: 200000000",
        (
            "warning",
            "fuse.attach[0].max_age_ms",
            "200000000 ms, 2.31 days, and 200000000 us would be 200000 ms",
        ),
    ),
    demo(
        "latency_ms: 33, max_age_ms: 50",
        "latency_ms: 33000000, max_age_ms: 50",
        (
            "warning",
            "fuse.modalities[0].latency_ms",
            "33000000 ns would be 33 ms (plausible: 0.05 to 10000 ms)",
        ),
    ),
    demo(
        "voxel_size_m: [0.4, 0.4, 0.4]",
        "voxel_size_m: [400, 400, 400]",
        (
            "warning",
            "voxelize.voxel_size_m",
            "is it in millimetres? (plausible: 0.001 to 10 m)",
        ),
    ),
    sensors(
        "window: 16 ",
        "window: 400000 ",
        (
            "warning",
            "fuse.window",
            "400000 rows, 1 steps apart, at 50 Hz are 2.22 hours (plausible: up to 600 s)",
        ),
    ),
    sensors(
        "rate_hz: 50\n  window: 16 ",
        "rate_hz: 1000000\n  window: 100000 ",
        (
            "warning",
            "fuse.window",
            "an observation is 14.0 MB, and 1000000 a second are 14.0 TB a second",
        ),
    ),
    demo(
        "window: 16\n",
        "window: 500000\n",
        (
            "error",
            "nodes.fuse.outputs.observation",
            "bytes (allowed: 268435456 with its metadata, what dora carries)",
        ),
    ),
    sensors(
        "rate_hz: 50\n",
        "rate_hz: 1000000\n",
        (
            "warning",
            "fuse.rate_hz",
            "1000000 Hz is a step of 1.00 us (plausible: 0.01 to 10000 Hz)",
        ),
    ),
    sensors(
        "translation_m: [0.3, 0, 0.5]",
        "translation_m: [300, 0, 500]",
        (
            "warning",
            "voxelize.inputs[0].extrinsic.translation_m",
            "is it in millimetres?",
        ),
    ),
    demo(
        "trigger: { stream: camera }",
        "trigger: { stream: camrea }",
        ("error", "fuse", "camrea"),
    ),
    demo(
        "{ channels: [11, 15],",
        "{ channels: [12, 15],",
        ("error", "fuse", "leaves a hole"),
    ),
    demo(
        "\nvoxelize:",
        "\nvoxelise:",
        (
            "error",
            "configuration",
            "unknown key `voxelise`, did you mean `voxelize`?",
        ),
    ),
    // Limits, waits and widths in a configuration.
    demo(
        "latency_ms: 33, max_age_ms: 50",
        "latency_ms: 33, max_age_ms: 10",
        ("warning", "fuse.modalities[0].max_age_ms", "speaks every 33.3 ms"),
    ),
    demo(
        "max_gap_ms: 50, extrapolate_ms: 5 }\n    - input",
        "max_gap_ms: 0.5 }\n    - input",
        ("warning", "fuse.modalities[1].max_gap_ms", "masked between its samples"),
    ),
    demo(
        "[11, 15], interpolation: previous, max_age_ms: 50",
        "[11, 15], interpolation: previous, max_age_ms: 1",
        ("warning", "fuse.modalities[2].groups[3].max_age_ms", "every 2.00 ms"),
    ),
    demo(
        "max_wait_ms: 100",
        "max_wait_ms: 20",
        ("warning", "fuse.max_wait_ms", "`camera` comes"),
    ),
    demo(
        "max_wait_ms: 100",
        "max_wait_ms: null",
        ("warning", "fuse.max_wait_ms", "falls silent ends all observations"),
    ),
    demo(
        "{ input: camera, dim: 128",
        "{ input: camera, dim: 64",
        ("error", "fuse.modalities[0].dim", "128 values"),
    ),
    demo(
        "rate_hz: 30  ",
        "rate_hz: 4000",
        ("warning", "fuse.rate_hz", "fastest stream has 1000 Hz"),
    ),
    demo(
        "min_period_ms: 95",
        "min_period_ms: 150",
        ("warning", "fuse.attach[0].min_period_ms", "every 100 ms"),
    ),
    demo(
        "max_age_ms: 250",
        "max_age_ms: 50",
        ("warning", "fuse.attach[0].max_age_ms", "comes every 100 ms"),
    ),
    demo(
        "rows: 1, latency_ms: -100",
        "max_held_mb: 1, latency_ms: -100",
        ("warning", "fuse.attach[0].max_held_mb", "the oldest are dropped"),
    ),
    demo(
        "dim: 6, interpolation: linear,",
        "dim: 6, jump_ms: 0.5, interpolation: linear,",
        ("error", "fuse.modalities[1].jump_ms", "every sample is a clock jump"),
    ),
    demo(
        "channels: [occupancy, mean_z]",
        "channels: [occupancy, mean_reflectance]",
        ("error", "voxelize.channels[1]", "no field `reflectance`"),
    ),
    demo(
        "shape: [64, 64, 16]",
        "shape: [512, 512, 128]",
        ("warning", "voxelize.shape", "a second"),
    ),
    demo(
        "proprio:\n      drop_rate: 0.002",
        "proprio: null",
        ("error", "nodes.fuse.inputs.proprio", "sim.streams.proprio is null"),
    ),
    demo(
        "real_time: true",
        "real_time: false",
        ("warning", "nodes.fuse.inputs.camera.queue_policy", "messages are lost"),
    ),
    demo(
        "  window: 16",
        "  residence: { observation: { kind: shared, slots: 8, backpressure: true, consumers: 2 } }\n  window: 16",
        (
            "error",
            "residence of `observation`",
            "consumers: 2, and 1 inputs read it",
        ),
    ),
    demo(
        "  window: 16",
        "  residence: { fused: shared }\n  window: 16",
        ("warning", "residence of `fused`", "no node reads"),
    ),
    demo(
        "  window: 16",
        "  residence: { observation: { kind: shared, slots: 2 } }\n  window: 16",
        ("warning", "residence of `observation`", "slots: 2"),
    ),
    demo(
        "trigger: { stream: camera }",
        "trigger: { request: camera }",
        ("error", "fuse", "camera"),
    ),
    // Between the nodes.
    wiring(
        "      proprio: { source: robot/proprio, queue_size: 500 }\n",
        "",
        (
            "error",
            "nodes.fuse.inputs",
            "asks for `proprio`, which is not wired (wired: camera, force, voxels)",
        ),
    ),
    wiring(
        "force: { source: robot/force,",
        "wrist: { source: robot/force,",
        ("warning", "nodes.fuse.inputs.wrist", "does not ask for it"),
    ),
    wiring(
        "force: { source: robot/force,",
        "force: { source: robot/proprio,",
        ("error", "fuse.modalities[1].dim", "15 values"),
    ),
    wiring(
        "proprio: { source: robot/proprio,",
        "proprio: { source: robot/lidar,",
        ("error", "fuse.modalities[2].input", "wired to point clouds"),
    ),
    wiring(
        "lidar: { source: robot/lidar,",
        "lidar: { source: robot/camera,",
        ("error", "voxelize.inputs[0].input", "allowed: point clouds"),
    ),
    wiring(
        "queue_size: 1000",
        "queue_size: 10",
        (
            "warning",
            "nodes.fuse.inputs.force.queue_size",
            "1000 messages a second",
        ),
    ),
    wiring(
        "{ source: robot/lidar, queue_size: 4 }",
        "{ source: robot/lidar, queue_size: 1 }",
        ("warning", "nodes.voxelize.inputs.lidar.queue_size", "the next is lost"),
    ),
    wiring(
        "queue_size: 30 }",
        "queue_size: 30, queue_policy: backpressure }",
        (
            "warning",
            "nodes.fuse.inputs.camera.queue_policy",
            "holds its sensor up",
        ),
    ),
    wiring(
        "observation: { source: fuse/observation, queue_size: 60 }",
        "observation: { source: fuse/observation, queue_size: 60, queue_policy: backpressure }",
        (
            "warning",
            "nodes.policy.inputs.observation.queue_policy",
            "`fuse/observation` is live: a slow node holds its sensor up",
        ),
    ),
    wiring(
        "    shared_memory_pool_size: 64MB\n    inputs:\n      lidar",
        "    shared_memory_pool_size: 1000000GB\n    inputs:\n      lidar",
        ("warning", "nodes", "and /dev/shm has"),
    ),
    wiring(
        "    shared_memory_pool_size: 64MB      # a cloud is 1.4 MB\n",
        "    shared_memory_pool_size: 4MB\n",
        ("warning", "nodes.robot.shared_memory_pool_size", "a message of `lidar`"),
    ),
    wiring(
        "    outputs: [observation]",
        "    outputs: [observation, fused]",
        ("warning", "nodes.fuse.outputs.fused", "nobody reads it"),
    ),
    wiring(
        "    outputs: [observation]",
        "    outputs: [observation, diagnostics]",
        ("warning", "nodes.fuse.outputs.diagnostics", "nobody reads it"),
    ),
    wiring(
        "    outputs: [observation]",
        "    outputs: [observations]",
        (
            "error",
            "nodes.fuse.outputs.observations",
            "no such output, did you mean `observation`? (allowed: fused, grids, observation, diagnostics)",
        ),
    ),
    wiring(
        "    outputs: [observation]",
        "    outputs: [fused]",
        ("warning", "fuse.attach[0]", "declares none of grids, observation"),
    ),
    wiring(
        "      voxels: robocache/v1/VoxelsDense\n\n  - id: policy",
        "      voxels: robocache/v1/VoxelsCoo\n\n  - id: policy",
        ("error", "nodes.voxelize.output_types.voxels", "of the type VoxelsDense"),
    ),
    wiring(
        "      force: robocache/v1/Wrench[dim=6]\n      proprio: robocache/v1/Proprio[dim=15]\n      lidar",
        "      force: robocache/v1/Wrench[dim=3]\n      proprio: robocache/v1/Proprio[dim=15]\n      lidar",
        (
            "error",
            "nodes.robot.output_types.force",
            "dim=3, and a sample has 6 values",
        ),
    ),
    wiring(
        "robocache-voxelize",
        "robocache-voxelise",
        (
            "error",
            "nodes.voxelize.path",
            "`robocache-voxelise` is no node, did you mean `voxelize`?",
        ),
    ),
    wiring(
        "robocache-fuse\n    args: --config robocache.yml",
        "robocache-fuse\n    args: --verbose",
        ("error", "nodes.fuse.args", "no configuration is given"),
    ),
    wiring(
        "robocache-fuse\n    args: --config robocache.yml",
        "robocache-align\n    args: --config robocache.yml",
        ("error", "configuration", "the section `align:` is missing"),
    ),
    wiring(
        "robocache-fuse\n    args: --config robocache.yml",
        "robocache-fuse\n    args: --config robot.yml",
        ("error", "configuration", "it can't be read"),
    ),
    // Sensors of one's own, of which only the configuration tells.
    sensors(
        "max_wait_ms: 150",
        "max_wait_ms: null",
        ("warning", "voxelize.max_wait_ms", "ends all grids"),
    ),
    sensors(
        "rotation_xyzw: [0, 0, 1, 0]",
        "rotation_xyzw: [0, 0, 1, 1]",
        (
            "warning",
            "voxelize.inputs[1].extrinsic.rotation_xyzw",
            "a length of 1.41",
        ),
    ),
    sensors(
        "dim: 16, interpolation: previous",
        "dim: 16, latency_ms: 250, interpolation: previous",
        ("warning", "fuse.max_wait_ms", "`camera` comes 250 ms"),
    ),
    sensors(
        "dim: 7, interpolation: linear",
        "dim: 7, min_period_ms: 80, interpolation: linear",
        ("warning", "fuse.modalities[1].max_gap_ms", "speaks every 80.0 ms"),
    ),
    Mistake {
        dataflow: SENSORS,
        file: SENSORS,
        from: "rear: { source: rear/rear, queue_size: 4 }",
        to: "rear: { source: front/front, queue_size: 4 }",
        found: ("warning", "nodes.voxelize.inputs.rear", "as `front` is"),
    },
    Mistake {
        dataflow: SENSORS,
        file: SENSORS,
        from: "imu: { source: imu/imu, queue_size: 200 }",
        to: "imu: { source: imu/imu, queue_size: 1 }",
        found: (
            "warning",
            "nodes.fuse.inputs.imu.queue_size",
            "1, and messages of `imu` come 20.0 times a second by its `max_gap_ms`: a busy node loses some (allowed: 2 or more)",
        ),
    },
    Mistake {
        dataflow: SENSORS,
        file: SENSORS,
        from: "joints: { source: joints/joints, queue_size: 100 }",
        to: "joints: { source: joints/joints, queue_size: 100, queue_policy: backpressure }",
        found: (
            "warning",
            "nodes.fuse.inputs.joints.queue_policy",
            "nothing says that `joints/joints` is a replay: a slow node holds a live sensor up",
        ),
    },
    Mistake {
        dataflow: SENSORS,
        file: SENSORS,
        from: "wrench: { source: wrench/wrench, queue_size: 100 }",
        to: "wrensh: { source: wrench/wrench, queue_size: 100 }",
        found: (
            "error",
            "nodes.fuse.inputs",
            "asks for `wrench`, which is not wired, did you mean `wrensh`?",
        ),
    },
    Mistake {
        dataflow: REPLAY,
        file: "examples/recording.yml",
        from: "speed: 1.0 ",
        to: "speed: max",
        found: ("warning", "nodes.fuse.inputs.force.queue_policy", "replay.speed is max"),
    },
];

/// The project's dataflows and configurations.
const FILES: [&str; 18] = [
    "dataflow.yml",
    "robocache.yml",
    "examples/bag.yml",
    "examples/bag/robot.yml",
    "examples/force-mean.yml",
    "examples/force-mean/config.yml",
    "examples/hub.yml",
    "examples/hub/config.yml",
    "examples/lerobot.yml",
    "examples/lerobot/config.yml",
    "examples/offline.yml",
    "examples/offline/config.yml",
    "examples/record.yml",
    "examples/recording.yml",
    "examples/replay.yml",
    "examples/sensors.yml",
    "examples/sensors/config.yml",
    "examples/view.yml",
];

/// A copy of the project's own files.
fn unrecorded() -> Folder {
    let folder = Folder::new();
    for file in FILES {
        folder.write(file, &std::fs::read_to_string(root().join(file)).unwrap());
    }
    folder
}

/// The same, and a recording for those that replay one.
fn project() -> Folder {
    let folder = unrecorded();
    let of = |stream: &'static str, dim: usize, ms: i64, count: i64| {
        (0..count).map(move |i| (stream, sample(i * ms * MS, &vec![0.5; dim])))
    };
    let clouds = of("lidar", 4, 100, 10).map(|(stream, mut cloud)| {
        cloud.header.shape.set([1, 4]);
        cloud.header.fields.set(["x", "y", "z", "intensity"]);
        (stream, cloud)
    });
    let robot = of("camera", 128, 33, 30)
        .chain(of("force", 6, 1, 1000))
        .chain(of("proprio", 15, 2, 500));
    record(&folder.path("out/recording"), robot.chain(clouds));
    let arrays = of("camera", 16, 33, 30)
        .chain(of("joints", 7, 10, 100))
        .chain(of("wrench", 6, 2, 500));
    record(&folder.path("out/offline"), arrays);
    folder
}

fn replace(folder: &Folder, file: &str, from: &str, to: &str) {
    let path = folder.path(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{file}: {from}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

/// The exit code and what is found, without notes.
fn check(folder: &Path, words: &[&str]) -> (i32, Vec<Value>) {
    let done = done(command(["check", "--json"]).args(words).current_dir(folder));
    let mut found = done.json()["findings"].as_array().unwrap().clone();
    found.retain(|finding| finding["level"] != "note");
    // Whether this machine has room for the project's own pools is not asked here.
    let is_of_machine = |finding: &Value| {
        let problem = finding["problem"].as_str().unwrap();
        finding["at"] == "nodes" && problem.contains("/dev/shm has") && !problem.contains("TB")
    };
    let all = found.len();
    found.retain(|finding| !is_of_machine(finding));
    let is_clean = found.is_empty() && found.len() < all;
    (if is_clean { 0 } else { done.code }, found)
}

fn says(finding: &Value, (level, at, problem): (&str, &str, &str)) -> bool {
    let text = |key: &str| finding[key].as_str().unwrap();
    text("level") == level && text("at") == at && text("problem").contains(problem)
}

#[test]
fn nothing_is_wrong_with_the_projects_own_files() {
    for file in &FILES {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let folder = match *file {
            // Its recording is what the others replay.
            "examples/record.yml" => unrecorded(),
            _ => project(),
        };
        let (code, found) = match text.contains("\nnodes:") {
            true => check(&folder.0, &["--dataflow", file, "--strict"]),
            // Its plugin is one of its own program.
            false if file.starts_with("examples/force-mean") => continue,
            false => check(&folder.0, &[file, "--strict"]),
        };
        assert_eq!((code, found), (0, vec![]), "{file}");
    }
    let dataflows = FILES
        .iter()
        .filter(|file| std::fs::read_to_string(root().join(file)).unwrap().contains("\nnodes:"));
    assert_eq!(dataflows.count(), 10);
}

#[test]
fn each_planted_mistake_is_found() {
    assert!(MISTAKES.len() >= 30);
    let mut missed = Vec::new();
    for Mistake {
        dataflow,
        file,
        from,
        to,
        found,
    } in MISTAKES
    {
        let folder = project();
        replace(&folder, file, from, to);
        let (code, came) = check(&folder.0, &["--dataflow", dataflow]);
        let errors = came.iter().any(|finding| finding["level"] == "error");
        let is_found = came.iter().any(|finding| says(finding, *found));
        // A mistake is told where it is, and perhaps where it shows; no more.
        if !is_found || came.len() > 4 || code != if errors { 2 } else { 0 } {
            missed.push(format!("{file}: {to}: {code}, {came:#?}"));
        }
    }
    assert!(
        missed.is_empty(),
        "{} of {}: {}",
        missed.len(),
        MISTAKES.len(),
        missed.join("\n")
    );
}

#[test]
fn requests_need_one_who_asks_and_hears() {
    let folder = project();
    replace(
        &folder,
        "examples/sensors/config.yml",
        "  max_wait_ms: 100 ",
        "  trigger: { request: ask }\n  max_wait_ms: 100 ",
    );
    let ask = |source: &str| {
        let folder = project();
        replace(
            &folder,
            "examples/sensors/config.yml",
            "  max_wait_ms: 100 ",
            "  trigger: { request: ask }\n  max_wait_ms: 100 ",
        );
        let wired = format!("imu: {{ source: imu/imu, queue_size: 200 }}\n      ask: {source}");
        replace(&folder, SENSORS, "imu: { source: imu/imu, queue_size: 200 }", &wired);
        check(&folder.0, &["--dataflow", SENSORS]).1
    };
    let (_, unwired) = check(&folder.0, &["--dataflow", SENSORS]);
    assert!(
        says(&unwired[0], ("error", "nodes.fuse.inputs", "asks for `ask`")),
        "{unwired:#?}"
    );
    let timer = ask("dora/timer/hz/10");
    assert!(
        says(&timer[0], ("error", "fuse.trigger", "wired to a timer")),
        "{timer:#?}"
    );
    let deaf = ask("camera/ask");
    assert!(
        says(
            &deaf[0],
            ("error", "fuse.trigger", "`camera` asks by `ask`, and reads no output")
        ),
        "{deaf:#?}"
    );
    assert_eq!(ask("show/ask"), [] as [Value; 0]);
}

#[test]
fn a_dataflow_does_not_record_over_what_it_replays() {
    let folder = project();
    let node = "\n  - id: again\n    path: ../target/release/robocache-record\n    args: --config recording.yml\n    inputs: { lidar: replay/lidar }\n";
    let path = folder.path(REPLAY);
    let text = std::fs::read_to_string(&path).unwrap() + node;
    std::fs::write(path, text).unwrap();
    let (code, found) = check(&folder.0, &["--dataflow", REPLAY]);
    assert_eq!(code, 2);
    assert!(
        found
            .iter()
            .any(|finding| says(finding, ("error", "replay.path", "recorded to by the same dataflow")))
    );
}

#[test]
fn a_configuration_that_no_node_reads_is_named() {
    let folder = project();
    let (code, found) = check(&folder.0, &["examples/sensors/config.yml", "--dataflow", DEMO]);
    assert_eq!(code, 2);
    assert!(
        says(
            &found[0],
            ("error", "nodes", "none of them reads examples/sensors/config.yml")
        ),
        "{found:#?}"
    );
    assert_eq!(check(&folder.0, &["robocache.yml", "--dataflow", DEMO]), (0, vec![]));
}

#[test]
fn exit_codes_tell_errors_from_warnings() {
    let folder = project();
    replace(&folder, "robocache.yml", "max_wait_ms: 100", "max_wait_ms: 20");
    let text = done(command(["check", "robocache.yml"]).current_dir(&folder.0));
    let line = "warning: robocache.yml: fuse.max_wait_ms: 20 ms, and `camera` comes 33.0 ms after the quickest stream: it is \
                masked, and its samples are late\n0 errors, 1 warnings\n";
    assert_eq!((text.code, text.out.as_str()), (0, line));
    assert_eq!(check(&folder.0, &["robocache.yml", "--strict"]).0, 1);
    replace(&folder, "robocache.yml", "max_wait_ms: 20", "max_wait_ms: -1");
    assert_eq!(check(&folder.0, &["robocache.yml"]).0, 2);
    assert_eq!(check(&folder.0, &["nothing.yml"]).0, 2);
    assert_eq!(run(["check"]).code, 2);
    let no_flow = done(command(["check", "--dataflow", "robocache.yml"]).current_dir(&folder.0));
    assert_eq!(no_flow.code, 2);
    assert!(
        no_flow.err.contains("robocache.yml: it is no dataflow"),
        "{}",
        no_flow.err
    );
}

#[test]
fn one_process_takes_what_its_operations_publish() {
    let folder = project();
    let config = std::fs::read_to_string(folder.path("robocache.yml")).unwrap();
    let section = |name: &str| {
        let (_, from) = config.split_once(&format!("\n{name}:")).unwrap();
        let lines = from
            .lines()
            .take_while(|line| line.is_empty() || line.starts_with(' ') || line.starts_with('#'));
        let indented: Vec<String> = lines.skip(1).map(|line| format!("    {line}\n")).collect();
        format!("  - {name}:\n{}", indented.concat())
    };
    let plugins = |names: [&str; 2]| format!("plugins:\n{}{}", section(names[0]), section(names[1]));
    let dataflow = "nodes:
  - { id: robot, path: robocache-sim, args: --config robocache.yml, shared_memory_pool_size: 64MB,
      outputs: [camera, force, proprio, lidar] }
  - { id: all, path: robocache-node, args: --config node.yml, shared_memory_pool_size: 64MB,
      inputs: { camera: robot/camera, force: robot/force, proprio: robot/proprio, lidar: robot/lidar },
      outputs: [observation] }
  - { id: policy, path: policy.py, inputs: { observation: all/observation } }
";
    folder.write("one.yml", dataflow);
    folder.write("node.yml", &plugins(["voxelize", "fuse"]));
    assert_eq!(check(&folder.0, &["--dataflow", "one.yml"]), (0, vec![]));
    // The grids are there, inside: their period is known.
    replace(&folder, "node.yml", "max_age_ms: 250", "max_age_ms: 50");
    let (_, found) = check(&folder.0, &["--dataflow", "one.yml"]);
    assert!(
        says(&found[0], ("warning", "fuse.attach[0].max_age_ms", "every 100 ms")),
        "{found:#?}"
    );
    folder.write("node.yml", &plugins(["fuse", "voxelize"]));
    let (code, found) = check(&folder.0, &["--dataflow", "one.yml"]);
    assert_eq!(code, 2);
    assert!(
        says(
            &found[0],
            ("error", "nodes.all.inputs", "asks for `voxels`, which is not wired")
        ),
        "{found:#?}"
    );
    folder.write(
        "node.yml",
        &plugins(["fuse", "voxelize"]).replace("- voxelize:", "- voxelise:"),
    );
    let (code, found) = check(&folder.0, &["--dataflow", "one.yml"]);
    assert_eq!(code, 2);
    let unknown = ("error", "plugins", "`voxelise` is no plugin of this node");
    assert!(says(&found[0], unknown), "{found:#?}");
}

#[test]
fn mistakes_in_what_the_examples_do_not_have_are_found() {
    let sim = "sim: { duration_s: 1 }\n";
    let robot = "nodes:
  - { id: robot, path: robocache-sim, args: --config robot.yml, shared_memory_pool_size: 64MB, outputs: [camera, force, lidar] }
  - { id: eyes, path: eyes.py, inputs: { camera: robot/camera, force: robot/force, lidar: robot/lidar, out: own/OUTPUT } }
  - { id: own, path: robocache-NODE, args: --config robot.yml, shared_memory_pool_size: 64MB, inputs: { INPUTS }, outputs: [OUTPUT] }
";
    let cases = [
        (
            ("group", "camera: robot/camera, force: robot/force", "force"),
            "group: { inputs: [{ input: camera }, { input: force }] }",
            ("warning", "group.queue_size", "10, and 34 messages of `force`"),
        ),
        (
            ("group", "camera: robot/camera, force: robot/force", "force"),
            "group: { queue_size: 50, inputs: [{ input: camera, min_period_ms: 50 }, { input: force }] }",
            ("warning", "group.inputs[0].min_period_ms", "every 33.3 ms"),
        ),
        (
            ("voxelize", "lidar: robot/lidar", "voxels"),
            "voxelize: { origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [8, 8, 8], channels: [count], layout: dense, \
             dtype: float16, inputs: [{ input: lidar }] }",
            ("warning", "voxelize.dtype", "can't tell counts"),
        ),
        (
            (
                "voxelize",
                "lidar: { source: robot/lidar, queue_size: 10000 }",
                "voxels",
            ),
            "voxelize: { origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [8, 8, 8], channels: [count], layout: dense, \
             inputs: [{ input: lidar }] }",
            (
                "warning",
                "nodes.own.inputs.lidar.queue_size",
                "10000 messages of `robot/lidar` may take 14.4 GB",
            ),
        ),
        (
            ("fuse", "camera: robot/camera, tick: dora/timer/hz/200", "fused"),
            "fuse: { rate_hz: 30, max_wait_ms: 100, trigger: { timer: tick }, \
             modalities: [{ input: camera, dim: 128, interpolation: previous }] }",
            ("warning", "fuse.trigger", "`tick` ticks 200 times a second"),
        ),
        (
            ("fuse", "camera: dora/timer/hz/200", "fused"),
            "fuse: { rate_hz: 30, max_wait_ms: 100, modalities: [{ input: camera, dim: 128, interpolation: previous }] }",
            ("error", "fuse.modalities[0].input", "wired to ticks of a timer"),
        ),
    ];
    for ((node, inputs, output), section, expected) in cases {
        let folder = Folder::new();
        folder.write("robot.yml", &format!("{sim}{section}\n"));
        let dataflow = robot
            .replace("NODE", node)
            .replace("INPUTS", inputs)
            .replace("OUTPUT", output);
        folder.write("flow.yml", &dataflow);
        let (_, found) = check(&folder.0, &["--dataflow", "flow.yml"]);
        assert!(found.len() == 1 && says(&found[0], expected), "{section}: {found:#?}");
    }
}

#[test]
fn a_recorder_that_would_not_start_is_an_error() {
    let (code, found) = check(&unrecorded().0, &["--dataflow", "examples/record.yml"]);
    assert_eq!((code, found), (0, vec![]));
    let folder = project();
    let refused = ("error", "record.path", "out/recording has a recording");
    let (code, found) = check(&folder.0, &["--dataflow", "examples/record.yml"]);
    assert!(code == 2 && found.len() == 1 && says(&found[0], refused), "{found:#?}");
    let file = folder.write("record.yml", "record: { path: out/recording }");
    let (code, found) = check(&folder.0, &[file.to_str().unwrap()]);
    assert!(code == 2 && found.len() == 1 && says(&found[0], refused), "{found:#?}");
}

/// What a node refuses at its start, which only its place and its wiring show.
#[test]
fn a_start_that_would_fail_is_an_error() {
    let flow = "nodes:
  - { id: arm, path: arm.py, outputs: [joints, force] }
  - { id: record, path: robocache-record, args: --config robot.yml, inputs: { joints: arm/joints, force: arm/force } }
";
    let fuse = "fuse: { rate_hz: 10, modalities: [{ input: joints, dim: 7, interpolation: previous }] }\n";
    let dataset = |feature: &str| {
        format!(
            "record: {{ path: out }}\n{fuse}lerobot: {{ task: reach, features: [{{ name: action, stream: {feature} }}] }}"
        )
    };
    for (robot, at, problem, is_seen_alone) in [
        (
            "record: { path: file }".to_owned(),
            "record.path",
            "file is no folder (allowed: ",
            true,
        ),
        (
            "record: { path: file/a }".to_owned(),
            "record.path",
            "file is no folder",
            true,
        ),
        (
            "record: { path: /proc/foo }".to_owned(),
            "record.path",
            "nothing can be made in /proc: ",
            true,
        ),
        (
            "status: file\nrecord: { path: out }".to_owned(),
            "status",
            "file is no folder (allowed: ",
            true,
        ),
        (
            "record: { path: out, inputs: [joints, joints] }".to_owned(),
            "record.inputs",
            "two of them are",
            true,
        ),
        (
            "record: { path: out, inputs: [joints, forces] }".to_owned(),
            "record.inputs[1]",
            "`forces` is neither wired nor an output of an operation before it, did you mean `force`? (allowed: force, joints)",
            false,
        ),
        (
            "record: { path: out }\nreplay: { path: rec, speed: 0 }".to_owned(),
            "replay",
            "speed: `0` is no speed",
            true,
        ),
        (
            "record: { path: out }\nreplay: { speed: 1 }".to_owned(),
            "replay",
            "the key `path` is missing",
            true,
        ),
        (
            dataset("forces"),
            "lerobot",
            "`forces` is recorded by no node of flow.yml, did you mean `force`? (recorded: force, joints)",
            false,
        ),
    ] {
        let folder = Folder::new();
        folder.write("flow.yml", flow);
        folder.write("file", "");
        folder.write("robot.yml", &robot);
        let (code, found) = check(&folder.0, &["--dataflow", "flow.yml"]);
        assert!(
            code == 2 && says(&found[0], ("error", at, problem)),
            "{robot}: {found:#?}"
        );
        if is_seen_alone {
            let (code, found) = check(&folder.0, &["robot.yml"]);
            assert!(
                code == 2 && says(&found[0], ("error", at, problem)),
                "{robot}: {found:#?}"
            );
        }
    }
    let folder = Folder::new();
    folder.write("flow.yml", flow);
    folder.write("robot.yml", &format!("\u{feff}{}", dataset("force")));
    let (_, found) = check(&folder.0, &["--dataflow", "flow.yml"]);
    assert!(found.iter().all(|finding| finding["level"] != "error"), "{found:#?}");
}

#[test]
fn a_ring_with_a_consumer_on_another_machine_is_an_error() {
    let found = |ours: &str, theirs: &str| {
        let folder = project();
        let ring = "  residence: { observation: { kind: shared, slots: 8 } }\n  window: 16";
        replace(&folder, "robocache.yml", "  window: 16", ring);
        replace(&folder, DEMO, "  - id: fuse\n", &format!("  - id: fuse\n{ours}"));
        replace(&folder, DEMO, "  - id: policy\n", &format!("  - id: policy\n{theirs}"));
        check(&folder.0, &["--dataflow", DEMO]).1
    };
    let machine = |name: &str| format!("    deploy: {{ machine: {name} }}\n");
    let label = |name: &str| format!("    deploy: {{ labels: {{ gpu: {name} }} }}\n");
    let (gpu, brain) = (machine("gpu"), machine("brain"));
    for (ours, theirs, words) in [
        (
            gpu.as_str(),
            brain.as_str(),
            "`fuse` runs on machine gpu, its consumer `policy` on machine brain",
        ),
        (
            &gpu,
            "",
            "its consumer `policy` on no machine by name (allowed: the same `deploy`, or `residence: host`)",
        ),
        (
            "",
            &brain,
            "`fuse` runs on no machine by name, its consumer `policy` on machine brain",
        ),
        (
            &label("here"),
            &label("there"),
            "`fuse` runs on label gpu: here, its consumer `policy` on label gpu: there",
        ),
    ] {
        let found = found(ours, theirs);
        let expected = ("error", "residence of `observation`", words);
        assert!(
            found.len() == 1 && says(&found[0], expected),
            "{ours}{theirs}: {found:#?}"
        );
    }
    assert_eq!(found(&gpu, &gpu), [] as [Value; 0]);
    assert_eq!(found("", ""), [] as [Value; 0]);
}

#[test]
fn a_pool_holds_messages_of_each_output() {
    let grid = "origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [64, 64, 64], channels: [occupancy], layout: dense, \
                inputs: [{ input: lidar }]";
    let entry = |name: &str| format!("  - voxelize: {{ name: {name}, {grid} }}\n");
    let folder = Folder::new();
    folder.write("robot.yml", "sim: { duration_s: 1 }\n");
    folder.write(
        "node.yml",
        &format!("plugins:\n{}{}{}", entry("a"), entry("b"), entry("c")),
    );
    let found = |pool: &str| {
        let dataflow = format!(
            "nodes:
  - {{ id: robot, path: robocache-sim, args: --config robot.yml, shared_memory_pool_size: 64MB, outputs: [lidar] }}
  - {{ id: grids, path: robocache-node, args: --config node.yml, shared_memory_pool_size: {pool},
       inputs: {{ lidar: robot/lidar }}, outputs: [a/voxels, b/voxels, c/voxels] }}
  - {{ id: eyes, path: eyes.py, inputs: {{ a: grids/a/voxels, b: grids/b/voxels, c: grids/c/voxels }} }}
"
        );
        folder.write("flow.yml", &dataflow);
        check(&folder.0, &["--dataflow", "flow.yml"]).1
    };
    // A grid is 1 MiB: four of one output fit, and not four of all three.
    let found_in_5 = found("5MB");
    let expected = (
        "warning",
        "nodes.grids.shared_memory_pool_size",
        "a message of `c/voxels` has up to 1.05 MB, one of every output 3.16 MB",
    );
    assert!(
        found_in_5.len() == 1 && says(&found_in_5[0], expected),
        "{found_in_5:#?}"
    );
    assert_eq!(found("13MB"), [] as [Value; 0]);
}

/// What `convert --to lerobot` refuses, by the same code.
#[test]
fn mistakes_in_what_becomes_a_dataset_are_found() {
    let robot = std::fs::read_to_string(root().join("examples/lerobot/config.yml")).unwrap();
    let section = "
lerobot:
  task: reach
  features:
    - { name: observation.state, modalities: [proprio, force] }
    - { name: action, stream: command, take: next, max_age_ms: 50 }
    - { name: observation.images.front, images: front }
";
    let folder = project();
    let found = |from: &str, to: &str| {
        let text = format!("{robot}{section}");
        assert_eq!(text.matches(from).count(), 1, "{from}");
        folder.write("examples/lerobot/config.yml", &text.replace(from, to));
        let alone = check(&folder.0, &["examples/lerobot/config.yml", "--strict"]);
        let wired = check(&folder.0, &["--dataflow", "examples/lerobot.yml", "--strict"]);
        assert_eq!(alone.0, wired.0, "{alone:#?}, {wired:#?}");
        alone
    };
    assert_eq!(found("task: reach", "task: reach"), (0, vec![]));
    for (from, to, words) in [
        (
            "take: next",
            "take: nxt",
            "features[1].take: `nxt` is not allowed, did you mean `next`? (allowed: previous, next)",
        ),
        (
            "take: next",
            "tak: next",
            "features[1].tak: unknown key `tak`, did you mean `take`?",
        ),
        (
            "next, max_age_ms: 50",
            "next, max_age: 50",
            "did you mean `max_age_ms`?",
        ),
        (
            "[proprio, force]",
            "[propio, force]",
            "features: `observation.state`: no modality `propio`, did you mean `proprio`? (allowed: camera",
        ),
        (
            "take: next, max",
            "dtype: float32, max",
            "features[1].dtype: `float32` is not allowed (allowed: bool)",
        ),
        (
            "images: front }",
            "images: front, dtype: bool }",
            "`dtype` does not belong to what it comes from",
        ),
        (
            "images: front }",
            "images: front, modalities: [force] }",
            "it comes from nowhere, or from several places",
        ),
        (
            "name: action",
            "name: index",
            "feature `index`: a dataset fills it itself",
        ),
        (
            "name: action",
            "name: observation.state",
            "feature `observation.state`: there are two of this name",
        ),
        (
            "task: reach",
            "fps: 31",
            "fps: 31, and there are 30 observations a second (allowed: as many)",
        ),
        (
            "task: reach",
            "on_invalid: ignore",
            "on_invalid: `ignore` is not allowed (allowed: refuse, hold, fill)",
        ),
        (
            "[proprio, force] }",
            "[force], names: [x, y, z] }",
            "names: 3, and it has 6 values (allowed: as many)",
        ),
    ] {
        let (code, found) = found(from, to);
        assert!(
            code == 2 && found.len() == 1 && says(&found[0], ("error", "lerobot", words)),
            "{to}: {found:#?}"
        );
    }
    let (code, found) = found("rate_hz: 30  ", "rate_hz: 33.3");
    let words = "33.3 observations a second, and LeRobot has whole numbers";
    assert!(code == 2 && says(&found[0], ("error", "fuse", words)), "{found:#?}");
}
