"""LeRobot itself iterates datasets that `robocache convert` writes: `make test-lerobot`."""

import os

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="PyTorch is not in this environment: make test-lerobot")
pytest.importorskip("lerobot", reason="LeRobot is not in this environment: make test-lerobot")

from lerobot.datasets.compute_stats import compute_episode_stats  # noqa: E402
from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: E402
from lerobot.datasets.utils import dataset_to_policy_features  # noqa: E402

from lerobot_data import CONFIG, convert, record_robot  # noqa: E402


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lerobot")
    (folder / "robot.yml").write_text(CONFIG)
    streams = record_robot(folder / "recording")
    convert(folder / "recording", folder / "dataset", "--to", "lerobot", "--config", folder / "robot.yml")
    return folder / "dataset", streams


def test_a_loader_gives_every_frame(dataset):
    root, streams = dataset
    steps = {"action": [0.0, 0.02, 0.04], "observation.state": [-0.02, 0.0]}
    loaded = LeRobotDataset("robocache/test", root=root, delta_timestamps=steps)
    assert (loaded.num_episodes, loaded.fps, len(loaded)) == (2, 50, loaded.meta.total_frames)
    commands, images = streams["command"], streams["camera"]
    seen = []
    for batch in torch.utils.data.DataLoader(loaded, batch_size=16, num_workers=2):
        count = len(batch["index"])
        assert batch["action"].shape == (count, 3, 3) and batch["observation.state"].shape == (count, 2, 8)
        assert batch["robocache.window.force"].shape == (count, 20, 6) and batch["robocache.window.force"].dtype == torch.float32
        assert batch["robocache.valid"].dtype == torch.bool and batch["robocache.valid"].all()
        target, captured = batch["robocache.target_ns"].numpy(), batch["robocache.capture_ns"].numpy()
        at = np.searchsorted(commands[0], target)
        assert (batch["action"][:, 0].numpy() == commands[1][at]).all() and (captured[:, 3] == commands[0][at]).all()
        image = images[1][np.searchsorted(images[0], target, "right") - 1].transpose(0, 3, 1, 2)
        assert (np.rint(batch["observation.images.top"].numpy() * 255) == image).all()
        assert all(task == ("reach" if episode == 0 else "grasp it") for task, episode in zip(batch["task"], batch["episode_index"]))
        seen += batch["index"].tolist()
    assert seen == list(range(len(loaded)))


def test_policies_see_what_is_theirs(dataset):
    loaded = LeRobotDataset("robocache/test", root=dataset[0])
    features = dataset_to_policy_features(loaded.meta.features)
    assert set(features) == {"observation.state", "observation.images.top", "action"}


def test_statistics_are_near_those_of_lerobot(dataset):
    """Quantiles may differ from LeRobot's by more than other statistics, since LeRobot takes them from histograms of 5,000 bins."""
    loaded = LeRobotDataset("robocache/test", root=dataset[0])
    loaded.hf_dataset.set_format("numpy")
    episode = loaded.hf_dataset.select(range(loaded.meta.total_frames))
    names = ["observation.state", "action", "robocache.age_ns"]
    theirs = compute_episode_stats({name: np.stack(episode[name]) for name in names}, {n: loaded.meta.features[n] for n in names})
    for name in names:
        span = np.maximum(theirs[name]["max"] - theirs[name]["min"], 1)
        for stat, value in theirs[name].items():
            ours = loaded.meta.stats[name][stat]
            assert ours.shape == value.shape
            assert (np.abs(ours - value) <= (1e-6 if stat in ("min", "max", "mean", "std", "count") else 0.1) * span).all(), (name, stat)


def test_its_own_tools_take_the_dataset(dataset, tmp_path):
    """LeRobot deletes an episode: it reads the metadata of each episode, and writes the rest anew."""
    from lerobot.datasets.dataset_tools import delete_episodes

    config = tmp_path / "robot.yml"
    # LeRobot's tools use pandas, which does not take features of two axes, not even in LeRobot's own datasets.
    config.write_text("".join(line for line in CONFIG.splitlines(True) if "window.force" not in line))
    convert(dataset[0].parent / "recording", tmp_path / "dataset", "--to", "lerobot", "--config", config)
    loaded = LeRobotDataset("robocache/test", root=tmp_path / "dataset")
    left = delete_episodes(loaded, [0], output_dir=tmp_path / "left", repo_id="robocache/left")
    assert left.num_episodes == 1 and len(left) == loaded.meta.episodes[1]["length"]
    assert left[0]["task"] == "grasp it"


def test_a_dataset_of_its_own_comes_back(tmp_path):
    """A dataset of numbers, bools and images that LeRobot writes is converted to a recording, which makes the same dataset."""
    number = lambda dtype, *shape: {"dtype": dtype, "shape": shape, "names": None}  # noqa: E731
    features = {
        "observation.state": {**number("float32", 3), "names": ["a", "b", "c"]},
        "observation.images.top": {**number("image", 4, 6, 3), "names": ["height", "width", "channels"]},
        "action": number("float64", 2),
        "next.done": number("bool", 1),
        "robot.steps": number("int64", 2, 2),
    }
    root, random = tmp_path / "theirs", np.random.default_rng(0)
    made = LeRobotDataset.create("robocache/theirs", 30, features, root=root, robot_type="so101", use_videos=False)
    for episode in range(3):
        for i in range(7 + episode):
            made.add_frame(
                {
                    "observation.state": random.normal(size=3).astype(np.float32),
                    "observation.images.top": random.integers(0, 256, (4, 6, 3), dtype=np.uint8),
                    "action": random.normal(size=2),
                    "next.done": np.array([i == 6 + episode]),
                    "robot.steps": random.integers(-(2**60), 2**60, (2, 2)),
                    "task": ["reach", "", "grüßen"][episode],
                }
            )
        made.save_episode()
    made.finalize()
    convert(root, tmp_path / "recording")
    convert(tmp_path / "recording", tmp_path / "ours", "--to", "lerobot", "--config", tmp_path / "recording/robocache.yml")
    theirs, ours = (LeRobotDataset("robocache/x", root=path) for path in (root, tmp_path / "ours"))
    assert theirs.meta.info == ours.meta.info and len(theirs) == len(ours) == 24
    for before, after in zip(theirs, ours, strict=True):
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key], after[key]) if key != "task" else before[key] == after[key] for key in before)
