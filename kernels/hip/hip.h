// The words and functions of CUDA that the kernels use, for AMD GPUs, over builtins of clang 22. No header and no
// library of ROCm is needed. compile.py includes this file before each .cu.

// In the sources a warp is 32 threads, on every device. A wave of 64 lanes (CDNA) holds two warps, and a warp's
// functions stay within its half. No kernel knows the width of a wave. As with CUDA, all threads of a warp must call
// such a function together.
#pragma once

#ifndef __HIP_DEVICE_COMPILE__
#error "hip.h is for the device side alone: --cuda-device-only"
#endif

typedef __SIZE_TYPE__ size_t;

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
// Inlined: a call by reference would copy the kernel's parameters to scratch memory, 160 to 1,456 bytes a thread.
#define __noinline__ __forceinline__
#define __align__(bytes) __attribute__((aligned(bytes)))
// The most threads of a block. CUDA's second argument, blocks on a multiprocessor, has no counterpart.
#define ROBOCACHE_FIRST(first, ...) first
#define __launch_bounds__(...) __attribute__((amdgpu_flat_work_group_size(1, ROBOCACHE_FIRST(__VA_ARGS__, 0))))

#define ROBOCACHE_DEVICE static __attribute__((device)) inline __attribute__((always_inline))

// Indices of a thread, and sizes of block and grid. The sizes lie behind the kernel's parameters, from code object version 5 on.

#define ROBOCACHE_ARGUMENT(TYPE, FROM)                                                                                 \
    (*(const __attribute__((address_space(4))) TYPE *)(                                                                \
        (const __attribute__((address_space(4))) char *)__builtin_amdgcn_implicitarg_ptr() + (FROM)))

struct hip_thread_index {
    __declspec(property(get = get_x)) unsigned x;
    __declspec(property(get = get_y)) unsigned y;
    __declspec(property(get = get_z)) unsigned z;
    __device__ __forceinline__ unsigned get_x() const { return __builtin_amdgcn_workitem_id_x(); }
    __device__ __forceinline__ unsigned get_y() const { return __builtin_amdgcn_workitem_id_y(); }
    __device__ __forceinline__ unsigned get_z() const { return __builtin_amdgcn_workitem_id_z(); }
};
struct hip_block_index {
    __declspec(property(get = get_x)) unsigned x;
    __declspec(property(get = get_y)) unsigned y;
    __declspec(property(get = get_z)) unsigned z;
    __device__ __forceinline__ unsigned get_x() const { return __builtin_amdgcn_workgroup_id_x(); }
    __device__ __forceinline__ unsigned get_y() const { return __builtin_amdgcn_workgroup_id_y(); }
    __device__ __forceinline__ unsigned get_z() const { return __builtin_amdgcn_workgroup_id_z(); }
};
struct hip_grid_dim {
    __declspec(property(get = get_x)) unsigned x;
    __declspec(property(get = get_y)) unsigned y;
    __declspec(property(get = get_z)) unsigned z;
    __device__ __forceinline__ unsigned get_x() const { return ROBOCACHE_ARGUMENT(unsigned, 0); }
    __device__ __forceinline__ unsigned get_y() const { return ROBOCACHE_ARGUMENT(unsigned, 4); }
    __device__ __forceinline__ unsigned get_z() const { return ROBOCACHE_ARGUMENT(unsigned, 8); }
};
struct hip_block_dim {
    __declspec(property(get = get_x)) unsigned x;
    __declspec(property(get = get_y)) unsigned y;
    __declspec(property(get = get_z)) unsigned z;
    __device__ __forceinline__ unsigned get_x() const { return ROBOCACHE_ARGUMENT(unsigned short, 12); }
    __device__ __forceinline__ unsigned get_y() const { return ROBOCACHE_ARGUMENT(unsigned short, 14); }
    __device__ __forceinline__ unsigned get_z() const { return ROBOCACHE_ARGUMENT(unsigned short, 16); }
};
extern const __attribute__((device, weak)) hip_thread_index threadIdx;
extern const __attribute__((device, weak)) hip_block_index blockIdx;
extern const __attribute__((device, weak)) hip_grid_dim gridDim;
extern const __attribute__((device, weak)) hip_block_dim blockDim;

// Vectors, aligned as CUDA aligns them.

struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
ROBOCACHE_DEVICE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
ROBOCACHE_DEVICE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// Bits.

ROBOCACHE_DEVICE int __popc(unsigned bits) { return __builtin_popcount(bits); }
ROBOCACHE_DEVICE int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz((unsigned)bits); }
ROBOCACHE_DEVICE int __ffs(int bits) { return __builtin_ffs(bits); }
ROBOCACHE_DEVICE unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
ROBOCACHE_DEVICE float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
ROBOCACHE_DEVICE long long __double_as_longlong(double value) { return __builtin_bit_cast(long long, value); }
ROBOCACHE_DEVICE double __longlong_as_double(long long bits) { return __builtin_bit_cast(double, bits); }

ROBOCACHE_DEVICE float fabsf(float value) { return __builtin_fabsf(value); }
ROBOCACHE_DEVICE double fabs(double value) { return __builtin_fabs(value); }
ROBOCACHE_DEVICE float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
ROBOCACHE_DEVICE float rintf(float value) { return __builtin_rintf(value); }
ROBOCACHE_DEVICE double rint(double value) { return __builtin_rint(value); }
ROBOCACHE_DEVICE float sqrtf(float value) { return __builtin_sqrtf(value); }
ROBOCACHE_DEVICE double sqrt(double value) { return __builtin_sqrt(value); }
ROBOCACHE_DEVICE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
ROBOCACHE_DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#define memcpy(to, from, bytes) __builtin_memcpy(to, from, bytes)

#define ROBOCACHE_MIN_MAX(T)                                                                                             \
    ROBOCACHE_DEVICE T min(T a, T b) { return b < a ? b : a; }                                                         \
    ROBOCACHE_DEVICE T max(T a, T b) { return a < b ? b : a; }
ROBOCACHE_MIN_MAX(int)
ROBOCACHE_MIN_MAX(unsigned)
ROBOCACHE_MIN_MAX(long long)
ROBOCACHE_MIN_MAX(unsigned long long)

// Memory.

template <class T> ROBOCACHE_DEVICE T __ldg(const T *at) { return *at; }
ROBOCACHE_DEVICE void __stcs(unsigned short *at, unsigned short value) { __builtin_nontemporal_store(value, at); }
ROBOCACHE_DEVICE void __stcs(unsigned *at, unsigned value) { __builtin_nontemporal_store(value, at); }
ROBOCACHE_DEVICE void __stcs(uint2 *at, uint2 value) {
    typedef unsigned V __attribute__((ext_vector_type(2)));
    __builtin_nontemporal_store(__builtin_bit_cast(V, value), (V *)at);
}
ROBOCACHE_DEVICE void __stcs(uint4 *at, uint4 value) {
    typedef unsigned V __attribute__((ext_vector_type(4)));
    __builtin_nontemporal_store(__builtin_bit_cast(V, value), (V *)at);
}

// Atomics: relaxed, and of one device, as in CUDA.
#define ROBOCACHE_ATOMIC(NAME, T, FETCH)                                                                               \
    ROBOCACHE_DEVICE T NAME(T *at, T value) {                                                                          \
        return FETCH(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);                                           \
    }
ROBOCACHE_ATOMIC(atomicAdd, int, __hip_atomic_fetch_add)
ROBOCACHE_ATOMIC(atomicAdd, unsigned, __hip_atomic_fetch_add)
ROBOCACHE_ATOMIC(atomicAdd, unsigned long long, __hip_atomic_fetch_add)
ROBOCACHE_ATOMIC(atomicOr, unsigned, __hip_atomic_fetch_or)
ROBOCACHE_ATOMIC(atomicMin, int, __hip_atomic_fetch_min)
ROBOCACHE_ATOMIC(atomicMin, unsigned, __hip_atomic_fetch_min)
ROBOCACHE_ATOMIC(atomicMax, int, __hip_atomic_fetch_max)
ROBOCACHE_ATOMIC(atomicMax, unsigned, __hip_atomic_fetch_max)

// Warps and blocks.

namespace hip {

// Returns the index of the lane in the wave, which has 32 or 64 lanes.
ROBOCACHE_DEVICE unsigned lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }

// Returns a bit for each lane of this warp whose value is set. For a wave of 32 lanes, the upper half of the ballot is 0.
ROBOCACHE_DEVICE unsigned ballot(bool is_set) {
    return (unsigned)(__builtin_amdgcn_ballot_w64(is_set) >> (lane() & 32));
}

// Returns the value of a lane of the wave, by the index of that lane.
ROBOCACHE_DEVICE unsigned shuffle(unsigned from_lane, unsigned value) {
    return (unsigned)__builtin_amdgcn_ds_bpermute((int)(from_lane << 2), (int)value);
}
ROBOCACHE_DEVICE int shuffle(unsigned from_lane, int value) { return (int)shuffle(from_lane, (unsigned)value); }
ROBOCACHE_DEVICE unsigned long long shuffle(unsigned from_lane, unsigned long long value) {
    unsigned low = shuffle(from_lane, (unsigned)value), high = shuffle(from_lane, (unsigned)(value >> 32));
    return (unsigned long long)high << 32 | low;
}

} // namespace hip

ROBOCACHE_DEVICE unsigned __ballot_sync(unsigned, bool is_set) { return hip::ballot(is_set); }
// True if no lane of the mask is unset.
ROBOCACHE_DEVICE int __all_sync(unsigned mask, bool is_set) { return (hip::ballot(!is_set) & mask) == 0; }
ROBOCACHE_DEVICE int __any_sync(unsigned mask, bool is_set) { return (hip::ballot(is_set) & mask) != 0; }

template <class T> ROBOCACHE_DEVICE T __shfl_sync(unsigned, T value, unsigned from) {
    return hip::shuffle((hip::lane() & ~31u) | (from & 31), value);
}
template <class T> ROBOCACHE_DEVICE T __shfl_up_sync(unsigned, T value, unsigned by) {
    unsigned own = hip::lane();
    return hip::shuffle((own & 31) >= by ? own - by : own, value);
}
template <class T> ROBOCACHE_DEVICE T __shfl_down_sync(unsigned, T value, unsigned by) {
    unsigned own = hip::lane();
    return hip::shuffle((own & 31) + by < 32 ? own + by : own, value);
}
template <class T> ROBOCACHE_DEVICE T __shfl_xor_sync(unsigned, T value, unsigned bits) {
    return hip::shuffle(hip::lane() ^ bits, value);
}

// The lanes of a wave run together. The fences make their writes visible to each other.
ROBOCACHE_DEVICE void __syncwarp() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

ROBOCACHE_DEVICE void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

namespace hip {

// Counts the threads of the block whose value is set. This is a barrier: all threads call it.
ROBOCACHE_DEVICE unsigned count_set(bool is_set) {
    __shared__ unsigned sum;
    __syncthreads();
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    unsigned lanes = ballot(is_set);
    if ((lane() & 31) == 0 && lanes != 0) {
        __hip_atomic_fetch_add(&sum, (unsigned)__popc(lanes), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    __syncthreads();
    return sum;
}

} // namespace hip

ROBOCACHE_DEVICE int __syncthreads_count(bool is_set) { return (int)hip::count_set(is_set); }
ROBOCACHE_DEVICE int __syncthreads_or(bool is_set) { return hip::count_set(is_set) != 0; }
ROBOCACHE_DEVICE int __syncthreads_and(bool is_set) { return hip::count_set(!is_set) == 0; }
