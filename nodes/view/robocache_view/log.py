"""Writes the node's log: as JSON under dora, which reads the level of each line, as text on a terminal.

A fault that is not logged, because its kind was just logged, is still counted.
"""

from __future__ import annotations

import collections
import datetime
import json
import os
import threading
import time

_EVERY_S = 10.0


def say(level: str, words: str) -> None:
    """Writes a line to the log: the text `words`, with the level `info`, `warn` or `error`."""
    if "DORA_NODE_CONFIG" in os.environ:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        words = json.dumps({"timestamp": now, "level": level, "message": words, "target": "robocache_view"})
    else:
        words = f"{level.upper()} {words}"
    print(words, flush=True)


class Faults:
    """Counts faults by input and kind, and logs each kind at most every ten seconds."""

    def __init__(self) -> None:
        self._counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self._said: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def count(self, name: str, kind: str, words: str, times: int = 1) -> None:
        """Counts `times` faults of a kind at the input `name`. The text `words` describes this fault; a logged line also gives
        the total of its kind."""
        with self._lock:
            self._counts[name, kind] += times
            now = time.monotonic()
            if now - self._said.get((name, kind), -_EVERY_S) < _EVERY_S:
                return
            self._said[name, kind] = now
            total = self._counts[name, kind]
        say("warn", f"{name}: {words} ({total} so far)")

    def sum_up(self) -> None:
        """Logs the total of each input and kind, when the node ends."""
        with self._lock:
            for (name, kind), total in sorted(self._counts.items()):
                say("info", f"{name}: {total} {kind}")
