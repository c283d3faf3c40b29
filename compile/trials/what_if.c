/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of models under other options, as a table: each combination of the values that the caller
 * lists is a compile of its own. The first axis may be the models, which have no row. */
#include "compile/trials/trial.h"

#include <string.h>

/* The value of the axis in a case; the last axis changes fastest. */
static uint32_t value_of(const struct ul_axes *axes, uint32_t index, uint32_t axis)
{
    for (uint32_t a = axes->count; a-- > axis + 1;)
        index /= axes->items[a].set.count;
    return index % axes->items[axis].set.count;
}

/* Models have no row: the trial's path is that of its model. */
static struct ul_trial trial_of(struct ul_compile *compile, const struct ul_texts *models,
                                const struct ul_axes *axes, uint32_t index)
{
    uint32_t model = models->count > 1 ? value_of(axes, index, 0) : 0;
    struct ul_trial trial = {.path = models->items[model], .prepare = ul_compile_find_largest};
    for (uint32_t a = 0; a < axes->count; a++) {
        const struct ul_axis *axis = &axes->items[a];
        if (axis->row != NULL)
            ul_option_edits_add(&compile->keep, &trial.edits, axis->row,
                                axis->set.items[value_of(axes, index, a)], false);
    }
    return trial;
}

/* Counts the combinations. */
static enum ul_status count_cases(struct ul_compile *compile, const struct ul_axes *axes,
                                  uint32_t *count)
{
    *count = 1;
    for (uint32_t a = 0; a < axes->count; a++) {
        UL_ASSERT(axes->items[a].set.count > 0);
        if (axes->items[a].set.count > UL_LIMIT_CASES / *count)
            return ul_diag_set(&compile->diag, UL_USAGE,
                               "--sweep: the lists make more than %u plans; give fewer values",
                               UL_LIMIT_CASES);
        *count *= axes->items[a].set.count;
    }
    return UL_OK;
}

static enum ul_status check(struct ul_compile *compile, const struct ul_texts *models)
{
    for (uint32_t i = 0; i < models->count; i++) {
        UL_TRY(ul_compile_check_trials(compile, "--sweep", "plan", models->items[i]));
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(models->items[i], models->items[k]) == 0)
                return ul_diag_set(&compile->diag, UL_USAGE, "%s is given twice",
                                   ul_option_shown(&compile->keep, models->items[i]));
    }
    return UL_OK;
}

/* ---- Several models ---- */

/* Names of files, or paths where two files have the same name. */
static struct ul_texts name_models(struct ul_compile *compile, const struct ul_texts *models)
{
    struct ul_texts names = {.count = 0};
    bool differ = true;
    for (uint32_t i = 0; i < models->count; i++)
        for (uint32_t k = 0; k < i; k++)
            differ = differ &&
                     strcmp(ul_file_name(models->items[i]), ul_file_name(models->items[k])) != 0;
    for (uint32_t i = 0; i < models->count; i++)
        ul_texts_add(&compile->keep, &names,
                     differ ? ul_file_name(models->items[i]) : models->items[i]);
    return names;
}

/* The caller's axes after that of the models, where there are several. */
static struct ul_axes add_models(struct ul_compile *compile, const struct ul_texts *models,
                                 const struct ul_axes *axes)
{
    struct ul_axes all = {.count = 0};
    const struct ul_axis first = {
        .label = "model", .set = *models, .values = name_models(compile, models)};
    UL_ASSERT(models->count > 1 || axes->count > 0);
    if (models->count > 1) {
        UL_GROW(&compile->keep, all.items, all.count, all.capacity);
        all.items[all.count++] = first;
    }
    for (uint32_t a = 0; a < axes->count; a++) {
        UL_GROW(&compile->keep, all.items, all.count, all.capacity);
        all.items[all.count++] = axes->items[a];
    }
    return all;
}

/* Names the models of the plans. In a table of several models each row has its hash. */
static void describe_models(struct ul_compile *compile, const struct ul_texts *models,
                            const struct ul_trial *trials, uint32_t count,
                            struct ul_saved_table *table)
{
    struct ul_text name;
    const struct ul_texts names = name_models(compile, models);
    ul_text_init(&name, &compile->keep);
    for (uint32_t i = 0; i < names.count; i++)
        ul_text_printf(&name, "%s%s", i == 0 ? "" : ", ", names.items[i]);
    table->model = name.data;
    table->model_sha256 = models->count > 1 ? NULL : "";
    for (uint32_t i = 0; models->count == 1 && i < count; i++)
        if (table->model_sha256[0] == '\0')
            table->model_sha256 = ul_arena_copy_string(&compile->keep, trials[i].model_sha256);
}

static void describe_axes(struct ul_compile *compile, const struct ul_axes *axes,
                          struct ul_saved_table *table)
{
    struct ul_saved_axis *rows = UL_NEW_ARRAY(&compile->keep, struct ul_saved_axis, axes->count);
    for (uint32_t a = 0; a < axes->count; a++)
        rows[a] = (struct ul_saved_axis){
            .option = axes->items[a].row != NULL ? axes->items[a].row->name : axes->items[a].label,
            .label = axes->items[a].label,
            .count = axes->items[a].values.count,
            .values = axes->items[a].values.items};
    table->axes = rows;
    table->axis_count = axes->count;
}

/* Records the options that all plans share. */
static void describe_options(struct ul_compile *compile, struct ul_saved_table *table)
{
    const struct ul_options *options = &compile->options.base;
    uint32_t max = 0, count = 0;
    for (uint32_t r = 0; r < options->table->count; r++)
        max += ul_option_value_count(options, &options->table->rows[r]);
    struct ul_report_option *list = UL_NEW_ARRAY(&compile->keep, struct ul_report_option, max);
    for (uint32_t r = 0; r < options->table->count; r++) {
        const struct ul_option *row = &options->table->rows[r];
        bool is_said = ul_option_said(options, row) != NULL && row->record != UL_RECORD_NAME;
        for (uint32_t i = 0; is_said && i < ul_option_value_count(options, row); i++)
            list[count++] = (struct ul_report_option){.name = row->name,
                                                      .value = ul_option_value(options, row, i)};
    }
    table->options = list;
    table->option_count = count;
}

/* A model that cannot be read at all has no table. */
static enum ul_status judge(struct ul_compile *compile, const struct ul_trial *trials,
                            uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (trials[i].result.is_planned)
            return UL_OK;
    compile->diag = trials[0].diag;
    return trials[0].result.status;
}

enum ul_status ul_compile_table(struct ul_compile *compile, const struct ul_texts *models,
                                const struct ul_axes *axes, struct ul_saved_table *table)
{
    uint32_t count;
    *table = (struct ul_saved_table){.format = "ullage-table", .version = 1};
    UL_TRY(check(compile, models));
    const struct ul_axes all = add_models(compile, models, axes);
    UL_TRY(count_cases(compile, &all, &count));
    struct ul_trial *trials = UL_NEW_ARRAY(&compile->keep, struct ul_trial, count);
    struct ul_saved_table_plan *cases =
        UL_NEW_ARRAY(&compile->keep, struct ul_saved_table_plan, count);
    for (uint32_t i = 0; i < count; i++)
        trials[i] = trial_of(compile, models, &all, i);
    ul_compile_try_all(compile, models->items[0], trials, count);
    for (uint32_t i = 0; i < count; i++) {
        cases[i] = trials[i].result;
        if (models->count > 1)
            cases[i].model_sha256 = ul_arena_copy_string(&compile->keep, trials[i].model_sha256);
    }
    describe_axes(compile, &all, table);
    describe_options(compile, table);
    describe_models(compile, models, trials, count, table);
    table->plans = cases;
    table->table_plan_count = count;
    return judge(compile, trials, count);
}
