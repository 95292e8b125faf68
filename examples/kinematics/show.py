"""Prints the position of the tool and the force along its axis, once a second.

If ROBOCACHE_PICTURE names a file, it also draws the path of the tool into that file.
"""

import os

import numpy as np
from dora import Node


def axes(quaternions: np.ndarray) -> np.ndarray:
    """Returns the z axes [..., 3] of rotations given as quaternions x y z w [..., 4]."""
    x, y, z, w = np.moveaxis(quaternions, -1, 0)
    return np.stack([2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)], axis=-1)


def draw(rows: np.ndarray, file: str) -> None:
    """Draws the path of the tool, its axis twice a second, and the force along the axis, from fused rows at 50 Hz, into a file."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "robocache", "font.size": 9})
    from matplotlib import pyplot

    seconds, way, force = np.arange(len(rows)) / 50, rows[:, :3], rows[:, 9]
    figure = pyplot.figure(figsize=(9, 4), layout="constrained")
    space = figure.add_subplot(1, 2, 1, projection="3d")
    space.plot(*way.T, color="tab:blue", linewidth=1)
    space.quiver(*way[::25].T, *axes(rows[::25, 3:7]).T, length=0.08, color="tab:orange", linewidth=1)
    space.set(xlabel="x, m", ylabel="y, m", zlabel="z, m", title="arm_pose: the tool and its axis")
    space.set_aspect("equal")
    space.locator_params(nbins=4)
    time = figure.add_subplot(1, 2, 2)
    time.plot(seconds, force, color="tab:orange", linewidth=1)
    time.set(xlabel="s", ylabel="N", title="force: along the tool's axis, on the same grid")
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    node = Node()
    rows = []
    for count, event in enumerate(event for event in node if event["type"] == "INPUT"):
        metadata = event["metadata"]
        # The row has x y z qx qy qz qw, then force and torque.
        row = np.asarray(event["value"], dtype=float)
        is_valid = all(metadata["valid"])
        rows.append(row if is_valid else np.full_like(row, np.nan))
        if count % 50 == 0 and is_valid:
            (x, y, z), axis = row[:3], np.round(axes(row[3:7]), 2).tolist()
            node.log_info(f"tool at {x:.3f} {y:.3f} {z:.3f} m, {row[9]:.2f} N along its axis {axis}")
    if file := os.environ.get("ROBOCACHE_PICTURE"):
        draw(np.array(rows), file)


if __name__ == "__main__":
    main()
