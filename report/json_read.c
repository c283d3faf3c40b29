/* SPDX-License-Identifier: Apache-2.0 */
/* plan.json, read back for `check` and `--plan`. The file may have been edited by hand: everything
 * is checked for type and range here, and what it means by the planner's checker. */
#include "report/json_in.h"

#include <math.h>
#include <string.h>

const char *ul_saved_part_name(enum ul_saved_part part)
{
    static const char *const names[UL_SAVED_PART_COUNT] = {[UL_SAVED_BUFFER] = "buffer",
                                                           [UL_SAVED_LIBRARY] = "library",
                                                           [UL_SAVED_CODE] = "code",
                                                           [UL_SAVED_STACKS] = "stacks",
                                                           [UL_SAVED_RUNTIME] = "runtime"};
    return names[part];
}

/* Whose the process is follows from its parts and the target. */
static enum ul_status check_owner(struct ul_json *json, const struct ul_report_header *header)
{
    const json_t *said = json_object_get(json->root, "process_of");
    const char *owner = strcmp(header->target, "cuda") == 0 ? "device"
                        : header->is_whole_process          ? "program"
                                                            : "caller";
    if (said == NULL || (json_is_string(said) && strcmp(json_string_value(said), owner) == 0))
        return UL_OK;
    return ul_diag_set(json->diag, UL_MISMATCH,
                       "\"process_of\" is not \"%s\", whose its \"process\" is", owner);
}

static bool peaks_at_start(const json_t *root)
{
    return json_is_true(json_object_get(root, "process_peak_at_start"));
}

/* What is not in the sum, of a device alone. */
static enum ul_status read_lacks(struct ul_json *json, struct ul_report_header *header)
{
    const json_t *lacks = json_object_get(json->root, "process_lacks");
    bool is_known = lacks == NULL || (json_is_array(lacks) && strcmp(header->target, "cuda") == 0);
    for (size_t i = 0; is_known && i < json_array_size(lacks); i++) {
        const char *word = json_string_value(json_array_get(lacks, i));
        bool is_context = word != NULL && strcmp(word, "context") == 0;
        bool *said = is_context ? &header->lacks_context : &header->lacks_library;
        is_known = word != NULL && !*said && (is_context || strcmp(word, "libraries") == 0);
        *said = true;
    }
    if (is_known)
        return UL_OK;
    return ul_diag_set(json->diag, UL_INVALID,
                       "\"process_lacks\" of target cuda may name \"context\" and \"libraries\"");
}

/* A caller's process has neither code nor runtime of the program's. */
static enum ul_status read_process(struct ul_json *json, struct ul_report_header *header)
{
    const json_t *parts = json_object_get(json->root, "process");
    uint64_t sum = 0;
    header->process_bytes = UINT64_MAX;
    if (json_object_get(json->root, "process_bytes") == NULL)
        return UL_OK;
    for (uint32_t i = 0; i < UL_SAVED_PART_COUNT; i++) {
        UL_TRY(ul_json_number(json, parts, ul_saved_part_name((enum ul_saved_part)i), INT64_MAX,
                              &header->process_parts[i]));
        sum = ul_size_add_saturating(sum, header->process_parts[i]);
    }
    UL_TRY(read_lacks(json, header));
    header->is_whole_process = header->process_parts[UL_SAVED_CODE] > 0 ||
                               header->process_parts[UL_SAVED_RUNTIME] > 0 || header->lacks_context;
    header->peaks_at_start = peaks_at_start(json->root);
    UL_TRY(ul_json_number(json, json->root, "process_bytes", INT64_MAX, &header->process_bytes));
    if (sum != header->process_bytes)
        return ul_diag_set(json->diag, UL_MISMATCH,
                           "\"process_bytes\" is %llu, and the parts of \"process\" are %llu",
                           (unsigned long long)header->process_bytes, (unsigned long long)sum);
    return check_owner(json, header);
}

static enum ul_status read_device(struct ul_json *json, struct ul_report_header *header)
{
    const json_t *device = json_object_get(json->root, "device");
    if (device == NULL)
        return UL_OK;
    UL_TRY(ul_json_string(json, device, "name", &header->device));
    return ul_json_number(json, device, "memory_bytes", INT64_MAX, &header->device_bytes);
}

/* What is said of costs follows from them, to the nine digits that are written. */
static enum ul_status check_overhead(struct ul_json *json, const json_t *root,
                                     const struct ul_plan *plan)
{
    const json_t *said = json_object_get(root, "overhead");
    double overhead = ul_plan_overhead(plan->cost, plan->base_cost);
    double slack = 1e-8 * (1 + fabs(overhead));
    if (said == NULL || fabs(json_number_value(said) - overhead) <= slack)
        return UL_OK;
    return ul_diag_set(json->diag, UL_MISMATCH,
                       "\"overhead\" does not follow from \"cost\" and \"base_cost\"");
}

/* Sizes are rounded up to it long before the checker sees it. */
static enum ul_status check_alignment(struct ul_json *json, uint64_t alignment_bytes)
{
    const uint64_t max = (uint64_t)1 << 30;
    if (alignment_bytes > 0 && alignment_bytes <= max &&
        (alignment_bytes & (alignment_bytes - 1)) == 0)
        return UL_OK;
    return ul_diag_set(json->diag, UL_MISMATCH,
                       "\"alignment_bytes\" is %llu, and no power of two up to 2^30",
                       (unsigned long long)alignment_bytes);
}

static enum ul_status read_header(struct ul_json *json, struct ul_report_header *header)
{
    UL_TRY(ul_json_string(json, json->root, "model_sha256", &header->model_sha256));
    UL_TRY(ul_json_string(json, json->root, "target", &header->target));
    UL_TRY(
        ul_json_number(json, json->root, "alignment_bytes", INT64_MAX, &header->alignment_bytes));
    UL_TRY(check_alignment(json, header->alignment_bytes));
    UL_TRY(read_process(json, header));
    UL_TRY(read_device(json, header));
    return ul_json_options(json, &header->options, &header->option_count);
}

enum ul_status ul_report_read_header(struct ul_arena *arena, const char *json, size_t length,
                                     struct ul_report_header *header, struct ul_diag *diag)
{
    struct ul_json in = {.arena = arena, .diag = diag};
    enum ul_status status = ul_json_parse(&in, json, length);
    if (status == UL_OK)
        status = read_header(&in, header);
    json_decref(in.root);
    return status;
}

/* A position has 0 in the fields that its kind does not use. */
static bool is_of_kind(const struct ul_plan_position *at)
{
    bool moves = at->kind == UL_PLAN_SAVE || at->kind == UL_PLAN_LOAD;
    bool runs = at->kind == UL_PLAN_RUN;
    return (runs || (at->alternative == 0 && at->substep == 0 && at->copy == 0)) &&
           (moves || (at->value == 0 && at->space == 0)) &&
           (at->kind == UL_PLAN_WAIT ? at->stream == 0 : at->awaited == 0) &&
           (!runs || at->region == 0);
}

/* Columns that a plan has where not all of it is run on stream 0. */
static enum ul_status read_kinds(struct ul_json *json, const struct ul_problem *problem,
                                 struct ul_plan *plan)
{
    uint64_t *streams, *values, *spaces, *awaited, *regions;
    uint32_t *count = &plan->position_count;
    uint64_t max = UINT32_MAX - 1;
    const json_t *kinds = json_object_get(json_object_get(json->root, "steps"), "kind");
    if (kinds == NULL)
        return UL_OK;
    UL_TRY(ul_json_column(json, "steps", "stream", false, max, &streams, count, false));
    UL_TRY(ul_json_column(json, "steps", "value", false, max, &values, count, false));
    UL_TRY(ul_json_column(json, "steps", "space", false, max, &spaces, count, false));
    UL_TRY(ul_json_column(json, "steps", "awaited", false, max, &awaited, count, false));
    UL_TRY(ul_json_column(json, "steps", "region", false, max, &regions, count, false));
    for (uint32_t i = 0; i < *count; i++) {
        struct ul_plan_position *at = &plan->positions[i];
        const char *name = json_string_value(json_array_get(kinds, i));
        uint32_t kind = 0;
        while (kind < UL_PLAN_KIND_COUNT &&
               (name == NULL || strcmp(name, ul_plan_kind_name((enum ul_plan_kind)kind)) != 0))
            kind++;
        if (kind == UL_PLAN_KIND_COUNT)
            return ul_diag_set(json->diag, UL_INVALID, "\"steps\": \"kind\" %u is unknown", i);
        at->kind = (enum ul_plan_kind)kind;
        at->step = kind == UL_PLAN_RUN ? at->step : 0;
        at->stream = (uint32_t)streams[i];
        at->value = (uint32_t)values[i];
        at->space = kind == UL_PLAN_SAVE || kind == UL_PLAN_LOAD
                        ? ul_report_space_at(problem, (uint32_t)spaces[i])
                        : (uint32_t)spaces[i];
        at->awaited = (uint32_t)awaited[i];
        at->region = (uint32_t)regions[i];
        if (!is_of_kind(at))
            return ul_diag_set(json->diag, UL_MISMATCH,
                               "\"steps\": entry %u says something that a \"%s\" has none of", i,
                               name);
    }
    return UL_OK;
}

static enum ul_status read_positions(struct ul_json *json, const struct ul_problem *problem,
                                     struct ul_plan *plan)
{
    uint64_t *steps = NULL;
    uint64_t *copies = NULL;
    uint64_t *alternatives = NULL;
    uint64_t *substeps = NULL;
    uint32_t *count = &plan->position_count;
    uint64_t max = problem->step_count == 0 ? 0 : problem->step_count - 1;
    UL_TRY(ul_json_column(json, "steps", "step", true, max, &steps, count, true));
    UL_TRY(ul_json_column(json, "steps", "copy", false, UINT32_MAX - 1, &copies, count, false));
    UL_TRY(ul_json_column(json, "steps", "alternative", false, UINT32_MAX - 1, &alternatives, count,
                          false));
    UL_TRY(ul_json_column(json, "steps", "part", false, UINT32_MAX - 1, &substeps, count, false));
    plan->positions = UL_NEW_ARRAY(json->arena, struct ul_plan_position, *count);
    for (uint32_t i = 0; i < *count; i++)
        plan->positions[i] = (struct ul_plan_position){.step = (uint32_t)steps[i],
                                                       .alternative = (uint32_t)alternatives[i],
                                                       .substep = (uint32_t)substeps[i],
                                                       .copy = (uint32_t)copies[i]};
    return read_kinds(json, problem, plan);
}

static enum ul_status read_classes(struct ul_json *json, struct ul_plan *plan)
{
    const json_t *column = json_object_get(json_object_get(json->root, "ranges"), "class");
    if (json_array_size(column) != plan->range_count)
        return ul_diag_set(json->diag, UL_INVALID, "\"ranges\": \"class\" is not complete");
    for (uint32_t i = 0; i < plan->range_count; i++)
        UL_TRY(ul_json_class(json, json_string_value(json_array_get(column, i)), i,
                             &plan->ranges[i].class));
    return UL_OK;
}

static enum ul_status read_ranges(struct ul_json *json, const struct ul_problem *problem,
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
        UL_TRY(ul_json_column(json, "ranges", columns[c].key, columns[c].optional, max, &numbers[c],
                              &plan->range_count, c == 0));
    }
    plan->ranges = UL_NEW_ARRAY(json->arena, struct ul_plan_range, plan->range_count);
    for (uint32_t i = 0; i < plan->range_count; i++)
        plan->ranges[i] =
            (struct ul_plan_range){.value = (uint32_t)numbers[0][i],
                                   .copy = (uint32_t)numbers[1][i],
                                   .space = ul_report_space_at(problem, (uint32_t)numbers[2][i]),
                                   .alias = (uint32_t)numbers[3][i],
                                   .offset_bytes = numbers[4][i],
                                   .size_bytes = numbers[5][i],
                                   .begin = (uint32_t)numbers[6][i],
                                   .end = (uint32_t)numbers[7][i]};
    return read_classes(json, plan);
}

static enum ul_status read_rows(struct ul_json *json, struct ul_plan *plan)
{
    const json_t *rows = json_object_get(json->root, "rows");
    for (uint32_t i = 0; i < UL_PLAN_CLASS_COUNT; i++)
        UL_TRY(ul_json_row(json, rows, i, INT64_MAX, &plan->rows.class_bytes[i]));
    UL_TRY(ul_json_number(json, rows, "alignment", INT64_MAX, &plan->rows.alignment_bytes));
    return ul_json_number(json, rows, "holes", INT64_MAX, &plan->rows.holes_bytes);
}

/* The budget bounds the process. Older plans do not say so, and theirs bounds the buffer. */
static bool is_of_process(const json_t *root)
{
    const char *of = json_string_value(json_object_get(root, "budget_of"));
    return of != NULL && strcmp(of, "process") == 0;
}

/* The least budget that any plan of any program of this model could fit. The process needs less
 * than the buffer where a table has rows that nobody looks up, which are never read into memory. */
static enum ul_status read_floor(struct ul_json *json, const struct ul_problem *problem,
                                 const struct ul_plan *plan, uint64_t *floor_bytes)
{
    struct ul_report report = {.problem = problem, .plan = plan};
    uint64_t buffer = plan->reserved_bytes[0], unread = 0;
    if (is_of_process(json->root) && !peaks_at_start(json->root))
        UL_TRY(ul_json_number(json, json_object_get(json->root, "process"), "buffer", INT64_MAX,
                              &buffer));
    unread = buffer < plan->reserved_bytes[0] ? plan->reserved_bytes[0] - buffer : 0;
    UL_TRY(ul_json_options(json, &report.options, &report.option_count));
    *floor_bytes = ul_report_floor_bytes(&report);
    *floor_bytes = *floor_bytes > unread ? *floor_bytes - unread : 0;
    return UL_OK;
}

/* No program of the model takes less than the floor: no budget below it is known to work. Where the
 * plan does not fit, "proven" says whether the budget is below it; where it fits, a packing of no
 * more bytes than live at once is proven. */
static enum ul_status check_floor(struct ul_json *json, const struct ul_problem *problem,
                                  struct ul_plan *plan, uint64_t budget)
{
    const json_t *said = json_object_get(json->root, "proven");
    bool is_proven = json_is_true(said), is_least;
    uint64_t floor_bytes;
    plan->packing_proven = plan->fits && is_proven;
    UL_TRY(read_floor(json, problem, plan, &floor_bytes));
    is_least = plan->reserved_bytes[0] == plan->order_lower_bound_bytes &&
               strcmp(plan->pack_method, ul_method_get(UL_METHOD_PACK, UL_PACK_NONE)->name) != 0;
    if (!plan->fits && is_proven && budget >= floor_bytes)
        return ul_diag_set(json->diag, UL_MISMATCH,
                           "\"proven\": that nothing is within the budget does not follow");
    if (said != NULL && !is_proven && (plan->fits ? is_least : budget < floor_bytes))
        return ul_diag_set(json->diag, UL_MISMATCH, "\"proven\" is false, and it is proven: %s",
                           plan->fits ? "no packing is below \"order_lower_bound_bytes\""
                                      : "nothing is within the budget");
    if (plan->smallest_budget_bytes < floor_bytes)
        return ul_diag_set(json->diag, UL_MISMATCH,
                           "\"smallest_budget_bytes\" is below what always lives, with inputs or "
                           "outputs");
    return UL_OK;
}

/* A device's memory is the budget, unless a smaller one was given. */
static enum ul_status check_device(struct ul_json *json, uint64_t budget)
{
    const json_t *device = json_object_get(json->root, "device");
    uint64_t memory_bytes = 0;
    if (device == NULL)
        return UL_OK;
    UL_TRY(ul_json_number(json, device, "memory_bytes", INT64_MAX, &memory_bytes));
    if (budget > 0 && budget <= memory_bytes)
        return UL_OK;
    return ul_diag_set(json->diag, UL_MISMATCH,
                       "\"budget_bytes\" is %llu, and the device has %llu bytes of memory",
                       (unsigned long long)budget, (unsigned long long)memory_bytes);
}

static enum ul_status check_budget_of(struct ul_json *json)
{
    const json_t *said = json_object_get(json->root, "budget_of");
    const char *of = json_string_value(said);
    if (said == NULL || (of != NULL && (strcmp(of, "process") == 0 || strcmp(of, "arena") == 0)))
        return UL_OK;
    return ul_diag_set(json->diag, UL_INVALID,
                       "\"budget_of\" is neither \"process\" nor \"arena\"");
}

/* What the file says of itself must hold together; the planner's checker sees to the rest. */
static enum ul_status check_claims(struct ul_json *json, const struct ul_problem *problem,
                                   struct ul_plan *plan)
{
    const json_t *root = json->root;
    uint64_t unaccounted = 0;
    uint64_t budget = 0;
    UL_TRY(ul_json_number(json, json_object_get(root, "rows"), "unaccounted", INT64_MAX,
                          &unaccounted));
    if (json_object_get(root, "budget_bytes") != NULL)
        UL_TRY(ul_json_number(json, root, "budget_bytes", INT64_MAX, &budget));
    uint64_t reserved = plan->reserved_bytes[0];
    bool is_process = is_of_process(root);
    UL_TRY(check_budget_of(json));
    UL_TRY(check_device(json, budget));
    if (unaccounted != 0)
        return ul_diag_set(json->diag, UL_MISMATCH, "\"unaccounted\" is not 0");
    if (plan->lower_bound_bytes > plan->order_lower_bound_bytes ||
        plan->order_lower_bound_bytes > reserved)
        return ul_diag_set(json->diag, UL_MISMATCH,
                           "\"lower_bound_bytes\", \"order_lower_bound_bytes\" and "
                           "\"reserved_bytes\" are not in ascending order");
    if (plan->lower_bound_bytes > plan->orders_lower_bound_bytes)
        return ul_diag_set(json->diag, UL_MISMATCH,
                           "\"lower_bound_bytes\" is above \"orders_lower_bound_bytes\"");
    if (plan->cost_bound > 0 && budget == 0)
        return ul_diag_set(json->diag, UL_MISMATCH, "\"cost_bound\" without a budget");
    if (plan->optimal_within != NULL && (plan->optimal || plan->cost_bound == 0))
        return ul_diag_set(json->diag, UL_MISMATCH,
                           "\"optimal_within\" beside \"optimal\", or without \"cost_bound\"");
    if (plan->cost_bound == 0 && plan->optimal != (reserved == plan->lower_bound_bytes))
        return ul_diag_set(json->diag, UL_MISMATCH,
                           "\"optimal\" contradicts the lower bound and the bytes reserved");
    if (budget == 0 && !is_process && plan->smallest_budget_bytes < plan->lower_bound_bytes)
        return ul_diag_set(json->diag, UL_MISMATCH,
                           "\"smallest_budget_bytes\" is below \"lower_bound_bytes\"");
    if (plan->fits != (budget == 0 || plan->bounded_bytes <= budget))
        return ul_diag_set(json->diag, UL_MISMATCH,
                           "\"fits\" contradicts the budget and the bytes %s",
                           is_process ? "of the process" : "reserved");
    return check_floor(json, problem, plan, budget);
}

/* The file says nothing of spaces that are beside. */
static enum ul_status add_spaces(struct ul_json *json, const struct ul_problem *problem,
                                 struct ul_plan *plan)
{
    uint64_t *reserved = UL_NEW_ARRAY(json->arena, uint64_t, problem->space_count);
    uint32_t count = ul_report_space_index(problem, problem->space_count);
    if (plan->space_count != count)
        return ul_diag_set(json->diag, UL_INVALID, "\"spaces\": expected %u of them", count);
    for (uint32_t i = 0; i < count; i++)
        reserved[ul_report_space_at(problem, i)] = plan->reserved_bytes[i];
    plan->reserved_bytes = reserved;
    plan->space_count = problem->space_count;
    return UL_OK;
}

static enum ul_status read_plan(struct ul_json *json, const struct ul_problem *problem,
                                struct ul_plan *plan)
{
    const json_t *root = json->root;
    const json_t *method = json_object_get(root, "method");
    uint64_t peak = 0;
    uint64_t reserved = 0;
    memset(plan, 0, sizeof *plan);
    UL_TRY(ul_json_column(json, "spaces", "reserved_bytes", false, INT64_MAX, &plan->reserved_bytes,
                          &plan->space_count, true));
    UL_TRY(add_spaces(json, problem, plan));
    /* The headline and the arena's entry are one number. */
    UL_TRY(ul_json_number(json, root, "reserved_bytes", INT64_MAX, &reserved));
    if (reserved != plan->reserved_bytes[0])
        return ul_diag_set(json->diag, UL_MISMATCH,
                           "\"reserved_bytes\" differs from that of the first space");
    UL_TRY(ul_json_number(json, root, "order_lower_bound_bytes", INT64_MAX,
                          &plan->order_lower_bound_bytes));
    UL_TRY(ul_json_number(json, root, "orders_lower_bound_bytes", INT64_MAX,
                          &plan->orders_lower_bound_bytes));
    UL_TRY(ul_json_number(json, root, "lower_bound_bytes", INT64_MAX, &plan->lower_bound_bytes));
    UL_TRY(ul_json_number(json, root, "alignment_bytes", INT64_MAX, &plan->alignment_bytes));
    UL_TRY(check_alignment(json, plan->alignment_bytes));
    UL_TRY(ul_json_number(json, root, "smallest_budget_bytes", INT64_MAX,
                          &plan->smallest_budget_bytes));
    plan->bounded_bytes = reserved;
    if (is_of_process(root))
        UL_TRY(ul_json_number(json, root, "process_bytes", INT64_MAX, &plan->bounded_bytes));
    UL_TRY(ul_json_number(json, root, "peak_step", UINT32_MAX - 1, &peak));
    UL_TRY(ul_json_number(json, root, "cost", INT64_MAX, &plan->cost));
    UL_TRY(ul_json_number(json, root, "base_cost", INT64_MAX, &plan->base_cost));
    UL_TRY(check_overhead(json, root, plan));
    if (json_object_get(root, "cost_bound") != NULL)
        UL_TRY(ul_json_number(json, root, "cost_bound", INT64_MAX, &plan->cost_bound));
    if (json_object_get(root, "cost_bound_method") != NULL)
        UL_TRY(ul_json_string(json, root, "cost_bound_method", &plan->cost_bound_method));
    if (json_object_get(root, "optimal_within") != NULL)
        UL_TRY(ul_json_string(json, root, "optimal_within", &plan->optimal_within));
    plan->peak_position = (uint32_t)peak;
    plan->fits = json_is_true(json_object_get(root, "fits"));
    plan->optimal = json_is_true(json_object_get(root, "optimal"));
    plan->stopped_by_time = json_is_true(json_object_get(root, "stopped_by_time"));
    UL_TRY(ul_json_string(json, method, "order", &plan->order_method));
    UL_TRY(ul_json_string(json, method, "remat", &plan->remat_method));
    UL_TRY(ul_json_string(json, method, "pack", &plan->pack_method));
    UL_TRY(read_rows(json, plan));
    UL_TRY(check_claims(json, problem, plan));
    UL_TRY(read_positions(json, problem, plan));
    UL_TRY(read_ranges(json, problem, plan));
    UL_TRY(ul_plan_index_ranges(json->arena, problem, plan, json->diag));
    ul_plan_place_beside(json->arena, problem, plan);
    return UL_OK;
}

enum ul_status ul_report_read_plan(struct ul_arena *arena, const char *json, size_t length,
                                   const struct ul_problem *problem, struct ul_plan *plan,
                                   struct ul_diag *diag)
{
    struct ul_json in = {.arena = arena, .diag = diag};
    enum ul_status status = ul_json_parse(&in, json, length);
    if (status == UL_OK)
        status = read_plan(&in, problem, plan);
    json_decref(in.root);
    return status;
}
