"""A node that is started anew publishes as another `sender`, so that consumers with a history begin again."""

import os
import signal

import numpy as np
import pyarrow as pa
import robocache as rc

from harness import send, wait_for
from oracle import MS
from test_record import table

FUSE = {"rate_hz": 100, "max_wait_ms": 30, "window": 2, "modalities": [{"input": "force", "dim": 1, "interpolation": "previous"}]}


def test_the_first_observation_after_a_restart_is_refused_and_a_history_begins_anew(flow):
    """The node fuse is killed, and dora starts it again. The epoch of its observations is 0 as before, and their stamps go on."""
    force = [send("force", np.float32([1]), "now"), ("sleep", 0.01)]
    done = flow.folder / "done"
    flow.sender([("until", str(done), force)])
    lives = {"restart_policy": "on-failure", "max_restarts": 3}
    flow.robocache("fuse", {"fuse": FUSE}, {"force": {"source": "sender/force", "queue_size": 100}}, ["fused"], **lives)
    flow.robocache("record", {"record": {"path": str(flow.folder / "recorded")}}, {"fused": {"source": "fuse/fused", "queue_size": 1000}})
    flow.collector({"fused": {"source": "fuse/fused", "queue_size": 20000}})

    def rows() -> int:
        try:
            return table(flow.folder / "recorded" / "fused.arrow").num_rows
        except (OSError, pa.ArrowInvalid):  # not there yet, or at this moment being written
            return 0

    with flow.start() as wait:
        wait_for((flow.folder / "sink.started").exists, what="an observation")
        (pid,) = wait_for(lambda: flow.pids("fuse"), what="fuse")
        before = wait_for(rows, what="a batch")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: [other for other in flow.pids("fuse") if other != pid], what="fuse again")
        wait_for(lambda: rows() > before + 200, what="observations after it", timeout=180)
        done.touch()
        result = wait()
    got = result.received("sink", "fused")
    senders = [message.metadata["sender"] for message in got]
    first = next(i for i, sender in enumerate(senders) if sender != senders[0])
    assert set(senders[:first]) == {senders[0]} and set(senders[first:]) == {senders[-1]} and first > 3
    assert all(type(sender) is int and 0 <= sender < 2**53 for sender in senders)
    assert {message.metadata["epoch"] for message in got} == {0}

    gate, history = rc.Gate(), rc.History(4)
    refusals, lengths = [], []
    for message in got:
        observation = rc.Observation.from_message(message.array, message.metadata)
        refusals.append(gate.refusal(observation))
        history.push(observation)
        lengths.append(len(history))
    assert [i for i, why in enumerate(refusals) if why] == [first] and refusals[first] == "sender changed"
    assert lengths[first - 1 : first + 5] == [4, 1, 2, 3, 4, 4]
    # A recording does not hold which process published its messages.
    assert b'"sender"' not in (flow.folder / "recorded" / "fused.arrow").read_bytes()


def test_every_node_says_which_process_published_and_recordings_are_the_same_to_the_byte(flow):
    """Two nodes of each kind publish the same messages. Each node has its own `sender`, even in messages that it only forwards."""
    steps = [send("force", np.float32([i, -i]), i * 10 * MS, sender="gripper") for i in range(100)]
    flow.sender(steps)
    for side in ("one", "other"):
        clock = {"inputs": [{"input": "force", "clock": "realtime"}]}
        fuse = {"rate_hz": 100, "max_wait_ms": None, "modalities": [{"input": "force", "dim": 2, "interpolation": "linear"}]}
        flow.robocache("clock", {"clock": clock}, {"force": "sender/force"}, ["force"], name=f"clock-{side}")
        flow.robocache("fuse", {"fuse": fuse}, {"force": f"clock-{side}/force"}, ["fused"], name=f"fuse-{side}")
        recorded = {"path": str(flow.folder / side)}
        inputs = {"force": f"clock-{side}/force", "fused": f"fuse-{side}/fused", "raw": "sender/force"}
        flow.robocache("record", {"record": recorded}, inputs, name=f"record-{side}")
    flow.collector({f"{name}-{side}": f"{name}-{side}/{of}" for name, of in (("clock", "force"), ("fuse", "fused")) for side in ("one", "other")})
    done = flow.run()
    senders = {node: {m.metadata["sender"] for m in done.received("sink", node)} for node in ("clock-one", "clock-other", "fuse-one", "fuse-other")}
    assert all(len(of) == 1 for of in senders.values()) and len(set().union(*senders.values())) == 4, senders
    for name in ("force", "fused", "raw"):
        one, other = (table(flow.folder / side / f"{name}.arrow") for side in ("one", "other"))
        assert one.num_rows == other.num_rows > 90 and one.column_names == other.column_names
        differ = ("arrival_ns", "metadata") if name == "fused" else ("arrival_ns",)
        for column in (column for column in one.column_names if column not in differ):
            assert one.column(column).equals(other.column(column)), (name, column)
        assert one.schema.metadata.keys() == other.schema.metadata.keys()
        if name != "fused":
            assert one.schema.metadata == other.schema.metadata
    # Text under the key `sender` is metadata of whoever sent it, and is recorded; the clock puts its own number in its place.
    assert b"gripper" in (flow.folder / "one" / "raw.arrow").read_bytes()
    assert b"gripper" not in (flow.folder / "one" / "force.arrow").read_bytes()
