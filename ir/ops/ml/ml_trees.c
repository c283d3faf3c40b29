/* SPDX-License-Identifier: Apache-2.0 */
/* Trees: a forest walked without branches.
 *
 * Problem: the way through a tree is a chain of loads, each of which waits for the comparison
 * before it, and a branch on it is guessed wrong half of the time. Method: eight trees side by side
 * take a step at a time, as many as the deepest of them asks for, so that eight chains run at once;
 * a comparison is added to the place instead of being branched on, and a leaf stays where it is.
 * What the leaves of a row hold goes to an array and is added up in the order of trees. Rows are
 * apart from each other, and so are groups of eight trees. What it leaves undone: rows do not share
 * the loads of the tables.
 */
#include "ir/ops/ml/ml.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"
#include "ir/trees.h"

#include <math.h>

static const char *const aggregates[] = {"sum", "min", "max", NULL};
enum { SUM, MIN, MAX };

/* ---- The tables ---- */

struct tables {
    const struct ul_tensor *words, *depths, *limits;
    int64_t rows, features, trees, weight_rows; /* weight_rows 0: leaves hold their weights */
    uint32_t shift;                             /* of the distance, in a word */
};

/* The number of branches on the longest way from each row on; NULL where a row leads out of the
 * tables. */
static int64_t *measure(const struct tables *t, struct ul_arena *scratch)
{
    int64_t *heights = UL_NEW_ARRAY(scratch, int64_t, (uint64_t)t->rows);
    for (int64_t at = t->rows - 1; at >= 0; at--) {
        uint64_t word = (uint64_t)ul_tensor_get_int(t->words, (uint64_t)at);
        uint64_t feature =
            (word >> UL_TREE_FLAG_BITS) & (((uint64_t)1 << (t->shift - UL_TREE_FLAG_BITS)) - 1);
        uint64_t distance = word >> t->shift;
        if ((word & UL_TREE_BRANCHES) == 0 && word != 0)
            return NULL;
        if (word == 0)
            continue;
        if (feature >= (uint64_t)t->features || distance == 0 ||
            distance + 1 >= (uint64_t)(t->rows - at))
            return NULL;
        const int64_t *children = heights + at + distance;
        heights[at] = 1 + (children[0] > children[1] ? children[0] : children[1]);
    }
    return heights;
}

/* Whether leaves name only rows of weights that exist. */
static bool has_weights(const struct tables *t)
{
    uint64_t size = ul_dtype_get(t->limits->type.dtype)->size_bytes;
    for (int64_t at = 0; at < t->rows && t->weight_rows > 0; at++) {
        uint64_t place = 0;
        if (ul_tensor_get_int(t->words, (uint64_t)at) != 0)
            continue;
        ul_tensor_read(t->limits, (uint64_t)at, 1, (unsigned char *)&place);
        UL_ASSERT(size <= sizeof place);
        if (place >= (uint64_t)t->weight_rows)
            return false;
    }
    return true;
}

static bool is_deep_enough(const struct tables *t, const int64_t *heights, int64_t deepest)
{
    for (int64_t tree = 0; tree < t->trees; tree++) {
        int64_t depth = ul_tensor_get_int(t->depths, (uint64_t)(tree / UL_TREE_LANES));
        if (depth < heights[tree] || depth > deepest)
            return false;
    }
    return true;
}

static enum ul_status check_types(const struct ul_infer *infer)
{
    UL_TRY(ul_check_dtype(infer, UL_TREES_X, UL_CHECK_BIT(UL_F32) | UL_CHECK_BIT(UL_F64)));
    UL_TRY(ul_check_same_dtype(infer, UL_TREES_X, UL_TREES_LIMITS));
    UL_TRY(ul_check_same_dtype(infer, UL_TREES_X, UL_TREES_WEIGHTS));
    UL_TRY(ul_check_dtype(infer, UL_TREES_WORDS, UL_CHECK_BIT(UL_U32) | UL_CHECK_BIT(UL_U64)));
    UL_TRY(ul_check_dtype(infer, UL_TREES_DEPTHS, UL_CHECK_BIT(UL_I32)));
    UL_TRY(ul_check_rank(infer, UL_TREES_X, 2, 2));
    UL_TRY(ul_check_rank(infer, UL_TREES_WORDS, 1, 1));
    UL_TRY(ul_check_shape(infer, UL_TREES_LIMITS, 1, ul_infer_input(infer, UL_TREES_WORDS)->dims));
    for (uint32_t i = UL_TREES_WORDS; i <= UL_TREES_WEIGHTS; i++)
        if (ul_infer_input(infer, i) != NULL)
            UL_TRY(ul_require_constant(infer, i));
    return UL_OK;
}

enum ul_status ul_infer_trees(struct ul_infer *infer)
{
    const struct ul_node *node = infer->node;
    int64_t targets = ul_node_get_int(node, "targets", 0),
            trees = ul_node_get_int(node, "trees", 0);
    int64_t feature_bits = ul_node_get_int(node, "feature_bits", 0);
    uint32_t aggregate;
    UL_TRY(check_types(infer));
    UL_TRY(ul_require_choice(infer, "aggregate", aggregates, &aggregate));
    const struct ul_type *x = ul_infer_input(infer, UL_TREES_X);
    const struct ul_type *weights = ul_infer_input(infer, UL_TREES_WEIGHTS);
    struct tables t = {.words = ul_infer_tensor(infer, UL_TREES_WORDS),
                       .limits = ul_infer_tensor(infer, UL_TREES_LIMITS),
                       .depths = ul_infer_tensor(infer, UL_TREES_DEPTHS),
                       .features = x->dims[1],
                       .trees = trees};
    t.rows = t.words->type.dims[0];
    UL_TRY(ul_check_range(infer, "trees", trees, 1, t.rows < INT32_MAX ? t.rows : INT32_MAX));
    UL_TRY(ul_check_range(infer, "targets", targets, 1, INT32_MAX));
    UL_TRY(
        ul_check_range(infer, "feature_bits", feature_bits, 1,
                       (int64_t)ul_dtype_get(t.words->type.dtype)->bits - UL_TREE_FLAG_BITS - 1));
    UL_TRY(ul_check_shape(infer, UL_TREES_DEPTHS, 1,
                          (int64_t[]){(trees + UL_TREE_LANES - 1) / UL_TREE_LANES}));
    if (weights == NULL ? trees % targets != 0
                        : weights->rank != 2 || weights->dims[0] < 1 || weights->dims[1] != targets)
        return ul_infer_invalid(infer, "its trees or its weights do not fit its targets");
    t.weight_rows = weights == NULL ? 0 : weights->dims[0];
    t.shift = (uint32_t)feature_bits + UL_TREE_FLAG_BITS;
    const int64_t *heights = measure(&t, infer->scratch);
    if (heights == NULL || !has_weights(&t) ||
        !is_deep_enough(&t, heights, ul_node_get_int(node, "depth", 0)))
        return ul_infer_invalid(infer, "its tables lead out of themselves");
    ul_infer_set(infer, 0, x->dtype, 2, (int64_t[]){x->dims[0], targets});
    return UL_OK;
}

/* ---- The walk ---- */

struct walk {
    struct ul_lower *lower;
    struct ul_kernel *k;
    const struct ul_node *node;
    enum ul_dtype word, dtype;
    int64_t trees, targets, depth, lanes;
    uint32_t shift, flags; /* flags of any row */
    bool has_weights;
    ul_kx row;
    uint32_t at;    /* array: the rows of the tables at which the lanes are */
    uint32_t found; /* array: of each tree, what its leaf holds */
};

static ul_kx load_one(const struct walk *w, uint32_t input, ul_kx at)
{
    ul_kx index = ul_kx_cast(w->k, UL_I64, at);
    return ul_lower_load(w->lower, w->node->inputs[input], &index);
}

static ul_kx word_op(const struct walk *w, enum ul_kx_op op, ul_kx word, uint64_t number)
{
    return ul_kx_binary(w->k, op, word, ul_kx_int(w->k, w->word, (int64_t)number));
}

static ul_kx as_word(const struct walk *w, ul_kx condition)
{
    return ul_kx_cast(w->k, w->word, condition);
}

/* Bit 0: whether a branch with these numbers takes its second child. */
static ul_kx take_second(const struct walk *w, ul_kx word, ul_kx x, ul_kx limit)
{
    struct ul_kernel *k = w->k;
    ul_kx taken = as_word(w, ul_kx_binary(k, UL_KX_LE, x, limit));
    if ((w->flags & UL_TREE_EQUAL) != 0) {
        ul_kx equal = as_word(w, ul_kx_binary(k, UL_KX_EQ, x, limit));
        ul_kx wanted = word_op(w, UL_KX_SHR, word, 2);
        ul_kx other = ul_kx_binary(k, UL_KX_AND, ul_kx_binary(k, UL_KX_XOR, taken, equal), wanted);
        taken = ul_kx_binary(k, UL_KX_XOR, taken, other);
    }
    if ((w->flags & UL_TREE_MISSING) != 0) {
        ul_kx missing = as_word(w, ul_kx_unary(k, UL_KX_ISNAN, x));
        missing = ul_kx_binary(k, UL_KX_AND, missing, word_op(w, UL_KX_SHR, word, 1));
        taken = ul_kx_binary(k, UL_KX_OR, taken, missing);
    }
    return ul_kx_binary(k, UL_KX_AND, taken, word);
}

static void step(const struct walk *w, ul_kx lane)
{
    struct ul_kernel *k = w->k;
    uint64_t mask = ((uint64_t)1 << (w->shift - UL_TREE_FLAG_BITS)) - 1;
    ul_kx at = ul_ks_name(k, ul_kx_load(k, w->at, lane));
    ul_kx word = ul_ks_name(k, load_one(w, UL_TREES_WORDS, at));
    ul_kx feature = word_op(w, UL_KX_AND, word_op(w, UL_KX_SHR, word, UL_TREE_FLAG_BITS), mask);
    ul_kx place[2] = {w->row, ul_kx_cast(k, UL_I64, feature)};
    ul_kx x = ul_ks_name(k, ul_lower_load(w->lower, w->node->inputs[UL_TREES_X], place));
    ul_kx taken = take_second(w, word, x, load_one(w, UL_TREES_LIMITS, at));
    ul_kx moved = ul_kx_binary(k, UL_KX_ADD, word_op(w, UL_KX_SHR, word, w->shift), taken);
    ul_ks_store(k, w->at, lane, ul_kx_binary(k, UL_KX_ADD, at, ul_kx_cast(k, UL_U32, moved)));
}

/* What the leaf that a lane is at holds. */
static ul_kx leaf_content(const struct walk *w, ul_kx lane)
{
    struct ul_kernel *k = w->k;
    ul_kx content = load_one(w, UL_TREES_LIMITS, ul_ks_name(k, ul_kx_load(k, w->at, lane)));
    if (!w->has_weights)
        return content;
    return ul_kx_cast(k, UL_U32, ul_kx_bitcast(k, w->dtype == UL_F64 ? UL_U64 : UL_U32, content));
}

/* Walks trees lanes * group to lanes * group + lanes - 1; where there are no more, the last ones
 * again. */
static void walk_group(const struct walk *w)
{
    struct ul_kernel *k = w->k;
    ul_kx group = ul_ks_for(k, (w->trees + w->lanes - 1) / w->lanes, UL_FOR_PARALLEL);
    ul_kx first = ul_kx_muli(k, group, w->lanes);
    ul_kx lane = ul_ks_for(k, w->lanes, UL_FOR_PARALLEL);
    ul_kx tree = ul_kx_clamp(k, ul_kx_add(k, first, lane), w->trees - 1);
    ul_ks_store(k, w->at, lane, ul_kx_cast(k, UL_U32, tree));
    ul_ks_end(k);
    ul_ks_for_expr(k, ul_kx_cast(k, UL_I64, load_one(w, UL_TREES_DEPTHS, group)), w->depth, 0);
    lane = ul_ks_for(k, w->lanes, UL_FOR_PARALLEL);
    step(w, lane);
    ul_ks_end(k);
    ul_ks_end(k);
    lane = ul_ks_for(k, w->lanes, UL_FOR_PARALLEL);
    ul_ks_store(k, w->found, ul_kx_add(k, first, lane), leaf_content(w, lane));
    ul_ks_end(k);
    ul_ks_end(k);
}

/* Combines what the leaves of a target's trees hold. */
static void add_up(const struct walk *w, uint32_t aggregate)
{
    static const enum ul_kx_op ops[] = {UL_KX_ADD, UL_KX_MIN, UL_KX_MAX};
    struct ul_kernel *k = w->k;
    const double none[] = {0, (double)INFINITY, -(double)INFINITY};
    ul_kx target = ul_ks_for(k, w->targets, UL_FOR_PARALLEL);
    uint32_t total = ul_ks_var(k, w->dtype, ul_kx_float(k, w->dtype, none[aggregate]));
    int64_t count = w->has_weights ? w->trees : w->trees / w->targets;
    ul_kx tree = ul_ks_for(k, count, UL_FOR_REDUCE);
    ul_kx place = w->has_weights ? tree : ul_kx_add(k, ul_kx_muli(k, target, count), tree);
    ul_kx weight = ul_kx_load(k, w->found, place);
    if (w->has_weights) {
        ul_kx index[2] = {ul_kx_cast(k, UL_I64, weight), target};
        weight = ul_lower_load(w->lower, w->node->inputs[UL_TREES_WEIGHTS], index);
    }
    ul_ks_set(k, total, ul_kx_binary(k, ops[aggregate], ul_kx_var(k, total), weight));
    ul_ks_end(k);
    ul_kx sum = ul_kx_var(k, total), zero = ul_kx_float(k, w->dtype, 0);
    if (aggregate != SUM)
        sum = ul_kx_select(k, ul_kx_unary(k, UL_KX_ISINF, sum), zero, sum);
    ul_kx index[2] = {w->row, target};
    ul_lower_store(w->lower, w->node->outputs[0], index, sum);
    ul_ks_end(k);
}

void ul_lower_trees(struct ul_lower *lower, ul_node_id id)
{
    const struct ul_node *node = &lower->graph->nodes[id];
    const struct ul_type *x = ul_lower_input_type(lower, id, UL_TREES_X);
    struct walk w = {.lower = lower, .k = lower->kernel, .node = node, .dtype = x->dtype};
    w.word = ul_lower_input_type(lower, id, UL_TREES_WORDS)->dtype;
    w.trees = ul_node_get_int(node, "trees", 0);
    w.targets = ul_node_get_int(node, "targets", 0);
    w.depth = ul_node_get_int(node, "depth", 0);
    w.lanes = w.trees < UL_TREE_LANES ? w.trees : UL_TREE_LANES;
    w.shift = (uint32_t)ul_node_get_int(node, "feature_bits", 0) + UL_TREE_FLAG_BITS;
    w.flags = (uint32_t)ul_node_get_int(node, "flags", 0);
    w.has_weights = ul_lower_has_input(lower, id, UL_TREES_WEIGHTS);
    uint64_t room = (uint64_t)((w.trees + w.lanes - 1) / w.lanes * w.lanes);
    w.at = ul_lower_local(lower, UL_U32, (uint64_t)w.lanes);
    w.found = ul_lower_scratch(lower, w.has_weights ? UL_U32 : w.dtype, room);
    ul_lower_open(lower, 1, x->dims, &w.row);
    walk_group(&w);
    add_up(&w, ul_node_choice(node, "aggregate", aggregates));
    ul_lower_close(lower, 1);
}
