// CUDA's device functions for arithmetic, for the host: bits, saturating conversions, and operations with a named
// rounding. Part of shim.h.
#pragma once

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz((unsigned)bits); }
inline int __clzll(long long bits) { return bits == 0 ? 64 : __builtin_clzll((unsigned long long)bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }

inline unsigned __brev(unsigned bits) {
    unsigned result = 0;
    for (int i = 0; i < 32; i++) result |= (bits >> i & 1) << (31 - i);
    return result;
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (unsigned)((((unsigned long long)high << 32 | low) << (by & 31)) >> 32);
}

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}

inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned select = selector >> (4 * i) & 15;
        unsigned byte = (unsigned)(bytes >> (8 * (select & 7))) & 255;
        if (select & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * i);
    }
    return result;
}

inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// The bits of a number.

namespace emulator {

template <class To, class From> inline To same_bits(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

// Converts a whole number to T as the device does: saturates it. A NaN becomes 0, or in 64 bits the sign bit alone.
template <class T, class F> inline T saturated(F whole) {
    constexpr bool is_signed = (T)-1 < (T)0;
    constexpr int bits = 8 * sizeof(T);
    constexpr T most = is_signed ? (T)((1ull << (bits - 1)) - 1) : (T)-1;
    constexpr T least = is_signed ? (T)(-most - 1) : (T)0;
    if (whole != whole) return bits == 64 ? (T)(1ull << 63) : (T)0;
    if (whole >= (F)ldexp(1.0, is_signed ? bits - 1 : bits)) return most;
    return whole <= (F)least ? least : (T)whole;
}

} // namespace emulator

inline unsigned __float_as_uint(float value) { return emulator::same_bits<unsigned>(value); }
inline int __float_as_int(float value) { return emulator::same_bits<int>(value); }
inline float __uint_as_float(unsigned bits) { return emulator::same_bits<float>(bits); }
inline float __int_as_float(int bits) { return emulator::same_bits<float>(bits); }
inline long long __double_as_longlong(double value) { return emulator::same_bits<long long>(value); }
inline double __longlong_as_double(long long bits) { return emulator::same_bits<double>(bits); }
inline int __double2hiint(double value) { return (int)(__double_as_longlong(value) >> 32); }
inline int __double2loint(double value) { return (int)__double_as_longlong(value); }
inline double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}

// Conversions: rn to the nearest even, rd down, ru up, rz to zero.

#define EMULATOR_TO_INTEGER(FROM, TO, NAME)                                                                            \
    inline TO NAME##_rn(FROM value) { return emulator::saturated<TO>(__builtin_rint(value)); }                         \
    inline TO NAME##_rd(FROM value) { return emulator::saturated<TO>(__builtin_floor(value)); }                        \
    inline TO NAME##_ru(FROM value) { return emulator::saturated<TO>(__builtin_ceil(value)); }                         \
    inline TO NAME##_rz(FROM value) { return emulator::saturated<TO>(__builtin_trunc(value)); }
EMULATOR_TO_INTEGER(float, int, __float2int)
EMULATOR_TO_INTEGER(float, unsigned, __float2uint)
EMULATOR_TO_INTEGER(float, long long, __float2ll)
EMULATOR_TO_INTEGER(float, unsigned long long, __float2ull)
EMULATOR_TO_INTEGER(double, int, __double2int)
EMULATOR_TO_INTEGER(double, unsigned, __double2uint)
EMULATOR_TO_INTEGER(double, long long, __double2ll)
EMULATOR_TO_INTEGER(double, unsigned long long, __double2ull)

#define EMULATOR_TO_FLOATING(FROM, TO, NAME)                                                                           \
    inline TO NAME(FROM value) { return (TO)value; }
EMULATOR_TO_FLOATING(int, float, __int2float_rn)
EMULATOR_TO_FLOATING(unsigned, float, __uint2float_rn)
EMULATOR_TO_FLOATING(long long, float, __ll2float_rn)
EMULATOR_TO_FLOATING(unsigned long long, float, __ull2float_rn)
EMULATOR_TO_FLOATING(int, double, __int2double_rn)
EMULATOR_TO_FLOATING(unsigned, double, __uint2double_rn)
EMULATOR_TO_FLOATING(long long, double, __ll2double_rn)
EMULATOR_TO_FLOATING(unsigned long long, double, __ull2double_rn)
EMULATOR_TO_FLOATING(double, float, __double2float_rn)

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1 / a; }
inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

#define EMULATOR_LEAST(T)                                                                                              \
    inline T min(T a, T b) { return b < a ? b : a; }                                                                   \
    inline T max(T a, T b) { return a < b ? b : a; }
EMULATOR_LEAST(int)
EMULATOR_LEAST(unsigned)
EMULATOR_LEAST(long)
EMULATOR_LEAST(unsigned long)
EMULATOR_LEAST(long long)
EMULATOR_LEAST(unsigned long long)
inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
// Of a number and a NaN, these return the number, as on the device.
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline double min(double a, double b) { return __builtin_fmin(a, b); }
inline double max(double a, double b) { return __builtin_fmax(a, b); }
