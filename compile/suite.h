/* SPDX-License-Identifier: Apache-2.0 */
/* Several models that run one after another in one arena, each compiled by itself.
 *
 *     struct ul_suite suite;
 *     status = ul_suite_build(&suite, &command, paths);    command.options are those of all models
 *     if (status == UL_OK)
 *         status = ul_suite_plan(&suite);                  suite.models[i].compile->plan
 *     if (status == UL_OK)
 *         status = ul_suite_require_fit(&suite);
 *     if (status == UL_OK)
 *         status = ul_suite_emit(&suite, "folder");        a library that builds with make
 *     if (status != UL_OK)
 *         puts(command.diag.text);
 *     ul_suite_done(&suite);
 *
 * Invariants: every plan reserves the same bytes, and has passed the checker, with values of class
 * UL_PLAN_OTHERS for what other models take; together they have passed ul_plan_check_shared. What a
 * model keeps between its runs (weights, state, books of a library) no other touches.
 * Ownership: all lives in the command's `keep`, until ul_suite_done; the command is the caller's.
 * Units: bytes. Failure: a status, and its text, which names the file, in the command's diag; then
 * ul_suite_done alone may follow.
 * A budget bounds the arena (--budget-of arena), or with it what the libraries of all models keep
 * and the stack of the deepest call: the process is the caller's.
 */
#ifndef UL_SUITE_H
#define UL_SUITE_H

#include "compile/compile.h"

enum { UL_SUITE_MAX_MODELS = 64 };

struct ul_suite_model {
    const char *path;
    const char *prefix; /* of its names in C; what plans of the others call it */
    /* Of the command's options, those that name a dimension, an input or an output of this model.
     */
    struct ul_named_sizes dims, shapes;
    struct ul_pairs consts, donations;
    struct ul_compile *compile;
    uint64_t kept_bytes;   /* of the arena, between its runs */
    uint64_t beside_bytes; /* that its library keeps beside the arena */
};

struct ul_suite {
    struct ul_compile *command;
    uint32_t count;
    struct ul_suite_model *models;
    bool fits;
    uint64_t smallest_budget_bytes; /* known to work, where the budget does not */
    struct ul_report_suite report;
    struct ul_text json; /* docs/plan-format.md: "ullage-shared" */
};

/* suite_options.c */

/* Reads what the files say of themselves, and gives each its options. UL_USAGE for options that are
 * of one model, or that fit none. */
enum ul_status ul_suite_build(struct ul_suite *suite, struct ul_compile *command,
                              const struct ul_texts *paths) UL_MUST_CHECK;

/* suite.c */

/* Compiles and plans each, and lays the plans into one arena: report, json. */
enum ul_status ul_suite_plan(struct ul_suite *suite) UL_MUST_CHECK;
/* UL_NO_FIT: why, and what would do. */
enum ul_status ul_suite_require_fit(struct ul_suite *suite) UL_MUST_CHECK;
void ul_suite_done(struct ul_suite *suite);

/* suite_emit.c */

/* Writes a folder that make alone builds to libshared.a: shared.h, a folder of source and plan for
 * each model, and the runtime once. */
enum ul_status ul_suite_emit(struct ul_suite *suite, const char *directory) UL_MUST_CHECK;

#endif
