"""The archive as a user gets it: unpacked in a folder of its own, installed as its README says, its demo run."""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import tarfile

import pytest

ARCHIVES = pathlib.Path(__file__).parents[1] / "target" / "archive"
OLDEST_GLIBC = (2, 34)


@pytest.fixture(scope="module")
def archive() -> pathlib.Path:
    (path,) = ARCHIVES.glob(f"robocache-*-linux-{os.uname().machine}.tar.gz")
    return path


@pytest.fixture(scope="module")
def unpacked(archive, tmp_path_factory) -> pathlib.Path:
    # The folder has a name that a user may choose.
    folder = tmp_path_factory.mktemp("mein Röboter")
    with tarfile.open(archive) as opened:
        assert {name.split("/")[0] for name in opened.getnames()} == {archive.name.removesuffix(".tar.gz")}
        opened.extractall(folder, filter="data")
    (inside,) = folder.iterdir()
    return inside


def run(folder: pathlib.Path, *command: str, timeout: float = 300) -> str:
    """Runs a command without anything of this checkout in its environment."""
    environment = {"PATH": f"{folder}/.venv/bin:{folder}/bin:/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def programs(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted((folder / "bin").iterdir())


def test_the_digest_is_that_of_the_archive(archive):
    digest, name = archive.with_name(f"{archive.name}.sha256").read_text().split()
    assert name == archive.name and digest == hashlib.sha256(archive.read_bytes()).hexdigest()


def test_every_node_is_there_and_says_its_version(unpacked):
    nodes = {path.parent.name for path in (pathlib.Path(__file__).parents[1] / "nodes").glob("*/Cargo.toml")}
    assert {path.name for path in programs(unpacked)} == {"robocache"} | {f"robocache-{node}" for node in nodes}
    version = unpacked.name.split("-")[1]
    for path in programs(unpacked):
        assert f"robocache {version}" in run(unpacked, str(path), "--version")


def test_programs_need_no_newer_glibc_than_is_said_and_no_other_library(unpacked):
    for path in programs(unpacked):
        said = path.read_bytes()
        needed = {
            tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_([0-9]+\.[0-9]+(?:\.[0-9]+)?)\0", said)
        }
        assert needed and max(needed) <= OLDEST_GLIBC, path.name
        libraries = {line.split()[0] for line in run(unpacked, "ldd", str(path)).splitlines()}
        names = {re.sub(r"\.so.*", "", pathlib.Path(library).name) for library in libraries}
        assert {name for name in names if not name.startswith(("ld-linux", "linux-vdso"))} == {
            "libc",
            "libgcc_s",
            "libm",
        }, names


def test_the_licences_of_what_is_linked_in_are_there(unpacked):
    text = (unpacked / "THIRD-PARTY-LICENCES").read_text()
    assert "Apache License" in (unpacked / "LICENSE").read_text()
    for package in ("arrow-array", "dora-node-api", "cudarc", "zenoh", "serde"):
        assert re.search(rf"^{package} [0-9.]+: \S", text, re.MULTILINE), package
    assert text.count("Permission is hereby granted") > 20


def test_the_demo_runs_as_the_readme_says(unpacked):
    (commands,) = re.findall(r"^```\n(.*?)^```", (unpacked / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    script = commands.replace("dora run", "ROBOCACHE_POLICY_REPORT=$PWD/report.json dora run")
    run(unpacked, "bash", "-ec", script)
    report = json.loads((unpacked / "report.json").read_text())
    # On a busy machine, some observations are too old to act on.
    assert report["actions"] + sum(report["refused"].values()) == report["observations"] > 200, report
    assert report["actions"] > 100, report
    run(unpacked, "dora", "run", "examples/record.yml")
    run(unpacked, "robocache", "try", "robocache.yml", "out/recording")
    run(unpacked, "dora", "validate", "--strict-types", "dataflow.yml")
    run(unpacked, "robocache", "new", "arm", "--sensor", "force:6@500", "--cloud", "lidar@10")
    # On a busy machine, its sensors in Python start seconds late.
    assert "observations" in run(unpacked, "dora", "run", "arm/dataflow.yml", "--stop-after", "20s")
