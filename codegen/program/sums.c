/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of a factor that the product that reads it may form too.
 *
 * Problem: the gradient of a bias is the sum of the rows of a gradient, which the product that
 * forms the gradient of the weight reads as well. A library may form both in one call, but only the
 * start of the program shows whether it has an algorithm for that on the device.
 *
 *      dw = x^T dy          call: dw, and perhaps db
 *      db = sum of dy       kernel: db, where the call did not form it
 *      update of b          reads db
 *
 * Method: both stay steps, with the kernel directly after the call. To the planner the call writes
 * the sums, and the kernel reads and writes them. So their place lives from the call on, and their
 * readers come after the kernel; the scratch of the call shrinks by as much, so that no plan grows
 * (groups.c). The graph alone decides which call has which sums, whatever the budget. Where several
 * pieces of a product read all of the factor, the first has them.
 *
 * An update that reads the sums and comes before the product in the graph, as it does before the
 * tiles of a gradient (passes/memory/tiles.c), becomes a step after both.
 *
 * Left undone: sums that anything else reads before the product; sums that are accumulated over the
 * runs of a step; a product with post-operations; factors that are rounded to TF32. */
#include "codegen/program/library_internal.h"
#include "ir/op_names.h"

#include "ir/op.h"
#include "ir/view.h"

#include <string.h>

/* A value as a matrix: all axes that are summed are its rows. */
struct rows {
    ul_node_id node; /* the node that sums them */
    ul_value_id value, sums;
    enum ul_call_type type;
    int64_t row_count, row_stride, column_count, column_stride;
};

/* Reads the summed axes as one, if their strides allow it. */
static bool read_axes(const struct ul_call_tensor *tensor, uint32_t kept, struct rows *rows)
{
    rows->row_count = 1;
    rows->row_stride = 0;
    for (uint32_t d = tensor->rank; d-- > 0;) {
        if (d == kept || tensor->dims[d] == 1)
            continue;
        if (rows->row_stride != 0 && tensor->strides[d] != rows->row_stride * rows->row_count)
            return false;
        rows->row_stride = rows->row_stride == 0 ? tensor->strides[d] : rows->row_stride;
        rows->row_count *= tensor->dims[d];
    }
    return rows->row_count > 1;
}

/* Whether each row has whole vectors of elements: for other rows libraries hardly have algorithms
 * with sums. */
static bool has_vectors(const struct ul_call_tensor *tensor, uint32_t kept)
{
    enum { VECTOR_BYTES = 16 };
    return (uint64_t)tensor->dims[kept] * ul_call_element_bytes(tensor) % VECTOR_BYTES == 0;
}

/* Whether the result has bytes of its own, which nothing else writes and no caller sees. */
static bool is_own(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_block *root = ul_graph_only_root(graph);
    bool is_own = graph->values[value].view.base == value &&
                  graph->values[value].donor == UL_NONE && ul_value_storage(graph, value) == UL_F32;
    for (uint32_t i = 0; is_own && i < root->output_count; i++)
        is_own = graph->values[root->outputs[i]].view.base != value;
    return is_own;
}

/* Whether the node sums all but one axis of a value that nodes have made. */
static bool read_rows(const struct ul_graph *graph, ul_node_id id, struct rows *rows)
{
    const struct ul_node *node = &graph->nodes[id];
    struct ul_call_tensor tensor;
    if (node->op != UL_OP_ReduceSum || ul_node_is_piece(graph, id) ||
        !ul_describe_tensor(graph, node->inputs[0], &tensor) || !is_own(graph, node->outputs[0]))
        return false;
    const struct ul_type *sums = &graph->values[node->outputs[0]].type;
    const struct ul_value *base = &graph->values[graph->values[node->inputs[0]].view.base];
    uint32_t kept = tensor.rank;
    if (sums->rank != tensor.rank || base->kind != UL_VALUE_NODE || base->donor != UL_NONE)
        return false;
    for (uint32_t d = 0; d < tensor.rank; d++) {
        if (sums->dims[d] > 1 && kept != tensor.rank)
            return false;
        kept = sums->dims[d] > 1 ? d : kept;
    }
    if (kept == tensor.rank || !has_vectors(&tensor, kept) || !read_axes(&tensor, kept, rows))
        return false;
    rows->node = id;
    rows->value = node->inputs[0];
    rows->sums = node->outputs[0];
    rows->type = tensor.type;
    rows->column_count = tensor.dims[kept];
    rows->column_stride = tensor.strides[kept];
    return true;
}

/* A library has sums only with a plain product of matrices, in the type of its result. */
static bool may_sum(const struct ul_call *call)
{
    return call->kind == UL_CALL_MATMUL && call->dst.rank == 2 && call->dst.type == UL_CALL_F32 &&
           call->src.type <= UL_CALL_BF16 && call->bias.rank == 0 && call->post_count == 0 &&
           !call->tf32 && call->sums_of == UL_SUMS_OF_NONE;
}

/* Whether the factor is those rows, counted by its axis `k`. */
static bool is_factor(const struct ul_graph *graph, const struct rows *rows, ul_value_id value,
                      const struct ul_call_tensor *factor, uint32_t k)
{
    const struct ul_view *view = &graph->values[value].view;
    const struct ul_view *summed = &graph->values[rows->value].view;
    UL_ASSERT(k < 2 && factor->rank == 2);
    return view->base == summed->base && view->offset_bytes == summed->offset_bytes &&
           factor->type == rows->type && factor->dims[k] == rows->row_count &&
           factor->strides[k] == rows->row_stride && factor->dims[1 - k] == rows->column_count &&
           factor->strides[1 - k] == rows->column_stride;
}

static void give(struct ul_group_call *group, enum ul_call_sums sums_of, const struct rows *rows)
{
    struct ul_call_tensor *place = &group->call.bias;
    UL_ASSERT(group->args[UL_CALL_BIAS] == UL_NONE);
    group->call.sums_of = sums_of;
    group->args[UL_CALL_BIAS] = rows->sums;
    memset(place, 0, sizeof *place);
    place->rank = 2;
    place->type = UL_CALL_F32;
    place->dims[0] = place->strides[1] = 1;
    place->dims[1] = place->strides[0] = rows->column_count;
}

/* The first two readers of a base value: their positions, and the first reader itself. */
struct reads {
    uint32_t first, second;
    ul_node_id reader;
};

/* State of the search. */
struct finder {
    const struct ul_graph *graph;
    struct ul_calls *calls;
    struct rows **by_base; /* by value that a node sums; NULL: none sums it, or it has its call */
    struct reads *reads;   /* by base */
    uint64_t max_bytes;    /* of sums */
};

static ul_value_id base_of(const struct finder *finder, ul_value_id value)
{
    return value == UL_NONE ? UL_NONE : finder->graph->values[value].view.base;
}

/* Whether the node is a step by itself, and nothing in the graph reads its result: it is an
 * update. */
static bool may_wait(const struct finder *finder, ul_node_id id)
{
    const struct ul_node *node = &finder->graph->nodes[id];
    bool may = ul_graph_is_root(finder->graph, node->parent) && node->group == UL_NONE &&
               node->block_count == 0 && finder->calls->by_node[id] == NULL &&
               !finder->calls->is_behind[id];
    for (uint32_t i = 0; may && i < node->output_count; i++)
        may = node->outputs[i] == UL_NONE ||
              finder->reads[base_of(finder, node->outputs[i])].first == UINT32_MAX;
    return may;
}

/* Makes the call form the sums of those rows, if their readers can come after it. */
static bool take_rows(struct finder *finder, ul_node_id last, const struct rows *rows)
{
    struct ul_calls *calls = finder->calls;
    const struct reads *reads = &finder->reads[rows->sums];
    uint32_t position = calls->positions[last];
    bool waits = reads->first < position;
    if (reads->second < position || (waits && !may_wait(finder, reads->reader)))
        return false;
    calls->spares[last] = rows->node;
    calls->is_spared[rows->node] = calls->is_behind[rows->node] = true;
    if (waits) {
        calls->reader_of[last] = reads->reader;
        calls->is_behind[reads->reader] = true;
    }
    return true;
}

/* Makes the call form the sums of one of its factors. */
static void find_factor(struct finder *finder, ul_node_id last)
{
    static const struct {
        uint32_t arg, k;
        enum ul_call_sums sums_of;
    } factors[] = {{UL_CALL_SRC, 1, UL_SUMS_OF_SRC}, {UL_CALL_WEIGHTS, 0, UL_SUMS_OF_WEIGHTS}};
    struct ul_group_call *group = finder->calls->by_node[last];
    for (size_t i = 0; i < sizeof factors / sizeof *factors && may_sum(&group->call); i++) {
        ul_value_id value = group->args[factors[i].arg];
        struct rows **rows = &finder->by_base[base_of(finder, value)];
        const struct ul_call_tensor *factor =
            factors[i].arg == UL_CALL_SRC ? &group->call.src : &group->call.weights;
        if (*rows == NULL ||
            ul_value_bytes(finder->graph, (*rows)->sums) > group->library->max_sums_bytes ||
            !is_factor(finder->graph, *rows, value, factor, factors[i].k) ||
            !take_rows(finder, last, *rows))
            continue;
        give(group, factors[i].sums_of, *rows);
        *rows = NULL;
    }
}

static void note_read(struct finder *finder, ul_node_id node, ul_value_id base)
{
    uint32_t position = finder->calls->positions[node];
    struct reads *reads = &finder->reads[base];
    if (position < reads->first) {
        reads->second = reads->first;
        reads->first = position;
        reads->reader = node;
    } else if (position != reads->first && position < reads->second) {
        reads->second = position;
    }
}

static void find_reads(struct ul_arena *arena, struct finder *finder)
{
    const struct ul_graph *graph = finder->graph;
    finder->reads = UL_NEW_ARRAY(arena, struct reads, graph->value_count);
    memset(finder->reads, 0xFF, graph->value_count * sizeof *finder->reads);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        if (finder->calls->positions[n] == 0 || ul_node_is_view(graph, n))
            continue; /* it has no step, or does nothing */
        for (uint32_t i = 0; i < node->input_count; i++)
            if (base_of(finder, node->inputs[i]) != UL_NONE)
                note_read(finder, n, base_of(finder, node->inputs[i]));
    }
}

/* Finds for each value the first node that sums it. */
static void find_rows(struct ul_arena *arena, struct finder *finder, ul_node_id *nodes)
{
    const struct ul_graph *graph = finder->graph;
    finder->by_base = UL_NEW_ARRAY(arena, struct rows *, graph->value_count);
    for (uint32_t at = 0; at < ul_graph_only_root(graph)->node_count;) {
        struct rows rows;
        if (ul_group_next(graph, ul_graph_only_root(graph), &at, nodes) != 1 ||
            !read_rows(graph, nodes[0], &rows) ||
            ul_value_bytes(graph, rows.sums) > finder->max_bytes)
            continue;
        struct rows **first = &finder->by_base[graph->values[rows.value].view.base];
        *first = *first == NULL ? ul_arena_copy(arena, &rows, sizeof rows) : *first;
    }
}

void ul_calls_find_sums(struct ul_arena *arena, const struct ul_graph *graph, uint64_t max_bytes,
                        struct ul_calls *calls)
{
    struct finder finder = {.graph = graph, .calls = calls, .max_bytes = max_bytes};
    calls->is_spared = UL_NEW_ARRAY(arena, bool, graph->node_count);
    calls->is_behind = UL_NEW_ARRAY(arena, bool, graph->node_count);
    calls->spares = UL_NEW_ARRAY(arena, ul_node_id, graph->node_count);
    calls->reader_of = UL_NEW_ARRAY(arena, ul_node_id, graph->node_count);
    memset(calls->spares, 0xFF, graph->node_count * sizeof *calls->spares);
    memset(calls->reader_of, 0xFF, graph->node_count * sizeof *calls->reader_of);
    if (max_bytes == 0)
        return;
    const struct ul_block *block = ul_graph_only_root(graph);
    ul_node_id *nodes = UL_NEW_ARRAY(arena, ul_node_id, block->node_count);
    find_reads(arena, &finder);
    find_rows(arena, &finder, nodes);
    for (uint32_t at = 0; at < block->node_count;) {
        uint32_t count = ul_group_next(graph, block, &at, nodes);
        if (count > 0 && calls->by_node[nodes[count - 1]] != NULL)
            find_factor(&finder, nodes[count - 1]);
    }
}
