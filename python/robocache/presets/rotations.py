"""Converts rotations of robocache, which are unit quaternions x y z w, to the conventions of policies.

Two conventions of six numbers have the same name. One has the first two rows of the rotation matrix (pytorch3d, Diffusion
Policy, UMI, GR00T), the other its first two columns (3D Diffuser Actor, X-VLA).
"""

from __future__ import annotations

import numpy as np


def matrix(xyzw: np.ndarray) -> np.ndarray:
    """Converts quaternions x y z w [..., 4] of any length to rotation matrices [..., 3, 3], float64."""
    quaternion = np.asarray(xyzw, np.float64)
    norm = np.linalg.norm(quaternion, axis=-1, keepdims=True)
    if not np.all(norm > 1e-6):
        raise ValueError(f"a quaternion has the length {float(np.min(norm)):g}, expected 1")
    x, y, z, w = np.moveaxis(quaternion / norm, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def rot6d_rows(matrices: np.ndarray) -> np.ndarray:
    """Takes the first two rows of rotation matrices: [..., 3, 3] gives [..., 6], as in pytorch3d, Diffusion Policy, UMI, GR00T."""
    return np.concatenate([matrices[..., 0, :], matrices[..., 1, :]], axis=-1)


def rot6d_columns(matrices: np.ndarray) -> np.ndarray:
    """Takes the first two columns of rotation matrices: [..., 3, 3] gives [..., 6], as in 3D Diffuser Actor, X-VLA."""
    return np.concatenate([matrices[..., :, 0], matrices[..., :, 1]], axis=-1)


def wxyz(xyzw: np.ndarray) -> np.ndarray:
    """Converts quaternions x y z w to w x y z, as in MuJoCo, pytorch3d, 3D Diffuser Actor's released weights."""
    return np.roll(xyzw, 1, axis=-1)


def canonical(xyzw: np.ndarray) -> np.ndarray:
    """Negates quaternions x y z w whose w is negative, as PerAct does. The rotation stays the same."""
    return np.where(np.asarray(xyzw)[..., 3:] < 0, -np.asarray(xyzw), xyzw)


def pose_matrix(position_m: np.ndarray, xyzw: np.ndarray) -> np.ndarray:
    """Converts positions [..., 3] and quaternions x y z w [..., 4] to homogeneous matrices [..., 4, 4], float64."""
    position = np.asarray(position_m, np.float64)
    pose = np.zeros((*position.shape[:-1], 4, 4))
    pose[..., :3, :3], pose[..., :3, 3], pose[..., 3, 3] = matrix(xyzw), position, 1
    return pose
