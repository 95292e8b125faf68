"""Measures variants of the data path of `resample`: bulk copies (TMA), persistent blocks, tensor cores.

Each kernel gets the index of the sample before each target and the weight of the sample after it. The kernel reads the two
samples, blends them, and writes a row. The first kernel works like robocache's; each of the others changes one thing.
"""

import sys

import torch

from .resample import bracket, sorted_targets, stamps, uniform
from .timing import Rows, sets_for, time_graph

SHAPES = [(64, 4096, 1024, 32), (256, 512, 256, 256), (1024, 512, 512, 128)]
TILE = 16
STAGES = 3
THREADS = 128
SOURCE = r"""
#define PARAMETERS \
    const float4 *values, const int *left, const float *weight, float4 *out, int samples, int targets, int tiles
#define WORK Work{values, left, weight, out, samples, targets, tiles}
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

struct Work {
    const float4* values;      // [B, S, D / 4]
    const int* left;           // [B, T], the sample at or before each target
    const float* weight;       // [B, T], of the sample behind
    float4* out;               // [B, T, D / 4]
    int samples, targets, tiles;
};

__device__ __forceinline__ float4 blended(float4 a, float4 b, float w) {
    return make_float4(a.x + w * (b.x - a.x), a.y + w * (b.y - a.y), a.z + w * (b.z - a.z), a.w + w * (b.w - a.w));
}

__device__ __forceinline__ void tile_of(const Work& work, int tile) {
    const size_t first = (size_t)tile * TILE;
    const float4* values = work.values + first / work.targets * work.samples * VECTORS;
#pragma unroll 4
    for (int i = threadIdx.x; i < TILE * VECTORS; i += THREADS) {
        const size_t target = first + i / VECTORS;
        const float4* row = values + (size_t)work.left[target] * VECTORS + i % VECTORS;
        __stcs(&work.out[target * VECTORS + i % VECTORS], blended(__ldg(row), __ldg(row + VECTORS), work.weight[target]));
    }
}

// A block for each tile: the hardware gives it to the multiprocessor that is free.
KERNEL plain(PARAMETERS) { tile_of(WORK, blockIdx.x); }

// As many blocks as are resident, which take one tile after the other.
KERNEL persistent(PARAMETERS) {
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) tile_of(WORK, tile);
}

__device__ __forceinline__ unsigned shared_address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }

__device__ __forceinline__ void bulk_copy(void* to, const void* from, unsigned bytes, unsigned long long* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes),
                 "r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void expect(unsigned long long* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait(unsigned long long* barrier, unsigned phase) {
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(barrier)), "r"(phase) : "memory");
}

// The rows of a tile come by bulk copies, STAGES tiles ahead: one copy of all samples between the first and the last target
// of the tile, or, if those are more than there is room for, one copy of two rows for each target.
template <bool IS_WHOLE> __device__ __forceinline__ void bulk(const Work& work) {
    extern __shared__ __align__(128) float4 rows[];  // [STAGES][2 * TILE][VECTORS]
    __shared__ unsigned long long barriers[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barriers[s])));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    auto is_whole = [&](size_t first) {
        return IS_WHOLE && work.left[first + TILE - 1] + 2 - work.left[first] <= 2 * TILE;
    };
    auto ask = [&](int tile, int stage) {
        const size_t first = (size_t)tile * TILE;
        const float4* values = work.values + first / work.targets * work.samples * VECTORS;
        float4* to = rows + (size_t)stage * 2 * TILE * VECTORS;
        if (is_whole(first)) {
            if (threadIdx.x == 0) {
                const unsigned bytes = (work.left[first + TILE - 1] + 2 - work.left[first]) * VECTORS * 16;
                expect(&barriers[stage], bytes);
                bulk_copy(to, values + (size_t)work.left[first] * VECTORS, bytes, &barriers[stage]);
            }
        } else if (threadIdx.x < 32) {
            if (threadIdx.x == 0) expect(&barriers[stage], TILE * 2 * VECTORS * 16);
            __syncwarp();
            if (threadIdx.x < TILE)
                bulk_copy(to + threadIdx.x * 2 * VECTORS, values + (size_t)work.left[first + threadIdx.x] * VECTORS, 2 * VECTORS * 16, &barriers[stage]);
        }
    };
    for (int s = 0; s < STAGES; s++)
        if (blockIdx.x + s * gridDim.x < work.tiles) ask(blockIdx.x + s * gridDim.x, s);
    int turn = 0;
    for (int tile = blockIdx.x; tile < work.tiles; tile += gridDim.x, turn++) {
        const int stage = turn % STAGES;
        wait(&barriers[stage], turn / STAGES & 1);
        const size_t first = (size_t)tile * TILE;
        const float4* from = rows + (size_t)stage * 2 * TILE * VECTORS;
        const bool whole = is_whole(first);
#pragma unroll 4
        for (int i = threadIdx.x; i < TILE * VECTORS; i += THREADS) {
            const size_t target = first + i / VECTORS;
            const float4* row = from + (whole ? work.left[target] - work.left[first] : i / VECTORS * 2) * VECTORS + i % VECTORS;
            __stcs(&work.out[target * VECTORS + i % VECTORS], blended(row[0], row[VECTORS], work.weight[target]));
        }
        __syncthreads();
        if (tile + STAGES * (int)gridDim.x < work.tiles) ask(tile + STAGES * gridDim.x, stage);
    }
}

KERNEL bulk_rows(PARAMETERS) { bulk<false>(WORK); }
KERNEL bulk_tiles(PARAMETERS) { bulk<true>(WORK); }
"""


def kernels(dim: int):
    import cupy

    source = SOURCE
    for name, value in {"VECTORS": dim // 4, "TILE": TILE, "STAGES": STAGES, "THREADS": THREADS}.items():
        source = f"#define {name} {value}\n" + source
    module = cupy.RawModule(code=source, options=("-std=c++17", "--fmad=false"), backend="nvrtc")
    return {name: module.get_function(name) for name in ("plain", "persistent", "bulk_rows", "bulk_tiles")}


def measure(rows: Rows) -> None:
    for shape in SHAPES:
        measure_shape(rows, *shape)


def measure_shape(rows: Rows, batch: int, samples: int, targets: int, dim: int) -> None:
    import cupy
    import numpy as np

    config = f"{batch}x{samples}->{targets}x{dim} float32, brackets given"
    touched = batch * targets * (dim * 4 + 8) + batch * min(samples, 2 * targets) * dim * 4
    sets = []
    for seed in range(sets_for(touched)):
        times = stamps(batch, samples, seed)
        at = sorted_targets(batch, targets, times[:, 0], times[:, -1], seed)
        left, right = bracket(times, at)
        before, after = times.gather(1, left), times.gather(1, right)
        weight = ((at - before).double() / (after - before).double()).float()
        values = uniform((batch, samples, dim), torch.float32, seed)
        sets.append((values, left.int(), weight, torch.empty((batch, targets, dim), device="cuda")))

    def expected(values, left, weight, _):
        row = torch.arange(batch, device="cuda").unsqueeze(1)
        a, b = values[row, left.long()], values[row, left.long() + 1]
        return a + weight.unsqueeze(-1) * (b - a)

    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    shared = STAGES * 2 * TILE * dim * 4
    tiles = batch * targets // TILE

    def launch(kernel, blocks: int, bytes_shared: int):
        def work(values, left, weight, out):
            pointers = [np.uint64(tensor.data_ptr()) for tensor in (values, left, weight, out)]
            sizes = [np.int32(size) for size in (samples, targets, tiles)]
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                kernel((blocks,), (THREADS,), (*pointers, *sizes), shared_mem=bytes_shared)
            return out

        return work

    def add(name: str, work, tolerance: float = 0.0) -> None:
        def timed():
            off = (work(*sets[0]) - expected(*sets[0])).abs().max().item()
            assert off <= tolerance, f"off by {off}"
            if tolerance:
                print(f"  {name}: off by {off:.1e}", file=sys.stderr)
            return time_graph(work, sets)

        rows.try_add("ablation", config, name, timed, touched)

    made = kernels(dim)
    add("a block a tile", launch(made["plain"], tiles, 0))
    for per in (4, 8, 16):
        add(f"persistent, {per} a multiprocessor", launch(made["persistent"], min(tiles, per * multiprocessors), 0))
    for name, label in [("bulk_rows", "bulk copies of two rows"), ("bulk_tiles", "bulk copies of tiles")]:
        made[name].max_dynamic_shared_size_bytes = shared
        for per in (2, 4, 8):
            if per * shared <= 220 << 10:
                add(f"{label}, {per} a multiprocessor", launch(made[name], min(tiles, per * multiprocessors), shared))

    # For tensor cores, a target is a matrix row with a weight for each sample, two of which are not 0. The matrices are made
    # before the clock starts.
    for dtype, tolerance in [(torch.float32, 4e-3), (torch.bfloat16, 4e-2)]:
        torch.backends.cuda.matmul.allow_tf32 = True
        products = []
        for values, left, weight, _ in sets[:4]:
            matrix = torch.zeros((batch, targets, samples), device="cuda")
            matrix.scatter_(2, left.long().unsqueeze(2), (1 - weight).unsqueeze(2))
            matrix.scatter_(2, left.long().unsqueeze(2) + 1, weight.unsqueeze(2))
            products.append((matrix.to(dtype), values.to(dtype)))
        name = "tensor cores, " + ("tf32" if dtype == torch.float32 else "bfloat16")

        def timed(products=products, tolerance=tolerance, name=name):
            off = (torch.bmm(*products[0]).float() - expected(*sets[0])).abs().max().item()
            print(f"  {name}: off by {off:.1e}", file=sys.stderr)
            assert off <= tolerance, f"off by {off}"
            return time_graph(torch.bmm, products)

        rows.try_add("ablation", config, name, timed, touched)
        del products
        torch.cuda.empty_cache()
