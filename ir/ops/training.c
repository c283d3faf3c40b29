/* Gradients of elementwise operators by the texts of their rows, and the updates of parameters. */
#include "ir/training.h"
#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/hooks.h"

#include <string.h>

/* ---- Gradient, Mask ---- */

/* The gradient has the output's shape, so what it is computed from broadcasts to that of g. */
enum ul_status ul_infer_gradient(struct ul_infer *infer)
{
    const struct ul_type *g = ul_infer_input(infer, 0);
    struct ul_type sum;
    uint32_t of;
    const struct ul_op_info *row = ul_gradient_row(infer->node, &of);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    if (row == NULL || row->gradients[of] == NULL)
        return ul_infer_invalid(infer, "ul_of and ul_input name no gradient");
    if (ul_gradient_has_mask(infer->graph, infer->node) && row->masks[of] == NULL)
        return ul_infer_invalid(infer, "the gradient has no mask");
    for (uint32_t i = 1; i < infer->node->input_count; i++) {
        const struct ul_type *type = ul_infer_input(infer, i);
        if (type != NULL && (!ul_broadcast(g, type, &sum) || sum.rank != g->rank ||
                             memcmp(sum.dims, g->dims, g->rank * sizeof *g->dims) != 0))
            return ul_infer_invalid(infer, "input %u does not broadcast to the gradient",
                                    (unsigned)i);
    }
    return ul_infer_same(infer);
}

/* Operands of texts, by their letters. */
struct operands {
    ul_kx of['z' - 'a' + 1];
    enum ul_dtype dtype; /* of the first that is there */
};

/* What the node reads: a letter for each input from the first on, then a b c. */
static void load_operands(struct ul_lower *lower, ul_node_id node, const char *letters,
                          const ul_kx *index, struct operands *operands)
{
    const struct ul_node *info = ul_check_node(lower, node);
    uint32_t rank = ul_lower_output_type(lower, node, 0)->rank;
    uint32_t named = (uint32_t)strlen(letters);
    operands->dtype = UL_DTYPE_NONE;
    for (uint32_t i = 0; i < sizeof operands->of / sizeof *operands->of; i++)
        operands->of[i] = UL_NONE;
    for (uint32_t i = 0; i < info->input_count; i++) {
        char letter = i < named ? letters[i] : (char)('a' + (char)(i - named));
        if (info->inputs[i] == UL_NONE)
            continue;
        ul_kx x = ul_lower_load_broadcast(lower, info->inputs[i], index, rank);
        operands->of[letter - 'a'] = x;
        if (operands->dtype == UL_DTYPE_NONE)
            operands->dtype = ul_kx_dtype(lower->kernel, x);
    }
    UL_ASSERT(operands->dtype != UL_DTYPE_NONE);
}

static ul_kx build_text(struct ul_lower *lower, ul_node_id node, const char *text,
                        const struct operands *operands)
{
    return ul_expression_build(lower, node, text, operands->of,
                               sizeof operands->of / sizeof *operands->of, operands->dtype);
}

ul_kx ul_map_gradient(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    uint32_t of;
    const struct ul_node *info = ul_check_node(lower, node);
    const struct ul_op_info *row = ul_gradient_row(info, &of);
    bool is_masked = ul_gradient_has_mask(lower->graph, info);
    struct operands operands;
    UL_ASSERT(output == 0 && row != NULL);
    load_operands(lower, node, is_masked ? "gm" : "gy", index, &operands);
    if (row->masks[of] != NULL && !is_masked)
        operands.of['m' - 'a'] = build_text(lower, node, row->masks[of], &operands);
    return build_text(lower, node, row->gradients[of], &operands);
}

/* The shape that the operands have together. */
enum ul_status ul_infer_mask(struct ul_infer *infer)
{
    struct ul_type all = {.rank = 0};
    bool any = false;
    uint32_t of;
    const struct ul_op_info *row = ul_gradient_row(infer->node, &of);
    if (row == NULL || row->masks[of] == NULL)
        return ul_infer_invalid(infer, "ul_of and ul_input name no mask");
    for (uint32_t i = 0; i < infer->node->input_count; i++) {
        const struct ul_type *type = ul_infer_input(infer, i);
        struct ul_type sum;
        if (type == NULL)
            continue;
        UL_TRY(ul_check_dtype(infer, i, UL_CHECK_FLOATS));
        if (!ul_broadcast(&all, type, &sum))
            return ul_infer_invalid(infer, "input %u does not broadcast", (unsigned)i);
        all = sum;
        any = true;
    }
    if (!any)
        return ul_infer_invalid(infer, "a mask of nothing");
    ul_infer_set(infer, 0, UL_BOOL, all.rank, all.dims);
    return UL_OK;
}

ul_kx ul_map_mask(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    uint32_t of;
    const struct ul_op_info *row = ul_gradient_row(ul_check_node(lower, node), &of);
    struct operands operands;
    UL_ASSERT(output == 0 && row != NULL);
    load_operands(lower, node, "y", index, &operands);
    return build_text(lower, node, row->masks[of], &operands);
}

/* ---- Updates ---- */

enum { NUMBERS, PARAMETER, GRADIENT, STATE };

/* Which input the gradient is multiplied by, if it is there. */
static uint32_t scale_input(const struct ul_node *node)
{
    return STATE + node->output_count - 1;
}

enum ul_status ul_infer_update(struct ul_infer *infer)
{
    const int64_t numbers = UL_STEP_NUMBERS;
    const struct ul_type *type = ul_infer_input(infer, PARAMETER);
    UL_TRY(ul_check_dtype(infer, NUMBERS, UL_CHECK_BIT(UL_F64)));
    UL_TRY(ul_check_shape(infer, NUMBERS, 1, &numbers));
    UL_TRY(ul_check_dtype(infer, PARAMETER, UL_CHECK_FLOATS));
    for (uint32_t i = GRADIENT; i < infer->node->input_count; i++) {
        UL_TRY(ul_check_same_dtype(infer, PARAMETER, i));
        if (i == scale_input(infer->node))
            UL_TRY(ul_check_shape(infer, i, 0, NULL));
        else
            UL_TRY(ul_check_shape(infer, i, type->rank, type->dims));
    }
    ul_infer_set_type(infer, 0, type);
    for (uint32_t i = 1; i < infer->node->output_count; i++)
        ul_infer_set_type(infer, i, type);
    return UL_OK;
}

bool ul_split_rule_update(struct ul_split_rule *split)
{
    for (uint32_t i = PARAMETER; i < scale_input(split->node); i++)
        ul_split_rule_read(split, i, split->output.axis, split->output.begin, split->output.end);
    return true;
}

/* One element of an update. */
struct update {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    const ul_kx *index;
    enum ul_dtype dtype;
};

static ul_kx load(const struct update *u, uint32_t input)
{
    return ul_lower_load(u->lower, u->node->inputs[input], u->index);
}

/* A number of the step, computed in f64 by the caller, in the parameter's type. */
static ul_kx step_number(const struct update *u, uint32_t which)
{
    ul_kx at = ul_kx_index_const(u->kernel, which);
    return ul_kx_cast(u->kernel, u->dtype, ul_lower_load(u->lower, u->node->inputs[NUMBERS], &at));
}

static double attribute(const struct update *u, const char *name)
{
    return ul_node_get_float(u->node, name, 0.0);
}

static ul_kx times(const struct update *u, ul_kx x, double factor)
{
    return ul_kx_mul(u->kernel, x, ul_kx_float(u->kernel, u->dtype, factor));
}

/* a + (b - a) * weight, as torch's lerp for weights below one half. */
static ul_kx mix(const struct update *u, ul_kx a, ul_kx b, double weight)
{
    return ul_kx_add(u->kernel, a, times(u, ul_kx_sub(u->kernel, b, a), weight));
}

static struct update update_begin(struct ul_lower *lower, ul_node_id node, const ul_kx *index)
{
    struct update u = {.lower = lower,
                       .kernel = lower->kernel,
                       .node = ul_check_node(lower, node),
                       .index = index};
    u.dtype = ul_compute_dtype(ul_lower_input_type(lower, node, PARAMETER)->dtype);
    return u;
}

/* The gradient, multiplied, within its bounds, and with the decay that is part of it. */
static ul_kx gradient_of(const struct update *u, bool decays)
{
    double bound = attribute(u, "clip_value"), decay = attribute(u, "weight_decay");
    uint32_t scale = scale_input(u->node);
    ul_kx g = load(u, GRADIENT), first = ul_kx_index_const(u->kernel, 0);
    if (scale < u->node->input_count)
        g = ul_kx_mul(u->kernel, g, ul_lower_load(u->lower, u->node->inputs[scale], &first));
    if (bound > 0) {
        ul_kx high = ul_kx_float(u->kernel, u->dtype, bound);
        ul_kx low = ul_kx_float(u->kernel, u->dtype, -bound);
        g = ul_kx_binary(u->kernel, UL_KX_MAX, ul_kx_binary(u->kernel, UL_KX_MIN, g, high), low);
    }
    if (decays && decay > 0)
        g = ul_kx_add(u->kernel, g, times(u, load(u, PARAMETER), decay));
    return g;
}

/* The parameter after decay that is no part of the gradient. */
static ul_kx decayed(const struct update *u)
{
    double decay = attribute(u, "weight_decay");
    ul_kx w = load(u, PARAMETER), one = ul_kx_float(u->kernel, u->dtype, 1);
    if (!(decay > 0))
        return w;
    ul_kx lost = times(u, step_number(u, UL_STEP_RATE), decay);
    return ul_kx_mul(u->kernel, w, ul_kx_sub(u->kernel, one, lost));
}

static ul_kx descend(const struct update *u, ul_kx w, ul_kx direction)
{
    ul_kx rate = step_number(u, UL_STEP_RATE);
    return ul_kx_sub(u->kernel, w, ul_kx_mul(u->kernel, rate, direction));
}

ul_kx ul_map_update_sgd(struct ul_lower *lower, ul_node_id node, uint32_t output,
                        const ul_kx *index)
{
    struct update u = update_begin(lower, node, index);
    UL_ASSERT(output == 0);
    return descend(&u, load(&u, PARAMETER), gradient_of(&u, true));
}

/* State m: momentum * m + g, of which the first step's is g. */
ul_kx ul_map_update_momentum(struct ul_lower *lower, ul_node_id node, uint32_t output,
                             const ul_kx *index)
{
    struct update u = update_begin(lower, node, index);
    double momentum = attribute(&u, "momentum");
    ul_kx g = gradient_of(&u, true);
    ul_kx state = ul_kx_add(u.kernel, times(&u, load(&u, STATE), momentum), g);
    if (output == 1)
        return state;
    if (ul_node_get_int(u.node, "nesterov", 0) != 0)
        state = ul_kx_add(u.kernel, g, times(&u, state, momentum));
    return descend(&u, load(&u, PARAMETER), state);
}

/* States: the mean m and the mean square v of gradients. decoupled: AdamW. */
ul_kx ul_map_update_adam(struct ul_lower *lower, ul_node_id node, uint32_t output,
                         const ul_kx *index)
{
    struct update u = update_begin(lower, node, index);
    struct ul_kernel *k = u.kernel;
    bool decoupled = ul_node_get_int(u.node, "decoupled", 0) != 0;
    double beta2 = attribute(&u, "beta2");
    ul_kx g = gradient_of(&u, !decoupled);
    ul_kx m = mix(&u, load(&u, STATE), g, 1 - attribute(&u, "beta1"));
    ul_kx v = ul_kx_add(k, times(&u, load(&u, STATE + 1), beta2),
                        times(&u, ul_kx_mul(k, g, g), 1 - beta2));
    if (output != 0)
        return output == 1 ? m : v;
    ul_kx root = ul_kx_unary(k, UL_KX_SQRT, step_number(&u, UL_STEP_BIAS2));
    ul_kx spread = ul_kx_binary(k, UL_KX_DIV, ul_kx_unary(k, UL_KX_SQRT, v), root);
    spread = ul_kx_add(k, spread, ul_kx_float(k, u.dtype, attribute(&u, "eps")));
    ul_kx mean = ul_kx_binary(k, UL_KX_DIV, m, step_number(&u, UL_STEP_BIAS1));
    ul_kx w = decoupled ? decayed(&u) : load(&u, PARAMETER);
    return descend(&u, w, ul_kx_binary(k, UL_KX_DIV, mean, spread));
}

/* The sign of a mean; the state is another mean (Chen et al., arXiv 2302.06675, algorithm 2). */
ul_kx ul_map_update_lion(struct ul_lower *lower, ul_node_id node, uint32_t output,
                         const ul_kx *index)
{
    struct update u = update_begin(lower, node, index);
    struct ul_kernel *k = u.kernel;
    ul_kx g = gradient_of(&u, false), m = load(&u, STATE);
    if (output == 1)
        return mix(&u, m, g, 1 - attribute(&u, "beta2"));
    ul_kx c = mix(&u, m, g, 1 - attribute(&u, "beta1"));
    ul_kx zero = ul_kx_float(k, u.dtype, 0), one = ul_kx_float(k, u.dtype, 1);
    ul_kx minus = ul_kx_float(k, u.dtype, -1);
    ul_kx sign = ul_kx_select(k, ul_kx_binary(k, UL_KX_LT, zero, c), one,
                              ul_kx_select(k, ul_kx_binary(k, UL_KX_LT, c, zero), minus, zero));
    return descend(&u, decayed(&u), sign);
}

/* ---- Gradients that are known ---- */

/* g times what is known, where g is not 1. */
enum ul_status ul_gradient_known(struct ul_gradient *gradient)
{
    ul_value_id g = ul_gradient_of(gradient, 0);
    uint32_t count = ul_gradient_node(gradient)->input_count;
    double number = 0;
    bool is_one = ul_graph_get_number(gradient->graph, g, &number) && number >= 1 && number <= 1;
    for (uint32_t i = 1; i + 1 < count; i += 2) {
        if (!ul_gradient_wanted(gradient, i))
            continue;
        ul_value_id known = ul_gradient_input(gradient, i + 1);
        ul_gradient_give(gradient, i,
                         is_one ? known : ul_gradient_binary(gradient, UL_OP_Mul, known, g));
    }
    return UL_OK;
}
