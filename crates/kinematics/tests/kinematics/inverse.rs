//! Tests of inverse kinematics: solutions are within their tolerances and limits, and depend on nothing but their target.

use crate::random::Random;
use crate::robots::{LIMIT, along, chain, joint, planar, robot, rows, six_axes, snake, solve, solver};
use robocache_geometry::vector::norm;
use robocache_geometry::{Real, RigidTransform};
use robocache_kinematics::{Answer, Chain, ChainConfig, InverseConfig, Model, Pose, Select, Solver, Task, Track};
use std::f64::consts::{PI, TAU};

fn config(tolerance: f64, seeds: usize) -> InverseConfig {
    InverseConfig {
        position_tolerance_m: tolerance,
        rotation_tolerance_rad: tolerance,
        seeds,
        ..InverseConfig::default()
    }
}

fn pose(chain: &Chain, q: &[f64]) -> Pose<f64> {
    Model::<f64>::new(chain).pose(q).unwrap()
}

/// Makes a chain of three slides, one along each axis.
fn gantry() -> Chain {
    let slide = |name, axis, parent, child| {
        let inside = format!("<axis xyz=\"{axis}\"/><limit lower=\"-2\" upper=\"2\"/>");
        joint(name, "prismatic", parent, child, &inside)
    };
    let joints = slide("x", "1 0 0", "base", "a") + &slide("y", "0 1 0", "a", "b") + &slide("z", "0 0 -1", "b", "tip");
    chain(&robot(&["base", "a", "b", "tip"], &joints), "base", "tip")
}

/// Checks that joints reach a target within `tolerance`, and lie within the limits of their chain.
fn check(chain: &Chain, target: &Pose<f64>, joints: &[f64], tolerance: f64) {
    let [x, y, z, a, b, c, w] = pose(chain, joints);
    let [tx, ty, tz, ta, tb, tc, tw] = *target;
    assert!(norm([x - tx, y - ty, z - tz]) <= tolerance);
    // The difference of two unit quaternions is 2 sin(angle / 4) long.
    let sign = (a * ta + b * tb + c * tc + w * tw).signum();
    assert!(2.0 * norm([a - sign * ta, b - sign * tb, c - sign * tc, w - sign * tw]) <= 1.001 * tolerance);
    for (joint, value) in chain.joints().iter().zip(joints) {
        assert!((joint.limits[0]..=joint.limits[1]).contains(value), "{joint:?} {value}");
    }
}

#[test]
fn reachable_poses_are_reached_within_tolerance_and_limits() {
    let arm = chain(&six_axes(), "link0", "tip");
    let (double, single) = (
        solver::<f64>(&arm, &config(1e-6, 64)),
        solver::<f32>(&arm, &config(1e-5, 64)),
    );
    let mut random = Random(11);
    for _ in 0..1000 {
        let target = pose(&arm, &random.joints(&arm));
        let (joints, answer) = solve(&double, &target, None);
        assert!(answer.valid);
        check(&arm, &target, &joints, 1e-6);
        assert!(answer.position_error_m <= 1e-6 && answer.rotation_error_rad <= 1e-6);

        let (joints, answer) = solve(&single, &target.map(|x| x as f32), None);
        assert!(answer.valid);
        let joints: Vec<f64> = joints.into_iter().map(f64::from).collect();
        check(&arm, &target, &joints, 1.1e-5);
    }
}

#[test]
fn one_joint_and_sixteen_and_slides_alone() {
    for (chain, task) in [
        (snake(1), Task::Pose),
        (snake(16), Task::Pose),
        (gantry(), Task::Pose),
        (gantry(), Task::Position),
    ] {
        let config = InverseConfig {
            task,
            ..config(1e-5, 16)
        };
        let solver = solver::<f64>(&chain, &config);
        let mut random = Random(12);
        for _ in 0..100 {
            let target = pose(&chain, &random.joints(&chain));
            let (joints, answer) = solve(&solver, &target, None);
            assert!(answer.valid, "{answer:?}");
            check(&chain, &target, &joints, 1e-5);
        }
    }
}

#[test]
fn joints_that_follow_others_are_moved_by_them() {
    let follower =
        "<origin xyz=\"0.4 0 0\"/><axis xyz=\"0 0 1\"/><mimic joint=\"a\" multiplier=\"-0.5\" offset=\"0.1\"/>";
    let joints = joint("a", "revolute", "base", "m", &format!("<axis xyz=\"0 0 1\"/>{LIMIT}"))
        + &joint("b", "revolute", "m", "n", follower)
        + &joint(
            "c",
            "revolute",
            "n",
            "o",
            &format!("<origin xyz=\"0.4 0 0\"/><axis xyz=\"0 0 1\"/>{LIMIT}"),
        )
        + &joint("d", "fixed", "o", "tip", "<origin xyz=\"0.3 0 0\"/>");
    let chain = chain(&robot(&["base", "m", "n", "o", "tip"], &joints), "base", "tip");
    let config = InverseConfig {
        task: Task::Position,
        ..config(1e-6, 16)
    };
    let solver = solver::<f64>(&chain, &config);
    let mut random = Random(13);
    for _ in 0..200 {
        let target = pose(&chain, &random.joints(&chain));
        let (joints, answer) = solve(&solver, &target, None);
        assert!(answer.valid);
        let reached = pose(&chain, &joints);
        assert!(norm([reached[0] - target[0], reached[1] - target[1], reached[2] - target[2]]) <= 1e-6);
    }
}

#[test]
fn a_target_out_of_reach_gives_the_least_error_and_is_not_valid() {
    let arm = chain(&planar(), "base", "tip");
    let config = InverseConfig {
        task: Task::Position,
        ..config(1e-5, 16)
    };
    // 2.5 m away, with 1.5 m of arm.
    let (joints, answer) = solve(
        &solver::<f64>(&arm, &config),
        &[0.0, 2.5, 0.0, 0.0, 0.0, 0.0, 1.0],
        None,
    );
    assert!(!answer.valid);
    assert!((1.0..1.02).contains(&answer.position_error_m), "{answer:?}");
    let reached = pose(&arm, &joints);
    assert!(norm([reached[0], reached[1] - 1.5]) < 0.3, "{reached:?}");
    // Exactly at full stretch, within the tolerance.
    let (_, answer) = solve(
        &solver::<f64>(&arm, &config),
        &[0.0, 1.5, 0.0, 0.0, 0.0, 0.0, 1.0],
        None,
    );
    assert!(answer.valid);
}

#[test]
fn a_target_that_is_not_a_pose_has_nan_joints() {
    fn check<R: Real>() {
        let arm = chain(&six_axes(), "link0", "tip");
        let solver = solver::<R>(&arm, &config(1e-5, 4));
        let good = pose(&arm, &[0.1; 6]);
        for (i, bad) in [
            (0, f64::NAN),
            (2, f64::INFINITY),
            (1, -1.1e6),
            (4, f64::NAN),
            (6, f64::INFINITY),
        ] {
            let mut target = good.map(R::from_f64);
            target[i] = R::from_f64(bad);
            let (joints, answer) = solve(&solver, &target, None);
            assert!(joints.iter().all(|x| !x.is_finite()));
            assert!(
                !answer.valid && answer.seed == 0 && answer.iterations == 0 && !answer.position_error_m.is_finite()
            );
        }
        // Joints sent as a pose hardly ever have the norm 1.
        for scale in [0.0, 1e-30, 1e30, 0.98, 1.02] {
            let mut target = good;
            target[3..].iter_mut().for_each(|x| *x *= scale);
            let (joints, answer) = solve(&solver, &target.map(R::from_f64), None);
            assert!(!answer.valid && joints.iter().all(|x| !x.is_finite()), "{scale}");
        }
        // Norms as far from 1 as those of rounded and averaged quaternions; and the other sign.
        for scale in [-1.0, 1.009, 0.991] {
            let mut target = good;
            target[3..].iter_mut().for_each(|x| *x *= scale);
            assert!(solve(&solver, &target.map(R::from_f64), None).1.valid, "{scale}");
        }
    }
    check::<f32>();
    check::<f64>();
}

#[test]
fn a_given_start_is_the_first_and_is_brought_inside_the_limits() {
    let arm = chain(&six_axes(), "link0", "tip");
    let solver = solver::<f64>(&arm, &config(1e-9, 16));
    let q = [0.5, -1.0, 1.2, 0.3, 0.8, -2.0];
    let target = pose(&arm, &q);
    let (joints, answer) = solve(&solver, &target, Some(&q));
    assert_eq!(
        (joints.as_slice(), answer.seed, answer.iterations),
        (q.as_slice(), 0, 0)
    );
    // A turn further: the limits are -3.1 and 3.1.
    let (joints, answer) = solve(&solver, &target, Some(&q.map(|x| x + TAU)));
    assert!(answer.iterations == 0 && joints.iter().zip(q).all(|(a, b)| (a - b).abs() < 1e-14));
    // Past a limit by little: the limit itself, and not a turn from there.
    let past = q.map(|x| x.signum() * 3.105);
    let (joints, answer) = solve(&solver, &pose(&arm, &q.map(|x| x.signum() * 3.1)), Some(&past));
    assert!(answer.iterations == 0 && joints.iter().zip(past).all(|(a, b)| (a - b).abs() < 0.006));
    // Two turns further: the limit itself.
    let (joints, answer) = solve(&solver, &target, Some(&[1e6; 6]));
    assert!(answer.valid);
    check(&arm, &target, &joints, 1e-9);
    for bad in [f64::NAN, f64::INFINITY] {
        let (joints, answer) = solve(&solver, &target, Some(&[0.0, bad, 0.0, 0.0, 0.0, 0.0]));
        assert!(!answer.valid && joints.iter().all(|x| x.is_nan()));
    }
}

#[test]
fn a_continuous_joint_stays_where_poses_are_computed() {
    let text = planar().replace("revolute", "continuous");
    let arm = chain(&text, "base", "tip");
    let config = InverseConfig {
        task: Task::Position,
        ..config(1e-6, 4)
    };
    let target = pose(&arm, &[0.4, 1.0]);
    for start in [8192.0, -8192.0, 9000.0, 40.0] {
        let (joints, answer) = solve(&solver::<f64>(&arm, &config), &target, Some(&[start, 1.0]));
        assert!(answer.valid && joints.iter().all(|x| x.abs() <= 8192.0), "{joints:?}");
    }
    // The joint turns freely, and is not brought back to the first turn.
    let (joints, answer) = solve(&solver::<f64>(&arm, &config), &target, Some(&[0.5 + 3.0 * TAU, 0.9]));
    assert!(answer.seed == 0 && (joints[0] - 0.4 - 3.0 * TAU).abs() < 1e-5);
}

#[test]
fn hard_targets_are_reached() {
    let arm = chain(&six_axes(), "link0", "tip");
    let solver = solver::<f64>(&arm, &config(1e-5, 64));
    let almost = TAU - 1e-8;
    let wide = chain(
        &six_axes().replace(
            "lower=\"-3.1\" upper=\"3.1\"",
            &format!("lower=\"0\" upper=\"{almost}\""),
        ),
        "link0",
        "tip",
    );
    let wide_solver = self::solver::<f64>(&wide, &config(1e-5, 64));
    let mut random = Random(14);
    for i in 0..200 {
        let mut q = random.joints(&arm);
        match i % 5 {
            // The wrist is singular, or nearly so.
            0 => q[4] = 0.0,
            1 => q[4] = 1e-9,
            // Stretched.
            2 => q[2] = 0.0,
            // On limits.
            3 => (q[0], q[3], q[5]) = (3.1, -3.1, 3.1),
            _ => q = vec![0.0; 6],
        }
        let target = pose(&arm, &q);
        let (joints, answer) = solve(&solver, &target, None);
        assert!(answer.valid, "{i} {q:?} {answer:?}");
        check(&arm, &target, &joints, 1e-5);
        let target = pose(&wide, &random.joints(&wide));
        let (joints, answer) = solve(&wide_solver, &target, None);
        assert!(answer.valid, "wide {i}");
        check(&wide, &target, &joints, 1e-5);
    }
    // A target exactly half a turn from the start.
    let start = [0.0, 0.4, 0.8, 0.0, 0.5, -1.0];
    let mut turned = start;
    turned[5] += PI;
    let (joints, answer) = solve(&solver, &pose(&arm, &turned), Some(&start));
    assert!(answer.valid);
    check(&arm, &pose(&arm, &turned), &joints, 1e-5);
}

#[test]
fn the_tool_axis_alone() {
    let arm = chain(&six_axes(), "link0", "tip");
    let config = InverseConfig {
        task: Task::PositionAxis,
        ..config(1e-6, 32)
    };
    let solver = solver::<f64>(&arm, &config);
    let axis = |p: &Pose<f64>| {
        let frame = robocache_geometry::RigidTransform::new([p[3], p[4], p[5], p[6]], [0.0; 3]);
        frame.rotation.map(|row| row[2])
    };
    let mut random = Random(15);
    for _ in 0..300 {
        let target = pose(&arm, &random.joints(&arm));
        let (joints, answer) = solve(&solver, &target, None);
        assert!(answer.valid);
        let (wanted, reached) = (axis(&target), axis(&pose(&arm, &joints)));
        assert!(norm([0, 1, 2].map(|i| wanted[i] - reached[i])) <= 1.001e-6);
    }
}

#[test]
fn a_row_of_weight_0_is_left_out() {
    let arm = chain(&planar(), "base", "tip");
    // The position in the plane, and nothing else.
    let config = InverseConfig {
        weights: [1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        ..config(1e-6, 16)
    };
    let target = [0.7, 0.9, 5.0, 1.0, 0.0, 0.0, 0.0];
    let (joints, answer) = solve(&solver::<f64>(&arm, &config), &target, None);
    assert!(answer.valid && answer.rotation_error_rad == 0.0, "{answer:?}");
    let reached = pose(&arm, &joints);
    assert!(norm([reached[0] - 0.7, reached[1] - 0.9]) <= 1e-6);
    // Weights change the search, but not the errors that are judged.
    let arm = chain(&six_axes(), "link0", "tip");
    let weighted = InverseConfig {
        weights: [2.0, 1.0, 1.0, 0.5, 0.5, 0.5],
        ..self::config(1e-6, 64)
    };
    let solver = solver::<f64>(&arm, &weighted);
    let mut random = Random(16);
    for _ in 0..100 {
        let target = pose(&arm, &random.joints(&arm));
        let (joints, answer) = solve(&solver, &target, None);
        assert!(answer.valid);
        check(&arm, &target, &joints, 1e-6);
    }
}

#[test]
fn the_first_the_nearest_and_all_answers() {
    let arm = chain(&six_axes(), "link0", "tip");
    let first = solver::<f64>(&arm, &config(1e-6, 64));
    let nearest = solver::<f64>(
        &arm,
        &InverseConfig {
            select: Select::Nearest,
            ..config(1e-6, 64)
        },
    );
    let mut random = Random(17);
    for _ in 0..20 {
        let (target, start) = (pose(&arm, &random.joints(&arm)), random.joints(&arm));
        let (mut joints, mut answers) = (Vec::new(), Vec::new());
        let count = first.solve_all(&target, Some(&start), &mut joints, &mut answers);
        assert_eq!((count, count * 6), (answers.len(), joints.len()));
        assert!(answers.windows(2).all(|pair| pair[0].seed < pair[1].seed) && count > 1);
        let rows: Vec<&[f64]> = joints.chunks_exact(6).collect();
        for (i, row) in rows.iter().enumerate() {
            check(&arm, &target, row, 1e-6);
            let differs = |other: &&[f64]| row.iter().zip(*other).any(|(a, b)| (a - b).abs() > 1e-3);
            assert!(rows[..i].iter().all(differs));
        }
        assert_eq!(solve(&first, &target, Some(&start)).0, rows[0]);
        let distance = |row: &[f64]| row.iter().zip(&start).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        let least = rows.iter().map(|row| distance(row)).fold(f64::INFINITY, f64::min);
        let (found, answer) = solve(&nearest, &target, Some(&start));
        assert!(answer.valid && distance(&found) <= least);
    }
}

#[test]
fn all_answers_of_a_batch_are_those_of_each_target_and_then_none() {
    fn check<R: Real>() {
        let arm = chain(&six_axes(), "link0", "tip");
        let solver = solver::<R>(&arm, &config(1e-5, 12));
        assert_eq!(solver.starts(), 12);
        let mut random = Random(23);
        let mut targets: Vec<Pose<R>> = (0..60)
            .map(|_| pose(&arm, &random.joints(&arm)).map(R::from_f64))
            .collect();
        // Out of reach, and no pose.
        targets[7][0] = R::from_f64(5.0);
        targets[8][4] = R::from_f64(f64::NAN);
        let mut seeds: Vec<R> = (0..60).flat_map(|_| random.joints(&arm)).map(R::from_f64).collect();
        seeds[9 * 6 + 2] = R::from_f64(f64::INFINITY);
        let bits = |row: &[R]| row.iter().map(|x| x.to_f64().to_bits()).collect::<Vec<_>>();
        // On the calling thread, and on all.
        for count in [1, 60] {
            for seeds in [None, Some(&seeds[..count * 6])] {
                let mut joints = vec![R::default(); count * 12 * 6];
                let mut answers = vec![Answer::default(); count * 12];
                solver.solve_all_batch(&targets[..count], seeds, &mut joints, &mut answers);
                let rows = joints.chunks_exact(12 * 6).zip(answers.chunks_exact(12));
                for (i, (joints, answers)) in rows.enumerate() {
                    let (mut alone, mut of_alone) = (Vec::new(), Vec::new());
                    let seed = seeds.map(|seeds| &seeds[i * 6..][..6]);
                    let found = solver.solve_all(&targets[i], seed, &mut alone, &mut of_alone);
                    assert_eq!(found > 0, !(i == 7 || i == 8 || i == 9 && seeds.is_some()), "{i}");
                    assert_eq!(bits(&joints[..found * 6]), bits(&alone));
                    assert_eq!(answers[..found], of_alone);
                    assert!(joints[found * 6..].iter().all(|x| x.to_f64().is_nan()));
                    for none in &answers[found..] {
                        assert_eq!((none.valid, none.seed, none.iterations), (false, 0, 0));
                        assert!(!none.position_error_m.is_finite() && !none.rotation_error_rad.is_finite());
                    }
                }
            }
        }
        solver.solve_all_batch(&[], None, &mut [], &mut []);
    }
    check::<f32>();
    check::<f64>();
}

#[test]
fn answers_depend_neither_on_the_batch_nor_on_its_order() {
    fn check<R: Real>() {
        let arm = chain(&six_axes(), "link0", "tip");
        let solver = solver::<R>(&arm, &config(1e-5, 16));
        let mut random = Random(18);
        let mut targets: Vec<Pose<R>> = (0..500)
            .map(|_| pose(&arm, &random.joints(&arm)).map(R::from_f64))
            .collect();
        targets[77][3] = R::from_f64(f64::NAN);
        targets.extend([targets[5]; 500]);
        let batch = |targets: &[Pose<R>]| {
            let mut joints = vec![R::default(); targets.len() * 6];
            let mut answers = vec![Answer::default(); targets.len()];
            for (i, targets) in targets.chunks(300).enumerate() {
                let rows = 300 * i..300 * i + targets.len();
                solver.solve_batch(
                    targets,
                    None,
                    &mut joints[6 * rows.start..6 * rows.end],
                    &mut answers[rows],
                );
            }
            let bits = |x: &R| x.to_f64().to_bits();
            let joints: Vec<Vec<u64>> = joints
                .chunks_exact(6)
                .map(|row| row.iter().map(bits).collect())
                .collect();
            (joints, answers)
        };
        let (joints, answers) = batch(&targets);
        assert!(!answers[77].valid && answers.iter().filter(|answer| !answer.valid).count() <= 2);
        targets.reverse();
        let (mut reversed, mut of_reversed) = batch(&targets);
        reversed.reverse();
        of_reversed.reverse();
        assert_eq!(joints, reversed);
        let seeds = |answers: &[Answer<R>]| {
            answers
                .iter()
                .map(|a| (a.valid, a.seed, a.iterations))
                .collect::<Vec<_>>()
        };
        assert_eq!(seeds(&answers), seeds(&of_reversed));
        assert!(joints[500..].iter().all(|row| *row == joints[5]));
    }
    check::<f32>();
    check::<f64>();
}

#[test]
fn a_trajectory_goes_on_from_the_last_answer_and_counts_breaks() {
    let arm = chain(&planar(), "base", "tip");
    let config = InverseConfig {
        task: Task::Position,
        ..config(1e-6, 16)
    };
    let solver = solver::<f64>(&arm, &config);
    let at = |q: [f64; 2]| pose(&arm, &q);
    let mut targets: Vec<Pose<f64>> = (0..50).map(|i| at([0.02 * f64::from(i), 1.0])).collect();
    // Out of reach for two steps, and then to the other side of the base.
    targets[20][0] = 9.0;
    targets[21][1] = f64::NAN;
    targets.extend((0..10).map(|i| at([-2.5 + 0.01 * f64::from(i), 0.9])));
    let (joints, answers, branches) = along(&solver, &targets, &[0.0, 0.9]);
    for i in 0..60 {
        assert_eq!(answers[i].valid, i != 20 && i != 21, "{i}");
        assert_eq!(branches[i], u32::from(i >= 50), "{i}");
    }
    for i in (0..50).filter(|i| !(20..22).contains(i)) {
        assert!((joints[i][0] - 0.02 * i as f64).abs() < 1e-4 && (joints[i][1] - 1.0).abs() < 1e-4);
    }
    assert!(joints[21][0].is_nan() && joints[20][0].is_finite());

    // Two trajectories at once have the bits that each has alone.
    let both: Vec<_> = [&targets[..], &targets[..]].concat();
    let mut at_once = vec![0.0; 2 * both.len()];
    let (mut answers, mut branches) = (vec![Answer::default(); 120], vec![0; 120]);
    let seeds = [0.0, 0.9, 1.0, -1.0];
    solver.solve_trajectories(&both, 60, Some(&seeds), &mut at_once, &mut answers, &mut branches);
    let (other, ..) = along(&solver, &targets, &[1.0, -1.0]);
    let bits = |joints: &[f64]| joints.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&at_once[..120]), bits(&joints.concat()));
    assert_eq!(bits(&at_once[120..]), bits(&other.concat()));
}

#[test]
fn a_joint_that_turns_all_around_stays_at_its_limit_along_a_trajectory() {
    let inside = |x| format!("<origin xyz=\"{x} 0 0\"/><axis xyz=\"0 0 1\"/><limit lower=\"-{PI}\" upper=\"{PI}\"/>");
    let joints = joint("pan", "revolute", "base", "a", &inside(0))
        + &joint("elbow", "revolute", "a", "b", &inside(1))
        + &joint("hand", "fixed", "b", "tip", "<origin xyz=\"0.5 0 0\"/>");
    let arm = chain(&robot(&["base", "a", "b", "tip"], &joints), "base", "tip");
    let config = InverseConfig {
        task: Task::Position,
        ..config(1e-6, 16)
    };
    let solver = solver::<f64>(&arm, &config);
    // Towards the limit, there for a while, and back. A full turn from it is as near to the pose, and 6 radians away.
    let way = |i: i32| PI - 0.01 * f64::from((20 - i).max(i - 40).max(0));
    // Starts on the way there, on the limit like the next pose, and past the limit, as a sensor's value may be.
    for (first, start) in [(0, 2.9), (20, PI), (30, -PI), (20, PI + 1e-7), (25, PI + 0.009)] {
        let sign = start.signum();
        let targets: Vec<Pose<f64>> = (first..60).map(|i| pose(&arm, &[sign * way(i), sign])).collect();
        let (found, answers, branches) = along(&solver, &targets, &[start, sign]);
        assert!(answers.iter().all(|answer| answer.valid) && branches.iter().all(|&branch| branch == 0));
        for (i, joints) in (first..).zip(found) {
            assert!((joints[0] - sign * way(i)).abs() < 1e-4, "{i}: {joints:?}");
        }
    }
}

#[test]
fn a_trajectory_goes_on_from_a_start_at_a_limit() {
    fn check<R: Real>(tolerance: f64) {
        let half_turns = six_axes().replace("3.1\"", &format!("{PI}\""));
        let arm = chain(&half_turns, "link0", "tip");
        let solver = solver::<R>(&arm, &config(tolerance, 16));
        let (mut random, mut turned) = (Random(11), 0);
        for _ in 0..500 {
            // Away from singularities: the elbow and the wrist are bent.
            let mut start: Vec<f64> = random.joints(&arm).iter().map(|q| 0.4 + 0.7 * q.abs()).collect();
            for joint in [0, 3, 5] {
                let at = random.next();
                start[joint] = if at < 0.3 {
                    PI
                } else if at < 0.6 {
                    -PI
                } else {
                    10.0 * (at - 0.8)
                };
            }
            let near = |q: &f64, random: &mut Random| (q + 0.02 * (random.next() - 0.5)).clamp(-PI, PI);
            let next: Vec<f64> = start.iter().map(|q| near(q, &mut random)).collect();
            // In float32 a half turn is past the limit.
            let (start, next) = (rows::<R>(&start), rows::<R>(&next));
            let target = solver.model().pose(&next).unwrap();
            let (found, answers, branches) = along(&solver, &[target], &start);
            assert_eq!(branches, [0]);
            let turns = |joints: &[R]| joints.iter().zip(&start).any(|(&a, &b)| (a - b).to_f64().abs() > 6.0);
            assert!(answers[0].valid && !turns(&found[0]), "{start:?} {found:?}");
            turned += u32::from(turns(&solve(&solver, &target, Some(&start)).0));
        }
        assert!(turned > 20, "{turned} starts are turned by steps that may turn");
    }
    check::<f32>(1e-5);
    check::<f64>(1e-8);
}

#[test]
fn the_first_answer_is_that_of_the_seed_or_the_nearest_to_it() {
    let arm = chain(&six_axes(), "link0", "tip");
    let mut random = Random(12);
    for select in [Select::First, Select::Nearest] {
        let solver = solver::<f64>(
            &arm,
            &InverseConfig {
                select,
                ..config(1e-6, 8)
            },
        );
        let (mut of_seed, mut nearer) = (0, 0);
        for _ in 0..200 {
            let start = random.joints(&arm);
            let target = pose(&arm, &random.joints(&arm));
            let (alone, answer) = solve(&solver, &target, Some(&start));
            let (found, answers, branches) = along(&solver, &[target], &start);
            assert!(branches == [0] && answers[0].valid >= answer.valid);
            of_seed += u32::from(answers[0].valid && answers[0].seed == 0);
            if answer.valid && select == Select::Nearest {
                let distance = |joints: &[f64]| joints.iter().zip(&start).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
                assert!(distance(&found[0]) <= distance(&alone));
                nearer += u32::from(distance(&found[0]) < distance(&alone) - 0.01);
            }
        }
        match select {
            Select::First => assert!(
                of_seed > 150,
                "{of_seed} of 200 answers are those that the seed leads to"
            ),
            Select::Nearest => assert!(nearer > 0, "no answer along the limits is nearer"),
        }
    }
}

#[test]
fn an_answer_past_the_largest_step_is_one_of_those_to_choose_from() {
    // A single start, which leads to other answers than the last answer does, or to none.
    let arm = chain(&six_axes(), "link0", "tip");
    let solver = solver::<f64>(&arm, &config(1e-6, 1));
    let (mut random, mut only, mut nearer) = (Random(13), 0, 0);
    for _ in 0..300 {
        let q: Vec<f64> = random.joints(&arm).iter().map(|q| 0.7 * q).collect();
        let next: Vec<f64> = q.iter().map(|q| q + 0.7 * (2.0 * random.next() - 1.0)).collect();
        let targets = [&q, &next].map(|q| pose(&arm, q));
        let (found, answers, branches) = along(&solver, &targets, &q);
        let (step, of_step) = solve(&solver, &targets[1], Some(&q));
        let (other, of_other) = solve(&solver, &targets[1], None);
        if of_step.valid {
            assert!(answers[1].valid);
            let most = |joints: &[f64]| {
                joints
                    .iter()
                    .zip(&q)
                    .fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()))
            };
            assert_eq!(branches[1], u32::from(most(&found[1]) > 0.5));
            let square = |joints: &[f64]| joints.iter().zip(&found[0]).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
            assert!(square(&found[1]) <= square(&step) + 1e-6);
            only += u32::from(!of_other.valid);
            nearer += u32::from(of_other.valid && square(&found[1]) < square(&other) - 0.01);
        }
    }
    assert!(only > 5 && nearer > 50, "{only} {nearer}");
}

#[test]
fn the_branch_stays_where_the_nearest_answer_is_within_a_step() {
    let arm = chain(&planar(), "base", "tip");
    // With a single step no target is reached from the last answer, but one of the starts is near every target.
    let config = InverseConfig {
        task: Task::Position,
        max_iterations: Some(1),
        max_joint_step: 0.5,
        ..config(0.02, 4096)
    };
    let solver = solver::<f64>(&arm, &config);
    let targets: Vec<Pose<f64>> = (0..20).map(|i| pose(&arm, &[0.2 * f64::from(i % 2), 1.0])).collect();
    let (_, answers, branches) = along(&solver, &targets, &[0.0, 1.0]);
    assert!(answers.iter().all(|answer| answer.valid));
    assert!(
        answers.iter().any(|answer| answer.seed > 0),
        "each was reached from the last answer"
    );
    assert!(branches.iter().all(|&branch| branch == 0), "{branches:?}");
}

#[test]
fn joints_are_numbers_far_away_from_the_first_joint_too() {
    for tool in [1e3, 1e4, 1e5, 1e6] {
        let text = six_axes();
        let config = ChainConfig {
            base: "link0".into(),
            tip: "tip".into(),
            tool: Some(RigidTransform::new([0.0, 0.0, 0.0, 1.0], [tool, 0.0, 0.0])),
            ..ChainConfig::default()
        };
        let arm = Chain::new(&text, "test.urdf", &config).unwrap();
        let (model, solver) = (Model::<f32>::new(&arm), solver::<f32>(&arm, &InverseConfig::default()));
        let mut random = Random(tool as u64);
        for _ in 0..500 {
            let q: Vec<f32> = random.joints(&arm).iter().map(|&q| q as f32).collect();
            let target = model.pose(&q).unwrap();
            let (joints, answer) = solve(&solver, &target, None);
            assert!(joints.iter().all(|x| x.is_finite()), "{tool}: {joints:?}");
            assert!(answer.position_error_m.is_finite() && answer.rotation_error_rad.is_finite());
        }
    }
}

#[test]
fn targets_that_come_one_by_one_are_those_of_a_trajectory() {
    let arm = chain(&planar(), "base", "tip");
    let config = InverseConfig {
        task: Task::Position,
        ..config(1e-6, 16)
    };
    let solver = solver::<f64>(&arm, &config);
    let at = |q: [f64; 2]| pose(&arm, &q);
    let mut targets: Vec<Pose<f64>> = (0..20).map(|i| at([0.02 * f64::from(i), 1.0])).collect();
    targets[7][0] = 9.0;
    targets[8][1] = f64::NAN;
    targets.extend((0..5).map(|i| at([-2.5 + 0.01 * f64::from(i), 0.9])));
    let n = targets.len();
    let mut joints = vec![0.0; 2 * n];
    let (mut answers, mut branches) = (vec![Answer::default(); n], vec![0; n]);
    solver.solve_along(&targets, None, &mut joints, &mut answers, &mut branches);

    let mut track = Track::default();
    for (i, target) in targets.iter().enumerate() {
        let mut row = [0.0; 2];
        let answer = solver.solve_next(target, &mut track, &mut row);
        let wanted = &joints[2 * i..][..2];
        assert_eq!(row.map(f64::to_bits), [wanted[0].to_bits(), wanted[1].to_bits()], "{i}");
        assert_eq!((answer.valid, track.branch()), (answers[i].valid, branches[i]), "{i}");
    }
    // After a restart, the first target has its first answer again, and the breaks stay counted.
    track.restart();
    let mut row = [0.0; 2];
    solver.solve_next(&targets[0], &mut track, &mut row);
    assert_eq!((&row[..], track.branch()), (&joints[..2], branches[n - 1]));
}

#[test]
fn a_trajectory_that_begins_without_an_answer_begins_with_the_first_that_has_one() {
    let arm = chain(&planar(), "base", "tip");
    let config = InverseConfig {
        task: Task::Position,
        ..config(1e-6, 16)
    };
    let solver = solver::<f64>(&arm, &config);
    let mut targets = [pose(&arm, &[1.0, 1.0]); 3];
    targets[0][0] = 9.0;
    let mut joints = [0.0; 6];
    let (mut answers, mut branches) = ([Answer::default(); 3], [7; 3]);
    solver.solve_along(&targets, None, &mut joints, &mut answers, &mut branches);
    assert_eq!(answers.map(|answer| answer.valid), [false, true, true]);
    assert_eq!(branches, [0; 3]);
    assert_eq!(joints[2..4], solve(&solver, &targets[1], None).0);
}

#[test]
fn a_configuration_that_is_not_possible_is_refused() {
    let chain = chain(&planar(), "base", "tip");
    let refused = |change: fn(&mut InverseConfig)| {
        let mut config = InverseConfig::default();
        change(&mut config);
        Solver::<f32>::new(&chain, &config).map(|_| ()).unwrap_err().to_string()
    };
    for (change, problem) in [
        (
            (|config| config.position_tolerance_m = 1e-6) as fn(&mut InverseConfig),
            "position_tolerance_m: 0.000001 (allowed: 0.000002 to 1000 in float32)",
        ),
        (
            |config| config.rotation_tolerance_rad = f64::NAN,
            "rotation_tolerance_rad: NaN (allowed",
        ),
        (|config| config.seeds = 0, "seeds: 0 (allowed: 1 to 4096)"),
        (
            |config| config.max_iterations = Some(0),
            "max_iterations: 0 (allowed: 1 to 1000)",
        ),
        (
            |config| config.max_joint_step = 0.0,
            "max_joint_step: 0 (allowed: above 0, finite)",
        ),
        (
            |config| config.weights = [-1.0; 6],
            "(allowed: 0, or 1e-6 to 1000; one of the task's above 0)",
        ),
        // This weight would be 0 in float32.
        (
            |config| config.weights = [1e-46; 6],
            "(allowed: 0, or 1e-6 to 1000; one of the task's above 0)",
        ),
        (
            |config| config.weights = [0.0; 6],
            "(allowed: 0, or 1e-6 to 1000; one of the task's above 0)",
        ),
    ] {
        let refusal = refused(change);
        assert!(refusal.contains(problem), "{refusal}");
    }
    let mut config = InverseConfig {
        position_tolerance_m: 0.0,
        ..InverseConfig::default()
    };
    assert!(Solver::<f64>::new(&chain, &config).is_err());
    config.position_tolerance_m = 1e-9;
    assert!(Solver::<f64>::new(&chain, &config).is_ok());
}
