"""Occupancy as a dense grid and as bits, and sparse voxels with count and mean: what `voxelize` does.

A point outside the grid goes to a cell past its end, so that nothing waits for the device and all but `unique` can be
captured in a graph.
"""

import numpy as np
import torch
import triton
import triton.language as tl

from .scene import sweep
from .timing import Rows, kernel_rows, sets_for, torch_rows

EXTENT_M = 51.2
# Clouds a call, beams and columns of one, cells along an axis
SINGLE = (1, 128, 1024, 256)
BATCHES = [(8, 32, 128, 64), (32, 64, 256, 128), (64, 64, 1024, 256)]
CLOUDS = 8


def cells_of(points: torch.Tensor, side: int) -> torch.Tensor:
    """[B, N, 3] to the cell of each point in B grids one after the other, or the one past the end of them all."""
    batch = points.shape[0]
    index = torch.floor((points + EXTENT_M / 2) * (side / EXTENT_M)).int()
    inside = ((index >= 0) & (index < side)).all(dim=-1)
    grid = torch.arange(batch, device=points.device, dtype=torch.int32)[:, None]
    x, y, z = index.unbind(dim=-1)
    return torch.where(inside, ((grid * side + x) * side + y) * side + z, batch * side**3)


def dense(points: torch.Tensor, side: int) -> torch.Tensor:
    cells = points.shape[0] * side**3
    grid = torch.zeros(cells + 1, device=points.device)
    return grid.scatter_(0, cells_of(points, side).flatten().long(), 1.0)[:cells]


def bits(points: torch.Tensor, side: int) -> torch.Tensor:
    cells = points.shape[0] * side**3
    grid = torch.zeros(cells + 8, device=points.device, dtype=torch.uint8)
    grid = grid.scatter_(0, cells_of(points, side).flatten().long(), 1)[:cells]
    # Eight bytes of 0 or 1, gathered into the highest byte by one product
    return (grid.view(torch.int64) * 0x0102040810204080 >> 56).to(torch.uint8)


def coo_sorted(points: torch.Tensor, side: int):
    """Room for as many voxels as points; those past the last voxel have no points."""
    points = points[0]
    cell, order = torch.sort(cells_of(points[None], side)[0])
    starts = torch.ones_like(cell)
    starts[1:] = cell[1:] != cell[:-1]
    voxel = torch.cumsum(starts, 0) - 1
    one = torch.ones(len(points), device=points.device)
    count = torch.zeros_like(one).index_add_(0, voxel, one)
    mean = torch.zeros_like(points).index_add_(0, voxel, points[order]) / count[:, None]
    occupied = torch.full_like(cell, side**3).scatter_(0, voxel, cell)
    return coordinates(occupied, side), count, mean


def coo_unique(points: torch.Tensor, side: int):
    points = points[0]
    occupied, voxel, count = torch.unique(cells_of(points[None], side)[0], return_inverse=True, return_counts=True)
    mean = torch.zeros(len(occupied), 3, device=points.device).index_add_(0, voxel, points) / count[:, None]
    return coordinates(occupied, side), count, mean


def coordinates(cell: torch.Tensor, side: int) -> torch.Tensor:
    return torch.stack([cell // (side * side), cell // side % side, cell % side], dim=1)


@triton.jit
def scatter_kernel(
    points, grid, count, low, scale, SIDE: tl.constexpr, CELLS: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    cloud = tl.program_id(1).to(tl.int64)
    points += (cloud * count + at) * 3
    x = tl.floor((tl.load(points, mask=there, other=1e9) - low) * scale)
    y = tl.floor((tl.load(points + 1, mask=there, other=1e9) - low) * scale)
    z = tl.floor((tl.load(points + 2, mask=there, other=1e9) - low) * scale)
    inside = there & (x >= 0) & (x < SIDE) & (y >= 0) & (y < SIDE) & (z >= 0) & (z < SIDE)
    cell = cloud * CELLS + (x.to(tl.int64) * SIDE + y.to(tl.int64)) * SIDE + z.to(tl.int64)
    if BITS:
        one = (tl.full([BLOCK], 1, tl.int32) << (cell & 31).to(tl.int32)).to(tl.int32)
        tl.atomic_or(grid + (cell >> 5), one, mask=inside, sem="relaxed")
    else:
        tl.store(grid + cell, 1.0, mask=inside)


def scatter_triton(points: torch.Tensor, side: int, packed: bool) -> torch.Tensor:
    batch, count, _ = points.shape
    cells = batch * side**3
    if packed:
        grid = torch.zeros(cells // 32, device=points.device, dtype=torch.int32)
    else:
        grid = torch.zeros(cells, device=points.device)
    scatter_kernel[(triton.cdiv(count, 256), batch)](
        points, grid, count, -EXTENT_M / 2, side / EXTENT_M, SIDE=side, CELLS=side**3, BITS=packed, BLOCK=256
    )
    return grid.view(torch.uint8) if packed else grid


def cells_cupy(points, side: int):
    import cupy

    points = cupy.from_dlpack(points)
    index = cupy.floor((points + np.float32(EXTENT_M / 2)) * np.float32(side / EXTENT_M)).astype(cupy.int32)
    inside = ((index >= 0) & (index < side)).all(axis=-1)
    grid = cupy.arange(len(points), dtype=cupy.int32)[:, None]
    x, y, z = index[..., 0], index[..., 1], index[..., 2]
    return points, cupy.where(inside, ((grid * side + x) * side + y) * side + z, len(points) * side**3)


def dense_cupy(points, side: int):
    import cupy

    points, cell = cells_cupy(points, side)
    cells = len(points) * side**3
    grid = cupy.zeros(cells + 1, cupy.float32)
    grid[cell.ravel()] = 1
    return torch.from_dlpack(grid[:cells])


def bits_cupy(points, side: int):
    import cupy

    points, cell = cells_cupy(points, side)
    cells = len(points) * side**3
    grid = cupy.zeros(cells + 1, cupy.uint8)
    grid[cell.ravel()] = 1
    return torch.from_dlpack(cupy.packbits(grid[:cells], bitorder="little"))


def coo_cupy(points, side: int):
    import cupy

    points, cell = cells_cupy(points, side)
    occupied, voxel, count = cupy.unique(cell[0], return_inverse=True, return_counts=True)
    sums = [cupy.bincount(voxel, weights=points[0, :, axis], minlength=len(count)) for axis in range(3)]
    mean = (cupy.stack(sums, axis=1) / count[:, None]).astype(cupy.float32)
    coords = cupy.stack([occupied // (side * side), occupied // side % side, occupied % side], axis=1)
    return tuple(map(torch.from_dlpack, (coords, count, mean)))


def expected_cells(points: torch.Tensor, side: int):
    """With NumPy, in float32 as here: the occupied cells of the first cloud, their counts and means."""
    points = points[0].cpu().numpy()
    index = np.floor((points + np.float32(EXTENT_M / 2)) * np.float32(side / EXTENT_M)).astype(np.int64)
    inside = ((index >= 0) & (index < side)).all(axis=1)
    index, points = index[inside], points[inside].astype(np.float64)
    cell = (index[:, 0] * side + index[:, 1]) * side + index[:, 2]
    occupied, voxel, count = np.unique(cell, return_inverse=True, return_counts=True)
    sums = [np.bincount(voxel, weights=points[:, axis]) for axis in range(3)]
    return occupied, count, np.stack(sums, axis=1) / count[:, None]


def check_dense(out, points, side) -> None:
    assert out.numel() == points.shape[0] * side**3
    came = torch.nonzero(out[: side**3]).flatten().cpu().numpy()
    np.testing.assert_array_equal(came, expected_cells(points, side)[0])
    assert float(out.max()) == 1


def check_bits(out, points, side) -> None:
    assert out.numel() == points.shape[0] * side**3 // 8
    grid = np.unpackbits(out[: side**3 // 8].cpu().numpy(), bitorder="little")
    np.testing.assert_array_equal(np.flatnonzero(grid), expected_cells(points, side)[0])


def check_coo(out, points, side) -> None:
    coords, count, mean = (part.cpu().numpy() for part in out)
    occupied, counts, means = expected_cells(points, side)
    index = (coords[:, 0] * side + coords[:, 1]) * side + coords[:, 2]
    voxels = len(occupied)
    assert len(index) >= voxels and (index[voxels:] >= side**3).all()
    np.testing.assert_array_equal(index[:voxels], occupied)
    np.testing.assert_array_equal(count[:voxels], counts)
    np.testing.assert_allclose(mean[:voxels], means, atol=1e-4)


def clouds(batch: int, beams: int, columns: int, uniform: bool) -> list[torch.Tensor]:
    """CLOUDS calls' worth of clouds: of the room, or of points anywhere in the grid."""
    if uniform:
        random = torch.Generator("cuda").manual_seed(0)
        shape = (CLOUDS, beams * columns, 3)
        made = list((torch.rand(shape, generator=random, device="cuda") - 0.5) * EXTENT_M)
    else:
        made = [torch.from_numpy(sweep(step, beams, columns)).cuda() for step in range(CLOUDS)]
    return [torch.stack([made[(first + one) % CLOUDS] for one in range(batch)]) for first in range(CLOUDS)]


def measure(rows: Rows, shapes: list[tuple[int, int, int, int]], uniform: bool = False) -> None:
    for batch, beams, columns, side in shapes:
        made = clouds(batch, beams, columns, uniform)
        what = f"{batch} x {beams * columns}" if batch > 1 else f"room, {beams * columns}"
        what += " uniform" if uniform else ""
        for layout, out_bytes in [("dense", batch * side**3 * 4), ("bits", batch * side**3 // 8), ("coo", None)]:
            if layout == "coo" and batch > 1:
                continue
            points_bytes = made[0].numel() * 4
            if layout == "coo":
                out_bytes = len(expected_cells(made[0], side)[0]) * (3 * 4 + 2 * 4 + 3 * 4)
            count = sets_for(points_bytes + out_bytes)
            sets = [(made[place % CLOUDS].clone(), side) for place in range(count)]
            config = f"{what} points, {side}x{side}x{side}, {layout}"
            one_layout(rows, config, layout, sets, points_bytes + out_bytes)
            torch.cuda.empty_cache()


def one_layout(rows: Rows, config: str, layout: str, sets: list[tuple], size: int) -> None:
    def check(out, inputs):
        {"dense": check_dense, "bits": check_bits, "coo": check_coo}[layout](out, *inputs)

    if layout == "coo":
        torch_rows(rows, "voxelize", config, coo_sorted, sets, check, size, name=", sort")
        torch_rows(rows, "voxelize", config, coo_unique, sets, check, size, graph=False, name=", unique")
        kernel_rows(rows, "voxelize", config, "cupy", coo_cupy, sets, check, size, graph=False)
        return
    work = {"dense": dense, "bits": bits}[layout]
    torch_rows(rows, "voxelize", config, work, sets, check, size)

    def with_triton(points, side):
        return scatter_triton(points, side, layout == "bits")

    kernel_rows(rows, "voxelize", config, "triton", with_triton, sets, check, size)
    with_cupy = {"dense": dense_cupy, "bits": bits_cupy}[layout]
    kernel_rows(rows, "voxelize", config, "cupy", with_cupy, sets, check, size, graph=False)
