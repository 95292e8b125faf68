// HIP's calls over the same devices, with which the emulator is a libamdhip64.so. Each call does what CUDA's call of
// that name does, on the device that the calling thread has set.

// Variables of the environment, with their defaults in brackets:
// - EMULATOR_HIP_VERSION (60400000): result of hipDriverGetVersion.
// - EMULATOR_HIP_FAMILY (84, gfx11-generic): family of the devices, by its number in the header of an image.
// - EMULATOR_HIP_FAIL=N: the N-th call of the process fails with hipErrorUnknown and does nothing.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"

using namespace emulator;

namespace {

constexpr int UNKNOWN = 999;
constexpr unsigned short AMDGPU = 224;

long long number(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text != nullptr && *text != 0 ? atoll(text) : otherwise;
}

// Does a call on the thread's device, which is the first one until the thread sets another.
template <class Call> int on_device(Call call) {
    std::lock_guard<std::recursive_mutex> guard(lock());
    static const long long fails = number("EMULATOR_HIP_FAIL", 0);
    static long long calls = 0;
    if (++calls == fails) return UNKNOWN;
    if (state().knobs.devices > 0) {
        if (current() == nullptr) current() = state().contexts[0].get();
        // HIP does not count the users of a device: it is there as long as the process.
        if (current()->retained == 0) current()->retained = 1;
    }
    return call();
}

} // namespace

API cuInit(unsigned);
API cuCtxSynchronize();
API cuDeviceGetCount(int *);
API cuDeviceGetName(char *, int, int);
API cuDeviceGetUuid_v2(unsigned char *, int);
API cuEventCreate(Event **, unsigned);
API cuEventDestroy_v2(Event *);
API cuEventElapsedTime(float *, Event *, Event *);
API cuEventQuery(Event *);
API cuEventRecord(Event *, Stream *);
API cuEventSynchronize(Event *);
API cuGraphDestroy(Graph *);
API cuGraphExecDestroy(Executable *);
API cuGraphInstantiateWithFlags(Executable **, Graph *, unsigned long long);
API cuGraphLaunch(Executable *, Stream *);
API cuMemAlloc_v2(uintptr_t *, size_t);
API cuMemFree_v2(uintptr_t);
API cuMemFreeHost(void *);
API cuMemHostAlloc(void **, size_t, unsigned);
API cuMemHostRegister_v2(void *, size_t, unsigned);
API cuMemHostUnregister(void *);
API cuMemcpyDtoDAsync_v2(uintptr_t, uintptr_t, size_t, Stream *);
API cuMemcpyDtoHAsync_v2(void *, uintptr_t, size_t, Stream *);
API cuMemcpyHtoDAsync_v2(uintptr_t, const void *, size_t, Stream *);
API cuMemcpyPeerAsync(uintptr_t, Context *, uintptr_t, Context *, size_t, Stream *);
API cuMemsetD8Async(uintptr_t, unsigned char, size_t, Stream *);
API cuModuleGetFunction(Function **, Module *, const char *);
API cuModuleLoadData(Module **, const void *);
API cuModuleUnload(Module *);
API cuPointerGetAttributes(unsigned, int *, void **, uintptr_t);
API cuStreamBeginCapture_v2(Stream *, int);
API cuStreamCreate(Stream **, unsigned);
API cuStreamDestroy_v2(Stream *);
API cuStreamEndCapture(Stream *, Graph **);
API cuStreamSynchronize(Stream *);
API cuStreamWaitEvent(Stream *, Event *, unsigned);
API cuThreadExchangeStreamCaptureMode(int *);

extern "C" __attribute__((visibility("default"))) const char *hipGetErrorName(int result) {
    static const std::map<int, const char *> names = {
        {SUCCESS, "hipSuccess"},
        {INVALID_VALUE, "hipErrorInvalidValue"},
        {OUT_OF_MEMORY, "hipErrorOutOfMemory"},
        {NOT_INITIALIZED, "hipErrorNotInitialized"},
        {NO_DEVICE, "hipErrorNoDevice"},
        {INVALID_DEVICE, "hipErrorInvalidDevice"},
        {INVALID_IMAGE, "hipErrorInvalidImage"},
        {INVALID_CONTEXT, "hipErrorInvalidContext"},
        {NO_BINARY_FOR_GPU, "hipErrorNoBinaryForGpu"},
        {INVALID_HANDLE, "hipErrorInvalidHandle"},
        {ILLEGAL_STATE, "hipErrorIllegalState"},
        {NOT_FOUND, "hipErrorNotFound"},
        {ILLEGAL_ADDRESS, "hipErrorIllegalAddress"},
        {HOST_MEMORY_ALREADY_REGISTERED, "hipErrorHostMemoryAlreadyRegistered"},
        {HOST_MEMORY_NOT_REGISTERED, "hipErrorHostMemoryNotRegistered"},
        {NOT_SUPPORTED, "hipErrorNotSupported"},
        {STREAM_CAPTURE_UNSUPPORTED, "hipErrorStreamCaptureUnsupported"},
        {STREAM_CAPTURE_INVALIDATED, "hipErrorStreamCaptureInvalidated"},
        {STREAM_CAPTURE_ISOLATION, "hipErrorStreamCaptureIsolation"},
        {CAPTURED_EVENT, "hipErrorCapturedEvent"},
    };
    auto found = names.find(result);
    return found != names.end() ? found->second : "hipErrorUnknown";
}

// Devices.

API hipInit(unsigned flags) {
    return on_device([=] { return cuInit(flags); });
}

API hipDriverGetVersion(int *version) {
    *version = (int)number("EMULATOR_HIP_VERSION", 60'400'000);
    return SUCCESS;
}

API hipGetDeviceCount(int *count) {
    if (state().knobs.devices == 0) return NO_DEVICE;
    return on_device([=] { return cuDeviceGetCount(count); });
}

API hipSetDevice(int device) {
    return on_device([=]() -> int {
        if (device < 0 || device >= state().knobs.devices) return INVALID_DEVICE;
        current() = state().contexts[(size_t)device].get();
        current()->retained = 1;
        return SUCCESS;
    });
}

API hipDeviceGetName(char *name, int bytes, int device) {
    return on_device([=] { return cuDeviceGetName(name, bytes, device); });
}

API hipDeviceGetUuid(unsigned char *uuid, int device) {
    return on_device([=] { return cuDeviceGetUuid_v2(uuid, device); });
}

API hipDeviceGetAttribute(int *value, int attribute, int device) {
    return on_device([=]() -> int {
        if (device < 0 || device >= state().knobs.devices) return INVALID_DEVICE;
        // hipDeviceAttributeMultiprocessorCount
        if (attribute != 63) return INVALID_VALUE;
        *value = 4;
        return SUCCESS;
    });
}

API hipDeviceSynchronize() {
    return on_device([] { return cuCtxSynchronize(); });
}

// Modules and launches.

API hipModuleLoadData(Module **module, const void *image) {
    return on_device([=]() -> int {
        const char *header = static_cast<const char *>(image);
        unsigned short machine;
        memcpy(&machine, header + 18, sizeof machine);
        if (memcmp(header, "\x7f" "ELF", 4) != 0 || machine != AMDGPU)
            return explain(INVALID_IMAGE, "hipModuleLoadData: the image is no code object of AMD");
        unsigned char family = (unsigned char)header[48];
        if (family != number("EMULATOR_HIP_FAMILY", 84)) return NO_BINARY_FOR_GPU;
        return cuModuleLoadData(module, image);
    });
}

API hipModuleUnload(Module *module) {
    return on_device([=] { return cuModuleUnload(module); });
}

API hipModuleGetFunction(Function **function, Module *module, const char *name) {
    return on_device([=] { return cuModuleGetFunction(function, module, name); });
}

API hipModuleLaunchKernel(Function *function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y,
                          unsigned block_z, unsigned shared, Stream *stream, void **parameters, void **extra) {
    return on_device([=]() -> int {
        // HIP counts threads in 32 bits.
        if ((uint64_t)x * block_x >> 32 != 0 || (uint64_t)y * block_y >> 32 != 0 || (uint64_t)z * block_z >> 32 != 0)
            return explain(INVALID_VALUE, "a launch of %u, %u, %u blocks of %u has 2^32 threads or more", x, y, z, block_x);
        return launch_kernel(function, {x, y, z}, {block_x, block_y, block_z}, shared, stream, parameters, extra);
    });
}

// Streams, events, graphs.

API hipStreamCreateWithFlags(Stream **stream, unsigned flags) {
    return on_device([=] { return cuStreamCreate(stream, flags); });
}

API hipStreamDestroy(Stream *stream) {
    return on_device([=] { return cuStreamDestroy_v2(stream); });
}

API hipStreamSynchronize(Stream *stream) {
    return on_device([=] { return cuStreamSynchronize(stream); });
}

API hipStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    return on_device([=] { return cuStreamWaitEvent(stream, event, flags); });
}

API hipEventCreateWithFlags(Event **event, unsigned flags) {
    return on_device([=] { return cuEventCreate(event, flags); });
}

API hipEventDestroy(Event *event) {
    return on_device([=] { return cuEventDestroy_v2(event); });
}

API hipEventRecord(Event *event, Stream *stream) {
    return on_device([=] { return cuEventRecord(event, stream); });
}

API hipEventSynchronize(Event *event) {
    return on_device([=] { return cuEventSynchronize(event); });
}

API hipEventQuery(Event *event) {
    return on_device([=] { return cuEventQuery(event); });
}

API hipEventElapsedTime(float *milliseconds, Event *since, Event *until) {
    return on_device([=] { return cuEventElapsedTime(milliseconds, since, until); });
}

API hipStreamBeginCapture(Stream *stream, int mode) {
    return on_device([=] { return cuStreamBeginCapture_v2(stream, mode); });
}

API hipThreadExchangeStreamCaptureMode(int *mode) {
    return on_device([=] { return cuThreadExchangeStreamCaptureMode(mode); });
}

API hipStreamEndCapture(Stream *stream, Graph **graph) {
    return on_device([=] { return cuStreamEndCapture(stream, graph); });
}

API hipGraphInstantiateWithFlags(Executable **executable, Graph *graph, unsigned long long flags) {
    return on_device([=] { return cuGraphInstantiateWithFlags(executable, graph, flags); });
}

API hipGraphLaunch(Executable *executable, Stream *stream) {
    return on_device([=] { return cuGraphLaunch(executable, stream); });
}

API hipGraphDestroy(Graph *graph) {
    return on_device([=] { return cuGraphDestroy(graph); });
}

API hipGraphExecDestroy(Executable *executable) {
    return on_device([=] { return cuGraphExecDestroy(executable); });
}

// Memory.

API hipMalloc(uintptr_t *address, size_t bytes) {
    return on_device([=] { return cuMemAlloc_v2(address, bytes); });
}

API hipFree(uintptr_t address) {
    return on_device([=] { return cuMemFree_v2(address); });
}

API hipHostMalloc(void **memory, size_t bytes, unsigned flags) {
    return on_device([=] { return cuMemHostAlloc(memory, bytes, flags); });
}

API hipHostFree(void *memory) {
    return on_device([=] { return cuMemFreeHost(memory); });
}

API hipHostRegister(void *memory, size_t bytes, unsigned flags) {
    return on_device([=] { return cuMemHostRegister_v2(memory, bytes, flags); });
}

API hipHostUnregister(void *memory) {
    return on_device([=] { return cuMemHostUnregister(memory); });
}

API hipDrvPointerGetAttributes(unsigned count, int *attributes, void **values, uintptr_t address) {
    return on_device([=] { return cuPointerGetAttributes(count, attributes, values, address); });
}

API hipMemcpyHtoDAsync(uintptr_t to, const void *from, size_t bytes, Stream *stream) {
    return on_device([=] { return cuMemcpyHtoDAsync_v2(to, from, bytes, stream); });
}

API hipMemcpyDtoHAsync(void *to, uintptr_t from, size_t bytes, Stream *stream) {
    return on_device([=] { return cuMemcpyDtoHAsync_v2(to, from, bytes, stream); });
}

API hipMemcpyDtoDAsync(uintptr_t to, uintptr_t from, size_t bytes, Stream *stream) {
    return on_device([=] { return cuMemcpyDtoDAsync_v2(to, from, bytes, stream); });
}

API hipMemcpyPeerAsync(uintptr_t to, int to_device, uintptr_t from, int from_device, size_t bytes, Stream *stream) {
    return on_device([=]() -> int {
        for (int device : {to_device, from_device}) {
            if (device < 0 || device >= state().knobs.devices) return INVALID_DEVICE;
        }
        auto context = [](int device) { return state().contexts[(size_t)device].get(); };
        return cuMemcpyPeerAsync(to, context(to_device), from, context(from_device), bytes, stream);
    });
}

API hipMemsetD8Async(uintptr_t address, unsigned char value, size_t bytes, Stream *stream) {
    return on_device([=] { return cuMemsetD8Async(address, value, bytes, stream); });
}
