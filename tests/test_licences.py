"""Dependencies that deny.toml lets pass, and those that it stops."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("name", "licence", "said"),
    [
        ("x", "MIT", None),
        ("x", "EPL-2.0 OR Apache-2.0", None),
        ("x", "EPL-2.0 AND Apache-2.0", "license is not explicitly allowed"),
        ("x", "Apache-2.0 WITH LLVM-exception", None),
        ("x", "GPL-3.0-only", "license is not explicitly allowed"),
        ("x", "MPL-2.0", "license is not explicitly allowed"),
        ("colored", "MPL-2.0", None),
        ("x", "MIT OR", "unlicensed"),
        ("x", None, "unlicensed"),
    ],
)
def test_a_dependency_that_is_planted_is_judged(tmp_path, name, licence, said):
    def package(folder: pathlib.Path, name: str, more: str) -> None:
        (folder / "src").mkdir(parents=True)
        (folder / "src" / "lib.rs").touch()
        (folder / "Cargo.toml").write_text(f'[package]\nname = "{name}"\nversion = "1.0.0"\nedition = "2024"\n{more}')

    package(tmp_path, "top", f'license = "MIT"\n[dependencies]\n{name} = {{ path = "{name}" }}\n[workspace]\n')
    package(tmp_path / name, name, f'license = "{licence}"\n' if licence else "")
    manifest = ["--manifest-path", tmp_path / "Cargo.toml", "--config", ROOT / "deny.toml"]
    command = ["cargo", "deny", "--offline", "--color", "never", *manifest, "check", "licenses"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) is (said is None), done.stderr
    assert said is None or (said in done.stderr and f"{name} v1.0.0" in done.stderr), done.stderr
