"""Times peers and prints their rows.

A pass calls a peer on each of its sets of inputs and outputs. All sets together are several times the size of the L2 cache.
Without a graph, a pass is timed as a whole, with its launches. With a graph, a pass is captured once and replayed. A call
that is timed alone is issued and waited for, after the cache was filled with other data.
"""

import json
import sys
import time

import numpy as np
import torch

# The same numbers as in robocache-bench (timing.rs), so that rows can be compared
ROTATED_BYTES = 256 << 20
SETS = (8, 4096)
# Touched bytes above which a call leaves nothing of the call before in any cache, and the number of sets of such a call
LARGE_SET_BYTES, LARGE_SETS = 128 << 20, 4
# Largest number of sets in a pass without a graph, which measures launches from Python and not the device
UNCAPTURED_SETS = 256
# Smallest number of calls in a graph, so that the time between two replays does not count
GRAPH_CALLS = 64
SECONDS, PASSES = 0.2, (20, 300)
ALONE_SECONDS, ALONE_CALLS = 0.1, (20, 200)


def sets_for(touched_bytes: int) -> int:
    """Returns the number of sets of inputs and outputs that calls must use in turn if a call touches `touched_bytes` of its set."""
    if touched_bytes > LARGE_SET_BYTES:
        return LARGE_SETS
    return min(max(-(-ROTATED_BYTES // touched_bytes), SETS[0]), SETS[1])


def time_passes(one_pass, calls: int) -> list[float]:
    """Times many runs of `one_pass`, which makes `calls` calls, by CUDA events. Returns the us of one call, for each pass."""
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


def time_alone(call) -> list[float]:
    """Times single calls that are waited for, by the CPU's clock, us."""
    cache = torch.empty(ROTATED_BYTES // 4, device="cuda")
    taken: list[float] = []
    began = time.perf_counter()
    while len(taken) < ALONE_CALLS[0] or len(taken) < ALONE_CALLS[1] and time.perf_counter() - began < ALONE_SECONDS:
        cache.sum()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - start) * 1e6)
    return taken


def time_calls(work, sets: list[tuple]) -> "Times":
    sets = sets[:UNCAPTURED_SETS]
    kept = [None] * len(sets)

    def one_pass():
        for place, inputs in enumerate(sets):
            kept[place] = work(*inputs)

    times = time_passes(one_pass, len(sets))
    kept.clear()
    return Times(times, time_alone(lambda: work(*sets[0])), len(sets))


def time_graph(work, sets: list[tuple]) -> "Times":
    """Times calls that are captured in a CUDA graph. All results are kept during the capture, so that each call has its own
    memory."""
    for inputs in sets[:3]:
        work(*inputs)
    torch.cuda.synchronize()
    calls = sets if len(sets) <= LARGE_SETS else sets * -(-GRAPH_CALLS // len(sets))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [work(*inputs) for inputs in calls]
    times = time_passes(graph.replay, len(calls))
    del kept, graph
    one = torch.cuda.CUDAGraph()
    with torch.cuda.graph(one):
        kept = work(*sets[0])
    alone = time_alone(one.replay)
    del kept, one
    return Times(times, alone, len(sets))


class Times:
    """Times of one peer, us for a call: in passes (`us`) and alone (`alone`), and the number of sets that a pass uses."""

    def __init__(self, us: list[float], alone: list[float], sets: int):
        self.us, self.alone, self.sets = us, alone, sets


class Rows:
    """Printer of an output row for each measurement. If a peer fails or is not installed, a row says so, and the run goes on."""

    def __init__(self):
        self.copy_gbps = None

    def add(self, op: str, config: str, backend: str, times: Times, touched: int, scope="device") -> dict:
        p50, p99 = np.percentile(times.us, [50, 99], method="nearest")
        gbps = touched / p50 / 1e3
        is_device = scope == "device"
        row = {"op": op, "config": config, "backend": backend, "scope": scope}
        row |= {"us_p50": round(float(p50), 2), "us_p99": round(float(p99), 2), "us_early_off": None}
        row["us_alone"] = round(float(np.median(times.alone)), 2) if is_device and times.alone else None
        row |= {"sets": times.sets if is_device else None, "touched_bytes": touched, "gbps": round(gbps, 1)}
        row["of_copy"] = round(gbps / self.copy_gbps, 3) if self.copy_gbps and touched and is_device else None
        print(json.dumps(row), flush=True)
        return row

    def missing(self, op: str, config: str, backend: str, why: str) -> None:
        """Prints an output row without figures, which says why there are none."""
        print(f"{op}, {config}, {backend}: {why}", file=sys.stderr)
        print(json.dumps({"op": op, "config": config, "backend": backend, "missing": why}), flush=True)

    def try_add(self, op: str, config: str, backend: str, timed, touched: int) -> bool:
        began = time.perf_counter()
        try:
            self.add(op, config, backend, timed(), touched)
        except Exception as error:  # noqa: BLE001
            lines = str(error).strip().splitlines()
            self.missing(op, config, backend, f"{type(error).__name__}: {' | '.join(lines[:3])}")
            return False
        finally:
            print(f"  {backend}: {time.perf_counter() - began:.1f} s", file=sys.stderr)
        return True


class Peer:
    """A configuration that peers are measured on: its sets of inputs, and the function `check`, which raises if a result is wrong.

    If `are_pairs`, a peer keeps its result from call to call. The second half of the sets then has the memory of the first half,
    with other inputs.
    """

    def __init__(self, rows: Rows, op: str, config: str, sets: list[tuple], check, touched: int, are_pairs: bool = False):
        self.rows, self.op, self.config, self.sets = rows, op, config, sets
        self.check, self.touched, self.are_pairs = check, touched, are_pairs

    def torch(self, work, name: str = "", graph: bool = True, uncaptured: bool = True) -> None:
        """Measures a function of PyTorch, eager and compiled. Each is measured by single launches (if `uncaptured`) and as a CUDA
        graph (if `graph`); `name` is appended to its name in the row."""
        self.measure(f"torch eager{name}", work, graph, uncaptured)
        torch._dynamo.reset()
        self.measure(f"torch.compile{name}", torch.compile(work, dynamic=False), graph, uncaptured)

    def measure(self, backend: str, work, graph: bool = True, uncaptured: bool = True) -> None:
        """Measures a function by single launches (if `uncaptured`) and captured in a CUDA graph (if `graph`). If the result is
        wrong, no row is printed."""

        def timed(time_sets):
            work(*self.sets[len(self.sets) // 2])
            self.check(work(*self.sets[0]), self.sets[0])
            times = time_sets(work, self.sets)
            times.sets //= 2 if self.are_pairs else 1
            return times

        for label, time_sets, is_wanted in [(backend, time_calls, uncaptured), (f"{backend} + graph", time_graph, graph)]:
            if is_wanted:
                self.rows.try_add(self.op, self.config, label, lambda: timed(time_sets), self.touched)
        torch.cuda.empty_cache()
