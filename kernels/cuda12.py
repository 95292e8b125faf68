"""Makes the kernels for drivers of CUDA 12: `cuda12.py compile FILE.cu FILE.ptx`, `cuda12.py check FILE.cuda12.fatbin...`

Such drivers load neither machine code nor PTX of CUDA 13. The PTX that nvcc writes for compute capability 7.5 declares a
newer version, but needs only PTX 8.0. So `compile` lowers the version. `check` has the linker of CUDA 12.0 compile the
result for each device, as a driver of its time does.

NVRTC 12.0 writes PTX 8.0 by itself, but not what the sources say. On an H200 its kernel of fuse took valid values for
invalid ones, even without optimization.
"""

import concurrent.futures
import ctypes
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NVCC = ROOT / "target/nvcc/nvidia/cu13/bin/nvcc"
LINKER = ROOT / "target/nvcc/nvidia/nvjitlink/lib/libnvJitLink.so.12"
FATBIN = 4


def strings(texts: list[str]) -> ctypes.Array:
    return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])


def read(size_of, contents_of, handle) -> bytes:
    """Reads the contents of a handle of the linker, such as its log."""
    size = ctypes.c_size_t()
    size_of(handle, ctypes.byref(size))
    contents = ctypes.create_string_buffer(max(size.value, 1))
    contents_of(handle, contents)
    return contents.value


def compile_ptx(source: pathlib.Path, to: pathlib.Path) -> None:
    """Writes the PTX of a kernel file. Leaves out the options of nvcc.options that are about images."""
    options = (ROOT / "kernels/nvcc.options").read_text().split("\n")
    options = [word for line in options if not line.startswith(("-fatbin", "--compress", "-gencode")) for word in line.split()]
    subprocess.run([NVCC, *options, "-ptx", "-arch=compute_75", "-o", to, source], check=True)
    lines = to.read_text().splitlines(keepends=True)
    # This hint is newer than PTX 8.0, and older compilers warn about it.
    lines = [line for line in lines if '.pragma "used_bytes_mask' not in line]
    versions = [i for i, line in enumerate(lines) if line.startswith(".version")]
    if len(versions) != 1:
        sys.exit(f"cuda12.py: {to}: one line with a version was expected, there are {len(versions)}")
    lines[versions[0]] = ".version 8.0\n"
    to.write_text("".join(lines))


def link(image: bytes, capability: str) -> str:
    """Compiles a fat binary for a device of that compute capability. Returns the error; an empty text if there is none."""
    linker = ctypes.CDLL(LINKER)
    function = lambda name: getattr(linker, f"__nvJitLink{name}_12_0")
    handle = ctypes.c_void_p()
    options = [f"-arch=sm_{capability.replace('.', '')}"]
    failed = function("Create")(ctypes.byref(handle), len(options), strings(options))
    failed = failed or function("AddData")(handle, FATBIN, image, ctypes.c_size_t(len(image)), b"kernels")
    failed = failed or function("Complete")(handle)
    return read(function("GetErrorLogSize"), function("GetErrorLog"), handle).decode() or "refused" if failed else ""


def promised() -> tuple[list[str], list[str]]:
    """Reads the compute capabilities in docs/gpu.md: of machine code for CUDA 13, and of devices for CUDA 12."""
    rows = re.findall(r"^\| CUDA 1[23].*$", (ROOT / "docs/gpu.md").read_text(), re.M)
    if len(rows) != 2:
        sys.exit("cuda12.py: docs/gpu.md has no row for each of CUDA 13 and CUDA 12")
    return tuple(re.findall(r"\b\d+\.\d\b", row.split("|")[2]) for row in rows)


def check(images: list[str]) -> None:
    """Checks that the images and nvcc.options support the devices that docs/gpu.md names."""
    machine_code, capabilities = promised()
    options = (ROOT / "kernels/nvcc.options").read_text()
    made = [f"{code[:-1]}.{code[-1]}" for code in re.findall(r"code=sm_(\d+)", options)]
    if made != machine_code:
        sys.exit(f"cuda12.py: docs/gpu.md names machine code for {machine_code}, nvcc.options makes {made}")
    # In processes of their own: the linker ends its process if it can't read an image.
    with concurrent.futures.ProcessPoolExecutor() as processes:
        checks = [(image, capability) for image in images for capability in capabilities]
        contents = [pathlib.Path(image).read_bytes() for image, _ in checks]
        results = processes.map(link, contents, [capability for _, capability in checks])
        for (image, capability), problem in zip(checks, results):
            if problem:
                sys.exit(f"cuda12.py: CUDA 12.0 does not compile {image} for {capability}:\n{problem}")
    print(f"kernels: CUDA 12.0 compiles {len(images)} files for {', '.join(capabilities)}")


if __name__ == "__main__":
    command, *files = sys.argv[1:]
    if command == "compile":
        compile_ptx(*map(pathlib.Path, files))
    else:
        check(files)
