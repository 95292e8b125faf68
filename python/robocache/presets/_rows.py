"""Takes the rows of an observation that a policy needs. A value that is not valid is masked, held, filled or refused, as the
policy and `on_invalid` say, and never passed on silently."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np

from robocache.acting import Steps, pad_start, real, whole
from robocache.attached import Attached
from robocache.observation import Observation
from robocache.recording import Item
from robocache.voxels import Cloud, Voxels

Kind = TypeVar("Kind", Voxels, Cloud)
OnInvalid = Literal["refuse", "hold", "fill"]
# Columns side by side: names of modalities, or (modality, begin, end) for a part of a modality, such as ("proprio", 0, 7).
Columns = Sequence[str | tuple[str, int, int]]


class InvalidObservation(ValueError):
    """Raised if an observation lacks a value that the policy needs. The error names the value, its row and its age."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The newest n rows of D columns, as a policy takes them."""

    values: np.ndarray
    """Values of the rows, [n, D] float32, oldest first."""
    valid: np.ndarray
    """True for rows whose values were all measured, repeated at the start, or held; False for filled rows, [n] bool."""
    padded: np.ndarray
    """True for rows before the start, [n] bool."""


# An observation of a dataflow, or an item of a `RecordingDataset`.
ObservationOrItem = Observation | Item


def as_observation(observation: ObservationOrItem) -> Observation:
    """Converts an item of a dataset to an Observation. An Observation is returned unchanged."""
    return observation.observation() if isinstance(observation, Item) else observation


def rows(observation: Observation, columns: Columns, steps: int, on_invalid: OnInvalid, fill: float) -> Rows:
    """Takes the newest `steps` rows of `columns`, side by side in the order of `columns`. The argument `on_invalid` is "refuse",
    "hold" or "fill". Raises InvalidObservation for a value that is refused."""
    if on_invalid not in ("refuse", "hold", "fill"):
        raise ValueError(f"on_invalid is {on_invalid!r}, expected 'refuse', 'hold' or 'fill'")
    if not columns:
        raise ValueError("no columns are asked for")
    if isinstance(columns, str):
        raise ValueError(f"the columns are {columns!r}, expected a list of modalities, or of (modality, begin, end)")
    check(observation, steps)
    if on_invalid == "fill" and not math.isfinite(real("fill", fill)):
        raise ValueError(f"fill is {fill}, expected a finite number")
    _check_once(observation, columns)
    taken = [_take(observation, column) for column in columns]
    names = [name for name, _ in taken]
    of = [observation.index_of(name) for name in names]
    widths = np.array([values.shape[1] for _, values in taken])
    window = Steps(
        values=np.concatenate([values for _, values in taken], axis=1).astype(np.float32),
        valid=observation.valid[:, of],
        age_ns=observation.age_ns[:, of],
        timestamps_ns=observation.timestamps_ns.copy(),
        padded=np.zeros(len(observation), bool),
    )
    padded = pad_start(window, 0)
    values, valid = padded.values, padded.valid
    for row in range(len(observation) - steps, len(observation)):
        for m in np.flatnonzero(~valid[row]):
            begin = int(widths[:m].sum())
            cells = slice(begin, begin + int(widths[m]))
            # A row before the start repeats a later row, so it is not an older one.
            older = np.flatnonzero(valid[:row, m] & ~padded.padded[:row])
            if on_invalid == "fill":
                values[row, cells] = fill
            elif on_invalid == "hold" and len(older):
                values[row, cells] = values[older[-1], cells]
                valid[row, m] = True
            else:
                raise InvalidObservation(_invalid_message(observation, row, names[m], on_invalid))
    return Rows(values[-steps:], np.logical_and.reduce(valid[-steps:], axis=1), padded.padded[-steps:])


def check(observation: Observation, steps: int) -> None:
    """Raises an error unless `observation` is an Observation with at least `steps` rows."""
    if not isinstance(observation, Observation):
        came = type(observation).__qualname__
        raise TypeError(f"the observation is a {came}, expected Observation.from_event(event), or an item of a dataset")
    if whole("steps", steps) < 1:
        raise ValueError(f"steps is {steps}, expected 1 or more")
    if observation.error is not None:
        raise InvalidObservation(observation.error)
    if len(observation) < steps:
        raise ValueError(f"the window has {len(observation)} rows, the policy takes {steps}: set `window` of fuse")


def cameras(images: Mapping[str, str] | None) -> Mapping[str, str]:
    """Checks the argument `images`, a dict of the attached stream for each camera. Returns an empty dict for None."""
    if images is not None and not isinstance(images, Mapping):
        raise TypeError(f"images is {images!r}, expected an attached stream for each camera: {{'camera': 'stream'}}")
    return images or {}


def images(
    observation: Observation,
    name: str,
    steps: int,
    padded: np.ndarray | None = None,
    on_invalid: OnInvalid | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Takes the newest `steps` images of an attached stream, [n, H, W, C] uint8, and a mask of the rows that have an image. Rows
    without an image are black.

    A row before the start of the episode, for which `padded` is True, repeats the oldest image. For a policy without a mask,
    `on_invalid` decides on other rows that lack an image: "hold" repeats the newest older image, and "fill" leaves the row black.
    With "refuse", or if there is none to hold or the window has no image, InvalidObservation is raised. For a policy with a mask,
    `on_invalid` is None; a window without an image gives [n, 0, 0, 3], since the shape of an image is not known.
    """
    check(observation, steps)
    stream = _attached(observation, name)
    found = [_image(name, stream.at(row)) for row in range(len(observation))]
    known = [image for image in found if image is not None]
    black = np.zeros(known[0].shape if known else (0, 0, 3), np.uint8)
    stacked = np.stack([black if image is None else image for image in found])
    valid, first = stream.valid.copy(), len(found) - steps
    if padded is not None and valid[first:].any():
        oldest = first + int(np.argmax(valid[first:]))
        repeated = first + np.flatnonzero(padded[: oldest - first])
        stacked[repeated], valid[repeated] = stacked[oldest], True
    if on_invalid is not None:
        for row in first + np.flatnonzero(~valid[first:]):
            older = np.flatnonzero(stream.valid[:row])
            if on_invalid == "hold" and len(older):
                stacked[row] = stacked[older[-1]]
            elif on_invalid != "fill" or not known:
                raise InvalidObservation(_missing_message(observation, name, int(row), on_invalid))
    return stacked[first:], valid[first:]


def attached_at(observation: Observation, name: str, row: int, kind: type[Kind]) -> Kind:
    """Returns the grid or the cloud that is attached to a row. Raises InvalidObservation if the row has none."""
    check(observation, 1)
    found = _attached(observation, name).at(row)
    if found is None:
        raise InvalidObservation(_missing_message(observation, name, row, "refuse"))
    if not isinstance(found, kind):
        raise ValueError(f"attached {name!r} is a {type(found).__name__}, expected {kind.__name__}")
    return found


def to_channels_first(stacked: np.ndarray) -> np.ndarray:
    """Converts images [n, H, W, C] uint8 to [n, C, H, W] float32, 0 to 1."""
    return np.ascontiguousarray(np.moveaxis(stacked, -1, -3)).astype(np.float32) / np.float32(255)


def _image(name: str, message: Voxels | Cloud | np.ndarray | None) -> np.ndarray | None:
    if message is None:
        return None
    if not isinstance(message, np.ndarray):
        raise ValueError(f"attached {name!r} is a {type(message).__name__}, expected images")
    if message.dtype != np.uint8 or message.ndim != 3 or message.shape[2] != 3:
        got = f"{message.dtype} {list(message.shape)}"
        raise ValueError(f"attached {name!r} is {got}, expected images uint8 [H, W, 3] with their `shape`")
    return message


def _attached(observation: Observation, name: str) -> Attached:
    if name not in observation.attached:
        raise KeyError(f"there is no attached stream {name!r}: there are {list(observation.attached)}")
    return observation.attached[name]


def _take(observation: Observation, column: str | tuple[str, int, int]) -> tuple[str, np.ndarray]:
    name, begin, end = _span(observation, column)
    return name, observation[name][:, begin:end]


def _span(observation: Observation, column: str | tuple[str, int, int]) -> tuple[str, int, int]:
    """Checks one column specification, a modality or (modality, begin, end). Returns the modality's name and the columns
    `begin` and `end` (exclusive)."""
    is_span = isinstance(column, tuple | list) and len(column) == 3 and isinstance(column[0], str)
    if not isinstance(column, str) and not is_span:
        raise ValueError(f"a column is {column!r}, expected a modality, or (modality, begin, end)")
    name = column if isinstance(column, str) else column[0]
    width = observation[name].shape[1]
    if isinstance(column, str):
        return name, 0, width
    begin, end = (whole(f"a column of {name!r}", number) for number in column[1:])
    if not 0 <= begin < end <= width:
        raise ValueError(f"columns {begin} to {end} of {name!r}, which has {width}")
    return name, begin, end


def _check_once(observation: Observation, columns: Columns) -> None:
    """Raises ValueError if a column of a modality is listed twice, since no policy was trained on that."""
    spans = sorted(_span(observation, column) for column in columns)
    for (name, begin, end), (other, again, until) in zip(spans, spans[1:]):
        if name == other and again < end:
            raise ValueError(
                f"columns {again} to {min(end, until)} of {name!r} are asked for twice, in {list(columns)}"
            )


def _invalid_message(observation: Observation, row: int, name: str, on_invalid: OnInvalid) -> str:
    age_ns = int(observation.age_ns[row, observation.index_of(name)])
    age = "it has no sample yet" if age_ns < 0 else f"its newest sample is {age_ns / 1e6:.0f} ms old"
    back = f"row {row - len(observation)} of the window, at {int(observation.timestamps_ns[row])} ns"
    held = ", and no older row of the window has it" if on_invalid == "hold" else ""
    return f"{name!r} is not valid in {back}: {age}{held}"


def _missing_message(observation: Observation, name: str, row: int, on_invalid: OnInvalid) -> str:
    row %= len(observation)
    held = ", and no older row of the window has one" if on_invalid == "hold" else ""
    back = f"row {row - len(observation)} of the window, at {int(observation.timestamps_ns[row])} ns"
    return f"{name!r} has no message in {back}{held}"
