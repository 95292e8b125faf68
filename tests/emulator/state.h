// What the fake driver holds: devices and their memory, contexts, streams, graphs.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "block.h"

namespace emulator {

// The results of the driver API that are used here.
enum Result : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_ISOLATION = 905,
    CAPTURED_EVENT = 907,
};

// The name of a result and a sentence about it, or null.
const char *name_of(int result);
const char *text_of(int result);

struct Context;

// A piece of work on a stream.
typedef std::function<void()> Work;

struct Graph {
    std::vector<Work> works;
};

struct Stream {
    Context *context;
    // Whether it and the null stream wait for each other.
    bool blocking = false;
    // What has been submitted and not run.
    std::vector<Work> waiting;
    uint64_t submitted = 0, ran = 0;
    // The graph that its work goes to while it is captured.
    std::shared_ptr<Graph> captured;
    bool origin = false, invalidated = false;
    int mode = 0;
    std::thread::id capturer;
};

struct Event {
    Context *context;
    Stream *stream = nullptr;
    // It has happened when `stream` has run so much.
    uint64_t at = 0;
    bool recorded = false;
    // Set while it stands for work that is captured.
    std::shared_ptr<Graph> captured;
    std::chrono::steady_clock::time_point time;
};

struct Executable {
    Context *context;
    std::vector<Work> works;
};

struct Function {
    const Kernel *kernel;
    Context *context;
    // The virtual architecture that it was compiled for.
    int ptx_version;
};

struct Module {
    Context *context;
    int ptx_version;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

// The primary context of a device, and the device.
struct Context {
    int device;
    unsigned retained = 0;
    // The first error that broke it: everything fails from then on.
    int broken = SUCCESS;
    Stream null_stream;
    std::set<Stream *> streams;
    std::set<Module *> modules;
    // Allocations on the device: address and bytes.
    std::map<uintptr_t, size_t> memory;
    size_t used = 0;
    // Devices whose memory its kernels may use.
    std::set<int> peers;
};

// The knobs, as the environment has them.
struct Knobs {
    int devices, driver_version;
    size_t memory_bytes;
    // The number of the launch that fails, counted from 1; 0: none.
    uint64_t fail_launch;
    // That of the copy from a device to the host.
    uint64_t fail_download;
    bool eager;
};

// What a device may have no memory for.
enum class Asked { allocation, copy, launch };

// Of the calls of a kind, those that are refused with OUT_OF_MEMORY: from the `first`-th on (from 1; 0: none), `count`
// of them (0: all).
struct Refusals {
    uint64_t first = 0, count = 1, calls = 0, refused = 0;
};

struct State {
    Knobs knobs;
    Refusals refusals[3];
    bool initialized = false;
    std::vector<std::unique_ptr<Context>> contexts;
    std::map<uintptr_t, size_t> pinned;
    std::map<Event *, std::shared_ptr<Event>> events;
    std::set<Executable *> executables;
    std::map<Graph *, std::shared_ptr<Graph>> graphs;
    uint64_t launches = 0, downloads = 0;
};

// Every entry of the driver holds this lock: one thing happens at a time.
std::recursive_mutex &lock();

State &state();

// The calling thread's context, or null.
Context *&current();

// Says what was called and what came of it to EMULATOR_LOG, if that is set.
int logged(const char *function, int result);

// A line on stderr that explains an error which a test would have to guess at.
int explain(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Whether the range is within one allocation of the context's device; an empty one always is.
bool is_device(const Context &context, uintptr_t at, size_t bytes);

// The device that has an allocation around this address, or -1.
int owner(uintptr_t at);

bool is_pinned(uintptr_t at, size_t bytes);

// Puts work on a stream, or into the graph that captures it.
int submit(Stream *stream, Work work);

// Counts a call, and says whether it is one that is to be refused.
bool is_refused(Asked asked);

// Runs what waits on a stream, up to its `until`-th piece of work.
void drain(Stream *stream, uint64_t until);

// Runs everything that waits in a context.
void drain(Context *context);

// What the calling thread may do while a stream is captured: 0 and 1 nothing that could disturb it, 2 anything.
int &capture_mode();

// Whether the calling thread may not make calls now that aren't safe during a capture. Those captures have failed then.
bool is_capturing();

// One kernel launch, with the failures that the knobs ask for.
void launch(Context *context, const Kernel &kernel, const Launch &launch, const void *parameters);

} // namespace emulator
