"""Puts every tensor on the GPU, and writes down how long that took since it was sent."""

import pathlib
import pickle
import sys
import time

import torch
from dora import Node

import robocache

path = pathlib.Path(sys.argv[1])
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.zeros(1, device=device)
times = {"whole": [], "hop": [], "take": [], "bare": []}
residences: dict[str, int] = {}


def on_device(event: dict) -> torch.Tensor:
    column = "values" if str(event["metadata"].get("dim", "")) or "targets" in event["metadata"] else None
    # By the host nothing is copied but to the device.
    is_resident = "ring" in event["metadata"]
    tensor = robocache.open_tensor(event, column, copy=is_resident).torch()
    return tensor if tensor.is_cuda or device == "cpu" else tensor.to(device)


for event in Node():
    if event["type"] != "INPUT":
        continue
    began, metadata = time.time_ns(), event["metadata"]
    sent = int(metadata["timestamp"].timestamp() * 1e9) if "timestamp" in metadata else None
    if event["id"] == "bare":
        times["bare"].append(began - metadata["timestamp_ns"])
        continue
    try:
        tensor = on_device(event)
    except robocache.RingError as error:
        print(f"policy: {error}", file=sys.stderr)
        continue
    if tensor.is_cuda:
        torch.cuda.synchronize()
    now = time.time_ns()
    times["whole"].append(now - metadata["timestamp_ns"])
    times["take"].append(now - began)
    times["hop"].append(now - (sent if sent is not None else began))
    residences[metadata.get("residence", "host")] = residences.get(metadata.get("residence", "host"), 0) + 1
    del tensor
path.write_bytes(pickle.dumps({**times, "residences": residences, "counters": robocache.ring_counters(), "device": device}))
