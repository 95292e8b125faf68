"""The payload and the metadata of a message, read and checked.

A payload is a pyarrow array, as dora hands it over, another object with the Arrow PyCapsule interface, or NumPy arrays.
The module pyarrow comes with dora. It is imported only when a payload of Arrow needs it.
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
    """A message that breaks the contract. The error names the key, its value and what is allowed."""


def parts(event: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The payload and the metadata of an event of dora."""
    if not isinstance(event, Mapping):
        raise MessageError(f"the event is a {type(event).__name__}, expected an event of dora, a dict")
    kind = event.get("type", "INPUT")
    if kind != "INPUT" or "metadata" not in event:
        raise MessageError(f"the event is of type {kind!r}, expected 'INPUT' with a message")
    if not isinstance(event["metadata"], Mapping):
        raise MessageError(f"metadata is a {type(event['metadata']).__name__}, expected a dict")
    return event.get("value"), event["metadata"]


def is_resident(metadata: Mapping[str, Any]) -> bool:
    """True if the payload is in a ring of its producer and not in the message."""
    return "ring" in metadata or text(metadata, "residence") not in (None, "host")


def take(metadata: Mapping[str, Any], copy: bool) -> SlotPayload:
    """Takes a payload from its ring: a copy, or the memory of its slot. Raises RingError if the payload can't be taken."""
    # The metadata are checked only after a failure: a check takes 20 us in a process that has just woken up.
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
    """The payload as received, or as NumPy arrays if it is in a ring, and whether it must still be copied."""
    if not is_resident(metadata):
        return value, copy
    return host_arrays(take(metadata, copy)), False


def host_arrays(resident: SlotPayload) -> np.ndarray | dict[str, np.ndarray]:
    """The columns of a payload as NumPy arrays, or the only column of a flat array."""
    columns = {name: host_array(tensor) for name, tensor in resident.columns.items()}
    return columns[""] if list(columns) == [""] else columns


def host_array(tensor: Tensor) -> np.ndarray:
    """A NumPy array on the memory of a tensor, or on a copy if the tensor is on a device. bfloat16 becomes its bits."""
    tensor = tensor.to("cpu")
    return np.from_dlpack(tensor.bits() if tensor.dtype == "bfloat16" else tensor)


def get(metadata: Mapping[str, Any], key: str, where: str = "metadata") -> Any:
    """The value of a required key."""
    if key not in metadata:
        raise MessageError(f"{where} has no {key!r}")
    return metadata[key]


def integer(metadata: Mapping[str, Any], key: str) -> int:
    """A required integer."""
    value = get(metadata, key)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise MessageError(f"{key} is {value!r:.80}, expected an integer")
    return int(value)


def integers(metadata: Mapping[str, Any], key: str, *shape: int) -> np.ndarray:
    """A required list of integers as int64 in this shape, or of any length if no shape is given."""
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
    """A required list of integers. A list from dora is returned as it is: NumPy takes 50 us for it in a process that has
    just woken up."""
    value = get(metadata, key)
    if isinstance(value, list) and all(type(n) is int for n in value):
        return value
    return integers(metadata, key).tolist()


def floats(metadata: Mapping[str, Any], key: str, count: int) -> tuple[float, ...]:
    """A required list of `count` numbers."""
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
    """An optional string."""
    value = metadata.get(key)
    if value is not None and not isinstance(value, str):
        raise MessageError(f"{key} is {value!r:.80}, expected a string")
    return value


def strings(metadata: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A required list of strings."""
    value = get(metadata, key)
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(text, str) for text in value):
        raise MessageError(f"{key} is {value!r:.80}, expected a list of strings")
    return tuple(value)


def shape_of(metadata: Mapping[str, Any], key: str, values: np.ndarray) -> tuple[int, ...]:
    """The dimensions under `key`, which must fit the number of `values`; without the key, the shape of `values`."""
    if key not in metadata:
        return values.shape
    shape = tuple(dimensions(metadata, key))
    if any(n < 0 for n in shape) or math.prod(shape) != values.size:
        raise MessageError(f"{key} is {list(shape)} for {values.size} values")
    return shape


def is_columns(value: Any) -> bool:
    """True if a payload is a struct, or a dict of arrays, rather than a flat array."""
    return isinstance(value, Mapping) or str(getattr(value, "type", "")).startswith("struct<")


def flat(value: Any) -> np.ndarray:
    """A payload that is a flat array, without a copy if that is possible. A null becomes NaN."""
    if isinstance(value, np.ndarray):
        return value.reshape(-1)
    array = arrow(value)
    if is_columns(array):
        raise MessageError(f"the payload is {array.type}, expected a flat array")
    return to_numpy(array)


def columns(value: Any) -> dict[str, np.ndarray]:
    """The columns of a payload that is a struct: [rows], or [rows, n] of a FixedSizeList. Lists are flattened."""
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
    """The values of an array of pyarrow, without a copy if that is possible. A null becomes NaN.

    pyarrow's own conversion imports pandas if it is installed, which takes 0.3 s at the first message.
    """
    types = pyarrow().types
    is_plain = types.is_integer(array.type) or types.is_floating(array.type)
    if is_plain and array.null_count == 0:
        return np.from_dlpack(array)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def from_numpy(values: np.ndarray) -> Any:
    """Contiguous numbers as a flat array of pyarrow, without a copy and without pandas."""
    pa = pyarrow()
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, pa.py_buffer(values)])


def arrow(value: Any) -> Any:
    """The payload as a pyarrow array."""
    imported = sys.modules.get("pyarrow")
    if imported is not None and isinstance(value, imported.Array):
        return value
    if not hasattr(value, "__arrow_c_array__"):
        raise MessageError(f"the payload is a {type(value).__name__}, expected an Arrow array or a NumPy array")
    return pyarrow().array(value)


def rows(name: str, values: np.ndarray, *shape: int) -> np.ndarray:
    """Values in this shape, of which the first dimension may be -1."""
    try:
        return values.reshape(shape)
    except (ValueError, OverflowError):
        raise MessageError(f"{name} has {values.size} values, expected {list(shape)} (-1: any)") from None


def pyarrow() -> Any:
    """The module pyarrow, which comes with dora."""
    return importlib.import_module("pyarrow")
