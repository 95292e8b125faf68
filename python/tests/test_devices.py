"""Runs the tests of on_device.py, with arrays on a GPU, on the emulated drivers of tests/emulator (`make emulator`)."""

import os
import pathlib
import subprocess
import sys

import pytest

TARGET = pathlib.Path(__file__).parents[2] / "target"
EMULATORS = {"cuda": TARGET / "emulator", "hip": TARGET / "emulator-hip"}


@pytest.mark.parametrize("kind", EMULATORS)
def test_arrays_on_a_gpu(kind):
    emulator = EMULATORS[kind]
    if not emulator.is_dir():
        pytest.fail("the emulator is not built: make emulator")
    env = {**os.environ, "LD_LIBRARY_PATH": str(emulator), "EMULATOR_DEVICES": "2", "GPU": kind}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(pathlib.Path(__file__).parent / "on_device.py")]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
