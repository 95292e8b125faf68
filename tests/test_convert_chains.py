"""Poses of joints and joints of poses in datasets of LeRobot, by `pose_of` and `joints_of`, against `rc.Chain`."""

import json
import pathlib
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

import bags
import robocache as rc
from lerobot_data import CONFIG, MS, START, convert, record_robot, write_stream

PLANAR = pathlib.Path(__file__).parent / "common/planar.urdf"
CHAINS = "chains: { arm: { urdf: planar.urdf, base: base, tip: tip } }\n"
ACTION = "- { name: action, stream: command, take: next, max_age_ms: 50, names: [a, b, c] }"
POSE = ["position.x", "position.y", "position.z", "orientation.x", "orientation.y", "orientation.z", "orientation.w"]


@pytest.fixture(scope="module")
def chain():
    return rc.Chain.from_urdf(PLANAR, "base", "tip")


@pytest.fixture
def streams(tmp_path):
    shutil.copy(PLANAR, tmp_path / "planar.urdf")
    return record_robot(tmp_path / "recording")


def write(tmp_path, feature: str, code: int = 0, chains: str = CHAINS, config: str = CONFIG):
    """Converts the recording with the YAML `feature` in place of the feature `action`; returns the features, the frames and the
    output."""
    file = tmp_path / "robot.yml"
    assert ACTION in config
    file.write_text(chains + config.replace(ACTION, feature))
    shutil.rmtree(tmp_path / "dataset", ignore_errors=True)
    done = convert(tmp_path / "recording", tmp_path / "dataset", "--to", "lerobot", "--config", file, code=code)
    if code:
        return None, None, done.stdout + done.stderr
    info = json.loads((tmp_path / "dataset/meta/info.json").read_text())
    return info["features"], read(tmp_path / "dataset"), done.stdout + done.stderr


def read(dataset: pathlib.Path) -> dict[str, np.ndarray]:
    table = pq.read_table(dataset / "data/chunk-000/file-000.parquet")
    images = [name for name in table.column_names if "images" in name]
    return {name: np.array(column.to_pylist()) for name, column in zip(table.column_names, table.columns, strict=True) if name not in images}


def test_an_action_of_joints_and_a_gripper_becomes_a_pose_and_a_gripper(streams, tmp_path, chain):
    """The pose of the tip replaces the two joints in the action, and the value of the gripper follows it."""
    stamps, commands = streams["command"]
    features, frames, said = write(tmp_path, "- { name: action, stream: command, take: next, pose_of: { chain: arm, channels: [0, 2] } }")
    assert features["action"]["shape"] == [8] and features["action"]["dtype"] == "float32"
    taken = np.searchsorted(stamps, frames["robocache.target_ns"])
    wanted = np.concatenate([chain.fk(commands[taken, :2].copy()), commands[taken, 2:]], axis=1)
    assert len(taken) > 190 and frames["action"].astype(np.float32).tobytes() == wanted.tobytes()
    assert "samples left out" not in said
    # A value in front of the joints stays, too.
    _, frames, _ = write(tmp_path, "- { name: action, stream: command, take: next, pose_of: { chain: arm, channels: [1, 3] } }")
    assert frames["action"].astype(np.float32).tobytes() == np.concatenate([commands[taken, :1], chain.fk(commands[taken, 1:].copy())], axis=1).tobytes()


def test_a_window_of_poses(streams, tmp_path, chain):
    stamps, commands = streams["command"]
    window = "- { name: observation.commanded, window: command, samples: 5, pose_of: { chain: arm, channels: [0, 2] } }"
    features, frames, _ = write(tmp_path, window)
    assert features["observation.commanded"]["shape"] == [5, 8]
    past = np.searchsorted(stamps, frames["robocache.target_ns"], "right")[:, None] + np.arange(-5, 0)
    assert (frames["observation.commanded"][..., :7] == chain.fk(commands[past, :2])).all()
    assert (frames["observation.commanded"][..., 7] == commands[past, 2]).all()


def test_joints_are_found_by_their_names(streams, tmp_path, chain):
    """Values with names may stand in any order."""
    stamps, commands = streams["command"]
    named = [{"fields": ["elbow", "shoulder"]}] * len(stamps)
    write_stream(tmp_path / "recording", "named", stamps, commands[:, 1::-1], named)
    features, frames, _ = write(tmp_path, "- { name: action, stream: named, take: next, pose_of: { chain: arm } }")
    taken = np.searchsorted(stamps, frames["robocache.target_ns"])
    assert features["action"]["names"] == POSE
    assert (frames["action"] == chain.fk(commands[taken, :2].copy())).all()
    named = [{"fields": ["elbow", "shoulder", "gripper"]}] * len(stamps)
    write_stream(tmp_path / "recording", "channels", stamps, commands, named)
    _, frames, _ = write(tmp_path, "- { name: action, stream: channels, take: next, pose_of: { chain: arm, channels: [0, 2] } }")
    assert (frames["action"][:, :7] == chain.fk(commands[taken, 1::-1].copy())).all()


def test_values_that_are_others_than_joints_are_told(streams, tmp_path):
    stamps, commands = streams["command"]
    write_stream(tmp_path / "recording", "degrees", stamps, np.degrees(commands[:, :2]))
    _, _, said = write(tmp_path, "- { name: action, stream: degrees, take: next, pose_of: { chain: arm } }")
    assert "`action`: `" in said and "more than a turn beyond its limits -3.000 and 3.000 (allowed: radians; are these degrees?)" in said


def test_joints_of_poses_follow_one_another(streams, tmp_path, chain):
    """A frame whose pose is out of reach has no action, and the output says so."""
    stamps = START + np.arange(400) * 10 * MS
    angles = np.stack([np.linspace(-1.5, 1.5, 400), np.linspace(0.4, 2.0, 400)], axis=1)
    poses = np.concatenate([chain.fk(angles), np.linspace(0, 0.04, 400)[:, None]], axis=1)
    poses[100:103, 0] = 5.0
    write_stream(tmp_path / "recording", "target", stamps, poses)
    feature = "- { name: action, stream: target, take: next, max_age_ms: 5, joints_of: { chain: arm, channels: [0, 7], inverse: { position_tolerance_m: 1e-6 } } }"
    features, frames, said = write(tmp_path, feature)
    assert features["action"] == {"dtype": "float64", "shape": [3], "names": None}
    taken = (frames["robocache.target_ns"] - START) // (10 * MS)
    assert len(taken) > 190 and not set(taken) & {100, 101, 102}
    assert np.abs(chain.fk(frames["action"][:, :2].copy())[:, :3] - poses[taken, :3]).max() < 1e-6
    # The arm keeps to one posture, whichever it is.
    assert len(set(np.sign(frames["action"][:, 1]))) == 1
    assert (frames["action"][:, 2] == poses[taken, 7]).all()
    assert "`action`: 3 samples left out that `joints_of` could not convert, such as row 0: no joints were found for its pose" in said


def test_a_dataset_of_poses_comes_back(streams, tmp_path):
    _, frames, _ = write(tmp_path, "- { name: action, stream: command, take: next, pose_of: { chain: arm, channels: [0, 2] } }")
    convert(tmp_path / "dataset", tmp_path / "back")
    # The stream of poses has another name than the stream of joints, so that no configuration takes poses for joints.
    assert (tmp_path / "back/command_pose.arrow").is_file() and not (tmp_path / "back/command.arrow").exists()
    convert(tmp_path / "back", tmp_path / "again", "--to", "lerobot", "--config", tmp_path / "back/robocache.yml")
    assert (read(tmp_path / "again")["action"] == frames["action"]).all()


@pytest.mark.parametrize(
    ("feature", "said"),
    [
        ("name: action, stream: command, pose_of: { chain: amr, channels: [0, 2] }", "lerobot: features: `action`: pose_of.chain: `amr` is not one of `chains:`, did you mean `arm`? (there: arm)"),
        ("name: action, stream: command, pose_of: { chain: arm, channels: [0, 3] }", "lerobot: features: `action`: pose_of.channels: [0, 3] (allowed: [first, end] of 2 values)"),
        ("name: action, stream: command, pose_of: { chain: arm, inverse: {} }", "`action`: pose_of.inverse: no product of the entry uses it"),
        ("name: action, stream: command, joints_of: { chain: arm, inverse: { seeds: 0 } }", "`action`: joints_of.inverse.seeds: 0 (allowed: 1 to 4096)"),
        ("name: action, stream: command, pose_of: { chain: arm }, joints_of: { chain: arm }", "`action`: `pose_of` and `joints_of` (allowed: one of them)"),
        ("name: action, stream: command, pose_of: { chan: arm }", "unknown key `chan`"),
        ("name: action, images: camera, pose_of: { chain: arm }", "`pose_of` does not belong to what it comes from"),
        ("name: action, stream: command, dtype: bool, pose_of: { chain: arm }", "`dtype` does not belong to what it comes from"),
        ("name: action, modalities: [arm], pose_of: { chain: arm }", "`pose_of` does not belong to observations, which have what the node gives the policy (allowed: a modality that `kinematics:` makes"),
        ("name: action, stream: command, pose_of: { chain: arm }", "3 values a sample (allowed: 2, shoulder, elbow; or `channels: [first, end]` of `pose_of` says which they are)"),
        ("name: action, stream: command, joints_of: { chain: arm }", "3 values a sample (allowed: 7, x y z qx qy qz qw; or"),
        ("name: action, stream: gripper, pose_of: { chain: arm, channels: [0, 2] }", "a sample has 1 values (needed: 2 or more, because of `channels`)"),
        ("name: action, stream: done, pose_of: { chain: arm }", "the values are uint8 (allowed: float32, float64)"),
        ("name: action, stream: command, take: next, pose_of: { chain: arm, channels: [0, 2] }, names: [a, b, c]", "names: 3, and a sample has 8 values (allowed: as many)"),
    ],
)  # fmt: skip
def test_what_can_not_be_is_refused(streams, tmp_path, feature, said):
    write_stream(tmp_path / "recording", "done", streams["command"][0], [[0, 1]] * len(streams["command"][0]), dtype=np.uint8)
    _, _, text = write(tmp_path, f"- {{ {feature} }}", code=2)
    assert said in text and not (tmp_path / "dataset/meta/info.json").exists(), text


def test_a_robot_that_is_not_there_is_named(streams, tmp_path):
    feature = "- { name: action, stream: command, pose_of: { chain: arm } }"
    chains = CHAINS.replace("planar.urdf", "none.urdf")
    assert "none.urdf: No such file" in write(tmp_path, feature, code=2, chains=chains)[2]
    chains = CHAINS.replace("tip: tip", "tip: tp")
    assert "no link `tp`, did you mean `tip`?" in write(tmp_path, feature, code=2, chains=chains)[2]


def test_commands_of_a_bag_become_poses(tmp_path, chain):
    """A JointState names its joints: they are found in any order and among others, as `kinematics:` finds them."""
    shutil.copy(PLANAR, tmp_path / "planar.urdf")
    angles = np.stack([np.linspace(-1, 1, 100), np.linspace(0.5, 2, 100)], axis=1)

    def messages():
        for i, (shoulder, elbow) in enumerate(angles):
            ns = START + i * 20 * MS
            for topic, names, values in (
                ("/joint_states", ["shoulder", "elbow"], [shoulder, elbow]),
                ("/command", ["gripper", "elbow", "shoulder"], [0.04, elbow, shoulder]),
                ("/grip", ["gripper"], [0.04]),
            ):
                state = bags.T["sensor_msgs/msg/JointState"](bags.header(ns), names, np.array(values), np.array([]), np.array([]))
                yield topic, "sensor_msgs/msg/JointState", ns, state

    bags.write(tmp_path / "bag", list(messages()))
    config = tmp_path / "robot.yml"
    config.write_text(
        CHAINS
        + """
kinematics:
  - { input: joint_states, chain: arm, make: pose }
fuse:
  rate_hz: 50
  modalities: [{ input: arm_pose, dim: 7, interpolation: previous, max_age_ms: 10 }]
lerobot:
  features:
    - { name: observation.state, modalities: [arm_pose] }
    - { name: action, stream: command, pose_of: { chain: arm } }
    - { name: action.gripper, stream: grip }
"""
    )
    convert(tmp_path / "bag", tmp_path / "dataset", "--to", "lerobot", "--config", config)
    frames = read(tmp_path / "dataset")
    poses = chain.fk(angles)
    taken = (frames["robocache.target_ns"] - START) // (20 * MS)
    assert len(taken) > 90
    assert np.abs(frames["observation.state"] - poses[taken]).max() < 1e-6 and (frames["action"] == poses[taken]).all()
    assert (frames["action.gripper"] == 0.04).all()
    features = json.loads((tmp_path / "dataset/meta/info.json").read_text())["features"]
    assert features["action"]["names"] == POSE and features["observation.state"]["names"] == POSE
