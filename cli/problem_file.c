/* SPDX-License-Identifier: Apache-2.0 */
/* Problems in text, where a graph or a model is allowed too: their first bytes tell them apart. */
#include "cli/cli.h"

#include <string.h>

enum ul_status ul_cli_read_problem(struct ul_cli_job *job, const char *path,
                                   struct ul_problem **problem)
{
    struct ul_compile *compile = &job->compile;
    struct ul_file file;
    *problem = NULL;
    /* standard input can be read only once, by the reader of the other forms */
    if (strcmp(path, "-") == 0)
        return UL_OK;
    UL_TRY(ul_file_map(&file, &compile->keep, path, &compile->diag));
    const char *text = (const char *)file.data;
    enum ul_status status = UL_OK;
    if (ul_problem_is_text(text, file.size_bytes))
        status = ul_problem_parse(&compile->keep, text, file.size_bytes, problem, &compile->diag);
    return ul_file_close(&file, path, status, &compile->diag);
}
