"""Tests of sending: the messages that reach dora, and refusals."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import robocache as rc


class Node:
    """A stand-in for a node of dora that keeps the messages that it is given to send."""

    def __init__(self):
        self.sent = []

    def send_output(self, output, array, metadata):
        self.sent.append((output, array, metadata))


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setenv("ZENOH_CONFIG", "mine")
    return Node()


def only(node) -> tuple:
    (sent,) = node.sent
    return sent


def test_a_tensor_goes_out_in_its_shape_with_its_stamp(node):
    rc.send(node, "grid", np.arange(6, dtype=np.float16).reshape(1, 2, 3), timestamp_ns=np.int64(5), frame_id="base")
    output, array, metadata = only(node)
    assert (output, array.type, array.to_pylist()) == ("grid", pa.float16(), [0, 1, 2, 3, 4, 5])
    assert metadata == {"shape": [1, 2, 3], "timestamp_ns": 5, "frame_id": "base"}
    assert type(metadata["timestamp_ns"]) is int


def test_numbers_of_numpy_become_those_of_python(node):
    rc.send(
        node,
        "q",
        np.zeros(2),
        timestamp_ns=1,
        epoch=np.int64(2),
        gain=np.float32(0.5),
        on=np.bool_(True),
        at=[np.int8(3)],
    )
    metadata = only(node)[2]
    assert {key: (type(metadata[key]), metadata[key]) for key in ("epoch", "gain", "on")} == {
        "epoch": (int, 2),
        "gain": (float, 0.5),
        "on": (bool, True),
    }
    assert type(metadata["at"][0]) is int


def test_rows_go_out_with_a_stamp_each(node):
    rc.send(
        node,
        "wrench",
        np.zeros((3, 2), np.float32),
        timestamps_ns=np.array([3, 5, 4]),
        fields=["fx", "fy"],
        valid=np.array([1, 0, 1]),
    )
    assert only(node)[2] == {
        "shape": [3, 2],
        "timestamp_ns": 5,
        "timestamps_ns": [3, 5, 4],
        "fields": ["fx", "fy"],
        "valid": [1, 0, 1],
    }
    assert {type(x) for x in only(node)[2]["timestamps_ns"] + only(node)[2]["valid"]} == {int}


def test_a_scalar_is_a_sample_of_one_value(node):
    rc.send(node, "height", np.float32(0.5), timestamp_ns=1)
    assert only(node)[2]["shape"] == [1] and only(node)[1].to_pylist() == [0.5]


def test_arrow_goes_out_as_it_is(node):
    rc.send(node, "torque", pa.array([1, 2, 3], pa.int16()), timestamp_ns=1)
    assert only(node)[1].equals(pa.array([1, 2, 3], pa.int16()))


def test_torch_goes_out_with_bfloat16_as_bits(node):
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not sent")
    rc.send(
        node,
        "features",
        torch.tensor([[1.0, 1.5], [-3.0, 2.0]], dtype=torch.bfloat16, requires_grad=True),
        timestamp_ns=1,
    )
    _, array, metadata = only(node)
    assert array.equals(pa.array([0x3F80, 0x3FC0, 0xC040, 0x4000], pa.uint16())) and metadata["dtype"] == "bfloat16"
    with pytest.raises(ValueError, match=r"tensor \[2, 3\] is not contiguous: pass tensor.contiguous"):
        rc.send(node, "features", torch.zeros(3, 2).T, timestamp_ns=1)
    with pytest.raises(ValueError, match="tensor is on meta, expected the CPU: .* pass tensor.cpu"):
        rc.send(node, "features", torch.zeros(3, device="meta"), timestamp_ns=1)


def test_an_array_of_another_device_is_refused(node):
    class OnDevice:
        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(ValueError, match=r"on a device \(DLPack type 2\), expected the CPU"):
        rc.send(node, "features", OnDevice(), timestamp_ns=1)


@pytest.mark.parametrize(
    ("array", "error", "named"),
    [
        (np.zeros((2, 3)).T, ValueError, r"array \[3, 2\] is not contiguous: pass np.ascontiguousarray"),
        (np.array([1, None]), TypeError, "array is object, expected one of"),
        (np.array([True]), TypeError, "array is bool, .*: pass array.astype"),
        (np.zeros(2, ">f4"), TypeError, "array is >f4"),
        (np.zeros(2, complex), TypeError, "array is complex128"),
        ("text", TypeError, "array is <U4"),
        (pa.array([[1]]), TypeError, "array is list"),
        (None, TypeError, "array is object"),
        ([[1], [2, 3]], ValueError, "array is a list that can't be made an array"),
        (np.ma.masked_array([1.0], [True]), TypeError, "array is masked, .*: pass array.filled"),
    ],
)
def test_what_is_no_tensor_is_refused(node, array, error, named):
    with pytest.raises(error, match=f"force: the {named}"):
        rc.send(node, "force", array, timestamp_ns=1)
    assert not node.sent


@pytest.mark.parametrize(
    ("keywords", "error", "named"),
    [
        ({}, ValueError, "no timestamp_ns"),
        ({"timestamp_ns": 1.5}, TypeError, "timestamp_ns is 1.5, expected an integer"),
        ({"timestamps_ns": [1]}, ValueError, "1. timestamps_ns for 2 rows"),
        ({"timestamps_ns": [1.0, 2.0]}, TypeError, "timestamps_ns are float64"),
        ({"timestamp_ns": 1, "fields": ["x"]}, ValueError, r"1 fields for an array \[2, 3\]"),
        ({"timestamp_ns": 1, "fields": "xyz"}, TypeError, "fields are 'xyz', expected a list of names"),
        ({"timestamp_ns": 1, "fields": ["x", "y", "x"]}, ValueError, "expected each name once"),
        ({"timestamp_ns": 2**62}, ValueError, "timestamp_ns is 4611686018427387904, expected ns between"),
        ({"timestamps_ns": [1, 2], "valid": [1, 2]}, ValueError, r"valid is \[1, 2\], expected 0 or 1 for each of 2 samples"),
        ({"timestamps_ns": [1, 2], "valid": [1]}, ValueError, r"valid is \[1\], expected 0 or 1 for each of 2 samples"),
        ({"timestamp_ns": 1, "timestamp": 1}, ValueError, "'timestamp' can't be sent"),
        ({"timestamp_ns": 1, "shape": [6]}, ValueError, "'shape' is set from the array"),
        ({"timestamp_ns": 1, "frame_id": None}, TypeError, "frame_id is None.*leave out"),
        ({"timestamp_ns": 1, "valid": []}, ValueError, r"valid is \[\].*leave an empty one out"),
        ({"timestamp_ns": 1, "mixed": [1, "a"]}, ValueError, "expected a list of one type"),
    ],
)
def test_metadata_that_dora_would_change_are_refused(node, keywords, error, named):
    with pytest.raises(error, match=f"force: .*{named}"):
        rc.send(node, "force", np.zeros((2, 3)), **keywords)
    assert not node.sent


def test_clouds(node):
    points = np.arange(8, dtype=np.float32).reshape(2, 4)
    rc.send_cloud(node, "lidar", points, timestamp_ns=1, fields=["x", "y", "z", "i"])
    assert only(node)[2] == {"shape": [2, 4], "timestamp_ns": 1, "fields": ["x", "y", "z", "i"]}
    for columns in (
        {
            "x": points[:, 0].copy(),
            "y": points[:, 1].copy(),
            "z": points[:, 2].copy(),
            "ring": np.array([1, 2], np.uint16),
        },
        np.array([(0, 1, 2, 1), (4, 5, 6, 2)], [("x", "f4"), ("y", "f4"), ("z", "f4"), ("ring", "u2")]),
    ):
        rc.send_cloud(node, "lidar", columns, timestamp_ns=1, frame_id="front")
        _, cloud, metadata = node.sent.pop()
        assert cloud.to_pylist() == [{"x": 0, "y": 1, "z": 2, "ring": 1}, {"x": 4, "y": 5, "z": 6, "ring": 2}]
        assert cloud.type.field("ring").type == pa.uint16() and metadata == {"timestamp_ns": 1, "frame_id": "front"}


@pytest.mark.parametrize(
    ("points", "named"),
    [
        (np.zeros((2, 4)), r"cloud of fields \['x', 'y', 'z'\] is \[2, 4\], expected \[N, 3\]"),
        ({"x": np.zeros(2), "y": np.zeros(2)}, "expected x, y and z"),
        ({"x": np.zeros(2), "y": np.zeros(2), "z": np.zeros(3)}, "of one length"),
        (np.zeros((2, 0)), r"is \[2, 0\], expected \[N, 3\]"),
        ({"x": np.zeros(4)[::2], "y": np.zeros(2), "z": np.zeros(2)}, "field 'x': .* not contiguous"),
    ],
)
def test_what_is_no_cloud_is_refused(node, points, named):
    with pytest.raises(ValueError, match=named):
        rc.send_cloud(node, "lidar", points, timestamp_ns=1)


def test_names_of_a_cloud_are_told_apart(node):
    with pytest.raises(ValueError, match="lidar: fields are .* expected each name once"):
        rc.send_cloud(node, "lidar", np.zeros((2, 4)), timestamp_ns=1, fields=["x", "y", "z", "x"])
    with pytest.raises(TypeError, match="lidar: fields are 'xyz'"):
        rc.send_cloud(node, "lidar", np.zeros((2, 3)), timestamp_ns=1, fields="xyz")


def test_columns_of_bfloat16_are_refused_and_not_sent_as_bits(node):
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not sent")
    x = torch.zeros(2, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match=r"field 'x': the column is bfloat16, .*: pass tensor.float\(\)"):
        rc.send_cloud(node, "lidar", {"x": x, "y": x, "z": x}, timestamp_ns=1)


def test_truth_values_say_which_samples_are_some(node):
    rc.send(node, "wrench", np.zeros((2, 1)), timestamps_ns=[1, 2], valid=np.array([True, False]))
    assert only(node)[2]["valid"] == [1, 0] and type(only(node)[2]["valid"][0]) is int


def test_what_is_no_node_is_named():
    with pytest.raises(TypeError, match="force: the node is None, expected a dora.Node"):
        rc.send(None, "force", np.zeros(3), timestamp_ns=1)
    with pytest.raises(TypeError, match="the output is 3, expected its name"):
        rc.send(Node(), 3, np.zeros(3), timestamp_ns=1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "transport.json5"), ({"DORA_ZENOH_CONFIG_OVERLAY": "mine"}, "mine"), ({"ZENOH_CONFIG": "x"}, "")],
)
def test_the_transport_is_set_up_unless_the_user_did(given, expected):
    environment = {key: value for key, value in os.environ.items() if "ZENOH" not in key}
    program = (
        "import robocache, os; robocache.wait_for_consumers(); print(os.environ.get('DORA_ZENOH_CONFIG_OVERLAY', ''))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment | given, capture_output=True, text=True, timeout=60
    )
    assert pathlib.Path(done.stdout.strip()).name == expected, done.stderr
    if expected == "transport.json5":
        assert pathlib.Path(done.stdout.strip()).is_file()


def test_who_forgets_the_transport_is_told_once(monkeypatch):
    monkeypatch.setattr("robocache.sending._warned", False)
    for key in ("ZENOH_CONFIG", "DORA_ZENOH_CONFIG_OVERLAY"):
        monkeypatch.delenv(key, raising=False)
    with pytest.warns(UserWarning, match="wait_for_consumers") as warned:
        for _ in range(2):
            rc.send(Node(), "force", np.zeros(3), timestamp_ns=1)
    assert len(warned) == 1 and warned[0].filename == __file__
