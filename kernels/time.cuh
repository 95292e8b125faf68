// Brackets of targets, and the samples that give the value at a target. All times are ns.
#pragma once

#include "types.cuh"

// Pads arrays of times at their end. Only the last sample of a stream can be as late.
constexpr i64 LATEST = 0x7fffffffffffffffll;

// The ascending times of a stream's samples, in a ring buffer: the time of sample i is at[(head + i) & mask]. A plain array is a
// ring with head 0 and mask ~0. The times must not change during the launch: they are read through the read-only cache.
struct Times {
    const i64* at;
    u32 count;
    u32 head;
    u32 mask;
};

__device__ __forceinline__ i64 time_at(const Times& times, u32 i) {
    return __ldg(times.at + ((times.head + i) & times.mask));
}

// The range of samples, from..to, whose times a block holds in shared memory; no samples if both are 0.
struct Slice {
    u32 from;
    u32 to;
};

// Copies the times that targets from `first` to `last` may need to shared memory; none if they are more than CAPACITY. All threads
// of the block call this, and it ends with a barrier. It waits for global memory at most twice: each thread reads one pivot, then
// the block reads the times between the pivots around the targets.
template <u32 CAPACITY>
__device__ __forceinline__ Slice stage_times(const Times& times, i64 first, i64 last, i64 (&staged)[CAPACITY]) {
    Slice slice{0, times.count};
    if (times.count > CAPACITY) {
        u32 stride = (times.count + blockDim.x - 1) / blockDim.x;
        u32 at = threadIdx.x * stride;
        i64 pivot = at < times.count ? time_at(times, at) : 0;
        u32 lower = __syncthreads_count(at < times.count && pivot <= first);
        u32 upper = __syncthreads_count(at < times.count && pivot <= last);
        slice.from = lower > 0 ? (lower - 1) * stride : 0;
        // Includes the pivot after the last target, and one more sample, which shows if the pivot is tied.
        slice.to = min(times.count, upper * stride + 2);
        if (lower > upper || slice.to - slice.from > CAPACITY) {
            slice = Slice{0, 0};
        }
    }
    // Issues several loads before it uses the first one.
    constexpr u32 AT_ONCE = 4;
    for (u32 i = slice.from + threadIdx.x; i < slice.to; i += AT_ONCE * blockDim.x) {
        i64 some[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            u32 at = i + k * blockDim.x;
            some[k] = at < slice.to ? time_at(times, at) : 0;
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; ++k) {
            u32 at = i + k * blockDim.x;
            if (at < slice.to) {
                staged[at - slice.from] = some[k];
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

// Counts the times at or before `target` among `count` ascending times. The search is 4-ary: three loads at once take no longer
// than one, and halve the steps.
template <class TimeAt> __device__ __forceinline__ u32 at_or_before(const TimeAt& time, u32 count, i64 target) {
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

// Makes one step of a 4-ary search: of three runs of `step` ascending times, counts the runs that end at or before `target`. The
// first run ends at `last`.
__device__ __forceinline__ u32 runs_passed(const i64* last, u32 step, i64 target) {
    return (last[0] <= target) + (last[step] <= target) + (last[2 * step] <= target);
}

template <class TimeAt>
__device__ __forceinline__ Bracket bracket_at(const TimeAt& time, u32 until, u32 count) {
    Bracket found;
    found.until = until;
    found.has_before = until > 0;
    found.has_after = until < count;
    found.before = found.has_before ? time(until - 1) : 0;
    found.after = found.has_after ? time(until) : 0;
    found.tied = until + 1 < count && time(until + 1) == found.after;
    return found;
}

// Finds the bracket of a target in the times that `stage_times` copied, or in global memory if the copy does not contain it.
__device__ __forceinline__ Bracket find_bracket(const Times& times, const Slice& slice, const i64* staged, i64 target) {
    auto time = [&](u32 i) { return staged[i - slice.from]; };
    auto staged_time = [&](u32 i) { return staged[i]; };
    u32 until = slice.from + at_or_before(staged_time, slice.to - slice.from, target);
    bool inside = (until > slice.from || slice.from == 0) && (until + 1 < slice.to || slice.to == times.count);
    if (inside) {
        return bracket_at(time, until, times.count);
    }
    auto any_time = [&](u32 i) { return time_at(times, i); };
    return bracket_at(any_time, at_or_before(any_time, times.count, target), times.count);
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
#define IS_BETWEEN(mode) ((mode) == LINEAR)

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

// Returns later - earlier, saturated. `later` must not be before `earlier`.
__device__ __forceinline__ i64 distance(i64 earlier, i64 later) {
    u64 apart = (u64)later - (u64)earlier;
    return (i64)min(apart, 0x7fffffffffffffffull);
}

// Picks the samples that give the value of a plain mode, as `pick` of crates/time/src/pick.rs does. The same for any mode is
// `pick_kind` of modes.cuh, with which these kernels are slower by up to 4 %.
__device__ __forceinline__ Pick pick(const Bracket& found, i64 target, u32 mode, const Limits& limits) {
    Pick picked{PICK_INVALID, 0.0};
    i64 age = found.has_before ? distance(found.before, target) : 0;
    i64 ahead = found.has_after ? distance(target, found.after) : 0;
    if (found.has_before && age == 0) {
        picked.kind = PICK_BEFORE;
    } else if (IS_BETWEEN(mode)) {
        if (found.has_before && found.has_after) {
            i64 gap = distance(found.before, found.after);
            if (gap <= limits.max_gap) {
                picked = Pick{PICK_BETWEEN, (double)age / (double)gap};
            }
        } else if (found.has_before && age <= limits.extrapolate) {
            picked.kind = PICK_BEFORE;
        }
    } else {
        bool take_after = mode == NEAREST && found.has_after && (!found.has_before || ahead < age);
        if (take_after) {
            picked.kind = ahead <= limits.max_age ? PICK_AFTER : PICK_INVALID;
        } else if (found.has_before) {
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
