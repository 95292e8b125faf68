"""Messages that arrive while the operations of a node are busy take hardly any memory, and every one is counted."""

import contextlib
import re
import time

import numpy as np
import pyarrow as pa

from harness import send
from oracle import MS

# An observation of this many rotations takes the operation tens of milliseconds. Another operation takes it in the same process,
# so that nothing large leaves the node: if dora's pool is full, its transport keeps payloads in the node's own memory.
CHANNELS = 1024
ROTATIONS = [{"channels": [at, at + 4], "interpolation": "slerp"} for at in range(0, CHANNELS, 4)]
SLOW = {
    "name": "slow",
    "rate_hz": 1000,
    "window": 1 << 11,
    "modalities": [
        {"input": "force", "dim": CHANNELS, "groups": ROTATIONS},
        {"input": "text", "dim": 1, "interpolation": "previous", "wait": False},
        {"input": "unstamped", "dim": 1, "interpolation": "previous", "wait": False},
    ],
}
NEWEST = {
    "rate_hz": 1000,
    "modalities": [{"input": "slow/fused", "dim": CHANNELS + 2, "interpolation": "previous"}],
}
FLOOD = 200_000


def resident_mb(pid: int) -> float:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return int(re.search(r"^Anonymous: +(\d+) kB", file.read(), re.MULTILINE)[1]) / 1024


def test_a_flood_while_the_operations_are_busy(flow):
    """One input gets messages that can't be read. Another input gets more messages than its queue holds, and these have no
    stamp."""
    force = [send("force", np.full(CHANNELS, 0.5, np.float32), i * MS + MS // 2) for i in range(2000)]
    text, unstamped = send("text", pa.array(["a"]), 0), send("unstamped", np.float32([1]), None)
    # Without the pauses, much of the flood would wait inside dora on a busy machine, where nobody counts its memory.
    flood = [*[text, unstamped] * 500, ("sleep", 0.02)] * (FLOOD // 1000)
    flow.sender([*force, *flood], shared_memory_pool_size="8MB")
    queues = {"force": 2000, "text": 1000, "unstamped": 1000}
    edges = {name: {"source": f"sender/{name}", "queue_size": size} for name, size in queues.items()}
    status = {"status": str(flow.folder / "status")}
    flow.robocache("node", {**status, "device": "cpu", "plugins": [{"fuse": SLOW}, {"fuse": NEWEST}]}, edges, ["fused"])
    megabytes = []
    with flow.start(150) as wait:
        while flow.pids("sender") or not megabytes:
            for pid in flow.pids("node"):
                # The process may end meanwhile.
                with contextlib.suppress(OSError):
                    megabytes.append(resident_mb(pid))
            time.sleep(0.2)
        done = wait()
    assert done.code == 0, done.output[-3000:]
    log = done.logs["node"]

    # Every message that came is counted, and every one that dora dropped before; its transport may lose a few of a burst.
    text, unstamped = (flow.status("node")["inputs"][name] for name in ("text", "unstamped"))
    came = {row["input"]: row["messages"] + row["faults"] + row["dropped_overflow"] for row in (text, unstamped)}
    assert all(0.99 * FLOOD // 2 <= count <= FLOOD // 2 for count in came.values()), [text, unstamped]
    assert text["messages"] == unstamped["faults"] == 0, [text, unstamped]
    # All but the newest thousand of the messages that came at once are dropped.
    assert 0.51 * came["unstamped"] < unstamped["dropped_overflow"] <= came["unstamped"] - 1000, unstamped
    for what in ("messages without `timestamp_ns`", "input `text`", "input `unstamped`: overload"):
        assert len(re.findall(rf"^[A-Z]+ {re.escape(what)}: \d+ in all", log, re.MULTILINE)) == 1, log
    # One line stands for tens of thousands of messages.
    assert max(int(n) for n in re.findall(r"\((\d+) since the last line", log)) > 10_000, log
    # The large observation takes 8 MB, and on a busy machine much of the flood waits inside dora. With a queue for 100,000
    # messages, the node took 300 MB and more.
    assert max(megabytes) < 240, [log, megabytes[:: max(1, len(megabytes) // 40)]]
