/* SPDX-License-Identifier: Apache-2.0 */
/* The windows of Attention, from 25 on: a mask of the keys that each query sees. */
#include "frontend/old_emit.h"

#include <math.h>

enum { Q, K, V, MASK, PAST_K, PAST_V, LENGTHS };

struct window {
    int64_t left, right; /* keys before and behind the query's own, -1: all */
    int64_t queries, keys, past;
};

static bool read_window(struct ul_old_node *node, struct window *window)
{
    struct ul_type q, k, past = {0};
    window->left = ul_old_int(node, "left_window_size", -1);
    window->right = ul_old_int(node, "right_window_size", -1);
    if (window->left < -1 || window->right < -1) {
        ul_old_invalid(node, "a window is of 0 keys or more, or -1 where it has no end");
        return false;
    }
    ul_old_remove_attr(node, "left_window_size");
    ul_old_remove_attr(node, "right_window_size");
    if (window->left < 0 && window->right < 0)
        return false;
    if (!ul_old_shape(node, Q, 1u << 3 | 1u << 4, &q) ||
        !ul_old_shape(node, K, 1u << 3 | 1u << 4, &k) ||
        (ul_old_has_input(node, PAST_K) && !ul_old_shape(node, PAST_K, 1u << 4, &past)))
        return false;
    window->queries = q.dims[q.rank - 2];
    window->past = past.dims[2];
    window->keys = k.dims[k.rank - 2] + past.dims[2];
    return true;
}

/* [batch, 1, queries, keys], or the last two alone: true where the query sees the key. */
static ul_value_id make_seen(struct ul_old_node *node, const struct window *window)
{
    const int64_t column[] = {window->queries, 1}, each[] = {-1, 1, 1, 1};
    ul_value_id at =
        ul_old_emit_reshape(node, ul_old_const_range(node, window->queries), 2, column);
    if (ul_old_has_input(node, LENGTHS) && window->past == 0) {
        ul_value_id length = ul_old_emit_reshape(node, node->inputs[LENGTHS], 4, each);
        at = ul_old_emit_two(node, "Add", at, length);
        at = ul_old_emit_two(node, "Sub", at, ul_old_const_int(node, UL_I64, window->queries));
    } else if (window->past > 0) {
        at = ul_old_emit_two(node, "Add", at, ul_old_const_int(node, UL_I64, window->past));
    }
    ul_value_id keys = ul_old_const_range(node, window->keys), seen = UL_NONE;
    ul_value_id before = ul_old_emit_two(node, "Sub", at, keys);
    if (window->left >= 0)
        seen = ul_old_emit_two(node, "LessOrEqual", before,
                               ul_old_const_int(node, UL_I64, window->left));
    if (window->right < 0)
        return seen;
    ul_value_id near = ul_old_emit_two(node, "GreaterOrEqual", before,
                                       ul_old_const_int(node, UL_I64, -window->right));
    return seen == UL_NONE ? near : ul_old_emit_two(node, "And", seen, near);
}

/* A mask that is shorter than the keys hides those that it does not have. */
static ul_value_id as_long_as(struct ul_old_node *node, const struct ul_type *mask, int64_t keys,
                              ul_value_id hidden)
{
    int64_t pads[2 * UL_LIMIT_RANK] = {0};
    int64_t missing = keys - mask->dims[mask->rank - 1];
    if (missing <= 0)
        return node->inputs[MASK];
    pads[2 * mask->rank - 1] = missing;
    ul_value_id inputs[] = {node->inputs[MASK], ul_old_const_ints(node, pads, 2 * mask->rank),
                            hidden};
    return ul_old_emit(node, "Pad", 3, inputs, 0, NULL);
}

void ul_upgrade_attention_window(struct ul_old_node *node)
{
    struct window window;
    struct ul_type mask;
    if (!read_window(node, &window))
        return;
    ul_value_id seen = make_seen(node, &window);
    if (!ul_old_has_input(node, MASK)) {
        ul_old_set_input(node, MASK, seen);
        return;
    }
    if (!ul_old_shape(node, MASK, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4, &mask))
        return;
    bool is_bool = mask.dtype == UL_BOOL;
    ul_value_id hidden = is_bool ? ul_old_const_int(node, UL_BOOL, 0)
                                 : ul_old_const_float(node, mask.dtype, -INFINITY);
    ul_value_id inputs[] = {seen, as_long_as(node, &mask, window.keys, hidden), hidden};
    ul_old_set_input(node, MASK,
                     is_bool ? ul_old_emit_two(node, "And", seen, inputs[1])
                             : ul_old_emit(node, "Where", 3, inputs, 0, NULL));
}
