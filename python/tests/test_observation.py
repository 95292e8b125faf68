"""Tests of observations in every form that the nodes publish, on messages that a reader can check by hand."""

import math
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from made import GRID, MS, event, fused, metadata, observation
from robocache import MessageError, Observation, Voxels


def test_the_fields_are_those_of_the_message():
    got = Observation.from_event(fused())
    assert got.fused.tolist() == [[1, 2, 3], [4, 5, 6]] and got.fused.dtype == np.float32
    assert got.valid.all() and got.valid.shape == (2, 2)
    assert got.age_ns.tolist() == [[5 * MS, MS], [5 * MS, MS]]
    assert got.timestamps_ns.tolist() == [80 * MS, 100 * MS] and got.timestamp_ns == 100 * MS
    assert (got.modalities, got.offsets, got.epoch, got.late_samples) == (("camera", "force"), (0, 2, 3), 0, 3)
    assert (got.wait_ns, got.trigger, got.error, dict(got.attached), len(got)) == (7, "grid", None, {}, 2)


def test_a_modality_is_a_view_of_its_columns():
    got = Observation.from_event(fused())
    assert got["camera"].tolist() == [[1, 2], [4, 5]] and got["force"].tolist() == [[3], [6]]
    assert np.shares_memory(got["force"], got.fused)
    with pytest.raises(KeyError, match=r"no modality 'gripper': modalities are \['camera', 'force'\]"):
        got["gripper"]


def test_entries_that_are_not_valid_are_no_numbers():
    """Every value that the node sent looks like a measurement, also if it is not valid, so that only the mask tells."""
    sent = fused(valid=(1, 0, 0, 1))
    assert np.array_equal(Observation.from_event(sent).fused, [[1, 2, np.nan], [np.nan, np.nan, 6]], equal_nan=True)
    assert Observation.from_event(sent, invalid=0.0).fused.tolist() == [[1, 2, 0], [0, 0, 6]]
    assert Observation.from_event(sent, invalid=None).fused.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert sent["value"].to_pylist() == [1, 2, 3, 4, 5, 6]


def test_received_memory_is_copied_unless_asked_not_to():
    sent = fused(valid=(1, 0, 1, 1))
    held = sent["value"].to_numpy()
    assert not np.shares_memory(Observation.from_event(sent).fused, held)
    view = Observation.from_event(sent, invalid=None, copy=False).fused
    assert np.shares_memory(view, held) and not view.flags.writeable
    with pytest.raises(ValueError, match="copy=False with invalid=nan"):
        Observation.from_event(sent, copy=False)


def test_float16_stays_and_bfloat16_is_widened():
    half = Observation.from_event(fused(dtype=np.float16, valid=(1, 0, 1, 1))).fused
    assert half.dtype == np.float16 and math.isnan(half[0, 2])
    # 1.0 is 0x3f80 in bfloat16, 1.5 0x3fc0, 2.0 0x4000, -3.0 0xc040.
    bits = [0x3F80, 0x3FC0, 0x4000, 0xC040, 0x3F80, 0x4000]
    sent = fused(bits, np.uint16, valid=(1, 0, 1, 1))
    sent["metadata"]["dtype"] = "bfloat16"
    wide = Observation.from_event(sent)
    assert wide.fused.dtype == np.float32 and wide.tensor.dtype == "bfloat16"
    assert np.array_equal(wide.fused, [[1, 1.5, np.nan], [-3, 1, 2]], equal_nan=True)
    # 1.01171875 lies between 1.0078125 (odd) and 1.015625 (even), and goes to the even one.
    assert Observation.from_event(sent, invalid=1.01171875).fused[0, 2] == 1.015625


def test_an_aligned_stream_is_an_observation_of_one_modality():
    said = metadata() | {"modalities": ["force"], "offsets": [0, 3], "valid": [1, 0], "age_ns": [0, -1]}
    got = Observation.from_event(event(pa.array(np.arange(6, dtype=np.float64).astype(np.float32)), said))
    assert np.array_equal(got["force"], [[0, 1, 2], [np.nan] * 3], equal_nan=True)


def test_an_answer_without_an_observation_says_why():
    said = {"shape": [0, 3], "error": "it asks for 1 ns", "request_id": "7", "timestamp_ns": 1}
    got = Observation.from_event(event(pa.array([], pa.float32()), said))
    assert (got.error, len(got), got.modalities, got.fused.shape, got.timestamp_ns) == (
        "it asks for 1 ns",
        0,
        (),
        (0, 3),
        1,
    )
    assert got.metadata["request_id"] == "7"
    with pytest.raises(KeyError, match="it asks for 1 ns"):
        got["force"]


def dense(ms: int) -> np.ndarray:
    return np.full(2 * 24, ms / 100, np.float32)


def test_dense_grids_of_the_rows():
    said = {**GRID, "channels": ["occupancy", "mean_z"], "shape": [2, 2, 2, 3, 4]}
    sent = observation({"grids": np.concatenate([dense(70), dense(90)])}, grids_ms=(70, 90), said=said)
    grids = Observation.from_event(sent).attached["grids"]
    newest = grids.at()
    assert isinstance(newest, Voxels) and newest.layout == "dense" and newest.dense().shape == (2, 2, 3, 4)
    assert np.all(newest.dense() == np.float32(0.9)) and np.all(grids.at(0).dense() == np.float32(0.7))
    assert (newest.timestamp_ns, grids.age_ns.tolist()) == (90 * MS, [10 * MS, 10 * MS])
    assert newest.origin_m == (0.0, 1.0, 2.0) and grids.valid.all()


def test_grids_of_bits():
    bits = np.array([[0b101, 0, 0], [0b1, 0, 0b1000_0000]], np.uint8)
    said = {**GRID, "channels": ["occupancy"], "shape": [2, 3]}
    grids = Observation.from_event(observation({"grids": bits.ravel()}, grids_ms=(70, 90), said=said)).attached["grids"]
    assert grids.at().layout == "bits" and grids.at().occupied().tolist() == [[0, 0, 0], [1, 2, 3]]
    assert grids.at(0).occupied().tolist() == [[0, 0, 0], [0, 0, 2]]


def test_coo_grids():
    coords = np.array([[0, 0, 1], [1, 2, 3], [0, 1, 0]], np.int32)
    features = np.array([[1, 5], [1, 6], [1, 7]], np.float32)
    said = {**GRID, "channels": ["occupancy", "mean_z"], "grid_offsets": [0, 2, 3]}
    columns = {"grids.coords": coords.ravel(), "grids.features": features.ravel()}
    grids = Observation.from_event(observation(columns, grids_ms=(70, 90), said=said)).attached["grids"]
    assert grids.at(0).coords.tolist() == coords[:2].tolist() and grids.at(0).features.tolist() == features[:2].tolist()
    assert grids.at().dense()[:, 0, 1, 0].tolist() == [1, 7] and grids.at().dense().sum() == 8


def test_attached_clouds_and_images():
    columns = {
        "grids.x": np.array([1.0, 2, 3]),
        "grids.y": np.zeros(3),
        "grids.z": np.ones(3),
        "grids.ring": np.array([4, 5, 6], np.uint16),
    }
    sent = observation(columns, grids_ms=(70, 90), said={"grid_offsets": [0, 1, 3], "frame_id": "map"})
    cloud = Observation.from_event(sent).attached["grids"].at()
    assert (
        cloud.points_m.tolist() == [[2, 0, 1], [3, 0, 1]]
        and cloud["ring"].tolist() == [5, 6]
        and cloud.frame_id == "map"
    )
    flat = np.arange(12, dtype=np.float32)
    sent = observation(
        {"grids": flat},
        grids_ms=(70, 90),
        said={"grid_offsets": [0, 1, 3], "shape": [3, 4], "fields": ["x", "y", "z", "i"]},
    )
    cloud = Observation.from_event(sent).attached["grids"].at()
    assert cloud.points_m.tolist() == [[4, 5, 6], [8, 9, 10]] and cloud["i"].tolist() == [7, 11]
    sent = observation({"grids": np.arange(12, dtype=np.uint8)}, grids_ms=(70, 90), said={"shape": [2, 1, 2, 3]})
    assert Observation.from_event(sent).attached["grids"].at().tolist() == [[[6, 7, 8], [9, 10, 11]]]


def test_nothing_attached_yet():
    grids = Observation.from_event(observation({"grids": np.empty(0, np.float32)})).attached["grids"]
    assert grids.at() is None and not grids.valid.any()


def test_fused_alone_says_where_the_grids_are():
    sent = fused()
    sent["metadata"] |= {"attached": ["grids"], "grid_index": [-1, 0], "grid_age_ns": [-1, MS]}
    grids = Observation.from_event(sent).attached["grids"]
    assert grids.valid.tolist() == [False, True] and grids.at(0) is None
    with pytest.raises(MessageError, match="wire `observation`, or the output 'grids'"):
        grids.at()


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("shape", [2, 4], "shape is .*6 values|offsets are"),
        ("shape", [6], "shape is .6., expected .T, D."),
        ("valid", [1, 1, 1], "valid has 3 entries, expected 4"),
        ("valid", "[1 1 1 1]", "valid is '.1 1 1 1.', expected a list of integers"),
        ("offsets", [0, 2, 4], "offsets are .0, 2, 4., expected 0 rising to 3"),
        ("offsets", [1, 2, 3], "offsets are .1, 2, 3., expected 0 rising to 3"),
        ("offsets", [0, 4, 3], "offsets are .0, 4, 3., expected 0 rising to 3"),
        ("timestamps_ns", [1], "timestamps_ns has 1 entries, expected 2"),
        ("modalities", "camera", "modalities is 'camera', expected a list of strings"),
        ("epoch", None, "no 'epoch'"),
        ("epoch", "1", "epoch is '1', expected an integer"),
        ("dtype", "bfloat16", "bfloat16 for values of float32"),
        ("grid_index", [0], "grid_index has 1 entries, expected 2"),
        ("grid_index", [0, 1], "grid_index of 'grids' is .0, 1. for 1 messages"),
        ("attached", ["clouds"], ".clouds. is attached, and metadata has no timestamps_ns of it"),
        ("residence", "cuda", "metadata has no 'ring'"),
    ],
)
def test_a_message_that_breaks_the_contract_is_named(key, value, named):
    said = {**GRID, "channels": ["occupancy", "mean_z"], "shape": [1, 2, 2, 3, 4]}
    sent = observation({"grids": dense(90)}, grids_ms=(90,), said=said)
    Observation.from_event(sent)
    if value is None:
        del sent["metadata"][key]
    else:
        sent["metadata"][key] = value
    with pytest.raises(MessageError, match=named):
        Observation.from_event(sent)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (pa.array([], pa.float32()), "0 values"),
        ({"grids": np.ones(3)}, "payload has no 'fused'"),
        (object(), "is a object"),
        (pa.array([1] * 6), "values are int64"),
    ],
)
def test_a_payload_that_is_none_is_named(value, named):
    with pytest.raises(MessageError, match=named):
        Observation.from_event(event(value, metadata(valid=(0, 0, 0, 0))))


def test_an_event_that_is_no_message_is_named():
    with pytest.raises(MessageError, match="of type 'STOP', expected 'INPUT'"):
        Observation.from_event({"type": "STOP"})


def test_other_arrow_libraries_and_numpy_are_taken():
    class Foreign:
        def __arrow_c_array__(self, requested_schema=None):
            return pa.array(np.arange(6, dtype=np.float32)).__arrow_c_array__(requested_schema)

    wanted = [[0, 1, 2], [3, 4, 5]]
    assert Observation.from_message(Foreign(), metadata()).fused.tolist() == wanted
    assert Observation.from_message(np.arange(6, dtype=np.float32), metadata()).fused.tolist() == wanted
    assert Observation.from_message({"fused": np.arange(6, dtype=np.float32)}, metadata()).fused.tolist() == wanted


def test_the_package_needs_no_pyarrow_and_imports_neither_torch_nor_cupy():
    program = (
        "import sys; sys.modules['pyarrow'] = None; import robocache; print({'torch', 'cupy', 'dora'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=180)
    assert done.stdout == "set()\n", done.stderr
