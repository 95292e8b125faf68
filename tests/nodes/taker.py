"""A node that takes payloads from rings: a pickled list of (input, metadata, columns), in order of arrival, and the counters."""

import pathlib
import pickle
import sys

import numpy as np
from dora import Node

from robocache import _native

path = pathlib.Path(sys.argv[1])
copy = "view" not in sys.argv[2:]
messages = []
for event in Node():
    if event["type"] == "INPUT":
        metadata = {key: value for key, value in event["metadata"].items() if key != "open_telemetry_context"}
        resident = _native.take(
            metadata["ring"], metadata["slot"], metadata["generation"], metadata["nbytes"], copy=copy
        )
        columns = {}
        for name, tensor in resident.columns.items():
            tensor = tensor.bits() if tensor.dtype == "bfloat16" else tensor
            columns[name] = np.array(np.from_dlpack(tensor.to("cpu")))
            offsets = resident.offsets(name)
            if offsets is not None:
                columns[f"{name}.offsets"] = np.array(np.from_dlpack(offsets.to("cpu")))
        assert resident.is_intact
        del resident
        messages.append((event["id"], metadata, columns))
    elif event["type"] == "ERROR":
        raise SystemExit(f"taker: {event['error']}")
path.write_bytes(pickle.dumps((messages, _native.ring_counters())))
