//! Measures kinematics of many rows on a device. The results must equal the CPU's, bit for bit.

use crate::random::Random;
use crate::rows::{Rows, Scope};
use crate::slab::Slab;
use crate::timing;
use robocache::device::gpu::{DeviceSlice, Gpu, SliceError};
use robocache::device::{Dtype, Primitive};
use robocache::geometry::Real;
use robocache::kinematics::{Answer, Chain, Frame, InverseConfig, Model, Pose, Solver};
use robocache::ops::kinematics::gpu::{DeviceAnswers, DeviceStarts, GpuModel, GpuSolver};
use std::error::Error;
use std::f64::consts::FRAC_PI_2;

/// Joints of Franka's Panda, from the manufacturer's tables: position in the frame of the joint before, m, rotation about that
/// frame's x axis, rad, and limits, rad.
const PANDA: [([f64; 3], f64, [f64; 2]); 7] = [
    ([0.0, 0.0, 0.333], 0.0, [-2.8973, 2.8973]),
    ([0.0, 0.0, 0.0], -FRAC_PI_2, [-1.7628, 1.7628]),
    ([0.0, -0.316, 0.0], FRAC_PI_2, [-2.8973, 2.8973]),
    ([0.0825, 0.0, 0.0], FRAC_PI_2, [-3.0718, -0.0698]),
    ([-0.0825, 0.384, 0.0], -FRAC_PI_2, [-2.8973, 2.8973]),
    ([0.0, 0.0, 0.0], FRAC_PI_2, [-0.0175, 3.7525]),
    ([0.088, 0.0, 0.0], FRAC_PI_2, [-2.8973, 2.8973]),
];

const COUNTS: [usize; 5] = [100, 1000, 10_000, 100_000, 1 << 20];

/// Number of trajectories, and number of targets in each.
const PATHS: (usize, usize) = (1000, 1000);

fn panda() -> Result<Chain, Box<dyn Error>> {
    let mut urdf = "<robot name=\"panda\"><link name=\"link0\"/>".to_owned();
    for (i, ([x, y, z], roll, [lower, upper])) in PANDA.into_iter().enumerate() {
        urdf += &format!(
            "<link name=\"link{}\"/><joint name=\"joint{}\" type=\"revolute\"><parent link=\"link{i}\"/><child link=\"link{}\"/>\
             <origin xyz=\"{x} {y} {z}\" rpy=\"{roll} 0 0\"/><axis xyz=\"0 0 1\"/><limit lower=\"{lower}\" upper=\"{upper}\"/></joint>",
            i + 1,
            i + 1,
            i + 1
        );
    }
    urdf += "<link name=\"hand\"/><joint name=\"flange\" type=\"fixed\"><parent link=\"link7\"/><child link=\"hand\"/>\
             <origin xyz=\"0 0 0.107\" rpy=\"0 0 -0.785398163397\"/></joint></robot>";
    Ok(Chain::from_urdf(&urdf, "panda", "link0", "hand")?)
}

/// Measures poses, Jacobians and inverse kinematics on the device, in float32 and float64. Does nothing without a device.
pub fn measure(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let Some(gpu) = gpu else { return Ok(()) };
    let chain = panda()?;
    for count in COUNTS.into_iter().filter(|&count| timing::is_wanted(2048 * count)) {
        forward::<f32>(rows, gpu, &chain, count)?;
        forward::<f64>(rows, gpu, &chain, count)?;
        let coarse = InverseConfig::default();
        let fine = InverseConfig {
            position_tolerance_m: 1e-5,
            rotation_tolerance_rad: 1e-5,
            seeds: 64,
            ..InverseConfig::default()
        };
        inverse::<f32>(rows, gpu, &chain, &coarse, count)?;
        inverse::<f32>(rows, gpu, &chain, &fine, count)?;
        inverse::<f64>(rows, gpu, &chain, &fine, count)?;
    }
    paths::<f32>(rows, gpu, &chain)?;
    paths::<f64>(rows, gpu, &chain)
}

/// Draws random joint values for `count` poses, uniform within the limits of the joints.
fn random_rows(chain: &Chain, count: usize) -> Vec<f64> {
    let mut random = Random::new(count as u64);
    let within = |[lower, upper]: [f64; 2], random: &mut Random| lower + (upper - lower) * f64::from(random.unit());
    let row = |_| chain.joints().iter().map(|joint| joint.limits);
    let limits: Vec<[f64; 2]> = (0..count).flat_map(row).collect();
    limits.into_iter().map(|limits| within(limits, &mut random)).collect()
}

fn rounded<R: Real>(values: &[f64]) -> Vec<R> {
    values.iter().map(|&value| R::from_f64(value)).collect()
}

fn name<R>() -> &'static str {
    if size_of::<R>() == 4 { "float32" } else { "float64" }
}

fn check<T: Primitive>(slab: &Slab, part: usize, expected: &[T]) -> Result<(), Box<dyn Error>> {
    let expected: &[u8] = bytemuck::cast_slice(expected);
    let mut actual = vec![0; expected.len()];
    slab.download(0, part, &mut actual)?;
    if actual == expected {
        return Ok(());
    }
    Err("the device's values are not the CPU's".into())
}

fn forward<R: Real + Primitive>(rows: &mut Rows, gpu: &Gpu, chain: &Chain, count: usize) -> Result<(), Box<dyn Error>> {
    let (model, n) = (Model::<R>::new(chain), chain.joints().len());
    let on_device = GpuModel::new(&model, gpu);
    let q: Vec<R> = rounded(&random_rows(chain, count));
    let links: Vec<usize> = (0..chain.links().len().min(8)).collect();
    let table = on_device.links(&links)?;
    let sizes = [n, 7, 6 * n, 7 * links.len()].map(|len| count * len * size_of::<R>());
    let sets = timing::sets_for(sizes[0] + sizes[1]);
    let slab = Slab::new(gpu, sets, &sizes)?;
    for set in 0..sets {
        slab.upload(set, 0, bytemuck::cast_slice(&q))?;
    }
    let slice = |set, part: usize| slab.slice(set, part, R::DTYPE, sizes[part] / size_of::<R>());
    let mut poses = vec![[R::default(); 7]; count];
    model.poses(&q, &mut poses);
    // SAFETY: the slab outlives the launches.
    let times = timing::device(gpu, sets, |set| unsafe {
        on_device.poses(slice(set, 0)?, slice(set, 1)?)
    })?;
    check(&slab, 1, poses.as_flattened())?;
    let config = format!("{count} poses of 7 joints, {}", name::<R>());
    rows.add("kinematics", &config, "cuda", Scope::Device, times, sizes[0] + sizes[1]);
    if count < 1 << 20 && timing::is_wanted(1 << 23) {
        return Ok(());
    }
    let mut jacobians = vec![R::default(); 6 * n * count];
    model.jacobians(&q, Frame::Base, &mut jacobians, &mut poses);
    // SAFETY: the same.
    let times = timing::device(gpu, sets, |set| unsafe {
        on_device.jacobians(slice(set, 0)?, Frame::Base, slice(set, 2)?)
    })?;
    check(&slab, 2, &jacobians)?;
    let config = format!("{count} Jacobians of 7 joints, {}", name::<R>());
    rows.add("kinematics", &config, "cuda", Scope::Device, times, sizes[0] + sizes[2]);
    // SAFETY: the same.
    let times = timing::device(gpu, sets, |set| unsafe {
        on_device.link_poses(slice(set, 0)?, &table, slice(set, 3)?)
    })?;
    let config = format!("{count} x 8 link poses, {}", name::<R>());
    rows.add("kinematics", &config, "cuda", Scope::Device, times, sizes[0] + sizes[3]);
    Ok(())
}

/// View of the device memory of inverse kinematics: target poses, the solutions, and the branch numbers of trajectories.
struct Answers<'a> {
    slab: &'a Slab,
    count: usize,
    joints: usize,
}

impl Answers<'_> {
    fn parts<R>(count: usize, joints: usize) -> [usize; 8] {
        let numbers = |len: usize| count * len * size_of::<R>();
        let counts = count * size_of::<i64>();
        [
            numbers(7),
            numbers(joints),
            count,
            numbers(1),
            numbers(1),
            counts,
            counts,
            counts,
        ]
    }

    fn of<R: Primitive>(
        &self,
        set: usize,
    ) -> Result<(DeviceSlice<'_>, DeviceAnswers<'_>, DeviceSlice<'_>), SliceError> {
        let count = self.count;
        let slice = |part, dtype, len| self.slab.slice(set, part, dtype, len);
        let answers = DeviceAnswers {
            joints: slice(1, R::DTYPE, count * self.joints)?,
            valid: slice(2, Dtype::UInt8, count)?,
            position_error_m: slice(3, R::DTYPE, count)?,
            rotation_error_rad: slice(4, R::DTYPE, count)?,
            seed: slice(5, Dtype::Int64, count)?,
            iterations: slice(6, Dtype::Int64, count)?,
        };
        Ok((slice(0, R::DTYPE, count * 7)?, answers, slice(7, Dtype::Int64, count)?))
    }
}

fn inverse<R: Real + Primitive>(
    rows: &mut Rows,
    gpu: &Gpu,
    chain: &Chain,
    config: &InverseConfig,
    count: usize,
) -> Result<(), Box<dyn Error>> {
    let n = chain.joints().len();
    let solver = Solver::<R>::new(chain, config)?;
    let mut on_device = GpuSolver::new(&solver, gpu)?;
    let mut exact: Vec<Pose<f64>> = vec![[0.0; 7]; count];
    Model::<f64>::new(chain).poses(&random_rows(chain, count), &mut exact);
    let targets: Vec<R> = rounded(exact.as_flattened());
    let parts = Answers::parts::<R>(count, n);
    let touched: usize = parts[..7].iter().sum();
    let sets = timing::sets_for(touched).min(16);
    let slab = Slab::new(gpu, sets, &parts)?;
    for set in 0..sets {
        slab.upload(set, 0, bytemuck::cast_slice(&targets))?;
    }
    let all = Answers {
        slab: &slab,
        count,
        joints: n,
    };
    let times = timing::device(gpu, sets, |set| {
        let (targets, answers, _) = all.of::<R>(set)?;
        // SAFETY: slab and solver outlive the launches.
        unsafe { on_device.solve_batch(targets, DeviceStarts::Middle, &answers) }
    })?;
    let checked = count.min(20_000);
    let (mut joints, mut answers) = (vec![R::default(); checked * n], vec![Answer::default(); checked]);
    solver.solve_batch(targets[..checked * 7].as_chunks().0, None, &mut joints, &mut answers);
    check(&slab, 1, &joints)?;
    let mut valid = vec![0u8; count];
    slab.download(0, 2, &mut valid)?;
    let found = valid.iter().filter(|&&valid| valid == 1).count() as f64 / count as f64;
    let config = format!(
        "{count} targets, {:e} m, {} starts, {}, {:.3} % found",
        config.position_tolerance_m,
        config.seeds,
        name::<R>(),
        100.0 * found
    );
    rows.add("kinematics inverse", &config, "cuda", Scope::Device, times, touched);
    Ok(())
}

/// Measures inverse kinematics along trajectories whose joints swing near the middle of their limits.
fn paths<R: Real + Primitive>(rows: &mut Rows, gpu: &Gpu, chain: &Chain) -> Result<(), Box<dyn Error>> {
    let (trajectories, length) = match timing::is_wanted(1 << 23) {
        true => PATHS,
        false => (3, 20),
    };
    let (count, n) = (trajectories * length, chain.joints().len());
    let mut random = Random::new(5);
    let mut q = Vec::with_capacity(count * n);
    for _ in 0..trajectories {
        let swing = |joint: &robocache::kinematics::Joint| {
            let ([lower, upper], mut unit) = (joint.limits, || f64::from(random.unit()));
            let range = upper - lower;
            let middle = lower + range * (0.35 + 0.3 * unit());
            [
                middle,
                range * 0.3 * unit(),
                0.02 * unit(),
                std::f64::consts::TAU * unit(),
            ]
        };
        let swings: Vec<[f64; 4]> = chain.joints().iter().map(swing).collect();
        for i in 0..length {
            q.extend(
                swings
                    .iter()
                    .map(|[middle, size, speed, phase]| middle + size * (speed * i as f64 + phase).sin()),
            );
        }
    }
    let mut exact: Vec<Pose<f64>> = vec![[0.0; 7]; count];
    Model::<f64>::new(chain).poses(&q, &mut exact);
    let targets: Vec<R> = rounded(exact.as_flattened());
    let solver = Solver::<R>::new(chain, &InverseConfig::default())?;
    let on_device = GpuSolver::new(&solver, gpu)?;
    let parts = Answers::parts::<R>(count, n);
    let slab = Slab::new(gpu, 1, &parts)?;
    slab.upload(0, 0, bytemuck::cast_slice(&targets))?;
    let all = Answers {
        slab: &slab,
        count,
        joints: n,
    };
    let times = timing::stream(gpu, 1, |set| {
        let (targets, answers, branches) = all.of::<R>(set)?;
        // SAFETY: slab and solver outlive the launches.
        unsafe { on_device.solve_trajectories(targets, length, DeviceStarts::Middle, &answers, branches) }
    })?;
    let (mut joints, mut answers) = (vec![R::default(); count * n], vec![Answer::default(); count]);
    let mut branches = vec![0; count];
    solver.solve_trajectories(
        targets.as_chunks().0,
        length,
        None,
        &mut joints,
        &mut answers,
        &mut branches,
    );
    check(&slab, 1, &joints)?;
    let config = format!(
        "{trajectories} trajectories of {length} targets, 1e-4 m, {}",
        name::<R>()
    );
    rows.add(
        "kinematics inverse",
        &config,
        "cuda",
        Scope::Device,
        times,
        parts.iter().sum(),
    );
    Ok(())
}
