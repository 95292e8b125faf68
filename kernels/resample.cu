// Resamples trajectories, bit for bit as `CpuResampler` of crates/ops/src/resample/cpu.rs. The kernels `resample_count_*`
// count the samples that are dropped.

// The CPU drops samples that are not finite before it searches brackets. The fast path here does not: it brackets each
// target among all samples, and checks only the two rows that it reads. If both are finite, the value is right, because
// a dropped sample could only lie further away.

// A target with a row that is not finite is doubtful: a warp computes it again from the finite samples alone. If the
// type can't hold the result, the warp writes the fill value.

#include "time.cuh"

// Consecutive targets of one trajectory: the work of a block.
struct ResampleTile {
    // Indices of the trajectory's first sample and the tile's first target among those of the whole batch.
    u64 sample;
    u64 target;
    u32 samples;
    u32 targets;
};

struct ResampleParams {
    // The samples of all trajectories, one after the other: their times, and their values [samples, dim].
    const i64* times;
    const void* values;
    const i64* targets;
    // Output: values [targets, dim] of the type of `values`; validity [targets], 1 for a valid value, else 0 or `overflow`.
    void* out;
    u8* valid;
    // Ragged batches: a tile for each block. Regular batches: null; each trajectory has `row_samples` samples and
    // `row_targets` targets.
    const ResampleTile* tiles;
    // The fill value, repeated over 8 bytes.
    u64 fill;
    Limits limits;
    u32 row_samples;
    u32 row_targets;
    // Regular batches: targets of a tile, at most BLOCK. Block (x, y) does tile x of trajectory y.
    u32 tile_targets;
    u32 dim;
    // An `Interpolation`.
    u32 mode;
    // Number of vectors in a row of `dim` values. Also the quotient and remainder of BLOCK by it, which are the step of
    // a thread through the rows of a tile.
    u32 row_vectors;
    u32 step_rows;
    u32 step_vectors;
    // 2^32 divided by `row_vectors`, rounded up: a thread divides by multiplying with it.
    u64 row_magic;
    // Written to `valid` if the type can't hold the result: 0, or another number to tell this from other reasons.
    u32 overflow;
    u32 unused;
};

// Threads of a block, and the most targets of a tile.
constexpr u32 BLOCK = 128;
constexpr u32 STAGED_TIMES = 1024;

// Two samples of the trajectory that give a target's row, and the weight of the second. For a value that is a single
// sample, both are that sample. For the fill value, they are arbitrary.
template <class Real> struct alignas(16) Choice {
    u32 first;
    u32 second;
    Real weight;
};

// Markers in place of a weight: the value is the sample, or the fill value.
constexpr float SAMPLE_MARKER = -1.0f;
constexpr float FILL_MARKER = -2.0f;

template <class T> struct RealOf {
    typedef float type;
};
template <> struct RealOf<double> {
    typedef double type;
};

// BYTES bytes that a thread loads through the read-only cache, or stores as a stream, at once, as words of 4 bytes.
template <u32 BYTES> struct Vector;
template <> struct alignas(16) Vector<16> {
    u32 words[4];
    __device__ __forceinline__ void load(const void* at) {
        uint4 v = __ldg((const uint4*)at);
        words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    }
    __device__ __forceinline__ void store(void* at) const {
        __stcs((uint4*)at, make_uint4(words[0], words[1], words[2], words[3]));
    }
};
template <> struct alignas(8) Vector<8> {
    u32 words[2];
    __device__ __forceinline__ void load(const void* at) {
        uint2 v = __ldg((const uint2*)at);
        words[0] = v.x, words[1] = v.y;
    }
    __device__ __forceinline__ void store(void* at) const { __stcs((uint2*)at, make_uint2(words[0], words[1])); }
};
template <> struct Vector<4> {
    u32 words[1];
    __device__ __forceinline__ void load(const void* at) { words[0] = __ldg((const u32*)at); }
    __device__ __forceinline__ void store(void* at) const { __stcs((u32*)at, words[0]); }
};
// The upper half of the word is 0.
template <> struct Vector<2> {
    u32 words[1];
    __device__ __forceinline__ void load(const void* at) { words[0] = __ldg((const u16*)at); }
    __device__ __forceinline__ void store(void* at) const { __stcs((u16*)at, (u16)words[0]); }
};

// Blends the elements in the words of a and b; the last argument is of the element type, and unused. If a result is not
// finite, `nan_flag` becomes a NaN and stays one, because value * 0 is a NaN only then. A result is not finite if an
// element is not.
template <u32 WORDS>
__device__ __forceinline__ void blend_words(u32 mode, const u32* a, const u32* b, float weight, u32* out,
                                            float& nan_flag, float) {
#pragma unroll
    for (u32 i = 0; i < WORDS; ++i) {
        float value = blend(mode, __uint_as_float(a[i]), __uint_as_float(b[i]), weight);
        nan_flag = fmaf(value, 0.0f, nan_flag);
        out[i] = __float_as_uint(value);
    }
}

template <u32 WORDS>
__device__ __forceinline__ void blend_words(u32 mode, const u32* a, const u32* b, double weight, u32* out,
                                            float& nan_flag, double) {
#pragma unroll
    for (u32 i = 0; i < WORDS; i += 2) {
        double from = __longlong_as_double((i64)((u64)a[i + 1] << 32 | a[i]));
        double to = __longlong_as_double((i64)((u64)b[i + 1] << 32 | b[i]));
        u64 bits = (u64)__double_as_longlong(blend(mode, from, to, weight));
        out[i] = (u32)bits;
        out[i + 1] = (u32)(bits >> 32);
        // A float64 with all ones in the exponent is not finite, and becomes an infinity of float32.
        nan_flag = fmaf(__uint_as_float(((out[i + 1] >> 20 & 0x7ff) == 0x7ff) ? 0x7f800000 : 0), 0.0f, nan_flag);
    }
}

template <u32 WORDS, class Half>
__device__ __forceinline__ void blend_words(u32 mode, const u32* a, const u32* b, float weight, u32* out,
                                            float& nan_flag, Half) {
#pragma unroll
    for (u32 i = 0; i < WORDS; ++i) {
        float low = blend(mode, to_f32(Half{(u16)a[i]}), to_f32(Half{(u16)b[i]}), weight);
        float high = blend(mode, to_f32(Half{(u16)(a[i] >> 16)}), to_f32(Half{(u16)(b[i] >> 16)}), weight);
        nan_flag = fmaf(low, 0.0f, nan_flag);
        nan_flag = fmaf(high, 0.0f, nan_flag);
        out[i] = pack<Half>(low, high);
    }
}

// False for a NaN and for an infinity, as `is_finite` of types.cuh.
__device__ __forceinline__ bool is_finite(bf16 v) { return (v.bits & 0x7f80) != 0x7f80; }
__device__ __forceinline__ bool is_finite(f16 v) { return (v.bits & 0x7c00) != 0x7c00; }
__device__ __forceinline__ bool is_finite(double v) {
    return ((u64)__double_as_longlong(v) >> 52 & 0x7ff) != 0x7ff;
}

// Blends two elements, and rounds the result to their type.
__device__ __forceinline__ double blend_element(u32 mode, double a, double b, double weight) {
    return blend(mode, a, b, weight);
}
template <class T> __device__ __forceinline__ T blend_element(u32 mode, T a, T b, double weight) {
    return from_f32<T>(blend(mode, to_f32(a), to_f32(b), (float)weight));
}

// True if all channels of a sample are finite. All lanes of the warp call this.
template <class T> __device__ __forceinline__ bool is_sample_finite(const T* sample, u32 dim) {
    bool finite = true;
    for (u32 i = threadIdx.x % 32; i < dim; i += 32) {
        finite &= is_finite(sample[i]);
    }
    return __all_sync(0xffffffff, finite);
}

// Writes the fill value for a target whose value the type can't hold. All lanes of the warp call this. It is not a part
// of `recompute_target`, because there it costs the kernels registers.
template <class T> __device__ __noinline__ void fill_overflowed_target(const ResampleParams& p, u64 target_index) {
    T fill;
    memcpy(&fill, &p.fill, sizeof fill);
    T* out = (T*)p.out + target_index * p.dim;
    for (u32 i = threadIdx.x % 32; i < p.dim; i += 32) {
        out[i] = fill;
    }
    if (threadIdx.x % 32 == 0) {
        p.valid[target_index] = p.overflow;
    }
}

// Computes one target again from the finite samples alone, as `UsableSamples` of crates/ops/src/resample/cpu.rs, but
// only drops samples around the target. The target has `target_index` among those of the batch. All lanes of the warp
// call this.
template <class T>
__device__ __noinline__ void recompute_target(const ResampleParams& p, const ResampleTile& tile, u64 target_index) {
    Times times{p.times + tile.sample, tile.samples, 0, ~0u};
    const T* values = (const T*)p.values + tile.sample * p.dim;
    i64 target = __ldg(p.targets + target_index);
    Bracket bracket = find_bracket(times, Slice{0, 0}, nullptr, target);
    u32 before = bracket.until;
    while (before > 0 && !is_sample_finite(values + (u64)(before - 1) * p.dim, p.dim)) {
        --before;
    }
    bracket.has_before = before > 0;
    bracket.before = bracket.has_before ? time_at(times, before - 1) : 0;
    u32 after = bracket.until;
    while (after < times.count && !is_sample_finite(values + (u64)after * p.dim, p.dim)) {
        ++after;
    }
    bracket.has_after = after < times.count;
    if (bracket.has_after) {
        bracket.after = time_at(times, after);
        for (u32 i = after + 1; i < times.count && time_at(times, i) == bracket.after; ++i) {
            after = is_sample_finite(values + (u64)i * p.dim, p.dim) ? i : after;
        }
    }
    u32 mode = p.mode;
    Pick picked = pick(bracket, target, mode, p.limits);
    const T* a = values + (u64)(picked.kind == PICK_AFTER ? after : before - 1) * p.dim;
    const T* b = picked.kind == PICK_BETWEEN || SAMPLES_KEEP_BITS ? values + (u64)after * p.dim : a;
    T fill;
    memcpy(&fill, &p.fill, sizeof fill);
    T* out = (T*)p.out + target_index * p.dim;
    bool fits = true;
    for (u32 i = threadIdx.x % 32; i < p.dim; i += 32) {
        if (picked.kind == PICK_INVALID) {
            out[i] = fill;
        } else {
            bool is_blended = picked.kind == PICK_BETWEEN || !SAMPLES_KEEP_BITS;
            out[i] = is_blended ? blend_element(mode, a[i], b[i], picked.weight) : a[i];
            fits &= is_finite(out[i]);
        }
    }
    if (threadIdx.x % 32 == 0) {
        p.valid[target_index] = picked.kind != PICK_INVALID;
    }
    if (!__all_sync(0xffffffff, fits)) {
        fill_overflowed_target<T>(p, target_index);
    }
}

// Returns the tile of this block.
__device__ __forceinline__ ResampleTile tile_of_block(const ResampleParams& p) {
    if (p.tiles) {
        return p.tiles[blockIdx.x];
    }
    u32 from = blockIdx.x * p.tile_targets;
    return ResampleTile{(u64)blockIdx.y * p.row_samples, (u64)blockIdx.y * p.row_targets + from, p.row_samples,
                        min(p.tile_targets, p.row_targets - from)};
}

// The doubtful targets of a tile, a bit for each. `add` sets the bit of a target by its index in the tile.
struct Doubts {
    u32 targets[BLOCK / 32];
    __device__ __forceinline__ void add(u32 target) { atomicOr(&targets[target / 32], 1u << target % 32); }
};

// Chooses the samples that give the value at `target`, ns, of the samples `before` and `after` around it. Sets
// `is_doubtful` if the choice may be wrong for a reason that the rows do not show. Either several samples share the
// time after the target, and the last finite one counts. Or the gap is too long, but without a finite sample at its
// end, `before` may be held.
template <class Real>
__device__ __forceinline__ Choice<Real> choose(const ResampleParams& p, const Bracket& bracket, u32 before, u32 after,
                                               i64 target, bool& is_doubtful) {
    Pick picked = pick(bracket, target, p.mode, p.limits);
    Choice<Real> choice{before, after, (Real)picked.weight};
    if (picked.kind != PICK_BETWEEN) {
        choice.first = picked.kind == PICK_AFTER ? after : before;
        choice.second = choice.first;
        choice.weight = picked.kind == PICK_INVALID ? (Real)FILL_MARKER : (Real)SAMPLE_MARKER;
    }
    bool takes_after = picked.kind == PICK_AFTER || picked.kind == PICK_BETWEEN;
    bool may_hold = picked.kind == PICK_INVALID && IS_INTERPOLATED(p.mode) && bracket.has_before && bracket.has_after &&
                    distance(bracket.before, target) <= p.limits.extrapolate;
    is_doubtful = (takes_after && bracket.tied) || may_hold;
    return choice;
}

// Blends two vectors of samples, or takes the sample or the fill value. Returns true if the samples that count are
// finite.
template <class T, u32 BYTES, class Real>
__device__ __forceinline__ bool blend_vector(const ResampleParams& p, const Vector<BYTES>& a, const Vector<BYTES>& b,
                                             Real weight, Vector<BYTES>& result) {
    constexpr u32 WORDS = BYTES < 4 ? 1 : BYTES / 4;
    float nan_flag = 0.0f;
    blend_words<WORDS>(p.mode, a.words, b.words, weight, result.words, nan_flag, T{});
    bool is_fill = weight == (Real)FILL_MARKER;
    if (weight < 0) {
#pragma unroll
        for (u32 w = 0; w < WORDS; ++w) {
            result.words[w] = is_fill             ? (u32)(w % 2 ? p.fill >> 32 : p.fill)
                              : SAMPLES_KEEP_BITS ? a.words[w]
                                                  : result.words[w];
        }
    }
    return nan_flag == 0.0f || is_fill;
}

// Computes the doubtful targets of a tile again: for each, a warp calls `recompute` with its index in the tile. All
// threads of the block call this.
template <class Recompute>
__device__ __forceinline__ void recompute_doubtful(const Doubts& doubts, bool is_doubtful, const Recompute& recompute) {
    if (!__syncthreads_or(is_doubtful)) {
        return;
    }
    for (u32 i = 0; i < BLOCK / 32; ++i) {
        // The warps take turns.
        u32 mask = doubts.targets[i];
        for (u32 turn = 0; mask != 0; mask &= mask - 1, ++turn) {
            if (turn % (BLOCK / 32) == threadIdx.x / 32) {
                recompute(i * 32 + (u32)__ffs((int)mask) - 1);
            }
        }
    }
}

// Resamples a tile in two steps: each thread finds the bracket of one target, then all threads write the rows of the
// tile, UNROLL vectors of BYTES at a time. One step is enough if the tile has no more vectors than the block has
// threads (`is_direct`). Each thread then finds the bracket for its own vector, and loads the samples while it computes
// their weight.
template <class T, u32 BYTES, u32 UNROLL> __device__ __forceinline__ void resample(const ResampleParams& p) {
    typedef typename RealOf<T>::type Real;
    __shared__ i64 staged[STAGED_TIMES];
    __shared__ Choice<Real> choices[BLOCK];
    __shared__ Doubts doubts;

    ResampleTile tile = tile_of_block(p);
    auto recompute = [&](u32 index) { recompute_target<T>(p, tile, tile.target + index); };
    const i64* targets = p.targets + tile.target;
    u32 row_bytes = p.dim * (u32)sizeof(T);
    const u8* values = (const u8*)p.values + tile.sample * row_bytes;
    u8* out = (u8*)p.out + tile.target * row_bytes;
    // Warms the TLB: the pages of values and output are in it by the time they are needed.
    if (threadIdx.x == 0) {
        prefetch(tile.samples > 0 ? values : (const u8*)targets);
    }
    if (threadIdx.x == 32) {
        prefetch(out);
    }
    u32 row = (u32)(threadIdx.x * p.row_magic >> 32);
    u32 vector = threadIdx.x - row * p.row_vectors;
    u32 total = tile.targets * p.row_vectors;
    bool has_samples = tile.samples > 0, is_direct = total <= BLOCK;

    Times times{p.times + tile.sample, tile.samples, 0, ~0u};
    u32 own_target = is_direct ? row : threadIdx.x;
    bool has_target = own_target < tile.targets;
    i64 target = has_target ? __ldg(targets + own_target) : 0;
    if (threadIdx.x < BLOCK / 32) {
        doubts.targets[threadIdx.x] = 0;
    }
    Slice slice = stage_times(times, __ldg(targets), __ldg(targets + tile.targets - 1), staged);
    bool is_doubtful = false;
    if (has_target) {
        Bracket bracket = find_bracket(times, slice, staged, target);
        u32 before = max(bracket.until, 1u) - 1;
        u32 after = min(bracket.until, max(tile.samples, 1u) - 1);
        Vector<BYTES> a{}, b{};
        if (is_direct && has_samples) {
            a.load(values + (u64)before * row_bytes + vector * BYTES);
            b.load(values + (u64)after * row_bytes + vector * BYTES);
        }
        Choice<Real> choice = choose<Real>(p, bracket, before, after, target, is_doubtful);
        if (!is_direct || vector == 0) {
            p.valid[tile.target + own_target] = choice.weight != (Real)FILL_MARKER;
        }
        if (is_direct) {
            bool from_before = choice.first == before, to_after = choice.second == after;
            Vector<BYTES> result, loaded_b = b;
#pragma unroll
            for (u32 w = 0; w < sizeof a.words / sizeof a.words[0]; ++w) {
                b.words[w] = to_after ? b.words[w] : a.words[w];
                a.words[w] = from_before ? a.words[w] : loaded_b.words[w];
            }
            is_doubtful |= !blend_vector<T>(p, a, b, choice.weight, result);
            result.store(out + (u64)threadIdx.x * BYTES);
        } else {
            choices[own_target] = choice;
        }
        if (is_doubtful) {
            doubts.add(own_target);
        }
    }
    if (is_direct) {
        return recompute_doubtful(doubts, is_doubtful, recompute);
    }
    __syncthreads();
    u32 last_row = tile.targets - 1;
    for (u32 item = threadIdx.x; item < total; item += UNROLL * BLOCK) {
        Vector<BYTES> a[UNROLL], b[UNROLL];
        Real weights[UNROLL];
        u32 rows[UNROLL];
#pragma unroll
        for (u32 i = 0; i < UNROLL; ++i) {
            rows[i] = min(row, last_row);
            Choice<Real> choice = choices[rows[i]];
            weights[i] = choice.weight;
            const u8* at = values + vector * BYTES;
            if (has_samples) {
                a[i].load(at + (u64)choice.first * row_bytes);
                b[i].load(at + (u64)choice.second * row_bytes);
            }
            row += p.step_rows;
            vector += p.step_vectors;
            if (vector >= p.row_vectors) {
                vector -= p.row_vectors;
                ++row;
            }
        }
#pragma unroll
        for (u32 i = 0; i < UNROLL; ++i) {
            Vector<BYTES> result;
            if (!blend_vector<T>(p, a[i], b[i], weights[i], result)) {
                is_doubtful = true;
                doubts.add(rows[i]);
            }
            if (item + i * BLOCK < total) {
                result.store(out + (u64)(item + i * BLOCK) * BYTES);
            }
        }
    }
    recompute_doubtful(doubts, is_doubtful, recompute);
}

// The most vectors in all samples of a short trajectory, which has fewer samples than a block has threads.
constexpr u32 SHORT_VECTORS = 4 * BLOCK;

// Resamples a tile of few and short trajectories, where only waiting for memory takes time. It waits once: times,
// targets and all samples are loaded together, the samples to shared memory. Each thread writes one vector of one
// target: the `tile_targets` rows of a tile have no more vectors than a block has threads.
template <class T, u32 BYTES> __device__ __forceinline__ void resample_short(const ResampleParams& p) {
    typedef typename RealOf<T>::type Real;
    __shared__ i64 times[BLOCK];
    __shared__ Vector<BYTES> samples[SHORT_VECTORS];
    __shared__ Doubts doubts;

    u32 row = (u32)(threadIdx.x * p.row_magic >> 32);
    u32 vector = threadIdx.x - row * p.row_vectors;
    u64 first_sample = (u64)blockIdx.y * p.row_samples;
    u64 first_target = (u64)blockIdx.y * p.row_targets + blockIdx.x * p.tile_targets;
    bool has_target = row < p.tile_targets && blockIdx.x * p.tile_targets + row < p.row_targets;
    u32 vectors = p.row_samples * p.row_vectors;
    const u8* values = (const u8*)p.values + first_sample * p.row_vectors * BYTES;

    i64 time = threadIdx.x < p.row_samples ? __ldg(p.times + first_sample + threadIdx.x) : PADDING_TIME;
    i64 target = has_target ? __ldg(p.targets + first_target + row) : 0;
    Vector<BYTES> loaded[SHORT_VECTORS / BLOCK];
#pragma unroll
    for (u32 k = 0; k < SHORT_VECTORS / BLOCK; ++k) {
        u32 at = threadIdx.x + k * BLOCK;
        loaded[k] = Vector<BYTES>{};
        if (at < vectors) {
            loaded[k].load(values + at * BYTES);
        }
    }
    if (threadIdx.x < BLOCK / 32) {
        doubts.targets[threadIdx.x] = 0;
    }
    times[threadIdx.x] = time;
#pragma unroll
    for (u32 k = 0; k < SHORT_VECTORS / BLOCK; ++k) {
        samples[threadIdx.x + k * BLOCK] = loaded[k];
    }
    __syncthreads();

    bool is_doubtful = false;
    if (has_target) {
        // A 4-ary search over BLOCK times; times past the last sample are LATEST.
        u32 until = times[63] <= target ? 64 : 0;
#pragma unroll
        for (u32 step = 16; step > 0; step /= 4) {
            until += step * pivots_at_or_before(times + until + step - 1, step, target);
        }
        Bracket bracket = make_bracket([&](u32 i) { return times[i]; }, min(until, p.row_samples), p.row_samples);
        u32 before = max(bracket.until, 1u) - 1;
        u32 after = min(bracket.until, max(p.row_samples, 1u) - 1);
        Choice<Real> choice = choose<Real>(p, bracket, before, after, target, is_doubtful);
        Vector<BYTES> result;
        const Vector<BYTES>& a = samples[choice.first * p.row_vectors + vector];
        const Vector<BYTES>& b = samples[choice.second * p.row_vectors + vector];
        is_doubtful |= !blend_vector<T>(p, a, b, choice.weight, result);
        result.store((u8*)p.out + ((first_target + row) * p.row_vectors + vector) * BYTES);
        if (vector == 0) {
            p.valid[first_target + row] = choice.weight != (Real)FILL_MARKER;
        }
        if (is_doubtful) {
            doubts.add(row);
        }
    }
    ResampleTile tile{first_sample, first_target, p.row_samples, p.tile_targets};
    recompute_doubtful(doubts, is_doubtful, [&](u32 index) { recompute_target<T>(p, tile, tile.target + index); });
}

#define RESAMPLE(name, type, bytes)                                                                                    \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                \
        resample_##name##_##bytes(const __grid_constant__ ResampleParams p) {                                          \
        wait_for_previous();                                                                                           \
        resample<type, bytes, 2>(p);                                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                \
        resample_##name##_##bytes##_short(const __grid_constant__ ResampleParams p) {                                  \
        let_next_start();                                                                                              \
        wait_for_previous();                                                                                           \
        resample_short<type, bytes>(p);                                                                                \
    }

// Kernels by element type and by the bytes of a vector. A row is a whole number of vectors.
RESAMPLE(f32, float, 16)
RESAMPLE(f32, float, 8)
RESAMPLE(f32, float, 4)
RESAMPLE(f64, double, 16)
RESAMPLE(f64, double, 8)
RESAMPLE(f16, f16, 16)
RESAMPLE(f16, f16, 8)
RESAMPLE(f16, f16, 4)
RESAMPLE(f16, f16, 2)
RESAMPLE(bf16, bf16, 16)
RESAMPLE(bf16, bf16, 8)
RESAMPLE(bf16, bf16, 4)
RESAMPLE(bf16, bf16, 2)

struct ResampleCountParams {
    // [samples, dim]
    const void* values;
    // The number that the count is added to.
    u64* dropped;
    u64 samples;
    u32 dim;
    // Lanes that share a sample: a power of two, at most 32.
    u32 lanes;
};

// Counts the samples that are not finite, for `ResampleCounters::dropped_nonfinite`. Several lanes of a warp share a
// sample.
template <class T> __device__ __forceinline__ void count_nonfinite(const ResampleCountParams& p) {
    const T* values = (const T*)p.values;
    u32 lane = threadIdx.x % 32;
    u32 samples_per_warp = 32 / p.lanes;
    u32 sample_mask = (0xffffffffu >> (32 - p.lanes)) << (lane & ~(p.lanes - 1));
    u64 warp = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    u64 step = (u64)gridDim.x * (blockDim.x / 32) * samples_per_warp;
    u32 dropped = 0;
    for (u64 base = warp * samples_per_warp; base < p.samples; base += step) {
        u64 sample = base + lane / p.lanes;
        bool finite = true;
        for (u32 i = lane % p.lanes; sample < p.samples && i < p.dim; i += p.lanes) {
            finite &= is_finite(values[sample * p.dim + i]);
        }
        u32 nonfinite = __ballot_sync(0xffffffff, !finite);
        bool is_dropped = lane % p.lanes == 0 && (nonfinite & sample_mask) != 0;
        dropped += (u32)__popc(__ballot_sync(0xffffffff, is_dropped));
    }
    if (lane == 0 && dropped > 0) {
        atomicAdd(p.dropped, (u64)dropped);
    }
}

#define COUNT_NONFINITE(name, type)                                                                                    \
    extern "C" __global__ void resample_count_##name(const __grid_constant__ ResampleCountParams p) {                  \
        wait_for_previous();                                                                                           \
        count_nonfinite<type>(p);                                                                                      \
    }

COUNT_NONFINITE(f32, float)
COUNT_NONFINITE(f64, double)
COUNT_NONFINITE(f16, f16)
COUNT_NONFINITE(bf16, bf16)

#include "resample_modes.cuh"
