"""Tests of recordings that can't be read to their end: refused, or with broken="use" read with a warning."""

import json
import os
import pickle
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import robocache as rc

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {"fuse": {"rate_hz": 50, "window": 4, "modalities": [{"input": "force", "dim": 2, "interpolation": "linear"}]}}


def write(path: Path, start: int, count: int) -> None:
    stamps = [(start + i) * 10_000_000 for i in range(count)]
    columns = {
        "timestamp_ns": pa.array(stamps, pa.int64()),
        "data": pa.array([[float(start + i), 0.5] for i in range(count)], pa.list_(pa.float32())),
    }
    table = pa.table(columns)
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=50)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "recording"
    folder.mkdir()
    for name in ("force", "other"):
        write(folder / f"{name}.arrow", 0, 500)
    write(folder / "force.arrow.2", 500, 100)
    return folder


def cut(file: Path, share: float) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])


def test_the_files_of_a_stream_are_one(folder):
    recording = rc.Recording(folder)
    assert recording.streams == ["force", "other"] and recording.problems() == []
    times, values = recording["force"]
    assert times.tolist() == [i * 10_000_000 for i in range(600)] and values[:, 0].tolist() == list(range(600))
    messages = recording.messages("force")
    assert len(messages) == 600 and messages[555].columns[""].tolist() == [555.0, 0.5]
    assert pickle.loads(pickle.dumps(messages))[599].timestamp_ns == 599 * 10_000_000
    assert recording.windows(CONFIG).timestamps_ns[-1, -1] == 5_980_000_000


def test_a_stream_that_is_cut_off_is_refused(folder):
    cut(folder / "force.arrow", 0.6)
    recording = rc.Recording(folder)
    words = r"force\.arrow: no valid footer: read up to the last whole batch.*broken=\"use\""
    for use in (
        lambda: recording["force"],
        lambda: recording.messages("force"),
        lambda: recording.windows(CONFIG),
        lambda: rc.RecordingDataset(folder, CONFIG),
        lambda: rc.RecordingDataset(recording, CONFIG),
    ):
        with pytest.raises(ValueError, match=words):
            use()
    assert len(recording["other"][0]) == 500


def test_what_can_be_read_is_used_on_request_and_the_rest_is_told(folder):
    cut(folder / "force.arrow", 0.6)
    recording = rc.Recording(folder, broken="use")
    words = r"force\.arrow: no valid footer.*what can be read is used"
    with pytest.warns(UserWarning, match=words):
        times, _ = recording["force"]
    # Whole batches are read, then the messages that the recorder wrote after it was started again.
    first = len(times) - 100
    assert 0 < first < 500 and first % 50 == 0 and times[first:].tolist() == [i * 10_000_000 for i in range(500, 600)]
    with pytest.warns(UserWarning, match=words):
        messages = recording.messages("force")
    assert len(messages) == len(times) and messages[-1].timestamp_ns == times[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(pickle.loads(pickle.dumps(messages))) == len(times)
    with pytest.warns(UserWarning, match=words):
        windows = recording.windows(CONFIG)
    with pytest.warns(UserWarning, match=words):
        dataset = rc.RecordingDataset(folder, CONFIG, broken="use")
    assert len(dataset) == len(windows)
    with pytest.raises(ValueError, match="allowed: 'refuse', 'use'"):
        rc.Recording(folder, broken="ignore")


def test_a_stream_of_which_nothing_is_left_is_no_empty_one(folder):
    cut(folder / "other.arrow", 0.05)
    with pytest.raises(ValueError, match="other.arrow"):
        rc.Recording(folder)["other"]
    with pytest.warns(UserWarning, match="other.arrow"):
        times, _ = rc.Recording(folder, broken="use")["other"]
    assert len(times) == 0


def test_a_file_that_is_cut_off_while_it_is_held_is_an_error_and_no_end_of_the_process(tmp_path):
    images = [np.full(40_000, i, np.float32).tolist() for i in range(30)]
    table = pa.table({"timestamp_ns": pa.array(range(30), pa.int64()), "data": pa.array(images, pa.list_(pa.float32()))})
    with pa.ipc.new_file(tmp_path / "camera.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=3)
    held = rc.Recording(tmp_path).messages("camera")
    assert held[29].columns[""][0] == 29
    cut(tmp_path / "camera.arrow", 0.5)
    for i in reversed(range(30)):
        if i < 14:
            assert held[i].columns[""].tolist() == images[i]
        elif i > 15:
            with pytest.raises(ValueError, match=r"camera\.arrow: "):
                held[i]


@pytest.mark.parametrize("has_footer", [True, False])
def test_a_stream_whose_schema_is_damaged(folder, has_footer):
    file = folder / "other.arrow"
    damaged = bytearray(file.read_bytes())
    damaged[8:64] = bytes(56)
    file.write_bytes(damaged if has_footer else damaged[:-8])
    assert len(rc.Recording(folder).problems()) == 1
    with pytest.raises(ValueError, match=r"other\.arrow: "):
        rc.Recording(folder).messages("other")
    recording = rc.Recording(folder, broken="use")
    words = "the schema; that of the footer is used" if has_footer else "no valid footer"
    with pytest.warns(UserWarning, match=words):
        messages = recording.messages("other")
    with pytest.warns(UserWarning, match=words):
        times, _ = recording["other"]
    assert len(messages) == len(times) == (500 if has_footer else 0)


def test_a_file_that_can_not_be_opened_again_gives_no_messages_of_another(folder):
    messages = rc.Recording(folder).messages("force")
    assert messages[0].timestamp_ns == 0 and messages[599].timestamp_ns == 5_990_000_000
    whole = (folder / "force.arrow").read_bytes()
    (folder / "force.arrow").unlink()
    for _ in range(3):
        with pytest.raises(OSError, match=r"force\.arrow"):
            messages[3]
        assert messages[555].timestamp_ns == 5_550_000_000
    (folder / "force.arrow").write_bytes(whole)
    assert messages[3].timestamp_ns == 30_000_000
    # Writes another file under the same name.
    write(folder / "force.arrow.2", 300, 100)
    assert messages[3].timestamp_ns == 30_000_000
    with pytest.raises(ValueError, match=r"force\.arrow\.2: .*the file was written over while it was read"):
        messages[555]


def test_processes_that_were_forked_read_by_themselves(folder):
    messages = rc.Recording(folder).messages("other")

    def reads(seed: int) -> int:
        picks = np.random.default_rng(seed).integers(0, 500, 3000).tolist()
        return sum(messages[i].timestamp_ns != i * 10_000_000 for i in picks)

    children = []
    for seed in range(2):
        child = os.fork()
        if child == 0:
            try:
                os._exit(min(reads(seed), 100))
            except BaseException:
                os._exit(101)
        children.append(child)
    assert reads(7) == 0
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]


def test_a_pickle_of_messages_that_are_no_longer_those(folder):
    pickled = pickle.dumps(rc.Recording(folder).messages("other"))
    assert len(pickle.loads(pickled)) == 500
    cut(folder / "other.arrow", 0.6)
    with pytest.raises(ValueError, match=r"other\.arrow: it has \d+ messages, and other stamps than the 500"):
        pickle.loads(pickled)


def test_it_says_what_the_command_says(folder):
    rng = np.random.default_rng(23)
    whole = {file: file.read_bytes() for file in folder.iterdir()}
    command = ROOT / "target" / "release" / "robocache"
    if not command.exists():
        pytest.skip(f"{command} is not built")
    told = 0
    for _ in range(30):
        file = list(whole)[rng.integers(len(whole))]
        damaged = bytearray(whole[file])
        at = int(rng.integers(len(damaged)))
        match rng.integers(4):
            case 0:
                del damaged[at:]
            case 1:
                damaged[at] ^= 1 << int(rng.integers(8))
            case 2:
                damaged[at : at + 300] = bytes(len(damaged[at : at + 300]))
            case _:
                damaged += rng.bytes(1 + at % 300)
        file.write_bytes(damaged)
        done = subprocess.run([command, "info", "--json", folder], capture_output=True, text=True, check=False)
        problems = rc.Recording(folder).problems()
        assert sorted(problems) == sorted(json.loads(done.stdout)["problems"]) and done.returncode == bool(problems)
        told += bool(problems)
        file.write_bytes(whole[file])
    assert told > 10
