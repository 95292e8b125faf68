//! Finds joints on the CPU for rows of poses, in one float type. The search starts at the last valid answer. If a row has no
//! answer, its joints are NaN.

use super::key;
use super::rows::{Reason, RowState};
use robocache_device::Primitive;
use robocache_geometry::Real;
use robocache_kinematics::{Answer, Chain, InverseConfig, InverseError, MAX_DISTANCE, Pose, Solver, Track};
use robocache_stream::{Header, Payload, SampleRows};

/// Inverse kinematics of one chain on the CPU, with the poses of the last message and the last valid answer, from which the
/// next search starts.
#[derive(Debug)]
pub(super) struct Inverse<R> {
    solver: Solver<R>,
    track: Track<R>,
    targets: Vec<Pose<R>>,
    answers: Vec<Answer<R>>,
    /// Number of rows of the last message whose joints jumped, and the index of the first such row. A jump is a step above
    /// `max_joint_step` from the previous answer. `None` without a jump.
    changes: Option<(u64, usize)>,
}

impl<R: Real + Primitive> Inverse<R> {
    pub(super) fn new(chain: &Chain, config: &InverseConfig) -> Result<Self, InverseError> {
        Ok(Self {
            solver: Solver::new(chain, config)?,
            track: Track::default(),
            targets: Vec::new(),
            answers: Vec::new(),
            changes: None,
        })
    }

    /// Continues the trajectory of `other`, the solver in the other float type: copies its last answer and its number of jumps.
    pub(super) fn follow<S: Real>(&mut self, other: &Inverse<S>) {
        self.track = other.track.cast();
    }

    /// Reads the poses of a message's samples, each from value `first` on, and sets the state of their rows. If `is_new`, the
    /// rows start a new trajectory. `states` has one entry for each row of the message.
    pub(super) fn read(&mut self, samples: SampleRows<'_>, first: usize, is_new: bool, states: &mut [RowState]) {
        if is_new {
            self.track.restart();
        }
        let nan = R::from_f64(f64::NAN);
        self.targets.clear();
        self.targets.resize(states.len(), [nan; 7]);
        let unknown = Answer {
            position_error_m: nan,
            rotation_error_rad: nan,
            ..Answer::default()
        };
        self.answers.clear();
        self.answers.resize(states.len(), unknown);
        for sample in samples {
            let target = &mut self.targets[sample.row];
            target.copy_from_slice(&sample.values.as_slice::<R>()[first..][..7]);
            states[sample.row] = judge_target(target);
        }
    }

    /// Finds the joints of each row in order, and writes them to the payload; NaN if none were found.
    pub(super) fn write(&mut self, states: &mut [RowState], payload: &mut Payload<'_>) {
        let n = self.solver.model().joints();
        let nan = R::from_f64(f64::NAN);
        self.changes = None;
        let rows = payload.column::<R>(0).chunks_exact_mut(n).zip(&self.targets);
        for (row, ((joints, target), (state, answer))) in rows.zip(states.iter_mut().zip(&mut self.answers)).enumerate()
        {
            if *state == RowState::Good {
                let branch = self.track.branch();
                *answer = self.solver.solve_next(target, &mut self.track, joints);
                if self.track.branch() != branch {
                    let (changes, first) = self.changes.unwrap_or((0, row));
                    self.changes = Some((changes + 1, first));
                }
                *state = judge(answer);
            }
            if *state != RowState::Good {
                joints.fill(nan);
            }
        }
    }

    /// Returns the number of written rows whose joints jumped, and the index of the first such row. A jump is a step above
    /// `max_joint_step` from the previous answer. `None` without a jump.
    pub(super) fn changes(&self) -> Option<(u64, usize)> {
        self.changes
    }

    /// Writes the metadata of the joints: the number of jumps so far (`branch`), and the position and rotation errors of
    /// each row.
    pub(super) fn describe(&self, header: &mut Header) {
        let answers = || self.answers.iter();
        key::branch.set(header, i64::from(self.track.branch()));
        key::position_error_m.set(header, answers().map(|answer| answer.position_error_m.to_f64()));
        key::rotation_error_rad.set(header, answers().map(|answer| answer.rotation_error_rad.to_f64()));
    }
}

fn judge_target<R: Real>(target: &Pose<R>) -> RowState {
    let value = |index: usize| target[index].to_f64();
    if let Some(index) = target.iter().position(|value| !value.is_finite()) {
        let value = value(index);
        return RowState::Refused(Reason::NonFinite { index, value });
    }
    match (0..3).find(|&index| value(index).abs() > MAX_DISTANCE) {
        None => RowState::Good,
        Some(index) => RowState::Refused(Reason::Far {
            index,
            value: value(index),
        }),
    }
}

fn judge<R: Real>(answer: &Answer<R>) -> RowState {
    let position_error_m = answer.position_error_m.to_f64();
    match answer.valid {
        true => RowState::Good,
        false if position_error_m.is_nan() => RowState::Refused(Reason::NotUnitQuaternion),
        false => RowState::Refused(Reason::Unreachable {
            position_error_m,
            rotation_error_rad: answer.rotation_error_rad.to_f64(),
        }),
    }
}
