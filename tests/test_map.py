"""Maps of whole dataflows against NumPy and SciPy: signed distances, rays in exact integers, and distances to obstacles.

The base moves without turning, by eighths of a cell, so that every number of the oracle is exact in float32.
"""

import fractions
import math

import numpy as np
import pytest
import scipy.ndimage
import scipy.spatial
from PIL import Image

from harness import same_bits, send

MS = 1_000_000
VOXEL = 0.125
SHAPE = [24, 20, 16]
WIDTH, HEIGHT = 24, 18
FOCAL, PRINCIPAL = [20.0, -18.0], [11.5, 8.5]
TRUNCATION = 0.5
HIT, MISS, CLAMP = 868, -415, (-2048, 3595)
PLUGIN = {
    "frame": "odom",
    "voxel_size_m": VOXEL,
    "shape": SHAPE,
    "follow": "base",
    "poses": {"base": {"input": "odometry"}},
    "inputs": [
        {
            "input": "depth",
            "pose": "base",
            "camera": {"width": WIDTH, "height": HEIGHT, "focal_px": FOCAL, "principal_px": PRINCIPAL},
        },
        {"input": "lidar", "pose": "base", "extrinsic": {"translation_m": [0.25, 0, -0.125]}},
    ],
    "tsdf": {"truncation_m": TRUNCATION, "max_weight": 3},
    "occupancy": {"max_range_m": 2.5, "band_m": 0.0625},
    "esdf": {"from": "occupancy", "max_distance_m": 1.0, "slice_m": [-0.5, 0.3]},
    "outputs": ["tsdf", "weight", "occupancy", "bits", "esdf", "esdf_slice"],
}


def position(ns: float) -> np.ndarray:
    """The base at a time: it goes on by 1/64 m in x and back by 1/128 m in z in each ms."""
    return np.array([ns / MS / 64, 3.0, -ns / MS / 128])


def walk(start: np.ndarray, end: np.ndarray) -> list[tuple[int, ...]]:
    """The cells between two places in 1/256 of a cell, without the last one, by the exact times at which faces are crossed."""
    cell, last = [int(n) >> 8 for n in start], [int(n) >> 8 for n in end]
    apart = [int(b) - int(a) for a, b in zip(start, end, strict=True)]
    cells = []
    while cell != last:
        cells.append(tuple(cell))
        times = []
        for axis in range(3):
            if cell[axis] == last[axis]:
                continue
            face = (cell[axis] + (apart[axis] > 0)) * 256
            times.append((fractions.Fraction(face - int(start[axis]), apart[axis]), axis))
        _, axis = min(times)
        cell[axis] += 1 if apart[axis] > 0 else -1
    return cells


class Oracle:
    """A map of all cells of the world by their numbers, of which only those in the box are kept."""

    def __init__(self):
        self.anchor = None
        self.corner = None
        self.tsdf: dict[tuple, tuple[int, int]] = {}
        self.log_odds: dict[tuple, int] = {}

    def follow(self, at: np.ndarray) -> None:
        if self.anchor is None:
            self.anchor = np.floor(at)
        wanted = np.floor((at - self.anchor) / VOXEL).astype(int) - np.array(SHAPE) // 2
        if self.corner is None:
            self.corner = wanted
        moves = np.abs(wanted - self.corner) > 1
        self.corner = np.where(moves, wanted, self.corner)
        for state in (self.tsdf, self.log_odds):
            for cell in [cell for cell in state if not self.is_inside(cell)]:
                del state[cell]

    def is_inside(self, cell) -> bool:
        return all(0 <= n - first < cells for n, first, cells in zip(cell, self.corner, SHAPE, strict=True))

    def step(self, at: np.ndarray, depths: np.ndarray | None, points: np.ndarray | None) -> None:
        self.follow(at)
        here = at - self.anchor - self.corner * VOXEL
        hits, passed = set(), set()
        if depths is not None:
            self.see(here.astype(np.float32), depths, hits, passed)
        if points is not None:
            self.rays(here + [0.25, 0, -0.125], points, hits, passed)
        for cell in hits | passed:
            if self.is_inside(cell):
                value = self.log_odds.get(cell, 0) + (HIT if cell in hits else MISS)
                self.log_odds[cell] = min(max(value, CLAMP[0]), CLAMP[1])

    def see(self, here: np.ndarray, depths: np.ndarray, hits: set, passed: set) -> None:
        f = np.float32
        for place in np.ndindex(*SHAPE):
            x, y, z = (f((n + 0.5) * VOXEL) - t for n, t in zip(place, here, strict=True))
            if not z > f(0.05):
                continue
            inverse = f(1) / z
            u = math.floor((f(FOCAL[0]) * (x * inverse) + f(PRINCIPAL[0])) + f(0.5))
            v = math.floor((f(FOCAL[1]) * (y * inverse) + f(PRINCIPAL[1])) + f(0.5))
            if not (0 <= u < WIDTH and 0 <= v < HEIGHT):
                continue
            depth = f(depths[v, u]) * f(0.001)
            if depths[v, u] in (0, 65535) or not f(0.1) <= depth < f(5):
                continue
            distance = depth - z
            cell = tuple(int(n) for n in np.array(place) + self.corner)
            if distance >= f(-0.0625):
                (passed if distance > f(0.0625) else hits).add(cell)
            if distance < f(-TRUNCATION):
                continue
            measured = int(np.rint(min(distance, f(TRUNCATION)) * (f(32767) / f(TRUNCATION))))
            mean, weight = self.tsdf.get(cell, (0, 0))
            total, sum_ = mean * weight + measured * 256, weight + 256
            mean = (abs(total) + sum_ // 2) // sum_ * (1 if total >= 0 else -1)
            self.tsdf[cell] = (mean, min(sum_, 3 * 256))

    def rays(self, origin: np.ndarray, points: np.ndarray, hits: set, passed: set) -> None:
        part = lambda metres: np.floor(np.float32(metres) * np.float32(1 / VOXEL) * np.float32(256)).astype(int)
        start, taken = part(origin), set()
        for point in points.astype(np.float32):
            way = point.copy()
            length = np.float32(math.sqrt((way[0] * way[0] + way[1] * way[1]) + way[2] * way[2]))
            is_hit = length <= np.float32(2.5)
            end = part(origin.astype(np.float32) + way * (np.float32(1) if is_hit else np.float32(2.5) / length))
            cell = tuple(int(n) >> 8 for n in end)
            world = tuple(int(n) for n in np.array(cell) + self.corner)
            if is_hit:
                hits.add(world)
            if cell in taken:
                continue
            taken.add(cell)
            cells = walk(start, end) + ([] if is_hit else [cell])
            passed.update(tuple(int(n) for n in np.array(cell) + self.corner) for cell in cells)

    def dense(self, state: dict, empty) -> np.ndarray:
        found = np.full(SHAPE, empty)
        for cell, value in state.items():
            found[tuple(np.array(cell) - self.corner)] = value
        return found


def distances(sites: np.ndarray) -> np.ndarray:
    """Distances to the nearest site, up to 1 m, in float32."""
    limit = round((1.0 / VOXEL) ** 2)
    square = np.full(sites.shape, limit)
    if sites.any():
        square = np.minimum(np.rint(scipy.ndimage.distance_transform_edt(~sites) ** 2), limit)
    return np.sqrt(square.astype(np.float32)) * np.float32(VOXEL)


@pytest.mark.parametrize("order", ["as they came", "poses last"])
def test_a_map_that_goes_along_is_that_of_the_oracle(flow, order):
    rng = np.random.default_rng(5)
    # A pose between two samples is exact: frames lie at quarters of the time between them.
    poses = [send("odometry", np.array([*position(ms * MS), 0, 0, 0, 1]), ms * MS) for ms in range(0, 161, 8)]
    frames, steps = [], {}
    for ms in range(10, 150, 14):
        depths = rng.integers(300, 2500, (HEIGHT, WIDTH)).astype(np.uint16)
        depths[rng.random(depths.shape) < 0.1] = 0
        steps.setdefault(ms, [None, None])[0] = depths
        frames.append(send("depth", depths, ms * MS, shape=[HEIGHT, WIDTH]))
    for ms in range(10, 150, 20):
        points = (rng.integers(-160, 160, (40, 3)) / 64).astype(np.float32)
        steps.setdefault(ms, [None, None])[1] = points
        frames.append(send("lidar", points, ms * MS, shape=list(points.shape), fields=["x", "y", "z"]))
    frames.sort(key=lambda step: step[3]["timestamp_ns"])
    if order == "poses last":
        script = [*frames, *poses]
    else:
        script = sorted([*frames, *poses], key=lambda step: step[3]["timestamp_ns"])
    flow.sender(script)
    names = ["depth", "lidar", "odometry"]
    flow.robocache("node", {"plugins": [{"map": PLUGIN}]}, {name: f"sender/{name}" for name in names}, PLUGIN["outputs"])
    flow.collector({name: f"node/{name}" for name in PLUGIN["outputs"]})
    done = flow.run()
    received = {name: done.received("sink", name) for name in PLUGIN["outputs"]}
    oracle = Oracle()
    scrolled = 0
    for i, ms in enumerate(sorted(steps)):
        oracle.step(position(ms * MS), *steps[ms])
        at = {name: messages[i] for name, messages in received.items()}
        assert {message.stamp for message in at.values()} == {ms * MS}
        for name, message in at.items():
            assert message.metadata["corner_cell"] == oracle.corner.tolist(), name
            assert message.metadata["frame_id"] == "odom"
            assert message.metadata["frames_fused"] == sum(frame is not None for frame in steps[ms])
        scrolled += at["tsdf"].metadata["cells_scrolled"]
        values = {name: message.values.reshape(SHAPE) for name, message in at.items() if name not in ("bits", "esdf_slice")}
        state = oracle.tsdf
        mean = oracle.dense({cell: mean for cell, (mean, _) in state.items()}, 0).astype(np.float32)
        weight = oracle.dense({cell: weight for cell, (_, weight) in state.items()}, 0)
        unseen = np.float32(TRUNCATION)
        assert same_bits(values["weight"], (weight / 256).astype(np.float32))
        assert same_bits(values["tsdf"], np.where(weight > 0, mean * (np.float32(TRUNCATION) / np.float32(32767)), unseen))
        log_odds = oracle.dense(oracle.log_odds, -32768)
        percent = np.where(log_odds == -32768, -1, np.rint(100 / (1 + np.exp(-log_odds / 1024)))).astype(np.int8)
        assert np.array_equal(values["occupancy"], percent)
        sites = (log_odds > 0) & (log_odds != -32768)
        assert np.array_equal(np.unpackbits(at["bits"].values, bitorder="little").astype(bool), sites.ravel())
        assert same_bits(values["esdf"], distances(sites))
        heights = oracle.anchor[2] + (oracle.corner[2] + np.arange(SHAPE[2]) + 0.5) * VOXEL
        band = (heights >= -0.5) & (heights < 0.3)
        assert same_bits(at["esdf_slice"].values.reshape(SHAPE[:2]), distances(sites[:, :, band].any(axis=2)))
    assert len(received["tsdf"]) == len(steps) and scrolled > 0
    assert (weight > 0).sum() > 100 and sites.sum() > 20


def open3d(frames: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Signed distances in parts of the truncation and weights, in float64, as Open3D's UniformTSDFVolume has them: 100^3 cells of
    4 cm, distances along the rays. A frame is its depths in mm and the camera's matrix in the world."""
    focal, (cu, cv) = 525.0, (319.5, 239.5)
    centres = (np.arange(100) + 0.5) * 0.04
    cells = np.stack(np.meshgrid(centres, centres, centres, indexing="ij"), axis=-1).reshape(-1, 3)
    tsdf, weight = np.zeros(len(cells)), np.zeros(len(cells))
    for depths, camera in frames:
        inverse = np.linalg.inv(camera)
        x, y, z = (cells @ inverse[:3, :3].T + inverse[:3, 3]).T
        seen = np.flatnonzero(z > 0)
        u, v = x[seen] * focal / z[seen] + cu + 0.5, y[seen] * focal / z[seen] + cv + 0.5
        inside = (u >= 1e-4) & (u < 640 - 1e-4) & (v >= 1e-4) & (v < 480 - 1e-4)
        seen, u, v = seen[inside], u[inside].astype(int), v[inside].astype(int)
        depth = depths[v, u] / 1000.0
        ratio = np.sqrt(1 + ((u - cu) / focal) ** 2 + ((v - cv) / focal) ** 2)
        distance = (depth - z[seen]) * ratio
        taken = (depth > 0) & (distance > -0.04)
        seen, value = seen[taken], np.minimum(distance[taken] / 0.04, 1.0)
        tsdf[seen] = (tsdf[seen] * weight[seen] + value) / (weight[seen] + 1)
        weight[seen] += 1
    return tsdf.reshape(100, 100, 100), weight.reshape(100, 100, 100)


def surface_points(tsdf: np.ndarray, weight: np.ndarray) -> int:
    """Number of points that Open3D's extract_point_cloud finds: edges of the inner cells on which the distance changes its sign."""
    count = 0
    good = (weight > 0) & (tsdf < 0.98) & (tsdf >= -0.98)
    for axis in range(3):
        this = tuple(slice(1, 98 if i == axis else 99) for i in range(3))
        next_ = tuple(slice(2, 99) if i == axis else slice(1, 99) for i in range(3))
        count += int((good[this] & good[next_] & (tsdf[this] * tsdf[next_] < 0)).sum())
    return count


def test_a_recorded_room_has_the_surface_that_open3d_publishes(flow, data):
    folder = data / "rgbd_open3d_redwood5"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    lines = (folder / "odometry.log").read_text().split("\n")
    matrices = [np.array([[float(value) for value in line.split()] for line in lines[5 * i + 1 : 5 * i + 5]]) for i in range(5)]
    images = [np.asarray(Image.open(folder / "depth" / f"{i:05d}.png")).astype(np.uint16) for i in range(5)]
    # What Open3D's documentation has for these five frames.
    assert surface_points(*open3d(list(zip(images, matrices, strict=True)))) == 2227

    rotations = [scipy.spatial.transform.Rotation.from_matrix(matrix[:3, :3]) for matrix in matrices]
    script = []
    for i, (depths, matrix, rotation) in enumerate(zip(images, matrices, rotations, strict=True)):
        script.append(send("pose", np.array([*matrix[:3, 3], *rotation.as_quat()]), i * 33 * MS))
        script.append(send("depth", depths, i * 33 * MS, shape=[480, 640]))
    plugin = {
        "voxel_size_m": 0.04,
        "shape": [100, 100, 100],
        "poses": {"camera": {"input": "pose"}},
        "inputs": [
            {
                "input": "depth",
                "pose": "camera",
                "camera": {"width": 640, "height": 480, "focal_px": [525, 525], "principal_px": [319.5, 239.5], "depth_m": [0.001, 4]},
            }
        ],
        "tsdf": {"truncation_m": 0.04, "distance": "ray"},
        "outputs": ["tsdf", "weight"],
        "emit_every": 5,
    }
    flow.sender(script)
    flow.robocache("node", {"plugins": [{"map": plugin}]}, {"depth": "sender/depth", "pose": "sender/pose"}, ["tsdf", "weight"])
    flow.collector({"tsdf": "node/tsdf", "weight": "node/weight"})
    done = flow.run()
    (tsdf,), (weight,) = done.received("sink", "tsdf"), done.received("sink", "weight")
    assert tsdf.metadata["frames_fused"] == 5
    tsdf, weight = (message.values.reshape(100, 100, 100) for message in (tsdf, weight))
    for matrix, rotation in zip(matrices, rotations, strict=True):
        matrix[:3, :3] = rotation.as_matrix()
    wanted, wanted_weight = open3d(list(zip(images, matrices, strict=True)))
    # Float32 decides the pixel of a few cells, and whether a few lie just within the truncation, otherwise than float64.
    same = weight == wanted_weight
    assert (~same).sum() < 40, (~same).sum()
    seen = same & (wanted_weight > 0)
    deviation = np.abs(tsdf / np.float32(0.04) - wanted)[seen]
    assert (deviation > 1e-4).sum() < 40, (deviation > 1e-4).sum()
    assert abs(surface_points(tsdf / 0.04, weight) - 2227) <= 3
