"""robocache-group in whole dataflows: sets of messages of any type, unchanged to the byte."""

import numpy as np
import pyarrow as pa
import pytest
from harness import said, same_bits, send, to_numpy

MS = 1_000_000
START = 1_700_000_000_000_000_000


def cloud(i: int) -> pa.StructArray:
    """A cloud of i points, with columns of several forms."""
    colours = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3 * i, dtype=np.uint8)), 3)
    returns = pa.ListArray.from_arrays(pa.array(np.minimum(np.arange(i + 1), 5), pa.int32()), pa.array(np.arange(min(i, 5), dtype=np.float64)))
    columns = {
        **{axis: pa.array((np.arange(i) * scale).astype(np.float32)) for axis, scale in (("x", 0.1), ("y", -0.2), ("z", np.nan))},
        "ring": pa.array(np.arange(i, dtype=np.uint16)),
        "colour": colours,
        "returns": returns,
    }
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def image(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, 48 * 64 * 3, np.uint8)


def streams(seconds: float = 2.0) -> list[tuple]:
    """A camera at 30 Hz, a lidar at 10 Hz with a drop-out, and features of the camera's frames in bfloat16, 4 ms later."""
    steps = []
    for i in range(int(30 * seconds)):
        stamp = START + round(i * 1e9 / 30)
        steps.append((stamp, send("camera", image(i), stamp, shape=[48, 64, 3], encoding="rgb8", frame_id="optical")))
        bits = np.arange(i, i + 8, dtype=np.uint16)
        steps.append((stamp + 4 * MS, send("features", bits, stamp, shape=[8], dtype="bfloat16", exposure=0.5)))
    for i in range(int(10 * seconds)):
        stamp = START + 7 * MS + i * 100 * MS
        if not 8 <= i < 11:
            steps.append((stamp + 50 * MS, send("lidar", cloud(100 + i), stamp, frame_id="lidar", ring_count=16)))
    return [step for _, step in sorted(steps, key=lambda step: step[0])]


def check_unchanged(got, sent: dict) -> None:
    """Checks that a member is the message that was sent with its stamp, with the keys of a set added."""
    own = sent[got.stamp]
    expected, metadata = own[2], own[3]
    if isinstance(expected, pa.StructArray):
        assert [field.name for field in got.array.type] == [field.name for field in expected.type]
        for field in expected.type:
            type_of = got.array.type.field(field.name).type
            assert type_of == field.type or pa.types.is_nested(field.type) and type_of.value_type == field.type.value_type
    else:
        assert got.array.type == expected.type
    assert same_bits(got.values, to_numpy(expected))
    keys = {key: value for key, value in said(got.metadata).items() if not key.startswith(("group", "_"))}
    assert keys == {"epoch": 0, **metadata}


def sent_of(steps: list[tuple], output: str) -> dict:
    return {step[3]["timestamp_ns"]: step for step in steps if step[0] == "send" and step[1] == output}


def grouped(result, names: list[str], sink: str = "sink") -> list[dict]:
    """The sets that a collector got, as dicts of their members by name; checks that they are whole and in order."""
    lists = {name: result.received(sink, name) for name in names}
    numbers = {name: [message.metadata["group"] for message in messages] for name, messages in lists.items()}
    first = numbers[names[0]]
    assert all(numbers[name] == first for name in names) and first == list(range(len(first)))
    return [dict(zip(lists, members, strict=True)) for members in zip(*lists.values(), strict=True)]


def test_members_are_the_messages_that_came_and_nearest_to_each_other(flow):
    steps = streams()
    flow.sender(steps)
    names = ["lidar", "camera", "features"]
    flow.robocache("group", {"group": {"queue_size": 30, "inputs": [{"input": name} for name in names]}}, {name: f"sender/{name}" for name in names}, names)
    flow.collector({name: f"group/{name}" for name in names})
    result = flow.run()
    sets = grouped(result, names)
    sent = {name: sent_of(steps, name) for name in names}
    # Each cloud, 7 ms after every third frame, is in a set with the frame nearest to it.
    assert [one["lidar"].stamp for one in sets] == list(sent["lidar"])
    for one in sets:
        stamps = {name: message.stamp for name, message in one.items()}
        nearest = min(sent["camera"], key=lambda stamp: abs(stamp - stamps["lidar"]))
        assert stamps["camera"] == stamps["features"] == nearest
        for name, message in one.items():
            check_unchanged(message, sent[name])
            assert message.metadata["group_timestamp_ns"] == max(stamps.values())
            assert message.metadata["group_span_ns"] == max(stamps.values()) - min(stamps.values())
    log = result.logs["group"]
    assert "INFO group: input `camera`: displaced: " in log and "WARN group" not in log, log


def test_exact_pairs_equal_stamps_and_goes_on_after_the_clock_is_set_back(flow):
    def pair(ms: int, with_right: bool = True) -> list[tuple]:
        left = send("left", np.float32([ms]), START + ms * MS)
        return [left, send("right", np.float64([ms, -ms]), START + ms * MS)] if with_right else [left]

    before = [step for i in range(20) for step in pair(50 * i, with_right=i % 4 != 3)]
    # The recording is played again.
    flow.sender(before + [step for i in range(20) for step in pair(50 * i - 10_000)])
    names = ["left", "right"]
    config = {"group": {"policy": "exact", "inputs": [{"input": name} for name in names]}}
    flow.robocache("group", config, {name: f"sender/{name}" for name in names}, names)
    flow.collector({name: f"group/{name}" for name in names})
    result = flow.run()
    sets = grouped(result, names)
    expected = [(50 * i, 0) for i in range(20) if i % 4 != 3] + [(50 * i - 10_000, 1) for i in range(20)]
    assert [(one["left"].stamp - START, one["left"].metadata["epoch"]) for one in sets] == [(ms * MS, epoch) for ms, epoch in expected]
    for one, (ms, epoch) in zip(sets, expected, strict=True):
        assert one["left"].values.tolist() == [ms] and one["right"].values.tolist() == [ms, -ms]
        assert one["right"].stamp == one["left"].stamp and one["right"].metadata["epoch"] == epoch
        assert one["left"].metadata["group_span_ns"] == 0
    assert result.logs["group"].count("the clock jumped") == 1, result.logs["group"]


def test_two_groups_and_what_takes_their_members_run_in_one_process(flow):
    steps = streams(1.0)
    flow.sender(steps)
    plugins = [
        {"group": {"name": "pair", "policy": "exact", "inputs": [{"input": "camera"}, {"input": "features"}]}},
        {"group": {"name": "all", "inputs": [{"input": "pair/camera"}, {"input": "lidar"}]}},
    ]
    inputs = {name: f"sender/{name}" for name in ("camera", "features", "lidar")}
    flow.robocache("node", {"plugins": plugins}, inputs, ["pair/features", "all/pair/camera", "all/lidar"])
    flow.collector({"features": "node/pair/features", "camera": "node/all/pair/camera", "lidar": "node/all/lidar"})
    result = flow.run()
    sent = {name: sent_of(steps, name) for name in inputs}
    features = result.received("sink", "features")
    assert [message.stamp for message in features] == list(sent["features"])
    sets = grouped(result, ["camera", "lidar"])
    assert [one["lidar"].stamp for one in sets] == list(sent["lidar"])
    for one in sets:
        for name, message in one.items():
            check_unchanged(message, sent[name])


def test_what_waits_is_bounded_in_bytes(flow):
    # One input alone gets messages, of 1 MB each: 8 of them may wait, whatever queue_size says.
    big = [send("camera", np.full(1 << 20, i, np.uint8), START + i * 33 * MS) for i in range(40)]
    flow.sender(big + [send("lidar", cloud(3), START + 38 * 33 * MS + 1), send("lidar", cloud(3), START + 39 * 33 * MS)])
    names = ["camera", "lidar"]
    config = {"group": {"queue_size": 1000, "max_held_mb": 8.5, "inputs": [{"input": name} for name in names]}}
    flow.robocache("group", config, {name: f"sender/{name}" for name in names}, names)
    flow.collector({name: f"group/{name}" for name in names})
    result = flow.run()
    sets = grouped(result, names)
    assert [one["camera"].values[0] for one in sets] == [38, 39], result.logs["group"]
    assert "max_held_mb: 32 in all" in result.logs["group"], result.logs["group"]


@pytest.mark.parametrize(("behind_ms", "reason"), [(None, "nothing comes from `lidar`"), (5_000, "the newest of `lidar` is 5.0")])
def test_where_there_are_no_sets_the_log_says_why(flow, behind_ms, reason):
    steps = []
    for i in range(60):
        steps += [send("camera", np.float32([i]), START + 50 * i * MS), ("sleep", 0.05)]
        if behind_ms is not None or i == 59:
            steps.append(send("lidar", np.float32([i]), START + (50 * i - (behind_ms or 0)) * MS))
    flow.sender(steps)
    names = ["camera", "lidar"]
    config = {"group": {"max_span_ms": 20, "inputs": [{"input": name} for name in names]}}
    flow.robocache("group", config, {name: f"sender/{name}" for name in names}, names)
    flow.collector({name: f"group/{name}" for name in names})
    log = flow.run().logs["group"]
    (line,) = [line for line in log.splitlines() if "no set for 2 s" in line]
    assert line.startswith("ERROR group: ") and reason in line, log
