"""Checks that torch reads what was published from rings on a device, while producers and readers are killed.

    python tests/gpu/ring_torch.py RING [--messages N] [--readers N] [--under COMMAND]

RING is the test binary `ring`, built with the feature `cuda`; it provides the producer. Each reader takes payloads by
`robocache._native.take`, as copies or in place, and checks the tensor on the GPU against the number of its payload. The
producer and the readers are killed at random. With `--under`, each runs under a command, such as
"compute-sanitizer --error-exitcode 9", and none is killed. Needs a GPU, PyTorch and the package `robocache`.
"""

import argparse
import collections
import os
import pathlib
import random
import socket
import subprocess
import sys
import time

ROLE = "ROBOCACHE_TEST_RING_ROLE"


def bound(tag: str, whose: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(f"\0robocache.test/{tag}/{whose}")
    return made


def signed(number: int) -> int:
    """Converts an unsigned 64-bit number to int64."""
    return number - 2**64 if number >= 2**63 else number


def read(tag: str, which: int) -> None:
    """Takes payloads until the message `end` comes."""
    import torch

    import robocache
    from robocache import _native

    rng, counts = random.Random(os.getpid()), collections.Counter()
    # Half of a payload is 4096 words at most.
    rotated = torch.arange(8192, dtype=torch.int64, device="cuda") << 40
    factor = signed(0x9E37_79B9_7F4A_7C15)
    tickets = bound(tag, f"consumer/{which}")

    def is_right(number: int, resident) -> bool:
        column = torch.from_dlpack(resident.columns[str(number)]).view(torch.int64)
        return bool((column == (rotated[: len(column)] ^ number) * factor).all())

    def say() -> None:
        tickets.sendto(" ".join(f"{name} {count}" for name, count in counts.items()).encode(), f"\0robocache.test/{tag}/parent")
        counts.clear()

    while (text := tickets.recv(512).decode()) != "end":
        number, slot, generation, nbytes, ring = text.split(" ", 4)
        try:
            if rng.random() < 0.5:
                assert is_right(int(number), _native.take(ring, int(slot), int(generation), int(nbytes))), f"a copy of {number}"
                counts["copied"] += 1
            else:
                resident = _native.take(ring, int(slot), int(generation), int(nbytes), copy=False)
                was_right = is_right(int(number), resident)
                if resident.is_intact:
                    assert was_right, f"{number} was used and is intact"
                    counts["used"] += 1
                else:
                    counts["torn"] += 1
        except (robocache.StaleError, robocache.TornError, robocache.ProducerGone) as error:
            counts[type(error).__name__] += 1
        if sum(counts.values()) >= 50:
            say()
    say()


def memory() -> int:
    """Memory in use on all devices, MiB."""
    done = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True)
    return sum(int(line) for line in done.stdout.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ring", type=pathlib.Path)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--under", type=str.split, default=[], metavar="COMMAND")
    arguments = parser.parse_args()
    tag, rng, began = f"torch/{os.getpid()}", random.Random(1), memory()
    said = bound(tag, "parent")
    counts = collections.Counter()

    def listen(seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            said.settimeout(left)
            try:
                words = said.recv(256).decode().split()
            except TimeoutError:
                return
            counts.update({name: int(count) for name, count in zip(words[::2], words[1::2], strict=True)})

    def producer(number: int) -> subprocess.Popen:
        role = {ROLE: f"producer {tag} {number}", "ROBOCACHE_TEST_RING_DEVICE": "1"}
        if arguments.under:
            role["ROBOCACHE_TEST_RING_UNDER"] = "a tool"
        return subprocess.Popen([*arguments.under, arguments.ring, "role", "--exact", "--quiet"], env={**os.environ, **role}, stdout=subprocess.DEVNULL)

    def reader(which: int) -> subprocess.Popen:
        return subprocess.Popen([*arguments.under, sys.executable, __file__, "read", tag, str(which)])

    def end(process: subprocess.Popen, whose: str) -> None:
        said.sendto(b"end", f"\0robocache.test/{tag}/{whose}")
        while process.poll() is None:
            listen(0.05)
        assert process.returncode == 0, f"{whose} failed"

    readers = [reader(i) for i in range(arguments.readers)]
    numbers = 1
    publishing = producer(numbers)
    while counts["published"] < arguments.messages or not counts["copied"]:
        # Importing PyTorch alone takes seconds.
        listen(rng.uniform(2, 12))
        for process in (publishing, *readers):
            assert process.poll() is None, f"a process ended by itself: {counts}"
        print(dict(counts), file=sys.stderr, flush=True)
        if arguments.under:
            continue
        which = rng.randrange(arguments.readers + 1)
        if which == arguments.readers:
            publishing.kill()
            publishing.wait()
            numbers += 1
            publishing = producer(numbers)
        else:
            readers[which].kill()
            readers[which].wait()
            readers[which] = reader(which)
        counts["killed"] += 1
    listen(8)
    end(publishing, "producer")
    for i, process in enumerate(readers):
        end(process, f"consumer/{i}")
    now = memory()
    print(f"{dict(counts)}; device memory {began} MiB before, {now} MiB after")
    assert now <= began, "device memory is left"
    assert counts["copied"] > 0 and counts["used"] > 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        read(sys.argv[2], int(sys.argv[3]))
    else:
        main()
