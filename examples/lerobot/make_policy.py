"""Makes the policies that `policy.py` runs, `act` and `diffusion` in out/lerobot: `make_policy.py --out out/lerobot`.

Robocache-fuse fuses the streams of the simulated robot. Its configuration is the robot's, except that fuse waits for every
sample, so that the data are the same in every run. The observations become a LeRobotDataset, with LeRobot's own statistics.

LeRobot's policies are then trained on the dataset for some steps: enough for an example, not to move a robot. Each policy is
saved with its pre- and post-processors, and with `robocache.json`, which has the modalities of the inputs, and the period.

  - observation.state              [21]   proprio (15) and force (6), raw units
  - observation.environment_state  [128]  features of the camera
  - action                         [8]    the seven joints and the gripper a period later: a copy of the robot's motion
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

# Data and weights are made here, so that no hub is needed.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import torch
import yaml
from lerobot.configs.types import FeatureType, NormalizationMode
from lerobot.datasets.factory import resolve_delta_timestamps
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.datasets.utils import dataset_to_policy_features
from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors

ROOT = pathlib.Path(__file__).parents[2]
INPUTS = {"observation.state": ["proprio", "force"], "observation.environment_state": ["camera"]}
# Columns of `proprio` that an action sets.
ACTION_COLUMNS = [*range(7), 11]
ACTION_FIELDS = [*(f"joint_{i}" for i in range(1, 8)), "gripper"]
# Options of the policies, by LeRobot's keys. The networks are small enough for a CPU: a chunk takes some milliseconds.
POLICIES = {
    "act": {
        "chunk_size": 16,
        # As in ACT's paper, each observation gives a chunk, and all predictions for a step are averaged.
        "temporal_ensemble_coeff": 0.01,
        "n_action_steps": 1,
        "dim_model": 64,
        "n_heads": 4,
        "dim_feedforward": 128,
        "n_encoder_layers": 2,
        "n_vae_encoder_layers": 1,
        "latent_dim": 8,
        # LeRobot does not normalise the environment's state by default.
        "normalization_mapping": {"STATE": "MEAN_STD", "ENV": "MEAN_STD", "ACTION": "MEAN_STD"},
    },
    "diffusion": {
        "n_obs_steps": 2,
        "horizon": 16,
        "n_action_steps": 8,
        "down_dims": (32, 64),
        "diffusion_step_embed_dim": 32,
        "noise_scheduler_type": "DDIM",
        "num_inference_steps": 4,
        "normalization_mapping": {"STATE": "MIN_MAX", "ENV": "MIN_MAX", "ACTION": "MIN_MAX"},
    },
}


def simulate(config: dict, seconds: float, folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Simulates the robot for `seconds`. Returns its observations by name, as examples/offline/collect.py collects them."""
    config = {**config, "sim": {**config["sim"], "real_time": False, "start_ns": 1_000_000_000, "duration_s": seconds}}
    config["fuse"] = {**config["fuse"], "max_wait_ms": None}
    (folder / "config.yml").write_text(yaml.safe_dump(config))

    def edge(source: str) -> dict:
        return {"source": source, "queue_size": 1000, "queue_policy": "backpressure"}

    streams = [modality["input"] for modality in config["fuse"]["modalities"]]
    release, arguments = ROOT / "target" / "release", f"--config {folder / 'config.yml'}"
    collect = f"{ROOT / 'examples' / 'offline' / 'collect.py'} {folder / 'windows.npz'}"
    nodes = [
        {"id": "robot", "path": f"{release / 'robocache-sim'}", "args": arguments, "outputs": streams},
        {
            "id": "fuse",
            "path": f"{release / 'robocache-fuse'}",
            "args": arguments,
            "inputs": {stream: edge(f"robot/{stream}") for stream in streams},
            "outputs": ["fused"],
        },
        {"id": "collect", "path": sys.executable, "args": collect, "inputs": {"fused": edge("fuse/fused")}},
    ]
    (folder / "dataflow.yml").write_text(yaml.safe_dump({"nodes": nodes}))
    dora = pathlib.Path(sys.executable).with_name("dora")
    subprocess.run([dora, "run", folder / "dataflow.yml"], cwd=folder, check=True)
    with np.load(folder / "windows.npz") as windows:
        return dict(windows)


def episodes(windows: dict[str, np.ndarray], period_ns: int) -> list[slice]:
    """Finds the episodes: runs of observations a period apart whose newest rows are complete. Returns them as slices."""
    whole = windows["valid"][:, -1].all(axis=1)
    follows = (np.diff(windows["timestamps_ns"][:, -1]) == period_ns) & (np.diff(windows["epoch"]) == 0)
    found, start = [], None
    for i, usable in enumerate(whole):
        if start is not None and not (usable and follows[i - 1]):
            found.append(slice(start, i))
            start = None
        if usable and start is None:
            start = i
    return found + ([slice(start, len(whole))] if start is not None else [])


def dataset(windows: dict[str, np.ndarray], period_ns: int, root: pathlib.Path) -> LeRobotDataset:
    """Makes a LeRobotDataset of the newest rows. The last row of an episode has no successor, thus no action, and is left out."""
    names, offsets = windows["modalities"].tolist(), windows["offsets"]
    columns = {name: np.arange(*offsets[m : m + 2]) for m, name in enumerate(names)}
    inputs = {key: np.concatenate([columns[name] for name in of]) for key, of in INPUTS.items()}
    # LeRobot needs a name for each column.
    called = [f"{name}_{i}" for name in names for i in range(len(columns[name]))]
    described = {key: [called[column] for column in of] for key, of in inputs.items()} | {"action": ACTION_FIELDS}
    features = {key: {"dtype": "float32", "shape": (len(of),), "names": of} for key, of in described.items()}
    made = LeRobotDataset.create("robocache/sim", round(1e9 / period_ns), features, root=root, use_videos=False)
    for episode in episodes(windows, period_ns):
        rows = windows["values"][episode, -1]
        actions = rows[1:, columns["proprio"][ACTION_COLUMNS]]
        for row, action in zip(rows, actions, strict=False):
            made.add_frame({**{key: row[of] for key, of in inputs.items()}, "action": action, "task": "copy"})
        if len(actions):
            made.save_episode()
    made.finalize()
    return made


def train(kind: str, data: LeRobotDataset, steps: int, folder: pathlib.Path) -> list[float]:
    """Trains a policy for `steps` steps, and saves it with its processors in `folder`. Returns the loss of each step."""
    torch.manual_seed(0)
    # Networks this small are slower on more threads.
    torch.set_num_threads(1)
    features = dataset_to_policy_features(data.meta.features)
    options = dict(POLICIES[kind])
    modes = {key: NormalizationMode[mode] for key, mode in options.pop("normalization_mapping").items()}
    config = make_policy_config(
        kind,
        input_features={key: feature for key, feature in features.items() if feature.type is not FeatureType.ACTION},
        output_features={"action": features["action"]},
        normalization_mapping=modes,
        device="cpu",
        push_to_hub=False,
        **options,
    )
    policy = get_policy_class(kind)(config).train()
    before, after = make_pre_post_processors(config, dataset_stats=data.meta.stats)
    windows = LeRobotDataset(data.repo_id, root=data.root, delta_timestamps=resolve_delta_timestamps(config, data.meta))
    loader = torch.utils.data.DataLoader(windows, batch_size=32, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    losses: list[float] = []
    while len(losses) < steps:
        for batch in loader:
            loss, _ = policy.forward(before(batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    policy.save_pretrained(folder)
    before.save_pretrained(folder)
    after.save_pretrained(folder)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=pathlib.Path, default=pathlib.Path(__file__).with_name("config.yml"))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out" / "lerobot")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of the robot to train on (default: 20)")
    parser.add_argument("--steps", type=int, default=100, help="training steps (default: 100)")
    args = parser.parse_args()
    config, out = yaml.safe_load(args.config.read_text()), args.out.resolve()
    period_ns = round(1e9 / config["fuse"]["rate_hz"])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    data = dataset(simulate(config, args.seconds, out), period_ns, out / "dataset")
    print(f"{out / 'dataset'}: {data.num_frames} frames in {data.num_episodes} episodes")
    about = {"inputs": INPUTS, "fields": ACTION_FIELDS, "period_ns": period_ns}
    for kind in POLICIES:
        losses = train(kind, data, args.steps, out / kind)
        (out / kind / "robocache.json").write_text(json.dumps(about, indent=2) + "\n")
        print(f"{out / kind}: loss {np.mean(losses[:10]):.3f} -> {np.mean(losses[-10:]):.3f} in {len(losses)} steps")


if __name__ == "__main__":
    main()
