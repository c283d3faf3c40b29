/* SPDX-License-Identifier: Apache-2.0 */
/* The list of calls from a model file to a program that can be planned; plan.c continues from
 * there.
 */
#include "compile/compile_internal.h"
#include "compile/sizes/sizes.h"

static enum ul_status build(struct ul_compile *compile, const struct ul_texts *model_paths)
{
    struct ul_program_options program;
    UL_TRY(ul_compile_open(compile, model_paths->count > 1, &program));
    UL_TRY(ul_compile_find_pieces(compile, model_paths->items[0]));
    return ul_compile_read(compile, model_paths, &program);
}

/* With a plan's options, another model may fail in any way; it is more useful to say that it is
 * another model. It may also be the same graph with other weights: then the plan is valid. */
enum ul_status ul_compile_build_roots(struct ul_compile *compile,
                                      const struct ul_texts *model_paths)
{
    UL_ASSERT(model_paths->count > 0);
    enum ul_status status = build(compile, model_paths);
    if (status != UL_OK && ul_compile_is_other_model(compile))
        return ul_compile_report_other_model(compile);
    return status;
}

enum ul_status ul_compile_build(struct ul_compile *compile, const char *model_path)
{
    const struct ul_texts one = {.count = 1, .items = &model_path};
    return ul_compile_build_roots(compile, &one);
}
