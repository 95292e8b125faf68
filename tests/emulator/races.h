// Races on shared memory. block.cpp says how far the threads of a block have come, shim.h what is atomic; the accesses
// come from the compiler: see races.cpp. In other builds all of this is nothing.
#pragma once

#include <stddef.h>

namespace emulator {

#ifdef EMULATOR_RACES

// A block of so many threads begins.
void watch_block(size_t threads);

// This thread runs.
void watch_thread(size_t thread);

// All threads of the block have met; the lanes of a warp have met in __syncwarp.
void watch_barrier();
void watch_warp(size_t warp);

// The running thread's accesses to `at` are atomic, until the next call.
void watch_atomic(const void *at);

#else

inline void watch_block(size_t) {}
inline void watch_thread(size_t) {}
inline void watch_barrier() {}
inline void watch_warp(size_t) {}
inline void watch_atomic(const void *) {}

#endif

} // namespace emulator
