"""Sensors of a made-up robot: how each kind of stream is sent to robocache. A process runs one sensor.

    sensors.py camera|joints|wrench|front|rear [SECONDS]

Each function below stands for a driver. It takes the time at which the sensor measured, ns since 1970, and returns the payload
and its metadata. docs/sensors.md explains payloads and metadata.
"""

import os
import pathlib
import sys
import time

import numpy as np
import pyarrow as pa
from dora import Node

S = 1_000_000_000
# Messages in flight are lost when a process ends.
LINGER_S = 0.5


def camera(time_ns: int):
    """Makes features of an image: one sample of 16 values. A message without the key `shape` is one sample."""
    features = np.cos(phase(time_ns) + np.arange(16))
    return pa.array(features.astype(np.float32)), {"timestamp_ns": time_ns}


def joints(time_ns: int):
    """Makes seven joint angles, rad. Values may have any float or integer type."""
    return pa.array(np.sin(phase(time_ns) + np.arange(7))), {"timestamp_ns": time_ns, "shape": [7]}


def wrench(time_ns: int):
    """Makes ten samples of force and torque at 1 kHz in one message: `[10, 6]`, with a stamp for each row."""
    # The stamps are Python integers, since dora would turn NumPy integers into text.
    stamps = [time_ns - i * S // 1000 for i in reversed(range(10))]
    rows = np.stack([10 * np.sin(phase(stamp) + np.arange(6)) for stamp in stamps])
    metadata = {"timestamp_ns": stamps[-1], "timestamps_ns": stamps, "shape": [10, 6]}
    return pa.array(rows.astype(np.float32).ravel()), metadata


def front(time_ns: int):
    """Makes a point cloud as an Arrow struct: a column for each field, so that each field has its own type."""
    points = wall(time_ns)
    columns = {
        "x": pa.array(points[:, 0]),
        "y": pa.array(points[:, 1]),
        "z": pa.array(points[:, 2]),
        "intensity": pa.array(np.full(len(points), 80, np.uint8)),
    }
    cloud = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    return cloud, {"timestamp_ns": time_ns, "frame_id": "front_lidar"}


def rear(time_ns: int):
    """Makes a point cloud as a flat array of `[N, 4]`; the metadata key `fields` names its columns."""
    points = wall(time_ns)
    points = np.column_stack([points, np.full(len(points), 80, np.float32)])
    metadata = {
        "timestamp_ns": time_ns,
        "shape": list(points.shape),
        "fields": ["x", "y", "z", "intensity"],
        "frame_id": "rear_lidar",
    }
    return pa.array(points.ravel()), metadata


def phase(time_ns: int) -> float:
    """Returns the angle of the robot's simulated motion at a time, rad. It grows by half a turn a second."""
    return time_ns % (2 * S) / S * np.pi


def wall(time_ns: int) -> np.ndarray:
    """Makes 20,000 points of a wall four metres ahead of a sensor, float32 `[N, 3]`, metres."""
    random = np.random.default_rng(time_ns)
    return np.column_stack([random.normal(4.0, 0.02, 20_000), random.uniform(-3, 3, 20_000), random.uniform(0, 2, 20_000)]).astype(
        np.float32
    )


# Sensors, and the messages a second of each.
SENSORS = {camera: 30, joints: 100, wrench: 100, front: 10, rear: 10}


def main() -> None:
    name, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
    sensor, rate_hz = next((sensor, rate) for sensor, rate in SENSORS.items() if sensor.__name__ == name)
    wait_for_consumers()
    node = Node()
    start = time.time_ns()
    sent = 0
    while sent < seconds * rate_hz and not is_stopped(node):
        time_ns = start + sent * S // rate_hz
        # A driver would wait here for the next measurement of the sensor, and would know its time.
        time.sleep(max(0, time_ns - time.time_ns()) / S)
        node.send_output(name, *sensor(time_ns))
        sent += 1
    time.sleep(LINGER_S)


def wait_for_consumers() -> None:
    """Makes dora wait for a busy consumer instead of losing messages. Call it before `Node()`.

    The `env:` of a dataflow can't do the same, since dora ignores this variable in `env:`.
    """
    if "ZENOH_CONFIG" not in os.environ:
        os.environ.setdefault("DORA_ZENOH_CONFIG_OVERLAY", str(pathlib.Path(__file__).with_name("transport.json5")))


def is_stopped(node: Node) -> bool:
    event = node.try_recv()
    return event is not None and event["type"] == "STOP"


if __name__ == "__main__":
    main()
