/* SPDX-License-Identifier: Apache-2.0 */
/* Einsum: two operands become a contraction, any other number plain loops.
 *
 * Labels of the equation are the loops. With two operands a label is of the batch (both operands
 * and the result), m (first and result), n (second and result) or k (not in the result); one that
 * stands twice in an operand walks its diagonal, which is two dimensions moving with one variable.
 */
#include "ir/ops/matmul/matmul_einsum.h"
#include "ir/infer.h"
#include "ir/kernel_build.h"

#include <string.h>

#define ELLIPSIS 256 /* labels of an ellipsis: 256 + distance from its right end */

/* The label of `symbol`, added if it is new; UL_EINSUM_LABELS if there is no room. */
static uint32_t label_get(struct ul_einsum *einsum, uint32_t symbol)
{
    for (uint32_t l = 0; l < einsum->label_count; l++)
        if (einsum->symbols[l] == symbol)
            return l;
    if (einsum->label_count == UL_EINSUM_LABELS)
        return UL_EINSUM_LABELS;
    einsum->symbols[einsum->label_count] = symbol;
    einsum->extents[einsum->label_count] = 1;
    return einsum->label_count++;
}

/* Reads one term up to a comma, an arrow or the end. An ellipsis stands for `dots` dimensions. */
static const char *read_term(struct ul_einsum *einsum, struct ul_einsum_term *term, const char **at,
                             uint32_t dots)
{
    const char *p = *at;
    bool has_dots = false;
    term->rank = 0;
    for (; *p != '\0' && *p != ',' && *p != '-'; p++) {
        uint32_t count = 1;
        if (*p == ' ')
            continue;
        if (*p == '.') {
            if (p[1] != '.' || p[2] != '.' || has_dots)
                return "a term of the equation may have one ellipsis of three dots";
            has_dots = true;
            count = dots;
            p += 2;
        } else if (!ul_scan_is_letter(*p)) {
            return "the equation has a character that is no label";
        }
        for (uint32_t i = 0; i < count; i++) {
            uint32_t symbol = *p == '.' ? ELLIPSIS + count - 1 - i : (unsigned char)*p;
            uint32_t label = label_get(einsum, symbol);
            if (label == UL_EINSUM_LABELS || term->rank == UL_LIMIT_RANK)
                return "the equation has too many labels";
            term->labels[term->rank++] = label;
        }
    }
    *at = p;
    return NULL;
}

/* Counts the letters of a term, without its ellipsis. */
static uint32_t count_letters(const char *p)
{
    uint32_t count = 0;
    for (; *p != '\0' && *p != ',' && *p != '-'; p++)
        count += ul_scan_is_letter(*p) ? 1 : 0;
    return count;
}

static bool has_ellipsis(const char *p)
{
    for (; *p != '\0' && *p != ',' && *p != '-'; p++)
        if (*p == '.')
            return true;
    return false;
}

static const char *set_extents(struct ul_einsum *einsum, const struct ul_einsum_term *term,
                               const struct ul_type *type)
{
    if (term->rank != type->rank)
        return "a term of the equation does not have the rank of its operand";
    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t *extent = &einsum->extents[term->labels[d]];
        if (type->dims[d] == 1)
            continue;
        if (*extent != 1 && *extent != type->dims[d])
            return "a label of the equation stands for dimensions of different size";
        *extent = type->dims[d];
    }
    return NULL;
}

/* Without an arrow the result has the ellipsis, then every label that occurs once, sorted. */
static const char *set_implicit(struct ul_einsum *einsum, uint32_t dots)
{
    for (uint32_t i = dots; i-- > 0;)
        einsum->result.labels[einsum->result.rank++] = label_get(einsum, ELLIPSIS + i);
    for (uint32_t symbol = 'A'; symbol <= 'z'; symbol++) {
        uint32_t count = 0, label = UL_EINSUM_LABELS;
        for (uint32_t t = 0; t < einsum->term_count; t++) {
            for (uint32_t d = 0; d < einsum->terms[t].rank; d++) {
                if (einsum->symbols[einsum->terms[t].labels[d]] != symbol)
                    continue;
                label = einsum->terms[t].labels[d];
                count++;
            }
        }
        if (count != 1)
            continue;
        if (einsum->result.rank == UL_LIMIT_RANK)
            return "the result has too many dimensions";
        einsum->result.labels[einsum->result.rank++] = label;
    }
    return NULL;
}

static const char *read_result(struct ul_einsum *einsum, const char *at, uint32_t dots)
{
    uint32_t known = einsum->label_count;
    if (*at == '\0')
        return set_implicit(einsum, dots);
    if (at[0] != '-' || at[1] != '>')
        return "the equation has a character that is no label";
    at += 2;
    const char *wrong = read_term(einsum, &einsum->result, &at, dots);
    if (wrong != NULL)
        return wrong;
    if (*at != '\0' || einsum->label_count != known)
        return "the result of the equation has a label that no operand has";
    for (uint32_t d = 0; d < einsum->result.rank; d++)
        for (uint32_t e = 0; e < d; e++)
            if (einsum->result.labels[d] == einsum->result.labels[e])
                return "the result of the equation has a label twice";
    return NULL;
}

/* Reads the equation for operands of the given types. Returns NULL, or what is wrong. */
static const char *read_equation(struct ul_einsum *einsum, struct ul_arena *arena,
                                 const char *equation, const struct ul_type *const *types,
                                 uint32_t count)
{
    *einsum = (struct ul_einsum){.term_count = count};
    einsum->terms = UL_NEW_ARRAY(arena, struct ul_einsum_term, count);
    uint32_t dots = 0;
    const char *at = equation;
    for (uint32_t t = 0; t < count; t++) {
        uint32_t letters = count_letters(at), own = 0;
        if (types[t]->rank < letters)
            return "a term of the equation has more labels than its operand has dimensions";
        own = has_ellipsis(at) ? types[t]->rank - letters : 0;
        dots = own > dots ? own : dots;
        const char *wrong = read_term(einsum, &einsum->terms[t], &at, own);
        if (wrong == NULL)
            wrong = set_extents(einsum, &einsum->terms[t], types[t]);
        if (wrong != NULL)
            return wrong;
        bool is_last = t + 1 == count;
        if (is_last ? *at == ',' : *at != ',')
            return "the equation does not have one term for each operand";
        at += is_last ? 0 : 1;
    }
    return read_result(einsum, at, dots);
}

static const struct ul_type *const *input_types(const struct ul_graph *graph,
                                                const struct ul_node *node, struct ul_arena *arena)
{
    const struct ul_type **types = UL_NEW_ARRAY(arena, const struct ul_type *, node->input_count);
    for (uint32_t i = 0; i < node->input_count; i++)
        types[i] = &graph->values[node->inputs[i]].type;
    return types;
}

void ul_einsum_read(const struct ul_graph *graph, const struct ul_node *node,
                    struct ul_arena *arena, struct ul_einsum *einsum)
{
    const char *equation = ul_node_get_string(node, "equation", "");
    const char *wrong =
        read_equation(einsum, arena, equation, input_types(graph, node, arena), node->input_count);
    UL_ASSERT(wrong == NULL);
}

enum ul_status ul_infer_einsum(struct ul_infer *infer)
{
    const struct ul_type *first = ul_infer_input(infer, 0);
    if (first->dtype == UL_BOOL)
        return ul_infer_unsupported(infer, "Einsum computes with numbers, not with bool");
    for (uint32_t i = 0; i < infer->node->input_count; i++) {
        const struct ul_type *type = ul_infer_input(infer, i);
        if (type == NULL || type->dtype != first->dtype)
            return ul_infer_invalid(infer, "the operands differ in type");
    }
    struct ul_einsum einsum;
    const char *wrong = read_equation(
        &einsum, infer->scratch, ul_node_get_string(infer->node, "equation", ""),
        input_types(infer->graph, infer->node, infer->scratch), infer->node->input_count);
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    uint64_t products = 1;
    for (uint32_t label = 0; label < einsum.label_count; label++)
        if (einsum.extents[label] > 1 &&
            (!ul_size_mul(products, (uint64_t)einsum.extents[label], &products) ||
             products > INT64_MAX))
            return ul_infer_unsupported(infer, "the sums have more than 2^63 products");
    int64_t dims[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < einsum.result.rank; d++)
        dims[d] = einsum.extents[einsum.result.labels[d]];
    ul_infer_set(infer, 0, first->dtype, einsum.result.rank, dims);
    return UL_OK;
}

static bool term_has(const struct ul_einsum_term *term, uint32_t label)
{
    for (uint32_t d = 0; d < term->rank; d++)
        if (term->labels[d] == label)
            return true;
    return false;
}

/* Loads operand `t` at the values of the labels. */
static ul_kx load_term(struct ul_lower *lower, const struct ul_node *node,
                       const struct ul_einsum *einsum, uint32_t t, const ul_kx *values)
{
    const struct ul_einsum_term *term = &einsum->terms[t];
    ul_kx index[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < term->rank; d++)
        index[d] = values[term->labels[d]];
    return ul_lower_load(lower, node->inputs[t], index);
}

/* Opens loops over the result, then over all other labels. */
static void lower_loops(struct ul_lower *lower, const struct ul_node *node,
                        const struct ul_einsum *einsum, enum ul_dtype dtype)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx values[UL_EINSUM_LABELS], index[UL_LIMIT_RANK];
    uint32_t inner = 0;
    for (uint32_t d = 0; d < einsum->result.rank; d++) {
        uint32_t label = einsum->result.labels[d];
        index[d] = values[label] = ul_ks_for(kernel, einsum->extents[label], UL_FOR_PARALLEL);
    }
    uint32_t sum = ul_ks_var(kernel, dtype, ul_kx_number(kernel, dtype, 0));
    for (uint32_t label = 0; label < einsum->label_count; label++) {
        if (term_has(&einsum->result, label))
            continue;
        values[label] = ul_ks_for(kernel, einsum->extents[label], UL_FOR_REDUCE);
        inner++;
    }
    ul_kx product = load_term(lower, node, einsum, 0, values);
    for (uint32_t t = 1; t < einsum->term_count; t++)
        product =
            ul_kx_binary(kernel, UL_KX_MUL, product, load_term(lower, node, einsum, t, values));
    ul_ks_set(kernel, sum, ul_kx_binary(kernel, UL_KX_ADD, ul_kx_var(kernel, sum), product));
    while (inner-- > 0)
        ul_ks_end(kernel);
    ul_lower_store(lower, node->outputs[0], index, ul_kx_var(kernel, sum));
    for (uint32_t d = 0; d < einsum->result.rank; d++)
        ul_ks_end(kernel);
}

/* The labels of a contraction of two operands, by class. */
struct classes {
    uint32_t batch_count, counts[3]; /* of m, n, k */
    uint32_t batch[UL_EINSUM_LABELS], labels[3][UL_EINSUM_LABELS];
};

static bool classify(const struct ul_einsum *einsum, struct classes *classes)
{
    *classes = (struct classes){0};
    for (uint32_t label = 0; label < einsum->label_count; label++) {
        bool in_a = term_has(&einsum->terms[0], label), in_b = term_has(&einsum->terms[1], label);
        bool in_result = term_has(&einsum->result, label);
        if (in_a && in_b && in_result) {
            classes->batch[classes->batch_count++] = label;
            continue;
        }
        uint32_t class = !in_result ? 2 : in_a ? 0 : 1;
        classes->labels[class][classes->counts[class]++] = label;
    }
    uint32_t total = 0;
    for (uint32_t class = 0; class < 3; class ++)
        total += classes->counts[class] > 0 ? classes->counts[class] : 1;
    return total <= UL_CONTRACT_DIMS;
}

/* Fills in operand `t`, at the batch's loops and the contraction's variables; var_of[label] is the
 * variable, or UL_CONTRACT_DIMS. */
static void fill_term(struct ul_lower *lower, const struct ul_einsum *einsum, uint32_t t,
                      ul_value_id value, struct ul_contraction *contraction, const uint32_t *var_of,
                      const ul_kx *values)
{
    const struct ul_einsum_term *term = &einsum->terms[t];
    const struct ul_type *type = &lower->graph->values[value].type;
    ul_kx base[UL_LIMIT_RANK];
    int64_t at[UL_LIMIT_RANK][UL_CONTRACT_DIMS] = {{0}};
    for (uint32_t d = 0; d < term->rank; d++) {
        uint32_t label = term->labels[d];
        base[d] = ul_kx_index_const(lower->kernel, 0);
        if (type->dims[d] == 1)
            continue;
        if (var_of[label] < UL_CONTRACT_DIMS)
            at[d][var_of[label]] = 1;
        else
            base[d] = values[label];
    }
    ul_lower_operand(lower, contraction, t == 0 ? &contraction->a : &contraction->b, value, base,
                     at, 0, 0);
}

static void lower_pair(struct ul_lower *lower, const struct ul_node *node,
                       const struct ul_einsum *einsum, const struct classes *classes,
                       enum ul_dtype dtype)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx values[UL_EINSUM_LABELS], index[UL_LIMIT_RANK];
    uint32_t var_of[UL_EINSUM_LABELS], counts[3], next = 0;
    int64_t extents[3][UL_CONTRACT_DIMS] = {{1}, {1}, {1}};
    for (uint32_t label = 0; label < UL_EINSUM_LABELS; label++)
        var_of[label] = UL_CONTRACT_DIMS;
    for (uint32_t i = 0; i < classes->batch_count; i++)
        values[classes->batch[i]] =
            ul_ks_for(kernel, einsum->extents[classes->batch[i]], UL_FOR_PARALLEL);
    for (uint32_t class = 0; class < 3; class ++) {
        for (uint32_t i = 0; i < classes->counts[class]; i++) {
            extents[class][i] = einsum->extents[classes->labels[class][i]];
            var_of[classes->labels[class][i]] = next + i;
        }
        counts[class] = classes->counts[class] > 0 ? classes->counts[class] : 1;
        next += counts[class];
    }
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, dtype, extents[0], counts[0], extents[1], counts[1],
                        extents[2], counts[2]);
    fill_term(lower, einsum, 0, node->inputs[0], &contraction, var_of, values);
    fill_term(lower, einsum, 1, node->inputs[1], &contraction, var_of, values);
    ul_ks_contract(kernel, &contraction);
    for (uint32_t d = 0; d < einsum->result.rank; d++) {
        uint32_t label = einsum->result.labels[d];
        index[d] = var_of[label] < UL_CONTRACT_DIMS
                       ? ul_kx_var(kernel, contraction.vars[var_of[label]])
                       : values[label];
    }
    ul_lower_store(lower, node->outputs[0], index, ul_kx_var(kernel, contraction.acc));
    for (uint32_t i = 0; i <= classes->batch_count; i++)
        ul_ks_end(kernel);
}

void ul_lower_einsum(struct ul_lower *lower, ul_node_id node_id)
{
    const struct ul_node *node = &lower->graph->nodes[node_id];
    enum ul_dtype dtype = ul_compute_dtype(ul_lower_input_type(lower, node_id, 0)->dtype);
    struct ul_einsum einsum;
    struct classes classes;
    const char *wrong =
        read_equation(&einsum, lower->arena, ul_node_get_string(node, "equation", ""),
                      input_types(lower->graph, node, lower->arena), node->input_count);
    UL_ASSERT(wrong == NULL);
    if (einsum.term_count == 2 && classify(&einsum, &classes))
        lower_pair(lower, node, &einsum, &classes, dtype);
    else
        lower_loops(lower, node, &einsum, dtype);
}
