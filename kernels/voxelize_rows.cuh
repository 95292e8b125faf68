// Rows of the occupied cells, in cell order: sums and extremes, and the channels that are computed from them.
#pragma once
#include "voxelize_cells.cuh"

// Threads of a block in voxelize_rank, which reads two words for each thread first.
constexpr u32 RANK_BLOCK = 512;

// Returns the sum of `value` over the THREADS threads of the block, to every thread.
template <u32 THREADS> __device__ __forceinline__ u32 block_sum(u32 value) {
    constexpr u32 WARPS = THREADS / 32;
    __shared__ u32 sums[WARPS];
    for (u32 step = 16; step; step >>= 1) value += __shfl_xor_sync(ALL_ONES, value, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    u32 total = 0;
    for (u32 warp = 0; warp < WARPS; warp++) total += sums[warp];
    return total;
}

// Returns the exclusive prefix sum of `value`: over the threads before this one. `total` becomes the sum over all
// THREADS threads.
template <u32 THREADS> __device__ __forceinline__ u32 block_exclusive_scan(u32 value, u32 &total) {
    constexpr u32 WARPS = THREADS / 32;
    __shared__ u32 sums[WARPS];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, inclusive = value;
    for (u32 step = 1; step < 32; step <<= 1) {
        u32 below = __shfl_up_sync(ALL_ONES, inclusive, step);
        if (lane >= step) inclusive += below;
    }
    __syncthreads();
    if (lane == 31) sums[warp] = inclusive;
    __syncthreads();
    u32 before = 0;
    total = 0;
    for (u32 i = 0; i < WARPS; i++) {
        if (i < warp) before += sums[i];
        total += sums[i];
    }
    return before + inclusive - value;
}

struct VoxelizeRowsParams {
    const u32 *counts;
    // rows[b] becomes the first row of grid b; rows[grids] is the number of rows.
    u32 *rows;
    u32 grids;
    u32 superblocks;
    u32 limit;
};

// Computes the first row of each grid of a batch, in one block.
extern "C" __global__ void __launch_bounds__(BLOCK) voxelize_rows(const __grid_constant__ VoxelizeRowsParams p) {
    wait_for_previous();
    u32 lane = threadIdx.x % 32;
    for (u32 grid = threadIdx.x / 32; grid < p.grids; grid += BLOCK / 32) {
        const u32 *counts = p.counts + (u64)grid * p.superblocks;
        u64 cells = 0;
        for (u32 i = lane; i < p.superblocks; i += 32) cells += counts[i];
        for (u32 step = 16; step; step >>= 1) cells += __shfl_xor_sync(ALL_ONES, cells, step);
        if (lane == 0) p.rows[grid + 1] = cells < p.limit ? (u32)cells : p.limit;
    }
    __syncthreads();
    u32 before = 0;
    for (u32 from = 0; from < p.grids; from += BLOCK) {
        u32 grid = from + threadIdx.x, total;
        u32 rows = grid < p.grids ? p.rows[grid + 1] : 0;
        u32 prefix = block_exclusive_scan<BLOCK>(rows, total);
        if (grid < p.grids) p.rows[grid + 1] = before + prefix + rows;
        before += total;
    }
    if (threadIdx.x == 0) p.rows[0] = 0;
}

struct VoxelizeRankParams {
    const u32 *words;
    const u32 *counts;
    // For each 4 words of a superblock with an occupied cell: the number of occupied cells before them in the grid.
    u32 *ranks;
    u64 *sums;
    i32 *keys;
    // The cell of each row. Null if voxelize_sums writes it, which need not search for the cells.
    u32 *order;
    // The first row of each grid, from voxelize_rows. For a single grid, rows[1] becomes its number of rows.
    u32 *rows;
    u64 key_rows;
    // Bit e is set if extreme e is the greatest value, and not the least.
    u64 greatest;
    u32 words_per_grid;
    u32 superblocks;
    u32 superblock_shift;
    u32 limit;
    // Numbers of sums and extremes of a cell.
    u32 stride;
    u32 extremes;
    // As in VoxelizeSumsParams, and its number of planes, each of `key_rows`.
    u64 *exceptions;
    u64 planes;
};

// Returns the place of the n-th bit that is set, n from 0: the `select` of a bitmap, the inverse of its `rank`.
__device__ __forceinline__ u32 select_bit(u32 word, u32 n) {
    u32 place = 0;
    for (u32 step = 16; step; step >>= 1) {
        u32 below = __popc(word >> place & ((1u << step) - 1));
        if (n < below) continue;
        n -= below;
        place += step;
    }
    return place;
}

// Ranks the occupied cells in cell order as `kernels::rank`, writes them, and clears the sums and extremes of the rows.
// A block ranks superblock blockIdx.x of grid blockIdx.y. Each block clears equally many rows, since superblocks differ
// much in their cells. So do words: a thread counts the cells of two words, then finds cells by their rank.
extern "C" __global__ void __launch_bounds__(RANK_BLOCK) voxelize_rank(const __grid_constant__ VoxelizeRankParams p) {
    wait_for_previous();
    __shared__ u32 ranks[RANK_BLOCK];
    __shared__ Pair pairs[RANK_BLOCK];
    const u32 *counts = p.counts + (u64)blockIdx.y * p.superblocks;
    u32 superblock = blockIdx.x << p.superblock_shift;
    const Pair *words = (const Pair *)(p.words + (u64)blockIdx.y * p.words_per_grid + superblock);
    Pair pair = words[threadIdx.x];
    u32 own_cells = counts[blockIdx.x], before = 0, remaining = 0;
    for (u32 i = threadIdx.x; i < p.superblocks; i += RANK_BLOCK) {
        u32 count = counts[i];
        before += i < blockIdx.x ? count : 0;
        remaining += i < blockIdx.x ? 0 : count;
    }
    before = block_sum<RANK_BLOCK>(before);
    u32 rows = before + block_sum<RANK_BLOCK>(remaining);
    if (rows > p.limit) rows = p.limit;
    bool is_single = gridDim.y == 1;
    if (is_single && blockIdx.x == 0 && threadIdx.x == 0) p.rows[1] = rows;

    u32 base = is_single ? 0 : p.rows[blockIdx.y];
    u32 share = (rows + p.superblocks - 1) / p.superblocks, first = share * blockIdx.x;
    u32 count = first < rows ? first + share < rows ? share : rows - first : 0;
    u64 *sums = p.sums + (u64)(base + first) * p.stride;
    for (u32 i = threadIdx.x; i < count * p.stride; i += RANK_BLOCK) sums[i] = 0;
    for (u32 extreme = 0; extreme < p.extremes; extreme++) {
        i32 *keys = p.keys + extreme * p.key_rows + base + first;
        i32 identity = p.greatest >> extreme & 1 ? (i32)0x80000000 : 0x7fffffff;
        for (u32 i = threadIdx.x; i < count; i += RANK_BLOCK) keys[i] = identity;
    }
    for (u32 plane = 0; plane < p.planes; plane++) {
        u64 *exceptions = p.exceptions + plane * p.key_rows + base + first;
        for (u32 i = threadIdx.x; i < count; i += RANK_BLOCK) exceptions[i] = 0;
    }
    if (!own_cells) return;
    for (u32 from = 0; from < 1u << (p.superblock_shift - 1); from += RANK_BLOCK) {
        u32 at = from + threadIdx.x, total;
        if (from) pair = words[at];
        u32 rank = before + block_exclusive_scan<RANK_BLOCK>(__popc(pair.x) + __popc(pair.y), total);
        if (at % 2 == 0) p.ranks[((u64)blockIdx.y * p.words_per_grid + superblock) / 4 + at / 2] = rank;
        ranks[threadIdx.x] = rank;
        pairs[threadIdx.x] = pair;
        __syncthreads();
        u32 end = !p.order ? 0 : before + total < p.limit ? before + total : p.limit;
        for (u32 wanted_rank = before + threadIdx.x; wanted_rank < end; wanted_rank += RANK_BLOCK) {
            u32 place = 0;
            for (u32 step = RANK_BLOCK / 2; step; step >>= 1) {
                if (ranks[place + step] <= wanted_rank) place += step;
            }
            u32 bit = wanted_rank - ranks[place], word = pairs[place].x, below = __popc(word);
            u32 cell = (superblock + 2 * (from + place)) * 32;
            if (bit >= below) {
                bit -= below;
                word = pairs[place].y;
                cell += 32;
            }
            cell += select_bit(word, bit);
            p.order[base + wanted_rank] = cell;
        }
        before += total;
    }
}

constexpr u32 MAX_SUMS = MAX_FIELDS + 3;
constexpr u32 MAX_EXTREMES = 2 * MAX_SUMS;

struct VoxelizeSumsParams {
    Cloud cloud;
    const u32 *cells;
    const u32 *words;
    const u32 *ranks;
    u64 *sums;
    i32 *keys;
    u32 *order;
    // The first row of each grid; null for a single grid.
    const u32 *rows;
    u64 *counters;
    u64 key_rows;
    u64 greatest;
    u32 words_per_grid;
    u32 limit;
    // Number of a cell's sums, with the count as the first; 0 if no channel needs the count or a sum.
    u32 stride;
    u32 extremes;
    // 1 if the grid has 2^32 cells.
    u32 is_whole;
    // Number of sums of coordinates. They come first.
    u32 axis_sums;
    // Two planes for each sum of a field: the sums of large values' bits above LOW_BITS, and the numbers of unusable
    // values. Read only if the upper half of the count is not 0.
    u64 *exceptions;
    // For each field of each grid: the number of unusable values.
    u64 *unusable;
    // Factors for values before they are rounded: for each sum but the count, and for each field with a mean, else 0.
    double scales[MAX_SUMS];
    double field_scales[MAX_FIELDS];
    // Source of each sum but the count, and of each extreme: 0 to 2 is a coordinate, 3 or more a field.
    u8 sum_sources[MAX_SUMS + 1];
    u8 extreme_sources[MAX_EXTREMES + 2];
    u32 unused;
    Column fields[MAX_FIELDS];
};

// Finds the row of a cell in the grid, as `kernels::find`. A row of `limit` or more is past max_voxels.
__device__ __forceinline__ u32 row_of_cell(const VoxelizeSumsParams &p, u32 cell) {
    u64 group = (u64)blockIdx.y * (p.words_per_grid / 4) + cell / 128;
    Quad quad = ((const Quad *)p.words)[group];
    u32 rank = p.ranks[group], bit = cell % 128;
    // Counts the words below the cell's word, and the bits below the cell in its own word.
    u32 own = bit < 32 ? quad.x : bit < 64 ? quad.y : bit < 96 ? quad.z : quad.w;
    if (bit >= 32) rank += __popc(quad.x);
    if (bit >= 64) rank += __popc(quad.y);
    if (bit >= 96) rank += __popc(quad.z);
    return rank + __popc(own & ((1u << (bit % 32)) - 1));
}

// Counts the points of a warp that are past max_voxels.
__device__ __forceinline__ void count_over_limit(const VoxelizeSumsParams &p, bool is_over) {
    u32 over = __popc(__ballot_sync(ALL_ONES, is_over));
    if (over && threadIdx.x % 32 == 0) atomicAdd(p.counters + blockIdx.y * COUNTER_SLOTS * 4 + 3, (u64)over);
}

// Returns a bit for each field whose value at point i is not finite or beyond its bound.
__device__ __forceinline__ u32 unusable_fields(const VoxelizeSumsParams &p, u32 i) {
    u32 fields = 0;
    for (u32 field = 0; field < p.cloud.field_count; field++) {
        double scale = p.field_scales[field];
        bool is_usable = scale != 0.0 ? fabs(read_f64(p.fields[field], i) * scale) <= LARGE
                                      : is_finite(read_f32(p.fields[field], i));
        if (!is_usable) fields |= 1u << field;
    }
    return fields;
}

// Counts the unusable values of a warp.
__device__ __forceinline__ void count_unusable(const VoxelizeSumsParams &p, u32 fields) {
    for (u32 field = 0; field < p.cloud.field_count; field++) {
        u32 count = __popc(__ballot_sync(ALL_ONES, fields >> field & 1));
        if (count && threadIdx.x % 32 == 0) {
            atomicAdd(p.unusable + (u64)blockIdx.y * p.cloud.field_count + field, (u64)count);
        }
    }
}

// Adds a scaled value of a field to a sum of a row. Returns true if the sum can't take the value as it is.
__device__ __forceinline__ bool add_field(const VoxelizeSumsParams &p, u32 sum, u32 row, double value) {
    u64 *low = p.sums + (u64)row * p.stride + 1 + sum;
    if (fabs(value) <= SMALL) {
        atomicAdd(low, (u64)round_to_integer(value));
        return false;
    }
    u64 *high = p.exceptions + (u64)(sum - p.axis_sums) * 2 * p.key_rows + row;
    if (fabs(value) <= LARGE) {
        i64 integer = round_large(value);
        atomicAdd(high, (u64)(integer >> LOW_BITS));
        atomicAdd(low, (u64)integer & ((1ull << LOW_BITS) - 1));
    } else {
        atomicAdd(high + p.key_rows, 1ull);
    }
    return true;
}

// Adds each point to the sums and extremes of its cell, as `kernels::find`, `add_points`, `add_fixed` and
// `add_extreme`. Writes the cell of the row, too: all points of a cell write the same. The upper half of the count is
// the number of values that the sums could not take as they are. A thread takes a point of cloud blockIdx.y.
extern "C" __global__ void __launch_bounds__(BLOCK) voxelize_sums(const __grid_constant__ VoxelizeSumsParams p) {
    wait_for_previous();
    Range range = range_of(p.cloud.starts, p.cloud.points, blockIdx.y);
    u32 i = range.first + blockIdx.x * BLOCK + threadIdx.x;
    u32 cell = i < range.end ? p.cells[i] : NO_CELL;
    bool is_kept_point = i < range.end && is_kept<ANY>(p.cloud, p.is_whole, i, cell);
    u32 row = is_kept_point ? row_of_cell(p, cell) : 0;
    bool is_over = is_kept_point && row >= p.limit;
    count_over_limit(p, is_over);
    bool is_used = is_kept_point && !is_over;
    u32 unusable = is_used ? unusable_fields(p, i) : 0;
    if (__ballot_sync(ALL_ONES, unusable != 0)) count_unusable(p, unusable);
    if (!is_used) return;
    if (p.rows) row += p.rows[blockIdx.y];
    p.order[row] = cell;
    Point point = transform_point(p.cloud, read_point<ANY>(p.cloud, i));
    u64 *sums = p.sums + (u64)row * p.stride;
    u64 count = 1;
    for (u32 sum = 0; sum + 1 < p.stride; sum++) {
        u32 source = p.sum_sources[sum];
        if (source < 3) {
            double value = source == 0 ? point.xyz[0] : source == 1 ? point.xyz[1] : point.xyz[2];
            atomicAdd(sums + 1 + sum, (u64)round_to_integer(value * p.scales[sum]));
        } else if (add_field(p, sum, row, read_f64(p.fields[source - 3], i) * p.scales[sum])) {
            count += 1ull << 32;
        }
    }
    if (p.stride) atomicAdd(sums, count);
    for (u32 extreme = 0; extreme < p.extremes; extreme++) {
        u32 source = p.extreme_sources[extreme];
        if (source >= 3 && unusable >> (source - 3) & 1) continue;
        float value = source == 0   ? point.xyz[0]
                      : source == 1 ? point.xyz[1]
                      : source == 2 ? point.xyz[2]
                                    : read_f32(p.fields[source - 3], i);
        i32 key = order_key((i32)__float_as_uint(value));
        i32 *best = p.keys + extreme * p.key_rows + row;
        if (p.greatest >> extreme & 1) {
            atomicMax(best, key);
        } else {
            atomicMin(best, key);
        }
    }
}

// Exchanges a value with the lane whose number differs in `bit`: a shuffle of 64 bits.
__device__ __forceinline__ u64 shuffle_xor(u64 value, u32 bit) {
    u32 low = __shfl_xor_sync(ALL_ONES, (u32)value, bit), high = __shfl_xor_sync(ALL_ONES, (u32)(value >> 32), bit);
    return (u64)high << 32 | low;
}

// Transposes the 4 x 4 values of 4 neighbouring lanes.
__device__ __forceinline__ void transpose(u64 values[4]) {
    for (u32 bit = 1; bit < 4; bit <<= 1) {
        bool upper = threadIdx.x & bit;
        for (u32 i = 0; i < 4; i++) {
            if (i & bit) continue;
            u64 other = shuffle_xor(upper ? values[i] : values[i | bit], bit);
            if (upper) {
                values[i] = other;
            } else {
                values[i | bit] = other;
            }
        }
    }
}

// Does what voxelize_sums does, for the count and the sums of x, y and z alone. The 4 sums of a cell are 32 bytes,
// which 4 lanes add to in one request.
template <Form FORM> __device__ __forceinline__ void add_sums_xyz(const VoxelizeSumsParams &p) {
    Range range = range_of(p.cloud.starts, p.cloud.points, blockIdx.y);
    u32 i = range.first + blockIdx.x * BLOCK + threadIdx.x, cell = NO_CELL;
    bool is_point = i < range.end;
    Point point = {{0.0f, 0.0f, 0.0f}};
    if (is_point) {
        cell = p.cells[i];
        point = read_point<FORM>(p.cloud, i);
    }
    bool is_kept_point = is_point && is_kept<FORM>(p.cloud, p.is_whole, i, cell);
    u64 values[4] = {1, 0, 0, 0};
    u32 row = NO_CELL;
    bool is_over = false;
    if (is_kept_point) {
        u32 rank = row_of_cell(p, cell);
        is_over = rank >= p.limit;
        if (!is_over) row = rank + (p.rows ? p.rows[blockIdx.y] : 0);
        point = transform_point(p.cloud, point);
        for (u32 axis = 0; axis < 3; axis++) {
            values[1 + axis] = (u64)round_to_integer((double)point.xyz[axis] * p.scales[axis]);
        }
    }
    if (p.limit != ALL_ONES) count_over_limit(p, is_over);
    u32 left = __shfl_up_sync(ALL_ONES, row, 1);
    // Consecutive points are often in one cell, which the first of them writes.
    if (row != NO_CELL && (threadIdx.x % 32 == 0 || left != row)) p.order[row] = cell;
    transpose(values);
    u32 rows[4];
    for (u32 k = 0; k < 4; k++) rows[k] = __shfl_sync(ALL_ONES, row, (threadIdx.x & 28) + k);
    u64 sum = 0;
    for (u32 k = 0; k < 4; k++) {
        sum += values[k];
        if (k < 3 && rows[k + 1] == rows[k]) continue;
        if (rows[k] != NO_CELL) atomicAdd(p.sums + (u64)rows[k] * 4 + threadIdx.x % 4, sum);
        sum = 0;
    }
}

KERNEL_OF_FORM(voxelize_sums_xyz, VoxelizeSumsParams, BLOCK, add_sums_xyz, ANY)
KERNEL_OF_FORM(voxelize_sums_xyz_packed3, VoxelizeSumsParams, BLOCK, add_sums_xyz, PACKED3)
KERNEL_OF_FORM(voxelize_sums_xyz_packed4, VoxelizeSumsParams, BLOCK, add_sums_xyz, PACKED4)

// The way in which a channel is computed.
enum Output : u8 { OUTPUT_ONE, OUTPUT_COUNT, OUTPUT_MEAN, OUTPUT_EXTREME };

constexpr u32 MAX_CHANNELS = 2 + 3 * MAX_SUMS + 5;

struct Channels {
    const u64 *sums;
    const i32 *keys;
    // As in VoxelizeSumsParams.
    const u64 *exceptions;
    u64 key_rows;
    // 2^-s for each sum but the count, whose values were multiplied by 2^s.
    double units[MAX_SUMS];
    u32 stride;
    u32 count;
    u32 axis_sums;
    u32 unused;
    u8 outputs[MAX_CHANNELS];
    // For a mean the index of its sum, for an extreme the index of the extreme.
    u8 places[MAX_CHANNELS];
};

// Computes the mean of sum `place` over its values, as `kernels::means` and `kernels::means_of_usable`.
__device__ __forceinline__ float mean_of(const Channels &channels, const u64 *sums, u32 place, u32 row) {
    u32 count = (u32)sums[0];
    double sum = (double)(i64)sums[place];
    if (sums[0] >> 32 && place > channels.axis_sums) {
        const u64 *exceptions = channels.exceptions + (u64)(place - 1 - channels.axis_sums) * 2 * channels.key_rows + row;
        i64 low = (i64)sums[place], high = (i64)exceptions[0] + (low >> LOW_BITS);
        count -= (u32)exceptions[channels.key_rows];
        if (!count) return 0.0f;
        sum = (double)high * SMALL + (double)(low & ((1ll << LOW_BITS) - 1));
    }
    return (float)(sum / (double)count * channels.units[place - 1]);
}

// Computes an extreme as `kernels::extremes`. If no value was usable, its bits are still those of a NaN.
__device__ __forceinline__ float extreme_of(const Channels &channels, u32 place, u32 row) {
    float value = __uint_as_float((u32)order_key(channels.keys[place * channels.key_rows + row]));
    return is_finite(value) ? value : 0.0f;
}

// Computes a channel of a row's cell, as `Output::write` of crates/ops/src/voxelize/channel.rs.
__device__ __forceinline__ float value_of(const Channels &channels, u32 channel, u32 row) {
    u32 place = channels.places[channel];
    const u64 *sums = channels.sums + (u64)row * channels.stride;
    switch (channels.outputs[channel]) {
    case OUTPUT_ONE: return 1.0f;
    case OUTPUT_COUNT: return (float)(u32)sums[0];
    case OUTPUT_MEAN: return mean_of(channels, sums, place, row);
    default: return extreme_of(channels, place, row);
    }
}

struct VoxelizeFeaturesParams {
    Channels channels;
    float *out;
    // Coordinates x, y, z of each row's cell. Null: not wanted.
    i32 *coords;
    const u32 *order;
    // The number of rows.
    const u32 *rows;
    u32 ny;
    u32 nz;
};

// Writes the channels and the coordinates of each occupied cell, as `CpuVoxelizer::write_coo` and
// `kernels::coordinates`. A thread takes a channel of a row, or a coordinate.
extern "C" __global__ void __launch_bounds__(BLOCK) voxelize_features(const __grid_constant__ VoxelizeFeaturesParams p) {
    wait_for_previous();
    u64 features = (u64)*p.rows * p.channels.count, total = features + (p.coords ? (u64)*p.rows * 3 : 0);
    for (u64 i = (u64)blockIdx.x * BLOCK + threadIdx.x; i < total; i += (u64)gridDim.x * BLOCK) {
        bool is_feature = i < features;
        u64 at = is_feature ? i : i - features;
        u32 width = is_feature ? p.channels.count : 3;
        u32 row = at <= ALL_ONES ? (u32)at / width : (u32)(at / width), column = (u32)(at - (u64)row * width);
        if (is_feature) {
            p.out[at] = value_of(p.channels, column, row);
        } else {
            u32 cell = p.order[row], xy_cell = cell / p.nz;
            u32 value = column == 2 ? cell - xy_cell * p.nz : column == 0 ? xy_cell / p.ny : xy_cell % p.ny;
            p.coords[at] = (i32)value;
        }
    }
}

struct VoxelizeScatterParams {
    Channels channels;
    const u32 *words;
    // The cell of each row and the first row of each grid, of this launch's grids and of the grids before. Null for the
    // grids before: the output is clear.
    const u32 *order;
    const u32 *rows;
    const u32 *old_order;
    const u32 *old_rows;
    u8 *out;
    u64 cells;
    // For each grid: the number of values that the type can't hold.
    u64 *saturated;
    u32 words_per_grid;
    u32 dtype;
};

// Returns the greatest finite value of a type.
template <class T> __device__ __forceinline__ float largest_finite() { return __uint_as_float(0x7f7fffff); }
template <> __device__ __forceinline__ float largest_finite<f16>() { return 65504.0f; }
template <> __device__ __forceinline__ float largest_finite<bf16>() { return __uint_as_float(0x7f7f0000); }

// Returns the least value that a type rounds to an infinity: half a step past its greatest value.
template <class T> __device__ __forceinline__ float saturation_threshold() { return __uint_as_float(0x7f800000); }
template <> __device__ __forceinline__ float saturation_threshold<f16>() { return 65520.0f; }
template <> __device__ __forceinline__ float saturation_threshold<bf16>() { return __uint_as_float(0x7f7f8000); }

// Writes the channels of the occupied cells as `CpuVoxelizer::write_dense`, and 0 in cells that only the grid before
// occupied. Blocks of row y take the cells of grid y.
template <class T> __device__ __forceinline__ void scatter(const VoxelizeScatterParams &p) {
    T *out = (T *)p.out + blockIdx.y * p.cells * p.channels.count;
    const u32 *words = p.words + (u64)blockIdx.y * p.words_per_grid;
    u32 first = p.rows[blockIdx.y], count = p.rows[blockIdx.y + 1] - first;
    u32 first_old = p.old_rows ? p.old_rows[blockIdx.y] : 0;
    u32 end = p.old_rows ? p.old_rows[blockIdx.y + 1] - first_old + count : count;
    for (u32 i = blockIdx.x * BLOCK + threadIdx.x; i < end; i += gridDim.x * BLOCK) {
        u32 cell = i < count ? p.order[first + i] : p.old_order[first_old + (i - count)];
        if (i >= count && words[cell / 32] >> (cell % 32) & 1) continue;
        for (u32 channel = 0; channel < p.channels.count; channel++) {
            float value = i < count ? value_of(p.channels, channel, first + i) : 0.0f;
            if (fabsf(value) >= saturation_threshold<T>()) {
                atomicAdd(p.saturated + blockIdx.y, 1ull);
                value = value < 0.0f ? -largest_finite<T>() : largest_finite<T>();
            }
            out[channel * p.cells + cell] = from_f32<T>(value);
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) voxelize_scatter(const __grid_constant__ VoxelizeScatterParams p) {
    wait_for_previous();
    switch (p.dtype) {
    case FLOAT16: return scatter<f16>(p);
    case BFLOAT16: return scatter<bf16>(p);
    default: return scatter<float>(p);
    }
}
