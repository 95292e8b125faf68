"""The source of handoff.py: sends the inputs of the measured node at a steady rate, with the time of sending as the stamp."""

import sys
import time

import numpy as np
import pyarrow as pa
from dora import Node

kind, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
rng = np.random.default_rng(1)
cloud = pa.array(rng.uniform(-6.4, 6.4, (131072, 4)).astype(np.float32).reshape(-1))
samples = {name: pa.array(rng.normal(size=dim).astype(np.float32)) for name, dim in (("force", 6), ("proprio", 15), ("camera", 128))}
times, targets = np.arange(2048) * 1_000_000, np.sort(rng.integers(0, 2_000_000_000, 1024))


def lists(rows: np.ndarray, kind: pa.DataType) -> pa.Array:
    offsets = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1])
    return pa.ListArray.from_arrays(offsets, pa.array(rows.reshape(-1), kind))


batch = pa.StructArray.from_arrays(
    [
        lists(np.tile(times, (64, 1)), pa.int64()),
        lists(rng.normal(size=(64, 2048 * 32)).astype(np.float32), pa.float32()),
        lists(np.tile(targets, (64, 1)), pa.int64()),
    ],
    ["timestamps_ns", "values", "targets_ns"],
)

node = Node()
time.sleep(1.0)
begin = time.monotonic()
for i in range(int(rate * seconds)):
    time.sleep(max(0.0, begin + i / rate - time.monotonic()))
    stamp = {"timestamp_ns": time.time_ns()}
    if kind == "fuse":
        for name, values in samples.items():
            node.send_output(name, values, stamp)
    elif kind == "voxelize":
        fields = {"shape": [131072, 4], "fields": ["x", "y", "z", "intensity"]}
        node.send_output("lidar", cloud, {**stamp, **fields})
    else:
        node.send_output("trajectories", batch, {**stamp, "dim": 32})
# Messages in flight are lost when a node ends.
time.sleep(1.0)
