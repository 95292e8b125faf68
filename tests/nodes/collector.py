"""A node that keeps every message: a pickled list of (input, metadata, pickled Arrow array), in order of arrival."""

import faulthandler
import pathlib
import pickle
import signal
import sys
import time

# The harness sends SIGUSR1 to a node that hangs, to see where.
faulthandler.register(signal.SIGUSR1, all_threads=True)

from dora import Node  # noqa: E402

path = pathlib.Path(sys.argv[1])
# Pause after each message, for a slow consumer.
pause_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
messages = []
# dora's Python API hands out STOP before inputs that came earlier, so the loop goes on until the stream of events ends.
for event in Node():
    match event["type"]:
        case "INPUT":
            # The array lies in its sender's shared memory; the pickle is a copy.
            metadata = {key: value for key, value in event["metadata"].items() if key != "open_telemetry_context"}
            messages.append((event["id"], metadata, pickle.dumps(event["value"])))
            if len(messages) == 1:
                path.with_suffix(".started").touch()
            if pause_s:
                time.sleep(pause_s)
        case "ERROR":
            messages.append(("ERROR", {"error": str(event.get("error"))}, pickle.dumps(None)))
partial = path.with_suffix(".partial")
partial.write_bytes(pickle.dumps(messages))
partial.rename(path)
