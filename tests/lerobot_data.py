"""Recordings for tests, and their conversion to datasets of LeRobot and back."""

import json
import pathlib
import subprocess

import numpy as np
import pyarrow as pa

from harness import ROOT, binary

ROBOCACHE = binary("fuse").with_name("robocache")
MS = 1_000_000
START = 1_700_000_000_000_000_000

CONFIG = """
fuse:
  rate_hz: 50
  window: 2
  max_wait_ms: null
  modalities:
    - { input: arm, dim: 7, interpolation: linear, max_gap_ms: 20 }
    - { input: gripper, dim: 1, interpolation: previous, max_age_ms: 100 }
lerobot:
  robot_type: made_up
  tasks: tasks
  episodes: begin
  features:
    - { name: observation.state, modalities: [arm, gripper] }
    - { name: observation.images.top, images: camera, max_age_ms: 100 }
    - { name: action, stream: command, take: next, max_age_ms: 50, names: [a, b, c] }
    - { name: robocache.window.force, window: force, samples: 20 }
"""


def convert(*words, code: int = 0, **keys) -> subprocess.CompletedProcess:
    done = subprocess.run([ROBOCACHE, "convert", *words], capture_output=True, text=True, timeout=300, **keys)
    assert done.returncode == code, done.stdout + done.stderr
    assert "panicked" not in done.stderr
    return done


def write_stream(folder: pathlib.Path, name: str, stamps, rows, metadata=None, dtype=None) -> None:
    """Writes a stream with a message for each stamp, of any shape; `metadata` has a dict for each message."""
    rows = [np.asarray(row, dtype) for row in rows]
    folder.mkdir(parents=True, exist_ok=True)
    kind = pa.from_numpy_dtype(rows[0].dtype)
    common = metadata[0] if metadata else {}
    schema = pa.schema(
        {"timestamp_ns": pa.int64(), "shape": pa.list_(pa.int64()), "data": pa.list_(kind)},
        metadata={"metadata": json.dumps(common)} if common else None,
    )
    with pa.ipc.new_file(str(folder / f"{name}.arrow"), schema) as file:
        for i, (stamp, row) in enumerate(zip(stamps, rows, strict=True)):
            batch = pa.record_batch([pa.array([int(stamp)]), pa.array([row.shape]), pa.array([row.ravel()], pa.list_(kind))], schema)
            differs = metadata and metadata[i] != common
            file.write_batch(batch, custom_metadata={"metadata": json.dumps([metadata[i]])} if differs else None)


def record_robot(folder: pathlib.Path, seconds: float = 4.0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Records two episodes of a robot with an arm, a gripper, a force sensor, a camera and commands; returns stamps and values by
    stream."""
    random = np.random.default_rng(7)
    streams = {}
    for name, step_ms, shape, offset_ms in [
        ("arm", 4, (7,), 0), ("gripper", 30, (1,), 1), ("force", 1, (6,), 0.137), ("command", 10, (3,), 3), ("camera", 40, (6, 8, 3), 2),
    ]:  # fmt: skip
        count = int(seconds * 1000 / step_ms)
        stamps = START + (np.arange(count) * step_ms * MS + int(offset_ms * MS)).astype(np.int64)
        if name == "camera":
            values = random.integers(0, 256, (count, *shape), dtype=np.uint8)
        else:
            values = random.normal(size=(count, *shape)).astype(np.float32)
        streams[name] = stamps, values
        write_stream(folder, name, stamps, values)
    half = START + int(seconds * 500) * MS
    write_stream(folder, "begin", [START, half], [[0], [1]], dtype=np.int64)
    write_stream(folder, "tasks", [START, half], [[0], [1]], [{"task": "reach"}, {"task": "grasp it"}], dtype=np.int64)
    return streams
