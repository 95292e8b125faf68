// Resamples trajectories group by group, in any mode: part of resample.cu.
//
// The CPU drops a sample whole where one channel is not finite, or one group no rotation. As in resample.cu the fast path
// brackets each target among all samples and checks those around it, here in every channel: one on each side, two where a
// group is a curve. If all of them count, so do their times, and what was made of them is right. If not, a warp does the
// target again.
#pragma once

#include "modes.cuh"

struct ResampleModesParams {
    ResampleParams batch;
    u32 groups;
    u32 has_curves; // 1 where a group is a curve
    Group own_groups[MOST_GROUPS];
};

__device__ __forceinline__ float load(const float* at) { return __ldg(at); }
__device__ __forceinline__ double load(const double* at) { return __ldg(at); }
__device__ __forceinline__ float load(const f16* at) { return to_f32(f16{__ldg(&at->bits)}); }
__device__ __forceinline__ float load(const bf16* at) { return to_f32(bf16{__ldg(&at->bits)}); }

// The elements of a vector.
template <u32 N> __device__ __forceinline__ void unpack(const u32* words, float (&values)[N], float) {
#pragma unroll
    for (u32 i = 0; i < N; ++i) values[i] = __uint_as_float(words[i]);
}
template <u32 N> __device__ __forceinline__ void unpack(const u32* words, double (&values)[N], double) {
#pragma unroll
    for (u32 i = 0; i < N; ++i) values[i] = __longlong_as_double((i64)((u64)words[2 * i + 1] << 32 | words[2 * i]));
}
template <u32 N, class Half> __device__ __forceinline__ void unpack(const u32* words, float (&values)[N], Half) {
#pragma unroll
    for (u32 i = 0; i < N; ++i) values[i] = to_f32(Half{(u16)(words[i / 2] >> (i % 2 * 16))});
}

template <u32 N> __device__ __forceinline__ void pack_all(const float (&values)[N], u32* words, float) {
#pragma unroll
    for (u32 i = 0; i < N; ++i) words[i] = __float_as_uint(values[i]);
}
template <u32 N> __device__ __forceinline__ void pack_all(const double (&values)[N], u32* words, double) {
#pragma unroll
    for (u32 i = 0; i < N; ++i) {
        u64 bits = (u64)__double_as_longlong(values[i]);
        words[2 * i] = (u32)bits;
        words[2 * i + 1] = (u32)(bits >> 32);
    }
}
template <u32 N, class Half> __device__ __forceinline__ void pack_all(const float (&values)[N], u32* words, Half) {
#pragma unroll
    for (u32 i = 0; 2 * i + 1 < N; ++i) words[i] = pack<Half>(values[2 * i], values[2 * i + 1]);
    if (N == 1) words[0] = from_f32<Half>(values[0]).bits;
}

__device__ __forceinline__ void store(float* at, float value) { *at = value; }
__device__ __forceinline__ void store(double* at, double value) { *at = value; }
template <class Half> __device__ __forceinline__ void store(Half* at, float value) { *at = from_f32<Half>(value); }

// A number as a type.
template <u32 N> struct Number {
    static constexpr u32 value = N;
};

// Writes a value, or the fill value where there is none.
template <class T, class Real> __device__ __forceinline__ void put(T* at, u32 kind, Real value, T fill) {
    if (kind == PICK_INVALID) {
        *at = fill;
    } else {
        store(at, value);
    }
}

// Whether type T can hold a value, which may be a NaN.
template <class T> __device__ __forceinline__ bool holds(float value) { return fabsf(value) < overflows_from<T>(); }
template <class T> __device__ __forceinline__ bool holds(double value) { return is_finite(value); }

// The samples around a target: left, before, after, right. One that is not there is the one beside it.
struct Around {
    u32 samples[4];
};
enum AroundIndex : u32 { LEFT = 0, BEFORE = 1, AFTER = 2, RIGHT = 3 };

// How the value of a group at a target is made. `weight` is that of the later sample; of a value that is one sample's it is
// -0.
template <class Real> struct Made {
    Real weight;
    u32 kind; // PickKind
};

template <class Real> __device__ __forceinline__ Made<Real> made_of(const Pick& picked) {
    return Made<Real>{picked.kind == PICK_BETWEEN ? (Real)picked.weight : (Real)-0.0, picked.kind};
}

// Makes N channels of a group, from those of the samples around the target.
template <u32 N, class Real>
__device__ __forceinline__ void make_channels(u32 mode, const Made<Real>& made, const Curve<Real>& curve,
                                              const Real (&around)[4][N], Real (&result)[N]) {
    Real a[N], b[N];
#pragma unroll
    for (u32 i = 0; i < N; ++i) {
        a[i] = made.kind == PICK_AFTER ? around[AFTER][i] : around[BEFORE][i];
        b[i] = made.kind == PICK_BETWEEN ? around[AFTER][i] : a[i];
    }
    if (is_curve(mode)) {
#pragma unroll
        for (u32 i = 0; i < N; ++i) {
            result[i] = on_curve(curve, around[LEFT][i], a[i], b[i], around[RIGHT][i], made.weight);
        }
    } else if (mode == ANGLE) {
#pragma unroll
        for (u32 i = 0; i < N; ++i) result[i] = angle_between(a[i], b[i], made.weight);
    } else {
#pragma unroll
        for (u32 i = 0; i < N; ++i) result[i] = blend(mode, a[i], b[i], made.weight);
    }
}

template <class T> __device__ __forceinline__ T fill_of(const ResampleParams& p) {
    T fill;
    memcpy(&fill, &p.fill, sizeof fill);
    return fill;
}

// Reads the channels of a rotation.
template <class T, class Real> __device__ __forceinline__ void load_rotation(const T* at, u32 width, Real (&values)[ROTATION]) {
#pragma unroll
    for (u32 i = 0; i < ROTATION; ++i) values[i] = load(at + min(i, width - 1));
}

template <class Real> __device__ __forceinline__ bool counts(u32 mode, u32 width, const Real (&values)[ROTATION]) {
    bool finite = true;
#pragma unroll
    for (u32 i = 0; i < ROTATION; ++i) finite = finite && (i >= width || is_finite(values[i]));
    return finite && takes(mode, values);
}

// Writes a group of a tile, in vectors of N elements. Marks the targets in doubt. FOUR: of the samples around a target
// all four are read, and checked. Each thread has ROWS rows in flight.
template <class T, u32 N, bool FOUR>
__device__ __forceinline__ void write_channels(const Group& group, const Around* arounds,
                                               const Made<typename RealOf<T>::type>* made,
                                               const Curve<typename RealOf<T>::type>* curves, const T* values, u32 dim,
                                               bool has_samples, u32 rows, u64 fill, T* out, Doubts& doubts,
                                               bool& is_doubtful) {
    typedef typename RealOf<T>::type Real;
    typedef Vector<N * (u32)sizeof(T)> Elements;
    constexpr u32 FIRST = FOUR ? LEFT : BEFORE, END_OF = FOUR ? RIGHT + 1 : AFTER + 1, ROWS = FOUR ? 1 : 2;
    u32 width = (group.to - group.from) / N;
    // A power of two of threads, 1 << bits, share a row.
    u32 bits = width > BLOCK / 2 ? 31 - __clz(BLOCK) : 32 - __clz(width - 1);
    u32 rows_on = BLOCK >> bits;
    for (u32 i = threadIdx.x & ((1u << bits) - 1); i < width; i += 1u << bits) {
        const T* from = values + group.from + i * N;
        T* to = out + group.from + i * N;
        for (u32 first = threadIdx.x >> bits; first < rows; first += ROWS * rows_on) {
            Elements loaded[ROWS][4];
#pragma unroll
            for (u32 r = 0; r < ROWS; ++r) {
                const Around& around = arounds[min(first + r * rows_on, rows - 1)];
#pragma unroll
                for (u32 s = FIRST; s < END_OF; ++s) {
                    loaded[r][s] = Elements{};
                    if (has_samples) loaded[r][s].load(from + (u64)around.samples[s] * dim);
                }
            }
#pragma unroll
            for (u32 r = 0; r < ROWS; ++r) {
                u32 row = min(first + r * rows_on, rows - 1);
                Real around[4][N], result[N];
                bool is_right = true;
#pragma unroll
                for (u32 j = 0; j < N; ++j) around[LEFT][j] = around[RIGHT][j] = 0;
#pragma unroll
                for (u32 s = FIRST; s < END_OF; ++s) {
                    unpack(loaded[r][s].words, around[s], T{});
#pragma unroll
                    for (u32 j = 0; j < N; ++j) is_right = is_right && is_finite(around[s][j]);
                }
                const Made<Real> own = made[row];
                make_channels(group.mode, own, curves[FOUR ? row : 0], around, result);
#pragma unroll
                for (u32 j = 0; j < N; ++j) is_right = is_right && (own.kind == PICK_INVALID || holds<T>(result[j]));
                Elements packed{};
                pack_all(result, packed.words, T{});
#pragma unroll
                for (u32 w = 0; w < sizeof packed.words / sizeof packed.words[0]; ++w) {
                    packed.words[w] = own.kind == PICK_INVALID ? (u32)(w % 2 ? fill >> 32 : fill) : packed.words[w];
                }
                if (first + r * rows_on < rows) packed.store(to + (u64)row * dim);
                if (!is_right) {
                    doubts.add(row);
                    is_doubtful = true;
                }
            }
        }
    }
}

// Writes a group of rotations of a tile, a thread for each row. Marks the targets in doubt.
template <class T>
__device__ __forceinline__ void write_rotations(const Group& group, const Around* arounds,
                                                const Made<typename RealOf<T>::type>* made, const T* values, u32 dim,
                                                bool has_samples, bool has_curves, u32 rows, T fill, T* out,
                                                Doubts& doubts, bool& is_doubtful) {
    typedef typename RealOf<T>::type Real;
    u32 width = rotation_width(group.mode);
    for (u32 row = threadIdx.x; row < rows; row += BLOCK) {
        Real a[ROTATION] = {}, b[ROTATION] = {};
        const Around around = arounds[row];
        const Made<Real> own = made[row];
        bool is_right = true;
        if (has_samples) {
            load_rotation(values + (u64)around.samples[BEFORE] * dim + group.from, width, a);
            load_rotation(values + (u64)around.samples[AFTER] * dim + group.from, width, b);
            is_right = counts(group.mode, width, a) && counts(group.mode, width, b);
            if (has_curves) {
                Real left[ROTATION], right[ROTATION];
                load_rotation(values + (u64)around.samples[LEFT] * dim + group.from, width, left);
                load_rotation(values + (u64)around.samples[RIGHT] * dim + group.from, width, right);
                is_right = is_right && counts(group.mode, width, left) && counts(group.mode, width, right);
            }
        }
        rotate(group.mode, group.canonical, own.kind != PICK_BETWEEN, own.weight, a, b);
#pragma unroll
        for (u32 i = 0; i < ROTATION; ++i) {
            if (i >= width) continue;
            is_right = is_right && (own.kind == PICK_INVALID || holds<T>(a[i]));
            put(out + (u64)row * dim + group.from + i, own.kind, a[i], fill);
        }
        if (!is_right) {
            doubts.add(row);
            is_doubtful = true;
        }
    }
}

// Whether a sample counts: is finite, and in every group that is to be one a rotation. All lanes of the warp call it.
template <class T>
__device__ __forceinline__ bool sample_counts(const T* sample, u32 dim, const Group* groups, u32 count) {
    typedef typename RealOf<T>::type Real;
    bool does = sample_finite(sample, dim);
    for (u32 g = threadIdx.x % 32; does && g < count; g += 32) {
        if (!is_rotation(groups[g].mode)) continue;
        Real values[ROTATION];
        load_rotation(sample + groups[g].from, rotation_width(groups[g].mode), values);
        does = takes(groups[g].mode, values);
    }
    return __all_sync(0xffffffff, does);
}

// Does one target among the samples that count alone. All lanes of the warp call it.
template <class T>
__device__ __noinline__ void redo_modes(const ResampleModesParams& modes, const ResampleTile& tile, u64 target_index) {
    typedef typename RealOf<T>::type Real;
    const ResampleParams& p = modes.batch;
    u32 lane = threadIdx.x % 32;
    Times times{p.times + tile.sample, tile.samples, 0, ~0u};
    const T* values = (const T*)p.values + tile.sample * p.dim;
    i64 target = __ldg(p.targets + target_index);
    Bracket found = find_bracket(times, Slice{0, 0}, nullptr, target);
    auto counting = [&](u32 i) { return sample_counts(values + (u64)i * p.dim, p.dim, modes.own_groups, modes.groups); };
    // The first from there on that counts, or of those at its time the last.
    auto next = [&](u32 from) {
        while (from < times.count && !counting(from)) ++from;
        u32 last = from;
        for (u32 i = from + 1; i < times.count && time_at(times, i) == time_at(times, from); ++i) {
            last = counting(i) ? i : last;
        }
        return last;
    };
    u32 before = found.until;
    while (before > 0 && !counting(before - 1)) --before;
    found.has_before = before > 0;
    found.before = found.has_before ? time_at(times, before - 1) : 0;
    u32 after = next(found.until);
    found.has_after = after < times.count;
    found.after = found.has_after ? time_at(times, after) : 0;
    u32 left = found.has_before ? before - 1 : 0;
    u32 right = times.count;
    if (modes.has_curves && found.has_before && found.has_after) {
        while (left > 0 && (time_at(times, left - 1) == found.before || !counting(left - 1))) --left;
        right = next(after + 1);
    }
    bool has_left = left > 0, has_right = right < times.count;
    Around around{{has_left ? left - 1 : before - 1, before - 1, after, has_right ? right : after}};
    i64 apart[3] = {has_left ? distance(time_at(times, left - 1), found.before) : 0,
                    found.has_before && found.has_after ? distance(found.before, found.after) : 0,
                    has_right && found.has_after ? distance(found.after, time_at(times, right)) : 0};

    T fill = fill_of<T>(p);
    T* row = (T*)p.out + target_index * p.dim;
    bool is_valid = true, overflows = false;
    for (u32 g = 0; g < modes.groups; ++g) {
        const Group group = modes.own_groups[g];
        Pick picked = pick<false>(found, target, group.mode, group.limits);
        Made<Real> made = made_of<Real>(picked);
        bool held = true;
        if (is_rotation(group.mode)) {
            u32 width = rotation_width(group.mode);
            Real a[ROTATION] = {}, b[ROTATION] = {};
            if (made.kind != PICK_INVALID) load_rotation(values + (u64)(before - 1) * p.dim + group.from, width, a);
            if (made.kind == PICK_BETWEEN) load_rotation(values + (u64)after * p.dim + group.from, width, b);
            rotate(group.mode, group.canonical, made.kind != PICK_BETWEEN, made.weight, a, b);
#pragma unroll
            for (u32 i = 0; i < ROTATION; ++i) {
                if (i >= width) continue;
                held = held && (made.kind == PICK_INVALID || holds<T>(a[i]));
                if (lane == 0) put(row + group.from + i, made.kind, a[i], fill);
            }
        } else {
            Curve<Real> own = line<Real>();
            if (is_curve(group.mode) && made.kind == PICK_BETWEEN) {
                own = curve<Real>(group.mode, group.limits.max_gap, apart, has_left, has_right);
            }
            bool reads[4] = {own.has_left, made.kind == PICK_BEFORE || made.kind == PICK_BETWEEN,
                             made.kind == PICK_AFTER || made.kind == PICK_BETWEEN, own.has_right};
            for (u32 i = group.from + lane; i < group.to; i += 32) {
                Real channel[4][1] = {}, result[1];
#pragma unroll
                for (u32 s = 0; s < 4; ++s) {
                    if (reads[s]) channel[s][0] = load(values + (u64)around.samples[s] * p.dim + i);
                }
                make_channels(group.mode, made, own, channel, result);
                held = held && (made.kind == PICK_INVALID || holds<T>(result[0]));
                put(row + i, made.kind, result[0], fill);
            }
        }
        if (!__all_sync(0xffffffff, held)) {
            overflows = true;
            __syncwarp();
            for (u32 i = group.from + lane; i < group.to; i += 32) row[i] = fill;
        }
        is_valid = is_valid && made.kind != PICK_INVALID;
    }
    if (lane == 0) {
        p.valid[target_index] = overflows ? p.overflow : is_valid;
    }
}

constexpr u32 FEW_BLOCKS = 256;

// A block does a tile: each thread finds the bracket of one target, then all threads write the tile group by group.
template <class T> __device__ __forceinline__ void resample_modes(const ResampleModesParams& modes) {
    typedef typename RealOf<T>::type Real;
    __shared__ i64 staged[STAGED_TIMES];
    __shared__ Around arounds[BLOCK];
    __shared__ Made<Real> made[BLOCK];
    __shared__ Curve<Real> curves[BLOCK];
    __shared__ Doubts doubts;

    // Few blocks leave room for those of the next kernel.
    if (gridDim.x * gridDim.y <= FEW_BLOCKS) {
        let_next_start();
    }
    const ResampleParams& p = modes.batch;
    ResampleTile tile = own_tile(p);
    const i64* targets = p.targets + tile.target;
    const T* values = (const T*)p.values + tile.sample * p.dim;
    T* out = (T*)p.out + tile.target * p.dim;
    bool has_samples = tile.samples > 0, has_curves = modes.has_curves != 0;

    Times times{p.times + tile.sample, tile.samples, 0, ~0u};
    u32 own = threadIdx.x;
    bool has_target = own < tile.targets;
    i64 target = has_target ? __ldg(targets + own) : 0;
    if (own < BLOCK / 32) {
        doubts.targets[own] = 0;
    }
    Slice slice = stage_times(times, __ldg(targets), __ldg(targets + tile.targets - 1), staged);
    bool is_doubtful = false, is_valid = true;
    Bracket found{};
    bool has_left = false, has_right = false;
    i64 apart[3] = {};
    if (has_target) {
        found = find_bracket(times, slice, staged, target);
        u32 before = max(found.until, 1u) - 1;
        u32 after = min(found.until, max(tile.samples, 1u) - 1);
        Around around{{before, before, after, after}};
        is_doubtful = found.tied;
        if (has_curves && found.has_before && found.has_after) {
            auto time = [&](u32 i) {
                return i >= slice.from && i < slice.to ? staged[i - slice.from] : time_at(times, i);
            };
            has_left = before > 0;
            has_right = after + 1 < tile.samples;
            around.samples[LEFT] -= has_left;
            around.samples[RIGHT] += has_right;
            i64 left = has_left ? time(before - 1) : 0, right = has_right ? time(after + 1) : 0;
            apart[0] = has_left ? distance(left, found.before) : 0;
            apart[1] = distance(found.before, found.after);
            apart[2] = has_right ? distance(found.after, right) : 0;
            // Of several at one time the last one that counts is the sample.
            is_doubtful = is_doubtful || (has_left && apart[0] == 0) ||
                          (after + 2 < tile.samples && time(after + 2) == right);
        }
        arounds[own] = around;
        if (is_doubtful) {
            doubts.add(own);
        }
    }
    for (u32 g = 0; g < modes.groups; ++g) {
        const Group group = modes.own_groups[g];
        if (has_target) {
            Pick picked = pick<false>(found, target, group.mode, group.limits);
            made[own] = made_of<Real>(picked);
            is_valid = is_valid && picked.kind != PICK_INVALID;
            if (has_curves) {
                curves[own] = is_curve(group.mode) && picked.kind == PICK_BETWEEN
                                  ? curve<Real>(group.mode, group.limits.max_gap, apart, has_left, has_right)
                                  : line<Real>();
            }
        }
        __syncthreads();
        auto write = [&](auto length, auto four) {
            write_channels<T, decltype(length)::value, decltype(four)::value>(group, arounds, made, curves, values, p.dim,
                                                                              has_samples, tile.targets, p.fill, out,
                                                                              doubts, is_doubtful);
        };
        // Of four samples no more than 4 elements each: wider vectors make the kernel half as large again.
        constexpr u32 WIDEST = 16 / (u32)sizeof(T), MIDDLE = sizeof(T) == 2 ? 4 : WIDEST;
        u32 apart_by = p.dim | group.from | group.to | (u32)((u64)p.values / sizeof(T)) | (u32)((u64)p.out / sizeof(T));
        if (is_rotation(group.mode)) {
            write_rotations(group, arounds, made, values, p.dim, has_samples, has_curves, tile.targets, fill_of<T>(p),
                            out, doubts, is_doubtful);
        } else if (has_curves) {
            apart_by % MIDDLE == 0 ? write(Number<MIDDLE>{}, Number<1>{}) : write(Number<1>{}, Number<1>{});
        } else if (apart_by % WIDEST == 0) {
            write(Number<WIDEST>{}, Number<0>{});
        } else if (MIDDLE < WIDEST && apart_by % MIDDLE == 0) {
            write(Number<MIDDLE>{}, Number<0>{});
        } else {
            write(Number<1>{}, Number<0>{});
        }
        __syncthreads();
    }
    if (has_target) {
        p.valid[tile.target + own] = is_valid;
    }
    if (!__syncthreads_or(is_doubtful)) {
        return;
    }
    for (u32 i = 0; i < BLOCK / 32; ++i) {
        // The warps take turns.
        u32 mask = doubts.targets[i];
        for (u32 turn = 0; mask != 0; mask &= mask - 1, ++turn) {
            if (turn % (BLOCK / 32) == threadIdx.x / 32) {
                redo_modes<T>(modes, tile, tile.target + i * 32 + (u32)__ffs((int)mask) - 1);
            }
        }
    }
}

struct ResampleCountModesParams {
    ResampleCountParams count;
    u32 groups;
    u32 unused;
    Group own_groups[MOST_GROUPS];
};

// Counts the samples that don't count, `dropped_nonfinite`: a warp for each.
template <class T> __device__ __forceinline__ void count_dropped(const ResampleCountModesParams& modes) {
    const ResampleCountParams& p = modes.count;
    u64 warp = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    u64 step = (u64)gridDim.x * (blockDim.x / 32);
    u32 found = 0;
    for (u64 sample = warp; sample < p.samples; sample += step) {
        found += !sample_counts((const T*)p.values + sample * p.dim, p.dim, modes.own_groups, modes.groups);
    }
    if (threadIdx.x % 32 == 0 && found > 0) {
        atomicAdd(p.dropped, (u64)found);
    }
}

#define RESAMPLE_MODES(name, type)                                                                                     \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                \
        resample_modes_##name(const __grid_constant__ ResampleModesParams p) {                                         \
        wait_for_previous();                                                                                           \
        resample_modes<type>(p);                                                                                       \
    }                                                                                                                  \
    extern "C" __global__ void resample_count_modes_##name(const __grid_constant__ ResampleCountModesParams p) {       \
        wait_for_previous();                                                                                           \
        count_dropped<type>(p);                                                                                        \
    }

RESAMPLE_MODES(f32, float)
RESAMPLE_MODES(f64, double)
RESAMPLE_MODES(f16, f16)
RESAMPLE_MODES(bf16, bf16)
