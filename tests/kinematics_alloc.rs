//! Kinematics allocates no memory once it has seen its largest message, also for malformed messages.

use crate::common::{self, Overwrite};
use crate::counting::allocations;
use robocache::device::Dtype;
use robocache::stream::{Header, Layout, Message};

/// Makes a message of `rows` samples with the stamps 1 to `rows`, ns.
fn message(values: &[f64], rows: i64, header: impl FnOnce(&mut Header)) -> Message {
    let mut message = Message::default();
    message.write(&Layout::flat(Dtype::Float64, values.len()), |payload, to| {
        payload.column(0).copy_from_slice(values);
        to.timestamps_ns.set(1..=rows);
        header(to);
    });
    message
}

#[test]
fn nothing_is_allocated_for_a_message_in_steady_state() {
    let config = "chains: { arm: { urdf: tests/common/planar.urdf, base: base, tip: tip } }
plugins:
  - kinematics:
      - { input: joints, chain: arm, make: [pose, jacobian, twist] }
      - { input: goal, chain: arm, make: joints, inverse: { task: position, seeds: 4 } }
      - { input: arm_joints, chain: arm, make: pose, name: reached }";
    let mut graph = common::graph(config).unwrap();
    graph.gather_diagnostics();
    let nan = f64::NAN;
    let joints = message(&[0.1, 9.0, 0.2, 1.0, 2.0, nan, 9.0, 0.3, 1.0, 2.0], 2, |header| {
        let names = ["elbow", "gripper", "shoulder", "velocity.elbow", "velocity.shoulder"];
        header.fields.set(names);
        header.valid.set([1, 1]);
    });
    let goal = message(
        &[[1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0], [9.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0]].concat(),
        2,
        |header| header.frame_id.set("world"),
    );
    let mut sink = Overwrite::default();
    let mut step = || {
        graph.message(0, &joints, &mut sink);
        graph.message(1, &goal, &mut sink);
    };
    step();
    step();
    let before = allocations();
    for _ in 0..10 {
        step();
    }
    assert_eq!(allocations(), before);
    assert_eq!(sink.sent, 12 * 5);
}
