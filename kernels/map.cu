// Surfaces of a volume over time, bit for bit as crates/ops/src/map. A warp takes tiles of 8 cells of y and 32 of z, its lanes 4
// along y and 8 along z: then the pixels of a warp lie together. Each lane has 8 cells of a tile, so that it loads 8 pixels at once.
// Where no cell of a warp changes its distance, as in free space that stays free, nothing is divided.

#include "types.cuh"

// All lanes of a warp.
constexpr u32 FULL_MASK = 0xffffffff;
constexpr u32 TSDF_BLOCK = 256;
// Cells of a tile along y and z, and cells of a lane.
constexpr u32 TILE_Y = 8;
constexpr u32 TILE_Z = 32;
constexpr u32 LANE_CELLS = 8;
// Tiles that a warp takes one after the other, along x.
constexpr u32 WARP_TILES = 2;
constexpr u32 PLANES = 6;

// A weight of 1.
constexpr u32 WEIGHT_ONE = 256;

struct TsdfFrame {
    // From the corner of the window to the camera.
    float rotation[9];
    float translation[3];
    float focal[2];
    float principal[2];
    // Planes around what the camera sees: a x + b y + c z + d >= 0 for the first cell of each tile that it may see. These are in
    // cells of the window.
    float planes[PLANES][4];
    // Depths of the pixels: uint16 in a unit, or float32 in metres.
    const void *depths;
    // Red, green and blue of the pixels, for the kernels with colour.
    const u8 *rgb;
    // Length of each pixel's ray to depth 1, for the kernels along the ray.
    const float *ratios;
    u32 width;
    u32 height;
    // Of uint16: the unit, metres, the least value that is used, and the number of values from it on that are.
    float unit;
    u32 least_raw;
    u32 raw_count;
    // Of float32: depths of at least `min_m` and less than `max_m` are used.
    float min_m;
    float max_m;
    u32 unused;
};

struct TsdfParams {
    TsdfFrame frame;
    // Coordinates of the cells' centres from the corner of the window on, along each axis.
    const float *centres[3];
    // Of each slot: the distance in the low half, the weight in the high half.
    u32 *state;
    // Of each slot: red, green and blue in 1/256, and the weight of the colour. Null: no colour.
    u16 *color;
    u32 shape[3];
    // The slot of the first cell of the window, along each axis.
    u32 first[3];
    u32 max_weight;
    u32 least_weight;
    u32 is_inverse_square;
    float truncation;
    // 32767 / truncation.
    float scale;
    float min_cell_m;
};

struct ClearParams {
    u32 *state;
    u16 *color;
    u32 shape[3];
    // The slot of the first cell of the window, along each axis, after a move.
    u32 first[3];
    // Number of cells that entered the window along each axis: at its end, or at its beginning if negative.
    i32 entered[3];
    u32 unused;
};

// 1 / x to the nearest, for x from 2^-10 to 2^14.
__device__ __forceinline__ float reciprocal(float x) {
#ifdef __CUDACC__
    float estimate;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
    float rest = fmaf(x, estimate, -1.0f);
    return fmaf(estimate, -rest, estimate);
#else
    return 1.0f / x;
#endif
}

// The integer part of 0 <= x < 2^23. Any other x, NaN too, gives 2^23 or more.
__device__ __forceinline__ u32 integer_part(float x) {
#ifdef __CUDACC__
    return __float_as_uint(__fadd_rd(x, 8388608.0f)) - 0x4b000000;
#else
    return x >= 0.0f && x < 8388608.0f ? (u32)x : 0xffffffff;
#endif
}

// Rounds a number of a magnitude below 2^22 to the nearest integer, ties to even.
__device__ __forceinline__ i32 nearest_integer(float x) { return (i32)(__float_as_uint(x + 12582912.0f) - 0x4b400000); }

// n / d, rounded down, if it is less than 2^17; `inverse` is about 1 / d.
__device__ __forceinline__ u32 quotient(u32 n, u32 d, float inverse) {
    u32 q = (u32)((float)n * inverse);
    i32 rest = (i32)(n - q * d);
    if (rest < 0) q--;
    if (rest >= (i32)d) q++;
    return q;
}

// About 1 / x.
__device__ __forceinline__ float about_inverse(float x) {
#ifdef __CUDACC__
    float estimate;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
    return estimate;
#else
    return 1.0f / x;
#endif
}

// `fuse` of tsdf.rs: fuses a measured distance of a weight into the state of a cell. Sums of two weights are at most 2^16, so
// that 32 bits hold every product.
__device__ __forceinline__ u32 fuse(u32 state, i32 measured, u32 weight, u32 max_weight) {
    i32 distance = (i32)(state << 16) >> 16;
    u32 before = state >> 16, sum = before + weight;
    i32 total = distance * (i32)before + measured * (i32)weight;
    bool is_negative = total < 0;
    u32 mean = quotient((u32)(is_negative ? -total : total) + sum / 2, sum, about_inverse((float)sum));
    mean = is_negative ? 0u - mean : mean;
    return (mean & 0xffff) | (sum < max_weight ? sum : max_weight) << 16;
}

// The weight of a frame for a cell, whose 1 / z is `inverse`.
__device__ __forceinline__ u32 weight_of(const TsdfParams &p, float inverse) {
    if (!p.is_inverse_square) return WEIGHT_ONE;
    float weight = rintf((256.0f * inverse) * inverse);
    float least = (float)p.least_weight, most = (float)p.max_weight;
    // A NaN, as of a cell outside of the volume, is not above the least weight.
    return (u32)(weight > least ? weight < most ? weight : most : least);
}

// Fuses the colour of a pixel into that of a cell.
__device__ __forceinline__ void fuse_color(u16 *color, const u8 *rgb, u32 weight, u32 max_weight) {
    u32 before = color[3], sum = before + weight;
    float inverse = about_inverse((float)sum);
    for (u32 i = 0; i < 3; i++) {
        color[i] = (u16)quotient(color[i] * before + ((u32)rgb[i] << 8) * weight + sum / 2, sum, inverse);
    }
    color[3] = (u16)(sum < max_weight ? sum : max_weight);
}

// Makes the loads before it begin before anything behind it does.
#ifdef __CUDACC__
#define ORDER_LOADS() asm volatile("" ::: "memory")
#else
#define ORDER_LOADS()
#endif

// The cell's place in the window along an axis.
template <class Params> __device__ __forceinline__ u32 place_of(const Params &p, u32 axis, u32 slot) {
    return slot >= p.first[axis] ? slot - p.first[axis] : slot + p.shape[axis] - p.first[axis];
}

// False if the frame sees no cell of the tiles from slot (x, y, z) on. Of tiles that the window's first cell divides it is true.
__device__ __forceinline__ bool may_see(const TsdfParams &p, const u32 *slot, const u32 *size) {
    float first[3];
    bool is_divided = false, is_inside = true;
    for (u32 axis = 0; axis < 3; axis++) {
        is_divided |= slot[axis] < p.first[axis] && slot[axis] + size[axis] > p.first[axis];
        first[axis] = (float)place_of(p, axis, slot[axis]);
    }
    for (u32 i = 0; i < PLANES; i++) {
        const float *plane = p.frame.planes[i];
        is_inside &= fmaf(plane[0], first[0], fmaf(plane[1], first[1], fmaf(plane[2], first[2], plane[3]))) >= 0;
    }
    return is_divided || is_inside;
}

// The types of a frame's depths.
enum Depths : u32 { RAW, METRES };

template <bool COLOR, Depths DEPTHS, bool ALONG_RAY> __device__ __forceinline__ void update(const TsdfParams &p) {
    const TsdfFrame &frame = p.frame;
    const float *r = frame.rotation;
    const u32 size[3] = {WARP_TILES, TILE_Y, TILE_Z};
    u32 warp = blockIdx.x * (TSDF_BLOCK / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 across = (p.shape[2] + TILE_Z - 1) / TILE_Z, rows = (p.shape[1] + TILE_Y - 1) / TILE_Y;
    const u32 slot[3] = {warp / across / rows * WARP_TILES, warp / across % rows * TILE_Y, warp % across * TILE_Z};
    if (slot[0] >= p.shape[0] || !may_see(p, slot, size)) return;
    // Cell i of a lane: 4 (i / 4) along y, 8 (i % 4) along z from the lane's first cell on. No camera sees a cell at NaN.
    u32 y = slot[1] + lane / 8, z = slot[2] + lane % 8;
    const float nan = __uint_as_float(0x7fc00000);
    float cy[2], cz[4];
#pragma unroll
    for (u32 i = 0; i < 2; i++) cy[i] = y + 4 * i < p.shape[1] ? p.centres[1][place_of(p, 1, y + 4 * i)] : nan;
#pragma unroll
    for (u32 i = 0; i < 4; i++) cz[i] = z + 8 * i < p.shape[2] ? p.centres[2][place_of(p, 2, z + 8 * i)] : nan;
    u32 end = slot[0] + WARP_TILES < p.shape[0] ? slot[0] + WARP_TILES : p.shape[0];
#pragma unroll 1
    for (u32 x = slot[0]; x < end; x++) {
        float cx = p.centres[0][place_of(p, 0, x)];
        float along[2][3], depth[LANE_CELLS], inverse[LANE_CELLS], distance[LANE_CELLS];
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            for (u32 k = 0; k < 3; k++) along[j][k] = r[k * 3] * cx + r[k * 3 + 1] * cy[j];
        }
        // All loads begin before the first value is used.
        u32 pixel[LANE_CELLS], raw[LANE_CELLS];
        float metres[LANE_CELLS], ratio[LANE_CELLS];
#pragma unroll
        for (u32 i = 0; i < LANE_CELLS; i++) {
            float point[3];
            for (u32 k = 0; k < 3; k++) point[k] = (along[i / 4][k] + r[k * 3 + 2] * cz[i % 4]) + frame.translation[k];
            depth[i] = point[2];
            inverse[i] = reciprocal(point[2]);
            u32 u = integer_part(((frame.focal[0] * (point[0] * inverse[i])) + frame.principal[0]) + 0.5f);
            u32 v = integer_part(((frame.focal[1] * (point[1] * inverse[i])) + frame.principal[1]) + 0.5f);
            bool is_seen = point[2] > p.min_cell_m && u < frame.width && v < frame.height;
            pixel[i] = v * frame.width + u;
            if (DEPTHS == RAW) raw[i] = is_seen ? ((const u16 *)frame.depths)[pixel[i]] : 0;
            if (DEPTHS == METRES) metres[i] = is_seen ? ((const float *)frame.depths)[pixel[i]] : 0;
            if (ALONG_RAY) ratio[i] = is_seen ? frame.ratios[pixel[i]] : 1;
        }
        bool is_touched[LANE_CELLS], is_any = false;
#pragma unroll
        for (u32 i = 0; i < LANE_CELLS; i++) {
            bool is_used;
            if (DEPTHS == RAW) {
                is_used = raw[i] - frame.least_raw < frame.raw_count;
                distance[i] = (float)raw[i] * frame.unit - depth[i];
            } else {
                is_used = metres[i] > 0 && metres[i] >= frame.min_m && metres[i] < frame.max_m;
                distance[i] = metres[i] - depth[i];
            }
            if (ALONG_RAY) distance[i] *= ratio[i];
            is_touched[i] = is_used && distance[i] >= -p.truncation;
            is_any |= is_touched[i];
        }
        if (!__any_sync(FULL_MASK, is_any)) continue;
        u64 first = (x * p.shape[1] + y) * p.shape[2] + z;
        const u64 rows[2] = {first, first + 4 * p.shape[2]};
        u32 state[LANE_CELLS];
#pragma unroll
        for (u32 i = 0; i < LANE_CELLS; i++) state[i] = is_touched[i] ? (p.state + rows[i / 4])[8 * (i % 4)] : 0;
        ORDER_LOADS();
#pragma unroll
        for (u32 i = 0; i < LANE_CELLS; i++) {
            // Bounded in lanes that are not touched, too, since they divide along with others. A NaN gives the truncation.
            float near = distance[i] < p.truncation ? distance[i] : p.truncation;
            near = near > -p.truncation ? near : -p.truncation;
            u32 weight = weight_of(p, inverse[i]);
            i32 measured = nearest_integer(near * p.scale), before = (i32)(state[i] << 16) >> 16;
            u32 fused;
            if (__any_sync(FULL_MASK, is_touched[i] && before != measured)) {
                fused = fuse(state[i], measured, weight, p.max_weight);
            } else {
                u32 sum = (state[i] >> 16) + weight;
                fused = (state[i] & 0xffff) | (sum < p.max_weight ? sum : p.max_weight) << 16;
            }
            if (is_touched[i] && fused != state[i]) (p.state + rows[i / 4])[8 * (i % 4)] = fused;
            if (COLOR && is_touched[i] && distance[i] <= p.truncation) {
                fuse_color(p.color + (rows[i / 4] + 8 * (i % 4)) * 4, frame.rgb + (u64)pixel[i] * 3, weight, p.max_weight);
            }
        }
    }
}

// Defines a kernel that fuses a frame into the states and, if `color`, into the colours.
#define TSDF_KERNEL(name, color, depths, along_ray)                                                                    \
    extern "C" __global__ void __launch_bounds__(TSDF_BLOCK) name(const __grid_constant__ TsdfParams p) {              \
        wait_for_previous();                                                                                           \
        update<color, depths, along_ray>(p);                                                                           \
    }
TSDF_KERNEL(tsdf_raw, false, RAW, false)
TSDF_KERNEL(tsdf_raw_ray, false, RAW, true)
TSDF_KERNEL(tsdf_metres, false, METRES, false)
TSDF_KERNEL(tsdf_metres_ray, false, METRES, true)
TSDF_KERNEL(tsdf_raw_color, true, RAW, false)
TSDF_KERNEL(tsdf_raw_ray_color, true, RAW, true)
TSDF_KERNEL(tsdf_metres_color, true, METRES, false)
TSDF_KERNEL(tsdf_metres_ray_color, true, METRES, true)

// Forgets the cells that entered the window. A thread takes a cell.
extern "C" __global__ void __launch_bounds__(TSDF_BLOCK) tsdf_clear(const __grid_constant__ ClearParams p) {
    wait_for_previous();
    u64 cell = (u64)blockIdx.x * TSDF_BLOCK + threadIdx.x, cells = (u64)p.shape[0] * p.shape[1] * p.shape[2];
    if (cell >= cells) return;
    const u32 slot[3] = {(u32)(cell / p.shape[2] / p.shape[1]), (u32)(cell / p.shape[2] % p.shape[1]), (u32)(cell % p.shape[2])};
    bool is_new = false;
    for (u32 axis = 0; axis < 3; axis++) {
        i32 place = (i32)place_of(p, axis, slot[axis]), entered = p.entered[axis];
        is_new |= entered > 0 ? place >= (i32)p.shape[axis] - entered : place < -entered;
    }
    if (!is_new) return;
    p.state[cell] = 0;
    if (p.color) {
        for (u32 i = 0; i < 4; i++) p.color[cell * 4 + i] = 0;
    }
}
