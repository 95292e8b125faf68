"""Measures peers at linear interpolation of a batch, as `resample` does it, and of three batches side by side, as `fuse` does it.

Times are int64 nanoseconds since 1970. The weight is computed in float64, the value in float32. Peers don't compute validity,
which saves them a little time.
"""

import functools

import numpy as np
import torch
import triton
import triton.language as tl

from .timing import SETS, Peer, Rows, sets_for

SHAPES = [
    (32, 50, 32, 16),
    (64, 4096, 1024, 32),
    (16, 4096, 1024, 32),
    (256, 512, 256, 256),
    (1024, 512, 512, 128),
]
FUSED = (32, 256, [(150, 128), (1000, 32), (5000, 16)])
EPOCH_NS = 1_700_000_000_000_000_000
SPAN_NS = 5_000_000_000


def stamps(rows: int, samples: int, seed: int) -> torch.Tensor:
    """Makes random stamps [rows, samples] of a fixed rate over SPAN_NS, each up to half a period late."""
    random = torch.Generator("cuda").manual_seed(seed)
    period = SPAN_NS // samples
    late = torch.randint(0, period // 2, (rows, samples), generator=random, device="cuda")
    return EPOCH_NS + torch.arange(samples, device="cuda") * period + late


def sorted_targets(rows: int, targets: int, first: torch.Tensor, last: torch.Tensor, seed: int) -> torch.Tensor:
    """Makes random targets [rows, targets] from `first` to `last`, which are [rows], in ascending order."""
    random = torch.Generator("cuda").manual_seed(seed)
    part = torch.rand((rows, targets), generator=random, device="cuda", dtype=torch.float64)
    return (first[:, None] + (part * (last - first)[:, None]).long()).sort(dim=1).values


def uniform(shape: tuple, dtype: torch.dtype, seed: int) -> torch.Tensor:
    random = torch.Generator("cuda").manual_seed(seed)
    return (torch.rand(shape, generator=random, device="cuda") * 2 - 1).to(dtype)


def bracket(times: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    right = torch.searchsorted(times, targets, right=True).clamp(1, times.shape[1] - 1)
    return right - 1, right


def linear(times: torch.Tensor, values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Interpolates by PyTorch: times [B, S] int64, values [B, S, D] and targets [B, T] int64 give [B, T, D]."""
    left, right = bracket(times, targets)
    before, after = times.gather(1, left), times.gather(1, right)
    weight = ((targets - before).double() / (after - before).double()).float().unsqueeze(-1)
    row = torch.arange(times.shape[0], device=times.device).unsqueeze(1)
    a, b = values[row, left].float(), values[row, right].float()
    return torch.lerp(a, b, weight).to(values.dtype)


def fused(targets: torch.Tensor, *streams: torch.Tensor) -> torch.Tensor:
    pairs = zip(streams[::2], streams[1::2])
    return torch.cat([linear(times, values, targets) for times, values in pairs], dim=-1)


@triton.autotune(
    configs=[triton.Config({"TILE": tile}, num_warps=warps) for tile in (8, 16, 32, 64) for warps in (2, 4)],
    key=["samples", "count", "DIM"],
)
@triton.jit
def linear_kernel(
    times, values, targets, out, samples, count, stride, DIM: tl.constexpr, STEPS: tl.constexpr, TILE: tl.constexpr
):
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < count
    target = tl.load(targets + row * count + at, mask=inside, other=0)
    times += row * samples
    low = tl.zeros([TILE], tl.int32)
    high = low + samples
    for _ in range(STEPS):
        middle = (low + high) // 2
        open_ = low < high
        stamp = tl.load(times + middle, mask=open_, other=0)
        low = tl.where(open_ & (stamp <= target), middle + 1, low)
        high = tl.where(open_ & (stamp > target), middle, high)
    right = tl.minimum(tl.maximum(low, 1), samples - 1)
    before, after = tl.load(times + right - 1), tl.load(times + right)
    weight = ((target - before).to(tl.float64) / (after - before).to(tl.float64)).to(tl.float32)
    column = tl.arange(0, DIM)
    place = (row * samples + right - 1)[:, None] * DIM + column[None, :]
    a = tl.load(values + place, mask=inside[:, None], other=0.0).to(tl.float32)
    b = tl.load(values + place + DIM, mask=inside[:, None], other=0.0).to(tl.float32)
    value = a + weight[:, None] * (b - a)
    tl.store(out + (row * count + at)[:, None] * stride + column[None, :], value, mask=inside[:, None])


def linear_triton(times, values, targets, out=None):
    rows, samples = times.shape
    count, dim = targets.shape[1], values.shape[2]
    if out is None:
        out = torch.empty((rows, count, dim), dtype=values.dtype, device=values.device)
    grid = lambda meta: (triton.cdiv(count, meta["TILE"]), rows)  # noqa: E731
    linear_kernel[grid](
        times, values, targets, out, samples, count, out.stride(1), DIM=dim, STEPS=samples.bit_length()
    )
    return out


def fused_triton(targets, *streams):
    rows, count = targets.shape
    width = sum(values.shape[2] for values in streams[1::2])
    out = torch.empty((rows, count, width), dtype=streams[1].dtype, device=targets.device)
    column = 0
    for times, values in zip(streams[::2], streams[1::2]):
        linear_triton(times, values, targets, out[..., column:])
        column += values.shape[2]
    return out


def linear_cupy(times, values, targets):
    """Interpolates by CuPy. Its search takes one sorted array, so each row's times are shifted past the end of the row before."""
    import cupy

    times, values, targets = (cupy.from_dlpack(array) for array in (times, values, targets))
    rows, samples = times.shape
    after_another = cupy.arange(rows, dtype=cupy.int64)[:, None] * (4 * SPAN_NS) - EPOCH_NS
    found = cupy.searchsorted((times + after_another).ravel(), (targets + after_another).ravel(), side="right")
    first = cupy.arange(rows)[:, None] * samples
    right = cupy.clip(found.reshape(targets.shape), first + 1, first + samples - 1)
    times, values = times.ravel(), values.reshape(rows * samples, -1)
    before, after = times[right - 1], times[right]
    weight = ((targets - before) / (after - before)).astype(cupy.float32)[..., None]
    a, b = values[right - 1], values[right]
    return torch.from_dlpack(a + weight * (b - a))


def touched_bytes(times, values, targets) -> int:
    """Returns the number of bytes that a call must read or write: samples that a target needs, with stamps, and all targets,
    resampled values and masks."""
    left, right = bracket(times, targets)
    needed = torch.zeros(times.shape, dtype=torch.bool, device=times.device)
    needed.scatter_(1, left, True).scatter_(1, right, True)
    rows, dim, size = int(needed.sum()), values.shape[2], values.element_size()
    return rows * (dim * size + 8) + targets.numel() * (8 + dim * size + 1)


def check_linear(out, times, values, targets) -> None:
    """Raises an error unless the first and the last trajectory of `out` are those of NumPy in float64, within the rounding of the
    type."""
    assert out.shape == (*targets.shape, values.shape[2]) and out.dtype == values.dtype
    for row in (0, times.shape[0] - 1):
        x, at = ((array[row] - EPOCH_NS).cpu().numpy().astype(np.float64) for array in (times, targets))
        for column in (0, values.shape[2] - 1):
            y = values[row, :, column].double().cpu().numpy()
            expected, actual = np.interp(at, x, y), out[row, :, column].double().cpu().numpy()
            tolerance = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2e-6}[values.dtype]
            np.testing.assert_allclose(actual, expected, atol=tolerance, rtol=tolerance)


def resample(rows: Rows, dtypes: list[torch.dtype], shapes=SHAPES) -> None:
    for dtype in dtypes:
        for shape in shapes:
            resample_shape(rows, dtype, *shape)
            torch.cuda.empty_cache()


def resample_shape(rows: Rows, dtype: torch.dtype, batch: int, samples: int, count: int, dim: int) -> None:
    def one(seed):
        times = stamps(batch, samples, seed)
        targets = sorted_targets(batch, count, times[:, 0], times[:, -1], seed + 1)
        return times, uniform((batch, samples, dim), dtype, seed + 2), targets

    first = one(0)
    touched = touched_bytes(*first)
    sets = [first] + [one(3 * seed) for seed in range(1, sets_for(touched))]
    config = f"{batch}x{samples}->{count}x{dim} {str(dtype).removeprefix('torch.')}"

    def check(out, inputs):
        check_linear(out, *inputs)

    def measure(config, sets):
        peer = Peer(rows, "resample", config, sets, check, touched)
        peer.torch(linear)
        peer.measure("triton", linear_triton)
        return peer

    peer = measure(config, sets)
    if (batch, samples, count, dim) == SHAPES[0] and dtype is torch.bfloat16:
        measure(f"{config}, in L2", sets[: SETS[0]])
    if dtype is torch.float32:
        peer.measure("cupy", linear_cupy, graph=False)


def fuse(rows: Rows) -> None:
    batch, count, streams = FUSED

    def one(seed):
        times = [stamps(batch, samples, seed + samples) for samples, _ in streams]
        first = functools.reduce(torch.maximum, [stamp[:, 0] for stamp in times])
        last = functools.reduce(torch.minimum, [stamp[:, -1] for stamp in times])
        targets = sorted_targets(batch, count, first, last, seed + 1)
        values = [
            uniform((batch, samples, dim), torch.bfloat16, seed + place) for place, (samples, dim) in enumerate(streams)
        ]
        return targets, *(array for pair in zip(times, values) for array in pair)

    first = one(0)
    pairs = list(zip(first[1::2], first[2::2]))
    # Targets are read once; each modality has its own validity and age.
    touched = sum(touched_bytes(times, values, first[0]) + batch * count * 8 for times, values in pairs)
    touched -= (len(pairs) - 1) * batch * count * 8
    sets = [first] + [one(7 * seed) for seed in range(1, sets_for(touched))]

    def check(out, inputs):
        column = 0
        for times, values in zip(inputs[1::2], inputs[2::2]):
            dim = values.shape[2]
            check_linear(out[..., column : column + dim], times, values, inputs[0])
            column += dim

    columns = "+".join(str(dim) for _, dim in streams)
    config = f"{batch}x{count} of {columns} from {'/'.join(str(s) for s, _ in streams)} bfloat16"
    peer = Peer(rows, "fuse", config, sets, check, touched)
    peer.torch(fused)
    peer.measure("triton", fused_triton)
