"""Payloads in rings are the same as payloads in messages."""

import pathlib
import pickle
import sys

import numpy as np
import pyarrow as pa
import pytest

from harness import NODES, Flow, on_device, refusal, same_bits, send
from oracle import MS
from test_record import table

GRID = {"origin_m": [-2.0, -2.0, -2.0], "voxel_size_m": [0.25] * 3, "shape": [16, 16, 16]}
CHANNELS = ["occupancy", "count", "mean_x", "mean_intensity"]


def plugins() -> list[dict]:
    """Returns plugins whose outputs have every form of payload: flat of several types, structs, and lists of any length."""
    lidar = {"inputs": [{"input": "lidar"}]}
    modalities = [{"input": "force", "dim": 3, "interpolation": "linear"}]
    return [
        {"fuse": {"rate_hz": 100, "window": 4, "modalities": modalities}},
        {"align": {"rate_hz": 50, "window": 2, "dtype": "bfloat16", "name": "half", "modalities": modalities}},
        {"voxelize": {**GRID, **lidar, "name": "dense", "layout": "dense", "channels": CHANNELS}},
        {"voxelize": {**GRID, **lidar, "name": "bits", "layout": "bits", "channels": ["occupancy"]}},
        {"voxelize": {**GRID, **lidar, "name": "coo", "layout": "coo", "channels": CHANNELS}},
        {"resample": {"interpolation": "linear"}},
    ]


OUTPUTS = ["fused", "half/force", "dense/voxels", "bits/voxels", "coo/voxels", "resampled"]


def in_rings(plugins: list[dict], ring: dict) -> list[dict]:
    outputs = {"fuse": "fused", "align": "force", "voxelize": "voxels", "resample": "resampled"}
    return [{kind: {**config, "residence": {outputs[kind]: ring}}} for step in plugins for kind, config in step.items()]


def trajectories(rng: np.random.Generator) -> pa.Array:
    rows = [(int(rng.integers(2, 9)), int(rng.integers(1, 6))) for _ in range(int(rng.integers(1, 5)))]
    columns = {
        "timestamps_ns": [np.sort(rng.integers(0, 1000, samples)) for samples, _ in rows],
        "values": [rng.normal(size=samples * 2).astype(np.float32) for samples, _ in rows],
        "targets_ns": [np.sort(rng.integers(0, 1000, targets)) for _, targets in rows],
    }
    types = [pa.list_(pa.int64()), pa.list_(pa.float32()), pa.list_(pa.int64())]
    arrays = [pa.array(lists, kind) for lists, kind in zip(columns.values(), types, strict=True)]
    return pa.StructArray.from_arrays(arrays, list(columns))


def steps(count: int) -> list[tuple]:
    rng = np.random.default_rng(7)
    made = []
    for i in range(count):
        made.append(send("force", rng.normal(size=3).astype(np.float32), 1_000 * MS + i * 4 * MS))
        if i % 5 == 0:
            points = rng.uniform(-2.2, 2.2, (int(rng.integers(0, 3000)), 4)).astype(np.float32)
            fields = ["x", "y", "z", "intensity"]
            made.append(send("lidar", points, 1_000 * MS + i * 4 * MS, shape=list(points.shape), fields=fields))
        if i % 7 == 0:
            made.append(send("trajectories", trajectories(rng), 1_000 * MS + i * 4 * MS, dim=2))
    return made


def taker(flow: Flow, name: str, inputs: dict, *args: str) -> None:
    edges = {key: {"source": source, "queue_policy": "backpressure", "queue_size": 20000} for key, source in inputs.items()}
    flow.node(name, pathlib.Path(sys.executable), " ".join([f"{NODES / 'taker.py'} {flow.folder / name}.pickle", *args]), edges, [])


def taken(flow: Flow, name: str) -> tuple[list, dict]:
    return pickle.loads((flow.folder / f"{name}.pickle").read_bytes())


def columns_of(array: pa.Array) -> dict:
    """Returns the columns of a payload in the form in which nodes/taker.py returns them."""
    if not pa.types.is_struct(array.type):
        return {"": array.to_numpy(zero_copy_only=False)}
    columns = {}
    for i, field in enumerate(array.type):
        column = array.field(i)
        if pa.types.is_fixed_size_list(column.type):
            flat = column.flatten().to_numpy(zero_copy_only=False)
            columns[field.name] = flat.reshape(len(column), column.type.list_size)
        elif pa.types.is_list(column.type):
            columns[field.name] = column.flatten().to_numpy(zero_copy_only=False)
            columns[f"{field.name}.offsets"] = (column.offsets.to_numpy() - column.offsets[0].as_py()).astype(np.int32)
        else:
            columns[field.name] = column.to_numpy(zero_copy_only=False)
    return columns


def check_rings(flow: Flow, kind: str, config: dict, env: dict, *args: str) -> str:
    """Runs every operation twice, publishing in messages and in rings, and compares the payloads. Returns the log of the node with
    rings."""
    flow.sender(steps(150))
    inputs = {name: f"sender/{name}" for name in ("force", "lidar", "trajectories")}
    ring = {"kind": kind, "slots": 4, "backpressure": True, "consumers": 2, "lease_timeout_ms": 20000}
    flow.robocache("node", {"plugins": plugins()}, inputs, OUTPUTS, name="plain")
    flow.robocache("node", {**config, "plugins": in_rings(plugins(), ring)}, inputs, OUTPUTS, name="rings")
    on_device(flow.nodes[-1], env)
    flow.collector({name.replace("/", "-"): f"plain/{name}" for name in OUTPUTS}, name="sink")
    recorded = flow.folder / "recorded"
    by_ring = {name.replace("/", "-"): f"rings/{name}" for name in OUTPUTS}
    flow.robocache("record", {"record": {"path": str(recorded)}}, by_ring)
    on_device(flow.nodes[-1], env)
    taker(flow, "taker", by_ring, *args)
    on_device(flow.nodes[-1], env)
    done = flow.run()
    messages, counters = taken(flow, "taker")
    assert counters["stale"] == counters["torn"] == 0
    for name in (output.replace("/", "-") for output in OUTPUTS):
        plain = done.received("sink", name)
        ringed = [(metadata, columns) for input_name, metadata, columns in messages if input_name == name]
        assert len(plain) == len(ringed) > 10, (name, done.logs["rings"])
        assert table(recorded / f"{name}.arrow").num_rows == len(plain), done.logs["record"]
        for one, (metadata, columns) in zip(plain, ringed, strict=True):
            assert metadata["residence"] == kind
            differs = {"compute_us", "sender", "timestamp", "device", "device_bytes"}
            same = metadata.keys() - {"residence", "ring", "slot", "generation", "nbytes"} - differs
            assert same == one.metadata.keys() - differs
            assert all(metadata[key] == one.metadata[key] for key in same)
            assert same_bits(columns, columns_of(one.array)), (name, one.stamp)
    return done.logs["rings"]


@pytest.mark.parametrize("view", [False, True], ids=["copies", "where-they-lie"])
def test_what_comes_by_a_ring_is_what_comes_in_the_message(flow, view):
    check_rings(flow, "shared", {}, {}, *["view"] * view)


def test_a_recorder_writes_the_same_of_a_ring_as_of_a_message(flow):
    flow.sender(steps(100))
    inputs = {name: f"sender/{name}" for name in ("force", "lidar", "trajectories")}
    ring = {"kind": "shared", "backpressure": True, "lease_timeout_ms": 20000}
    flow.robocache("node", {"plugins": plugins()}, inputs, OUTPUTS, name="plain")
    flow.robocache("node", {"plugins": in_rings(plugins(), ring)}, inputs, OUTPUTS, name="rings")
    for source in ("plain", "rings"):
        path = flow.folder / f"of-{source}"
        outputs = {name.replace("/", "-"): f"{source}/{name}" for name in OUTPUTS}
        flow.robocache("record", {"record": {"path": str(path)}}, outputs, name=f"record-{source}")
    done = flow.run()
    for name in (output.replace("/", "-") for output in OUTPUTS):
        one, other = (table(flow.folder / f"of-{source}" / f"{name}.arrow") for source in ("plain", "rings"))
        ours = [column for column in one.column_names if column not in ("metadata", "arrival_ns")]
        assert one.num_rows == other.num_rows > 10, done.logs["record-rings"]
        assert other.column_names == one.column_names
        for column in ours:
            assert one.column(column).equals(other.column(column)), (name, column)


def test_a_ring_that_can_not_be_is_said_and_the_payloads_go_by_the_host(flow):
    flow.sender(steps(50))
    config = {"device": "cpu", "fuse": {**plugins()[0]["fuse"], "residence": "cuda"}}
    flow.robocache("fuse", config, {"force": "sender/force"}, ["fused"])
    flow.collector({"fused": "fuse/fused"})
    done = flow.run()
    assert "output `fused`: no ring: the operation runs on cpu" in done.logs["fuse"], done.logs["fuse"]
    assert "its payloads go by the host" in done.logs["fuse"]
    received = done.received("sink")
    assert len(received) > 10 and all("ring" not in message.metadata for message in received)


def test_a_residence_that_makes_no_sense_is_refused_before_the_dataflow_is_joined(tmp_path):
    for residence, expected in [
        ("gpu", 'residence: "gpu" is not allowed (allowed: host, shared or cuda'),
        ("{ voxels: cuda }", "residence: `voxels` is not an output (allowed: fused"),
        ("{ fused: { kind: shared, slots: 1 } }", "residence.fused.slots: 1 is not allowed (allowed: 2 to 60)"),
    ]:
        text = f"fuse: {{ rate_hz: 50, modalities: [{{ input: a, dim: 1, interpolation: linear }}], residence: {residence} }}\n"
        code, words = refusal("fuse", text, tmp_path)
        assert code == 2 and expected in words, words


