"""Tests with threads, and with forked processes such as the workers of a DataLoader, none of which may hang."""

import concurrent.futures
import multiprocessing
import os
import signal
import time

import convert
import numpy as np
import pytest

import robocache as rc

MS = 1_000_000
TIMES = np.arange(4096) * MS
VALUES = np.random.default_rng(0).normal(size=(16, 4096, 32)).astype(np.float32)
POINTS = np.random.default_rng(1).uniform(-10, 10, (200_000, 3)).astype(np.float32)
GRID = {"origin_m": [-10] * 3, "voxel_size_m": [0.1] * 3, "shape": [200] * 3, "channels": ["count"], "layout": "dense"}
FUSE = {"rate_hz": 100, "window": 4, "modalities": [{"input": "a", "dim": 32, "interpolation": "linear"}]}


def work(images) -> tuple:
    """Resamples, fuses and voxelizes enough to be shared among threads. Returns a hash of each result, and the values of
    the messages `images`."""
    times = np.tile(TIMES, (len(VALUES), 1))
    resampled = rc.resample(times, VALUES, TIMES[::4], interpolation="linear").values
    fused = rc.fuse({"a": (TIMES, VALUES[0])}, FUSE).fused
    counts = rc.voxelize(POINTS, config=GRID).values
    return hash(resampled.tobytes()), hash(fused.tobytes()), hash(counts.tobytes()), [int(m.columns[""][0]) for m in images[::-1]]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    samples = convert.Stream(np.arange(300) * MS, np.arange(300, dtype=np.float32).reshape(-1, 1))
    return rc.Recording(convert.write(tmp_path_factory.mktemp("r"), {"a": samples})).messages("a")


def in_a_fork(task) -> bool:
    """Runs the task in a forked process. Returns True if the task returns True, and False if it takes minutes."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if task() else 2
        finally:
            os._exit(status)
    for _ in range(1800):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_fork_has_threads_of_its_own(images):
    wanted = work(images)
    assert in_a_fork(lambda: work(images) == wanted)
    assert in_a_fork(lambda: work(images) == wanted and in_a_fork(lambda: work(images) == wanted))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_messages_go_to_workers(images, how):
    with multiprocessing.get_context(how).Pool(2) as pool:
        got = pool.map(_first_value, [(images, i) for i in range(0, 300, 7)])
    assert got == list(range(0, 300, 7))


def _first_value(job) -> int:
    images, index = job
    return int(images[index].columns[""][0])


def test_threads_get_what_one_gets(images):
    wanted = work(images)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert all(got == wanted for got in pool.map(work, [images] * 12))
