"""Prints the force along z and its running mean from the fused tensor, once a second."""

import numpy as np
from dora import Node

count = 0
for event in Node():
    if event["type"] != "INPUT":
        continue
    metadata = event["metadata"]
    if count % 50 == 0:
        newest = event["value"].to_numpy().reshape(metadata["shape"])[-1]
        force, mean = np.split(newest, metadata["offsets"][1:-1])
        valid = dict(zip(metadata["modalities"], metadata["valid"], strict=True))
        print(f"fz {force[2]:8.3f} N, mean {mean[2]:8.3f} N, valid {valid}", flush=True)
    count += 1
print(f"{count} observations")
