"""Stand-in for the drivers of your sensors, which sends made-up samples. Replace it with your own drivers, one by one.

    sensors.py NAME RATE_HZ DIM        samples of DIM values
    sensors.py NAME RATE_HZ cloud      point clouds

Your drivers must send the same: the values, and `timestamp_ns`, the time at which they were measured, ns since 1970.
"""

import math
import random
import sys
import time

import pyarrow as pa
from dora import Node

S = 1_000_000_000
POINTS = 5_000


def sample(time_ns: int, dim: int) -> list[float]:
    """Makes the values of one sample."""
    return [math.sin(math.tau * (time_ns % S) / S + i) for i in range(dim)]


def cloud() -> pa.Array:
    """Makes points of the floor and of a wall, m."""
    along = [random.uniform(-8, 8) for _ in range(POINTS)]
    columns = {
        "x": [4.0 if i % 2 else x for i, x in enumerate(along)],
        "y": along[::-1],
        "z": [random.uniform(0, 2) if i % 2 else 0.0 for i in range(POINTS)],
        "intensity": [80.0] * POINTS,
    }
    return pa.StructArray.from_arrays([pa.array(values, pa.float32()) for values in columns.values()], names=list(columns))


def main() -> None:
    name, rate_hz, form = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    # A fast sensor sends several samples in a message, with a stamp for each.
    rows = 1 if form == "cloud" else max(1, round(rate_hz / 100))
    node = Node()
    start, sent = time.time_ns(), 0
    while not is_stopped(node):
        # A driver waits here for the next measurement of its sensor, and knows its time.
        stamps = [start + round((sent + i) * S / rate_hz) for i in range(rows)]
        time.sleep(max(0, stamps[-1] - time.time_ns()) / S)
        if form == "cloud":
            node.send_output(name, cloud(), {"timestamp_ns": stamps[0], "frame_id": name})
        else:
            dim = int(form)
            values = [value for stamp in stamps for value in sample(stamp, dim)]
            metadata = {"timestamp_ns": stamps[-1], "timestamps_ns": stamps, "shape": [rows, dim]}
            node.send_output(name, pa.array(values, pa.float32()), metadata)
        sent += rows


def is_stopped(node: Node) -> bool:
    # Ticks of the timer are skipped.
    while (event := node.try_recv()) is not None:
        if event["type"] == "STOP":
            return True
    return False


if __name__ == "__main__":
    main()
