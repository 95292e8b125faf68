// Fuses groups of any mode: part of fuse.cu. To keep the kernels small, the type of the samples is not a template
// parameter, as in `write_columns`, but is looked up at each vector.
#pragma once

#include "modes.cuh"

namespace fuse_ns {

// N neighbouring elements of a sample, as they lie in memory: float32 in N words, 16-bit floats in half as many.
template <u32 N> struct Raw {
    Words<4 * N> wide;

    // Loads the elements from an address that is aligned for N elements.
    __device__ __forceinline__ void load(const u8* at, u32 dtype) {
        if (dtype == FLOAT32) {
            wide = *(const Words<4 * N>*)at;
        } else {
            Words<2 * N> half = *(const Words<2 * N>*)at;
#pragma unroll
            for (u32 i = 0; i < sizeof half / sizeof half.at[0]; i++) wide.at[i] = half.at[i];
        }
    }

    // Converts the elements to float32.
    __device__ __forceinline__ void get(u32 dtype, float (&values)[N]) const {
        if (dtype == FLOAT32) {
#pragma unroll
            for (u32 i = 0; i < N; i++) values[i] = __uint_as_float(wide.at[i]);
        } else if (dtype == FLOAT16) {
#pragma unroll
            for (u32 i = 0; i < N; i++) values[i] = to_f32(f16{(u16)(wide.at[i / 2] >> (i % 2 * 16))});
        } else {
#pragma unroll
            for (u32 i = 0; i < N; i++) values[i] = to_f32(bf16{(u16)(wide.at[i / 2] >> (i % 2 * 16))});
        }
    }
};

// Returns the bytes of an element: a device holds samples as float32 or as 16-bit floats.
__device__ __forceinline__ u32 element_size(u32 dtype) { return dtype == FLOAT32 ? 4 : 2; }

// Replaces each value that type Out can't hold, a NaN among them, by an infinity. Returns true if it holds all values.
template <class Out, u32 N> __device__ __forceinline__ bool overflow_to_infinity(float (&values)[N]) {
    bool all_fit = true;
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        bool fits = fabsf(values[i]) < overflows_from<Out>();
        values[i] = fits ? values[i] : __uint_as_float(0x7f800000);
        all_fit = all_fit && fits;
    }
    return all_fit;
}

// The outer samples of a target, if they exist: the one before and the one after the two samples around the target.
struct Neighbours {
    i64 to_left;  // ns from the earlier outer sample to the sample before the target
    i64 to_right; // ns from the sample after the target to the later outer sample
    bool has_left;
    bool has_right;
};

// Reads the times of the outer samples around a bracket from global memory.
__device__ __forceinline__ Neighbours neighbours(const Times& times, const Bracket& bracket) {
    Neighbours outer{0, 0, bracket.until > 1, bracket.until + 1 < times.count};
    i64 left = outer.has_left ? time_at(times, bracket.until - 2) : 0;
    i64 right = outer.has_right ? time_at(times, bracket.until + 1) : 0;
    if (outer.has_left) outer.to_left = distance(left, bracket.before);
    if (outer.has_right) outer.to_right = distance(bracket.after, right);
    return outer;
}

// A row of a run, for all groups: the distances and slots of the samples around its target, and the weight of the later
// sample if both exist.
struct Row {
    Distances apart;
    Neighbours next; // if a group is a curve
    u32 before;
    u32 after;
    float weight;
};

// Computes the row of `target`, ns, from its bracket.
__device__ __forceinline__ Row row_of(const Times& times, const Bracket& bracket, const Modality& m, i64 target) {
    Row row{distances(bracket, target), Neighbours{}, (m.head + (bracket.has_before ? bracket.until - 1 : 0)) & m.mask,
            (m.head + bracket.until) & m.mask, 0.0f};
    if (m.has_curves) row.next = neighbours(times, bracket);
    if (bracket.has_before && bracket.has_after) row.weight = (float)later_weight(row.apart);
    return row;
}

// Does what `plain_source` does, for a group of any mode.
__device__ __forceinline__ Source source_of(const Row& row, const Group& group) {
    PickKind kind = pick_kind(row.apart, group.mode, group.limits);
    u32 a = kind == PICK_AFTER ? row.after : row.before;
    bool between = kind == PICK_BETWEEN;
    return Source{a, between ? row.after : a, between ? row.weight : -0.0f, kind == PICK_INVALID ? INVALID : VALID};
}

// The part of a curve's row that is not in its Source: the curve, and the slots of the outer samples.
struct Outer {
    Curve<float> curve;
    u32 left;
    u32 right;
};

// Computes the curve of a row; a line if the row's value is a single sample.
__device__ __forceinline__ Outer outer_of(const Row& row, const Source& source, const Modality& m, const Group& group) {
    Outer outer{make_line<float>(), source.a, source.b};
    if (source.a == source.b) return outer;
    i64 intervals[3] = {row.next.to_left, row.apart.gap, row.next.to_right};
    outer.curve = make_curve<float>(group.mode, group.limits.max_gap, intervals, row.next.has_left, row.next.has_right);
    if (outer.curve.has_left) outer.left = (row.before - 1) & m.mask;
    if (outer.curve.has_right) outer.right = (row.after + 1) & m.mask;
    return outer;
}

// Writes the columns of a group, N at a time. Returns true if type Out can hold all values that this thread wrote. MODE
// is a mode as `with_mode` passes it. Only curves read `outers`.
template <class Out, u32 MODE, u32 N>
__device__ __forceinline__ bool write_channels(const u8* values, const Modality& m, const Group& group,
                                               const Source* sources, const Outer* outers, u32 count, Out* out,
                                               float fill) {
    constexpr u32 SAMPLES = sample_count(MODE), ROWS = SAMPLES == 4 ? 1 : ROWS_IN_FLIGHT;
    u32 width = (group.to - group.from) / N, size = element_size(m.dtype), pitch = m.dim * size;
    // 1 << log2_threads threads share a row.
    u32 log2_threads = width > BLOCK / 2 ? LOG2_BLOCK : 32 - __clz(width - 1);
    u32 rows_at_once = BLOCK >> log2_threads;
    float fills[N];
#pragma unroll
    for (u32 j = 0; j < N; j++) fills[j] = fill;
    Elements<Out, N> filler;
    filler.set(fills);
    bool all_fit = true;
#pragma unroll 1
    for (u32 i = threadIdx.x & ((1u << log2_threads) - 1); i < width; i += 1u << log2_threads) {
        const u8* from = values + (group.from + i * N) * size;
        Out* to = out + group.from + i * N;
#pragma unroll 1
        for (u32 row = threadIdx.x >> log2_threads; row < count; row += ROWS * rows_at_once) {
            // Issues every read before it waits for the first. Rows past the end read the last row again.
            Raw<N> raw[ROWS][SAMPLES];
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                u32 at = min(row + r * rows_at_once, count - 1);
                raw[r][BEFORE].load(from + (u64)sources[at].a * pitch, m.dtype);
                raw[r][AFTER].load(from + (u64)sources[at].b * pitch, m.dtype);
                if constexpr (SAMPLES == 4) {
                    raw[r][LEFT].load(from + (u64)outers[at].left * pitch, m.dtype);
                    raw[r][RIGHT].load(from + (u64)outers[at].right * pitch, m.dtype);
                }
            }
            compiler_barrier();
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                u32 at = min(row + r * rows_at_once, count - 1);
                const Source source = sources[at];
                float samples[SAMPLES][N], made[N];
#pragma unroll
                for (u32 s = 0; s < SAMPLES; s++) raw[r][s].get(m.dtype, samples[s]);
                make<MODE>(samples, source.weight, outers[SAMPLES == 4 ? at : 0].curve, made);
                bool fits = overflow_to_infinity<Out>(made);
                all_fit = all_fit && (fits || !source.valid);
                Elements<Out, N> result;
                result.set(made);
#pragma unroll
                for (u32 j = 0; j < sizeof(result.words.at) / sizeof(result.words.at[0]); j++) {
                    result.words.at[j] = source.valid ? result.words.at[j] : filler.words.at[j];
                }
                if (row + r * rows_at_once < count)
                    *(Elements<Out, N>*)(to + (u64)(row + r * rows_at_once) * m.columns) = result;
            }
        }
    }
    return all_fit;
}

// Combines all offsets and addresses of a group, in elements. Vectors of a power of two of elements are aligned if it
// divides this number.
template <class Out>
__device__ __forceinline__ u32 alignment_bits(const u8* values, const Modality& m, const Group& group, const Out* out) {
    return m.dim | m.columns | group.from | group.to | (u32)((u64)values / element_size(m.dtype)) |
           (u32)((u64)out / sizeof(Out));
}

// Calls `write_channels` with the widest vectors that the alignment allows.
template <class Out, u32 MODE>
__device__ __forceinline__ bool write_widest(const u8* values, const Modality& m, const Group& group,
                                             const Source* sources, const Outer* outers, u32 count, Out* out,
                                             float fill) {
    u32 offset_bits = alignment_bits(values, m, group, out);
    if constexpr (sample_count(MODE) == 2) {
        if (offset_bits % 8 == 0)
            return write_channels<Out, MODE, 8>(values, m, group, sources, outers, count, out, fill);
    }
    if (offset_bits % 4 == 0) return write_channels<Out, MODE, 4>(values, m, group, sources, outers, count, out, fill);
    return write_channels<Out, MODE, 1>(values, m, group, sources, outers, count, out, fill);
}

// Reads WIDTH elements of a sample, N at a time, as float32.
template <u32 WIDTH, u32 N>
__device__ __forceinline__ void load_rotation(const u8* at, u32 dtype, float (&values)[MAX_ROTATION_WIDTH]) {
#pragma unroll
    for (u32 i = 0; i < WIDTH; i += N) {
        Raw<N> raw;
        raw.load(at + i * element_size(dtype), dtype);
        float elements[N];
        raw.get(dtype, elements);
#pragma unroll
        for (u32 j = 0; j < N; j++) values[i + j] = elements[j];
    }
}

// Rounds WIDTH values to type Out and writes them, N at a time.
template <u32 WIDTH, u32 N, class Out>
__device__ __forceinline__ void store_rotation(Out* at, const float (&values)[MAX_ROTATION_WIDTH]) {
#pragma unroll
    for (u32 i = 0; i < WIDTH; i += N) {
        float elements[N];
#pragma unroll
        for (u32 j = 0; j < N; j++) elements[j] = values[i + j];
        Elements<Out, N> packed;
        packed.set(elements);
        *(Elements<Out, N>*)(at + i) = packed;
    }
}

// Writes the columns of the modality's rotations, which are its first groups. A thread takes a rotation of a row;
// neighbouring threads take the rotations of one row. Returns the same as `write_channels`.
template <class Out>
__device__ __forceinline__ bool write_rotations(const u8* values, const Modality& m, const Group* groups, const Row* rows,
                                                u32 count, Out* out, float fill) {
    bool all_fit = true;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < count * m.rotations; i += BLOCK) {
        u32 row = i / m.rotations;
        const Group group = groups[i - row * m.rotations];
        const Source source = source_of(rows[row], group);
        u32 size = element_size(m.dtype);
        const u8* from_a = values + ((u64)source.a * m.dim + group.from) * size;
        const u8* from_b = values + ((u64)source.b * m.dim + group.from) * size;
        u32 offset_bits = alignment_bits(values, m, group, out);
        bool is_slerp = group.mode == SLERP, is_wide = offset_bits % (is_slerp ? 4 : 2) == 0;
        float a[MAX_ROTATION_WIDTH], b[MAX_ROTATION_WIDTH];
        if (is_slerp && is_wide) {
            load_rotation<4, 4>(from_a, m.dtype, a);
            load_rotation<4, 4>(from_b, m.dtype, b);
        } else if (is_slerp) {
            load_rotation<4, 1>(from_a, m.dtype, a);
            load_rotation<4, 1>(from_b, m.dtype, b);
        } else if (is_wide) {
            load_rotation<6, 2>(from_a, m.dtype, a);
            load_rotation<6, 2>(from_b, m.dtype, b);
        } else {
            load_rotation<6, 1>(from_a, m.dtype, a);
            load_rotation<6, 1>(from_b, m.dtype, b);
        }
        interpolate_rotation(group.mode, group.canonical, source.a == source.b, source.weight, a, b);
        bool fits = overflow_to_infinity<Out>(a);
        all_fit = all_fit && (fits || !source.valid);
#pragma unroll
        for (u32 j = 0; j < MAX_ROTATION_WIDTH; j++) a[j] = source.valid ? a[j] : fill;
        Out* to = out + (u64)row * m.columns + group.from;
        if (is_slerp) {
            is_wide ? store_rotation<4, 4>(to, a) : store_rotation<4, 1>(to, a);
        } else {
            is_wide ? store_rotation<6, 2>(to, a) : store_rotation<6, 1>(to, a);
        }
    }
    return all_fit;
}

// Does what `fill_overflowed_rows` of fuse.cu does, for all groups of a modality. Marks each row by a bit in
// `overflowed`.
template <class Out>
__device__ __noinline__ void fill_overflowed_rows(const Group* groups, u32 group_count, const Row* rows, u32 count,
                                                  Out* out, u32 columns, float fill, u32* overflowed) {
    u32 lane = threadIdx.x % 32;
    for (u32 i = threadIdx.x / 32; i < count * group_count; i += BLOCK / 32) {
        u32 row = i / group_count;
        const Group group = groups[i % group_count];
        if (!source_of(rows[row], group).valid) continue;
        Out* to = out + (u64)row * columns;
        bool is_row_finite = true;
        for (u32 c = group.from + lane; c < group.to; c += 32)
            is_row_finite = is_row_finite && is_finite(to_f32(to[c]));
        if (__all_sync(0xffffffff, is_row_finite)) continue;
        for (u32 c = group.from + lane; c < group.to; c += 32) to[c] = from_f32<Out>(fill);
        if (lane == 0) atomicOr(&overflowed[row / 32], 1u << row % 32);
    }
    __syncthreads();
}

// Fuses groups of any mode: the values and masks of a block's run.
template <class Out> __device__ __forceinline__ void fuse_modes(const FuseParams& p) {
    __shared__ i64 pivots[PIVOTS];
    __shared__ Row rows[RUN];
    __shared__ Source sources[RUN];
    __shared__ Outer outers[RUN];
    __shared__ u32 overflowed[RUN / 32];
    __shared__ Modality m; // shared, which saves registers
    const Run run = run_of_block(p);
    u32 row = threadIdx.x;
    if (row == 0) m = run.modality;
    if (row < RUN / 32) overflowed[row] = 0;
    Times times = run_times(run);
    Bracket bracket = bracket_of_row(run, times, pivots);
    if (run.leads) rows[row] = row_of(times, bracket, m, run.target);
    // Stages the sources of a group, if the modality has it: each leading thread writes the source of its row.
    auto stage_sources = [&](u32 g) {
        if (!run.leads || g >= m.groups) return;
        const Group group = run.groups[g];
        sources[row] = source_of(rows[row], group);
        if (is_curve(group.mode)) outers[row] = outer_of(rows[row], sources[row], m, group);
    };
    stage_sources(m.rotations);
    __syncthreads();

    const u8* values = (const u8*)run_values(run);
    Out* out = run_out<Out>(p, run);
    bool all_fit = write_rotations(values, m, run.groups, rows, run.rows, out, p.fill);
#pragma unroll 1
    for (u32 g = m.rotations; g < m.groups; g++) {
        if (g > m.rotations) {
            __syncthreads();
            stage_sources(g);
            __syncthreads();
        }
        const Group group = run.groups[g];
        with_mode(group.mode, [&](auto known) {
            constexpr u32 MODE = decltype(known)::mode;
            bool fits = write_widest<Out, MODE>(values, m, group, sources, outers, run.rows, out, p.fill);
            all_fit = all_fit && fits;
        });
    }
    if (!__syncthreads_and(all_fit)) {
        fill_overflowed_rows(run.groups, m.groups, rows, run.rows, out, m.columns, p.fill, overflowed);
    }
    if (!run.leads) return;
    bool valid = true;
#pragma unroll 1
    for (u32 g = 0; g < m.groups; g++) valid = valid && source_of(rows[row], run.groups[g]).valid;
    const Distances& distances = rows[row].apart;
    write_masks(p, run, distances.has_before ? distances.age : -1,
                overflowed[row / 32] >> row % 32 & 1 ? p.overflow : valid);
}

} // namespace fuse_ns
