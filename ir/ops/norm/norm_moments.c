/* SPDX-License-Identifier: Apache-2.0 */
/* Mean and deviation of sets; see norm_moments.h. */
#include "ir/ops/norm/norm_moments.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"

#include <string.h>

/* Splits dimension 1 into 1 and 2; those after it move up by one. */
static void split_channels(uint32_t rank, uint32_t *order)
{
    uint32_t old[UL_LIMIT_RANK];
    uint32_t count = 0;
    memcpy(old, order, rank * sizeof *order);
    for (uint32_t i = 0; i + 1 < rank; i++) {
        order[count++] = old[i] > 1 ? old[i] + 1 : old[i];
        if (old[i] == 1)
            order[count++] = 2;
    }
}

void ul_moments_open(struct ul_moments *m, struct ul_lower *lower, ul_node_id node, uint32_t rank,
                     const int64_t *dims, uint32_t mask, int64_t group)
{
    *m = (struct ul_moments){.x = ul_check_node(lower, node)->inputs[0],
                             .dtype = ul_compute_dtype(ul_lower_input_type(lower, node, 0)->dtype),
                             .mask = mask,
                             .count = ul_lanes_product(dims, rank, mask),
                             .group = group};
    uint32_t order[UL_LIMIT_RANK];
    /* An output that holds only statistics does not show the order of the set, which is then that
     * of x. */
    bool is_whole = ul_type_elements(ul_lower_output_type(lower, node, 0)) ==
                    ul_type_elements(ul_lower_input_type(lower, node, 0));
    ul_lower_order(lower, is_whole ? ul_check_node(lower, node)->outputs[0] : m->x, order);
    uint32_t joined = ul_lower_joined(lower, m->x, order);
    if (group > 0) {
        split_channels(rank, order);
        joined = (joined & ~3u) << 1; /* it is not asked whether channels join what is before
                                         them */
    }
    ul_lanes_open_order(&m->lanes, lower, rank, dims, order, ul_lanes_all(rank) & ~mask);
    m->lanes.in_parts = true;
    m->lanes.joined = joined;
}

ul_kx ul_moments_load(const struct ul_moments *m, ul_kx *index)
{
    const struct ul_lanes *lanes = &m->lanes;
    struct ul_kernel *k = lanes->lower->kernel;
    uint32_t rank = 0;
    for (uint32_t d = 0; d < lanes->rank; d++) {
        if (m->group > 0 && d == 1) {
            ul_kx first = ul_kx_muli(k, lanes->index[1], m->group);
            index[rank++] = ul_kx_add(k, first, lanes->index[2]);
            d++;
        } else {
            index[rank++] = lanes->index[d];
        }
    }
    return ul_kx_cast(k, m->dtype, ul_lower_load(lanes->lower, m->x, index));
}

static ul_kx load_value(struct ul_lanes *lanes, const void *context)
{
    (void)lanes; /* they are the context's own */
    ul_kx index[UL_LIMIT_RANK];
    return ul_moments_load(context, index);
}

static ul_kx load_square(struct ul_lanes *lanes, const void *context)
{
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = ul_ks_let(k, load_value(lanes, context));
    return ul_kx_mul(k, x, x);
}

static ul_kx load_centred_square(struct ul_lanes *lanes, const void *context)
{
    const struct ul_moments *m = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = ul_kx_sub(k, load_value(lanes, context), ul_lanes_get(lanes, m->mean));
    x = ul_ks_let(k, x);
    return ul_kx_mul(k, x, x);
}

/* The average of the terms over the set. */
static struct ul_lane_var average(struct ul_moments *m, ul_lanes_term_fn *term)
{
    struct ul_lanes *lanes = &m->lanes;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx zero = ul_kx_float(k, m->dtype, 0.0);
    struct ul_lane_var sum = ul_lanes_reduce(lanes, m->mask, UL_KX_ADD, zero, term, m);
    ul_lanes_begin(lanes);
    ul_kx count = ul_kx_float(k, m->dtype, (double)m->count);
    ul_lanes_set(lanes, sum, ul_kx_binary(k, UL_KX_DIV, ul_lanes_get(lanes, sum), count));
    ul_lanes_end(lanes);
    return sum;
}

void ul_moments_mean(struct ul_moments *m)
{
    m->mean = average(m, load_value);
}

void ul_moments_spread(struct ul_moments *m, bool centred)
{
    m->spread = average(m, centred ? load_centred_square : load_square);
}

static ul_kx inverse(const struct ul_moments *m, double epsilon)
{
    struct ul_kernel *k = m->lanes.lower->kernel;
    ul_kx sum = ul_kx_add(k, ul_lanes_get(&m->lanes, m->spread), ul_kx_float(k, m->dtype, epsilon));
    return ul_kx_binary(k, UL_KX_DIV, ul_kx_float(k, m->dtype, 1.0),
                        ul_kx_unary(k, UL_KX_SQRT, sum));
}

void ul_moments_invert(struct ul_moments *m, double epsilon)
{
    ul_lanes_begin(&m->lanes);
    ul_lanes_set(&m->lanes, m->spread, inverse(m, epsilon));
    ul_lanes_end(&m->lanes);
}
