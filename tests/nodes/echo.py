"""A bare service: answers each message with its payload and metadata."""

import os
import pathlib

# dora's publishers drop messages that a consumer does not take within 1 ms: here, 1 s. Read when the node is created.
overlay = pathlib.Path("echo.json5")
overlay.write_text('{"transport":{"link":{"tx":{"queue":{"congestion_control":{"drop":{"wait_before_drop":1000000}}}}}}}')
os.environ["DORA_ZENOH_CONFIG_OVERLAY"] = str(overlay)

from dora import Node  # noqa: E402

node = Node()
for event in node:
    if event["type"] == "INPUT":
        node.send_output("pong", event["value"], event["metadata"])
