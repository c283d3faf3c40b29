/* SPDX-License-Identifier: Apache-2.0 */
/* What problem_text.c and plan_text.c share. */
#ifndef UL_PLANNER_MODEL_INTERNAL_H
#define UL_PLANNER_MODEL_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* Whether bytes in that form begin with this word: behind blank lines, lines that begin with '#',
 * and indentation. */
bool ul_model_text_begins(const char *text, uint64_t size_bytes, const char *word);

#endif
