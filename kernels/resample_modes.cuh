// Resamples trajectories group by group, in any mode: part of resample.cu.

// The CPU drops a whole sample if a channel is not finite, or if a group of a rotation mode is not a rotation. As in
// resample.cu, the fast path brackets each target among all samples. It checks all channels of the samples around the
// target: one sample on each side, two if a group is a curve. If all of these count, the value is right. If not, a warp
// computes the target again.
#pragma once

#include "modes.cuh"

struct ResampleModesParams {
    ResampleParams batch;
    u32 groups;
    u32 rotations;  // number of groups that are rotations; they come first
    u32 has_curves; // 1 if a group is a curve
    u32 unused;
    Group own_groups[MOST_GROUPS];
};

// Reads an element through the read-only cache, as float32 or float64.
__device__ __forceinline__ float load(const float* at) { return __ldg(at); }
__device__ __forceinline__ double load(const double* at) { return __ldg(at); }
__device__ __forceinline__ float load(const f16* at) { return to_f32(f16{__ldg(&at->bits)}); }
__device__ __forceinline__ float load(const bf16* at) { return to_f32(bf16{__ldg(&at->bits)}); }

// Unpacks the elements of a vector; the last argument is of the element type, and unused.
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

// Rounds N values to the element type of the last argument, which is unused, and packs them into words.
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

// Rounds a value to the element type and writes it.
__device__ __forceinline__ void store(float* at, float value) { *at = value; }
__device__ __forceinline__ void store(double* at, double value) { *at = value; }
template <class Half> __device__ __forceinline__ void store(Half* at, float value) { *at = from_f32<Half>(value); }

// Writes a value, or the fill value if `kind` is PICK_INVALID.
template <class T, class Real> __device__ __forceinline__ void store_or_fill(T* at, u32 kind, Real value, T fill) {
    if (kind == PICK_INVALID) {
        *at = fill;
    } else {
        store(at, value);
    }
}

// True if type T can hold a value; false for a NaN.
template <class T> __device__ __forceinline__ bool is_representable(float value) {
    return fabsf(value) < overflows_from<T>();
}
template <class T> __device__ __forceinline__ bool is_representable(double value) { return is_finite(value); }

// A target, for all groups: the distances and indices of the samples around it, and the weight of the later sample if
// both exist. A sample that does not exist is replaced by its neighbour.
template <class Real> struct Row {
    Distances apart;
    i64 to_left;  // if a group is a curve: ns from the outer sample on the left to the sample before the target
    i64 to_right; // ns from the sample after the target to the outer sample on the right
    u32 samples[4];
    Real weight;
    bool has_left;
    bool has_right;
};

// Computes the row of `target`, ns, from its bracket and the indices of its samples. The outer samples are left to the
// caller.
template <class Real>
__device__ __forceinline__ Row<Real> row_of(const Bracket& bracket, i64 target, u32 before, u32 after) {
    Row<Real> row{distances(bracket, target), 0, 0, {before, after, before, after}, (Real)0, false, false};
    if (bracket.has_before && bracket.has_after) row.weight = (Real)later_weight(row.apart);
    return row;
}

// The samples that give a group's value at a target, and the weight of the later sample; -0 if the value is a single
// sample.
template <class Real> struct Made {
    Real weight;
    PickKind kind;
};

// Picks the samples of a group at a target, as `pick` of crates/time/src/pick.rs does.
template <class Real> __device__ __forceinline__ Made<Real> made_of(const Row<Real>& row, const Group& group) {
    PickKind kind = pick_kind(row.apart, group.mode, group.limits);
    return Made<Real>{kind == PICK_BETWEEN ? row.weight : (Real)-0.0, kind};
}

// Computes the curve of a target; a line if the value is a single sample.
template <class Real> __device__ __forceinline__ Curve<Real> curve_of(const Row<Real>& row, const Group& group) {
    if (made_of(row, group).kind != PICK_BETWEEN) return make_line<Real>();
    i64 intervals[3] = {row.to_left, row.apart.gap, row.to_right};
    return make_curve<Real>(group.mode, group.limits.max_gap, intervals, row.has_left, row.has_right);
}

// Computes N channels of a value from the samples around a target, as `make` of modes.cuh does, from any pick.
template <u32 MODE, u32 N, class Real>
__device__ __forceinline__ void interpolate(const Made<Real>& made, Real (&neighbours)[sample_count(MODE)][N],
                                            const Curve<Real>& curve, Real (&result)[N]) {
    // For an angle, the later sample may stay: with a weight of -0 it adds a zero, whose sign is lost.
#pragma unroll
    for (u32 i = 0; i < N && MODE != ANGLE; ++i) {
        if (MODE == LINEAR)
            neighbours[BEFORE][i] = made.kind == PICK_AFTER ? neighbours[AFTER][i] : neighbours[BEFORE][i];
        neighbours[AFTER][i] = made.kind == PICK_BETWEEN ? neighbours[AFTER][i] : neighbours[BEFORE][i];
    }
    make<MODE>(neighbours, made.weight, curve, result);
}

// Returns a NaN if `nan_flag` is a NaN or the value is not finite, else 0: value * 0 is a NaN if the value is not
// finite.
__device__ __forceinline__ float accumulate_nan(float value, float nan_flag) { return fmaf(value, 0.0f, nan_flag); }
__device__ __forceinline__ float accumulate_nan(double value, float nan_flag) {
    return fmaf(is_finite(value) ? 0.0f : __uint_as_float(0x7f800000), 0.0f, nan_flag);
}

// Returns the fill value in the type of the samples.
template <class T> __device__ __forceinline__ T fill_value(const ResampleParams& p) {
    T fill;
    memcpy(&fill, &p.fill, sizeof fill);
    return fill;
}

// Reads WIDTH channels of a sample, N at a time, as `Real`.
template <u32 WIDTH, u32 N, class T, class Real>
__device__ __forceinline__ void load_wide(const T* at, Real (&values)[MAX_ROTATION_WIDTH]) {
#pragma unroll
    for (u32 i = 0; i < WIDTH; i += N) {
        Vector<N * (u32)sizeof(T)> loaded;
        loaded.load(at + i);
        Real elements[N];
        unpack(loaded.words, elements, T{});
#pragma unroll
        for (u32 j = 0; j < N; ++j) values[i + j] = elements[j];
    }
}

// Rounds WIDTH values to type T and writes them, N at a time.
template <u32 WIDTH, u32 N, class T, class Real>
__device__ __forceinline__ void store_wide(T* at, const Real (&values)[MAX_ROTATION_WIDTH]) {
#pragma unroll
    for (u32 i = 0; i < WIDTH; i += N) {
        Real elements[N];
#pragma unroll
        for (u32 j = 0; j < N; ++j) elements[j] = values[i + j];
        Vector<N * (u32)sizeof(T)> packed{};
        pack_all(elements, packed.words, T{});
        packed.store(at + i);
    }
}

// Channels of a quaternion that are read at once, if they are aligned for it. For two rows of a matrix the number is 2.
template <class T> constexpr u32 QUATERNION_AT_ONCE = sizeof(T) == 8 ? 2 : 4;

// Reads the channels of a rotation, several at once if it `is_wide`.
template <class T, class Real>
__device__ __forceinline__ void load_rotation(const T* at, u32 mode, bool is_wide, Real (&values)[MAX_ROTATION_WIDTH]) {
    if (mode == SLERP) {
        is_wide ? load_wide<4, QUATERNION_AT_ONCE<T>>(at, values) : load_wide<4, 1>(at, values);
    } else {
        is_wide ? load_wide<6, 2>(at, values) : load_wide<6, 1>(at, values);
    }
}

// True if the first `width` channels are finite and a rotation of this mode.
template <class Real>
__device__ __forceinline__ bool is_usable_rotation(u32 mode, u32 width, const Real (&values)[MAX_ROTATION_WIDTH]) {
    bool finite = true;
#pragma unroll
    for (u32 i = 0; i < MAX_ROTATION_WIDTH; ++i) finite = finite && (i >= width || is_finite(values[i]));
    // Computes both operands in any case, so that `interpolate_rotation` need not normalise again.
    return finite & is_rotation_sample(mode, values);
}

// The samples, output and targets of a tile.
template <class T> struct TileData {
    const T* values; // values of the trajectory's first sample
    T* out;          // output of the tile's first target
    const Row<typename RealOf<T>::type>* rows;
    const Made<typename RealOf<T>::type>* made;    // of the current group, unless it is a rotation
    const Curve<typename RealOf<T>::type>* curves; // of the current group, if it is a curve
    u32 targets;
    u32 dim;
    bool has_samples;
    u64 fill;
};

// Returns the largest power of two, in elements, that divides all offsets and addresses of a group.
template <class T> __device__ __forceinline__ u32 alignment(const TileData<T>& data, const Group& group) {
    u32 offset_bits = data.dim | group.from | group.to | (u32)((u64)data.values / sizeof(T)) |
                      (u32)((u64)data.out / sizeof(T));
    return offset_bits & (0 - offset_bits);
}

// Writes a group, N channels at a time. MODE is a mode as `with_mode` passes it. Marks a target as doubtful if a sample
// around it is not finite, or if type T can't hold its value.
template <class T, u32 MODE, u32 N>
__device__ __forceinline__ void write_channels(const TileData<T>& data, const Group& group, Doubts& doubts,
                                               bool& is_doubtful) {
    typedef typename RealOf<T>::type Real;
    typedef Vector<N * (u32)sizeof(T)> Elements;
    constexpr u32 SAMPLES = sample_count(MODE), ROWS = MODE == PCHIP ? 1 : 2;
    u32 width = (group.to - group.from) / N;
    // 1 << log2_threads threads share a row.
    u32 log2_threads = width > BLOCK / 2 ? 31 - __clz(BLOCK) : 32 - __clz(width - 1);
    u32 rows_at_once = BLOCK >> log2_threads;
#pragma unroll 1
    for (u32 i = threadIdx.x & ((1u << log2_threads) - 1); i < width; i += 1u << log2_threads) {
        const T* from = data.values + group.from + i * N;
        T* to = data.out + group.from + i * N;
#pragma unroll 1
        for (u32 first = threadIdx.x >> log2_threads; first < data.targets; first += ROWS * rows_at_once) {
            Elements loaded[ROWS][SAMPLES];
#pragma unroll
            for (u32 r = 0; r < ROWS; ++r) {
                const Row<Real>& row = data.rows[min(first + r * rows_at_once, data.targets - 1)];
#pragma unroll
                for (u32 s = 0; s < SAMPLES; ++s) {
                    loaded[r][s] = Elements{};
                    if (data.has_samples) loaded[r][s].load(from + (u64)row.samples[s] * data.dim);
                }
            }
#pragma unroll
            for (u32 r = 0; r < ROWS; ++r) {
                u32 at = min(first + r * rows_at_once, data.targets - 1);
                const Made<Real> made = data.made[at];
                Real neighbours[SAMPLES][N], result[N];
                float nan_flag = 0.0f;
#pragma unroll
                for (u32 s = 0; s < SAMPLES; ++s) {
                    unpack(loaded[r][s].words, neighbours[s], T{});
#pragma unroll
                    for (u32 j = 0; j < N; ++j) nan_flag = accumulate_nan(neighbours[s][j], nan_flag);
                }
                interpolate<MODE>(made, neighbours, data.curves[SAMPLES == 4 ? at : 0], result);
                bool is_correct = nan_flag == 0.0f;
#pragma unroll
                for (u32 j = 0; j < N; ++j)
                    is_correct = is_correct && (made.kind == PICK_INVALID || is_representable<T>(result[j]));
                Elements packed{};
                pack_all(result, packed.words, T{});
#pragma unroll
                for (u32 w = 0; w < sizeof packed.words / sizeof packed.words[0]; ++w) {
                    packed.words[w] = made.kind == PICK_INVALID ? (u32)(w % 2 ? data.fill >> 32 : data.fill) : packed.words[w];
                }
                if (first + r * rows_at_once < data.targets) packed.store(to + (u64)at * data.dim);
                if (!is_correct) {
                    doubts.add(at);
                    is_doubtful = true;
                }
            }
        }
    }
}

// Calls `write_channels` with the widest vectors that the alignment allows.
template <class T, u32 MODE>
__device__ __forceinline__ void write_widest(const TileData<T>& data, const Group& group, Doubts& doubts,
                                             bool& is_doubtful) {
    constexpr u32 WIDEST = sizeof(T) == 8 ? 2 : 4;
    if (alignment(data, group) >= WIDEST) {
        write_channels<T, MODE, WIDEST>(data, group, doubts, is_doubtful);
    } else {
        write_channels<T, MODE, 1>(data, group, doubts, is_doubtful);
    }
}

// Marks a target as doubtful if one of the outer two of the four samples around it is not finite, in a group that is
// not a curve.
template <class T>
__device__ __forceinline__ void check_outer(const TileData<T>& data, const Group& group, Doubts& doubts, bool& is_doubtful) {
    u32 width = group.to - group.from;
    for (u32 i = threadIdx.x; data.has_samples && i < data.targets * width; i += BLOCK) {
        u32 at = i / width, channel = group.from + i % width;
        const u32(&samples)[4] = data.rows[at].samples;
        if (is_finite(load(data.values + (u64)samples[LEFT] * data.dim + channel)) &&
            is_finite(load(data.values + (u64)samples[RIGHT] * data.dim + channel))) {
            continue;
        }
        doubts.add(at);
        is_doubtful = true;
    }
}

// Writes the rotations of a tile, which are the first groups. A thread takes a rotation of a target; neighbouring
// threads take the rotations of one target. Marks the doubtful targets.
template <class T>
__device__ __forceinline__ void write_rotations(const ResampleModesParams& modes, const TileData<T>& data, Doubts& doubts,
                                                bool& is_doubtful) {
    typedef typename RealOf<T>::type Real;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < data.targets * modes.rotations; i += BLOCK) {
        u32 at = i / modes.rotations;
        const Group& group = modes.own_groups[i - at * modes.rotations];
        u32 mode = group.mode, width = rotation_width(mode);
        bool is_wide = alignment(data, group) >= (mode == SLERP ? QUATERNION_AT_ONCE<T> : 2);
        const Row<Real>& row = data.rows[at];
        const T* from = data.values + group.from;
        Real a[MAX_ROTATION_WIDTH] = {}, b[MAX_ROTATION_WIDTH] = {};
        if (data.has_samples) {
            load_rotation(from + (u64)row.samples[BEFORE] * data.dim, mode, is_wide, a);
            load_rotation(from + (u64)row.samples[AFTER] * data.dim, mode, is_wide, b);
        }
        bool is_correct =
            (is_usable_rotation(mode, width, a) & is_usable_rotation(mode, width, b)) || !data.has_samples;
        if (data.has_samples && modes.has_curves) {
            Real left[MAX_ROTATION_WIDTH], right[MAX_ROTATION_WIDTH];
            load_rotation(from + (u64)row.samples[LEFT] * data.dim, mode, is_wide, left);
            load_rotation(from + (u64)row.samples[RIGHT] * data.dim, mode, is_wide, right);
            is_correct = is_correct && is_usable_rotation(mode, width, left) && is_usable_rotation(mode, width, right);
        }
        const Made<Real> made = made_of(row, group);
        interpolate_rotation(mode, group.canonical, made.kind != PICK_BETWEEN, made.weight, a, b);
        T* to = data.out + (u64)at * data.dim + group.from;
#pragma unroll
        for (u32 c = 0; c < MAX_ROTATION_WIDTH; ++c)
            is_correct = is_correct && (c >= width || made.kind == PICK_INVALID || is_representable<T>(a[c]));
        if (made.kind == PICK_INVALID) {
            for (u32 c = 0; c < width; ++c) memcpy(to + c, &data.fill, sizeof(T));
        } else if (mode == SLERP) {
            is_wide ? store_wide<4, QUATERNION_AT_ONCE<T>>(to, a) : store_wide<4, 1>(to, a);
        } else {
            is_wide ? store_wide<6, 2>(to, a) : store_wide<6, 1>(to, a);
        }
        if (!is_correct) {
            doubts.add(at);
            is_doubtful = true;
        }
    }
}

// True if a sample counts: it is finite, and a rotation in every group of a rotation mode, as `Spec::takes` of
// crates/ops/src/resample/cpu.rs. All lanes of the warp call this.
template <class T>
__device__ __forceinline__ bool is_sample_usable(const T* sample, u32 dim, const Group* groups, u32 count) {
    typedef typename RealOf<T>::type Real;
    bool is_usable = is_sample_finite(sample, dim);
    for (u32 g = threadIdx.x % 32; is_usable && g < count; g += 32) {
        if (!is_rotation(groups[g].mode)) continue;
        Real values[MAX_ROTATION_WIDTH];
        load_rotation(sample + groups[g].from, groups[g].mode, false, values);
        is_usable = is_rotation_sample(groups[g].mode, values);
    }
    return __all_sync(0xffffffff, is_usable);
}

// Computes one target again, from the samples that count alone, as `recompute_target` of resample.cu does. All lanes of
// the warp call this.
template <class T>
__device__ __noinline__ void recompute_target_modes(const ResampleModesParams& modes, const ResampleTile& tile,
                                                    u64 target_index) {
    typedef typename RealOf<T>::type Real;
    const ResampleParams& p = modes.batch;
    u32 lane = threadIdx.x % 32;
    Times times{p.times + tile.sample, tile.samples, 0, ~0u};
    const T* values = (const T*)p.values + tile.sample * p.dim;
    i64 target = __ldg(p.targets + target_index);
    Bracket bracket = find_bracket(times, Slice{0, 0}, nullptr, target);
    auto is_usable = [&](u32 i) {
        return is_sample_usable(values + (u64)i * p.dim, p.dim, modes.own_groups, modes.groups);
    };
    // Finds the first sample from an index on that counts, or the last such sample of the same time.
    auto next_usable = [&](u32 from) {
        while (from < times.count && !is_usable(from)) ++from;
        u32 last = from;
        for (u32 i = from + 1; i < times.count && time_at(times, i) == time_at(times, from); ++i) {
            last = is_usable(i) ? i : last;
        }
        return last;
    };
    u32 before = bracket.until;
    while (before > 0 && !is_usable(before - 1)) --before;
    bracket.has_before = before > 0;
    bracket.before = bracket.has_before ? time_at(times, before - 1) : 0;
    u32 after = next_usable(bracket.until);
    bracket.has_after = after < times.count;
    bracket.after = bracket.has_after ? time_at(times, after) : 0;
    u32 left = bracket.has_before ? before - 1 : 0;
    u32 right = times.count;
    if (modes.has_curves && bracket.has_before && bracket.has_after) {
        while (left > 0 && (time_at(times, left - 1) == bracket.before || !is_usable(left - 1))) --left;
        right = next_usable(after + 1);
    }
    Row<Real> row = row_of<Real>(bracket, target, before - 1, after);
    row.has_left = left > 0;
    row.has_right = right < times.count;
    if (row.has_left) {
        row.samples[LEFT] = left - 1;
        row.to_left = distance(time_at(times, left - 1), bracket.before);
    }
    if (row.has_right) {
        row.samples[RIGHT] = right;
        row.to_right = distance(bracket.after, time_at(times, right));
    }

    T fill = fill_value<T>(p);
    T* out = (T*)p.out + target_index * p.dim;
    bool is_valid = true, overflows = false;
    for (u32 g = 0; g < modes.groups; ++g) {
        const Group group = modes.own_groups[g];
        Made<Real> made = made_of(row, group);
        bool fits = true;
        if (is_rotation(group.mode)) {
            u32 width = rotation_width(group.mode);
            Real a[MAX_ROTATION_WIDTH] = {}, b[MAX_ROTATION_WIDTH] = {};
            if (made.kind != PICK_INVALID) load_rotation(values + (u64)(before - 1) * p.dim + group.from, group.mode, false, a);
            if (made.kind == PICK_BETWEEN) load_rotation(values + (u64)after * p.dim + group.from, group.mode, false, b);
            interpolate_rotation(group.mode, group.canonical, made.kind != PICK_BETWEEN, made.weight, a, b);
#pragma unroll
            for (u32 i = 0; i < MAX_ROTATION_WIDTH; ++i) {
                if (i >= width) continue;
                fits = fits && (made.kind == PICK_INVALID || is_representable<T>(a[i]));
                if (lane == 0) store_or_fill(out + group.from + i, made.kind, a[i], fill);
            }
        } else {
            Curve<Real> own = is_curve(group.mode) ? curve_of(row, group) : make_line<Real>();
            bool reads[4] = {made.kind == PICK_BEFORE || made.kind == PICK_BETWEEN,
                             made.kind == PICK_AFTER || made.kind == PICK_BETWEEN, own.has_left, own.has_right};
            for (u32 i = group.from + lane; i < group.to; i += 32) {
                Real neighbours[4] = {}, result;
#pragma unroll
                for (u32 s = 0; s < 4; ++s) {
                    if (reads[s]) neighbours[s] = load(values + (u64)row.samples[s] * p.dim + i);
                }
                if (made.kind == PICK_AFTER) neighbours[BEFORE] = neighbours[AFTER];
                if (made.kind != PICK_BETWEEN) neighbours[AFTER] = neighbours[BEFORE];
                result = make_one(group.mode, neighbours, made.weight, own);
                fits = fits && (made.kind == PICK_INVALID || is_representable<T>(result));
                store_or_fill(out + i, made.kind, result, fill);
            }
        }
        if (!__all_sync(0xffffffff, fits)) {
            overflows = true;
            __syncwarp();
            for (u32 i = group.from + lane; i < group.to; i += 32) out[i] = fill;
        }
        is_valid = is_valid && made.kind != PICK_INVALID;
    }
    if (lane == 0) {
        p.valid[target_index] = overflows ? p.overflow : is_valid;
    }
}

constexpr u32 FEW_BLOCKS = 256;

// Resamples a tile: each thread finds the bracket of one target, then all threads write the rotations of the tile, and
// its other groups one by one.
template <class T> __device__ __forceinline__ void resample_modes(const ResampleModesParams& modes) {
    typedef typename RealOf<T>::type Real;
    __shared__ i64 staged[STAGED_TIMES];
    __shared__ Row<Real> rows[BLOCK];
    __shared__ Made<Real> made[BLOCK];
    __shared__ Curve<Real> curves[BLOCK];
    __shared__ Doubts doubts;

    // Few blocks leave room for the blocks of the next kernel.
    if (gridDim.x * gridDim.y <= FEW_BLOCKS) {
        let_next_start();
    }
    const ResampleParams& p = modes.batch;
    ResampleTile tile = tile_of_block(p);
    const i64* targets = p.targets + tile.target;
    const T* values = (const T*)p.values + tile.sample * p.dim;
    TileData<T> data{values, (T*)p.out + tile.target * p.dim, rows, made, curves, tile.targets, p.dim,
                   tile.samples > 0, p.fill};

    Times times{p.times + tile.sample, tile.samples, 0, ~0u};
    u32 own = threadIdx.x;
    bool has_target = own < data.targets;
    i64 target = has_target ? __ldg(targets + own) : 0;
    if (own < BLOCK / 32) {
        doubts.targets[own] = 0;
    }
    Slice slice = stage_times(times, __ldg(targets), __ldg(targets + tile.targets - 1), staged);
    bool is_doubtful = false;
    if (has_target) {
        Bracket bracket = find_bracket(times, slice, staged, target);
        u32 before = max(bracket.until, 1u) - 1;
        u32 after = min(bracket.until, max(times.count, 1u) - 1);
        Row<Real> row = row_of<Real>(bracket, target, before, after);
        is_doubtful = bracket.tied;
        if (modes.has_curves && bracket.has_before && bracket.has_after) {
            auto time = [&](u32 i) {
                return i >= slice.from && i < slice.to ? staged[i - slice.from] : time_at(times, i);
            };
            row.has_left = before > 0;
            row.has_right = after + 1 < times.count;
            row.samples[LEFT] -= row.has_left;
            row.samples[RIGHT] += row.has_right;
            i64 left = row.has_left ? time(before - 1) : 0, right = row.has_right ? time(after + 1) : 0;
            row.to_left = row.has_left ? distance(left, bracket.before) : 0;
            row.to_right = row.has_right ? distance(bracket.after, right) : 0;
            // Of several samples of the same time, the last one that counts is taken.
            is_doubtful = is_doubtful || (row.has_left && row.to_left == 0) ||
                          (after + 2 < times.count && time(after + 2) == right);
        }
        rows[own] = row;
        bool is_valid = true;
#pragma unroll 1
        for (u32 g = 0; g < modes.groups; ++g) {
            is_valid = is_valid && made_of(row, modes.own_groups[g]).kind != PICK_INVALID;
        }
        p.valid[tile.target + own] = is_valid;
        if (is_doubtful) {
            doubts.add(own);
        }
    }
    // Stages `made` and `curves` for a group, if there is one with this index: each thread writes those of its target.
    auto stage_made = [&](u32 g) {
        if (!has_target || g >= modes.groups) return;
        const Group& group = modes.own_groups[g];
        made[own] = made_of(rows[own], group);
        if (is_curve(group.mode)) curves[own] = curve_of(rows[own], group);
    };
    stage_made(modes.rotations);
    __syncthreads();
    write_rotations(modes, data, doubts, is_doubtful);
#pragma unroll 1
    for (u32 g = modes.rotations; g < modes.groups; ++g) {
        if (g > modes.rotations) {
            __syncthreads();
            stage_made(g);
            __syncthreads();
        }
        const Group& group = modes.own_groups[g];
        if (modes.has_curves && !is_curve(group.mode)) {
            check_outer(data, group, doubts, is_doubtful);
        }
        with_mode(group.mode, [&](auto known) {
            write_widest<T, decltype(known)::mode>(data, group, doubts, is_doubtful);
        });
    }
    recompute_doubtful(doubts, is_doubtful,
                       [&](u32 index) { recompute_target_modes<T>(modes, tile, tile.target + index); });
}

struct ResampleCountModesParams {
    ResampleCountParams count;
    u32 groups;
    u32 unused;
    Group own_groups[MOST_GROUPS];
};

// Counts the samples that are dropped, for `ResampleCounters::dropped_nonfinite`. A warp takes a sample at a time.
template <class T> __device__ __forceinline__ void count_dropped(const ResampleCountModesParams& modes) {
    const ResampleCountParams& p = modes.count;
    u64 warp = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    u64 step = (u64)gridDim.x * (blockDim.x / 32);
    u32 dropped = 0;
    for (u64 sample = warp; sample < p.samples; sample += step) {
        dropped += !is_sample_usable((const T*)p.values + sample * p.dim, p.dim, modes.own_groups, modes.groups);
    }
    if (threadIdx.x % 32 == 0 && dropped > 0) {
        atomicAdd(p.dropped, (u64)dropped);
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
