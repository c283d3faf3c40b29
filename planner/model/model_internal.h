/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by problem_text.c and plan_text.c. */
#ifndef UL_PLANNER_MODEL_INTERNAL_H
#define UL_PLANNER_MODEL_INTERNAL_H

#include "base/base.h"

/* Whether bytes of that form begin with this word, after blank lines, lines that begin with '#',
 * and indentation. */
bool ul_model_text_begins(const char *text, uint64_t size_bytes, const char *word);
/* The id of a new object, which must be the next one. */
enum ul_status ul_model_text_id(struct ul_scan *scan, uint32_t next) UL_MUST_CHECK;
/* The word's number, if the word comes here. */
enum ul_status ul_model_text_option(struct ul_scan *scan, const char *word,
                                    uint32_t *number) UL_MUST_CHECK;

#endif
