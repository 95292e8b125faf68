"""robocache-clock in dataflows: stamps of a device with a clock of its own come out in host time."""

import subprocess
import time

import numpy as np

from harness import ROOT, Flow, check_same, send, wait_for
from oracle import MS

DEVICE = 5_000 * MS


def stepped(count: int, **metadata) -> list[tuple]:
    """Messages every 10 ms, stamped by a device's clock that began 5 s ago. Their jitter is how late the sender wakes."""
    return [step for i in range(count) for step in (("at", 0.01 * i), send("imu", np.float32([i, -i]), DEVICE + 10 * MS * i, **metadata))]


def test_a_device_comes_out_in_host_time(flow):
    before = time.time_ns()
    flow.sender(stepped(400, frame_id="tool"))
    flow.robocache("clock", {"clock": {"inputs": [{"input": "imu", "lock_s": 2}]}}, {"imu": "sender/imu"}, ["imu"])
    flow.collector({"imu": "clock/imu"})
    done = flow.run()
    after = time.time_ns()
    got = done.received("sink", "imu")
    assert [message.values.tolist() for message in got] == [[i, -i] for i in range(400)]
    stamps = np.array([message.stamp for message in got])
    device = np.array([message.metadata["device_timestamp_ns"] for message in got])
    locked = np.array([message.metadata["clock_locked"] for message in got])
    assert (device == DEVICE + 10 * MS * np.arange(400)).all()
    assert (np.diff(stamps) > 0).all() and before < stamps[0] and stamps[-1] < after
    assert (stamps - device == [message.metadata["clock_offset_ns"] for message in got]).all()
    assert not locked[:200].any() and locked[205:].all()
    # Once the clock is locked, steps are those of the device's clock, but for skew and slew.
    steps = np.diff(stamps[locked == 1])[5:]
    assert abs(steps - 10 * MS).max() < 0.0035 * 10 * MS
    assert all(message.metadata["frame_id"] == "tool" for message in got)
    assert "its stamps are in host time from here on" in done.logs["clock"]


def test_a_device_that_restarts_is_named_in_the_log(flow):
    flow.sender(stepped(50) + [send("imu", np.float32([0, 0]), 10 * MS * i) for i in range(20)])
    flow.robocache("clock", {"clock": {"inputs": [{"input": "imu"}]}}, {"imu": "sender/imu"}, ["imu"])
    flow.collector({"imu": "clock/imu"})
    done = flow.run()
    assert len(done.received("sink", "imu")) == 70
    assert "input `imu`: its clock was set by -5.4" in done.logs["clock"], done.logs["clock"]


def test_stamps_in_microseconds_are_no_good_state(flow):
    """Stamps in microseconds are reported in the log, and `robocache top` shows them as a fault as long as they come."""
    def micro(ns: int) -> tuple:
        return send("imu", np.float32([1, 2]), (DEVICE + ns) // 1000)

    # Sends until `stop` exists, for minutes if need be.
    stop = flow.folder / "stop"
    steps = [step for i in range(12_000) for step in (("at", 0.02 * i), micro(20 * MS * i))]
    flow.sender([("up to", str(stop), steps)])
    status = flow.folder / "status"
    flow.robocache("clock", {"status": str(status), "clock": {"inputs": [{"input": "imu"}]}}, {"imu": "sender/imu"}, ["imu"])
    flow.collector({"imu": "clock/imu"})
    said = []

    def is_said() -> bool:
        done = subprocess.run([ROOT / "target/release/robocache", "top", status, "--once"], timeout=180, capture_output=True, text=True)
        said.append(" ".join(done.stdout.split()))
        return "its stamps are not capture times" in said[-1]

    with flow.start() as wait:
        wait_for(is_said, what="the state of the clock")
        stop.touch()
        done = wait()
    before, _, pace = said[-1].partition("its stamps are not capture times: its stamps advance by ")
    assert before == "warn clock: `imu`: ", said[-1]
    assert 0.0005 < float(pace.split()[0]) < 0.002, said[-1]
    assert "ns per nanosecond, so they are in microseconds (needed: `timestamp_ns` in ns" in done.logs["clock"]


def test_beside_the_recorder_and_fuse_a_run_replays_to_the_same_bytes(flow, tmp_path):
    """The clock, the recorder and fuse run in one process, in this order. After that, a replay in order of arrival and fuse, in one
    process, give the same bytes."""
    fuse = {
        "rate_hz": 50,
        "max_wait_ms": 20,
        "modalities": [
            {"input": "imu", "dim": 2, "interpolation": "linear", "max_gap_ms": 30},
            {"input": "grip", "dim": 1, "interpolation": "previous", "max_age_ms": 60},
        ],
    }
    steps = []
    for i, step in enumerate(stepped(200)):
        steps.append(step)
        if i % 5 == 0:
            # Now and then, the other stream is late by more than the wait.
            steps.append(("sleep", 0.03 if i % 25 == 0 else 0.0))
            steps.append(send("grip", np.float32([i]), "now"))
    flow.sender(steps)
    recording = flow.folder / "recorded"
    plugins = [
        {"clock": {"inputs": [{"input": "imu", "lock_s": 1}, {"input": "grip", "clock": "realtime"}]}},
        {"record": {"path": str(recording)}},
        {"fuse": fuse},
    ]
    flow.robocache("node", {"device": "cpu", "plugins": plugins}, {"imu": "sender/imu", "grip": "sender/grip"}, ["fused"])
    flow.collector({"fused": "node/fused"})
    live = flow.run().received("sink", "fused")
    assert len(live) > 60
    again = Flow(tmp_path / "replay")
    plugins = [{"replay": {"path": str(recording), "speed": "max", "order": "arrival"}}, {"fuse": fuse}]
    again.robocache("node", {"device": "cpu", "plugins": plugins}, outputs=["fused"])
    again.collector({"fused": "node/fused"})
    check_same(live, again.run().received("sink", "fused"))
