/* SPDX-License-Identifier: Apache-2.0 */
/* The visit of one node in reverse mode; see reverse.h. */
#include "passes/training/reverse.h"

#include "ir/infer.h"
#include "ir/op.h"

#include <string.h>

static bool is_stopped(const struct ul_reverse *reverse, ul_value_id value)
{
    return reverse->stops != NULL && reverse->stops[value];
}

static ul_value_id get_gradient(void *context, ul_value_id value)
{
    const struct ul_reverse *reverse = context;
    bool is_known = value < reverse->known_count && !is_stopped(reverse, value);
    return is_known ? reverse->gradients[value] : UL_NONE;
}

static bool is_wanted(void *context, ul_value_id value)
{
    const struct ul_reverse *reverse = context;
    return value < reverse->known_count && reverse->wanted[value];
}

/* A share that was added up in zeros is added up in what there is: no second value of that size.
 * Only one that this visit made: another one is a gradient by itself, of other values too. */
static bool add_onto(const struct ul_reverse *reverse, ul_value_id sum, ul_value_id share)
{
    struct ul_graph *graph = reverse->graph;
    double number;
    if (graph->values[share].kind != UL_VALUE_NODE ||
        graph->values[share].producer < reverse->visited_count)
        return false;
    struct ul_node *node = &graph->nodes[graph->values[share].producer];
    if ((ul_op_get(node->op)->flags & UL_OP_COMBINES) == 0 ||
        strcmp(ul_node_get_string(node, "reduction", "none"), "add") != 0 ||
        !ul_graph_get_number(graph, node->inputs[0], &number) || number != 0)
        return false;
    UL_ASSERT(ul_type_equal(&graph->values[sum].type, &graph->values[share].type));
    node->inputs[0] = sum;
    return true;
}

static void give_share(void *context, ul_value_id value, ul_value_id share)
{
    struct ul_reverse *reverse = context;
    UL_ASSERT(is_wanted(reverse, value));
    reverse->shares[value]++;
    ul_value_id *sum = &reverse->gradients[value];
    if (*sum == UL_NONE || add_onto(reverse, *sum, share))
        *sum = share;
    else
        *sum = ul_build_add(&reverse->rule.build, *sum, share);
}

void ul_reverse_init(struct ul_reverse *reverse, struct ul_pass *pass, uint32_t flags)
{
    uint32_t count = pass->graph->value_count;
    *reverse = (struct ul_reverse){.pass = pass, .graph = pass->graph, .known_count = count};
    reverse->gradients = UL_NEW_ARRAY(pass->scratch, ul_value_id, count);
    reverse->shares = UL_NEW_ARRAY(pass->scratch, uint32_t, count);
    reverse->wanted = UL_NEW_ARRAY(pass->scratch, bool, count);
    reverse->rule = (struct ul_gradient){.graph = pass->graph,
                                         .scratch = pass->scratch,
                                         .diag = pass->diag,
                                         .build = {.flags = flags},
                                         .traits = pass->traits,
                                         .context = reverse,
                                         .get = get_gradient,
                                         .is_wanted = is_wanted,
                                         .give = give_share};
    ul_reverse_clear(reverse);
}

void ul_reverse_clear(struct ul_reverse *reverse)
{
    memset(reverse->gradients, 0xFF, reverse->known_count * sizeof *reverse->gradients);
    memset(reverse->shares, 0, reverse->known_count * sizeof *reverse->shares);
}

bool ul_reverse_takes(enum ul_dtype dtype)
{
    return dtype == UL_F32 || dtype == UL_F64 || ul_dtype_is_half(dtype);
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

static bool leaves(const struct ul_reverse *reverse, const struct ul_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] != UL_NONE && reverse->wanted[node->inputs[i]] &&
            !flows_nothing(node, i))
            return true;
    return false;
}

void ul_reverse_want(struct ul_reverse *reverse, ul_node_id id)
{
    const struct ul_graph *graph = reverse->graph;
    const struct ul_node *node = &graph->nodes[id];
    if (!leaves(reverse, node))
        return;
    for (uint32_t i = 0; i < node->output_count; i++) {
        ul_value_id output = node->outputs[i];
        if (output != UL_NONE && !is_stopped(reverse, output))
            reverse->wanted[output] = ul_reverse_takes(graph->values[output].type.dtype);
    }
}

/* The wanted value that comes nearest after a value, for messages. */
static const char *wanted_behind(const struct ul_reverse *reverse, ul_value_id value)
{
    const struct ul_graph *graph = reverse->graph;
    while (graph->values[value].kind == UL_VALUE_NODE && !is_stopped(reverse, value)) {
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

static enum ul_status refuse(struct ul_reverse *reverse, ul_node_id id, uint32_t input)
{
    struct ul_arena *scratch = reverse->pass->scratch;
    const struct ul_op_info *row = ul_op_get(reverse->graph->nodes[id].op);
    const char *behind = wanted_behind(reverse, reverse->graph->nodes[id].inputs[input]);
    const char *reason = row->not_differentiable;
    const char *why =
        reverse->asked_by == NULL
            ? ul_arena_printf(scratch,
                              "the parameter %s is trained through it; --freeze what lies before "
                              "it, or cut the model behind it with --output",
                              behind)
            : ul_arena_printf(scratch,
                              "%s asks for that of %s through it; write this gradient as nodes, "
                              "or cut the model before it with --output",
                              reverse->asked_by, behind);
    return ul_diag_set(reverse->pass->diag, UL_UNSUPPORTED,
                       "%s: %s has no gradient rule%s%s, and %s",
                       ul_node_describe(reverse->graph, id, scratch), row->name,
                       reason != NULL ? ": " : "", reason != NULL ? reason : "", why);
}

/* By the texts of an elementwise row. */
static enum ul_status apply_texts(struct ul_reverse *reverse, ul_node_id id)
{
    struct ul_gradient *rule = &reverse->rule;
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

enum ul_status ul_reverse_visit(struct ul_reverse *reverse, ul_node_id id)
{
    const struct ul_node *node = &reverse->graph->nodes[id];
    bool arrives = false;
    for (uint32_t i = 0; i < node->output_count; i++)
        arrives = arrives || (node->outputs[i] != UL_NONE &&
                              get_gradient(reverse, node->outputs[i]) != UL_NONE);
    if (!arrives || !leaves(reverse, node))
        return UL_OK;
    ul_gradient_set_node(&reverse->rule, id);
    reverse->visited_count = reverse->graph->node_count;
    reverse->rule.build.name =
        ul_arena_printf(reverse->graph->arena, "%s/%s", node->name, reverse->suffix);
    if (ul_op_get(node->op)->gradient != NULL)
        return ul_op_get(node->op)->gradient(&reverse->rule);
    return apply_texts(reverse, id);
}
