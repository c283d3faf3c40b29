/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of elementwise operators by the texts in their rows. */
#include "ir/ops/training/training.def"
#include "ir/kernel_build.h"
#include "ir/ops/check.h"

#include <string.h>

/* ---- Derivative, Gradient, Mask ---- */

enum ul_status ul_infer_derivative(struct ul_infer *infer)
{
    const struct ul_node *node = infer->node;
    int64_t count = ul_node_get_int(node, "ul_xs", 0);
    int64_t times = ul_node_get_int(node, "ul_values", 0) != 0 ? 2 : 1; /* each value is named */
    int64_t named = ((int64_t)node->input_count - 2) / times;
    const struct ul_type *y = ul_infer_input(infer, 0), *g = ul_infer_input(infer, 1);
    bool fits = count >= node->output_count && count <= named;
    if (!fits || named * times + 2 != node->input_count)
        return ul_infer_invalid(infer, "ul_xs does not fit inputs and outputs");
    for (uint32_t i = 2; i < node->input_count; i++)
        if (node->inputs[i] == UL_NONE)
            return ul_infer_invalid(infer, "a value that it is taken by is absent");
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    if (g != NULL && !ul_type_equal(y, g))
        return ul_infer_invalid(infer, "the gradient of y is of another type");
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct ul_type *x = ul_infer_input(infer, 2 + i);
        UL_TRY(ul_check_dtype(infer, 2 + i, UL_CHECK_FLOATS));
        ul_infer_set_type(infer, i, x);
    }
    return UL_OK;
}

/* The gradient has the output's shape, so the operands that it is computed from broadcast to the
 * shape of g. */
enum ul_status ul_infer_gradient(struct ul_infer *infer)
{
    const struct ul_type *g = ul_infer_input(infer, 0);
    struct ul_type sum;
    uint32_t of;
    const struct ul_op_info *row = ul_gradient_row(infer->node, &of);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    if (row == NULL || row->gradients[of] == NULL)
        return ul_infer_invalid(infer, "ul_of and ul_input name no gradient");
    if (ul_gradient_has_mask(infer->graph, infer->node) && row->masks[of] == NULL)
        return ul_infer_invalid(infer, "the gradient has no mask");
    for (uint32_t i = 1; i < infer->node->input_count; i++) {
        const struct ul_type *type = ul_infer_input(infer, i);
        if (type != NULL && (!ul_broadcast(g, type, &sum) || !ul_type_same_dims(&sum, g)))
            return ul_infer_invalid(infer, "input %u does not broadcast to the gradient",
                                    (unsigned)i);
    }
    return ul_infer_same(infer);
}

/* Operands of texts, by their letters. */
struct operands {
    ul_kx of['z' - 'a' + 1];
    enum ul_dtype dtype; /* of the first operand that is there */
};

/* Loads what the node reads: a letter for each input from the first on, then a b c. */
static void load_operands(struct ul_lower *lower, ul_node_id node, const char *letters,
                          const ul_kx *index, struct operands *operands)
{
    const struct ul_node *info = ul_check_node(lower, node);
    uint32_t rank = ul_lower_output_type(lower, node, 0)->rank;
    uint32_t named = (uint32_t)strlen(letters);
    operands->dtype = UL_DTYPE_NONE;
    for (uint32_t i = 0; i < sizeof operands->of / sizeof *operands->of; i++)
        operands->of[i] = UL_NONE;
    for (uint32_t i = 0; i < info->input_count; i++) {
        char letter = i < named ? letters[i] : (char)('a' + (char)(i - named));
        if (info->inputs[i] == UL_NONE)
            continue;
        ul_kx x = ul_lower_load_broadcast(lower, info->inputs[i], index, rank);
        operands->of[letter - 'a'] = x;
        if (operands->dtype == UL_DTYPE_NONE)
            operands->dtype = ul_kx_dtype(lower->kernel, x);
    }
    UL_ASSERT(operands->dtype != UL_DTYPE_NONE);
}

static ul_kx build_text(struct ul_lower *lower, ul_node_id node, const char *text,
                        const struct operands *operands)
{
    return ul_expression_build(lower, node, text, operands->of,
                               sizeof operands->of / sizeof *operands->of, operands->dtype);
}

ul_kx ul_map_gradient(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    uint32_t of;
    const struct ul_node *info = ul_check_node(lower, node);
    const struct ul_op_info *row = ul_gradient_row(info, &of);
    bool is_masked = ul_gradient_has_mask(lower->graph, info);
    struct operands operands;
    UL_ASSERT(output == 0 && row != NULL);
    load_operands(lower, node, is_masked ? "gm" : "gy", index, &operands);
    if (row->masks[of] != NULL && !is_masked)
        operands.of['m' - 'a'] = build_text(lower, node, row->masks[of], &operands);
    return build_text(lower, node, row->gradients[of], &operands);
}

/* Gives the shape that the operands have together. */
enum ul_status ul_infer_mask(struct ul_infer *infer)
{
    struct ul_type all = {.rank = 0};
    bool any = false;
    uint32_t of;
    const struct ul_op_info *row = ul_gradient_row(infer->node, &of);
    if (row == NULL || row->masks[of] == NULL)
        return ul_infer_invalid(infer, "ul_of and ul_input name no mask");
    for (uint32_t i = 0; i < infer->node->input_count; i++) {
        const struct ul_type *type = ul_infer_input(infer, i);
        struct ul_type sum;
        if (type == NULL)
            continue;
        UL_TRY(ul_check_dtype(infer, i, UL_CHECK_FLOATS));
        if (!ul_broadcast(&all, type, &sum))
            return ul_infer_invalid(infer, "input %u does not broadcast", (unsigned)i);
        all = sum;
        any = true;
    }
    if (!any)
        return ul_infer_invalid(infer, "a mask of nothing");
    ul_infer_set(infer, 0, UL_BOOL, all.rank, all.dims);
    return UL_OK;
}

ul_kx ul_map_mask(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    uint32_t of;
    const struct ul_op_info *row = ul_gradient_row(ul_check_node(lower, node), &of);
    struct operands operands;
    UL_ASSERT(output == 0 && row != NULL);
    load_operands(lower, node, "y", index, &operands);
    return build_text(lower, node, row->masks[of], &operands);
}

/* ---- Gradients that are known ---- */

/* g times the known factor, where g is not 1. */
enum ul_status ul_gradient_known(struct ul_gradient *gradient)
{
    ul_value_id g = ul_gradient_of(gradient, 0);
    uint32_t count = ul_gradient_node(gradient)->input_count;
    double number = 0;
    bool is_one = ul_graph_get_number(gradient->graph, g, &number) && number >= 1 && number <= 1;
    for (uint32_t i = 1; i + 1 < count; i += 2) {
        if (!ul_gradient_wanted(gradient, i))
            continue;
        ul_value_id known = ul_gradient_input(gradient, i + 1);
        ul_gradient_give(gradient, i, is_one ? known : ul_build_mul(&gradient->build, known, g));
    }
    return UL_OK;
}
