// The words and functions of CUDA that the kernels use, for the host, over the threads of block.h. Functions that are
// not here are not meant to be used in a kernel, such as floating-point atomics, whose sums depend on the order.
#pragma once

#include <math.h>
#include <string.h>

#include "block.h"
#include "races.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static const
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))

using emulator::blockDim;
using emulator::blockIdx;
using emulator::gridDim;
using emulator::threadIdx;
constexpr int warpSize = 32;

// Vectors, aligned as CUDA aligns them.

#define EMULATOR_VECTORS(T, NAME, ALIGN2, ALIGN4)                                                                      \
    struct NAME##1 { T x; };                                                                                           \
    struct __align__(ALIGN2) NAME##2 { T x, y; };                                                                      \
    struct NAME##3 { T x, y, z; };                                                                                     \
    struct __align__(ALIGN4) NAME##4 { T x, y, z, w; };                                                                \
    inline NAME##1 make_##NAME##1(T x) { return {x}; }                                                                 \
    inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                                         \
    inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                                                 \
    inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMULATOR_VECTORS(signed char, char, 2, 4)
EMULATOR_VECTORS(unsigned char, uchar, 2, 4)
EMULATOR_VECTORS(short, short, 4, 8)
EMULATOR_VECTORS(unsigned short, ushort, 4, 8)
EMULATOR_VECTORS(int, int, 8, 16)
EMULATOR_VECTORS(unsigned int, uint, 8, 16)
EMULATOR_VECTORS(long long, longlong, 16, 16)
EMULATOR_VECTORS(unsigned long long, ulonglong, 16, 16)
EMULATOR_VECTORS(float, float, 8, 16)
EMULATOR_VECTORS(double, double, 16, 16)

// Barriers, and operations that the threads of a warp do together. The call site is for the message if a thread does
// not come.

#define EMULATOR_SITE emulator::Site site = {__builtin_FILE(), __builtin_LINE()}

inline void __syncthreads(EMULATOR_SITE) { emulator::sync_block(0, site); }
inline int __syncthreads_count(int set, EMULATOR_SITE) { return (int)emulator::sync_block(set != 0, site); }
inline int __syncthreads_or(int set, EMULATOR_SITE) { return emulator::sync_block(set != 0, site) != 0; }
inline int __syncthreads_and(int set, EMULATOR_SITE) { return emulator::sync_block(set == 0, site) == 0; }

inline void __syncwarp(unsigned mask = 0xffffffff, EMULATOR_SITE) {
    emulator::collective(emulator::Collective::sync, mask, 0, 0, site);
}

inline unsigned __ballot_sync(unsigned mask, int set, EMULATOR_SITE) {
    return (unsigned)emulator::collective(emulator::Collective::ballot, mask, set != 0, 0, site);
}

inline int __any_sync(unsigned mask, int set, EMULATOR_SITE) { return __ballot_sync(mask, set, site) != 0; }
inline int __all_sync(unsigned mask, int set, EMULATOR_SITE) { return __ballot_sync(mask, !set, site) == 0; }

namespace emulator {

template <class T> inline unsigned long long bits_of(T value) {
    static_assert(sizeof(T) <= 8, "the threads of a warp exchange 4 or 8 bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T> inline T exchange(unsigned mask, T value, unsigned from, Site site) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "the threads of a warp exchange 4 or 8 bytes");
    unsigned long long bits = collective(Collective::shuffle, mask, bits_of(value), from, site);
    T result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

inline unsigned lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }

} // namespace emulator

template <class T> inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, EMULATOR_SITE) {
    unsigned own = emulator::lane();
    return emulator::exchange(mask, value, (own & -width) | ((unsigned)from & (width - 1)), site);
}

template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATOR_SITE) {
    unsigned own = emulator::lane();
    return emulator::exchange(mask, value, (own & (width - 1)) >= delta ? own - delta : own, site);
}

template <class T> inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATOR_SITE) {
    unsigned own = emulator::lane();
    return emulator::exchange(mask, value, (own & (width - 1)) + delta < (unsigned)width ? own + delta : own, site);
}

template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMULATOR_SITE) {
    unsigned own = emulator::lane(), from = own ^ (unsigned)bits;
    return emulator::exchange(mask, value, from <= (own | (width - 1)) ? from : own, site);
}

template <class T> inline unsigned __match_any_sync(unsigned mask, T value, EMULATOR_SITE) {
    return (unsigned)emulator::collective(emulator::Collective::match, mask, emulator::bits_of(value), 0, site);
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap(EMULATOR_SITE) { emulator::fail(site, "__trap()"); }

// Atomics: one thread runs at a time.

#define EMULATOR_ATOMIC(NAME, T, NEW)                                                                                  \
    inline T NAME(T *at, T value) {                                                                                    \
        emulator::watch_atomic(at);                                                                                    \
        T old = *at;                                                                                                   \
        *at = (NEW);                                                                                                   \
        emulator::watch_atomic(nullptr);                                                                               \
        return old;                                                                                                    \
    }
#define EMULATOR_ATOMICS(T)                                                                                            \
    EMULATOR_ATOMIC(atomicMin, T, value < old ? value : old)                                                           \
    EMULATOR_ATOMIC(atomicMax, T, value > old ? value : old)                                                           \
    EMULATOR_ATOMIC(atomicAnd, T, old &value)                                                                          \
    EMULATOR_ATOMIC(atomicOr, T, old | value)                                                                          \
    EMULATOR_ATOMIC(atomicXor, T, old ^ value)

EMULATOR_ATOMICS(int)
EMULATOR_ATOMICS(unsigned)
EMULATOR_ATOMICS(unsigned long long)
EMULATOR_ATOMIC(atomicMin, long long, value < old ? value : old)
EMULATOR_ATOMIC(atomicMax, long long, value > old ? value : old)
EMULATOR_ATOMIC(atomicAdd, int, (int)((unsigned)old + (unsigned)value))
EMULATOR_ATOMIC(atomicAdd, unsigned, old + value)
EMULATOR_ATOMIC(atomicAdd, unsigned long long, old + value)
EMULATOR_ATOMIC(atomicSub, int, (int)((unsigned)old - (unsigned)value))
EMULATOR_ATOMIC(atomicSub, unsigned, old - value)
EMULATOR_ATOMIC(atomicExch, int, value)
EMULATOR_ATOMIC(atomicExch, unsigned, value)
EMULATOR_ATOMIC(atomicExch, unsigned long long, value)

template <class T> inline T emulator_swap(T *at, T expected, T value) {
    emulator::watch_atomic(at);
    T old = *at;
    if (old == expected) *at = value;
    emulator::watch_atomic(nullptr);
    return old;
}
inline int atomicCAS(int *at, int expected, int value) { return emulator_swap(at, expected, value); }
inline unsigned atomicCAS(unsigned *at, unsigned expected, unsigned value) {
    return emulator_swap(at, expected, value);
}
inline unsigned long long atomicCAS(unsigned long long *at, unsigned long long expected, unsigned long long value) {
    return emulator_swap(at, expected, value);
}

// Loads and stores with a cache hint.

#define EMULATOR_LOAD(NAME)                                                                                            \
    template <class T> inline T NAME(const T *at) { return *at; }
#define EMULATOR_STORE(NAME)                                                                                           \
    template <class T> inline void NAME(T *at, T value) { *at = value; }
EMULATOR_LOAD(__ldg)
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldcg)
EMULATOR_LOAD(__ldcs)
EMULATOR_LOAD(__ldcv)
EMULATOR_LOAD(__ldlu)
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stwb)
EMULATOR_STORE(__stwt)

#include "arithmetic.h"
