"""Parts of a configuration, as dicts and as YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

# How many values a modality has, or its keys as the configuration has them.
Modalities = Mapping[str, int | Mapping[str, Any]]


class Fragment(dict[str, Any]):
    """A part of a configuration; its text is YAML."""

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
    """A section `fuse`: modalities on a line, no gap longer than 50 ms, and the images of the rows."""
    section: dict[str, Any] = {"rate_hz": rate_hz, "window": window, "stride": stride, "max_wait_ms": max_wait_ms}
    section["modalities"] = [_modality(name, given) for name, given in modalities.items()]
    if images:
        section["attach"] = [{"input": name, "output": name, "max_age_ms": 100.0} for name in images]
    return Fragment(fuse=section)


def _modality(name: str, given: int | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return {"input": name, **given}
    return {"input": name, "dim": int(given), "interpolation": "linear", "max_gap_ms": 50.0}


def _lines(value: Mapping[str, Any], indent: int) -> list[str]:
    lines = []
    for key, entry in value.items():
        if isinstance(entry, Mapping):
            lines += [f"{' ' * indent}{key}:", *_lines(entry, indent + 2)]
        elif isinstance(entry, list) and any(isinstance(item, Mapping) for item in entry):
            lines += [f"{' ' * indent}{key}:", *(f"{' ' * (indent + 2)}- {_flow(item)}" for item in entry)]
        else:
            lines.append(f"{' ' * indent}{key}: {_flow(entry)}")
    return lines


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key}: {_flow(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(entry) for entry in value) + "]"
    # A word that YAML takes as it is, but for those that it takes for something else.
    if (
        isinstance(value, str)
        and value.replace("_", "a").isalnum()
        and not value[0].isdigit()
        and value not in ("null", "true", "false", "yes", "no", "on", "off")
    ):
        return value
    return json.dumps(value)
