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

/* cost.c */

/* What limits an operation on a device; a profile has a rate for each. */
enum ul_work_kind {
    UL_WORK_MATMUL_F32,  /* products and sums of tiled contractions, by the type of the operands */
    UL_WORK_MATMUL_TF32, /* f32 with factors rounded to 19 bits: where an implementation says so */
    UL_WORK_MATMUL_F64,
    UL_WORK_MATMUL_F16, /* of 16 bits or fewer, summed in f32 */
    UL_WORK_MATMUL_INT8,
    UL_WORK_WINDOW,  /* the same of contractions without reuse: depthwise convolution */
    UL_WORK_VECTOR,  /* arithmetic, loads and stores in loops that fill vector lanes */
    UL_WORK_SPECIAL, /* exp, log, tanh, erf there */
    UL_WORK_SCALAR,  /* anything in other loops: strided, data-dependent, sequential */
    UL_WORK_KINDS
};

struct ul_work {
    uint64_t flop_count;                   /* exact for counted loops */
    uint64_t counts[UL_WORK_KINDS];        /* of the thread that has the most of it */
    uint64_t spared_counts[UL_WORK_KINDS]; /* what other threads do at the same time */
    uint64_t region_count;                 /* how often threads start together */
};

struct ul_threads; /* threads.h */
/* The work of one call; adds to accesses[i] how many elements of buffer i it loads and stores.
 * `threads` NULL: one thread. */
void ul_kernel_count_work(const struct ul_kernel *kernel, const struct ul_threads *threads,
                          struct ul_arena *scratch, struct ul_work *work, uint64_t *accesses);

/* profile.c */

/* Memory of a size: what a step moves goes at the rate of the first level that holds it all. */
struct ul_profile_level {
    uint64_t capacity_bytes; /* UINT64_MAX: memory itself, the last level */
    double rate;             /* bytes per nanosecond */
};
enum { UL_PROFILE_LEVELS = 8 };

/* How fast a device is. Predicted nanoseconds of a step are the larger of work / rate, summed over
 * the kinds of work, and bytes / rate of their levels; plus the overhead of a step. */
struct ul_profile {
    const char *name;
    const char *source;          /* a data sheet, or how it was measured */
    double rates[UL_WORK_KINDS]; /* operations per nanosecond */
    double overhead_ns;
    uint64_t memory_bytes; /* 0: not known */
    uint32_t level_count;  /* at least 1 */
    struct ul_profile_level levels[UL_PROFILE_LEVELS];
};

/* The most that a step may cost, in nanoseconds: sums over any program stay in range. */
#define UL_PROFILE_MOST_NS ((uint64_t)1 << 39)
/* What a step reads and writes, each byte of an argument once. Weights were last used a whole run
 * ago: the memory that holds all of them is where they are. */
struct ul_traffic {
    uint64_t moved_bytes;
    uint64_t weight_bytes;     /* of those */
    uint64_t all_weight_bytes; /* of the program */
};
/* Nanoseconds, rounded up, at least 1; `rounds`: how often the step runs. The same on every
 * machine: no product is added to anything, which a compiler could fuse. */
uint64_t ul_profile_cost(const struct ul_profile *profile, const struct ul_work *work,
                         const struct ul_traffic *traffic, uint64_t rounds);
/* A built-in profile: UL_PROFILE_DEFAULT, a processor or a graphics processor; NULL: no such. */
#define UL_PROFILE_DEFAULT "generic-core"
const struct ul_profile *ul_profile_find(const char *name);
uint32_t ul_profile_count(void);
const struct ul_profile *ul_profile_at(uint32_t index);

/* profile_json.c: the file of a profile, on one line where `compact` (codegen/README.md). */
const char *ul_work_kind_name(enum ul_work_kind kind);
void ul_profile_put_json(struct ul_text *text, const struct ul_profile *profile, bool compact);
/* UL_INVALID with the key that is missing or out of range. */
enum ul_status ul_profile_read_json(struct ul_arena *arena, const char *json, size_t length,
                                    struct ul_profile *profile, struct ul_diag *diag) UL_MUST_CHECK;

/* program.c */

struct ul_call; /* runtime/lib/ul_call.h */
struct ul_pack;
struct ul_target_library; /* below */

/* One function of the program. */
struct ul_program_kernel {
    const char *name; /* k0, k1 ... */
    const char *text; /* its C definition, without storage class, name and opening parenthesis */
    uint64_t scratch_bytes;
    struct ul_work work;
    uint64_t *accesses;  /* per buffer of its kernel: elements loaded and stored */
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
    UL_STEP_CALL,    /* of the target's library: `kernel` is the number of the call */
    UL_STEP_COPY,    /* copy_bytes from args[0] to args[1] */
    UL_STEP_COUNTER, /* the round of the loop that it stands in, an i64, to args[0] */
    UL_STEP_TEST     /* reads args[0], a bool: leaves the loop that it stands in when it is false;
                        in a branch it only keeps the branch's condition alive */
};

/* A call with less scratch than another one. */
struct ul_program_leaner {
    uint32_t call;
    uint64_t scratch_bytes; /* of the step */
    double slowdown;        /* 1: none */
};

struct ul_program_step {
    enum ul_step_kind kind;
    const char *name; /* unique */
    const char *op;   /* "Conv+Add+Relu" */
    ul_node_id node;  /* the last node of its group, or the owner of the copy */
    uint32_t region;  /* of the problem */
    uint32_t kernel;
    const char *implementation; /* of a call; NULL: our own lowering */
    bool has_residual; /* of a call: the last argument is put into the result's place before, where
                          the plan has not given the result its bytes; of a device the library reads
                          it where it lies */
    const struct ul_program_step *own; /* of a call that a device's library may not run: the step by
                                          a kernel of ours, in the same places; else NULL */
    uint32_t leaner_count; /* of a call: the same with ever less scratch, in ever more time; what
                              the plan has as alternatives behind the first */
    const struct ul_program_leaner *leaner;
    uint32_t arg_count;
    struct ul_program_address *args;
    bool *written;      /* per argument */
    ul_value_id *views; /* per argument: the value that lies there, or UL_NONE */
    uint64_t copy_bytes;
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

/* The spaces of the problem. Only the arena is packed and reserved. */
enum { UL_PROGRAM_ARENA, UL_PROGRAM_ROM, UL_PROGRAM_CALLER };

/* Kernels read doubles and 64-bit integers in place: no plan of less alignment can run. */
enum { UL_PROGRAM_LEAST_ALIGN_BYTES = 8 };

/* Of a library call on a device, where nobody says how much: what cuBLASLt is given by default on
 * all but the newest devices. */
#define UL_PROGRAM_WORKSPACE_BYTES ((uint64_t)4 << 20)

/* How convolutions of 3x3 run that a library computes (codegen/cpu/winograd.c). */
enum ul_conv_choice {
    UL_CONV_BEST,    /* by Winograd's method where that pays */
    UL_CONV_DIRECT,  /* never */
    UL_CONV_WINOGRAD /* wherever it can be done */
};

struct ul_program_options {
    bool keep_inputs; /* inputs keep their bytes through the run */
    bool weights_rom; /* weights are read-only data of the program, outside the arena */
    bool io_caller;   /* inputs and outputs stay in the caller's buffers */
    const struct ul_target *target;
    uint32_t thread_count; /* of the program, at least 1; what a target without threads ignores */
    const char *isa;       /* of the machine that it will run on: "avx512_core"; NULL: this one */
    const struct ul_target_library *library; /* opened for that machine; NULL: there is none */
    enum ul_conv_choice conv;
    uint64_t workspace_bytes; /* of a call of a device's library, at most */
    bool has_cudnn;           /* calls of cuDNN are there to be planned */
    bool needs_cudnn;         /* a program that finds none at its start fails; else kernels of
                                 ours stand in */
    bool tf32;                /* products of f32 may round their factors to 11 bits */
    const struct ul_profile *profile; /* of the device whose time counts */
    uint64_t align_bytes;             /* of every range of the plan; 0: the default */
    /* The program of the same graph before chains of it were split: UL_UNSUPPORTED where a piece
     * would not give its bits. NULL: nothing was split. */
    const struct ul_program *whole;
};

/* Threads that the program is planned for: 1 for a target without threads. */
uint32_t ul_program_threads(const struct ul_program_options *options);

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
    uint32_t call_count, call_capacity;
    struct ul_call *calls;        /* of the library: distinct ones */
    const struct ul_pack **packs; /* graph value -> how a weight is stored, or NULL */
    ul_value_id library_state;    /* where the arena holds it, or UL_NONE */
    uint32_t uncalled_count;      /* products of 16 bits that the library does not compute */
    uint32_t flag_count;          /* regions that may be skipped or left */
    ul_value_id run_state;        /* of a device: where the arena holds it, or UL_NONE */
};

/* The state of a run on a device: this, and a byte for each flag (runtime/cuda/ul_cuda.h). */
enum { UL_PROGRAM_STATE_BYTES = 32 };

/* Lowers every group and builds the planner's problem. */
enum ul_status ul_program_build(struct ul_arena *arena, const struct ul_graph *graph,
                                const struct ul_program_options *options,
                                struct ul_program **program, struct ul_diag *diag) UL_MUST_CHECK;

/* What addresses of library calls are multiples of, at most; 1: nobody said. */
uint32_t ul_program_call_align(const struct ul_program *program);

/* winograd.c: whether any convolution was given Winograd's method. */
bool ul_program_has_winograd(const struct ul_program *program);

/* calls.c */

struct ul_group_call; /* calls_internal.h */
struct ul_piece;

/* A target's numerical library, as the compiler asks it: oneDNN (dnnl.c), or cuBLASLt and cuDNN
 * (cuda_calls.c). The target's rows of facts and functions; `context` is handed to the functions.
 */
struct ul_target_library {
    const char *name;      /* "oneDNN" */
    const char *plan_name; /* before the names of its implementations in plans: "onednn" */
    const char *isa;       /* of the machine that it was asked for; NULL: any */
    const char *march;     /* what a C compiler takes after -march= for it; NULL: any */
    uint64_t state_bytes;  /* in the arena, for what it keeps there; 0: nothing */
    bool adds_from_afar;   /* a residual may lie elsewhere than the result */
    bool runs_always;      /* a step that a run may pass over cannot be a call */
    bool chosen_at_start;  /* a program's start may find nothing that runs a call: a kernel of ours
                              stands beside each */
    void *context;
    /* Completes the call: implementation, layout of the weights (packed where `pack`), scratch.
     * False: the library has nothing for it that a plan should hold. */
    bool (*answer)(void *context, struct ul_group_call *call, bool pack);
    /* Completes the call so that it has the bits of the whole; false: it is not shown to. NULL: it
     * never is. */
    bool (*answer_piece)(void *context, const struct ul_piece *piece, struct ul_group_call *call);
    /* Turns a call into one with less scratch, and says how many times its time that is taken to
     * need; 0: there is none. NULL: never. */
    double (*leaner)(void *context, struct ul_call *call);
    void (*close)(void *context);
};
void ul_library_close(const struct ul_target_library *library);
/* The group is a call, as far as the library goes: for passes, see `is_call` in passes.h. `library`
 * is a const struct ul_target_library. */
bool ul_library_takes(const void *library, const struct ul_graph *graph, const ul_node_id *nodes,
                      uint32_t count, const bool *escapes, uint64_t *scratch_bytes);

struct ul_whole; /* below */
/* Whether pieces of calls among the nodes from `first` on are calls, as far as nothing speaks
 * against it: whether they have the bits of the whole is tried when a program is built. */
bool ul_calls_can_split(struct ul_arena *scratch, const struct ul_graph *graph, ul_node_id first,
                        const struct ul_target_library *library, const struct ul_whole *whole);

/* dnnl.c */

struct ul_dnnl;

/* The library for one machine: an instruction set by oneDNN's name (NULL: this machine's) and a
 * number of threads, both of which are the whole process'. UL_UNSUPPORTED: this machine lacks it.
 */
enum ul_status ul_dnnl_open(struct ul_arena *arena, const char *isa, uint32_t thread_count,
                            struct ul_dnnl **dnnl, struct ul_diag *diag) UL_MUST_CHECK;
void ul_dnnl_close(struct ul_dnnl *dnnl);
/* UL_USAGE where there is no instruction set of that name. */
enum ul_status ul_dnnl_check_isa(struct ul_arena *arena, const char *name,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* As struct ul_target has it. */
enum ul_status ul_dnnl_open_library(struct ul_arena *arena,
                                    const struct ul_program_options *options,
                                    const struct ul_target_library **library,
                                    struct ul_diag *diag) UL_MUST_CHECK;

/* cuda_calls.c: as struct ul_target has it */

enum ul_status ul_cuda_open_library(struct ul_arena *arena,
                                    const struct ul_program_options *options,
                                    const struct ul_target_library **library,
                                    struct ul_diag *diag) UL_MUST_CHECK;

/* pieces.c */

/* The program of a graph before chains of it were split, and which of its steps a node is of. */
struct ul_whole {
    const struct ul_program *program;
    uint32_t *steps; /* by node of its graph, the last of a group; UL_NONE: of none */
};

void ul_whole_init(struct ul_whole *whole, struct ul_arena *arena,
                   const struct ul_program *program);

/* select.c */

/* One way to run a step, as the planner sees it. */
struct ul_implementation {
    const char *name; /* "ullage": the compiler's own lowering */
    uint64_t cost;    /* nanoseconds */
    uint64_t scratch_bytes;
};
enum { UL_IMPLEMENTATIONS = 4 };

struct ul_emit_options; /* below */

/* A target's table. `offer` fills up to UL_IMPLEMENTATIONS entries, the own lowering first, and
 * returns how many; `print` is as ul_kernel_print_c, `emit` as ul_emit_c. */
struct ul_target {
    const char *name;
    const char *summary;
    const char *profile;  /* of the device whose time counts, where nobody says another */
    bool has_threads;     /* OpenMP; the plan depends on their number */
    bool filters_last;    /* weights of convolutions are stored so too: passes/filters.c */
    bool biases_alike;    /* its library wants biases in the type of results: passes/precision.c */
    bool products_joined; /* products of one operand are one: passes/join.c */
    bool channels_last;   /* convolution nets keep channels innermost: passes/layout.c */
    /* Its numerical library, for what the options say of the machine; NULL: it has none. */
    enum ul_status (*open_library)(struct ul_arena *arena, const struct ul_program_options *options,
                                   const struct ul_target_library **library, struct ul_diag *diag);
    int64_t partial_count;   /* results that a long sum of its kernels is made of; ir/lower.h */
    int64_t spread_products; /* of a recurrent step that is spread; the same */
    bool sorts_batches;      /* of products; the same */
    bool is_device; /* memory and kernels are another processor's: the host enqueues steps, and
                       the plan holds the state of a run */
    uint32_t (*offer)(const struct ul_program_step *step, const struct ul_profile *profile,
                      uint64_t own_scratch_bytes, struct ul_implementation *offers);
    enum ul_status (*print)(struct ul_text *text, const struct ul_kernel *kernel,
                            const struct ul_threads *threads, uint64_t *scratch_bytes,
                            struct ul_diag *diag);
    /* The ways in which the kernel's contractions form their sums: enum ul_contract_order. */
    uint32_t (*sum_orders)(const struct ul_kernel *kernel);
    enum ul_status (*emit)(struct ul_arena *arena, const struct ul_program *program,
                           const struct ul_plan *plan, const struct ul_emit_options *options,
                           const char *directory, struct ul_diag *diag);
};
/* NULL: there is no such target. */
const struct ul_target *ul_target_find(const char *name);
uint32_t ul_target_count(void);
const struct ul_target *ul_target_at(uint32_t index);

/* print_c.c */

/* The definition of a kernel as C, from its parameter list on; sets the scratch bytes. The
 * parameters are the kernel's input and output buffers in order (b<id>), then `scratch` where it
 * has any, then `run`. `threads` NULL: one thread. */
enum ul_status ul_kernel_print_c(struct ul_text *text, const struct ul_kernel *kernel,
                                 const struct ul_threads *threads, uint64_t *scratch_bytes,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* print_cuda.c */

/* The definitions of a kernel as CUDA C++: its __global__ phases and the host function that
 * launches them, `@` standing for its name; sets the scratch bytes. Parameters of the host
 * function: at, the kernel's input and output buffers in order, then `scratch` where it has any. */
enum ul_status ul_kernel_print_cuda(struct ul_text *text, const struct ul_kernel *kernel,
                                    uint64_t *scratch_bytes, struct ul_diag *diag) UL_MUST_CHECK;

/* emit_c.c */

struct ul_emit_options {
    const char *prefix;       /* of the library's names: "model" */
    const char *model_sha256; /* hex */
    const char *plan_sha256;  /* hex */
    const char *runtime_dir;  /* where the runtime's files are */
    const char *cc;           /* for the Makefile: the C compiler, or nvcc */
    const char *cflags;
    const char *march; /* "native", or NULL: none */
    /* Where the target's library is: "" or " -I...", "" or " -L..." */
    const char *onednn_cflags, *onednn_libs;
    bool weights_beside; /* in PROGRAM.weights, not appended to the program */
};

/* Writes model.c, model.h, weights.bin, Makefile and the runtime's files into `directory`. */
enum ul_status ul_emit_c(struct ul_arena *arena, const struct ul_program *program,
                         const struct ul_plan *plan, const struct ul_emit_options *options,
                         const char *directory, struct ul_diag *diag) UL_MUST_CHECK;

/* emit_cuda.c */

/* The same for a device: kernels.cu beside model.c, which holds the tables alone. */
enum ul_status ul_emit_cuda(struct ul_arena *arena, const struct ul_program *program,
                            const struct ul_plan *plan, const struct ul_emit_options *options,
                            const char *directory, struct ul_diag *diag) UL_MUST_CHECK;

#endif
