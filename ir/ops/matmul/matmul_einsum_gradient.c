/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of an Einsum is an Einsum too, over the result's gradient and the other operands,
 * with the labels of the operand as the result. What only the operand has gets a vector of ones,
 * what it has twice an identity matrix:
 *
 *     ij,jk->ik    da = Einsum(g, b) ik,jk->ij
 *     iij->j       da = Einsum(g, 1) j,ik->ikj */
#include "ir/op_names.h"
#include "ir/ops/matmul/matmul_einsum.h"

struct product {
    struct ul_gradient *gradient;
    struct ul_einsum einsum;
    uint32_t count;
    ul_value_id *operands;
    struct ul_text equation; /* of the operands so far */
};

static char letter(uint32_t label)
{
    UL_ASSERT(label < 52);
    return (char)(label < 26 ? 'a' + (char)label : 'A' + (char)(label - 26));
}

static void put_labels(struct ul_text *text, const uint32_t *labels, uint32_t count)
{
    for (uint32_t d = 0; d < count; d++) {
        const char c = letter(labels[d]);
        ul_text_put_bytes(text, &c, 1);
    }
}

static void add_operand(struct product *product, ul_value_id value, const uint32_t *labels,
                        uint32_t count)
{
    if (product->count > 0)
        ul_text_put(&product->equation, ",");
    put_labels(&product->equation, labels, count);
    product->operands[product->count++] = value;
}

static bool has_label(const struct ul_einsum_term *term, uint32_t end, uint32_t label)
{
    for (uint32_t d = 0; d < end; d++)
        if (term->labels[d] == label)
            return true;
    return false;
}

static bool others_have(const struct ul_einsum *einsum, uint32_t operand, uint32_t label)
{
    bool has = has_label(&einsum->result, einsum->result.rank, label);
    for (uint32_t t = 0; t < einsum->term_count; t++)
        has = has || (t != operand && has_label(&einsum->terms[t], einsum->terms[t].rank, label));
    return has;
}

static void add_ones(struct product *product, uint32_t label, enum ul_dtype dtype)
{
    ul_value_id one = ul_build_number(product->gradient->graph, "", dtype, 1, 1);
    add_operand(product, one, &label, 1);
}

static void add_identity(struct product *product, const uint32_t *labels, int64_t size,
                         enum ul_dtype dtype)
{
    const struct ul_type type = {.dtype = dtype, .rank = 2, .dims = {size, size}};
    double *numbers = UL_NEW_ARRAY(product->gradient->scratch, double, (uint64_t)(size * size) + 1);
    for (int64_t i = 0; i < size; i++)
        numbers[i * size + i] = 1;
    add_operand(product, ul_build_numbers(&product->gradient->build, &type, numbers), labels, 2);
}

/* Gives operand `operand` the product with its labels, summed over the dimensions that it
 * broadcasts. */
static void give_operand(struct product *product, uint32_t operand)
{
    struct ul_gradient *gradient = product->gradient;
    const struct ul_einsum *einsum = &product->einsum;
    const struct ul_einsum_term *term = &einsum->terms[operand];
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, operand));
    uint32_t labels[UL_LIMIT_RANK], fresh = einsum->label_count, mask = 0;
    for (uint32_t d = 0; d < term->rank; d++) {
        const uint32_t pair[2] = {term->labels[d], fresh};
        bool again = has_label(term, d, pair[0]);
        labels[d] = again ? fresh++ : pair[0];
        if (again)
            add_identity(product, pair, type.dims[d], type.dtype);
        else if (!others_have(einsum, operand, pair[0]))
            add_ones(product, pair[0], type.dtype);
    }
    ul_text_put(&product->equation, "->");
    put_labels(&product->equation, labels, term->rank);
    ul_node_id node =
        ul_build_node(&gradient->build, UL_OP_Einsum, product->operands, product->count, 1);
    ul_node_set_string(gradient->graph, node, "equation", product->equation.data);
    ul_value_id share = ul_build_infer(&gradient->build, node);
    struct ul_type made = ul_gradient_type(gradient, share);
    for (uint32_t d = 0; d < type.rank; d++)
        mask |= type.dims[d] == 1 && made.dims[d] != 1 ? 1u << d : 0;
    share = ul_build_sum(&gradient->build, share, mask);
    ul_gradient_give(gradient, operand, ul_build_expand(&gradient->build, share, &type));
}

enum ul_status ul_gradient_einsum(struct ul_gradient *gradient)
{
    uint32_t count = ul_gradient_node(gradient)->input_count;
    for (uint32_t i = 0; i < count; i++) {
        struct product product = {.gradient = gradient};
        const struct ul_einsum *einsum = &product.einsum;
        if (!ul_gradient_wanted(gradient, i))
            continue;
        ul_einsum_read(gradient->graph, ul_gradient_node(gradient), gradient->scratch,
                       &product.einsum);
        product.operands = UL_NEW_ARRAY(gradient->scratch, ul_value_id, count + UL_LIMIT_RANK);
        ul_text_init(&product.equation, gradient->graph->arena);
        add_operand(&product, ul_gradient_of(gradient, 0), einsum->result.labels,
                    einsum->result.rank);
        for (uint32_t t = 0; t < count; t++)
            if (t != i)
                add_operand(&product, ul_gradient_input(gradient, t), einsum->terms[t].labels,
                            einsum->terms[t].rank);
        give_operand(&product, i);
    }
    return UL_OK;
}
