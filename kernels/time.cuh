// Brackets of targets, and the samples that give the value at a target. All times are ns.
#pragma once

#include "types.cuh"

// Pads arrays of times, ns, at their end. Only the last sample of a stream can be as late.
constexpr i64 PADDING_TIME = 0x7fffffffffffffffll;

// The ascending times of a stream's samples, in a ring buffer: the time of sample i is at[(head + i) & mask]. A plain array is a
// ring with head 0 and mask ~0. The times must not change during the launch: they are read through the read-only cache.
struct Times {
    const i64* at;
    u32 count;
    u32 head;
    u32 mask;
};

// Reads the time of sample i from global memory, ns. The argument `i` must be less than `count`.
__device__ __forceinline__ i64 time_at(const Times& times, u32 i) {
    return __ldg(times.at + ((times.head + i) & times.mask));
}

// The range of samples, from..to, whose times a block holds in shared memory; no samples if both are 0.
struct Slice {
    u32 from;
    u32 to;
};

// Copies to shared memory the times that targets from `first` to `last`, ns, may need; none if they are more than CAPACITY. All
// threads of the block call this, and it ends with a barrier. It waits for global memory at most twice: each thread reads one
// pivot, then the block reads the times between the pivots around the targets.
template <u32 CAPACITY>
__device__ __forceinline__ Slice stage_times(const Times& times, i64 first, i64 last, i64 (&staged)[CAPACITY]) {
    Slice slice{0, times.count};
    if (times.count > CAPACITY) {
        u32 stride = (times.count + blockDim.x - 1) / blockDim.x;
        u32 at = threadIdx.x * stride;
        i64 pivot = at < times.count ? time_at(times, at) : 0;
        u32 pivots_to_first = __syncthreads_count(at < times.count && pivot <= first);
        u32 pivots_to_last = __syncthreads_count(at < times.count && pivot <= last);
        slice.from = pivots_to_first > 0 ? (pivots_to_first - 1) * stride : 0;
        // Includes the pivot after the last target, and one more sample, which shows if the pivot is tied.
        slice.to = min(times.count, pivots_to_last * stride + 2);
        if (pivots_to_first > pivots_to_last || slice.to - slice.from > CAPACITY) {
            slice = Slice{0, 0};
        }
    }
    // Issues several loads before it uses the first one.
    constexpr u32 LOADS_IN_FLIGHT = 4;
    for (u32 i = slice.from + threadIdx.x; i < slice.to; i += LOADS_IN_FLIGHT * blockDim.x) {
        i64 loaded[LOADS_IN_FLIGHT];
#pragma unroll
        for (u32 k = 0; k < LOADS_IN_FLIGHT; ++k) {
            u32 at = i + k * blockDim.x;
            loaded[k] = at < slice.to ? time_at(times, at) : 0;
        }
#pragma unroll
        for (u32 k = 0; k < LOADS_IN_FLIGHT; ++k) {
            u32 at = i + k * blockDim.x;
            if (at < slice.to) {
                staged[at - slice.from] = loaded[k];
            }
        }
    }
    __syncthreads();
    return slice;
}

// The two samples around a target.
struct Bracket {
    // Number of samples at or before the target: sample until - 1 is the newest of them, `until` the oldest after the target.
    u32 until;
    bool has_before;
    bool has_after;
    // True if sample until + 1 has the same time as sample `until`.
    bool tied;
    // The times of the two samples, if they exist.
    i64 before;
    i64 after;
};

// Counts the times at or before `target` among `count` ascending times, as `partition_point(|t| t <= target)`. The time of sample i
// is `time(i)`; all times are ns. The search is 4-ary: three loads at once take no longer than one, and halve the steps.
template <class TimeAt> __device__ __forceinline__ u32 upper_bound(const TimeAt& time, u32 count, i64 target) {
    u32 until = 0;
    // The largest power of 4 that is not more than `count`.
    for (u32 step = count > 0 ? 1u << ((31 - __clz((int)count)) & ~1) : 0; step > 0; step /= 4) {
        u32 passed = 0;
#pragma unroll
        for (u32 i = 1; i <= 3; ++i) {
            u32 at = until + i * step;
            bool is_before = time(min(at, count) - 1) <= target;
            passed += at <= count && is_before ? 1 : 0;
        }
        until += passed * step;
    }
    return until;
}

// Makes one step of a 4-ary search: counts which of three pivots are at or before `target`. The pivots are `stride` apart in
// ascending times, and the first lies at `pivots`.
__device__ __forceinline__ u32 pivots_at_or_before(const i64* pivots, u32 stride, i64 target) {
    return (pivots[0] <= target) + (pivots[stride] <= target) + (pivots[2 * stride] <= target);
}

// Reads the bracket of a target with `until` samples at or before it, of `count` samples. The time of sample i is `time(i)`, ns.
template <class TimeAt>
__device__ __forceinline__ Bracket make_bracket(const TimeAt& time, u32 until, u32 count) {
    Bracket bracket;
    bracket.until = until;
    bracket.has_before = until > 0;
    bracket.has_after = until < count;
    bracket.before = bracket.has_before ? time(until - 1) : 0;
    bracket.after = bracket.has_after ? time(until) : 0;
    bracket.tied = until + 1 < count && time(until + 1) == bracket.after;
    return bracket;
}

// Finds the bracket of a target in the times that `stage_times` copied, or in global memory if the copy does not contain it.
__device__ __forceinline__ Bracket find_bracket(const Times& times, const Slice& slice, const i64* staged, i64 target) {
    auto time_of_sample = [&](u32 i) { return staged[i - slice.from]; };
    auto time_at_slot = [&](u32 i) { return staged[i]; };
    u32 until = slice.from + upper_bound(time_at_slot, slice.to - slice.from, target);
    bool inside = (until > slice.from || slice.from == 0) && (until + 1 < slice.to || slice.to == times.count);
    if (inside) {
        return make_bracket(time_of_sample, until, times.count);
    }
    auto global_time = [&](u32 i) { return time_at(times, i); };
    return make_bracket(global_time, upper_bound(global_time, times.count, target), times.count);
}

// From here on: the interpolation modes, as in crates/time/src/mode.rs. This file has the plain modes, which are the first three.
// modes.cuh has the other modes except for `rotvec`, which is computed on the CPU.
enum Interpolation : u32 {
    PREVIOUS = 0,
    NEAREST = 1,
    LINEAR = 2,
    ANGLE = 3,
    SLERP = 4,
    ROT6D = 5,
    ROT6DCOLUMNS = 6,
    ROTVEC = 7,
    CUBIC = 8,
    PCHIP = 9,
};

// True if a plain mode computes the value from both samples around a target, limited by `max_gap` and `extrapolate`. The other
// plain modes take one sample, limited by `max_age`. This is a macro because an inlined function changes the order of the branches.
#define IS_INTERPOLATED(mode) ((mode) == LINEAR)

// True if every plain mode keeps the bits of a sample at the sample's own time, and while the sample is held. If a mode does not,
// set this to false: the value is then `blend` of the sample with itself.
constexpr bool SAMPLES_KEEP_BITS = true;

// Greatest distances of samples from a target, ns: `Limits` of crates/time/src/mode.rs.
struct Limits {
    i64 max_age;
    i64 max_gap;
    i64 extrapolate;
};

// The channels from..to, which are valid or filled together.
struct Group {
    Limits limits;
    u32 from;
    u32 to;
    u32 mode; // Interpolation
    // For SLERP: 1 + the channel of w within the group, if the one of a rotation's two quaternions with w >= 0 is wanted; else 0.
    u32 canonical;
};

// The most groups in the launch parameters of a kernel that does not take a table of groups.
constexpr u32 MOST_GROUPS = 32;

// The samples that give the value at a target: none, the sample before it, the sample after it, or both.
enum PickKind : u32 { PICK_INVALID = 0, PICK_BEFORE = 1, PICK_AFTER = 2, PICK_BETWEEN = 3 };

struct Pick {
    PickKind kind;
    // The weight of the later sample, for PICK_BETWEEN.
    double weight;
};

// Returns later - earlier, ns, saturated. The time `later` must not be before `earlier`.
__device__ __forceinline__ i64 distance(i64 earlier, i64 later) {
    u64 apart = (u64)later - (u64)earlier;
    return (i64)min(apart, 0x7fffffffffffffffull);
}

// Picks the samples that give the value of a plain mode at `target`, ns, as `pick` of crates/time/src/pick.rs does. The same for
// any mode is `pick_kind` of modes.cuh, with which these kernels are slower by up to 4 %.
__device__ __forceinline__ Pick pick(const Bracket& bracket, i64 target, u32 mode, const Limits& limits) {
    Pick picked{PICK_INVALID, 0.0};
    i64 age = bracket.has_before ? distance(bracket.before, target) : 0;
    i64 ahead = bracket.has_after ? distance(target, bracket.after) : 0;
    if (bracket.has_before && age == 0) {
        picked.kind = PICK_BEFORE;
    } else if (IS_INTERPOLATED(mode)) {
        if (bracket.has_before && bracket.has_after) {
            i64 gap = distance(bracket.before, bracket.after);
            if (gap <= limits.max_gap) {
                picked = Pick{PICK_BETWEEN, (double)age / (double)gap};
            }
        } else if (bracket.has_before && age <= limits.extrapolate) {
            picked.kind = PICK_BEFORE;
        }
    } else {
        bool take_after = mode == NEAREST && bracket.has_after && (!bracket.has_before || ahead < age);
        if (take_after) {
            picked.kind = ahead <= limits.max_age ? PICK_AFTER : PICK_INVALID;
        } else if (bracket.has_before) {
            picked.kind = age <= limits.max_age ? PICK_BEFORE : PICK_INVALID;
        }
    }
    return picked;
}

// Computes one channel between samples a and b, as `write` of crates/time/src/channels.rs does. `weight` is the weight of b. The
// value of finite samples is never a NaN. There is no fused multiply-add: the kernels are compiled without.
template <class Real> __device__ __forceinline__ Real blend(u32, Real a, Real b, Real weight) {
    return a + weight * (b - a);
}
