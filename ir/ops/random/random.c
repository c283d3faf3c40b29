/* SPDX-License-Identifier: Apache-2.0 */
/* Random tensors. ONNX leaves the generator open; here it is Philox with 64 bits of counter and
 * of seed (ir/kernel.h). Every element owns four draws, so that no two share any. */
#include "ir/ops/random/random.h"
#include "ir/ops/training/training.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"

#include <math.h>
#include <string.h>

enum { DRAWS = 4 }; /* of an element */

/* FNV-1a, one number at a time. */
static uint64_t mix(uint64_t hash, uint64_t number)
{
    return (hash ^ number) * 0x100000001B3u;
}

static uint64_t node_seed(const struct ul_graph *graph, const struct ul_node *node)
{
    const struct ul_attr *attr = ul_node_find_attr(node, "seed");
    uint64_t hash = 0xCBF29CE484222325u;
    uint32_t output = 0;
    if (attr != NULL && attr->kind == UL_ATTR_INT)
        return (uint64_t)attr->i;
    if (attr != NULL && attr->kind == UL_ATTR_FLOAT) {
        memcpy(&hash, &attr->f, sizeof hash);
        return hash;
    }
    while (node->outputs[output] == UL_NONE)
        output++;
    for (const char *at = graph->values[node->outputs[output]].name; *at != '\0'; at++)
        hash = mix(hash, (unsigned char)*at);
    return hash;
}

int64_t ul_random_seed(const struct ul_graph *graph, const struct ul_node *node)
{
    const uint64_t round = (uint64_t)ul_node_get_int(node, "ul_round", 0);
    uint64_t bits = node_seed(graph, node);
    if (round != 0)
        bits = mix(bits, round);
    int64_t seed;
    memcpy(&seed, &bits, sizeof seed);
    return seed;
}

void ul_op_copy_seed(struct ul_graph *graph, ul_node_id to, const struct ul_node *from)
{
    const uint64_t bits = node_seed(graph, from);
    const int64_t round = ul_node_get_int(from, "ul_round", 0);
    int64_t seed;
    memcpy(&seed, &bits, sizeof seed);
    ul_node_set_int(graph, to, "seed", seed);
    if (round != 0)
        ul_node_set_int(graph, to, "ul_round", round);
}

ul_kx ul_random_position(struct ul_kernel *kernel, const struct ul_type *type, const ul_kx *index)
{
    ul_kx position = ul_kx_index_const(kernel, 0);
    int64_t stride = 1;
    for (uint32_t d = type->rank; d-- > 0;) {
        position = ul_kx_add(kernel, position, ul_kx_muli(kernel, index[d], stride));
        stride *= type->dims[d];
    }
    return position;
}

static ul_kx draw_get(struct ul_kernel *kernel, ul_kx position, uint32_t which, int64_t seed)
{
    ul_kx counter = ul_kx_addi(kernel, ul_kx_muli(kernel, position, DRAWS), (int64_t)which);
    return ul_kx_random(kernel, counter, seed);
}

static ul_kx shift_right(struct ul_kernel *kernel, ul_kx x, int64_t count)
{
    return ul_kx_binary(kernel, UL_KX_SHR, x, ul_kx_int(kernel, ul_kx_dtype(kernel, x), count));
}

/* A whole number in [0, 2^24) or [0, 2^53), as a float; `scale` brings it to [0, 1). */
static ul_kx whole_bits(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx position,
                        uint32_t which, int64_t seed, double *scale)
{
    ul_kx low = draw_get(kernel, position, 2 * which, seed);
    *scale = 0x1p-24;
    if (dtype == UL_F32)
        return ul_kx_cast(kernel, UL_F32, shift_right(kernel, low, 8));
    ul_kx high = draw_get(kernel, position, 2 * which + 1, seed);
    ul_kx wide = ul_kx_binary(kernel, UL_KX_SHL, ul_kx_cast(kernel, UL_U64, high),
                              ul_kx_int(kernel, UL_U64, 32));
    wide = ul_kx_binary(kernel, UL_KX_OR, wide, ul_kx_cast(kernel, UL_U64, low));
    *scale = 0x1p-53;
    return ul_kx_cast(kernel, UL_F64, shift_right(kernel, wide, 11));
}

ul_kx ul_random_unit(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx position, uint32_t which,
                     int64_t seed)
{
    double scale;
    ul_kx whole = whole_bits(kernel, dtype, position, which, seed, &scale);
    return ul_kx_mul(kernel, whole, ul_kx_float(kernel, dtype, scale));
}

enum ul_status ul_infer_random(struct ul_infer *infer)
{
    enum ul_dtype dtype;
    uint32_t count;
    const int64_t *dims = ul_node_get_ints(infer->node, "shape", &count);
    UL_TRY(ul_require_dtype(infer, "dtype", UL_F32, UL_SET_FLOAT, &dtype));
    if (ul_node_find_attr(infer->node, "shape") == NULL)
        return ul_infer_invalid(infer, "shape is missing");
    UL_TRY(ul_require_dims(infer, dims, count));
    ul_infer_set(infer, 0, dtype, count, dims);
    return UL_OK;
}

enum ul_status ul_infer_random_like(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    UL_TRY(ul_require_dtype(infer, "dtype", type.dtype, UL_SET_FLOAT, &type.dtype));
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* ---- uniform and normal numbers, of a position ---- */

static ul_kx uniform(struct ul_lower *lower, ul_node_id node, enum ul_dtype dtype, ul_kx position)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    double low = ul_node_get_float(info, "low", 0);
    double high = ul_node_get_float(info, "high", 1);
    ul_kx unit = ul_random_unit(kernel, dtype, position, 0, ul_random_seed(lower->graph, info));
    ul_kx scaled = ul_kx_mul(kernel, unit, ul_kx_float(kernel, dtype, high - low));
    return ul_kx_add(kernel, scaled, ul_kx_float(kernel, dtype, low));
}

/* Box and Muller (1958): a radius and an angle; the logarithm's argument is in (0, 1]. */
static ul_kx normal(struct ul_lower *lower, ul_node_id node, enum ul_dtype dtype, ul_kx position)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    int64_t seed = ul_random_seed(lower->graph, info);
    double scale;
    ul_kx whole = whole_bits(kernel, dtype, position, 0, seed, &scale);
    ul_kx above = ul_kx_add(kernel, whole, ul_kx_float(kernel, dtype, 1));
    ul_kx unit = ul_kx_mul(kernel, above, ul_kx_float(kernel, dtype, scale));
    ul_kx log =
        ul_kx_mul(kernel, ul_kx_unary(kernel, UL_KX_LOG, unit), ul_kx_float(kernel, dtype, -2));
    ul_kx angle = ul_kx_mul(kernel, ul_random_unit(kernel, dtype, position, 1, seed),
                            ul_kx_float(kernel, dtype, 6.28318530717958647693));
    ul_kx drawn = ul_kx_mul(kernel, ul_kx_unary(kernel, UL_KX_SQRT, log),
                            ul_kx_unary(kernel, UL_KX_COS, angle));
    ul_kx scaled =
        ul_kx_mul(kernel, drawn, ul_kx_float(kernel, dtype, ul_node_get_float(info, "scale", 1)));
    return ul_kx_add(kernel, scaled,
                     ul_kx_float(kernel, dtype, ul_node_get_float(info, "mean", 0)));
}

ul_kx ul_map_random_uniform(struct ul_lower *lower, ul_node_id node, uint32_t output,
                            const ul_kx *index)
{
    const struct ul_type *type = ul_lower_output_type(lower, node, output);
    return uniform(lower, node, ul_compute_dtype(type->dtype),
                   ul_random_position(lower->kernel, type, index));
}

ul_kx ul_map_random_normal(struct ul_lower *lower, ul_node_id node, uint32_t output,
                           const ul_kx *index)
{
    const struct ul_type *type = ul_lower_output_type(lower, node, output);
    return normal(lower, node, ul_compute_dtype(type->dtype),
                  ul_random_position(lower->kernel, type, index));
}

/* ---- the same, drawn anew in each step of training: the input is the step's key ---- */

static enum ul_status check_key(struct ul_infer *infer, uint32_t input)
{
    UL_TRY(ul_check_dtype(infer, input, UL_CHECK_BIT(UL_I64)));
    return ul_check_shape(infer, input, 0, NULL);
}

enum ul_status ul_infer_draw(struct ul_infer *infer)
{
    UL_TRY(check_key(infer, 0));
    return ul_infer_random(infer);
}

/* The key is above all positions, and four times it below 2^63 (ir/ops/random/drop.c). */
static ul_kx keyed_position(struct ul_lower *lower, ul_value_id input, const struct ul_type *type,
                            const ul_kx *index)
{
    ul_kx key = ul_lower_load(lower, input, index);
    return ul_kx_add(lower->kernel, key, ul_random_position(lower->kernel, type, index));
}

ul_kx ul_map_draw_uniform(struct ul_lower *lower, ul_node_id node, uint32_t output,
                          const ul_kx *index)
{
    const struct ul_type *type = ul_lower_output_type(lower, node, output);
    return uniform(lower, node, ul_compute_dtype(type->dtype),
                   keyed_position(lower, lower->graph->nodes[node].inputs[0], type, index));
}

ul_kx ul_map_draw_normal(struct ul_lower *lower, ul_node_id node, uint32_t output,
                         const ul_kx *index)
{
    const struct ul_type *type = ul_lower_output_type(lower, node, output);
    return normal(lower, node, ul_compute_dtype(type->dtype),
                  keyed_position(lower, lower->graph->nodes[node].inputs[0], type, index));
}

/* ---- draws from given distributions ---- */

enum ul_status ul_infer_bernoulli(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_FLOAT));
    UL_TRY(ul_require_dtype(infer, "dtype", type.dtype, UL_SET_NUMBER | UL_SET_BOOL, &type.dtype));
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_bernoulli(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *type = ul_lower_output_type(lower, node, output);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    ul_kx p = ul_lower_load(lower, info->inputs[0], index);
    ul_kx unit =
        ul_random_unit(kernel, ul_kx_dtype(kernel, p), ul_random_position(kernel, type, index), 0,
                       ul_random_seed(lower->graph, info));
    return ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, unit, p),
                        ul_kx_number(kernel, dtype, 1), ul_kx_number(kernel, dtype, 0));
}

/* With a second input the draw belongs to a step of training, and the input is that step's key. */
enum ul_status ul_infer_multinomial(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    int64_t samples = ul_node_get_int(infer->node, "sample_size", 1);
    enum ul_dtype dtype;
    UL_TRY(ul_check_rank(infer, 0, 2, 2));
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_FLOAT));
    UL_TRY(ul_require_dtype(infer, "dtype", UL_I32, UL_CHECK_INDEXES, &dtype));
    UL_TRY(ul_check_range(infer, "sample_size", samples, 0, UL_LIMIT_DIM));
    if (infer->node->input_count > 1)
        UL_TRY(check_key(infer, 1));
    if (input->dims[1] == 0 && samples > 0)
        return ul_infer_invalid(infer, "there is no class to draw");
    int64_t dims[2] = {input->dims[0], samples};
    ul_infer_set(infer, 0, dtype, 2, dims);
    return UL_OK;
}

/* exp(x[batch, class] - max), which is 0 for a NaN. */
static ul_kx class_weight(struct ul_lower *lower, ul_value_id input, ul_kx batch, ul_kx class_index,
                          ul_kx max)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx index[2] = {batch, class_index};
    ul_kx x = ul_kx_sub(kernel, ul_lower_load(lower, input, index), max);
    ul_kx weight = ul_kx_unary(kernel, UL_KX_EXP, x);
    ul_kx zero = ul_kx_float(kernel, ul_kx_dtype(kernel, x), 0);
    return ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LE, zero, weight), weight, zero);
}

/* Finds the largest number of a row and the sum of its weights. */
static void row_totals(struct ul_lower *lower, ul_node_id node, ul_kx batch, ul_kx *max,
                       ul_kx *total)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_value_id input = lower->graph->nodes[node].inputs[0];
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    uint32_t largest = ul_ks_var(kernel, dtype, ul_kx_float(kernel, dtype, -(double)INFINITY));
    ul_kx index[2] = {batch, ul_ks_for(kernel, type->dims[1], UL_FOR_REDUCE)};
    ul_ks_set(kernel, largest,
              ul_kx_binary(kernel, UL_KX_MAX, ul_kx_var(kernel, largest),
                           ul_lower_load(lower, input, index)));
    ul_ks_end(kernel);
    *max = ul_kx_var(kernel, largest);
    uint32_t sum = ul_ks_var(kernel, dtype, ul_kx_float(kernel, dtype, 0));
    ul_kx at = ul_ks_for(kernel, type->dims[1], UL_FOR_REDUCE);
    ul_ks_set(
        kernel, sum,
        ul_kx_add(kernel, ul_kx_var(kernel, sum), class_weight(lower, input, batch, at, *max)));
    ul_ks_end(kernel);
    *total = ul_kx_var(kernel, sum);
}

/* Inverts the distribution function: gives the last class of positive weight whose predecessors
 * together weigh no more than a uniform part of the total. */
void ul_lower_multinomial(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *out = ul_lower_output_type(lower, node, 0);
    int64_t classes = ul_lower_input_type(lower, node, 0)->dims[1];
    ul_kx max;
    ul_kx total;
    ul_kx index[2];
    if (ul_type_elements(out) == 0)
        return;
    index[0] = ul_ks_for(kernel, out->dims[0], UL_FOR_PARALLEL);
    row_totals(lower, node, index[0], &max, &total);
    enum ul_dtype dtype = ul_kx_dtype(kernel, total);
    ul_kx zero = ul_kx_float(kernel, dtype, 0);
    index[1] = ul_ks_for(kernel, out->dims[1], 0);
    ul_kx position = info->input_count > 1 ? keyed_position(lower, info->inputs[1], out, index)
                                           : ul_random_position(kernel, out, index);
    ul_kx unit = ul_random_unit(kernel, dtype, position, 0, ul_random_seed(lower->graph, info));
    ul_kx part = ul_ks_let(kernel, ul_kx_mul(kernel, unit, total));
    uint32_t before = ul_ks_var(kernel, dtype, zero);
    uint32_t chosen = ul_ks_var(kernel, UL_I64, ul_kx_index_const(kernel, 0));
    ul_kx at = ul_ks_for(kernel, classes, 0);
    ul_kx weight = ul_ks_let(kernel, class_weight(lower, info->inputs[0], index[0], at, max));
    ul_kx hit = ul_kx_binary(kernel, UL_KX_AND, ul_kx_binary(kernel, UL_KX_LT, zero, weight),
                             ul_kx_binary(kernel, UL_KX_LE, ul_kx_var(kernel, before), part));
    ul_ks_set(kernel, chosen, ul_kx_select(kernel, hit, at, ul_kx_var(kernel, chosen)));
    ul_ks_set(kernel, before, ul_kx_add(kernel, ul_kx_var(kernel, before), weight));
    ul_ks_end(kernel);
    ul_lower_store(lower, info->outputs[0], index,
                   ul_kx_cast(kernel, ul_compute_dtype(out->dtype), ul_kx_var(kernel, chosen)));
    ul_ks_end(kernel);
    ul_ks_end(kernel);
}
