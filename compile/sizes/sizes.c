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
    return named(compile, ul_size_instances_find(*instances));
}

enum ul_status ul_compile_unify_sizes(struct ul_compile *compile,
                                      struct ul_size_instances *instances)
{
    if (instances == NULL)
        return UL_OK;
    /* what was settled for the largest sizes is no size of the program's */
    compile->options.dims.count = compile->said_dim_count;
    return named(compile, ul_size_unify(instances, &compile->program));
}
