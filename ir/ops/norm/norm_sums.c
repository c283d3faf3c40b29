/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of a normalisation's scale and bias, as one kernel. With n = (x - mean) * inverse:
 *
 *     dscale = sum of g n       dbias = sum of g
 *
 * Both sums have the same places and read the same g: they are formed side by side (partials.h), so
 * that g and x are read once and no product is stored. */
#include "ir/ops/backward.def"
#include "ir/ops/norm/norm.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/partials.h"

enum { X = UL_NORM_X, G = UL_NORM_G, INVERSE, MEAN };

enum ul_status ul_infer_norm_sums(struct ul_infer *infer)
{
    struct ul_type kept;
    UL_TRY(ul_norm_infer_kept(infer, &kept));
    UL_TRY(ul_norm_check_broadcast(infer, INVERSE));
    UL_TRY(ul_norm_check_broadcast(infer, MEAN));
    ul_infer_set_type(infer, UL_NORM_DSCALE, &kept);
    ul_infer_set_type(infer, UL_NORM_DBIAS, &kept);
    return UL_OK;
}

struct sums {
    struct ul_lanes lanes;
    const struct ul_node *node;
    ul_node_id id;
    enum ul_dtype dtype;
    uint32_t mask;
    uint32_t outputs[UL_PARTIALS_SUMS]; /* those that are wanted */
    uint32_t count;
};

static ul_kx load(const struct sums *sums, uint32_t input)
{
    const struct ul_lanes *lanes = &sums->lanes;
    return ul_kx_cast(lanes->lower->kernel, sums->dtype,
                      ul_lower_load_broadcast(lanes->lower, sums->node->inputs[input], lanes->index,
                                              lanes->rank));
}

static ul_kx plain_term(struct ul_lanes *lanes, const void *context)
{
    (void)lanes; /* they are the context's own */
    return load(context, G);
}

static ul_kx product_term(struct ul_lanes *lanes, const void *context)
{
    const struct sums *sums = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = load(sums, X);
    if (ul_lower_has_input(lanes->lower, sums->id, MEAN))
        x = ul_kx_sub(k, x, load(sums, MEAN));
    return ul_kx_mul(k, load(sums, G), ul_kx_mul(k, x, load(sums, INVERSE)));
}

static void store(const struct sums *sums, uint32_t output, ul_kx x)
{
    const struct ul_lanes *lanes = &sums->lanes;
    ul_kx index[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < lanes->rank; d++)
        index[d] = (sums->mask >> d & 1u) != 0 ? ul_kx_index_const(lanes->lower->kernel, 0)
                                               : lanes->index[d];
    ul_lower_store(lanes->lower, sums->node->outputs[output], index, x);
}

/* The dimensions whose indexes may run on in all that is loaded. */
static uint32_t joined_of(const struct sums *sums)
{
    const struct ul_lanes *lanes = &sums->lanes;
    uint32_t joined = ul_lanes_all(lanes->rank);
    for (uint32_t i = 0; i < sums->node->input_count; i++)
        if (ul_lower_has_input(lanes->lower, sums->id, i))
            joined &= ul_lower_joined_to(lanes->lower, sums->node->inputs[i], lanes->rank,
                                         lanes->dims, lanes->order);
    return joined;
}

static ul_lanes_term_fn *const terms[] = {
    [UL_NORM_DSCALE] = product_term, [UL_NORM_DBIAS] = plain_term};

/* Forms the sums in parts on a device; returns false where they are too short for it. */
static bool sum_in_parts(struct sums *sums, ul_kx zero)
{
    struct ul_partials partials;
    ul_kx x[UL_PARTIALS_SUMS];
    if (!ul_partials_apply(&sums->lanes, sums->mask))
        return false;
    sums->lanes.joined = joined_of(sums);
    ul_partials_init(&partials, &sums->lanes, sums->mask, UL_KX_ADD, zero, terms[sums->outputs[0]],
                     sums);
    if (sums->count > 1)
        ul_partials_add(&partials, terms[sums->outputs[1]]);
    ul_partials_store(&partials);
    ul_partials_open(&partials);
    ul_partials_totals(&partials, x);
    for (uint32_t i = 0; i < sums->count; i++)
        store(sums, sums->outputs[i], x[i]);
    ul_partials_close(&partials);
    return true;
}

static void sum_in_lanes(struct sums *sums, ul_kx zero)
{
    struct ul_lanes *lanes = &sums->lanes;
    struct ul_lane_var x[UL_PARTIALS_SUMS];
    ul_lanes_open(lanes, lanes->lower, sums->node->inputs[X],
                  ul_lanes_all(lanes->rank) & ~sums->mask);
    for (uint32_t i = 0; i < sums->count; i++)
        x[i] = ul_lanes_reduce(lanes, sums->mask, UL_KX_ADD, zero, terms[sums->outputs[i]], sums);
    ul_lanes_begin(lanes);
    for (uint32_t i = 0; i < sums->count; i++)
        store(sums, sums->outputs[i], ul_lanes_get(lanes, x[i]));
    ul_lanes_end(lanes);
    ul_lanes_close(lanes);
}

void ul_lower_norm_sums(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *type = ul_lower_input_type(lower, node, X);
    struct sums sums = {
        .node = ul_check_node(lower, node), .id = node, .dtype = ul_compute_dtype(type->dtype)};
    ul_kx zero = ul_kx_float(lower->kernel, sums.dtype, 0.0);
    uint32_t order[UL_LIMIT_RANK];
    sums.mask = ul_norm_mask(sums.node, type->rank);
    for (uint32_t i = 0; i <= UL_NORM_DBIAS; i++)
        if (ul_lower_has_output(lower, node, i))
            sums.outputs[sums.count++] = i;
    ul_lower_order(lower, sums.node->inputs[X], order);
    ul_lanes_init(&sums.lanes, lower, type->rank, type->dims, order);
    if (sums.count > 0 && !sum_in_parts(&sums, zero))
        sum_in_lanes(&sums, zero);
}
