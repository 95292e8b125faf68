"""Runs the examples of the package's page and of docs/offline.md."""

import pathlib
import re

import convert
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


def programs(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the recording that the pages use, and the configuration of the demo."""
    rng = np.random.default_rng(2)
    stamps = {"camera": np.arange(0, 2000, 33), "force": np.arange(0, 2000, 2), "proprio": np.arange(0, 2000, 4)}
    dims = {"camera": 128, "force": 6, "proprio": 15}
    streams = {
        name: convert.Stream(each * 1_000_000, rng.normal(size=(len(each), dims[name])).astype(np.float32)) for name, each in stamps.items()
    }
    convert.write(tmp_path / "out" / "recording", streams)
    (tmp_path / "robocache.yml").write_text((ROOT / "robocache.yml").read_text())
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore:robocache.yml. fuse. attach")
def test_the_packages_page(folder, capsys):
    first, training = programs("python/README.md")
    exec(first, names := {})
    assert names["windows"].fused.shape[1:] == (16, 134) and len(names["windows"]) > 90
    assert "134" in capsys.readouterr().out
    # The program has ten lines from the import to tensors, as the page says.
    assert len([line for line in first.splitlines() if line and not line.startswith("print")]) <= 11
    exec(training.splitlines()[0], names)
    assert names["dataset"][[3, 1, 4]]["fused"].shape[:2] == (3, 16)


@pytest.mark.filterwarnings("ignore:robocache.yml. fuse. attach")
def test_the_page_on_arrays(folder):
    names = {}
    stamps = np.arange(0, 4_000_000_000, 30_000_000)
    names |= {"camera_ns": stamps, "features": np.ones((len(stamps), 16)), "wrench_ns": stamps[:40] // 4, "wrench": np.ones((40, 6))}
    arrays, recorded = programs("docs/offline.md")[:2]
    exec(arrays, names)
    assert names["windows"].fused.shape[1:] == (16, 22)
    exec(recorded, names)
    assert names["dataset"][7]["fused"].tobytes() == names["windows"].fused[7].tobytes()
