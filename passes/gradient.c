/* Reverse mode: the gradients of a loss by the model's parameters, and their updates, as nodes
 * behind those of the model.
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
 * by its update as soon as the product or convolution that it is next to has had its turn: until
 * then what reads the old parameter may have to run again. The first share of a gradient is the
 * gradient; others are added to it. Left undone: nodes in nested blocks. */
#include "ir/gradient.h"

#include "ir/infer.h"
#include "ir/op.h"
#include "passes/passes_internal.h"
#include "passes/update.h"

#include <string.h>

struct reverse {
    struct ul_pass *pass;
    struct ul_graph *graph;
    uint32_t known_count;   /* values of the forward pass */
    ul_value_id *gradients; /* per value: so far; UL_NONE: none yet */
    uint32_t *shares;       /* per value: that its gradient is a sum of so far */
    bool *wanted;           /* per value */
    uint32_t *readers;      /* per parameter: nodes of the forward pass that were not visited yet */
    const char *suffix;     /* of the names of nodes */
    struct ul_gradient *rule;
    struct ul_updates updates;
};

static ul_value_id get_gradient(void *context, ul_value_id value)
{
    const struct reverse *reverse = context;
    return value < reverse->known_count ? reverse->gradients[value] : UL_NONE;
}

static bool is_wanted(void *context, ul_value_id value)
{
    const struct reverse *reverse = context;
    return value < reverse->known_count && reverse->wanted[value];
}

static void give_share(void *context, ul_value_id value, ul_value_id share)
{
    struct reverse *reverse = context;
    UL_ASSERT(is_wanted(reverse, value));
    reverse->shares[value]++;
    ul_value_id *sum = &reverse->gradients[value];
    *sum = *sum == UL_NONE ? share : ul_gradient_binary(reverse->rule, UL_OP_Add, *sum, share);
}

static bool is_float(enum ul_dtype dtype)
{
    return dtype == UL_F32 || dtype == UL_F64 || dtype == UL_F16 || dtype == UL_BF16;
}

/* An operator whose row says that nothing flows to the input. */
static bool flows_nothing(const struct ul_node *node, uint32_t input)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    if (input < 32 && (row->fixed_inputs & 1u << input) != 0)
        return true;
    return row->gradient == NULL && input < UL_OP_GRADIENTS && row->gradients[input] != NULL &&
           strcmp(row->gradients[input], "0") == 0;
}

static void find_wanted(struct reverse *reverse)
{
    struct ul_graph *graph = reverse->graph;
    for (uint32_t v = 0; v < graph->value_count; v++)
        reverse->wanted[v] = (graph->values[v].flags & UL_VALUE_TRAINED) != 0;
    const struct ul_block *block = &graph->blocks[0];
    for (uint32_t p = 0; p < block->node_count; p++) {
        const struct ul_node *node = &graph->nodes[block->nodes[p]];
        bool any = false;
        for (uint32_t i = 0; i < node->input_count; i++)
            any = any || (node->inputs[i] != UL_NONE && reverse->wanted[node->inputs[i]] &&
                          !flows_nothing(node, i));
        for (uint32_t i = 0; any && i < node->output_count; i++)
            reverse->wanted[node->outputs[i]] =
                is_float(graph->values[node->outputs[i]].type.dtype);
    }
}

/* The parameter nearest behind a value, for messages. */
static const char *parameter_behind(const struct reverse *reverse, ul_value_id value)
{
    const struct ul_graph *graph = reverse->graph;
    while (graph->values[value].kind == UL_VALUE_NODE) {
        const struct ul_node *node = &graph->nodes[graph->values[value].producer];
        uint32_t i = 0;
        while (i < node->input_count &&
               (node->inputs[i] == UL_NONE || !reverse->wanted[node->inputs[i]]))
            i++;
        UL_ASSERT(i < node->input_count);
        value = node->inputs[i];
    }
    return ul_quote(reverse->pass->scratch, graph->values[value].name);
}

static enum ul_status refuse(struct reverse *reverse, ul_node_id id, uint32_t input)
{
    const struct ul_op_info *row = ul_op_get(reverse->graph->nodes[id].op);
    ul_value_id value = reverse->graph->nodes[id].inputs[input];
    return ul_diag_set(reverse->pass->diag, UL_UNSUPPORTED,
                       "%s: %s has no gradient rule%s%s, and the parameter %s is trained through "
                       "it; --freeze what lies before it, or cut the model behind it with --output",
                       ul_node_describe(reverse->graph, id, reverse->pass->scratch), row->name,
                       row->not_differentiable != NULL ? ": " : "",
                       row->not_differentiable != NULL ? row->not_differentiable : "",
                       parameter_behind(reverse, value));
}

/* By the texts of an elementwise row. */
static enum ul_status apply_texts(struct reverse *reverse, ul_node_id id)
{
    struct ul_gradient *rule = reverse->rule;
    const struct ul_op_info *row = ul_op_get(reverse->graph->nodes[id].op);
    for (uint32_t i = 0; i < reverse->graph->nodes[id].input_count; i++) {
        if (!ul_gradient_wanted(rule, i) || flows_nothing(&reverse->graph->nodes[id], i))
            continue;
        if (i >= UL_OP_GRADIENTS || row->gradients[i] == NULL)
            return refuse(reverse, id, i);
        ul_gradient_give_broadcast(rule, i,
                                   ul_gradient_expression(rule, i, ul_gradient_of(rule, 0)));
    }
    return UL_OK;
}

static enum ul_status visit(struct reverse *reverse, ul_node_id id)
{
    const struct ul_node *node = &reverse->graph->nodes[id];
    struct ul_gradient *rule = reverse->rule;
    bool arrives = false, leaves = false;
    for (uint32_t i = 0; i < node->output_count; i++)
        arrives = arrives || get_gradient(reverse, node->outputs[i]) != UL_NONE;
    for (uint32_t i = 0; i < node->input_count; i++)
        leaves = leaves || (node->inputs[i] != UL_NONE && reverse->wanted[node->inputs[i]] &&
                            !flows_nothing(node, i));
    if (!arrives || !leaves)
        return UL_OK;
    rule->node = id;
    rule->build.name = ul_arena_printf(reverse->graph->arena, "%s/%s", node->name, reverse->suffix);
    if (ul_op_get(node->op)->gradient != NULL)
        return ul_op_get(node->op)->gradient(rule);
    return apply_texts(reverse, id);
}

/* Readers of parameters that are still to come. */
static void count_readers(struct reverse *reverse, uint32_t node_count)
{
    const struct ul_graph *graph = reverse->graph;
    for (uint32_t p = 0; p < node_count; p++) {
        const struct ul_node *node = &graph->nodes[graph->blocks[0].nodes[p]];
        for (uint32_t i = 0; i < node->input_count; i++)
            if (node->inputs[i] != UL_NONE)
                reverse->readers[node->inputs[i]]++;
    }
}

/* Parameters whose last reader, seen backwards, was this node are to be updated. */
static void update_finals(struct reverse *reverse, ul_node_id id)
{
    const struct ul_node node = reverse->graph->nodes[id];
    for (uint32_t i = 0; i < node.input_count; i++) {
        ul_value_id value = node.inputs[i];
        if (value == UL_NONE || --reverse->readers[value] != 0 ||
            reverse->graph->values[value].kind != UL_VALUE_WEIGHT ||
            reverse->gradients[value] == UL_NONE)
            continue;
        ul_value_id gradient = reverse->gradients[value];
        reverse->graph->values[gradient].flags |= UL_VALUE_GRADIENT;
        ul_update_queue(&reverse->updates, value, gradient);
    }
    if ((ul_op_get(node.op)->flags & UL_OP_MULTIPLIES) != 0)
        ul_update_flush(&reverse->updates);
}

/* Parameters whose gradient is final only when several nodes have had their turn. */
static void list_shared(struct reverse *reverse)
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
static enum ul_status release_unreached(struct reverse *reverse)
{
    struct ul_training *training = reverse->pass->options->training;
    uint32_t *unreached = NULL, capacity = 0, trained = 0;
    training->unreached_count = 0;
    for (uint32_t v = 0; v < reverse->known_count; v++) {
        struct ul_value *value = &reverse->graph->values[v];
        if ((value->flags & UL_VALUE_TRAINED) == 0)
            continue;
        trained += reverse->gradients[v] != UL_NONE;
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
                       "--train: the loss depends on no parameter that is trained");
}

static enum ul_status check_loss(const struct ul_pass *pass)
{
    const struct ul_block *block = &pass->graph->blocks[0];
    UL_ASSERT(block->output_count > 0);
    const struct ul_value *loss = &pass->graph->values[block->outputs[0]];
    const char *name = pass->options->training->loss_output;
    if (is_float(loss->type.dtype) && ul_type_elements(&loss->type) == 1)
        return UL_OK;
    struct ul_text text;
    ul_text_init(&text, pass->scratch);
    ul_type_print(&text, &loss->type);
    return ul_diag_set(pass->diag, UL_USAGE, "--loss: %s is %s; a loss is one float",
                       ul_quote(pass->scratch, name != NULL ? name : loss->name), text.data);
}

/* Nothing can be learned of no samples. */
static enum ul_status check_samples(const struct ul_pass *pass)
{
    const struct ul_block *block = &pass->graph->blocks[0];
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
static enum ul_status run_backward(struct reverse *reverse, uint32_t node_count, ul_value_id loss,
                                   ul_value_id seed)
{
    memset(reverse->gradients, 0xFF, reverse->known_count * sizeof *reverse->gradients);
    memset(reverse->shares, 0, reverse->known_count * sizeof *reverse->shares);
    memset(reverse->readers, 0, reverse->known_count * sizeof *reverse->readers);
    count_readers(reverse, node_count);
    reverse->gradients[loss] = seed;
    for (uint32_t p = node_count; p-- > 0;) {
        ul_node_id id = reverse->graph->blocks[0].nodes[p];
        UL_TRY(visit(reverse, id));
        update_finals(reverse, id);
    }
    return UL_OK;
}

enum ul_status ul_pass_gradient(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_training *training = pass->options->training;
    struct ul_gradient rule = {
        .graph = graph, .scratch = pass->scratch, .diag = pass->diag, .flags = UL_VALUE_BACKWARD};
    struct reverse reverse = {
        .pass = pass, .graph = graph, .known_count = graph->value_count, .rule = &rule};
    UL_TRY(check_samples(pass));
    UL_TRY(check_loss(pass));
    reverse.gradients = UL_NEW_ARRAY(pass->scratch, ul_value_id, reverse.known_count);
    reverse.shares = UL_NEW_ARRAY(pass->scratch, uint32_t, reverse.known_count);
    reverse.wanted = UL_NEW_ARRAY(pass->scratch, bool, reverse.known_count);
    reverse.readers = UL_NEW_ARRAY(pass->scratch, uint32_t, reverse.known_count);
    rule.context = &reverse;
    rule.get = get_gradient;
    rule.is_wanted = is_wanted;
    rule.give = give_share;
    rule.build = ul_build_last(graph, 0, "");
    uint32_t node_count = graph->blocks[0].node_count;
    ul_value_id loss =
        training->micro_batches > 1 ? training->loss_sum : graph->blocks[0].outputs[0];
    find_wanted(&reverse);
    ul_value_id seed = ul_loss_scale_seed(&rule, training, loss);
    ul_update_begin(&reverse.updates, pass, &rule);
    if (ul_update_runs_twice(training)) {
        reverse.suffix = "norm";
        UL_TRY(run_backward(&reverse, node_count, loss, seed));
        seed = ul_update_begin_again(&reverse.updates, loss);
    }
    reverse.suffix = "gradient";
    UL_TRY(run_backward(&reverse, node_count, loss, seed));
    ul_update_finish(&reverse.updates);
    list_shared(&reverse);
    return release_unreached(&reverse);
}
