"""Checks what Rust and the kernels must agree on: `layout.py`, exit code 1 if they differ.

Structs, constants and codes: the tests of crates/ops write what Rust says of them as C++ to `target/layout`, a header for
each file of kernels (`crates/ops/src/layout.rs`). g++ compiles it behind that file. A code that Rust does not know is
missing in a `switch`.

Waits: a kernel is launched before the one before it has ended (`Gpu::launch`), so its first statement is the wait for
that one.
"""

import pathlib
import re
import subprocess
import sys

HEADERS = pathlib.Path("target/layout")
OPERATIONS = ("fuse", "kinematics", "resample", "voxelize")
# The lines before the header are the kernels' own, whose warnings are nvcc's to find.
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
    """Compiles the header of a file of kernels behind it; how many assertions it has."""
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
    """Checks that every kernel first waits for the one before it; the number of kernels."""
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
