//! Tests of the pull to a posture of rest: joints move where the task leaves them free, and each result stays a solution.

use crate::random::Random;
use crate::robots::{LIMIT, along, chain, joint, robot, rows, six_axes, snake, solve, solver, three_links};
use robocache_geometry::Real;
use robocache_kinematics::{Answer, Chain, InverseConfig, Model, Pose, Select, Solver, Task, Track};
use std::f64::consts::FRAC_PI_2;

/// Weights that count only the errors of the position in x and y, which are two rows.
const PLANE: [f64; 6] = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0];

fn config(tolerance: f64, posture: f64, rest: &[f64]) -> InverseConfig {
    InverseConfig {
        position_tolerance_m: tolerance,
        rotation_tolerance_rad: tolerance,
        posture: Some(posture),
        rest: Some(rest.to_vec()),
        ..InverseConfig::default()
    }
}

fn in_plane(tolerance: f64, posture: f64, rest: &[f64]) -> InverseConfig {
    InverseConfig {
        task: Task::Position,
        weights: PLANE,
        ..config(tolerance, posture, rest)
    }
}

fn without(config: &InverseConfig) -> InverseConfig {
    InverseConfig {
        posture: None,
        rest: None,
        ..config.clone()
    }
}

fn bits<R: Real>(values: &[R]) -> Vec<u64> {
    values.iter().map(|value| value.to_f64().to_bits()).collect()
}

fn near(a: &[f64], b: &[f64], most: f64) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= most)
}

/// Computes the sum of squared differences of two rows of joint values, as the solver sums it.
fn distance<R: Real>(a: &[R], b: &[R]) -> R {
    a.iter()
        .zip(b)
        .fold(R::default(), |sum, (&a, &b)| sum + (a - b) * (a - b))
}

/// Makes a chain of two slides along x: the tool's position is their sum.
fn two_slides() -> Chain {
    let slide = |name, parent, child| {
        let inside = "<axis xyz=\"1 0 0\"/><limit lower=\"-2\" upper=\"2\"/>";
        joint(name, "prismatic", parent, child, inside)
    };
    let joints = slide("1", "base", "a") + &slide("2", "a", "tip");
    chain(&robot(&["base", "a", "tip"], &joints), "base", "tip")
}

/// Makes a chain of three joints in a plane, and between these a joint that mimics the first.
fn with_a_mimic() -> Chain {
    let turn = |name, parent, child, limit| {
        let inside = format!("<origin xyz=\"0.4 0 0\"/><axis xyz=\"0 0 1\"/>{limit}");
        joint(name, "revolute", parent, child, &inside)
    };
    let follows = "<mimic joint=\"1\" multiplier=\"-0.5\" offset=\"0.1\"/>";
    let joints = turn("1", "base", "a", LIMIT)
        + &turn("follower", "a", "b", follows)
        + &turn("2", "b", "c", LIMIT)
        + &turn("3", "c", "d", LIMIT)
        + &joint("hand", "fixed", "d", "tip", "<origin xyz=\"0.3 0 0\"/>");
    chain(&robot(&["base", "a", "b", "c", "d", "tip"], &joints), "base", "tip")
}

/// Lists arms with more joints than their task has rows, each with its task and its weights.
fn arms() -> Vec<(Chain, Task, [f64; 6])> {
    let all = [1.0; 6];
    vec![
        (three_links(), Task::Position, PLANE),
        (with_a_mimic(), Task::Position, PLANE),
        (two_slides(), Task::Position, [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]),
        (chain(&six_axes(), "link0", "tip"), Task::Position, all),
        (
            chain(&six_axes(), "link0", "tip"),
            Task::PositionAxis,
            [2.0, 1.0, 0.5, 1.0, 0.3, 1.0],
        ),
        (snake(7), Task::Pose, all),
        (snake(9), Task::Pose, [1.0, 0.0, 1.0, 0.2, 0.3, 0.2]),
        (snake(16), Task::Pose, all),
        (snake(7), Task::Pose, [1.0, 1.0, 1.0, 1.0, 0.0, 1.0]),
    ]
}

#[test]
fn two_slides_share_the_way() {
    // The first slide is at 0.5 m and the second at 0. Each answer moves a part of the difference to the second.
    let chain = two_slides();
    let config = InverseConfig {
        task: Task::Position,
        weights: [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ..config(1e-2, 0.2, &[0.0, 0.0])
    };
    let (solver, target) = (solver::<f64>(&chain, &config), [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    let (joints, answer) = solve(&solver, &target, Some(&[0.5, 0.0]));
    assert!(answer.valid && answer.iterations == 0);
    assert!(near(&joints, &[0.45, 0.05], 1e-9), "{joints:?}");
    let (joints, ..) = along(&solver, &[target; 200], &[0.5, 0.0]);
    assert!(near(&joints[1], &[0.41, 0.09], 1e-9), "{:?}", joints[1]);
    assert!(near(&joints[199], &[0.25, 0.25], 1e-6), "{:?}", joints[199]);
}

#[test]
fn three_links_in_a_plane_move_where_the_tip_stays() {
    // The links lie along x, y and -x, three sides of a parallelogram: as its joints turn by (1, -1, 1) the tip stays at (0, 1).
    let (chain, q) = (three_links(), [0.0, FRAC_PI_2, FRAC_PI_2]);
    let target = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    // Rest is 0.3 away in the first joint, of which a third is along that: 0.1 of it is 0.01 of each joint.
    let coarse = solver::<f64>(&chain, &in_plane(1e-2, 0.1, &[0.3, FRAC_PI_2, FRAC_PI_2]));
    let (joints, answer) = solve(&coarse, &target, Some(&q));
    assert!(answer.valid && (answer.seed, answer.iterations) == (0, 0));
    assert!(
        near(&joints, &[0.01, FRAC_PI_2 - 0.01, FRAC_PI_2 + 0.01], 1e-9),
        "{joints:?}"
    );
    assert!(answer.position_error_m < 1e-9);

    // However far rest is, the first joint is pulled by half of the tolerance's fourth root, a third of which is along that.
    let fine = solver::<f64>(&chain, &in_plane(1e-8, 1.0, &[3.0, FRAC_PI_2, FRAC_PI_2]));
    let (joints, answer) = solve(&fine, &target, Some(&q));
    assert!(answer.valid && answer.position_error_m <= 1e-8);
    let part = 0.005 / 3.0;
    assert!(
        near(&joints, &[part, FRAC_PI_2 - part, FRAC_PI_2 + part], 1e-9),
        "{joints:?}"
    );

    // At rest nothing moves.
    let resting = solver::<f64>(&chain, &in_plane(1e-8, 1.0, &q));
    assert!(near(&solve(&resting, &target, Some(&q)).0, &q, 1e-12));
}

#[test]
fn a_quarter_of_the_largest_step_is_the_most() {
    let chain = two_slides();
    let config = InverseConfig {
        task: Task::Position,
        weights: [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        max_joint_step: 0.04,
        ..config(1e-2, 1.0, &[0.0, 0.0])
    };
    let target = [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    let (joints, _) = solve(&solver::<f64>(&chain, &config), &target, Some(&[0.5, 0.0]));
    // The first slide is pulled by 0.01, and each of the two moves by half of it.
    assert!(near(&joints, &[0.495, 0.005], 1e-9), "{joints:?}");
}

#[test]
fn rest_is_the_middle_of_the_limits_or_given() {
    fn check<R: Real>() {
        let text = robot(
            &["base", "a", "b", "tip"],
            &(joint(
                "1",
                "revolute",
                "base",
                "a",
                "<axis xyz=\"0 0 1\"/><limit lower=\"-1\" upper=\"2\"/>",
            ) + &joint(
                "2",
                "continuous",
                "a",
                "b",
                "<origin xyz=\"1 0 0\"/><axis xyz=\"0 0 1\"/>",
            ) + &joint(
                "3",
                "prismatic",
                "b",
                "tip",
                "<axis xyz=\"1 0 0\"/><limit lower=\"0.1\" upper=\"0.2\"/>",
            )),
        );
        let chain = chain(&text, "base", "tip");
        let config = InverseConfig {
            rest: None,
            ..in_plane(1e-4, 0.1, &[])
        };
        let rest = |config: &InverseConfig| {
            let solver = solver::<R>(&chain, config);
            let rest = solver.spec().posture.as_ref().unwrap().rest.clone();
            for (bound, &rest) in solver.bounds().iter().zip(&rest) {
                assert!(bound.lower <= rest && rest <= bound.upper);
            }
            rest.into_iter().map(R::to_f64).collect::<Vec<_>>()
        };
        assert!(near(&rest(&config), &[0.5, 0.0, 0.15], 1e-7));
        // A joint of rest is kept, or brought to a limit that it is slightly past.
        let given = InverseConfig {
            rest: Some(vec![-1.0000005, 7.0, 0.2]),
            ..config.clone()
        };
        assert!(near(&rest(&given), &[-1.0, 7.0, 0.2], 1e-6));
        let outside = InverseConfig {
            rest: Some(vec![1.0 + std::f64::consts::TAU, 7.0, 0.2]),
            ..config
        };
        let refusal = Solver::<R>::new(&chain, &outside).map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            refusal,
            "rest: 7.283185307179586 for the joint `1` (allowed: its limits, -1 to 2)"
        );
    }
    check::<f32>();
    check::<f64>();
}

#[test]
fn no_answer_is_lost_and_each_is_nearer_to_rest() {
    fn check<R: Real>(tolerance: f64) {
        let mut random = Random(41);
        for (i, (chain, task, weights)) in arms().into_iter().enumerate() {
            let (model, mut pulled_answers) = (Model::<R>::new(&chain), 0);
            for round in 0..60 {
                let rest = random.joints(&chain);
                let config = InverseConfig {
                    task,
                    weights,
                    select: if round % 4 == 0 { Select::Nearest } else { Select::First },
                    ..config(tolerance, [0.02, 0.3, 1.0][round % 3], &rest)
                };
                let mut target = model.pose(&rows::<R>(&random.joints(&chain))).unwrap();
                match round {
                    10 => target[0] = R::from_f64(50.0),
                    11 => target[1] = R::from_f64(f64::NAN),
                    _ => {}
                }
                let (pulled, plain) = (solver::<R>(&chain, &config), solver::<R>(&chain, &without(&config)));
                let (joints, answer) = solve(&pulled, &target, None);
                let (before, of_before) = solve(&plain, &target, None);
                let counts = |answer: &Answer<R>| (answer.valid, answer.seed, answer.iterations);
                assert_eq!(counts(&answer), counts(&of_before), "{i} {round}");
                if !answer.valid {
                    assert_eq!(bits(&joints), bits(&before));
                    continue;
                }
                let rest = &pulled.spec().posture.as_ref().unwrap().rest;
                assert!(distance(&joints, rest) <= distance(&before, rest));
                pulled_answers += u32::from(bits(&joints) != bits(&before));
                for (bound, &value) in pulled.bounds().iter().zip(&joints) {
                    assert!(bound.lower <= value && value <= bound.upper);
                }
                // The pulled joints are an answer by themselves, with the same errors.
                let (again, of_again) = solve(&plain, &target, Some(&joints));
                assert_eq!(bits(&again), bits(&joints));
                assert!(of_again.valid && of_again.iterations == 0);
                assert_eq!(
                    bits(&[answer.position_error_m, answer.rotation_error_rad]),
                    bits(&[of_again.position_error_m, of_again.rotation_error_rad])
                );
            }
            // The angular rows of the Jacobian hold for small turns. A turn that is not judged may be large.
            let is_exact = weights[3..task.rows()].iter().all(|&weight| weight > 0.0);
            assert!(
                pulled_answers >= 50 || !is_exact,
                "{i}: {pulled_answers} of 60 answers were pulled"
            );
        }
    }
    check::<f32>(1e-5);
    check::<f64>(1e-4);
    check::<f64>(1e-8);
}

#[test]
fn a_pose_that_is_held_comes_nearer_to_rest_and_never_goes_back() {
    fn check<R: Real>(tolerance: f64) {
        let mut random = Random(42);
        for (i, (chain, task, weights)) in arms().into_iter().enumerate() {
            let (mut first, mut last) = (0.0, 0.0);
            for round in 0..8 {
                let config = InverseConfig {
                    task,
                    weights,
                    ..config(tolerance, [0.05, 0.5][round % 2], &random.joints(&chain))
                };
                let solver = solver::<R>(&chain, &config);
                let start = rows::<R>(&random.joints(&chain));
                let target = solver.model().pose(&start).unwrap();
                let (joints, answers, branches) = along(&solver, &[target; 300], &start);
                let rest = &solver.spec().posture.as_ref().unwrap().rest;
                let mut before = distance(&start, rest);
                first += before.to_f64();
                for (joints, answer) in joints.iter().zip(&answers) {
                    assert!(answer.valid && answer.iterations == 0);
                    assert!(distance(joints, rest) <= before, "{i} {round}");
                    before = distance(joints, rest);
                }
                last += before.to_f64();
                assert_eq!(branches[299], 0);
            }
            assert!(last < 0.9 * first, "{i}: {first} to {last}");
        }
    }
    check::<f32>(1e-4);
    check::<f64>(1e-4);
}

/// Makes poses on the way from one random row of joint values to another. Two of the poses can't be reached.
fn path<R: Real>(chain: &Chain, random: &mut Random, count: usize) -> (Vec<R>, Vec<Pose<R>>) {
    let (model, start, end) = (Model::<R>::new(chain), random.joints(chain), random.joints(chain));
    let at = |i: usize| {
        let part = 0.3 * (i % 40) as f64 / 40.0;
        let joints = start.iter().zip(&end).map(|(a, b)| R::from_f64(a + part * (b - a)));
        model.pose(&joints.collect::<Vec<R>>()).unwrap()
    };
    let mut targets: Vec<Pose<R>> = (0..count).map(at).collect();
    targets[count / 3][0] = R::from_f64(90.0);
    targets[count / 2][2] = R::from_f64(f64::NAN);
    (rows(&start), targets)
}

#[test]
fn along_time_no_joint_goes_further_than_it_may() {
    fn check<R: Real>() {
        let mut random = Random(43);
        for (i, (chain, task, weights)) in arms().into_iter().enumerate() {
            for most in [0.5, 0.06] {
                let config = InverseConfig {
                    task,
                    weights,
                    max_joint_step: most,
                    ..config(1e-4, 0.2, &random.joints(&chain))
                };
                let (solver, (start, targets)) = (solver::<R>(&chain, &config), path::<R>(&chain, &mut random, 120));
                let (joints, answers, branches) = along(&solver, &targets, &start);
                let plain = self::solver::<R>(&chain, &without(&config));
                let mut last: Option<usize> = None;
                for row in (0..120).filter(|&row| answers[row].valid) {
                    let (again, of_again) = solve(&plain, &targets[row], Some(&joints[row]));
                    assert!(of_again.iterations == 0 && bits(&again) == bits(&joints[row]));
                    if let Some(last) = last.filter(|&last| branches[last] == branches[row]) {
                        let steps = joints[row].iter().zip(&joints[last]).map(|(&a, &b)| (a - b).abs());
                        assert!(steps.into_iter().all(|step| step <= R::from_f64(most)), "{i} {row}");
                    }
                    last = Some(row);
                }
                assert!(!answers[40].valid && !answers[60].valid);
                assert!(answers.iter().filter(|answer| answer.valid).count() >= 110, "{i}");
            }
        }
    }
    check::<f32>();
    check::<f64>();
}

#[test]
fn the_bits_depend_neither_on_the_batch_nor_on_the_way_that_targets_come() {
    fn check<R: Real>() {
        let mut random = Random(44);
        let chain = snake(7);
        let config = config(1e-4, 0.1, &random.joints(&chain));
        let solver = solver::<R>(&chain, &config);
        let paths: Vec<(Vec<R>, Vec<Pose<R>>)> = (0..6).map(|_| path::<R>(&chain, &mut random, 50)).collect();
        let seeds: Vec<R> = paths.iter().flat_map(|(start, _)| start.clone()).collect();
        let targets: Vec<Pose<R>> = paths.iter().flat_map(|(_, targets)| targets.clone()).collect();
        let mut joints = vec![R::default(); 7 * targets.len()];
        let (mut answers, mut branches) = (vec![Answer::default(); targets.len()], vec![0; targets.len()]);
        solver.solve_trajectories(&targets, 50, Some(&seeds), &mut joints, &mut answers, &mut branches);
        for (i, (start, targets)) in paths.iter().enumerate() {
            let (alone, ..) = along(&solver, targets, start);
            assert_eq!(bits(&alone.concat()), bits(&joints[350 * i..][..350]));
        }

        // One by one, from the middle of the limits.
        let (mut track, mut row) = (Track::default(), [R::default(); 7]);
        let middle = solver.start_table()[..7].to_vec();
        let (wanted, ..) = along(&solver, &paths[0].1, &middle);
        for (target, wanted) in paths[0].1.iter().zip(&wanted) {
            solver.solve_next(target, &mut track, &mut row);
            assert_eq!(bits(&row), bits(wanted));
        }

        // Each target by itself, in batches and backwards.
        let batch = |targets: &[Pose<R>], chunk: usize| {
            let mut joints = vec![R::default(); 7 * targets.len()];
            let mut answers = vec![Answer::default(); targets.len()];
            let parts = targets.chunks(chunk).zip(joints.chunks_mut(7 * chunk));
            for ((targets, joints), answers) in parts.zip(answers.chunks_mut(chunk)) {
                solver.solve_batch(targets, None, joints, answers);
            }
            joints.chunks_exact(7).map(bits).collect::<Vec<_>>()
        };
        let (all, reversed) = (batch(&targets, 300), targets.iter().rev().copied().collect::<Vec<_>>());
        assert_eq!(all, batch(&targets, 7));
        assert_eq!(all, batch(&reversed, 300).into_iter().rev().collect::<Vec<_>>());
        for (target, wanted) in targets.iter().zip(&all) {
            assert_eq!(bits(&solve(&solver, target, None).0), *wanted);
        }
    }
    check::<f32>();
    check::<f64>();
}

#[test]
fn a_posture_that_is_not_possible_is_refused() {
    let chain = three_links();
    let good = in_plane(1e-4, 0.1, &[0.0, 1.0, 1.0]);
    let refused = |change: fn(&mut InverseConfig)| {
        let mut config = good.clone();
        change(&mut config);
        Solver::<f32>::new(&chain, &config).map(|_| ()).unwrap_err().to_string()
    };
    for (change, problem) in [
        (
            (|config| config.posture = Some(0.0)) as fn(&mut InverseConfig),
            "posture: 0 (allowed: above 0, up to 1)",
        ),
        (
            |config| config.posture = Some(1.001),
            "posture: 1.001 (allowed: above 0, up to 1)",
        ),
        (|config| config.posture = Some(-0.1), "posture: -0.1 (allowed"),
        (|config| config.posture = Some(f64::NAN), "posture: NaN (allowed"),
        (
            |config| config.weights = [1.0; 6],
            "posture: 0.1 with 3 joints and 3 rows that `task` and `weights` judge (allowed: more joints than rows, or no `posture`)",
        ),
        (
            |config| (config.task, config.weights) = (Task::Pose, [1.0, 1.0, 0.0, 0.0, 0.0, 0.2]),
            "posture: 0.1 with 3 joints and 3 rows",
        ),
        (
            |config| config.rest = Some(vec![0.0; 2]),
            "rest: [0.0, 0.0] (allowed: 3 finite numbers, one for each joint)",
        ),
        (
            |config| config.rest = Some(vec![0.0, f64::INFINITY, 0.0]),
            "rest: [0.0, inf, 0.0] (allowed: 3 finite numbers, one for each joint)",
        ),
        (
            |config| config.posture = None,
            "rest: [0.0, 1.0, 1.0] without `posture` (needed: both, or neither)",
        ),
    ] {
        let refusal = refused(change);
        assert!(refusal.contains(problem), "{refusal}");
    }
    assert!(Solver::<f32>::new(&chain, &good).is_ok());
}

#[test]
#[should_panic(expected = "all answers are those without a posture")]
fn all_answers_have_no_posture() {
    let solver = solver::<f64>(&three_links(), &in_plane(1e-4, 0.1, &[0.0, 1.0, 1.0]));
    solver.solve_all(
        &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        None,
        &mut Vec::new(),
        &mut Vec::new(),
    );
}
