/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of onnxruntime's training graphs that overwrite what they read: accumulation of
 * gradients, and optimizers over sequences of tensors. Each overwritten value gets an output of the
 * model, with its name plus _out (build.c), which then overwrites it in place (--donate). The
 * operators' own results are a flag, and the new values where they have names. */
#include "frontend/upgrade_microsoft.h"

/* The tensors of an input that is a sequence. */
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

static void set_flag(struct ul_old_node *node)
{
    ul_value_id yes = ul_old_make(node, NULL, "Cast([1]) {to=bool}");
    ul_old_set_result(node, 0, yes);
    node->finished = true;
}

static ul_value_id choose(struct ul_old_node *node, ul_value_id flag, ul_value_id yes,
                          ul_value_id no)
{
    const struct ul_tensor *known = ul_old_tensor(node, flag);
    if (known != NULL && ul_type_elements(&known->type) == 1)
        return ul_tensor_get_int(known, 0) != 0 ? yes : no;
    return ul_old_make(
        node,
        UL_WITH({"flag", ul_row_value(flag)}, {"yes", ul_row_value(yes)}, {"no", ul_row_value(no)}),
        "Where(Reshape(flag, []), yes, no)");
}

/* Values inside a loop or branch cannot be outputs of the model. */
static bool can_overwrite(struct ul_old_node *node)
{
    if (node->builder->block == 0)
        return true;
    return ul_old_problem(
        node, "overwrites what it reads inside of a loop or branch; take it out of there");
}

/* Inputs: buffer, value, whether to begin anew. Outputs: a flag, and the new buffer. */
void ul_microsoft_accumulate(struct ul_old_node *node)
{
    if (!can_overwrite(node))
        return;
    ul_value_id sum = ul_old_make(node, NULL, "sum + x");
    if (ul_old_has_input(node, 2))
        sum = choose(node, node->inputs[2], node->inputs[1], sum);
    ul_builder_overwrite(node->builder, node->inputs[0], sum);
    set_flag(node);
    ul_old_set_result(node, 1, sum);
}

/* Inputs: old sum, value, whether to update at all. Output: the new sum. */
void ul_microsoft_accumulate_once(struct ul_old_node *node)
{
    if (!can_overwrite(node))
        return;
    ul_value_id sum = ul_old_make(node, NULL, "sum + Cast(x) {to=sum.type}");
    if (ul_old_has_input(node, 2))
        sum = choose(node, node->inputs[2], sum, node->inputs[0]);
    ul_builder_overwrite(node->builder, node->inputs[0], sum);
    ul_old_set_result(node, 0, sum);
    node->finished = true;
}

/* The new values of tensors, in order: they overwrite the old ones, and form a sequence. */
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

/* Inputs: rate, parameters, gradients, whether to update. */
void ul_microsoft_sgd(struct ul_old_node *node)
{
    if (!can_overwrite(node))
        return;
    const struct ul_sequence *parameters = tensors_of(node, 1, NULL);
    const struct ul_sequence *gradients =
        parameters == NULL ? NULL : tensors_of(node, 2, parameters);
    if (gradients == NULL)
        return;
    ul_value_id rate = ul_old_make(node, NULL, "Reshape(Cast(rate) {to=f32}, [])");
    struct updated updated = updated_new(node, parameters->count);
    for (uint32_t i = 0; i < parameters->count; i++) {
        ul_value_id made = ul_old_make(node,
                                       UL_WITH({"p", ul_row_value(parameters->items[i])},
                                               {"g", ul_row_value(gradients->items[i])},
                                               {"rate", ul_row_value(rate)}),
                                       "p - g * rate");
        put(&updated, 0, i, parameters->items[i], made, ul_old_input(node, 3));
    }
    finish_updated(&updated, 1);
}

/* ---- AdamW ---- */

/* The rate of the step, with the correction of the moments in mode 1; 1 - rate * weight_decay, if
 * it decays; and the factor of the root of the second moment, if it is corrected. */
static const char adam_numbers[] =
    "r = Reshape(Cast(rate) {to=f32}, []); t = Reshape(Cast(step) {to=f32}, []); "
    "decay = weight_decay != 0 ? 1 - r * weight_decay : none; "
    "r = correct_bias ? r / (1 - Pow(alpha, t)) : r; "
    "root = correct_bias ? Sqrt(1 - Pow(beta, t)) : none; "
    "adam_mode == 0 ? r : r * root, decay, adam_mode == 0 && correct_bias ? Reciprocal(root) : "
    "none";
static const char adam_step[] =
    "m = m * alpha + g * (1 - alpha); v = v * beta + g * g * (1 - beta); "
    "by = m / (Sqrt(v) * root + epsilon) * rate; p = adam_mode == 0 ? p * decay : p; "
    "p = p - by; adam_mode == 0 ? p : p * decay, m, v";

/* Inputs: rate, step (from 1 on), parameters, gradients, first and second moments, whether to
 * update. */
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
    ul_value_id numbers[3], made[3];
    if (!ul_old_run(node, NULL, adam_numbers, 3, numbers))
        return;
    struct updated updated = updated_new(node, of[0]->count);
    for (uint32_t i = 0; i < of[0]->count; i++) {
        const ul_value_id old[3] = {of[0]->items[i], of[2]->items[i], of[3]->items[i]};
        if (!ul_old_run(node,
                        UL_WITH({"p", ul_row_value(old[0])}, {"g", ul_row_value(of[1]->items[i])},
                                {"m", ul_row_value(old[1])}, {"v", ul_row_value(old[2])},
                                {"rate", ul_row_value(numbers[0])},
                                {"decay", ul_row_value(numbers[1])},
                                {"root", ul_row_value(numbers[2])}),
                        adam_step, 3, made))
            return;
        for (uint32_t k = 0; k < 3; k++)
            put(&updated, k, i, old[k], made[k], ul_old_input(node, 6));
    }
    finish_updated(&updated, 3);
}

/* Scales gradients by the norm of all. The buffers that they came from keep their values:
 * accumulation begins anew after an update. */
void ul_microsoft_clip_norm(struct ul_old_node *node)
{
    const struct ul_sequence *gradients = tensors_of(node, 0, NULL);
    if (gradients == NULL)
        return;
    ul_value_id *clipped = UL_NEW_ARRAY(node->builder->scratch, ul_value_id, gradients->count);
    if (gradients->count > 0) {
        ul_value_id sum = ul_microsoft_square_sum(node, gradients->items, gradients->count);
        ul_value_id factor = ul_old_make(node, UL_WITH({"sum", ul_row_value(sum)}),
                                         "Min(max_norm:f32 / (Sqrt(sum) + 1e-6f), 1)");
        for (uint32_t i = 0; i < gradients->count; i++)
            clipped[i] = ul_build_mul(ul_old_build(node), gradients->items[i], factor);
    }
    if (node->output_count > 0)
        node->results[0] = ul_builder_add_sequence(node->builder, clipped, gradients->count);
    node->finished = true;
}
