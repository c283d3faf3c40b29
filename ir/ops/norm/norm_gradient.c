/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of normalisations by the moments of a set of elements: layer, root mean square,
 * instance, group, mean-variance. With n = (x - mean) * inverse and h = g * scale:
 *
 *     dx     = inverse * (h - mean of h - n * mean of h n)
 *     dscale = sum of g n over what the scale is repeated along
 *     dbias  = sum of g
 *
 * and no mean of h where x is not centred.
 * dx is a kernel that forms the statistics of its set again, so that x is all that is kept; it
 * gives them to dscale, whose factors n are computed inside of its sum. Groups are sets in a view
 * of x that has a dimension of them. */
#include "ir/op_names.h"
#include "ir/ops/norm/norm.h"

#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

#include <string.h>

#define DEFAULT_EPSILON ((double)1e-5f)
#define DEVIATION_EPSILON 1e-9 /* of MeanVarianceNormalization, outside of the root */

/* A normalisation in a view of its input. */
struct view {
    struct ul_type type; /* of the view */
    int64_t groups;      /* scale and bias count channels or groups; 0: they are as in the view */
    uint32_t mask;
    bool is_centred;
    double outside;
};

/* The type of scale and bias as they are in the view, before they are repeated. */
static struct ul_type affine_type(const struct ul_gradient *gradient, const struct view *view,
                                  uint32_t input)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, input));
    struct ul_type shape = {.dtype = type.dtype, .rank = view->type.rank - 1};
    if (view->groups == 0)
        return type;
    for (uint32_t d = 0; d < shape.rank; d++)
        shape.dims[d] = 1;
    shape.dims[0] = view->groups;
    if (type.dims[0] != view->groups)
        shape.dims[1] = type.dims[0] / view->groups;
    return shape;
}

/* The dimensions that it is repeated along. */
static uint32_t repeated_mask(const struct ul_gradient *gradient, const struct view *view,
                              uint32_t input)
{
    struct ul_type affine = affine_type(gradient, view, input);
    uint32_t skip = view->type.rank - affine.rank, mask = 0;
    for (uint32_t d = 0; d < view->type.rank; d++)
        if (d < skip || affine.dims[d - skip] != view->type.dims[d])
            mask |= 1u << d;
    return mask;
}

/* Gives the sum over what was repeated, in the type of the input. */
static void give_sum(struct ul_gradient *gradient, uint32_t input, ul_value_id sum)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, input));
    sum = ul_build_reshape_to(&gradient->build, sum, &type);
    if (ul_gradient_type(gradient, sum).dtype != type.dtype)
        sum = ul_build_cast(&gradient->build, sum, type.dtype);
    ul_gradient_give(gradient, input, sum);
}

static void give_affine(struct ul_gradient *gradient, const struct view *view, uint32_t input,
                        ul_value_id share)
{
    uint32_t mask = repeated_mask(gradient, view, input);
    give_sum(gradient, input, ul_build_sum(&gradient->build, share, mask));
}

void ul_gradient_norm_sums(struct ul_gradient *gradient, const ul_value_id inputs[4], uint32_t mask,
                           uint32_t count, ul_value_id sums[2])
{
    int64_t axes[UL_LIMIT_RANK];
    uint32_t axis_count = 0;
    for (uint32_t d = 0; d < UL_LIMIT_RANK; d++)
        if ((mask >> d & 1u) != 0)
            axes[axis_count++] = d;
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_NormalizationSums, inputs,
                                    inputs[3] != UL_NONE ? 4 : 3, count);
    ul_node_set_ints(gradient->graph, node, "axes", axes, axis_count);
    (void)ul_build_infer(&gradient->build, node);
    for (uint32_t i = 0; i < count; i++)
        sums[i] = gradient->graph->nodes[node].outputs[i];
}

static ul_node_id begin_kernel(struct ul_gradient *gradient, const struct view *view,
                               const ul_value_id *inputs, bool has_statistics)
{
    int64_t axes[UL_LIMIT_RANK];
    uint32_t count = 0;
    for (uint32_t d = 0; d < view->type.rank; d++)
        if ((view->mask >> d & 1u) != 0)
            axes[count++] = d;
    double epsilon = ul_node_get_float(ul_gradient_node(gradient), "epsilon", DEFAULT_EPSILON);
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_NormalizationGradient, inputs,
                                    inputs[UL_NORM_SCALE] != UL_NONE ? 3 : 2,
                                    !has_statistics    ? 1
                                    : view->is_centred ? 3
                                                       : 2);
    ul_node_set_ints(gradient->graph, node, "axes", axes, count);
    ul_node_set_int(gradient->graph, node, "centred", view->is_centred);
    ul_node_set_float(gradient->graph, node, "epsilon", epsilon);
    ul_node_set_float(gradient->graph, node, "outside", view->outside);
    return node;
}

/* Whether the sums of scale and bias, or of the scale alone, are one step: they must be over the
 * same dimensions. */
static bool sums_are_joined(const struct ul_gradient *gradient, const struct view *view)
{
    return gradient->traits->sums_joined && ul_gradient_wanted(gradient, 1) &&
           repeated_mask(gradient, view, 1) != 0 &&
           (!ul_gradient_wanted(gradient, 2) ||
            repeated_mask(gradient, view, 1) == repeated_mask(gradient, view, 2));
}

/* Gives the gradients of both, or of the scale alone, with the statistics that the kernel `made_by`
 * forms. */
static void give_sums(struct ul_gradient *gradient, const struct view *view, ul_node_id made_by)
{
    const struct ul_node *made = &gradient->graph->nodes[made_by];
    const ul_value_id inputs[4] = {made->inputs[UL_NORM_X], made->inputs[UL_NORM_G],
                                   made->outputs[UL_NORM_INVERSE],
                                   view->is_centred ? made->outputs[UL_NORM_MEAN] : UL_NONE};
    bool has_bias = ul_gradient_wanted(gradient, 2);
    ul_value_id sums[2];
    ul_gradient_norm_sums(gradient, inputs, repeated_mask(gradient, view, 1), has_bias ? 2 : 1,
                          sums);
    give_sum(gradient, 1, sums[UL_NORM_DSCALE]);
    if (has_bias)
        give_sum(gradient, 2, sums[UL_NORM_DBIAS]);
}

/* Gives the gradient of the scale by itself. */
static void give_scale(struct ul_gradient *gradient, const struct view *view, ul_node_id made_by)
{
    const struct ul_node *made = &gradient->graph->nodes[made_by];
    ul_value_id x = made->inputs[UL_NORM_X], g = made->inputs[UL_NORM_G];
    ul_value_id inverse = made->outputs[UL_NORM_INVERSE];
    if (view->is_centred)
        x = ul_build_binary(&gradient->build, UL_OP_Sub, x, made->outputs[UL_NORM_MEAN]);
    x = ul_build_binary(&gradient->build, UL_OP_Mul, x, inverse);
    if (ul_gradient_type(gradient, x).dtype != ul_gradient_type(gradient, g).dtype)
        x = ul_build_cast(&gradient->build, x, ul_gradient_type(gradient, g).dtype);
    give_affine(gradient, view, 1, ul_build_binary(&gradient->build, UL_OP_Mul, g, x));
}

static void give_all(struct ul_gradient *gradient, const struct view *view)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    ul_value_id g = ul_build_reshape_to(&gradient->build, ul_gradient_of(gradient, 0), &view->type);
    ul_value_id x =
        ul_build_reshape_to(&gradient->build, ul_gradient_input(gradient, 0), &view->type);
    ul_value_id inputs[3] = {x, g, ul_gradient_input(gradient, 1)};
    bool has_scale = inputs[UL_NORM_SCALE] != UL_NONE,
         wants_scale = ul_gradient_wanted(gradient, 1);
    if (has_scale) {
        struct ul_type affine = affine_type(gradient, view, 1);
        inputs[UL_NORM_SCALE] =
            ul_build_reshape_to(&gradient->build, inputs[UL_NORM_SCALE], &affine);
    }
    bool is_joined = sums_are_joined(gradient, view);
    if (!is_joined && ul_gradient_wanted(gradient, 2))
        give_affine(gradient, view, 2, g);
    if (!wants_scale && !ul_gradient_wanted(gradient, 0))
        return;
    ul_node_id node = begin_kernel(gradient, view, inputs, wants_scale);
    ul_value_id dx = ul_build_infer(&gradient->build, node);
    if (is_joined)
        give_sums(gradient, view, node);
    else if (wants_scale)
        give_scale(gradient, view, node);
    if (ul_gradient_wanted(gradient, 0))
        ul_gradient_give(gradient, 0, ul_build_reshape_to(&gradient->build, dx, &type));
}

static uint32_t count_readers(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_block *block = ul_graph_only_root(graph);
    uint32_t count = 0;
    for (uint32_t n = 0; n < block->node_count; n++) {
        const struct ul_node *node = &graph->nodes[block->nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++)
            count += node->inputs[i] == value;
    }
    return count;
}

/* Where x is a Reshape that leaves its rows whole and that nothing else reads, the view is of what
 * is reshaped. What is added to dx there is then added by the kernel that computes it. `tail`:
 * dimensions of a row. */
static void skip_reshape(const struct ul_gradient *gradient, struct view *view, uint32_t tail)
{
    ul_value_id x = ul_gradient_input(gradient, 0);
    const struct ul_node *node = ul_graph_maker(gradient->graph, x);
    if (node == NULL || (ul_op_get(node->op)->flags & UL_OP_RESHAPES) == 0 ||
        count_readers(gradient->graph, x) != 1)
        return;
    struct ul_type from = ul_gradient_type(gradient, node->inputs[0]);
    if (from.rank <= tail)
        return;
    for (uint32_t d = 0; d < tail; d++)
        if (from.dims[from.rank - tail + d] != view->type.dims[view->type.rank - tail + d])
            return;
    for (uint32_t i = 1; i < 3; i++) {
        ul_value_id affine = ul_gradient_input(gradient, i);
        if (affine != UL_NONE && ul_gradient_type(gradient, affine).rank > tail)
            return;
    }
    view->type = from;
    view->mask = ul_lanes_all(from.rank) & ~ul_lanes_all(from.rank - tail);
}

/* LayerNormalization and RMSNormalization. */
enum ul_status ul_gradient_layer_norm(struct ul_gradient *gradient)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    struct view view = {.type = ul_gradient_type(gradient, node->inputs[0])};
    uint32_t rank = view.type.rank;
    uint32_t axis = ul_check_get_axis(ul_node_get_int(node, "axis", -1), rank);
    view.mask = ul_lanes_all(rank) & ~ul_lanes_all(axis);
    view.is_centred = node->op == UL_OP_LayerNormalization;
    if (ul_gradient_of(gradient, 1) != UL_NONE || ul_gradient_of(gradient, 2) != UL_NONE)
        return ul_gradient_unsupported(gradient, "its mean and deviation as results have no "
                                                 "gradient rule");
    if (gradient->traits->sums_joined)
        skip_reshape(gradient, &view, rank - axis);
    give_all(gradient, &view);
    return UL_OK;
}

/* InstanceNormalization: each channel is a group. */
enum ul_status ul_gradient_group_norm(struct ul_gradient *gradient)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    struct ul_type type = ul_gradient_type(gradient, node->inputs[0]);
    int64_t groups = ul_node_get_int(node, "num_groups", type.dims[1]);
    bool is_split = groups != type.dims[1];
    struct view view = {.type = type, .groups = groups, .is_centred = true};
    if (is_split) {
        view.type.rank++;
        view.type.dims[1] = groups;
        view.type.dims[2] = type.dims[1] / groups;
        memcpy(view.type.dims + 3, type.dims + 2, (type.rank - 2) * sizeof *type.dims);
    }
    view.mask = ul_lanes_all(view.type.rank) & ~3u;
    give_all(gradient, &view);
    return UL_OK;
}

enum ul_status ul_gradient_mean_variance_norm(struct ul_gradient *gradient)
{
    struct view view = {.type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0)),
                        .is_centred = true,
                        .outside = DEVIATION_EPSILON};
    bool valid = ul_mean_variance_mask(ul_gradient_node(gradient), view.type.rank, &view.mask);
    UL_ASSERT(valid);
    give_all(gradient, &view);
    return UL_OK;
}
