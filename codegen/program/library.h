/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries whose functions compute steps of a program, as the compiler asks them: numerical
 * ones that a program links, and parts of the runtime that other programs do without. */
#ifndef UL_CODEGEN_PROGRAM_LIBRARY_H
#define UL_CODEGEN_PROGRAM_LIBRARY_H

#include "ir/graph.h"

struct ul_calls;      /* calls_internal.h */
struct ul_group_call; /* calls_internal.h */
struct ul_call;       /* runtime/lib/ul_call.h */
struct ul_libraries;
struct ul_piece;
struct ul_unsplit;
struct ul_work;            /* codegen/kernel/work.h */
struct ul_program_options; /* program.h */

/* A source of the runtime that programs with calls of a library are made of. */
struct ul_library_file {
    const char *name;                            /* "ul_nbits.c"; NULL behind the last */
    bool is_native;                              /* it is compiled for the processor, as model.c */
    bool (*is_wanted)(const struct ul_call *of); /* by a call; NULL: by each */
};

/* What a program has of a library: its distinct calls. */
struct ul_library_use {
    const struct ul_call *const *calls;
    uint32_t count;
    const struct ul_program_options *options;
};

/* A library: a row of facts and functions, one of a target's list (codegen/target.c). A compile
 * opens a copy of it, whose `context` is handed to the functions; that copy is what a call names.
 */
struct ul_target_library {
    const char *name;        /* "oneDNN" */
    const char *plan_name;   /* before the names of its implementations in plans: "onednn"; NULL:
                                they stand as they are */
    bool is_own;             /* the runtime computes it, and nothing has to be set up */
    const char *without;     /* the option by which a user does without its calls; NULL: none */
    uint64_t state_bytes;    /* in the arena, for what it keeps there; 0: nothing */
    uint64_t own_code_bytes; /* of the runtime's code for its calls, with the pages around it that
                                the kernel maps; 0: it is counted (code_bytes), or not known */
    bool skips_padding;      /* nothing is multiplied where a window lies in the padding */
    bool adds_from_afar;     /* a residual may lie elsewhere than the result */
    bool accumulates;        /* a residual may be the sum over the runs of a step */
    uint64_t max_sums_bytes; /* of sums of a factor along k that a product may form too, in bytes
                                that its scratch gives up for them; 0: it forms none */
    bool has_slopes;         /* a product may be multiplied by the slopes of an activation, or
                                may keep what a GELU is of beside its result */
    int64_t max_dim;         /* elements along an axis; 0: any */
    bool runs_always;        /* a step that a run may pass over cannot be a call */
    bool chosen_at_start; /* a program's start may find nothing that runs a call: a kernel of ours
                             stands beside each */
    /* How its calls are emitted: the name of the function that runs one, without _run behind it,
     * and of those that set it up on the host, without _init, _done and so on (struct ul_library of
     * the runtime); and of a device's library, that of its table (runtime/cuda/ul_cuda_library.h).
     */
    const char *symbol, *table;
    const char *packer; /* the function that packs weights as its calls want them; NULL: that of
                           most (ul_packer_take) */
    const char *links;  /* what a program links for it: " -ldnnl"; NULL: nothing */
    const struct ul_library_file *files;
    /* What is there once it is open. */
    const char *isa;   /* of the machine that it was asked for; NULL: any */
    const char *march; /* what a C compiler takes after -march= for it; NULL: any */
    void *context;
    /* Fills in what is there once it is open; NULL: nothing is. */
    enum ul_status (*open)(struct ul_arena *arena, const struct ul_program_options *options,
                           struct ul_target_library *library, struct ul_diag *diag);
    /* Begins to answer for another compile of the same target, as if it were opened for that, but
     * what it found out before it need not find out again. The compile before asks nothing more.
     * False: the options need it to be opened again. NULL: they always do. */
    bool (*reopen)(void *context, const struct ul_program_options *options);
    void (*close)(void *context); /* NULL: nothing is to be done */
    /* Whether it takes the call, which it then completes: implementation, layout of the weights
     * (packed where `pack`), scratch. False: it has nothing for it that a plan should hold. NULL:
     * it takes calls of others alone (choose). */
    bool (*answer)(void *context, struct ul_group_call *call, bool pack);
    /* Completes the call so that it has the bits of the whole; false: that cannot be shown. NULL:
     * it never can. */
    bool (*answer_piece)(void *context, const struct ul_piece *piece, struct ul_group_call *call);
    /* Takes calls that others have answered: in their place, or as another alternative of the step.
     * NULL: it takes none. */
    void (*choose)(const struct ul_target_library *library, struct ul_arena *arena,
                   const struct ul_graph *graph, const struct ul_program_options *options,
                   const struct ul_unsplit *unsplit, struct ul_calls *calls);
    /* Whether sums of integers that an answered call forms are exact, however large they grow.
     * NULL: of each call. */
    bool (*is_exact)(const struct ul_call *call);
    /* Whether the call, with a kernel behind it that moves so many bytes, takes less time than one
     * kernel of ours for both. NULL: always. */
    bool (*is_worth)(void *context, const struct ul_group_call *call, uint64_t pass_bytes);
    /* Turns a call into one with less scratch, and returns by which factor its time is assumed to
     * grow; 0: there is none. NULL: never. */
    double (*leaner)(void *context, struct ul_call *call);
    /* The most scratch that the call can use, where a plan has room for it. NULL: no more than it
     * has. */
    uint64_t (*most)(void *context, const struct ul_call *call);
    /* The scratch of a call in a program that trains, where our own kernel in its place has
     * `own_bytes`. It is the same under every budget. NULL: the call keeps the scratch that the
     * library answered with. */
    uint64_t (*trained)(void *context, const struct ul_call *call, uint64_t own_bytes);
    /* Adds what the call multiplies, and what comes with that. NULL: what its shape says. */
    void (*count)(const struct ul_call *call, struct ul_work *work);
    /* How the call is spread over a device, as far as shapes say: blocks of threads, or a product.
     * NULL: it fills any. */
    void (*spread)(void *context, const struct ul_call *call, struct ul_work *work);
    /* Bytes of the host that it keeps for the call beside the buffer, as long as the program lives.
     * NULL: nothing, or nobody knows before the program starts. */
    uint64_t (*kept_bytes)(void *context, const struct ul_call *call);
    /* Where it keeps anything: bytes of its code and its tables that the process has as soon as one
     * of the calls is there, and of its heap and what the loader relocates. */
    uint64_t (*code_bytes)(void *context, const struct ul_library_use *use);
    uint64_t (*runtime_bytes)(void *context, const struct ul_library_use *use);
    /* Bytes of a device's memory that its handle and its code take; 0: nobody said. NULL: none. */
    uint64_t (*device_bytes)(void *context);
};

/* The libraries of a target, opened for what the options say of the machine. */
struct ul_libraries {
    const char *name; /* of all, for people: the target's */
    const struct ul_target *target;
    uint32_t count;
    struct ul_target_library *rows; /* in the order in which they are asked */
    const char *isa, *march;        /* of the first row that has them, or NULL */
    bool chosen_at_start;           /* all are */
    uint64_t max_sums_bytes;        /* the most of any */
    bool has_slopes;                /* some have */
};

/* libraries.c */

/* Opens the libraries of the options' target; NULL where it has none. */
enum ul_status ul_libraries_open(struct ul_arena *arena, const struct ul_program_options *options,
                                 const struct ul_libraries **libraries,
                                 struct ul_diag *diag) UL_MUST_CHECK;
/* False: they are to be opened again. */
bool ul_libraries_reopen(const struct ul_libraries *libraries,
                         const struct ul_program_options *options);
void ul_libraries_close(const struct ul_libraries *libraries);

/* library_nbits.c, winograd.c: parts of the runtime. A program with calls of them alone links
 * nothing. */
extern const struct ul_target_library ul_nbits_library;
extern const struct ul_target_library ul_winograd_library;

/* calls.c */

/* The group is a call, as far as the libraries go: for passes, see `is_call` in passes.h.
 * `libraries` is a const struct ul_libraries. */
bool ul_library_supports(const void *libraries, const struct ul_graph *graph,
                         const ul_node_id *nodes, uint32_t count, const bool *escapes,
                         uint64_t *scratch_bytes);
/* Likewise, see `is_worth` there; of a group that is no call: false. */
bool ul_library_is_worth(const void *libraries, const struct ul_graph *graph,
                         const ul_node_id *nodes, uint32_t count, const bool *escapes,
                         uint64_t pass_bytes);

#endif
