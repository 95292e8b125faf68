"""Observations triggered by a stream, a request or a timer, in whole dataflows."""

import pathlib
import pickle
import sys

import numpy as np
import pyarrow as pa
import pytest

from harness import NODES, Flow, Run, check_same, refusal, send, wait_for
from oracle import MS

PYTHON = pathlib.Path(sys.executable)
MODALITIES = [
    {"input": "arm", "dim": 2, "interpolation": "linear"},
    {"input": "camera", "dim": 3, "interpolation": "previous"},
]


def test_a_thousand_requests_and_the_ticks_of_a_timer_give_observations(flow):
    """Times answers to requests at 200 Hz, beside the answers of a service that does nothing, in the same run. The dataflow must be
    stopped, since a timer of dora never closes."""
    count = 1000
    flow.robocache("sim", {"sim": {"real_time": True, "duration_s": None, "start_ns": None}}, outputs=["force"])
    fuse = {"rate_hz": 50, "window": 16, "modalities": [{"input": "force", "dim": 6, "interpolation": "linear"}]}
    live = lambda source: {"source": source, "queue_size": 1000}  # noqa: E731
    inputs = {"force": live("sim/force"), "ask": live("asker/ask")}
    flow.robocache("fuse", {"fuse": {**fuse, "trigger": {"request": "ask"}}}, inputs, ["fused"])
    inputs = {"force": live("sim/force"), "tick": "dora/timer/millis/50"}
    flow.robocache("fuse", {"fuse": {**fuse, "trigger": {"timer": "tick"}}}, inputs, ["fused"], name="ticked")
    flow.collector({"fused": live("ticked/fused")})
    flow.node("echo", PYTHON, str(NODES / "echo.py"), {"ping": live("asker/ping")}, ["pong"])
    answers = {"fused": live("fuse/fused"), "pong": live("echo/pong"), "ready": {"source": "sim/force", "queue_size": 1}}
    result = flow.folder / "asked.pickle"
    flow.node("asker", PYTHON, f"{NODES / 'asker.py'} {result} {count} 200", answers, ["ask", "ping"])
    with flow.start():
        wait_for(result.exists, what="the end of the requests")
    asked = pickle.loads(result.read_bytes())
    came = asked["came"]
    assert [m["request_id"] for _, m in came["fused"]] == [f"ask-{i}" for i in range(count)]
    stamps = []
    for i, (_, metadata) in enumerate(came["fused"]):
        assert metadata["number"] == i and metadata["trigger"] == "request" and "error" not in metadata
        assert metadata["shape"] == [16, 6] and metadata["deterministic"] == 0
        stamps.append(metadata["timestamp_ns"])
    assert (np.diff(stamps) >= 0).all() and len(set(stamps)) > count / 2
    latency = {}
    for output, answer in (("ask", "fused"), ("ping", "pong")):
        times = np.array([at - asked["sent"][output][m["number"]] for at, m in came[answer]])
        latency[output] = np.percentile(times * 1e6, [50, 99])
        print(f"{output}: {len(times)} answers, p50 {latency[output][0]:.0f} us, p99 {latency[output][1]:.0f} us")
    # Not a measurement: the machine may be busy.
    assert latency["ask"][0] < latency["ping"][0] + 5000

    wait_for((flow.folder / "sink.pickle").exists, what="the end of the collector")
    got = Run(0, "", {}, flow.folder).received("sink")
    stamps = np.array([m.stamp for m in got])
    assert len(got) > 70 and (np.diff(stamps) > 0).all()
    assert abs(np.median(np.diff(stamps)) - 50 * MS) < 20 * MS
    assert all(m.metadata["trigger"] == "timer" and m.metadata["deterministic"] == 0 for m in got)


def script() -> list[tuple]:
    """Returns steps of a sender: messages of two sensors, with requests and ticks among them. The last samples make every request
    due."""
    rng = np.random.default_rng(3)
    steps = []
    for i in range(120):
        t = i * 10 * MS
        # The camera is late by 0 to 30 ms.
        late = int(rng.integers(0, 4))
        steps.append(send("arm", rng.normal(size=2).astype(np.float32), t))
        if i % 3 == 0 and i > 12:
            steps.append(send("camera", np.float32([i, 0, late]), t - late * 10 * MS))
        if i % 7 == 0:
            steps.append(("send", "tick", pa.array([], pa.uint8()), {}))
        if i % 5 == 0:
            asked = {} if i % 2 else {"timestamp_ns": t - int(rng.integers(-30, 80)) * MS}
            steps.append(("send", "ask", pa.array([i], pa.int32()), {"request_id": str(i), "weights": [0.5, 1.0], **asked}))
        steps.append(("sleep", 0.001))
    steps.append(("sleep", 0.3))
    return steps


def operations() -> list[dict]:
    common = {"rate_hz": 50, "window": 3, "max_wait_ms": 40, "modalities": MODALITIES}
    return [
        {"fuse": {**common, "trigger": {"request": "ask"}}},
        {"fuse": {**common, "name": "ticked", "trigger": {"timer": "tick"}}},
        {"fuse": {**common, "name": "led", "trigger": {"stream": "camera", "rows": "samples"}}},
    ]


def test_recorded_requests_and_ticks_replay_to_the_same_bytes(tmp_path):
    """Replays a recording made beside fuse in one process, in order of arrival, on which `max_wait_ms` depends."""
    outputs = {"asked": "node/fused", "ticked": "node/ticked/fused", "led": "node/led/fused"}
    live = Flow(tmp_path / "live")
    live.sender(script())
    recording = tmp_path / "recording"
    sources = {name: f"sender/{name}" for name in ("arm", "camera", "ask", "tick")}
    live.robocache("node", {"plugins": [{"record": {"path": str(recording)}}, *operations()]}, sources, ["fused", "ticked/fused", "led/fused"])
    live.collector(outputs)
    lived = live.run()
    again = Flow(tmp_path / "again")
    plugins = [{"replay": {"path": str(recording), "speed": "max", "order": "arrival"}}, *operations()]
    again.robocache("node", {"plugins": plugins}, {}, ["fused", "ticked/fused", "led/fused"])
    again.collector(outputs)
    replayed = again.run()
    for output in outputs:
        check_same(lived.received("sink", output), replayed.received("sink", output))
    asked = lived.received("sink", "asked")
    assert [m.metadata["request_id"] for m in asked] == [str(i) for i in range(0, 120, 5)]
    for message in asked:
        assert message.metadata["weights"] == [0.5, 1.0] and "unstamped" not in message.metadata
        assert message.metadata.get("deterministic") == (0 if int(message.metadata["request_id"]) % 2 else None)
    assert {m.metadata["trigger"] for m in lived.received("sink")} == {"request", "timer", "stream"}
    assert len(lived.received("sink", "ticked")) > 10 and len(lived.received("sink", "led")) > 25


def test_a_replay_by_stamps_says_that_requests_get_other_answers(tmp_path):
    recording = tmp_path / "recording"
    live = Flow(tmp_path / "live")
    live.sender(script())
    sources = {name: f"sender/{name}" for name in ("arm", "camera", "ask")}
    live.robocache("record", {"record": {"path": str(recording)}}, sources, [])
    assert "no `timestamp_ns`" not in live.run().logs["record"]
    for order, times in (("stamp", 1), ("arrival", 0)):
        again = Flow(tmp_path / order)
        again.robocache("replay", {"replay": {"path": str(recording), "speed": "max", "order": order}}, {}, ["arm", "camera", "ask"])
        again.collector({name: f"replay/{name}" for name in ("arm", "camera", "ask")})
        log = again.run().logs["replay"]
        assert log.count("stream `ask` has requests for the newest observation") == times, log


def test_a_request_that_gets_no_observation_gets_an_answer(flow):
    """A request without an observation gets an answer whatever its payload and metadata are. The answer has all metadata of the
    request."""
    own = {"text": "a", "flag": True, "whole": 3, "real": 0.5, "list": [1, 2], "reals": [0.5], "names": ["x", "y"], "frame_id": "base"}
    second = 1000 * MS
    requests = [
        (pa.array(["go", "on"]), {}, None),
        (pa.array([{"goal": 1}]), {"shape": [7]}, None),
        (pa.array([], pa.null()), {"timestamp_ns": 100 * second - MS}, None),
        (pa.array([1, 2]), {"timestamp_ns": "now"}, "`timestamp_ns` is String(\"now\") (allowed: an Integer"),
        (pa.array([1]), {"timestamp_ns": 98 * second}, "2.000 s before the newest time that is due (allowed: up to 1 s"),
        (pa.array([1]), {"timestamp_ns": 10**18}, "s ahead of the newest sample (allowed: up to 10 s"),
        (pa.array([1]), {"timestamp_ns": 2**62}, "out of range"),
        (pa.array([1]), {"timestamp_ns": 101 * second}, "every stream that is waited for is closed"),
    ]
    steps = [send("camera", np.float32([1, 2, 3]), 100 * second), ("sleep", 0.3)]
    for i, (payload, metadata, _) in enumerate(requests):
        # The sender would replace "now" by the time, so "soon" is sent as a stamp of the wrong type.
        asked = {**own, "request_id": str(i), **metadata}
        step = ("send", "ask", payload, asked)
        steps.append(step if metadata.get("timestamp_ns") != "now" else ("send", "ask", payload, {**asked, "timestamp_ns": "soon"}))
        steps.append(("sleep", 0.02))
    fuse = {"rate_hz": 50, "window": 2, "trigger": {"request": "ask"}, "modalities": MODALITIES[1:]}
    flow.sender(steps)
    flow.robocache("fuse", {"fuse": fuse}, {"camera": "sender/camera", "ask": "sender/ask"}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run()
    got = done.received("sink")
    assert [m.metadata["request_id"] for m in got] == [str(i) for i in range(len(requests))]
    for message, (_, metadata, error) in zip(got, requests, strict=True):
        for key, value in own.items():
            assert message.metadata[key] == value, key
        assert message.metadata["trigger"] == "request"
        if error is None:
            assert message.metadata["shape"] == [2, 3] and len(message.values) == 6 and "error" not in message.metadata
            assert message.stamp == metadata.get("timestamp_ns", 100 * second)
        else:
            error = error.replace("now", "soon")
            assert error in message.metadata["error"], message.metadata["error"]
            assert message.metadata["shape"] == [0, 3] and len(message.values) == 0
    log = done.logs["fuse"]
    assert "a request is refused: " in log and "no `timestamp_ns` in messages" not in log


def test_the_frames_of_a_camera_are_the_targets(flow, recording, streams):
    """Windows are as LeRobot makes them: the last four frames of the camera, and every other stream at the times of these
    frames."""
    latency = 33 * MS
    modalities = [
        {"input": "camera", "dim": 128, "interpolation": "previous", "latency_ms": 33},
        {"input": "force", "dim": 6, "interpolation": "linear"},
    ]
    fuse = {"rate_hz": 50, "window": 4, "trigger": {"stream": "camera", "rows": "samples"}, "modalities": modalities}
    sources = {name: f"replay/{name}" for name in ("camera", "force")}
    flow.robocache("replay", {"replay": {"path": str(recording), "speed": "max"}}, outputs=[*sources])
    flow.robocache("fuse", {"fuse": fuse}, sources, ["fused"])
    flow.robocache("align", {"align": fuse}, sources, [*sources])
    flow.collector({"fused": "fuse/fused", "camera": "align/camera"})
    done = flow.run()
    got = done.received("sink", "fused")
    frames, force = streams["camera"], streams["force"]
    stamps, values = np.array(frames.stamps), np.array(frames.values)
    order = np.unique(stamps, return_index=True)[1]
    stamps, values = stamps[order] - latency, values[order]
    first = np.searchsorted(stamps, np.min(force.stamps))
    assert [m.stamp for m in got] == stamps[first:].tolist()
    for i, message in enumerate(got, start=first):
        rows = message.values.reshape(4, -1)
        for back in range(4):
            row = rows[3 - back]
            is_there = i >= back
            assert message.metadata["valid"][2 * (3 - back)] == is_there
            if is_there:
                assert message.metadata["timestamps_ns"][3 - back] == stamps[i - back]
                assert row[:128].tobytes() == values[i - back].tobytes()
            else:
                assert message.metadata["age_ns"][2 * (3 - back)] == -1 and not row.any()
        assert message.metadata["trigger"] == "stream" and "deterministic" not in message.metadata
    aligned = done.received("sink", "camera")
    assert [m.metadata["wait_ns"] for m in aligned] == [m.metadata["wait_ns"] for m in got]


def test_a_trigger_that_is_not_wired_is_said_at_the_start(flow):
    flow.sender([send("camera", np.float32([1, 2, 3]), 0)])
    fuse = {"rate_hz": 50, "trigger": {"request": "ask"}, "modalities": MODALITIES[1:]}
    flow.robocache("fuse", {"fuse": fuse}, {"camera": "sender/camera"}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run(code=None)
    assert done.code != 0
    assert "`ask`" in done.logs["fuse"] and "camera" in done.logs["fuse"]


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ("{ stream: lidar }", ["fuse: trigger.stream: `lidar` is the input of no modality (allowed: camera)"]),
        ("{ request: camera }", ["fuse: trigger.request: `camera` is modalities[0]"]),
        ("{ request: ask, timer: tick }", ["trigger: `request` and `timer` are given together (allowed: one of"]),
        ("{ stream: camera, evry: 2 }", ["trigger.evry: unknown key `evry`, did you mean `every`?"]),
        ("camera", ['trigger: "camera" is not allowed (allowed: a map such as { stream: camera })']),
    ],
)
def test_a_trigger_that_can_not_be_is_refused(tmp_path, trigger, words):
    text = f"fuse: {{ rate_hz: 50, trigger: {trigger}, modalities: [{{ input: camera, dim: 3, interpolation: previous }}] }}"
    code, said = refusal("fuse", text, tmp_path)
    assert code == 2
    for word in ["config.yml", *words]:
        assert word in said, said
