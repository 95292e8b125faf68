//! Tests that `robocache check` finds each planted mistake, and none in the project's own files.

use crate::common::{Folder, MS, command, done, record, root, run, sample};
use mistakes::{DEMO, MISTAKES, Mistake, REPLAY, SENSORS};
use serde_json::Value;
use std::path::Path;

mod mistakes;
mod starts;

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

/// Copies the project's own files to a temporary folder.
fn unrecorded() -> Folder {
    let folder = Folder::new();
    for file in FILES {
        folder.write(file, &std::fs::read_to_string(root().join(file)).unwrap());
    }
    folder
}

/// Copies the project's own files to a temporary folder. Adds a recording for the dataflows that replay one.
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

/// Runs `robocache check`. Returns the exit code and the findings without notes.
fn check(folder: &Path, words: &[&str]) -> (i32, Vec<Value>) {
    let done = done(command(["check", "--json"]).args(words).current_dir(folder));
    let mut found = done.json()["findings"].as_array().unwrap().clone();
    found.retain(|finding| finding["level"] != "note");
    // The room of this machine for the project's own pools is not tested here.
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
            // This dataflow makes the recording that others replay.
            "examples/record.yml" => unrecorded(),
            _ => project(),
        };
        let (code, found) = match text.contains("\nnodes:") {
            true => check(&folder.0, &["--dataflow", file, "--strict"]),
            // The plugin of this example is part of its own program.
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
        // A mistake is reported at its place, and perhaps where it has effects; not more often.
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
                masked, and its samples are late (allowed: that or more)\n0 errors, 1 warnings\n";
    assert_eq!((text.code, text.out.as_str()), (0, line));
    assert_eq!(check(&folder.0, &["robocache.yml", "--strict"]).0, 1);
    replace(&folder, "robocache.yml", "max_wait_ms: 20", "max_wait_ms: -1");
    assert_eq!(check(&folder.0, &["robocache.yml"]).0, 2);
    assert_eq!(check(&folder.0, &["nothing.yml"]).0, 2);
    assert_eq!(run(["check"]).code, 2);
    let no_flow = done(command(["check", "--dataflow", "robocache.yml"]).current_dir(&folder.0));
    assert_eq!(no_flow.code, 2);
    assert!(
        no_flow.err.contains("robocache.yml: it is not a dataflow"),
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
    // The grids are made in the same node, so their period is known.
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
    let unknown = ("error", "plugins", "`voxelise` is not a plugin of this node");
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
