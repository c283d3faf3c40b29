/* SPDX-License-Identifier: Apache-2.0 */
/* Adagrad, Adam and Momentum, as the operators' specification states them. */
#include "ir/ops/training/optimizer.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"

#include <math.h>
#include <string.h>

enum { RATE, COUNT, FIRST };

/* Shapes: after R and T come `kinds` lists of equal length, the first two X and G; the outputs are
 * all lists but G. */
static enum ul_status infer_optimizer(struct ul_infer *infer, uint32_t kinds)
{
    const uint32_t floats = UL_CHECK_BIT(UL_F32) | UL_CHECK_BIT(UL_F64);
    uint32_t count = (infer->node->input_count - FIRST) / kinds;
    if (FIRST + count * kinds != infer->node->input_count ||
        count * (kinds - 1) != infer->node->output_count)
        return ul_infer_invalid(infer, "%u inputs and %u outputs do not make lists of one length",
                                (unsigned)infer->node->input_count,
                                (unsigned)infer->node->output_count);
    UL_TRY(ul_check_dtype(infer, RATE, floats));
    UL_TRY(ul_check_scalar(infer, RATE));
    UL_TRY(ul_check_dtype(infer, COUNT, UL_CHECK_BIT(UL_I64)));
    UL_TRY(ul_check_scalar(infer, COUNT));
    for (uint32_t i = 0; i < count * kinds; i++) {
        if (ul_infer_input(infer, FIRST + i) == NULL)
            return ul_infer_invalid(infer, "input %u is required", (unsigned)(FIRST + i));
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_type *x = ul_infer_input(infer, FIRST + i);
        UL_TRY(ul_check_dtype(infer, FIRST + i, floats));
        for (uint32_t kind = 1; kind < kinds; kind++) {
            uint32_t input = FIRST + kind * count + i;
            UL_TRY(ul_check_same_dtype(infer, FIRST + i, input));
            UL_TRY(ul_check_shape(infer, input, x->rank, x->dims));
            ul_infer_set_type(infer, (kind - 1) * count + i, x);
        }
    }
    return UL_OK;
}

enum ul_status ul_infer_adagrad(struct ul_infer *infer)
{
    return infer_optimizer(infer, 3);
}

enum ul_status ul_infer_adam(struct ul_infer *infer)
{
    return infer_optimizer(infer, 4);
}

enum ul_status ul_infer_momentum(struct ul_infer *infer)
{
    const char *mode = ul_node_get_string(infer->node, "mode", "");
    if (strcmp(mode, "standard") != 0 && strcmp(mode, "nesterov") != 0)
        return ul_infer_invalid(infer, "mode %s; known are standard and nesterov",
                                ul_quote(infer->scratch, mode));
    return infer_optimizer(infer, 3);
}

/* What an update is computed from: one element of each list. */
struct update {
    struct ul_kernel *k;
    const struct ul_node *node;
    enum ul_dtype dtype;
    uint32_t kind;  /* of the output: 0 X, 1 first state, 2 second state */
    ul_kx rate;     /* R */
    ul_kx count;    /* T */
    ul_kx list[4];  /* X, G and states */
    ul_kx gradient; /* with the regularisation term */
};

static ul_kx number(const struct update *u, double value)
{
    return ul_kx_float(u->k, u->dtype, value);
}

static ul_kx attribute(const struct update *u, const char *name, double otherwise)
{
    return number(u, ul_node_get_float(u->node, name, otherwise));
}

static ul_kx load_scalar(struct ul_lower *lower, ul_value_id value)
{
    ul_kx zero = ul_kx_index_const(lower->kernel, 0);
    return ul_lower_load(lower, value, &zero);
}

static struct update update_load(struct ul_lower *lower, ul_node_id node, uint32_t output,
                                 const ul_kx *index, uint32_t kinds)
{
    const struct ul_node *info = ul_check_node(lower, node);
    struct update u = {.k = lower->kernel, .node = info};
    uint32_t count = (info->input_count - FIRST) / kinds;
    u.kind = output / count;
    u.dtype = ul_compute_dtype(ul_lower_output_type(lower, node, output)->dtype);
    u.rate = ul_kx_cast(u.k, u.dtype, load_scalar(lower, info->inputs[RATE]));
    u.count = load_scalar(lower, info->inputs[COUNT]);
    for (uint32_t kind = 0; kind < kinds; kind++)
        u.list[kind] =
            ul_lower_load(lower, info->inputs[FIRST + kind * count + output % count], index);
    ul_kx decay = ul_kx_mul(u.k, attribute(&u, "norm_coefficient", 0.0), u.list[0]);
    u.gradient = ul_kx_add(u.k, decay, u.list[1]);
    return u;
}

static ul_kx is_later(const struct update *u)
{
    return ul_kx_binary(u->k, UL_KX_LT, ul_kx_index_const(u->k, 0), u->count);
}

ul_kx ul_map_adagrad(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    struct update u = update_load(lower, node, output, index, 3);
    struct ul_kernel *k = u.k;
    ul_kx squares = ul_kx_add(k, u.list[2], ul_kx_mul(k, u.gradient, u.gradient));
    if (u.kind == 1)
        return squares;
    ul_kx steps = ul_kx_mul(k, ul_kx_cast(k, u.dtype, u.count), attribute(&u, "decay_factor", 0.0));
    ul_kx rate = ul_kx_binary(k, UL_KX_DIV, u.rate, ul_kx_add(k, number(&u, 1.0), steps));
    ul_kx root =
        ul_kx_add(k, ul_kx_unary(k, UL_KX_SQRT, squares), attribute(&u, "epsilon", (double)1e-6f));
    ul_kx step = ul_kx_binary(k, UL_KX_DIV, ul_kx_mul(k, rate, u.gradient), root);
    return ul_kx_sub(k, u.list[0], step);
}

/* state * keep + term * (1 - keep) */
static ul_kx move_towards(const struct update *u, ul_kx state, ul_kx term, double keep)
{
    return ul_kx_add(u->k, ul_kx_mul(u->k, number(u, keep), state),
                     ul_kx_mul(u->k, number(u, 1.0 - keep), term));
}

/* 1 - base^T, computed so that it keeps its digits in f32 where base is near 1 and T is small. */
static ul_kx bias_correction(const struct update *u, double base)
{
    ul_kx count = ul_kx_cast(u->k, u->dtype, u->count);
    if (base <= 0.0)
        return ul_kx_sub(u->k, number(u, 1.0),
                         ul_kx_binary(u->k, UL_KX_POW, number(u, base), count));
    ul_kx power = ul_kx_mul(u->k, count, number(u, log(base)));
    return ul_kx_unary(u->k, UL_KX_NEG, ul_kx_unary(u->k, UL_KX_EXPM1, power));
}

ul_kx ul_map_adam(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    struct update u = update_load(lower, node, output, index, 4);
    struct ul_kernel *k = u.k;
    double alpha = ul_node_get_float(u.node, "alpha", (double)0.9f);
    double beta = ul_node_get_float(u.node, "beta", (double)0.999f);
    ul_kx velocity = move_towards(&u, u.list[2], u.gradient, alpha);
    if (u.kind == 1)
        return velocity;
    ul_kx squares = move_towards(&u, u.list[3], ul_kx_mul(k, u.gradient, u.gradient), beta);
    if (u.kind == 2)
        return squares;
    ul_kx root =
        ul_kx_add(k, ul_kx_unary(k, UL_KX_SQRT, squares), attribute(&u, "epsilon", (double)1e-6f));
    ul_kx corrected = ul_kx_mul(k, u.rate, ul_kx_unary(k, UL_KX_SQRT, bias_correction(&u, beta)));
    corrected = ul_kx_binary(k, UL_KX_DIV, corrected, bias_correction(&u, alpha));
    ul_kx rate = ul_kx_select(k, is_later(&u), corrected, u.rate);
    ul_kx step = ul_kx_mul(k, rate, ul_kx_binary(k, UL_KX_DIV, velocity, root));
    double shrink = 1.0 - ul_node_get_float(u.node, "norm_coefficient_post", 0.0);
    return ul_kx_mul(k, number(&u, shrink), ul_kx_sub(k, u.list[0], step));
}

ul_kx ul_map_momentum(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    struct update u = update_load(lower, node, output, index, 3);
    struct ul_kernel *k = u.k;
    ul_kx alpha = attribute(&u, "alpha", 0.0);
    /* The first update takes the whole gradient. */
    ul_kx beta = ul_kx_select(k, is_later(&u), attribute(&u, "beta", 0.0), number(&u, 1.0));
    ul_kx velocity = ul_kx_add(k, ul_kx_mul(k, alpha, u.list[2]), ul_kx_mul(k, beta, u.gradient));
    if (u.kind == 1)
        return velocity;
    bool nesterov = strcmp(ul_node_get_string(u.node, "mode", ""), "nesterov") == 0;
    ul_kx direction = nesterov ? ul_kx_add(k, u.gradient, ul_kx_mul(k, alpha, velocity)) : velocity;
    return ul_kx_sub(k, u.list[0], ul_kx_mul(k, u.rate, direction));
}
