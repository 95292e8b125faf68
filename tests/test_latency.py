"""Latencies between channels of a recording, and statistics of their stamps, against SciPy and NumPy on the same signals."""

import json
import pathlib
import subprocess

import numpy as np
import pytest
import scipy.signal

import convert

COMMAND = pathlib.Path(__file__).parents[1] / "target" / "release" / "robocache"
MS = 1_000_000


def movement(rng: np.random.Generator, hz: float):
    """A random signal without frequencies above `hz`, as a function of time."""
    size, speed, phase = rng.random((40, 1)), 2 * np.pi * hz * rng.random((40, 1)), 2 * np.pi * rng.random((40, 1))
    return lambda t: (size * np.sin(speed * t + phase)).sum(axis=0)


def stream(signal, rate_hz: float, seconds: float, lag_ms: float, rng: np.random.Generator, jitter: float = 0.2) -> convert.Stream:
    steps = (np.arange(int(seconds * rate_hz)) + rng.uniform(-jitter, jitter, int(seconds * rate_hz))) / rate_hz
    stamps = (steps * 1e9).astype(np.int64) + 1_700_000_000_000_000_000
    seen = (stamps - 1_700_000_000_000_000_000) * 1e-9 - lag_ms * 1e-3
    return convert.Stream(stamps, np.stack([np.zeros(len(stamps)), signal(seen)], axis=1).astype(np.float32))


def robocache(*arguments: object) -> dict:
    done = subprocess.run([COMMAND, *arguments, "--json"], capture_output=True, text=True, timeout=180)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def found(folder, a: convert.Stream, b: convert.Stream) -> dict:
    convert.write(folder, {"a": a, "b": b})
    return robocache("latency", folder, "--a", "a[1]", "--b", "b[1]")


def scipy_curve(a: convert.Stream, b: convert.Stream, most: int = 500, half: int = 10) -> np.ndarray:
    """Correlation at lags of -most to most ms, by the steps of the documentation, with NumPy and SciPy."""
    start, end = max(a.stamps[0], b.stamps[0]), min(a.stamps[-1], b.stamps[-1])
    grid = np.arange(start, end + 1, MS)
    signals = []
    for of in (a, b):
        level = np.interp((grid - start).astype(float), (of.stamps - start).astype(float), of.values[:, 1].astype(float))
        speed = np.full(len(grid), np.nan)
        speed[half:-half] = level[2 * half :] - level[: -2 * half]
        speed = (speed - np.nanmean(speed)) / np.nanstd(speed)
        signals.append(np.nan_to_num(speed))
    a, b = signals
    products = scipy.signal.correlate(b, a, mode="full")[len(a) - 1 - most : len(a) + most]
    energy = []
    for lag in range(-most, most + 1):
        n = len(a) - abs(lag)
        (from_a, from_b) = (-lag, 0) if lag < 0 else (0, lag)
        energy.append((a[from_a : from_a + n] ** 2).sum() * (b[from_b : from_b + n] ** 2).sum())
    return products / np.sqrt(energy)


@pytest.mark.parametrize("lag_ms", [0.0, 45.0, -120.5, 333.3])
def test_known_lags_of_random_signals_are_found_and_the_curve_is_scipys(tmp_path, lag_ms):
    rng = np.random.default_rng(int(lag_ms * 10) % 1000)
    signal = movement(rng, 4.0)
    a, b = stream(signal, 500, 40, 0.0, rng), stream(signal, 60, 40, lag_ms, rng)
    said = found(tmp_path, a, b)
    lag, curve = said["latency_ms"], said["curve"]
    assert abs(lag - lag_ms) < 0.5
    wanted = scipy_curve(a, b)
    assert (curve["first_ms"], curve["step_ms"], len(curve["values"])) == (-500, 1, 1001)
    assert abs(np.array(curve["values"]) - wanted).max() < 1e-4
    assert abs(lag - (wanted.argmax() - 500)) <= 1.0


def test_noise_and_still_signals_are_refused(tmp_path):
    rng = np.random.default_rng(1)
    a = stream(movement(rng, 4.0), 500, 20, 0.0, rng)
    for i, other in enumerate([lambda t: rng.normal(size=len(t)), movement(np.random.default_rng(2), 4.0)]):
        said = found(tmp_path / str(i), a, stream(other, 100, 20, 0.0, rng))
        assert "the highest correlation is" in said["refused"] and "latency_ms" not in said, said
    said = found(tmp_path / "still", a, stream(lambda t: np.full(len(t), 3.0), 100, 20, 0.0, rng))
    assert "channel b hardly moves" in said["refused"], said


def test_the_statistics_of_a_stream_are_numpys(tmp_path):
    rng = np.random.default_rng(5)
    signal = movement(rng, 4.0)
    a, b = stream(signal, 200, 30, 0.0, rng), stream(signal, 50, 30, 20.0, rng, jitter=0.0)
    keep = np.ones(len(b.stamps), bool)
    keep[[200, 201, 202, 700]] = False
    b = convert.Stream(b.stamps[keep], b.values[keep])
    convert.write(tmp_path, {"a": a, "b": b})
    said_a, said_b = robocache("info", tmp_path)["streams"]
    steps = np.diff(a.stamps)
    p99 = np.sort(steps)[-(-len(steps) * 99 // 100) - 1] * 1e-6
    assert said_a["messages"] == len(a.stamps) and said_a["rate_hz"] == pytest.approx(len(steps) / (steps.sum() * 1e-9))
    assert said_a["step_ms"]["p99"] == pytest.approx(p99)
    assert said_b["step_ms"]["max"] == pytest.approx(80.0) and (said_b["gaps"], said_b["lost"], said_b["out_of_order"]) == (2, 4, 0)
