/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a plan.json by the rows of facts.def. The file may have been edited by hand: types and
 * ranges are checked here, and that no required fact is missing. Whether the facts agree is checked
 * elsewhere: in saved.c for reports, in read_plan.c and words.c for `check`.
 *
 * Ownership: what is read lives in the arena; the caller frees the root. Failure: UL_INVALID with
 * the key that is wrong, UL_UNSUPPORTED for another version. */
#ifndef UL_REPORT_JSON_IN_H
#define UL_REPORT_JSON_IN_H

#include "report/saved.h"

#include <jansson.h>

struct ul_json_reader {
    struct ul_arena *arena;
    struct ul_diag *diag;
    json_t *root; /* NULL where the text does not parse */
};

enum ul_status ul_json_parse(struct ul_json_reader *json, const char *text,
                             size_t length) UL_MUST_CHECK;
/* facts_read.c */
enum ul_status ul_facts_read(struct ul_json_reader *json, struct ul_saved *saved) UL_MUST_CHECK;
/* The same for a text. */
enum ul_status ul_facts_read_text(struct ul_arena *arena, const char *text, size_t length,
                                  struct ul_saved *saved, struct ul_diag *diag) UL_MUST_CHECK;
/* words.c: holds the planner's claims against the rest of the file, which is already checked;
 * UL_MISMATCH says what contradicts it. `sample_count` is that of a step of the program, or 0. */
enum ul_status ul_report_check_words(struct ul_json_reader *json,
                                     uint64_t sample_count) UL_MUST_CHECK;

#endif
