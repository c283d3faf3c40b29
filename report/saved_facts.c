/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan.json says beside its tables: bounds, budget, process, methods, and what other plans
 * would take. Members that are not there are of a later version than the plan; those that are there
 * are held to their range. */
#include "report/json_in.h"
#include "report/saved.h"

#include <string.h>

static const uint64_t MAX_BYTES = (uint64_t)1 << 60;

static enum ul_status read_number(struct ul_json *json, const json_t *object, const char *key,
                                  uint64_t *out)
{
    if (json_object_get(object, key) == NULL)
        return UL_OK;
    return ul_json_number(json, object, key, MAX_BYTES, out);
}

static enum ul_status read_text(struct ul_json *json, const json_t *object, const char *key,
                                const char **out)
{
    *out = "";
    if (json_object_get(object, key) == NULL)
        return UL_OK;
    return ul_json_string(json, object, key, out);
}

/* Whether a list has that text. */
static bool has_text(const json_t *list, const char *text)
{
    bool has = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        has = has || (item != NULL && strcmp(item, text) == 0);
    }
    return has;
}

static enum ul_status read_head(struct ul_json *json, struct ul_saved_facts *facts)
{
    const json_t *root = json->root, *library = json_object_get(root, "for_library");
    const json_t *launches = json_object_get(root, "launches");
    const char *budget_of;
    UL_TRY(read_text(json, root, "tool", &facts->tool));
    UL_TRY(read_text(json, root, "budget_of", &budget_of));
    UL_TRY(read_text(json, json_object_get(root, "device"), "name", &facts->device));
    UL_TRY(read_text(json, root, "library", &facts->library));
    UL_TRY(read_text(json, root, "cudnn", &facts->cudnn));
    UL_TRY(read_text(json, root, "cost_bound_method", &facts->cost_bound_method));
    UL_TRY(read_text(json, root, "optimal_within", &facts->optimal_within));
    facts->has_launches = json_is_object(launches);
    facts->peaks_at_start = json_is_true(json_object_get(root, "process_peak_at_start"));
    facts->lacks_context = has_text(json_object_get(root, "process_lacks"), "context");
    facts->lacks_library = has_text(json_object_get(root, "process_lacks"), "libraries");
    facts->budget_of_arena = strcmp(budget_of, "arena") == 0;
    facts->fits = !json_is_false(json_object_get(root, "fits"));
    facts->proven = json_is_true(json_object_get(root, "proven"));
    facts->optimal = json_is_true(json_object_get(root, "optimal"));
    facts->stopped_by_time = json_is_true(json_object_get(root, "stopped_by_time"));
    const struct {
        const json_t *object;
        const char *key;
        uint64_t *out;
    } numbers[] = {
        {root, "opset", &facts->opset},
        {root, "order_lower_bound_bytes", &facts->order_lower_bound_bytes},
        {root, "orders_lower_bound_bytes", &facts->orders_lower_bound_bytes},
        {root, "lower_bound_bytes", &facts->lower_bound_bytes},
        {root, "budget_bytes", &facts->budget_bytes},
        {json_object_get(root, "device"), "memory_bytes", &facts->device_bytes},
        {root, "smallest_budget_bytes", &facts->smallest_budget_bytes},
        {root, "base_cost", &facts->base_cost},
        {root, "step_cost", &facts->step_cost},
        {root, "cost_bound", &facts->cost_bound},
        {library, "packing_bytes", &facts->packing_bytes},
        {library, "operand_bytes", &facts->operand_bytes},
        {launches, "count", &facts->launch_count},
        {launches, "of_libraries", &facts->call_count},
        {launches, "shared_ns", &facts->shared_ns},
        {launches, "on_second_stream", &facts->beside_count},
        {launches, "waits", &facts->wait_count},
        {json_object_get(root, "training"), "parameters", &facts->parameter_count},
        {json_object_get(root, "flash"), "weights", &facts->flash_weight_bytes},
        {json_object_get(root, "flash"), "code", &facts->flash_code_bytes},
        {json_object_get(root, "for_precision"), "saved_bytes", &facts->precision_bytes},
        {json_object_get(root, "for_precision"), "too_large_count", &facts->too_large_count},
        {json_object_get(root, "for_precision"), "uncalled_count", &facts->uncalled_count},
        {json_object_get(root, "transfers"), "saves", &facts->save_count},
        {json_object_get(root, "transfers"), "loads", &facts->load_count},
        {json_object_get(root, "transfers"), "saved_bytes", &facts->saved_bytes},
        {json_object_get(root, "transfers"), "loaded_bytes", &facts->loaded_bytes},
        {json_object_get(root, "transfers"), "exposed_cost", &facts->exposed_cost},
        {root, "remedies_tried", &facts->tried_count},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        UL_TRY(read_number(json, numbers[i].object, numbers[i].key, numbers[i].out));
    return UL_OK;
}

static enum ul_status read_parts(struct ul_json *json, struct ul_saved_facts *facts)
{
    const json_t *parts = json_object_get(json->root, "process");
    const json_t *methods = json_object_get(json->root, "method");
    for (uint32_t i = 0; i < UL_SAVED_PART_COUNT; i++)
        UL_TRY(
            read_number(json, parts, ul_saved_part_name((enum ul_saved_part)i), &facts->parts[i]));
    UL_TRY(read_text(json, methods, "order", &facts->order));
    UL_TRY(read_text(json, methods, "remat", &facts->remat));
    return read_text(json, methods, "pack", &facts->pack);
}

static enum ul_status read_spaces(struct ul_json *json, struct ul_saved_facts *facts)
{
    const char **names = NULL;
    uint64_t *bytes = NULL;
    if (json_object_get(json->root, "spaces") == NULL)
        return UL_OK;
    UL_TRY(ul_json_column(json, "spaces", "reserved_bytes", false, MAX_BYTES, &bytes,
                          &facts->space_count, true));
    UL_TRY(ul_json_texts(json, "spaces", "name", &names, facts->space_count));
    struct ul_saved_space *spaces =
        UL_NEW_ARRAY(json->arena, struct ul_saved_space, facts->space_count);
    for (uint32_t i = 0; i < facts->space_count; i++)
        spaces[i] = (struct ul_saved_space){.name = names[i], .reserved_bytes = bytes[i]};
    facts->spaces = spaces;
    return UL_OK;
}

/* How many entries a list has that may not be there. */
static enum ul_status count_list(struct ul_json *json, const char *key, bool *is_there,
                                 uint32_t *count)
{
    const json_t *list = json_object_get(json->root, key);
    *is_there = list != NULL;
    *count = (uint32_t)json_array_size(list);
    if (list == NULL || (json_is_array(list) && json_array_size(list) < UINT32_MAX))
        return UL_OK;
    return ul_diag_set(json->diag, UL_INVALID, "\"%s\" is no list", key);
}

static enum ul_status read_difference(struct ul_json *json, const json_t *row, const char *key,
                                      int64_t *out)
{
    const json_t *item = json_object_get(row, key);
    json_int_t value = json_integer_value(item);
    if (!json_is_integer(item) || value > (json_int_t)MAX_BYTES || value < -(json_int_t)MAX_BYTES)
        return ul_diag_set(json->diag, UL_INVALID,
                           "\"remedies\": \"%s\" is missing, no whole number, or out of range",
                           key);
    *out = value;
    return UL_OK;
}

/* Whose the process of a remedy's plan is, where that is not whose the plan's is. */
static enum ul_status read_owner(struct ul_json *json, const json_t *row, const char **out)
{
    const char *own;
    UL_TRY(read_text(json, json->root, "process_of", &own));
    UL_TRY(read_text(json, row, "process_of", out));
    *out = strcmp(*out, own) == 0 ? "" : *out;
    if (**out == '\0' || strcmp(*out, "program") == 0 || strcmp(*out, "caller") == 0 ||
        strcmp(*out, "device") == 0)
        return UL_OK;
    return ul_diag_set(json->diag, UL_INVALID,
                       "\"remedies\": \"process_of\" is neither \"program\", \"caller\" nor "
                       "\"device\"");
}

static enum ul_status read_remedies(struct ul_json *json, struct ul_saved_facts *facts)
{
    UL_TRY(count_list(json, "remedies", &facts->has_remedies, &facts->remedy_count));
    struct ul_saved_remedy *remedies =
        UL_NEW_ARRAY(json->arena, struct ul_saved_remedy, facts->remedy_count);
    for (uint32_t i = 0; i < facts->remedy_count; i++) {
        struct ul_saved_remedy *remedy = &remedies[i];
        const json_t *row = json_array_get(json_object_get(json->root, "remedies"), i);
        UL_TRY(ul_json_string(json, row, "kind", &remedy->kind));
        UL_TRY(ul_json_string(json, row, "change", &remedy->change));
        UL_TRY(ul_json_number(json, row, "reserved_bytes", MAX_BYTES, &remedy->reserved_bytes));
        UL_TRY(ul_json_number(json, row, "process_bytes", MAX_BYTES, &remedy->process_bytes));
        UL_TRY(ul_json_number(json, row, "cost", MAX_BYTES, &remedy->cost));
        UL_TRY(read_owner(json, row, &remedy->process_of));
        UL_TRY(read_difference(json, row, "saved_bytes", &remedy->saved_bytes));
        UL_TRY(read_difference(json, row, "extra_cost", &remedy->extra_cost));
        remedy->is_applied = json_is_true(json_object_get(row, "applied"));
        remedy->keeps_bits = json_is_true(json_object_get(row, "same_bits"));
        remedy->fits = json_is_true(json_object_get(row, "fits"));
    }
    facts->remedies = remedies;
    return UL_OK;
}

static enum ul_status read_ladder(struct ul_json *json, struct ul_saved_facts *facts)
{
    UL_TRY(count_list(json, "ladder", &facts->has_ladder, &facts->rung_count));
    struct ul_saved_rung *rungs =
        UL_NEW_ARRAY(json->arena, struct ul_saved_rung, facts->rung_count);
    for (uint32_t i = 0; i < facts->rung_count; i++) {
        struct ul_saved_rung *rung = &rungs[i];
        const json_t *row = json_array_get(json_object_get(json->root, "ladder"), i);
        UL_TRY(ul_json_number(json, row, "reserved_bytes", MAX_BYTES, &rung->reserved_bytes));
        UL_TRY(ul_json_number(json, row, "process_bytes", MAX_BYTES, &rung->process_bytes));
        UL_TRY(ul_json_number(json, row, "cost", MAX_BYTES, &rung->cost));
        UL_TRY(read_number(json, row, "recomputed_steps", &rung->recomputed_steps));
        UL_TRY(read_number(json, row, "splits", &rung->splits));
        UL_TRY(read_number(json, row, "row_major", &rung->row_major));
        UL_TRY(read_number(json, row, "inside", &rung->inside));
    }
    facts->rungs = rungs;
    return UL_OK;
}

static enum ul_status read_types(struct ul_json *json, struct ul_saved_facts *facts)
{
    const json_t *types = json_object_get(json->root, "weights_by_type");
    const json_t *first = json_array_get(json_object_get(json->root, "in_floats"), 0);
    bool is_there;
    for (uint32_t t = 1; t < UL_DTYPE_COUNT; t++)
        UL_TRY(
            read_number(json, types, ul_dtype_get((enum ul_dtype)t)->name, &facts->type_bytes[t]));
    UL_TRY(count_list(json, "in_floats", &is_there, &facts->float_count));
    UL_TRY(read_text(json, first, "node", &facts->float_node));
    UL_TRY(read_text(json, first, "op", &facts->float_op));
    return read_text(json, first, "why", &facts->float_why);
}

static enum ul_status read_kept(struct ul_json *json, struct ul_saved_facts *facts)
{
    bool is_there;
    UL_TRY(count_list(json, "stays_f32", &is_there, &facts->kept_count));
    struct ul_saved_kept *kept = UL_NEW_ARRAY(json->arena, struct ul_saved_kept, facts->kept_count);
    for (uint32_t i = 0; i < facts->kept_count; i++) {
        const json_t *row = json_array_get(json_object_get(json->root, "stays_f32"), i);
        UL_TRY(read_text(json, row, "why", &kept[i].why));
        UL_TRY(read_number(json, row, "count", &kept[i].count));
        UL_TRY(read_number(json, row, "bytes", &kept[i].bytes));
    }
    facts->kept = kept;
    return UL_OK;
}

static enum ul_status read_blockers(struct ul_json *json, struct ul_saved *saved)
{
    struct ul_saved_facts *facts = &saved->facts;
    UL_TRY(count_list(json, "blockers", &facts->has_blockers, &facts->blocker_count));
    struct ul_saved_blocker *blockers =
        UL_NEW_ARRAY(json->arena, struct ul_saved_blocker, facts->blocker_count);
    for (uint32_t i = 0; i < facts->blocker_count; i++) {
        const json_t *row = json_array_get(json_object_get(json->root, "blockers"), i);
        uint64_t step;
        UL_TRY(ul_json_number(json, row, "step", MAX_BYTES, &step));
        UL_TRY(ul_json_number(json, row, "bytes", MAX_BYTES, &blockers[i].bytes));
        if (step >= saved->step_count)
            return ul_diag_set(json->diag, UL_INVALID,
                               "\"blockers\": entry %u names a step that is not there", i);
        blockers[i].step = (uint32_t)step;
    }
    facts->blockers = blockers;
    return UL_OK;
}

static enum ul_status read_search(struct ul_json *json, const char *key, const char *size_key,
                                  const char *name, struct ul_saved_search *search)
{
    const json_t *object = json_object_get(json->root, key);
    const json_t *planned = json_object_get(object, "planned");
    if (object == NULL)
        return UL_OK;
    search->name = name;
    if (name == NULL)
        UL_TRY(ul_json_string(json, object, "name", &search->name));
    UL_TRY(read_text(json, object, "why_not_larger", &search->why));
    UL_TRY(ul_json_number(json, object, size_key, MAX_BYTES, &search->size));
    if (!json_is_array(planned) || json_array_size(planned) >= UINT32_MAX)
        return ul_diag_set(json->diag, UL_INVALID, "\"%s\": \"planned\" is missing or no list",
                           key);
    search->tried_count = (uint32_t)json_array_size(planned);
    struct ul_saved_tried *tried =
        UL_NEW_ARRAY(json->arena, struct ul_saved_tried, search->tried_count);
    for (uint32_t i = 0; i < search->tried_count; i++) {
        const json_t *row = json_array_get(planned, i);
        UL_TRY(ul_json_number(json, row, size_key, MAX_BYTES, &tried[i].size));
        UL_TRY(ul_json_number(json, row, "bytes", MAX_BYTES, &tried[i].bytes));
        UL_TRY(read_number(json, row, "cost", &tried[i].cost));
        tried[i].fits = json_is_true(json_object_get(row, "fits"));
    }
    search->tried = tried;
    return UL_OK;
}

static enum ul_status read_searches(struct ul_json *json, struct ul_saved_facts *facts)
{
    UL_TRY(read_search(json, "max_batch", "batch", "batch", &facts->largest));
    UL_TRY(read_search(json, "max_dim", "size", NULL, &facts->largest));
    return read_search(json, "micro_batches", "count", "micro-batches", &facts->micro_batches);
}

static enum ul_status read_training(struct ul_json *json, struct ul_report_training *training)
{
    const json_t *object = json_object_get(json->root, "training");
    uint64_t pieces = 0, shared = 0, unreached = 0;
    const struct {
        const char *key;
        uint64_t *out;
    } numbers[] = {{"parameters", &training->parameter_count},
                   {"tensors", &training->tensor_count},
                   {"parameter_bytes", &training->parameter_bytes},
                   {"state_bytes", &training->state_bytes},
                   {"wide_tensors", &training->wide_tensor_count},
                   {"wide_parameters", &training->wide_count},
                   {"wide_bytes", &training->wide_bytes},
                   {"statistics", &training->statistic_count},
                   {"fixed", &training->fixed_count},
                   {"clip_kept_bytes", &training->clipped_bytes},
                   {"scale_kept_bytes", &training->scaled_bytes},
                   {"loss_pieces", &pieces},
                   {"loss_piece_bytes", &training->piece_bytes},
                   {"shared_parameters", &shared},
                   {"shared_bytes", &training->shared_bytes},
                   {"shared_largest_bytes", &training->largest_shared_bytes},
                   {"unreached", &unreached}};
    if (object == NULL)
        return UL_OK;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        UL_TRY(read_number(json, object, numbers[i].key, numbers[i].out));
    UL_TRY(read_text(json, object, "notes", &training->notes));
    UL_TRY(read_text(json, object, "shared", &training->shared));
    UL_TRY(read_text(json, object, "unreached_first", &training->unreached));
    training->clips_twice = json_is_true(json_object_get(object, "clips_twice"));
    training->piece_count = (uint32_t)pieces;
    training->shared_count = (uint32_t)shared;
    training->unreached_count = (uint32_t)unreached;
    return UL_OK;
}

enum ul_status ul_saved_read_facts(struct ul_json *json, struct ul_saved *saved)
{
    UL_TRY(read_head(json, &saved->facts));
    UL_TRY(read_parts(json, &saved->facts));
    UL_TRY(read_training(json, &saved->facts.training));
    UL_TRY(read_spaces(json, &saved->facts));
    UL_TRY(read_remedies(json, &saved->facts));
    UL_TRY(read_ladder(json, &saved->facts));
    UL_TRY(read_searches(json, &saved->facts));
    UL_TRY(read_types(json, &saved->facts));
    UL_TRY(read_kept(json, &saved->facts));
    return read_blockers(json, saved);
}
