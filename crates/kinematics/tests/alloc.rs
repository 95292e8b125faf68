//! Tests that the computation of poses, Jacobians and inverse kinematics allocates nothing.

#![allow(clippy::unwrap_used)]

use robocache_kinematics::{Answer, Chain, Frame, InverseConfig, Model, Solver, Task, Track};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all work is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the rules of `dealloc`, and the pointer is the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// URDF of an arm of three revolute joints whose axes differ, and a slide.
const ARM: &str = r#"<robot name="arm"><link name="a"/><link name="b"/><link name="c"/><link name="d"/><link name="e"/>
<joint name="1" type="revolute"><parent link="a"/><child link="b"/><axis xyz="0 0 1"/><limit lower="-3" upper="3"/></joint>
<joint name="2" type="revolute"><parent link="b"/><child link="c"/><axis xyz="0 1 0"/><limit lower="-3" upper="3"/></joint>
<joint name="3" type="continuous"><parent link="c"/><child link="d"/><origin xyz="0.3 0 0"/></joint>
<joint name="4" type="prismatic"><parent link="d"/><child link="e"/><limit lower="0" upper="0.5"/></joint></robot>"#;

#[test]
fn nothing_is_allocated_for_a_row_or_a_target() {
    let chain = Chain::from_urdf(ARM, "arm.urdf", "a", "e").unwrap();
    let model = Model::<f64>::new(&chain);
    let solver = Solver::<f64>::new(&chain, &InverseConfig::default()).unwrap();
    let with_posture = InverseConfig {
        task: Task::Position,
        posture: Some(0.1),
        ..InverseConfig::default()
    };
    let pulled = Solver::<f64>::new(&chain, &with_posture).unwrap();
    let q = [0.3, 0.4, 0.5, 0.2];
    let mut jacobian = [0.0; 24];
    let mut joints = [0.0; 8];
    let (mut answers, mut branches) = ([Answer::default(); 2], [0; 2]);

    let before = ALLOCATIONS.get();
    let pose = model.pose(&q).unwrap();
    model.jacobian(&q, Frame::Tool, &mut jacobian).unwrap();
    model.manipulability(&q).unwrap();
    model.twist(&q, &[0.1; 4], Frame::Base).unwrap();
    let mut far = pose;
    far[0] += 9.0;
    for target in [pose, far] {
        solver.solve(&target, Some(&q), &mut joints[..4]);
    }
    solver.solve_along(&[pose, far], None, &mut joints, &mut answers, &mut branches);
    solver.solve_next(&pose, &mut Track::default(), &mut joints[..4]);
    pulled.solve_next(&pose, &mut Track::default(), &mut joints[..4]);
    let allocations = ALLOCATIONS.get() - before;

    assert_eq!(allocations, 0);
    assert_eq!(answers.map(|answer| answer.valid), [true, false]);
}
