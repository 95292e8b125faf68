"""tests/layout.py finds what Rust and the kernels do not agree on."""

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def layout(folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tests/layout.py")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def sources(tmp_path: pathlib.Path) -> pathlib.Path:
    for folder in ("crates/ops/src", "crates/time/src", "crates/device/src", "kernels", "tests/emulator"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.fatbin"))
    return tmp_path


def test_the_sources_agree(sources: pathlib.Path) -> None:
    came = layout(sources)
    assert came.returncode == 0, came.stderr
    assert "2 enums have Rust's numbers" in came.stdout


@pytest.mark.parametrize(
    ("file", "before", "after", "said"),
    [
        ("kernels/time.cuh", "    NEAREST = 1,\n", "    NEAREST = 11,\n", "Interpolation of crates/time/src/blend.rs"),
        ("kernels/types.cuh", "FLOAT16, BFLOAT16,", "BFLOAT16, FLOAT16,", "Dtype of crates/device/src/dtype.rs"),
        ("crates/device/src/dtype.rs", "        Self::UInt64,\n    ];", "    ];", "Dtype::ALL"),
        ("kernels/resample.cu", "u32 BLOCK = 128;", "u32 BLOCK = 256;", "BLOCK is BLOCK of crates/ops/src/resample/cuda"),
        ("kernels/resample.cu", "SHORT_VECTORS", "FEW_VECTORS", "not both in crates/ops/src/resample/cuda"),
        ("kernels/resample.cu", "u32 row_samples;\n    u32 row_targets;", "u32 row_targets;\n    u32 row_samples;", "the offset of"),
    ],
)
def test_a_difference_is_found(sources: pathlib.Path, file: str, before: str, after: str, said: str) -> None:
    text = (sources / file).read_text()
    assert before in text
    (sources / file).write_text(text.replace(before, after))
    came = layout(sources)
    assert came.returncode == 1
    assert said in came.stderr
