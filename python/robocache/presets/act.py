"""Inputs of ACT (LeRobot): `observation.state` and images of the newest row, not normalised.

Normalise with the processors of the policy (`make_pre_post_processors`), which take this dict as tensors. ACT has no mask for
observations (`action_is_pad` is for actions), so `on_invalid` decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robocache.presets import _config
from robocache.presets._lerobot import batch
from robocache.presets._rows import Columns, ObservationOrItem, OnInvalid, as_observation

STEPS = 1


def config(
    modalities: _config.Modalities, *, images: Sequence[str] = (), rate_hz: float = 50.0, window: int = STEPS
) -> _config.Fragment:
    """Makes the section `fuse` of a configuration; `modalities` are in the order of `observation.state`. If `window` is more than
    1, `on_invalid="hold"` of `inputs` finds older values."""
    return _config.fuse(modalities, images, rate_hz=rate_hz, window=window)


def inputs(
    observation: ObservationOrItem,
    *,
    state: Columns,
    images: Mapping[str, str] | None = None,
    environment_state: Columns = (),
    on_invalid: OnInvalid = "refuse",
    fill: float = 0.0,
) -> dict[str, np.ndarray]:
    """Makes the input of `ACTPolicy.select_action`, a batch of one:

    `observation.state` [1, D] float32, the columns of `state` side by side; `observation.environment_state` likewise;
    `observation.images.<camera>` [1, 3, H, W] float32 from 0 to 1, of the attached stream that `images` names.
    """
    observation = as_observation(observation)
    made = batch(observation, STEPS, state, images, environment_state, on_invalid, fill)
    return {key: values[:, 0] for key, values in made.items()}
