"""Tests of voxel grids of every layout, and of clouds in both forms."""

import numpy as np
import pyarrow as pa
import pytest

from made import GRID, MS, event, observation
from robocache import Cloud, MessageError, Observation, Voxels

SAID = {
    **GRID,
    "timestamp_ns": 9 * MS,
    "points_in": 7,
    "points_kept": 4,
    "dropped_nonfinite": 1,
    "dropped_outside": 2,
    "dropped_overflow": 0,
}
CELLS = [[0, 0, 2], [0, 2, 3], [1, 1, 0]]


def dense(dtype=np.float32, **more) -> dict:
    grid = np.zeros((2, 2, 3, 4), dtype)
    for i, cell in enumerate(CELLS):
        grid[:, *cell] = 1, i + 5
    return event(
        pa.array(grid.ravel()), {**SAID, "channels": ["count", "mean_z"], "shape": [2, 2, 3, 4], "saturated": 0, **more}
    )


def bits() -> dict:
    # Cells 2, 11 and 16: (0*3 + 0)*4 + 2, (0*3 + 2)*4 + 3, (1*3 + 1)*4 + 0.
    return event(pa.array([0b100, 0b1000, 0b1], pa.uint8()), {**SAID, "channels": ["occupancy"], "shape": [2, 3, 4]})


def coo() -> dict:
    coords = pa.FixedSizeListArray.from_arrays(pa.array(np.array(CELLS, np.int32).ravel()), 3)
    features = pa.FixedSizeListArray.from_arrays(pa.array(np.array([[1, 5], [1, 6], [1, 7]], np.float32).ravel()), 2)
    cells = pa.StructArray.from_arrays([coords, features], names=["coords", "features"])
    return event(
        cells,
        {
            **SAID,
            "channels": ["count", "mean_z"],
            "inputs": ["front", "rear"],
            "inputs_valid": [1, 0],
            "inputs_age_ns": [5, -1],
        },
    )


@pytest.mark.parametrize("sent", [dense, bits, coo])
def test_the_cells_are_the_same_in_every_layout(sent):
    grid = Voxels.from_event(sent())
    assert grid.layout == sent.__name__
    assert np.asarray(grid.occupied()).tolist() == CELLS
    assert grid.dense().shape == (len(grid.channels), 2, 3, 4)
    assert np.argwhere(grid.dense()[0]).tolist() == CELLS
    if sent is not bits:
        assert [grid.channel("mean_z")[*cell] for cell in CELLS] == [5, 6, 7]
    # With the origin 0, 1, 2 and edges 0.5, 0.5, 1 the middle of cell 0, 0, 2 is at 0.25, 1.25, 4.5.
    assert grid.centres_m()[0].tolist() == [0.25, 1.25, 4.5]
    assert grid.timestamp_ns == 9 * MS
    counters = dict(grid.counters)
    counters.pop("saturated", None)
    assert counters == {
        "points_in": 7,
        "points_kept": 4,
        "dropped_nonfinite": 1,
        "dropped_outside": 2,
        "dropped_overflow": 0,
    }


def test_a_grid_and_a_cloud_without_points():
    empty = pa.StructArray.from_arrays(
        [
            pa.FixedSizeListArray.from_arrays(pa.array([], pa.int32()), 3),
            pa.FixedSizeListArray.from_arrays(pa.array([], pa.float32()), 2),
        ],
        names=["coords", "features"],
    )
    grid = Voxels.from_event(event(empty, {**SAID, "channels": ["count", "mean_z"]}))
    assert grid.occupied().shape == (0, 3) and grid.features.shape == (0, 2) and not grid.dense().any()
    said = {**GRID, "channels": ["count", "mean_z"], "grid_offsets": [0, 0]}
    columns = {"grids.coords": np.empty(0, np.int32), "grids.features": np.empty(0, np.float32)}
    held = Observation.from_event(observation(columns, grids_ms=(90,), said=said)).attached["grids"].at()
    assert held.occupied().shape == (0, 3) and held.features.shape == (0, 2)
    columns = {f"grids.{axis}": np.empty(0, np.float32) for axis in "xyz"}
    cloud = (
        Observation.from_event(observation(columns, grids_ms=(90,), said={"grid_offsets": [0, 0]}))
        .attached["grids"]
        .at()
    )
    assert len(cloud) == 0 and cloud.points_m.shape == (0, 3)
    flat = event(pa.array([], pa.float32()), {"timestamp_ns": 5, "shape": [0, 4], "fields": ["x", "y", "z", "i"]})
    assert len(Cloud.from_event(flat)) == 0


def test_a_grid_of_bfloat16_is_widened():
    sent = dense()
    values = sent["value"].to_numpy().view(np.uint32) >> 16
    sent = event(pa.array(values.astype(np.uint16)), sent["metadata"] | {"dtype": "bfloat16"})
    assert Voxels.from_event(sent).dense().tolist() == Voxels.from_event(dense()).dense().tolist()


def test_what_is_in_a_grid_of_several_inputs():
    grid = Voxels.from_event(coo())
    assert (
        grid.inputs == ("front", "rear")
        and grid.inputs_valid.tolist() == [True, False]
        and grid.inputs_age_ns.tolist() == [5, -1]
    )


def test_the_memory_of_the_sender_is_kept_only_where_asked():
    sent = dense()
    held = sent["value"].to_numpy()
    assert not np.shares_memory(Voxels.from_event(sent).values, held)
    assert np.shares_memory(Voxels.from_event(sent, copy=False).values, held)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"grid_shape": [2, 3]}, "grid_shape has 2 entries, expected 3"),
        ({"grid_shape": [-2, -3, 4]}, "grid_shape is .-2, -3, 4., expected 1 or more"),
        ({"grid_shape": [2, 3, 5]}, "48 values for 2 channels of .2, 3, 5. cells"),
        ({"channels": ["count"]}, "48 values for 1 channels"),
        ({"channels": None}, "no 'channels'"),
        ({"origin_m": [0.0]}, "origin_m has 1 entries"),
    ],
)
def test_a_grid_that_contradicts_itself_is_named(change, named):
    sent = dense(**change)
    if None in change.values():
        del sent["metadata"]["channels"]
    with pytest.raises(MessageError, match=named):
        Voxels.from_event(sent)


def test_cells_can_not_be_told_without_a_channel_that_says_so():
    with pytest.raises(MessageError, match="expected `occupancy` or `count`"):
        Voxels.from_event(dense(channels=["mean_x", "mean_z"])).occupied()
    with pytest.raises(KeyError, match="no channel 'count'"):
        Voxels.from_event(dense(channels=["mean_x", "mean_z"])).channel("count")


def test_clouds_in_both_forms():
    columns = {"x": [1.0, 2.0], "y": [3.0, 4.0], "z": [5.0, 6.0], "ring": np.array([7, 8], np.uint16)}
    struct = pa.StructArray.from_arrays([pa.array(c) for c in columns.values()], names=list(columns))
    one = Cloud.from_event(event(struct, {"timestamp_ns": 5, "frame_id": "front"}))
    flat = event(
        pa.array([1, 3, 5, 7, 2, 4, 6, 8], pa.float32()),
        {"timestamp_ns": 5, "shape": [2, 4], "fields": ["x", "y", "z", "ring"]},
    )
    for cloud in (one, Cloud.from_event(flat)):
        assert (
            len(cloud) == 2 and cloud.points_m.tolist() == [[1, 3, 5], [2, 4, 6]] and cloud["ring"].tolist() == [7, 8]
        )
    assert (one.frame_id, one["ring"].dtype) == ("front", np.uint16)
    bits = pa.array((np.arange(6, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16))
    narrow = Cloud.from_event(event(bits, {"timestamp_ns": 5, "shape": [2, 3], "dtype": "bfloat16"}))
    assert narrow.points_m.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(KeyError, match="no field 'intensity'"):
        one["intensity"]
    with pytest.raises(MessageError, match="expected x, y and z"):
        Cloud.from_event(event(pa.array([1.0, 2.0]), {"timestamp_ns": 5, "fields": ["x", "y"]}))
    with pytest.raises(MessageError, match="4 values are not rows"):
        Cloud.from_event(event(pa.array([1.0] * 4), {"timestamp_ns": 5}))
