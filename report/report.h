/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for people and for machines: plan.json, the terminal's summary.
 *
 * Invariants: everything printed comes from the plan and the description beside it, never from a
 * second computation; the same plan gives the same bytes. No time, date or path is written.
 * Ownership: texts live in the arena passed in.
 * Units: bytes; `overhead` and `gap` are fractions.
 * Failure: a plan.json that does not parse is UL_INVALID with the key that is wrong.
 */
#ifndef UL_REPORT_H
#define UL_REPORT_H

#include "ir/graph.h"
#include "planner/solve/solve.h"

/* One option of the command as `check` needs it to build the graph again. */
struct ul_report_option {
    const char *name;  /* "dim" */
    const char *value; /* "N=4" */
};

struct ul_report_step {
    const char *name;
    const char *op;
    const char *node;
    const char *source; /* the line of the author's source that made the node, or NULL */
    uint64_t flop_count;
    uint64_t moved_bytes;
    bool is_call; /* of the target's library */
};

struct ul_report_value {
    const char *name;
    struct ul_type type;
    enum ul_dtype storage; /* of its elements in memory: type.dtype, or 16 bits for an f32 */
    enum ul_kept kept;     /* why it is f32 where --precision asks for 16 bits */
    bool is_too_large;     /* a weight that stays f32, since its numbers do not fit 16 bits */
};

/* What a plan is about. */
/* A variant of the program: the chains that it computes in pieces, as the option --split has them,
 * what it lays out as in the model, as --row-major has it, and what its backward pass computes as
 * it is read, as --inside has it. */
struct ul_report_variant {
    uint32_t split_count, row_major_count, inside_count;
    const char *const *splits, *const *row_major, *const *inside;
    const struct ul_problem *problem; /* of its plans; NULL: its steps and values are not known */
    const struct ul_report_step *steps;
    const struct ul_report_value *values;
    struct ul_plan_beside process; /* what its process takes beside its buffer */
};

/* Whose the bytes of a process are; those of different ones are not alike, and nobody compares
 * them. */
enum ul_report_owner { UL_OWNER_PROGRAM, UL_OWNER_CALLER, UL_OWNER_DEVICE };

/* What the process of the program takes at its peak, predicted; of one that is a caller's, the
 * buffer, what the library keeps and the stacks. */
struct ul_report_process {
    bool is_whole;
    bool is_of_device; /* bytes of a device's memory; the runtime's are those of its context */
    bool lacks_context, lacks_library; /* of which nobody said how many */
    bool starts_larger;                /* its peak is before the first step */
    uint64_t total_bytes, buffer_bytes, library_bytes, code_bytes, stack_bytes, runtime_bytes;
    uint64_t library_stack_bytes; /* of the stacks: what nobody bounds */
    struct ul_plan_beside beside; /* the same for other plans of the program */
};

/* What a run launches on a device, and what of it should not be; no device: launch_count is
 * UINT64_MAX. */
struct ul_report_launches {
    uint64_t launch_count;   /* of kernels, copies and library calls */
    uint64_t call_count;     /* of these, library calls */
    uint64_t scalar_count;   /* products of 16 bits that tensor cores do not form */
    uint64_t shared_ns;      /* that steps cost less than is predicted for each by itself */
    uint64_t narrow_count;   /* steps that take long for too few blocks */
    uint64_t idle_count;     /* steps of much work whose blocks leave multiprocessors idle */
    uint64_t identity_count; /* steps that move bytes unchanged */
    uint64_t softmax_count;  /* outside of attention */
    uint64_t beside_count;   /* steps on a second stream; 0: there is none */
    uint64_t wait_count;     /* waits for these */
};

/* The space of weights that are read-only data, where a plan has any. */
enum { UL_REPORT_READ_ONLY = 1 };

/* Read-only memory of a program whose weights are data of it; zeros: they are not. */
struct ul_report_flash {
    uint64_t weight_bytes;
    uint64_t code_bytes; /* of model.c, tables included, at most, as gcc compiles it with -O2 */
};

/* What a program that trains trains; all 0: it does not. */
struct ul_report_training {
    uint64_t tensor_count, parameter_count, parameter_bytes, state_bytes;
    /* Of these, what keeps 32 bits where --state-bits or --master leave others fewer. */
    uint64_t wide_tensor_count, wide_count, wide_bytes;
    const char *notes;        /* lines: what is trained, what is not, what may be none; or NULL */
    uint64_t statistic_count; /* running ones */
    uint64_t fixed_count;     /* of the model, floats of several elements, left as they are */
    uint64_t clipped_bytes;   /* of gradients that --clip-norm keeps until all are known; or */
    bool clips_twice;         /* it forms them twice */
    uint64_t scaled_bytes;    /* of those that a loss scale keeps until all are known */
    uint32_t unreached_count; /* tensors from which nothing differentiable leads to the loss */
    const char *unreached;    /* the first of them */
    uint32_t piece_count;     /* of a loss over a vocabulary; 0: it is computed as a whole */
    uint64_t piece_bytes;     /* of one piece's logits */
    uint32_t shared_count;    /* tensors that several nodes read, so that gradients are sums */
    uint64_t shared_bytes, largest_shared_bytes; /* of these gradients */
    const char *shared;                          /* the largest of them */
};

/* What was planned to find the largest batch, or size of a dimension, within a budget; zeros: it
 * was given. */
struct ul_report_largest_tried {
    uint64_t size;
    uint64_t needed_bytes; /* of what the budget bounds */
    bool fits;
};
struct ul_report_largest {
    const char *dim; /* NULL: the batch */
    uint64_t size;   /* the largest of those that fit */
    uint64_t unit;   /* what a size is a multiple of */
    uint32_t tried_count;
    struct ul_report_largest_tried *tried; /* in the order that they were planned in */
    uint64_t refused;   /* the next larger one, where the model takes none of it: */
    const char *reason; /* why; or NULL */
};

/* The same of the number of micro-batches, of which the one is taken whose step takes the least
 * time. */
struct ul_report_parts_tried {
    uint64_t parts;
    uint64_t needed_bytes;
    uint64_t step_cost; /* predicted, of all of them */
    bool fits;
};
struct ul_report_parts {
    uint64_t parts;
    uint32_t tried_count;
    struct ul_report_parts_tried *tried;
};

struct ul_report_readers;
/* A plan of the model under other options, made to compare. */
struct ul_report_case {
    enum ul_status status; /* UL_OK: it fits; UL_NO_FIT: it is a plan, but not within its budget;
                              else there is none, and `message` says why */
    const char *message;
    bool is_planned; /* the rest is of that plan */
    uint64_t reserved_bytes, process_bytes;
    uint64_t bounded_bytes;     /* of these, what a budget bounds */
    bool bounds_buffer;         /* it is the buffer */
    enum ul_report_owner owner; /* of the process */
    uint64_t budget_bytes;      /* 0: none */
    uint64_t cost;              /* predicted ns of a step: of all its micro-batches */
    double overhead;            /* of a run, over the program that is built without a budget */
    uint64_t sample_count;      /* of a step: first dimensions of the first input */
    uint64_t largest;           /* that --max-batch or --max-dim found; 0: it was given */
    uint64_t weight_elements;   /* of the model */
    const char *model_sha256;   /* where a table has several models; else NULL */
    uint32_t recomputed_count, split_count, row_major_count, inside_count;
    const char *peak_node, *peak_op, *peak_source; /* NULL: nothing runs; no source line is known */
};

/* A change of the options, of which a plan was made. */
struct ul_report_remedy {
    const char *kind;   /* "precision" */
    const char *change; /* "--precision bf16" */
    bool
        is_applied; /* the plan has it: the figures are of the plan without it, which `change` is */
    bool keeps_bits; /* results are bit for bit those of the plan */
    bool fits;
    uint64_t reserved_bytes, process_bytes;
    enum ul_report_owner owner; /* as of a case */
    uint64_t cost;              /* the same */
    int64_t saved_bytes; /* of the plan's: of what a budget bounds, or of the buffer where the
                            process is of another owner */
    int64_t extra_cost;  /* for as many samples */
};
/* The most changes that are planned for advice, and rungs of the ladder that are remedies. */
enum { UL_REPORT_CHANGES = 24, UL_REPORT_RUNGS = 3 };
struct ul_report_advice {
    bool is_made;
    uint32_t tried_count; /* plans with other options that were made for it */
    uint32_t remedy_count;
    struct ul_report_remedy *remedies; /* the best first, then those that are applied */
};

/* A table of them: each takes one value of each axis, the last axis changing fastest. */
struct ul_report_axis {
    const char *option; /* "dim" */
    const char *label;  /* "batch" */
    uint32_t count;
    const char *const *values;
};
struct ul_report_table {
    const char *model_name;   /* of several, one behind the other */
    const char *model_sha256; /* NULL: there are several, and each case has its own */
    uint32_t option_count;    /* said of all alike */
    const struct ul_report_option *options;
    uint32_t axis_count, case_count;
    const struct ul_report_axis *axes;
    const struct ul_report_case *cases;
};

/* A product that a model of integers computes in floats. */
struct ul_report_float {
    const char *node, *op;
    const char *why; /* a clause */
};

struct ul_report {
    const struct ul_problem *problem;
    const struct ul_plan *plan;
    const char *model_name; /* file name without folders */
    const char *model_sha256;
    int64_t opset; /* of ai.onnx; 0: not known */
    const char *target;
    const char *library;     /* of the target, by name; NULL: none */
    uint32_t uncalled_count; /* products of 16 bits that it does not compute */
    uint32_t float_count;
    const struct ul_report_float *floats;
    const char *cudnn;     /* "on", "found", "not found" or "off"; NULL: none of the target's */
    uint64_t budget_bytes; /* 0: none */
    bool budget_of_arena;  /* it bounds the buffer alone */
    const char *device;    /* that it has to fit, and its memory; or NULL */
    uint64_t device_bytes;
    uint64_t step_cost; /* predicted, of all micro-batches of a step */
    struct ul_report_process process;
    struct ul_report_flash flash;
    struct ul_report_launches launches;
    struct ul_report_training training;
    struct ul_report_largest largest;
    struct ul_report_parts parts;
    struct ul_report_advice advice;
    const struct ul_plan_ladder
        *ladder; /* with the plans of other budgets; NULL: it was not made */
    uint32_t option_count;
    const struct ul_report_option *options;
    const struct ul_report_step *steps;       /* per problem step */
    const struct ul_report_value *values;     /* per problem value */
    const struct ul_report_variant *variants; /* per variant of a ladder; NULL: there is but one */
    const struct ul_report_readers *readers;  /* json.c finds them */
};

/* readers.c: who uses what of the plan, found from its positions. */

struct ul_report_readers {
    const uint32_t *first;     /* per range, and one more: of its readers in `positions` */
    const uint32_t *positions; /* ascending for each range */
    uint32_t forward_count;    /* steps of the problem before the backward pass; 0: none */
};
void ul_report_find_readers(const struct ul_report *report, struct ul_arena *arena,
                            struct ul_report_readers *readers);

/* facts.c */

/* The value of the first option of that name, or NULL. */
const char *ul_report_option(const struct ul_report *report, const char *name);

/* The names of the rows, in order: the classes, then alignment, holes, unaccounted. */
enum { UL_REPORT_ROW_COUNT = UL_PLAN_CLASS_COUNT + 3 };
const char *ul_report_row_name(uint32_t row);
/* A plan that has none of it says nothing of it. */
bool ul_report_row_is_optional(uint32_t row);
uint64_t ul_report_row_bytes(const struct ul_report *report, uint32_t row);
/* The same for people: with blanks. */
const char *ul_report_row_label(struct ul_arena *arena, uint32_t row);
/* One unit for a whole summary of so many bytes, so that its columns add up to the eye. */
struct ul_report_unit {
    const char *name;
    double bytes;
};
struct ul_report_unit ul_report_unit_of(uint64_t reserved_bytes);
/* How many columns a name takes as people may read it (ul_text_put_shown). */
size_t ul_report_name_columns(struct ul_arena *arena, const char *name);
/* A name so, in at most so many columns, or 4 where that is more; cut in the middle. */
const char *ul_report_fit_name(struct ul_arena *arena, const char *name, size_t columns);

/* What every program of this model needs, however its steps are split: weights, with all inputs or
 * all outputs of an entry point; where splits were no choice, the lower bound of the program. What
 * models take that share its arena does not count. */
uint64_t ul_report_floor_bytes(const struct ul_report *report);
/* Files do not number the spaces that are beside, which are parts of the process: the index that
 * they give a space (or, for the count of all, how many there are), and the space of an index. */
uint32_t ul_report_space_index(const struct ul_problem *problem, uint32_t space);
uint32_t ul_report_space_at(const struct ul_problem *problem, uint32_t index);
/* What a plan copies between spaces; the cost that nothing hides is part of the plan's. */
struct ul_report_transfers {
    uint32_t save_count, load_count;
    uint64_t saved_bytes, loaded_bytes;
    uint64_t exposed_cost;
};
void ul_report_count_transfers(const struct ul_report *report,
                               struct ul_report_transfers *transfers);
/* What the plan does at a position; transfers and waits are no steps of the problem. */
struct ul_report_step ul_report_step_at(const struct ul_report *report, uint32_t position);
/* Up to `wanted` steps that need most by themselves, in order, and what beside what always lives:
 * below the first no plan is. Returns how many. */
uint32_t ul_report_blockers(const struct ul_report *report, struct ul_arena *arena, uint32_t wanted,
                            uint32_t *steps, uint64_t *need_bytes);
/* How many runs of steps of a plan are recomputations. */
uint32_t ul_report_recomputed(const struct ul_plan *plan);
/* How many runs of steps are recomputations, and their operations as a part of all others'. */
double ul_report_repeated(const struct ul_report *report, uint32_t *count);
/* Ranges alive at the peak other than weights and optimizer state, of an alias chain its newest
 * member; the `wanted` biggest first, in order. Returns how many there are. */
uint32_t ul_report_alive(const struct ul_report *report, struct ul_arena *arena, uint32_t wanted,
                         uint32_t **alive);

/* Moves those of the `wanted` largest sizes to the front, in order; ties by index. */
void ul_report_biggest_first(const uint64_t *sizes, uint32_t *alive, uint32_t count,
                             uint32_t wanted);

/* json.c: the text of plan.json (docs/plan-format.md). */

void ul_report_put_json(struct ul_text *text, const struct ul_report *report);
/* The member `options`, pairs of a name and a value. */
void ul_report_put_options_json(struct ul_text *text, const struct ul_report_option *options,
                                uint32_t count);
/* Parts of a process, in the order of plan.json. */
enum ul_saved_part {
    UL_SAVED_BUFFER,
    UL_SAVED_LIBRARY,
    UL_SAVED_CODE,
    UL_SAVED_STACKS,
    UL_SAVED_RUNTIME,
    UL_SAVED_PART_COUNT
};
const char *ul_saved_part_name(enum ul_saved_part part);

/* Reads a plan back onto `problem`; options and hash are returned for the caller to compare. */
struct ul_report_header {
    const char *model_sha256;
    const char *target;
    uint64_t alignment_bytes; /* of every range */
    uint64_t process_bytes;   /* UINT64_MAX: an older plan, which says nothing of it */
    uint64_t process_parts[UL_SAVED_PART_COUNT]; /* which add up to it */
    bool is_whole_process;                       /* not a caller's */
    bool peaks_at_start;
    bool lacks_context, lacks_library; /* on a device: they are not in the sum */
    const char *device;                /* that it has to fit, or NULL */
    uint64_t device_bytes;
    uint32_t option_count;
    const struct ul_report_option *options;
};
enum ul_status ul_report_read_header(struct ul_arena *arena, const char *json, size_t length,
                                     struct ul_report_header *header,
                                     struct ul_diag *diag) UL_MUST_CHECK;
enum ul_status ul_report_read_plan(struct ul_arena *arena, const char *json, size_t length,
                                   const struct ul_problem *problem, struct ul_plan *plan,
                                   struct ul_diag *diag) UL_MUST_CHECK;

/* "program": as plan.json says it. */
const char *ul_report_owner_name(enum ul_report_owner owner);
enum ul_report_owner ul_report_owner_of(const struct ul_report_process *process);

/* What a plan.json says that its model does not determine, as lists of its keys, "proven, method":
 * all that `check` can do is to hold it against the rest. */
struct ul_report_words {
    const char *planners; /* a search found it: the planner's word */
    const char *given;    /* it says what was asked for, and by whom */
    const char *chosen;   /* another value may hold as well */
};

/* said.c: what a plan.json says beside its positions and ranges, against the text of the same plan
 * that its reader has described again; UL_MISMATCH names the key, the entry and both values.
 * `sample_count` is that of a step of the program, or 0. */
enum ul_status ul_report_check_said(struct ul_arena *arena, const char *said, size_t said_length,
                                    const struct ul_text *own, uint64_t sample_count,
                                    struct ul_report_words *words,
                                    struct ul_diag *diag) UL_MUST_CHECK;

/* calls.c: what of the rows is there for the calls of a library; 0 where there are none. */

bool ul_report_has_calls(const struct ul_report *report);
/* By which weights are longer than their elements. */
uint64_t ul_report_packing_bytes(const struct ul_report *report);
/* Bytes of the weights, wherever they lie, by the type of their elements. False: none has 8 bits or
 * fewer, and there is nothing to tell. */
bool ul_report_weight_bytes(const struct ul_report *report, uint64_t bytes[UL_DTYPE_COUNT]);
/* At the peak, of activations that kernels write and calls alone read. */
uint64_t ul_report_operand_bytes(const struct ul_report *report, struct ul_arena *arena);

/* precision.c: what is in f32 where --precision asks for 16 bits, by reason, that of most bytes
 * first; none without the option. Each value counts once, whenever and however often it lies in
 * the plan. */
struct ul_report_kept {
    enum ul_kept kept;
    uint64_t bytes;
    uint32_t value_count;
    const uint32_t *values; /* of the problem */
};
uint32_t ul_report_list_kept(const struct ul_report *report, struct ul_arena *arena,
                             struct ul_report_kept kept[UL_KEPT_COUNT]);
/* What such a reason is, of values. */
const char *ul_report_kept_text(enum ul_kept kept);

/* precision.c: --precision, "fp16" or "bf16"; NULL: all of f32 is stored as that. */
const char *ul_report_precision(const struct ul_report *report);
/* How many weights stay f32, since 16 bits lack numbers of theirs. */
uint32_t ul_report_too_large(const struct ul_report *report);
/* What storing in 16 bits saves, of what lies in the arena at the peak. */
uint64_t ul_report_precision_bytes(const struct ul_report *report, struct ul_arena *arena);

/* training.c: lines of the summary, with the gradients' bytes at the peak; and a member of
 * plan.json and of a ladder's. */
void ul_report_put_training(struct ul_text *text, const struct ul_report_training *training,
                            const char *optimizer, uint64_t gradient_bytes);
void ul_report_put_training_json(struct ul_text *text, const struct ul_report *report);

/* ladder.c: one row a plan, from the plan without a budget to the smallest. */
void ul_report_put_ladder_text(struct ul_text *text, const struct ul_report *report,
                               const struct ul_plan_ladder *ladder);
void ul_report_put_ladder_csv(struct ul_text *text, const struct ul_report *report,
                              const struct ul_plan_ladder *ladder);
void ul_report_put_ladder_json(struct ul_text *text, const struct ul_report *report,
                               const struct ul_plan_ladder *ladder);

/* The plans as the member `ladder` of plan.json. */
void ul_report_put_rungs_json(struct ul_text *text, const struct ul_report *report,
                              const struct ul_plan_ladder *ladder);

/* advice.c: members of plan.json: the steps that need most, remedies, and the ladder. */
void ul_report_put_advice_json(struct ul_text *text, const struct ul_report *report);

/* what_if.c: one row a case. */

/* The value of an axis that a case has. */
const char *ul_report_table_value(const struct ul_report_table *table, uint32_t index,
                                  uint32_t axis);
/* Whether no other case of the table is better in bytes and in time for a sample. */
bool ul_report_table_is_best(const struct ul_report_table *table, uint32_t index);
void ul_report_put_table_text(struct ul_text *text, const struct ul_report_table *table,
                              uint32_t columns);
void ul_report_put_table_csv(struct ul_text *text, const struct ul_report_table *table);
void ul_report_put_table_json(struct ul_text *text, const struct ul_report_table *table);
/* The members of one that is a plan, without braces. */
void ul_report_put_case_json(struct ul_text *text, const struct ul_report_case *row);

#endif
