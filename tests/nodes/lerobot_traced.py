"""Runs examples/lerobot/policy.py, and keeps the inputs of its network: a pickled list of dicts of arrays.

`lerobot_traced.py TRACE ARGUMENTS`. The number of the call seeds the random draws of the policy.
"""

import pathlib
import pickle
import sys

path = pathlib.Path(sys.argv[1])
sys.argv = ["policy.py", *sys.argv[2:]]
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "lerobot"))

import policy  # noqa: E402
import torch  # noqa: E402

reached = []


def traced(network):
    def call(batch):
        reached.append({key: value.cpu().numpy().copy() for key, value in batch.items() if isinstance(value, torch.Tensor)})
        torch.manual_seed(len(reached))
        return network(batch)

    return call


class Traced(policy.Policy):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        if self.config.type == "diffusion":
            self.network.diffusion.generate_actions = traced(self.network.diffusion.generate_actions)
        else:
            self.network.predict_action_chunk = traced(self.network.predict_action_chunk)


policy.Policy = Traced
code = policy.main()
path.write_bytes(pickle.dumps(reached))
sys.exit(code)
