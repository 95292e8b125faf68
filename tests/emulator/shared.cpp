// Memory that processes share. An allocation is an anonymous file, its handle a file descriptor, and a mapping is mmap's.
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entry.h"

using namespace emulator;

typedef uintptr_t Address;

static const size_t GRANULARITY = 2 << 20;

// CUmemAllocationProp, as far as it is read.
struct Properties {
    int type, handle_types, location_type, location_id;
};

// CUmemAccessDesc.
struct Access {
    int location_type, location_id, flags;
};

API cuMemGetAllocationGranularity(size_t *granularity, const Properties *, int) {
    return entry(__func__, Needs::driver, [&](Context &) -> int {
        *granularity = GRANULARITY;
        return SUCCESS;
    });
}

API cuMemCreate(uint64_t *handle, size_t bytes, const Properties *properties, uint64_t) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        if (properties->handle_types != 1 || properties->location_type != 1) return NOT_SUPPORTED;
        if (bytes == 0 || bytes % GRANULARITY != 0) return INVALID_VALUE;
        if (bytes > state().knobs.memory_bytes - context.used || is_refused(Asked::allocation)) return OUT_OF_MEMORY;
        int file = memfd_create("emulated", MFD_CLOEXEC);
        if (file < 0) return OUT_OF_MEMORY;
        if (ftruncate(file, (off_t)bytes) != 0) return close(file), OUT_OF_MEMORY;
        *handle = (uint64_t)file;
        return SUCCESS;
    });
}

API cuMemExportToShareableHandle(int *descriptor, uint64_t handle, int type, uint64_t) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        if (type != 1) return NOT_SUPPORTED;
        *descriptor = dup((int)handle);
        return *descriptor < 0 ? INVALID_VALUE : SUCCESS;
    });
}

API cuMemImportFromShareableHandle(uint64_t *handle, void *descriptor, int type) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        if (type != 1) return NOT_SUPPORTED;
        int file = dup((int)reinterpret_cast<intptr_t>(descriptor));
        if (file < 0) return INVALID_VALUE;
        *handle = (uint64_t)file;
        return SUCCESS;
    });
}

API cuMemRelease(uint64_t handle) {
    return entry(__func__, Needs::context, [&](Context &) -> int { return close((int)handle) == 0 ? SUCCESS : INVALID_VALUE; });
}

API cuMemAddressReserve(Address *address, size_t bytes, size_t, Address, uint64_t) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        if (bytes == 0 || bytes % GRANULARITY != 0) return INVALID_VALUE;
        void *range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED) return OUT_OF_MEMORY;
        *address = reinterpret_cast<Address>(range);
        return SUCCESS;
    });
}

API cuMemAddressFree(Address address, size_t bytes) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        if (context.memory.count(address) > 0) return explain(INVALID_VALUE, "%#zx is still mapped", address);
        return munmap(reinterpret_cast<void *>(address), bytes) == 0 ? SUCCESS : INVALID_VALUE;
    });
}

API cuMemMap(Address address, size_t bytes, size_t offset, uint64_t handle, uint64_t) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        struct stat about;
        if (offset != 0 || fstat((int)handle, &about) != 0 || (size_t)about.st_size != bytes) return INVALID_VALUE;
        void *at = reinterpret_cast<void *>(address);
        // The memory may not be touched before cuMemSetAccess.
        if (mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, 0) == MAP_FAILED) return OUT_OF_MEMORY;
        context.memory[address] = bytes;
        context.used += bytes;
        return SUCCESS;
    });
}

API cuMemSetAccess(Address address, size_t bytes, const Access *access, size_t count) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        if (count != 1 || access->location_id != context.device || access->flags != 3) return NOT_SUPPORTED;
        return mprotect(reinterpret_cast<void *>(address), bytes, PROT_READ | PROT_WRITE) == 0 ? SUCCESS : INVALID_VALUE;
    });
}

API cuMemUnmap(Address address, size_t bytes) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        auto found = context.memory.find(address);
        if (found == context.memory.end() || found->second != bytes)
            return explain(INVALID_VALUE, "%#zx is not mapped with %zu bytes", address, bytes);
        context.used -= bytes;
        context.memory.erase(found);
        void *at = reinterpret_cast<void *>(address);
        void *range = mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        return range == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
    });
}
