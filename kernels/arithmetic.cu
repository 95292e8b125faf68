// Divides and takes square roots in both precisions. A device must round the results as the CPU does, subnormal numbers
// among them: `robocache doctor` compares them.
#include "types.cuh"

struct ArithmeticParams {
    // The operands: `count` dividends, then as many divisors.
    const float* singles;
    const double* doubles;
    // The quotients, then the roots of the dividends.
    float* single_results;
    double* double_results;
    u32 count;
};

extern "C" __global__ void __launch_bounds__(64) arithmetic(const __grid_constant__ ArithmeticParams params) {
    wait_for_previous();
    const u32 i = blockIdx.x * 64 + threadIdx.x;
    if (i >= params.count) return;
    const float* a = params.singles;
    const double* c = params.doubles;
    params.single_results[i] = a[i] / a[params.count + i];
    params.single_results[params.count + i] = sqrtf(a[i]);
    params.double_results[i] = c[i] / c[params.count + i];
    params.double_results[params.count + i] = sqrt(c[i]);
}
