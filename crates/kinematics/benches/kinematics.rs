//! Benchmark of kinematics on one core: `cargo bench --profile release -p robocache-kinematics -- FILE BASE TIP` prints one
//! JSON line per operation, for poses, Jacobians and inverse kinematics. With a fourth argument, the targets are also written
//! to that file, as float64 `[targets, 7]`: benches/kinematics_peers.py gives these targets to other libraries.
//!
//! Targets of inverse kinematics are to be met within 1e-5 m and rad. In the line `cold` they are the poses of joints drawn
//! uniformly within their limits, and up to 64 initial guesses are tried, the middle of the limits first. In the line `warm`
//! they follow one another on a path, and the search starts at the last solution. Each joint moves by at most 0.002 rad or m
//! from one target to the next.

use robocache_geometry::Real;
use robocache_kinematics::{Chain, ChainConfig, Frame, InverseConfig, JointKind, Model, Pose, Solver};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// Number of rows of joint values whose poses are computed.
const ROWS: usize = 4096;
/// Number of timed passes over the rows. The fastest pass counts: other processes disturb it least.
const PASSES: usize = 60;
/// Number of targets of inverse kinematics.
const TARGETS: usize = 5000;
/// Number of times that each target of `cold` is solved: the fastest time counts.
const REPEATS: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let [file, base, tip, targets @ ..] = &arguments[..] else {
        eprintln!("usage: cargo bench --profile release -p robocache-kinematics -- FILE BASE TIP [TARGETS]");
        return;
    };
    let config = ChainConfig {
        base: base.clone(),
        tip: tip.clone(),
        ..ChainConfig::default()
    };
    match Chain::read(Path::new(file), &config) {
        Ok(chain) => {
            if let Some(file) = targets.first()
                && let Err(error) = write_targets(&chain, Path::new(file))
            {
                eprintln!("{file}: {error}");
            }
            measure::<f64>(&chain, "f64");
            measure::<f32>(&chain, "f32");
        }
        Err(error) => eprintln!("{error}"),
    }
}

/// Random number generator (SplitMix64), which holds its state. Numbers are from 0 to 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Makes a row of joint values, each at the fraction of its joint's range that `part` returns.
fn row(chain: &Chain, mut part: impl FnMut() -> f64) -> Vec<f64> {
    let joints = chain.joints().iter();
    let value = joints.map(|joint| {
        let [lower, upper] = match joint.kind {
            JointKind::Continuous => [-std::f64::consts::PI, std::f64::consts::PI],
            JointKind::Revolute | JointKind::Prismatic => joint.limits,
        };
        lower + part() * (upper - lower)
    });
    value.collect()
}

fn rounded<R: Real>(values: &[f64]) -> Vec<R> {
    values.iter().map(|&value| R::from_f64(value)).collect()
}

/// Computes the targets: the poses of joints drawn uniformly within their limits.
fn targets(chain: &Chain) -> Vec<Pose<f64>> {
    let (model, mut random) = (Model::<f64>::new(chain), Random(1));
    let target = |_| model.pose(&row(chain, || random.next())).unwrap_or_default();
    (0..TARGETS).map(target).collect()
}

fn write_targets(chain: &Chain, file: &Path) -> std::io::Result<()> {
    let bytes: Vec<u8> = targets(chain)
        .as_flattened()
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    std::fs::write(file, bytes)
}

fn measure<R: Real>(chain: &Chain, name: &str) {
    let exact = Model::<f64>::new(chain);
    let pose = |q: &[f64]| exact.pose(q).map(|pose| pose.map(R::from_f64)).unwrap_or_default();
    let mut random = Random(3);
    let rows: Vec<f64> = (0..ROWS).flat_map(|_| row(chain, || random.next())).collect();
    forward::<R>(chain, name, &rounded(&rows));

    let targets: Vec<Pose<R>> = targets(chain).iter().map(|pose| pose.map(R::from_f64)).collect();
    cold(chain, name, &targets);

    let mut random = Random(7);
    let (mut at, mut speed) = (Vec::new(), Vec::new());
    let mut steps = Vec::new();
    for i in 0..TARGETS {
        if i % 100 == 0 {
            at = row(chain, || 0.25 + 0.5 * random.next());
            speed = at.iter().map(|_| 0.004 * (random.next() - 0.5)).collect();
            steps.push((rounded(&at), Vec::new()));
        }
        at.iter_mut().zip(&speed).for_each(|(at, speed)| *at += speed);
        if let Some((_, targets)) = steps.last_mut() {
            targets.push(pose(&at));
        }
    }
    warm(chain, name, &steps);
}

fn forward<R: Real>(chain: &Chain, name: &str, q: &[R]) {
    let model = Model::<R>::new(chain);
    let n = model.joints();
    let mut poses = vec![[R::default(); 7]; ROWS];
    let mut jacobians = vec![R::default(); ROWS * 6 * n];
    let mut best = [f64::INFINITY; 3];
    let mut note = |i: usize, start: Instant| best[i] = best[i].min(start.elapsed().as_secs_f64() * 1e6 / ROWS as f64);
    for _ in 0..PASSES {
        let start = Instant::now();
        for (pose, q) in poses.iter_mut().zip(q.chunks_exact(n)) {
            *pose = model.pose(q).unwrap_or_default();
        }
        note(0, start);
        black_box(&poses);
        let start = Instant::now();
        for ((pose, jacobian), q) in poses
            .iter_mut()
            .zip(jacobians.chunks_exact_mut(6 * n))
            .zip(q.chunks_exact(n))
        {
            *pose = model.jacobian(q, Frame::Base, jacobian).unwrap_or_default();
        }
        note(1, start);
        black_box((&poses, &jacobians));
    }
    // Entering a pool wakes a thread on a core with a cold cache, so all passes are within.
    if let Ok(one) = rayon::ThreadPoolBuilder::new().num_threads(1).build() {
        one.install(|| {
            for _ in 0..PASSES {
                let start = Instant::now();
                model.poses(q, &mut poses);
                note(2, start);
                black_box(&poses);
            }
        });
    }
    println!("{{\"op\":\"pose\",\"type\":\"{name}\",\"us\":{:.4}}}", best[0]);
    println!("{{\"op\":\"jacobian\",\"type\":\"{name}\",\"us\":{:.4}}}", best[1]);
    println!("{{\"op\":\"poses\",\"type\":\"{name}\",\"us\":{:.4}}}", best[2]);
}

fn solver<R: Real>(chain: &Chain, seeds: usize, max_iterations: u32) -> Solver<R> {
    let config = InverseConfig {
        position_tolerance_m: 1e-5,
        rotation_tolerance_rad: 1e-5,
        seeds,
        max_iterations: Some(max_iterations),
        ..InverseConfig::default()
    };
    match Solver::new(chain, &config) {
        Ok(solver) => solver,
        Err(error) => panic!("{error}"),
    }
}

fn cold<R: Real>(chain: &Chain, name: &str, targets: &[Pose<R>]) {
    let solver = solver::<R>(chain, 64, 16);
    let mut joints = vec![R::default(); chain.joints().len()];
    let mut us = vec![f64::INFINITY; targets.len()];
    for _ in 0..REPEATS {
        for (us, target) in us.iter_mut().zip(targets) {
            let start = Instant::now();
            black_box(solver.solve(target, None, &mut joints));
            *us = us.min(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    let is_found = |target: &&Pose<R>| solver.solve(target, None, &mut joints).valid;
    let found = targets.iter().filter(is_found).count() as f64 / targets.len() as f64;
    println!("{{\"op\":\"cold\",\"type\":\"{name}\",\"found\":{found:.4}}}");
    report("cold", name, us);
}

fn warm<R: Real>(chain: &Chain, name: &str, steps: &[(Vec<R>, Vec<Pose<R>>)]) {
    let solver = solver::<R>(chain, 1, 8);
    let mut us = Vec::with_capacity(TARGETS);
    for (start, targets) in steps {
        let (mut last, mut joints) = (start.clone(), start.clone());
        for target in targets {
            let start = Instant::now();
            black_box(solver.solve(target, Some(&last), &mut joints));
            us.push(start.elapsed().as_secs_f64() * 1e6);
            last.copy_from_slice(&joints);
        }
    }
    report("warm", name, us);
}

fn report(op: &str, name: &str, mut us: Vec<f64>) {
    us.sort_by(f64::total_cmp);
    let at = |part: f64| us[(part * (us.len() - 1) as f64).round() as usize];
    println!(
        "{{\"op\":\"{op}\",\"type\":\"{name}\",\"us_p50\":{:.2},\"us_p99\":{:.2}}}",
        at(0.5),
        at(0.99)
    );
}
