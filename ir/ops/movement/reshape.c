/* SPDX-License-Identifier: Apache-2.0 */
/* Identity, and what only renames dimensions: Reshape, Flatten, Squeeze, Unsqueeze.
 *
 * The shapes before and after are cut into the shortest groups of dimensions with equal products;
 * indexes and strides then pass group by group, so that untouched dimensions cost no division and
 * a strided input stays a view as long as each group's own strides permit. */
#include "ir/op_names.h"
#include "ir/ops/movement/movement.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"
#include "ir/split_rule.h"

enum ul_status ul_infer_reshape(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    const int64_t *wanted;
    uint32_t count;
    UL_TRY(ul_check_rank(infer, 1, 1, 1));
    UL_TRY(ul_infer_ints(infer, 1, &wanted, &count));
    if (count > UL_LIMIT_RANK)
        return ul_infer_unsupported(infer, "the new shape has %u dimensions, more than %u",
                                    (unsigned)count, (unsigned)UL_LIMIT_RANK);
    struct ul_type type = {.dtype = input->dtype, .rank = count};
    bool keep_zero = ul_node_get_int(infer->node, "allowzero", 0) != 0;
    uint32_t open = UL_NONE;
    for (uint32_t d = 0; d < count; d++) {
        type.dims[d] = wanted[d];
        if (wanted[d] == 0 && !keep_zero) {
            if (d >= input->rank)
                return ul_infer_invalid(infer,
                                        "the new shape's entry %u is 0, which copies a "
                                        "dimension that the input does not have",
                                        d);
            type.dims[d] = input->dims[d];
        } else if (wanted[d] == -1 && open == UL_NONE) {
            open = d;
            type.dims[d] = 1;
        } else if (wanted[d] < 0) {
            return ul_infer_invalid(infer, "the new shape's entry %u is %lld", (unsigned)d,
                                    (long long)wanted[d]);
        }
    }
    if (!ul_type_in_limits(&type))
        return ul_infer_invalid(infer, "the new shape is over the limit of tensors' sizes");
    uint64_t have = ul_type_elements(input);
    uint64_t known = ul_type_elements(&type);
    if (open != UL_NONE && known > 0 && have % known == 0)
        type.dims[open] = (int64_t)(have / known);
    if ((open != UL_NONE && known == 0) || ul_type_elements(&type) != have)
        return ul_infer_invalid(infer, "%llu elements do not fill the new shape",
                                (unsigned long long)have);
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

enum ul_status ul_infer_flatten(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    int64_t axis = ul_node_get_int(infer->node, "axis", 1);
    if (axis < -(int64_t)input->rank || axis > (int64_t)input->rank)
        return ul_infer_invalid(infer, "axis %lld does not exist in a tensor of rank %u",
                                (long long)axis, (unsigned)input->rank);
    int64_t dims[2] = {1, 1};
    int64_t first = axis < 0 ? axis + (int64_t)input->rank : axis;
    for (uint32_t d = 0; d < input->rank; d++)
        dims[d < first ? 0 : 1] *= input->dims[d];
    ul_infer_set(infer, 0, input->dtype, 2, dims);
    return UL_OK;
}

enum ul_status ul_infer_squeeze(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    const int64_t *axes;
    uint32_t count;
    uint32_t set;
    UL_TRY(ul_infer_ints(infer, 1, &axes, &count));
    UL_TRY(ul_require_axes(infer, axes, count, input->rank, &set));
    struct ul_type type = {.dtype = input->dtype};
    for (uint32_t d = 0; d < input->rank; d++) {
        bool named = (set >> d & 1u) != 0;
        if (named && input->dims[d] != 1)
            return ul_infer_invalid(infer, "axis %u has %lld elements, not 1", (unsigned)d,
                                    (long long)input->dims[d]);
        if (!named && (axes != NULL || input->dims[d] != 1))
            type.dims[type.rank++] = input->dims[d];
    }
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

enum ul_status ul_infer_unsqueeze(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    const int64_t *axes;
    uint32_t count;
    uint32_t set;
    UL_TRY(ul_infer_ints(infer, 1, &axes, &count));
    if (count > UL_LIMIT_RANK - input->rank)
        return ul_infer_unsupported(infer, "the output would have more than %u dimensions",
                                    (unsigned)UL_LIMIT_RANK);
    struct ul_type type = {.dtype = input->dtype, .rank = input->rank + count};
    UL_TRY(ul_require_axes(infer, axes, count, type.rank, &set));
    for (uint32_t d = 0, from = 0; d < type.rank; d++)
        type.dims[d] = (set >> d & 1u) != 0 ? 1 : input->dims[from++];
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* Dimensions [a_begin, a_end) of one shape and [b_begin, b_end) of the other hold as many
 * elements. */
struct group {
    uint32_t a_begin, a_end, b_begin, b_end;
};

/* Gives the group after `group`; false at the end. Neither shape has a 0, and both hold as many
 * elements, so their products meet. */
static bool group_next(const struct ul_type *a, const struct ul_type *b, struct group *group)
{
    group->a_begin = group->a_end;
    group->b_begin = group->b_end;
    if (group->a_begin == a->rank && group->b_begin == b->rank)
        return false;
    int64_t a_product = group->a_end < a->rank ? a->dims[group->a_end++] : 1;
    int64_t b_product = group->b_end < b->rank ? b->dims[group->b_end++] : 1;
    while (a_product != b_product) {
        if (a_product < b_product)
            a_product *= a->dims[group->a_end++];
        else
            b_product *= b->dims[group->b_end++];
    }
    return true;
}

/* `to` (of shape b) from `from` (of shape a), both as coordinates. */
static void group_index(struct ul_kernel *kernel, const struct ul_type *a, const struct ul_type *b,
                        const struct group *group, const ul_kx *from, ul_kx *to)
{
    ul_kx linear = ul_kx_index_const(kernel, 0);
    for (uint32_t d = group->a_begin; d < group->a_end; d++) {
        if (a->dims[d] != 1)
            linear = ul_kx_add(kernel, ul_kx_muli(kernel, linear, a->dims[d]), from[d]);
    }
    uint32_t first = group->b_begin;
    while (first < group->b_end && b->dims[first] == 1)
        to[first++] = ul_kx_index_const(kernel, 0);
    for (uint32_t d = group->b_end; d-- > first;) {
        to[d] = d == first ? linear : ul_kx_modi(kernel, linear, b->dims[d]);
        if (d != first)
            linear = ul_kx_divi(kernel, linear, b->dims[d]);
    }
}

ul_kx ul_map_reshape(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_type *out = ul_lower_output_type(lower, node, output);
    const struct ul_type *in = ul_lower_input_type(lower, node, 0);
    struct group group = {0};
    ul_kx from[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < UL_LIMIT_RANK; d++)
        from[d] = ul_kx_index_const(lower->kernel, 0);
    while (ul_type_elements(in) != 0 && group_next(out, in, &group))
        group_index(lower->kernel, out, in, &group, index, from);
    return ul_lower_load(lower, lower->graph->nodes[node].inputs[0], from);
}

/* Gives the strides of one group of the output; false when the input's dimensions do not continue
 * one another in memory. */
static bool group_strides(const struct ul_type *in, const struct ul_type *out,
                          const struct group *group, const int64_t *in_strides,
                          int64_t *out_strides)
{
    bool first = true;
    int64_t stride = 0;
    int64_t reach = 0; /* the stride that continues the dimensions inside */
    for (uint32_t d = group->a_end; d-- > group->a_begin;) {
        if (in->dims[d] == 1)
            continue;
        if (first)
            stride = in_strides[d];
        else if (in_strides[d] != reach)
            return false;
        reach = in_strides[d] * in->dims[d];
        first = false;
    }
    for (uint32_t d = group->b_end; d-- > group->b_begin;) {
        out_strides[d] = stride;
        stride *= out->dims[d];
    }
    return true;
}

/* Gives the view in which another shape has the same elements. Returns false if there is none. */
static bool view_as(const struct ul_type *from, const struct ul_type *to,
                    const struct ul_view *view, struct ul_view *as)
{
    struct group group = {0};
    *as = (struct ul_view){.base = view->base, .offset_bytes = view->offset_bytes};
    bool empty = ul_type_elements(from) == 0;
    while (!empty && group_next(from, to, &group)) {
        if (!group_strides(from, to, &group, view->strides, as->strides))
            return false;
    }
    /* The stride of a dimension with one element is never used; it is written as if the tensor were
     * dense. */
    for (uint32_t d = to->rank; d-- > 0;) {
        if (empty || to->dims[d] == 1)
            as->strides[d] = d + 1 < to->rank ? as->strides[d + 1] * to->dims[d + 1] : 1;
    }
    return true;
}

bool ul_view_reshape(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                     const struct ul_view *input, struct ul_view *view)
{
    return view_as(&graph->values[node->inputs[0]].type, &graph->values[node->outputs[output]].type,
                   input, view);
}

bool ul_place_reshape(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                      const struct ul_view *view, struct ul_view *input)
{
    return view_as(&graph->values[node->outputs[output]].type, &graph->values[node->inputs[0]].type,
                   view, input);
}

ul_kx ul_map_identity(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    (void)output;
    return ul_lower_load(lower, lower->graph->nodes[node].inputs[0], index);
}

bool ul_view_identity(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                      const struct ul_view *input, struct ul_view *view)
{
    (void)graph;
    (void)node;
    (void)output;
    *view = *input;
    return true;
}

/* The first dimension of [begin, end) longer than 1, or `end`. */
static uint32_t leading(const struct ul_type *type, uint32_t begin, uint32_t end)
{
    while (begin < end && type->dims[begin] == 1)
        begin++;
    return begin;
}

/* The number of elements in one step along `axis`, counted within its group. */
static int64_t step_elements(const struct ul_type *type, uint32_t axis, uint32_t end)
{
    int64_t count = 1;
    for (uint32_t d = axis + 1; d < end; d++)
        count *= type->dims[d];
    return count;
}

static void set_shape(struct ul_split_rule *split)
{
    const struct ul_type *out = ul_split_rule_output_type(split);
    int64_t dims[UL_LIMIT_RANK];
    int64_t rank = (int64_t)out->rank;
    for (uint32_t d = 0; d < out->rank; d++)
        dims[d] = d == split->output.axis ? split->output.end - split->output.begin : out->dims[d];
    split->constants[1] = ul_tensor_new_ints(split->arena, UL_I64, 1, &rank, dims);
}

/* A part stays a part where the axis leads its group before and after: its elements are then
 * between two places of the common order, provided it has only as many as one step of the input
 * holds. Other parts do not come from a part of the input. */
bool ul_split_rule_reshape(struct ul_split_rule *split)
{
    const struct ul_type *in = ul_split_rule_input_type(split, 0);
    const struct ul_type *out = ul_split_rule_output_type(split);
    struct group group = {0};
    if (ul_type_elements(in) == 0)
        return false;
    do {
        if (!group_next(in, out, &group))
            return false;
    } while (group.b_end <= split->output.axis);
    uint32_t from = leading(in, group.a_begin, group.a_end);
    if (leading(out, group.b_begin, group.b_end) != split->output.axis || from == group.a_end)
        return false;
    int64_t in_step = step_elements(in, from, group.a_end);
    int64_t out_step = step_elements(out, split->output.axis, group.b_end);
    if (in_step % out_step == 0)
        ul_split_rule_widen(split, in_step / out_step);
    if (split->output.begin * out_step % in_step != 0 ||
        split->output.end * out_step % in_step != 0)
        return false;
    ul_split_rule_read(split, 0, from, split->output.begin * out_step / in_step,
                       split->output.end * out_step / in_step);
    if (split->node->op == UL_OP_Reshape)
        set_shape(split);
    return true;
}
