"""Checks what Rust and the kernels must agree on: `layout.py`, exit code 1 where they differ.

Structs: a `#[repr(C)]` struct in Rust and its counterpart in a kernel have the same fields at the same offsets. Those in
Rust follow from the rules of C; g++ compares them with the kernel's. The library checks that rustc finds the same sizes
when it first launches a kernel.

Constants: a whole number that an operation's Rust code and its kernels both name has one value. `SHARED` lists the names,
so that one can't drop out of the comparison by being renamed on one side.

Enums: each variant of an enum in `ENUMS` has the kernels' number, which is its place in `ALL`.

Waits: a kernel is launched before the one before it has ended (`Gpu::launch`), so its first statement is the wait for
that one.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys

# The kernels' file of each operation.
OPERATIONS = {"resample": "resample", "align": "fuse", "voxelize": "voxelize"}
# The constants that the Rust code and the kernels of an operation share, by their names in Rust.
SHARED = {
    "resample": {"BLOCK", "SHORT_VECTORS", "MOST_GROUPS"},
    "align": {"BLOCK", "RUN", "INLINE", "TAKEN_AT_ONCE", "ALL_FINITE", "MOST_GROUPS"},
    "voxelize": {
        *("BLOCK", "POINT_BLOCK", "RANK_BLOCK", "COUNTER_SLOTS", "MAX_SUPERBLOCKS"),
        *("MAX_FIELDS", "MAX_SUMS", "MAX_EXTREMES", "MAX_CHANNELS"),
        *("SAVE_NONE", "SAVE_ALL", "SAVE_FIRST", "OUTPUT_ONE", "OUTPUT_COUNT", "OUTPUT_MEAN", "OUTPUT_EXTREME"),
    },
}
# One in Rust that is several in the kernels.
ALIASES = {"INLINE": ("INLINE_MODALITIES", "INLINE_GROUPS")}
# What operations share of the structs and constants of their kernels.
COMMON = {"resample": ["crates/ops/src/channel_groups.rs"], "align": ["crates/ops/src/channel_groups.rs"]}
# Enums that are the same in all kernels: where each stands in Rust and in the kernels.
ENUMS = {"Interpolation": ("crates/time/src/blend.rs", "time.cuh"), "Dtype": ("crates/device/src/dtype.rs", "types.cuh")}
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
        # Those of modules; what stands in a function is indented, and may use a name again.
        self.texts = dict(re.findall(rf"^{PUB}const (\w+): (?:usize|u64|u32|u8) = ([^;]+);", rust, re.M))

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


def check_constants(operation: str, kernels: str, rust: str, cxx: str) -> list[str]:
    """The assertions that hold the constants that both sides name to one value."""
    enumerators = ",".join(re.findall(r"^enum \w+[^{]*\{([^}]*)\}", cxx, re.M))
    known = {*re.findall(r"^constexpr \w+ (\w+) =", cxx, re.M), *re.findall(r"\w+", enumerators)}
    constants = Constants(rust)
    counterparts = {name: ALIASES.get(name, (name,)) for name in constants.texts}
    shared = {name: twins for name, twins in counterparts.items() if known.issuperset(twins)}
    if missing := SHARED[operation] - shared.keys():
        sys.exit(f"layout.py: not both in crates/ops/src/{operation}/cuda and in kernels/{kernels}.cu: {', '.join(sorted(missing))}")
    if unlisted := shared.keys() - SHARED[operation]:
        sys.exit(f"layout.py: {operation}: add to SHARED, or rename on one side: {', '.join(sorted(unlisted))}")
    return [
        f'static_assert({twin} == {constants[name]}, "{twin} is {name} of crates/ops/src/{operation}/cuda");'
        for name, twins in shared.items()
        for twin in twins
    ]


def check_enums() -> int:
    """Compares the enums that all kernels share; how many there are."""
    for name, (rust, kernels) in ENUMS.items():
        source = pathlib.Path(rust).read_text()
        variants = re.findall(r"Self::(\w+)", re.search(r"const ALL: \[Self; \d+\] = \[(.*?)\];", source, re.S)[1])
        declared = re.search(rf"pub enum {name} \{{(.*?)\n\}}", source, re.S)[1]
        if len(variants) != len(re.findall(r"^    \w+(?: = \d+)?,$", declared, re.M)):
            sys.exit(f"layout.py: {name}::ALL of {rust} has not every variant")
        text = (pathlib.Path("kernels") / kernels).read_text()
        body = re.search(rf"^enum {name} : u32 \{{(.*?)\}};", text, re.S | re.M)[1]
        numbers: dict[str, int] = {}
        for enumerator, number in re.findall(r"(\w+)(?: = (\w+))?", body):
            numbers[enumerator] = int(number, 0) if number else max(numbers.values(), default=-1) + 1
        expected = {variant.upper(): code for code, variant in enumerate(variants)}
        if numbers != expected:
            sys.exit(f"layout.py: {name} of {rust} is {expected}, and in kernels/{kernels} {numbers}")
    return len(ENUMS)


def included(name: str, seen: set[str] | None = None) -> list[str]:
    """The text of a file of kernels, after those that it includes."""
    seen = seen if seen is not None else set()
    if name in seen:
        return []
    seen.add(name)
    text = (pathlib.Path("kernels") / name).read_text()
    return [part for other in re.findall(r'^#include "(\w+\.cuh)"', text, re.M) for part in included(other, seen)] + [text]


def check(operation: str, kernels: str) -> tuple[int, int]:
    """Compares one operation's structs and constants; how many there are."""
    files = [pathlib.Path(file) for file in COMMON.get(operation, [])]
    files += sorted(pathlib.Path(f"crates/ops/src/{operation}/cuda").glob("*.rs"))
    rust = "\n".join(file.read_text() for file in files)
    cxx = "\n".join(included(f"{kernels}.cu"))
    bodies = dict(re.findall(r"struct (?:alignas\(\d+\) )?(\w+) \{(.*?)\n\s*\};", cxx, re.S))

    lines = ['#include "shim.h"', "#include <stddef.h>", f'#include "{kernels}.cu"']
    for name in sorted(set(re.findall(r"^namespace (\w+) \{", cxx, re.M))):
        lines.append(f"using namespace {name};")
    structs = parse(rust)
    constants = check_constants(operation, kernels, rust, cxx)
    lines += constants
    for name, struct in structs.items():
        names = (name, kernels.title() + name, name.removesuffix("Params"))
        known = next((known for known in names if known in bodies), None)
        if known is None:
            sys.exit(f"layout.py: {name} of crates/ops/src/{operation}/cuda is no struct of kernels/{kernels}.cu")
        lines.append(f'static_assert(sizeof({known}) == {struct.size}, "the size of {name}");')
        for field, (offset, size) in struct.fields.items():
            if field == PADDING:
                continue
            member = field if re.search(rf"\b{field}\b(\[[^\]]+\])*;", bodies[known]) else NESTED.get(field, field)
            what = f"{name}.{field}"
            lines.append(f'static_assert(offsetof({known}, {member}) == {offset}, "the offset of {what}");')
            lines.append(f'static_assert(sizeof((({known} *)0)->{member}) == {size}, "the size of {what}");')
    command = ["g++", "-x", "c++", "-std=c++17", "-fsyntax-only", "-w", "-Ikernels", "-Itests/emulator", "-"]
    if subprocess.run(command, input="\n".join(lines) + "\n", text=True).returncode != 0:
        sys.exit(f"layout.py: crates/ops/src/{operation}/cuda and kernels/{kernels}.cu do not agree")
    return len(structs), len(constants)


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
    print(f"kernels: {check_waits()} wait for the one before them first, and {check_enums()} enums have Rust's numbers")
    for operation, kernels in OPERATIONS.items():
        structs, constants = check(operation, kernels)
        print(f"kernels/{kernels}.cu: {structs} structs and {constants} constants are those of crates/ops/src/{operation}/cuda")
