"""Prints once a second where the tool is and how hard it pushes along its own axis."""

import numpy as np
from dora import Node


def main() -> None:
    node = Node()
    for count, event in enumerate(event for event in node if event["type"] == "INPUT"):
        metadata = event["metadata"]
        # One row: x y z qx qy qz qw, and the force and torque.
        row = np.asarray(event["value"], dtype=float)
        if count % 50 == 0 and all(metadata["valid"]):
            x, y, z, qx, qy, qz, qw, *wrench = row
            axis = [2 * (qx * qz + qy * qw), 2 * (qy * qz - qx * qw), 1 - 2 * (qx * qx + qy * qy)]
            node.log_info(f"tool at {x:.3f} {y:.3f} {z:.3f} m, {wrench[2]:.2f} N along its axis {np.round(axis, 2).tolist()}")


if __name__ == "__main__":
    main()
