/* SPDX-License-Identifier: Apache-2.0 */
/* NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
 *
 * The loss of one target is -log p[class] * weight[class], 0 where the class is ignore_index; the
 * result is each of them, their sum, or their sum divided by that of the weights. Targets are
 * handled in parallel; a sum goes through scratch, so that its order is fixed.
 *
 * With label smoothing e (ul_label_smoothing, as torch has it) a loss of C classes is
 *     (1 - e) weight[class] (log sum exp x - x[class]) + e / C sum over c of weight[c] (log sum exp
 * x
 *     - x[c])
 * The gradient of the scores is formed from them alone: sums of exponentials are formed again. */
#include "ir/ops/loss/loss.def"
#include "ir/op_names.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

#include <math.h>
#include <string.h>

enum { SCORES, TARGETS, WEIGHTS, GRADIENT };
#define CLASSES 2u /* dimension 1 of the scores, as a mask */

/* Shapes */

static enum ul_status infer_loss(struct ul_infer *infer)
{
    const struct ul_type *scores = ul_infer_input(infer, SCORES);
    UL_TRY(ul_check_dtype(infer, SCORES, UL_CHECK_FLOATS));
    UL_TRY(ul_check_dtype(infer, TARGETS, UL_CHECK_INDEXES));
    UL_TRY(ul_check_rank(infer, SCORES, 2, UL_LIMIT_RANK));
    UL_TRY(ul_check_same_dtype(infer, SCORES, WEIGHTS));
    UL_TRY(ul_check_shape(infer, WEIGHTS, 1, &scores->dims[1]));
    int64_t dims[UL_LIMIT_RANK] = {scores->dims[0]};
    memcpy(dims + 1, scores->dims + 2, (scores->rank - 2) * sizeof *dims);
    UL_TRY(ul_check_shape(infer, TARGETS, scores->rank - 1, dims));
    if (scores->dims[1] == 0 && ul_type_elements(ul_infer_input(infer, TARGETS)) > 0)
        return ul_infer_invalid(infer, "there are targets, but no classes");
    const char *reduction = ul_node_get_string(infer->node, "reduction", "mean");
    bool each = strcmp(reduction, "none") == 0;
    if (!each && strcmp(reduction, "sum") != 0 && strcmp(reduction, "mean") != 0)
        return ul_infer_invalid(infer, "reduction %s; known are none, sum and mean",
                                ul_quote(infer->scratch, reduction));
    ul_infer_set(infer, 0, scores->dtype, each ? scores->rank - 1 : 0, dims);
    return UL_OK;
}

enum ul_status ul_infer_nll_loss(struct ul_infer *infer)
{
    return infer_loss(infer);
}

enum ul_status ul_infer_cross_entropy_loss(struct ul_infer *infer)
{
    UL_TRY(infer_loss(infer));
    ul_infer_set_type(infer, 1, ul_infer_input(infer, SCORES));
    return UL_OK;
}

/* One target */

struct loss {
    struct ul_lower *lower;
    ul_node_id id;
    const struct ul_node *node;
    const struct ul_type *scores;
    enum ul_dtype dtype;
    struct ul_lanes lanes; /* over the scores, but for the classes */
    bool each, mean;
    uint32_t losses, weights; /* scratch of the sums */
    struct ul_lane_var max;   /* the largest score of a target */
    double smoothing;
};

static void loss_open(struct loss *s, struct ul_lower *lower, ul_node_id node)
{
    s->lower = lower;
    s->id = node;
    s->node = ul_check_node(lower, node);
    s->scores = ul_lower_input_type(lower, node, SCORES);
    s->dtype = ul_compute_dtype(s->scores->dtype);
    const char *reduction = ul_node_get_string(s->node, "reduction", "mean");
    bool is_gradient = s->node->op == UL_OP_CrossEntropyGradient;
    s->each = is_gradient || strcmp(reduction, "none") == 0;
    s->mean = !is_gradient && strcmp(reduction, "mean") == 0;
    s->smoothing = ul_node_get_float(s->node, "ul_label_smoothing", 0.0);
    uint64_t targets = ul_type_elements(ul_lower_input_type(lower, node, TARGETS));
    if (!s->each)
        s->losses = ul_lower_scratch(lower, s->dtype, targets);
    if (s->mean)
        s->weights = ul_lower_scratch(lower, s->dtype, targets);
    const struct ul_type *type = s->scores;
    uint32_t kept = ul_lanes_all(type->rank) & ~CLASSES;
    ul_lanes_open(&s->lanes, lower, ul_check_node(lower, node)->inputs[SCORES], kept);
}

/* The target's coordinates: those of the scores, without the class. */
static void target_index(const struct loss *s, ul_kx *index)
{
    index[0] = s->lanes.index[0];
    for (uint32_t d = 2; d < s->scores->rank; d++)
        index[d - 1] = s->lanes.index[d];
}

/* The score of the target's class, and the weight, which is 0 where the target is ignored. */
static ul_kx class_score(struct loss *s, ul_kx *weight)
{
    struct ul_kernel *k = s->lower->kernel;
    ul_kx index[UL_LIMIT_RANK];
    target_index(s, index);
    ul_kx target = ul_lower_load(s->lower, s->node->inputs[TARGETS], index);
    target = ul_ks_let(k, ul_kx_cast(k, UL_I64, target));
    ul_kx zero = ul_kx_float(k, s->dtype, 0.0);
    ul_kx ignored = UL_NONE;
    if (ul_node_find_attr(s->node, "ignore_index") != NULL) {
        ul_kx ignore = ul_kx_index_const(k, ul_node_get_int(s->node, "ignore_index", 0));
        ignored = ul_ks_let(k, ul_kx_binary(k, UL_KX_EQ, target, ignore));
        target = ul_kx_select(k, ignored, ul_kx_index_const(k, 0), target);
    }
    int64_t classes = s->scores->dims[1] > 0 ? s->scores->dims[1] : 1; /* no target has none */
    ul_kx class = ul_ks_let(k, ul_kx_checked_index(k, target, classes, false));
    *weight = ul_kx_float(k, s->dtype, 1.0);
    if (ul_lower_has_input(s->lower, s->id, WEIGHTS))
        *weight = ul_lower_load(s->lower, s->node->inputs[WEIGHTS], &class);
    if (ignored != UL_NONE)
        *weight = ul_kx_select(k, ignored, zero, *weight);
    *weight = ul_ks_let(k, *weight);
    ul_kx place[UL_LIMIT_RANK];
    memcpy(place, s->lanes.index, sizeof place);
    place[1] = class;
    return ul_ks_let(k, ul_lower_load(s->lower, s->node->inputs[SCORES], place));
}

/* Takes a target's loss: stores it, or keeps it for the sum. An ignored target's is 0 even where it
 * would be infinite. */
static void put_loss(struct loss *s, ul_kx loss, ul_kx weight)
{
    struct ul_kernel *k = s->lower->kernel;
    ul_kx zero = ul_kx_float(k, s->dtype, 0.0);
    if (ul_node_find_attr(s->node, "ignore_index") != NULL)
        loss = ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, weight, zero), zero, loss);
    ul_kx index[UL_LIMIT_RANK];
    target_index(s, index);
    if (s->each) {
        ul_lower_store(s->lower, s->node->outputs[0], index, loss);
        return;
    }
    const struct ul_type *type = ul_lower_input_type(s->lower, s->id, TARGETS);
    ul_kx flat = ul_kx_index_const(k, 0);
    for (uint32_t d = 0; d < type->rank; d++)
        flat = ul_kx_add(k, ul_kx_muli(k, flat, type->dims[d]), index[d]);
    ul_ks_store(k, s->losses, flat, loss);
    if (s->mean)
        ul_ks_store(k, s->weights, flat, weight);
}

static void loss_close(struct loss *s)
{
    struct ul_kernel *k = s->lower->kernel;
    ul_lanes_close(&s->lanes);
    if (s->each)
        return;
    int64_t targets = (int64_t)ul_type_elements(ul_lower_input_type(s->lower, s->id, TARGETS));
    ul_kx zero = ul_kx_float(k, s->dtype, 0.0);
    uint32_t sum = ul_ks_var(k, s->dtype, zero);
    uint32_t divisor = s->mean ? ul_ks_var(k, s->dtype, zero) : UL_NONE;
    ul_kx i = ul_ks_for(k, targets, UL_FOR_REDUCE);
    ul_ks_set(k, sum, ul_kx_add(k, ul_kx_var(k, sum), ul_kx_load(k, s->losses, i)));
    if (s->mean)
        ul_ks_set(k, divisor, ul_kx_add(k, ul_kx_var(k, divisor), ul_kx_load(k, s->weights, i)));
    ul_ks_end(k);
    ul_kx result = ul_kx_var(k, sum);
    if (s->mean)
        result = ul_kx_binary(k, UL_KX_DIV, result, ul_kx_var(k, divisor));
    ul_kx nowhere = ul_kx_index_const(k, 0); /* a scalar has no coordinates */
    ul_lower_store(s->lower, s->node->outputs[0], &nowhere, result);
}

void ul_lower_nll_loss(struct ul_lower *lower, ul_node_id node)
{
    struct loss s;
    loss_open(&s, lower, node);
    ul_lanes_begin(&s.lanes);
    ul_kx weight;
    ul_kx log_p = class_score(&s, &weight);
    log_p = ul_kx_unary(lower->kernel, UL_KX_NEG, log_p);
    put_loss(&s, ul_kx_mul(lower->kernel, log_p, weight), weight);
    ul_lanes_end(&s.lanes);
    loss_close(&s);
}

static ul_kx load_score(struct ul_lanes *lanes, const void *context)
{
    const struct loss *s = context;
    return ul_lower_load(lanes->lower, s->node->inputs[SCORES], lanes->index);
}

static ul_kx load_exp(struct ul_lanes *lanes, const void *context)
{
    const struct loss *s = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = ul_kx_sub(k, load_score(lanes, context), ul_lanes_get(lanes, s->max));
    return ul_kx_unary(k, UL_KX_EXP, x);
}

/* log(sum(exp(score))) over the classes, relative to the largest score. */
static struct ul_lane_var log_sum_exp(struct loss *s)
{
    struct ul_lanes *lanes = &s->lanes;
    struct ul_kernel *k = s->lower->kernel;
    ul_kx zero = ul_kx_float(k, s->dtype, 0.0);
    ul_kx lowest = ul_kx_float(k, s->dtype, -(double)INFINITY);
    s->max = ul_lanes_reduce(lanes, CLASSES, UL_KX_MAX, lowest, load_score, s);
    struct ul_lane_var sum = ul_lanes_reduce(lanes, CLASSES, UL_KX_ADD, zero, load_exp, s);
    ul_lanes_begin(lanes);
    ul_kx natural = ul_kx_unary(k, UL_KX_LOG, ul_lanes_get(lanes, sum));
    ul_lanes_set(lanes, sum, ul_kx_add(k, natural, ul_lanes_get(lanes, s->max)));
    ul_lanes_end(lanes);
    return sum;
}

/* The weight of the class that the loops are at. */
static ul_kx class_weight(const struct loss *s)
{
    if (!ul_lower_has_input(s->lower, s->id, WEIGHTS))
        return ul_kx_float(s->lower->kernel, s->dtype, 1.0);
    return ul_lower_load(s->lower, s->node->inputs[WEIGHTS], &s->lanes.index[1]);
}

static ul_kx load_weighted(struct ul_lanes *lanes, const void *context)
{
    return ul_kx_mul(lanes->lower->kernel, class_weight(context), load_score(lanes, context));
}

static ul_kx load_weight(struct ul_lanes *lanes, const void *context)
{
    (void)lanes;
    return class_weight(context);
}

/* The sums over the classes that label smoothing needs: of weighted scores, and of weights. */
static struct ul_lane_var sum_classes(struct loss *s, ul_lanes_term_fn *term)
{
    return ul_lanes_reduce(&s->lanes, CLASSES, UL_KX_ADD,
                           ul_kx_float(s->lower->kernel, s->dtype, 0.0), term, s);
}

/* (1 - e) a + e / C b */
static ul_kx smooth(const struct loss *s, ul_kx a, ul_kx b)
{
    struct ul_kernel *k = s->lower->kernel;
    double share = s->smoothing / (double)s->scores->dims[1];
    a = ul_kx_mul(k, a, ul_kx_float(k, s->dtype, 1 - s->smoothing));
    return ul_kx_add(k, a, ul_kx_mul(k, b, ul_kx_float(k, s->dtype, share)));
}

void ul_lower_cross_entropy_loss(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    struct loss s;
    loss_open(&s, lower, node);
    struct ul_lanes *lanes = &s.lanes;
    struct ul_lane_var total = log_sum_exp(&s), scores = {0}, weights = {0};
    if (s.smoothing > 0) {
        scores = sum_classes(&s, load_weighted);
        weights = sum_classes(&s, load_weight);
    }
    ul_lanes_begin(lanes);
    ul_kx weight;
    ul_kx score = class_score(&s, &weight), log_sum = ul_lanes_get(lanes, total);
    ul_kx loss = ul_kx_mul(k, ul_kx_sub(k, log_sum, score), weight);
    if (s.smoothing > 0)
        loss = smooth(&s, loss,
                      ul_kx_sub(k, ul_kx_mul(k, log_sum, ul_lanes_get(lanes, weights)),
                                ul_lanes_get(lanes, scores)));
    put_loss(&s, loss, weight);
    ul_lanes_end(lanes);
    if (ul_lower_has_output(lower, node, 1)) {
        ul_lanes_loop(lanes, CLASSES, UL_FOR_PARALLEL);
        ul_lanes_begin(lanes);
        ul_kx x = ul_lower_load(lower, s.node->inputs[SCORES], lanes->index);
        ul_lower_store(lower, s.node->outputs[1], lanes->index,
                       ul_kx_sub(k, x, ul_lanes_get(lanes, total)));
        ul_lanes_end(lanes);
        ul_lanes_loop_end(lanes, CLASSES);
    }
    loss_close(&s);
}

/* ---- Gradient ---- */

enum ul_status ul_infer_cross_entropy_gradient(struct ul_infer *infer)
{
    const struct ul_type *g = ul_infer_input(infer, GRADIENT);
    if (g == NULL)
        return ul_infer_invalid(infer, "the gradient of the loss is required");
    UL_TRY(infer_loss(infer));
    UL_TRY(ul_check_same_dtype(infer, SCORES, GRADIENT));
    if (g->rank != 0) {
        const struct ul_type *targets = ul_infer_input(infer, TARGETS);
        UL_TRY(ul_check_shape(infer, GRADIENT, targets->rank, targets->dims));
    }
    return ul_infer_same(infer);
}

/* With p = exp(x - log sum exp x), f the gradient of the target's loss, W the sum of all weights:
 *     dx[c] = f (smooth(weight, W) p[c] - smooth(weight at the class, weight[c])) */
static void put_score_gradient(struct loss *s, ul_kx factor, ul_kx total, ul_kx weight,
                               ul_kx weights, ul_kx class)
{
    struct ul_kernel *k = s->lower->kernel;
    ul_kx zero = ul_kx_float(k, s->dtype, 0.0), own = class_weight(s);
    ul_kx x = ul_lower_load(s->lower, s->node->inputs[SCORES], s->lanes.index);
    ul_kx p = ul_kx_unary(k, UL_KX_EXP, ul_kx_sub(k, x, total));
    ul_kx here = ul_kx_binary(k, UL_KX_EQ, s->lanes.index[1], class);
    ul_kx taken = ul_kx_select(k, here, weight, zero);
    if (s->smoothing > 0) {
        taken = smooth(s, taken, own);
        weight = smooth(s, weight, weights);
    }
    ul_kx share = ul_kx_sub(k, ul_kx_mul(k, p, weight), taken);
    ul_lower_store(s->lower, s->node->outputs[0], s->lanes.index, ul_kx_mul(k, factor, share));
}

/* The class of a target, or a number that is no class where the target is ignored; also the
 * gradient of its loss. */
static ul_kx target_class(struct loss *s, ul_kx *weight, ul_kx *factor)
{
    struct ul_kernel *k = s->lower->kernel;
    ul_kx index[UL_LIMIT_RANK];
    target_index(s, index);
    ul_kx zero = ul_kx_float(k, s->dtype, 0.0);
    ul_kx g =
        ul_lower_load_broadcast(s->lower, s->node->inputs[GRADIENT], index, s->scores->rank - 1);
    ul_kx target = ul_lower_load(s->lower, s->node->inputs[TARGETS], index);
    target = ul_ks_let(k, ul_kx_cast(k, UL_I64, target));
    (void)class_score(s, weight); /* which reports a class that does not exist */
    *factor = g;
    if (ul_node_find_attr(s->node, "ignore_index") != NULL) {
        ul_kx ignore = ul_kx_index_const(k, ul_node_get_int(s->node, "ignore_index", 0));
        *factor = ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, target, ignore), zero, g);
    }
    *factor = ul_ks_let(k, *factor);
    return target;
}

void ul_lower_cross_entropy_gradient(struct ul_lower *lower, ul_node_id node)
{
    struct loss s;
    loss_open(&s, lower, node);
    struct ul_lanes *lanes = &s.lanes;
    struct ul_kernel *k = lower->kernel;
    struct ul_lane_var total = log_sum_exp(&s), weights = {0};
    if (s.smoothing > 0)
        weights = sum_classes(&s, load_weight);
    ul_kx zero = ul_kx_float(k, s.dtype, 0.0);
    struct ul_lane_var weight = ul_lanes_var(lanes, s.dtype, zero);
    struct ul_lane_var factor = ul_lanes_var(lanes, s.dtype, zero);
    struct ul_lane_var class = ul_lanes_var(lanes, UL_I64, ul_kx_index_const(k, 0));
    ul_lanes_begin(lanes);
    ul_kx own_weight, own_factor;
    ul_kx own_class = target_class(&s, &own_weight, &own_factor);
    ul_lanes_set(lanes, weight, own_weight);
    ul_lanes_set(lanes, factor, own_factor);
    ul_lanes_set(lanes, class, own_class);
    ul_lanes_end(lanes);
    ul_lanes_loop(lanes, CLASSES, UL_FOR_PARALLEL);
    ul_lanes_begin(lanes);
    put_score_gradient(
        &s, ul_lanes_get(lanes, factor), ul_lanes_get(lanes, total), ul_lanes_get(lanes, weight),
        s.smoothing > 0 ? ul_lanes_get(lanes, weights) : zero, ul_lanes_get(lanes, class));
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, CLASSES);
    ul_lanes_close(lanes);
}
