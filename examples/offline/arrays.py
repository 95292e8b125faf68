"""Writes a recording of a made-up robot from arrays, a minute of each stream by default: `arrays.py FOLDER [SECONDS]`."""

import pathlib
import sys

import numpy as np

from recording import write_samples

START_NS = 1_700_000_000_000_000_000


def stream(duration_s: int, rate_hz: int, dim: int, rng: np.random.Generator):
    """Makes stamps `[N]` with a jitter of a tenth of the period and some samples missing, and values `[N, dim]`."""
    seconds = (np.arange(duration_s * rate_hz) + rng.uniform(0, 0.1, duration_s * rate_hz)) / rate_hz
    seconds = seconds[rng.random(len(seconds)) > 0.01]
    return START_NS + np.rint(seconds * 1e9).astype(np.int64), np.sin(np.pi * seconds[:, None] + np.arange(dim)).astype(np.float32)


def main() -> None:
    folder, rng = pathlib.Path(sys.argv[1]), np.random.default_rng(0)
    duration_s = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    for name, rate_hz, dim in [("camera", 30, 16), ("joints", 100, 7), ("wrench", 1000, 6)]:
        stamps_ns, values = stream(duration_s, rate_hz, dim, rng)
        write_samples(folder, name, stamps_ns, values)
        print(f"{folder / name}.arrow: {len(values)} samples of {dim} values")


if __name__ == "__main__":
    main()
