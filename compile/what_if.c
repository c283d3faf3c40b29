/* Plans of one model under other options, as a table: each combination of the values that the
 * caller lists is a compile of its own. */
#include "compile/compile_internal.h"

#include <string.h>

/* One combination. */
struct choice {
    const struct ul_axes *axes;
    uint32_t index; /* of the case; the last axis changes fastest */
};

/* The value of an axis. */
static uint32_t value_of(const struct choice *choice, uint32_t axis)
{
    uint32_t index = choice->index;
    for (uint32_t a = choice->axes->count; a-- > axis + 1;)
        index /= choice->axes->items[a].set.count;
    return index % choice->axes->items[axis].set.count;
}

static void change(const void *context, struct ul_compile *other)
{
    const struct choice *choice = context;
    for (uint32_t a = 0; a < choice->axes->count; a++) {
        const struct ul_axis *axis = &choice->axes->items[a];
        enum ul_status status = ul_option_set(&other->options.base, axis->row,
                                              axis->set.items[value_of(choice, a)], &other->diag);
        UL_ASSERT(status == UL_OK); /* ul_axes_add has tried it */
    }
}

/* How many combinations there are. */
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

static enum ul_status check(struct ul_compile *compile, const char *model_path)
{
    if (compile->options.plan != NULL)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--sweep is for making plans, and --plan gives one: leave one out");
    if (strcmp(model_path, "-") == 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--sweep reads the model once for each plan: give a file");
    return UL_OK;
}

static void describe_axes(struct ul_compile *compile, const struct ul_axes *axes,
                          struct ul_report_table *table)
{
    struct ul_report_axis *rows = UL_NEW_ARRAY(&compile->keep, struct ul_report_axis, axes->count);
    for (uint32_t a = 0; a < axes->count; a++)
        rows[a] = (struct ul_report_axis){.option = axes->items[a].row->name,
                                          .label = axes->items[a].label,
                                          .count = axes->items[a].values.count,
                                          .values = axes->items[a].values.items};
    table->axes = rows;
    table->axis_count = axes->count;
}

/* What the caller said of all plans alike. */
static void describe_options(struct ul_compile *compile, struct ul_report_table *table)
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
        if (trials[i].is_planned)
            return UL_OK;
    compile->diag = trials[0].diag;
    return trials[0].result.status;
}

enum ul_status ul_compile_table(struct ul_compile *compile, const char *model_path,
                                const struct ul_axes *axes, struct ul_report_table *table)
{
    uint32_t count;
    const char *slash = strrchr(model_path, '/');
    *table = (struct ul_report_table){.model_name = slash != NULL ? slash + 1 : model_path,
                                      .model_sha256 = ""};
    UL_TRY(check(compile, model_path));
    UL_TRY(count_cases(compile, axes, &count));
    struct ul_trial *trials = UL_NEW_ARRAY(&compile->keep, struct ul_trial, count);
    struct choice *choices = UL_NEW_ARRAY(&compile->keep, struct choice, count);
    struct ul_report_case *cases = UL_NEW_ARRAY(&compile->keep, struct ul_report_case, count);
    for (uint32_t i = 0; i < count; i++) {
        choices[i] = (struct choice){.axes = axes, .index = i};
        trials[i] = (struct ul_trial){
            .change = change, .context = &choices[i], .prepare = ul_compile_find_largest};
    }
    ul_compile_try_all(compile, model_path, trials, count);
    for (uint32_t i = 0; i < count; i++)
        cases[i] = trials[i].result;
    describe_axes(compile, axes, table);
    describe_options(compile, table);
    table->cases = cases;
    table->case_count = count;
    for (uint32_t i = 0; i < count; i++)
        if (table->model_sha256[0] == '\0')
            table->model_sha256 = ul_arena_copy_string(&compile->keep, trials[i].model_sha256);
    return judge(compile, trials, count);
}
