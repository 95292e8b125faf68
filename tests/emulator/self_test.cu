// Kernels with which the emulator tests itself. They are in each build of it; no program uses them.
typedef unsigned u32;
typedef unsigned long long u64;

struct SelfTestParams {
    u32 *out;
    const u32 *in;
    u32 count, mode;
};

// out[i] = the sum of in[0..=i] within a block of 256: shuffles, shared memory, barriers.
extern "C" __global__ void __launch_bounds__(256) self_test_scan(const __grid_constant__ SelfTestParams p) {
    __shared__ u32 sums[8];
    u32 at = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 sum = at < p.count ? p.in[at] : 0;
    for (u32 by = 1; by < 32; by *= 2) {
        u32 other = __shfl_up_sync(~0u, sum, by);
        if (lane >= by) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    for (u32 before = 0; before < warp; before++) sum += sums[before];
    if (at < p.count) p.out[at] = sum;
}

// out[0] counts threads, out[1] the set lanes of ballots, out[3] the groups of equal `at / 4`; out[2] is the largest `at`.
extern "C" __global__ void self_test_atomics(const __grid_constant__ SelfTestParams p) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    bool in = at < p.count;
    u32 set = __ballot_sync(~0u, in && at % 3 == 0);
    if (threadIdx.x % 32 == 0) atomicAdd(&p.out[1], (u32)__popc(set));
    u32 same = __match_any_sync(~0u, at / 4);
    if (!in) return;
    atomicAdd(&p.out[0], 1u);
    atomicMax(&p.out[2], at);
    if (__ffs((int)same) == (int)(threadIdx.x % 32) + 1) atomicAdd(&p.out[3], 1u);
}

// Makes a mistake by `mode`, which must be reported; mode 0 is right.
extern "C" __global__ void self_test_mistakes(const __grid_constant__ SelfTestParams p) {
    __shared__ u32 cells[64];
    u32 at = threadIdx.x;
    if (p.mode == 1 && at >= 40) return; // a barrier that some threads never reach
    if (p.mode == 2) {                   // two barriers
        if (at < 32)
            __syncthreads();
        else
            __syncthreads();
    }
    if (p.mode == 3 && at < 32) { // a lane that does something else than its warp
        if (at == 5)
            __ballot_sync(~0u, 1);
        else
            __syncwarp();
    }
    if (p.mode == 4) p.out[p.count + at] = 1;                           // outside of the buffer
    if (p.mode == 5) cells[at + p.count] = p.mode;                      // outside of shared memory
    if (p.mode == 6 && at < 16) p.out[0] = __shfl_sync(0xffff, at, 20); // from a lane outside of the mask
    if (p.mode == 7) __trap();
    if (p.mode == 8) *(volatile u32 *)(u64)at = 1;
    cells[at % 64] = at;
    if (p.mode != 9) __syncthreads();           // 9: a barrier is missing
    if (p.mode == 10 && at == 63) cells[9] = 0; // a write while others read
    if (at < p.count) p.out[at] = cells[(at + 1) % 64];
}
