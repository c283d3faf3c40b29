/* SPDX-License-Identifier: Apache-2.0 */
/* A dynamic loss scale: fp16 keeps gradients of small losses apart from 0, and none is learned of
 * that left its range.
 *
 * Problem: the smallest number of fp16 is 6e-8, and many gradients are below. Method (Micikevicius
 * et al., arXiv 1710.03740, section 3.2; the rule is that of torch.cuda.amp.GradScaler): what flows
 * back begins with a scale in place of 1, and updates multiply gradients by 1 / scale. All
 * gradients are looked at before the first update: where one is not finite, nothing is learned of
 * the step, and the scale is halved; after so many steps in a row of which something was, it
 * doubles:
 *
 *      excess = sum over all gradients of g - g            0, or NaN where one is not finite
 *      numbers' = numbers of the step, with UL_STEP_EVALUATES where excess is not 0
 *      scale', tracker', steps' = by excess                they overwrite themselves
 *
 * A step that is skipped runs the same kernels: updates read `numbers'` and choose by it, element
 * by element, so that neither the host nor a branch decides. So do states of the model itself,
 * which running statistics are (torch writes these in the forward pass, and loses a run by one
 * sample that overflows): they are written after the last gradient, and of several runs of a step
 * by the last, from what the others left in a state beside (ul_update_pending). Where such a state
 * alone is not finite it stays too: its forward pass overflowed, whatever the loss is scaled by.
 * Steps that were taken are counted here, since the corrections of Adam's means go by them
 * (UL_STEP_BIAS1). Left undone: gradients that are formed twice (--clip-mode twice) and so need not
 * be kept. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/training/update.h"

#include <math.h>
#include <string.h>

static ul_value_id find_weight(const struct ul_graph *graph, const char *name)
{
    for (uint32_t v = 0; v < graph->value_count; v++)
        if (graph->values[v].kind == UL_VALUE_WEIGHT && graph->values[v].name != NULL &&
            strcmp(graph->values[v].name, name) == 0 &&
            (graph->values[v].flags & UL_VALUE_OPTIMIZER) != 0)
            return v;
    return UL_NONE;
}

ul_value_id ul_loss_scale(struct ul_graph *graph, const struct ul_training *training)
{
    const struct ul_type type = ul_type_make(UL_F32, 0, NULL);
    if (!(training->loss_scale > 0))
        return UL_NONE;
    ul_value_id scale = find_weight(graph, UL_TRAINING_SCALE);
    return scale != UL_NONE ? scale
                            : ul_edit_add_state(graph, UL_TRAINING_SCALE, &type, UL_VALUE_OPTIMIZER,
                                                training->loss_scale);
}

ul_value_id ul_loss_scale_seed(struct ul_gradient *make, const struct ul_training *training,
                               ul_value_id loss)
{
    const struct ul_type type = ul_gradient_type(make, loss);
    ul_value_id scale = ul_loss_scale(make->graph, training);
    if (scale == UL_NONE || training->piece_count > 0)
        return ul_build_number(make->graph, "loss/gradient", type.dtype, type.rank, 1.0);
    make->build.name = "loss/gradient";
    return ul_build_reshape_to(&make->build, ul_build_cast(&make->build, scale, type.dtype), &type);
}

ul_value_id ul_loss_scale_excess(struct ul_updates *updates, ul_value_id gradient)
{
    struct ul_gradient *make = updates->make;
    make->build.name = UL_TRAINING_SCALE;
    ul_value_id none = ul_build_binary(&make->build, UL_OP_Sub, gradient, gradient);
    ul_node_id node = ul_build_node(&make->build, UL_OP_ReduceSum, &none, 1, 1);
    ul_node_set_int(make->graph, node, "keepdims", 0);
    return ul_build_cast(&make->build, ul_build_infer(&make->build, node), UL_F32);
}

/* Where `which` says so, by its number, another value. */
static ul_value_id with_number(struct ul_gradient *make, ul_value_id numbers, uint32_t first,
                               uint32_t count, ul_value_id value)
{
    double chosen[UL_STEP_NUMBERS] = {0};
    const int64_t dims[1] = {UL_STEP_NUMBERS};
    const struct ul_type type = ul_type_make(UL_BOOL, 1, dims);
    for (uint32_t i = first; i < first + count; i++)
        chosen[i] = 1;
    return ul_build_choose(&make->build, ul_build_numbers(&make->build, &type, chosen), value,
                           numbers);
}

/* 1 - beta^t of both means, t being the number of this step among those that are taken. */
static ul_value_id corrections(struct ul_updates *updates)
{
    struct ul_gradient *make = updates->make;
    const struct ul_training *training = updates->pass->options->training;
    const int64_t dims[1] = {UL_STEP_NUMBERS};
    const struct ul_type type = ul_type_make(UL_F64, 1, dims);
    double betas[UL_STEP_NUMBERS] = {0};
    betas[UL_STEP_BIAS1] = training->beta1;
    betas[UL_STEP_BIAS2] = training->beta2;
    ul_value_id power = ul_build_binary(
        &make->build, UL_OP_Pow, ul_build_numbers(&make->build, &type, betas), updates->number);
    return ul_build_binary(&make->build, UL_OP_Sub, ul_build_number_like(&make->build, power, 1),
                           power);
}

/* Half of it; or, where the steps in a row are enough, twice as much, unless that were infinite. */
static ul_value_id next_scale(struct ul_gradient *make, ul_value_id scale, ul_value_id finite,
                              ul_value_id grows)
{
    ul_value_id twice = ul_build_scale(&make->build, scale, 2);
    ul_value_id fits = ul_build_binary(&make->build, UL_OP_Less, twice,
                                       ul_build_number_like(&make->build, scale, (double)INFINITY));
    ul_value_id grown = ul_build_choose(
        &make->build, ul_build_binary(&make->build, UL_OP_And, grows, fits), twice, scale);
    return ul_build_choose(&make->build, finite, grown, ul_build_scale(&make->build, scale, 0.5));
}

static ul_value_id add_count(struct ul_updates *updates, const char *name)
{
    const struct ul_type type = ul_type_make(UL_I64, 0, NULL);
    return ul_edit_add_state(updates->make->graph, name, &type, UL_VALUE_OPTIMIZER, 0);
}

/* 0 is what is left of a finite number. */
static ul_value_id is_finite(struct ul_gradient *make, ul_value_id value)
{
    ul_value_id none = ul_build_binary(&make->build, UL_OP_Sub, value, value);
    return ul_build_binary(&make->build, UL_OP_Equal, none,
                           ul_build_number_like(&make->build, none, 0));
}

/* States that the model writes, which so far does so in every run. */
static void guard_states(struct ul_gradient *make, ul_value_id finite)
{
    struct ul_graph *graph = make->graph;
    uint32_t count = ul_graph_only_root(graph)->output_count;
    for (uint32_t i = 0; i < count; i++) {
        ul_value_id made = ul_graph_only_root(graph)->outputs[i], state = graph->values[made].donor;
        if (state == UL_NONE || (graph->values[state].flags & UL_VALUE_GRADIENT) != 0)
            continue;
        make->build.name = graph->values[state].name;
        graph->values[made].donor = UL_NONE;
        ul_value_id learns = finite;
        if (ul_dtype_get(graph->values[made].type.dtype)->is_float)
            learns = ul_build_binary(&make->build, UL_OP_And, finite, is_finite(make, made));
        ul_value_id next = ul_build_choose(&make->build, learns, made, state);
        graph->values[state].flags |= UL_VALUE_GUARDED;
        ul_edit_add_next(graph, next, state);
        ul_graph_only_root(graph)->outputs[i] = next; /* in its place among them */
        ul_graph_only_root(graph)->output_count = count;
    }
}

void ul_loss_scale_finish(struct ul_updates *updates)
{
    struct ul_gradient *make = updates->make;
    struct ul_graph *graph = make->graph;
    const struct ul_training *training = updates->pass->options->training;
    ul_value_id scale = ul_loss_scale(graph, training);
    ul_value_id tracker = add_count(updates, UL_TRAINING_SCALE_TRACKER);
    ul_value_id steps = add_count(updates, UL_TRAINING_SCALE_STEPS);
    UL_ASSERT(updates->excess != UL_NONE && scale != UL_NONE);
    make->build.name = UL_TRAINING_SCALE;
    ul_value_id finite = ul_build_binary(&make->build, UL_OP_Equal, updates->excess,
                                         ul_build_number_like(&make->build, updates->excess, 0));
    guard_states(make, finite);
    make->build.name = UL_TRAINING_SCALE;
    ul_value_id one = ul_build_number_like(&make->build, steps, 1),
                none = ul_build_number_like(&make->build, steps, 0);
    ul_value_id row = ul_build_binary(&make->build, UL_OP_Add, tracker, one);
    ul_value_id count = ul_build_binary(&make->build, UL_OP_Add, steps, one);
    ul_value_id interval =
        ul_build_number_like(&make->build, steps, (double)training->growth_interval);
    ul_value_id grows = ul_build_binary(&make->build, UL_OP_Equal, row, interval);
    ul_value_id stays = ul_build_binary(&make->build, UL_OP_And, finite,
                                        ul_build_unary(&make->build, UL_OP_Not, grows));
    ul_value_id skips = ul_build_unary(&make->build, UL_OP_Not, finite);
    updates->number = ul_build_cast(&make->build, count, UL_F64);
    updates->step = with_number(make, updates->step, UL_STEP_BIAS1, 2, corrections(updates));
    updates->step = with_number(make, updates->step, UL_STEP_EVALUATES, 1,
                                ul_build_cast(&make->build, skips, UL_F64));
    ul_edit_add_next(graph, next_scale(make, scale, finite, grows), scale);
    ul_edit_add_next(graph, ul_build_choose(&make->build, stays, row, none), tracker);
    ul_edit_add_next(graph, ul_build_choose(&make->build, finite, count, steps), steps);
}
