/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of reductions: every element has its share of the result's gradient. */
#include "ir/op_names.h"
#include "ir/ops/backward.def"
#include "ir/ops/pool/pool.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"
#include "ir/ops/reduce/reduce.h"

struct reduction {
    struct ul_type type; /* of the input */
    struct ul_type kept; /* with the reduced dimensions as 1 */
    uint32_t mask;
    double count; /* of the elements that one result is computed from */
};

static struct reduction reduction_of(const struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    const struct ul_node *node = ul_gradient_node(gradient);
    struct reduction r = {.type = type, .kept = type, .count = 1};
    r.mask = ul_reduce_mask(gradient->graph, node);
    for (uint32_t d = 0; d < type.rank; d++) {
        if ((r.mask & 1u << d) == 0)
            continue;
        r.count *= (double)type.dims[d];
        r.kept.dims[d] = 1;
    }
    return r;
}

static ul_value_id kept_gradient(struct ul_gradient *gradient, const struct reduction *r)
{
    return ul_build_reshape_to(&gradient->build, ul_gradient_of(gradient, 0), &r->kept);
}

enum ul_status ul_gradient_reduce_sum(struct ul_gradient *gradient)
{
    struct reduction r = reduction_of(gradient);
    bool is_mean = ul_gradient_node(gradient)->op == UL_OP_ReduceMean;
    ul_value_id g = kept_gradient(gradient, &r);
    if (is_mean)
        g = ul_build_scale(&gradient->build, g, 1 / r.count);
    ul_gradient_give(gradient, 0, ul_build_expand(&gradient->build, g, &r.type));
    return UL_OK;
}

/* By the text in the row, over g and y repeated to the input's shape. */
enum ul_status ul_gradient_reduce(struct ul_gradient *gradient)
{
    struct reduction r = reduction_of(gradient);
    ul_value_id y = ul_build_reshape_to(&gradient->build, ul_gradient_output(gradient, 0), &r.kept);
    ul_value_id g = ul_build_expand(&gradient->build, kept_gradient(gradient, &r), &r.type);
    ul_gradient_give(gradient, 0, ul_gradient_expression_of(gradient, 0, g, y));
    return UL_OK;
}

/* The gradient goes to all elements that equal the result, in equal parts. */
static void give_extreme(struct ul_gradient *gradient, const struct reduction *r)
{
    ul_value_id y =
        ul_build_reshape_to(&gradient->build, ul_gradient_output(gradient, 0), &r->kept);
    ul_value_id x = ul_gradient_input(gradient, 0), g = kept_gradient(gradient, r);
    ul_value_id chosen = ul_build_cast(
        &gradient->build, ul_build_binary(&gradient->build, UL_OP_Equal, x, y), r->type.dtype);
    ul_value_id count = ul_build_sum(&gradient->build, chosen, r->mask);
    g = ul_build_binary(&gradient->build, UL_OP_Div, g, count);
    ul_gradient_give(gradient, 0, ul_build_binary(&gradient->build, UL_OP_Mul, chosen, g));
}

enum ul_status ul_gradient_reduce_extreme(struct ul_gradient *gradient)
{
    struct reduction r = reduction_of(gradient);
    give_extreme(gradient, &r);
    return UL_OK;
}

/* The maximum is over all pixels of a channel. */
enum ul_status ul_gradient_global_max_pool(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    struct reduction r = {.type = type,
                          .kept = ul_gradient_type(gradient, ul_gradient_output(gradient, 0)),
                          .mask = ul_lanes_all(type.rank) & ~3u};
    give_extreme(gradient, &r);
    return UL_OK;
}

enum ul_status ul_gradient_global_average_pool(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    double count = (double)ul_lanes_product(type.dims, type.rank, ul_lanes_all(type.rank) & ~3u);
    ul_value_id g = ul_build_scale(&gradient->build, ul_gradient_of(gradient, 0), 1 / count);
    ul_gradient_give(gradient, 0, ul_build_expand(&gradient->build, g, &type));
    return UL_OK;
}

enum ul_status ul_gradient_global_lp_pool(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    ul_value_id g = ul_build_expand(&gradient->build, ul_gradient_of(gradient, 0), &type);
    ul_gradient_give(gradient, 0, ul_gradient_expression(gradient, 0, g));
    return UL_OK;
}

/* ---- Products ---- */

/* The product of the elements before each one, or of those after it. */
static ul_value_id product_beside(struct ul_gradient *gradient, ul_value_id x, ul_value_id axis,
                                  bool behind)
{
    const ul_value_id inputs[2] = {x, axis};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_CumProd, inputs, 2, 1);
    ul_node_set_int(gradient->graph, node, "exclusive", 1);
    ul_node_set_int(gradient->graph, node, "reverse", behind);
    return ul_build_infer(&gradient->build, node);
}

/* The product of all other elements, without a division; each row has one result. */
enum ul_status ul_gradient_reduce_prod(struct ul_gradient *gradient)
{
    struct reduction r = reduction_of(gradient);
    int64_t perm[UL_LIMIT_RANK], back[UL_LIMIT_RANK];
    struct ul_type rows = {.dtype = r.type.dtype, .rank = 2, .dims = {1, 1}};
    uint32_t count = 0;
    for (uint32_t turn = 0; turn < 2; turn++)
        for (uint32_t d = 0; d < r.type.rank; d++)
            if ((r.mask >> d & 1u) == turn) {
                back[d] = count;
                perm[count++] = d;
                rows.dims[turn] *= r.type.dims[d];
            }
    ul_value_id x = ul_build_transpose(&gradient->build, ul_gradient_input(gradient, 0), perm);
    struct ul_type turned = ul_gradient_type(gradient, x);
    const int64_t last = 1;
    ul_value_id axis = ul_build_ints(gradient->graph, "", 1, &last);
    x = ul_build_reshape_to(&gradient->build, x, &rows);
    ul_value_id others =
        ul_build_binary(&gradient->build, UL_OP_Mul, product_beside(gradient, x, axis, false),
                        product_beside(gradient, x, axis, true));
    others = ul_build_transpose(&gradient->build,
                                ul_build_reshape_to(&gradient->build, others, &turned), back);
    ul_gradient_give(
        gradient, 0,
        ul_build_binary(&gradient->build, UL_OP_Mul, others, kept_gradient(gradient, &r)));
    return UL_OK;
}

/* ---- Running sums and products ---- */

/* The sum over all results that an element is part of: a running sum in the other direction. */
enum ul_status ul_gradient_cum_sum(struct ul_gradient *gradient)
{
    bool reverse = ul_node_get_int(ul_gradient_node(gradient), "reverse", 0) != 0;
    const ul_value_id inputs[2] = {ul_gradient_of(gradient, 0), ul_gradient_input(gradient, 1)};
    ul_node_id node =
        ul_gradient_begin_like(gradient, ul_gradient_node(gradient)->op, inputs, 2, 1);
    ul_node_set_int(gradient->graph, node, "reverse", !reverse);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    return UL_OK;
}

enum ul_status ul_gradient_cum_prod(struct ul_gradient *gradient)
{
    bool reverse = ul_node_get_int(ul_gradient_node(gradient), "reverse", 0) != 0;
    ul_value_id x = ul_gradient_input(gradient, 0), axis = ul_gradient_input(gradient, 1);
    const ul_value_id inputs[4] = {ul_gradient_of(gradient, 0), axis, x,
                                   product_beside(gradient, x, axis, reverse)};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_CumProdGradient, inputs, 4, 1);
    bool exclusive = ul_node_get_int(ul_gradient_node(gradient), "exclusive", 0) != 0;
    ul_node_set_int(gradient->graph, node, "exclusive", exclusive);
    ul_node_set_int(gradient->graph, node, "reverse", reverse);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    return UL_OK;
}

/* With p[k] the product before x[k], and s[k] the sum over results i of g[i] times the product of
 * what lies between x[k] and the end of result i:
 *     dx[k] = p[k] s[k],    s[k] = g[k] + x[k + 1] s[k + 1]
 * and without g[k] where a result leaves its own element out. */
void ul_lower_cum_prod_gradient(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    uint32_t axis = ul_check_get_axis(ul_check_get_int(lower, node, 1, 0), type->rank);
    bool exclusive = ul_node_get_int(data, "exclusive", 0) != 0;
    struct ul_lanes lanes;
    ul_lanes_open(&lanes, lower, data->outputs[0], ul_lanes_all(type->rank) & ~(1u << axis));
    struct ul_lane_var carry = ul_lanes_var(&lanes, dtype, ul_kx_float(k, dtype, 0.0));
    ul_lanes_loop(&lanes, 1u << axis, 0);
    if (ul_node_get_int(data, "reverse", 0) == 0)
        lanes.index[axis] =
            ul_kx_sub(k, ul_kx_index_const(k, type->dims[axis] - 1), lanes.index[axis]);
    ul_lanes_begin(&lanes);
    ul_kx g = ul_lower_load(lower, data->inputs[0], lanes.index);
    ul_kx x = ul_lower_load(lower, data->inputs[2], lanes.index);
    ul_kx before = ul_ks_let(k, ul_lanes_get(&lanes, carry));
    ul_kx with_own = exclusive ? before : ul_ks_let(k, ul_kx_add(k, g, before));
    ul_kx next = ul_kx_mul(k, x, with_own);
    next = ul_ks_let(k, exclusive ? ul_kx_add(k, g, next) : next);
    ul_kx p = ul_lower_load(lower, data->inputs[3], lanes.index);
    ul_lower_store(lower, data->outputs[0], lanes.index, ul_kx_mul(k, p, with_own));
    ul_lanes_set(&lanes, carry, next);
    ul_lanes_end(&lanes);
    ul_lanes_loop_end(&lanes, 1u << axis);
    ul_lanes_close(&lanes);
}
