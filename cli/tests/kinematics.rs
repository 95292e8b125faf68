//! Tests of `robocache check` and `try` with recorded joints that are not in the form that `kinematics:` reads, such as joints
//! in degrees.

use crate::common::{Folder, MS, command, done, record, run, sample};

const DATAFLOW: &str = "
nodes:
  - { id: replay, path: robocache-replay, args: --config replay.yml, outputs: [joints] }
  - { id: arm, path: robocache-node, args: --config robot.yml, inputs: { joints: { source: replay/joints, queue_size: 100 } }, outputs: [arm_pose] }
  - { id: show, path: show.py, inputs: { pose: arm/arm_pose } }
";

/// Writes a recording of samples with the fields `names`, and a configuration whose `kinematics:` has the settings `entry` and
/// reads them.
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

/// Runs `robocache check`. Returns the exit code and the problems of the section `kinematics:`.
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
        (&["joint[0]", "joint[1]"], "make: pose, channels: [0, 2]"),
    ] {
        assert_eq!(check(&project(names, &RADIANS, entry)), (0, Vec::new()), "{names:?}");
    }
    // Names that no joint has are reported.
    let (code, problems) = check(&project(&["a", "b"], &RADIANS, "make: pose, channels: [0, 2]"));
    let wanted = "[0].input: `joints`: none of the `fields` a, b is a joint: the values are taken in the order of the chain, shoulder, elbow";
    assert_eq!((code, problems), (0, vec![wanted.to_owned()]));
}

#[test]
fn poses_with_names_are_samples_and_not_joints() {
    let names = ["x", "y", "z", "qx", "qy", "qz", "qw"];
    let poses: [&[f32]; 2] = [&[1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0]; 2];
    let (_, problems) = check(&project(&names, &poses, "make: joints"));
    assert!(problems.is_empty(), "{problems:#?}");
    let (code, problems) = check(&project(&names, &poses, "make: pose, channels: [3, 5]"));
    let wanted = "the `fields` of the joints are qx, qy, those of a rotation (needed: joints";
    assert!(
        code == 2 && problems.len() == 1 && problems[0].contains(wanted),
        "{problems:#?}"
    );
    // A `fuse` takes them, too.
    let folder = project(&names, &poses, "make: joints");
    let fuse =
        "plugins: [{ fuse: { rate_hz: 100, modalities: [{ input: joints, dim: 7, interpolation: previous }] } }]\n";
    folder.write("robot.yml", fuse);
    let done = done(command(["check", "robot.yml", "--dataflow", "flow.yml", "--json"]).current_dir(&folder.0));
    let found = done.json()["findings"].to_string();
    assert!(!found.contains("allowed: samples"), "{found}");
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
    // `try` refuses each message.
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

/// Writes a recording of five poses within reach: three close together, and two on the other side of the robot.
fn project_of_poses() -> Folder {
    let poses: [&[f32]; 5] = [
        &[1.2, 0.30, 0.0, 0.0, 0.0, 0.0, 1.0],
        &[1.2, 0.31, 0.0, 0.0, 0.0, 0.0, 1.0],
        &[1.2, 0.32, 0.0, 0.0, 0.0, 0.0, 1.0],
        &[-1.2, 0.3, 0.0, 0.0, 0.0, 0.0, 1.0],
        &[-1.2, 0.31, 0.0, 0.0, 0.0, 0.0, 1.0],
    ];
    project(&[], &poses, "make: joints, inverse: { task: position }")
}

/// Adds a plugin to the list `plugins:` of the configuration in `folder`.
fn with_plugin(folder: &Folder, plugin: &str) {
    let config = std::fs::read_to_string(folder.path("robot.yml")).unwrap();
    folder.write("robot.yml", &config.replace("}] }]\n", &format!("}}] }}, {plugin}]\n")));
}

#[test]
fn joints_that_are_interpolated_are_told_by_check_and_by_try() {
    for (mode, is_told) in [("linear", true), ("pchip", true), ("previous", false)] {
        let folder = project_of_poses();
        let fuse = format!(
            "{{ fuse: {{ rate_hz: 100, modalities: [{{ input: arm_joints, dim: 2, interpolation: {mode} }}] }} }}"
        );
        with_plugin(&folder, &fuse);
        let checked = done(command(["check", "robot.yml", "--strict"]).current_dir(&folder.0));
        let wanted = format!(
            "fuse.modalities[0].interpolation: `{mode}`, and `arm_joints` are joints that `make: joints` finds"
        );
        assert_eq!(
            (checked.code, checked.out.contains(&wanted)),
            (i32::from(is_told), is_told),
            "{}",
            checked.out
        );
        let tried = run(["try".into(), folder.path("robot.yml"), folder.path("recording")]);
        let told = tried.out.contains(&format!("warning: {wanted}"));
        assert_eq!((tried.code, told), (0, is_told), "{}", tried.out);
    }
}

#[test]
fn changes_of_posture_are_counted_with_the_place_of_the_first() {
    let folder = project_of_poses();
    let tried = run(["try".into(), folder.path("robot.yml"), folder.path("recording")]);
    let wanted = "arm_joints: 5 messages, 100 % of 5 rows valid, 1 changes of posture, the first at 30000000 ns\n";
    assert!(tried.code == 0 && tried.out.contains(wanted), "{}", tried.out);
    let config = "chains: { arm: { urdf: arm.urdf, base: base, tip: tip } }\n\
                  fuse: { rate_hz: 100, modalities: [{ input: joints, dim: 7, interpolation: previous }] }\n\
                  lerobot: { task: x, features: [{ name: observation.state, modalities: [joints] }, \
                  { name: action, stream: joints, joints_of: { chain: arm, inverse: { task: position } } }] }\n";
    folder.write("data.yml", config);
    let words = [
        "convert",
        "recording",
        "dataset",
        "--to",
        "lerobot",
        "--config",
        "data.yml",
    ];
    let converted = done(command(words).current_dir(&folder.0));
    let wanted = "`action`: 1 changes of posture, where `joints_of` can't follow from the joints before; the first is at 30000000 ns, in frame 3";
    assert!(
        converted.code == 0 && converted.out.contains(wanted),
        "{}",
        converted.out
    );
}

#[test]
fn try_says_no_if_rows_are_not_valid_or_in_degrees() {
    let far: &[f32] = &[9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    let near: &[f32] = &[1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0];
    let degrees: [&[f32]; 3] = [&[10.0, 1.0], &[0.0, -90.0], &[0.0, 1.0]];
    for (values, entry, wanted) in [
        (
            &[near, far, far, far][..],
            "make: joints, inverse: { task: position }",
            "no: of 4 rows of `arm_joints`, 25.0 % are valid (asked for: 90.0 %)",
        ),
        (
            &degrees,
            "make: pose",
            "no: of 3 rows of `arm_pose`, 2 are of joints more than a turn beyond their limits (allowed: radians",
        ),
    ] {
        let folder = project(&[], values, entry);
        let tried = run(["try".into(), folder.path("robot.yml"), folder.path("recording")]);
        assert!(tried.code == 1 && tried.out.contains(wanted), "{}", tried.out);
    }
}

#[test]
fn what_a_node_would_warn_of_counts_in_strict_and_is_told_once() {
    let folder = project(&[], &RADIANS, "make: pose");
    let chain = "chains: { arm: { urdf: arm.urdf, base: base, tip: tip } }\n";
    let entries =
        "kinematics: [{ input: arm_pose, chain: arm, make: joints }, { input: joints, chain: arm, make: pose }]";
    let degrees = include_str!("../../tests/common/planar.urdf").replacen("upper=\"3\"", "upper=\"170\"", 1);
    let cases = [
        (
            format!("{chain}plugins: [{{ {entries} }}]\n"),
            include_str!("../../tests/common/planar.urdf"),
            "its input `arm_pose` comes from the dataflow",
        ),
        (
            format!(
                "{chain}plugins: [{{ kinematics: [{{ input: joints, chain: arm, make: pose }}] }}]\nvoxelize: {{}}\n"
            ),
            include_str!("../../tests/common/planar.urdf"),
            "the section `voxelize:` is not used",
        ),
        (
            format!("{chain}kinematics: [{{ input: joints, chain: arm, make: pose }}]\n"),
            &degrees,
            "joint `shoulder`: limits",
        ),
    ];
    for (config, urdf, wanted) in cases {
        folder.write("robot.yml", &config);
        folder.write("arm.urdf", urdf);
        let checked = done(command(["check", "robot.yml", "--strict"]).current_dir(&folder.0));
        let told = checked.out.matches(wanted).count() + checked.err.matches(wanted).count();
        let is_counted = checked.out.contains("0 errors, 1 warnings");
        assert!(
            checked.code == 1 && told == 1 && is_counted,
            "{}{}",
            checked.out,
            checked.err
        );
    }
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
