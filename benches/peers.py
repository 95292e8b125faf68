"""Measures peers at the work of robocache: NumPy, spconv and Open3D on the CPU, PyTorch, Triton and CuPy on the GPU. Prints one
JSON line per row, like the Rust benchmarks.

  - python benches/peers.py resample             needs NumPy
  - python benches/peers.py modes TF2_LIKE       needs SciPy; TF2_LIKE is the program compiled from tf2_like.cpp
  - python benches/peers.py voxelize CLOUDS      needs benches/requirements-peers.txt; CLOUDS is the folder that
                                                 the benchmark `voxelize` writes with --write-clouds
  - python benches/peers.py gpu [PART ...]       needs PyTorch with a GPU, and CuPy for its rows; PART: gpu_peers/

Inputs are rotated, so that none is in the cache from its last turn, and the first rounds are not counted. Inputs that a peer
needs in another form (float64 times, its own point cloud type) are made before the clock starts.
"""

import importlib.metadata
import json
import pathlib
import sys
import time

import numpy as np

# The grid and the cloud of benches/voxelize.rs
ORIGIN_M = -25.6
VOXEL_M = 0.2
CELLS = 256
POINTS = 131072

# The batch of benches/resample.rs
ROWS, SAMPLES, TARGETS, DIM = 64, 4096, 1024, 32


def measure(op: str, peer: str, config: str, inputs: list, work, rounds: int, warm_up: int = 1) -> None:
    taken = []
    for turn in range(warm_up + rounds):
        for one in inputs:
            start = time.perf_counter_ns()
            work(one)
            if turn >= warm_up:
                taken.append((time.perf_counter_ns() - start) / 1e3)
    p50, p99 = np.percentile(taken, [50, 99], method="nearest")
    row = {"op": op, "peer": peer, "config": config, "us_p50": round(p50, 1), "us_p99": round(p99, 1)}
    print(json.dumps(row), flush=True)


def version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package.lower())}"


def resample() -> None:
    random = np.random.default_rng(0)

    def batch():
        # Times count from the first sample, so that float64 holds them exactly; ns since 1970 would be rounded.
        times = np.arange(SAMPLES) * 1e6 + random.integers(0, 500_000, (ROWS, SAMPLES))
        times -= times[:, :1]
        targets = np.linspace(times[:, 0], times[:, -1], TARGETS, axis=1)
        values = random.uniform(-1, 1, (ROWS, SAMPLES, DIM)).astype(np.float32)
        return times, values, targets, np.empty((ROWS, TARGETS, DIM), np.float32)

    def interp(inputs):
        times, values, targets, out = inputs
        for row in range(ROWS):
            for column in range(DIM):
                out[row, :, column] = np.interp(targets[row], times[row], values[row, :, column])

    def searchsorted(inputs):
        times, values, targets, out = inputs
        for row in range(ROWS):
            after = np.searchsorted(times[row], targets[row], side="right").clip(1, SAMPLES - 1)
            before = after - 1
            gap = times[row][after] - times[row][before]
            weight = ((targets[row] - times[row][before]) / gap).astype(np.float32)[:, None]
            a, b = values[row][before], values[row][after]
            out[row] = a + weight * (b - a)

    batches = [batch() for _ in range(8)]
    for inputs in batches[:1]:
        interp(inputs)
        expected = inputs[3].copy()
        searchsorted(inputs)
        np.testing.assert_allclose(inputs[3], expected, atol=1e-6)
    config = f"{ROWS}x{SAMPLES}->{TARGETS}x{DIM} float32"
    measure("resample", f"{version('NumPy')} interp per column", config, batches, interp, rounds=2)
    measure("resample", f"{version('NumPy')} searchsorted, all columns", config, batches, searchsorted, rounds=4)


def voxelize(folder: str) -> None:
    files = sorted(pathlib.Path(folder).glob("*.f32"))
    clouds = [np.fromfile(file, "<f4").reshape(-1, 3) for file in files]
    if not clouds or any(len(cloud) != POINTS for cloud in clouds):
        sys.exit(f"{folder}: clouds of {POINTS} points are expected (made with: voxelize --write-clouds {folder})")
    config = f"room, {POINTS} points, {CELLS}x{CELLS}x{CELLS}"

    def with_numpy(points):
        cells = np.floor((points - np.float32(ORIGIN_M)) * np.float32(1 / VOXEL_M)).astype(np.int64)
        inside = ((cells >= 0) & (cells < CELLS)).all(axis=1)
        cells, points = cells[inside], points[inside]
        index = (cells[:, 0] * CELLS + cells[:, 1]) * CELLS + cells[:, 2]
        occupied, voxel, count = np.unique(index, return_inverse=True, return_counts=True)
        sums = [np.bincount(voxel, weights=points[:, axis]) for axis in range(3)]
        mean = (np.stack(sums, axis=1) / count[:, None]).astype(np.float32)
        coords = np.stack(np.unravel_index(occupied, (CELLS,) * 3), axis=1)
        return coords, count, mean

    def expect_voxels(name: str, voxels: int, tolerance: float = 0.0) -> None:
        expected = len(with_numpy(clouds[0])[1])
        if abs(voxels - expected) > tolerance * expected:
            sys.exit(f"{name} makes {voxels} voxels of the cloud of which NumPy makes {expected}")

    measure("voxelize", f"{version('NumPy')} unique, bincount: count, mean", config, clouds, with_numpy, rounds=4)

    from cumm import tensorview as tv
    from spconv.utils import Point2VoxelCPU3d

    far = ORIGIN_M + CELLS * VOXEL_M
    # spconv keeps the points of a voxel up to a number; points past that are neither kept nor counted. No voxel of these
    # clouds has more than 32.
    for most, with_mean, what in [
        (5, False, "the first 5 points"),
        (32, False, "points, count"),
        (32, True, "points, count, then mean"),
    ]:
        ones = np.ones(most, np.float32)
        generator = Point2VoxelCPU3d([VOXEL_M] * 3, [ORIGIN_M] * 3 + [far] * 3, 3, POINTS, most)

        def with_spconv(points, generator=generator, ones=ones, with_mean=with_mean):
            voxels, coords, count = (part.numpy_view() for part in generator.point_to_voxel(tv.from_numpy(points)))
            # Slots without a point hold zeros. The product with ones is NumPy's fastest sum over this axis.
            return coords, count, ones @ voxels / count[:, None] if with_mean else voxels

        made = with_spconv(clouds[0])[1]
        # spconv finds cells by a division, whose rounding differs from ours for a few points.
        expect_voxels("spconv", len(made), tolerance=1e-3)
        if most > 5 and made.max() >= most:
            sys.exit(f"a voxel of the cloud has {made.max()} points or more: spconv needs more room")
        measure("voxelize", f"{version('spconv')} PointToVoxel: {what}", config, clouds, with_spconv, rounds=4)

    import open3d as o3d

    def legacy(points):
        cloud = o3d.geometry.PointCloud()
        cloud.points = o3d.utility.Vector3dVector(points.astype(np.float64))
        return cloud

    open3d = version("Open3D")
    theirs = [legacy(points) for points in clouds]
    # The grid of Open3D starts at the smallest coordinates of the cloud, so that other points share a voxel.
    expect_voxels("Open3D", len(theirs[0].voxel_down_sample(VOXEL_M).points), tolerance=0.25)
    measure("voxelize", f"{open3d} voxel_down_sample: mean", config, theirs, lambda c: c.voxel_down_sample(VOXEL_M), 2)
    to_grid = o3d.geometry.VoxelGrid.create_from_point_cloud
    measure("voxelize", f"{open3d} VoxelGrid: occupancy", config, theirs, lambda c: to_grid(c, VOXEL_M), 2)
    tensors = [o3d.t.geometry.PointCloud(o3d.core.Tensor(points)) for points in clouds]
    down = f"{open3d} tensor voxel_down_sample: mean"
    measure("voxelize", down, config, tensors, lambda c: c.voxel_down_sample(VOXEL_M), 1)


def main() -> None:
    match sys.argv[1:]:
        case ["resample"]:
            resample()
        case ["modes", tf2_like]:
            from mode_peers import main as modes

            modes(tf2_like)
        case ["voxelize", folder]:
            voxelize(folder)
        case ["gpu", *parts]:
            from gpu_peers.__main__ import main as gpu

            gpu(parts)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
