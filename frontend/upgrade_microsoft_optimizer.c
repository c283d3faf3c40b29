/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of onnxruntime's training graphs that overwrite what they read: accumulation of
 * gradients, and optimizers over sequences of tensors. What would be overwritten gets an output of
 * the model of its own, named after it with _out behind (build.c), which then overwrites it where
 * it lies (--donate). Their own results are a flag, and the new values where they are named. */
#include "frontend/upgrade_microsoft.h"

#include <string.h>

/* Tensors of an input that is a sequence. */
static const struct ul_sequence *tensors_of(struct ul_old_node *node, uint32_t input,
                                            const struct ul_sequence *like)
{
    ul_value_id value = ul_old_input(node, input);
    if (value == UL_NONE || !ul_sequence_is(value)) {
        ul_old_not_known(node, value, "takes a sequence of tensors whose number is not known here");
        return NULL;
    }
    const struct ul_sequence *sequence = &node->builder->sequences[value - UL_SEQUENCE_FIRST];
    if (like == NULL || like->count == sequence->count)
        return sequence;
    ul_old_invalid(node, "has sequences of different lengths");
    return NULL;
}

static ul_value_id as_number(struct ul_old_node *node, ul_value_id x)
{
    return ul_old_emit_reshape(node, ul_old_emit_cast(node, x, UL_F32), 0, NULL);
}

static void set_flag(struct ul_old_node *node)
{
    const int64_t one = 1;
    ul_value_id yes = ul_old_emit_cast(node, ul_old_const_ints(node, &one, 1), UL_BOOL);
    ul_old_set_result(node, 0, yes);
    node->finished = true;
}

static ul_value_id choose(struct ul_old_node *node, ul_value_id flag, ul_value_id yes,
                          ul_value_id no)
{
    const struct ul_tensor *known = ul_old_tensor(node, flag);
    if (known != NULL && ul_type_elements(&known->type) == 1)
        return ul_tensor_get_int(known, 0) != 0 ? yes : no;
    const ul_value_id inputs[3] = {ul_old_emit_reshape(node, flag, 0, NULL), yes, no};
    return ul_old_emit(node, "Where", 3, inputs, 0, NULL);
}

/* The model's outputs cannot be of values inside of a loop or branch. */
static bool can_overwrite(struct ul_old_node *node)
{
    if (node->builder->block == 0)
        return true;
    ul_old_problem(node,
                   "overwrites what it reads inside of a loop or branch; take it out of there");
    return false;
}

/* buffer, value, whether to begin anew; gives a flag, and the new buffer. */
void ul_microsoft_accumulate(struct ul_old_node *node)
{
    if (!can_overwrite(node))
        return;
    ul_value_id sum = ul_old_emit_two(node, "Add", node->inputs[0], node->inputs[1]);
    if (ul_old_has_input(node, 2))
        sum = choose(node, node->inputs[2], node->inputs[1], sum);
    ul_builder_overwrite(node->builder, node->inputs[0], sum);
    set_flag(node);
    ul_old_set_result(node, 1, sum);
}

/* old sum, value, whether to update at all; gives the new sum. */
void ul_microsoft_accumulate_once(struct ul_old_node *node)
{
    if (!can_overwrite(node))
        return;
    ul_value_id value = ul_old_emit_cast(node, node->inputs[1], ul_old_dtype(node, 0));
    ul_value_id sum = ul_old_emit_two(node, "Add", node->inputs[0], value);
    if (ul_old_has_input(node, 2))
        sum = choose(node, node->inputs[2], sum, node->inputs[0]);
    ul_builder_overwrite(node->builder, node->inputs[0], sum);
    ul_old_set_result(node, 0, sum);
    node->finished = true;
}

/* What of the tensors becomes, one behind the other: overwritten, and in a sequence. */
struct updated {
    struct ul_old_node *node;
    ul_value_id *values[3]; /* parameters, then states */
    uint32_t count;
};

static struct updated updated_new(struct ul_old_node *node, uint32_t count)
{
    struct updated updated = {.node = node, .count = count};
    for (uint32_t i = 0; i < 3; i++)
        updated.values[i] = UL_NEW_ARRAY(node->builder->scratch, ul_value_id, count);
    return updated;
}

static void put(struct updated *updated, uint32_t which, uint32_t at, ul_value_id old,
                ul_value_id made, ul_value_id signal)
{
    if (signal != UL_NONE)
        made = choose(updated->node, signal, made, old);
    ul_builder_overwrite(updated->node->builder, old, made);
    updated->values[which][at] = made;
}

static void finish_updated(struct updated *updated, uint32_t kinds)
{
    struct ul_old_node *node = updated->node;
    for (uint32_t i = 0; i < kinds && i + 1 < node->output_count; i++)
        node->results[i + 1] =
            ul_builder_add_sequence(node->builder, updated->values[i], updated->count);
    set_flag(node);
}

/* rate, parameters, gradients, whether to update */
void ul_microsoft_sgd(struct ul_old_node *node)
{
    if (!can_overwrite(node))
        return;
    const struct ul_sequence *parameters = tensors_of(node, 1, NULL);
    const struct ul_sequence *gradients =
        parameters == NULL ? NULL : tensors_of(node, 2, parameters);
    if (gradients == NULL)
        return;
    ul_value_id rate = as_number(node, node->inputs[0]);
    struct updated updated = updated_new(node, parameters->count);
    for (uint32_t i = 0; i < parameters->count; i++) {
        ul_value_id step = ul_old_emit_two(node, "Mul", gradients->items[i], rate);
        put(&updated, 0, i, parameters->items[i],
            ul_old_emit_two(node, "Sub", parameters->items[i], step), ul_old_input(node, 3));
    }
    finish_updated(&updated, 1);
}

/* ---- AdamW ---- */

struct adam {
    ul_value_id rate;  /* of the step: with what corrects the moments, in mode 1 */
    ul_value_id decay; /* 1 - rate * weight_decay; UL_NONE: there is none */
    ul_value_id root;  /* what the root of the second moment is multiplied by; UL_NONE: 1 */
    double beta1, beta2, epsilon;
    bool decays_first;
};

static ul_value_id times(struct ul_old_node *node, ul_value_id x, double number)
{
    return ul_old_emit_two(node, "Mul", x, ul_old_const_float(node, UL_F32, number));
}

/* 1 - beta^step */
static ul_value_id correction(struct ul_old_node *node, ul_value_id step, double beta)
{
    ul_value_id base = ul_old_const_float(node, UL_F32, beta);
    ul_value_id power = ul_old_emit_two(node, "Pow", base, step);
    return ul_old_emit_two(node, "Sub", ul_old_const_float(node, UL_F32, 1), power);
}

static struct adam read_adam(struct ul_old_node *node)
{
    struct adam adam = {.beta1 = ul_old_float(node, "alpha", (double)0.9f),
                        .beta2 = ul_old_float(node, "beta", (double)0.999f),
                        .epsilon = ul_old_float(node, "epsilon", (double)1e-8f),
                        .decays_first = ul_old_int(node, "adam_mode", 0) == 0,
                        .decay = UL_NONE,
                        .root = UL_NONE};
    double decay = ul_old_float(node, "weight_decay", (double)1e-2f);
    ul_value_id rate = as_number(node, node->inputs[0]);
    ul_value_id step = as_number(node, node->inputs[1]);
    adam.rate = rate;
    if (decay != 0)
        adam.decay = ul_old_emit_two(node, "Sub", ul_old_const_float(node, UL_F32, 1),
                                     times(node, rate, decay));
    if (ul_old_int(node, "correct_bias", 1) == 0)
        return adam;
    adam.rate = ul_old_emit_two(node, "Div", rate, correction(node, step, adam.beta1));
    ul_value_id root = ul_old_emit_one(node, "Sqrt", correction(node, step, adam.beta2));
    if (adam.decays_first)
        adam.root = ul_old_emit_one(node, "Reciprocal", root);
    else
        adam.rate = ul_old_emit_two(node, "Mul", adam.rate, root);
    return adam;
}

static ul_value_id next_moment(struct ul_old_node *node, ul_value_id moment, ul_value_id x,
                               double beta)
{
    return ul_old_emit_two(node, "Add", times(node, moment, beta), times(node, x, 1 - beta));
}

static ul_value_id next_parameter(struct ul_old_node *node, const struct adam *adam,
                                  ul_value_id parameter, ul_value_id first, ul_value_id second)
{
    ul_value_id below = ul_old_emit_one(node, "Sqrt", second);
    if (adam->root != UL_NONE)
        below = ul_old_emit_two(node, "Mul", below, adam->root);
    below = ul_old_emit_two(node, "Add", below, ul_old_const_float(node, UL_F32, adam->epsilon));
    ul_value_id step = ul_old_emit_two(node, "Div", first, below);
    step = ul_old_emit_two(node, "Mul", step, adam->rate);
    if (adam->decay != UL_NONE && adam->decays_first)
        parameter = ul_old_emit_two(node, "Mul", parameter, adam->decay);
    parameter = ul_old_emit_two(node, "Sub", parameter, step);
    if (adam->decay != UL_NONE && !adam->decays_first)
        parameter = ul_old_emit_two(node, "Mul", parameter, adam->decay);
    return parameter;
}

/* rate, step (from 1 on), parameters, gradients, first and second moments, whether to update */
void ul_microsoft_adamw(struct ul_old_node *node)
{
    if (!can_overwrite(node))
        return;
    const struct ul_sequence *of[4] = {tensors_of(node, 2, NULL)};
    for (uint32_t i = 1; i < 4; i++) {
        of[i] = of[0] == NULL || of[i - 1] == NULL ? NULL : tensors_of(node, 2 + i, of[0]);
        if (of[i] == NULL)
            return;
    }
    struct adam adam = read_adam(node);
    struct updated updated = updated_new(node, of[0]->count);
    ul_value_id signal = ul_old_input(node, 6);
    for (uint32_t i = 0; i < of[0]->count; i++) {
        ul_value_id g = of[1]->items[i];
        ul_value_id first = next_moment(node, of[2]->items[i], g, adam.beta1);
        ul_value_id second =
            next_moment(node, of[3]->items[i], ul_old_emit_two(node, "Mul", g, g), adam.beta2);
        put(&updated, 0, i, of[0]->items[i],
            next_parameter(node, &adam, of[0]->items[i], first, second), signal);
        put(&updated, 1, i, of[2]->items[i], first, signal);
        put(&updated, 2, i, of[3]->items[i], second, signal);
    }
    finish_updated(&updated, 3);
}

/* Gradients by the norm of all. The buffers that they came from keep what they have: who adds up
 * gradients begins anew behind an update. */
void ul_microsoft_clip_norm(struct ul_old_node *node)
{
    const struct ul_sequence *gradients = tensors_of(node, 0, NULL);
    if (gradients == NULL)
        return;
    if (strcmp(ul_old_string(node, "norm_type", "fro"), "fro") != 0) {
        ul_old_problem(node, "with a norm other than that of squares is not supported");
        return;
    }
    ul_value_id *clipped = UL_NEW_ARRAY(node->builder->scratch, ul_value_id, gradients->count);
    if (gradients->count > 0) {
        ul_value_id norm = ul_microsoft_square_sum(node, gradients->items, gradients->count);
        norm = ul_old_emit_one(node, "Sqrt", norm);
        norm = ul_old_emit_two(node, "Add", norm,
                               ul_old_const_float(node, UL_F32, UL_MICROSOFT_CLIP_EPSILON));
        double bound = ul_old_float(node, "max_norm", 1);
        ul_value_id factor =
            ul_old_emit_two(node, "Div", ul_old_const_float(node, UL_F32, bound), norm);
        factor = ul_old_emit_two(node, "Min", factor, ul_old_const_float(node, UL_F32, 1));
        for (uint32_t i = 0; i < gradients->count; i++)
            clipped[i] = ul_old_emit_two(node, "Mul", gradients->items[i], factor);
    }
    if (node->output_count > 0)
        node->results[0] = ul_builder_add_sequence(node->builder, clipped, gradients->count);
    node->finished = true;
}
