"""Checks that Rust and the kernels agree: `layout.py`, exit code 1 if they do not.

Structs, constants and codes: the tests of crates/ops write them to `target/layout` as assertions in C++, a header for each
file of kernels (`crates/ops/src/layout.rs`). The command g++ compiles the header after that file. A code that Rust does not
know is missing in a `switch`.

Waits: a kernel is launched before the previous one has ended (`Gpu::launch`), so its first statement must wait for the
previous one.
"""

import pathlib
import re
import subprocess
import sys

HEADERS = pathlib.Path("target/layout")
OPERATIONS = ("fuse", "kinematics", "map", "resample", "voxelize")
# `-Wswitch` is for the header alone: nvcc reports the warnings of the kernels themselves.
KERNELS = """
#include "shim.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wswitch"
#include "{0}.cu"
#pragma GCC diagnostic pop
{1}
#include "{0}.h"
"""


def check(kernels: str) -> int:
    """Compiles a file of kernels together with the header of its assertions; returns the number of assertions."""
    header = HEADERS / f"{kernels}.h"
    if not header.is_file():
        sys.exit(f"layout.py: there is no {header}: make check-layout has the tests of crates/ops write it")
    text = (pathlib.Path("kernels") / f"{kernels}.cu").read_text()
    namespaces = sorted(set(re.findall(r"^namespace (\w+) \{", text, re.M)))
    source = KERNELS.format(kernels, "\n".join(f"using namespace {name};" for name in namespaces))
    command = ["g++", "-x", "c++", "-std=c++17", "-fsyntax-only", "-Werror=switch", "-Ikernels", "-Itests/emulator", f"-I{HEADERS}", "-"]
    done = subprocess.run(command, input=source, text=True, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{done.stderr}layout.py: kernels/{kernels}.cu and {header}, which is what Rust says, do not agree")
    return header.read_text().count("static_assert")


def check_waits() -> int:
    """Checks that every kernel first waits for the kernel launched before it; returns the number of kernels."""
    first = re.compile(r"__global__[^{;]*\{(?:\s|\\)*(?:let_next_start\(\);(?:\s|\\)*)?(wait_for_previous\(\);)?")
    waits = 0
    for source in sorted([*pathlib.Path("kernels").glob("*.cu"), *pathlib.Path("kernels").glob("*.cuh")]):
        text = source.read_text()
        for kernel in first.finditer(text):
            if kernel[1] is None:
                line = text.count("\n", 0, kernel.start()) + 1
                sys.exit(f"layout.py: {source}:{line}: a kernel that does not begin with wait_for_previous()")
            waits += 1
    return waits


if __name__ == "__main__":
    print(f"kernels: {check_waits()} wait for the one before them first")
    for kernels in OPERATIONS:
        print(f"kernels/{kernels}.cu: {check(kernels)} assertions of Rust hold")
