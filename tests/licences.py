"""Checks the licence of every Rust dependency on this platform: `licences.py`, exit code 1 where one is not allowed."""

import json
import pathlib
import re
import subprocess
import sys

# Licences that ask for no more than a notice.
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}
ALLOWED_EXCEPTIONS = {"LLVM-exception"}
# Weak copyleft, file by file: fine for a dependency that is used as published. By name, so that another one is looked at.
ALLOWED_FOR = {"colored": {"MPL-2.0"}, "option-ext": {"MPL-2.0"}}


def allows(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be met with `allowed` alone; raises ValueError where it is not one."""
    # "MIT/Apache-2.0" is how manifests said OR before SPDX.
    tokens = re.findall(r"[()]|[\w.+-]+", expression.replace("/", " OR "))
    tokens.reverse()

    def peek() -> str | None:
        return tokens[-1] if tokens else None

    def term() -> bool:
        token = tokens.pop() if tokens else None
        if token == "(":
            met = either()
            if not tokens or tokens.pop() != ")":
                raise ValueError("a parenthesis is not closed")
            return met
        if token is None or token in (")", "AND", "OR", "WITH"):
            raise ValueError(f"a licence is missing before {token!r}")
        met = token in allowed
        if peek() == "WITH":
            tokens.pop()
            met = bool(tokens) and tokens.pop() in ALLOWED_EXCEPTIONS and met
        return met

    def both() -> bool:
        met = term()
        while peek() == "AND":
            tokens.pop()
            met = term() and met
        return met

    def either() -> bool:
        met = both()
        while peek() == "OR":
            tokens.pop()
            met = both() or met
        return met

    met = either()
    if tokens:
        raise ValueError(f"{tokens[-1]!r} is unexpected")
    return met


def problem(package: dict) -> str | None:
    """What is wrong with the licence of a package of `cargo metadata`, None where nothing is."""
    name = f"{package['name']} {package['version']}"
    licence = package["license"]
    if not licence:
        return f"{name}: names no licence"
    try:
        if allows(licence, ALLOWED | ALLOWED_FOR.get(package["name"], set())):
            return None
        return f"{name}: {licence} is not allowed"
    except ValueError as error:
        return f"{name}: {licence!r} can't be read: {error}"


def main() -> int:
    root = pathlib.Path(__file__).parents[1]
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = re.search(r"^host: (\S+)$", version, re.MULTILINE).group(1)
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=root)
    if done.returncode != 0:
        print("licences: cargo metadata failed, its error is above", file=sys.stderr)
        return 1
    metadata = json.loads(done.stdout)
    used = {node["id"] for node in metadata["resolve"]["nodes"]}
    packages = [p for p in metadata["packages"] if p["id"] in used]
    problems = sorted(filter(None, map(problem, packages)))
    for line in problems:
        print(line, file=sys.stderr)
    print(f"licences: {len(packages)} packages, {len(problems)} not allowed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
