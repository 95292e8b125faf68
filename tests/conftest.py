"""Fixtures of all tests, such as the folder of the real recordings and an empty dataflow."""

import importlib.util
import os
import pathlib
import socket
import subprocess

import numpy as np
import pytest

import convert
from convert import DATA, PLACES
from harness import DORA, Flow, dora, wait_for


@pytest.fixture(scope="session")
def data() -> pathlib.Path:
    if DATA is None:
        pytest.skip(f"no real recordings: {PLACES[0]} is not there")
    return DATA


@pytest.fixture
def flow(tmp_path) -> Flow:
    return Flow(tmp_path)


@pytest.fixture
def daemon(tmp_path) -> dict:
    """Starts a coordinator and a daemon for this test alone; gives the environment in which dora finds them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # dora's default port may be in use on this machine.
    env = {"DORA_COORDINATOR_PORT": str(port), "HOME": str(tmp_path)}
    dora("up", env=env)
    yield env
    # The coordinator may end before it answers, so the exit code does not count.
    subprocess.run([DORA, "down", "--force"], env={**os.environ, **env}, capture_output=True, timeout=180)
    wait_for(lambda: not is_open(port), what="the end of the coordinator")


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def streams() -> dict:
    """Two seconds of a made-up robot: every stream with its own clock, jitter and losses."""
    rng = np.random.default_rng(11)
    start = 1_700_000_000_000_000_000

    def stream(rate_hz: float, dim: int, offset_ms: float, jitter_ms: float, loss: float = 0.0, batch: int = 1):
        n = round(2 * rate_hz)
        stamps = start + np.rint((np.arange(n) / rate_hz * 1e3 + offset_ms + rng.uniform(0, jitter_ms, n)) * 1e6).astype(np.int64)
        values = np.cumsum(rng.normal(0, 0.1, (n, dim)), axis=0).astype(np.float32)
        kept = rng.random(n) >= loss
        return convert.Stream(stamps[kept], values[kept], batch)

    times = [start + round((100 * i + 3.7) * 1e6) for i in range(20)]
    clouds = [
        {
            **{axis: rng.normal(0, 6, 20_000).astype(np.float32) for axis in "xyz"},
            "intensity": rng.uniform(0, 1, 20_000).astype(np.float32),
            "ring": rng.integers(0, 64, 20_000).astype(np.uint16),
            "t_ns": np.arange(20_000, dtype=np.uint32) * 5000,
        }
        for _ in times
    ]
    return {
        "camera": stream(30, 128, 33, 3, loss=0.1),
        "force": stream(1000, 6, 0, 0.4, loss=0.01),
        "proprio": stream(500, 15, 1, 0.9, batch=4),
        "lidar": convert.Clouds(times, clouds),
    }


@pytest.fixture(scope="session")
def recording(streams, tmp_path_factory) -> pathlib.Path:
    return convert.write(tmp_path_factory.mktemp("recording"), streams)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook
def pytest_collection_modifyitems(items):
    """Groups tests that share a fixture of their module, so that one process makes it once."""
    for item in items:
        for name, fixtures in item._fixtureinfo.name2fixturedefs.items():
            if fixtures[-1].scope == "module":
                of = item.callspec.params.get(name, "") if hasattr(item, "callspec") else ""
                item.add_marker(pytest.mark.xdist_group(f"{item.path.stem}-{name}-{of}"))


def pytest_runtest_setup(item):
    """Fails if pytest-xdist did not write the group into the test's id: every process would make the fixture again, unnoticed."""
    if getattr(item.config.option, "loadgroup", False) and item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
        pytest.fail(f"its group came to nothing: do pytest {pytest.__version__} and pytest-xdist fit each other?")


def pytest_report_header():
    return [
        f"real recordings: {DATA or f'none, their tests are skipped ({PLACES[0]} is not there)'}",
        f"viewer: {'rerun' if importlib.util.find_spec('rerun') else 'what it draws is skipped, rerun is not installed (make test-view has it)'}",
    ]
