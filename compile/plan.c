/* SPDX-License-Identifier: Apache-2.0 */
/* The list of calls that make and describe a plan; emit.c continues from there. */
#include "compile/compile_internal.h"
#include "compile/sizes/sizes.h"
#include "planner/pack/stacking.h"

/* Dumps the kernels of the program that was chosen: plans may have tried others. */
static void dump_kernels(struct ul_compile *compile)
{
    struct ul_text text;
    if (!compile->options.print_kernels || compile->dump == NULL)
        return;
    ul_text_init(&text, &compile->keep);
    ul_program_print_kernels(&text, compile->program);
    fputs(text.data, compile->dump);
}

void ul_compile_put_json(struct ul_compile *compile)
{
    ul_text_init(&compile->json, &compile->keep);
    ul_report_put_json(&compile->json, &compile->report);
    ul_hash_hex(compile->json.data, compile->json.length, compile->plan_sha256);
}

/* Makes a plan; where offsets follow from sizes, what stays comes first. */
static enum ul_status solve(struct ul_compile *compile)
{
    const struct ul_problem *problem = compile->program->problem;
    UL_TRY(ul_compile_solve(compile));
    if (compile->options.offsets != UL_OFFSETS_SIZES)
        return UL_OK;
    struct ul_process_overhead overhead = ul_compile_overhead(compile, compile->program);
    ul_plan_restack(&compile->keep, problem, &compile->plan);
    ul_plan_judge(problem, compile->options.budget_bytes, &overhead, &compile->plan);
    return ul_plan_check(&compile->keep, problem, &compile->plan, &compile->diag);
}

enum ul_status ul_compile_plan(struct ul_compile *compile)
{
    UL_ASSERT(compile->program != NULL);
    struct ul_size_instances *sizes;
    UL_TRY(ul_compile_find_sizes(compile, &sizes));
    if (compile->options.plan != NULL)
        UL_TRY(ul_compile_read_plan(compile));
    else
        UL_TRY(solve(compile));
    UL_TRY(ul_compile_unify_sizes(compile, sizes));
    dump_kernels(compile);
    ul_compile_describe(compile);
    ul_compile_put_json(compile);
    UL_ASSERT(compile->plan.reserved_bytes != NULL && compile->json.length > 0);
    return UL_OK;
}
