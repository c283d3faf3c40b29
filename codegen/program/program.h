/* SPDX-License-Identifier: Apache-2.0 */
/* From a fused graph to a program: kernels, steps, the planner's problem, and the emitted C.
 *
 * Invariants: a step is one call of one kernel; kernels with equal text are one function; the
 * problem handed to the planner and the text emitted from its plan come from the same steps.
 * Ownership: everything lives in the arena passed in; names are borrowed from the graph.
 * Units: bytes and floating-point operations are counted in uint64_t.
 * Failure: what a target cannot do is UL_UNSUPPORTED with the node's name; files are UL_IO.
 */
#ifndef UL_CODEGEN_PROGRAM_PROGRAM_H
#define UL_CODEGEN_PROGRAM_PROGRAM_H

#include "codegen/kernel/profile.h"
#include "ir/lower_group.h"
#include "planner/model/problem.h"

/* program.c */

struct ul_call; /* runtime/lib/ul_call.h */
struct ul_plan;
struct ul_plan_position;
struct ul_plan_streaming; /* planner/solve/solve.h */
struct ul_pack;
struct ul_target;
struct ul_target_library; /* library.h */
struct ul_training;

/* What a target says of a kernel beside its text; of one without launches scratch alone. */
struct ul_kernel_printed {
    uint64_t scratch_bytes;
    uint64_t launch_count;
    uint64_t block_count;     /* of the widest launch; 0: nobody said */
    struct ul_work_tile tile; /* the smallest of its contractions */
    uint64_t scalar_count; /* products with an operand of 16 bits, in tiles without tensor cores */
    bool is_identity;      /* every element is stored as it is loaded, at the same index */
    bool joins;            /* each launch of it may have blocks of other kernels (joined.c), */
    uint32_t min_threads, max_threads; /* whose threads then are so many */
    bool has_teams;                    /* some items are a warp's or a block's */
    uint32_t followed_count;           /* phases that are in the launch of the one before them */
    uint32_t counter_words;            /* of the run's state, in which its launches count blocks */
    bool meets; /* blocks of it wait for each other: no two such kernels at a time */
};

/* One function of the program. */
struct ul_program_kernel {
    const char *name; /* k0, k1 ... */
    const char *text; /* its C definition, without storage class, name and opening parenthesis */
    const struct ul_kernel *ir; /* of the first of those that are one */
    struct ul_kernel_printed printed;
    struct ul_work work;
    uint64_t *accesses;  /* per buffer of its kernel: elements loaded and stored */
    uint32_t sum_orders; /* enum ul_contract_order */
    uint32_t code_place; /* of its code, where a plan may do without it; or UL_PLAN_NONE */
};

enum ul_place_kind {
    UL_PLACE_VALUE,     /* a base value of the graph */
    UL_PLACE_DONATED,   /* one that an output of the model overwrites where it lies */
    UL_PLACE_TEMPORARY, /* a copy of a value, between two steps */
    UL_PLACE_STATE,     /* books of the program or of a library, kept through all runs */
    UL_PLACE_BESIDE     /* what is kept elsewhere for an implementation of a step */
};

/* Bytes that steps read and write. Place i is value i of the problem, which says their class, their
 * space and how many they are. A weight that implementations want in different layouts has a place
 * for each, of which a plan has those that it reads. */
struct ul_program_place {
    enum ul_place_kind kind;
    ul_value_id value;  /* that lies there first, or the like of which does; UL_NONE: of a state */
    ul_value_id output; /* that overwrites it; UL_NONE: none does */
    const struct ul_pack *pack; /* how a weight is stored; NULL: plain */
    uint32_t next_form;         /* the same weight in another layout, or UL_PLAN_NONE */
};

/* An address: bytes of a place, `stride_bytes` further on for every round of the loop region `loop`
 * (UL_PLAN_NONE: of none). */
struct ul_program_address {
    uint32_t place; /* UL_PLAN_NONE: there is none */
    uint32_t loop;
    int64_t offset_bytes;
    int64_t stride_bytes;
};

enum ul_step_kind {
    UL_STEP_KERNEL,
    UL_STEP_CALL,    /* of the target's library: `kernel` is the number of the call */
    UL_STEP_COPY,    /* copy_bytes from args[0] to args[1] */
    UL_STEP_COUNTER, /* the round of the loop that it stands in, an i64, to args[0] */
    UL_STEP_TEST     /* reads args[0], a bool: leaves the loop that it stands in when it is false;
                        in a branch it only keeps the branch's condition alive */
};

struct ul_program_step {
    enum ul_step_kind kind;
    const char *name; /* unique */
    const char *op;   /* "Conv+Add+Relu" */
    ul_node_id node;  /* the last node of its group, or the owner of the copy */
    uint32_t region;  /* of the problem */
    uint32_t kernel;
    uint32_t beside;            /* the place of what is kept elsewhere for it, or UL_PLAN_NONE */
    const char *implementation; /* of a call; NULL: our own lowering */
    bool has_residual; /* of a call: the last argument is put into the result's place before, where
                          the plan has not given the result its bytes; of a device the library reads
                          it where it lies */
    const struct ul_program_step *own; /* of a call that a device's library may not run: the step by
                                          a kernel of ours, in the same places; else NULL */
    /* The step of a kernel whose results the call of an earlier step may have formed, so that the
     * kernel has nothing to do. */
    bool is_spared;
    uint32_t spared_by;
    uint32_t other_count; /* the same by other implementations, with other scratch and weights:
                             what the plan has as alternatives behind this one */
    uint32_t spare_count; /* of these the last ones, which a finished plan alone may take */
    const struct ul_program_step *others;
    uint64_t scratch_bytes;
    double slowdown; /* of what `work` says, for less scratch; 0: none */
    uint32_t arg_count;
    struct ul_program_address *args;
    bool *written;      /* per argument */
    uint64_t *moved;    /* per argument: bytes that a round moves; of `traffic` */
    ul_value_id *views; /* per argument: the value that lies there, all of it or the round's part;
                           UL_NONE: nothing does */
    uint64_t copy_bytes;
    uint32_t weigh_count; /* of its nodes, those of UL_OP_WEIGHS */
    struct ul_traffic traffic;
    struct ul_work work; /* of one call; a loop calls `rounds` times */
    uint64_t rounds;
    uint32_t in_place_count;
    const struct ul_in_place *in_place; /* base values */
};

/* What a region of the problem is as text: a loop of `rounds`, a branch taken when `condition`
 * is true (or false, where negated), or just a sequence. */
struct ul_program_region {
    enum ul_plan_region_kind kind;
    uint32_t parent;
    int64_t rounds;
    struct ul_program_address condition;
    bool negated;
    uint32_t flag; /* of a branch, or of a loop with a test: its number; else UL_PLAN_NONE */
};

/* What may be called of a program: all steps of a root, or a slice of it, which makes some of its
 * outputs. Inputs and outputs are given by their numbers among those of the root. */
struct ul_program_entry {
    const char *name;  /* an identifier of C */
    const char *steps; /* the name of the first entry that has the same steps */
    ul_block_id root;
    uint32_t input_count, output_count;
    const uint32_t *inputs, *outputs;
};
/* As runtime/lib/ul_model.h numbers them, for each root in turn: what is given once, before the
 * first run; a run, which is all steps of the root. A program that trains has one root, of which it
 * has slices: the loss without learning; with micro-batches, a run without the update, and the
 * first of them in a step. */
enum {
    UL_PROGRAM_SET_UP,
    UL_PROGRAM_RUN,
    UL_PROGRAM_ROOT_ENTRIES,
    UL_PROGRAM_EVALUATE = UL_PROGRAM_ROOT_ENTRIES,
    UL_PROGRAM_ACCUMULATE,
    UL_PROGRAM_BEGIN,
    UL_PROGRAM_SLICES_END
};

/* The spaces of the problem. What a library keeps for calls, and the code of kernels that a plan
 * may do without, are beside the arena in the process. Where values may be offloaded there is a
 * last space, packed and reserved as the arena is. */
enum {
    UL_PROGRAM_ARENA,
    UL_PROGRAM_ROM,
    UL_PROGRAM_CALLER,
    UL_PROGRAM_KEPT,
    UL_PROGRAM_CODE,
    UL_PROGRAM_OFFLOAD
};

/* Kernels read doubles and 64-bit integers in place: no plan of less alignment can run. */
enum { UL_PROGRAM_MIN_ALIGN_BYTES = 8 };

/* Of a library call on a device, where nobody says how much: what cuBLASLt recommends for devices
 * before compute capability 9.0, and for those from it on. A plan is never larger for more than the
 * first: beyond it a call gets what lies free while it runs. */
#define UL_PROGRAM_WORKSPACE_BYTES ((uint64_t)4 << 20)
#define UL_PROGRAM_NEW_WORKSPACE_BYTES ((uint64_t)32 << 20)
#define UL_PROGRAM_NEW_CAPABILITY 90

/* How convolutions of 3x3 run that a library computes (codegen/program/winograd.c). */
enum ul_conv_choice {
    UL_CONV_BEST,    /* by Winograd's method where that pays */
    UL_CONV_DIRECT,  /* never */
    UL_CONV_WINOGRAD /* wherever it can be done */
};

/* Where values may be while the arena has no room for them. */
struct ul_program_offload {
    bool exists;
    const char *file;        /* NULL: memory of the host */
    uint64_t capacity_bytes; /* 0: nobody bounds it */
};

struct ul_program_options {
    bool keep_inputs; /* inputs keep their bytes through the run */
    bool weights_rom; /* weights are read-only data of the program, outside the arena */
    bool io_caller;   /* inputs and outputs stay in the caller's buffers */
    const struct ul_target *target;
    uint32_t thread_count; /* of the program, at least 1; 1 in a program whose target has none */
    const char *isa;       /* of the machine that it will run on: "avx512_core"; NULL: this one */
    const struct ul_target_library *library; /* opened for that machine; NULL: there is none */
    enum ul_conv_choice conv;
    uint64_t workspace_bytes;      /* of a call of a device's library, at most */
    uint64_t workspace_free_bytes; /* the same, of what lies free in a finished plan */
    bool has_cudnn;                /* calls of cuDNN are there to be planned */
    bool needs_cudnn;              /* a program that finds none at its start fails; else kernels of
                                      ours stand in */
    bool no_float;                 /* nothing is computed in floats */
    bool tf32;                     /* products of f32 may round their factors to 11 bits */
    const struct ul_profile *profile; /* of the device whose time counts */
    uint64_t align_bytes;             /* of every range of the plan; 0: the default */
    /* The program of the same graph before chains of it were split: UL_UNSUPPORTED where a piece
     * would not give its bits. NULL: nothing was split. */
    const struct ul_program *whole;
    /* What more time refers to: the program without splits and of the default layout, where this
     * one is another. */
    const struct ul_program *base;
    const struct ul_training *training; /* NULL: it does not train */
    struct ul_program_offload offload;
    const struct ul_plan_bank *banks; /* what the arena is made of */
    uint32_t bank_count;              /* 0: it is one */
};

struct ul_program {
    const struct ul_graph *graph;
    struct ul_program_options options;
    uint32_t kernel_count, kernel_capacity;
    struct ul_program_kernel *kernels;
    uint32_t step_count, step_capacity;
    struct ul_program_step *steps;
    uint32_t region_count, region_capacity;
    struct ul_program_region *regions; /* as the problem's */
    struct ul_problem *problem;        /* step i of the problem is steps[i] */
    uint32_t place_count, place_capacity;
    struct ul_program_place *places; /* place i is value i of the problem */
    uint32_t *value_places;          /* base value of the graph -> its first place, or NONE */
    uint32_t library_state;          /* the place of what a library on the host keeps, or NONE */
    uint32_t run_state;              /* the place of the state of a run on a device, or NONE */
    uint32_t offload_state;          /* of the host's pointer to what values are offloaded to, or
                                        NONE */
    uint32_t bank_state;             /* of where the banks behind the first one lie, or NONE */
    uint32_t *root_regions;          /* per root of the graph: its region */
    uint32_t entry_count;
    struct ul_program_entry *entries;
    uint32_t call_count, call_capacity;
    struct ul_call *calls;   /* of the library: distinct ones */
    uint32_t *call_places;   /* per call: of what the library keeps for it, or UL_PLAN_NONE */
    uint32_t library_place;  /* of what it keeps for itself where there is any call, or NONE */
    uint32_t uncalled_count; /* products of 16 bits that the library does not compute */
    uint32_t flag_count;     /* regions that may be skipped or left */
};

/* Of a pointer, on the machine with the widest ones. */
enum { UL_PROGRAM_POINTER_BYTES = 8 };
/* In front of the pointers to banks: by these a run tells that they are there. */
enum { UL_PROGRAM_BANK_MARK_BYTES = 8 };

/* The state of a run on a device: this, and a byte for each flag (runtime/cuda/ul_cuda.h). */
enum { UL_PROGRAM_STATE_BYTES = 40 };
/* Behind these, at a multiple of 4, where a kernel counts blocks: words for all kernels of one
 * launch. With them the state of most programs is as long as the alignment of places. */
enum { UL_PROGRAM_COUNTER_WORDS = 6 };
/* places.c: bytes of the words, 0 where no kernel counts. */
uint32_t ul_program_counter_bytes(const struct ul_program *program);

/* Lowers every group and builds the planner's problem. */
enum ul_status ul_program_build(struct ul_arena *arena, const struct ul_graph *graph,
                                const struct ul_program_options *options,
                                struct ul_program **program, struct ul_diag *diag) UL_MUST_CHECK;

/* steps.c: the step as a plan runs it at that position. */
const struct ul_program_step *ul_program_step_at(const struct ul_program *program,
                                                 const struct ul_plan_position *position);
/* The region that a position is in. */
uint32_t ul_program_region_at(const struct ul_program *program,
                              const struct ul_plan_position *position);
/* Marks the kernels and calls that a plan runs, each in an array as long as the program has. */
void ul_program_mark_run(const struct ul_program *program, const struct ul_plan *plan,
                         bool *kernels, bool *calls);

/* winograd.c: whether a step may be computed by Winograd's method, in the program or in the one
 * that it is compared with: without one the direct method changes nothing. */
bool ul_program_has_winograd(const struct ul_program *program);

/* entries.c: which of the plan's positions an entry runs, in an array as long as the plan has; all
 * others may be left out. */
void ul_program_mark_entry(const struct ul_program *program, const struct ul_plan *plan,
                           uint32_t entry, struct ul_arena *arena, bool *runs);

/* launches.c: what one run of a plan launches on a device, as it is emitted, where its libraries
 * take all of their calls; and what of it should not be. */
struct ul_program_launches {
    uint64_t launch_count;   /* of kernels, copies and library calls */
    uint64_t call_count;     /* of these, library calls */
    uint64_t scalar_count;   /* products of 16 bits in tiles without tensor cores */
    uint64_t shared_ns;      /* overheads in the cost of steps that share the launch of another */
    uint64_t narrow_count;   /* kernels that take long for too few blocks */
    uint64_t idle_count;     /* kernels of much work whose blocks leave multiprocessors idle */
    uint64_t identity_count; /* steps that move bytes unchanged */
    uint64_t weigh_count;    /* UL_OP_WEIGHS by themselves: softmax outside of attention */
    uint64_t beside_count;   /* steps on a second stream */
    uint64_t wait_count;     /* waits for these */
};
void ul_program_count_launches(const struct ul_program *program, const struct ul_plan *plan,
                               struct ul_program_launches *launches);

/* joined.c: per position of the plan, how many steps from it on are one launch on a device: 1, up
 * to UL_PROGRAM_JOINED, or 0 for one that is launched with an earlier one. `runs`: the positions
 * that run at all; NULL: each. The array is the caller's. */
enum { UL_PROGRAM_JOINED = 16 };
/* Gives the kind of the step at a position. Steps of one kind can share a launch, since a size of
 * blocks serves all of them. 0: no other step shares its launch; without `teams`, kernels that have
 * teams are 0, too. */
uint32_t ul_program_join_kind(const struct ul_program *program, const struct ul_plan_position *at,
                              bool teams);
void ul_program_find_joined(const struct ul_program *program, const struct ul_plan *plan,
                            const bool *runs, uint32_t *counts);

/* streams.c */
/* Whether the step at a position may run beside others, on a stream of its own. */
bool ul_program_may_run_beside(const struct ul_program *program, const struct ul_plan_position *at);
/* Whether launches of the position count blocks in the state of the run, in the same words as all
 * others: no two such positions run beside each other. */
bool ul_program_counts_blocks(const struct ul_program *program, const struct ul_plan_position *at);
/* What a second stream would gain of each position of a plan; least_percent is the caller's. */
struct ul_plan_streaming ul_program_streaming(const struct ul_program *program,
                                              const struct ul_plan *plan, struct ul_arena *arena);

/* print_kernels.c: each kernel's text form, its schedule for the target, and its name in what is
 * emitted. */
void ul_program_print_kernels(struct ul_text *text, const struct ul_program *program);

/* stack.c: bytes of the stack that a call of the program takes at most by a plan, of the thread
 * that calls; and of those, what the profile has for the target's library and for OpenMP, which
 * nobody bounds. */
uint64_t ul_program_stack_bytes(const struct ul_program *program, const struct ul_plan *plan,
                                uint64_t *library_bytes);
/* The same of a plan without steps, and what each way of a step takes more, of all threads, which
 * the problem learns; nothing where it does not count. */
uint64_t ul_program_min_stack_bytes(const struct ul_program *program);
void ul_program_count_stacks(const struct ul_program *program, bool counts);

/* What addresses of library calls are multiples of, at most; 1: nobody said. */
uint32_t ul_program_call_align(const struct ul_program *program);

#endif
