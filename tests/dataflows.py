"""Checks dataflows, node manifests and the YAML of the nodes' READMEs with `dora validate`, without running them.

`dora validate --node-manifest` knows only the types in the manifest itself, so manifests repeat the definitions of
types/robocache/v1.yml that they use. This script checks that the two are equal.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).parents[1]
PREFIX = "robocache/v1/"
# The `dora` command installed with this interpreter, whatever PATH says.
DORA = pathlib.Path(sys.executable).with_name("dora")


def dora_says(*arguments: str) -> str | None:
    """The errors of `dora validate`, None if there are none."""
    done = subprocess.run([DORA, "validate", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=180)
    if done.returncode == 0:
        return None
    # A stack backtrace follows the error, and is of no use.
    return (done.stdout + done.stderr).split("Stack backtrace:")[0].strip()


def type_problems(manifest: dict, shipped: dict) -> list[str]:
    """Finds types that a manifest uses but does not define as in `shipped`, and types that it defines but does not use."""
    ports = [*manifest.get("inputs", {}).values(), *manifest.get("outputs", {}).values()]
    used = {port["type"].split("[")[0] for port in ports if port.get("type", "").startswith(PREFIX)}
    repeated = manifest.get("types", {})
    problems = [f"{urn} is not in types/robocache/v1.yml" for urn in sorted(used - {PREFIX + n for n in shipped})]
    problems += [f"{urn} is repeated but no port has it" for urn in sorted(repeated.keys() - used)]
    problems += [
        f"{urn} differs from types/robocache/v1.yml"
        for urn in sorted(used & repeated.keys())
        if repeated[urn] != shipped.get(urn.removeprefix(PREFIX))
    ]
    return problems


def node_problems(folder: pathlib.Path, manifest: dict) -> list[str]:
    """Finds keys of a manifest that do not fit its folder. The hub looks for the program only in that folder: test_hub.py."""
    name = f"robocache-{folder.name}"
    is_python = manifest.get("runtime") == "python"
    expected = {
        "name": name,
        "entrypoint": name if is_python else f"bin/{name}",
        "build": "pip install ../../python ." if is_python else "cargo install --path . --root . --locked",
        "platforms": ["linux-x86_64", "linux-aarch64"],
        "dora": "=1.1.0",
    }
    return [f"{key} is {manifest.get(key)!r}, expected {value!r}" for key, value in expected.items() if manifest.get(key) != value]


def readme_problems(path: pathlib.Path) -> list[str]:
    """Finds errors in the YAML of a README. dora validates each block that lists nodes, with stubs for the nodes that it lacks."""
    problems = []
    shown = set()
    for block in re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
        try:
            content = yaml.safe_load(block)
        except yaml.YAMLError as error:
            problems.append(f"YAML block can't be read: {error}")
            continue
        if isinstance(content, dict):
            content = content.get("nodes")
        if not isinstance(content, list):
            continue
        shown |= {node.get("path") for node in content}
        sources = {}
        for node in content:
            for source in node.get("inputs", {}).values():
                name, output = (source["source"] if isinstance(source, dict) else source).split("/", 1)
                sources.setdefault(name, []).append(output)
        shown_ids = {node["id"] for node in content}
        stubs = [{"id": name, "path": "stub", "outputs": outputs} for name, outputs in sources.items() if name not in shown_ids]
        with tempfile.TemporaryDirectory() as folder:
            dataflow = pathlib.Path(folder) / "dataflow.yml"
            dataflow.write_text(yaml.safe_dump({"nodes": stubs + content}))
            problems.append(dora_says(str(dataflow)))
    programs = ".venv-view/bin" if (path.parent / "pyproject.toml").exists() else "target/release"
    wanted = f"{programs}/robocache-{path.parent.name}"
    if wanted not in shown:
        problems.append(f"shows no node with path {wanted}")
    return problems


def main() -> int:
    shipped = yaml.safe_load((ROOT / "types/robocache/v1.yml").read_text())["types"]
    found = {}
    dataflows = [ROOT / "dataflow.yml"]
    for path in sorted((ROOT / "examples").rglob("*.yml")):
        if "nodes" in (yaml.safe_load(path.read_text()) or {}):
            dataflows.append(path)
    for path in dataflows:
        found[path] = [dora_says("--strict-types", str(path.relative_to(ROOT)))]
    manifests = sorted((ROOT / "nodes").glob("*/dora-node.yml"))
    for folder in sorted(path for path in (ROOT / "nodes").iterdir() if path.is_dir()):
        found[folder] = [f"has no {name}" for name in ("dora-node.yml", "README.md") if not (folder / name).exists()]
    for path in manifests:
        manifest = yaml.safe_load(path.read_text())
        found[path] = [
            dora_says("--node-manifest", str(path.relative_to(ROOT))),
            *type_problems(manifest, shipped),
            *node_problems(path.parent, manifest),
        ]
    readmes = sorted((ROOT / "nodes").glob("*/README.md"))
    for path in readmes:
        found[path] = readme_problems(path)
    count = 0
    for path, problems in found.items():
        for text in filter(None, problems):
            count += 1
            print(f"{path.relative_to(ROOT)}: {text}", file=sys.stderr)
    print(f"dora validate: {len(dataflows)} dataflows, {len(manifests)} node manifests, {len(readmes)} READMEs, {count} problems")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
