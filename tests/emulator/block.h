// A block of threads on the host. Each thread is a fibre. One thread runs at a time, until it waits for others.
#pragma once

#include <stddef.h>

namespace emulator {

struct Dim3 {
    unsigned x, y, z;
};

// Indices and sizes of the running thread.
extern Dim3 threadIdx, blockIdx, blockDim, gridDim;

// A place in the kernel's source.
struct Site {
    const char *file;
    int line;
};

// Operations that the threads of a warp do together.
enum class Collective : unsigned char { sync, ballot, shuffle, match };

// A kernel: its name, the size and alignment of the one struct it takes, the most threads a block may have, and a call.
struct Kernel {
    const char *name;
    size_t size, align;
    unsigned max_threads;
    void (*call)(const void *parameters);
    const Kernel *next;
};

// Returns the list of the kernels that are linked in.
const Kernel *kernels();

// Adds a kernel, which lives for ever, to the list.
bool add(Kernel *kernel);

// The configuration of a launch.
struct Launch {
    Dim3 grid, block;
    // True if the kernel may start before the previous one has ended, so that it must wait for the previous kernel.
    bool starts_early;
};

// Runs every block of a kernel. An error of the kernel ends the process with a line that names its place.
void run(const Kernel &kernel, const Launch &launch, const void *parameters);

// Marks the running thread as one that has waited for the kernel before its own.
void wait_for_previous();

// Waits until every thread of the block calls it. Returns the sum of their `value`.
unsigned sync_block(unsigned value, Site site);

// Waits until the threads of the warp in `mask` call it. The use of `value`, and of the lane `from`, depends on `what`.
unsigned long long collective(Collective what, unsigned mask, unsigned long long value, unsigned from, Site site);

// Ends the process with a line about the running thread. If the site is unknown, its file is null.
[[noreturn]] void fail(Site site, const char *format, ...) __attribute__((format(printf, 2, 3)));

template <class P> struct Parameter;
template <class T> struct Parameter<void (*)(T)> {
    typedef T Type;
};

template <auto function> bool add(const char *name, unsigned max_threads) {
    typedef typename Parameter<decltype(function)>::Type Type;
    static Kernel kernel = {name,
                            sizeof(Type),
                            alignof(Type),
                            max_threads,
                            [](const void *parameters) { function(*static_cast<const Type *>(parameters)); },
                            nullptr};
    return add(&kernel);
}

} // namespace emulator
