"""MCAP files with messages in Protocol Buffers (by google.protobuf) and JSON, written by a writer that shares no code with ours."""

import json
import struct

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

F = descriptor_pb2.FieldDescriptorProto
SCALARS = ["double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64"]


def write(path, channels, messages):
    """Writes an MCAP file. `channels` are (topic, encoding, schema or None), `messages` are (channel, recorded, published, bytes),
    and a schema is (name, encoding, bytes)."""

    def blob(data):
        return struct.pack("<I", len(data)) + data

    def text(words):
        return blob(words.encode())

    def record(op, body):
        return struct.pack("<BQ", op, len(body)) + body

    out = [b"\x89MCAP0\r\n", record(1, text("") + text("test"))]
    for i, (topic, encoding, schema) in enumerate(channels):
        if schema:
            name, schema_encoding, data = schema
            out.append(record(3, struct.pack("<H", i + 1) + text(name) + text(schema_encoding) + blob(data)))
        out.append(record(4, struct.pack("<HH", i, i + 1 if schema else 0) + text(topic) + text(encoding) + blob(b"")))
    for i, (channel, recorded, published, data) in enumerate(messages):
        out.append(record(5, struct.pack("<HIQQ", channel, i, recorded, published) + data))
    out += [record(15, bytes(4)), record(2, bytes(20)), b"\x89MCAP0\r\n"]
    path.write_bytes(b"".join(out))


def message_of(name, fields, nested=(), oneofs=()):
    """Builds a DescriptorProto. Each of `fields` is (number, name, type), then options: "repeated", a oneof's index, a default."""
    proto = descriptor_pb2.DescriptorProto(name=name, nested_type=nested)
    proto.oneof_decl.extend(descriptor_pb2.OneofDescriptorProto(name=one) for one in oneofs)
    for number, field, of, *more in fields:
        added = proto.field.add(number=number, name=field, label=F.LABEL_OPTIONAL)
        if of in SCALARS:
            added.type = getattr(F, f"TYPE_{of.upper()}")
        else:
            added.type, added.type_name = (F.TYPE_ENUM if of.endswith("Kind") else F.TYPE_MESSAGE), of
        for words in more:
            if words == "repeated":
                added.label = F.LABEL_REPEATED
            elif words == "unpacked":
                added.label, added.options.packed = F.LABEL_REPEATED, False
            elif words == "group":
                added.type = F.TYPE_GROUP
            elif words == "optional":
                added.proto3_optional, added.oneof_index = True, len(proto.oneof_decl)
                proto.oneof_decl.add(name=f"_{field}")
            elif isinstance(words, int):
                added.oneof_index = words
            else:
                added.default_value = words
    return proto


def file_of(name, messages, syntax="proto3", package="foxglove", enums=(), needs=()):
    proto = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax=syntax, message_type=messages, dependency=needs)
    for enum, values in enums:
        added = proto.enum_type.add(name=enum)
        for value, number in values:
            added.value.add(name=value, number=number)
    return proto


TIMES = file_of(
    "google/protobuf/times.proto",
    [message_of(name, [(1, "seconds", "int64"), (2, "nanos", "int32")]) for name in ("Timestamp", "Duration")],
    package="google.protobuf",
)
STAMP = (1, "timestamp", ".google.protobuf.Timestamp")
VECTOR = [(i + 1, axis, "double") for i, axis in enumerate("xyz")]
FOXGLOVE = file_of(
    "foxglove.proto",
    [
        message_of("Vector3", VECTOR),
        message_of("Quaternion", [*VECTOR, (4, "w", "double")]),
        message_of("Pose", [(1, "position", ".foxglove.Vector3"), (2, "orientation", ".foxglove.Quaternion")]),
        message_of("PoseInFrame", [STAMP, (2, "frame_id", "string"), (3, "pose", ".foxglove.Pose")]),
        message_of(
            "FrameTransform",
            [STAMP, (2, "parent_frame_id", "string"), (3, "child_frame_id", "string"), (4, "translation", ".foxglove.Vector3"),
             (5, "rotation", ".foxglove.Quaternion")],
        ),
        message_of("FrameTransforms", [(1, "transforms", ".foxglove.FrameTransform", "repeated")]),
        message_of("CompressedImage", [STAMP, (4, "frame_id", "string"), (2, "data", "bytes"), (3, "format", "string")]),
        message_of("PackedElementField", [(1, "name", "string"), (2, "offset", "fixed32"), (3, "type", ".foxglove.NumericKind")]),
        message_of(
            "PointCloud",
            [STAMP, (2, "frame_id", "string"), (3, "pose", ".foxglove.Pose"), (4, "point_stride", "fixed32"),
             (5, "fields", ".foxglove.PackedElementField", "repeated"), (6, "data", "bytes")],
        ),
    ],
    enums=[("NumericKind", [("UNKNOWN", 0), ("UINT8", 1), ("INT8", 2), ("UINT16", 3), ("FLOAT32", 7), ("FLOAT64", 8)])],
    needs=["google/protobuf/times.proto"],
)

NUMBERS = [of for of in SCALARS if of not in ("string", "bytes")]
ODD = file_of(
    "odd.proto",
    [
        message_of("Leaf", [(1, "a", "double"), (15, "b", "sint32"), (3, "c", "float", "repeated")]),
        message_of("Tree", [(1, "value", "double"), (2, "left", ".odd.Tree"), (3, "all", ".odd.Tree", "repeated")]),
        message_of(
            "Odd",
            [
                *[(i + 1, f"one_{of}", of) for i, of in enumerate(SCALARS)],
                *[(i + 31, f"packed_{of}", of, "repeated") for i, of in enumerate(SCALARS)],
                *[(i + 2001, f"plain_{of}", of, "unpacked") for i, of in enumerate(NUMBERS)],
                (100, "mode", ".odd.ModeKind"), (101, "modes", ".odd.ModeKind", "repeated"),
                (102, "leaf", ".odd.Leaf"), (103, "leaves", ".odd.Leaf", "repeated"), (104, "tree", ".odd.Tree"),
                (105, "choice_a", "double", 0), (106, "choice_b", ".odd.Leaf", 0),
                (107, "took", ".google.protobuf.Duration"), (108, "may", "int32", "optional"),
                (109, "header", ".odd.Header"),
                (536870911, "last", "uint32"),
            ],
            oneofs=["choice"],
        ),
        message_of("Header", [(1, "stamp", ".google.protobuf.Timestamp"), (2, "frame_id", "string")]),
    ],
    package="odd",
    enums=[("ModeKind", [("IDLE", 0), ("BUSY", 7), ("BROKEN", -3)])],
    needs=["google/protobuf/times.proto"],
)
OLD = file_of(
    "old.proto",
    [
        message_of(
            "Old",
            [
                (1, "x", "double"), (2, "y", "float", "2.5"), (3, "n", "int32", "-7"), (4, "flag", "bool", "true"), (5, "many", "sint64", "repeated"),
                (6, "part", ".old.Old.Part", "group"), (7, "parts", ".old.Old.Part", "group", "repeated"),
            ],
            nested=[message_of("Part", [(1, "u", "fixed64"), (2, "v", "double")])],
        )
    ],
    syntax="proto2",
    package="old",
)




SET = descriptor_pb2.FileDescriptorSet(file=[TIMES, FOXGLOVE, ODD, OLD])
POOL = descriptor_pool.DescriptorPool()
for one in SET.file:
    POOL.Add(one)


def type_of(name):
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))


def schema(name, files=SET):
    return name, "protobuf", files.SerializeToString()


def flat(message, path="", values=None, lists=None):
    """The numbers of a message, and its lists of numbers, by their paths, as docs/formats.md says. An absent number is NaN, and an
    absent list is empty."""
    values, lists = ({}, {}) if values is None else (values, lists)
    kind = message if hasattr(message, "fields") else message.DESCRIPTOR
    found = None if kind is message else message
    for field in kind.fields:
        name = f"{path}{field.name}"
        if name in ("timestamp", "header.stamp", "header.frame_id"):
            continue
        is_number = field.cpp_type not in (field.CPPTYPE_STRING, field.CPPTYPE_MESSAGE)
        if field.is_repeated:
            if is_number:
                lists[name] = [] if found is None else list(getattr(found, field.name))
        elif is_number:
            is_there = found is not None and (not field.has_presence or found.HasField(field.name) or field.has_default_value)
            values[name] = float(getattr(found, field.name)) if is_there else float("nan")
        elif field.type == field.TYPE_BYTES:
            lists[name] = [] if found is None else list(getattr(found, field.name))
        elif field.cpp_type == field.CPPTYPE_MESSAGE and field.message_type != kind:
            inner = getattr(found, field.name) if found is not None and found.HasField(field.name) else field.message_type
            flat(inner, f"{name}.", values, lists)
    return values, lists




def to_json(value):
    return json.dumps(value).encode()
