/* Parts of nodes: which part of its inputs a node needs for a part of its outputs. The operators'
 * own rules are hooks of their rows; here are the rule of elementwise operators and what hooks are
 * written with. */
#include "ir/op.h"
#include "ir/split_rule.h"
#include "ir/view.h"

#include <string.h>

const struct ul_type *ul_cut_input_type(const struct ul_cut *cut, uint32_t input)
{
    UL_ASSERT(input < cut->node->input_count && cut->node->inputs[input] != UL_NONE);
    return &cut->graph->values[cut->node->inputs[input]].type;
}

const struct ul_type *ul_cut_output_type(const struct ul_cut *cut)
{
    for (uint32_t i = 0; i < cut->node->output_count; i++) {
        if (cut->node->outputs[i] != UL_NONE)
            return &cut->graph->values[cut->node->outputs[i]].type;
    }
    UL_ASSERT(cut->node->output_count == UL_NONE); /* a node has an output */
    return NULL;
}

void ul_cut_take(struct ul_cut *cut, uint32_t input, uint32_t axis, int64_t begin, int64_t end)
{
    const struct ul_type *type = ul_cut_input_type(cut, input);
    UL_ASSERT(axis < type->rank && 0 <= begin && begin < end && end <= type->dims[axis]);
    cut->inputs[input] = (struct ul_part){.axis = axis, .begin = begin, .end = end};
}

void ul_cut_take_broadcast(struct ul_cut *cut, uint32_t input)
{
    if (input >= cut->node->input_count || cut->node->inputs[input] == UL_NONE)
        return;
    const struct ul_type *type = ul_cut_input_type(cut, input);
    uint32_t from_last = ul_cut_output_type(cut)->rank - cut->output.axis;
    if (from_last > type->rank || type->dims[type->rank - from_last] == 1)
        return;
    ul_cut_take(cut, input, type->rank - from_last, cut->output.begin, cut->output.end);
}

static struct ul_attr *attr_add(struct ul_cut *cut, const char *name, enum ul_attr_kind kind)
{
    UL_ASSERT(cut->attr_count < UL_CUT_ATTRS);
    struct ul_attr *attr = &cut->attrs[cut->attr_count++];
    *attr = (struct ul_attr){.name = name, .kind = kind};
    return attr;
}

void ul_cut_set_ints(struct ul_cut *cut, const char *name, const int64_t *values, uint32_t count)
{
    struct ul_attr *attr = attr_add(cut, name, UL_ATTR_INTS);
    attr->ints = ul_arena_copy(cut->arena, values, ul_size_mul_or_die(sizeof *values, count));
    attr->count = count;
}

void ul_cut_set_int(struct ul_cut *cut, const char *name, int64_t value)
{
    attr_add(cut, name, UL_ATTR_INT)->i = value;
}

void ul_cut_set_string(struct ul_cut *cut, const char *name, const char *value)
{
    attr_add(cut, name, UL_ATTR_STRING)->s = value;
}

void ul_cut_widen(struct ul_cut *cut, int64_t block)
{
    UL_ASSERT(block > 0 && ul_cut_output_type(cut)->dims[cut->output.axis] % block == 0);
    cut->output.begin -= cut->output.begin % block;
    cut->output.end += (block - cut->output.end % block) % block;
}

/* Outputs [begin, end) see [first, last) of the padded input:
 *
 *      padding |        input         | padding
 *         first . . . . . . . . . last                       part_begin = 0 - first
 */
bool ul_cut_window(const struct ul_cut *cut, struct ul_cut_window *window)
{
    int64_t first = cut->output.begin * window->stride - window->pad_begin;
    int64_t last = (cut->output.end - 1) * window->stride - window->pad_begin + window->reach;
    window->low = first > 0 ? first : 0;
    window->high = last < window->in ? last : window->in;
    window->part_begin = window->low - first;
    window->part_end = last - window->high;
    return window->low < window->high;
}

bool ul_cut_keeps_lanes(const struct ul_cut *cut, ul_value_id value, uint32_t axis)
{
    const struct ul_value *info = &cut->graph->values[value];
    uint32_t order[UL_LIMIT_RANK];
    uint32_t at = 0;
    if (cut->output.end - cut->output.begin > 1 || info->type.dims[axis] == 1)
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

static void cut_elementwise(struct ul_cut *cut)
{
    for (uint32_t i = 0; i < cut->node->input_count; i++)
        ul_cut_take_broadcast(cut, i);
}

bool ul_node_cut(struct ul_cut *cut)
{
    const struct ul_op_info *row = ul_op_get(cut->node->op);
    const struct ul_type *type = ul_cut_output_type(cut);
    UL_ASSERT(cut->output.axis < type->rank && 0 <= cut->output.begin &&
              cut->output.begin < cut->output.end &&
              cut->output.end <= type->dims[cut->output.axis]);
    cut->attr_count = 0;
    for (uint32_t i = 0; i < cut->node->input_count; i++) {
        cut->inputs[i] = (struct ul_part){.axis = UL_NONE};
        cut->constants[i] = NULL;
    }
    if ((row->flags & (UL_OP_RANDOM | UL_OP_CONTROL)) != 0)
        return false;
    if (row->cut != NULL)
        return row->cut(cut);
    if ((row->flags & UL_OP_ELEMENTWISE) == 0)
        return false;
    cut_elementwise(cut);
    return true;
}
