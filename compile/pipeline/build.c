/* SPDX-License-Identifier: Apache-2.0 */
/* From a model file to a program that can be planned: load, passes, lowering. */
#include "compile/compile_internal.h"

#include <string.h>

/* Builds the program of the graph as it is laid out without --row-major. */
static enum ul_status build_base(struct ul_compile *compile, struct ul_program_options *options)
{
    static const struct ul_texts none = {.count = 0};
    struct ul_graph *graph = UL_NEW(&compile->keep, struct ul_graph);
    struct ul_program *base = NULL;
    if (compile->options.row_major.count == 0)
        return UL_OK;
    UL_TRY(ul_compile_lay_out(compile, &compile->keep, graph, &none, &compile->diag));
    UL_TRY(ul_program_build(&compile->keep, graph, options, &base, &compile->diag));
    options->baseline = base;
    return UL_OK;
}

/* Builds the program and, where chains are split, that of the graph before: pieces must add up in
 * the same order as the whole. */
static enum ul_status build_program(struct ul_compile *compile, struct ul_program_options *options)
{
    UL_TRY(build_base(compile, options));
    if (compile->options.splits.count > 0 || compile->options.inside.count > 0) {
        struct ul_graph *graph = UL_NEW(&compile->keep, struct ul_graph);
        struct ul_program *unsplit = NULL;
        ul_graph_copy(graph, &compile->keep, &compile->graph);
        UL_TRY(ul_program_build(&compile->keep, graph, options, &unsplit, &compile->diag));
        UL_TRY(ul_compile_move_inside(compile, &compile->graph, &compile->options.inside,
                                      &compile->diag));
        UL_TRY(
            ul_compile_split(compile, &compile->graph, &compile->options.splits, &compile->diag));
        options->unsplit = unsplit;
        if (options->baseline == NULL)
            options->baseline = unsplit;
    }
    UL_TRY(ul_program_build(&compile->keep, &compile->graph, options, &compile->program,
                            &compile->diag));
    ul_footprint_count_overhead(compile->program, ul_compile_is_process(compile));
    return UL_OK;
}

static enum ul_status read_models(struct ul_compile *compile, const struct ul_texts *model_paths,
                                  const struct ul_target *target)
{
    if (model_paths->count == 1)
        return ul_compile_read_model(compile, model_paths->items[0], target);
    UL_TRY(ul_compile_read_roots(compile, model_paths));
    return ul_compile_join_roots(compile, target);
}

static enum ul_status build(struct ul_compile *compile, const struct ul_texts *model_paths)
{
    struct ul_program_options program;
    if (compile->options.plan != NULL)
        UL_TRY(ul_compile_read_header(compile));
    else
        UL_TRY(ul_compile_fit(compile));
    compile->said_dim_count = compile->options.dims.count;
    UL_TRY(ul_compile_check_ranges(compile, model_paths->count > 1));
    UL_TRY(ul_compile_read_profile(compile));
    UL_TRY(ul_compile_resolve(compile, &program));
    ul_compile_progress(compile, "reading and simplifying the model");
    enum ul_status status = read_models(compile, model_paths, program.target);
    ul_compile_progress(compile, NULL);
    if (status != UL_OK || compile->options.stop_after != NULL)
        return status;
    compile->graph.largest = compile->largest != NULL                   ? compile->largest
                             : ul_compile_has_ranges(&compile->options) ? &compile->graph
                                                                        : NULL;
    status = build_program(compile, &program);
    if (status != UL_OK)
        ul_diag_prefix(&compile->diag, compile->model.path);
    return status;
}

/* With a plan's options, another model may fail in any way; it is more useful to say that it is
 * another model. It may also be the same graph with other weights: then the plan is valid. */
enum ul_status ul_compile_build_roots(struct ul_compile *compile,
                                      const struct ul_texts *model_paths)
{
    UL_ASSERT(model_paths->count > 0);
    if (model_paths->count > 1)
        UL_TRY(ul_compile_check_roots(compile));
    UL_ASSERT(!compile->options.max_batch &&
              compile->options.max_dim == NULL); /* ul_compile_find_largest has replaced it */
    /* ul_compile_quantize has been called */
    UL_ASSERT(compile->options.quantize_activations == NULL);
    compile->asked.base.arena = &compile->keep;
    ul_options_copy(&compile->asked.base, &compile->options.base, sizeof compile->asked);
    enum ul_status status = build(compile, model_paths);
    if (status != UL_OK && ul_compile_is_other_model(compile))
        return ul_compile_report_other_model(compile);
    UL_ASSERT(status != UL_OK || compile->program != NULL || compile->options.stop_after != NULL);
    return status;
}

enum ul_status ul_compile_build(struct ul_compile *compile, const char *model_path)
{
    const struct ul_texts one = {.count = 1, .items = &model_path};
    return ul_compile_build_roots(compile, &one);
}
