/* SPDX-License-Identifier: Apache-2.0 */
/* From a fused graph to a program: kernels, steps, the planner's problem, and the emitted C.
 *
 * Invariants: a step is one call of one kernel; kernels with equal text are one function; the
 * problem handed to the planner and the text emitted from its plan come from the same steps.
 * Ownership: everything lives in the arena passed in; names are borrowed from the graph. Units:
 * bytes and floating-point operations are counted in uint64_t. Failure: UL_UNSUPPORTED, with the
 * node's name, for what a target cannot do; UL_IO for files. */
#ifndef UL_CODEGEN_PROGRAM_PROGRAM_H
#define UL_CODEGEN_PROGRAM_PROGRAM_H

#include "codegen/kernel/profile.h"
#include "ir/lower_group.h"
#include "planner/model/problem.h"

/* program.c */

struct ul_call;          /* runtime/lib/ul_call.h */
struct ul_formula;       /* formula.h */
struct ul_program_sized; /* sized.h */
struct ul_plan;
struct ul_plan_position;
struct ul_plan_streaming; /* planner/solve/solve.h */
struct ul_pack;
struct ul_target;
struct ul_target_library; /* library.h */
struct ul_libraries;
struct ul_training;

/* A target's facts of a kernel in addition to its text; a target without launches sets only
 * scratch. */
struct ul_kernel_printed {
    uint64_t scratch_bytes;
    uint64_t launch_count;
    uint64_t block_count;     /* of the widest launch; 0: not known */
    struct ul_work_tile tile; /* the smallest of its contractions */
    uint64_t scalar_count; /* products with an operand of 16 bits, in tiles without tensor cores */
    bool is_identity;      /* every element is stored as it is loaded, at the same index */
    bool joins;            /* each launch of it may have blocks of other kernels (joined.c), */
    uint32_t min_threads, max_threads; /* with that many threads in blocks */
    bool has_teams;                    /* some items belong to a warp or a block */
    uint32_t followed_count;           /* phases that are in the launch of the phase before them */
    uint32_t counter_words;            /* in the run's state, for counting blocks in its launches */
    bool meets; /* its blocks wait for each other: no two such kernels at a time */
};

/* One function of the program. */
struct ul_program_kernel {
    const char *name; /* k0, k1 ... */
    const char *text; /* its C definition, without storage class, name and opening parenthesis */
    const struct ul_kernel *ir; /* of the first among equal ones */
    struct ul_kernel_printed printed;
    struct ul_work work;
    uint64_t *accesses;  /* by buffer of its kernel: elements loaded and stored */
    uint32_t sum_orders; /* enum ul_contract_order */
    uint32_t code_place; /* of its code, where a plan may do without it; or UL_PLAN_NONE */
};

enum ul_place_kind {
    UL_PLACE_VALUE,     /* a base value of the graph */
    UL_PLACE_DONATED,   /* a base value that an output of the model overwrites in place */
    UL_PLACE_TEMPORARY, /* a copy of a value, between two steps */
    UL_PLACE_STATE,     /* state of the program or of a library, kept through all runs */
    UL_PLACE_OVERHEAD   /* what is kept elsewhere for an implementation of a step */
};

/* Bytes that steps read and write. Place i is value i of the problem, which has their class, space
 * and size. A weight that implementations want in different layouts has a place for each layout; a
 * plan has those that it reads. */
struct ul_program_place {
    enum ul_place_kind kind;
    ul_value_id value;  /* the first value in it, or the type of value for it; UL_NONE: a state */
    ul_value_id output; /* the output that overwrites it; UL_NONE: none */
    const struct ul_pack *pack; /* how a weight is stored; NULL: plain */
    uint32_t next_form;         /* the same weight in another layout, or UL_PLAN_NONE */
};

/* An address: bytes of a place, moved by `stride_bytes` for every round of the loop region `loop`
 * (UL_PLAN_NONE: no loop). */
struct ul_program_address {
    uint32_t place; /* UL_PLAN_NONE: there is none */
    uint32_t loop;
    int64_t offset_bytes;
    int64_t stride_bytes;
    const struct ul_formula *offset, *stride; /* in a program for a range of sizes, instead */
};

enum ul_step_kind {
    UL_STEP_KERNEL,
    UL_STEP_CALL,    /* of a library of the target: `kernel` is the number of the call */
    UL_STEP_COPY,    /* copy_bytes from args[0] to args[1] */
    UL_STEP_COUNTER, /* writes the round of the loop around it, an i64, to args[0] */
    UL_STEP_TEST /* reads args[0], a bool: leaves the loop around it when it is false; in a branch
                    it only keeps the branch's condition alive */
};

struct ul_program_step {
    enum ul_step_kind kind;
    const char *name; /* unique */
    const char *op;   /* "Conv+Add+Relu" */
    ul_node_id node;  /* the last node of its group, or the owner of the copy */
    uint32_t region;  /* of the problem */
    uint32_t kernel;
    uint32_t kept_place;        /* the place of what is kept elsewhere for it, or UL_PLAN_NONE */
    const char *implementation; /* for a call; NULL: our own lowering */
    bool has_residual; /* for a call: the last argument is copied to the result's place first,
                          unless the plan has given the result its bytes; on a device the library
                          reads it in place */
    const struct ul_program_step *own; /* for a call that a device's library may not run: the step
                                          by a kernel of ours, in the same places; else NULL */
    /* The call of an earlier step may have formed the results of this step's kernel, which then has
     * nothing to do. */
    bool is_spared;
    uint32_t spared_by;
    uint32_t alternative_count; /* the step by other implementations, with other scratch and
                             weights: the plan's alternatives after this one */
    uint32_t spare_count;       /* the last ones of these, which only a finished plan may take */
    const struct ul_program_step *alternatives;
    uint64_t scratch_bytes;
    double slowdown; /* of the time of `work`, for less scratch; 0: none */
    uint32_t arg_count;
    struct ul_program_address *args;
    bool *written;   /* by argument */
    uint64_t *moved; /* by argument: bytes that a round moves; of `traffic` */
    /* by argument: the value there, all of it or the round's part; UL_NONE: none */
    ul_value_id *views;
    uint64_t copy_bytes;
    const struct ul_formula *copy; /* in a program for a range of sizes, instead */
    uint32_t weigh_count;          /* of its nodes, those of UL_OP_WEIGHS */
    struct ul_traffic traffic;
    struct ul_work work; /* of one call; a loop calls `rounds` times */
    uint64_t rounds;
    uint32_t in_place_count;
    const struct ul_in_place *in_place; /* base values */
};

/* A region of the problem as text: a loop of `rounds`, a branch taken when `condition` is true (or
 * false, where negated), or just a sequence. */
struct ul_program_region {
    enum ul_plan_region_kind kind;
    uint32_t parent;
    int64_t rounds;
    const struct ul_formula *round_count; /* in a program for a range of sizes, instead */
    struct ul_program_address condition;
    bool negated;
    uint32_t flag; /* number of a branch, or of a loop with a test; else UL_PLAN_NONE */
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
 * first run; and a run, which is all steps of the root. A program that trains has one root, with
 * slices: the loss without learning; and with micro-batches, a run without the update, and the
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
 * may do without, are in the process outside the arena. Where values may be offloaded there is a
 * last space, which is packed and reserved like the arena. */
enum {
    UL_PROGRAM_ARENA,
    UL_PROGRAM_ROM,
    UL_PROGRAM_CALLER,
    UL_PROGRAM_KEPT,
    UL_PROGRAM_CODE,
    UL_PROGRAM_OFFLOAD
};

/* Kernels read doubles and 64-bit integers in place: a plan with less alignment cannot run. */
enum { UL_PROGRAM_MIN_ALIGN_BYTES = 8 };

/* The workspace of a library call on a device, by default: what cuBLASLt recommends for devices
 * before compute capability 9.0, and for those from it on. A plan never grows for more than the
 * first: beyond it a call gets free bytes. */
#define UL_PROGRAM_WORKSPACE_BYTES ((uint64_t)4 << 20)
#define UL_PROGRAM_NEW_WORKSPACE_BYTES ((uint64_t)32 << 20)
#define UL_PROGRAM_NEW_CAPABILITY 90

/* How a library's convolutions of 3x3 run (codegen/program/winograd.c). */
enum ul_conv_choice {
    UL_CONV_BEST,    /* by Winograd's method where that pays off */
    UL_CONV_DIRECT,  /* never */
    UL_CONV_WINOGRAD /* wherever it is possible */
};

/* Where values may be while the arena has no room for them. */
struct ul_program_offload {
    bool exists;
    const char *file;        /* NULL: memory of the host */
    uint64_t capacity_bytes; /* 0: no bound */
};

struct ul_program_options {
    bool keep_inputs;     /* inputs keep their bytes through the run */
    bool weights_rom;     /* weights are read-only data of the program, outside the arena */
    bool io_caller;       /* inputs and outputs stay in the caller's buffers */
    bool offsets_by_size; /* a run's offsets follow from its sizes */
    const struct ul_target *target;
    uint32_t thread_count; /* of the program, at least 1; 1 where the target has none */
    const char *isa;       /* of the machine that it will run on: "avx512_core"; NULL: this one */
    const struct ul_libraries *libraries; /* opened for that machine; NULL: there are none */
    enum ul_conv_choice conv;
    uint64_t workspace_bytes;      /* of a call of a device's library, at most */
    uint64_t workspace_free_bytes; /* the same, for free bytes of a finished plan */
    bool has_cudnn;                /* calls of cuDNN may be planned */
    bool needs_cudnn; /* a program that does not find it at its start fails; else kernels of ours
                         replace its calls */
    bool no_float;    /* nothing is computed in floats */
    bool tf32;        /* products of f32 may round their factors to 11 bits */
    const struct ul_profile *profile; /* of the device whose time counts */
    uint64_t align_bytes;             /* of every range of the plan; 0: the default */
    /* The program of the same graph before its chains were split: UL_UNSUPPORTED where a piece
     * would have other bits. NULL: nothing was split. */
    const struct ul_program *unsplit;
    /* The program with which times are compared: the one without splits and with the default
     * layout, where this one is another. */
    const struct ul_program *baseline;
    const struct ul_training *training; /* NULL: it does not train */
    struct ul_program_offload offload;
    const struct ul_plan_bank *banks; /* the memories of the arena */
    uint32_t bank_count;              /* 0: it is one */
};

/* A call of a library. */
struct ul_program_call {
    const struct ul_call *call;
    const struct ul_target_library *library;
    uint32_t kept_place; /* of what the library keeps for it, or UL_PLAN_NONE */
};

/* What a program has of a library. */
struct ul_program_library {
    uint32_t place;       /* of what it takes beside the arena where there is any call, or NONE */
    uint32_t state_place; /* of what it keeps in the arena then, or NONE */
};

struct ul_program {
    const struct ul_graph *graph;
    struct ul_program_options options;
    uint32_t kernel_count, kernel_capacity;
    struct ul_program_kernel *kernels;
    uint32_t step_count, step_capacity;
    struct ul_program_step *steps;
    uint32_t region_count, region_capacity;
    struct ul_program_region *regions; /* by region of the problem */
    struct ul_problem *problem;        /* step i of the problem is steps[i] */
    uint32_t place_count, place_capacity;
    struct ul_program_place *places; /* place i is value i of the problem */
    uint32_t *value_places;          /* base value of the graph -> its first place, or NONE */
    uint32_t run_state;              /* the place of the state of a run on a device, or NONE */
    uint32_t offload_state; /* the place of the host's pointer to offloaded values, or NONE */
    uint32_t bytes_state;   /* the place where the bytes of the caller's arena are noted, or NONE */
    uint32_t bank_state;    /* the place where the banks after the first are noted, or NONE */
    uint32_t *root_regions; /* by root of the graph: its region */
    uint32_t entry_count;
    struct ul_program_entry *entries;
    uint32_t call_count, call_capacity;
    struct ul_program_call *calls;        /* distinct ones */
    struct ul_program_library *libraries; /* as many as options.libraries has rows */
    uint32_t uncalled_count;              /* products of 16 bits that no library computes */
    uint32_t flag_count;                  /* regions that may be skipped or left */
    const struct ul_program_sized *sized; /* NULL: all sizes are fixed */
};

/* Bytes of a pointer, on the machine with the widest ones. */
enum { UL_PROGRAM_POINTER_BYTES = 8 };
/* These bytes precede the pointers to banks; a run recognizes by them that the pointers are set. */
enum { UL_PROGRAM_BANK_MARK_BYTES = 8 };

/* Bytes of the state of a run on a device, without a byte for each flag
 * (runtime/cuda/ul_cuda.h). */
enum { UL_PROGRAM_STATE_BYTES = 40 };
/* After these, at a multiple of 4, where a kernel counts blocks: words for all kernels of one
 * launch. With them the state of most programs is as long as the alignment of places. */
enum { UL_PROGRAM_COUNTER_WORDS = 6 };
/* places.c: bytes of the words, 0 where no kernel counts. */
uint32_t ul_program_counter_bytes(const struct ul_program *program);

/* Lowers every group and builds the planner's problem. */
enum ul_status ul_program_build(struct ul_arena *arena, const struct ul_graph *graph,
                                const struct ul_program_options *options,
                                struct ul_program **program, struct ul_diag *diag) UL_MUST_CHECK;

/* steps.c: the step that a plan runs at that position. */
const struct ul_program_step *ul_program_step_at(const struct ul_program *program,
                                                 const struct ul_plan_position *position);
/* The region that a position is in. */
uint32_t ul_program_region_at(const struct ul_program *program,
                              const struct ul_plan_position *position);
/* Marks the kernels and calls that a plan runs, in arrays as long as the program's. */
void ul_program_mark_run(const struct ul_program *program, const struct ul_plan *plan,
                         bool *kernels, bool *calls);

/* places.c: what the program has of a library. */
struct ul_program_library *ul_program_library(const struct ul_program *program,
                                              const struct ul_target_library *library);
/* Whether a step may be a call of a library that the option does without ("--conv direct"), in the
 * program or in the one that it is compared with. */
bool ul_program_heeds(const struct ul_program *program, const char *option);

/* entries.c: marks the plan's positions that an entry runs, in an array as long as the plan; all
 * others may be left out. */
void ul_program_mark_entry(const struct ul_program *program, const struct ul_plan *plan,
                           uint32_t entry, struct ul_arena *arena, bool *runs);

/* launches.c: what one run of a plan launches on a device, as it is emitted, if its libraries take
 * all their calls; and launches that should not be there. */
struct ul_program_launches {
    uint64_t launch_count;   /* of kernels, copies and library calls */
    uint64_t call_count;     /* the library calls among these */
    uint64_t scalar_count;   /* products of 16 bits in tiles without tensor cores */
    uint64_t shared_ns;      /* overheads in the cost of steps that share the launch of another */
    uint64_t narrow_count;   /* kernels that take long because they have too few blocks */
    uint64_t idle_count;     /* kernels with much work whose blocks leave multiprocessors idle */
    uint64_t identity_count; /* steps that move bytes unchanged */
    uint64_t weigh_count;    /* UL_OP_WEIGHS alone: softmax outside attention */
    uint64_t beside_count;   /* steps on a second stream */
    uint64_t wait_count;     /* waits for these */
};
void ul_program_count_launches(const struct ul_program *program, const struct ul_plan *plan,
                               struct ul_program_launches *launches);

/* joined.c: for each position of the plan, how many steps from it on are one launch on a device: 1,
 * up to UL_PROGRAM_JOINED, or 0 for one that is launched with an earlier one. `runs`: the positions
 * that run at all; NULL: each. The caller owns the array. */
enum { UL_PROGRAM_JOINED = 16 };
/* The kind of the step at a position. Steps of one kind can share a launch, since one size of
 * blocks suits all of them. 0: no other step can share its launch; without `teams`, this includes
 * kernels that have teams. */
uint32_t ul_program_join_kind(const struct ul_program *program, const struct ul_plan_position *at,
                              bool teams);
void ul_program_find_joined(const struct ul_program *program, const struct ul_plan *plan,
                            const bool *runs, uint32_t *counts);

/* streams.c */
/* The plan as the target runs it. Steps that may not run at the same time as others run where they
 * begin, on stream 0, and so do those that are on their stream at the time. */
struct ul_plan ul_program_settle(const struct ul_program *program, const struct ul_plan *plan,
                                 struct ul_arena *arena);
/* Whether launches of the position count blocks in the state of the run. All use the same words, so
 * no two such positions may run at the same time. */
bool ul_program_counts_blocks(const struct ul_program *program, const struct ul_plan_position *at);
/* What a second stream would gain at each position of a plan; the caller sets least_percent. */
struct ul_plan_streaming ul_program_streaming(const struct ul_program *program,
                                              const struct ul_plan *plan, struct ul_arena *arena);

/* print_kernels.c: each kernel's text form, its schedule for the target, and its name in emitted
 * text. */
void ul_program_print_kernels(struct ul_text *text, const struct ul_program *program);

/* stack.c: the most bytes of stack that a call of the program takes by a plan, in the calling
 * thread; and the part that nothing bounds, where the profile has figures for the target's library
 * and for OpenMP. */
uint64_t ul_program_stack_bytes(const struct ul_program *program, const struct ul_plan *plan,
                                uint64_t *library_bytes);
/* The same for a plan without steps; and tells the problem how much more each alternative of a step
 * takes, in all threads. Nothing where it does not count. */
uint64_t ul_program_min_stack_bytes(const struct ul_program *program);
void ul_program_count_stacks(const struct ul_program *program, bool counts);

/* The most of which addresses of library calls are multiples; 1: not known. */
uint32_t ul_program_call_align(const struct ul_program *program);

#endif
