/* SPDX-License-Identifier: Apache-2.0 */
/* What a program takes besides its buffer, as far as that belongs to the program and a budget
 * bounds it. */
#include "compile/compile_internal.h"

/* Whether the program is a process, rather than part of a caller's. */
static bool is_process(const struct ul_compile *compile)
{
    return !compile->is_library && compile->options.io == UL_IO_ARENA &&
           compile->options.weights != UL_WEIGHTS_ROM;
}

void ul_compile_count_beside(const struct ul_compile *compile, const struct ul_program *program)
{
    ul_footprint_count_beside(program, is_process(compile));
}

struct ul_plan_beside ul_compile_process(const struct ul_compile *compile,
                                         const struct ul_program *program)
{
    return ul_footprint_beside(program, is_process(compile));
}

struct ul_plan_beside ul_compile_beside(const struct ul_compile *compile,
                                        const struct ul_program *program)
{
    if (compile->options.budget_of == UL_BUDGET_ARENA)
        return (struct ul_plan_beside){.run_bytes = 0};
    return ul_compile_process(compile, program);
}

struct ul_footprint ul_compile_footprint(const struct ul_compile *compile)
{
    struct ul_footprint footprint;
    ul_footprint_count(compile->program, &compile->plan, is_process(compile), &footprint);
    return footprint;
}
