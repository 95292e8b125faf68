"""Compares torch's attention with the device's limit, which shows why robocache has no kernel of its own for attention.

    timing.py [FILE.json]       on a machine with a GPU; prints a table, and writes it as JSON

For each shape it gives the median time of `scaled_dot_product_attention` with a mask made of `valid`, in a CUDA graph, and a
floor. The floor is the largest of three times. They are the multiplications at the rate of a large matrix product, the memory
traffic at the rate of a large copy, and an empty kernel in a graph. The rates are measured here.
"""

import json
import statistics
import sys

import torch
import torch.nn.functional as F

# Shapes: name, batch, queries, keys (T rows of M modalities, and one more key), heads, width of a head.
SHAPES = [
    ("a live window, 16 x 3", 1, 16, 49, 4, 32),
    ("a live window, 64 x 8", 1, 64, 513, 8, 64),
    ("a batch of windows, 64 of 16 x 3", 64, 16, 49, 4, 32),
    ("a batch of windows, 64 of 64 x 8", 64, 64, 513, 8, 64),
    ("a batch of long ones, 16 of 512 x 8", 16, 512, 4097, 8, 64),
]
CALLS, PASSES = 20, 50


def median_us(call) -> float:
    """Returns the median time of the function `call`, us. A CUDA graph runs it CALLS times, so that launches do not count."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(PASSES + 1)]
    graph.replay()
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) * 1e3 / CALLS for a, b in zip(marks, marks[1:]))


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("timing.py needs a GPU and a torch that can use it")
    like = {"device": "cuda", "dtype": torch.bfloat16}
    side, wide = torch.randn(8192, 8192, **like), torch.zeros(1 << 28, device="cuda")
    other, one = torch.empty_like(wide), torch.zeros(1, device="cuda")
    flops_per_us = 2 * 8192**3 / median_us(lambda: side @ side)
    bytes_per_us = 8 * wide.numel() / median_us(lambda: torch.neg(wide, out=other))
    empty_us = median_us(lambda: one.add_(1))
    device = torch.cuda.get_device_name()
    print(
        f"{device}, torch {torch.__version__}: {flops_per_us / 1e6:.0f} TFLOP/s, {bytes_per_us / 1e6:.2f} TB/s, "
        f"kernel {empty_us:.1f} us"
    )
    rows = []
    for name, batch, queries, keys, heads, width in SHAPES:
        query = torch.randn(batch, heads, queries, width, **like)
        key, value = (torch.randn(batch, heads, keys, width, **like) for _ in range(2))
        valid = torch.rand(batch, 1, 1, keys, device="cuda") > 0.1
        took = {
            "masked_us": median_us(lambda: F.scaled_dot_product_attention(query, key, value, attn_mask=valid)),
            "unmasked_us": median_us(lambda: F.scaled_dot_product_attention(query, key, value)),
        }
        product_us = 4 * batch * heads * queries * keys * width / flops_per_us
        memory_us = 2 * batch * heads * width * 2 * (queries + keys) / bytes_per_us
        row = {
            "name": name,
            **took,
            "product_us": product_us,
            "memory_us": memory_us,
            "floor_us": max(product_us, memory_us, empty_us),
        }
        rows.append(row)
        print(
            f"{name:<38} masked {took['masked_us']:8.1f} us   without {took['unmasked_us']:8.1f}   "
            f"floor {row['floor_us']:7.1f}",
            flush=True,
        )
    if len(sys.argv) > 1:
        said = {
            "device": device,
            "torch": torch.__version__,
            "flops_per_us": flops_per_us,
            "bytes_per_us": bytes_per_us,
            "kernel_us": empty_us,
            "rows": rows,
        }
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(said, file, indent=1)


if __name__ == "__main__":
    main()
