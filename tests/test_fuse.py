"""Fuse in a dataflow: every element type in and out, masks after a wait that ran out, and streams out of order."""

import numpy as np
import pyarrow as pa
import pytest

import oracle
from harness import send
from oracle import DTYPES, MS

TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def payload(values: np.ndarray, dtype: str) -> tuple[pa.Array, np.ndarray]:
    """The payload that is sent, and its values in float32."""
    if dtype == "bfloat16":
        rounded = values.astype(DTYPES[dtype])
        return pa.array(rounded.view(np.uint16)), rounded.astype(np.float32)
    typed = values.astype(dtype)
    return pa.array(typed), typed.astype(np.float32)


@pytest.mark.parametrize("interpolation", ["linear", "previous", "nearest"])
def test_every_element_type_in_and_out(flow, interpolation):
    rng = np.random.default_rng(8)
    stamps = np.sort(rng.choice(2000, 60, replace=False)) * MS // 2
    steps, streams = [], {}
    for dtype in TYPES:
        given = [payload(rng.uniform(0, 100, 3), dtype) for _ in stamps]
        named = {"dtype": dtype} if dtype == "bfloat16" or len(dtype) % 2 else {}
        steps += [send(dtype, array, stamp, **named) for (array, _), stamp in zip(given, stamps, strict=True)]
        streams[dtype] = (stamps, [values for _, values in given])
    steps.sort(key=lambda step: step[3]["timestamp_ns"])
    limit = {"max_gap_ms": 30} if interpolation == "linear" else {"max_age_ms": 15}
    modalities = [{"input": dtype, "dim": 3, "interpolation": interpolation, **limit} for dtype in TYPES]
    flow.sender(steps)
    for out in DTYPES:
        config = {"rate_hz": 100, "window": 3, "dtype": out, "fill_value": -7.5, "modalities": modalities}
        flow.robocache("fuse", {"fuse": config}, {dtype: f"sender/{dtype}" for dtype in TYPES}, ["fused"], name=out)
        flow.collector({"fused": f"{out}/fused"}, name=f"sink_{out}")
    done = flow.run()
    for out, kind in DTYPES.items():
        wanted = oracle.fuse({**config, "dtype": out}, streams)
        got = done.received(f"sink_{out}")
        assert [m.stamp for m in got] == [o.stamp for o in wanted]
        for message, observation in zip(got, wanted, strict=True):
            assert message.metadata["dtype"] == out
            assert message.values.dtype == (np.uint16 if out == "bfloat16" else kind)
            assert message.metadata["valid"] == observation.valid
            assert message.values.tobytes() == observation.values.tobytes(), message.stamp
        assert {*sum((o.valid for o in wanted), [])} == {0, 1}


def one(name: str, t_ms: float, value: float) -> tuple:
    return send(name, np.array([value], np.float32), round(t_ms * MS))


def test_a_wait_that_ran_out_masks_what_is_missing_and_counts_what_comes_too_late(flow):
    """The stream `slow` is silent from 40 to 100 ms; `fast` goes on every 5 ms. Targets are every 10 ms, with a `max_wait_ms` of
    30."""
    steps = []
    for t in range(0, 101, 5):
        steps += [one("slow", t, t)] * (t in (0, 20, 40)) + [one("fast", t, t)]
    # 65 is late for the target at 70, which was sent when `fast` was at 100. 85 is in time for the target at 80.
    steps += [one("slow", 65, 65), one("slow", 85, 85), one("slow", 100, 100)]
    modalities = [
        {"input": "slow", "dim": 1, "interpolation": "linear", "extrapolate_ms": 5},
        {"input": "fast", "dim": 1, "interpolation": "linear"},
    ]
    flow.sender(steps)
    config = {"rate_hz": 100, "max_wait_ms": 30, "modalities": modalities}
    flow.robocache("fuse", {"fuse": config}, {name: f"sender/{name}" for name in ("slow", "fast")}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    got = flow.run().received("sink")
    rows = {m.stamp // MS: (m.values.tolist(), m.metadata["valid"], m.metadata["late_samples"]) for m in got}
    assert [*rows] == [*range(0, 101, 10)]
    for t in (0, 10, 20, 30, 40):
        assert rows[t] == ([t, t], [1, 1], 0)
    for t in (50, 60, 70):
        assert rows[t] == ([0, t], [0, 1], 0)
    assert rows[80] == ([80, 80], [1, 1], 1)
    assert rows[90] == (pytest.approx([90, 90]), [1, 1], 1)
    assert rows[100] == ([100, 100], [1, 1], 1)
    assert [m.metadata["age_ns"][0] // MS for m in got] == [0, 10, 0, 10, 0, 10, 20, 30, 15, 5, 0]


def test_a_stream_that_is_not_waited_for_and_one_in_disorder(flow):
    """The stream `extra` (wait: false) arrives too late for most targets; `mixed` is out of order by less than its `reorder_ms`."""
    rng = np.random.default_rng(9)
    times = np.arange(0, 1000, 7)
    order = np.argsort(times + rng.uniform(0, 20, len(times)))
    assert (np.diff(times[order]) < 0).sum() > 20
    steps = [one("mixed", t, np.sin(t)) for t in times[order]]
    steady = [one("steady", t, t) for t in range(0, 1000, 10)]
    # Between two streams the order does not matter.
    steps = [step for pair in zip(steps, steady, strict=False) for step in pair] + steps[len(steady) :]
    steps += [one("extra", t, t) for t in range(0, 1000, 50)]
    modalities = [
        {"input": "mixed", "dim": 1, "interpolation": "linear", "reorder_ms": 25},
        {"input": "steady", "dim": 1, "interpolation": "previous"},
        {"input": "extra", "dim": 1, "interpolation": "previous", "max_age_ms": 60, "wait": False},
    ]
    flow.sender(steps)
    config = {"rate_hz": 50, "modalities": modalities}
    flow.robocache("fuse", {"fuse": config}, {m["input"]: f"sender/{m['input']}" for m in modalities}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    got = flow.run().received("sink")
    streams = {"mixed": (times * MS, [[np.sin(t)] for t in times]), "steady": (np.arange(0, 1000, 10) * MS, [[t] for t in range(0, 1000, 10)])}
    wanted = oracle.fuse({**config, "modalities": modalities[:2]}, streams)
    assert [m.stamp for m in got] == [o.stamp for o in wanted]
    for message, observation in zip(got, wanted, strict=True):
        assert message.values[:2].tobytes() == observation.values.tobytes()
        assert message.metadata["valid"][:2] == observation.valid
    # All observations but those flushed at the end were sent before `extra` sent anything.
    held = [m.metadata["valid"][2] for m in got]
    assert held[0] == 0 and sum(held) < 10
    assert 15 <= got[-1].metadata["late_samples"] <= 20
