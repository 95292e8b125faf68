// Poses and Jacobians of joints, and joints for poses, for many rows, bit for bit as crates/kinematics.

// Kernels `..._any` are for every chain and every task. Kernels `..._6` and `..._7` are for plain chains of 6 or 7 joints, which
// all turn, in the order of the chain and without mimics. Those that find joints are for whole poses without weights and posture.

#include "kinematics_posture.cuh"
#include "kinematics_together.cuh"

template <class R> struct PosesParams {
    Chain<R> chain;
    // Joints [rows, n], and poses [rows, 7], or for links [rows, links, 7].
    const R* joints;
    R* poses;
    // The links, in the order of the segments above them; null: the tip alone.
    const Link<R>* links;
    u64 rows;
    u32 link_count;
    u32 unused;
};

template <class R> struct JacobiansParams {
    Chain<R> chain;
    // Joints [rows, n], and for twists the joints' velocities [rows, n].
    const R* joints;
    const R* velocities;
    // Jacobians [rows, 6, n], twists [rows, 6] or manipulabilities [rows].
    R* out;
    u64 rows;
    u32 frame;
    u32 unused;
};

template <class R> struct InverseParams {
    Solver<R> solver;
    // Poses [targets, 7], and a first start for each target, `start_stride` numbers apart; null: the first start of the table.
    const R* targets;
    const R* starts;
    Answers<R> answers;
    // For groups: the list of the targets to be solved, and its length; null: all targets.
    const u32* list;
    const u32* list_count;
    // The targets without an answer from the starts below `to`, their number, and the least error of each; null: not wanted.
    u32* left;
    u32* left_count;
    R* least;
    // For lanes: the number of targets that they have taken.
    u32* next;
    u32 targets_count;
    u32 start_stride;
    // The starts that groups try: from <= s < to.
    u32 from;
    u32 to;
    // For groups: the number of lanes of a group, a power of two up to `GROUP`.
    u32 width;
    u32 unused;
};

template <class R> struct PathParams {
    Solver<R> solver;
    // Poses [trajectories, length, 7], and a first start for each trajectory, `start_stride` numbers apart; null: the first start
    // of the table.
    const R* targets;
    const R* starts;
    Answers<R> answers;
    i64* branches;
    u64 length;
    u32 trajectories;
    u32 start_stride;
};

// ---- Poses ----

constexpr u32 POSES_BLOCK = 128;

// Computes the pose of the tip for a row of joints, as `Model::pose`. A thread has a row.
template <class R, u32 N> __device__ __forceinline__ void poses(const PosesParams<R>& p) {
    const u64 row = (u64)blockIdx.x * POSES_BLOCK + threadIdx.x;
    if (row >= p.rows) return;
    const R* joints = p.joints + row * p.chain.joints;
    bool is_valid = true;
    Frame<R> tip = tip_of<N>(p.chain, [&](u32 k) { return __ldg(joints + k); }, is_valid);
    write_pose(tip, is_valid, p.poses + row * 7);
}

constexpr u32 LINKS_BLOCK = 64;
// Number of links, at consecutive places of a row, whose poses a block writes together.
constexpr u32 LINKS_AT_A_TIME = 8;
// Stride of the rows in shared memory. It is odd, so that no two lanes use one bank.
constexpr u32 LINKS_STRIDE = 7 * LINKS_AT_A_TIME + 1;

// Computes the poses of links, as `Model::links`. A warp has 32 rows. The poses of a row are written side by side from shared
// memory: lanes by themselves would write scattered pieces of 28 bytes.
template <class R> __device__ __forceinline__ void links(const PosesParams<R>& p) {
    __shared__ R numbers[LINKS_BLOCK / 32][32 * LINKS_STRIDE];
    const u32 lane = threadIdx.x % 32;
    const u64 first = (u64)blockIdx.x * LINKS_BLOCK + threadIdx.x / 32 * 32;
    if (first >= p.rows) return;
    const u32 rows = (u32)min((u64)32, p.rows - first);
    const u32 place = blockIdx.y * LINKS_AT_A_TIME, width = 7 * min(LINKS_AT_A_TIME, p.link_count - place);
    const R* joints = p.joints + (first + min(lane, rows - 1)) * p.chain.joints;
    R* stage = numbers[threadIdx.x / 32];
    auto stage_pose = [&](const Frame<R>& frame, u32 of_place) {
        if (of_place - place < LINKS_AT_A_TIME) write_pose(frame, true, stage + lane * LINKS_STRIDE + 7 * (of_place - place));
    };
    u32 next = 0;
    for (; next < p.link_count && p.links[next].segments == 0; ++next) {
        stage_pose(p.links[next].frame, p.links[next].place);
    }
    bool is_valid = true;
    Frame<R> axis = p.chain.first;
#pragma unroll 1
    for (u32 k = 0; k < p.chain.count; ++k) {
        Frame<R> moved = advance_frame<0>(p.chain.segments[k], __ldg(joints + p.chain.segments[k].joint), axis, is_valid);
        for (; next < p.link_count && p.links[next].segments == k + 1; ++next) {
            stage_pose(compose(moved, p.links[next].frame), p.links[next].place);
        }
    }
    const u32 valid = __ballot_sync(FULL_MASK, is_valid);
    __syncwarp();
    const R none = quiet_nan((R)0);
    R* out = p.poses + (first * p.link_count + place) * 7;
#pragma unroll 4
    for (u32 row = 0; row < rows; ++row) {
        for (u32 i = lane; i < width; i += 32) {
            out[(u64)row * p.link_count * 7 + i] = valid >> row & 1 ? stage[row * LINKS_STRIDE + i] : none;
        }
    }
}

#define POSES(NAME, R, BLOCK, BODY)                                                                                    \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                \
        kinematics_##NAME(const __grid_constant__ PosesParams<R> params) {                                             \
        wait_for_previous();                                                                                           \
        BODY(params);                                                                                                  \
    }
#define POSES_OF(N)                                                                                                    \
    POSES(poses_##N##_f32, float, POSES_BLOCK, (poses<float, N>))                                                      \
    POSES(poses_##N##_f64, double, POSES_BLOCK, (poses<double, N>))
POSES_OF(6)
POSES_OF(7)
POSES(poses_any_f32, float, POSES_BLOCK, (poses<float, 0>))
POSES(poses_any_f64, double, POSES_BLOCK, (poses<double, 0>))
POSES(links_f32, float, LINKS_BLOCK, links<float>)
POSES(links_f64, double, LINKS_BLOCK, links<double>)

// ---- Jacobians, twists and manipulability ----

enum Product : u32 { JACOBIAN, TWIST, MANIPULABILITY };

constexpr u32 JACOBIANS_BLOCK = 64;
// Threads of a block for chains of any length, whose columns lie in shared memory.
constexpr u32 JACOBIANS_ANY_BLOCK = 32;

// 16 bytes that are written at once.
struct alignas(16) Chunk {
    u32 words[4];
};

// Computes the Jacobians of a plain chain, as `Model::jacobian`. A warp writes its 32 rows from shared memory in chunks, so `out`
// is aligned to them.
template <class R, u32 N> __device__ __forceinline__ void plain_jacobians(const JacobiansParams<R>& p) {
    constexpr u32 WIDTH = 6 * N, CHUNKS = 32 * WIDTH * sizeof(R) / 16;
    struct alignas(2 * sizeof(R)) Pair {
        R a, b;
    };
    __shared__ __align__(16) R numbers[JACOBIANS_BLOCK / 32][32 * WIDTH];
    const u32 index = threadIdx.x % 32;
    const u64 first = (u64)blockIdx.x * JACOBIANS_BLOCK + threadIdx.x / 32 * 32;
    if (first >= p.rows) return;
    const u32 rows = (u32)min((u64)32, p.rows - first);
    const R* joints = p.joints + (first + min(index, rows - 1)) * N;
    R* stage = numbers[threadIdx.x / 32];
    const R none = quiet_nan((R)0);
    bool is_valid = true;
    Lane<R, N> lane;
    columns_of<N>(p.chain, [&](u32 k) { return __ldg(joints + k); }, p.frame, lane, is_valid);
    // Written in pairs. For 7 joints the distance from lane to lane is an odd number of pairs, so that no two lanes use one bank.
#pragma unroll
    for (u32 i = 0; i < WIDTH; i += 2) {
        Pair pair{lane.columns[i % N][i / N], lane.columns[(i + 1) % N][(i + 1) / N]};
        ((Pair*)stage)[index * (WIDTH / 2) + i / 2] = is_valid ? pair : Pair{none, none};
    }
    __syncwarp();
    R* out = p.out + first * WIDTH;
    if (rows == 32) {
#pragma unroll
        for (u32 i = 0; i < (CHUNKS + 31) / 32; ++i) {
            if (i * 32 + index < CHUNKS) ((Chunk*)out)[i * 32 + index] = ((const Chunk*)stage)[i * 32 + index];
        }
    } else {
        for (u32 i = index; i < rows * WIDTH; i += 32) {
            out[i] = stage[i];
        }
    }
}

// Stride of the numbers of a lane in shared memory. It lets no two lanes of a warp use one bank, and no two numbers of a row, which
// are written side by side.
constexpr u32 WARP_STRIDE = 33;

// Computes the manipulability, as `Model::manipulability`: the root of the product of the pivots of J J^T or J^T J, whichever has
// the smaller order.
template <class R> __device__ __forceinline__ R manipulability(u32 joints, const SharedLane<R, WARP_STRIDE>& lane) {
    R matrix[6][6], pivots[6], inverses[6];
#pragma unroll
    for (u32 i = 0; i < 6; ++i) {
#pragma unroll
        for (u32 h = 0; h <= i; ++h) {
            matrix[i][h] = negative_zero<R>();
        }
    }
    // J J^T is a sum over the joints of the products of their 6 numbers. J^T J is a sum over the 6 rows of the joints' products.
    const bool has_few_joints = joints < 6;
#pragma unroll 1
    for (u32 k = 0; k < (has_few_joints ? 6 : joints); ++k) {
        R numbers[6];
#pragma unroll
        for (u32 i = 0; i < 6; ++i) {
            numbers[i] = !has_few_joints ? lane.entry(k, i) : i < joints ? lane.entry(i, k) : (R)0;
        }
#pragma unroll
        for (u32 h = 0; h < 6; ++h) {
#pragma unroll
            for (u32 i = h; i < 6; ++i) {
                matrix[i][h] = matrix[i][h] + numbers[h] * numbers[i];
            }
        }
    }
    // Puts a 1 on the diagonal for each of 6 joints that the chain does not have.
#pragma unroll
    for (u32 i = 0; i < 6; ++i) {
        matrix[i][i] = i < joints ? matrix[i][i] : (R)1;
    }
    ldl_decompose(matrix, (R)0, pivots, inverses);
    bool is_regular = true;
    R determinant = (R)1;
#pragma unroll
    for (u32 i = 0; i < 6; ++i) {
        is_regular &= pivots[i] > 0;
        determinant = determinant * pivots[i];
    }
    return is_regular ? square_root(determinant) : (R)0;
}

// Computes Jacobians, twists or manipulabilities of any chain, as `Model::jacobian`, `twist` and `manipulability`. A lane has a
// row.
template <class R, u32 PRODUCT> __device__ __forceinline__ void any_jacobians(const JacobiansParams<R>& p) {
    __shared__ R numbers[6 * MOST_JOINTS * WARP_STRIDE];
    const u32 index = threadIdx.x, n = p.chain.joints;
    const u64 first = (u64)blockIdx.x * JACOBIANS_ANY_BLOCK;
    const u32 rows = (u32)min((u64)32, p.rows - first);
    const u64 row = first + min(index, rows - 1);
    const bool is_own = index < rows;
    SharedLane<R, WARP_STRIDE> lane{nullptr, numbers + index};
    const R* joints = p.joints + row * n;
    const R none = quiet_nan((R)0);
    bool is_valid = true;
    columns_of<0>(p.chain, [&](u32 k) { return __ldg(joints + k); }, p.frame, lane, is_valid);
    if constexpr (PRODUCT == TWIST) {
        R sums[6];
#pragma unroll
        for (u32 i = 0; i < 6; ++i) {
            sums[i] = negative_zero<R>();
        }
#pragma unroll 1
        for (u32 k = 0; k < n; ++k) {
            R speed = __ldg(p.velocities + row * n + k);
            is_valid &= is_finite_value(speed);
#pragma unroll
            for (u32 i = 0; i < 6; ++i) {
                sums[i] = sums[i] + lane.entry(k, i) * speed;
            }
        }
#pragma unroll
        for (u32 i = 0; i < 6; ++i) {
            is_valid &= is_finite_value(sums[i]);
        }
#pragma unroll
        for (u32 i = 0; i < 6; ++i) {
            if (is_own) p.out[row * 6 + i] = is_valid ? sums[i] : none;
        }
    } else if constexpr (PRODUCT == MANIPULABILITY) {
        R value = manipulability(n, lane);
        if (is_own) p.out[row] = is_valid ? value : none;
    } else {
#pragma unroll 1
        for (u32 i = 0; !is_valid && i < 6 * n; ++i) {
            lane.entry(0, i) = none;
        }
        __syncwarp();
        R* out = p.out + first * 6 * n;
        for (u32 i = index; i < 6 * n; i += 32) {
            const R* from = numbers + (6 * (i % n) + i / n) * WARP_STRIDE;
            for (u32 r = 0; r < rows; ++r) {
                out[r * 6 * n + i] = from[r];
            }
        }
    }
}

#define JACOBIANS(NAME, R, BLOCK, BODY)                                                                                \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                \
        kinematics_##NAME(const __grid_constant__ JacobiansParams<R> params) {                                         \
        wait_for_previous();                                                                                           \
        BODY(params);                                                                                                  \
    }
#define JACOBIANS_OF(N)                                                                                                \
    JACOBIANS(jacobians_##N##_f32, float, JACOBIANS_BLOCK, (plain_jacobians<float, N>))                                \
    JACOBIANS(jacobians_##N##_f64, double, JACOBIANS_BLOCK, (plain_jacobians<double, N>))
#define ANY_JACOBIANS(NAME, WHAT)                                                                                      \
    JACOBIANS(NAME##_any_f32, float, JACOBIANS_ANY_BLOCK, (any_jacobians<float, WHAT>))                                \
    JACOBIANS(NAME##_any_f64, double, JACOBIANS_ANY_BLOCK, (any_jacobians<double, WHAT>))
JACOBIANS_OF(6)
JACOBIANS_OF(7)
ANY_JACOBIANS(jacobians, JACOBIAN)
ANY_JACOBIANS(twists, TWIST)
ANY_JACOBIANS(manipulabilities, MANIPULABILITY)

// ---- Joints for poses ----

constexpr u32 INVERSE_BLOCK = 64;
// Threads of a block for chains of any length, whose joints and columns lie in shared memory.
constexpr u32 INVERSE_ANY_BLOCK = 32;

// Memory for the joints and columns of a block's lanes: registers, or shared memory. `lane` returns those of this thread.
template <class R, u32 N> struct Block {
    static constexpr u32 THREADS = INVERSE_BLOCK;
    __device__ __forceinline__ Lane<R, N> lane() { return Lane<R, N>{}; }
};
template <class R> struct Block<R, 0> {
    static constexpr u32 THREADS = INVERSE_ANY_BLOCK;
    R joints[MOST_JOINTS * THREADS];
    R columns[6 * MOST_JOINTS * THREADS];
    __device__ __forceinline__ SharedLane<R, THREADS> lane() { return {joints + threadIdx.x, columns + threadIdx.x}; }
};

// Returns the caller's first start for target or trajectory i: a row of joints; null without one.
template <class R> __device__ __forceinline__ const R* seed_of(const R* starts, u32 stride, u64 i) {
    return starts == nullptr ? nullptr : starts + stride * i;
}

// Solves targets by single lanes, as `Solver::solve`, for `FIRST` alone. A lane tries the first start of a target, then takes the
// next target: no lane waits for the slowest lane of its warp.
template <class R, u32 M, u32 N> __device__ __forceinline__ void inverse_lanes(const InverseParams<R>& p) {
    __shared__ Block<R, N> block;
    auto lane = block.lane();
    const u32 index = threadIdx.x % 32;
    u32 target_index = 0;
    bool is_busy = false, is_done = false;
    Target<R> target{};
    Attempt<R> attempt{};
    for (;;) {
        const u32 idle_lanes = __ballot_sync(FULL_MASK, !is_busy && !is_done);
        if (idle_lanes != 0) {
            const u32 leader = (u32)__ffs((int)idle_lanes) - 1;
            u32 base = 0;
            if (index == leader) base = atomicAdd(p.next, (u32)__popc(idle_lanes));
            base = __shfl_sync(FULL_MASK, base, leader);
            if (idle_lanes >> index & 1) {
                target_index = base + (u32)__popc(idle_lanes & ((1u << index) - 1));
                is_done = target_index >= p.targets_count;
                if (!is_done) {
                    const R* seed = seed_of(p.starts, p.start_stride, target_index);
                    R pose[7];
                    read_pose(p.targets + (u64)target_index * 7, pose);
                    is_busy = make_target(pose, target);
                    is_busy &= take_start<N>(p.solver, 0, seed, lane);
                    attempt.iterations = 0;
                    if (!is_busy) write_unusable(p.solver, p.answers, target_index);
                }
            }
            if (!__any_sync(FULL_MASK, is_busy)) {
                if (__all_sync(FULL_MASK, is_done)) return;
                continue;
            }
        }
        if (is_busy) {
            bool may_step = attempt.iterations < p.solver.max_iterations;
            bool is_reached = iterate<M, N>(p.solver, target, lane, may_step, attempt);
            is_busy = !is_reached && may_step;
            attempt.iterations += is_busy;
            if (!is_busy) {
                write_answer<N>(p.solver, p.answers, target_index, lane, attempt, 0);
                if (!is_reached && p.left != nullptr) {
                    p.least[target_index] = attempt.square;
                    p.left[atomicAdd(p.left_count, 1u)] = target_index;
                }
            }
        }
    }
}

// Solves each target by a group of `width` lanes, as `Solver::solve`; each lane tries a start. `FIRST` allows any width, other
// choices need `GROUP`.
template <class R, u32 M, u32 N> __device__ __forceinline__ void inverse_groups(const InverseParams<R>& p) {
    constexpr u32 THREADS = Block<R, N>::THREADS;
    __shared__ Block<R, N> block;
    __shared__ R all_near[THREADS / GROUP][MOST_JOINTS];
    auto lane = block.lane();
    const u32 member = threadIdx.x % p.width, n = p.solver.chain.joints, groups = gridDim.x * (THREADS / p.width);
    R* near = all_near[threadIdx.x / GROUP];
    const u32 count = p.list != nullptr ? *p.list_count : p.targets_count;
    for (u32 i = (blockIdx.x * THREADS + threadIdx.x) / p.width; __any_sync(FULL_MASK, i < count); i += groups) {
        bool wants = i < count;
        const u32 target_index = !wants ? 0 : p.list != nullptr ? p.list[i] : i;
        const R* seed = seed_of(p.starts, p.start_stride, target_index);
        Target<R> target;
        R pose[7];
        read_pose(p.targets + (u64)target_index * 7, pose);
        if (!(make_target(pose, target) & is_seed_finite(p.solver, seed)) && wants) {
            if (member == 0) write_unusable(p.solver, p.answers, target_index);
            wants = false;
        }
        Best<R> best{(R)0, false, p.from == 0};
        if (wants && p.from > 0) best.least = p.least[target_index];
        if (p.solver.select == NEAREST) {
            // Distances are measured from the joints of the first start.
            __syncwarp();
            for (u32 k = member; wants && k < n; k += GROUP) {
                near[k] = seed != nullptr ? admitted(p.solver, k, seed[k]) : p.solver.table[k];
            }
            __syncwarp();
        }
        try_starts<M, N>(p.solver, target, lane, {p.from, p.to, p.width}, seed, p.solver.select, near, wants, best,
                         [&](const Attempt<R>& attempt, u32 start) {
                             write_answer<N>(p.solver, p.answers, target_index, lane, attempt, start);
                         });
        if (p.left != nullptr && wants && !best.valid && member == 0) {
            p.least[target_index] = best.least;
            p.left[atomicAdd(p.left_count, 1u)] = target_index;
        }
    }
}

// Steps from the answer before, `last`, to the next target, as `Solver::descend` does. The joints end in `kept`. For a plain chain,
// the lanes of a group share the work; for any other chain, each lane of a group does all of it.
template <class R, u32 M, u32 N> struct Follower {
    Together<R, N> together[Block<R, N>::THREADS / GROUP];

    template <class L>
    __device__ __forceinline__ Attempt<R> follow(const Solver<R>& s, const Target<R>& target, bool runs, const R* last, R* kept,
                                                 L&) {
        const u32 member = threadIdx.x % GROUP;
        R joint = runs && member < N ? last[member] : (R)0;
        Attempt<R> attempt = follow_together<N>(s, target, runs, joint, together[threadIdx.x / GROUP]);
        if (runs && member < N) kept[member] = joint;
        __syncwarp();
        return attempt;
    }
};
template <class R, u32 M> struct Follower<R, M, 0> {
    template <class L>
    __device__ __forceinline__ Attempt<R> follow(const Solver<R>& s, const Target<R>& target, bool runs, const R* last, R* kept,
                                                 L& lane) {
        const u32 n = s.chain.joints, member = threadIdx.x % GROUP;
        const bool wants = runs;
        if (runs) {
            for_each_index<0>(n, [&](u32 k) { lane.joint(k) = last[k]; });
        }
        Attempt<R> attempt{};
        while (__any_sync(FULL_MASK, runs)) {
            if (runs) {
                bool may_step = attempt.iterations < s.max_iterations;
                bool is_within = iterate<M, 0, true>(s, target, lane, may_step, attempt);
                runs = !is_within && may_step;
                attempt.iterations += runs;
            }
        }
        if (wants && member < n) kept[member] = lane.joint(member);
        __syncwarp();
        return attempt;
    }
};

// Solves each trajectory by a group of lanes, as `Solver::solve_along`. If the steps from the answer before do not suffice, each
// lane tries a start.
template <class R, u32 M, u32 N> __device__ __forceinline__ void inverse_paths(const PathParams<R>& p) {
    constexpr u32 THREADS = Block<R, N>::THREADS;
    __shared__ Block<R, N> block;
    __shared__ Follower<R, M, N> follower;
    __shared__ R all_last[THREADS / GROUP][MOST_JOINTS], all_kept[THREADS / GROUP][MOST_JOINTS];
    auto lane = block.lane();
    const u32 member = threadIdx.x % GROUP, n = p.solver.chain.joints;
    const u32 group_mask = ((1u << GROUP) - 1) << (threadIdx.x % 32 - member);
    const u32 trajectory = (blockIdx.x * THREADS + threadIdx.x) / GROUP;
    // The answer before, or the first start: the joints that the next answer should be near.
    R* last = all_last[threadIdx.x / GROUP];
    // The best answer to the current target. It does not overwrite `last`, which is still needed.
    R* kept = all_kept[threadIdx.x / GROUP];
    const bool has_trajectory = trajectory < p.trajectories;
    const R* seed = has_trajectory ? seed_of(p.starts, p.start_stride, trajectory) : nullptr;
    const bool has_start = is_seed_finite(p.solver, seed);
    for (u32 k = member; has_trajectory && k < n; k += GROUP) {
        last[k] = seed != nullptr ? admitted(p.solver, k, seed[k]) : p.solver.table[k];
    }
    __syncwarp();
    // `has_near` is true if `last` is a given start or an answer, `has_last` if it is an answer.
    bool has_near = seed != nullptr, has_last = false;
    u32 branch = 0;
    // The next pose is loaded while the current one is solved.
    const R* poses = p.targets + (has_trajectory ? trajectory * p.length * 7 : 0);
    R pose[7];
    read_pose(poses, pose);
    for (u64 i = 0; i < p.length; ++i) {
        const u64 target_index = (u64)trajectory * p.length + i;
        Target<R> target;
        bool is_usable = make_target(pose, target) & has_trajectory & has_start;
        read_pose(poses + (i + 1 < p.length ? i + 1 : i) * 7, pose);
        if (has_trajectory && !is_usable && member == 0) write_unusable(p.solver, p.answers, target_index);
        const u32 select = has_last ? NEAREST : p.solver.select;
        const bool follows = is_usable && has_near;
        Attempt<R> attempt = follower.follow(p.solver, target, follows, last, kept, lane);
        // True for a group if no joint in `kept` is further from `last` than `max_joint_step`, or if the group has kept none.
        auto is_near = [&](bool has_kept) {
            bool is_far = has_kept && member < n && !(magnitude(kept[member] - last[member]) <= p.solver.max_joint_step);
            return (__ballot_sync(FULL_MASK, is_far) & group_mask) == 0;
        };
        if (follows) {
            if (member < n) p.answers.joints[target_index * n + member] = kept[member];
            if (member == 0) write_result(p.answers, target_index, attempt, 0);
        }
        const bool stays_near = is_near(follows);
        const bool goes_on = follows && attempt.valid && (stays_near || select == FIRST);
        const bool wants = is_usable && !goes_on;
        Best<R> best{attempt.square, follows && attempt.valid, !follows};
        if (__any_sync(FULL_MASK, wants)) {
            if (best.valid) {
                best.least = 0;
                for (u32 k = 0; k < n; ++k) {
                    R difference = kept[k] - last[k];
                    best.least = best.least + difference * difference;
                }
            }
            // All lanes have read `kept` before it is overwritten.
            __syncwarp();
            const Starts all{0, p.solver.starts, GROUP};
            try_starts<M, N>(p.solver, target, lane, all, seed, select, last, wants, best, [&](const Attempt<R>& tried, u32 start) {
                write_answer<N>(p.solver, p.answers, target_index, lane, tried, start);
                for_each_index<N>(n, [&](u32 k) { kept[k] = lane.joint(k); });
            });
        }
        __syncwarp();
        const bool is_found = goes_on || best.valid, is_compared = is_found && has_near;
        bool is_step = is_near(is_compared) & is_compared;
        if constexpr (N == 0) {
            // All lanes of a group do the same.
            bool is_pulled = p.solver.posture > 0 && is_found;
            Attempt<R> at_rest{};
            is_pulled = is_pulled && pull_to_rest<M>(p.solver, target, lane, kept, is_step ? last : nullptr, at_rest);
            __syncwarp();
            if (is_pulled && member < n) p.answers.joints[target_index * n + member] = kept[member] = lane.joint(member);
            if (is_pulled && member == 0) write_errors(p.answers, target_index, at_rest);
            is_step = is_near(is_compared) & is_compared;
        }
        branch += is_found && has_last && !is_step;
        has_near |= is_found;
        has_last |= is_found;
        if (has_trajectory && member == 0) p.branches[target_index] = branch;
        __syncwarp();
        if (is_found && member < n) last[member] = kept[member];
        __syncwarp();
    }
}

// Pulls answers towards rest, each by one lane, as `Solver::pull_to_rest`.
template <class R, u32 M> __device__ __forceinline__ void inverse_pulls(const InverseParams<R>& p) {
    __shared__ Block<R, 0> block;
    auto lane = block.lane();
    const u32 n = p.solver.chain.joints, lanes = gridDim.x * INVERSE_ANY_BLOCK;
    for (u32 i = blockIdx.x * INVERSE_ANY_BLOCK + threadIdx.x; i < p.targets_count; i += lanes) {
        Target<R> target;
        R pose[7];
        read_pose(p.targets + (u64)i * 7, pose);
        make_target(pose, target);
        R* joints = p.answers.joints + (u64)i * n;
        Attempt<R> attempt{};
        if (p.answers.valid[i] != 0 && pull_to_rest<M>(p.solver, target, lane, joints, (const R*)nullptr, attempt)) {
            for_each_index<0>(n, [&](u32 k) { joints[k] = lane.joint(k); });
            write_errors(p.answers, i, attempt);
        }
    }
}

#define INVERSE(NAME, R, M, N, THREADS)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        kinematics_lanes_##NAME(const __grid_constant__ InverseParams<R> params) {                                     \
        wait_for_previous();                                                                                           \
        inverse_lanes<R, M, N>(params);                                                                                \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        kinematics_groups_##NAME(const __grid_constant__ InverseParams<R> params) {                                    \
        wait_for_previous();                                                                                           \
        inverse_groups<R, M, N>(params);                                                                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        kinematics_paths_##NAME(const __grid_constant__ PathParams<R> params) {                                        \
        wait_for_previous();                                                                                           \
        inverse_paths<R, M, N>(params);                                                                                \
    }
#define INVERSE_OF(NAME, M, N, THREADS)                                                                                \
    INVERSE(NAME##_f32, float, M, N, THREADS)                                                                          \
    INVERSE(NAME##_f64, double, M, N, THREADS)
INVERSE_OF(6, POSE_ROWS, 6, INVERSE_BLOCK)
INVERSE_OF(7, POSE_ROWS, 7, INVERSE_BLOCK)
INVERSE_OF(pose_any, POSE_ROWS, 0, INVERSE_ANY_BLOCK)
INVERSE_OF(axis_any, AXIS_ROWS, 0, INVERSE_ANY_BLOCK)
INVERSE_OF(position_any, POSITION_ROWS, 0, INVERSE_ANY_BLOCK)

#define PULLS(NAME, R, M)                                                                                              \
    extern "C" __global__ void __launch_bounds__(INVERSE_ANY_BLOCK)                                                    \
        kinematics_pulls_##NAME(const __grid_constant__ InverseParams<R> params) {                                     \
        wait_for_previous();                                                                                           \
        inverse_pulls<R, M>(params);                                                                                   \
    }
#define PULLS_OF(NAME, M)                                                                                              \
    PULLS(NAME##_f32, float, M)                                                                                        \
    PULLS(NAME##_f64, double, M)
PULLS_OF(pose_any, POSE_ROWS)
PULLS_OF(axis_any, AXIS_ROWS)
PULLS_OF(position_any, POSITION_ROWS)
