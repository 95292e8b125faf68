"""Makes the archive of a release from the built programs and wheels: `make archive`.

`archive.py --target TRIPLE --out FOLDER` writes robocache-VERSION-linux-ARCH.tar.gz and its SHA-256 beside it. The same
commit gives the same bytes, if the programs and wheels are the same.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile

ROOT = pathlib.Path(__file__).parents[1]
# Files that are copied unchanged.
FILES = ["LICENSE", "CHANGELOG.md", "robocache.yml", "examples/recording.yml", "packaging/requirements.txt"]
FOLDERS = ["docs", "types", "examples/policy", "nodes/*/README.md", "nodes/*/dora-node.yml"]
# Dataflows, whose programs are in another folder in an archive.
DATAFLOWS = ["dataflow.yml", "examples/record.yml", "examples/replay.yml"]
LICENCES = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def binaries(metadata: dict, built: pathlib.Path) -> dict[str, pathlib.Path]:
    """The programs of the workspace except benchmarks and examples: the nodes and the command."""
    members = [package for package in metadata["packages"] if package["id"] in metadata["workspace_members"]]
    names = [
        target["name"]
        for package in members
        for target in package["targets"]
        if "bin" in target["kind"]
        and pathlib.Path(package["manifest_path"]).relative_to(ROOT).parts[0] in ("nodes", "cli")
    ]
    return {f"bin/{name}": built / name for name in sorted(names)}


def third_party(metadata: dict) -> str:
    """The licences of all linked packages: each text once, with the packages that have it."""
    used = linked(metadata)
    by_text: dict[str, list[str]] = {}
    lines = []
    for package in sorted(metadata["packages"], key=lambda p: (p["name"], p["version"])):
        if package["id"] not in used or package["source"] is None:
            continue
        name = f"{package['name']} {package['version']}"
        lines.append(f"{name}: {package['license']}")
        folder = pathlib.Path(package["manifest_path"]).parent
        for path in sorted(path for path in folder.iterdir() if path.is_file() and LICENCES.fullmatch(path.name)):
            text = path.read_text(errors="replace").strip()
            by_text.setdefault(text, []).append(f"{name}, {path.name}")
    parts = ["The programs contain these packages, from crates.io:\n\n" + "\n".join(lines)]
    parts += ["\n".join(names) + "\n\n" + text for text, names in by_text.items()]
    return f"\n\n{'=' * 100}\n\n".join(parts) + "\n"


def linked(metadata: dict) -> set[str]:
    """The packages that the workspace needs to run, without those of tests and build scripts."""
    needs = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    found: set[str] = set()
    left = list(metadata["workspace_members"])
    while left:
        package = left.pop()
        if package not in found:
            found.add(package)
            left += needs[package]
    return found


def moved(text: str) -> str:
    """A dataflow with the paths of programs in an archive."""
    return text.replace("target/release/", "bin/")


def contents(target: str, built: pathlib.Path, wheels: list[pathlib.Path]) -> dict[str, tuple[bytes, int]]:
    """The content and the mode of every file of the archive, by its name."""
    metadata = json.loads(output("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target))
    tracked = output("git", "ls-files", "--", *FOLDERS).splitlines()
    held = {name: (path.read_bytes(), 0o755) for name, path in binaries(metadata, built).items()}
    held |= {name: ((ROOT / name).read_bytes(), 0o644) for name in FILES + tracked}
    held |= {name: (moved((ROOT / name).read_text()).encode(), 0o644) for name in DATAFLOWS}
    held |= {f"wheels/{path.name}": (path.read_bytes(), 0o644) for path in wheels}
    held["README.md"] = ((ROOT / "packaging" / "README.md").read_bytes(), 0o644)
    held["out/policy.onnx"] = ((ROOT / "out" / "policy.onnx").read_bytes(), 0o644)
    held["THIRD-PARTY-LICENCES"] = (third_party(metadata).encode(), 0o644)
    held["requirements.txt"] = held.pop("packaging/requirements.txt")
    return held


def packed(folder: str, held: dict[str, tuple[bytes, int]], time_s: int) -> bytes:
    made = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=made, mode="wb", compresslevel=6, mtime=time_s) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for name, (content, mode) in sorted(held.items()):
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size, info.mode, info.mtime = len(content), mode, time_s
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True, help="such as x86_64-unknown-linux-gnu")
    parser.add_argument("--built", type=pathlib.Path, required=True, help="the folder with the programs")
    parser.add_argument("--wheels", type=pathlib.Path, required=True, help="the folder with the wheels")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    wheels = sorted(options.wheels.glob("*.whl"))
    for name in ("robocache", "robocache_view"):
        if not any(path.name.startswith(f"{name}-") for path in wheels):
            parser.error(f"{options.wheels} has no wheel of {name}")
    folder = f"robocache-{version}-linux-{options.target.split('-')[0]}"
    time_s = int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct"))
    archive = packed(folder, contents(options.target, options.built, wheels), time_s)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{folder}.tar.gz"
    path.write_bytes(archive)
    digest = hashlib.sha256(archive).hexdigest()
    path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n")
    print(f"{path}: {len(archive) / 1e6:.0f} MB, sha256 {digest}")


if __name__ == "__main__":
    main()
