/* SPDX-License-Identifier: Apache-2.0 */
/* A plan.json read without its model: what reports of saved plans are made of.
 *
 * Invariants: indices are in range (aliases, the peak, positions of ranges, classes); whether the
 * plan holds is for `check`, which has the model. Ownership: everything lives in the arena.
 * Units: bytes. Failure: UL_INVALID with the key that is wrong. */
#ifndef UL_REPORT_SAVED_H
#define UL_REPORT_SAVED_H

#include "report/report.h"

struct ul_saved_step {
    const char *name, *op, *node, *implementation;
    const char *source; /* the line of the author's source, or "" */
    const char *pass;   /* "forward", "backward", or "" */
    uint32_t copy;      /* the number of the recomputation, or 0 */
    uint64_t flop_count, moved_bytes;
};

struct ul_saved_range {
    bool is_scratch; /* of the step at `begin` */
    const char *name;
    const char *type;
    uint32_t copy, space, alias; /* `alias`: the range whose bytes it takes over, or UL_PLAN_NONE */
    enum ul_plan_class class;
    uint64_t offset_bytes, size_bytes;
    uint32_t begin, end; /* positions, half-open */
    uint32_t reader_count;
    const uint32_t *readers; /* positions in it, ascending */
};

/* A space of the plan other than the arena. */
struct ul_saved_space {
    const char *name;
    uint64_t reserved_bytes;
};

/* A change of the model or of the options, of which a plan was made: this plan is without it, or,
 * where `is_applied`, has it, and the figures are of the plan without. */
struct ul_saved_remedy {
    const char *kind, *change;
    const char
        *process_of; /* whose its process is, where that is another's than the plan's; or "" */
    bool is_applied, fits, keeps_bits;
    uint64_t reserved_bytes, process_bytes, cost;
    /* The plan that is changed saves so many of this plan's bytes and takes so much more time.
     * Below 0 it takes more bytes, or less time. The bytes are those of the buffer where the
     * process is another's. */
    int64_t saved_bytes, extra_cost;
};

/* A plan of the same model with less memory. */
struct ul_saved_rung {
    uint64_t reserved_bytes, process_bytes, cost;
    uint64_t recomputed_steps, splits, row_major, inside;
};

/* A step whose working set is what the lower bound stands on. */
struct ul_saved_blocker {
    uint32_t step; /* position */
    uint64_t bytes;
};

/* A size that was planned to find the largest that fits, or a number of micro-batches to find that
 * of the least time. */
struct ul_saved_tried {
    uint64_t size, bytes, cost; /* bytes of what the budget bounds; of a size no cost is said */
    bool fits;
};
struct ul_saved_search {
    const char *name; /* "batch", a dimension's, "micro-batches"; NULL: there was none */
    const char *why;  /* it is not larger, or "" */
    uint64_t size;    /* that was taken */
    uint32_t tried_count;
    const struct ul_saved_tried *tried;
};

struct ul_saved_kept {
    const char *why;
    uint64_t count, bytes; /* of values */
};

/* What a plan says of itself beside its rows; an older one says less: numbers are 0, texts "". */
struct ul_saved_facts {
    const char *tool;
    uint64_t opset;
    uint64_t order_lower_bound_bytes, orders_lower_bound_bytes, lower_bound_bytes;
    uint64_t budget_bytes, smallest_budget_bytes;
    const char *device; /* that it has to fit, or "" */
    uint64_t device_bytes;
    bool budget_of_arena;
    bool fits, proven, optimal, stopped_by_time;
    uint64_t parts[UL_SAVED_PART_COUNT];
    uint64_t base_cost, cost_bound;
    uint64_t step_cost;               /* 0: that of a run */
    const char *order, *remat, *pack; /* methods */
    uint64_t packing_bytes, operand_bytes;
    bool has_launches;
    uint64_t launch_count, call_count;             /* of a run on a device */
    uint64_t shared_ns;                            /* that it takes less than `cost` says */
    uint64_t beside_count, wait_count;             /* of steps on a second stream */
    uint64_t type_bytes[UL_DTYPE_COUNT];           /* of weights; all 0: it does not say */
    uint32_t float_count;                          /* products of a quantized model in floats */
    const char *float_node, *float_op, *float_why; /* the first */
    uint64_t parameter_count;                      /* 0: it does not train */
    const char *library;                           /* that computes some steps, or "" */
    const char *cudnn;                             /* "on", "found", "not found", "off", or "" */
    const char *cost_bound_method, *optimal_within;
    bool peaks_at_start, lacks_context, lacks_library;         /* of the process */
    uint64_t flash_weight_bytes, flash_code_bytes;             /* 0: it has no code there */
    uint64_t precision_bytes, too_large_count, uncalled_count; /* of option precision */
    uint32_t kept_count;              /* reasons why something is f32 all the same */
    const struct ul_saved_kept *kept; /* the one of most bytes first */
    uint64_t save_count, load_count, saved_bytes, loaded_bytes, exposed_cost; /* of transfers */
    struct ul_report_training training;
    uint32_t space_count;
    const struct ul_saved_space *spaces; /* the first is the arena */
    bool has_remedies, has_ladder, has_blockers;
    uint32_t remedy_count, rung_count, blocker_count;
    uint64_t tried_count; /* plans that were made for the remedies */
    struct ul_saved_remedy *remedies;
    const struct ul_saved_rung *rungs;
    const struct ul_saved_blocker *blockers;
    struct ul_saved_search largest;       /* --max-batch, --max-dim */
    struct ul_saved_search micro_batches; /* --micro-batches auto */
};

struct ul_saved {
    struct ul_saved_facts facts;
    bool is_checked;  /* who drew it has checked it, on the program of its model; of a file that was
                         read nobody has */
    bool has_readers; /* an older plan does not say who reads what */
    const char *model, *model_sha256, *target;
    uint64_t reserved_bytes, process_bytes; /* of the process UINT64_MAX: it says nothing */
    uint64_t rows[UL_REPORT_ROW_COUNT];     /* at the peak: ul_report_row_name */
    uint64_t alignment_bytes;               /* of every range */
    uint32_t peak_step;
    uint64_t cost;
    uint32_t option_count, step_count, range_count;
    const struct ul_report_option *options;
    const struct ul_saved_step *steps; /* one a position */
    const struct ul_saved_range *ranges;
};

/* saved_facts.c: for saved.c, which has read the steps. */
struct ul_json;
enum ul_status ul_saved_read_facts(struct ul_json *json, struct ul_saved *saved) UL_MUST_CHECK;

/* saved.c */
enum ul_status ul_saved_read(struct ul_arena *arena, const char *text, size_t length,
                             struct ul_saved *saved, struct ul_diag *diag) UL_MUST_CHECK;
/* The step that makes it; NULL: it is given. */
const struct ul_saved_step *ul_saved_maker(const struct ul_saved *saved,
                                           const struct ul_saved_range *range);
/* The remedy that fits for the least time more, where the plan does not; NULL: none is known. */
const struct ul_saved_remedy *ul_saved_cheapest(const struct ul_saved *saved);
/* The value of the first option of that name, or NULL. */
const char *ul_saved_option(const struct ul_saved *saved, const char *name);
/* Its name; of scratch that of its step. */
const char *ul_saved_range_name(const struct ul_saved *saved, struct ul_arena *arena,
                                uint32_t range);
/* Ranges of the arena alive at the peak, of an alias chain its newest member, in file order;
 * returns how many there are. */
uint32_t ul_saved_alive(const struct ul_saved *saved, struct ul_arena *arena, uint32_t **alive);

/* Live bytes of the arena by position: a row for each class and one for alignment, each of
 * step_count entries (1 where there is no step). At the peak they are the plan's rows. */
enum { UL_SAVED_CURVES = UL_PLAN_CLASS_COUNT + 1 };
void ul_saved_curves(const struct ul_saved *saved, struct ul_arena *arena,
                     uint64_t *curves[UL_SAVED_CURVES]);

/* summary.c: the plan for the terminal, in less than 40 lines: verdict, sum table, curve of live
 * bytes, what lives at the peak, what makes it smaller, bounds. */
struct ul_summary_style {
    uint32_t columns;      /* of paragraphs and of the curve, at least 80 */
    uint32_t line_columns; /* where a line with a name ends, at least `columns` */
    bool is_utf8;          /* the curve may be drawn in blocks */
    bool has_colors;
};
void ul_summary_put(struct ul_text *text, const struct ul_saved *saved,
                    const struct ul_summary_style *style);

/* trace.c: for Perfetto, in the trace-event format: a step lasts a microsecond. Steps are slices of
 * one track, values are asynchronous slices, live bytes a counter of each class. */
void ul_trace_put(struct ul_text *text, const struct ul_saved *saved);

/* html/html.c: the planning report, one file without a network; `baseline` may be NULL. */
void ul_html_put(struct ul_text *text, const struct ul_saved *saved,
                 const struct ul_saved *baseline);

/* csv.c: by RFC 4180, a line a live range, and a line a step. */
void ul_csv_put_values(struct ul_text *text, const struct ul_saved *saved);
void ul_csv_put_steps(struct ul_text *text, const struct ul_saved *saved);

/* diff.c: what grew and what shrank from one plan to another, by class, and by the values alive at
 * the two peaks. */

/* A value that takes another size at the new plan's peak than at the old one's. */
struct ul_diff_value {
    const char *name;
    uint64_t old_bytes, new_bytes; /* 0: it is not there */
    const char *op, *node;         /* of the step that makes it, in the new plan where it is there;
                                      NULL: it is given */
};
struct ul_diff {
    const struct ul_saved *old, *new;
    const struct ul_diff_value *values; /* the largest change first */
    uint32_t value_count;
    double growth; /* of reserved bytes, as a fraction of the old plan's */
};
void ul_diff_make(struct ul_arena *arena, const struct ul_saved *old, const struct ul_saved *new,
                  struct ul_diff *diff);
void ul_diff_put_text(struct ul_text *text, const struct ul_diff *diff, uint32_t columns);
void ul_diff_put_json(struct ul_text *text, const struct ul_diff *diff);

#endif
