/* SPDX-License-Identifier: Apache-2.0 */
/* A program for a range of sizes: compiles the model with all of them, and makes one program of
 * these, by the plan of the largest. */
#include "compile/sizes/sizes.h"

#include "compile/compile_internal.h"
#include <string.h>

static enum ul_status named(struct ul_compile *compile, enum ul_status status)
{
    ul_compile_progress(compile, NULL);
    const char *path = compile->model.path; /* which the message of an instance has already */
    if (status != UL_OK && strncmp(compile->diag.text, path, strlen(path)) != 0)
        ul_diag_prefix(&compile->diag, path);
    return status;
}

enum ul_status ul_compile_find_sizes(struct ul_compile *compile,
                                     struct ul_size_instances **instances)
{
    struct ul_size_instances found = {
        .arena = &compile->keep, .compile = compile, .asked = compile};
    *instances = NULL;
    if (compile->is_trial)
        return UL_OK;
    ul_size_list(compile, &found.sizes, &found.size_count);
    if (found.size_count == 0)
        return UL_OK;
    *instances = ul_arena_copy(&compile->keep, &found, sizeof found);
    ul_size_list_points(*instances);
    return ul_compile_has_ranges(&compile->options)
               ? named(compile, ul_size_instances_find(*instances))
               : UL_OK;
}

/* The program of sets: each root has one point, and no number of it follows from sizes. */
static void fix(struct ul_compile *compile, const struct ul_size_instances *instances)
{
    struct ul_arena *keep = &compile->keep;
    const struct ul_graph *graph = compile->program->graph;
    struct ul_program_sized *sized = UL_NEW(keep, struct ul_program_sized);
    *sized = (struct ul_program_sized){
        .size_count = instances->size_count,
        .sizes = instances->sizes,
        .pieces = compile->pieces->items,
        .numbers = UL_NEW_ARRAY(keep, const struct ul_formula *const *, graph->value_count),
        .offsets = UL_NEW_ARRAY(keep, const struct ul_formula *, graph->value_count)};
    const struct ul_formula **none =
        UL_NEW_ARRAY(keep, const struct ul_formula *, 2 * UL_LIMIT_RANK);
    for (ul_value_id v = 0; v < graph->value_count; v++)
        sized->numbers[v] = none;
    sized->input_sizes = ul_size_find_inputs(keep, graph, sized, instances);
    compile->program->sized = sized;
}

enum ul_status ul_compile_unify_sizes(struct ul_compile *compile,
                                      struct ul_size_instances *instances)
{
    if (instances == NULL)
        return UL_OK;
    /* what was settled for the largest sizes is no size of the program's */
    compile->options.dims.count = compile->said_dim_count;
    if (ul_compile_has_ranges(&compile->options))
        return named(compile, ul_size_unify(instances, &compile->program));
    fix(compile, instances);
    return UL_OK;
}
