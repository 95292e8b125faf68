"""Writes a bag of ROS 2 for docs/bags.md, as rosbag2 would: `make_bag.py FOLDER [SECONDS]`.

An arm moves for some seconds, in made-up numbers. The bag has joint states whose order changes, their commands, a wrench, an
IMU, a lidar, and a camera. Features of an image encoder have a message type of their own. The wrench is missing for 0.3 s.
"""

import math
import pathlib
import sys

import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

STORE = get_typestore(Stores.ROS2_HUMBLE)
STORE.register(get_types_from_msg("std_msgs/Header header\nfloat32[] data\n", "encoder_msgs/msg/Features"))
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
# Topics: the rate in Hz, and the time from the capture of a message to its recording, in ms.
TOPICS = {
    "/joint_states": (250, 1),
    "/joint_commands": (50, 1),
    "/wrench": (500, 1),
    "/imu/data": (200, 2),
    "/points": (10, 100),
    "/camera/image": (30, 20),
    "/camera/features": (30, 45),
}
JOINTS = [f"joint_{i}" for i in range(1, 8)] + ["gripper"]
ENCODER = np.random.default_rng(0).standard_normal((32, len(JOINTS)))


def of(kind: str, /, **fields):
    return STORE.types[kind](**fields)


def vector(values):
    return of("geometry_msgs/msg/Vector3", **dict(zip("xyz", map(float, values), strict=True)))


def arm(t: float) -> np.ndarray:
    """Returns the positions of the seven joints, rad, and of the gripper, m, at the time `t`, s."""
    return np.append(0.6 * np.sin(0.8 * t + np.arange(7)), 0.04 + 0.04 * math.sin(t))


def joint_state(header, i: int, t: float):
    order = np.roll(np.arange(len(JOINTS)), i % 3 + 1)
    position = arm(t)[order]
    empty = np.array([])
    return of("sensor_msgs/msg/JointState", header=header, name=[JOINTS[j] for j in order], position=position, velocity=empty, effort=empty)


def cloud(header, t: float, points: int = 4000):
    turn = np.linspace(0, 2 * math.pi, points, endpoint=False)
    xyz = np.stack([4 * np.cos(turn), 4 * np.sin(turn), np.sin(5 * turn + t)], 1).astype(np.float32)
    fields = [of("sensor_msgs/msg/PointField", name=name, offset=4 * i, datatype=7, count=1) for i, name in enumerate("xyz")]
    data = xyz.view(np.uint8).ravel()
    return of(
        "sensor_msgs/msg/PointCloud2", header=header, height=1, width=points, fields=fields, is_bigendian=False,
        point_step=12, row_step=12 * points, data=data, is_dense=True,
    )  # fmt: skip


def image(header, t: float, height: int = 48, width: int = 64):
    pixels = np.full((height, width, 3), 40, np.uint8)
    at = int((width - 8) * (0.5 + 0.5 * math.sin(0.8 * t)))
    pixels[20:28, at : at + 8] = [200, 60, 20]
    return of(
        "sensor_msgs/msg/Image", header=header, height=height, width=width, encoding="rgb8", is_bigendian=0,
        step=3 * width, data=pixels.ravel(),
    )  # fmt: skip


def message(topic: str, i: int, stamp_ns: int):
    """Makes message number `i` of a ROS topic, with the stamp `stamp_ns`; None while the topic's sensor drops out."""
    t = (stamp_ns - START) / SECOND
    time = of("builtin_interfaces/msg/Time", sec=stamp_ns // SECOND, nanosec=stamp_ns % SECOND)
    header = of("std_msgs/msg/Header", stamp=time, frame_id=topic.split("/")[1])
    match topic:
        case "/joint_states":
            return joint_state(header, i, t)
        case "/joint_commands":
            empty = np.array([])
            return of("sensor_msgs/msg/JointState", header=header, name=JOINTS, position=arm(t + 0.1), velocity=empty, effort=empty)
        case "/wrench":
            force, torque = vector([2 * math.sin(t), 0, -9.81]), vector([0, 0.1 * math.cos(t), 0])
            wrench = of("geometry_msgs/msg/Wrench", force=force, torque=torque)
            return None if 2.0 <= t < 2.3 else of("geometry_msgs/msg/WrenchStamped", header=header, wrench=wrench)
        case "/imu/data":
            unknown = np.zeros(9)
            return of(
                "sensor_msgs/msg/Imu", header=header, orientation=of("geometry_msgs/msg/Quaternion", x=0.0, y=0.0, z=0.0, w=1.0),
                orientation_covariance=unknown, angular_velocity=vector([0, 0, 0.5 * math.cos(t)]), angular_velocity_covariance=unknown,
                linear_acceleration=vector([0.5 * math.sin(t), 0, 9.81]), linear_acceleration_covariance=unknown,
            )  # fmt: skip
        case "/points":
            return cloud(header, t)
        case "/camera/image":
            return image(header, t)
        case "/camera/features":
            return of("encoder_msgs/msg/Features", header=header, data=np.tanh(ENCODER @ arm(t)).astype(np.float32))


def main() -> int:
    folder, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    stamps = [
        (START + i * SECOND // rate + delay_ms * 1_000_000, START + i * SECOND // rate, topic, i)
        for topic, (rate, delay_ms) in TOPICS.items()
        for i in range(round(seconds * rate))
    ]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as bag:
        connections = {}
        for recorded_ns, stamp_ns, topic, i in sorted(stamps):
            if (made := message(topic, i, stamp_ns)) is None:
                continue
            kind = made.__msgtype__
            if topic not in connections:
                connections[topic] = bag.add_connection(topic, kind, typestore=STORE)
            bag.write(connections[topic], recorded_ns, STORE.serialize_cdr(made, kind))
    return 0


if __name__ == "__main__":
    sys.exit(main())
