"""Messages that wait to be drawn.

The inbox holds copies, so that no sender waits for its memory, and never makes the thread that fills it wait.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Mapping
from typing import Any

from robocache import messages
from robocache.tensors import owned

_IN_RING = ("residence", "ring", "slot", "generation", "nbytes")


def copied(event: Mapping[str, Any]) -> tuple[Any, dict[str, Any], int]:
    """Copies an event of dora. Returns the payload as new arrays, the metadata, and the size in bytes.

    An array that dora lends would keep its sender from reusing the memory for as long as the array is held.
    """
    value, metadata = messages.parts(event)
    if messages.is_resident(metadata):
        arrays = messages.host_arrays(messages.take(metadata, copy=True))
        said = {key: content for key, content in metadata.items() if key not in _IN_RING}
        return arrays, said, messages.integer(metadata, "nbytes")
    if messages.is_columns(value):
        return {name: owned(column) for name, column in messages.columns(value).items()}, dict(metadata), value.nbytes
    return owned(messages.flat(value)), dict(metadata), value.nbytes


class Inbox:
    """Queues of messages, one for each input. A full queue drops its oldest message, so that `put` never waits."""

    def __init__(self, max_messages: int = 1024, max_bytes: int = 64 << 20):
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._queues: dict[str, collections.deque[tuple[Any, int]]] = {}
        self._bytes: collections.Counter[str] = collections.Counter()
        # The inputs that have messages, in turn, so that a fast input does not keep a slow one waiting.
        self._turns: collections.deque[str] = collections.deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, name: str, message: Any, size: int) -> int:
        """Adds a message of `size` bytes. Returns the number of older messages of that input that were dropped to make room."""
        with self._changed:
            queue = self._queues.setdefault(name, collections.deque())
            if not queue:
                self._turns.append(name)
            dropped = 0
            while queue and (len(queue) >= self._max_messages or self._bytes[name] + size > self._max_bytes):
                self._bytes[name] -= queue.popleft()[1]
                dropped += 1
            queue.append((message, size))
            self._bytes[name] += size
            self._changed.notify()
            return dropped

    def take(self, timeout: float) -> tuple[str, Any] | None:
        """Returns the input's name and its oldest message, from each input in turn; None if no message comes
        within `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._turns or self._is_closed, timeout)
            if not self._turns:
                return None
            name = self._turns.popleft()
            queue = self._queues[name]
            message, size = queue.popleft()
            self._bytes[name] -= size
            if queue:
                self._turns.append(name)
            return name, message

    def close(self) -> None:
        """Closes the inbox. Waiting messages can still be taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    @property
    def is_closed(self) -> bool:
        """True if the inbox is closed. Some messages may still wait."""
        with self._changed:
            return self._is_closed

    @property
    def is_done(self) -> bool:
        """True if the inbox is closed and no message waits."""
        with self._changed:
            return self._is_closed and not self._turns

    def __len__(self) -> int:
        with self._changed:
            return sum(map(len, self._queues.values()))
