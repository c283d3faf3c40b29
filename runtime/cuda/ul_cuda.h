/* SPDX-License-Identifier: 0BSD */
/*
 * What the generated kernels.cu of target cuda is made of: what a kernel gets besides its buffers,
 * how it is launched, and the state of a run on the host. CUDA C++; the same source is compiled as
 * host C++ by tests/cuda_emulation, which is why launches go through UL_LAUNCH and shared memory is
 * declared by UL_SHARED.
 *
 *     static __global__ void k3_0(const float *b0, float *b1, struct ul_where run)
 *     {
 *         UL_ENTER(run);
 *         for (int64_t t_item = ul_item_first(); t_item < 4096; t_item += ul_item_stride()) ...
 *     }
 *     static void k3(const struct ul_cuda_step *at, const float *b0, float *b1)
 *     {
 *         UL_LAUNCH(k3_0, 32, 128, at, b0, b1);
 *     }
 *
 * Invariants: all device memory is the arena; what a kernel computes depends on its arguments
 * alone, not on the device or on the order in which blocks run; no atomic operation makes a result.
 * Blocks wait for each other in launches of UL_LAUNCH_TOGETHER alone.
 * Everything is enqueued on the run's two streams, nothing waits, so that a run can be captured.
 * What is beside, on the second stream, is joined before the run ends.
 * Failure: an index out of range is clamped and noted in the arena's struct ul_cuda_state; a call
 * of CUDA that fails is kept in struct ul_cuda_run, and what follows it in the run does nothing.
 */
#ifndef UL_CUDA_H
#define UL_CUDA_H

#include "ul_device.h"
#include "ul_model.h"

#include <cuda_runtime.h>
#ifndef __CUDACC__
#include "ul_emulate.h" /* tests/cuda_emulation */
#endif

#define UL_CUDA_MOVERS 2 /* one each way */

/* The first thing out of range in a run: that of the first step that met one, and there the least
 * (limit, value), so that it does not depend on which thread came first. */
struct ul_cuda_fault {
    uint32_t lock;
    uint32_t kind;  /* enum ul_fault */
    uint32_t order; /* of the step in this run */
    uint32_t step;
    int64_t value;
    int64_t limit;
};

/* Where the blocks of a launch meet that are all there together (ul_together.cuh). Zeros at set-up;
 * each meeting leaves it as it found it, except for the number of meetings, which goes on. */
struct ul_meeting {
    uint32_t arrived; /* blocks */
    uint32_t round;
};

/* In the arena, at a planned place, cleared at set-up and at the start of each run in which an
 * index may be out of range or a step be skipped; nobody else writes it. After it one byte for
 * every region of the program that may be skipped: 1 while its steps are to run. After these, at a
 * multiple of 4, words that count blocks, where a kernel does; zeros between launches. */
struct ul_cuda_state {
    struct ul_cuda_fault fault;
    struct ul_meeting meeting;
};

/* What every kernel gets as its last argument, named `run`. */
struct ul_where {
    struct ul_cuda_fault *fault;
    const uint8_t *when; /* 1 where the step's region runs; NULL: it always does */
    uint32_t order;      /* of the step: steps are counted as they run, in a loop each time round */
    uint32_t step;
};

/* The events of a transfer: all steps before it are done, and it is done. */
struct ul_cuda_transfer {
    cudaEvent_t begun, done;
};

/* The kernels of a captured run that have buffers of the caller, in the order of their launches. A
 * capture notes them. For other buffers the program goes through the steps of the run again,
 * enqueues nothing, and gives each noted kernel the arguments of its launch. */
struct ul_cuda_node {
    cudaGraphNode_t node; /* a node of the captured graph */
    const void *kernel;
};
struct ul_cuda_run;
struct ul_cuda_nodes {
    cudaGraphExec_t exec; /* the graph whose nodes get new arguments; NULL: nodes are noted */
    void (*keep)(struct ul_cuda_run *run, const void *kernel); /* ul_cuda_keep_node */
    struct ul_cuda_node *all;
    uint32_t count, room;
    uint32_t given; /* how many nodes have got new arguments so far */
    int is_whole;   /* 0: some of the nodes are known to a library alone */
};

/* One run, on the host. */
struct ul_cuda_run {
    cudaStream_t stream;       /* of the step that is being launched: one of the next two */
    cudaStream_t main, beside; /* beside NULL: there is none */
    cudaEvent_t parted;        /* when the second stream began last, and when it was joined */
    cudaEvent_t joined;
    int is_parted;        /* something is on the second stream that nobody waits for yet */
    unsigned char *arena; /* device memory */
    struct ul_cuda_state *state;
    uint8_t *regions;          /* after the state */
    uint32_t *counters;        /* of blocks (ul_is_last); zeros between launches */
    const void *const *inputs; /* device memory of the caller, for --io caller */
    void *const *outputs;
    void *const *libraries;     /* the handles, in the order of the model's table */
    unsigned char *offload;     /* page-locked memory of the host; NULL: nothing is offloaded */
    const cudaStream_t *movers; /* UL_CUDA_MOVERS, for transfers beside steps */
    const struct ul_cuda_transfer *moves; /* by number */
    /* Told of each step before it is launched, where the run is not captured; else NULL. */
    void (*announce)(struct ul_cuda_run *run, const struct ul_where *where);
    void *announce_context;
    uint32_t order;        /* of the step that is being launched, from 1 */
    uint64_t launch_count; /* of kernels, copies and library calls so far */
    uint64_t launch_limit; /* what comes after it is left out: too long to be captured */
    uint8_t *apart; /* by step: 1: its loops are launches, since not all blocks can be there at
                       once */
    int overlaps;   /* kernels may begin while the one before them ends: see ul_wait */
    int is_behind;  /* a kernel of ours is the last thing in the stream */
    int begins;     /* whether calls add nothing to sums of earlier runs */
    int asks;       /* nothing is enqueued: this finds out who runs library calls */
    int touches;    /* whether the step that is being launched has a buffer of the caller */
    struct ul_cuda_nodes *nodes; /* NULL: they are not wanted */
    cudaError_t error;           /* the first one */
};

/* What kernels.cu defines for the runtime, as
 *     extern "C" { extern const struct ul_cuda_code model_code; }
 *     const struct ul_cuda_code model_code = {entries, (const void *)ul_probe, NULL};
 * and model.c names in its struct ul_device (ul_device.h): what enqueues the steps of each of the
 * model's entry points on run->stream; NULL where there are none.
 */
struct ul_cuda_code {
    void (*const *entries)(struct ul_cuda_run *run);
    const void *probe; /* a kernel that was compiled like all of the file; NULL: not told */
    /* By call: enqueues the kernels of ours that could stand for it, at places of the plan, to time
     * them; NULL: nobody asks that of the call, or of any. */
    void (*const *own)(struct ul_cuda_run *run);
};

/* Where a host function that launches the kernels of one step is. */
struct ul_cuda_step {
    struct ul_cuda_run *run;
    struct ul_where where;
};

static inline void ul_cuda_note(struct ul_cuda_run *run, cudaError_t error)
{
    if (run->error == cudaSuccess)
        run->error = error;
}

/* The steps from here on are on the second stream, after what the first one has so far; a run that
 * enqueues nothing says nothing to either. */
static inline void ul_cuda_enter_beside(struct ul_cuda_run *run)
{
    run->stream = run->beside;
    run->is_behind = 0;
    if (run->error != cudaSuccess || run->launch_count >= run->launch_limit)
        return;
    run->is_parted = 1;
    ul_cuda_note(run, cudaEventRecord(run->parted, run->main));
    ul_cuda_note(run, cudaStreamWaitEvent(run->beside, run->parted, 0));
}

static inline void ul_cuda_leave_beside(struct ul_cuda_run *run)
{
    run->stream = run->main;
    run->is_behind = 0;
}

/* Steps that are enqueued after it wait for all of the second stream. */
static inline void ul_cuda_join(struct ul_cuda_run *run)
{
    if (run->beside == NULL)
        return;
    run->stream = run->main;
    run->is_behind = 0;
    if (!run->is_parted)
        return;
    run->is_parted = 0;
    ul_cuda_note(run, cudaEventRecord(run->joined, run->beside));
    ul_cuda_note(run, cudaStreamWaitEvent(run->main, run->joined, 0));
}

/* Step `number`; `region`: of the state's bytes, or UL_CUDA_ALWAYS. */
#define UL_CUDA_ALWAYS UINT32_MAX
static inline struct ul_cuda_step ul_cuda_begin_step(struct ul_cuda_run *run, uint32_t number,
                                                     uint32_t region)
{
    struct ul_cuda_step at;
    at.run = run;
    at.where.fault = &run->state->fault;
    at.where.when = region == UL_CUDA_ALWAYS ? NULL : run->regions + region;
    at.where.order = ++run->order;
    at.where.step = number;
    run->touches = 0;
#ifndef __CUDACC__
    ul_emulate_begin_step(number);
#endif
    if (run->announce != NULL) {
        run->announce(run, &at.where);
        run->is_behind = 0; /* a step's time is what it takes alone */
    }
    return at;
}

/* A step after those before it on the first stream. */
static inline struct ul_cuda_step ul_cuda_at(struct ul_cuda_run *run, uint32_t number,
                                             uint32_t region)
{
    if (run->beside != NULL && run->stream == run->beside)
        ul_cuda_leave_beside(run);
    return ul_cuda_begin_step(run, number, region);
}

/* A step on the second stream, after all that is enqueued so far. Steps of the first stream that
 * are enqueued later run beside it, up to ul_cuda_join. Where the run is told of each step, it is
 * one more step of the first stream. */
static inline struct ul_cuda_step ul_cuda_at_beside(struct ul_cuda_run *run, uint32_t number,
                                                    uint32_t region)
{
    if (run->beside != NULL && run->announce == NULL && run->stream != run->beside)
        ul_cuda_enter_beside(run);
    return ul_cuda_begin_step(run, number, region);
}

/* Whether steps may be one launch: not where a run is told of each, nor where each is counted. */
static inline int ul_cuda_joins(const struct ul_cuda_run *run)
{
#ifndef __CUDACC__
    if (ul_emulate_counts_steps())
        return 0;
#endif
    return run->announce == NULL;
}

/* A place in device memory, as an argument of whatever pointer type a kernel's function has. */
struct ul_place {
    unsigned char *bytes;
    template <typename type> operator type *() const
    {
        return reinterpret_cast<type *>(bytes);
    }
};

/* A buffer of the caller, with --io caller, as an argument of the step that ul_cuda_at began. An
 * input is only read. */
static inline unsigned char *ul_cuda_input(struct ul_cuda_run *run, uint32_t number)
{
    run->touches = 1;
    return (unsigned char *)run->inputs[number];
}

static inline unsigned char *ul_cuda_output(struct ul_cuda_run *run, uint32_t number)
{
    run->touches = 1;
    return (unsigned char *)run->outputs[number];
}

/* What came of UL_LAUNCH_TOGETHER. The device was asked before whether it holds all blocks, but the
 * stream may have only a part of it: a green context, or a share under MPS. */
static inline void ul_cuda_note_together(const struct ul_cuda_step *at, cudaError_t error)
{
    if (error != cudaErrorCooperativeLaunchTooLarge) {
        ul_cuda_note(at->run, error);
        return;
    }
    (void)cudaGetLastError();
    at->run->launch_count--; /* it was no launch */
    at->run->apart[at->where.step] = 1;
}

/* Asked before anything is enqueued, once for each kernel, copy or library call: 0 after an error,
 * and where a captured run is too long for it. */
static inline int ul_cuda_may_launch(struct ul_cuda_run *run)
{
    if (run->error != cudaSuccess || run->launch_count >= run->launch_limit)
        return 0;
    run->launch_count++;
    run->is_behind = 0;
    return 1;
}

/* Notes the kernel that was captured last. */
static inline void ul_cuda_note_node(struct ul_cuda_run *run, const void *kernel)
{
    if (run->nodes != NULL && run->touches)
        run->nodes->keep(run, kernel);
}

/* Gives the next noted node. It must have this kernel; else there is an error. */
static inline cudaGraphNode_t ul_cuda_next_node(struct ul_cuda_run *run, const void *kernel)
{
    const struct ul_cuda_nodes *nodes = run->nodes;
    if (nodes->given < nodes->count && nodes->all[nodes->given].kernel == kernel)
        return nodes->all[run->nodes->given++].node;
    ul_cuda_note(run, cudaErrorUnknown);
    return NULL;
}

/* Gives a noted node new arguments. 0: this run does not, and the kernel is to be launched. A
 * cooperative node stays cooperative and an edge stays programmatic, since neither is a parameter.
 */
template <typename... parameters, typename... arguments>
static inline int ul_cuda_give(const struct ul_cuda_step *at, void (*kernel)(parameters...),
                               unsigned blocks, unsigned threads, size_t rest_bytes,
                               arguments... given)
{
    struct ul_cuda_run *run = at->run;
    if (run->nodes == NULL || run->nodes->exec == NULL)
        return 0;
    cudaGraphNode_t node =
        run->touches ? ul_cuda_next_node(run, (const void *)kernel) : (cudaGraphNode_t)NULL;
    if (node == NULL)
        return 1;
    [&](parameters... values) {
        void *pointers[] = {(void *)&values...};
        struct cudaKernelNodeParams params = {};
        params.func = (void *)kernel;
        params.gridDim = dim3(blocks);
        params.blockDim = dim3(threads);
        params.sharedMemBytes = (unsigned)rest_bytes;
        params.kernelParams = pointers;
        ul_cuda_note(run, cudaGraphExecKernelNodeSetParams(run->nodes->exec, node, &params));
    }(given...);
    return 1;
}
#define UL_GIVE(kernel, blocks, threads, rest_bytes, at, ...)                                      \
    ul_cuda_give((at), (kernel), (unsigned)(blocks), (unsigned)(threads), (rest_bytes),            \
                 __VA_ARGS__, (at)->where)

/* UL_LAUNCH(kernel, blocks, threads, at, arguments ...): appends at->where as the last argument.
 * After another kernel of ours the launch is programmatic, where devices have that (from compute
 * capability 9.0 on): it may begin while that one still runs, and waits for its end by ul_wait. */
#ifdef __CUDACC__
#define UL_LAUNCH(kernel, blocks, threads, at, ...)                                                \
    do {                                                                                           \
        int overlaps = (at)->run->overlaps && (at)->run->is_behind;                                \
        if (UL_GIVE(kernel, blocks, threads, 0, at, __VA_ARGS__) ||                                \
            !ul_cuda_may_launch((at)->run))                                                        \
            break;                                                                                 \
        cudaLaunchAttribute programmatic;                                                          \
        programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;                      \
        programmatic.val.programmaticStreamSerializationAllowed = 1;                               \
        cudaLaunchConfig_t config = {};                                                            \
        config.gridDim = dim3((unsigned)(blocks));                                                 \
        config.blockDim = dim3((unsigned)(threads));                                               \
        config.stream = (at)->run->stream;                                                         \
        config.attrs = &programmatic;                                                              \
        config.numAttrs = overlaps ? 1 : 0;                                                        \
        ul_cuda_note((at)->run, cudaLaunchKernelEx(&config, kernel, __VA_ARGS__, (at)->where));    \
        ul_cuda_note_node((at)->run, (const void *)(kernel));                                      \
        (at)->run->is_behind = 1;                                                                  \
    } while (0)
/* An array of the block's shared memory, in the body of a kernel; tensor cores want it aligned. */
#define UL_SHARED(type, name, count) __shared__ __align__(128) type name[count]
/* UL_LAUNCH of a kernel whose blocks are all there at once and may wait for each other;
 * rest_bytes: of shared memory beside its arrays, which it names by UL_SHARED_REST. Only what
 * ul_cuda_is_resident says yes to. Where CUDA refuses it all the same, the step is apart. */
#define UL_LAUNCH_TOGETHER(kernel, blocks, threads, rest_bytes, at, ...)                           \
    do {                                                                                           \
        if (UL_GIVE(kernel, blocks, threads, rest_bytes, at, __VA_ARGS__) ||                       \
            !ul_cuda_may_launch((at)->run))                                                        \
            break;                                                                                 \
        cudaLaunchAttribute together;                                                              \
        together.id = cudaLaunchAttributeCooperative;                                              \
        together.val.cooperative = 1;                                                              \
        cudaLaunchConfig_t config = {};                                                            \
        config.gridDim = dim3((unsigned)(blocks));                                                 \
        config.blockDim = dim3((unsigned)(threads));                                               \
        config.dynamicSmemBytes = (rest_bytes);                                                    \
        config.stream = (at)->run->stream;                                                         \
        config.attrs = &together;                                                                  \
        config.numAttrs = 1;                                                                       \
        ul_cuda_note_together((at),                                                                \
                              cudaLaunchKernelEx(&config, kernel, __VA_ARGS__, (at)->where));      \
        ul_cuda_note_node((at)->run, (const void *)(kernel));                                      \
    } while (0)
#define UL_SHARED_REST(name) extern __shared__ __align__(128) unsigned char name[]
#endif

/* Waits until the kernels before this one are done and what they wrote is seen, then lets the next
 * one come to its own wait. Each kernel that UL_LAUNCH launches does so before it touches memory of
 * the device, by all threads. So no step begins to read or to write what an earlier one still uses:
 * the kernel before has ended, all threads of it had waited for the one before that, and so on back
 * to one that was launched without overlap, after all that stood before it in the stream. */
#ifdef __CUDACC__
static __device__ __forceinline__ void ul_wait(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#else
static inline void ul_wait(void)
{
    ul_emulate_wait();
}
#endif

/* The first statement of a kernel. */
#define UL_ENTER(run)                                                                              \
    do {                                                                                           \
        ul_wait();                                                                                 \
        if ((run).when != NULL && *(run).when == 0)                                                \
            return;                                                                                \
    } while (0)

/* A kernel by which the runtime sees what those of a file were compiled for; once in the file. */
#define UL_PROBE                                                                                   \
    static __global__ void ul_probe(struct ul_where run)                                           \
    {                                                                                              \
        UL_ENTER(run);                                                                             \
    }

/* Can the device have all blocks of the step's kernel at once, with so much shared memory beside
 * its arrays? Where not, the step is apart, and there is no error. */
bool ul_cuda_is_resident(const struct ul_cuda_step *at, const void *kernel, uint32_t blocks,
                         uint32_t threads, uint64_t rest_bytes);
/* Whether that, or a launch of such a kernel, has made the step one whose loops are launches: for
 * good, in all runs of the context. */
static inline bool ul_cuda_is_apart(const struct ul_cuda_step *at)
{
    return at->run->apart[at->where.step] != 0;
}

/* Notes a node. Where that fails, the list is not complete. */
void ul_cuda_keep_node(struct ul_cuda_run *run, const void *kernel);

/* ---- fixed steps of a program; ul_cuda_steps.cu ---- */

/* Copies size_bytes from one place of device memory to another; the two do not overlap. */
void ul_cuda_copy(const struct ul_cuda_step *at, const void *from, void *to, uint64_t size_bytes);
/* Begins to move size_bytes between the arena and the memory that values are offloaded to, on a
 * stream of the plan's; steps that are enqueued after it run beside it, where the stream is not
 * 0. */
void ul_cuda_move(const struct ul_cuda_step *at, enum ul_direction direction, uint32_t stream,
                  uint32_t number, uint64_t offset_bytes, unsigned char *bytes,
                  uint64_t size_bytes);
/* Steps that are enqueued after it wait for that transfer, and for those before it on its
 * stream. */
void ul_cuda_await(struct ul_cuda_run *run, uint32_t number);
/* *to = value */
void ul_cuda_put_counter(const struct ul_cuda_step *at, int64_t *to, int64_t value);
/* regions[region] = parent's byte (1 for UL_CUDA_ALWAYS) and, where `condition` is not NULL,
 * (*condition != 0) != negated: entering a branch or a loop. */
void ul_cuda_enter_region(const struct ul_cuda_step *at, uint32_t region, uint32_t parent,
                          const uint8_t *condition, int negated);
/* regions[region] &= *condition != 0: the test of a loop. */
void ul_cuda_test(const struct ul_cuda_step *at, uint32_t region, const uint8_t *condition);

#endif
