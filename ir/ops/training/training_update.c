/* SPDX-License-Identifier: Apache-2.0 */
/* Updates of parameters by optimizers: element by element, and with states of 8 bits by blocks.
 *
 * States of 8 bits (Dettmers et al., arXiv 2110.02861): a block of at most 256 elements has the
 * largest magnitude of its state as a number, and each element a code for its part of that. Codes
 * stand for numbers in order, which are dense around 0 (ul_update_numbers): of a code that is a
 * table, and the code next to a number is computed, as compilers make vectors of that. In a block
 *
 *      for each element: the new state, of what the old codes say, and its largest magnitude
 *      for each element: the new state once more; the parameter by it; the code next to it
 *
 * so that nothing of a block lies in memory but what the step keeps. */
#include "ir/ops/training/training.def"
#include "ir/training.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"
#include "ir/ops/random/random.h"

#include <math.h>
#include <string.h>

enum { NUMBERS, PARAMETER, GRADIENT, STATE };

/* States are named as torch names them and, for Adam-mini, as its authors do; a state of 8 bits has
 * its scales beside its codes. */
size_t ul_training_find_owner(const char *name)
{
    static const char *const states[] = {"momentum", "exp_avg",  "exp_avg_sq", "row_var",
                                         "col_var",  "variance", "m",          "vmean"};
    static const char scales[] = "/absmax";
    size_t length = strlen(name), tail = sizeof scales - 1;
    if (length > tail && strcmp(name + length - tail, scales) == 0)
        length -= tail;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        size_t size = strlen(states[i]);
        if (length > size + 1 && name[length - size - 1] == '/' &&
            memcmp(name + length - size, states[i], size) == 0)
            return length - size - 1;
    }
    return 0;
}

/* The input that the gradient is multiplied by, if there is one. */
static uint32_t scale_input(const struct ul_node *node)
{
    return STATE + node->output_count - 1;
}

/* Whether the step rounds by chance: its key then follows the scale. */
static bool rounds(const struct ul_node *node, uint32_t scale)
{
    return node->input_count > scale + 1;
}

/* Checks the two inputs after the states, where they are there. */
static enum ul_status check_last(struct ul_infer *infer, uint32_t scale)
{
    if (scale < infer->node->input_count && infer->node->inputs[scale] != UL_NONE) {
        UL_TRY(ul_check_same_dtype(infer, PARAMETER, scale));
        UL_TRY(ul_check_shape(infer, scale, 0, NULL));
    }
    if (!rounds(infer->node, scale))
        return UL_OK;
    UL_TRY(ul_check_dtype(infer, PARAMETER, UL_CHECK_BIT(UL_F32)));
    UL_TRY(ul_check_dtype(infer, scale + 1, UL_CHECK_BIT(UL_I64)));
    return ul_check_shape(infer, scale + 1, 0, NULL);
}

enum ul_status ul_infer_update(struct ul_infer *infer)
{
    const int64_t numbers = UL_STEP_NUMBERS;
    const struct ul_type *type = ul_infer_input(infer, PARAMETER);
    UL_TRY(ul_check_dtype(infer, NUMBERS, UL_CHECK_BIT(UL_F64)));
    UL_TRY(ul_check_shape(infer, NUMBERS, 1, &numbers));
    UL_TRY(ul_check_dtype(infer, PARAMETER, UL_CHECK_FLOATS));
    for (uint32_t i = GRADIENT; i < scale_input(infer->node); i++) {
        UL_TRY(ul_check_same_dtype(infer, PARAMETER, i));
        UL_TRY(ul_check_shape(infer, i, type->rank, type->dims));
    }
    UL_TRY(check_last(infer, scale_input(infer->node)));
    ul_infer_set_type(infer, 0, type);
    for (uint32_t i = 1; i < infer->node->output_count; i++)
        ul_infer_set_type(infer, i, type);
    return UL_OK;
}

enum { ADDED, SUM, PART };

enum ul_status ul_infer_accumulate(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, ADDED);
    UL_TRY(ul_check_dtype(infer, ADDED, UL_CHECK_FLOATS));
    UL_TRY(ul_check_same_dtype(infer, ADDED, SUM));
    UL_TRY(ul_check_shape(infer, SUM, type->rank, type->dims));
    UL_TRY(ul_check_dtype(infer, PART, UL_CHECK_BIT(UL_F64)));
    UL_TRY(ul_check_shape(infer, PART, 0, NULL));
    ul_infer_set_type(infer, 0, type);
    return UL_OK;
}

ul_kx ul_map_accumulate(struct ul_lower *lower, ul_node_id node, uint32_t output,
                        const ul_kx *index)
{
    const ul_value_id *inputs = ul_check_node(lower, node)->inputs;
    struct ul_kernel *k = lower->kernel;
    UL_ASSERT(output == 0);
    ul_kx added = ul_ks_let(k, ul_lower_load(lower, inputs[ADDED], index));
    ul_kx sum = ul_kx_add(k, ul_lower_load(lower, inputs[SUM], index), added);
    ul_kx part = ul_lower_load(lower, inputs[PART], index);
    ul_kx begins = ul_kx_binary(k, UL_KX_EQ, part, ul_kx_float(k, UL_F64, 0));
    return ul_kx_select(k, begins, added, sum);
}

/* Rounding by chance depends on an element's place in the whole, so such updates are not split. */
bool ul_split_rule_update(struct ul_split_rule *split)
{
    if (rounds(split->node, scale_input(split->node)))
        return false;
    for (uint32_t i = PARAMETER; i < scale_input(split->node); i++)
        ul_split_rule_read(split, i, split->output.axis, split->output.begin, split->output.end);
    return true;
}

enum { MAX_STATES = 2 };

/* One element of an update. */
struct update {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    ul_node_id node_id;
    const ul_kx *index;
    enum ul_dtype dtype;
    uint32_t scale;           /* the input that the gradient is multiplied by, if it is there */
    ul_kx states[MAX_STATES]; /* as they were */
};

static ul_kx load(const struct update *u, uint32_t input)
{
    return ul_lower_load(u->lower, u->node->inputs[input], u->index);
}

/* Loads a number of the step, which the caller computed in f64, in the parameter's type. */
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
                       .node_id = node,
                       .index = index};
    u.dtype = ul_compute_dtype(ul_lower_input_type(lower, node, PARAMETER)->dtype);
    u.scale = scale_input(u.node);
    for (uint32_t i = 0; i + 1 < u.node->output_count && i < MAX_STATES; i++)
        u.states[i] = load(&u, STATE + i);
    return u;
}

/* The gradient, multiplied, clipped to its bounds, and with the decay that is part of it. */
static ul_kx gradient_of(const struct update *u, bool decays)
{
    double bound = attribute(u, "clip_value"), decay = attribute(u, "weight_decay");
    ul_kx g = load(u, GRADIENT), first = ul_kx_index_const(u->kernel, 0);
    if (u->scale < u->node->input_count && u->node->inputs[u->scale] != UL_NONE)
        g = ul_kx_mul(u->kernel, g, ul_lower_load(u->lower, u->node->inputs[u->scale], &first));
    if (bound > 0) {
        ul_kx high = ul_kx_float(u->kernel, u->dtype, bound);
        ul_kx low = ul_kx_float(u->kernel, u->dtype, -bound);
        g = ul_kx_binary(u->kernel, UL_KX_MAX, ul_kx_binary(u->kernel, UL_KX_MIN, g, high), low);
    }
    if (decays && decay > 0)
        g = ul_kx_add(u->kernel, g, times(u, load(u, PARAMETER), decay));
    return g;
}

/* The parameter after the decay that is not part of the gradient. */
static ul_kx decayed(const struct update *u)
{
    double decay = attribute(u, "weight_decay");
    ul_kx w = load(u, PARAMETER), one = ul_kx_float(u->kernel, u->dtype, 1);
    if (!(decay > 0))
        return w;
    ul_kx lost = times(u, step_number(u, UL_STEP_RATE), decay);
    return ul_kx_mul(u->kernel, w, ul_kx_sub(u->kernel, one, lost));
}

/* What the step computed or, in a node that may skip steps, the old value where nothing is
 * learned. */
static ul_kx made_or(const struct update *u, ul_kx made, ul_kx old)
{
    struct ul_kernel *k = u->kernel;
    ul_kx at = ul_kx_index_const(k, UL_STEP_EVALUATES), zero = ul_kx_float(k, UL_F64, 0);
    if (ul_node_get_int(u->node, "skips", 0) == 0)
        return made;
    ul_kx number = ul_lower_load(u->lower, u->node->inputs[NUMBERS], &at);
    return ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, number, zero), made, old);
}

/* Gives one of the two bf16 numbers next to x, with a probability that grows the nearer x is to it:
 * random bits are added to those that will be cut. Values that are not numbers stay as they are. */
static ul_kx round_by_chance(const struct update *u, ul_kx x)
{
    struct ul_kernel *k = u->kernel;
    const struct ul_type *type = ul_lower_input_type(u->lower, u->node_id, PARAMETER);
    ul_kx first = ul_kx_index_const(k, 0);
    if (!rounds(u->node, u->scale))
        return x;
    x = ul_ks_let(k, x);
    ul_kx key = ul_lower_load(u->lower, u->node->inputs[u->scale + 1], &first);
    ul_kx counter = ul_kx_add(k, key, ul_random_position(k, type, u->index));
    ul_kx draw = ul_kx_random(k, counter, ul_random_seed(u->lower->graph, u->node));
    ul_kx low = ul_kx_binary(k, UL_KX_AND, draw, ul_kx_int(k, UL_U32, 0xFFFF));
    ul_kx bits = ul_kx_add(k, ul_kx_bitcast(k, UL_U32, x), low);
    /* It is drawn in any case, since compilers do not vectorise a draw that depends on a
     * condition. */
    bits = ul_ks_let(k, ul_kx_binary(k, UL_KX_AND, bits, ul_kx_int(k, UL_U32, 0xFFFF0000)));
    return ul_kx_select(k, ul_kx_unary(k, UL_KX_ISNAN, x), x, ul_kx_bitcast(k, UL_F32, bits));
}

/* Does the same for an output of a map. */
static ul_kx finish(const struct update *u, uint32_t output, ul_kx made)
{
    made = output == 0 ? round_by_chance(u, made) : made;
    return made_or(u, made, output == 0 ? load(u, PARAMETER) : u->states[output - 1]);
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
    return finish(&u, 0, descend(&u, load(&u, PARAMETER), gradient_of(&u, true)));
}

/* State m: momentum * m + g; after the first step it is g. */
ul_kx ul_map_update_momentum(struct ul_lower *lower, ul_node_id node, uint32_t output,
                             const ul_kx *index)
{
    struct update u = update_begin(lower, node, index);
    double momentum = attribute(&u, "momentum");
    ul_kx g = gradient_of(&u, true);
    ul_kx state = ul_kx_add(u.kernel, times(&u, u.states[0], momentum), g);
    if (output == 1)
        return finish(&u, output, state);
    if (ul_node_get_int(u.node, "nesterov", 0) != 0)
        state = ul_kx_add(u.kernel, g, times(&u, state, momentum));
    return finish(&u, output, descend(&u, load(&u, PARAMETER), state));
}

/* States: the mean m and the mean square v of gradients. decoupled: AdamW. Output 0 is the
 * parameter, the others are the states. */
static ul_kx adam(const struct update *u, uint32_t output)
{
    struct ul_kernel *k = u->kernel;
    bool decoupled = ul_node_get_int(u->node, "decoupled", 0) != 0;
    double beta2 = attribute(u, "beta2");
    ul_kx g = gradient_of(u, !decoupled);
    ul_kx m = mix(u, u->states[0], g, 1 - attribute(u, "beta1"));
    ul_kx v = ul_kx_add(k, times(u, u->states[1], beta2), times(u, ul_kx_mul(k, g, g), 1 - beta2));
    if (output != 0)
        return output == 1 ? m : v;
    ul_kx root = ul_kx_unary(k, UL_KX_SQRT, step_number(u, UL_STEP_BIAS2));
    ul_kx spread = ul_kx_binary(k, UL_KX_DIV, ul_kx_unary(k, UL_KX_SQRT, v), root);
    spread = ul_kx_add(k, spread, ul_kx_float(k, u->dtype, attribute(u, "eps")));
    ul_kx mean = ul_kx_binary(k, UL_KX_DIV, m, step_number(u, UL_STEP_BIAS1));
    ul_kx w = decoupled ? decayed(u) : load(u, PARAMETER);
    return descend(u, w, ul_kx_binary(k, UL_KX_DIV, mean, spread));
}

ul_kx ul_map_update_adam(struct ul_lower *lower, ul_node_id node, uint32_t output,
                         const ul_kx *index)
{
    struct update u = update_begin(lower, node, index);
    return finish(&u, output, adam(&u, output));
}

/* Moves by the sign of a mean; the state is another mean (Chen et al., arXiv 2302.06675, algorithm
 * 2). */
static ul_kx lion(const struct update *u, uint32_t output)
{
    struct ul_kernel *k = u->kernel;
    ul_kx g = gradient_of(u, false), m = u->states[0];
    if (output == 1)
        return mix(u, m, g, 1 - attribute(u, "beta2"));
    ul_kx c = mix(u, m, g, 1 - attribute(u, "beta1"));
    ul_kx zero = ul_kx_float(k, u->dtype, 0), one = ul_kx_float(k, u->dtype, 1);
    ul_kx minus = ul_kx_float(k, u->dtype, -1);
    ul_kx sign = ul_kx_select(k, ul_kx_binary(k, UL_KX_LT, zero, c), one,
                              ul_kx_select(k, ul_kx_binary(k, UL_KX_LT, c, zero), minus, zero));
    return descend(u, decayed(u), sign);
}

ul_kx ul_map_update_lion(struct ul_lower *lower, ul_node_id node, uint32_t output,
                         const ul_kx *index)
{
    struct update u = update_begin(lower, node, index);
    return finish(&u, output, lion(&u, output));
}

/* ---- states of 8 bits ---- */

enum { CODES = UL_UPDATE_CODES, DECADES = 7 };

/* States are in this order: first their codes and largest magnitudes, one after the other, then
 * their tables. */
static uint32_t states_of(const struct ul_node *node)
{
    return (node->output_count - 1) / 2;
}

static uint32_t codes_input(uint32_t state)
{
    return STATE + 2 * state;
}

static uint32_t table_input(const struct ul_node *node, uint32_t state)
{
    return STATE + 2 * states_of(node) + state;
}

static uint32_t bytes_scale_input(const struct ul_node *node)
{
    return STATE + 3 * states_of(node);
}

/* The first state is a mean, and so signed; the other is a mean of squares. */
static bool is_signed_state(uint32_t state)
{
    return state == 0;
}

/* Parts of a decade, and the largest number below 1. */
static int64_t part_count(bool is_signed, int decade)
{
    return (int64_t)1 << (is_signed ? decade : decade + 1);
}

static double middle_of(bool is_signed, int decade, int64_t part)
{
    double parts = (double)part_count(is_signed, decade);
    return pow(10, decade - DECADES + 1) * (0.1 + 0.9 * ((double)part + 0.5) / parts);
}

void ul_update_numbers(bool is_signed, double *numbers)
{
    uint32_t zero = is_signed ? CODES / 2 - 1 : 0, at = zero;
    numbers[at++] = 0;
    for (int decade = 0; decade < DECADES; decade++) {
        for (int64_t part = 0; part < part_count(is_signed, decade); part++, at++) {
            numbers[at] = middle_of(is_signed, decade, part);
            if (is_signed)
                numbers[2 * zero - at] = -numbers[at];
        }
    }
    numbers[at++] = 1;
    UL_ASSERT(at == CODES);
}

struct ul_type ul_update_blocks(const struct ul_type *type, uint32_t *axis, int64_t *group)
{
    struct ul_type blocks = ul_type_make(UL_F32, type->rank, type->dims);
    int64_t inner = 1;
    UL_ASSERT(type->rank > 0);
    *axis = type->rank - 1;
    while (*axis > 0 && type->dims[*axis] <= UL_UPDATE_BLOCK / inner) {
        int64_t size = type->dims[(*axis)--];
        inner *= size > 0 ? size : 1;
    }
    int64_t count = type->dims[*axis], most = UL_UPDATE_BLOCK / inner;
    int64_t groups = count == 0 ? 0 : (count - 1) / most + 1;
    *group = groups == 0 ? 1 : (count - 1) / groups + 1;
    blocks.dims[*axis] = count == 0 ? 0 : (count - 1) / *group + 1;
    blocks.rank = *axis + 1;
    return blocks;
}

enum ul_status ul_infer_update_bytes(struct ul_infer *infer)
{
    const int64_t numbers = UL_STEP_NUMBERS, codes = CODES;
    const struct ul_node *node = infer->node;
    const struct ul_type *type = ul_infer_input(infer, PARAMETER);
    uint32_t axis;
    int64_t group;
    UL_TRY(ul_check_dtype(infer, NUMBERS, UL_CHECK_BIT(UL_F64)));
    UL_TRY(ul_check_shape(infer, NUMBERS, 1, &numbers));
    UL_TRY(ul_check_dtype(infer, PARAMETER, UL_CHECK_BIT(UL_F32)));
    if (type->rank == 0)
        return ul_infer_invalid(infer, "a parameter of one number has no blocks");
    const struct ul_type blocks = ul_update_blocks(type, &axis, &group);
    UL_TRY(ul_check_same_dtype(infer, PARAMETER, GRADIENT));
    UL_TRY(ul_check_shape(infer, GRADIENT, type->rank, type->dims));
    ul_infer_set_type(infer, 0, type);
    for (uint32_t s = 0; s < states_of(node); s++) {
        uint32_t input = codes_input(s), table = table_input(node, s);
        UL_TRY(ul_check_dtype(infer, input, UL_CHECK_BIT(UL_U8)));
        UL_TRY(ul_check_shape(infer, input, type->rank, type->dims));
        UL_TRY(ul_check_dtype(infer, table, UL_CHECK_BIT(UL_F32)));
        UL_TRY(ul_check_shape(infer, table, 1, &codes));
        UL_TRY(ul_check_dtype(infer, input + 1, UL_CHECK_BIT(UL_F32)));
        UL_TRY(ul_check_shape(infer, input + 1, blocks.rank, blocks.dims));
        ul_infer_set(infer, 1 + 2 * s, UL_U8, type->rank, type->dims);
        ul_infer_set_type(infer, 2 + 2 * s, &blocks);
    }
    return check_last(infer, bytes_scale_input(node));
}

typedef ul_kx update_fn(const struct update *u, uint32_t output);

struct bytes {
    struct update u;
    update_fn *compute;
    const struct ul_type *type;
    ul_kx index[UL_LIMIT_RANK], block[UL_LIMIT_RANK];
    uint32_t axis;
    ul_kx begin; /* of the block, along the axis, */
    int64_t count;
    ul_kx old[MAX_STATES];
    /* Variables: the bits of magnitudes, which compare in the same order, with NaN last. Compilers
     * do not vectorise the maximum of floats. */
    uint32_t largest[MAX_STATES];
};

/* Loads the states of the element that the loops are at. */
static void load_states(struct bytes *b)
{
    struct ul_kernel *k = b->u.kernel;
    for (uint32_t s = 0; s < states_of(b->u.node); s++) {
        ul_kx code = ul_kx_cast(k, UL_I64, load(&b->u, codes_input(s)));
        code = ul_kx_clamp(k, code, CODES - 1);
        ul_value_id table = b->u.node->inputs[table_input(b->u.node, s)];
        b->u.states[s] =
            ul_ks_let(k, ul_kx_mul(k, ul_lower_load(b->u.lower, table, &code), b->old[s]));
    }
}

/* Opens loops over the elements of the block. */
static void open_elements(struct bytes *b, uint32_t flags)
{
    struct ul_kernel *k = b->u.kernel;
    ul_kx at = ul_ks_for(k, b->count, flags);
    b->index[b->axis] = ul_kx_add(k, b->begin, at);
    for (uint32_t d = b->axis + 1; d < b->type->rank; d++)
        b->index[d] = ul_ks_for(k, b->type->dims[d], flags);
    load_states(b);
}

static void close_elements(struct bytes *b)
{
    for (uint32_t d = b->axis; d < b->type->rank; d++)
        ul_ks_end(b->u.kernel);
}

/* Which of the numbers from 0 on is nearest to a magnitude of at most 1: found by its decade.
 * Within a decade, numbers are the middles of equal parts, `factor` parts for each unit, so that
 * the part a magnitude is in has the nearest number. */
static ul_kx find_magnitude(struct ul_kernel *k, bool is_signed, ul_kx size)
{
    int64_t first = 1; /* number of the decade */
    double below = 0;  /* the largest number below the decade */
    ul_kx found = ul_kx_float(k, UL_F32, 0);
    for (int decade = 0; decade <= DECADES; decade++) {
        bool is_one = decade == DECADES; /* the number 1 itself */
        int64_t count = is_one ? 1 : part_count(is_signed, decade);
        double low = is_one ? 1 : middle_of(is_signed, decade, 0);
        double factor = is_one ? 0 : (double)count / (0.9 * pow(10, decade - DECADES + 1));
        ul_kx part = ul_kx_mul(
            k, ul_kx_add(k, size, ul_kx_float(k, UL_F32, 0.5 / (factor > 0 ? factor : 1) - low)),
            ul_kx_float(k, UL_F32, factor));
        ul_kx high = ul_kx_float(k, UL_F32, (double)count - 1);
        part = ul_kx_unary(k, UL_KX_FLOOR, ul_kx_binary(k, UL_KX_MIN, part, high));
        part = ul_kx_binary(k, UL_KX_MAX, part, ul_kx_float(k, UL_F32, 0));
        ul_kx border = ul_kx_float(k, UL_F32, (below + low) / 2);
        /* Both are computed in any case, since compilers do not vectorise what depends on a
         * condition. */
        part = ul_ks_let(k, ul_kx_add(k, part, ul_kx_float(k, UL_F32, (double)first)));
        found = ul_ks_let(k, ul_kx_select(k, ul_kx_binary(k, UL_KX_LE, border, size), part, found));
        first += count;
        below = is_one ? 1 : middle_of(is_signed, decade, count - 1);
    }
    return ul_ks_let(k, ul_kx_cast(k, UL_I32, found));
}

/* The code nearest to a part, from -1 or 0 to 1. */
static ul_kx find_code(struct ul_kernel *k, bool is_signed, ul_kx part)
{
    if (!is_signed)
        return find_magnitude(k, false, part);
    const int64_t zero = CODES / 2 - 1;
    ul_kx at = find_magnitude(k, true, ul_kx_unary(k, UL_KX_ABS, part));
    ul_kx below = ul_kx_binary(k, UL_KX_MAX, ul_kx_sub(k, ul_kx_int(k, UL_I32, zero), at),
                               ul_kx_int(k, UL_I32, 0)); /* there is no code for -1 */
    ul_kx above = ul_kx_add(k, at, ul_kx_int(k, UL_I32, zero));
    return ul_kx_select(k, ul_kx_binary(k, UL_KX_LT, part, ul_kx_float(k, UL_F32, 0)), below,
                        above);
}

/* Stores what the step leaves of an element. */
static void store_element(struct bytes *b, const ul_kx *factors)
{
    struct ul_kernel *k = b->u.kernel;
    const struct ul_node *node = b->u.node;
    ul_kx made[1 + MAX_STATES];
    for (uint32_t i = 0; i <= states_of(node); i++)
        made[i] = ul_ks_let(k, b->compute(&b->u, i));
    ul_kx old = load(&b->u, PARAMETER);
    made[0] = round_by_chance(&b->u, made[0]);
    ul_lower_store(b->u.lower, node->outputs[0], b->index, made_or(&b->u, made[0], old));
    for (uint32_t s = 0; s < states_of(node); s++) {
        ul_kx part = ul_ks_let(k, ul_kx_mul(k, made[1 + s], factors[s]));
        ul_kx code = ul_kx_cast(k, ul_compute_dtype(UL_U8), find_code(k, is_signed_state(s), part));
        code = made_or(&b->u, code, load(&b->u, codes_input(s)));
        ul_lower_store(b->u.lower, node->outputs[1 + 2 * s], b->index, code);
    }
}

/* The bits of the magnitude that a state of the element will have. */
static ul_kx next_size(const struct bytes *b, uint32_t state)
{
    struct ul_kernel *k = b->u.kernel;
    return ul_kx_bitcast(k, UL_U32, ul_kx_unary(k, UL_KX_ABS, b->compute(&b->u, 1 + state)));
}

static void find_largest(struct bytes *b)
{
    struct ul_kernel *k = b->u.kernel;
    open_elements(b, UL_FOR_REDUCE);
    for (uint32_t s = 0; s < states_of(b->u.node); s++)
        ul_ks_set(k, b->largest[s],
                  ul_kx_binary(k, UL_KX_MAX, ul_kx_var(k, b->largest[s]), next_size(b, s)));
    close_elements(b);
}

/* ---- By a team of threads ---- */

enum { TEAM = 32 }; /* a warp, which needs no barrier */

static int64_t elements_of(const struct bytes *b)
{
    int64_t count = b->count;
    for (uint32_t d = b->axis + 1; d < b->type->rank; d++)
        count *= b->type->dims[d];
    return count;
}

/* Opens a loop over the elements from `first` on, shared by several threads. The caller ends the
 * loop. Returns the loop's index. */
static ul_kx open_shared(struct bytes *b, ul_kx first, int64_t count)
{
    struct ul_kernel *k = b->u.kernel;
    ul_kx at = ul_ks_for(k, count, UL_FOR_PARALLEL), element = ul_kx_add(k, first, at);
    int64_t below = elements_of(b) / b->count;
    b->index[b->axis] = ul_kx_add(k, b->begin, ul_kx_divi(k, element, below));
    for (uint32_t d = b->axis + 1; d < b->type->rank; d++) {
        below /= b->type->dims[d];
        b->index[d] = ul_kx_modi(k, ul_kx_divi(k, element, below), b->type->dims[d]);
    }
    load_states(b);
    return at;
}

static void add_largest(struct bytes *b, const uint32_t *partial, ul_kx first, int64_t count)
{
    struct ul_kernel *k = b->u.kernel;
    ul_kx at = open_shared(b, first, count);
    for (uint32_t s = 0; s < states_of(b->u.node); s++)
        ul_ks_store(k, partial[s], at,
                    ul_kx_binary(k, UL_KX_MAX, ul_kx_load(k, partial[s], at), next_size(b, s)));
    ul_ks_end(k);
}

/* On a device a thread would read its block alone, far from where its neighbours read. */
static void find_largest_by_team(struct bytes *b)
{
    struct ul_kernel *k = b->u.kernel;
    int64_t count = elements_of(b);
    uint32_t partial[MAX_STATES] = {0}, states = states_of(b->u.node);
    for (uint32_t s = 0; s < states; s++)
        partial[s] = ul_lower_local(b->u.lower, UL_U32, TEAM);
    ul_kx at = ul_ks_for(k, TEAM, UL_FOR_PARALLEL);
    for (uint32_t s = 0; s < states; s++)
        ul_ks_store(k, partial[s], at, ul_kx_int(k, UL_U32, 0));
    ul_ks_end(k);
    ul_kx round = ul_ks_for(k, count / TEAM, 0);
    add_largest(b, partial, ul_kx_muli(k, round, TEAM), TEAM);
    ul_ks_end(k);
    if (count % TEAM != 0)
        add_largest(b, partial, ul_kx_index_const(k, count / TEAM * TEAM), count % TEAM);
    for (uint32_t s = 0; s < states; s++)
        ul_ks_set(k, b->largest[s], ul_lanes_fold(k, partial[s], TEAM, UL_KX_MAX));
}

static void update_block(struct bytes *b)
{
    bool has_team = b->u.lower->traits->partial_count > 0 && elements_of(b) >= TEAM;
    struct ul_kernel *k = b->u.kernel;
    const struct ul_node *node = b->u.node;
    ul_kx zero = ul_kx_float(k, UL_F32, 0), one = ul_kx_float(k, UL_F32, 1), factors[MAX_STATES];
    for (uint32_t s = 0; s < states_of(node); s++) {
        b->old[s] =
            ul_ks_let(k, ul_lower_load(b->u.lower, node->inputs[codes_input(s) + 1], b->block));
        b->largest[s] = ul_ks_var(k, UL_U32, ul_kx_int(k, UL_U32, 0));
    }
    if (has_team)
        find_largest_by_team(b);
    else
        find_largest(b);
    for (uint32_t s = 0; s < states_of(node); s++) {
        ul_kx largest = ul_ks_let(k, ul_kx_bitcast(k, UL_F32, ul_kx_var(k, b->largest[s])));
        ul_kx some = ul_kx_binary(k, UL_KX_LT, zero, largest);
        factors[s] =
            ul_ks_let(k, ul_kx_select(k, some, ul_kx_binary(k, UL_KX_DIV, one, largest), zero));
        ul_lower_store(b->u.lower, node->outputs[2 + 2 * s], b->block,
                       made_or(&b->u, largest, b->old[s]));
    }
    if (has_team) {
        (void)open_shared(b, ul_kx_index_const(k, 0), elements_of(b));
        store_element(b, factors);
        ul_ks_end(k);
        return;
    }
    open_elements(b, UL_FOR_ALONE);
    store_element(b, factors);
    close_elements(b);
}

/* Takes whole groups first, then what is left: loops of constant length, so that compilers see that
 * blocks do not overlap. */
static void update_row(struct bytes *b, int64_t group)
{
    struct ul_kernel *k = b->u.kernel;
    int64_t whole = b->type->dims[b->axis] / group, rest = b->type->dims[b->axis] % group;
    b->count = group;
    b->block[b->axis] = ul_ks_for(k, whole, UL_FOR_PARALLEL);
    b->begin = ul_kx_muli(k, b->block[b->axis], group);
    update_block(b);
    ul_ks_end(k);
    if (rest == 0)
        return;
    b->count = rest;
    b->block[b->axis] = ul_kx_index_const(k, whole);
    b->begin = ul_kx_index_const(k, whole * group);
    update_block(b);
}

static void lower_bytes(struct ul_lower *lower, ul_node_id node, update_fn *compute)
{
    struct ul_kernel *k = lower->kernel;
    struct bytes b = {.compute = compute};
    int64_t group;
    b.type = ul_lower_input_type(lower, node, PARAMETER);
    b.u = (struct update){
        .lower = lower, .kernel = k, .node = ul_check_node(lower, node), .dtype = UL_F32};
    b.u.node_id = node;
    b.u.index = b.index;
    b.u.scale = bytes_scale_input(b.u.node);
    (void)ul_update_blocks(b.type, &b.axis, &group);
    UL_ASSERT(states_of(b.u.node) >= 1 && states_of(b.u.node) <= MAX_STATES);
    for (uint32_t d = 0; d < b.axis; d++)
        b.index[d] = b.block[d] = ul_ks_for(k, b.type->dims[d], UL_FOR_PARALLEL);
    update_row(&b, group);
    for (uint32_t d = 0; d < b.axis; d++)
        ul_ks_end(k);
}

void ul_lower_update_adam_bytes(struct ul_lower *lower, ul_node_id node)
{
    lower_bytes(lower, node, adam);
}

void ul_lower_update_lion_bytes(struct ul_lower *lower, ul_node_id node)
{
    lower_bytes(lower, node, lion);
}
