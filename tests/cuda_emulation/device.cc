/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device: settings, errors, and memory.
 *
 *     | guard | slack, canary | allocation        | guard |        one mapping each
 *                             ^ multiple of 256   ^ a page ends within 256 bytes
 *
 * UL_EMULATE_ALIGN=64 puts allocations at odd multiples of 64 instead, as a caller's arena may lie.
 * While neither kernel nor copy runs, device memory has no access rights, so that a host that reads
 * or writes it is found at once; freed memory keeps its addresses without rights for ever. A new
 * allocation is filled with 0xff, which as a float is NaN.
 *
 * Left out: several devices differ in nothing but their number; page-locked memory is malloc's.
 */
#include "emulate.h"

#include <map>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARD_BYTES ((size_t)64 << 10)
#define PAGE_BYTES ((size_t)4096)
#define ALIGN_BYTES ((size_t)256)
#define GRANULE_BYTES ((uint64_t)2 << 20) /* that a device's memory is given out in */
#define CANARY 0xa5
#define CONTEXT_BYTES ((uint64_t)300 << 20)

namespace
{

struct allocation {
    unsigned char *map;
    size_t map_bytes;
    size_t size_bytes;
    int device;
    bool freed;
};

pthread_mutex_t lock;
pthread_once_t once = PTHREAD_ONCE_INIT;
std::map<unsigned char *, struct allocation> allocations; /* by address, also those freed */
std::map<unsigned char *, size_t> host_allocations;
uint64_t taken_bytes;
unsigned open_count;
bool is_shut; /* to a kernel that has not waited for those before it */
cudaError_t sticky = cudaSuccess;
thread_local cudaError_t last = cudaSuccess;
thread_local int device_now;
struct sigaction before_us;
pid_t starter; /* the process that began it: a driver serves no child of a fork */

/* ---- settings ---- */

uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

bool flag_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' && strcmp(text, "0") != 0;
}

struct settings settings_read()
{
    struct settings read = {};
    read.no_device = flag_of("UL_EMULATE_NO_DEVICE");
    read.no_driver = flag_of("UL_EMULATE_NO_DRIVER");
    read.old_driver = flag_of("UL_EMULATE_OLD_DRIVER");
    read.no_cupti = flag_of("UL_EMULATE_NO_CUPTI");
    read.banks = flag_of("UL_EMULATE_BANKS");
    read.major = flag_of("UL_EMULATE_OLD_DEVICE") ? 7 : (int)number_of("UL_EMULATE_MAJOR", 9);
    read.minor = flag_of("UL_EMULATE_OLD_DEVICE") ? 5 : 0;
    read.processors = (int)number_of("UL_EMULATE_PROCESSORS", 108);
    read.part = (int)number_of("UL_EMULATE_PART", (uint64_t)read.processors);
    read.capture_part = (int)number_of("UL_EMULATE_CAPTURE_PART", (uint64_t)read.part);
    read.devices = (int)number_of("UL_EMULATE_DEVICES", 1);
    read.free_bytes = number_of("UL_EMULATE_FREE_BYTES", (uint64_t)80 << 30);
    read.align_bytes = number_of("UL_EMULATE_ALIGN", 0) % ALIGN_BYTES;
    read.code_bytes = number_of("UL_EMULATE_CODE_BYTES", (uint64_t)2 << 20);
    read.graph_bytes = number_of("UL_EMULATE_GRAPH_BYTES", 0);
    read.code = (int)number_of("UL_EMULATE_CODE", 90);
    read.no_update = flag_of("UL_EMULATE_NO_UPDATE");
    read.no_params = flag_of("UL_EMULATE_NO_PARAMS");
    read.order = number_of("UL_EMULATE_ORDER", 0);
    read.fail = getenv("UL_EMULATE_FAIL_KERNEL");
    read.coverage = getenv("UL_EMULATE_COVERAGE");
    read.log = getenv("UL_EMULATE_LOG");
    return read;
}

/* ---- a host that touches what it may not ---- */

void on_fault(int number, siginfo_t *info, void *context)
{
    char text[256];
    const unsigned char *at = (const unsigned char *)info->si_addr;
    for (const auto &[base, allocation] : allocations) {
        if (at < allocation.map || at >= allocation.map + allocation.map_bytes)
            continue;
        const char *what = allocation.freed  ? "memory that was freed"
                           : is_shut         ? "device memory before the kernel waited"
                           : open_count != 0 ? "memory outside of its allocation"
                           : at < base       ? "memory before an allocation, on the host,"
                           : at >= base + allocation.size_bytes
                               ? "memory behind an allocation, on the host,"
                               : "device memory on the host";
        int length = snprintf(text, sizeof text,
                              "cuda_emulation: access to %s: %p, byte %ld of an allocation of %zu "
                              "bytes\n",
                              what, info->si_addr, (long)(at - base), allocation.size_bytes);
        ssize_t written = write(2, text, (size_t)length);
        (void)written;
        break;
    }
    /* As it would have been without us. */
    sigaction(number, &before_us, NULL);
    if ((before_us.sa_flags & SA_SIGINFO) != 0 && before_us.sa_sigaction != NULL)
        before_us.sa_sigaction(number, info, context);
}

void start()
{
    starter = getpid();
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attributes);
    static unsigned char stack[64 << 10];
    stack_t other = {};
    other.ss_sp = stack;
    other.ss_size = sizeof stack;
    sigaltstack(&other, NULL);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &before_us);
    if (!settings_get().no_driver)
        activity_start();
}

/* ---- allocations ---- */

/* The allocation in whose mapping an address lies. */
const std::pair<unsigned char *const, struct allocation> *find(const void *pointer)
{
    const unsigned char *at = (const unsigned char *)pointer;
    auto next = allocations.upper_bound((unsigned char *)pointer);
    if (next != allocations.end() && at >= next->second.map)
        return &*next;
    if (next == allocations.begin())
        return NULL;
    --next;
    return at < next->second.map + next->second.map_bytes ? &*next : NULL;
}

unsigned char *data_of(const struct allocation &allocation)
{
    return allocation.map + GUARD_BYTES;
}

size_t data_bytes(const struct allocation &allocation)
{
    return allocation.map_bytes - 2 * GUARD_BYTES;
}

void set_rights(int rights)
{
    for (const auto &[base, allocation] : allocations)
        if (!allocation.freed && mprotect(data_of(allocation), data_bytes(allocation), rights) != 0)
            ul_emulate_fail("mprotect failed");
}

uint64_t rounded(uint64_t size_bytes)
{
    return (size_bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
}

void check_canary(unsigned char *base, const struct allocation &allocation)
{
    unsigned char *begin = data_of(allocation), *end = begin + data_bytes(allocation);
    for (unsigned char *at = begin; at < end; at++)
        if ((at < base || at >= base + allocation.size_bytes) && *at != CANARY)
            ul_emulate_fail("byte %ld of an allocation of %zu bytes was written", (long)(at - base),
                            allocation.size_bytes);
}

struct error_text {
    cudaError_t error;
    const char *name, *text;
};

const struct error_text errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints "
     "specific to instantiated graph update"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
};

const struct error_text *text_of(cudaError_t error)
{
    static const struct error_text unknown = {cudaErrorUnknown, "cudaErrorUnknown",
                                              "unknown error"};
    for (const struct error_text &row : errors)
        if (row.error == error)
            return &row;
    return &unknown;
}

} // namespace

const struct settings &settings_get()
{
    static const struct settings settings = settings_read();
    return settings;
}

/* A multiplier that shares no factor with n makes i -> (i * a + b) mod n a permutation. */
uint64_t ordered(uint64_t i, uint64_t n, uint64_t more)
{
    const uint64_t order = settings_get().order;
    if (order == 0 || n < 2)
        return i;
    if (order == 1)
        return n - 1 - i;
    uint64_t hash = (order * 0x9e3779b97f4a7c15u + more) * 0xbf58476d1ce4e5b9u;
    uint64_t factor = (hash >> 33) % n | 1, a = n, b;
    for (;; factor++) {
        for (a = n, b = factor % n; b != 0;) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            break;
    }
    return (uint64_t)(((unsigned __int128)i * factor + (hash >> 7)) % n);
}

void log_line(const char *format, ...)
{
    const char *path = settings_get().log;
    if (path == NULL)
        return;
    FILE *file = fopen(path, "a");
    if (file == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fputc('\n', file);
    fclose(file);
}

api::api()
{
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
}

api::~api()
{
    pthread_mutex_unlock(&lock);
}

cudaError_t api::usable() const
{
    const struct settings &settings = settings_get();
    if (settings.no_driver || settings.old_driver)
        return cudaErrorInsufficientDriver;
    if (getpid() != starter)
        return cudaErrorInitializationError;
    return settings.no_device ? cudaErrorNoDevice : sticky;
}

cudaError_t result(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last = error;
    return error;
}

void device_fail(cudaError_t error)
{
    sticky = error;
}

void device_open()
{
    if (open_count++ == 0)
        set_rights(PROT_READ | PROT_WRITE);
}

void device_close()
{
    if (--open_count == 0)
        set_rights(PROT_NONE);
}

void device_shut(bool shut)
{
    if (is_shut == shut)
        return;
    is_shut = shut;
    set_rights(shut ? PROT_NONE : PROT_READ | PROT_WRITE);
}

int memory_type_of(const void *pointer, size_t size_bytes)
{
    const unsigned char *at = (const unsigned char *)pointer;
    const auto *found = find(pointer);
    if (found != NULL) {
        const auto &[base, allocation] = *found;
        bool inside = !allocation.freed && at >= base && size_bytes <= allocation.size_bytes &&
                      (size_t)(at - base) <= allocation.size_bytes - size_bytes;
        return inside ? (int)cudaMemoryTypeDevice : -1;
    }
    auto next = host_allocations.upper_bound((unsigned char *)pointer);
    if (next != host_allocations.begin()) {
        --next;
        if (at >= next->first && at < next->first + next->second)
            return at + size_bytes <= next->first + next->second ? (int)cudaMemoryTypeHost : -1;
    }
    return (int)cudaMemoryTypeUnregistered;
}

/* ---- for emulated libraries ---- */

void ul_emulate_need(const void *pointer, size_t size_bytes, const char *who)
{
    struct api api;
    if (memory_type_of(pointer, size_bytes) != (int)cudaMemoryTypeDevice)
        ul_emulate_fail("%s: %zu bytes from %p on are not in one allocation of the device", who,
                        size_bytes, pointer);
}

void ul_emulate_check_argument(const char *kernel, const void *pointer)
{
    struct api api;
    if (pointer != NULL && memory_type_of(pointer, 0) != (int)cudaMemoryTypeDevice &&
        memory_type_of(pointer, 0) != (int)cudaMemoryTypeHost)
        ul_emulate_fail("kernel %s gets a pointer that no device can use: %p", kernel, pointer);
}

void ul_emulate_take(long bytes)
{
    struct api api;
    taken_bytes += (uint64_t)bytes;
    activity_memory(bytes > 0, false, NULL, (size_t)(bytes > 0 ? bytes : -bytes));
}

/* ---- kernels on it ---- */

/* What a kernel asked for, with cudaFuncSetAttribute. */
static std::map<const void *, size_t> rest_bytes_of;

size_t rest_bytes_asked(const void *function)
{
    auto asked = rest_bytes_of.find(function);
    return asked != rest_bytes_of.end() ? asked->second : 0;
}

uint64_t blocks_resident(const void *function, uint64_t threads, size_t rest_bytes)
{
    const size_t reserved = 1 << 10; /* of each block */
    const size_t allowed = std::max(rest_bytes_asked(function), (size_t)UL_EMULATE_SHARED_BYTES);
    if (threads == 0 || rest_bytes > allowed)
        return 0;
    uint64_t by_threads = 2048 / ((threads + 31) / 32 * 32);
    uint64_t by_shared = UL_EMULATE_SHARED_ALL_BYTES / (rest_bytes + reserved);
    return std::min(std::min(by_threads, by_shared), (uint64_t)32);
}

/* ---- the device ---- */

extern "C" {

cudaError_t cudaGetDeviceCount(int *count)
{
    struct api api;
    *count = 0;
    cudaError_t error = api.usable();
    if (error == cudaSuccess)
        *count = settings_get().devices;
    return result(error);
}

cudaError_t cudaGetDevice(int *device)
{
    struct api api;
    *device = device_now;
    return result(api.usable());
}

cudaError_t cudaSetDevice(int device)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error == cudaSuccess && (device < 0 || device >= settings_get().devices))
        error = cudaErrorInvalidDevice;
    if (error == cudaSuccess)
        device_now = device;
    return result(error);
}

cudaError_t cudaSetDeviceFlags(unsigned)
{
    struct api api;
    return result(api.usable());
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    struct api api;
    memset(prop, 0, sizeof *prop);
    cudaError_t error = api.usable();
    if (error != cudaSuccess || device < 0 || device >= settings_get().devices)
        return result(error != cudaSuccess ? error : cudaErrorInvalidDevice);
    snprintf(prop->name, sizeof prop->name, "Emulated device %d", device);
    prop->totalGlobalMem = settings_get().free_bytes + CONTEXT_BYTES;
    prop->sharedMemPerBlock = UL_EMULATE_SHARED_BYTES;
    prop->sharedMemPerBlockOptin = UL_EMULATE_SHARED_OPTIN_BYTES;
    prop->sharedMemPerMultiprocessor = UL_EMULATE_SHARED_ALL_BYTES;
    prop->regsPerBlock = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = settings_get().major;
    prop->minor = settings_get().minor;
    prop->multiProcessorCount = settings_get().processors;
    prop->unifiedAddressing = 1;
    prop->l2CacheSize = 40 << 20;
    prop->maxThreadsPerMultiProcessor = 2048;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    struct cudaDeviceProp prop;
    cudaError_t error = cudaGetDeviceProperties(&prop, device);
    *value = 0;
    if (error != cudaSuccess)
        return error;
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = prop.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxGridDimX:
        *value = prop.maxGridSize[0];
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)prop.sharedMemPerBlock;
        break;
    case cudaDevAttrWarpSize:
        *value = prop.warpSize;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = prop.multiProcessorCount;
        break;
    case cudaDevAttrL2CacheSize:
        *value = prop.l2CacheSize;
        break;
    case cudaDevAttrUnifiedAddressing:
        *value = prop.unifiedAddressing;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = prop.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = prop.minor;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)prop.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrCooperativeLaunch:
        *value = 1;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)prop.sharedMemPerBlockOptin;
        break;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *bus, int length, int device)
{
    struct api api;
    snprintf(bus, (size_t)length, "0000:%02X:00.0", device + 1);
    return result(api.usable());
}

cudaError_t cudaDriverGetVersion(int *version)
{
    struct api api;
    const struct settings &settings = settings_get();
    *version = settings.no_driver ? 0 : settings.old_driver ? 12020 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    struct api api;
    cudaError_t error = last;
    last = sticky;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return text_of(error)->name;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return text_of(error)->text;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    struct api api;
    cudaError_t error = api.usable();
    bool is_wish = attribute == cudaFuncAttributePreferredSharedMemoryCarveout; /* in percent */
    if (error == cudaSuccess &&
        (value < (is_wish ? -1 : 0) || value > (is_wish ? 100 : UL_EMULATE_SHARED_OPTIN_BYTES)))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && !is_wish)
        rest_bytes_of[function] = (size_t)value;
    return result(error);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                          int threads, size_t rest_bytes)
{
    struct api api;
    *blocks = (int)blocks_resident(function, (uint64_t)threads, rest_bytes);
    return result(api.usable());
}

cudaError_t ul_emulate_function_attributes(struct cudaFuncAttributes *attributes)
{
    struct api api;
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = settings_get().code;
    attributes->binaryVersion = settings_get().code;
    cudaError_t error = api.usable();
    if (error == cudaSuccess && settings_get().major < 8)
        error = cudaErrorNoKernelImageForDevice;
    return result(error);
}

/* ---- memory ---- */

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    struct api api;
    uint64_t used = taken_bytes;
    *free_bytes = *total_bytes = 0;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    for (const auto &[base, allocation] : allocations)
        used += allocation.freed ? 0 : rounded(allocation.size_bytes);
    *free_bytes = used < settings_get().free_bytes ? settings_get().free_bytes - used : 0;
    *total_bytes = settings_get().free_bytes + CONTEXT_BYTES;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t size)
{
    struct api api;
    size_t free_bytes, total_bytes;
    *pointer = NULL;
    cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (error == cudaSuccess)
        error = capture_forbids();
    if (error == cudaSuccess && rounded(size) > free_bytes)
        error = cudaErrorMemoryAllocation;
    if (error != cudaSuccess || size == 0)
        return result(error);
    uint64_t over = settings_get().align_bytes; /* what the base is beyond a multiple of 256 */
    size_t padded = (size + over + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES - over;
    size_t pages = (padded + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    struct allocation allocation = {};
    allocation.map_bytes = pages + 2 * GUARD_BYTES;
    allocation.map = (unsigned char *)mmap(NULL, allocation.map_bytes, PROT_NONE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (allocation.map == MAP_FAILED)
        return result(cudaErrorMemoryAllocation);
    allocation.size_bytes = size;
    allocation.device = device_now;
    unsigned char *data = data_of(allocation), *base = data + pages - padded;
    mprotect(data, pages, PROT_READ | PROT_WRITE);
    memset(data, CANARY, (size_t)(base - data));
    memset(base, 0xff, size);
    memset(base + size, CANARY, padded - size);
    if (open_count == 0)
        mprotect(data, pages, PROT_NONE);
    allocations[base] = allocation;
    count_memory(base, allocation.size_bytes);
    *pointer = base;
    log_line("malloc %zu", size);
    activity_memory(true, false, base, size);
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error == cudaSuccess)
        error = capture_forbids();
    if (error != cudaSuccess || pointer == NULL)
        return result(error);
    auto found = allocations.find((unsigned char *)pointer);
    if (found == allocations.end() || found->second.freed)
        return result(cudaErrorInvalidValue);
    streams_finish();
    struct allocation &allocation = found->second;
    mprotect(data_of(allocation), data_bytes(allocation), PROT_READ | PROT_WRITE);
    check_canary(found->first, allocation);
    madvise(data_of(allocation), data_bytes(allocation), MADV_DONTNEED);
    mprotect(data_of(allocation), data_bytes(allocation), PROT_NONE);
    allocation.freed = true;
    log_line("free %zu", allocation.size_bytes);
    activity_memory(false, false, pointer, allocation.size_bytes);
    return result(api.usable());
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned)
{
    struct api api;
    *pointer = NULL;
    cudaError_t error = api.usable();
    if (error == cudaSuccess)
        error = capture_forbids();
    if (error != cudaSuccess || size == 0)
        return result(error);
    if (posix_memalign(pointer, PAGE_BYTES, size) != 0)
        return result(cudaErrorMemoryAllocation);
    memset(*pointer, 0xA5, size); /* nothing says that it is zeroed */
    host_allocations[(unsigned char *)*pointer] = size;
    log_line("host_alloc %zu", size);
    activity_memory(true, true, *pointer, size);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **pointer, size_t size)
{
    return cudaHostAlloc(pointer, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *pointer)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error != cudaSuccess || pointer == NULL)
        return result(error);
    auto found = host_allocations.find((unsigned char *)pointer);
    if (found == host_allocations.end())
        return result(cudaErrorInvalidValue);
    activity_memory(false, true, pointer, found->second);
    log_line("host_free %zu", found->second);
    host_allocations.erase(found);
    streams_finish();
    free(pointer);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error == cudaSuccess && memory_type_of(pointer, size) != (int)cudaMemoryTypeUnregistered)
        error = cudaErrorHostMemoryAlreadyRegistered;
    if (error == cudaSuccess)
        host_allocations[(unsigned char *)pointer] = size;
    return result(error);
}

cudaError_t cudaHostUnregister(void *pointer)
{
    struct api api;
    if (host_allocations.erase((unsigned char *)pointer) == 0)
        return result(cudaErrorHostMemoryNotRegistered);
    return result(api.usable());
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    struct api api;
    memset(attributes, 0, sizeof *attributes);
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    int type = memory_type_of(pointer, 0);
    attributes->type = type < 0 ? cudaMemoryTypeUnregistered : (enum cudaMemoryType)type;
    attributes->device = type == (int)cudaMemoryTypeDevice ? find(pointer)->second.device : -2;
    if (type == (int)cudaMemoryTypeDevice || type == (int)cudaMemoryTypeHost)
        attributes->devicePointer = (void *)pointer;
    if (type != (int)cudaMemoryTypeDevice)
        attributes->hostPointer = (void *)pointer;
    return cudaSuccess;
}

} // extern "C"
