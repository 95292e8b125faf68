// Fibres: threads whose stacks are switched by hand, without the system calls of swapcontext.
#pragma once

#include <stddef.h>

namespace emulator {

struct Fiber;

// Makes a fibre that calls `entry(argument)`, which never returns, when it is first resumed.
Fiber *make_fiber(void (*entry)(void *), void *argument);

// Runs a fibre until it suspends itself. To be called from outside of fibres.
void resume(Fiber *fiber);

// Returns to the place where the running fibre was resumed. To be called from within a fibre.
void suspend();

} // namespace emulator
