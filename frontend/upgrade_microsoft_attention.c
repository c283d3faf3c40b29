/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and QAttention of com.microsoft, which project their input themselves, and
 * MultiHeadAttention, which is given queries, keys and values in one of several packings. */
#include "frontend/upgrade_microsoft.h"

static const char DECODING[] =
    "with a cache that is written in place is not supported; export the model with past and "
    "present of their own (past_present_share_buffer=0)";

/* ---- Attention ---- */

struct projection {
    int64_t batch, length, heads, past;
    int64_t sizes[3]; /* of all heads together: q, k, v */
    enum ul_dtype dtype;
};

static bool read_sizes(struct ul_old_node *node, struct projection *of, int64_t width)
{
    const struct ul_attr *sizes = ul_old_attr(node, "qkv_hidden_sizes");
    bool given = sizes != NULL && sizes->kind == UL_ATTR_INTS && sizes->count == 3;
    of->heads = ul_old_int(node, "num_heads", 0);
    int64_t sum = 0;
    bool good = of->heads > 0 && (given || width % 3 == 0);
    for (uint32_t i = 0; i < 3; i++) {
        of->sizes[i] = given ? sizes->ints[i] : width / 3;
        good = good && of->sizes[i] > 0 && of->sizes[i] <= width && of->sizes[i] % of->heads == 0;
        sum += good ? of->sizes[i] : 0;
    }
    if (good && sum == width && of->sizes[0] == of->sizes[1])
        return true;
    ul_old_invalid(node, "the sizes of queries, keys and values are no multiples of num_heads, or "
                         "are not together as wide as the weights");
    return false;
}

/* `past` is the index of the input [2, batch, heads, past, size]. */
static bool read_projection(struct ul_old_node *node, struct projection *of, uint32_t past)
{
    struct ul_type x, w, cache;
    if (ul_old_int(node, "past_present_share_buffer", 0) != 0) {
        ul_old_problem(node, DECODING);
        return false;
    }
    if (ul_old_int(node, "do_rotary", 0) != 0) {
        ul_old_problem(node, "with do_rotary, which onnxruntime takes on GPUs only, is not "
                             "supported; export the model without this fusion");
        return false;
    }
    if (!ul_old_shape(node, 0, 1u << 3, &x) || !ul_old_shape(node, 1, 1u << 2, &w))
        return false;
    if (x.dims[2] != w.dims[0]) {
        ul_old_invalid(node, "the weights have not as many rows as the input has elements");
        return false;
    }
    *of = (struct projection){.batch = x.dims[0], .length = x.dims[1]};
    if (!read_sizes(node, of, w.dims[1]))
        return false;
    if (!ul_old_has_input(node, past))
        return true;
    if (!ul_old_shape(node, past, 1u << 5, &cache))
        return false;
    of->past = cache.dims[3];
    return true;
}

static void attend_projected(struct ul_old_node *node, const struct projection *of,
                             ul_value_id projected, ul_value_id mask, uint32_t past)
{
    int64_t at = 0;
    ul_value_id parts[3];
    for (uint32_t i = 0; i < 3; i++) {
        parts[i] = ul_old_emit_slice(node, projected, 2, at, at + of->sizes[i]);
        at += of->sizes[i];
    }
    bool has_past = ul_old_has_input(node, past);
    struct ul_microsoft_attend attend = {
        .q = parts[0],
        .k = parts[1],
        .v = parts[2],
        .mask = mask,
        .lengths = UL_NONE,
        .batch = of->batch,
        .queries = of->length,
        .heads = of->heads,
        .groups = of->heads,
        .past_k = has_past ? ul_old_emit_element(node, node->inputs[past], 0, 0) : UL_NONE,
        .past_v = has_past ? ul_old_emit_element(node, node->inputs[past], 0, 1) : UL_NONE,
        .is_causal = ul_old_int(node, "unidirectional", 0) != 0,
        .scale = ul_old_float(node, "scale", 0)};
    ul_microsoft_attend(node, &attend);
    ul_old_set_result(node, 0, attend.y);
    if (node->output_count > 1) {
        int64_t first = 0;
        ul_value_id axis = ul_old_const_ints(node, &first, 1);
        ul_value_id k = ul_old_emit_two(node, "Unsqueeze", attend.present_k, axis);
        ul_value_id v = ul_old_emit_two(node, "Unsqueeze", attend.present_v, axis);
        ul_old_set_result(node, 1, ul_old_emit_concat(node, k, v, 0));
    }
    node->finished = true;
}

/* The mask of input `index`, if there is one, and what input `bias` adds. */
static bool find_masks(struct ul_old_node *node, const struct projection *of, uint32_t index,
                       ul_value_id bias, ul_value_id *mask)
{
    *mask = UL_NONE;
    if (ul_old_has_input(node, index)) {
        *mask =
            ul_microsoft_mask(node, index, of->dtype, of->batch, of->length, of->past + of->length);
        if (*mask == UL_NONE)
            return false;
    }
    *mask = ul_microsoft_add_masks(node, *mask, bias);
    return true;
}

void ul_microsoft_attention(struct ul_old_node *node)
{
    struct projection of;
    ul_value_id mask;
    if (!read_projection(node, &of, 4))
        return;
    of.dtype = ul_old_dtype(node, 0);
    if (!find_masks(node, &of, 3, ul_old_input(node, 5), &mask))
        return;
    ul_value_id x = ul_old_emit_two(node, "MatMul", node->inputs[0], node->inputs[1]);
    if (ul_old_has_input(node, 2))
        x = ul_old_emit_two(node, "Add", x, node->inputs[2]);
    attend_projected(node, &of, x, mask, 4);
}

void ul_microsoft_quantized_attention(struct ul_old_node *node)
{
    struct projection of;
    ul_value_id mask;
    if (!read_projection(node, &of, 8))
        return;
    of.dtype = UL_F32;
    if (!find_masks(node, &of, 5, UL_NONE, &mask))
        return;
    struct ul_microsoft_product product = {.a = ul_old_input(node, 0),
                                           .b = ul_old_input(node, 1),
                                           .a_scale = ul_old_input(node, 3),
                                           .b_scale = ul_old_input(node, 4),
                                           .a_zero = ul_old_input(node, 6),
                                           .b_zero = ul_old_input(node, 7),
                                           .bias = ul_old_input(node, 2)};
    attend_projected(node, &of, ul_microsoft_multiply(node, &product), mask, 8);
}

/* ---- MultiHeadAttention ---- */

/* Queries, keys and values as they are given: packed ones are [batch, length, heads, parts, size],
 * keys and values of a cross attention may be [batch, heads, length, size], which carry their bias
 * already; else they are [batch, length, heads * size]. */
struct operands {
    ul_value_id parts[3];
    bool is_split[3]; /* [batch, heads, length, size] */
    int64_t sizes[3]; /* of a head */
    int64_t batch, queries, keys, heads, past;
    bool biases_keys;
    enum ul_dtype dtype;
};

/* Part `at` of a packed input, as [batch, heads, length, size]. */
static void take_packed(struct ul_old_node *node, struct operands *of, uint32_t which,
                        uint32_t input, int64_t at, int64_t size)
{
    const int64_t perm[] = {0, 2, 1, 3};
    ul_value_id part = ul_old_emit_element(node, node->inputs[input], 3, at);
    of->parts[which] = ul_old_emit_transpose(node, part, 4, perm);
    of->is_split[which] = true;
    of->sizes[which] = size;
}

static bool take_packed_all(struct ul_old_node *node, struct operands *of,
                            const struct ul_type *type)
{
    if (type->dims[2] != of->heads || type->dims[3] != 3 || ul_old_has_input(node, 1) ||
        ul_old_has_input(node, 2))
        return false;
    of->queries = of->keys = type->dims[1];
    for (uint32_t i = 0; i < 3; i++)
        take_packed(node, of, i, 0, i, type->dims[4]);
    return true;
}

static bool take_flat(struct ul_old_node *node, struct operands *of, uint32_t which,
                      const struct ul_type *type)
{
    of->parts[which] = node->inputs[which];
    of->sizes[which] = type->dims[2] / of->heads;
    return type->dims[2] % of->heads == 0 && type->dims[0] == of->batch;
}

/* Keys and values; false where their shapes fit nothing. */
static bool take_keys(struct ul_old_node *node, struct operands *of, const struct ul_type *k)
{
    struct ul_type v;
    bool is_packed = k->rank == 5;
    of->keys = k->dims[k->rank == 4 ? 2 : 1];
    if (is_packed) {
        take_packed(node, of, 1, 1, 0, k->dims[4]);
        take_packed(node, of, 2, 1, 1, k->dims[4]);
        return !ul_old_has_input(node, 2) && k->dims[2] == of->heads && k->dims[3] == 2 &&
               k->dims[0] == of->batch;
    }
    if (!ul_old_has_input(node, 2) || !ul_old_shape(node, 2, 1u << k->rank, &v))
        return false;
    if (k->rank == 3)
        return take_flat(node, of, 1, k) && take_flat(node, of, 2, &v) && v.dims[1] == of->keys;
    for (uint32_t i = 1; i < 3; i++) {
        of->parts[i] = node->inputs[i];
        of->is_split[i] = true;
    }
    of->sizes[1] = k->dims[3];
    of->sizes[2] = v.dims[3];
    of->biases_keys = false;
    return k->dims[0] == of->batch && v.dims[0] == of->batch && k->dims[1] == of->heads &&
           v.dims[1] == of->heads && v.dims[2] == of->keys;
}

static bool take_operands(struct ul_old_node *node, struct operands *of)
{
    struct ul_type q, k;
    *of = (struct operands){.heads = ul_old_int(node, "num_heads", 0), .biases_keys = true};
    if (!ul_old_shape(node, 0, 1u << 3 | 1u << 5, &q))
        return false;
    of->dtype = q.dtype;
    of->batch = q.dims[0];
    of->queries = q.dims[1];
    bool good = of->heads > 0;
    if (good && q.rank == 5) {
        good = take_packed_all(node, of, &q);
    } else if (good) {
        good = take_flat(node, of, 0, &q) && ul_old_has_input(node, 1);
        if (good && !ul_old_shape(node, 1, 1u << 3 | 1u << 4 | 1u << 5, &k))
            return false;
        good = good && take_keys(node, of, &k);
    }
    if (!good || of->sizes[0] != of->sizes[1])
        ul_old_invalid(node, "the shapes of query, key and value do not go together, or with "
                             "num_heads");
    return !node->finished;
}

/* Adds each part's share of the bias, input 3. */
static void add_bias(struct ul_old_node *node, struct operands *of)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < 3 && ul_old_has_input(node, 3); i++) {
        int64_t width = of->heads * of->sizes[i];
        const int64_t dims[] = {of->heads, 1, of->sizes[i]};
        ul_value_id share = ul_old_emit_slice(node, node->inputs[3], 0, at, at + width);
        at += width;
        if (i > 0 && !of->biases_keys)
            continue;
        if (of->is_split[i])
            share = ul_old_emit_reshape(node, share, 3, dims);
        of->parts[i] = ul_old_emit_two(node, "Add", of->parts[i], share);
    }
}

/* All parts in one of the two layouts: [batch, heads, length, size] as soon as one is. */
static bool same_layout(struct ul_old_node *node, struct operands *of)
{
    const int64_t perm[] = {0, 2, 1, 3};
    bool is_split = of->is_split[0] || of->is_split[1] || of->is_split[2];
    for (uint32_t i = 0; i < 3 && is_split; i++) {
        const int64_t dims[] = {of->batch, i == 0 ? of->queries : of->keys, of->heads,
                                of->sizes[i]};
        if (of->is_split[i])
            continue;
        ul_value_id split = ul_old_emit_reshape(node, of->parts[i], 4, dims);
        of->parts[i] = ul_old_emit_transpose(node, split, 4, perm);
    }
    return is_split;
}

static bool check_bias(struct ul_old_node *node, const struct operands *of)
{
    struct ul_type type;
    if (!ul_old_has_input(node, 3))
        return true;
    if (!ul_old_shape(node, 3, 1u << 1, &type))
        return false;
    if (type.dims[0] == of->heads * (of->sizes[0] + of->sizes[1] + of->sizes[2]))
        return true;
    ul_old_invalid(node, "the bias is not as long as query, key and value are wide together");
    return false;
}

static bool read_past(struct ul_old_node *node, struct operands *of)
{
    struct ul_type past;
    if (ul_old_has_input(node, 8) || ul_old_has_input(node, 9)) {
        ul_old_problem(node, DECODING);
        return false;
    }
    if (!ul_old_has_input(node, 6))
        return true;
    if (!ul_old_shape(node, 6, 1u << 4, &past))
        return false;
    of->past = past.dims[2];
    return true;
}

void ul_microsoft_multi_head(struct ul_old_node *node)
{
    struct operands of;
    ul_value_id mask = UL_NONE;
    if (!take_operands(node, &of) || !check_bias(node, &of) || !read_past(node, &of))
        return;
    if (ul_old_has_input(node, 4)) {
        mask = ul_microsoft_mask(node, 4, of.dtype, of.batch, of.queries, of.past + of.keys);
        if (mask == UL_NONE)
            return;
    }
    add_bias(node, &of);
    bool is_split = same_layout(node, &of);
    struct ul_microsoft_attend attend = {
        .q = of.parts[0],
        .k = of.parts[1],
        .v = of.parts[2],
        .is_split = is_split,
        .batch = of.batch,
        .queries = of.queries,
        .heads = of.heads,
        .groups = of.heads,
        .value_size = of.sizes[2],
        .lengths = UL_NONE,
        .mask = ul_microsoft_add_masks(node, mask, ul_old_input(node, 5)),
        .past_k = ul_old_input(node, 6),
        .past_v = ul_old_input(node, 7),
        .is_causal = ul_old_int(node, "unidirectional", 0) != 0,
        .scale = ul_old_float(node, "scale", 0),
        .has_scores = node->output_count > 3,
        .scores_mode = 2};
    ul_microsoft_attend(node, &attend);
    ul_old_set_result(node, 0, attend.y);
    ul_old_set_result(node, 1, attend.present_k);
    ul_old_set_result(node, 2, attend.present_v);
    if (attend.has_scores)
        ul_old_set_result(node, 3, attend.scores);
    node->finished = true;
}
