"""Collects the observations of robocache-fuse into one file of arrays: `collect.py FILE.npz`.

values [N, T, D], timestamps_ns [N, T], valid [N, T, M], age_ns [N, T, M], epoch [N], modalities [M], offsets [M + 1].
"""

import pathlib
import sys

import numpy as np
from dora import Node


def main() -> None:
    path, node = pathlib.Path(sys.argv[1]), Node()
    collected = {"values": [], "timestamps_ns": [], "valid": [], "age_ns": [], "epoch": []}
    for event in node:
        if event["type"] != "INPUT":
            continue
        metadata = event["metadata"]
        masks = (len(metadata["timestamps_ns"]), len(metadata["modalities"]))
        # The values are copied, since the array is in its sender's memory.
        collected["values"].append(event["value"].to_numpy().reshape(metadata["shape"]).copy())
        collected["timestamps_ns"].append(metadata["timestamps_ns"])
        collected["valid"].append(np.reshape(metadata["valid"], masks))
        collected["age_ns"].append(np.reshape(metadata["age_ns"], masks))
        collected["epoch"].append(metadata["epoch"])
    if not collected["values"]:
        sys.exit("collect: no observation came: the log of fuse says why")
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.stack(rows) for name, rows in collected.items()}
    np.savez(path, **arrays, modalities=metadata["modalities"], offsets=metadata["offsets"])
    node.log_info(f"{path}: {len(arrays['values'])} observations of {metadata['shape']}")
    if gaps := missing(arrays["timestamps_ns"][:, -1], arrays["epoch"]):
        node.log_warn(f"{gaps} times the step from one observation to the next is not the usual one: some were lost")


def missing(newest_ns: np.ndarray, epoch: np.ndarray) -> int:
    """Counts the gaps: pairs of consecutive observations of an epoch that are further apart in time than the closest pair."""
    steps = np.diff(newest_ns)[np.diff(epoch) == 0]
    return int((steps > steps.min()).sum()) if len(steps) else 0


if __name__ == "__main__":
    main()
