//! Tests of `robocache try` on recordings whose drop-outs are known.

use crate::common::{Done, FUSE, Folder, MS, done, half, record, record_robot, root, run, sample};
use robocache::prelude::*;
use serde_json::Value;
use std::ffi::OsStr;

fn attempt(folder: &Folder, config: &str, words: &[&str]) -> Done {
    let config = folder.write("robot.yml", config);
    let recording = folder.path("recording");
    let paths = ["try".as_ref(), config.as_os_str(), recording.as_os_str()];
    run(paths.into_iter().chain(words.iter().map(|word| OsStr::new(*word))))
}

#[test]
fn a_stream_that_falls_silent_is_the_verdict() {
    let folder = Folder::new();
    half(&folder);
    let done = attempt(&folder, FUSE, &["--json"]);
    assert_eq!(done.code, 1);
    let report = done.json();
    let fused = &report["observations"][0];
    // The grid starts where both streams have a sample, at 10 ms, and ends with the newest sample.
    assert_eq!(
        (&fused["output"], fused["count"].as_u64(), fused["missed"].as_u64()),
        (&Value::from("fused"), Some(200), Some(0))
    );
    let streams = fused["streams"].as_array().unwrap();
    assert_eq!(streams[0]["valid"], 1.0);
    assert_eq!(streams[0]["age_ms"]["max"], 0.0);
    // `b` is valid from 10 to 1000 ms: in 100 of 200 observations.
    assert_eq!(
        (&streams[1]["name"], &streams[1]["valid"]),
        (&Value::from("b"), &Value::from(0.5))
    );
    assert_eq!(streams[1]["age_ms"]["p50"], 9.0);
    assert_eq!(fused["rate_hz"], 100.0);
    assert_eq!(report["works"], false);

    let text = attempt(&folder, FUSE, &[]);
    let verdict = "no: of 200 observations on `fused`, the worst stream, `b`, is valid in 50.0 % (asked for: 90.0 %)";
    assert_eq!(text.out.lines().last(), Some(verdict), "{}", text.out);
    let lenient = attempt(&folder, FUSE, &["--min-valid", "0.5"]);
    assert_eq!(lenient.code, 0, "{}", lenient.out);
    assert!(lenient.out.contains("\nyes: of 200"), "{}", lenient.out);
}

#[test]
fn an_input_that_the_recording_lacks_is_never_valid() {
    let folder = Folder::new();
    half(&folder);
    let with_c = FUSE.to_owned() + "    - { input: c, dim: 1, interpolation: previous }\n";
    let done = attempt(&folder, &with_c, &["--json"]);
    let report = done.json();
    assert_eq!((done.code, &report["missing"]), (1, &serde_json::json!(["c"])));
    assert_eq!(report["observations"][0]["streams"][2]["valid"], 0.0);
    let asked = FUSE.replace("  max_wait_ms", "  trigger: { timer: tick }\n  max_wait_ms");
    let done = attempt(&folder, &asked, &[]);
    assert_eq!(done.code, 1);
    assert!(
        done.out
            .contains("no: `tick` asks for the observations, and the recording lacks it (allowed: one with it,"),
        "{}",
        done.out
    );
}

#[test]
fn the_demo_works_on_its_own_robot() {
    let folder = Folder::new();
    let sim = "{ duration_s: 6, real_time: false, seed: 7, streams: { camera: { clock_offset_ms: 33 }, lidar: {} } }";
    record_robot(&folder.path("recording"), sim, &["camera", "force", "proprio", "lidar"]);
    let config = std::fs::read_to_string(root().join("robocache.yml")).unwrap();
    let done = attempt(&folder, &config, &["--json", "--order", "stamp"]);
    let report = done.json();
    assert_eq!(done.code, 0, "{report:#}");
    let fused = &report["observations"][0];
    let names: Vec<&str> = fused["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stream| stream["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["camera", "force", "proprio", "grids"]);
    assert!(
        fused["count"].as_u64().unwrap() > 150 && fused["missed"].as_u64().unwrap() < 20,
        "{report:#}"
    );
    let grids = &report["grids"][0];
    assert!(grids["count"].as_u64().unwrap() >= 50, "{report:#}");
    let points = |key: &str| grids[key].as_i64().unwrap();
    assert_eq!(
        points("points_in"),
        points("points_kept") + points("dropped_outside") + points("dropped_nonfinite") + points("dropped_overflow")
    );
}

/// Compares the counts with the messages that a node would have sent, made by the same code.
#[test]
fn the_counts_are_those_of_the_engine() {
    let folder = Folder::new();
    half(&folder);
    let config = Config::parse("robot.yml".as_ref(), FUSE).unwrap();
    let mut graph = App::new()
        .with_config(config)
        .add_plugin(FusePlugin::default())
        .build(|_| true)
        .unwrap();
    let inputs: Vec<String> = graph.external_inputs().map(|(input, _)| input.to_owned()).collect();
    let mut reader = recording::Reader::open(folder.path("recording")).unwrap();
    let streams: Vec<String> = reader.streams().map(str::to_owned).collect();
    let (mut message, mut valid) = (Message::default(), Valid::default());
    while let Some(stream) = reader.next_into(&mut message).unwrap() {
        let input = inputs.iter().position(|input| *input == streams[stream]).unwrap();
        graph.message(input, &message, &mut valid);
    }
    graph.close_all(&mut valid);
    let fused = &attempt(&folder, FUSE, &["--json"]).json()["observations"][0];
    assert_eq!(fused["count"].as_u64(), Some(valid.observations));
    let share = |m: usize| fused["streams"][m]["valid"].as_f64().unwrap() * valid.observations as f64;
    assert_eq!([share(0) as u64, share(1) as u64], valid.valid);
}

#[derive(Default)]
struct Valid {
    observations: u64,
    valid: [u64; 2],
}

impl Sink for Valid {
    fn send(
        &mut self,
        _: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        let mut message = Message::default();
        message.write(layout, fill);
        self.observations += 1;
        for m in 0..2 {
            self.valid[m] += message.header.valid.get().unwrap()[m] as u64;
        }
        Ok(())
    }
}

/// Counts a stream as used if only a dataset reads it.
#[test]
fn a_stream_that_becomes_a_feature_of_a_dataset_is_not_called_unused() {
    let folder = Folder::new();
    let of = |stream| (0..100).map(move |i| (stream, sample(i * 10 * MS, &[1.0])));
    let streams = ["a", "b", "action", "begin", "spare"].into_iter().flat_map(of);
    let mut messages: Vec<_> = streams.collect();
    messages.sort_by_key(|(_, message)| message.timestamp_ns());
    record(&folder.path("recording"), messages);
    let unused = |section: &str| {
        let config = format!(
            "fuse: {{ rate_hz: 100, modalities: [{{ input: a, dim: 1, interpolation: previous }}] }}\n{section}"
        );
        attempt(&folder, &config, &["--json"]).json()["unused"].clone()
    };
    assert_eq!(unused(""), serde_json::json!(["action", "b", "begin", "spare"]));
    let section = "lerobot: { episodes: begin, features: [{ name: action, stream: action, take: next }, { name: b, window: b, samples: 3 }] }";
    assert_eq!(unused(section), serde_json::json!(["spare"]));
}

#[test]
fn a_pose_that_kinematics_makes_is_a_stream_of_the_observations() {
    let folder = Folder::new();
    // Two joints of an arm in a plane; one message has a joint too few.
    let joints = (0..=100).map(|i| {
        let angle = 0.01 * i as f32;
        let values = if i == 50 { vec![angle] } else { vec![angle, -angle] };
        ("joints", sample(i * 10 * MS, &values))
    });
    record(&folder.path("recording"), joints);
    folder.write("arm.urdf", include_str!("../../tests/common/planar.urdf"));
    let config = "
chains: { arm: { urdf: arm.urdf, base: base, tip: tip } }
kinematics:
  - { input: joints, chain: arm, make: pose }
fuse:
  rate_hz: 100
  max_wait_ms: 100
  modalities: [{ input: arm_pose, dim: 7, interpolation: linear, max_gap_ms: 15 }]
";
    let done = attempt(&folder, config, &[]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    for line in [
        "arm_pose: 100 messages",
        "kinematics/arm_pose: input `joints`: 1 faults and warnings",
        "such as: 1 values (allowed: 2, one sample",
        "yes: of 101 observations on `fused`, the worst stream, `arm_pose`, is valid in 99.0 % (asked for: 90.0 %)",
    ] {
        assert!(done.out.contains(line), "{}\nnot {line}", done.out);
    }
    let misspelt = config.replace("chain: arm,", "chain: amr,");
    let done = attempt(&folder, &misspelt, &[]);
    let wanted = "kinematics: [0].chain: `amr` is not one of `chains:`, did you mean `arm`? (there: arm)";
    assert!(done.code == 2 && done.err.contains(wanted), "{}", done.err);
}

#[test]
fn what_can_not_be_tried_is_refused() {
    let folder = Folder::new();
    half(&folder);
    let cases = [
        ("fuse: { rate_hz: 0, modalities: [] }", &[][..], "robot.yml: fuse: "),
        (
            "sim: {}",
            &[],
            "it has nothing to try (allowed: a section of clock, kinematics, voxelize, map, fuse",
        ),
        (FUSE, &["--order", "arrival"], "no column `arrival_ns`"),
        (
            FUSE,
            &["--order", "random"],
            "it is not an order (allowed: stamp, arrival)",
        ),
        (FUSE, &["--min-valid", "90"], "it is not a share (allowed: 0 to 1)"),
    ];
    for (config, words, expected) in cases {
        let done = attempt(&folder, config, words);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{}", done.err);
        assert!(done.err.contains(expected), "{}", done.err);
    }
}

#[test]
fn what_can_not_be_read_is_told_beside_the_verdict() {
    let folder = Folder::new();
    half(&folder);
    folder.write("recording/a.arrow", "no Arrow at all");
    let report = attempt(&folder, FUSE, &["--json"]).json();
    assert!(
        report["problems"][0]
            .as_str()
            .unwrap()
            .contains("a.arrow: not an Arrow IPC file"),
        "{report:#}"
    );
    assert_eq!(report["missing"], serde_json::json!(["a"]));
    assert_eq!(report["observations"][0]["streams"][1]["valid"], 1.0);
}

/// Sets a clock ahead by decades between two messages. The billions of seconds without a message must not take time.
#[test]
fn a_clock_that_jumps_ahead_by_decades_takes_no_longer() {
    let folder = Folder::new();
    let stamps = (0..100).chain(170_000_000_000..170_000_000_100).map(|i| i * 10 * MS);
    let messages = stamps.flat_map(|stamp| [("a", sample(stamp, &[1.0])), ("b", sample(stamp, &[1.0, 2.0]))]);
    record(&folder.path("recording"), messages);
    // `ulimit -t` allows 20 s of CPU time.
    let config = folder.write("robot.yml", FUSE);
    let mut limited = std::process::Command::new("bash");
    limited.args([
        "-c",
        "ulimit -t 20; exec \"$@\"",
        "bash",
        env!("CARGO_BIN_EXE_robocache"),
        "try",
        "--json",
    ]);
    let report = done(limited.arg(config).arg(folder.path("recording"))).json();
    let fused = &report["observations"][0];
    assert!(
        fused["epoch"].as_i64().unwrap() > 0 && fused["missed"].is_null(),
        "{report:#}"
    );
    assert_eq!(fused["fewest_in_a_second"], 0);
}

#[test]
fn sections_of_several_nodes_are_tried_side_by_side() {
    let folder = Folder::new();
    half(&folder);
    let all = FUSE.to_owned()
        + &FUSE.replace("fuse:", "align:")
        + "clock: { inputs: [{ input: a, clock: realtime }] }\ngroup: { policy: exact, inputs: [{ input: a }, { input: b }] }\n";
    let report = attempt(&folder, &all, &["--json", "--min-valid", "0.5"]);
    assert_eq!(report.code, 0, "{}", report.err);
    let report = report.json();
    let names = |key: &str| {
        let outputs = report[key].as_array().unwrap().iter();
        outputs
            .map(|of| (of["output"].as_str().unwrap().to_owned(), of["count"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    let observed = [("fused", 200), ("align/a", 200), ("align/b", 200)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(names("observations"), observed);
    // `a` and `b` have no stamp in common.
    assert_eq!(names("others"), []);
    let together = all.replace("policy: exact", "policy: approximate");
    let report = attempt(&folder, &together, &["--json", "--min-valid", "0.5"]).json();
    assert_eq!(report["others"][0]["output"], "group/a", "{report:#}");
}

const LIVE: &str = "
fuse:
  rate_hz: 100
  max_wait_ms: 50
  modalities:
    - { input: a, dim: 1, interpolation: previous }
    - { input: b, dim: 1, interpolation: previous }
";

/// Records two streams with these stamps, ms.
fn stamped(folder: &Folder, stamps_ms: impl Iterator<Item = i64>) {
    let messages = stamps_ms.flat_map(|ms| ["a", "b"].map(|name| (name, sample(ms * MS, &[1.0]))));
    record(&folder.path("recording"), messages);
}

#[test]
fn stamps_that_make_next_to_no_observations_are_no_success() {
    let folder = Folder::new();
    stamped(&folder, (0..100).map(|_| 10));
    let done = attempt(&folder, LIVE, &[]);
    let verdict = "\nno: none of the 100 samples of `a` has a stamp past that of the first (needed: `timestamp_ns`, the capture time of each)\n";
    assert!(done.code == 1 && done.out.ends_with(verdict), "{}", done.out);

    // Each stamp is a day after the previous one.
    let folder = Folder::new();
    stamped(&folder, (0..100).map(|day| day * 86_400_000));
    let done = attempt(&folder, LIVE, &["--json"]);
    assert_eq!(done.code, 1, "{}", done.out);
    let words = done.json()["verdict"].as_str().unwrap().to_owned();
    assert!(
        words.contains("where the stamps of `a` have room for 855360000"),
        "{words}"
    );
}

#[test]
fn a_grid_is_not_filled_up_to_a_stamp_days_ahead() {
    const DAYS: i64 = 11 * 86_400_000;
    let folder = Folder::new();
    stamped(&folder, (0..100).map(|i| i * 10).chain([990 + DAYS]));
    let patient = LIVE.replace("max_wait_ms: 50", "max_wait_ms: null");
    let done = attempt(&folder, &patient, &["--json"]);
    assert_eq!(done.code, 1, "{}", done.out);
    let report = done.json();
    assert_eq!(report["observations"][0]["count"], 100);
    let words = "no: a stamp of `a` is 11.0 days ahead of where all streams are, and fuse has 95040000 targets until then: it was tried up to there";
    assert_eq!(report["verdict"], words);
    // With `max_wait_ms` the stamp counts as a clock jump.
    assert_eq!(attempt(&folder, LIVE, &[]).code, 0);
    // The grid is not filled up to such a stamp either if both clocks were set back before.
    let folder = Folder::new();
    let back = (0..100).map(|i| DAYS + i * 10).chain([0, 10]);
    stamped(&folder, back.chain([DAYS + 1000]));
    let done = attempt(&folder, &patient, &[]);
    assert!(
        done.code == 1 && done.out.contains("is 11.0 days ahead"),
        "{}",
        done.out
    );
}

#[test]
fn a_map_without_its_poses_is_no_success() {
    let folder = Folder::new();
    let sim = "{ duration_s: 4, real_time: false, streams: { camera: null, force: null, proprio: null, lidar: null } }";
    record_robot(&folder.path("recording"), sim, &["depth", "camera_pose"]);
    let config = std::fs::read_to_string(root().join("examples/map/config.yml")).unwrap();
    let done = attempt(&folder, &config, &["--json", "--order", "stamp"]);
    let report = done.json();
    assert_eq!(done.code, 0, "{report:#}");
    let map = &report["others"][0];
    assert_eq!(
        [
            &map["output"],
            &map["count"],
            &map["frames_fused"],
            &map["frames_dropped"]
        ],
        [&Value::from("tsdf"), &Value::from(4), &Value::from(60), &Value::from(0)]
    );
    for (mistake, verdict) in [
        (
            "camera_pose, max",
            "no: of 60 frames, 0 % are in the map of `tsdf` (asked for: 90.0 %); the others are late, or without a pose",
        ),
        (
            "emit_every: 15",
            "no: `tsdf` has no message: an input is missing, or fewer steps came than `emit_every`",
        ),
    ] {
        let wrong = config.replace(
            mistake,
            if mistake.starts_with("emit") {
                "emit_every: 61"
            } else {
                "camera_poses, max"
            },
        );
        let done = attempt(&folder, &wrong, &["--order", "stamp"]);
        assert_eq!((done.code, done.out.lines().last()), (1, Some(verdict)), "{}", done.out);
    }
}
