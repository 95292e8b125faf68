//! Point clouds to voxel grids.
