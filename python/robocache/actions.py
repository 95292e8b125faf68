"""Converts actions of policies between representations, such as joint offsets to absolute joints, or joints to poses.

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
    """Converts chunks of T actions, `[..., T, d]` float32 or float64, from the representation `kind` to `to`.

    A conversion is the inverse of the conversion back, but for rounding. Sums and products are made in float64, from the
    first step on.

    | kind | step i is | absolute |
    |---|---|---|
    | `absolute` | values x_i, such as of joints | x_i |
    | `relative` | offsets a_i to the reference | ref + a_i |
    | `delta` | offsets a_i to the step before | ref + a_0 + ... + a_i |
    | `velocity` | velocities a_i per second, for `step_ns` each | ref + (a_0 + ... + a_i) step_ns / 1e9 |
    | `pose` | x y z and a rotation in the frame of the base, T_i | T_i |
    | `relative_pose` | the pose in the frame of the reference, as in UMI | T_ref T_i |
    | `delta_pose` | the motion from the pose before, D_i; `frame="tool"` | T_ref D_0 ... D_i |
    | `delta_pose` | the same in the axes of the base; `frame="base"` | the translation is added, the rotation multiplied from the left |

    Rotations of `actions` are in the form `rotation`: `xyzw`, `wxyz`, `rot6d_rows`, `rot6d_columns` or `rotvec`. Rotations of the
    result are in the form `to_rotation`, by default the same. Quaternions of the result have w >= 0, and rotation vectors an
    angle of up to pi. Angles are not wrapped.

    The array `reference` is the state that the policy saw, `[r]` for all chunks or `[..., r]` for each. It has values, or a pose
    x y z qx qy qz qw. It may be absent only from `absolute` to `absolute` or `pose`, and from `pose` to `pose`.

    With a `chain`, values are joints of the chain, poses are poses of its tip, and the reference is a row of joints.
    Joints for poses are found from the reference on as by `Chain.ik_path`, to 1e-12 m and rad. A chunk without such joints is
    tried again to 1e-8 (float32: 2e-6). If a chunk has no joints within the limits, joints up to 1e-6 past the limits are tried.
    They are put at the limits if their pose stays within the tolerance. A redundant arm may reach the same poses by other joints.

    Convert the columns of a gripper separately: the actions of a pose have no other columns.

    Raises `ValueError`, which names the first place that can't be converted. Examples are a number that is not finite, a rotation
    without a direction, and a quaternion whose norm is off by more than 1 %. A pose is refused if the chain does not reach it
    within 0.5 rad or m of the joints of the step before (`Chain.ik_path` gives masks instead).
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
