"""Replacements for the functions of the library after which robocache is named, with the same names and shapes.

New code should use `robocache.resample` and `robocache.voxelize`, which give masks and counters beside the values, and
`robocache.Chain`. Differences from the original library:

- Times are float seconds, which are rounded to nanoseconds. After a few seconds float32 can't tell nanoseconds apart: use
  float64. Times that do not ascend are refused.
- A sample with a NaN or an infinity is left out, and does not spread to its neighbours.
- There is no fallback in PyTorch. The argument `backend` is `None`, for the device of the arrays, or `"cuda"`.
- A robot is a chain of a URDF in place of a table of Denavit-Hartenberg parameters. The rotational rows of Jacobians are
  computed instead of 0, and there is inverse kinematics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robocache import actions
from robocache._arrays import Array, described, library_of
from robocache.kinematics import Chain, JointAnswers
from robocache.offline import resample, voxelize


def resample_trajectories(
    source_data: Array,
    source_times: Array,
    target_times: Array,
    device: str | None = None,
    backend: str | None = None,
    *,
    clamp: bool = True,
) -> Array:
    """Interpolates trajectories linearly: data `[B, S, D]`, times `[B, S]` and targets `[B, T]`, seconds, give `[B, T, D]`.

    A target before the first sample has the value of the first sample, and a target after the last sample that of the last, as
    in the original library. With `clamp=False` the values at such targets are 0. The mask `valid` of `robocache.resample` tells
    these targets apart.

    Raises `ValueError` if shapes do not fit or times do not ascend, and `TypeError` if a type is wrong.
    """
    times, targets = _nanoseconds("source_times", source_times), _nanoseconds("target_times", target_times)
    if clamp and len(times.shape) == 2 and times.shape[1] > 0:
        targets = targets.clip(times[:, :1], times[:, -1:])
    return resample(times, source_data, targets, interpolation="linear", invalid=None, device=_device(device, backend)).values


def fuse_multimodal(
    stream1_data: Array,
    stream1_times: Array,
    stream2_data: Array,
    stream2_times: Array,
    stream3_data: Array,
    stream3_times: Array,
    target_times: Array,
    backend: str | None = None,
    *,
    clamp: bool = True,
) -> Array:
    """Resamples three streams at common targets by `resample_trajectories`, and concatenates them: `[B, T, D1 + D2 + D3]`.

    New code should use `robocache.fuse`, which takes any number of streams, each with its own interpolation, and makes the targets.
    """
    streams = ((stream1_data, stream1_times), (stream2_data, stream2_times), (stream3_data, stream3_times))
    parts = [resample_trajectories(data, times, target_times, None, backend, clamp=clamp) for data, times in streams]
    return library_of(stream1_data).concatenate(parts, axis=-1)


def voxelize_pointcloud(
    points: Array,
    features: Array | None = None,
    grid_min: Sequence[float] = (-10.0, -10.0, -10.0),
    voxel_size: float = 0.1,
    grid_size: Sequence[int] = (128, 128, 128),
    mode: str = "occupancy",
    backend: str | None = None,
) -> Array:
    """Makes a dense grid of points `[N, 3]`, float32. The `mode` is `occupancy` or `count`, for `[X, Y, Z]`, or `mean` or `max` of
    features `[N, F]`, for `[X, Y, Z, F]`. Empty cells are 0.

    Points outside the grid are left out; the original library counts them in the cell at the border.
    """
    if mode in ("occupancy", "count"):
        names: list[str] = []
        channels = [mode]
    elif mode in ("mean", "max"):
        if features is None:
            raise ValueError(f"mode `{mode}` without `features` (needed: [N, F])")
        names = [f"f{i}" for i in range(features.shape[1])]
        channels = [f"{mode}_{name}" for name in names]
        points = library_of(points).concatenate([points, features], axis=1)
    else:
        raise ValueError(f"mode `{mode}` (allowed: occupancy, count, mean, max)")
    config = {
        "origin_m": [float(value) for value in grid_min],
        "voxel_size_m": [float(voxel_size)] * 3,
        "shape": [int(value) for value in grid_size],
        "channels": channels,
        "layout": "dense",
    }
    grid = voxelize(points, fields=["x", "y", "z", *names], config=config, device=_device(None, backend)).values
    return grid[0] if not names else library_of(points).moveaxis(grid, 0, -1)


def forward_kinematics(joint_positions: Array, chain: Chain, *, links: Sequence[str] | None = None) -> Array:
    """Returns poses `[B, 7]`, x y z qx qy qz qw, for joints `[B, n]`. The same as `chain.fk`."""
    return chain.fk(joint_positions, links)


def batch_jacobian(joint_positions: Array, chain: Chain, *, frame: str = "base") -> Array:
    """Returns Jacobians `[B, 6, n]` at joints `[B, n]`, by default in the axes of the base. The same as `chain.jacobian`."""
    return chain.jacobian(joint_positions, frame)


def inverse_kinematics(target_poses: Array, chain: Chain, initial_guess: Array | None = None, **choices: Any) -> JointAnswers:
    """Finds joints for poses `[B, 7]`. The search starts at `initial_guess`, `[n]` or `[B, n]`. Other arguments are those of
    `chain.ik`."""
    return chain.ik(target_poses, initial_guess, **choices)


def convert_action_space(
    action_chunks: Array,
    from_space: str,
    to_space: str,
    reference: Array | None = None,
    chain: Chain | None = None,
    *,
    rotation: str = "xyzw",
    to_rotation: str | None = None,
    frame: str = "tool",
    step_ns: int | None = None,
) -> Array:
    """Converts chunks of actions `[B, T, d]` to another space. The same as `robocache.actions.convert`, which lists the spaces."""
    return actions.convert(
        action_chunks,
        kind=from_space,
        to=to_space,
        reference=reference,
        chain=chain,
        rotation=rotation,
        to_rotation=to_rotation,
        frame=frame,
        step_ns=step_ns,
    )


def _device(device: Any, backend: str | None) -> str | None:
    if backend not in (None, "cuda"):
        raise ValueError(f"backend {backend!r} (allowed: None, cuda)")
    return backend if device is None else str(device)


def _nanoseconds(name: str, seconds: Array) -> Array:
    if hasattr(seconds, "astype"):
        return (seconds.astype("float64") * 1e9).round().astype("int64")
    if not hasattr(seconds, "double"):
        raise TypeError(f"`{name}` is {described(seconds)} (allowed: an array of seconds)")
    # An array of PyTorch.
    return (seconds.double() * 1e9).round().long()
