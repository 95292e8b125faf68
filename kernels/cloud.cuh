// Points in memory, and the cell of a point, as `kernels::transform` and `kernels::index` of crates/ops/src/voxelize.
#pragma once
#include "types.cuh"

// The most fields other than x, y and z that channels can be computed from.
constexpr u32 MAX_FIELDS = 16;

// The cell of a dropped point. In a grid of 2^32 cells it is also the index of the last cell: see `is_kept`.
constexpr u32 NO_CELL = 0xffffffff;

// 8 bytes that are read or written at once.
struct alignas(8) Pair {
    u32 x, y;
};

// 16 bytes that are read or written at once.
struct alignas(16) Quad {
    u32 x, y, z, w;
};

// The values of one field. The value of point i is at `data + i * stride`.
struct Column {
    const u8 *data;
    u32 stride;
    u32 dtype;
};

// Clouds of one form, one after the other, and the grid that each of them is put in. The fields that every point needs
// come first, because the first read of each cache line of parameters takes time.
struct Cloud {
    Column axes[3];
    // Cloud b has the points starts[b]..starts[b + 1]. Null: each cloud has `points` points.
    const u32 *starts;
    u32 points;
    u32 is_moved;
    float origin[3];
    float inverse[3];
    float shape[3];
    u32 ny;
    u32 nz;
    u32 field_count;
    float rotation[9];
    float translation[3];
};

// Index of a cloud's first point, and the index after its last point.
struct Range {
    u32 first;
    u32 end;
};

// Returns the points of a cloud among those of all clouds. `starts` and `points` are as in `Cloud`.
__device__ __forceinline__ Range range_of(const u32 *starts, u32 points, u32 cloud) {
    return starts ? Range{starts[cloud], starts[cloud + 1]} : Range{cloud * points, (cloud + 1) * points};
}

// Reads the value of point i, which is of type T.
template <class T> __device__ __forceinline__ T load(const Column &column, u32 i) {
    return *(const T *)(column.data + (u64)i * column.stride);
}

// Reads a value as the nearest float32.
__device__ __forceinline__ float read_f32(const Column &column, u32 i) {
    return read_f32(column.data + (u64)i * column.stride, column.dtype);
}

// Reads a value as the nearest float64.
__device__ __forceinline__ double read_f64(const Column &column, u32 i) {
    switch (column.dtype) {
    case FLOAT64: return load<double>(column, i);
    case INT32: return (double)load<i32>(column, i);
    case INT64: return (double)load<i64>(column, i);
    case UINT32: return (double)load<u32>(column, i);
    case UINT64: return (double)load<u64>(column, i);
    default: return (double)read_f32(column, i);
    }
}

// Greatest magnitudes of a scaled value: SMALL if it is summed as it is, LARGE if it is summed at all. See
// crates/ops/src/voxelize/quantum.rs.
constexpr u32 LOW_BITS = 40;
constexpr double SMALL = 1099511627776.0;
constexpr double LARGE = 4611686018427387904.0;

// Rounds to the nearest integer, ties to even. The magnitude must be less than 2^51. Adding 1.5 * 2^52 leaves no room
// for a fraction, and puts the integer into the low bits.
__device__ __forceinline__ i64 round_to_integer(double value) {
    const double magic = 6755399441055744.0;
    return __double_as_longlong(value + magic) - __double_as_longlong(magic);
}

// Rounds to the nearest integer, ties to even. The magnitude must be at most LARGE.
__device__ __forceinline__ i64 round_large(double value) { return (i64)rint(value); }

// Maps the bits of a float to an integer of the same order, with -0 before +0, as `order_key` of the CPU's kernels. The
// map is its own inverse.
__device__ __forceinline__ i32 order_key(i32 bits) { return bits ^ (i32)((u32)(bits >> 31) >> 1); }

// Layout of the coordinates of points in memory.
enum Form {
    // Columns of any type and stride.
    ANY,
    // float32 x, y, z with nothing between.
    PACKED3,
    // float32 x, y, z and 4 more bytes, aligned to 16 bytes.
    PACKED4,
};

// Defines a kernel for points of one form. The first template parameter of `body` is the form.
#define KERNEL_OF_FORM(name, Params, threads, body, form)                                                              \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Params p) {                     \
        wait_for_previous();                                                                                           \
        body<form>(p);                                                                                                 \
    }

struct Point {
    float xyz[3];
};

// Reads the coordinates of point i, metres, in the frame of its sensor.
template <Form FORM> __device__ __forceinline__ Point read_point(const Cloud &cloud, u32 i) {
    Point point;
    if (FORM == PACKED3) {
        const float *from = (const float *)cloud.axes[0].data + (u64)i * 3;
        for (u32 axis = 0; axis < 3; axis++) point.xyz[axis] = from[axis];
    } else if (FORM == PACKED4) {
        Quad quad = ((const Quad *)cloud.axes[0].data)[i];
        point.xyz[0] = __uint_as_float(quad.x);
        point.xyz[1] = __uint_as_float(quad.y);
        point.xyz[2] = __uint_as_float(quad.z);
    } else {
        for (u32 axis = 0; axis < 3; axis++) point.xyz[axis] = read_f32(cloud.axes[axis], i);
    }
    return point;
}

// Transforms a point into the frame of the grid, as `kernels::transform`.
__device__ __forceinline__ Point transform_point(const Cloud &cloud, Point point) {
    if (!cloud.is_moved) return point;
    Point transformed;
    const float *r = cloud.rotation;
    for (u32 axis = 0; axis < 3; axis++) {
        transformed.xyz[axis] =
            ((r[axis * 3] * point.xyz[0] + r[axis * 3 + 1] * point.xyz[1]) + r[axis * 3 + 2] * point.xyz[2]) +
            cloud.translation[axis];
    }
    return transformed;
}

// Fate of a thread's point: kept, dropped because it is not finite or outside of the grid, or no point at all.
enum Fate : u32 { KEPT, NONFINITE, OUTSIDE, NO_POINT };

// Finds the cell of a transformed point by its coordinates, metres, as `kernels::index`. Returns the point's fate.
__device__ __forceinline__ Fate locate(const Cloud &cloud, const Point &point, u32 &cell) {
    bool finite = true, inside = true;
    u32 index[3];
    for (u32 axis = 0; axis < 3; axis++) {
        finite &= is_finite(point.xyz[axis]);
        float t = (point.xyz[axis] - cloud.origin[axis]) * cloud.inverse[axis];
        bool within = t >= 0.0f && t < cloud.shape[axis];
        inside &= within;
        // If t is not negative, truncation is the floor.
        index[axis] = within ? (u32)t : 0;
    }
    cell = (index[0] * cloud.ny + index[1]) * cloud.nz + index[2];
    return !finite ? NONFINITE : inside ? KEPT : OUTSIDE;
}

// True if the point with this saved cell is kept. Only in a grid of 2^32 cells, a point with NO_CELL must be located
// once more.
template <Form FORM> __device__ __forceinline__ bool is_kept(const Cloud &cloud, bool is_whole, u32 i, u32 cell) {
    if (cell != NO_CELL || !is_whole) return cell != NO_CELL;
    return locate(cloud, transform_point(cloud, read_point<FORM>(cloud, i)), cell) == KEPT;
}
