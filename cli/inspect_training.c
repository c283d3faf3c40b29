/* SPDX-License-Identifier: Apache-2.0 */
/* ullage inspect --train: which tensors of a model would be trained, and which would not. */
#include "cli/cli.h"

#include <inttypes.h>

enum role { ROLE_TRAINED, ROLE_STATISTIC, ROLE_UNREACHED, ROLE_FIXED, ROLE_NUMBER, ROLE_COUNT };

static const char *const words[ROLE_COUNT] = {[ROLE_TRAINED] = "trained",
                                              [ROLE_STATISTIC] = "running statistic",
                                              [ROLE_UNREACHED] = "no gradient",
                                              [ROLE_FIXED] = "fixed",
                                              [ROLE_NUMBER] = "one number"};

static enum role role_of(const struct ul_compile *compile, ul_value_id id)
{
    const struct ul_value *value = &compile->graph.values[id];
    if ((value->flags & UL_VALUE_TRAINED) != 0)
        return ROLE_TRAINED;
    if ((value->flags & UL_VALUE_PERSISTENT) != 0)
        return ROLE_STATISTIC;
    for (uint32_t i = 0; i < compile->training.unreached_count; i++)
        if (compile->training.unreached[i] == id)
            return ROLE_UNREACHED;
    return ul_type_elements(&value->type) == 1 ? ROLE_NUMBER : ROLE_FIXED;
}

static void put_row(struct ul_text *text, enum role role, const struct ul_value *value)
{
    struct ul_text type;
    ul_text_init(&type, text->arena);
    ul_type_print(&type, &value->type);
    ul_text_printf(text, "  %-17s  %-40s %-20s %12" PRIu64 "\n", words[role],
                   ul_quote(text->arena, value->name), type.data, ul_type_elements(&value->type));
}

static void put_sum(struct ul_text *text, const uint64_t *tensors, const uint64_t *elements)
{
    ul_text_printf(text, "\n%" PRIu64 " parameters in %" PRIu64 " tensor%s are trained.",
                   elements[ROLE_TRAINED], tensors[ROLE_TRAINED],
                   tensors[ROLE_TRAINED] == 1 ? "" : "s");
    if (tensors[ROLE_UNREACHED] > 0)
        ul_text_printf(text,
                       "\nNothing differentiable leads to the loss from %" PRIu64
                       " tensor%s, which "
                       "stay%s as %s.",
                       tensors[ROLE_UNREACHED], tensors[ROLE_UNREACHED] == 1 ? "" : "s",
                       tensors[ROLE_UNREACHED] == 1 ? "s" : "",
                       tensors[ROLE_UNREACHED] == 1 ? "it is" : "they are");
    if (tensors[ROLE_NUMBER] > 0)
        ul_text_put(text, "\nSingle numbers are taken for factors of formulas; --train-only NAME "
                          "trains one.");
    ul_text_put(text, "\n");
}

enum ul_status ul_cli_inspect_training(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    const struct ul_training *training = &compile->training;
    uint64_t tensors[ROLE_COUNT] = {0}, elements[ROLE_COUNT] = {0};
    struct ul_text text;
    compile->options.stop_after = "gradient";
    UL_TRY(ul_compile_build(compile, job->files.items[0]));
    ul_text_init(&text, &compile->keep);
    for (uint32_t i = 0; i < training->initializer_count; i++) {
        const struct ul_value *value = &compile->graph.values[training->initializers[i]];
        enum role role = role_of(compile, training->initializers[i]);
        put_row(&text, role, value);
        tensors[role]++;
        elements[role] += ul_type_elements(&value->type);
    }
    put_sum(&text, tensors, elements);
    ul_cli_print(&text);
    return UL_OK;
}
