"""A node whose operations are held up: what comes meanwhile takes no memory and is counted to the last message."""

import contextlib
import re
import time

import numpy as np
import pyarrow as pa

from harness import send
from oracle import MS

# An observation of so many rows takes the operation tens of milliseconds.
SLOW = {
    "rate_hz": 1000,
    "window": 1 << 18,
    "modalities": [
        {"input": "force", "dim": 16, "interpolation": "linear"},
        {"input": "text", "dim": 1, "interpolation": "previous", "wait": False},
        {"input": "unstamped", "dim": 1, "interpolation": "previous", "wait": False},
    ],
}
FLOOD = 200_000


def resident_mb(pid: int) -> float:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return int(re.search(r"^Anonymous: +(\d+) kB", file.read(), re.MULTILINE)[1]) / 1024


def test_a_flood_while_the_operations_are_busy(flow):
    """Messages that can't be read on one input, and on another one more of them than it holds, without a stamp."""
    force = [send("force", np.full(16, i, np.float32), i * MS) for i in range(300)]
    text, unstamped = send("text", pa.array(["a"]), 0), send("unstamped", np.float32([1]), None)
    flow.sender([*force, *[text, unstamped] * (FLOOD // 2)], shared_memory_pool_size="8MB")
    edges = {name: {"source": f"sender/{name}", "queue_size": 1000} for name in ("force", "text", "unstamped")}
    flow.robocache("fuse", {"device": "cpu", "fuse": SLOW}, edges, ["fused"], shared_memory_pool_size="256MB")
    megabytes = []
    with flow.start(150) as wait:
        while flow.pids("sender") or not megabytes:
            for pid in flow.pids("fuse"):
                # It may end meanwhile.
                with contextlib.suppress(OSError):
                    megabytes.append(resident_mb(pid))
            time.sleep(0.2)
        done = wait()
    assert done.code == 0, done.output[-3000:]
    log = done.logs["fuse"]

    def counted(what: str) -> int:
        found = re.findall(rf"^[A-Z]+ {re.escape(what)}: (\d+) in all", log, re.MULTILINE)
        assert len(found) <= 1, log
        return int(found[0]) if found else 0

    # dora's transport may lose a few of a burst; what came is counted to the last message.
    assert 0.99 * FLOOD // 2 <= counted("input `text`") <= FLOOD // 2, log
    unstamped = int(re.search(r"^INFO messages without `timestamp_ns`: (\d+) in all", log, re.MULTILINE)[1])
    assert 0.99 * FLOOD // 2 <= unstamped <= FLOOD // 2, log
    # All but the newest thousand of what came at once.
    assert 0.5 * unstamped < counted("input `unstamped`: overload") <= unstamped - 1000, log
    # Tens of thousands of them waited together, in one line.
    assert max(int(n) for n in re.findall(r"\((\d+) since the last line", log)) > 10_000, log
    # Observations take 16 MB each, and a few of them are on their way at a time.
    assert max(megabytes) < 120, megabytes
