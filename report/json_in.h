/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a plan.json. The file may have been edited by hand: everything is checked for type and
 * range as it is read.
 *
 * Ownership: what is read lives in the arena; the root is the caller's to free. Failure: UL_INVALID
 * with the key that is wrong, UL_UNSUPPORTED for another version. */
#ifndef UL_REPORT_JSON_IN_H
#define UL_REPORT_JSON_IN_H

#include "report/report.h"

#include <jansson.h>

struct ul_json {
    struct ul_arena *arena;
    struct ul_diag *diag;
    json_t *root; /* NULL where it could not be parsed */
};

enum ul_status ul_json_parse(struct ul_json *json, const char *text, size_t length) UL_MUST_CHECK;
enum ul_status ul_json_string(struct ul_json *json, const json_t *object, const char *key,
                              const char **out) UL_MUST_CHECK;
enum ul_status ul_json_number(struct ul_json *json, const json_t *object, const char *key,
                              uint64_t max, uint64_t *out) UL_MUST_CHECK;
/* A row of "rows"; 0 where it is missing and a plan may do without. */
enum ul_status ul_json_row(struct ul_json *json, const json_t *rows, uint32_t row, uint64_t max,
                           uint64_t *out) UL_MUST_CHECK;
/* One column of a table as numbers, UL_PLAN_NONE for a null where `optional`; *count is set by the
 * `first` column and kept by the others. */
enum ul_status ul_json_column(struct ul_json *json, const char *table, const char *key,
                              bool optional, uint64_t max, uint64_t **out, uint32_t *count,
                              bool first) UL_MUST_CHECK;
/* The same as texts, "" for a null. */
enum ul_status ul_json_texts(struct ul_json *json, const char *table, const char *key,
                             const char ***out, uint32_t count) UL_MUST_CHECK;
/* The class of a range, by its name; NULL is none. */
enum ul_status ul_json_class(struct ul_json *json, const char *name, uint32_t range,
                             enum ul_plan_class *class) UL_MUST_CHECK;
/* words.c: what is the planner's word, against the rest of the file, which is held already;
 * UL_MISMATCH says what contradicts. `sample_count` is that of a step of the program, or 0. */
enum ul_status ul_report_check_words(struct ul_json *json, uint64_t sample_count) UL_MUST_CHECK;
/* The pairs of "options". */
enum ul_status ul_json_options(struct ul_json *json, const struct ul_report_option **options,
                               uint32_t *count) UL_MUST_CHECK;

#endif
