"""One JSON line per row: `python benches/peers.py gpu [PART ...]`, in order; progress on stderr."""

import contextlib
import sys
import time

import torch

from . import ceilings, resample, voxelize
from .timing import Rows

PARTS = {
    "ceilings": ceilings.measure,
    "resample": lambda rows: resample.resample(rows, [torch.bfloat16]),
    "fuse": resample.fuse,
    "voxelize": lambda rows: voxelize.measure(rows, [voxelize.SINGLE]),
    "voxelize-batches": lambda rows: voxelize.measure(rows, voxelize.BATCHES),
    "voxelize-uniform": lambda rows: voxelize.measure(rows, voxelize.BATCHES, uniform=True),
    "resample-float32": lambda rows: resample.resample(rows, [torch.float32]),
}


def main(parts: list[str]) -> None:
    unknown = set(parts) - set(PARTS)
    if unknown or not torch.cuda.is_available():
        sys.exit(f"no such part: {', '.join(unknown)}; {', '.join(PARTS)}" if unknown else "a CUDA device is needed")
    # CuPy works on the stream that PyTorch's events are on.
    with contextlib.ExitStack() as stack:
        try:
            import cupy

            stack.enter_context(cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream))
        except ImportError:
            print("without CuPy", file=sys.stderr)
        versions = f"torch {torch.__version__}, {torch.cuda.get_device_name()}"
        print(versions, file=sys.stderr)
        rows = Rows()
        for part in parts or PARTS:
            began = time.perf_counter()
            PARTS[part](rows)
            torch.cuda.empty_cache()
            print(f"{part}: {time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
