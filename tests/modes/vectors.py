"""Writes tests/modes/vectors.txt: random, jittery streams, and the values that SciPy interpolates in each mode.

    .venv/bin/python tests/modes/vectors.py

A `case` line has the mode, the number of values in a sample, and `max_gap_ns`. A `sample` line has a time (ns) and the values,
which float32 holds exactly. A `target` line has a time and the values in float64, or no values if they are invalid.
"""

import pathlib

import numpy as np
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator
from scipy.spatial.transform import Rotation, Slerp

MS = 1_000_000
WIDTHS = {"angle": 2, "slerp": 4, "rot6d": 6, "rot6d_columns": 6, "rotvec": 3, "cubic": 3, "pchip": 3}


def bessel(t: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Slopes at the samples: those of the parabola through each sample and its two neighbours. At the ends, the slope of the line
    to the only neighbour."""
    h, d = np.diff(t), np.diff(p, axis=0) / np.diff(t)[:, None]
    inner = (h[1:, None] * d[:-1] + h[:-1, None] * d[1:]) / (h[:-1] + h[1:])[:, None]
    return np.concatenate([d[:1], inner, d[-1:]])


def rotations(mode: str, values: np.ndarray) -> Rotation:
    if mode == "slerp":
        return Rotation.from_quat(values)
    if mode == "rotvec":
        return Rotation.from_rotvec(values)
    first, second = values[:, :3], values[:, 3:]
    x = first / np.linalg.norm(first, axis=1, keepdims=True)
    y = second - (x * second).sum(1, keepdims=True) * x
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    return Rotation.from_matrix(np.stack([x, y, np.cross(x, y)], 1 if mode == "rot6d" else 2))


def between(mode: str, t: np.ndarray, p: np.ndarray, at: float, left: int) -> np.ndarray:
    """The value at time `at` within a run of samples without a gap; `left` is the index of the sample before that time."""
    if mode == "angle":
        a, b = p[left], p[left + 1]
        value = a + (at - t[left]) / (t[left + 1] - t[left]) * ((b - a + np.pi) % (2 * np.pi) - np.pi)
        return (value + np.pi) % (2 * np.pi) - np.pi
    if mode == "cubic":
        return CubicHermiteSpline(t, p, bessel(t, p))(at)
    if mode == "pchip":
        return PchipInterpolator(t, p, extrapolate=False)(at)
    rotation = Slerp(t[left : left + 2], rotations(mode, p[left : left + 2]))(at)
    if mode == "slerp":
        q = rotation.as_quat()
        return q if q @ p[left] >= 0 else -q
    if mode == "rotvec":
        return rotation.as_rotvec()
    matrix = rotation.as_matrix()
    return (matrix[:2] if mode == "rot6d" else matrix[:, :2].T).ravel()


def stream(random: np.random.Generator, mode: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Random times and values: about 33 ms apart with some gaps, and angles that move by up to half a turn between samples."""
    steps = random.uniform(20, 46, count) + 100 * (random.random(count) < 0.12)
    times = np.cumsum((steps * MS).astype(np.int64))
    match mode:
        case "angle":
            values = np.cumsum(random.normal(0, 1.2, (count, 2)), 0)
        case "cubic" | "pchip":
            values = 10 * np.sin(np.outer(times / 1e9, [3, 9, 20])) + random.normal(0, 0.3, (count, 3))
            values[:, 2] = np.round(values[:, 2])
        case _:
            turns = Rotation.from_rotvec(random.normal(0, 0.7, (count, 3)))
            path = [Rotation.random(random_state=int(random.integers(1 << 30)))]
            for turn in turns[1:]:
                path.append(path[-1] * turn)
            path = Rotation.concatenate(path)
            if mode == "slerp":
                values = path.as_quat() * random.uniform(0.5, 2, (count, 1)) * random.choice([-1, 1], (count, 1))
            elif mode == "rotvec":
                values = path.as_rotvec()
            else:
                matrix = path.as_matrix()
                rows = matrix[:, :2] if mode == "rot6d" else matrix[:, :, :2].transpose(0, 2, 1)
                values = rows.reshape(count, 6) * random.uniform(0.9, 1.1, (count, 1))
    return times, values.astype(np.float32).astype(np.float64)


def main() -> None:
    lines = []
    for mode, dim in WIDTHS.items():
        random = np.random.default_rng(list(mode.encode()))
        for count in [2, 3, 6, 25, 25]:
            gap = 80 * MS
            times, values = stream(random, mode, count)
            lines.append(f"case {mode} {dim} {gap}")
            for time, row in zip(times, values, strict=True):
                lines.append(" ".join(["sample", str(time), *(f"{value:.17g}" for value in row)]))
            starts = [0, *(np.flatnonzero(np.diff(times) > gap) + 1), count]
            for target in np.sort(random.integers(times[0] + 1, times[-1], 2 * count)):
                left = int(np.searchsorted(times, target, "right")) - 1
                words = ["target", str(target)]
                if times[left + 1] - times[left] <= gap and times[left] != target:
                    run = next(slice(a, b) for a, b in zip(starts, starts[1:], strict=False) if a <= left < b)
                    seconds = (times[run] - times[0]) / 1e9
                    value = between(mode, seconds, values[run], (target - times[0]) / 1e9, left - run.start)
                    words += [f"{number:.12g}" for number in value]
                lines.append(" ".join(words))
    pathlib.Path(__file__).with_name("vectors.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
