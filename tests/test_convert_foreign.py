"""`robocache convert`, on MCAP files with messages in Protocol Buffers and JSON, value for value."""

import base64
import json
import math
import random
import struct

import numpy as np
import pytest

import foreign
from foreign import FOXGLOVE, to_json
from test_convert import convert, fields, rows, stream

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND + 123_456_789
IDENTITY = {"position": {}, "orientation": {"w": 1.0}}


def stamp(ns):
    return {"seconds": ns // SECOND, "nanos": ns % SECOND}


def made(name, **values):
    return foreign.type_of(name)(**values).SerializeToString()


def converted(folder, channels, messages, code=0):
    """Converts messages, given as (channel, bytes). They are recorded 10 ms apart, 5 ns after their publication."""
    timed = [(channel, START + i * 10_000_000 + 5, START + i * 10_000_000, data) for i, (channel, data) in enumerate(messages)]
    foreign.write(folder / "in.mcap", channels, timed)
    return folder / "out", convert(folder / "in.mcap", folder / "out", code=code)


def test_foxglove(tmp_path):
    channels = [
        (f"/{name}", "protobuf", foreign.schema(f"foxglove.{name}"))
        for name in ("PoseInFrame", "FrameTransform", "FrameTransforms", "CompressedImage", "PointCloud")
    ]
    points = np.zeros(5, np.dtype({"names": ["x", "y", "z", "ring"], "formats": ["<f4", "<f4", "<f8", "u1"], "offsets": [0, 4, 8, 17], "itemsize": 20}))
    for i, name in enumerate(points.dtype.names):
        points[name] = np.arange(5) * (i + 1)
    kinds = {"<f4": 7, "<f8": 8, "|u1": 1}
    packed = [{"name": name, "offset": at, "type": kinds[dtype.str]} for name, (dtype, at) in points.dtype.fields.items()]
    turn = {"timestamp": stamp(START), "translation": {"x": 1.0, "y": 0, "z": 0}, "rotation": {"x": 0, "y": 0, "z": 0, "w": 1.0}}
    told = []
    messages = [
        (0, made("foxglove.PoseInFrame", timestamp=stamp(START), frame_id="map", pose={"position": {"x": 1.5}, "orientation": {"w": 1.0}})),
        (0, made("foxglove.PoseInFrame", timestamp=stamp(START + 7), frame_id="map", pose={"position": {"x": 2.5}})),
        (1, made("foxglove.FrameTransform", parent_frame_id="odom", child_frame_id="base", **turn)),
        (1, made("foxglove.FrameTransform", parent_frame_id="base", child_frame_id="eye", **turn)),
        (2, made("foxglove.FrameTransforms", transforms=[{"parent_frame_id": "odom", "child_frame_id": "base", **turn}])),
        (3, made("foxglove.CompressedImage", timestamp=stamp(START), frame_id="eye", format="jpeg", data=b"\xff\xd8\x00")),
        (4, made("foxglove.PointCloud", timestamp=stamp(START), frame_id="lidar", pose=IDENTITY, point_stride=20, fields=packed, data=points.tobytes())),
        (4, made("foxglove.PointCloud", timestamp=stamp(START), frame_id="lidar", point_stride=20, fields=packed, data=points.tobytes())),
    ]
    out, told = converted(tmp_path, channels, messages)
    assert told["problems"] == []
    pose = stream(out, "PoseInFrame")
    assert pose["timestamp_ns"].to_pylist() == [START, START + 7]
    assert pose["arrival_ns"].to_pylist() == [START + 5, START + 10_000_005]
    assert pose.schema.metadata[b"frame_id"] == b"map"
    assert fields(pose)[:2] == ["pose.position.x", "pose.position.y"]
    np.testing.assert_array_equal(rows(pose), [[1.5, 0, 0, 0, 0, 0, 1], [2.5, 0, 0, *[math.nan] * 4]])
    assert "/PoseInFrame (foxglove.PoseInFrame): missing numbers, replaced by NaN: 4, the first in `pose.orientation.x`" in told["notes"]
    for name, frame in [("FrameTransform.odom.base", b"odom"), ("FrameTransform.base.eye", b"base"), ("FrameTransforms.odom.base", b"odom")]:
        table = stream(out, name)
        assert table.schema.metadata[b"frame_id"] == frame
        np.testing.assert_array_equal(rows(table), [[1, 0, 0, 0, 0, 0, 1]])
    image = stream(out, "CompressedImage")
    assert json.loads(image.schema.metadata[b"metadata"])["encoding"] == "jpeg" and rows(image)[0].tolist() == [255, 216, 0]
    cloud = stream(out, "PointCloud")
    assert cloud.schema.metadata[b"frame_id"] == b"lidar" and cloud["timestamp_ns"].to_pylist() == [START] * 2
    for name in points.dtype.names:
        column = rows(cloud, name)[0]
        assert column.dtype == points[name].dtype
        np.testing.assert_array_equal(column, points[name])
    # The second cloud has no pose.
    np.testing.assert_array_equal(rows(stream(out, "PointCloud.pose")), [[0, 0, 0, 0, 0, 0, 1]])


def any_value(field, chance):
    """Draws a value of a protobuf field that is not a message, sometimes a limit of its type."""
    kind, pick = field.cpp_type, chance.random()
    if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        value = chance.choice([0.0, -0.0, math.inf, math.nan, 1e300 if kind == field.CPPTYPE_DOUBLE else 1e30, chance.gauss(0, 10)])
        return value if kind == field.CPPTYPE_DOUBLE else float(np.float32(value))
    if kind == field.CPPTYPE_BOOL:
        return pick < 0.5
    if kind == field.CPPTYPE_ENUM:
        return chance.choice([0, 7, -3, 99])
    if kind == field.CPPTYPE_STRING:
        return chance.choice(["", "né", "\n" * 9]) if field.type == field.TYPE_STRING else chance.randbytes(chance.randrange(5))
    bits = 32 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    is_signed = kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    return chance.choice([low, high, 0, 1, chance.randint(low, high), chance.randint(max(low, -100), 100)])


def fill(message, chance, depth=0):
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.3 or depth > 4:
            continue
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            for _ in range(chance.randrange(4) if field.is_repeated else 1):
                inner = getattr(message, field.name)
                inner = inner.add() if field.is_repeated else inner
                inner.SetInParent() if not field.is_repeated else None
                fill(inner, chance, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(any_value(field, chance) for _ in range(chance.randrange(5)))
        else:
            setattr(message, field.name, any_value(field, chance))
    return message


@pytest.mark.parametrize("name", ["odd.Odd", "old.Old"])
def test_any_message(tmp_path, name, count=300):
    chance = random.Random(name)
    messages = [fill(foreign.type_of(name)(), chance) for _ in range(count)]
    data = [message.SerializeToString() for message in messages]
    # A message serialized twice in a row is one message. An unknown field between is skipped: a group with a group in it.
    unknown = bytes([0xFB, 0x3F, 0xFB, 0x3F, 0xF8, 0x3F, 1, 0xFC, 0x3F, 0xFC, 0x3F])
    data = [half + unknown + half if i % 3 == 0 else half for i, half in enumerate(data)]
    messages = [foreign.type_of(name).FromString(one) for one in data]
    # A message whose stamp has more nanoseconds than a second is broken.
    is_broken = [name == "odd.Odd" and not 0 <= message.header.stamp.nanos < SECOND for message in messages]
    out, told = converted(tmp_path, [("/any", "protobuf", foreign.schema(name))], [(0, one) for one in data], code=int(any(is_broken)))
    broken = [f"of {count} messages {sum(is_broken)} can't be read, the first: `header.stamp.nanos` is "] if any(is_broken) else []
    assert len(told["problems"]) == len(broken) and all(part in problem for part, problem in zip(broken, told["problems"], strict=True)), told["problems"]
    place = [i for i in range(count) if not is_broken[i]]
    messages = [messages[i] for i in place]
    table, wanted = stream(out, "any"), [foreign.flat(message) for message in messages]
    assert fields(table) == list(wanted[0][0])
    for row, (values, _) in zip(rows(table), wanted, strict=True):
        np.testing.assert_array_equal(row, np.array(list(values.values()), np.float64))
    for path in wanted[0][1]:
        there = [lists[path] for _, lists in wanted if lists[path]]
        for row, values in zip(rows(stream(out, f"any.{path}")), there, strict=True):
            np.testing.assert_array_equal(row, np.array(values, row.dtype))
    if name == "odd.Odd":
        ns = [one.header.stamp.seconds * SECOND + one.header.stamp.nanos for one in messages]
        is_usable = [one.header.stamp.seconds != 0 or one.header.stamp.nanos != 0 for one in messages]
        limit = [-(2**63) <= one < 2**63 for one in ns]
        wanted_ns = [one if ok and fits else START + i * 10_000_000 for i, one, ok, fits in zip(place, ns, is_usable, limit, strict=True)]
        assert table["timestamp_ns"].to_pylist() == wanted_ns
        notes = "\n".join(told["notes"])
        for part in ("`one_string` (text)", "`leaves` (list of structs)", "`tree.left` (nested without end)", "`packed_bytes` (list of bytes)", "beyond 2^53 that are rounded"):
            assert part in notes, notes


def test_json(tmp_path):
    vector = {"type": "object", "properties": {axis: {"type": "number"} for axis in "xyz"}}
    described = {
        "type": "object",
        "properties": {
            "timestamp": {"type": "object", "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}}},
            "frame_id": {"type": "string"},
            "at": {"$ref": "#/$defs/vector"},
            "count": {"type": ["integer", "null"]},
            "is_on": {"type": "boolean"},
            "data": {"type": "string", "contentEncoding": "base64"},
            "ranges": {"type": "array", "items": {"type": "number"}},
            "tree": {"$ref": "#/$defs/tree"},
        },
        "$defs": {"vector": vector, "tree": {"type": "object", "properties": {"v": {"type": "number"}, "next": {"$ref": "#/$defs/tree"}}}},
    }
    channels = [
        ("/said", "json", ("Said", "jsonschema", to_json(described))),
        ("/shown", "json", None),
        ("/late", "json", None),
        ("/wrong", "json", None),
    ]
    told = {"timestamp": {"sec": START // SECOND, "nsec": START % SECOND}, "frame_id": "map", "at": {"z": 3, "x": 1.5, "y": "NaN"}, "count": 2**53 + 1}
    # A number that an inexact parser rounds to another one.
    told["at"]["x"] = 0.30000000000000004e-5
    told |= {"is_on": True, "data": base64.b64encode(b"\x01\xff").decode(), "ranges": [1, None, 2.5], "tree": {"v": 1}}
    shown = {"stamp": (START + 9) / SECOND, "b": 1, "a": {"x.y": 2.5, "ok": True}, "name": "arm", "q": [0, 0, 0, 1], "grid": [[1], [2]], "none": [], "gone": None}
    messages = [
        (0, to_json(told)),
        (0, to_json({"at": {"x": 2}, "ranges": []})),
        (1, to_json(shown)),
        (1, to_json({**shown, "none": [4], "gone": 5, "more": 1, "a": {"ok": 0, "x.y": 1}})),
        (2, to_json({"time": 12.5, "v": 1})),
        (2, to_json({"time": START, "v": 2})),
        (3, b'{"v": 1}'),
        (3, b'{"v": "text"}'),
        (3, b'{"v": 1'),
        (3, b"[" * 10_000),
        (3, b"[1]"),
        (3, b'{"v": 2}'),
    ]
    out, told = converted(tmp_path, channels, messages, code=1)
    notes = "\n".join(told["notes"])
    table = stream(out, "said")
    assert fields(table) == ["at.x", "at.y", "at.z", "count", "is_on", "tree.v"]
    nan = math.nan
    np.testing.assert_array_equal(rows(table), [[0.30000000000000004e-5, nan, 3, 2.0**53, 1, 1], [2, nan, nan, nan, nan, nan]])
    assert table["timestamp_ns"].to_pylist() == [START, START + 10_000_000]
    assert table.schema.metadata.get(b"frame_id", b"map") == b"map"
    np.testing.assert_array_equal(rows(stream(out, "said.ranges")), [[1, nan, 2.5]])
    assert rows(stream(out, "said.data"))[0].tolist() == [1, 255]
    assert "/said (Said): numbers beyond 2^53 that are rounded to float64: 1, the first in `count`" in notes
    assert "`tree.next` (nested without end)" in notes
    table = stream(out, "shown")
    assert fields(table) == ["stamp", "b", "a.x_y", "a.ok", "gone"]
    first = (START + 9) / SECOND
    np.testing.assert_array_equal(rows(table), [[first, 1, 2.5, 1, nan], [first, 1, 1, 0, 5]])
    assert all(abs(ns - START) < 1000 for ns in table["timestamp_ns"].to_pylist())
    assert [row.tolist() for row in rows(stream(out, "shown.none"))] == [[4]]
    assert [row.tolist() for row in rows(stream(out, "shown.q"))] == [[0, 0, 0, 1]] * 2
    for part in ("of 2 messages 1 have keys", "`more`", "`name` (text)", "`grid` (nested lists)", "`stamp` is the stamp, in s, in which it is next to the time of its publication"):
        assert part in notes, notes
    # The unit follows from the first time that is near its publication.
    assert stream(out, "late")["timestamp_ns"].to_pylist() == [START + 40_000_000, int(float(START))]
    assert [row.tolist() for row in rows(stream(out, "wrong"))] == [[1], [2]]
    assert told["problems"][0].startswith("/wrong (no schema): of 6 messages 4 can't be read, the first: `v`: a text (allowed: a number)")


def test_schemas_that_do_not_say_it(tmp_path):
    pose, nothing = foreign.schema("foxglove.PoseInFrame"), foreign.SET.__class__()
    alone = nothing.__class__(file=[FOXGLOVE])
    one = made("foxglove.PoseInFrame", pose=IDENTITY)
    channels = [
        ("/absent", "protobuf", ("foxglove.Unheard", *pose[1:])),
        ("/lacking", "protobuf", foreign.schema("foxglove.PoseInFrame", alone)),
        ("/broken", "protobuf", (pose[0], "protobuf", pose[2][:-3])),
        ("/idl", "cdr", ("pkg/msg/Some", "ros2idl", b"module pkg {};")),
        ("/bare", "protobuf", None),
        ("/cut", "protobuf", pose),
    ]
    bad = [one[:-1], b"\x1a\xff\xff\xff\xff\x07", b"\xff" * 11, struct.pack("<I", 7), b"\x1a\x02" * 40, b"\x13", b"\x1b" * 10_000]
    out, told = converted(tmp_path, channels, [(i, one) for i in range(6)] + [(5, data) for data in bad], code=1)
    notes = "\n".join(told["notes"])
    for part in (
        "/absent (foxglove.Unheard): 1 messages are left out: type `.foxglove.Unheard` is not in its schema",
        "`.google.protobuf.Timestamp` of field `timestamp` is not described",
        "/broken (foxglove.PoseInFrame): 1 messages are left out: its schema is not a FileDescriptorSet: ",
        "/idl (pkg/msg/Some): 1 messages are left out: its schema is in `ros2idl`, which is not read (allowed: ros2msg)",
    ):
        assert part in notes, notes
    assert "/bare (no schema): 1 messages are left out: it has no schema, and in `protobuf` messages do not tell what they are (allowed without one: json)" in notes
    problems = "\n".join(told["problems"])
    assert "/bare" not in problems and "/cut (foxglove.PoseInFrame): of 8 messages 7 can't be read" in problems
    assert len(rows(stream(out, "cut"))) == 1


def test_json_whose_messages_differ(tmp_path):
    channels = [(f"/{name}", "json", None) for name in ("late", "twice", "large", "never")]
    messages = [
        (0, b"{}"),
        (0, b'{"a": {}}'),
        (0, b'{"a": {"x": 1}, "b": 2}'),
        (0, b"{}"),
        (1, b'{"a": 1, "b": 2, "a": 3, "c": {"d": 1, "d": 2}}'),
        (1, b'{"b": 1, "b": 5, "a": 4, "c": {"d": 3}}'),
        # `e.f` is a key of its own, not a path, and becomes `e_f`, which comes twice.
        (1, b'{"a": 1, "b": 2, "c": {"d": 1}, "e.f": 1, "e_f": 2}'),
        (2, b'{"a": 1, "l": [1, 2]}'),
        (2, b'{"a": 9007199254740992, "l": [9007199254740993, 9007199254740994]}'),
        (2, b'{"a": -9007199254740993, "l": [1.5, 1e300]}'),
        (3, b"{}"),
        (3, b'{"a": {"b": {}}}'),
    ]
    out, told = converted(tmp_path, channels, messages)
    nan = math.nan
    np.testing.assert_array_equal(rows(stream(out, "late")), [[1, 2], [nan, nan]])
    np.testing.assert_array_equal(rows(stream(out, "twice")), [[3, 2, 2], [4, 5, 3], [1, 2, 1]])
    np.testing.assert_array_equal(rows(stream(out, "large")), [[1], [2.0**53], [-(2.0**53)]])
    np.testing.assert_array_equal(rows(stream(out, "large.l")), [[1, 2], [2.0**53, 2.0**53 + 2], [1.5, 1e300]])
    notes = "\n".join(told["notes"])
    for part in (
        "/late (no schema): of 4 messages 2 hold no value, and came before any that does: they are left out",
        "/twice (no schema): of 3 messages 3 have a key several times in an object, whose last value is taken, the first: `d`",
        "/twice (no schema): of 3 messages 1 have keys that neither the schema nor the first message had, which are left out, the first: `e_f`",
        "/large (no schema): numbers beyond 2^53 that are rounded to float64: 2, the first in `l`",
        "/never (no schema): of 2 messages 2 hold no value, and came before any that does: they are left out",
    ):
        assert part in notes, notes
    assert not (out / "never.arrow").exists()


def test_json_takes_the_numbers_that_float64_has(tmp_path):
    integer = ("Count", "jsonschema", to_json({"type": "object", "properties": {"v": {"type": "integer"}, "time": {"type": "integer"}}}))
    channels = [("/said", "json", integer), ("/shown", "json", None)]
    large = b"18446744073709551615"
    messages = [(0, b'{"v": 1, "time": %d}' % (START + 1)), (0, b'{"v": %s, "time": %d}' % (large, START + 3))]
    messages += [(1, b'{"v": 9007199254740993}'), (1, b'{"v": %s}' % large), (1, b'{"v": 1e400}'), (1, b'{"v": -2e3}')]
    out, told = converted(tmp_path, channels, messages, code=1)
    table = stream(out, "said")
    assert table["timestamp_ns"].to_pylist() == [START + 1, START + 3]
    assert [row[0] for row in rows(table)] == [1, 2.0**64]
    assert [row.tolist() for row in rows(stream(out, "shown"))] == [[2.0**53], [2.0**64], [-2e3]]
    assert any("/shown (no schema): numbers beyond 2^53 that are rounded to float64: 2, the first in `v`" in note for note in told["notes"])
    words = "/shown (no schema): of 4 messages 1 can't be read, the first: the number 1e400 is beyond the range of float64"
    assert told["problems"] == [words]


def test_messages_of_a_topic_with_several_schemas_are_not_mixed(tmp_path):
    def schema(name, *fields):
        return name, "jsonschema", to_json({"type": "object", "properties": {field: {"type": "number"} for field in fields}})

    channels = [("/t", "json", schema("Two", "x", "y")), ("/t", "json", schema("Three", "x", "y", "z")), ("/t", "json", schema("Pair", "x", "y"))]
    messages = [(0, b'{"x": 1, "y": 2}'), (1, b'{"x": 1, "y": 2, "z": 3}'), (2, b'{"x": 3, "y": 4}')]
    out, told = converted(tmp_path, channels, messages)
    assert [row.tolist() for row in rows(stream(out, "t"))] == [[1, 2], [3, 4]]
    assert [row.tolist() for row in rows(stream(out, "t_2"))] == [[1, 2, 3]]
    notes = "\n".join(told["notes"])
    assert "/t (Three): other channels of the topic have another schema, Two, and other fields: these messages are streams of their own" in notes
    assert "/t: its stream is `t_2`, as `t` is another's" in notes and "/t (Pair): other" not in notes


def test_what_stands_beside_the_messages_is_named(tmp_path):
    """The notes name attachments and metadata records as left out, but not the record that rosbag2 writes about its own file."""

    def text(value):
        return struct.pack("<I", len(value)) + value

    def record(op, body):
        return bytes([op]) + struct.pack("<Q", len(body)) + body

    attachment = struct.pack("<QQ", 1, 2) + text(b"calib.yaml") + text(b"text/yaml") + struct.pack("<Q", 7) + b"a: 1\n\n\n" + bytes(4)
    beside = [record(9, attachment), record(9, b"short")]
    beside += [record(12, text(name) + text(b"")) for name in (b"robot\x1b[31m", b"rosbag2", b"\xff")]
    foreign.write(tmp_path / "in.mcap", [("/a", "json", None)], [(0, START, START, b'{"v": 1}')])
    whole = (tmp_path / "in.mcap").read_bytes()
    # The offset behind the file's header.
    at = 8 + 9 + struct.unpack("<Q", whole[9:17])[0]
    (tmp_path / "in.mcap").write_bytes(whole[:at] + b"".join(beside) + whole[at:])
    told = convert(tmp_path / "in.mcap", tmp_path / "out")
    assert told["notes"][-1] == (
        f"{tmp_path}/in.mcap: left out: attachment `calib.yaml` (text/yaml, 7 bytes), an attachment without a name, metadata `robot\x1b[31m`, metadata without a name"
    )
    many = b"".join(record(12, text(b"m") + text(b"")) for _ in range(30))
    (tmp_path / "in.mcap").write_bytes(whole[:at] + many + whole[at:])
    assert convert(tmp_path / "in.mcap", tmp_path / "many")["notes"][-1].endswith("metadata `m`, and 10 more")
    # A schema with the number 0, which stands for no schema.
    nothing = record(3, struct.pack("<H", 0) + text(b"X") + text(b"jsonschema") + text(b"{}"))
    (tmp_path / "in.mcap").write_bytes(whole[:at] + nothing + whole[at:])
    assert "a schema of the number 0" in convert(tmp_path / "in.mcap", tmp_path / "zero", code=1)["problems"][0]


def test_messages_without_chunks_come_in_the_order_in_which_they_were_logged(tmp_path):
    logged = [START + i * 10_000_000 for i in (2, 1, 3, 9, 4, 5, 5, 0)]
    foreign.write(tmp_path / "in.mcap", [("/it", "json", None)], [(0, at, at, to_json({"v": i})) for i, at in enumerate(logged)])
    told = convert(tmp_path / "in.mcap", tmp_path / "out")
    assert stream(tmp_path / "out", "it")["arrival_ns"].to_pylist() == sorted(logged)
    assert [row[0] for row in rows(stream(tmp_path / "out", "it"))] == [7, 1, 0, 2, 4, 5, 6, 3]
    assert "5 messages stood behind messages that were logged later: they were sorted by log time" in told["notes"]
