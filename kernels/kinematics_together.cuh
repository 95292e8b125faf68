// Steps from one answer to the next along a trajectory, which the lanes of a group make together.

// A joint, a row of the frames, and an entry of the matrix belong to one lane. Each lane computes by itself all numbers that depend
// on the number before, such as the pivots. Every number is computed as a single lane would, and so has the same bits.
#pragma once

#include "kinematics_inverse.cuh"

// Numbers that the lanes of a group exchange.
template <class R, u32 N> struct Together {
    // Axis and origin of each joint.
    R axes[N][3];
    R origins[N][3];
    // The frame of the tip, by rows: a row of the rotation, and behind it the coordinate of the translation.
    R tip[3][4];
    // The task's rows of each joint's column of the Jacobian.
    R rows[N][POSE_ROWS];
    // The lower triangle of the matrix of a step, by rows.
    R matrix[POSE_ROWS * (POSE_ROWS + 1) / 2];
};

// Computes the axes of the joints and the frame of the tip into `together`, as `Model::tip`. The value of the joint with the lane's
// index in the group, radians, is `joint`.
template <u32 N, class R> __device__ __forceinline__ void tip_together(const Chain<R>& chain, R joint, Together<R, N>& together) {
    const u32 member = threadIdx.x % GROUP, leader = threadIdx.x % 32 - member;
    // The lane's row of the frames, with the coordinate of the translation. Lanes past the third repeat a row of the first three.
    const u32 row = member % 3;
    const R(&first)[9] = chain.first.rotation;
    R x = first[3 * row], y = first[3 * row + 1], z = first[3 * row + 2], t = chain.first.translation[row];
    R sine, cosine;
    sin_cos(joint, sine, cosine);
#pragma unroll
    for (u32 k = 0; k < N; ++k) {
        if (member < 3) together.axes[k][row] = z, together.origins[k][row] = t;
        R of_sine = shuffle(sine, leader + k), of_cosine = shuffle(cosine, leader + k);
        R a = x * of_cosine + y * of_sine, b = y * of_cosine - x * of_sine;
        const R(&next)[9] = chain.segments[k].next.rotation;
        const R(&offset)[3] = chain.segments[k].next.translation;
        t = ((a * offset[0] + b * offset[1]) + z * offset[2]) + t;
        x = (a * next[0] + b * next[3]) + z * next[6];
        y = (a * next[1] + b * next[4]) + z * next[7];
        z = (a * next[2] + b * next[5]) + z * next[8];
    }
    if (member < 3) {
        R(&own)[4] = together.tip[row];
        own[0] = x, own[1] = y, own[2] = z, own[3] = t;
    }
    __syncwarp();
}

// Makes one step of Levenberg-Marquardt, as `make_step` along a trajectory. Returns the value of the lane's joint after the step,
// radians.
template <u32 N, class R>
__device__ __forceinline__ R step_together(const Solver<R>& s, R joint, const Frame<R>& tip, const R (&error)[POSE_ROWS], R damping,
                                           Together<R, N>& together) {
    const u32 member = threadIdx.x % GROUP, own = member < N ? member : 0;
    R rows[POSE_ROWS];
    velocity(false, together.axes[own], together.origins[own], BASE, tip, rows);
    R gradient = product(rows, error);
    const bool is_held = ((joint <= s.lower[own]) & (gradient < 0)) | ((joint >= s.upper[own]) & (gradient > 0));
#pragma unroll
    for (u32 i = 0; i < POSE_ROWS; ++i) {
        rows[i] = is_held ? (R)0 : rows[i];
        if (member < N) together.rows[member][i] = rows[i];
    }
    __syncwarp();
    // The matrix has 21 entries: `entry` for each of the 16 lanes, and `other` for the 5 that are left, of the last row.
    constexpr u32 LAST = POSE_ROWS - 1, ENTRIES = POSE_ROWS * (POSE_ROWS + 1) / 2;
    const u32 row = (member >= 1) + (member >= 3) + (member >= 6) + (member >= 10) + (member >= 15);
    const u32 column = member - row * (row + 1) / 2, last_row_entry = member % (ENTRIES - GROUP);
    R entry = negative_zero<R>(), other = negative_zero<R>();
#pragma unroll
    for (u32 k = 0; k < N; ++k) {
        const R(&numbers)[POSE_ROWS] = together.rows[k];
        entry = entry + numbers[column] * numbers[row];
        other = other + numbers[last_row_entry + 1] * numbers[LAST];
    }
    together.matrix[member] = entry;
    if (member == last_row_entry) together.matrix[GROUP + last_row_entry] = other;
    __syncwarp();
    R matrix[POSE_ROWS][POSE_ROWS], pivots[POSE_ROWS], inverses[POSE_ROWS], y[POSE_ROWS];
#pragma unroll
    for (u32 i = 0; i < POSE_ROWS; ++i) {
#pragma unroll
        for (u32 h = 0; h <= i; ++h) {
            matrix[i][h] = together.matrix[i * (i + 1) / 2 + h];
        }
        matrix[i][i] = matrix[i][i] + damping;
        y[i] = error[i];
    }
    ldl_decompose(matrix, damping, pivots, inverses);
    ldl_solve(matrix, inverses, y);
    R raw_step = product(rows, y), step = is_finite_value(raw_step) ? raw_step : (R)0;
    R largest = member < N ? magnitude(step) : (R)0;
#pragma unroll
    for (u32 bits = GROUP / 2; bits > 0; bits /= 2) {
        R others = shuffle_xor(largest, bits);
        largest = others > largest ? others : largest;
    }
    R scale = largest > (R)1 ? (R)1 / largest : (R)1;
    return member < N ? clamp_to_limits(s, member, joint + step * scale) : joint;
}

// Makes steps towards a target from the answer before, as `Solver::descend`. The joint with the lane's index in the group is
// `joint`, or 0 past the last joint, and becomes the attempt's joint. All lanes of the warp call this; `runs` is the same on all
// lanes of a group.
template <u32 N, class R>
__device__ __forceinline__ Attempt<R> follow_together(const Solver<R>& s, const Target<R>& target, bool runs, R& joint,
                                                      Together<R, N>& together) {
    const u32 member = threadIdx.x % GROUP;
    const u32 group_mask = ((1u << GROUP) - 1) << (threadIdx.x % 32 - member);
    Attempt<R> attempt{};
    while (__any_sync(FULL_MASK, runs)) {
        const bool is_valid = (~__ballot_sync(FULL_MASK, magnitude(joint) <= (R)8192) & group_mask) == 0;
        tip_together<N>(s.chain, joint, together);
        Frame<R> tip;
#pragma unroll
        for (u32 i = 0; i < 3; ++i) {
#pragma unroll
            for (u32 j = 0; j < 3; ++j) {
                tip.rotation[3 * i + j] = together.tip[i][j];
            }
            tip.translation[i] = together.tip[i][3];
        }
        R error[POSE_ROWS];
        Attempt<R> measured = attempt;
        measure_error<POSE_ROWS, N>(s, target, tip, is_valid, error, measured);
        attempt = runs ? measured : attempt;
        runs &= !attempt.valid & (attempt.iterations < s.max_iterations);
        if (__any_sync(FULL_MASK, runs)) {
            R next = step_together<N>(s, joint, tip, error, s.floor + s.gain * measured.square, together);
            joint = runs ? next : joint;
            attempt.iterations += runs;
        }
    }
    return attempt;
}
