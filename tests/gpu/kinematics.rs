//! Kinematics on devices give the CPU's bytes, for random chains and for well-known arms.

use crate::support::{Random, gpu, kind, ran, random_cases, say};
use robocache::device::gpu::{Budget, DeviceBuf, DeviceFault, DeviceSlice, Gpu, Kind, SliceError};
use robocache::device::{Dtype, Primitive};
use robocache::geometry::{Real, RigidTransform};
use robocache::kinematics::{
    Answer, Chain, ChainConfig, Frame, InverseConfig, JointKind, Model, Pose, Select, Solver, Task,
};
use robocache::ops::kinematics::gpu::{DeviceAnswers, DeviceStarts, GpuModel, GpuSolver};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Opens the first device; `None` if there is none, or its kind has no kernels of kinematics.
fn cuda() -> Option<Gpu> {
    if kind() == Kind::Cuda {
        return gpu();
    }
    say(&format!("gpu: skipped kinematics, which {} has no kernels of", kind()));
    None
}

/// A type that chains compute in, with access to its bits.
trait Number: Real + Primitive {
    fn bits(self) -> u64;
}

impl Number for f32 {
    fn bits(self) -> u64 {
        self.to_bits().into()
    }
}

impl Number for f64 {
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

/// Copies values to memory of a device.
fn upload<T: Primitive>(gpu: &Gpu, values: &[T]) -> DeviceBuf {
    let mut memory = DeviceBuf::new(gpu, &Budget::new(None));
    let bytes = bytemuck::cast_slice(values);
    memory.reserve(bytes.len()).unwrap();
    // SAFETY: the stream is synchronized before the values are given up.
    unsafe { memory.upload(0, bytes) }.unwrap();
    gpu.synchronize().unwrap();
    memory
}

/// Memory of a device for values, all of which must be written.
struct Output<T> {
    memory: DeviceBuf,
    host: Vec<T>,
}

impl<T: Primitive> Output<T> {
    fn new(gpu: &Gpu, len: usize) -> Self {
        let host = vec![T::zeroed(); len];
        let poison = vec![0xa5u8; len * size_of::<T>()];
        Self {
            memory: upload(gpu, &poison),
            host,
        }
    }

    fn slice(&self) -> DeviceSlice<'_> {
        self.memory.slice(0, T::DTYPE, self.host.len()).unwrap()
    }

    fn fetch(mut self) -> Vec<T> {
        let bytes = bytemuck::cast_slice_mut(&mut self.host);
        self.memory.fetch(0, bytes).unwrap();
        self.host
    }
}

/// Panics if the bits of two results differ, with the texts `what` and `about`. All NaNs are equal.
fn assert_bits<R: Number>(what: &str, expected: &[R], came: &[R], about: &dyn Fn() -> String) {
    assert_eq!(expected.len(), came.len(), "{what}");
    for (i, (a, b)) in expected.iter().zip(came).enumerate() {
        let is_same = a.bits() == b.bits() || (a.to_f64().is_nan() && b.to_f64().is_nan());
        assert!(
            is_same,
            "{what}: value {i} is {b} on the device, {a} on the CPU\n{}",
            about()
        );
    }
}

/// Makes a robot of up to 16 moving joints in series. Some may mimic other joints, even mimics.
///
/// With `plain` it has that number of joints, none of them prismatic or a mimic, in the order of the chain.
fn random_chain(random: &mut Random, plain: Option<usize>) -> (Chain, String) {
    let moving = plain.unwrap_or_else(|| match random.below(4) {
        0 => 1 + random.below(3),
        1 => 9 + random.below(8),
        _ => 4 + random.below(5),
    });
    let has_mimics = plain.is_none() && random.once_in(3);
    let (mut text, mut link) = ("<robot name=\"random\"><link name=\"link0\"/>".to_owned(), 0);
    let mut names: Vec<(String, &str)> = Vec::new();
    let mut leaders = 0;
    while names.len() < moving {
        let is_fixed = random.once_in(5);
        let kind = match is_fixed {
            true => "fixed",
            false if plain.is_some() => random.pick(&["revolute", "revolute", "continuous"]),
            false => random.pick(&["revolute", "revolute", "revolute", "continuous", "prismatic"]),
        };
        let number = |random: &mut Random| match random.below(6) {
            0 => 0.0,
            1 => std::f64::consts::FRAC_PI_2 * random.pick(&[1.0, -1.0, 2.0]),
            _ => random.signed() * random.pick(&[0.5, 1.0, 3.0]),
        };
        let three = |random: &mut Random| [0; 3].map(|_| number(random));
        let ([x, y, z], [roll, pitch, yaw]) = (three(random).map(|x| x * 0.3), three(random));
        let axis = match random.below(3) {
            0 => random.pick(&[[0.0, 0.0, 1.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]),
            _ => [random.signed(), random.signed(), 0.1 + random.uniform(0.0, 1.0)],
        };
        let name = format!("joint{link}");
        let [ax, ay, az] = axis;
        write!(
            text,
            "<link name=\"link{}\"/><joint name=\"{name}\" type=\"{kind}\"><parent link=\"link{link}\"/><child link=\"link{}\"/>\
             <origin xyz=\"{x} {y} {z}\" rpy=\"{roll} {pitch} {yaw}\"/><axis xyz=\"{ax} {ay} {az}\"/>",
            link + 1,
            link + 1
        )
        .unwrap();
        let is_mimic = has_mimics && !is_fixed && leaders > 0 && random.once_in(3);
        if !is_fixed {
            if kind != "continuous" {
                let range = match kind {
                    "prismatic" => random.pick(&[0.05, 0.5]),
                    _ => random.pick(&[0.4, 1.5, 2.9, std::f64::consts::PI, 6.0]),
                };
                let lower = if random.once_in(4) { 0.0 } else { -range };
                write!(text, "<limit lower=\"{lower}\" upper=\"{range}\"/>").unwrap();
            }
            if is_mimic {
                let (leader, _) = &names[random.below(names.len())];
                let (multiplier, offset) = (random.pick(&[1.0, -1.0, 0.5, 6.0]), random.pick(&[0.0, 0.2, -1.0]));
                write!(
                    text,
                    "<mimic joint=\"{leader}\" multiplier=\"{multiplier}\" offset=\"{offset}\"/>"
                )
                .unwrap();
            }
            leaders += usize::from(!is_mimic);
            names.push((name, if is_mimic { "mimic" } else { "own" }));
        }
        text += "</joint>";
        link += 1;
    }
    text += "</robot>";
    let mut joints: Vec<String> = names
        .iter()
        .filter(|(_, kind)| *kind == "own")
        .map(|(name, _)| name.clone())
        .collect();
    if plain.is_none() && random.once_in(4) {
        let turn = random.below(joints.len());
        joints.rotate_left(turn);
        joints.reverse();
    }
    let tool = random.once_in(3).then(|| {
        let rotation = [random.signed(), random.signed(), random.signed(), 0.5];
        RigidTransform::new(rotation, [0.1, random.signed(), 0.0])
    });
    let config = ChainConfig {
        base: "link0".into(),
        tip: format!("link{link}"),
        joints: Some(joints),
        tool,
        ..ChainConfig::default()
    };
    match Chain::new(&text, "random.urdf", &config) {
        Ok(chain) => (chain, text),
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// Numbers of joints that have kernels of their own, alternating with chains of any form.
const PLAIN: [Option<usize>; 4] = [Some(6), None, Some(7), None];

/// Draws a row of joint values, uniform within their limits.
fn joints_within(random: &mut Random, chain: &Chain) -> Vec<f64> {
    let joints = chain.joints().iter();
    let value = joints.map(|joint| match joint.kind {
        JointKind::Continuous => random.uniform(-std::f64::consts::PI, std::f64::consts::PI),
        _ => random.uniform(joint.limits[0], joint.limits[1]),
    });
    value.collect()
}

/// Draws rows of joint values. Some are difficult, and for some no pose is computed.
fn random_rows<R: Real>(random: &mut Random, chain: &Chain, rows: usize) -> Vec<R> {
    let mut q: Vec<f64> = (0..rows).flat_map(|_| joints_within(random, chain)).collect();
    let hard = [
        0.0,
        -0.0,
        8192.0,
        -8192.0,
        8192.01,
        1e300,
        f64::NAN,
        f64::INFINITY,
        std::f64::consts::PI,
    ];
    for value in &mut q {
        if random.once_in(40) {
            *value = random.pick(&hard);
        }
    }
    q.into_iter().map(R::from_f64).collect()
}

/// Draws a number of rows, at times one around the size of a warp or a block.
fn random_count(random: &mut Random) -> usize {
    match random.below(5) {
        0 => random.pick(&[0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 129]),
        _ => random.below(200),
    }
}

fn check_forward<R: Number>(gpu: &Gpu, random: &mut Random, chain: &Chain, rows: usize, about: &dyn Fn() -> String) {
    let (model, n) = (Model::<R>::new(chain), chain.joints().len());
    let on_device = GpuModel::new(&model, gpu);
    let q: Vec<R> = random_rows(random, chain, rows);
    let velocity = |_| match random.once_in(100) {
        true => R::from_f64(f64::NAN),
        false => R::from_f64(random.signed()),
    };
    let dq: Vec<R> = (0..q.len()).map(velocity).collect();
    let frame = random.pick(&[Frame::Base, Frame::Tool, Frame::Spatial]);
    let links: Vec<usize> = (0..1 + random.below(20))
        .map(|_| random.below(chain.links().len()))
        .collect();
    let nan = R::from_f64(f64::NAN);

    let mut poses = vec![[nan; 7]; rows];
    model.poses(&q, &mut poses);
    let mut link_poses = vec![[nan; 7]; rows * links.len()];
    model.link_poses(&q, &links, &mut link_poses);
    let (mut jacobians, mut ignored) = (vec![nan; 6 * q.len()], vec![[nan; 7]; rows]);
    model.jacobians(&q, frame, &mut jacobians, &mut ignored);
    let mut twists = vec![[nan; 6]; rows];
    model.twists(&q, &dq, frame, &mut twists);
    let mut manipulabilities = vec![nan; rows];
    model.manipulabilities(&q, &mut manipulabilities);

    let (q, dq) = (upload(gpu, &q), upload(gpu, &dq));
    let [q, dq] = [&q, &dq].map(|memory| memory.slice(0, R::DTYPE, rows * n).unwrap());
    let out = |len| Output::<R>::new(gpu, len);
    let outs = [rows * 7, rows * 7 * links.len(), rows * 6 * n, rows * 6, rows].map(out);
    let table = on_device.links(&links).unwrap();
    // SAFETY: everything lives until the results are fetched, which waits for the stream.
    unsafe {
        on_device.poses(q, outs[0].slice()).unwrap();
        on_device.link_poses(q, &table, outs[1].slice()).unwrap();
        on_device.jacobians(q, frame, outs[2].slice()).unwrap();
        on_device.twists(q, dq, frame, outs[3].slice()).unwrap();
        on_device.manipulabilities(q, outs[4].slice()).unwrap();
    }
    let [
        came_poses,
        came_links,
        came_jacobians,
        came_twists,
        came_manipulabilities,
    ] = outs.map(Output::fetch);
    assert_bits("poses", poses.as_flattened(), &came_poses, about);
    assert_bits("links", link_poses.as_flattened(), &came_links, about);
    assert_bits("Jacobians", &jacobians, &came_jacobians, about);
    assert_bits("twists", twists.as_flattened(), &came_twists, about);
    assert_bits("manipulability", &manipulabilities, &came_manipulabilities, about);
}

#[test]
fn forward_of_random_chains_has_the_bits_of_the_cpu() {
    let Some(gpu) = cuda() else { return };
    let cases = random_cases(60);
    for case in 0..cases {
        let mut random = Random(0xf0f0 + case as u64);
        let (chain, text) = random_chain(&mut random, PLAIN[case % PLAIN.len()]);
        let rows = random_count(&mut random);
        let about = || format!("case {case}, {rows} rows\n{text}");
        match random.once_in(2) {
            true => check_forward::<f32>(&gpu, &mut random, &chain, rows, &about),
            false => check_forward::<f64>(&gpu, &mut random, &chain, rows, &about),
        }
    }
    ran(&gpu, "kinematics forward", cases);
}

/// Results of inverse kinematics, from the CPU or from a device.
struct Solutions<R> {
    joints: Vec<R>,
    valid: Vec<u8>,
    position_error_m: Vec<R>,
    rotation_error_rad: Vec<R>,
    seed: Vec<i64>,
    iterations: Vec<i64>,
    branches: Vec<i64>,
}

impl<R: Number> Solutions<R> {
    fn of_cpu(joints: Vec<R>, answers: &[Answer<R>], branches: &[u32]) -> Self {
        Self {
            joints,
            valid: answers.iter().map(|answer| answer.valid.into()).collect(),
            position_error_m: answers.iter().map(|answer| answer.position_error_m).collect(),
            rotation_error_rad: answers.iter().map(|answer| answer.rotation_error_rad).collect(),
            seed: answers.iter().map(|answer| answer.seed.into()).collect(),
            iterations: answers.iter().map(|answer| answer.iterations.into()).collect(),
            branches: branches.iter().map(|&branch| branch.into()).collect(),
        }
    }

    fn assert_same(&self, came: &Self, about: &dyn Fn() -> String) {
        for (what, expected, came) in [
            ("seed", &self.seed, &came.seed),
            ("iterations", &self.iterations, &came.iterations),
            ("branch", &self.branches, &came.branches),
        ] {
            let first = expected.iter().zip(came).position(|(a, b)| a != b);
            assert_eq!(first.map(|i| (i, expected[i], came[i])), None, "{what}\n{}", about());
        }
        assert_eq!(self.valid, came.valid, "valid\n{}", about());
        assert_bits("joints", &self.joints, &came.joints, about);
        assert_bits(
            "position_error_m",
            &self.position_error_m,
            &came.position_error_m,
            about,
        );
        assert_bits(
            "rotation_error_rad",
            &self.rotation_error_rad,
            &came.rotation_error_rad,
            about,
        );
    }

    /// Returns the results for some of the targets.
    fn rows(&self, rows: impl Iterator<Item = usize> + Clone) -> Self {
        let n = self.joints.len() / self.valid.len().max(1);
        fn pick<T: Copy>(from: &[T], rows: impl Iterator<Item = usize>) -> Vec<T> {
            rows.filter_map(|row| from.get(row).copied()).collect()
        }
        Self {
            joints: rows
                .clone()
                .flat_map(|row| self.joints[row * n..][..n].to_vec())
                .collect(),
            valid: pick(&self.valid, rows.clone()),
            position_error_m: pick(&self.position_error_m, rows.clone()),
            rotation_error_rad: pick(&self.rotation_error_rad, rows.clone()),
            seed: pick(&self.seed, rows.clone()),
            iterations: pick(&self.iterations, rows.clone()),
            branches: pick(&self.branches, rows),
        }
    }
}

/// Joints at which the searches of inverse kinematics begin, in host memory.
enum Starts<'a, R> {
    Middle,
    One(&'a [R]),
    Each(&'a [R]),
}

/// Limits for `with_sizes` that make batches of all sizes take one, two, three and six stages.
const SIZES: [[usize; 3]; 4] = [[usize::MAX; 3], [0, usize::MAX, usize::MAX], [0, 0, usize::MAX], [0; 3]];

/// Solves targets on a device, each by itself or along trajectories of `length`. The stages follow from `sizes`; `None`
/// means the defaults.
fn find<R: Number>(
    gpu: &Gpu,
    solver: &Solver<R>,
    targets: &[Pose<R>],
    starts: &Starts<'_, R>,
    length: Option<usize>,
    sizes: Option<[usize; 3]>,
) -> Solutions<R> {
    let (count, n) = (targets.len(), solver.model().joints());
    let mut on_device = GpuSolver::new(solver, gpu).unwrap();
    if let Some(sizes) = sizes {
        on_device = on_device.with_sizes(sizes);
    }
    let memory = upload(gpu, targets.as_flattened());
    let own = match starts {
        Starts::Middle => upload::<R>(gpu, &[]),
        Starts::One(starts) | Starts::Each(starts) => upload(gpu, starts),
    };
    let of = |starts: &[R]| own.slice(0, R::DTYPE, starts.len()).unwrap();
    let starts = match starts {
        Starts::Middle => DeviceStarts::Middle,
        Starts::One(starts) => DeviceStarts::One(of(starts)),
        Starts::Each(starts) => DeviceStarts::Each(of(starts)),
    };
    let (joints, valid) = (Output::<R>::new(gpu, count * n), Output::<u8>::new(gpu, count));
    let (position, rotation) = (Output::<R>::new(gpu, count), Output::<R>::new(gpu, count));
    let [seed, iterations, branches] = [count, count, count].map(|len| Output::<i64>::new(gpu, len));
    let answers = DeviceAnswers {
        joints: joints.slice(),
        valid: valid.slice(),
        position_error_m: position.slice(),
        rotation_error_rad: rotation.slice(),
        seed: seed.slice(),
        iterations: iterations.slice(),
    };
    let targets = memory.slice(0, R::DTYPE, count * 7).unwrap();
    // SAFETY: everything lives until the results are fetched, which waits for the stream.
    unsafe {
        match length {
            None => on_device.solve_batch(targets, starts, &answers),
            Some(length) => on_device.solve_trajectories(targets, length, starts, &answers, branches.slice()),
        }
        .unwrap();
    }
    Solutions {
        joints: joints.fetch(),
        valid: valid.fetch(),
        position_error_m: position.fetch(),
        rotation_error_rad: rotation.fetch(),
        seed: seed.fetch(),
        iterations: iterations.fetch(),
        branches: match length {
            Some(_) => branches.fetch(),
            None => Vec::new(),
        },
    }
}

fn random_config<R: Real>(random: &mut Random, chain: &Chain) -> InverseConfig {
    let task = random.pick(&[Task::Pose, Task::Pose, Task::Pose, Task::Position, Task::PositionAxis]);
    let mut weights = [1.0; 6];
    if random.once_in(3) {
        weights = weights.map(|_| random.pick(&[1.0, 0.5, 2.0, 0.0, 30.0]));
        weights[random.below(3)] = 1.0;
    }
    let is_single = size_of::<R>() == 4;
    let rows = weights[..task.rows()].iter().filter(|&&weight| weight != 0.0).count();
    let posture = (chain.joints().len() > rows && random.once_in(2)).then(|| random.pick(&[0.02, 0.3, 1.0]));
    let rest = joints_within(random, chain);
    InverseConfig {
        task,
        position_tolerance_m: random.pick(&[1e-4, 1e-5, if is_single { 2e-6 } else { 1e-9 }]),
        rotation_tolerance_rad: random.pick(&[1e-3, 1e-5, 0.5]),
        weights,
        seeds: random.pick(&[1, 2, 15, 16, 17, 40]),
        max_iterations: random.pick(&[None, None, Some(1), Some(5)]),
        select: random.pick(&[Select::First, Select::First, Select::Nearest]),
        max_joint_step: random.pick(&[0.5, 0.05, 1e9]),
        posture,
        rest: (posture.is_some() && random.once_in(2)).then_some(rest),
    }
}

/// Draws targets that the chain reaches, targets that it can't reach, and invalid ones.
fn random_targets<R: Real>(random: &mut Random, chain: &Chain, count: usize, along: bool) -> Vec<Pose<R>> {
    let model = Model::<f64>::new(chain);
    let (mut q, mut to) = (joints_within(random, chain), joints_within(random, chain));
    let target = |_| {
        if along {
            if random.once_in(25) {
                to = joints_within(random, chain);
            }
            let steps = if random.once_in(40) { 1.0 } else { 0.1 };
            for (q, to) in q.iter_mut().zip(&to) {
                *q += (to - *q) * steps;
            }
        } else {
            q = joints_within(random, chain);
        }
        let mut pose = model.pose(&q).unwrap_or([0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 1.0]);
        let component = random.below(7);
        match random.below(30) {
            0 => pose[component] = random.pick(&[f64::NAN, f64::INFINITY, 1e30, 1e6, 0.0]),
            1 => pose[3..].fill(0.0),
            2 => pose[3..].iter_mut().for_each(|x| *x *= -7.0),
            3 => pose[component % 3] += 3.0,
            4 => pose[3..].fill(1e-7),
            _ => {}
        }
        pose.map(R::from_f64)
    };
    (0..count).map(target).collect()
}

fn random_starts<R: Real>(random: &mut Random, chain: &Chain, rows: usize) -> Vec<R> {
    let mut starts: Vec<f64> = (0..rows).flat_map(|_| joints_within(random, chain)).collect();
    for (i, value) in starts.iter_mut().enumerate() {
        let limit = chain.joints()[i % chain.joints().len()].limits[random.below(2)];
        match random.below(30) {
            0 => *value = random.pick(&[f64::NAN, f64::INFINITY, 7.0, -20.0, 0.0, -0.0]),
            1..=3 => *value = limit + random.pick(&[0.0, 0.005, -0.005, 0.02, -0.02]),
            _ => {}
        }
    }
    starts.into_iter().map(R::from_f64).collect()
}

fn check_inverse<R: Number>(
    gpu: &Gpu,
    random: &mut Random,
    chain: &Chain,
    config: &InverseConfig,
    (count, length): (usize, Option<usize>),
    about: &dyn Fn() -> String,
) {
    let n = chain.joints().len();
    let solver = Solver::<R>::new(chain, config).unwrap();
    let targets: Vec<Pose<R>> = random_targets(random, chain, count, length.is_some());
    let each = count / length.unwrap_or(1);
    let start_kind = random.below(3);
    let mut own: Vec<R> = random_starts(random, chain, if start_kind == 1 { 1 } else { each });
    if let (Some(length), true) = (length, random.once_in(2)) {
        // Starts each trajectory near its first target: at the solution of the second one.
        let second = targets.iter().skip(1).step_by(length);
        for (own, target) in own.chunks_exact_mut(n).zip(second) {
            solver.solve(target, None, own);
        }
    }
    let starts = match start_kind {
        0 => Starts::Middle,
        1 => Starts::One(&own),
        _ => Starts::Each(&own),
    };
    let seeds: Option<Vec<R>> = match starts {
        Starts::Middle => None,
        Starts::One(own) => Some(own.repeat(each)),
        Starts::Each(own) => Some(own.to_vec()),
    };
    let mut joints = vec![R::default(); count * n];
    let mut answers = vec![Answer::default(); count];
    let mut branches = vec![0; if length.is_some() { count } else { 0 }];
    match length {
        None => solver.solve_batch(&targets, seeds.as_deref(), &mut joints, &mut answers),
        Some(length) => {
            let seeds = seeds.as_deref();
            solver.solve_trajectories(&targets, length, seeds, &mut joints, &mut answers, &mut branches);
        }
    }
    let expected = Solutions::of_cpu(joints, &answers, &branches);
    let all_sizes = if length.is_none() { &SIZES[..] } else { &SIZES[..1] };
    for &sizes in all_sizes {
        let came = find(gpu, &solver, &targets, &starts, length, Some(sizes));
        let about = || {
            format!(
                "{config:?}, {count} targets, trajectories of {length:?}, starts {start_kind}\n{}",
                about()
            )
        };
        expected.assert_same(&came, &about);
    }
}

#[test]
fn answers_for_random_chains_have_the_bits_of_the_cpu() {
    let Some(gpu) = cuda() else { return };
    let cases = random_cases(40);
    for case in 0..cases {
        let mut random = Random(0x1_c0de + case as u64);
        let (chain, text) = random_chain(&mut random, PLAIN[case % PLAIN.len()]);
        let is_single = random.once_in(2);
        let (count, length) = match random.once_in(3) {
            true => {
                let length = 1 + random.below(20);
                (length * random.below(7), Some(length))
            }
            false => (random_count(&mut random) / 3, None),
        };
        let about = || format!("case {case}\n{text}");
        if is_single {
            let config = random_config::<f32>(&mut random, &chain);
            check_inverse::<f32>(&gpu, &mut random, &chain, &config, (count, length), &about);
        } else {
            let config = random_config::<f64>(&mut random, &chain);
            check_inverse::<f64>(&gpu, &mut random, &chain, &config, (count, length), &about);
        }
    }
    ran(&gpu, "kinematics inverse", cases);
}

/// URDF files of well-known arms, with the base and the tip of each.
const ARMS: [(&str, &str, &str); 5] = [
    ("ur5.urdf", "base_link", "tool0"),
    ("panda.urdf", "panda_link0", "panda_hand"),
    ("kuka_iiwa.urdf", "lbr_iiwa_link_0", "lbr_iiwa_link_7"),
    ("so101_new_calib.urdf", "base_link", "gripper_frame_link"),
    ("prismatic_robot.urdf", "link1", "link4"),
];

fn arms() -> Vec<(&'static str, Chain)> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/urdf_fk");
    let read = |&(file, base, tip): &(&'static str, &str, &str)| {
        let config = ChainConfig {
            base: base.into(),
            tip: tip.into(),
            ..ChainConfig::default()
        };
        match Chain::read(&folder.join(file), &config) {
            Ok(chain) => Some((file, chain)),
            Err(error) => {
                say(&format!("gpu: skipped an arm: {error}"));
                None
            }
        }
    };
    ARMS.iter().filter_map(read).collect()
}

/// Checks that the answers are the same for all targets at once, in another order, and in chunks, each in other stages.
fn check_arm<R: Number>(gpu: &Gpu, file: &str, chain: &Chain, config: &InverseConfig, count: usize) {
    let mut random = Random(count as u64);
    let n = chain.joints().len();
    let solver = Solver::<R>::new(chain, config).unwrap();
    let targets: Vec<Pose<R>> = random_targets(&mut random, chain, count, false);
    let (mut joints, mut answers) = (vec![R::default(); count * n], vec![Answer::default(); count]);
    solver.solve_batch(&targets, None, &mut joints, &mut answers);
    let expected = Solutions::of_cpu(joints, &answers, &[]);
    let about = || format!("{file}, {count} targets, {config:?}");
    let middle = Starts::Middle;
    expected.assert_same(&find(gpu, &solver, &targets, &middle, None, None), &about);

    let reversed: Vec<Pose<R>> = targets.iter().rev().copied().collect();
    let came = find(gpu, &solver, &reversed, &middle, None, Some(SIZES[3]));
    expected.assert_same(&came.rows((0..count).rev()), &|| {
        format!("in another order: {}", about())
    });
    for (chunk, of) in targets.chunks(count / 3 + 1).enumerate() {
        let from = chunk * (count / 3 + 1);
        let came = find(gpu, &solver, of, &middle, None, Some(SIZES[chunk]));
        expected
            .rows(from..from + of.len())
            .assert_same(&came, &|| format!("chunk {chunk}: {}", about()));
    }
}

#[test]
fn answers_for_arms_depend_neither_on_order_nor_on_chunks() {
    let Some(gpu) = cuda() else { return };
    // With many cases, the batches take each number of stages.
    let counts: &[usize] = match random_cases(0) {
        0..1000 => &[4200],
        1000..10_000 => &[4200, 60_000, 600_000],
        _ => &[4200, 60_000, 1_000_003],
    };
    let (mut ran_cases, arms) = (0, arms());
    for (file, chain) in &arms {
        for &count in counts {
            let coarse = InverseConfig::default();
            let fine = InverseConfig {
                position_tolerance_m: 1e-5,
                rotation_tolerance_rad: 1e-5,
                seeds: 64,
                ..InverseConfig::default()
            };
            check_arm::<f32>(&gpu, file, chain, &coarse, count);
            // On the emulator, where one thread runs at a time, one arm is enough for the longer work.
            if counts.len() > 1 || *file == "so101_new_calib.urdf" {
                check_arm::<f64>(&gpu, file, chain, &fine, count);
            }
            ran_cases += count;
        }
    }
    ran(&gpu, "kinematics of arms", ran_cases);
}

#[test]
fn every_task_has_the_bits_of_the_cpu_in_all_stages() {
    let Some(gpu) = cuda() else { return };
    const COUNT: usize = 600;
    let mut cases = 0;
    for plain in [Some(6), Some(7), None] {
        let mut random = Random(0x77);
        let (mut chain, mut text) = random_chain(&mut random, plain);
        // A chain with more than 6 joints, so that each task leaves it free to approach the rest posture.
        while chain.joints().len() <= 6 && plain.is_none() {
            (chain, text) = random_chain(&mut random, plain);
        }
        for task in [Task::Pose, Task::PositionAxis, Task::Position] {
            if plain.is_some() && task != Task::Pose {
                continue;
            }
            let config = InverseConfig {
                task,
                seeds: 6,
                max_iterations: Some(3),
                posture: plain.is_none().then_some(0.3),
                ..InverseConfig::default()
            };
            check_inverse::<f32>(&gpu, &mut random, &chain, &config, (COUNT, None), &|| text.clone());
            check_inverse::<f64>(&gpu, &mut random, &chain, &config, (COUNT, None), &|| text.clone());
            let along = (60, Some(20));
            check_inverse::<f32>(&gpu, &mut random, &chain, &config, along, &|| text.clone());
            check_inverse::<f64>(&gpu, &mut random, &chain, &config, along, &|| text.clone());
            cases += 2 * (COUNT + along.0);
        }
    }
    ran(&gpu, "kinematics of every task", cases);
}

#[test]
fn trajectories_of_arms_have_the_bits_of_the_cpu() {
    let Some(gpu) = cuda() else { return };
    let (trajectories, length) = if random_cases(0) < 1000 { (5, 40) } else { (1000, 300) };
    for (file, chain) in &arms() {
        let config = InverseConfig::default();
        let mut random = Random(7);
        let work = (trajectories * length, Some(length));
        check_inverse::<f32>(&gpu, &mut random, chain, &config, work, &|| (*file).to_owned());
        check_inverse::<f64>(&gpu, &mut random, chain, &config, work, &|| (*file).to_owned());
        ran(&gpu, "kinematics along time", trajectories * length);
    }
}

#[test]
fn slices_that_do_not_fit_are_refused() {
    let Some(gpu) = cuda() else { return };
    let (chain, _) = random_chain(&mut Random(3), None);
    let n = chain.joints().len();
    let (model, solver) = (
        Model::<f32>::new(&chain),
        Solver::<f32>::new(&chain, &InverseConfig::default()).unwrap(),
    );
    let on_device = GpuModel::new(&model, &gpu);
    let memory = upload(&gpu, &vec![0f32; 4 * n.max(7)]);
    let slice = |len| memory.slice(0, Dtype::Float32, len).unwrap();
    // SAFETY: nothing is launched with slices that are refused.
    let short = unsafe { on_device.poses(slice(2 * n), slice(13)) };
    let len = |tensor, expected, came| Err(DeviceFault::Slice(SliceError::Len { tensor, expected, came }));
    assert_eq!(short, len("poses", 14, 13));
    // SAFETY: the same.
    let ragged = unsafe { on_device.poses(slice(2 * n + 1), slice(14)) };
    let rows = (2 * n + 1) / n;
    assert_eq!(
        ragged,
        if n == 1 {
            len("poses", 21, 14)
        } else {
            len("q", rows * n, 2 * n + 1)
        }
    );
    let other = memory.slice(0, Dtype::Float64, n).unwrap();
    // SAFETY: the same.
    let other = unsafe { on_device.poses(other, slice(7)) };
    let dtype = SliceError::Dtype {
        tensor: "q",
        expected: Dtype::Float32,
        came: Dtype::Float64,
    };
    assert_eq!(other, Err(DeviceFault::Slice(dtype)));
    let mut finder = GpuSolver::new(&solver, &gpu).unwrap();
    let answers = DeviceAnswers {
        joints: slice(n),
        valid: memory.slice(0, Dtype::UInt8, 1).unwrap(),
        position_error_m: slice(1),
        rotation_error_rad: slice(2),
        seed: memory.slice(0, Dtype::Int64, 1).unwrap(),
        iterations: memory.slice(0, Dtype::Int64, 1).unwrap(),
    };
    // SAFETY: the same.
    let long = unsafe { finder.solve_batch(slice(7), DeviceStarts::Middle, &answers) };
    assert_eq!(long, len("rotation_error", 1, 2));
}
