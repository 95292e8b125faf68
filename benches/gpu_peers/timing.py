"""How a peer is timed, and the row that comes of it.

Inputs and outputs go through more memory than the L2 cache holds before one is seen again. Without a graph, a pass
over the sets of inputs is timed as one, launches and all; with one, the pass is captured once and replayed.
"""

import json
import sys
import time

import numpy as np
import torch

ROTATED_BYTES = 256 << 20
SETS = (8, 4096)
# One set is past the cache by itself
LARGE_SET_BYTES, LARGE_SETS = 128 << 20, 4
# Launches of Python, not of the device, are what a pass without a graph shows: it needs no more sets than this.
UNCAPTURED_SETS = 256
# So that what lies between two replays does not count
GRAPH_CALLS = 64
SECONDS, PASSES = 0.25, (20, 300)


def sets_for(set_bytes: int) -> int:
    """How many sets of inputs and outputs, of so many bytes each, to rotate through."""
    if set_bytes > LARGE_SET_BYTES:
        return LARGE_SETS
    return min(max(-(-ROTATED_BYTES // set_bytes), SETS[0]), SETS[1])


def time_passes(one_pass, calls: int) -> list[float]:
    """Microseconds of one call, for each of many passes of `calls` calls."""
    one_pass()
    torch.cuda.synchronize()
    start = time.perf_counter()
    one_pass()
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    passes = min(max(int(SECONDS / max(took, 1e-6)), PASSES[0]), PASSES[1])
    if took * passes > 4 * SECONDS:
        passes = max(3, int(4 * SECONDS / took))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(passes + 1)]
    marks[0].record()
    for mark in marks[1:]:
        one_pass()
        mark.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) * 1e3 / calls for before, after in zip(marks, marks[1:])]


def time_calls(work, sets: list[tuple]) -> list[float]:
    sets = sets[:UNCAPTURED_SETS]
    kept = [None] * len(sets)

    def one_pass():
        for place, inputs in enumerate(sets):
            kept[place] = work(*inputs)

    return time_passes(one_pass, len(sets))


def time_graph(work, sets: list[tuple]) -> list[float]:
    """What `work` returns is kept until the end of the capture, so that every call writes to memory of its own."""
    for inputs in sets[:3]:
        work(*inputs)
    torch.cuda.synchronize()
    calls = sets if len(sets) <= LARGE_SETS else sets * -(-GRAPH_CALLS // len(sets))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [work(*inputs) for inputs in calls]
    times = time_passes(graph.replay, len(calls))
    del kept, graph
    return times


class Rows:
    """Prints a row for each measurement; a peer that fails or is not installed costs its row, not the run."""

    def __init__(self):
        self.copy_gbps = None

    def add(self, op: str, config: str, backend: str, times: list[float], size: int, scope="device") -> dict:
        p50, p99 = np.percentile(times, [50, 99], method="nearest")
        gbps = size / p50 / 1e3
        row = {"op": op, "config": config, "backend": backend, "scope": scope}
        row |= {"us_p50": round(float(p50), 2), "us_p99": round(float(p99), 2), "bytes": size, "gbps": round(gbps, 1)}
        row["of_copy"] = round(gbps / self.copy_gbps, 3) if self.copy_gbps and size and scope == "device" else None
        print(json.dumps(row), flush=True)
        return row

    def try_add(self, op: str, config: str, backend: str, timed, size: int) -> None:
        began = time.perf_counter()
        try:
            self.add(op, config, backend, timed(), size)
        except Exception as error:  # noqa: BLE001
            lines = str(error).strip().splitlines()
            print(f"{op}, {config}, {backend}: {type(error).__name__}: {' | '.join(lines[:3])}", file=sys.stderr)
        print(f"  {backend}: {time.perf_counter() - began:.1f} s", file=sys.stderr)


def torch_rows(rows: Rows, op: str, config: str, work, sets, check, size: int, graph: bool = True, name="") -> None:
    """The four rows of something written in PyTorch. `check` raises where a result is wrong."""
    for backend, function in [("torch eager", work), ("torch.compile", None)]:
        if function is None:
            torch._dynamo.reset()
            function = torch.compile(work, dynamic=False)
        label = f"{backend}{name}"

        def checked(function=function):
            check(function(*sets[0]), sets[0])
            return time_calls(function, sets)

        rows.try_add(op, config, label, checked, size)
        if graph:
            rows.try_add(op, config, f"{label} + graph", lambda f=function: time_graph(f, sets), size)
        torch.cuda.empty_cache()


def kernel_rows(rows: Rows, op: str, config: str, backend: str, work, sets, check, size: int, graph=True) -> None:
    """The rows of something that is no PyTorch program: as it is, and captured."""

    def checked():
        check(work(*sets[0]), sets[0])
        return time_calls(work, sets)

    rows.try_add(op, config, backend, checked, size)
    if graph:
        rows.try_add(op, config, f"{backend} + graph", lambda: time_graph(work, sets), size)
    torch.cuda.empty_cache()
