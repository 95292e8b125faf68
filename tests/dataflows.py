"""Checks what dora can check without running anything: dataflows, node manifests, and that manifests repeat types truly.

`dora validate --node-manifest` knows a type only from the manifest itself, so manifests repeat the definitions of
types/robocache/v1.yml that they use; here the two are held equal.
"""

import pathlib
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).parents[1]
PREFIX = "robocache/v1/"


def dora_says(*arguments: str) -> str | None:
    """What `dora validate` finds wrong, None where nothing is."""
    done = subprocess.run(["dora", "validate", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        return None
    # The interpreter's stack follows the finding; nobody can use it.
    return (done.stdout + done.stderr).split("Stack backtrace:")[0].strip()


def type_problems(manifest: dict, shipped: dict) -> list[str]:
    """Types that a manifest uses and does not repeat as `shipped` has them, or repeats without a use."""
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
    """Where a manifest's names are not those of its folder."""
    name = f"robocache-{folder.name}"
    expected = {"name": name, "entrypoint": f"target/release/{name}", "dora": "=1.1.0"}
    return [f"{key} is {manifest.get(key)!r}, expected {value!r}" for key, value in expected.items() if manifest.get(key) != value]


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
    for folder in sorted(path.parent for path in (ROOT / "nodes").glob("*/Cargo.toml")):
        found[folder] = [f"has no {name}" for name in ("dora-node.yml", "README.md") if not (folder / name).exists()]
    for path in manifests:
        manifest = yaml.safe_load(path.read_text())
        found[path] = [
            dora_says("--node-manifest", str(path.relative_to(ROOT))),
            *type_problems(manifest, shipped),
            *node_problems(path.parent, manifest),
        ]
    count = 0
    for path, problems in found.items():
        for text in filter(None, problems):
            count += 1
            print(f"{path.relative_to(ROOT)}: {text}", file=sys.stderr)
    print(f"dora validate: {len(dataflows)} dataflows, {len(manifests)} node manifests, {count} problems")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
