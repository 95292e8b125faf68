// A kernel that does nothing, on one thread: what a launch costs by itself. robocache-bench measures it.
#include "types.cuh"

struct EmptyParams {
    u32 unused;
};

extern "C" __global__ void empty(const __grid_constant__ EmptyParams) {
    wait_for_previous();
}
