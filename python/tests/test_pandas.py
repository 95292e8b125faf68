"""Tests that no message imports pandas: pyarrow does so at its first conversion, which takes 0.3 s in the middle of a dataflow."""

import importlib.util
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import numpy as np
import pyarrow as pa
import robocache as rc

class Node:
    def send_output(self, output, array, metadata):
        self.sent = array, metadata

node = Node()
values = np.arange(6, dtype=np.float32).reshape(2, 3)
rc.send(node, "fused", values, timestamp_ns=20, timestamps_ns=[10, 20])
array, metadata = node.sent
event = {"type": "INPUT", "id": "fused", "value": array, "metadata": metadata}
assert (rc.open_tensor(event).numpy() == values).all()
said = {"shape": [2, 3], "timestamp_ns": 20, "timestamps_ns": [10, 20], "modalities": ["arm"], "offsets": [0, 3],
        "valid": [1, 1], "age_ns": [0, 0], "epoch": 0, "late_samples": 0}
assert (rc.Observation.from_message(array, said).fused == values).all()
print("pandas" in sys.modules)
"""


@pytest.mark.skipif(not importlib.util.find_spec("pandas"), reason="pandas is not installed")
def test_no_message_waits_for_pandas():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
