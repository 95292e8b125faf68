//! Findings of `robocache check` and `try` in joints that are recorded otherwise than `kinematics:` takes them.

use crate::common::{Folder, MS, command, done, record, run, sample};

const DATAFLOW: &str = "
nodes:
  - { id: replay, path: robocache-replay, args: --config replay.yml, outputs: [joints] }
  - { id: arm, path: robocache-node, args: --config robot.yml, inputs: { joints: { source: replay/joints, queue_size: 100 } }, outputs: [arm_pose] }
  - { id: show, path: show.py, inputs: { pose: arm/arm_pose } }
";

/// A recording of samples with these names, and a configuration with an entry that takes them.
fn project(names: &[&str], values: &[&[f32]], entry: &str) -> Folder {
    let folder = Folder::new();
    let samples = (0..).zip(values).map(|(i, values)| {
        let mut sample = sample(i * 10 * MS, values);
        if !names.is_empty() {
            sample.header.fields.set(names);
        }
        ("joints", sample)
    });
    record(&folder.path("recording"), samples);
    folder.write("arm.urdf", include_str!("../../tests/common/planar.urdf"));
    folder.write("show.py", "");
    folder.write("flow.yml", DATAFLOW);
    folder.write("replay.yml", "replay: { path: recording }");
    let chain = "{ urdf: arm.urdf, base: base, tip: tip }";
    let config = format!(
        "chains: {{ arm: {chain} }}\nplugins: [{{ kinematics: [{{ input: joints, chain: arm, {entry} }}] }}]\n"
    );
    folder.write("robot.yml", &config);
    folder
}

/// The problems that `check` finds with the section, and its exit code.
fn check(folder: &Folder) -> (i32, Vec<String>) {
    let words = ["check", "robot.yml", "--dataflow", "flow.yml", "--json"];
    let done = done(command(words).current_dir(&folder.0));
    let found = done.json()["findings"].as_array().unwrap().clone();
    let of_section = found.iter().filter(|finding| finding["at"] == "kinematics");
    let problems = of_section.map(|finding| finding["problem"].as_str().unwrap().to_owned());
    (done.code, problems.collect())
}

const RADIANS: [&[f32]; 3] = [&[0.1, -1.5], &[0.3, 0.5], &[9.2, 0.5]];

#[test]
fn joints_in_any_order_of_their_names_are_found() {
    for (names, entry) in [
        (&[][..], "make: pose"),
        (&["elbow", "shoulder"], "make: pose"),
        (&["shoulder", "elbow"], "make: pose, channels: [0, 2]"),
        (&["elbow", "shoulder"], "make: pose, channels: [0, 2]"),
        (&["joint_1", "joint_2"], "make: pose, channels: [0, 2]"),
    ] {
        assert_eq!(check(&project(names, &RADIANS, entry)), (0, Vec::new()), "{names:?}");
    }
}

#[test]
fn joints_that_are_not_those_of_the_chain_are_errors() {
    let three: [&[f32]; 2] = [&[0.1, 0.2, 0.3], &[0.1, 0.2, 0.3]];
    let pose: [&[f32]; 1] = [&[0.5; 7]];
    type Case<'a> = (&'a [&'a str], &'a [&'a [f32]], &'a str, &'a str);
    let cases: [Case<'_>; 4] = [
        (
            &["joint_1", "joint_2"],
            &RADIANS,
            "make: pose",
            "[0].input: `joints`: joint `shoulder` is not among the `fields` (there: joint_1, joint_2); the chain has shoulder, elbow (allowed: \
             these names in any order, or `channels` for values in this order)",
        ),
        (
            &[],
            &three,
            "make: pose",
            "; the chain has shoulder, elbow (allowed: as many, or `channels: [first, end]`)",
        ),
        (&[], &pose, "make: pose", "7 values (allowed: 2, one sample"),
        (&[], &three, "make: joints", "3 values (allowed: 7, one sample"),
    ];
    for (names, values, entry, words) in cases {
        let folder = project(names, values, entry);
        let (code, problems) = check(&folder);
        assert!(
            code == 2 && problems.len() == 1 && problems[0].contains(words),
            "{problems:#?}\nnot {words}"
        );
    }
    // `try` refuses each of the messages.
    let folder = project(&["joint_1", "joint_2"], &RADIANS, "make: pose");
    let done = run(["try".into(), folder.path("robot.yml"), folder.path("recording")]);
    let words = "3, such as: joint `shoulder` is not among the `fields`";
    assert!(done.code == 1 && done.out.contains(words), "{}", done.out);
    assert!(done.out.contains("no: `arm_pose` has no message"), "{}", done.out);
}

#[test]
fn degrees_are_told() {
    let degrees: [&[f32]; 3] = [&[10.0, 2.0], &[10.0, -90.0], &[f32::NAN, 0.0]];
    let folder = project(&["elbow", "shoulder"], &degrees, "make: pose");
    let (code, problems) = check(&folder);
    let words = "`shoulder` is -90.000, more than a turn beyond its limits -3.000 and 3.000 (allowed: radians; are these degrees?)";
    assert_eq!((code, problems), (0, vec![format!("[0].input: `joints`: {words}")]));
    let done = run([
        "try".into(),
        folder.path("robot.yml"),
        folder.path("recording"),
        "--json".into(),
    ]);
    let ticks: [&[f32]; 1] = [&[0.0, 123456.0]];
    let (code, problems) = check(&project(&[], &ticks, "make: pose"));
    assert!(
        code == 0 && problems[0].contains("`elbow` is 123456 (allowed: -8192 to 8192"),
        "{problems:#?}"
    );
    let words = "`elbow` is 10.000, more than a turn beyond its limits";
    assert!(done.json()["faults"].to_string().contains(words), "{}", done.out);
}

#[test]
fn a_tip_that_the_robot_does_not_have_is_an_error_with_a_near_name() {
    let folder = project(&[], &RADIANS, "make: pose");
    let config = std::fs::read_to_string(folder.path("robot.yml")).unwrap();
    folder.write("robot.yml", &config.replace("tip: tip", "tip: tipp"));
    let done = done(command(["check", "robot.yml"]).current_dir(&folder.0));
    assert!(
        done.code == 2 && done.out.contains("no link `tipp`, did you mean `tip`?"),
        "{}",
        done.out
    );
}
