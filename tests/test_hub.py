"""Nodes as dora's hub builds them: the program that a manifest builds is the one that it runs.

The hub is this test's own: its index is a folder, and in its repository programs of a few lines stand for the nodes, so
that building takes seconds. Names, build commands and entry points are those of the manifests.
"""

import os
import pathlib
import shutil
import subprocess

import pytest
import yaml

from harness import DORA, dora

ROOT = pathlib.Path(__file__).parents[1]
# The node in Python is left out: pip would have to download its dependencies.
NODES = sorted(path.parent.name for path in (ROOT / "nodes").glob("*/Cargo.toml"))

# Writes that it ran to the file that its argument names; it never joins the dataflow.
STAND_IN = 'fn main() { std::fs::write(std::env::args().nth(1).unwrap(), "ran").unwrap(); }\n'


def manifest(name: str) -> dict:
    return yaml.safe_load((ROOT / "nodes" / name / "dora-node.yml").read_text())


def git(folder: pathlib.Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, timeout=180)


def repository(folder: pathlib.Path, manifests: dict[str, dict]) -> pathlib.Path:
    """Creates and commits a workspace that is laid out like ours."""
    for name, content in manifests.items():
        node = folder / "nodes" / name
        (node / "src").mkdir(parents=True)
        (node / "src" / "main.rs").write_text(STAND_IN)
        (node / "Cargo.toml").write_text(f'[package]\nname = "robocache-{name}"\nversion = "0.1.0"\nedition = "2024"\n')
        (node / "dora-node.yml").write_text(yaml.safe_dump(content, sort_keys=False))
    (folder / "Cargo.toml").write_text('[workspace]\nmembers = ["nodes/*"]\nresolver = "3"\n')
    shutil.copy(ROOT / ".gitignore", folder)
    subprocess.run(["cargo", "generate-lockfile", "--offline"], cwd=folder, check=True, capture_output=True, timeout=180)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Stand-ins")
    return folder


def hub(folder: pathlib.Path) -> dict:
    """The environment of a hub with this folder as its index."""
    (folder / "index").mkdir(parents=True)
    config = folder / "hub.toml"
    config.write_text(f'[[index]]\nalias = "test"\npath = "{folder / "index"}"\nnamespaces = ["robocache"]\n')
    home = pathlib.Path.home()
    return {
        "HOME": str(folder),
        "DORA_HUB_CONFIG": str(config),
        "DORA_HUB_ALLOW_LOCAL_SOURCES": "1",
        # The folders of the user who runs the test, since HOME is another one here.
        "CARGO_HOME": os.environ.get("CARGO_HOME", str(home / ".cargo")),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(home / ".rustup")),
    }


def ran(folder: pathlib.Path, manifests: dict[str, dict]) -> tuple[set[str], str]:
    """Builds and runs nodes from a hub; returns the names of those that ran, and the output of dora."""
    source = repository(folder / "source", manifests)
    env = hub(folder / "hub")
    nodes = []
    for name, content in manifests.items():
        arguments = ["--version", "0.1.0", "--repo", f"file://{source}", str(source / "nodes" / name)]
        dora("hub", "publish", *arguments, env=env)
        required = [port for port, keys in content.get("inputs", {}).items() if keys.get("required", True)]
        inputs = dict.fromkeys(required, "dora/timer/millis/100")
        node = {"id": name, "hub": f"robocache/robocache-{name}@0.1.0", "args": str(folder / f"{name}.ran")}
        nodes.append({**node, "inputs": inputs} if inputs else node)
    dataflow = folder / "dataflow.yml"
    dataflow.write_text(yaml.safe_dump({"nodes": nodes}))
    dora("build", str(dataflow), env=env, timeout=180, cwd=folder)
    done = subprocess.run(
        [DORA, "run", dataflow], cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL
    )
    return {name for name in manifests if (folder / f"{name}.ran").exists()}, done.stdout + done.stderr


def test_every_node_that_the_hub_builds_runs(tmp_path):
    names, words = ran(tmp_path, {name: manifest(name) for name in NODES})
    assert names == set(NODES), words[-4000:]


@pytest.mark.parametrize("name", ["fuse"])
def test_a_manifest_whose_build_goes_elsewhere_is_found_out(tmp_path, name):
    """The check of the hub's test finds a manifest whose build goes to another folder; dora itself builds it without a
    complaint."""
    elsewhere = {**manifest(name), "build": f"cargo build --release --locked -p robocache-{name}", "entrypoint": f"target/release/robocache-{name}"}
    names, words = ran(tmp_path, {name: elsewhere})
    assert names == set() and "entrypoint" in words, words[-4000:]
