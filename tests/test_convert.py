"""`robocache convert`, on bags that rosbags wrote, value for value."""

import json
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.ipc
import pytest
import yaml
from rosbags.typesys import get_types_from_msg

import bags
from bags import SECOND, START

ROOT = Path(__file__).resolve().parent.parent
MS = 1_000_000


def convert(*words, code=0):
    done = subprocess.run(
        [ROOT / "target/release/robocache", "convert", "--json", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def stream(folder, name):
    return pyarrow.ipc.open_file(folder / f"{name}.arrow").read_all()


def rows(table, column="data"):
    return [np.asarray(row.values) for row in table.column(column).combine_chunks()]


def fields(table):
    return json.loads(table.schema.metadata[b"fields"])


@pytest.fixture(scope="module", params=[None, "lz4", "zstd"])
def nav2(request, tmp_path_factory):
    """Converts a bag like nav2's; gives the recording, the numbers in the bag by topic, and the report."""
    folder = tmp_path_factory.mktemp("nav2")
    made, messages, truth = bags.Made(), [], {}

    def add(topic, kind, stamp_ns, message, value):
        log_ns = stamp_ns + 3 * MS + len(messages)
        messages.append((topic, kind, log_ns, message))
        truth.setdefault(topic, []).append((stamp_ns, log_ns, value))

    for i in range(40):
        ns = START + i * 25 * MS
        add("/imu/data", "sensor_msgs/msg/Imu", ns, *made.imu(ns))
        add("/odom", "nav_msgs/msg/Odometry", ns, *made.odometry(ns))
        order = [("elbow", "shoulder", "wrist"), ("wrist", "elbow", "shoulder")][i % 2]
        add("/joint_states", "sensor_msgs/msg/JointState", ns, *made.joints(ns, order))
        add("/scan", "sensor_msgs/msg/LaserScan", ns, *made.scan(ns))
        add("/points", "sensor_msgs/msg/PointCloud2", ns, *made.cloud(ns, 500 + i))
        add("/camera/image_raw", "sensor_msgs/msg/Image", ns, *made.image(ns))
        add("/tf", "tf2_msgs/msg/TFMessage", ns, *made.transforms(ns, [("odom", "base_link"), ("base_link", "camera/eye")]))
        jpeg = bags.T["sensor_msgs/msg/CompressedImage"](
            header=bags.header(ns, "camera"), format="jpeg", data=np.arange(i + 1, dtype=np.uint8)
        )
        add("/camera/compressed", "sensor_msgs/msg/CompressedImage", ns, jpeg, np.arange(i + 1, dtype=np.uint8))
        add("/chatter", "std_msgs/msg/String", ns, bags.T["std_msgs/msg/String"](data="hello"), None)
    bags.write(folder / "bag", messages, compression=request.param)
    told = convert(folder / "bag", folder / "out")
    return folder / "out", truth, told


def test_stamps_and_times_of_arrival(nav2):
    out, truth, told = nav2
    assert told["problems"] == []
    for topic, name in [("/imu/data", "imu_data"), ("/odom", "odom"), ("/points", "points"), ("/camera/image_raw", "camera_image_raw")]:
        table = stream(out, name)
        assert table["timestamp_ns"].to_pylist() == [stamp for stamp, _, _ in truth[topic]]
        assert table["arrival_ns"].to_pylist() == [log for _, log, _ in truth[topic]]


def test_samples(nav2):
    out, truth, _ = nav2
    for topic, name, width in [("/imu/data", "imu_data", 10), ("/odom", "odom", 13)]:
        table = stream(out, name)
        for row, (_, _, values) in zip(rows(table), truth[topic], strict=True):
            assert row.dtype == np.float64
            np.testing.assert_array_equal(row, values)
        assert len(fields(table)) == width
    assert stream(out, "imu_data").schema.metadata[b"frame_id"] == b"imu_link"
    assert fields(stream(out, "imu_data"))[:2] == ["linear_acceleration.x", "linear_acceleration.y"]


def test_joints_keep_the_order_of_the_first_message(nav2):
    out, truth, told = nav2
    for name, column in [("joint_states", 0), ("joint_states.velocity", 1)]:
        table = stream(out, name)
        assert fields(table) == ["elbow", "shoulder", "wrist"]
        for row, (_, _, values) in zip(rows(table), truth["/joint_states"], strict=True):
            np.testing.assert_array_equal(row, [values[joint][column] for joint in fields(table)])
    assert not (out / "joint_states.effort.arrow").exists()


def test_lists_are_streams_of_their_own(nav2):
    out, truth, _ = nav2
    for row, (_, _, ranges) in zip(rows(stream(out, "scan.ranges")), truth["/scan"], strict=True):
        assert row.dtype == np.float32
        np.testing.assert_array_equal(row, ranges)
    assert fields(stream(out, "scan"))[0] == "angle_min"
    np.testing.assert_array_equal(rows(stream(out, "scan"))[0], np.array([-1.5, 1.5, 0.01, 0, 0.1, 0.1, 30], np.float32))


def test_clouds_have_their_own_fields(nav2):
    out, truth, _ = nav2
    table = stream(out, "points")
    for i, (_, _, points) in enumerate(truth["/points"]):
        for name in ("x", "y", "z", "intensity", "ring"):
            column = np.asarray(table[name].combine_chunks()[i].values)
            assert column.dtype == points[name].dtype
            np.testing.assert_array_equal(column, points[name])
        ns = points["time"].astype(np.float64) * 1e9
        t_ns = np.asarray(table["t_ns"].combine_chunks()[i].values)
        np.testing.assert_array_equal(t_ns, np.trunc(ns + np.copysign(0.5, ns)))


def test_images_lose_what_stands_behind_their_rows(nav2):
    out, truth, _ = nav2
    table = stream(out, "camera_image_raw")
    assert table["shape"].to_pylist() == [[4, 6, 3]] * 40
    assert json.loads(table.schema.metadata[b"metadata"])["encoding"] == "rgb8"
    for row, (_, _, pixels) in zip(rows(table), truth["/camera/image_raw"], strict=True):
        np.testing.assert_array_equal(row.reshape(4, 6, 3), pixels)
    table = stream(out, "camera_compressed")
    assert json.loads(table.schema.metadata[b"metadata"])["encoding"] == "jpeg"
    for row, (_, _, data) in zip(rows(table), truth["/camera/compressed"], strict=True):
        np.testing.assert_array_equal(row, data)


def test_each_pair_of_frames_is_a_stream(nav2):
    out, truth, _ = nav2
    for frames, name in [(("odom", "base_link"), "tf.odom.base_link"), (("base_link", "camera/eye"), "tf.base_link.camera_eye")]:
        table = stream(out, name)
        assert table.schema.metadata[b"frame_id"].decode() == frames[0]
        for row, (_, _, values) in zip(rows(table), truth["/tf"], strict=True):
            np.testing.assert_array_equal(row, values[frames])


def test_what_is_left_out_is_said(nav2):
    _, _, told = nav2
    notes = "\n".join(told["notes"])
    assert "/chatter (std_msgs/msg/String): 40 messages are left out" in notes
    assert "`data` (text)" in notes
    assert "`orientation_covariance` (9 float64)" in notes
    assert "/odom (nav_msgs/msg/Odometry): left out:" in notes and "`child_frame_id` (text)" in notes


def test_types_of_ones_own(tmp_path):
    types = bags.CUSTOM_STORE.types
    random = np.random.default_rng(3)
    messages, position, ragged = [], [], []
    for i in range(10):
        covariance = random.normal(size=21).astype(np.float32)
        xyz = random.normal(size=3).astype(np.float32)
        delta = random.normal(size=2).astype(np.float32)
        message = types["px4_msgs/msg/VehicleLocalPosition"](
            timestamp=1000 * i, xy_valid=i % 2 == 0, z_valid=True, x=xyz[0], y=xyz[1], z=xyz[2], delta_xy=delta,
            xy_reset_counter=7, ref_lat=48.1 + i, ref_timestamp=-i, covariance=types["px4_msgs/msg/Covariance"](values=covariance, quality=-3),
        )
        messages.append(("/fmu/out/vehicle_local_position", "px4_msgs/msg/VehicleLocalPosition", START + i, message))
        position.append([1000 * i, i % 2 == 0, 1, *xyz, *delta, 7, 48.1 + i, -i, *covariance, -3])
        samples = random.normal(size=i).astype(np.float32)
        few = np.arange(i % 8, dtype=np.int16)
        message = types["test_msgs/msg/Ragged"](
            header=bags.header(0), name="n" * i, names=["a"] * i, samples=samples, few=few, nothing=types["test_msgs/msg/Empty"](),
            inner=[types["test_msgs/msg/Inner"](a=1.5, b="b")] * (i % 3), flags=np.array([True, False, i % 2 == 0]),
        )
        messages.append(("ragged", "test_msgs/msg/Ragged", START + i, message))
        ragged.append((samples, few, [1, 0, i % 2 == 0]))
    bags.write(tmp_path / "bag", messages, bags.CUSTOM_STORE)
    told = convert(tmp_path / "bag", tmp_path / "out")
    table = stream(tmp_path / "out", "fmu_out_vehicle_local_position")
    names = fields(table)
    assert names[:8] == ["timestamp", "xy_valid", "z_valid", "x", "y", "z", "delta_xy[0]", "delta_xy[1]"]
    assert names[-2:] == ["covariance.values[20]", "covariance.quality"]
    for row, values in zip(rows(table), position, strict=True):
        np.testing.assert_array_equal(row, np.array(values, np.float64))
    assert table["timestamp_ns"].to_pylist() == [START + i for i in range(10)]
    for name, at in [("ragged.samples", 0), ("ragged.few", 1)]:
        found = rows(stream(tmp_path / "out", name))
        wanted = [values[at] for values in ragged if len(values[at])]
        for row, values in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(row, values)
    for row, (_, _, flags) in zip(rows(stream(tmp_path / "out", "ragged")), ragged, strict=True):
        np.testing.assert_array_equal(row[-3:], flags)
    notes = "\n".join(told["notes"])
    assert "10 of 10 messages have no stamp; the time of their publication stands for it" in notes
    for part in ("`name` (text)", "`names` (list of text)", "`inner` (list of structs)"):
        assert part in notes, notes


def numbers(values) -> object:
    layout = bags.T["std_msgs/msg/MultiArrayLayout"](dim=[], data_offset=0)
    return bags.T["std_msgs/msg/Float64MultiArray"](layout=layout, data=np.asarray(values, np.float64))


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("size", [3, 20_000])
def test_messages_come_in_the_order_in_which_they_were_logged(tmp_path, compression, size):
    """Converts a bag of a writer with several threads: some chunks overlap, and one message is stored 150 messages before its
    place."""
    random = np.random.default_rng(5)
    order = np.argsort(np.arange(300) + random.uniform(0, 12, 300) - 150 * (np.arange(300) == 250))
    messages = [
        ("/a" if i % 3 else "/b", "std_msgs/msg/Float64MultiArray", START + int(i // 2) * 10_000_000, numbers(np.full(size, i))) for i in order
    ]
    bags.write(tmp_path / "bag", messages, compression=compression)
    told = convert(tmp_path / "bag", tmp_path / "out")
    by_time = sorted(messages, key=lambda message: message[2])
    for topic in ("a", "b"):
        table = stream(tmp_path / "out", topic)
        assert table["arrival_ns"].to_pylist() == [ns for name, _, ns, _ in by_time if name == f"/{topic}"]
        assert [row[0] for row in rows(table)] == [message.data[0] for name, *_, message in by_time if name == f"/{topic}"]
    latest = np.maximum.accumulate([ns for *_, ns, _ in messages])
    late = sum(int(ns < before) for (*_, ns, _), before in zip(messages[1:], latest, strict=False))
    assert f"{late} messages stood behind messages that were logged later: they were sorted by log time" in told["notes"]
    # For messages in order, there is no note.
    bags.write(tmp_path / "ordered", by_time, compression=compression)
    assert not any("logged" in note for note in convert(tmp_path / "ordered", tmp_path / "out2")["notes"])


def test_a_bag_without_log_times_is_played_by_its_stamps(tmp_path):
    """The bag holds one topic after the other, as converters of other software write it."""
    made = bags.Made()
    messages = [("/imu", "sensor_msgs/msg/Imu", 0, made.imu(START + i * 10_000_000)[0]) for i in range(300)]
    messages += [("/odom", "nav_msgs/msg/Odometry", 0, made.odometry(START + i * 20_000_000)[0]) for i in range(150)]
    bags.write(tmp_path / "bag", messages)
    convert(tmp_path / "bag", tmp_path / "out")
    assert "arrival_ns" not in stream(tmp_path / "out", "imu").column_names
    config = tmp_path / "fuse.yml"
    rule = {"interpolation": "previous", "max_age_ms": 50}
    modalities = [{"input": "imu", "dim": 10, **rule}, {"input": "odom", "dim": 13, **rule}]
    config.write_text(yaml.safe_dump({"fuse": {"rate_hz": 50, "max_wait_ms": 100, "modalities": modalities}}))
    done = subprocess.run([ROOT / "target/release/robocache", "try", config, tmp_path / "out", "--json"], capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["order"] == "stamp", told
    assert told["offsets"] == [] and told["observations"][0]["count"] > 140, told


def test_nanoseconds_of_more_than_a_second_are_broken(tmp_path):
    """A driver writes all nanoseconds since the start to `nanosec`, instead of the nanoseconds within the second."""
    made, messages = bags.Made(), []
    for i in range(300):
        at = START + i * 10_000_000
        imu, _ = made.imu(at)
        imu.header.stamp.nanosec = (at - START) // 2 + i
        messages.append(("/imu", "sensor_msgs/msg/Imu", at, imu))
    bags.write(tmp_path / "bag", messages)
    told = convert(tmp_path / "bag", tmp_path / "out", code=1)
    broken = sum(imu.header.stamp.nanosec >= 10**9 for *_, imu in messages)
    assert broken == 100 and len(rows(stream(tmp_path / "out", "imu"))) == 200
    words = f"of 300 messages {broken} can't be read, the first: `header.stamp.nanosec` is 1000000200 (allowed: 0 to 999999999)"
    assert any(words in problem for problem in told["problems"]), told


@pytest.mark.parametrize("start", [0, 3, 1_700_000_000])
@pytest.mark.parametrize(("unit", "ns"), [("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)])
def test_a_number_is_the_stamp_in_the_unit_next_to_its_publication(tmp_path, start, unit, ns):
    """The clock of the robot's log counts from 1970 or, as in simulation, from the robot's start."""
    name, kind = "test_msgs/msg/Stamped", "float64"
    bags.CUSTOM_STORE.register(get_types_from_msg(f"{kind} timestamp\nfloat64 value\n", name))
    taken = [start * 10**9 + i * 20_000_000 for i in range(5, 50)]
    messages = [("/it", name, at + 3_000_000, bags.CUSTOM_STORE.types[name](timestamp=at / ns, value=0.5)) for at in taken]
    bags.write(tmp_path / "bag", messages, bags.CUSTOM_STORE)
    told = convert(tmp_path / "bag", tmp_path / "out")
    found = stream(tmp_path / "out", "it")["timestamp_ns"].to_pylist()
    assert max(abs(a - b) for a, b in zip(found, taken, strict=True)) <= 256
    assert f"/it (test_msgs/msg/Stamped): `timestamp` is the stamp, in {unit}, in which it is next to the time of its publication" in told["notes"]


def test_a_stamp_of_0_is_a_time_where_a_clock_begins(tmp_path):
    """A simulation's clock begins at 0, so a stamp of 0 is a time. If the same messages are logged by a wall clock, a stamp of 0 is
    missing."""
    made = bags.Made()
    imus = [made.imu(i * 5_000_000)[0] for i in range(50)]
    bags.write(tmp_path / "sim", [("/imu", "sensor_msgs/msg/Imu", i * 5_000_000 + 2_000_000, imu) for i, imu in enumerate(imus)])
    told = convert(tmp_path / "sim", tmp_path / "out")
    assert stream(tmp_path / "out", "imu")["timestamp_ns"].to_pylist() == [i * 5_000_000 for i in range(50)]
    assert not any("stamp" in note for note in told["notes"]), told
    bags.write(tmp_path / "wall", [("/imu", "sensor_msgs/msg/Imu", START + i * 5_000_000, imu) for i, imu in enumerate(imus)])
    told = convert(tmp_path / "wall", tmp_path / "out2", code=1)
    words = "1 of 50 messages have no stamp, and the time of their publication, which stands for it, is 19675 days from the stamps of others"
    assert any(words in problem for problem in told["problems"]), told


def test_the_unit_of_stamps_can_be_said(tmp_path):
    """The unit of the stamps can be given by an option, if log times of 0 do not tell it, or by a configuration, as for nodes."""
    name = "test_msgs/msg/Stamped2"
    bags.CUSTOM_STORE.register(get_types_from_msg("uint64 timestamp\nfloat64 value\n", name))
    at = [5_000_000 + i * 20_000 for i in range(50)]
    kind = bags.CUSTOM_STORE.types[name]
    bags.write(tmp_path / "bag", [("/it", name, 0, kind(timestamp=us, value=0.5)) for us in at], bags.CUSTOM_STORE)
    told = convert(tmp_path / "bag", tmp_path / "out")
    assert any("it was published at 0 ns, which tells no unit (needed: the unit, as by `--unit us`)" in note for note in told["notes"]), told
    assert "the log times of its first messages are 0: no message has an `arrival_ns`" in told["notes"]
    wanted = [us * 1000 for us in at]
    convert(tmp_path / "bag", tmp_path / "said", "--unit", "us")
    assert stream(tmp_path / "said", "it")["timestamp_ns"].to_pylist() == wanted
    config = tmp_path / "fuse.yml"
    rule = {"dim": 1, "interpolation": "previous", "from": {"columns": ["value"], "stamp": {"path": "timestamp", "unit": "us"}}}
    config.write_text(yaml.safe_dump({"fuse": {"rate_hz": 50, "modalities": [{"input": "it", **rule}]}}))
    told = convert(tmp_path / "bag", tmp_path / "configured", "--config", config)
    assert stream(tmp_path / "configured", "it")["timestamp_ns"].to_pylist() == wanted
    assert not any("is the stamp" in note or "no stamp" in note for note in told["notes"]), told
    # If no message can be taken as configured, the exit code is 2.
    config.write_text(config.read_text().replace("path: timestamp", "metadata: timestamp"))
    assert "none of its messages can be taken as the configuration says" in convert(tmp_path / "bag", tmp_path / "lost", "--config", config, code=2)


def test_no_loss_is_silent(tmp_path):
    made = bags.Made()
    cloud, points = made.cloud(START)
    cloud.fields.append(bags.T["sensor_msgs/msg/PointField"](name="normal", offset=0, datatype=7, count=3))
    poses = bags.T["geometry_msgs/msg/PoseArray"](header=bags.header(START), poses=[bags.pose((1.0, 2.0, 3.0), (0.0, 0.0, 0.0, 1.0))])
    types = bags.T["std_msgs/msg/Int64MultiArray"], bags.T["std_msgs/msg/MultiArrayLayout"]
    numbers = types[0](layout=types[1](dim=[], data_offset=0), data=np.array([2**53, 2**53 + 1, -(2**63), 2**63 - 1]))
    messages = [
        ("/points", "sensor_msgs/msg/PointCloud2", START, cloud),
        ("/poses", "geometry_msgs/msg/PoseArray", START, poses),
        ("/numbers", "std_msgs/msg/Int64MultiArray", START, numbers),
    ]
    # A later cloud has other fields.
    messages.insert(1, ("/points", "sensor_msgs/msg/PointCloud2", START + 1, made.cloud(START + 1)[0]))
    bags.write(tmp_path / "bag", messages)
    notes = convert(tmp_path / "bag", tmp_path / "out")["notes"]
    assert "/points (sensor_msgs/msg/PointCloud2): left out: `normal` (3 float32)" in notes
    assert "/poses (geometry_msgs/msg/PoseArray): 1 messages are left out: there are no numbers in them but `poses` (list of structs)" in notes
    assert "/numbers (std_msgs/msg/Int64MultiArray): numbers beyond 2^53 that are rounded to float64: 2, the first in `data`" in notes
    np.testing.assert_array_equal(rows(stream(tmp_path / "out", "points"), "x")[0], points["x"])


def test_arrays_of_numbers_are_their_data(tmp_path):
    """std_msgs/Float64MultiArray and its siblings become a stream of `data` with the topic's name, whatever their layout says."""
    types = {"Byte": np.uint8, "Float32": np.float32, "Float64": np.float64} | {f"{sign}Int{n}": np.dtype(f"{sign.lower()}int{n}").type for sign in ("", "U") for n in (8, 16, 32, 64)}
    messages, truth = [], {}
    for name, dtype in types.items():
        for i in range(4):
            data = np.arange(i, i + 2 * (i != 2) + i, dtype=dtype)
            dim = [bags.T["std_msgs/msg/MultiArrayDimension"](label="x", size=len(data), stride=1)]
            layout = bags.T["std_msgs/msg/MultiArrayLayout"](dim=dim, data_offset=7)
            messages.append((f"/{name}", f"std_msgs/msg/{name}MultiArray", START + i, bags.T[f"std_msgs/msg/{name}MultiArray"](layout=layout, data=data)))
            truth.setdefault(name, []).append(data)
    bags.write(tmp_path / "bag", messages)
    told = convert(tmp_path / "bag", tmp_path / "out")
    assert sorted(stream["name"] for stream in told["streams"]) == sorted(types)
    for name, dtype in types.items():
        table = stream(tmp_path / "out", name)
        for row, data in zip(rows(table), truth[name], strict=True):
            assert row.dtype == (np.float32 if dtype == np.float32 else np.float64)
            np.testing.assert_array_equal(row, data)
        assert f"/{name} (std_msgs/msg/{name}MultiArray): left out: `layout.data_offset` (uint32), `layout.dim` (list of structs)" in told["notes"]


def opened(path):
    """Messages that rosbags reads from a file: a list of (log time, message) for each topic."""
    from rosbags.highlevel import AnyReader

    found = {}
    with AnyReader([path]) as reader:
        for connection, time, raw in reader.messages():
            found.setdefault(connection.topic, []).append((time, reader.deserialize(raw, connection.msgtype)))
    return found


def test_rosbags_opens_what_is_written(nav2, tmp_path):
    out, truth, _ = nav2
    told = convert(out, tmp_path / "out.mcap")
    assert (told["problems"], told["notes"]) == ([], [])
    found = opened(tmp_path / "out.mcap")
    kinds = {topic: messages[0][1].__msgtype__ for topic, messages in found.items()}
    assert kinds == {
        "/imu_data": "sensor_msgs/msg/Imu",
        "/odom": "nav_msgs/msg/Odometry",
        "/joint_states": "sensor_msgs/msg/JointState",
        "/joint_states/velocity": "sensor_msgs/msg/JointState",
        "/tf/odom/base_link": "geometry_msgs/msg/PoseStamped",
        "/tf/base_link/camera_eye": "geometry_msgs/msg/PoseStamped",
        "/points": "sensor_msgs/msg/PointCloud2",
        "/camera_image_raw": "robocache_msgs/msg/TensorUint8",
        "/camera_compressed": "robocache_msgs/msg/TensorUint8",
        "/scan": "sensor_msgs/msg/JointState",
        "/scan/ranges": "robocache_msgs/msg/TensorFloat32",
    }
    for (time, imu), (stamp, log, values) in zip(found["/imu_data"], truth["/imu/data"], strict=True):
        assert (time, imu.header.stamp.sec * SECOND + imu.header.stamp.nanosec) == (log, stamp)
        a, g, q = imu.linear_acceleration, imu.angular_velocity, imu.orientation
        np.testing.assert_array_equal([a.x, a.y, a.z, g.x, g.y, g.z, q.x, q.y, q.z, q.w], values)
        assert imu.header.frame_id == "imu_link" and not imu.orientation_covariance.any()
    for (_, odometry), (_, _, values) in zip(found["/odom"], truth["/odom"], strict=True):
        p, q = odometry.pose.pose.position, odometry.pose.pose.orientation
        v, w = odometry.twist.twist.linear, odometry.twist.twist.angular
        np.testing.assert_array_equal([p.x, p.y, p.z, q.x, q.y, q.z, q.w, v.x, v.y, v.z, w.x, w.y, w.z], values)
    for (_, joints), (_, _, values) in zip(found["/joint_states"], truth["/joint_states"], strict=True):
        assert joints.name == ["elbow", "shoulder", "wrist"]
        np.testing.assert_array_equal(joints.position, [values[name][0] for name in joints.name])
    for (_, pose), (_, _, values) in zip(found["/tf/odom/base_link"], truth["/tf"], strict=True):
        p, q = pose.pose.position, pose.pose.orientation
        np.testing.assert_array_equal([p.x, p.y, p.z, q.x, q.y, q.z, q.w], values["odom", "base_link"])
    numpy_types = {2: np.uint8, 4: np.uint16, 7: np.float32, 8: np.float64}
    for (_, cloud), (_, _, points) in zip(found["/points"], truth["/points"], strict=True):
        layout = [(field.name, numpy_types[field.datatype]) for field in cloud.fields]
        read = np.frombuffer(cloud.data.tobytes(), layout)
        for name in ("x", "y", "z", "intensity", "ring"):
            np.testing.assert_array_equal(read[name], points[name])
    for (_, image), (stamp, _, pixels) in zip(found["/camera_image_raw"], truth["/camera/image_raw"], strict=True):
        assert (list(image.shape), image.timestamp_ns) == ([4, 6, 3], stamp)
        assert json.loads(image.metadata)["encoding"] == "rgb8"
        np.testing.assert_array_equal(image.values.reshape(4, 6, 3), pixels)


def test_a_bag_goes_out_and_comes_back_to_the_byte(nav2, tmp_path):
    out, _, _ = nav2
    convert(out, tmp_path / "out.mcap")
    convert(tmp_path / "out.mcap", tmp_path / "back")
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in (tmp_path / "back").iterdir())
    for path in out.iterdir():
        assert path.read_bytes() == (tmp_path / "back" / path.name).read_bytes(), path.name


def write_recording(folder, name, columns, metadata):
    """Writes a stream of one message, as docs/messages.md describes it."""
    folder.mkdir(exist_ok=True)
    table = pyarrow.table({"timestamp_ns": pyarrow.array([START]), **{key: pyarrow.array([value]) for key, value in columns.items()}})
    table = table.replace_schema_metadata({"metadata": json.dumps(metadata)})
    with pyarrow.ipc.new_file(folder / f"{name}.arrow", table.schema) as file:
        file.write_table(table)


def test_occupied_cells_are_points(tmp_path):
    grid = {"origin_m": [-1.0, 0.0, 10.0], "voxel_size_m": [0.5, 1.0, 2.0], "grid_shape": [2, 3, 4]}
    dense = np.zeros((2, 2, 3, 4), np.float32)
    dense[:, 1, 2, 3] = 1, 7
    dense[:, 0, 1, 2] = 1, 3
    bits = np.packbits(dense[0].astype(bool).ravel(), bitorder="little")
    folder = tmp_path / "recording"
    write_recording(folder, "dense", {"data": dense.ravel(), "shape": [2, 2, 3, 4]}, {**grid, "channels": ["occupancy", "count"]})
    write_recording(folder, "bits", {"data": bits, "shape": [2, 3, 4]}, {**grid, "channels": ["occupancy"]})
    convert(folder, tmp_path / "out.mcap")
    found = opened(tmp_path / "out.mcap")
    centres = [[-0.75, 1.5, 15.0], [-0.25, 2.5, 17.0]]
    ((_, cloud),) = found["/dense/points"]
    assert [field.name for field in cloud.fields] == ["x", "y", "z", "occupancy", "count"]
    np.testing.assert_array_equal(cloud.data.view(np.float32).reshape(-1, 5), [[*centres[0], 1, 3], [*centres[1], 1, 7]])
    ((_, cloud),) = found["/bits/points"]
    np.testing.assert_array_equal(cloud.data.view(np.float32).reshape(-1, 3), centres)
    ((_, tensor),) = found["/dense"]
    np.testing.assert_array_equal(tensor.values.reshape(dense.shape), dense)
    told = convert(tmp_path / "out.mcap", tmp_path / "back")
    assert [stream["name"] for stream in told["streams"]] == ["bits", "dense"]


def test_a_table_keeps_every_digit_of_its_times(tmp_path):
    path = tmp_path / "force.csv"
    path.write_text("#timestamp [ns],fx,label,fy\r\n1403636579758555393,0.1,a,\r\n# a remark\r\n1403636579758555394,nan,b,2\r\n3,4\r\nx,1,b,2\r\n")
    told = convert(path, tmp_path / "out", code=1)
    table = stream(tmp_path / "out", "force")
    assert table["timestamp_ns"].to_pylist() == [1403636579758555393, 1403636579758555394]
    assert fields(table) == ["fx", "fy"]
    np.testing.assert_array_equal(np.array([row for row in rows(table)]), [[0.1, np.nan], [np.nan, 2]])
    assert told["notes"] == [
        f"{path}: column `#timestamp [ns]` is the time, in ns (as its name says)",
        f"{path}: left out, as they hold text: `label`",
    ]
    assert told["problems"] == [
        f"{path}:5: 2 cells (allowed: 4, as in the line of names)",
        f"{path}:6: column `#timestamp [ns]`: `x` is not a time in ns",
        f"{path}: of 4 rows 2 can't be read",
    ]


def test_tables_as_others_write_them(tmp_path):
    """A table may have comments before the names, times in ISO 8601, missing values, separators at the end, and line breaks in
    quotes."""
    path = tmp_path / "log.csv"
    path.write_text(
        "\ufeff# made by a logger\n# 2023\n\ntime,fx,label,fy,\n"
        '2023-11-14T22:13:20.000000001Z,1,"a\n""b""",NA,\n'
        "2023-11-14 22:13:20.5,,c,nan,\n"
        '2023-11-14T23:13:21+01:00, 2 ,"d, e",null\n'
        "   \n"
        "2023-11-14,1,q,x,\n"
        '"2023,1\n'
        "2023-11-14T22:13:22Z,9007199254740993,q,4,\n"
        "2023-11-14T22:13:23Z,3,q,4,5\n"
        "yesterday,3,q,4\n"
    )
    told = convert(path, tmp_path / "out", code=1)
    table, nan = stream(tmp_path / "out", "log"), np.nan
    second = 1_700_000_000 * SECOND
    assert table["timestamp_ns"].to_pylist() == [second + 1, second + 500 * MS, second + SECOND, second + 2 * SECOND]
    np.testing.assert_array_equal(rows(table), [[1, nan], [nan, nan], [2, nan], [2.0**53, 4]])
    assert fields(table) == ["fx", "fy"]
    assert told["notes"] == [
        f"{path}: column `time` is the time, in ISO 8601",
        f"{path}: left out, as they hold text: `label`",
        f"{path}: times without a zone, taken for UTC: 1",
        f"{path}: whole numbers that have more digits than float64 holds, and were rounded: 1",
    ]
    assert told["problems"] == [
        f"{path}:10: column `fy`: `x` is not a number",
        f"{path}:11: 1 cells in several lines (allowed: 4); is a quote not closed?",
        f"{path}:13: 5 cells (allowed: 4, as in the line of names)",
        f"{path}:14: column `time`: `yesterday` is not a time in ISO 8601",
        f"{path}: of 8 rows 4 can't be read",
    ]


@pytest.mark.parametrize(
    ("text", "names", "stamps"),
    [
        # NumPy writes names to the last remark.
        ("# a remark\n# t_s, x\n1.5,2\n", ["x"], [1_500 * MS]),
        ("# remarks, with commas\nt_s;x\n1.5;2\n", ["x"], [1_500 * MS]),
        # R and pandas write a first column without a name, which numbers the rows.
        ('"","t_s","x"\n"0",1.5,2\n', ["", "x"], [1_500 * MS]),
        # If the first value of a column is missing, a later one tells whether it is text.
        ("t_s,x,note\n1.5,NA,\n2.5,1,a\n", ["x"], [1_500 * MS, 2_500 * MS]),
        ("t_s,x\r1.5,2\r2.5,3\r", ["x"], [1_500 * MS, 2_500 * MS]),
    ],
)
def test_where_the_names_of_a_table_stand(tmp_path, text, names, stamps):
    path = tmp_path / "log.csv"
    path.write_text(text, newline="")
    convert(path, tmp_path / "out")
    table = stream(tmp_path / "out", "log")
    assert (fields(table), table["timestamp_ns"].to_pylist()) == (names, stamps)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an empty file (allowed: a line of names)"),
        ("1,2\n3,4\n", "numbers in the first line (allowed: the names of the columns)"),
        (",,\n", "no name in the first line"),
        ("t_s,x\n1,a\n", "no column of numbers beside the time"),
        ("t,x\nsoon,1\n", "the unit of column `t` is not known: its first time is `soon`"),
        # Nanoseconds since a start, which have as many digits as seconds since 1970.
        (
            "t,x\n5000000000,1\n5010000000,2\n",
            "the unit of column `t` is not known: its first time is `5000000000`: in s since 1970 its rows are 10000000 s apart "
            "(needed: the unit, as by `--unit us`: s, ms, us or ns)",
        ),
        ("x,y\n1,2\n", "no column of times among x, y (looked for: timestamp, time, stamp, t, ...; another one as by `--time NAME`)"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, text, words):
    path = tmp_path / "log.csv"
    path.write_text(text)
    assert words in convert(path, tmp_path / "out", code=2)


@pytest.mark.parametrize("text", ["t_s,Größe\n1,2\n", "# t_s,Größe\n1,2\n"])
def test_names_in_another_encoding_are_refused(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_bytes(text.encode("latin-1"))
    assert "log.csv: the names of the columns are not UTF-8: `Gr\ufffd\ufffde` (allowed: UTF-8; " in convert(path, tmp_path / "out", code=2)
    # A remark may be in any encoding.
    path.write_bytes("# Größen\nt_s,x\n1,2\n".encode("latin-1"))
    convert(path, tmp_path / "out")
    assert fields(stream(tmp_path / "out", "log")) == ["x"]


def test_damaged_tables_are_read_or_refused(tmp_path):
    """Whatever bytes are wrong, the command exits with 0, 1 or 2, and does not panic."""
    lines = ["# made by a logger", "time,x,label,y"]
    lines += [f'2023-11-14T22:13:{i % 60:02}Z,{i},"a\n{i}",{i / 7}' for i in range(50)]
    whole, chance = "\n".join(lines).encode(), np.random.default_rng(3)
    pieces = [b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"#", b"1e999", b'"""', b"\t;", b"2023-"]
    ends = []
    for i in range(300):
        broken = whole
        for _ in range(chance.integers(1, 4)):
            at = int(chance.integers(len(broken)))
            match chance.integers(3):
                case 0:
                    broken = broken[:at]
                case 1:
                    broken = broken[:at] + pieces[chance.integers(len(pieces))] + broken[at:]
                case _:
                    broken = broken[:at] + broken[at + int(chance.integers(1, 20)) :]
        path = tmp_path / f"d{i % 7}.csv"
        path.write_bytes(broken)
        done = subprocess.run([ROOT / "target/release/robocache", "convert", path, tmp_path / f"o{i}"], capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode in (0, 1, 2) and "panicked" not in done.stderr, done.stderr
        ends.append(done.returncode)
    assert set(ends) == {0, 1, 2}


def test_columns_of_a_table_become_streams(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("t\timu/a.x\timu/a.y\tgps/lat\n10\t1\t2\t3\n20\t4\t5\t6\n")
    error = convert(path, tmp_path / "out", code=2)
    assert "the unit of column `t` is not known" in error
    convert(path, tmp_path / "out", "--unit", "ms", "--by-prefix")
    table = stream(tmp_path / "out", "imu_a")
    assert (fields(table), table["timestamp_ns"].to_pylist()) == (["x", "y"], [10 * MS, 20 * MS])
    np.testing.assert_array_equal(rows(stream(tmp_path / "out", "gps"))[1], [6])


def test_a_folder_of_tables(tmp_path):
    """Each table becomes a stream. Two tables that would be one stream are refused, and a file that is not read is named."""
    tables = tmp_path / "tables"
    tables.mkdir()
    for name in ("left arm.csv", "RIGHT.CSV", "x.Tsv", "notes.txt"):
        (tables / name).write_text("t_s,x\n1.5,2\n")
    told = convert(tables, tmp_path / "out")
    assert [stream["name"] for stream in told["streams"]] == ["RIGHT", "left_arm", "x"]
    assert any(f"{tables}/notes.txt: left out" in note for note in told["notes"]), told["notes"]
    for name in ("left_arm.csv", "x.csv"):
        (tables / name).write_text("t_s,other\n1.5,2\n")
        words = convert(tables, tmp_path / "again", code=2)
        stem = name.removesuffix(".csv")
        assert f"both are the stream `{stem}` (allowed: one table for each stream)" in words and f"{tables}/{name}" in words
        (tables / name).unlink()
    for name in ("left arm.csv", "RIGHT.CSV"):
        (tables / name).write_text("t_s,imu.x\n1.5,2\n")
    assert "both are the stream `imu`" in convert(tables, tmp_path / "again", "--by-prefix", code=2)


@pytest.mark.parametrize("shift", [-8, 1, 8])
def test_a_part_of_a_batch_that_is_elsewhere_is_no_data(tmp_path, shift):
    """The bytes at a wrong offset of a batch's part would be read as numbers, too, but as other numbers."""
    folder, values = tmp_path / "recording", list(range(101))
    folder.mkdir()
    schema = pyarrow.schema({"timestamp_ns": pyarrow.int64(), "data": pyarrow.list_(pyarrow.uint8()), "shape": pyarrow.list_(pyarrow.int64())})
    with pyarrow.ipc.new_file(folder / "a.arrow", schema) as file:
        for i in range(2):
            file.write(pyarrow.record_batch([[START + i], [values], [[101]]], schema))
    assert convert(folder, tmp_path / "whole")["problems"] == []
    damaged = bytearray((folder / "a.arrow").read_bytes())
    struct.pack_into("<q", damaged, damaged.index(struct.pack("<qq", 16, 101)), 16 + shift)
    (folder / "a.arrow").write_bytes(damaged)
    told = convert(folder, tmp_path / "out", code=1)
    assert len(told["problems"]) == 1 and "a part of a batch at byte" in told["problems"][0], told["problems"]
    assert stream(tmp_path / "out", "a")["timestamp_ns"].to_pylist() == [START + 1]


def test_columns_that_no_tensor_has_are_named(tmp_path):
    folder = tmp_path / "recording"
    folder.mkdir()
    table = pyarrow.table({"timestamp_ns": [START], "data": [[1.0]], "uimestamps_ns": [[START]]})
    for metadata, code in [({"dtype": "float64"}, 1), ({}, 0)]:
        with pyarrow.ipc.new_file(folder / "a.arrow", table.schema.with_metadata(metadata)) as file:
            file.write_table(table.replace_schema_metadata(metadata))
        told = convert(folder, tmp_path / f"out{code}", code=code)
        assert len(rows(stream(tmp_path / f"out{code}", "a"))) == 1
        info = json.loads(robocache("info", "--json", folder, code=code).stdout)
        for problems in (told["problems"], info["problems"]):
            assert len(problems) == code and all("a.arrow: columns that a tensor does not have are left out: `uimestamps_ns` (allowed: " in it for it in problems)


def test_tables_out(nav2, tmp_path):
    out, truth, _ = nav2
    told = convert(out, tmp_path / "tables", "--to", "csv", code=1)
    # JPEGs differ in their numbers of bytes.
    assert told["problems"] == ["stream `camera_compressed`: a row of 2 values, and the first has 1 values (allowed: the same)"]
    lines = (tmp_path / "tables" / "imu_data.csv").read_text().splitlines()
    assert lines[0].startswith("timestamp_ns,arrival_ns,linear_acceleration.x,")
    for line, (stamp, log, values) in zip(lines[1:], truth["/imu/data"], strict=True):
        cells = line.split(",")
        assert (int(cells[0]), int(cells[1])) == (stamp, log)
        np.testing.assert_array_equal([float(cell) for cell in cells[2:]], values)
    cloud = (tmp_path / "tables" / "points.csv").read_text().splitlines()
    assert cloud[0] == "timestamp_ns,arrival_ns,x,y,z,intensity,ring,t_ns"
    assert len(cloud) == 1 + sum(len(points) for _, _, points in truth["/points"])
    convert(tmp_path / "tables" / "imu_data.csv", tmp_path / "back")
    for name in ("timestamp_ns", "arrival_ns", "data"):
        assert stream(tmp_path / "back", "imu_data")[name].equals(stream(out, "imu_data")[name])


def test_a_bag_of_several_files(tmp_path):
    made = bags.Made()
    bag = tmp_path / "bag"
    bag.mkdir()
    values = []
    for i in range(3):
        imus = [made.imu(START + (3 * i + k) * MS) for k in range(3)]
        values += [value for _, value in imus]
        messages = [("/imu", "sensor_msgs/msg/Imu", START + (3 * i + k) * MS, imu) for k, (imu, _) in enumerate(imus)]
        bags.write(tmp_path / f"part_{i}", messages)
        (tmp_path / f"part_{i}" / f"part_{i}.mcap").rename(bag / f"bag_{i}.mcap")
    metadata = (tmp_path / "part_0" / "metadata.yaml").read_text()
    # The list of files has another order than their names, and counts.
    listed = "".join(f"\n  - bag_{i}.mcap" for i in (0, 2, 1))
    metadata = metadata.replace("message_count: 3", "message_count: 9")
    (bag / "metadata.yaml").write_text(metadata.replace("\n  - part_0.mcap", listed))
    convert(bag, tmp_path / "out")
    table = stream(tmp_path / "out", "imu")
    np.testing.assert_array_equal(rows(table), [values[i] for i in (0, 1, 2, 6, 7, 8, 3, 4, 5)])
    (bag / "bag_0.mcap").unlink()
    told = convert(bag, tmp_path / "rest", code=1)
    assert len(rows(stream(tmp_path / "rest", "imu"))) == 6
    assert told["problems"] == [f"{bag}/bag_0.mcap: No such file or directory (os error 2)"]
    for before, after, words in [
        ("storage_identifier: mcap", "storage_identifier: my_plugin", "storage `my_plugin` (allowed: mcap, sqlite3)"),
        ("compression_format: ''", "compression_format: lz4", "`compression_format: lz4` (allowed: zstd)"),
    ]:
        assert before in metadata
        (bag / "metadata.yaml").write_text(metadata.replace(before, after))
        assert words in convert(bag, tmp_path / "none", code=2)


def test_what_can_not_be_taken_is_counted(tmp_path):
    made = bags.Made()
    cloud, _ = made.cloud(START)
    cloud.fields[0].name = "range"
    joints, _ = made.joints(START, ("elbow", "wrist"))
    fewer, _ = made.joints(START, ("elbow",))
    covariance = made.numbers(36)
    pose = bags.pose(made.numbers(3), made.numbers(4))
    amcl = bags.T["geometry_msgs/msg/PoseWithCovarianceStamped"](
        header=bags.header(0, "map"), pose=bags.T["geometry_msgs/msg/PoseWithCovariance"](pose=pose, covariance=covariance)
    )
    bags.write(
        tmp_path / "bag",
        [
            ("/lidar", "sensor_msgs/msg/PointCloud2", START, cloud),
            ("/arm/joints", "sensor_msgs/msg/JointState", START, joints),
            ("/arm/joints", "sensor_msgs/msg/JointState", START, fewer),
            ("/arm_joints", "geometry_msgs/msg/PoseWithCovarianceStamped", START, amcl),
        ],
    )
    told = convert(tmp_path / "bag", tmp_path / "out")
    assert told["notes"] == [
        "/arm/joints (sensor_msgs/msg/JointState): of 2 messages 1 can't be taken, the first: no `wrist`: `name` has elbow",
        "/arm_joints (geometry_msgs/msg/PoseWithCovarianceStamped): 1 of 1 messages have no stamp; the time of their publication stands for it",
        "/lidar (sensor_msgs/msg/PointCloud2): of 1 messages 1 can't be taken, the first: no `x`: `fields` has range, y, z, intensity, ring, time",
        "/arm_joints: its stream is `arm_joints_2`, as `arm_joints` is another's",
    ]
    # This message has the fields of a PoseStamped, but other fields within them.
    (row,) = rows(stream(tmp_path / "out", "arm_joints_2"))
    p, q = pose.position, pose.orientation
    np.testing.assert_array_equal(row, [p.x, p.y, p.z, q.x, q.y, q.z, q.w, *covariance])


def test_a_configuration_says_what_is_taken(tmp_path):
    made = bags.Made()
    joints, values = made.joints(START, ("elbow", "shoulder", "wrist"))
    imu, numbers = made.imu(START)
    bags.write(tmp_path / "bag", [("/arm/joints", "sensor_msgs/msg/JointState", START, joints), ("/imu", "sensor_msgs/msg/Imu", START, imu)])
    config = tmp_path / "robocache.yml"
    config.write_text(
        """
fuse:
  rate_hz: 30
  modalities:
    - { input: arm_joints, dim: 2, interpolation: linear, from: { columns: [velocity], names: { key: name, order: [wrist, elbow] } } }
    - { input: imu, dim: 4, interpolation: slerp, from: { columns: [orientation] } }
"""
    )
    convert(tmp_path / "bag", tmp_path / "out", "--config", config)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["arm_joints.arrow", "imu.arrow"]
    np.testing.assert_array_equal(rows(stream(tmp_path / "out", "arm_joints"))[0], [values["wrist"][1], values["elbow"][1]])
    np.testing.assert_array_equal(rows(stream(tmp_path / "out", "imu"))[0], numbers[6:])
    assert "robocache.yml" in convert(tmp_path / "bag", tmp_path / "none", "--config", tmp_path / "robocache.yml.missing", code=2)


def test_a_cut_loses_little_as_batches_are_small(tmp_path):
    """A batch of a recording holds at most a second and at most 1 MiB, so a file that is cut off loses little."""
    folder = tmp_path / "recording"
    folder.mkdir()
    for name, count, step, dim in [("slow", 600, 100 * MS, 1), ("large", 200, 20 * MS, 25_000)]:
        columns = {
            "timestamp_ns": pyarrow.array([START + i * step for i in range(count)], pyarrow.int64()),
            "data": pyarrow.array([np.full(dim, i, np.float32) for i in range(count)], pyarrow.list_(pyarrow.float32())),
        }
        table = pyarrow.table(columns)
        with pyarrow.ipc.new_file(folder / f"{name}.arrow", table.schema) as file:
            file.write_table(table)
    convert(folder, tmp_path / "out")
    convert(folder, tmp_path / "again")
    for name, bytes_each, step in [("slow", 4, 100 * MS), ("large", 100_000, 20 * MS)]:
        path = tmp_path / "out" / f"{name}.arrow"
        with pyarrow.ipc.open_file(path) as file:
            rows = [file.get_batch(i).num_rows for i in range(file.num_record_batches)]
        assert max(rows) * bytes_each <= 1 << 20 and max(rows) * step <= 1000 * MS, rows
        # Batches are not smaller than these limits require.
        assert len(rows) <= 130, rows
        assert path.read_bytes() == (tmp_path / "again" / f"{name}.arrow").read_bytes()


def robocache(*words, code=0):
    done = subprocess.run([ROOT / "target/release/robocache", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_inputs_that_match_no_topic_are_named(tmp_path):
    made = bags.Made()
    bags.write(tmp_path / "bag", [("/imu/data", "sensor_msgs/msg/Imu", START + i, made.imu(START + i)[0]) for i in range(3)])
    config = tmp_path / "robocache.yml"
    modalities = "".join(f"\n    - {{ input: {name}, dim: 10, interpolation: previous }}" for name in ("imu/data", "imu_data", "imu", "wrench"))
    config.write_text(f"fuse:\n  rate_hz: 30\n  modalities:{modalities}\n")
    told = convert(tmp_path / "bag", tmp_path / "out", "--config", config)
    assert told["notes"][-1] == f"{config}: nothing came for its inputs `imu`, `wrench`: no stream or topic with messages has that name (there are: imu_data)"


def test_one_table_is_a_file(nav2, tmp_path):
    out, _, _ = nav2
    error = convert(out, tmp_path / "x.csv", code=2)
    assert "x.csv: a table has one stream, and there are `camera_compressed`, `camera_image_raw`," in error and "--to csv" in error
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "one").mkdir()
    shutil.copy(out / "imu_data.arrow", tmp_path / "one")
    convert(tmp_path / "one", tmp_path / "x.csv")
    convert(tmp_path / "one", tmp_path / "tables", "--to", "csv")
    assert (tmp_path / "x.csv").read_bytes() == (tmp_path / "tables/imu_data.csv").read_bytes()
    # The number of streams in a bag is found out only while it is converted.
    made = bags.Made()
    messages = [(f"/{name}", "sensor_msgs/msg/Imu", START, made.imu(START)[0]) for name in "ab"]
    bags.write(tmp_path / "bag", messages)
    assert "a table has one stream, and there are `a`, `b`" in convert(tmp_path / "bag", tmp_path / "y.csv", code=2)
    assert "no .tsv is written (allowed: .mcap, .csv, and folders" in convert(tmp_path / "bag", tmp_path / "y.tsv", code=2)
    assert not list(tmp_path.glob("y.*"))


def test_info_of_what_convert_reads(nav2, tmp_path):
    """`info` gives the same streams and figures for an MCAP file as for the recording that `convert` made it from."""
    out, _, _ = nav2
    convert(out, tmp_path / "out.mcap")
    of_recording = json.loads(robocache("info", "--json", out).stdout)
    of_file = json.loads(robocache("info", "--json", tmp_path / "out.mcap").stdout)
    assert of_file["duration_s"] == of_recording["duration_s"]
    for of in (of_recording, of_file):
        for stream in of["streams"]:
            assert stream.pop("bytes") > 0
    assert of_file["streams"] == of_recording["streams"]
    path = tmp_path / "log.csv"
    path.write_text("t,x\n1,2\n2,3\nx,4\n")
    assert "the unit of column `t` is not known" in robocache("info", path, code=2).stderr
    text = robocache("info", path, "--unit", "ms", code=1).stdout
    assert "log  " in text and "left out or stood in for:" in text and "can't be read: " in text
    bags.write(tmp_path / "bag", [("/a", "std_msgs/msg/String", START, bags.T["std_msgs/msg/String"](data="hello"))], storage="sqlite3")
    assert "/a (std_msgs/msg/String): 1 messages are left out" in robocache("info", tmp_path / "bag").stdout


def test_names_of_topics_reach_no_terminal_as_they_are(tmp_path):
    name = "/a\x1b[31m\nrobocache: all is well\r\x9b2J\u202ex"
    writer = bags.Writer(tmp_path / "bag", version=9, storage_plugin=bags.StoragePlugin.SQLITE3)
    with writer:
        for topic, kind, message in [(name, "std_msgs/msg/String", bags.T["std_msgs/msg/String"](data="x")), (f"{name}/n", "std_msgs/msg/Float64", bags.T["std_msgs/msg/Float64"](data=1.0))]:
            writer.write(writer.add_connection(topic, kind, typestore=bags.STORE), START, bags.STORE.serialize_cdr(message, kind))
    written = "/a\\u{1b}[31m\\nrobocache: all is well\\r\\u{9b}2J\\u{202e}x"
    for words in (("convert", tmp_path / "bag", tmp_path / "out"), ("info", tmp_path / "bag"), ("info", tmp_path / "out"), ("convert", tmp_path / "bag", tmp_path / f"none/\x1b[31m\n{'x' * 300}")):
        done = subprocess.run([ROOT / "target/release/robocache", *words], capture_output=True, text=True, check=False)
        assert not any(c in done.stdout + done.stderr for c in "\x1b\r\x9b\u202e"), done
        assert "\nrobocache: all" not in done.stdout and done.stderr.count("\n") <= 1
        if words[1] == tmp_path / "bag" and done.returncode == 0:
            assert written in done.stdout


def test_a_path_is_no_yaml(tmp_path):
    """The name of a dataset's folder has a line break, which would end the YAML comment that names the folder."""
    folder = tmp_path / "x\nplugins: []\n#"
    source = tmp_path / "recording"
    write_recording(source, "a", {"data": [0.5], "shape": [1]}, {})
    config = tmp_path / "robocache.yml"
    config.write_text("fuse:\n  rate_hz: 10\n  trigger: { stream: a }\n  modalities: [{ input: a, dim: 1, interpolation: previous }]\nlerobot: { fps: 10 }\n")
    convert(source, folder, "--to", "lerobot", "--config", config)
    convert(folder, tmp_path / "back")
    made = yaml.safe_load((tmp_path / "back/robocache.yml").read_text())
    assert sorted(made) == ["fuse", "lerobot"]
    for odd in ("no\nde: 1 #", "a: b", "it's \"q\""):
        nodes = tmp_path / odd
        nodes.mkdir()
        robocache("new", tmp_path / f"new-{odd}"[:20].replace("\n", "_"), "--sensor", "force:6@100", "--nodes", nodes, "--python", odd)
        (flow,) = (yaml.safe_load(path.read_text()) for path in tmp_path.glob("new-*/dataflow.yml"))
        paths = {node["id"]: node["path"] for node in flow["nodes"]}
        assert paths == {"force": odd, "fuse": str(nodes / "robocache-fuse"), "show": odd}
        shutil.rmtree(next(tmp_path.glob("new-*")))
