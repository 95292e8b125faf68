"""Kinematics live: a driver's joints become a tool's pose and twist, which go on to fuse. A configuration that can't work is
refused before the dataflow runs."""

import math
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import yaml

from harness import ROOT, binary
from layouts import STD, message

MS = 1_000_000
PLANAR = ROOT / "tests" / "common" / "planar.urdf"
CHAINS = {"arm": {"urdf": "planar.urdf", "base": "base", "tip": "tip"}}


def joints(time_ns: int, **positions: float):
    """A step that sends a JointState, whose shoulder and elbow move at 1 and 2 rad/s."""
    names = list(positions)
    velocities = [{"shoulder": 1.0, "elbow": 2.0}.get(name, 0.0) for name in names]
    payload = message(STD["JointState"], names=names, positions=list(positions.values()), velocities=velocities, efforts=[])
    return "send", "joints", payload, {"timestamp_ns": time_ns}


def planar(shoulder: float, elbow: float) -> list[float]:
    """The tip's pose of an arm with links of 1 m and 0.5 m."""
    angle = shoulder + elbow
    x, y = math.cos(shoulder) + 0.5 * math.cos(angle), math.sin(shoulder) + 0.5 * math.sin(angle)
    return [x, y, 0.0, 0.0, 0.0, math.sin(angle / 2), math.cos(angle / 2)]


def test_joint_states_become_poses_and_twists_and_a_modality(flow):
    shutil.copy(PLANAR, flow.folder / "planar.urdf")
    flow.sender(
        [
            joints(10 * MS, gripper=0.04, elbow=0.5, shoulder=0.0),
            joints(20 * MS, shoulder=0.2, elbow=math.nan, gripper=0.04),
            joints(20 * MS, shoulder=0.2, gripper=0.04),
            joints(30 * MS, shoulder=0.4, elbow=0.5),
        ]
    )
    slerp = [{"channels": [0, 3], "interpolation": "linear"}, {"channels": [3, 7], "interpolation": "slerp"}]
    plugins = [
        {"kinematics": [{"input": "joints", "chain": "arm", "make": ["pose", "twist"]}]},
        {"fuse": {"rate_hz": 100, "modalities": [{"input": "arm_pose", "dim": 7, "groups": slerp}]}},
    ]
    flow.robocache("node", {"chains": CHAINS, "plugins": plugins}, {"joints": "sender/joints"}, ["arm_pose", "arm_twist", "fused"])
    flow.collector({name: f"node/{name}" for name in ("arm_pose", "arm_twist", "fused")})
    done = flow.run()
    poses, twists, fused = (done.received("sink", name) for name in ("arm_pose", "arm_twist", "fused"))
    assert [(m.stamp, m.metadata["valid"]) for m in poses] == [(10 * MS, [1]), (20 * MS, [0]), (30 * MS, [1])]
    np.testing.assert_allclose(poses[0].values, planar(0.0, 0.5), atol=1e-12)
    assert np.isnan(poses[1].values).all()
    np.testing.assert_allclose(poses[2].values, planar(0.4, 0.5), atol=1e-12)
    assert poses[0].metadata["frame_id"] == "base" and poses[0].metadata["fields"][0] == "position.x"
    # The tip moves at 1 rad/s about the base, and at 2 rad/s about the elbow.
    x, y, *_ = planar(0.0, 0.5)
    np.testing.assert_allclose(twists[0].values, [-y - 2 * y, x + 2 * (x - 1), 0, 0, 0, 3], atol=1e-12)
    # At 20 ms there is no pose, so values are halfway: between the rotations by slerp, between the positions on a line.
    assert [m.stamp for m in fused] == [10 * MS, 20 * MS, 30 * MS]
    start, end = (np.array(planar(angle, 0.5)) for angle in (0.0, 0.4))
    halfway = [*((start[:3] + end[:3]) / 2), *planar(0.2, 0.5)[3:]]
    np.testing.assert_allclose(fused[1].values, halfway, atol=1e-6)
    log = done.logs["node"]
    assert "input `joints` is read as std/control/v1/JointState: positions, velocities" in log, log
    assert "row 0: `elbow` is NaN (needed: a finite number)" in log and "`elbow`" in log, log


@pytest.mark.parametrize(
    ("entry", "chains", "words"),
    [
        ({}, CHAINS, "kinematics: [0]: the key `input` is missing"),
        ({"input": "joints", "chain": "amr", "make": "pose"}, CHAINS, "kinematics: [0].chain: `amr` is not one of `chains:`, did you mean `arm`?"),
        (
            {"input": "joints", "chain": "arm", "make": "pose"},
            {"arm": {"urdf": "none.urdf", "base": "base", "tip": "tip"}},
            "none.urdf: No such file",
        ),
        (
            {"input": "joints", "chain": "arm", "make": "pose"},
            {"arm": {"urdf": "planar.urdf", "base": "base", "tip": "tp"}},
            "no link `tp`, did you mean `tip`?",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_the_dataflow_is_joined(tmp_path, entry, chains, words):
    shutil.copy(PLANAR, tmp_path / "planar.urdf")
    config = tmp_path / "robot.yml"
    config.write_text(yaml.safe_dump({"chains": chains, "plugins": [{"kinematics": [entry]}]}))
    # The path of the URDF counts from the folder of the configuration, wherever the node is started.
    done = subprocess.run([binary("node"), "--config", config], cwd=pathlib.Path("/"), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and words in done.stdout + done.stderr, done.stdout + done.stderr
