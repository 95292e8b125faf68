// Makes voxel grids from point clouds, bit for bit as crates/ops/src/voxelize. Integers are summed and compared, so that
// the order of the points does not matter.

// A grid is a bitmap, padded to whole superblocks: cell i is bit i % 32 of word i / 32. There are two states in turn: a
// grid uses one while the other, of the grid before, is cleared.

// The kernels of a grid that only finds the occupied cells are in voxelize_cells.cuh. Layout `bits`: voxelize_points.
// Dense occupancy: voxelize_points, voxelize_sectors. Small dense occupancy: voxelize_cells alone, without a bitmap,
// but with two outputs in turn.

// Kernels that compute the contents of cells are in voxelize_rows.cuh. Layout `coo`: voxelize_points, voxelize_rows in
// a batch, voxelize_rank, voxelize_sums, voxelize_features. Other dense grids: the same, with voxelize_scatter in place
// of voxelize_features.
#include "voxelize_rows.cuh"
