/* SPDX-License-Identifier: 0BSD */
/*
 * Functions after a call that the program computes itself: those with an exponential, for which the
 * library's own code takes two to three times as long (oneDNN 2.6 on Zen 4: 0.35-0.55 ns an
 * element, here 0.18-0.25).
 *
 * Invariants: every element is computed by itself and in the same way, so that its bits depend
 * neither on how the work is cut nor on the number of threads. NaN gives NaN, and infinities give
 * what ONNX's formulas give. Units: counts in elements. Ownership: all memory is the caller's.
 * Nothing fails. Pure C99. */
#ifndef UL_POSTS_H
#define UL_POSTS_H

#include "ul_call.h"

/* ---- ul_posts.c ---- */
/* y = f(y), where f reads nothing else: kinds before UL_POST_SUM. */
void ul_post_apply(const struct ul_post *post, float *y, int64_t count);
/* The last call->tail_count post-operations of a call, on its result. */
void ul_posts_run(const struct ul_call *call, float *dst, uint32_t threads);

#endif
