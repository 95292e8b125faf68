// A CUDA driver for tests: libcuda.so.1 with the calls that robocache makes. Its kernels are those of kernels/, built for
// the host. Variables of the environment, with their defaults in brackets, describe the machine:

// - EMULATOR_DEVICES (1): number of devices. With 0, cuInit returns CUDA_ERROR_NO_DEVICE.
// - EMULATOR_DRIVER_VERSION (13000): result of cuDriverGetVersion. A driver of CUDA 12 loads only images for CUDA 12.
// - EMULATOR_MEMORY_MB (4096): memory of each device. Past it, allocations fail with CUDA_ERROR_OUT_OF_MEMORY.

// - EMULATOR_FAIL_LAUNCH=N: the N-th launch of the process (from 1) breaks its context as an illegal address does.
// - EMULATOR_FAIL_DOWNLOAD=N: the N-th copy from a device to the host breaks its context in the same way.

// - EMULATOR_REFUSE_ALLOCATION=N, EMULATOR_REFUSE_COPY=N, EMULATOR_REFUSE_LAUNCH=N: the N-th call of that kind fails with
//   CUDA_ERROR_OUT_OF_MEMORY and does nothing. Page-locked memory is an allocation, and a memset is a copy.
// - EMULATOR_REFUSE_COUNT (1): number of calls in a row that fail so; 0: all from the N-th on.

// - EMULATOR_EAGER=1: work is done when it is submitted, and not when it is waited for.
// - EMULATOR_ORDER=backwards: the threads of a block run from the last to the first.
// - EMULATOR_LOG: a file to which each call is appended, with its device and result.
// - EMULATOR_KERNELS: a file to which the name of each kernel is appended when it first runs.

// Work on a stream is done when something waits for it, which is as late as a driver may do it. Code that reads a
// result, or reuses page-locked memory, too early gets the wrong bytes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"

using namespace emulator;

API cuInit(unsigned) {
    return entry(__func__, Needs::nothing, [](Context &) -> int {
        if (state().knobs.devices == 0) return NO_DEVICE;
        state().initialized = true;
        return SUCCESS;
    });
}

API cuDriverGetVersion(int *version) {
    *version = state().knobs.driver_version;
    return SUCCESS;
}

API cuGetErrorName(int result, const char **name) {
    *name = name_of(result);
    return *name != nullptr ? SUCCESS : INVALID_VALUE;
}

API cuGetErrorString(int result, const char **text) {
    *text = text_of(result);
    return *text != nullptr ? SUCCESS : INVALID_VALUE;
}

// Sets the values of EMULATOR_REFUSE_... for one kind of call in this process, and counts the calls anew. Returns the
// number of calls refused since the last time. CUDA does not have this call.
API emulatorRefuse(int asked, uint64_t first, uint64_t count) {
    std::lock_guard<std::recursive_mutex> guard(lock());
    Refusals &of = state().refusals[asked];
    int refused = (int)of.refused;
    of = {first, count};
    return refused;
}

// Devices.

API cuDeviceGetCount(int *count) {
    return entry(__func__, Needs::driver, [&](Context &) -> int {
        *count = state().knobs.devices;
        return SUCCESS;
    });
}

API cuDeviceGet(int *device, int ordinal) {
    return entry_of_device(__func__, ordinal, [&](Context &context) -> int {
        *device = context.device;
        return SUCCESS;
    });
}

API cuDeviceGetName(char *name, int bytes, int device) {
    return entry_of_device(__func__, device, [&](Context &) -> int {
        snprintf(name, (size_t)bytes, "Emulated GPU");
        return SUCCESS;
    });
}

API cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    return entry_of_device(__func__, device, [&](Context &) -> int {
        memset(uuid, 0, 16);
        uuid[15] = (unsigned char)device;
        return SUCCESS;
    });
}

API cuDeviceTotalMem_v2(size_t *bytes, int device) {
    return entry_of_device(__func__, device, [&](Context &) -> int {
        *bytes = state().knobs.memory_bytes;
        return SUCCESS;
    });
}

API cuDeviceGetAttribute(int *value, int attribute, int device) {
    return entry_of_device(__func__, device, [&](Context &) -> int {
        static const std::map<int, int> values = {
            {1, 1024},       // MAX_THREADS_PER_BLOCK
            {2, 1024},       // MAX_BLOCK_DIM_X
            {3, 1024},       // MAX_BLOCK_DIM_Y
            {4, 64},         // MAX_BLOCK_DIM_Z
            {5, 0x7fffffff}, // MAX_GRID_DIM_X
            {6, 65535},      // MAX_GRID_DIM_Y
            {7, 65535},      // MAX_GRID_DIM_Z
            {8, 48 << 10},   // MAX_SHARED_MEMORY_PER_BLOCK
            {10, 32},        // WARP_SIZE
            {12, 65536},     // MAX_REGISTERS_PER_BLOCK
            {16, 4},         // MULTIPROCESSOR_COUNT
            {19, 1},         // CAN_MAP_HOST_MEMORY
            {31, 1},         // CONCURRENT_KERNELS
            {38, 4 << 20},   // L2_CACHE_SIZE
            {39, 2048},      // MAX_THREADS_PER_MULTIPROCESSOR
            {40, 2},         // ASYNC_ENGINE_COUNT
            {41, 1},         // UNIFIED_ADDRESSING
            {75, 9},         // COMPUTE_CAPABILITY_MAJOR
            {81, 228 << 10}, // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
            {82, 65536},     // MAX_REGISTERS_PER_MULTIPROCESSOR
            {97, 227 << 10}, // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
            {99, 1},         // HOST_REGISTER_SUPPORTED
            {102, 1},        // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            {103, 1},        // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
            {106, 32},       // MAX_BLOCKS_PER_MULTIPROCESSOR
            {115, 1},        // MEMORY_POOLS_SUPPORTED
        };
        if (attribute < 1) return INVALID_VALUE;
        auto found = values.find(attribute);
        *value = found != values.end() ? found->second : 0;
        return SUCCESS;
    });
}

API cuDeviceCanAccessPeer(int *can, int device, int peer) {
    return entry_of_device(__func__, device, [&](Context &) -> int {
        if (peer < 0 || peer >= state().knobs.devices) return INVALID_DEVICE;
        *can = device != peer;
        return SUCCESS;
    });
}

API cuDeviceGetDefaultMemPool(void **pool, int device) {
    return entry_of_device(__func__, device, [&](Context &context) -> int {
        *pool = &context;
        return SUCCESS;
    });
}

API cuDeviceGetMemPool(void **pool, int device) { return cuDeviceGetDefaultMemPool(pool, device); }
API cuMemPoolSetAttribute(void *, int, void *) { return SUCCESS; }
API cuMemPoolTrimTo(void *, size_t) { return SUCCESS; }

// Contexts: the primary one of each device.

API cuDevicePrimaryCtxRetain(Context **context, int device) {
    return entry_of_device(__func__, device, [&](Context &primary) -> int {
        primary.retained++;
        *context = &primary;
        return SUCCESS;
    });
}

static void reset(Context &context) {
    drain(&context);
    for (auto &[address, bytes] : context.memory) free(reinterpret_cast<void *>(address));
    for (Stream *stream : context.streams) delete stream;
    for (Module *module : context.modules) delete module;
    context.memory.clear();
    context.streams.clear();
    context.modules.clear();
    context.peers.clear();
    context.used = 0;
    context.broken = SUCCESS;
    for (auto &[handle, event] : state().events) {
        if (event->context == &context) event->stream = nullptr;
    }
}

API cuDevicePrimaryCtxRelease_v2(int device) {
    return entry_of_device(__func__, device, [&](Context &context) -> int {
        if (context.retained == 0) return INVALID_CONTEXT;
        if (--context.retained == 0) reset(context);
        return SUCCESS;
    });
}

API cuDevicePrimaryCtxReset_v2(int device) {
    return entry_of_device(__func__, device, [&](Context &context) -> int {
        reset(context);
        return SUCCESS;
    });
}

API cuCtxSetCurrent(Context *context) {
    return entry(__func__, Needs::driver, [&](Context &) -> int {
        if (context != nullptr && !is_context(context)) return INVALID_CONTEXT;
        current() = context;
        return SUCCESS;
    });
}

API cuCtxGetCurrent(Context **context) {
    return entry(__func__, Needs::driver, [&](Context &) -> int {
        *context = current();
        return SUCCESS;
    });
}

API cuCtxGetDevice(int *device) {
    return entry(__func__, Needs::driver, [&](Context &) -> int {
        if (current() == nullptr) return INVALID_CONTEXT;
        *device = current()->device;
        return SUCCESS;
    });
}

API cuCtxSynchronize() {
    return entry(__func__, Needs::context, [](Context &context) -> int {
        if (is_capturing()) return STREAM_CAPTURE_UNSUPPORTED;
        drain(&context);
        return context.broken;
    });
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        if (least != nullptr) *least = 0;
        if (greatest != nullptr) *greatest = -5;
        return SUCCESS;
    });
}

API cuCtxGetLimit(size_t *value, int) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        *value = 1024;
        return SUCCESS;
    });
}

API cuCtxSetLimit(int, size_t) {
    return entry(__func__, Needs::context, [](Context &) -> int { return SUCCESS; });
}

API cuCtxSetFlags(unsigned) {
    return entry(__func__, Needs::context, [](Context &) -> int { return SUCCESS; });
}

API cuCtxEnablePeerAccess(Context *peer, unsigned) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        if (!is_context(peer) || peer == &context) return INVALID_CONTEXT;
        context.peers.insert(peer->device);
        return SUCCESS;
    });
}

// Modules and launches.

// Reads a number at any address in an image, aligned or not.
template <class T> static T number_at(const char *at) {
    T value;
    memcpy(&value, at, sizeof value);
    return value;
}

// Finds PTX in a fat binary that a driver of CUDA 12 can load. Returns its virtual architecture, or 0. The driver must
// know the version of the PTX, and drivers before 12.4 can't read PTX that is compressed by zstd.
static int ptx_for_cuda12(const char *fatbin, int driver_version) {
    static const int newest[] = {80, 81, 82, 83, 84, 85, 85, 86, 87, 88};
    const int minor = driver_version % 1000 / 10, isa = newest[minor < 9 ? minor : 9];
    const char *at = fatbin + number_at<uint16_t>(fatbin + 6), *end = at + number_at<uint64_t>(fatbin + 8);
    int found = 0;
    while (at < end) {
        bool is_ptx = number_at<uint16_t>(at) == 1, is_zstd = number_at<uint64_t>(at + 40) & 0x8000;
        int version = 10 * number_at<uint16_t>(at + 26) + number_at<uint16_t>(at + 24);
        if (is_ptx && version <= isa && (!is_zstd || driver_version >= 12040)) found = number_at<uint32_t>(at + 28);
        at += number_at<uint32_t>(at + 4) + number_at<uint64_t>(at + 8);
    }
    return found;
}

API cuModuleLoadData(Module **module, const void *image) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        uint32_t magic;
        memcpy(&magic, image, sizeof magic);
        // A fatbin, a cubin, or the text of PTX.
        if (magic != 0xba55ed50 && magic != 0x464c457f &&
            strstr(static_cast<const char *>(image), ".version") == nullptr) {
            return explain(INVALID_IMAGE, "cuModuleLoadData: neither a fatbin nor a cubin nor PTX, it begins with %08x",
                           magic);
        }
        int ptx_version = 90, driver_version = state().knobs.driver_version;
        if (driver_version < 13000 && magic == 0xba55ed50) {
            ptx_version = ptx_for_cuda12(static_cast<const char *>(image), driver_version);
            if (ptx_version == 0)
                return explain(NO_BINARY_FOR_GPU, "cuModuleLoadData: the image has nothing for a driver of CUDA %d.%d",
                               driver_version / 1000, driver_version % 1000 / 10);
        }
        *module = new Module{&context, ptx_version, {}};
        context.modules.insert(*module);
        return SUCCESS;
    });
}

API cuModuleLoadDataEx(Module **module, const void *image, unsigned, int *, void **) {
    return cuModuleLoadData(module, image);
}

API cuModuleUnload(Module *module) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        for (auto &context : state().contexts) {
            if (context->modules.count(module) == 0) continue;
            drain(context.get());
            context->modules.erase(module);
            delete module;
            return SUCCESS;
        }
        return INVALID_HANDLE;
    });
}

API cuModuleGetFunction(Function **function, Module *module, const char *name) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        if (context.modules.count(module) == 0) return INVALID_HANDLE;
        const Kernel *kernel = kernels();
        while (kernel != nullptr && strcmp(kernel->name, name) != 0) kernel = kernel->next;
        if (kernel == nullptr) return explain(NOT_FOUND, "cuModuleGetFunction: no kernel has the name `%s`", name);
        std::unique_ptr<Function> &slot = module->functions[name];
        if (!slot) slot.reset(new Function{kernel, &context, module->ptx_version});
        *function = slot.get();
        return SUCCESS;
    });
}

API cuFuncGetAttribute(int *value, int attribute, Function *function) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        if (!is_function(context, function)) return INVALID_HANDLE;
        // The attributes are MAX_THREADS_PER_BLOCK, NUM_REGS, PTX_VERSION and BINARY_VERSION.
        *value = attribute == 0   ? (int)function->kernel->max_threads
                 : attribute == 4 ? 32
                 : attribute == 5 ? function->ptx_version
                 : attribute == 6 ? 90
                                  : 0;
        return SUCCESS;
    });
}

API cuFuncSetAttribute(Function *function, int, int) {
    return entry(__func__, Needs::context,
                 [&](Context &context) -> int { return is_function(context, function) ? SUCCESS : INVALID_HANDLE; });
}

API cuFuncSetCacheConfig(Function *function, int) { return cuFuncSetAttribute(function, 0, 0); }

API cuFuncGetParamInfo(Function *function, size_t index, size_t *offset, size_t *size) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        if (!is_function(context, function)) return INVALID_HANDLE;
        if (index > 0) return INVALID_VALUE;
        *offset = 0;
        if (size != nullptr) *size = function->kernel->size;
        return SUCCESS;
    });
}

API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, Function *function, int threads, size_t,
                                                         unsigned) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        if (!is_function(context, function)) return INVALID_HANDLE;
        if (threads < 1) return INVALID_VALUE;
        *blocks = 2048 / threads < 32 ? 2048 / threads : 32;
        return SUCCESS;
    });
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Function *function, int threads, size_t shared) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

// CUlaunchAttribute and CUlaunchConfig.
struct LaunchAttribute {
    int id;
    union {
        alignas(8) char bytes[64];
        int value;
    };
};
constexpr int PROGRAMMATIC_STREAM_SERIALIZATION = 6;

struct LaunchConfig {
    Dim3 grid, block;
    unsigned shared;
    Stream *stream;
    const LaunchAttribute *attributes;
    unsigned attribute_count;
};

API cuLaunchKernelEx(const LaunchConfig *config, Function *function, void **parameters, void **extra) {
    bool starts_early = false;
    for (unsigned i = 0; i < config->attribute_count; i++) {
        const LaunchAttribute &attribute = config->attributes[i];
        if (attribute.id != PROGRAMMATIC_STREAM_SERIALIZATION)
            return explain(INVALID_VALUE, "cuLaunchKernelEx: launch attribute %d is not emulated", attribute.id);
        starts_early = attribute.value != 0;
    }
    return launch_kernel(function, config->grid, config->block, config->shared, config->stream, parameters, extra,
                         starts_early);
}

int emulator::launch_kernel(Function *function, Dim3 grid, Dim3 block, unsigned shared, Stream *stream, void **parameters,
                            void **extra, bool starts_early) {
    return entry("cuLaunchKernelEx", Needs::context, [&](Context &context) -> int {
        if (!is_function(context, function))
            return explain(INVALID_HANDLE, "cuLaunchKernelEx: a function of another context");
        const Kernel &kernel = *function->kernel;
        Launch how = {grid, block, starts_early};
        Stream *on = stream_of(context, stream);
        if (on == nullptr) return explain(INVALID_HANDLE, "%s is launched on a stream of another device", kernel.name);
        if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535)
            return explain(INVALID_VALUE, "%s is launched with the grid %u, %u, %u", kernel.name, grid.x, grid.y,
                           grid.z);
        size_t threads = (size_t)block.x * block.y * block.z;
        if (threads < 1 || threads > kernel.max_threads || block.z > 64)
            return explain(INVALID_VALUE, "%s is launched with blocks of %zu threads, 1 to %u are allowed", kernel.name,
                           threads, kernel.max_threads);
        if (shared != 0 || extra != nullptr || parameters == nullptr)
            return explain(INVALID_VALUE, "%s: dynamic shared memory and packed parameters are not emulated",
                           kernel.name);
        // On a GPU, PTX for less than compute_90 does not wait for the kernel before it, although the code for the host does.
        if (starts_early && function->ptx_version < 90)
            return explain(INVALID_VALUE, "%s may start early, and was compiled for compute_%d", kernel.name,
                           function->ptx_version);
        if (is_refused(Asked::launch)) return OUT_OF_MEMORY;
        auto buffer = std::shared_ptr<void>(aligned_alloc(64, (kernel.size + 63) / 64 * 64), free);
        memcpy(buffer.get(), parameters[0], kernel.size);
        Context *at = &context;
        return submit(on, [=, &kernel] { launch(at, kernel, how, buffer.get()); });
    });
}
