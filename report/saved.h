/* SPDX-License-Identifier: Apache-2.0 */
/* A plan.json read without its model, for reports of saved plans.
 *
 * Invariants: indices are in range (aliases, the peak, positions of ranges, classes); only `check`,
 * which has the model, can say whether the plan is valid. Ownership: everything lives in the arena.
 * Units: bytes. Failure: UL_INVALID with the key that is wrong. */
#ifndef UL_REPORT_SAVED_H
#define UL_REPORT_SAVED_H

#include "report/report.h"

/* saved.c */
enum ul_status ul_saved_read(struct ul_arena *arena, const char *text, size_t length,
                             struct ul_saved *saved, struct ul_diag *diag) UL_MUST_CHECK;
/* Whether the budget bounds only the buffer. */
bool ul_saved_bounds_buffer(const struct ul_saved *saved);
/* read_plan.c: whether the process is the program's; a caller's has neither the program's code nor
 * its runtime. */
bool ul_saved_is_whole(const struct ul_saved *saved);
/* Whether process bytes are those of a device. */
bool ul_saved_is_of_device(const struct ul_saved *saved);
/* What --max-batch or --max-dim planned, or NULL. */
const struct ul_saved_search *ul_saved_largest(const struct ul_saved *saved);
/* The step that makes it; NULL: it is an input or weight. */
const struct ul_saved_step *ul_saved_maker(const struct ul_saved *saved,
                                           const struct ul_saved_range *range);
/* The remedy that fits for the least additional time, where the plan does not fit; NULL: none is
 * known. */
const struct ul_saved_remedy *ul_saved_cheapest(const struct ul_saved *saved);
/* The value of the first option of that name, or NULL. */
const char *ul_saved_option(const struct ul_saved *saved, const char *name);
/* Whether the plan was made with that option and value. */
bool ul_saved_has_option(const struct ul_saved *saved, const char *name, const char *value);
/* The range's name; for scratch the name of its step. */
const char *ul_saved_range_name(const struct ul_saved *saved, struct ul_arena *arena,
                                uint32_t range);
/* How people call a kind of change that remedies make, such as "split": in a word or two, and as a
 * sentence; NULL: a kind that is not known. */
struct ul_remedy_kind {
    const char *kind, *label, *sentence;
};
const struct ul_remedy_kind *ul_remedy_kind_find(const char *kind);
/* Ranges of the arena alive at the peak, the newest member of each alias chain, in file order.
 * Returns how many there are. */
uint32_t ul_saved_alive(const struct ul_saved *saved, struct ul_arena *arena, uint32_t **alive);

/* Live bytes of the arena by position: a row for each class and one for alignment, each of
 * step_count entries (1 where there is no step). At the peak they equal the plan's rows. Returns
 * their sums. */
enum { UL_SAVED_CURVES = UL_PLAN_CLASS_COUNT + 1 };
uint64_t *ul_saved_curves(const struct ul_saved *saved, struct ul_arena *arena,
                          uint64_t *curves[UL_SAVED_CURVES]);

/* summary.c: the plan for the terminal, in less than 40 lines: verdict, sum table, curve of live
 * bytes, what lives at the peak, what makes it smaller, bounds. */
struct ul_summary_style {
    uint32_t columns;      /* for paragraphs and the curve, at least 80 */
    uint32_t line_columns; /* for lines with a name, at least `columns` */
    bool is_utf8;          /* the curve may use block characters */
    bool has_colors;
};
void ul_summary_put(struct ul_text *text, const struct ul_saved *saved,
                    const struct ul_summary_style *style);

/* trace.c: a trace for Perfetto, in the trace-event format, where a step lasts a microsecond. Steps
 * are slices of one track, values are asynchronous slices, and live bytes a counter for each
 * class. */
void ul_trace_put(struct ul_text *text, const struct ul_saved *saved);

/* html/html.c: the planning report, one file without a network; `baseline` may be NULL. */
void ul_html_put(struct ul_text *text, const struct ul_saved *saved,
                 const struct ul_saved *baseline);

/* csv.c: RFC 4180, with a line for each live range, or for each step. */
void ul_csv_put_values(struct ul_text *text, const struct ul_saved *saved);
void ul_csv_put_steps(struct ul_text *text, const struct ul_saved *saved);

/* diff.c: what grew and what shrank from one plan to another, by class, and by values alive at the
 * two peaks. */

/* A value whose size differs at the two plans' peaks. */
struct ul_diff_value {
    const char *name;
    uint64_t old_bytes, new_bytes; /* 0: it is not alive there */
    const char *op, *node; /* the step that makes it, in the new plan if that has it; NULL: an input
                              or weight */
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
