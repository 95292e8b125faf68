"""A policy as a dora node: `observation` in, `action` out, an ONNX network in between.

It shows how a policy treats what robocache says about its own data. Invalid entries are zeroed and the mask is fed to
the network beside them. Where a modality that the policy can't do without is invalid or too old in the newest row, no
action is published: the robot holds. When the epoch changes (a clock jumped), that observation is refused too, and the
action history, which belongs to the old clock, is forgotten. The voxel grid of the same instant comes with the
observation; without one that is young enough the network is told so.

At the end it prints what it got, as a table and as a line of JSON.
"""

import argparse
import os
import pathlib
import sys
import time

import numpy as np
import onnxruntime
import pyarrow as pa
from dora import Node
from observation import Chunks, Gate, MessageError, Observation
from report import Report

ACTION_FIELDS = [f"joint_{i}" for i in range(1, 8)] + ["gripper"]


class Policy:
    """The network and the rules around it; `observe` takes messages, the node does the rest."""

    def __init__(self, model: pathlib.Path, gate: Gate):
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
        self.chunks = Chunks(self.period_ns)
        self.last: Observation | None = None
        self.report = Report()
        # The first run is the slowest; it belongs before the dataflow starts.
        self.session.run(None, {name: np.zeros(shape, np.float32) for name, shape in self.shapes.items()})

    def observe(self, columns: dict[str, np.ndarray], metadata: dict, received_ns: int):
        """Takes an `observation`; returns it and its action chunk [horizon, 8], None where it refuses."""
        observation = Observation.from_message(columns, metadata)
        if observation.modalities != self.modalities:
            raise MessageError(f"modalities are {observation.modalities}, the model was made for {self.modalities}")
        self._check_shape("fused", observation.fused.shape)
        if observation.grid is not None:
            self._check_shape("voxels", observation.grid.voxels.shape)
        self.report.observation(observation, received_ns)
        last, self.last = self.last, observation
        if last is not None and last.epoch != observation.epoch:
            self.chunks.clear()
            self.report.epoch_changes += 1
            self.report.refused["epoch changed"] += 1
            return observation, None
        if last is not None:
            steps = round((observation.timestamp_ns - last.timestamp_ns) / self.period_ns)
            self.report.rows_missed += max(steps - 1, 0)
        refusal = self.gate.refusal(observation)
        if refusal is not None:
            self.report.refused[refusal] += 1
            return observation, None
        return observation, self._act(observation)

    def _act(self, observation: Observation) -> np.ndarray:
        grid = observation.grid
        voxels = np.zeros(self.shapes["voxels"], np.float32) if grid is None else grid.voxels[None]
        start = time.perf_counter_ns()
        (chunk,) = self.session.run(
            ["action"],
            {
                "fused": observation.fused[None],
                "valid": observation.valid[None].astype(np.float32),
                "voxels": voxels,
                "voxels_valid": np.full((1, 1), grid is not None, np.float32),
            },
        )
        self.report.action((time.perf_counter_ns() - start) / 1e3, grid)
        return self.chunks.add(observation.timestamp_ns, chunk[0])

    def _check_shape(self, name: str, shape: tuple) -> None:
        if self.shapes[name][1:] != shape:
            raise MessageError(f"{name} is {list(shape)}, the model was made for {list(self.shapes[name][1:])}")


def run(node: Node, policy: Policy) -> None:
    """Drains the node's events until its input has closed or the dataflow is stopped."""
    for event in node:
        match event["type"]:
            case "INPUT" if event["id"] == "observation":
                try:
                    observation, chunk = policy.observe(columns(event["value"]), event["metadata"], time.time_ns())
                except MessageError as error:
                    if not policy.report.malformed["observation"]:
                        print(f"policy: observation: {error}; it and its like are counted, not used", file=sys.stderr)
                    policy.report.malformed["observation"] += 1
                    continue
                if chunk is not None:
                    send(node, policy, observation, chunk)
            case "INPUT_CLOSED":
                return
            # dora says STOP before it hands out the inputs that are queued already: the loop ends after them.
            case "ERROR":
                print(f"policy: dora: {event.get('error')}", file=sys.stderr)


def columns(value: pa.Array) -> dict[str, np.ndarray]:
    """The columns of the only row of an `observation`, without a copy."""
    if not pa.types.is_struct(value.type) or len(value) != 1:
        raise MessageError(f"the payload is {len(value)} rows of {value.type}, expected one row of a struct")
    lists = zip(value.type, value.flatten(), strict=True)
    return {field.name: column.flatten().to_numpy(zero_copy_only=False) for field, column in lists}


def send(node: Node, policy: Policy, observation: Observation, chunk: np.ndarray) -> None:
    start, period = observation.timestamp_ns, policy.period_ns
    node.send_output(
        "action",
        pa.array(chunk.reshape(-1), pa.float32()),
        {
            "shape": [int(n) for n in chunk.shape],
            "timestamp_ns": start,
            "timestamps_ns": [start + period * step for step in range(1, len(chunk) + 1)],
            "fields": ACTION_FIELDS,
            "epoch": observation.epoch,
        },
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
        policy = Policy(args.model, Gate(dict(args.require)))
    except Exception as error:  # onnxruntime raises types of its own, which share no other base
        print(f"policy: {args.model}: {error}", file=sys.stderr)
        return 2
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
