//! Tests of findings that would stop a node at its start, a conversion, or a dataflow on this machine.

use super::mistakes::DEMO;
use super::{check, project, replace, says, unrecorded};
use crate::common::{Folder, root};
use serde_json::Value;

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

/// Reports mistakes that would stop a node at its start. Some of them show only in the wiring of the dataflow.
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
            "file is not a folder (allowed: ",
            true,
        ),
        (
            "record: { path: file/a }".to_owned(),
            "record.path",
            "file is not a folder",
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
            "file is not a folder (allowed: ",
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
            "speed: `0` is not a speed",
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
    // A grid is 1 MiB: four grids of one output fit, but not four of each of three outputs.
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

/// Refuses the mistakes that `convert --to lerobot` refuses, by the same code.
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
