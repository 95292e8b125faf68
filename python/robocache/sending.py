"""Sends arrays of any library as messages with stamps. A message that a receiver would refuse is refused here, with the reason."""

from __future__ import annotations

import os
import pathlib
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robocache import messages
from robocache._arrays import described

_OVERLAY = "DORA_ZENOH_CONFIG_OVERLAY"
# Types that the values of a message can have, by NumPy's names.
_DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
# Metadata keys that dora uses itself, and the reasons why they can't be sent.
_RESERVED = {"timestamp": "it takes the place of dora's own stamp: pass timestamp_ns"}
# Largest absolute stamp that the nodes accept, ns.
_LARGEST_STAMP = 2**61
_warned = False


def wait_for_consumers() -> None:
    """Makes dora wait for a busy consumer, rather than drop messages of a burst. Call it before `dora.Node()`.

        robocache.wait_for_consumers()      # before the node is made
        node = dora.Node()

    By default dora silently drops messages that it can't hand over within 1 ms. The function sets the environment variable
    DORA_ZENOH_CONFIG_OVERLAY, unless that variable or ZENOH_CONFIG is set already. The `env:` of a dataflow can't do the
    same, since dora ignores the variable in `env:`.
    """
    if "ZENOH_CONFIG" not in os.environ:
        os.environ.setdefault(_OVERLAY, str(pathlib.Path(__file__).with_name("transport.json5")))


def send(
    node: Any,
    output: str,
    array: Any,
    *,
    timestamp_ns: int | None = None,
    timestamps_ns: Any = None,
    fields: Sequence[str] | None = None,
    **metadata: Any,
) -> None:
    """Publishes a tensor in its shape, with the time at which it was measured.

        robocache.send(node, "wrench", rows, timestamps_ns=stamps)      # [K, 6] with K stamps

    The array is a NumPy array, a tensor of PyTorch on the CPU (also bfloat16), an Arrow array, or another array that speaks
    DLPack on the CPU. The argument `fields` names the entries of its last axis.

    The time of measurement is `timestamp_ns`. If each row has its own time, these are `timestamps_ns`, and the default of
    `timestamp_ns` is the newest of them.

    Other keyword arguments are sent as metadata, such as `frame_id` or `valid`. NumPy's numbers become Python's numbers, since
    dora would turn them into text.

    Raises TypeError or ValueError if the array is on another device, is not contiguous, or has a type that messages don't
    have. Stamps must be integers, one for each row.
    """
    values, dtype = _host_array(output, array)
    values = np.atleast_1d(values)
    array_metadata: dict[str, Any] = {"shape": list(values.shape)}
    if dtype == "bfloat16":
        array_metadata["dtype"] = dtype
    array_metadata |= _stamps(output, timestamp_ns, timestamps_ns, len(values))
    if fields is not None:
        array_metadata["fields"] = _names(output, fields)
        if len(fields) != values.shape[-1]:
            raise ValueError(
                f"{output}: {len(fields)} fields for an array {list(values.shape)}, expected one each of the last axis"
            )
    # The mask `valid` of an observation has a flag for each row and modality, and is sent unchanged.
    if np.size(metadata.get("valid", ())) and "modalities" not in metadata:
        metadata["valid"] = _valid(output, metadata["valid"], len(values) if timestamps_ns is not None else 1)
    _publish(node, output, _arrow(values), array_metadata, metadata)


def send_cloud(
    node: Any,
    output: str,
    points: Any,
    *,
    timestamp_ns: int,
    fields: Sequence[str] = ("x", "y", "z"),
    **metadata: Any,
) -> None:
    """Publishes a point cloud that was measured at `timestamp_ns`.

        robocache.send_cloud(node, "lidar", points, timestamp_ns=stamp, fields=["x", "y", "z", "intensity"])

    The points are an array [N, C] with the columns `fields`, a dict of columns [N], each of any numeric type, or a structured
    NumPy array. The fields x, y and z are in metres. The optional field `t_ns` is the time of a point minus `timestamp_ns`.
    """
    names = getattr(getattr(points, "dtype", None), "names", None)
    if names:
        points = {name: np.ascontiguousarray(points[name]) for name in names}
    if not isinstance(points, Mapping):
        fields = _names(output, fields)
        values, _ = _host_array(output, points)
        if values.ndim != 2 or values.shape[1] != len(fields):
            raise ValueError(
                f"{output}: a cloud of fields {list(fields)} is {list(values.shape)}, expected [N, {len(fields)}]"
            )
        _require_axes(output, fields)
        send(node, output, points, timestamp_ns=timestamp_ns, fields=fields, **metadata)
        return
    _require_axes(output, list(points))
    columns = {name: _column(f"{output}, field {name!r}", column) for name, column in points.items()}
    shapes = {name: list(column.shape) for name, column in columns.items()}
    if any(column.ndim != 1 for column in columns.values()) or len({len(column) for column in columns.values()}) != 1:
        raise ValueError(f"{output}: columns are {shapes}, expected [N] of one length")
    cloud = messages.pyarrow().StructArray.from_arrays(
        [_arrow(column) for column in columns.values()], names=list(columns)
    )
    _publish(node, output, cloud, _stamps(output, timestamp_ns, None, 0), metadata)


def drain(seconds: float = 0.5) -> None:
    """Sleeps while dora delivers messages that are in flight. Call it after the last message: the end of the process loses them."""
    time.sleep(seconds)


def _publish(node: Any, output: str, array: Any, array_metadata: dict[str, Any], metadata: Mapping[str, Any]) -> None:
    global _warned
    if not hasattr(node, "send_output"):
        raise TypeError(f"{output}: the node is {described(node)}, expected a dora.Node")
    if not isinstance(output, str) or not output:
        raise TypeError(f"the output is {output!r}, expected its name")
    if not _warned and not {_OVERLAY, "ZENOH_CONFIG"} & os.environ.keys():
        _warned = True
        warnings.warn(
            "dora drops messages of a burst: call robocache.wait_for_consumers() before dora.Node()", stacklevel=3
        )
    for key in metadata:
        if key in _RESERVED:
            raise ValueError(f"{output}: {key!r} can't be sent, {_RESERVED[key]}")
        if key in array_metadata:
            raise ValueError(f"{output}: {key!r} is set from the array, and can't be given")
    node.send_output(
        output, array, array_metadata | {key: _to_python(output, key, value) for key, value in metadata.items()}
    )


def _stamps(output: str, timestamp_ns: Any, timestamps_ns: Any, rows: int) -> dict[str, Any]:
    if timestamps_ns is not None:
        stamps = np.asarray(timestamps_ns)
        if stamps.ndim != 1 or len(stamps) != rows or not rows:
            raise ValueError(f"{output}: {list(stamps.shape)} timestamps_ns for {rows} rows, expected one each")
        if not np.issubdtype(stamps.dtype, np.integer):
            raise TypeError(f"{output}: timestamps_ns are {stamps.dtype}, expected integers, ns")
        every = [_stamp(output, stamp) for stamp in stamps]
        newest = max(every) if timestamp_ns is None else _stamp(output, timestamp_ns)
        return {"timestamp_ns": newest, "timestamps_ns": every}
    if timestamp_ns is None:
        raise ValueError(f"{output}: no timestamp_ns: pass when it was measured, ns (time.time_ns() where that is now)")
    return {"timestamp_ns": _stamp(output, timestamp_ns)}


def _stamp(output: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{output}: timestamp_ns is {value!r}, expected an integer, ns")
    if abs(int(value)) > _LARGEST_STAMP:
        raise ValueError(f"{output}: timestamp_ns is {int(value)}, expected ns between -2^61 and 2^61")
    return int(value)


def _column(place: str, column: Any) -> np.ndarray:
    values, dtype = _host_array(place, column)
    if dtype == "bfloat16":
        raise TypeError(f"{place}: the column is bfloat16, expected another type: pass tensor.float()")
    return values


def _names(output: str, fields: Sequence[str]) -> list[str]:
    """Returns the names of columns as a list. Raises an error unless they are text and distinct."""
    if isinstance(fields, str) or not all(isinstance(name, str) for name in fields):
        raise TypeError(f"{output}: fields are {fields!r}, expected a list of names")
    if len(set(fields)) != len(fields):
        raise ValueError(f"{output}: fields are {list(fields)}, expected each name once")
    return list(fields)


def _valid(output: str, valid: Any, samples: int) -> list[int]:
    """Returns the mask `valid` as a list with a 1 or 0 for each sample. Raises ValueError if it has another length or value."""
    flags = np.asarray(valid)
    if flags.shape != (samples,) or not np.isin(flags, (0, 1)).all():
        raise ValueError(f"{output}: valid is {valid!r:.80}, expected 0 or 1 for each of {samples} samples")
    return [int(flag) for flag in flags]


def _require_axes(output: str, fields: Sequence[str]) -> None:
    missing = [axis for axis in "xyz" if axis not in fields]
    if missing:
        raise ValueError(f"{output}: fields are {list(fields)}, expected x, y and z among them")


def _host_array(output: str, array: Any) -> tuple[np.ndarray, str]:
    """Converts an array of any library to a contiguous NumPy array of a type that messages can have. Returns the array and the name
    of its type: bfloat16 is returned as its bits."""
    torch, pyarrow = sys.modules.get("torch"), sys.modules.get("pyarrow")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.device.type != "cpu":
            raise ValueError(
                f"{output}: the tensor is on {array.device}, expected the CPU: dora carries host memory, "
                f"pass tensor.cpu()"
            )
        array = array.detach()
        if not array.is_contiguous():
            raise ValueError(f"{output}: the tensor {list(array.shape)} is not contiguous: pass tensor.contiguous()")
        if array.dtype == torch.bfloat16:
            return array.view(torch.int16).numpy().view(np.uint16), "bfloat16"
        array = array.numpy()
    elif pyarrow is not None and isinstance(array, pyarrow.Array):
        if pyarrow.types.is_nested(array.type):
            raise TypeError(f"{output}: the array is {array.type}, expected numbers; send a struct by node.send_output")
        array = messages.to_numpy(array)
    elif not isinstance(array, np.ndarray) and hasattr(array, "__dlpack_device__"):
        kind = array.__dlpack_device__()[0]
        if int(kind) != 1:
            raise ValueError(
                f"{output}: the array is on a device (DLPack type {int(kind)}), expected the CPU: copy it there first"
            )
        array = np.from_dlpack(array)
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{output}: the array is masked, expected one without a mask: pass array.filled(np.nan)")
    try:
        values = np.asarray(array)
    except ValueError as error:
        raise ValueError(f"{output}: the array is {described(array)} that can't be made an array: {error}") from None
    if values.dtype.name not in _DTYPES or not values.dtype.isnative:
        hint = ": pass array.astype(np.uint8)" if values.dtype == bool else ""
        raise TypeError(f"{output}: the array is {values.dtype}, expected one of {', '.join(_DTYPES)}{hint}")
    if not values.flags.c_contiguous:
        raise ValueError(
            f"{output}: the array {list(values.shape)} is not contiguous: pass np.ascontiguousarray(array)"
        )
    return values, values.dtype.name


def _arrow(values: np.ndarray) -> Any:
    return messages.from_numpy(values)


def _to_python(output: str, key: str, value: Any) -> Any:
    """Converts a value of metadata to a built-in type of Python, since dora turns all other types into text."""
    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, np.ndarray):
        value = value.reshape(-1).tolist()
    elif isinstance(value, (list, tuple)):
        value = [_to_python(output, key, entry) for entry in value]
    if isinstance(value, list) and (not value or any(type(entry) is not type(value[0]) for entry in value)):
        raise ValueError(
            f"{output}: {key} is {value!r}, expected a list of one type with something in it: leave an empty one out"
        )
    if not isinstance(value, (bool, int, float, str, list)):
        raise TypeError(
            f"{output}: {key} is {value!r}, expected a number, text, or a list of these: leave out what is not there"
        )
    return value
