"""Inputs of Diffusion Policy (LeRobot): two rows of `observation.state` and images, not normalised. There is no mask.

The method `DiffusionPolicy.select_action` makes its rows of a queue of past calls. The rows here are evenly spaced in capture
time, whenever the policy is called, so bypass the queue. Normalise the rows with the processors of the policy. Stack the
images of the cameras on dimension -4 as `observation.images`, and call `policy.diffusion.generate_actions`.
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
    """Makes the section `fuse` of a configuration; `modalities` are in the order of `observation.state`. The rows of a window are
    1 / `fps` s apart, and windows come at `rate_hz`."""
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
    """Makes a batch of one with n = `steps` rows (`n_obs_steps` of the policy), oldest row first.

    `observation.state` [1, n, D] float32; `observation.environment_state` [1, n, E]; `observation.images.<camera>`
    [1, n, 3, H, W] float32 from 0 to 1. Rows before the start of the episode repeat the oldest valid row, as LeRobot's queue
    does.
    """
    observation = as_observation(observation)
    return batch(observation, steps, state, images, environment_state, on_invalid, fill)
