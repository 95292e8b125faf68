"""Inputs of pi0, pi0.5 and pi0-FAST (openpi): state and images of the newest row, with a mask for each camera.

openpi normalises, pads the state to the model's width, and resizes the images by itself. In its masks True means valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

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
)
from robocache.presets._rows import images as images_of

Model = Literal["pi0", "pi05", "pi0_fast"]
CAMERAS: Mapping[str, tuple[str, str, str]] = {
    "pi0": ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb"),
    "pi05": ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb"),
    "pi0_fast": ("base_0_rgb", "base_1_rgb", "wrist_0_rgb"),
}


def config(
    modalities: _config.Modalities, *, images: Sequence[str] = (), rate_hz: float = 15.0, window: int = 1
) -> _config.Fragment:
    """Makes the section `fuse` of a configuration; `modalities` are in the order of the input `state`."""
    return _config.fuse(modalities, images, rate_hz=rate_hz, window=window)


def inputs(
    observation: ObservationOrItem,
    *,
    state: Columns,
    images: Mapping[str, str],
    prompt: str,
    model: Model = "pi0",
    on_invalid: OnInvalid = "refuse",
    fill: float = 0.0,
) -> dict[str, Any]:
    """Makes the input of the model's own transforms: one observation, without a batch dimension.

    `state` [D] float32; `image` with all three cameras of the model, each [H, W, 3] uint8; `image_mask`, True if there is an
    image. The dict `images` names the attached stream of a camera. A camera that is not named, or has no image, is black and
    False. With pi0-FAST, which does not mask images, each camera that is named must have an image.
    """
    observation = as_observation(observation)
    if model not in CAMERAS:
        raise ValueError(f"model is {model!r}, expected one of {list(CAMERAS)}")
    unknown = sorted(cameras(images).keys() - set(CAMERAS[model]))
    if unknown:
        raise ValueError(f"images names {unknown}, the cameras of {model} are {list(CAMERAS[model])}")
    taken = rows(observation, state, 1, on_invalid, fill)
    found, masks = {}, {}
    for camera, name in images.items():
        if model == "pi0_fast":
            found[camera], masks[camera] = images_of(observation, name, 1, None, on_invalid)[0][0], np.True_
            continue
        stacked, valid = images_of(observation, name, 1)
        if valid[0]:
            found[camera], masks[camera] = stacked[0], np.True_
    if not found:
        raise InvalidObservation(f"none of the cameras {list(images)} has an image in the newest row")
    black = np.zeros_like(next(iter(found.values())))
    return {
        "state": taken.values[-1],
        "image": {camera: found.get(camera, black) for camera in CAMERAS[model]},
        "image_mask": {camera: masks.get(camera, np.bool_(model == "pi0_fast")) for camera in CAMERAS[model]},
        "prompt": prompt,
    }


def droid(
    observation: ObservationOrItem,
    *,
    joints: Columns,
    gripper: Columns,
    exterior: str,
    wrist: str,
    prompt: str,
    on_invalid: OnInvalid = "refuse",
    fill: float = 0.0,
) -> dict[str, Any]:
    """Makes the input of a policy server for DROID (`DroidInputs`). There is no mask: both cameras must have an image.

    `observation/joint_position` [7] rad, `observation/gripper_position` [1], `observation/exterior_image_1_left` and
    `observation/wrist_image_left` [H, W, 3] uint8, `prompt`.
    """
    observation = as_observation(observation)
    arm, hand = (rows(observation, columns, 1, on_invalid, fill).values[-1] for columns in (joints, gripper))
    if arm.shape != (7,) or hand.shape != (1,):
        raise ValueError(f"there are {len(arm)} joints and {len(hand)} gripper values, DROID has 7 and 1")
    return {
        "observation/exterior_image_1_left": images_of(observation, exterior, 1, None, on_invalid)[0][0],
        "observation/wrist_image_left": images_of(observation, wrist, 1, None, on_invalid)[0][0],
        "observation/joint_position": arm,
        "observation/gripper_position": hand,
        "prompt": prompt,
    }
