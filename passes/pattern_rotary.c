/* Rotary embeddings spelled out: x * cos + r * sin, where r has x with its halves, or its
 * neighbours, changed about and the first of each pair negated.
 *
 *      x --- Slice [half ..] -- Neg \
 *        `-- Slice [.. half] ------- Concat      (Unsqueeze, Concat, Reshape for neighbours)
 *
 * Also by halves: Concat(low * cos - high * sin, high * cos + low * sin), with cos and sin of half
 * the size. */
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/view.h"
#include "passes/pattern_internal.h"

/* `value` is a view of x that has every `step`-th element of its last dimension from `begin` on,
 * half of all. */
static bool is_half(const struct ul_pattern *pattern, ul_value_id value, ul_value_id x,
                    int64_t begin, int64_t step)
{
    const struct ul_graph *graph = pattern->graph;
    const struct ul_value *info = &graph->values[value];
    const struct ul_type *whole = ul_pattern_type(pattern, x);
    const struct ul_node *node = info->kind == UL_VALUE_NODE ? &graph->nodes[info->producer] : NULL;
    uint32_t last = whole->rank - 1;
    if (node == NULL || ul_op_get(node->op)->view == NULL || node->inputs[0] != x ||
        info->type.rank != whole->rank || 2 * info->type.dims[last] != whole->dims[last])
        return false;
    struct ul_view own = ul_view_own(graph, x), view;
    int64_t size_bytes = (int64_t)ul_dtype_get(whole->dtype)->size_bytes;
    if (!ul_op_get(node->op)->view(graph, node, info->producer_output, &own, &view) ||
        view.offset_bytes != begin * size_bytes || view.strides[last] != step)
        return false;
    for (uint32_t d = 0; d < last; d++)
        if (info->type.dims[d] != whole->dims[d] ||
            (whole->dims[d] > 1 && view.strides[d] != own.strides[d]))
            return false;
    return true;
}

/* What an Unsqueeze of the last dimension, or a Reshape that does the same, starts from. */
static ul_value_id before_unsqueeze(struct ul_pattern *pattern, ul_value_id value)
{
    const struct ul_type *type = ul_pattern_type(pattern, value);
    const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_Unsqueeze);
    if (node == NULL)
        node = ul_pattern_match(pattern, value, UL_OP_Reshape);
    if (node == NULL || type->rank == 0 || type->dims[type->rank - 1] != 1)
        return UL_NONE;
    const struct ul_type *from = ul_pattern_type(pattern, node->inputs[0]);
    if (from->rank + 1 != type->rank)
        return UL_NONE;
    for (uint32_t d = 0; d < from->rank; d++)
        if (from->dims[d] != type->dims[d])
            return UL_NONE;
    return node->inputs[0];
}

/* `value` is x turned; says which of the two ways. */
static bool is_turned(struct ul_pattern *pattern, ul_value_id value, ul_value_id x,
                      bool *is_interleaved)
{
    const struct ul_type *type = ul_pattern_type(pattern, x);
    int64_t half = type->rank == 0 ? 0 : type->dims[type->rank - 1] / 2;
    const struct ul_node *flat = ul_pattern_match(pattern, value, UL_OP_Reshape);
    ul_value_id joined = flat == NULL ? value : flat->inputs[0];
    const struct ul_node *concat = ul_pattern_match(pattern, joined, UL_OP_Concat);
    *is_interleaved = flat != NULL;
    if (half == 0 || concat == NULL || concat->input_count != 2 ||
        !ul_type_equal(ul_pattern_type(pattern, value), type))
        return false;
    uint32_t rank = ul_pattern_type(pattern, joined)->rank;
    int64_t axis = ul_node_get_int(concat, "axis", 0);
    ul_value_id parts[2] = {concat->inputs[0], concat->inputs[1]};
    if ((axis < 0 ? axis + (int64_t)rank : axis) != (int64_t)rank - 1 ||
        rank != type->rank + *is_interleaved)
        return false;
    for (uint32_t i = 0; *is_interleaved && i < 2; i++) {
        parts[i] = before_unsqueeze(pattern, parts[i]);
        if (parts[i] == UL_NONE)
            return false;
    }
    const struct ul_node *negated = ul_pattern_match(pattern, parts[0], UL_OP_Neg);
    int64_t step = *is_interleaved ? 2 : 1;
    return negated != NULL && is_half(pattern, negated->inputs[0], x, step == 2 ? 1 : half, step) &&
           is_half(pattern, parts[1], x, 0, step);
}

static bool broadcasts_to(const struct ul_pattern *pattern, ul_value_id factor, ul_value_id x)
{
    const struct ul_type *type = ul_pattern_type(pattern, x);
    const struct ul_type *own = ul_pattern_type(pattern, factor);
    struct ul_type both;
    return own->dtype == type->dtype && ul_broadcast(type, own, &both) &&
           ul_type_equal(&both, type);
}

/* One way to read the sum: input `first` is x * cos, with x at `at_x`; the turned one at `at_r`. */
static bool rotary_of(struct ul_pattern *pattern, ul_node_id root, uint32_t way)
{
    const struct ul_node *sum = &pattern->graph->nodes[root];
    uint32_t first = way & 1u, at_x = way >> 1 & 1u, at_r = way >> 2 & 1u;
    bool is_interleaved;
    ul_pattern_begin(pattern, root);
    const struct ul_node *straight = ul_pattern_match(pattern, sum->inputs[first], UL_OP_Mul);
    const struct ul_node *turned = ul_pattern_match(pattern, sum->inputs[1 - first], UL_OP_Mul);
    if (straight == NULL || turned == NULL)
        return false;
    ul_value_id inputs[3] = {straight->inputs[at_x], straight->inputs[1 - at_x],
                             turned->inputs[1 - at_r]};
    if (!ul_type_equal(ul_pattern_type(pattern, inputs[0]),
                       ul_pattern_type(pattern, sum->outputs[0])) ||
        !is_turned(pattern, turned->inputs[at_r], inputs[0], &is_interleaved) ||
        !broadcasts_to(pattern, inputs[1], inputs[0]) ||
        !broadcasts_to(pattern, inputs[2], inputs[0]) || !ul_pattern_is_closed(pattern, inputs, 3))
        return false;
    ul_pattern_replace(pattern, UL_OP_FusedRotary, inputs, 3);
    if (is_interleaved)
        ul_node_set_int(pattern->graph, root, "interleaved", 1);
    return true;
}

bool ul_pattern_rotary(struct ul_pattern *pattern, ul_node_id root)
{
    enum { WAYS = 8 };
    for (uint32_t way = 0; way < WAYS; way++)
        if (rotary_of(pattern, root, way))
            return true;
    return false;
}

/* ---- By halves ---- */

/* value = part * factor: the factor, or UL_NONE. */
static ul_value_id factor_of(struct ul_pattern *pattern, ul_value_id value, ul_value_id part)
{
    const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_Mul);
    for (uint32_t i = 0; node != NULL && i < 2; i++)
        if (node->inputs[i] == part)
            return node->inputs[1 - i];
    return UL_NONE;
}

/* What `value` is a part of, where it comes from a movement. */
static ul_value_id whole_of(const struct ul_pattern *pattern, ul_value_id value)
{
    const struct ul_value *info = &pattern->graph->values[value];
    if (info->kind != UL_VALUE_NODE)
        return UL_NONE;
    const struct ul_node *node = &pattern->graph->nodes[info->producer];
    return ul_op_get(node->op)->view == NULL ? UL_NONE : node->inputs[0];
}

/* Both sums, once it is known which operands are the halves. */
static bool become_rotary(struct ul_pattern *pattern, const struct ul_node *first,
                          const struct ul_node *second, ul_value_id low, ul_value_id high)
{
    ul_value_id x = whole_of(pattern, low);
    const struct ul_type *type = x == UL_NONE ? NULL : ul_pattern_type(pattern, x);
    ul_value_id out = pattern->graph->nodes[pattern->root].outputs[0];
    if (type == NULL || type->rank == 0 || !ul_type_equal(ul_pattern_type(pattern, out), type) ||
        !is_half(pattern, low, x, 0, 1) ||
        !is_half(pattern, high, x, type->dims[type->rank - 1] / 2, 1))
        return false;
    ul_value_id cosine = factor_of(pattern, first->inputs[0], low);
    ul_value_id sine = factor_of(pattern, first->inputs[1], high);
    const ul_value_id inputs[] = {x, cosine, sine};
    bool fits = false;
    for (uint32_t i = 0; i < 2 && !fits; i++)
        fits = factor_of(pattern, second->inputs[i], high) == cosine &&
               factor_of(pattern, second->inputs[1 - i], low) == sine;
    if (cosine == UL_NONE || sine == UL_NONE || !fits || !broadcasts_to(pattern, cosine, low) ||
        !broadcasts_to(pattern, sine, low) || !ul_pattern_is_closed(pattern, inputs, 3))
        return false;
    ul_pattern_replace(pattern, UL_OP_FusedRotary, inputs, 3);
    return true;
}

bool ul_pattern_rotary_halves(struct ul_pattern *pattern, ul_node_id root)
{
    const struct ul_node *concat = &pattern->graph->nodes[root];
    uint32_t rank = ul_pattern_type(pattern, concat->outputs[0])->rank;
    int64_t axis = ul_node_get_int(concat, "axis", 0);
    if (concat->input_count != 2 || (axis != -1 && axis != (int64_t)rank - 1))
        return false;
    for (uint32_t way = 0; way < 4; way++) {
        ul_pattern_begin(pattern, root);
        const struct ul_node *first = ul_pattern_match(pattern, concat->inputs[0], UL_OP_Sub);
        const struct ul_node *second = ul_pattern_match(pattern, concat->inputs[1], UL_OP_Add);
        if (first == NULL || second == NULL)
            return false;
        const struct ul_node *low = ul_pattern_match(pattern, first->inputs[0], UL_OP_Mul);
        const struct ul_node *high = ul_pattern_match(pattern, first->inputs[1], UL_OP_Mul);
        if (low == NULL || high == NULL)
            return false;
        if (become_rotary(pattern, first, second, low->inputs[way & 1u],
                          high->inputs[way >> 1 & 1u]))
            return true;
    }
    return false;
}
