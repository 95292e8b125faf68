"""Inputs of 3D Diffusion Policy (DP3): two rows of `agent_pos` and of a point cloud, not normalised. The cloud must be cropped and
sampled before; there is no mask."""

from __future__ import annotations

import numpy as np

from robocache.observation import Observation
from robocache.presets import _config
from robocache.presets._rows import Columns, ObservationOrItem, OnInvalid, as_observation, attached_at, rows
from robocache.voxels import Cloud

STEPS = 2


def config(
    modalities: _config.Modalities, *, cloud: str | None = None, rate_hz: float = 10.0, window: int = STEPS
) -> _config.Fragment:
    """Makes the section `fuse` of a configuration; `modalities` are in the order of `agent_pos`, and `cloud` is attached to each
    row."""
    return _config.fuse(modalities, [cloud] if cloud else [], rate_hz=rate_hz, window=window)


def inputs(
    observation: ObservationOrItem,
    *,
    agent_pos: Columns,
    cloud: str | None = None,
    points: int = 1024,
    steps: int = STEPS,
    on_invalid: OnInvalid = "refuse",
    fill: float = 0.0,
) -> dict[str, np.ndarray]:
    """Makes the input of `DP3.predict_action`: a batch of one, oldest row first.

    The result has `agent_pos` [1, n, D] float32. With `cloud`, the name of an attached stream, it also has `point_cloud`
    [1, n, N, 3] float32, metres. Its clouds must have N = `points` points, cropped and farthest-point sampled as in training.

    The argument `on_invalid` is for `agent_pos`. A row without a cloud repeats the oldest cloud if the row is before the start of
    the episode; otherwise InvalidObservation is raised.
    """
    observation = as_observation(observation)
    taken = rows(observation, agent_pos, steps, on_invalid, fill)
    made = {"agent_pos": taken.values[None]}
    if cloud is not None:
        stream = observation.attached.get(cloud)
        clouds: list[np.ndarray] = []
        for row in reversed(range(-steps, 0)):
            repeated = clouds and stream is not None and taken.padded[row] and not stream.valid[row]
            clouds.append(clouds[-1] if repeated else _points(observation, cloud, row, points))
        made["point_cloud"] = np.stack(clouds[::-1])[None]
    return made


def _points(observation: Observation, name: str, row: int, points: int) -> np.ndarray:
    found = attached_at(observation, name, row, Cloud)
    if len(found) != points:
        raise ValueError(
            f"{name!r} has {len(found)} points in row {row}, expected {points}: crop it and sample it first"
        )
    return found.points_m
