"""Counts the messages that are lost on the way from a Python sender: samples at 1 kHz beside clouds of 2 MB at 10 Hz.

    benches/bursts.py [SECONDS]

The messages are counted in a recording, with dora's default transport and with `robocache.wait_for_consumers`. One process
sends both streams, or each stream has a process of its own. Needs the release binaries and the package (`make build python`).
"""

import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
SAMPLE_HZ, CLOUD_HZ, POINTS = 1000, 10, 125_000
S = 1_000_000_000


def sender(kinds: str, seconds: float, waits: bool) -> None:
    """Runs the sending node for `seconds`. The text `kinds` names its outputs, such as `samples-clouds`. With `waits` the node
    calls `wait_for_consumers`."""
    import numpy as np
    import robocache as rc

    if waits:
        rc.wait_for_consumers()
    from dora import Node

    node = Node()
    cloud = np.random.default_rng(1).normal(0, 5, (POINTS, 4)).astype(np.float32)
    start, sent, clouds = time.time_ns(), 0, 0
    while sent < seconds * SAMPLE_HZ:
        now = start + sent * S // SAMPLE_HZ
        time.sleep(max(0, now - time.time_ns()) / S)
        if "samples" in kinds:
            rc.send(node, "samples", cloud[sent, :3], timestamp_ns=now)
        if "clouds" in kinds and sent * CLOUD_HZ >= clouds * SAMPLE_HZ:
            rc.send_cloud(node, "clouds", cloud, timestamp_ns=now, fields=["x", "y", "z", "intensity"])
            clouds += 1
        sent += 1
    rc.drain(1.0)


def lost(folder: pathlib.Path, processes: list[str], seconds: float, waits: bool) -> dict[str, int]:
    """Runs the dataflow in a folder, with a sending process for each text of `processes`, such as `samples-clouds`. Returns the
    number of messages of each stream that were lost on the way."""
    import pyarrow as pa
    from harness import Flow

    flow = Flow(folder)
    for kinds in processes:
        arguments = f"{__file__} {kinds} {seconds} {int(waits)}"
        flow.node(kinds, pathlib.Path(sys.executable), arguments, {}, kinds.split("-"), shared_memory_pool_size="64MB")
    sources = {kind: f"{kinds}/{kind}" for kinds in processes for kind in kinds.split("-")}
    inputs = {kind: {"source": source, "queue_size": 100_000} for kind, source in sources.items()}
    flow.robocache("record", {"record": {"path": "recording"}}, inputs)
    environment = {
        key: os.environ.pop(key) for key in ("DORA_ZENOH_CONFIG_OVERLAY", "ZENOH_CONFIG") if key in os.environ
    }
    flow.run(timeout=seconds * 2 + 60)
    os.environ |= environment
    missing = {}
    for kind, rate_hz in (("samples", SAMPLE_HZ), ("clouds", CLOUD_HZ)):
        with pa.memory_map(str(folder / "recording" / f"{kind}.arrow")) as source:
            missing[kind] = round(seconds * rate_hz) - pa.ipc.open_file(source).read_all().num_rows
    return missing


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    sys.path.insert(0, str(ROOT / "tests"))
    print(
        f"{SAMPLE_HZ * seconds:.0f} samples, {CLOUD_HZ * seconds:.0f} clouds of {POINTS * 16 / 1e6:.0f} MB; "
        f"{os.cpu_count()} cores"
    )
    for processes in (["samples-clouds"], ["samples", "clouds"]):
        for waits in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                missing = lost(pathlib.Path(folder), processes, seconds, waits)
            how = "wait_for_consumers" if waits else "default transport"
            print(
                f"{len(processes)} sending: {how:<20} lost {missing['samples']} samples, {missing['clouds']} clouds",
                flush=True,
            )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sender(sys.argv[1], float(sys.argv[2]), sys.argv[3] == "1")
    else:
        main()
