"""Inputs of GR00T N1.7: nested dicts of video, state and language, in physical units; and the `modality.json` of a data set.
There is no mask, so `on_invalid` decides."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robocache.presets import _config
from robocache.presets._rows import Columns, ObservationOrItem, OnInvalid, as_observation, cameras, rows
from robocache.presets._rows import images as images_of


def config(
    modalities: _config.Modalities,
    *,
    images: Sequence[str] = (),
    rate_hz: float = 20.0,
    window: int = 1,
    stride: int = 1,
) -> _config.Fragment:
    """Makes the section `fuse` of a configuration, with a modality for each key of the input `state`. The `window` must be the
    model's longest horizon."""
    return _config.fuse(modalities, images, rate_hz=rate_hz, window=window, stride=stride)


def inputs(
    observation: ObservationOrItem,
    *,
    state: Mapping[str, Columns] | Sequence[str],
    video: Mapping[str, str],
    task: str,
    language_key: str = "task",
    state_steps: int = 1,
    video_steps: int = 1,
    on_invalid: OnInvalid = "refuse",
    fill: float = 0.0,
) -> dict[str, dict[str, Any]]:
    """Makes the input of `Gr00tPolicy.get_action`: a batch of one, oldest row first.

    The result has `state.<key>` [1, T, D] float32, `video.<camera>` [1, T, H, W, 3] uint8, and `language.<key>` [[text]]. T is
    `state_steps` or `video_steps`. Horizons and keys must be those of `policy.get_modality_config()`.
    """
    observation = as_observation(observation)
    if isinstance(state, str):
        raise ValueError(f"state is {state!r}, expected a list of modalities, or the columns of each key")
    columns = state if isinstance(state, Mapping) else {name: [name] for name in state}
    taken = {key: rows(observation, names, state_steps, on_invalid, fill) for key, names in columns.items()}
    # The rows of the video that are before the start: those in which some modality has not begun.
    every = [name if isinstance(name, str) else name[0] for names in columns.values() for name in names]
    padded = rows(observation, list(dict.fromkeys(every)), video_steps, "fill", 0.0).padded
    return {
        "state": {key: part.values[None] for key, part in taken.items()},
        "video": {
            camera: images_of(observation, name, video_steps, padded, on_invalid)[0][None]
            for camera, name in cameras(video).items()
        },
        "language": {language_key: [[task]]},
    }


def modality_json(
    observation: ObservationOrItem,
    *,
    action: Mapping[str, int],
    video: Mapping[str, str] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Makes the `meta/modality.json` of a data set whose `observation.state` has the columns of `observation`.

    The dict `action` has the number of values of each key of the action, in order. The dict `video` has the `original_key` of each
    camera. The file is written if `path` is given.
    """
    observation = as_observation(observation)
    ends = np.cumsum(list(action.values())).tolist()
    spans = zip(action, [0, *ends], ends, strict=False)
    bounds = zip(observation.modalities, observation.offsets, observation.offsets[1:], strict=False)
    made: dict[str, Any] = {
        "state": {name: {"start": start, "end": end} for name, start, end in bounds},
        "action": {name: {"start": start, "end": end} for name, start, end in spans},
        "video": {camera: {"original_key": key} for camera, key in (video or {}).items()},
    }
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(made, file, indent=4)
            file.write("\n")
    return made
