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
    if not (ROOT / "target/layout").is_dir():
        pytest.fail("the headers are not written: make check-layout")
    for folder in ("target/layout", "kernels", "tests/emulator"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.fatbin"))
    return tmp_path


def test_the_sources_agree(sources: pathlib.Path) -> None:
    came = layout(sources)
    assert came.returncode == 0, came.stderr
    for operation, enums in {"fuse": 2, "resample": 2, "voxelize": 1}.items():
        assert (sources / f"target/layout/{operation}.h").read_text().count("inline void every(") == enums


# Changes in target/layout stand for changes in Rust, after which the tests of crates/ops would write these headers.
@pytest.mark.parametrize(
    ("file", "before", "after", "said"),
    [
        ("kernels/time.cuh", "    NEAREST = 1,\n", "    NEAREST = 11,\n", "Interpolation::NEAREST is 1 in Rust"),
        ("kernels/types.cuh", "FLOAT16, BFLOAT16,", "BFLOAT16, FLOAT16,", "Dtype::FLOAT16 is 2 in Rust"),
        ("target/layout/voxelize.h", "case UINT64: ", "", "not handled in switch"),
        ("kernels/resample.cu", "u32 BLOCK = 128;", "u32 BLOCK = 256;", "BLOCK is 128 in Rust"),
        ("kernels/resample.cu", "SHORT_VECTORS", "FEW_VECTORS", "was not declared in this scope"),
        ("kernels/resample.cu", "u32 row_samples;\n    u32 row_targets;", "u32 row_targets;\n    u32 row_samples;", "the offset of"),
        ("kernels/fuse.cu", "    u32 mask;\n    u32 dim;\n};", "    u32 mask;\n    u64 dim;\n};", "the size of"),
        ("target/layout/fuse.h", "offsetof(Verdict, value) == 4", "offsetof(Verdict, value) == 8", "the offset of Verdict.value"),
        ("kernels/empty.cu", "    wait_for_previous();", "", "does not begin with wait_for_previous()"),
    ],
)
def test_a_difference_is_found(sources: pathlib.Path, file: str, before: str, after: str, said: str) -> None:
    text = (sources / file).read_text()
    assert before in text
    (sources / file).write_text(text.replace(before, after))
    came = layout(sources)
    assert came.returncode == 1
    assert said in came.stderr
