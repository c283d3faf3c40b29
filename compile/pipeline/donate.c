/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs that overwrite an input or a weight: those of --donate, and those that are named after
 * it. An output X_out is the new value of X: it overwrites X in place, unless their types differ or
 * --no-donate forbids it. Where that turns out to be impossible it is an error
 * (codegen/program/donation.c), so that every such pair is either aliased or reported. */
#include "compile/compile_internal.h"

#include <string.h>

#define SUFFIX "_out"

/* The input, else the weight, after which an output is named. */
static ul_value_id find_namesake(const struct ul_graph *graph, ul_value_id output)
{
    const char *name = graph->values[output].name;
    size_t length = strlen(name), suffix = strlen(SUFFIX);
    if (length <= suffix || strcmp(name + length - suffix, SUFFIX) != 0)
        return UL_NONE;
    ul_value_id found = UL_NONE;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        bool is_held = value->kind == UL_VALUE_INPUT || value->kind == UL_VALUE_WEIGHT;
        if (is_held && strlen(value->name) == length - suffix &&
            memcmp(value->name, name, length - suffix) == 0 &&
            (found == UL_NONE || value->kind == UL_VALUE_INPUT))
            found = v;
    }
    return found;
}

static bool is_free(const struct ul_graph *graph, ul_value_id output, ul_value_id input)
{
    return graph->values[output].donor == UL_NONE &&
           (graph->values[input].flags & UL_VALUE_PERSISTENT) == 0;
}

/* Infers types of outputs in a copy; false: the model has an error, which the passes will
 * report. */
static bool infer_copy(struct ul_compile *compile, struct ul_graph *copy)
{
    struct ul_diag ignored = {0};
    struct ul_passes_options options = {.stop_after = "derive"};
    struct ul_arena scratch;
    ul_graph_copy(copy, &compile->scratch, &compile->graph);
    ul_arena_init(&scratch);
    enum ul_status status = ul_passes_run(copy, &scratch, &options, &ignored);
    ul_arena_done(&scratch);
    return status == UL_OK;
}

static void put_different(struct ul_text *text, const struct ul_graph *graph,
                          struct ul_arena *arena, ul_value_id output, const struct ul_type *type,
                          ul_value_id input)
{
    ul_text_printf(text, "%s%s stays beside ", text->length > 0 ? "; " : "",
                   ul_quote(arena, graph->values[output].name));
    ul_text_printf(text, "%s: it is ", ul_quote(arena, graph->values[input].name));
    ul_type_print(text, type);
    ul_text_put(text, ", not ");
    ul_type_print(text, &graph->values[input].type);
}

static enum ul_status match(struct ul_compile *compile)
{
    struct ul_graph *graph = &compile->graph, copy;
    const struct ul_block *block = ul_graph_only_root(graph);
    struct ul_text different;
    const char *first = NULL;
    uint32_t count = 0;
    bool inferred = false;
    ul_text_init(&different, &compile->keep);
    for (uint32_t i = 0; i < block->output_count; i++) {
        ul_value_id output = block->outputs[i], input = find_namesake(graph, output);
        if (input == UL_NONE || !is_free(graph, output, input))
            continue;
        if (!inferred && !infer_copy(compile, &copy))
            return UL_OK;
        inferred = true;
        const struct ul_type *type = &copy.values[ul_graph_only_root(&copy)->outputs[i]].type;
        if (!ul_type_equal(type, &graph->values[input].type)) {
            put_different(&different, graph, &compile->keep, output, type, input);
            continue;
        }
        const char *name = graph->values[output].name, *from = graph->values[input].name;
        ul_pairs_add(&compile->keep, &compile->options.donations, name, from);
        UL_TRY(ul_graph_donate(graph, name, from, &compile->diag));
        first = count++ == 0 ? name : first;
    }
    if (count > 0)
        ul_text_printf(
            &different,
            "%s%s%s overwrite%s the input or weight of that name without " SUFFIX
            " where it lies; --no-donate keeps both",
            different.length > 0 ? "; " : "", ul_quote(&compile->keep, first),
            count == 1 ? "" : ul_arena_printf(&compile->keep, " and %u more", (unsigned)count - 1),
            count == 1 ? "s" : "");
    if (different.length > 0)
        compile->notice =
            compile->notice == NULL
                ? different.data
                : ul_arena_printf(&compile->keep, "%s; %s", compile->notice, different.data);
    return UL_OK;
}

enum ul_status ul_compile_donate(struct ul_compile *compile)
{
    const struct ul_pairs *list = &compile->options.donations;
    for (uint32_t i = 0; i < list->count; i++)
        UL_TRY(ul_graph_donate(&compile->graph, list->items[i].name, list->items[i].value,
                               &compile->diag));
    bool matches = !compile->options.train && !compile->options.no_donate;
    return matches ? match(compile) : UL_OK;
}
