"""Runs the commands of the README from a bag to a policy, as they stand there, on a bag of a few seconds."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import robocache as rc
import yaml

from harness import ROOT, checkout

SECONDS = 3


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Runs every command in a copy of the checkout; gives the folder, the output of each, and the policy's report."""
    folder = checkout(tmp_path_factory.mktemp("bag"))
    section = (ROOT / "README.md").read_text().split("## From a bag to a policy", 1)[1].split("\n## ", 1)[0]
    commands = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[0]
    report = folder / "report.json"
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), str(folder / "target/release"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "ROBOCACHE_POLICY_REPORT": str(report)}
    printed = {}
    for command in filter(None, commands.splitlines()):
        command = re.sub(r"(make_bag\.py \S+)", rf"\1 {SECONDS}", command)
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        printed[command] = done.stdout
        assert "ERROR" not in done.stdout + done.stderr, f"{command}\n{done.stdout}{done.stderr}"
        assert " WARN" not in done.stderr, done.stderr
    return folder, printed, json.loads(report.read_text())


def test_a_bag_becomes_a_picture_and_a_verdict(shown):
    folder, printed, _ = shown
    page = (folder / "out/bag/report.html").read_text()
    assert "uPlot" in page and "camera_features" in page
    (verdict,) = (text for command, text in printed.items() if command.startswith("robocache try"))
    assert f"fused: {30 * SECONDS} observations, 30.0 Hz" in verdict and "\nyes: " in verdict


def test_names_in_another_order_are_refused(shown):
    folder, *_ = shown
    robocache = folder / "target/release/robocache"
    subprocess.run([robocache, "convert", "out/bag/robot", "out/bag/as-it-came"], cwd=folder, capture_output=True, check=True)
    done = subprocess.run([robocache, "try", "examples/bag/robot.yml", "out/bag/as-it-came"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and "input `joint_states`: `fields` is " in done.stderr, done.stdout + done.stderr
    config = yaml.safe_load((folder / "examples/bag/robot.yml").read_text())["fuse"]
    joints = {"rate_hz": 30, "modalities": [modality for modality in config["modalities"] if modality["input"] == "joint_states"]}
    with pytest.raises(ValueError, match="`fields` is gripper, joint_1"):
        rc.Recording(folder / "out/bag/as-it-came").windows(joints)
    assert rc.Recording(folder / "out/bag/recording").windows(joints).valid.all()


def test_a_bag_becomes_a_dataset(shown):
    folder, printed, _ = shown
    (said,) = (text for command, text in printed.items() if "--to lerobot" in command)
    assert "`fps` is 30" in said and "observations left out: not valid were `wrench`" in said
    info = json.loads((folder / "out/bag/dataset/meta/info.json").read_text())
    assert info["fps"] == 30 and 30 * SECONDS - 12 < info["total_frames"] < 30 * SECONDS - 5
    names = info["features"]["observation.state"]["names"]
    assert names[6:10] == ["joint_7", "gripper", "wrench.force.x", "wrench.force.y"] and len(names) == 20
    frames = pq.read_table(folder / "out/bag/dataset/data/chunk-000/file-000.parquet")
    assert len(frames) == info["total_frames"]


def test_a_policy_runs_on_a_bag(shown):
    *_, report = shown
    # On a busy machine, waits run out and late samples are masked: their number does not matter here.
    assert report["observations"] > 20 * SECONDS and report["actions"] > 0
    assert list(report["modalities"]) == ["camera_features", "joint_states", "wrench", "imu_data"]
    assert report["modalities"]["joint_states"]["valid_share"] > 0
