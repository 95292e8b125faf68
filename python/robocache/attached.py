"""Messages that are attached to the rows of an observation: voxel grids, clouds, images, any tensor.

A row without a message has None, and never the message of another row.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from robocache import messages
from robocache.messages import MessageError
from robocache.tensors import MessageTensor, owned
from robocache.voxels import Cloud, Voxels


@dataclasses.dataclass(frozen=True, eq=False)
class Attached:
    """The U distinct messages that one attached stream has in a window of T rows, and the message of each row.

    >>> grid = observation.attached["grids"].at(-1)     # of the newest row; None where it has none
    """

    name: str
    """Name of the attached output, such as `grids`."""
    index: np.ndarray
    """Index of each row's message among the U messages, [T] int64; -1 for a row without a message."""
    age_ns: np.ndarray
    """Age of each row's message: the row's target minus the message's capture time, [T] int64, ns; -1 without a message."""
    timestamps_ns: np.ndarray | None
    """Stamps of the U messages as received, [U] int64, ns; None if the messages are sent on an output of their own."""
    columns: Mapping[str, np.ndarray] | None
    """Columns of all U messages, flat and concatenated; a tensor's only column is ``""``. None as for `timestamps_ns`."""
    metadata: Mapping[str, Any]
    """Metadata of this attached stream, without its name as a prefix: `shape`, `channels`, `grid_offsets` and so on."""

    @property
    def valid(self) -> np.ndarray:
        """Mask of the rows that have a message, [T] bool."""
        return self.index >= 0

    def at(self, row: int = -1) -> Voxels | Cloud | np.ndarray | None:
        """Returns the message of a row: a grid, a cloud, or a tensor in its own shape. None if the row has no message."""
        index = int(self.index[row])
        return None if index < 0 else self.message(index)

    def message(self, index: int) -> Voxels | Cloud | np.ndarray:
        """Returns message `index` of the U messages, oldest first. Raises IndexError if there are fewer messages, and MessageError
        if the node sends them on an output of their own."""
        if self.columns is None or self.timestamps_ns is None:
            raise MessageError(
                f"the messages are not in this observation: wire `observation`, or the output {self.name!r}"
            )
        count = len(self.timestamps_ns)
        if not -count <= index < count:
            raise IndexError(f"message {index} of {count} of {self.name!r}")
        index %= count
        stamp = int(self.timestamps_ns[index])
        metadata = self._metadata_of(index, count)
        if "grid_offsets" in self.metadata:
            offsets = messages.integers(self.metadata, "grid_offsets", count + 1)
            if offsets[0] != 0 or np.any(np.diff(offsets) < 0):
                raise MessageError(f"{self.name}.grid_offsets are {offsets.tolist()}, expected 0 rising")
            rows = slice(int(offsets[index]), int(offsets[index + 1]))
            total = int(offsets[-1])
            columns = {name: _rows(name, column, total)[rows] for name, column in self.columns.items()}
            kind = Voxels if "coords" in columns else Cloud
            return kind.of_columns(columns, metadata, stamp)
        values = messages.get(self.columns, "", self.name)
        if values.size % count:
            raise MessageError(f"{self.name} has {values.size} values for {count} messages")
        values = values.reshape(count, -1)[index]
        if "grid_shape" in self.metadata:
            return Voxels.of_columns({"": values}, metadata, stamp)
        shape = messages.integers(self.metadata, "shape")[1:]
        if any(n < 0 for n in shape) or math.prod(shape.tolist()) != values.size:
            raise MessageError(
                f"{self.name}.shape is {[count, *shape.tolist()]} for {count} messages of {values.size} values"
            )
        return MessageTensor(values.reshape(shape), messages.text(self.metadata, "dtype")).numpy()

    def _metadata_of(self, index: int, count: int) -> Mapping[str, Any]:
        """Returns the metadata of message `index` of `count`. If the grids of a window have different origins, `origin_m` is
        that of this message."""
        origins = self.metadata.get("origin_m", ())
        if count < 2 or len(origins) != 3 * count:
            return self.metadata
        return {**self.metadata, "origin_m": origins[3 * index : 3 * index + 3]}

    @classmethod
    def from_event(cls, event: Mapping[str, Any], name: str = "grids", *, copy: bool = True) -> Attached:
        """Reads an event of the output `name`, on which fuse sends the attached messages separately."""
        value, metadata = messages.parts(event)
        value, copy = messages.on_host(value, metadata, copy)
        columns = messages.columns(value) if messages.is_columns(value) else {"": messages.flat(value)}
        if copy:
            columns = {key: owned(column) for key, column in columns.items()}
        rows = messages.integers(metadata, "grid_index").size // max(len(messages.strings(metadata, "attached")), 1)
        return _of(name, rows, metadata, columns, dict(metadata))


def of_observation(
    metadata: Mapping[str, Any], columns: Mapping[str, np.ndarray] | None, rows: int
) -> dict[str, Attached]:
    """Returns the attached streams of an observation by name; empty if nothing is attached. The dict `columns` has the columns
    of an `observation`. It is None for `fused`, whose attached messages are sent separately."""
    if "attached" not in metadata:
        return {}
    found = {}
    for name in messages.strings(metadata, "attached"):
        own, prefix = None, f"{name}."
        if columns is not None:
            own = {
                key.removeprefix(name).removeprefix("."): c
                for key, c in columns.items()
                if key == name or key.startswith(prefix)
            }
        said = {key.removeprefix(prefix): value for key, value in metadata.items() if str(key).startswith(prefix)}
        found[name] = _of(name, rows, metadata, own, said)
    return found


def _of(
    name: str, rows: int, metadata: Mapping[str, Any], columns: Mapping[str, np.ndarray] | None, said: Mapping[str, Any]
) -> Attached:
    names = messages.strings(metadata, "attached")
    if name not in names:
        raise MessageError(f"attached is {list(names)}, expected {name!r} in it")
    index, age_ns = (
        messages.integers(metadata, key, rows, len(names))[:, names.index(name)]
        for key in ("grid_index", "grid_age_ns")
    )
    if columns is not None and "timestamps_ns" not in said:
        raise MessageError(f"{name!r} is attached, and metadata has no timestamps_ns of it")
    stamps = messages.integers(said, "timestamps_ns") if columns is not None else None
    if stamps is not None and (index.max(initial=-1) >= len(stamps) or index.min(initial=0) < -1):
        raise MessageError(f"grid_index of {name!r} is {index.tolist()} for {len(stamps)} messages")
    return Attached(name, index, age_ns, stamps, columns, said)


def _rows(name: str, column: np.ndarray, total: int) -> np.ndarray:
    """Reshapes a column of a message, a flat list of the elements of all rows, to [total, ...]. Raises MessageError if the
    elements can't be divided evenly among `total` rows."""
    if column.ndim == 2 or column.size == total:
        return column
    if total == 0 or column.size % total:
        raise MessageError(f"column {name!r} has {column.size} values for {total} rows")
    return column.reshape(total, -1)
