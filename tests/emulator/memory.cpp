// The driver's calls for memory: of the devices, page-locked, and copies.
#include <stdlib.h>
#include <string.h>

#include "entry.h"

using namespace emulator;

typedef uintptr_t Address;

// The most bytes of new memory that get a pattern, so that memory which is never written is not zero.
static const size_t PATTERN_BYTES = 64 << 20;

static int allocate(Context &context, Address *address, size_t bytes) {
    if (bytes == 0) return INVALID_VALUE;
    if (bytes > state().knobs.memory_bytes - context.used || is_refused(Asked::allocation)) return OUT_OF_MEMORY;
    void *memory = nullptr;
    if (posix_memalign(&memory, 512, bytes) != 0) return OUT_OF_MEMORY;
    memset(memory, 0xa5, bytes < PATTERN_BYTES ? bytes : PATTERN_BYTES);
    *address = reinterpret_cast<Address>(memory);
    context.memory[*address] = bytes;
    context.used += bytes;
    return SUCCESS;
}

static int release(Context &context, Address address) {
    auto found = context.memory.find(address);
    if (found == context.memory.end())
        return explain(INVALID_VALUE, "%#zx is no allocation of device %d", address, context.device);
    context.used -= found->second;
    free(reinterpret_cast<void *>(address));
    context.memory.erase(found);
    return SUCCESS;
}

API cuMemGetInfo_v2(size_t *available, size_t *total) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        *total = state().knobs.memory_bytes;
        *available = *total - context.used;
        return SUCCESS;
    });
}

API cuMemAlloc_v2(Address *address, size_t bytes) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        if (is_capturing()) return STREAM_CAPTURE_UNSUPPORTED;
        return allocate(context, address, bytes);
    });
}

API cuMemFree_v2(Address address) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        if (address == 0) return SUCCESS;
        if (is_capturing()) return STREAM_CAPTURE_UNSUPPORTED;
        drain(&context);
        if (context.broken != SUCCESS) return context.broken;
        return release(context, address);
    });
}

API cuMemAllocAsync(Address *address, size_t bytes, Stream *handle) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        Stream *stream = stream_of(context, handle);
        if (stream == nullptr) return INVALID_HANDLE;
        if (stream->captured) return explain(NOT_SUPPORTED, "cuMemAllocAsync in a capture is not emulated");
        return allocate(context, address, bytes);
    });
}

API cuMemFreeAsync(Address address, Stream *handle) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        Stream *stream = stream_of(context, handle);
        if (stream == nullptr) return INVALID_HANDLE;
        if (context.memory.count(address) == 0) return INVALID_VALUE;
        Context *at = &context;
        return submit(stream, [=] { release(*at, address); });
    });
}

// Page-locked memory.

API cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        if (bytes == 0) return INVALID_VALUE;
        if (is_capturing()) return STREAM_CAPTURE_UNSUPPORTED;
        if (is_refused(Asked::allocation) || posix_memalign(memory, 4096, bytes) != 0) return OUT_OF_MEMORY;
        memset(*memory, 0xa5, bytes < PATTERN_BYTES ? bytes : PATTERN_BYTES);
        state().pinned[reinterpret_cast<uintptr_t>(*memory)] = bytes;
        return SUCCESS;
    });
}

API cuMemAllocHost_v2(void **memory, size_t bytes) { return cuMemHostAlloc(memory, bytes, 0); }

API cuMemFreeHost(void *memory) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        if (is_capturing()) return STREAM_CAPTURE_UNSUPPORTED;
        for (auto &context : state().contexts) drain(context.get());
        if (state().pinned.erase(reinterpret_cast<uintptr_t>(memory)) == 0) return INVALID_VALUE;
        free(memory);
        return SUCCESS;
    });
}

API cuMemHostRegister_v2(void *memory, size_t bytes, unsigned) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        if (memory == nullptr || bytes == 0) return INVALID_VALUE;
        bool added = state().pinned.emplace(reinterpret_cast<uintptr_t>(memory), bytes).second;
        return added ? SUCCESS : HOST_MEMORY_ALREADY_REGISTERED;
    });
}

API cuMemHostUnregister(void *memory) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        for (auto &context : state().contexts) drain(context.get());
        return state().pinned.erase(reinterpret_cast<uintptr_t>(memory)) > 0 ? SUCCESS : HOST_MEMORY_NOT_REGISTERED;
    });
}

API cuMemHostGetDevicePointer_v2(Address *address, void *memory, unsigned) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        *address = reinterpret_cast<Address>(memory);
        return is_pinned(*address, 1) ? SUCCESS : INVALID_VALUE;
    });
}

API cuPointerGetAttribute(void *value, int attribute, Address address) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        int device = owner(address);
        // The attributes are CONTEXT, MEMORY_TYPE (1 host, 2 device) and DEVICE_ORDINAL.
        if (device < 0 && !(is_pinned(address, 1) && attribute == 2)) return INVALID_VALUE;
        if (attribute == 1)
            *static_cast<Context **>(value) = state().contexts[(size_t)device].get();
        else if (attribute == 2)
            *static_cast<unsigned *>(value) = device < 0 ? 1 : 2;
        else if (attribute == 9)
            *static_cast<int *>(value) = device;
        else
            return NOT_SUPPORTED;
        return SUCCESS;
    });
}

// Memory that is not the driver's has no attributes, which is not an error.
API cuPointerGetAttributes(unsigned count, int *attributes, void **values, Address address) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        for (unsigned i = 0; i < count; i++) {
            if (attributes[i] != 2) return NOT_SUPPORTED;
            *static_cast<unsigned *>(values[i]) = owner(address) >= 0 ? 2 : is_pinned(address, 1) ? 1 : 0;
        }
        return SUCCESS;
    });
}

// Copies. The memory of a copy is checked when it is submitted and again when it is done: it may be freed meanwhile.

// True if the call may touch these bytes of the context's device. If not, prints why.
static bool touches(const char *call, const Context &context, Address at, size_t bytes) {
    if (is_device(context, at, bytes)) return true;
    int device = owner(at);
    if (device >= 0 && device != context.device) {
        explain(INVALID_VALUE, "%s: %#zx is on device %d, the context's is %d", call, at, device, context.device);
    } else {
        explain(INVALID_VALUE, "%s: %zu bytes at %#zx are not within one allocation of device %d", call, bytes, at,
                context.device);
    }
    return false;
}

// Wraps work that touches memory of the device: the work breaks the context if the memory is gone.
static Work checked(const char *call, Context &context, Address at, size_t bytes, Work work) {
    Context *broken = &context;
    return [=] {
        if (touches(call, *broken, at, bytes))
            work();
        else
            broken->broken = ILLEGAL_ADDRESS;
    };
}

static int to_device(const char *call, Address to, const void *from, size_t bytes, Stream *handle, bool wait) {
    return entry(call, Needs::context, [&](Context &context) -> int {
        Stream *stream = stream_of(context, handle);
        if (stream == nullptr) return explain(INVALID_HANDLE, "%s: a stream of another device", call);
        if (!touches(call, context, to, bytes)) return INVALID_VALUE;
        if (bytes > 0 && owner(reinterpret_cast<Address>(from)) >= 0) {
            return explain(INVALID_VALUE, "%s: the source is memory of a device", call);
        }
        if (is_refused(Asked::copy)) return OUT_OF_MEMORY;
        Work work;
        if (is_pinned(reinterpret_cast<Address>(from), bytes) || stream->captured) {
            work = [=] { memcpy(reinterpret_cast<void *>(to), from, bytes); };
        } else {
            // The caller may reuse memory that is not page-locked as soon as the call returns.
            const char *first = static_cast<const char *>(from);
            auto copy = std::make_shared<std::vector<char>>(first, first + bytes);
            work = [=] { memcpy(reinterpret_cast<void *>(to), copy->data(), bytes); };
        }
        if (wait && is_capturing()) return STREAM_CAPTURE_UNSUPPORTED;
        int result = submit(stream, checked(call, context, to, bytes, std::move(work)));
        if (wait) drain(stream, stream->submitted);
        return result != SUCCESS ? result : wait ? context.broken : SUCCESS;
    });
}

API cuMemcpyHtoD_v2(Address to, const void *from, size_t bytes) {
    return to_device(__func__, to, from, bytes, nullptr, true);
}

API cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, Stream *stream) {
    return to_device(__func__, to, from, bytes, stream, false);
}

static int to_host(const char *call, void *to, Address from, size_t bytes, Stream *handle, bool wait) {
    return entry(call, Needs::context, [&](Context &context) -> int {
        Stream *stream = stream_of(context, handle);
        if (stream == nullptr) return explain(INVALID_HANDLE, "%s: a stream of another device", call);
        if (!touches(call, context, from, bytes)) return INVALID_VALUE;
        if (wait && is_capturing()) return STREAM_CAPTURE_UNSUPPORTED;
        if (is_refused(Asked::copy)) return OUT_OF_MEMORY;
        Context *on = &context;
        Work work = [=] {
            if (++state().downloads == state().knobs.fail_download) {
                on->broken = explain(ILLEGAL_ADDRESS, "copy %llu to the host, of %zu bytes, fails as EMULATOR_FAIL_DOWNLOAD asks",
                                     (unsigned long long)state().downloads, bytes);
            } else {
                memcpy(to, reinterpret_cast<const void *>(from), bytes);
            }
        };
        int result = submit(stream, checked(call, context, from, bytes, std::move(work)));
        if (wait) drain(stream, stream->submitted);
        return result != SUCCESS ? result : wait ? context.broken : SUCCESS;
    });
}

API cuMemcpyDtoH_v2(void *to, Address from, size_t bytes) { return to_host(__func__, to, from, bytes, nullptr, true); }

API cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Stream *stream) {
    return to_host(__func__, to, from, bytes, stream, false);
}

static int between(const char *call, Context *to_context, Address to, Context *from_context, Address from, size_t bytes,
                   Stream *handle, bool wait) {
    return entry(call, Needs::context, [&](Context &context) -> int {
        Stream *stream = stream_of(context, handle);
        if (stream == nullptr) return explain(INVALID_HANDLE, "%s: a stream of another device", call);
        Context *target = to_context != nullptr ? to_context : &context;
        Context *source = from_context != nullptr ? from_context : &context;
        if (!is_context(target) || !is_context(source)) return INVALID_CONTEXT;
        if (!touches(call, *target, to, bytes) || !touches(call, *source, from, bytes)) return INVALID_VALUE;
        if (wait && is_capturing()) return STREAM_CAPTURE_UNSUPPORTED;
        if (is_refused(Asked::copy)) return OUT_OF_MEMORY;
        Work copy = [=] { memmove(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes); };
        Work work = checked(call, *target, to, bytes, checked(call, *source, from, bytes, std::move(copy)));
        int result = submit(stream, std::move(work));
        if (wait) drain(stream, stream->submitted);
        return result != SUCCESS ? result : wait ? context.broken : SUCCESS;
    });
}

API cuMemcpyDtoD_v2(Address to, Address from, size_t bytes) {
    return between(__func__, nullptr, to, nullptr, from, bytes, nullptr, true);
}

API cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream *stream) {
    return between(__func__, nullptr, to, nullptr, from, bytes, stream, false);
}

API cuMemcpyPeer(Address to, Context *to_context, Address from, Context *from_context, size_t bytes) {
    return between(__func__, to_context, to, from_context, from, bytes, nullptr, true);
}

API cuMemcpyPeerAsync(Address to, Context *to_context, Address from, Context *from_context, size_t bytes,
                      Stream *stream) {
    return between(__func__, to_context, to, from_context, from, bytes, stream, false);
}

template <class T> static int fill(const char *call, Address at, T value, size_t count, Stream *handle, bool wait) {
    return entry(call, Needs::context, [&](Context &context) -> int {
        Stream *stream = stream_of(context, handle);
        if (stream == nullptr) return explain(INVALID_HANDLE, "%s: a stream of another device", call);
        if (at % sizeof(T) != 0 || !touches(call, context, at, count * sizeof(T))) return INVALID_VALUE;
        if (wait && is_capturing()) return STREAM_CAPTURE_UNSUPPORTED;
        if (is_refused(Asked::copy)) return OUT_OF_MEMORY;
        Work work = [=] {
            T *first = reinterpret_cast<T *>(at);
            for (size_t i = 0; i < count; i++) first[i] = value;
        };
        int result = submit(stream, checked(call, context, at, count * sizeof(T), std::move(work)));
        if (wait) drain(stream, stream->submitted);
        return result != SUCCESS ? result : wait ? context.broken : SUCCESS;
    });
}

API cuMemsetD8_v2(Address at, unsigned char value, size_t count) {
    return fill(__func__, at, value, count, nullptr, true);
}

API cuMemsetD8Async(Address at, unsigned char value, size_t count, Stream *stream) {
    return fill(__func__, at, value, count, stream, false);
}

API cuMemsetD32_v2(Address at, unsigned value, size_t count) { return fill(__func__, at, value, count, nullptr, true); }

API cuMemsetD32Async(Address at, unsigned value, size_t count, Stream *stream) {
    return fill(__func__, at, value, count, stream, false);
}
