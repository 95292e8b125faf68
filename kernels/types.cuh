// The types of every kernel, and the conversions of 16-bit floats. Nothing here needs a header of CUDA or of C++.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

// IEEE half precision by its bits.
struct f16 {
    u16 bits;
};

// The upper half of a float32 by its bits.
struct bf16 {
    u16 bits;
};

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

__device__ __forceinline__ bool is_finite(float value) { return (__float_as_uint(value) & 0x7f800000) != 0x7f800000; }

// The nearest value of type T, ties to even, of a float32 that is no NaN.
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

// From which magnitude on a float32 becomes an infinity of type T.
template <class T> __device__ __forceinline__ float overflows_from();

template <> __device__ __forceinline__ float overflows_from<float>() { return __uint_as_float(0x7f800000); }
template <> __device__ __forceinline__ float overflows_from<bf16>() { return __uint_as_float(0x7f7f8000); }
template <> __device__ __forceinline__ float overflows_from<f16>() { return 65520.0f; }

// Two elements, the first in the lower half.
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

// The element there as the nearest float32.
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

// Has the second-level cache fetch what lies there.
__device__ __forceinline__ void prefetch(const void* at) {
#ifdef __CUDACC__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
    (void)at;
#endif
}

// What a kernel does before it touches memory: from compute capability 9.0 on `Gpu::launch` has it start while the one
// before it comes to its end, and here it waits for that.
__device__ __forceinline__ void wait_for_previous() {
#if !defined(__CUDACC__) && !defined(__HIP__)
    emulator::wait_for_previous();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Has the next kernel start once all blocks have come here, not only once they end. Where this one leaves room on the
// multiprocessors, that is earlier; where it does not, the next one's blocks crowd where the first room is.
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
