"""An untrained policy node: attention over each observation gives actions for the next half second.

The node sends no action for an observation that `robocache.Gate` refuses.

policy.py       in a dataflow, with an input `fused` or `observation`; needs torch
"""

import sys

import robocache as rc

try:
    import torch
except ImportError:
    sys.exit("examples/attention needs torch: pip install torch")

from attention import TimeAttention, Tokens

HORIZON, PERIOD_S, ACTIONS = 10, 0.05, 8


def main() -> None:
    rc.wait_for_consumers()
    from dora import Node

    node = Node()
    gate, network = rc.Gate(), None
    ahead_s = PERIOD_S * torch.arange(1, HORIZON + 1)[None]
    for event in node:
        if event["type"] != "INPUT":
            continue
        try:
            observation = rc.Observation.from_event(event)
        except (rc.MessageError, rc.RingError) as error:
            print("hold:", error, flush=True)
            continue
        if (why := gate.refusal(observation)) is not None:
            print("hold:", why, flush=True)
            continue
        if network is None:
            torch.manual_seed(0)
            dims = [observation[name].shape[1] for name in observation.modalities]
            network = torch.nn.ModuleDict({"see": TimeAttention(dims), "act": torch.nn.Linear(128, ACTIONS)}).eval()
        with torch.inference_mode():
            action = network["act"](network["see"](Tokens.of([observation]), ahead_s))[0]
        rc.send(node, "action", action, timestamp_ns=observation.timestamp_ns, epoch=observation.epoch)
    rc.drain()


if __name__ == "__main__":
    main()
