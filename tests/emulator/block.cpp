#include "block.h"

#include <signal.h>
#include <stdint.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "fiber.h"
#include "races.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace emulator {

// Initial values keep these variables apart from shared memory, which is in the section .bss.
Dim3 threadIdx = {1, 1, 1}, blockIdx = {1, 1, 1}, blockDim = {1, 1, 1}, gridDim = {1, 1, 1};

namespace {

struct Thread {
    Dim3 index;
    Fiber *fiber;
    bool has_waited_for_previous;
    // The place where the thread waits, if it waits.
    Site site;
    unsigned long long value, result;
    unsigned from, mask;
    Collective what;
    enum { ready, in_warp, in_block, done } state;
};

const Kernel *list;

// The launch that runs. The driver runs one launch at a time.
const Kernel *kernel;
const void *parameters;
bool starts_early;
std::vector<Thread> threads;
// For each warp: bits of the lanes that can go on, that wait for other lanes of the warp, and that have ended or do not
// exist.
std::vector<unsigned> ready, in_warp, ended;
Thread *current;
unsigned live, waiting, sum, last_sum;
Site barrier;
std::vector<Fiber *> idle;

// True if threads run backwards, by EMULATOR_ORDER. A kernel that lacks a barrier is often right in one order only.
bool backwards() {
    static const bool set = [] {
        const char *order = getenv("EMULATOR_ORDER");
        return order != nullptr && strcmp(order, "backwards") == 0;
    }();
    return set;
}

void wait() {
    size_t at = (size_t)(current - threads.data());
    ready[at / 32] &= ~(1u << at % 32);
    suspend();
}

void go_on(size_t at) {
    threads[at].state = Thread::ready;
    ready[at / 32] |= 1u << at % 32;
    in_warp[at / 32] &= ~(1u << at % 32);
}

// If all lanes of `mask` wait in `what` with this mask, lets them go on. Lanes that have ended are not waited for.
// Returns true if they go on.
bool meet(size_t first, Collective what, unsigned mask) {
    if ((mask & ~(in_warp[first / 32] | ended[first / 32])) != 0) return false;
    Thread *warp = &threads[first];
    size_t lanes = threads.size() - first < 32 ? threads.size() - first : 32;
    unsigned here = 0, set = 0;
    for (size_t lane = 0; lane < lanes; lane++) {
        const Thread &other = warp[lane];
        if (other.state != Thread::in_warp || other.mask != mask || other.what != what) continue;
        here |= 1u << lane;
        if (other.value != 0) set |= 1u << lane;
    }
    if ((mask & ~(here | ended[first / 32])) != 0) return false;
    // All results are computed now: a lane may be in its next collective before another lane reads its result.
    for (size_t lane = 0; lane < lanes; lane++) {
        if ((here >> lane & 1) == 0) continue;
        Thread &thread = warp[lane];
        if (what == Collective::shuffle) {
            if ((here >> thread.from & 1) == 0) {
                fail(thread.site, "a shuffle with mask %08x reads lane %u, which has ended or is not in it", mask,
                     thread.from);
            }
            thread.result = warp[thread.from].value;
        } else if (what == Collective::ballot) {
            thread.result = set;
        } else if (what == Collective::match) {
            for (size_t other = 0; other < lanes; other++) {
                if (here >> other & 1 && warp[other].value == thread.value) thread.result |= 1ull << other;
            }
        }
    }
    // The other functions of a warp exchange values, but don't order accesses to memory.
    if (what == Collective::sync) watch_warp(first / 32);
    for (size_t lane = 0; lane < lanes; lane++) {
        if (here >> lane & 1) go_on(first + lane);
    }
    return true;
}

// Marks a thread as ended, and lets the lanes go on that waited for this thread alone.
void meet_without(size_t own) {
    size_t first = own / 32 * 32;
    ended[first / 32] |= 1u << own % 32;
    if (in_warp[first / 32] == 0) return;
    for (size_t at = first; at < threads.size() && at < first + 32; at++) {
        const Thread &thread = threads[at];
        if (thread.state == Thread::in_warp && thread.mask >> own % 32 & 1) meet(first, thread.what, thread.mask);
    }
}

// Runs threads in a fibre: a thread from its start to its end, then the next thread.
void work(void *) {
    for (;;) {
        kernel->call(parameters);
        if (starts_early && !current->has_waited_for_previous)
            fail({}, "it ends without having waited for the kernel before it");
        current->state = Thread::done;
        live--;
        idle.push_back(current->fiber);
        current->fiber = nullptr;
        meet_without((size_t)(current - threads.data()));
        wait();
    }
}

void run_thread(Thread *thread) {
    if (thread->fiber == nullptr) {
        if (idle.empty()) idle.push_back(make_fiber(work, nullptr));
        thread->fiber = idle.back();
        idle.pop_back();
    }
    current = thread;
    threadIdx = thread->index;
    watch_thread((size_t)(thread - threads.data()));
    resume(thread->fiber);
    watch_thread(SIZE_MAX);
}

const char *name_of(Collective what) {
    switch (what) {
    case Collective::sync: return "__syncwarp";
    case Collective::ballot: return "a ballot";
    case Collective::shuffle: return "a shuffle";
    case Collective::match: return "__match_any_sync";
    }
    return "?";
}

// Reports a thread that waits, when no thread can go on.
[[noreturn]] void deadlock() {
    for (Thread &thread : threads) {
        if (thread.state != Thread::in_warp) continue;
        current = &thread;
        threadIdx = thread.index;
        fail(thread.site, "%s with mask %08x waits for lanes that never come", name_of(thread.what), thread.mask);
    }
    for (Thread &thread : threads) {
        if (thread.state != Thread::in_block) continue;
        current = &thread;
        threadIdx = thread.index;
        fail(thread.site, "__syncthreads() is reached by %u of %zu threads, the others have ended", waiting,
             threads.size());
    }
    abort();
}

void run_block() {
    size_t count = threads.size(), warps = ready.size();
    watch_block(count);
    for (Thread &thread : threads) {
        thread.state = Thread::ready;
        thread.has_waited_for_previous = false;
    }
    for (size_t warp = 0; warp < warps; warp++) {
        size_t lanes = count - 32 * warp;
        ready[warp] = lanes >= 32 ? ~0u : (1u << lanes) - 1;
        ended[warp] = ~ready[warp];
        in_warp[warp] = 0;
    }
    live = (unsigned)count;
    waiting = sum = 0;
    while (live > 0) {
        bool moved = false;
        for (size_t step = 0; step < warps; step++) {
            size_t warp = backwards() ? warps - 1 - step : step;
            while (ready[warp] != 0) {
                int lane = backwards() ? 31 - __builtin_clz(ready[warp]) : __builtin_ctz(ready[warp]);
                run_thread(&threads[32 * warp + (size_t)lane]);
                moved = true;
            }
        }
        if (!moved) deadlock();
    }
}

// Reports the kernel and the thread of a fault, and aborts.
void on_fault(int signal) {
    fprintf(stderr, "emulator: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): signal %d (%s)\n", kernel->name,
            blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, signal, strsignal(signal));
    abort();
}

#ifdef __SANITIZE_ADDRESS__
void on_death() {
    if (kernel == nullptr) return;
    fprintf(stderr, "emulator: kernel %s, block (%u, %u, %u), thread (%u, %u, %u)\n", kernel->name, blockIdx.x,
            blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
}
#endif

class Faults {
  public:
    Faults() {
#ifdef __SANITIZE_ADDRESS__
        (void)on_fault;
        __sanitizer_set_death_callback(on_death);
#else
        struct sigaction action = {};
        action.sa_handler = on_fault;
        action.sa_flags = SA_ONSTACK;
        sigaction(SIGSEGV, &action, &segv_);
        sigaction(SIGBUS, &action, &bus_);
        sigaction(SIGFPE, &action, &fpe_);
#endif
    }
    ~Faults() {
#ifndef __SANITIZE_ADDRESS__
        sigaction(SIGSEGV, &segv_, nullptr);
        sigaction(SIGBUS, &bus_, nullptr);
        sigaction(SIGFPE, &fpe_, nullptr);
#endif
    }

  private:
    struct sigaction segv_, bus_, fpe_;
};

} // namespace

const Kernel *kernels() { return list; }

bool add(Kernel *added) {
    added->next = list;
    list = added;
    return true;
}

void fail(Site site, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "emulator: kernel %s, block (%u, %u, %u), thread (%u, %u, %u)", kernel->name, blockIdx.x,
            blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    if (site.file != nullptr) fprintf(stderr, ", %s:%d", site.file, site.line);
    fprintf(stderr, ": %s\n", text);
    abort();
}

unsigned sync_block(unsigned value, Site site) {
    if (waiting == 0) barrier = site;
    // Barriers are compared by their lines: code that is inlined in two places still has one line.
    if (barrier.line != site.line || strcmp(barrier.file, site.file) != 0)
        fail(site, "this __syncthreads() meets another one, %s:%d", barrier.file, barrier.line);
    waiting++;
    sum += value;
    if (waiting == threads.size()) {
        last_sum = sum;
        waiting = sum = 0;
        watch_barrier();
        for (size_t at = 0; at < threads.size(); at++) {
            if (threads[at].state == Thread::in_block) go_on(at);
        }
        return last_sum;
    }
    current->state = Thread::in_block;
    current->site = site;
    wait();
    return last_sum;
}

unsigned long long collective(Collective what, unsigned mask, unsigned long long value, unsigned from, Site site) {
    size_t own = (size_t)(current - threads.data());
    if ((mask >> own % 32 & 1) == 0) fail(site, "%s with mask %08x, which lacks the calling lane", name_of(what), mask);
    *current = {current->index, current->fiber, current->has_waited_for_previous, site, value, 0, from, mask, what,
                Thread::in_warp};
    in_warp[own / 32] |= 1u << own % 32;
    if (!meet(own / 32 * 32, what, mask)) wait();
    return current->result;
}

void wait_for_previous() { current->has_waited_for_previous = true; }

void run(const Kernel &launched, const Launch &launch, const void *given) {
    Faults faults;
    kernel = &launched;
    parameters = given;
    starts_early = launch.starts_early;
    const Dim3 &grid = gridDim = launch.grid, &block = blockDim = launch.block;
    size_t count = (size_t)block.x * block.y * block.z;
    threads.assign(count, Thread());
    ready.assign((count + 31) / 32, 0);
    in_warp = ended = ready;
    for (size_t at = 0; at < count; at++) {
        unsigned linear = (unsigned)at;
        threads[at].index = {linear % block.x, linear / block.x % block.y, linear / block.x / block.y};
    }
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++) {
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++) {
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) run_block();
        }
    }
    kernel = nullptr;
}

} // namespace emulator
