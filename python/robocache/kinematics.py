"""Poses, Jacobians and joints of a robot's chains, from its URDF.

    chain = rc.Chain.from_urdf("panda.urdf", "panda_link0", "panda_hand")
    poses = chain.fk(q)                     # q [..., n] gives [..., 7]: x y z qx qy qz qw
    answers = chain.ik(poses, seed=home)
    answers.joints[answers.valid]

Arrays are of any library that speaks DLPack, on the host or on an NVIDIA GPU, float32 or float64, with any leading dimensions.
Results are of the library and the type of what came in, and where that lies. The bits of a row depend neither on its batch nor on
the number of threads, and are the same on a GPU.
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
    """Joints for poses `[...]`, and the distance of each answer from its pose. Of all answers (`select="all"`) `[...]` ends in an axis
    of the starts."""

    joints: Array
    """`[..., n]`, within the limits. Where `valid` is False they are those of the least error that the steps from a start ended
    with, or NaN for a pose or a seed that can't be used, and behind the last of all answers."""
    valid: Array
    """bool `[...]`: True if both errors are within the tolerances."""
    position_error_m: Array
    """`[...]`; NaN for a pose or a seed that can't be used, and behind the last of all answers."""
    rotation_error_rad: Array
    """`[...]`: the chord 2 sin(angle / 2), which is the angle itself where that is small."""
    seed: Array
    """int64 `[...]`: the start that led to the joints; 0 is the one that was given, or the middle of the limits."""
    iterations: Array
    """int64 `[...]`: steps from that start, 0 if the start is an answer."""


@dataclasses.dataclass(frozen=True, eq=False)
class JointPaths(JointAnswers):
    """Joints along trajectories `[..., T]`."""

    branch: Array
    """int64 `[..., T]`: goes up by one at a row of which a joint is further than `max_joint_step` from the answer before. The first
    answer has 0."""


class Chain:
    """The way from one link of a robot to another, as `from_urdf` reads it.

    A row of values has one for each of `joint_names`, radians or metres. A row with a value that is not finite, or larger than
    8,192, is invalid, and its results are NaN. A chain never changes: threads may share it, and `pickle` takes it to other
    processes, with the text of its file.
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
        """Reads a chain from the text of a URDF, such as of ROS' `robot_description`; the rest is as of `from_urdf`."""
        allowed = "allowed: the text of a URDF; `Chain.from_urdf` reads a file"
        if not isinstance(text, str):
            raise TypeError(f"`text` is {described(text)} ({allowed})")
        if "<" not in text:
            raise ValueError(f"`text` is {_start_of(text)} ({allowed})")
        self._make(text, "urdf", base, tip, *_choices(joints, tool, limits))
        self._tell(stacklevel=3)

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
        """Reads the chain from the link `base` to the link `tip`, which lies below it, from a URDF file.

        `joints` names the joints in the order of a row of values; by default they stand from the base on. `tool` is the pose of
        a tool in the frame of the tip, x y z qx qy qz qw; `fk` and the rest are then of the tool. `limits` has a lower and an
        upper limit by the name of a joint, in place of the file's.

        Warns of peculiarities of the file. Raises `OSError` where it can't be read, and `ValueError` where it gives no chain,
        with file, line and joint, what came and what is allowed.
        """
        chain = cls.__new__(cls)
        file = os.fsdecode(path)
        if file.lstrip("\ufeff \t\r\n").startswith("<") and not os.path.exists(file):
            raise ValueError(f"`path` is {_start_of(file)} (allowed: the path of a URDF; `Chain` reads its text)")
        chain._make(_native.read_urdf(file), file, base, tip, *_choices(joints, tool, limits))
        chain._tell(stacklevel=3)
        return chain

    def _make(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._chain = _native.Chain(*arguments)

    def _tell(self, stacklevel: int) -> None:
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
        """The limits of each joint, float64 `[n, 2]`, radians or metres; -8,192 and 8,192 of a `continuous` joint. They can't be
        written: `limits` of `from_urdf` takes others."""
        limits: np.ndarray = np.from_dlpack(self._chain.limits)
        limits.flags.writeable = False
        return limits

    @property
    def link_names(self) -> tuple[str, ...]:
        """Names of the links from the base to the tip."""
        return tuple(self._chain.link_names)

    def fk(self, q: Array, links: Sequence[str] | None = None) -> Array:
        """Poses of the tip in the frame of the base: `[..., n]` gives `[..., 7]`, x y z in metres and the unit quaternion
        qx qy qz qw, with qw >= 0.

        With `links` it gives the poses of these links, `[..., L, 7]`; a tool is then left out.
        """
        poses = self._chain.fk(q, None if links is None else names_of("links", links))
        return taker(q)(poses)

    def jacobian(self, q: Array, frame: str = "base") -> Array:
        """The velocity of the tip for a unit of velocity of each joint: `[..., n]` gives `[..., 6, n]`, three linear rows and
        then three angular ones.

        | `frame` | velocity of | in the axes of | Pinocchio |
        |---|---|---|---|
        | `base` | the tip | the base | LOCAL_WORLD_ALIGNED |
        | `tool` | the tip | the tip | LOCAL |
        | `spatial` | the point of the moving body at the base's origin | the base | WORLD |
        """
        return taker(q)(self._chain.jacobian(q, frame))

    def velocity(self, q: Array, dq: Array, frame: str = "base") -> Array:
        """The velocity of the tip, or twist: the Jacobian times the joints' velocities `dq`, `[..., n]` gives `[..., 6]`."""
        return taker(q)(self._chain.velocity(q, dq, frame))

    def manipulability(self, q: Array) -> Array:
        """Yoshikawa's measure of the distance from a singularity, sqrt(det J J^T): `[..., n]` gives `[...]`. That of J^T J for
        fewer than 6 joints."""
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
        """Joints for poses `[..., 7]`. Quaternions are of norm 1, to within 1 %: a row of others is not valid.

        Each pose is tried from the joints `seed` first, `[n]` or `[..., n]`, which are the middle of the limits by default, and
        then from others that are spread over the limits, `seeds` in all, with at most `max_iterations` steps from each (16, or 24
        for a tolerance below 1e-7). The same pose and seed give the same joints, whatever else is in the batch.

        | key | is |
        |---|---|
        | `task` | `pose`; `position` alone; `position_axis`, where the tool may turn about its z axis |
        | `weights` | of the three linear and the angular rows of the error; a row of weight 0 is not judged |
        | `select` | `first`: the first start that leads to an answer; `nearest`: of all answers the nearest to the seed; `all` |
        | `posture` | the part of the way to the joints `rest` that each answer is pulled, above 0 up to 1 |
        | `rest` | `[n]`, within the limits: their middle by default, 0 for a continuous joint |

        `posture` needs more joints than the task has rows. It moves joints as far as the pose leaves them free, none by more than about
        0.05 at the default tolerances. `select="all"` takes none.

        With `select="all"` the results have an axis of `seeds` behind the leading ones: joints `[..., seeds, n]`, the rest
        `[..., seeds]`. The distinct answers stand first, in the order of their starts: each differs from those before by more than
        1e-3 in some joint. Behind them joints and errors are NaN, and `valid` is False. More `seeds` find more of them.
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
        """Joints along trajectories of poses, `[..., T, 7]`: for each pose from the answer before it, for the first one from
        `seed`, `[n]`, or `[..., n]` for each trajectory.

        If that leads to no answer, or moves a joint by more than `max_joint_step` (radians or metres), all starts are tried, too,
        and the nearest of all answers is taken. `branch` goes up by one if a joint of it is further. For the first pose any answer
        from `seed` will do; without one it is as of `ik`. After a pose without an answer the one before stays the start.

        With `posture` an arm that has joints to spare comes back to the joints `rest`, a little with each row. Without it the elbow
        wanders, and a path that is repeated ends at other joints each time.
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
    """Makes a chain of the arguments of another, which has told its warnings."""
    chain = cls.__new__(cls)
    chain._make(*arguments)
    return chain


def _start_of(text: str) -> str:
    """The beginning of a text, for errors."""
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}..."


def _choices(
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
    of_rows = [1.0] * 6 if weights is None else _numbers("weights", weights, "6, linear and then angular")
    return _native.InverseConfig(
        task,
        position_tolerance_m,
        rotation_tolerance_rad,
        of_rows,
        seeds,
        max_iterations,
        select,
        max_joint_step,
        posture,
        None if rest is None else _as_floats("rest", rest, "numbers, one for each joint"),
    )


def _numbers(name: str, numbers: Sequence[float], allowed: str) -> list[float]:
    """A list of as many numbers as `allowed` begins with."""
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
