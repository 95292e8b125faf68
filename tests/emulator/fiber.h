// Fibres: stacks that are switched between by hand, without the system calls of swapcontext.
#pragma once

#include <stddef.h>

namespace emulator {

struct Fiber;

// A fibre that calls `entry(argument)`, which never returns, when it is first resumed.
Fiber *make_fiber(void (*entry)(void *), void *argument);

// Goes on with `fiber` until it suspends itself. To be called from outside of fibres.
void resume(Fiber *fiber);

// Goes back to where this fibre was resumed. To be called from within it.
void suspend();

} // namespace emulator
