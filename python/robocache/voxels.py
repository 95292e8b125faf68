"""Voxel grids and point clouds, read from messages. A message that contradicts itself is refused with a MessageError: no cell is
outside of its grid, and each point has every field."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from robocache import messages
from robocache.messages import MessageError
from robocache.tensors import MessageTensor, is_bits, owned

_COUNTERS = ("points_in", "points_kept", "dropped_nonfinite", "dropped_outside", "dropped_overflow", "saturated")


@dataclasses.dataclass(frozen=True, eq=False)
class Voxels:
    """A voxel grid of X x Y x Z cells with C channels, in the layout of its message.

    >>> grid = Voxels.from_event(event)
    >>> grid.dense()        # [C, X, Y, Z]
    >>> grid.occupied()     # [V, 3], the cells with points in them
    """

    layout: str
    """Layout of the grid: `dense`, `bits` or `coo`."""
    channels: tuple[str, ...]
    """Names of the C channels, in the order of the values; a grid of `bits` has only `occupancy`."""
    grid_shape: tuple[int, int, int]
    """Numbers of cells X, Y, Z."""
    origin_m: tuple[float, float, float]
    """Corner of the grid with the smallest coordinates, x y z, metres."""
    voxel_size_m: tuple[float, float, float]
    """Lengths of a cell's edges along x y z, metres."""
    timestamp_ns: int
    values: np.ndarray | None = None
    """Values of all cells. Layout `dense`: [C, X, Y, Z], bfloat16 widened to float32. Layout `bits`: uint8, eight cells in a byte.
    Layout `coo`: None."""
    coords: np.ndarray | None = None
    """Indices x y z of the V occupied cells in the layout `coo`, [V, 3] int32, sorted by cell; otherwise None."""
    features: np.ndarray | None = None
    """Values of the V occupied cells in the layout `coo`, [V, C] float32; otherwise None."""
    counters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Numbers of points by counter: `points_in`, `points_kept`, `dropped_*` and `saturated`. Empty for an attached grid."""
    unusable: tuple[int, ...] = ()
    """Number of values that channels left out, for each field beside x, y, z, in the order in which channels first name it."""
    inputs: tuple[str, ...] = ()
    inputs_valid: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))
    """True for each of `inputs` whose cloud is in the grid."""
    inputs_age_ns: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    """Age of the cloud of each of `inputs`: `timestamp_ns` minus the stamp of the cloud, ns; -1 if its cloud is not in the grid."""
    frame_id: str | None = None

    @classmethod
    def from_event(cls, event: Mapping[str, Any], *, copy: bool = True) -> Voxels:
        """Reads an event with a message `voxels` of any layout. With `copy=False` arrays are the received memory, read-only."""
        return cls.from_message(*messages.parts(event), copy=copy)

    @classmethod
    def from_message(cls, value: Any, metadata: Mapping[str, Any], *, copy: bool = True) -> Voxels:
        """Reads a payload and its metadata, as `from_event` does: an Arrow array, a NumPy array, or a dict of columns."""
        value, copy = messages.on_host(value, metadata, copy)
        if messages.is_columns(value):
            columns = messages.columns(value)
        else:
            columns = {"": messages.flat(value)}
        if copy:
            columns = {name: owned(column) for name, column in columns.items()}
        return cls.of_columns(columns, metadata, messages.integer(metadata, "timestamp_ns"))

    @classmethod
    def of_columns(cls, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any], timestamp_ns: int) -> Voxels:
        """Makes a grid from the columns of a message: `coords` and `features`, or one flat column with the name ``""``."""
        shape = tuple(int(n) for n in messages.integers(metadata, "grid_shape", 3))
        if min(shape) < 1:
            raise MessageError(f"grid_shape is {list(shape)}, expected 1 or more each")
        channels = messages.strings(metadata, "channels")
        names = messages.strings(metadata, "inputs") if "inputs" in metadata else ()
        made: dict[str, Any] = {
            "channels": channels,
            "grid_shape": shape,
            "origin_m": messages.floats(metadata, "origin_m", 3),
            "voxel_size_m": messages.floats(metadata, "voxel_size_m", 3),
            "timestamp_ns": timestamp_ns,
            "counters": {key: messages.integer(metadata, key) for key in _COUNTERS if key in metadata},
            "unusable": tuple(messages.integers(metadata, "unusable").tolist()) if "unusable" in metadata else (),
            "frame_id": messages.text(metadata, "frame_id"),
        }
        if names:
            made["inputs"] = names
            made["inputs_valid"] = messages.integers(metadata, "inputs_valid", len(names)) != 0
            made["inputs_age_ns"] = messages.integers(metadata, "inputs_age_ns", len(names))
        if "coords" in columns:
            coords = messages.rows("coords", columns["coords"], -1, 3)
            if coords.dtype.kind not in "iu":
                raise MessageError(f"coords are {coords.dtype}, expected int32")
            # NumPy would take a negative index as counted from the end of an axis.
            outside = len(coords) and ((coords.min(axis=0) < 0) | (coords.max(axis=0) >= shape)).any()
            if outside:
                first = coords[((coords < 0) | (coords >= shape)).any(axis=1)][0]
                raise MessageError(f"coords has cell {first.tolist()}, expected cells of a grid of {list(shape)} cells")
            features = messages.get(columns, "features", "the payload")
            if features.size != len(coords) * len(channels):
                raise MessageError(f"{features.size} features for {len(coords)} cells of channels {list(channels)}")
            return cls(layout="coo", coords=coords, features=features.reshape(len(coords), len(channels)), **made)
        values = messages.get(columns, "", "the payload")
        if is_bits(values, metadata) and values.size != len(channels) * math.prod(shape):
            return cls(layout="bits", values=values.reshape(-1), **made)
        if values.size != len(channels) * math.prod(shape):
            raise MessageError(f"there are {values.size} values for {len(channels)} channels of {list(shape)} cells")
        dense = MessageTensor(values.reshape(len(channels), *shape), messages.text(metadata, "dtype")).numpy()
        return cls(layout="dense", values=dense, **made)

    def dense(self) -> np.ndarray:
        """Returns the grid as [C, X, Y, Z]: values as received, or float32 made from `bits` or `coo`. Empty cells are 0."""
        if self.layout == "dense":
            assert self.values is not None
            return self.values
        if self.layout == "bits":
            return self._cells[None].astype(np.float32)
        assert self.coords is not None and self.features is not None
        grid = np.zeros((len(self.channels), *self.grid_shape), self.features.dtype)
        grid[:, *self.coords.T] = self.features.T
        return grid

    def occupied(self) -> np.ndarray:
        """Returns the indices x y z of the cells that have points, [V, 3], sorted with x slowest."""
        if self.layout == "coo":
            assert self.coords is not None
            return self.coords
        if self.layout == "bits":
            return np.argwhere(self._cells)
        for name in ("occupancy", "count"):
            if name in self.channels:
                return np.argwhere(self.dense()[self.channels.index(name)])
        raise MessageError(
            f"channels are {list(self.channels)}, expected `occupancy` or `count` to tell cells from empty ones"
        )

    def centres_m(self) -> np.ndarray:
        """Returns the centres of the occupied cells, [V, 3] float64, metres."""
        centres: np.ndarray = np.asarray(self.origin_m) + (self.occupied() + 0.5) * np.asarray(self.voxel_size_m)
        return centres

    def channel(self, name: str) -> np.ndarray:
        """Returns the channel `name` as [X, Y, Z]. Raises KeyError if the grid does not have it."""
        if name not in self.channels:
            raise KeyError(f"no channel {name!r}: channels are {list(self.channels)}")
        found: np.ndarray = self.dense()[self.channels.index(name)]
        return found

    @functools.cached_property
    def _cells(self) -> np.ndarray:
        assert self.values is not None
        count = math.prod(self.grid_shape)
        return np.unpackbits(self.values, count=count, bitorder="little").astype(bool).reshape(self.grid_shape)


@dataclasses.dataclass(frozen=True, eq=False)
class Cloud:
    """A point cloud of N points: a column [N] for each field. The fields `x`, `y` and `z`, in metres, are always there."""

    columns: Mapping[str, np.ndarray]
    timestamp_ns: int
    frame_id: str | None = None

    def __len__(self) -> int:
        return len(self.columns["x"])

    def __getitem__(self, field: str) -> np.ndarray:
        if field not in self.columns:
            raise KeyError(f"no field {field!r}: fields are {list(self.columns)}")
        return self.columns[field]

    @property
    def points_m(self) -> np.ndarray:
        """Coordinates x, y, z of the points, [N, 3] float32, metres."""
        return np.stack([self.columns[axis] for axis in "xyz"], axis=1).astype(np.float32, copy=False)

    @classmethod
    def from_event(cls, event: Mapping[str, Any], *, copy: bool = True) -> Cloud:
        """Reads an event with a cloud: a struct with a column for each field, or a flat array [N, C] with `fields`."""
        value, metadata = messages.parts(event)
        value, copy = messages.on_host(value, metadata, copy)
        columns = messages.columns(value) if messages.is_columns(value) else {"": messages.flat(value)}
        if copy:
            columns = {name: owned(column) for name, column in columns.items()}
        return cls.of_columns(columns, metadata, messages.integer(metadata, "timestamp_ns"))

    @classmethod
    def of_columns(cls, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any], timestamp_ns: int) -> Cloud:
        """Makes a cloud from the columns of a message: one for each field, or one flat column with the name ``""``."""
        if "" in columns:
            fields = messages.strings(metadata, "fields") if "fields" in metadata else ("x", "y", "z")
            flat = MessageTensor(columns[""], messages.text(metadata, "dtype")).numpy()
            if not fields or flat.size % len(fields):
                raise MessageError(f"{flat.size} values are not rows of fields {list(fields)}")
            columns = dict(zip(fields, flat.reshape(-1, len(fields)).T, strict=True))
        missing = [axis for axis in "xyz" if axis not in columns]
        if missing:
            raise MessageError(f"fields are {list(columns)}, expected x, y and z among them")
        lengths = {name: len(column) for name, column in columns.items() if column.ndim}
        if len(lengths) != len(columns) or len(set(lengths.values())) > 1:
            raise MessageError(f"the columns have {lengths} rows, expected the same of each")
        return cls(dict(columns), timestamp_ns, messages.text(metadata, "frame_id"))
