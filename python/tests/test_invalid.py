"""Tests that values that are not valid are the same live and offline: NaN, a number, or the node's `fill_value`."""

import math

import numpy as np
import pytest

import robocache as rc

S = 1_000_000_000
TIMES = np.arange(0, S, S // 10)
VALUES = np.arange(20, dtype=np.float32).reshape(10, 2) + 1
# Every second target has a sample that is too old, and targets before the start have none.
CONFIG = {
    "rate_hz": 20,
    "window": 2,
    "fill_value": -7.0,
    "modalities": [
        {"input": "a", "dim": 2, "interpolation": "previous", "max_age_ms": 20},
        {"input": "b", "dim": 1, "interpolation": "linear"},
    ],
}
STREAMS = {"a": (TIMES, VALUES), "b": (np.arange(0, S, S // 100), np.arange(100, dtype=np.float32))}


def of_dtype(dtype: str, values: np.ndarray) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else values


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("invalid", "wanted"), [({}, math.nan), ({"invalid": 5.0}, 5.0), ({"invalid": None}, -7.0)])
def test_fuse_and_align_mark_whole_modalities(dtype, invalid, wanted):
    config = CONFIG | {"dtype": dtype}
    fused = rc.fuse(STREAMS, config, **invalid)
    a = of_dtype(dtype, fused.of("a"))
    is_invalid = ~fused.valid[..., 0]
    assert is_invalid.any() and not is_invalid.all()
    assert np.array_equal(a[is_invalid], np.full((is_invalid.sum(), 2), wanted, a.dtype), equal_nan=True)
    assert np.isfinite(a[~is_invalid]).all() and (a[~is_invalid] > 0).all()
    aligned = rc.align(STREAMS, config, **invalid)["a"]
    assert aligned.fused.tobytes() == fused.of("a").tobytes()


def test_what_is_partly_valid_is_marked_as_live():
    """Marks all groups of a modality, if one is invalid: `valid` is for the whole modality."""
    groups = [
        {"channels": [0, 1], "interpolation": "previous", "max_age_ms": 20},
        {"channels": [1, 2], "interpolation": "previous"},
    ]
    config = {"rate_hz": 20, "modalities": [{"input": "a", "dim": 2, "groups": groups}]}
    plain = rc.fuse({"a": STREAMS["a"]}, config, invalid=None)
    marked = rc.fuse({"a": STREAMS["a"]}, config)
    assert (plain.fused[~plain.valid[..., 0]][:, 1] > 0).all()
    live = rc.Observation.from_message(plain.fused[1].ravel(), metadata_of(plain, 1)).fused
    assert live.tobytes() == marked.fused[1].tobytes() and np.isnan(live).all()


def metadata_of(observations: rc.Observations, i: int) -> dict:
    """Makes the metadata that a node would give observation `i`."""
    return {
        "shape": list(observations.fused.shape[1:]),
        "modalities": observations.modalities,
        "offsets": observations.offsets,
        "valid": observations.valid[i].astype(int).ravel().tolist(),
        "age_ns": observations.age_ns[i].ravel().tolist(),
        "timestamps_ns": observations.timestamps_ns[i].tolist(),
        "epoch": int(observations.epoch[i]),
        "late_samples": 0,
    }


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
@pytest.mark.parametrize(("invalid", "wanted"), [({}, math.nan), ({"invalid": 5.0}, 5.0), ({"invalid": None}, -7.0)])
def test_resample(dtype, invalid, wanted):
    targets = np.array([-1, 0, S // 20, S - S // 10, S])
    for times, values, where in (
        (TIMES, VALUES.astype(dtype), targets),
        ([TIMES], [VALUES.astype(dtype)], [targets]),
    ):
        got, valid = rc.resample(times, values, where, interpolation="linear", fill_value=-7.0, **invalid)
        got, valid = (got[0], valid[0]) if isinstance(got, list) else (got, valid)
        assert valid.tolist() == [False, True, True, True, False]
        assert np.array_equal(got[~valid], np.full((2, 2), wanted, dtype), equal_nan=True)
        assert np.isfinite(got[valid]).all()


def test_samples_of_integers_become_float32_and_are_marked():
    fused = rc.fuse({"a": (TIMES, VALUES.astype(np.int16)), "b": STREAMS["b"]}, CONFIG)
    assert fused.fused.dtype == np.float32 and np.isnan(fused.of("a")[~fused.valid[..., 0]]).all()


@pytest.mark.parametrize("invalid", ["nan", True, [0.0]])
def test_what_is_no_number_is_refused(invalid):
    for call in (
        lambda: rc.fuse(STREAMS, CONFIG, invalid=invalid),
        lambda: rc.resample(TIMES, VALUES, TIMES, invalid=invalid),
    ):
        with pytest.raises(TypeError, match=r"`invalid` is a \w+ \(allowed: a number, None for the `fill_value`\)"):
            call()
    with pytest.raises(ValueError, match="`invalid` is 100000, which float16 can't hold"):
        rc.fuse(STREAMS, CONFIG | {"dtype": "float16"}, invalid=1e5)
