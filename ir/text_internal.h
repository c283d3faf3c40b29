/* SPDX-License-Identifier: Apache-2.0 */
/* What print.c and parse.c share: which constants the text leaves out. */
#ifndef UL_IR_TEXT_INTERNAL_H
#define UL_IR_TEXT_INTERNAL_H

#include "ir/graph.h"

/* Longer constants are printed as pool=K. */
enum { UL_TEXT_INLINE_BYTES = 64 };

/* print.c: the tensors behind pool=0, pool=1, ... in the order in which the text names them. */
const struct ul_tensor *const *ul_text_pool(const struct ul_graph *graph, struct ul_arena *arena,
                                            uint32_t *count);

/* print.c: the flags of a value that are words of the text, in its order; {0, NULL} at the end. */
struct ul_text_flag {
    uint32_t flag;
    const char *word;
};
extern const struct ul_text_flag ul_text_flags[];

#endif
