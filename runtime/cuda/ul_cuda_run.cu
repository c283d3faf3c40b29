/* SPDX-License-Identifier: 0BSD */
/*
 * Runs on a CUDA device.
 *
 *     inputs --copy--> | arena: clear state, kernels, state to the host | --copy--> outputs
 *                      '----- captured as a graph, replayed: ul_cuda_graph.cu -----'
 *
 * A run is what kernels.cu's main enqueues: it depends on the arena's address and, with --io
 * caller, on those of the caller's buffers, and on nothing else, so that it can be captured and
 * replayed. It is launched step by step instead where somebody wants to be told of steps, and where
 * it cannot be captured.
 *
 * Before it is captured it is launched once: code that CUDA and its libraries load when it is first
 * called cannot be loaded while a stream is captured, and takes memory of the device. Where a run
 * of the model touches the arena alone, that is before the weights are loaded, on zeros, so that
 * whatever it writes is of no consequence; with buffers of the caller, and of other entry points,
 * it is the first run.
 */
#include "ul_cuda_internal.h"

#include <string.h>

struct ul_cuda_run ul_cuda_begin_run(const struct ul_context *context, cudaStream_t stream)
{
    struct ul_cuda_run run;
    memset(&run, 0, sizeof run);
    run.stream = stream;
    run.main = stream;
    run.beside = context->beside;
    run.parted = context->parted;
    run.joined = context->joined;
    run.arena = context->arena;
    run.state = (struct ul_cuda_state *)(void *)(context->arena +
                                                 context->model->device->state_offset_bytes);
    run.regions = (uint8_t *)(run.state + 1);
    run.counters =
        (uint32_t *)(void *)(run.regions + (context->model->device->region_count + 3) / 4 * 4);
    run.libraries = context->libraries;
    run.movers = context->movers;
    run.moves = context->moves;
    run.offload = context->offload;
    run.apart = context->apart;
    run.overlaps = context->overlaps;
    run.launch_limit = UINT64_MAX;
    return run;
}

static void ask_entry(struct ul_context *context, struct ul_cuda_run *run, uint32_t entry)
{
    const struct ul_model *model = ul_model_of_entry(context->model, entry);
    uint32_t buffer_count = model->input_count + model->output_count;
    /* No graph has them yet. */
    const void **buffers = context->captured[entry].replays[0].buffers;
    /* A caller's buffers are no better aligned than they must be. */
    for (uint32_t i = 0; i < buffer_count; i++)
        buffers[i] = (const void *)(uintptr_t)UL_DEVICE_BUFFER_ALIGN;
    run->inputs = buffers;
    run->outputs = (void *const *)(void *)(buffers + model->input_count);
    model->device->code->entries[entry](run);
    memset(buffers, 0, buffer_count * sizeof *buffers);
}

void ul_cuda_ask_calls(struct ul_context *context)
{
    const struct ul_model *model = context->model;
    struct ul_cuda_run run = ul_cuda_begin_run(context, context->stream);
    run.launch_limit = 0;
    run.asks = 1;
    for (uint32_t entry = 0; model->device->call_count > 0 && entry < model->entry_count; entry++)
        if (model->device->code->entries[entry] != NULL)
            ask_entry(context, &run, entry);
}

void ul_cuda_enqueue(struct ul_context *context, struct ul_cuda_run *run,
                     void (*entry)(struct ul_cuda_run *run))
{
    const struct ul_device *device = context->model->device;
    bool may_fault = device->is_faultless == 0;
    size_t state_bytes = UL_CUDA_STATE_BYTES + device->region_count;
    run->is_behind = 0;
    if (may_fault || device->region_count > 0)
        ul_cuda_note(run, cudaMemsetAsync(run->state, 0, state_bytes, run->stream));
    if (run->error == cudaSuccess && entry != NULL)
        entry(run);
    ul_cuda_join(run);
    if (run->error == cudaSuccess && may_fault)
        ul_cuda_note(run, cudaMemcpyAsync(context->seen, run->state, sizeof *context->seen,
                                          cudaMemcpyDeviceToHost, run->stream));
}

void ul_cuda_wait_for_movers(const struct ul_context *context)
{
    for (int i = 0; i < UL_CUDA_MOVERS; i++)
        if (context->movers[i] != NULL)
            (void)cudaStreamSynchronize(context->movers[i]);
    if (context->beside != NULL)
        (void)cudaStreamSynchronize(context->beside);
}

enum ul_result ul_cuda_finish(struct ul_context *context, cudaError_t error,
                              struct ul_failure *failure)
{
    const struct ul_model *model = context->model;
    const struct ul_cuda_fault *fault = &context->seen->fault;
    error = ul_cuda_first(error, cudaStreamSynchronize(context->stream));
    if (error != cudaSuccess) {
        ul_cuda_wait_for_movers(context);
        return ul_cuda_fail(context, failure, error);
    }
    if (fault->kind == UL_FAULT_NONE)
        return UL_OK;
    failure->result = UL_DATA_FAULT;
    failure->step = fault->step;
    failure->node = model->steps != NULL ? model->steps[fault->step].node : NULL;
    failure->fault = ul_run_fault((enum ul_fault)fault->kind, fault->value, fault->limit);
    failure->fault_value = fault->value;
    failure->fault_limit = fault->limit;
    return UL_DATA_FAULT;
}

/* Whether memory is where kernels and calls may read it. */
static bool is_usable(const struct ul_context *context, const void *buffer)
{
    return (uintptr_t)buffer % UL_DEVICE_BUFFER_ALIGN == 0 && ul_cuda_is_on_device(context, buffer);
}

static enum ul_result check_buffers(const struct ul_context *context, uint32_t number,
                                    const void *const *inputs, void *const *outputs,
                                    struct ul_failure *failure)
{
    const struct ul_model *model = ul_model_of_entry(context->model, number);
    const struct ul_entry *entry = &model->entries[number];
    enum ul_result result = ul_run_check_buffers(model, entry, inputs, outputs, failure);
    if (result != UL_OK)
        return result;
    for (uint32_t k = 0; k < entry->input_count; k++) {
        uint32_t i = entry->inputs[k];
        if (ul_is_callers(model->inputs[i].space) && !is_usable(context, inputs[i]))
            return ul_run_fail_tensor(failure, UL_INPUT_ELSEWHERE, i, 0);
    }
    for (uint32_t k = 0; k < entry->output_count; k++) {
        uint32_t i = entry->outputs[k];
        if (ul_is_callers(model->outputs[i].space) && !is_usable(context, outputs[i]))
            return ul_run_fail_tensor(failure, UL_OUTPUT_ELSEWHERE, i, 0);
    }
    return UL_OK;
}

static cudaError_t copy_inputs(const struct ul_context *context, uint32_t number,
                               const void *const *inputs)
{
    const struct ul_model *model = ul_model_of_entry(context->model, number);
    const struct ul_entry *entry = &model->entries[number];
    cudaError_t error = cudaSuccess;
    for (uint32_t k = 0; inputs != NULL && k < entry->input_count; k++) {
        uint32_t i = entry->inputs[k];
        const struct ul_rt_tensor *input = &model->inputs[i];
        if (input->space == UL_SPACE_ARENA && inputs[i] != NULL)
            error = ul_cuda_first(error, cudaMemcpyAsync(context->arena + input->offset_bytes,
                                                         inputs[i], input->size_bytes,
                                                         cudaMemcpyDefault, context->stream));
    }
    return error;
}

static cudaError_t copy_outputs(const struct ul_context *context, uint32_t number,
                                void *const *outputs)
{
    const struct ul_model *model = ul_model_of_entry(context->model, number);
    const struct ul_entry *entry = &model->entries[number];
    cudaError_t error = cudaSuccess;
    for (uint32_t k = 0; outputs != NULL && k < entry->output_count; k++) {
        uint32_t i = entry->outputs[k];
        const struct ul_rt_tensor *output = &model->outputs[i];
        const unsigned char *place =
            output->space == UL_SPACE_OFFLOAD ? context->offload : context->arena;
        if (!ul_is_callers(output->space) && outputs[i] != NULL)
            error = ul_cuda_first(error, cudaMemcpyAsync(outputs[i], place + output->offset_bytes,
                                                         output->size_bytes, cudaMemcpyDefault,
                                                         context->stream));
    }
    return error;
}

/* Waits for all steps before this one, and tells of it if its region runs. */
static void notify_hook(struct ul_cuda_run *run, const struct ul_where *where)
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
    if (context->mark_count == UL_CUDA_STEP_EVENTS)
        count_marks(context, run);
    context->marked_steps[context->mark_count] = where->step;
    ul_cuda_note(run, cudaEventRecord(context->marks[context->mark_count++], run->stream));
}

/* Whether the entry is the run of a root. */
static bool is_run(const struct ul_context *context, uint32_t entry)
{
    return entry == UL_ENTRY_RUN ||
           (context->model->root_count != 0 && !ul_is_set_up(context->model, entry));
}

/* Everything that is not a replay: `announce`, which may be NULL, is told of each step. */
static cudaError_t launch(struct ul_context *context, uint32_t entry, const void *const *inputs,
                          void *const *outputs,
                          void (*announce)(struct ul_cuda_run *, const struct ul_where *))
{
    struct ul_cuda_run run = ul_cuda_begin_run(context, context->stream);
    run.inputs = inputs;
    run.outputs = outputs;
    run.announce = announce;
    run.announce_context = context;
    ul_cuda_enqueue(context, &run, context->model->device->code->entries[entry]);
    if (announce == mark_step && run.error == cudaSuccess) {
        struct ul_where end = {NULL, NULL, 0, 0};
        mark_step(&run, &end);
        count_marks(context, &run);
    }
    if (is_run(context, entry) && announce == NULL) /* else more, each step by itself */
        context->memory.launch_count = run.launch_count;
    return run.error;
}

cudaError_t ul_cuda_clear_arena(struct ul_context *context)
{
    uint64_t bytes = context->model->arena_bytes;
    return bytes == 0 ? cudaSuccess
                      : cudaMemsetAsync(context->arena, 0, (size_t)bytes, context->stream);
}

enum ul_result ul_cuda_warm_up(struct ul_context *context, uint32_t entry,
                               struct ul_failure *failure)
{
    uint64_t before = ul_cuda_free_bytes();
    cudaError_t error = ul_cuda_clear_arena(context);
    if (error == cudaSuccess)
        error = launch(context, entry, NULL, NULL, NULL);
    error = ul_cuda_first(error, cudaStreamSynchronize(context->stream));
    context->captured[entry].is_warm = error == cudaSuccess;
    context->memory.code_bytes += ul_cuda_less(before, ul_cuda_free_bytes());
    return error == cudaSuccess ? UL_OK : ul_cuda_fail(context, failure, error);
}

static cudaError_t tick(const struct ul_context *context, enum ul_cuda_clock event)
{
    return context->request.timed ? cudaEventRecord(context->clock[event], context->stream)
                                  : cudaSuccess;
}

/* The first run has loaded the code, so that the next one can be captured, as this one is. */
static void note_first_run(struct ul_context *context, uint32_t number, uint64_t before_bytes,
                           const void *const *inputs, void *const *outputs)
{
    context->captured[number].is_warm = true;
    context->memory.code_bytes += ul_cuda_less(before_bytes, ul_cuda_free_bytes());
    (void)ul_cuda_find_replay(context, number, inputs, outputs);
}

/* Replays the run where that is possible. */
static enum ul_result run_on_device(struct ul_context *context, uint32_t number,
                                    const void *const *inputs, void *const *outputs,
                                    void (*announce)(struct ul_cuda_run *, const struct ul_where *),
                                    struct ul_failure *failure)
{
    enum ul_result result = check_buffers(context, number, inputs, outputs, failure);
    bool runs = is_run(context, number);
    if (result != UL_OK)
        return result;
    cudaGraphExec_t graph = NULL;
    bool replays = announce == NULL && ul_cuda_captures(context, number);
    bool is_first = replays && !context->captured[number].is_warm;
    if (replays && !is_first)
        graph = ul_cuda_find_replay(context, number, inputs, outputs);
    uint64_t before = is_first ? ul_cuda_free_bytes() : 0;
    cudaError_t error = tick(context, UL_CUDA_BEFORE_IN);
    error = ul_cuda_first(error, copy_inputs(context, number, inputs));
    error = ul_cuda_first(error, tick(context, UL_CUDA_BEFORE_RUN));
    if (error == cudaSuccess)
        error = graph != NULL ? cudaGraphLaunch(graph, context->stream)
                              : launch(context, number, inputs, outputs, announce);
    error = ul_cuda_first(error, tick(context, UL_CUDA_AFTER_RUN));
    error = ul_cuda_first(error, copy_outputs(context, number, outputs));
    error = ul_cuda_first(error, tick(context, UL_CUDA_AFTER_OUT));
    if (runs && graph != NULL)
        context->memory.launch_count = context->captured[number].launch_count;
    context->memory.run_count += runs;
    context->memory.replay_count += runs && graph != NULL;
    result = ul_cuda_finish(context, error, failure);
    if (is_first && (result == UL_OK || result == UL_DATA_FAULT))
        note_first_run(context, number, before, inputs, outputs);
    return result;
}

/* Runs on the context's device, whichever is the thread's. */
static enum ul_result run_entered(struct ul_context *context, uint32_t entry,
                                  const void *const *inputs, void *const *outputs,
                                  void (*announce)(struct ul_cuda_run *, const struct ul_where *),
                                  struct ul_failure *failure)
{
    int before = 0;
    memset(failure, 0, sizeof *failure);
    cudaError_t error = ul_cuda_enter(context, &before);
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    enum ul_result result = run_on_device(context, entry, inputs, outputs, announce, failure);
    ul_cuda_leave(context->device, before);
    return result;
}

enum ul_result ul_cuda_run_context(struct ul_context *context, uint32_t entry,
                                   const void *const *inputs, void *const *outputs,
                                   ul_step_hook *hook, void *hook_context,
                                   struct ul_failure *failure)
{
    if (context == NULL) { /* after an open that failed */
        memset(failure, 0, sizeof *failure);
        return failure->result = UL_NOT_READY;
    }
    context->hook = hook;
    context->hook_context = hook_context;
    enum ul_result result =
        run_entered(context, entry, inputs, outputs, hook != NULL ? notify_hook : NULL, failure);
    if (hook != NULL && (result == UL_OK || result == UL_DATA_FAULT))
        hook(hook_context, context->model->entries[entry].step_end);
    return result;
}

enum ul_result ul_cuda_run_steps(struct ul_context *context, uint32_t entry,
                                 const void *const *inputs, void *const *outputs,
                                 double *step_seconds, struct ul_failure *failure)
{
    context->step_seconds = step_seconds;
    context->mark_count = 0;
    return run_entered(context, entry, inputs, outputs, mark_step, failure);
}
