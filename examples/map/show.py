"""Prints a summary of each map that is published: its surfaces, and the free distance at one place.

If ROBOCACHE_PICTURE names a file, it also draws the last map into that file.
"""

import os

import numpy as np
import robocache as rc
from dora import Node

# A place between the box and the ball, and the height of a section through both, metres, in the frame of the table.
PLACE = (0.05, 0.0, 0.08)


def draw(tsdf: rc.Voxels, slice_: rc.Voxels, file: str) -> None:
    """Draws two pictures side by side into a file: a layer of the signed distances, and the distances of the slice."""
    import matplotlib

    matplotlib.rcParams.update({"svg.hashsalt": "robocache", "font.size": 9})
    from matplotlib import pyplot

    (left, lower, _), (x, y, _) = tsdf.origin_m, tsdf.grid_shape
    edges = (left, left + x * tsdf.voxel_size_m[0], lower, lower + y * tsdf.voxel_size_m[1])
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    layer = tsdf.dense()[0, :, :, cell_of(tsdf, PLACE)[2]]
    drawings = [
        (layer, "RdBu", f"tsdf: the layer {PLACE[2]} m above the table"),
        (slice_.dense()[0, :, :, 0], "viridis", "esdf_slice: distance to the nearest obstacle"),
    ]
    for axis, (values, colours, title) in zip(axes, drawings, strict=True):
        image = axis.imshow(values.T, origin="lower", extent=edges, cmap=colours, rasterized=True)
        figure.colorbar(image, ax=axis, label="m", shrink=0.8)
        axis.set(xlabel="x, m", title=title)
    axes[0].set(ylabel="y, m")
    figure.savefig(file, metadata={"Date": None})


def cell_of(grid: rc.Voxels, place: tuple[float, float, float]) -> tuple[int, ...]:
    """Returns the cell (x, y, z) of a grid that contains a point. The point is in metres, in the frame of the map."""
    return tuple(np.floor((np.array(place) - grid.origin_m) / grid.voxel_size_m).astype(int).tolist())


def main() -> None:
    node = Node()
    tsdf, slice_ = None, None
    for event in (event for event in node if event["type"] == "INPUT"):
        if event["id"] == "tsdf":
            tsdf = rc.Voxels.from_event(event)
            continue
        slice_ = rc.Voxels.from_event(event)
        if tsdf is None:
            continue
        surfaces = int((np.abs(tsdf.dense()[0]) < tsdf.voxel_size_m[0]).sum())
        x, y, _ = cell_of(slice_, PLACE)
        node.log_info(f"{surfaces} cells are next to a surface; between the box and the ball {slice_.dense()[0, x, y, 0]:.2f} m are free")
    if (file := os.environ.get("ROBOCACHE_PICTURE")) and tsdf is not None and slice_ is not None:
        draw(tsdf, slice_, file)


if __name__ == "__main__":
    main()
