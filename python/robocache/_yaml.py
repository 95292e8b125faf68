"""Writes values of Python as YAML. (JSON has no words for NaN and infinity.) Text is read back as text, never as a number."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

# Words that YAML does not read as text.
_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")


def flow(value: Any) -> str:
    """Writes a value as one line of YAML. Arrays of any library become lists, and paths become text.

    Raises TypeError for a value that a configuration can't have, such as a function.
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{flow(key)}: {flow(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(entry) for entry in value) + "]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if hasattr(value, "tolist"):
        return flow(value.tolist())
    if isinstance(value, os.PathLike):
        return _text(os.fspath(value))
    raise TypeError(f"`config` has a {type(value).__qualname__} (allowed: numbers, text, lists, dicts)")


def _text(text: str) -> str:
    is_word = text.isascii() and text.replace("_", "a").isalnum() and not text[0].isdigit()
    return text if is_word and text.lower() not in _WORDS else json.dumps(text, ensure_ascii=False)
