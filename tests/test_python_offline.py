"""The Python package's offline functions against what the nodes publish, bit for bit: real recordings through real dora."""

import numpy as np

import convert
import robocache as rc  # `make python` installs it.
from harness import to_numpy
from test_real_data import trajectory

GRID = {"origin_m": [-12.8, -12.8, -3], "voxel_size_m": [0.2] * 3, "shape": [128, 128, 30], "inputs": [{"input": "lidar"}]}
LAYOUTS = {
    "dense": {"channels": ["occupancy", "count", "mean_z", "max_intensity"], "layout": "dense", "dtype": "bfloat16"},
    "bits": {"channels": ["occupancy"], "layout": "bits"},
    "coo": {"channels": ["count", "mean_x", "mean_intensity"], "layout": "coo", "max_voxels": 3000},
}
OBSERVED = {
    "rate_hz": 50,
    "window": 6,
    "stride": 2,
    "emit_every": 3,
    "modalities": [
        {"input": "imu", "dim": 6, "interpolation": "pchip", "max_gap_ms": 30, "min_period_ms": 5},
        {"input": "speed", "dim": 1, "interpolation": "nearest", "max_age_ms": 9, "latency_ms": 12.5},
        {
            "input": "pose",
            "dim": 7,
            "groups": [
                {"channels": [0, 3], "interpolation": "cubic", "max_gap_ms": 100},
                {"channels": [3, 7], "interpolation": "slerp", "extrapolate_ms": 50, "max_gap_ms": 100},
            ],
        },
    ],
}
FUSED = {"float32": {}, "bfloat16": {"dtype": "bfloat16"}, "waiting": {"max_wait_ms": 100}}
RULE = {"interpolation": "cubic", "max_gap_ms": 100, "extrapolate_ms": 15}


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def check(observations, messages) -> None:
    """All observations, with all that is said of each."""
    assert len(observations) == len(messages) > 100
    for i, message in enumerate(messages):
        metadata = message.metadata
        assert bits(observations.fused[i]) == message.values.tobytes()
        assert list(observations.fused[i].shape) == metadata["shape"]
        assert observations.valid[i].ravel().tolist() == metadata["valid"]
        assert observations.age_ns[i].ravel().tolist() == metadata["age_ns"]
        assert observations.timestamps_ns[i].tolist() == metadata["timestamps_ns"]
        assert int(observations.epoch[i]) == metadata["epoch"]
    assert observations.offsets == messages[0].metadata["offsets"]
    assert observations.modalities == messages[0].metadata["modalities"]


def test_the_bits_of_the_nodes(flow, data):
    drive = convert.comma2k19_drive_1min(data / "comma2k19_drive_1min")
    lidar = convert.velodyne_vlp16_4scans(data / "velodyne_vlp16_4scans")
    folder = convert.write(flow.folder / "recording", {**drive, **lidar})
    rows = [drive["speed"], convert.Stream(drive["speed"].stamps[:500], drive["speed"].values[:500])]
    targets = [drive["pose"].stamps, drive["imu"].stamps[:300]]
    kinds = ["float32", "float16", "bfloat16"]

    flow.robocache("replay", {"replay": {"path": str(folder), "speed": "max"}}, outputs=[*drive, *lidar])
    collected = {}
    for name, keys in FUSED.items():
        # Without a wait by arrival: with one, what is late depends on how the streams come through dora.
        if name != "waiting":
            flow.robocache("fuse", {"fuse": {**OBSERVED, **keys}}, {s: f"replay/{s}" for s in drive}, ["fused"], name=f"fuse_{name}")
            collected[f"fused_{name}"] = f"fuse_{name}/fused"
    flow.robocache("align", {"align": OBSERVED}, {s: f"replay/{s}" for s in drive}, [*drive])
    collected |= {f"aligned_{s}": f"align/{s}" for s in drive}
    for name, keys in LAYOUTS.items():
        flow.robocache("voxelize", {"voxelize": {**GRID, **keys}}, {"lidar": "replay/lidar"}, ["voxels"], name=f"voxelize_{name}")
        collected[f"voxels_{name}"] = f"voxelize_{name}/voxels"
    flow.sender([trajectory(rows, targets, kind) for kind in kinds])
    flow.robocache("resample", {"resample": RULE}, {"trajectories": "sender/trajectories"}, ["resampled"])
    collected["resampled"] = "resample/resampled"
    flow.collector(collected)
    done = flow.run(timeout=180)

    streams = {name: (stream.stamps, stream.values) for name, stream in drive.items()}
    recording = rc.Recording(folder)
    assert recording.streams == sorted([*drive, *lidar])
    for name, keys in FUSED.items():
        config = {**OBSERVED, **keys}
        fused = rc.fuse(streams, config, invalid=None)
        windows = recording.windows(config, invalid=None)
        dataset = rc.RecordingDataset(recording, config, invalid=None)
        assert len(windows) == len(dataset) == len(fused)
        for key in ("fused", "valid", "age_ns", "timestamps_ns", "epoch"):
            assert bits(getattr(windows, key)) == bits(getattr(fused, key))
            assert bits(np.stack([dataset[i][key] for i in range(len(dataset))])) == bits(getattr(fused, key))
        if name != "waiting":
            messages = done.received("sink", f"fused_{name}")
            check(fused, messages)
            # By default what a policy is trained on has NaN where what it gets has it.
            trained = rc.RecordingDataset(recording, config)
            for item, message in zip(map(trained.__getitem__, range(len(trained))), messages, strict=True):
                live = rc.Observation.from_message(message.array, message.metadata)
                assert live.fused.tobytes() == item.observation().fused.tobytes()
    for name, aligned in rc.align(streams, OBSERVED, invalid=None).items():
        check(aligned, done.received("sink", f"aligned_{name}"))

    clouds = list(recording.messages("lidar"))
    assert len(clouds) == 4
    for name, keys in LAYOUTS.items():
        for cloud, message in zip(clouds, done.received("sink", f"voxels_{name}"), strict=True):
            grid = rc.voxelize(cloud.columns, config={**GRID, **keys})
            check_grid(grid, message)
            tensor = np.stack([cloud.columns[field] for field in ("x", "y", "z", "intensity")], axis=1).astype(np.float32)
            check_grid(rc.voxelize(tensor, fields=["x", "y", "z", "intensity"], config={**GRID, **keys}), message)

    for kind, message in zip(kinds, done.received("sink", "resampled"), strict=True):
        if kind == "bfloat16":
            continue
        values, valid = rc.resample(
            [row.stamps for row in rows], [row.values.astype(kind) for row in rows], targets, invalid=None, **RULE
        )
        answer = to_numpy(message.array)
        for i in range(len(rows)):
            assert bits(values[i]) == answer["values"][i].tobytes() and values[i].shape == (len(targets[i]), 1)
            assert bits(valid[i]) == answer["valid"][i].tobytes()


def check_grid(grid, message) -> None:
    metadata = message.metadata
    if grid.layout == "coo":
        got, wanted = [grid.coords, grid.features], [message.values["coords"], message.values["features"]]
    else:
        got, wanted = [grid.values], [message.values]
    for one, other in zip(got, wanted, strict=True):
        assert bits(one) == other.tobytes()
    assert {key: metadata[key] for key in grid.counters if key in metadata} == {
        key: count for key, count in grid.counters.items() if key in metadata
    }
    assert {"points_in", "points_kept", "dropped_nonfinite", "dropped_outside", "dropped_overflow"} <= metadata.keys()
    assert list(grid.unusable.values()) == metadata.get("unusable", [])
    assert (grid.channels, list(grid.shape)) == (metadata["channels"], metadata["grid_shape"])
    assert np.float32(metadata["voxel_size_m"]).tolist() == np.float32(grid.voxel_size_m).tolist()
