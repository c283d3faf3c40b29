/* SPDX-License-Identifier: Apache-2.0 */
/* ConvInteger, QLinearConv, MatMulInteger and QLinearMatMul: sums of 8-bit products in i32. */
#include "ir/kernel_build.h"
#include "ir/ops/conv/conv.h"
#include "ir/ops/matmul/matmul.h"
#include "ir/ops/quant/quant.h"

enum ul_dtype ul_quant_sum_dtype(const struct ul_node *node)
{
    return ul_node_get_int(node, "wide", 0) != 0 ? UL_I64 : UL_I32;
}

enum ul_status ul_quant_check_operand(const struct ul_infer *infer, uint32_t input, uint32_t zero)
{
    const struct ul_type *x = ul_infer_input(infer, input), *z = ul_infer_input(infer, zero);
    bool is_wide =
        ul_quant_sum_dtype(infer->node) == UL_I64 && (x->dtype == UL_U16 || x->dtype == UL_I16);
    if (!ul_dtype_is_8bit(x->dtype) && !is_wide)
        return ul_infer_unsupported(infer, "%s takes u8 and i8, not %s",
                                    ul_op_get(infer->node->op)->name, ul_dtype_get(x->dtype)->name);
    if (z != NULL && z->dtype != x->dtype)
        return ul_infer_invalid(infer, "a zero-point must have the type of its operand");
    return UL_OK;
}

static bool is_single(const struct ul_type *type)
{
    return type == NULL || ul_type_elements(type) == 1;
}

/* Checks the shape of a convolution whose zero-points are inputs `x_zero` and `w_zero`. */
static enum ul_status check_conv(const struct ul_infer *infer, uint32_t x, uint32_t x_zero,
                                 uint32_t w, uint32_t w_zero, struct ul_conv *conv)
{
    UL_TRY(ul_quant_check_operand(infer, x, x_zero));
    UL_TRY(ul_quant_check_operand(infer, w, w_zero));
    const char *wrong =
        ul_conv_read(conv, infer->node, ul_infer_input(infer, x), ul_infer_input(infer, w));
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    const struct ul_type *zero = ul_infer_input(infer, w_zero);
    if (!is_single(ul_infer_input(infer, x_zero)))
        return ul_infer_invalid(infer, "the input's zero-point must be one number");
    if (!is_single(zero) && (zero->rank != 1 || zero->dims[0] != conv->groups * conv->out_channels))
        return ul_infer_invalid(
            infer, "the weight's zero-point must be one number, or one for each output channel");
    return UL_OK;
}

enum ul_status ul_infer_conv_integer(struct ul_infer *infer)
{
    struct ul_conv conv;
    UL_TRY(check_conv(infer, 0, 2, 1, 3, &conv));
    struct ul_type type = ul_conv_result(&conv, ul_quant_sum_dtype(infer->node));
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

static ul_value_id input_or_none(const struct ul_lower *lower, ul_node_id node, uint32_t input)
{
    return ul_lower_has_input(lower, node, input) ? lower->graph->nodes[node].inputs[input]
                                                  : UL_NONE;
}

void ul_lower_conv_integer(struct ul_lower *lower, ul_node_id node_id)
{
    const struct ul_node *node = &lower->graph->nodes[node_id];
    struct ul_conv conv;
    const char *wrong = ul_conv_read(&conv, node, ul_lower_input_type(lower, node_id, 0),
                                     ul_lower_input_type(lower, node_id, 1));
    UL_ASSERT(wrong == NULL);
    struct ul_conv_operands operands = {.acc_dtype = ul_quant_sum_dtype(node),
                                        .x = node->inputs[0],
                                        .w = node->inputs[1],
                                        .x_zero = input_or_none(lower, node_id, 2),
                                        .w_zero = input_or_none(lower, node_id, 3),
                                        .pad_value = (double)ul_node_get_int(node, "pad_value", 0)};
    ul_kx index[2 + UL_CONV_SPATIAL];
    ul_kx sum = ul_conv_open(lower, &conv, &operands, index);
    ul_lower_store(lower, node->outputs[0], index, sum);
    ul_conv_close(lower);
}

/* Checks the scales of x, w and y. */
static enum ul_status check_scales(const struct ul_infer *infer)
{
    UL_TRY(ul_quant_check_scales(infer, 1, UL_SCALES_ABOVE_ZERO));
    UL_TRY(ul_quant_check_scales(infer, 4, UL_SCALES_ABOVE_ZERO));
    return ul_quant_check_scales(infer, 6, UL_SCALES_ABOVE_ZERO);
}

enum ul_status ul_infer_qlinear_conv(struct ul_infer *infer)
{
    struct ul_conv conv;
    UL_TRY(check_conv(infer, 0, 2, 3, 5, &conv));
    const struct ul_type *w_scale = ul_infer_input(infer, 4), *y_zero = ul_infer_input(infer, 7);
    const struct ul_type *bias = ul_infer_input(infer, 8);
    if (!ul_dtype_is_8bit(y_zero->dtype))
        return ul_infer_unsupported(infer, "QLinearConv gives u8 and i8, not %s",
                                    ul_dtype_get(y_zero->dtype)->name);
    int64_t channels = conv.groups * conv.out_channels;
    for (uint32_t input = 1; input < 8; input++) {
        const struct ul_type *type = ul_infer_input(infer, input);
        if ((input == 1 || input == 6) && (type->dtype != UL_F32 || !is_single(type)))
            return ul_infer_invalid(infer, "the scales of input and output must be one f32");
    }
    if (!is_single(y_zero))
        return ul_infer_invalid(infer, "the output's zero-point must be one number");
    if (w_scale->dtype != UL_F32 ||
        (!is_single(w_scale) && (w_scale->rank != 1 || w_scale->dims[0] != channels)))
        return ul_infer_invalid(
            infer, "the weight's scale must be one f32, or one for each output channel");
    if (bias != NULL && (bias->dtype != UL_I32 || bias->rank != 1 || bias->dims[0] != channels))
        return ul_infer_invalid(infer, "the bias must be one i32 for each output channel");
    UL_TRY(check_scales(infer));
    struct ul_type type = ul_conv_result(&conv, y_zero->dtype);
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* Loads a scale: one for the tensor, or one for each channel. */
static ul_kx load_scale(struct ul_lower *lower, ul_value_id value, ul_kx channel)
{
    if (ul_type_elements(&lower->graph->values[value].type) == 1)
        return ul_lower_load_scalar(lower, value);
    return ul_lower_load(lower, value, &channel);
}

/* round(sum * a_scale * b_scale / y_scale) + zero, the factor rounded as its type `dtype` asks. */
static ul_kx requantize(struct ul_kernel *kernel, ul_kx sum, ul_kx a_scale, ul_kx b_scale,
                        ul_kx y_scale, enum ul_dtype dtype, ul_kx zero, enum ul_dtype result)
{
    bool is_short = ul_dtype_is_half(dtype);
    ul_kx factor = ul_kx_binary(kernel, UL_KX_MUL, a_scale, b_scale);
    if (is_short)
        factor = ul_kx_round_to(kernel, dtype, false, factor);
    factor = ul_kx_binary(kernel, UL_KX_DIV, factor, y_scale);
    if (is_short)
        factor = ul_kx_round_to(kernel, dtype, false, factor);
    ul_kx x = ul_kx_binary(kernel, UL_KX_MUL, ul_kx_cast(kernel, UL_F32, sum), factor);
    x = ul_quantize(kernel, x, ul_kx_cast(kernel, UL_I32, zero), result);
    return ul_kx_cast(kernel, ul_compute_dtype(result), x);
}

void ul_lower_qlinear_conv(struct ul_lower *lower, ul_node_id node_id)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[node_id];
    struct ul_conv conv;
    const char *wrong = ul_conv_read(&conv, node, ul_lower_input_type(lower, node_id, 0),
                                     ul_lower_input_type(lower, node_id, 3));
    UL_ASSERT(wrong == NULL);
    struct ul_conv_operands operands = {.acc_dtype = UL_I32,
                                        .x = node->inputs[0],
                                        .w = node->inputs[3],
                                        .x_zero = node->inputs[2],
                                        .w_zero = node->inputs[5]};
    ul_kx index[2 + UL_CONV_SPATIAL];
    ul_kx sum = ul_conv_open(lower, &conv, &operands, index);
    sum = ul_conv_add_bias(lower, node_id, 8, index[1], sum);
    ul_kx y = requantize(kernel, sum, ul_lower_load_scalar(lower, node->inputs[1]),
                         load_scale(lower, node->inputs[4], index[1]),
                         ul_lower_load_scalar(lower, node->inputs[6]), UL_F32,
                         ul_lower_load_scalar(lower, node->inputs[7]),
                         ul_lower_output_type(lower, node_id, 0)->dtype);
    ul_lower_store(lower, node->outputs[0], index, y);
    ul_conv_close(lower);
}

/* A scale or zero-point of a matrix operand: one number, one for each row (`is_rows`) or column,
 * or a shape that broadcasts to (batch..., rows, 1) or (batch..., 1, columns). */
static bool fits_matrix(const struct ul_type *type, const struct ul_matmul *matmul, bool is_rows)
{
    int64_t count = is_rows ? matmul->rows : matmul->columns;
    if (is_single(type))
        return true;
    if (type->rank == 1)
        return type->dims[0] == count;
    if (type->rank != matmul->batch.rank + 2 ||
        type->dims[type->rank - 1] != (is_rows ? 1 : count) ||
        type->dims[type->rank - 2] != (is_rows ? count : 1))
        return false;
    for (uint32_t d = 0; d < matmul->batch.rank; d++)
        if (type->dims[d] != 1 && type->dims[d] != matmul->batch.dims[d])
            return false;
    return true;
}

static enum ul_status check_matmul(const struct ul_infer *infer, uint32_t a, uint32_t a_zero,
                                   uint32_t b, uint32_t b_zero, struct ul_matmul *matmul)
{
    UL_TRY(ul_quant_check_operand(infer, a, a_zero));
    UL_TRY(ul_quant_check_operand(infer, b, b_zero));
    const char *wrong = ul_matmul_read(matmul, ul_infer_input(infer, a), ul_infer_input(infer, b));
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    if (!fits_matrix(ul_infer_input(infer, a_zero), matmul, true) ||
        !fits_matrix(ul_infer_input(infer, b_zero), matmul, false))
        return ul_infer_invalid(infer, "a zero-point must be one number, or one for each row of "
                                       "the first operand or column of the second");
    return UL_OK;
}

enum ul_status ul_infer_matmul_integer(struct ul_infer *infer)
{
    struct ul_matmul matmul;
    UL_TRY(check_matmul(infer, 0, 2, 1, 3, &matmul));
    struct ul_type type = ul_matmul_result(&matmul, ul_quant_sum_dtype(infer->node));
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

void ul_lower_matmul_integer(struct ul_lower *lower, ul_node_id node_id)
{
    const struct ul_node *node = &lower->graph->nodes[node_id];
    struct ul_matmul matmul;
    const char *wrong = ul_matmul_read(&matmul, ul_lower_input_type(lower, node_id, 0),
                                       ul_lower_input_type(lower, node_id, 1));
    UL_ASSERT(wrong == NULL);
    struct ul_matmul_operands operands = {.a = node->inputs[0],
                                          .b = node->inputs[1],
                                          .a_zero = input_or_none(lower, node_id, 2),
                                          .b_zero = input_or_none(lower, node_id, 3),
                                          .acc_dtype = ul_quant_sum_dtype(node)};
    ul_kx index[UL_LIMIT_RANK];
    ul_kx sum = ul_matmul_open(lower, &matmul, &operands, index);
    ul_lower_store(lower, node->outputs[0], index, sum);
    ul_matmul_close(lower, &matmul);
}

enum ul_status ul_infer_qlinear_matmul(struct ul_infer *infer)
{
    struct ul_matmul matmul;
    UL_TRY(check_matmul(infer, 0, 2, 3, 5, &matmul));
    const struct ul_type *y_zero = ul_infer_input(infer, 7);
    const struct ul_type *a_scale = ul_infer_input(infer, 1), *b_scale = ul_infer_input(infer, 4);
    const struct ul_type *y_scale = ul_infer_input(infer, 6);
    if (!ul_dtype_is_8bit(y_zero->dtype))
        return ul_infer_unsupported(infer, "QLinearMatMul gives u8 and i8, not %s",
                                    ul_dtype_get(y_zero->dtype)->name);
    enum ul_dtype dtype = a_scale->dtype;
    if (dtype != UL_F32 && !ul_dtype_is_half(dtype))
        return ul_infer_unsupported(infer, "scales are f32, f16 or bf16, not %s",
                                    ul_dtype_get(dtype)->name);
    if (b_scale->dtype != dtype || y_scale->dtype != dtype)
        return ul_infer_invalid(infer, "the scales differ in type");
    if (!is_single(y_zero) || !is_single(y_scale) || !fits_matrix(a_scale, &matmul, true) ||
        !fits_matrix(b_scale, &matmul, false))
        return ul_infer_invalid(infer, "scales must be one number, or one for each row of the "
                                       "first operand or column of the second; the result's is "
                                       "one number");
    UL_TRY(check_scales(infer));
    struct ul_type type = ul_matmul_result(&matmul, y_zero->dtype);
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* Loads the scale or zero-point; `index` is that of the result. A vector has no rows or columns to
 * differ in. */
static ul_kx load_matrix_scale(struct ul_lower *lower, const struct ul_matmul *matmul,
                               ul_value_id value, const ul_kx *index, bool is_rows)
{
    const struct ul_type *type = &lower->graph->values[value].type;
    if (ul_type_elements(type) == 1)
        return ul_lower_load_scalar(lower, value);
    ul_kx full[UL_LIMIT_RANK + 2];
    uint32_t rank = 0, batch = matmul->batch.rank;
    for (uint32_t d = 0; d < batch; d++)
        full[d] = index[rank++];
    full[batch] = matmul->a_is_vector ? ul_kx_index_const(lower->kernel, 0) : index[rank++];
    full[batch + 1] = matmul->b_is_vector ? ul_kx_index_const(lower->kernel, 0) : index[rank++];
    if (type->rank == 1)
        return ul_lower_load(lower, value, &full[is_rows ? batch : batch + 1]);
    return ul_lower_load_broadcast(lower, value, full, batch + 2);
}

void ul_lower_qlinear_matmul(struct ul_lower *lower, ul_node_id node_id)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[node_id];
    struct ul_matmul matmul;
    const char *wrong = ul_matmul_read(&matmul, ul_lower_input_type(lower, node_id, 0),
                                       ul_lower_input_type(lower, node_id, 3));
    UL_ASSERT(wrong == NULL);
    struct ul_matmul_operands operands = {.a = node->inputs[0],
                                          .b = node->inputs[3],
                                          .a_zero = node->inputs[2],
                                          .b_zero = node->inputs[5],
                                          .acc_dtype = UL_I32};
    ul_kx index[UL_LIMIT_RANK];
    ul_kx sum = ul_matmul_open(lower, &matmul, &operands, index);
    ul_kx y = requantize(
        kernel, sum, load_matrix_scale(lower, &matmul, node->inputs[1], index, true),
        load_matrix_scale(lower, &matmul, node->inputs[4], index, false),
        ul_lower_load_scalar(lower, node->inputs[6]), ul_lower_input_type(lower, node_id, 1)->dtype,
        ul_lower_load_scalar(lower, node->inputs[7]),
        ul_lower_output_type(lower, node_id, 0)->dtype);
    ul_lower_store(lower, node->outputs[0], index, y);
    ul_matmul_close(lower, &matmul);
}
