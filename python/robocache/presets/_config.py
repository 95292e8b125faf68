"""Parts of a configuration, as dicts and as YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robocache._yaml import flow
from robocache.acting import whole

# Modalities by name: the number of values, or a dict of the keys as in the configuration.
Modalities = Mapping[str, int | Mapping[str, Any]]


class Fragment(dict[str, Any]):
    """A part of a configuration: a dict whose `str()` is YAML."""

    def __str__(self) -> str:
        return "\n".join(_lines(self, 0)) + "\n"


def fuse(
    modalities: Modalities,
    images: Sequence[str],
    *,
    rate_hz: float,
    window: int,
    stride: int = 1,
    max_wait_ms: float = 100.0,
) -> Fragment:
    """Makes a section `fuse`: modalities interpolated over gaps of up to 50 ms, and images of up to 100 ms attached to each row."""
    if isinstance(images, str):
        raise ValueError(f"images is {images!r}, expected a list of names")
    section: dict[str, Any] = {"rate_hz": rate_hz, "window": window, "stride": stride, "max_wait_ms": max_wait_ms}
    section["modalities"] = [_modality(name, given) for name, given in modalities.items()]
    if images:
        section["attach"] = [{"input": name, "output": name, "max_age_ms": 100.0} for name in images]
    return Fragment(fuse=section)


def _modality(name: str, given: int | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return {"input": name, **given}
    return {"input": name, "dim": whole(f"dim of {name!r}", given), "interpolation": "linear", "max_gap_ms": 50.0}


def _lines(value: Mapping[str, Any], indent: int) -> list[str]:
    lines = []
    for key, entry in value.items():
        if isinstance(entry, Mapping):
            lines += [f"{' ' * indent}{key}:", *_lines(entry, indent + 2)]
        elif isinstance(entry, list) and any(isinstance(item, Mapping) for item in entry):
            lines += [f"{' ' * indent}{key}:", *(f"{' ' * (indent + 2)}- {flow(item)}" for item in entry)]
        else:
            lines.append(f"{' ' * indent}{key}: {flow(entry)}")
    return lines
