"""Inputs of LeRobot's policies, with the keys of LeRobot: a batch of one observation with a row for each step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from robocache.observation import Observation
from robocache.presets._rows import Columns, OnInvalid, cameras, rows, to_channels_first
from robocache.presets._rows import images as images_of


def batch(
    observation: Observation,
    steps: int,
    state: Columns,
    images: Mapping[str, str] | None,
    environment_state: Columns,
    on_invalid: OnInvalid,
    fill: float,
) -> dict[str, np.ndarray]:
    """Makes `observation.state` [1, n, D], `observation.environment_state` if asked for, and `observation.images.<camera>`
    [1, n, 3, H, W], float32. The arguments are those of a preset's `inputs`; n is `steps`."""
    taken = rows(observation, state, steps, on_invalid, fill)
    made = {"observation.state": taken.values[None]}
    if environment_state:
        made["observation.environment_state"] = rows(observation, environment_state, steps, on_invalid, fill).values[
            None
        ]
    for camera, name in cameras(images).items():
        stacked = images_of(observation, name, steps, taken.padded, on_invalid)[0]
        made[f"observation.images.{camera}"] = to_channels_first(stacked)[None]
    return made
