"""A LeRobot policy as a dora node: `fused` or `observation` in, `action` out.

    policy.py --policy out/lerobot/act

The policy, its processors and its statistics are LeRobot's, as saved by `save_pretrained`; `make_policy.py` makes two policies.
An observation is passed in raw units, and LeRobot normalises it. The node never acts on a value that is not valid:

- An observation is refused if a row that the policy takes lacks an input, or an input is too old: the robot holds. LeRobot's
  policies have no mask for missing inputs.
- A policy that looks back gets the rows of the window. Rows before the robot's start repeat its first row, as in LeRobot.
- The policy forgets its history when the epoch changes (a clock jumped), or the sender (fuse was started anew).

An action is a chunk [horizon, A] in raw units; step i is for the time `timestamps_ns[i]`, the first step a period after the
observation. Values of an observation that was computed on the GPU stay on the GPU.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import sys
import time

# The policy is in a folder, so that no hub is needed.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import robocache
import torch
from dora import Node
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from robocache import Chunks, Gate, MessageError, Observation, RingError
from robocache.presets import InvalidObservation


class Policy:
    """The network with its pre- and post-processors, and the rules by which an observation is refused."""

    def __init__(self, folder: pathlib.Path, max_age_ms: dict[str, float], device: str):
        about = json.loads((folder / "robocache.json").read_text())
        self.period_ns, self.fields = int(about["period_ns"]), list(about["fields"])
        config = PreTrainedConfig.from_pretrained(folder)
        if unknown := sorted(set(config.input_features) - set(about["inputs"])):
            raise ValueError(f"the policy takes {unknown}, robocache.json has {sorted(about['inputs'])}")
        self.inputs = {key: tuple(about["inputs"][key]) for key in config.input_features}
        self.widths = {key: feature.shape[0] for key, feature in config.input_features.items()}
        modalities = {name for names in self.inputs.values() for name in names}
        if unknown := sorted(set(max_age_ms) - modalities):
            raise ValueError(f"--require names {unknown}, the policy takes {sorted(modalities)}")
        self.gate = Gate(max_age_ms)
        config.device = device
        self.config = config
        self.network = get_policy_class(config.type).from_pretrained(folder, config=config)
        self.before, self.after = make_pre_post_processors(
            config, str(folder), preprocessor_overrides={"device_processor": {"device": device}}
        )
        decay = getattr(config, "temporal_ensemble_coeff", None)
        self.chunks = None if decay is None else Chunks(self.period_ns, math.exp(decay))
        self.counts: collections.Counter[str] = collections.Counter()
        self.inference_ms: collections.deque[float] = collections.deque(maxlen=90_000)
        # The first run is the slowest, so it is done before the dataflow starts.
        rows = () if config.n_obs_steps == 1 else (config.n_obs_steps,)
        self.predict({key: torch.zeros(1, *rows, width) for key, width in self.widths.items()})

    def observe(self, event: dict) -> tuple[Observation, np.ndarray | None]:
        """Reads an event of dora. Returns the observation and the policy's action chunk [horizon, A]; None for the chunk if the
        observation is refused."""
        observation = Observation.from_event(event)
        self.counts["observations"] += 1
        refusal = self.gate.refusal(observation)
        if refusal in ("epoch changed", "sender changed"):
            self.reset()
        if refusal is None:
            try:
                batch = self.batch(observation)
            except InvalidObservation:
                refusal = "input invalid"
        if refusal is not None:
            # The refusal is counted by its kind, without the age.
            self.counts[f"refused: {refusal.partition(':')[0]}"] += 1
            return observation, None
        start = time.perf_counter()
        chunk = self.predict(batch)
        self.inference_ms.append(1e3 * (time.perf_counter() - start))
        if not np.isfinite(chunk).all():
            self.counts["refused: action not finite"] += 1
            return observation, None
        self.counts["actions"] += 1
        return observation, chunk if self.chunks is None else self.chunks.add(observation.timestamp_ns, chunk)

    def reset(self) -> None:
        self.network.reset()
        if self.chunks is not None:
            self.chunks.clear()

    def batch(self, observation: Observation) -> dict[str, torch.Tensor]:
        """Makes the inputs of the policy, in raw units: [1, D] each, or [1, n, D] if the policy looks back.

        The numbers are those of `robocache.presets.act` and `lerobot_diffusion`, which give NumPy arrays. Here values on the GPU
        stay on the GPU.
        """
        steps_ns = np.diff(observation.timestamps_ns)
        if np.any(steps_ns != self.period_ns):
            raise MessageError(f"rows are {steps_ns[0]} ns apart, the policy was trained on {self.period_ns}")
        window, offsets, batch = observation.tensor.torch(), observation.offsets, {}
        for key, names in self.inputs.items():
            of = [observation.index_of(name) for name in names]
            values = torch.cat([window[:, offsets[m] : offsets[m + 1]] for m in of], dim=1)
            if values.shape[1] != self.widths[key]:
                got = f"{values.shape[1]} values of {list(names)}"
                raise MessageError(f"{key} is {got}, the policy takes {self.widths[key]}")
            values = values[rows(observation, of, self.config.n_obs_steps)].float()
            batch[key] = values if self.config.n_obs_steps == 1 else values[None]
        return batch

    @torch.inference_mode()
    def predict(self, batch: dict[str, torch.Tensor]) -> np.ndarray:
        """Runs the network on a batch of one. Returns the chunk [horizon, A] in raw units."""
        batch = self.before(batch)
        if self.config.type == "diffusion":
            # `predict_action_chunk` would look back at earlier inputs. The window has these rows already, and their gaps.
            actions = self.network.diffusion.generate_actions({key: batch[key] for key in self.inputs})
        else:
            actions = self.network.predict_action_chunk(batch)
        if self.chunks is None:
            actions = actions[:, : self.config.n_action_steps]
        return self.after(actions)[0].numpy()

    def report(self) -> dict:
        inference = np.percentile(self.inference_ms, [50, 99]).round(2).tolist() if self.inference_ms else None
        about = {"policy": self.config.type, "device": self.config.device}
        return {**about, **self.counts, "inference_ms_p50_p99": inference}


def rows(observation: Observation, of: list[int], count: int) -> list[int]:
    """Returns the indices of the newest `count` rows, oldest first. Rows from before the first sample of a modality in `of` are
    replaced by the first row in which all of these are valid. Raises InvalidObservation if another row lacks one of them."""
    if len(observation) < count:
        raise MessageError(f"the window has {len(observation)} rows, the policy takes {count}: set `window` of fuse")
    valid = observation.valid[:, of]
    whole, unborn = valid.all(axis=1), (~valid & (observation.age_ns[:, of] < 0)).any(axis=1)
    taken = [int(np.argmax(whole)) if unborn[row] else row for row in range(len(observation) - count, len(observation))]
    if not whole[taken].all():
        names = [observation.modalities[m] for m in of]
        raise InvalidObservation(f"one of {names} is not valid in one of the last {count} rows")
    return taken


def run(node: Node, policy: Policy) -> None:
    """Handles the node's events. It continues after INPUT_CLOSED and STOP, since dora still returns queued
    events after these."""
    for event in node:
        match event["type"]:
            case "INPUT":
                try:
                    observation, chunk = policy.observe(event)
                except RingError:  # overwritten by now, or its producer is gone: the next message is used
                    policy.counts["missed"] += 1
                    continue
                except (MessageError, KeyError) as error:
                    if not policy.counts["malformed"]:
                        print(f"policy: {event['id']}: {error}; it and its like are counted, not used", file=sys.stderr)
                    policy.counts["malformed"] += 1
                    continue
                if chunk is not None:
                    start = observation.timestamp_ns
                    stamps = [start + policy.period_ns * step for step in range(1, len(chunk) + 1)]
                    robocache.send(
                        node,
                        "action",
                        chunk,
                        timestamp_ns=start,
                        timestamps_ns=stamps,
                        fields=policy.fields,
                        epoch=observation.epoch,
                    )
            case "ERROR":
                print(f"policy: dora: {event.get('error')}", file=sys.stderr)


def requirement(text: str) -> tuple[str, float]:
    name, _, limit_ms = text.partition("=")
    if not name or not limit_ms:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=MAX_AGE_MS, such as force=20")
    return name, float(limit_ms)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", type=pathlib.Path, required=True, help="folder that make_policy.py wrote")
    parser.add_argument(
        "--require",
        type=requirement,
        nargs="*",
        default=[],
        metavar="NAME=MAX_AGE_MS",
        help="greatest age of the newest sample of an input (default: any that fuse marks valid)",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    # The robot has other work to do, and work this small is not faster on more threads.
    torch.set_num_threads(1)
    try:
        policy = Policy(args.policy, dict(args.require), args.device)
    except Exception as error:  # LeRobot and its libraries raise types that share no other base
        print(f"policy: {args.policy}: {error}", file=sys.stderr)
        return 2
    robocache.wait_for_consumers()
    run(Node(), policy)
    print(json.dumps(policy.report()), flush=True)
    robocache.drain()
    return 0


if __name__ == "__main__":
    sys.exit(main())
