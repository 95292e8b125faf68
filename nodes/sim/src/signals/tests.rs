//! Tests of the signals: their values at known times, their period, and the bounds of their derivatives.

use super::*;

/// Multiple of the cycle near the simulation's default start, ns since 1970.
const MINUTE: i64 = 28_333_333 * CYCLE_NS;

/// Returns 20000 instants, ns, over some cycles; their step shares no factor with any period.
fn instants() -> impl Iterator<Item = i64> {
    (0..20_000).map(|i| MINUTE + i * 7_919_317)
}

#[test]
fn at_the_full_minute_the_values_are_those_of_the_tables() {
    // sin is 0, 1, 0, -1 at 0, 1/4, 1/2, 3/4 turns
    let joints = joint_positions(MINUTE);
    let want = [0.0, -0.8 + 0.3, 0.08, -2.3, 0.5, 1.6 - 0.4, 0.0];
    assert_eq!(joints, want.map(|v: f64| v as f32));
    let want = [1.0, -2.0 + 2.0, -15.0 + 0.8, 0.02, 0.1, -0.1];
    assert_eq!(wrench(MINUTE), want.map(|v: f64| v as f32));
    // 3 s later: a quarter turn of the 12 s sine, whole turns of the 3 s one
    assert_eq!(joint_positions(MINUTE + 3 * S)[0], 0.6);
    assert_eq!(joint_positions(MINUTE + 3 * S)[6], (PI / 2.0) as f32);

    let mut features = [0.0; CAMERA_DIM];
    camera_features(MINUTE, &mut features);
    assert_eq!(
        [features[0], features[32], features[64], features[96]],
        [0.0, 0.7, 0.0, -0.7]
    );
}

#[test]
fn the_tool_has_turned_half_way_after_ten_seconds() {
    // pitch: 0.5 sin(10/6 + 1/4 turns) + 0.05 sin(5 turns), roll: 0.2 + 0.3 sin(2.5 turns) + 0.05 sin(6 2/3 + 1/4)
    let pitch = 0.5 * (TAU * (10.0 / 6.0 + 0.25)).sin();
    let roll = 0.2 + 0.05 * (TAU * (10.0 / 1.5 + 0.25)).sin();
    let (sp, cp) = (pitch / 2.0).sin_cos();
    let (sr, cr) = (roll / 2.0).sin_cos();
    // the yaw quaternion is k: k * (j sp + cp) * (i sr + cr)
    let mut want = [-cr * sp, sr * cp, cr * cp, sr * sp];
    if want[3] < 0.0 {
        want = want.map(|v| -v);
    }
    for (got, want) in tool_quaternion(MINUTE + 10 * S).into_iter().zip(want) {
        assert!((f64::from(got) - want).abs() < 1e-7, "{got} {want}");
    }
}

#[test]
fn everything_repeats_each_minute() {
    for t in instants().step_by(97) {
        assert_eq!(proprio(t), proprio(t + CYCLE_NS));
        assert_eq!(wrench(t), wrench(t - CYCLE_NS));
        let (mut a, mut b) = ([0.0; CAMERA_DIM], [0.0; CAMERA_DIM]);
        camera_features(t, &mut a);
        camera_features(t + CYCLE_NS, &mut b);
        assert_eq!(a, b);
    }
}

#[test]
fn quaternions_are_unit_with_w_not_negative() {
    for t in instants() {
        let q = tool_quaternion(t).map(f64::from);
        let norm = q.iter().map(|v| v * v).sum::<f64>().sqrt();
        assert!((norm - 1.0).abs() < 1e-7, "{norm}");
        assert!(q[3] >= 0.0);
    }
}

#[test]
fn the_last_joint_wraps_inside_its_interval() {
    let half_turn = MINUTE + JOINT_7_PERIOD_NS / 2;
    let [before, at, after] = [-1, 0, 1].map(|dt| joint_positions(half_turn + dt)[6]);
    assert!(before > PI_DOWN - 1e-6 && at == PI_DOWN && after < 1e-6 - PI_DOWN);
    assert!(instants().all(|t| f64::from(joint_positions(t)[6]).abs() <= PI));
}

#[test]
fn the_grasp_is_a_timeline() {
    let at = |ms: i64| gripper_and_flags(MINUTE + ms * MS);
    assert_eq!(at(0), [0.08, 0.0, 0.0, 0.0]);
    assert_eq!(at(4_000), [0.08, 1.0, 0.0, 0.0]);
    assert_eq!(at(4_500), [0.05, 1.0, 0.0, 0.0]);
    assert_eq!(at(5_000), [0.02, 0.0, 1.0, 0.0]);
    assert_eq!(at(8_999), [0.02, 0.0, 1.0, 0.0]);
    assert_eq!(at(9_500), [0.05, 1.0, 0.0, 0.0]);
    assert_eq!(at(10_000), [0.08, 0.0, 0.0, 0.0]);
    assert_eq!(at(54_999)[3], 0.0);
    assert_eq!(at(55_000)[3], 1.0);
    assert_eq!(at(55_999)[3], 1.0);
    assert_eq!(at(56_000)[3], 0.0);
}

/// First and second differences of the signals stay within the bounds of the derivatives, and come near them. A bound that is far
/// too wide would hide an interpolation that is wrong.
#[test]
fn derivative_bounds_hold_and_are_close() {
    fn check<const N: usize>(f: impl Fn(i64) -> [f64; N], first: f64, second: f64, h_ns: i64) {
        let h = h_ns as f64 * 1e-9;
        let (mut max_1, mut max_2) = (0.0_f64, 0.0_f64);
        for t in instants() {
            let [a, b, c] = [f(t - h_ns), f(t), f(t + h_ns)];
            for i in 0..N {
                max_1 = max_1.max(((c[i] - a[i]) / (2.0 * h)).abs());
                max_2 = max_2.max(((c[i] - 2.0 * b[i] + a[i]) / (h * h)).abs());
            }
        }
        assert!(max_1 <= first && max_1 > 0.8 * first, "{max_1} of {first}");
        assert!(max_2 <= second && max_2 > 0.8 * second, "{max_2} of {second}");
    }
    check(
        |t| JOINTS.each_ref().map(|j| j.at(t)),
        JOINT_SPEED_MAX,
        JOINT_ACCEL_MAX,
        MS,
    );
    check(
        |t| WRENCH.each_ref().map(|w| w.at(t)),
        WRENCH_RATE_MAX,
        WRENCH_ACCEL_MAX,
        MS / 10,
    );
    check(
        |t| std::array::from_fn::<_, CAMERA_DIM, _>(|i| camera_wave(i).at(t)),
        CAMERA_RATE_MAX,
        CAMERA_ACCEL_MAX,
        MS,
    );
    let opening = |t| f64::from(gripper_and_flags(t)[0]);
    for t in instants() {
        assert!((opening(t + MS) - opening(t)).abs() <= GRIPPER_SPEED_MAX * 1e-3 + 1e-8);
    }
    let joint_7 = TAU / (JOINT_7_PERIOD_NS as f64 * 1e-9);
    assert!(joint_7 <= JOINT_SPEED_MAX);
}

/// `2 acos |<q(t), q(t + h)>|` is the angle by which the tool turns from t to t + h. The true orientation at t + h / 2 and the
/// middle of the geodesic between both ends are at most `h^2 / 8` times the acceleration apart.
#[test]
fn tool_speed_and_acceleration_bounds_hold() {
    let h_ns = 20 * MS;
    let h = h_ns as f64 * 1e-9;
    let angle = |a: [f64; 4], b: [f64; 4]| {
        let chord = |s: f64| (0..4).map(|i| (a[i] - s * b[i]).powi(2)).sum::<f64>().sqrt();
        4.0 * (chord(1.0).min(chord(-1.0)) / 2.0).asin()
    };
    for t in instants().step_by(11) {
        let [a, m, b] = [t, t + h_ns / 2, t + h_ns].map(|t| tool_quaternion(t).map(f64::from));
        assert!(angle(a, b) <= TOOL_SPEED_MAX * h + 1e-6);
        let sign = if (0..4).map(|i| a[i] * b[i]).sum::<f64>() < 0.0 {
            -1.0
        } else {
            1.0
        };
        let sum: [f64; 4] = std::array::from_fn(|i| a[i] + sign * b[i]);
        let norm = sum.iter().map(|v| v * v).sum::<f64>().sqrt();
        let off = angle(sum.map(|v| v / norm), m);
        assert!(off <= TOOL_ACCEL_MAX * h * h / 8.0 + 1e-6, "{off}");
    }
}
