"""Tests of fuse, align, Recording and RecordingDataset against the oracle and each other."""

import multiprocessing
import os
import pickle

import convert
import numpy as np
import oracle
import pytest

import robocache as rc
from test_real_data import FUSED

COUNT = int(os.environ.get("ROBOCACHE_PYTHON_CASES", "60"))


def stack(observations, window: int, modalities: int) -> dict[str, np.ndarray]:
    """Stacks the oracle's observations as arrays by name."""
    shape = (len(observations), window)
    empty = np.empty((0, window, 0))
    return {
        "fused": np.stack([o.values.reshape(window, -1) for o in observations]) if observations else empty,
        "valid": np.array([o.valid for o in observations], bool).reshape(*shape, modalities),
        "age_ns": np.array([o.age for o in observations], np.int64).reshape(*shape, modalities),
        "timestamps_ns": np.array([o.times for o in observations], np.int64).reshape(shape),
    }


def check(observations: rc.Observations, wanted: dict[str, np.ndarray]) -> None:
    for name, array in wanted.items():
        got = getattr(observations, name)
        assert got.shape == array.shape and got.tobytes() == array.tobytes(), name


def check_dataset(dataset: rc.RecordingDataset, observations: rc.Observations) -> None:
    """Checks that the items of `dataset` are `observations`, read one by one in random order and several at once."""
    names = ("fused", "valid", "age_ns", "timestamps_ns", "epoch")
    assert len(dataset) == len(observations)
    order = np.random.default_rng(3).permutation(len(dataset))
    for i in order.tolist():
        item = dataset[i]
        assert tuple(sorted(item)) == tuple(sorted(names))
        for name in names:
            assert np.asarray(item[name]).tobytes() == getattr(observations, name)[i].tobytes(), (i, name)
    for some in (order[:50], order[:50].tolist(), tuple(order[:2].tolist()), slice(3, 40, 3)):
        several = dataset[some]
        wanted = list(some) if isinstance(some, tuple) else some
        for name in names:
            assert several[name].tobytes() == getattr(observations, name)[wanted].tobytes(), name


@pytest.mark.parametrize("name", FUSED)
def test_real_recordings(data, tmp_path, name):
    folder, config = FUSED[name]
    streams = convert.SOURCES[folder](data / folder)
    # The oracle is slow, so it gets the first samples.
    streams = {key: convert.Stream(s.stamps[:2400], s.values[:2400], s.batch) for key, s in streams.items()}
    arrays = {key: (stream.stamps, stream.values) for key, stream in streams.items()}
    config = config | {"dtype": "float32"}
    fused = rc.fuse(arrays, config, invalid=None)
    check(fused, stack(oracle.fuse(config, arrays), config["window"], len(arrays)))
    recording = rc.Recording(convert.write(tmp_path / "recording", streams))
    windows = recording.windows(config, invalid=None)
    check(windows, {key: getattr(fused, key) for key in ("fused", "valid", "age_ns", "timestamps_ns", "epoch")})
    check_dataset(rc.RecordingDataset(recording, config, invalid=None), fused)
    if all(stream.batch == 1 for stream in streams.values()):
        # Late samples depend on the order of the streams, which is that of a replay by stamp.
        impatient = config | {"max_wait_ms": 2}
        waited, fused_so = recording.windows(impatient, invalid=None), rc.fuse(arrays, impatient, invalid=None)
        assert waited.fused.tobytes() == fused_so.fused.tobytes() and waited.age_ns.tobytes() == fused_so.age_ns.tobytes()
        assert waited.late_samples == fused_so.late_samples
    for key, (stamps, values) in arrays.items():
        times, read = recording[key]
        assert np.array_equal(times, stamps) and read.tobytes() == values.tobytes()
    aligned = rc.align(arrays, config, invalid=None)
    for m, modality in enumerate(fused.modalities):
        one = aligned[modality]
        assert one.fused.tobytes() == np.ascontiguousarray(fused.of(modality)).tobytes()
        assert np.array_equal(one.valid[..., 0], fused.valid[..., m])
        assert np.array_equal(one.age_ns[..., 0], fused.age_ns[..., m])


def random_case(rng: np.random.Generator) -> tuple[dict, dict]:
    """Makes one to four streams with gaps and NaNs, and a configuration. No two stamps of a stream are equal, since the second of
    such samples may come too late, which the oracle does not know."""
    modalities, streams = [], {}
    for m in range(rng.integers(1, 5)):
        dim = int(rng.integers(1, 5))
        count = int(rng.integers(1, 60))
        steps = rng.choice([1, 3_000_000, 9_999_999, 10_000_000, 35_000_000], count)
        stamps = rng.integers(0, 40_000_000) + np.cumsum(steps)
        values = rng.normal(0, 10, (count, dim)).astype(rng.choice(["f4", "f8", "f2", "i2", "u1", "i8"]))
        if values.dtype.kind == "f" and count:
            values[rng.random((count, dim)) < 0.01] = np.nan
        modality = {"input": f"s{m}", "dim": dim, "interpolation": str(rng.choice(["previous", "nearest", "linear"]))}
        limits = ["max_age_ms"] if modality["interpolation"] != "linear" else ["max_gap_ms", "extrapolate_ms"]
        for limit in limits:
            if rng.random() < 0.5:
                modality[limit] = float(rng.choice([0, 5, 20.5, 100]))
        if rng.random() < 0.3:
            modality["latency_ms"] = float(rng.choice([0.5, 12.5, 33]))
        modalities.append(modality)
        streams[f"s{m}"] = (stamps.astype(np.int64), values)
    config = {
        "rate_hz": float(rng.choice([50, 100, 30])),
        "window": int(rng.integers(1, 6)),
        "stride": int(rng.integers(1, 4)),
        "emit_every": int(rng.integers(1, 4)),
        "fill_value": float(rng.choice([0, -1.5])),
        "dtype": str(rng.choice(["float32", "float16", "bfloat16"])),
        "modalities": modalities,
    }
    return config, streams


def check_marked(observations: rc.Observations, plain: rc.Observations) -> None:
    """Checks that `observations` has the bits of `plain`, except that each column of a modality that is not valid is NaN."""
    for name in ("valid", "age_ns", "timestamps_ns", "epoch"):
        assert getattr(observations, name).tobytes() == getattr(plain, name).tobytes(), name
    wanted, is_invalid = plain.fused.copy(), np.repeat(~plain.valid, np.diff(plain.offsets), axis=2)
    wanted[is_invalid] = 0x7FC0 if wanted.dtype == np.uint16 else np.nan
    assert observations.fused.tobytes() == wanted.tobytes()


@pytest.mark.filterwarnings("ignore:stream `s")
def test_random_rigs():
    rng = np.random.default_rng(5)
    observations = 0
    for _ in range(COUNT):
        config, streams = random_case(rng)
        fused = rc.fuse(streams, config, invalid=None)
        finite = {key: np.isfinite(values.astype(np.float32)).all(axis=1) for key, (_, values) in streams.items()}
        usable = {key: (stamps[finite[key]], values[finite[key]]) for key, (stamps, values) in streams.items()}
        if any(len(stamps) == 0 for stamps, _ in usable.values()):
            continue
        wanted = oracle.fuse(config, usable)
        check_marked(rc.fuse(streams, config), fused)
        check(fused, stack(wanted, config["window"], len(streams)) if wanted else {})
        assert len(fused) == len(wanted)
        assert {key: sum(each.values()) for key, each in fused.dropped.items()} == {
            key: int((~ok).sum()) for key, ok in finite.items() if not ok.all()
        }
        observations += len(fused)
    assert observations > COUNT * 5


def _first(dataset: rc.RecordingDataset) -> bytes:
    return dataset[0]["fused"].tobytes()


def test_a_dataset_goes_to_other_processes(tmp_path):
    rng = np.random.default_rng(0)
    stamps = np.arange(0, 2_000_000_000, 10_000_000)
    convert.write(tmp_path / "r", {"a": convert.Stream(stamps, rng.normal(size=(200, 3)).astype(np.float32))})
    config = {"rate_hz": 50, "window": 4, "modalities": [{"input": "x", "dim": 3, "interpolation": "linear"}]}
    dataset = rc.RecordingDataset(tmp_path / "r", config, streams={"x": "a"})
    again = pickle.loads(pickle.dumps(dataset))
    assert len(again) == len(dataset) == 100
    assert again[17]["fused"].tobytes() == dataset[17]["fused"].tobytes()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_first, [dataset]) == _first(dataset)
    with pytest.raises(IndexError, match="observation 100 of 100"):
        dataset[100]
    assert dataset[-1]["timestamps_ns"].tolist() == dataset[99]["timestamps_ns"].tolist()
    item = dataset[5]
    item["fused"][:] = 0
    assert dataset[5]["fused"].any()


def test_a_clock_that_goes_back():
    """Two rows of the same time are both stored, since windows before and after the clock jump have different
    values for that time."""
    stamps = np.concatenate([np.arange(0, 2000, 10), np.arange(0, 1000, 10)]) * 1_000_000
    values = np.arange(300, dtype=np.float32)
    config = {"rate_hz": 100, "window": 3, "modalities": [{"input": "a", "dim": 1, "interpolation": "previous"}]}
    fused = rc.fuse({"a": (stamps, values)}, config)
    assert fused.epoch.tolist() == [0] * 200 + [1] * 100
    assert fused.fused[:, -1, 0].tolist() == values.tolist()
    assert fused.late_samples == 0


def test_stamps_out_of_order_are_the_configurations_matter():
    stamps = np.array([0, 20, 10, 30, 40, 50]) * 1_000_000
    values = np.array([0, 2, 1, 3, 4, 5], np.float32)
    modality = {"input": "a", "dim": 1, "interpolation": "previous"}
    config = {"rate_hz": 100, "modalities": [modality]}
    late = rc.fuse({"a": (stamps, values)}, config)
    assert late.late_samples == 1 and late.fused[:, 0, 0].tolist() == [0, 0, 2, 3, 4, 5]
    sorted_in = rc.fuse({"a": (stamps, values)}, {**config, "modalities": [modality | {"reorder_ms": 15}]})
    assert sorted_in.late_samples == 0 and sorted_in.fused[:, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
