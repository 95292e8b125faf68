"""Measures the cost of a message in the viewer: in the thread that takes it, and in the thread that draws it into a file.

`make bench-view` prints the table of nodes/view/README.md.
"""

import pathlib
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import rerun as rr
from robocache_view.canvas import Canvas
from robocache_view.inbox import copied

MS = 1_000_000
SECONDS = 3.0


def observation(k: int) -> tuple:
    """Makes an observation of 16 rows of 149 columns in three modalities, as in the demo, and its metadata."""
    window, count = 16, 3
    stamps = [(k + row) * 33 * MS for row in range(window)]
    said = {
        "shape": [window, 149],
        "timestamp_ns": stamps[-1],
        "timestamps_ns": stamps,
        "modalities": ["camera", "force", "proprio"],
        "offsets": [0, 128, 134, 149],
        "valid": [1] * window * count,
        "age_ns": [MS] * window * count,
        "epoch": 0,
        "late_samples": 0,
    }
    return pa.array(np.random.default_rng(k).normal(size=window * 149).astype(np.float32)), said


def cloud(count: int):
    columns = [pa.array(np.random.default_rng(i).normal(0, 6, count).astype(np.float32)) for i in range(4)]
    made = pa.StructArray.from_arrays(columns, names=["x", "y", "z", "intensity"])
    return lambda k: (made, {"timestamp_ns": k * 100 * MS})


def voxels(shape: tuple, count: int):
    """Makes a dense grid of two channels, and its metadata."""
    dense = np.zeros((2, np.prod(shape)), np.float32)
    dense[:, np.random.default_rng(0).choice(dense.shape[1], count, replace=False)] = 1
    said = {
        "channels": ["occupancy", "mean_z"],
        "grid_shape": list(shape),
        "origin_m": [0.0] * 3,
        "voxel_size_m": [0.4] * 3,
        "shape": [2, *shape],
    }
    made = pa.array(dense.ravel())
    return lambda k: (made, said | {"timestamp_ns": k * 100 * MS})


def image(height: int, width: int):
    made = pa.array(np.random.default_rng(0).integers(0, 256, height * width * 3, np.uint8))
    return lambda k: (made, {"timestamp_ns": k * 33 * MS, "encoding": "rgb8", "height": height, "width": width})


CASES = {
    "an observation, 16 x 149, three modalities": (30, observation),
    "a sample of 6": (1000, lambda k: (pa.array(np.ones(6, np.float32)), {"timestamp_ns": k * MS})),
    "a dense grid, 64 x 64 x 16, 5,000 cells of points": (10, voxels((64, 64, 16), 5_000)),
    "a dense grid, 256 x 256 x 64, 50,000 cells of points": (10, voxels((256, 256, 64), 50_000)),
    "a cloud of 55,000 points": (10, cloud(55_000)),
    "a cloud of 131,072 points": (10, cloud(131_072)),
    "an image, 480 x 640": (30, image(480, 640)),
}


def measure(make) -> tuple[float, float]:
    """Returns the CPU times of this process for a message, s: to take it, and to draw and write it."""
    messages = [make(k) for k in range(32)]
    taking = drawing = 0.0
    with tempfile.TemporaryDirectory() as folder:
        recording = rr.RecordingStream("bench")
        recording.save(pathlib.Path(folder) / "bench.rrd")
        canvas = Canvas(recording)
        count, end = 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            value, metadata = messages[count % len(messages)]
            start = time.process_time()
            value, metadata, _ = copied({"type": "INPUT", "value": value, "metadata": metadata})
            took = time.process_time()
            canvas.draw("input", value, metadata)
            taking += took - start
            drawing += time.process_time() - took
            count += 1
        start = time.process_time()
        recording.flush()
        drawing += time.process_time() - start
        recording.disconnect()
    return taking / count, drawing / count


def main() -> int:
    print("| message | taken | drawn | of a core, at |\n|---|---|---|---|")
    for name, (rate_hz, make) in CASES.items():
        taken, drawn = measure(make)
        print(
            f"| {name} | {taken * 1e6:.0f} us | {drawn * 1e6:.0f} us | {(taken + drawn) * rate_hz:.1%}, {rate_hz} Hz |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
