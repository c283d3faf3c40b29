/* SPDX-License-Identifier: Apache-2.0 */
/* Bits: where the backward pass only asks the forward pass for a yes or no, that is kept, 8 to a
 * byte.
 *
 *      y = Relu(c);  p = AveragePool(y)             y = Relu(c);  b = PackBits(Mask(y));  p = ..
 *      dp -> dy                                     dp -> dy
 *      dc = y <= 0 ? 0 : dy                         dc = UnpackBits(b) ? 0 : dy
 *
 * Problem: y is kept for its sign. Method: where views are known, a gradient that asks a condition
 * of its operands (a row's text of a mask), a condition that the backward pass forms of the forward
 * pass, and one that the forward pass has formed are packed in the forward pass, after what they
 * are formed of, if nothing else of the backward pass reads the bytes of that and a product stands
 * between. Packing reads y once more, and the backward pass does not. The planner keeps the bits,
 * or forms them again. They are packed along a dimension that is not the innermost in memory, so
 * that kernels treat rows alike. Left undone: signs of three kinds (Abs). */
#include "ir/gradient.h"
#include "ir/infer.h"
#include "ir/op_names.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

enum {
    BITS = 8,        /* in a byte */
    MIN_BYTES = 4096 /* that make one more step worth it */
};

struct bits {
    struct ul_pass *pass;
    struct ul_graph *graph;
    uint32_t known_count; /* values that stood when the pass began */
    uint32_t *places;     /* per node: in the block's order as it was */
    uint32_t *products;   /* per node: how many products come before it there */
    bool *is_read;        /* per value with bytes: whether the backward pass needs its numbers */
    bool *is_replaced;    /* per condition that is a value: whether its bits stand for it
                             somewhere */
    struct question *questions;
    uint32_t question_count, question_capacity;
    struct packed *packed;
    uint32_t count, capacity;
};

/* What the forward pass can form: a condition of these operands, or one of its values. */
struct condition {
    ul_node_id gradient; /* for which a node of its own must form it; UL_NONE: it is a value */
    ul_value_id value;
    uint32_t count;
    ul_value_id *operands;
};

/* A node of the backward pass asks it: by one input, or (a gradient) by all but the first. */
struct question {
    struct condition condition;
    ul_node_id reader;
    uint32_t input;
    bool is_refused;
};

struct packed {
    struct condition condition;
    ul_value_id bits;
    int64_t axis, size; /* of what was packed */
};

static bool is_forward(const struct bits *bits, ul_value_id id)
{
    const struct ul_value *value = &bits->graph->values[id];
    return (value->flags & UL_VALUE_BACKWARD) == 0 &&
           (value->kind != UL_VALUE_NODE ||
            ul_graph_is_root(bits->graph, bits->graph->nodes[value->producer].parent));
}

/* Whether a node of the backward pass forms a condition of what was there before that pass. */
static bool forms_condition(const struct bits *bits, const struct ul_node *node)
{
    const struct ul_graph *graph = bits->graph;
    bool forms = ul_edit_is_backward(graph, node) && ul_graph_is_root(bits->graph, node->parent) &&
                 node->output_count == 1 && (ul_op_get(node->op)->flags & UL_OP_ELEMENTWISE) != 0 &&
                 (ul_op_get(node->op)->flags & UL_OP_RANDOM) == 0 &&
                 graph->values[node->outputs[0]].type.dtype == UL_BOOL;
    for (uint32_t i = 0; forms && i < node->input_count; i++)
        forms = node->inputs[i] == UL_NONE || is_forward(bits, node->inputs[i]);
    return forms;
}

/* Finds all that a gradient asks of its operands. */
static bool find_mask(const struct bits *bits, ul_node_id id, struct condition *condition)
{
    ul_value_id operands[1 + UL_OP_GRADIENTS] = {0};
    *condition = (struct condition){.gradient = id, .value = UL_NONE};
    condition->count = ul_gradient_mask_inputs(bits->graph, id, operands);
    condition->operands = ul_arena_copy(bits->pass->scratch, operands, sizeof operands);
    return condition->count > 0;
}

/* Finds the condition in a value that a node of the backward pass reads. */
static bool find_condition(const struct bits *bits, ul_value_id id, struct condition *condition)
{
    const struct ul_graph *graph = bits->graph;
    const struct ul_value *value = &graph->values[id];
    *condition = (struct condition){.gradient = UL_NONE, .value = id};
    if (id >= bits->known_count || value->kind != UL_VALUE_NODE || value->type.dtype != UL_BOOL)
        return false;
    const struct ul_node *node = &graph->nodes[value->producer];
    bool is_formed = is_forward(bits, id);
    if (!is_formed && !forms_condition(bits, node))
        return false;
    condition->operands = ul_arena_copy(bits->pass->scratch, is_formed ? &id : node->inputs,
                                        (is_formed ? 1 : node->input_count) * sizeof id);
    condition->count = is_formed ? 1 : node->input_count;
    return true;
}

/* ---- What it spares ---- */

static void mark_read(struct bits *bits, ul_value_id id)
{
    if (id != UL_NONE)
        bits->is_read[bits->graph->values[id].view.base] = true;
}

static void ask(struct bits *bits, const struct condition *condition, ul_node_id reader,
                uint32_t input)
{
    UL_GROW(bits->pass->scratch, bits->questions, bits->question_count, bits->question_capacity);
    bits->questions[bits->question_count++] =
        (struct question){.condition = *condition, .reader = reader, .input = input};
}

/* Finds what a node of the backward pass reads for its numbers, and what it asks. */
static void find_reads(struct bits *bits, ul_node_id id)
{
    const struct ul_graph *graph = bits->graph;
    const struct ul_node *node = &graph->nodes[id];
    struct condition condition;
    if (!ul_edit_is_backward(graph, node) || forms_condition(bits, node) ||
        ul_node_is_view(graph, id))
        return;
    bool is_masked = find_mask(bits, id, &condition);
    if (is_masked)
        ask(bits, &condition, id, 1);
    for (uint32_t i = 0; i < (is_masked ? 1 : node->input_count); i++) {
        if (node->inputs[i] != UL_NONE && find_condition(bits, node->inputs[i], &condition))
            ask(bits, &condition, id, i);
        else
            mark_read(bits, node->inputs[i]);
    }
}

/* The model's outputs are read for their numbers, too. */
static void find_all_reads(struct bits *bits)
{
    const struct ul_graph *graph = bits->graph;
    const struct ul_block *block = ul_graph_only_root(graph);
    uint32_t products = 0;
    for (uint32_t n = 0; n < block->node_count; n++) {
        const struct ul_node *node = &graph->nodes[block->nodes[n]];
        products += (ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) != 0;
        bits->places[block->nodes[n]] = n;
        bits->products[block->nodes[n]] = products;
        find_reads(bits, block->nodes[n]);
    }
    for (uint32_t i = 0; i < block->output_count; i++)
        mark_read(bits, block->outputs[i]);
}

/* The largest operand, the first of several. */
static ul_value_id largest(const struct bits *bits, const struct condition *condition)
{
    const struct ul_graph *graph = bits->graph;
    ul_value_id found = UL_NONE;
    for (uint32_t i = 0; i < condition->count; i++) {
        ul_value_id id = condition->operands[i];
        if (id != UL_NONE && (found == UL_NONE || ul_type_elements(&graph->values[id].type) >
                                                      ul_type_elements(&graph->values[found].type)))
            found = id;
    }
    UL_ASSERT(found != UL_NONE);
    return found;
}

/* The last node that makes what it is formed of. */
static ul_node_id last_maker(const struct bits *bits, const struct condition *condition)
{
    ul_node_id last = UL_NONE;
    for (uint32_t i = 0; i < condition->count; i++) {
        const struct ul_value *value =
            condition->operands[i] == UL_NONE ? NULL : &bits->graph->values[condition->operands[i]];
        if (value != NULL && value->kind == UL_VALUE_NODE &&
            (last == UL_NONE || bits->places[value->producer] > bits->places[last]))
            last = value->producer;
    }
    return last;
}

/* Whether an operand before it lies in the same bytes. */
static bool is_counted(const struct bits *bits, const struct condition *condition, uint32_t operand)
{
    const struct ul_value *values = bits->graph->values;
    ul_value_id base = values[condition->operands[operand]].view.base;
    for (uint32_t i = 0; i < operand; i++)
        if (condition->operands[i] != UL_NONE && values[condition->operands[i]].view.base == base)
            return true;
    return false;
}

/* Whether packing is worth a step: it must spare more bytes, kept for the backward pass, than the
 * bits take. Something must also stand between, or else one kernel may form the condition and ask
 * it. */
static bool is_worth(const struct bits *bits, const struct condition *condition, ul_node_id reader)
{
    const struct ul_graph *graph = bits->graph;
    uint64_t spared_bytes = 0;
    uint64_t elements = ul_type_elements(&graph->values[largest(bits, condition)].type);
    if (elements < BITS)
        return false;
    for (uint32_t i = 0; i < condition->count; i++) {
        ul_value_id id = condition->operands[i];
        if (id == UL_NONE)
            continue;
        if (!is_forward(bits, id))
            return false;
        ul_value_id base = graph->values[id].view.base;
        if (graph->values[base].kind == UL_VALUE_NODE && !bits->is_read[base] &&
            !is_counted(bits, condition, i))
            spared_bytes += ul_value_bytes(graph, base);
    }
    return spared_bytes >= MIN_BYTES + elements / BITS &&
           bits->products[reader] > bits->products[last_maker(bits, condition)];
}

/* What is not packed is read for its numbers, which another condition was perhaps meant to
 * spare. */
static void refuse(struct bits *bits)
{
    bool is_changed = true;
    while (is_changed) {
        is_changed = false;
        for (uint32_t q = 0; q < bits->question_count; q++) {
            struct question *question = &bits->questions[q];
            const struct condition *condition = &question->condition;
            if (question->is_refused || is_worth(bits, condition, question->reader))
                continue;
            question->is_refused = is_changed = true;
            for (uint32_t i = 0; i < condition->count; i++)
                mark_read(bits, condition->operands[i]);
        }
    }
}

/* ---- Packing ---- */

/* The dimension to pack along: among those that waste least, the one next to the innermost, or the
 * innermost where it is alone. */
static int64_t choose_axis(const struct ul_value *value)
{
    uint32_t order[UL_LIMIT_RANK], inner = value->type.rank;
    const int64_t *dims = value->type.dims;
    double best = 0;
    ul_view_order(&value->type, &value->view, order);
    while (inner > 0 && dims[order[inner - 1]] == 1)
        inner--;
    UL_ASSERT(inner > 0);
    int64_t axis = order[inner - 1];
    for (uint32_t i = inner - 1; i-- > 0;) {
        int64_t bytes = (dims[order[i]] + BITS - 1) / BITS;
        double share = (double)(bytes * BITS) / (double)dims[order[i]];
        if (best > 0 && share >= best)
            continue;
        axis = order[i];
        best = share;
    }
    return axis;
}

/* Adds a node of one output that lies in memory as `like` does. */
static enum ul_status add(struct bits *bits, struct ul_build *build, ul_node_id node,
                          ul_value_id like, uint32_t flags, ul_value_id *made)
{
    struct ul_graph *graph = build->graph;
    UL_TRY(ul_node_infer(graph, node, bits->pass->scratch, bits->pass->diag));
    *made = graph->nodes[node].outputs[0];
    graph->values[*made].flags |= flags | (graph->values[like].flags & UL_VALUE_CHANNELS_LAST);
    graph->values[*made].view = ul_view_own(graph, *made);
    return UL_OK;
}

/* The place after all that the condition is formed of. */
static struct ul_build place_behind(const struct bits *bits, const struct condition *condition)
{
    ul_node_id last = last_maker(bits, condition);
    struct ul_build build = ul_build_after(bits->graph, last);
    build.name = ul_arena_printf(bits->graph->arena, "%s/bits", build.name);
    return build;
}

static enum ul_status form(struct bits *bits, struct ul_build *build,
                           const struct condition *condition, ul_value_id *formed)
{
    struct ul_graph *graph = bits->graph;
    ul_node_id node;
    *formed = condition->value;
    if (condition->gradient == UL_NONE && is_forward(bits, condition->value))
        return UL_OK;
    if (condition->gradient == UL_NONE) {
        node = ul_build_like(build, graph->values[condition->value].producer, condition->operands);
    } else {
        const struct ul_node old = graph->nodes[condition->gradient]; /* the array moves */
        node = ul_build_node(build, UL_OP_Mask, condition->operands, condition->count, 1);
        graph->nodes[node].attrs = old.attrs;
        graph->nodes[node].attr_count = old.attr_count;
        graph->nodes[node].source = old.source;
    }
    return add(bits, build, node, largest(bits, condition), 0, formed);
}

/* Whether both are formed in the same way from the same operands. */
static bool is_same(const struct bits *bits, const struct condition *a, const struct condition *b)
{
    const struct ul_graph *graph = bits->graph;
    if ((a->gradient == UL_NONE) != (b->gradient == UL_NONE) || a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (a->operands[i] != b->operands[i])
            return false;
    if (a->gradient != UL_NONE)
        return ul_cse_attrs_equal(&graph->nodes[a->gradient], &graph->nodes[b->gradient]);
    if (a->value == b->value || is_forward(bits, a->value) || is_forward(bits, b->value))
        return a->value == b->value;
    const struct ul_node *makes_a = &graph->nodes[graph->values[a->value].producer];
    const struct ul_node *makes_b = &graph->nodes[graph->values[b->value].producer];
    return makes_a->op == makes_b->op && ul_cse_attrs_equal(makes_a, makes_b);
}

/* Packs a condition; equal ones share their bits. */
static enum ul_status pack(struct bits *bits, const struct condition *condition,
                           struct packed **packed)
{
    struct ul_graph *graph = bits->graph;
    ul_value_id formed;
    for (uint32_t i = 0; i < bits->count; i++) {
        *packed = &bits->packed[i];
        if (is_same(bits, condition, &bits->packed[i].condition))
            return UL_OK;
    }
    UL_GROW(bits->pass->scratch, bits->packed, bits->count, bits->capacity);
    *packed = &bits->packed[bits->count++];
    **packed = (struct packed){.condition = *condition};
    struct ul_build build = place_behind(bits, condition);
    UL_TRY(form(bits, &build, condition, &formed));
    (*packed)->axis = choose_axis(&graph->values[formed]);
    (*packed)->size = graph->values[formed].type.dims[(*packed)->axis];
    ul_node_id node = ul_build_node(&build, UL_OP_PackBits, &formed, 1, 1);
    ul_node_set_int(graph, node, "axis", (*packed)->axis);
    return add(bits, &build, node, formed, 0, &(*packed)->bits);
}

/* Unpacks the condition in front of the node that reads it. */
static enum ul_status unpack(struct bits *bits, const struct packed *packed, ul_node_id reader,
                             ul_value_id *truth)
{
    struct ul_build build = ul_build_before(bits->graph, reader);
    ul_node_id node = ul_build_node(&build, UL_OP_UnpackBits, &packed->bits, 1, 1);
    bits->graph->nodes[node].source = bits->graph->nodes[reader].source;
    ul_node_set_int(bits->graph, node, "axis", packed->axis);
    ul_node_set_int(bits->graph, node, "size", packed->size);
    return add(bits, &build, node, packed->bits, UL_VALUE_BACKWARD, truth);
}

static enum ul_status answer(struct bits *bits, const struct question *question)
{
    const struct condition *condition = &question->condition;
    struct packed *packed;
    ul_value_id truth;
    UL_TRY(pack(bits, condition, &packed));
    UL_TRY(unpack(bits, packed, question->reader, &truth));
    if (condition->gradient != UL_NONE) {
        ul_gradient_set_mask(bits->graph, question->reader, truth);
        return UL_OK;
    }
    bits->graph->nodes[question->reader].inputs[question->input] = truth;
    bits->is_replaced[condition->value] = true;
    return UL_OK;
}

/* Removes conditions of the backward pass whose bits are unpacked instead. */
static void remove_unread(struct bits *bits)
{
    struct ul_graph *graph = bits->graph;
    const uint32_t *uses = ul_graph_count_uses(graph, bits->pass->scratch);
    for (uint32_t v = 0; v < bits->known_count; v++)
        if (bits->is_replaced[v] && uses[v] == 0)
            ul_graph_remove_node(graph, graph->values[v].producer);
    ul_graph_sweep(graph);
}

enum ul_status ul_pass_bits(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct bits bits = {.pass = pass, .graph = graph, .known_count = graph->value_count};
    bits.places = UL_NEW_ARRAY(pass->scratch, uint32_t, graph->node_count);
    bits.products = UL_NEW_ARRAY(pass->scratch, uint32_t, graph->node_count);
    bits.is_read = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    bits.is_replaced = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    find_all_reads(&bits);
    refuse(&bits);
    for (uint32_t q = 0; q < bits.question_count; q++)
        if (!bits.questions[q].is_refused)
            UL_TRY(answer(&bits, &bits.questions[q]));
    remove_unread(&bits);
    return UL_OK;
}
