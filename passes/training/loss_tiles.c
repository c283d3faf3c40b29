/* SPDX-License-Identifier: Apache-2.0 */
/* The loss over a vocabulary in tiles of classes.
 *
 * Problem: in pieces of rows (loss_pieces.c) each piece reads all weights twice, and adds to all of
 * their gradient. A vocabulary has some ten thousand classes of some thousand numbers, so that
 * these passes over memory take longer than the products of a device with tensor cores. Method:
 * classes are cut into tiles. A first walk over the tiles forms the logarithm of each row's sum of
 * exponentials, a second one forms the logits again, and their gradient:
 *
 *      y_t = x w_t    statistics of y_t                                           for each tile
 *      loss, logarithms of sums = all statistics
 *      y_t = x w_t    dy_t = exp(y_t - logarithms) - own    dx += dy_t w_t^T    dw_t = x^T dy_t
 *
 * Each tile's weights are rounded to 16 bits in each walk, so that no copy of all of them has to
 * lie in memory. `dx` is a sum over tiles, and stays f32. Tiles have a multiple of 64 classes,
 * since libraries are slow where rows begin at odd addresses, as those of 50,257 classes do.
 *
 * Tiles are taken in 16 bits, where the copy of all weights would be larger than what tiles need
 * beside pieces, and where the products that are formed twice take less time than the passes over
 * memory that are saved. Left undone: weights of classes, label smoothing; f32 and TF32. */
#include "ir/op_names.h"
#include "passes/training/loss_internal.h"

#include "ir/gradient.h"
#include "ir/op.h"

/* Logits of a tile in 16 bits. Tests build a compiler with small tiles. */
#ifndef UL_LOSS_TILE_BYTES
#define UL_LOSS_TILE_BYTES (40 << 20)
#endif

enum {
    TILE_BYTES = UL_LOSS_TILE_BYTES,
    PIECE_LOGITS = TILE_BYTES / 5, /* 32 MiB of f32, as loss_pieces.c cuts */
    CLASS_STEP = 64,               /* classes of a tile: a multiple */
    HALF_BYTES = 2,                /* of a number in 16 bits */
    STATISTICS = 4                 /* of a tile's rows */
};

struct tiles {
    struct ul_loss_job *loss;
    struct ul_gradient *make;
    struct ul_loss_product product;
    ul_value_id targets;
    int64_t rows, depth, classes;
    int64_t *sizes; /* classes of each tile */
    uint32_t count;
    ul_value_id stored; /* the weights as they lie: [depth, classes], or [classes, depth] */
    bool is_turned;     /* the latter */
    const ul_value_id *w, *bias;         /* per tile; bias NULL: there is none */
    ul_value_id *statistics[STATISTICS]; /* per tile */
    ul_value_id *dw, *dbias;             /* per tile */
    ul_value_id dx;
    ul_value_id scale; /* of gradients: 1 over the weight of all labels, and the loss scale */
    ul_value_id sum, correct, log_sums;
};

/* ---- Sizes ---- */

/* Cuts the classes into tiles of about equal size. */
static void cut_classes(struct tiles *t, struct ul_arena *arena)
{
    int64_t most = TILE_BYTES / HALF_BYTES / t->rows / CLASS_STEP * CLASS_STEP;
    most = most < CLASS_STEP ? CLASS_STEP : most;
    int64_t count = (t->classes + most - 1) / most;
    int64_t size = (t->classes + count - 1) / count;
    size = (size + CLASS_STEP - 1) / CLASS_STEP * CLASS_STEP;
    t->count = (uint32_t)((t->classes + size - 1) / size);
    t->sizes = UL_NEW_ARRAY(arena, int64_t, t->count);
    for (uint32_t i = 0; i < t->count; i++)
        t->sizes[i] = i + 1 < t->count ? size : t->classes - size * (t->count - 1);
    UL_ASSERT(size <= most && t->sizes[t->count - 1] > 0);
}

/* Whether tiles need fewer bytes than pieces do. Tiles need the logits and the weights of one, and
 * `dx` in f32 and not in 16 bits; pieces need the logits of one, and a copy of all weights. */
static bool saves_bytes(const struct tiles *t)
{
    int64_t tile =
        TILE_BYTES + t->depth * t->sizes[0] * HALF_BYTES + t->rows * t->depth * HALF_BYTES;
    return tile < PIECE_LOGITS * HALF_BYTES + t->depth * t->classes * HALF_BYTES;
}

/* Whether the products of the second walk take less time than the passes that are saved. Each piece
 * but the first reads all weights twice in 16 bits, and reads and writes all of their gradient in
 * f32. Each tile reads the rows three times, and reads and writes `dx`. Logits are written and read
 * once more. */
static bool saves_time(const struct tiles *t, int64_t piece_count)
{
    const int64_t products_a_byte = t->loss->pass->traits->products_a_byte;
    enum { PIECE_BYTES_A_WEIGHT = 12, TILE_BYTES_A_NUMBER = 14 };
    double weights = (double)(t->depth * t->classes), numbers = (double)(t->rows * t->depth);
    double saved = (double)(piece_count - 1) * weights * PIECE_BYTES_A_WEIGHT;
    double moved = (double)t->count * numbers * TILE_BYTES_A_NUMBER +
                   2.0 * HALF_BYTES * (double)(t->rows * t->classes);
    return (double)t->rows * weights / (double)products_a_byte + moved < saved;
}

/* Whether the target has tiles for these options. */
static bool has_tiles(const struct ul_loss_job *loss)
{
    return loss->pass->traits->products_a_byte > 0 &&
           ul_dtype_is_half(loss->pass->options->precision) && loss->training->label_smoothing == 0;
}

/* Cuts the classes; false where tiles are not worth it. */
static bool choose_tiles(struct tiles *t)
{
    int64_t piece_count = (t->rows * t->classes + PIECE_LOGITS - 1) / PIECE_LOGITS;
    if (piece_count < 2)
        return false;
    cut_classes(t, t->loss->pass->scratch);
    return saves_bytes(t) && saves_time(t, piece_count);
}

/* ---- Nodes ---- */

/* The product of rows with a tile's weights, as they lie or turned. Both read one value, so that
 * one copy in 16 bits serves them. */
static ul_node_id begin_product(struct tiles *t, ul_value_id rows, uint32_t tile, bool turns)
{
    const ul_value_id inputs[2] = {rows, t->w[tile]};
    ul_node_id node =
        ul_build_node(&t->make->build, turns ? UL_OP_Gemm : UL_OP_MatMul, inputs, 2, 1);
    if (turns)
        ul_node_set_int(t->make->graph, node, "transB", 1);
    return node;
}

/* The logits of a tile. Those of the second walk are products of their own. */
static ul_value_id add_logits(struct tiles *t, uint32_t tile, bool is_again)
{
    ul_node_id node = begin_product(t, t->product.x, tile, t->is_turned);
    if (is_again)
        ul_node_set_int(t->make->graph, node, "ul_again", 1);
    ul_value_id y = ul_build_infer(&t->make->build, node);
    return t->bias == NULL ? y : ul_build_binary(&t->make->build, UL_OP_Add, y, t->bias[tile]);
}

static ul_node_id begin_of_classes(struct tiles *t, ul_op_id op, const ul_value_id *inputs,
                                   uint32_t input_count, uint32_t output_count)
{
    ul_node_id node = ul_build_node(&t->make->build, op, inputs, input_count, output_count);
    ul_node_set_int(t->make->graph, node, "ignore_index", t->loss->training->ignore_index);
    return node;
}

static void set_tile(struct tiles *t, ul_node_id node, uint32_t tile)
{
    ul_node_set_int(t->make->graph, node, "first", t->sizes[0] * tile);
    ul_node_set_int(t->make->graph, node, "classes", t->classes);
}

static void add_statistics(struct tiles *t, uint32_t tile)
{
    const ul_value_id inputs[2] = {add_logits(t, tile, false), t->targets};
    ul_node_id node = begin_of_classes(t, UL_OP_ClassStatistics, inputs, 2, STATISTICS);
    set_tile(t, node, tile);
    (void)ul_build_infer(&t->make->build, node);
    for (uint32_t i = 0; i < STATISTICS; i++)
        t->statistics[i][tile] = t->make->graph->nodes[node].outputs[i];
}

/* Joins the statistics of all tiles. */
static void add_loss(struct tiles *t)
{
    struct ul_gradient *make = t->make;
    const int64_t dims[2] = {t->count, t->rows};
    UL_ASSERT(ul_gradient_type(make, t->statistics[0][0]).dims[0] == t->rows);
    ul_value_id inputs[STATISTICS + 1];
    for (uint32_t i = 0; i < STATISTICS; i++)
        inputs[i] = ul_build_reshape(
            &make->build, ul_build_concat(&make->build, t->statistics[i], t->count, 0, NULL), 2,
            dims);
    inputs[STATISTICS] = t->targets;
    ul_node_id node = begin_of_classes(t, UL_OP_ClassLoss, inputs, STATISTICS + 1, 3);
    t->sum = ul_build_infer(&make->build, node);
    const ul_value_id *outputs = make->graph->nodes[node].outputs;
    t->correct = outputs[1];
    t->log_sums = outputs[2];
}

static void add_gradients(struct tiles *t, uint32_t tile)
{
    struct ul_gradient *make = t->make;
    const ul_value_id inputs[4] = {add_logits(t, tile, true), t->targets, t->log_sums, t->scale};
    ul_node_id node = begin_of_classes(t, UL_OP_ClassGradient, inputs, 4, 1);
    set_tile(t, node, tile);
    ul_value_id dy = ul_build_infer(&make->build, node), x = t->product.x;
    t->dw[tile] =
        t->is_turned
            ? ul_build_binary(&make->build, UL_OP_MatMul, ul_build_swap(&make->build, dy), x)
            : ul_build_binary(&make->build, UL_OP_MatMul, ul_build_swap(&make->build, x), dy);
    if (t->bias != NULL) {
        const struct ul_type type = ul_gradient_type(make, t->bias[tile]);
        t->dbias[tile] =
            ul_build_reshape_to(&make->build, ul_build_sum(&make->build, dy, 1), &type);
    }
    ul_value_id dx = ul_build_infer(&make->build, begin_product(t, dy, tile, !t->is_turned));
    make->graph->values[dx].flags |= UL_VALUE_WIDE;
    t->dx = tile == 0 ? dx : ul_build_binary(&make->build, UL_OP_Add, t->dx, dx);
    make->graph->values[t->dx].flags |= UL_VALUE_WIDE;
}

/* Finds out how the weights lie in memory. */
static void find_stored(struct tiles *t)
{
    const struct ul_graph *graph = t->make->graph;
    const struct ul_value *w = &graph->values[t->product.w];
    t->stored = t->product.w;
    t->is_turned = false;
    if (w->kind != UL_VALUE_NODE || graph->nodes[w->producer].op != UL_OP_Transpose)
        return;
    const struct ul_node *turn = &graph->nodes[w->producer];
    const struct ul_attr *perm = ul_node_find_attr(turn, "perm");
    t->is_turned = perm == NULL || perm->ints[0] == 1;
    if (t->is_turned)
        t->stored = turn->inputs[0];
}

static void cut_weights(struct tiles *t)
{
    struct ul_gradient *make = t->make;
    UL_ASSERT(t->count == 1 || t->sizes[0] % CLASS_STEP == 0);
    find_stored(t);
    t->w = ul_loss_cut(make, t->stored, t->is_turned ? 0 : 1, t->sizes, t->count);
    if (t->product.bias != UL_NONE)
        t->bias = ul_loss_cut(make, t->product.bias, 0, t->sizes, t->count);
    for (uint32_t i = 0; i < STATISTICS; i++)
        t->statistics[i] = UL_NEW_ARRAY(make->scratch, ul_value_id, t->count);
    t->dw = UL_NEW_ARRAY(make->scratch, ul_value_id, t->count);
    t->dbias = UL_NEW_ARRAY(make->scratch, ul_value_id, t->count);
}

/* The loss with its gradients by rows, weights and bias. */
static ul_value_id add_result(struct tiles *t, ul_value_id value)
{
    struct ul_gradient *make = t->make;
    ul_value_id dw = ul_build_concat(&make->build, t->dw, t->count, t->is_turned ? 0 : 1, NULL);
    UL_ASSERT(ul_gradient_type(make, dw).dims[t->is_turned ? 0 : 1] == t->classes);
    if (t->is_turned)
        dw = ul_build_swap(&make->build, dw);
    ul_value_id inputs[7] = {value, t->product.x, t->dx, t->product.w, dw, t->product.bias};
    if (t->bias != NULL)
        inputs[6] = ul_build_concat(&make->build, t->dbias, t->count, 0, NULL);
    return ul_build_value(&make->build, UL_OP_WithGradients, inputs, t->bias == NULL ? 5 : 7, NULL);
}

bool ul_loss_add_tiles(struct ul_loss_job *loss, ul_value_id logits, ul_value_id targets)
{
    const struct ul_graph *graph = loss->graph;
    struct ul_gradient *make = &loss->make;
    const struct ul_type type = graph->values[logits].type;
    struct tiles t = {.loss = loss, .make = make, .targets = targets};
    const uint32_t *uses = ul_graph_count_uses(graph, loss->pass->scratch);
    if (!has_tiles(loss) || uses[logits] > 1 || !ul_loss_find_product(make, logits, &t.product))
        return false;
    t.classes = type.dims[type.rank - 1];
    t.rows = (int64_t)ul_type_elements(&type) / t.classes;
    t.depth = graph->values[t.product.x].type.dims[1];
    if (!choose_tiles(&t))
        return false;
    loss->training->piece_count = t.count;
    loss->training->piece_bytes = (uint64_t)(t.rows * t.sizes[0]) * HALF_BYTES;
    cut_weights(&t);
    for (uint32_t tile = 0; tile < t.count; tile++)
        add_statistics(&t, tile);
    add_loss(&t);
    make->build.flags = UL_VALUE_BACKWARD;
    ul_value_id mean = ul_loss_begin_mean(loss, targets, UL_NONE, type.dtype, &t.scale);
    for (uint32_t tile = 0; tile < t.count; tile++)
        add_gradients(&t, tile);
    loss->sum = add_result(&t, ul_build_binary(&make->build, UL_OP_Mul, t.sum, mean));
    make->build.flags = 0;
    loss->correct = t.correct;
    return true;
}
