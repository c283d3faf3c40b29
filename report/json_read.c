/* plan.json, read back for `check` and `--plan`. The file may have been edited by hand: everything
 * is checked for type and range here, and what it means by the planner's checker. */
#include "report/report.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

struct reader {
    struct ul_arena *arena;
    struct ul_diag *diag;
    json_t *root;
};

static enum ul_status parse(struct reader *reader, const char *json, size_t length)
{
    json_error_t error;
    reader->root = json_loadb(json, length, JSON_REJECT_DUPLICATES, &error);
    if (reader->root == NULL)
        return ul_diag_set(reader->diag, UL_INVALID, "line %d: %s", error.line, error.text);
    const char *format = json_string_value(json_object_get(reader->root, "format"));
    if (format == NULL || strcmp(format, "ullage-plan") != 0)
        return ul_diag_set(reader->diag, UL_INVALID, "\"format\" is not \"ullage-plan\"");
    if (json_integer_value(json_object_get(reader->root, "version")) != 1)
        return ul_diag_set(reader->diag, UL_UNSUPPORTED,
                           "\"version\" is not 1, the one that this ullage reads");
    return UL_OK;
}

static enum ul_status get_string(struct reader *reader, const json_t *object, const char *key,
                                 const char **out)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (value == NULL)
        return ul_diag_set(reader->diag, UL_INVALID, "\"%s\" is missing or no string", key);
    *out = ul_arena_copy_string(reader->arena, value);
    return UL_OK;
}

static enum ul_status number_of(struct reader *reader, const json_t *item, const char *key,
                                bool optional, uint64_t max, uint64_t *out)
{
    if (optional && json_is_null(item)) {
        *out = UL_PLAN_NONE;
        return UL_OK;
    }
    if (!json_is_integer(item) || json_integer_value(item) < 0 ||
        (uint64_t)json_integer_value(item) > max)
        return ul_diag_set(reader->diag, UL_INVALID,
                           "\"%s\" is missing, no whole number, or out of range", key);
    *out = (uint64_t)json_integer_value(item);
    return UL_OK;
}

static enum ul_status get_number(struct reader *reader, const json_t *object, const char *key,
                                 uint64_t max, uint64_t *out)
{
    return number_of(reader, json_object_get(object, key), key, false, max, out);
}

static enum ul_status read_options(struct reader *reader, struct ul_report_header *header)
{
    const json_t *list = json_object_get(reader->root, "options");
    if (!json_is_array(list))
        return ul_diag_set(reader->diag, UL_INVALID, "\"options\" is missing or no list");
    size_t count = json_array_size(list);
    struct ul_report_option *options = UL_NEW_ARRAY(reader->arena, struct ul_report_option, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(list, i);
        const char *name = json_string_value(json_array_get(pair, 0));
        const char *value = json_string_value(json_array_get(pair, 1));
        if (json_array_size(pair) != 2 || name == NULL || value == NULL)
            return ul_diag_set(reader->diag, UL_INVALID, "\"options\": entry %zu is no pair", i);
        options[i].name = ul_arena_copy_string(reader->arena, name);
        options[i].value = ul_arena_copy_string(reader->arena, value);
    }
    header->options = options;
    header->option_count = (uint32_t)count;
    return UL_OK;
}

/* Of a caller's process neither code nor runtime are the program's. */
static enum ul_status read_process(struct reader *reader, struct ul_report_header *header)
{
    const json_t *parts = json_object_get(reader->root, "process");
    uint64_t code = 0, runtime = 0;
    header->process_bytes = UINT64_MAX;
    if (json_object_get(reader->root, "process_bytes") == NULL)
        return UL_OK;
    UL_TRY(get_number(reader, parts, "code", INT64_MAX, &code));
    UL_TRY(get_number(reader, parts, "runtime", INT64_MAX, &runtime));
    header->is_whole_process = code > 0 || runtime > 0;
    return get_number(reader, reader->root, "process_bytes", INT64_MAX, &header->process_bytes);
}

/* Sizes are rounded up to it long before the checker sees it. */
/* What is said of costs follows from them, to the nine digits that are written. */
static enum ul_status check_overhead(struct reader *reader, const json_t *root,
                                     const struct ul_plan *plan)
{
    const json_t *said = json_object_get(root, "overhead");
    double overhead = ul_plan_overhead(plan->cost, plan->base_cost);
    double slack = 1e-8 * (1 + fabs(overhead));
    if (said == NULL || fabs(json_number_value(said) - overhead) <= slack)
        return UL_OK;
    return ul_diag_set(reader->diag, UL_MISMATCH,
                       "\"overhead\" does not follow from \"cost\" and \"base_cost\"");
}

static enum ul_status check_alignment(struct reader *reader, uint64_t alignment_bytes)
{
    const uint64_t max = (uint64_t)1 << 30;
    if (alignment_bytes > 0 && alignment_bytes <= max &&
        (alignment_bytes & (alignment_bytes - 1)) == 0)
        return UL_OK;
    return ul_diag_set(reader->diag, UL_MISMATCH,
                       "\"alignment_bytes\" is %llu, and no power of two up to 2^30",
                       (unsigned long long)alignment_bytes);
}

static enum ul_status read_header(struct reader *reader, struct ul_report_header *header)
{
    UL_TRY(get_string(reader, reader->root, "model_sha256", &header->model_sha256));
    UL_TRY(get_string(reader, reader->root, "target", &header->target));
    UL_TRY(
        get_number(reader, reader->root, "alignment_bytes", INT64_MAX, &header->alignment_bytes));
    UL_TRY(check_alignment(reader, header->alignment_bytes));
    UL_TRY(read_process(reader, header));
    return read_options(reader, header);
}

enum ul_status ul_report_read_header(struct ul_arena *arena, const char *json, size_t length,
                                     struct ul_report_header *header, struct ul_diag *diag)
{
    struct reader reader = {.arena = arena, .diag = diag};
    enum ul_status status = parse(&reader, json, length);
    if (status == UL_OK)
        status = read_header(&reader, header);
    json_decref(reader.root);
    return status;
}

/* One column as numbers; `count` is set by the first column of a table and kept by the others. */
static enum ul_status read_column(struct reader *reader, const char *table, const char *key,
                                  bool optional, uint64_t max, uint64_t **out, uint32_t *count,
                                  bool first)
{
    const json_t *column = json_object_get(json_object_get(reader->root, table), key);
    if (!json_is_array(column) || json_array_size(column) >= UINT32_MAX)
        return ul_diag_set(reader->diag, UL_INVALID, "\"%s\": \"%s\" is missing or no list", table,
                           key);
    size_t size = json_array_size(column);
    if (first)
        *count = (uint32_t)size;
    if (size != *count)
        return ul_diag_set(reader->diag, UL_INVALID,
                           "\"%s\": \"%s\" has %zu entries, other columns have %u", table, key,
                           size, *count);
    *out = UL_NEW_ARRAY(reader->arena, uint64_t, size);
    for (size_t i = 0; i < size; i++)
        UL_TRY(number_of(reader, json_array_get(column, i), key, optional, max, &(*out)[i]));
    return UL_OK;
}

/* Columns that a plan has where not all of it is run on stream 0. */
static enum ul_status read_kinds(struct reader *reader, struct ul_plan *plan)
{
    uint64_t *streams, *values, *spaces, *awaited, *regions;
    uint32_t *count = &plan->position_count;
    uint64_t max = UINT32_MAX - 1;
    const json_t *kinds = json_object_get(json_object_get(reader->root, "steps"), "kind");
    if (kinds == NULL)
        return UL_OK;
    UL_TRY(read_column(reader, "steps", "stream", false, max, &streams, count, false));
    UL_TRY(read_column(reader, "steps", "value", false, max, &values, count, false));
    UL_TRY(read_column(reader, "steps", "space", false, max, &spaces, count, false));
    UL_TRY(read_column(reader, "steps", "awaited", false, max, &awaited, count, false));
    UL_TRY(read_column(reader, "steps", "region", false, max, &regions, count, false));
    for (uint32_t i = 0; i < *count; i++) {
        struct ul_plan_position *at = &plan->positions[i];
        const char *name = json_string_value(json_array_get(kinds, i));
        uint32_t kind = 0;
        while (kind < UL_PLAN_KIND_COUNT &&
               (name == NULL || strcmp(name, ul_plan_kind_name((enum ul_plan_kind)kind)) != 0))
            kind++;
        if (kind == UL_PLAN_KIND_COUNT)
            return ul_diag_set(reader->diag, UL_INVALID, "\"steps\": \"kind\" %u is unknown", i);
        at->kind = (enum ul_plan_kind)kind;
        at->step = kind == UL_PLAN_RUN ? at->step : 0;
        at->stream = (uint32_t)streams[i];
        at->value = (uint32_t)values[i];
        at->space = (uint32_t)spaces[i];
        at->awaited = (uint32_t)awaited[i];
        at->region = (uint32_t)regions[i];
    }
    return UL_OK;
}

static enum ul_status read_positions(struct reader *reader, const struct ul_problem *problem,
                                     struct ul_plan *plan)
{
    uint64_t *steps = NULL;
    uint64_t *copies = NULL;
    uint64_t *alternatives = NULL;
    uint64_t *substeps = NULL;
    uint32_t *count = &plan->position_count;
    uint64_t max = problem->step_count == 0 ? 0 : problem->step_count - 1;
    UL_TRY(read_column(reader, "steps", "step", true, max, &steps, count, true));
    UL_TRY(read_column(reader, "steps", "copy", false, UINT32_MAX - 1, &copies, count, false));
    UL_TRY(read_column(reader, "steps", "alternative", false, UINT32_MAX - 1, &alternatives, count,
                       false));
    UL_TRY(read_column(reader, "steps", "part", false, UINT32_MAX - 1, &substeps, count, false));
    plan->positions = UL_NEW_ARRAY(reader->arena, struct ul_plan_position, *count);
    for (uint32_t i = 0; i < *count; i++)
        plan->positions[i] = (struct ul_plan_position){.step = (uint32_t)steps[i],
                                                       .alternative = (uint32_t)alternatives[i],
                                                       .substep = (uint32_t)substeps[i],
                                                       .copy = (uint32_t)copies[i]};
    return read_kinds(reader, plan);
}

static enum ul_status read_classes(struct reader *reader, struct ul_plan *plan)
{
    const json_t *column = json_object_get(json_object_get(reader->root, "ranges"), "class");
    if (json_array_size(column) != plan->range_count)
        return ul_diag_set(reader->diag, UL_INVALID, "\"ranges\": \"class\" is not complete");
    for (uint32_t i = 0; i < plan->range_count; i++) {
        const char *name = json_string_value(json_array_get(column, i));
        uint32_t row = 0;
        while (row < UL_PLAN_CLASS_COUNT &&
               (name == NULL || strcmp(name, ul_report_row_name(row)) != 0))
            row++;
        if (row == UL_PLAN_CLASS_COUNT)
            return ul_diag_set(reader->diag, UL_INVALID, "\"ranges\": \"class\" %u is unknown", i);
        plan->ranges[i].class = (enum ul_plan_class)row;
    }
    return UL_OK;
}

static enum ul_status read_ranges(struct reader *reader, const struct ul_problem *problem,
                                  struct ul_plan *plan)
{
    static const struct {
        const char *key;
        bool optional;
    } columns[] = {{"value", true},  {"copy", false},         {"space", false},
                   {"alias", true},  {"offset_bytes", false}, {"size_bytes", false},
                   {"begin", false}, {"end", false}};
    enum { COLUMN_COUNT = sizeof columns / sizeof *columns };
    uint64_t *numbers[COLUMN_COUNT];
    for (size_t c = 0; c < COLUMN_COUNT; c++) {
        bool bytes = c == 4 || c == 5;
        uint64_t max = bytes ? INT64_MAX : UINT32_MAX - 1;
        if (c == 0)
            max = problem->value_count == 0 ? 0 : problem->value_count - 1;
        UL_TRY(read_column(reader, "ranges", columns[c].key, columns[c].optional, max, &numbers[c],
                           &plan->range_count, c == 0));
    }
    plan->ranges = UL_NEW_ARRAY(reader->arena, struct ul_plan_range, plan->range_count);
    for (uint32_t i = 0; i < plan->range_count; i++)
        plan->ranges[i] = (struct ul_plan_range){.value = (uint32_t)numbers[0][i],
                                                 .copy = (uint32_t)numbers[1][i],
                                                 .space = (uint32_t)numbers[2][i],
                                                 .alias = (uint32_t)numbers[3][i],
                                                 .offset_bytes = numbers[4][i],
                                                 .size_bytes = numbers[5][i],
                                                 .begin = (uint32_t)numbers[6][i],
                                                 .end = (uint32_t)numbers[7][i]};
    return read_classes(reader, plan);
}

static enum ul_status read_rows(struct reader *reader, struct ul_plan *plan)
{
    const json_t *rows = json_object_get(reader->root, "rows");
    for (uint32_t i = 0; i < UL_PLAN_CLASS_COUNT; i++)
        UL_TRY(
            get_number(reader, rows, ul_report_row_name(i), INT64_MAX, &plan->rows.class_bytes[i]));
    UL_TRY(get_number(reader, rows, "alignment", INT64_MAX, &plan->rows.alignment_bytes));
    return get_number(reader, rows, "holes", INT64_MAX, &plan->rows.holes_bytes);
}

/* Of what does not fit, "proven" says that nothing does, whatever the program is rewritten to. */
static enum ul_status check_misfit(struct reader *reader, const struct ul_problem *problem,
                                   struct ul_plan *plan, uint64_t budget)
{
    bool is_proven = json_is_true(json_object_get(reader->root, "proven"));
    struct ul_report_header header = {.option_count = 0};
    plan->packing_proven = plan->fits && is_proven;
    if (plan->fits || !is_proven)
        return UL_OK;
    UL_TRY(read_options(reader, &header));
    struct ul_report report = {.problem = problem,
                               .plan = plan,
                               .options = header.options,
                               .option_count = header.option_count};
    if (budget >= ul_report_floor_bytes(&report))
        return ul_diag_set(reader->diag, UL_MISMATCH,
                           "\"proven\": that nothing is within the budget does not follow");
    return UL_OK;
}

/* Older plans say nothing: their budgets are of the buffer. */
static bool is_of_process(const json_t *root)
{
    const char *of = json_string_value(json_object_get(root, "budget_of"));
    return of != NULL && strcmp(of, "process") == 0;
}

/* What the file says of itself must hold together; the planner's checker sees to the rest. */
static enum ul_status check_claims(struct reader *reader, const struct ul_problem *problem,
                                   struct ul_plan *plan)
{
    const json_t *root = reader->root;
    uint64_t unaccounted = 0;
    uint64_t budget = 0;
    UL_TRY(
        get_number(reader, json_object_get(root, "rows"), "unaccounted", INT64_MAX, &unaccounted));
    if (json_object_get(root, "budget_bytes") != NULL)
        UL_TRY(get_number(reader, root, "budget_bytes", INT64_MAX, &budget));
    uint64_t reserved = plan->reserved_bytes[0];
    bool is_process = is_of_process(root);
    if (unaccounted != 0)
        return ul_diag_set(reader->diag, UL_MISMATCH, "\"unaccounted\" is not 0");
    if (plan->lower_bound_bytes > plan->order_lower_bound_bytes ||
        plan->order_lower_bound_bytes > reserved)
        return ul_diag_set(reader->diag, UL_MISMATCH,
                           "\"lower_bound_bytes\", \"order_lower_bound_bytes\" and "
                           "\"reserved_bytes\" are not in ascending order");
    if (plan->lower_bound_bytes > plan->orders_lower_bound_bytes)
        return ul_diag_set(reader->diag, UL_MISMATCH,
                           "\"lower_bound_bytes\" is above \"orders_lower_bound_bytes\"");
    if (plan->cost_bound > 0 && budget == 0)
        return ul_diag_set(reader->diag, UL_MISMATCH, "\"cost_bound\" without a budget");
    if (plan->optimal_within != NULL && (plan->optimal || plan->cost_bound == 0))
        return ul_diag_set(reader->diag, UL_MISMATCH,
                           "\"optimal_within\" beside \"optimal\", or without \"cost_bound\"");
    if (plan->cost_bound == 0 && plan->optimal != (reserved == plan->lower_bound_bytes))
        return ul_diag_set(reader->diag, UL_MISMATCH,
                           "\"optimal\" contradicts the lower bound and the bytes reserved");
    if (budget == 0 && !is_process && plan->smallest_budget_bytes < plan->lower_bound_bytes)
        return ul_diag_set(reader->diag, UL_MISMATCH,
                           "\"smallest_budget_bytes\" is below \"lower_bound_bytes\"");
    if (plan->fits != (budget == 0 || plan->bounded_bytes <= budget))
        return ul_diag_set(reader->diag, UL_MISMATCH,
                           "\"fits\" contradicts the budget and the bytes %s",
                           is_process ? "of the process" : "reserved");
    return check_misfit(reader, problem, plan, budget);
}

/* The file says nothing of spaces that are beside, which are the last. */
static enum ul_status add_spaces(struct reader *reader, const struct ul_problem *problem,
                                 struct ul_plan *plan)
{
    uint64_t *reserved = UL_NEW_ARRAY(reader->arena, uint64_t, problem->space_count);
    uint32_t count = 0;
    while (count < problem->space_count && !problem->spaces[count].beside)
        count++;
    if (plan->space_count != count)
        return ul_diag_set(reader->diag, UL_INVALID, "\"spaces\": expected %u of them", count);
    memcpy(reserved, plan->reserved_bytes, count * sizeof *reserved);
    plan->reserved_bytes = reserved;
    plan->space_count = problem->space_count;
    return UL_OK;
}

static enum ul_status read_plan(struct reader *reader, const struct ul_problem *problem,
                                struct ul_plan *plan)
{
    const json_t *root = reader->root;
    const json_t *method = json_object_get(root, "method");
    uint64_t peak = 0;
    uint64_t reserved = 0;
    memset(plan, 0, sizeof *plan);
    UL_TRY(read_column(reader, "spaces", "reserved_bytes", false, INT64_MAX, &plan->reserved_bytes,
                       &plan->space_count, true));
    UL_TRY(add_spaces(reader, problem, plan));
    /* The headline and the arena's entry are one number. */
    UL_TRY(get_number(reader, root, "reserved_bytes", INT64_MAX, &reserved));
    if (reserved != plan->reserved_bytes[0])
        return ul_diag_set(reader->diag, UL_MISMATCH,
                           "\"reserved_bytes\" differs from that of the first space");
    UL_TRY(get_number(reader, root, "order_lower_bound_bytes", INT64_MAX,
                      &plan->order_lower_bound_bytes));
    UL_TRY(get_number(reader, root, "orders_lower_bound_bytes", INT64_MAX,
                      &plan->orders_lower_bound_bytes));
    UL_TRY(get_number(reader, root, "lower_bound_bytes", INT64_MAX, &plan->lower_bound_bytes));
    UL_TRY(get_number(reader, root, "alignment_bytes", INT64_MAX, &plan->alignment_bytes));
    UL_TRY(check_alignment(reader, plan->alignment_bytes));
    UL_TRY(
        get_number(reader, root, "smallest_budget_bytes", INT64_MAX, &plan->smallest_budget_bytes));
    plan->bounded_bytes = reserved;
    if (is_of_process(root))
        UL_TRY(get_number(reader, root, "process_bytes", INT64_MAX, &plan->bounded_bytes));
    UL_TRY(get_number(reader, root, "peak_step", UINT32_MAX - 1, &peak));
    UL_TRY(get_number(reader, root, "cost", INT64_MAX, &plan->cost));
    UL_TRY(get_number(reader, root, "base_cost", INT64_MAX, &plan->base_cost));
    UL_TRY(check_overhead(reader, root, plan));
    if (json_object_get(root, "cost_bound") != NULL)
        UL_TRY(get_number(reader, root, "cost_bound", INT64_MAX, &plan->cost_bound));
    if (json_object_get(root, "cost_bound_method") != NULL)
        UL_TRY(get_string(reader, root, "cost_bound_method", &plan->cost_bound_method));
    if (json_object_get(root, "optimal_within") != NULL)
        UL_TRY(get_string(reader, root, "optimal_within", &plan->optimal_within));
    plan->peak_position = (uint32_t)peak;
    plan->fits = json_is_true(json_object_get(root, "fits"));
    plan->optimal = json_is_true(json_object_get(root, "optimal"));
    plan->stopped_by_time = json_is_true(json_object_get(root, "stopped_by_time"));
    UL_TRY(get_string(reader, method, "order", &plan->order_method));
    UL_TRY(get_string(reader, method, "remat", &plan->remat_method));
    UL_TRY(get_string(reader, method, "pack", &plan->pack_method));
    UL_TRY(read_rows(reader, plan));
    UL_TRY(check_claims(reader, problem, plan));
    UL_TRY(read_positions(reader, problem, plan));
    UL_TRY(read_ranges(reader, problem, plan));
    UL_TRY(ul_plan_index_ranges(reader->arena, problem, plan, reader->diag));
    ul_plan_place_beside(reader->arena, problem, plan);
    return UL_OK;
}

enum ul_status ul_report_read_plan(struct ul_arena *arena, const char *json, size_t length,
                                   const struct ul_problem *problem, struct ul_plan *plan,
                                   struct ul_diag *diag)
{
    struct reader reader = {.arena = arena, .diag = diag};
    enum ul_status status = parse(&reader, json, length);
    if (status == UL_OK)
        status = read_plan(&reader, problem, plan);
    json_decref(reader.root);
    return status;
}
