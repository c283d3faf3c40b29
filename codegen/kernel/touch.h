/* SPDX-License-Identifier: Apache-2.0 */
/* What the iterations of a nest of loops touch: what keeps them from running at the same time, and
 * what each of them needs of its own. For the schedules of codegen/ alone.
 *
 * Which iterations are independent, the lowering knows (UL_FOR_PARALLEL); they cannot be spread all
 * the same when they set a variable from outside, or store to a place that does not depend on the
 * iteration and that somebody else uses. Such a place that nobody else uses is private to each.
 * Ownership: everything lives in the arena given. Nothing fails.
 */
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

/* The body of the innermost of `count` loops, outermost first, at most 8; rounds[i] of loops[i]. */
void ul_touch_loops(struct ul_touched *touched, const struct ul_kernel *kernel, const ul_ks *loops,
                    const int64_t *rounds, uint32_t count, struct ul_arena *arena);
/* The whole kernel: only `uses` says something. */
void ul_touch_kernel(struct ul_touched *touched, const struct ul_kernel *kernel,
                     struct ul_arena *arena);
/* Every value of the expression is an index that loops and names alone give: it loads nothing, and
 * reads no variable that is set later. */
bool ul_is_index_only(const struct ul_kernel *kernel, ul_kx id);
/* The one loop of independent iterations that a list consists of, but for names of indexes before
 * it, or UL_NONE. */
ul_ks ul_only_loop(const struct ul_kernel *kernel, ul_ks first);
/* The first statement list inside of a statement; the other one is its orelse. */
ul_ks ul_ks_inside(const struct ul_kernel *kernel, const struct ul_ks_data *stmt);

/* Which variables and buffers statements name. */
struct ul_mentions {
    const struct ul_kernel *kernel;
    const bool *used; /* by variable: what defines others is not looked at */
    bool *vars;
    bool *buffers;
};
void ul_mentions_init(struct ul_mentions *mentions, const struct ul_kernel *kernel,
                      const bool *used, struct ul_arena *arena);
void ul_mention_expr(struct ul_mentions *mentions, ul_kx id);
/* One statement and all inside of it; the statements [first, end) of one list. */
void ul_mention(struct ul_mentions *mentions, ul_ks id);
void ul_mention_list(struct ul_mentions *mentions, ul_ks first, ul_ks end);

#endif
