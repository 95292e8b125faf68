"""Replay = live: the same recording gives the same bytes at any speed, in any run, in any process; and loses nothing."""

import numpy as np
import pyarrow as pa
import pytest

import convert
import oracle
from harness import Flow, check_same, same_bits

FUSE = {
    "rate_hz": 50,
    "window": 16,
    "max_wait_ms": None,
    "modalities": [
        {"input": "camera", "dim": 128, "interpolation": "previous", "latency_ms": 33, "max_age_ms": 60},
        {"input": "force", "dim": 6, "interpolation": "linear", "max_gap_ms": 2.5, "extrapolate_ms": 5},
        {
            "input": "proprio",
            "dim": 15,
            "groups": [
                {"channels": [0, 7], "interpolation": "linear", "max_gap_ms": 50},
                {"channels": [7, 11], "interpolation": "nearest", "max_age_ms": 50},
                {"channels": [11, 15], "interpolation": "previous", "max_age_ms": 50},
            ],
        },
    ],
}
VOXELIZE = {
    "origin_m": [-12.8, -12.8, -3.2],
    "voxel_size_m": [0.4, 0.4, 0.4],
    "shape": [64, 64, 16],
    "channels": ["occupancy", "count", "mean_z", "mean_intensity", "max_ring"],
    "layout": "coo",
    "inputs": [{"input": "lidar"}],
}
SENSORS = ["camera", "force", "proprio"]


def replay(flow: Flow, recording, speed, outputs) -> None:
    flow.robocache("replay", {"replay": {"path": str(recording), "speed": speed}}, outputs=outputs)


def table(path) -> pa.Table:
    """Reads the recorded rows without arrival times and metadata (such as the compute time), which differ from run to run."""
    with pa.OSFile(str(path)) as file:
        rows = pa.ipc.open_file(file).read_all()
    return rows.select([name for name in rows.column_names if name not in ("arrival_ns", "metadata")])


def perceive(folder, recording, speed) -> Flow:
    """Makes a dataflow that computes `fused` and `voxels` from a recording, and both records and collects them."""
    flow = Flow(folder)
    replay(flow, recording, speed, [*SENSORS, "lidar"])
    flow.robocache("fuse", {"fuse": FUSE}, {name: f"replay/{name}" for name in SENSORS}, ["fused"])
    flow.robocache("voxelize", {"voxelize": VOXELIZE}, {"lidar": "replay/lidar"}, ["voxels"])
    results = {"fused": "fuse/fused", "voxels": "voxelize/voxels"}
    flow.robocache("record", {"record": {"path": str(folder / "recorded")}}, results)
    flow.collector(results)
    return flow


def test_five_runs_at_each_speed_give_the_same_bytes(tmp_path, recording, streams):
    runs = {}
    for speed in (1.0, "max"):
        for i in range(5):
            folder = tmp_path / f"{speed}_{i}"
            runs[folder] = perceive(folder, recording, speed).run()
    folders = [*runs]
    first = runs[folders[0]]
    for folder in folders[1:]:
        for output in ("fused", "voxels"):
            check_same(first.received("sink", output), runs[folder].received("sink", output))
            assert table(folders[0] / "recorded" / f"{output}.arrow").equals(table(folder / "recorded" / f"{output}.arrow"))
    wanted = oracle.fuse(FUSE, {name: (streams[name].stamps, streams[name].values) for name in SENSORS})
    got = first.received("sink", "fused")
    assert [m.stamp for m in got] == [o.stamp for o in wanted]
    for message, observation in zip(got, wanted, strict=True):
        assert message.metadata["valid"] == observation.valid and message.metadata["age_ns"] == observation.age
        assert message.values.tobytes() == observation.values.tobytes()
    assert {*sum((o.valid for o in wanted), [])} == {0, 1}, "a mask that is all ones tests little"
    recorded = table(folders[0] / "recorded" / "fused.arrow")
    assert recorded["timestamp_ns"].to_pylist() == [o.stamp for o in wanted]
    assert same_bits(recorded["data"].combine_chunks().values.to_numpy(), np.concatenate([o.values.ravel() for o in wanted]))
    assert [m.stamp for m in first.received("sink", "voxels")] == streams["lidar"].stamps


def test_speed_1_keeps_the_time_between_messages(flow, recording, streams):
    replay(flow, recording, 1.0, ["camera", "lidar"])
    flow.collector({name: f"replay/{name}" for name in ("camera", "lidar")})
    got = flow.run().received("sink")
    assert len(got) == len(streams["camera"].stamps) + len(streams["lidar"].stamps)
    late = np.array([m.metadata["timestamp"].timestamp() - m.stamp * 1e-9 for m in got])
    # Not a measurement: the machine may be busy. Twice the speed or half of it would be a second off.
    assert np.ptp(late) < 0.9


@pytest.mark.parametrize(("speed", "count"), [(4.0, None), (0.5, 15)])
def test_other_speeds(flow, streams, speed, count):
    short = convert.Stream(streams["camera"].stamps[:count], streams["camera"].values[:count])
    replay(flow, convert.write(flow.folder / "short", {"camera": short}), speed, ["camera"])
    flow.collector({"camera": "replay/camera"})
    got = flow.run().received("sink")
    assert [m.stamp for m in got] == short.stamps.tolist()
    spent = got[-1].metadata["timestamp"].timestamp() - got[0].metadata["timestamp"].timestamp()
    wanted = (short.stamps[-1] - short.stamps[0]) * 1e-9 / speed
    # Not a measurement either: at speed 1, the first would take 2 s, not 0.5 s, and the second half of its time.
    assert wanted - 0.05 < spent < wanted + 1.0


def test_a_pause_of_decades_is_cut_short_and_said(flow):
    """The first stamp is 0, the next ones are decades later, and then the clock is set back."""
    today = 1_800_000_000_000_000_000
    stamps = np.array([0, today, today + 10_000_000, -5_000_000, 0])
    stream = convert.Stream(stamps, np.arange(5, dtype=np.float32).reshape(5, 1))
    replay(flow, convert.write(flow.folder / "odd", {"force": stream}), 1.0, ["force"])
    flow.collector({"force": "replay/force"})
    done = flow.run(timeout=180)
    got = done.received("sink")
    assert [m.stamp for m in got] == stamps.tolist()
    spent = got[-1].metadata["timestamp"].timestamp() - got[0].metadata["timestamp"].timestamp()
    assert 9.9 < spent < 20, "one pause, of ten seconds"
    (line,) = [line for line in done.logs["replay"].splitlines() if "WARN" in line]
    assert "stream `force`" in line and "1800000000 s" in line and "10 s" in line


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_file_is_named_with_what_to_do(flow, codec):
    (flow.folder / "recording").mkdir()
    path = flow.folder / "recording" / "force.arrow"
    made = convert.tensor_table(convert.Stream(np.arange(100), np.zeros((100, 6), np.float32)))
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, made.schema, options=options) as file:
        file.write_table(made)
    replay(flow, path.parent, "max", ["force"])
    flow.collector({"force": "replay/force"})
    log = flow.run(code=None).logs["replay"]
    for word in ("force.arrow", codec, "new_file", "write_table"):
        assert word in log.lower(), log


def test_what_is_whole_of_a_damaged_recording_is_played(flow, streams):
    """One batch of the recorded stream `force` is damaged, and no batch of the stream `camera`."""
    recording = convert.write(flow.folder / "recording", {name: streams[name] for name in ("camera", "force")})
    path = recording / "force.arrow"
    damaged = bytearray(path.read_bytes())
    batches = [at for at in range(0, len(damaged) - 8, 8) if damaged[at : at + 4] == b"\xff" * 4 and damaged[at + 4 : at + 8] != b"\0" * 4]
    damaged[batches[2] + 8] ^= 0xFF
    path.write_bytes(damaged)
    replay(flow, recording, "max", ["camera", "force"])
    flow.collector({name: f"replay/{name}" for name in ("camera", "force")})
    done = flow.run(code=None)
    assert done.code != 0
    assert f"force.arrow: damaged at byte {batches[2]}" in done.logs["replay"]
    assert len(done.received("sink", "camera")) == len(streams["camera"].stamps)
    stamps = streams["force"].stamps.tolist()
    assert [m.stamp for m in done.received("sink", "force")] == stamps[:256] + stamps[512:]


def test_fifty_thousand_messages_at_max_and_none_lost(flow):
    rng = np.random.default_rng(2)
    stamps = np.arange(25_000) * 1_000_000
    streams = {
        "force": convert.Stream(stamps, rng.normal(size=(25_000, 6)).astype(np.float32)),
        "proprio": convert.Stream(stamps + 500_000, rng.normal(size=(25_000, 15)).astype(np.float32)),
    }
    recording = convert.write(flow.folder / "recording", streams)
    replay(flow, recording, "max", [*streams])
    sources = {name: f"replay/{name}" for name in streams}
    flow.robocache("record", {"record": {"path": str(flow.folder / "recorded")}}, sources)
    modalities = [{"input": name, "dim": s.values.shape[1], "interpolation": "linear"} for name, s in streams.items()]
    flow.robocache("fuse", {"fuse": {"rate_hz": 1000, "emit_every": 100, "modalities": modalities}}, sources, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run(timeout=180)
    for name in streams:
        one, other = table(recording / f"{name}.arrow"), table(flow.folder / "recorded" / f"{name}.arrow")
        assert other.num_rows == 25_000
        for column in ("timestamp_ns", "data", "shape"):
            assert one[column].to_pylist() == other[column].to_pylist(), column
    # A hole in the middle would show as an age, or as a value from other neighbours.
    got = done.received("sink")
    assert [m.stamp for m in got] == list(range(1_000_000, 25_000_000_000, 100_000_000))
    for message in got:
        i = message.stamp // 1_000_000
        assert message.metadata["age_ns"] == [0, 500_000]
        a, b = streams["proprio"].values[i - 1 : i + 1]
        assert message.values.tobytes() == np.concatenate([streams["force"].values[i], a + np.float32(0.5) * (b - a)]).tobytes()


def test_one_process_gives_the_bytes_of_separate_nodes(flow, recording):
    """Compares align's outputs, modality by modality, with those of fuse side by side."""
    replay(flow, recording, "max", [*SENSORS, "lidar"])
    sensors = {name: f"replay/{name}" for name in SENSORS}
    flow.robocache("fuse", {"fuse": FUSE}, sensors, ["fused"])
    flow.robocache("align", {"align": FUSE}, sensors, SENSORS)
    flow.robocache("voxelize", {"voxelize": VOXELIZE}, {"lidar": "replay/lidar"}, ["voxels"])
    plugins = [{"voxelize": VOXELIZE}, {"align": FUSE}, {"fuse": {**FUSE, "rate_hz": 25, "window": 2}}]
    flow.robocache("node", {"plugins": plugins}, {**sensors, "lidar": "replay/lidar"}, ["voxels", "fused", *SENSORS])
    # This fuse gets through dora what the chain's fuse gets: windows of align, sixteen rows a message.
    flow.robocache("fuse", {"fuse": {**FUSE, "rate_hz": 25, "window": 2}}, {n: f"align/{n}" for n in SENSORS}, ["fused"], name="second")
    outputs = {"fused": "fuse/fused", "voxels": "voxelize/voxels", "again": "second/fused"}
    flow.collector(outputs | {f"align_{name}": f"align/{name}" for name in SENSORS}, name="apart")
    flow.collector({name: f"node/{name}" for name in ("fused", "voxels", *SENSORS)}, name="together")
    done = flow.run(timeout=180)
    check_same(done.received("apart", "voxels"), done.received("together", "voxels"))
    check_same(done.received("apart", "again"), done.received("together", "fused"))
    fused = done.received("apart", "fused")
    offsets = np.cumsum([0, 128, 6, 15])
    for i, name in enumerate(SENSORS):
        aligned = done.received("apart", f"align_{name}")
        check_same(aligned, done.received("together", name))
        assert [m.stamp for m in aligned] == [m.stamp for m in fused]
        for one, whole in zip(aligned, fused, strict=True):
            part = whole.values.reshape(16, -1)[:, offsets[i] : offsets[i + 1]]
            assert one.values.tobytes() == part.tobytes()
            assert one.metadata["shape"] == [*part.shape]
            assert one.metadata["valid"] == whole.metadata["valid"][i::3]
            assert one.metadata["age_ns"] == whole.metadata["age_ns"][i::3]
            assert one.metadata["modalities"] == [name]
