"""Makes the clouds of benches/voxelize.rs and robocache-bench: a room with pillars, as a spinning lidar sees it."""

import numpy as np


def unit_randoms(seed: int, count: int) -> np.ndarray:
    """Returns `count` random numbers in 0..1, float32, by the generator of the Rust benchmarks."""
    factor, step = np.uint64(6_364_136_223_846_793_005), np.uint64(1_442_695_040_888_963_407)
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(count, factor))
        sums = np.cumsum(np.concatenate([np.ones(1, np.uint64), powers[:-1]]))
        states = powers * np.uint64(seed) + sums * step
    return ((states >> np.uint64(33)).astype(np.float32) / np.float32(1 << 31)).astype(np.float32)


def sweep(step: int, beams: int = 128, columns: int = 1024) -> np.ndarray:
    """Makes a sweep after the sensor has moved `step` times, [beams * columns, 3] float32, metres, in firing order."""
    cx, cy = 0.4 * step, -0.3 * step
    turn = (np.arange(columns) * (2 * np.pi / columns))[:, None]
    up = 0.39 - 0.78 * np.arange(beams)[None, :] / beams
    run = np.cos(up)
    dx, dy = np.cos(turn) * run, np.sin(turn) * run
    dz = np.broadcast_to(np.sin(up), dx.shape)

    def to(d, near, far, start):
        with np.errstate(divide="ignore"):
            return np.where(d > 1e-6, (far - start) / d, np.where(d < -1e-6, (near - start) / d, np.inf))

    distance = np.minimum(to(dx, -23.0, 24.5, cx), to(dy, -19.0, 22.0, cy))
    distance = np.minimum(distance, to(dz, -1.7, 5.0, 0.0))
    for pillar in range(12):
        px, py = -18.0 + 12.0 * (pillar % 4) - cx, -14.0 + 12.0 * (pillar // 4) - cy
        along = np.cos(turn) * px + np.sin(turn) * py
        root = along**2 - (px * px + py * py - 0.16)
        with np.errstate(invalid="ignore"):
            near = (along - np.sqrt(root)) / run
        distance = np.where((root > 0) & (along > 0), np.minimum(distance, near), distance)
    distance = distance + 0.02 * (unit_randoms(step, beams * columns).reshape(columns, beams) - 0.5)
    points = np.stack([cx + distance * dx, cy + distance * dy, distance * dz], axis=-1)
    return points.reshape(-1, 3).astype(np.float32)
