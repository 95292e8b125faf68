// Fuses groups of any mode: part of fuse.cu. To keep the kernels small, the type of the samples is not a template
// parameter, as in `write`, but is looked up at each vector.
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

__device__ __forceinline__ u32 element_size(u32 dtype) { return dtype == FLOAT32 ? 4 : 2; }

// Replaces each value that type Out can't hold, a NaN among them, by an infinity. Returns true if it holds all values.
template <class Out, u32 N> __device__ __forceinline__ bool hold(float (&values)[N]) {
    bool all = true;
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        bool holds = fabsf(values[i]) < overflows_from<Out>();
        values[i] = holds ? values[i] : __uint_as_float(0x7f800000);
        all = all && holds;
    }
    return all;
}

// The outer samples of a target, if they exist: the one before and the one after the two samples around the target.
struct Neighbours {
    i64 to_left;  // ns from the earlier outer sample to the sample before the target
    i64 to_right; // ns from the sample after the target to the later outer sample
    bool has_left;
    bool has_right;
};

__device__ __forceinline__ Neighbours neighbours(const Times& times, const Bracket& found) {
    Neighbours next{0, 0, found.until > 1, found.until + 1 < times.count};
    i64 left = next.has_left ? time_at(times, found.until - 2) : 0;
    i64 right = next.has_right ? time_at(times, found.until + 1) : 0;
    if (next.has_left) next.to_left = distance(left, found.before);
    if (next.has_right) next.to_right = distance(found.after, right);
    return next;
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

__device__ __forceinline__ Row row_of(const Times& times, const Bracket& found, const Modality& m, i64 target) {
    Row row{distances(found, target), Neighbours{}, (m.head + (found.has_before ? found.until - 1 : 0)) & m.mask,
            (m.head + found.until) & m.mask, 0.0f};
    if (m.has_curves) row.next = neighbours(times, found);
    if (found.has_before && found.has_after) row.weight = (float)later_weight(row.apart);
    return row;
}

// Does what `source` does, for a group of any mode.
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
    Outer outer{line<float>(), source.a, source.b};
    if (source.a == source.b) return outer;
    i64 apart[3] = {row.next.to_left, row.apart.gap, row.next.to_right};
    outer.curve = curve<float>(group.mode, group.limits.max_gap, apart, row.next.has_left, row.next.has_right);
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
    constexpr u32 SAMPLES = samples_of(MODE), ROWS = SAMPLES == 4 ? 1 : AT_ONCE;
    u32 width = (group.to - group.from) / N, size = element_size(m.dtype), pitch = m.dim * size;
    // 1 << bits threads, a power of two, share a row.
    u32 bits = width > BLOCK / 2 ? BLOCK_BITS : 32 - __clz(width - 1);
    u32 rows_on = BLOCK >> bits;
    float fills[N];
#pragma unroll
    for (u32 j = 0; j < N; j++) fills[j] = fill;
    Elements<Out, N> filler;
    filler.set(fills);
    bool held = true;
#pragma unroll 1
    for (u32 i = threadIdx.x & ((1u << bits) - 1); i < width; i += 1u << bits) {
        const u8* from = values + (group.from + i * N) * size;
        Out* to = out + group.from + i * N;
#pragma unroll 1
        for (u32 row = threadIdx.x >> bits; row < count; row += ROWS * rows_on) {
            // Issues every read before it waits for the first. Rows past the end read the last row again.
            Raw<N> raw[ROWS][SAMPLES];
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                u32 at = min(row + r * rows_on, count - 1);
                raw[r][BEFORE].load(from + (u64)sources[at].a * pitch, m.dtype);
                raw[r][AFTER].load(from + (u64)sources[at].b * pitch, m.dtype);
                if constexpr (SAMPLES == 4) {
                    raw[r][LEFT].load(from + (u64)outers[at].left * pitch, m.dtype);
                    raw[r][RIGHT].load(from + (u64)outers[at].right * pitch, m.dtype);
                }
            }
            in_flight();
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                u32 at = min(row + r * rows_on, count - 1);
                const Source source = sources[at];
                float samples[SAMPLES][N], made[N];
#pragma unroll
                for (u32 s = 0; s < SAMPLES; s++) raw[r][s].get(m.dtype, samples[s]);
                make<MODE>(samples, source.weight, outers[SAMPLES == 4 ? at : 0].curve, made);
                bool holds = hold<Out>(made);
                held = held && (holds || !source.valid);
                Elements<Out, N> result;
                result.set(made);
#pragma unroll
                for (u32 j = 0; j < sizeof(result.words.at) / sizeof(result.words.at[0]); j++) {
                    result.words.at[j] = source.valid ? result.words.at[j] : filler.words.at[j];
                }
                if (row + r * rows_on < count) *(Elements<Out, N>*)(to + (u64)(row + r * rows_on) * m.columns) = result;
            }
        }
    }
    return held;
}

template <class Out>
__device__ __forceinline__ u32 alignment(const u8* values, const Modality& m, const Group& group, const Out* out) {
    return m.dim | m.columns | group.from | group.to | (u32)((u64)values / element_size(m.dtype)) |
           (u32)((u64)out / sizeof(Out));
}

// Calls `write_channels` with the widest vectors that the alignment allows.
template <class Out, u32 MODE>
__device__ __forceinline__ bool write_any(const u8* values, const Modality& m, const Group& group, const Source* sources,
                                          const Outer* outers, u32 count, Out* out, float fill) {
    u32 apart = alignment(values, m, group, out);
    if constexpr (samples_of(MODE) == 2) {
        if (apart % 8 == 0) return write_channels<Out, MODE, 8>(values, m, group, sources, outers, count, out, fill);
    }
    if (apart % 4 == 0) return write_channels<Out, MODE, 4>(values, m, group, sources, outers, count, out, fill);
    return write_channels<Out, MODE, 1>(values, m, group, sources, outers, count, out, fill);
}

// Reads WIDTH elements of a sample, N at a time.
template <u32 WIDTH, u32 N>
__device__ __forceinline__ void read_rotation(const u8* at, u32 dtype, float (&values)[ROTATION]) {
#pragma unroll
    for (u32 i = 0; i < WIDTH; i += N) {
        Raw<N> raw;
        raw.load(at + i * element_size(dtype), dtype);
        float some[N];
        raw.get(dtype, some);
#pragma unroll
        for (u32 j = 0; j < N; j++) values[i + j] = some[j];
    }
}

template <u32 WIDTH, u32 N, class Out>
__device__ __forceinline__ void put_rotation(Out* at, const float (&values)[ROTATION]) {
#pragma unroll
    for (u32 i = 0; i < WIDTH; i += N) {
        float some[N];
#pragma unroll
        for (u32 j = 0; j < N; j++) some[j] = values[i + j];
        Elements<Out, N> packed;
        packed.set(some);
        *(Elements<Out, N>*)(at + i) = packed;
    }
}

// Writes the columns of the modality's rotations, which are its first groups. A thread takes a rotation of a row;
// neighbouring threads take the rotations of one row. Returns the same as `write_channels`.
template <class Out>
__device__ __forceinline__ bool write_rotations(const u8* values, const Modality& m, const Group* groups, const Row* rows,
                                                u32 count, Out* out, float fill) {
    bool held = true;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < count * m.rotations; i += BLOCK) {
        u32 row = i / m.rotations;
        const Group group = groups[i - row * m.rotations];
        const Source source = source_of(rows[row], group);
        u32 size = element_size(m.dtype);
        const u8* from_a = values + ((u64)source.a * m.dim + group.from) * size;
        const u8* from_b = values + ((u64)source.b * m.dim + group.from) * size;
        u32 apart = alignment(values, m, group, out);
        bool is_slerp = group.mode == SLERP, is_wide = apart % (is_slerp ? 4 : 2) == 0;
        float a[ROTATION], b[ROTATION];
        if (is_slerp && is_wide) {
            read_rotation<4, 4>(from_a, m.dtype, a);
            read_rotation<4, 4>(from_b, m.dtype, b);
        } else if (is_slerp) {
            read_rotation<4, 1>(from_a, m.dtype, a);
            read_rotation<4, 1>(from_b, m.dtype, b);
        } else if (is_wide) {
            read_rotation<6, 2>(from_a, m.dtype, a);
            read_rotation<6, 2>(from_b, m.dtype, b);
        } else {
            read_rotation<6, 1>(from_a, m.dtype, a);
            read_rotation<6, 1>(from_b, m.dtype, b);
        }
        rotate(group.mode, group.canonical, source.a == source.b, source.weight, a, b);
        bool holds = hold<Out>(a);
        held = held && (holds || !source.valid);
#pragma unroll
        for (u32 j = 0; j < ROTATION; j++) a[j] = source.valid ? a[j] : fill;
        Out* to = out + (u64)row * m.columns + group.from;
        if (is_slerp) {
            is_wide ? put_rotation<4, 4>(to, a) : put_rotation<4, 1>(to, a);
        } else {
            is_wide ? put_rotation<6, 2>(to, a) : put_rotation<6, 1>(to, a);
        }
    }
    return held;
}

// Does what `refuse_overflows` of fuse.cu does, for all groups of a modality. Marks each row by a bit in `overflowed`.
template <class Out>
__device__ __noinline__ void refuse_overflows(const Group* groups, u32 group_count, const Row* rows, u32 count, Out* out,
                                              u32 columns, float fill, u32* overflowed) {
    u32 lane = threadIdx.x % 32;
    for (u32 i = threadIdx.x / 32; i < count * group_count; i += BLOCK / 32) {
        u32 row = i / group_count;
        const Group group = groups[i % group_count];
        if (!source_of(rows[row], group).valid) continue;
        Out* to = out + (u64)row * columns;
        bool held = true;
        for (u32 c = group.from + lane; c < group.to; c += 32) held = held && is_finite(to_f32(to[c]));
        if (__all_sync(0xffffffff, held)) continue;
        for (u32 c = group.from + lane; c < group.to; c += 32) to[c] = from_f32<Out>(fill);
        if (lane == 0) atomicOr(&overflowed[row / 32], 1u << row % 32);
    }
    __syncthreads();
}

// Fuses groups of any mode.
template <class Out> __device__ __forceinline__ void fuse_modes(const FuseParams& p) {
    __shared__ i64 pivots[PIVOTS];
    __shared__ Row rows[RUN];
    __shared__ Source sources[RUN];
    __shared__ Outer outers[RUN];
    __shared__ u32 overflowed[RUN / 32];
    __shared__ Modality m; // shared, which saves registers
    const Run run = own_run(p);
    u32 row = threadIdx.x;
    if (row == 0) m = run.modality;
    if (row < RUN / 32) overflowed[row] = 0;
    Times times = run_times(run);
    Bracket found = own_bracket(run, times, pivots);
    if (run.leads) rows[row] = row_of(times, found, m, run.target);
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
    bool held = write_rotations(values, m, run.groups, rows, run.rows, out, p.fill);
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
            bool holds = write_any<Out, MODE>(values, m, group, sources, outers, run.rows, out, p.fill);
            held = held && holds;
        });
    }
    if (!__syncthreads_and(held)) {
        refuse_overflows(run.groups, m.groups, rows, run.rows, out, m.columns, p.fill, overflowed);
    }
    if (!run.leads) return;
    bool valid = true;
#pragma unroll 1
    for (u32 g = 0; g < m.groups; g++) valid = valid && source_of(rows[row], run.groups[g]).valid;
    const Distances& apart = rows[row].apart;
    put_masks(p, run, apart.has_before ? apart.age : -1, overflowed[row / 32] >> row % 32 & 1 ? p.overflow : valid);
}

} // namespace fuse_ns
