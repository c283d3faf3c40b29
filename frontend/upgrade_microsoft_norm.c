/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of com.microsoft that normalise a sum: of a skip connection, or of embeddings. As in
 * onnxruntime the sum has 32 bits, of operands of 16 too: what is normalised is not rounded, and
 * does not overflow. */
#include "frontend/upgrade_microsoft.h"

/* onnxruntime's default epsilon, for all of them */
static const double EPSILON = (double)1e-12f;

/* Sums are formed in f32 where the value has 16 bits. */
static ul_value_id wide(struct ul_old_node *node, ul_value_id value)
{
    bool is_narrow = value != UL_NONE && ul_dtype_is_half(ul_old_type(node, value).dtype);
    return is_narrow ? ul_old_emit_cast(node, value, UL_F32) : value;
}

/* The result in the type of the operands. */
static void set_result(struct ul_old_node *node, uint32_t output, ul_value_id value,
                       enum ul_dtype dtype)
{
    ul_old_set_result(node, output,
                      ul_dtype_is_half(dtype) ? ul_old_emit_cast(node, value, dtype) : value);
}

static ul_value_id normalize(struct ul_old_node *node, const char *op, ul_value_id x,
                             ul_value_id scale, ul_value_id shift)
{
    ul_value_id inputs[3] = {x, wide(node, scale), wide(node, shift)};
    struct ul_int_attr axis = {"axis", -1};
    ul_value_id y = ul_old_emit(node, op, shift == UL_NONE ? 2 : 3, inputs, 1, &axis);
    ul_old_emitted_float(node, y, "epsilon", ul_old_float(node, "epsilon", EPSILON));
    return y;
}

/* Normalises input + skip (+ bias); the sum is the fourth output. The second and third are
 * statistics of training. */
static void skip_norm(struct ul_old_node *node, const char *op, uint32_t scale_count)
{
    ul_value_id bias = ul_old_input(node, 2 + scale_count);
    enum ul_dtype dtype = ul_old_dtype(node, 0);
    ul_value_id sum = ul_old_emit_two(node, "Add", wide(node, ul_old_input(node, 0)),
                                      wide(node, ul_old_input(node, 1)));
    if (bias != UL_NONE)
        sum = ul_old_emit_two(node, "Add", sum, wide(node, bias));
    ul_value_id shift = scale_count == 2 ? ul_old_input(node, 3) : UL_NONE;
    set_result(node, 0, normalize(node, op, sum, ul_old_input(node, 2), shift), dtype);
    set_result(node, 3, sum, dtype);
    node->finished = true;
}

void ul_microsoft_skip_layer_norm(struct ul_old_node *node)
{
    skip_norm(node, "LayerNormalization", 2);
}

void ul_microsoft_skip_rms_norm(struct ul_old_node *node)
{
    skip_norm(node, "RMSNormalization", 1);
}

/* The embeddings of [batch, length] tokens, before they are added. */
struct embeddings {
    ul_value_id words, positions, segments; /* segments: UL_NONE where there are none */
    ul_value_id scale, shift;
};

/* How many tokens there are of a mask that is 1 in front of the padding; 0 without a mask. */
static ul_value_id count_tokens(struct ul_old_node *node, const struct ul_type *ids)
{
    ul_value_id mask = ul_old_input(node, 7);
    if (mask == UL_NONE)
        return ul_old_const_zeros(node, UL_I32, 1, ids->dims);
    int64_t last = 1;
    struct ul_int_attr flat = {"keepdims", 0};
    ul_value_id one = ul_old_const_int(node, ul_old_dtype(node, 7), 1);
    ul_value_id is_one = ul_old_emit_two(node, "Equal", mask, one);
    ul_value_id inputs[2] = {ul_old_emit_cast(node, is_one, UL_I32),
                             ul_old_const_ints(node, &last, 1)};
    return ul_old_emit(node, "ReduceSum", 2, inputs, 1, &flat);
}

static void finish_embed(struct ul_old_node *node, const struct embeddings *of,
                         const struct ul_type *ids)
{
    enum ul_dtype dtype = ul_old_type(node, of->words).dtype;
    ul_value_id sum =
        ul_old_emit_two(node, "Add", wide(node, of->words), wide(node, of->positions));
    if (of->segments != UL_NONE)
        sum = ul_old_emit_two(node, "Add", sum, wide(node, of->segments));
    set_result(node, 0, normalize(node, "LayerNormalization", sum, of->scale, of->shift), dtype);
    if (node->output_count > 1 && node->outputs[1][0] != '\0')
        ul_old_set_result(node, 1, count_tokens(node, ids));
    set_result(node, 2, sum, dtype);
    node->finished = true;
}

/* The rows of a table for positions 0, 1, …, which it must have. */
static ul_value_id first_rows(struct ul_old_node *node, uint32_t table, int64_t count)
{
    struct ul_type type;
    if (!ul_old_shape(node, table, 1u << 2, &type))
        return UL_NONE;
    if (type.dims[0] >= count)
        return ul_old_emit_slice(node, node->inputs[table], 0, 0, count);
    ul_old_invalid(node, "the sequence is longer than the embedding of positions");
    return UL_NONE;
}

static bool has_segments(struct ul_old_node *node, bool *has)
{
    *has = ul_old_has_input(node, 1) && ul_old_has_input(node, 4);
    if (ul_old_has_input(node, 1) == ul_old_has_input(node, 4))
        return true;
    ul_old_invalid(node, "segment_ids and segment_embedding must be given together");
    return false;
}

void ul_microsoft_embed(struct ul_old_node *node)
{
    struct ul_type ids;
    bool segments;
    if (!ul_old_shape(node, 0, 1u << 2, &ids) || !has_segments(node, &segments))
        return;
    struct embeddings of = {
        .segments = UL_NONE, .scale = ul_old_input(node, 5), .shift = ul_old_input(node, 6)};
    of.words = ul_old_emit_two(node, "Gather", ul_old_input(node, 2), ul_old_input(node, 0));
    of.positions =
        ul_old_has_input(node, 8)
            ? ul_old_emit_two(node, "Gather", ul_old_input(node, 3), ul_old_input(node, 8))
            : first_rows(node, 3, ids.dims[1]);
    if (of.positions == UL_NONE)
        return;
    if (segments)
        of.segments = ul_old_emit_two(node, "Gather", ul_old_input(node, 4), ul_old_input(node, 1));
    finish_embed(node, &of, &ids);
}

static ul_value_id dequantize(struct ul_old_node *node, ul_value_id x, uint32_t scale,
                              uint32_t zero)
{
    ul_value_id inputs[3] = {x, ul_old_input(node, scale), ul_old_input(node, zero)};
    return ul_old_emit(node, "DequantizeLinear", inputs[2] == UL_NONE ? 2 : 3, inputs, 0, NULL);
}

/* The rows that are looked up become floats, and not the tables. */
void ul_microsoft_quantized_embed(struct ul_old_node *node)
{
    struct ul_type ids;
    bool segments;
    if (!ul_old_shape(node, 0, 1u << 2, &ids) || !has_segments(node, &segments))
        return;
    struct embeddings of = {.segments = UL_NONE,
                            .scale = dequantize(node, ul_old_input(node, 5), 11, 16),
                            .shift = dequantize(node, ul_old_input(node, 6), 12, 17)};
    ul_value_id words =
        ul_old_emit_two(node, "Gather", ul_old_input(node, 2), ul_old_input(node, 0));
    ul_value_id positions = first_rows(node, 3, ids.dims[1]);
    if (positions == UL_NONE)
        return;
    of.words = dequantize(node, words, 8, 13);
    of.positions = dequantize(node, positions, 9, 14);
    if (segments)
        of.segments = dequantize(
            node, ul_old_emit_two(node, "Gather", ul_old_input(node, 4), ul_old_input(node, 1)), 10,
            15);
    finish_embed(node, &of, &ids);
}
