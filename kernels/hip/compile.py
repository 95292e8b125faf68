"""Makes the kernels for AMD GPUs.

The command `compile.py write` compiles each .cu for each family, and writes the images beside this file. The command
`compile.py check` compares these images with new ones; it is skipped if the right compiler is not installed.

The compiler is clang 22 with lld (on Debian 12: apt-get install clang-22 lld-22). ROCm is not needed. Images are
compressed with Zstandard. Both commands check what the compiler makes:

- Each image has the kernels of its source. No kernel uses scratch memory or spills registers.
- No instruction may be contracted, reassociated or less than correctly rounded. There is a fused multiply-add only where
  a source says `fmaf`.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CLANG = "clang-22"
VERSION = "22.1.8"
# Files without images for AMD GPUs. The kernels of kinematics for 6 and 7 joints spill registers on gfx10 and gfx11. No node
# runs those of maps yet.
WITHOUT_IMAGES = {"kinematics", "map"}
HERE = pathlib.Path(__file__).resolve().parent
KERNELS = HERE.parent
# A generic architecture stands for its whole family, so that fewer images are needed. It needs ROCm 6.4 or newer.
ARCHITECTURES = ["gfx90a", "gfx9-4-generic", "gfx10-3-generic", "gfx11-generic", "gfx12-generic"]
OPTIONS = [
    *("-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-std=c++17", "-O3"),
    "-ffp-contract=off",
    # Otherwise the image holds an id of the compilation, and no two images are equal.
    "-fuse-cuid=none",
    "-fdeclspec",
    *("-include", str(HERE / "hip.h"), f"-I{KERNELS}"),
]


def run(*command: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compile.py: {' '.join(map(str, command))}\n{done.stderr}")
    return done


def compiler_problem() -> str | None:
    """Returns the reason why the installed compiler can't be used, or None."""
    allowed = f"(allowed: {VERSION}, whose images are checked in; on Debian 12: apt-get install clang-22 lld-22)"
    if shutil.which(CLANG) is None:
        return f"{CLANG} is not installed {allowed}"
    version = run(CLANG, "--version").stdout.splitlines()[0]
    return None if f" {VERSION} " in f"{version} " else f"{version} {allowed}"


def check_resources(source: pathlib.Path, arch: str, remarks: str) -> str:
    """Refuses scratch memory and spilled registers. Returns a summary of the file's kernels."""
    used = re.findall(
        r"Function Name: (\w+).*?VGPRs: (\d+).*?ScratchSize \[bytes/lane\]: (\d+).*?Occupancy \[waves/SIMD\]: (\d+)"
        r".*?VGPRs Spill: (\d+)",
        remarks,
        re.S,
    )
    listed = run(KERNELS.parent / "tests/emulator/list_kernels", source).stdout
    odd = set(re.findall(r"emulator::add<&(\w+)", listed)) ^ {name for name, *_ in used}
    if odd:
        sys.exit(f"compile.py: {source.name} for {arch}: in the image or in the source alone: {odd}")
    for name, _, scratch, _, spilled in used:
        if scratch != "0" or spilled != "0":
            sys.exit(f"compile.py: {name} for {arch}: {scratch} bytes of scratch, {spilled} registers spilled")
    most = max(int(registers) for _, registers, *_ in used)
    least = min(int(waves) for *_, waves, _ in used)
    return f"{len(used):3} kernels, at most {most:3} registers, at least {least} waves"


def check_arithmetic(source: pathlib.Path, arch: str) -> None:
    """Refuses an image whose arithmetic may differ from the source's."""
    code = run(CLANG, *OPTIONS, f"--offload-arch={arch}", "-S", "-emit-llvm", "-o", "-", source).stdout
    loose = re.search(r"\b(?:fadd|fsub|fmul|fdiv|fcmp|call)\s+(?:fast|contract|reassoc|arcp|afn|nnan|ninf|nsz)\b.*", code)
    if loose or "!fpmath" in code:
        sys.exit(f"compile.py: {source.name} for {arch}: not as exact as written: {loose and loose[0]}")
    # Only resample calls `fmaf`, to find values that are not finite.
    allowed = {"llvm.fma.f32"} if source.stem == "resample" else set()
    fused = set(re.findall(r"@(llvm\.fm[au]\w*\.f\d+)\(", code)) - allowed
    if fused:
        sys.exit(f"compile.py: {source.name} for {arch}: {fused}")


def compile_image(source: pathlib.Path, arch: str) -> tuple[bytes, str]:
    """Compiles a file for a family. Returns the image, and a summary of its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        image = pathlib.Path(folder) / "image"
        remarks = run(
            *(CLANG, *OPTIONS, f"--offload-arch={arch}", "-Rpass-analysis=kernel-resource-usage"),
            *("-c", source, "-o", image),
        ).stderr
        line = check_resources(source, arch, remarks)
        check_arithmetic(source, arch)
        return image.read_bytes(), line


def main(is_check: bool) -> None:
    problem = compiler_problem()
    if problem is not None and is_check:
        return print(f"compile.py: skipped: {problem}")
    if problem is not None:
        sys.exit(f"compile.py: {problem}")
    sources = [source for source in sorted(KERNELS.glob("*.cu")) if source.stem not in WITHOUT_IMAGES]
    images = [(source, arch) for source in sources for arch in ARCHITECTURES]
    different = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = pool.map(lambda image: compile_image(*image), images)
        for (source, arch), (image, line) in zip(images, compiled):
            file = HERE / f"{source.stem}.{arch}.hsaco.zst"
            if not is_check:
                file.write_bytes(zstd.compress(image, level=19))
            elif not file.exists() or zstd.decompress(file.read_bytes()) != image:
                different.append(file.name)
            print(f"{arch:16} {source.stem:9} {line}, {len(image):7} bytes", flush=True)
    if different:
        sys.exit(f"compile.py: not what the sources compile to: {', '.join(different)}: run make kernels-hip, and check them in")


if __name__ == "__main__":
    if sys.argv[1:] not in (["write"], ["check"]):
        sys.exit(__doc__)
    main(sys.argv[1] == "check")
