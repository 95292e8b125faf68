// Poses and Jacobians of a chain, bit for bit as model.rs, jacobian.rs and ldl.rs of crates/kinematics/src.

// A lane is one row of joints. For a plain chain, N is the number of joints, a compile-time constant: everything lies in registers,
// and the constants of the chain are operands. N = 0 stands for all other chains: their loops stay loops, and the numbers that
// these index lie in shared memory, lane by lane.
#pragma once

#include "types.cuh"

// The most joints of a chain, and the most segments.
constexpr u32 MOST_JOINTS = 16;

// Flags of a segment. SLIDES: it moves along its axis, and does not turn about the axis.
constexpr u32 SLIDES = 1;
// The segment's value is its joint's value times the multiplier, plus the offset.
constexpr u32 FOLLOWS = 2;
// No segment before this one has the same joint.
constexpr u32 IS_FIRST = 4;

// A transform: the rotation matrix by rows, and the translation.
template <class R> struct Frame {
    R rotation[9];
    R translation[3];
};

// A moving joint on the way from the base to the tip.
template <class R> struct Segment {
    // The frame of the next segment's axis, or of the tip, in the moved frame of this segment.
    Frame<R> next;
    R multiplier;
    R offset;
    u32 joint;
    u32 flags;
};

template <class R> struct Chain {
    // The frame of the first segment's axis.
    Frame<R> first;
    Segment<R> segments[MOST_JOINTS];
    u32 count;
    u32 joints;
};

// A link on the way from the base to the tip.
template <class R> struct Link {
    // The link's frame in the moved frame of the last segment above the link, or in the frame of the base.
    Frame<R> frame;
    // Number of segments above the link.
    u32 segments;
    // The link's place in a row of poses.
    u32 place;
};

// Returns the NaN that Rust's `NAN` is. The argument tells the type alone.
__device__ __forceinline__ float quiet_nan(float) { return __uint_as_float(0x7fc00000); }
__device__ __forceinline__ double quiet_nan(double) { return __longlong_as_double(0x7ff8000000000000); }
// Functions of CUDA, by one name for both precisions.
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
__device__ __forceinline__ float square_root(float x) { return sqrtf(x); }
__device__ __forceinline__ double square_root(double x) { return sqrt(x); }

// False for a NaN and for an infinity.
__device__ __forceinline__ bool is_finite_value(float x) { return fabsf(x) <= 3.402823466e38f; }
__device__ __forceinline__ bool is_finite_value(double x) {
    return ((u64)__double_as_longlong(x) >> 52 & 0x7ff) != 0x7ff;
}

// Returns the sum of no terms, -0: -0 + x is x, even if x is -0.
template <class R> __device__ __forceinline__ R negative_zero() { return (R)-0.0; }

// Adds quarter turns to an angle's sine and cosine, as `behind_quarters` of crates/geometry/src/polynomial.rs: exchanges both if
// the number is odd, and sets their signs.
template <class R> __device__ __forceinline__ void behind_quarters(u32 quarters, R& sine, R& cosine) {
    R a = quarters & 1 ? cosine : sine, b = quarters & 1 ? sine : cosine;
    sine = quarters & 2 ? -a : a;
    cosine = (quarters + 1) & 2 ? -b : b;
}

// Computes sine and cosine of an angle, radians, as `sin_cos` of crates/geometry/src/polynomial.rs. The angle is at most 8,192 in
// magnitude.
__device__ __forceinline__ void sin_cos(float angle, float& sine, float& cosine) {
    float shifted = angle * 0.636619772367581343f + 12582912.0f;
    float quarters = shifted - 12582912.0f;
    float r = ((angle - quarters * 1.5703125f) - quarters * 4.837512969970703125e-4f) - quarters * 7.54978995489188e-8f;
    float z = r * r;
    sine = (((-1.9515295891e-4f * z + 8.3321608736e-3f) * z + -1.6666654611e-1f) * z) * r + r;
    cosine = (((2.443315711809948e-5f * z + -1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z) + 1.0f;
    behind_quarters(__float_as_uint(shifted), sine, cosine);
}

__device__ __forceinline__ void sin_cos(double angle, double& sine, double& cosine) {
    double shifted = angle * 0.63661977236758134308 + 6755399441055744.0;
    double quarters = shifted - 6755399441055744.0;
    double r = ((angle - quarters * 1.57079632673412561417e+00) - quarters * 6.07710050630396597660e-11) -
               quarters * 2.02226624879595063154e-21;
    double z = r * r;
    double p = ((((1.58969099521155010221e-10 * z + -2.50507602534068634195e-08) * z + 2.75573137070700676789e-06) * z +
                 -1.98412698298579493134e-04) * z + 8.33333333332248946124e-03) * z + -1.66666666666666324348e-01;
    sine = (p * z) * r + r;
    double h = ((((-1.13596475577881948265e-11 * z + 2.08757232129817482790e-09) * z + -2.75573143513906633035e-07) * z +
                 2.48015872894767294178e-05) * z + -1.38888888888741095749e-03) * z + 4.16666666666666019037e-02;
    cosine = (h * z * z - 0.5 * z) + 1.0;
    behind_quarters((u32)__double_as_longlong(shifted), sine, cosine);
}

// Computes the cross product a x b into c, as `cross` of crates/geometry/src/vector.rs.
template <class R> __device__ __forceinline__ void cross(const R (&a)[3], const R (&b)[3], R (&c)[3]) {
    c[0] = a[1] * b[2] - a[2] * b[1];
    c[1] = a[2] * b[0] - a[0] * b[2];
    c[2] = a[0] * b[1] - a[1] * b[0];
}

// Computes the inner product, summed from the first component on, as `dot` of crates/geometry/src/vector.rs.
template <class R> __device__ __forceinline__ R dot4(const R (&a)[4], const R (&b)[4]) {
    return ((a[0] * b[0] + a[1] * b[1]) + a[2] * b[2]) + a[3] * b[3];
}

// Multiplies two transforms, as `RigidTransform::compose`: b in the frame a.
template <class R> __device__ __forceinline__ Frame<R> compose(const Frame<R>& a, const Frame<R>& b) {
    Frame<R> c;
#pragma unroll
    for (u32 i = 0; i < 3; ++i) {
        R x = a.rotation[3 * i], y = a.rotation[3 * i + 1], z = a.rotation[3 * i + 2];
#pragma unroll
        for (u32 j = 0; j < 3; ++j) {
            c.rotation[3 * i + j] = (x * b.rotation[j] + y * b.rotation[3 + j]) + z * b.rotation[6 + j];
        }
        c.translation[i] = ((x * b.translation[0] + y * b.translation[1]) + z * b.translation[2]) + a.translation[i];
    }
    return c;
}

// Turns the frame of an axis about its z axis by an angle, radians, as `turned` of crates/kinematics/src/model.rs.
template <class R> __device__ __forceinline__ Frame<R> turned(const Frame<R>& axis, R angle) {
    Frame<R> result = axis;
    R sine, cosine;
    sin_cos(angle, sine, cosine);
#pragma unroll
    for (u32 i = 0; i < 3; ++i) {
        R x = axis.rotation[3 * i], y = axis.rotation[3 * i + 1];
        result.rotation[3 * i] = x * cosine + y * sine;
        result.rotation[3 * i + 1] = y * cosine - x * sine;
    }
    return result;
}

// Moves the frame of an axis along its z axis by a displacement, metres, as `slid` of crates/kinematics/src/model.rs.
template <class R> __device__ __forceinline__ Frame<R> slid(const Frame<R>& axis, R displacement) {
    Frame<R> result = axis;
#pragma unroll
    for (u32 i = 0; i < 3; ++i) {
        result.translation[i] = axis.translation[i] + axis.rotation[3 * i + 2] * displacement;
    }
    return result;
}

// Computes the unit quaternion of a rotation, x y z w, with w >= 0, as `from_rows` of crates/geometry/src/quaternion.rs.
template <class R> __device__ __forceinline__ void quaternion(const Frame<R>& frame, R (&q)[4]) {
    const R(&m)[9] = frame.rotation;
    R x[3] = {m[0], m[1], m[2]}, y[3] = {m[3], m[4], m[5]}, z[3], one = (R)1;
    cross(x, y, z);
    R trace = (x[0] + y[1]) + z[2];
    bool is_w = trace > 0, is_x = (x[0] >= y[1]) & (x[0] >= z[2]), is_y = y[1] >= z[2];
    auto choose = [&](R with_w, R with_x, R with_y, R with_z) {
        return is_w ? with_w : is_x ? with_x : is_y ? with_y : with_z;
    };
    q[0] = choose(z[1] - y[2], ((one + x[0]) - y[1]) - z[2], x[1] + y[0], x[2] + z[0]);
    q[1] = choose(x[2] - z[0], x[1] + y[0], ((one - x[0]) + y[1]) - z[2], y[2] + z[1]);
    q[2] = choose(y[0] - x[1], x[2] + z[0], y[2] + z[1], ((one - x[0]) - y[1]) + z[2]);
    q[3] = choose(one + trace, z[1] - y[2], x[2] - z[0], y[0] - x[1]);
    R inverse = one / square_root(dot4(q, q));
    inverse = q[3] * inverse < 0 ? -inverse : inverse;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        q[i] *= inverse;
    }
}

// Writes the pose of a frame, as `pose_of` of crates/kinematics/src/model.rs: x y z, metres, and the quaternion qx qy qz qw. All
// are NaN if it is not valid.
template <class R> __device__ __forceinline__ void write_pose(const Frame<R>& frame, bool is_valid, R* pose) {
    R q[4], none = quiet_nan((R)0);
    quaternion(frame, q);
#pragma unroll
    for (u32 i = 0; i < 7; ++i) {
        pose[i] = is_valid ? (i < 3 ? frame.translation[i] : q[i - 3]) : none;
    }
}

// Goes one segment up the chain, as `Model::tip`: `axis` becomes the frame of the next axis. Returns the moved frame. The joint's
// value `q` is radians or metres. Sets `is_valid` to false if `q`, or the value of a mimic, is not finite or over 8,192 in
// magnitude. Segments of a plain chain turn, and are not mimics.
template <u32 N, class R>
__device__ __forceinline__ Frame<R> advance_frame(const Segment<R>& segment, R q, Frame<R>& axis, bool& is_valid) {
    constexpr R most = (R)8192;
    Frame<R> moved;
    if constexpr (N > 0) {
        is_valid &= magnitude(q) <= most;
        moved = turned(axis, q);
    } else {
        if (segment.flags & FOLLOWS) {
            is_valid &= magnitude(q) <= most;
            q = segment.multiplier * q + segment.offset;
        }
        is_valid &= magnitude(q) <= most;
        moved = segment.flags & SLIDES ? slid(axis, q) : turned(axis, q);
    }
    axis = compose(moved, segment.next);
    return moved;
}

// Calls `work` with each index below N, unrolled; if N is 0, with each index below `count`, in a loop.
template <u32 N, class Work> __device__ __forceinline__ void for_each_index(u32 count, const Work& work) {
    if constexpr (N > 0) {
#pragma unroll
        for (u32 k = 0; k < N; ++k) {
            work(k);
        }
    } else {
#pragma unroll 1
        for (u32 k = 0; k < count; ++k) {
            work(k);
        }
    }
}

// The joints of a lane, radians or metres, and the columns of its Jacobian. In the column of joint k, which has 6 entries,
// `entry(k, i)` is entry i. A step of the solver overwrites the columns.
template <class R, u32 N> struct Lane {
    R joints[N];
    R columns[N][6];

    __device__ __forceinline__ R& joint(u32 k) { return joints[k]; }
    __device__ __forceinline__ const R& joint(u32 k) const { return joints[k]; }
    __device__ __forceinline__ R& entry(u32 k, u32 i) { return columns[k][i]; }
};

// The joints and columns of a lane in shared memory, for chains of any length. The numbers of a lane are STRIDE apart, so that a
// number of each lane lies beside the same number of the other lanes. A lane uses its own numbers alone, so that no lane waits for
// another.
template <class R, u32 STRIDE> struct SharedLane {
    R* joints;
    R* columns;

    __device__ __forceinline__ R& joint(u32 k) const { return joints[k * STRIDE]; }
    __device__ __forceinline__ R& entry(u32 k, u32 i) const { return columns[(6 * k + i) * STRIDE]; }
};

enum JacobianFrame : u32 { BASE, TOOL, SPATIAL };

// Rotates a vector from the axes of the base to the axes of the tip, as `to_tool` of crates/kinematics/src/jacobian.rs.
template <class R> __device__ __forceinline__ void to_tool(const Frame<R>& tip, const R (&v)[3], R (&result)[3]) {
    const R(&m)[9] = tip.rotation;
#pragma unroll
    for (u32 i = 0; i < 3; ++i) {
        result[i] = (m[i] * v[0] + m[3 + i] * v[1]) + m[6 + i] * v[2];
    }
}

// Computes a column of the Jacobian, as `velocity` of crates/kinematics/src/jacobian.rs: the velocity of the tip for a unit
// velocity about or along the axis `z` at `origin`, metres. It is expressed in a `JacobianFrame`.
template <class R>
__device__ __forceinline__ void velocity(bool slides, const R (&z)[3], const R (&origin)[3], u32 frame, const Frame<R>& tip,
                                         R (&column)[6]) {
    R linear[3], angular[3];
    if (slides) {
#pragma unroll
        for (u32 i = 0; i < 3; ++i) {
            linear[i] = z[i], angular[i] = 0;
        }
    } else {
        if (frame == SPATIAL) {
            cross(origin, z, linear);
        } else {
            R arm[3];
#pragma unroll
            for (u32 i = 0; i < 3; ++i) {
                arm[i] = tip.translation[i] - origin[i];
            }
            cross(z, arm, linear);
        }
#pragma unroll
        for (u32 i = 0; i < 3; ++i) {
            angular[i] = z[i];
        }
    }
    if (frame == TOOL) {
        R rotated[3];
        to_tool(tip, linear, rotated);
#pragma unroll
        for (u32 i = 0; i < 3; ++i) {
            linear[i] = rotated[i];
        }
        to_tool(tip, angular, rotated);
#pragma unroll
        for (u32 i = 0; i < 3; ++i) {
            angular[i] = rotated[i];
        }
    }
#pragma unroll
    for (u32 i = 0; i < 3; ++i) {
        column[i] = linear[i], column[3 + i] = angular[i];
    }
}

// Computes the frame of the tip, as `Model::tip`. The value of joint k, radians or metres, is `q(k)`.
template <u32 N, class R, class Values>
__device__ __forceinline__ Frame<R> tip_of(const Chain<R>& chain, const Values& q, bool& is_valid) {
    Frame<R> axis = chain.first;
    for_each_index<N>(chain.count, [&](u32 k) {
        advance_frame<N>(chain.segments[k], q(N > 0 ? k : chain.segments[k].joint), axis, is_valid);
    });
    return axis;
}

// Computes the columns of the Jacobian into the lane, as `Model::columns`. The value of joint k, radians or metres, is `q(k)`.
// Returns the frame of the tip.
template <u32 N, class R, class Values, class L>
__device__ __forceinline__ Frame<R> columns_of(const Chain<R>& chain, const Values& q, u32 frame, L& lane, bool& is_valid) {
    if constexpr (N > 0) {
        R axes[N][3], origins[N][3];
        Frame<R> tip = chain.first;
        for_each_index<N>(N, [&](u32 k) {
#pragma unroll
            for (u32 i = 0; i < 3; ++i) {
                axes[k][i] = tip.rotation[3 * i + 2], origins[k][i] = tip.translation[i];
            }
            advance_frame<N>(chain.segments[k], q(k), tip, is_valid);
        });
#pragma unroll
        for (u32 k = 0; k < N; ++k) {
            velocity(false, axes[k], origins[k], frame, tip, lane.columns[k]);
        }
        return tip;
    } else {
        // Computes the tip, then follows the chain once more. A mimic's column is multiplied, then added to its joint's column.
        Frame<R> tip = tip_of<N>(chain, q, is_valid), axis = chain.first;
#pragma unroll 1
        for (u32 k = 0; k < chain.joints; ++k) {
#pragma unroll
            for (u32 i = 0; i < 6; ++i) {
                lane.entry(k, i) = 0;
            }
        }
        bool ignored = true;
#pragma unroll 1
        for (u32 k = 0; k < chain.count; ++k) {
            const Segment<R>& segment = chain.segments[k];
            R z[3] = {axis.rotation[2], axis.rotation[5], axis.rotation[8]}, column[6];
            velocity(segment.flags & SLIDES, z, axis.translation, frame, tip, column);
#pragma unroll
            for (u32 i = 0; i < 6; ++i) {
                R own = segment.flags & FOLLOWS ? column[i] * segment.multiplier : column[i];
                R& whole = lane.entry(segment.joint, i);
                whole = segment.flags & IS_FIRST ? own : whole + own;
            }
            advance_frame<N>(segment, q(segment.joint), axis, ignored);
        }
        return tip;
    }
}

// Decomposes a symmetric matrix into L D L^T, as `Ldl` of crates/kinematics/src/ldl.rs. The lower triangle is `a`, and becomes L. A
// pivot below `least` is set to `least`.
template <class R, u32 M> __device__ __forceinline__ void ldl_decompose(R (&a)[M][M], R least, R (&pivots)[M], R (&inverses)[M]) {
#pragma unroll
    for (u32 h = 0; h < M; ++h) {
        R column[M];
        pivots[h] = a[h][h] < least ? least : a[h][h];
        inverses[h] = (R)1 / pivots[h];
#pragma unroll
        for (u32 i = h + 1; i < M; ++i) {
            column[i] = a[i][h];
            a[i][h] = column[i] * inverses[h];
        }
#pragma unroll
        for (u32 i = h + 1; i < M; ++i) {
#pragma unroll
            for (u32 k = h + 1; k <= i; ++k) {
                a[i][k] = a[i][k] - a[i][h] * column[k];
            }
        }
    }
}

// Solves L D L^T x = y, as `Ldl::solve`; y becomes x. `inverses` are those of the pivots.
template <class R, u32 M>
__device__ __forceinline__ void ldl_solve(const R (&lower)[M][M], const R (&inverses)[M], R (&y)[M]) {
#pragma unroll
    for (u32 i = 1; i < M; ++i) {
#pragma unroll
        for (u32 k = 0; k < i; ++k) {
            y[i] = y[i] - lower[i][k] * y[k];
        }
    }
#pragma unroll
    for (u32 h = 0; h < M; ++h) {
        const u32 i = M - 1 - h;
        y[i] = y[i] * inverses[i];
#pragma unroll
        for (u32 k = i + 1; k < M; ++k) {
            y[i] = y[i] - lower[k][i] * y[k];
        }
    }
}
