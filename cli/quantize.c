/* SPDX-License-Identifier: Apache-2.0 */
/* --quantize-activations and --save-quantized, of compile and plan. */
#include "cli/cli.h"

enum ul_status ul_cli_quantize(struct ul_cli_job *job, const char **model)
{
    struct ul_compile *compile = &job->compile;
    const char *target = job->options.save_quantized;
    bool quantizes = compile->options.quantize_activations != NULL;
    struct ul_file file;
    if (target != NULL && !quantizes)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--save-quantized is for --quantize-activations DATA.npz");
    UL_TRY(ul_compile_quantize(compile, job->files.items[0], model));
    if (target == NULL)
        return UL_OK;
    UL_TRY(ul_file_map(&file, &compile->keep, *model, &compile->diag));
    enum ul_status status = ul_file_write(target, file.data, file.size_bytes, &compile->diag);
    ul_file_unmap(&file);
    return status;
}
