"""The policy of handoff.py: puts every tensor on the GPU, and records the time since the message was sent.

An idle policy sleeps until a message comes. A busy policy works on the GPU until then, like a policy that computes all the
time. Without a GPU or PyTorch the tensors stay on the host, as NumPy arrays.
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

path, is_busy = pathlib.Path(sys.argv[1]), sys.argv[2] == "busy"
is_on_gpu = torch is not None and torch.cuda.is_available()
if is_on_gpu:
    torch.zeros(1, device="cuda")
    small = torch.zeros(2, 1 << 14, dtype=torch.uint8, device="cuda")
times = {part: [] for part in ("whole", "hop", "take", "held", "bare", "least")}
payloads = 0
residences: dict[str, int] = {}


def opened(event: dict, copy: bool) -> robocache.MessageTensor:
    column = "values" if "targets" in event["metadata"] else None
    return robocache.open_tensor(event, column, copy=copy)


def used(tensor: robocache.MessageTensor) -> object:
    if torch is None:
        return tensor.numpy()
    array = tensor.torch()
    if is_on_gpu and not array.is_cuda:
        array = array.cuda()
        torch.cuda.synchronize()
    return array


def events(node: Node):
    """Yields the events of a node. If the policy is busy, the GPU works between events."""
    if not is_busy:
        yield from node
        return
    weights = torch.ones(256, 256, device="cuda") if is_on_gpu else None
    # If no event has come in time, dora returns an event `ERROR`; None is the end of the dataflow.
    while (event := node.next(timeout=0.0)) is not None:
        if event["type"] != "ERROR":
            yield event
        elif weights is not None:
            torch.matmul(weights, weights)
            torch.cuda.synchronize()


for event in events(Node()):
    if event["type"] != "INPUT":
        continue
    began, metadata = time.time_ns(), event["metadata"]
    sent = int(metadata["timestamp"].timestamp() * 1e9)
    if event["id"] == "bare":
        times["bare"].append(began - sent)
        if is_on_gpu:
            small[0].copy_(small[1])
            torch.cuda.synchronize()
            times["least"].append(time.time_ns() - began)
        continue
    payloads += 1
    is_resident = "ring" in metadata
    is_held = is_resident and payloads % 2 == 0
    try:
        # A payload in host memory needs no copy on the host, since it is copied to the device.
        array = used(opened(event, copy=is_resident and not is_held))
        now = time.time_ns()
        del array
    except robocache.RingError as error:
        print(f"policy: {error}", file=sys.stderr)
        continue
    if is_held:
        times["held"].append(now - began)
    else:
        times["whole"].append(now - metadata["timestamp_ns"])
        times["take"].append(now - began)
        times["hop"].append(now - sent)
    residence = metadata.get("residence", "host")
    residences[residence] = residences.get(residence, 0) + 1
device = "cuda" if is_on_gpu else "cpu"
path.write_bytes(pickle.dumps({**times, "residences": residences, "counters": robocache.ring_counters(), "device": device}))
