"""Bags written by rosbags, whose serialization shares no code with ours."""

import contextlib
import sqlite3

import lz4.frame
import numpy as np
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

STORE = get_typestore(Stores.ROS2_HUMBLE)
T = STORE.types
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND + 123_456_789

# Custom message types like those of PX4: nested types, arrays, lists, texts, constants, defaults.
CUSTOM = {
    "px4_msgs/msg/VehicleLocalPosition": """
# Fused local position
uint64 timestamp  # time since system start (microseconds)
bool xy_valid
bool z_valid
uint8 DIST_BOTTOM_SENSOR_NONE = 0
float32 x
float32 y
float32 z
float32[2] delta_xy
uint8 xy_reset_counter 7
float64 ref_lat
int64 ref_timestamp
px4_msgs/Covariance covariance
""",
    "px4_msgs/msg/Covariance": "float32[21] values\nint8 quality\n",
    "test_msgs/msg/Ragged": """
std_msgs/Header header
string name
string[] names
float32[] samples
int16[<=8] few
test_msgs/Empty nothing
test_msgs/Inner[] inner
bool[3] flags
""",
    "test_msgs/msg/Inner": "float64 a\nstring<=5 b\n",
    "test_msgs/msg/Empty": "uint8 ONE=1\n",
}
CUSTOM_STORE = get_typestore(Stores.ROS2_HUMBLE)
CUSTOM_STORE.register({k: v for name, text in CUSTOM.items() for k, v in get_types_from_msg(text, name).items()})


def stamp(ns):
    return T["builtin_interfaces/msg/Time"](sec=ns // SECOND, nanosec=ns % SECOND)


def header(ns, frame="base_link"):
    return T["std_msgs/msg/Header"](stamp=stamp(ns), frame_id=frame)


def vector(x, y, z):
    return T["geometry_msgs/msg/Vector3"](x=x, y=y, z=z)


def quaternion(x, y, z, w):
    return T["geometry_msgs/msg/Quaternion"](x=x, y=y, z=z, w=w)


def pose(p, q):
    return T["geometry_msgs/msg/Pose"](position=T["geometry_msgs/msg/Point"](x=p[0], y=p[1], z=p[2]), orientation=quaternion(*q))


class Made:
    """Messages like those of nav2's topics, each with the numbers in it."""

    def __init__(self, seed=1):
        self.random = np.random.default_rng(seed)

    def numbers(self, *shape):
        return self.random.normal(size=shape)

    def imu(self, ns):
        a, g, q = self.numbers(3), self.numbers(3), self.numbers(4)
        message = T["sensor_msgs/msg/Imu"](
            header=header(ns, "imu_link"),
            orientation=quaternion(*q),
            orientation_covariance=self.numbers(9),
            angular_velocity=vector(*g),
            angular_velocity_covariance=self.numbers(9),
            linear_acceleration=vector(*a),
            linear_acceleration_covariance=self.numbers(9),
        )
        return message, [*a, *g, *q]

    def odometry(self, ns):
        p, q, v, w = self.numbers(3), self.numbers(4), self.numbers(3), self.numbers(3)
        message = T["nav_msgs/msg/Odometry"](
            header=header(ns, "odom"),
            child_frame_id="base_link",
            pose=T["geometry_msgs/msg/PoseWithCovariance"](pose=pose(p, q), covariance=self.numbers(36)),
            twist=T["geometry_msgs/msg/TwistWithCovariance"](
                twist=T["geometry_msgs/msg/Twist"](linear=vector(*v), angular=vector(*w)), covariance=self.numbers(36)
            ),
        )
        return message, [*p, *q, *v, *w]

    def joints(self, ns, order):
        values = {name: self.numbers(3) for name in ("elbow", "shoulder", "wrist")}
        columns = np.array([values[name] for name in order])
        message = T["sensor_msgs/msg/JointState"](
            header=header(ns, ""), name=list(order), position=columns[:, 0].copy(), velocity=columns[:, 1].copy(), effort=np.array([])
        )
        return message, values

    def scan(self, ns, n=360):
        ranges = self.numbers(n).astype(np.float32)
        message = T["sensor_msgs/msg/LaserScan"](
            header=header(ns, "laser"),
            angle_min=-1.5,
            angle_max=1.5,
            angle_increment=0.01,
            time_increment=0.0,
            scan_time=0.1,
            range_min=0.1,
            range_max=30.0,
            ranges=ranges,
            intensities=np.array([], np.float32),
        )
        return message, ranges

    def cloud(self, ns, n=500):
        dtype = np.dtype(
            {
                "names": ["x", "y", "z", "intensity", "ring", "time"],
                "formats": ["<f4", "<f4", "<f4", "<f4", "<u2", "<f4"],
                "offsets": [0, 4, 8, 16, 20, 24],
                "itemsize": 32,
            }
        )
        points = np.zeros(n, dtype)
        for name in dtype.names:
            points[name] = (self.numbers(n) * 10 if name != "ring" else self.random.integers(0, 64, n)).astype(dtype[name])
        points["time"] = self.random.uniform(0, 0.1, n)
        kinds = {"<f4": 7, "<u2": 4}
        fields = [
            T["sensor_msgs/msg/PointField"](name=name, offset=dtype.fields[name][1], datatype=kinds[dtype[name].str], count=1)
            for name in dtype.names
        ]
        message = T["sensor_msgs/msg/PointCloud2"](
            header=header(ns, "lidar"),
            height=1,
            width=n,
            fields=fields,
            is_bigendian=False,
            point_step=32,
            row_step=32 * n,
            data=np.frombuffer(points.tobytes(), np.uint8),
            is_dense=True,
        )
        return message, points

    def image(self, ns, height=4, width=6, step=24):
        """An image whose rows end with padding."""
        pixels = self.random.integers(0, 255, (height, width, 3), np.uint8)
        rows = np.zeros((height, step), np.uint8)
        rows[:, : width * 3] = pixels.reshape(height, -1)
        message = T["sensor_msgs/msg/Image"](
            header=header(ns, "camera"), height=height, width=width, encoding="rgb8", is_bigendian=0, step=step, data=rows.ravel()
        )
        return message, pixels

    def transforms(self, ns, frames):
        values = {frame: (self.numbers(3), self.numbers(4)) for frame in frames}
        items = [
            T["geometry_msgs/msg/TransformStamped"](
                header=header(ns, parent),
                child_frame_id=child,
                transform=T["geometry_msgs/msg/Transform"](translation=vector(*t), rotation=quaternion(*q)),
            )
            for (parent, child), (t, q) in values.items()
        ]
        return T["tf2_msgs/msg/TFMessage"](transforms=items), {frame: [*t, *q] for frame, (t, q) in values.items()}


def write(folder, messages, store=STORE, compression=None, storage="mcap"):
    """Writes a bag of (topic, type, log time, message), as rosbag2 would. `compression` is `lz4` or `zstd` for chunks of MCAP. With
    `file` or `message`, zstd compresses each file or each message."""
    writer = Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP if storage == "mcap" else StoragePlugin.SQLITE3)
    if compression:
        modes = {"file": CompressionMode.FILE, "message": CompressionMode.MESSAGE}
        writer.set_compression(modes.get(compression, CompressionMode.STORAGE), CompressionFormat.ZSTD)
    with writer:
        if compression == "lz4":
            writer.storage.compression, writer.storage.compressor = compression, lz4.frame.compress
        connections = {}
        for topic, kind, ns, message in messages:
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=store)
            writer.write(connections[topic], ns, store.serialize_cdr(message, kind))


def like_humble(path):
    """Changes a database to what ROS 2 Humble writes, which does not describe types."""
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        base.executescript(
            """
            DROP TABLE message_definitions;
            ALTER TABLE topics DROP COLUMN type_description_hash;
            UPDATE schema SET schema_version = 3, ros_distro = 'humble';
            """
        )
