/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy of scores that come a tile of classes at a time (passes/training/loss_tiles.c).
 *
 * ClassStatistics says of each row of a tile what the loss needs of it: the logarithm of the sum
 * of its exponentials, its largest score and which class has it, and the score of the row's own
 * class, or -infinity where that is in another tile. ClassLoss joins the statistics of all tiles.
 * ClassGradient then forms the gradient of the scores of a tile, with the logarithm of the sum over
 * all classes.
 *
 * Attribute `first` is the class of a tile's first column, `classes` the number of all classes, and
 * `ignore_index` the class of rows that do not count. Among equal scores the first class
 * counts as the largest, as in ArgMax. */
#include "ir/ops/loss/loss.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

#include <math.h>

enum { SCORES, TARGETS, LOG_SUMS, GRADIENT };           /* inputs of tiles */
enum { TILE_LOG_SUMS, LARGEST, BEST, OWN, CLASSES };    /* inputs of ClassLoss */
enum { LOG_SUM, LARGEST_SCORE, BEST_CLASS, OWN_SCORE }; /* outputs of ClassStatistics */
enum { LOSS, CORRECT, ALL_LOG_SUMS };                   /* outputs of ClassLoss */
#define COLUMNS 2u                                      /* dimension 1 of the scores, as a mask */
#define TILES 1u                                        /* dimension 0 of the statistics */

/* ---- Shapes ---- */

/* Checks the scores [rows, columns] of a tile, and the class of each row, [rows], out of all
 * classes. */
static enum ul_status check_tile(struct ul_infer *infer)
{
    const struct ul_type *scores = ul_infer_input(infer, SCORES);
    int64_t first = ul_node_get_int(infer->node, "first", 0);
    int64_t classes = ul_node_get_int(infer->node, "classes", 0);
    UL_TRY(ul_check_dtype(infer, SCORES, UL_CHECK_FLOATS));
    UL_TRY(ul_check_dtype(infer, TARGETS, UL_CHECK_INDEXES));
    UL_TRY(ul_check_rank(infer, SCORES, 2, 2));
    UL_TRY(ul_check_shape(infer, TARGETS, 1, scores->dims));
    if (scores->dims[1] < 1 || first < 0 || first > classes - scores->dims[1])
        return ul_infer_invalid(infer, "columns from class %lld on of %lld classes",
                                (long long)first, (long long)classes);
    return UL_OK;
}

enum ul_status ul_infer_class_statistics(struct ul_infer *infer)
{
    const struct ul_type *scores = ul_infer_input(infer, SCORES);
    UL_TRY(check_tile(infer));
    for (uint32_t i = LOG_SUM; i <= OWN_SCORE; i++)
        ul_infer_set(infer, i, i == BEST_CLASS ? UL_I64 : scores->dtype, 1, scores->dims);
    return UL_OK;
}

enum ul_status ul_infer_class_gradient(struct ul_infer *infer)
{
    const struct ul_type *scores = ul_infer_input(infer, SCORES);
    UL_TRY(check_tile(infer));
    UL_TRY(ul_check_same_dtype(infer, SCORES, LOG_SUMS));
    UL_TRY(ul_check_same_dtype(infer, SCORES, GRADIENT));
    UL_TRY(ul_check_shape(infer, LOG_SUMS, 1, scores->dims));
    UL_TRY(ul_check_rank(infer, GRADIENT, 0, 0));
    return ul_infer_same(infer);
}

/* Takes statistics [tiles, rows] and the classes [rows]. */
enum ul_status ul_infer_class_loss(struct ul_infer *infer)
{
    const struct ul_type *sums = ul_infer_input(infer, TILE_LOG_SUMS);
    UL_TRY(ul_check_dtype(infer, TILE_LOG_SUMS, UL_CHECK_FLOATS));
    UL_TRY(ul_check_rank(infer, TILE_LOG_SUMS, 2, 2));
    UL_TRY(ul_check_dtype(infer, CLASSES, UL_CHECK_INDEXES));
    UL_TRY(ul_check_shape(infer, CLASSES, 1, sums->dims + 1));
    for (uint32_t i = LARGEST; i <= OWN; i++)
        UL_TRY(ul_check_shape(infer, i, 2, sums->dims));
    if (sums->dims[0] < 1)
        return ul_infer_invalid(infer, "there are no tiles");
    ul_infer_set(infer, LOSS, sums->dtype, 0, NULL);
    ul_infer_set(infer, CORRECT, UL_I64, 0, NULL);
    ul_infer_set(infer, ALL_LOG_SUMS, sums->dtype, 1, sums->dims + 1);
    return UL_OK;
}

/* ---- Rows of a tile ---- */

struct tile {
    struct ul_lower *lower;
    const struct ul_node *node;
    const struct ul_type *scores;
    enum ul_dtype dtype;
    int64_t first, classes;
    struct ul_lanes lanes;
    struct ul_lane_var largest;
};

static void tile_init(struct tile *t, struct ul_lower *lower, ul_node_id id)
{
    t->lower = lower;
    t->node = ul_check_node(lower, id);
    t->scores = ul_lower_input_type(lower, id, SCORES);
    t->dtype = ul_compute_dtype(t->scores->dtype);
    t->first = ul_node_get_int(t->node, "first", 0);
    t->classes = ul_node_get_int(t->node, "classes", 0);
}

/* Gives the class of a row, in a variable, and whether the row is ignored; UL_NONE: no row is. */
static ul_kx row_class(struct ul_lower *lower, const struct ul_node *node, ul_value_id targets,
                       ul_kx row, ul_kx *ignored)
{
    struct ul_kernel *k = lower->kernel;
    ul_kx class = ul_kx_cast(k, UL_I64, ul_lower_load(lower, targets, &row));
    *ignored = UL_NONE;
    if (ul_node_find_attr(node, "ignore_index") != NULL) {
        class = ul_ks_let(k, class);
        ul_kx ignore = ul_kx_index_const(k, ul_node_get_int(node, "ignore_index", 0));
        *ignored = ul_ks_let(k, ul_kx_binary(k, UL_KX_EQ, class, ignore));
    }
    return class;
}

static ul_kx load_score(struct ul_lanes *lanes, const void *context)
{
    const struct tile *t = context;
    return ul_lower_load(lanes->lower, t->node->inputs[SCORES], lanes->index);
}

static ul_kx load_exp(struct ul_lanes *lanes, const void *context)
{
    const struct tile *t = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = ul_kx_sub(k, load_score(lanes, context), ul_lanes_get(lanes, t->largest));
    return ul_kx_unary(k, UL_KX_EXP, x);
}

/* The column if it has the largest score, otherwise one past the last. */
static ul_kx load_place(struct ul_lanes *lanes, const void *context)
{
    const struct tile *t = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = load_score(lanes, context);
    ul_kx is_largest = ul_kx_binary(k, UL_KX_EQ, x, ul_lanes_get(lanes, t->largest));
    return ul_kx_select(k, is_largest, lanes->index[1], ul_kx_index_const(k, t->scores->dims[1]));
}

/* The score of the row's own class, or -infinity. Reports an index that is no class. */
static ul_kx own_score(const struct tile *t)
{
    struct ul_kernel *k = t->lower->kernel;
    ul_kx ignored, row = t->lanes.index[0], index[2] = {row, UL_NONE};
    ul_kx class = row_class(t->lower, t->node, t->node->inputs[TARGETS], row, &ignored);
    if (ignored != UL_NONE)
        class = ul_kx_select(k, ignored, ul_kx_index_const(k, 0), class);
    class = ul_ks_let(k, ul_kx_checked_index(k, class, t->classes, false));
    ul_kx column = ul_ks_let(k, ul_kx_sub(k, class, ul_kx_index_const(k, t->first)));
    ul_kx zero = ul_kx_index_const(k, 0), last = ul_kx_index_const(k, t->scores->dims[1] - 1);
    index[1] =
        ul_ks_let(k, ul_kx_binary(k, UL_KX_MIN, ul_kx_binary(k, UL_KX_MAX, column, zero), last));
    ul_kx score = ul_lower_load(t->lower, t->node->inputs[SCORES], index);
    return ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, column, index[1]), score,
                        ul_kx_float(k, t->dtype, -(double)INFINITY));
}

void ul_lower_class_statistics(struct ul_lower *lower, ul_node_id id)
{
    struct ul_kernel *k = lower->kernel;
    struct tile t;
    tile_init(&t, lower, id);
    struct ul_lanes *lanes = &t.lanes;
    ul_kx zero = ul_kx_float(k, t.dtype, 0.0);
    ul_kx lowest = ul_kx_float(k, t.dtype, -(double)INFINITY);
    ul_kx none = ul_kx_index_const(k, t.scores->dims[1]);
    ul_lanes_open(lanes, lower, t.node->inputs[SCORES], ul_lanes_all(2) & ~COLUMNS);
    t.largest = ul_lanes_reduce(lanes, COLUMNS, UL_KX_MAX, lowest, load_score, &t);
    struct ul_lane_var sum = ul_lanes_reduce(lanes, COLUMNS, UL_KX_ADD, zero, load_exp, &t);
    struct ul_lane_var place = ul_lanes_reduce(lanes, COLUMNS, UL_KX_MIN, none, load_place, &t);
    ul_lanes_begin(lanes);
    ul_kx largest = ul_lanes_get(lanes, t.largest), *row = lanes->index;
    ul_kx log_sum = ul_kx_add(k, ul_kx_unary(k, UL_KX_LOG, ul_lanes_get(lanes, sum)), largest);
    /* A tile may have no finite score although the row has one. */
    log_sum = ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, largest, lowest), lowest, log_sum);
    ul_kx best = ul_kx_add(k, ul_lanes_get(lanes, place), ul_kx_index_const(k, t.first));
    ul_lower_store(lower, t.node->outputs[LOG_SUM], row, log_sum);
    ul_lower_store(lower, t.node->outputs[LARGEST_SCORE], row, largest);
    ul_lower_store(lower, t.node->outputs[BEST_CLASS], row, best);
    ul_lower_store(lower, t.node->outputs[OWN_SCORE], row, own_score(&t));
    ul_lanes_end(lanes);
    ul_lanes_close(lanes);
}

/* g (exp(x - log of the sum) - 1 where the column is the row's class), and 0 in ignored rows. */
ul_kx ul_map_class_gradient(struct ul_lower *lower, ul_node_id id, uint32_t output,
                            const ul_kx *index)
{
    struct ul_kernel *k = lower->kernel;
    struct tile t;
    ul_kx ignored, nowhere = ul_kx_index_const(k, 0);
    (void)output;
    tile_init(&t, lower, id);
    ul_kx zero = ul_kx_float(k, t.dtype, 0.0), one = ul_kx_float(k, t.dtype, 1.0);
    ul_kx class = row_class(lower, t.node, t.node->inputs[TARGETS], index[0], &ignored);
    ul_kx g = ul_lower_load(lower, t.node->inputs[GRADIENT], &nowhere);
    if (ignored != UL_NONE)
        g = ul_kx_select(k, ignored, zero, g);
    ul_kx log_sum = ul_lower_load(lower, t.node->inputs[LOG_SUMS], index);
    ul_kx x = ul_lower_load(lower, t.node->inputs[SCORES], index);
    ul_kx own = ul_kx_add(k, index[1], ul_kx_index_const(k, t.first));
    ul_kx taken = ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, own, class), one, zero);
    ul_kx p = ul_kx_unary(k, UL_KX_EXP, ul_kx_sub(k, x, log_sum));
    return ul_kx_mul(k, g, ul_kx_sub(k, p, taken));
}

/* ---- All tiles ---- */

struct joined {
    struct ul_lower *lower;
    const struct ul_node *node;
    struct ul_lanes lanes; /* over the statistics, rows kept */
    struct ul_lane_var log_sum, largest;
};

static ul_kx load_statistic(const struct joined *j, uint32_t input)
{
    return ul_lower_load(j->lower, j->node->inputs[input], j->lanes.index);
}

static ul_kx load_log_sum(struct ul_lanes *lanes, const void *context)
{
    (void)lanes;
    return load_statistic(context, TILE_LOG_SUMS);
}

static ul_kx load_largest(struct ul_lanes *lanes, const void *context)
{
    (void)lanes;
    return load_statistic(context, LARGEST);
}

static ul_kx load_own(struct ul_lanes *lanes, const void *context)
{
    (void)lanes;
    return load_statistic(context, OWN);
}

static ul_kx load_part(struct ul_lanes *lanes, const void *context)
{
    const struct joined *j = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = ul_kx_sub(k, load_log_sum(lanes, context), ul_lanes_get(lanes, j->log_sum));
    return ul_kx_unary(k, UL_KX_EXP, x);
}

/* The class of the tile's largest score if that is the largest of all tiles, otherwise the largest
 * index. */
static ul_kx load_best(struct ul_lanes *lanes, const void *context)
{
    const struct joined *j = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx is_largest =
        ul_kx_binary(k, UL_KX_EQ, load_largest(lanes, context), ul_lanes_get(lanes, j->largest));
    return ul_kx_select(k, is_largest, load_statistic(j, BEST), ul_kx_index_const(k, INT32_MAX));
}

/* Stores the sum of the losses and the number of rows that are right, in the order of the rows. */
static void put_sums(struct ul_lower *lower, const struct ul_node *node, uint32_t losses,
                     uint32_t rights, enum ul_dtype dtype, int64_t rows)
{
    struct ul_kernel *k = lower->kernel;
    ul_kx nowhere = ul_kx_index_const(k, 0);
    uint32_t sum = ul_ks_var(k, dtype, ul_kx_float(k, dtype, 0.0));
    uint32_t count = ul_ks_var(k, UL_I64, ul_kx_index_const(k, 0));
    ul_kx i = ul_ks_for(k, rows, UL_FOR_REDUCE);
    ul_ks_set(k, sum, ul_kx_add(k, ul_kx_var(k, sum), ul_kx_load(k, losses, i)));
    ul_ks_set(k, count, ul_kx_add(k, ul_kx_var(k, count), ul_kx_load(k, rights, i)));
    ul_ks_end(k);
    ul_lower_store(lower, node->outputs[LOSS], &nowhere, ul_kx_var(k, sum));
    ul_lower_store(lower, node->outputs[CORRECT], &nowhere, ul_kx_var(k, count));
}

void ul_lower_class_loss(struct ul_lower *lower, ul_node_id id)
{
    struct ul_kernel *k = lower->kernel;
    struct joined j = {.lower = lower, .node = ul_check_node(lower, id)};
    const struct ul_type *type = ul_lower_input_type(lower, id, TILE_LOG_SUMS);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    uint32_t losses = ul_lower_scratch(lower, dtype, (uint64_t)type->dims[1]);
    uint32_t rights = ul_lower_scratch(lower, UL_I64, (uint64_t)type->dims[1]);
    struct ul_lanes *lanes = &j.lanes;
    ul_kx zero = ul_kx_float(k, dtype, 0.0), lowest = ul_kx_float(k, dtype, -(double)INFINITY);
    ul_kx none = ul_kx_index_const(k, INT32_MAX), ignored;
    ul_lanes_open(lanes, lower, j.node->inputs[TILE_LOG_SUMS], ul_lanes_all(2) & ~TILES);
    j.log_sum = ul_lanes_reduce(lanes, TILES, UL_KX_MAX, lowest, load_log_sum, &j);
    j.largest = ul_lanes_reduce(lanes, TILES, UL_KX_MAX, lowest, load_largest, &j);
    struct ul_lane_var own = ul_lanes_reduce(lanes, TILES, UL_KX_MAX, lowest, load_own, &j);
    struct ul_lane_var best = ul_lanes_reduce(lanes, TILES, UL_KX_MIN, none, load_best, &j);
    struct ul_lane_var sum = ul_lanes_reduce(lanes, TILES, UL_KX_ADD, zero, load_part, &j);
    ul_lanes_begin(lanes);
    ul_kx row = lanes->index[1];
    ul_kx log_sum = ul_ks_let(k, ul_kx_add(k, ul_kx_unary(k, UL_KX_LOG, ul_lanes_get(lanes, sum)),
                                           ul_lanes_get(lanes, j.log_sum)));
    ul_kx class = ul_ks_let(k, row_class(lower, j.node, j.node->inputs[CLASSES], row, &ignored));
    ul_kx loss = ul_kx_sub(k, log_sum, ul_lanes_get(lanes, own));
    ul_kx right = ul_kx_binary(k, UL_KX_EQ, ul_lanes_get(lanes, best), class);
    right = ul_kx_select(k, right, ul_kx_index_const(k, 1), ul_kx_index_const(k, 0));
    if (ignored != UL_NONE) {
        loss = ul_kx_select(k, ignored, zero, loss);
        right = ul_kx_select(k, ignored, ul_kx_index_const(k, 0), right);
    }
    ul_ks_store(k, losses, row, loss);
    ul_ks_store(k, rights, row, right);
    ul_lower_store(lower, j.node->outputs[ALL_LOG_SUMS], &row, log_sum);
    ul_lanes_end(lanes);
    ul_lanes_close(lanes);
    put_sums(lower, j.node, losses, rights, dtype, type->dims[1]);
}
