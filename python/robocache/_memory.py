"""Measures the memory that a process can still allocate, so that large results are refused before they are computed."""

from __future__ import annotations

import pathlib
import resource
from collections.abc import Iterator


def free_bytes() -> int:
    """Returns the number of bytes that this process can still allocate. It is the smallest of the machine's free memory and
    the rest of the limits of the control group and of the process; 2^63 - 1 if all are unknown."""
    return max(0, min(_left(), default=2**63 - 1))


def _left() -> Iterator[int]:
    if (available := _fields("/proc/meminfo").get("MemAvailable")) is not None:
        yield available * 1024
    for folder, most, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limits = [pathlib.Path(folder, name).read_text() for name in (most, used)]
            # The control group counts cached pages of files, such as of a recording, which are freed if memory is short.
            pages = _fields(f"{folder}/memory.stat")
            cache = pages.get("active_file", 0) + pages.get("inactive_file", 0)
            yield int(limits[0]) - int(limits[1]) + cache
        except (OSError, ValueError):  # no such group, or `max`
            continue
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        yield limit - _fields("/proc/self/status").get("VmSize", 0) * 1024


def _fields(path: str) -> dict[str, int]:
    """Reads a file of /proc with lines `name: number kB`, or of a control group with lines `name number`, as a dict; empty if
    it can't be read."""
    try:
        lines = [line.replace(":", " ").split() for line in pathlib.Path(path).read_text().splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}
