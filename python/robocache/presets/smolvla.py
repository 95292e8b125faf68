"""Inputs of SmolVLA (LeRobot): state and images of the newest row, not normalised, a mask for each image, and the task.

In `<camera>_padding_mask` True means an image and False means padding, in spite of the name, and unlike LeRobot's `_is_pad`.
The policy resizes the images, pads the state to 32 values and maps images to -1..1 by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robocache.presets import _config
from robocache.presets._rows import (
    Columns,
    InvalidObservation,
    ObservationOrItem,
    OnInvalid,
    as_observation,
    cameras,
    rows,
    to_channels_first,
)
from robocache.presets._rows import images as images_of


def config(
    modalities: _config.Modalities, *, images: Sequence[str] = (), rate_hz: float = 30.0, window: int = 1
) -> _config.Fragment:
    """Makes the section `fuse` of a configuration; `modalities` are in the order of `observation.state`."""
    return _config.fuse(modalities, images, rate_hz=rate_hz, window=window)


def inputs(
    observation: ObservationOrItem,
    *,
    state: Columns,
    images: Mapping[str, str],
    task: str,
    on_invalid: OnInvalid = "refuse",
    fill: float = 0.0,
) -> dict[str, Any]:
    """Makes the input of the policy, a batch of one:

    `observation.state` [1, D] float32; `observation.images.<camera>` [1, 3, H, W] float32 from 0 to 1, black if
    there is no image, and `observation.images.<camera>_padding_mask` [1] bool, False then; `task` [1] text.
    """
    observation = as_observation(observation)
    made: dict[str, Any] = {"observation.state": rows(observation, state, 1, on_invalid, fill).values, "task": [task]}
    found = {camera: images_of(observation, name, 1) for camera, name in cameras(images).items()}
    seen = [stacked for stacked, valid in found.values() if valid[0]]
    if not seen:
        raise InvalidObservation(f"none of the cameras {list(images)} has an image in the newest row")
    for camera, (stacked, valid) in found.items():
        key = f"observation.images.{camera}"
        made[key] = to_channels_first(stacked if valid[0] else np.zeros_like(seen[0]))
        made[f"{key}_padding_mask"] = valid
    return made
