"""Inputs of Octo: two rows of images and proprioception, with a mask for each step and for each key.

In both masks True means that the model attends to the step or the value. As in Octo's training, `timestep_pad_mask` is False only
for steps before the start of the episode. A key that is missing in a step is False in `pad_mask_dict`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robocache.presets import _config
from robocache.presets._rows import (
    Columns,
    InvalidObservation,
    ObservationOrItem,
    OnInvalid,
    as_observation,
    cameras,
    rows,
)
from robocache.presets._rows import images as images_of

STEPS = 2


def config(
    modalities: _config.Modalities, *, images: Sequence[str] = (), rate_hz: float = 5.0, window: int = STEPS
) -> _config.Fragment:
    """Makes the section `fuse` of a configuration; `modalities` are in the order of the input `proprio`."""
    return _config.fuse(modalities, images, rate_hz=rate_hz, window=window)


def inputs(
    observation: ObservationOrItem,
    *,
    proprio: Columns,
    images: Mapping[str, str],
    steps: int = STEPS,
    on_invalid: OnInvalid = "refuse",
    fill: float = 0.0,
) -> dict[str, Any]:
    """Makes the argument `observations` of `OctoModel.sample_actions`: a batch of one, oldest step first.

    `proprio` [1, T, D] float32, not normalised; `image_<name>` [1, T, H, W, 3] uint8, black if it is missing;
    `timestep_pad_mask` [1, T] and each key of `pad_mask_dict` [1, T] bool. Octo was never trained without
    proprioception, so `on_invalid` decides for it; a filled value is False in `pad_mask_dict`.
    """
    observation = as_observation(observation)
    taken = rows(observation, proprio, steps, on_invalid, fill)
    made: dict[str, Any] = {"proprio": taken.values[None]}
    masks = {"proprio": taken.valid[None]}
    for key, name in cameras(images).items():
        stacked, valid = images_of(observation, name, steps, taken.padded)
        if not valid.any():
            raise InvalidObservation(
                f"attached {name!r} has no image in any of {steps} steps: its shape is not known, leave {key!r} out"
            )
        made[f"image_{key}"] = stacked[None]
        masks[f"image_{key}"] = valid[None]
    made["timestep_pad_mask"] = ~taken.padded[None]
    # The newest step never counts as before the start, even if all of it is filled: the policy acts on it.
    made["timestep_pad_mask"][:, -1] = True
    made["pad_mask_dict"] = masks
    return made
