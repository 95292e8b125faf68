"""Kinematic chains of a robot from its URDF: poses and Jacobians for joints, and joints for poses.

    chain = rc.Chain.from_urdf("panda.urdf", "panda_link0", "panda_hand")
    poses = chain.fk(q)                     # q [..., n] gives [..., 7]: x y z qx qy qz qw
    answers = chain.ik(poses, seed=home)
    answers.joints[answers.valid]

Arrays are of any library that speaks DLPack, on the host or on an NVIDIA GPU, float32 or float64, with any leading dimensions.
Results have the library, the type and the device of the inputs. The bits of a row are the same in any batch, with any number of
threads, and on a GPU.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from robocache import _native
from robocache._arrays import Array, described, taker
from robocache.offline import names_of


@dataclasses.dataclass(frozen=True, eq=False)
class JointAnswers:
    """Result of `Chain.ik`: joints for poses `[...]`, and the error of each answer. With `select="all"`, the dimensions `[...]` end
    in an axis of answers."""

    joints: Array
    """Joints `[..., n]`, within the limits, rad or m. If `valid` is False, they are the best joints that any start led to. They
    are NaN if the pose or the seed can't be used, and after the last answer with `select="all"`."""
    valid: Array
    """True if both errors are within the tolerances, bool `[...]`."""
    position_error_m: Array
    """Distance between the wanted and the reached position, m, `[...]`; NaN where `joints` are NaN."""
    rotation_error_rad: Array
    """Distance between the wanted and the reached rotation, `[...]`: the chord 2 sin(angle / 2), for small angles the angle itself,
    rad; NaN where `joints` are NaN."""
    seed: Array
    """Index of the start that led to the joints, int64 `[...]`; 0 is the given seed, or the middle of the limits."""
    iterations: Array
    """Number of solver steps from the start to the joints, int64 `[...]`; 0 if the start is an answer."""


@dataclasses.dataclass(frozen=True, eq=False)
class JointPaths(JointAnswers):
    """Result of `Chain.ik_path`: joints along trajectories of poses, `[..., T]`."""

    branch: Array
    """Number of jumps up to a row, int64 `[..., T]`. A jump is a row with a joint further than `max_joint_step` from the answer
    before. The first answer has 0."""


class Chain:
    """A kinematic chain from one link of a robot to another, as `from_urdf` reads it.

    A row of joints has a value for each of `joint_names`, radians or metres. If a value is not finite or is beyond 8,192, the
    results of its row are NaN. A chain never changes, so that threads may share it. A pickled chain holds the text of its URDF.
    """

    def __init__(
        self,
        text: str,
        base: str,
        tip: str,
        joints: Sequence[str] | None = None,
        tool: Sequence[float] | None = None,
        limits: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Reads a chain from the text of a URDF, such as of ROS' `robot_description`. Other arguments are as in `from_urdf`."""
        allowed = "allowed: the text of a URDF; `Chain.from_urdf` reads a file"
        if not isinstance(text, str):
            raise TypeError(f"`text` is {described(text)} ({allowed})")
        if "<" not in text:
            raise ValueError(f"`text` is {_start_of(text)} ({allowed})")
        self._make(text, "urdf", base, tip, *_checked_options(joints, tool, limits))
        self._warn(stacklevel=3)

    @classmethod
    def from_urdf(
        cls,
        path: str | os.PathLike[str],
        base: str,
        tip: str,
        joints: Sequence[str] | None = None,
        tool: Sequence[float] | None = None,
        limits: Mapping[str, Sequence[float]] | None = None,
    ) -> Chain:
        """Reads the chain from the link `base` to the link `tip`, which is below `base` in the tree, from a URDF file.

        The list `joints` names the joints in the order of a row of values; the default order is from the base to the tip. With
        `tool`, a pose x y z qx qy qz qw in the frame of the tip, `fk` and the other methods are for the tool. The dict `limits`
        has a lower and an upper limit by the name of a joint, and replaces limits of the file.

        Warns of peculiarities of the file. Raises `OSError` if the file can't be read, and `ValueError` if it gives no chain:
        the error names the file, line, joint, value and allowed values.
        """
        chain = cls.__new__(cls)
        file = os.fsdecode(path)
        if file.lstrip("\ufeff \t\r\n").startswith("<") and not os.path.exists(file):
            raise ValueError(f"`path` is {_start_of(file)} (allowed: the path of a URDF; `Chain` reads its text)")
        chain._make(_native.read_urdf(file), file, base, tip, *_checked_options(joints, tool, limits))
        chain._warn(stacklevel=3)
        return chain

    def _make(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._chain = _native.Chain(*arguments)

    def _warn(self, stacklevel: int) -> None:
        for warning in self._chain.warnings:
            warnings.warn(warning, stacklevel=stacklevel)

    @property
    def size(self) -> int:
        """Number of joints, n."""
        return len(self._chain.joint_names)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints, in the order of a row of values."""
        return tuple(self._chain.joint_names)

    @property
    def limits(self) -> np.ndarray:
        """Lower and upper limit of each joint, float64 `[n, 2]`, radians or metres; -8,192 and 8,192 for a `continuous` joint. The
        array is read-only: to change limits, give `limits` to `from_urdf`."""
        limits: np.ndarray = np.from_dlpack(self._chain.limits)
        limits.flags.writeable = False
        return limits

    @property
    def link_names(self) -> tuple[str, ...]:
        """Names of the links, in order from the base to the tip."""
        return tuple(self._chain.link_names)

    def fk(self, q: Array, links: Sequence[str] | None = None) -> Array:
        """Returns poses of the tip in the frame of the base. Joints `[..., n]` give poses `[..., 7]`: x y z in metres and the unit
        quaternion qx qy qz qw, with qw >= 0.

        With `links` the result has the poses of these L links, `[..., L, 7]`, without the tool.
        """
        poses = self._chain.fk(q, None if links is None else names_of("links", links))
        return taker(q)(poses)

    def jacobian(self, q: Array, frame: str = "base") -> Array:
        """Returns the Jacobian, the velocity of the tip for a unit of velocity of each joint. Joints `[..., n]` give `[..., 6, n]`:
        three linear rows, then three angular rows.

        | `frame` | velocity of | in the axes of | Pinocchio |
        |---|---|---|---|
        | `base` | the tip | the base | LOCAL_WORLD_ALIGNED |
        | `tool` | the tip | the tip | LOCAL |
        | `spatial` | the point of the moving body at the base's origin | the base | WORLD |
        """
        return taker(q)(self._chain.jacobian(q, frame))

    def velocity(self, q: Array, dq: Array, frame: str = "base") -> Array:
        """Returns the velocity of the tip, or twist: the Jacobian times the joint velocities `dq`, `[..., n]`. The result
        `[..., 6]` is linear (m/s), then angular (rad/s)."""
        return taker(q)(self._chain.velocity(q, dq, frame))

    def manipulability(self, q: Array) -> Array:
        """Returns Yoshikawa's manipulability sqrt(det J J^T), which is 0 at a singularity. Joints `[..., n]` give `[...]`. A chain
        of fewer than 6 joints has sqrt(det J^T J)."""
        return taker(q)(self._chain.manipulability(q))

    def ik(
        self,
        poses: Array,
        seed: Array | None = None,
        *,
        task: str = "pose",
        position_tolerance_m: float = 1e-4,
        rotation_tolerance_rad: float = 1e-3,
        weights: Sequence[float] | None = None,
        seeds: int = 16,
        max_iterations: int | None = None,
        select: str = "first",
        posture: float | None = None,
        rest: Sequence[float] | None = None,
    ) -> JointAnswers:
        """Finds joints for poses `[..., 7]`. A row is not valid if the norm of its quaternion is off by more than 1 %.

        A search has `seeds` starts. The first start is the joints `seed`, `[n]` or `[..., n]`, by default the middle of the limits;
        the other starts are spread over the limits. A search makes at most `max_iterations` steps from each start: by default
        16, or 24 for a tolerance below 1e-7.

        The same pose and seed give the same joints, whatever else is in the batch.

        | argument | meaning |
        |---|---|
        | `task` | `pose`; `position` only; `position_axis`: the position and the direction of the tool's z axis |
        | `weights` | weights of the three linear and three angular rows of the error; a row of weight 0 does not count |
        | `select` | `first`: the answer of the first start that has one; `nearest`: the answer nearest to the seed; `all` answers |
        | `posture` | the fraction of the way to the joints `rest` that each answer is pulled, above 0 up to 1 |
        | `rest` | `[n]`, within the limits: their middle by default, 0 for a continuous joint |

        A `posture` needs more joints than the task has rows. It moves joints as far as the pose leaves them free, each by at most
        about 0.05 at the default tolerances. It can't be given with `select="all"`.

        With `select="all"` the results have an axis of `seeds` after the leading axes: joints are `[..., seeds, n]`, the other
        results `[..., seeds]`. The distinct answers come first, in the order of their starts: each differs from the answers before
        by more than 1e-3 in some joint. After them joints and errors are NaN, and `valid` is False. More `seeds` find more
        answers.
        """
        has_all = select == "all"
        select = "first" if has_all else select
        config = _config(
            task, position_tolerance_m, rotation_tolerance_rad, weights, seeds, max_iterations, select, posture=posture, rest=rest
        )
        answers = (_native.ik_all if has_all else _native.ik)(self._chain, poses, seed, config)
        return JointAnswers(*map(taker(poses), answers))

    def ik_path(
        self,
        poses: Array,
        seed: Array | None = None,
        *,
        max_joint_step: float = 0.5,
        task: str = "pose",
        position_tolerance_m: float = 1e-4,
        rotation_tolerance_rad: float = 1e-3,
        weights: Sequence[float] | None = None,
        seeds: int = 16,
        max_iterations: int | None = None,
        select: str = "first",
        posture: float | None = None,
        rest: Sequence[float] | None = None,
    ) -> JointPaths:
        """Finds joints along trajectories of poses, `[..., T, 7]`. The search for a pose starts at the answer to the pose before.
        The search for the first pose starts at `seed`, `[n]`, or `[..., n]` for each trajectory.

        If the search finds no answer, or moves a joint by more than `max_joint_step` (radians or metres), all `seeds` starts are
        tried. The answer nearest to the answer before is taken. If it still moves a joint by more than `max_joint_step`, the
        result `branch` goes up by one.

        For the first pose any answer from `seed` will do; without a seed the joints are found as by `ik`. After a pose without an
        answer, the last answer stays the start.

        With `posture` a redundant arm returns to the joints `rest`, a little with each row. Without `posture` the elbow drifts,
        and a repeated path ends at other joints each time.
        """
        config = _config(
            task,
            position_tolerance_m,
            rotation_tolerance_rad,
            weights,
            seeds,
            max_iterations,
            select,
            max_joint_step,
            posture,
            rest,
        )
        answers, branch = _native.ik_path(self._chain, poses, seed, config)
        return JointPaths(*map(taker(poses), (*answers, branch)))

    def __reduce__(self) -> tuple[Callable[..., Chain], tuple[Any, ...]]:
        return _made_of, (type(self), self._arguments)

    def __repr__(self) -> str:
        _, file, base, tip, *_ = self._arguments
        return f"Chain({file!r}, {base!r}, {tip!r}, joints={list(self.joint_names)})"


def _made_of(cls: type[Chain], arguments: tuple[Any, ...]) -> Chain:
    """Unpickles a chain: makes it again from its arguments, without the warnings of the first time."""
    chain = cls.__new__(cls)
    chain._make(*arguments)
    return chain


def _start_of(text: str) -> str:
    """Shortens a text to its first 60 characters, quoted for an error text."""
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}..."


def _checked_options(
    joints: Sequence[str] | None, tool: Sequence[float] | None, limits: Mapping[str, Sequence[float]] | None
) -> tuple[list[str] | None, list[float] | None, dict[str, list[float]]]:
    if limits is not None and not isinstance(limits, Mapping):
        raise TypeError(f"`limits` is {described(limits)} (allowed: a dict of a lower and an upper limit by joint)")
    return (
        None if joints is None else names_of("joints", joints),
        None if tool is None else _numbers("tool", tool, "7, x y z qx qy qz qw"),
        {name: _numbers(f"limits[{name!r}]", pair, "2, lower and upper") for name, pair in (limits or {}).items()},
    )


def _config(
    task: str,
    position_tolerance_m: float,
    rotation_tolerance_rad: float,
    weights: Sequence[float] | None,
    seeds: int,
    max_iterations: int | None,
    select: str,
    max_joint_step: float | None = None,
    posture: float | None = None,
    rest: Sequence[float] | None = None,
) -> _native.InverseConfig:
    row_weights = [1.0] * 6 if weights is None else _numbers("weights", weights, "6, linear and then angular")
    return _native.InverseConfig(
        task,
        position_tolerance_m,
        rotation_tolerance_rad,
        row_weights,
        seeds,
        max_iterations,
        select,
        max_joint_step,
        posture,
        None if rest is None else _as_floats("rest", rest, "numbers, one for each joint"),
    )


def _numbers(name: str, numbers: Sequence[float], allowed: str) -> list[float]:
    """Converts numbers to a list of floats. The text `allowed` begins with the expected count, such as `2, lower and upper`.
    Raises ValueError for another count."""
    floats = _as_floats(name, numbers, allowed)
    if len(floats) != int(allowed.split(",")[0]):
        came = "1 number" if len(floats) == 1 else f"{len(floats)} numbers"
        raise ValueError(f"`{name}` has {came} (allowed: {allowed})")
    return floats


def _as_floats(name: str, numbers: Sequence[float], allowed: str) -> list[float]:
    try:
        return [float(number) for number in numbers]
    except (TypeError, ValueError):
        raise TypeError(f"`{name}` is {numbers!r} (allowed: {allowed})") from None
