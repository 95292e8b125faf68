"""The Python package's offline functions against the outputs of the nodes, bit for bit, on real recordings through dora."""

import numpy as np
import pyarrow as pa
import pytest

import convert
import robocache as rc  # `make python` installs it.
from harness import Flow, send, to_numpy
from test_real_data import trajectory

MS = 1_000_000
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
    """Checks that observations equal the nodes' messages, with their masks, ages, times and epochs."""
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
        # Left out is the wait by arrival: with it, dora's order of the streams decides which samples are late.
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
            # By default, a training sample has NaN where the live observation has NaN.
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


ROBOT = {
    "rate_hz": 50,
    "window": 4,
    "max_wait_ms": 30,
    "modalities": [
        {"input": "arm", "dim": 2, "interpolation": "linear", "max_gap_ms": 60},
        {"input": "force", "dim": 1, "interpolation": "previous", "max_age_ms": 100, "wait": False},
    ],
    "attach": [{"input": "image", "output": "images", "wait": False}],
}


def as_it_came(seed: int) -> list[tuple]:
    """A robot's messages with changing delays and drop-outs, whose clocks are set back and ahead."""
    rng = np.random.default_rng(seed)
    came = []
    for name, period_ms, most_ms in (("arm", 10, 25), ("force", 7, 60), ("image", 40, 90)):
        for t in range(0, 3000, period_ms):
            if rng.random() < 0.1 or 1000 < t < 1000 + 4 * period_ms:
                continue
            # All clocks are set back by 5 s; then the arm's alone is set ahead by 0.3 s.
            stamp_ms = t + (0 if t < 1500 else -5000) + (300 if name == "arm" and t > 2300 else 0)
            came.append((t + rng.uniform(0, most_ms), name, 10_000 + stamp_ms))
    steps = []
    for i, (_, name, stamp_ms) in enumerate(sorted(came)):
        values = np.full((2, 3), i % 250, np.uint8) if name == "image" else np.float32([i, -i][: 2 if name == "arm" else 1])
        steps.append(send(name, values, stamp_ms * MS, **({"shape": [2, 3]} if name == "image" else {})))
        if i % 20 == 0:
            steps.append(("sleep", 0.002))
    return steps


def test_windows_and_items_are_what_the_robot_had(tmp_path):
    """The recording has late samples, an attached stream that is not waited for, and clocks that are set. Offline, messages are
    read in the order in which they arrived."""
    robot = Flow(tmp_path / "robot")
    robot.sender(as_it_came(7))
    folder = tmp_path / "recording"
    sources = {name: f"sender/{name}" for name in ("arm", "force", "image")}
    outputs = ["fused", "observation"]
    made = {"name": "made", "path": str(tmp_path / "made"), "inputs": ["fused"]}
    robot.robocache("node", {"plugins": [{"record": {"path": str(folder)}}, {"fuse": ROBOT}, {"record": made}]}, sources, outputs)
    robot.collector({output: f"node/{output}" for output in outputs})
    had = robot.run()
    messages = had.received("sink", "fused")
    assert messages[-1].metadata["epoch"] > 0 and messages[-1].metadata["late_samples"] > 0

    recording = rc.Recording(folder)
    windows = recording.windows(ROBOT, invalid=None)
    check(windows, messages)
    assert windows.order == "arrival" and windows.late_samples > 0
    dataset = rc.RecordingDataset(folder, ROBOT)
    assert dataset.order == "arrival" and len(dataset) == len(messages)
    some = 0
    for item, message in zip(map(dataset.__getitem__, range(len(dataset))), had.received("sink", "observation"), strict=True):
        live = rc.Observation.from_message(message.array, message.metadata)
        trained = item.observation()
        assert live.fused.tobytes() == trained.fused.tobytes() and live.timestamps_ns.tolist() == trained.timestamps_ns.tolist()
        of_live, of_item = live.attached["images"], trained.attached["images"]
        assert of_live.age_ns.tolist() == of_item.age_ns.tolist()
        for row in range(4):
            a, b = of_live.at(row), of_item.at(row)
            assert (a is None) == (b is None) and (a is None or a.tolist() == b.tolist())
            some += a is not None
    assert some > 100
    # The recorded observations are those that the policy got.
    for message, came in zip(rc.Recording(tmp_path / "made").messages("fused"), messages, strict=True):
        found, live = message.observation(), rc.Observation.from_message(came.array, came.metadata)
        for part in ("fused", "valid", "age_ns", "timestamps_ns"):
            assert getattr(found, part).tobytes() == getattr(live, part).tobytes(), part
        assert (found.epoch, found.wait_ns, found.late_samples) == (live.epoch, live.wait_ns, live.late_samples)
    assert message.metadata.keys() >= {"modalities", "offsets", "compute_us"}
    # In the order of stamps nothing is late.
    by_stamp = recording.windows(ROBOT, invalid=None, order="stamp")
    assert by_stamp.order == "stamp" and by_stamp.fused.tobytes() != windows.fused.tobytes()


def test_arrivals_that_are_all_one_time_are_none(tmp_path):
    stamps = np.arange(50) * 10 * MS
    for name in "ab":
        data = pa.array([[float(i)] for i in range(50)], pa.list_(pa.float32()))
        arrivals = pa.array([0] * 50, pa.int64())
        table = pa.table({"timestamp_ns": pa.array(stamps), "arrival_ns": arrivals, "data": data})
        with pa.ipc.new_file(tmp_path / f"{name}.arrow", table.schema) as file:
            file.write_table(table)
    rule = {"dim": 1, "interpolation": "previous"}
    config = {"rate_hz": 50, "max_wait_ms": 20, "modalities": [{"input": "a", **rule}, {"input": "b", **rule}]}
    windows = rc.Recording(tmp_path).windows(config)
    assert windows.order == "stamp" and windows.valid.all() and len(windows) == 25 and windows.late_samples == 0


def test_an_order_that_is_not_known(tmp_path):
    folder = convert.write(tmp_path / "recording", {"a": convert.Stream(np.arange(10) * 10 * MS, np.zeros((10, 1), np.float32))})
    config = {"rate_hz": 50, "modalities": [{"input": "a", "dim": 1, "interpolation": "previous"}]}
    assert rc.Recording(folder).windows(config).order == "stamp"
    for make in (rc.Recording(folder).windows, lambda *a, **k: rc.RecordingDataset(folder, *a, **k)):
        with pytest.raises(ValueError, match="stream `a` has no column `arrival_ns`"):
            make(config, order="arrival")
        with pytest.raises(ValueError, match='`order` is "time" \\(allowed: "arrival", "stamp", None'):
            make(config, order="time")
