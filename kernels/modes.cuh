// The modes of angles, rotations and curves: the bits of crates/time/src/curve.rs and crates/time/src/rotation.rs. `Real` is float, or
// of float64 samples double. Kernels of the plain modes alone need nothing of this.
#pragma once

#include "time.cuh"

constexpr double PI = 3.14159265358979323846;

__device__ __forceinline__ float root(float value) { return sqrtf(value); }
__device__ __forceinline__ double root(double value) { return sqrt(value); }
__device__ __forceinline__ float magnitude(float value) { return fabsf(value); }
__device__ __forceinline__ double magnitude(double value) { return fabs(value); }
__device__ __forceinline__ float nearest_integer(float value) { return rintf(value); }
__device__ __forceinline__ double nearest_integer(double value) { return rint(value); }

__device__ __forceinline__ constexpr bool is_curve(u32 mode) { return mode == CUBIC || mode == PCHIP; }
__device__ __forceinline__ bool is_rotation(u32 mode) { return mode >= SLERP && mode <= ROTVEC; }

// How far the samples around a target are from it and from each other, ns.
struct Distances {
    i64 age;   // of the sample before it
    i64 ahead; // of the sample after it
    i64 gap;   // between the two
    bool has_before;
    bool has_after;
};

__device__ __forceinline__ Distances distances(const Bracket& found, i64 target) {
    Distances apart{0, 0, 0, found.has_before, found.has_after};
    if (found.has_before) apart.age = distance(found.before, target);
    if (found.has_after) apart.ahead = distance(target, found.after);
    if (found.has_before && found.has_after) apart.gap = distance(found.before, found.after);
    return apart;
}

// The weight of the sample after a target in a value between the two.
__device__ __forceinline__ double later_weight(const Distances& apart) { return (double)apart.age / (double)apart.gap; }

// The kind that `pick` of crates/time/src/pick.rs picks.
__device__ __forceinline__ PickKind pick_kind(const Distances& apart, u32 mode, const Limits& limits) {
    if (apart.has_before && apart.age == 0) return PICK_BEFORE;
    if (mode >= LINEAR) {
        if (apart.has_before && apart.has_after) return apart.gap <= limits.max_gap ? PICK_BETWEEN : PICK_INVALID;
        return apart.has_before && apart.age <= limits.extrapolate ? PICK_BEFORE : PICK_INVALID;
    }
    if (mode == NEAREST && apart.has_after && (!apart.has_before || apart.ahead < apart.age)) {
        return apart.ahead <= limits.max_age ? PICK_AFTER : PICK_INVALID;
    }
    return apart.has_before && apart.age <= limits.max_age ? PICK_BEFORE : PICK_INVALID;
}

// An angle less its whole turns. Up to half a turn that is none, which needs no division: what is added then turns -0 to
// 0, as the subtraction does.
template <class Real> __device__ __forceinline__ Real less_turns(Real angle) {
    constexpr Real pi = (Real)PI, turn = (Real)(2.0 * PI);
    if (magnitude(angle) <= pi) return angle + (Real)0;
    return angle - turn * nearest_integer(angle / turn);
}

// An angle in (-pi, pi].
template <class Real> __device__ __forceinline__ Real wrapped(Real angle) {
    constexpr Real pi = (Real)PI, turn = (Real)(2.0 * PI);
    Real less = less_turns(angle);
    return less <= -pi ? less + turn : less > pi ? less - turn : less;
}

// The angle on the shorter way from a to b. Of a and a with a weight of -0 it is a, wrapped. It is no part of the code
// around it because it is large, and rarely needed.
template <class Real> __device__ __noinline__ Real angle_between(Real a, Real b, Real weight) {
    return wrapped(a + weight * less_turns(b - a));
}

// `angle_between` for N channels.
template <u32 N, class Real>
__device__ __forceinline__ void angles_between(const Real (&a)[N], const Real (&b)[N], Real weight, Real (&made)[N]) {
    constexpr Real pi = (Real)PI, turn = (Real)(2.0 * PI);
    bool turns = false;
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        // As long as nothing is more than half a turn.
        Real apart = b[i] - a[i];
        Real angle = a[i] + weight * (apart + (Real)0);
        turns = turns || !(magnitude(apart) <= pi && magnitude(angle) <= pi);
        made[i] = angle <= -pi ? angle + turn : angle + (Real)0;
    }
    if (!turns) return;
#pragma unroll
    for (u32 i = 0; i < N; i++) made[i] = angle_between(a[i], b[i], weight);
}

// Channels of a rotation: at most 6.
constexpr u32 ROTATION = 6;

__device__ __forceinline__ u32 rotation_width(u32 mode) { return mode == SLERP ? 4 : ROTATION; }

template <u32 N, class Real> __device__ __forceinline__ Real dot(const Real* a, const Real* b) {
    Real sum = a[0] * b[0];
#pragma unroll
    for (u32 i = 1; i < N; i++) sum = sum + a[i] * b[i];
    return sum;
}

// A norm under the first, or over the second, is that of no rotation.
template <u32 N, class Real> __device__ __forceinline__ bool has_direction(const Real* a) {
    Real norm = root(dot<N>(a, a));
    return norm >= (Real)1e-6 && norm <= (Real)1e18;
}

template <u32 N, class Real> __device__ __forceinline__ void normalise(Real* a) {
    Real inverse = (Real)1 / root(dot<N>(a, a));
#pragma unroll
    for (u32 i = 0; i < N; i++) a[i] = a[i] * inverse;
}

// Normalises two rows of a matrix, the second after what of it is at a right angle to the first: Gram and Schmidt.
// Returns whether they are rows of a rotation.
template <class Real> __device__ __forceinline__ bool orthonormalise(Real* rows) {
    bool are_directions = has_direction<3>(rows) && has_direction<3>(rows + 3);
    normalise<3>(rows);
    normalise<3>(rows + 3);
    Real along = dot<3>(rows, rows + 3);
#pragma unroll
    for (u32 i = 0; i < 3; i++) rows[3 + i] = rows[3 + i] - along * rows[i];
    are_directions = are_directions && has_direction<3>(rows + 3);
    normalise<3>(rows + 3);
    return are_directions;
}

// Whether finite channels are a rotation: `Rule::takes`.
template <class Real> __device__ __forceinline__ bool takes(u32 mode, const Real (&channels)[ROTATION]) {
    if (mode == SLERP) return has_direction<4>(channels);
    Real rows[ROTATION];
#pragma unroll
    for (u32 i = 0; i < ROTATION; i++) rows[i] = channels[i];
    return orthonormalise(rows);
}

// sin(t * angle) / sin(angle) over t, where `square` is t^2 and `less_one` the cosine of the angle less 1: Eberly's
// polynomial from term I of 16 on, the last of which is balanced.
template <u32 I, class Real> __device__ __forceinline__ Real share(Real square, Real less_one) {
    if constexpr (I > 16) {
        return (Real)1;
    } else {
        constexpr double n = I, balance = I == 16 ? 1.92697 : 1.0;
        constexpr Real u = (Real)(balance / (n * (2.0 * n + 1.0))), v = (Real)(balance * n / (2.0 * n + 1.0));
        return (Real)1 + ((u * square - v) * less_one) * share<I + 1>(square, less_one);
    }
}

// The unit quaternion between a and b, on the shorter arc and in the hemisphere of a.
template <class Real> __device__ __forceinline__ void slerp(const Real* a, const Real* b, Real weight, Real* out) {
    Real cosine = dot<4>(a, b);
    bool is_far = cosine < 0;
    cosine = is_far ? -cosine : cosine;
    Real less_one = cosine > 1 ? (Real)0 : cosine - (Real)1;
    Real left = (Real)1 - weight;
    Real of_a = left * share<1>(left * left, less_one), of_b = weight * share<1>(weight * weight, less_one);
#pragma unroll
    for (u32 i = 0; i < 4; i++) out[i] = of_a * a[i] + of_b * (is_far ? -b[i] : b[i]);
    normalise<4>(out);
}

// The quaternion, x y z w, of the rotation matrix with the first two rows x and y, after Shepperd.
template <class Real> __device__ __forceinline__ void from_rows(const Real* x, const Real* y, Real* q) {
    Real z[3] = {x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]};
    Real one = (Real)1, sum = (x[0] + y[1]) + z[2];
    // Each component times 4 times the largest, which is not small.
    if (sum > 0) {
        q[0] = z[1] - y[2], q[1] = x[2] - z[0], q[2] = y[0] - x[1], q[3] = one + sum;
    } else if (x[0] >= y[1] && x[0] >= z[2]) {
        q[0] = ((one + x[0]) - y[1]) - z[2], q[1] = x[1] + y[0], q[2] = x[2] + z[0], q[3] = z[1] - y[2];
    } else if (y[1] >= z[2]) {
        q[0] = x[1] + y[0], q[1] = ((one - x[0]) + y[1]) - z[2], q[2] = y[2] + z[1], q[3] = x[2] - z[0];
    } else {
        q[0] = x[2] + z[0], q[1] = y[2] + z[1], q[2] = ((one - x[0]) - y[1]) + z[2], q[3] = y[0] - x[1];
    }
    normalise<4>(q);
}

// The first two rows of the matrix of a unit quaternion.
template <class Real> __device__ __forceinline__ void to_rows(const Real* q, Real* rows) {
    Real one = (Real)1, two = (Real)2, x = q[0], y = q[1], z = q[2], w = q[3];
    rows[0] = one - two * (y * y + z * z);
    rows[1] = two * (x * y - z * w);
    rows[2] = two * (x * z + y * w);
    rows[3] = two * (x * y + z * w);
    rows[4] = one - two * (x * x + z * z);
    rows[5] = two * (y * z - x * w);
}

// Turns the rotation `a` into that between it and `b`, or where `is_held` into its normalised self. `canonical` is that of
// the group.
template <class Real>
__device__ __forceinline__ void rotate(u32 mode, u32 canonical, bool is_held, Real weight, Real (&a)[ROTATION],
                                       Real (&b)[ROTATION]) {
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

// The two factors of a tangent of a curve: `Tangent` of crates/time/src/curve.rs.
enum TangentKind : u32 { PARABOLA = 0, HARMONIC = 1, END = 2 };

template <class Real> struct Tangent {
    Real inner;
    Real outer;
    u32 kind;
};

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

// How a curve runs between two samples: by the one before them and the one after them, where there are such.
template <class Real> struct Curve {
    Tangent<Real> start;
    Tangent<Real> end;
    bool has_left;
    bool has_right;
};

// `apart`: the distances from the sample before the two to the one after them, where it `has` those. One further than
// `max_gap` is none.
template <class Real>
__device__ __forceinline__ Curve<Real> curve(u32 mode, i64 max_gap, const i64 (&apart)[3], bool has_left, bool has_right) {
    Curve<Real> curve;
    curve.has_left = has_left && apart[0] <= max_gap;
    curve.has_right = has_right && apart[2] <= max_gap;
    double left = (double)apart[0], inner = (double)apart[1], right = (double)apart[2];
    curve.start = tangent<Real>(mode, inner, curve.has_left, left, curve.has_right, right);
    curve.end = tangent<Real>(mode, inner, curve.has_right, right, curve.has_left, left);
    return curve;
}

// A line, which of a and a with a weight of -0 gives a.
template <class Real> __device__ __forceinline__ Curve<Real> line() {
    Tangent<Real> slope{(Real)1, (Real)0, PARABOLA};
    return Curve<Real>{slope, slope, false, false};
}

template <class Real> __device__ __forceinline__ bool same_sign(Real a, Real b) {
    return (a > 0 && b > 0) || (a < 0 && b < 0);
}

// The tangent times the distance of the two samples: `Tangent::times_h`. MONOTONE: of pchip, else of a cubic curve, whose
// tangents are all those of a parabola.
template <bool MONOTONE, class Real>
__device__ __forceinline__ Real times_h(const Tangent<Real>& of, Real within, Real outside, Real other) {
    if (!MONOTONE || of.kind == PARABOLA) return of.inner * within + of.outer * outside;
    if (of.kind == HARMONIC) {
        // Where it is not wanted it may be anything: a branch would cost more.
        Real slope = within / (of.inner + of.outer * (within / outside));
        return same_sign(within, outside) ? slope : (Real)0;
    }
    Real slope = of.inner * within - of.outer * other, three = (Real)3 * within;
    if (!same_sign(slope, within)) return (Real)0;
    return !same_sign(within, other) && magnitude(slope) > magnitude(three) ? three : slope;
}

// The value of a curve between a and b. The outer two count where the curve has them.
template <bool MONOTONE, class Real>
__device__ __forceinline__ Real on_curve(const Curve<Real>& curve, Real left, Real a, Real b, Real right, Real weight) {
    Real within = b - a;
    Real first = curve.has_left ? a - left : a - a, last = curve.has_right ? right - b : b - b;
    Real hm = times_h<MONOTONE>(curve.start, within, first, last);
    Real hn = times_h<MONOTONE>(curve.end, within, last, first);
    Real c2 = ((Real)3 * within - (Real)2 * hm) - hn;
    Real c3 = (hm + hn) - (Real)2 * within;
    Real inner = curve.has_left || curve.has_right ? hm + weight * (c2 + weight * c3) : within;
    return a + weight * inner;
}

// The samples around a target, in the order in which the code here takes them: `left` is the one before `before`.
enum SampleIndex : u32 { BEFORE = 0, AFTER = 1, LEFT = 2, RIGHT = 3 };

// How many of them a mode takes.
__device__ constexpr u32 samples_of(u32 mode) { return is_curve(mode) ? 4 : 2; }

// A mode that is known when the code is compiled.
template <u32 MODE> struct Known {
    static constexpr u32 mode = MODE;
};

// Calls `write` with the mode of a group that is no rotation. LINEAR stands for every plain mode.
template <class Write> __device__ __forceinline__ void with_mode(u32 mode, const Write& write) {
    switch (mode) {
    case ANGLE: return write(Known<ANGLE>{});
    case CUBIC: return write(Known<CUBIC>{});
    case PCHIP: return write(Known<PCHIP>{});
    default: return write(Known<LINEAR>{});
    }
}

// Makes N channels of those of the samples around a target. A value that is one sample's is made of that sample twice, with
// a weight of -0 and a line: each mode gives that sample then, -0 included.
template <u32 MODE, u32 N, class Real>
__device__ __forceinline__ void make(const Real (&samples)[samples_of(MODE)][N], Real weight, const Curve<Real>& curve,
                                     Real (&made)[N]) {
    if constexpr (MODE == ANGLE) {
        angles_between(samples[BEFORE], samples[AFTER], weight, made);
    } else {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            Real a = samples[BEFORE][i], b = samples[AFTER][i];
            if constexpr (MODE == LINEAR) {
                made[i] = blend(MODE, a, b, weight);
            } else {
                made[i] = on_curve<MODE == PCHIP>(curve, samples[LEFT][i], a, b, samples[RIGHT][i], weight);
            }
        }
    }
}

// `make` of one channel in any mode.
template <class Real>
__device__ __forceinline__ Real make_one(u32 mode, const Real (&samples)[4], Real weight, const Curve<Real>& curve) {
    Real left = samples[LEFT], a = samples[BEFORE], b = samples[AFTER], right = samples[RIGHT];
    switch (mode) {
    case ANGLE: return angle_between(a, b, weight);
    case CUBIC: return on_curve<false>(curve, left, a, b, right, weight);
    case PCHIP: return on_curve<true>(curve, left, a, b, right, weight);
    default: return blend(mode, a, b, weight);
    }
}
