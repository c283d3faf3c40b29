/* SPDX-License-Identifier: Apache-2.0 */
/* ullage export: writes what a trainer learned as a model. */
#include "cli/cli.h"

#include "ir/training.h"

#include <string.h>

/* A checkpoint that is being read. */
struct checkpoint {
    struct ul_cli_job *job;
    const char *path;
    const struct ul_npz_entry *entries;
    uint32_t count, counter_count;
};

/* Entries of a checkpoint that are no parameters: counters, and state of the optimizer. */
static bool is_extra(const char *name)
{
    static const char *const extras[] = {
        "step",     "learning_rate", "generator",  "optimizer",  "lora_alpha",
        "quantize", "order_step",    "loss/scale", "loss/steps", "loss/growth_tracker"};
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        if (strcmp(name, extras[i]) == 0)
            return true;
    return false;
}

/* NAME.num_batches_tracked of a torch state_dict, which BatchNormalization does not read. */
static bool is_counter(const char *name)
{
    static const char counter[] = "num_batches_tracked";
    size_t length = strlen(name), tail = sizeof counter - 1;
    return length >= tail && strcmp(name + length - tail, counter) == 0 &&
           (length == tail || name[length - tail - 1] == '.');
}

static const struct ul_npz_entry *find_entry(const struct checkpoint *file, const char *name,
                                             size_t length)
{
    for (uint32_t i = 0; i < file->count; i++)
        if (strlen(file->entries[i].name) == length &&
            memcmp(file->entries[i].name, name, length) == 0)
            return &file->entries[i];
    return NULL;
}

/* NAME/momentum, NAME/exp_avg/absmax and the like, for a parameter NAME. */
static bool is_state(const struct checkpoint *file, const char *name)
{
    size_t length = ul_training_find_owner(name);
    return length > 0 && find_entry(file, name, length) != NULL;
}

static enum ul_status read_entry(const struct checkpoint *file, const struct ul_npz_entry *entry,
                                 const struct ul_tensor **tensor)
{
    struct ul_compile *compile = &file->job->compile;
    return ul_npz_read(&compile->keep, entry, file->path, tensor, &compile->diag);
}

/* The other factor of NAME/lora_A. */
static const struct ul_npz_entry *find_second(const struct checkpoint *file, const char *name)
{
    size_t length = strlen(name), tail = strlen("/" UL_TRAINING_LORA_A);
    if (length <= tail || strcmp(name + length - tail, "/" UL_TRAINING_LORA_A) != 0)
        return NULL;
    const char *other = ul_arena_printf(&file->job->compile.keep, "%.*s/" UL_TRAINING_LORA_B,
                                        (int)(length - tail), name);
    return find_entry(file, other, strlen(other));
}

/* Whether it is the second one of a pair. */
static bool is_second(const struct checkpoint *file, const char *name)
{
    size_t length = strlen(name), tail = strlen("/" UL_TRAINING_LORA_B);
    if (length <= tail || strcmp(name + length - tail, "/" UL_TRAINING_LORA_B) != 0)
        return false;
    const char *first = ul_arena_printf(&file->job->compile.keep, "%.*s/" UL_TRAINING_LORA_A,
                                        (int)(length - tail), name);
    return find_entry(file, first, strlen(first)) != NULL;
}

/* Decides which factor is the left one, A or B: they share the rank, which is smaller than the
 * other sides. For filters it is B. */
static enum ul_status read_factors(const struct checkpoint *file, const struct ul_npz_entry *first,
                                   const struct ul_npz_entry *second,
                                   struct ul_export_tensor *tensor)
{
    struct ul_compile *compile = &file->job->compile;
    const struct ul_npz_entry *alpha = find_entry(file, "lora_alpha", strlen("lora_alpha"));
    const struct ul_tensor *a = NULL, *b = NULL, *number = NULL;
    if (alpha == NULL)
        return ul_diag_set(&compile->diag, UL_INVALID,
                           "%s: has factors and no lora_alpha (float64), by which they count",
                           file->path);
    UL_TRY(read_entry(file, alpha, &number));
    UL_TRY(read_entry(file, first, &a));
    UL_TRY(read_entry(file, second, &b));
    bool fits = number->type.dtype == UL_F64 && ul_type_elements(&number->type) == 1 &&
                a->type.rank >= 2 && b->type.rank == a->type.rank && a->type.dims[0] > 0 &&
                b->type.dims[0] > 0;
    bool a_may = fits && a->type.rank == 2 && a->type.dims[1] == b->type.dims[0];
    bool b_may = fits && b->type.dims[1] == a->type.dims[0];
    bool b_is_left = b_may && !(a_may && a->type.dims[1] < a->type.dims[0]);
    if (!a_may && !b_may)
        return ul_diag_set(&compile->diag, UL_INVALID, "%s: %s and %s are no factors of one weight",
                           file->path, ul_quote(&compile->keep, first->name),
                           ul_quote(&compile->keep, second->name));
    *tensor = (struct ul_export_tensor){
        .name = ul_arena_printf(&compile->keep, "%.*s",
                                (int)(strrchr(first->name, '/') - first->name), first->name),
        .left = b_is_left ? b : a,
        .right = b_is_left ? a : b,
        .left_name = b_is_left ? second->name : first->name,
        .right_name = b_is_left ? first->name : second->name,
        .is_apart = file->job->options.apart};
    tensor->scale = ul_tensor_get_float(number, 0) / (double)tensor->right->type.dims[0];
    return UL_OK;
}

static enum ul_status read_parameters(struct checkpoint *file, const struct ul_file *mapped,
                                      struct ul_export_tensor **tensors, uint32_t *count)
{
    struct ul_compile *compile = &file->job->compile;
    UL_TRY(ul_npz_list(&compile->keep, mapped, file->path, &file->entries, &file->count,
                       &compile->diag));
    *tensors = UL_NEW_ARRAY(&compile->keep, struct ul_export_tensor, file->count);
    for (uint32_t i = 0; i < file->count; i++) {
        const struct ul_npz_entry *entry = &file->entries[i];
        struct ul_export_tensor *tensor = &(*tensors)[*count];
        file->counter_count += is_counter(entry->name);
        if (is_extra(entry->name) || is_counter(entry->name) || is_state(file, entry->name) ||
            is_second(file, entry->name))
            continue;
        const struct ul_npz_entry *second = find_second(file, entry->name);
        tensor->name = entry->name;
        if (second != NULL)
            UL_TRY(read_factors(file, entry, second, tensor));
        else
            UL_TRY(read_entry(file, entry, &tensor->tensor));
        ++*count;
    }
    return UL_OK;
}

/* Reads the lines of --quantize in the checkpoint; NULL: there are none. */
static enum ul_status read_quantize(const struct checkpoint *file, const char **lines)
{
    struct ul_compile *compile = &file->job->compile;
    const struct ul_npz_entry *entry = find_entry(file, "quantize", strlen("quantize"));
    const struct ul_tensor *tensor = NULL;
    *lines = NULL;
    if (entry == NULL)
        return UL_OK;
    UL_TRY(read_entry(file, entry, &tensor));
    if (tensor->type.dtype != UL_U8 || tensor->type.rank != 1 ||
        tensor->type.dims[0] != UL_TRAINING_QUANTIZE_BYTES)
        return ul_diag_set(&compile->diag, UL_INVALID, "%s: \"quantize\" is no uint8 [%d]",
                           file->path, UL_TRAINING_QUANTIZE_BYTES);
    unsigned char text[UL_TRAINING_QUANTIZE_BYTES + 1] = {0};
    ul_tensor_read(tensor, 0, UL_TRAINING_QUANTIZE_BYTES, text);
    *lines = ul_arena_printf(&compile->keep, "%s", (const char *)text);
    return UL_OK;
}

/* For weights that had few bits while their factors were trained: the dequantized numbers replace
 * the model's. */
static enum ul_status take_dequantized(const struct checkpoint *file, const char *model,
                                       const char *lines, struct ul_export_tensor **tensors,
                                       uint32_t *count, uint32_t *taken)
{
    struct ul_compile *compile = &file->job->compile;
    struct ul_compile_dequantized *list = NULL;
    uint32_t list_count = 0, known_count = *count;
    UL_TRY(ul_compile_dequantize(compile, model, lines, &list, &list_count));
    struct ul_export_tensor *all =
        UL_NEW_ARRAY(&compile->keep, struct ul_export_tensor, known_count + list_count);
    memcpy(all, *tensors, known_count * sizeof *all);
    for (uint32_t i = 0; i < list_count; i++) {
        uint32_t at = 0;
        while (at < known_count && strcmp(all[at].name, list[i].name) != 0)
            at++;
        if (at == known_count)
            all[(*count)++] =
                (struct ul_export_tensor){.name = list[i].name, .tensor = list[i].tensor};
        else if (all[at].tensor == NULL)
            all[at].base = list[i].tensor;
        *taken += at == known_count || all[at].tensor == NULL;
    }
    *tensors = all;
    return UL_OK;
}

static enum ul_status read_checkpoint(struct checkpoint *file, struct ul_export_tensor **tensors,
                                      uint32_t *count, const char **lines)
{
    struct ul_compile *compile = &file->job->compile;
    struct ul_file mapped;
    UL_TRY(ul_file_map(&mapped, &compile->keep, file->path, &compile->diag));
    enum ul_status status = read_parameters(file, &mapped, tensors, count);
    if (status == UL_OK)
        status = read_quantize(file, lines);
    ul_file_unmap(&mapped);
    return status;
}

static enum ul_status check_apart(const struct checkpoint *file,
                                  const struct ul_export_tensor *tensors, uint32_t count)
{
    bool has_factors = false;
    for (uint32_t i = 0; i < count; i++)
        has_factors = has_factors || tensors[i].left != NULL;
    if (!file->job->options.apart || has_factors)
        return UL_OK;
    return ul_diag_set(&file->job->compile.diag, UL_USAGE,
                       "--apart is for factors of --lora, and %s has none: leave it out",
                       file->path);
}

static enum ul_status export_model(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    struct ul_export_tensor *tensors = NULL;
    const char *lines = NULL;
    uint32_t count = 0, total, dequantized = 0, turned = 0;
    if (job->files.count != 2 || job->options.output == NULL)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "give a model, a checkpoint and a result: ullage export MODEL.onnx "
                           "C.npz -o TRAINED.onnx");
    const char *model = job->files.items[0], *path = job->files.items[1];
    struct checkpoint checkpoint = {.job = job, .path = path};
    UL_TRY(read_checkpoint(&checkpoint, &tensors, &count, &lines));
    UL_TRY(check_apart(&checkpoint, tensors, count));
    total = count;
    if (lines != NULL)
        UL_TRY(take_dequantized(&checkpoint, model, lines, &tensors, &total, &dequantized));
    UL_TRY(ul_frontend_export(&compile->keep, model, job->options.output, tensors, total,
                              job->options.training_mode ? NULL : &turned, &compile->diag));
    if (ul_cli_stdout_is_taken(job))
        return UL_OK;
    ul_cli_say(stdout, "%s: %u initializers of %s\n", job->options.output, (unsigned)count, path);
    if (checkpoint.counter_count > 0)
        ul_cli_say(stdout, "passed over: num_batches_tracked of %u layer%s\n",
                   (unsigned)checkpoint.counter_count, ul_plural(checkpoint.counter_count));
    if (lines != NULL)
        ul_cli_say(stdout, "%u of its weights are what they were of few bits\n",
                   (unsigned)dequantized);
    if (turned > 0)
        ul_cli_say(stdout, "%u node%s of training mode compute%s as in inference\n",
                   (unsigned)turned, ul_plural(turned), turned == 1 ? "s" : "");
    return UL_OK;
}

static const struct ul_cli_example examples[] = {
    {"The model that was trained", "ullage export net.onnx net.npz -o trained.onnx"}, {NULL, NULL}};

const struct ul_cli_command ul_command_export = {
    .name = "export",
    .arguments = "MODEL.onnx C.npz -o TRAINED.onnx",
    .summary = "Writes a model with the parameters of a checkpoint that a trainer saved.",
    .details =
        "Initializers take the values of the checkpoint's entries with the same names, which must "
        "have the same types and shapes; initializers without an entry stay. The state of the "
        "optimizer is ignored, and so is num_batches_tracked of a torch state_dict. A weight with "
        "factors of --lora in the checkpoint gets their product, times lora_alpha over the rank, "
        "added; with --apart the factors become initializers, and new nodes add the product. "
        "Weights that --quantize kept in few bits while factors were trained become the floats "
        "that they stand for. BatchNormalization normalizes by running statistics and Dropout "
        "drops nothing, also if the model was in training mode; --training-mode keeps that mode. "
        "External data of the model go to TRAINED.onnx.data.",
    .group = "models",
    .endings = "onnx npz",
    .examples = examples,
    .bit = UL_IN_EXPORT,
    .run = export_model};
