// Fuses streams on common timestamps: computes the value of every modality at every target of a window.

#include "modes.cuh"

namespace fuse_ns {

// A modality: its samples, all finite, at strictly ascending times, and the place of its columns. The ring buffer of
// batch entry b begins at slot b * pitch of `times` and `values`, with sample i in its slot (head + i) & mask. A plain
// array is a ring with head 0 and a mask of ones. `values` must have a readable row even if count is 0: it is loaded
// and discarded.
struct Modality {
    const i64* times;
    const void* values; // rows of `dim` elements of `dtype`
    void* out;          // [B, T, columns], from the modality's first column of the first row on
    i64 pitch;
    u32 head;
    u32 count;
    u32 mask;
    u32 dim;
    u32 dtype;
    u32 columns; // columns of a row of the output, of all modalities that share it
    u32 first_group;
    u32 groups;
    u32 rotations;  // number of groups that are rotations; they come first
    u32 has_curves; // 1 if a group is a curve
};

// The most modalities and groups in the launch parameters. That saves a round trip to global memory.
constexpr u32 INLINE_MODALITIES = 8;
constexpr u32 INLINE_GROUPS = 8;

} // namespace fuse_ns

struct FuseParams {
    const fuse_ns::Modality* modalities; // [M]; null: `own_modalities` and `own_groups` are used
    const Group* groups;
    const i64* targets; // T for each entry; the targets of entry b begin at b * target_pitch
    i64* age;           // [B, T, M]: target minus the newest sample at or before it, -1 without one
    u8* valid;          // [B, T, M]: 1 if every group of the modality has a valid value, else 0 or `overflow`
    i64 target_pitch;
    u32 rows; // T
    float fill;
    u32 overflow; // written to `valid` if the output type can't hold the value of a group
    u32 unused;
    fuse_ns::Modality own_modalities[fuse_ns::INLINE_MODALITIES];
    Group own_groups[fuse_ns::INLINE_GROUPS];
};

namespace fuse_ns {

// Timed on an H200 with 32 x 256 targets of 128 + 32 + 16 bfloat16 columns: this takes 5.4 us. Alternatives: 4 lanes
// for a bracket take 6.7, 8 lanes 9.1; a quarter of the pivots 6.0; 4 rows in flight 5.8, 1 row 5.9. Reads of a search
// round one after the other take 6.7; runs of 32 or 128 targets 5.6. All modalities of an entry on one multiprocessor
// take 7.0; prefetching rows 7.1.
constexpr u32 LOG2_BLOCK = 8;
constexpr u32 BLOCK = 1 << LOG2_BLOCK;
// Resident blocks of a multiprocessor: enough to run the whole of that batch at once.
constexpr u32 BLOCKS_PER_MULTIPROCESSOR = 3;
// Targets of a block. One thread for each target searches its bracket while the other threads wait.
constexpr u32 RUN = 64;
static_assert(RUN <= BLOCK && RUN % 32 == 0, "whole warps search brackets");
// Times of a modality that a block stages in shared memory.
constexpr u32 PIVOTS = 1024;
static_assert(PIVOTS % BLOCK == 0 && (PIVOTS == 256 || PIVOTS == 1024), "each thread reads as many; a power of 4");
// Rows that a thread has in flight.
constexpr u32 ROWS_IN_FLIGHT = 2;
// The target of a row that does not exist. No modality has samples around it.
constexpr i64 NO_TARGET = -0x7fffffffffffffff - 1;

// Tells the compiler that a pointer is to global memory. It can't know that of a pointer which was itself loaded from
// memory.
template <class T> __device__ __forceinline__ T* assume_global(T* pointer) {
#ifdef __CUDACC__
    __builtin_assume(__isGlobal(pointer));
#elif defined(__HIP__)
    // The cast goes through an integer: two casts of a pointer would cancel each other.
    return (T*)(__attribute__((address_space(1))) T*)(u64)pointer;
#endif
    return pointer;
}

// Searches the bracket of a target, ns: what `Cursor` of crates/ops/src/align/cpu.rs finds. `pivots` are the times of
// every 2^shift-th sample, `pivot_count` of them, padded with PADDING_TIME. The pivots are searched 4-ary, then the
// samples between two pivots 8-ary. Each factor of 8 by which the samples exceed PIVOTS costs one round trip to memory.
__device__ __forceinline__ Bracket search_bracket(const Times& times, const i64* pivots, u32 pivot_count, u32 shift,
                                                  i64 target) {
    // Counts the pivots at or before the target, a quarter at a time: three reads at once take no longer than one.
    u32 pivots_passed = 0;
    u32 step = 1;
    while (4 * step < pivot_count) step *= 4;
#pragma unroll 1
    for (; step > 0; step /= 4) {
        pivots_passed += step * pivots_at_or_before(pivots + pivots_passed + step - 1, step, target);
    }
    pivots_passed = min(pivots_passed + (pivots[min(pivots_passed, PIVOTS - 1)] <= target), pivot_count);

    Bracket bracket;
    bracket.has_before = pivots_passed > 0;
    // The newest sample known to be at or before the target.
    u32 newest = pivots_passed > 0 ? (pivots_passed - 1) << shift : 0;
#pragma unroll 1
    while (shift > 0) {
        u32 round_bits = min(shift, 3u);
        shift -= round_bits;
        i64 loaded[7];
#pragma unroll
        for (u32 i = 0; i < 7; i++) {
            u32 sample = newest + ((i + 1) << shift);
            loaded[i] = (i + 1) >> round_bits == 0 && sample < times.count ? time_at(times, sample) : PADDING_TIME;
        }
        u32 passed = 0;
#pragma unroll
        for (u32 i = 0; i < 7; i++) passed += loaded[i] <= target;
        newest += bracket.has_before ? passed << shift : 0;
    }
    bracket.until = bracket.has_before ? min(newest + 1, times.count) : 0;
    bracket.has_after = bracket.until < times.count;
    bracket.tied = false;
    bracket.before = bracket.has_before ? time_at(times, bracket.until - 1) : 0;
    bracket.after = bracket.has_after ? time_at(times, bracket.until) : 0;
    return bracket;
}

// The slots of the ring and the weight that give a group's value at a target: a + weight * (b - a). For a value that is
// a single sample, both slots are that sample's and the weight is -0. This keeps the bits of any finite value, and the
// sign of a zero. If the value is not valid, the slots are arbitrary.
struct Source {
    u32 a;
    u32 b;
    float weight;
    u32 valid; // Validity
};

enum Validity : u32 { INVALID = 0, VALID = 1, OVERFLOWED = 2 };

// Computes the source of a group of a plain mode at `target`, ns.
__device__ __forceinline__ Source plain_source(const Bracket& bracket, const Modality& m, i64 target,
                                               const Group& group) {
    Pick picked = pick(bracket, target, group.mode, group.limits);
    u32 before = (m.head + (bracket.has_before ? bracket.until - 1 : 0)) & m.mask;
    u32 after = (m.head + bracket.until) & m.mask;
    u32 a = picked.kind == PICK_AFTER ? after : before;
    bool between = picked.kind == PICK_BETWEEN;
    u32 valid = picked.kind == PICK_INVALID ? INVALID : VALID;
    return Source{a, between ? after : a, between ? (float)picked.weight : -0.0f, valid};
}

// BYTES bytes that are read or written at once.
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

// N neighbouring elements, packed as in memory. `get` converts them to float32, `set` rounds float32 to them.
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

// Keeps the compiler from moving loads across this call, so that all loads before it are in flight together.
__device__ __forceinline__ void compiler_barrier() {
#ifdef __CUDACC__
    asm volatile("" ::: "memory");
#endif
}

// Writes `channels` columns of `rows` rows, N at a time. Returns the largest magnitude that this thread wrote. `values`
// is the first channel in slot 0, and `out` the first column in the first row.
template <class In, class Out, u32 N>
__device__ __forceinline__ float write_columns(const In* values, u32 dim, u32 channels, u32 mode, const Source* sources,
                                               u32 rows, Out* out, u32 columns, float fill) {
    u32 width = channels / N;
    // 1 << log2_threads threads share a row.
    u32 log2_threads = width > BLOCK / 2 ? LOG2_BLOCK : 32 - __clz(width - 1);
    u32 rows_at_once = BLOCK >> log2_threads;
    float fills[N];
#pragma unroll
    for (u32 j = 0; j < N; j++) fills[j] = fill;
    Elements<Out, N> filler;
    filler.set(fills);
    float largest = 0.0f;
#pragma unroll 1
    for (u32 i = threadIdx.x & ((1u << log2_threads) - 1); i < width; i += 1u << log2_threads) {
        const In* from = values + i * N;
        Out* to = out + i * N;
#pragma unroll 1
        for (u32 row = threadIdx.x >> log2_threads; row < rows; row += ROWS_IN_FLIGHT * rows_at_once) {
            // Free of branches, so that every read is issued before the first is waited for. Rows past the end read the
            // last row again.
            Elements<In, N> a[ROWS_IN_FLIGHT], b[ROWS_IN_FLIGHT];
#pragma unroll
            for (u32 r = 0; r < ROWS_IN_FLIGHT; r++) {
                const Source& source = sources[min(row + r * rows_at_once, rows - 1)];
                a[r] = *(const Elements<In, N>*)(from + (u64)source.a * dim);
                b[r] = *(const Elements<In, N>*)(from + (u64)source.b * dim);
            }
            compiler_barrier();
#pragma unroll
            for (u32 r = 0; r < ROWS_IN_FLIGHT; r++) {
                const Source source = sources[min(row + r * rows_at_once, rows - 1)];
                float before[N], after[N];
                a[r].get(before);
                b[r].get(after);
                float row_largest = 0.0f;
#pragma unroll
                for (u32 j = 0; j < N; j++) {
                    before[j] = blend(mode, before[j], after[j], source.weight);
                    row_largest = fmaxf(row_largest, fabsf(before[j]));
                }
                largest = fmaxf(largest, source.valid ? row_largest : 0.0f);
                Elements<Out, N> result;
                result.set(before);
#pragma unroll
                for (u32 j = 0; j < sizeof(result.words.at) / sizeof(result.words.at[0]); j++) {
                    result.words.at[j] = source.valid ? result.words.at[j] : filler.words.at[j];
                }
                if (row + r * rows_at_once < rows)
                    *(Elements<Out, N>*)(to + (u64)(row + r * rows_at_once) * columns) = result;
            }
        }
    }
    return largest;
}

// Writes the columns of a group with the widest vectors that its addresses and pitches allow. Returns the largest
// magnitude that this thread wrote. `values` is the ring of the batch entry, and `out` the modality's first column of
// the first row.
template <class In, class Out>
__device__ __forceinline__ float write_group(const void* values, const Modality& m, const Group& group,
                                             const Source* sources, u32 rows, Out* out, float fill) {
    const In* from = (const In*)values + group.from;
    Out* to = out + group.from;
    u32 channels = group.to - group.from;
    u32 columns = m.columns;
    u32 alignment_bits = m.dim | columns | channels | (u32)((u64)from / sizeof(In)) | (u32)((u64)to / sizeof(Out));
    if (alignment_bits % 8 == 0) {
        return write_columns<In, Out, 8>(from, m.dim, channels, group.mode, sources, rows, to, columns, fill);
    } else if (alignment_bits % 4 == 0) {
        return write_columns<In, Out, 4>(from, m.dim, channels, group.mode, sources, rows, to, columns, fill);
    } else {
        return write_columns<In, Out, 1>(from, m.dim, channels, group.mode, sources, rows, to, columns, fill);
    }
}

// Fills the rows of a group that type Out can't hold, in which an infinity was written, and marks them as overflowed. A
// warp takes a row. `out` is the group's first column of the first row. All threads of the block call this after a
// barrier, and it ends with a barrier.
template <class Out>
__device__ __noinline__ void fill_overflowed_rows(u32 channels, Source* sources, u32 rows, Out* out, u32 columns,
                                                  float fill) {
    u32 lane = threadIdx.x % 32;
    for (u32 row = threadIdx.x / 32; row < rows; row += BLOCK / 32) {
        bool is_row_finite = true;
        for (u32 i = lane; sources[row].valid && i < channels; i += 32) {
            is_row_finite = is_row_finite && is_finite(to_f32(out[(u64)row * columns + i]));
        }
        if (__all_sync(0xffffffff, is_row_finite)) continue;
        for (u32 i = lane; i < channels; i += 32) out[(u64)row * columns + i] = from_f32<Out>(fill);
        __syncwarp();
        if (lane == 0) sources[row].valid = OVERFLOWED;
    }
    __syncthreads();
}

// The work of a block: rows of a batch entry's window, in one modality.
struct Run {
    Modality modality;
    const Group* groups;
    u64 entry;
    u32 first;
    u32 rows;
    bool leads; // true if this thread leads a row: it searches the bracket of the row with its index
    i64 target; // the target of that row
};

// Returns the run of this block, with the target, ns, of the row that this thread leads.
__device__ __forceinline__ Run run_of_block(const FuseParams& p) {
    Run run;
    run.modality = p.modalities == nullptr ? p.own_modalities[blockIdx.z] : p.modalities[blockIdx.z];
    run.groups = (p.modalities == nullptr ? p.own_groups : p.groups) + run.modality.first_group;
    run.entry = blockIdx.y;
    run.first = blockIdx.x * RUN;
    run.rows = min(RUN, p.rows - run.first);
    run.leads = threadIdx.x < run.rows;
    run.target = run.leads ? p.targets[run.entry * p.target_pitch + run.first + threadIdx.x] : 0;
    return run;
}

// Returns the times, ns, in the ring of the batch entry.
__device__ __forceinline__ Times run_times(const Run& run) {
    const Modality& m = run.modality;
    return Times{assume_global(m.times) + run.entry * m.pitch, m.count, m.head, m.mask};
}

// Returns the values in the ring of the batch entry.
__device__ __forceinline__ const void* run_values(const Run& run) {
    const Modality& m = run.modality;
    u64 size = m.dtype == FLOAT32 ? 4 : 2;
    return assume_global((const u8*)m.values) + run.entry * m.pitch * m.dim * size;
}

// Returns the modality's first column of the first row.
template <class Out> __device__ __forceinline__ Out* run_out(const FuseParams& p, const Run& run) {
    const Modality& m = run.modality;
    return (Out*)assume_global((u8*)m.out) + (run.entry * p.rows + run.first) * m.columns;
}

// Searches the bracket of the row that this thread leads. All threads of the block call this.
__device__ __forceinline__ Bracket bracket_of_row(const Run& run, const Times& times, i64 (&pivots)[PIVOTS]) {
    // The smallest shift for which the pivots fit.
    u32 shift = 32 - __clz((times.count > 0 ? times.count - 1 : 0) / PIVOTS);
    u32 pivot_count = (times.count + (1u << shift) - 1) >> shift;
    // Issues every read before it waits for the first.
    i64 loaded[PIVOTS / BLOCK];
#pragma unroll
    for (u32 i = 0; i < PIVOTS / BLOCK; i++) {
        u32 at = threadIdx.x + i * BLOCK;
        loaded[i] = at < pivot_count ? time_at(times, at << shift) : PADDING_TIME;
    }
#pragma unroll
    for (u32 i = 0; i < PIVOTS / BLOCK; i++) pivots[threadIdx.x + i * BLOCK] = loaded[i];
    __syncthreads();
    Bracket bracket{};
    if (run.leads && run.target != NO_TARGET) bracket = search_bracket(times, pivots, pivot_count, shift, run.target);
    return bracket;
}

// Writes the validity and the age, ns, of the row that this thread leads.
__device__ __forceinline__ void write_masks(const FuseParams& p, const Run& run, i64 age, u8 valid) {
    u64 at = (run.entry * p.rows + run.first + threadIdx.x) * gridDim.z + blockIdx.z;
    p.valid[at] = valid;
    p.age[at] = age;
}

// Fuses groups of plain modes: the values and masks of a block's run.
template <class Out> __device__ __forceinline__ void fuse(const FuseParams& p) {
    __shared__ i64 pivots[PIVOTS];
    __shared__ Source sources[RUN];
    const Run run = run_of_block(p);
    const Modality& m = run.modality;
    Bracket bracket = bracket_of_row(run, run_times(run), pivots);
    bool valid = true, overflowed = false;
    const void* values = run_values(run);
    Out* out = run_out<Out>(p, run);
    u32 row = threadIdx.x;
#pragma unroll 1
    for (u32 g = 0; g < m.groups; g++) {
        const Group group = run.groups[g];
        if (run.leads) sources[row] = plain_source(bracket, m, run.target, group);
        __syncthreads();
        float largest;
        if (m.dtype == FLOAT32) {
            largest = write_group<float, Out>(values, m, group, sources, run.rows, out, p.fill);
        } else if (m.dtype == FLOAT16) {
            largest = write_group<f16, Out>(values, m, group, sources, run.rows, out, p.fill);
        } else {
            largest = write_group<bf16, Out>(values, m, group, sources, run.rows, out, p.fill);
        }
        if (__syncthreads_or(largest >= overflows_from<Out>())) {
            fill_overflowed_rows<Out>(group.to - group.from, sources, run.rows, out + group.from, m.columns, p.fill);
        }
        if (run.leads) {
            valid = valid && sources[row].valid == VALID;
            overflowed = overflowed || sources[row].valid == OVERFLOWED;
        }
    }
    if (run.leads)
        write_masks(p, run, bracket.has_before ? run.target - bracket.before : -1, overflowed ? p.overflow : valid);
}

} // namespace fuse_ns

#include "fuse_modes.cuh"

// Computes the windows of B batch entries with their masks, bit for bit as `window` of crates/ops/src/align/cpu.rs.
// Block (x, y, z) takes RUN targets of entry y in modality z, from target x * RUN on. It searches the bracket of each
// target once, then writes the modality's columns group by group. Each modality has blocks of its own because
// modalities differ in work.
extern "C" __global__ void __launch_bounds__(fuse_ns::BLOCK, fuse_ns::BLOCKS_PER_MULTIPROCESSOR)
    fuse_f32(const __grid_constant__ FuseParams p) {
    wait_for_previous();
    fuse_ns::fuse<float>(p);
}

extern "C" __global__ void __launch_bounds__(fuse_ns::BLOCK, fuse_ns::BLOCKS_PER_MULTIPROCESSOR)
    fuse_f16(const __grid_constant__ FuseParams p) {
    wait_for_previous();
    fuse_ns::fuse<f16>(p);
}

extern "C" __global__ void __launch_bounds__(fuse_ns::BLOCK, fuse_ns::BLOCKS_PER_MULTIPROCESSOR)
    fuse_bf16(const __grid_constant__ FuseParams p) {
    wait_for_previous();
    fuse_ns::fuse<bf16>(p);
}

// Does the same for groups of any mode.
extern "C" __global__ void __launch_bounds__(fuse_ns::BLOCK, fuse_ns::BLOCKS_PER_MULTIPROCESSOR)
    fuse_modes_f32(const __grid_constant__ FuseParams p) {
    wait_for_previous();
    fuse_ns::fuse_modes<float>(p);
}

extern "C" __global__ void __launch_bounds__(fuse_ns::BLOCK, fuse_ns::BLOCKS_PER_MULTIPROCESSOR)
    fuse_modes_f16(const __grid_constant__ FuseParams p) {
    wait_for_previous();
    fuse_ns::fuse_modes<f16>(p);
}

extern "C" __global__ void __launch_bounds__(fuse_ns::BLOCK, fuse_ns::BLOCKS_PER_MULTIPROCESSOR)
    fuse_modes_bf16(const __grid_constant__ FuseParams p) {
    wait_for_previous();
    fuse_ns::fuse_modes<bf16>(p);
}

namespace fuse_ns {

// A run of samples to be copied into a ring buffer, where they fill the slots from `first` on.
struct Fresh {
    const i64* times;    // [count]; null: the ring keeps its times
    const float* values; // [count, dim]
    i64* ring_times;
    float* ring_values;
    u32 first;
    u32 count;
    u32 mask;
    u32 dim; // 0: the ring keeps its values
};

} // namespace fuse_ns

struct FuseAppendParams {
    const fuse_ns::Fresh* fresh; // one for each row of blocks
};

// Copies samples into their rings, so that the device has the same histories as `Timeline`. The blocks of row y
// share the samples of `fresh[y]`.
extern "C" __global__ void __launch_bounds__(256) fuse_append(const __grid_constant__ FuseAppendParams p) {
    wait_for_previous();
    const fuse_ns::Fresh fresh = p.fresh[blockIdx.y];
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 i = thread; i < fresh.count && fresh.times != nullptr; i += threads) {
        fresh.ring_times[(fresh.first + i) & fresh.mask] = fresh.times[i];
    }
    for (u64 i = thread; i < (u64)fresh.count * fresh.dim; i += threads) {
        u64 slot = (fresh.first + i / fresh.dim) & fresh.mask;
        fresh.ring_values[slot * fresh.dim + i % fresh.dim] = fresh.values[i];
    }
}

namespace fuse_ns {

constexpr u32 ALL_FINITE = 0xffffffffu;

// Result of a block's search for a value that is not finite in its share of a sample.
struct Verdict {
    u32 channel; // the first channel that is not finite, or ALL_FINITE
    float value; // the value of that channel
};

// Converts an element of any type to the nearest float32.
__device__ __forceinline__ float as_f32(f16 value) { return to_f32(value); }
__device__ __forceinline__ float as_f32(bf16 value) { return to_f32(value); }
template <class T> __device__ __forceinline__ float as_f32(T value) { return (float)value; }

// Elements that a thread has in flight.
constexpr u32 TAKEN_AT_ONCE = 4;

// Converts this thread's share of a sample to float32, interleaved with the shares of all other threads of the grid.
// Returns the first channel in it that is not finite, or ALL_FINITE.
template <class T> __device__ __forceinline__ u32 convert_share(const void* sample, float* row, u32 dim) {
    const T* from = (const T*)sample;
    u32 threads = gridDim.x * blockDim.x;
    u32 first = ALL_FINITE;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < dim; i += TAKEN_AT_ONCE * threads) {
        T loaded[TAKEN_AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < TAKEN_AT_ONCE; k++) loaded[k] = from[min(i + k * threads, dim - 1)];
        compiler_barrier();
#pragma unroll
        for (u32 k = 0; k < TAKEN_AT_ONCE; k++) {
            u32 at = i + k * threads;
            float value = as_f32(loaded[k]);
            if (at < dim) row[at] = value;
            if (at < dim && !is_finite(value)) first = min(first, at);
        }
    }
    return first;
}

} // namespace fuse_ns

struct FuseTakeParams {
    const void* sample;         // [dim] of `dtype`
    float* row;                 // [dim]
    fuse_ns::Verdict* verdicts; // one for each block
    u32 dim;
    u32 dtype;
};

// Converts a sample to float32 and looks for values that are not finite, as `Timeline::read` does. Every block writes a
// verdict on its own share, so that no block waits for another. The host takes the verdict with the lowest channel.
extern "C" __global__ void __launch_bounds__(256) fuse_take(const __grid_constant__ FuseTakeParams p) {
    wait_for_previous();
    __shared__ u32 channel;
    if (threadIdx.x == 0) channel = fuse_ns::ALL_FINITE;
    __syncthreads();
    u32 first_nonfinite = fuse_ns::ALL_FINITE;
    switch (p.dtype) {
    case FLOAT32: first_nonfinite = fuse_ns::convert_share<float>(p.sample, p.row, p.dim); break;
    case FLOAT64: first_nonfinite = fuse_ns::convert_share<double>(p.sample, p.row, p.dim); break;
    case FLOAT16: first_nonfinite = fuse_ns::convert_share<f16>(p.sample, p.row, p.dim); break;
    case BFLOAT16: first_nonfinite = fuse_ns::convert_share<bf16>(p.sample, p.row, p.dim); break;
    case INT8: first_nonfinite = fuse_ns::convert_share<signed char>(p.sample, p.row, p.dim); break;
    case INT16: first_nonfinite = fuse_ns::convert_share<short>(p.sample, p.row, p.dim); break;
    case INT32: first_nonfinite = fuse_ns::convert_share<i32>(p.sample, p.row, p.dim); break;
    case INT64: first_nonfinite = fuse_ns::convert_share<i64>(p.sample, p.row, p.dim); break;
    case UINT8: first_nonfinite = fuse_ns::convert_share<u8>(p.sample, p.row, p.dim); break;
    case UINT16: first_nonfinite = fuse_ns::convert_share<u16>(p.sample, p.row, p.dim); break;
    case UINT32: first_nonfinite = fuse_ns::convert_share<u32>(p.sample, p.row, p.dim); break;
    default: first_nonfinite = fuse_ns::convert_share<u64>(p.sample, p.row, p.dim);
    }
    if (first_nonfinite != fuse_ns::ALL_FINITE) atomicMin(&channel, first_nonfinite);
    __syncthreads();
    if (threadIdx.x == 0) {
        fuse_ns::Verdict& verdict = p.verdicts[blockIdx.x];
        verdict.channel = channel;
        verdict.value = channel < p.dim ? p.row[channel] : 0.0f;
    }
}

struct FuseInsertParams {
    const float* row;   // [dim]
    float* ring_values; // [mask + 1, dim]
    u32 first;          // the slot of the row
    u32 moved;          // number of rows from that slot on that move up by one slot to make room
    u32 mask;
    u32 dim;
};

// Inserts a row into a ring. Each thread moves one channel, the newest row first.
extern "C" __global__ void __launch_bounds__(256) fuse_insert(const __grid_constant__ FuseInsertParams p) {
    wait_for_previous();
    u32 channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= p.dim) return;
    auto ring_value = [&](u32 i) -> float& { return p.ring_values[(u64)((p.first + i) & p.mask) * p.dim + channel]; };
    for (u32 i = p.moved; i > 0; i--) ring_value(i) = ring_value(i - 1);
    ring_value(0) = p.row[channel];
}
