"""Runs the programs of docs/python.md, one after the other."""

import pathlib
import re
import sys
import types

import numpy as np
import pytest

import robocache
from made import GRID, observation, snake

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


class Node:
    """A stand-in for a node of dora that keeps the messages that it is given to send."""

    def __init__(self):
        self.sent = []

    def send_output(self, output, array, metadata):
        self.sent.append((output, metadata))


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> dict:
    """Names that the guide's programs use. After the programs ran, the dict also has the names that they defined."""
    said = {**GRID, "channels": ["occupancy", "mean_z"], "shape": [1, 2, 2, 3, 4]}
    event = observation({"grids": np.ones(48, np.float32)}, grids_ms=(90,), said=said)
    given = {
        "event": event,
        "robocache": robocache,
        "predict": lambda values: np.tile(values[-1], (4, 1)),
        "dora": types.SimpleNamespace(Node=Node),
        "q": np.zeros(7),
        "dq": np.ones(7),
        "recorded": np.ones((3, 4, 7)),
        "trajectories": np.tile([0.5, 0.1, 0.1, 0, 0, 0, 1], (2, 3, 1)),
        "stamp_ns": 5,
        "rows": np.zeros((10, 6), np.float32),
        "stamps_ns": np.arange(10),
        "points": np.zeros((3, 4), np.float32),
    }
    torch_blocks = [block for block in BLOCKS if needs_torch(block)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZENOH_CONFIG", "mine")
        patch.chdir(tmp_path_factory.mktemp("guide"))
        pathlib.Path("arm.urdf").write_text(snake(["base_link", *"123456", "tool0"]))
        for block in BLOCKS:
            if block not in torch_blocks:
                exec(block, given)  # noqa: S102
    return given


def needs_torch(block: str) -> bool:
    return "torch" in block


def test_the_page_has_its_programs(names):
    assert len(BLOCKS) == 9
    assert names["force"].shape == (2, 1) and names["trusted"].all() and names["age_ms"].tolist() == [5, 1]
    assert names["dense"].shape == (2, 2, 3, 4) and len(names["cells"]) == len(names["where"]) == 24
    assert names["steps"].values.shape == (3, 3) and names["steps"].valid.shape == (3, 2)
    assert names["action"].shape == (4, 3)
    assert names["found"].shape == (1, 7) and names["twist"][3:].tolist() == [3, 2, 2] and names["paths"].joints.shape == (2, 3, 7)
    assert names["deltas"][0, :, 0].tolist() == [1, 0, 0, 0] and names["poses"].shape == (3, 4, 9)
    assert names["batch"]["observation.state"].tolist() == [[6, 4, 5]]


def test_what_the_page_sends(names):
    shapes = {output: metadata["shape"] for output, metadata in names["node"].sent}
    assert shapes == {"joints": [7], "wrench": [10, 6], "front": [3, 4]}


def test_the_programs_with_torch(names):
    torch = pytest.importorskip("torch", reason="torch is not installed: its programs of the page are not run")
    sys.path.insert(0, str(ROOT / "examples" / "attention"))
    import attention

    given = names | {"torch": torch, "Tokens": attention.Tokens, "TimeAttention": attention.TimeAttention}
    for block in BLOCKS:
        if needs_torch(block):
            exec(block, given)  # noqa: S102
    assert given["window"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert given["seen"].shape == (1, 2, 128)


def test_every_preset_is_on_the_page():
    modules = {path.stem for path in (ROOT / "python" / "robocache" / "presets").glob("[a-z]*.py")} - {"rotations"}
    assert modules == set(re.findall(r"^\| `(\w+)` \| .* \| .* \| .* \|$", PAGE, re.MULTILINE)) - {
        "error",
        "attached",
        "metadata",
        "fused",
    }
