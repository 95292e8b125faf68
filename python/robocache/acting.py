"""Tools for a policy around its network: when to hold, the rows of past observations, and the blending of action chunks.

None of them acts on a value that is not valid, or across a clock jump as if time had gone on.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import operator
import time
from collections.abc import Mapping, Sequence

import numpy as np

from robocache.observation import Observation

_NS_PER_MS = 1_000_000


@dataclasses.dataclass
class Gate:
    """Checks whether an observation is good enough to act on. If it is not, `refusal` says why, and the robot should hold.

    >>> gate = Gate({"force": 20.0, "proprio": 20.0})
    >>> if (why := gate.refusal(observation)) is not None:
    ...     hold(why)

    A gate remembers the epoch and the sender of the last observation. It refuses the first observation after a clock jump, and
    the first observation of a node that was restarted.
    """

    max_age_ms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Modalities that must be valid in the newest row, and the largest age of their newest sample at the row's target, ms."""
    attached_max_age_ms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Attached streams that must have a message in the newest row, and the largest age of the message at the row's target, ms."""
    max_delay_ms: float | None = None
    """Largest time from the newest target to now, ms; None for no limit. Stamps must be on the clock of this machine. The
    limit finds a front-end that repeats the same observation."""
    epoch: int | None = None
    """Epoch of the last observation, set by `refusal`; None before the first observation."""
    sender: int | None = None
    """Process that sent the last observation, set by `refusal`; None if it is not known."""

    def __post_init__(self) -> None:
        for key, limits in (("max_age_ms", self.max_age_ms), ("attached_max_age_ms", self.attached_max_age_ms)):
            if not isinstance(limits, Mapping):
                raise TypeError(f"{key} is {limits!r}, expected a limit in ms for each name: {{'force': 20.0}}")
            for name, limit_ms in limits.items():
                _check_limit(f"{key} of {name!r}", limit_ms)
        if self.max_delay_ms is not None:
            _check_limit("max_delay_ms", self.max_delay_ms)

    def refusal(self, observation: Observation, now_ns: int | None = None) -> str | None:
        """Returns the reason why the policy must not act on the newest row; None if it may.

        The text before the colon is the kind of refusal, for counters: `force too old: 21.0 ms old (max_age_ms: 20.0)`.
        """
        if observation.error is not None:
            return observation.error
        last, self.epoch = self.epoch, observation.epoch
        last_sender, self.sender = self.sender, observation.sender
        if None not in (last_sender, self.sender) and last_sender != self.sender:
            return "sender changed"
        if last is not None and last != observation.epoch:
            return "epoch changed"
        for name, limit_ms in self.max_age_ms.items():
            if name not in observation.modalities:
                return f"{name} absent"
            m = observation.modalities.index(name)
            age_ns = int(observation.age_ns[-1, m])
            if not observation.valid[-1, m]:
                return f"{name} invalid: {_age(age_ns)} (max_age_ms: {limit_ms})"
            if _is_too_old(age_ns, limit_ms):
                return f"{name} too old: {_age(age_ns)} (max_age_ms: {limit_ms})"
        for name, limit_ms in self.attached_max_age_ms.items():
            stream = observation.attached.get(name)
            if stream is None or not stream.valid[-1]:
                return f"{name} absent"
            age_ns = int(stream.age_ns[-1])
            if _is_too_old(age_ns, limit_ms):
                return f"{name} too old: {_age(age_ns)} (attached_max_age_ms: {limit_ms})"
        if self.max_delay_ms is not None:
            now_ns = time.time_ns() if now_ns is None else now_ns
            delay_ns = now_ns - observation.timestamp_ns
            if delay_ns > self.max_delay_ms * _NS_PER_MS:
                return f"observation too late: {_age(delay_ns)} (max_delay_ms: {self.max_delay_ms})"
        return None


def whole(key: str, value: int) -> int:
    """Converts a whole number of any library to an int. Raises TypeError, with the name `key`, for other values, also for a
    bool."""
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise TypeError(f"{key} is {value!r}, expected a whole number")
    return operator.index(value)


def real(key: str, value: float) -> float:
    """Converts a number of any library to a float. Raises TypeError, with the name `key`, for other values, also for a bool."""
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__float__"):
        raise TypeError(f"{key} is {value!r}, expected a number")
    return float(value)


def _check_limit(key: str, limit_ms: float) -> None:
    if not real(key, limit_ms) >= 0:
        raise ValueError(f"{key} is {limit_ms}, expected 0 ms or more")


def _is_too_old(age_ns: int, limit_ms: float) -> bool:
    return age_ns < 0 or age_ns > limit_ms * _NS_PER_MS


def _age(age_ns: int) -> str:
    return "it has no sample yet" if age_ns < 0 else f"{age_ns / _NS_PER_MS} ms old"


@dataclasses.dataclass(frozen=True, eq=False)
class Steps:
    """Newest row of each of the last n observations, oldest first, as `History` returns them: D columns of M modalities."""

    values: np.ndarray
    """Values of the steps, [n, D]; NaN where they are not valid."""
    valid: np.ndarray
    """True for modalities that are valid in a step, [n, M] bool."""
    age_ns: np.ndarray
    """Time from a modality's newest sample to the step's target, [n, M] int64, ns; -1 without a sample."""
    timestamps_ns: np.ndarray
    """Target of each step, [n] int64, ns."""
    padded: np.ndarray
    """True for steps before the start, which repeat the oldest valid step, [n] bool."""


class History:
    """The newest row of each of the last n observations, for a policy that needs more history than a window has.

    >>> history = History(2)
    >>> steps = history.push(observation)       # steps.values is [2, D]

    At the start, after each clock jump, and after a restart of the node, missing steps repeat the oldest valid step. LeRobot
    and Diffusion Policy do the same, because no robot was ever in a step of zeros. Columns are those of `modalities`, in their
    order; by default those of all modalities.
    """

    def __init__(self, steps: int, modalities: Sequence[str] | None = None):
        if (steps := whole("steps", steps)) < 1:
            raise ValueError(f"steps is {steps}, expected 1 or more")
        if modalities is not None and (isinstance(modalities, str) or not modalities):
            raise ValueError(f"modalities is {modalities!r}, expected a list of one or more names")
        self._asked = modalities
        self._rows: collections.deque[tuple[np.ndarray, np.ndarray, np.ndarray, int]] = collections.deque(maxlen=steps)
        self._epoch: tuple[int | None, int] | None = None
        self._names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._rows)

    def clear(self) -> None:
        """Forgets all steps, such as at the start of an episode."""
        self._rows.clear()

    def push(self, observation: Observation) -> Steps:
        """Adds the newest row of an observation, and returns the last n rows. Raises ValueError if `observation.error` is set."""
        if observation.error is not None:
            raise ValueError(f"an answer without an observation can't be a step: {observation.error}")
        names = observation.modalities if self._asked is None else tuple(self._asked)
        epoch = (observation.sender, observation.epoch)
        if (self._epoch, self._names) != (epoch, names):
            self.clear()
        self._epoch, self._names = epoch, names
        of = [observation.index_of(name) for name in names]
        values = np.concatenate([observation[name][-1] for name in names])
        if self._rows and len(self._rows[-1][0]) != len(values):
            wide, before = len(values), len(self._rows[-1][0])
            raise ValueError(f"{list(names)} are {wide} columns now and were {before}: clear() before another layout")
        self._rows.append((values, observation.valid[-1, of], observation.age_ns[-1, of], observation.timestamp_ns))
        values, valid, age_ns, stamps = (np.stack(column) for column in zip(*self._rows, strict=True))
        missing = (self._rows.maxlen or 0) - len(self._rows)
        return pad_start(Steps(values, valid, age_ns, stamps, np.zeros(len(values), bool)), missing)


def pad_start(steps: Steps, missing: int) -> Steps:
    """Adds `missing` steps at the beginning. All steps before the start become copies of the oldest valid step.

    The start is the first step in which each modality has a valid value, or a sample at or before the target (`age_ns` is not
    -1). If no step is valid, the steps before the start stay without values.
    """

    def before(array: np.ndarray, fill: float) -> np.ndarray:
        return np.concatenate([np.full((missing, *array.shape[1:]), fill, array.dtype), array])

    whole = np.flatnonzero(steps.valid.all(axis=1))
    sampled = np.flatnonzero(np.all(steps.valid | (steps.age_ns >= 0), axis=1))
    # Only steps before the start are padded: a value that is missing later is a drop-out.
    lead = missing + (int(sampled[0]) if len(sampled) else len(steps.valid))
    empty = np.nan if np.issubdtype(steps.values.dtype, np.floating) else 0
    values, valid, age_ns = before(steps.values, empty), before(steps.valid, 0), before(steps.age_ns, -1)
    stamps, padded = before(steps.timestamps_ns, 0), before(steps.padded, 1)
    if len(whole) and lead:
        oldest = missing + int(whole[0])
        for array in (values, valid, age_ns, stamps):
            array[:lead] = array[oldest]
    padded[:lead] = True
    return Steps(values, valid, age_ns, stamps, padded)


class Chunks:
    """Temporal ensembling of action chunks, as in ACT: an action is the weighted mean of all chunks that predict its step.

    The weight of a chunk is `decay` to the power of its age in steps of `period_ns`. Below 1 the newest chunk counts most. In ACT
    the oldest chunk counts most: its exp(-0.01 i), with i counted from the oldest chunk on, is `decay=math.exp(0.01)`.
    """

    def __init__(self, period_ns: int, decay: float = 0.5):
        if (period_ns := whole("period_ns", period_ns)) < 1:
            raise ValueError(f"period_ns is {period_ns}, expected 1 or more")
        if not 0 < (decay := real("decay", decay)) < math.inf:
            raise ValueError(f"decay is {decay}, expected a number above 0")
        self.period_ns = period_ns
        self.decay = decay
        self._history: collections.deque[tuple[int, np.ndarray]] = collections.deque()

    def __len__(self) -> int:
        return len(self._history)

    def clear(self) -> None:
        """Forgets all chunks, such as at a clock jump."""
        self._history.clear()

    def add(self, timestamp_ns: int, chunk: np.ndarray) -> np.ndarray:
        """Adds the chunk [horizon, A] whose first step is at `timestamp_ns`, and returns the ensembled chunk in float32.

        Raises ValueError if the chunk has another width than the last chunk, or a number that is not finite.
        """
        timestamp_ns = whole("timestamp_ns", timestamp_ns)
        # A copy: the caller may use the memory again.
        chunk = np.array(chunk, np.float64)
        wide = self._history[-1][1].shape[1] if self._history else None
        if chunk.ndim != 2 or 0 in chunk.shape or wide not in (None, chunk.shape[1]):
            raise ValueError(f"the chunk is {list(chunk.shape)}, expected [horizon, {wide or 'A'}]")
        if not np.isfinite(chunk).all():
            step = int(np.argmin(np.isfinite(chunk).all(axis=1)))
            raise ValueError(f"the chunk has {chunk[step].tolist()} in step {step}, expected finite numbers")
        horizon, total = len(chunk), chunk.copy()
        weights = np.ones((horizon, 1))
        kept: collections.deque[tuple[int, np.ndarray]] = collections.deque()
        for made_ns, earlier in self._history:
            step = round((timestamp_ns - made_ns) / self.period_ns)
            if 0 < step < len(earlier):
                weight = self.decay**step
                overlap = min(horizon, len(earlier) - step)
                total[:overlap] += weight * earlier[step : step + overlap]
                weights[:overlap] += weight
                kept.append((made_ns, earlier))
        kept.append((timestamp_ns, chunk))
        self._history = kept
        return (total / weights).astype(np.float32)
