/* SPDX-License-Identifier: Apache-2.0 */
/* Channels-last: which values have dimension 1 innermost in their own bytes.
 *
 * Problem: a convolution sums over channels at every place, and is fastest by far where these lie
 * next to each other; a Reshape or a kernel that walks along rows wants them as the model says.
 * Method: shapes stay as they are, and only strides change (UL_VALUE_CHANNELS_LAST). Values that
 * nodes read and write alike form a region, which has one layout; a convolution can have different
 * ones before and after it, so it ends regions:
 *
 *      input -> Conv -> Relu -> MaxPool -> Conv -> Add -> GlobalAveragePool -> Flatten -> Gemm
 *              |  [----- region 1 -----]  |  [-- region 2 --]
 *
 * First all regions at convolutions are channels-last; then each is tried the other way, and what
 * costs less is kept. The costs are those of the nodes at its values, and of later nodes whose
 * operands' views change with them. Costs are bytes that views, once laid out, leave to move:
 * copies where a Reshape or Transpose is no view, operands with another layout than what is
 * computed from them, and what a convolution loses in a layout that does not suit it. Transposes
 * cost nothing where the layouts agree, and two of them around elementwise nodes cancel by being
 * views. What a convolution hands to the model as it is gets a copy after it. Row-major stay:
 * inputs, weights, outputs of the model, edges of nested blocks. Left undone: channel-blocked
 * layouts; constants of full shape are not turned. */
#include "ir/op.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

#include <string.h>

enum {
    FEW_CHANNELS = 3,       /* of an image: a convolution reads them in any layout */
    WORK_LIMIT = 100000000, /* nodes looked at; beyond it the first choice stands */
    FLOPS_PER_BYTE = 16,    /* lost for each where a convolution has the wrong layout */
    FOREIGN_FACTOR = 3      /* where a kernel cannot write channels-last in order */
};

struct layout {
    struct ul_graph *graph;
    struct ul_node_list order;
    const uint32_t *needs;
    ul_value_id *parents; /* per value: towards the head of its region */
    bool *can;            /* per value: may be channels-last */
    bool *wanted;         /* per value that heads a region: a convolution stands at it */
    bool *row_major;      /* per value that heads a region: it was asked to stay so */
    bool movements;       /* whether the views pass will run */
    /* Members of the region that a value heads, and the places in the order of the nodes that read
     * a value: from first_x[value] up to first_x[value + 1]. */
    uint32_t *first_member, *first_reader;
    ul_value_id *members;
    uint32_t *readers;
    uint32_t *places;      /* per node: in the order */
    uint64_t *costs;       /* per place */
    uint64_t *pending;     /* one bit per place: its views and cost may have changed */
    uint64_t work_count;   /* nodes whose cost was found anew */
    struct ul_view *views; /* room for the views of a node's outputs */
};

static const struct ul_op_info *row_of(const struct ul_node *node)
{
    return ul_op_get(node->op);
}

/* ---- Regions ---- */

static bool can_be_last(const struct layout *layout, ul_value_id id)
{
    const struct ul_value *value = &layout->graph->values[id];
    const struct ul_type *type = &value->type;
    if (value->kind != UL_VALUE_NODE || layout->needs[id] != UL_LAYOUT_ANY ||
        value->donor != UL_NONE || (value->flags & ~(uint32_t)UL_VALUE_BACKWARD) != 0 ||
        type->rank < 3 || type->rank > 5 ||
        (row_of(&layout->graph->nodes[value->producer])->flags & UL_OP_CONTROL) != 0)
        return false;
    int64_t space = 1;
    for (uint32_t d = 2; d < type->rank; d++)
        space *= type->dims[d];
    return space > 1 && type->dims[1] > 1 && type->dims[0] > 0;
}

static ul_value_id head_of(const struct layout *layout, ul_value_id value)
{
    UL_ASSERT(value < layout->graph->value_count);
    return ul_edit_find_head(layout->parents, value);
}

static void join(struct layout *layout, ul_value_id a, ul_value_id b)
{
    ul_edit_join_heads(layout->parents, a, b);
}

/* Whether the node reads its input `input` in the order in which it writes its outputs. */
static bool carries(const struct ul_node *node, uint32_t input)
{
    uint32_t flags = row_of(node)->flags;
    if ((flags & (UL_OP_ELEMENTWISE | UL_OP_JOINS)) != 0)
        return true;
    return (flags & UL_OP_SPATIAL) != 0 && input == 0;
}

/* A convolution of f32, or of integers that are added in i32. */
static bool is_convolution(const struct layout *layout, const struct ul_node *node)
{
    enum ul_dtype dtype = layout->graph->values[node->outputs[0]].type.dtype;
    return (row_of(node)->flags & UL_OP_CONVOLVES) != 0 && (dtype == UL_F32 || dtype == UL_I32);
}

static bool is_correlation(const struct layout *layout, const struct ul_node *node)
{
    return (row_of(node)->flags & UL_OP_CORRELATES) != 0 &&
           layout->graph->values[node->outputs[0]].type.dtype == UL_F32;
}

static void join_node(struct layout *layout, const struct ul_node *node)
{
    ul_value_id first = UL_NONE;
    for (uint32_t i = 0; i < node->input_count + node->output_count; i++) {
        bool is_input = i < node->input_count;
        ul_value_id value = is_input ? node->inputs[i] : node->outputs[i - node->input_count];
        if (value == UL_NONE || !layout->can[value] || (is_input && !carries(node, i)) ||
            (row_of(node)->flags & (UL_OP_ELEMENTWISE | UL_OP_SPATIAL)) == 0)
            continue;
        if (first != UL_NONE)
            join(layout, first, value);
        first = value;
    }
}

static void find_regions(struct layout *layout, struct ul_arena *scratch)
{
    const struct ul_graph *graph = layout->graph;
    layout->parents = UL_NEW_ARRAY(scratch, ul_value_id, graph->value_count);
    layout->can = UL_NEW_ARRAY(scratch, bool, graph->value_count);
    layout->wanted = UL_NEW_ARRAY(scratch, bool, graph->value_count);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        layout->parents[v] = v;
        layout->can[v] = can_be_last(layout, v);
    }
    for (uint32_t n = 0; n < layout->order.count; n++)
        join_node(layout, &graph->nodes[layout->order.nodes[n]]);
    for (uint32_t n = 0; n < layout->order.count; n++) {
        const struct ul_node *node = &graph->nodes[layout->order.nodes[n]];
        bool convolves = is_convolution(layout, node);
        bool correlates = is_correlation(layout, node);
        if ((convolves || correlates) && layout->can[node->inputs[0]])
            layout->wanted[head_of(layout, node->inputs[0])] = true;
        if (correlates && layout->can[node->inputs[1]])
            layout->wanted[head_of(layout, node->inputs[1])] = true;
        if (convolves && layout->can[node->outputs[0]])
            layout->wanted[head_of(layout, node->outputs[0])] = true;
    }
}

static void set_region(struct layout *layout, ul_value_id head, bool last)
{
    UL_ASSERT(head_of(layout, head) == head);
    struct ul_graph *graph = layout->graph;
    for (uint32_t i = layout->first_member[head]; i < layout->first_member[head + 1]; i++) {
        ul_value_id value = layout->members[i];
        graph->values[value].flags &= ~(uint32_t)UL_VALUE_CHANNELS_LAST;
        graph->values[value].flags |= last ? UL_VALUE_CHANNELS_LAST : 0;
        graph->values[value].view = ul_view_own(graph, value);
    }
}

/* Turns counts per value into where its list ends; filling the lists backwards then leaves where
 * they begin. */
static uint32_t sum_up(uint32_t *first, uint32_t value_count)
{
    for (uint32_t v = 0; v < value_count; v++)
        first[v + 1] += first[v];
    return first[value_count];
}

static void list_members(struct layout *layout, struct ul_arena *scratch)
{
    uint32_t count = layout->graph->value_count;
    uint32_t *first = layout->first_member = UL_NEW_ARRAY(scratch, uint32_t, count + 1);
    for (uint32_t v = 0; v < count; v++)
        first[head_of(layout, v)] += layout->can[v];
    layout->members = UL_NEW_ARRAY(scratch, ul_value_id, sum_up(first, count));
    for (uint32_t v = count; v-- > 0;) {
        if (layout->can[v])
            layout->members[--first[head_of(layout, v)]] = v;
    }
}

static void list_readers(struct layout *layout, struct ul_arena *scratch)
{
    const struct ul_graph *graph = layout->graph;
    uint32_t *first = layout->first_reader =
        UL_NEW_ARRAY(scratch, uint32_t, graph->value_count + 1);
    layout->places = UL_NEW_ARRAY(scratch, uint32_t, graph->node_count);
    for (uint32_t n = 0; n < layout->order.count; n++) {
        const struct ul_node *node = &graph->nodes[layout->order.nodes[n]];
        layout->places[layout->order.nodes[n]] = n;
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE)
                first[node->inputs[i]]++;
        }
    }
    layout->readers = UL_NEW_ARRAY(scratch, uint32_t, sum_up(first, graph->value_count));
    for (uint32_t n = layout->order.count; n-- > 0;) {
        const struct ul_node *node = &graph->nodes[layout->order.nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE)
                layout->readers[--first[node->inputs[i]]] = n;
        }
    }
}

/* ---- Costs ---- */

static uint64_t bytes_of(const struct layout *layout, ul_value_id value)
{
    return ul_type_bytes(&layout->graph->values[value].type);
}

/* The dimension whose elements are next to each other; UL_NONE: a single element. */
static uint32_t innermost(const struct layout *layout, ul_value_id id)
{
    const struct ul_value *value = &layout->graph->values[id];
    uint32_t order[UL_LIMIT_RANK];
    ul_view_order(&value->type, &value->view, order);
    for (uint32_t i = value->type.rank; i-- > 0;) {
        if (value->type.dims[order[i]] > 1)
            return order[i];
    }
    return UL_NONE;
}

/* The bytes of operands of about the output's size whose layout differs from its. */
static uint64_t mixed_bytes(const struct layout *layout, const struct ul_node *node)
{
    ul_value_id output = node->outputs[0];
    uint64_t mixed = 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id input = node->inputs[i];
        if (input == UL_NONE || !carries(node, i) ||
            layout->graph->values[input].type.rank != layout->graph->values[output].type.rank ||
            innermost(layout, input) == UL_NONE || innermost(layout, output) == UL_NONE)
            continue;
        bool large = (row_of(node)->flags & UL_OP_ELEMENTWISE) == 0 ||
                     bytes_of(layout, input) >= bytes_of(layout, output) / 2;
        if (large && innermost(layout, input) != innermost(layout, output))
            mixed += bytes_of(layout, input);
    }
    return mixed;
}

static bool has_last(const struct layout *layout, ul_value_id value)
{
    uint32_t inner = innermost(layout, value);
    return inner == 1 || inner == UL_NONE || layout->graph->values[value].type.dims[1] == 1;
}

/* What a convolution loses: its products, counted as bytes, and what is moved twice for it.
 * `w`: the weights, or their gradient. */
static uint64_t convolution_loss(const struct layout *layout, ul_value_id x, ul_value_id y,
                                 ul_value_id w)
{
    const struct ul_type *in = &layout->graph->values[x].type;
    const struct ul_type *out = &layout->graph->values[y].type;
    const struct ul_type *weight = &layout->graph->values[w].type;
    bool in_last = in->dims[1] <= FEW_CHANNELS || has_last(layout, x);
    bool out_last = has_last(layout, y);
    uint64_t places = ul_type_elements(in->dims[1] > out->dims[1] ? in : out);
    uint64_t products =
        weight->dims[0] == 0 ? 0 : ul_type_elements(weight) / (uint64_t)weight->dims[0];
    uint64_t lost;
    if (in_last && out_last)
        return 0;
    if (!ul_size_mul(places, products, &lost))
        return UINT64_MAX / 4;
    return lost / FLOPS_PER_BYTE + (in_last ? 0 : 2 * bytes_of(layout, x)) +
           (out_last ? 0 : 2 * bytes_of(layout, y));
}

static uint64_t node_cost(const struct layout *layout, ul_node_id id)
{
    const struct ul_node *node = &layout->graph->nodes[id];
    uint32_t flags = row_of(node)->flags;
    uint64_t cost = 0;
    if (node->output_count == 0 || node->outputs[0] == UL_NONE ||
        ul_node_is_view(layout->graph, id))
        return 0;
    if (row_of(node)->view != NULL)
        cost += 2 * bytes_of(layout, node->outputs[0]);
    if (is_convolution(layout, node))
        return cost + convolution_loss(layout, node->inputs[0], node->outputs[0], node->inputs[1]);
    if (is_correlation(layout, node))
        return cost + convolution_loss(layout, node->inputs[0], node->inputs[1], node->outputs[0]);
    if ((flags & (UL_OP_ELEMENTWISE | UL_OP_SPATIAL)) != 0)
        return cost + mixed_bytes(layout, node);
    /* The loops of a map follow its result. */
    for (uint32_t i = 0; row_of(node)->map == NULL && i < node->output_count; i++) {
        ul_value_id output = node->outputs[i];
        if (output != UL_NONE &&
            (layout->graph->values[output].flags & UL_VALUE_CHANNELS_LAST) != 0)
            cost += FOREIGN_FACTOR * bytes_of(layout, output);
    }
    return cost;
}

/* ---- Choice ---- */

static bool same_view(const struct ul_type *type, const struct ul_view *a, const struct ul_view *b)
{
    return a->base == b->base && a->offset_bytes == b->offset_bytes &&
           memcmp(a->strides, b->strides, type->rank * sizeof *a->strides) == 0;
}

static void mark_readers(struct layout *layout, ul_value_id value)
{
    for (uint32_t i = layout->first_reader[value]; i < layout->first_reader[value + 1]; i++)
        ul_bits_add(layout->pending, layout->readers[i]);
}

/* The next marked place from `place` on, or the count of places. */
static uint32_t next_marked(const struct layout *layout, uint32_t place)
{
    uint32_t count = layout->order.count;
    while (place < count && !ul_bits_have(layout->pending, place)) {
        bool none = layout->pending[place / 64] >> place % 64 == 0;
        place = none ? (place / 64 + 1) * 64 : place + 1;
    }
    return place < count ? place : count;
}

/* Finds views and cost of the node at a place; marks the nodes that read what has changed. */
static void update_node(struct layout *layout, uint32_t place)
{
    struct ul_graph *graph = layout->graph;
    ul_node_id id = layout->order.nodes[place];
    const struct ul_node *node = &graph->nodes[id];
    struct ul_view *before = layout->views;
    struct ul_node_list one = {.count = 1, .nodes = &id};
    for (uint32_t i = 0; i < node->output_count; i++)
        before[i] = graph->values[node->outputs[i]].view;
    ul_views_compute(graph, &one, layout->needs, NULL, layout->movements);
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct ul_value *value = &graph->values[node->outputs[i]];
        if (!same_view(&value->type, &before[i], &value->view))
            mark_readers(layout, node->outputs[i]);
    }
    layout->costs[place] = node_cost(layout, id);
    ul_bits_remove(layout->pending, place);
    layout->work_count++;
}

/* Lays the region out, and brings views and costs up to date. True: what has changed now costs
 * more. */
static bool try_region(struct layout *layout, ul_value_id head, bool last)
{
    const struct ul_graph *graph = layout->graph;
    uint64_t before = 0, after = 0;
    uint32_t place = layout->order.count;
    set_region(layout, head, last);
    for (uint32_t i = layout->first_member[head]; i < layout->first_member[head + 1]; i++) {
        uint32_t made = layout->places[graph->values[layout->members[i]].producer];
        place = made < place ? made : place;
        ul_bits_add(layout->pending, made);
        mark_readers(layout, layout->members[i]);
    }
    for (place = next_marked(layout, place); place < layout->order.count;
         place = next_marked(layout, place)) {
        before = ul_size_add_saturating(before, layout->costs[place]);
        update_node(layout, place);
        after = ul_size_add_saturating(after, layout->costs[place]);
    }
    return after > before;
}

static void begin_costs(struct layout *layout, struct ul_arena *scratch)
{
    const struct ul_graph *graph = layout->graph;
    uint32_t max = 0;
    list_readers(layout, scratch);
    layout->costs = UL_NEW_ARRAY(scratch, uint64_t, layout->order.count);
    layout->pending = UL_NEW_ARRAY(scratch, uint64_t, layout->order.count / 64 + 1);
    ul_views_compute(layout->graph, &layout->order, layout->needs, NULL, layout->movements);
    for (uint32_t n = 0; n < layout->order.count; n++) {
        uint32_t outputs = graph->nodes[layout->order.nodes[n]].output_count;
        max = outputs > max ? outputs : max;
        layout->costs[n] = node_cost(layout, layout->order.nodes[n]);
    }
    layout->views = UL_NEW_ARRAY(scratch, struct ul_view, max);
}

/* Costs and views are what they would be if all were found anew. */
static bool is_current(const struct layout *layout)
{
    ul_views_compute(layout->graph, &layout->order, layout->needs, NULL, layout->movements);
    for (uint32_t n = 0; n < layout->order.count; n++) {
        if (layout->costs[n] != node_cost(layout, layout->order.nodes[n]))
            return false;
    }
    return true;
}

static void choose(struct layout *layout, struct ul_arena *scratch)
{
    const struct ul_graph *graph = layout->graph;
    uint32_t regions = 0;
    list_members(layout, scratch);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (!layout->wanted[v] || layout->row_major[v])
            continue;
        set_region(layout, v, true);
        regions++;
    }
    if (regions == 0)
        return;
    begin_costs(layout, scratch);
    for (uint32_t v = 0; v < graph->value_count && layout->work_count < WORK_LIMIT; v++) {
        if (layout->wanted[v] && !layout->row_major[v] && try_region(layout, v, false))
            (void)try_region(layout, v, true);
    }
    UL_ASSERT(is_current(layout));
}

/* What a convolution passes to the model as it is. */
static bool can_be_copied(const struct layout *layout, ul_value_id id)
{
    const struct ul_graph *graph = layout->graph;
    const struct ul_value *value = &graph->values[id];
    return value->kind == UL_VALUE_NODE && value->flags == 0 && value->donor == UL_NONE &&
           (layout->needs[id] & UL_LAYOUT_DENSE) == 0 &&
           ul_graph_is_root(graph, graph->nodes[value->producer].parent) && value->type.rank >= 3 &&
           !has_last(layout, id) && is_convolution(layout, &graph->nodes[value->producer]);
}

static bool is_copied(const struct layout *layout, ul_value_id id)
{
    const struct ul_graph *graph = layout->graph;
    return can_be_copied(layout, id) && !layout->row_major[id] &&
           (graph->values[graph->nodes[graph->values[id].producer].inputs[0]].flags &
            UL_VALUE_CHANNELS_LAST) != 0;
}

/* A convolution's result that the model returns is computed channels-last and copied, unless a node
 * with blocks reads it as well: these take it row-major. */
static void copy_results(struct layout *layout, ul_block_id root)
{
    struct ul_graph *graph = layout->graph;
    for (uint32_t i = 0; i < graph->blocks[root].output_count; i++) {
        ul_value_id value = graph->blocks[root].outputs[i];
        if (!is_copied(layout, value))
            continue;
        struct ul_build build = ul_build_after(graph, graph->values[value].producer);
        build.name = graph->values[value].name;
        graph->blocks[root].outputs[i] = ul_build_copy(&build, value);
        graph->values[value].flags = UL_VALUE_CHANNELS_LAST;
    }
}

/* ---- By name ---- */

/* Per value: a convolution's region can be named by it. */
static bool is_choice(const struct layout *layout, ul_value_id id)
{
    ul_value_id head = head_of(layout, id);
    return layout->wanted[head] ||
           (head == id && (layout->needs[id] & UL_LAYOUT_OWN) != 0 && can_be_copied(layout, id));
}

static enum ul_status keep_row_major(struct ul_pass *pass, struct layout *layout)
{
    const struct ul_passes_options *options = pass->options;
    for (uint32_t i = 0; i < options->row_major_count; i++) {
        ul_node_id node = ul_edit_find_node(pass->graph, options->row_major[i]);
        if (node == UL_NONE || pass->graph->nodes[node].output_count == 0 ||
            !is_choice(layout, pass->graph->nodes[node].outputs[0]))
            return ul_diag_set(pass->diag, UL_USAGE,
                               "--row-major %s: no node of this name makes what convolutions read "
                               "or write, as the model is after simplification",
                               ul_quote(pass->scratch, options->row_major[i]));
        layout->row_major[head_of(layout, pass->graph->nodes[node].outputs[0])] = true;
    }
    return UL_OK;
}

static void begin(struct layout *layout, struct ul_graph *graph, struct ul_arena *scratch)
{
    layout->graph = graph;
    layout->order = ul_edit_all_nodes(graph, scratch);
    layout->needs = ul_views_needs(graph, scratch);
    layout->row_major = UL_NEW_ARRAY(scratch, bool, graph->value_count);
    find_regions(layout, scratch);
}

void ul_layout_find_regions(struct ul_arena *arena, const struct ul_graph *graph,
                            struct ul_layout_regions *regions)
{
    struct layout layout = {.movements = true};
    struct ul_graph *copy = UL_NEW(arena, struct ul_graph);
    ul_graph_copy(copy, arena, graph);
    begin(&layout, copy, arena);
    regions->count = 0;
    regions->names = UL_NEW_ARRAY(arena, const char *, graph->value_count);
    regions->of_values = UL_NEW_ARRAY(arena, uint32_t, graph->value_count);
    uint32_t *of_heads = UL_NEW_ARRAY(arena, uint32_t, graph->value_count);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        ul_value_id head = head_of(&layout, v);
        regions->of_values[v] = UL_NONE;
        if (!is_choice(&layout, v))
            continue;
        if (head == v)
            of_heads[head] = regions->count++;
        uint32_t region = regions->of_values[v] = of_heads[head];
        if (regions->names[region] == NULL && graph->nodes[value->producer].outputs[0] == v)
            regions->names[region] = ul_edit_name_node(graph, value->producer);
    }
}

enum ul_status ul_pass_layout(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct layout layout = {.movements = !ul_pass_is_disabled(pass, "views")};
    begin(&layout, graph, pass->scratch);
    UL_TRY(keep_row_major(pass, &layout));
    choose(&layout, pass->scratch);
    for (uint32_t r = 0; r < layout.graph->root_count; r++)
        copy_results(&layout, r);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind != UL_VALUE_DEAD)
            graph->values[v].view = ul_view_own(graph, v);
    }
    return UL_OK;
}
