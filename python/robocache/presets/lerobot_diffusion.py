"""Diffusion Policy of LeRobot: two rows, `observation.state` and images, raw.

The method `DiffusionPolicy.select_action` keeps a queue of the observations that it is called with. These rows are steps
of capture time, whenever they are asked for, so they bypass that queue. Normalise them with the processors of the policy,
stack the images of the cameras on dimension -4 as `observation.images`, and call `policy.diffusion.generate_actions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robocache.presets import _config
from robocache.presets._lerobot import batch
from robocache.presets._rows import Columns, ObservationOrItem, OnInvalid, as_observation

STEPS = 2


def config(
    modalities: _config.Modalities,
    *,
    images: Sequence[str] = (),
    rate_hz: float = 50.0,
    fps: float = 10.0,
    window: int = STEPS,
) -> _config.Fragment:
    """Configures modalities in the order of the state, with rows 1 / `fps` apart and windows at `rate_hz`."""
    stride = rate_hz / fps if fps > 0 else 0
    if stride < 1 or abs(stride - round(stride)) > 1e-9:
        raise ValueError(f"rate_hz is {rate_hz}, expected a multiple of fps, {fps}")
    return _config.fuse(modalities, images, rate_hz=rate_hz, window=window, stride=round(stride))


def inputs(
    observation: ObservationOrItem,
    *,
    state: Columns,
    images: Mapping[str, str] | None = None,
    environment_state: Columns = (),
    steps: int = STEPS,
    on_invalid: OnInvalid = "refuse",
    fill: float = 0.0,
) -> dict[str, np.ndarray]:
    """A batch of one, n = `steps` (`n_obs_steps` of the policy), oldest row first.

    `observation.state` [1, n, D] float32; `observation.environment_state` [1, n, E]; `observation.images.<camera>`
    [1, n, 3, H, W] float32 from 0 to 1. Rows before the start repeat the oldest valid one, as LeRobot's queue does.
    """
    observation = as_observation(observation)
    return batch(observation, steps, state, images, environment_state, on_invalid, fill)
