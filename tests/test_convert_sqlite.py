"""`robocache convert`, on bags in SQLite and on bags compressed by file or by message, value for value."""

import contextlib
import os
import random
import sqlite3
import struct
import subprocess

import numpy as np
import pytest
from backports import zstd

import bags
from bags import START
from test_convert import MS, ROOT, convert, rows, stream


def made(count=40, seed=1):
    """Makes messages of several topics, and returns the numbers in them as well."""
    made, messages, truth = bags.Made(seed), [], {}
    for i in range(count):
        ns = START + i * 25 * MS
        for topic, kind, (message, value) in [
            ("/imu", "sensor_msgs/msg/Imu", made.imu(ns)),
            ("/odom", "nav_msgs/msg/Odometry", made.odometry(ns)),
            ("/points", "sensor_msgs/msg/PointCloud2", made.cloud(ns, 300 + i)),
        ]:
            messages.append((topic, kind, ns + 3 * MS, message))
            truth.setdefault(topic, []).append(value)
    return messages, truth


def check(out, truth, told):
    assert told["problems"] == []
    for topic in ("imu", "odom"):
        table = stream(out, topic)
        np.testing.assert_array_equal(np.array(rows(table)), np.array(truth[f"/{topic}"]))
        assert table["timestamp_ns"].to_pylist() == [START + i * 25 * MS for i in range(len(truth["/imu"]))]
        assert table["arrival_ns"].to_pylist() == [START + (i * 25 + 3) * MS for i in range(len(truth["/imu"]))]
    clouds = stream(out, "points")
    for i, points in enumerate(truth["/points"]):
        for name in ("x", "intensity", "ring"):
            np.testing.assert_array_equal(np.asarray(clouds[name].combine_chunks()[i].values), points[name])


@pytest.mark.parametrize("storage", ["sqlite3", "mcap"])
@pytest.mark.parametrize("compression", [None, "file", "message"])
def test_every_kind_of_bag(tmp_path, storage, compression):
    messages, truth = made()
    bags.write(tmp_path / "bag", messages, compression=compression, storage=storage)
    check(tmp_path / "out", truth, convert(tmp_path / "bag", tmp_path / "out"))
    # The bag's file alone.
    (path,) = (path for path in (tmp_path / "bag").iterdir() if path.suffix != ".yaml")
    assert path.suffix == (".zstd" if compression == "file" else {"mcap": ".mcap", "sqlite3": ".db3"}[storage])
    check(tmp_path / "alone", truth, convert(path, tmp_path / "alone"))
    # Without `metadata.yaml`, as a recorder that died leaves the bag.
    (tmp_path / "bag/metadata.yaml").unlink()
    check(tmp_path / "rest", truth, convert(tmp_path / "bag", tmp_path / "rest"))


def test_types_that_a_bag_does_not_describe(tmp_path):
    messages, truth = made()
    inner = bags.CUSTOM_STORE.types["test_msgs/msg/Inner"](a=1.0, b="b")
    messages.append(("/own", "test_msgs/msg/Inner", START, inner))
    bags.write(tmp_path / "bag", messages, store=bags.CUSTOM_STORE, storage="sqlite3")
    told = convert(tmp_path / "bag", tmp_path / "described")
    check(tmp_path / "described", truth, told)
    assert rows(stream(tmp_path / "described", "own"))[0].tolist() == [1.0]
    bags.like_humble(tmp_path / "bag/bag.db3")
    told = convert(tmp_path / "bag", tmp_path / "out")
    check(tmp_path / "out", truth, told)
    assert any(line.startswith("/own (test_msgs/msg/Inner): 1 messages are left out: the bag does not describe its type") for line in told["notes"])


def test_each_type_that_is_known_is_that_of_ros(tmp_path):
    """A message of each type of `interfaces.msg`, from a bag that describes it and from one that does not."""
    text = (ROOT / "crates/formats/src/mcap/interfaces.msg").read_text()
    kinds = [line[5:].replace("/", "/msg/", 1) for line in text.splitlines() if line.startswith("MSG: ")]
    chance = random.Random(5)

    def value(described):
        kind, of = described[0].name, described[1]
        if kind == "NAME":
            return message(of)
        if kind in ("ARRAY", "SEQUENCE"):
            item, length = of
            length = length if kind == "ARRAY" else chance.randrange(3)
            if item[0].name == "BASE" and item[1][0] != "string":
                return np.array([value(item) for _ in range(length)], {"octet": "u1", "char": "u1"}.get(item[1][0], item[1][0]))
            return [value(item) for _ in range(length)]
        return {"string": "ab", "bool": True}.get(of[0], chance.randrange(100))

    def message(kind):
        _, described = bags.STORE.fielddefs[kind]
        return bags.T[kind](**{name: value(of) for name, of in described if name != "structure_needs_at_least_one_member"}) if described else bags.T[kind]()

    messages = [(f"/t{i}", kind, START + i, message(kind)) for i, kind in enumerate(kinds) for _ in range(3)]
    assert len(kinds) == 114
    bags.write(tmp_path / "bag", messages, storage="sqlite3")
    described = convert(tmp_path / "bag", tmp_path / "described")
    bags.like_humble(tmp_path / "bag/bag.db3")
    told = convert(tmp_path / "bag", tmp_path / "out")
    assert (told["problems"], told["notes"], told["streams"]) == (described["problems"], described["notes"], described["streams"])
    assert len(told["streams"]) > 100 and told["problems"] == []
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes() == (tmp_path / "described" / path.name).read_bytes(), path.name


def test_another_version_of_a_type_is_refused(tmp_path):
    messages, truth = made(3)
    bags.write(tmp_path / "bag", messages, storage="sqlite3")
    bags.like_humble(tmp_path / "bag/bag.db3")
    with contextlib.closing(sqlite3.connect(tmp_path / "bag/bag.db3")) as base, base:
        base.execute("UPDATE messages SET data = data || zeroblob(16) WHERE topic_id = (SELECT id FROM topics WHERE name = '/imu') AND id < 5")
    told = convert(tmp_path / "bag", tmp_path / "out", code=1)
    assert told["problems"] == [
        "/imu (sensor_msgs/msg/Imu): of 3 messages 2 can't be read, the first: 16 bytes behind its last field: it is of another version of the type"
    ]
    np.testing.assert_array_equal(rows(stream(tmp_path / "out", "imu")), truth["/imu"][2:])


def test_a_bag_of_several_databases(tmp_path):
    """The databases are read in the order of their numbers, with and without `metadata.yaml`."""
    made, values = bags.Made(), []
    bag = tmp_path / "bag"
    bag.mkdir()
    for i in range(11):
        message, value = made.imu(START + i * MS)
        values.append(value)
        bags.write(tmp_path / f"part_{i}", [("/imu", "sensor_msgs/msg/Imu", START + i * MS, message)], storage="sqlite3")
        (tmp_path / f"part_{i}/part_{i}.db3").rename(bag / f"bag_{i}.db3")
    convert(bag, tmp_path / "out")
    np.testing.assert_array_equal(rows(stream(tmp_path / "out", "imu")), values)
    metadata = (tmp_path / "part_0/metadata.yaml").read_text().replace("message_count: 1\n", "message_count: 11\n")
    # Earlier versions of rosbag2 put the folder before the name.
    listed = "".join(f"\n  - bag/bag_{i}.db3" for i in range(11))
    (bag / "metadata.yaml").write_text(metadata.replace("\n  - part_0.db3", listed))
    convert(bag, tmp_path / "listed")
    assert (tmp_path / "listed/imu.arrow").read_bytes() == (tmp_path / "out/imu.arrow").read_bytes()
    for before, after, words in [
        ("storage_identifier: sqlite3", "storage_identifier: my_plugin", "storage `my_plugin` (allowed: mcap, sqlite3)"),
        ("compression_format: ''", "compression_format: lz4", "`compression_format: lz4` (allowed: zstd)"),
    ]:
        assert before in metadata
        (bag / "metadata.yaml").write_text(metadata.replace(before, after))
        assert words in convert(bag, tmp_path / "none", code=2)


def test_a_real_bag(data, tmp_path):
    """Packets of a Velodyne, recorded by ROS 2 Humble, are of a type that nothing describes."""
    path = data / "velodyne_vlp16_4scans/packets_rosbag2.db3"
    why = "/velodyne_packets (velodyne_msgs/msg/VelodyneScan): 4 messages are left out: the bag does not describe its type"
    assert f"no message is converted: {why}" in convert(path, tmp_path / "out", code=2)
    assert not list(path.parent.glob("*-wal")) and not list(path.parent.glob("*-shm"))





def test_what_can_be_had_of_a_file_that_is_cut(tmp_path):
    messages, truth = made(200)
    bags.write(tmp_path / "bag", messages, storage="sqlite3")
    whole = (tmp_path / "bag/bag.db3").read_bytes()
    cut = tmp_path / "cut.db3"
    cut.write_bytes(whole[: int(len(whole) * 0.6) + 100])
    told = convert(cut, tmp_path / "out", code=1)
    assert f"it ends at byte {cut.stat().st_size}, and says that it has {len(whole)}" in told["problems"][0]
    assert "can't be read: SQLite says: database disk image is malformed" in told["problems"][1]
    table = stream(tmp_path / "out", "imu")
    at = [(ns - START) // (25 * MS) for ns in table["timestamp_ns"].to_pylist()]
    assert 100 < len(at) < 150 and at[:100] == list(range(100))
    np.testing.assert_array_equal(rows(table), [truth["/imu"][i] for i in at])


def test_reading_goes_on_behind_a_damaged_page(tmp_path):
    made, values = bags.Made(), []
    messages = []
    for i in range(2000):
        message, value = made.imu(START + i * MS)
        values.append(value)
        messages.append(("/imu", "sensor_msgs/msg/Imu", START + i * MS, message))
    bags.write(tmp_path / "bag", messages, storage="sqlite3")
    path = tmp_path / "bag/bag.db3"
    whole = bytearray(path.read_bytes())
    (page,) = struct.unpack(">H", whole[16:18])
    # A leaf page in the middle of the table of messages, which hold no names of topics.
    at = len(whole) // 2 // page * page
    while whole[at] != 0x0D:
        at += page
    whole[at : at + 8] = b"\xff" * 8
    path.write_bytes(whole)
    told = convert(path, tmp_path / "out", code=1)
    (problem,) = told["problems"]
    first, last = (int(word) for word in problem.split(": rows ")[1].split(" can't")[0].split(" to "))
    came = rows(stream(tmp_path / "out", "imu"))
    assert len(came) == 2000 - (last - first + 1) and last - first < 20
    np.testing.assert_array_equal(came, values[: first - 1] + values[last:])


@pytest.mark.parametrize("is_read_only", [False, True])
def test_what_a_log_beside_it_holds(tmp_path, is_read_only):
    """The newest messages are in the database's log, `-wal`, while a recorder runs, or after it died. Reading a closed bag writes
    no file beside it."""
    messages, truth = made(50)
    bags.write(tmp_path / "bag", messages, storage="sqlite3")
    path = tmp_path / "bag/bag.db3"
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA journal_mode = WAL")
    assert convert(path, tmp_path / "closed")["problems"] == []
    assert [child.name for child in sorted((tmp_path / "bag").iterdir())] == ["bag.db3", "metadata.yaml"]
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA wal_autocheckpoint = 0")
        base.execute("INSERT INTO messages (topic_id, timestamp, data) SELECT topic_id, timestamp, data FROM messages WHERE topic_id = 1 LIMIT 1")
        base.commit()
        if not is_read_only:
            convert(path, tmp_path / "out")
            assert len(rows(stream(tmp_path / "out", "imu"))) == 51
            return
        # A read-only folder, as on a medium that can't be written to.
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("bag.db3", "bag.db3-wal"):
            (copy / name).write_bytes((tmp_path / "bag" / name).read_bytes())
    copy.chmod(0o555)
    if os.access(copy, os.W_OK):
        pytest.skip("who runs this may write everywhere")
    told = convert(copy / "bag.db3", tmp_path / "out", code=1)
    assert "bag.db3-wal` beside it" in told["problems"][0]
    assert len(rows(stream(tmp_path / "out", "imu"))) == 50


def test_a_time_that_is_none_is_told(tmp_path):
    messages, truth = made(3)
    bags.write(tmp_path / "bag", messages, storage="sqlite3")
    with contextlib.closing(sqlite3.connect(tmp_path / "bag/bag.db3")) as base, base:
        base.execute("UPDATE messages SET timestamp = 'noon' WHERE id = 1")
    told = convert(tmp_path / "bag", tmp_path / "out", code=1)
    assert told["problems"] == [f"{tmp_path}/bag/bag.db3: row 1 is left out: its `timestamp` is Text (allowed: Integer)"]
    np.testing.assert_array_equal(rows(stream(tmp_path / "out", "imu")), truth["/imu"][1:])


def test_a_file_that_may_not_grow_is_told(tmp_path):
    """Covers both the unpacked data in the folder of temporary files and the written data."""
    messages, _ = made(40)
    for compression in ("file", None):
        bags.write(tmp_path / f"{compression}", messages, compression=compression, storage="sqlite3")
        command = f"ulimit -f 8; exec {ROOT / 'target/release/robocache'} convert {tmp_path / str(compression)} {tmp_path / 'out'}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
        assert done.returncode == 2 and "File too large" in done.stderr, (done.returncode, done.stderr)
        words = f"file.db3.zstd: the unpacked file can't be written to {tmp_path}: File too large"
        assert (words in done.stderr) == (compression == "file"), done.stderr
        assert not list(tmp_path.glob("robocache-*")) and not list(tmp_path.glob("out*"))


def test_a_database_that_is_locked_or_none(tmp_path):
    messages, _ = made(3)
    bags.write(tmp_path / "bag", messages, storage="sqlite3")
    path = tmp_path / "bag/bag.db3"
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("BEGIN EXCLUSIVE")
        assert "another program has locked it" in convert(path, tmp_path / "out", code=2)
    other = tmp_path / "other.db3"
    for script, words in [
        ("CREATE TABLE a(b)", "a database without a table `topics`"),
        ("CREATE TABLE topics(id, name, type, serialization_format); CREATE VIEW messages AS SELECT 1 AS topic_id, 1 AS timestamp, 1 AS data", "`messages`"),
        (
            "CREATE TABLE topics(id, name, type, serialization_format); CREATE TABLE messages(topic_id, timestamp, n, data AS (zeroblob(n)))",
            "`messages` of stored columns",
        ),
        ("CREATE TABLE topics(id, name, type, serialization_format); CREATE TABLE messages(topic_id, timestamp)", "no such column: data"),
    ]:
        other.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(other)) as base, base:
            base.executescript(script)
        assert words in convert(other, tmp_path / "out", code=2)
    other.write_bytes(b"SQLite format 3\0")
    assert "file is not a database" in convert(other, tmp_path / "out", code=2)
    other.write_bytes(b"")
    assert "not a file of a bag" in convert(other, tmp_path / "out", code=2)


def test_little_that_unpacks_to_much_is_refused(tmp_path):
    """A message of 400 MB of zeros in 13 kB is refused, and the other messages are read."""
    messages, truth = made(3)
    bags.write(tmp_path / "bag", messages, storage="sqlite3")
    zeros = zstd.compress(bytes(400_000_000))
    with contextlib.closing(sqlite3.connect(tmp_path / "bag/bag.db3")) as base, base:
        base.execute("UPDATE messages SET data = ? WHERE id = 1", (zeros,))
    command = f"ulimit -v 4000000; exec {ROOT / 'target/release/robocache'} convert --json {tmp_path / 'bag'} {tmp_path / 'out'}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "/imu (sensor_msgs/msg/Imu): of 3 messages 1 can't be read, the first: zstd unpacks it to 268435456 bytes or more" in done.stdout
    np.testing.assert_array_equal(rows(stream(tmp_path / "out", "imu")), truth["/imu"][1:])


@pytest.mark.parametrize("kind", ["sqlite3", "file", "message"])
def test_damaged_bags_are_read_or_refused(tmp_path, kind, count=60):
    """Whatever bytes are wrong, the command exits with 0, 1 or 2, within 4 GB of memory and a minute."""
    messages, _ = made(20)
    bags.write(tmp_path / "bag", messages, compression=None if kind == "sqlite3" else kind, storage="sqlite3")
    (path,) = (path for path in (tmp_path / "bag").iterdir() if path.suffix != ".yaml")
    whole, chance = path.read_bytes(), random.Random(kind)
    seen = set()
    for i in range(count):
        broken = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3, 30])):
            at = chance.choice([chance.randrange(len(broken)), chance.randrange(min(200, len(broken)))])
            match chance.randrange(5):
                case 0:
                    del broken[at:]
                case 1:
                    broken[at : at + 4] = chance.randbytes(4)
                case 2:
                    page = at // 4096 * 4096
                    other = chance.randrange(len(broken)) // 4096 * 4096
                    broken[page : page + 4096] = broken[other : other + 4096]
                case _:
                    broken[at] = chance.randrange(256)
            if not broken:
                break
        damaged = tmp_path / f"d{path.suffix}" if path.suffix != ".zstd" else tmp_path / "d.db3.zstd"
        damaged.write_bytes(broken)
        command = f"ulimit -v 4000000; exec timeout 60 {ROOT / 'target/release/robocache'} convert --json {damaged} {tmp_path / f'o{i}'}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1, 2), (i, done.returncode, done.stderr)
        assert "panicked" not in done.stderr
        seen.add(done.returncode)
    assert seen == {0, 1, 2} or kind == "file"
