/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a model and runs passes on its graph: all of them, those from the layouts on, or splits
 * alone. */
#include "compile/compile_internal.h"

#include <string.h>

/* Without a place to print to nothing is printed. */
static const char *printed_pass(const struct ul_compile *compile)
{
    return compile->dump != NULL ? compile->options.print_after : NULL;
}

static struct ul_passes_options passes_options(struct ul_compile *compile,
                                               const struct ul_target *target)
{
    struct ul_passes_options options = {.disabled = compile->options.no_passes.items,
                                        .disabled_count = compile->options.no_passes.count,
                                        .traits = &target->traits,
                                        .quantize = compile->options.quantize.items,
                                        .quantize_count = compile->options.quantize.count,
                                        .for_bytes = compile->is_trial && compile->largest == NULL,
                                        .precision = ul_compile_storage(&compile->options),
                                        .no_float = compile->options.no_float};
    if (compile->options.train)
        options.training = &compile->training;
    if (compile->libraries != NULL && !ul_compile_is_sized(compile)) {
        options.is_call = ul_library_supports;
        options.is_worth = ul_library_is_worth;
        options.library = compile->libraries;
    }
    return options;
}

static struct ul_passes_options told_options(struct ul_compile *compile,
                                             const struct ul_target *target)
{
    struct ul_passes_options options = passes_options(compile, target);
    options.print_after = printed_pass(compile);
    options.dump = compile->dump;
    options.stop_after = compile->options.stop_after;
    options.row_major = compile->options.row_major.items;
    options.row_major_count = compile->options.row_major.count;
    return options;
}

/* Passes run in two turns where the passes after the first turn are a choice: alternatives begin
 * with the graph between them. One of several roots is joined with the others before its values get
 * their bytes. */
static enum ul_status run_passes(struct ul_compile *compile, const struct ul_target *target,
                                 const char *start_at)
{
    struct ul_passes_options options = told_options(compile, target);
    options.start_at = start_at;
    if (compile->is_root) {
        options.stop_before = "own";
        return ul_passes_run(&compile->graph, &compile->scratch, &options, &compile->diag);
    }
    if ((target->traits.channels_last || !compile->options.train) && options.stop_after == NULL) {
        options.stop_before = "layout";
        UL_TRY(ul_passes_run(&compile->graph, &compile->scratch, &options, &compile->diag));
        ul_graph_copy(&compile->before_layout, &compile->keep, &compile->graph);
        options.stop_before = NULL;
        options.start_at = "layout";
    }
    return ul_passes_run(&compile->graph, &compile->scratch, &options, &compile->diag);
}

enum ul_status ul_compile_lay_out(struct ul_compile *compile, struct ul_arena *arena,
                                  struct ul_graph *graph, const struct ul_texts *row_major,
                                  struct ul_diag *diag)
{
    struct ul_arena scratch;
    struct ul_passes_options options =
        passes_options(compile, ul_target_find(compile->options.target));
    UL_ASSERT(compile->before_layout.node_count > 0);
    options.start_at = "layout";
    options.row_major = row_major->items;
    options.row_major_count = row_major->count;
    if (graph == &compile->graph) { /* not for a graph that is only tried */
        options.print_after = printed_pass(compile);
        options.dump = compile->dump;
    }
    ul_graph_copy(graph, arena, &compile->before_layout);
    ul_arena_init(&scratch);
    enum ul_status status = ul_passes_run(graph, &scratch, &options, diag);
    ul_arena_done(&scratch);
    return status;
}

/* Runs a single pass. */
static enum ul_status run_only(struct ul_compile *compile, struct ul_graph *graph,
                               struct ul_passes_options *options, struct ul_diag *diag)
{
    struct ul_arena scratch;
    if (graph == &compile->graph) { /* not for a graph that is only tried */
        options->print_after = printed_pass(compile);
        options->dump = compile->dump;
    }
    ul_arena_init(&scratch);
    enum ul_status status = ul_passes_run(graph, &scratch, options, diag);
    ul_arena_done(&scratch);
    return status;
}

enum ul_status ul_compile_move_inside(struct ul_compile *compile, struct ul_graph *graph,
                                      const struct ul_texts *inside, struct ul_diag *diag)
{
    struct ul_passes_options options =
        passes_options(compile, ul_target_find(compile->options.target));
    options.only = "inside";
    options.inside = inside->items;
    options.inside_count = inside->count;
    return inside->count == 0 ? UL_OK : run_only(compile, graph, &options, diag);
}

void ul_compile_find_inside(struct ul_compile *compile, struct ul_arena *arena,
                            struct ul_inside_sites *found)
{
    struct ul_passes_options options =
        passes_options(compile, ul_target_find(compile->options.target));
    ul_inside_find(arena, &compile->graph, &options, found);
}

enum ul_status ul_compile_split(struct ul_compile *compile, struct ul_graph *graph,
                                const struct ul_texts *splits, struct ul_diag *diag)
{
    struct ul_passes_options options = {
        .only = "split", .splits = splits->items, .split_count = splits->count};
    return splits->count == 0 ? UL_OK : run_only(compile, graph, &options, diag);
}

/* Notes branches that cannot have the given shapes, the reason, and what becomes of them. */
static void note_branches(struct ul_compile *compile)
{
    const struct ul_graph *graph = &compile->graph;
    const char *why = NULL;
    for (uint32_t i = 0; i < graph->node_count && why == NULL; i++)
        why = ul_node_get_string(&graph->nodes[i], "ul_why", NULL);
    if (why == NULL)
        return;
    const char *before = compile->notice == NULL ? "" : compile->notice;
    compile->notice = ul_arena_printf(
        &compile->keep, "%s%sa branch cannot have these shapes, and a run that takes it fails: %s",
        before, before[0] == '\0' ? "" : "; ", why);
}

enum ul_status ul_compile_simplify(struct ul_compile *compile)
{
    struct ul_passes_options options = {.stop_before = "einsum"};
    const char *name = compile->options.target;
    const struct ul_target *target = name != NULL ? ul_target_find(name) : ul_target_default();
    compile->graph.rounds_products = ul_compile_rounds_products(&compile->options, target);
    UL_TRY(ul_passes_run(&compile->graph, &compile->scratch, &options, &compile->diag));
    note_branches(compile);
    return UL_OK;
}

enum ul_status ul_compile_rewrite_joined(struct ul_compile *compile, const struct ul_target *target)
{
    struct ul_passes_options options = passes_options(compile, target);
    options.only = "cse";
    UL_TRY(run_only(compile, &compile->graph, &options, &compile->diag));
    return run_passes(compile, target, "own");
}

/* Runs the passes on the compile's graph, after --donate. */
static enum ul_status rewrite(struct ul_compile *compile, const struct ul_target *target)
{
    const char *stop = compile->options.stop_after;
    compile->graph.rounds_products = ul_compile_rounds_products(&compile->options, target);
    UL_TRY(ul_compile_read_training(compile));
    UL_TRY(ul_compile_donate(compile));
    UL_TRY(run_passes(compile, target, NULL));
    note_branches(compile);
    bool is_inside = stop != NULL && strcmp(stop, "inside") == 0;
    if (stop == NULL || (!is_inside && strcmp(stop, "split") != 0))
        return UL_OK;
    UL_TRY(
        ul_compile_move_inside(compile, &compile->graph, &compile->options.inside, &compile->diag));
    if (is_inside)
        return UL_OK;
    return ul_compile_split(compile, &compile->graph, &compile->options.splits, &compile->diag);
}

enum ul_status ul_compile_read_model(struct ul_compile *compile, const char *model_path,
                                     const struct ul_target *target)
{
    UL_TRY(ul_compile_load_settled(compile, model_path)); /* whose texts name the file */
    enum ul_status status = rewrite(compile, target);
    if (status == UL_INVALID && !compile->is_trial) {
        ul_compile_explain_sizes(compile, model_path, &compile->diag);
        status = compile->diag.status;
    }
    if (status != UL_OK)
        ul_diag_prefix(&compile->diag, model_path);
    return status;
}
