"""Operations with names of their own, in one process and in a dataflow."""

import numpy as np

from harness import send
from oracle import MS


def fuse(name: str | None, stream: str) -> dict:
    own = {"name": name} if name else {}
    return {"fuse": own | {"rate_hz": 100, "modalities": [{"input": stream, "dim": 1, "interpolation": "previous"}]}}


def test_the_same_operation_runs_twice_in_a_node(flow):
    steps = [send("force", np.array([k], np.float32), k * 10 * MS) for k in range(5)]
    flow.sender(steps)
    config = {"plugins": [fuse("wrist", "force"), fuse(None, "wrist/fused")], "fuse": {"window": 9}}
    flow.robocache("node", config, {"force": "sender/force"}, ["wrist/fused", "fused"])
    flow.collector({"wrist": "node/wrist/fused", "all": "node/fused"})
    done = flow.run()
    for name, modality in {"wrist": "force", "all": "wrist/fused"}.items():
        got = done.received("sink", name)
        assert [(m.stamp, m.values.tolist(), m.metadata["modalities"]) for m in got] == [
            (k * 10 * MS, [k], [modality]) for k in range(5)
        ]
    log = done.logs["node"]
    assert "the section `fuse:` is not used: `plugins:` lists what runs" in log
