/* SPDX-License-Identifier: Apache-2.0 */
/* What the compiler asks of a target's numerical library. */
#ifndef UL_CODEGEN_PROGRAM_LIBRARY_H
#define UL_CODEGEN_PROGRAM_LIBRARY_H

#include "ir/graph.h"

struct ul_group_call; /* calls_internal.h */
struct ul_call;       /* runtime/lib/ul_call.h */
struct ul_piece;
struct ul_work;            /* codegen/kernel/work.h */
struct ul_program_options; /* program.h */

/* A target's numerical library, as the compiler asks it: oneDNN (dnnl.c), or cuBLASLt and cuDNN
 * (cuda_calls.c). The target's rows of facts and functions; `context` is handed to the functions.
 */
struct ul_target_library {
    const char *name;        /* "oneDNN" */
    const char *plan_name;   /* before the names of its implementations in plans: "onednn" */
    const char *isa;         /* of the machine that it was asked for; NULL: any */
    const char *march;       /* what a C compiler takes after -march= for it; NULL: any */
    uint64_t state_bytes;    /* in the arena, for what it keeps there; 0: nothing */
    bool skips_padding;      /* nothing is multiplied where a window lies in the padding */
    bool adds_from_afar;     /* a residual may lie elsewhere than the result */
    bool accumulates;        /* a residual may be the sum over the runs of a step */
    uint64_t max_sums_bytes; /* of sums of a factor along k that a product may form, too, in bytes
                                that its scratch gives up for them; 0: it forms none */
    bool has_slopes;         /* a product may be multiplied by the slopes of an activation, or
                                may keep what a GELU is of beside its result */
    int64_t max_dim;         /* elements along an axis; 0: any */
    bool runs_always;        /* a step that a run may pass over cannot be a call */
    bool chosen_at_start; /* a program's start may find nothing that runs a call: a kernel of ours
                             stands beside each */
    void *context;
    /* Completes the call: implementation, layout of the weights (packed where `pack`), scratch.
     * False: the library has nothing for it that a plan should hold. */
    bool (*answer)(void *context, struct ul_group_call *call, bool pack);
    /* Completes the call so that it has the bits of the whole; false: it is not shown to. NULL: it
     * never is. */
    bool (*answer_piece)(void *context, const struct ul_piece *piece, struct ul_group_call *call);
    /* Whether the call, with a kernel behind it that moves so many bytes, takes less time than one
     * kernel of ours for both. NULL: always. */
    bool (*is_worth)(void *context, const struct ul_group_call *call, uint64_t pass_bytes);
    /* Turns a call into one with less scratch, and says how many times its time that is taken to
     * need; 0: there is none. NULL: never. */
    double (*leaner)(void *context, struct ul_call *call);
    /* The most scratch that the call can make use of, where there is room for it beside a plan.
     * NULL: no more than it has. */
    uint64_t (*most)(void *context, const struct ul_call *call);
    /* Gives the scratch of a call in a program that trains, where our own kernel in its place has
     * `own_bytes`. Under every budget it is the same. NULL: the call keeps the scratch that the
     * library answered with. */
    uint64_t (*trained)(void *context, const struct ul_call *call, uint64_t own_bytes);
    /* How the call is spread over a device, as far as shapes say: blocks of threads, or a product.
     * NULL: it fills any. */
    void (*spread)(void *context, const struct ul_call *call, struct ul_work *work);
    /* Bytes of the host that it keeps for the call beside the buffer, as long as the program lives.
     * NULL: nobody knows before the program starts. */
    uint64_t (*kept_bytes)(void *context, const struct ul_call *call);
    /* Bytes of the library's code, of what a program has resident in whole windows of pages, that
     * the calls run through. 0, or NULL: it cannot be counted here. */
    uint64_t (*code_bytes)(void *context, const struct ul_call *calls, uint32_t count);
    /* Begins to answer for another compile, as if it were opened for that, but what it found out
     * before it need not find out again. The compile before asks nothing more. False, or NULL: the
     * options need another library. */
    bool (*reopen)(void *context, const struct ul_program_options *options);
    void (*close)(void *context);
};
bool ul_library_reopen(const struct ul_target_library *library,
                       const struct ul_program_options *options);
void ul_library_close(const struct ul_target_library *library);
/* The group is a call, as far as the library goes: for passes, see `is_call` in passes.h. `library`
 * is a const struct ul_target_library. */
bool ul_library_supports(const void *library, const struct ul_graph *graph, const ul_node_id *nodes,
                         uint32_t count, const bool *escapes, uint64_t *scratch_bytes);
/* Likewise, see `is_worth` there; of a group that is no call: false. */
bool ul_library_is_worth(const void *library, const struct ul_graph *graph, const ul_node_id *nodes,
                         uint32_t count, const bool *escapes, uint64_t pass_bytes);

#endif
