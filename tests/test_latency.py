"""Latencies between channels of a recording, against SciPy on the same signals."""

import pathlib
import re
import subprocess

import numpy as np
import pytest
import scipy.signal

import convert

EXAMPLE = pathlib.Path(__file__).parents[1] / "target" / "release" / "examples" / "latency"
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


def found(folder, a: convert.Stream, b: convert.Stream, *arguments: str) -> str:
    convert.write(folder, {"a": a, "b": b})
    done = subprocess.run([EXAMPLE, folder, "a[1]", "b[1]", *arguments], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def scipy_curve(a: convert.Stream, b: convert.Stream, most: int = 500, half: int = 10) -> np.ndarray:
    """The same steps as the documentation says, with NumPy and SciPy: correlation at lags of -most to most ms."""
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
    said = found(tmp_path, a, b, "--curve")
    lag = float(re.search(r"b lags by (\S+) ms", said)[1])
    assert abs(lag - lag_ms) < 0.5, said[:400]
    curve = np.array([[float(word) for word in line.split()] for line in said.splitlines()[3:]])
    wanted = scipy_curve(a, b)
    assert (curve[:, 0] == np.arange(-500, 501)).all()
    assert abs(curve[:, 1] - wanted).max() < 1e-4
    assert abs(lag - (wanted.argmax() - 500)) <= 1.0


def test_noise_and_still_signals_are_refused(tmp_path):
    rng = np.random.default_rng(1)
    a = stream(movement(rng, 4.0), 500, 20, 0.0, rng)
    for i, other in enumerate([lambda t: rng.normal(size=len(t)), movement(np.random.default_rng(2), 4.0)]):
        said = found(tmp_path / str(i), a, stream(other, 100, 20, 0.0, rng))
        assert "Weak" in said and "b lags" not in said, said
    said = found(tmp_path / "still", a, stream(lambda t: np.full(len(t), 3.0), 100, 20, 0.0, rng))
    assert "Still" in said, said


def test_the_statistics_of_a_stream_are_numpys(tmp_path):
    rng = np.random.default_rng(5)
    signal = movement(rng, 4.0)
    a, b = stream(signal, 200, 30, 0.0, rng), stream(signal, 50, 30, 20.0, rng, jitter=0.0)
    keep = np.ones(len(b.stamps), bool)
    keep[[200, 201, 202, 700]] = False
    b = convert.Stream(b.stamps[keep], b.values[keep])
    said = found(tmp_path, a, b)
    steps = np.diff(a.stamps)
    p99 = np.sort(abs(steps - np.sort(steps)[(len(steps) + 1) // 2 - 1]))[-(-len(steps) * 99 // 100) - 1] * 1e-6
    assert f"{len(a.stamps)} messages, {len(steps) / (steps.sum() * 1e-9):.2f} Hz" in said and f"p99 {p99:.3f} ms" in said, said
    assert "longest gap 80.0 ms, 4 lost, 0 out of order" in said, said
