"""A node that keeps every message: a pickled list of (input, metadata, pickled Arrow array), in order of arrival."""

import pathlib
import pickle
import sys
import time

from dora import Node

path = pathlib.Path(sys.argv[1])
# For how long each message keeps the node busy: a slow consumer.
pause_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
messages = []
first = True
for event in Node():
    if event["type"] == "INPUT":
        # The array itself lies in its sender's shared memory; its pickle does not.
        metadata = {key: value for key, value in event["metadata"].items() if key != "open_telemetry_context"}
        messages.append((event["id"], metadata, pickle.dumps(event["value"])))
        if first:
            first = False
            path.with_suffix(".started").touch()
        if pause_s:
            time.sleep(pause_s)
    elif event["type"] == "STOP":
        break
    elif event["type"] == "ERROR":
        messages.append(("ERROR", {"error": str(event.get("error"))}, pickle.dumps(None)))
partial = path.with_suffix(".partial")
partial.write_bytes(pickle.dumps(messages))
partial.rename(path)
