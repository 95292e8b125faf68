"""Measures peers at voxel grids: occupancy as a dense grid and as bits, and sparse voxels with count and mean.

A point outside the grid goes to a cell past its end. So nothing waits for the device, and everything except `unique` can be
captured in a graph. Grids are made in two ways. A new grid is zeroed in each call. A kept grid stays from call to call, and
only the cells that the last call set are cleared.
"""

import functools

import numpy as np
import torch
import triton
import triton.language as tl

from .scene import sweep
from .timing import Peer, Rows, sets_for

EXTENT_M = 51.2
# Shapes of a call: number of clouds, beams and columns of each cloud, cells along an axis
SINGLE = (1, 128, 1024, 256)
BATCHES = [(8, 32, 128, 64), (32, 64, 256, 128), (64, 64, 1024, 256)]
CLOUDS = 8


def cells_of(points: torch.Tensor, side: int) -> torch.Tensor:
    """Returns the index of the cell of each point, for B clouds [B, N, 3] and their B grids of `side`^3 cells, one after the other.
    A point outside gets the index past the last cell of all grids."""
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


def dense_kept(points: torch.Tensor, side: int, grid: torch.Tensor, touched: torch.Tensor) -> torch.Tensor:
    """Updates a grid that is kept from call to call: clears the cells in `touched`, sets the cells of the points, and stores these
    cells in `touched`."""
    cell = cells_of(points, side).flatten()
    grid[touched] = 0.0
    grid[cell] = 1.0
    touched.copy_(cell)
    return grid[: points.shape[0] * side**3]


def bits(points: torch.Tensor, side: int) -> torch.Tensor:
    cells = points.shape[0] * side**3
    grid = torch.zeros(cells + 8, device=points.device, dtype=torch.uint8)
    grid = grid.scatter_(0, cells_of(points, side).flatten().long(), 1)[:cells]
    # Gathers eight bytes of 0 or 1 into the highest byte by one product
    return (grid.view(torch.int64) * 0x0102040810204080 >> 56).to(torch.uint8)


def coo_sorted(points: torch.Tensor, side: int):
    """Makes sparse voxels by a sort. The result has as many rows as points; rows past the last voxel have no points."""
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


BLOCKS = [(128, 4), (256, 2), (256, 4), (512, 4), (512, 8), (1024, 8)]


def autotuned(key: list[str]):
    """Makes a decorator that finds the block size and number of warps of a Triton kernel by trial launches, anew for each value of
    the arguments `key`. The trial launches write to the memory of the call."""
    configs = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in BLOCKS]
    return triton.autotune(configs, key, do_bench=functools.partial(triton.testing.do_bench, warmup=5, rep=20))


@autotuned(["count", "SIDE", "BITS", "KEPT"])
@triton.jit
def set_kernel(
    points,
    grid,
    touched,
    count,
    low,
    scale,
    SIDE: tl.constexpr,
    BITS: tl.constexpr,
    KEPT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    cloud = tl.program_id(1).to(tl.int64)
    place = cloud * count + at
    points += place * 3
    x = tl.floor((tl.load(points, mask=there, other=1e9) - low) * scale)
    y = tl.floor((tl.load(points + 1, mask=there, other=1e9) - low) * scale)
    z = tl.floor((tl.load(points + 2, mask=there, other=1e9) - low) * scale)
    inside = there & (x >= 0) & (x < SIDE) & (y >= 0) & (y < SIDE) & (z >= 0) & (z < SIDE)
    cell = (x.to(tl.int32) * SIDE + y.to(tl.int32)) * SIDE + z.to(tl.int32)
    whole = cloud * (SIDE * SIDE * SIDE) + cell
    if BITS:
        one = (tl.full([BLOCK], 1, tl.int32) << (cell & 31)).to(tl.int32)
        tl.atomic_or(grid + (whole >> 5), one, mask=inside, sem="relaxed")
    else:
        tl.store(grid + whole, 1.0, mask=inside)
    if KEPT:
        tl.store(touched + place, tl.where(inside, cell, -1), mask=there)


@autotuned(["count", "SIDE", "BITS"])
@triton.jit
def clear_kernel(grid, touched, count, SIDE: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cloud = tl.program_id(1).to(tl.int64)
    cell = tl.load(touched + cloud * count + at, mask=at < count, other=-1)
    whole = cloud * (SIDE * SIDE * SIDE) + cell
    if BITS:
        tl.store(grid + (whole >> 5), tl.zeros([BLOCK], tl.int32), mask=cell >= 0)
    else:
        tl.store(grid + whole, 0.0, mask=cell >= 0)


def new_grid(batch: int, side: int, packed: bool) -> torch.Tensor:
    cells = batch * side**3
    if packed:
        return torch.zeros(cells // 32, device="cuda", dtype=torch.int32)
    return torch.zeros(cells, device="cuda")


def set_triton(points, side, grid, touched=None) -> torch.Tensor:
    batch, count, _ = points.shape
    packed = grid.dtype == torch.int32
    set_kernel[lambda meta: (triton.cdiv(count, meta["BLOCK"]), batch)](
        points,
        grid,
        grid if touched is None else touched,
        count,
        -EXTENT_M / 2,
        side / EXTENT_M,
        SIDE=side,
        BITS=packed,
        KEPT=touched is not None,
    )
    return grid.view(torch.uint8) if packed else grid


def kept_triton(points, side, grid, touched) -> torch.Tensor:
    """Updates grids that are kept from call to call, as `dense_kept` does, by Triton. Grids of bits are cleared by 32-bit words."""
    batch, count, _ = points.shape
    packed = grid.dtype == torch.int32
    clear_kernel[lambda meta: (triton.cdiv(count, meta["BLOCK"]), batch)](grid, touched, count, SIDE=side, BITS=packed)
    return set_triton(points, side, grid, touched)


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
    """Computes the occupied cells of the first cloud, their counts and means, by NumPy, with the cells in float32."""
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
    actual = torch.nonzero(out[: side**3]).flatten().cpu().numpy()
    np.testing.assert_array_equal(actual, expected_cells(points, side)[0])
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
    """Makes the clouds of CLOUDS calls: sweeps of the room or, if `uniform`, points anywhere in the grid."""
    if uniform:
        random = torch.Generator("cuda").manual_seed(0)
        shape = (CLOUDS, beams * columns, 3)
        made = list((torch.rand(shape, generator=random, device="cuda") - 0.5) * EXTENT_M)
    else:
        made = [torch.from_numpy(sweep(step, beams, columns)).cuda() for step in range(CLOUDS)]
    return [torch.stack([made[(first + one) % CLOUDS] for one in range(batch)]) for first in range(CLOUDS)]


def sectors(points: torch.Tensor, side: int) -> int:
    """Counts the 32-byte sectors of dense grids that have a point."""
    cell = cells_of(points, side).flatten()
    return len(torch.unique(cell[cell < points.shape[0] * side**3] // 8))


def measure(rows: Rows, shapes: list[tuple[int, int, int, int]], uniform: bool = False) -> None:
    for batch, beams, columns, side in shapes:
        made = clouds(batch, beams, columns, uniform)
        what = f"{batch} x {beams * columns}" if batch > 1 else f"room, {beams * columns}"
        what += " uniform" if uniform else ""
        for layout in ["dense", "bits"] + ["coo"] * (batch == 1):
            config = f"{what} points, {side}x{side}x{side}, {layout}"
            if layout == "coo":
                sparse(rows, config, made, side)
            else:
                # Without a graph the times are those of Python, for any points.
                grids(rows, config, made, side, layout == "bits", uncaptured=not uniform)
            torch.cuda.empty_cache()


def grids(rows: Rows, config: str, made: list[torch.Tensor], side: int, packed: bool, uncaptured: bool) -> None:
    """Measures grids that each call makes anew, and grids that are kept from call to call: float32 or, if `packed`, bits. Peers run
    by single launches, too, if `uncaptured`."""
    batch, count, _ = made[0].shape
    points_bytes, cells = made[0].numel() * 4, batch * side**3
    verify = check_bits if packed else check_dense

    def check(out, inputs):
        verify(out, *inputs[:2])

    touched = points_bytes + (cells // 8 if packed else cells * 4)
    sets = [(made[place % CLOUDS].clone(), side) for place in range(sets_for(touched))]
    peer = Peer(rows, "voxelize", config, sets, check, touched)
    peer.torch(bits if packed else dense, uncaptured=uncaptured)
    anew = lambda points, side: set_triton(points, side, new_grid(batch, side, packed))  # noqa: E731
    peer.measure("triton", anew, uncaptured=uncaptured)
    if batch == 1:
        peer.measure("cupy", bits_cupy if packed else dense_cupy, graph=False)
    del sets, peer
    torch.cuda.empty_cache()

    # A kept dense grid touches the sectors that are set, and the sectors of the last call, which are cleared. Grids of bits are
    # so small that all of them is counted.
    touched = points_bytes + (cells // 8 if packed else 64 * sectors(made[0], side))
    count_of = sets_for(touched)
    both = [made[place % CLOUDS].clone() for place in range(count_of + 1)]

    def pairs(grid, nothing):
        """Makes sets of inputs in which each grid occurs twice, the second time with other points, so that a call has to clear
        cells."""
        kept = [(grid(), nothing()) for _ in range(count_of)]
        return [(both[place + turn], side, *kept[place]) for turn in (0, 1) for place in range(count_of)]

    if not packed:
        sets = pairs(
            lambda: torch.zeros(cells + 1, device="cuda"),
            lambda: torch.full((batch * count,), cells, device="cuda", dtype=torch.int32),
        )
        peer = Peer(rows, "voxelize", config, sets, check, touched, are_pairs=True)
        peer.torch(dense_kept, ", kept", uncaptured=uncaptured)
        del sets, peer
        torch.cuda.empty_cache()
    sets = pairs(
        lambda: new_grid(batch, side, packed),
        lambda: torch.full((batch, count), -1, device="cuda", dtype=torch.int32),
    )
    peer = Peer(rows, "voxelize", config, sets, check, touched, are_pairs=True)
    peer.measure("triton, kept", kept_triton, uncaptured=uncaptured)


def sparse(rows: Rows, config: str, made: list[torch.Tensor], side: int) -> None:
    touched = made[0].numel() * 4 + len(expected_cells(made[0], side)[0]) * (3 * 4 + 2 * 4 + 3 * 4)
    sets = [(made[place % CLOUDS].clone(), side) for place in range(sets_for(touched))]

    def check(out, inputs):
        check_coo(out, *inputs)

    peer = Peer(rows, "voxelize", config, sets, check, touched)
    peer.torch(coo_sorted, ", sort")
    peer.torch(coo_unique, ", unique", graph=False)
    peer.measure("cupy", coo_cupy, graph=False)
    with_spconv(rows, config, made, side, touched)


# Largest number of points in a voxel of spconv. No voxel of the room has more, so that spconv leaves no point out.
MOST_POINTS = 32


def with_spconv(rows: Rows, config: str, made: list[torch.Tensor], side: int, touched: int) -> None:
    """Measures spconv's GPU hash table, if installed. It waits for the number of voxels, so it can't be captured, and its voxels
    are not sorted."""
    try:
        from spconv.pytorch.utils import PointToVoxel
    except Exception as error:  # noqa: BLE001
        rows.missing("voxelize", config, "spconv", f"not installed: {error}")
        return
    count = made[0].shape[1]
    edge, far = EXTENT_M / side, EXTENT_M / 2
    generator = PointToVoxel([edge] * 3, [-far] * 3 + [far] * 3, 3, count, MOST_POINTS, device=torch.device("cuda"))

    def counted(points):
        return generator(points)

    def with_mean(points):
        voxels, coords, counts = generator(points)
        # Slots without a point hold zeros.
        return voxels.sum(dim=1) / counts[:, None], coords, counts

    def check(out, inputs):
        _, coords, counts = out
        expected = len(expected_cells(inputs[0][None], side)[0])
        # spconv divides by the voxel size, which puts a few points into a neighbouring cell.
        assert abs(len(coords) - expected) <= 1e-3 * expected
        assert int(counts.max()) < MOST_POINTS and int(counts.sum()) <= count

    sets = [(made[place % CLOUDS][0].clone(),) for place in range(sets_for(touched))]
    peer = Peer(rows, "voxelize", config, sets, check, touched)
    peer.measure("spconv, points and count", counted, graph=False)
    peer.measure("spconv, points, count, then mean", with_mean, graph=False)
