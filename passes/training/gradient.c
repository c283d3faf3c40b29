/* SPDX-License-Identifier: Apache-2.0 */
/* Reverse mode: the gradients of a loss by the model's parameters, and their updates, as nodes
 * after those of the model.
 *
 * Method: the loss is the only output. Values that depend on a parameter want gradients; nodes are
 * visited from the last to the first, and the rule of each (ir/gradient.h) gives its inputs their
 * shares:
 *
 *      x -> [f] -> y -> [g] -> loss            dloss = 1
 *                                              dy = rule of g (dloss, y)
 *                                              dx = rule of f (dy, x)
 *
 * A gradient is final once all readers of its value were visited; that of a parameter is followed
 * by its update as soon as the product or convolution next to it has been visited: until then
 * readers of the old parameter may have to run again. The first share of a gradient is the
 * gradient; others are added to it. Left undone: nodes in nested blocks. */
#include "ir/op_names.h"
#include "passes/training/reverse.h"

#include "ir/op.h"
#include "passes/training/update.h"

#include <string.h>

struct backward {
    struct ul_reverse reverse;
    uint32_t *readers; /* per parameter: nodes of the forward pass that were not visited yet */
    struct ul_updates updates;
};

static void find_wanted(struct ul_reverse *reverse)
{
    const struct ul_graph *graph = reverse->graph;
    for (uint32_t v = 0; v < graph->value_count; v++)
        reverse->wanted[v] = (graph->values[v].flags & UL_VALUE_TRAINED) != 0;
    const struct ul_block *block = ul_graph_only_root(graph);
    for (uint32_t p = 0; p < block->node_count; p++)
        ul_reverse_want(reverse, block->nodes[p]);
}

/* Counts the readers of parameters that are still to come. */
static void count_readers(struct backward *backward, uint32_t node_count)
{
    const struct ul_graph *graph = backward->reverse.graph;
    for (uint32_t p = 0; p < node_count; p++) {
        const struct ul_node *node = &graph->nodes[ul_graph_only_root(graph)->nodes[p]];
        for (uint32_t i = 0; i < node->input_count; i++)
            if (node->inputs[i] != UL_NONE)
                backward->readers[node->inputs[i]]++;
    }
}

/* Updates the parameters whose last reader, seen backwards, was this node. */
static void update_finals(struct backward *backward, ul_node_id id)
{
    const struct ul_node node = backward->reverse.graph->nodes[id];
    for (uint32_t i = 0; i < node.input_count; i++) {
        ul_value_id value = node.inputs[i];
        if (value == UL_NONE || --backward->readers[value] != 0 ||
            backward->reverse.graph->values[value].kind != UL_VALUE_WEIGHT ||
            backward->reverse.gradients[value] == UL_NONE)
            continue;
        ul_value_id gradient = backward->reverse.gradients[value];
        backward->reverse.graph->values[gradient].flags |= UL_VALUE_GRADIENT;
        ul_update_queue(&backward->updates, value, gradient);
    }
    if ((ul_op_get(node.op)->flags & UL_OP_MULTIPLIES) != 0)
        ul_update_flush(&backward->updates);
}

/* Lists the parameters whose gradient is final only when several nodes have been visited. */
static void list_shared(struct ul_reverse *reverse)
{
    struct ul_training *training = reverse->pass->options->training;
    uint32_t *shared = NULL, capacity = 0;
    training->shared_count = 0;
    for (uint32_t v = 0; v < reverse->known_count; v++) {
        if ((reverse->graph->values[v].flags & UL_VALUE_TRAINED) == 0 || reverse->shares[v] < 2)
            continue;
        UL_GROW(reverse->graph->arena, shared, training->shared_count, capacity);
        shared[training->shared_count++] = v;
    }
    training->shared = shared;
}

/* A parameter that the loss does not depend on is a constant. */
static enum ul_status release_unreached(struct ul_reverse *reverse)
{
    struct ul_training *training = reverse->pass->options->training;
    uint32_t *unreached = NULL, capacity = 0, trained = 0, empty = 0;
    training->unreached_count = 0;
    for (uint32_t v = 0; v < reverse->known_count; v++) {
        struct ul_value *value = &reverse->graph->values[v];
        if ((value->flags & UL_VALUE_TRAINED) == 0)
            continue;
        bool has_elements = ul_type_elements(&value->type) > 0;
        trained += reverse->gradients[v] != UL_NONE && has_elements;
        empty += reverse->gradients[v] != UL_NONE && !has_elements;
        if (reverse->gradients[v] != UL_NONE)
            continue;
        value->flags &= ~(uint32_t)(UL_VALUE_TRAINED | UL_VALUE_PERSISTENT);
        UL_GROW(reverse->graph->arena, unreached, training->unreached_count, capacity);
        unreached[training->unreached_count++] = v;
    }
    training->unreached = unreached;
    if (trained > 0)
        return UL_OK;
    return ul_diag_set(reverse->pass->diag, UL_USAGE,
                       "--train: the loss depends on no parameter that is trained%s",
                       empty > 0 ? ", but for such as have no elements" : "");
}

static enum ul_status check_loss(const struct ul_pass *pass)
{
    const struct ul_block *block = ul_graph_only_root(pass->graph);
    UL_ASSERT(block->output_count > 0);
    const struct ul_value *loss = &pass->graph->values[block->outputs[0]];
    const char *name = pass->options->training->loss_output;
    if (ul_reverse_takes(loss->type.dtype) && ul_type_elements(&loss->type) == 1)
        return UL_OK;
    return ul_diag_set(pass->diag, UL_USAGE, "--loss: %s is %s; a loss is one float",
                       ul_quote(pass->scratch, name != NULL ? name : loss->name),
                       ul_type_text(pass->scratch, &loss->type));
}

/* Nothing can be learned from no samples. */
static enum ul_status check_samples(const struct ul_pass *pass)
{
    const struct ul_block *block = ul_graph_only_root(pass->graph);
    for (uint32_t i = 0; i < block->input_count; i++) {
        const struct ul_value *input = &pass->graph->values[block->inputs[i]];
        if (ul_type_elements(&input->type) == 0)
            return ul_diag_set(pass->diag, UL_USAGE, "--train: the input %s is empty",
                               ul_quote(pass->scratch, input->name));
    }
    return UL_OK;
}

/* One backward pass, from the last of the model's nodes to the first, with this gradient of the
 * loss. */
static enum ul_status run_backward(struct backward *backward, uint32_t node_count, ul_value_id loss,
                                   ul_value_id seed)
{
    ul_reverse_clear(&backward->reverse);
    memset(backward->readers, 0, backward->reverse.known_count * sizeof *backward->readers);
    count_readers(backward, node_count);
    backward->reverse.gradients[loss] = seed;
    for (uint32_t p = node_count; p-- > 0;) {
        ul_node_id id = ul_graph_only_root(backward->reverse.graph)->nodes[p];
        UL_TRY(ul_reverse_visit(&backward->reverse, id));
        update_finals(backward, id);
    }
    return UL_OK;
}

/* Gradients are made by now: a StopGradient only hands its value on. */
static void open_stops(struct ul_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n].op == UL_OP_StopGradient)
            graph->nodes[n].op = UL_OP_Identity;
}

enum ul_status ul_pass_gradient(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_training *training = pass->options->training;
    struct backward backward = {0};
    struct ul_reverse *reverse = &backward.reverse;
    UL_TRY(check_samples(pass));
    UL_TRY(check_loss(pass));
    ul_reverse_init(reverse, pass, UL_VALUE_BACKWARD);
    ul_gradient_set_place(&reverse->rule, ul_build_last(graph, 0, ""));
    backward.readers = UL_NEW_ARRAY(pass->scratch, uint32_t, reverse->known_count);
    uint32_t node_count = ul_graph_only_root(graph)->node_count;
    ul_value_id loss =
        training->micro_batches > 1 ? training->loss_sum : ul_graph_only_root(graph)->outputs[0];
    find_wanted(reverse);
    ul_value_id seed = ul_loss_scale_seed(&reverse->rule, training, loss);
    ul_update_begin(&backward.updates, pass, &reverse->rule);
    if (ul_update_runs_twice(training)) {
        reverse->suffix = "norm";
        UL_TRY(run_backward(&backward, node_count, loss, seed));
        seed = ul_update_begin_again(&backward.updates, loss);
    }
    reverse->suffix = "gradient";
    UL_TRY(run_backward(&backward, node_count, loss, seed));
    ul_update_finish(&backward.updates);
    list_shared(reverse);
    open_stops(graph);
    return release_unreached(reverse);
}
