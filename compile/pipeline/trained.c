/* SPDX-License-Identifier: Apache-2.0 */
/* Names the tensors that are trained, and those that are not with the reason, for the first lines
 * of a plan and for inspect. */
#include "compile/compile_internal.h"

#include <inttypes.h>

enum { SHOWN_NAMES = 4 };

static bool has_value(const uint32_t *values, uint32_t count, ul_value_id value)
{
    for (uint32_t i = 0; i < count; i++)
        if (values[i] == value)
            return true;
    return false;
}

enum ul_trained_role ul_compile_trained_role(const struct ul_compile *compile,
                                             ul_value_id initializer)
{
    const struct ul_value *value = &compile->graph.values[initializer];
    const struct ul_training *training = &compile->training;
    if ((value->flags & UL_VALUE_TRAINED) != 0)
        return has_value(training->arithmetic, training->arithmetic_count, initializer) ||
                       has_value(training->suspects, training->suspect_count, initializer)
                   ? UL_TRAINED_DOUBTFUL
                   : UL_TRAINED_YES;
    if ((value->flags & UL_VALUE_PERSISTENT) != 0)
        return UL_TRAINED_STATISTIC;
    if (has_value(training->unreached, training->unreached_count, initializer))
        return UL_TRAINED_UNREACHED;
    if (has_value(training->left_out, training->left_out_count, initializer))
        return UL_TRAINED_FIXED;
    if ((value->flags & UL_VALUE_BUFFER) != 0)
        return UL_TRAINED_BUFFER;
    return ul_type_elements(&value->type) == 1 ? UL_TRAINED_NUMBER : UL_TRAINED_FIXED;
}

/* "a, b and 3 more" */
static void put_names(struct ul_text *text, const struct ul_graph *graph, const uint32_t *values,
                      uint32_t count)
{
    uint32_t shown = count <= SHOWN_NAMES + 1 ? count : SHOWN_NAMES;
    for (uint32_t i = 0; i < shown; i++)
        ul_text_printf(text, "%s%s",
                       i == 0                             ? ""
                       : i + 1 == count && count == shown ? " and "
                                                          : ", ",
                       ul_quote(text->arena, graph->values[values[i]].name));
    if (count > shown)
        ul_text_printf(text, " and %u more", (unsigned)(count - shown));
}

static uint64_t sum_bytes(const struct ul_graph *graph, const uint32_t *values, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += ul_type_bytes(&graph->values[values[i]].type);
    return bytes;
}

/* Names, by reason, weights that stay as they are though somebody may expect them to be trained. */
static void put_others(struct ul_compile *compile, struct ul_text *text)
{
    static const struct {
        enum ul_trained_role role;
        const char *why;
    } rows[] = {{UL_TRAINED_BUFFER, "no parameters, by the exporter's record"},
                {UL_TRAINED_NUMBER, "single numbers, as of formulas"},
                {UL_TRAINED_FIXED, "as they are read, or by an option"}};
    const struct ul_training *training = &compile->training;
    uint32_t *values = UL_NEW_ARRAY(&compile->keep, uint32_t, training->initializer_count);
    enum ul_trained_role *roles =
        UL_NEW_ARRAY(&compile->keep, enum ul_trained_role, training->initializer_count);
    bool any = false;
    for (uint32_t i = 0; i < training->initializer_count; i++)
        roles[i] = ul_compile_trained_role(compile, training->initializers[i]);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < training->initializer_count; i++)
            if (roles[i] == rows[r].role)
                values[count++] = training->initializers[i];
        if (count == 0)
            continue;
        ul_text_put(text, any ? "; " : " Not trained: ");
        put_names(text, &compile->graph, values, count);
        ul_text_printf(text, " (%s, %" PRIu64 " bytes)", rows[r].why,
                       sum_bytes(&compile->graph, values, count));
        any = true;
    }
    if (any)
        ul_text_put(text, ".");
}

static bool has_role(const struct ul_compile *compile, enum ul_trained_role role)
{
    const struct ul_training *training = &compile->training;
    for (uint32_t i = 0; i < training->initializer_count; i++)
        if (ul_compile_trained_role(compile, training->initializers[i]) == role)
            return true;
    return false;
}

void ul_compile_put_trained_notes(struct ul_compile *compile, struct ul_text *text)
{
    const struct ul_training *training = &compile->training;
    bool has_buffers = has_role(compile, UL_TRAINED_BUFFER);
    if (has_buffers || has_role(compile, UL_TRAINED_NUMBER))
        ul_text_printf(text,
                       "\n--train-only '*' trains %s too, and --freeze NAME beside it leaves one "
                       "as it is.",
                       has_buffers ? "what is no parameter" : "single numbers");
    if (training->arithmetic_count > 0) {
        ul_text_put(text, "\nThe file does not say what is a buffer. Trained, and read by "
                          "arithmetic alone: ");
        put_names(text, &compile->graph, training->arithmetic, training->arithmetic_count);
        ul_text_put(text, "; --freeze NAME leaves one as it is.");
    }
    if (training->suspect_count > 0) {
        ul_text_put(text, "\nNo parameters of a network, by their names or because they begin with "
                          "the batch, but made by an exporter: ");
        put_names(text, &compile->graph, training->suspects, training->suspect_count);
        ul_text_put(text, ". As it is trained torch writes a network by " UL_TRAINING_RECIPE
                          ", which --train-mode takes.");
    }
}

void ul_compile_describe_trained(struct ul_compile *compile)
{
    struct ul_saved_training *report = &compile->report.facts.training;
    struct ul_text text;
    if (report->tensors == 0)
        return;
    ul_text_init(&text, &compile->keep);
    ul_text_printf(&text, "Trained: %" PRIu64 " tensor%s, %" PRIu64 " bytes.", report->tensors,
                   ul_plural(report->tensors), report->parameter_bytes);
    put_others(compile, &text);
    ul_compile_put_trained_notes(compile, &text);
    report->notes = text.data;
}
