"""A policy as a dora node: `observation` in, `action` out, an ONNX network in between. It never acts on a refused observation.

It shows how a policy uses robocache's masks and ages. Values that are not valid are zeroed, and the network also gets the mask.
If a required modality is not valid or too old in the newest row, no action is published: the robot holds.

If the epoch changes (a clock jumped) or the sender (fuse was restarted), the observation is refused, and past action chunks are
forgotten. The observation has the voxel grid of the same instant. The input `voxels_valid` of the network is 0 without a grid.

At the end the node prints figures of its input, as a table and as a line of JSON.
"""

import argparse
import os
import pathlib
import sys
import time

import numpy as np
import onnxruntime
import robocache as rc
from dora import Node
from report import Report

ACTION_FIELDS = [f"joint_{i}" for i in range(1, 8)] + ["gripper"]


class Policy:
    """The policy's network, and the rules by which an observation is refused."""

    def __init__(self, model: pathlib.Path, gate: rc.Gate):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.shapes = {i.name: tuple(i.shape) for i in self.session.get_inputs()}
        trained_on = self.session.get_modelmeta().custom_metadata_map
        self.modalities = tuple(trained_on["modalities"].split())
        self.period_ns = int(trained_on["period_ns"])
        unknown = sorted(set(gate.max_age_ms) - set(self.modalities))
        if unknown:
            raise ValueError(f"--require names {unknown}, the model was made for {list(self.modalities)}")
        self.gate = gate
        self.chunks = rc.Chunks(self.period_ns)
        self.last: rc.Observation | None = None
        self.report = Report()
        # The first run is the slowest, so it is done before the dataflow starts.
        self.session.run(None, {name: np.zeros(shape, np.float32) for name, shape in self.shapes.items()})

    def observe(self, value, metadata: dict, received_ns: int):
        """Reads a message that was received at `received_ns`. Returns the observation, and its action chunk [horizon, 8], or None
        if the observation is refused."""
        # The network gets the mask, and expects zeros in entries that are not valid.
        observation = rc.Observation.from_message(value, metadata, invalid=0.0)
        if observation.error is None and observation.modalities != self.modalities:
            raise rc.MessageError(f"modalities are {observation.modalities}, the model was made for {self.modalities}")
        if observation.error is None and "grids" not in observation.attached:
            raise rc.MessageError(f"attached is {list(observation.attached)}, expected 'grids' in it")
        refusal = self.gate.refusal(observation)
        if observation.error is not None:
            self.report.refused[refusal] += 1
            return observation, None
        self._check_shape("fused", observation.fused.shape)
        grid = observation.attached["grids"].at(-1)
        if grid is not None:
            self._check_shape("voxels", grid.dense().shape)
        self.report.observation(observation, grid, received_ns)
        last, self.last = self.last, observation
        if last is not None and (last.sender, last.epoch) != (observation.sender, observation.epoch):
            self.chunks.clear()
            self.report.epoch_changes += 1
        elif last is not None:
            steps = round((observation.timestamp_ns - last.timestamp_ns) / self.period_ns)
            self.report.rows_missed += max(steps - 1, 0)
        if refusal is not None:
            # The refusal is counted by its kind, without the age.
            self.report.refused[refusal.partition(":")[0]] += 1
            return observation, None
        return observation, self._act(observation, grid)

    def _act(self, observation: rc.Observation, grid: rc.Voxels | None) -> np.ndarray | None:
        voxels = np.zeros(self.shapes["voxels"], np.float32) if grid is None else grid.dense()[None].astype(np.float32)
        start = time.perf_counter_ns()
        (chunk,) = self.session.run(
            ["action"],
            {
                "fused": observation.fused[None].astype(np.float32),
                "valid": observation.valid[None].astype(np.float32),
                "voxels": voxels,
                "voxels_valid": np.full((1, 1), grid is not None, np.float32),
            },
        )
        if not np.isfinite(chunk).all():
            self.report.refused["action not finite"] += 1
            return None
        age_ns = None if grid is None else int(observation.attached["grids"].age_ns[-1])
        self.report.action((time.perf_counter_ns() - start) / 1e3, age_ns)
        return self.chunks.add(observation.timestamp_ns, chunk[0])

    def _check_shape(self, name: str, shape: tuple) -> None:
        if self.shapes[name][1:] != shape:
            raise rc.MessageError(f"{name} is {list(shape)}, the model was made for {list(self.shapes[name][1:])}")


def run(node: Node, policy: Policy) -> None:
    """Handles all events of the node until the dataflow has ended."""
    for event in node:
        match event["type"]:
            case "INPUT" if event["id"] == "observation":
                try:
                    observation, chunk = policy.observe(event["value"], event["metadata"], time.time_ns())
                except rc.RingError:  # with `residence`: overwritten by now, which the report counts as missed
                    continue
                except rc.MessageError as error:
                    if not policy.report.malformed["observation"]:
                        print(f"policy: observation: {error}; it and its like are counted, not used", file=sys.stderr)
                    policy.report.malformed["observation"] += 1
                    continue
                if chunk is not None:
                    send(node, policy, observation, chunk)
            # The loop goes on after INPUT_CLOSED and STOP, since dora hands out queued events after these.
            case "ERROR":
                print(f"policy: dora: {event.get('error')}", file=sys.stderr)


def send(node: Node, policy: Policy, observation: rc.Observation, chunk: np.ndarray) -> None:
    start, period = observation.timestamp_ns, policy.period_ns
    rc.send(
        node,
        "action",
        chunk,
        timestamp_ns=start,
        timestamps_ns=[start + period * step for step in range(1, len(chunk) + 1)],
        fields=ACTION_FIELDS,
        epoch=observation.epoch,
    )


def requirement(text: str) -> tuple[str, float]:
    name, _, limit_ms = text.partition("=")
    if not name or not limit_ms:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=MAX_AGE_MS, such as force=20")
    return name, float(limit_ms)


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, required=True, help="written by make_model.py")
    parser.add_argument(
        "--require",
        type=requirement,
        nargs="*",
        default=[("force", 20.0), ("proprio", 20.0)],
        metavar="NAME=MAX_AGE_MS",
        help="modalities that the newest row must have, and how old their sample may be (default: force=20 proprio=20)",
    )
    parser.add_argument(
        "--json",
        type=pathlib.Path,
        default=os.environ.get("ROBOCACHE_POLICY_REPORT") or None,
        help="file for the report as JSON (default: ROBOCACHE_POLICY_REPORT, else none)",
    )
    return parser.parse_args(argv)


def main() -> int:
    args = arguments()
    try:
        policy = Policy(args.model, rc.Gate(dict(args.require)))
    except Exception as error:  # onnxruntime raises types of its own, which share no other base
        print(f"policy: {args.model}: {error}", file=sys.stderr)
        return 2
    rc.wait_for_consumers()
    run(Node(), policy)
    print(policy.report.as_table(), flush=True)
    print(policy.report.as_json(), flush=True)
    if args.json:
        path = pathlib.Path(args.json)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(policy.report.as_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
