/* ullage export: what a trainer learned, as a model again. */
#include "cli/cli.h"

#include "ir/training.h"

#include <string.h>

/* What stands in a checkpoint beside parameters: counters, and state of the optimizer. */
static bool is_extra(const char *name)
{
    return strcmp(name, "step") == 0 || strcmp(name, "learning_rate") == 0 ||
           strcmp(name, "generator") == 0 || strcmp(name, "optimizer") == 0;
}

static bool is_state(const struct ul_npz_entry *entries, uint32_t count, const char *name)
{
    size_t length = ul_training_find_owner(name);
    for (uint32_t i = 0; length > 0 && i < count; i++)
        if (strlen(entries[i].name) == length && memcmp(entries[i].name, name, length) == 0)
            return true;
    return false;
}

static enum ul_status read_parameters(struct ul_cli_job *job, const struct ul_file *file,
                                      const char *path, struct ul_export_tensor **tensors,
                                      uint32_t *count)
{
    const struct ul_npz_entry *entries = NULL;
    uint32_t entry_count = 0;
    UL_TRY(ul_npz_list(&job->compile.keep, file, path, &entries, &entry_count, &job->compile.diag));
    *tensors = UL_NEW_ARRAY(&job->compile.keep, struct ul_export_tensor, entry_count);
    for (uint32_t i = 0; i < entry_count; i++) {
        struct ul_export_tensor *tensor = &(*tensors)[*count];
        if (is_extra(entries[i].name) || is_state(entries, entry_count, entries[i].name))
            continue;
        tensor->name = entries[i].name;
        UL_TRY(ul_npz_read(&job->compile.keep, &entries[i], path, &tensor->tensor,
                           &job->compile.diag));
        ++*count;
    }
    return UL_OK;
}

static enum ul_status export(struct ul_cli_job *job) {
    struct ul_compile *compile = &job->compile; struct ul_export_tensor *tensors = NULL;
    struct ul_file file;
    uint32_t count = 0;
    if (job->files.count != 2 || job->options.output == NULL) return ul_diag_set(
        &compile->diag, UL_USAGE,
        "give a model, a checkpoint and a result: ullage export MODEL.onnx "
        "C.npz -o TRAINED.onnx");
    const char *model = job->files.items[0], *path = job->files.items[1];
    UL_TRY(ul_file_map(&file, &compile->keep, path, &compile->diag));
    enum ul_status status = read_parameters(job, &file, path, &tensors, &count);
    ul_file_unmap(&file);
    UL_TRY(status);
    UL_TRY(ul_frontend_export(&compile->keep, model, job->options.output, tensors, count,
                              &compile->diag));
    if (!ul_cli_stdout_is_taken(job))
        printf("%s: %u initializers of %s\n", job->options.output, (unsigned)count, path);
    return UL_OK;
}

const struct ul_cli_command ul_command_export = {
    .name = "export",
    .arguments = "MODEL.onnx C.npz -o TRAINED.onnx",
    .summary = "Writes a model with the parameters of a checkpoint that a trainer saved.",
    .details = "Initializers take the values of the checkpoint's entries of their names, which "
               "must have their types and shapes; those that it does not name stay. The state of "
               "the optimizer is passed over. Where the model has external data, they go to "
               "TRAINED.onnx.data.",
    .group = "models",
    .bit = UL_IN_EXPORT,
    .run = export};
