/* SPDX-License-Identifier: Apache-2.0 */
/* Where no gradient goes: --stop-gradient and --padding-idx.
 *
 *      y = f(x)          y = f(StopGradient(x))
 *
 * Problem: a file need not say where detach() and an embedding's padding_idx were; without these,
 * another network is trained. Method: a ullage::StopGradient is put in front of each reader that is
 * named, of each value that is named; it hands the value on and no gradient back (a model may have
 * such nodes itself). After pass gradient it is an Identity. A Gather of a table that has a padding
 * index is told so by an attribute, which its gradient rule reads: as in torch, other readers of
 * the table (a tied product) give the row its share. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

/* VALUE, or VALUE@NODE; both are patterns. */
struct stop {
    const char *option, *value, *node; /* node NULL: every reader */
};

static bool has_value(const struct ul_graph *graph, const char *pattern)
{
    for (uint32_t v = 0; v < graph->value_count; v++)
        if (graph->values[v].kind != UL_VALUE_DEAD &&
            ul_edit_matches(pattern, graph->values[v].name))
            return true;
    return false;
}

/* A name may contain an @ itself. */
static struct stop read_stop(const struct ul_pass *pass, const char *option)
{
    struct stop stop = {.option = option, .value = option};
    const char *at = strrchr(option, '@');
    if (at == NULL || has_value(pass->graph, option))
        return stop;
    stop.value = ul_arena_printf(pass->scratch, "%.*s", (int)(at - option), option);
    stop.node = at + 1;
    return stop;
}

static enum ul_status refuse_stop(const struct ul_pass *pass, const struct stop *stop)
{
    const struct ul_graph *graph = pass->graph;
    struct ul_nearest nearest = {.word = stop->value};
    if (has_value(graph, stop->value))
        return ul_diag_set(
            pass->diag, UL_USAGE, "--stop-gradient %s: no node%s%s reads such a value",
            ul_quote(pass->scratch, stop->option), stop->node != NULL ? " of the name " : "",
            stop->node != NULL ? ul_quote(pass->scratch, stop->node) : "");
    for (uint32_t v = 0; v < graph->value_count; v++)
        if (graph->values[v].kind != UL_VALUE_DEAD)
            ul_nearest_offer(&nearest, graph->values[v].name);
    return ul_diag_set(pass->diag, UL_USAGE, "--stop-gradient %s: no value has such a name%s",
                       ul_quote(pass->scratch, stop->option),
                       ul_nearest_text(pass->scratch, &nearest, ""));
}

/* The reader's input `input` gives no gradient from here on. */
static void put_stop(struct ul_graph *graph, ul_node_id reader, uint32_t input)
{
    UL_ASSERT(reader < graph->node_count && input < graph->nodes[reader].input_count);
    ul_value_id value = graph->nodes[reader].inputs[input];
    UL_ASSERT(value != UL_NONE);
    struct ul_build build = ul_build_before(graph, reader);
    build.name = ul_arena_printf(graph->arena, "%s/stopped", graph->values[value].name);
    ul_node_id node = ul_build_node(&build, UL_OP_StopGradient, &value, 1, 1);
    graph->nodes[node].source = graph->nodes[reader].source;
    graph->nodes[reader].inputs[input] = graph->nodes[node].outputs[0];
}

static enum ul_status apply_stop(struct ul_pass *pass, const struct stop *stop, uint32_t node_count)
{
    struct ul_graph *graph = pass->graph;
    bool found = false;
    for (ul_node_id n = 0; n < node_count; n++) {
        if (graph->nodes[n].op == UL_OP_NONE ||
            (stop->node != NULL && !ul_edit_matches(stop->node, graph->nodes[n].name)))
            continue;
        for (uint32_t i = 0; i < graph->nodes[n].input_count; i++) {
            ul_value_id value = graph->nodes[n].inputs[i];
            if (value == UL_NONE || !ul_edit_matches(stop->value, graph->values[value].name))
                continue;
            put_stop(graph, n, i);
            found = true;
        }
    }
    return found ? UL_OK : refuse_stop(pass, stop);
}

/* ---- Embeddings ---- */

static enum ul_status refuse_padding(const struct ul_pass *pass, const struct ul_padding *padding)
{
    const struct ul_graph *graph = pass->graph;
    struct ul_nearest nearest = {.word = padding->name};
    for (uint32_t v = 0; v < graph->value_count; v++)
        if (graph->values[v].kind == UL_VALUE_WEIGHT)
            ul_nearest_offer(&nearest, graph->values[v].name);
    return ul_diag_set(pass->diag, UL_USAGE,
                       "--padding-idx %s=%lld: no Gather along axis 0 reads an initializer of such "
                       "a name%s",
                       ul_quote(pass->scratch, padding->name), (long long)padding->index,
                       ul_nearest_text(pass->scratch, &nearest, ""));
}

static enum ul_status apply_padding(struct ul_pass *pass, const struct ul_padding *padding)
{
    struct ul_graph *graph = pass->graph;
    bool found = false;
    for (ul_node_id n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        const struct ul_value *table =
            node->op == UL_OP_Gather ? &graph->values[node->inputs[0]] : NULL;
        if (table == NULL || table->kind != UL_VALUE_WEIGHT || table->type.rank == 0 ||
            ul_node_get_int(node, "axis", 0) != 0 || !ul_edit_matches(padding->name, table->name))
            continue;
        int64_t rows = table->type.dims[0];
        int64_t index = padding->index < 0 ? padding->index + rows : padding->index;
        if (index < 0 || index >= rows)
            return ul_diag_set(
                pass->diag, UL_USAGE, "--padding-idx %s=%lld: the table has %lld rows",
                ul_quote(pass->scratch, table->name), (long long)padding->index, (long long)rows);
        ul_node_set_int(graph, n, UL_TRAINING_PADDING, index);
        found = true;
    }
    return found ? UL_OK : refuse_padding(pass, padding);
}

enum ul_status ul_pass_stop(struct ul_pass *pass)
{
    const struct ul_training *training = pass->options->training;
    UL_ASSERT(training != NULL);
    uint32_t node_count = pass->graph->node_count;
    for (uint32_t i = 0; i < training->padding_count; i++)
        UL_TRY(apply_padding(pass, &training->paddings[i]));
    for (uint32_t i = 0; i < training->stop_gradient_count; i++) {
        const struct stop stop = read_stop(pass, training->stop_gradients[i]);
        UL_TRY(apply_stop(pass, &stop, node_count));
    }
    return UL_OK;
}
