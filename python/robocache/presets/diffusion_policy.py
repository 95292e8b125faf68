"""Inputs of the original Diffusion Policy: two rows for each key of its `shape_meta`, not normalised. There is no mask, so
`on_invalid` decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robocache.presets import _config
from robocache.presets._rows import (
    Columns,
    ObservationOrItem,
    OnInvalid,
    as_observation,
    cameras,
    rows,
    to_channels_first,
)
from robocache.presets._rows import images as images_of

STEPS = 2


def config(
    modalities: _config.Modalities, *, images: Sequence[str] = (), rate_hz: float = 10.0, window: int = STEPS
) -> _config.Fragment:
    """Makes the section `fuse` of a configuration, with rows at 10 Hz, the rate of the robot on which the policy was published."""
    return _config.fuse(modalities, images, rate_hz=rate_hz, window=window)


def inputs(
    observation: ObservationOrItem,
    *,
    low_dim: Mapping[str, Columns],
    images: Mapping[str, str] | None = None,
    steps: int = STEPS,
    on_invalid: OnInvalid = "refuse",
    fill: float = 0.0,
) -> dict[str, np.ndarray]:
    """Makes the input of `predict_action`: a batch of one with n = `steps` rows (`n_obs_steps`), oldest row first.

    The dict `low_dim` has the columns of each key, such as `robot_eef_pose`, which becomes [1, n, D] float32. The dict `images`
    has the attached stream of each key, such as `camera_1`, which becomes [1, n, 3, H, W] float32 from 0 to 1.
    """
    observation = as_observation(observation)
    made, padded = {}, None
    for key, columns in low_dim.items():
        taken = rows(observation, columns, steps, on_invalid, fill)
        padded = taken.padded if padded is None else padded & taken.padded
        made[key] = taken.values[None]
    for key, name in cameras(images).items():
        made[key] = to_channels_first(images_of(observation, name, steps, padded, on_invalid)[0])[None]
    return made
