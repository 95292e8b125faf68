"""The integration tests of a package are modules of few binaries, and none is left out."""

import re
import tomllib

import pytest

from harness import ROOT


@pytest.mark.parametrize("package", [".", "cli", "nodes/sim"])
def test_every_file_of_tests_is_in_a_binary(package):
    manifest = tomllib.loads((ROOT / package / "Cargo.toml").read_text())
    roots = {ROOT / package / test.get("path", f"tests/{test['name']}.rs") for test in manifest["test"]}
    modules = {name for root in roots for name in re.findall(r"^(?:pub )?mod (?:r#)?(\w+);", root.read_text(), re.MULTILINE)}
    files = {path for path in (ROOT / package / "tests").glob("*.rs")} - roots
    folders = {path for path in (ROOT / package / "tests").glob("*/main.rs")} - roots
    assert {path.stem for path in files} <= modules and not folders
    assert manifest["package"]["autotests"] is False
