/* SPDX-License-Identifier: Apache-2.0 */
/* Batch statistics as training keeps them: per channel, apart from what they normalize, which is
 * then a map, and is computed again wherever it is read.
 *
 *     mean, variance = Moments(x)    y = Normalize(x, mean, scale / sqrt(variance + epsilon), bias)
 */
#include "ir/op_names.h"
#include "ir/ops/norm/norm.h"
#include "ir/ops/training/training.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/norm/norm_moments.h"
#include "ir/ops/partials.h"
#include "ir/training.h"

#define CHANNELS 2u /* dimension 1, as a mask */

enum { X, RUNNING, NUMBERS = RUNNING + 2, INPUT_COUNT };

enum ul_status ul_infer_moments(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, X);
    struct ul_type type = *x;
    const int64_t numbers = UL_STEP_NUMBERS;
    UL_TRY(ul_check_dtype(infer, X, UL_CHECK_FLOATS));
    UL_TRY(ul_check_rank(infer, X, 2, UL_LIMIT_RANK));
    if (infer->node->input_count > 1 && infer->node->input_count != INPUT_COUNT)
        return ul_infer_invalid(infer, "it takes 1 input or %u", (unsigned)INPUT_COUNT);
    for (uint32_t i = RUNNING; i < NUMBERS && infer->node->input_count > 1; i++) {
        UL_TRY(ul_check_dtype(infer, i, UL_CHECK_FLOATS));
        UL_TRY(ul_check_shape(infer, i, 1, &x->dims[1]));
    }
    if (infer->node->input_count > 1) {
        UL_TRY(ul_check_dtype(infer, NUMBERS, UL_CHECK_BIT(UL_F64)));
        UL_TRY(ul_check_shape(infer, NUMBERS, 1, &numbers));
    }
    for (uint32_t d = 0; d < type.rank; d++)
        type.dims[d] = d == 1 ? x->dims[d] : 1;
    ul_infer_set_type(infer, 0, &type);
    ul_infer_set_type(infer, 1, &type);
    return UL_OK;
}

/* Stores one of a channel's two moments: the batch's, or the running one where the step
 * evaluates. */
static void store_moment(struct ul_lower *lower, const struct ul_node *node, uint32_t output,
                         const ul_kx *index, ul_kx moment)
{
    struct ul_kernel *k = lower->kernel;
    if (node->input_count > 1) {
        ul_kx at = ul_kx_index_const(k, UL_STEP_EVALUATES);
        ul_kx evaluates = ul_lower_load(lower, node->inputs[NUMBERS], &at);
        ul_kx running = ul_lower_load(lower, node->inputs[RUNNING + output], &index[1]);
        ul_kx none = ul_kx_float(k, ul_kx_dtype(k, evaluates), 0);
        running = ul_kx_cast(k, ul_kx_dtype(k, moment), running);
        moment = ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, evaluates, none), moment, running);
    }
    ul_lower_store(lower, node->outputs[output], index, moment);
}

static void store_moments(struct ul_lower *lower, const struct ul_node *node, ul_kx channel,
                          ul_kx mean, ul_kx variance)
{
    struct ul_kernel *k = lower->kernel;
    ul_kx index[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < UL_LIMIT_RANK; d++)
        index[d] = d == 1 ? channel : ul_kx_index_const(k, 0);
    store_moment(lower, node, 0, index, mean);
    store_moment(lower, node, 1, index, variance);
}

/* ---- On a device ---- */

/* Problem: a channel has as many elements as a batch has pixels, and there are few channels.
 * Method: each part (partials.h) has a mean and a sum of squares about it; both become those of the
 * channel as Chan, Golub and LeVeque add them ("Updating formulae and a pairwise algorithm for
 * computing sample variances", 1979):
 *
 *      mean = sum n_p mean_p / n      squares = sum (squares_p + n_p (mean_p - mean)^2) */
struct parts {
    struct ul_partials partials;
    struct ul_lanes lanes;
    ul_value_id x;
    enum ul_dtype dtype;
    uint32_t means, squares; /* scratch: of each part of each channel */
    ul_kx mean;              /* of the part, then of the channel */
};

static ul_kx load_element(struct ul_lanes *lanes, const void *context)
{
    const struct parts *parts = context;
    return ul_kx_cast(lanes->lower->kernel, parts->dtype,
                      ul_lower_load(lanes->lower, parts->x, lanes->index));
}

static ul_kx load_square(struct ul_lanes *lanes, const void *context)
{
    const struct parts *parts = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = ul_ks_let(k, ul_kx_sub(k, load_element(lanes, context), parts->mean));
    return ul_kx_mul(k, x, x);
}

static ul_kx terms_of(const struct parts *parts, ul_kx part)
{
    struct ul_kernel *k = parts->lanes.lower->kernel;
    return ul_kx_cast(k, parts->dtype, ul_partials_part_terms(&parts->partials, part));
}

static void store_parts(struct parts *parts)
{
    struct ul_kernel *k = parts->lanes.lower->kernel;
    struct ul_partials *partials = &parts->partials;
    ul_partials_open_parts(partials);
    ul_kx place = ul_ks_let(k, ul_partials_place(partials, partials->part));
    ul_kx sum = ul_partials_sum(partials);
    parts->mean = ul_ks_let(k, ul_kx_binary(k, UL_KX_DIV, sum, terms_of(parts, partials->part)));
    ul_ks_store(k, parts->means, place, parts->mean);
    partials->term[0] = load_square;
    ul_ks_store(k, parts->squares, place, ul_partials_sum(partials));
    ul_partials_close_parts(partials);
}

static ul_kx mean_of_part(const struct ul_partials *partials, ul_kx part, const void *context)
{
    const struct parts *parts = context;
    struct ul_kernel *k = partials->lanes->lower->kernel;
    ul_kx mean = ul_kx_load(k, parts->means, ul_partials_place(partials, part));
    return ul_kx_mul(k, mean, terms_of(parts, part));
}

static ul_kx squares_of_part(const struct ul_partials *partials, ul_kx part, const void *context)
{
    const struct parts *parts = context;
    struct ul_kernel *k = partials->lanes->lower->kernel;
    ul_kx place = ul_ks_let(k, ul_partials_place(partials, part));
    ul_kx off = ul_ks_let(k, ul_kx_sub(k, ul_kx_load(k, parts->means, place), parts->mean));
    return ul_kx_add(k, ul_kx_load(k, parts->squares, place),
                     ul_kx_mul(k, ul_kx_mul(k, off, off), terms_of(parts, part)));
}

/* Returns false if the batch is too small to be worth it. */
static bool lower_in_parts(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    struct parts parts = {.x = data->inputs[0], .dtype = ul_compute_dtype(type->dtype)};
    uint32_t order[UL_LIMIT_RANK], mask = ul_lanes_all(type->rank) & ~CHANNELS;
    ul_lower_order(lower, parts.x, order);
    ul_lanes_init(&parts.lanes, lower, type->rank, type->dims, order);
    if (!ul_partials_apply(&parts.lanes, mask))
        return false;
    parts.lanes.joined = ul_lower_joined(lower, parts.x, order);
    ul_partials_init(&parts.partials, &parts.lanes, mask, UL_KX_ADD,
                     ul_kx_float(k, parts.dtype, 0.0), load_element, &parts);
    if (!ul_partials_are_stored(&parts.partials))
        return false;
    uint64_t places = (uint64_t)(parts.partials.count * parts.partials.output_count);
    parts.means = ul_lower_scratch(lower, parts.dtype, places);
    parts.squares = ul_lower_scratch(lower, parts.dtype, places);
    store_parts(&parts);
    ul_kx count = ul_kx_float(k, parts.dtype, (double)parts.partials.terms);
    ul_partials_open(&parts.partials);
    ul_kx sum = ul_partials_combine(&parts.partials, mean_of_part, &parts);
    parts.mean = ul_ks_let(k, ul_kx_binary(k, UL_KX_DIV, sum, count));
    sum = ul_partials_combine(&parts.partials, squares_of_part, &parts);
    store_moments(lower, data, parts.lanes.index[1], parts.mean,
                  ul_ks_let(k, ul_kx_binary(k, UL_KX_DIV, sum, count)));
    ul_partials_close(&parts.partials);
    return true;
}

void ul_lower_moments(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    struct ul_moments m;
    if (lower_in_parts(lower, node))
        return;
    ul_moments_open(&m, lower, node, type->rank, type->dims, ul_lanes_all(type->rank) & ~CHANNELS,
                    0);
    ul_moments_mean(&m);
    ul_moments_spread(&m, true);
    ul_lanes_begin(&m.lanes);
    store_moments(lower, data, m.lanes.index[1], ul_lanes_get(&m.lanes, m.mean),
                  ul_lanes_get(&m.lanes, m.spread));
    ul_lanes_end(&m.lanes);
    ul_lanes_close(&m.lanes);
}

enum ul_status ul_infer_normalize(struct ul_infer *infer)
{
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    return ul_infer_elementwise(infer);
}

/* ---- Gradients ---- */

/* dx = dmean / n + dvariance 2 (x - mean) / n */
enum ul_status ul_gradient_moments(struct ul_gradient *gradient)
{
    ul_value_id x = ul_gradient_input(gradient, 0), mean = ul_gradient_output(gradient, 0);
    ul_value_id dmean = ul_gradient_of(gradient, 0), dvariance = ul_gradient_of(gradient, 1);
    struct ul_type type = ul_gradient_type(gradient, x);
    double count = (double)ul_type_elements(&type) / (double)type.dims[1];
    ul_value_id share = UL_NONE;
    if (dvariance != UL_NONE) {
        ul_value_id factor = ul_build_scale(&gradient->build, dvariance, 2 / count);
        ul_value_id centred = ul_build_binary(&gradient->build, UL_OP_Sub, x, mean);
        share = ul_build_binary(&gradient->build, UL_OP_Mul, centred, factor);
    }
    if (dmean != UL_NONE) {
        ul_value_id each = ul_build_scale(&gradient->build, dmean, 1 / count);
        share = share == UL_NONE ? ul_build_expand(&gradient->build, each, &type)
                                 : ul_build_binary(&gradient->build, UL_OP_Add, share, each);
    }
    ul_gradient_give(gradient, 0, share);
    return UL_OK;
}

/* What pass `modes` makes of the statistics of a batch:
 *
 *      mean, variance = Moments(x)    deviation = sqrt(variance + epsilon)
 *      y = Normalize(x, mean, scale / deviation, bias) */
struct batch {
    ul_value_id scale, deviation;
};

static const struct ul_node *maker_of(const struct ul_graph *graph, ul_value_id value, ul_op_id op)
{
    const struct ul_node *node = ul_graph_maker(graph, value);
    return node != NULL && node->op == op ? node : NULL;
}

/* Returns false if it is another factor, or if these are the statistics of another value. */
static bool find_batch(const struct ul_gradient *gradient, struct batch *batch)
{
    const struct ul_graph *graph = gradient->graph;
    const struct ul_node *node = ul_gradient_node(gradient);
    const struct ul_node *moments = maker_of(graph, node->inputs[1], UL_OP_Moments);
    const struct ul_node *factor = maker_of(graph, node->inputs[2], UL_OP_Div);
    const struct ul_node *root =
        factor == NULL ? NULL : maker_of(graph, factor->inputs[1], UL_OP_Sqrt);
    const struct ul_node *sum = root == NULL ? NULL : maker_of(graph, root->inputs[0], UL_OP_Add);
    if (moments == NULL || sum == NULL || moments->inputs[0] != node->inputs[0] ||
        moments->outputs[0] != node->inputs[1] || moments->outputs[1] != sum->inputs[0] ||
        ul_graph_get_constant(graph, sum->inputs[1]) == NULL ||
        !ul_type_same_dims(&graph->values[node->inputs[2]].type,
                           &graph->values[node->inputs[1]].type))
        return false;
    *batch = (struct batch){.scale = factor->inputs[0], .deviation = factor->inputs[1]};
    return true;
}

static void give_channels(struct ul_gradient *gradient, ul_value_id value, ul_value_id share)
{
    struct ul_type type = ul_gradient_type(gradient, value);
    if (gradient->is_wanted(gradient->context, value))
        gradient->give(gradient->context, value,
                       ul_build_reshape_to(&gradient->build, share, &type));
}

/* All shares at once, those by way of the statistics too. With n = (x - mean) / deviation:
 *
 *      dscale = sum g n    dbias = sum g    dx = factor (g - (dscale n + dbias) / elements) */
static void give_batch(struct ul_gradient *gradient, const struct batch *batch)
{
    const struct ul_node node = *ul_gradient_node(gradient);
    ul_value_id x = node.inputs[0], g = ul_gradient_of(gradient, 0), sums[2];
    struct ul_type type = ul_gradient_type(gradient, x);
    ul_value_id inverse = ul_build_unary(&gradient->build, UL_OP_Reciprocal, batch->deviation);
    const ul_value_id summed[4] = {x, g, inverse, node.inputs[1]};
    ul_gradient_norm_sums(gradient, summed, ul_lanes_all(type.rank) & ~CHANNELS, 2, sums);
    give_channels(gradient, node.inputs[3], sums[UL_NORM_DBIAS]);
    give_channels(gradient, batch->scale, sums[UL_NORM_DSCALE]);
    if (!ul_gradient_wanted(gradient, 0))
        return;
    const ul_value_id inputs[7] = {
        g, x, node.inputs[1], node.inputs[2], inverse, sums[UL_NORM_DSCALE], sums[UL_NORM_DBIAS]};
    ul_node_id made = ul_build_node(&gradient->build, UL_OP_NormalizeGradient, inputs, 7, 1);
    double count = (double)ul_type_elements(&type) / (double)type.dims[1];
    ul_node_set_float(gradient->graph, made, "share", 1 / count);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, made));
}

/* dx = g factor, dbias = sum g, dfactor = sum g (x - mean), dmean = - factor dbias */
enum ul_status ul_gradient_normalize(struct ul_gradient *gradient)
{
    struct batch batch;
    if (gradient->traits->sums_joined && find_batch(gradient, &batch)) {
        give_batch(gradient, &batch);
        return UL_OK;
    }
    ul_value_id x = ul_gradient_input(gradient, 0), mean = ul_gradient_input(gradient, 1);
    ul_value_id factor = ul_gradient_input(gradient, 2), g = ul_gradient_of(gradient, 0);
    uint32_t mask = ul_lanes_all(ul_gradient_type(gradient, x).rank) & ~CHANNELS;
    ul_value_id sum = UL_NONE;
    if (ul_gradient_wanted(gradient, 1) || ul_gradient_wanted(gradient, 3))
        sum = ul_build_sum(&gradient->build, g, mask);
    if (ul_gradient_wanted(gradient, 3))
        ul_gradient_give(gradient, 3, sum);
    if (ul_gradient_wanted(gradient, 2)) {
        ul_value_id centred = ul_build_binary(&gradient->build, UL_OP_Sub, x, mean);
        ul_value_id product = ul_build_binary(&gradient->build, UL_OP_Mul, g, centred);
        ul_gradient_give(gradient, 2, ul_build_sum(&gradient->build, product, mask));
    }
    if (ul_gradient_wanted(gradient, 1)) {
        ul_value_id product = ul_build_binary(&gradient->build, UL_OP_Mul, sum, factor);
        ul_gradient_give(gradient, 1, ul_build_unary(&gradient->build, UL_OP_Neg, product));
    }
    if (ul_gradient_wanted(gradient, 0))
        ul_gradient_give(gradient, 0, ul_build_binary(&gradient->build, UL_OP_Mul, g, factor));
    return UL_OK;
}
