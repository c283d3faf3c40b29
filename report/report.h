/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for people and for machines: plan.json, the terminal's summary.
 *
 * Invariants: everything printed comes from the plan and its description, never from a second
 * computation; the same plan gives the same bytes. No time, date or path is written. Ownership:
 * texts live in the arena passed in. Units: bytes; `overhead` and `gap` are fractions. Failure: a
 * plan.json that does not parse is UL_INVALID with the key that is wrong. */
#ifndef UL_REPORT_H
#define UL_REPORT_H

#include "report/facts.h"

struct ul_report_step {
    const char *name;
    const char *op;
    const char *node;
    const char *source; /* the line of the author's source that made the node, or NULL */
    uint64_t flop_count;
    uint64_t moved_bytes;
    bool is_call; /* a call of the target's library */
};

struct ul_report_value {
    const char *name;
    struct ul_type type;
    enum ul_dtype storage; /* type of its elements in memory: type.dtype, or 16 bits for an f32 */
    enum ul_kept kept;     /* why it is f32 where --precision asks for 16 bits */
    bool is_too_large;     /* a weight that stays f32, because its numbers do not fit 16 bits */
};

/* An alternative of the program: the chains that it computes in pieces, as option --split names
 * them; what it lays out as in the model, as in --row-major; and what its backward pass computes as
 * it is read, as in --inside. */
struct ul_report_alternative {
    uint32_t split_count, row_major_count, inside_count;
    const char *const *splits, *const *row_major, *const *inside;
    /* the problem of its plans; NULL: its steps and values are not known */
    const struct ul_problem *problem;
    const struct ul_report_step *steps;
    const struct ul_report_value *values;
    struct ul_process_overhead process; /* what its process takes besides its buffer */
};

/* The space of weights that are read-only data, where a plan has any. */
enum { UL_REPORT_READ_ONLY = 1 };

/* The most changes that are planned for advice, and the most rungs of the ladder that become
 * remedies. */
enum { UL_REPORT_CHANGES = 24, UL_REPORT_RUNGS = 3 };
struct ul_report {
    const struct ul_problem *problem;
    const struct ul_plan *plan;
    /* facts that neither of them has, nor the fields below: the model, the request, what is
     * trained and launched, the process, what else was planned */
    struct ul_saved facts;
    struct ul_process_overhead
        overhead; /* what the process takes besides the buffers of its plans */
    const struct ul_plan_ladder
        *ladder; /* the ladder of plans under other budgets; NULL: it was not made */
    const struct ul_report_step *steps;   /* by problem step */
    const struct ul_report_value *values; /* by problem value */
    const struct ul_report_alternative
        *alternatives; /* by alternative of a ladder; NULL: there is only one */
    const uint32_t
        *model_regions; /* by model of facts.models, or by piece: the region of its steps */
};

/* readers.c: the users of live ranges, found from the plan's positions. */

struct ul_report_readers {
    /* by range, with one more at the end: where its readers in `positions` begin */
    const uint32_t *first;
    const uint32_t *positions; /* ascending within each range */
    uint32_t forward_count;    /* steps of the problem before the backward pass; 0: none */
};
void ul_report_find_readers(const struct ul_report *report, struct ul_arena *arena,
                            struct ul_report_readers *readers);

/* facts.c, figures.c */

const char *ul_report_row_name(uint32_t row);
/* The same for people, with blanks. */
const char *ul_report_row_label(struct ul_arena *arena, uint32_t row);
/* One unit for a whole summary of so many bytes, so that its columns visibly add up. */
struct ul_report_unit {
    const char *name;
    double bytes;
};
struct ul_report_unit ul_report_unit_of(uint64_t reserved_bytes);
/* How many columns a name takes when it is made readable (ul_text_put_shown). */
size_t ul_report_name_columns(struct ul_arena *arena, const char *name);
/* The readable name cut in the middle to at most so many columns, but at least 4. */
const char *ul_report_fit_name(struct ul_arena *arena, const char *name, size_t columns);

/* The bytes that every program of this model needs, however its steps are split: weights, plus all
 * inputs or all outputs of an entry point; where there was no choice of splits, the lower bound of
 * the program. What other models in a shared arena take is not counted. */
uint64_t ul_report_floor_bytes(const struct ul_report *report);
/* The limit for every plan: the budget, or the sum of the problem's banks; 0: there is no such
 * limit. */
uint64_t ul_report_limit_bytes(const struct ul_problem *problem, const struct ul_saved *facts);
/* Files do not number spaces that are parts of the process. These give a space's index in files
 * (for the count of all spaces, how many have one), and the space of an index. */
uint32_t ul_report_space_index(const struct ul_problem *problem, uint32_t space);
uint32_t ul_report_space_at(const struct ul_problem *problem, uint32_t index);
/* The step that the plan runs at a position; transfers and waits are not steps of the problem. */
struct ul_report_step ul_report_step_at(const struct ul_report *report, uint32_t position);
/* Finds up to `wanted` steps that need most by themselves, in order, and how much besides what
 * always lives: no plan is below the first. Returns how many. */
uint32_t ul_report_blockers(const struct ul_report *report, struct ul_arena *arena, uint32_t wanted,
                            uint32_t *steps, uint64_t *need_bytes);
/* How many runs of steps in a plan are recomputations. */
uint32_t ul_report_recomputed(const struct ul_plan *plan);
/* Operations of recomputations as a fraction of all others. */
double ul_report_repeated(const struct ul_report *report);
/* Ranges alive at the peak other than weights and optimizer state, the newest member of each alias
 * chain; the `wanted` biggest come first, in order. Returns how many there are. */
uint32_t ul_report_alive(const struct ul_report *report, struct ul_arena *arena, uint32_t wanted,
                         uint32_t **alive);

/* Moves the `wanted` largest sizes to the front, in order; ties by index. */
void ul_report_biggest_first(const uint64_t *sizes, uint32_t *alive, uint32_t count,
                             uint32_t wanted);

/* save.c: the facts of plan.json (docs/plan-format.md), and its text. */

void ul_report_put_json(struct ul_text *text, const struct ul_report *report);
/* read_plan.c: reads a plan.json for `check` and --plan, which hold it against its model. */

/* All facts of the file; process, alignment and device must agree. */
enum ul_status ul_report_read_header(struct ul_arena *arena, const char *json, size_t length,
                                     struct ul_saved *header, struct ul_diag *diag) UL_MUST_CHECK;
/* The plan of the file, on `problem`. */
enum ul_status ul_report_read_plan(struct ul_arena *arena, const struct ul_saved *said,
                                   const struct ul_problem *problem, struct ul_plan *plan,
                                   struct ul_diag *diag) UL_MUST_CHECK;

/* What a plan.json says that its model does not determine, as lists of its keys, "proven, method":
 * `check` can only hold it against the rest of the file. */
struct ul_report_words {
    const char *planners; /* a search found it: the planner claims it */
    const char *given;    /* what was asked for, and by whom */
    const char *chosen;   /* another value may hold as well */
};

/* said.c: compares what a plan.json says besides its positions and ranges with the text of the same
 * plan, which its reader has described again. UL_MISMATCH names the key, the entry and both values.
 * `sample_count` is that of a step of the program, or 0. */
enum ul_status ul_report_check_said(struct ul_arena *arena, const char *said, size_t said_length,
                                    const struct ul_text *own, uint64_t sample_count,
                                    struct ul_report_words *words,
                                    struct ul_diag *diag) UL_MUST_CHECK;

/* calls.c: parts of the rows that exist for the calls of a library, and weights by type. */
void ul_report_save_calls(const struct ul_report *report, struct ul_arena *arena,
                          struct ul_saved *saved);

/* precision.c: with --precision, what 16 bits save, and what is f32 all the same, by reason. */
void ul_report_save_precision(const struct ul_report *report, struct ul_arena *arena,
                              struct ul_saved *saved);

/* training.c: lines of the summary, with the gradients' bytes at the peak. */
void ul_report_put_training(struct ul_text *text, const struct ul_saved_training *training,
                            const char *optimizer, uint64_t gradient_bytes);

/* ladder.c: one row for each plan, from the plan without a budget to the smallest. */
void ul_report_put_ladder_text(struct ul_text *text, const struct ul_report *report,
                               const struct ul_plan_ladder *ladder);
void ul_report_put_ladder_csv(struct ul_text *text, const struct ul_report *report,
                              const struct ul_plan_ladder *ladder);
void ul_report_put_ladder_json(struct ul_text *text, const struct ul_report *report,
                               const struct ul_plan_ladder *ladder);

/* The plans as facts, for pictures of them. */
void ul_report_save_ladder(const struct ul_report *report, struct ul_arena *arena,
                           struct ul_saved *saved);

/* what_if.c: one row for each case. */

void ul_report_put_table_text(struct ul_text *text, const struct ul_saved_table *table,
                              uint32_t columns);
void ul_report_put_table_csv(struct ul_text *text, const struct ul_saved_table *table);
void ul_report_put_table_json(struct ul_text *text, const struct ul_saved_table *table);

/* refusal.c */

enum { UL_REFUSAL_REMEDIES = 5 };
struct ul_refusal {
    uint64_t budget_bytes, needed_bytes;
    uint64_t offload_budget_bytes; /* 0: offloaded values are not bounded */
    const char *method; /* why a named method does not apply; NULL: it does, or none is named */
    bool keeps;         /* the caller said what a plan keeps */
    uint32_t remedy_count;
    const char *remedies[UL_REFUSAL_REMEDIES]; /* options that make a plan smaller */
};
/* The message where the report's plan offloads more than the other space has. */
const char *ul_report_offload_refusal(const struct ul_report *report, uint64_t reserved_bytes,
                                      uint64_t capacity_bytes, struct ul_arena *arena);
/* The message where the report's plan needs more than its budget. */
const char *ul_report_refusal(const struct ul_report *report, const struct ul_refusal *refusal,
                              struct ul_arena *arena);
/* The message where it does not fit its banks. `capacities` has by bank what suffices while the
 * others are as they are; 0: nothing is known to. */
const char *ul_report_bank_refusal(const struct ul_report *report, const struct ul_refusal *refusal,
                                   const uint64_t *capacities, struct ul_arena *arena);

#endif
