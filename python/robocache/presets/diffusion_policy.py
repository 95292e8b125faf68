"""Diffusion Policy, the original: two rows of each key of its `shape_meta`, raw."""

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
    """Configures rows at 10 Hz, the rate of the policy's real robot."""
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
    """Input of `predict_action`: a batch of one, n = `steps` (`n_obs_steps`), oldest row first.

    A key of `low_dim`, such as `robot_eef_pose`, is [1, n, D] float32. A key of `images`, such as `camera_1`, is
    [1, n, 3, H, W] float32 from 0 to 1, from the attached stream that it names.
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
