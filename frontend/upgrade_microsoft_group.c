/* SPDX-License-Identifier: Apache-2.0 */
/* GroupQueryAttention and RotaryEmbedding of com.microsoft.
 *
 * Without a past, a prompt, query i sees keys 0 to i, and seqlens_k says no more than which rows of
 * the result are padding. With a past, `seqlens_k + 1` keys count of a cache that holds
 * max(past, total_sequence_length) of them, and the new ones are its last. */
#include "frontend/upgrade_microsoft.h"

#include <math.h>

/* ---- RotaryEmbedding ---- */

/* x turned by the angles of `positions`, int64 [batch, length], in the caches of two inputs. */
static ul_value_id turn(struct ul_old_node *node, ul_value_id x, ul_value_id positions,
                        uint32_t cosine, int64_t heads, int64_t rotated, bool is_interleaved)
{
    ul_value_id inputs[4] = {x, ul_old_input(node, cosine), ul_old_input(node, cosine + 1),
                             positions};
    struct ul_int_attr attrs[3] = {
        {"interleaved", is_interleaved}, {"num_heads", heads}, {"rotary_embedding_dim", rotated}};
    return ul_old_emit(node, "RotaryEmbedding", 4, inputs, 3, attrs);
}

/* first + 0, 1, … in each sequence; `first` is an int64 of one element or [batch, 1], or UL_NONE
 * for 0. */
static ul_value_id count_positions(struct ul_old_node *node, ul_value_id first, int64_t batch,
                                   int64_t length)
{
    const int64_t dims[] = {batch, length};
    ul_value_id at = ul_old_const_range(node, length);
    if (first != UL_NONE)
        at = ul_old_emit_two(node, "Add", at, first);
    return ul_old_emit_two(node, "Expand", at, ul_old_const_ints(node, dims, 2));
}

/* Half of the elements that rotate: what the caches' rows have. */
static bool read_rotated(struct ul_old_node *node, uint32_t cosine, int64_t size, int64_t *rotated)
{
    struct ul_type type;
    if (!ul_old_shape(node, cosine, 1u << 2, &type))
        return false;
    *rotated = 2 * type.dims[1];
    if (*rotated > 0 && (size == 0 || *rotated <= size))
        return true;
    ul_old_invalid(node, "the rows of cos_cache are wider than half a head");
    return false;
}

void ul_microsoft_rotary(struct ul_old_node *node)
{
    struct ul_type x, ids;
    int64_t heads = ul_old_int(node, "num_heads", 0), rotated;
    if (ul_old_int(node, "is_packed_batching", 0) != 0) {
        ul_old_problem(node, "with is_packed_batching is not supported; export the model with "
                             "sequences of one length");
        return;
    }
    if (!ul_old_shape(node, 0, 1u << 3 | 1u << 4, &x) || !read_rotated(node, 2, 0, &rotated) ||
        !ul_old_shape(node, 1, 1u << 0 | 1u << 1 | 1u << 2, &ids))
        return;
    bool is_flat = x.rank == 3;
    if (is_flat && heads <= 0)
        heads = x.dims[2] / rotated;
    if (is_flat && (heads <= 0 || x.dims[2] % heads != 0 || rotated > x.dims[2] / heads)) {
        ul_old_invalid(node, "the heads are no share of the input, or narrower than what the "
                             "caches turn");
        return;
    }
    ul_value_id positions = ul_old_input(node, 1);
    if (ids.rank < 2)
        positions = count_positions(node, positions, x.dims[0], x.dims[is_flat ? 1 : 2]);
    bool is_interleaved = ul_old_int(node, "interleaved", 0) != 0;
    ul_old_set_result(
        node, 0,
        turn(node, node->inputs[0], positions, 2, is_flat ? heads : 0, rotated, is_interleaved));
    node->finished = true;
}

/* ---- GroupQueryAttention ---- */

struct group {
    int64_t batch, length, heads, groups, size;
    int64_t past, total; /* rows of the cache before and after; 0 past is a prompt */
    int64_t window;      /* keys that a query sees, itself among them; 0: all */
    bool is_causal;
    enum ul_dtype dtype;
    ul_value_id q, k, v;
    ul_value_id counts; /* int64 [batch, 1]: keys that count of the cache; UL_NONE for a prompt */
};

static bool check_supported(struct ul_old_node *node)
{
    const char *reason = NULL;
    if (ul_old_int(node, "qk_output", 0) != 0)
        reason = "with qk_output is not supported; export the model without it";
    if (ul_old_has_input(node, 12) || ul_old_has_input(node, 13))
        reason = "with a quantized cache is not supported; export the model with one of floats";
    if (ul_old_has_input(node, 14) || ul_old_has_input(node, 15))
        reason = "with q_norm_weight, which onnxruntime takes on GPUs only, is not supported; "
                 "export the model for the CPU";
    if (ul_old_has_input(node, 16) || ul_old_int(node, "sliding_window_cache", 0) != 0)
        reason = "with query_seqlens or a window cache is not supported; export the model "
                 "without them";
    if (reason != NULL)
        ul_old_problem(node, reason);
    return reason == NULL;
}

/* Input 0 holds all three where 1 and 2 are absent. */
static bool split_packed(struct ul_old_node *node, struct group *of, const struct ul_type *q)
{
    int64_t parts = of->heads + 2 * of->groups;
    of->size = q->dims[2] / parts;
    if (q->dims[2] % parts != 0)
        return false;
    int64_t q_end = of->heads * of->size, k_end = q_end + of->groups * of->size;
    of->q = ul_old_emit_slice(node, node->inputs[0], 2, 0, q_end);
    of->k = ul_old_emit_slice(node, node->inputs[0], 2, q_end, k_end);
    of->v = ul_old_emit_slice(node, node->inputs[0], 2, k_end, q->dims[2]);
    return true;
}

static bool take_parts(struct ul_old_node *node, struct group *of, const struct ul_type *q)
{
    struct ul_type k, v;
    if (!ul_old_has_input(node, 1) && !ul_old_has_input(node, 2))
        return split_packed(node, of, q);
    of->size = q->dims[2] / of->heads;
    if (q->dims[2] % of->heads != 0 || !ul_old_has_input(node, 1) || !ul_old_has_input(node, 2) ||
        !ul_old_shape(node, 1, 1u << 3, &k) || !ul_old_shape(node, 2, 1u << 3, &v))
        return false;
    of->q = node->inputs[0];
    of->k = node->inputs[1];
    of->v = node->inputs[2];
    int64_t width = of->groups * of->size;
    return k.dims[0] == of->batch && k.dims[1] == of->length && k.dims[2] == width &&
           v.dims[0] == of->batch && v.dims[1] == of->length && v.dims[2] == width;
}

/* The number of keys in the caches behind the operator. */
static bool read_total(struct ul_old_node *node, struct group *of)
{
    const struct ul_tensor *tensor = ul_old_tensor(node, ul_old_input(node, 6));
    struct ul_type type;
    of->total = of->past > 0 ? of->past : of->length;
    bool is_integer =
        tensor != NULL && (tensor->type.dtype == UL_I32 || tensor->type.dtype == UL_I64);
    if (is_integer && ul_type_elements(&tensor->type) == 1) {
        int64_t total = ul_tensor_get_int(tensor, 0);
        if (total < of->length || total > UL_LIMIT_DIM || (of->past == 0 && total != of->length)) {
            ul_old_invalid(node, "total_sequence_length is not that of the past and the new keys");
            return false;
        }
        of->total = total > of->total ? total : of->total;
    } else if (of->past > 0) {
        ul_old_problem(node, "with a past needs total_sequence_length as a constant; give it with "
                             "--const, or compile for a prompt, with a past of size 0");
        return false;
    }
    if (!ul_old_shape(node, 5, 1u << 1 | 1u << 2, &type))
        return false;
    if (ul_type_elements(&type) == (uint64_t)of->batch)
        return true;
    ul_old_invalid(node, "seqlens_k must have one number for each sequence of the batch");
    return false;
}

static bool read_caches(struct ul_old_node *node, struct group *of)
{
    struct ul_type k, v;
    bool has = ul_old_has_input(node, 3);
    if (has != ul_old_has_input(node, 4)) {
        ul_old_invalid(node, "past_key and past_value must be given together");
        return false;
    }
    if (has && (!ul_old_shape(node, 3, 1u << 4, &k) || !ul_old_shape(node, 4, 1u << 4, &v)))
        return false;
    if (has && (k.dtype != of->dtype || !ul_type_equal(&k, &v) || k.dims[0] != of->batch ||
                k.dims[1] != of->groups || k.dims[3] != of->size)) {
        ul_old_invalid(node, "the shape of past_key or past_value does not match key and value");
        return false;
    }
    of->past = has ? k.dims[2] : 0;
    return read_total(node, of);
}

static bool read_group(struct ul_old_node *node, struct group *of)
{
    struct ul_type q;
    int64_t window = ul_old_int(node, "local_window_size", -1);
    *of = (struct group){.heads = ul_old_int(node, "num_heads", 0),
                         .groups = ul_old_int(node, "kv_num_heads", 0),
                         .window = window > 0 ? window : 0,
                         .is_causal = ul_old_int(node, "causal", 1) != 0,
                         .counts = UL_NONE};
    if (!check_supported(node) || !ul_old_shape(node, 0, 1u << 3, &q))
        return false;
    of->batch = q.dims[0];
    of->length = q.dims[1];
    of->dtype = q.dtype;
    bool good =
        of->heads > 0 && of->groups > 0 && of->heads <= q.dims[2] && of->heads % of->groups == 0;
    if (!good || !take_parts(node, of, &q))
        ul_old_invalid(node, "the shapes of query, key and value do not go together, or with "
                             "num_heads and kv_num_heads");
    return !node->finished && read_caches(node, of);
}

/* The position of each new token in its sequence, int64 [batch, length]. */
static ul_value_id find_positions(struct ul_old_node *node, const struct group *of)
{
    const int64_t one = 1;
    ul_value_id given = ul_old_input(node, 9);
    if (of->counts == UL_NONE) {
        if (given != UL_NONE) {
            ul_value_id flat = ul_old_emit_reshape(node, given, 1, (int64_t[]){-1});
            given = ul_old_emit_slice(node, flat, 0, 0, one);
        }
        return count_positions(node, given, of->batch, of->length);
    }
    if (given != UL_NONE)
        return given;
    ul_value_id first =
        ul_old_emit_two(node, "Sub", of->counts, ul_old_const_int(node, UL_I64, of->length));
    return count_positions(node, first, of->batch, of->length);
}

static bool turn_parts(struct ul_old_node *node, struct group *of)
{
    int64_t rotated;
    if (ul_old_int(node, "do_rotary", 0) == 0)
        return true;
    if (!ul_old_has_input(node, 7) || !ul_old_has_input(node, 8)) {
        ul_old_invalid(node, "do_rotary needs cos_cache and sin_cache");
        return false;
    }
    if (!read_rotated(node, 7, of->size, &rotated))
        return false;
    bool is_interleaved = ul_old_int(node, "rotary_interleaved", 0) != 0;
    ul_value_id positions = find_positions(node, of);
    of->q = turn(node, of->q, positions, 7, of->heads, rotated, is_interleaved);
    of->k = turn(node, of->k, positions, 7, of->groups, rotated, is_interleaved);
    return true;
}

/* x, [batch, length, groups * size], as [batch, groups, length, size]. */
static ul_value_id split_heads(struct ul_old_node *node, const struct group *of, ul_value_id x,
                               int64_t heads)
{
    const int64_t perm[] = {0, 2, 1, 3};
    const int64_t dims[] = {of->batch, of->length, heads, of->size};
    return ul_old_emit_transpose(node, ul_old_emit_reshape(node, x, 4, dims), 4, perm);
}

/* A cache with the new rows behind those that count. */
static ul_value_id write_cache(struct ul_old_node *node, const struct group *of, uint32_t past,
                               ul_value_id rows)
{
    const int64_t more[] = {of->batch, of->groups, of->total - of->past, of->size};
    const int64_t flat[] = {of->batch};
    ul_value_id cache = node->inputs[past];
    if (of->total > of->past)
        cache = ul_old_emit_concat(node, cache, ul_old_const_zeros(node, of->dtype, 4, more), 2);
    ul_value_id first =
        ul_old_emit_two(node, "Sub", of->counts, ul_old_const_int(node, UL_I64, of->length));
    ul_value_id inputs[3] = {cache, split_heads(node, of, rows, of->groups),
                             ul_old_emit_reshape(node, first, 1, flat)};
    return ul_old_emit(node, "TensorScatter", 3, inputs, 0, NULL);
}

/* What a query sees, beyond what is_causal says: within the window, and of a cache up to itself.
 * As a bool [1 or batch, 1, length, total], or UL_NONE. */
static ul_value_id find_visible(struct ul_old_node *node, const struct group *of)
{
    const int64_t column[] = {1, 1, of->length, 1}, each[] = {of->batch, 1, 1, 1};
    if (of->window == 0 && of->counts == UL_NONE)
        return UL_NONE;
    ul_value_id query = ul_old_emit_reshape(node, ul_old_const_range(node, of->length), 4, column);
    ul_value_id key = ul_old_const_range(node, of->total);
    if (of->counts != UL_NONE) {
        ul_value_id first =
            ul_old_emit_two(node, "Sub", of->counts, ul_old_const_int(node, UL_I64, of->length));
        query = ul_old_emit_two(node, "Add", query, ul_old_emit_reshape(node, first, 4, each));
    }
    ul_value_id visible = ul_old_emit_two(node, "LessOrEqual", key, query);
    if (of->window == 0)
        return visible;
    ul_value_id distance = ul_old_emit_two(node, "Sub", query, key);
    ul_value_id is_near =
        ul_old_emit_two(node, "Less", distance, ul_old_const_int(node, UL_I64, of->window));
    return ul_old_emit_two(node, "And", visible, is_near);
}

/* The mask that is added to the scores, from what is visible and from input 10. */
static ul_value_id find_mask(struct ul_old_node *node, const struct group *of)
{
    ul_value_id visible = of->is_causal ? find_visible(node, of) : UL_NONE;
    ul_value_id bias = ul_old_input(node, 10);
    if (visible == UL_NONE || bias == UL_NONE)
        return bias == UL_NONE ? visible : bias;
    ul_value_id inputs[3] = {visible, bias, ul_old_const_float(node, of->dtype, -INFINITY)};
    return ul_old_emit(node, "Where", 3, inputs, 0, NULL);
}

/* ---- Something in the denominator of the softmax beside the keys ---- */

/* It is a key in front of the others whose value is 0, and whose score is 0 or the head's own
 * number: as a past of one key, every query sees it. */
static bool has_sink(const struct ul_old_node *node)
{
    return ul_old_int(node, "smooth_softmax", 0) == 1 || ul_old_has_input(node, 11);
}

/* A column in front of the mask's others. */
static ul_value_id widen_mask(struct ul_old_node *node, const struct group *of, ul_value_id mask)
{
    struct ul_type type = ul_old_type(node, mask);
    int64_t column[4] = {1, 1, 1, 1}, row[] = {1, of->heads, 1, of->total};
    const int64_t heads[] = {1, of->heads, 1, 1};
    if (mask != UL_NONE) {
        for (uint32_t d = 0; d < 3 && type.rank == 4; d++)
            column[d] = type.dims[d];
        ul_value_id zeros = ul_old_const_zeros(node, of->dtype, 4, column);
        mask = ul_old_emit_concat(node, zeros, mask, 3);
    }
    if (!ul_old_has_input(node, 11))
        return mask;
    ul_value_id sink = ul_old_emit_reshape(node, node->inputs[11], 4, heads);
    sink = ul_old_emit_concat(node, sink, ul_old_const_zeros(node, of->dtype, 4, row), 3);
    return ul_microsoft_add_masks(node, mask, sink);
}

static void add_sink(struct ul_old_node *node, const struct group *of,
                     struct ul_microsoft_attend *attend)
{
    const int64_t one[] = {of->batch, of->groups, 1, of->size};
    ul_value_id mask = attend->mask;
    if (mask != UL_NONE && ul_old_type(node, mask).dtype == UL_BOOL) {
        ul_value_id inputs[3] = {mask, ul_old_const_float(node, of->dtype, 0),
                                 ul_old_const_float(node, of->dtype, -INFINITY)};
        mask = ul_old_emit(node, "Where", 3, inputs, 0, NULL);
    }
    attend->mask = widen_mask(node, of, mask);
    attend->past_k = attend->past_v = ul_old_const_zeros(node, of->dtype, 4, one);
    if (attend->lengths != UL_NONE)
        attend->lengths =
            ul_old_emit_two(node, "Add", attend->lengths, ul_old_const_int(node, UL_I64, 1));
}

static void set_presents(struct ul_old_node *node, const struct group *of,
                         const struct ul_microsoft_attend *attend)
{
    ul_value_id k = attend->present_k, v = attend->present_v;
    if (of->counts != UL_NONE) {
        k = attend->k;
        v = attend->v;
    } else if (has_sink(node)) {
        k = split_heads(node, of, of->k, of->groups);
        v = split_heads(node, of, of->v, of->groups);
    }
    ul_old_set_result(node, 1, k);
    ul_old_set_result(node, 2, v);
}

void ul_microsoft_group_query(struct ul_old_node *node)
{
    const int64_t column[] = {-1, 1}, flat[] = {-1};
    struct group of;
    if (!read_group(node, &of))
        return;
    ul_value_id counts = ul_old_emit_cast(node, ul_old_input(node, 5), UL_I64);
    counts = ul_old_emit_two(node, "Add", counts, ul_old_const_int(node, UL_I64, 1));
    if (of.past > 0)
        of.counts = ul_old_emit_reshape(node, counts, 2, column);
    if (!turn_parts(node, &of))
        return;
    struct ul_microsoft_attend attend = {.q = of.q,
                                         .k = of.k,
                                         .v = of.v,
                                         .batch = of.batch,
                                         .queries = of.length,
                                         .heads = of.heads,
                                         .groups = of.groups,
                                         .value_size = of.size,
                                         .past_k = UL_NONE,
                                         .past_v = UL_NONE,
                                         .lengths = UL_NONE,
                                         .empty_is_zero = true,
                                         .is_causal = of.is_causal && of.past == 0,
                                         .scale = ul_old_float(node, "scale", 0),
                                         .softcap = ul_old_float(node, "softcap", 0)};
    if (of.past > 0) {
        attend.is_split = true;
        attend.q = split_heads(node, &of, of.q, of.heads);
        attend.k = write_cache(node, &of, 3, of.k);
        attend.v = write_cache(node, &of, 4, of.v);
    }
    if (!of.is_causal)
        attend.lengths = ul_old_emit_reshape(node, counts, 1, flat);
    attend.mask = find_mask(node, &of);
    if (has_sink(node))
        add_sink(node, &of, &attend);
    ul_microsoft_attend(node, &attend);
    ul_old_set_result(node, 0, attend.y);
    set_presents(node, &of, &attend);
    node->finished = true;
}
