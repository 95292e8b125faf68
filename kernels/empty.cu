// A kernel that does nothing, on one thread. With it, robocache-bench measures the cost of a launch.
#include "types.cuh"

struct EmptyParams {
    u32 unused;
};

extern "C" __global__ void empty(const __grid_constant__ EmptyParams) {
    wait_for_previous();
}
