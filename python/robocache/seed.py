"""The functions of the library from which robocache has its name, with their names and shapes.

New code uses `robocache.resample` and `robocache.voxelize`, which give masks and counters beside the values, and
`robocache.Chain`. Differences from that library:

- Times are float seconds, which are rounded to nanoseconds. After a few seconds float32 can't tell nanoseconds apart: use
  float64. Times that do not ascend are refused.
- A sample with a NaN or an infinity is left out, and does not spread to its neighbours.
- There is no fallback in PyTorch. The `backend` is `None`, for the device of the arrays, or `"cuda"`.
- A robot is a chain of a URDF in place of a table of Denavit-Hartenberg parameters. The rotational rows of Jacobians are
  computed, and not 0, and joints can be found for poses.
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
    """Interpolates linearly: `[B, S, D]`, times `[B, S]` and targets `[B, T]` give `[B, T, D]`.

    A target before the first sample or after the last sample has the value of that sample, as in the library; with
    `clamp=False` it is 0. The mask `valid` of `robocache.resample` tells these targets apart.

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
    """Three streams at common targets, side by side: `[B, T, D1 + D2 + D3]`. Each is resampled by `resample_trajectories`.

    `robocache.fuse` takes any number of streams, each by a rule of its own, and makes the targets.
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
    """A dense grid of points `[N, 3]`: `[X, Y, Z]` of `occupancy` or `count`, `[X, Y, Z, F]` of the `mean` or `max`
    of features `[N, F]`, float32. Empty cells are 0.

    Points outside the grid are left out; in that library they count in the cell at the border.
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
    """Poses `[B, 7]` of joints `[B, n]`: x y z qx qy qz qw. The same as `chain.fk`."""
    return chain.fk(joint_positions, links)


def batch_jacobian(joint_positions: Array, chain: Chain, *, frame: str = "base") -> Array:
    """Jacobians `[B, 6, n]` of joints `[B, n]`, by default in the axes of the base. The same as `chain.jacobian`."""
    return chain.jacobian(joint_positions, frame)


def inverse_kinematics(target_poses: Array, chain: Chain, initial_guess: Array | None = None, **choices: Any) -> JointAnswers:
    """Joints for poses `[B, 7]`, with the first start `initial_guess`, `[n]` or `[B, n]`. It takes the keys of `chain.ik`."""
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
    """Converts chunks of actions `[B, T, d]` to another space by `robocache.actions.convert`, which lists the spaces."""
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
