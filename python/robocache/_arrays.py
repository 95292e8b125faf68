"""Arguments and results of the offline functions: configurations, and arrays of any library."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from robocache import _native
from robocache._yaml import flow

Array = Any
"""An array of a library that speaks DLPack."""

Config = Mapping[str, Any] | str | os.PathLike[str]
"""The keys of an operation's section, or the path of a YAML file that has the section."""

_DEVICES = {2: "cuda", 10: "hip"}
"""Names of GPU kinds by DLPack's numbers."""

Taker = Callable[[_native.Tensor], Array]
"""Converts a result to an array of some library."""


def source(section: str, config: Config) -> _native.Source:
    """The text of a configuration, and the name that errors give its file."""
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
    """The name in errors of a value whose type is not allowed."""
    return "None" if value is None else f"a {type(value).__qualname__}"


def taker(like: Array) -> Taker:
    """A function that converts a result to an array of the library of `like`, on its device."""
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
    """The `taker` of results on the host: they become NumPy arrays if `like` is on a device."""
    return taker(like if device_of(like) is None else np.empty(0))


def device_of(array: Array) -> str | None:
    """`cuda:N` or `hip:N`, or `None` for the host."""
    kind, ordinal = array.__dlpack_device__()
    name = _DEVICES.get(kind)
    return name and f"{name}:{ordinal}"


def library_of(array: Array) -> Any:
    """The module of an array's library; NumPy if the library is unknown or does not take DLPack."""
    for cls in type(array).__mro__:
        library = sys.modules.get(cls.__module__.partition(".")[0])
        if library is not None and library.__name__ != __package__ and hasattr(library, "from_dlpack"):
            return library
    return np


def _from_dlpack_of(array: Array) -> Callable[[Any], Array]:
    library = library_of(array)
    # An array that is on a device and of no known library stays a Tensor.
    return library.from_dlpack if library is not np or device_of(array) is None else lambda tensor: tensor
