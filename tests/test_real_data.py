"""Real recordings through replay and fuse, or through resample, against the oracle and against NumPy and SciPy."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.interpolate

import convert
import oracle
from harness import Flow, check_same, send
from oracle import DTYPES, MS

# name -> the recording's folder, the configuration of fuse
FUSED = {
    "arm": (
        "arm_wrench_vision_screwdriving",
        {
            "rate_hz": 100,
            "window": 8,
            "stride": 2,
            "emit_every": 5,
            "modalities": [
                {"input": "wrench", "dim": 6, "interpolation": "linear", "max_gap_ms": 60, "extrapolate_ms": 20},
                {"input": "tracker", "dim": 4, "interpolation": "nearest", "max_age_ms": 20, "latency_ms": 12.5},
                {
                    "input": "pose",
                    "dim": 6,
                    "groups": [
                        {"channels": [0, 3], "interpolation": "linear", "max_gap_ms": 200},
                        {"channels": [3, 6], "interpolation": "previous", "max_age_ms": 15},
                    ],
                },
            ],
        },
    ),
    "drive": (
        "comma2k19_drive_1min",
        {
            "rate_hz": 20,
            "window": 4,
            "modalities": [
                {"input": "imu", "dim": 6, "interpolation": "linear", "max_gap_ms": 30},
                {"input": "speed", "dim": 1, "interpolation": "linear", "max_gap_ms": 25},
                {"input": "pose", "dim": 7, "interpolation": "linear", "max_gap_ms": 100, "extrapolate_ms": 50},
            ],
        },
    ),
    "imu": (
        "broad_imu_mocap_40s",
        {
            "rate_hz": 100,
            "window": 2,
            "emit_every": 2,
            "fill_value": -1.0,
            "modalities": [
                {"input": "imu", "dim": 9, "interpolation": "linear", "max_gap_ms": 10},
                {"input": "mocap", "dim": 7, "interpolation": "nearest", "max_age_ms": 2, "latency_ms": 7},
            ],
        },
    ),
}


def column(streams, name: str, channel: int):
    return streams[name].stamps, streams[name].values[:, channel].astype(np.float64)


def interpolated(stamps: np.ndarray, values: np.ndarray, targets) -> np.ndarray:
    """Interpolates with NumPy, in ns since the first sample, which float64 holds exactly."""
    return np.interp(np.asarray(targets) - stamps[0], stamps - stamps[0], values)


@pytest.mark.parametrize("name", FUSED)
def test_fuse_on_its_own_grid(flow, data, name):
    folder, config = FUSED[name]
    streams = convert.SOURCES[folder](data / folder)
    recording = convert.write(flow.folder / "recording", streams)
    flow.robocache("replay", {"replay": {"path": str(recording), "speed": "max"}}, outputs=list(streams))
    kinds = [*DTYPES] if name == "arm" else ["float32"]
    for dtype in kinds:
        flow.robocache("fuse", {"fuse": {**config, "dtype": dtype}}, {s: f"replay/{s}" for s in streams}, ["fused"], name=dtype)
        flow.collector({"fused": f"{dtype}/fused"}, name=f"sink_{dtype}")
    done = flow.run(timeout=180)
    for dtype in kinds:
        wanted = oracle.fuse({**config, "dtype": dtype}, {key: (s.stamps, s.values) for key, s in streams.items()})
        got = done.received(f"sink_{dtype}")
        assert [m.stamp for m in got] == [o.stamp for o in wanted]
        assert len(wanted) > 400
        columns = sum(m["dim"] for m in config["modalities"])
        offsets = np.cumsum([0, *[m["dim"] for m in config["modalities"]]]).tolist()
        for message, observation in zip(got, wanted, strict=True):
            metadata = message.metadata
            assert metadata["timestamps_ns"] == observation.times
            assert metadata["valid"] == observation.valid
            assert metadata["age_ns"] == observation.age
            assert metadata["shape"] == [config["window"], columns]
            assert metadata["modalities"] == [m["input"] for m in config["modalities"]]
            assert metadata["offsets"] == offsets
            assert (metadata["epoch"], metadata["late_samples"], metadata["dtype"]) == (0, 0, dtype)
            assert message.values.tobytes() == observation.values.tobytes(), message.stamp
    check_with_numpy(config, streams, done.received("sink_float32"), offsets)


def check_with_numpy(config, streams, got, offsets):
    """Checks the newest rows against np.interp and SciPy's interp1d, which share nothing with the oracle either."""
    targets = np.array([m.stamp for m in got])
    rows = np.stack([m.values.reshape(m.metadata["shape"])[-1] for m in got])
    valid = np.array([m.metadata["valid"][-len(config["modalities"]) :] for m in got], bool)
    compared = 0
    for i, modality in enumerate(config["modalities"]):
        for channels, rule in oracle.rules(modality):
            for channel in range(modality["dim"])[channels]:
                stamps, values = column(streams, modality["input"], channel)
                stamps = stamps - round(modality.get("latency_ms", 0) * MS)
                inside = valid[:, i] & (targets <= stamps[-1])
                # Times count from the first sample, so that float64 holds them exactly and a tie stays a tie.
                t, x = (targets[inside] - stamps[0]).astype(np.float64), (stamps - stamps[0]).astype(np.float64)
                if rule["interpolation"] == "linear":
                    wanted = np.interp(t, x, values)
                else:
                    wanted = scipy.interpolate.interp1d(x, values, kind=rule["interpolation"])(t)
                scale = np.abs(values).max()
                assert np.allclose(rows[inside, offsets[i] + channel], wanted, rtol=1e-5, atol=1e-6 * scale)
                compared += int(inside.sum())
    assert compared > 1000


def test_the_stall_and_the_early_tracker_are_masked(flow, data):
    """The wrench is silent for 153 ms, once; the tracker starts 659 ms before it."""
    streams = convert.arm_wrench_vision_screwdriving(data / "arm_wrench_vision_screwdriving")
    wrench, tracker = streams["wrench"].stamps, streams["tracker"].stamps
    assert np.diff(wrench).max() == 153 * MS and wrench[0] - tracker[0] == 659 * MS
    recording = convert.write(flow.folder / "recording", streams)
    flow.robocache("replay", {"replay": {"path": str(recording), "speed": "max"}}, outputs=["wrench", "tracker"])
    rule = {"interpolation": "linear", "max_gap_ms": 120}
    modalities = [{"input": "wrench", "dim": 6, **rule}, {"input": "tracker", "dim": 4, **rule}]
    config = {"rate_hz": 100, "window": 80, "modalities": modalities}
    flow.robocache("fuse", {"fuse": config}, {"wrench": "replay/wrench", "tracker": "replay/tracker"}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    got = flow.run().received("sink")
    at = np.argmax(np.diff(wrench))
    for message in got:
        inside = wrench[at] < message.stamp < wrench[at + 1]
        ends = message.stamp > wrench[-1]
        assert message.metadata["valid"][-2] == int(not inside and not ends)
    first = np.array(got[0].metadata["valid"]).reshape(80, 2)
    # In rows before the first target, the tracker is valid and the wrench is not.
    assert got[0].stamp - wrench[0] < 10 * MS
    assert first[:, 0].tolist() == [0] * 79 + [1]
    assert first[:, 1].sum() == (np.array(got[0].metadata["timestamps_ns"]) >= tracker[0]).sum()


def test_a_real_lidar_and_its_imu_give_the_same_bytes_at_both_speeds(tmp_path, data):
    streams = convert.ouster_os1_128_3scans(data / "ouster_os1_128_3scans")
    recording = convert.write(tmp_path / "recording", streams)
    fuse = {"rate_hz": 200, "window": 4, "modalities": [{"input": "imu", "dim": 6, "interpolation": "linear"}]}
    voxelize = {
        "origin_m": [-25.6, -25.6, -6.0],
        "voxel_size_m": [0.2, 0.2, 0.2],
        "shape": [256, 256, 60],
        "channels": ["count", "mean_x", "mean_y", "mean_z", "mean_intensity"],
        "layout": "coo",
        "inputs": [{"input": "lidar"}],
    }
    runs = []
    for speed in (1.0, "max"):
        flow = Flow(tmp_path / str(speed))
        flow.robocache("replay", {"replay": {"path": str(recording), "speed": speed}}, outputs=["lidar", "imu"])
        flow.robocache("node", {"plugins": [{"voxelize": voxelize}, {"fuse": fuse}]}, {n: f"replay/{n}" for n in streams}, ["voxels", "fused"])
        flow.collector({name: f"node/{name}" for name in ("voxels", "fused")})
        runs.append(flow.run())
    for name in ("voxels", "fused"):
        check_same(*(run.received("sink", name) for run in runs))
    assert len(runs[0].received("sink", "voxels")) == 3
    assert len(runs[0].received("sink", "fused")) == len(oracle.fuse(fuse, {"imu": (streams["imu"].stamps, streams["imu"].values)}))


def trajectory(streams: list[convert.Stream], targets: list[np.ndarray], dtype: str) -> tuple:
    values = [s.values.astype(DTYPES[dtype] if dtype in DTYPES else dtype).ravel() for s in streams]
    if dtype == "bfloat16":
        values = [v.view(np.uint16) for v in values]
    struct = pa.StructArray.from_arrays(
        [convert.lists([s.stamps for s in streams]), convert.lists(values), convert.lists(targets, np.int64)],
        ["timestamps_ns", "values", "targets_ns"],
    )
    metadata = {"dim": streams[0].values.shape[1]} | ({"dtype": dtype} if dtype == "bfloat16" else {})
    return send("trajectories", struct, None, **metadata)


def test_the_wrench_on_the_trackers_stamps(flow, data):
    """Resamples one stream at the stamps of another stream, as a data loader does, in each type and in rows of any length."""
    streams = convert.arm_wrench_vision_screwdriving(data / "arm_wrench_vision_screwdriving")
    wrench, targets = streams["wrench"], streams["tracker"].stamps
    cuts = [slice(0, None), slice(0, 300), slice(300, 301), slice(0, 0), slice(310, 726)]
    rows = [convert.Stream(wrench.stamps[cut], wrench.values[cut]) for cut in cuts]
    aims = [targets, targets[100:400], targets[::-1], targets[:3], targets[:0]]
    kinds = ["float32", "float64", "float16", "bfloat16"]
    rule = {"interpolation": "linear", "max_gap_ms": 100, "extrapolate_ms": 15}
    flow.sender([trajectory(rows, aims, dtype) for dtype in kinds])
    flow.robocache("resample", {"resample": rule}, {"trajectories": "sender/trajectories"}, ["resampled"])
    flow.collector({"resampled": "resample/resampled"})
    got = flow.run().received("sink")
    assert len(got) == len(kinds)
    for dtype, message in zip(kinds, got, strict=True):
        values, valid = message.values["values"], message.values["valid"]
        for row, aim, value, ok in zip(rows, aims, values, valid, strict=True):
            given = row.values.astype(DTYPES.get(dtype, np.float64))
            samples = oracle.Samples(row.stamps, given.astype(np.float64))
            if dtype == "float64":
                samples.values = [*given]
            wanted = [value_of(samples, int(t), rule, dtype) for t in aim]
            assert ok.dtype == np.uint8 and ok.tolist() == [int(w is not None) for w in wanted]
            out = np.array([np.zeros(6) if w is None else w for w in wanted]).reshape(len(aim), 6)
            kind = DTYPES.get(dtype, np.float64)
            assert value.view(kind).reshape(len(aim), 6).tobytes() == out.astype(kind).tobytes(), dtype
    whole, valid = got[1].values["values"][0].reshape(-1, 6), got[1].values["valid"][0].astype(bool)
    assert not valid[: np.searchsorted(targets, wrench.stamps[0])].any()
    assert 640 < valid.sum() < 726 - 19
    for channel in range(6):
        wanted = interpolated(wrench.stamps, wrench.values[:, channel].astype(np.float64), targets[valid])
        assert np.allclose(whole[valid, channel], wanted, rtol=1e-6, atol=1e-6)


def value_of(samples, t, rule, dtype):
    """Returns the oracle's value at time `t`; for float64 without the oracle's rounding to float32."""
    value = oracle.value_at(samples, t, rule)
    if dtype != "float64" or value is None:
        return value
    left, right = samples.around(t)
    if samples.times[left] == t or right is None:
        return samples.values[left]
    weight = (t - samples.times[left]) / (samples.times[right] - samples.times[left])
    return samples.values[left] + weight * (samples.values[right] - samples.values[left])


@pytest.mark.parametrize(
    "rule",
    [
        {"interpolation": "previous", "max_age_ms": 40},
        {"interpolation": "nearest", "max_age_ms": 12},
        {"interpolation": "linear", "max_gap_ms": 25, "extrapolate_ms": 10},
    ],
    ids=lambda rule: rule["interpolation"],
)
def test_imu_and_speed_of_a_drive_on_its_pose_stamps(flow, data, rule):
    streams = convert.comma2k19_drive_1min(data / "comma2k19_drive_1min")
    targets = streams["pose"].stamps
    flow.sender([trajectory([streams[name]], [targets], "float32") for name in ("imu", "speed")])
    flow.robocache("resample", {"resample": rule}, {"trajectories": "sender/trajectories"}, ["resampled"])
    flow.collector({"resampled": "resample/resampled"})
    for name, message in zip(("imu", "speed"), flow.run().received("sink"), strict=True):
        stream = streams[name]
        samples = oracle.Samples(stream.stamps, stream.values)
        wanted = [oracle.value_at(samples, int(t), rule) for t in targets]
        (values,), (valid,) = message.values["values"], message.values["valid"]
        assert valid.tolist() == [int(w is not None) for w in wanted]
        assert valid.sum(dtype=int) > 1000
        none = np.zeros(stream.values.shape[1], np.float32)
        assert values.tobytes() == np.stack([none if w is None else w for w in wanted]).tobytes()
        ok = valid.astype(bool) & (targets <= stream.stamps[-1])
        x, t = (array.astype(np.float64) for array in (stream.stamps - stream.stamps[0], targets[ok] - stream.stamps[0]))
        theirs = scipy.interpolate.interp1d(x, stream.values.astype(np.float64), kind=rule["interpolation"], axis=0)(t)
        assert np.allclose(values.reshape(len(targets), -1)[ok], theirs, rtol=1e-6, atol=1e-6)
