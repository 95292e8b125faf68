"""Fixtures that the package's tests share with the tests of the nodes: recordings, and an oracle that does not
use the engine."""

import pathlib

import pytest

import convert


@pytest.fixture(scope="session")
def data() -> pathlib.Path:
    if convert.DATA is None:
        pytest.skip(f"no real recordings: {convert.PLACES[0]} is not there")
    return convert.DATA
