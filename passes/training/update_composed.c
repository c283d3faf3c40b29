/* SPDX-License-Identifier: Apache-2.0 */
/* Updates that look at a tensor as a whole or at blocks of it: they have several nodes, sums and
 * maps.
 *
 * Problem: an element's update depends on other elements' gradients, so that it is no map. Method:
 * sums of squares are nodes of their own, in one order under every budget, and what follows is
 * elementwise, in place:
 *
 *      Adafactor                            row' = mix(row, squares of g, its rows)
 *      (Shazeer and Stern, arXiv            col' = mix(col, squares of g, its columns)
 *      1804.04235, as torch.optim           u = g / sqrt(row' col' / mean of row')
 *      has it)                              p' = p - step(norm of p, norm of u) u
 *
 *      Adam-mini                            m' = mix(m, g)
 *      (Zhang et al., arXiv                 v' = mix(v, mean square of g), a number a block
 *      2406.16793, as its authors do)       p' = p - rate m' / sqrt(v')
 *
 * Blocks of Adam-mini are what a result's neuron reads: the dimensions of a parameter that the
 * node that reads it sums over; of a table that rows are looked up in, each row. Left undone: heads
 * of queries and keys as blocks; each of their neurons is one. */
#include "ir/op_names.h"
#include "passes/training/update.h"

#include "ir/infer.h"
#include "ir/op.h"
#include "ir/training.h"

#include <float.h>
#include <math.h>

struct composed {
    struct ul_updates *updates;
    struct ul_gradient *make;
    const struct ul_training *training;
    ul_value_id parameter, gradient; /* the latter multiplied and within its bounds */
    struct ul_type type;
};

static ul_value_id times(struct composed *c, ul_value_id a, double factor)
{
    return ul_build_binary(&c->make->build, UL_OP_Mul, a,
                           ul_build_number_like(&c->make->build, a, factor));
}

static ul_value_id at_least(struct composed *c, ul_value_id a, double bound)
{
    return ul_build_binary(&c->make->build, UL_OP_Max, a,
                           ul_build_number_like(&c->make->build, a, bound));
}

static ul_value_id root(struct composed *c, ul_value_id a)
{
    return ul_build_unary(&c->make->build, UL_OP_Sqrt, a);
}

static ul_value_id step_number(struct composed *c, uint32_t which)
{
    const ul_value_id inputs[2] = {c->updates->step,
                                   ul_build_number(c->make->graph, "", UL_I64, 0, which)};
    return ul_build_value(&c->make->build, UL_OP_Gather, inputs, 2, NULL);
}

/* Makes `made` overwrite a parameter or state, which keeps its value where nothing is learned from
 * the step. */
static void set_next(struct composed *c, ul_value_id made, ul_value_id state)
{
    if (c->updates->has_scale) {
        ul_value_id skips = step_number(c, UL_STEP_EVALUATES);
        ul_value_id learns = ul_build_binary(&c->make->build, UL_OP_Equal, skips,
                                             ul_build_number_like(&c->make->build, skips, 0));
        made = ul_build_choose(&c->make->build, learns, made, state);
    }
    ul_edit_add_next(c->make->graph, made, state);
}

/* A number of f64 in the parameter's type. */
static ul_value_id as_parameter(struct composed *c, ul_value_id number)
{
    return ul_build_cast(&c->make->build, number, c->type.dtype);
}

/* a + (b - a) * weight */
static ul_value_id mix(struct composed *c, ul_value_id a, ul_value_id b, ul_value_id weight)
{
    ul_value_id way = ul_build_binary(&c->make->build, UL_OP_Sub, b, a);
    return ul_build_binary(&c->make->build, UL_OP_Add, a,
                           ul_build_binary(&c->make->build, UL_OP_Mul, way, weight));
}

/* Reduces over the dimensions of `mask`, which stay with size 1; over all dimensions, to a number
 * of rank 0. */
static ul_value_id reduce(struct composed *c, ul_op_id op, ul_value_id a, uint32_t mask)
{
    const struct ul_type type = ul_gradient_type(c->make, a);
    int64_t axes[UL_LIMIT_RANK];
    ul_value_id inputs[2] = {a, UL_NONE};
    uint32_t count = 0;
    for (uint32_t d = 0; d < type.rank; d++)
        if ((mask & 1u << d) != 0)
            axes[count++] = d;
    UL_ASSERT(mask >> type.rank == 0);
    bool is_whole = count == type.rank;
    if (!is_whole)
        inputs[1] = ul_build_ints(c->make->graph, "", count, axes);
    ul_node_id node = ul_build_node(&c->make->build, op, inputs, is_whole ? 1 : 2, 1);
    ul_node_set_int(c->make->graph, node, "keepdims", !is_whole);
    return ul_build_infer(&c->make->build, node);
}

static uint32_t all_dims(const struct ul_type *type)
{
    return (1u << type->rank) - 1;
}

static double count_of(const struct ul_type *type, uint32_t mask)
{
    double count = 1;
    for (uint32_t d = 0; d < type->rank; d++)
        if ((mask & 1u << d) != 0)
            count *= (double)type->dims[d];
    return count;
}

/* The mean square of the gradient over these dimensions. */
static ul_value_id mean_square(struct composed *c, uint32_t mask)
{
    ul_value_id sum = reduce(c, UL_OP_ReduceSumSquare, c->gradient, mask);
    return times(c, sum, 1 / count_of(&c->type, mask));
}

/* A state with the parameter's dimensions, except for those of `mask`, which have size 1. */
static ul_value_id add_state(struct composed *c, const char *name, uint32_t mask)
{
    struct ul_type type = c->type;
    for (uint32_t d = 0; d < type.rank; d++)
        type.dims[d] = (mask & 1u << d) != 0 ? 1 : type.dims[d];
    return ul_update_add_state(c->updates, c->parameter, name, &type);
}

static struct composed begin(struct ul_updates *updates, ul_value_id parameter,
                             ul_value_id gradient)
{
    struct ul_gradient *make = updates->make;
    struct composed c = {.updates = updates,
                         .make = make,
                         .training = updates->pass->options->training,
                         .parameter = parameter,
                         .type = ul_gradient_type(make, parameter)};
    ul_value_id scale = ul_update_scale(updates, c.type.dtype);
    double bound = c.training->clip_value;
    UL_ASSERT(gradient != UL_NONE && ul_dtype_get(c.type.dtype)->is_float);
    if (scale != UL_NONE)
        gradient = ul_build_binary(&make->build, UL_OP_Mul, gradient, scale);
    if (bound > 0) {
        ul_value_id high = ul_build_number_like(&make->build, gradient, bound);
        gradient = at_least(&c, ul_build_binary(&make->build, UL_OP_Min, gradient, high), -bound);
    }
    c.gradient = gradient;
    return c;
}

/* The parameter after its decay, less `step` times `direction`. */
static void descend(struct composed *c, ul_value_id direction, ul_value_id step)
{
    ul_value_id old = c->parameter, rate = step_number(c, UL_STEP_RATE);
    double decay = ul_update_decay(c->updates, c->parameter);
    if (decay > 0) {
        ul_value_id one = ul_build_number_like(&c->make->build, rate, 1);
        ul_value_id left = ul_build_binary(&c->make->build, UL_OP_Sub, one, times(c, rate, decay));
        old = ul_build_binary(&c->make->build, UL_OP_Mul, old, as_parameter(c, left));
    }
    const ul_value_id inputs[3] = {old, direction, as_parameter(c, step)};
    set_next(c, ul_build_value(&c->make->build, UL_OP_Descend, inputs, 3, NULL), c->parameter);
}

/* ---- Adafactor ---- */

/* The number of the update, from 1 on. */
static ul_value_id update_number(struct composed *c)
{
    if (c->updates->number != UL_NONE)
        return c->updates->number;
    ul_value_id runs = ul_build_binary(&c->make->build, UL_OP_Sub, step_number(c, UL_STEP_COUNT),
                                       step_number(c, UL_STEP_PART));
    ul_value_id parts = ul_build_number_like(&c->make->build, runs, c->training->micro_batches);
    ul_value_id steps = ul_build_binary(&c->make->build, UL_OP_Div, runs, parts);
    return ul_build_binary(&c->make->build, UL_OP_Add, steps,
                           ul_build_number_like(&c->make->build, steps, 1));
}

/* The least number to divide by: that of the type, where nobody said one. */
static double epsilon(const struct composed *c)
{
    if (c->training->eps != UL_TRAINING_EPS_OPEN)
        return c->training->eps;
    return c->type.dtype == UL_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
}

/* The second moment by whose root the gradient is divided. */
static ul_value_id second_moment(struct composed *c, ul_value_id weight)
{
    uint32_t rank = c->type.rank;
    if (rank < 2) {
        ul_value_id state = add_state(c, "variance", 0);
        ul_value_id square = ul_build_binary(&c->make->build, UL_OP_Mul, c->gradient, c->gradient);
        ul_value_id next = mix(c, state, square, weight);
        set_next(c, next, state);
        return next;
    }
    uint32_t along_row = 1u << (rank - 1), along_column = 1u << (rank - 2);
    ul_value_id row = add_state(c, "row_var", along_row);
    ul_value_id column = add_state(c, "col_var", along_column);
    ul_value_id next_row = mix(c, row, mean_square(c, along_row), weight);
    ul_value_id next_column = mix(c, column, mean_square(c, along_column), weight);
    set_next(c, next_row, row);
    set_next(c, next_column, column);
    ul_value_id mean = reduce(c, UL_OP_ReduceMean, next_row, along_column);
    ul_value_id part =
        ul_build_binary(&c->make->build, UL_OP_Div, next_row, at_least(c, mean, epsilon(c)));
    return ul_build_binary(&c->make->build, UL_OP_Mul, part, next_column);
}

/* The root of the mean square, f64. */
static ul_value_id find_norm(struct composed *c, ul_value_id a)
{
    ul_value_id sum = reduce(c, UL_OP_ReduceSumSquare, a, all_dims(&c->type));
    ul_value_id norm = root(c, ul_build_cast(&c->make->build, sum, UL_F64));
    return times(c, norm, 1 / sqrt(count_of(&c->type, all_dims(&c->type))));
}

void ul_update_adafactor(struct ul_updates *updates, ul_value_id parameter, ul_value_id gradient)
{
    struct composed c = begin(updates, parameter, gradient);
    const struct ul_training *training = c.training;
    UL_ASSERT(training->clip_update > 0 && training->beta2_decay >= 0);
    ul_value_id number = update_number(&c);
    ul_value_id weight =
        ul_build_binary(&c.make->build, UL_OP_Pow, number,
                        ul_build_number_like(&c.make->build, number, -training->beta2_decay));
    ul_value_id moment = second_moment(&c, as_parameter(&c, weight));
    moment = at_least(&c, moment, epsilon(&c) * epsilon(&c));
    ul_value_id direction =
        ul_build_binary(&c.make->build, UL_OP_Div, c.gradient, root(&c, moment));
    ul_value_id slower = ul_build_unary(&c.make->build, UL_OP_Reciprocal, root(&c, number));
    ul_value_id rate =
        ul_build_binary(&c.make->build, UL_OP_Min, step_number(&c, UL_STEP_RATE), slower);
    ul_value_id size = at_least(&c, find_norm(&c, parameter), training->eps2);
    ul_value_id excess =
        at_least(&c, times(&c, find_norm(&c, direction), 1 / training->clip_update), 1);
    ul_value_id step = ul_build_binary(&c.make->build, UL_OP_Mul, size, rate);
    descend(&c, direction, ul_build_binary(&c.make->build, UL_OP_Div, step, excess));
}

/* ---- Adam-mini ---- */

/* The dimensions of an input that the node sums over for one neuron of its result; 0: it says
 * nothing of them. */
static uint32_t summed_by(const struct ul_node *node, uint32_t input, uint32_t rank)
{
    UL_ASSERT(rank >= 2);
    uint32_t all = (1u << rank) - 1, last = 1u << (rank - 1), before = 1u << (rank - 2);
    if (node->op == UL_OP_MatMul)
        return input == 1 ? before : last;
    if (node->op == UL_OP_Gemm && input < 2) {
        bool turns = ul_node_get_int(node, input == 0 ? "transA" : "transB", 0) != 0;
        return (input == 1) != turns ? before : last;
    }
    if (node->op == UL_OP_Conv && input == 1)
        return all & ~1u;
    if (node->op == UL_OP_ConvTranspose && input == 1)
        return all & ~2u;
    if ((node->op == UL_OP_LSTM || node->op == UL_OP_GRU || node->op == UL_OP_RNN) && input <= 2)
        return last;
    if (node->op == UL_OP_Gather && input == 0) {
        int64_t axis = ul_node_get_int(node, "axis", 0);
        return all & ~(1u << (axis < 0 ? axis + rank : axis));
    }
    return 0;
}

static uint32_t find_summed(const struct ul_graph *graph, ul_value_id value);

/* The same for what a movement that keeps the dimensions makes of the value. */
static uint32_t summed_behind(const struct ul_graph *graph, const struct ul_node *node)
{
    uint32_t count = 0, mask = 0;
    bool keeps = node->op == UL_OP_Identity || node->op == UL_OP_Cast || node->op == UL_OP_Slice ||
                 node->op == UL_OP_Split;
    if (node->op != UL_OP_Transpose)
        return keeps ? find_summed(graph, node->outputs[0]) : 0;
    const int64_t *perm = ul_node_get_ints(node, "perm", &count);
    uint32_t found = find_summed(graph, node->outputs[0]);
    uint32_t rank = graph->values[node->outputs[0]].type.rank;
    for (uint32_t d = 0; d < rank; d++)
        if ((found & 1u << d) != 0)
            mask |= 1u << (perm != NULL ? (uint32_t)perm[d] : rank - 1 - d);
    return mask;
}

/* By the first node that says so. */
static uint32_t find_summed(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_block *block = ul_graph_only_root(graph);
    uint32_t rank = graph->values[value].type.rank, mask = 0;
    for (uint32_t p = 0; p < block->node_count && mask == 0; p++) {
        const struct ul_node *node = &graph->nodes[block->nodes[p]];
        for (uint32_t i = 0; i < node->input_count && mask == 0; i++) {
            if (node->inputs[i] != value)
                continue;
            mask = summed_by(node, i, rank);
            if (mask == 0 && i == 0)
                mask = summed_behind(graph, node);
        }
    }
    return mask;
}

/* The dimensions that share a state: all of a vector's; those after the first one of what no
 * product reads. */
static uint32_t find_block(const struct composed *c)
{
    uint32_t all = all_dims(&c->type);
    if (c->type.rank < 2)
        return all;
    uint32_t found = find_summed(c->make->graph, c->parameter);
    return found != 0 ? found : all & ~1u;
}

void ul_update_adam_mini(struct ul_updates *updates, ul_value_id parameter, ul_value_id gradient)
{
    struct composed c = begin(updates, parameter, gradient);
    const struct ul_training *training = c.training;
    uint32_t block = find_block(&c);
    ul_value_id mean = add_state(&c, "m", 0), square = add_state(&c, "vmean", block);
    ul_value_id next_mean =
        mix(&c, mean, c.gradient, ul_build_number_like(&c.make->build, mean, 1 - training->beta1));
    ul_value_id next_square =
        ul_build_binary(&c.make->build, UL_OP_Add, times(&c, square, training->beta2),
                        times(&c, mean_square(&c, block), 1 - training->beta2));
    set_next(&c, next_mean, mean);
    set_next(&c, next_square, square);
    ul_value_id bias = as_parameter(&c, step_number(&c, UL_STEP_BIAS1));
    ul_value_id spread =
        ul_build_binary(&c.make->build, UL_OP_Div, root(&c, next_square),
                        as_parameter(&c, root(&c, step_number(&c, UL_STEP_BIAS2))));
    spread = ul_build_binary(&c.make->build, UL_OP_Add, spread,
                             ul_build_number_like(&c.make->build, spread, training->eps));
    ul_value_id direction =
        ul_build_binary(&c.make->build, UL_OP_Div,
                        ul_build_binary(&c.make->build, UL_OP_Div, next_mean, bias), spread);
    descend(&c, direction, step_number(&c, UL_STEP_RATE));
}
