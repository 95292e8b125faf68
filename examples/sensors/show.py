"""Prints the rate, age and validity of the messages that arrive, once a second."""

import time

import numpy as np
from dora import Node


class Second:
    """Rate, age and validity of the messages that arrived since the last printed line."""

    def __init__(self):
        self.began = time.monotonic()
        self.ages_ms, self.valid = [], []
        self.grids = self.cells = self.points = 0

    def fused(self, metadata: dict) -> None:
        self.names = metadata["modalities"]
        # The mask is [T, M], the newest row last.
        valid = np.reshape(metadata["valid"], (-1, len(self.names)))
        self.valid.append(valid[-1])
        self.ages_ms.append((time.time_ns() - metadata["timestamp_ns"]) / 1e6)

    def voxels(self, cells: int, metadata: dict) -> None:
        self.grids += 1
        self.cells = cells
        self.points = metadata["points_kept"]

    def line(self) -> str:
        line = f"{len(self.valid)} observations"
        if self.valid:
            share = zip(self.names, 100 * np.mean(self.valid, axis=0), strict=True)
            line += f", {np.median(self.ages_ms):.0f} ms old, valid " + ", ".join(f"{name} {part:.0f} %" for name, part in share)
        return line + f"; {self.grids} grids" + (f", {self.cells} cells of {self.points} points" if self.grids else "")


def main() -> None:
    node = Node()
    second = Second()
    for event in node:
        if event["type"] == "INPUT" and event["id"] == "fused":
            second.fused(event["metadata"])
        elif event["type"] == "INPUT":
            second.voxels(len(event["value"]), event["metadata"])
        if time.monotonic() - second.began >= 1.0:
            node.log_info(second.line())
            second = Second()


if __name__ == "__main__":
    main()
