//! Tests of poses, frames of links, Jacobians and manipulability. Batches of rows have the bits of single rows.

use crate::random::Random;
use crate::robots::{chain, joint, planar, robot, six_axes, snake};
use robocache_geometry::{Real, RigidTransform};
use robocache_kinematics::{Chain, Frame, Model};
use std::f64::consts::{FRAC_PI_2, PI, TAU};

fn assert_near(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance), "{a:?}\n{b:?}");
}

#[test]
fn the_pose_of_two_links_in_a_plane() {
    let model = Model::<f64>::new(&chain(&planar(), "base", "tip"));
    assert_near(
        &model.pose(&[0.0, 0.0]).unwrap(),
        &[1.5, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        0.0,
    );
    let half = 0.5f64.sqrt();
    assert_near(
        &model.pose(&[FRAC_PI_2, 0.0]).unwrap(),
        &[0.0, 1.5, 0.0, 0.0, 0.0, half, half],
        1e-15,
    );
    assert_near(
        &model.pose(&[FRAC_PI_2, -FRAC_PI_2]).unwrap(),
        &[0.5, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        1e-15,
    );
    // Half a turn: w is 0, and the largest component positive.
    assert_near(
        &model.pose(&[PI, 0.0]).unwrap(),
        &[-1.5, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        1e-15,
    );
}

#[test]
fn the_frames_of_links_end_at_the_tip() {
    let chain = chain(&planar(), "base", "tip");
    let model = Model::<f64>::new(&chain);
    let mut frames = vec![RigidTransform::identity(); 4];
    assert!(model.links(&[FRAC_PI_2, 0.3], &mut frames));
    assert_eq!(chain.links().collect::<Vec<_>>(), ["base", "upper", "lower", "tip"]);
    assert_near(&frames[0].translation, &[0.0; 3], 0.0);
    assert_near(&frames[1].translation, &[0.0; 3], 0.0);
    assert_near(&frames[2].translation, &[0.0, 1.0, 0.0], 1e-15);
    let [x, y, z, ..] = model.pose(&[FRAC_PI_2, 0.3]).unwrap();
    assert_eq!(frames[3].translation, [x, y, z]);
    assert!(!model.links(&[f64::NAN, 0.0], &mut frames));
}

#[test]
fn the_velocity_is_the_jacobian_times_those_of_the_joints() {
    let arm = chain(&six_axes(), "link0", "tip");
    let model = Model::<f64>::new(&arm);
    let (q, dq) = ([0.3, -0.4, 0.5, 1.0, -0.7, 0.2], [1.0, -2.0, 0.5, 0.25, -1.5, 3.0]);
    for frame in [Frame::Base, Frame::Tool, Frame::Spatial] {
        let mut jacobian = [0.0; 36];
        model.jacobian(&q, frame, &mut jacobian).unwrap();
        let rows = jacobian.chunks_exact(6);
        let products = rows.map(|row| row.iter().zip(dq).fold(0.0, |sum, (j, dq)| sum + j * dq));
        let wanted: Vec<f64> = products.collect();
        assert_near(&model.twist(&q, &dq, frame).unwrap(), &wanted, 1e-15);
    }
}

#[test]
fn the_jacobian_of_two_links_in_a_plane() {
    let model = Model::<f64>::new(&chain(&planar(), "base", "tip"));
    let mut jacobian = [0.0; 12];
    model.jacobian(&[0.0, FRAC_PI_2], Frame::Base, &mut jacobian).unwrap();
    // The tip is at (1, 0.5), the elbow at (1, 0).
    assert_near(&jacobian[..4], &[-0.5, -0.5, 1.0, 0.0], 1e-15);
    assert_near(&jacobian[4..], &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0], 0.0);
    model.jacobian(&[0.0, FRAC_PI_2], Frame::Tool, &mut jacobian).unwrap();
    assert_near(&jacobian[..4], &[1.0, 0.0, 0.5, 0.5], 1e-15);
    model
        .jacobian(&[0.0, FRAC_PI_2], Frame::Spatial, &mut jacobian)
        .unwrap();
    assert_near(&jacobian[..4], &[0.0, 0.0, 0.0, -1.0], 1e-15);
    // l1 l2 sin(elbow) in the plane; J^T J has the angular rows, too.
    assert!((model.manipulability(&[0.4, FRAC_PI_2]).unwrap() - 1.25f64.sqrt()).abs() < 1e-14);
}

#[test]
fn the_velocity_of_two_links_in_a_plane() {
    let model = Model::<f64>::new(&chain(&planar(), "base", "tip"));
    // The tip is at (1, 0.5), the elbow at (1, 0).
    let q = [0.0, FRAC_PI_2];
    let twist = model.twist(&q, &[2.0, -1.0], Frame::Base).unwrap();
    assert_near(&twist, &[-0.5, 2.0, 0.0, 0.0, 0.0, 1.0], 1e-15);
    let twist = model.twist(&q, &[2.0, -1.0], Frame::Tool).unwrap();
    assert_near(&twist, &[2.0, 0.5, 0.0, 0.0, 0.0, 1.0], 1e-15);
    assert!(model.twist(&q, &[f64::INFINITY, 0.0], Frame::Base).is_none());
    assert!(model.twist(&[f64::NAN, 0.0], &[1.0, 0.0], Frame::Base).is_none());
    // A twist that the type can't hold is not valid, either.
    assert!(model.twist(&q, &[f64::MAX, f64::MAX], Frame::Base).is_none());
    assert!(model.takes(&[8192.0, -8192.0]) && !model.takes(&[0.0, 8193.0]) && !model.takes(&[f64::INFINITY, 0.0]));
}

/// Computes the Jacobian by central differences of poses: the velocity of the tip in the axes of the base.
fn differences(model: &Model<f64>, q: &[f64]) -> Vec<f64> {
    let n = q.len();
    let step = 1e-6;
    let mut jacobian = vec![0.0; 6 * n];
    let frame = |q: &[f64]| {
        let [x, y, z, rotation @ ..] = model.pose(q).unwrap();
        RigidTransform::new(rotation, [x, y, z])
    };
    for j in 0..n {
        let moved = |by: f64| {
            let mut q = q.to_vec();
            q[j] += by;
            frame(&q)
        };
        let (before, after) = (moved(-step), moved(step));
        let [.., rx, ry, rz] = after.compose(&before.inverse()).log();
        for i in 0..3 {
            jacobian[i * n + j] = (after.translation[i] - before.translation[i]) / (2.0 * step);
            jacobian[(3 + i) * n + j] = [rx, ry, rz][i] / (2.0 * step);
        }
    }
    jacobian
}

#[test]
fn jacobians_are_the_differences_of_poses() {
    let mimic = joint(
        "a",
        "revolute",
        "base",
        "m",
        "<origin rpy=\"0.3 0.2 0.1\"/><axis xyz=\"0 0.6 0.8\"/><limit lower=\"-3\" upper=\"3\"/>",
    ) + &joint(
        "b",
        "prismatic",
        "m",
        "n",
        "<origin xyz=\"0 0.1 0.2\"/><axis xyz=\"0 0 -1\"/><limit lower=\"-1\" upper=\"1\"/>",
    ) + &joint(
        "c",
        "continuous",
        "n",
        "tip",
        "<origin xyz=\"0.2 0 0\"/><mimic joint=\"a\" multiplier=\"-0.7\" offset=\"0.2\"/>",
    );
    let chains = [
        chain(&planar(), "base", "tip"),
        chain(&six_axes(), "link0", "tip"),
        snake(1),
        snake(16),
        chain(&robot(&["base", "m", "n", "tip"], &mimic), "base", "tip"),
    ];
    let mut random = Random(5);
    for chain in &chains {
        let model = Model::<f64>::new(chain);
        for _ in 0..20 {
            let q = random.joints(chain);
            let mut jacobian = vec![0.0; 6 * q.len()];
            model.jacobian(&q, Frame::Base, &mut jacobian).unwrap();
            assert_near(&jacobian, &differences(&model, &q), 1e-9);
        }
    }
}

#[test]
fn a_full_turn_changes_nothing() {
    let chain = chain(&six_axes(), "link0", "tip");
    let model = Model::<f64>::new(&chain);
    let mut random = Random(6);
    for turns in [-1300.0, -2.0, 1.0, 1300.0] {
        let q = random.joints(&chain);
        let turned: Vec<f64> = q.iter().map(|q| q + turns * TAU).collect();
        assert_near(&model.pose(&q).unwrap(), &model.pose(&turned).unwrap(), 1e-11);
    }
}

#[test]
fn values_that_are_too_large_or_not_finite_make_their_row_invalid_alone() {
    fn check<R: Real>(chain: &Chain) {
        let model = Model::<R>::new(chain);
        let rows = 1003;
        let mut random = Random(7);
        let mut q: Vec<R> = (0..rows).flat_map(|_| random.joints(chain)).map(R::from_f64).collect();
        let n = model.joints();
        let bad = [f64::NAN, f64::INFINITY, -8193.0, 8192.5, f64::NEG_INFINITY].map(R::from_f64);
        for (i, &bad) in bad.iter().enumerate() {
            q[(200 * i + i) * n + i % n] = bad;
        }
        // The largest magnitude is allowed.
        q[7 * n] = R::from_f64(-8192.0);
        let mut poses = vec![[R::default(); 7]; rows];
        let mut jacobians = vec![R::default(); rows * 6 * n];
        assert_eq!(model.poses(&q, &mut poses), bad.len());
        let batch = poses.clone();
        assert_eq!(model.jacobians(&q, Frame::Tool, &mut jacobians, &mut poses), bad.len());
        let (mut twists, mut manipulabilities) = (vec![[R::default(); 6]; rows], vec![R::default(); rows]);
        assert_eq!(model.twists(&q, &q, Frame::Tool, &mut twists), bad.len());
        assert_eq!(model.manipulabilities(&q, &mut manipulabilities), bad.len());
        let links = [chain.links().len() - 1, 0];
        let mut link_poses = vec![[R::default(); 7]; 2 * rows];
        assert_eq!(model.link_poses(&q, &links, &mut link_poses), bad.len());
        let mut jacobian = vec![R::default(); 6 * n];
        for (i, q) in q.chunks_exact(n).enumerate() {
            let is_bad = i % 201 == 0 && i / 201 < bad.len();
            assert_eq!(model.pose(q).is_none(), is_bad, "{i}");
            assert_eq!(model.manipulability(q).is_none(), is_bad);
            let expected = model.jacobian(q, Frame::Tool, &mut jacobian);
            let of_row = &jacobians[i * 6 * n..][..6 * n];
            match expected {
                // Bits, not only values.
                Some(pose) => {
                    let bits = |pose: [R; 7]| pose.map(|x| x.to_f64().to_bits());
                    assert_eq!(bits(pose), bits(poses[i]));
                    assert_eq!(bits(pose), bits(batch[i]));
                    let base = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0].map(R::from_f64);
                    assert_eq!(
                        link_poses[2 * i..][..2].iter().map(|&x| bits(x)).collect::<Vec<_>>(),
                        [bits(pose), bits(base)]
                    );
                    assert_eq!(model.twist(q, q, Frame::Tool), Some(twists[i]));
                    assert_eq!(model.manipulability(q), Some(manipulabilities[i]));
                    assert!(
                        of_row
                            .iter()
                            .zip(&jacobian)
                            .all(|(a, b)| a.to_f64().to_bits() == b.to_f64().to_bits())
                    );
                }
                None => {
                    let of_links = link_poses[2 * i..][..2].as_flattened();
                    let all = poses[i].iter().chain(&batch[i]).chain(of_row).chain(of_links);
                    let all = all.chain(&twists[i]).chain(&manipulabilities[i..=i]);
                    assert!(all.into_iter().all(|x| !x.is_finite()));
                }
            }
        }
    }
    let slides = joint(
        "a",
        "prismatic",
        "base",
        "m",
        "<axis xyz=\"1 2 3\"/><limit lower=\"-1\" upper=\"1\"/>",
    ) + &joint("b", "revolute", "m", "n", "<limit lower=\"-1\" upper=\"1\"/>")
        + &joint(
            "c",
            "revolute",
            "n",
            "tip",
            "<origin xyz=\"1 0 0\"/><mimic joint=\"b\" multiplier=\"2\"/>",
        );
    for chain in [
        chain(&six_axes(), "link0", "tip"),
        chain(&robot(&["base", "m", "n", "tip"], &slides), "base", "tip"),
        snake(16),
    ] {
        check::<f32>(&chain);
        check::<f64>(&chain);
    }
}

#[test]
fn fixed_angles_at_gimbal_lock_are_taken_as_they_are() {
    let text = robot(
        &["base", "tip"],
        &joint(
            "j",
            "continuous",
            "base",
            "tip",
            "<origin xyz=\"0 0 -1\" rpy=\"0.3 1.5707963267948966 -0.2\"/><axis xyz=\"0 0 -1\"/>",
        ),
    );
    let model = Model::<f64>::new(&chain(&text, "base", "tip"));
    let [.., x, y, z, w] = model.pose(&[0.0]).unwrap();
    // At this pitch roll and yaw turn about one axis: by 0.3 less -0.2 in all.
    let frame = RigidTransform::new([x, y, z, w], [0.0; 3]);
    let (sine, cosine) = 0.5f64.sin_cos();
    assert_near(
        frame.rotation.as_flattened(),
        &[0.0, sine, cosine, 0.0, cosine, -sine, -1.0, 0.0, 0.0],
        1e-15,
    );
}

#[test]
fn manipulability_is_0_in_a_singularity() {
    let model = Model::<f64>::new(&chain(&six_axes(), "link0", "tip"));
    assert!(model.manipulability(&[0.1, 0.2, 0.3, 0.4, 0.0, 0.5]).unwrap() < 1e-8);
    assert!(model.manipulability(&[0.1, 0.2, 0.3, 0.4, 0.9, 0.5]).unwrap() > 1e-2);
    assert!(Model::<f32>::new(&snake(3)).manipulability(&[0.1, 0.2, 0.3]).unwrap() > 0.1);
}
