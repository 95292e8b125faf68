"""A policy that asks: `asker.py FILE COUNT RATE_HZ` sends COUNT requests, and as many pings to a bare service.

FILE gets a pickled dict: the time at which each request or ping was sent, s, and the time and the metadata of each
answer.
"""

import os
import pathlib
import pickle
import sys
import time

import pyarrow as pa

path, count, rate_hz = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

# dora's publishers drop messages that a consumer does not take within 1 ms: here, 1 s. Read when the node is created.
overlay = path.with_suffix(".json5")
overlay.write_text('{"transport":{"link":{"tx":{"queue":{"congestion_control":{"drop":{"wait_before_drop":1000000}}}}}}}')
os.environ["DORA_ZENOH_CONFIG_OVERLAY"] = str(overlay)

from dora import Node  # noqa: E402

node = Node()
sent = {"ask": [], "ping": []}
came = {"fused": [], "pong": []}

# Waits for the first message of the sensors.
while (event := node.next()) is not None and event["id"] != "ready":
    pass
start = time.perf_counter()
while min(map(len, came.values())) < count and time.perf_counter() - start < count / rate_hz + 120.0:
    number = len(sent["ask"])
    due = start + number / rate_hz
    if number < count and time.perf_counter() >= due:
        # Request and ping take turns at being sent first.
        for output in ("ask", "ping") if number % 2 else ("ping", "ask"):
            sent[output].append(time.perf_counter())
            node.send_output(output, pa.array([], pa.uint8()), {"request_id": f"{output}-{number}", "number": number})
        continue
    wait = due - time.perf_counter() if number < count else 0.1
    event = node.next(timeout=max(wait, 0.0001))
    if event is not None and event["type"] == "INPUT" and event["id"] in came:
        metadata = {key: value for key, value in event["metadata"].items() if key != "open_telemetry_context"}
        came[event["id"]].append((time.perf_counter(), metadata))
partial = path.with_suffix(".partial")
partial.write_bytes(pickle.dumps({"sent": sent, "came": came}))
partial.rename(path)
