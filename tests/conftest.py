"""What every test shares: where the real recordings are, and a dataflow to fill."""

import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).parent
ROOT = TESTS.parent
sys.path.insert(0, str(ROOT / "examples" / "policy"))

from harness import Flow  # noqa: E402

# Recordings of real sensors are not part of the repository: they lie next to it, or next to the folder of a worktree.
PLACES = [ROOT.parent / "shared" / "data", ROOT.parent.parent / "shared" / "data"]
DATA = next((place for place in PLACES if place.is_dir()), None)


@pytest.fixture(scope="session")
def data() -> pathlib.Path:
    if DATA is None:
        pytest.skip(f"no real recordings: {PLACES[0]} is not there")
    return DATA


@pytest.fixture
def flow(tmp_path) -> Flow:
    return Flow(tmp_path)


def pytest_report_header():
    return f"real recordings: {DATA or f'none, their tests are skipped ({PLACES[0]} is not there)'}"
