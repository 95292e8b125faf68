// The emulator's own test: loads the libcuda.so.1 that it finds and runs the kernels of self_test.cu on it. A mistake
// of a kernel must end the process with a line that names the kernel.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <vector>

static void *library;

template <class... A> static int call(const char *name, A... arguments) {
    void *symbol = dlsym(library, name);
    if (symbol == nullptr) {
        printf("no %s\n", name);
        exit(1);
    }
    return reinterpret_cast<int (*)(A...)>(symbol)(arguments...);
}

#define CHECK(...)                                                                                                     \
    do {                                                                                                               \
        if (!(__VA_ARGS__)) {                                                                                          \
            printf("self_test.cpp:%d: %s\n", __LINE__, #__VA_ARGS__);                                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef uint64_t Address;

struct Params {
    Address out, in;
    uint32_t count, mode;
};

static void *context, *module, *stream;

static void open_device() {
    CHECK(call("cuInit", 0u) == 0);
    CHECK(call("cuDevicePrimaryCtxRetain", &context, 0) == 0);
    CHECK(call("cuCtxSetCurrent", context) == 0);
    CHECK(call("cuModuleLoadData", &module, "\x50\xed\x55\xba") == 0);
    CHECK(call("cuStreamCreate", &stream, 1u) == 0);
}

static Address allocate(size_t bytes) {
    Address address;
    CHECK(call("cuMemAlloc_v2", &address, bytes) == 0);
    return address;
}

static int launch(const char *name, unsigned blocks, unsigned threads, Params params, bool starts_early = false) {
    void *function, *arguments[] = {&params};
    CHECK(call("cuModuleGetFunction", &function, module, name) == 0);
    // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    struct alignas(8) {
        int id, unused, value[16];
    } early = {6, 0, {1}};
    struct {
        unsigned grid[3], block[3], shared;
        void *stream, *attributes;
        unsigned attribute_count;
    } config = {{blocks, 1, 1}, {threads, 1, 1}, 0, stream, &early, starts_early};
    return call("cuLaunchKernelEx", &config, function, (void **)arguments, (void **)nullptr);
}

static std::vector<uint32_t> scan_input(size_t count) {
    std::vector<uint32_t> in(count);
    for (size_t i = 0; i < count; i++) in[i] = (uint32_t)(i * 2654435761u >> 20);
    return in;
}

static void check_scan(const std::vector<uint32_t> &in, const std::vector<uint32_t> &out) {
    uint32_t sum = 0;
    for (size_t i = 0; i < in.size(); i++) {
        sum = (i % 256 == 0 ? 0 : sum) + in[i];
        CHECK(out[i] == sum);
    }
}

static void test_kernels() {
    size_t count = 131000, bytes = 4 * count;
    std::vector<uint32_t> in = scan_input(count), out(count);
    Address from = allocate(bytes), to = allocate(bytes), counters = allocate(16);
    CHECK(call("cuMemcpyHtoDAsync_v2", from, in.data(), bytes, stream) == 0);
    Params params = {to, from, (uint32_t)count, 0};
    CHECK(launch("self_test_scan", 512, 256, params) == 0);
    CHECK(call("cuMemcpyDtoHAsync_v2", out.data(), to, bytes, stream) == 0);
    timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    CHECK(call("cuStreamSynchronize", stream) == 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ms = (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6;
    printf("131,072 threads, five shuffles and a barrier each: %.1f ms\n", ms);
    check_scan(in, out);

    CHECK(call("cuMemsetD8Async", counters, (unsigned char)0, (size_t)16, stream) == 0);
    Params atomics = {counters, 0, 1000, 0};
    CHECK(launch("self_test_atomics", 8, 128, atomics) == 0);
    uint32_t counted[4];
    CHECK(call("cuMemcpyDtoHAsync_v2", counted, counters, (size_t)16, stream) == 0);
    CHECK(call("cuStreamSynchronize", stream) == 0);
    CHECK(counted[0] == 1000 && counted[1] == 334 && counted[2] == 999 && counted[3] == 250);
}

static void test_graphs() {
    std::vector<uint32_t> in = scan_input(512), out(512);
    Address from = allocate(2048), to = allocate(2048);
    void *graph, *executable, *pinned;
    CHECK(call("cuMemHostAlloc", &pinned, (size_t)2048, 0u) == 0);
    int memory_type = 2;
    unsigned kind = 0;
    void *kinds = &kind;
    Address addresses[] = {(Address)pinned + 2047, from, (Address)&kind};
    unsigned expected[] = {1, 2, 0};
    for (int i = 0; i < 3; i++) {
        CHECK(call("cuPointerGetAttributes", 1u, &memory_type, &kinds, addresses[i]) == 0 && kind == expected[i]);
    }
    // A call that could disturb a capture is refused, and the capture has failed.
    Address other = allocate(16);
    CHECK(call("cuStreamBeginCapture_v2", stream, 1) == 0);
    CHECK(call("cuMemFree_v2", other) == 900);
    CHECK(call("cuStreamEndCapture", stream, &graph) == 901);
    // A thread in the relaxed mode may make the call.
    int mode = 2;
    CHECK(call("cuStreamBeginCapture_v2", stream, 1) == 0);
    CHECK(call("cuThreadExchangeStreamCaptureMode", &mode) == 0 && mode == 0);
    CHECK(call("cuMemFree_v2", other) == 0);
    CHECK(call("cuThreadExchangeStreamCaptureMode", &mode) == 0 && mode == 2);
    CHECK(call("cuMemcpyHtoDAsync_v2", from, pinned, (size_t)2048, stream) == 0);
    CHECK(launch("self_test_scan", 2, 256, {to, from, 512, 0}) == 0);
    CHECK(call("cuStreamEndCapture", stream, &graph) == 0);
    CHECK(call("cuGraphInstantiateWithFlags", &executable, graph, 0ull) == 0);
    CHECK(call("cuGraphDestroy", graph) == 0);
    for (uint32_t round = 0; round < 3; round++) {
        in[0] = round;
        memcpy(pinned, in.data(), 2048);
        CHECK(call("cuGraphLaunch", executable, stream) == 0);
        CHECK(call("cuStreamSynchronize", stream) == 0);
        CHECK(call("cuMemcpyDtoH_v2", out.data(), to, (size_t)2048) == 0);
        check_scan(in, out);
    }
    CHECK(call("cuStreamBeginCapture_v2", stream, 1) == 0);
    CHECK(call("cuStreamSynchronize", stream) == 900);
    CHECK(call("cuStreamEndCapture", stream, &graph) == 901);
    CHECK(call("cuGraphExecDestroy", executable) == 0);
    CHECK(call("cuMemFreeHost", pinned) == 0);
}

static void test_errors() {
    void *function;
    CHECK(call("cuModuleGetFunction", &function, module, "no_such_kernel") == 500);
    CHECK(launch("self_test_scan", 0, 256, {}) == 1);
    CHECK(launch("self_test_scan", 1, 512, {}) == 1);
    CHECK(call("cuModuleLoadData", &function, "not an image") == 200);
    Address buffer = allocate(64), large;
    char bytes[128] = {};
    CHECK(call("cuMemcpyHtoD_v2", buffer, bytes, (size_t)64) == 0);
    CHECK(call("cuMemcpyHtoD_v2", buffer + 1, bytes, (size_t)64) == 1);
    CHECK(call("cuMemAlloc_v2", &large, (size_t)1 << 40) == 2);
    CHECK(call("cuMemFree_v2", buffer) == 0);
    CHECK(call("cuMemFree_v2", buffer) == 1);
    const char *name;
    CHECK(call("cuGetErrorName", 700, &name) == 0 && strcmp(name, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
}

// Uses memory of one of two devices on the other.
static void test_devices() {
    void *second, *other_stream;
    CHECK(call("cuDevicePrimaryCtxRetain", &second, 1) == 0);
    Address first = allocate(64);
    char bytes[64] = {};
    CHECK(call("cuCtxSetCurrent", second) == 0);
    CHECK(call("cuMemcpyHtoD_v2", first, bytes, (size_t)64) == 1);
    Address copy = allocate(64);
    CHECK(call("cuStreamCreate", &other_stream, 1u) == 0);
    CHECK(call("cuMemcpyPeerAsync", copy, second, first, context, (size_t)64, other_stream) == 0);
    CHECK(call("cuStreamSynchronize", other_stream) == 0);
    CHECK(call("cuMemsetD8Async", copy, (unsigned char)0, (size_t)64, stream) == 400);
    void *own = module, *other_module;
    CHECK(call("cuModuleLoadData", &other_module, "\x50\xed\x55\xba") == 0);
    module = other_module;
    std::swap(stream, other_stream);
    CHECK(launch("self_test_mistakes", 1, 64, {first, 0, 0, 0}) == 0);
    CHECK(call("cuStreamSynchronize", stream) == 700);
    CHECK(call("cuMemcpyHtoD_v2", copy, bytes, (size_t)64) == 700);
    module = own;
    std::swap(stream, other_stream);
    CHECK(call("cuCtxSetCurrent", context) == 0);
    CHECK(call("cuMemcpyHtoD_v2", first, bytes, (size_t)64) == 0);
    CHECK(call("cuDevicePrimaryCtxRelease_v2", 1) == 0);
}

// Does `work` in a process with the environment variable `setting`. Returns the text that the process prints to stderr,
// and in `status` how it ends.
template <class Work> static std::string output_of(const char *setting, int *status, Work work) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        if (setting != nullptr) putenv(const_cast<char *>(setting));
        open_device();
        work();
        _exit(0);
    }
    close(ends[1]);
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, (size_t)got);
    close(ends[0]);
    CHECK(waitpid(child, status, 0) == child);
    return text;
}

static void test_mistakes(bool sanitized, bool races) {
    const char *expected[] = {nullptr,
                              "__syncthreads() is reached by 40 of 64 threads",
                              "meets another one",
                              "__syncwarp with mask ffffffff waits for lanes",
                              sanitized ? "heap-buffer-overflow" : nullptr,
                              sanitized ? "out of bounds" : nullptr,
                              "reads lane 20",
                              "__trap()",
                              sanitized ? "" : "signal 11",
                              races ? "no thread of the block has written it" : nullptr,
                              races ? "with no barrier between" : nullptr,
                              "without having waited for the kernel before"};
    for (uint32_t mode = 0; mode < sizeof expected / sizeof *expected; mode++) {
        if (mode > 0 && expected[mode] == nullptr) continue;
        int status;
        std::string text = output_of(nullptr, &status, [&] {
            Address out = allocate(256);
            launch("self_test_mistakes", 1, 64, {out, 0, 64, mode}, mode == 11);
            call("cuStreamSynchronize", stream);
        });
        bool right = mode == 0 ? status == 0 && text.empty()
                               : status != 0 && text.find(expected[mode]) != std::string::npos &&
                                     (text.find("kernel self_test_mistakes, block (0, 0, 0)") != std::string::npos ||
                                      text.find("self_test.cu:") != std::string::npos);
        if (!right) printf("mistake %u: status %d\n%s\n", mode, status, text.c_str());
        CHECK(right);
    }
}

static void test_knobs() {
    int status;
    std::string text = output_of("EMULATOR_FAIL_LAUNCH=2", &status, [] {
        Address out = allocate(256);
        for (int expected : {0, 700}) {
            CHECK(launch("self_test_mistakes", 1, 64, {out, 0, 64, 0}) == 0);
            CHECK(call("cuStreamSynchronize", stream) == expected);
        }
        CHECK(call("cuMemFree_v2", out) == 700);
    });
    CHECK(status == 0 && text.find("launch 2, of self_test_mistakes") != std::string::npos);
    output_of("EMULATOR_MEMORY_MB=1", &status, [] {
        Address first = allocate(1 << 20), second;
        CHECK(call("cuMemAlloc_v2", &second, (size_t)1) == 2);
        CHECK(call("cuMemFree_v2", first) == 0);
        allocate(1);
    });
    CHECK(status == 0);
    output_of("EMULATOR_REFUSE_ALLOCATION=2", &status, [] {
        Address first = allocate(256), second;
        CHECK(call("cuMemAlloc_v2", &second, (size_t)256) == 2);
        allocate(256);
        // Refuses the second copy, and all copies after it.
        char bytes[16] = {};
        call("emulatorRefuse", 1, (uint64_t)2, (uint64_t)0);
        for (int expected : {0, 2, 2}) CHECK(call("cuMemcpyHtoDAsync_v2", first, bytes, sizeof bytes, stream) == expected);
        CHECK(call("emulatorRefuse", 1, (uint64_t)0, (uint64_t)1) == 2);
        CHECK(call("cuMemcpyHtoDAsync_v2", first, bytes, sizeof bytes, stream) == 0);
        call("emulatorRefuse", 2, (uint64_t)1, (uint64_t)1);
        for (int expected : {2, 0}) CHECK(launch("self_test_mistakes", 1, 64, {first, 0, 64, 0}) == expected);
        CHECK(call("cuStreamSynchronize", stream) == 0);
    });
    CHECK(status == 0);
    output_of("EMULATOR_ORDER=backwards", &status, test_kernels);
    CHECK(status == 0);
    output_of("EMULATOR_EAGER=1", &status, test_graphs);
    CHECK(status == 0);
}

int main() {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
        printf("%s\n", dlerror());
        return 1;
    }
    setenv("EMULATOR_DEVICES", "2", 1);
    test_mistakes(getenv("LD_PRELOAD") != nullptr, strstr(getenv("LD_LIBRARY_PATH"), "races") != nullptr);
    test_knobs();
    open_device();
    test_kernels();
    test_graphs();
    test_errors();
    test_devices();
    CHECK(call("cuDevicePrimaryCtxRelease_v2", 0) == 0);
    printf("the emulator's own test: passed\n");
}
