//! Tests of conversions of actions: cases that a reader can check, and round trips between all kinds.

use crate::random::Random;
use crate::robots::{chain, planar, six_axes};
use robocache_kinematics::actions::{Conversion, ConversionConfig, DeltaFrame, Kind, RotationForm, StepError};
use robocache_kinematics::{Chain, Model};
use std::f64::consts::{FRAC_PI_2, PI};

const HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// Converts a chunk of actions, and returns the results or the error.
fn converted(
    config: &ConversionConfig,
    chain: Option<&Chain>,
    actions: &[f64],
    width: usize,
    reference: &[f64],
) -> Result<Vec<f64>, StepError> {
    let conversion = Conversion::new(config, chain).unwrap();
    let widths = conversion.widths(width).unwrap();
    let reference = if widths.reference.is_some() { reference } else { &[] };
    let mut results = vec![f64::NAN; actions.len() / width * widths.result];
    conversion.convert(actions, width, reference, &mut results)?;
    Ok(results)
}

fn assert_near(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance), "{a:?}\n{b:?}");
}

#[test]
fn values_of_two_joints() {
    // Exact in binary. The robot was at (1, 2).
    let absolute = [1.5, 2.0, 1.25, 3.0, 1.25, 2.0];
    let all = [
        (Kind::Absolute, absolute),
        (Kind::Relative, [0.5, 0.0, 0.25, 1.0, 0.25, 0.0]),
        (Kind::Delta, [0.5, 0.0, -0.25, 1.0, 0.0, -1.0]),
        (Kind::Velocity, [1.0, 0.0, -0.5, 2.0, 0.0, -2.0]),
    ];
    for (kind, actions) in all {
        for (to, expected) in all {
            let config = ConversionConfig {
                step_ns: [kind, to].contains(&Kind::Velocity).then_some(500_000_000),
                ..ConversionConfig::new(kind, to)
            };
            assert_eq!(
                converted(&config, None, &actions, 2, &[1.0, 2.0]).unwrap(),
                expected,
                "{kind:?} {to:?}"
            );
        }
    }
}

#[test]
fn poses_after_a_quarter_turn() {
    // The tool is at (1, 0, 0), turned by 90 degrees about z: its x axis is the base's y axis. It goes 1 m along its own x
    // axis, and then turns back about z.
    let reference = [1.0, 0.0, 0.0, 0.0, 0.0, HALF, HALF];
    let absolute = [1.0, 1.0, 0.0, 0.0, 0.0, HALF, HALF, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    let relative = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, -HALF, HALF];
    let of_tool = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, -HALF, HALF];
    let of_base = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, -HALF, HALF];
    let all = [
        (Kind::Pose, DeltaFrame::Tool, absolute),
        (Kind::RelativePose, DeltaFrame::Tool, relative),
        (Kind::DeltaPose, DeltaFrame::Tool, of_tool),
        (Kind::DeltaPose, DeltaFrame::Base, of_base),
    ];
    for (kind, frame, actions) in all {
        for (to, expected) in [(Kind::Pose, absolute), (Kind::RelativePose, relative)] {
            let there = ConversionConfig {
                frame,
                ..ConversionConfig::new(kind, to)
            };
            let back = ConversionConfig {
                frame,
                ..ConversionConfig::new(to, kind)
            };
            assert_near(
                &converted(&there, None, &actions, 7, &reference).unwrap(),
                &expected,
                1e-15,
            );
            assert_near(
                &converted(&back, None, &expected, 7, &reference).unwrap(),
                &actions,
                1e-15,
            );
        }
    }
}

#[test]
fn a_quarter_turn_in_each_form() {
    let forms = [
        (RotationForm::Xyzw, vec![0.0, 0.0, HALF, HALF]),
        (RotationForm::Wxyz, vec![HALF, 0.0, 0.0, HALF]),
        (RotationForm::Rot6dRows, vec![0.0, -1.0, 0.0, 1.0, 0.0, 0.0]),
        (RotationForm::Rot6dColumns, vec![0.0, 1.0, 0.0, -1.0, 0.0, 0.0]),
        (RotationForm::Rotvec, vec![0.0, 0.0, FRAC_PI_2]),
    ];
    for (rotation, numbers) in &forms {
        for (to_rotation, expected) in &forms {
            let config = ConversionConfig {
                rotation: *rotation,
                to_rotation: *to_rotation,
                ..ConversionConfig::new(Kind::Pose, Kind::Pose)
            };
            let pose = [[3.0, 2.0, 1.0].as_slice(), numbers].concat();
            let results = converted(&config, None, &pose, pose.len(), &[]).unwrap();
            assert_near(&results, &[[3.0, 2.0, 1.0].as_slice(), expected].concat(), 1e-15);
        }
    }
}

#[test]
fn there_and_back_between_all_kinds() {
    let chain = chain(&six_axes(), "link0", "tip");
    let mut random = Random(8);
    let reference: Vec<f64> = random.joints(&chain).iter().map(|q| 0.5 * q).collect();
    let mut joints = reference.clone();
    let mut absolute = Vec::new();
    for _ in 0..20 {
        joints.iter_mut().for_each(|q| *q += 0.1 * (random.next() - 0.5));
        absolute.extend_from_slice(&joints);
    }
    for kind in Kind::ALL {
        for rotation in RotationForm::ALL {
            for frame in [DeltaFrame::Tool, DeltaFrame::Base] {
                let there = ConversionConfig {
                    to_rotation: rotation,
                    frame,
                    step_ns: (kind == Kind::Velocity).then_some(33_333_333),
                    ..ConversionConfig::new(Kind::Absolute, kind)
                };
                let back = ConversionConfig {
                    rotation,
                    kind,
                    to: Kind::Absolute,
                    ..there
                };
                let actions = converted(&there, Some(&chain), &absolute, 6, &reference).unwrap();
                let width = actions.len() / 20;
                let joints = converted(&back, Some(&chain), &actions, width, &reference).unwrap();
                assert_near(&joints, &absolute, 1e-7);
            }
        }
    }
}

#[test]
fn chunks_that_begin_at_a_limit() {
    let half_turns = six_axes().replace("3.1\"", &format!("{PI}\""));
    let chain = chain(&half_turns, "link0", "tip");
    let mut random = Random(9);
    for round in 0..60 {
        // From the limit inwards, as float64 and as float32, which is past it.
        let limit = if round % 2 == 0 { PI } else { f64::from(PI as f32) };
        let sign = if round % 4 < 2 { 1.0 } else { -1.0 };
        // Away from singularities: the elbow and the wrist are bent.
        let mut reference: Vec<f64> = random.joints(&chain).iter().map(|q| 0.4 + 0.7 * q.abs()).collect();
        let at_limit = [0, 3, 5][round % 3];
        reference[at_limit] = sign * limit;
        let step = |i: usize| {
            let moved = |(k, q): (usize, &f64)| {
                if k == at_limit {
                    q - sign * 0.01 * i as f64
                } else {
                    q - 0.01 * i as f64
                }
            };
            reference.iter().enumerate().map(moved).collect::<Vec<_>>()
        };
        let absolute: Vec<f64> = (0..10).flat_map(step).collect();
        let there = ConversionConfig::new(Kind::Absolute, Kind::RelativePose);
        let back = ConversionConfig::new(Kind::RelativePose, Kind::Absolute);
        let actions = converted(&there, Some(&chain), &absolute, 6, &reference).unwrap();
        let joints = converted(&back, Some(&chain), &actions, 7, &reference).unwrap();
        assert_near(&joints, &absolute, 1e-5);
        // Joints within the limits come back within them.
        let most = if limit > PI { PI + 1e-6 } else { PI };
        assert!(joints.iter().all(|q| q.abs() <= most), "{joints:?}");
    }
}

#[test]
fn joints_at_a_singular_limit_stay_within_it() {
    let half_turns = six_axes().replace("3.1\"", &format!("{PI}\""));
    let chain = chain(&half_turns, "link0", "tip");
    let (there, back) = (
        ConversionConfig::new(Kind::Absolute, Kind::Pose),
        ConversionConfig::new(Kind::Pose, Kind::Absolute),
    );
    let mut random = Random(11);
    for round in 0..100 {
        // The fifth joint's half turn puts the axes of the fourth and the sixth on one line.
        let limit = if round % 2 == 0 { PI } else { -PI };
        let mut q: Vec<f64> = random.joints(&chain).iter().map(|q| 0.5 * q).collect();
        q[4] = limit;
        let mut reference = q.clone();
        reference[4] -= 0.05 * limit.signum();
        let actions = converted(&there, Some(&chain), &[&reference[..], &q[..]].concat(), 6, &reference).unwrap();
        let joints = converted(&back, Some(&chain), &actions, 7, &reference).unwrap();
        assert!(joints.iter().all(|q| q.abs() <= PI), "{joints:?}");
    }
}

#[test]
fn joints_past_limits_are_named_where_wider_limits_would_help() {
    let chain = chain(&six_axes(), "link0", "tip");
    let there = ConversionConfig::new(Kind::Absolute, Kind::RelativePose);
    let back = ConversionConfig::new(Kind::RelativePose, Kind::Absolute);
    let convert_from = |reference: &[f64; 6], chunk: &[f64]| {
        let actions = converted(&there, Some(&chain), chunk, 6, reference).unwrap();
        converted(&back, Some(&chain), &actions, 7, reference)
    };
    let reference = [0.5, 0.6, 0.7, 0.8, 0.9, 3.12];
    let convert = |chunk: &[f64]| convert_from(&reference, chunk);
    let refusal = convert(&reference).unwrap_err().to_string();
    let past = "; within wider limits it is reached, with `joint5` at 3.12";
    let way_out = " (limits: -3.1 to 3.1): `limits` of the chain widen them";
    assert!(refusal.contains(past) && refusal.ends_with(way_out), "{refusal}");
    // Every joint is named whose limits would have to be wider.
    let near = [3.09, 0.6, 0.7, 0.8, 0.9, 3.09];
    let refusal = convert_from(&near, &[3.13, 0.6, 0.7, 0.8, 0.9, 3.12])
        .unwrap_err()
        .to_string();
    assert!(
        refusal.contains("`joint0` at 3.1") && refusal.contains(" and `joint5` at 3.1"),
        "{refusal}"
    );
    // The joint may come back within its limits.
    let within = [0.5, 0.6, 0.7, 0.8, 0.9, 3.09];
    assert_near(&convert(&within).unwrap(), &within, 1e-6);
    // A jump has other reasons than the reference.
    let refusal = convert(&[0.5, 0.6, 0.7, 0.8, 0.9, 2.0]).unwrap_err().to_string();
    assert!(
        refusal.ends_with("within 0.5 rad or m of the reference (needed: a pose nearer to it)"),
        "{refusal}"
    );
}

#[test]
fn poses_of_a_chain_are_relative_to_the_pose_of_the_reference() {
    let chain = chain(&planar(), "base", "tip");
    let reference = [FRAC_PI_2, 0.0];
    let model = Model::<f64>::new(&chain);
    let poses = converted(
        &ConversionConfig::new(Kind::Delta, Kind::RelativePose),
        Some(&chain),
        &[0.0, -FRAC_PI_2],
        2,
        &reference,
    );
    // From (0, 1.5), with its x axis along y, to (0.5, 1) with its axes along the base's.
    assert_near(&poses.unwrap(), &[-0.5, -0.5, 0.0, 0.0, 0.0, -HALF, HALF], 1e-15);
    assert_near(&model.pose(&[FRAC_PI_2, -FRAC_PI_2]).unwrap()[..2], &[0.5, 1.0], 1e-15);
}

#[test]
fn chunks_that_are_refused() {
    let chain = chain(&planar(), "base", "tip");
    let refused = |kind, to, actions: &[f64], width, reference: &[f64]| {
        converted(
            &ConversionConfig::new(kind, to),
            Some(&chain),
            actions,
            width,
            reference,
        )
        .unwrap_err()
        .to_string()
    };
    let zero = [0.0; 2];
    assert_eq!(
        refused(Kind::Absolute, Kind::Delta, &[0.0, 0.0, f64::NAN, 0.0], 2, &zero),
        "step 1: NaN (allowed: finite numbers)"
    );
    assert_eq!(
        refused(Kind::Absolute, Kind::Pose, &[0.0, 0.0, 0.0, 9000.0], 2, &zero),
        "step 1: a joint of magnitude 9000 (allowed: up to 8192)"
    );
    assert_eq!(
        refused(Kind::Relative, Kind::Pose, &zero, 2, &[f64::INFINITY, 0.0]),
        "the reference: inf (allowed: finite numbers)"
    );
    assert_eq!(
        refused(Kind::Pose, Kind::Pose, &[0.0; 7], 7, &zero),
        "step 0: [0.0, 0.0, 0.0, 0.0] is not a rotation of the form `xyzw` (allowed: of norm 1, to within 1 %)"
    );
    let far = [1.5, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    let error = refused(Kind::Pose, Kind::Absolute, &far, 7, &zero);
    assert!(
        error.starts_with("step 1: the chain does not reach the pose: it comes to within 5.0"),
        "{error}"
    );
    // The stretched arm jumps by 2 rad.
    let [x, y, z, qx, qy, qz, qw] = Model::<f64>::new(&chain).pose(&[2.0, 0.0]).unwrap();
    let jump = [1.5, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, x, y, z, qx, qy, qz, qw];
    assert_eq!(
        refused(Kind::Pose, Kind::Absolute, &jump, 7, &zero),
        "step 1: no joints were found for the pose within 0.5 rad or m of the step before (needed: a pose nearer to it)"
    );
    // The first step is refused, too, if it jumps from the reference.
    let poses = &jump[7..];
    assert_eq!(
        refused(Kind::Pose, Kind::Delta, poses, 7, &zero),
        "step 0: no joints were found for the pose within 0.5 rad or m of the reference (needed: a pose nearer to it)"
    );
}

#[test]
fn a_quaternion_may_be_off_by_one_percent() {
    let convert = |rotation, quaternion: [f64; 4], reference: f64| {
        let [a, b, c, d] = quaternion;
        let config = ConversionConfig {
            rotation,
            ..ConversionConfig::new(Kind::RelativePose, Kind::Pose)
        };
        let identity = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let actions = [identity, [1.0, 2.0, 3.0, a, b, c, d]].concat();
        let actions = if rotation == RotationForm::Xyzw {
            &actions[..]
        } else {
            &actions[7..]
        };
        converted(&config, None, actions, 7, &identity.map(|x| x * reference)).map_err(|error| error.to_string())
    };
    let turned = [1.0, 2.0, 3.0, 0.0, 0.0, 1.0, 0.0];
    for norm in [0.991, 1.0, 1.009] {
        let found = convert(RotationForm::Xyzw, [0.0, 0.0, norm, 0.0], norm).unwrap();
        assert_near(&found[7..], &turned, 1e-15);
        let found = convert(RotationForm::Wxyz, [0.0, 0.0, 0.0, norm], norm).unwrap();
        assert_near(&found, &turned, 1e-15);
    }
    for norm in [0.989, 1.011, 0.001, 10.0] {
        let told = convert(RotationForm::Xyzw, [0.0, 0.0, norm, 0.0], 1.0).unwrap_err();
        let wanted = format!(
            "step 1: [0.0, 0.0, {norm:?}, 0.0] is not a rotation of the form `xyzw` (allowed: of norm 1, to within 1 %)"
        );
        assert_eq!(told, wanted);
        assert!(convert(RotationForm::Wxyz, [0.0, 0.0, norm, 0.0], 1.0).is_err());
        let told = convert(RotationForm::Xyzw, [0.0, 0.0, 1.0, 0.0], norm).unwrap_err();
        let wanted =
            format!("the reference: [0.0, 0.0, 0.0, {norm:?}] is not a quaternion (allowed: of norm 1, to within 1 %)");
        assert_eq!(told, wanted);
    }
}

#[test]
fn conversions_that_are_not_possible() {
    let refused = |config: &ConversionConfig| Conversion::new(config, None).unwrap_err().to_string();
    let velocity = ConversionConfig::new(Kind::Velocity, Kind::Delta);
    assert!(refused(&velocity).starts_with("step_ns: absent"));
    let step_ns = Some(0);
    assert_eq!(
        refused(&ConversionConfig { step_ns, ..velocity }),
        "step_ns: 0 (allowed: above 0)"
    );
    let delta = ConversionConfig::new(Kind::Relative, Kind::Delta);
    let step_ns = Some(1);
    assert!(
        refused(&ConversionConfig {
            step_ns,
            ..delta.clone()
        })
        .starts_with("step_ns: given")
    );
    let to_pose = ConversionConfig::new(Kind::Delta, Kind::Pose);
    assert_eq!(refused(&to_pose), "chain: absent (needed from `delta` to `pose`)");
    let poses = ConversionConfig::new(Kind::Pose, Kind::DeltaPose);
    let of_width = |config, width| Conversion::new(config, None).unwrap().widths(width);
    assert_eq!(
        of_width(&poses, 9).unwrap_err().to_string(),
        "actions: 9 numbers a step (allowed: 7, x y z and the rotation)"
    );
    assert!(of_width(&delta, 0).is_err());
    assert_eq!(of_width(&delta, 3).unwrap().reference, Some(3));
    assert_eq!(
        of_width(&ConversionConfig::new(Kind::Pose, Kind::Pose), 7)
            .unwrap()
            .reference,
        None
    );
}
