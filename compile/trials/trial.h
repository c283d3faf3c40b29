/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles of the same model with edited options, to learn what their plans take. */
#ifndef UL_COMPILE_TRIAL_H
#define UL_COMPILE_TRIAL_H

#include "compile/compile_internal.h"

struct ul_trial {
    const char *what; /* what is tried, for the progress */
    const char *path; /* path of its model; NULL: the one that the call names */
    struct ul_option_edits edits;
    /* Called before it is built, such as ul_compile_find_largest; or NULL. */
    enum ul_status (*prepare)(struct ul_compile *other, const char *model_path);
    /* The results. */
    struct ul_diag diag; /* UL_NO_FIT is an answer */
    bool has_batch_statistics;
    bool repeats; /* it takes more time than a plan without a budget */
    char model_sha256[65];
    struct ul_saved_table_plan result;
};
/* UL_USAGE where the option, which needs trials of each `what`, has a plan already, or a model that
 * can be read only once. */
enum ul_status ul_compile_check_trials(struct ul_compile *compile, const char *option,
                                       const char *each, const char *model_path) UL_MUST_CHECK;
/* Compiles and plans one trial; its texts live in the compile's arena. */
enum ul_status ul_compile_try(struct ul_compile *compile, const char *model_path,
                              struct ul_trial *trial) UL_MUST_CHECK;
/* Makes many trials, in parallel on the cores of this machine. Each result has its status. */
void ul_compile_try_all(struct ul_compile *compile, const char *model_path, struct ul_trial *trials,
                        uint32_t count);

/* micro_batches.c: where --micro-batches leaves it open, sets the number of micro-batches with the
 * least predicted time within the budget. */
enum ul_status ul_compile_find_parts(struct ul_compile *compile,
                                     const char *model_path) UL_MUST_CHECK;

#endif
