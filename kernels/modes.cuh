// The modes for angles, rotations and curves, bit for bit as crates/time/src/curve.rs and crates/time/src/rotation.rs. `Real` is
// float, or double for float64 samples. Kernels of the plain modes alone don't need this file.
#pragma once

#include "time.cuh"

constexpr double PI = 3.14159265358979323846;

// Functions of CUDA, by one name for both precisions. The nearest integer of a tie is the even one.
__device__ __forceinline__ float square_root(float value) { return sqrtf(value); }
__device__ __forceinline__ double square_root(double value) { return sqrt(value); }
__device__ __forceinline__ float magnitude(float value) { return fabsf(value); }
__device__ __forceinline__ double magnitude(double value) { return fabs(value); }
__device__ __forceinline__ float nearest_integer(float value) { return rintf(value); }
__device__ __forceinline__ double nearest_integer(double value) { return rint(value); }

// True if a mode takes two samples on each side of a target.
__device__ __forceinline__ constexpr bool is_curve(u32 mode) { return mode == CUBIC || mode == PCHIP; }
// True if the channels of a group of this mode are a rotation, as `Interpolation::is_rotation`.
__device__ __forceinline__ bool is_rotation(u32 mode) { return mode >= SLERP && mode <= ROTVEC; }

// Distances of the samples around a target from the target and from each other, ns.
struct Distances {
    i64 age;   // from the sample before the target to the target
    i64 ahead; // from the target to the sample after it
    i64 gap;   // between the two samples
    bool has_before;
    bool has_after;
};

// Computes the distances of a bracket from `target`, ns; 0 where a sample does not exist.
__device__ __forceinline__ Distances distances(const Bracket& bracket, i64 target) {
    Distances distances{0, 0, 0, bracket.has_before, bracket.has_after};
    if (bracket.has_before) distances.age = distance(bracket.before, target);
    if (bracket.has_after) distances.ahead = distance(target, bracket.after);
    if (bracket.has_before && bracket.has_after) distances.gap = distance(bracket.before, bracket.after);
    return distances;
}

// Returns the weight of the later sample in a value between the two, in 0..1.
__device__ __forceinline__ double later_weight(const Distances& distances) { return (double)distances.age / (double)distances.gap; }

// Picks the samples that give the value of any mode, as `pick` of crates/time/src/pick.rs does.
__device__ __forceinline__ PickKind pick_kind(const Distances& distances, u32 mode, const Limits& limits) {
    if (distances.has_before && distances.age == 0) return PICK_BEFORE;
    if (mode >= LINEAR) {
        if (distances.has_before && distances.has_after) return distances.gap <= limits.max_gap ? PICK_BETWEEN : PICK_INVALID;
        return distances.has_before && distances.age <= limits.extrapolate ? PICK_BEFORE : PICK_INVALID;
    }
    if (mode == NEAREST && distances.has_after && (!distances.has_before || distances.ahead < distances.age)) {
        return distances.ahead <= limits.max_age ? PICK_AFTER : PICK_INVALID;
    }
    return distances.has_before && distances.age <= limits.max_age ? PICK_BEFORE : PICK_INVALID;
}

// Subtracts the nearest number of whole turns from an angle, radians. An angle up to half a turn has none, so that no division is
// needed: adding 0 then turns -0 into 0, as the subtraction does.
template <class Real> __device__ __forceinline__ Real remainder_of_turn(Real angle) {
    constexpr Real pi = (Real)PI, turn = (Real)(2.0 * PI);
    if (magnitude(angle) <= pi) return angle + (Real)0;
    return angle - turn * nearest_integer(angle / turn);
}

// Wraps an angle to (-pi, pi] radians, as `wrapped` of crates/time/src/curve.rs.
template <class Real> __device__ __forceinline__ Real wrapped(Real angle) {
    constexpr Real pi = (Real)PI, turn = (Real)(2.0 * PI);
    Real within_turn = remainder_of_turn(angle);
    return within_turn <= -pi ? within_turn + turn : within_turn > pi ? within_turn - turn : within_turn;
}

// Interpolates between two angles, radians, on the shorter way from a to b, as `angles_between` of crates/time/src/curve.rs. If b
// is a, and the weight is -0, the result is a, wrapped. The function is not inlined because it is large, and rarely needed.
template <class Real> __device__ __noinline__ Real interpolate_angle(Real a, Real b, Real weight) {
    return wrapped(a + weight * remainder_of_turn(b - a));
}

// Computes `interpolate_angle` for N channels, without a division if no channel needs one.
template <u32 N, class Real>
__device__ __forceinline__ void interpolate_angles(const Real (&a)[N], const Real (&b)[N], Real weight, Real (&made)[N]) {
    constexpr Real pi = (Real)PI, turn = (Real)(2.0 * PI);
    bool needs_turns = false;
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        // This is right as long as no difference and no angle is more than half a turn.
        Real difference = b[i] - a[i];
        Real angle = a[i] + weight * (difference + (Real)0);
        needs_turns = needs_turns || !(magnitude(difference) <= pi && magnitude(angle) <= pi);
        made[i] = angle <= -pi ? angle + turn : angle + (Real)0;
    }
    if (!needs_turns) return;
#pragma unroll
    for (u32 i = 0; i < N; i++) made[i] = interpolate_angle(a[i], b[i], weight);
}

// The most channels of a rotation: two rows or columns of a matrix.
constexpr u32 MAX_ROTATION_WIDTH = 6;

// Returns the number of channels of a rotation, as `Interpolation::width`.
__device__ __forceinline__ u32 rotation_width(u32 mode) { return mode == SLERP ? 4 : MAX_ROTATION_WIDTH; }

// Computes the inner product, summed from the first component on, as `dot` of crates/geometry/src/vector.rs.
template <u32 N, class Real> __device__ __forceinline__ Real dot(const Real* a, const Real* b) {
    Real sum = a[0] * b[0];
#pragma unroll
    for (u32 i = 1; i < N; i++) sum = sum + a[i] * b[i];
    return sum;
}

// True if a vector is neither so short nor so long that its direction is lost, as `has_direction` of crates/time/src/rotation.rs.
template <u32 N, class Real> __device__ __forceinline__ bool has_direction(const Real* a) {
    Real norm = square_root(dot<N>(a, a));
    return norm >= (Real)1e-6 && norm <= (Real)1e18;
}

// Divides a vector by its norm, as `unit` of crates/geometry/src/vector.rs.
template <u32 N, class Real> __device__ __forceinline__ void normalise(Real* a) {
    Real inverse = (Real)1 / square_root(dot<N>(a, a));
#pragma unroll
    for (u32 i = 0; i < N; i++) a[i] = a[i] * inverse;
}

// Makes two rows of a matrix orthonormal, after Gram and Schmidt, as `rows` of crates/time/src/rotation.rs. The second keeps its
// part at a right angle to the first. Returns true if they are rows of a rotation.
template <class Real> __device__ __forceinline__ bool orthonormalise(Real* rows) {
    bool are_usable = has_direction<3>(rows) && has_direction<3>(rows + 3);
    normalise<3>(rows);
    normalise<3>(rows + 3);
    Real projection = dot<3>(rows, rows + 3);
#pragma unroll
    for (u32 i = 0; i < 3; i++) rows[3 + i] = rows[3 + i] - projection * rows[i];
    are_usable = are_usable && has_direction<3>(rows + 3);
    normalise<3>(rows + 3);
    return are_usable;
}

// True if finite channels are a rotation, as `is_rotation_sample` of crates/time/src/rotation.rs. No device computes `rotvec`.
template <class Real> __device__ __forceinline__ bool is_rotation_sample(u32 mode, const Real (&channels)[MAX_ROTATION_WIDTH]) {
    if (mode == SLERP) return has_direction<4>(channels);
    Real rows[MAX_ROTATION_WIDTH];
#pragma unroll
    for (u32 i = 0; i < MAX_ROTATION_WIDTH; i++) rows[i] = channels[i];
    return orthonormalise(rows);
}

// Computes sin(t * angle) / (t * sin(angle)) from t^2, as `sine_ratios` of crates/time/src/rotation.rs. The angle is given by its
// cosine, minus 1. This is Eberly's polynomial from term I of 16 on, with the last term balanced.
template <u32 I, class Real> __device__ __forceinline__ Real sine_ratio(Real squared_weight, Real cosine_minus_one) {
    if constexpr (I > 16) {
        return (Real)1;
    } else {
        constexpr double n = I, balance = I == 16 ? 1.92697 : 1.0;
        constexpr Real u = (Real)(balance / (n * (2.0 * n + 1.0))), v = (Real)(balance * n / (2.0 * n + 1.0));
        return (Real)1 + ((u * squared_weight - v) * cosine_minus_one) * sine_ratio<I + 1>(squared_weight, cosine_minus_one);
    }
}

// Interpolates unit quaternions from a to b, on the shorter arc and in the hemisphere of a, as `slerp` of
// crates/time/src/rotation.rs.
template <class Real> __device__ __forceinline__ void slerp(const Real* a, const Real* b, Real weight, Real* out) {
    Real cosine = dot<4>(a, b);
    bool is_opposite = cosine < 0;
    cosine = is_opposite ? -cosine : cosine;
    Real cosine_minus_one = cosine > 1 ? (Real)0 : cosine - (Real)1;
    Real complement = (Real)1 - weight;
    Real of_a = complement * sine_ratio<1>(complement * complement, cosine_minus_one),
         of_b = weight * sine_ratio<1>(weight * weight, cosine_minus_one);
#pragma unroll
    for (u32 i = 0; i < 4; i++) out[i] = of_a * a[i] + of_b * (is_opposite ? -b[i] : b[i]);
    normalise<4>(out);
}

// Computes the quaternion, x y z w, of the rotation matrix with the first two rows x and y, after Shepperd, as `from_rows` of
// crates/geometry/src/quaternion.rs.
template <class Real> __device__ __forceinline__ void from_rows(const Real* x, const Real* y, Real* q) {
    Real z[3] = {x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]};
    Real one = (Real)1, trace = (x[0] + y[1]) + z[2];
    // Each component is multiplied by 4 times the largest one, which is not small.
    if (trace > 0) {
        q[0] = z[1] - y[2], q[1] = x[2] - z[0], q[2] = y[0] - x[1], q[3] = one + trace;
    } else if (x[0] >= y[1] && x[0] >= z[2]) {
        q[0] = ((one + x[0]) - y[1]) - z[2], q[1] = x[1] + y[0], q[2] = x[2] + z[0], q[3] = z[1] - y[2];
    } else if (y[1] >= z[2]) {
        q[0] = x[1] + y[0], q[1] = ((one - x[0]) + y[1]) - z[2], q[2] = y[2] + z[1], q[3] = x[2] - z[0];
    } else {
        q[0] = x[2] + z[0], q[1] = y[2] + z[1], q[2] = ((one - x[0]) - y[1]) + z[2], q[3] = y[0] - x[1];
    }
    normalise<4>(q);
}

// Computes the first two rows of the matrix of a unit quaternion, as `rot6d` of crates/time/src/rotation.rs.
template <class Real> __device__ __forceinline__ void to_rows(const Real* q, Real* rows) {
    Real one = (Real)1, two = (Real)2, x = q[0], y = q[1], z = q[2], w = q[3];
    rows[0] = one - two * (y * y + z * z);
    rows[1] = two * (x * y - z * w);
    rows[2] = two * (x * z + y * w);
    rows[3] = two * (x * y + z * w);
    rows[4] = one - two * (x * x + z * z);
    rows[5] = two * (y * z - x * w);
}

// Replaces the rotation `a` by the rotation between `a` and `b`, or if `is_held` by `a` normalised, as `between` and `hold` of
// crates/time/src/rotation.rs. The argument `canonical` is the group's.
template <class Real>
__device__ __forceinline__ void interpolate_rotation(u32 mode, u32 canonical, bool is_held, Real weight,
                                                     Real (&a)[MAX_ROTATION_WIDTH], Real (&b)[MAX_ROTATION_WIDTH]) {
    Real from[4], to[4], between[4];
    if (mode == SLERP) {
        normalise<4>(a);
        normalise<4>(b);
#pragma unroll
        for (u32 i = 0; i < 4; i++) from[i] = a[i], to[i] = b[i];
    } else {
        orthonormalise(a);
        if (is_held) return;
        orthonormalise(b);
        from_rows(a, a + 3, from);
        from_rows(b, b + 3, to);
    }
    slerp(from, to, weight, between);
    if (mode != SLERP) return to_rows(between, a);
#pragma unroll
    for (u32 i = 0; i < 4; i++) a[i] = is_held ? from[i] : between[i];
    bool is_negative = false;
#pragma unroll
    for (u32 i = 0; i < 4; i++) is_negative = is_negative || (canonical == i + 1 && a[i] < 0);
#pragma unroll
    for (u32 i = 0; i < 4; i++) a[i] = is_negative ? -a[i] : a[i];
}

// A tangent of a curve, by its kind and two factors: `Tangent` of crates/time/src/curve.rs.
enum TangentKind : u32 { PARABOLA = 0, HARMONIC = 1, END = 2 };

template <class Real> struct Tangent {
    Real inner;
    Real outer;
    u32 kind;
};

// Computes the tangent at one end of a bracket, as `Tangent::of`. The distances, ns, are those between the bracket's samples, to
// the sample beyond this end, and to the sample beyond the other end.
template <class Real>
__device__ __forceinline__ Tangent<Real> tangent(u32 mode, double inner, bool has_outer, double outer, bool has_other,
                                                 double other) {
    if (mode == PCHIP && has_outer) {
        double whole = 3.0 * (inner + outer);
        return Tangent<Real>{(Real)((inner + 2.0 * outer) / whole),
                             (Real)((2.0 * inner + outer) / whole * (outer / inner)), HARMONIC};
    }
    if (mode == PCHIP && has_other) {
        return Tangent<Real>{(Real)((2.0 * inner + other) / (inner + other)),
                             (Real)(inner / (inner + other) * (inner / other)), END};
    }
    if (has_outer) {
        return Tangent<Real>{(Real)(outer / (inner + outer)), (Real)(inner / outer * (inner / (inner + outer))),
                             PARABOLA};
    }
    return Tangent<Real>{(Real)1, (Real)0, PARABOLA};
}

// A curve between two samples, by the tangents at both. `has_left` is true if the sample before the two counts, `has_right` if the
// sample after the two does.
template <class Real> struct Curve {
    Tangent<Real> start;
    Tangent<Real> end;
    bool has_left;
    bool has_right;
};

// Computes the curve between the inner two of four samples. The distances from each sample to the next, ns, are `intervals`. An
// outer sample further than `max_gap`, ns, from its neighbour does not count, as in `Knots::of` of crates/time/src/curve.rs.
template <class Real>
__device__ __forceinline__ Curve<Real> make_curve(u32 mode, i64 max_gap, const i64 (&intervals)[3], bool has_left, bool has_right) {
    Curve<Real> curve;
    curve.has_left = has_left && intervals[0] <= max_gap;
    curve.has_right = has_right && intervals[2] <= max_gap;
    double left = (double)intervals[0], inner = (double)intervals[1], right = (double)intervals[2];
    curve.start = tangent<Real>(mode, inner, curve.has_left, left, curve.has_right, right);
    curve.end = tangent<Real>(mode, inner, curve.has_right, right, curve.has_left, left);
    return curve;
}

// Returns a straight line. Between a and a, with a weight of -0, its value is a.
template <class Real> __device__ __forceinline__ Curve<Real> make_line() {
    Tangent<Real> slope{(Real)1, (Real)0, PARABOLA};
    return Curve<Real>{slope, slope, false, false};
}

// True if both values are above 0, or both below.
template <class Real> __device__ __forceinline__ bool same_sign(Real a, Real b) {
    return (a > 0 && b > 0) || (a < 0 && b < 0);
}

// Computes the tangent times the distance h of the two samples, as `Tangent::times_h`. The difference of their values is `within`;
// `outside` is the one beyond this end, `other` beyond the other end. MONOTONE is true for `pchip`, and false for `cubic`, whose
// tangents are all of the kind PARABOLA.
template <bool MONOTONE, class Real>
__device__ __forceinline__ Real times_h(const Tangent<Real>& tangent, Real within, Real outside, Real other) {
    if (!MONOTONE || tangent.kind == PARABOLA) return tangent.inner * within + tangent.outer * outside;
    if (tangent.kind == HARMONIC) {
        // Computed even if it is not used, whatever the result is then: a branch would cost more.
        Real slope = within / (tangent.inner + tangent.outer * (within / outside));
        return same_sign(within, outside) ? slope : (Real)0;
    }
    Real slope = tangent.inner * within - tangent.outer * other, three = (Real)3 * within;
    if (!same_sign(slope, within)) return (Real)0;
    return !same_sign(within, other) && magnitude(slope) > magnitude(three) ? three : slope;
}

// Computes the value of a curve between a and b, as `between` of crates/time/src/curve.rs. The outer samples `left` and `right`
// count if the curve has them.
template <bool MONOTONE, class Real>
__device__ __forceinline__ Real evaluate_curve(const Curve<Real>& curve, Real left, Real a, Real b, Real right, Real weight) {
    Real within = b - a;
    Real first = curve.has_left ? a - left : a - a, last = curve.has_right ? right - b : b - b;
    Real hm = times_h<MONOTONE>(curve.start, within, first, last);
    Real hn = times_h<MONOTONE>(curve.end, within, last, first);
    Real c2 = ((Real)3 * within - (Real)2 * hm) - hn;
    Real c3 = (hm + hn) - (Real)2 * within;
    Real inner = curve.has_left || curve.has_right ? hm + weight * (c2 + weight * c3) : within;
    return a + weight * inner;
}

// Indices of the samples around a target in arrays of samples. LEFT is the sample before BEFORE, RIGHT the sample after AFTER.
enum SampleIndex : u32 { BEFORE = 0, AFTER = 1, LEFT = 2, RIGHT = 3 };

// Returns the number of samples around a target that a mode takes.
__device__ constexpr u32 sample_count(u32 mode) { return is_curve(mode) ? 4 : 2; }

// A mode that is known when the code is compiled.
template <u32 MODE> struct Known {
    static constexpr u32 mode = MODE;
};

// Calls `write` with the mode of a group that is not a rotation, as a constant. LINEAR stands for every plain mode.
template <class Write> __device__ __forceinline__ void with_mode(u32 mode, const Write& write) {
    switch (mode) {
    case ANGLE: return write(Known<ANGLE>{});
    case CUBIC: return write(Known<CUBIC>{});
    case PCHIP: return write(Known<PCHIP>{});
    default: return write(Known<LINEAR>{});
    }
}

// Makes N channels of a value from the channels of the samples around a target. For a value that is a single sample, callers pass
// that sample twice, a weight of -0 and a line: each mode then gives the sample, -0 included.
template <u32 MODE, u32 N, class Real>
__device__ __forceinline__ void make(const Real (&samples)[sample_count(MODE)][N], Real weight, const Curve<Real>& curve,
                                     Real (&made)[N]) {
    if constexpr (MODE == ANGLE) {
        interpolate_angles(samples[BEFORE], samples[AFTER], weight, made);
    } else {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            Real a = samples[BEFORE][i], b = samples[AFTER][i];
            if constexpr (MODE == LINEAR) {
                made[i] = blend(MODE, a, b, weight);
            } else {
                made[i] = evaluate_curve<MODE == PCHIP>(curve, samples[LEFT][i], a, b, samples[RIGHT][i], weight);
            }
        }
    }
}

// Does what `make` does, for one channel in any mode.
template <class Real>
__device__ __forceinline__ Real make_one(u32 mode, const Real (&samples)[4], Real weight, const Curve<Real>& curve) {
    Real left = samples[LEFT], a = samples[BEFORE], b = samples[AFTER], right = samples[RIGHT];
    switch (mode) {
    case ANGLE: return interpolate_angle(a, b, weight);
    case CUBIC: return evaluate_curve<false>(curve, left, a, b, right, weight);
    case PCHIP: return evaluate_curve<true>(curve, left, a, b, right, weight);
    default: return blend(mode, a, b, weight);
    }
}
