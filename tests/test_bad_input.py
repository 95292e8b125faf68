"""Bad input to a running node: it is counted, logged at a limited rate, and the node lives and answers as before."""

import time

import numpy as np
import pyarrow as pa
import pytest

import oracle
from harness import send
from oracle import MS

FUSE = {
    "rate_hz": 100,
    "window": 2,
    "modalities": [
        {"input": "force", "dim": 2, "interpolation": "linear"},
        {"input": "flags", "dim": 1, "interpolation": "previous"},
    ],
}


def floats(*values):
    return pa.array(values, pa.float32())


def samples(force_ms, flags_ms, start: int = 0) -> tuple[list[tuple], dict]:
    """Returns steps of a sender with good messages in the order of their stamps, and the stamps and values of each stream."""
    force = [(start + round(t * MS), np.array([t, -2 * t], np.float32)) for t in force_ms]
    flags = [(start + round(t * MS), np.array([t % 7], np.float32)) for t in flags_ms]
    steps = [send("force", v, t) for t, v in force] + [send("flags", v, t) for t, v in flags]
    steps.sort(key=lambda step: step[3]["timestamp_ns"])
    columns = lambda rows: tuple(zip(*rows, strict=True)) if rows else ((), ())  # noqa: E731
    return steps, {"force": columns(force), "flags": columns(flags)}


def check(got, wanted, epoch=0):
    assert [m.stamp for m in got] == [o.stamp for o in wanted]
    for message, observation in zip(got, wanted, strict=True):
        assert message.metadata["timestamps_ns"] == observation.times
        assert message.metadata["valid"] == observation.valid
        assert message.metadata["age_ns"] == observation.age
        assert message.metadata["epoch"] == epoch
        assert message.values.tobytes() == observation.values.tobytes(), message.stamp


# A bad payload, its metadata, and words that the log must have.
BAD = {
    "wrong length": (floats(1, 2, 3), {}, "a sample has 3 values, not 2"),
    "too short": (floats(1), {}, "a sample has 1 values, not 2"),
    "empty": (floats(), {}, "a sample has 0 values, not 2"),
    "NaN": (floats(1, np.nan), {}, "value 1 of a sample is NaN"),
    "infinity": (floats(-np.inf, 1), {}, "value 0 of a sample is -inf"),
    "wrong Arrow type": (pa.array(["a", "b"]), {}, "Arrow type Utf8 (allowed: arrays of floats"),
    "nulls": (pa.array([1.0, None], pa.float32()), {}, "value 1 of a sample is NaN"),
    "nulls among integers": (pa.array([None, 2], pa.int32()), {}, "value 0 of a sample is NaN"),
    "a struct": (pa.StructArray.from_arrays([floats(1)], ["x"]), {}, "struct"),
    "a stamp that is text": (floats(1, 2), {"timestamp_ns": "300"}, "metadata `timestamp_ns`"),
    "a stamp out of range": (floats(1, 2), {"timestamp_ns": 2**62}, "out of range"),
    "a shape of another length": (floats(1, 2), {"shape": [3]}, "`shape` [3] needs 3 values"),
    "a shape of other stamps": (floats(1, 2, 3, 4), {"shape": [4], "timestamps_ns": [1, 2]}, "contradicts `timestamps_ns`, which has 2 entries (allowed: 2 as the first"),
    "a shape of other fields": (floats(1, 2), {"shape": [2], "fields": ["a", "b", "c"]}, "contradicts `fields`, which has 3 entries (allowed: 3 as the last"),
    "valid of another length": (floats(1, 2), {"valid": [1, 1]}, "`valid` has 2 entries (allowed: 1"),
    "stamps that do not fit": (floats(1, 2), {"timestamps_ns": [1, 2, 3]}, "3 `timestamps_ns` with 2 values"),
    "dtype that is none": (floats(1, 2), {"dtype": "float8"}, "`float8`"),
}


def test_what_is_no_sample_changes_nothing_and_is_counted(flow):
    """Each kind of bad message has an input of its own, since the log has at most one line a second for an input."""
    names = [f"force_{i}" for i in range(len(BAD))]
    config = {**FUSE, "modalities": [{"input": name, "dim": 2, "interpolation": "linear"} for name in names]}
    good, streams = samples(range(0, 600, 10), [])
    steps = [("send", name, *step[2:]) for step in good for name in names]
    bad = [
        ("send", name, values, {"timestamp_ns": 300 * MS} | metadata)
        for name, (values, metadata, _) in zip(names, BAD.values(), strict=True)
    ]
    middle = len(steps) // 2
    flow.sender(steps[:middle] + bad * 3 + steps[middle:])
    flow.robocache("fuse", {"fuse": config}, {name: f"sender/{name}" for name in names}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run()
    check(done.received("sink"), oracle.fuse(config, dict.fromkeys(names, streams["force"])))
    for name, (kind, (_, _, words)) in zip(names, BAD.items(), strict=True):
        lines = [line for line in done.logs["fuse"].splitlines() if f"input `{name}`" in line]
        assert len(lines) == 2 and words in lines[0] and "3 in all" in lines[1], (kind, words, lines)
    assert {m.metadata["late_samples"] for m in done.received("sink")} == {0}


def test_a_flood_of_bad_messages_is_counted_and_logged_once_a_second(flow):
    steps, streams = samples(range(0, 600, 10), range(0, 600, 30))
    nan = send("force", floats(1, np.nan), 300 * MS)
    wrong = send("force", pa.array(["a", "b"]), 300 * MS)
    middle = len(steps) // 2
    flow.sender(steps[:middle] + [nan, wrong] * 1000 + steps[middle:])
    flow.robocache("fuse", {"fuse": FUSE}, {"force": "sender/force", "flags": "sender/flags"}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    begun = time.monotonic()
    done = flow.run()
    seconds = time.monotonic() - begun
    check(done.received("sink"), oracle.fuse(FUSE, streams))
    lines = [line for line in done.logs["fuse"].splitlines() if "input `force`" in line]
    assert "fuse: input `force`: 1000 in all" in done.logs["fuse"], done.logs["fuse"]
    assert "input `force`: 1000 in all" in done.logs["fuse"].replace("fuse: input", "")
    assert 4 <= len(lines) <= 4 + 2 * seconds, lines


def test_stamps_that_go_backwards(flow):
    """Samples that go back a little are sorted in, and counted if they are too late. If they go back by more than `reset_ms`, the
    grid starts anew."""
    start = 5000 * MS
    first, streams = samples([*range(1000, 1600, 10), 1598, 1605], range(1000, 1601, 20), start)
    # The target at 1600 lies between the samples of 1598 and 1605. They come in reverse order, before the flags of 1600.
    *first, earlier, flags, later = first
    first += [later, earlier, flags]
    late = [send("force", floats(1, 1), start + (1200 + i) * MS) for i in range(1, 4)]
    second, streams_2 = samples(range(100, 500, 10), range(103, 500, 20))
    flow.sender(first + late + second)
    flow.robocache("fuse", {"fuse": FUSE}, {"force": "sender/force", "flags": "sender/flags"}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run()
    got = done.received("sink")
    epochs = [m.metadata["epoch"] for m in got]
    assert epochs == sorted(epochs)
    assert {*epochs} == {0, 2}, "both clocks went back, one after the other"
    check([m for m in got if m.metadata["epoch"] == 0], oracle.fuse(FUSE, streams))
    check([m for m in got if m.metadata["epoch"] > 0], oracle.fuse(FUSE, streams_2), epoch=epochs[-1])
    # Three late samples, and the first of `force` after it went back: the clock of `flags`, and so the grid's, had not gone back.
    assert got[-1].metadata["late_samples"] == 4
    assert "the clock jumped by" in done.logs["fuse"]


def test_a_message_without_a_stamp_gets_the_time_of_its_publication(flow):
    steps = []
    for i in range(40):
        steps += [send("force", floats(i, i), None), send("flags", floats(i % 7), None), ("sleep", 0.005)]
    flow.sender(steps)
    flow.robocache("fuse", {"fuse": FUSE}, {"force": "sender/force", "flags": "sender/flags"}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    begun = time.time_ns()
    done = flow.run()
    got = done.received("sink")
    # 40 messages 5 ms apart span at least 19 targets 10 ms apart.
    assert len(got) >= 19
    assert all(begun < m.stamp < time.time_ns() for m in got)
    warnings = [line for line in done.logs["fuse"].splitlines() if "no `timestamp_ns`" in line]
    assert len(warnings) == 1
    assert "messages without `timestamp_ns`: 80 in all" in done.logs["fuse"]


def test_a_node_upstream_dies_and_comes_back(flow):
    steps, streams = samples(range(0, 1000, 10), range(0, 1000, 20))
    force = [step for step in steps if step[1] == "force"]
    flags = [step for step in steps if step[1] == "flags"]
    # dora restarts only nodes that have an input.
    lives = {"inputs": {"tick": "dora/timer/millis/500"}, "restart_policy": "on-failure", "max_restarts": 3}
    flow.sender(force[:50] + [("die",)] + force[50:], name="left", **lives)
    flow.sender(flags, name="right")
    flow.robocache("fuse", {"fuse": FUSE}, {"force": "left/force", "flags": "right/flags"}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run()
    check(done.received("sink"), oracle.fuse(FUSE, streams))
    assert "node `left` is back" in done.logs["fuse"]


def test_a_node_upstream_dies_for_good(flow):
    steps, streams = samples(range(0, 1000, 10), range(0, 1000, 20))
    force = [step for step in steps if step[1] == "force"]
    flags = [step for step in steps if step[1] == "flags"]
    flow.sender(force[:50] + [("die",)], name="left")
    flow.sender([("sleep", 1.0), *flags], name="right")
    flow.robocache("fuse", {"fuse": FUSE}, {"force": "left/force", "flags": "right/flags"}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run(code=None)
    assert done.code != 0
    got = done.received("sink")
    streams["force"] = tuple(part[:50] for part in streams["force"])
    check(got, oracle.fuse(FUSE, streams))
    assert "node `left` failed" in done.logs["fuse"]
    assert "fuse finished successfully" in done.output


VOXELIZE = {
    "origin_m": [-8, -8, -8],
    "voxel_size_m": [0.1, 0.1, 0.1],
    "shape": [160, 160, 160],
    "channels": ["count", "mean_z"],
    "layout": "coo",
    "max_voxels": 1000,
    "inputs": [{"input": "lidar"}],
}


def cloud(stamp: int | None, **fields) -> tuple:
    return send("lidar", pa.StructArray.from_arrays([pa.array(values) for values in fields.values()], list(fields)), stamp)


def test_clouds_that_are_none_and_clouds_that_are_too_much(flow):
    rng = np.random.default_rng(3)
    small = {axis: rng.uniform(-7, 7, 50).astype(np.float32) for axis in "xyz"}
    million = {axis: rng.uniform(-9, 9, 1_000_000).astype(np.float32) for axis in "xyz"}
    holes = {axis: values.copy() for axis, values in small.items()}
    holes["x"][3], holes["y"][4], holes["z"][5] = np.nan, np.inf, -np.inf
    nothing = {axis: np.empty(0, np.float32) for axis in "xyz"}
    good = {1: small, 2: nothing, 3: million, 4: holes, 5: small}
    pause = ("sleep", 1.05)
    bad = [
        (send("lidar", pa.array(["a"]), 10 * MS), "Arrow type Utf8"),
        (cloud(10 * MS, x=small["x"], y=small["y"]), "no field `z`"),
        (send("lidar", floats(1, 2, 3, 4), 10 * MS), "a tensor without `fields`"),
        (send("lidar", floats(1, 2, 3, 4), 10 * MS, fields=["x", "y", "z"]), "4 values are not a whole number of points"),
    ]
    steps = [cloud(1 * MS, **good[1])]
    steps += [bad[0][0], bad[1][0], pause, bad[2][0], pause, bad[3][0]]
    # The last stamp goes back: with a single input, the grid takes its stamp.
    steps += [cloud(2 * MS, **good[2]), cloud(3 * MS, **good[3]), cloud(4 * MS, **good[4]), cloud(-5 * MS, **good[5]), cloud(None, **good[5])]
    flow.sender(steps, shared_memory_pool_size="256MB")
    flow.robocache("voxelize", {"voxelize": VOXELIZE}, {"lidar": "sender/lidar"}, ["voxels"])
    flow.collector({"voxels": "voxelize/voxels"})
    begun = time.time_ns()
    done = flow.run()
    got = done.received("sink")
    assert [m.stamp for m in got[:-1]] == [1 * MS, 2 * MS, 3 * MS, 4 * MS, -5 * MS]
    assert begun < got[-1].stamp < time.time_ns()
    for message, points in zip(got, [*good.values(), small], strict=True):
        wanted = oracle.voxelize(VOXELIZE, {"lidar": points})
        for key, value in wanted.counters.items():
            assert message.metadata[key] == value, key
        coords = np.stack(np.unravel_index(wanted.cells, VOXELIZE["shape"]), axis=1)
        assert np.array_equal(message.values["coords"], coords)
        assert np.array_equal(message.values["features"][:, 0], wanted.channels["count"])
    assert [len(m.values["coords"]) for m in got] == [50, 0, 1000, 47, 50, 50]
    assert got[2].metadata["dropped_overflow"] > 300_000
    for _, words in bad:
        assert words in done.logs["voxelize"], done.logs["voxelize"]


@pytest.mark.parametrize("layout", ["dense", "bits"])
def test_an_empty_cloud_is_an_empty_grid(flow, layout):
    config = {**VOXELIZE, "shape": [4, 4, 4], "channels": ["occupancy"], "layout": layout}
    del config["max_voxels"]
    nothing = np.empty(0, np.float32)
    flow.sender([cloud(7 * MS, x=nothing, y=nothing, z=nothing)])
    flow.robocache("voxelize", {"voxelize": config}, {"lidar": "sender/lidar"}, ["voxels"])
    flow.collector({"voxels": "voxelize/voxels"})
    (message,) = flow.run().received("sink")
    assert not message.values.any()
    assert message.metadata["shape"] == ([1, 4, 4, 4] if layout == "dense" else [4, 4, 4])
    assert message.metadata["points_in"] == message.metadata["points_kept"] == 0
