"""Tests that the check of dataflows and manifests, tests/dataflows.py, can fail."""

import pathlib

import pytest
import yaml

from dataflows import dora_says, node_problems, readme_problems, type_problems

ROOT = pathlib.Path(__file__).parents[1]

SHIPPED = {"Wrench": {"arrow": "Float32"}, "Fused": {"arrow": "Float32"}}


def manifest(**types):
    return {
        "inputs": {"force": {"type": "robocache/v1/Wrench[dim=6]"}, "other": {}},
        "types": {f"robocache/v1/{name}": definition for name, definition in types.items()},
    }


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (manifest(Wrench={"arrow": "Float32"}), []),
        (manifest(Wrench={"arrow": "Float64"}), ["robocache/v1/Wrench differs from types/robocache/v1.yml"]),
        (
            manifest(Wrench={"arrow": "Float32"}, Fused={"arrow": "Float32"}),
            ["robocache/v1/Fused is repeated but no port has it"],
        ),
        (
            {"outputs": {"x": {"type": "robocache/v1/Wrenhc"}}},
            ["robocache/v1/Wrenhc is not in types/robocache/v1.yml"],
        ),
    ],
)
def test_types_of_manifests(given, problems):
    assert type_problems(given, SHIPPED) == problems


def test_names_of_manifests():
    right = yaml.safe_load((ROOT / "nodes/fuse/dora-node.yml").read_text())
    assert node_problems(pathlib.Path("nodes/fuse"), right) == []
    assert node_problems(pathlib.Path("nodes/align"), right) != []
    viewer = yaml.safe_load((ROOT / "nodes/view/dora-node.yml").read_text())
    assert node_problems(pathlib.Path("nodes/view"), viewer) == []
    for wrong in [{"entrypoint": "target/release/robocache-fuse"}, {"build": "cargo build"}, {"platforms": ["linux-x86_64"]}]:
        assert len(node_problems(pathlib.Path("nodes/fuse"), right | wrong)) == 1


@pytest.mark.parametrize(
    ("section", "key", "wrong", "named"),
    [
        ("input_types", "force", "robocache/v1/Wrench[dim=7]", "type mismatch"),
        ("output_types", "observation", "robocache/v1/Obsrevation", "unknown type"),
        ("inputs", "force", {"source": "robot/forec", "queue_size": 1000}, "forec"),
    ],
)
def test_dora_finds_a_dataflow_that_is_wired_wrongly(tmp_path, section, key, wrong, named):
    (tmp_path / "types").symlink_to(ROOT / "types")
    path = tmp_path / "dataflow.yml"
    path.write_text((ROOT / "dataflow.yml").read_text())
    assert dora_says("--strict-types", str(path)) is None
    dataflow = yaml.safe_load(path.read_text())
    (fuse,) = (node for node in dataflow["nodes"] if node["id"] == "fuse")
    assert key in fuse[section]
    fuse[section][key] = wrong
    path.write_text(yaml.safe_dump(dataflow))
    assert named in dora_says("--strict-types", str(path))


@pytest.mark.parametrize(
    ("block", "named"),
    [
        ("- id: x\n  path: target/release/robocache-fuse\n  inputs: {a: robot/a}\n  outputs: [fused]\n", None),
        ("- id: x\n  path: target/release/robocache-fuse\n  inptus: {a: robot/a}\n", "inptus"),
        ("- id: x\n  path: elsewhere\n", "shows no node"),
        ("a: [\n", "can't be read"),
    ],
)
def test_yaml_of_readmes(tmp_path, block, named):
    readme = tmp_path / "fuse" / "README.md"
    readme.parent.mkdir()
    readme.write_text(f"# x\n\n```yaml\n{block}```\n")
    problems = " ".join(filter(None, readme_problems(readme)))
    assert (problems == "") if named is None else (named in problems)
