"""Sends the metadata of what comes on, without the payload."""

import time

import pyarrow as pa
from dora import Node

nothing = pa.array([], pa.uint8())
node = Node()
for event in node:
    if event["type"] == "INPUT":
        # Not while the tensor itself is under way.
        time.sleep(0.005)
        # dora sets its own stamp.
        node.send_output("bare", nothing, {key: value for key, value in event["metadata"].items() if key != "timestamp"})
