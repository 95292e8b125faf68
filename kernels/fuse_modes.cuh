// Writes the columns of a group of any mode: part of fuse.cu. To keep the kernels small, the type of the samples is not one
// of their parameters, as in `write`, but looked up at each vector.
#pragma once

#include "modes.cuh"

namespace fuse_ns {

// N neighbouring elements of a sample, as they lie there: float32 in N words, 16-bit floats in half as many.
template <u32 N> struct Raw {
    Words<4 * N> wide;

    // `at`: an element's address, aligned for N elements.
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

// A value, or an infinity for one that no type can hold, which may be a NaN.
__device__ __forceinline__ float or_infinity(float value) {
    return is_finite(value) ? value : __uint_as_float(0x7f800000);
}

// How a row of a curve is made besides its Source: the slots of the outer samples.
struct Outer {
    Curve<float> curve;
    u32 left;
    u32 right;
};

// The curve of a target, which is a line where its value is one sample's.
__device__ __forceinline__ Outer outer(const Times& times, const Bracket& found, const Source& source, const Group& group) {
    Outer outer{line<float>(), source.a, source.b};
    if (source.a == source.b) return outer;
    bool has_left = found.until > 1, has_right = found.until + 1 < times.count;
    i64 left = has_left ? time_at(times, found.until - 2) : 0;
    i64 right = has_right ? time_at(times, found.until + 1) : 0;
    i64 apart[3] = {has_left ? distance(left, found.before) : 0, distance(found.before, found.after),
                    has_right ? distance(found.after, right) : 0};
    outer.curve = curve<float>(group.mode, group.limits.max_gap, apart, has_left, has_right);
    if (outer.curve.has_left) outer.left = (times.head + found.until - 2) & times.mask;
    if (outer.curve.has_right) outer.right = (times.head + found.until + 1) & times.mask;
    return outer;
}

// Writes the columns of a group, N at a time, and returns the largest magnitude that this thread wrote. FOUR: those of a
// curve, of four samples; else those of an angle or of a plain mode, of two.
template <class Out, u32 N, bool FOUR>
__device__ __forceinline__ float write_channels(const u8* values, const Modality& m, const Group& group,
                                                const Source* sources, const Outer* outers, u32 rows, Out* out,
                                                float fill) {
    constexpr u32 SAMPLES = FOUR ? 4 : 2, ROWS = FOUR ? 1 : AT_ONCE;
    u32 width = (group.to - group.from) / N, size = element_size(m.dtype), pitch = m.dim * size;
    // A power of two of threads, 1 << bits, share a row.
    u32 bits = width > BLOCK / 2 ? BLOCK_BITS : 32 - __clz(width - 1);
    u32 rows_on = BLOCK >> bits;
    bool is_angle = group.mode == ANGLE;
    float largest = 0.0f;
#pragma unroll 1
    for (u32 i = threadIdx.x & ((1u << bits) - 1); i < width; i += 1u << bits) {
        const u8* from = values + (group.from + i * N) * size;
        Out* to = out + group.from + i * N;
#pragma unroll 1
        for (u32 row = threadIdx.x >> bits; row < rows; row += ROWS * rows_on) {
            // Issues every read before it waits for the first. Past the end it reads the last row again.
            Raw<N> raw[ROWS][SAMPLES];
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                u32 at = min(row + r * rows_on, rows - 1);
                raw[r][0].load(from + (u64)sources[at].a * pitch, m.dtype);
                raw[r][1].load(from + (u64)sources[at].b * pitch, m.dtype);
                if (FOUR) {
                    raw[r][SAMPLES - 2].load(from + (u64)outers[at].left * pitch, m.dtype);
                    raw[r][SAMPLES - 1].load(from + (u64)outers[at].right * pitch, m.dtype);
                }
            }
            in_flight();
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                u32 at = min(row + r * rows_on, rows - 1);
                const Source source = sources[at];
                float sample[SAMPLES][N], made[N];
#pragma unroll
                for (u32 s = 0; s < SAMPLES; s++) raw[r][s].get(m.dtype, sample[s]);
                if (FOUR) {
                    const Curve<float> curve = outers[at].curve;
#pragma unroll
                    for (u32 j = 0; j < N; j++) {
                        made[j] = on_curve(curve, sample[SAMPLES - 2][j], sample[0][j], sample[1][j],
                                           sample[SAMPLES - 1][j], source.weight);
                    }
                } else if (is_angle) {
#pragma unroll
                    for (u32 j = 0; j < N; j++) made[j] = angle_between(sample[0][j], sample[1][j], source.weight);
                } else {
#pragma unroll
                    for (u32 j = 0; j < N; j++) made[j] = blend(group.mode, sample[0][j], sample[1][j], source.weight);
                }
                Elements<Out, N> result;
#pragma unroll
                for (u32 j = 0; j < N; j++) {
                    made[j] = source.valid ? or_infinity(made[j]) : fill;
                    largest = fmaxf(largest, source.valid ? fabsf(made[j]) : 0.0f);
                }
                result.set(made);
                if (row + r * rows_on < rows) *(Elements<Out, N>*)(to + (u64)(row + r * rows_on) * m.columns) = result;
            }
        }
    }
    return largest;
}

// Writes the columns of a rotation, a thread for each row, and returns as `write_channels` does.
template <class Out>
__device__ __forceinline__ float write_rotation(const u8* values, const Modality& m, const Group& group,
                                                const Source* sources, u32 rows, Out* out, float fill) {
    u32 width = rotation_width(group.mode), size = element_size(m.dtype);
    float largest = 0.0f;
#pragma unroll 1
    for (u32 row = threadIdx.x; row < rows; row += BLOCK) {
        const Source source = sources[row];
        const u8* from_a = values + ((u64)source.a * m.dim + group.from) * size;
        const u8* from_b = values + ((u64)source.b * m.dim + group.from) * size;
        Raw<1> raw[2][ROTATION];
#pragma unroll
        for (u32 i = 0; i < ROTATION; i++) {
            u32 at = min(i, width - 1) * size;
            raw[0][i].load(from_a + at, m.dtype);
            raw[1][i].load(from_b + at, m.dtype);
        }
        in_flight();
        float sample[2][ROTATION];
#pragma unroll
        for (u32 s = 0; s < 2; s++) {
#pragma unroll
            for (u32 i = 0; i < ROTATION; i++) {
                float value[1];
                raw[s][i].get(m.dtype, value);
                sample[s][i] = value[0];
            }
        }
        rotate(group.mode, group.canonical, source.a == source.b, source.weight, sample[0], sample[1]);
        Out* to = out + (u64)row * m.columns + group.from;
#pragma unroll
        for (u32 i = 0; i < ROTATION; i++) {
            float value = source.valid ? or_infinity(sample[0][i]) : fill;
            if (i < width) to[i] = from_f32<Out>(value);
            if (i < width && source.valid) largest = fmaxf(largest, fabsf(value));
        }
    }
    return largest;
}

// `write_group` for any mode.
template <class Out>
__device__ __forceinline__ float write_any(const void* samples, const Modality& m, const Group& group,
                                           const Source* sources, const Outer* outers, u32 rows, Out* out, float fill) {
    const u8* values = (const u8*)samples;
    if (is_rotation(group.mode)) return write_rotation(values, m, group, sources, rows, out, fill);
    // The widest vectors that addresses and pitches allow.
    u32 apart = m.dim | m.columns | group.from | group.to | (u32)((u64)values / element_size(m.dtype)) |
                (u32)((u64)out / sizeof(Out));
    if (is_curve(group.mode)) {
        if (apart % 4 == 0) return write_channels<Out, 4, true>(values, m, group, sources, outers, rows, out, fill);
        return write_channels<Out, 1, true>(values, m, group, sources, outers, rows, out, fill);
    }
    if (apart % 8 == 0) return write_channels<Out, 8, false>(values, m, group, sources, outers, rows, out, fill);
    if (apart % 4 == 0) return write_channels<Out, 4, false>(values, m, group, sources, outers, rows, out, fill);
    return write_channels<Out, 1, false>(values, m, group, sources, outers, rows, out, fill);
}

} // namespace fuse_ns
