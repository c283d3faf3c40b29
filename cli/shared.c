/* SPDX-License-Identifier: Apache-2.0 */
/* --shared: several models in one arena, for `plan`, `compile` and `check`. */
#include "cli/cli.h"

enum ul_status ul_cli_check_shared(struct ul_cli_job *job, bool takes_many)
{
    struct ul_diag *diag = &job->compile.diag;
    if (job->options.shared && job->files.count < 2)
        return ul_diag_set(diag, UL_USAGE,
                           "--shared is for several models: give them, or leave --shared out");
    if (job->options.shared && job->options.advice == UL_ADVICE_ON)
        return ul_diag_set(diag, UL_USAGE,
                           "--advice on is of one model: leave out that, or --shared");
    if (!job->options.shared && job->compile.options.links.count > 0)
        return ul_diag_set(diag, UL_USAGE,
                           "--link is of two models: give --shared too, or leave it out");
    if (!job->options.shared && !takes_many && job->files.count > 1)
        return ul_diag_set(diag, UL_USAGE,
                           "this takes one model; --shared takes several, which run one after "
                           "another in one arena");
    return UL_OK;
}

enum ul_status ul_cli_check_names(struct ul_cli_job *job)
{
    if (job->compile.options.prefix == NULL || job->options.shared)
        return UL_OK;
    return ul_diag_set(&job->compile.diag, UL_USAGE,
                       "--prefix names the models of --shared here: leave one out, or give both");
}
