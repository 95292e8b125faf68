"""Sensors of a made-up robot that send messages as other software does, without robocache. A process runs one sensor.

    sensors.py camera|depth|joint_states|pose|points [SECONDS]

The sensors `camera` and `depth` send images as the camera nodes of dora's hub do. The other sensors send a topic as the ROS 2
bridge of dora does: an Arrow struct with one row, with lists for arrays and the stamp in its header.
"""

import sys
import time

import numpy as np
import pyarrow as pa
from dora import Node

S = 1_000_000_000
# Messages in flight are lost when a process ends.
LINGER_S = 0.5


def camera(time_ns: int):
    """Makes an image message: 64 x 48 pixels, rgb8, as a flat array."""
    columns = np.cos(phase(time_ns) + np.linspace(0, np.pi, 64))
    image = np.broadcast_to((127 + 127 * columns)[None, :, None], (48, 64, 3)).astype(np.uint8)
    return pa.array(image.ravel()), {"encoding": "rgb8", "width": 64, "height": 48, "timestamp": time_ns}


def depth(time_ns: int):
    """Makes a depth image of 16 x 12 pixels, mm, of a wall that moves back and forth. Pixels without a return are 0."""
    image = np.full((12, 16), 2000 + 1000 * np.sin(phase(time_ns)), np.uint16)
    image[0, 0] = 0
    return pa.array(image.ravel()), {"encoding": "mono16", "width": 16, "height": 12, "focal": [14, 14], "timestamp": time_ns}


def joint_states(time_ns: int):
    """Makes a sensor_msgs/JointState message. Every second message lists the joints in another order."""
    names = ["elbow", "finger", "shoulder", "wrist"]
    if time_ns // 10_000_000 % 2:
        names.reverse()
    shift = {"shoulder": 0.0, "elbow": 1.0, "wrist": 2.0, "finger": 3.0}
    angles = [phase(time_ns) + shift[name] for name in names]
    return row(
        header=header(time_ns, "base"), name=names, position=np.sin(angles).tolist(), velocity=(np.pi * np.cos(angles)).tolist(), effort=[0.0] * 4
    )


def pose(time_ns: int):
    """Makes a geometry_msgs/PoseStamped message of a pose that turns about z."""
    half = phase(time_ns) / 2
    position = {"x": 0.4 * np.cos(phase(time_ns)), "y": 0.4 * np.sin(phase(time_ns)), "z": 0.3}
    orientation = {"x": 0.0, "y": 0.0, "z": np.sin(half), "w": np.cos(half)}
    return row(header=header(time_ns, "base"), pose={"position": position, "orientation": orientation})


POINT = np.dtype({"names": ["x", "y", "z", "intensity", "time"], "formats": ["<f4"] * 5, "offsets": [0, 4, 8, 16, 20], "itemsize": 32})
FIELDS = [{"name": name, "offset": offset, "datatype": 7, "count": 1} for name, (_, offset) in POINT.fields.items()]


def points(time_ns: int):
    """Makes a sensor_msgs/PointCloud2 message: 20,000 points of a wall, some of them NaN, as without a return."""
    random = np.random.default_rng(time_ns)
    cloud = np.zeros(20_000, POINT)
    cloud["x"] = random.normal(4.0, 0.02, 20_000)
    cloud["x"][::1000] = np.nan
    cloud["y"], cloud["z"] = random.uniform(-3, 3, 20_000), random.uniform(0, 2, 20_000)
    cloud["intensity"] = 80.0
    cloud["time"] = np.linspace(0, 0.1, 20_000)
    data = pa.array(np.frombuffer(cloud.tobytes(), np.uint8))
    fixed = {"height": pa.uint32(), "width": pa.uint32(), "point_step": pa.uint32(), "row_step": pa.uint32()}
    sizes = dict(zip(fixed, (1, 20_000, 32, 32 * 20_000), strict=True))
    columns = {
        "header": pa.array([header(time_ns, "lidar")]),
        "fields": pa.array([FIELDS]),
        "is_bigendian": pa.array([False]),
        "is_dense": pa.array([False]),
        "data": pa.ListArray.from_arrays([0, len(data)], data),
        **{name: pa.array([sizes[name]], kind) for name, kind in fixed.items()},
    }
    return pa.StructArray.from_arrays(list(columns.values()), list(columns)), {}


def row(**values):
    """Makes the payload of a topic's message, an Arrow struct with one row and the columns `values`. Returns it
    with empty metadata."""
    return pa.array([values]), {}


def header(time_ns: int, frame_id: str) -> dict:
    return {"stamp": {"sec": time_ns // S, "nanosec": time_ns % S}, "frame_id": frame_id}


def phase(time_ns: int) -> float:
    """Returns the angle of the robot's simulated motion at a time, rad. It grows by half a turn a second."""
    return time_ns % (2 * S) / S * np.pi


# Sensors: the output of each, and its messages a second.
SENSORS = {camera: ("image", 30), depth: ("depth", 30), joint_states: ("joint_states", 100), pose: ("pose", 100), points: ("points", 10)}


def main() -> None:
    name, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
    sensor, (output, rate_hz) = next(item for item in SENSORS.items() if item[0].__name__ == name)
    node = Node()
    start = time.time_ns()
    sent = 0
    while sent < seconds * rate_hz and (node.try_recv() or {}).get("type") != "STOP":
        time_ns = start + sent * S // rate_hz
        time.sleep(max(0, time_ns - time.time_ns()) / S)
        node.send_output(output, *sensor(time_ns))
        sent += 1
    time.sleep(LINGER_S)


if __name__ == "__main__":
    main()
