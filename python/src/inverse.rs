//! Inverse kinematics for arrays of poses: joints for each pose, all solutions of a pose, or joints along trajectories.
//! A pose without a solution is not an error: `valid` is false.

use crate::arrays::Arrays;
use crate::element::Element;
use crate::kinematics::{Chain, Number, Rows, filled, with_type};
use crate::tensor::Tensor;
use crate::threads;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use robocache::device::Dtype;
use robocache::kinematics::{self, Answer, InverseError, Pose, Select, Solver, Task};
use std::borrow::Cow;

/// Solutions of inverse kinematics, as tensors with a row for each pose: `joints`, `valid`, `position_error_m`,
/// `rotation_error_rad`, `seed`, `iterations`.
pub type Answers = (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor);

/// Options of inverse kinematics. Only `ik_path` uses `max_joint_step`, and `ik_all` ignores `select`.
#[pyclass(frozen, module = "robocache._native")]
pub struct InverseConfig(kinematics::InverseConfig);

#[pymethods]
impl InverseConfig {
    #[new]
    #[pyo3(signature = (
        task, position_tolerance_m, rotation_tolerance_rad, weights, seeds, max_iterations, select, max_joint_step, posture, rest
    ))]
    #[allow(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        task: &str,
        position_tolerance_m: f64,
        rotation_tolerance_rad: f64,
        weights: [f64; 6],
        seeds: i64,
        max_iterations: Option<i64>,
        select: &str,
        max_joint_step: Option<f64>,
        posture: Option<f64>,
        rest: Option<Vec<f64>>,
    ) -> PyResult<Self> {
        let defaults = kinematics::InverseConfig::default();
        Ok(Self(kinematics::InverseConfig {
            task: task_of(task)?,
            position_tolerance_m,
            rotation_tolerance_rad,
            weights,
            seeds: count("seeds", seeds)?,
            max_iterations: max_iterations.map(|n| count("max_iterations", n)).transpose()?,
            select: select_of(select, max_joint_step.is_some())?,
            max_joint_step: max_joint_step.unwrap_or(defaults.max_joint_step),
            posture,
            rest,
        }))
    }
}

/// Finds joints for each of `poses`, `[..., 7]`. The search starts at the joints `seed`: `[n]` for all poses, or `[..., n]` for
/// each. With `None` it starts at the middle of the joint limits.
#[pyfunction]
#[pyo3(signature = (chain, poses, seed, config))]
pub fn ik(
    py: Python<'_>,
    chain: &Bound<'_, Chain>,
    poses: &Bound<'_, PyAny>,
    seed: Option<&Bound<'_, PyAny>>,
    config: &Bound<'_, InverseConfig>,
) -> PyResult<Answers> {
    let (chain, config, arrays) = (chain.get(), &config.get().0, Arrays::new(None));
    let poses = take_poses(&arrays, poses)?;
    let seeds = chain.take_seeds(&arrays, seed, &poses, poses.leading())?;
    with_type!(poses, chain.ik_of(py, arrays, &poses, seeds.as_ref(), config))
}

/// Finds joints for each of `poses`, `[..., 7]`, from every start of the search. The first start is `seed`: `[n]` for all
/// poses, or `[..., n]` for each. After the axes of the poses, the results have an axis of starts.
#[pyfunction]
#[pyo3(signature = (chain, poses, seed, config))]
pub fn ik_all(
    py: Python<'_>,
    chain: &Bound<'_, Chain>,
    poses: &Bound<'_, PyAny>,
    seed: Option<&Bound<'_, PyAny>>,
    config: &Bound<'_, InverseConfig>,
) -> PyResult<Answers> {
    let (chain, config, arrays) = (chain.get(), &config.get().0, Arrays::new(None));
    let poses = take_poses(&arrays, poses)?;
    poses.expect_on_host("poses", "`select` \"all\" does not compute yet")?;
    if let Some(posture) = config.posture {
        return Err(PyValueError::new_err(format!(
            "`posture` is {posture} with `select` \"all\" (allowed: with first, nearest)"
        )));
    }
    let seeds = chain.take_seeds(&arrays, seed, &poses, poses.leading())?;
    with_type!(poses, chain.ik_all_of(py, &poses, seeds.as_ref(), config))
}

/// Finds joints along trajectories of poses, `[..., T, 7]`. The search starts at the joints `seed`: `[n]` for all trajectories,
/// or `[..., n]` for each. Returns the solutions, and for each pose the number of its branch, int64.
#[pyfunction]
#[pyo3(signature = (chain, poses, seed, config))]
pub fn ik_path(
    py: Python<'_>,
    chain: &Bound<'_, Chain>,
    poses: &Bound<'_, PyAny>,
    seed: Option<&Bound<'_, PyAny>>,
    config: &Bound<'_, InverseConfig>,
) -> PyResult<(Answers, Tensor)> {
    let (chain, config, arrays) = (chain.get(), &config.get().0, Arrays::new(None));
    let poses = take_poses(&arrays, poses)?;
    let Some((&length, leading)) = poses.leading().split_last() else {
        return Err(PyValueError::new_err(
            "`poses` has shape [7] (allowed: [..., T, 7], the poses of a trajectory one after the other)",
        ));
    };
    let seeds = chain.take_seeds(&arrays, seed, &poses, leading)?;
    with_type!(
        poses,
        chain.ik_path_of(py, arrays, &poses, length, seeds.as_ref(), config)
    )
}

impl Chain {
    /// Imports the argument `seed`, the joints at which the search starts: one row for all `poses`, or a row for each index
    /// of `leading`.
    fn take_seeds(
        &self,
        arrays: &Arrays,
        seed: Option<&Bound<'_, PyAny>>,
        poses: &Rows,
        leading: &[usize],
    ) -> PyResult<Option<Rows>> {
        let Some(seed) = seed else {
            return Ok(None);
        };
        let seed = self.take_row_per_joint(arrays, "seed", seed)?;
        seed.expect_type_of("seed", "poses", poses)?;
        seed.expect_place_of("seed", "poses", poses)?;
        seed.expect_for_each("seed", "poses", leading)?;
        Ok(Some(seed))
    }

    fn ik_of<R: Number>(
        &self,
        py: Python<'_>,
        arrays: Arrays,
        poses: &Rows,
        seeds: Option<&Rows>,
        config: &kinematics::InverseConfig,
    ) -> PyResult<Answers> {
        let solver = Solver::<R>::new(&self.chain, config).map_err(refusal)?;
        if poses.is_on_device() {
            let stream = arrays.into_stream()?;
            return self.ik_on_device(py, &stream, poses, seeds, &solver);
        }
        let targets = targets::<R>(poses);
        let mut joints = filled(R::default(), targets.len(), self.size())?;
        let mut answers = filled(Answer::default(), targets.len(), 1)?;
        let seeds = seeds.map(|seeds| spread::<R>(seeds, targets.len())).transpose()?;
        py.detach(|| threads::share(|| solver.solve_batch(targets, seeds.as_deref(), &mut joints, &mut answers)))?;
        self.tensors(poses, &[], joints, &answers)
    }

    fn ik_all_of<R: Number>(
        &self,
        py: Python<'_>,
        poses: &Rows,
        seeds: Option<&Rows>,
        config: &kinematics::InverseConfig,
    ) -> PyResult<Answers> {
        let solver = Solver::<R>::new(&self.chain, config).map_err(refusal)?;
        let targets = targets::<R>(poses);
        let starts = solver.starts();
        let mut joints = filled(R::default(), targets.len(), starts * self.size())?;
        let mut answers = filled(Answer::default(), targets.len(), starts)?;
        let seeds = seeds.map(|seeds| spread::<R>(seeds, targets.len())).transpose()?;
        py.detach(|| threads::share(|| solver.solve_all_batch(targets, seeds.as_deref(), &mut joints, &mut answers)))?;
        self.tensors(poses, &[starts], joints, &answers)
    }

    fn ik_path_of<R: Number>(
        &self,
        py: Python<'_>,
        arrays: Arrays,
        poses: &Rows,
        length: usize,
        seeds: Option<&Rows>,
        config: &kinematics::InverseConfig,
    ) -> PyResult<(Answers, Tensor)> {
        let solver = Solver::<R>::new(&self.chain, config).map_err(refusal)?;
        if poses.is_on_device() {
            let stream = arrays.into_stream()?;
            return self.ik_path_on_device(py, &stream, poses, seeds, &solver, length);
        }
        let targets = targets::<R>(poses);
        let mut joints = filled(R::default(), targets.len(), self.size())?;
        let mut answers = filled(Answer::default(), targets.len(), 1)?;
        let mut branches = filled(0, targets.len(), 1)?;
        if !targets.is_empty() {
            let seeds = seeds
                .map(|seeds| spread::<R>(seeds, targets.len() / length))
                .transpose()?;
            py.detach(|| {
                threads::share(|| {
                    let seeds = seeds.as_deref();
                    solver.solve_trajectories(targets, length, seeds, &mut joints, &mut answers, &mut branches);
                })
            })?;
        }
        let branches: Vec<i64> = branches.into_iter().map(i64::from).collect();
        let branches = Tensor::of_vec(branches, Dtype::Int64, poses.leading());
        Ok((self.tensors(poses, &[], joints, &answers)?, branches))
    }

    /// Makes the result tensors. Their shapes begin with the axes of `poses`, followed by `places`: the number of starts,
    /// or nothing.
    fn tensors<R: Number>(
        &self,
        poses: &Rows,
        places: &[usize],
        joints: Vec<R>,
        answers: &[Answer<R>],
    ) -> PyResult<Answers> {
        let shape = [poses.leading(), places].concat();
        let errors = |of: fn(&Answer<R>) -> R| PyResult::Ok(poses.tensor(of_answers(answers, of)?, places));
        let counts = |of: fn(&Answer<R>) -> u32| {
            let counts = of_answers(answers, |answer| i64::from(of(answer)))?;
            PyResult::Ok(Tensor::of_vec(counts, Dtype::Int64, &shape))
        };
        let valid = of_answers(answers, |answer| u8::from(answer.valid))?;
        Ok((
            poses.tensor(joints, &[places, &[self.size()]].concat()),
            Tensor::of_vec(valid, Element::Bool, &shape),
            errors(|answer| answer.position_error_m)?,
            errors(|answer| answer.rotation_error_rad)?,
            counts(|answer| answer.seed)?,
            counts(|answer| answer.iterations)?,
        ))
    }
}

fn take_poses(arrays: &Arrays, poses: &Bound<'_, PyAny>) -> PyResult<Rows> {
    Rows::take(arrays, "poses", poses, 7, "x y z qx qy qz qw")
}

/// Views the values of the argument `poses` as poses `x y z qx qy qz qw`.
fn targets<R: Number>(poses: &Rows) -> &[Pose<R>] {
    poses.values::<R>().as_chunks().0
}

/// Returns the joints from which each of `count` searches starts; a single row of `seeds` is repeated.
fn spread<R: Number>(seeds: &Rows, count: usize) -> PyResult<Cow<'_, [R]>> {
    let values = seeds.values::<R>();
    if !seeds.leading().is_empty() {
        return Ok(values.into());
    }
    let mut all = filled(R::default(), count, values.len())?;
    for row in all.chunks_exact_mut(values.len()) {
        row.copy_from_slice(values);
    }
    Ok(all.into())
}

/// Collects the value that `of` returns for each solution; `MemoryError` if there is not enough memory.
fn of_answers<R, T: Clone + Default>(answers: &[Answer<R>], of: impl Fn(&Answer<R>) -> T) -> PyResult<Vec<T>> {
    let mut values = filled(T::default(), answers.len(), 1)?;
    for (value, answer) in values.iter_mut().zip(answers) {
        *value = of(answer);
    }
    Ok(values)
}

fn task_of(task: &str) -> PyResult<Task> {
    match task {
        "pose" => Ok(Task::Pose),
        "position" => Ok(Task::Position),
        "position_axis" => Ok(Task::PositionAxis),
        _ => Err(PyValueError::new_err(format!(
            "`task` is {task:?} (allowed: pose, position, position_axis)"
        ))),
    }
}

/// Parses `select`. "all" is not a value here: Python calls `ik_all` for it, and a trajectory needs a single solution.
fn select_of(select: &str, is_path: bool) -> PyResult<Select> {
    match select {
        "first" => Ok(Select::First),
        "nearest" => Ok(Select::Nearest),
        _ => Err(PyValueError::new_err(format!(
            "`select` is {select:?} (allowed: first, nearest{})",
            if is_path { "" } else { ", all" }
        ))),
    }
}

/// Converts the option `name`, a number of seeds or iterations, and refuses negative numbers. The solver checks the limits.
fn count<N: TryFrom<i64>>(name: &str, came: i64) -> PyResult<N> {
    let words = || PyValueError::new_err(format!("`{name}` is {came} (allowed: a number from 1 on)"));
    N::try_from(came).map_err(|_| words())
}

fn refusal(error: InverseError) -> PyErr {
    PyValueError::new_err(format!("`{}` is {}", error.key, error.problem))
}
