// A watch for races on shared memory. block.cpp reports how far the threads of a block have come, shim.h the atomics,
// and the compiler the accesses: see races.cpp. In other builds these functions do nothing.
#pragma once

#include <stddef.h>

namespace emulator {

#ifdef EMULATOR_RACES

// Begins a block of this number of threads.
void watch_block(size_t threads);

// Sets the running thread; SIZE_MAX outside of a kernel.
void watch_thread(size_t thread);

// Notes that all threads of the block have met at a barrier, or the lanes of a warp in __syncwarp.
void watch_barrier();
void watch_warp(size_t warp);

// Marks the running thread's accesses to `at` as atomic, until the next call.
void watch_atomic(const void *at);

#else

inline void watch_block(size_t) {}
inline void watch_thread(size_t) {}
inline void watch_barrier() {}
inline void watch_warp(size_t) {}
inline void watch_atomic(const void *) {}

#endif

} // namespace emulator
