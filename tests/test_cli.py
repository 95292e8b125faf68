"""The command `robocache` with dora: what `new` writes is valid, and runs."""

import os
import pathlib
import subprocess
import sys

from harness import DORA, binary

ROBOCACHE = binary("fuse").with_name("robocache")
SENSORS = ["--sensor", "force:6@1000", "--sensor", "camera:16@30", "--cloud", "lidar@10"]


def run(*words: str | pathlib.Path, **options) -> subprocess.CompletedProcess:
    return subprocess.run(words, capture_output=True, text=True, timeout=60, **options)


def test_what_new_writes_is_valid_and_runs(tmp_path):
    robot = tmp_path / "robot"
    made = run(ROBOCACHE, "new", robot, *SENSORS, "--python", sys.executable)
    assert made.returncode == 0, made.stderr
    checked = run(ROBOCACHE, "check", robot / "robocache.yml", "--dataflow", robot / "dataflow.yml", "--strict")
    assert checked.returncode == 0, checked.stdout
    validated = run(DORA, "validate", "--strict-types", robot / "dataflow.yml")
    assert validated.returncode == 0, validated.stdout + validated.stderr
    done = run(DORA, "run", robot / "dataflow.yml", "--stop-after", "6s")
    lines = [line for line in done.stdout.splitlines() if "observations" in line]
    assert lines, done.stdout + done.stderr
    assert "force 100%, camera 100%" in lines[-1] and "grids, of " in lines[-1], lines


def test_doctor_knows_this_dora():
    done = run(ROBOCACHE, "doctor", env={**os.environ, "PATH": f"{DORA.parent}:{os.environ['PATH']}"})
    assert "ok: dora: dora-cli 1.1.0" in done.stdout, done.stdout
