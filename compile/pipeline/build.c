/* SPDX-License-Identifier: Apache-2.0 */
/* From a model file to a program that can be planned: load, passes, lowering. */
#include "compile/compile_internal.h"
#include "compile/options/size_list.h"

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
    const char *path = model_paths->items[0];
    if (model_paths->count == 1 && (compile->pieces == NULL || compile->pieces->count == 1))
        return ul_compile_read_model(compile, path, target);
    if (model_paths->count == 1)
        ul_compile_list_pieces(compile, path);
    else
        UL_TRY(ul_compile_read_roots(compile, model_paths));
    return ul_compile_join_roots(compile, target);
}

enum ul_status ul_compile_open(struct ul_compile *compile, bool is_shared,
                               struct ul_program_options *program)
{
    if (is_shared)
        UL_TRY(ul_compile_check_roots(compile));
    /* ul_compile_find_largest and ul_compile_quantize have replaced these */
    UL_ASSERT(!compile->options.max_batch && compile->options.max_dim == NULL);
    UL_ASSERT(compile->options.quantize_activations == NULL);
    compile->asked.base.arena = &compile->keep;
    ul_options_copy(&compile->asked.base, &compile->options.base, sizeof compile->asked);
    if (compile->options.plan != NULL)
        UL_TRY(ul_compile_read_header(compile));
    else
        UL_TRY(ul_compile_fit(compile));
    compile->said_dim_count = compile->options.dims.count;
    UL_TRY(ul_compile_check_ranges(compile, is_shared));
    UL_TRY(ul_compile_read_profile(compile));
    return ul_compile_resolve(compile, program);
}

enum ul_status ul_compile_read(struct ul_compile *compile, const struct ul_texts *model_paths,
                               struct ul_program_options *program)
{
    ul_compile_progress(compile, "reading and simplifying the model");
    enum ul_status status = read_models(compile, model_paths, program->target);
    ul_compile_progress(compile, NULL);
    if (status != UL_OK || compile->options.stop_after != NULL)
        return status;
    compile->graph.largest = compile->largest != NULL                   ? compile->largest
                             : ul_compile_has_ranges(&compile->options) ? &compile->graph
                                                                        : NULL;
    status = build_program(compile, program);
    if (status != UL_OK)
        ul_diag_prefix(&compile->diag, compile->model.path);
    UL_ASSERT(status != UL_OK || compile->program != NULL);
    return status;
}

enum ul_status ul_compile_build_fixed(struct ul_compile *compile, const char *model_path)
{
    const struct ul_texts one = {.count = 1, .items = &model_path};
    struct ul_program_options program;
    UL_TRY(ul_compile_open(compile, false, &program));
    return ul_compile_read(compile, &one, &program);
}
