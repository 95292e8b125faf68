"""Shows what goes through a dataflow in Rerun: observations, clouds, voxel grids, images, actions, diagnostics."""

__version__ = "0.1.0"
