/* GroupNormalization where channels lie innermost.
 *
 * Problem: a group is a few neighbouring channels at every place, so that a walk through one group
 * after the other reads each line of memory many times. Method: sums are formed for each channel,
 * many side by side, then for each group; what the last pass takes for a channel is spread out
 * again, so that it runs along channels as well:
 *
 *      sum[c] -> mean[c of the group]      squares[c] -> inverse[c of the group]
 *      y = (x - mean[c]) * inverse[c] * scale + bias                                           */
#include "ir/ops/norm.h"

#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

struct groups {
    struct ul_lower *lower;
    ul_node_id node;
    const struct ul_type *type;
    enum ul_dtype dtype;
    uint32_t mask;                  /* dimensions of space */
    int64_t channels, members;      /* of all, of a group */
    double count;                   /* elements of a group */
    uint32_t sums, means, inverses; /* scratch: [batch, channels] */
};

/* Of the element that the loops are at, in [batch, channels]. */
static ul_kx place_of(const struct groups *g, const ul_kx *index)
{
    struct ul_kernel *k = g->lower->kernel;
    return ul_kx_add(k, ul_kx_muli(k, index[0], g->channels), index[1]);
}

static ul_kx load(const struct groups *g, const ul_kx *index)
{
    ul_value_id x = ul_check_node(g->lower, g->node)->inputs[0];
    return ul_kx_cast(g->lower->kernel, g->dtype, ul_lower_load(g->lower, x, index));
}

static ul_kx load_value(struct ul_lanes *lanes, const void *context)
{
    return load(context, lanes->index);
}

static ul_kx load_square(struct ul_lanes *lanes, const void *context)
{
    const struct groups *g = context;
    struct ul_kernel *k = g->lower->kernel;
    ul_kx mean = ul_kx_load(k, g->means, place_of(g, lanes->index));
    ul_kx x = ul_ks_let(k, ul_kx_sub(k, load(g, lanes->index), mean));
    return ul_kx_mul(k, x, x);
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
    ul_ks_store(k, g->sums, place_of(g, lanes.index), ul_lanes_get(&lanes, sum));
    ul_lanes_end(&lanes);
    ul_lanes_close(&lanes);
}

/* The average of each group from its channels' sums, for each of its channels in `to`; where it is
 * the variance, 1 / sqrt(it + epsilon) instead. */
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
    ul_kx x = ul_kx_binary(k, UL_KX_DIV, ul_kx_var(k, sum), ul_kx_float(k, g->dtype, g->count));
    if (is_variance) {
        double epsilon =
            ul_node_get_float(ul_check_node(g->lower, g->node), "epsilon", (double)1e-5f);
        x = ul_kx_binary(
            k, UL_KX_DIV, ul_kx_float(k, g->dtype, 1.0),
            ul_kx_unary(k, UL_KX_SQRT, ul_kx_add(k, x, ul_kx_float(k, g->dtype, epsilon))));
    }
    x = ul_ks_let(k, x);
    c = ul_ks_for(k, g->members, UL_FOR_PARALLEL);
    ul_ks_store(k, to, ul_kx_add(k, first, c), x);
    ul_ks_end(k);
    ul_ks_end(k);
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

bool ul_lower_group_norm_last(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_node *info = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    uint32_t order[UL_LIMIT_RANK];
    ul_lower_order(lower, info->outputs[0], order);
    if (type->rank < 3 || order[type->rank - 1] != 1 || ul_type_elements(type) == 0)
        return false;
    struct groups g = {.lower = lower,
                       .node = node,
                       .type = type,
                       .dtype = ul_compute_dtype(type->dtype),
                       .mask = ul_lanes_all(type->rank) & ~3u,
                       .channels = type->dims[1]};
    g.members = g.channels / ul_node_get_int(info, "num_groups", 1);
    g.count = (double)ul_lanes_product(type->dims, type->rank, g.mask) * (double)g.members;
    uint64_t places = (uint64_t)type->dims[0] * (uint64_t)g.channels;
    g.sums = ul_lower_scratch(lower, g.dtype, places);
    g.means = ul_lower_scratch(lower, g.dtype, places);
    g.inverses = ul_lower_scratch(lower, g.dtype, places);
    sum_channels(&g, load_value);
    spread_groups(&g, g.means, false);
    sum_channels(&g, load_square);
    spread_groups(&g, g.inverses, true);
    store_normalised(&g);
    return true;
}
