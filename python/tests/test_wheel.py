"""Tests that the wheel, which `make python` builds, works in an environment with only NumPy."""

import pathlib
import subprocess
import sys
import zipfile

import numpy
import pytest

WHEELS = pathlib.Path(__file__).parents[2] / "target" / "wheels"

PROGRAM = """
import sys
sys.path[:0] = {paths!r}
import numpy as np
import robocache as rc
times_ns = np.arange(100) * 10_000_000
config = {{"rate_hz": 50, "window": 4, "modalities": [{{"input": "a", "dim": 3, "interpolation": "linear"}}]}}
fused = rc.fuse({{"a": (times_ns, np.ones((100, 3), np.float32))}}, config)
assert fused.fused.shape == (50, 4, 3), fused.fused.shape
places = {{str(getattr(module, "__file__", None)) for name, module in sys.modules.items() if "." not in name}}
print(sorted(place for place in places if "site-packages" in place))
print(rc.__file__)
"""


@pytest.fixture
def wheel() -> pathlib.Path:
    wheels = sorted(WHEELS.glob("*.whl"))
    if not wheels:
        pytest.skip(f"no wheel in {WHEELS}: make python")
    return wheels[-1]


def test_it_needs_numpy_alone(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
        names = archive.namelist()
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]
    assert "cp311-abi3" in wheel.name
    assert {"robocache/py.typed", "robocache/_native.pyi", "robocache/_native.abi3.so"} <= set(names)
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist")] == ["Requires-Dist: numpy>=1.26"]
    (tmp_path / "numpy").mkdir()
    for part in pathlib.Path(numpy.__file__).parents[1].glob("numpy*"):
        (tmp_path / "numpy" / part.name).symlink_to(part)
    program = PROGRAM.format(paths=[str(tmp_path / "wheel"), str(tmp_path / "numpy")])
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    others, place = done.stdout.splitlines()
    assert others == "[]" and place.startswith(str(tmp_path))
