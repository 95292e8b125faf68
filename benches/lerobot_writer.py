"""Measures the frames a second at which a LeRobot dataset is written: by `robocache convert`, and by LeRobot's own writer.

Prints a line of JSON. Both datasets have the same float32 frames, 50 a second, in episodes of a minute. A frame has
`observation.state` of 32 values, `action` of 8, and a window of the 20 newest samples of a force of 500 Hz x 6.

Robocache reads a recording of the three streams and aligns them. It also writes the five features `robocache.*` and the times
of each window. LeRobot gets NumPy arrays of whole frames by `add_frame`. The first episode of both is checked to be equal.

LeRobot writes fewer frames, since each episode takes it as long as the episode before: `--frames` for robocache,
`--peer-frames` for LeRobot. Run it with nothing beside: `make bench-lerobot`.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import pyarrow.parquet as pq
from lerobot.datasets.lerobot_dataset import LeRobotDataset

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples" / "offline"))

import recording  # noqa: E402
from recording import write_samples  # noqa: E402

FPS = 50
EPISODE = 60 * FPS
SAMPLES = 20
PERIOD = 10**9 // FPS
START = 1_700_000_000 * 10**9
WIDTHS = {"state": 32, "action": 8, "force": 6}
CONFIG = f"""
fuse:
  rate_hz: {FPS}
  modalities:
    - {{ input: state, dim: 32, interpolation: previous, max_age_ms: 20 }}
lerobot:
  task: press
  episodes: begin
  features:
    - {{ name: observation.state, modalities: [state] }}
    - {{ name: action, stream: action }}
    - {{ name: robocache.window.force, window: force, samples: {SAMPLES} }}
"""


def streams(frames: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    made = {}
    for name, width in WIDTHS.items():
        # The force begins early enough for the first frame to have a whole window.
        count, step = (frames * 10 + SAMPLES, PERIOD // 10) if name == "force" else (frames, PERIOD)
        first = START - (SAMPLES - 1) * step if name == "force" else START
        made[name] = first + np.arange(count) * step, random.normal(size=(count, width)).astype(np.float32)
    return made


def write_ours(folder: pathlib.Path, frames: int) -> float:
    for name, (stamps, values) in streams(frames).items():
        write_samples(folder / "recording", name, stamps, values)
    # Each beginning of an episode is a message of its own, so that none comes after the frames of its episode.
    recording.ROWS = 1
    begins = START + np.arange(0, frames, EPISODE) * PERIOD
    write_samples(folder / "recording", "begin", begins, np.zeros((len(begins), 1), np.int64))
    (folder / "robot.yml").write_text(CONFIG)
    command = [ROOT / "target/release/robocache", "convert", folder / "recording", folder / "ours", "--to", "lerobot"]
    begin = time.perf_counter()
    subprocess.run([*command, "--config", folder / "robot.yml"], check=True, capture_output=True)
    return time.perf_counter() - begin


def write_theirs(folder: pathlib.Path, frames: int, of: int) -> float:
    values = {name: values for name, (_, values) in streams(of).items()}
    feature = lambda shape: {"dtype": "float32", "shape": shape, "names": None}  # noqa: E731
    features = {
        "observation.state": feature((32,)),
        "action": feature((8,)),
        "robocache.window.force": feature((SAMPLES, 6)),
    }
    begin = time.perf_counter()
    made = LeRobotDataset.create("robocache/writer", FPS, features, root=folder / "theirs", use_videos=False)
    for frame in range(frames):
        made.add_frame(
            {
                "observation.state": values["state"][frame],
                "action": values["action"][frame],
                "robocache.window.force": values["force"][frame * 10 : frame * 10 + SAMPLES],
                "task": "press",
            }
        )
        if (frame + 1) % EPISODE == 0:
            made.save_episode()
    made.finalize()
    return time.perf_counter() - begin


def column(folder: pathlib.Path, name: str, rows: int) -> np.ndarray:
    """Reads the values of a feature in the first `rows` frames of a dataset, as a flat array."""
    values = pq.read_table(sorted((folder / "data").glob("*/*.parquet"))[0], columns=[name])[name].slice(0, rows).combine_chunks()
    while not hasattr(values, "to_numpy") or hasattr(values, "flatten") and str(values.type).startswith(("list", "fixed")):
        values = values.flatten()
    return values.to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--peer-frames", type=int, default=30_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        seconds = write_ours(folder, options.frames)
        peer_seconds = write_theirs(folder, options.peer_frames, options.frames)
        for name in ("observation.state", "action", "robocache.window.force"):
            rows = EPISODE
            assert column(folder / "ours", name, rows).tobytes() == column(folder / "theirs", name, rows).tobytes(), name
        info = json.loads((folder / "ours/meta/info.json").read_text())
        assert info["total_frames"] == options.frames
        size = sum(path.stat().st_size for path in (folder / "ours").rglob("*") if path.is_file())
    rate, peer_rate = options.frames / seconds, options.peer_frames / peer_seconds
    figures = {
        "frames": options.frames, "seconds": round(seconds, 2), "frames_per_s": round(rate), "mb": round(size / 1e6),
        "episodes": info["total_episodes"], "peer_frames": options.peer_frames, "peer_seconds": round(peer_seconds, 2),
        "peer_frames_per_s": round(peer_rate), "times": round(rate / peer_rate, 1), "lerobot": importlib.metadata.version("lerobot"),
    }  # fmt: skip
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
