"""The oracles on timelines that a reader can check by hand, and the converter's files as any Arrow reader sees them."""

import numpy as np
import pyarrow as pa
import pytest

import convert
import oracle
from oracle import MS


@pytest.mark.parametrize(
    ("rule", "t_ms", "value"),
    [
        ({"interpolation": "previous"}, 15, 1),
        ({"interpolation": "previous", "max_age_ms": 4}, 15, None),
        ({"interpolation": "previous"}, 9, None),
        ({"interpolation": "nearest"}, 15, 1),
        ({"interpolation": "nearest"}, 16, 2),
        ({"interpolation": "nearest", "max_age_ms": 3}, 16, None),
        ({"interpolation": "nearest"}, 0, 1),
        ({"interpolation": "linear"}, 15, 1.5),
        ({"interpolation": "linear", "max_gap_ms": 10}, 15, 1.5),
        ({"interpolation": "linear", "max_gap_ms": 9}, 15, None),
        ({"interpolation": "linear", "max_gap_ms": 9}, 20, 2),
        ({"interpolation": "linear"}, 41, None),
        ({"interpolation": "linear", "extrapolate_ms": 1}, 41, 4),
    ],
)
def test_the_value_at_a_target(rule, t_ms, value):
    samples = oracle.Samples([40 * MS, 10 * MS, 20 * MS, 30 * MS], [[4.0], [1.0], [2.0], [np.nan]])
    found = oracle.value_at(samples, t_ms * MS, rule)
    assert found is None if value is None else found == [value]


def test_of_two_samples_with_one_time_the_later_arrival_wins():
    assert oracle.Samples([5, 5], [[1.0], [2.0]]).values == [[2.0]]


def test_observations_start_where_all_have_a_sample_and_end_at_the_newest():
    config = {
        "rate_hz": 100,
        "window": 2,
        "modalities": [
            {"input": "a", "dim": 1, "interpolation": "linear"},
            {"input": "b", "dim": 1, "interpolation": "previous", "latency_ms": 5},
        ],
    }
    streams = {"a": ([0, 35 * MS], [[0.0], [35.0]]), "b": ([17 * MS, 46 * MS], [[7.0], [8.0]])}
    got = oracle.fuse(config, streams)
    assert [o.stamp // MS for o in got] == [20, 30, 40]
    assert got[0].values.tolist() == [[10.0, 0.0], [20.0, 7.0]]
    assert got[0].valid == [1, 0, 1, 1]
    assert got[0].age == [10 * MS, -1, 20 * MS, 8 * MS]
    assert got[2].values.tolist() == [[30.0, 7.0], [0.0, 7.0]]


def test_voxels_of_a_few_points():
    config = {
        "origin_m": [0, 0, 0],
        "voxel_size_m": [1, 1, 1],
        "shape": [2, 2, 2],
        "channels": ["count", "mean_x", "max_ring"],
        "inputs": [{"input": "lidar"}],
    }
    cloud = {
        "x": np.array([0.5, 0.25, 1.5, 2.0, np.nan], np.float32),
        "y": np.array([0.5, 0.5, 0.5, 0.5, 0.5], np.float32),
        "z": np.array([0.5, 0.5, 1.5, 0.5, 0.5], np.float32),
        "ring": np.array([3, 5, 1, 1, 1], np.uint16),
    }
    got = oracle.voxelize(config, {"lidar": cloud})
    assert got.cells.tolist() == [0, 5]
    assert got.channels["count"].tolist() == [2, 1]
    assert got.channels["mean_x"].tolist() == [0.375, 1.5]
    assert got.channels["max_ring"].tolist() == [5, 1]
    dropped = {"dropped_nonfinite": 1, "dropped_outside": 1, "dropped_overflow": 0}
    assert got.counters == {"points_in": 5, "points_kept": 3, **dropped, "unusable": [0]}


def test_a_quarter_turn_takes_x_to_y():
    x, y, z = oracle.move([np.array([1.0]), np.array([0.0]), np.array([0.0])], {"rotation_xyzw": [0, 0, 1, 1], "translation_m": [0, 0, 2]})
    assert np.allclose([x[0], y[0], z[0]], [0, 1, 2], atol=1e-7)


def test_the_converter_writes_what_the_format_says(tmp_path):
    streams = {
        "imu": convert.Stream(np.array([10, 20, 30]), np.arange(6, dtype=np.float32).reshape(3, 2), batch=2),
        "speed": convert.Stream(np.array([15]), np.array([[7.0]], np.float32)),
        "lidar": convert.Clouds([5], [{"x": np.array([1, 2], np.float32), "ring": np.array([3, 4], np.uint16)}]),
    }
    convert.write(tmp_path, streams)
    tables = {name: pa.ipc.open_file(tmp_path / f"{name}.arrow").read_all() for name in streams}
    assert tables["imu"].to_pydict() == {
        "timestamp_ns": [20, 30],
        "data": [[0, 1, 2, 3], [4, 5]],
        "shape": [[2, 2], [1, 2]],
        "timestamps_ns": [[10, 20], [30]],
    }
    assert tables["speed"].to_pydict() == {"timestamp_ns": [15], "data": [[7.0]], "shape": [[1]]}
    assert tables["lidar"].to_pydict() == {"timestamp_ns": [5], "x": [[1, 2]], "ring": [[3, 4]]}
    assert tables["lidar"].schema.field("ring").type == pa.list_(pa.uint16())
