/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of nodes: which slice of its inputs a node needs for a slice of its outputs. The
 * operators' own rules are hooks of their rows; here are the rule of elementwise operators and the
 * functions that hooks are written with. */
#include "ir/split_rule.h"
#include "ir/op.h"
#include "ir/view.h"

#include <string.h>

const struct ul_type *ul_split_rule_input_type(const struct ul_split_rule *split, uint32_t input)
{
    UL_ASSERT(input < split->node->input_count && split->node->inputs[input] != UL_NONE);
    return &split->graph->values[split->node->inputs[input]].type;
}

const struct ul_type *ul_split_rule_output_type(const struct ul_split_rule *split)
{
    for (uint32_t i = 0; i < split->node->output_count; i++) {
        if (split->node->outputs[i] != UL_NONE)
            return &split->graph->values[split->node->outputs[i]].type;
    }
    UL_ASSERT(split->node->output_count == UL_NONE); /* a node has an output */
    return NULL;
}

void ul_split_rule_read(struct ul_split_rule *split, uint32_t input, uint32_t axis, int64_t begin,
                        int64_t end)
{
    const struct ul_type *type = ul_split_rule_input_type(split, input);
    UL_ASSERT(axis < type->rank && 0 <= begin && begin < end && end <= type->dims[axis]);
    split->inputs[input] = (struct ul_slice){.axis = axis, .begin = begin, .end = end};
}

void ul_split_rule_read_broadcast(struct ul_split_rule *split, uint32_t input)
{
    if (input >= split->node->input_count || split->node->inputs[input] == UL_NONE)
        return;
    const struct ul_type *type = ul_split_rule_input_type(split, input);
    uint32_t from_last = ul_split_rule_output_type(split)->rank - split->output.axis;
    if (from_last > type->rank || type->dims[type->rank - from_last] == 1)
        return;
    ul_split_rule_read(split, input, type->rank - from_last, split->output.begin,
                       split->output.end);
}

static struct ul_attr *attr_add(struct ul_split_rule *split, const char *name,
                                enum ul_attr_kind kind)
{
    UL_ASSERT(split->attr_count < UL_SPLIT_RULE_ATTRS);
    struct ul_attr *attr = &split->attrs[split->attr_count++];
    *attr = (struct ul_attr){.name = name, .kind = kind};
    return attr;
}

void ul_split_rule_set_ints(struct ul_split_rule *split, const char *name, const int64_t *values,
                            uint32_t count)
{
    struct ul_attr *attr = attr_add(split, name, UL_ATTR_INTS);
    attr->ints = ul_arena_copy(split->arena, values, ul_size_mul_or_die(sizeof *values, count));
    attr->count = count;
}

void ul_split_rule_set_int(struct ul_split_rule *split, const char *name, int64_t value)
{
    attr_add(split, name, UL_ATTR_INT)->i = value;
}

void ul_split_rule_set_string(struct ul_split_rule *split, const char *name, const char *value)
{
    attr_add(split, name, UL_ATTR_STRING)->s = value;
}

void ul_split_rule_widen(struct ul_split_rule *split, int64_t block)
{
    UL_ASSERT(block > 0 && ul_split_rule_output_type(split)->dims[split->output.axis] % block == 0);
    split->output.begin -= split->output.begin % block;
    split->output.end += (block - split->output.end % block) % block;
}

/* Outputs [begin, end) see [first, last) of the padded input:
 *
 *      padding |        input         | padding
 *         first . . . . . . . . . last                       slice_begin = 0 - first
 */
bool ul_split_rule_window(const struct ul_split_rule *split, struct ul_split_rule_window *window)
{
    int64_t first = split->output.begin * window->stride - window->pad_begin;
    int64_t last = (split->output.end - 1) * window->stride - window->pad_begin + window->reach;
    window->low = first > 0 ? first : 0;
    window->high = last < window->in ? last : window->in;
    window->slice_begin = window->low - first;
    window->slice_end = last - window->high;
    return window->low < window->high;
}

bool ul_split_rule_keeps_lanes(const struct ul_split_rule *split, ul_value_id value, uint32_t axis)
{
    const struct ul_value *info = &split->graph->values[value];
    uint32_t order[UL_LIMIT_RANK];
    uint32_t at = 0;
    if (split->output.end - split->output.begin > 1 || info->type.dims[axis] == 1)
        return true;
    ul_view_order(&info->type, &info->view, order);
    while (order[at] != axis)
        at++;
    while (++at < info->type.rank) {
        if (info->type.dims[order[at]] > 1)
            return true;
    }
    return false;
}

static void split_elementwise(struct ul_split_rule *split)
{
    for (uint32_t i = 0; i < split->node->input_count; i++)
        ul_split_rule_read_broadcast(split, i);
}

bool ul_node_split(struct ul_split_rule *split)
{
    const struct ul_op_info *row = ul_op_get(split->node->op);
    const struct ul_type *type = ul_split_rule_output_type(split);
    UL_ASSERT(split->output.axis < type->rank && 0 <= split->output.begin &&
              split->output.begin < split->output.end &&
              split->output.end <= type->dims[split->output.axis]);
    split->attr_count = 0;
    for (uint32_t i = 0; i < split->node->input_count; i++) {
        split->inputs[i] = (struct ul_slice){.axis = UL_NONE};
        split->constants[i] = NULL;
    }
    if ((row->flags & (UL_OP_RANDOM | UL_OP_CONTROL)) != 0)
        return false;
    if (row->split != NULL)
        return row->split(split);
    if ((row->flags & UL_OP_ELEMENTWISE) == 0)
        return false;
    split_elementwise(split);
    return true;
}
