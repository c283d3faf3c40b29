/* SPDX-License-Identifier: 0BSD */
/*
 * A model on a CUDA device: ul_device.h's functions. Here contexts are opened and closed, and the
 * command line is served; see ul_cuda_internal.h for the rest.
 *
 * Invariants: there is one cudaMalloc in the life of a context, that of the arena, by `open`. CUDA
 * itself takes memory for its context, for the handles of libraries and for the captured run, all
 * before the context is ready, measured by what is free before and after. */
#include "ul_cuda_internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAPABILITY_MIN 80

static_assert(sizeof(struct ul_cuda_state) == UL_CUDA_STATE_BYTES, "said in ul_device.h");

/* ---- failures ---- */

static enum ul_result fail_memory(struct ul_failure *failure, uint64_t needed_bytes)
{
    size_t free_bytes = 0, total_bytes = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    return ul_fail(failure, UL_DEVICE_FULL, needed_bytes, free_bytes);
}

enum ul_result ul_cuda_fail(const struct ul_context *context, struct ul_failure *failure,
                            cudaError_t error)
{
    enum ul_result result = UL_DEVICE_FAILED;
    if (error == cudaErrorMemoryAllocation)
        return fail_memory(failure,
                           context->model->arena_bytes + 2 * context->request.margin_bytes);
    if (error == cudaErrorNoDevice)
        result = UL_DEVICE_MISSING;
    else if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidPtx ||
             error == cudaErrorUnsupportedPtxVersion || error == cudaErrorJitCompilerNotFound)
        result = UL_DEVICE_NO_CODE;
    failure->result = result;
    failure->detail = error == cudaErrorInitializationError
                          ? "initialization error; a process that was forked from one that used "
                            "CUDA has no device: start it by exec (in Python by spawn)"
                          : cudaGetErrorString(error);
    (void)cudaGetLastError(); /* or the next call would report it again */
    return result;
}

cudaError_t ul_cuda_enter(const struct ul_context *context, int *before)
{
    if (context->process != getpid())
        return cudaErrorInitializationError;
    (void)cudaGetLastError(); /* what a caller left is not this run's */
    cudaError_t error = cudaGetDevice(before);
    if (error == cudaSuccess && *before != context->device)
        error = cudaSetDevice(context->device);
    return error;
}

/* Not where it is the same device: on another one that would make a context. */
void ul_cuda_leave(int device, int before)
{
    if (before != device)
        (void)cudaSetDevice(before);
}

/* ---- memory that others hold: NVML, where it is installed ---- */

struct nvml_memory {
    unsigned long long total, free, used;
};

/* Bytes in use on the device, as the driver says, which needs no context; 0: it does not say. */
static uint64_t nvml_used_bytes(int device)
{
    char bus[32];
    void *handle = NULL;
    struct nvml_memory memory = {0, 0, 0};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return 0;
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*find)(const char *, void **) =
        (int (*)(const char *, void **))dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    int (*ask)(void *, struct nvml_memory *) =
        (int (*)(void *, struct nvml_memory *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    int (*shutdown)(void) = (int (*)(void))dlsym(library, "nvmlShutdown");
    if (init != NULL && find != NULL && ask != NULL && shutdown != NULL &&
        cudaDeviceGetPCIBusId(bus, (int)sizeof bus, device) == cudaSuccess && init() == 0) {
        if (find(bus, &handle) != 0 || ask(handle, &memory) != 0)
            memory.used = 0;
        (void)shutdown();
    }
    dlclose(library);
    return memory.used;
}

uint64_t ul_cuda_free_bytes(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    return cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess ? free_bytes : 0;
}

/* ---- open ---- */

/* Finds out whether there is a driver, whether it is new enough, and which device is meant. */
static enum ul_result find_device(struct ul_context *context, struct ul_failure *failure)
{
    const struct ul_device_request *request = &context->request;
    int driver = 0, count = 0;
    cudaError_t error = cudaDriverGetVersion(&driver);
    failure->tensor = request->number != 0 ? request->number - 1 : 0;
    if (error == cudaSuccess && driver == 0)
        return ul_fail(failure, UL_DEVICE_MISSING, 0, 0);
    if (error == cudaSuccess && driver / 1000 < CUDART_VERSION / 1000)
        error = cudaErrorInsufficientDriver;
    error = ul_cuda_first(error, cudaGetDeviceCount(&count));
    if (error == cudaErrorInsufficientDriver)
        return ul_fail(failure, UL_DRIVER_TOO_OLD, CUDART_VERSION, (uint64_t)driver);
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    if (request->number == 0)
        error = cudaGetDevice(&context->device);
    else
        context->device = (int)(request->number - 1);
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    if (context->device >= count)
        return ul_fail(failure, UL_DEVICE_MISSING, 0, (uint64_t)count);
    return UL_OK;
}

static enum ul_result check_device(struct ul_context *context, struct ul_failure *failure)
{
    struct cudaDeviceProp properties;
    int major = 0, minor = 0;
    cudaError_t error =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, context->device);
    error = ul_cuda_first(
        error, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, context->device));
    error = ul_cuda_first(error, cudaGetDeviceProperties(&properties, context->device));
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    snprintf(context->memory.device, sizeof context->memory.device,
             "%.200s (device %d, compute capability %d.%d)", properties.name, context->device,
             major, minor);
    failure->available_bytes = (uint64_t)(major * 10 + minor);
    if (failure->available_bytes < CAPABILITY_MIN)
        return ul_fail(failure, UL_DEVICE_TOO_OLD, CAPABILITY_MIN, failure->available_bytes);
    return UL_OK;
}

/* Makes CUDA's context, with all code of the program in it, and this one's streams and events. */
static enum ul_result make_context(struct ul_context *context, struct ul_failure *failure)
{
    struct ul_device_memory *memory = &context->memory;
    size_t free_bytes = 0, total_bytes = 0;
    uint64_t before = context->request.measured ? nvml_used_bytes(context->device) : 0;
    cudaError_t error = cudaSetDevice(context->device);
    error = ul_cuda_first(error, cudaFree(NULL));
    if (error == cudaSuccess)
        error = ul_cuda_probe(context->model->device->code, &context->overlaps);
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    failure->available_bytes = 0;
    error = cudaStreamCreateWithFlags(&context->own_stream, cudaStreamNonBlocking);
    for (int i = 0; error == cudaSuccess && context->request.timed && i < UL_CUDA_CLOCKS; i++)
        error = cudaEventCreate(&context->clock[i]);
    for (int i = 0; error == cudaSuccess && context->request.timed && i < UL_CUDA_STEP_EVENTS; i++)
        error = cudaEventCreate(&context->marks[i]);
    error = ul_cuda_first(
        error, cudaHostAlloc((void **)&context->seen, sizeof *context->seen, cudaHostAllocDefault));
    error = ul_cuda_first(error, cudaMemGetInfo(&free_bytes, &total_bytes));
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    memset(context->seen, 0, sizeof *context->seen); /* runs without faults never write it */
    uint64_t after = before != 0 ? nvml_used_bytes(context->device) : 0;
    memory->total_bytes = total_bytes;
    memory->context_shared = before == 0 || after == 0;
    memory->context_bytes =
        memory->context_shared ? total_bytes - free_bytes : ul_cuda_less(after, before);
    context->stream = context->request.stream != NULL ? (cudaStream_t)context->request.stream
                                                      : context->own_stream;
    return UL_OK;
}

/* Opens the second stream, on which steps run beside those of the first. */
static enum ul_result open_beside(struct ul_context *context, struct ul_failure *failure)
{
    cudaError_t error = cudaSuccess;
    if (context->model->device->stream_count < 2)
        return UL_OK;
    error = cudaStreamCreateWithFlags(&context->beside, cudaStreamNonBlocking);
    error =
        ul_cuda_first(error, cudaEventCreateWithFlags(&context->parted, cudaEventDisableTiming));
    error =
        ul_cuda_first(error, cudaEventCreateWithFlags(&context->joined, cudaEventDisableTiming));
    return error == cudaSuccess ? UL_OK : ul_cuda_fail(context, failure, error);
}

static void close_beside(struct ul_context *context)
{
    if (context->parted != NULL)
        (void)cudaEventDestroy(context->parted);
    if (context->joined != NULL)
        (void)cudaEventDestroy(context->joined);
    if (context->beside != NULL)
        (void)cudaStreamDestroy(context->beside);
}

/* Opens memory that copies beside kernels reach, of exactly the planned bytes; and streams and
 * events. */
static enum ul_result open_offload(struct ul_context *context, struct ul_failure *failure)
{
    const struct ul_model *model = context->model;
    uint32_t count = model->device->transfer_count;
    cudaError_t error = cudaSuccess;
    if (model->offload_bytes == 0)
        return UL_OK;
    context->moves = (struct ul_cuda_transfer *)calloc(count, sizeof *context->moves);
    if (context->moves == NULL || cudaHostAlloc((void **)&context->offload, model->offload_bytes,
                                                cudaHostAllocDefault) != cudaSuccess) {
        context->offload = NULL;
        (void)cudaGetLastError();
        return ul_fail(failure, UL_OFFLOAD_TOO_SMALL, model->offload_bytes, 0);
    }
    memset(context->offload, 0, model->offload_bytes);
    for (int i = 0; error == cudaSuccess && i < UL_CUDA_MOVERS; i++)
        error = cudaStreamCreateWithFlags(&context->movers[i], cudaStreamNonBlocking);
    for (uint32_t i = 0; error == cudaSuccess && i < count; i++) {
        error = cudaEventCreateWithFlags(&context->moves[i].begun, cudaEventDisableTiming);
        error = ul_cuda_first(
            error, cudaEventCreateWithFlags(&context->moves[i].done, cudaEventDisableTiming));
    }
    context->memory.offload_bytes = model->offload_bytes;
    return error == cudaSuccess ? UL_OK : ul_cuda_fail(context, failure, error);
}

static void close_offload(struct ul_context *context)
{
    uint32_t count = context->moves != NULL ? context->model->device->transfer_count : 0;
    for (int i = 0; i < UL_CUDA_MOVERS; i++)
        if (context->movers[i] != NULL)
            (void)cudaStreamDestroy(context->movers[i]);
    for (uint32_t i = 0; i < count; i++) {
        if (context->moves[i].begun != NULL)
            (void)cudaEventDestroy(context->moves[i].begun);
        if (context->moves[i].done != NULL)
            (void)cudaEventDestroy(context->moves[i].done);
    }
    if (context->offload != NULL)
        (void)cudaFreeHost(context->offload);
}

static enum ul_result open_libraries(struct ul_context *context, struct ul_failure *failure)
{
    const struct ul_device *device = context->model->device;
    struct ul_device_memory *memory = &context->memory;
    enum ul_result result = UL_OK;
    for (uint32_t i = 0; result == UL_OK && i < device->library_count; i++) {
        uint64_t before = ul_cuda_free_bytes();
        result = device->libraries[i]->open(&context->libraries[i], failure);
        if (result != UL_OK)
            break;
        memory->library_names[i] = device->libraries[i]->name;
        memory->library_bytes[i] = ul_cuda_less(before, ul_cuda_free_bytes());
        memory->library_count = i + 1;
    }
    return result;
}

bool ul_cuda_is_on_device(const struct ul_context *context, const void *bytes)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return attributes.type == cudaMemoryTypeManaged ||
           (attributes.type == cudaMemoryTypeDevice && attributes.device == context->device);
}

static enum ul_result acquire_arena(struct ul_context *context, struct ul_failure *failure)
{
    const struct ul_device_request *request = &context->request;
    const struct ul_model *model = context->model;
    if (request->arena_bytes < model->arena_bytes)
        return ul_fail(failure, UL_ARENA_TOO_SMALL, model->arena_bytes, request->arena_bytes);
    uint64_t address = (uint64_t)(uintptr_t)request->arena;
    if ((address & (model->arena_align - 1)) != 0)
        return ul_fail(failure, UL_ARENA_MISALIGNED, model->arena_align, address & (~address + 1));
    if (!ul_cuda_is_on_device(context, request->arena))
        return ul_fail(failure, UL_ARENA_ELSEWHERE, model->arena_bytes, 0);
    context->arena = (unsigned char *)request->arena;
    return UL_OK;
}

/* cudaMalloc aligns to 256 bytes: more would be of no use, whatever a plan's alignment is. */
static enum ul_result make_arena(struct ul_context *context, struct ul_failure *failure)
{
    const struct ul_model *model = context->model;
    uint64_t margin_bytes = context->request.margin_bytes;
    uint64_t size_bytes = model->arena_bytes + 2 * margin_bytes;
    uint64_t before = ul_cuda_free_bytes();
    if (before < size_bytes)
        return fail_memory(failure, size_bytes);
    cudaError_t error = cudaMalloc((void **)&context->block, size_bytes != 0 ? size_bytes : 1);
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    context->arena = context->block + margin_bytes;
    context->memory.allocated_bytes = size_bytes;
    context->memory.granted_bytes = ul_cuda_less(before, ul_cuda_free_bytes());
    return UL_OK;
}

/* Libraries try their calls on the arena, which is zeroed: nothing is read that nobody wrote. */
static enum ul_result prepare_libraries(struct ul_context *context, struct ul_failure *failure)
{
    const struct ul_device *device = context->model->device;
    enum ul_result result = UL_OK;
    cudaError_t error = cudaSuccess;
    if (device->library_count > 0)
        error = ul_cuda_clear_arena(context);
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    for (uint32_t i = 0; result == UL_OK && i < device->library_count; i++) {
        uint64_t before = ul_cuda_free_bytes();
        result =
            device->libraries[i]->prepare(context->libraries[i], context->model, &context->request,
                                          context->arena, context->stream, failure);
        context->memory.library_bytes[i] += ul_cuda_less(before, ul_cuda_free_bytes());
    }
    if (result == UL_OK)
        ul_cuda_ask_calls(context);
    for (uint32_t i = 0; result == UL_OK && i < device->library_count; i++)
        device->libraries[i]->count(context->libraries[i], &context->memory.calls_of[i]);
    return result;
}

static void close_on_device(struct ul_context *context)
{
    const struct ul_device *device = context->model->device;
    if (context->stream != NULL)
        (void)cudaStreamSynchronize(context->stream);
    ul_cuda_wait_for_movers(context);
    ul_cuda_drop_replays(context);
    for (uint32_t i = context->memory.library_count; i-- > 0;)
        device->libraries[i]->close(context->libraries[i]);
    if (context->block != NULL)
        (void)cudaFree(context->block);
    for (int i = 0; i < UL_CUDA_CLOCKS; i++)
        if (context->clock[i] != NULL)
            (void)cudaEventDestroy(context->clock[i]);
    for (int i = 0; i < UL_CUDA_STEP_EVENTS; i++)
        if (context->marks[i] != NULL)
            (void)cudaEventDestroy(context->marks[i]);
    if (context->seen != NULL)
        (void)cudaFreeHost(context->seen);
    close_offload(context);
    close_beside(context);
    if (context->own_stream != NULL)
        (void)cudaStreamDestroy(context->own_stream);
}

/* After a fork, everything on the device is the parent's. */
static void close_context(struct ul_context *context)
{
    int before = 0;
    if (context == NULL)
        return;
    if (context->process == getpid()) {
        bool entered = ul_cuda_enter(context, &before) == cudaSuccess;
        close_on_device(context);
        if (entered)
            ul_cuda_leave(context->device, before);
        (void)cudaGetLastError();
    }
    free(context->moves);
    ul_cuda_free_captured(context->model, context->captured);
    free(context->apart);
    free(context);
}

static enum ul_result open_parts(struct ul_context *context, struct ul_failure *failure)
{
    enum ul_result result = find_device(context, failure);
    if (result == UL_OK)
        result = check_device(context, failure);
    if (result == UL_OK)
        result = make_context(context, failure);
    if (result == UL_OK)
        result = open_offload(context, failure);
    if (result == UL_OK)
        result = open_beside(context, failure);
    if (result == UL_OK)
        result = open_libraries(context, failure);
    if (result == UL_OK && context->request.arena != NULL)
        result = acquire_arena(context, failure);
    else if (result == UL_OK)
        result = make_arena(context, failure);
    if (result == UL_OK)
        result = prepare_libraries(context, failure);
    return result;
}

static enum ul_result open_context(const struct ul_model *model,
                                   const struct ul_device_request *request,
                                   struct ul_context **result_context, struct ul_failure *failure)
{
    int before = -1;
    memset(failure, 0, sizeof *failure);
    *result_context = NULL;
    struct ul_context *context = (struct ul_context *)calloc(1, sizeof *context);
    if (context != NULL) {
        context->captured = ul_cuda_new_captured(model);
        context->apart = (uint8_t *)calloc((size_t)model->step_count + 1, 1);
    }
    if (context == NULL || context->captured == NULL || context->apart == NULL) {
        if (context != NULL) {
            ul_cuda_free_captured(model, context->captured);
            free(context->apart);
        }
        free(context);
        failure->detail = "the host is out of memory";
        return failure->result = UL_DEVICE_FAILED;
    }
    context->model = model;
    context->request = *request;
    context->process = getpid();
    bool known = cudaGetDevice(&before) == cudaSuccess;
    (void)cudaGetLastError();
    enum ul_result result = open_parts(context, failure);
    int device = context->device;
    if (result == UL_OK)
        *result_context = context;
    else
        close_context(context);
    if (known && request->number == 0)
        ul_cuda_leave(device, before);
    return result;
}

static void *get_stream(const struct ul_context *context)
{
    return context->stream;
}

/* ---- for the command line ---- */

/* Waits for what was enqueued, unless that failed with `error`; then restores the thread's
   device. */
static enum ul_result finish_now(struct ul_context *context, int before, cudaError_t error,
                                 struct ul_failure *failure)
{
    error = ul_cuda_first(error, cudaStreamSynchronize(context->stream));
    ul_cuda_leave(context->device, before);
    return error == cudaSuccess ? UL_OK : ul_cuda_fail(context, failure, error);
}

static enum ul_result copy_now(struct ul_context *context, const void *from, void *to,
                               uint64_t size_bytes, struct ul_failure *failure)
{
    int before = 0;
    memset(failure, 0, sizeof *failure);
    cudaError_t error = ul_cuda_enter(context, &before);
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    if (size_bytes != 0)
        error = cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, context->stream);
    return finish_now(context, before, error, failure);
}

static enum ul_result read_arena(struct ul_context *context, int64_t offset_bytes, void *target,
                                 uint64_t size_bytes, struct ul_failure *failure)
{
    return copy_now(context, context->arena + offset_bytes, target, size_bytes, failure);
}

static enum ul_result write_arena(struct ul_context *context, int64_t offset_bytes,
                                  const void *bytes, uint64_t size_bytes,
                                  struct ul_failure *failure)
{
    return copy_now(context, bytes, context->arena + offset_bytes, size_bytes, failure);
}

static enum ul_result fill_arena(struct ul_context *context, int64_t offset_bytes,
                                 unsigned char value, uint64_t size_bytes,
                                 struct ul_failure *failure)
{
    int before = 0;
    memset(failure, 0, sizeof *failure);
    cudaError_t error = ul_cuda_enter(context, &before);
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    if (size_bytes != 0)
        error = cudaMemsetAsync(context->arena + offset_bytes, value, size_bytes, context->stream);
    return finish_now(context, before, error, failure);
}

static enum ul_result exchange_bits(struct ul_context *context, int64_t offset_bytes,
                                    unsigned char pattern, uint64_t size_bytes,
                                    struct ul_failure *failure)
{
    int before = 0;
    memset(failure, 0, sizeof *failure);
    cudaError_t error = ul_cuda_enter(context, &before);
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    struct ul_cuda_run run = ul_cuda_begin_run(context, context->stream);
    ul_cuda_exchange_bits(&run, offset_bytes, pattern, size_bytes);
    return finish_now(context, before, run.error, failure);
}

static void *new_buffer(struct ul_context *context, uint64_t size_bytes)
{
    int before = 0;
    void *buffer = NULL;
    if (ul_cuda_enter(context, &before) != cudaSuccess)
        return NULL;
    if (cudaMalloc(&buffer, size_bytes != 0 ? size_bytes : 1) != cudaSuccess)
        buffer = NULL;
    (void)cudaGetLastError();
    ul_cuda_leave(context->device, before);
    return buffer;
}

static void free_buffer(struct ul_context *context, void *buffer)
{
    int before = 0;
    if (buffer == NULL || ul_cuda_enter(context, &before) != cudaSuccess)
        return;
    (void)cudaFree(buffer);
    ul_cuda_leave(context->device, before);
}

static unsigned char *get_offload(const struct ul_context *context)
{
    return context->process == getpid() ? context->offload : NULL;
}

static void *new_host(struct ul_context *context, uint64_t size_bytes)
{
    void *bytes = NULL;
    (void)context;
    if (cudaHostAlloc(&bytes, size_bytes != 0 ? size_bytes : 1, cudaHostAllocDefault) !=
        cudaSuccess)
        bytes = NULL;
    (void)cudaGetLastError();
    return bytes;
}

static void free_host(struct ul_context *context, void *bytes)
{
    (void)context;
    if (bytes != NULL)
        (void)cudaFreeHost(bytes);
}

uint64_t ul_cuda_count_apart(const struct ul_context *context)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < context->model->step_count; i++)
        count += context->apart[i];
    return count;
}

static void get_memory(const struct ul_context *context, struct ul_device_memory *memory)
{
    int before = 0;
    *memory = context->memory;
    memory->apart_count = ul_cuda_count_apart(context);
    if (ul_cuda_enter(context, &before) != cudaSuccess)
        return;
    memory->free_bytes = ul_cuda_free_bytes();
    ul_cuda_leave(context->device, before);
}

static double seconds_between(const struct ul_context *context, enum ul_cuda_clock from)
{
    float milliseconds = 0.0f;
    if (!context->request.timed || cudaEventElapsedTime(&milliseconds, context->clock[from],
                                                        context->clock[from + 1]) != cudaSuccess)
        return 0.0;
    return (double)milliseconds * 1e-3;
}

static void get_times(const struct ul_context *context, struct ul_device_times *times)
{
    times->in_seconds = seconds_between(context, UL_CUDA_BEFORE_IN);
    times->run_seconds = seconds_between(context, UL_CUDA_BEFORE_RUN);
    times->out_seconds = seconds_between(context, UL_CUDA_AFTER_RUN);
}

static const char *implementation(const struct ul_context *context, uint32_t step, uint32_t call)
{
    const struct ul_device *device = context->model->device;
    const char *name = NULL;
    for (uint32_t i = 0; name == NULL && i < device->library_count; i++)
        name = device->libraries[i]->implementation(context->libraries[i], step, call);
    return name;
}

static int note(const struct ul_context *context, uint32_t library, char text[UL_DEVICE_TEXT_BYTES])
{
    return context->model->device->libraries[library]->note(context->libraries[library], text);
}

static void describe(const struct ul_model *model, char text[UL_DEVICE_TEXT_BYTES])
{
    static const int list[] = {
#ifdef __CUDA_ARCH_LIST__
        __CUDA_ARCH_LIST__,
#endif
        0};
    const struct ul_device *device = model->device;
    char part[UL_DEVICE_TEXT_BYTES];
    size_t used = (size_t)snprintf(text, UL_DEVICE_TEXT_BYTES, "CUDA %d.%d", CUDART_VERSION / 1000,
                                   CUDART_VERSION % 1000 / 10);
    for (int i = 0; list[i] != 0 && used + 32 < UL_DEVICE_TEXT_BYTES; i++)
        used += (size_t)snprintf(text + used, UL_DEVICE_TEXT_BYTES - used, "%s%d.%d",
                                 i == 0 ? ", code for compute capability " : ", ", list[i] / 100,
                                 list[i] % 100 / 10);
    for (uint32_t i = 0; i < device->library_count && used < UL_DEVICE_TEXT_BYTES; i++) {
        device->libraries[i]->describe(part);
        int size = snprintf(text + used, UL_DEVICE_TEXT_BYTES - used, "; %s", part);
        used += size > 0 ? (size_t)size : 0;
    }
}

extern "C" const struct ul_device_functions ul_cuda_functions = {
    "CUDA",
    open_context,
    ul_cuda_load_context,
    close_context,
    get_stream,
    ul_cuda_run_context,
    ul_cuda_run_steps,
    read_arena,
    write_arena,
    fill_arena,
    exchange_bits,
    new_buffer,
    free_buffer,
    copy_now,
    get_offload,
    new_host,
    free_host,
    get_memory,
    get_times,
    implementation,
    note,
    describe,
};
