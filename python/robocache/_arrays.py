"""Arguments and results of the offline functions: configurations, and arrays of any library.

A result has the library of its argument, and is on the argument's device.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from robocache import _native
from robocache._yaml import flow

Array = Any
"""An array of any library that speaks DLPack, such as NumPy, PyTorch or CuPy."""

Config = Mapping[str, Any] | str | os.PathLike[str]
"""The keys of an operation's section, or the path of a YAML file that has the section."""

_DEVICES = {2: "cuda", 10: "hip"}
"""Prefixes of device names by DLPack's numbers of GPU kinds."""

Taker = Callable[[_native.Tensor], Array]
"""A function that converts a native result to an array of the caller's library."""


def source(section: str, config: Config) -> _native.Source:
    """Reads the YAML file `config`, or writes the dict `config` as YAML. Returns the YAML text, and the file name for error
    messages, which is `config` for a dict."""
    if isinstance(config, str | os.PathLike):
        path = os.fspath(config)
        with open(path, encoding="utf-8") as file:
            return {"text": file.read(), "file": path}
    if not isinstance(config, Mapping):
        raise TypeError(f"`config` is {described(config)} (allowed: a dict, the path of a YAML file)")
    # The dict is a whole file, as a YAML library reads it, or the section alone.
    whole = config if isinstance(config.get(section), Mapping) or "plugins" in config else {section: config}
    return {"text": flow(whole), "file": "config"}


def described(value: object) -> str:
    """Describes a value of a wrong type for an error text, such as `a list`; `None` for None."""
    return "None" if value is None else f"a {type(value).__qualname__}"


def taker(like: Array) -> Taker:
    """Makes a function that converts a native result to an array of the library of `like`, on the device of `like`."""
    device = device_of(like)
    from_dlpack = _from_dlpack_of(like)

    def take(tensor: _native.Tensor) -> Array:
        if device is not None and tensor.device != device:
            tensor = tensor.to(device)
        if from_dlpack is np.from_dlpack and tensor.dtype == "bfloat16":
            tensor = tensor.bits()
        return from_dlpack(tensor)

    return take


def host_taker(like: Array) -> Taker:
    """Makes a `taker` for results that stay on the host: NumPy arrays if `like` is on a device."""
    return taker(like if device_of(like) is None else np.empty(0))


def device_of(array: Array) -> str | None:
    """Returns the name of an array's device, `cuda:N` or `hip:N`; `None` if the array is on the host."""
    kind, ordinal = array.__dlpack_device__()
    name = _DEVICES.get(kind)
    return name and f"{name}:{ordinal}"


def library_of(array: Array) -> Any:
    """Returns the module of an array's library, such as `torch`; `numpy` if the library is unknown or does not take DLPack."""
    for cls in type(array).__mro__:
        library = sys.modules.get(cls.__module__.partition(".")[0])
        if library is not None and library.__name__ != __package__ and hasattr(library, "from_dlpack"):
            return library
    return np


def _from_dlpack_of(array: Array) -> Callable[[Any], Array]:
    library = library_of(array)
    # NumPy can't hold memory of a device: without a known library, a result on a device stays a Tensor.
    return library.from_dlpack if library is not np or device_of(array) is None else lambda tensor: tensor
