/* SPDX-License-Identifier: Apache-2.0 */
/* FlexAttention of ai.onnx.preview: attention with graphs that change scores and probabilities.
 * Without them it is Attention. With them it is written out, the graphs in their places, and pass
 * pattern finds what of it needs no matrix of scores: masks, biases, caps. */
#include "frontend/old_emit.h"

#include <math.h>
#include <string.h>

enum { SCORE_MOD, PROB_MOD }; /* in node->graphs */

struct flex {
    struct ul_type q, k, v;
    enum ul_dtype dtype, precision;
    double scale;
};

static bool read_flex(struct ul_old_node *node, struct flex *flex)
{
    for (uint32_t i = 0; i < 3; i++) {
        if (!ul_old_has_input(node, i)) {
            ul_old_invalid(node, "needs queries, keys and values");
            return false;
        }
    }
    if (!ul_old_shape(node, 0, 1u << 4, &flex->q) || !ul_old_shape(node, 1, 1u << 4, &flex->k) ||
        !ul_old_shape(node, 2, 1u << 4, &flex->v))
        return false;
    const int64_t *q = flex->q.dims, *k = flex->k.dims, *v = flex->v.dims;
    if (q[0] != k[0] || k[0] != v[0] || k[1] != v[1] || k[2] != v[2] || q[3] != k[3] || k[1] == 0 ||
        q[1] % k[1] != 0) {
        ul_old_invalid(node, "shapes of queries, keys and values do not belong together");
        return false;
    }
    flex->dtype = flex->q.dtype;
    int64_t precision =
        ul_old_int(node, "softmax_precision", flex->dtype == UL_F64 ? UL_F64 : UL_F32);
    if (precision != UL_F32 && precision != UL_F64 && precision != UL_F16 && precision != UL_BF16) {
        ul_old_invalid(node, "softmax_precision is no type of floats");
        return false;
    }
    flex->precision = (enum ul_dtype)precision;
    flex->scale = ul_old_float(node, "scale", 1 / sqrt((double)(q[3] < 1 ? 1 : q[3])));
    return true;
}

/* Heads of keys or values as often as there are of queries: each for those that follow each other.
 */
static ul_value_id repeat_heads(struct ul_old_node *node, const struct flex *flex, ul_value_id x,
                                const struct ul_type *type)
{
    const int64_t *dims = type->dims;
    const int64_t wide[] = {dims[0], dims[1], flex->q.dims[1] / dims[1], dims[2], dims[3]};
    const int64_t flat[] = {dims[0], flex->q.dims[1], dims[2], dims[3]};
    int64_t axis = 2;
    if (wide[2] == 1)
        return x;
    x = ul_old_emit_two(node, "Unsqueeze", x, ul_old_const_ints(node, &axis, 1));
    x = ul_old_emit_two(node, "Expand", x, ul_old_const_ints(node, wide, 5));
    return ul_old_emit_reshape(node, x, 4, flat);
}

static ul_value_id cast(struct ul_old_node *node, ul_value_id x, enum ul_dtype from,
                        enum ul_dtype to)
{
    return from == to ? x : ul_old_emit_cast(node, x, to);
}

/* What the graph makes of x; x where there is none. */
static enum ul_status apply(struct ul_old_node *node, uint32_t which, ul_value_id *x)
{
    if (node->graphs[which] == NULL)
        return UL_OK;
    ul_value_id made = UL_NONE;
    const struct ul_call call = {
        .input_count = 1, .inputs = x, .output_count = 1, .outputs = &made};
    UL_TRY(ul_build_called(node, node->graphs[which], &call));
    *x = made;
    return UL_OK;
}

static enum ul_status write_out(struct ul_old_node *node, const struct flex *flex)
{
    static const int64_t perm[] = {0, 1, 3, 2};
    struct ul_int_attr axis = {"axis", -1};
    ul_value_id k = repeat_heads(node, flex, node->inputs[1], &flex->k);
    ul_value_id v = repeat_heads(node, flex, node->inputs[2], &flex->v);
    ul_value_id scale = ul_old_const_float(node, flex->dtype, flex->scale);
    ul_value_id q = ul_old_emit_two(node, "Mul", node->inputs[0], scale);
    ul_value_id x = ul_old_emit_two(node, "MatMul", q, ul_old_emit_transpose(node, k, 4, perm));
    x = cast(node, x, flex->dtype, flex->precision);
    UL_TRY(apply(node, SCORE_MOD, &x));
    x = ul_old_emit(node, "Softmax", 1, &x, 1, &axis);
    UL_TRY(apply(node, PROB_MOD, &x));
    v = cast(node, v, flex->dtype, flex->precision);
    x = cast(node, ul_old_emit_two(node, "MatMul", x, v), flex->precision, flex->dtype);
    ul_old_set_result(node, 0, x);
    node->finished = true;
    return UL_OK;
}

void ul_upgrade_flex_attention(struct ul_old_node *node)
{
    struct flex flex;
    if (!read_flex(node, &flex))
        return;
    if (node->graph_count > 0) {
        (void)!write_out(node, &flex); /* the diag says it; ul_upgrade_node returns it */
        return;
    }
    ul_old_become(node, "Attention");
}
