"""Messages as other software sends them: in Arrow as by dora's ROS 2 bridge (one-row structs, every list a List) or in dora's
std types, and clouds as bytes."""

import numpy as np
import pyarrow as pa

S = 1_000_000_000

VECTOR = pa.struct([(name, pa.float64()) for name in "xyz"])
QUATERNION = pa.struct([(name, pa.float64()) for name in "xyzw"])
POSE = pa.struct([("position", VECTOR), ("orientation", QUATERNION)])
TWIST = pa.struct([("linear", VECTOR), ("angular", VECTOR)])
WRENCH = pa.struct([("force", VECTOR), ("torque", VECTOR)])
COVARIANCE = pa.list_(pa.float64())
HEADER = pa.struct([("stamp", pa.struct([("sec", pa.int32()), ("nanosec", pa.uint32())])), ("frame_id", pa.string())])
POINT_FIELD = pa.struct([("name", pa.string()), ("offset", pa.uint32()), ("datatype", pa.uint8()), ("count", pa.uint32())])

# Names and Arrow types of the fields of each kind of message.
ROS = {
    "JointState": {"header": HEADER, "name": pa.list_(pa.string())} | dict.fromkeys(("position", "velocity", "effort"), pa.list_(pa.float64())),
    "Imu": {
        "header": HEADER,
        "orientation": QUATERNION,
        "orientation_covariance": COVARIANCE,
        "angular_velocity": VECTOR,
        "angular_velocity_covariance": COVARIANCE,
        "linear_acceleration": VECTOR,
        "linear_acceleration_covariance": COVARIANCE,
    },
    "WrenchStamped": {"header": HEADER, "wrench": WRENCH},
    "PoseStamped": {"header": HEADER, "pose": POSE},
    "TwistStamped": {"header": HEADER, "twist": TWIST},
    "Odometry": {
        "header": HEADER,
        "child_frame_id": pa.string(),
        "pose": pa.struct([("pose", POSE), ("covariance", COVARIANCE)]),
        "twist": pa.struct([("twist", TWIST), ("covariance", COVARIANCE)]),
    },
    "PointCloud2": {
        "header": HEADER,
        "height": pa.uint32(),
        "width": pa.uint32(),
        "fields": pa.list_(POINT_FIELD),
        "is_bigendian": pa.bool_(),
        "point_step": pa.uint32(),
        "row_step": pa.uint32(),
        "data": pa.list_(pa.uint8()),
        "is_dense": pa.bool_(),
    },
}
STD = {
    "JointState": {"names": pa.list_(pa.string())} | dict.fromkeys(("positions", "velocities", "efforts"), pa.list_(pa.float64())),
    "Pose": {"position": VECTOR, "orientation": QUATERNION},
    "Transform": {"translation": VECTOR, "rotation": QUATERNION},
    "Twist": {"linear": VECTOR, "angular": VECTOR},
    "Odometry": {"pose": POSE, "twist": TWIST, "frame_id": pa.string()},
    "PointCloud": {"points": pa.large_binary(), "width": pa.uint32(), "height": pa.uint32()},
}
# Codes of a PointField's types, by their names in NumPy.
DATATYPES = {name: i for i, name in enumerate(("int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64"), start=1)}


def message(types: dict, **values) -> pa.Array:
    """A struct array of one row with these fields: `types` by the names of the fields, and their `values`."""
    return pa.array([values], pa.struct(list(types.items())))


def header(time_ns: int, frame_id: str = "base") -> dict:
    return {"stamp": {"sec": time_ns // S, "nanosec": time_ns % S}, "frame_id": frame_id}


def vector(values) -> dict:
    return dict(zip("xyzw", map(float, values), strict=False))


def joint_state(time_ns: int, names, positions, **others) -> pa.Array:
    lists = {"velocity": [], "effort": [], **others}
    return message(ROS["JointState"], header=header(time_ns), name=list(names), position=[float(p) for p in positions], **lists)


def point_cloud2(time_ns: int, points: np.ndarray, height: int = 1, padding: int = 0, **changed) -> pa.Array:
    """A structured array of points as a PointCloud2 of `height` rows, each of which ends with `padding` bytes."""
    step = points.dtype.itemsize
    width = len(points) // height
    rows = np.frombuffer(points.tobytes(), np.uint8).reshape(height, width * step)
    rows = np.pad(rows, ((0, 0), (0, padding)))
    fields = [
        {"name": name, "offset": offset, "datatype": DATATYPES[dtype.name], "count": 1}
        for name, (dtype, offset) in points.dtype.fields.items()
    ]
    values = {
        "header": header(time_ns, "lidar"),
        "height": height,
        "width": width,
        "fields": fields,
        "is_bigendian": False,
        "point_step": step,
        "row_step": width * step + padding,
        "is_dense": False,
    }
    types = list(ROS["PointCloud2"].items())
    row = {**values, **changed}
    data = row.pop("data", rows.ravel())
    columns = {name: pa.array([row[name]], kind) for name, kind in types if name != "data"}
    columns["data"] = pa.ListArray.from_arrays([0, len(data)], pa.array(data, pa.uint8()))
    return pa.StructArray.from_arrays([columns[name] for name, _ in types], [name for name, _ in types])
