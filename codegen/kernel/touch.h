/* SPDX-License-Identifier: Apache-2.0 */
/* What the iterations of a nest of loops touch: what keeps them from running at the same time, and
 * what each of them needs of its own. Only for the schedules of codegen/.
 *
 * The lowering marks independent iterations (UL_FOR_PARALLEL). Even so, they cannot be spread when
 * they set an outer variable, or store to a place that does not depend on the iteration and that
 * other statements use. Such a place that no other statement uses is private to each. Ownership:
 * everything lives in the arena given. Nothing fails. */
#ifndef UL_TOUCH_H
#define UL_TOUCH_H

#include "ir/kernel.h"

struct ul_touched {
    const struct ul_kernel *kernel;
    uint8_t *levels;   /* by variable: bit i, its value depends on loop i */
    uint8_t all;       /* loops of more than one round */
    bool *is_declared; /* by variable: inside */
    bool *is_private;  /* by buffer: some store hits the same place in several iterations */
    uint32_t *uses;    /* by buffer: loads and stores */
    bool sets_outside; /* a variable that is declared outside */
    bool changed;
};

/* The body of the innermost of `count` loops, outermost first, at most 8, with rounds[i] of
 * loops[i]. */
void ul_touch_loops(struct ul_touched *touched, const struct ul_kernel *kernel, const ul_ks *loops,
                    const int64_t *rounds, uint32_t count, struct ul_arena *arena);
/* The whole kernel: only `uses` is valid. */
void ul_touch_kernel(struct ul_touched *touched, const struct ul_kernel *kernel,
                     struct ul_arena *arena);
/* Whether every value of the expression is an index that depends only on loops and names: it loads
 * nothing, and reads no variable that is set later. */
bool ul_is_index_only(const struct ul_kernel *kernel, ul_kx id);
/* The only loop of independent iterations in a list that otherwise has only names of indexes before
 * it, or UL_NONE. */
ul_ks ul_only_loop(const struct ul_kernel *kernel, ul_ks first);
/* The first statement list inside a statement; the other one is its orelse. */
ul_ks ul_ks_inside(const struct ul_kernel *kernel, const struct ul_ks_data *stmt);

/* The variables and buffers that statements name. */
struct ul_mentions {
    const struct ul_kernel *kernel;
    const bool *used; /* by variable: definitions of others are ignored */
    bool *vars;
    bool *buffers;
};
void ul_mentions_init(struct ul_mentions *mentions, const struct ul_kernel *kernel,
                      const bool *used, struct ul_arena *arena);
void ul_mention_expr(struct ul_mentions *mentions, ul_kx id);
/* One statement and everything inside it; the statements [first, end) of one list. */
void ul_mention(struct ul_mentions *mentions, ul_ks id);
void ul_mention_list(struct ul_mentions *mentions, ul_ks first, ul_ks end);

#endif
