// State of the fake driver: devices and their memory, contexts, streams, graphs.
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

// The name of a result, and a sentence about the result; null if it is not known.
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
    // True if this stream and the null stream wait for each other.
    bool blocking = false;
    // Work that has been submitted and not run.
    std::vector<Work> waiting;
    uint64_t submitted = 0, ran = 0;
    // The graph that the stream's work goes to while it is captured.
    std::shared_ptr<Graph> captured;
    bool origin = false, invalidated = false;
    int mode = 0;
    std::thread::id capturer;
};

struct Event {
    Context *context;
    Stream *stream = nullptr;
    // The event has happened when `stream` has run this number of works.
    uint64_t at = 0;
    bool recorded = false;
    // Set while the event stands for work that is captured.
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
    // The virtual architecture that the function was compiled for.
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
    // The error that broke the context: everything fails from then on.
    int broken = SUCCESS;
    Stream null_stream;
    std::set<Stream *> streams;
    std::set<Module *> modules;
    // Allocations on the device: address and bytes.
    std::map<uintptr_t, size_t> memory;
    size_t used = 0;
    // Devices whose memory the context's kernels may use.
    std::set<int> peers;
};

// Settings from the environment.
struct Knobs {
    int devices, driver_version;
    size_t memory_bytes;
    // The number of the launch that fails, counted from 1; 0: none.
    uint64_t fail_launch;
    // The number of the copy from a device to the host that fails.
    uint64_t fail_download;
    bool eager;
};

// A kind of call that can be refused for lack of memory.
enum class Asked { allocation, copy, launch };

// The calls of a kind that are refused with OUT_OF_MEMORY: `count` calls (0: all) from the `first`-th (from 1; 0: none) on.
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

// The lock that every call of the driver holds: one call is done at a time.
std::recursive_mutex &lock();

State &state();

// The calling thread's context, or null.
Context *&current();

// Writes a call and its result to the file EMULATOR_LOG, if that is set. Returns the result.
int logged(const char *function, int result);

// Prints a line to stderr that explains an error, which a test would have to guess at. Returns the error.
int explain(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));

// True if the range is within one allocation of the context's device, or empty.
bool is_device(const Context &context, uintptr_t at, size_t bytes);

// Returns the device with an allocation around this address, or -1.
int owner(uintptr_t at);

bool is_pinned(uintptr_t at, size_t bytes);

// Enqueues work on a stream, or puts it into the graph that captures the stream.
int submit(Stream *stream, Work work);

// Counts a call. Returns true if it is to be refused.
bool is_refused(Asked asked);

// Runs the waiting work of a stream, up to the stream's `until`-th piece of work.
void drain(Stream *stream, uint64_t until);

// Runs all waiting work of a context.
void drain(Context *context);

// The calling thread's mode while a stream is captured: in modes 0 and 1 it may do nothing that could disturb the
// capture, in mode 2 anything.
int &capture_mode();

// True if the calling thread may not make a call that isn't safe during a capture now. The captures that forbid it fail
// then.
bool is_capturing();

// Runs a kernel launch, with the failures that the settings ask for.
void launch(Context *context, const Kernel &kernel, const Launch &launch, const void *parameters);

} // namespace emulator
