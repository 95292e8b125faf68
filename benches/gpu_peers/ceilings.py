"""Measures the ceilings of the machine, with which the other rows are compared: rates of copies and of clearing memory."""

import torch
import triton

from .timing import Rows, time_calls, time_graph

COPIED_BYTES = 512 << 20
GRID_CELLS = 256**3
PINNED_BYTES = [64 << 10, 1_572_864, 16 << 20]


@triton.jit
def empty_kernel(_unused):
    pass


def measure(rows: Rows) -> None:
    def buffers(size, count):
        return [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(count)]

    pairs = list(zip(buffers(COPIED_BYTES, 4), buffers(COPIED_BYTES, 4)))
    size = 2 * COPIED_BYTES
    # The copy is not captured: in a graph the driver copies with another engine, which is slower.
    times = time_calls(lambda a, b: b.copy_(a), pairs)
    row = rows.add("ceiling", "device copy, read and written", "torch", times, size)
    captured = time_graph(lambda a, b: b.copy_(a), pairs)
    rows.add("ceiling", "device copy in a graph, read and written", "torch", captured, size)
    rows.copy_gbps = row["gbps"]
    del pairs

    grids = [(torch.empty(GRID_CELLS, device="cuda"),) for _ in range(8)]
    rows.add("ceiling", "memset 256x256x256 float32", "torch", time_graph(torch.Tensor.zero_, grids), GRID_CELLS * 4)
    small = [(grids[0][0],)] * 1000
    rows.try_add(
        "ceiling", "empty kernel in a graph", "triton", lambda: time_graph(lambda g: empty_kernel[(1,)](g), small), 0
    )
    del grids, small

    for size in PINNED_BYTES:
        count = max(4, (256 << 20) // size) if size < 1 << 20 else 16
        host = [torch.empty(size, dtype=torch.uint8).pin_memory() for _ in range(min(count, 64))]
        device = buffers(size, len(host))
        up = [(a, b) for a, b in zip(device, host)]
        down = [(b, a) for a, b in zip(device, host)]

        def copy(to, source):
            to.copy_(source, non_blocking=True)

        for direction, sets in [("host to device", up), ("device to host", down)]:
            rows.add("ceiling", f"pinned copy {direction}, {size} bytes", "torch", time_graph(copy, sets), size)
    # Each copy is issued and waited for, as in an operation on one message
    host, device = torch.empty(PINNED_BYTES[1], dtype=torch.uint8).pin_memory(), buffers(PINNED_BYTES[1], 1)[0]

    def waited(_):
        device.copy_(host, non_blocking=True)
        torch.cuda.synchronize()

    config = f"pinned copy host to device, {PINNED_BYTES[1]} bytes, issued and waited for"
    rows.add("ceiling", config, "torch", time_calls(waited, [(0,)] * 16), PINNED_BYTES[1], scope="host")
