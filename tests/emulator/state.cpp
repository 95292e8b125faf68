#include "state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace emulator {

namespace {

long long number(const char *name, long long otherwise) {
    const char *text = getenv(name);
    if (text == nullptr || *text == 0) return otherwise;
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*end == 0 && value >= 0) return value;
    fprintf(stderr, "emulator: %s=%s is no whole number\n", name, text);
    abort();
}

void read_refusals(Refusals *refusals) {
    const char *names[] = {"EMULATOR_REFUSE_ALLOCATION", "EMULATOR_REFUSE_COPY", "EMULATOR_REFUSE_LAUNCH"};
    for (int asked = 0; asked < 3; asked++) {
        refusals[asked].first = (uint64_t)number(names[asked], 0);
        refusals[asked].count = (uint64_t)number("EMULATOR_REFUSE_COUNT", 1);
    }
}

Knobs read_knobs() {
    Knobs knobs;
    knobs.devices = (int)number("EMULATOR_DEVICES", 1);
    knobs.driver_version = (int)number("EMULATOR_DRIVER_VERSION", 13000);
    knobs.memory_bytes = (size_t)number("EMULATOR_MEMORY_MB", 4096) << 20;
    knobs.fail_launch = (uint64_t)number("EMULATOR_FAIL_LAUNCH", 0);
    knobs.fail_download = (uint64_t)number("EMULATOR_FAIL_DOWNLOAD", 0);
    knobs.eager = number("EMULATOR_EAGER", 0) != 0;
    return knobs;
}

FILE *file_of(const char *name) {
    const char *path = getenv(name);
    return path != nullptr && *path != 0 ? fopen(path, "a") : nullptr;
}

// Writes the name of a kernel to the file EMULATOR_KERNELS when it is first launched.
void note_launch(const Kernel &kernel) {
    static FILE *file = file_of("EMULATOR_KERNELS");
    static std::set<const Kernel *> noted;
    if (file == nullptr || !noted.insert(&kernel).second) return;
    fprintf(file, "%s\n", kernel.name);
    fflush(file);
}

struct Text {
    int result;
    const char *name, *text;
};

const Text TEXTS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "host memory already registered"},
    {HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "host memory not registered"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
};

const Text *find(int result) {
    for (const Text &text : TEXTS) {
        if (text.result == result) return &text;
    }
    return nullptr;
}

bool within(const std::map<uintptr_t, size_t> &ranges, uintptr_t at, size_t bytes) {
    auto next = ranges.upper_bound(at);
    if (next == ranges.begin()) return false;
    auto range = std::prev(next);
    return at - range->first <= range->second && bytes <= range->second - (at - range->first);
}

} // namespace

const char *name_of(int result) {
    const Text *text = find(result);
    return text != nullptr ? text->name : nullptr;
}

const char *text_of(int result) {
    const Text *text = find(result);
    return text != nullptr ? text->text : nullptr;
}

std::recursive_mutex &lock() {
    static std::recursive_mutex *mutex = new std::recursive_mutex();
    return *mutex;
}

State &state() {
    // Never destroyed: contexts are released by destructors of other libraries at any time.
    static State *state = [] {
        State *made = new State();
        made->knobs = read_knobs();
        read_refusals(made->refusals);
        for (int device = 0; device < made->knobs.devices; device++) {
            auto context = std::make_unique<Context>();
            context->device = device;
            context->null_stream.context = context.get();
            made->contexts.push_back(std::move(context));
        }
        return made;
    }();
    return *state;
}

Context *&current() {
    static thread_local Context *context;
    return context;
}

int logged(const char *function, int result) {
    static FILE *file = file_of("EMULATOR_LOG");
    if (file != nullptr) {
        Context *context = current();
        fprintf(file, "%s device %d: %d\n", function, context != nullptr ? context->device : -1, result);
        fflush(file);
    }
    return result;
}

int explain(int result, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "emulator: error %d: %s\n", result, text);
    return result;
}

bool is_device(const Context &context, uintptr_t at, size_t bytes) {
    return bytes == 0 || within(context.memory, at, bytes);
}

int owner(uintptr_t at) {
    for (auto &context : state().contexts) {
        if (within(context->memory, at, 1)) return context->device;
    }
    return -1;
}

bool is_pinned(uintptr_t at, size_t bytes) { return within(state().pinned, at, bytes); }

int submit(Stream *stream, Work work) {
    if (stream->captured) {
        if (stream->invalidated) return STREAM_CAPTURE_INVALIDATED;
        stream->captured->works.push_back(std::move(work));
        return SUCCESS;
    }
    Context *context = stream->context;
    if (stream == &context->null_stream) {
        for (Stream *other : context->streams) {
            if (other->blocking) drain(other, other->submitted);
        }
    } else if (stream->blocking) {
        drain(&context->null_stream, context->null_stream.submitted);
    }
    stream->submitted++;
    stream->waiting.push_back(std::move(work));
    if (state().knobs.eager) drain(stream, stream->submitted);
    return SUCCESS;
}

bool is_refused(Asked asked) {
    Refusals &of = state().refusals[(int)asked];
    of.calls++;
    bool refused = of.first > 0 && of.calls >= of.first && (of.count == 0 || of.calls - of.first < of.count);
    of.refused += refused;
    return refused;
}

void drain(Stream *stream, uint64_t until) {
    while (stream->ran < until && !stream->waiting.empty()) {
        // The work is taken out first: it may drain other streams, which may drain this one.
        std::vector<Work> works;
        size_t count = (size_t)(until - stream->ran);
        if (count > stream->waiting.size()) count = stream->waiting.size();
        for (size_t at = 0; at < count; at++) works.push_back(std::move(stream->waiting[at]));
        stream->waiting.erase(stream->waiting.begin(), stream->waiting.begin() + (long)count);
        for (Work &work : works) {
            if (stream->context->broken == SUCCESS) work();
            stream->ran++;
        }
    }
}

void drain(Context *context) {
    drain(&context->null_stream, context->null_stream.submitted);
    for (Stream *stream : context->streams) drain(stream, stream->submitted);
}

int &capture_mode() {
    static thread_local int mode = 0;
    return mode;
}

bool is_capturing() {
    // Modes: 0 is global, 1 the capturing thread's own, 2 relaxed, in which anything may be called.
    if (capture_mode() == 2) return false;
    bool found = false;
    for (auto &context : state().contexts) {
        for (Stream *stream : context->streams) {
            if (!stream->captured || stream->mode == 2) continue;
            if (stream->mode == 0 || stream->capturer == std::this_thread::get_id()) found = stream->invalidated = true;
        }
    }
    return found;
}

void launch(Context *context, const Kernel &kernel, const Launch &launch, const void *parameters) {
    if (context->broken != SUCCESS) return;
    state().launches++;
    if (state().launches == state().knobs.fail_launch) {
        context->broken =
            explain(ILLEGAL_ADDRESS, "launch %llu, of %s on device %d, fails as EMULATOR_FAIL_LAUNCH asks",
                    (unsigned long long)state().launches, kernel.name, context->device);
        return;
    }
    for (size_t at = 0; at + 8 <= kernel.size; at += 8) {
        uintptr_t word;
        memcpy(&word, static_cast<const char *>(parameters) + at, sizeof word);
        int device = owner(word);
        if (device < 0 || device == context->device || context->peers.count(device) > 0) continue;
        context->broken =
            explain(ILLEGAL_ADDRESS, "kernel %s runs on device %d, its parameter at byte %zu is on device %d",
                    kernel.name, context->device, at, device);
        return;
    }
    note_launch(kernel);
    run(kernel, launch, parameters);
}

} // namespace emulator
