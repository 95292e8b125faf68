"""Puts every tensor on the GPU, and writes down how long that took since it was sent.

On a machine without a GPU or without PyTorch the tensors stay where they come, NumPy's.
"""

import importlib.util
import pathlib
import pickle
import sys
import time

from dora import Node

import robocache

torch = None
if importlib.util.find_spec("torch"):
    import torch

path = pathlib.Path(sys.argv[1])
is_on_gpu = torch is not None and torch.cuda.is_available()
if is_on_gpu:
    torch.zeros(1, device="cuda")
times = {part: [] for part in ("whole", "hop", "open", "take", "bare")}
residences: dict[str, int] = {}


def opened(event: dict, copy: bool) -> robocache.MessageTensor:
    column = "values" if "targets" in event["metadata"] else None
    return robocache.open_tensor(event, column, copy=copy)


def used(tensor: robocache.MessageTensor) -> object:
    if torch is None:
        return tensor.numpy()
    array = tensor.torch()
    if not is_on_gpu:
        return array
    array = array.cuda()
    torch.cuda.synchronize()
    return array


for event in Node():
    if event["type"] != "INPUT":
        continue
    began, metadata = time.time_ns(), event["metadata"]
    sent = int(metadata["timestamp"].timestamp() * 1e9)
    if event["id"] == "bare":
        times["bare"].append(began - sent)
        continue
    is_resident = "ring" in metadata
    try:
        # By the host nothing is copied but to the device.
        array = used(opened(event, copy=is_resident))
        now = time.time_ns()
        del array
        opened(event, copy=False).close()
    except robocache.RingError as error:
        print(f"policy: {error}", file=sys.stderr)
        continue
    times["open"].append(time.time_ns() - now)
    times["whole"].append(now - metadata["timestamp_ns"])
    times["take"].append(now - began)
    times["hop"].append(now - sent)
    residence = metadata.get("residence", "host")
    residences[residence] = residences.get(residence, 0) + 1
device = "cuda" if is_on_gpu else "cpu"
path.write_bytes(pickle.dumps({**times, "residences": residences, "counters": robocache.ring_counters(), "device": device}))
