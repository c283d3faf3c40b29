/* SPDX-License-Identifier: Apache-2.0 */
/* GroupNormalization and InstanceNormalization, whose groups are channels, in steps of their own.
 *
 * Where channels lie innermost a group is a few neighbouring channels at every place, so that a
 * walk through one group after the other reads each line of memory many times. Method: sums are
 * formed for each channel, many side by side, then for each group; what the last pass takes for a
 * channel is spread out again, so that it runs along channels as well:
 *
 *      sum[c] -> mean[c of the group]      squares[c] -> inverse[c of the group]
 *      y = (x - mean[c]) * inverse[c] * scale + bias
 *
 * Where few groups are very long, a block a group would leave most of a device waiting: there sums
 * come in parts (partials.h), mean and inverse are one for each group, and the last pass is spread
 * over all elements. */
#include "ir/ops/norm/norm.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/partials.h"

struct groups {
    struct ul_lower *lower;
    ul_node_id node;
    const struct ul_type *type;
    enum ul_dtype dtype;
    int64_t channels, members;      /* of all, of a group */
    double count;                   /* elements of a group */
    bool by_group;                  /* statistics are one for each group, else for each channel */
    struct ul_lanes at;             /* coordinates; by group, dimension 1 is split in two */
    uint32_t mask;                  /* dimensions of the sums */
    uint32_t sums, means, inverses; /* scratch: [batch, channels or groups] */
};

/* Where to find the statistics of the element that the loops are at. */
static ul_kx place_of(const struct groups *g, const ul_kx *index)
{
    struct ul_kernel *k = g->lower->kernel;
    if (!g->by_group)
        return ul_kx_add(k, ul_kx_muli(k, index[0], g->channels), index[1]);
    return ul_kx_add(k, ul_kx_muli(k, index[0], g->channels / g->members),
                     ul_kx_divi(k, index[1], g->members));
}

static ul_kx load(const struct groups *g, const ul_kx *index)
{
    ul_value_id x = ul_check_node(g->lower, g->node)->inputs[0];
    return ul_kx_cast(g->lower->kernel, g->dtype, ul_lower_load(g->lower, x, index));
}

static ul_kx load_value(struct ul_lanes *lanes, const void *context)
{
    const struct groups *g = context;
    struct ul_kernel *k = g->lower->kernel;
    if (!g->by_group)
        return load(g, lanes->index);
    ul_kx index[UL_LIMIT_RANK] = {lanes->index[0]};
    index[1] = ul_kx_add(k, ul_kx_muli(k, lanes->index[1], g->members), lanes->index[2]);
    for (uint32_t d = 2; d < g->type->rank; d++)
        index[d] = lanes->index[d + 1];
    return load(g, index);
}

/* Where to find the statistics of the sum that the loops are at. */
static ul_kx place_of_sum(const struct groups *g, const struct ul_lanes *lanes)
{
    struct ul_kernel *k = g->lower->kernel;
    return ul_kx_add(k, ul_kx_muli(k, lanes->index[0], lanes->dims[1]), lanes->index[1]);
}

static ul_kx load_square(struct ul_lanes *lanes, const void *context)
{
    const struct groups *g = context;
    struct ul_kernel *k = g->lower->kernel;
    ul_kx mean = ul_kx_load(k, g->means, place_of_sum(g, lanes));
    ul_kx x = ul_ks_let(k, ul_kx_sub(k, load_value(lanes, g), mean));
    return ul_kx_mul(k, x, x);
}

/* The average of a group, from the sum of its terms; where it is the variance, 1 / sqrt(variance +
 * epsilon) instead. */
static ul_kx statistic(struct groups *g, ul_kx sum, bool is_variance)
{
    struct ul_kernel *k = g->lower->kernel;
    ul_kx x = ul_kx_binary(k, UL_KX_DIV, sum, ul_kx_float(k, g->dtype, g->count));
    if (is_variance) {
        double epsilon =
            ul_node_get_float(ul_check_node(g->lower, g->node), "epsilon", (double)1e-5f);
        x = ul_kx_binary(
            k, UL_KX_DIV, ul_kx_float(k, g->dtype, 1.0),
            ul_kx_unary(k, UL_KX_SQRT, ul_kx_add(k, x, ul_kx_float(k, g->dtype, epsilon))));
    }
    return ul_ks_let(k, x);
}

/* sums[n, c] = the sum of the terms over space. */
static void sum_channels(struct groups *g, ul_lanes_term_fn *term)
{
    struct ul_kernel *k = g->lower->kernel;
    struct ul_lanes lanes;
    ul_lanes_open(&lanes, g->lower, ul_check_node(g->lower, g->node)->outputs[0],
                  ul_lanes_all(g->type->rank) & ~g->mask);
    struct ul_lane_var sum =
        ul_lanes_reduce(&lanes, g->mask, UL_KX_ADD, ul_kx_float(k, g->dtype, 0.0), term, g);
    ul_lanes_begin(&lanes);
    ul_ks_store(k, g->sums, place_of_sum(g, &lanes), ul_lanes_get(&lanes, sum));
    ul_lanes_end(&lanes);
    ul_lanes_close(&lanes);
}

/* Forms the statistic of each group from its channels' sums, and stores it in `to` for each of its
 * channels. */
static void spread_groups(struct groups *g, uint32_t to, bool is_variance)
{
    struct ul_kernel *k = g->lower->kernel;
    ul_kx group = ul_ks_for(k, g->type->dims[0] * (g->channels / g->members), UL_FOR_PARALLEL);
    ul_kx first = ul_ks_let(k, ul_kx_muli(k, group, g->members));
    uint32_t sum = ul_ks_var(k, g->dtype, ul_kx_float(k, g->dtype, 0.0));
    ul_kx c = ul_ks_for(k, g->members, UL_FOR_REDUCE);
    ul_ks_set(k, sum,
              ul_kx_add(k, ul_kx_var(k, sum), ul_kx_load(k, g->sums, ul_kx_add(k, first, c))));
    ul_ks_end(k);
    ul_kx x = statistic(g, ul_kx_var(k, sum), is_variance);
    c = ul_ks_for(k, g->members, UL_FOR_PARALLEL);
    ul_ks_store(k, to, ul_kx_add(k, first, c), x);
    ul_ks_end(k);
    ul_ks_end(k);
}

/* Whether the terms of a group form a single sum. */
static bool is_whole(const struct groups *g)
{
    return g->by_group || g->members == 1;
}

/* Does the same by sums in parts, or puts the statistics into `to` at once. */
static void sum_in_parts(struct groups *g, ul_lanes_term_fn *term, uint32_t to, bool is_variance)
{
    struct ul_kernel *k = g->lower->kernel;
    struct ul_partials partials;
    ul_kx zero = ul_kx_float(k, g->dtype, 0.0);
    ul_partials_init(&partials, &g->at, g->mask, UL_KX_ADD, zero, term, g);
    ul_partials_store(&partials);
    ul_partials_open(&partials);
    ul_kx x = ul_partials_total(&partials);
    if (is_whole(g))
        ul_ks_store(k, to, place_of_sum(g, &g->at), statistic(g, x, is_variance));
    else
        ul_ks_store(k, g->sums, place_of_sum(g, &g->at), x);
    ul_partials_close(&partials);
}

/* Puts into `to` what the last pass reads: the average of the terms, or the inverse deviation. */
static void find_statistics(struct groups *g, ul_lanes_term_fn *term, uint32_t to, bool is_variance)
{
    if (ul_partials_apply(&g->at, g->mask))
        sum_in_parts(g, term, to, is_variance);
    else
        sum_channels(g, term);
    if (!is_whole(g))
        spread_groups(g, to, is_variance);
}

static ul_kx load_affine(struct groups *g, uint32_t input, const ul_kx *index)
{
    struct ul_kernel *k = g->lower->kernel;
    bool per_group = ul_lower_input_type(g->lower, g->node, input)->dims[0] != g->channels;
    ul_kx at = per_group ? ul_kx_divi(k, index[1], g->members) : index[1];
    ul_value_id value = ul_check_node(g->lower, g->node)->inputs[input];
    return ul_kx_cast(k, g->dtype, ul_lower_load(g->lower, value, &at));
}

static void store_normalised(struct groups *g)
{
    struct ul_kernel *k = g->lower->kernel;
    ul_value_id output = ul_check_node(g->lower, g->node)->outputs[0];
    ul_kx index[UL_LIMIT_RANK];
    ul_lower_open_as(g->lower, output, g->type->dims, index);
    ul_kx place = place_of(g, index);
    ul_kx x = ul_kx_sub(k, load(g, index), ul_kx_load(k, g->means, place));
    x = ul_kx_mul(k, x, ul_kx_load(k, g->inverses, place));
    x = ul_kx_mul(k, x, load_affine(g, 1, index));
    x = ul_kx_add(k, x, load_affine(g, 2, index));
    ul_lower_store(g->lower, output, index, x);
    ul_lower_close(g->lower, g->type->rank);
}

/* Opens the coordinates of the input, where groups and their members are apart if there is a
 * statistic for each group. */
static void open_groups(struct groups *g, const uint32_t *order)
{
    const struct ul_type *type = g->type;
    int64_t dims[UL_LIMIT_RANK] = {type->dims[0], g->channels};
    uint32_t place[UL_LIMIT_RANK];
    uint32_t rank = 0;
    uint32_t joined = ul_lower_joined(g->lower, ul_check_node(g->lower, g->node)->inputs[0], order);
    for (uint32_t i = 0; i < type->rank; i++) {
        place[rank++] = g->by_group && order[i] > 1 ? order[i] + 1 : order[i];
        if (g->by_group && order[i] == 1)
            place[rank++] = 2;
    }
    if (g->by_group) {
        dims[1] = g->channels / g->members;
        dims[2] = g->members;
        joined = (joined & ~3u) << 1;
    }
    for (uint32_t d = 2; d < type->rank; d++)
        dims[g->by_group ? d + 1 : d] = type->dims[d];
    ul_lanes_init(&g->at, g->lower, rank, dims, place);
    g->at.joined = joined;
    g->mask = ul_lanes_all(rank) & ~3u;
}

/* Whether groups are worth launches of their own: groups of several channels that are innermost, or
 * long ones, or few where a block would have a whole one to itself. */
static bool are_worth_it(struct groups *g)
{
    struct ul_partials partials;
    if (!is_whole(g))
        return true;
    if (!ul_partials_apply(&g->at, g->mask))
        return false;
    ul_kx zero = ul_kx_float(g->lower->kernel, g->dtype, 0.0);
    ul_partials_init(&partials, &g->at, g->mask, UL_KX_ADD, zero, load_value, g);
    return !g->by_group || (partials.width > 1 && ul_partials_are_stored(&partials));
}

bool ul_lower_group_norm_steps(struct ul_lower *lower, ul_node_id node, int64_t groups)
{
    const struct ul_node *info = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    uint32_t order[UL_LIMIT_RANK];
    ul_lower_order(lower, info->outputs[0], order);
    if (type->rank < 3 || type->rank == UL_LIMIT_RANK || ul_type_elements(type) == 0)
        return false;
    struct groups g = {.lower = lower,
                       .node = node,
                       .type = type,
                       .dtype = ul_compute_dtype(type->dtype),
                       .by_group = order[type->rank - 1] != 1,
                       .channels = type->dims[1],
                       .members = type->dims[1] / groups};
    open_groups(&g, order);
    g.count = (double)ul_lanes_product(type->dims, type->rank, ul_lanes_all(type->rank) & ~3u) *
              (double)g.members;
    if (!are_worth_it(&g))
        return false;
    uint64_t places = (uint64_t)type->dims[0] * (uint64_t)(g.by_group ? groups : g.channels);
    if (!is_whole(&g))
        g.sums = ul_lower_scratch(lower, g.dtype, places);
    g.means = ul_lower_scratch(lower, g.dtype, places);
    g.inverses = ul_lower_scratch(lower, g.dtype, places);
    find_statistics(&g, load_value, g.means, false);
    find_statistics(&g, load_square, g.inverses, true);
    store_normalised(&g);
    return true;
}
