"""Tests of the functions of robocache.seed against NumPy."""

import numpy as np
import pytest

import robocache as rc


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def trajectories(rng, d):
    times = np.cumsum(rng.uniform(0.001, 0.02, (4, 50)), axis=1)
    return rng.normal(size=(4, 50, d)).astype(np.float32), times


def test_resample_trajectories_holds_the_ends(rng):
    data, times = trajectories(rng, 3)
    targets = np.sort(rng.uniform(-0.1, 0.8, (4, 30)), axis=1)
    got = rc.resample_trajectories(data, times, targets)
    wanted = np.stack([np.stack([np.interp(t, x, y[:, c]) for c in range(3)], -1) for t, x, y in zip(targets, times, data, strict=True)])
    assert got.shape == (4, 30, 3) and got.dtype == np.float32
    assert np.abs(got - wanted).max() < 1e-4
    outside = (targets < times[:, :1]) | (targets > times[:, -1:])
    assert outside.any() and not rc.resample_trajectories(data, times, targets, clamp=False)[outside].any()


def test_fuse_multimodal_puts_three_side_by_side(rng):
    streams = [trajectories(rng, d) for d in (2, 5, 1)]
    targets = np.sort(rng.uniform(0, 0.5, (4, 20)), axis=1)
    got = rc.fuse_multimodal(*[each for stream in streams for each in stream], targets)
    assert got.shape == (4, 20, 8)
    assert np.array_equal(got[..., 2:7], rc.resample_trajectories(*streams[1], targets))


def test_voxelize_pointcloud(rng):
    points = rng.uniform(-12, 12, (4000, 3)).astype(np.float32)
    features = rng.normal(size=(4000, 2)).astype(np.float32)
    size = dict(grid_min=[-10] * 3, voxel_size=0.5, grid_size=[40, 41, 42])
    cell = np.floor((points - np.float32(-10)) * np.float32(2)).astype(int)
    inside = ((cell >= 0) & (cell < [40, 41, 42])).all(axis=1)
    count = np.zeros((40, 41, 42), np.float32)
    np.add.at(count, tuple(cell[inside].T), 1)
    assert np.array_equal(rc.voxelize_pointcloud(points, mode="count", **size), count)
    assert np.array_equal(rc.voxelize_pointcloud(points, **size), count > 0)
    greatest = np.full((40, 41, 42, 2), -np.inf, np.float32)
    np.maximum.at(greatest, tuple(cell[inside].T), features[inside])
    greatest[count == 0] = 0
    got = rc.voxelize_pointcloud(points, features, mode="max", **size)
    assert got.shape == (40, 41, 42, 2) and np.array_equal(got, greatest)
    total = np.zeros((40, 41, 42, 2))
    np.add.at(total, tuple(cell[inside].T), features[inside].astype(float))
    mean = rc.voxelize_pointcloud(points, features, mode="mean", **size)
    assert np.abs(mean - total / np.maximum(count, 1)[..., None]).max() < 1e-5
    assert rc.voxelize_pointcloud(points).shape == (128, 128, 128)


def test_what_is_refused(rng):
    data, times = trajectories(rng, 3)
    with pytest.raises(ValueError, match="backend 'pytorch'"):
        rc.resample_trajectories(data, times, times, backend="pytorch")
    with pytest.raises(ValueError, match="mode `min`"):
        rc.voxelize_pointcloud(data[0], mode="min")
    with pytest.raises(ValueError, match="mode `mean` without `features`"):
        rc.voxelize_pointcloud(data[0], mode="mean")
