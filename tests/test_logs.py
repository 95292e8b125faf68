"""Log lines of a node have a level in dora's log, so that they can be filtered and are not lost."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest

import report
from harness import send
from oracle import MS

FUSE = {"rate_hz": 100, "modalities": [{"input": "force", "dim": 2, "interpolation": "previous"}]}


def lines(flow, name: str) -> list[dict]:
    (path,) = flow.folder.glob(f"out/*/log_{name}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("level", ["warn", "error", None])
def test_warnings_and_errors_have_their_levels_and_outlive_a_minimum(flow, level):
    steps = [send("force", np.float32([i, i]), i * 10 * MS) for i in range(20)]
    wrong = [send("force", np.float32([1, 2, 3]), 200 * MS), send("force", pa.array(["a"]), 200 * MS)] * 3
    back = [send("force", np.float32([i, i]), (i * 10 - 60_000) * MS) for i in range(20)]
    flow.sender(steps + wrong + back)
    minimum = {"min_log_level": level} if level else {}
    flow.robocache("fuse", {"fuse": FUSE}, {"force": "sender/force"}, ["fused", "fuzed"], **minimum)
    flow.collector({"fused": "fuse/fused"})
    done = flow.run()
    assert len(done.received("sink")) == 40
    logged = lines(flow, "fuse")
    by_level = {}
    for line in logged:
        by_level.setdefault(line["level"], []).append(line["msg"])
    assert any("a sample has 3 values, not 2" in message for message in by_level["error"]), logged
    assert any("Arrow type Utf8" in message for message in by_level["error"]), logged
    # The total of the run is logged, too, if the limited rate held lines back.
    assert any(re.fullmatch(r"fuse: input `force`: \d in all, such as: .*", message) for message in by_level["error"]), by_level
    assert ("warn" in by_level) == (level != "error"), logged
    assert ("info" in by_level) == (level is None), logged
    assert "stdout" not in by_level, logged
    if level != "error":
        assert any("output `fuzed`" in message for message in by_level["warn"]), logged
    # On a busy machine zenoh may log something, too.
    assert all(line["target"].startswith(("robocache", "zenoh")) for line in logged), logged


def test_unstamped_messages_are_one_warning_with_a_count_of_each_input(flow):
    modalities = [{"input": name, "dim": 1, "interpolation": "previous"} for name in ("force", "flags", "camera")]
    steps = []
    for i in range(30):
        steps += [send("force", np.float32([i]), None), send("camera", np.float32([i]), "now"), send("flags", np.float32([i]), None)]
    flow.sender([*steps, ("sleep", 1.3), *steps])
    inputs = {name: f"sender/{name}" for name in ("force", "flags", "camera")}
    flow.robocache("fuse", {"fuse": {"rate_hz": 100, "modalities": modalities}}, inputs, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run()
    (warning,) = [line for line in done.logs["fuse"].splitlines() if "no `timestamp_ns`" in line]
    assert warning.startswith("WARN") and "input `force` (" in warning and "input `flags` (" in warning and "camera" not in warning
    (total,) = [line for line in done.logs["fuse"].splitlines() if "messages without `timestamp_ns`: 120 in all" in line]
    assert "input `force` (60)" in total and "input `flags` (60)" in total and "camera" not in total


def test_the_report_of_a_run_ends_with_its_warnings(flow):
    assert "no log" in report.warnings(flow.folder / "out")
    steps = [send("force", np.float32([i, i]), i * 10 * MS) for i in range(20)]
    flow.sender(steps)
    flow.robocache("fuse", {"fuse": FUSE}, {"force": "sender/force"}, ["fused"])
    flow.run()
    assert report.warnings(flow.folder / "out") == "no warnings"
    flow.sender([*steps, send("force", np.float32([1, 2, 3]), 200 * MS)], name="other")
    flow.robocache("fuse", {"fuse": FUSE}, {"force": "other/force"}, ["fused", "fuzed"], name="bad")
    flow.nodes = flow.nodes[2:]
    flow.run()
    words = report.warnings(flow.folder / "out").splitlines()
    assert words[0] == "2 warnings" and len(words) == 3, words
    assert words[1].startswith("warn  bad: output `fuzed`") and words[2].startswith("error bad: fuse: input `force`"), words
