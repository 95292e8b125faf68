"""Tests that data that do not fit into memory are refused before they are made, and that parts of large recordings can be read."""

import os
import pickle
import resource
import subprocess
import sys
import time

import convert
import numpy as np
import pytest

import robocache as rc

MS, DAY = 1_000_000, 86_400_000_000_000
FUSE = {
    "rate_hz": 50,
    "window": 16,
    "modalities": [
        {"input": "camera", "dim": 2, "interpolation": "previous"},
        {"input": "wrench", "dim": 1, "interpolation": "linear"},
    ],
}


def streams(days: float) -> dict:
    """Makes two seconds of a camera and a wrench, and two more seconds after a gap of `days` days."""
    later = np.arange(200) + 200 + round(days * DAY / (10 * MS))
    stamps = 1_700_000_000_000_000_000 + np.concatenate([np.arange(200), later]) * 10 * MS
    return {"camera": (stamps, np.ones((400, 2), np.float32)), "wrench": (stamps, np.ones((400, 1), np.float32))}


WORDS = (
    r"157680.... observations of 16 rows take \d+\.\d GB, but .*B are free\. The longest time without a sample of `camera`, "
    r"`wrench` is 365\.0 days, after 1700000001990000000 ns \(allowed: observations that fit; cut the streams there"
)


def test_a_silence_of_a_year_is_refused_at_once(tmp_path):
    year = streams(365)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(MemoryError, match=WORDS):
        rc.fuse(year, FUSE)
    with pytest.raises(MemoryError, match=WORDS):
        rc.align(year, FUSE)
    folder = convert.write(tmp_path / "r", {name: convert.Stream(*pair) for name, pair in year.items()})
    with pytest.raises(MemoryError, match=WORDS):
        rc.Recording(folder).windows(FUSE)
    with pytest.raises(MemoryError, match=r"157680.... observations of 16 rows"):
        rc.RecordingDataset(folder, FUSE)
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


@pytest.mark.parametrize("keys", [{"max_wait_ms": 100}, {"modalities": [m | {"jump_ms": 60_000} for m in FUSE["modalities"]]}])
def test_a_silence_that_is_a_jump_makes_no_targets(keys):
    fused = rc.fuse(streams(365), FUSE | keys)
    assert 190 <= len(fused) <= 210 and fused.epoch[-1] > fused.epoch[0]


def test_a_trigger_makes_no_targets_in_a_silence():
    fused = rc.fuse(streams(365), FUSE | {"trigger": {"stream": "camera"}})
    assert len(fused) == 400 and fused.valid[-1].all()


def test_what_fits_is_what_was_said(monkeypatch):
    """The estimated size of a result is more than the size of its arrays, and at most twice as large."""
    given = streams(0)
    made = rc.fuse(given, FUSE)
    assert len(made) == 200
    bytes_made = sum(getattr(made, name).nbytes for name in ("fused", "valid", "age_ns", "timestamps_ns", "epoch"))
    monkeypatch.setattr("robocache.offline.free_bytes", lambda: bytes_made)
    with pytest.raises(MemoryError, match="^200 observations of 16 rows take"):
        rc.fuse(given, FUSE)
    monkeypatch.setattr("robocache.offline.free_bytes", lambda: 2 * bytes_made)
    assert len(rc.fuse(given, FUSE)) == len(made)


@pytest.mark.parametrize("believed", ["free_bytes()", "1 << 62"])
def test_the_limit_of_the_process_ends_in_a_memory_error(believed):
    """A limit of memory holds even if the free memory was estimated wrongly, since it may change at any time."""
    program = f"""
import resource, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_memory import *
from robocache._memory import free_bytes
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
rc.offline.free_bytes = lambda: {believed}
for days in (0.05, 0.2, 0.5, 1, 30):
    try:
        rc.fuse(streams(days), FUSE)
    except MemoryError as error:
        print(days, error)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith("30 "), done.stderr


def resident() -> int:
    """Returns the resident memory of the process, bytes, including pages of files."""
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """128 MB of images in batches of eight, each with its number in the first pixel, and a short stream beside them."""
    import pyarrow as pa

    folder = tmp_path_factory.mktemp("large")
    item = pa.field("item", pa.uint8(), nullable=False)
    schema = pa.schema(
        [
            pa.field("timestamp_ns", pa.int64(), nullable=False),
            pa.field("data", pa.list_(item), nullable=False),
            pa.field("shape", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
        ]
    )
    size = 1 << 20
    with pa.ipc.new_file(folder / "camera.arrow", schema) as file:
        for batch in range(16):
            pixels = np.full((8, size), 7, np.uint8)
            pixels[:, 0] = np.arange(8) + 8 * batch
            offsets = pa.array(np.arange(9) * size, pa.int32())
            data = pa.ListArray.from_arrays(offsets, pa.array(pixels.reshape(-1)), type=schema.field("data").type)
            shape = pa.array([[512, 2048]] * 8, schema.field("shape").type)
            stamps = (np.arange(8) + 8 * batch) * 33 * MS
            file.write_batch(pa.RecordBatch.from_arrays([pa.array(stamps), data, shape], schema=schema))
    stamps = np.arange(1000) * MS
    convert.write(folder, {"force": convert.Stream(stamps, np.arange(1000, dtype=np.float32).reshape(-1, 1))})
    return folder


def test_of_a_recording_only_what_is_asked_for_is_loaded(large):
    rc.Recording(large).messages("force")[0]
    before = resident()
    recording = rc.Recording(large)
    images = recording.messages("camera")
    assert len(images) == 128 and images.timestamps_ns.tolist() == [i * 33 * MS for i in range(128)]
    assert images[77].columns[""].shape == (512, 2048)
    times, values = recording["force"]
    assert values[-1] == 999 and times[-1] == 999 * MS
    windows = recording.windows({"rate_hz": 100, "modalities": [{"input": "force", "dim": 1, "interpolation": "previous"}]})
    assert len(windows) == 100
    grown = resident() - before
    assert grown < 24 << 20, f"{grown} bytes more, the file has {(large / 'camera.arrow').stat().st_size}"


def test_messages_in_any_order(large):
    images = rc.Recording(large).messages("camera")
    order = np.random.default_rng(2).permutation(128)[:40]
    assert [int(images[i].columns[""][0, 0]) for i in order] == order.tolist()
    assert images[-1].timestamp_ns == images[127].timestamp_ns == 127 * 33 * MS
    assert [int(image.columns[""][0, 0]) for image in images[3:20:8]] == [3, 11, 19]
    assert sum(1 for _ in images) == 128
    # An image that was taken belongs to the caller.
    image = images[5].columns[""]
    image[:] = 0
    assert images[5].columns[""][0, 0] == 5
    again = pickle.loads(pickle.dumps(images))
    assert again[9].columns[""].tobytes() == images[9].columns[""].tobytes()
    for index in (128, -129):
        with pytest.raises(IndexError, match=rf"camera\.arrow: message {index} of 128"):
            images[index]
    modality = {"input": "lidar", "dim": 1, "interpolation": "previous"}
    for read in (
        lambda recording: recording.messages("lidar"),
        lambda recording: recording["lidar"],
        lambda recording: recording.windows({"rate_hz": 1, "modalities": [modality]}),
    ):
        with pytest.raises(ValueError, match=r"stream `lidar` was not recorded \(there are: camera, force\)"):
            read(rc.Recording(large))


@pytest.mark.parametrize(
    ("order", "keys"),
    [
        (lambda stamps: stamps, {}),
        (lambda stamps: stamps.reshape(-1, 5)[:, [1, 0, 4, 3, 2]].ravel(), {}),  # out of order
        (lambda stamps: stamps, {"rate_hz": 30, "emit_every": 3, "stride": 2}),
        (lambda stamps: stamps, {"trigger": {"stream": "wrench"}}),
        (lambda stamps: stamps, {"trigger": {"stream": "wrench", "rows": "samples"}}),
    ],
)
def test_the_observations_are_counted_beforehand(monkeypatch, order, keys):
    """The estimated number of observations is the true number, or up to 2 more: some are missing at the start and the end."""
    given = {name: (order(stamps), values) for name, (stamps, values) in streams(0).items()}
    made = len(rc.fuse(given, FUSE | keys))
    monkeypatch.setattr("robocache.offline.free_bytes", lambda: 0)
    with pytest.raises(MemoryError) as refused:
        rc.fuse(given, FUSE | keys)
    assert made <= int(str(refused.value).split()[0]) <= made + 2


def anonymous() -> int:
    """Returns the memory of the process without pages of files, bytes."""
    (line,) = (line for line in open("/proc/self/status") if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def test_windows_hold_no_batch_of_the_recording(large):
    """Reads a recording by another writer, which puts all messages into one batch."""
    import pyarrow as pa

    whole = pa.ipc.open_file(large / "camera.arrow").read_all().combine_chunks()
    folder = large / "one"
    folder.mkdir()
    with pa.ipc.new_file(folder / "camera.arrow", whole.schema) as file:
        file.write_batch(whole.to_batches()[0])
    del whole
    pa.default_memory_pool().release_unused()
    config = {"rate_hz": 2, "modalities": [{"input": "x", "dim": 1 << 20, "interpolation": "previous"}]}
    rc.Recording(folder).messages("camera")[0]
    before = anonymous()
    dataset = rc.RecordingDataset(folder, config | {"rate_hz": 0.5}, streams={"x": "camera"})
    assert [int(dataset[i]["fused"][0, 0]) for i in range(len(dataset))] == [0, 60, 121]
    # Memory has three rows of 4 MiB, as many in the stream's history, and the window in progress.
    grown = anonymous() - before
    assert grown < 64 << 20, f"{grown} bytes more, the file has {(folder / 'camera.arrow').stat().st_size}"


def test_one_stream_for_two_modalities(large):
    """Each modality gets all samples of the stream."""
    rule = {"dim": 1, "interpolation": "previous"}
    config = {"rate_hz": 100, "modalities": [{"input": "a", **rule}, {"input": "b", "latency_ms": 10, **rule}]}
    windows = rc.Recording(large).windows(config, streams={"a": "force", "b": "force"})
    assert windows.valid.all() and windows.fused[3].tolist() == [[30, 40]]


def test_clouds_of_a_real_recording_in_any_order(data, tmp_path):
    folder = "velodyne_vlp16_4scans"
    streams = convert.SOURCES[folder](data / folder)
    recording = rc.Recording(convert.write(tmp_path / "r", streams))
    (name,) = recording.streams
    clouds = recording.messages(name)
    forward = list(clouds)
    for i in reversed(range(len(clouds))):
        cloud = clouds[i]
        assert cloud.timestamp_ns == forward[i].timestamp_ns == clouds.timestamps_ns[i]
        for field, column in cloud.columns.items():
            assert column.tobytes() == forward[i].columns[field].tobytes()


def test_a_recording_that_was_cut_off_is_read_up_to_there(large, tmp_path):
    whole = (large / "camera.arrow").read_bytes()
    (tmp_path / "camera.arrow").write_bytes(whole[: 60 << 20])
    images = rc.Recording(tmp_path, broken="use").messages("camera")
    assert len(images) == 56 and images[55].columns[""][0, 0] == 55
