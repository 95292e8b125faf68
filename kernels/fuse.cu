// Streams on common timestamps: the values of every modality at every target of a window, side by side in one row.

#include "time.cuh"

namespace fuse_ns {

// Channels from..to of a modality, which share their rules.
struct Group {
    Limits limits;
    u32 from;
    u32 to;
    u32 mode; // Interpolation
    u32 unused;
};

// The samples of a modality, finite and in ascending time, no two at the same. Sample i of batch entry b is place
// (head + i) & mask of the entry's ring, which begins at place b * pitch of `times` and of `values`, rows of `dim`
// channels. A plain array is a ring with head 0 and a mask of ones. `values` has a row, if of no meaning, where count
// is 0.
struct Modality {
    const i64* times;
    const void* values;
    i64 pitch;
    u32 head;
    u32 count;
    u32 mask;
    u32 dim;
    u32 dtype;
    u32 column; // its first column of the row
    u32 first_group;
    u32 groups;
};

// What travels with the launch, one trip to memory less than what lies in it.
constexpr u32 INLINE_MODALITIES = 8;
constexpr u32 INLINE_GROUPS = 8;

} // namespace fuse_ns

struct FuseParams {
    const fuse_ns::Modality* modalities; // M; null: they are `own_modalities`, and the groups `own_groups`
    const fuse_ns::Group* groups;
    const i64* targets; // entry b has T from b * target_pitch on
    void* out;          // [B, T, D]
    i64* age;           // [B, T, M]: target minus the newest sample at or before it, -1 where there is none
    u8* valid;          // [B, T, M]: 1 where every group of the modality has a valid value, 0 or `overflow` elsewhere
    i64 target_pitch;
    u32 rows;    // T
    u32 columns; // D
    float fill;
    u32 overflow; // what `valid` is where the type of `out` can't hold the value of some group
    fuse_ns::Modality own_modalities[fuse_ns::INLINE_MODALITIES];
    fuse_ns::Group own_groups[fuse_ns::INLINE_GROUPS];
};

namespace fuse_ns {

// Tried on an H200 for 32 x 256 targets of 128 + 32 + 16 bfloat16 columns, 5.4 us as it is: 4 lanes for each bracket
// 6.7, 8 lanes 9.1; a quarter of the pivots 6.0; 4 reads at once 5.8, 1 read 5.9; the reads of a round one after the
// other 6.7; runs of 32 or 128 targets 5.6; modalities of an entry on one multiprocessor 7.0; prefetching rows 7.1.
constexpr u32 BLOCK_BITS = 8;
constexpr u32 BLOCK = 1 << BLOCK_BITS;
// So that all blocks of a batch like that run at once.
constexpr u32 BLOCKS_AT_ONCE = 3;
// Targets of a block, each of which has a thread that looks for its bracket; the others wait until it is found.
constexpr u32 RUN = 64;
static_assert(RUN <= BLOCK && RUN % 32 == 0, "whole warps look for brackets");
// Times of a modality that a block holds.
constexpr u32 PIVOTS = 1024;
static_assert(PIVOTS % BLOCK == 0 && (PIVOTS == 256 || PIVOTS == 1024), "each thread reads as many; a power of 4");
// Rows that a thread has in flight.
constexpr u32 AT_ONCE = 2;

// The pointer, known to be to global memory: one that was read out of memory could be to any.
template <class T> __device__ __forceinline__ T* global(T* pointer) {
#ifdef __CUDACC__
    __builtin_assume(__isGlobal(pointer));
#endif
    return pointer;
}

// The bracket of a target. `pivots` are the `held` times of every 2^shift-th sample, and later than any after them. A
// bracket costs a trip to memory beyond that for the pivots where samples are more than PIVOTS, and another for each
// further factor of 8. Targets need no order.
__device__ __forceinline__ Bracket find(const Times& times, const i64* pivots, u32 held, u32 shift, i64 target) {
    // How many pivots are at or before the target: by quarters, since three reads take no longer than one.
    u32 reached = 0;
    u32 step = 1;
    while (4 * step < held) step *= 4;
#pragma unroll 1
    for (; step > 0; step /= 4) {
        reached += step * runs_passed(pivots + reached + step - 1, step, target);
    }
    reached = min(reached + (pivots[min(reached, PIVOTS - 1)] <= target), held);

    Bracket found;
    found.has_before = reached > 0;
    u32 newest = reached > 0 ? (reached - 1) << shift : 0; // the newest sample known to be at or before the target
#pragma unroll 1
    while (shift > 0) {
        u32 round = min(shift, 3u);
        shift -= round;
        i64 seen[7];
#pragma unroll
        for (u32 i = 0; i < 7; i++) {
            u32 sample = newest + ((i + 1) << shift);
            seen[i] = (i + 1) >> round == 0 && sample < times.count ? time_at(times, sample) : LATEST;
        }
        u32 ahead = 0;
#pragma unroll
        for (u32 i = 0; i < 7; i++) ahead += seen[i] <= target;
        newest += found.has_before ? ahead << shift : 0;
    }
    found.until = found.has_before ? min(newest + 1, times.count) : 0;
    found.has_after = found.until < times.count;
    found.tied = false;
    found.before = found.has_before ? time_at(times, found.until - 1) : 0;
    found.after = found.has_after ? time_at(times, found.until) : 0;
    return found;
}

// What a group's value at a target is made of: places of the ring, with anything in them where it is not valid. It is
// a + weight * (b - a). Where it is the value of one sample, both are that one and the weight is -0, which gives its
// bits for any finite value, zeros with their sign.
struct Source {
    u32 a;
    u32 b;
    float weight;
    u32 valid; // Validity
};

enum Validity : u32 { INVALID = 0, VALID = 1, OVERFLOWED = 2 };

__device__ __forceinline__ Source source(const Bracket& found, const Modality& m, i64 target, const Group& group) {
    Pick picked = pick(found, target, group.mode, group.limits);
    u32 before = (m.head + (found.has_before ? found.until - 1 : 0)) & m.mask;
    u32 after = (m.head + found.until) & m.mask;
    u32 a = picked.kind == PICK_AFTER ? after : before;
    bool between = picked.kind == PICK_BETWEEN;
    u32 valid = picked.kind == PICK_INVALID ? INVALID : VALID;
    return Source{a, between ? after : a, between ? (float)picked.weight : -0.0f, valid};
}

// So many bytes that are read or written at once.
template <u32 BYTES> struct Words;
template <> struct Words<2> {
    u16 at[1];
};
template <> struct Words<4> {
    u32 at[1];
};
template <> struct alignas(8) Words<8> {
    u32 at[2];
};
template <> struct alignas(16) Words<16> {
    u32 at[4];
};
template <> struct alignas(16) Words<32> {
    u32 at[8];
};

// N neighbouring elements.
template <class T, u32 N> struct Elements {
    Words<2 * N> words;
    __device__ __forceinline__ void get(float (&values)[N]) const {
#pragma unroll
        for (u32 i = 0; i < N; i++) values[i] = to_f32(T{(u16)(words.at[i / 2] >> (i % 2 * 16))});
    }
    __device__ __forceinline__ void set(const float (&values)[N]) {
#pragma unroll
        for (u32 i = 0; 2 * i + 1 < N; i++) words.at[i] = pack<T>(values[2 * i], values[2 * i + 1]);
        if (N == 1) words.at[0] = (u16)from_f32<T>(values[0]).bits;
    }
};
template <u32 N> struct Elements<float, N> {
    Words<4 * N> words;
    __device__ __forceinline__ void get(float (&values)[N]) const {
#pragma unroll
        for (u32 i = 0; i < N; i++) values[i] = __uint_as_float(words.at[i]);
    }
    __device__ __forceinline__ void set(const float (&values)[N]) {
#pragma unroll
        for (u32 i = 0; i < N; i++) words.at[i] = __float_as_uint(values[i]);
    }
};

// What was read before stays before what comes after.
__device__ __forceinline__ void in_flight() {
#ifdef __CUDACC__
    asm volatile("" ::: "memory");
#endif
}

// Writes `channels` columns of `rows` rows, N at a time, and gives the largest magnitude among those of this thread.
// `values`: the first of the channels of place 0; `out`: the first of the columns of the first row.
template <class In, class Out, u32 N>
__device__ __forceinline__ float write(const In* values, u32 dim, u32 channels, const Source* sources, u32 rows, Out* out,
                                      u32 columns, float fill) {
    u32 width = channels / N;
    // Threads of a row, a power of two.
    u32 bits = width > BLOCK / 2 ? BLOCK_BITS : 32 - __clz(width - 1);
    u32 rows_on = BLOCK >> bits;
    float fills[N];
#pragma unroll
    for (u32 j = 0; j < N; j++) fills[j] = fill;
    Elements<Out, N> filler;
    filler.set(fills);
    float largest = 0.0f;
#pragma unroll 1
    for (u32 place = threadIdx.x & ((1u << bits) - 1); place < width; place += 1u << bits) {
        const In* from = values + place * N;
        Out* to = out + place * N;
#pragma unroll 1
        for (u32 row = threadIdx.x >> bits; row < rows; row += AT_ONCE * rows_on) {
            // Nothing in here is conditional, so that every read is on its way before the first is waited for. Past the
            // end it reads the last row again.
            Elements<In, N> a[AT_ONCE], b[AT_ONCE];
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                const Source& source = sources[min(row + i * rows_on, rows - 1)];
                a[i] = *(const Elements<In, N>*)(from + (u64)source.a * dim);
                b[i] = *(const Elements<In, N>*)(from + (u64)source.b * dim);
            }
            in_flight();
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                const Source source = sources[min(row + i * rows_on, rows - 1)];
                float before[N], after[N];
                a[i].get(before);
                b[i].get(after);
                float own = 0.0f;
#pragma unroll
                for (u32 j = 0; j < N; j++) {
                    before[j] = lerp(before[j], after[j], source.weight);
                    own = fmaxf(own, fabsf(before[j]));
                }
                largest = fmaxf(largest, source.valid ? own : 0.0f);
                Elements<Out, N> result;
                result.set(before);
#pragma unroll
                for (u32 j = 0; j < sizeof(result.words.at) / sizeof(result.words.at[0]); j++) {
                    result.words.at[j] = source.valid ? result.words.at[j] : filler.words.at[j];
                }
                if (row + i * rows_on < rows) *(Elements<Out, N>*)(to + (u64)(row + i * rows_on) * columns) = result;
            }
        }
    }
    return largest;
}

// Writes the columns of a group, as many at a time as the alignment of everything allows, and gives the largest magnitude
// among those of this thread. `values`: those of the batch entry; `out`: the first row.
template <class In, class Out>
__device__ __forceinline__ float write_group(const void* values, const Modality& m, const Group& group,
                                            const Source* sources, u32 rows, Out* out, u32 columns, float fill) {
    const In* from = (const In*)values + group.from;
    Out* to = out + m.column + group.from;
    u32 channels = group.to - group.from;
    u32 apart = m.dim | columns | channels | (u32)((u64)from / sizeof(In)) | (u32)((u64)to / sizeof(Out));
    if (apart % 8 == 0) {
        return write<In, Out, 8>(from, m.dim, channels, sources, rows, to, columns, fill);
    } else if (apart % 4 == 0) {
        return write<In, Out, 4>(from, m.dim, channels, sources, rows, to, columns, fill);
    } else {
        return write<In, Out, 1>(from, m.dim, channels, sources, rows, to, columns, fill);
    }
}

__device__ __forceinline__ float read_sample(const void* values, u64 at, u32 dtype) {
    if (dtype == FLOAT32) return ((const float*)values)[at];
    return dtype == FLOAT16 ? to_f32(((const f16*)values)[at]) : to_f32(((const bf16*)values)[at]);
}

// Fills the rows of a group of `channels` that type Out can't hold, each by a warp, and marks them. `from`: the group's
// first channel of place 0, counted in elements; `out`: its first column of the first row. All threads of the block call
// it, and it ends with a barrier.
template <class Out>
__device__ __noinline__ void refuse_overflows(const void* values, u32 dtype, u32 dim, u32 from, u32 channels,
                                              Source* sources, u32 rows, Out* out, u32 columns, float fill) {
    u32 lane = threadIdx.x % 32;
    for (u32 row = threadIdx.x / 32; row < rows; row += BLOCK / 32) {
        Source source = sources[row];
        bool held = true;
        for (u32 i = lane; source.valid && i < channels; i += 32) {
            float a = read_sample(values, (u64)source.a * dim + from + i, dtype);
            float b = read_sample(values, (u64)source.b * dim + from + i, dtype);
            held = held && fabsf(lerp(a, b, source.weight)) < overflows_from<Out>();
        }
        if (__all_sync(0xffffffff, held)) continue;
        for (u32 i = lane; i < channels; i += 32) out[(u64)row * columns + i] = from_f32<Out>(fill);
        __syncwarp();
        if (lane == 0) sources[row].valid = OVERFLOWED;
    }
    __syncthreads();
}

template <class Out> __device__ __forceinline__ void fuse(const FuseParams& p) {
    __shared__ i64 pivots[PIVOTS];
    __shared__ Source sources[RUN];
    const Modality m = p.modalities == nullptr ? p.own_modalities[blockIdx.z] : p.modalities[blockIdx.z];
    const Group* groups = (p.modalities == nullptr ? p.own_groups : p.groups) + m.first_group;
    u64 entry = blockIdx.y;
    u32 first = blockIdx.x * RUN;
    u32 rows = min(RUN, p.rows - first);
    u32 row = threadIdx.x;
    bool leads = row < rows;
    i64 target = leads ? p.targets[entry * p.target_pitch + first + row] : 0;

    Times times{global(m.times) + entry * m.pitch, m.count, m.head, m.mask};
    // The least that lets them fit.
    u32 shift = 32 - __clz((m.count > 0 ? m.count - 1 : 0) / PIVOTS);
    u32 held = (m.count + (1u << shift) - 1) >> shift;
    // Every read is on its way before the first is waited for.
    i64 own[PIVOTS / BLOCK];
#pragma unroll
    for (u32 i = 0; i < PIVOTS / BLOCK; i++) {
        u32 at = threadIdx.x + i * BLOCK;
        own[i] = at < held ? time_at(times, at << shift) : LATEST;
    }
#pragma unroll
    for (u32 i = 0; i < PIVOTS / BLOCK; i++) pivots[threadIdx.x + i * BLOCK] = own[i];
    __syncthreads();

    Bracket found{};
    if (leads) found = find(times, pivots, held, shift, target);
    bool valid = true, overflowed = false;
    u64 size = m.dtype == FLOAT32 ? 4 : 2;
    const void* values = global((const u8*)m.values) + entry * m.pitch * m.dim * size;
    Out* out = (Out*)p.out + (entry * p.rows + first) * p.columns;
#pragma unroll 1
    for (u32 g = 0; g < m.groups; g++) {
        const Group group = groups[g];
        if (leads) sources[row] = source(found, m, target, group);
        __syncthreads();
        float largest;
        if (m.dtype == FLOAT32) {
            largest = write_group<float, Out>(values, m, group, sources, rows, out, p.columns, p.fill);
        } else if (m.dtype == FLOAT16) {
            largest = write_group<f16, Out>(values, m, group, sources, rows, out, p.columns, p.fill);
        } else {
            largest = write_group<bf16, Out>(values, m, group, sources, rows, out, p.columns, p.fill);
        }
        if (__syncthreads_or(largest >= overflows_from<Out>())) {
            refuse_overflows<Out>(values, m.dtype, m.dim, group.from, group.to - group.from, sources, rows,
                                  out + m.column + group.from, p.columns, p.fill);
        }
        if (leads) {
            valid = valid && sources[row].valid == VALID;
            overflowed = overflowed || sources[row].valid == OVERFLOWED;
        }
    }
    if (leads) {
        u64 place = (entry * p.rows + first + row) * gridDim.z + blockIdx.z;
        p.valid[place] = overflowed ? p.overflow : valid;
        p.age[place] = found.has_before ? target - found.before : -1;
    }
}

} // namespace fuse_ns

// Equal `window` of src/ops/align/cpu.rs, for a batch of B entries: the rows [T, D] of each, and their masks. Block
// (x, y, z) has RUN targets from x * RUN on of entry y in modality z: it finds the bracket of each once, and then writes
// the modality's columns group by group. Modalities differ in their work, and those of one entry go to different
// multiprocessors.
extern "C" __global__ void __launch_bounds__(fuse_ns::BLOCK, fuse_ns::BLOCKS_AT_ONCE)
    fuse_f32(const __grid_constant__ FuseParams p) {
    wait_for_previous();
    fuse_ns::fuse<float>(p);
}

extern "C" __global__ void __launch_bounds__(fuse_ns::BLOCK, fuse_ns::BLOCKS_AT_ONCE)
    fuse_f16(const __grid_constant__ FuseParams p) {
    wait_for_previous();
    fuse_ns::fuse<f16>(p);
}

extern "C" __global__ void __launch_bounds__(fuse_ns::BLOCK, fuse_ns::BLOCKS_AT_ONCE)
    fuse_bf16(const __grid_constant__ FuseParams p) {
    wait_for_previous();
    fuse_ns::fuse<bf16>(p);
}

namespace fuse_ns {

// Samples that a ring lacks: `count` of them, for the places from `first` on.
struct Fresh {
    const i64* times;    // count, or null: those of the ring stay
    const float* values; // [count, dim]
    i64* ring_times;
    float* ring_values;
    u32 first;
    u32 count;
    u32 mask;
    u32 dim; // 0: the values of the ring stay
};

} // namespace fuse_ns

struct FuseAppendParams {
    const fuse_ns::Fresh* fresh; // one for each row of blocks
};

// Puts samples into their rings, which is what makes the histories on the device equal those of `Aligner`. Blocks
// (x, y) share the samples of `fresh[y]`.
extern "C" __global__ void __launch_bounds__(256) fuse_append(const __grid_constant__ FuseAppendParams p) {
    wait_for_previous();
    const fuse_ns::Fresh fresh = p.fresh[blockIdx.y];
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 i = thread; i < fresh.count && fresh.times != nullptr; i += threads) {
        fresh.ring_times[(fresh.first + i) & fresh.mask] = fresh.times[i];
    }
    for (u64 i = thread; i < (u64)fresh.count * fresh.dim; i += threads) {
        u64 place = (fresh.first + i / fresh.dim) & fresh.mask;
        fresh.ring_values[place * fresh.dim + i % fresh.dim] = fresh.values[i];
    }
}

namespace fuse_ns {

// What a sample is refused for.
struct Verdict {
    u32 channel; // the first that is not finite, or ~0 where there is none
    float value; // its value
};

} // namespace fuse_ns

struct FuseTakeParams {
    const void* sample;        // dim elements of `dtype`
    float* row;                // dim
    fuse_ns::Verdict* verdict; // one
    u32 dim;
    u32 dtype;
    u32 element_bytes;
    u32 unused;
};

// Converts a sample to float32 and looks for values that are not finite, as `read` of src/ops/align/engine.rs. One
// block.
extern "C" __global__ void __launch_bounds__(256) fuse_take(const __grid_constant__ FuseTakeParams p) {
    wait_for_previous();
    __shared__ u32 channel;
    if (threadIdx.x == 0) channel = 0xffffffffu;
    __syncthreads();
    u32 own = 0xffffffffu;
    for (u32 i = threadIdx.x; i < p.dim; i += blockDim.x) {
        float value = read_f32((const u8*)p.sample + (u64)i * p.element_bytes, p.dtype);
        p.row[i] = value;
        if (!is_finite(value)) own = min(own, i);
    }
    if (own != 0xffffffffu) atomicMin(&channel, own);
    __syncthreads();
    if (threadIdx.x == 0) {
        p.verdict->channel = channel;
        p.verdict->value = channel < p.dim ? p.row[channel] : 0.0f;
    }
}

struct FusePlaceParams {
    const float* row;   // dim
    float* ring_values; // rows of dim, a power of two of them
    u32 first;          // the place of the row
    u32 moved;          // how many rows from there on move by one place to make room
    u32 mask;
    u32 dim;
};

// Puts a row into its place in a ring. Each thread has a channel, and moves it from the newest row on.
extern "C" __global__ void __launch_bounds__(256) fuse_place(const __grid_constant__ FusePlaceParams p) {
    wait_for_previous();
    u32 channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= p.dim) return;
    auto at = [&](u32 i) -> float& { return p.ring_values[(u64)((p.first + i) & p.mask) * p.dim + channel]; };
    for (u32 i = p.moved; i > 0; i--) at(i) = at(i - 1);
    at(0) = p.row[channel];
}
