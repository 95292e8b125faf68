"""A node that plays a script: a pickled list of steps.

- ("send", output, array, metadata): sends; the stamp may be "now", or ("start", ns), which is in ns after the node's start.
- ("sleep", seconds): sleeps.
- ("at", seconds): waits until that time after the node's start.
- ("wait", file): waits until the file exists, for 3 minutes at most.
- ("until", file, steps): repeats the steps until the file exists or the dataflow stops.
- ("up to", file, steps): plays the steps once, and breaks off when the file exists.
- ("die",): kills the process; the process that dora starts in its place plays the steps after this one.
"""

import faulthandler
import os
import pathlib
import pickle
import signal
import sys
import time

# The harness sends SIGUSR1 to a node that hangs, to see where.
faulthandler.register(signal.SIGUSR1, all_threads=True)
script = pathlib.Path(sys.argv[1])

# dora's publishers queue two batches, and drop messages that a consumer does not take within 1 ms: here, 16 batches and 1 s.
# Read when the node is created.
overlay = script.with_suffix(".json5")
overlay.write_text(
    '{"transport":{"link":{"tx":{"queue":{"size":{"real_time":16},'
    '"congestion_control":{"drop":{"wait_before_drop":1000000}}}}}}}'
)
os.environ["DORA_ZENOH_CONFIG_OVERLAY"] = str(overlay)

from dora import Node  # noqa: E402

# Messages that are in flight when a node ends are lost with it, so the node waits this long.
LINGER_S = 0.4

steps = pickle.loads(script.read_bytes())
resume = script.with_suffix(".resume")
done = int(resume.read_text()) if resume.exists() else 0

node = Node()
start, start_ns = time.monotonic(), time.time_ns()


def is_stopped() -> bool:
    event = node.next(timeout=0.001)
    return event is not None and event["type"] == "STOP"


def wait(file: str) -> None:
    deadline = time.monotonic() + 180.0
    while not pathlib.Path(file).exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def play(step: tuple, place: int) -> None:
    match step:
        case ("send", output, array, metadata):
            if metadata.get("timestamp_ns") == "now":
                metadata = {**metadata, "timestamp_ns": time.time_ns()}
            elif isinstance(metadata.get("timestamp_ns"), tuple):
                metadata = {**metadata, "timestamp_ns": start_ns + metadata["timestamp_ns"][1]}
            node.send_output(output, array, metadata)
        case ("sleep", seconds):
            time.sleep(seconds)
        case ("at", seconds):
            time.sleep(max(0.0, start + seconds - time.monotonic()))
        case ("wait", file):
            wait(file)
        case ("until", file, steps):
            while not pathlib.Path(file).exists() and not is_stopped():
                for inner in steps:
                    play(inner, place)
        case ("up to", file, steps):
            for inner in steps:
                if pathlib.Path(file).exists():
                    break
                play(inner, place)
        case ("die",):
            time.sleep(LINGER_S)
            resume.write_text(str(place + 1))
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            raise SystemExit(f"{script}: step {place} is {step!r}")


for place, step in enumerate(steps[done:], start=done):
    play(step, place)
time.sleep(LINGER_S)
