// Finds shared memory that two threads of a block use, one of them to write, with no barrier between. Also finds reads
// of shared memory that no thread of the block has written. g++ -fsanitize=thread calls a function at each access of a
// kernel. These functions replace those of its library, which would watch threads of the system.
#include "races.h"

#ifdef EMULATOR_RACES

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <vector>

#include "block.h"

// Bounds of this library's variables without an initial value. Of these, a kernel uses shared memory alone.
extern "C" char __bss_start[] __attribute__((visibility("hidden")));
extern "C" char _end[] __attribute__((visibility("hidden")));

namespace emulator {

namespace {

struct Access {
    // Numbers of barriers that the block and the thread's warp had passed.
    uint32_t barriers, warp_barriers;
    // Offset of the code in this library.
    uint32_t code;
    // The thread's index plus 1; 0: there was no access.
    uint16_t thread;
    bool atomic;
};

// The last accesses to a byte of shared memory.
struct Cell {
    // The block of the accesses. Those of an older block do not count.
    uint32_t block;
    Access write;
    // Reads by the last two threads that read the byte, the later one first.
    Access reads[2];
};

uint32_t block, barriers;
std::vector<uint32_t> warp_barriers;
// The running thread; SIZE_MAX outside of a kernel.
size_t running = SIZE_MAX;
const void *atomic;

Cell *cells() {
    static Cell *cells = [] {
        size_t bytes = (size_t)(_end - __bss_start) * sizeof(Cell);
        void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) abort();
        return static_cast<Cell *>(memory);
    }();
    return cells;
}

uintptr_t base() {
    Dl_info info;
    return dladdr(__bss_start, &info) != 0 ? reinterpret_cast<uintptr_t>(info.dli_fbase) : 0;
}

// Prints the source lines of an access, from the innermost inlined function outwards.
void print(const char *what, const Access &access) {
    Dl_info info;
    fprintf(stderr, "emulator:   %s by thread %u%s:\n", what, access.thread - 1u, access.atomic ? ", atomic" : "");
    fflush(stderr);
    if (dladdr(__bss_start, &info) == 0) return;
    char command[1024];
    // 1 is subtracted because the return address of a call is the address of the next instruction.
    snprintf(command, sizeof command, "addr2line -e '%s' -ipfC %#x >&2", info.dli_fname, access.code - 1);
    if (system(command) != 0) fprintf(stderr, "emulator:   %s + %#x\n", info.dli_fname, access.code);
}

[[noreturn]] void report(const char *what, const Access &now, const char *before, const Access &then) {
    if (then.thread != 0) print(before, then);
    print("then", now);
    fail({nullptr, 0}, "shared memory is %s", what);
}

// True if an earlier access and this one can't race: both are of one thread, or atomic, or a barrier is between them.
bool ordered(const Access &then, const Access &now) {
    if (then.thread == 0 || then.thread == now.thread || then.barriers < now.barriers) return true;
    bool one_warp = (then.thread - 1) / 32 == (now.thread - 1) / 32;
    return (one_warp && then.warp_barriers < now.warp_barriers) || (then.atomic && now.atomic);
}

void access(const void *at, size_t bytes, bool writes, void *code) {
    const char *first = static_cast<const char *>(at);
    if (running == SIZE_MAX || first < __bss_start || first >= _end) return;
    static const uintptr_t loaded_at = base();
    Access now = {barriers, warp_barriers[running / 32], (uint32_t)(reinterpret_cast<uintptr_t>(code) - loaded_at),
                  (uint16_t)(running + 1), at == atomic};
    bool written = writes;
    for (size_t i = 0; i < bytes; i++) {
        Cell &cell = cells()[first - __bss_start + i];
        if (cell.block != block) cell = {block, {}, {}};
        if (!ordered(cell.write, now)) {
            report(writes ? "written by two threads, with no barrier between"
                          : "read after another thread's write, with no barrier between",
                   now, "written", cell.write);
        }
        if (writes) {
            for (const Access &read : cell.reads) {
                if (!ordered(read, now))
                    report("written after another thread's read, with no barrier between", now, "read", read);
            }
            cell.write = now;
        } else {
            written |= cell.write.thread != 0;
            if (cell.reads[0].thread != now.thread) cell.reads[1] = cell.reads[0];
            cell.reads[0] = now;
        }
    }
    // A struct that is copied may have bytes between its fields that nobody writes.
    if (!written) report("read, and no thread of the block has written it", now, "", {});
}

} // namespace

void watch_block(size_t threads) {
    block++;
    barriers = 0;
    warp_barriers.assign((threads + 31) / 32, 0);
}

void watch_thread(size_t thread) { running = thread; }
void watch_barrier() { barriers++; }
void watch_warp(size_t warp) { warp_barriers[warp]++; }
void watch_atomic(const void *at) { atomic = at; }

} // namespace emulator

#define WATCH extern "C" __attribute__((visibility("hidden"))) void
#define WATCH_BYTES(BYTES)                                                                                             \
    WATCH __tsan_read##BYTES(void *at) { emulator::access(at, BYTES, false, __builtin_return_address(0)); }            \
    WATCH __tsan_write##BYTES(void *at) { emulator::access(at, BYTES, true, __builtin_return_address(0)); }            \
    WATCH __tsan_unaligned_read##BYTES(void *at) { emulator::access(at, BYTES, false, __builtin_return_address(0)); }  \
    WATCH __tsan_unaligned_write##BYTES(void *at) { emulator::access(at, BYTES, true, __builtin_return_address(0)); }
WATCH_BYTES(1)
WATCH_BYTES(2)
WATCH_BYTES(4)
WATCH_BYTES(8)
WATCH_BYTES(16)
WATCH __tsan_read_range(void *at, size_t bytes) { emulator::access(at, bytes, false, __builtin_return_address(0)); }
WATCH __tsan_write_range(void *at, size_t bytes) { emulator::access(at, bytes, true, __builtin_return_address(0)); }
WATCH __tsan_init() {}
WATCH __tsan_func_entry(void *) {}
WATCH __tsan_func_exit() {}
WATCH __tsan_vptr_update(void **, void *) {}
WATCH __tsan_vptr_read(void **) {}

#endif
