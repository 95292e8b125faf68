"""Tests of doubtful streams: stamps that are off from the stamps of other streams, and times of another unit, or in reverse."""

import json
import warnings

import numpy as np
import pyarrow as pa
import pytest

import robocache as rc

MS = 1_000_000
START = 1_700_000_000_000 * MS
TIMES = START + np.arange(0, 10_000, 20) * MS
CONFIG = {
    "rate_hz": 50,
    "modalities": [{"input": name, "dim": 1, "interpolation": "previous", "max_age_ms": 100} for name in ("arm", "force")],
    "attach": [{"input": "camera", "output": "images", "wait": False}],
}


def recorded(folder, ahead_ms: dict[str, int], arrivals=TIMES + 3 * MS) -> rc.Recording:
    """Writes a recording of streams whose stamps are `ahead_ms` later than the capture, by name. All messages arrive 3 ms after the
    capture, or at `arrivals`; `None` records no arrivals."""
    folder.mkdir()
    for name in ("arm", "force", "camera"):
        stamps = TIMES + ahead_ms.get(name, 0) * MS
        data = pa.ListArray.from_arrays(np.arange(len(stamps) + 1, dtype=np.int32), pa.array(np.arange(len(stamps), dtype=np.float32)))
        columns = {"timestamp_ns": pa.array(stamps), "data": data}
        if arrivals is not None:
            columns["arrival_ns"] = pa.array(arrivals)
        table = pa.table(columns)
        with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return rc.Recording(folder)


@pytest.mark.parametrize("stream", ["force", "camera"])
@pytest.mark.parametrize(("ahead_ms", "side"), [(2500, "ahead of"), (-2500, "behind")])
def test_a_clock_that_is_off_is_no_training_data(tmp_path, stream, ahead_ms, side):
    recording = recorded(tmp_path / "r", {stream: ahead_ms})
    said = rf"`{stream}`: its stamps are 2.500 s {side} those of .*`latency_ms` by 2500.*`robocache-clock`.*`allow_offset=\[\"{stream}\"\]`"
    for make in (recording.windows, lambda *a, **k: rc.RecordingDataset(recording, *a, **k)):
        with pytest.raises(ValueError, match=said):
            make(CONFIG)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            make(CONFIG, allow_offset=[stream])
    latency = {"latency_ms": ahead_ms}
    config = CONFIG | {
        key: [each | latency if each["input"] == stream else each for each in CONFIG[key]] for key in ("modalities", "attach")
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert recording.windows(config).valid.mean() > 0.9


@pytest.mark.parametrize("key", ["capture_s", "timestamp"])
def test_a_stamp_in_the_metadata_is_read_from_a_recording_as_a_node_reads_it(tmp_path, key):
    """A recorder in its own process does not read the input setting `from:`. It stamps messages with the time of publication,
    0.3 s after the capture."""
    recorded(tmp_path / "r", {})
    table = pa.ipc.open_file(tmp_path / "r/force.arrow").read_all()
    table = table.set_column(0, "timestamp_ns", pa.array(TIMES + 300 * MS))
    seconds = [{key: float(ns / 1e9)} for ns in TIMES]
    first = {"unstamped": 1} | seconds[0]
    table = table.replace_schema_metadata({"metadata": json.dumps(first)})
    with pa.OSFile(str(tmp_path / "r/force.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_batch(table.to_batches()[0], custom_metadata={"metadata": json.dumps(seconds)})
    told = {"from": {"stamp": {"metadata": key, "unit": "s"}}} if key == "capture_s" else {}
    config = CONFIG | {"modalities": [CONFIG["modalities"][0], CONFIG["modalities"][1] | told]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        windows = rc.Recording(tmp_path / "r").windows(config)
    assert windows.valid.mean() > 0.9
    # Values are numbers of captures, which must agree in a row.
    arm, force = windows.fused[windows.valid.all(axis=-1)].T
    assert np.abs(arm - force).max() <= 1


def test_a_little_is_a_warning_and_nothing_is_none(tmp_path):
    with pytest.warns(UserWarning, match="`force`: its stamps are 0.300 s ahead of those of `arm`, `camera`, judged by their arrival"):
        recorded(tmp_path / "r", {"force": 300}).windows(CONFIG)
    for i, (ahead, arrivals) in enumerate([({"force": 50}, TIMES), ({}, TIMES), ({"force": 2500}, None), ({"force": 2500}, TIMES[0] + np.arange(500))]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            recorded(tmp_path / f"r{i}", ahead, arrivals).windows(CONFIG)


def test_stamps_in_another_unit_say_so(tmp_path):
    recorded(tmp_path / "r", {})
    table = pa.ipc.open_file(tmp_path / "r/force.arrow").read_all()
    table = table.set_column(0, "timestamp_ns", pa.array(TIMES // 10**9))
    with pa.OSFile(str(tmp_path / "r/force.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ValueError, match="`force`.*they look like the time in seconds; needed: `timestamp_ns` in ns"):
        rc.Recording(tmp_path / "r").windows(CONFIG)


def test_samples_that_are_dropped_are_told(tmp_path):
    config = CONFIG | {"modalities": [CONFIG["modalities"][0], CONFIG["modalities"][1] | {"dim": 2, "wait": False}]}
    with pytest.warns(UserWarning, match="`force`: 500 samples are dropped: they do not have the length"):
        recorded(tmp_path / "r", {}).windows(config)


def test_of_two_streams_both_are_named(tmp_path):
    config = CONFIG | {"attach": []}
    recording = recorded(tmp_path / "r", {"force": 2500})
    with pytest.raises(ValueError, match="`arm`: .* behind those of `force`.*which of them is wrong can't be told: its own are 0.003 s behind"):
        recording.windows(config)
    for allowed in ("arm", "force"):
        recording.windows(config, allow_offset=[allowed])


def test_arrays_with_arrivals():
    streams = {"arm": (TIMES, np.zeros(500)), "force": (TIMES + 2500 * MS, np.zeros(500))}
    config = {key: CONFIG[key] for key in ("rate_hz", "modalities")}
    arrivals = {name: TIMES + 3 * MS for name in streams}
    rc.fuse(streams, config)
    with pytest.raises(ValueError, match="`arm`: its stamps are 2.500 s behind"):
        rc.fuse(streams, config, arrivals_ns=arrivals)
    rc.fuse(streams, config, arrivals_ns=arrivals, allow_offset=["force"])
    # The arrivals of one stream alone tell nothing.
    rc.fuse(streams, config, arrivals_ns={"force": arrivals["force"]})
    for keywords, error, match in (
        ({"allow_offset": ["gps"]}, ValueError, r"`allow_offset` names `gps`, which is not a stream in use \(allowed: arm, force\)"),
        ({"allow_offset": "arm"}, TypeError, "`allow_offset` is 'arm'"),
        ({"arrivals_ns": {"gps": TIMES}}, ValueError, r"`arrivals_ns` names `gps`, which is not a stream \(allowed: arm, force\)"),
        ({"arrivals_ns": {"arm": TIMES[1:]}}, ValueError, r"`arm: arrivals_ns` has shape \[499\] \(allowed: \[500\]"),
        ({"arrivals_ns": {"arm": TIMES.astype(float)}}, TypeError, "arm: arrivals_ns"),
    ):
        with pytest.raises(error, match=match):
            rc.fuse(streams, config, **keywords)


def test_a_recording_says_when_its_messages_came(tmp_path):
    assert np.array_equal(recorded(tmp_path / "r", {}).messages("arm").arrivals_ns, TIMES + 3 * MS)
    assert recorded(tmp_path / "s", {}, None).messages("arm").arrivals_ns is None


def test_times_of_another_unit_or_in_reverse_are_named():
    config = {"rate_hz": 50, "modalities": CONFIG["modalities"]}
    arm = (TIMES, np.zeros(500))
    for unit, ns in (("microseconds", 10**3), ("milliseconds", 10**6), ("seconds", 10**9)):
        with pytest.raises(ValueError, match=rf"Those of `force` seem to be {unit}: they are to be times {ns}"):
            rc.fuse({"arm": arm, "force": (TIMES // ns, np.zeros(500))}, config)
    with pytest.warns(UserWarning, match="stream `force`: 499 of 500 times are earlier than the previous one: are they in reverse"):
        rc.fuse({"arm": arm, "force": (TIMES[::-1].copy(), np.zeros(500))}, config)
    # Each step back is a clock jump, after which all targets come again.
    far = START + np.arange(0, 2_000_000, 1_000) * MS * 3_600
    with pytest.raises(ValueError, match="`force`: 1999 of 2000 times are earlier than .*in reverse.*2000 observations|are free"):
        rc.fuse({"arm": (far, np.zeros(2000)), "force": (far[::-1].copy(), np.zeros(2000))}, config | {"rate_hz": 1000})
