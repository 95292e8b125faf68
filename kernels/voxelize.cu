// Point clouds to voxel grids. The arithmetic is that of crates/ops/src/voxelize/mod.rs, bit for bit: integers are summed and
// compared, so that the order of the points is of no consequence.
//
// A grid is a bitmap, cell i being bit i % 32 of word i / 32, padded to whole superblocks. There are two states, of
// which a grid uses one while the other, the grid's before, is cleared. The kernels of one grid, in order:
//
// | layout | kernels |
// |---|---|
// | bits | voxelize_points |
// | dense occupancy, small | voxelize_cells, which needs no bitmap but two outputs in turn |
// | dense occupancy | voxelize_points, voxelize_sectors |
// | coo | voxelize_points, (batches: voxelize_rows,) voxelize_rank, voxelize_sums, voxelize_features |
// | dense | the same, and voxelize_scatter |
//
// Which cells are occupied is found by those of voxelize_cells.cuh, what is in them by those of voxelize_rows.cuh.
#include "voxelize_rows.cuh"
