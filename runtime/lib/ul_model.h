/* SPDX-License-Identifier: 0BSD */
/*
 * What a compiled model says of itself: its one buffer (the arena), its weights, its inputs and
 * outputs, its steps and its live ranges. The generated model.c defines one constant
 * `struct ul_model`; the library form, the command line and the checks at run time only read it.
 *
 * Invariants: everything here is constant data, so any number of threads may run one model, each
 * on an arena of its own. Offsets count from the start of the arena, through its banks where it has
 * some; every range lies inside arena_bytes. Inputs and outputs are dense in row-major order.
 * Ownership: the caller owns the arena, the weights source and every tensor; strings and tables
 * belong to the model.
 * Units: names end in their unit (_bytes); strides and counts are in elements; an element of 2 or 4
 * bits has a byte of its own, sign-extended for i4 and i2.
 * Failures: an enum ul_result, with the details in the caller's struct ul_failure.
 * Pure C99; needs no library.
 */
#ifndef UL_MODEL_H
#define UL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types, numbered as in ONNX's TensorProto.DataType. */
enum ul_rt_type {
    UL_TYPE_NONE = 0,
    UL_TYPE_F32 = 1,
    UL_TYPE_U8 = 2,
    UL_TYPE_I8 = 3,
    UL_TYPE_U16 = 4,
    UL_TYPE_I16 = 5,
    UL_TYPE_I32 = 6,
    UL_TYPE_I64 = 7,
    UL_TYPE_BOOL = 9,
    UL_TYPE_F16 = 10,
    UL_TYPE_F64 = 11,
    UL_TYPE_U32 = 12,
    UL_TYPE_U64 = 13,
    UL_TYPE_BF16 = 16,
    UL_TYPE_F8E4M3FN = 17,
    UL_TYPE_F8E4M3FNUZ = 18,
    UL_TYPE_F8E5M2 = 19,
    UL_TYPE_F8E5M2FNUZ = 20,
    UL_TYPE_U4 = 21,
    UL_TYPE_I4 = 22,
    UL_TYPE_F4E2M1 = 23,
    UL_TYPE_F8E8M0 = 24,
    UL_TYPE_U2 = 25,
    UL_TYPE_I2 = 26,
    UL_TYPE_F6E2M3 = 27,
    UL_TYPE_F6E3M2 = 28
};

enum ul_result {
    UL_OK = 0,
    UL_ARENA_TOO_SMALL,     /* needed_bytes, available_bytes */
    UL_ARENA_MISALIGNED,    /* needed_bytes = the alignment, available_bytes = the one given */
    UL_WEIGHTS_MISSING,     /* the model has weights and no source was given */
    UL_WEIGHTS_UNREADABLE,  /* the source failed to read */
    UL_WEIGHTS_INVALID,     /* no weights trailer at the end of the source */
    UL_WEIGHTS_WRONG_SIZE,  /* needed_bytes, available_bytes */
    UL_WEIGHTS_WRONG_HASH,  /* damaged, or another model's */
    UL_INPUT_MISSING,       /* tensor = the input whose pointer is NULL and must not be */
    UL_OUTPUT_MISSING,      /* tensor = the output whose pointer is NULL and must not be */
    UL_LIBRARY_NEEDS_MORE,  /* needed_bytes, available_bytes: scratch; tensor = the call */
    UL_LIBRARY_UNSUPPORTED, /* no implementation for what was planned; tensor = the call */
    UL_LIBRARY_FAILED,      /* out of memory, most likely */
    UL_THREADS_MISSING,     /* needed_bytes, available_bytes: numbers of threads, not bytes */
    UL_NOT_READY,           /* the arena was not set up, or its set-up failed, or was given back */
    UL_DEVICE_MISSING,      /* there is none, or none of this number; tensor = the number */
    UL_DEVICE_TOO_OLD,      /* needed_bytes, available_bytes: compute capabilities, 80 for 8.0 */
    UL_DEVICE_NO_CODE,      /* the program has no code for the device; available_bytes: its
                               compute capability */
    UL_DRIVER_TOO_OLD,      /* needed_bytes, available_bytes: versions of CUDA, 13000 for 13.0 */
    UL_DEVICE_FULL,         /* needed_bytes, available_bytes of the device's memory */
    UL_DEVICE_FAILED,       /* a call of the device's runtime; detail */
    UL_LIBRARY_MISSING,     /* a library of the device is not installed; detail */
    UL_CHOICES_INVALID,     /* a file of choices does not fit; detail, tensor: its line */
    UL_CHOICES_UNWRITTEN,   /* it cannot be written; detail */
    UL_ARENA_ELSEWHERE,     /* the arena is not memory of the device */
    UL_INPUT_ELSEWHERE, /* --io caller: input `tensor` is no such memory, or not at a multiple of 16
                         */
    UL_OUTPUT_ELSEWHERE, /* the same for an output */
    UL_BUFFERS_APART,    /* --io caller: input `tensor` and the output that overwrites it were given
                            two buffers */
    UL_OFFLOAD_TOO_SMALL,    /* needed_bytes, available_bytes to offload to; 0: nothing was given */
    UL_OFFLOAD_FAILED,       /* a transfer failed: the run has no results, and the state of a
                                training is lost */
    UL_DATA_FAULT,           /* the run is complete, but a value in the data was out of bounds */
    UL_CHECKPOINT_UNWRITTEN, /* the callback failed to write (ul_train.h) */
    UL_CHECKPOINT_UNREADABLE, /* the callback failed to read */
    UL_CHECKPOINT_INVALID,    /* this is no checkpoint, or it is damaged */
    UL_CHECKPOINT_OTHER,      /* needed_bytes, available_bytes: for other parameters, or another
                                 optimizer */
    UL_PROCESSOR_LACKS,       /* what the library was compiled for; detail: the feature */
    UL_SIZE_INVALID /* a size out of its range, or none was given; detail: its name, tensor:
                       its number in the model's sizes, fault_value: what was given */
};

/* What was wrong with the data. The value was clamped, the run went on. */
enum ul_fault {
    UL_FAULT_NONE = 0,
    UL_FAULT_INDEX,  /* an index outside [-fault_limit, fault_limit) */
    UL_FAULT_COUNT,  /* a count (trips, k, a size) above the planned bound fault_limit */
    UL_FAULT_BRANCH, /* a branch of an If that cannot have the shapes that were compiled; outputs
                        that come from it are 0 */
    UL_FAULT_PLACE   /* an index outside [0, fault_limit), where none counts from the end */
};
/* The index, into an axis of one element, by which kernels note UL_FAULT_BRANCH. */
#define UL_NO_BRANCH_INDEX (-INT64_C(0x4e6f4272616e6368))

/* All fields are set by every call that takes one; those that do not apply are 0 or NULL. */
struct ul_failure {
    enum ul_result result;
    uint64_t needed_bytes;
    uint64_t available_bytes;
    uint32_t tensor;  /* number of the input or output, or of the library call */
    uint32_t step;    /* UL_DATA_FAULT: the first step that met such a value */
    const char *node; /* its source node; NULL when the tables were left out */
    enum ul_fault fault;
    int64_t fault_value;
    int64_t fault_limit;
    const char *detail; /* a device's or its library's own words; NULL: none */
};

/* Notes the failure in *failure. */
static inline enum ul_result ul_fail(struct ul_failure *failure, enum ul_result result,
                                     uint64_t needed_bytes, uint64_t available_bytes)
{
    failure->result = result;
    failure->needed_bytes = needed_bytes;
    failure->available_bytes = available_bytes;
    return result;
}

/* Where the bytes of a tensor are. */
enum ul_space {
    UL_SPACE_ARENA = 0,
    UL_SPACE_INPUT = 1,  /* the caller's input buffer number `index` (--io caller) */
    UL_SPACE_OUTPUT = 2, /* the caller's output buffer number `index` (--io caller) */
    UL_SPACE_ROM = 3,    /* read-only weights, outside the arena (--weights rom) */
    UL_SPACE_PART = 4,   /* for views: a part of this place in the arena; which part depends on
                            the round of a loop */
    UL_SPACE_OFFLOAD = 5 /* at an offset of the memory that values are offloaded to
                            (ul_offload.h) */
};

/* Which way bytes go: to a place outside of the arena, or from there. */
enum ul_direction { UL_OFFLOAD_SAVE, UL_OFFLOAD_LOAD };

/* Whether it is a buffer that the caller hands over for each run. */
static inline bool ul_is_callers(enum ul_space space)
{
    return space == UL_SPACE_INPUT || space == UL_SPACE_OUTPUT;
}

/* An input or an output. dims is NULL for rank 0. */
struct ul_rt_tensor {
    const char *name;
    enum ul_rt_type type;
    uint32_t rank;
    const int64_t *dims;
    uint64_t size_bytes;
    enum ul_space space; /* UL_SPACE_ARENA: it is at offset_bytes; UL_SPACE_OFFLOAD: there, in
                            the memory that values are offloaded to; else in the caller's buffer */
    uint64_t offset_bytes;
    uint32_t donated; /* for an input, 1 + the output that overwrites it where it lies; for such
                         an output, 1 + that input, or UL_DONATED_WEIGHT; 0: neither */
};

/* The output overwrites a weight: it is in the arena with any --io, is what the weights file says
   after init, and each run changes it. */
#define UL_DONATED_WEIGHT UINT32_MAX

struct ul_pack; /* ul_call.h */

/*
 * Weights in storage: a payload, then a trailer of UL_TRAILER_BYTES bytes (little-endian):
 *     8 bytes "ULLAGEWT", u32 version, u32 UL_TRAILER_BYTES, u64 payload_bytes, u64 payload_hash
 * at the very end of the file, so that the same bytes serve as a file of their own and appended to
 * a program. The payload is the sections, one after the other, in the order of the table;
 * payload_hash is ul_weights.h's hash over the payload.
 */
#define UL_TRAILER_MAGIC "ULLAGEWT"
#define UL_TRAILER_VERSION 1u
#define UL_TRAILER_BYTES 32u

/* size_bytes of the payload that go to offset_bytes of the arena. Stored little-endian;
   element_bytes (1, 2, 4, 8) lets a big-endian machine swap. With a pack, the weight is stored
   row-major and takes pack->size_bytes of the arena; its elements have 4 bytes. A large section
   without one follows a gap (ul_weights.h). */
struct ul_section {
    uint64_t offset_bytes;
    uint64_t size_bytes;
    uint32_t element_bytes;
    enum ul_space space;        /* UL_SPACE_ARENA, or UL_SPACE_OFFLOAD for the arena */
    const struct ul_pack *pack; /* NULL: as it is stored */
};

/* A weight whose elements are all equal is not stored, but filled at set-up (a packed one with
   padding is always stored: its padding is 0). The value's element_bytes (1, 2, 4 or 8) bytes,
   little-endian, are in the low end of `value`. */
struct ul_splat {
    uint64_t offset_bytes;
    uint64_t element_count;
    uint64_t value;
    uint32_t element_bytes;
    enum ul_space space; /* as a section's */
};

/* Rows of the plan. The classes of live ranges are those before UL_ROW_ALIGNMENT. */
enum ul_row {
    UL_ROW_WEIGHTS = 0,
    UL_ROW_OPTIMIZER,
    UL_ROW_GRADIENTS,
    UL_ROW_KEPT, /* activations kept for the backward pass */
    UL_ROW_ACTIVATIONS,
    UL_ROW_SCRATCH,
    UL_ROW_INPUTS,
    UL_ROW_OUTPUTS,
    UL_ROW_ALIGNMENT,
    UL_ROW_HOLES,
    UL_ROW_COUNT
};

#define UL_RANGE_NONE UINT32_MAX

/* One place in the arena and the steps [live_begin, live_end) during which it is taken. Weights and
   persistent values live in [0, step_count). Only its step may write a byte of scratch. Two ranges
   that live at the same step and share bytes are in one chain: the later one takes over the first
   bytes of ranges[alias], at its first step, which is the last one of the other. At that step the
   older range has the bytes, and the newer one names the row. */
struct ul_range {
    const char *value;
    enum ul_row row;
    uint64_t offset_bytes;
    uint64_t size_bytes;
    uint32_t live_begin;
    uint32_t live_end;
    uint32_t alias; /* index of the range whose first bytes it takes over, or UL_RANGE_NONE */
};

/* What a step writes: element [i0, i1 ...] is at offset_bytes + (i0 * s0 + i1 * s1 + ...) times the
   size of the element. Its dims and then its strides, rank of each, start at shapes[shape]. */
struct ul_rt_view {
    enum ul_space space;
    uint32_t index; /* number of the caller's buffer, for UL_SPACE_INPUT and UL_SPACE_OUTPUT */
    uint64_t offset_bytes;
    enum ul_rt_type type;
    uint32_t rank;
    uint32_t shape;
};

/* One step. It may write its views and the scratch ranges that live at it, nothing else. */
struct ul_step {
    const char *name;    /* unique in the model */
    const char *kernel;  /* the C function; for a library call, what was planned; may be shared */
    const char *node;    /* the ONNX node that it comes from (the last one, when fused) */
    const char *op;      /* that node's operator, or several joined by '+' */
    uint32_t view_begin; /* its views are views[view_begin] ... */
    uint32_t view_count;
    uint64_t flop_count;      /* 0 when not known */
    uint64_t moved_bytes;     /* bytes read and written, once each */
    double predicted_seconds; /* by the cost model; 0 when it was not asked */
    uint32_t call;            /* 1 + the number of its library call; 0: it makes none */
    uint32_t operand_begin;   /* operands[operand_begin] ...: the ranges that it may read */
    uint32_t operand_count;
};

/* Called before each step with its number, and with step_count after the last. A step inside a
   loop is announced each time round. */
typedef void ul_step_hook(void *context, uint32_t step);

/* The state of one run, on the stack of the caller. */
struct ul_run {
    const int64_t *sizes; /* of a model for a range of sizes, by number */
    uint32_t size_point;  /* the number of their combination, by which kernels choose their forms */
    const uint64_t *places;    /* where offsets follow from sizes: those of slots */
    const void *const *inputs; /* the caller's buffers, for --io caller */
    void *const *outputs;
    ul_step_hook *hook; /* NULL in normal use */
    void *hook_context;
    const struct ul_offload *offload; /* NULL: nothing is offloaded */
    int offload_failed;
    uint32_t threads; /* that kernels may use: 1 .. the model's thread_count */
    uint32_t step;    /* the step that is running */
    uint32_t fault_step;
    uint32_t fault_thread; /* that noted it; an earlier one of the same region replaces it */
    enum ul_fault fault;   /* the first one */
    int64_t fault_value;
    int64_t fault_limit;
};

typedef void ul_steps(unsigned char *arena, struct ul_run *run);

/* An entry: all or some steps of the model, which may be called. It takes the inputs and makes
   the outputs with these numbers. Callers hand over all pointers, by number; an entry looks at
   its own. */
struct ul_entry {
    const char *name;
    ul_steps *steps; /* NULL: there are none, or they are on a device */
    const uint32_t *inputs;
    const uint32_t *outputs;
    uint32_t input_count;
    uint32_t output_count;
    uint32_t step_begin; /* its steps are among [step_begin, step_end) of the model's */
    uint32_t step_end;
};
/* The entries of every model, for each of its roots in turn: after the weights are in place, once
   per arena, and again to begin anew; a run. What set-up takes belongs to the arena from then on:
   runs change it, none reads it anew. In a model that trains, a run is the forward and backward
   pass over one (micro-)batch and the update; to evaluate leaves parameters and state alone; to
   accumulate, which models with micro-batches have, is a run without the update, for all
   micro-batches but the last one; to begin is the same for the first one, whose gradients are added
   to nothing. Such a model has one root. */
enum {
    UL_ENTRY_SET_UP = 0,
    UL_ENTRY_RUN = 1,
    UL_ENTRIES_OF_ROOT = 2,
    UL_ENTRY_EVALUATE = 2,
    UL_ENTRY_ACCUMULATE = 3,
    UL_ENTRY_BEGIN = 4
};

/* The number of a tensor that a model does not have. */
#define UL_TENSOR_NONE UINT32_MAX

/* What training changes and a checkpoint holds: parameters under their ONNX names, the optimizer's
   state as NAME/momentum, NAME/exp_avg and the like, running statistics under their names, a
   loss scale as loss/scale, loss/growth_tracker and loss/steps.
   It lies in the arena, as it is in the weights file after init. */
struct ul_rt_parameter {
    const char *name;
    enum ul_rt_type type;
    uint32_t rank;
    const int64_t *dims; /* NULL for rank 0 */
    uint64_t size_bytes;
    uint64_t offset_bytes;
    enum ul_space space;     /* as a section's */
    enum ul_rt_type storage; /* of its elements there: the type, or UL_TYPE_BF16 of f32 */
    uint32_t facts;          /* bits of enum ul_rt_parameter_fact */
};

/* SQUARES: a variance or a mean square, whose elements are never below 0. CHANNELS_LAST: dimension
 * 1 is innermost in memory; files and callers have the parameter row-major. */
enum ul_rt_parameter_fact { UL_RT_PARAMETER_SQUARES = 1, UL_RT_PARAMETER_CHANNELS_LAST = 2 };

/* Factors of the learning rate, of which a schedule may have several:
     STEP    `factor` for each `steps` steps that are done
     WARMUP  from 1/steps to 1 over the first `steps` steps, linearly
     COSINE  half a cosine from 1 to 0 over `steps` steps, counted from the end of the warm-up; then
             0 */
enum ul_rt_rate_kind { UL_RT_RATE_STEP, UL_RT_RATE_COSINE, UL_RT_RATE_WARMUP };
struct ul_rt_rate {
    enum ul_rt_rate_kind kind;
    uint64_t steps;
    double factor;
};

/* What a model that trains says of it. All inputs of a run but `step` have samples in their first
   dimension; `step` is f64[UL_RT_STEP_NUMBERS], made anew for each run (ul_train.h). The output
   `loss_output` is a scalar of the model's type: the mean over the batch, or as much of it as was
   run. Evaluation takes and makes the same. */
enum ul_rt_step_number { /* as ir/training.h has them */
                         UL_RT_STEP_RATE,
                         UL_RT_STEP_BIAS1,
                         UL_RT_STEP_BIAS2,
                         UL_RT_STEP_SAMPLES,
                         UL_RT_STEP_SEED,
                         UL_RT_STEP_COUNT,
                         UL_RT_STEP_EVALUATES,
                         UL_RT_STEP_PART,
                         UL_RT_STEP_NUMBERS
};
/* Bytes of a checkpoint's entry that says what --quantize was, with a zero at its end. */
#define UL_RT_QUANTIZE_BYTES 256

struct ul_model;

struct ul_rt_training {
    /* Runs an entry point of the model that lies at `place`, an arena or a device's context. */
    enum ul_result (*enter)(const struct ul_model *model, uint32_t entry, void *place,
                            const void *const *inputs, void *const *outputs,
                            struct ul_failure *failure);
    /* Moves bytes between the caller and an offset of that model's space. */
    enum ul_result (*move)(const struct ul_model *model, void *place, enum ul_direction direction,
                           enum ul_space space, uint64_t offset_bytes, void *bytes,
                           uint64_t size_bytes, struct ul_failure *failure);
    const char *loss;      /* "softmax-cross-entropy" */
    const char *optimizer; /* "adamw" */
    uint32_t data;         /* numbers of inputs */
    uint32_t labels;       /* UL_TENSOR_NONE: the loss is an output of the model as it was */
    uint32_t step;
    uint32_t loss_output;
    uint32_t correct_output;        /* i64: samples that were classified right; or UL_TENSOR_NONE */
    uint32_t sample_count;          /* of a run */
    uint32_t micro_batches;         /* runs in a step, the last of which updates */
    double learning_rate;           /* before schedules; a trainer may be given another one */
    double beta1, beta2;            /* of moving averages; 0: there are none */
    const struct ul_rt_rate *rates; /* their factors multiply; none: constant */
    uint32_t rate_count;
    /* Labels are in [0, class_count) or ignore_index. 0: they are no classes. */
    uint32_t class_count;
    int64_t ignore_index;
    const double *class_weights; /* NULL: classes weigh alike */
    bool has_batch_statistics;
    const struct ul_rt_parameter *parameters;
    uint32_t parameter_count;
    /* The numbers of two parameters of a dynamic loss scale: itself, f32, and steps taken, i64.
       UL_TENSOR_NONE: there is none. */
    uint32_t loss_scale, taken_steps;
    double lora_alpha; /* over the rank: what comes by way of factors is multiplied by it; 0: there
                          are none */
    const char *quantize; /* of the weights beside them, an option a line; NULL: they are floats */
    const char
        *frozen; /* --freeze, a pattern a line: constants of the program; NULL: there are none */
};

struct ul_weights_source;
struct ul_call;    /* ul_call.h */
struct ul_offload; /* ul_offload.h */
struct ul_device;  /* ul_device.h */

/* What a model hands to a library; struct ul_model has a table of them. The functions are named
 * here so that what is common to all models needs no library: .init = ul_library_init ... */
struct ul_library {
    const char *name;                /* "oneDNN" */
    const char *plan_name;           /* before its implementations in names of kernels: "onednn" */
    const char *isa;                 /* that the plan was made for: "avx512_core" */
    uint32_t thread_count;           /* likewise; fewer may be used */
    uint64_t state_offset_bytes;     /* in the arena: a pointer's place */
    uint32_t first_call, call_count; /* which of the calls are its own */
    const struct ul_call *calls;     /* of the model, by number */
    /* ul_posts_run where a call has a tail, else NULL. */
    void (*posts)(const struct ul_call *call, float *dst, uint32_t threads);
    /* For a process to take what its plan says: resident bytes before a primitive is made, with the
     * pages of code that making one runs through; and the bytes of these pages. 0: nobody said. */
    uint64_t start_bytes;
    uint64_t making_bytes;
    /* Called with the table wherever other code of the library runs next while primitives are made;
     * NULL: nothing is. The command line's gives back pages that may not be needed any more. */
    void (*made)(const struct ul_library *library);
    /* Makes the primitives of all its calls, for `threads` threads. After a failure there is
     * nothing to give back. */
    enum ul_result (*init)(const struct ul_library *library, void *arena, uint32_t threads,
                           struct ul_failure *failure);
    /* The same for calls whose scales are weights, once these are in the arena. NULL: there are
     * none. */
    enum ul_result (*init_scaled)(const struct ul_library *library, void *arena,
                                  struct ul_failure *failure);
    void (*done)(const struct ul_library *library, void *arena);
    /* Before each run: UL_NOT_READY without a state, UL_THREADS_MISSING where the caller has fewer
     * threads than at set-up. */
    enum ul_result (*ready)(const struct ul_library *library, const void *arena,
                            struct ul_failure *failure);
    /* What runs a call, which need not be what was planned; NULL: the library does not run it. */
    const char *(*implementation)(const struct ul_library *library, const void *arena,
                                  uint32_t index);
    /* Bytes that the library took for itself at set-up, for --memory. */
    uint64_t (*heap_bytes)(const struct ul_library *library, const void *arena);
};

/* What a run calls where values leave the arena; functions of ul_offload.h. */
struct ul_offloading {
    enum ul_result (*attach)(const struct ul_model *model, void *arena,
                             const struct ul_offload *offload, struct ul_failure *failure);
    const struct ul_offload *(*of)(const struct ul_model *model, const void *arena);
    /* Moves size_bytes between `bytes` and offset_bytes there; 0 for success. */
    int (*save)(const struct ul_offload *offload, uint64_t offset_bytes, void *bytes,
                uint64_t size_bytes);
    int (*load)(const struct ul_offload *offload, uint64_t offset_bytes, void *bytes,
                uint64_t size_bytes);
    void (*finish)(struct ul_run *run); /* waits until nothing is under way */
};

/* The next *size_bytes bytes of what is read, which stay until the next call; NULL: that was all,
   or it cannot be read. */
typedef const unsigned char *ul_next_piece(void *reader, uint64_t *size_bytes);

/* One of the memories that an arena consists of (ul_run.h). */
struct ul_bank {
    const char *name;
    uint64_t begin_bytes; /* its offset in the arena */
    uint64_t size_bytes;  /* what of it is used */
    uint64_t capacity_bytes;
};

/* A size that varies from run to run: from low to high by multiples of step; or one of some values,
   which ascend from low to high. */
struct ul_size {
    const char *name;
    int64_t low, high, step;
    uint32_t value_count; /* 0: it has any value of the range */
    const int64_t *values;
};
/* The number of a size that a dimension does not have. */
#define UL_SIZE_NONE UINT32_MAX

/* A row lies below a slot. */
struct ul_below {
    uint32_t row, slot;
};
#define UL_SLOT_NONE UINT32_MAX

/* Offsets that follow from sizes. Rows are ranges of the arena; each has a slot, whose offset is
 * the end of the highest row below it. Pairs are in order of slots; rows below a slot have smaller
 * ones. */
struct ul_layout {
    uint64_t floor_bytes;        /* what is below all slots */
    uint64_t least_bytes;        /* of an arena for any size */
    uint64_t state_offset_bytes; /* in the arena: where its bytes are noted */
    uint32_t slot_count, row_count, pair_count;
    const uint32_t *row_slots;
    const struct ul_below *pairs;
    const uint32_t *edge_slots; /* of inputs, then of outputs; UL_SLOT_NONE: a fixed offset */
    void (*bytes)(const int64_t *sizes, uint64_t *bytes); /* of rows */
};

struct ul_model {
    const char *name;
    const char *compiler;    /* "ullage 0.1.0" */
    const char *target;      /* "c" */
    enum ul_rt_type storage; /* the type that f32 is stored in, where that has 16 bits: UL_TYPE_F16
                                or UL_TYPE_BF16; else 0 */
    int declared;            /* the model itself has this type */
    int tf32;                /* products of f32 may round their factors to 11 bits */
    unsigned char model_sha256[32];
    unsigned char plan_sha256[32];
    uint64_t arena_bytes;
    uint64_t arena_align;        /* a power of two */
    const struct ul_bank *banks; /* what the arena is made of; NULL and 0: it is one */
    uint32_t bank_count;
    uint64_t bank_state_offset_bytes;    /* in the first bank: where the others are noted */
    uint64_t rom_bytes;                  /* weights outside the arena */
    uint64_t offload_bytes;              /* of values that leave the arena; 0: none does */
    uint64_t offload_state_offset_bytes; /* in the arena: the place of a pointer */
    const char *offload_file;            /* where the command line puts them; NULL: in memory */

    uint64_t payload_bytes; /* stored weights; 0: there is no weights file */
    uint64_t payload_hash;
    const struct ul_section *sections;
    const struct ul_splat *splats;
    uint32_t section_count;
    uint32_t splat_count;
    /* Eight bytes of a weight that no run changes, as set-up leaves them in the arena, and where
       they are: by these a run tells that the arena was set up. All 0: no bytes could tell. */
    uint64_t mark_offset_bytes;
    unsigned char mark[8];

    uint32_t input_count;
    uint32_t output_count;
    const struct ul_rt_tensor *inputs;
    const struct ul_rt_tensor *outputs;

    uint32_t thread_count;          /* that the plan was made for; 0: the same as 1 */
    uint32_t (*thread_limit)(void); /* how many the caller may use now; NULL: thread_count */
    void (*start_threads)(uint32_t threads); /* so that the first run need not; NULL: nothing to
                                                do */

    /* What some models have and others do without; NULL: this one does without. */
    enum ul_result (*load)(const struct ul_model *model, const struct ul_weights_source *source,
                           unsigned char *arena, struct ul_failure *failure); /* ul_weights.h */
    /* Packs a weight as it is read: ul_pack.h, ul_winograd_pack.h. Returns how many of its bytes
       still have the file's byte order. */
    uint64_t (*pack)(const struct ul_pack *pack, unsigned char *target, ul_next_piece *next,
                     void *reader);
    uint32_t library_count; /* at most UL_LIBRARY_LIMIT of ul_call.h */
    const struct ul_library *libraries;
    const struct ul_offloading *offloading;

    uint32_t isa; /* UL_ISA_COMPILED where model.c was compiled */
    uint32_t entry_count;
    const struct ul_entry *entries;
    /* Where several models are roots of one program: each has a description, which says of itself
       its name, its inputs and its outputs; all else is alike. Where a model is for a range of
       sizes whose programs do not all have the same steps, each root is a piece of the range, and
       says of itself its sizes. NULL and 0: this is the only one. */
    const struct ul_model *const *roots;
    uint32_t root_count;
    uint32_t first_entry;                  /* of the root that this describes */
    const struct ul_device *device;        /* NULL: the arena is memory of this process */
    const struct ul_rt_training *training; /* NULL: it does not train */

    /* A model for a range of sizes: everything here is for the largest of each. NULL and 0: all
     * sizes are fixed. */
    const struct ul_size *sizes;
    uint32_t size_count;
    const uint32_t *input_sizes; /* for each dimension of each input, its size, or UL_SIZE_NONE */
    uint32_t edge_number_count;  /* dimensions of all inputs, then of all outputs */
    /* Writes these numbers for other sizes. */
    void (*size_numbers)(const int64_t *sizes, int64_t *numbers);
    const struct ul_layout *layout; /* NULL: offsets are fixed */
    const int64_t *at;              /* the sizes of the next run; NULL: they are not known yet */
    const uint64_t *places;         /* the offsets of slots at these sizes; NULL: they are fixed */

    /* The tables for people and for checks. All counts but step_count are 0 and all pointers NULL
       when model.c was compiled with -DUL_NO_TABLES. */
    uint32_t step_count;
    uint32_t range_count;
    uint32_t offload_range_count;
    uint32_t view_count;
    uint32_t shape_count;
    uint32_t operand_count;
    const struct ul_step *steps;
    const struct ul_range *ranges;
    const struct ul_range *offload_ranges; /* offsets are those in the memory that values are
                                              offloaded to */
    const struct ul_rt_view *views;
    const int64_t *shapes;
    const uint32_t *operands; /* numbers of ranges: those of steps, then those of what comes
                                 between steps */
    uint32_t bare_begin;      /* from here on: conditions of branches, read before a step begins */
    uint64_t row_bytes[UL_ROW_COUNT]; /* sum = arena_bytes */
    uint32_t peak_step;               /* the step at which the rows were taken */
};

static inline uint32_t ul_root_count(const struct ul_model *model)
{
    return model->root_count != 0 ? model->root_count : 1;
}

/* What an entry takes and makes is of this description. */
static inline const struct ul_model *ul_model_of_entry(const struct ul_model *model, uint32_t entry)
{
    return model->root_count != 0 ? model->roots[entry / UL_ENTRIES_OF_ROOT] : model;
}

/* Whether an entry is the set-up of a root. */
static inline int ul_is_set_up(const struct ul_model *model, uint32_t entry)
{
    return entry % UL_ENTRIES_OF_ROOT == UL_ENTRY_SET_UP &&
           entry < ul_root_count(model) * UL_ENTRIES_OF_ROOT;
}

/*
 * Where weights come from. Either `memory` holds the whole file (payload and trailer), or `read`
 * copies size_bytes from offset_bytes of the file into target and returns 0, anything else for
 * failure. Bytes before the payload (a program's own code) are allowed. `map`, which may be NULL,
 * is a `read` for large sections that may leave the bytes in the file until they are used: they
 * must stay the same as long as the arena lives. It returns anything but 0 where it cannot. */
typedef int ul_read(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes);

struct ul_weights_source {
    uint64_t size_bytes; /* of the whole file */
    const void *memory;
    ul_read *read;
    void *context;
    ul_read *map;
};

/* Copies size_bytes to offset_bytes of a file; 0 for success. Saved bytes come from front to back,
   but for the head of the file, which comes last. */
typedef int ul_write(void *context, uint64_t offset_bytes, const void *bytes, uint64_t size_bytes);

/* How far a training is, besides what is in the arena (ul_train.h). It belongs to the caller. */
struct ul_trainer {
    uint64_t step;        /* updates that are done */
    uint32_t micro_batch; /* runs of the next update that are done; 0 between updates */
    uint64_t seed;        /* of everything random in a step; below 2^53 */
    double learning_rate; /* before schedules */
};

/* The library whose call has that number; NULL: it is none of a library's that is set up. */
static inline const struct ul_library *ul_model_library(const struct ul_model *model, uint32_t call)
{
    for (uint32_t i = 0; i < model->library_count; i++) {
        const struct ul_library *library = &model->libraries[i];
        if (call >= library->first_call && call - library->first_call < library->call_count)
            return library;
    }
    return NULL;
}

/* Bits of struct ul_model's isa: what model.c's compiler was allowed to use. */
#define UL_ISA_SSE3 (1u << 0)
#define UL_ISA_SSSE3 (1u << 1)
#define UL_ISA_SSE41 (1u << 2)
#define UL_ISA_SSE42 (1u << 3)
#define UL_ISA_POPCNT (1u << 4)
#define UL_ISA_AVX (1u << 5)
#define UL_ISA_AVX2 (1u << 6)
#define UL_ISA_FMA (1u << 7)
#define UL_ISA_BMI (1u << 8)
#define UL_ISA_BMI2 (1u << 9)
#define UL_ISA_AVX512F (1u << 10)
#define UL_ISA_AVX512VL (1u << 11)
#define UL_ISA_AVX512BW (1u << 12)
#define UL_ISA_AVX512DQ (1u << 13)
#define UL_ISA_AVX512CD (1u << 14)
#define UL_ISA_AVX512VNNI (1u << 15)
#define UL_ISA_AVX512BF16 (1u << 16)
#define UL_ISA_AVX512VBMI (1u << 17)
#define UL_ISA_AVX512VBMI2 (1u << 18)
#define UL_ISA_AVX512IFMA (1u << 19)
#define UL_ISA_AVX512BITALG (1u << 20)
#define UL_ISA_AVX512VPOPCNTDQ (1u << 21)
#define UL_ISA_LAST UL_ISA_AVX512VPOPCNTDQ

/* One line in English for each result, without the numbers of the failure. */
static inline const char *ul_result_text(enum ul_result result)
{
    switch (result) {
    case UL_OK:
        return "success";
    case UL_ARENA_TOO_SMALL:
        return "the arena is too small";
    case UL_ARENA_MISALIGNED:
        return "the arena is not aligned as the model needs it";
    case UL_WEIGHTS_MISSING:
        return "no weights were given";
    case UL_WEIGHTS_UNREADABLE:
        return "the weights cannot be read";
    case UL_WEIGHTS_INVALID:
        return "this holds no weights (no trailer at its end)";
    case UL_WEIGHTS_WRONG_SIZE:
        return "the weights do not have the size that the model needs";
    case UL_WEIGHTS_WRONG_HASH:
        return "the weights are damaged or belong to another model";
    case UL_INPUT_MISSING:
        return "an input buffer is missing";
    case UL_OUTPUT_MISSING:
        return "an output buffer is missing";
    case UL_LIBRARY_NEEDS_MORE:
        return "the library needs more scratch on this machine than was planned";
    case UL_LIBRARY_UNSUPPORTED:
        return "the library has no implementation of what was planned for this machine";
    case UL_LIBRARY_FAILED:
        return "the library could not be set up; it is out of memory, most likely";
    case UL_THREADS_MISSING:
        return "the arena was made ready for more threads than OpenMP gives this run";
    case UL_NOT_READY:
        return "the arena was not made ready: its set-up failed, or was given back";
    case UL_OFFLOAD_TOO_SMALL:
        return "what values are offloaded to is missing or too small";
    case UL_OFFLOAD_FAILED:
        return "a value could not be offloaded or fetched back";
    case UL_DATA_FAULT:
        return "a value in the data was out of bounds and was clamped";
    case UL_DEVICE_MISSING:
        return "there is no device to run on";
    case UL_DEVICE_TOO_OLD:
        return "the device is older than the program needs";
    case UL_DEVICE_NO_CODE:
        return "the program has no code for the device";
    case UL_DRIVER_TOO_OLD:
        return "the device's driver is older than the program needs";
    case UL_DEVICE_FULL:
        return "the device has too little free memory";
    case UL_DEVICE_FAILED:
        return "the device failed";
    case UL_LIBRARY_MISSING:
        return "a library that the program calls is not installed";
    case UL_CHOICES_INVALID:
        return "the file of choices is not for this program on this device";
    case UL_CHOICES_UNWRITTEN:
        return "the file of choices cannot be written";
    case UL_ARENA_ELSEWHERE:
        return "the arena is not memory of the device";
    case UL_INPUT_ELSEWHERE:
        return "an input buffer is not memory of the device at a multiple of 16 bytes";
    case UL_OUTPUT_ELSEWHERE:
        return "an output buffer is not memory of the device at a multiple of 16 bytes";
    case UL_BUFFERS_APART:
        return "an input and the output that overwrites it were given two buffers";
    case UL_CHECKPOINT_UNWRITTEN:
        return "the checkpoint cannot be written";
    case UL_CHECKPOINT_UNREADABLE:
        return "the checkpoint cannot be read";
    case UL_CHECKPOINT_INVALID:
        return "the checkpoint is damaged, or none";
    case UL_CHECKPOINT_OTHER:
        return "the checkpoint is of another model, or of another optimizer";
    case UL_PROCESSOR_LACKS:
        return "the processor lacks what the library was compiled for";
    case UL_SIZE_INVALID:
        return "a size is out of its range, or was not given";
    }
    return "unknown result";
}

#ifdef __cplusplus
}
#endif

#endif
