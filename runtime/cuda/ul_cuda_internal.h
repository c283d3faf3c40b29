/* SPDX-License-Identifier: 0BSD */
/*
 * What the files of the runtime for target cuda share: a context, and how its parts fail.
 *
 *     ul_cuda.cu          opens and closes a context, serves the command line
 *     ul_cuda_load.cu     weights and set-up
 *     ul_cuda_run.cu      runs: replayed, launched, told step by step
 *     ul_cuda_graph.cu    graphs of runs: captured, given other buffers of the caller's
 *     ul_cuda_steps.cu    kernels that every program has
 *
 * Invariants: those of ul_device.h. A function that returns an enum ul_result has set the
 * failure. */
#ifndef UL_CUDA_INTERNAL_H
#define UL_CUDA_INTERNAL_H

#include "ul_cuda.h"
#include "ul_weights.h"

#include <sys/types.h>

#define UL_CUDA_STEP_EVENTS 256
/* How many graphs an entry point has where library calls read or write buffers of the caller. With
 * more sets of buffers than that in turn, each costs a capture. */
#define UL_CUDA_SETS 2

enum ul_cuda_clock {
    UL_CUDA_BEFORE_IN,
    UL_CUDA_BEFORE_RUN,
    UL_CUDA_AFTER_RUN,
    UL_CUDA_AFTER_OUT,
    UL_CUDA_CLOCKS
};

/* A graph of an entry point's steps, ready to be launched. */
struct ul_cuda_replay {
    cudaGraphExec_t exec; /* NULL: there is none */
    const void **buffers; /* inputs and outputs of the caller that the graph reads and writes */
    struct ul_cuda_nodes nodes; /* its nodes that have them; where the list is not complete,
                                   other buffers need a new capture */
    cudaGraph_t graph;          /* the graph that has these nodes; NULL: there is none */
    uint64_t last_run;          /* the run_count when it was last used */
};

/* The graphs of an entry point. */
struct ul_cuda_captured {
    struct ul_cuda_replay replays[UL_CUDA_SETS];
    uint64_t run_count;
    uint64_t launch_count; /* of a run */
    bool is_warm;          /* it ran once, so that it can be captured */
    bool refuses_nodes;    /* CUDA did not give other buffers to a node */
    const char *refusal;   /* why runs are not captured; NULL: they are */
};

struct ul_context {
    const struct ul_model *model;
    struct ul_device_request request;
    pid_t process; /* the process that opened it */
    int device;
    cudaStream_t own_stream; /* captures; runs, where the caller has none */
    cudaStream_t stream;
    cudaStream_t beside; /* the second one of a run; NULL: runs have one */
    cudaEvent_t parted, joined;
    unsigned char *block; /* the one allocation: margin, arena, margin; NULL: the caller's arena */
    unsigned char *arena;
    struct ul_cuda_state *seen; /* page-locked: the state after a run */
    void *libraries[UL_DEVICE_LIBRARY_LIMIT];
    unsigned char *offload; /* page-locked */
    cudaStream_t movers[UL_CUDA_MOVERS];
    struct ul_cuda_transfer *moves;
    uint8_t *apart;                    /* by step, as in struct ul_cuda_run */
    bool overlaps;                     /* kernels of the program wait for those before them */
    struct ul_cuda_captured *captured; /* by entry point */
    cudaEvent_t clock[UL_CUDA_CLOCKS];
    cudaEvent_t marks[UL_CUDA_STEP_EVENTS];
    uint32_t marked_steps[UL_CUDA_STEP_EVENTS];
    uint32_t mark_count;
    double *step_seconds; /* the caller's, while marks are set */
    ul_step_hook *hook;
    void *hook_context;
    struct ul_device_memory memory;
};

/* The first error of several calls. */
static inline cudaError_t ul_cuda_first(cudaError_t error, cudaError_t other)
{
    return error != cudaSuccess ? error : other;
}

static inline uint64_t ul_cuda_less(uint64_t before, uint64_t after)
{
    return before > after ? before - after : 0;
}

/* ---- ul_cuda.cu ---- */
/* What an error of CUDA means to the caller. */
enum ul_result ul_cuda_fail(const struct ul_context *context, struct ul_failure *failure,
                            cudaError_t error);
/* Makes the context's device the thread's; *before is what it was. On an error, as in a process
   that was forked since, nothing of the context may be touched. */
cudaError_t ul_cuda_enter(const struct ul_context *context, int *before);
void ul_cuda_leave(int device, int before);
/* The free bytes of the current device; 0 where it does not say. */
uint64_t ul_cuda_free_bytes(void);
/* Steps whose loops are launches. */
uint64_t ul_cuda_count_apart(const struct ul_context *context);
bool ul_cuda_is_on_device(const struct ul_context *context, const void *bytes);

/* ---- ul_cuda_load.cu ---- */
enum ul_result ul_cuda_load_context(struct ul_context *context,
                                    const struct ul_weights_source *source,
                                    struct ul_failure *failure);

/* ---- ul_cuda_run.cu ---- */
struct ul_cuda_run ul_cuda_begin_run(const struct ul_context *context, cudaStream_t stream);
/* Goes through all that a run may enqueue, and enqueues nothing, so that libraries see which of
   their calls they take where these are. */
void ul_cuda_ask_calls(struct ul_context *context);
/* Enqueues all of a run, with `entry` of kernels.cu, or the set-up, in its middle. */
void ul_cuda_enqueue(struct ul_context *context, struct ul_cuda_run *run,
                     void (*entry)(struct ul_cuda_run *run));
/* For transfers of a run that failed, for which no step of it waited any more. */
void ul_cuda_wait_for_movers(const struct ul_context *context);
/* Waits for the run, unless it failed with `error`; hands its fault to the caller. */
enum ul_result ul_cuda_finish(struct ul_context *context, cudaError_t error,
                              struct ul_failure *failure);
/* Zeros the arena. */
cudaError_t ul_cuda_clear_arena(struct ul_context *context);
/* The first run, on zeros. */
enum ul_result ul_cuda_warm_up(struct ul_context *context, uint32_t entry,
                               struct ul_failure *failure);
enum ul_result ul_cuda_run_context(struct ul_context *context, uint32_t entry,
                                   const void *const *inputs, void *const *outputs,
                                   ul_step_hook *hook, void *hook_context,
                                   struct ul_failure *failure);
enum ul_result ul_cuda_run_steps(struct ul_context *context, uint32_t entry,
                                 const void *const *inputs, void *const *outputs,
                                 double *step_seconds, struct ul_failure *failure);

/* ---- ul_cuda_graph.cu ---- */
/* For all entry points of a model, none of them captured yet; NULL: the host is out of memory. */
struct ul_cuda_captured *ul_cuda_new_captured(const struct ul_model *model);
void ul_cuda_drop_replays(struct ul_context *context);
void ul_cuda_free_captured(const struct ul_model *model, struct ul_cuda_captured *captured);
/* Whether runs of the entry point are replayed after its first run. */
bool ul_cuda_captures(const struct ul_context *context, uint32_t number);
/* Gives the graph that does a run on these buffers of the caller. NULL: CUDA captures none. Such
 * runs are launched step by step, which is slower and gives the same results. */
cudaGraphExec_t ul_cuda_find_replay(struct ul_context *context, uint32_t number,
                                    const void *const *inputs, void *const *outputs);

/* ---- ul_cuda_steps.cu ---- */
/* Whether the program has code for the current device, and whether its kernels wait for those
   before them (ul_wait). */
cudaError_t ul_cuda_probe(const struct ul_cuda_code *code, bool *waits);
/* Writes element_count elements, each the low element_bytes of value. */
void ul_cuda_fill_splat(const struct ul_cuda_step *at, const struct ul_splat *splat);
/* Exchanges the bits of size_bytes of the arena that are 1 in `pattern`. */
void ul_cuda_exchange_bits(struct ul_cuda_run *run, int64_t offset_bytes, unsigned char pattern,
                           uint64_t size_bytes);

#endif
