"""Measures the time from a sensor's message to a torch tensor on the GPU: by a ring on the device, and by host memory.

    python benches/handoff.py [--seconds N] > out/handoff.jsonl

Runs a dataflow for each payload, policy and residence, in turn. The dataflow has a source, a node on the GPU, and a policy that
brings each payload to the GPU in the best way. Rows on standard output have the times

- `whole`: from the source's stamp to the tensor,
- `hop`: from the node's sending to the tensor,
- `bare`: from the sending of a message with the same metadata and no payload to the policy, which is most of `hop`,
- `take`: the policy's part of `hop`, from the event to the tensor, with its copy,
- `held`: `take` for every other payload of a ring, which is used in its slot without a copy,
- `added`: `hop` less `bare`,
- `least`: the least work of an idle policy on the GPU, a copy of 16 KiB within the device by torch.

An `idle` policy sleeps until a message comes, and its first work on the GPU, which it shares with the node, has to wait. A
`busy` policy computes on the GPU all the time. The nodes must have been built, and the Python must have torch and CUDA; with
`--device cpu --residences shared host` neither torch nor CUDA is needed.
"""

import argparse
import itertools
import json
import os
import pathlib
import pickle
import statistics
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARTS = pathlib.Path(__file__).with_name("handoff")
DORA = os.environ.get("DORA", "dora")

GRID = {"origin_m": [-6.4] * 3, "voxel_size_m": [0.05] * 3, "shape": [256] * 3, "inputs": [{"input": "lidar"}]}
MODALITIES = [
    {"input": name, "dim": dim, "interpolation": "previous"} for name, dim in (("force", 6), ("proprio", 15), ("camera", 128))
]
FUSE = {"rate_hz": 50, "window": 16, "trigger": {"stream": "camera"}, "modalities": MODALITIES}
# For each payload: the section of the node, its configuration, inputs and output, and the messages a second
PAYLOADS = {
    "fused 16 x 149": ("fuse", FUSE, ["force", "proprio", "camera"], "fused", 50),
    "bits 256^3": ("voxelize", {**GRID, "layout": "bits", "channels": ["occupancy"]}, ["lidar"], "voxels", 20),
    "dense 256^3": ("voxelize", {**GRID, "layout": "dense", "channels": ["occupancy"]}, ["lidar"], "voxels", 10),
    "batch 64 x 1024 x 32": ("resample", {"interpolation": "linear"}, ["trajectories"], "resampled", 10),
}


def run(payload: str, residence: str, policy: str, seconds: float, device: str) -> dict:
    kind, section, inputs, output, rate = PAYLOADS[payload]
    with tempfile.TemporaryDirectory(prefix="handoff-") as folder:
        folder = pathlib.Path(folder)
        (folder / "config.yml").write_text(yaml.safe_dump({"device": device, "plugins": [{kind: {**section, "residence": residence}}]}))
        python = {"path": sys.executable}
        pool = {"shared_memory_pool_size": "512MB"}
        nodes = [
            {"id": "source", **python, **pool, "outputs": inputs},
            {"id": "node", "path": str(ROOT / "target/release/robocache-node"), **pool, "outputs": [output]},
            {"id": "policy", **python, **pool},
            {"id": "bare", **python, "args": str(PARTS / "bare.py"), "outputs": ["bare"]},
        ]
        nodes[0]["args"] = f"{PARTS / 'source.py'} {kind} {rate} {seconds}"
        nodes[1]["args"] = f"--config {folder / 'config.yml'}"
        nodes[1]["inputs"] = {name: {"source": f"source/{name}", "queue_size": 100} for name in inputs}
        nodes[2]["args"] = f"{PARTS / 'policy.py'} {folder / 'times.pickle'} {policy}"
        nodes[2]["inputs"] = {name: {"source": source, "queue_size": 4} for name, source in
                              (("tensor", f"node/{output}"), ("bare", "bare/bare"))}
        nodes[3]["inputs"] = {"tensor": f"node/{output}"}
        (folder / "flow.yml").write_text(yaml.safe_dump({"nodes": nodes}))
        done = subprocess.run([DORA, "run", "flow.yml"], cwd=folder, capture_output=True, text=True, timeout=120)
        if done.returncode != 0 or not (folder / "times.pickle").exists():
            raise SystemExit(f"{payload}, {residence}: exit code {done.returncode}\n{done.stdout[-6000:]}")
        return pickle.loads((folder / "times.pickle").read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--device", default="cuda", help="device of the node")
    parser.add_argument("--residences", nargs="+", default=["cuda", "host"])
    parser.add_argument("--policies", nargs="+", default=["idle", "busy"], choices=["idle", "busy"])
    parser.add_argument("--payloads", nargs="+", default=list(PAYLOADS), choices=list(PAYLOADS))
    arguments = parser.parse_args()
    for payload, policy, residence in itertools.product(arguments.payloads, arguments.policies, arguments.residences):
        print(f"{payload} by {residence}, {policy} policy", file=sys.stderr)
        times = run(payload, residence, policy, arguments.seconds, arguments.device)
        row = {"op": "handoff", "config": payload, "by": residence, "policy": policy, "messages": len(times["whole"])}
        row |= {"residences": times["residences"], "counters": times["counters"], "device": times["device"]}
        for what in ("whole", "hop", "take", "held", "bare", "least"):
            # The first messages are left out: they open the ring and warm the device up.
            if ordered := sorted(times[what][min(10, len(times[what]) // 4) :]):
                row[f"{what}_us_p50"] = round(statistics.median(ordered) / 1e3, 1)
                row[f"{what}_us_p99"] = round(ordered[int(0.99 * (len(ordered) - 1))] / 1e3, 1)
        row["added_us_p50"] = round(row["hop_us_p50"] - row["bare_us_p50"], 1)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
