"""Actions of policies: from one meaning of their numbers to another.

    deltas = rc.actions.convert(chunks, kind="absolute", to="delta", reference=joints)
    poses = rc.actions.convert(chunks, kind="relative", to="relative_pose", reference=joints, chain=chain)
"""

from __future__ import annotations

from robocache import _native
from robocache._arrays import Array, described, taker
from robocache.kinematics import Chain


def convert(
    actions: Array,
    *,
    kind: str,
    to: str,
    reference: Array | None = None,
    chain: Chain | None = None,
    rotation: str = "xyzw",
    to_rotation: str | None = None,
    frame: str = "tool",
    step_ns: int | None = None,
) -> Array:
    """Converts chunks of T actions, `[..., T, d]` float32 or float64, from `kind` to `to`. Each way is the inverse of the way
    back, but for rounding; sums and products are made in float64, from the first step on.

    | kind | step i is | absolute |
    |---|---|---|
    | `absolute` | values x_i, such as of joints | x_i |
    | `relative` | offsets to the reference | ref + a_i |
    | `delta` | offsets to the step before | ref + a_0 + ... + a_i |
    | `velocity` | velocities that lead to the step in `step_ns` | ref + (a_0 + ... + a_i) step_ns / 1e9 |
    | `pose` | x y z and a rotation, T_i | T_i |
    | `relative_pose` | the pose in the frame of the reference, as in UMI | T_ref T_i |
    | `delta_pose` | the motion from the pose before, D_i; `frame="tool"` | T_ref D_0 ... D_i |
    | `delta_pose` | the same in the axes of the base; `frame="base"` | the translation is added, the rotation multiplied from the left |

    Rotations are `xyzw`, `wxyz`, `rot6d_rows`, `rot6d_columns` or `rotvec`; those of the result may be others (`to_rotation`).
    Quaternions of the result have w >= 0, rotation vectors an angle of up to pi. Angles are not wrapped.

    `reference` is what the policy saw, `[r]` for all chunks or `[..., r]`: values, or a pose x y z qx qy qz qw. It is needed but
    from `absolute` to `absolute` or `pose`, and from `pose` to `pose`.

    `chain` leads from values, which are then its joints, to poses, and back. The reference is then a row of joints. Joints for poses
    are found from it on as by `Chain.ik_path`, to 1e-12 m and rad or, for a chunk that has none, to 1e-8 (float32: 2e-6). If a chunk
    has none within the limits, joints up to 1e-6 past them are tried, and put at the limits if their pose stays that near. An arm
    with more joints than it needs then comes by other joints to the same poses.

    Convert the columns of a gripper by themselves: a pose has no others.

    Raises `ValueError` with the first place that can't be converted. It is a number that is not finite, a rotation without a
    direction, or a quaternion whose norm is off by more than 1 %. Or it is a pose that the chain does not reach within 0.5 rad or m
    of the step before (`Chain.ik_path` gives masks instead).
    """
    if not isinstance(chain, Chain | None):
        raise TypeError(f"`chain` is {described(chain)} (allowed: a Chain, None)")
    converted = _native.convert_actions(
        actions,
        kind,
        to,
        reference,
        None if chain is None else chain._chain,
        rotation,
        rotation if to_rotation is None else to_rotation,
        frame,
        step_ns,
    )
    return taker(actions)(converted)
