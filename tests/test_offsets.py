"""Bags with a clock that is off: `robocache convert` reports it, and refuses to make a dataset of the bag."""

import subprocess

import numpy as np
import pytest
import yaml

import bags
from bags import START, T, header
from harness import ROOT

MS = 1_000_000
CONFIG = {
    "fuse": {
        "rate_hz": 10,
        "modalities": [{"input": "joints", "dim": 2, "interpolation": "linear", "max_gap_ms": 100}],
    },
    "lerobot": {
        "features": [
            {"name": "observation.state", "modalities": ["joints"]},
            {"name": "observation.images.top", "images": "camera", "max_age_ms": 5000},
        ]
    },
}


def bag(folder, early_ms: int, log_of_stamp: bool = False):
    """Writes a bag of six seconds: joints at 50 Hz, and images at 10 Hz with stamps `early_ms` before their capture."""
    messages = []
    for i in range(300):
        at = START + i * 20 * MS
        joints = T["sensor_msgs/msg/JointState"](
            header=header(at), name=["a", "b"], position=np.array([i, -i], float), velocity=np.array([]), effort=np.array([])
        )
        messages.append(("/joints", "sensor_msgs/msg/JointState", at + (0 if log_of_stamp else 2 * MS), joints))
        if i % 5 == 0:
            stamp = at - early_ms * MS
            pixels = np.full(4 * 4 * 3, i % 250, np.uint8)
            image = T["sensor_msgs/msg/Image"](header=header(stamp), height=4, width=4, encoding="rgb8", is_bigendian=0, step=12, data=pixels)
            messages.append(("/camera", "sensor_msgs/msg/Image", stamp if log_of_stamp else at + 30 * MS, image))
    messages.sort(key=lambda message: message[2])
    bags.write(folder / "bag", messages)


def convert(folder, *more, code: int, to: str = "lerobot"):
    path = folder / "robocache.yml"
    path.write_text(yaml.safe_dump(CONFIG))
    out = folder / ("dataset" if to == "lerobot" else f"out.{to}")
    words = [ROOT / "target/release/robocache", "convert", folder / "bag", out, "--to", to, "--config", path, *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_images_with_stamps_2_5_s_early_are_no_dataset(tmp_path):
    bag(tmp_path, 2500)
    said = convert(tmp_path, code=2)
    # With two streams, it can't be told which is wrong. Both are named, each with its distance to the bag's clock.
    for part in (
        "`camera`: its stamps are 2.528 s behind those of `joints`, judged by their arrival; which of them is wrong can't be told: its own are "
        "2.530 s behind their arrival, those of `joints` 0.002 s behind their arrival (if it is so in every run, lower its `latency_ms` by 2528",
        "`joints`: its stamps are 2.528 s ahead of those of `camera`",
        "`robocache-clock`",
        "`--allow-offset camera`",
    ):
        assert part in said, said
    assert not (tmp_path / "dataset").exists()
    assert "clocks:" not in convert(tmp_path, "--allow-offset", "camera", code=0)


@pytest.mark.parametrize(("to", "other"), [("recording", "mcap"), ("mcap", "recording")])
def test_streams_of_features_are_compared_whatever_it_becomes(tmp_path, to, other):
    bag(tmp_path, 2500)
    said = convert(tmp_path, code=0, to=to)
    assert "clocks: `camera`: its stamps are 2.528 s behind those of `joints`" in said, said
    assert "clocks:" not in convert(tmp_path, "--allow-offset", "camera", code=0, to=other)


@pytest.mark.parametrize("place", ["nowhere", "voxelize", "attach"])
def test_the_latency_of_a_lidar_stands_at_its_input_or_where_its_grids_are_attached(tmp_path, place):
    """A driver that stamps clouds 1.5 s after their capture."""
    made, messages = bags.Made(), []
    for i in range(300):
        at = START + i * 20 * MS
        joints = T["sensor_msgs/msg/JointState"](
            header=header(at), name=["a", "b"], position=np.array([i, -i], float), velocity=np.array([]), effort=np.array([])
        )
        messages.append(("/joints", "sensor_msgs/msg/JointState", at + 2 * MS, joints))
        if i % 5 == 0:
            messages.append(("/lidar", "sensor_msgs/msg/PointCloud2", at + 2 * MS, made.cloud(at + 1500 * MS)[0]))
    bags.write(tmp_path / "bag", messages)
    latency = {"latency_ms": 1500}
    lidar, grids = [latency if place == wanted else {} for wanted in ("voxelize", "attach")]
    fuse = {**CONFIG["fuse"], "attach": [{"input": "voxels", **grids}]}
    grid = {"origin_m": [-2, -2, -1], "voxel_size_m": [0.5, 0.5, 0.5], "shape": [8, 8, 4], "channels": ["occupancy"], "layout": "bits"}
    config = tmp_path / "both.yml"
    config.write_text(yaml.safe_dump({"voxelize": {**grid, "inputs": [{"input": "lidar", **lidar}]}, "fuse": fuse}))
    words = [ROOT / "target/release/robocache", "convert", tmp_path / "bag", tmp_path / "out", "--config", config]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and ("clocks: `lidar`" in done.stdout + done.stderr) == (place == "nowhere"), done.stdout + done.stderr


@pytest.mark.parametrize(("early_ms", "log_of_stamp"), [(0, False), (2500, True), (0, True)])
def test_good_bags_and_those_recorded_at_their_stamps_raise_no_alarm(tmp_path, early_ms, log_of_stamp):
    bag(tmp_path, early_ms, log_of_stamp)
    assert "clocks:" not in convert(tmp_path, code=0)
