//! Joints for many poses.

use super::forward::grid;
use super::params::{Chain, Form, kernel, kernel_for};
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, DeviceSlice, Gpu, Kernel, Params};
use robocache_device::{Dtype, Primitive};
use robocache_geometry::Real;
use robocache_kinematics::{self as kinematics, MAX_JOINTS, Select, Task};

/// Finds joints for poses in the memory of a device.
///
/// Few targets are done by groups of lanes, which try a start each. Of many, each lane first tries the first starts of one target
/// after the other, since most have an answer from there, and groups do those that are left. The answers are the same.
pub struct GpuSolver<R> {
    gpu: Gpu,
    solver: Solver<'static, R>,
    form: Form,
    task: Task,
    /// The starts.
    table: DeviceBuf,
    /// Counters, then what is left: the indices of targets, and their least errors.
    left: DeviceBuf,
}

/// The first starts of a batch, in the memory of a device.
#[derive(Clone, Copy, Debug)]
pub enum DeviceStarts<'a> {
    /// The middle of the limits.
    Middle,
    /// One for all, `[n]`.
    One(DeviceSlice<'a>),
    /// One for each target, or for each trajectory, `[.., n]`.
    Each(DeviceSlice<'a>),
}

/// The answers to targets, in the memory of a device: the joints, and what [`kinematics::Answer`] has.
#[derive(Clone, Copy, Debug)]
pub struct DeviceAnswers<'a> {
    /// `[targets, n]`.
    pub joints: DeviceSlice<'a>,
    /// uint8 `[targets]`: 1 or 0.
    pub valid: DeviceSlice<'a>,
    /// `[targets]`.
    pub position_error_m: DeviceSlice<'a>,
    /// `[targets]`.
    pub rotation_error_rad: DeviceSlice<'a>,
    /// int64 `[targets]`.
    pub seed: DeviceSlice<'a>,
    /// int64 `[targets]`.
    pub iterations: DeviceSlice<'a>,
}

/// `Solver` of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Solver<'a, R> {
    pub chain: Chain<R>,
    pub lower: [R; MAX_JOINTS],
    pub upper: [R; MAX_JOINTS],
    pub weights: [R; 6],
    pub position: R,
    pub rotation: R,
    pub floor: R,
    pub gain: R,
    pub max_joint_step: R,
    pub turns: u32,
    pub holds: u32,
    pub has_weights: u32,
    pub max_iterations: u32,
    pub select: u32,
    pub starts: u32,
    pub table: DevicePtr<'a>,
}

/// `Answers` of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Answers<'a> {
    pub joints: DevicePtr<'a>,
    pub position_error: DevicePtr<'a>,
    pub rotation_error: DevicePtr<'a>,
    pub valid: DevicePtr<'a>,
    pub start: DevicePtr<'a>,
    pub iterations: DevicePtr<'a>,
}

/// `InverseParams` of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct InverseParams<'a, R> {
    pub solver: Solver<'a, R>,
    pub targets: DevicePtr<'a>,
    pub starts: DevicePtr<'a>,
    pub answers: Answers<'a>,
    pub list: DevicePtr<'a>,
    pub list_count: DevicePtr<'a>,
    pub left: DevicePtr<'a>,
    pub left_count: DevicePtr<'a>,
    pub least: DevicePtr<'a>,
    pub next: DevicePtr<'a>,
    pub targets_count: u32,
    pub start_stride: u32,
    pub from: u32,
    pub to: u32,
}

// SAFETY: it has the fields of the kernels' struct of that name.
unsafe impl<R: Copy> Params for InverseParams<'_, R> {}

/// `PathParams` of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PathParams<'a, R> {
    pub solver: Solver<'a, R>,
    pub targets: DevicePtr<'a>,
    pub starts: DevicePtr<'a>,
    pub answers: Answers<'a>,
    pub branches: DevicePtr<'a>,
    pub length: u64,
    pub trajectories: u32,
    pub start_stride: u32,
}

// SAFETY: it has the fields of the kernels' struct of that name.
unsafe impl<R: Copy> Params for PathParams<'_, R> {}

/// Threads of a block.
pub(super) const INVERSE_BLOCK: u32 = 64;
pub(super) const INVERSE_ANY_BLOCK: u32 = 32;
/// Lanes that work on one target.
pub(super) const GROUP: u32 = 16;

/// The most targets, or trajectories, of a launch: what is left of them has its place in memory of the solver's own.
const MOST_TARGETS: usize = 1 << 22;
/// The largest batch that groups do alone, targets.
const FEW_TARGETS: usize = 4096;
/// Blocks for each multiprocessor: those of groups go on with other targets, those of lanes take them from a queue.
const BLOCKS_PER_MULTIPROCESSOR: usize = 16;
/// Bytes of the two counters.
const COUNTERS: usize = 256;

/// The first starts that lanes try by themselves, of a batch of `targets` targets.
fn starts_of_lanes(targets: usize) -> u32 {
    match targets {
        0..50_000 => 1,
        50_000..500_000 => 2,
        _ => 4,
    }
}

/// The code of a choice: `Select` of the kernels.
pub(super) fn select_code(select: Select) -> u32 {
    match select {
        Select::First => 0,
        Select::Nearest => 1,
    }
}

impl<R: Real + Primitive> Solver<'_, R> {
    fn new(solver: &kinematics::Solver<R>) -> Self {
        let (spec, bounds) = (solver.spec(), solver.bounds());
        let mut limits = [[R::default(); MAX_JOINTS]; 2];
        let (mut turns, mut holds) = (0, 0);
        for (i, bound) in bounds.iter().enumerate() {
            (limits[0][i], limits[1][i]) = (bound.lower, bound.upper);
            turns |= u32::from(bound.turns) << i;
            holds |= u32::from(bound.holds) << i;
        }
        Self {
            chain: Chain::new(solver.model()),
            lower: limits[0],
            upper: limits[1],
            weights: spec.weights.unwrap_or_default(),
            position: spec.position,
            rotation: spec.rotation,
            floor: spec.floor,
            gain: spec.gain,
            max_joint_step: spec.max_joint_step,
            turns,
            holds,
            has_weights: spec.weights.is_some().into(),
            max_iterations: spec.max_iterations,
            select: select_code(spec.select),
            starts: solver.starts() as u32,
            table: DevicePtr::NULL,
        }
    }
}

/// The kernels for a task: by lanes, by groups and along trajectories.
fn kernels_of<R: Primitive>(task: Task, form: Form) -> [Kernel; 3] {
    match task {
        Task::Pose => [
            kernel_for!(R, form, "lanes", "lanes_pose_any"),
            kernel_for!(R, form, "groups", "groups_pose_any"),
            kernel_for!(R, form, "paths", "paths_pose_any"),
        ],
        Task::PositionAxis => [
            kernel!(R, "lanes_axis_any"),
            kernel!(R, "groups_axis_any"),
            kernel!(R, "paths_axis_any"),
        ],
        Task::Position => [
            kernel!(R, "lanes_position_any"),
            kernel!(R, "groups_position_any"),
            kernel!(R, "paths_position_any"),
        ],
    }
}

impl<R: Real + Primitive> GpuSolver<R> {
    /// The chain and the choices of a solver.
    ///
    /// # Errors
    /// No memory; what the driver says.
    pub fn new(solver: &kinematics::Solver<R>, gpu: &Gpu) -> Result<Self, DeviceFault> {
        let budget = Budget::new(None);
        let mut table = DeviceBuf::new(gpu, &budget);
        let starts: &[u8] = bytemuck::cast_slice(solver.start_table());
        table.reserve(starts.len())?;
        // SAFETY: the stream is synchronized before the table can be given up.
        unsafe { table.upload(0, starts) }?;
        gpu.synchronize()?;
        let (task, has_weights) = (solver.spec().task, solver.spec().weights.is_some());
        // The kernels for one number of joints are for whole poses without weights.
        let form = match task {
            Task::Pose if !has_weights => Form::of(solver.model()),
            _ => Form::Any,
        };
        Ok(Self {
            gpu: gpu.clone(),
            solver: Solver::new(solver),
            form,
            task,
            table,
            left: DeviceBuf::new(gpu, &budget),
        })
    }

    /// Enqueues [`solve_batch`](kinematics::Solver::solve_batch) for `targets` `[targets, 7]`.
    ///
    /// # Errors
    /// [`DeviceFault::Slice`] if a slice is not as large as the targets say, not of its type, or on another device; no memory; what
    /// the driver says.
    ///
    /// # Safety
    /// The memory of the slices, and the solver, live until the stream is synchronized; what is written overlaps with nothing.
    pub unsafe fn solve_batch(
        &mut self,
        targets: DeviceSlice<'_>,
        starts: DeviceStarts<'_>,
        answers: &DeviceAnswers<'_>,
    ) -> Result<(), DeviceFault> {
        let count = targets.len() / 7;
        let targets = targets.expect("poses", R::DTYPE, count * 7, &self.gpu)?.pointer();
        let (starts, stride) = self.starts(starts, count)?;
        let answers = self.answers(answers, count)?;
        let n = self.solver.chain.joints();
        for first in (0..count).step_by(MOST_TARGETS) {
            let part = (count - first).min(MOST_TARGETS);
            let starts = self.start_at::<R>(starts, stride, first);
            let targets = targets.offset(first * 7 * size_of::<R>());
            // SAFETY: these targets are part of the batch, which the caller promises for.
            unsafe { self.solve_part(part, targets, (starts, stride), answers.at::<R>(first, n)) }?;
        }
        Ok(())
    }

    /// Enqueues the work on some of the targets.
    ///
    /// # Safety
    /// As [`solve_batch`](Self::solve_batch).
    unsafe fn solve_part(
        &mut self,
        count: usize,
        targets: DevicePtr<'_>,
        (starts, start_stride): (DevicePtr<'_>, u32),
        answers: Answers<'_>,
    ) -> Result<(), DeviceFault> {
        let [lanes, groups, _] = kernels_of::<R>(self.task, self.form);
        let block = self.block();
        let most_blocks = self.gpu.multiprocessors() as usize * BLOCKS_PER_MULTIPROCESSOR;
        let all = self.solver.starts;
        let mut params = InverseParams {
            solver: Solver {
                table: self.table.pointer(),
                ..self.solver
            },
            targets,
            starts,
            answers,
            list: DevicePtr::NULL,
            list_count: DevicePtr::NULL,
            left: DevicePtr::NULL,
            left_count: DevicePtr::NULL,
            least: DevicePtr::NULL,
            next: DevicePtr::NULL,
            targets_count: count as u32,
            start_stride,
            from: 0,
            to: all,
        };
        // Of the nearest answer every start is tried, and so by groups at once.
        let is_nearest = self.solver.select != select_code(Select::First);
        if count > FEW_TARGETS && !is_nearest {
            let errors = COUNTERS + (count * size_of::<u32>()).next_multiple_of(COUNTERS);
            self.left.reserve(errors + count * size_of::<R>())?;
            self.left.clear(0, COUNTERS)?;
            let at = |offset| self.left.pointer().offset(offset);
            params.to = starts_of_lanes(count).min(all);
            (params.left_count, params.next) = (at(0), at(size_of::<u32>()));
            (params.left, params.least) = (at(COUNTERS), at(errors));
            let [blocks, ..] = grid(count, block);
            let blocks = (blocks as usize).min(most_blocks) as u32;
            // SAFETY: the memory of what is left has room for all; the rest is the caller's promise.
            unsafe { self.gpu.launch(lanes, [blocks, 1, 1], block, &params) }?;
            if params.to == all {
                return Ok(());
            }
            (params.list, params.list_count) = (params.left, params.left_count);
            params.from = params.to;
        }
        let [blocks, ..] = grid(count * GROUP as usize, block);
        let blocks = (blocks as usize).min(most_blocks) as u32;
        // SAFETY: as above.
        unsafe { self.gpu.launch(groups, [blocks, 1, 1], block, &params) }
    }

    /// Enqueues [`solve_trajectories`](kinematics::Solver::solve_trajectories) for `targets` `[trajectories, length, 7]`. `branches` is
    /// int64 `[trajectories, length]`.
    ///
    /// # Errors
    /// As [`solve_batch`](Self::solve_batch).
    ///
    /// # Panics
    /// If `length` is 0.
    ///
    /// # Safety
    /// As [`solve_batch`](Self::solve_batch).
    pub unsafe fn solve_trajectories(
        &self,
        targets: DeviceSlice<'_>,
        length: usize,
        starts: DeviceStarts<'_>,
        answers: &DeviceAnswers<'_>,
        branches: DeviceSlice<'_>,
    ) -> Result<(), DeviceFault> {
        assert!(length > 0, "trajectories without targets");
        let trajectories = targets.len() / (7 * length);
        let count = trajectories * length;
        let targets = targets.expect("poses", R::DTYPE, count * 7, &self.gpu)?.pointer();
        let (starts, start_stride) = self.starts(starts, trajectories)?;
        let answers = self.answers(answers, count)?;
        let branches = branches.expect("branches", Dtype::Int64, count, &self.gpu)?.pointer();
        let [.., paths] = kernels_of::<R>(self.task, self.form);
        let (block, n) = (self.block(), self.solver.chain.joints());
        for first in (0..trajectories).step_by(MOST_TARGETS) {
            let part = (trajectories - first).min(MOST_TARGETS);
            let params = PathParams {
                solver: Solver {
                    table: self.table.pointer(),
                    ..self.solver
                },
                targets: targets.offset(first * length * 7 * size_of::<R>()),
                starts: self.start_at::<R>(starts, start_stride, first),
                answers: answers.at::<R>(first * length, n),
                branches: branches.offset(first * length * size_of::<i64>()),
                length: length as u64,
                trajectories: part as u32,
                start_stride,
            };
            // SAFETY: the slices were checked; the rest is the caller's promise.
            unsafe {
                self.gpu
                    .launch(paths, grid(part * GROUP as usize, block), block, &params)
            }?;
        }
        Ok(())
    }

    fn block(&self) -> u32 {
        match self.form {
            Form::Any => INVERSE_ANY_BLOCK,
            Form::Six | Form::Seven => INVERSE_BLOCK,
        }
    }

    /// The address of the first starts, and the numbers from one to the next.
    fn starts<'a>(&self, starts: DeviceStarts<'a>, count: usize) -> Result<(DevicePtr<'a>, u32), DeviceFault> {
        let n = self.solver.chain.joints();
        let (slice, len, stride) = match starts {
            DeviceStarts::Middle => return Ok((DevicePtr::NULL, 0)),
            DeviceStarts::One(slice) => (slice, n, 0),
            DeviceStarts::Each(slice) => (slice, count * n, n as u32),
        };
        Ok((slice.expect("starts", R::DTYPE, len, &self.gpu)?.pointer(), stride))
    }

    /// The first start of a target.
    fn start_at<'a, T>(&self, starts: DevicePtr<'a>, stride: u32, target: usize) -> DevicePtr<'a> {
        starts.offset(target * stride as usize * size_of::<T>())
    }

    fn answers<'a>(&self, answers: &DeviceAnswers<'a>, count: usize) -> Result<Answers<'a>, DeviceFault> {
        let n = self.solver.chain.joints();
        let expect = |name, slice: DeviceSlice<'a>, dtype, len| -> Result<DevicePtr<'a>, DeviceFault> {
            Ok(slice.expect(name, dtype, len, &self.gpu)?.pointer())
        };
        Ok(Answers {
            joints: expect("joints", answers.joints, R::DTYPE, count * n)?,
            position_error: expect("position_error", answers.position_error_m, R::DTYPE, count)?,
            rotation_error: expect("rotation_error", answers.rotation_error_rad, R::DTYPE, count)?,
            valid: expect("valid", answers.valid, Dtype::UInt8, count)?,
            start: expect("seed", answers.seed, Dtype::Int64, count)?,
            iterations: expect("iterations", answers.iterations, Dtype::Int64, count)?,
        })
    }
}

impl Answers<'_> {
    /// The answers from a target on, of `n` joints in the type.
    fn at<R>(self, target: usize, n: usize) -> Self {
        let (number, count) = (target * size_of::<R>(), target * size_of::<i64>());
        Self {
            joints: self.joints.offset(n * number),
            position_error: self.position_error.offset(number),
            rotation_error: self.rotation_error.offset(number),
            valid: self.valid.offset(target),
            start: self.start.offset(count),
            iterations: self.iterations.offset(count),
        }
    }
}
