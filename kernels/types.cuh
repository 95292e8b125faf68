// Types for every kernel, and conversions of 16-bit floats. No header of CUDA or of C++ is needed.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

// The bits of an IEEE half-precision float.
struct f16 {
    u16 bits;
};

// The bits of a bfloat16, which are the upper half of a float32's.
struct bf16 {
    u16 bits;
};

// Converts an element of any float type but float64 to float32, which is exact.
__device__ __forceinline__ float to_f32(float value) { return value; }

__device__ __forceinline__ float to_f32(bf16 value) { return __uint_as_float((u32)value.bits << 16); }

__device__ __forceinline__ float to_f32(f16 value) {
#ifdef __CUDACC__
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
#else
    _Float16 half;
    __builtin_memcpy(&half, &value.bits, sizeof half);
    return (float)half;
#endif
}

// False for a NaN and for an infinity.
__device__ __forceinline__ bool is_finite(float value) { return (__float_as_uint(value) & 0x7f800000) != 0x7f800000; }

// Rounds a float32 to the nearest value of type T, ties to even. It must not be a NaN.
template <class T> __device__ __forceinline__ T from_f32(float value);

template <> __device__ __forceinline__ float from_f32<float>(float value) { return value; }

template <> __device__ __forceinline__ bf16 from_f32<bf16>(float value) {
    u32 bits = __float_as_uint(value);
    return bf16{(u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

template <> __device__ __forceinline__ f16 from_f32<f16>(float value) {
#ifdef __CUDACC__
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
#else
    _Float16 half = (_Float16)value;
    f16 result;
    __builtin_memcpy(&result.bits, &half, sizeof half);
    return result;
#endif
}

// Returns the least magnitude of a float32 that becomes an infinity of type T.
template <class T> __device__ __forceinline__ float overflows_from();

template <> __device__ __forceinline__ float overflows_from<float>() { return __uint_as_float(0x7f800000); }
template <> __device__ __forceinline__ float overflows_from<bf16>() { return __uint_as_float(0x7f7f8000); }
template <> __device__ __forceinline__ float overflows_from<f16>() { return 65520.0f; }

// Rounds two floats to type T, and packs them into a word: the first into the lower half.
template <class T> __device__ __forceinline__ u32 pack(float low, float high) {
    return from_f32<T>(low).bits | (u32)from_f32<T>(high).bits << 16;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ u32 pack<bf16>(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

template <> __device__ __forceinline__ u32 pack<f16>(float low, float high) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
#endif

// Element types, in the order of `Dtype::ALL`.
enum Dtype : u32 { FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64 };

// Reads an element as the nearest float32.
__device__ __forceinline__ float read_f32(const void* at, u32 dtype) {
    switch (dtype) {
    case FLOAT32: return *(const float*)at;
    case FLOAT64: return (float)*(const double*)at;
    case FLOAT16: return to_f32(*(const f16*)at);
    case BFLOAT16: return to_f32(*(const bf16*)at);
    case INT8: return (float)*(const signed char*)at;
    case INT16: return (float)*(const short*)at;
    case INT32: return (float)*(const i32*)at;
    case INT64: return (float)*(const i64*)at;
    case UINT8: return (float)*(const u8*)at;
    case UINT16: return (float)*(const u16*)at;
    case UINT32: return (float)*(const u32*)at;
    default: return (float)*(const u64*)at;
    }
}

// Prefetches an address into the second-level cache.
__device__ __forceinline__ void prefetch(const void* at) {
#ifdef __CUDACC__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
    (void)at;
#endif
}

// Waits until the kernel before this one has ended. From compute capability 9.0 on, `Gpu::launch` lets a kernel start
// earlier, so each kernel calls this before it touches memory.
__device__ __forceinline__ void wait_for_previous() {
#if !defined(__CUDACC__) && !defined(__HIP__)
    emulator::wait_for_previous();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start when all blocks of this kernel have called it, and not only when they have ended. That
// saves time if this kernel leaves room on the multiprocessors. If not, the next kernel's blocks crowd where there is
// room first.
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
