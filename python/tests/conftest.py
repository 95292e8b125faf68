"""What the tests of the package share with those of the nodes: recordings, and an oracle that knows nothing of the engine."""

import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[2] / "tests"
sys.path.insert(0, str(TESTS))

import convert  # noqa: E402


@pytest.fixture(scope="session")
def data() -> pathlib.Path:
    if convert.DATA is None:
        pytest.skip(f"no real recordings: {convert.PLACES[0]} is not there")
    return convert.DATA
