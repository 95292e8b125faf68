"""The command `robocache` with dora: the dataflow that `new` writes is valid, and runs."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

from harness import DORA, binary, wait_for

ROBOCACHE = binary("fuse").with_name("robocache")
SENSORS = ["--sensor", "force:6@1000", "--sensor", "camera:16@30", "--cloud", "lidar@10"]


def run(*words: str | pathlib.Path, **options) -> subprocess.CompletedProcess:
    return subprocess.run(words, capture_output=True, text=True, timeout=180, **options)


def pids(words: str) -> list[int]:
    """Ids of the Python processes whose command line contains `words`."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if words in line and "python" in line.split()[0]:
                found.append(int(folder.name))
    return found


def test_what_new_writes_is_valid_and_runs(tmp_path):
    robot = tmp_path / "robot"
    made = run(ROBOCACHE, "new", robot, *SENSORS, "--python", sys.executable)
    assert made.returncode == 0, made.stderr
    checked = run(ROBOCACHE, "check", robot / "robocache.yml", "--dataflow", robot / "dataflow.yml", "--strict")
    assert checked.returncode == 0, checked.stdout
    validated = run(DORA, "validate", "--strict-types", robot / "dataflow.yml")
    assert validated.returncode == 0, validated.stdout + validated.stderr
    # On a busy machine nodes start late; once all run, everything is valid.
    command = [DORA, "run", robot / "dataflow.yml"]
    with (tmp_path / "log").open("w") as log:
        dataflow = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    is_well = re.compile("observations.*force 100%, camera 100%.*grids, of ").search
    try:
        wait_for(lambda: is_well((tmp_path / "log").read_text()), timeout=180.0, what="observations of all sensors")
        wait_for(lambda: run(ROBOCACHE, "top", robot / "status", "--once").returncode == 0, what="nodes that are well")
        # A sensor that is killed comes back by itself.
        (camera,) = pids("sensors.py camera")
        os.kill(camera, signal.SIGKILL)
        wait_for(lambda: pids("sensors.py camera") not in ([], [camera]), what="another camera")
        before = len((tmp_path / "log").read_text())
        wait_for(lambda: is_well((tmp_path / "log").read_text()[before:]), timeout=180.0, what="its observations")
    finally:
        dataflow.send_signal(signal.SIGINT)
        dataflow.wait(20.0)


def test_doctor_knows_this_dora():
    done = run(ROBOCACHE, "doctor", env={**os.environ, "PATH": f"{DORA.parent}:{os.environ['PATH']}"})
    assert "ok: dora: dora-cli 1.1.0" in done.stdout, done.stdout
