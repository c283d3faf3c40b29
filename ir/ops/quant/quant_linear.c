/* SPDX-License-Identifier: Apache-2.0 */
/* QuantizeLinear and DequantizeLinear: one scale for the tensor, for each index of an axis, or for
 * each block along it; Quantize and Dequantize: scales that broadcast. */
#include "ir/infer.h"
#include "ir/kernel_build.h"
#include "ir/op_names.h"
#include "ir/ops/lanes.h"
#include "ir/ops/quant/quant.h"
#include "ir/ops/require.h"

#include <math.h>
#include <string.h>

/* How the scale is indexed. */
enum grain { PER_TENSOR, PER_AXIS, PER_BLOCK, BROADCAST };
struct scaling {
    enum grain grain;
    uint32_t axis;
    int64_t block;
};

/* Returns NULL, or what is wrong with the shape of the scale. */
static const char *read_scaling(struct scaling *scaling, const struct ul_node *node,
                                const struct ul_type *x, const struct ul_type *scale)
{
    *scaling =
        (struct scaling){.grain = PER_TENSOR, .block = ul_node_get_int(node, "block_size", 0)};
    int64_t axis = ul_node_get_int(node, "axis", 1);
    if (node->op == UL_OP_Quantize || node->op == UL_OP_Dequantize) {
        struct ul_type result;
        scaling->grain = BROADCAST;
        bool fits = ul_broadcast(x, scale, &result) && ul_type_same_dims(&result, x);
        return fits ? NULL : "the scale does not broadcast to the input";
    }
    axis += axis < 0 ? (int64_t)x->rank : 0;
    if (x->rank == 1 && axis == 1)
        axis = 0;
    if (scaling->block == 0 && ul_type_elements(scale) == 1 && scale->rank <= 1)
        return NULL;
    if (axis < 0 || axis >= (int64_t)x->rank)
        return "axis is out of range";
    scaling->axis = (uint32_t)axis;
    if (scaling->block == 0) {
        scaling->grain = PER_AXIS;
        if (scale->rank != 1 || scale->dims[0] != x->dims[axis])
            return "the scale must be one number, or one for each index of the axis";
        return NULL;
    }
    scaling->grain = PER_BLOCK;
    if (scaling->block < 0)
        return "block_size is negative";
    if (scale->rank != x->rank)
        return "the scale of blocks must have the rank of the input";
    for (uint32_t d = 0; d < x->rank; d++) {
        int64_t blocks = x->dims[d];
        if (d == scaling->axis)
            blocks = blocks == 0 ? 0 : (blocks - 1) / scaling->block + 1;
        if (scale->dims[d] != blocks)
            return "the scale does not have one number for each block";
    }
    return NULL;
}

static ul_kx load_scaling(struct ul_lower *lower, const struct scaling *scaling, ul_value_id value,
                          uint32_t rank, const ul_kx *index)
{
    if (scaling->grain == PER_TENSOR)
        return ul_lower_load_scalar(lower, value);
    if (scaling->grain == PER_AXIS)
        return ul_lower_load(lower, value, &index[scaling->axis]);
    if (scaling->grain == BROADCAST)
        return ul_lower_load_broadcast(lower, value, index, rank);
    ul_kx at[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < rank; d++)
        at[d] = index[d];
    at[scaling->axis] = ul_kx_divi(lower->kernel, at[scaling->axis], scaling->block);
    return ul_lower_load(lower, value, at);
}

/* Whether it is a float of 4, 6 or 8 bits, which have no zero-point. */
static bool is_small_float(enum ul_dtype dtype)
{
    return ((UL_SET_FLOAT8 | UL_SET_FEW_BIT_FLOATS) >> dtype & 1u) != 0;
}

static bool is_quantized(enum ul_dtype dtype)
{
    int64_t low, high;
    return is_small_float(dtype) || ul_dtype_range(dtype, &low, &high);
}

static bool is_real(enum ul_dtype dtype)
{
    return dtype == UL_F32 || ul_dtype_is_half(dtype);
}

static bool is_scale(enum ul_dtype dtype)
{
    return is_real(dtype) || dtype == UL_F8E8M0;
}

/* Two tensors of one element match whatever their ranks. */
static bool has_shape_of(const struct ul_type *zero, const struct ul_type *scale)
{
    bool same = zero->rank == scale->rank;
    for (uint32_t d = 0; same && d < zero->rank; d++)
        same = zero->dims[d] == scale->dims[d];
    return same || (ul_type_elements(zero) == 1 && ul_type_elements(scale) == 1);
}

static enum ul_status check_scaling(const struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, 0), *scale = ul_infer_input(infer, 1);
    const struct ul_type *zero = ul_infer_input(infer, 2);
    struct scaling scaling;
    const char *wrong = read_scaling(&scaling, infer->node, x, scale);
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    if (zero != NULL && !has_shape_of(zero, scale))
        return ul_infer_invalid(infer, "the zero-point must have the shape of the scale");
    return ul_quant_check_scales(
        infer, 1, infer->node->op == UL_OP_QuantizeLinear ? UL_SCALES_NOT_ZERO : UL_SCALES_FINITE);
}

enum ul_status ul_infer_quantize(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, 0), *scale = ul_infer_input(infer, 1);
    const struct ul_type *zero = ul_infer_input(infer, 2);
    int64_t wanted = ul_node_get_int(infer->node, "output_dtype", 0);
    int64_t precision = ul_node_get_int(infer->node, "precision", 0);
    if (!is_real(x->dtype) && x->dtype != UL_I32)
        return ul_infer_unsupported(infer, "QuantizeLinear takes f32, f16, bf16 and i32, not %s",
                                    ul_dtype_get(x->dtype)->name);
    if (!is_scale(scale->dtype) && scale->dtype != UL_I32)
        return ul_infer_unsupported(infer, "scales are f32, f16, bf16, f8e8m0 or i32, not %s",
                                    ul_dtype_get(scale->dtype)->name);
    if (precision != 0 && precision != UL_F32 && precision != UL_F16 && precision != UL_BF16)
        return ul_infer_unsupported(infer, "precision must be float, float16 or bfloat16");
    enum ul_dtype dtype = UL_U8;
    if (zero != NULL)
        dtype = zero->dtype;
    else if (wanted > 0 && wanted < UL_DTYPE_COUNT)
        dtype = (enum ul_dtype)wanted;
    if (wanted != 0 && wanted != (int64_t)dtype)
        return ul_infer_invalid(infer, "output_dtype differs from the type of the zero-point");
    if (!is_quantized(dtype))
        return ul_infer_unsupported(
            infer, "results are integers of 2 to 16 bits and floats of 4 to 8 bits, not %s",
            ul_dtype_get(dtype)->name);
    UL_TRY(check_scaling(infer));
    struct ul_type type = *x;
    type.dtype = dtype;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* `x` rounded to `dtype` where that is a 16-bit float. */
static ul_kx round_real(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx x)
{
    return ul_dtype_is_half(dtype) ? ul_kx_round_to(kernel, dtype, false, x) : x;
}

/* x / scale in the precision that the operator asks for. */
static ul_kx divide(struct ul_lower *lower, ul_node_id node, ul_kx x, ul_kx scale)
{
    struct ul_kernel *kernel = lower->kernel;
    enum ul_dtype x_dtype = ul_lower_input_type(lower, node, 0)->dtype;
    enum ul_dtype scale_dtype = ul_lower_input_type(lower, node, 1)->dtype;
    enum ul_dtype precision =
        (enum ul_dtype)ul_node_get_int(&lower->graph->nodes[node], "precision", 0);
    if (precision == UL_DTYPE_NONE) {
        bool is_integer = x_dtype == UL_I32 || scale_dtype == UL_I32;
        precision = is_integer ? UL_F64 : x_dtype == scale_dtype ? x_dtype : UL_F32;
    }
    enum ul_dtype real = precision == UL_F64 ? UL_F64 : UL_F32;
    x = round_real(kernel, precision, ul_kx_cast(kernel, real, x));
    scale = round_real(kernel, precision, ul_kx_cast(kernel, real, scale));
    return round_real(kernel, precision, ul_kx_binary(kernel, UL_KX_DIV, x, scale));
}

ul_kx ul_map_quantize(struct ul_lower *lower, ul_node_id node_id, uint32_t output,
                      const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *x = ul_lower_input_type(lower, node_id, 0);
    enum ul_dtype dtype = ul_lower_output_type(lower, node_id, output)->dtype;
    struct scaling scaling;
    const char *wrong = read_scaling(&scaling, node, x, ul_lower_input_type(lower, node_id, 1));
    UL_ASSERT(wrong == NULL);
    ul_kx scale = load_scaling(lower, &scaling, node->inputs[1], x->rank, index);
    ul_kx quotient = divide(lower, node_id, ul_lower_load(lower, node->inputs[0], index), scale);
    if (is_small_float(dtype)) {
        bool saturate = ul_node_get_int(node, "saturate", 1) != 0;
        return ul_kx_round_to(kernel, dtype, saturate, ul_kx_cast(kernel, UL_F32, quotient));
    }
    ul_kx zero = UL_NONE;
    if (ul_lower_has_input(lower, node_id, 2))
        zero = ul_kx_cast(kernel, UL_I32,
                          load_scaling(lower, &scaling, node->inputs[2], x->rank, index));
    return ul_kx_cast(kernel, ul_compute_dtype(dtype), ul_quantize(kernel, quotient, zero, dtype));
}

enum ul_status ul_infer_dequantize(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, 0), *scale = ul_infer_input(infer, 1);
    const struct ul_type *zero = ul_infer_input(infer, 2);
    int64_t wanted = ul_node_get_int(infer->node, "output_dtype", 0);
    if (!is_quantized(x->dtype) && x->dtype != UL_I32)
        return ul_infer_unsupported(
            infer,
            "DequantizeLinear takes integers of 2 to 32 bits and floats of 4 to 8 bits, not %s",
            ul_dtype_get(x->dtype)->name);
    if (!is_scale(scale->dtype))
        return ul_infer_unsupported(infer, "scales are f32, f16, bf16 or f8e8m0, not %s",
                                    ul_dtype_get(scale->dtype)->name);
    if (zero != NULL && zero->dtype != x->dtype)
        return ul_infer_invalid(infer, "the zero-point must have the type of the input");
    enum ul_dtype dtype = scale->dtype;
    if (wanted > 0 && wanted < UL_DTYPE_COUNT)
        dtype = (enum ul_dtype)wanted;
    if (wanted < 0 || wanted >= UL_DTYPE_COUNT || !is_real(dtype))
        return ul_infer_unsupported(infer, "output_dtype must be float, float16 or bfloat16");
    UL_TRY(check_scaling(infer));
    struct ul_type type = *x;
    type.dtype = dtype;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_dequantize(struct ul_lower *lower, ul_node_id node_id, uint32_t output,
                        const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *x = ul_lower_input_type(lower, node_id, 0);
    struct scaling scaling;
    const char *wrong = read_scaling(&scaling, node, x, ul_lower_input_type(lower, node_id, 1));
    UL_ASSERT(wrong == NULL && output == 0);
    ul_kx value = ul_lower_load(lower, node->inputs[0], index);
    if (ul_lower_has_input(lower, node_id, 2) && !is_small_float(x->dtype)) {
        ul_kx zero = load_scaling(lower, &scaling, node->inputs[2], x->rank, index);
        value = ul_kx_binary(kernel, UL_KX_SUB, ul_kx_cast(kernel, UL_I32, value),
                             ul_kx_cast(kernel, UL_I32, zero));
    }
    ul_kx scale = load_scaling(lower, &scaling, node->inputs[1], x->rank, index);
    return ul_kx_binary(kernel, UL_KX_MUL, ul_kx_cast(kernel, UL_F32, value),
                        ul_kx_cast(kernel, UL_F32, scale));
}

enum ul_status ul_infer_dynamic_quantize(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, 0);
    if (x->dtype != UL_F32)
        return ul_infer_unsupported(infer, "DynamicQuantizeLinear takes f32, not %s",
                                    ul_dtype_get(x->dtype)->name);
    struct ul_type type = *x;
    type.dtype = UL_U8;
    ul_infer_set_type(infer, 0, &type);
    ul_infer_set(infer, 1, UL_F32, 0, NULL);
    ul_infer_set(infer, 2, UL_U8, 0, NULL);
    return UL_OK;
}

static ul_kx load_term(struct ul_lanes *lanes, const void *context)
{
    const ul_value_id *value = context;
    return ul_lower_load(lanes->lower, *value, lanes->index);
}

/* The smallest or the largest of all elements and 0. Each is found by itself, so that the loops
 * become vectors. */
static ul_kx lower_extreme(struct ul_lower *lower, ul_value_id value, enum ul_kx_op combine)
{
    struct ul_lanes lanes;
    const struct ul_type *x = &lower->graph->values[value].type;
    ul_lanes_open(&lanes, lower, value, 0);
    struct ul_lane_var extreme =
        ul_lanes_reduce(&lanes, ul_lanes_all(x->rank), combine,
                        ul_kx_float(lower->kernel, UL_F32, 0), load_term, &value);
    ul_lanes_begin(&lanes);
    ul_kx number = ul_ks_let(lower->kernel, ul_lanes_get(&lanes, extreme));
    ul_lanes_end(&lanes);
    ul_lanes_close(&lanes);
    return number;
}

void ul_lower_dynamic_quantize(struct ul_lower *lower, ul_node_id node_id)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *x = ul_lower_input_type(lower, node_id, 0);
    ul_kx index[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < UL_LIMIT_RANK; d++)
        index[d] = ul_kx_index_const(kernel, 0);
    ul_kx low = lower_extreme(lower, node->inputs[0], UL_KX_MIN);
    ul_kx high = lower_extreme(lower, node->inputs[0], UL_KX_MAX);
    ul_kx range = ul_kx_binary(kernel, UL_KX_SUB, high, low);
    ul_kx flat = ul_kx_binary(kernel, UL_KX_EQ, high, low);
    range = ul_kx_select(kernel, flat, ul_kx_float(kernel, UL_F32, 1), range);
    ul_kx scale =
        ul_ks_let(kernel, ul_kx_binary(kernel, UL_KX_DIV, range, ul_kx_float(kernel, UL_F32, 255)));
    ul_kx point = ul_kx_binary(kernel, UL_KX_DIV, ul_kx_unary(kernel, UL_KX_NEG, low), scale);
    point = ul_ks_let(kernel, ul_quantize(kernel, point, UL_NONE, UL_U8));
    if (ul_lower_has_output(lower, node_id, 1))
        ul_lower_store(lower, node->outputs[1], index, scale);
    if (ul_lower_has_output(lower, node_id, 2))
        ul_lower_store(lower, node->outputs[2], index, ul_kx_cast(kernel, UL_U32, point));
    if (!ul_lower_has_output(lower, node_id, 0))
        return;
    ul_lower_open(lower, x->rank, x->dims, index);
    ul_kx quotient =
        ul_kx_binary(kernel, UL_KX_DIV, ul_lower_load(lower, node->inputs[0], index), scale);
    ul_lower_store(lower, node->outputs[0], index,
                   ul_kx_cast(kernel, UL_U32, ul_quantize(kernel, quotient, point, UL_U8)));
    ul_lower_close(lower, x->rank);
}

bool ul_split_rule_quantize(struct ul_split_rule *split)
{
    struct scaling scaling;
    const char *wrong = read_scaling(&scaling, split->node, ul_split_rule_input_type(split, 0),
                                     ul_split_rule_input_type(split, 1));
    if (wrong != NULL || scaling.grain == PER_BLOCK)
        return false;
    ul_split_rule_read(split, 0, split->output.axis, split->output.begin, split->output.end);
    for (uint32_t i = 1; i < split->node->input_count; i++) {
        if (scaling.grain == PER_AXIS && scaling.axis == split->output.axis &&
            split->node->inputs[i] != UL_NONE)
            ul_split_rule_read(split, i, 0, split->output.begin, split->output.end);
    }
    return true;
}
