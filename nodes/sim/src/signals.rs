//! Measurements of the arm, the wrist sensor and the camera: closed forms of true time, int64 ns.
//!
//! Every signal is a constant plus sinusoids whose periods divide [`CYCLE_NS`], so everything repeats each
//! minute, exactly. The derivative bounds beside each function say how far an interpolation may be from the
//! truth: linear between samples h apart is off by at most `h^2 / 8 * max |d2/dt2|`, plus f32 rounding.

use crate::turns::phase;
use robocache::geometry::angle::sin_cos_of_turns;
use std::f64::consts::{PI, TAU};

/// Period of all signals (and of the [`crate::scene`]), ns.
pub const CYCLE_NS: i64 = 60_000_000_000;
/// Number of values in a camera sample.
pub const CAMERA_DIM: usize = 128;
/// Number of values in a wrench sample: force, then torque.
pub const WRENCH_DIM: usize = 6;
/// Number of values in a proprioception sample: joints, quaternion, gripper, flags.
pub const PROPRIO_DIM: usize = 15;

const MS: i64 = 1_000_000;
const S: i64 = 1_000 * MS;

/// A sinusoid of the time t: `amplitude * sin(2 pi (t / period + turns))`.
#[derive(Clone, Copy)]
struct Sine {
    amplitude: f64,
    period_ns: i64,
    turns: f64,
}

const fn sine(amplitude: f64, period_ms: i64, turns: f64) -> Sine {
    Sine {
        amplitude,
        period_ns: period_ms * MS,
        turns,
    }
}

impl Sine {
    fn at(&self, t_ns: i64) -> f64 {
        self.amplitude * sin_cos_of_turns(phase(t_ns, self.period_ns) + self.turns).0
    }
}

/// A signal: the sum of a constant and two sinusoids.
struct Wave {
    mean: f64,
    sines: [Sine; 2],
}

impl Wave {
    fn at(&self, t_ns: i64) -> f64 {
        self.mean + self.sines[0].at(t_ns) + self.sines[1].at(t_ns)
    }

    /// Bound of the `order`-th derivative, units per s^order: the sum of `amplitude * (2 pi / period)^order`.
    const fn bound(&self, order: u32) -> f64 {
        let mut sum = 0.0;
        let mut i = 0;
        while i < self.sines.len() {
            let omega = TAU / (self.sines[i].period_ns as f64 * 1e-9);
            let mut term = self.sines[i].amplitude;
            let mut k = 0;
            while k < order {
                term *= omega;
                k += 1;
            }
            sum += term;
            i += 1;
        }
        sum
    }
}

/// Largest bound of the `order`-th derivative of any of `waves`.
const fn max_bound(waves: &[Wave], order: u32) -> f64 {
    let mut max = 0.0;
    let mut i = 0;
    while i < waves.len() {
        let bound = waves[i].bound(order);
        if bound > max {
            max = bound;
        }
        i += 1;
    }
    max
}

const fn wave(mean: f64, slow: Sine, fast: Sine) -> Wave {
    Wave {
        mean,
        sines: [slow, fast],
    }
}

const JOINTS: [Wave; 6] = [
    wave(0.0, sine(0.6, 12_000, 0.0), sine(0.10, 3_000, 0.0)),
    wave(-0.8, sine(0.3, 10_000, 0.25), sine(0.05, 2_500, 0.0)),
    wave(0.0, sine(0.4, 15_000, 0.5), sine(0.08, 4_000, 0.25)),
    wave(-2.3, sine(0.3, 6_000, 0.0), sine(0.05, 2_000, 0.5)),
    wave(0.0, sine(0.5, 20_000, 0.25), sine(0.10, 5_000, 0.0)),
    wave(1.6, sine(0.4, 5_000, 0.75), sine(0.04, 1_500, 0.0)),
];

/// Duration of one turn of the last joint, ns. The joint has no end stop.
const JOINT_7_PERIOD_NS: i64 = 12 * S;

const ROLL: Wave = wave(0.2, sine(0.3, 4_000, 0.0), sine(0.05, 1_500, 0.25));
const PITCH: Wave = wave(0.0, sine(0.5, 6_000, 0.25), sine(0.05, 2_000, 0.0));
/// Duration of one turn of the tool about the vertical, ns.
const YAW_PERIOD_NS: i64 = 20 * S;
const YAW_RATE: f64 = TAU / (YAW_PERIOD_NS as f64 * 1e-9);

const WRENCH: [Wave; WRENCH_DIM] = [
    wave(1.0, sine(3.0, 2_000, 0.0), sine(0.50, 60, 0.0)),
    wave(-2.0, sine(2.0, 3_000, 0.25), sine(0.50, 75, 0.0)),
    wave(-15.0, sine(5.0, 2_500, 0.0), sine(0.80, 50, 0.25)),
    wave(0.0, sine(0.3, 1_500, 0.5), sine(0.02, 60, 0.25)),
    wave(0.1, sine(0.4, 1_000, 0.0), sine(0.02, 75, 0.5)),
    wave(0.0, sine(0.1, 1_200, 0.75), sine(0.01, 50, 0.0)),
];

const CAMERA_SLOW_MS: [i64; 10] = [
    2_000, 3_000, 4_000, 5_000, 6_000, 10_000, 12_000, 15_000, 20_000, 30_000,
];
const CAMERA_FAST_MS: [i64; 6] = [500, 600, 750, 1_000, 1_200, 1_500];

const fn camera_wave(i: usize) -> Wave {
    let turns = i as f64 / CAMERA_DIM as f64;
    wave(
        0.0,
        sine(0.7, CAMERA_SLOW_MS[i % CAMERA_SLOW_MS.len()], turns),
        sine(0.3, CAMERA_FAST_MS[i % CAMERA_FAST_MS.len()], 0.0),
    )
}

/// Bound of |d/dt| of every joint, rad/s (of the last joint: along its circle).
pub const JOINT_SPEED_MAX: f64 = max_bound(&JOINTS, 1);
/// Bound of |d2/dt2| of every joint, rad/s^2 (0 for the last joint).
pub const JOINT_ACCEL_MAX: f64 = max_bound(&JOINTS, 2);
/// Bound of the tool's angular speed, rad/s.
pub const TOOL_SPEED_MAX: f64 = YAW_RATE + PITCH.bound(1) + ROLL.bound(1);
/// Bound of the tool's angular acceleration, rad/s^2.
///
/// The bound follows from `omega = yaw' e_z + pitch' e_2 + roll' e_3`, where `e_2` turns with the yaw and `e_3` with yaw and
/// pitch.
pub const TOOL_ACCEL_MAX: f64 =
    PITCH.bound(2) + ROLL.bound(2) + PITCH.bound(1) * YAW_RATE + ROLL.bound(1) * (YAW_RATE + PITCH.bound(1));
/// Bound of |d/dt| of every wrench component, N/s or Nm/s.
pub const WRENCH_RATE_MAX: f64 = max_bound(&WRENCH, 1);
/// Bound of |d2/dt2| of every wrench component, N/s^2 or Nm/s^2.
pub const WRENCH_ACCEL_MAX: f64 = max_bound(&WRENCH, 2);
/// Bound of |d/dt| of every camera feature, 1/s. A feature that has both the shortest slow and the shortest fast period reaches it.
pub const CAMERA_RATE_MAX: f64 = wave(
    0.0,
    sine(0.7, CAMERA_SLOW_MS[0], 0.0),
    sine(0.3, CAMERA_FAST_MS[0], 0.0),
)
.bound(1);
/// Bound of |d2/dt2| of every camera feature, 1/s^2.
pub const CAMERA_ACCEL_MAX: f64 = wave(
    0.0,
    sine(0.7, CAMERA_SLOW_MS[0], 0.0),
    sine(0.3, CAMERA_FAST_MS[0], 0.0),
)
.bound(2);
/// Bound of |d/dt| of the gripper opening, m/s; its second derivative has jumps.
pub const GRIPPER_SPEED_MAX: f64 = (GRIPPER_OPEN_M - GRIPPER_CLOSED_M) / (GRIPPER_RAMP_NS as f64 * 1e-9);

/// The seven joint angles, rad.
///
/// The first six swing. The last turns without end, once in 12 s, and is reported in `(-pi, pi]`. So its value jumps by a turn
/// at each half turn: interpolate it as an angle. At a multiple of [`CYCLE_NS`] it is 0.
pub fn joint_positions(t_ns: i64) -> [f32; 7] {
    let turn = phase(t_ns, JOINT_7_PERIOD_NS);
    let last = if turn > 0.5 { turn - 1.0 } else { turn } * TAU;
    std::array::from_fn(|i| match JOINTS.get(i) {
        Some(joint) => joint.at(t_ns) as f32,
        // pi rounded to f32 is past pi: the half turn stays inside the interval
        None => (last as f32).clamp(-PI_DOWN, PI_DOWN),
    })
}

/// The largest f32 that does not exceed pi.
const PI_DOWN: f32 = std::f32::consts::PI.next_down();
const _: () = assert!((PI_DOWN as f64) < PI);

/// The tool's orientation as a unit quaternion `x y z w`.
///
/// `Rz(yaw) Ry(pitch) Rx(roll)`; the yaw turns without end, once in 20 s. As in the data of a robot's driver, w is never
/// negative, so the sign flips where w passes 0, twice in 40 s: interpolate along the shorter arc.
pub fn tool_quaternion(t_ns: i64) -> [f32; 4] {
    let half = |radians: f64| sin_cos_of_turns(radians / 2.0 / TAU);
    let (sr, cr) = half(ROLL.at(t_ns));
    let (sp, cp) = half(PITCH.at(t_ns));
    let (sy, cy) = sin_cos_of_turns(phase(t_ns, YAW_PERIOD_NS) / 2.0);
    let q = [
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    ];
    let sign = if q[3] < 0.0 { -1.0 } else { 1.0 };
    q.map(|v| (v * sign) as f32)
}

/// Width of the gripper's opening when it is open, m.
pub const GRIPPER_OPEN_M: f64 = 0.08;
/// Width of the gripper's opening while it holds the grasped thing, m.
pub const GRIPPER_CLOSED_M: f64 = 0.02;
/// Period of the gripper's motion, ns: open 4 s, closing 1 s, holding 4 s, opening 1 s, open 2 s.
pub const GRASP_NS: i64 = 12 * S;
const GRIPPER_RAMP_NS: i64 = S;

/// Gripper opening in m, then three flags, 0 or 1: gripper moving, contact, emergency stop.
///
/// Each grasp of [`GRASP_NS`] closes over 4 s..5 s, holds (contact) over 5 s..9 s and opens over 9 s..10 s. The
/// emergency stop is pressed over 55 s..56 s of each [`CYCLE_NS`]; it is a flag only, the motion goes on. A
/// flag holds from the start of its interval up to, not including, its end.
pub fn gripper_and_flags(t_ns: i64) -> [f32; 4] {
    let t = t_ns.rem_euclid(GRASP_NS);
    let ramp = |from_ns: i64| (t - from_ns) as f64 / GRIPPER_RAMP_NS as f64;
    let (open, moving, contact) = match t {
        t if t < 4 * S => (1.0, 0.0, 0.0),
        t if t < 5 * S => (1.0 - ramp(4 * S), 1.0, 0.0),
        t if t < 9 * S => (0.0, 0.0, 1.0),
        t if t < 10 * S => (ramp(9 * S), 1.0, 0.0),
        _ => (1.0, 0.0, 0.0),
    };
    let stopped = (55 * S..56 * S).contains(&t_ns.rem_euclid(CYCLE_NS));
    let opening = GRIPPER_CLOSED_M + open * (GRIPPER_OPEN_M - GRIPPER_CLOSED_M);
    [opening as f32, moving, contact, f32::from(u8::from(stopped))]
}

/// One proprioception sample: joints (0..7), tool quaternion (7..11), gripper and flags (11..15).
pub fn proprio(t_ns: i64) -> [f32; PROPRIO_DIM] {
    let mut sample = [0.0; PROPRIO_DIM];
    sample[..7].copy_from_slice(&joint_positions(t_ns));
    sample[7..11].copy_from_slice(&tool_quaternion(t_ns));
    sample[11..].copy_from_slice(&gripper_and_flags(t_ns));
    sample
}

/// Force in N (x y z), then torque in Nm (x y z), at the wrist.
pub fn wrench(t_ns: i64) -> [f32; WRENCH_DIM] {
    WRENCH.each_ref().map(|component| component.at(t_ns) as f32)
}

/// A camera's feature vector, each value in `[-1, 1]`.
///
/// Feature i is `0.7 sin(2 pi (t / slow + i / 128)) + 0.3 sin(2 pi t / fast)`, its periods taken in turn from
/// ten slow ones (2 s to 30 s) and six fast ones (0.5 s to 1.5 s).
pub fn camera_features(t_ns: i64, features: &mut [f32; CAMERA_DIM]) {
    for (i, feature) in features.iter_mut().enumerate() {
        *feature = camera_wave(i).at(t_ns) as f32;
    }
}

#[cfg(test)]
mod tests;
