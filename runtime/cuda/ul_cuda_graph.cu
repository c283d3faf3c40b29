/* SPDX-License-Identifier: 0BSD */
/*
 * Runs as graphs: captured, replayed, and given other buffers of the caller's.
 *
 *     buffers as those of a graph             replay it
 *     others, known to kernels of ours        give these kernels' nodes the others, replay
 *     others, known to library calls too      capture again, into one of UL_CUDA_SETS graphs
 *
 * Which nodes have buffers of the caller's is noted while a run is captured (ul_cuda_give in
 * ul_cuda.h). The addresses that a library call was given are in nodes that the library alone
 * knows: then a second set of buffers gets a graph of its own, so that two in turn cost no capture,
 * and a third one takes over the graph that was replayed longest ago, by an update or, where CUDA
 * refuses that, made anew.
 *
 * A run is not captured where it is too long: loops are unrolled while they are enqueued, a node of
 * a graph takes memory of the device, and GRAPH_LAUNCH_LIMIT of them are what a graph may have.
 *
 * Invariants: a graph is changed only between runs, of which each is complete when it returns.
 * Ownership: graphs are the context's; those that were captured are kept, in memory of the host, as
 * long as nodes of theirs are given buffers.
 */
#include "ul_cuda_internal.h"

#include <stdlib.h>
#include <string.h>

#define GRAPH_LAUNCH_LIMIT 65536

/* Whether the replay has these buffers of the caller, as far as the model reads and writes them in
 * place. `keep`: from now on it has them. */
static bool same_buffers(const struct ul_context *context, uint32_t number,
                         struct ul_cuda_replay *replay, const void *const *inputs,
                         void *const *outputs, bool keep)
{
    const struct ul_model *model = ul_model_of_entry(context->model, number);
    const void **buffers = replay->buffers;
    bool same = true;
    for (uint32_t i = 0; i < model->input_count; i++) {
        const void *now = ul_is_callers(model->inputs[i].space) ? inputs[i] : NULL;
        same = same && buffers[i] == now;
        if (keep)
            buffers[i] = now;
    }
    buffers += model->input_count;
    for (uint32_t i = 0; i < model->output_count; i++) {
        const void *now = ul_is_callers(model->outputs[i].space) ? outputs[i] : NULL;
        same = same && buffers[i] == now;
        if (keep)
            buffers[i] = now;
    }
    return same;
}

static void free_nodes(struct ul_cuda_nodes *nodes)
{
    free(nodes->all);
    memset(nodes, 0, sizeof *nodes);
}

static void drop_replay(struct ul_cuda_replay *replay)
{
    if (replay->exec != NULL)
        (void)cudaGraphExecDestroy(replay->exec);
    if (replay->graph != NULL)
        (void)cudaGraphDestroy(replay->graph);
    free_nodes(&replay->nodes);
    replay->exec = NULL;
    replay->graph = NULL;
}

/* ---- capturing ---- */

/* Captures a run as a graph. NULL: CUDA does not capture it, or it is too long. */
static cudaGraph_t record_once(struct ul_context *context, uint32_t number,
                               struct ul_cuda_nodes *nodes, const void *const *inputs,
                               void *const *outputs)
{
    struct ul_cuda_captured *captured = &context->captured[number];
    struct ul_cuda_run run = ul_cuda_begin_run(context, context->own_stream);
    cudaGraph_t graph = NULL;
    nodes->count = 0;
    nodes->is_whole = !captured->refuses_nodes;
    run.inputs = inputs;
    run.outputs = outputs;
    run.nodes = nodes;
    run.launch_limit = GRAPH_LAUNCH_LIMIT;
    run.error = cudaStreamBeginCapture(run.stream, cudaStreamCaptureModeThreadLocal);
    bool capturing = run.error == cudaSuccess;
    if (capturing)
        ul_cuda_enqueue(context, &run, context->model->device->code->entries[number]);
    cudaError_t error = capturing ? cudaStreamEndCapture(run.stream, &graph) : run.error;
    error = ul_cuda_first(run.error, error);
    context->memory.capture_count++;
    captured->launch_count = run.launch_count;
    if (number == UL_ENTRY_RUN)
        context->memory.launch_count = run.launch_count;
    if (run.launch_count == GRAPH_LAUNCH_LIMIT)
        captured->refusal = "a run has more launches than a graph may have";
    else if (error != cudaSuccess)
        captured->refusal = cudaGetErrorString(error);
    if (captured->refusal != NULL && graph != NULL) {
        (void)cudaGraphDestroy(graph);
        graph = NULL;
    }
    (void)cudaGetLastError();
    return graph;
}

/* A launch that CUDA refuses spoils the capture. The next capture makes it in another way. */
static cudaGraph_t record(struct ul_context *context, uint32_t number, struct ul_cuda_nodes *nodes,
                          const void *const *inputs, void *const *outputs)
{
    uint64_t before, now = ul_cuda_count_apart(context);
    cudaGraph_t graph;
    do {
        before = now;
        context->captured[number].refusal = NULL;
        graph = record_once(context, number, nodes, inputs, outputs);
        now = ul_cuda_count_apart(context);
    } while (graph == NULL && now > before);
    return graph;
}

/* Updates the executable graph from a new capture. It keeps the nodes of the graph that it was made
 * from, and these get the new parameters. */
static bool update_graph(const struct ul_cuda_replay *replay, cudaGraph_t graph)
{
    cudaGraphExecUpdateResultInfo result;
    bool updated =
        replay->exec != NULL && cudaGraphExecUpdate(replay->exec, graph, &result) == cudaSuccess;
    (void)cudaGetLastError(); /* error of an update that was refused */
    return updated;
}

static cudaError_t instantiate(const struct ul_context *context, struct ul_cuda_replay *replay,
                               cudaGraph_t graph)
{
    drop_replay(replay);
    cudaError_t error = cudaGraphInstantiate(&replay->exec, graph, 0);
    if (error != cudaSuccess)
        replay->exec = NULL;
    else
        error = cudaGraphUpload(replay->exec, context->own_stream);
    return ul_cuda_first(error, cudaStreamSynchronize(context->own_stream));
}

/* Takes over the graph and the list of its nodes. */
static cudaError_t make_replay(const struct ul_context *context, struct ul_cuda_replay *replay,
                               cudaGraph_t graph, struct ul_cuda_nodes *nodes)
{
    cudaError_t error = cudaSuccess;
    bool updated = update_graph(replay, graph);
    if (!updated)
        error = instantiate(context, replay, graph);
    if (!updated && error == cudaSuccess && nodes->is_whole) {
        replay->nodes = *nodes;
        memset(nodes, 0, sizeof *nodes);
    }
    if (!updated && replay->nodes.count > 0)
        replay->graph = graph;
    else
        (void)cudaGraphDestroy(graph);
    return error;
}

static void make_graph(struct ul_context *context, uint32_t number, struct ul_cuda_replay *replay,
                       const void *const *inputs, void *const *outputs)
{
    struct ul_cuda_nodes nodes;
    memset(&nodes, 0, sizeof nodes);
    nodes.keep = ul_cuda_keep_node;
    cudaGraph_t graph = record(context, number, &nodes, inputs, outputs);
    if (graph == NULL) {
        drop_replay(replay);
    } else {
        cudaError_t error = make_replay(context, replay, graph, &nodes);
        if (error != cudaSuccess) {
            drop_replay(replay);
            context->captured[number].refusal = cudaGetErrorString(error);
            (void)cudaGetLastError();
        }
    }
    free_nodes(&nodes);
}

static void capture(struct ul_context *context, uint32_t number, struct ul_cuda_replay *replay,
                    const void *const *inputs, void *const *outputs)
{
    struct ul_device_memory *memory = &context->memory;
    /* These are the bytes from before any graph: an older graph is kept and grows, or is
     * dropped. */
    uint64_t before = ul_cuda_free_bytes() + memory->graph_bytes;
    (void)same_buffers(context, number, replay, inputs, outputs, true);
    make_graph(context, number, replay, inputs, outputs);
    memory->ready_free_bytes = ul_cuda_free_bytes();
    memory->graph_bytes = ul_cuda_less(before, memory->ready_free_bytes);
    const char *refusal = context->captured[number].refusal;
    if (number == UL_ENTRY_RUN || (context->model->root_count != 0 && refusal != NULL))
        memory->uncaptured = refusal;
}

/* ---- other buffers ---- */

/* Gives the noted nodes these buffers. False: CUDA refuses. It is not asked again, and the graph is
 * captured anew. */
static bool give(struct ul_context *context, uint32_t number, struct ul_cuda_replay *replay,
                 const void *const *inputs, void *const *outputs)
{
    struct ul_cuda_nodes *nodes = &replay->nodes;
    struct ul_cuda_run run = ul_cuda_begin_run(context, context->own_stream);
    run.inputs = inputs;
    run.outputs = outputs;
    run.launch_limit = 0;
    run.nodes = nodes;
    nodes->exec = replay->exec;
    nodes->given = 0;
    if (context->model->device->code->entries[number] != NULL)
        context->model->device->code->entries[number](&run);
    nodes->exec = NULL;
    bool given = run.error == cudaSuccess && nodes->given == nodes->count && nodes->is_whole;
    (void)cudaGetLastError();
    context->captured[number].refuses_nodes = !given;
    nodes->is_whole = given;
    if (given)
        (void)same_buffers(context, number, replay, inputs, outputs, true);
    context->memory.given_count += given;
    return given;
}

/* Finds the replay that has these buffers, or else the one to use for them: an empty one, or the
 * oldest. */
static struct ul_cuda_replay *choose(const struct ul_context *context, uint32_t number,
                                     const void *const *inputs, void *const *outputs,
                                     bool *is_theirs)
{
    struct ul_cuda_captured *captured = &context->captured[number];
    struct ul_cuda_replay *oldest = &captured->replays[0];
    *is_theirs = true;
    for (uint32_t i = 0; i < UL_CUDA_SETS; i++) {
        struct ul_cuda_replay *replay = &captured->replays[i];
        if (replay->exec != NULL && same_buffers(context, number, replay, inputs, outputs, false))
            return replay;
        if (replay->last_run < oldest->last_run)
            oldest = replay;
    }
    *is_theirs = false;
    return captured->replays[0].nodes.is_whole ? &captured->replays[0] : oldest;
}

/* ---- entries ---- */

bool ul_cuda_captures(const struct ul_context *context, uint32_t number)
{
    return context->request.plain == 0 && !ul_is_set_up(context->model, number) &&
           context->captured[number].refusal == NULL;
}

cudaGraphExec_t ul_cuda_find_replay(struct ul_context *context, uint32_t number,
                                    const void *const *inputs, void *const *outputs)
{
    struct ul_cuda_captured *captured = &context->captured[number];
    bool is_theirs = false;
    struct ul_cuda_replay *replay = choose(context, number, inputs, outputs, &is_theirs);
    if (!is_theirs && !(replay->nodes.is_whole && give(context, number, replay, inputs, outputs)))
        capture(context, number, replay, inputs, outputs);
    replay->last_run = ++captured->run_count;
    return replay->exec;
}

void ul_cuda_drop_replays(struct ul_context *context)
{
    for (uint32_t e = 0; context->captured != NULL && e < context->model->entry_count; e++)
        for (uint32_t i = 0; i < UL_CUDA_SETS; i++)
            drop_replay(&context->captured[e].replays[i]);
}

void ul_cuda_free_captured(const struct ul_model *model, struct ul_cuda_captured *captured)
{
    for (uint32_t e = 0; captured != NULL && e < model->entry_count; e++)
        for (uint32_t i = 0; i < UL_CUDA_SETS; i++)
            free(captured[e].replays[i].buffers);
    free(captured);
}

struct ul_cuda_captured *ul_cuda_new_captured(const struct ul_model *model)
{
    struct ul_cuda_captured *captured =
        (struct ul_cuda_captured *)calloc(model->entry_count, sizeof *captured);
    bool whole = captured != NULL;
    for (uint32_t e = 0; whole && e < model->entry_count; e++) {
        const struct ul_model *of = ul_model_of_entry(model, e);
        size_t buffer_count = (size_t)of->input_count + of->output_count;
        for (uint32_t i = 0; i < UL_CUDA_SETS; i++) {
            struct ul_cuda_replay *replay = &captured[e].replays[i];
            replay->buffers = (const void **)calloc(buffer_count + 1, sizeof(const void *));
            whole = whole && replay->buffers != NULL;
        }
    }
    if (whole)
        return captured;
    ul_cuda_free_captured(model, captured);
    return NULL;
}
