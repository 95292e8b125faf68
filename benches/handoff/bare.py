"""A node that forwards the metadata of each message without the payload, to measure the cost of a message alone."""

import time

import pyarrow as pa
from dora import Node

nothing = pa.array([], pa.uint8())
node = Node()
for event in node:
    if event["type"] == "INPUT":
        # The tensor itself arrives meanwhile, so that the two messages do not disturb each other.
        time.sleep(0.005)
        # dora sets `timestamp` itself.
        node.send_output("bare", nothing, {key: value for key, value in event["metadata"].items() if key != "timestamp"})
