/* SPDX-License-Identifier: 0BSD */
/*
 * What calls of cuBLASLt and cuDNN have in common (ul_cuda_library.h): loading, post-operations,
 * and how the algorithm of a call is chosen.
 */
#include "ul_cuda_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __CUDACC__
#include <dlfcn.h>
#else
#include "ul_emulate_libraries.h"
#endif

enum { BIAS = 2, DST, RESIDUAL }; /* arguments */

/* ---- loading ---- */

#ifdef __CUDACC__
/* It stays in the process: its code on the device is registered once, however often a context is
 * opened. */
void *ul_cuda_load(const char *name)
{
    const int how = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    char path[256];
    void *library = dlopen(name, how);
    if (library == NULL && strlen(name) < 128) {
        (void)snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", name);
        library = dlopen(path, how);
    }
    return library;
}

void *ul_cuda_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

void ul_cuda_unload(void *library)
{
    (void)dlclose(library);
}
#else
void *ul_cuda_load(const char *name)
{
    return ul_emulate_load(name);
}

void *ul_cuda_symbol(void *library, const char *name)
{
    return ul_emulate_symbol(library, name);
}

void ul_cuda_unload(void *library)
{
    (void)library;
}
#endif

/* ---- post-operations ---- */

void ul_cuda_read_posts(const struct ul_call *call, struct ul_cuda_posts *posts)
{
    posts->alpha = 1;
    posts->adds = 0;
    posts->activation = UL_CUDA_IDENTITY;
    for (uint32_t i = 0; i < call->post_count; i++) {
        const struct ul_post *post = &call->posts[i];
        if (post->kind == UL_POST_LINEAR)
            posts->alpha = post->alpha;
        if (post->kind == UL_POST_SUM)
            posts->adds = 1;
        if (post->kind == UL_POST_RELU)
            posts->activation = UL_CUDA_RELU;
        if (post->kind == UL_POST_GELU_TANH)
            posts->activation = UL_CUDA_GELU_TANH;
    }
}

/* ---- arguments ---- */

/* What a call's arguments are, by their numbers; NULL: there is none. */
static void list_tensors(const struct ul_call *call,
                         const struct ul_call_tensor *tensors[UL_CALL_ARGS])
{
    struct ul_cuda_posts posts;
    ul_cuda_read_posts(call, &posts);
    memset(tensors, 0, UL_CALL_ARGS * sizeof *tensors);
    tensors[0] = &call->src;
    tensors[1] = &call->weights;
    tensors[BIAS] = call->bias.rank > 0 ? &call->bias : NULL;
    tensors[DST] = &call->dst;
    if (posts.adds)
        tensors[RESIDUAL] = &call->dst; /* it is laid out like the result */
    if (call->kind == UL_CALL_MATMUL && ul_call_kept(call) != NULL)
        tensors[RESIDUAL] = ul_call_kept(call); /* such a call has no residual */
    if (call->kind != UL_CALL_ATTENTION && call->kind != UL_CALL_ATTENTION_GRADIENT)
        return;
    tensors[UL_CALL_ARG_VALUES] = &call->attention.values;
    for (uint32_t i = 0; i < call->attention.mask_count; i++)
        tensors[UL_CALL_ARG_MASKS + i] = &call->attention.masks[i];
    if (call->attention.norms.rank > 0)
        tensors[UL_CALL_ARG_NORMS] = &call->attention.norms;
    if (call->kind == UL_CALL_ATTENTION)
        return;
    tensors[UL_CALL_ARG_RESULT] = &call->attention.result;
    tensors[UL_CALL_ARG_GRADIENT] = &call->attention.gradient;
    tensors[UL_CALL_ARG_KEY_GRADIENT] = &call->attention.key_gradient;
    tensors[UL_CALL_ARG_VALUE_GRADIENT] = &call->attention.value_gradient;
}

/* Whether there is such an argument that is only read; a residual is where the result is. */
static bool is_operand(const struct ul_call *call,
                       const struct ul_call_tensor *const tensors[UL_CALL_ARGS], uint32_t argument)
{
    return tensors[argument] != NULL && tensors[argument] != &call->dst &&
           !ul_call_writes(call, argument);
}

/* ---- trials ---- */

/* A call and places in the arena for its arguments, with numbers in them. */
struct trial {
    const struct ul_cuda_library *library;
    void *handle;
    uint32_t index;
    cudaStream_t stream;
    uint32_t align_bytes; /* alignment of the places: multiples of it and of nothing larger */
    bool fits;            /* whether there is a place for each argument */
    const void *args[UL_CALL_ARGS]; /* the residual in the place of the result */
    unsigned char *scratch;
    const unsigned char *end; /* of all these places */
    void *residual;           /* another place for it; NULL: there is none, or no room */
    unsigned long long
        *sum; /* place for the sum of the bytes of the result; NULL: there is no room */
    void (*own)(struct ul_cuda_run *run); /* kernels of the program instead; NULL: not asked */
    struct ul_cuda_run run;               /* their run */
};

/* From the first element to the last, by strides. */
static uint64_t reach_bytes(const struct ul_call_tensor *tensor)
{
    uint64_t last = 0;
    for (uint32_t d = 0; d < tensor->rank; d++)
        last += (uint64_t)((tensor->dims[d] - 1) * tensor->strides[d]);
    return (last + 1) * ul_call_element_bytes(tensor);
}

/* The next offset whose address is an odd multiple of align_bytes: what the plan promises, and no
 * better, so that a trial meets what runs do. */
static uint64_t align_up(const unsigned char *arena, uint64_t offset_bytes, uint32_t align_bytes)
{
    uint64_t period = 2 * (uint64_t)align_bytes;
    uint64_t over = ((uint64_t)(uintptr_t)arena + offset_bytes) % period;
    return offset_bytes + (align_bytes + period - over) % period;
}

/* The next place; NULL where the arena ends. */
static unsigned char *place(const struct ul_model *model, unsigned char *arena,
                            uint32_t align_bytes, uint64_t *used_bytes, uint64_t size_bytes)
{
    uint64_t arena_bytes = model->arena_bytes;
    uint64_t begin = align_up(arena, *used_bytes, align_bytes);
    if (begin > arena_bytes || size_bytes > arena_bytes - begin)
        return NULL;
    *used_bytes = begin + size_bytes;
    return arena + begin;
}

/* What is only read may share one place, where there is no room for each. The residual may be the
 * result's. */
static bool place_trial(struct trial *trial, const struct ul_call *call,
                        const struct ul_model *model, unsigned char *arena, bool apart)
{
    const struct ul_call_tensor *tensors[UL_CALL_ARGS];
    uint64_t used_bytes = 0;
    list_tensors(call, tensors);
    memset(trial->args, 0, sizeof trial->args);
    for (uint32_t i = 0; i < UL_CALL_ARGS; i++) {
        uint64_t end_bytes = apart ? used_bytes : 0;
        if (!is_operand(call, tensors, i))
            continue;
        trial->args[i] =
            place(model, arena, trial->align_bytes, &end_bytes, reach_bytes(tensors[i]));
        if (trial->args[i] == NULL)
            return false;
        used_bytes = end_bytes > used_bytes ? end_bytes : used_bytes;
    }
    for (uint32_t i = 0; i < UL_CALL_ARGS; i++) {
        if (tensors[i] == NULL || !ul_call_writes(call, i))
            continue;
        trial->args[i] =
            place(model, arena, trial->align_bytes, &used_bytes, reach_bytes(tensors[i]));
        if (trial->args[i] == NULL)
            return false;
    }
    if (tensors[RESIDUAL] == &call->dst)
        trial->args[RESIDUAL] = trial->args[DST];
    trial->scratch = NULL;
    if (call->scratch_bytes > 0)
        trial->scratch =
            place(model, arena, UL_CALL_SCRATCH_ALIGN, &used_bytes, call->scratch_bytes);
    trial->end = arena + used_bytes;
    return call->scratch_bytes == 0 || trial->scratch != NULL;
}

/* Finds places for the copies that a judgement needs, as far as there is room. */
static void place_judge(struct trial *trial, const struct ul_call *call,
                        const struct ul_model *model, unsigned char *arena)
{
    uint64_t used_bytes = (uint64_t)(trial->end - arena);
    trial->sum = (unsigned long long *)(void *)place(model, arena, UL_CALL_WORKSPACE_ALIGN,
                                                     &used_bytes, sizeof *trial->sum);
    trial->residual = NULL;
    /* Otherwise the call has no residual, or is one of attention. */
    if (trial->args[RESIDUAL] == trial->args[DST])
        trial->residual =
            place(model, arena, trial->align_bytes, &used_bytes, reach_bytes(&call->dst));
}

static struct ul_cuda_run judge_run(const struct trial *trial)
{
    struct ul_cuda_run run;
    memset(&run, 0, sizeof run);
    run.stream = trial->stream;
    run.launch_limit = UINT64_MAX;
    return run;
}

static bool run_trial(const struct trial *trial)
{
    struct ul_cuda_run run = judge_run(trial);
    struct ul_cuda_step at = {&run, {NULL, NULL, 0, 0}};
    return trial->library->enqueue(trial->handle, trial->index, trial->args, trial->scratch, &at) !=
               0 &&
           run.error == cudaSuccess;
}

/* ---- judging: the same numbers must give the same bits ---- */

static __device__ uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Fills in words: bits of `keep` are random, bits of `set` are 1. */
static __global__ void fill_numbers(unsigned char *to, uint32_t keep, uint32_t set, int64_t count,
                                    struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        to[i] = (unsigned char)(((mix((uint32_t)(i / 4)) & keep) | set) >> i % 4 * 8);
}

/* Gives a sum of the words that does not depend on their order. */
static __global__ void add_up(const unsigned char *from, unsigned long long *sum, int64_t count,
                              struct ul_where run)
{
    UL_ENTER(run);
    unsigned long long part = 0;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        part += (unsigned long long)mix((uint32_t)i) * (from[i] + 1u);
    atomicAdd(sum, part);
}

enum { JUDGE_THREADS = 256 };

static int64_t blocks_for(uint64_t count)
{
    const uint64_t max_blocks = 1024, each = 4096;
    uint64_t blocks = count / each + 1;
    return (int64_t)(blocks < max_blocks ? blocks : max_blocks);
}

/* Fills in floats of a magnitude from 0.5 to 1, or any bytes. */
static void fill(const struct ul_cuda_step *at, const struct ul_call_tensor *tensor, void *to)
{
    bool is_float = tensor->type != UL_CALL_I8 && tensor->type != UL_CALL_I32;
    uint32_t keep = !is_float                      ? UINT32_MAX
                    : tensor->type == UL_CALL_F16  ? 0x83ff83ffu
                    : tensor->type == UL_CALL_BF16 ? 0x807f807fu
                                                   : 0x807fffffu;
    uint32_t set = !is_float                      ? 0
                   : tensor->type == UL_CALL_F16  ? 0x38003800u
                   : tensor->type == UL_CALL_BF16 ? 0x3f003f00u
                                                  : 0x3f000000u;
    uint64_t count = reach_bytes(tensor);
    UL_LAUNCH(fill_numbers, blocks_for(count), JUDGE_THREADS, at, (unsigned char *)to, keep, set,
              (int64_t)count);
}

static bool fill_operands(const struct trial *trial, const struct ul_call *call)
{
    const struct ul_call_tensor *tensors[UL_CALL_ARGS];
    struct ul_cuda_run run = judge_run(trial);
    struct ul_cuda_step at = {&run, {NULL, NULL, 0, 0}};
    list_tensors(call, tensors);
    for (uint32_t i = 0; i < UL_CALL_ARGS; i++)
        if (is_operand(call, tensors, i))
            fill(&at, tensors[i], (void *)trial->args[i]);
    return run.error == cudaSuccess;
}

/* Fills the places of results, between whose elements others may be. */
static void fill_results(const struct trial *trial, const struct ul_call *call,
                         const struct ul_cuda_step *at)
{
    const struct ul_call_tensor *tensors[UL_CALL_ARGS];
    list_tensors(call, tensors);
    for (uint32_t i = 0; i < UL_CALL_ARGS; i++)
        if (tensors[i] != NULL && ul_call_writes(call, i))
            fill(at, tensors[i], (void *)trial->args[i]);
}

/* Adds up all that the call writes. */
static void add_results(const struct trial *trial, const struct ul_call *call,
                        const struct ul_cuda_step *at)
{
    const struct ul_call_tensor *tensors[UL_CALL_ARGS];
    list_tensors(call, tensors);
    for (uint32_t i = 0; i < UL_CALL_ARGS; i++) {
        if (tensors[i] == NULL || !ul_call_writes(call, i))
            continue;
        uint64_t count = reach_bytes(tensors[i]);
        UL_LAUNCH(add_up, blocks_for(count), JUDGE_THREADS, at,
                  (const unsigned char *)trial->args[i], trial->sum, (int64_t)count);
    }
}

/* Runs the call with bytes `filling` in its scratch, and with the residual in one place or the
 * other. */
static bool run_filled(const struct trial *trial, const struct ul_call *call, int filling,
                       bool in_place, unsigned long long *sum)
{
    struct trial now = *trial;
    struct ul_cuda_run run = judge_run(trial);
    struct ul_cuda_step at = {&run, {NULL, NULL, 0, 0}};
    cudaError_t error = cudaMemsetAsync(trial->sum, 0, sizeof *sum, trial->stream);
    if (trial->scratch != NULL && error == cudaSuccess)
        error = cudaMemsetAsync(trial->scratch, filling, call->scratch_bytes, trial->stream);
    fill_results(trial, call, &at);
    if (!in_place && trial->residual != NULL) {
        fill(&at, &call->dst, trial->residual);
        now.args[RESIDUAL] = trial->residual;
    }
    if (error != cudaSuccess || run.error != cudaSuccess || !run_trial(&now))
        return false;
    add_results(trial, call, &at);
    return run.error == cudaSuccess &&
           cudaMemcpyAsync(sum, trial->sum, sizeof *sum, cudaMemcpyDeviceToHost, trial->stream) ==
               cudaSuccess &&
           cudaStreamSynchronize(trial->stream) == cudaSuccess;
}

/* Whether neither the bytes in the scratch nor the place of the residual changes the result. An
 * engine may need a zeroed workspace, which it gets in a trial and never in a run, or may overwrite
 * the residual before it has read it. */
static bool keeps_bits(const struct trial *trial, const struct ul_call *call)
{
    unsigned long long clean = 0, used = 0;
    return run_filled(trial, call, 0, false, &clean) &&
           run_filled(trial, call, 0xa5, true, &used) && clean == used;
}

/* ---- judging masks ---- */

/* Adds 1 for each element that is 0 although a mask of what is above 0 would have left it, and
 * `many` for each that the mask would not have left. Elements have 16 bits. */
static __global__ void count_misplaced(const uint16_t *above, const uint16_t *result,
                                       unsigned long long *sum, unsigned long long many,
                                       int64_t count, struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        bool is_left = (above[i] & 0x8000u) == 0, is_zero = (result[i] & 0x7fffu) == 0;
        if (is_left == is_zero)
            atomicAdd(sum, is_left ? 1 : many);
    }
}

/* Whether the library reads bits of slopes in the order in which they are written, which is said
 * nowhere. Half of random elements are negative, and in another order half of those that are left
 * would be in wrong places. A sum of random products is hardly ever 0. */
static bool masks_well(const struct trial *trial, const struct ul_call *call)
{
    enum { ODD_PART = 16 };
    struct ul_cuda_run run = judge_run(trial);
    struct ul_cuda_step at = {&run, {NULL, NULL, 0, 0}};
    int64_t count = call->dst.dims[0] * call->dst.dims[1];
    unsigned long long sum = 0;
    if (trial->sum == NULL || !fill_operands(trial, call))
        return false;
    fill_results(trial, call, &at);
    if (run.error != cudaSuccess || !run_trial(trial) ||
        cudaMemsetAsync(trial->sum, 0, sizeof sum, trial->stream) != cudaSuccess)
        return false;
    UL_LAUNCH(count_misplaced, blocks_for((uint64_t)count), JUDGE_THREADS, &at,
              (const uint16_t *)trial->args[BIAS], (const uint16_t *)trial->args[DST], trial->sum,
              (unsigned long long)count, count);
    return run.error == cudaSuccess &&
           cudaMemcpyAsync(&sum, trial->sum, sizeof sum, cudaMemcpyDeviceToHost, trial->stream) ==
               cudaSuccess &&
           cudaStreamSynchronize(trial->stream) == cudaSuccess &&
           sum <= (unsigned long long)count / ODD_PART;
}

static bool run_own(const struct trial *trial)
{
    struct ul_cuda_run run = trial->run;
    trial->own(&run);
    return run.error == cudaSuccess;
}

/* The least seconds that it takes, of several times; negative: it fails. */
static double measure(const struct trial *trial, bool (*run_trial)(const struct trial *trial))
{
    enum { WARM_UPS = 2, ROUNDS = 5, RUNS = 4 };
    cudaStream_t stream = trial->stream;
    cudaEvent_t begin = NULL, end = NULL;
    double min = -1;
    bool good = cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess;
    for (int i = 0; good && i < WARM_UPS; i++)
        good = run_trial(trial);
    for (int round = 0; good && round < ROUNDS; round++) {
        float milliseconds = 0;
        good = cudaEventRecord(begin, stream) == cudaSuccess;
        for (int i = 0; good && i < RUNS; i++)
            good = run_trial(trial);
        good = good && cudaEventRecord(end, stream) == cudaSuccess &&
               cudaEventSynchronize(end) == cudaSuccess &&
               cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess;
        double seconds = (double)milliseconds / 1e3 / RUNS;
        if (good && (min < 0 || seconds < min))
            min = seconds;
    }
    if (begin != NULL)
        (void)cudaEventDestroy(begin);
    if (end != NULL)
        (void)cudaEventDestroy(end);
    return good ? min : -1;
}

/* ---- choosing ---- */

/* Untried, a call could fail in a run, which our kernel for it cannot. */
static bool try_choice(const struct trial *trial, const struct ul_call *call,
                       const struct ul_cuda_choice *choice)
{
    if (trial->library->take(trial->handle, trial->index, call, choice) == 0)
        return false;
    if (trial->library->has_mask != NULL &&
        trial->library->has_mask(trial->handle, trial->index) != 0)
        return trial->fits && masks_well(trial, call);
    if (!trial->fits)
        return trial->library->is_sure != 0;
    if (trial->library->is_sure == 0 && trial->sum != NULL)
        return keeps_bits(trial, call);
    return run_trial(trial) && cudaStreamSynchronize(trial->stream) == cudaSuccess;
}

/* A choice that no library has: kernels of the program take less time. As the name of an algorithm
 * it is OURS. */
static const struct ul_cuda_choice ours = {1, {0}};
#define OURS "ullage"

static bool is_ours(const struct ul_cuda_choice *choice)
{
    return choice->size_bytes == ours.size_bytes && choice->bytes[0] == ours.bytes[0];
}

/* Chooses the candidate of the library that takes the least time here, or, where nothing is
 * measured, the first one that runs. */
static bool choose_found(const struct trial *trial, const struct ul_call *call, bool tunes,
                         struct ul_cuda_choice *choice)
{
    struct ul_cuda_choice found[UL_CUDA_CANDIDATES];
    int count = trial->library->find(trial->handle, trial->index, call, found);
    double min = -1;
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (!try_choice(trial, call, &found[i]))
            continue;
        double seconds = tunes ? measure(trial, run_trial) : 0;
        if (seconds >= 0 && (best < 0 || seconds < min)) {
            min = seconds;
            best = i;
        }
        if (best >= 0 && !tunes)
            break;
    }
    if (best < 0 || (tunes && !try_choice(trial, call, &found[best])))
        return false;
    double own = tunes && trial->own != NULL ? measure(trial, run_own) : -1;
    *choice = own >= 0 && own < min ? ours : found[best];
    return true;
}

static bool choose(const struct trial *trial, const struct ul_call *call, bool tunes,
                   struct ul_cuda_choice *choice)
{
    const struct ul_cuda_library *library = trial->library;
    bool chosen = choose_found(trial, call, tunes, choice);
    while (!chosen && library->lessen != NULL && library->lessen(trial->handle, trial->index) != 0)
        chosen = choose_found(trial, call, tunes, choice);
    return chosen;
}

/* An address that is a multiple of align_bytes and of no more, wherever the arena is. */
static const void *min_aligned(const unsigned char *arena, uint32_t align_bytes)
{
    enum { PAGE_BYTES = 4096 };
    uintptr_t page = (uintptr_t)arena / PAGE_BYTES * PAGE_BYTES;
    return (const void *)(page + align_bytes);
}

/* Has kernels of ours that stand for the call timed, where the program says how. */
static void set_own(struct trial *trial, const struct ul_model *model, unsigned char *arena)
{
    const struct ul_device *device = model->device;
    trial->own = device->code->own != NULL ? device->code->own[trial->index] : NULL;
    trial->run = judge_run(trial);
    trial->run.arena = arena;
    trial->run.state = (struct ul_cuda_state *)(void *)(arena + device->state_offset_bytes);
    trial->run.regions = (uint8_t *)(trial->run.state + 1);
}

/* `choice` comes with what a file names, and gets what was chosen. False: the library did not run
 * what the file names. */
static bool prepare_call(struct trial *trial, const struct ul_model *model,
                         struct ul_cuda_choice *choice, bool tunes, unsigned char *arena)
{
    const struct ul_call *call = &model->device->calls[trial->index];
    struct ul_cuda_calls *calls = (struct ul_cuda_calls *)trial->handle;
    bool is_named = choice->size_bytes > 0;
    uint32_t min_bytes = trial->library->align_bytes;
    char *name = calls->names[trial->index];
    if (is_named && is_ours(choice)) {
        (void)snprintf(name, UL_CUDA_NAME_BYTES, "%s", OURS);
        return true;
    }
    set_own(trial, model, arena);
    trial->align_bytes = call->align_bytes > min_bytes ? call->align_bytes : min_bytes;
    trial->fits = place_trial(trial, call, model, arena, true) ||
                  place_trial(trial, call, model, arena, false);
    if (trial->fits)
        place_judge(trial, call, model, arena);
    if (trial->fits && trial->sum == NULL) {
        trial->fits = place_trial(trial, call, model, arena, false);
        place_judge(trial, call, model, arena);
    }
    if (trial->fits && trial->library->is_sure == 0)
        trial->fits = fill_operands(trial, call);
    bool described = trial->library->describe(trial->handle, trial->index, call,
                                              min_aligned(arena, trial->align_bytes)) != 0;
    bool taken = described && is_named && try_choice(trial, call, choice);
    bool done = taken || (described && choose(trial, call, tunes && trial->fits, choice));
    if (done && is_ours(choice))
        (void)snprintf(name, UL_CUDA_NAME_BYTES, "%s", OURS);
    else if (done)
        trial->library->tell(trial->handle, trial->index, name);
    (void)cudaGetLastError(); /* of trials that failed */
    return taken || !is_named || !trial->fits;
}

/* A trial without a call yet. */
static struct trial begin_trial(const struct ul_cuda_library *library, void *handle,
                                cudaStream_t stream)
{
    struct trial made, *trial = &made;
    memset(trial, 0, sizeof *trial);
    trial->library = library;
    trial->handle = handle;
    trial->stream = stream;
    return made;
}

static enum ul_result prepare_calls(const struct ul_cuda_library *library, void *handle,
                                    const struct ul_model *model,
                                    const struct ul_device_request *request,
                                    struct ul_cuda_choice *choices, unsigned char *arena,
                                    cudaStream_t stream, struct ul_failure *failure)
{
    const struct ul_device *device = model->device;
    const char *reason = NULL;
    bool tunes = request->choices != NULL && request->tune != 0;
    struct trial trial = begin_trial(library, handle, stream);
    uint64_t version = library->version(handle);
    uint32_t line_number = 0;
    if (request->choices != NULL && !tunes &&
        !ul_cuda_read_choices(request->choices, model, library->name, version, choices,
                              &line_number, &reason)) {
        (void)ul_cuda_refuse(failure, UL_CHOICES_INVALID, reason);
        failure->tensor = line_number;
        return UL_CHOICES_INVALID;
    }
    for (; trial.index < device->call_count; trial.index++) {
        if ((library->kinds >> device->calls[trial.index].kind & 1u) != 0 &&
            !prepare_call(&trial, model, &choices[trial.index], tunes, arena))
            return ul_cuda_refuse(failure, UL_CHOICES_INVALID,
                                  "the library does not run one of the choices here");
    }
    if (tunes &&
        !ul_cuda_write_choices(request->choices, model, library->name, version, choices, &reason))
        return ul_cuda_refuse(failure, UL_CHOICES_UNWRITTEN, reason);
    return UL_OK;
}

enum ul_result ul_cuda_prepare(const struct ul_cuda_library *library, void *handle,
                               const struct ul_model *model,
                               const struct ul_device_request *request, unsigned char *arena,
                               cudaStream_t stream, struct ul_failure *failure)
{
    struct ul_cuda_calls *calls = (struct ul_cuda_calls *)handle;
    uint32_t count = model->device->call_count, step_count = model->step_count;
    struct ul_cuda_choice *choices = (struct ul_cuda_choice *)calloc(count, sizeof *choices);
    enum ul_result result = UL_OK;
    calls->names = (char(*)[UL_CUDA_NAME_BYTES])calloc(count, sizeof *calls->names);
    calls->callers = (uint8_t *)calloc(step_count, sizeof *calls->callers);
    if (choices == NULL || calls->names == NULL || calls->callers == NULL ||
        library->reserve(handle, count) == 0) {
        result = ul_cuda_refuse(failure, UL_LIBRARY_FAILED, "the host is out of memory");
    } else {
        calls->call_count = count;
        calls->calls = model->device->calls;
        calls->step_count = step_count;
        result = prepare_calls(library, handle, model, request, choices, arena, stream, failure);
    }
    free(choices);
    return result;
}

enum ul_result ul_cuda_refuse(struct ul_failure *failure, enum ul_result result, const char *detail)
{
    memset(failure, 0, sizeof *failure);
    failure->detail = detail;
    return failure->result = result;
}

/* ---- prepared calls ---- */

void ul_cuda_free_calls(struct ul_cuda_calls *calls)
{
    free(calls->names);
    free(calls->callers);
}

const char *ul_cuda_implementation(const void *handle, uint32_t step, uint32_t call)
{
    const struct ul_cuda_calls *calls = (const struct ul_cuda_calls *)handle;
    bool runs = calls != NULL && call < calls->call_count && step < calls->step_count &&
                calls->callers[step] == UL_CUDA_BY_LIBRARY;
    return runs ? calls->names[call] : NULL;
}

/* Counts the steps of each caller. */
static void count_callers(const struct ul_cuda_calls *calls, uint32_t counts[UL_CUDA_CALLERS])
{
    memset(counts, 0, UL_CUDA_CALLERS * sizeof *counts);
    for (uint32_t i = 0; calls != NULL && i < calls->step_count; i++)
        counts[calls->callers[i]]++;
}

void ul_cuda_count_calls(const void *handle, struct ul_device_calls *count)
{
    uint32_t counts[UL_CUDA_CALLERS];
    count_callers((const struct ul_cuda_calls *)handle, counts);
    count->own = counts[UL_CUDA_NO_ALGORITHM] + counts[UL_CUDA_MISPLACED];
    count->planned = count->own + counts[UL_CUDA_BY_LIBRARY];
}

int ul_cuda_note_unused(const struct ul_cuda_library *library, const void *handle,
                        char text[UL_DEVICE_TEXT_BYTES])
{
    uint32_t counts[UL_CUDA_CALLERS];
    struct ul_device_calls all;
    char missing[104] = "", misplaced[96] = ""; /* with numbers of ten digits, everything fits */
    count_callers((const struct ul_cuda_calls *)handle, counts);
    ul_cuda_count_calls(handle, &all);
    if (all.own == 0)
        return 0;
    if (counts[UL_CUDA_NO_ALGORITHM] > 0)
        (void)snprintf(missing, sizeof missing,
                       ": it has no algorithm within the planned workspace for %u, a larger "
                       "--workspace may help",
                       (unsigned)counts[UL_CUDA_NO_ALGORITHM]);
    if (counts[UL_CUDA_MISPLACED] > 0)
        (void)snprintf(misplaced, sizeof misplaced,
                       "%s %u have operands at no multiple of %u bytes, --align %u helps",
                       missing[0] != '\0' ? ";" : ":", (unsigned)counts[UL_CUDA_MISPLACED],
                       (unsigned)library->align_bytes, (unsigned)library->align_bytes);
    (void)snprintf(text, UL_DEVICE_TEXT_BYTES,
                   "kernels of the program run %u of %u calls of %s%s%s", (unsigned)all.own,
                   (unsigned)all.planned, library->shown, missing, misplaced);
    return 1;
}

/* Whether the library takes the operands where they are. */
static bool lie_well(const struct ul_cuda_library *library, const struct ul_call *call,
                     const void *const *args)
{
    const struct ul_call_tensor *tensors[UL_CALL_ARGS];
    uintptr_t bits = 0;
    list_tensors(call, tensors);
    for (int i = 0; i < UL_CALL_ARGS; i++)
        bits |= tensors[i] != NULL ? (uintptr_t)args[i] : 0;
    return bits % library->align_bytes == 0;
}

static enum ul_cuda_caller caller_of(const struct ul_cuda_library *library,
                                     const struct ul_cuda_calls *calls, uint32_t call,
                                     const void *const *args)
{
    if (calls == NULL || call >= calls->call_count)
        return UL_CUDA_NO_CALL;
    if (calls->names[call][0] == '\0')
        return UL_CUDA_NO_ALGORITHM;
    if (strcmp(calls->names[call], OURS) == 0)
        return UL_CUDA_NO_CALL;
    return lie_well(library, &calls->calls[call], args) ? UL_CUDA_BY_LIBRARY : UL_CUDA_MISPLACED;
}

static int enqueue(const struct ul_cuda_library *library, struct ul_cuda_calls *calls,
                   uint32_t call, const void *const *args, unsigned char *scratch,
                   const struct ul_cuda_step *at)
{
    const void *begun[UL_CALL_ARGS] = {NULL};
    if (at->run->begins == 0 || calls->calls[call].accumulates == 0)
        return library->enqueue(calls, call, args, scratch, at);
    memcpy(begun, args, RESIDUAL * sizeof *begun);
    return library->enqueue(calls, call, begun, scratch, at);
}

int ul_cuda_run_call(const struct ul_cuda_library *library, const struct ul_cuda_step *at,
                     uint32_t place, uint32_t call, const void *const *args, unsigned char *scratch)
{
    struct ul_cuda_calls *calls = (struct ul_cuda_calls *)at->run->libraries[place];
    enum ul_cuda_caller caller = caller_of(library, calls, call, args);
    uint32_t step = at->where.step;
    if (at->run->asks && caller != UL_CUDA_NO_CALL && step < calls->step_count &&
        calls->callers[step] < caller)
        calls->callers[step] = (uint8_t)caller;
    if (caller != UL_CUDA_BY_LIBRARY)
        return 0;
    if (at->run->touches && at->run->nodes != NULL)
        at->run->nodes->is_whole = 0;
    if (ul_cuda_may_launch(at->run) && enqueue(library, calls, call, args, scratch, at) == 0)
        ul_cuda_note(at->run, cudaErrorUnknown);
    at->run->is_behind = 0; /* the library's kernel comes after any of ours */
    return 1;
}
