/* SPDX-License-Identifier: Apache-2.0 */
/* ullage inspect --train: which tensors of a model would be trained, and which would not. */
#include "cli/cli.h"

#include <inttypes.h>

static const char *const words[UL_TRAINED_ROLES] = {[UL_TRAINED_YES] = "trained",
                                                    [UL_TRAINED_DOUBTFUL] = "trained, doubtful",
                                                    [UL_TRAINED_STATISTIC] = "running statistic",
                                                    [UL_TRAINED_UNREACHED] = "no gradient",
                                                    [UL_TRAINED_BUFFER] = "no parameter",
                                                    [UL_TRAINED_NUMBER] = "one number",
                                                    [UL_TRAINED_FIXED] = "fixed"};

static void put_row(struct ul_text *text, enum ul_trained_role role, const struct ul_value *value)
{
    ul_text_printf(text, "  %-17s  %-40s %-20s %12" PRIu64 "\n", words[role],
                   ul_quote(text->arena, value->name), ul_type_text(text->arena, &value->type),
                   ul_type_elements(&value->type));
}

static void put_sum(struct ul_text *text, const uint64_t *tensors, const uint64_t *elements)
{
    uint64_t trained = tensors[UL_TRAINED_YES] + tensors[UL_TRAINED_DOUBTFUL];
    ul_text_printf(text, "\n%" PRIu64 " parameters in %" PRIu64 " tensor%s are trained.",
                   elements[UL_TRAINED_YES] + elements[UL_TRAINED_DOUBTFUL], trained,
                   ul_plural(trained));
    if (tensors[UL_TRAINED_UNREACHED] > 0)
        ul_text_printf(text,
                       "\nNothing differentiable leads to the loss from %" PRIu64
                       " tensor%s, which stay%s as %s.",
                       tensors[UL_TRAINED_UNREACHED], ul_plural(tensors[UL_TRAINED_UNREACHED]),
                       tensors[UL_TRAINED_UNREACHED] == 1 ? "s" : "",
                       tensors[UL_TRAINED_UNREACHED] == 1 ? "it is" : "they are");
    if (tensors[UL_TRAINED_BUFFER] > 0)
        ul_text_printf(
            text, "\n%" PRIu64 " tensor%s no parameter%s, by the exporter's record in the file.",
            tensors[UL_TRAINED_BUFFER], tensors[UL_TRAINED_BUFFER] == 1 ? " is" : "s are",
            ul_plural(tensors[UL_TRAINED_BUFFER]));
    if (tensors[UL_TRAINED_NUMBER] > 0)
        ul_text_put(text, "\nSingle numbers are taken for factors of formulas.");
}

enum ul_status ul_cli_inspect_training(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    const struct ul_training *training = &compile->training;
    uint64_t tensors[UL_TRAINED_ROLES] = {0}, elements[UL_TRAINED_ROLES] = {0};
    struct ul_text text;
    compile->options.stop_after = "gradient";
    UL_TRY(ul_compile_build(compile, job->files.items[0]));
    ul_text_init(&text, &compile->keep);
    for (uint32_t i = 0; i < training->initializer_count; i++) {
        const struct ul_value *value = &compile->graph.values[training->initializers[i]];
        enum ul_trained_role role = ul_compile_trained_role(compile, training->initializers[i]);
        put_row(&text, role, value);
        tensors[role]++;
        elements[role] += ul_type_elements(&value->type);
    }
    put_sum(&text, tensors, elements);
    ul_compile_put_trained_notes(compile, &text);
    ul_text_put(&text, "\n");
    ul_cli_print(&text);
    return UL_OK;
}
