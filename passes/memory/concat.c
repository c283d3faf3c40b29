/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of a Concat that are produced in their place, so that joining them costs nothing.
 *
 * Problem: a Concat copies every operand, and holds operands and result at once. Method: an operand
 * made by a kernel of the same block gets a view into its slice of the result; views on it follow
 * (the hooks are asked again). A Concat may itself be an operand, so nests are laid out from the
 * last Concat to the first:
 *
 *      c2      [ x0 | x1 | x2 ]      c2 = Concat(c1, x2) owns
 *      c1      [ x0 | x1 ]           c1 = Concat(x0, x1) is a view
 *
 * The result's bytes are then alive from the first operand on, which can cost more than the copy
 * saved (a skip connection over a whole U-Net). So each Concat is tried by itself, from the last to
 * the first, and stays in place only if the live sum does not grow; what was best is kept.
 * In training, what products make is kept for the backward pass, and what maps make is computed
 * again where bytes are short: a Concat of both stays a copy, since in one place they could only be
 * kept together.
 *
 * Movements follow the gradient of attention: they put heads side by side again, an order that no
 * view of its results can have, and then a Concat may join these. The gradient is stored where the
 * movements would put it, and they become views of that place:
 *
 *      g [B,H,S,D] -> Transpose [B,S,H,D] -> Reshape [B,S,H D]     g is stored as [B,S,H,D]
 *
 * Products are not stored so, since calls of libraries store dense results. Maps need not be: they
 * are fused with the movements. Left undone: choosing single operands; layouts that would make
 * slices dense.
 */
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/view.h"
#include "passes/shared/steps.h"

#include <string.h>

struct concat {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_node_list order;
    const uint32_t *needs;
    bool *is_moved;      /* per value: nothing but movements reads it */
    ul_node_id *concats; /* in execution order */
    uint32_t count;
    bool *enabled; /* per concat */
    bool *mixes;   /* per concat: it has results of products and of maps, and stays a copy */
    bool *fixed;   /* per value */
    struct ul_arena scratch;
};

enum { MAX_MOVEMENTS = 8 }; /* between a kernel and the place of what it makes */

/* Whether the value may lie with this view instead of in bytes of its own. */
static bool can_lie(const struct concat *concat, const struct ul_node *node, ul_value_id id,
                    const struct ul_view *view)
{
    const struct ul_value *value = &concat->graph->values[id];
    return value->kind == UL_VALUE_NODE && !concat->fixed[id] && value->donor == UL_NONE &&
           (value->flags & UL_VALUE_PERSISTENT) == 0 &&
           concat->graph->nodes[value->producer].parent == node->parent &&
           ((concat->needs[id] & UL_LAYOUT_DENSE) == 0 || ul_view_is_dense(&value->type, view));
}

/* Whether the kernel that makes `operand` may store it with this view. */
static bool can_place(const struct concat *concat, const struct ul_node *node, ul_value_id operand,
                      const struct ul_view *view)
{
    const struct ul_graph *graph = concat->graph;
    if (!can_lie(concat, node, operand, view) ||
        ul_type_elements(&graph->values[operand].type) == 0 ||
        (concat->needs[operand] & UL_LAYOUT_OWN) != 0)
        return false;
    const struct ul_op_info *row = ul_op_get(graph->nodes[graph->values[operand].producer].op);
    return (row->flags & UL_OP_CONTROL) == 0 && row->view == NULL;
}

/* Finds the values that only movements read. Each movement can then be a view, wherever the value
 * lies. */
static bool *find_moved(const struct ul_graph *graph, const struct ul_node_list *order,
                        struct ul_arena *arena)
{
    const uint32_t *uses = ul_graph_count_uses(graph, arena);
    uint32_t *moves = UL_NEW_ARRAY(arena, uint32_t, graph->value_count);
    bool *is_moved = UL_NEW_ARRAY(arena, bool, graph->value_count);
    for (uint32_t n = 0; n < order->count; n++) {
        const struct ul_node *node = &graph->nodes[order->nodes[n]];
        if (ul_op_get(node->op)->place != NULL)
            moves[node->inputs[0]]++;
    }
    for (uint32_t v = 0; v < graph->value_count; v++)
        is_moved[v] = uses[v] > 0 && uses[v] == moves[v];
    return is_moved;
}

/* Whether the movement that makes a value can be a view, so that the kernel in front of it stores
 * elsewhere. */
static bool can_move(const struct concat *concat, const struct ul_node *node, ul_value_id id,
                     const struct ul_view *view)
{
    if (!can_lie(concat, node, id, view))
        return false;
    const struct ul_node *producer = &concat->graph->nodes[concat->graph->values[id].producer];
    return ul_op_get(producer->op)->place != NULL && producer->output_count == 1 &&
           concat->is_moved[producer->inputs[0]];
}

/* Whether the kernel that makes the value stores it as fast with this view as in its own order. */
static bool stores_anywhere(const struct ul_graph *graph, ul_value_id id,
                            const struct ul_view *view)
{
    const struct ul_value *value = &graph->values[id];
    uint32_t rank = value->type.rank;
    return (ul_op_get(graph->nodes[value->producer].op)->flags & UL_OP_STORES_ROWS) != 0 &&
           rank > 0 && view->strides[rank - 1] == 1;
}

/* Looks through the movements that make `id` for a kernel. Lets the kernel store its result where
 * `id` then has this view, without a copy. False: nothing has changed. */
static bool place_moved(struct concat *concat, const struct ul_node *node, ul_value_id id,
                        const struct ul_view *view)
{
    struct ul_graph *graph = concat->graph;
    ul_value_id moved[MAX_MOVEMENTS];
    struct ul_view views[MAX_MOVEMENTS], at = *view;
    uint32_t count = 0;
    while (can_move(concat, node, id, &at)) {
        const struct ul_node *producer = &graph->nodes[graph->values[id].producer];
        struct ul_view input;
        if (count == MAX_MOVEMENTS ||
            !ul_op_get(producer->op)->place(graph, producer, 0, &at, &input))
            return false;
        moved[count] = id;
        views[count++] = at;
        id = producer->inputs[0];
        at = input;
    }
    if (count == 0 || !can_place(concat, node, id, &at) || !stores_anywhere(graph, id, &at))
        return false;
    UL_ASSERT(at.base == view->base);
    graph->values[id].view = at;
    concat->fixed[id] = true;
    for (uint32_t i = 0; i < count; i++) {
        graph->values[moved[i]].view = views[i];
        concat->fixed[moved[i]] = true;
    }
    return true;
}

static void place_operands(struct concat *concat, ul_node_id id)
{
    struct ul_graph *graph = concat->graph;
    const struct ul_node *node = &graph->nodes[id];
    const struct ul_value *output = &graph->values[node->outputs[0]];
    int64_t axis = ul_node_get_int(node, "axis", 0);
    axis += axis < 0 ? (int64_t)output->type.rank : 0;
    struct ul_view slice = output->view;
    UL_ASSERT(axis >= 0 && axis < (int64_t)output->type.rank && slice.base != UL_NONE);
    for (uint32_t i = 0; i < node->input_count; i++) {
        struct ul_value *value = &graph->values[node->inputs[i]];
        int64_t step = value->type.dims[axis] * slice.strides[axis] *
                       (int64_t)ul_value_element_bytes(graph, node->inputs[i]);
        if (can_place(concat, node, node->inputs[i], &slice)) {
            value->view = slice;
            concat->fixed[node->inputs[i]] = true;
        } else {
            (void)place_moved(concat, node, node->inputs[i], &slice);
        }
        slice.offset_bytes += step;
    }
}

/* Views of the whole graph under the choice of enabled concats, and its live sum. */
static uint64_t lay_out(struct concat *concat)
{
    struct ul_graph *graph = concat->graph;
    memset(concat->fixed, 0, graph->value_count * sizeof *concat->fixed);
    for (uint32_t c = concat->count; c-- > 0;) {
        ul_value_id output = graph->nodes[concat->concats[c]].outputs[0];
        if (!concat->enabled[c])
            continue;
        if (!concat->fixed[output])
            graph->values[output].view = ul_view_own(graph, output);
        concat->fixed[output] = true;
        place_operands(concat, concat->concats[c]);
    }
    ul_views_compute(graph, &concat->order, concat->needs, concat->fixed,
                     !ul_pass_is_disabled(concat->pass, "views"));
    uint64_t peak = ul_steps_peak_bytes(graph, &concat->scratch);
    ul_arena_reset(&concat->scratch);
    return peak;
}

static void choose(struct concat *concat)
{
    /* Steps of the whole search; beyond it all are tried together. */
    enum { WORK_LIMIT = 50 * 1000 * 1000 };
    uint64_t best = lay_out(concat);
    bool single = (uint64_t)concat->count * concat->order.count <= WORK_LIMIT;
    for (uint32_t c = concat->count; single && c-- > 0;) {
        if (concat->mixes[c])
            continue;
        concat->enabled[c] = true;
        uint64_t peak = lay_out(concat);
        concat->enabled[c] = peak <= best;
        best = peak <= best ? peak : best;
    }
    bool *alone = UL_NEW_ARRAY(concat->pass->scratch, bool, concat->count);
    if (concat->count > 0)
        memcpy(alone, concat->enabled, concat->count * sizeof *alone);
    bool all = single;
    for (uint32_t c = 0; c < concat->count; c++) {
        all = all && concat->enabled[c];
        concat->enabled[c] = !concat->mixes[c];
    }
    if (!all && lay_out(concat) > best) {
        if (concat->count > 0)
            memcpy(concat->enabled, alone, concat->count * sizeof *alone);
        (void)lay_out(concat);
    }
}

/* Removes the copies of movements whose order no view can have, where the kernel in front of them
 * can store in that order. */
static void place_copies(struct concat *concat)
{
    struct ul_graph *graph = concat->graph;
    bool is_any = false;
    for (uint32_t n = concat->order.count; n-- > 0;) {
        ul_node_id id = concat->order.nodes[n];
        const struct ul_node *node = &graph->nodes[id];
        if (ul_op_get(node->op)->place == NULL || ul_node_is_view(graph, id))
            continue;
        struct ul_view own = ul_view_own(graph, node->outputs[0]);
        is_any = place_moved(concat, node, node->outputs[0], &own) || is_any;
    }
    if (is_any)
        ul_views_compute(graph, &concat->order, concat->needs, concat->fixed, true);
}

/* In training, for the forward pass: whether results of products stand beside those of maps. */
static bool mixes(const struct concat *concat, const struct ul_node *node)
{
    const struct ul_graph *graph = concat->graph;
    uint32_t flags = 0;
    if (concat->pass->options->training == NULL ||
        (graph->values[node->outputs[0]].flags & UL_VALUE_BACKWARD) != 0)
        return false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct ul_value *value = &graph->values[node->inputs[i]];
        if (value->kind == UL_VALUE_NODE)
            flags |= ul_op_get(graph->nodes[value->producer].op)->flags;
    }
    return (flags & UL_OP_ELEMENTWISE) != 0 && (flags & (UL_OP_CONVOLVES | UL_OP_MULTIPLIES)) != 0;
}

enum ul_status ul_pass_concat(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct concat concat = {.pass = pass, .graph = graph};
    concat.order = ul_edit_all_nodes(graph, pass->scratch);
    concat.needs = ul_views_needs(graph, pass->scratch);
    concat.is_moved = find_moved(graph, &concat.order, pass->scratch);
    concat.concats = UL_NEW_ARRAY(pass->scratch, ul_node_id, concat.order.count);
    concat.fixed = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    for (uint32_t n = 0; n < concat.order.count; n++) {
        if (graph->nodes[concat.order.nodes[n]].op == UL_OP_Concat)
            concat.concats[concat.count++] = concat.order.nodes[n];
    }
    concat.enabled = UL_NEW_ARRAY(pass->scratch, bool, concat.count);
    concat.mixes = UL_NEW_ARRAY(pass->scratch, bool, concat.count);
    for (uint32_t c = 0; c < concat.count; c++)
        concat.mixes[c] = mixes(&concat, &graph->nodes[concat.concats[c]]);
    ul_arena_init(&concat.scratch);
    if (concat.count > 0)
        choose(&concat);
    if (!ul_pass_is_disabled(pass, "views"))
        place_copies(&concat);
    ul_arena_done(&concat.scratch);
    return UL_OK;
}
