#include "fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

// Other machines, and EMULATOR_PORTABLE, use the switch of the C library, which is ten times slower.
#if defined(__x86_64__) && !defined(EMULATOR_PORTABLE)
#define EMULATOR_SWITCH
#else
#include <ucontext.h>
#endif

namespace emulator {

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr size_t STACK_BYTES = 512 << 10;
#else
constexpr size_t STACK_BYTES = 128 << 10;
#endif

} // namespace

struct Fiber {
    char *stack;
    void (*entry)(void *);
    void *argument;
#ifdef EMULATOR_SWITCH
    void *at;
#else
    ucontext_t at;
#endif
    void *fake_stack;
};

namespace {

Fiber *running;
#ifdef EMULATOR_SWITCH
void *outside;
#else
ucontext_t outside;
#endif

#ifdef __SANITIZE_ADDRESS__
// The stack from which fibres are resumed.
const void *outside_stack;
size_t outside_bytes;
void *outside_fake_stack;
#endif

#ifdef EMULATOR_SWITCH

// Saves the registers that a call must preserve on this stack, and its pointer in `*from`. Then restores them from `to`.
extern "C" void emulator_switch(void **from, void *to);

asm(R"(
    .text
    .hidden emulator_switch
    .globl emulator_switch
    .type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulator_switch, . - emulator_switch
)");

#endif

void arrived() {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(running->fake_stack, &outside_stack, &outside_bytes);
#endif
}

void start() {
    arrived();
    running->entry(running->argument);
    abort();
}

} // namespace

Fiber *make_fiber(void (*entry)(void *), void *argument) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = static_cast<char *>(
        mmap(nullptr, STACK_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    // An overflow of the stack faults in the lowest page.
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
        perror("emulator: a fibre's stack");
        abort();
    }
    Fiber *fiber = new Fiber();
    fiber->stack = memory + page;
    fiber->entry = entry;
    fiber->argument = argument;
#ifdef EMULATOR_SWITCH
    // The stack is as emulator_switch leaves one: six registers, then the return address. It is 16-byte aligned after a
    // call to `start`.
    void **top = reinterpret_cast<void **>(fiber->stack + STACK_BYTES) - 2;
    top[0] = reinterpret_cast<void *>(&start);
    fiber->at = top - 6;
#else
    getcontext(&fiber->at);
    fiber->at.uc_stack.ss_sp = fiber->stack;
    fiber->at.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber->at, start, 0);
#endif
    return fiber;
}

void resume(Fiber *fiber) {
    running = fiber;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&outside_fake_stack, fiber->stack, STACK_BYTES);
#endif
#ifdef EMULATOR_SWITCH
    emulator_switch(&outside, fiber->at);
#else
    swapcontext(&outside, &fiber->at);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(outside_fake_stack, nullptr, nullptr);
#endif
}

void suspend() {
    Fiber *self = running;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&self->fake_stack, outside_stack, outside_bytes);
#endif
#ifdef EMULATOR_SWITCH
    emulator_switch(&self->at, outside);
#else
    swapcontext(&self->at, &outside);
#endif
    arrived();
}

} // namespace emulator
