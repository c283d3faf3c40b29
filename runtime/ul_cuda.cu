/*
 * A model on a CUDA device: ul_device.h's functions, and the fixed steps of ul_cuda.h.
 *
 *     inputs --copy--> | arena: clear state, kernels, state to the host | --copy--> outputs
 *                      '------ captured once as a graph, replayed ------'
 *
 * A run is what kernels.cu's main enqueues: it depends on the arena's address and, with --io
 * caller, on those of the caller's buffers, on nothing else, so that it is captured once and
 * replayed. It is launched step by step instead where somebody wants to be told of steps, and where
 * it is too long: loops are unrolled while they are enqueued, a node of a graph takes memory of the
 * device, and GRAPH_LAUNCH_LIMIT of them are what a graph may have.
 *
 * Weights pass through two halves of a small page-locked buffer: one is read and hashed while the
 * other is on its way. They are held nowhere else.
 *
 * Invariants: one cudaMalloc in the life of a context, of the arena, by `open`. CUDA itself takes
 * memory for its context, for the handles of libraries and for the captured run, all before the
 * context is ready, measured by what is free before and after.
 */
#include "ul_check.h"
#include "ul_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRAPH_LAUNCH_LIMIT 65536
#define STAGING_BYTES (UINT64_C(4) << 20) /* of a half */
#define STEP_EVENTS 256
#define CAPABILITY_LEAST 80
#define COPY_THREADS 256
#define COPY_BLOCKS 2048 /* more do not make a copy faster */

static_assert(sizeof(struct ul_cuda_state) == UL_CUDA_STATE_BYTES, "said in ul_device.h");

enum clock_event { BEFORE_IN, BEFORE_RUN, AFTER_RUN, AFTER_OUT, CLOCK_EVENTS };

struct ul_context {
    const struct ul_model *model;
    struct ul_device_request request;
    int device;
    cudaStream_t own_stream; /* captures; runs, where the caller has none */
    cudaStream_t stream;
    unsigned char *block; /* the one allocation: margin, arena, margin; NULL: the caller's arena */
    unsigned char *arena;
    struct ul_cuda_state *seen; /* page-locked: the state after a run */
    void *libraries[UL_DEVICE_LIBRARY_LIMIT];
    cudaGraphExec_t graph;
    const void **graph_buffers; /* the caller's inputs and outputs that it was captured with */
    cudaEvent_t clock[CLOCK_EVENTS];
    cudaEvent_t marks[STEP_EVENTS];
    uint32_t marked_steps[STEP_EVENTS];
    uint32_t mark_count;
    double *step_seconds; /* of the caller, while marks are set */
    ul_step_hook *hook;
    void *hook_context;
    struct ul_device_memory memory;
};

/* ---- failures ---- */

/* What an error of CUDA means to the caller. */
static enum ul_result fail(struct ul_failure *failure, cudaError_t error)
{
    enum ul_result result = UL_DEVICE_FAILED;
    if (error == cudaErrorNoDevice)
        result = UL_DEVICE_MISSING;
    else if (error == cudaErrorInsufficientDriver)
        result = UL_DRIVER_TOO_OLD;
    else if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidPtx ||
             error == cudaErrorUnsupportedPtxVersion || error == cudaErrorJitCompilerNotFound)
        result = UL_DEVICE_NO_CODE;
    failure->result = result;
    failure->detail = cudaGetErrorString(error);
    (void)cudaGetLastError(); /* or the next call would report it again */
    return result;
}

static enum ul_result fail_memory(struct ul_failure *failure, uint64_t needed_bytes)
{
    size_t free_bytes = 0, total_bytes = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    return ul_check_fail(failure, UL_DEVICE_FULL, needed_bytes, free_bytes);
}

/* The first error of several calls. */
static cudaError_t first(cudaError_t error, cudaError_t other)
{
    return error != cudaSuccess ? error : other;
}

/* The context's device becomes the thread's; *before is what it was. */
static cudaError_t enter(const struct ul_context *context, int *before)
{
    cudaError_t error = cudaGetDevice(before);
    if (error == cudaSuccess && *before != context->device)
        error = cudaSetDevice(context->device);
    return error;
}

static void leave(const struct ul_context *context, int before)
{
    if (before != context->device)
        (void)cudaSetDevice(before);
}

/* ---- fixed steps ---- */

static __global__ void copy_words(const uint4 *from, uint4 *to, int64_t count, struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        to[i] = from[i];
}

static __global__ void copy_bytes(const unsigned char *from, unsigned char *to, int64_t count,
                                  struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        to[i] = from[i];
}

static __global__ void put_counter(int64_t *to, int64_t value, struct ul_where run)
{
    UL_ENTER(run);
    *to = value;
}

/* These two run always: a region that is not entered must say so. */
static __global__ void enter_region(uint8_t *region, const uint8_t *parent,
                                    const uint8_t *condition, int negated, struct ul_where run)
{
    (void)run;
    int enters = parent == NULL || *parent != 0;
    if (enters && condition != NULL)
        enters = (*condition != 0) != (negated != 0);
    *region = (uint8_t)enters;
}

static __global__ void test_region(uint8_t *region, const uint8_t *condition, struct ul_where run)
{
    (void)run;
    if (*region != 0 && *condition == 0)
        *region = 0;
}

/* `pattern` over and over: byte i of it at each multiple of 8 plus i. */
static __global__ void fill_bytes(unsigned char *to, uint64_t pattern, int64_t count,
                                  struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        to[i] = (unsigned char)(pattern >> i % 8 * 8);
}

static __global__ void fill_words(uint64_t *to, uint64_t pattern, int64_t count,
                                  struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        to[i] = pattern;
}

static int64_t blocks_for(int64_t item_count)
{
    int64_t blocks = (item_count + COPY_THREADS - 1) / COPY_THREADS;
    return blocks < COPY_BLOCKS ? blocks : COPY_BLOCKS;
}

void ul_cuda_copy(const struct ul_cuda_step *at, const void *from, void *to, uint64_t size_bytes)
{
    bool aligned = (((uintptr_t)from | (uintptr_t)to) & 15) == 0;
    int64_t words = aligned ? (int64_t)(size_bytes / 16) : 0;
    int64_t rest = (int64_t)size_bytes - words * 16;
    if (words != 0)
        UL_LAUNCH(copy_words, blocks_for(words), COPY_THREADS, at, (const uint4 *)from, (uint4 *)to,
                  words);
    if (rest != 0)
        UL_LAUNCH(copy_bytes, blocks_for(rest), COPY_THREADS, at,
                  (const unsigned char *)from + words * 16, (unsigned char *)to + words * 16, rest);
}

void ul_cuda_put_counter(const struct ul_cuda_step *at, int64_t *to, int64_t value)
{
    UL_LAUNCH(put_counter, 1, 1, at, to, value);
}

void ul_cuda_enter_region(const struct ul_cuda_step *at, uint32_t region, uint32_t parent,
                          const uint8_t *condition, int negated)
{
    uint8_t *regions = at->run->regions;
    const uint8_t *outer = parent == UL_CUDA_ALWAYS ? NULL : regions + parent;
    UL_LAUNCH(enter_region, 1, 1, at, regions + region, outer, condition, negated);
}

void ul_cuda_test(const struct ul_cuda_step *at, uint32_t region, const uint8_t *condition)
{
    UL_LAUNCH(test_region, 1, 1, at, at->run->regions + region, condition);
}

/* element_count elements, each the low element_bytes of value, little-endian. The target is aligned
   to the element, so that a pattern of 8 bytes that begins with an element serves all of it. */
static void fill_splat(const struct ul_cuda_step *at, const struct ul_splat *splat)
{
    unsigned char *to = at->run->arena + splat->offset_bytes;
    int64_t size_bytes = (int64_t)(splat->element_count * splat->element_bytes);
    uint64_t pattern = splat->value;
    for (uint32_t bytes = splat->element_bytes; bytes < 8; bytes *= 2) {
        pattern &= UINT64_MAX >> (64 - bytes * 8);
        pattern |= pattern << bytes * 8;
    }
    int64_t words = ((uintptr_t)to & 7) == 0 ? size_bytes / 8 : 0;
    int64_t rest = size_bytes - words * 8;
    if (words != 0)
        UL_LAUNCH(fill_words, blocks_for(words), COPY_THREADS, at, (uint64_t *)(void *)to, pattern,
                  words);
    if (rest != 0)
        UL_LAUNCH(fill_bytes, blocks_for(rest), COPY_THREADS, at, to + words * 8, pattern, rest);
}

/* ---- memory that others hold: NVML, where it is installed ---- */

struct nvml_memory {
    unsigned long long total, free, used;
};

/* Bytes in use on the device, by the driver's word, which needs no context; 0: it does not say. */
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

static uint64_t free_bytes_now(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    return cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess ? free_bytes : 0;
}

static uint64_t less(uint64_t before, uint64_t after)
{
    return before > after ? before - after : 0;
}

/* ---- open ---- */

/* Is there a driver, is it new enough, and which device is it to be? */
static enum ul_result find_device(struct ul_context *context, struct ul_failure *failure)
{
    const struct ul_device_request *request = &context->request;
    int driver = 0, count = 0;
    cudaError_t error = cudaDriverGetVersion(&driver);
    failure->tensor = request->number != 0 ? request->number - 1 : 0;
    if (error == cudaSuccess && driver == 0)
        return ul_check_fail(failure, UL_DEVICE_MISSING, 0, 0);
    if (error == cudaSuccess && driver / 1000 < CUDART_VERSION / 1000)
        error = cudaErrorInsufficientDriver;
    error = first(error, cudaGetDeviceCount(&count));
    failure->needed_bytes = CUDART_VERSION;
    failure->available_bytes = (uint64_t)driver;
    if (error != cudaSuccess)
        return fail(failure, error);
    failure->needed_bytes = failure->available_bytes = 0;
    if (request->number == 0)
        error = cudaGetDevice(&context->device);
    else
        context->device = (int)(request->number - 1);
    if (error != cudaSuccess)
        return fail(failure, error);
    if (context->device >= count)
        return ul_check_fail(failure, UL_DEVICE_MISSING, 0, (uint64_t)count);
    return UL_OK;
}

static enum ul_result check_device(struct ul_context *context, struct ul_failure *failure)
{
    struct cudaDeviceProp properties;
    int major = 0, minor = 0;
    cudaError_t error =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, context->device);
    error = first(
        error, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, context->device));
    error = first(error, cudaGetDeviceProperties(&properties, context->device));
    if (error != cudaSuccess)
        return fail(failure, error);
    snprintf(context->memory.device, sizeof context->memory.device,
             "%.200s (device %d, compute capability %d.%d)", properties.name, context->device,
             major, minor);
    failure->available_bytes = (uint64_t)(major * 10 + minor);
    if (failure->available_bytes < CAPABILITY_LEAST)
        return ul_check_fail(failure, UL_DEVICE_TOO_OLD, CAPABILITY_LEAST,
                             failure->available_bytes);
    return UL_OK;
}

/* Makes CUDA's context, with all code of the program in it, and this one's streams and events. */
static enum ul_result make_context(struct ul_context *context, struct ul_failure *failure)
{
    struct ul_device_memory *memory = &context->memory;
    struct cudaFuncAttributes attributes;
    size_t free_bytes = 0, total_bytes = 0;
    uint64_t before = context->request.measured ? nvml_used_bytes(context->device) : 0;
    cudaError_t error = cudaSetDevice(context->device);
    error = first(error, cudaFree(NULL));
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, (const void *)copy_words);
    if (error != cudaSuccess)
        return fail(failure, error);
    failure->available_bytes = 0;
    error = cudaStreamCreateWithFlags(&context->own_stream, cudaStreamNonBlocking);
    for (int i = 0; error == cudaSuccess && context->request.timed && i < CLOCK_EVENTS; i++)
        error = cudaEventCreate(&context->clock[i]);
    for (int i = 0; error == cudaSuccess && context->request.timed && i < STEP_EVENTS; i++)
        error = cudaEventCreate(&context->marks[i]);
    error = first(
        error, cudaHostAlloc((void **)&context->seen, sizeof *context->seen, cudaHostAllocDefault));
    error = first(error, cudaMemGetInfo(&free_bytes, &total_bytes));
    if (error != cudaSuccess)
        return fail(failure, error);
    uint64_t after = before != 0 ? nvml_used_bytes(context->device) : 0;
    memory->total_bytes = total_bytes;
    memory->context_shared = before == 0 || after == 0;
    memory->context_bytes = memory->context_shared ? total_bytes - free_bytes : less(after, before);
    context->stream = context->request.stream != NULL ? (cudaStream_t)context->request.stream
                                                      : context->own_stream;
    return UL_OK;
}

static enum ul_result open_libraries(struct ul_context *context, struct ul_failure *failure)
{
    const struct ul_device *device = context->model->device;
    struct ul_device_memory *memory = &context->memory;
    enum ul_result result = UL_OK;
    for (uint32_t i = 0; result == UL_OK && i < device->library_count; i++) {
        uint64_t before = free_bytes_now();
        result = device->libraries[i]->open(&context->libraries[i], failure);
        if (result != UL_OK)
            break;
        memory->library_names[i] = device->libraries[i]->name;
        memory->library_bytes[i] = less(before, free_bytes_now());
        memory->library_count = i + 1;
    }
    return result;
}

static bool is_on_device(const struct ul_context *context, const void *bytes)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return attributes.type == cudaMemoryTypeManaged ||
           (attributes.type == cudaMemoryTypeDevice && attributes.device == context->device);
}

static enum ul_result take_arena(struct ul_context *context, struct ul_failure *failure)
{
    const struct ul_device_request *request = &context->request;
    const struct ul_model *model = context->model;
    if (request->arena_bytes < model->arena_bytes)
        return ul_check_fail(failure, UL_ARENA_TOO_SMALL, model->arena_bytes, request->arena_bytes);
    uint64_t address = (uint64_t)(uintptr_t)request->arena;
    if ((address & (model->arena_align - 1)) != 0)
        return ul_check_fail(failure, UL_ARENA_MISALIGNED, model->arena_align,
                             address & (~address + 1));
    if (!is_on_device(context, request->arena))
        return ul_check_fail(failure, UL_ARENA_ELSEWHERE, model->arena_bytes, 0);
    context->arena = (unsigned char *)request->arena;
    return UL_OK;
}

/* cudaMalloc aligns to 256 bytes, which is the most that a plan for this target asks for. */
static enum ul_result make_arena(struct ul_context *context, struct ul_failure *failure)
{
    const struct ul_model *model = context->model;
    uint64_t margin_bytes = context->request.margin_bytes;
    uint64_t size_bytes = model->arena_bytes + 2 * margin_bytes;
    uint64_t before = free_bytes_now();
    if (before < size_bytes)
        return fail_memory(failure, size_bytes);
    cudaError_t error = cudaMalloc((void **)&context->block, size_bytes != 0 ? size_bytes : 1);
    if (error == cudaErrorMemoryAllocation)
        return fail_memory(failure, size_bytes);
    if (error != cudaSuccess)
        return fail(failure, error);
    context->arena = context->block + margin_bytes;
    context->memory.allocated_bytes = size_bytes;
    context->memory.granted_bytes = less(before, free_bytes_now());
    return UL_OK;
}

static enum ul_result prepare_libraries(struct ul_context *context, struct ul_failure *failure)
{
    const struct ul_device *device = context->model->device;
    enum ul_result result = UL_OK;
    for (uint32_t i = 0; result == UL_OK && i < device->library_count; i++) {
        uint64_t before = free_bytes_now();
        result =
            device->libraries[i]->prepare(context->libraries[i], context->model, &context->request,
                                          context->arena, context->stream, failure);
        context->memory.library_bytes[i] += less(before, free_bytes_now());
    }
    return result;
}

static void close_context(struct ul_context *context)
{
    int before = 0;
    if (context == NULL)
        return;
    bool entered = enter(context, &before) == cudaSuccess;
    const struct ul_device *device = context->model->device;
    if (context->stream != NULL)
        (void)cudaStreamSynchronize(context->stream);
    if (context->graph != NULL)
        (void)cudaGraphExecDestroy(context->graph);
    for (uint32_t i = context->memory.library_count; i-- > 0;)
        device->libraries[i]->close(context->libraries[i]);
    if (context->block != NULL)
        (void)cudaFree(context->block);
    for (int i = 0; i < CLOCK_EVENTS; i++)
        if (context->clock[i] != NULL)
            (void)cudaEventDestroy(context->clock[i]);
    for (int i = 0; i < STEP_EVENTS; i++)
        if (context->marks[i] != NULL)
            (void)cudaEventDestroy(context->marks[i]);
    if (context->seen != NULL)
        (void)cudaFreeHost(context->seen);
    if (context->own_stream != NULL)
        (void)cudaStreamDestroy(context->own_stream);
    if (entered)
        leave(context, before);
    (void)cudaGetLastError();
    free(context->graph_buffers);
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
        result = open_libraries(context, failure);
    if (result == UL_OK && context->request.arena != NULL)
        result = take_arena(context, failure);
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
    size_t buffer_count = (size_t)model->input_count + model->output_count;
    if (context != NULL)
        context->graph_buffers = (const void **)calloc(buffer_count + 1, sizeof(const void *));
    if (context == NULL || context->graph_buffers == NULL) {
        free(context);
        failure->detail = "the host is out of memory";
        return failure->result = UL_DEVICE_FAILED;
    }
    context->model = model;
    context->request = *request;
    bool known = cudaGetDevice(&before) == cudaSuccess;
    (void)cudaGetLastError();
    enum ul_result result = open_parts(context, failure);
    if (result == UL_OK)
        *result_context = context;
    else
        close_context(context);
    if (known)
        (void)cudaSetDevice(before);
    return result;
}

/* ---- runs ---- */

static struct ul_cuda_run begin_run(const struct ul_context *context, cudaStream_t stream)
{
    struct ul_cuda_run run;
    memset(&run, 0, sizeof run);
    run.stream = stream;
    run.arena = context->arena;
    run.state = (struct ul_cuda_state *)(void *)(context->arena +
                                                 context->model->device->state_offset_bytes);
    run.regions = (uint8_t *)(run.state + 1);
    run.libraries = context->libraries;
    run.launch_limit = UINT64_MAX;
    return run;
}

/* All of a run, with `entry` of kernels.cu in its middle. */
static void enqueue(struct ul_context *context, struct ul_cuda_run *run,
                    void (*entry)(struct ul_cuda_run *run))
{
    size_t state_bytes = UL_CUDA_STATE_BYTES + context->model->device->region_count;
    ul_cuda_note(run, cudaMemsetAsync(run->state, 0, state_bytes, run->stream));
    if (run->error == cudaSuccess)
        entry(run);
    if (run->error == cudaSuccess)
        ul_cuda_note(run, cudaMemcpyAsync(context->seen, run->state, sizeof *context->seen,
                                          cudaMemcpyDeviceToHost, run->stream));
}

/* Waits for the run, hands its fault to the caller. */
static enum ul_result finish(struct ul_context *context, cudaError_t error,
                             struct ul_failure *failure)
{
    const struct ul_model *model = context->model;
    const struct ul_cuda_fault *fault = &context->seen->fault;
    error = first(error, cudaStreamSynchronize(context->stream));
    if (error != cudaSuccess)
        return fail(failure, error);
    if (fault->kind == UL_FAULT_NONE)
        return UL_OK;
    failure->result = UL_DATA_FAULT;
    failure->step = fault->step;
    failure->node = model->steps != NULL ? model->steps[fault->step].node : NULL;
    failure->fault = (enum ul_fault)fault->kind;
    failure->fault_value = fault->value;
    failure->fault_limit = fault->limit;
    return UL_DATA_FAULT;
}

/* The caller's buffers, of which those in `buffers` that the model reads and writes in place. */
static bool same_buffers(struct ul_context *context, const void *const *inputs,
                         void *const *outputs, bool keep)
{
    const struct ul_model *model = context->model;
    const void **buffers = context->graph_buffers;
    bool same = true;
    for (uint32_t i = 0; i < model->input_count; i++) {
        const void *now = model->inputs[i].space != UL_SPACE_ARENA ? inputs[i] : NULL;
        same = same && buffers[i] == now;
        if (keep)
            buffers[i] = now;
    }
    buffers += model->input_count;
    for (uint32_t i = 0; i < model->output_count; i++) {
        const void *now = model->outputs[i].space != UL_SPACE_ARENA ? outputs[i] : NULL;
        same = same && buffers[i] == now;
        if (keep)
            buffers[i] = now;
    }
    return same;
}

/* A graph of what `main` enqueues; NULL where CUDA does not capture it, or it is too long. */
static cudaGraph_t record(struct ul_context *context, const void *const *inputs,
                          void *const *outputs)
{
    struct ul_cuda_run run = begin_run(context, context->own_stream);
    cudaGraph_t graph = NULL;
    run.inputs = inputs;
    run.outputs = outputs;
    run.launch_limit = GRAPH_LAUNCH_LIMIT;
    run.error = cudaStreamBeginCapture(run.stream, cudaStreamCaptureModeThreadLocal);
    bool capturing = run.error == cudaSuccess;
    if (capturing)
        enqueue(context, &run, context->model->device->code->main);
    cudaError_t error = capturing ? cudaStreamEndCapture(run.stream, &graph) : run.error;
    error = first(run.error, error);
    context->memory.launch_count = run.launch_count;
    if (run.launch_count == GRAPH_LAUNCH_LIMIT)
        context->memory.uncaptured = "a run has more launches than a graph may have";
    else if (error != cudaSuccess)
        context->memory.uncaptured = cudaGetErrorString(error);
    if (context->memory.uncaptured != NULL && graph != NULL) {
        (void)cudaGraphDestroy(graph);
        graph = NULL;
    }
    (void)cudaGetLastError();
    return graph;
}

/* A run that cannot be captured is launched step by step: slower, and the same otherwise. */
static enum ul_result capture(struct ul_context *context, const void *const *inputs,
                              void *const *outputs, struct ul_failure *failure)
{
    uint64_t before = free_bytes_now();
    if (context->graph != NULL)
        (void)cudaGraphExecDestroy(context->graph);
    context->graph = NULL;
    (void)same_buffers(context, inputs, outputs, true);
    cudaGraph_t graph = record(context, inputs, outputs);
    if (graph == NULL)
        return UL_OK;
    cudaError_t error = cudaGraphInstantiate(&context->graph, graph, 0);
    if (error == cudaSuccess)
        error = cudaGraphUpload(context->graph, context->own_stream);
    else
        context->graph = NULL;
    error = first(error, cudaStreamSynchronize(context->own_stream));
    (void)cudaGraphDestroy(graph);
    context->memory.ready_free_bytes = free_bytes_now();
    context->memory.graph_bytes = less(before, context->memory.ready_free_bytes);
    if (error == cudaErrorMemoryAllocation)
        return fail_memory(failure, 0);
    return error == cudaSuccess ? UL_OK : fail(failure, error);
}

static enum ul_result check_buffers(const struct ul_context *context, const void *const *inputs,
                                    void *const *outputs, struct ul_failure *failure)
{
    const struct ul_model *model = context->model;
    enum ul_result result = ul_check_buffers(model, inputs, outputs, failure);
    if (result != UL_OK)
        return result;
    for (uint32_t i = 0; i < model->input_count; i++)
        if (model->inputs[i].space != UL_SPACE_ARENA && !is_on_device(context, inputs[i])) {
            failure->tensor = i;
            return failure->result = UL_INPUT_ELSEWHERE;
        }
    for (uint32_t i = 0; i < model->output_count; i++)
        if (model->outputs[i].space != UL_SPACE_ARENA && !is_on_device(context, outputs[i])) {
            failure->tensor = i;
            return failure->result = UL_OUTPUT_ELSEWHERE;
        }
    return UL_OK;
}

static cudaError_t copy_inputs(const struct ul_context *context, const void *const *inputs)
{
    const struct ul_model *model = context->model;
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; inputs != NULL && i < model->input_count; i++) {
        const struct ul_tensor *input = &model->inputs[i];
        if (input->space == UL_SPACE_ARENA && inputs[i] != NULL)
            error = first(error,
                          cudaMemcpyAsync(context->arena + input->offset_bytes, inputs[i],
                                          input->size_bytes, cudaMemcpyDefault, context->stream));
    }
    return error;
}

static cudaError_t copy_outputs(const struct ul_context *context, void *const *outputs)
{
    const struct ul_model *model = context->model;
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; outputs != NULL && i < model->output_count; i++) {
        const struct ul_tensor *output = &model->outputs[i];
        if (output->space == UL_SPACE_ARENA && outputs[i] != NULL)
            error = first(error,
                          cudaMemcpyAsync(outputs[i], context->arena + output->offset_bytes,
                                          output->size_bytes, cudaMemcpyDefault, context->stream));
    }
    return error;
}

/* Waits for all steps before this one, and tells of it if its region runs. */
static void tell_hook(struct ul_cuda_run *run, const struct ul_where *where)
{
    struct ul_context *context = (struct ul_context *)run->announce_context;
    uint8_t runs = 1;
    if (where->when != NULL)
        ul_cuda_note(run,
                     cudaMemcpyAsync(&runs, where->when, 1, cudaMemcpyDeviceToHost, run->stream));
    ul_cuda_note(run, cudaStreamSynchronize(run->stream));
    if (run->error == cudaSuccess && runs != 0)
        context->hook(context->hook_context, where->step);
}

/* Adds the times between the marks to their steps, and begins anew with the last one. */
static void count_marks(struct ul_context *context, struct ul_cuda_run *run)
{
    uint32_t last = context->mark_count - 1;
    ul_cuda_note(run, cudaEventSynchronize(context->marks[last]));
    for (uint32_t i = 0; i < last; i++) {
        float milliseconds = 0.0f;
        ul_cuda_note(run,
                     cudaEventElapsedTime(&milliseconds, context->marks[i], context->marks[i + 1]));
        context->step_seconds[context->marked_steps[i]] += (double)milliseconds * 1e-3;
    }
    cudaEvent_t kept = context->marks[last];
    context->marks[last] = context->marks[0];
    context->marks[0] = kept;
    context->marked_steps[0] = context->marked_steps[last];
    context->mark_count = 1;
}

static void mark_step(struct ul_cuda_run *run, const struct ul_where *where)
{
    struct ul_context *context = (struct ul_context *)run->announce_context;
    if (context->mark_count == STEP_EVENTS)
        count_marks(context, run);
    context->marked_steps[context->mark_count] = where->step;
    ul_cuda_note(run, cudaEventRecord(context->marks[context->mark_count++], run->stream));
}

/* Everything that is not a replay: `announce`, which may be NULL, is told of each step. */
static cudaError_t launch(struct ul_context *context, const void *const *inputs,
                          void *const *outputs,
                          void (*announce)(struct ul_cuda_run *, const struct ul_where *))
{
    struct ul_cuda_run run = begin_run(context, context->stream);
    run.inputs = inputs;
    run.outputs = outputs;
    run.announce = announce;
    run.announce_context = context;
    enqueue(context, &run, context->model->device->code->main);
    if (announce == mark_step && run.error == cudaSuccess) {
        struct ul_where end = {NULL, NULL, 0, 0};
        mark_step(&run, &end);
        count_marks(context, &run);
    }
    context->memory.launch_count = run.launch_count;
    return run.error;
}

static cudaError_t tick(const struct ul_context *context, enum clock_event event)
{
    return context->request.timed ? cudaEventRecord(context->clock[event], context->stream)
                                  : cudaSuccess;
}

static enum ul_result run_on_device(struct ul_context *context, const void *const *inputs,
                                    void *const *outputs,
                                    void (*announce)(struct ul_cuda_run *, const struct ul_where *),
                                    struct ul_failure *failure)
{
    enum ul_result result = check_buffers(context, inputs, outputs, failure);
    bool replays = announce == NULL && !context->request.plain;
    bool stale = context->graph == NULL || !same_buffers(context, inputs, outputs, false);
    if (result == UL_OK && replays && context->memory.uncaptured == NULL && stale)
        result = capture(context, inputs, outputs, failure);
    if (result != UL_OK)
        return result;
    replays = replays && context->graph != NULL;
    cudaError_t error = tick(context, BEFORE_IN);
    error = first(error, copy_inputs(context, inputs));
    error = first(error, tick(context, BEFORE_RUN));
    if (error == cudaSuccess)
        error = replays ? cudaGraphLaunch(context->graph, context->stream)
                        : launch(context, inputs, outputs, announce);
    error = first(error, tick(context, AFTER_RUN));
    error = first(error, copy_outputs(context, outputs));
    error = first(error, tick(context, AFTER_OUT));
    context->memory.run_count++;
    context->memory.replay_count += replays;
    return finish(context, error, failure);
}

static enum ul_result run_context(struct ul_context *context, const void *const *inputs,
                                  void *const *outputs, ul_step_hook *hook, void *hook_context,
                                  struct ul_failure *failure)
{
    int before = 0;
    memset(failure, 0, sizeof *failure);
    cudaError_t error = enter(context, &before);
    if (error != cudaSuccess)
        return fail(failure, error);
    context->hook = hook;
    context->hook_context = hook_context;
    enum ul_result result =
        run_on_device(context, inputs, outputs, hook != NULL ? tell_hook : NULL, failure);
    if (hook != NULL && (result == UL_OK || result == UL_DATA_FAULT))
        hook(hook_context, context->model->step_count);
    leave(context, before);
    return result;
}

static enum ul_result run_steps(struct ul_context *context, const void *const *inputs,
                                void *const *outputs, double *step_seconds,
                                struct ul_failure *failure)
{
    int before = 0;
    memset(failure, 0, sizeof *failure);
    cudaError_t error = enter(context, &before);
    if (error != cudaSuccess)
        return fail(failure, error);
    context->step_seconds = step_seconds;
    context->mark_count = 0;
    enum ul_result result = run_on_device(context, inputs, outputs, mark_step, failure);
    leave(context, before);
    return result;
}

/* ---- weights ---- */

/* Bytes on their way from the source to the arena. */
struct upload {
    struct ul_context *context;
    const struct ul_weights_source *source;
    struct ul_hash hash;
    unsigned char *halves[2];
    cudaEvent_t sent[2]; /* when what was in a half has arrived */
    int half;
    uint64_t used_bytes; /* of the half */
    cudaError_t error;
};

static void upload_open(struct upload *upload)
{
    unsigned char *bytes = NULL;
    upload->error = cudaHostAlloc((void **)&bytes, 2 * STAGING_BYTES, cudaHostAllocDefault);
    upload->halves[0] = bytes;
    upload->halves[1] = bytes != NULL ? bytes + STAGING_BYTES : NULL;
    for (int i = 0; i < 2; i++)
        upload->error = first(upload->error,
                              cudaEventCreateWithFlags(&upload->sent[i], cudaEventDisableTiming));
}

static void upload_close(struct upload *upload)
{
    for (int i = 0; i < 2; i++)
        if (upload->sent[i] != NULL)
            (void)cudaEventDestroy(upload->sent[i]);
    if (upload->halves[0] != NULL)
        (void)cudaFreeHost(upload->halves[0]);
}

/* Turns to the other half when this one is full. */
static void upload_turn(struct upload *upload)
{
    cudaStream_t stream = upload->context->stream;
    upload->error = first(upload->error, cudaEventRecord(upload->sent[upload->half], stream));
    upload->half = 1 - upload->half;
    upload->used_bytes = 0;
    upload->error = first(upload->error, cudaEventSynchronize(upload->sent[upload->half]));
}

/* Hashes size_bytes of the source, and puts them into the arena where `target` is not NULL. */
static bool upload_section(struct upload *upload, uint64_t offset_bytes, unsigned char *target,
                           uint64_t size_bytes)
{
    while (size_bytes != 0 && upload->error == cudaSuccess) {
        if (upload->used_bytes == STAGING_BYTES)
            upload_turn(upload);
        uint64_t room_bytes = STAGING_BYTES - upload->used_bytes;
        uint64_t piece = size_bytes < room_bytes ? size_bytes : room_bytes;
        unsigned char *staged = upload->halves[upload->half] + upload->used_bytes;
        if (ul_check_read(upload->source, offset_bytes, staged, piece) != 0)
            return false;
        ul_hash_add(&upload->hash, staged, piece);
        if (target != NULL) {
            upload->error =
                first(upload->error, cudaMemcpyAsync(target, staged, piece, cudaMemcpyHostToDevice,
                                                     upload->context->stream));
            target += piece;
            upload->used_bytes += piece;
        }
        offset_bytes += piece;
        size_bytes -= piece;
    }
    return true;
}

static enum ul_result upload_sections(struct upload *upload, struct ul_failure *failure)
{
    const struct ul_model *model = upload->context->model;
    uint64_t begin = 0, at = 0; /* of the payload in the source; in the payload */
    enum ul_result result = ul_check_payload(model, upload->source, &begin, failure);
    if (result != UL_OK)
        return result;
    ul_hash_init(&upload->hash);
    for (uint32_t i = 0; i < model->section_count; i++) {
        const struct ul_section *section = &model->sections[i];
        unsigned char *target = upload->context->arena + section->offset_bytes;
        uint64_t gap =
            ul_weights_gap(section->offset_bytes, section->size_bytes, section->pack != NULL, at);
        if (!upload_section(upload, begin + at, NULL, gap) ||
            !upload_section(upload, begin + at + gap, target, section->size_bytes))
            return ul_check_fail(failure, UL_WEIGHTS_UNREADABLE, section->size_bytes, 0);
        at += gap + section->size_bytes;
    }
    if (upload->error != cudaSuccess)
        return fail(failure, upload->error);
    if (ul_hash_get(&upload->hash) != model->payload_hash)
        return ul_check_fail(failure, UL_WEIGHTS_WRONG_HASH, 0, 0);
    return UL_OK;
}

static enum ul_result load_weights(struct ul_context *context,
                                   const struct ul_weights_source *source,
                                   struct ul_failure *failure)
{
    struct upload upload;
    memset(&upload, 0, sizeof upload);
    upload.context = context;
    upload.source = source;
    upload_open(&upload);
    enum ul_result result = upload.error == cudaSuccess ? upload_sections(&upload, failure)
                                                        : fail(failure, upload.error);
    cudaError_t error = cudaStreamSynchronize(context->stream);
    upload_close(&upload);
    return result == UL_OK && error != cudaSuccess ? fail(failure, error) : result;
}

/* What is not stored: weights that are all one number, and what set-up computes. */
static void set_up(struct ul_cuda_run *run)
{
    const struct ul_context *context = (const struct ul_context *)run->announce_context;
    const struct ul_model *model = context->model;
    struct ul_cuda_step at = {run, {&run->state->fault, NULL, 0, 0}};
    for (uint32_t i = 0; i < model->splat_count; i++)
        fill_splat(&at, &model->splats[i]);
    if (model->device->code->setup != NULL)
        model->device->code->setup(run);
}

static enum ul_result load_parts(struct ul_context *context, const struct ul_weights_source *source,
                                 struct ul_failure *failure)
{
    const struct ul_model *model = context->model;
    enum ul_result result = UL_OK;
    bool in_arena = true; /* all that a run touches */
    if (model->payload_bytes != 0)
        result = load_weights(context, source, failure);
    if (result == UL_OK) {
        struct ul_cuda_run run = begin_run(context, context->stream);
        run.announce_context = context;
        enqueue(context, &run, set_up);
        result = finish(context, run.error, failure);
    }
    for (uint32_t i = 0; i < model->input_count; i++)
        in_arena = in_arena && model->inputs[i].space == UL_SPACE_ARENA;
    for (uint32_t i = 0; i < model->output_count; i++)
        in_arena = in_arena && model->outputs[i].space == UL_SPACE_ARENA;
    bool captured = context->graph != NULL || context->memory.uncaptured != NULL;
    if (result == UL_OK && in_arena && !captured && !context->request.plain)
        result = capture(context, NULL, NULL, failure);
    if (context->memory.run_count == 0)
        context->memory.ready_free_bytes = free_bytes_now();
    return result;
}

static enum ul_result load_context(struct ul_context *context,
                                   const struct ul_weights_source *source,
                                   struct ul_failure *failure)
{
    int before = 0;
    memset(failure, 0, sizeof *failure);
    cudaError_t error = enter(context, &before);
    if (error != cudaSuccess)
        return fail(failure, error);
    enum ul_result result = load_parts(context, source, failure);
    leave(context, before);
    return result;
}

/* ---- for the command line ---- */

static enum ul_result copy_now(struct ul_context *context, const void *from, void *to,
                               uint64_t size_bytes, struct ul_failure *failure)
{
    int before = 0;
    memset(failure, 0, sizeof *failure);
    cudaError_t error = enter(context, &before);
    if (error == cudaSuccess && size_bytes != 0)
        error = cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, context->stream);
    error = first(error, cudaStreamSynchronize(context->stream));
    leave(context, before);
    return error == cudaSuccess ? UL_OK : fail(failure, error);
}

static enum ul_result read_arena(struct ul_context *context, int64_t offset_bytes, void *target,
                                 uint64_t size_bytes, struct ul_failure *failure)
{
    return copy_now(context, context->arena + offset_bytes, target, size_bytes, failure);
}

static enum ul_result fill_arena(struct ul_context *context, int64_t offset_bytes,
                                 unsigned char value, uint64_t size_bytes,
                                 struct ul_failure *failure)
{
    int before = 0;
    memset(failure, 0, sizeof *failure);
    cudaError_t error = enter(context, &before);
    if (error == cudaSuccess && size_bytes != 0)
        error = cudaMemsetAsync(context->arena + offset_bytes, value, size_bytes, context->stream);
    error = first(error, cudaStreamSynchronize(context->stream));
    leave(context, before);
    return error == cudaSuccess ? UL_OK : fail(failure, error);
}

static void *new_buffer(struct ul_context *context, uint64_t size_bytes)
{
    int before = 0;
    void *buffer = NULL;
    if (enter(context, &before) != cudaSuccess ||
        cudaMalloc(&buffer, size_bytes != 0 ? size_bytes : 1) != cudaSuccess)
        buffer = NULL;
    (void)cudaGetLastError();
    leave(context, before);
    return buffer;
}

static void free_buffer(struct ul_context *context, void *buffer)
{
    int before = 0;
    if (buffer == NULL || enter(context, &before) != cudaSuccess)
        return;
    (void)cudaFree(buffer);
    leave(context, before);
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

static void get_memory(const struct ul_context *context, struct ul_device_memory *memory)
{
    int before = 0;
    *memory = context->memory;
    if (enter(context, &before) != cudaSuccess)
        return;
    memory->free_bytes = free_bytes_now();
    leave(context, before);
}

static double seconds_between(const struct ul_context *context, enum clock_event from)
{
    float milliseconds = 0.0f;
    if (!context->request.timed || cudaEventElapsedTime(&milliseconds, context->clock[from],
                                                        context->clock[from + 1]) != cudaSuccess)
        return 0.0;
    return (double)milliseconds * 1e-3;
}

static void get_times(const struct ul_context *context, struct ul_device_times *times)
{
    times->in_seconds = seconds_between(context, BEFORE_IN);
    times->run_seconds = seconds_between(context, BEFORE_RUN);
    times->out_seconds = seconds_between(context, AFTER_RUN);
}

static const char *implementation(const struct ul_context *context, uint32_t call)
{
    const struct ul_device *device = context->model->device;
    const char *name = NULL;
    for (uint32_t i = 0; name == NULL && i < device->library_count; i++)
        name = device->libraries[i]->implementation(context->libraries[i], call);
    return name;
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
        device->libraries[i]->describe(NULL, part);
        int size = snprintf(text + used, UL_DEVICE_TEXT_BYTES - used, "; %s", part);
        used += size > 0 ? (size_t)size : 0;
    }
}

extern "C" const struct ul_device_functions ul_cuda_functions = {
    "CUDA",     open_context, load_context, close_context,  run_context, run_steps,
    read_arena, fill_arena,   new_buffer,   free_buffer,    copy_now,    new_host,
    free_host,  get_memory,   get_times,    implementation, describe,
};
