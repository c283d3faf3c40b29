/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by problem_text.c and plan_text.c. */
#ifndef UL_PLANNER_MODEL_INTERNAL_H
#define UL_PLANNER_MODEL_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* Whether bytes of that form begin with this word, after blank lines, lines that begin with '#',
 * and indentation. */
bool ul_model_text_begins(const char *text, uint64_t size_bytes, const char *word);

#endif
