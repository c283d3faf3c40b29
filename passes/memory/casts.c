/* SPDX-License-Identifier: Apache-2.0 */
/* Lets products that read a parameter at the same time share one copy of it in 16 bits.
 *
 * Problem: pass precision rounds a matrix once for each order in which products read it. Where two
 * layers share a large table, or a product reads it as it lies and another one turned, two copies
 * lie in memory side by side:
 *
 *      t = Transpose(w)                                c = Cast(w)
 *      c = Cast(t);  y = x c                           t = Transpose(c), a view;  y = x t
 *      d = Cast(w);  dx = dy d;  y2 = x2 c             dx = dy c;  y2 = x2 t
 *
 * Method: where the earlier copy is still read after the later one is made, products read the
 * earlier one through a view instead, so that nothing lives longer. The pass runs after fuse, since
 * a copy that is fused with something else has no bytes. Left undone: copies that live one after
 * the other, where one would have to live on in between; more than two axes. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/rewrite.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

/* A step that rounds a parameter. */
struct copy {
    uint32_t place; /* in the outermost block */
    ul_node_id node;
    ul_value_id base; /* the parameter */
    bool turned;
};

/* Whether the value is the parameter with its two axes exchanged. */
static bool is_turned(const struct ul_value *value, const struct ul_value *base)
{
    return value->type.rank == 2 && base->type.rank == 2 && value->view.offset_bytes == 0 &&
           value->type.dims[0] == base->type.dims[1] && value->type.dims[1] == base->type.dims[0] &&
           value->view.strides[0] == 1 && value->view.strides[1] == base->type.dims[1];
}

static bool rounds_parameter(const struct ul_graph *graph, uint32_t place, struct copy *copy)
{
    ul_node_id id = ul_graph_only_root(graph)->nodes[place];
    const struct ul_node *node = &graph->nodes[id];
    if (node->group != UL_NONE || (ul_op_get(node->op)->flags & UL_OP_ELEMENTWISE) == 0 ||
        node->input_count != 1 || node->output_count != 1 || node->outputs[0] == UL_NONE)
        return false;
    const struct ul_value *made = &graph->values[node->outputs[0]];
    const struct ul_value *read = &graph->values[node->inputs[0]];
    ul_value_id base = read->view.base;
    *copy = (struct copy){place, id, base, node->inputs[0] != base};
    return (made->flags & UL_VALUE_ROUNDED) != 0 && made->view.base == node->outputs[0] &&
           ul_dtype_is_half(made->storage) && read->storage == UL_DTYPE_NONE &&
           read->type.dtype == made->type.dtype && base != UL_NONE &&
           graph->values[base].kind == UL_VALUE_WEIGHT &&
           (!copy->turned ||
            (is_turned(read, &graph->values[base]) && read->kind == UL_VALUE_NODE &&
             graph->nodes[read->producer].inputs[0] == base));
}

/* Gives the last place that reads the value, or a view of it. */
static uint32_t last_read(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_block *block = ul_graph_only_root(graph);
    uint32_t last = 0;
    for (uint32_t p = 0; p < block->node_count; p++)
        if (ul_donate_reads(graph, block->nodes[p], value))
            last = p;
    return last;
}

static void replace(struct ul_graph *graph, ul_value_id old, ul_value_id made, ul_node_id but)
{
    for (ul_node_id id = 0; id < graph->node_count; id++) {
        struct ul_node *node = &graph->nodes[id];
        for (uint32_t i = 0; id != but && node->op != UL_OP_NONE && i < node->input_count; i++)
            if (node->inputs[i] == old)
                node->inputs[i] = made;
    }
}

/* Adds a view of the copy after `place`. It turns the copy as `turned` turns the parameter. */
static ul_value_id turn(struct ul_graph *graph, uint32_t place, ul_value_id copy,
                        ul_value_id turned)
{
    const struct ul_value from = graph->values[turned]; /* the array moves */
    struct ul_build build = ul_build_at(graph, 0, place + 1, from.name);
    const struct ul_node like = graph->nodes[from.producer];
    UL_ASSERT(like.input_count > 0);
    ul_value_id *inputs =
        ul_arena_copy(graph->arena, like.inputs, like.input_count * sizeof *inputs);
    inputs[0] = copy;
    ul_node_id node = ul_build_like(&build, from.producer, inputs);
    ul_value_id made = graph->nodes[node].outputs[0];
    struct ul_value *value = &graph->values[made];
    value->type = from.type;
    value->storage = graph->values[copy].storage;
    value->flags = graph->values[copy].flags;
    value->view = from.view;
    value->view.base = copy;
    return made;
}

/* Lets one copy, the first, serve both. It has the parameter's order. */
static void merge(struct ul_graph *graph, const struct copy *first, const struct copy *second)
{
    ul_value_id copy = graph->nodes[first->node].outputs[0];
    ul_value_id other = graph->nodes[second->node].outputs[0];
    const struct copy *of = first->turned ? first : second;
    ul_value_id turned = graph->nodes[of->node].inputs[0];
    UL_ASSERT(first->turned != second->turned && first->base == second->base);
    if (first->turned) {
        graph->nodes[first->node].inputs[0] = first->base;
        graph->values[copy].type = graph->values[first->base].type;
        graph->values[copy].view = ul_view_own(graph, copy);
    }
    ul_value_id view = turn(graph, first->place, copy, turned);
    if (first->turned)
        replace(graph, copy, view, graph->values[view].producer);
    replace(graph, other, first->turned ? copy : view, UL_NONE);
    ul_graph_remove_node(graph, second->node);
}

/* Finds the first two copies of a parameter that live at the same time. */
static bool find_pair(const struct ul_graph *graph, struct copy *first, struct copy *second)
{
    uint32_t count = ul_graph_only_root(graph)->node_count;
    for (uint32_t a = 0; a < count; a++) {
        if (!rounds_parameter(graph, a, first))
            continue;
        uint32_t last = 0;
        for (uint32_t b = a + 1; b < count; b++) {
            if (!rounds_parameter(graph, b, second) || first->base != second->base ||
                first->turned == second->turned)
                continue;
            last = last != 0 ? last : last_read(graph, graph->nodes[first->node].outputs[0]);
            if (b < last)
                return true;
        }
    }
    return false;
}

enum ul_status ul_pass_casts(struct ul_pass *pass)
{
    struct copy first, second;
    while (find_pair(pass->graph, &first, &second)) {
        merge(pass->graph, &first, &second);
        ul_graph_sweep(pass->graph);
    }
    return UL_OK;
}
