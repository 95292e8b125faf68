// The pull of an answer towards a posture of rest, bit for bit as crates/kinematics/src/inverse/posture.rs.
#pragma once

#include "kinematics_inverse.cuh"

// Moves the lane's joints towards rest in the null space of the task, as `Posture::pull`. Overwrites the lane's columns.
template <u32 M, class R, class L> __device__ __forceinline__ void pull(const Solver<R>& s, L& lane) {
    const u32 n = s.chain.joints;
    bool ignored = true;
    Frame<R> tip = columns_of<0>(s.chain, [&](u32 k) { return lane.joint(k); }, BASE, lane, ignored);
    R largest = 0;
    for_each_index<0>(n, [&](u32 k) {
        R size = magnitude(s.posture * (s.rest[k] - lane.joint(k)));
        largest = size > largest ? size : largest;
    });
    const R scale = largest > s.most_pull ? s.most_pull / largest : (R)1;
    auto desired_step = [&](u32 k) { return (s.posture * (s.rest[k] - lane.joint(k))) * scale; };
    R matrix[M][M], pivots[M], inverses[M], y[M];
#pragma unroll
    for (u32 i = 0; i < M; ++i) {
        y[i] = negative_zero<R>();
#pragma unroll
        for (u32 h = 0; h <= i; ++h) {
            matrix[i][h] = negative_zero<R>();
        }
    }
    for_each_index<0>(n, [&](u32 k) {
        R rows[M];
        weighted_rows(s, lane, k, tip, rows);
        const R desired = desired_step(k);
#pragma unroll
        for (u32 h = 0; h < M; ++h) {
            lane.entry(k, h) = rows[h];
            y[h] = y[h] + rows[h] * desired;
#pragma unroll
            for (u32 i = h; i < M; ++i) {
                matrix[i][h] = matrix[i][h] + rows[h] * rows[i];
            }
        }
    });
#pragma unroll
    for (u32 i = 0; i < M; ++i) {
        matrix[i][i] = matrix[i][i] + s.floor;
    }
    ldl_decompose(matrix, s.floor, pivots, inverses);
    ldl_solve(matrix, inverses, y);
    for_each_index<0>(n, [&](u32 k) {
        R rows[M];
#pragma unroll
        for (u32 i = 0; i < M; ++i) {
            rows[i] = lane.entry(k, i);
        }
        lane.joint(k) = clamp_to_limits(s, k, lane.joint(k) + (desired_step(k) - product(rows, y)));
    });
}

// Pulls the answer `from` towards rest, as `Solver::pull_to_rest`. The pulled joints end in the lane, and their errors in
// `attempt`. Returns false if the answer must stay as it is. Along a trajectory, `last` are the joints of the answer before; else
// it is null.
template <u32 M, class R, class L>
__device__ __forceinline__ bool pull_to_rest(const Solver<R>& s, const Target<R>& target, L& lane, const R* from, const R* last,
                                             Attempt<R>& attempt) {
    const u32 n = s.chain.joints;
    for_each_index<0>(n, [&](u32 k) { lane.joint(k) = from[k]; });
    pull<M>(s, lane);
    bool stays = !iterate<M, 0, true>(s, target, lane, true, attempt) && !iterate<M, 0, true>(s, target, lane, false, attempt);
    R before = 0, after = 0;
    for_each_index<0>(n, [&](u32 k) {
        R old_offset = from[k] - s.rest[k], new_offset = lane.joint(k) - s.rest[k];
        before = before + old_offset * old_offset;
        after = after + new_offset * new_offset;
        stays |= last != nullptr && !(magnitude(lane.joint(k) - last[k]) <= s.max_joint_step);
    });
    return !stays & (after <= before);
}
