// Joints for poses, bit for bit as crates/kinematics/src/inverse.
#pragma once

#include "kinematics_chain.cuh"

// The most lanes that work on one target; each tries a start.
constexpr u32 GROUP = 16;
constexpr u32 FULL_MASK = 0xffffffff;

// Number of rows of a task: the whole pose; the position and the direction of the tool's z axis; the position alone.
constexpr u32 POSE_ROWS = 6;
constexpr u32 AXIS_ROWS = 5;
constexpr u32 POSITION_ROWS = 3;

enum Select : u32 { FIRST, NEAREST };

template <class R> struct Solver {
    Chain<R> chain;
    R lower[MOST_JOINTS];
    R upper[MOST_JOINTS];
    R weights[6];
    // Squares of the tolerances.
    R position;
    R rotation;
    // The damping of a step is `floor + gain |e|^2`.
    R floor;
    R gain;
    // Largest change of a joint along a trajectory.
    R max_joint_step;
    // The part of the way to `rest` by which an answer is pulled, 0 for no pull, and the most that a joint is pulled.
    R posture;
    R most_pull;
    R rest[MOST_JOINTS];
    // A bit for each joint: `turns` if a full turn leads to the same pose, `holds` if it is held at a limit that a step would pass.
    u32 turns;
    u32 holds;
    u32 has_weights;
    u32 max_iterations;
    u32 select;
    // Number of starts, and the table with a row of joints for each.
    u32 starts;
    const R* table;
};

// The answers: joints [targets, n], and one element of each other array for each target.
template <class R> struct Answers {
    R* joints;
    R* position_error;
    R* rotation_error;
    u8* valid;
    i64* start;
    i64* iterations;
};

// A pose to be reached, with a unit quaternion.
template <class R> struct Target {
    R position[3];
    R rotation[4];
};

// Loads the numbers of a pose: x y z, metres, and qx qy qz qw.
template <class R> __device__ __forceinline__ void read_pose(const R* from, R (&pose)[7]) {
#pragma unroll
    for (u32 i = 0; i < 7; ++i) {
        pose[i] = __ldg(from + i);
    }
}

// Converts a pose to a target, as `Target::new`. Returns false if it is not finite or over 1e6 m away, or if the norm of its
// quaternion is not 1 to within 1 %.
template <class R> __device__ __forceinline__ bool make_target(const R (&pose)[7], Target<R>& target) {
    bool is_usable = true;
#pragma unroll
    for (u32 i = 0; i < 3; ++i) {
        target.position[i] = pose[i];
        is_usable &= magnitude(pose[i]) <= (R)1e6;
    }
    R q[4] = {pose[3], pose[4], pose[5], pose[6]};
    R square = dot4(q, q);
    R inverse = (R)1 / square_root(square);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        target.rotation[i] = q[i] * inverse;
    }
    return is_usable & (square >= (R)0.9801) & (square <= (R)1.0201);
}

// Brings a value within the limits of a joint along a trajectory, where a full turn would be a jump, as `inside` of
// `Bounds::along`. Returns the value itself or the limit, radians or metres.
template <class R> __device__ __forceinline__ R clamp_to_limits(const Solver<R>& s, u32 joint, R value) {
    const R lower = s.lower[joint], upper = s.upper[joint];
    return value > upper ? upper : value < lower ? lower : value;
}

// Brings a value within the limits of a joint, as `Bounds::inside`. Returns the value itself, the value a full turn from it, or the
// limit.
template <class R> __device__ __forceinline__ R inside(const Solver<R>& s, u32 joint, R value) {
    const R turn = (R)6.283185307179586, lower = s.lower[joint], upper = s.upper[joint];
    bool is_above = value > upper, is_below = value < lower;
    R turned = value + (is_above ? -turn : turn), limit = is_above ? upper : lower;
    bool turns = (s.turns >> joint & 1) & (turned >= lower) & (turned <= upper);
    return is_above | is_below ? (turns ? turned : limit) : value;
}

// Brings a caller's value within the limits of a joint, as `Bounds::admit`: to a limit that it is past by up to 0.1 (rad or m),
// else as `inside` does.
template <class R> __device__ __forceinline__ R admitted(const Solver<R>& s, u32 joint, R value) {
    R limited = clamp_to_limits(s, joint, value);
    return magnitude(value - limited) <= (R)0.1 ? limited : inside(s, joint, value);
}

// Result of the steps from a start.
template <class R> struct Attempt {
    // Squares of the errors, which are compared with the tolerances.
    R position;
    R rotation;
    // The sum of the squared and weighted errors.
    R square;
    u32 iterations;
    bool valid;
};

// Sums the squares of the linear rows of the error, and of its angular rows.
template <class R, u32 M> __device__ __forceinline__ void measure(const R (&error)[M], R& position, R& rotation) {
    position = (error[0] * error[0] + error[1] * error[1]) + error[2] * error[2];
    rotation = 0;
    if constexpr (M > 3) {
        rotation = error[3] * error[3];
#pragma unroll
        for (u32 i = 4; i < M; ++i) {
            rotation = rotation + error[i] * error[i];
        }
    }
}

// Computes the angular rows of the error, behind the three linear ones, as `Rows::angular_error`. Their length is 2 sin(angle / 2).
template <class R, u32 M>
__device__ __forceinline__ void angular_error(const Target<R>& target, const Frame<R>& tip, R (&error)[M]) {
    const R(&a)[4] = target.rotation;
    if constexpr (M == POSE_ROWS) {
        R b[4];
        quaternion(tip, b);
        R two = dot4(a, b) < 0 ? (R)-2 : (R)2;
        error[3] = two * (((a[0] * b[3] - a[3] * b[0]) - a[1] * b[2]) + a[2] * b[1]);
        error[4] = two * (((a[1] * b[3] - a[3] * b[1]) - a[2] * b[0]) + a[0] * b[2]);
        error[5] = two * (((a[2] * b[3] - a[3] * b[2]) - a[0] * b[1]) + a[1] * b[0]);
    }
    if constexpr (M == AXIS_ROWS) {
        const R one = (R)1, two = (R)2, least = (R)1e-6;
        R target_axis[3] = {two * (a[0] * a[2] + a[1] * a[3]), two * (a[1] * a[2] - a[0] * a[3]),
                       one - two * (a[0] * a[0] + a[1] * a[1])};
        R axis_in_tip[3];
        to_tool(tip, target_axis, axis_in_tip);
        R one_plus_cosine = one + axis_in_tip[2];
        R scale = square_root(two / (one_plus_cosine > least ? one_plus_cosine : least));
        error[3] = one_plus_cosine > least ? -axis_in_tip[1] * scale : two;
        error[4] = one_plus_cosine > least ? axis_in_tip[0] * scale : (R)0;
    }
}

// Takes the task's rows from a column of the Jacobian, as `Rows::rows`.
template <class R, u32 M>
__device__ __forceinline__ void task_rows(const Frame<R>& tip, const R (&column)[6], R (&rows)[M]) {
#pragma unroll
    for (u32 i = 0; i < (M == AXIS_ROWS ? 3 : M); ++i) {
        rows[i] = column[i];
    }
    if constexpr (M == AXIS_ROWS) {
        R angular[3] = {column[3], column[4], column[5]}, rotated[3];
        to_tool(tip, angular, rotated);
        rows[3] = rotated[0], rows[4] = rotated[1];
    }
}

// Computes the task's rows of a joint's column, times their weights.
template <class R, u32 M, class L>
__device__ __forceinline__ void weighted_rows(const Solver<R>& s, const L& lane, u32 joint, const Frame<R>& tip, R (&rows)[M]) {
    R whole[6];
#pragma unroll
    for (u32 i = 0; i < 6; ++i) {
        whole[i] = lane.entry(joint, i);
    }
    task_rows(tip, whole, rows);
    if (s.has_weights) {
#pragma unroll
        for (u32 i = 0; i < M; ++i) {
            rows[i] = rows[i] * s.weights[i];
        }
    }
}

// Computes the inner product, summed from the first component on, as `product` of crates/kinematics/src/inverse/step.rs.
template <class R, u32 M> __device__ __forceinline__ R product(const R (&a)[M], const R (&b)[M]) {
    R sum = a[0] * b[0];
#pragma unroll
    for (u32 i = 1; i < M; ++i) {
        sum = sum + a[i] * b[i];
    }
    return sum;
}

// Makes one step of Levenberg-Marquardt, as `Bounds::step`; with `ALONG` as `step` of `Bounds::along`. The lane has the columns of
// the whole Jacobian, which the step overwrites.
template <u32 M, u32 N, bool ALONG, class R, class L>
__device__ __forceinline__ void make_step(const Solver<R>& s, L& lane, const Frame<R>& tip, const R (&error)[M], R damping) {
    R matrix[M][M];
#pragma unroll
    for (u32 i = 0; i < M; ++i) {
#pragma unroll
        for (u32 h = 0; h <= i; ++h) {
            matrix[i][h] = negative_zero<R>();
        }
    }
    const u32 joints = s.chain.joints;
    for_each_index<N>(joints, [&](u32 k) {
        R rows[M];
        if constexpr (N == 0) {
            weighted_rows(s, lane, k, tip, rows);
        } else {
            task_rows(tip, lane.columns[k], rows);
        }
        R gradient = product(rows, error), q = lane.joint(k);
        bool is_held = ((q <= s.lower[k]) & (gradient < 0)) | ((q >= s.upper[k]) & (gradient > 0));
        is_held &= ALONG || (s.holds >> k & 1);
#pragma unroll
        for (u32 i = 0; i < M; ++i) {
            rows[i] = is_held ? (R)0 : rows[i];
            lane.entry(k, i) = rows[i];
        }
#pragma unroll
        for (u32 h = 0; h < M; ++h) {
#pragma unroll
            for (u32 i = h; i < M; ++i) {
                matrix[i][h] = matrix[i][h] + rows[h] * rows[i];
            }
        }
    });
    R pivots[M], inverses[M], y[M];
#pragma unroll
    for (u32 i = 0; i < M; ++i) {
        matrix[i][i] = matrix[i][i] + damping;
        y[i] = error[i];
    }
    ldl_decompose(matrix, damping, pivots, inverses);
    ldl_solve(matrix, inverses, y);
    R largest = 0;
    for_each_index<N>(joints, [&](u32 k) {
        R rows[M];
#pragma unroll
        for (u32 i = 0; i < M; ++i) {
            rows[i] = lane.entry(k, i);
        }
        R raw_step = product(rows, y), step = is_finite_value(raw_step) ? raw_step : (R)0, size = magnitude(step);
        largest = size > largest ? size : largest;
        lane.entry(k, 0) = step;
    });
    R scale = largest > (R)1 ? (R)1 / largest : (R)1;
    for_each_index<N>(joints, [&](u32 k) {
        R value = lane.joint(k) + lane.entry(k, 0) * scale;
        lane.joint(k) = ALONG ? clamp_to_limits(s, k, value) : inside(s, k, value);
    });
}

// Measures how far a tip is from a target, as `Solver::measure`. `error` becomes the weighted rows; `is_valid` is false for joints
// out of range.
template <u32 M, u32 N, class R>
__device__ __forceinline__ void measure_error(const Solver<R>& s, const Target<R>& target, const Frame<R>& tip, bool is_valid,
                                              R (&error)[M], Attempt<R>& attempt) {
    R position, rotation;
#pragma unroll
    for (u32 i = 0; i < 3; ++i) {
        error[i] = target.position[i] - tip.translation[i];
    }
    angular_error(target, tip, error);
    const bool has_weights = N == 0 && s.has_weights;
    if (has_weights) {
#pragma unroll
        for (u32 i = 0; i < M; ++i) {
            error[i] = s.weights[i] == 0 ? s.weights[i] : error[i];
        }
    }
    measure(error, position, rotation);
    attempt.position = position, attempt.rotation = rotation;
    if (has_weights) {
#pragma unroll
        for (u32 i = 0; i < M; ++i) {
            error[i] = error[i] * s.weights[i];
        }
        measure(error, position, rotation);
    }
    attempt.square = position + rotation;
    attempt.valid = is_valid & (attempt.position <= s.position) & (attempt.rotation <= s.rotation);
}

// Makes one round of `Solver::descend`. Measures how far the lane's joints are from a target, and returns true if that is within
// the tolerances. If not, makes a step if `may_step`: with `ALONG` from an answer, as along a trajectory, else from a start.
template <u32 M, u32 N, bool ALONG = false, class R, class L>
__device__ __forceinline__ bool iterate(const Solver<R>& s, const Target<R>& target, L& lane, bool may_step, Attempt<R>& attempt) {
    bool is_valid = true;
    Frame<R> tip = columns_of<N>(s.chain, [&](u32 k) { return lane.joint(k); }, BASE, lane, is_valid);
    R error[M];
    measure_error<M, N>(s, target, tip, is_valid, error, attempt);
    if (!attempt.valid && may_step) {
        make_step<M, N, ALONG>(s, lane, tip, error, s.floor + s.gain * attempt.square);
    }
    return attempt.valid;
}

// Puts the joints of a start into the lane: a row of the table, or for the first start the caller's row `seed`, if it is not null,
// as `Solver::first_start`. Returns false if that row is not finite.
template <u32 N, class R, class L>
__device__ __forceinline__ bool take_start(const Solver<R>& s, u32 start, const R* seed, L& lane) {
    bool is_usable = true;
    if (seed != nullptr && start == 0) {
        for_each_index<N>(s.chain.joints, [&](u32 k) {
            R value = __ldg(seed + k);
            is_usable &= is_finite_value(value);
            lane.joint(k) = admitted(s, k, value);
        });
    } else {
        const R* from = s.table + start * s.chain.joints;
        for_each_index<N>(s.chain.joints, [&](u32 k) { lane.joint(k) = __ldg(from + k); });
    }
    return is_usable;
}

// False if the caller's row for the first start, `seed`, is not finite. A null pointer stands for the table's first start.
template <class R> __device__ __forceinline__ bool is_seed_finite(const Solver<R>& s, const R* seed) {
    bool is_usable = true;
    for (u32 k = 0; seed != nullptr && k < s.chain.joints; ++k) {
        is_usable &= is_finite_value(seed[k]);
    }
    return is_usable;
}

// Writes the errors of an answer: metres, and the chord 2 sin(angle / 2), radians.
template <class R>
__device__ __forceinline__ void write_errors(const Answers<R>& answers, u64 target, const Attempt<R>& attempt) {
    answers.position_error[target] = square_root(attempt.position);
    answers.rotation_error[target] = square_root(attempt.rotation);
}

// Writes an answer to a target without the joints.
template <class R>
__device__ __forceinline__ void write_result(const Answers<R>& answers, u64 target, const Attempt<R>& attempt, u32 start) {
    write_errors(answers, target, attempt);
    answers.valid[target] = attempt.valid;
    answers.start[target] = start;
    answers.iterations[target] = attempt.iterations;
}

// Writes the answer to a target, with the lane's joints.
template <u32 N, class R, class L>
__device__ __forceinline__ void write_answer(const Solver<R>& s, const Answers<R>& answers, u64 target, const L& lane,
                                             const Attempt<R>& attempt, u32 start) {
    const u32 n = N > 0 ? N : s.chain.joints;
    for_each_index<N>(n, [&](u32 k) { answers.joints[target * n + k] = lane.joint(k); });
    write_result(answers, target, attempt, start);
}

// Writes the answer for a target or a start that can't be used, as `Attempt::unusable`.
template <class R> __device__ __forceinline__ void write_unusable(const Solver<R>& s, const Answers<R>& answers, u64 target) {
    const u32 n = s.chain.joints;
    const R none = quiet_nan((R)0);
    for (u32 k = 0; k < n; ++k) {
        answers.joints[target * n + k] = none;
    }
    answers.position_error[target] = answers.rotation_error[target] = none;
    answers.valid[target] = 0;
    answers.start[target] = answers.iterations[target] = 0;
}

// Reads a value of another lane: `shuffle_xor` of the lane whose number differs in `bits`, `shuffle` of the lane with that number.
// All lanes of the warp call this.
__device__ __forceinline__ u32 shuffle_xor(u32 value, u32 bits) { return __shfl_xor_sync(FULL_MASK, value, bits); }
__device__ __forceinline__ float shuffle_xor(float value, u32 bits) {
    return __uint_as_float(__shfl_xor_sync(FULL_MASK, __float_as_uint(value), bits));
}
__device__ __forceinline__ double shuffle_xor(double value, u32 bits) {
    u64 result = __shfl_xor_sync(FULL_MASK, (u64)__double_as_longlong(value), bits);
    return __longlong_as_double((i64)result);
}
__device__ __forceinline__ float shuffle(float value, u32 lane) {
    return __uint_as_float(__shfl_sync(FULL_MASK, __float_as_uint(value), lane));
}
__device__ __forceinline__ double shuffle(double value, u32 lane) {
    return __longlong_as_double((i64)__shfl_sync(FULL_MASK, (u64)__double_as_longlong(value), lane));
}

// The best attempt of a group so far, which is the same on all of its lanes.
template <class R> struct Best {
    // The number by which attempts are compared: the squared distance from `near` for a valid attempt, else the error.
    R least;
    bool valid;
    bool is_none;
};

// The starts that a group tries, from <= s < to, and the number of the group's lanes.
struct Starts {
    u32 from;
    u32 to;
    u32 width;
};

// Tries starts, each lane of a group one at a time, and keeps the best attempt, as `Solver::select`. All lanes of the warp call
// this. A group with nothing to do has a false `wants` on all lanes. For `NEAREST`, distances are measured from the joints `near`,
// in shared memory. Calls `keep(attempt, start)` on the lane with a better attempt, which has the attempt's joints.
template <u32 M, u32 N, class R, class L, class Keep>
__device__ __forceinline__ void try_starts(const Solver<R>& s, const Target<R>& target, L& lane, const Starts& starts,
                                           const R* seed, u32 select, const R* near, bool wants, Best<R>& best, const Keep& keep) {
    const u32 lane_index = threadIdx.x % 32, member = lane_index % starts.width;
    const u32 group_mask = ((1u << starts.width) - 1) << (lane_index - member);
    const R infinity = (R)__uint_as_float(0x7f800000);
    for (u32 base = starts.from; __any_sync(FULL_MASK, wants && base < starts.to); base += starts.width) {
        const u32 start = base + member;
        bool takes_part = wants && start < starts.to, runs = takes_part;
        if (runs) {
            take_start<N>(s, start, seed, lane);
        }
        Attempt<R> attempt{};
        attempt.valid = false;
        attempt.iterations = 0;
        while (__any_sync(FULL_MASK, runs)) {
            if (runs) {
                bool may_step = attempt.iterations < s.max_iterations;
                bool is_reached = iterate<M, N>(s, target, lane, may_step, attempt);
                runs = !is_reached && may_step;
                attempt.iterations += runs;
            }
            u32 reached = __ballot_sync(FULL_MASK, attempt.valid) & group_mask,
                running_lanes = __ballot_sync(FULL_MASK, runs) & group_mask;
            // Starts behind one that leads to an answer do not matter.
            bool is_decided = select == FIRST && reached != 0 && (running_lanes & ((reached & (0u - reached)) - 1)) == 0;
            runs &= !is_decided;
        }
        u32 reached = __ballot_sync(FULL_MASK, attempt.valid) & group_mask;
        bool competes = reached != 0 ? attempt.valid : takes_part;
        R key = attempt.square;
        if (reached != 0) {
            key = 0;
            if (select == NEAREST && attempt.valid) {
                for_each_index<N>(s.chain.joints, [&](u32 k) {
                    R difference = lane.joint(k) - near[k];
                    key = key + difference * difference;
                });
            }
        }
        // A NaN error counts as the best from the first attempt, and as the worst from any other.
        key = key == key ? key : start == 0 && best.is_none ? -infinity : infinity;
        key = competes ? key : infinity;
        R least = key;
        u32 best_member = competes ? member : GROUP;
#pragma unroll 1
        for (u32 bits = starts.width / 2; bits > 0; bits /= 2) {
            R other = shuffle_xor(least, bits);
            u32 other_member = shuffle_xor(best_member, bits);
            bool is_better = (other < least) | ((other == least) & (other_member < best_member));
            least = is_better ? other : least;
            best_member = is_better ? other_member : best_member;
        }
        bool is_better = best.is_none | ((reached != 0) & !best.valid);
        is_better |= (least < best.least) & ((reached != 0) == best.valid);
        if (wants && base < starts.to && is_better) {
            best.least = least, best.valid = reached != 0, best.is_none = false;
            if (member == best_member) {
                keep(attempt, start);
            }
        }
        wants &= !(select == FIRST && best.valid);
        // The next lane may overwrite what `keep` put into shared memory.
        __syncwarp();
    }
}
