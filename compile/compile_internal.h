/* What the files of compile/ share. */
#ifndef UL_COMPILE_INTERNAL_H
#define UL_COMPILE_INTERNAL_H

#include "compile/compile.h"

/* fit.c: UL_USAGE where a field holds what its row in options.def does not take. */
enum ul_status ul_compile_check_options(struct ul_compile *compile) UL_MUST_CHECK;

/* progress.c: tells the caller what is going on; NULL: it is done. */
void ul_compile_progress(const struct ul_compile *compile, const char *what);

/* resolve.c: what the program is built for, from the options; fills in those that were left open
 * and that a plan has to name. Opens the target's library. */
enum ul_status ul_compile_resolve(struct ul_compile *compile,
                                  struct ul_program_options *program) UL_MUST_CHECK;
enum ul_dtype ul_compile_storage(const struct ul_compile_options *options);

/* budget.c: plans without a budget, or, where that is too much, the cheapest plan of the ladder
 * that fits; with wants_ladder the ladder is made anyway. */
enum ul_status ul_compile_solve(struct ul_compile *compile) UL_MUST_CHECK;

/* beside.c: counts what a program of this compile takes beside its buffer, once it is built; what
 * that is of its process, and of what a budget bounds; all that the compile's own plan takes. */
void ul_compile_count_beside(const struct ul_compile *compile, const struct ul_program *program);
struct ul_plan_beside ul_compile_process(const struct ul_compile *compile,
                                         const struct ul_program *program);
struct ul_plan_beside ul_compile_beside(const struct ul_compile *compile,
                                        const struct ul_program *program);
struct ul_footprint ul_compile_footprint(const struct ul_compile *compile);

/* splits.c: merges into the ladder the plans of programs that compute chains in pieces; and makes
 * the program the one of a rung's variant. `free_plan` is the plan without a budget. */
enum ul_status ul_compile_merge_splits(struct ul_compile *compile,
                                       const struct ul_plan *free_plan) UL_MUST_CHECK;
enum ul_status ul_compile_apply_variant(struct ul_compile *compile, uint32_t variant) UL_MUST_CHECK;

/* toolkit.c: fills in what only a target has a use for whose libraries programs find. */
enum ul_status ul_compile_resolve_toolkit(struct ul_compile *compile,
                                          struct ul_program_options *program) UL_MUST_CHECK;

/* plan_file.c */

/* Reads the head of options.plan, and takes from it what the caller left out. */
enum ul_status ul_compile_read_header(struct ul_compile *compile) UL_MUST_CHECK;
/* Reads options.plan onto the program and checks it. */
enum ul_status ul_compile_read_plan(struct ul_compile *compile) UL_MUST_CHECK;

/* profile.c: from options.profile, the plan, or the default of the target. */
enum ul_status ul_compile_read_profile(struct ul_compile *compile) UL_MUST_CHECK;

/* describe.c: the plan for reports. */
void ul_compile_describe(struct ul_compile *compile);

/* compiler.c: the program that the command is, or NULL. */
const char *ul_compile_command_path(struct ul_compile *compile);

#endif
