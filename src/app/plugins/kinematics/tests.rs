//! Tests of the plugin `kinematics` in a graph, on a planar arm whose poses are known in closed form.

use crate::app::{App, AppError, Config, Fault, Graph, Sink};
use robocache_device::Dtype;
use robocache_ops::kinematics::key;
use robocache_ops::{self as ops, align};
use robocache_stream::{Header, Layout, Message, MetadataRef, Payload, form};
use std::f64::consts::FRAC_PI_2;
use std::path::Path;

const NAN: f64 = f64::NAN;

/// Sink that keeps the published messages.
#[derive(Default)]
struct Collected(Vec<(String, Message)>);

impl Sink for Collected {
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        let mut message = Message::default();
        message.write(layout, fill);
        message.check_unchanged().unwrap();
        self.0.push((output.to_owned(), message));
        Ok(())
    }
}

impl Collected {
    fn take(&mut self) -> Vec<(String, Message)> {
        std::mem::take(&mut self.0)
    }

    /// Takes the only message that was published.
    fn only(&mut self) -> Message {
        let mut sent = self.take();
        assert_eq!(sent.len(), 1);
        sent.remove(0).1
    }
}

/// Builds a graph with the arm of `tests/common/planar.urdf`: links of 1 m and 0.5 m.
fn build(plugins: &str) -> Result<Graph, AppError> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/robot.yml");
    let text = format!(
        "device: cpu\nchains: {{ arm: {{ urdf: planar.urdf, base: base, tip: tip }}, \
         other: {{ urdf: planar.urdf, base: base, tip: tip, joints: [elbow, shoulder], \
         tool: {{ translation_m: [0.5, 0, 0] }} }} }}\nplugins: [{plugins}]"
    );
    App::new()
        .with_config(Config::parse(Path::new(file), &text)?)
        .add_plugins(super::super::all())
        .build(|_| true)
}

fn graph(entries: &str) -> Graph {
    build(&format!("kinematics: [{entries}]")).unwrap()
}

fn message(values: &[f64], header: impl FnOnce(&mut Header)) -> Message {
    let mut message = Message::default();
    message.write(&Layout::flat(Dtype::Float64, values.len()), |payload, to| {
        payload.column(0).copy_from_slice(values);
        to.timestamp_ns.set(5);
        header(to);
    });
    message
}

fn values(message: &Message) -> Vec<f64> {
    message.flat().unwrap().as_slice().to_vec()
}

/// Asserts that values are equal to within 1e-12. NaN equals NaN.
fn assert_near(came: &[f64], wanted: &[f64]) {
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12 || a.is_nan() && b.is_nan();
    assert!(
        came.len() == wanted.len() && came.iter().zip(wanted).all(is_near),
        "{came:?}\n{wanted:?}"
    );
}

fn faults(graph: &Graph) -> u64 {
    graph.faults().map(|(_, count)| count).sum()
}

/// Returns a line for each kind of fault or warning: the input or output, the count, and the last line of the log.
fn causes(graph: &Graph) -> Vec<String> {
    graph
        .causes()
        .map(|(at, count, words)| format!("{at}: {count}: {words}"))
        .collect()
}

#[test]
fn joints_make_a_pose_a_jacobian_and_a_twist() {
    let mut graph = graph("{ input: joints, chain: arm, make: [pose, jacobian, twist] }");
    let mut sent = Collected::default();
    // The upper link along x, the lower one along y; the shoulder turns.
    graph.message(0, &message(&[0.0, FRAC_PI_2, 2.0, 0.0], |_| ()), &mut sent);
    let sent = sent.take();
    let names: Vec<&str> = sent.iter().map(|(output, _)| output.as_str()).collect();
    assert_eq!(names, ["arm_pose", "arm_jacobian", "arm_twist"]);
    let half = 0.5f64.sqrt();
    assert_near(&values(&sent[0].1), &[1.0, 0.5, 0.0, 0.0, 0.0, half, half]);
    let zeros = [0.0; 6];
    assert_near(
        &values(&sent[1].1),
        &[&[-0.5, -0.5, 1.0, 0.0], &zeros[..], &[1.0, 1.0]].concat(),
    );
    assert_near(&values(&sent[2].1), &[-1.0, 2.0, 0.0, 0.0, 0.0, 2.0]);
    let forms: Vec<_> = sent
        .iter()
        .map(|(_, message)| message.header.shape.get().unwrap())
        .collect();
    assert_eq!(forms, [&[7][..], &[6, 2], &[6]]);
    for (_, message) in &sent {
        let header = &message.header;
        assert_eq!((message.timestamp_ns(), header.valid.get()), (5, Some(&[1][..])));
        assert_eq!(
            (header.frame_id.get(), header.dtype.get()),
            (Some("base"), Some("float64"))
        );
    }
    assert_eq!(sent[1].1.header.fields.get().unwrap(), ["shoulder", "elbow"]);
    assert_eq!(sent[2].1.header.fields.get().unwrap()[5], "angular.z");
    assert_eq!(faults(&graph), 0);
}

#[test]
fn each_row_has_its_stamp_and_its_mask() {
    let mut graph = graph("{ input: joints, chain: arm, make: [pose, twist] }");
    let mut sent = Collected::default();
    let rows = [
        [0.0, 0.0, 0.0, 1.0],
        [1.0, 1.0, 0.0, 0.0],
        [NAN, 0.0, 0.0, 0.0],
        [0.0, 9000.0, 0.0, 0.0],
        [FRAC_PI_2, 0.0, NAN, 0.0],
    ];
    let message = message(rows.as_flattened(), |header| {
        header.timestamps_ns.set([10, 20, 30, 40, 50]);
        header.valid.set([1, 0, 1, 1, 1]);
        header.shape.set([5, 4]);
        header.frame_id.set("joints");
        ops::key::epoch.set(header, 3);
        // Metadata of a window of one modality.
        form::modalities.set(header, ["joints"]);
        align::key::offsets.set(header, [0, 4]);
        form::age_ns.set(header, [0; 5]);
    });
    graph.message(0, &message, &mut sent);
    let sent = sent.take();
    let half = 0.5f64.sqrt();
    let none = [NAN; 7];
    let first = [1.5, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    let last = [0.0, 1.5, 0.0, 0.0, 0.0, half, half];
    assert_near(&values(&sent[0].1), &[first, none, none, none, last].concat());
    let twists = values(&sent[1].1);
    assert_near(&twists[..6], &[0.0, 0.5, 0.0, 0.0, 0.0, 1.0]);
    assert_near(&twists[6..], &[NAN; 24]);
    for ((_, message), (width, mask)) in sent.iter().zip([(7, [1, 0, 0, 0, 1]), (6, [1, 0, 0, 0, 0])]) {
        let header = &message.header;
        assert_eq!(header.shape.get(), Some(&[5, width][..]));
        assert_eq!(header.timestamps_ns.get(), Some(&[10, 20, 30, 40, 50][..]));
        assert_eq!((header.valid.get(), message.timestamp_ns()), (Some(&mask[..]), 5));
        assert_eq!(ops::key::epoch.get(header), Some(3));
        assert_eq!(key::dropped_range.get(header), Some(1));
        let keys: Vec<&str> = header.iter().map(|(key, _)| key).collect();
        let of_window = [form::modalities.name, align::key::offsets.name, form::age_ns.name];
        assert!(!of_window.iter().any(|key| keys.contains(key)), "{keys:?}");
    }
    let nonfinite = |of: usize| ops::key::dropped_nonfinite.get(&sent[of].1.header);
    assert_eq!((nonfinite(0), nonfinite(1)), (Some(1), Some(2)));
    // The row that came masked does not count as a fault.
    assert_eq!(faults(&graph), 3);
    graph.gather_diagnostics();
    let report = graph.report(std::time::Instant::now()).unwrap();
    let row = &report.inputs[0];
    assert_eq!((row.faults, row.dropped_nonfinite, row.dropped_range), (3, 2, 1));
    let said = causes(&graph).join("\n");
    assert!(
        said.contains("row 2: `shoulder` is NaN (needed: a finite number)"),
        "{said}"
    );
}

#[test]
fn joints_are_found_by_their_names_whatever_their_order() {
    let entries = "{ input: joints, chain: arm, make: pose }, { input: joints, chain: other, make: [pose, twist] }";
    let mut graph = graph(entries);
    let mut sent = Collected::default();
    let names = |names: [&'static str; 3]| move |header: &mut Header| header.fields.set(names);
    let bent = message(&[FRAC_PI_2, 7.0, 0.0], names(["elbow", "gripper", "shoulder"]));
    graph.message(0, &bent, &mut sent);
    let poses = sent.take();
    let half = 0.5f64.sqrt();
    assert_near(&values(&poses[0].1), &[1.0, 0.5, 0.0, 0.0, 0.0, half, half]);
    // The tool is another 0.5 m long.
    assert_near(&values(&poses[1].1), &[1.0, 1.0, 0.0, 0.0, 0.0, half, half]);
    assert_eq!((poses[1].0.as_str(), poses.len()), ("other_pose", 2));
    // Without velocities there is no twist, which counts as a fault.
    assert_eq!(faults(&graph), 1);
    graph.message(
        0,
        &message(&[0.0; 3], names(["elbow", "gripper", "sholder"])),
        &mut sent,
    );
    assert!(sent.take().is_empty());
    let said = causes(&graph).join("\n");
    let wanted = "joint `shoulder` is not among the `fields`, did you mean `sholder`? (there: elbow, gripper, sholder)";
    assert!(said.contains(wanted) && faults(&graph) == 3, "{said}");
}

#[test]
fn channels_say_which_values_are_joints() {
    let mut graph = graph("{ input: proprio, chain: arm, make: pose, channels: [1, 3] }");
    let mut sent = Collected::default();
    let mut single = Message::default();
    single.write(&Layout::flat(Dtype::Float32, 8), |payload, header| {
        payload
            .column(0)
            .copy_from_slice(&[9.0f32, 0.0, 0.0, 9.0, 9.0, FRAC_PI_2 as f32, 0.0, 9.0]);
        header.timestamps_ns.set([1, 2]);
    });
    graph.message(0, &single, &mut sent);
    let pose = sent.only();
    let poses: &[f32] = pose.flat().unwrap().as_slice();
    assert_eq!(
        (poses[0], poses[1], pose.header.dtype.get()),
        (1.5, 0.0, Some("float32"))
    );
    assert!(poses[7].abs() < 1e-6 && (poses[8] - 1.5).abs() < 1e-6);
    graph.message(0, &message(&[1.0, 2.0], |_| ()), &mut sent);
    let said = causes(&graph).join("\n");
    assert!(
        said.contains("a sample has 2 values (needed: 3 or more, because of `channels`)"),
        "{said}"
    );
}

#[test]
fn rows_without_a_stamp_for_each_are_refused_and_none_of_them_is_taken() {
    let cases = [
        (
            "make: pose",
            &[3, 2][..],
            "`shape` [3, 2] is not that of 1 samples of 2 values",
        ),
        (
            "make: pose, channels: [0, 2]",
            &[3, 2],
            "`shape` [3, 2] is not that of 1 samples of 2 values",
        ),
        (
            "make: pose, channels: [0, 2]",
            &[3, 1, 2],
            "`shape` [3, 1, 2] is not that of 1 samples of 2 values",
        ),
        // Two rows of positions are not one row of positions and velocities, and a column is not a row.
        (
            "make: [pose, twist]",
            &[2, 2],
            "`shape` [2, 2] is not that of 1 samples of 4 values",
        ),
        (
            "make: [pose, twist], channels: [0, 4]",
            &[2, 2],
            "a sample has 2 values (needed: 4 or more",
        ),
        (
            "make: pose",
            &[2, 1],
            "`shape` [2, 1] is not that of 1 samples of 2 values",
        ),
        (
            "make: joints, channels: [0, 7]",
            &[2, 7],
            "`shape` [2, 7] is not that of 1 samples of 7 values",
        ),
    ];
    for (keys, shape, words) in cases {
        let mut graph = graph(&format!("{{ input: joints, chain: arm, {keys} }}"));
        let mut sent = Collected::default();
        let values = vec![0.0; shape.iter().product::<i64>() as usize];
        let rows = message(&values, |header| header.shape.set(shape.iter().copied()));
        graph.message(0, &rows, &mut sent);
        let said = causes(&graph).join("\n");
        assert!(
            sent.0.is_empty() && faults(&graph) == 1 && said.contains(words),
            "{keys}: {said}\nnot {words}"
        );
    }
}

#[test]
fn channels_that_have_names_of_joints_are_read_by_them() {
    let half = 0.5f64.sqrt();
    let mut graph = graph("{ input: proprio, chain: arm, make: [pose, twist], channels: [1, 5] }");
    let mut sent = Collected::default();
    let named = |values: [f64; 5], names: [&'static str; 5]| message(&values, move |to| to.fields.set(names));
    // The elbow is bent, and the shoulder turns, in whatever order the values come.
    let orders = [
        (
            [9.0, 0.0, FRAC_PI_2, 2.0, 0.0],
            ["g", "shoulder", "elbow", "shoulder", "elbow"],
        ),
        (
            [9.0, FRAC_PI_2, 0.0, 0.0, 2.0],
            ["g", "elbow", "shoulder", "elbow", "shoulder"],
        ),
        (
            [9.0, 2.0, FRAC_PI_2, 0.0, 0.0],
            ["g", "velocity.shoulder", "elbow", "shoulder", "velocity.elbow"],
        ),
        // These name no joint, so that the values are in the order of the chain.
        ([9.0, 0.0, FRAC_PI_2, 2.0, 0.0], ["g", "q0", "q1", "v0", "v1"]),
    ];
    for (values_of, names) in orders {
        graph.message(0, &named(values_of, names), &mut sent);
        let sent = sent.take();
        assert_near(&values(&sent[0].1), &[1.0, 0.5, 0.0, 0.0, 0.0, half, half]);
        assert_near(&values(&sent[1].1), &[-1.0, 2.0, 0.0, 0.0, 0.0, 2.0]);
    }
    // The log says so.
    let said = causes(&graph).join("\n");
    let wanted = "none of the `fields` q0, q1, v0, v1 is a joint";
    assert!(faults(&graph) == 1 && said.contains(wanted), "{said}");
    // Naming one joint of two is a mistake.
    graph.message(0, &named([0.0; 5], ["shoulder", "elbow", "g", "a", "b"]), &mut sent);
    let said = causes(&graph).join("\n");
    let wanted = "joint `shoulder` is not among the `fields` (there: elbow, g, a, b)";
    assert!(sent.0.is_empty() && said.contains(wanted), "{said}");
}

#[test]
fn values_far_beyond_the_limits_are_told_as_degrees() {
    let mut graph = graph("{ input: joints, chain: arm, make: pose }");
    let mut sent = Collected::default();
    // The limits are 3 to either side: a turn more may be meant.
    graph.message(0, &message(&[9.2, -9.2], |_| ()), &mut sent);
    graph.message(0, &message(&[f64::NAN, 90.0], |_| ()), &mut sent);
    assert!(causes(&graph).iter().all(|cause| !cause.contains("degrees")));
    graph.message(0, &message(&[0.5, -90.0], |_| ()), &mut sent);
    // All three messages are used all the same.
    assert_eq!(sent.take().len(), 3);
    let said = causes(&graph).join("\n");
    let wanted = "`elbow` is -90.000, more than a turn beyond its limits -3.000 and 3.000 (allowed: radians; are these degrees?)";
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn a_twist_that_the_type_cannot_hold_is_masked() {
    let mut graph = graph("{ input: joints, chain: arm, make: [pose, twist] }");
    let mut sent = Collected::default();
    let mut single = Message::default();
    single.write(&Layout::flat(Dtype::Float32, 4), |payload, header| {
        payload.column(0).copy_from_slice(&[0.0f32, 0.0, 3e38, 3e38]);
        header.timestamp_ns.set(1);
    });
    graph.message(0, &single, &mut sent);
    let sent = sent.take();
    let valid = |of: usize| sent[of].1.header.valid.get().map(<[i64]>::to_vec);
    assert_eq!((valid(0), valid(1)), (Some(vec![1]), Some(vec![0])));
    let twist: &[f32] = sent[1].1.flat().unwrap().as_slice();
    assert!(twist.iter().all(|value| value.is_nan()), "{twist:?}");
    assert_eq!(ops::key::dropped_nonfinite.get(&sent[1].1.header), Some(1));
    assert_eq!(faults(&graph), 1);
}

#[test]
fn a_stream_that_changes_its_type_goes_on_from_the_last_answer() {
    let mut graph =
        graph("{ input: goal, chain: arm, make: joints, inverse: { task: position, max_joint_step: 0.2 } }");
    let mut sent = Collected::default();
    let joints: Vec<(Vec<f64>, Option<i64>)> = (0..8)
        .map(|tick| {
            // The sixth goal, which is the third in float32, is on the other side.
            let (x, y) = (if tick == 5 { 0.9 } else { -0.2 }, 0.9 - 0.02 * f64::from(tick));
            let goal = [x, y, 0.0, 0.0, 0.0, 0.0, 1.0];
            let mut single = Message::default();
            single.write(&Layout::flat(Dtype::Float32, 7), |payload, header| {
                payload.column(0).copy_from_slice(&goal.map(|value| value as f32));
                header.timestamp_ns.set(5);
            });
            let message = if tick % 2 == 0 { message(&goal, |_| ()) } else { single };
            graph.message(0, &message, &mut sent);
            let joints = sent.only();
            let values = match joints.flat().unwrap().dtype() {
                Dtype::Float32 => joints
                    .flat()
                    .unwrap()
                    .as_slice::<f32>()
                    .iter()
                    .map(|&value| value.into())
                    .collect(),
                _ => values(&joints),
            };
            (values, key::branch.get(&joints.header))
        })
        .collect();
    let branches: Vec<i64> = joints.iter().map(|(_, branch)| branch.unwrap()).collect();
    assert_eq!(branches, [0, 0, 0, 0, 0, 1, 2, 2]);
    for (pair, branches) in joints.windows(2).zip(branches.windows(2)) {
        let steps = pair[0].0.iter().zip(&pair[1].0).map(|(a, b)| (a - b).abs());
        let most = steps.fold(0.0, f64::max);
        assert!(branches[0] != branches[1] || most <= 0.2, "{joints:?}");
    }
    let said = causes(&graph).join("\n");
    let wanted = "2: the joints change to another posture at 5 ns, and `branch` goes up";
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn a_mask_of_no_rows_is_none_and_does_not_hide_that_of_the_output() {
    let mut graph = graph("{ input: joints, chain: arm, make: pose }");
    let mut sent = Collected::default();
    for (value, mask) in [(0.0, 1), (NAN, 0)] {
        // An empty list from Python arrives like this.
        let came = message(&[value, 0.0], |header| {
            header
                .other
                .set(robocache_stream::key::valid)
                .assign(MetadataRef::ListString(&[]));
        });
        graph.message(0, &came, &mut sent);
        let pose = sent.only();
        let masks = pose
            .header
            .iter()
            .filter(|(key, _)| *key == robocache_stream::key::valid);
        let masks: Vec<_> = masks.map(|(_, masks)| masks).collect();
        assert_eq!(masks, [MetadataRef::ListInt(&[mask])]);
    }
}

#[test]
fn values_with_names_of_no_joint_are_told_and_those_of_a_pose_are_not_taken() {
    let mut graph = graph("{ input: state, chain: arm, make: pose, channels: [2, 4] }");
    let mut sent = Collected::default();
    let named = |names: [&'static str; 4]| message(&[7.0, 7.0, 0.0, FRAC_PI_2], |header| header.fields.set(names));
    graph.message(0, &named(["a", "b", "state.0", "state.1"]), &mut sent);
    let half = 0.5f64.sqrt();
    assert_near(&values(&sent.only()), &[1.0, 0.5, 0.0, 0.0, 0.0, half, half]);
    let said = causes(&graph).join("\n");
    let wanted = "none of the `fields` state.0, state.1 is a joint: the values are taken in the order of the chain, shoulder, elbow";
    assert!(said.contains(wanted), "{said}");
    graph.message(0, &named(["x", "y", "orientation.z", "orientation.w"]), &mut sent);
    let said = causes(&graph).join("\n");
    let wanted = "the `fields` of the joints are orientation.z, orientation.w, those of a rotation (needed: joints";
    assert!(sent.0.is_empty() && said.contains(wanted), "{said}");
}

#[test]
fn a_pose_that_is_too_far_away_or_in_another_order_is_told_as_that() {
    let mut graph = graph("{ input: goal, chain: arm, make: joints }");
    let mut sent = Collected::default();
    let rows = [
        [1.5, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        [0.0, -2e6, 0.0, 0.0, 0.0, 0.0, 1.0],
        [1.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    ];
    let stamped = |header: &mut Header| header.timestamps_ns.set([10, 20, 30]);
    graph.message(0, &message(rows.as_flattened(), stamped), &mut sent);
    let header = sent.only().header;
    assert_eq!(header.valid.get(), Some(&[1, 0, 0][..]));
    let counts = (
        key::dropped_range.get(&header),
        ops::key::dropped_nonfinite.get(&header),
    );
    assert_eq!(
        (counts, key::dropped_unreachable.get(&header)),
        ((Some(1), Some(1)), Some(0))
    );
    let said = causes(&graph).join("\n");
    assert!(
        said.contains("row 1: `position.y` is -2000000 (allowed: -1000000 to 1000000 m)"),
        "{said}"
    );
    graph.gather_diagnostics();
    let row = &graph.report(std::time::Instant::now()).unwrap().inputs[0];
    assert_eq!(
        (row.dropped_range, row.dropped_nonfinite, row.dropped_unreachable),
        (1, 1, 0)
    );

    let names = ["x", "y", "z", "qw", "qx", "qy", "qz"];
    let other = message(&[1.5, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], |header| header.fields.set(names));
    graph.message(0, &other, &mut sent);
    assert!(sent.0.is_empty() && faults(&graph) == 3, "{:?}", causes(&graph));
}

#[test]
fn poses_make_joints_that_go_on_from_the_last_answer() {
    let entries = "{ input: goal, chain: arm, make: joints, inverse: { task: position, position_tolerance_m: 1.0e-9 } }, \
                   { input: arm_joints, chain: arm, make: pose, name: reached }";
    let mut graph = graph(entries);
    let mut sent = Collected::default();
    let goal = |x: f64, y: f64| [x, y, 0.0, 0.0, 0.0, 0.0, 1.0];
    let rows = [
        goal(1.0, 0.5),
        goal(1.0, 0.52),
        goal(9.0, 0.0),
        goal(NAN, 0.0),
        goal(1.0, 0.54),
    ];
    let stamped = |header: &mut Header| {
        header.timestamps_ns.set([10, 20, 30, 40, 50]);
        header.frame_id.set("base");
    };
    graph.message(0, &message(rows.as_flattened(), stamped), &mut sent);
    let out = sent.take();
    assert_eq!((out[0].0.as_str(), out[1].0.as_str()), ("arm_joints", "reached_pose"));
    let (joints, header) = (values(&out[0].1), &out[0].1.header);
    assert_eq!(
        (header.valid.get(), header.frame_id.get()),
        (Some(&[1, 1, 0, 0, 1][..]), None)
    );
    assert_eq!(
        (header.shape.get(), header.fields.get().unwrap()[1].as_str()),
        (Some(&[5, 2][..]), "elbow")
    );
    assert!(joints[4..8].iter().all(|joint| joint.is_nan()));
    // The elbow stays on one side from row to row.
    assert!(
        (joints[1] - joints[3]).abs() < 0.1 && (joints[3] - joints[9]).abs() < 0.1,
        "{joints:?}"
    );
    let poses = values(&out[1].1);
    let reached: Vec<f64> = [0, 7, 28].iter().flat_map(|&at| poses[at..at + 2].to_vec()).collect();
    for (came, wanted) in reached.iter().zip([1.0, 0.5, 1.0, 0.52, 1.0, 0.54]) {
        assert!((came - wanted).abs() < 1e-8, "{reached:?}");
    }
    assert_eq!(out[1].1.header.valid.get(), Some(&[1, 1, 0, 0, 1][..]));
    let errors = key::position_error_m.get(header).unwrap();
    assert!(
        errors[0] < 1e-9 && (errors[2] - 7.5).abs() < 1e-3 && errors[3].is_nan(),
        "{errors:?}"
    );
    assert_eq!(
        (key::dropped_unreachable.get(header), key::branch.get(header)),
        (Some(1), Some(0))
    );
    assert_eq!(ops::key::dropped_nonfinite.get(header), Some(1));
    graph.gather_diagnostics();
    let report = graph.report(std::time::Instant::now()).unwrap();
    let row = &report.inputs[0];
    assert_eq!((row.dropped_unreachable, row.dropped_nonfinite, row.faults), (1, 1, 1));
    let said = causes(&graph).join("\n");
    assert!(
        said.contains("row 2: no joints were found for its pose: the best are 7.500e0 m"),
        "{said}"
    );
}

#[test]
fn joints_that_a_goal_leaves_free_are_pulled_to_rest() {
    // Only x of the goal is to be reached.
    let entries = "{ input: goal, chain: arm, make: joints, inverse: { task: position, weights: [1, 0, 0, 1, 1, 1], \
                     posture: 0.2, rest: [0, 1] } }, { input: arm_joints, chain: arm, make: pose, name: reached }";
    let mut graph = graph(entries);
    let mut sent = Collected::default();
    let goal = message(&[1.2, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], |_| ());
    let (mut before, mut last) = (f64::INFINITY, Vec::new());
    for _ in 0..200 {
        graph.message(0, &goal, &mut sent);
        let [joints, pose] = [0, 1].map(|of| values(&sent.0[of].1));
        sent.take();
        assert!((pose[0] - 1.2).abs() <= 1e-4, "{pose:?}");
        let distance = joints[0].powi(2) + (joints[1] - 1.0).powi(2);
        assert!(distance <= before, "{joints:?}");
        (before, last) = (distance, joints);
    }
    // In the end, rest lies in the direction in which x changes most: (dx/da, dx/db) of x = cos a + cos(a + b) / 2.
    let along = [
        -last[0].sin() - 0.5 * (last[0] + last[1]).sin(),
        -0.5 * (last[0] + last[1]).sin(),
    ];
    let aside = last[0] * along[1] - (last[1] - 1.0) * along[0];
    assert!(aside.abs() < 1e-3, "{last:?}");
    assert_eq!(faults(&graph), 0);
}

#[test]
fn a_clock_jump_and_another_frame_are_told_to_the_inverse() {
    let mut graph = graph("{ input: goal, chain: arm, make: joints, inverse: { task: position } }");
    let mut sent = Collected::default();
    let joints = |graph: &mut Graph, y: f64, epoch: i64| {
        let mut sent = Collected::default();
        let goal = message(&[-0.2, y, 0.0, 0.0, 0.0, 0.0, 1.0], |header| {
            ops::key::epoch.set(header, epoch);
        });
        graph.message(0, &goal, &mut sent);
        values(&sent.only())
    };
    let first = joints(&mut graph, 0.9, 0);
    joints(&mut graph, 0.8, 0);
    let followed = joints(&mut graph, 0.9, 0);
    let anew = joints(&mut graph, 0.9, 1);
    assert_ne!(first, followed);
    assert_eq!(first, anew, "as the first of a trajectory");
    let foreign = message(&[1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0], |header| {
        header.frame_id.set("world")
    });
    graph.message(0, &foreign, &mut sent);
    assert_eq!(sent.take().len(), 1);
    let said = causes(&graph).join("\n");
    assert!(
        said.contains("its poses are in the frame `world`, and are taken as those in `base`"),
        "{said}"
    );
}

#[test]
fn a_message_that_cannot_be_used_is_counted_and_the_next_one_is() {
    let entries = "{ input: joints, chain: arm, make: pose }, \
                   { input: goal, chain: arm, make: joints, inverse: { position_tolerance_m: 1.0e-9 } }";
    let mut sent = Collected::default();
    let mut integers = Message::default();
    integers.write(&Layout::flat(Dtype::Int32, 2), |_, header| header.timestamp_ns.set(1));
    let mut single = Message::default();
    single.write(&Layout::flat(Dtype::Float32, 7), |_, header| header.timestamp_ns.set(1));
    let unstamped = message(&[0.0; 2], |header| header.timestamp_ns.clear());
    let cases = [
        (0, message(&[0.0; 3], |_| ()), "3 values (allowed: 2, one sample"),
        (0, unstamped, "no `timestamp_ns` (needed"),
        (0, integers, "the values are int32 (allowed: float32, float64)"),
        (
            1,
            single,
            "`inverse` needs float64 poses, but these are float32: position_tolerance_m: 0.000000001 (allowed",
        ),
        (1, message(&[0.0; 6], |_| ()), "6 values (allowed: 7, one sample"),
    ];
    for (input, unusable, words) in &cases {
        let mut graph = graph(entries);
        graph.message(*input, unusable, &mut sent);
        let said = causes(&graph).join("\n");
        assert!(said.contains(words) && sent.0.is_empty(), "{said}\nnot {words}");
        assert_eq!(faults(&graph), 1);
        graph.message(0, &message(&[0.0; 2], |_| ()), &mut sent);
        assert_near(&values(&sent.only()), &[1.5, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    }
}

#[test]
fn a_tool_pose_is_a_modality_of_fuse() {
    let fuse = "fuse: { rate_hz: 100, modalities: [{ input: arm_pose, dim: 7, groups: [\
                { channels: [0, 3], interpolation: linear }, { channels: [3, 7], interpolation: slerp }] }] }";
    let mut graph = build(&format!(
        "kinematics: [{{ input: joints, chain: arm, make: pose }}], {fuse}"
    ))
    .unwrap();
    let inputs: Vec<&str> = graph.external_inputs().map(|(input, _)| input).collect();
    assert_eq!(inputs, ["joints"]);
    let mut sent = Collected::default();
    for (ms, shoulder) in [(5, 0.0), (15, FRAC_PI_2), (25, NAN), (35, FRAC_PI_2)] {
        let joints = message(&[shoulder, 0.0], |header| header.timestamp_ns.set(ms * 1_000_000));
        graph.message(0, &joints, &mut sent);
    }
    let fused: Vec<_> = sent
        .take()
        .into_iter()
        .filter(|(output, _)| output == "fused")
        .collect();
    // At 10 ms the pose is half way; at 20 and 30 ms it is between two equal poses, as the masked row is left out.
    assert_eq!(fused.len(), 3);
    let rows: Vec<Vec<f32>> = fused
        .iter()
        .map(|(_, message)| message.flat().unwrap().as_slice().to_vec())
        .collect();
    let (eighth, half) = ((FRAC_PI_2 / 4.0).sin_cos(), 0.5f64.sqrt());
    for (row, wanted) in rows.iter().zip([
        [0.75, 0.75, 0.0, 0.0, 0.0, eighth.0, eighth.1],
        [0.0, 1.5, 0.0, 0.0, 0.0, half, half],
        [0.0, 1.5, 0.0, 0.0, 0.0, half, half],
    ]) {
        let is_near = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() < 1e-6;
        assert!(row.iter().zip(&wanted).all(is_near), "{row:?}\n{wanted:?}");
    }
}

#[test]
fn what_cannot_work_is_refused_with_the_key_and_what_is_allowed() {
    let (arm, in_x) = (
        "input: joints, chain: arm",
        "task: position, weights: [1, 0, 0, 1, 1, 1]",
    );
    let cases = [
        ("[]", "kinematics: []: the list is empty (allowed: one entry or more)"),
        (
            "{ input: joints }",
            "kinematics: a map is not allowed (allowed: a list)",
        ),
        (
            "[{ input: joints, make: pose }]",
            "kinematics: [0]: the key `chain` is missing",
        ),
        (
            &format!("[{{ {arm}, make: pose, inputs: 3 }}]"),
            "kinematics: [0].inputs: unknown key `inputs`, did you mean `input`? (allowed: input, from, channels, chain",
        ),
        (
            &format!("[{{ {arm}, make: poses }}]"),
            "kinematics: [0].make: `poses` is not allowed, did you mean `pose`? (allowed: pose, jacobian, twist, joints)",
        ),
        (
            &format!("[{{ {arm}, make: 3 }}]"),
            "kinematics: [0].make: 3 is not allowed (allowed: pose, jacobian, twist, joints, or a list of these)",
        ),
        (
            &format!("[{{ {arm}, make: [] }}]"),
            "kinematics: [0].make: it is empty (allowed: `joints`, or any of",
        ),
        (
            &format!("[{{ {arm}, make: [pose, joints] }}]"),
            "kinematics: [0].make: `joints` are found for poses, and the other products are computed from joints",
        ),
        (
            &format!("[{{ {arm}, make: [pose, pose] }}]"),
            "kinematics: [0].make: `pose` is listed twice (allowed: once)",
        ),
        (
            "[{ input: joints, chain: amr, make: pose }]",
            "kinematics: [0].chain: `amr` is not one of `chains:`, did you mean `arm`? (there: arm, other)",
        ),
        (
            &format!("[{{ {arm}, make: pose }}, {{ input: other, chain: arm, make: pose }}]"),
            "kinematics: [1].name: [0] publishes `arm_pose`, too (needed: another `name` in one of them)",
        ),
        (
            &format!("[{{ {arm}, make: pose, name: a/b }}]"),
            "kinematics: [0].name: `a/b` is not a name (allowed: letters a to z, digits, `_` and `-`)",
        ),
        (
            "[{ input: joints, chain: 'left arm', make: pose }]",
            "kinematics: [0].chain: `left arm` can't be the prefix of an output's name (allowed: letters",
        ),
        (
            &format!("[{{ {arm}, make: pose, frame: tool }}]"),
            "kinematics: [0].frame: no product of the entry uses it (allowed with: jacobian, twist)",
        ),
        (
            &format!("[{{ {arm}, make: jacobian, frame: world }}]"),
            "kinematics: [0].frame: `world` is not allowed (allowed: base, tool, spatial)",
        ),
        (
            &format!("[{{ {arm}, make: pose, inverse: {{}} }}]"),
            "kinematics: [0].inverse: no product of the entry uses it (allowed with: joints)",
        ),
        (
            &format!("[{{ {arm}, make: joints, inverse: {{ seeds: 0 }} }}]"),
            "kinematics: [0].inverse.seeds: 0 (allowed: 1 to 4096)",
        ),
        (
            &format!("[{{ {arm}, make: joints, inverse: {{ seed: 3 }} }}]"),
            "kinematics: [0].inverse.seed: unknown key `seed`, did you mean `seeds`?",
        ),
        (
            &format!("[{{ {arm}, make: joints, inverse: {{ posture: 0.1 }} }}]"),
            "kinematics: [0].inverse.posture: 0.1 with 2 joints and 6 rows that `task` and `weights` judge (allowed: more joints than rows, or no `posture`)",
        ),
        (
            &format!("[{{ {arm}, make: joints, inverse: {{ {in_x}, posture: 2 }} }}]"),
            "kinematics: [0].inverse.posture: 2 (allowed: above 0, up to 1)",
        ),
        (
            &format!("[{{ {arm}, make: joints, inverse: {{ {in_x}, posture: 0.1, rest: [0] }} }}]"),
            "kinematics: [0].inverse.rest: [0.0] (allowed: 2 finite numbers, one for each joint)",
        ),
        (
            &format!("[{{ {arm}, make: joints, inverse: {{ {in_x}, rest: [0, 0] }} }}]"),
            "kinematics: [0].inverse.rest: [0.0, 0.0] without `posture` (needed: both, or neither)",
        ),
        (
            &format!("[{{ {arm}, make: pose, channels: [0, 3] }}]"),
            "kinematics: [0].channels: [0, 3] (allowed: [first, end] of 2 values)",
        ),
        (
            &format!("[{{ {arm}, make: twist, channels: [3, 2] }}]"),
            "kinematics: [0].channels: [3, 2] (allowed: [first, end] of 2 values, or 4 with velocities)",
        ),
        (
            &format!(
                "[{{ {arm}, make: pose, from: {{ columns: [p], names: {{ key: name, order: [elbow, sholder] }} }} }}]"
            ),
            "kinematics: [0].from.names.order: the joint `shoulder` of the chain is not there, did you mean `sholder`? (there: \
             elbow, sholder)",
        ),
        (
            &format!("[{{ {arm}, make: pose, from: {{ columns: [a..b] }} }}]"),
            "kinematics: [0].from.columns[0]: `a..b` is not a path",
        ),
    ];
    for (section, wanted) in cases {
        let error = build(&format!("kinematics: {section}")).err().unwrap();
        assert!(error.is_config());
        let text = error.to_string();
        assert!(text.contains(wanted), "{text}\nnot {wanted}");
    }
}

#[test]
fn a_chain_that_is_wrong_is_refused_where_it_stands() {
    let refusal = |chains: &str| {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/robot.yml");
        let text =
            format!("device: cpu\nchains: {chains}\nplugins: [kinematics: [{{ input: a, chain: arm, make: pose }}]]");
        let config = Config::parse(Path::new(file), &text);
        let built = config.and_then(|config| {
            let app = App::new().with_config(config).add_plugins(super::super::all());
            app.build(|_| true)
        });
        let error = built.err().unwrap();
        assert!(error.is_config());
        error.to_string()
    };
    let cases = [
        ("[]", "chains: a list is not allowed (allowed: a map)"),
        (
            "{}",
            "kinematics: [0].chain: `arm` is not one of `chains:` (there: none)",
        ),
        (
            "{ arm: { base: base, tip: tip } }",
            "chains: arm: the key `urdf` is missing",
        ),
        (
            "{ arm: { urdf: a, base: base, tip: tip, limit: {} } }",
            "chains: arm.limit: unknown key `limit`, did you mean `limits`? (allowed: urdf, base, tip, joints, limits, tool)",
        ),
        (
            "{ arm: { urdf: none.urdf, base: base, tip: tip } }",
            "common/none.urdf: No such file",
        ),
        (
            "{ arm: { urdf: planar.urdf, base: base, tip: hand } }",
            "chains: arm: /",
        ),
        (
            "{ arm: { urdf: planar.urdf, base: base, tip: tip, tool: { translation_m: [1.0e+7, 0, 0] } } }",
            "chains: arm: tool.translation_m: [10000000.0, 0.0, 0.0] (allowed: -1e6 to 1e6)",
        ),
        (
            "{ arm: { urdf: planar.urdf, base: base, tip: tip, tool: { rotation_xyzw: [0, 0, 0, 0] } } }",
            "chains: arm: tool.rotation_xyzw: [0.0, 0.0, 0.0, 0.0] has the norm 0 (allowed",
        ),
        (
            "{ arm: { urdf: planar.urdf, base: base, tip: tip, limits: { elbw: [0, 1] } } }",
            "`limits` names `elbw`, did you mean `elbow`? (allowed: shoulder, elbow)",
        ),
    ];
    for (chains, wanted) in cases {
        let text = refusal(chains);
        assert!(text.contains(wanted), "{text}\nnot {wanted}");
    }
}
