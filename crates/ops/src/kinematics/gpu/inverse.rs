//! Inverse kinematics of many poses in device memory. The joints are the same as on the CPU, however the work is
//! divided.

use super::forward::grid;
use super::params::{Chain, Form, kernel, kernel_for};
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, DeviceSlice, Gpu, Kernel, Params};
use robocache_device::{Dtype, Primitive};
use robocache_geometry::Real;
use robocache_kinematics::{self as kinematics, MAX_JOINTS, Select, Task};

/// Finds joints for poses in the memory of a device.
///
/// A start is an initial guess of the joints. In a small batch, a group of lanes solves each target, and each lane
/// tries one start. In a large batch, one or a few lanes try the first starts, which suffice for most targets. More
/// lanes try the other starts for the targets without an answer. The answers are the same.
pub struct GpuSolver<R> {
    gpu: Gpu,
    solver: Solver<'static, R>,
    form: Form,
    kernels: Kernels,
    has_posture: bool,
    stage_limits: [usize; 3],
    /// Table of the solver's starts: a row of joints for each start.
    table: DeviceBuf,
    /// Counters, two lists of the targets without an answer so far, and the least error of each target.
    left: DeviceBuf,
}

/// The start (initial guess of the joints) that is tried first for each target of a batch, in the memory of a device.
#[derive(Clone, Copy, Debug)]
pub enum DeviceStarts<'a> {
    /// The middle of each joint's limits, for all targets.
    Middle,
    /// One start for all targets, `[n]`.
    One(DeviceSlice<'a>),
    /// A start for each target, `[targets, n]`, or for each trajectory, `[trajectories, n]`.
    Each(DeviceSlice<'a>),
}

/// The answers to targets, in the memory of a device: the joints, and the values of [`kinematics::Answer`].
#[derive(Clone, Copy, Debug)]
pub struct DeviceAnswers<'a> {
    /// Joints of each target, `[targets, n]`, radians or metres.
    pub joints: DeviceSlice<'a>,
    /// Validity, uint8 `[targets]`: 1 if both errors of the joints are within the tolerances, else 0.
    pub valid: DeviceSlice<'a>,
    /// Distance of the joints' pose from each target, `[targets]`, metres.
    pub position_error_m: DeviceSlice<'a>,
    /// Rotation of the joints' pose from each target as a chord, `[targets]`, radians.
    pub rotation_error_rad: DeviceSlice<'a>,
    /// Index of the start that led to the joints of each target, int64 `[targets]`.
    pub seed: DeviceSlice<'a>,
    /// Number of iterations from the start to the joints of each target, int64 `[targets]`.
    pub iterations: DeviceSlice<'a>,
}

/// Settings of a solver, laid out as the kernels' `Solver`.
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
    pub posture: R,
    pub most_pull: R,
    pub rest: [R; MAX_JOINTS],
    pub turns: u32,
    pub holds: u32,
    pub has_weights: u32,
    pub max_iterations: u32,
    pub select: u32,
    pub starts: u32,
    pub table: DevicePtr<'a>,
}

/// Addresses of the answers, laid out as the kernels' `Answers`.
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

/// Parameters of the kernels that solve batches, laid out as the kernels' `InverseParams`.
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
    pub width: u32,
    pub unused: u32,
}

// SAFETY: it has the fields of the kernels' struct of that name.
unsafe impl<R: Copy> Params for InverseParams<'_, R> {}

/// Parameters of the kernels that solve trajectories, laid out as the kernels' `PathParams`.
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

/// Threads of a block of the kernels for whole poses of six or seven joints that turn.
pub(super) const INVERSE_BLOCK: u32 = 64;
/// Threads of a block of the kernels for any other chain or task.
pub(super) const INVERSE_ANY_BLOCK: u32 = 32;
/// Number of lanes that work on one target in the last stage.
pub(super) const GROUP: u32 = 16;

/// Greatest number of targets, or trajectories, of a launch. It bounds the solver's memory for lists of targets.
const MOST_TARGETS: usize = 1 << 22;
/// Greatest number of blocks for each multiprocessor. Blocks that solve with groups of lanes loop over further targets.
/// Blocks that solve with single lanes take targets from a queue.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 16;
/// Bytes of the counters: of the targets that lanes have taken, and of the targets that each stage left without an
/// answer.
const COUNTERS: usize = 256;

/// Stage of solving a batch: a range of starts, tried for all targets that earlier stages left without an answer.
struct Stage {
    /// End of the range of starts, exclusive; [`ALL`] for all remaining starts.
    to: u32,
    /// Number of lanes of a group, each of which tries a start. `None`: each lane tries the first start of one target
    /// after the other.
    width: Option<u32>,
}

/// The stages of a small batch: all starts in one stage.
const ONE: &[Stage] = &[groups(GROUP, ALL)];
const ALL: u32 = u32::MAX;

const fn groups(width: u32, to: u32) -> Stage {
    let width = Some(width);
    Stage { to, width }
}

/// Greatest numbers of targets of the batches that take one, two and three stages. Larger batches take six.
const SIZES: [usize; 3] = [4096, 20_000, 200_000];

/// The stages for a batch of `targets` targets. Later stages have fewer targets, and more lanes for each target.
fn stages_of(targets: usize, [one, two, three]: [usize; 3]) -> &'static [Stage] {
    const LANES: Stage = Stage { to: 1, width: None };
    const TWO: &[Stage] = &[groups(2, 2), groups(GROUP, ALL)];
    const THREE: &[Stage] = &[groups(1, 1), groups(4, 5), groups(GROUP, ALL)];
    const SIX: &[Stage] = &[
        LANES,
        groups(1, 2),
        groups(1, 3),
        groups(2, 5),
        groups(4, 9),
        groups(GROUP, ALL),
    ];
    match targets {
        _ if targets <= one => ONE,
        _ if targets <= two => TWO,
        _ if targets <= three => THREE,
        _ => SIX,
    }
}

/// The kernels' code (`Select`) of the choice among a target's answers.
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
        let mut rest = [R::default(); MAX_JOINTS];
        if let Some(posture) = &spec.posture {
            rest[..posture.rest.len()].copy_from_slice(&posture.rest);
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
            posture: spec.posture.as_ref().map_or(R::default(), |posture| posture.gain),
            most_pull: spec.posture.as_ref().map_or(R::default(), |posture| posture.most),
            rest,
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

/// The kernels for a [`Task`] and a form of chain.
#[derive(Clone, Copy)]
struct Kernels {
    /// Kernel in which each lane tries the first start of one target after the other.
    lanes: Kernel,
    /// Kernel in which each lane of a group tries a start.
    groups: Kernel,
    /// Kernel in which a group of lanes solves the targets of a trajectory in order.
    paths: Kernel,
    /// Kernel in which a lane pulls the joints of an answer towards the posture of rest.
    pulls: Kernel,
}

impl Kernels {
    fn of<R: Primitive>(task: Task, form: Form) -> Self {
        match task {
            Task::Pose => Self {
                lanes: kernel_for!(R, form, "lanes", "lanes_pose_any"),
                groups: kernel_for!(R, form, "groups", "groups_pose_any"),
                paths: kernel_for!(R, form, "paths", "paths_pose_any"),
                pulls: kernel!(R, "pulls_pose_any"),
            },
            Task::PositionAxis => Self {
                lanes: kernel!(R, "lanes_axis_any"),
                groups: kernel!(R, "groups_axis_any"),
                paths: kernel!(R, "paths_axis_any"),
                pulls: kernel!(R, "pulls_axis_any"),
            },
            Task::Position => Self {
                lanes: kernel!(R, "lanes_position_any"),
                groups: kernel!(R, "groups_position_any"),
                paths: kernel!(R, "paths_position_any"),
                pulls: kernel!(R, "pulls_position_any"),
            },
        }
    }
}

impl<R: Real + Primitive> GpuSolver<R> {
    /// Copies the chain and the settings of a solver to a device.
    ///
    /// # Errors
    /// The device has too little memory, or the driver fails.
    pub fn new(solver: &kinematics::Solver<R>, gpu: &Gpu) -> Result<Self, DeviceFault> {
        let budget = Budget::new(None);
        let mut table = DeviceBuf::new(gpu, &budget);
        let starts: &[u8] = bytemuck::cast_slice(solver.start_table());
        table.reserve(starts.len())?;
        // SAFETY: the stream is synchronized before the table can be dropped.
        unsafe { table.upload(0, starts) }?;
        gpu.synchronize()?;
        let spec = solver.spec();
        // The kernels for a fixed number of joints are only for whole poses without weights and posture.
        let form = match spec.task {
            Task::Pose if spec.weights.is_none() && spec.posture.is_none() => Form::of(solver.model()),
            _ => Form::Any,
        };
        Ok(Self {
            gpu: gpu.clone(),
            solver: Solver::new(solver),
            form,
            kernels: Kernels::of::<R>(spec.task, form),
            has_posture: spec.posture.is_some(),
            stage_limits: SIZES,
            table,
            left: DeviceBuf::new(gpu, &budget),
        })
    }

    /// Sets the largest batches that take one, two and three stages; the answers are the same. The defaults were chosen on
    /// an H200.
    #[must_use]
    pub fn with_sizes(mut self, stage_limits: [usize; 3]) -> Self {
        self.stage_limits = stage_limits;
        self
    }

    /// Enqueues the search for joints ([`solve_batch`](kinematics::Solver::solve_batch)) of `targets` `[targets, 7]`.
    ///
    /// # Errors
    /// [`DeviceFault::Slice`] if a slice has the wrong size or type, or is on another device; too little device memory;
    /// the driver's error.
    ///
    /// # Safety
    /// The memory of the slices, and the solver, live until the stream is synchronized. The answers overlap with no other
    /// slice.
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
            // SAFETY: these targets are part of the batch, for which the caller promises.
            unsafe { self.solve_part(part, targets, (starts, stride), answers.at::<R>(first, n)) }?;
        }
        Ok(())
    }

    /// Enqueues the search for the joints of `count` targets, which are part of a batch.
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
        let block = self.block();
        let most_blocks = self.gpu.multiprocessors() * BLOCKS_PER_MULTIPROCESSOR;
        let blocks = |lanes: u32| {
            let [blocks, ..] = grid(count * lanes as usize, block);
            [blocks.min(most_blocks), 1, 1]
        };
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
            to: 0,
            width: 0,
            unused: 0,
        };
        let stages = match self.solver.select == select_code(Select::First) {
            true => stages_of(count, self.stage_limits),
            // For the nearest answer every start is tried.
            false => ONE,
        };
        let list = (count * size_of::<u32>()).next_multiple_of(COUNTERS);
        if stages.len() > 1 {
            self.left.reserve(COUNTERS + 2 * list + count * size_of::<R>())?;
            self.left.clear(0, COUNTERS)?;
            params.least = self.left.pointer().offset(COUNTERS + 2 * list);
        }
        let at = |offset| self.left.pointer().offset(offset);
        for (i, stage) in stages.iter().enumerate() {
            // This stage reads the list that the stage before wrote: the two lists are used alternately.
            (params.list, params.list_count) = (params.left, params.left_count);
            (params.from, params.to) = (params.to, stage.to.min(all));
            let is_last = params.to == all;
            (params.left, params.left_count) = match is_last {
                true => (DevicePtr::NULL, DevicePtr::NULL),
                false => (at(COUNTERS + i % 2 * list), at((1 + i) * size_of::<u32>())),
            };
            let kernel = match stage.width {
                None => {
                    params.next = at(0);
                    self.kernels.lanes
                }
                Some(width) => {
                    params.width = width;
                    self.kernels.groups
                }
            };
            let blocks = blocks(stage.width.unwrap_or(1));
            // SAFETY: the lists of the targets that are left have room for all; the rest is the caller's promise.
            unsafe { self.gpu.launch(kernel, blocks, block, &params) }?;
            if is_last {
                break;
            }
        }
        if self.has_posture {
            // SAFETY: as above.
            unsafe { self.gpu.launch(self.kernels.pulls, blocks(1), block, &params) }?;
        }
        Ok(())
    }

    /// Enqueues the search for joints ([`solve_trajectories`](kinematics::Solver::solve_trajectories)) of `targets`
    /// `[trajectories, length, 7]`. `branches` is int64 `[trajectories, length]`: the number of jumps of the joints in
    /// the trajectory up to each target.
    ///
    /// # Errors
    /// The errors of [`solve_batch`](Self::solve_batch).
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
                    .launch(self.kernels.paths, grid(part * GROUP as usize, block), block, &params)
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

    /// The address of the starts that are tried first, and the stride from one start to the next, in values. Null: the
    /// middle of the limits.
    fn starts<'a>(&self, starts: DeviceStarts<'a>, count: usize) -> Result<(DevicePtr<'a>, u32), DeviceFault> {
        let n = self.solver.chain.joints();
        let (slice, len, stride) = match starts {
            DeviceStarts::Middle => return Ok((DevicePtr::NULL, 0)),
            DeviceStarts::One(slice) => (slice, n, 0),
            DeviceStarts::Each(slice) => (slice, count * n, n as u32),
        };
        Ok((slice.expect("starts", R::DTYPE, len, &self.gpu)?.pointer(), stride))
    }

    /// The address of the start that is tried first for a target.
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
    /// The addresses of the answers from index `target` on, with `n` joints of type `R` each.
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
