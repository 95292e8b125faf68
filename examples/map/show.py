"""Prints what the map knows, each time that it is published.

If ROBOCACHE_PICTURE names a file, it also draws the last map into that file.
"""

import os

import numpy as np
import robocache as rc
from dora import Node


def draw(percent: np.ndarray, distance: np.ndarray, grid: rc.Voxels, file: str) -> None:
    """Draws a layer of the occupancy [X, Y] and the distances [X, Y] of the slice into a file."""
    import matplotlib

    matplotlib.rcParams.update({"svg.hashsalt": "robocache", "font.size": 9})
    from matplotlib import pyplot

    (left, lower, _), (x, y, _) = grid.origin_m, grid.grid_shape
    edges = (left, left + x * grid.voxel_size_m[0], lower, lower + y * grid.voxel_size_m[1])
    figure, (cells, slice_) = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained", sharey=True)
    # Cells that are not known stay white.
    known = np.ma.masked_less(percent, 0)
    figure.colorbar(cells.imshow(known.T, origin="lower", extent=edges, cmap="Greys", vmin=0, vmax=100, rasterized=True), ax=cells, label="%")
    cells.set(xlabel="x, m", ylabel="y, m", title="occupancy: the layer of the lidar")
    figure.colorbar(slice_.imshow(distance.T, origin="lower", extent=edges, cmap="viridis", rasterized=True), ax=slice_, label="m")
    slice_.set(xlabel="x, m", title="esdf_slice: distance to the nearest obstacle")
    figure.savefig(file, metadata={"Date": None})


def cell_of(grid: rc.Voxels, x: float, y: float) -> tuple[int, int]:
    """Returns the cell of a place, metres, in the frame of the map."""
    place = np.floor((np.array([x, y]) - grid.origin_m[:2]) / grid.voxel_size_m[:2])
    return int(place[0]), int(place[1])


def main() -> None:
    node = Node()
    percent, distance, grid = None, None, None
    for event in (event for event in node if event["type"] == "INPUT"):
        grid = rc.Voxels.from_event(event)
        if event["id"] == "occupancy":
            percent = grid.dense()[0]
            continue
        # The lidar is at the origin of the map's frame.
        distance = grid.dense()[0, :, :, 0]
        if percent is not None:
            free, occupied = int(((percent >= 0) & (percent < 50)).sum()), int((percent > 50).sum())
            nearest = distance[cell_of(grid, 0.0, 0.0)]
            node.log_info(f"{free} cells are free, {occupied} occupied; the nearest obstacle is {nearest:.2f} m from the lidar")
    if (file := os.environ.get("ROBOCACHE_PICTURE")) and percent is not None and distance is not None:
        draw(percent[:, :, percent.shape[2] // 2], distance, grid, file)


if __name__ == "__main__":
    main()
