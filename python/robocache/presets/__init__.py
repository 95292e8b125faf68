"""Inputs of published policies, with the names, order, units and masks that each policy was trained with.

There is a module for each family of policies. Its function `inputs` turns an observation into the raw input of the policy,
which normalises by itself. Its function `config` gives the part of the configuration that makes such observations.

>>> from robocache.presets import act
>>> print(act.config({"arm": 6, "gripper": 1}, images=["top"], rate_hz=50))
>>> batch = act.inputs(observation, state=["arm", "gripper"], images={"top": "top"})

A value that is not valid never passes for a measurement. It is marked in the mask of the policy. For a policy without a
mask, the argument `on_invalid` decides:

- `refuse`, the default, raises InvalidObservation.
- `hold` takes the newest older row of the window that is valid, and refuses if there is none.
- `fill` writes the number `fill`.

Rows before the start of the episode repeat the oldest valid row, and are never zeros.
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
