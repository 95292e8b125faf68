"""Messages of other software: those that are recognised, those that `from:` selects, and those that can't be taken."""

import numpy as np
import pyarrow as pa

from harness import same_bits, said, send
from layouts import HEADER, ROS, STD, header, joint_state, message, point_cloud2, vector

MS = 1_000_000
TIMES = [10 * MS, 20 * MS, 30 * MS]


def ramp(n: int, time_ns: int) -> list[float]:
    return [time_ns / MS + i for i in range(n)]


def pose(v) -> dict:
    return {"position": vector(v[:3]), "orientation": vector(v[3:7])}


def twist(v) -> dict:
    return {"linear": vector(v[:3]), "angular": vector(v[3:6])}


def names(n: int) -> list[str]:
    return [f"joint_{i}" for i in range(n)]


# By the name of the input: the length of a sample, functions of (values, time) and (time) that make the message and its
# metadata, and more keys of the modality.
STAMPED = lambda t: {"timestamp_ns": t}  # noqa: E731
SECONDS = lambda t: {"timestamp": t / 1e9, "encoding": "jointstate"}  # noqa: E731
LAYOUTS = {
    "std_joints": (7, lambda v, t: message(STD["JointState"], names=names(7), positions=v, velocities=[], efforts=[]), STAMPED, {}),
    "std_pose": (7, lambda v, t: message(STD["Pose"], **pose(v)), STAMPED, {}),
    "std_transform": (7, lambda v, t: message(STD["Transform"], translation=vector(v[:3]), rotation=vector(v[3:])), STAMPED, {}),
    "std_twist": (6, lambda v, t: message(STD["Twist"], **twist(v)), STAMPED, {}),
    "std_odometry": (13, lambda v, t: message(STD["Odometry"], pose=pose(v), twist=twist(v[7:]), frame_id="odom"), STAMPED, {}),
    "joints": (7, lambda v, t: joint_state(t, names(7), v), lambda t: {}, {}),
    "imu": (
        10,
        lambda v, t: message(
            ROS["Imu"],
            header=header(t),
            linear_acceleration=vector(v[:3]),
            angular_velocity=vector(v[3:6]),
            orientation=vector(v[6:]),
            orientation_covariance=[0.0] * 9,
            angular_velocity_covariance=[0.0] * 9,
            linear_acceleration_covariance=[0.0] * 9,
        ),
        lambda t: {},
        {},
    ),
    "wrench": (
        6,
        lambda v, t: message(ROS["WrenchStamped"], header=header(t), wrench={"force": vector(v[:3]), "torque": vector(v[3:])}),
        lambda t: {},
        {},
    ),
    "pose": (7, lambda v, t: message(ROS["PoseStamped"], header=header(t), pose=pose(v)), lambda t: {}, {}),
    "twist": (6, lambda v, t: message(ROS["TwistStamped"], header=header(t), twist=twist(v)), lambda t: {}, {}),
    "odometry": (
        13,
        lambda v, t: message(
            ROS["Odometry"],
            header=header(t),
            child_frame_id="tool",
            pose={"pose": pose(v), "covariance": [0.0] * 36},
            twist={"twist": twist(v[7:]), "covariance": [0.0] * 36},
        ),
        lambda t: {},
        {},
    ),
    # Messages of dora-mujoco and dora-piper.
    "mujoco": (7, lambda v, t: pa.array(v, pa.float64()), SECONDS, {}),
    "piper": (6, lambda v, t: pa.array(v, pa.float32()), STAMPED, {}),
    # Parts of the messages, in the order that the configuration gives.
    "by_name": (
        2,
        lambda v, t: joint_state(t, ["c", "b", "a"] if t == TIMES[1] else ["a", "b", "c"], [*v[::-1], 9.0][::-1] if t == TIMES[1] else [*v[::-1], 9.0]),
        lambda t: {},
        {"from": {"columns": ["position"], "names": {"key": "name", "order": ["b", "a"]}, "stamp": "header.stamp"}},
    ),
    "by_path": (
        7,
        lambda v, t: message(ROS["Odometry"], header=header(t), child_frame_id="", pose={"pose": pose(v), "covariance": []}, twist=None),
        lambda t: {},
        {"from": {"columns": ["pose.pose.position", "pose.pose.orientation"], "stamp": "header.stamp"}},
    ),
    "by_clock": (1, lambda v, t: pa.array(v), lambda t: {"clock_us": t // 1000}, {"from": {"stamp": {"metadata": "clock_us", "unit": "us"}}}),
}


def test_every_layout_is_fused_as_it_comes(flow):
    modalities = [
        {"input": name, "dim": dim, "interpolation": "linear", **more} for name, (dim, _, _, more) in LAYOUTS.items()
    ]
    steps = [
        ("send", name, payload(ramp(dim, t), t), metadata(t)) for t in TIMES for name, (dim, payload, metadata, _) in LAYOUTS.items()
    ]
    flow.sender(steps)
    flow.robocache("fuse", {"fuse": {"rate_hz": 100, "modalities": modalities}}, {name: f"sender/{name}" for name in LAYOUTS}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run()
    got = done.received("sink")
    assert [m.stamp for m in got] == TIMES, done.logs["fuse"]
    for m in got:
        assert m.metadata["valid"] == [1] * len(LAYOUTS)
        wanted = [value for dim, *_ in LAYOUTS.values() for value in ramp(dim, m.stamp)]
        assert m.values.tolist() == wanted
    log = done.logs["fuse"]
    assert "ERROR" not in log and "no `timestamp_ns`" not in log, log
    assert log.count("is read as") == 11, log
    assert "INFO input `joints` is read as sensor_msgs/JointState: position" in log, log


# A payload for an input of two values, the input's `from`, and words that the log must have.
POSITION = {"columns": ["position"]}
NAMED = {"columns": ["position"], "names": {"key": "name", "order": ["a", "b"]}}
AT = 300 * MS
BAD = {
    "a part": (joint_state(AT, ["a"], [1]), NAMED, "no `b`: `name` has a"),
    "a name twice": (joint_state(AT, ["a", "b", "b"], [1, 2, 3]), NAMED, "`name` is a list with `b` twice"),
    "no value for a name": (joint_state(AT, ["a", "b"], [1]), NAMED, "`position` has 1 values for the 2 of `name`"),
    "too many": (joint_state(AT, ["a", "b", "c"], [1, 2, 3]), POSITION, "`position` is 3 values (allowed: 2, the `dim` of the input)"),
    "none": (joint_state(AT, [], []), POSITION, "`position` is 0 values"),
    "no such field": (pa.array([{"pos": 1.0}]), POSITION, "no `position`: the message has pos"),
    "text": (pa.array([{"position": "1"}]), POSITION, "`position` is Utf8 (allowed: a number"),
    "null": (pa.array([{"position": None}], pa.struct([("position", pa.list_(pa.float64()))])), POSITION, "`position` is null"),
    "no rows": (pa.array([], pa.struct([("position", pa.float64())])), POSITION, "the payload is a struct of 0 rows"),
    "two rows": (pa.array([{"position": 1.0}] * 2), POSITION, "the payload is a struct of 2 rows"),
    "flat, without names": (pa.array([1.0, 2.0]), NAMED, "the payload is Arrow type Float64"),
    "a NaN": (joint_state(AT, ["a", "b"], [1, np.nan]), POSITION, "value 1 of a sample is NaN"),
    "no stamp there": (joint_state(AT, ["a", "b"], [1, 2]), {**POSITION, "stamp": "stamp"}, "no `stamp`: the message has header"),
    "ns past a second": (
        pa.array([{"position": [1.0, 2.0], "t": {"sec": 0, "nanosec": 2_000_000_000}}]),
        {**POSITION, "stamp": "t"},
        "`t.nanosec` is 2000000000 (allowed: 0 to 999999999)",
    ),
    "no such key": (joint_state(AT, ["a", "b"], [1, 2]), {**POSITION, "stamp": {"metadata": "t", "unit": "s"}}, "`metadata t` is not there"),
    "unknown": (pa.array([{"grip": 1.0, "header": None}], pa.struct([("grip", pa.float64()), ("header", HEADER)])), None, "the payload is a struct"),
}


def test_what_cannot_be_taken_is_counted_and_the_node_lives_on(flow):
    inputs = [f"joints_{i}" for i in range(len(BAD))]
    modalities = []
    for name, (_, where, _) in zip(inputs, BAD.values(), strict=True):
        modalities.append({"input": name, "dim": 2, "interpolation": "previous", "wait": name == inputs[0]} | ({"from": where} if where else {}))
    good = [("send", inputs[0], joint_state(t, ["b", "a"], [2, 1]), {}) for t in (*TIMES, 400 * MS)]
    bad = [("send", name, payload, {"timestamp_ns": AT}) for name, (payload, *_) in zip(inputs, BAD.values(), strict=True)]
    flow.sender(good[:3] + bad * 3 + good[3:])
    flow.robocache("fuse", {"fuse": {"rate_hz": 100, "modalities": modalities}}, {name: f"sender/{name}" for name in inputs}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run()
    got = done.received("sink")
    assert [m.stamp for m in got] == list(range(10 * MS, 401 * MS, 10 * MS))
    assert all(m.values[:2].tolist() == [1.0, 2.0] for m in got)
    for name, (kind, (_, _, words)) in zip(inputs, BAD.items(), strict=True):
        lines = [line for line in done.logs["fuse"].splitlines() if f"input `{name}`" in line and "is read as" not in line]
        assert words in lines[0] and "3 in all" in lines[-1], (kind, words, lines)


POINT = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "u1"), ("ring", "<u2"), ("time", "<f4")])
# Fields with gaps between them, as drivers align them.
ALIGNED = np.dtype(
    {"names": list(POINT.names), "formats": [POINT[n] for n in POINT.names], "offsets": [0, 4, 8, 16, 18, 20], "itemsize": 32}
)
VOXELS = {
    "origin_m": [-4.0, -4.0, -2.0],
    "voxel_size_m": [0.5, 0.5, 0.5],
    "shape": [16, 16, 8],
    "channels": ["count", "mean_x", "mean_z", "mean_intensity", "max_ring", "max_t_ns"],
    "layout": "coo",
}


def points(n: int = 1200) -> np.ndarray:
    random = np.random.default_rng(7)
    cloud = np.zeros(n, ALIGNED)
    for axis in "xyz":
        cloud[axis] = random.uniform(-3, 3, n)
    cloud["x"][::100] = np.nan
    cloud["intensity"] = random.integers(0, 256, n)
    cloud["ring"] = random.integers(0, 64, n)
    cloud["time"] = random.integers(0, 1 << 20, n) / np.float32(1 << 24)
    return cloud


def columns(cloud: np.ndarray) -> dict:
    values = {name: pa.array(np.ascontiguousarray(cloud[name])) for name in ("x", "y", "z", "intensity", "ring")}
    return values | {"t_ns": pa.array(np.rint(cloud["time"].astype(float) * 1e9).astype(np.int64))}


def test_every_cloud_makes_the_grid_of_its_columns(flow):
    cloud, t = points(), 50 * MS
    want = columns(cloud)
    of_lists = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, len(v)], v) for v in want.values()], list(want))
    scan = pa.StructArray.from_arrays([of_lists, pa.array([header(t)], HEADER)], ["scan", "header"])
    rows = pa.StructArray.from_arrays(list(want.values()), list(want))
    livox = pa.StructArray.from_arrays([rows.field(i) for i in range(6)], ["x", "y", "z", "intensity", "ring", "t_ns"])
    livox = {"points": pa.ListArray.from_arrays([0, len(cloud)], livox)}
    livox |= {name: pa.array([0], pa.uint64()) for name in ("timebase", "point_num", "lidar_id", "rsvd")}
    livox |= {"header": pa.array([header(t)], HEADER)}
    flat = np.column_stack([want[name].to_numpy().astype(np.float64) for name in want])
    std = message(STD["PointCloud"], points=flat.tobytes(), width=len(cloud), height=1)
    sent = {
        "columns": (rows, {"timestamp_ns": t}, {}),
        "cloud2": (point_cloud2(t, cloud), {}, {}),
        "organised": (point_cloud2(t, cloud, height=40, padding=7), {}, {}),
        "packed": (point_cloud2(t, cloud.astype(POINT)), {}, {}),
        "livox": (pa.StructArray.from_arrays(list(livox.values()), list(livox)), {}, {}),
        "std": (std, {"timestamp_ns": t, "fields": list(want), "dtype": "float64"}, {}),
        "lists": (scan, {}, {"from": {"columns": [f"scan.{name}" for name in want], "stamp": "header.stamp"}}),
    }
    plugins = [
        {"voxelize": {"name": f"of_{name}", **VOXELS, "inputs": [{"input": name, **more}]}} for name, (_, _, more) in sent.items()
    ]
    flow.sender([("send", name, payload, metadata) for name, (payload, metadata, _) in sent.items()])
    outputs = [f"of_{name}/voxels" for name in sent]
    flow.robocache("node", {"plugins": plugins}, {name: f"sender/{name}" for name in sent}, outputs)
    flow.collector({f"of_{name}": f"node/of_{name}/voxels" for name in sent})
    done = flow.run()
    grids = {m_name: done.received("sink", f"of_{m_name}") for m_name in sent}
    assert all(len(grid) == 1 for grid in grids.values()), done.logs["node"]
    [wanted] = grids["columns"]
    assert wanted.metadata["points_in"] == 1200 and wanted.metadata["dropped_nonfinite"] == 12
    for name, [grid] in grids.items():
        assert grid.stamp == t
        assert same_bits(grid.values["coords"], wanted.values["coords"]), name
        assert same_bits(grid.values["features"], wanted.values["features"]), name
        counters = ("points_kept", "dropped_nonfinite", "unusable")
        assert all(said(grid.metadata)[key] == said(wanted.metadata)[key] for key in counters), name
    assert grids["cloud2"][0].metadata["frame_id"] == "lidar"


BAD_CLOUDS = {
    "big-endian": ({"is_bigendian": True}, "`is_bigendian` is true (allowed: false"),
    "a step too small": ({"point_step": 10}, "`point_step` is 10 (allowed: at least 12, where field `z` ends)"),
    "too few bytes": ({"data": np.zeros(100, np.uint8)}, "`data` is 100 bytes (allowed: 128, 1 rows of 4 points of 32 bytes)"),
    "a row too short": ({"height": 2, "width": 2, "row_step": 63}, "`row_step` is 63 (allowed: at least 64"),
    "no fields": ({"fields": []}, "no `x`: `fields` has none"),
    "a type that is none": (
        {"fields": [{"name": n, "offset": 0, "datatype": 11, "count": 1} for n in "xyz"]},
        "`fields[0].datatype` is 11 (allowed: 1 to 8, as `x` is needed)",
    ),
    "several in one": (
        {"fields": [{"name": n, "offset": 0, "datatype": 7, "count": 3} for n in "xyz"]},
        "`fields[0].count` is 3 (allowed: 1, as `x` is needed)",
    ),
    "no data": ({"data": np.zeros(0, np.uint8)}, "`data` is 0 bytes"),
}


def test_a_cloud_that_contradicts_itself_is_counted_and_the_node_lives_on(flow):
    inputs = [f"lidar_{i}" for i in range(len(BAD_CLOUDS))]
    good = lambda t: [("send", name, point_cloud2(t, points(4)), {}) for name in inputs]  # noqa: E731
    bad = [("send", name, point_cloud2(60 * MS, points(4), **changed), {}) for name, (changed, _) in zip(inputs, BAD_CLOUDS.values(), strict=True)]
    flow.sender(good(50 * MS) + bad * 3 + good(70 * MS))
    config = {**VOXELS, "channels": ["count"], "inputs": [{"input": name} for name in inputs]}
    flow.robocache("voxelize", {"voxelize": config}, {name: f"sender/{name}" for name in inputs}, ["voxels"])
    flow.collector({"voxels": "voxelize/voxels"})
    done = flow.run()
    assert [(m.stamp, m.metadata["points_in"]) for m in done.received("sink")] == [(50 * MS, 32), (70 * MS, 32)]
    for name, (kind, (_, words)) in zip(inputs, BAD_CLOUDS.items(), strict=True):
        lines = [line for line in done.logs["voxelize"].splitlines() if f"input `{name}`" in line and "is read as" not in line]
        assert words in lines[0] and "3 in all" in lines[-1], (kind, words, lines)


def test_what_is_attached_is_recognised_and_stamped(flow):
    """A cloud that is attached to observations may be a PointCloud2, and gets the stamp of its header."""
    t = 20 * MS
    config = {
        "rate_hz": 100,
        "modalities": [{"input": "force", "dim": 2, "interpolation": "linear"}],
        "attach": [{"input": "lidar", "output": "clouds", "wait": False}],
    }
    steps = [("send", "lidar", point_cloud2(t, points(50)), {})] + [send("force", np.ones(2), time) for time in (*TIMES, 40 * MS)]
    flow.sender(steps)
    flow.robocache("fuse", {"fuse": config}, {name: f"sender/{name}" for name in ("force", "lidar")}, ["fused", "clouds"])
    flow.collector({"clouds": "fuse/clouds"})
    done = flow.run()
    [last] = [m for m in done.received("sink") if m.metadata["timestamp_ns"] == 30 * MS]
    assert last.metadata["timestamps_ns"] == [t] and last.metadata["grid_age_ns"] == [10 * MS]
    assert list(last.values) == ["x", "y", "z", "intensity", "ring", "t_ns"]
    assert same_bits(last.values["y"], np.ascontiguousarray(points(50)["y"]))
