// Finds the occupied cells of points: as bits, as the cells of the points, and as a dense occupancy.
#pragma once
#include "cloud.cuh"

constexpr u32 BLOCK = 256;
// Threads of a block in the kernels that read points first: fewer blocks make fewer atomics on the counters.
constexpr u32 POINT_BLOCK = 512;
constexpr u32 ALL_ONES = 0xffffffff;

// Number of copies of a grid's counters, which the host adds up: atomics on neighbouring words wait for each other.
constexpr u32 COUNTER_SLOTS = 8;
// The most superblocks of a grid.
constexpr u32 MAX_SUPERBLOCKS = 1024;

// The points whose cells are saved: none, all, or only the first point in a group of neighbouring cells.
enum Save : u32 { SAVE_NONE, SAVE_ALL, SAVE_FIRST };

struct VoxelizePointsParams {
    Cloud cloud;
    u32 *words;
    // Number of occupied cells of each superblock. Null: not counted.
    u32 *counts;
    // The saved cell of each point; NO_CELL if it is not saved.
    u32 *cells;
    // COUNTER_SLOTS times 4 for each cloud: points of each Fate but NO_POINT, and points past max_voxels.
    u64 *counters;
    u32 clearing_blocks;
    u32 words_per_grid;
    u32 superblocks;
    // Binary logarithm of the words of a superblock.
    u32 superblock_shift;
    u32 save;
    // SAVE_FIRST: mask of a group of cells, shifted to bit 0: 0x1, 0xff or 0xffff.
    u32 group;
    // The first `clearing_blocks` blocks of each row of blocks clear `clear_quads` quads here, ...
    Quad *clear;
    u64 clear_quads;
    // ... and the words of `old_cells` in the bitmap of the grid before. Null: no words.
    u32 *old_words;
    const u32 *old_cells;
    const u32 *old_starts;
    u32 old_points;
};

// Clears `clear_quads`, and the bits of the grid before. Called by the first `clearing_blocks` blocks.
__device__ __forceinline__ void clear(const VoxelizePointsParams &p) {
    u32 step = p.clearing_blocks * POINT_BLOCK;
    u32 thread = blockIdx.x * POINT_BLOCK + threadIdx.x;
    for (u64 i = (u64)blockIdx.y * step + thread; i < p.clear_quads; i += (u64)step * gridDim.y) {
        p.clear[i] = Quad{0, 0, 0, 0};
    }
    if (!p.old_words) return;
    u32 *words = p.old_words + (u64)blockIdx.y * p.words_per_grid;
    Range old = range_of(p.old_starts, p.old_points, blockIdx.y);
    for (u32 i = old.first + thread; i < old.end; i += step) {
        u32 cell = p.old_cells[i];
        // NO_CELL may clear the last word of a bitmap of 2^32 cells, which is empty or must be cleared anyway.
        if (cell / 32 < p.words_per_grid) words[cell / 32] = 0;
    }
}

// Numbers of a block's points with each fate. `clear` sets them to 0. `add` counts the points of a warp, all of whose
// lanes call it.
struct Tally {
    u32 fates[3];

    __device__ __forceinline__ void clear() {
        if (threadIdx.x < 3) fates[threadIdx.x] = 0;
    }

    __device__ __forceinline__ void add(Fate fate) {
        u32 counts[3];
        for (u32 each = 0; each < 3; each++) counts[each] = __popc(__ballot_sync(ALL_ONES, fate == each));
        u32 lane = threadIdx.x % 32;
        u32 count = lane == 0 ? counts[0] : lane == 1 ? counts[1] : counts[2];
        if (lane < 3 && count) atomicAdd(&fates[lane], count);
    }

    // Adds the numbers to the grid's counters, after a barrier that follows the last `add`.
    __device__ __forceinline__ void add_to(u64 *counters) const {
        if (threadIdx.x >= 3 || !fates[threadIdx.x]) return;
        u32 slot = blockIdx.y * COUNTER_SLOTS + blockIdx.x % COUNTER_SLOTS;
        atomicAdd(counters + slot * 4 + threadIdx.x, (u64)fates[threadIdx.x]);
    }
};

// The point of a thread, if it has one. A block takes POINT_BLOCK points of cloud blockIdx.y.
struct OwnPoint {
    u32 i;
    bool is_point;
    Point point;
};

// Reads the point of this thread. `block` is the index of the block among those that take points.
template <Form FORM> __device__ __forceinline__ OwnPoint point_of_thread(const Cloud &cloud, u32 block) {
    Range range = range_of(cloud.starts, cloud.points, blockIdx.y);
    OwnPoint own;
    own.i = range.first + block * POINT_BLOCK + threadIdx.x;
    own.is_point = own.i < range.end;
    if (own.is_point) own.point = read_point<FORM>(cloud, own.i);
    return own;
}

// Sets the bits of the cells of a warp. Consecutive points are often in one word of the bitmap: the first of them sets
// the bits of all. Adds bits that were not set before to `counts`, the block's counts by superblock, unless these are
// null. For SAVE_FIRST, returns the word before.
__device__ __forceinline__ u32 set_bits(const VoxelizePointsParams &p, u32 *counts, bool is_kept_point, u32 cell) {
    u32 lane = threadIdx.x % 32;
    u32 word = is_kept_point ? cell / 32 : NO_CELL, bits = is_kept_point ? 1u << (cell % 32) : 0;
    u32 left = __shfl_up_sync(ALL_ONES, word, 1);
    bool is_first = lane == 0 || left != word;
    u32 first_lanes = __ballot_sync(ALL_ONES, is_first);
    if (first_lanes != ALL_ONES) {
        // `end` is the lane after the last point in this word.
        u32 after = first_lanes & ~((2u << lane) - 1), end = after ? __ffs(after) - 1 : 32;
        for (u32 step = 1; step < 32; step <<= 1) {
            u32 from_right = __shfl_down_sync(ALL_ONES, bits, step);
            if (lane + step < end) bits |= from_right;
        }
    }
    is_first = is_first && is_kept_point;
    u32 *address = p.words + (u64)blockIdx.y * p.words_per_grid + word;
    if (!counts && p.save != SAVE_FIRST) {
        if (is_first) atomicOr(address, bits);
        return 0;
    }
    u32 old_word = is_first ? atomicOr(address, bits) : 0;
    u32 added = __popc(bits & ~old_word);
    if (counts && is_first && added) atomicAdd(&counts[word >> p.superblock_shift], added);
    if (p.save != SAVE_FIRST) return 0;
    return __shfl_sync(ALL_ONES, old_word, 31 - __clz(first_lanes & ((2u << lane) - 1)));
}

// Finds the cells of points, as the first pass of `CpuVoxelizer`: sets a bit for each cell, counts the points by their
// fate, and saves their cells. A block takes POINT_BLOCK points of cloud blockIdx.y; the first blocks clear the other
// state.
template <Form FORM> __device__ __forceinline__ void mark_cells(const VoxelizePointsParams &p) {
    if (blockIdx.x < p.clearing_blocks) return clear(p);
    __shared__ Tally tally;
    // Counts are summed in the block first: many cells of a cloud are in few superblocks, whose atomics would wait for
    // each other.
    __shared__ u32 counts[MAX_SUPERBLOCKS];
    tally.clear();
    if (p.counts) {
        for (u32 i = threadIdx.x; i < p.superblocks; i += POINT_BLOCK) counts[i] = 0;
    }
    OwnPoint own = point_of_thread<FORM>(p.cloud, blockIdx.x - p.clearing_blocks);
    __syncthreads();
    u32 cell = NO_CELL;
    Fate fate = own.is_point ? locate(p.cloud, transform_point(p.cloud, own.point), cell) : NO_POINT;
    u32 before = set_bits(p, p.counts ? counts : nullptr, fate == KEPT, cell);
    u32 saved = fate == KEPT ? cell : NO_CELL;
    if (p.save == SAVE_FIRST) {
        // A group's cell may be saved more than once, which only costs time.
        u32 size = p.group == 0xffff ? 16 : p.group == 0xff ? 8 : 1;
        u32 left = __shfl_up_sync(ALL_ONES, saved, 1);
        bool is_first = threadIdx.x % 32 == 0 || left == NO_CELL || left / size != cell / size;
        if (!is_first || before & p.group << (cell % 32 & ~(size - 1))) saved = NO_CELL;
    }
    if (p.save != SAVE_NONE && own.is_point) p.cells[own.i] = saved;
    tally.add(fate);
    __syncthreads();
    tally.add_to(p.counters);
    if (!p.counts) return;
    for (u32 i = threadIdx.x; i < p.superblocks; i += POINT_BLOCK) {
        if (counts[i]) atomicAdd(p.counts + blockIdx.y * p.superblocks + i, counts[i]);
    }
}

KERNEL_OF_FORM(voxelize_points, VoxelizePointsParams, POINT_BLOCK, mark_cells, ANY)
KERNEL_OF_FORM(voxelize_points_packed3, VoxelizePointsParams, POINT_BLOCK, mark_cells, PACKED3)
KERNEL_OF_FORM(voxelize_points_packed4, VoxelizePointsParams, POINT_BLOCK, mark_cells, PACKED4)

struct VoxelizeCellsParams {
    Cloud cloud;
    u8 *out;
    // Saved cells: one in each 32 bytes that have a cell, or if `is_split` each cell. Some are saved more than once.
    u32 *cells;
    u64 *counters;
    // Number of elements of one grid.
    u64 out_elements;
    // Number of the first blocks of each row of blocks, which clear the cells of the grid before and `clear_quads`.
    u32 clearing_blocks;
    // The bits of 1.0, and the bytes of an element, 2 or 4.
    u32 one;
    u32 element_bytes;
    u32 old_points;
    u8 *old_out;
    const u32 *old_cells;
    const u32 *old_starts;
    Quad *clear;
    u64 clear_quads;
    // 1 if 32 bytes may belong to two grids, so that cells are cleared one by one.
    u32 is_split;
    u32 unused;
};

// Writes the bits `value` to element i, of 2 or 4 bytes.
__device__ __forceinline__ void store(u8 *out, u64 i, u32 element_bytes, u32 value) {
    if (element_bytes == 4) {
        ((u32 *)out)[i] = value;
    } else {
        ((u16 *)out)[i] = (u16)value;
    }
}

// Clears the cells of the grid before. Two threads clear the whole 32 bytes around a cell, so that the memory need not
// read the rest of these bytes first.
__device__ __forceinline__ void clear_cells(const VoxelizeCellsParams &p) {
    u64 base = blockIdx.y * p.out_elements;
    u32 thread = blockIdx.x * POINT_BLOCK + threadIdx.x, step = p.clearing_blocks * POINT_BLOCK;
    u32 cells_per_quad = 16 / p.element_bytes;
    Range old = range_of(p.old_starts, p.old_points, blockIdx.y);
    for (u32 i = old.first + thread / 2; i < old.end; i += step) {
        // Both loads are in flight before the first is waited for.
        u32 other = i + step / 2;
        u32 cells[2] = {p.old_cells[i], other < old.end ? p.old_cells[other] : NO_CELL};
        for (u32 k = 0; k < 2; k++) {
            u32 cell = cells[k];
            if (cell == NO_CELL) continue;
            if (p.is_split) {
                store(p.old_out, base + cell, p.element_bytes, 0);
            } else {
                cell = (cell & ~(2 * cells_per_quad - 1)) + thread % 2 * cells_per_quad;
                *(Quad *)(p.old_out + (base + cell) * p.element_bytes) = Quad{0, 0, 0, 0};
            }
        }
    }
    for (u64 i = (u64)blockIdx.y * step + thread; i < p.clear_quads; i += (u64)step * gridDim.y) {
        p.clear[i] = Quad{0, 0, 0, 0};
    }
}

// Writes the dense occupancy as `CpuVoxelizer::write_dense`, in one launch. Of two outputs, one is written while the
// grid before is cleared from the other. A block takes POINT_BLOCK points of cloud blockIdx.y.
template <Form FORM> __device__ __forceinline__ void write_occupancy(const VoxelizeCellsParams &p) {
    if (blockIdx.x < p.clearing_blocks) return clear_cells(p);
    __shared__ Tally tally;
    tally.clear();
    OwnPoint own = point_of_thread<FORM>(p.cloud, blockIdx.x - p.clearing_blocks);
    __syncthreads();
    u32 cell = NO_CELL;
    Fate fate = own.is_point ? locate(p.cloud, transform_point(p.cloud, own.point), cell) : NO_POINT;
    if (fate != KEPT) cell = NO_CELL;
    u32 left = __shfl_up_sync(ALL_ONES, cell, 1);
    if (threadIdx.x % 32 == 0) left = NO_CELL;
    if (cell != NO_CELL && cell != left) store(p.out, blockIdx.y * p.out_elements + cell, p.element_bytes, p.one);
    u32 size = p.is_split ? 1 : 32 / p.element_bytes;
    if (own.is_point) p.cells[own.i] = left != NO_CELL && left / size == cell / size ? NO_CELL : cell;
    tally.add(fate);
    __syncthreads();
    tally.add_to(p.counters);
}

KERNEL_OF_FORM(voxelize_cells, VoxelizeCellsParams, POINT_BLOCK, write_occupancy, ANY)
KERNEL_OF_FORM(voxelize_cells_packed3, VoxelizeCellsParams, POINT_BLOCK, write_occupancy, PACKED3)

// Expands the bits from bit 0 on to 16 bytes of a dense occupancy.
__device__ __forceinline__ Quad expand(u32 bits, u32 one, u32 element_bytes) {
    u32 high = one << 16;
    if (element_bytes == 4) {
        return Quad{bits & 1 ? one : 0, bits & 2 ? one : 0, bits & 4 ? one : 0, bits & 8 ? one : 0};
    }
    return Quad{
        (bits & 1 ? one : 0) | (bits & 2 ? high : 0),
        (bits & 4 ? one : 0) | (bits & 8 ? high : 0),
        (bits & 16 ? one : 0) | (bits & 32 ? high : 0),
        (bits & 64 ? one : 0) | (bits & 128 ? high : 0),
    };
}

struct VoxelizeSectorsParams {
    const u32 *words;
    // The saved cells of this grid and of the grid before.
    const u32 *cells;
    const u32 *starts;
    const u32 *old_cells;
    const u32 *old_starts;
    u8 *out;
    // Number of elements of one grid.
    u64 out_elements;
    u32 points;
    u32 old_points;
    u32 words_per_grid;
    // The bits of 1.0, and the bytes of an element, 2 or 4.
    u32 one;
    u32 element_bytes;
    // 1 if 32 bytes may belong to two grids, so that cells are written one by one.
    u32 is_split;
};

// Writes the dense occupancy of grid blockIdx.y as `CpuVoxelizer::write_dense`, over the grid before. Two threads write
// the whole 32 bytes around each cell of either grid, so that the memory need not read the rest of these bytes first.
// The values depend on this grid alone, so the order of the writes does not matter.
extern "C" __global__ void __launch_bounds__(BLOCK) voxelize_sectors(const __grid_constant__ VoxelizeSectorsParams p) {
    wait_for_previous();
    Range range = range_of(p.starts, p.points, blockIdx.y);
    Range old = range_of(p.old_starts, p.old_points, blockIdx.y);
    u32 i = blockIdx.x * (BLOCK / 2) + threadIdx.x / 2, count = range.end - range.first;
    if (i >= count + (old.end - old.first)) return;
    u32 cell = i < count ? p.cells[range.first + i] : p.old_cells[old.first + (i - count)];
    if (cell == NO_CELL) return;
    // 4 or 8 cells are 16 bytes.
    u32 cells_per_quad = 16 / p.element_bytes;
    if (!p.is_split) cell = (cell & ~(2 * cells_per_quad - 1)) + threadIdx.x % 2 * cells_per_quad;
    u32 bits = p.words[(u64)blockIdx.y * p.words_per_grid + cell / 32] >> (cell % 32);
    u8 *out = p.out + (blockIdx.y * p.out_elements + cell) * p.element_bytes;
    if (p.is_split) {
        if (threadIdx.x % 2) return;
        store(out, 0, p.element_bytes, bits & 1 ? p.one : 0);
    } else {
        *(Quad *)out = expand(bits, p.one, p.element_bytes);
    }
}
