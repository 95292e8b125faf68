"""Inputs of real policies, with the names, order, units and masks of each policy.

There is a module for each family of policies. Its `inputs` turns an observation into the raw input of the policy:
policies normalise by themselves. Its `config` gives the part of the configuration that makes such observations.

>>> from robocache.presets import act
>>> print(act.config({"arm": 6, "gripper": 1}, images=["top"], rate_hz=50))
>>> batch = act.inputs(observation, state=["arm", "gripper"], images={"top": "top"})

A value that is not valid never becomes a plausible number. It is marked in the mask of the policy. For a policy without a
mask, `on_invalid` decides:

- `refuse`, the default, raises InvalidObservation.
- `hold` takes the newest older row of the window that is valid, and refuses if there is none.
- `fill` writes the number `fill`.

Rows before the start repeat the oldest valid one, and are never zeros.
"""

from robocache.presets import (
    act,
    diffusion_policy,
    dp3,
    groot_n17,
    lerobot_diffusion,
    octo,
    openpi,
    peract,
    rotations,
    smolvla,
    umi,
)
from robocache.presets._config import Fragment
from robocache.presets._rows import InvalidObservation

__all__ = [
    "Fragment",
    "InvalidObservation",
    "act",
    "diffusion_policy",
    "dp3",
    "groot_n17",
    "lerobot_diffusion",
    "octo",
    "openpi",
    "peract",
    "rotations",
    "smolvla",
    "umi",
]
