"""Measures the windows per second that PyTorch's DataLoader reads of states: from LeRobot's dataset and from robocache's.

Prints a line of JSON. Both datasets have the same float32 rows of 149 values at 50 Hz, in a temporary folder. One is a
LeRobotDataset of `observation.state` in episodes of a minute, the other a recording of three streams (128, 6 and 15 values).

Both give windows of 16 rows, LeRobot by `delta_timestamps`, robocache by `RecordingDataset`, which are checked to be equal.
Windows of LeRobot have a mask of padding [16], those of robocache `valid` and `age_ns` [16, 3] and `timestamps_ns` [16].

The loader shuffles, makes batches of 64, and collates by itself, in this process and in two workers. Each figure is the
median of three runs of two seconds or more, taken in turn. A run starts at the third batch, when the workers are up.

Run it with nothing beside: `make bench-loader`.
"""

import argparse
import importlib.metadata
import itertools
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import robocache
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from torch.utils.data import DataLoader

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples" / "offline"))

from recording import write_samples  # noqa: E402

STREAMS = {"camera": 128, "force": 6, "proprio": 15}
DIM = sum(STREAMS.values())
WINDOW = 16
FPS = 50
BATCH = 64
EPISODE = 60 * FPS


def rows(count: int) -> np.ndarray:
    """Makes the states of a made-up robot, a random walk, `[count, DIM]`."""
    return np.cumsum(np.random.default_rng(0).normal(0, 0.01, (count, DIM)), axis=0).astype(np.float32)


def make_lerobot(root: pathlib.Path, values: np.ndarray) -> LeRobotDataset:
    state = {"dtype": "float32", "shape": (DIM,), "names": [f"s{i}" for i in range(DIM)]}
    made = LeRobotDataset.create("robocache/loader", FPS, {"observation.state": state}, root=root, use_videos=False)
    for start in range(0, len(values), EPISODE):
        for row in values[start : start + EPISODE]:
            made.add_frame({"observation.state": row, "task": ""})
        made.save_episode()
    made.finalize()
    steps = [i / FPS for i in range(1 - WINDOW, 1)]
    return LeRobotDataset("robocache/loader", root=root, delta_timestamps={"observation.state": steps})


def make_recording(root: pathlib.Path, values: np.ndarray) -> robocache.RecordingDataset:
    stamps, start = np.arange(len(values)) * (1_000_000_000 // FPS), 0
    for name, dim in STREAMS.items():
        write_samples(root, name, stamps, values[:, start : start + dim])
        start += dim
    rule = {"interpolation": "linear", "max_gap_ms": 50}
    modalities = [{"input": name, "dim": dim, **rule} for name, dim in STREAMS.items()]
    return robocache.RecordingDataset(root, {"rate_hz": FPS, "window": WINDOW, "modalities": modalities})


def windows_per_s(dataset, key: str, workers: int, at_least_s: float = 2.0) -> float:
    """Measures the windows per second of a DataLoader, from its third batch on, for at least `at_least_s` seconds."""
    order = torch.Generator().manual_seed(0)
    # Workers stay for the next epoch: robocache goes through many epochs in a run.
    loader = DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        generator=order,
        num_workers=workers,
        persistent_workers=workers > 0,
        drop_last=True,
    )
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    next(batches), next(batches)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < at_least_s:
        assert next(batches)[key].shape == (BATCH, WINDOW, DIM)
        count += BATCH
    return count / (time.perf_counter() - start)


def check(lerobot: LeRobotDataset, recording: robocache.RecordingDataset, values: np.ndarray) -> None:
    """Raises an error unless the windows of both datasets have the rows `values`, and rows before the start are masked."""
    assert len(lerobot) == len(recording) == len(values)
    for at in (0, 3, WINDOW - 1, EPISODE - 1, EPISODE + 500, len(values) - 1):
        wanted = np.arange(at - WINDOW + 1, at + 1)
        theirs, ours, there = lerobot[at], recording[at], wanted >= 0
        assert theirs["observation.state"].numpy().tobytes() == values[np.maximum(wanted, 0)].tobytes(), at
        assert (theirs["observation.state_is_pad"].numpy() == ~there).all(), at
        assert (ours["valid"] == there[:, None]).all(), at
        assert ours["fused"][there].tobytes() == values[wanted[there]].tobytes(), at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4 * EPISODE, help="rows of each dataset (default: %(default)s)")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2])
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    values = rows(args.rows)
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        lerobot, recording = make_lerobot(root / "lerobot", values), make_recording(root / "recording", values)
        check(lerobot, recording, values)
        datasets = {"lerobot": (lerobot, "observation.state"), "robocache": (recording, "fused")}
        figures = {}
        for workers in args.workers:
            runs = {name: [] for name in datasets}
            for _ in range(args.runs):
                for name, dataset in datasets.items():
                    runs[name].append(windows_per_s(*dataset, workers))
            medians = {name: statistics.median(found) for name, found in runs.items()}
            figures[f"workers_{workers}"] = {name: round(median) for name, median in medians.items()}
            figures[f"workers_{workers}"]["times"] = round(medians["robocache"] / medians["lerobot"], 1)
    versions = {name: importlib.metadata.version(name) for name in ("lerobot", "datasets", "torch", "numpy", "pyarrow")}
    said = {"bench": "lerobot_loader", "windows_per_s": figures, "window": [WINDOW, DIM], "batch": BATCH}
    print(json.dumps({**said, "rows": len(values), "runs": args.runs, "cores": os.cpu_count(), "versions": versions}))


if __name__ == "__main__":
    main()
