"""Recordings: the recorded messages are those that were sent, and a crash loses at most the last second."""

import json
import os
import signal
import time

import numpy as np
import pyarrow as pa
import pytest

from harness import Flow, said, same_bits, send, to_numpy, wait_for
from oracle import DTYPES, MS


def table(path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def killed_table(path) -> pa.Table:
    """Rows that a killed process has left. If the footer is missing, complete batches are read as a stream."""
    try:
        return table(path)
    except pa.ArrowInvalid:
        batches = []
        with pa.OSFile(str(path)) as file:
            file.seek(8)
            reader = pa.ipc.open_stream(file)
            try:
                batches.extend(iter(reader.read_next_batch, None))
            except (StopIteration, pa.ArrowInvalid, OSError):
                pass
        return pa.Table.from_batches(batches, reader.schema)


def replayed(folder, recording, outputs) -> Flow:
    flow = Flow(folder)
    flow.robocache("replay", {"replay": {"path": str(recording), "speed": "max"}}, outputs=outputs)
    flow.collector({name: f"replay/{name}" for name in outputs})
    return flow


def same_content(a: pa.Array, b: pa.Array) -> bool:
    """True if two arrays have equal values; whether a struct's fields may be null does not count."""
    if pa.types.is_struct(a.type) and pa.types.is_struct(b.type):
        names = [field.name for field in a.type]
        return names == [field.name for field in b.type] and all(a.field(name).equals(b.field(name)) for name in names)
    return a.equals(b)


TYPES = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def test_every_form_of_message_comes_back_as_it_was(flow, tmp_path):
    rng = np.random.default_rng(4)
    steps = []
    for i in range(5):
        stamp = (100 + i) * MS
        for dtype in TYPES:
            steps.append(send(dtype, rng.integers(0, 100, 6).astype(dtype), stamp, shape=[2, 3]))
        steps.append(send("bfloat16", rng.normal(size=4).astype(DTYPES["bfloat16"]).view(np.uint16), stamp, dtype="bfloat16", shape=[4]))
        steps.append(send("batch", rng.normal(size=(3, 2)).astype(np.float32), stamp, shape=[3, 2], timestamps_ns=[stamp - 2, stamp - 1, stamp]))
        # Every message has another length, and one is empty.
        points = rng.normal(size=(i * 7, 4)).astype(np.float32)
        steps.append(send("tensor", points, stamp, shape=[i * 7, 4], fields=["x", "y", "z", "intensity"], frame_id="roof"))
        columns = {"x": np.float32, "y": np.float64, "ring": np.uint8, "t_ns": np.uint32}
        arrays = [pa.array(rng.integers(0, 9, i * 5).astype(kind)) for kind in columns.values()]
        cloud = pa.StructArray.from_arrays(arrays, list(columns))
        steps.append(send("cloud", cloud, stamp, frame_id="bumper"))
    names = sorted({step[1] for step in steps})
    flow.sender(steps)
    recording = flow.folder / "recorded"
    flow.robocache("record", {"record": {"path": str(recording)}}, {name: f"sender/{name}" for name in names})
    done = flow.run()
    assert {path.name for path in recording.iterdir()} == {".run"} | {f"{name}.arrow" for name in names}, done.logs["record"]
    done = replayed(tmp_path / "replay", recording, names).run()
    for name in names:
        sent = [step for step in steps if step[1] == name]
        got = done.received("sink", name)
        assert len(got) == len(sent), (name, done.logs)
        for (_, _, array, metadata), message in zip(sent, got, strict=True):
            assert same_content(message.array, array), name
            kept = {key: value for key, value in message.metadata.items() if key in metadata}
            assert kept == metadata, name
    assert table(recording / "float32.arrow").column_names[:3] == ["timestamp_ns", "data", "shape"]


def test_metadata_may_change_from_message_to_message(flow, tmp_path):
    """The number of rows of a struct changes as well as its metadata. Names of its fields are names that a recording uses for
    columns of its own."""
    values = [1, 2.5, "rgb8", True, [1, 2], [0.5, -1.0], ["a", "b"], float("inf"), "", 0.1]
    steps = []
    for i in range(20):
        stamp = (100 + i) * MS
        changing = {"what": values[i % len(values)], "encoding": "rgb8", "width": 640 + i // 5, "seq_no": i}
        if i % 3:
            changing["frame_id"] = f"frame_{i // 4}"
        if i % 4 == 3:
            changing["timestamps_ns"] = [stamp]
        steps.append(send("image", np.arange(i % 3, dtype=np.uint8), stamp, **changing))
        rows = i % 4
        ragged = lambda kind, n: pa.array([list(range(n + row)) for row in range(rows)], pa.list_(kind))  # noqa: E731, B023
        columns = {
            "timestamps_ns": ragged(pa.int64(), 3),
            "values": ragged(pa.float32(), 6),
            "targets_ns": ragged(pa.int64(), 1),
            "data": pa.array(range(rows), pa.int16()),
            "shape": pa.array([[row, 1] for row in range(rows)], pa.list_(pa.float64(), 2)),
            "timestamp_ns": pa.array(range(rows), pa.int64()),
        }
        trajectories = pa.StructArray.from_arrays([*columns.values()], [*columns])
        steps.append(send("trajectories", trajectories, stamp, dim=2 + i % 2, valid=[i % 2]))
    names = sorted({step[1] for step in steps})
    flow.sender(steps)
    recording = flow.folder / "recorded"
    flow.robocache("record", {"record": {"path": str(recording)}}, {name: f"sender/{name}" for name in names})
    done = flow.run()
    assert "WARN" not in done.logs["record"], done.logs["record"]
    assert table(recording / "image.arrow").column_names == ["timestamp_ns", "data", "shape", "arrival_ns", "metadata"]
    rows = table(recording / "image.arrow")["metadata"].to_pylist()
    assert rows[0] is None and json.loads(rows[1]) == {"what": 2.5, "seq_no": 1, "frame_id": "frame_0"}
    done = replayed(tmp_path / "replay", recording, names).run()
    for name in names:
        sent = [step for step in steps if step[1] == name]
        got = done.received("sink", name)
        assert len(got) == len(sent), (name, done.logs)
        for (_, _, array, metadata), message in zip(sent, got, strict=True):
            assert same_bits(message.values, to_numpy(array)), name
            assert said(message.metadata) == metadata, name
            assert {key: type(message.metadata[key]) for key in metadata} == {key: type(metadata[key]) for key in metadata}


def test_what_can_t_be_recorded_is_refused_by_name_and_counted(flow):
    steps = [send("flags", pa.array([True, False]), i * MS) for i in range(3)]
    steps += [send("names", pa.array(["a", "b"]), i * MS) for i in range(4)]
    steps += [send("force", np.array([i], np.float32 if i < 3 else np.float64), i * MS) for i in range(5)]
    flow.sender(steps)
    recording = flow.folder / "recorded"
    inputs = {name: f"sender/{name}" for name in ("flags", "names", "force")}
    flow.robocache("record", {"record": {"path": str(recording)}}, inputs)
    log = flow.run().logs["record"]
    assert table(recording / "force.arrow")["timestamp_ns"].to_pylist() == [0, MS, 2 * MS]
    assert {path.name for path in recording.iterdir()} == {".run", "force.arrow"}
    for name, count, word in [("flags", 3, "Boolean"), ("names", 4, "Utf8"), ("force", 2, "`data` float64")]:
        assert any(f"`{name}`" in line and word in line for line in log.splitlines()), log
        assert any(f"`{name}`: {count} in all" in line for line in log.splitlines()), log


def test_the_inputs_may_come_and_go_in_the_middle(flow):
    """A stream that begins late, and a stream that ends early, are recorded nevertheless."""
    early = [send("early", np.array([i], np.float32), i * MS) for i in range(100)]
    late = [send("late", np.array([i], np.float32), i * MS) for i in range(100, 200)]
    flow.sender(early, name="one")
    flow.sender([("sleep", 1.2), *late], name="two")
    recording = flow.folder / "recorded"
    flow.robocache("record", {"record": {"path": str(recording)}}, {"early": "one/early", "late": "two/late"})
    flow.run()
    assert table(recording / "early.arrow")["timestamp_ns"].to_pylist() == [i * MS for i in range(100)]
    assert table(recording / "late.arrow")["timestamp_ns"].to_pylist() == [i * MS for i in range(100, 200)]


def test_a_recording_is_not_written_over(flow, tmp_path):
    (tmp_path / "recorded").mkdir()
    (tmp_path / "recorded" / "force.arrow").write_bytes(b"precious")
    flow.sender([send("force", np.array([1], np.float32), 1)])
    flow.robocache("record", {"record": {"path": str(tmp_path / "recorded")}}, {"force": "sender/force"})
    done = flow.run(code=None)
    assert "force.arrow" in done.logs["record"] and "belongs to" in done.logs["record"]
    assert (tmp_path / "recorded" / "force.arrow").read_bytes() == b"precious"


SIM = {"duration_s": 20.0, "real_time": True, "start_ns": None, "streams": {"lidar": {"latency_ms": 105}}}


@pytest.mark.parametrize("after_s", [0.1, 0.3])
def test_killed_in_the_middle_it_has_lost_at_most_its_last_second(flow, tmp_path, after_s):
    """Kills the recorder `after_s` seconds after it has written its third batch of `force`; it writes two batches a second."""
    names = ["camera", "force", "proprio", "lidar"]
    recording = tmp_path / "recorded"
    flow.robocache("sim", {"sim": SIM}, outputs=names)
    flow.robocache("record", {"record": {"path": str(recording)}}, {name: {"source": f"sim/{name}", "queue_size": 1000} for name in names})
    with flow.start() as wait:
        wait_for(lambda: len(list(recording.glob("*.arrow"))) == 4, what="a file for each stream")
        for batch in range(3):
            size = (recording / "force.arrow").stat().st_size
            wait_for(lambda before=size: (recording / "force.arrow").stat().st_size > before, what=f"batch {batch}")
        time.sleep(after_s)
        (pid,) = flow.pids("record")
        os.kill(pid, signal.SIGKILL)
        killed = time.time_ns()
        (sim,) = flow.pids("sim")
        os.kill(sim, signal.SIGTERM)
        wait()
    counts = {}
    for name in names:
        rows = killed_table(recording / f"{name}.arrow")
        stamps = np.array(rows["timestamp_ns"])
        counts[name] = len(stamps)
        # Stamps are capture times; a sample is in flight for 0.1 s at most, a cloud for a sweep more. On a busy machine the
        # longest time in flight of this run counts, which the recorder has written down.
        on_its_way = max((250 if name == "lidar" else 120) * MS, (np.array(rows["arrival_ns"]) - stamps).max())
        assert killed - stamps.max() < 1000 * MS + on_its_way, name
        rate = {"camera": 30, "force": 1000, "proprio": 500, "lidar": 10}[name]
        assert np.diff(np.sort(stamps)).max() < 6e9 / rate, f"{name} has a hole"
    done = replayed(tmp_path / "replay", recording, names).run()
    for name in names:
        assert len(done.received("sink", name)) == counts[name], done.logs["replay"]


def test_a_file_that_breaks_off_anywhere_plays_up_to_there(flow, tmp_path, recording):
    """Cuts the file of one stream in each of several places, as a crash of the machine may."""
    whole = (recording / "force.arrow").read_bytes()
    stamps = table(recording / "force.arrow")["timestamp_ns"].to_pylist()
    cuts = [len(whole) - 1, len(whole) // 2, len(whole) // 7]
    counts = []
    for cut in cuts:
        folder = tmp_path / f"cut_{cut}"
        folder.mkdir()
        (folder / "force.arrow").write_bytes(whole[:cut])
        done = replayed(tmp_path / f"replay_{cut}", folder, ["force"]).run()
        got = [m.stamp for m in done.received("sink", "force")]
        assert got == stamps[: len(got)]
        assert "force.arrow" in done.logs["replay"], "it must say that the file is not whole"
        counts.append(len(got))
    assert counts[0] == len(stamps) > counts[1] > counts[2]


LONG = {"duration_s": 60.0, "real_time": True, "start_ns": None, "streams": {"lidar": None, "camera": None}}


@pytest.mark.parametrize("path", ["recorded", "runs/{start}"])
def test_a_recorder_that_is_killed_and_started_again_goes_on(flow, tmp_path, path):
    """The process that is started anew writes a new file of the same recording, and readers take both files as one stream."""
    flow.robocache("sim", {"sim": LONG}, outputs=["force", "proprio"])
    inputs = {name: {"source": f"sim/{name}", "queue_size": 1000} for name in ("force", "proprio")}
    config = {"record": {"path": str(tmp_path / path)}}
    flow.robocache("record", config, inputs, restart_policy="on-failure", max_restarts=5)
    found = lambda name: sorted(tmp_path.glob(f"{path.replace('{start}', '*')}/{name}"))  # noqa: E731
    with flow.start() as wait:
        wait_for(lambda: found("force.arrow"), what="a first file")
        # The first batch comes after half a second, and the kill may cut it off, too.
        wait_for(lambda: found("force.arrow")[0].stat().st_size > 4000, what="a batch")
        for part in (2, 3):
            (pid,) = wait_for(lambda: flow.pids("record"), what="the recorder")
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda n=part: sum(file.stat().st_size for file in found(f"force.arrow.{n}")) > 4000, what=f"part {part}")
        (sim,) = flow.pids("sim")
        os.kill(sim, signal.SIGTERM)
        wait()
    assert len(found("force.arrow")) == 1
    folder = found("force.arrow")[0].parent
    assert {file.name for file in folder.iterdir()} == {".run"} | {
        f"{name}.arrow{part}" for name in ("force", "proprio") for part in ("", ".2", ".3")
    }
    done = replayed(tmp_path / "replay", folder, ["force"]).run()
    stamps = [m.stamp for m in done.received("sink", "force")]
    parts = [killed_table(folder / f"force.arrow{part}")["timestamp_ns"].to_pylist() for part in ("", ".2", ".3")]
    assert all(parts) and stamps == sum(parts, [])


def test_each_run_of_a_dataflow_has_a_folder_of_its_own(tmp_path):
    for run in range(2):
        flow = Flow(tmp_path / f"run_{run}")
        flow.sender([send("force", np.array([run], np.float32), 1)])
        flow.robocache("record", {"record": {"path": str(tmp_path / "{start}" / "arm")}}, {"force": "sender/force"})
        flow.run()
    folders = sorted(tmp_path.glob("*Z/arm"))
    assert [table(folder / "force.arrow")["data"].to_pylist() for folder in folders] == [[[0.0]], [[1.0]]]


def write_table(path, columns: dict, metadata: dict, batch_rows: int) -> pa.Table:
    made = pa.table(columns).replace_schema_metadata(metadata)
    with pa.ipc.new_file(path, made.schema) as file:
        file.write_table(made, max_chunksize=batch_rows)
    return made


def check_same_table(came: pa.Table, sent: pa.Table) -> None:
    for name in sent.column_names:
        assert came[name].to_pylist() == sent[name].to_pylist(), name
        assert came.schema.field(name).type == sent.schema.field(name).type, name
    for key, value in sent.schema.metadata.items():
        assert came.schema.metadata[key] == value, key


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_a_recording_of_another_program_is_played_and_recorded_again_without_loss(flow: Flow, batch_rows):
    source, copy = flow.folder / "source", flow.folder / "copy"
    source.mkdir()
    rng = np.random.default_rng(batch_rows)
    stamps = lambda n, step: pa.array([1_000_000_000 + i * step for i in range(n)], pa.int64())  # noqa: E731
    int64s = pa.list_(pa.int64())
    # The columns stand in another order than robocache writes them, and `shape` is optional.
    force = write_table(
        source / "force.arrow",
        {"data": pa.array(rng.random((500, 6), np.float32).tolist(), pa.list_(pa.float32())), "timestamp_ns": stamps(500, 1_000_000)},
        {"dtype": "float32", "fields": '["fx", "fy", "fz", "tx", "ty", "tz"]', "frame_id": "tool0"},
        batch_rows,
    )
    rows = [2 + i % 3 for i in range(100)]
    proprio = write_table(
        source / "proprio.arrow",
        {
            "timestamp_ns": stamps(100, 5_000_000),
            "timestamps_ns": pa.array([list(range(k)) for k in rows], int64s),
            "shape": pa.array([[k, 4] for k in rows], int64s),
            "data": pa.array([rng.integers(0, 2**16, 4 * k).tolist() for k in rows], pa.list_(pa.uint16())),
        },
        {"dtype": "bfloat16"},
        batch_rows,
    )
    points = [0, 300, 1, 0, 64]
    lidar = write_table(
        source / "lidar.arrow",
        {"timestamp_ns": stamps(5, 100_000_000)}
        | {axis: pa.array([rng.random(n, np.float32).tolist() for n in points], pa.list_(pa.float32())) for axis in "xyz"}
        | {"ring": pa.array([list(range(n)) for n in points], pa.list_(pa.uint16()))},
        {"frame_id": "lidar"},
        batch_rows,
    )
    names = ["force", "lidar", "proprio"]
    flow.robocache("replay", {"replay": {"path": str(source), "speed": "max"}}, outputs=names)
    flow.robocache("record", {"record": {"path": str(copy)}}, inputs={name: f"replay/{name}" for name in names})
    flow.run()
    for name, sent in [("force", force), ("lidar", lidar), ("proprio", proprio)]:
        check_same_table(table(copy / f"{name}.arrow"), sent)
