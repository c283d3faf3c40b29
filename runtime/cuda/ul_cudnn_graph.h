/* SPDX-License-Identifier: 0BSD */
/*
 * Graphs of cuDNN (its backend descriptors, cudnn_graph.h) for ul_cudnn.cu: a call as operations on
 * tensors, the engines that cuDNN offers for it, and a plan that runs. CUDA C++.
 *
 *      ul_cudnn_graph.cu   a call -> tensors and operations -> an operation graph
 *      ul_cudnn_plan.cu    graph -> engines that keep what the plan promises -> a plan, and its
 * runs
 *
 *      src ---\                         by numbers of arguments: tensor i + 1 is args[i]
 *              conv --> sum --> sum --> relu --> dst
 *      weights-/   residual   bias      what lies between is virtual, in f32: rounded once, at dst
 *
 *      src, weights --> gradient of a source --> dst      a transposed convolution
 *      src, weights --> gradient of weights --> dst       weights: the gradient of the result
 *
 *      queries -\
 *                scores --> scaled, masked, causal --> softmax --> product --> dst
 *      keys ----/                                     rounded    values
 *
 *      result --\
 *                product --> sums                         its gradient: weights by their norms,
 *      gradient-/   (scratch)                             slopes by the sums, three products of
 *      queries, keys, values, norms --> scores --> ...    these and of operands
 *
 * Invariants: a graph of a call depends on the call alone. An engine is taken only if it gives the
 * same bits every time, rounds no operand to a narrower type (to TF32 where the call allows it),
 * sums in f32 and does with the planned workspace.
 * Ownership: a graph owns its descriptors, which ul_cudnn_free_graph gives back.
 * Units: bytes. Failure: functions answer false; cuDNN has no such descriptor, or none that fits.
 */
#ifndef UL_CUDNN_GRAPH_H
#define UL_CUDNN_GRAPH_H

#include "ul_cuda_library.h"

#if defined(__has_include)
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#endif
#endif
/* Earlier ones describe no device but one that is there, by which tests go. */
#if defined(CUDNN_VERSION) && CUDNN_VERSION >= 90800
#define UL_HAS_CUDNN 1
#else
#define UL_HAS_CUDNN 0
#endif

#if UL_HAS_CUDNN

/* The functions that are called, by their names without cudnn. */
#define UL_CUDNN_FUNCTIONS(X)                                                                      \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(GetVersion)                                                                                  \
    X(SetStream)                                                                                   \
    X(BackendCreateDescriptor)                                                                     \
    X(BackendDestroyDescriptor)                                                                    \
    X(BackendFinalize)                                                                             \
    X(BackendSetAttribute)                                                                         \
    X(BackendGetAttribute)                                                                         \
    X(BackendExecute)

struct ul_cudnn {
#define UL_CUDNN_MEMBER(name) decltype(&cudnn##name) name;
    UL_CUDNN_FUNCTIONS(UL_CUDNN_MEMBER)
#undef UL_CUDNN_MEMBER
    cudnnHandle_t handle;
    /* Properties of a device, where there is no handle: plans are made for it and none runs. */
    cudnnBackendDescriptor_t device;
};

/* Where operands lie at least: what engines read and write at once of channels. */
enum { UL_CUDNN_ALIGN_BYTES = 16 };

/* Which engine, and how it is set: what a file of choices holds, without the knobs that are not
 * there. */
enum { UL_CUDNN_KNOBS = 15 };
struct ul_cudnn_knob {
    int32_t type, value;
};
struct ul_cudnn_choice {
    int32_t engine, knob_count;
    struct ul_cudnn_knob knobs[UL_CUDNN_KNOBS];
};

/* A plan, and its parts. */
struct ul_cudnn_plan {
    uint32_t user_count; /* graphs of calls that are alike */
    struct ul_cuda_choice choice;
    int32_t engine_index;
    cudnnBackendDescriptor_t engine, config, plan;
    cudnnBackendDescriptor_t knobs[UL_CUDNN_KNOBS];
};

/* One call, ready to run when it has a plan. */
enum { UL_CUDNN_DESCRIPTORS = 96, UL_CUDNN_NUMBERS = 3 };
struct ul_cudnn_graph {
    uint32_t descriptor_count;
    cudnnBackendDescriptor_t descriptors[UL_CUDNN_DESCRIPTORS]; /* in the order they were made in */
    /* Tensors that a run gives places to. Their uids are 1 + the number of the argument, or, from
     * UL_CALL_ARGS on, that of a number. */
    uint32_t tensor_count;
    int64_t uids[UL_CALL_ARGS + UL_CUDNN_NUMBERS];
    float numbers[UL_CUDNN_NUMBERS];
    cudnnBackendDescriptor_t operations;
    struct ul_cudnn_plan *plan; /* NULL: none */
    /* The places of the last run, kept because a run that is not replayed mostly has the same. */
    cudnnBackendDescriptor_t pack; /* NULL: none */
    const void *places[UL_CALL_ARGS + UL_CUDNN_NUMBERS];
    void *workspace;
};

/* ---- descriptors ---- */

/* A new one that is not final; NULL: there is none. */
cudnnBackendDescriptor_t ul_cudnn_new(const struct ul_cudnn *dnn,
                                      cudnnBackendDescriptorType_t type);
void ul_cudnn_free(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor);
bool ul_cudnn_finalize(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor);
bool ul_cudnn_set(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor,
                  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void *values);
bool ul_cudnn_set_one(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor,
                      cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
/* At most `max` values, into `values`; *count: how many there are. */
bool ul_cudnn_get(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor,
                  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t max,
                  int64_t *count, void *values);

/* ---- ul_cudnn_graph.cu ---- */

/* Into a graph of zeros, which is to be freed in either case. */
bool ul_cudnn_make_graph(const struct ul_cudnn *dnn, const struct ul_call *call,
                         struct ul_cudnn_graph *graph);
void ul_cudnn_free_graph(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph);

/* ---- ul_cudnn_plan.cu ---- */

/* Engines of the heuristic, the best first; their number. */
int ul_cudnn_find(const struct ul_cudnn *dnn, const struct ul_cudnn_graph *graph,
                  const struct ul_call *call, struct ul_cuda_choice *choices);
/* The plan of a choice, if it does; else the one before stays. */
bool ul_cudnn_take(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph,
                   const struct ul_call *call, const struct ul_cuda_choice *choice);
/* The plan of a graph of a call like this one, in place of its own. */
void ul_cudnn_share(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph,
                    struct ul_cudnn_plan *plan);
/* Gives up the graph's plan. */
void ul_cudnn_drop_plan(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph);
/* Enqueues the plan on the handle's stream. */
bool ul_cudnn_execute(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph,
                      const void *const *args, void *workspace);

#endif
#endif
