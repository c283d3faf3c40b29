/* SPDX-License-Identifier: 0BSD */
/*
 * Engines of cuDNN for a graph, and plans of them (ul_cudnn_graph.h).
 *
 * cuDNN says of each engine what it does to numbers and what it needs, by notes. Left out are those
 * that may give other bits from run to run, that round operands or sums to narrower types, and
 * Winograd's method with tiles that lose more digits than those of 4 x 4. Engines that compile
 * their kernels when a plan is made are left out too: for a convolution each took 0.4 to 6 seconds
 * on two cores, and engines that are compiled already have all that is fused here. Attention has no
 * others; they take 0.6 to 2.3 seconds each, and calls that are alike share a plan.
 *
 * No engine for the gradient of attention has the note that it gives other bits from run to run; the
 * graph is one that gives the same ones, as cudnn-frontend says. On devices of compute
 * capability 10 it asks for an engine that no heuristic offers and that needs no workspace.
 */
#include "ul_cudnn_graph.h"

#if UL_HAS_CUDNN

#include <stdlib.h>
#include <string.h>

/* ---- notes ---- */

static bool allows_number(const struct ul_call *call, cudnnBackendNumericalNote_t note)
{
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: /* which multiply f32 as TF32 */
        return call->src.type != UL_CALL_F32 || call->tf32;
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
        return true;
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
    case CUDNN_NUMERICAL_NOTE_TYPE_COUNT:
        break;
    }
    return false; /* nor what a later version may say */
}

static bool allows_behaviour(const struct ul_call *call, cudnnBackendBehaviorNote_t note)
{
    switch ((int)note) {
    case CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION:
        return call->kind == UL_CALL_ATTENTION || call->kind == UL_CALL_ATTENTION_GRADIENT;
    case CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER:
    case CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER:
        return false;
    default: /* what else it can do or loads */
        return true;
    }
}

static bool allows_engine(const struct ul_cudnn *dnn, const struct ul_call *call,
                          cudnnBackendDescriptor_t engine)
{
    enum { MAX = 32 };
    cudnnBackendNumericalNote_t numbers[MAX];
    cudnnBackendBehaviorNote_t behaviours[MAX];
    int64_t number_count = 0, behaviour_count = 0;
    bool good = ul_cudnn_get(dnn, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                             CUDNN_TYPE_NUMERICAL_NOTE, MAX, &number_count, numbers) &&
                ul_cudnn_get(dnn, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                             MAX, &behaviour_count, behaviours) &&
                number_count <= MAX && behaviour_count <= MAX;
    for (int64_t i = 0; good && i < number_count; i++)
        good = allows_number(call, numbers[i]);
    for (int64_t i = 0; good && i < behaviour_count; i++)
        good = allows_behaviour(call, behaviours[i]);
    return good;
}

static bool allows_workspace(const struct ul_cudnn *dnn, const struct ul_call *call,
                             cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name)
{
    int64_t bytes = 0, count = 0;
    return ul_cudnn_get(dnn, descriptor, name, CUDNN_TYPE_INT64, 1, &count, &bytes) && bytes >= 0 &&
           (uint64_t)bytes <= ul_call_workspace_bytes(call);
}

/* Where there is no handle, the device that a descriptor is for. */
static bool set_device(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor,
                       cudnnBackendAttributeName_t name)
{
    return dnn->handle != NULL || ul_cudnn_set_one(dnn, descriptor, name, dnn->device);
}

/* ---- what the heuristic offers ---- */

static bool read_knob(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor,
                      struct ul_cudnn_knob *knob)
{
    cudnnBackendKnobType_t type;
    int64_t value = 0, count = 0;
    if (!ul_cudnn_get(dnn, descriptor, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                      &count, &type) ||
        !ul_cudnn_get(dnn, descriptor, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                      &count, &value) ||
        value < INT32_MIN || value > INT32_MAX)
        return false;
    knob->type = (int32_t)type;
    knob->value = (int32_t)value;
    return true;
}

static bool read_knobs(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t config,
                       struct ul_cudnn_choice *choice)
{
    cudnnBackendDescriptor_t knobs[UL_CUDNN_KNOBS] = {NULL};
    int64_t count = 0;
    bool good = ul_cudnn_get(dnn, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL) &&
                count >= 0 && count <= UL_CUDNN_KNOBS;
    int64_t made = good ? count : 0;
    for (int64_t i = 0; i < made; i++)
        knobs[i] = ul_cudnn_new(dnn, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (good && made > 0)
        good = ul_cudnn_get(dnn, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &count, knobs) &&
               count == made;
    for (int64_t i = 0; good && i < made; i++)
        good = read_knob(dnn, knobs[i], &choice->knobs[i]);
    for (int64_t i = 0; i < made; i++)
        ul_cudnn_free(dnn, knobs[i]);
    choice->knob_count = (int32_t)made;
    return good;
}

/* False: it is not for this call. */
static bool read_config(const struct ul_cudnn *dnn, const struct ul_call *call,
                        cudnnBackendDescriptor_t config, struct ul_cudnn_choice *choice)
{
    int64_t index = -1, count = 0;
    cudnnBackendDescriptor_t engine = ul_cudnn_new(dnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    bool good = engine != NULL &&
                ul_cudnn_get(dnn, config, CUDNN_ATTR_ENGINECFG_ENGINE,
                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine) &&
                ul_cudnn_get(dnn, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                             &count, &index) &&
                index >= 0 && index <= INT32_MAX && allows_engine(dnn, call, engine) &&
                allows_workspace(dnn, call, config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE) &&
                read_knobs(dnn, config, choice);
    choice->engine = (int32_t)index;
    ul_cudnn_free(dnn, engine);
    return good;
}

static uint32_t size_of(const struct ul_cudnn_choice *choice)
{
    return (uint32_t)(offsetof(struct ul_cudnn_choice, knobs) +
                      (size_t)choice->knob_count * sizeof choice->knobs[0]);
}

static int keep_configs(const struct ul_cudnn *dnn, const struct ul_call *call,
                        const cudnnBackendDescriptor_t *configs, int64_t count,
                        struct ul_cuda_choice *choices, int kept, int most)
{
    static_assert(sizeof(struct ul_cudnn_choice) <= UL_CUDA_CHOICE_BYTES, "it is one");
    struct ul_cudnn_choice choice;
    for (int64_t i = 0; i < count && kept < most; i++) {
        if (!read_config(dnn, call, configs[i], &choice))
            continue;
        choices[kept].size_bytes = size_of(&choice);
        memcpy(choices[kept++].bytes, &choice, size_of(&choice));
    }
    return kept;
}

static cudnnBackendDescriptor_t ask_heuristic(const struct ul_cudnn *dnn,
                                              const struct ul_cudnn_graph *graph,
                                              cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t heuristic = ul_cudnn_new(dnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    if (heuristic != NULL &&
        ul_cudnn_set_one(dnn, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                         graph->operations) &&
        ul_cudnn_set(dnn, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) &&
        set_device(dnn, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP) &&
        ul_cudnn_finalize(dnn, heuristic))
        return heuristic;
    ul_cudnn_free(dnn, heuristic);
    return NULL;
}

/* Adds what a mode of the heuristic offers, up to `most` in all; the number that is kept. */
static int find_by(const struct ul_cudnn *dnn, const struct ul_cudnn_graph *graph,
                   const struct ul_call *call, cudnnBackendHeurMode_t mode,
                   struct ul_cuda_choice *choices, int kept, int most)
{
    enum { MAX = 256 };
    cudnnBackendDescriptor_t configs[MAX] = {NULL};
    cudnnBackendDescriptor_t heuristic = ask_heuristic(dnn, graph, mode);
    int64_t count = 0, offered = 0;
    if (heuristic == NULL)
        return kept;
    (void)ul_cudnn_get(dnn, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                       0, &count, NULL);
    if (count > MAX)
        count = MAX;
    for (int64_t i = 0; i < count; i++)
        configs[i] = ul_cudnn_new(dnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    /* Those that the device does not run are left out, so that fewer may come. */
    if (count > 0 && ul_cudnn_get(dnn, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &offered, configs))
        kept = keep_configs(dnn, call, configs, offered < count ? offered : count, choices, kept,
                            most);
    for (int64_t i = 0; i < count; i++)
        ul_cudnn_free(dnn, configs[i]);
    ul_cudnn_free(dnn, heuristic);
    return kept;
}

/* Adds the engine that cudnn-frontend names for the gradient of attention on devices of compute
 * capability 10, where there is one: on others no such configuration can be made. */
static int add_named(const struct ul_call *call, struct ul_cuda_choice *choices)
{
    static const struct ul_cudnn_choice named = {
        5, 2, {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}}};
    if (call->kind != UL_CALL_ATTENTION_GRADIENT)
        return 0;
    choices[0].size_bytes = size_of(&named);
    memcpy(choices[0].bytes, &named, size_of(&named));
    return 1;
}

int ul_cudnn_find(const struct ul_cudnn *dnn, const struct ul_cudnn_graph *graph,
                  const struct ul_call *call, struct ul_cuda_choice *choices)
{
    enum { SPARE = 4 }; /* for what runs where nothing else does */
    int kept = add_named(call, choices);
    kept = find_by(dnn, graph, call, CUDNN_HEUR_MODE_A, choices, kept, UL_CUDA_CANDIDATES - SPARE);
    return find_by(dnn, graph, call, CUDNN_HEUR_MODE_FALLBACK, choices, kept, UL_CUDA_CANDIDATES);
}

/* ---- plans ---- */

static void free_plan(const struct ul_cudnn *dnn, struct ul_cudnn_plan *plan)
{
    ul_cudnn_free(dnn, plan->plan);
    ul_cudnn_free(dnn, plan->config);
    for (uint32_t i = 0; i < UL_CUDNN_KNOBS; i++)
        ul_cudnn_free(dnn, plan->knobs[i]);
    ul_cudnn_free(dnn, plan->engine);
    free(plan);
}

void ul_cudnn_drop_plan(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph)
{
    if (graph->plan != NULL && --graph->plan->user_count == 0)
        free_plan(dnn, graph->plan);
    graph->plan = NULL;
}

void ul_cudnn_share(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph,
                    struct ul_cudnn_plan *plan)
{
    plan->user_count++; /* before the other one goes, which may be the same */
    ul_cudnn_drop_plan(dnn, graph);
    graph->plan = plan;
}

static bool make_engine(const struct ul_cudnn *dnn, const struct ul_cudnn_graph *graph,
                        const struct ul_cudnn_choice *choice, struct ul_cudnn_plan *plan)
{
    const int64_t index = choice->engine;
    plan->engine = ul_cudnn_new(dnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    return plan->engine != NULL &&
           ul_cudnn_set_one(dnn, plan->engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                            graph->operations) &&
           ul_cudnn_set(dnn, plan->engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                        &index) &&
           set_device(dnn, plan->engine, CUDNN_ATTR_ENGINE_DEVICEPROP) &&
           ul_cudnn_finalize(dnn, plan->engine);
}

static bool make_config(const struct ul_cudnn *dnn, const struct ul_cudnn_choice *choice,
                        struct ul_cudnn_plan *plan)
{
    bool good = true;
    for (int32_t i = 0; good && i < choice->knob_count; i++) {
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)choice->knobs[i].type;
        const int64_t value = choice->knobs[i].value;
        plan->knobs[i] = ul_cudnn_new(dnn, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        good = plan->knobs[i] != NULL &&
               ul_cudnn_set(dnn, plan->knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                            CUDNN_TYPE_KNOB_TYPE, 1, &type) &&
               ul_cudnn_set(dnn, plan->knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                            CUDNN_TYPE_INT64, 1, &value) &&
               ul_cudnn_finalize(dnn, plan->knobs[i]);
    }
    plan->config = good ? ul_cudnn_new(dnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) : NULL;
    return plan->config != NULL &&
           ul_cudnn_set_one(dnn, plan->config, CUDNN_ATTR_ENGINECFG_ENGINE, plan->engine) &&
           (choice->knob_count == 0 ||
            ul_cudnn_set(dnn, plan->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                         CUDNN_TYPE_BACKEND_DESCRIPTOR, choice->knob_count, plan->knobs)) &&
           ul_cudnn_finalize(dnn, plan->config);
}

static bool make_plan(const struct ul_cudnn *dnn, struct ul_cudnn_plan *plan)
{
    plan->plan = ul_cudnn_new(dnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    return plan->plan != NULL &&
           (dnn->handle == NULL || ul_cudnn_set(dnn, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                                CUDNN_TYPE_HANDLE, 1, &dnn->handle)) &&
           set_device(dnn, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP) &&
           ul_cudnn_set_one(dnn, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                            plan->config) &&
           ul_cudnn_finalize(dnn, plan->plan);
}

/* What a file says may be anything. */
static bool read_choice(const struct ul_cuda_choice *from, struct ul_cudnn_choice *choice)
{
    memset(choice, 0, sizeof *choice);
    if (from->size_bytes < offsetof(struct ul_cudnn_choice, knobs) ||
        from->size_bytes > sizeof *choice)
        return false;
    memcpy(choice, from->bytes, from->size_bytes);
    return choice->engine >= 0 && choice->knob_count >= 0 && choice->knob_count <= UL_CUDNN_KNOBS &&
           from->size_bytes == size_of(choice);
}

bool ul_cudnn_take(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph,
                   const struct ul_call *call, const struct ul_cuda_choice *from)
{
    struct ul_cudnn_choice choice;
    struct ul_cudnn_plan *plan = (struct ul_cudnn_plan *)calloc(1, sizeof *plan);
    if (plan == NULL)
        return false;
    if (!read_choice(from, &choice) || !make_engine(dnn, graph, &choice, plan) ||
        !allows_engine(dnn, call, plan->engine) || !make_config(dnn, &choice, plan) ||
        !make_plan(dnn, plan) ||
        !allows_workspace(dnn, call, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)) {
        free_plan(dnn, plan);
        return false;
    }
    plan->choice = *from;
    plan->engine_index = choice.engine;
    ul_cudnn_share(dnn, graph, plan);
    return true;
}

/* ---- running ---- */

/* A pack is final once made: for other places another one is made. */
static bool make_pack(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph)
{
    ul_cudnn_free(dnn, graph->pack);
    graph->pack = ul_cudnn_new(dnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    if (graph->pack != NULL &&
        ul_cudnn_set(dnn, graph->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                     graph->tensor_count, graph->uids) &&
        ul_cudnn_set(dnn, graph->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                     graph->tensor_count, graph->places) &&
        ul_cudnn_set(dnn, graph->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                     &graph->workspace) &&
        ul_cudnn_finalize(dnn, graph->pack))
        return true;
    ul_cudnn_free(dnn, graph->pack);
    graph->pack = NULL;
    return false;
}

bool ul_cudnn_execute(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph,
                      const void *const *args, void *workspace)
{
    bool are_same = graph->pack != NULL && graph->workspace == workspace;
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        int64_t argument = graph->uids[i] - 1;
        const void *place =
            argument < UL_CALL_ARGS ? args[argument] : &graph->numbers[argument - UL_CALL_ARGS];
        are_same = are_same && graph->places[i] == place;
        graph->places[i] = place;
    }
    graph->workspace = workspace;
    return (are_same || make_pack(dnn, graph)) &&
           dnn->BackendExecute(dnn->handle, graph->plan->plan, graph->pack) == CUDNN_STATUS_SUCCESS;
}

#endif
