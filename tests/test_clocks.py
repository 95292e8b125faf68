"""Clocks that differ, jump or stop: observations go on, and if they can't, a line of the log says why."""

import numpy as np
import pytest
from harness import send
from oracle import MS

DAY = 86_400_000 * MS
SECONDS = 6
START = 1_700_000_000_000_000_000 + 3_700_001  # off the grid

MODALITIES = [
    {"input": "camera", "dim": 2, "interpolation": "previous"},
    {"input": "force", "dim": 1, "interpolation": "linear"},
]


def history(camera_clock=lambda i, stamp: stamp, force_clock=lambda i, stamp: stamp, camera_ends_s=SECONDS):
    """The messages of a 30 Hz camera and a 200 Hz force sensor, stamped by their own clocks, in the order of the true time."""
    camera = [(round(i * 1e9 / 30), "camera", i) for i in range(30 * camera_ends_s)]
    force = [(5 * MS * i + 1, "force", i) for i in range(200 * SECONDS)]
    clock = {"camera": camera_clock, "force": force_clock}
    for time, name, i in sorted(camera + force):
        values = np.full(2 if name == "camera" else 1, i, np.float32)
        yield send(name, values, clock[name](i, START + time))


HISTORIES = {
    "apart by 1.5 s": history(camera_clock=lambda _, stamp: stamp + 1_533 * MS),
    "apart by a day": history(camera_clock=lambda _, stamp: stamp - DAY),
    "steps by 3 s": history(force_clock=lambda i, stamp: stamp + (3_000 * MS if i > 500 else 0)),
    "one bad stamp": history(force_clock=lambda i, stamp: stamp + (DAY if i == 700 else 0)),
    "a stream dies": history(camera_ends_s=2),
    "the rig is set back": history(
        camera_clock=lambda i, stamp: stamp - (DAY if i > 90 else 0), force_clock=lambda i, stamp: stamp - (DAY if i > 600 else 0)
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_with_max_wait_observations_go_on_whatever_the_clocks_do(flow, name):
    flow.sender(list(HISTORIES[name]))
    config = {"rate_hz": 50, "max_wait_ms": 40, "modalities": MODALITIES}
    flow.robocache("fuse", {"device": "cpu", "fuse": config}, {m: f"sender/{m}" for m in ("camera", "force")}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    result = flow.run()
    stamps = [m.stamp for m in result.received("sink")]
    assert len(stamps) == len(set(stamps)), "no time is sent twice"
    # The grid starts once the wait for the first samples is over, and ends 40 ms before the newest sample.
    assert len(stamps) >= 50 * SECONDS - 2 * 2 - 2, result.logs["fuse"]
    epochs = result.received("sink")[-1].metadata["epoch"]
    # A stamp that is far ahead puts its stream aside, which is not a jump; the next stamp goes back from there, which is one.
    jumps = {"one bad stamp": 1, "the rig is set back": 2}
    assert epochs == jumps.get(name, 0)
    assert result.logs["fuse"].count("the clock jumped") == epochs
    told = {"apart by 1.5 s": "start without it", "apart by a day": "its first sample is 86400.000 s of capture time ahead of `camera`"}
    assert told.get(name, "") in result.logs["fuse"]


def test_no_observations_are_never_silent(flow):
    """The camera is silent and `max_wait_ms` is null, so that nothing is due. After that, the camera sends a stamp two seconds
    before all others."""
    force = [step for i in range(320) for step in (send("force", np.float32([1]), START + 10 * MS * i), ("sleep", 0.01))]
    camera = [send("camera", np.float32([1, 2]), START - 2_000 * MS)]
    flow.sender(force[:520] + camera + force[520:])
    config = {"rate_hz": 50, "modalities": MODALITIES}
    flow.robocache("fuse", {"device": "cpu", "fuse": config}, {m: f"sender/{m}" for m in ("camera", "force")}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    lines = flow.run().logs["fuse"].splitlines()
    silent = [line for line in lines if "no observation for 2" in line]
    assert len(silent) == 1 and "`camera` has sent nothing" in silent[0], lines
    assert any("input `camera`" in line and "clocks differ" in line for line in lines), lines


def test_stamps_of_another_unit_are_named(flow):
    steps = []
    for i in range(30):
        steps += [send("force", np.float32([1]), 1_700_000_000_000 + 50 * i), send("camera", np.float32([1, 2]), 5), ("sleep", 0.05)]
    flow.sender(steps)
    config = {"rate_hz": 50, "max_wait_ms": 40, "modalities": MODALITIES}
    flow.robocache("fuse", {"device": "cpu", "fuse": config}, {m: f"sender/{m}" for m in ("camera", "force")}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    log = flow.run().logs["fuse"]
    assert "input `force`" in log and "in milliseconds (needed: `timestamp_ns` in ns)" in log, log
    assert "its stamp is 5 in each of" in log, log
