"""Voxel grids of whole dataflows against NumPy: every cell, every channel, in each layout.

Every value has the oracle's bits. A mean also equals the mean in float64, to the resolution of its fixed-point sum.
"""

import numpy as np
import pyarrow as pa
import pytest

import oracle
from harness import Message, same_bits, send
from oracle import DTYPES, MS

CHANNELS = ["occupancy", "count", "mean_x", "mean_y", "mean_z", "mean_intensity", "max_z", "min_intensity", "max_ring"]


def cloud(stamp, points, output="lidar"):
    return send(output, pa.StructArray.from_arrays([pa.array(values) for values in points.values()], list(points)), stamp)


def random_points(seed, n, reach=9.0):
    rng = np.random.default_rng(seed)
    points = {axis: rng.normal(0, reach / 2, n).astype(np.float32) for axis in "xyz"}
    points["intensity"] = rng.uniform(0, 100, n).astype(np.float32)
    points["ring"] = rng.integers(0, 64, n).astype(np.uint16)
    points["t_ns"] = np.sort(rng.integers(0, 100_000_000, n)).astype(np.uint32)
    return points


def points_at_faces(config: dict, seed: int) -> dict:
    """Points on the faces of cells and one float32 to either side, where rounding decides the cell; some are outside the grid."""
    rng = np.random.default_rng(seed)
    points = {}
    for axis, origin, size, cells in zip("xyz", config["origin_m"], config["voxel_size_m"], config["shape"], strict=True):
        faces = (origin + rng.integers(-2, cells + 3, 6000) * size).astype(np.float32)
        aside = rng.choice([-np.inf, 0, np.inf], 6000).astype(np.float32)
        points[axis] = np.where(aside == 0, faces, np.nextafter(faces, aside))
    return points


def check(message: Message, config: dict, clouds: dict) -> oracle.Voxels:
    """Checks that a message of `voxels` is the grid that the oracle makes of `clouds`; returns the oracle's grid."""
    wanted = oracle.voxelize(config, clouds)
    metadata, shape = message.metadata, config["shape"]
    for key, value in wanted.counters.items():
        assert metadata[key] == value, key
    assert metadata["points_in"] == metadata["points_kept"] + sum(metadata[f"dropped_{why}"] for why in ("nonfinite", "outside", "overflow"))
    assert metadata["channels"] == config["channels"]
    assert metadata["grid_shape"] == shape
    assert np.allclose(metadata["origin_m"], config["origin_m"]) and np.allclose(metadata["voxel_size_m"], config["voxel_size_m"])
    assert metadata["device"] and metadata["compute_us"] >= 0
    dtype = DTYPES[config.get("dtype", "float32")]
    match config["layout"]:
        case "coo":
            got = message.values
            coords = np.stack(np.unravel_index(wanted.cells, shape), axis=1)
            assert got["coords"].dtype == np.int32 and np.array_equal(got["coords"], coords)
            assert got["features"].dtype == np.float32
            for i, (channel, values) in enumerate(wanted.channels.items()):
                assert same_bits(got["features"][:, i], values), channel
                if channel in wanted.means:
                    mean, quantum = wanted.means[channel]
                    assert np.allclose(got["features"][:, i], mean, rtol=1e-6, atol=quantum), channel
        case "dense":
            assert metadata["shape"] == [len(config["channels"]), *shape]
            grid = message.values.view(dtype).reshape(len(config["channels"]), -1)
            for got, (channel, values) in zip(grid, wanted.channels.items(), strict=True):
                assert same_bits(got[wanted.cells], values.astype(dtype)), channel
                empty = np.ones(got.size, bool)
                empty[wanted.cells] = False
                assert not got[empty].any(), channel
        case "bits":
            assert metadata["shape"] == shape
            occupied = np.zeros(-(-np.prod(shape) // 8) * 8, np.uint8)
            occupied[wanted.cells] = 1
            assert message.values.dtype == np.uint8
            assert np.array_equal(message.values, np.packbits(occupied, bitorder="little"))
    return wanted


def grid(resolution: float, reach: tuple, layout: str, **keys) -> dict:
    """A grid around the sensor. A dense one must fit the 64 MiB that dora takes on edges with backpressure."""
    shape = [round(2 * r / resolution) for r in reach]
    channels = {"dense": ["occupancy", "count", "mean_z"], "bits": ["occupancy"], "coo": CHANNELS}[layout]
    return {
        "origin_m": [-float(r) for r in reach],
        "voxel_size_m": [resolution] * 3,
        "shape": shape,
        "channels": channels,
        "layout": layout,
        "inputs": [{"input": "lidar"}],
        **keys,
    }


def voxelize(flow, name: str, config: dict, inputs: dict) -> None:
    flow.robocache("voxelize", {"voxelize": config}, inputs, ["voxels"], name=name, shared_memory_pool_size="256MB")
    flow.collector({"voxels": f"{name}/voxels"}, name=f"sink_{name}")


@pytest.mark.parametrize(
    ("recording", "resolutions", "reach"),
    [("ouster_os1_128_3scans", (0.2, 0.5), (25.6, 25.6, 6.0)), ("velodyne_vlp16_4scans", (0.1, 0.25), (12.8, 12.8, 3.0))],
)
def test_real_sweeps_in_three_layouts_at_two_resolutions(flow, data, recording, resolutions, reach):
    import convert

    clouds = convert.SOURCES[recording](data / recording)["lidar"]
    folder = convert.write(flow.folder / "recording", {"lidar": clouds})
    flow.robocache("replay", {"replay": {"path": str(folder), "speed": "max"}}, outputs=["lidar"])
    configs = {f"{layout}_{i}": grid(r, reach, layout) for layout in ("dense", "bits", "coo") for i, r in enumerate(resolutions)}
    for name, config in configs.items():
        voxelize(flow, name, config, {"lidar": "replay/lidar"})
    done = flow.run(timeout=180)
    for name, config in configs.items():
        got = done.received(f"sink_{name}")
        assert [m.stamp for m in got] == clouds.stamps
        for message, fields in zip(got, clouds.fields, strict=True):
            wanted = check(message, config, {"lidar": fields})
            assert len(wanted.cells) > 500, "a sweep that is hardly in the grid tests little"


def test_every_kind_of_cloud_and_of_output(flow):
    """One cloud as a struct and as tensors, with holes, into every layout and every element type."""
    points = random_points(1, 20_000)
    points["x"][::97], points["z"][5::101] = np.nan, np.inf
    names = ["x", "y", "z", "intensity"]
    table = np.stack([points[name] for name in names], axis=1)
    integers = {name: np.round(points[name] * 4).clip(-100, 100) for name in "xyz" if name != "x"}
    integers = {"x": np.arange(20_000) % 7, **{k: np.nan_to_num(v, posinf=50) for k, v in integers.items()}}
    steps = [
        cloud(1 * MS, points),
        send("lidar", table, 2 * MS, shape=list(table.shape), fields=names),
        send("lidar", table.astype(np.float64), 3 * MS, fields=names),
        send("lidar", table.astype(np.float16), 4 * MS, fields=names),
        send("lidar", table.astype(DTYPES["bfloat16"]).view(np.uint16), 5 * MS, fields=names, dtype="bfloat16"),
        cloud(6 * MS, {k: v.astype(np.int16) for k, v in integers.items()} | {"intensity": points["ring"].astype(np.uint8)}),
    ]
    half, brain = (table.astype(DTYPES[name]).astype(np.float32) for name in ("float16", "bfloat16"))
    wanted = [points] + [dict(zip(names, t.T, strict=True)) for t in (table, table, half, brain)]
    wanted.append({k: v.astype(np.int16) for k, v in integers.items()} | {"intensity": points["ring"]})
    small = (8.0, 8.0, 4.0)
    channels = ["occupancy", "count", "mean_x", "mean_y", "mean_z", "mean_intensity", "max_intensity", "min_z", "max_x"]
    configs = {f"dense_{dtype}": grid(0.5, small, "dense", dtype=dtype, channels=channels) for dtype in DTYPES}
    configs |= {"bits": grid(0.5, small, "bits"), "coo": grid(0.25, small, "coo", channels=channels)}
    configs["few"] = grid(0.25, small, "coo", channels=channels, max_voxels=300)
    # Not a cube, and a number of cells that is not a multiple of eight.
    configs["odd"] = {**grid(0.5, small, "bits"), "shape": [7, 5, 3], "origin_m": [-1.5, -1.0, 0.25], "voxel_size_m": [0.4, 0.5, 0.7]}
    flow.sender(steps)
    for name, config in configs.items():
        voxelize(flow, name, config, {"lidar": "sender/lidar"})
    done = flow.run()
    for name, config in configs.items():
        got = done.received(f"sink_{name}")
        assert [m.stamp // MS for m in got] == [1, 2, 3, 4, 5, 6], done.logs[name]
        for message, fields in zip(got, wanted, strict=True):
            check(message, config, {"lidar": fields})
        if "dtype" in config:
            assert got[0].metadata["dtype"] == config["dtype"]
    assert done.received("sink_few")[0].metadata["dropped_overflow"] > 0


def test_a_value_that_is_unusable_leaves_its_point_where_it_is(flow):
    """Fields of the clouds have NaN, infinity, nulls, and values too large for a mean. The times of a sweep have several types."""
    points = random_points(31, 20_000)
    points["intensity"][::7], points["intensity"][1::11], points["intensity"][2::13] = np.nan, -np.inf, 1e30
    config = grid(0.5, (8.0, 8.0, 4.0), "coo", channels=["max_ring", "count", "mean_x", "mean_t_ns", "mean_intensity", "min_intensity"])
    kinds = [points | {"t_ns": points["t_ns"].astype(kind)} for kind in (np.uint32, np.float32, np.float64, np.int64)]
    nulls = {name: pa.array(values, mask=np.arange(20_000) % 5 == i) for i, (name, values) in enumerate(points.items())}
    flow.sender([cloud(stamp * MS, kind) for stamp, kind in enumerate(kinds, start=1)] + [cloud(9 * MS, nulls)])
    voxelize(flow, "voxelize", config, {"lidar": "sender/lidar"})
    done = flow.run()
    *got, with_nulls = done.received("sink_voxelize")
    for message, fields in zip(got, kinds, strict=True):
        wanted = check(message, config, {"lidar": fields})
        assert wanted.counters["unusable"][:2] == [0, 0] and wanted.counters["unusable"][2] > 3000
    holes = {name: np.where(np.arange(20_000) % 5 == i, np.nan, values.astype(np.float64)) for i, (name, values) in enumerate(points.items())}
    wanted = check(with_nulls, config, {"lidar": holes})
    assert wanted.counters["dropped_nonfinite"] == 12_000 and wanted.counters["unusable"][0] > 2000
    words = "values of `intensity` are left out of its channels (usable: finite, with a magnitude up to 2^40"
    assert words in done.logs["voxelize"], done.logs["voxelize"]


def test_a_value_that_the_type_can_not_hold_is_its_greatest(flow):
    points = {axis: np.full(70_000, 0.25, np.float32) for axis in "xyz"} | {"intensity": np.full(70_000, -1e6, np.float32)}
    config = grid(0.5, (1.0, 1.0, 1.0), "dense", dtype="float16", channels=["count", "mean_x", "min_intensity"])
    flow.sender([cloud(MS, points)])
    voxelize(flow, "voxelize", config, {"lidar": "sender/lidar"})
    done = flow.run()
    (message,) = done.received("sink_voxelize")
    assert message.values.reshape(3, -1).sum(axis=1).tolist() == [65504, 0.25, -65504]
    assert (message.metadata["saturated"], message.metadata["points_kept"]) == (2, 70_000)
    assert "2 values are beyond float16" in done.logs["voxelize"], done.logs["voxelize"]


def test_columns_that_nothing_asks_for_refuse_no_cloud(flow):
    points = random_points(32, 3000)
    odd = {"label": ["a"] * 3000, "is_ground": [True] * 3000, "when": pa.array([5] * 3000, pa.timestamp("ms"))}
    one_row = {name: pa.array([values], pa.large_list(pa.from_numpy_dtype(values.dtype))) for name, values in points.items()}
    config = grid(0.5, (8.0, 8.0, 4.0), "coo", channels=["count", "mean_intensity"])
    labels = grid(0.5, (8.0, 8.0, 4.0), "coo", channels=["count", "max_label", "max_when"])
    flow.sender([cloud(MS, points | odd), cloud(2 * MS, one_row)])
    voxelize(flow, "voxelize", config, {"lidar": "sender/lidar"})
    voxelize(flow, "labels", labels, {"lidar": "sender/lidar"})
    done = flow.run()
    got = done.received("sink_voxelize")
    assert [m.stamp // MS for m in got] == [1, 2], done.logs["voxelize"]
    for message in got:
        check(message, config, {"lidar": points})
    assert done.received("sink_labels") == []
    assert "field `label` is Utf8 (allowed: arrays of floats" in done.logs["labels"], done.logs["labels"]


def test_a_grid_that_can_not_be_sent_is_refused_at_the_start(flow):
    """The grid is larger than the 64 MiB that dora carries on an edge with backpressure."""
    flow.sender([], name="sensors")
    flow.nodes[0]["outputs"] = ["lidar"]
    config = grid(0.05, (8.0, 8.0, 4.0), "dense")
    flow.robocache("voxelize", {"voxelize": config}, {"lidar": "sensors/lidar"}, ["voxels"], shared_memory_pool_size="512MB")
    flow.collector({"voxels": "voxelize/voxels"})
    done = flow.run(code=None)
    assert done.code != 0
    words = "voxelize: shape: [320, 320, 160] as `dense` is 196608000 bytes a grid (dora carries at most 67108864 to a consumer with"
    assert words in done.logs["voxelize"], done.logs["voxelize"]


def test_points_on_the_faces_of_cells(flow):
    """Cells have sizes whose reciprocals are not exact: dividing by the size, not multiplying by the reciprocal, would put some
    points into other cells."""
    config = grid(0.5, (8.0, 8.0, 4.0), "coo", channels=["count", "mean_x", "max_y"])
    config |= {"origin_m": [-1.7, -2.3, -0.9], "voxel_size_m": [0.3, 0.7, 0.11], "shape": [43, 17, 40]}
    points = points_at_faces(config, 21)
    flow.sender([cloud(1, points)])
    voxelize(flow, "voxelize", config, {"lidar": "sender/lidar"})
    (message,) = flow.run().received("sink_voxelize")
    check(message, config, {"lidar": points})
    x, size = points["x"] - np.float32(config["origin_m"][0]), np.float32(config["voxel_size_m"][0])
    assert (np.floor(x / size) != np.floor(x * (np.float32(1) / size))).sum() > 10


def test_several_lidars_with_extrinsics_make_one_grid(flow):
    """Front at 10 Hz, rear 4 ms later and without one sweep, roof at 5 Hz: metadata tells which clouds are in a grid."""
    turned = {"rotation_xyzw": [0.0, 0.0, 0.70710678, 0.70710678], "translation_m": [1.5, 0.0, 0.5]}
    tilted = {"rotation_xyzw": [0.1, -0.2, 0.3, 0.9], "translation_m": [-1.25, 0.1, 1.75]}
    config = grid(0.25, (8.0, 8.0, 4.0), "coo", max_wait_ms=150)
    config["inputs"] = [{"input": "front"}, {"input": "rear", "extrinsic": turned}, {"input": "roof", "extrinsic": tilted}]
    stamps = {"front": [0, 100, 200, 300], "rear": [4, 104, 304], "roof": [50, 250]}
    clouds = {(name, t): random_points(len(name) * 1000 + t, 5000) for name, times in stamps.items() for t in times}
    steps = [cloud(1000 * MS + t * MS, clouds[name, t], name) for name, t in sorted(clouds, key=lambda key: key[1])]
    flow.sender(steps)
    voxelize(flow, "voxelize", config, {name: f"sender/{name}" for name in stamps})
    done = flow.run()
    got = done.received("sink_voxelize")
    # The first grid is complete at 50. Then front 100 and rear 104 wait for the roof until 250, 150 ms past the oldest of them;
    # front 200 has taken the place of front 100. The rest is flushed when the inputs close.
    grids = [
        (50, {"front": 0, "rear": 4, "roof": 50}),
        (250, {"front": 200, "rear": 104, "roof": 250}),
        (304, {"front": 300, "rear": 304}),
    ]
    assert [m.stamp // MS - 1000 for m in got] == [stamp for stamp, _ in grids]
    for message, (stamp, taken) in zip(got, grids, strict=True):
        check(message, config, {name: clouds[name, t] for name, t in taken.items()})
        assert message.metadata["inputs"] == ["front", "rear", "roof"]
        assert message.metadata["inputs_valid"] == [int(name in taken) for name in stamps]
        assert message.metadata["inputs_age_ns"] == [(stamp - taken[name]) * MS if name in taken else -1 for name in stamps]


def test_a_cloud_that_is_refused_when_its_grid_is_made_is_not_in_it(flow):
    """Intensities as floats and as 32-bit integers don't go into one mean: the second cloud is refused."""
    points = {name: random_points(seed, 2000) for seed, name in enumerate(("front", "rear"), start=41)}
    points["rear"]["intensity"] = points["rear"]["intensity"].astype(np.uint32)
    config = grid(0.5, (8.0, 8.0, 4.0), "coo", channels=["count", "mean_intensity"])
    config["inputs"] = [{"input": "front"}, {"input": "rear"}]
    flow.sender([cloud(10 * MS, points["front"], "front"), cloud(14 * MS, points["rear"], "rear")])
    voxelize(flow, "voxelize", config, {name: f"sender/{name}" for name in points})
    done = flow.run()
    (message,) = done.received("sink_voxelize")
    check(message, config, {"front": points["front"]})
    # The stamp of the grid is that of the cloud in it.
    assert message.stamp == 10 * MS
    assert (message.metadata["inputs_valid"], message.metadata["inputs_age_ns"]) == ([1, 0], [0, -1])
    assert "field `intensity` is uint32 here" in done.logs["voxelize"], done.logs["voxelize"]


def test_the_order_of_points_and_of_inputs_changes_no_bit(flow):
    points, others = random_points(5, 30_000), random_points(6, 30_000)
    order = np.random.default_rng(7).permutation(30_000)
    shuffled = {name: values[order] for name, values in points.items()}
    config = grid(0.5, (8.0, 8.0, 4.0), "coo")
    config["inputs"] = [{"input": "a"}, {"input": "b"}]
    sent = [(points, "a"), (others, "b"), (others, "b"), (shuffled, "a"), (others, "a"), (shuffled, "b")]
    flow.sender([cloud(stamp, cloud_of, name) for stamp, (cloud_of, name) in enumerate(sent, start=1)])
    voxelize(flow, "voxelize", config, {"a": "sender/a", "b": "sender/b"})
    first, *rest = flow.run().received("sink_voxelize")
    assert len(rest) == 2
    for other in rest:
        assert same_bits(first.values, other.values)
