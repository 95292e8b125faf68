"""Tests of resample and voxelize on random arrays against the oracle."""

import os

import ml_dtypes
import numpy as np
import oracle
import pytest

import robocache as rc

COUNT = int(os.environ.get("ROBOCACHE_PYTHON_CASES", "60"))
MS = 1_000_000


def random_rule(rng) -> dict:
    rule = {"interpolation": str(rng.choice(["previous", "nearest", "linear"]))}
    for limit in ["max_gap_ms", "extrapolate_ms"] if rule["interpolation"] == "linear" else ["max_age_ms"]:
        if rng.random() < 0.6:
            rule[limit] = float(rng.choice([0, 2.5, 10, 40]))
    return rule


def answers(times, values, targets, rule, fill) -> tuple[np.ndarray, np.ndarray]:
    samples = oracle.Samples(times, values)
    found = [oracle.value_at(samples, int(t), rule) for t in targets]
    out = [np.full(values.shape[1], fill, np.float32) if value is None else value for value in found]
    return np.array(out, np.float32).reshape(len(targets), values.shape[1]), np.array([value is not None for value in found], bool)


def test_random_trajectories():
    rng = np.random.default_rng(8)
    valid_targets = 0
    for _ in range(COUNT):
        rows, dim = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        s, t = (rng.integers(0, 30, rows) for _ in range(2))
        if regular := rng.random() < 0.5:
            s[:], t[:] = s[0], t[0]
        rule, fill = random_rule(rng), float(rng.choice([0, -2, 0.5]))
        dtype = rng.choice(["f4", "f2"])
        times = [np.cumsum(rng.choice([0, 1, MS, 9 * MS, 20 * MS], n)).astype(np.int64) for n in s]
        values = [rng.normal(0, 5, (n, dim)).astype(dtype) for n in s]
        for each in values:
            each[rng.random(each.shape) < 0.03] = np.nan
        targets = [rng.integers(-MS, 200 * MS, n) for n in t]
        for have, aims in zip(times, targets, strict=True):
            if len(have) and len(aims):
                aims[0] = have[-1]
        wanted = [answers(*row, rule, fill) for row in zip(times, values, targets, strict=True)]
        got, valid = rc.resample(times, values, targets, invalid=None, fill_value=fill, **rule)
        nan = sum(int((~np.isfinite(each)).any(axis=1).sum()) for each in values)
        for row in range(rows):
            assert got[row].tobytes() == wanted[row][0].astype(dtype).tobytes()
            assert valid[row].tolist() == wanted[row][1].tolist()
            valid_targets += int(valid[row].sum())
        if regular:
            batch = rc.resample(np.stack(times), np.stack(values), np.stack(targets), config={**rule, "fill_value": fill}, invalid=None)
            assert batch.values.shape == (rows, t[0], dim) and batch.values.tobytes() == b"".join(map(np.ndarray.tobytes, got))
            assert batch.valid.tobytes() == b"".join(map(np.ndarray.tobytes, valid))
            assert batch.counters["dropped_nonfinite"] == nan
            assert batch.counters["invalid"] == int((~batch.valid).sum())
            one = rc.resample(times[0], values[0][:, 0], targets[0], invalid=None, fill_value=fill, **rule)
            if np.isfinite(values[0]).all():
                assert one.values.tobytes() == np.ascontiguousarray(got[0][:, 0]).tobytes()
    assert valid_targets > COUNT * 3


@pytest.mark.parametrize("layout", ["dense", "bits", "coo"])
def test_random_clouds(layout):
    rng = np.random.default_rng(9)
    kept = 0
    for _ in range(COUNT // 3 + 1):
        names = ["a", "b"][: rng.integers(1, 3)]
        extrinsic = {"translation_m": rng.normal(size=3).tolist(), "rotation_xyzw": rng.normal(size=4).tolist()}
        channels = ["occupancy"]
        if layout != "bits":
            channels += rng.permutation(["count", "mean_x", "mean_i", "max_i", "min_z"])[: rng.integers(0, 5)].tolist()
        config = {
            "origin_m": rng.uniform(-4, -1, 3).tolist(),
            "voxel_size_m": rng.uniform(0.2, 0.9, 3).tolist(),
            "shape": rng.integers(1, 16, 3).tolist(),
            "channels": channels,
            "layout": layout,
            "inputs": [{"input": name} | ({"extrinsic": extrinsic} if rng.random() < 0.5 else {}) for name in names],
        }
        if layout == "dense":
            config["dtype"] = str(rng.choice(["float32", "float16", "bfloat16"]))
        elif layout == "coo" and rng.random() < 0.4:
            config["max_voxels"] = int(rng.integers(1, 40))
        clouds = []
        for _ in names:
            points = rng.uniform(-4, 5, (int(rng.integers(0, 300)), 4)).astype(np.float32)
            points[rng.random(points.shape) < 0.01] = np.nan
            clouds.append(points)
        given = {name: dict(zip("xyzi", points.T, strict=True)) for name, points in zip(names, clouds, strict=True)}
        wanted = oracle.voxelize(config, given)
        # Clouds are given as a tensor or field by field.
        points = [points if rng.random() < 0.5 else dict(zip("xyzi", points.T, strict=True)) for points in clouds]
        one = len(points) == 1
        got = rc.voxelize(
            points[0] if one else points, fields=list("xyzi"), config=config, inputs=None if one else names
        )
        counters = {key: wanted.counters[key] for key in got.counters if key in wanted.counters}
        assert counters == {key: got.counters[key] for key in counters} and len(counters) == 5
        assert list(got.unusable.values()) == wanted.counters["unusable"]
        shape = config["shape"]
        if layout == "coo":
            cells = np.ravel_multi_index(got.coords.T.astype(np.int64), shape)
            assert cells.tolist() == wanted.cells.tolist()
            for column, channel in enumerate(channels):
                assert got.features[:, column].tobytes() == wanted.channels[channel].tobytes(), channel
        elif layout == "bits":
            occupied = np.unpackbits(got.values, bitorder="little")[: np.prod(shape)]
            assert np.flatnonzero(occupied).tolist() == wanted.cells.tolist()
        else:
            dtype = oracle.DTYPES[config["dtype"]]
            for c, channel in enumerate(channels):
                dense = np.zeros(np.prod(shape), np.float32)
                dense[wanted.cells] = wanted.channels[channel]
                assert got.values[c].tobytes() == dense.astype(dtype).tobytes(), channel
            assert got.values.shape == (len(channels), *shape)
        kept += got.counters["points_kept"]
    assert kept > COUNT * 3


def test_bfloat16_bits_in_and_out():
    """A library with bfloat16 hands it over by DLPack; NumPy gets and gives its bits as uint16."""
    values = np.array([[1.0], [2.0]], ml_dtypes.bfloat16)
    config = {"rate_hz": 100, "dtype": "bfloat16", "modalities": [{"input": "a", "dim": 1, "interpolation": "linear"}]}
    fused = rc.fuse({"a": (np.array([0, 20 * MS]), values.astype(np.float32))}, config).fused
    assert fused.dtype == np.uint16 and fused.view(ml_dtypes.bfloat16).ravel().tolist() == [1.0, 1.5, 2.0]


@pytest.mark.parametrize("fill", [float("nan"), np.float32("nan"), np.float64(-1.5)])
def test_numbers_of_a_configuration_are_those_of_yaml(tmp_path, fill):
    """A fill value may be NaN, which YAML can express and JSON can't."""
    times, values, targets = np.array([0, MS]), np.ones((2, 1), np.float32), np.array([0, 2 * MS])
    path = tmp_path / "robot.yml"
    path.write_text(f"resample: {{ interpolation: linear, fill_value: {'.nan' if np.isnan(fill) else fill} }}\n")
    got = rc.resample(times, values, targets, invalid=None, interpolation="linear", fill_value=fill)
    wanted = np.array([[1], [fill]], np.float32)
    assert got.values.tobytes() == rc.resample(times, values, targets, config=path, invalid=None).values.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", ["é", "a b", "😀", "NO", "0x1", "1e3", ".nan", "~", "a: b", "[a]", "tab\t", "#", "'", '"'])
def test_text_of_a_configuration_stays_text(name):
    config = {"rate_hz": 100, "modalities": [{"input": name, "dim": 1, "interpolation": "previous"}]}
    assert rc.fuse({name: (np.array([0]), np.array([1.0]))}, config).modalities == [name]
