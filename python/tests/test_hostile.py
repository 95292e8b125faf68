"""Tests with random metadata: every message gives an observation or a MessageError, and no other error."""

import datetime
import math
import random

import numpy as np
import pyarrow as pa
import pytest

from made import GRID, fused, observation
from robocache import Attached, Cloud, MessageError, Observation, Voxels, open_tensor

VALUES = [
    None, True, False, 0, -1, 1, 3, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**40, 0.5, 1e300, math.nan, math.inf, "", "x", "[1, 2]", "\x1b[31m\n", "bfloat16", "host",
    b"x", [], [[]], [[], [1]], [None], [1], [1, 2], [0, 2, 3], [-1, -1], [2, 3], [1, "a"], ["a"], ["grids"], ["grids", "grids"], ["a", "b"], ["x", "y", "z"], [0.5], [0.5] * 3,
    [math.nan] * 3, [2**63], [2**64] * 2, [-(2**70), 3], [True, False], [2**62, 2**62], [2**40, 0], [0, 2**40], [1, 2**40, 1], [-2, -3], [1, 1, 1], [0] * 4, [1] * 4, {}, {"a": 1}, (), (1, 2),
    {1, 2}, range(3), np.int64(5), np.float32(1), np.array(7), np.array([[1, 2], [3, 4]]), np.array([2**63], np.uint64), np.array(["a"]), np.array([None]), object(),
    datetime.datetime.now(datetime.UTC), 1 + 2j, np.datetime64("now"), [datetime.datetime.now(datetime.UTC)],
]  # fmt: skip


def with_grids(columns, **said):
    return observation(columns, grids_ms=(90,), said={**GRID, "channels": ["occupancy", "mean_z"], "shape": [1, 2, 2, 3, 4], **said})


COO = {"grids.coords": np.array([0, 0, 0, 1, 2, 3], np.int32), "grids.features": np.ones(4, np.float32)}
BASES = [
    lambda: fused(),
    lambda: fused(dtype=np.uint16) | {"metadata": fused()["metadata"] | {"dtype": "bfloat16"}},
    lambda: fused(error="late", shape=[0, 3], request_id="a"),
    lambda: with_grids({"grids": np.arange(48, dtype=np.float32)}),
    lambda: with_grids({"grids": np.zeros(3, np.uint8)}, channels=["occupancy"]),
    lambda: with_grids(COO, grid_offsets=[0, 2]),
    lambda: with_grids({"grids.x": np.ones(2), "grids.y": np.ones(2), "grids.z": np.ones(2)}, grid_offsets=[0, 2], fields=["x", "y", "z"]),
    lambda: with_grids({"grids": np.arange(12, dtype=np.uint8)}, shape=[1, 2, 2, 3], encoding="rgb8"),
]


def use(sent):
    """Reads a message, and calls every property and method of the observation."""
    got = Observation.from_event(sent)
    assert len(got) == len(got.timestamps_ns)
    assert isinstance(got.timestamp_ns, int) and got.fused.shape == (len(got), got.offsets[-1] if got.modalities else got.fused.shape[1])
    for name in got.modalities:
        assert len(got[name]) == len(got)
    for attached in got.attached.values():
        for row in range(-1, len(got)):
            made = attached.at(row)
            if isinstance(made, Voxels) and math.prod(made.grid_shape) * max(len(made.channels), 1) < 1e6:
                made.dense(), made.occupied(), made.centres_m()
            if isinstance(made, Cloud):
                assert made.points_m.shape == (len(made), 3)


@pytest.mark.parametrize("base", range(len(BASES)))
def test_every_key_with_every_value(base):
    for key in {**BASES[base]()["metadata"], "dtype": 0, "residence": 0, "error": 0, "sender": 0, "ring": 0, "frame_id": 0}:
        for value in VALUES:
            sent = BASES[base]()
            sent["metadata"][key] = value
            check(sent, key, value)


@pytest.mark.parametrize("seed", range(4))
def test_several_keys_at_once(seed):
    chance = random.Random(seed)
    for _ in range(1000):
        sent = chance.choice(BASES)()
        for _ in range(chance.randint(1, 4)):
            key = chance.choice([*sent["metadata"], "dtype", 5, None, "grids."])
            match chance.randrange(4):
                case 0:
                    sent["metadata"].pop(key, None)
                case 1:
                    sent["metadata"][key] = sent["metadata"][chance.choice(list(sent["metadata"]))]
                case _:
                    sent["metadata"][key] = chance.choice(VALUES)
        check(sent, sent["metadata"])


def check(sent, *what):
    for take in (use, Voxels.from_event, Cloud.from_event, Attached.from_event, open_tensor):
        try:
            take(sent)
        except MessageError:
            pass
        except Exception as error:
            raise AssertionError(f"{take.__qualname__} of {what}: {error!r}") from error


@pytest.mark.parametrize("metadata", [None, 5, "x", [], [("a", 1)]])
def test_what_is_no_metadata_is_named(metadata):
    with pytest.raises(MessageError, match="metadata is a"):
        Observation.from_event({**fused(), "metadata": metadata})
    with pytest.raises(MessageError, match="the event is a"):
        Observation.from_event(metadata)


@pytest.mark.parametrize("cell", [[2, 0, 0], [0, 3, 0], [0, 0, 4], [-1, 0, 0], [0, 0, -4], [2**31 - 1, 0, 0]])
def test_a_cell_outside_the_grid_is_refused(cell):
    """A negative index must be refused, since NumPy would count it from the end of the axis."""
    coords = np.array([[0, 0, 0], cell], np.int32)
    sent = with_grids({"grids.coords": coords.reshape(-1), "grids.features": np.ones(4, np.float32)}, grid_offsets=[0, 2])
    with pytest.raises(MessageError, match=f"coords has cell {cell}, expected cells of a grid of .2, 3, 4. cells".replace("[", ".").replace("]", ".")):
        Observation.from_event(sent).attached["grids"].at()
    columns = pa.StructArray.from_arrays([pa.FixedSizeListArray.from_arrays(pa.array(coords.reshape(-1)), 3), pa.FixedSizeListArray.from_arrays(pa.array(np.ones(4, np.float32)), 2)], names=["coords", "features"])
    with pytest.raises(MessageError, match="coords has cell"):
        Voxels.from_event({"type": "INPUT", "value": columns, "metadata": {**GRID, "channels": ["occupancy", "mean_z"], "timestamp_ns": 5}})
