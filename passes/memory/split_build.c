/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a split: for each, slices of what the chain reads and a copy of its nodes, whose
 * results lie in their place of the whole results; then a Concat that only says so.
 *
 * Groups stay what they are, each piece having its own, so that a piece's kernel computes an
 * element by exactly the expression that the whole kernel has. A copied node names the one that it
 * was copied from ("ul_piece_of") and which slice of it it is ("ul_piece_at": axis of the result
 * and first element): the program compares how both form their sums. */
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/view.h"
#include "passes/memory/split.h"

/* A slice that was made for this piece. */
struct slice {
    ul_value_id value, made;
    struct ul_slice slice;
};

struct build {
    struct ul_pass *pass;
    struct ul_graph *graph;
    const struct ul_split_chain *chain;
    const bool *is_view;  /* per node of the chain: it needed no kernel */
    struct ul_build here; /* after the chain's last node */
    struct ul_split_needed needed;
    int64_t piece;
    ul_value_id *copies; /* per value of the graph before: its copy in this piece, or UL_NONE */
    struct slice *slices;
    uint32_t slice_count, slice_capacity;
    /* Nodes of this piece, and which of the chain they are copies of (UL_NONE: a slice). */
    ul_node_id *nodes, *origins;
    uint32_t node_count, node_capacity, origin_capacity;
    ul_value_id *results; /* per output of the chain and piece */
    uint32_t piece_count;
    uint32_t group, group_from; /* the last group made, and the group that it is a copy of */
    uint32_t value_count;       /* of the graph before */
};

static const char *piece_name(const struct build *build, const char *name)
{
    return ul_arena_printf(build->graph->arena, "%s [%lld/%u]", name, (long long)build->piece + 1,
                           (unsigned)build->piece_count);
}

static void note_node(struct build *build, ul_node_id node, ul_node_id origin)
{
    UL_ASSERT(node < build->graph->node_count);
    UL_GROW(build->pass->scratch, build->nodes, build->node_count, build->node_capacity);
    uint32_t count = build->node_count;
    UL_GROW(build->pass->scratch, build->origins, count, build->origin_capacity);
    build->nodes[build->node_count] = node;
    build->origins[build->node_count++] = origin;
}

/* ---- Views ---- */

/* Moves the view to elements [begin, ..) along the axis. */
static void move_view(uint32_t element_bytes, uint32_t axis, int64_t begin, struct ul_view *view)
{
    UL_ASSERT(begin >= 0);
    view->offset_bytes += begin * view->strides[axis] * (int64_t)element_bytes;
}

/* Outputs in the bytes of the input, where the row can; else in their own. */
static void view_outputs(struct ul_graph *graph, ul_node_id id)
{
    const struct ul_node *node = &graph->nodes[id];
    ul_view_fn *hook = ul_op_get(node->op)->view;
    UL_ASSERT(hook != NULL);
    const struct ul_view *input = &graph->values[node->inputs[0]].view;
    bool all = true;
    struct ul_view view;
    for (uint32_t i = 0; i < node->output_count; i++)
        all = all && hook(graph, node, i, input, &view);
    for (uint32_t i = 0; i < node->output_count; i++) {
        view = ul_view_own(graph, node->outputs[i]);
        if (all)
            (void)hook(graph, node, i, input, &view);
        graph->values[node->outputs[i]].view = view;
        if (all)
            ul_value_store_as(graph, node->outputs[i], view.base);
    }
}

static bool is_moved(const struct build *build, uint32_t index)
{
    ul_node_id origin = build->origins[index];
    return origin == UL_NONE ||
           (build->is_view[origin] && ul_op_get(build->graph->nodes[origin].op)->view != NULL);
}

/* Operands of a copied Concat lie in it where those of the Concat did. */
static void place_operands(const struct build *build, ul_node_id id, ul_node_id origin)
{
    struct ul_graph *graph = build->graph;
    const struct ul_node *node = &graph->nodes[id];
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id from = graph->nodes[origin].inputs[i];
        struct ul_value *value = &graph->values[node->inputs[i]];
        bool copied = from < build->value_count && build->copies[from] == node->inputs[i];
        if (copied && value->view.base == node->inputs[i] &&
            ul_concat_is_placed(graph, &graph->nodes[origin], i))
            value->view = ul_concat_slice(graph, node, i);
    }
}

/* All nodes of the piece are there: Concats take in their operands, the last Concat first, and then
 * come the values that only views follow. */
static void lay_out(const struct build *build)
{
    for (uint32_t n = build->node_count; n-- > 0;) {
        ul_node_id origin = build->origins[n];
        if (origin != UL_NONE &&
            (ul_op_get(build->graph->nodes[origin].op)->flags & UL_OP_JOINS) != 0)
            place_operands(build, build->nodes[n], origin);
    }
    for (uint32_t n = 0; n < build->node_count; n++) {
        if (is_moved(build, n))
            view_outputs(build->graph, build->nodes[n]);
    }
}

/* ---- Inputs ---- */

static void own_bytes(struct ul_graph *graph, ul_value_id value)
{
    graph->values[value].view = ul_view_own(graph, value);
}

static ul_value_id add_constant(struct build *build, const struct ul_tensor *tensor)
{
    ul_value_id value = ul_graph_add_weight(build->graph, "", tensor);
    own_bytes(build->graph, value);
    return value;
}

/* A constant of equal elements has no bytes that could be viewed: a smaller one takes its place. */
static ul_value_id cut_splat(struct build *build, ul_value_id value, const struct ul_slice *slice)
{
    const struct ul_tensor *tensor = build->graph->values[value].tensor;
    UL_ASSERT(slice->begin < slice->end && tensor->data == NULL);
    struct ul_type type = tensor->type;
    type.dims[slice->axis] = slice->end - slice->begin;
    ul_value_id made =
        add_constant(build, ul_tensor_new_splat(build->graph->arena, &type, tensor->splat));
    ul_value_store_as(build->graph, made, value);
    return made;
}

static ul_value_id add_slice(struct build *build, ul_value_id value, const struct ul_slice *slice)
{
    struct ul_graph *graph = build->graph;
    const struct ul_tensor *tensor = ul_graph_get_constant(graph, value);
    bool changes = (graph->values[value].flags & UL_VALUE_PERSISTENT) != 0;
    if (!changes && tensor != NULL && tensor->data == NULL)
        return cut_splat(build, value, slice);
    const char *name = graph->values[value].name;
    /* A slice of what the piece itself has made keeps that name. */
    name = value < build->value_count ? piece_name(build, name) : name;
    build->here.name = name;
    ul_value_id made = ul_build_slice(&build->here, value, slice->axis, slice->begin, slice->end);
    ul_node_id id = graph->values[made].producer;
    for (uint32_t i = 1; i < graph->nodes[id].input_count; i++)
        own_bytes(graph, graph->nodes[id].inputs[i]);
    ul_value_store_as(graph, made, value);
    view_outputs(graph, id);
    note_node(build, id, UL_NONE);
    return made;
}

/* The value in this piece that stands for `slice` of `value`, which the chain's copy or something
 * outside makes. `slice` counts from the value's own first element. */
static ul_value_id slice_of(struct build *build, ul_value_id value, const struct ul_slice *slice)
{
    const struct ul_type *type = &build->graph->values[value].type;
    if (slice->axis == UL_NONE || (slice->begin == 0 && slice->end == type->dims[slice->axis]))
        return value;
    UL_ASSERT(slice->begin >= 0 && slice->end <= type->dims[slice->axis]);
    for (uint32_t i = 0; i < build->slice_count; i++) {
        const struct slice *old = &build->slices[i];
        if (old->value == value && old->slice.axis == slice->axis &&
            old->slice.begin == slice->begin && old->slice.end == slice->end)
            return old->made;
    }
    ul_value_id made = add_slice(build, value, slice);
    UL_GROW(build->pass->scratch, build->slices, build->slice_count, build->slice_capacity);
    build->slices[build->slice_count++] =
        (struct slice){.value = value, .made = made, .slice = *slice};
    return made;
}

/* What stands for input `input` of a node of the chain where the piece takes `slice` of it. */
static ul_value_id input_of(struct build *build, ul_node_id node, uint32_t input,
                            const struct ul_split_rule *rule)
{
    ul_value_id value = build->graph->nodes[node].inputs[input];
    struct ul_slice slice = rule->inputs[input];
    if (value == UL_NONE)
        return UL_NONE;
    if (rule->constants[input] != NULL)
        return add_constant(build, rule->constants[input]);
    if (build->copies[value] == UL_NONE)
        return slice_of(build, value, &slice);
    slice.begin -= build->needed.needed[value].begin;
    slice.end -= build->needed.needed[value].begin;
    return slice_of(build, build->copies[value], &slice);
}

/* ---- Nodes ---- */

static uint32_t group_of(struct build *build, uint32_t from)
{
    if (from == UL_NONE)
        return UL_NONE;
    if (from != build->group_from) {
        build->group++;
        build->group_from = from;
    }
    return build->group;
}

/* Types follow from the rules; the rows promise that they are those of the expected slices. */
static enum ul_status infer_copy(struct build *build, ul_node_id id, ul_node_id origin)
{
    struct ul_graph *graph = build->graph;
    UL_TRY(ul_node_infer(graph, id, build->pass->scratch, build->pass->diag));
    for (uint32_t i = 0; i < graph->nodes[id].output_count; i++) {
        ul_value_id from = graph->nodes[origin].outputs[i];
        struct ul_type wanted = graph->values[from].type;
        const struct ul_slice *slice = &build->needed.needed[from];
        wanted.dims[slice->axis] = slice->end - slice->begin;
        if (!ul_type_equal(&wanted, &graph->values[graph->nodes[id].outputs[i]].type))
            return ul_diag_set(build->pass->diag, UL_INTERNAL, "a piece of %s has another shape",
                               ul_node_describe(graph, origin, build->pass->scratch));
    }
    return UL_OK;
}

/* What the program is to compare the piece with. */
static void name_whole(struct build *build, ul_node_id piece, ul_node_id whole)
{
    struct ul_graph *graph = build->graph;
    const struct ul_slice *slice = &build->needed.needed[graph->nodes[whole].outputs[0]];
    int64_t at[2] = {slice->axis, slice->begin};
    ul_node_set_int(graph, piece, "ul_piece_of", (int64_t)whole);
    ul_node_set_ints(graph, piece, "ul_piece_at", at, 2);
}

static enum ul_status copy_node(struct build *build, ul_node_id origin, const ul_value_id *inputs,
                                const struct ul_split_rule *rule)
{
    struct ul_graph *graph = build->graph;
    struct ul_node old = graph->nodes[origin];
    ul_node_id id = ul_build_like(&build->here, origin, inputs);
    graph->nodes[id].name = piece_name(build, old.name);
    graph->nodes[id].group = group_of(build, old.group);
    for (uint32_t i = 0; i < rule->attr_count; i++)
        ul_node_set_attr(graph, id, &rule->attrs[i]);
    if (!build->chain->split->defines)
        name_whole(build, id, origin);
    UL_TRY(infer_copy(build, id, origin));
    for (uint32_t i = 0; i < old.output_count; i++) {
        ul_value_id made = graph->nodes[id].outputs[i];
        graph->values[made].name = piece_name(build, graph->values[old.outputs[i]].name);
        graph->values[made].flags = graph->values[old.outputs[i]].flags;
        ul_value_store_as(graph, made, old.outputs[i]);
        own_bytes(graph, made);
        build->copies[old.outputs[i]] = made;
    }
    note_node(build, id, origin);
    return UL_OK;
}

static bool is_of_step(const struct ul_graph *graph, ul_value_id value, const ul_node_id *nodes,
                       uint32_t count)
{
    for (uint32_t n = 0; value != UL_NONE && n < count; n++) {
        if (graph->values[value].kind == UL_VALUE_NODE && graph->values[value].producer == nodes[n])
            return true;
    }
    return false;
}

/* An input that the step itself makes: nothing can come between, so all of it must be taken. */
static enum ul_status read_of_step(struct build *build, ul_node_id node, uint32_t input,
                                   const struct ul_split_rule *rule, ul_value_id *made)
{
    ul_value_id value = build->graph->nodes[node].inputs[input];
    const struct ul_slice *whole = &build->needed.needed[value];
    const struct ul_slice *slice = &rule->inputs[input];
    *made = build->copies[value];
    if (slice->axis == whole->axis && slice->begin == whole->begin && slice->end == whole->end)
        return UL_OK;
    struct ul_arena *scratch = build->pass->scratch;
    return ul_diag_set(build->pass->diag, UL_UNSUPPORTED,
                       "%s: %s takes less of a value than the rest of its step",
                       ul_quote(scratch, build->chain->split->text),
                       ul_node_describe(build->graph, node, scratch));
}

/* Copies one step: slices come first, since nothing may come between the nodes of a group. */
static enum ul_status copy_step(struct build *build, const ul_node_id *nodes, uint32_t count)
{
    struct ul_graph *graph = build->graph;
    struct ul_arena *scratch = build->pass->scratch;
    struct ul_split_rule *cuts = UL_NEW_ARRAY(scratch, struct ul_split_rule, count);
    ul_value_id **inputs = UL_NEW_ARRAY(scratch, ul_value_id *, count);
    for (uint32_t n = 0; n < count; n++) {
        uint32_t input_count = graph->nodes[nodes[n]].input_count;
        bool rule = ul_split_apply_rule(graph, &build->needed, nodes[n], graph->arena, &cuts[n]);
        UL_ASSERT(rule);
        inputs[n] = UL_NEW_ARRAY(scratch, ul_value_id, input_count);
        for (uint32_t i = 0; i < input_count; i++) {
            if (!is_of_step(graph, graph->nodes[nodes[n]].inputs[i], nodes, count))
                inputs[n][i] = input_of(build, nodes[n], i, &cuts[n]);
        }
    }
    for (uint32_t n = 0; n < count; n++) {
        for (uint32_t i = 0; i < graph->nodes[nodes[n]].input_count; i++) {
            if (is_of_step(graph, graph->nodes[nodes[n]].inputs[i], nodes, count))
                UL_TRY(read_of_step(build, nodes[n], i, &cuts[n], &inputs[n][i]));
        }
        UL_TRY(copy_node(build, nodes[n], inputs[n], &cuts[n]));
    }
    return UL_OK;
}

/* ---- Pieces ---- */

static enum ul_status build_piece(struct build *build, int64_t begin, int64_t end)
{
    const struct ul_split_chain *chain = build->chain;
    struct ul_graph *graph = build->graph;
    UL_TRY(ul_split_find_needed(build->pass, begin, end, &build->needed));
    build->slice_count = build->node_count = 0;
    build->group_from = UL_NONE;
    for (uint32_t at = 0, after; at < chain->node_count; at = after) {
        after = ul_steps_end(graph, chain->nodes, chain->node_count, at);
        UL_TRY(copy_step(build, chain->nodes + at, after - at));
    }
    for (uint32_t i = 0; i < chain->output_count; i++) {
        ul_value_id result = build->copies[chain->outputs[i]];
        struct ul_view view = graph->values[chain->outputs[i]].view;
        move_view(ul_value_element_bytes(graph, chain->outputs[i]), chain->axis, begin, &view);
        graph->values[result].view = view;
        ul_value_store_as(graph, result, view.base);
        build->results[i * build->piece_count + (uint32_t)build->piece] = result;
    }
    lay_out(build);
    return UL_OK;
}

/* Makes the whole result, which keeps its id, from its pieces. */
static void join(struct build *build, uint32_t output)
{
    struct ul_graph *graph = build->graph;
    ul_value_id whole = build->chain->outputs[output];
    build->here.name = graph->values[whole].name;
    ul_value_id fresh = ul_build_concat(&build->here, &build->results[output * build->piece_count],
                                        build->piece_count, build->chain->axis, NULL);
    ul_graph_exchange(graph, whole, fresh); /* the fresh one goes with the node */
    UL_ASSERT(ul_node_is_view(graph, graph->values[whole].producer));
}

enum ul_status ul_split_build(struct ul_pass *pass, const struct ul_split_chain *chain)
{
    struct ul_graph *graph = pass->graph;
    int64_t wanted = chain->split->piece_count;
    int64_t size = (chain->extent + wanted - 1) / wanted;
    struct build build = {.pass = pass,
                          .graph = graph,
                          .chain = chain,
                          .here = ul_build_after(graph, chain->nodes[chain->node_count - 1])};
    /* All pieces but the last have one size, and so share their kernels. */
    build.piece_count = (uint32_t)((chain->extent + size - 1) / size);
    build.value_count = chain->value_count;
    ul_split_needed_init(pass, chain, &build.needed);
    build.group = ul_edit_last_group(graph);
    build.copies = UL_NEW_ARRAY(pass->scratch, ul_value_id, graph->value_count);
    for (uint32_t v = 0; v < build.value_count; v++)
        build.copies[v] = UL_NONE; /* each piece overwrites what it copies */
    build.results =
        UL_NEW_ARRAY(pass->scratch, ul_value_id, (uint64_t)chain->output_count * build.piece_count);
    bool *is_view = UL_NEW_ARRAY(pass->scratch, bool, graph->node_count);
    for (uint32_t n = 0; n < chain->node_count; n++)
        is_view[chain->nodes[n]] = ul_node_is_view(graph, chain->nodes[n]);
    build.is_view = is_view;
    for (int64_t begin = 0; begin < chain->extent; begin += size, build.piece++) {
        int64_t end = begin + size < chain->extent ? begin + size : chain->extent;
        UL_TRY(build_piece(&build, begin, end));
    }
    for (uint32_t i = 0; i < chain->output_count; i++)
        join(&build, i);
    for (uint32_t n = 0; n < chain->node_count; n++)
        ul_graph_remove_node(graph, chain->nodes[n]);
    ul_graph_sweep(graph);
    return UL_OK;
}
