/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of Attention, from operator set 25 on, become a mask of the keys that each query sees. */
#include "frontend/old_emit.h"
#include "frontend/rows.h"

enum { Q, K, V, MASK, PAST_K, PAST_V, LENGTHS };

struct window {
    int64_t left, right; /* keys before and after the query's own; -1: all */
    int64_t queries, keys, past;
};

static bool read_window(struct ul_old_node *node, struct window *window)
{
    struct ul_type q, k, past = {0};
    *window = (struct window){.left = ul_old_int(node, "left_window_size", -1),
                              .right = ul_old_int(node, "right_window_size", -1)};
    if (window->left < -1 || window->right < -1)
        return ul_old_invalid(node, "a window is of 0 keys or more, or -1 where it has no end");
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

/* [batch, 1, queries, keys], or the last two alone: true where the query sees the key, and where
 * the mask, if there is one, is true. A mask that is shorter than the keys hides those that it does
 * not have. */
static const char seen[] = "at = Reshape(" UL_ROW_RANGE(
    "queries") ", [queries, 1]); "
               "at = lengths && past == 0 ? at + Reshape(lengths, [-1, 1, 1, 1]) - queries : "
               "past > 0 ? at + past : at; before = at - " UL_ROW_RANGE(
                   "keys") "; "
                           "seen = left >= 0 ? LessOrEqual(before, left) : none; "
                           "near = right >= 0 ? GreaterOrEqual(before, -right) : none; "
                           "seen = seen && near ? And(seen, near) : seen ? seen : near; "
                           "missing = mask ? keys - mask.-1 : 0; is_bool = mask && mask.type == "
                           "bool; "
                           "mask = missing > 0 ? Pad(mask, pads, is_bool ? 0:bool : -inf) : mask; "
                           "!mask ? seen : is_bool ? And(seen, mask) : Where(seen, mask, -inf)";

void ul_upgrade_attention_window(struct ul_old_node *node)
{
    struct window window;
    struct ul_type mask = {.rank = 0};
    if (!read_window(node, &window))
        return;
    ul_value_id given = ul_old_input(node, MASK);
    if (given != UL_NONE && !ul_old_shape(node, MASK, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4, &mask))
        return;
    int64_t pads[2 * UL_LIMIT_RANK] = {0};
    if (given != UL_NONE)
        pads[2 * mask.rank - 1] = window.keys - mask.dims[mask.rank - 1];
    ul_value_id made = ul_old_make(
        node,
        UL_WITH({"queries", ul_row_int(window.queries)}, {"keys", ul_row_int(window.keys)},
                {"past", ul_row_int(window.past)}, {"left", ul_row_int(window.left)},
                {"right", ul_row_int(window.right)},
                {"lengths", ul_row_value(ul_old_input(node, LENGTHS))},
                {"mask", ul_row_value(given)}, {"pads", ul_row_ints(2 * mask.rank, pads)}),
        seen);
    if (made != UL_NONE)
        ul_old_set_input(node, MASK, made);
}
