// A block of threads on the host: each is a fibre, one runs at a time, and it runs until it waits for others.
#pragma once

#include <stddef.h>

namespace emulator {

struct Dim3 {
    unsigned x, y, z;
};

// Of the thread that runs.
extern Dim3 threadIdx, blockIdx, blockDim, gridDim;

// Where in the kernel's source.
struct Site {
    const char *file;
    int line;
};

// What the threads of a warp do together.
enum class Collective : unsigned char { sync, ballot, shuffle, match };

// A kernel: its name, the size and alignment of the one struct it takes, the most threads a block may have, and a call.
struct Kernel {
    const char *name;
    size_t size, align;
    unsigned max_threads;
    void (*call)(const void *parameters);
    const Kernel *next;
};

// The kernels that are linked in, as a list.
const Kernel *kernels();

// Adds `kernel`, which lives for ever, to them.
bool add(Kernel *kernel);

// How a kernel is launched.
struct Launch {
    Dim3 grid, block;
    // Whether it may start before the one before it has ended, and so has to wait for that.
    bool starts_early;
};

// Runs every block. Errors of the kernel end the process with one line that says where.
void run(const Kernel &kernel, const Launch &launch, const void *parameters);

// The thread that runs waits for the kernel before its own.
void wait_for_previous();

// Waits until every thread of the block is here; the sum of their `value`.
unsigned sync_block(unsigned value, Site site);

// Waits until the threads of the warp in `mask` are here. `value` and `from` (a lane) mean what `what` makes of them.
unsigned long long collective(Collective what, unsigned mask, unsigned long long value, unsigned from, Site site);

// Ends the process with a line about the thread that runs. The site may be unknown, with no file.
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
