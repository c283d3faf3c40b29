/* SPDX-License-Identifier: Apache-2.0 */
/* Einsums of two operands as matrix products.
 *
 * Problem: libraries and the attention pattern know products, exporters leave Einsum as it is.
 * Method: labels are of the batch (both operands and the result), rows (first and result), columns
 * (second and result) or depth (both operands); operands are brought to the order of a MatMul by
 * views, and so is the result:
 *
 *      bqhd,bkhd->bhqk     Transpose 0213, Transpose 0231, MatMul
 *      bqhd,hdo->bqo       Reshape [b q, h d], Reshape [h d, o], MatMul, Reshape [b, q, o]
 *
 * Several rows, columns or depths stand side by side and in the same order wherever they occur, so
 * that a Reshape makes them one. Left undone: what would need a copy; labels that stand twice in a
 * term, or in one operand alone; vectors; dimensions of one element that broadcast. */
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

enum { DOTS = 256 /* labels of an ellipsis: this + distance from its right end */ };
enum group { BATCH, ROWS, COLUMNS, DEPTH, NO_GROUP };

struct term {
    uint32_t rank;
    uint32_t labels[UL_LIMIT_RANK];
    enum group groups[UL_LIMIT_RANK];
    int64_t dims[UL_LIMIT_RANK];
};

/* Parts of a term: each dimension of the batch, and rows, columns or depth as one. */
struct parts {
    uint32_t count;
    enum group groups[UL_LIMIT_RANK];
    uint32_t labels[UL_LIMIT_RANK]; /* the first label of each */
    int64_t dims[UL_LIMIT_RANK];
};

struct einsum {
    struct ul_graph *graph;
    ul_node_id node;
    struct term a, b, result;
};

/* ---- The equation ---- */

/* Reads one term of the type's rank; *at then points after it. */
static bool read_term(struct term *term, const struct ul_type *type, const char **at)
{
    const char *p = *at;
    uint32_t letters = 0;
    for (const char *c = p; *c != '\0' && *c != ',' && *c != '-'; c++)
        letters += ul_scan_is_letter(*c);
    term->rank = 0;
    for (; *p != '\0' && *p != ',' && *p != '-'; p++) {
        if (*p == ' ')
            continue;
        bool dots = *p == '.' && p[1] == '.' && p[2] == '.';
        if ((!dots && !ul_scan_is_letter(*p)) || letters > type->rank)
            return false;
        uint32_t count = dots ? type->rank - letters : 1;
        for (uint32_t i = 0; i < count; i++) {
            if (term->rank == type->rank)
                return false;
            term->dims[term->rank] = type->dims[term->rank];
            term->labels[term->rank++] = dots ? DOTS + count - 1 - i : (uint32_t)(unsigned char)*p;
        }
        p += dots ? 2 : 0;
    }
    *at = p;
    UL_ASSERT(term->rank <= type->rank);
    return term->rank == type->rank;
}

/* Where the label stands, or the rank. */
static uint32_t find(const struct term *term, uint32_t label)
{
    uint32_t d = 0;
    while (d < term->rank && term->labels[d] != label)
        d++;
    return d;
}

static bool set_groups(struct einsum *e, struct term *term)
{
    for (uint32_t d = 0; d < term->rank; d++) {
        uint32_t label = term->labels[d];
        uint32_t a = find(&e->a, label), b = find(&e->b, label), r = find(&e->result, label);
        bool in_a = a < e->a.rank, in_b = b < e->b.rank, in_result = r < e->result.rank;
        term->groups[d] = in_result ? (in_a && in_b ? BATCH
                                       : in_a       ? ROWS
                                                    : COLUMNS)
                                    : (in_a && in_b ? DEPTH : NO_GROUP);
        if (term->groups[d] == NO_GROUP || find(term, label) != d ||
            (in_a && e->a.dims[a] != term->dims[d]) || (in_b && e->b.dims[b] != term->dims[d]) ||
            (in_result && e->result.dims[r] != term->dims[d]))
            return false;
    }
    return true;
}

static bool read_equation(struct einsum *e)
{
    const struct ul_graph *graph = e->graph;
    const struct ul_node *node = &graph->nodes[e->node];
    const char *at = ul_node_get_string(node, "equation", "");
    const struct ul_type *a = &graph->values[node->inputs[0]].type;
    const struct ul_type *b = &graph->values[node->inputs[1]].type;
    const struct ul_type *y = &graph->values[node->outputs[0]].type;
    if (!read_term(&e->a, a, &at) || *at++ != ',' || !read_term(&e->b, b, &at) || at[0] != '-' ||
        at[1] != '>')
        return false;
    at += 2;
    return read_term(&e->result, y, &at) && *at == '\0' && set_groups(e, &e->a) &&
           set_groups(e, &e->b) && set_groups(e, &e->result) && ul_type_elements(y) > 0 &&
           ul_type_elements(a) > 0;
}

/* ---- Parts ---- */

/* The labels of the group in `term` are those in `first`, in the same order. */
static bool same_order(const struct term *term, const struct term *first, enum group group)
{
    uint32_t at = 0;
    for (uint32_t d = 0; d < term->rank; d++) {
        if (term->groups[d] != group)
            continue;
        while (at < first->rank && first->groups[at] != group)
            at++;
        if (at == first->rank || first->labels[at++] != term->labels[d])
            return false;
    }
    return true;
}

/* False where a group's labels are not side by side. */
static bool find_parts(const struct term *term, struct parts *parts)
{
    bool seen[NO_GROUP] = {false};
    parts->count = 0;
    for (uint32_t d = 0; d < term->rank; d++) {
        enum group group = term->groups[d];
        uint32_t last = parts->count - 1;
        if (group != BATCH && parts->count > 0 && parts->groups[last] == group) {
            parts->dims[last] *= term->dims[d];
            continue;
        }
        if (group != BATCH && seen[group])
            return false;
        seen[group] = true;
        parts->groups[parts->count] = group;
        parts->labels[parts->count] = term->labels[d];
        parts->dims[parts->count++] = term->dims[d];
    }
    return true;
}

/* perm: where each dimension of the batch (in the result's order), then `second` and `last`, are
 * among the parts. False: not all are there. */
static bool find_order(const struct parts *parts, const struct term *result, enum group second,
                       enum group last, int64_t *perm)
{
    uint32_t count = 0;
    for (uint32_t d = 0; d < result->rank; d++)
        for (uint32_t p = 0; result->groups[d] == BATCH && p < parts->count; p++)
            if (parts->groups[p] == BATCH && parts->labels[p] == result->labels[d])
                perm[count++] = p;
    const enum group ends[] = {second, last};
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t p = 0; p < parts->count; p++)
            if (parts->groups[p] == ends[i])
                perm[count++] = p;
    return count == parts->count && count >= 2 && parts->groups[perm[count - 1]] == last &&
           parts->groups[perm[count - 2]] == second;
}

static bool is_in_order(const int64_t *perm, uint32_t count)
{
    for (uint32_t d = 0; d < count; d++)
        if (perm[d] != d)
            return false;
    return true;
}

/* ---- Nodes ---- */

/* The operand with one dimension for each part, in the order of perm. */
static ul_value_id arranged(struct ul_build *build, ul_value_id value, const struct parts *parts,
                            const int64_t *perm)
{
    if (build->graph->values[value].type.rank != parts->count)
        value = ul_build_reshape(build, value, parts->count, parts->dims);
    return is_in_order(perm, parts->count) ? value : ul_build_transpose(build, value, perm);
}

static bool rewrite(struct einsum *e)
{
    struct ul_graph *graph = e->graph;
    const struct ul_node node = graph->nodes[e->node];
    struct parts a, b, y;
    int64_t order_a[UL_LIMIT_RANK], order_b[UL_LIMIT_RANK], order_y[UL_LIMIT_RANK];
    int64_t dims[UL_LIMIT_RANK], back[UL_LIMIT_RANK];
    if (!read_equation(e) || !same_order(&e->result, &e->a, ROWS) ||
        !same_order(&e->result, &e->b, COLUMNS) || !same_order(&e->b, &e->a, DEPTH) ||
        !find_parts(&e->a, &a) || !find_parts(&e->b, &b) || !find_parts(&e->result, &y) ||
        !find_order(&a, &e->result, ROWS, DEPTH, order_a) ||
        !find_order(&b, &e->result, DEPTH, COLUMNS, order_b) ||
        !find_order(&y, &e->result, ROWS, COLUMNS, order_y))
        return false;
    bool moves = !is_in_order(order_y, y.count), joins = y.count != e->result.rank;
    if ((moves && joins) || ((moves || joins) && ul_graph_is_output(graph, node.outputs[0])) ||
        (a.count != e->a.rank && !ul_edit_is_dense(graph, node.inputs[0])) ||
        (b.count != e->b.rank && !ul_edit_is_dense(graph, node.inputs[1])))
        return false;
    for (uint32_t d = 0; d < y.count; d++) {
        dims[d] = y.dims[order_y[d]];
        back[order_y[d]] = d;
    }
    struct ul_build build = ul_build_before(graph, e->node);
    const ul_value_id left = arranged(&build, node.inputs[0], &a, order_a);
    const ul_value_id factors[2] = {left, arranged(&build, node.inputs[1], &b, order_b)};
    /* The Einsum becomes the last node: the product, or what brings it into the result's shape. */
    if (!moves && !joins) {
        ul_node_become(graph, e->node, UL_OP_MatMul, factors, 2);
        return true;
    }
    UL_ASSERT(y.count >= 2);
    struct ul_type type = ul_type_make(graph->values[left].type.dtype, y.count, dims);
    UL_ASSERT(ul_type_elements(&type) == ul_type_elements(&graph->values[node.outputs[0]].type));
    ul_value_id result[2] = {ul_build_value(&build, UL_OP_MatMul, factors, 2, &type)};
    if (joins) {
        result[1] = ul_build_ints(graph, "shape", e->result.rank, e->result.dims);
        ul_node_become(graph, e->node, UL_OP_Reshape, result, 2);
        return true;
    }
    ul_node_become(graph, e->node, UL_OP_Transpose, result, 1);
    ul_node_set_ints(graph, e->node, "perm", back, y.count);
    return true;
}

enum ul_status ul_pass_einsum(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct ul_node_list order = ul_edit_all_nodes(graph, pass->scratch);
    for (uint32_t n = 0; n < order.count; n++) {
        struct einsum einsum = {.graph = graph, .node = order.nodes[n]};
        const struct ul_node *node = &graph->nodes[order.nodes[n]];
        if (node->op == UL_OP_Einsum && node->input_count == 2)
            (void)rewrite(&einsum);
    }
    return UL_OK;
}
