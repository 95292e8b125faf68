"""Holds what Rust and the kernels must agree on against each other: `layout.py`, exit code 1 where they differ.

A `#[repr(C)]` struct in Rust and its counterpart in a kernel must have the same fields at the same places. The places
in Rust follow from the rules of C; g++ holds those of the kernel against them. That rustc finds the same sizes is checked
by the library, when it first launches a kernel.

A kernel is launched before the one before it has ended (`Gpu::launch`), so its first statement must be the wait for that.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys

# The kernels' file of each operation.
OPERATIONS = {"resample": "resample", "align": "fuse", "voxelize": "voxelize"}
# Fields that are within another struct in the kernel.
NESTED = {name: f"limits.{name}" for name in ("max_age", "max_gap", "extrapolate")}
# Fills the end of a struct, where C++ needs no name for it.
PADDING = "unused"
PUB = r"(?:pub(?:\([a-z]+\))? )?"
SCALARS = {"u8": 1, "i8": 1, "u16": 2, "i16": 2, "u32": 4, "i32": 4, "f32": 4, "u64": 8, "i64": 8, "f64": 8}


@dataclasses.dataclass
class Struct:
    size: int
    align: int
    # Of each field: its offset and size.
    fields: dict[str, tuple[int, int]]


class Constants(dict):
    """The whole numbers of Rust source text by their names, computed as they are asked for."""

    def __init__(self, rust: str):
        super().__init__()
        self.texts = dict(re.findall(r"const (\w+): (?:usize|u32) = ([^;]+);", rust))

    def __missing__(self, name: str) -> int:
        self[name] = eval(re.sub(r" as \w+", "", self.texts[name]), {}, self)
        return self[name]


def parse(rust: str) -> dict[str, Struct]:
    """The `#[repr(C)]` structs of Rust source text, each of which uses none that comes after it."""
    structs: dict[str, Struct] = {}
    constants = Constants(rust)

    def measure(kind: str) -> tuple[int, int]:
        """Size and alignment of a type."""
        if array := re.fullmatch(r"\[(.+); ([^;\]]+)\]", kind):
            size, align = measure(array[1])
            return size * eval(array[2], {}, constants), align
        if kind in SCALARS:
            return SCALARS[kind], SCALARS[kind]
        return structs[kind].size, structs[kind].align

    pattern = rf"#\[repr\(C\)\]\s*(?:#\[[^\]]*\]\s*)*{PUB}struct (\w+) \{{(.*?)\n\}}"
    for name, body in re.findall(pattern, rust, re.S):
        end, most, fields = 0, 1, {}
        for field, kind in re.findall(rf"^\s*{PUB}(\w+): (.+),$", body, re.M):
            size, align = measure(kind)
            start = -(-end // align) * align
            fields[field] = (start, size)
            end, most = start + size, max(most, align)
        structs[name] = Struct(-(-end // most) * most, most, fields)
    return structs


def check(operation: str, kernels: str) -> int:
    """Compares one operation's structs; how many there are."""
    files = sorted(pathlib.Path(f"src/ops/{operation}/cuda").glob("*.rs"))
    rust = "\n".join(file.read_text() for file in files)
    sources = [pathlib.Path(f"kernels/{kernels}.cu"), *sorted(pathlib.Path("kernels").glob("*.cuh"))]
    cxx = "\n".join(source.read_text() for source in sources)
    bodies = dict(re.findall(r"struct (?:alignas\(\d+\) )?(\w+) \{(.*?)\n\s*\};", cxx, re.S))

    lines = ['#include "shim.h"', "#include <stddef.h>", f'#include "{kernels}.cu"']
    for name in sorted(set(re.findall(r"^namespace (\w+) \{", cxx, re.M))):
        lines.append(f"using namespace {name};")
    structs = parse(rust)
    for name, struct in structs.items():
        names = (name, kernels.title() + name, name.removesuffix("Params"))
        known = next((known for known in names if known in bodies), None)
        if known is None:
            sys.exit(f"layout.py: {name} of src/ops/{operation}/cuda is no struct of kernels/{kernels}.cu")
        lines.append(f'static_assert(sizeof({known}) == {struct.size}, "the size of {name}");')
        for field, (offset, size) in struct.fields.items():
            if field == PADDING:
                continue
            place = field if re.search(rf"\b{field}\b(\[[^\]]+\])*;", bodies[known]) else NESTED.get(field, field)
            what = f"{name}.{field}"
            lines.append(f'static_assert(offsetof({known}, {place}) == {offset}, "the place of {what}");')
            lines.append(f'static_assert(sizeof((({known} *)0)->{place}) == {size}, "the size of {what}");')
    command = ["g++", "-x", "c++", "-std=c++17", "-fsyntax-only", "-w", "-Ikernels", "-Itests/emulator", "-"]
    if subprocess.run(command, input="\n".join(lines) + "\n", text=True).returncode != 0:
        sys.exit(f"layout.py: the structs of src/ops/{operation}/cuda are not those of kernels/{kernels}.cu")
    return len(structs)


def check_waits() -> int:
    """Whether every kernel first waits for the one before it; how many there are."""
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
    for operation, kernels in OPERATIONS.items():
        print(f"kernels/{kernels}.cu: {check(operation, kernels)} structs are those of src/ops/{operation}/cuda")
