"""A node that plays a script: a pickled list of steps.

("send", output, array, metadata), ("sleep", seconds), ("wait", file) until the file is there, ("die",). The steps
after a `die` are those of the process that dora starts in its place.
"""

import os
import pathlib
import pickle
import signal
import sys
import time

script = pathlib.Path(sys.argv[1])

# dora's publishers drop what a consumer does not take within 1 ms, two batches deep; read when the node is made.
overlay = script.with_suffix(".json5")
overlay.write_text(
    '{"transport":{"link":{"tx":{"queue":{"size":{"real_time":16},'
    '"congestion_control":{"drop":{"wait_before_drop":1000000}}}}}}}'
)
os.environ["DORA_ZENOH_CONFIG_OVERLAY"] = str(overlay)

from dora import Node  # noqa: E402

# What is still on its way when a node ends is lost with it.
LINGER_S = 0.4

steps = pickle.loads(script.read_bytes())
resume = script.with_suffix(".resume")
done = int(resume.read_text()) if resume.exists() else 0

node = Node()
for place, step in enumerate(steps[done:], start=done):
    match step:
        case ("send", output, array, metadata):
            node.send_output(output, array, metadata)
        case ("sleep", seconds):
            time.sleep(seconds)
        case ("wait", file):
            deadline = time.monotonic() + 30.0
            while not pathlib.Path(file).exists() and time.monotonic() < deadline:
                time.sleep(0.01)
        case ("die",):
            time.sleep(LINGER_S)
            resume.write_text(str(place + 1))
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            raise SystemExit(f"{script}: step {place} is {step!r}")
time.sleep(LINGER_S)
