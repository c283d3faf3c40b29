/* A plan.json read without its model: what reports of saved plans are made of.
 *
 * Invariants: indices are in range (aliases, the peak, positions of ranges, classes); whether the
 * plan holds is for `check`, which has the model. Ownership: everything lives in the arena.
 * Units: bytes. Failure: UL_INVALID with the key that is wrong. */
#ifndef UL_REPORT_SAVED_H
#define UL_REPORT_SAVED_H

#include "report/report.h"

struct ul_saved_step {
    const char *name, *op, *node;
    uint32_t copy; /* the number of the recomputation, or 0 */
};

struct ul_saved_range {
    const char *name; /* "": scratch of the step at `begin` */
    const char *type;
    uint32_t copy, space, alias; /* `alias`: the range whose bytes it takes over, or UL_PLAN_NONE */
    enum ul_plan_class class;
    uint64_t offset_bytes, size_bytes;
    uint32_t begin, end; /* positions, half-open */
};

struct ul_saved {
    const char *model, *model_sha256, *target;
    uint64_t reserved_bytes, process_bytes; /* of the process UINT64_MAX: it says nothing */
    uint64_t rows[UL_REPORT_ROW_COUNT];     /* at the peak: ul_report_row_name */
    uint32_t peak_step;
    uint64_t cost;
    uint32_t option_count, step_count, range_count;
    const struct ul_report_option *options;
    const struct ul_saved_step *steps; /* one a position */
    const struct ul_saved_range *ranges;
};

/* saved.c */
enum ul_status ul_saved_read(struct ul_arena *arena, const char *text, size_t length,
                             struct ul_saved *saved, struct ul_diag *diag) UL_MUST_CHECK;
/* Ranges of the arena alive at the peak, of an alias chain its newest member, in file order;
 * returns how many there are. */
uint32_t ul_saved_alive(const struct ul_saved *saved, struct ul_arena *arena, uint32_t **alive);

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
void ul_diff_put_text(struct ul_text *text, const struct ul_diff *diff);
void ul_diff_put_json(struct ul_text *text, const struct ul_diff *diff);

#endif
