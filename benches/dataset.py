"""Windows of observations for training: RecordingDataset beside a plain NumPy version, one by one and in batches.

    python benches/dataset.py [--seconds 600]

Windows are 16 x 149 with masks at 50 Hz, from three made-up streams. Camera features of 128 values at 30 Hz are held. A
wrench of 6 values at 1 kHz and a state of 15 values at 500 Hz are interpolated. The windows of both are checked to be equal.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

import robocache as rc

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))

import convert  # noqa: E402

MS = 1_000_000
CONFIG = {
    "rate_hz": 50,
    "window": 16,
    "modalities": [
        {"input": "camera", "dim": 128, "interpolation": "previous", "max_age_ms": 100},
        {"input": "wrench", "dim": 6, "interpolation": "linear", "max_gap_ms": 20},
        {"input": "state", "dim": 15, "interpolation": "linear", "max_gap_ms": 20},
    ],
}


class Plain:
    """Makes windows as a user would in NumPy: for each modality a search, two gathers and an interpolation of all rows."""

    def __init__(self, streams: dict, targets: np.ndarray):
        self.streams = [(m, *streams[m["input"]]) for m in CONFIG["modalities"]]
        self.offsets = np.cumsum([0, *(m["dim"] for m in CONFIG["modalities"])])
        self.targets = targets
        self.steps = np.arange(1 - CONFIG["window"], 1) * (20 * MS)

    def __getitem__(self, i) -> dict[str, np.ndarray]:
        """Makes window `i`, or several windows if `i` is an array of indices."""
        t = self.targets[i, ..., None] + self.steps if np.ndim(i) else self.targets[i] + self.steps
        fused = np.zeros((*t.shape, self.offsets[-1]), np.float32)
        valid = np.empty((*t.shape, len(self.streams)), bool)
        age = np.empty(valid.shape, np.int64)
        for m, (rule, times, values) in enumerate(self.streams):
            out = fused[..., self.offsets[m] : self.offsets[m + 1]]
            right = np.searchsorted(times, t, side="right")
            left = right - 1
            at, after = times[np.maximum(left, 0)], times[np.minimum(right, len(times) - 1)]
            since = t - at
            age[..., m] = np.where(left >= 0, since, -1)
            if rule["interpolation"] == "previous":
                ok = (left >= 0) & (since <= rule["max_age_ms"] * MS)
                found = values[np.maximum(left, 0)]
            else:
                gap = after - at
                ok = (left >= 0) & ((since == 0) | ((right < len(times)) & (gap <= rule["max_gap_ms"] * MS)))
                weight = (since / np.maximum(gap, 1)).astype(np.float32)[..., None]
                a = values[np.maximum(left, 0)]
                found = a + weight * (values[np.minimum(right, len(times) - 1)] - a)
            np.copyto(out, found, where=ok[..., None])
            valid[..., m] = ok
        return {"fused": fused, "valid": valid, "age_ns": age, "timestamps_ns": t}


def streams(seconds: float) -> dict:
    rng = np.random.default_rng(0)

    def stream(rate_hz: float, dim: int) -> tuple[np.ndarray, np.ndarray]:
        count = round(seconds * rate_hz)
        times = np.rint((np.arange(count) + rng.uniform(0, 0.3, count)) * (1e9 / rate_hz)).astype(np.int64)
        return times, np.cumsum(rng.normal(0, 0.1, (count, dim)), axis=0).astype(np.float32)

    return {"camera": stream(30, 128), "wrench": stream(1000, 6), "state": stream(500, 15)}


def us_each(take, items, count: int) -> float:
    """Times `take` on all items. Returns the median of five runs, us for each of `count` windows."""
    runs = []
    for _ in range(5):
        start = time.perf_counter()
        for item in items:
            take(item)
        runs.append((time.perf_counter() - start) / count * 1e6)
    return statistics.median(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="length of the recording")
    seconds = parser.parse_args().seconds
    made = streams(seconds)
    with tempfile.TemporaryDirectory() as folder:
        convert.write(pathlib.Path(folder), {name: convert.Stream(*stream) for name, stream in made.items()})
        start = time.perf_counter()
        dataset = rc.RecordingDataset(folder, CONFIG, invalid=None)
        opened = time.perf_counter() - start
    plain = Plain(made, np.array([dataset[i]["timestamps_ns"][-1] for i in range(len(dataset))]))
    order = np.random.default_rng(1).permutation(len(dataset))
    for i in order[:500].tolist():
        mine, theirs = dataset[i], plain[i]
        for name in theirs:
            assert mine[name].tobytes() == theirs[name].tobytes(), (i, name)
    some = order[:4000].tolist()
    batches = [order[i : i + 64] for i in range(0, 4000, 64)]
    rows = {
        "one by one": [us_each(each.__getitem__, some, len(some)) for each in (dataset, plain)],
        "batches of 64": [us_each(each.__getitem__, batches, 64 * len(batches)) for each in (dataset, plain)],
    }
    print(f"{len(dataset)} windows of {seconds:g} s, opened in {opened:.2f} s")
    print("us a window      RecordingDataset   NumPy   times")
    for name, (mine, theirs) in rows.items():
        print(f"{name:16} {mine:16.2f} {theirs:7.1f} {theirs / mine:7.1f}")


if __name__ == "__main__":
    main()
