/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of scores: their largest score, and sums of exponentials and of products. Each is formed in
 * lanes, which fit a vector and are then folded in a fixed tree: loops that need no permission to
 * reorder floats. */
#include "ir/kernel_build.h"
#include "ir/ops/attention/attention.h"
#include "ir/ops/norm/norm.h"

#include <math.h>

static ul_kx number(const struct ul_attention_lower *a, double value)
{
    return ul_kx_number(a->kernel, a->dtype, value);
}

ul_kx ul_attention_score_at(const struct ul_attention_lower *a, ul_kx row, ul_kx column)
{
    return ul_kx_add(a->kernel, ul_kx_muli(a->kernel, row, a->pitch), column);
}

/* Gives the larger number in one machine instruction. */
ul_kx ul_attention_larger(const struct ul_attention_lower *a, ul_kx x, ul_kx y)
{
    return ul_kx_select(a->kernel, ul_kx_binary(a->kernel, UL_KX_LT, x, y), y, x);
}

static ul_kx combine(const struct ul_attention_lower *a, bool adds, ul_kx x, ul_kx y)
{
    return adds ? ul_kx_binary(a->kernel, UL_KX_ADD, x, y) : ul_attention_larger(a, x, y);
}

/* What is reduced. */
struct term {
    ul_kx shift;    /* exponentials of scores less this replace the scores; or UL_NONE */
    uint32_t times; /* scores are multiplied by what is there in this buffer; or UL_NONE */
    bool adds;
};

static ul_kx term_at(const struct ul_attention_lower *a, const struct term *term, ul_kx at)
{
    struct ul_kernel *kernel = a->kernel;
    ul_kx x = ul_ks_name(kernel, ul_kx_load(kernel, a->scores, at));
    if (term->times != UL_NONE)
        return ul_kx_binary(kernel, UL_KX_MUL, x, ul_kx_load(kernel, term->times, at));
    if (term->shift == UL_NONE)
        return x;
    x = ul_softmax_exp(kernel, ul_kx_binary(kernel, UL_KX_SUB, x, term->shift));
    x = ul_ks_let(kernel, x);
    ul_ks_store(kernel, a->scores, at, x);
    return x;
}

/* Lets lanes [0, count) take in columns [from, from + count) of the row. */
static void reduce_columns(const struct ul_attention_lower *a, ul_kx row, ul_kx from, int64_t count,
                           const struct term *term)
{
    struct ul_kernel *kernel = a->kernel;
    ul_kx lane = ul_ks_for(kernel, count, UL_FOR_PARALLEL);
    ul_kx x = term_at(a, term, ul_attention_score_at(a, row, ul_kx_add(kernel, from, lane)));
    ul_kx old = ul_ks_name(kernel, ul_kx_load(kernel, a->lanes, lane));
    ul_ks_store(kernel, a->lanes, lane, combine(a, term->adds, old, x));
    ul_ks_end(kernel);
}

/* Reduces the row's first `count` columns. */
static ul_kx reduce_row(const struct ul_attention_lower *a, ul_kx row, int64_t count,
                        const struct term *term)
{
    struct ul_kernel *kernel = a->kernel;
    int64_t lanes = count < UL_ATTENTION_LANES ? UL_ATTENTION_VECTOR : UL_ATTENTION_LANES;
    ul_kx lane = ul_ks_for(kernel, lanes, UL_FOR_PARALLEL);
    ul_ks_store(kernel, a->lanes, lane, number(a, term->adds ? 0 : -INFINITY));
    ul_ks_end(kernel);
    if (count >= lanes) {
        ul_kx turn = ul_ks_for(kernel, count / lanes, 0);
        reduce_columns(a, row, ul_kx_muli(kernel, turn, lanes), lanes, term);
        ul_ks_end(kernel);
    }
    if (count % lanes > 0)
        reduce_columns(a, row, ul_kx_index_const(kernel, count / lanes * lanes), count % lanes,
                       term);
    for (int64_t half = lanes / 2; half > 0; half /= 2) {
        lane = ul_ks_for(kernel, half, UL_FOR_PARALLEL);
        ul_kx low = ul_ks_name(kernel, ul_kx_load(kernel, a->lanes, lane));
        ul_kx high = ul_kx_load(kernel, a->lanes, ul_kx_addi(kernel, lane, half));
        high = ul_ks_name(kernel, high);
        ul_ks_store(kernel, a->lanes, lane, combine(a, term->adds, low, high));
        ul_ks_end(kernel);
    }
    return ul_ks_name(kernel, ul_kx_load(kernel, a->lanes, ul_kx_index_const(kernel, 0)));
}

ul_kx ul_attention_shift(const struct ul_attention_lower *a, ul_kx max)
{
    ul_kx is_none = ul_kx_binary(a->kernel, UL_KX_EQ, max, number(a, -INFINITY));
    return ul_ks_let(a->kernel, ul_kx_select(a->kernel, is_none, number(a, 0), max));
}

ul_kx ul_attention_largest(const struct ul_attention_lower *a, ul_kx row, int64_t count)
{
    const struct term term = {.shift = UL_NONE, .times = UL_NONE};
    return reduce_row(a, row, count, &term);
}

ul_kx ul_attention_exponentials(const struct ul_attention_lower *a, ul_kx row, int64_t count,
                                ul_kx shift)
{
    const struct term term = {.shift = shift, .times = UL_NONE, .adds = true};
    return reduce_row(a, row, count, &term);
}

ul_kx ul_attention_products(const struct ul_attention_lower *a, ul_kx row, int64_t count,
                            uint32_t times)
{
    const struct term term = {.shift = UL_NONE, .times = times, .adds = true};
    return reduce_row(a, row, count, &term);
}
