"""Inputs of UMI: two rows of images and of poses relative to the newest pose, not normalised. There is no mask.

The key `robot0_eef_rot_axis_angle` holds the first two rows of the rotation matrix, six numbers, in spite of its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robocache.presets import _config
from robocache.presets._rows import (
    Columns,
    ObservationOrItem,
    OnInvalid,
    as_observation,
    cameras,
    rows,
    to_channels_first,
)
from robocache.presets._rows import images as images_of
from robocache.presets.rotations import pose_matrix, rot6d_rows

STEPS = 2
# Latencies in UMI's config/task/umi.yaml, ms.
CAMERA_LATENCY_MS, ROBOT_LATENCY_MS, GRIPPER_LATENCY_MS = 125.0, 0.1, 20.0


def config(
    *,
    pose: str = "robot0_pose",
    gripper: str = "robot0_gripper",
    images: Sequence[str] = ("camera0",),
    rate_hz: float = 60.0,
    window: int = STEPS,
) -> _config.Fragment:
    """Makes the section `fuse` of a configuration, with rows three frames of 60 Hz apart. The modality `pose` is x y z in metres
    and a quaternion x y z w. The modality `gripper` is the gripper's width."""
    made = _config.fuse(
        {
            pose: {
                "dim": 7,
                "latency_ms": ROBOT_LATENCY_MS,
                "groups": [
                    {"channels": [0, 3], "interpolation": "linear", "max_gap_ms": 50.0},
                    {"channels": [3, 7], "interpolation": "slerp", "max_gap_ms": 50.0},
                ],
            },
            gripper: {"dim": 1, "latency_ms": GRIPPER_LATENCY_MS, "interpolation": "linear", "max_gap_ms": 100.0},
        },
        images,
        rate_hz=rate_hz,
        window=window,
        stride=3,
        max_wait_ms=250.0,
    )
    for stream in made["fuse"].get("attach", []):
        stream["latency_ms"] = CAMERA_LATENCY_MS
    return made


def inputs(
    observation: ObservationOrItem,
    *,
    start_pose: np.ndarray,
    pose: Columns = ("robot0_pose",),
    gripper: Columns = ("robot0_gripper",),
    images: Mapping[str, str] | None = None,
    steps: int = STEPS,
    robot: int = 0,
    on_invalid: OnInvalid = "refuse",
    fill: float = 0.0,
) -> dict[str, np.ndarray]:
    """Makes a batch of one, oldest row first. The columns `pose` are x y z and a quaternion x y z w. The array `start_pose` [7]
    is the pose at the start of the episode.

    - `robot0_eef_pos` [1, 2, 3] and `robot0_eef_rot_axis_angle` [1, 2, 6]: inv(newest pose) @ pose of the row
    - `robot0_eef_rot_axis_angle_wrt_start` [1, 2, 6]: inv(`start_pose`) @ pose of the row
    - `robot0_gripper_width` [1, 2, 1]
    - `<camera>_rgb` [1, 2, 3, H, W] float32 from 0 to 1
    """
    observation = as_observation(observation)
    if on_invalid == "fill":
        raise ValueError("on_invalid is 'fill', expected 'refuse' or 'hold': a number is not a pose")
    taken = rows(observation, pose, steps, on_invalid, fill)
    start = np.asarray(start_pose, np.float64)
    if taken.values.shape[1] != 7 or start.shape != (7,):
        raise ValueError(
            f"pose has {taken.values.shape[1]} columns, start_pose {list(start.shape)}, expected x y z and x y z w"
        )
    poses = pose_matrix(taken.values[:, :3], taken.values[:, 3:])
    relative = np.linalg.inv(poses[-1]) @ poses
    since_start = np.linalg.inv(pose_matrix(start[:3], start[3:])) @ poses
    key = f"robot{robot}"
    made = {
        f"{key}_eef_pos": relative[:, :3, 3],
        f"{key}_eef_rot_axis_angle": rot6d_rows(relative[:, :3, :3]),
        f"{key}_eef_rot_axis_angle_wrt_start": rot6d_rows(since_start[:, :3, :3]),
        f"{key}_gripper_width": rows(observation, gripper, steps, on_invalid, fill).values,
    }
    for camera, name in cameras(images).items():
        made[f"{camera}_rgb"] = to_channels_first(images_of(observation, name, steps, taken.padded, on_invalid)[0])
    return {name: values[None].astype(np.float32) for name, values in made.items()}
