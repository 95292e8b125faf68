"""`robocache convert` to datasets of LeRobot and back, opened by pandas, pyarrow and `datasets`."""

import csv
import io
import json
import pathlib
import shutil

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import robocache as rc
from lerobot_data import CONFIG, MS, START, convert, record_robot, write_stream

OWN = ["timestamp", "frame_index", "episode_index", "index", "task_index"]


@pytest.fixture
def robot(tmp_path):
    config = tmp_path / "robot.yml"
    config.write_text(CONFIG)
    return config, record_robot(tmp_path / "recording")


def write(tmp_path, config: str | None = None, to: str = "lerobot", code: int = 0, name: str = "dataset"):
    """Converts the recording; returns the folder of the dataset, and the output."""
    file = tmp_path / "robot.yml"
    if config is not None:
        file.write_text(config)
    shutil.rmtree(tmp_path / name, ignore_errors=True)
    done = convert(tmp_path / "recording", tmp_path / name, "--to", to, "--config", file, code=code)
    return tmp_path / name, done.stdout + done.stderr


def hugging(info: dict) -> datasets.Features:
    """The features of info.json, as LeRobot hands them to `datasets`."""
    features = {}
    for name, about in info["features"].items():
        value = datasets.Value(about["dtype"]) if about["dtype"] != "image" else None
        match about["shape"]:
            case _ if value is None:
                features[name] = datasets.Image()
            case [1]:
                features[name] = value
            case [n]:
                features[name] = datasets.Sequence(value, length=n)
            case [_, _]:
                features[name] = datasets.Array2D(tuple(about["shape"]), about["dtype"])
    return datasets.Features(features)


def load(dataset: pathlib.Path, tmp_path) -> tuple[dict, dict]:
    """Loads info.json, and the columns of all frames as arrays, by `datasets` with the features of info.json."""
    info = json.loads((dataset / "meta/info.json").read_text())
    files = sorted(str(path) for path in dataset.glob("data/*/*.parquet"))
    loaded = datasets.Dataset.from_parquet(files, features=hugging(info), cache_dir=str(tmp_path / f"cache-{dataset.name}"))
    columns = {name: loaded.with_format("numpy")[:][name] for name in loaded.column_names}
    return info, {name: np.stack([np.asarray(value) for value in column]) for name, column in columns.items()}


def test_frames_are_the_observations_of_the_node(robot, tmp_path):
    config, streams = robot
    dataset, said = write(tmp_path)
    info, frames = load(dataset, tmp_path)
    windows = rc.Recording(tmp_path / "recording").windows(config)
    targets = windows.timestamps_ns[:, -1]
    whole = windows.valid[:, -1].all(axis=1)
    for name, step in (("camera", 100), ("command", 50)):
        stamps = streams[name][0]
        at = np.searchsorted(stamps, targets, "left" if name == "command" else "right") - (name == "camera")
        whole &= (at >= 0) & (at < len(stamps))
        whole &= np.abs(stamps[np.clip(at, 0, len(stamps) - 1)] - targets) <= step * MS
    whole &= np.searchsorted(streams["force"][0], targets, "right") >= 20
    kept = targets[whole]
    assert len(kept) > 190 and info["total_frames"] == len(kept) and f"{len(kept)} frames in 2 episodes at 50 fps, 2 tasks" in said
    assert frames["robocache.target_ns"].tolist() == kept.tolist()
    assert frames["observation.state"].tobytes() == windows.fused[whole, -1].tobytes()

    commands = np.searchsorted(streams["command"][0], kept)
    assert frames["action"].tobytes() == streams["command"][1][commands].tobytes()
    assert (frames["robocache.capture_ns"][:, 3] == streams["command"][0][commands]).all()
    force = np.searchsorted(streams["force"][0], kept, "right")[:, None] + np.arange(-20, 0)
    assert frames["robocache.window.force"].tobytes() == streams["force"][1][force].tobytes()
    assert frames["robocache.window_ns.force"].tobytes() == streams["force"][0][force].tobytes()
    images = np.searchsorted(streams["camera"][0], kept, "right") - 1
    assert (frames["observation.images.top"] == streams["camera"][1][images]).all()

    assert info["features"]["robocache.age_ns"]["names"] == ["arm", "gripper", "observation.images.top", "action", "robocache.window.force"]
    assert (frames["robocache.age_ns"][:, :2] == windows.age_ns[whole, -1]).all()
    assert (frames["robocache.capture_ns"] + frames["robocache.age_ns"] == kept[:, None]).all()
    assert frames["robocache.valid"].all() and not frames["robocache.epoch"].any()

    half = int((kept < START + 2000 * MS).sum())
    counted = np.concatenate([np.arange(half), np.arange(len(kept) - half)])
    assert (frames["frame_index"] == counted).all() and (frames["index"] == np.arange(len(kept))).all()
    assert (frames["timestamp"] == (counted / 50).astype(np.float32)).all()
    assert (frames["episode_index"] == frames["task_index"]).all() and frames["episode_index"].sum() == len(kept) - half

    tasks = pd.read_parquet(dataset / "meta/tasks.parquet")
    assert tasks.iloc[1].name == "grasp it" and tasks["task_index"].tolist() == [0, 1]
    episodes = pd.read_parquet(dataset / "meta/episodes/chunk-000/file-000.parquet")
    assert episodes["dataset_from_index"].tolist() == [0, half] and episodes["dataset_to_index"].tolist() == [half, len(kept)]
    assert [list(tasks) for tasks in episodes["tasks"]] == [["reach"], ["grasp it"]]
    assert info["robot_type"] == "made_up" and info["splits"] == {"train": "0:2"} and info["video_path"] is None


def test_statistics_are_those_of_numpy(robot, tmp_path):
    dataset, _ = write(tmp_path)
    info, frames = load(dataset, tmp_path)
    stats = json.loads((dataset / "meta/stats.json").read_text())
    assert stats.keys() == info["features"].keys()
    episodes = pq.read_table(dataset / "meta/episodes/chunk-000/file-000.parquet")
    first = frames["episode_index"] == 0
    for name, of in stats.items():
        for values, get in (
            (frames[name], lambda stat: of[stat]),
            (frames[name][first], lambda stat: np.array(episodes[f"stats/{name}/{stat}"][0].as_py())),
        ):
            values, axis = values.astype(np.float64), 0
            if info["features"][name]["dtype"] == "image":
                values, axis = values.transpose(0, 3, 1, 2) / 255, (0, 2, 3)
            shape = (3, 1, 1) if axis else info["features"][name]["shape"]
            expected = {
                "min": values.min(axis), "max": values.max(axis), "mean": values.mean(axis), "std": values.std(axis),
                **{f"q{q:02}": np.quantile(values, q / 100, axis=axis) for q in (1, 10, 50, 90, 99)},
            }  # fmt: skip
            for stat, value in expected.items():
                scale = max(np.abs(values).max(), 1e-9)
                np.testing.assert_allclose(np.array(get(stat)), value.reshape(shape), rtol=1e-9, atol=1e-12 * scale, err_msg=f"{name} {stat}")
            assert get("count") == [len(values)]


def test_version_2_1_has_a_file_for_each_episode(robot, tmp_path):
    new, _ = write(tmp_path)
    old, _ = write(tmp_path, to="lerobot-v2.1", name="old")
    info, frames = load(new, tmp_path)
    info_old, frames_old = load(old, tmp_path)
    assert all(frames[name].tobytes() == frames_old[name].tobytes() for name in info["features"])
    assert info_old["features"] == info["features"] and info_old["codebase_version"] == "v2.1"
    assert (info_old["total_chunks"], info_old["total_videos"]) == (1, 0)
    names = [path.name for path in sorted(old.glob("data/chunk-000/*"))]
    assert names == ["episode_000000.parquet", "episode_000001.parquet"]
    lines = lambda name: [json.loads(line) for line in (old / "meta" / name).read_text().splitlines()]  # noqa: E731
    assert lines("tasks.jsonl") == [{"task_index": 0, "task": "reach"}, {"task_index": 1, "task": "grasp it"}]
    lengths = np.bincount(frames["episode_index"]).tolist()
    assert [episode["length"] for episode in lines("episodes.jsonl")] == lengths
    assert lines("episodes.jsonl")[1]["tasks"] == ["grasp it"]
    stats = lines("episodes_stats.jsonl")[1]["stats"]
    assert stats["action"]["max"] == frames["action"][frames["episode_index"] == 1].max(axis=0).astype(float).tolist()


def test_a_dataset_and_its_recording_make_each_other(robot, tmp_path):
    """A dataset of either format version converts to a recording, whose configuration makes the same dataset again. The stream
    `force` comes back as it was recorded."""
    _, streams = robot
    dataset, _ = write(tmp_path)
    old, _ = write(tmp_path, to="lerobot-v2.1", name="old")
    _, frames = load(dataset, tmp_path)
    for source in (dataset, old):
        back, again = tmp_path / f"back-{source.name}", tmp_path / f"again-{source.name}"
        convert(source, back)
        recording = rc.Recording(back)
        force = recording.messages("force")
        stamps, values = streams["force"]
        taken = (stamps >= force.timestamps_ns[0]) & (stamps <= force.timestamps_ns[-1])
        assert taken.sum() > 3900 and force.timestamps_ns.tolist() == stamps[taken].tolist()
        assert np.stack([force[i].columns[""] for i in range(len(force))]).tobytes() == values[taken].tobytes()
        gripper = recording.messages("gripper")
        assert set(gripper.timestamps_ns.tolist()) <= set(streams["gripper"][0].tolist())
        convert(back, again, "--to", "lerobot", "--config", back / "robocache.yml")
        _, came = load(again, tmp_path)
        for name in [*OWN, "observation.state", "action", "observation.images.top", "robocache.window.force", "robocache.target_ns"]:
            assert came[name].tobytes() == frames[name].tobytes(), name
        assert (pd.read_parquet(again / "meta/tasks.parquet").index == ["reach", "grasp it"]).all()


def test_a_real_dataset_of_version_2_1_comes_back(data, tmp_path):
    """The features of a real episode, Unitree G1, number 2, come back byte for byte. Its video is refused until the configuration
    leaves it out."""
    source, dataset = data / "unitree_g1_episode", tmp_path / "g1"
    (dataset / "data/chunk-000").mkdir(parents=True)
    (dataset / "meta").mkdir()
    shutil.copy(source / "episode_000002.parquet", dataset / "data/chunk-000")
    shutil.copy(source / "tasks.jsonl", dataset / "meta")
    info = json.loads((source / "info.json").read_text())
    (dataset / "meta/info.json").write_text(json.dumps({**info, "total_frames": 343, "total_episodes": 1}))
    done = convert(dataset, tmp_path / "back", code=2)
    assert "`observation.images.cam_high` is video" in done.stderr and "--without observation.images.cam_high" in done.stderr
    convert(dataset, tmp_path / "back", "--without", "observation.images.cam_high")
    convert(tmp_path / "back", tmp_path / "again", "--to", "lerobot-v2.1", "--config", tmp_path / "back/robocache.yml")
    told, came = load(tmp_path / "again", tmp_path)
    original = pq.read_table(source / "episode_000002.parquet")
    for name in ["observation.state", "action"]:
        values = original[name].combine_chunks().flatten().to_numpy()
        assert came[name].tobytes() == values.tobytes(), name
        assert told["features"][name]["names"] == info["features"][name]["names"][0]
    for name in ["timestamp", "frame_index", "task_index"]:
        assert came[name].tobytes() == original[name].to_numpy().tobytes(), name
    assert json.loads((tmp_path / "again/meta/tasks.jsonl").read_text()) == json.loads((source / "tasks.jsonl").read_text())


def test_a_real_arm_comes_back(data, tmp_path):
    """Each sample of a screwdriving arm is a frame, at its irregular times; the samples of a camera tracker are in windows."""
    folder, recorded = data / "arm_wrench_vision_screwdriving", {}
    for name, file in (("arm", "sensor_data.csv"), ("tracker", "observation_data.csv")):
        with (folder / file).open() as text:
            lines = list(csv.reader(text))[1:]
        stamps = np.array([int(float(line[0])) * MS for line in lines])
        recorded[name] = stamps, np.array([line[1:] for line in lines], np.float64).astype(np.float32)
        write_stream(tmp_path / "recording", name, *recorded[name])
    config = """
fuse:
  rate_hz: 50
  trigger: { stream: arm }
  modalities: [{ input: arm, dim: 30, interpolation: previous }]
lerobot:
  fps: 50
  task: drive a screw
  features:
    - { name: observation.state, modalities: [arm] }
    - { name: robocache.window.tracker, window: tracker, samples: 8 }
"""
    dataset, said = write(tmp_path, config)
    assert "726 frames in 1 episodes" in said and "frames are where samples are" in said
    convert(dataset, tmp_path / "back")
    recording = rc.Recording(tmp_path / "back")
    for name, (stamps, values) in recorded.items():
        came = recording.messages(name)
        taken = np.isin(stamps, came.timestamps_ns)
        # The tracker goes on after the arm's last sample, and begins 659 ms before its first.
        assert taken.all() if name == "arm" else (stamps[taken][-1] <= recorded["arm"][0][-1] and taken.sum() > 700)
        assert came.timestamps_ns.tolist() == stamps[taken].tolist()
        assert np.stack([came[i].columns[""] for i in range(len(came))]).tobytes() == values[taken].tobytes()


def test_samples_that_are_targets_say_how_many_frames_a_second_has(tmp_path):
    """The dataset's `fps` follows from a median: the camera loses frames, and its rate is not quite a whole number."""
    config = """
fuse:
  rate_hz: 50
  trigger: { stream: a }
  modalities: [{ input: a, dim: 1, interpolation: previous }]
lerobot: { task: look }
"""

    def stream(rate_hz, count):
        stamps = START + (np.arange(count) * 1e9 / rate_hz).astype(np.int64)
        write_stream(tmp_path / "recording", "a", stamps[np.arange(count) % 7 != 3], np.zeros((count - count // 7, 1), np.float32))

    for rate_hz, count, fps in ((29.97, 280, 30), (29.97, 3, 30), (14.8, 21, 15)):
        stream(rate_hz, count)
        dataset, said = write(tmp_path, config)
        info, frames = load(dataset, tmp_path)
        assert info["fps"] == fps and info["total_frames"] == count - count // 7
        assert f"`fps` is {fps}, as the samples that are targets come {rate_hz:.2f} times a second" in said
        assert (frames["timestamp"] == (np.arange(info["total_frames"]) / fps).astype(np.float32)).all()
    for rate_hz, count, why in ((12.5, 70, "come 12.50 times a second"), (0.4, 7, "come 0.40 times"), (30, 1, "a single observation has no rate")):
        stream(rate_hz, count)
        _, said = write(tmp_path, config, code=2)
        assert f"fps: it is missing, and {'the samples that are targets ' if 'come' in why else ''}{why}" in said, said
    dataset, said = write(tmp_path, config.replace("task: look", "task: look, fps: 12"))
    assert "as the samples" not in said and json.loads((dataset / "meta/info.json").read_text())["fps"] == 12


def test_samples_that_come_behind_their_frames_are_told(tmp_path):
    """The recording has the command of 25 ms after the command of 45 ms. By that time the frames of 30 and 40 ms, which should have
    the earlier command, are written."""
    stamps = START + np.arange(0, 100, 10) * MS
    write_stream(tmp_path / "recording", "a", stamps, np.zeros((10, 1), np.float32))
    times = START + np.array([5, 15, 45, 25, 55, 105]) * MS
    write_stream(tmp_path / "recording", "command", times, np.arange(6, dtype=np.float32)[:, None])
    config = """
fuse:
  rate_hz: 100
  modalities: [{ input: a, dim: 1, interpolation: previous }]
lerobot:
  task: wait
  features: [{ name: observation.state, modalities: [a] }, { name: action, stream: command }]
"""
    dataset, said = write(tmp_path, config)
    _, frames = load(dataset, tmp_path)
    assert frames["action"].ravel().tolist()[:3] == [0, 1, 1]
    assert "`command`: 1 samples came after later frames were written, which lack them" in said


def test_what_is_refused_and_what_nobody_takes_is_told(tmp_path):
    """The gripper has three values where the configuration says two, and nothing takes the lidar."""
    stamps = START + np.arange(0, 1000, 10) * MS
    write_stream(tmp_path / "recording", "a", stamps, np.zeros((100, 1), np.float32))
    write_stream(tmp_path / "recording", "gripper", stamps, np.zeros((100, 3), np.float32))
    write_stream(tmp_path / "recording", "lidar", stamps, np.zeros((100, 4), np.float32))
    config = """
fuse:
  rate_hz: 100
  modalities: [{ input: a, dim: 1, interpolation: previous }, { input: gripper, dim: 2, interpolation: previous, wait: false }]
lerobot:
  task: wait
  features: [{ name: observation.state, modalities: [a] }]
"""
    _, said = write(tmp_path, config, code=1)
    assert "`gripper`: 100 messages or samples are refused: they do not have the length or the shape" in said
    assert "`lidar`: 100 messages are not part of the dataset: nothing in the configuration takes them" in said


def test_what_is_not_valid_is_refused_held_or_filled(tmp_path):
    """The stream `b` is silent from 1 s to 2 s of 3 s. The frames of that second are left out, repeat the last value of `b`, or
    have 0 for it."""
    a = START + np.arange(0, 3000, 10) * MS
    b = a[(a < START + 1000 * MS) | (a >= START + 2000 * MS)]
    write_stream(tmp_path / "recording", "a", a, np.arange(len(a), dtype=np.float32)[:, None])
    write_stream(tmp_path / "recording", "b", b, (1 + np.arange(len(b), dtype=np.float32))[:, None])
    config = """
fuse:
  rate_hz: 100
  modalities:
    - { input: a, dim: 1, interpolation: previous, max_age_ms: 5 }
    - { input: b, dim: 1, interpolation: previous, max_age_ms: 5 }
lerobot: { on_invalid: %s, task: wait, %s }
"""
    dataset, said = write(tmp_path, config % ("refuse", ""))
    info, frames = load(dataset, tmp_path)
    assert (info["total_frames"], info["total_episodes"]) == (200, 2)
    assert "100 observations left out: not valid were `b` in 100" in said
    assert list(info["features"])[:2] == ["observation.a", "observation.b"]
    dataset, said = write(tmp_path, config % ("refuse", "episode_gap_ms: 2000"))
    info, frames = load(dataset, tmp_path)
    assert info["total_episodes"] == 1 and "1 steps within episodes are longer than 1 / fps" in said
    for rule, value in (("hold", 100), ("fill", 0)):
        dataset, said = write(tmp_path, config % (rule, ""))
        info, frames = load(dataset, tmp_path)
        assert (info["total_frames"], info["total_episodes"]) == (300, 1), said
        assert (frames["observation.b"][100:200] == value).all() and (frames["observation.a"] == np.arange(300)).all()
        assert not frames["robocache.valid"][100:200, 1].any() and "100 frames with a value that is" in said


def test_bool_and_images_of_other_encodings(tmp_path):
    stamps = START + np.arange(1, 11) * 100 * MS
    image = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    write_stream(tmp_path / "recording", "a", stamps, np.zeros((10, 1), np.float32))
    write_stream(tmp_path / "recording", "done", stamps, (np.arange(10) == 9).astype(np.uint8)[:, None])
    write_stream(tmp_path / "recording", "colour", stamps, [image] * 10, [{"encoding": "bgr8"}] * 10)
    write_stream(tmp_path / "recording", "gray", stamps, [image[:, :, 0]] * 10)
    config = """
fuse: { rate_hz: 10, modalities: [{ input: a, dim: 1, interpolation: previous }] }
lerobot:
  task: look
  truth: false
  features:
    - { name: next.done, stream: done, dtype: bool }
    - { name: observation.images.colour, images: colour }
    - { name: observation.images.gray, images: gray }
"""
    dataset, _ = write(tmp_path, config)
    table = pq.read_table(dataset / "data/chunk-000/file-000.parquet")
    assert table["next.done"].to_pylist() == [False] * 9 + [True]
    pixels = lambda name: np.array(Image.open(io.BytesIO(table[name][3].as_py()["bytes"])))  # noqa: E731
    assert (pixels("observation.images.colour") == image[:, :, ::-1]).all()
    assert (pixels("observation.images.gray") == image[:, :, 0]).all()
    assert table.column_names == ["next.done", "observation.images.colour", "observation.images.gray", *OWN]
    assert not (dataset / "meta/robocache.json").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("rate_hz: 50", "rate_hz: 33.3"), "33.3 observations a second, and LeRobot has whole numbers"),
        (("modalities: [arm, gripper]", "modalities: [arm, griper]"), "no modality `griper`, did you mean `gripper`? (allowed: arm, gripper)"),
        (("images: camera", "images: camera, stream: a"), "it comes from nowhere, or from several places"),
        (("take: next", "samples: 3"), "`samples` does not belong to what it comes from"),
        (("robot_type: made_up", "robot_typ: made_up"), "unknown key `robot_typ`"),
        (("name: action", "name: index"), "a dataset fills it itself"),
        (("name: action", "name: observation.state"), "there are two of this name"),
        (("name: action", "name: a/b"), "it is not a name of a feature"),
        (("names: [a, b, c]", "names: [a, b]"), "stream `command`: names: 2, and a sample has 3 values (allowed: as many)"),
        (("stream: command", "stream: comand"), "no sample came of `comand`"),
        (("images: camera", "images: force"), "it is not an image"),
        (("images: camera, max_age_ms: 100", "images: camera, max_age_ms: -1"), "max_age_ms: -1 (allowed: 0 to 1e12)"),
        (("  max_wait_ms: null", "  trigger: { request: ask }"), "no observation without somebody who asks"),
        (("fuse:", "align:"), "(allowed: a section of clock, kinematics, voxelize, fuse"),
    ],
)
def test_what_can_not_be_is_refused(robot, tmp_path, change, said):
    _, text = write(tmp_path, CONFIG.replace(*change), code=2)
    assert said in text and not (tmp_path / "dataset/meta/info.json").exists(), text


def damage(dataset: pathlib.Path, what: str) -> None:
    file = dataset / "data/chunk-000/file-000.parquet"
    info = dataset / "meta/info.json"
    text = json.loads(info.read_text())
    table = pq.read_table(file)
    match what:
        case "cut":
            file.write_bytes(file.read_bytes()[:-100])
        case "zeros":
            content = file.read_bytes()
            file.write_bytes(content[:2000] + bytes(3000) + content[5000:])
        case "no column":
            pq.write_table(table.drop_columns(["action"]), file)
        case "other type":
            at = table.column_names.index("action")
            pq.write_table(table.set_column(at, "action", table["action"].cast(pa.list_(pa.float64(), 3))), file)
        case "null":
            values = table["action"].to_pylist()
            values[5] = None
            at = table.column_names.index("action")
            pq.write_table(table.set_column(at, "action", pa.array(values, pa.list_(pa.float32()))), file)
        case "disorder":
            pq.write_table(pa.concat_tables([table.slice(10), table.slice(0, 10)]), file)
        case "too few":
            pq.write_table(table.slice(0, 50), file)
        case "no frames":
            file.unlink()
        case "version":
            info.write_text(json.dumps({**text, "codebase_version": "v1.6"}))
        case "no json":
            info.write_text("{")
        case "shape":
            text["features"]["action"]["shape"] = [4]
            info.write_text(json.dumps(text))
        case "huge shape":
            text["features"]["action"]["shape"] = [2**40, 2**40]
            info.write_text(json.dumps(text))
        case "fps":
            info.write_text(json.dumps({**text, "fps": 0}))
        case "no tasks":
            (dataset / "meta/tasks.parquet").unlink()
        case "task":
            at = table.column_names.index("task_index")
            pq.write_table(table.set_column(at, "task_index", pa.array([7] * len(table))), file)


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("cut", 2, "file-000.parquet: "),
        ("zeros", 2, "file-000.parquet: "),
        ("no column", 2, "no column `action`, which meta/info.json says there is"),
        ("other type", 2, "column `action` is of Float64 (allowed: Float32, as meta/info.json says)"),
        ("null", 2, "column `action` has nulls"),
        ("disorder", 2, "frame 10 of episode 0 at the beginning (allowed: the next frame, or frame 0 of a later episode)"),
        ("too few", 1, "50 frames could be read, and meta/info.json has"),
        ("no frames", 2, "no data files"),
        ("version", 2, "`codebase_version` is `v1.6` (allowed: v3.0, v2.1"),
        ("no json", 2, "meta/info.json: EOF"),
        ("shape", 2, "has a list of 3 (allowed: 4, as meta/info.json says)"),
        ("huge shape", 2, "feature `action`: `shape` is"),
        ("fps", 2, "`fps` is 0 (allowed: a whole number, 1 or more)"),
        ("no tasks", 2, "meta/tasks.parquet: No such file"),
        ("task", 2, "`task_index` 7 of frame 0 of episode 0 (allowed: less than 2"),
    ],
)
def test_broken_datasets_are_told(robot, tmp_path, what, code, said):
    dataset, _ = write(tmp_path)
    damage(dataset, what)
    done = convert(dataset, tmp_path / "back", code=code)
    assert said in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("what", ["a hole", "true times", "not ascending", "rounded", "since 1970", "ms", "ns"])
def test_the_times_of_a_dataset_are_those_of_its_timestamps(robot, tmp_path, what):
    """A dataset of other software may have a `timestamp` that is not `frame_index / fps`."""
    dataset, _ = write(tmp_path, CONFIG.replace("lerobot:\n", "lerobot:\n  truth: false\n"))
    file = dataset / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    episode, index = table["episode_index"].to_numpy(), table["frame_index"].to_numpy()
    times = index / 50
    match what:
        case "a hole":
            times = times + 0.5 * (index >= 20)
        case "true times":
            times = np.random.default_rng(3).uniform(-0.004, 0.004, len(index)) * (index > 0) + times
        case "not ascending":
            times = np.where(index == 30, 0.0, times)
        case "rounded":
            times = np.round(times, 4)
        case "since 1970":
            times = 1.7e9 + times * 1.25
        case "ms":
            times = times * 1e3
        case "ns":
            times = (times * 1e9).astype(np.int64)
    at = table.column_names.index("timestamp")
    pq.write_table(table.set_column(at, "timestamp", pa.array(times if what in ("since 1970", "ns") else times.astype(np.float32))), file)
    done = convert(dataset, tmp_path / "back")
    found = rc.Recording(tmp_path / "back").messages("frame").timestamps_ns
    first = found[np.flatnonzero(index == 0)][episode]
    is_taken = what in ("a hole", "true times", "since 1970")
    wanted = np.rint((times - (1.7e9 if what == "since 1970" else 0)) * 1e9) if is_taken else index * 20 * MS
    assert np.abs(found - first - wanted).max() < (500 if is_taken else 1)
    assert all(b - a > 10_000 * MS for a, b in zip(found[:-1], found[1:], strict=True) if b - a > 600 * MS)
    said = {
        "a hole": "the times are those of `timestamp` since each episode began, with 10 s between episodes: they differ from frame_index / fps by up to 0.500",
        "true times": "they differ from frame_index / fps by up to 0.00",
        "not ascending": "the dataset has no times, as `timestamp` is 0 in frame 30 of episode 0, behind 0.58: those of the recording are",
        "since 1970": "they differ from frame_index / fps by up to 0.4",
        "ms": "the dataset has no times, as `timestamp` advances by 20 or more from frame to frame, which is ms at 50 fps (allowed: s)",
        "ns": "the dataset has no times, as `timestamp` is Int64, which is not read (allowed: Float32, Float64, in s)",
        "rounded": "the dataset has no times: those of the recording are frame_index / fps, with 10 s between episodes",
    }
    assert said[what] in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_clock_that_is_set_ends_an_episode(tmp_path):
    """Two streams jump back by 10 s after a second: the rest is another episode, which takes no command from before the jump."""
    stamps = START + np.concatenate([np.arange(0, 1000, 10), np.arange(-10_000, -9_000, 10)]) * MS
    for name in ("a", "command"):
        write_stream(tmp_path / "recording", name, stamps, np.arange(200, dtype=np.float32)[:, None])
    config = """
fuse: { rate_hz: 100, modalities: [{ input: a, dim: 1, interpolation: previous, max_age_ms: 5 }] }
lerobot:
  task: go on
  features: [{ name: observation.state, modalities: [a] }, { name: action, stream: command, take: next, max_age_ms: 5 }]
"""
    dataset, _ = write(tmp_path, config)
    _, frames = load(dataset, tmp_path)
    assert frames["episode_index"].tolist() == [0] * 100 + [1] * 100 and frames["robocache.epoch"].tolist() == [0] * 100 + [1] * 100
    assert frames["observation.state"].tolist() == frames["action"].tolist() == list(range(200))


def test_episodes_that_begin_too_late_are_told(robot, tmp_path):
    write_stream(tmp_path / "late", "begin", [START], [[0]], dtype=np.int64)
    stamps = [START, START + 1000 * MS]
    schema = pa.schema({"timestamp_ns": pa.int64(), "timestamps_ns": pa.list_(pa.int64()), "data": pa.list_(pa.int64())})
    with pa.ipc.new_file(str(tmp_path / "recording/begin.arrow"), schema) as file:
        file.write_batch(pa.record_batch([pa.array(stamps[1:]), pa.array([stamps]), pa.array([[0, 1]])], schema))
    _, said = write(tmp_path)
    assert "1 beginnings of episodes came after later frames were written" in said


def test_frames_with_a_nan_keep_their_place(tmp_path):
    """A dataset of other software has frames with a NaN: all of its frames come back, with the bits that they had."""
    source, count = tmp_path / "source", 40
    (source / "data/chunk-000").mkdir(parents=True)
    (source / "meta").mkdir()
    state, action = (np.arange(count * dim, dtype=np.float32).reshape(count, dim) for dim in (3, 2))
    state[5, 1] = state[20] = np.nan
    action[[7, 8, 39], 0] = np.nan, np.inf, -np.inf
    index = np.arange(count)
    columns = {
        "observation.state": pa.array(list(state)), "action": pa.array(list(action)), "observation.other": pa.array(list(np.ones_like(action))),
        "timestamp": pa.array((index % 25 / 10).astype(np.float32)), "frame_index": pa.array(index % 25), "episode_index": pa.array(index // 25),
        "index": pa.array(index), "task_index": pa.array(index * 0),
    }  # fmt: skip
    for episode in range(2):
        pq.write_table(pa.table(columns).slice(25 * episode, 25), source / f"data/chunk-000/episode_{episode:06}.parquet")
    features = {name: {"dtype": "float32", "shape": [dim], "names": None} for name, dim in [("observation.state", 3), ("action", 2), ("observation.other", 2)]}
    features |= {name: {"dtype": "float32" if name == "timestamp" else "int64", "shape": [1], "names": None} for name in OWN}
    path = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    info = {"codebase_version": "v2.1", "fps": 10, "features": features, "total_episodes": 2, "total_frames": count, "data_path": path, "chunks_size": 1000}
    (source / "meta/info.json").write_text(json.dumps(info))
    (source / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "look"}) + "\n")
    said = convert(source, tmp_path / "back").stdout
    assert "`observation.state`: 2 frames have values that are not finite; they are kept" in said
    assert "`action`: 3 frames have values that are not finite; they are kept" in said
    said = convert(tmp_path / "back", tmp_path / "again", "--to", "lerobot", "--config", tmp_path / "back/robocache.yml").stdout
    assert "`action`: 3 samples are not finite, and stand as they came" in said
    _, came = load(tmp_path / "again", tmp_path)
    assert came["observation.state"].tobytes() == state.tobytes() and came["action"].tobytes() == action.tobytes()
    assert came["frame_index"].tolist() == (index % 25).tolist() and came["episode_index"].tolist() == (index // 25).tolist()
