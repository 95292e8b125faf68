"""Inputs of PerAct: a voxel grid of 100 x 100 x 100 cells with ten channels, and four numbers of proprioception.

The ten channels of PerAct's grid are, in this order:

- the mean x, y and z of the points of a cell, metres,
- their mean colour, from -1 to 1,
- the index of the cell in x, y and z, divided by the number of cells, in empty cells, too,
- 1 if there is a point, else 0.

PerAct's cells are off by 1e-12 of an edge from robocache's, so that points on an edge may be in the neighbouring cell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robocache.presets import _config
from robocache.presets._rows import Columns, ObservationOrItem, OnInvalid, as_observation, attached_at, rows
from robocache.voxels import Voxels

# SCENE_BOUNDS and VOXEL_SIZES in PerAct's conf/config.yaml.
BOUNDS_M = (-0.3, -0.5, 0.6, 0.7, 0.5, 1.6)
CELLS = 100
# PerAct's helpers/utils.py clips the positions of the fingers to 0 up to this number.
MAX_FINGER_M = 0.04
CHANNELS = ("mean_x", "mean_y", "mean_z", "mean_r", "mean_g", "mean_b", "occupancy")


def config(
    *,
    gripper: str = "gripper",
    clouds: Sequence[str] = ("cloud",),
    bounds_m: Sequence[float] = BOUNDS_M,
    cells: int = CELLS,
    rate_hz: float = 10.0,
) -> _config.Fragment:
    """Makes the sections `fuse` and `voxelize` of a configuration that attaches a voxel grid to each row. The clouds must be in the
    frame of the robot's base, with fields `r`, `g`, `b` from 0 to 255."""
    made = _config.fuse(
        {gripper: {"dim": 3, "interpolation": "previous", "max_age_ms": 100.0}}, [], rate_hz=rate_hz, window=1
    )
    made["fuse"]["attach"] = [{"input": "voxels", "max_age_ms": 500.0}]
    low, high = bounds_m[:3], bounds_m[3:]
    made["voxelize"] = {
        "origin_m": list(low),
        "voxel_size_m": [(b - a) / cells for a, b in zip(low, high, strict=True)],
        "shape": [cells] * 3,
        "channels": list(CHANNELS),
        "layout": "coo",
        "inputs": [{"input": name} for name in clouds],
    }
    return made


def inputs(
    observation: ObservationOrItem,
    *,
    gripper: Columns,
    step: int,
    episode_length: int,
    grid: str = "grids",
    on_invalid: OnInvalid = "refuse",
    fill: float = 0.0,
) -> dict[str, np.ndarray]:
    """Makes a batch of one: `voxel_grid` [1, 10, 100, 100, 100] and `low_dim_state` [1, 4], float32.

    The three columns of `gripper` are 1 if it is open, else 0, and the positions of its two fingers, metres. The fourth
    number of `low_dim_state` is the time in the episode, from 1 at step 0 to -1 at the last step. A row without a grid is
    refused.
    """
    observation = as_observation(observation)
    if episode_length < 2 or not 0 <= step < episode_length:
        raise ValueError(f"step is {step} of {episode_length}, expected 0 to {episode_length - 1}, of 2 or more")
    taken = rows(observation, gripper, 1, on_invalid, fill).values
    if taken.shape[1] != 3:
        raise ValueError(f"gripper has {taken.shape[1]} columns, expected whether it is open and two fingers")
    # As in PerAct's helpers/utils.py: from 1 at the first step to -1 at the last.
    time = (1.0 - step / (episode_length - 1)) * 2.0 - 1.0
    found = attached_at(observation, grid, -1, Voxels)
    fingers = np.clip(taken[:, 1:], 0.0, MAX_FINGER_M)
    return {
        "voxel_grid": voxel_grid(found)[None],
        "low_dim_state": np.concatenate([taken[:, :1], fingers, [[time]]], axis=1).astype(np.float32),
    }


def voxel_grid(found: Voxels) -> np.ndarray:
    """Makes the ten channels [10, X, Y, Z] of PerAct from a grid with the seven channels of `config`."""
    missing = [name for name in CHANNELS if name not in found.channels]
    if missing:
        raise ValueError(f"the grid has no channels {missing}: it has {list(found.channels)}")
    dense = found.dense()
    means = dense[[found.channels.index(name) for name in CHANNELS[:6]]].astype(np.float32)
    occupancy = dense[found.channels.index("occupancy")][None].astype(np.float32)
    means[3:] = (means[3:] / np.float32(255) * 2 - 1) * occupancy
    cells = np.array(found.grid_shape, np.float32).reshape(3, 1, 1, 1)
    index = np.indices(found.grid_shape, np.float32) / cells
    return np.concatenate([means, index, occupancy])
