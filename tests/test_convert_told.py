"""Reports of `robocache info` and `robocache convert` on the parts that they do not read: nothing is left out without a
line."""

import json
import os
import shutil
import struct

import numpy as np
import pyarrow as pa

import bags
import foreign
from bags import START
from convert import Stream, write
from test_convert import MS, convert, robocache

T = bags.T


def info(*words, code=0):
    return json.loads(robocache("info", "--json", *words, code=code).stdout)


def recording(folder):
    stamps = START + np.arange(20) * 10 * MS
    return write(folder, {"force": Stream(stamps, np.ones((20, 3), np.float32))})


def bag(folder, kind, messages):
    """Writes a bag with messages of one topic, `/t`, 10 ms apart."""
    bags.write(folder, [("/t", kind, START + i * 10 * MS, message) for i, message in enumerate(messages)])
    return folder


def test_a_folder_with_streams_is_a_recording(tmp_path):
    folder = recording(tmp_path / "rec")
    (folder / "c.csv").write_text("t,x\n1700000000.5,1\n1700000001.5,2\n")
    (folder / "metadata.yaml").write_text("rosbag2_bagfile_information: {}\n")
    shutil.copy(folder / "c.csv", folder / "old.mcap")
    note = f"{folder}: a recording, beside which `c.csv`, `metadata.yaml`, `old.mcap` are not read"
    told = info(folder)
    assert [stream["name"] for stream in told["streams"]] == ["force"] and told["notes"] == [note]
    assert f"left out or stood in for: {note}" in robocache("info", folder).stdout
    told = convert(folder, tmp_path / "out")
    assert told["streams"] == [{"name": "force", "messages": 20}] and told["notes"] == [note]


def test_a_cell_may_be_of_any_length(tmp_path):
    path = tmp_path / "wide.csv"
    names = [f"joint_{i}" for i in range(9000)]
    path.write_text(",".join(["timestamp_ns", *names]) + "\n" + f"{START}" + ",1" * 9000 + "\n")
    lines = robocache("info", path).stdout.splitlines()
    assert lines[2].endswith("...") and max(map(len, lines)) < 1000
    assert "joint_8999" in info(path)["streams"][0]["payload"]


def test_only_files_are_read(tmp_path):
    """Pipes are refused, since opening one waits until somebody writes to it."""
    words = "(allowed: a file"
    for name in ("x.mcap", "x.csv"):
        os.mkfifo(tmp_path / name)
        assert words in robocache("info", tmp_path / name, code=2).stderr
    folder = recording(tmp_path / "rec")
    shutil.copy(folder / "force.arrow", tmp_path / "whole")
    os.mkfifo(folder / "pipe.arrow")
    (folder / "force.arrow").unlink()
    (folder / "force.arrow").symlink_to(tmp_path / "whole")
    told = info(folder, code=1)
    assert told["streams"][0]["messages"] == 20
    assert len(told["problems"]) == 1 and f"{folder}/pipe.arrow: " in told["problems"][0] and words in told["problems"][0]
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.csv").write_text("timestamp_ns,x\n1,2\n")
    os.mkfifo(tmp_path / "tables" / "b.csv")
    assert words in info(tmp_path / "tables", code=1)["problems"][0]


def joints(names, position, velocity=()):
    values = (np.array(values, float) for values in (position, velocity, ()))
    return T["sensor_msgs/msg/JointState"](bags.header(START), list(names), *values)


def test_messages_without_a_sample_are_counted(tmp_path):
    kind = "sensor_msgs/msg/JointState"
    some = [joints("ab", [1, i] if i % 2 else []) for i in range(10)]
    told = convert(bag(tmp_path / "some", kind, some), tmp_path / "out")
    assert told["streams"] == [{"name": "t", "messages": 5}]
    assert told["notes"] == [f"/t ({kind}): of 10 messages 5 give no sample, as `position` is empty"]
    none = [T["tf2_msgs/msg/TFMessage"](transforms=[])] * 3
    told = info(bag(tmp_path / "none", "tf2_msgs/msg/TFMessage", none))
    assert told["notes"] == ["/t (tf2_msgs/msg/TFMessage): of 3 messages 3 give no sample, as `transforms` is empty"]


def test_what_later_messages_have_more_is_named(tmp_path):
    kind = "sensor_msgs/msg/JointState"
    names = [joints("abc" if i else "ab", [i, 2, 3][: 3 if i else 2]) for i in range(4)]
    told = convert(bag(tmp_path / "joints", kind, names), tmp_path / "out")
    words = "`position`: 3 messages have names in `name` that the first did not have, whose values are left out: `c`"
    assert told["notes"] == [f"/t ({kind}): {words}"] and told["streams"][0]["messages"] == 4
    made, kind = bags.Made(), "sensor_msgs/msg/PointCloud2"
    clouds = [made.cloud(START)[0] for _ in range(3)]
    del clouds[0].fields[4]
    told = info(bag(tmp_path / "clouds", kind, clouds))
    assert told["notes"] == [f"/t ({kind}): 2 messages have other columns than the first (x, y, z, intensity, t_ns): `ring`"]


def test_a_bag_is_what_its_metadata_say(tmp_path):
    folder = bag(tmp_path / "bag", "sensor_msgs/msg/Imu", [bags.Made().imu(START)[0]] * 5)
    shutil.copy(folder / "bag.mcap", folder / "bag_1.mcap")
    metadata = (folder / "metadata.yaml").read_text()
    assert info(folder)["notes"][-1] == f"{folder}/metadata.yaml: it does not list `bag_1.mcap`, and what it does not list is not read"
    (folder / "metadata.yaml").write_text(metadata.replace("message_count: 5", "message_count: 9999"))
    told = convert(folder, tmp_path / "out", code=1)
    assert told["problems"] == [f"{folder}: 5 messages were read, and its `metadata.yaml` says that it has 9999"]
    assert told["streams"][0]["messages"] == 5


def test_times_beyond_int64_are_refused(tmp_path):
    late = 1 << 63
    foreign.write(tmp_path / "in.mcap", [("/a", "json", None)], [(0, log, START, b'{"v": 1}') for log in (START, late)])
    told = info(tmp_path / "in.mcap", code=1)
    assert told["streams"][0]["messages"] == 1
    assert told["problems"] == [
        f"/a (no schema): of 2 messages 1 can't be read, the first: it was logged at {late} ns and published at {START} ns (allowed: at most {late - 1})"
    ]


def test_a_chunk_within_a_chunk_is_told(tmp_path):
    def record(op, body):
        return bytes([op]) + struct.pack("<Q", len(body)) + body

    def chunk(body):
        return record(6, struct.pack("<QQQI", 0, 0, len(body), 0) + struct.pack("<I", 0) + struct.pack("<Q", len(body)) + body)

    magic = b"\x89MCAP0\r\n"
    path = tmp_path / "in.mcap"
    path.write_bytes(magic + record(1, bytes(8)) + chunk(chunk(b"")) + record(15, bytes(4)) + record(2, bytes(20)) + magic)
    (problem,) = info(path, code=1)["problems"]
    assert problem.startswith(f"{path}: damaged at byte 25: a record of kind 0x06 within a chunk (allowed: ")


def test_what_is_broken_is_a_problem(tmp_path):
    made = bags.Made()
    image, unknown = made.image(START)[0], made.image(START)[0]
    image.data, unknown.encoding = image.data[:-10], "nv21"
    kind = "sensor_msgs/msg/Image"
    told = convert(bag(tmp_path / "images", kind, [made.image(START)[0], image, unknown]), tmp_path / "out", code=1)
    assert told["problems"] == [
        f"/t ({kind}): of 3 messages 1 can't be read, the first: 4 rows of 24 bytes in 86 (needed: 18 a row for 6 pixels of `rgb8`)"
    ]
    assert told["notes"] == [f"/t ({kind}): of 3 messages 1 can't be taken, the first: encoding `nv21`, whose pixels are not known"]
    clouds = [made.cloud(START, 4)[0] for _ in range(2)]
    clouds[1].data = clouds[1].data[:-1]
    (problem,) = info(bag(tmp_path / "clouds", "sensor_msgs/msg/PointCloud2", clouds), code=1)["problems"]
    assert "of 2 messages 1 can't be read, the first: `data` is 127 bytes (allowed: 128, " in problem
    names = [joints("ab", [1, 2]), joints("abc", [1, 2])]
    (problem,) = info(bag(tmp_path / "names", "sensor_msgs/msg/JointState", names), code=1)["problems"]
    assert "`position` has 2 values for the 3 of `name` (allowed: one for each)" in problem


def test_stamps_without_samples_are_told(tmp_path):
    folder = tmp_path / "rec"
    folder.mkdir()
    stamps = [[1, 2], [1, 2, 3], [1]]
    values = [[1.0, 2.0], [1.0, 2.0], []]
    table = pa.table({
        "timestamp_ns": pa.array([2, 3, 4], pa.int64()),
        "data": pa.array(values, pa.list_(pa.float64())),
        "timestamps_ns": pa.array(stamps, pa.list_(pa.int64())),
    })
    with pa.OSFile(str(folder / "s.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    assert info(folder, code=1)["problems"] == [
        "stream `s`: of 3 messages 2 are not samples, the first: 3 `timestamps_ns` with 2 values (allowed: 1 values for each)"
    ]
