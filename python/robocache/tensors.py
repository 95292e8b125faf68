"""Tensors of messages for NumPy, PyTorch, CuPy and other libraries that speak DLPack.

By default a tensor owns a copy. With `copy=False` it shows the received memory, read-only.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np

from robocache import messages
from robocache._native import SlotPayload, Tensor, TornError
from robocache.messages import MessageError

# Numbers of DLPack: the device kind of NVIDIA GPUs, and the legacy default stream.
_CUDA, _LEGACY_STREAM = 2, 1


class MessageTensor:
    """A tensor of a message. It is also a context manager: after the end of the `with`, no array can be taken from the tensor.

        with robocache.open_tensor(event) as tensor:
            tensor.torch()

    Arrays that were taken before stay usable. NumPy does not know bfloat16, so the method `numpy` widens it to float32. All other
    methods keep bfloat16.

    With `copy=False` a payload of a ring is held as long as an array of it is used. If its producer has no other slot, the
    producer overwrites the payload all the same. The end of the `with` then raises TornError. An array that is used after the
    `with` may change silently.
    """

    def __init__(self, array: np.ndarray | Tensor, dtype: str | None = None, resident: SlotPayload | None = None):
        own = array.dtype if isinstance(array, Tensor) else array.dtype.name
        if dtype == "bfloat16" and own not in ("uint16", "bfloat16"):
            raise MessageError(f"dtype is bfloat16 for values of {own}, expected uint16 (its bits)")
        if dtype not in (None, "bfloat16", own):
            raise MessageError(f"dtype is {dtype} for values of {own}")
        self._array: np.ndarray | Tensor | None = array
        self._resident = resident
        self.shape: tuple[int, ...] = array.shape
        self.dtype: str = dtype or own
        self.device: str = array.device if isinstance(array, Tensor) else "cpu"

    def __repr__(self) -> str:
        return f"MessageTensor({list(self.shape)}, {self.dtype}, {'closed' if self._array is None else self.device})"

    def __enter__(self) -> MessageTensor:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_intact = self.is_intact
        self.close()
        if kind is None and not is_intact:
            raise TornError("the payload was overwritten while it was used: give its ring more `slots`, or take a copy")

    @property
    def is_intact(self) -> bool:
        """True if the values are still as they were published. Only a payload of a ring with `copy=False` can be False: ask after
        the use, and before the tensor is closed."""
        self._open()
        return self._resident is None or self._resident.is_intact

    def close(self) -> None:
        """Releases the memory of the message, which is freed with the last array that was taken from it."""
        self._array = self._resident = None

    def _open(self) -> np.ndarray | Tensor:
        if self._array is None:
            raise ValueError("the tensor is closed")
        return self._array

    def numpy(self) -> np.ndarray:
        """Returns a NumPy array of the same memory; a copy if the tensor is on a device, or is bfloat16, which becomes float32."""
        array = self._open()
        if isinstance(array, Tensor):
            array = messages.host_array(array)
        if self.dtype != "bfloat16":
            return array
        return (array.astype(np.uint32) << 16).view(np.float32)

    def torch(self) -> Any:
        """Returns a `torch.Tensor` of the same memory and device. The program must have imported torch."""
        torch, array = _imported("torch"), self._open()
        if not isinstance(array, Tensor):
            return torch.from_dlpack(self)
        kind, ordinal = array.__dlpack_device__()
        if kind == _CUDA:
            # For an object, `from_dlpack` takes 80 us to find the current stream in a process that has just woken up.
            try:
                stream = torch._C._cuda_getCurrentRawStream(ordinal)
                return torch.from_dlpack(array.__dlpack__(stream=stream or _LEGACY_STREAM, max_version=(1, 0)))
            except (AttributeError, RuntimeError):  # an older PyTorch
                pass
        return torch.from_dlpack(array)

    def cupy(self) -> Any:
        """Returns a `cupy.ndarray` of the same memory if the tensor is on a device, else of a copy on CuPy's current device. The
        program must have imported cupy."""
        cupy = _imported("cupy")
        return cupy.asarray(self.numpy()) if self.device == "cpu" else cupy.from_dlpack(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._open().__dlpack_device__()

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        array = self._open()
        asked: dict[str, Any] = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        asked = {key: value for key, value in asked.items() if value is not None}
        if isinstance(array, Tensor):
            return array.__dlpack__(stream=stream, **asked)
        try:
            capsule = array.__dlpack__(**asked)
        except TypeError:  # NumPy before 2.1 knows none of the arguments
            capsule = array.__dlpack__()
        if self.dtype == "bfloat16":
            _retype(capsule)
        return capsule


def open_tensor(event: Mapping[str, Any], column: str | None = None, *, copy: bool = True) -> MessageTensor:
    """Opens the tensor of a message, in the shape that the metadata give.

        window = robocache.open_tensor(event).torch()

    The values are as received. Values of an observation that are not valid have the node's `fill_value`. (`Observation.tensor`
    has NaN in their place.) By default the values are copied, because an array that is held keeps the sender from reusing its
    memory. With `copy=False` they are the received memory, read-only.

    If a payload has several columns, `column` names the column to open. It is `fused` (the default) or an attached stream of
    an `observation`, `coords` or `features` of a coo grid, or a field of a cloud.

    Raises MessageError if the metadata contradict the payload.
    """
    value, metadata = messages.parts(event)
    if messages.is_resident(metadata):
        return _of_ring(metadata, column, copy)
    if messages.is_columns(value):
        name = column or "fused"
        array = messages.get(messages.columns(value), name, "the payload")
        shape, dtype = ("shape", "dtype") if name == "fused" else (f"{name}.shape", f"{name}.dtype")
    elif column is None:
        array, shape, dtype = messages.flat(value), "shape", "dtype"
    else:
        raise MessageError(f"the payload is a flat array, expected a struct with a column {column!r}")
    # The `shape` of a grid in the layout `bits` counts cells, of which a byte has eight.
    if not is_bits(array, metadata):
        array = array.reshape(messages.shape_of(metadata, shape, array))
    return MessageTensor(owned(array) if copy else array, messages.text(metadata, dtype))


def _of_ring(metadata: Mapping[str, Any], column: str | None, copy: bool) -> MessageTensor:
    resident = messages.take(metadata, copy)
    columns = resident.columns
    if list(columns) == [""]:
        if column is not None:
            raise MessageError(f"the payload is a flat array, expected a struct with a column {column!r}")
        tensor, shape = columns[""], "shape"
    else:
        name = column or "fused"
        tensor = messages.get(columns, name, "the payload")
        shape = "shape" if name == "fused" else f"{name}.shape"
    if shape in metadata:
        dimensions = messages.dimensions(metadata, shape)
        try:
            tensor = tensor.reshape(dimensions)
        except (ValueError, OverflowError):
            # The `shape` of a grid in the layout `bits` counts cells, not bytes.
            if "grid_shape" not in metadata:
                raise MessageError(f"{shape} is {dimensions} for {math.prod(tensor.shape)} values") from None
    return MessageTensor(tensor, resident=None if copy else resident)


def is_bits(array: np.ndarray, metadata: Mapping[str, Any]) -> bool:
    """True if a payload has the size of a voxel grid in the layout `bits`: uint8, with one bit for each
    cell of `grid_shape`."""
    if array.dtype != np.uint8 or "grid_shape" not in metadata:
        return False
    return bool(array.size == -(-math.prod(messages.integers(metadata, "grid_shape").tolist()) // 8))


def owned(array: np.ndarray) -> np.ndarray:
    """Copies an array to new memory in row-major order."""
    return np.array(array, order="C", copy=True)


def _imported(name: str) -> Any:
    module = sys.modules.get(name)
    if module is None:
        raise ImportError(f"{name} is not imported: `import {name}` first, robocache does not do so by itself")
    return module


def _retype(capsule: Any) -> None:
    """Changes the type in a DLPack capsule from uint16 to bfloat16. The capsule must be new: nobody may have read it."""
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    # A versioned capsule has its version, context, deleter and flags before the tensor, 8 bytes each.
    name, begin = (
        (b"dltensor_versioned", 32) if api.PyCapsule_IsValid(capsule, b"dltensor_versioned") else (b"dltensor", 0)
    )
    # The type code follows the address (8 bytes), the device (8) and the number of dimensions (4). 4 is bfloat16.
    code = api.PyCapsule_GetPointer(capsule, name) + begin + 20
    ctypes.c_uint8.from_address(code).value = 4
