"""Measures the peers on the GPU: `python benches/peers.py gpu [PART ...]`. Prints one JSON line per row, and progress on stderr.

A row of a peer is printed only if its result was checked.
"""

import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import torch

from . import ablations, ceilings, resample, voxelize
from .timing import Rows

PARTS = {
    "ceilings": ceilings.measure,
    "resample": lambda rows: resample.resample(rows, [torch.bfloat16]),
    "fuse": resample.fuse,
    "voxelize": lambda rows: voxelize.measure(rows, [voxelize.SINGLE]),
    "resample-float32": lambda rows: resample.resample(rows, [torch.float32]),
    "voxelize-batches": lambda rows: voxelize.measure(rows, voxelize.BATCHES),
    "voxelize-uniform": lambda rows: voxelize.measure(rows, voxelize.BATCHES, uniform=True),
    "ablations": ablations.measure,
}
# Part that prints only the row of the machine and the versions with which the rows after it are measured
MACHINE = "machine"


def machine() -> dict:
    """Makes the output row that describes this machine. Output rows after it, up to the next row with another `boot`, were measured
    in one boot of one machine."""
    versions = []
    if shutil.which("nvidia-smi"):
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=False).stdout.split()
        versions += [f"driver {driver[0]}"] if driver else []
    for package in ("torch", "triton", "cupy-cuda13x", "spconv-cu126"):
        try:
            versions.append(f"{package.partition('-')[0]} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "op": MACHINE,
        "config": ", ".join([torch.cuda.get_device_name(), *versions]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "boot": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "l2_bytes": getattr(torch.cuda.get_device_properties(0), "L2_cache_size", None),
        "command": os.environ.get("BENCH_COMMAND", "benches/peers.py gpu"),
    }


def main(parts: list[str]) -> None:
    unknown = set(parts) - {*PARTS, MACHINE}
    if unknown or not torch.cuda.is_available():
        sys.exit(f"no such part: {', '.join(unknown)}; {', '.join(PARTS)}" if unknown else "a CUDA device is needed")
    print(json.dumps(machine()), flush=True)
    if parts == [MACHINE]:
        return
    # CuPy uses the stream on which PyTorch records its events.
    with contextlib.ExitStack() as stack:
        try:
            import cupy

            stack.enter_context(cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream))
        except ImportError:
            print("without CuPy", file=sys.stderr)
        rows = Rows()
        for part in parts or PARTS:
            began = time.perf_counter()
            PARTS[part](rows)
            torch.cuda.empty_cache()
            print(f"{part}: {time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
