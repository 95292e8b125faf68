"""Diagnostics of nodes in a dataflow: a planted fault is in the row of its input, live, recorded and replayed."""

import json
import resource
import signal
import subprocess
import time

import numpy as np
import pyarrow as pa
import pytest

from harness import ROOT, Flow, said, send, wait_for
from oracle import MS

OK, WARN, ERROR, STALE = range(4)
FUSE = {
    "rate_hz": 100,
    "max_wait_ms": 30,
    "modalities": [
        {"input": "good", "dim": 1, "interpolation": "previous"},
        {"input": "wild", "dim": 2, "interpolation": "linear", "max_gap_ms": 40},
        {"input": "stops", "dim": 1, "interpolation": "previous", "max_age_ms": 100},
        {"input": "named", "dim": 1, "interpolation": "previous", "from": {"columns": ["position"]}},
    ],
}
INPUTS = {name: f"sender/{name}" for name in ("good", "wild", "stops", "named")}


def steps(seconds: float) -> list[tuple]:
    """Four streams of 50 Hz, stamped by the host's clock; the faults of `wild` and `stops` come in the first 1.5 s."""
    ones, found = np.ones(1, np.float32), []
    for i in range(int(seconds * 50)):
        ms = i * 20
        found.append(("at", ms / 1000))
        found.append(send("good", ones, "now"))
        if ms < 500:
            found.append(send("stops", ones, "now"))
        # The selector finds no `position` in these messages.
        found.append(send("named", pa.array([{"pos": 1.0}]), "now"))
        match ms:
            case 600:
                found.append(send("wild", np.ones(3, np.float32), "now"))
            case 620:
                found.append(send("wild", np.array([1, np.nan], np.float32), "now"))
            case 640:
                found.append(send("wild", np.ones(2, np.float32), 1 << 62))
            case 1200:
                found.append(send("wild", np.ones(2, np.float32), 5 * MS))
            case _:
                found.append(send("wild", np.ones(2, np.float32), "now"))
    return found


def of_fuse(run) -> list:
    return run[0].received("sink", "diagnostics")


def rows(message) -> dict[str, dict]:
    return {row["input"]: row for row in message.array.to_pylist()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    flow = Flow(tmp_path_factory.mktemp("diagnostics"))
    flow.sender(steps(4.5))
    status = flow.folder / "status"
    flow.robocache("fuse", {"status": str(status), "fuse": FUSE}, INPUTS, ["fused", "diagnostics"])
    recording = flow.folder / "recorded"
    flow.robocache("record", {"record": {"path": str(recording)}}, {"diagnostics": "fuse/diagnostics"}, env={"ROBOCACHE_STATUS": str(status)})
    flow.collector({"diagnostics": "fuse/diagnostics", "good": "sender/good"})
    return flow.run(), recording, status


def test_once_a_second_a_row_for_each_input(run):
    got = of_fuse(run)
    for message in got:
        assert message.metadata["node"] == "fuse" and message.metadata["device"] == "cpu"
        assert [row["input"] for row in message.array.to_pylist()] == [*INPUTS]
        assert message.array.field("message").type == pa.string()
        levels = message.array.field("level").to_pylist()
        assert message.metadata["level"] == max(levels)
    # The last message comes when the node ends. On a busy machine a message may be late, and the next ones do not catch up.
    seconds = np.diff([message.stamp for message in got[:-1]]) * 1e-9
    assert len(got) >= 4 and seconds.min() > 0.9 and np.mean(seconds) < 1.5, seconds
    last = got[-1].metadata
    assert last["observations"] > 300 and last["wait_p50_ns"] >= 0 and last["compute_p50_us"] > 0 and "queue_depth" in last


def test_every_planted_fault_is_in_its_row(run):
    done, _, _ = run
    got = [rows(message) for message in of_fuse(run)]
    last = got[-1]
    good = last["good"]
    # The rate must be that of the stamps: on a busy machine, a sender of 50 Hz may be slower.
    stamps = np.array([message.stamp for message in done.received("sink", "good")])
    rate_hz = (len(stamps) - 1) / ((of_fuse(run)[-1].stamp - stamps[0]) * 1e-9)
    assert abs(good["rate_hz"] / rate_hz - 1) < 0.2 and abs(good["period_p50_ns"] - np.median(np.diff(stamps))) < 4 * MS
    assert good["messages"] == len(stamps) == 225
    assert good["valid_share"] > 0.9 and good["faults"] == good["late"] == good["out_of_order"] == 0
    assert 0 <= good["delay_p50_ns"] < 100 * MS and good["clock_offset_ns"] == -1 and np.isnan(good["clock_skew_ppm"])
    wild = last["wild"]
    assert (wild["dropped_length"], wild["dropped_nonfinite"], wild["dropped_stamp"], wild["faults"]) == (1, 1, 1, 3)
    assert wild["epoch"] >= 1
    said = {name: [row[name]["message"] for row in got] for name in INPUTS}
    level = {name: [row[name]["level"] for row in got] for name in INPUTS}
    assert any("3 faults" in words or "not finite" in words or "not 2" in words for words in said["wild"]), said
    assert any("a clock jumped" in words for words in said["wild"] + said["good"]), said
    assert STALE in level["stops"] and any("nothing has come for" in words for words in said["stops"]), said
    # When the node ends, every input is closed.
    assert set(level["good"][:-1]) <= {OK, WARN} and level["good"][-1] == STALE, said
    # Messages that the selector can't use are not reported as silence, here or in the log.
    named = last["named"]
    assert named["messages"] == 0 and named["faults"] > 200
    assert all(words.startswith("none of its messages can be used: ") and "`position`" in words for words in said["named"][:4]), said
    assert "`named` has sent nothing that can be used" in done.logs["fuse"], done.logs["fuse"]


def test_what_was_recorded_replays_as_it_was(run, tmp_path):
    _, recording, _ = run
    sent = of_fuse(run)
    flow = Flow(tmp_path)
    flow.robocache("replay", {"replay": {"path": str(recording), "speed": "max"}}, outputs=["diagnostics"])
    flow.collector({"diagnostics": "replay/diagnostics"})
    got = flow.run().received("sink")
    assert len(got) == len(sent)
    for a, b in zip(sent, got, strict=True):
        # Compared as text, since NaN does not equal NaN.
        assert str(a.array.to_pylist()) == str(b.array.to_pylist()) and a.array.type.field("input").type == b.array.type.field("input").type
        assert said(a.metadata) == said(b.metadata)


def test_a_report_shows_what_was_recorded(run, tmp_path):
    _, recording, _ = run
    page = tmp_path / "page.html"
    command = [ROOT / "target" / "release" / "robocache", "report", recording, "-o", page]
    subprocess.run(command, check=True, timeout=180, capture_output=True)
    [shown] = json.loads(page.read_text().split('id="data">')[1].split("</script>")[0])["diagnostics"]
    assert shown["stream"] == "diagnostics" and set(shown["inputs"]) == {f"fuse: {name}" for name in INPUTS}
    last = rows(of_fuse(run)[-1])
    for name in INPUTS:
        of, row = shown["inputs"][f"fuse: {name}"], last[name]
        assert of["message"] == row["message"] and of["numbers"]["faults"] == row["faults"], name
    assert {"wait p50", "fuse: good"} <= {chart["name"] for chart in shown["charts"]}


def test_a_report_that_can_not_be_written_leaves_the_one_before(run, tmp_path):
    _, recording, _ = run
    page = tmp_path / "page.html"
    command = [ROOT / "target" / "release" / "robocache", "report", recording, "-o", page]
    subprocess.run(command, check=True, timeout=180, capture_output=True)
    before = page.read_bytes()

    def no_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = subprocess.run(command, timeout=180, capture_output=True, text=True, preexec_fn=no_room)
    assert done.returncode == 2 and "page.html" in done.stderr
    assert page.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_status_files_stay_behind_and_say_that_the_nodes_ended(run):
    _, _, status = run
    assert sorted(path.name for path in status.iterdir()) == ["fuse.json", "record.json"]
    fuse = json.loads((status / "fuse.json").read_text())
    assert fuse["ended"] and fuse["version"] == 1 and fuse["node"] == "fuse"
    last = rows(of_fuse(run)[-1])
    for row in fuse["inputs"]:
        assert row["messages"] == last[row["input"]]["messages"]
        assert row["level"] in ("ok", "warn", "error", "stale")
    record = json.loads((status / "record.json").read_text())
    assert record["ended"] and record["inputs"][0]["messages"] == len(of_fuse(run))


def test_the_file_is_whole_whenever_it_is_read(flow):
    stop = flow.folder / "stop"
    flow.sender([("until", str(stop), [send("good", np.ones(1, np.float32), "now"), ("sleep", 0.01)])])
    config = {"rate_hz": 100, "modalities": [FUSE["modalities"][0]]}
    status = flow.folder / "status"
    flow.robocache("fuse", {"status": str(status), "fuse": config}, {"good": "sender/good"}, ["fused"])
    with flow.start() as wait:
        path = status / "fuse.json"
        wait_for(path.exists, what="the status")
        seen = set()
        for _ in range(10_000):
            seen.add(json.loads(path.read_text())["timestamp_ns"])
        wait_for(lambda: len(seen | {json.loads(path.read_text())["timestamp_ns"]}) > len(seen), what="another status")
        stop.touch()
        done = wait()
    assert done.code == 0 and json.loads(path.read_text())["ended"]


def test_nobody_who_does_not_ask_gets_a_file(flow):
    flow.sender([send("good", np.ones(1, np.float32), i * 10 * MS) for i in range(5)])
    config = {"rate_hz": 100, "modalities": [FUSE["modalities"][0]]}
    flow.robocache("fuse", {"fuse": config}, {"good": "sender/good"}, ["fused"], env={"ROBOCACHE_STATUS": ""})
    flow.collector({"fused": "fuse/fused"})
    done = flow.run()
    assert len(done.received("sink")) == 5
    assert not list(flow.folder.rglob("fuse.json"))


def test_a_folder_that_can_not_be_written_is_refused(flow):
    taken = flow.folder / "taken"
    taken.write_text("")
    flow.sender([send("good", np.ones(1, np.float32), 0)])
    config = {"rate_hz": 100, "modalities": [FUSE["modalities"][0]]}
    flow.robocache("fuse", {"status": str(taken), "fuse": config}, {"good": "sender/good"}, ["fused"])
    done = flow.run(code=None)
    assert done.code != 0 and f"status: {taken}" in done.logs["fuse"], done.logs["fuse"]


def test_columns_of_text_go_through_the_nodes_as_they_are(flow):
    """Text goes through a group and a clock unchanged; a null becomes an empty text, and the log says so."""
    texts = pa.array(["zwölf", "", "b"])
    whole = pa.StructArray.from_arrays([texts, pa.array([1, 2, 3])], ["label", "count"])
    torn = pa.StructArray.from_arrays([pa.array(["a", None, "b"]), pa.array([1, 2, 3])], ["label", "count"])
    flow.sender([send(name, array, stamp) for stamp, array in [(0, whole), (10 * MS, torn)] for name in ("labels", "other")])
    config = {"policy": "exact", "inputs": [{"input": "labels"}, {"input": "other"}]}
    flow.robocache("group", {"group": config}, {name: f"sender/{name}" for name in ("labels", "other")}, ["labels"])
    flow.robocache("clock", {"clock": {"inputs": [{"input": "labels"}]}}, {"labels": "group/labels"}, ["labels"])
    flow.collector({"group": "group/labels", "clock": "clock/labels"})
    done = flow.run()
    for name in ("group", "clock"):
        first, second = done.received("sink", name)
        assert first.array.field("label").to_pylist() == ["zwölf", "", "b"], name
        assert second.array.field("label").to_pylist() == ["a", "", "b"] and second.array.field("label").type == pa.string()
    assert "column `label` of text has nulls" in done.logs["group"], done.logs["group"]


def sick(kind: str) -> tuple[dict, list[tuple], str]:
    """Returns a configuration, functions that make a step of the sender from the ns since its start, and the words that the log,
    the diagnostics and `top` share."""
    fuse = {"rate_hz": 50, "modalities": [{"input": name, "dim": 1, "interpolation": "previous"} for name in ("good", "bad")]}
    grid = {"origin_m": [-2, -2, -1], "voxel_size_m": [0.5, 0.5, 0.5], "shape": [8, 8, 4], "channels": ["occupancy"], "layout": "bits"}
    one = np.ones(1, np.float32)
    good = ("each", lambda ns: send("good", one, ("start", ns)))
    match kind:
        case "a sender in seconds":
            now = time.time_ns()
            return {"fuse": fuse}, [good, ("each", lambda ns: send("bad", one, (now + ns) // 10**9))], "`bad`: its first stamp is "
        case "a sender a day behind":
            bad = ("each", lambda ns: send("bad", one, ("start", ns - 86_400_000 * MS)))
            return {"fuse": fuse}, [good, bad], "`bad` is 86400.0"
        case "a limit":
            limited = [fuse["modalities"][0], {**fuse["modalities"][1], "latency_ms": 90, "max_age_ms": 20}]
            bad = ("each", lambda ns: send("bad", one, ("start", ns)))
            return {"fuse": {**fuse, "max_wait_ms": 40, "modalities": limited}}, [good, bad], "old when they are used (`max_age_ms` 20)"
        case _:
            cloud = np.float32([[1000, 1000, 500], [-1000, 900, 200]])
            mm = ("each", lambda ns: send("bad", cloud, ("start", ns), shape=[2, 3]))
            return {"voxelize": {**grid, "inputs": [{"input": "bad"}]}}, [mm], "in millimetres?"


@pytest.mark.parametrize("kind", ["a sender in seconds", "a sender a day behind", "a limit", "a cloud in millimetres"])
def test_log_diagnostics_and_top_say_the_same(flow, kind):
    config, streams, words = sick(kind)
    (plugin,) = config
    steps = [step for i in range(6000) for step in [("at", i / 40), *(make(i * 25 * MS) for _, make in streams)]]
    # Sends until `stop` exists, for minutes if need be.
    stop = flow.folder / "stop"
    flow.sender([("up to", str(stop), steps)])
    status = flow.folder / "status"
    inputs = {name: f"sender/{name}" for name in ("good", "bad") if plugin == "fuse" or name == "bad"}
    flow.robocache(plugin, {"status": str(status), **config}, inputs, ["diagnostics", "fused" if plugin == "fuse" else "voxels"])
    flow.collector({"diagnostics": f"{plugin}/diagnostics"})
    command = [ROOT / "target" / "release" / "robocache", "top", status, "--once"]
    said = []

    def is_said() -> bool:
        done = subprocess.run(command, timeout=180, capture_output=True, text=True)
        if done.returncode in (0, 1) and words in " ".join(done.stdout.split()):
            said.append((done.returncode, done.stdout))
        # The log may report something else first, and repeats its lines after a while.
        logs = flow.folder.glob(f"out/*/log_{plugin}.jsonl")
        return bool(said) and any(words in path.read_text() for path in logs)

    with flow.start() as wait:
        wait_for(is_said, what=words)
        stop.touch()
        done = wait()
    code, text = said[0]
    level = WARN if plugin == "voxelize" else ERROR
    assert code == (level == ERROR) and max(len(line) for line in text.split("\n\n")[0].splitlines()) <= 80, text
    # The fault comes first, with its input.
    assert text.startswith(f"{'error' if level == ERROR else 'warn '}  {plugin}: `bad`: "), text
    messages = done.received("sink")
    assert any(words in rows(m)["bad"]["message"] and rows(m)["bad"]["level"] == level for m in messages), [rows(m)["bad"] for m in messages]
    assert any("observation_rate_hz" in m.metadata for m in messages)
    lines = [line for line in done.logs[plugin].splitlines() if words in line]
    assert any(line.startswith("ERROR" if level == ERROR else "WARN") for line in lines), done.logs[plugin]
