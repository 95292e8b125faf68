"""The viewer without Rerun: its command line, and its inbox, which never keeps the dataflow waiting."""

import json
import pathlib
import resource
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "nodes" / "view"))

from robocache_view import log  # noqa: E402
from robocache_view.inbox import Inbox, copied  # noqa: E402
from robocache_view.node import arguments  # noqa: E402


def taken(inbox: Inbox) -> list:
    messages = []
    while (message := inbox.take(0.0)) is not None:
        messages.append(message)
    return messages


@pytest.mark.parametrize(
    ("limits", "kept"), [({"max_messages": 3}, [7, 8, 9]), ({"max_bytes": 45}, [6, 7, 8, 9]), ({"max_bytes": 5}, [9])]
)
def test_a_full_inbox_drops_the_oldest_of_its_input(limits, kept):
    inbox = Inbox(**limits)
    inbox.put("other", "stays", 1)
    dropped = sum(inbox.put("camera", k, 10) for k in range(10))
    assert dropped == 10 - len(kept) and len(inbox) == 1 + len(kept)
    assert sorted(k for name, k in taken(inbox) if name == "camera") == kept
    # Messages that were taken make room.
    assert inbox.put("camera", "new", 10) == 0


def test_inputs_take_turns():
    inbox = Inbox()
    for k in range(100):
        inbox.put("force", k, 1)
    inbox.put("lidar", "cloud", 1)
    assert taken(inbox)[:3] == [("force", 0), ("lidar", "cloud"), ("force", 1)]


def test_whoever_puts_never_waits_for_whoever_draws():
    inbox = Inbox(max_messages=10)
    # A thread that waits makes a voluntary context switch.
    waits = lambda: resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw  # noqa: E731
    before = waits()
    for k in range(10_000):
        inbox.put("force", k, 1)
    assert waits() - before < 100
    assert [k for _, k in taken(inbox)] == list(range(9_990, 10_000))


def test_closing_wakes_whoever_waits_and_leaves_what_is_there():
    inbox = Inbox()
    threading.Timer(0.1, inbox.close).start()
    start = time.monotonic()
    assert inbox.take(600.0) is None and inbox.is_done and time.monotonic() - start < 300.0
    inbox = Inbox()
    inbox.put("force", 1, 1)
    inbox.close()
    assert not inbox.is_done and inbox.take(0.0) == ("force", 1) and inbox.is_done


def test_what_waits_is_a_copy():
    """dora may use the memory of an event again as soon as the event is gone."""
    memory = np.arange(4, dtype=np.float32)
    value, metadata, size = copied({"type": "INPUT", "value": pa.array(memory), "metadata": {"timestamp_ns": 1}})
    memory[:] = 0
    assert value.tolist() == [0, 1, 2, 3] and metadata == {"timestamp_ns": 1} and size == 16
    cloud = pa.StructArray.from_arrays([pa.array([1.0, 2.0])] * 3, names=["x", "y", "z"])
    value, _, size = copied({"type": "INPUT", "value": cloud, "metadata": {}})
    assert {name: column.tolist() for name, column in value.items()} == dict.fromkeys("xyz", [1.0, 2.0]) and size == 48


def test_modes(monkeypatch):
    monkeypatch.delenv("ROBOCACHE_VIEW", raising=False)
    spawn = arguments([])
    assert (spawn.mode, spawn.port, spawn.memory_limit, spawn.bind) == ("spawn", 9876, "2GB", "127.0.0.1")
    assert arguments(["serve-web"]).web_port == 9090 and arguments(["connect"]).url == "rerun+http://127.0.0.1:9876/proxy"
    monkeypatch.setenv("ROBOCACHE_VIEW", "save 'out/a run.rrd'")
    assert arguments([]).file == pathlib.Path("out/a run.rrd")
    assert arguments(["connect"]).mode == "connect"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("show", "show"),
        ("save", "file"),
        ("save out/run.mcap", ".rrd"),
        ("connect 10.0.0.2", "rerun+http://127.0.0.1:9876/proxy"),
        ("connect rerun+http://host:99999/proxy", "99999"),
        ("serve-web 70000", "1 to 65535"),
        ("spawn --memory-limit lots", "2GB"),
        ("spawn --port -1", "port"),
        ("save 'out/run.rrd", "No closing quotation"),
    ],
)
def test_a_wrong_command_line_is_refused(line, named, capsys, monkeypatch):
    monkeypatch.setenv("ROBOCACHE_VIEW", line)
    with pytest.raises(SystemExit) as exit:
        arguments([])
    assert exit.value.code == 2 and named in capsys.readouterr().err


def test_help_and_version_need_neither_dora_nor_rerun():
    start = "import sys; sys.modules.update(dora=None, rerun=None); from robocache_view.node import main; main()"
    for flag in ("--help", "--version"):
        folder = pathlib.Path(__file__).parents[1] / "nodes" / "view"
        done = subprocess.run([sys.executable, "-c", start, flag], cwd=folder, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0 and "robocache-view" in done.stdout


def test_lines_of_the_log_are_those_that_dora_reads(capsys, monkeypatch):
    monkeypatch.setenv("DORA_NODE_CONFIG", "{}")
    faults = log.Faults()
    for _ in range(1000):
        faults.count("force", "messages that can't be drawn", 'MessageError: no "shape"')
    lines = capsys.readouterr().out.splitlines()
    line = json.loads(lines[0])
    assert len(lines) == 1 and line["level"] == "warn" and line["message"].startswith("force: MessageError")
    faults.sum_up()
    assert json.loads(capsys.readouterr().out)["message"] == "force: 1000 messages that can't be drawn"
