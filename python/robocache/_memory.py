"""Measures free memory."""

from __future__ import annotations

import pathlib
import resource
from collections.abc import Iterator


def free_bytes() -> int:
    """Bytes that this process can still allocate before the system stops a process: the least of what the machine, the
    control group and the limit of the process leave."""
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
            # Cached pages of files, such as of a recording, are freed if memory is short.
            pages = _fields(f"{folder}/memory.stat")
            cache = pages.get("active_file", 0) + pages.get("inactive_file", 0)
            yield int(limits[0]) - int(limits[1]) + cache
        except (OSError, ValueError):  # no such group, or `max`
            continue
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        yield limit - _fields("/proc/self/status").get("VmSize", 0) * 1024


def _fields(path: str) -> dict[str, int]:
    """The numbers of a file of lines `name number` or `name: number kB`."""
    try:
        lines = [line.replace(":", " ").split() for line in pathlib.Path(path).read_text().splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}
