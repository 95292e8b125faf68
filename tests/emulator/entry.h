// The entry of a call into the driver: lock, checks and log.
#pragma once

#include "state.h"

#define API extern "C" __attribute__((visibility("default"))) int

namespace emulator {

// Requirement of a call: nothing, cuInit, or a context that is not broken.
enum class Needs { nothing, driver, context };

inline bool is_context(const Context *context) {
    for (auto &known : state().contexts) {
        if (known.get() == context) return true;
    }
    return false;
}

inline bool is_function(const Context &context, const Function *function) {
    for (const Module *module : context.modules) {
        for (auto &[name, known] : module->functions) {
            if (known.get() == function) return true;
        }
    }
    return false;
}

// Returns the context's stream of a handle; null if there is none. The handles 0 to 2 stand for the null stream.
inline Stream *stream_of(Context &context, Stream *handle) {
    if (reinterpret_cast<uintptr_t>(handle) <= 2) return &context.null_stream;
    return context.streams.count(handle) > 0 ? handle : nullptr;
}

// Returns the stream of a handle in any context; null if there is none.
inline Stream *stream_of_any(Stream *handle) {
    if (reinterpret_cast<uintptr_t>(handle) <= 2) return current() != nullptr ? &current()->null_stream : nullptr;
    for (auto &context : state().contexts) {
        if (context->streams.count(handle) > 0) return handle;
    }
    return nullptr;
}

template <class Call> int entry(const char *name, Needs needs, Call call) {
    std::lock_guard<std::recursive_mutex> guard(lock());
    static Context none{};
    Context *context = current();
    if (needs != Needs::nothing && !state().initialized) return logged(name, NOT_INITIALIZED);
    if (needs == Needs::context) {
        if (context == nullptr || context->retained == 0) return logged(name, INVALID_CONTEXT);
        if (context->broken != SUCCESS) return logged(name, context->broken);
    }
    return logged(name, call(context != nullptr ? *context : none));
}

template <class Call> int entry_of_device(const char *name, int device, Call call) {
    return entry(name, Needs::driver, [&](Context &) -> int {
        if (device < 0 || device >= state().knobs.devices) return INVALID_DEVICE;
        return call(*state().contexts[(size_t)device]);
    });
}

// Enqueues a kernel, for CUDA's call and for HIP's.
int launch_kernel(Function *function, Dim3 grid, Dim3 block, unsigned shared, Stream *stream, void **parameters,
                  void **extra, bool starts_early = false);

} // namespace emulator
