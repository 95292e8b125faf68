"""Reads and checks the payload and the metadata of a message. Whatever a message holds, the error is a MessageError, or a
RingError for a payload in a ring.

A payload is a pyarrow array, as in an event of dora, another object with the Arrow PyCapsule interface, or NumPy arrays.
The module pyarrow comes with dora. It is imported only if a payload is an Arrow array.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robocache import _native
from robocache._native import SlotPayload, Tensor


class MessageError(ValueError):
    """A message that is not as docs/messages.md defines it. The error names the key, its value and the allowed values."""


def parts(event: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns the payload and the metadata of an event of dora. Raises MessageError unless the event is an input."""
    if not isinstance(event, Mapping):
        raise MessageError(f"the event is a {type(event).__name__}, expected an event of dora, a dict")
    kind = event.get("type", "INPUT")
    if kind != "INPUT" or "metadata" not in event:
        raise MessageError(f"the event is of type {kind!r}, expected 'INPUT' with a message")
    if not isinstance(event["metadata"], Mapping):
        raise MessageError(f"metadata is a {type(event['metadata']).__name__}, expected a dict")
    return event.get("value"), event["metadata"]


def is_resident(metadata: Mapping[str, Any]) -> bool:
    """True if the payload is in a ring of its producer, and the message only tells the ring and the slot."""
    return "ring" in metadata or text(metadata, "residence") not in (None, "host")


def take(metadata: Mapping[str, Any], copy: bool) -> SlotPayload:
    """Takes a payload from the ring that the metadata name: a copy if `copy`, else the memory of its slot. Raises RingError if
    the ring no longer has it."""
    # A check of the metadata takes 20 us in a process that has just woken up, so it is made only after a failure.
    try:
        ticket = metadata["ring"], metadata["slot"], metadata["generation"], metadata["nbytes"]
        if bool in map(type, ticket):
            raise TypeError
        return _native.take(*ticket, copy=copy)
    except (KeyError, TypeError, OverflowError):
        ring = get(metadata, "ring")
        if not isinstance(ring, str):
            raise MessageError(f"ring is {ring!r}, expected a string") from None
        numbers = [integer(metadata, key) for key in ("slot", "generation", "nbytes")]
        raise MessageError(f"slot, generation and nbytes are {numbers}, expected 0 to 2^64 - 1") from None


def on_host(value: Any, metadata: Mapping[str, Any], copy: bool) -> tuple[Any, bool]:
    """Returns the payload in host memory, and True if it is the sender's memory and `copy` asks the caller to copy it. A
    payload in a ring becomes NumPy arrays."""
    if not is_resident(metadata):
        return value, copy
    return host_arrays(take(metadata, copy)), False


def host_arrays(resident: SlotPayload) -> np.ndarray | dict[str, np.ndarray]:
    """Converts a payload of a ring to NumPy arrays: a dict of its columns, or one array if it is flat."""
    columns = {name: host_array(tensor) for name, tensor in resident.columns.items()}
    return columns[""] if list(columns) == [""] else columns


def host_array(tensor: Tensor) -> np.ndarray:
    """Makes a NumPy array of a tensor's memory, or of a copy if the tensor is on a device. bfloat16 becomes uint16, its bits."""
    tensor = tensor.to("cpu")
    return np.from_dlpack(tensor.bits() if tensor.dtype == "bfloat16" else tensor)


def get(metadata: Mapping[str, Any], key: str, where: str = "metadata") -> Any:
    """Returns the value of a required key; `where` names the dict in errors. Raises MessageError if the key is missing, as all
    readers of this module do."""
    if key not in metadata:
        raise MessageError(f"{where} has no {key!r}")
    return metadata[key]


def integer(metadata: Mapping[str, Any], key: str) -> int:
    """Returns the integer of a required key."""
    value = get(metadata, key)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise MessageError(f"{key} is {value!r:.80}, expected an integer")
    return int(value)


def integers(metadata: Mapping[str, Any], key: str, *shape: int) -> np.ndarray:
    """Returns the list of integers of a required key as int64 in `shape`; a list of any length without `shape`."""
    value = get(metadata, key)
    try:
        values = np.asarray(value).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        values = np.empty(1, object)
    # An empty list has no type. If a number is beyond int64, NumPy makes uint64 or floats of the list.
    if len(values) and (values.dtype.kind not in "iu" or values.dtype == np.uint64 and values.max() >= 2**63):
        raise MessageError(f"{key} is {value!r:.80}, expected a list of integers")
    if shape and len(values) != (length := math.prod(shape)):
        raise MessageError(f"{key} has {len(values)} entries, expected {length}")
    return values.astype(np.int64).reshape(shape or -1)


def dimensions(metadata: Mapping[str, Any], key: str) -> list[int]:
    """Returns the list of integers of a required key. A list from dora is returned as it is, since NumPy takes 50 us for the
    check in a process that has just woken up."""
    value = get(metadata, key)
    if isinstance(value, list) and all(type(n) is int for n in value):
        return value
    return integers(metadata, key).tolist()


def floats(metadata: Mapping[str, Any], key: str, count: int) -> tuple[float, ...]:
    """Returns the `count` numbers of a required key."""
    value = get(metadata, key)
    try:
        values = np.asarray(value).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        values = np.empty(1, object)
    if len(values) and values.dtype.kind not in "iuf":
        raise MessageError(f"{key} is {value!r:.80}, expected a list of numbers")
    if len(values) != count:
        raise MessageError(f"{key} has {len(values)} entries, expected {count}")
    return tuple(values.astype(np.float64).tolist())


def text(metadata: Mapping[str, Any], key: str) -> str | None:
    """Returns the string of an optional key; None if the key is absent."""
    value = metadata.get(key)
    if value is not None and not isinstance(value, str):
        raise MessageError(f"{key} is {value!r:.80}, expected a string")
    return value


def strings(metadata: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Returns the list of strings of a required key."""
    value = get(metadata, key)
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(text, str) for text in value):
        raise MessageError(f"{key} is {value!r:.80}, expected a list of strings")
    return tuple(value)


def shape_of(metadata: Mapping[str, Any], key: str, values: np.ndarray) -> tuple[int, ...]:
    """Returns the dimensions of an optional key, which must fit the number of `values`; without the key, the shape of `values`."""
    if key not in metadata:
        return values.shape
    shape = tuple(dimensions(metadata, key))
    if any(n < 0 for n in shape) or math.prod(shape) != values.size:
        raise MessageError(f"{key} is {list(shape)} for {values.size} values")
    return shape


def is_columns(value: Any) -> bool:
    """True if a payload has named columns (an Arrow struct or a dict of arrays), False if it is a flat array."""
    return isinstance(value, Mapping) or str(getattr(value, "type", "")).startswith("struct<")


def flat(value: Any) -> np.ndarray:
    """Converts a flat payload to a NumPy array of one dimension, without a copy if possible. A null becomes NaN."""
    if isinstance(value, np.ndarray):
        return value.reshape(-1)
    array = arrow(value)
    if is_columns(array):
        raise MessageError(f"the payload is {array.type}, expected a flat array")
    return to_numpy(array)


def columns(value: Any) -> dict[str, np.ndarray]:
    """Converts a struct to NumPy arrays by column: [rows], or [rows, n] for a FixedSizeList. Lists of different lengths are
    concatenated."""
    if isinstance(value, Mapping):
        return {name: np.asarray(column) for name, column in value.items()}
    array = arrow(value)
    if not is_columns(array):
        raise MessageError(f"the payload is {len(array)} rows of {array.type}, expected a struct")
    return {field.name: _column(column) for field, column in zip(array.type, array.flatten(), strict=True)}


def _column(column: Any) -> np.ndarray:
    size = getattr(column.type, "list_size", None)
    if size is not None:
        return _column(column.flatten()).reshape(len(column), size)
    if hasattr(column.type, "value_type") and hasattr(column, "flatten"):
        return _column(column.flatten())
    return to_numpy(column)


def to_numpy(array: Any) -> np.ndarray:
    """Converts a pyarrow array to NumPy, without a copy if possible. A null becomes NaN.

    pyarrow's own conversion imports pandas if it is installed, which takes 0.3 s at the first message.
    """
    types = pyarrow().types
    is_plain = types.is_integer(array.type) or types.is_floating(array.type)
    if is_plain and array.null_count == 0:
        return np.from_dlpack(array)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def from_numpy(values: np.ndarray) -> Any:
    """Converts contiguous numbers to a flat pyarrow array, without a copy and without pandas."""
    pa = pyarrow()
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, pa.py_buffer(values)])


def arrow(value: Any) -> Any:
    """Converts a payload to a pyarrow array."""
    imported = sys.modules.get("pyarrow")
    if imported is not None and isinstance(value, imported.Array):
        return value
    if not hasattr(value, "__arrow_c_array__"):
        raise MessageError(f"the payload is a {type(value).__name__}, expected an Arrow array or a NumPy array")
    return pyarrow().array(value)


def rows(name: str, values: np.ndarray, *shape: int) -> np.ndarray:
    """Reshapes values to `shape`, in which a dimension may be -1; errors call the values `name`."""
    try:
        return values.reshape(shape)
    except (ValueError, OverflowError):
        raise MessageError(f"{name} has {values.size} values, expected {list(shape)} (-1: any)") from None


def pyarrow() -> Any:
    """Imports the module pyarrow, which comes with dora."""
    return importlib.import_module("pyarrow")
