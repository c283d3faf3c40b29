/* From a fused graph to a program: kernels, steps, the planner's problem, and the emitted C.
 *
 * Invariants: a step is one call of one kernel; kernels with equal text are one function; the
 * problem handed to the planner and the text emitted from its plan come from the same steps.
 * Ownership: everything lives in the arena passed in; names are borrowed from the graph.
 * Units: bytes and floating-point operations are counted in uint64_t.
 * Failure: what a target cannot do is UL_UNSUPPORTED with the node's name; files are UL_IO.
 */
#ifndef UL_CODEGEN_H
#define UL_CODEGEN_H

#include "ir/lower.h"
#include "planner/planner.h"

/* program.c */

/* One function of the program. */
struct ul_program_kernel {
    const char *name; /* k0, k1 ... */
    const char *text; /* its C definition, without storage class, name and opening parenthesis */
    uint64_t scratch_bytes;
    uint64_t flop_count;
    uint32_t sum_orders; /* enum ul_contract_order */
};

/* An address: a place in a base value, plus `stride_bytes` for every round of the loop region
 * `loop`, or UL_PLAN_NONE. */
struct ul_program_address {
    ul_value_id base;
    uint32_t loop;
    int64_t offset_bytes;
    int64_t stride_bytes;
};

enum ul_step_kind {
    UL_STEP_KERNEL,
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
    uint32_t arg_count;
    struct ul_program_address *args;
    bool *written;      /* per argument */
    ul_value_id *views; /* per argument: the value that lies there, or UL_NONE */
    uint64_t copy_bytes;
    uint64_t moved_bytes;
    uint64_t flop_count;
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
};

/* The spaces of the problem. Only the arena is packed and reserved. */
enum { UL_PROGRAM_ARENA, UL_PROGRAM_ROM, UL_PROGRAM_CALLER };

/* Kernels read doubles and 64-bit integers in place: no plan of less alignment can run. */
enum { UL_PROGRAM_LEAST_ALIGN_BYTES = 8 };

struct ul_program_options {
    bool keep_inputs; /* inputs keep their bytes through the run */
    bool weights_rom; /* weights are read-only data of the program, outside the arena */
    bool io_caller;   /* inputs and outputs stay in the caller's buffers */
    const struct ul_target *target;
    /* The program of the same graph before chains of it were split: UL_UNSUPPORTED where a piece
     * would not give its bits. NULL: nothing was split. */
    const struct ul_program *whole;
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
    uint32_t *plan_values;             /* graph value -> planner value, or UL_PLAN_NONE */
    ul_value_id *graph_values;         /* planner value -> graph value */
};

/* Lowers every group and builds the planner's problem. */
enum ul_status ul_program_build(struct ul_arena *arena, const struct ul_graph *graph,
                                const struct ul_program_options *options,
                                struct ul_program **program, struct ul_diag *diag) UL_MUST_CHECK;

/* select.c */

/* One way to run a step, as the planner sees it. */
struct ul_implementation {
    const char *name; /* "ullage": the compiler's own lowering */
    uint64_t cost;    /* nanoseconds */
    uint64_t scratch_bytes;
};
enum { UL_IMPLEMENTATIONS = 4 };

/* A target's table. `offer` fills up to UL_IMPLEMENTATIONS entries, the own lowering first, and
 * returns how many. */
struct ul_target {
    const char *name;
    const char *summary;
    uint32_t (*offer)(const struct ul_program_step *step, uint64_t own_scratch_bytes,
                      struct ul_implementation *offers);
};
/* NULL: there is no such target. */
const struct ul_target *ul_target_find(const char *name);

/* print_c.c */

/* The definition of a kernel as C, from its parameter list on; sets the scratch bytes. The
 * parameters are the kernel's input and output buffers in order (b<id>), then `scratch` where it
 * has any, then `run`. */
enum ul_status ul_kernel_print_c(struct ul_text *text, const struct ul_kernel *kernel,
                                 uint64_t *scratch_bytes, struct ul_diag *diag) UL_MUST_CHECK;

/* cost.c: floating-point operations of one call, exact for counted loops. */
uint64_t ul_kernel_count_flops(const struct ul_kernel *kernel);

/* emit_c.c */

struct ul_emit_options {
    const char *prefix;       /* of the library's names: "model" */
    const char *program_name; /* for messages and the Makefile */
    const char *model_sha256; /* hex */
    const char *plan_sha256;  /* hex */
    const char *runtime_dir;  /* where the runtime's files are */
    const char *cc;           /* for the Makefile */
    const char *cflags;
    const char *march;   /* "native", or NULL: none */
    bool weights_beside; /* in PROGRAM.weights, not appended to the program */
};

/* Writes model.c, model.h, weights.bin, Makefile and the runtime's files into `directory`. */
enum ul_status ul_emit_c(struct ul_arena *arena, const struct ul_program *program,
                         const struct ul_plan *plan, const struct ul_emit_options *options,
                         const char *directory, struct ul_diag *diag) UL_MUST_CHECK;

#endif
