/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a plan.json for reports: everything is held to its range here, since pictures and tables
 * are made of it without another look. */
#include "report/saved.h"
#include "report/json_in.h"

#include <string.h>

static const uint64_t MAX_BYTES = (uint64_t)1 << 60; /* so that sums and differences are numbers */

static enum ul_status read_head(struct ul_json *json, struct ul_saved *saved)
{
    const json_t *rows = json_object_get(json->root, "rows");
    uint64_t peak;
    UL_TRY(ul_json_string(json, json->root, "model", &saved->model));
    UL_TRY(ul_json_string(json, json->root, "model_sha256", &saved->model_sha256));
    UL_TRY(ul_json_string(json, json->root, "target", &saved->target));
    UL_TRY(ul_json_number(json, json->root, "reserved_bytes", MAX_BYTES, &saved->reserved_bytes));
    saved->process_bytes = UINT64_MAX;
    if (json_object_get(json->root, "process_bytes") != NULL)
        UL_TRY(ul_json_number(json, json->root, "process_bytes", MAX_BYTES, &saved->process_bytes));
    UL_TRY(ul_json_number(json, json->root, "alignment_bytes", 1 << 30, &saved->alignment_bytes));
    if (saved->alignment_bytes == 0)
        return ul_diag_set(json->diag, UL_INVALID, "\"alignment_bytes\" is 0");
    UL_TRY(ul_json_number(json, json->root, "cost", MAX_BYTES, &saved->cost));
    for (uint32_t row = 0; row < UL_REPORT_ROW_COUNT; row++)
        UL_TRY(ul_json_row(json, rows, row, MAX_BYTES, &saved->rows[row]));
    UL_TRY(ul_json_number(json, json->root, "peak_step", UINT32_MAX - 1, &peak));
    saved->peak_step = (uint32_t)peak;
    return ul_json_options(json, &saved->options, &saved->option_count);
}

/* A column that older plans do not have. */
static enum ul_status read_later_texts(struct ul_json *json, const char *table, const char *key,
                                       const char ***out, uint32_t count)
{
    if (json_object_get(json_object_get(json->root, table), key) != NULL)
        return ul_json_texts(json, table, key, out, count);
    *out = UL_NEW_ARRAY(json->arena, const char *, count);
    for (uint32_t i = 0; i < count; i++)
        (*out)[i] = "";
    return UL_OK;
}

static enum ul_status read_steps(struct ul_json *json, struct ul_saved *saved)
{
    const char **names, **ops, **nodes, **implementations, **sources, **passes;
    uint64_t *copies = NULL, *flops = NULL, *moved = NULL;
    uint32_t *count = &saved->step_count;
    UL_TRY(ul_json_column(json, "steps", "copy", false, UINT32_MAX - 1, &copies, count, true));
    UL_TRY(ul_json_column(json, "steps", "flops", false, MAX_BYTES, &flops, count, false));
    UL_TRY(ul_json_column(json, "steps", "moved_bytes", false, MAX_BYTES, &moved, count, false));
    UL_TRY(ul_json_texts(json, "steps", "name", &names, *count));
    UL_TRY(ul_json_texts(json, "steps", "op", &ops, *count));
    UL_TRY(ul_json_texts(json, "steps", "node", &nodes, *count));
    UL_TRY(ul_json_texts(json, "steps", "implementation", &implementations, *count));
    UL_TRY(read_later_texts(json, "steps", "source", &sources, *count));
    UL_TRY(read_later_texts(json, "steps", "pass", &passes, *count));
    struct ul_saved_step *steps =
        UL_NEW_ARRAY(json->arena, struct ul_saved_step, saved->step_count);
    for (uint32_t i = 0; i < saved->step_count; i++)
        steps[i] = (struct ul_saved_step){.name = names[i],
                                          .op = ops[i],
                                          .node = nodes[i],
                                          .implementation = implementations[i],
                                          .source = sources[i],
                                          .pass = passes[i],
                                          .copy = (uint32_t)copies[i],
                                          .flop_count = flops[i],
                                          .moved_bytes = moved[i]};
    saved->steps = steps;
    if (saved->peak_step >= saved->step_count && saved->peak_step > 0)
        return ul_diag_set(json->diag, UL_INVALID, "\"peak_step\" is %u of %u steps",
                           saved->peak_step, saved->step_count);
    return UL_OK;
}

/* A range takes over the bytes of one that ends where it begins; and sums can be formed. */
static enum ul_status check_ranges(struct ul_json *json, const struct ul_saved *saved)
{
    uint64_t total_bytes = 0;
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        const struct ul_saved_range *older =
            range->alias < saved->range_count ? &saved->ranges[range->alias] : NULL;
        bool fits = older != NULL && older != range && older->space == range->space &&
                    older->begin <= range->begin && older->end == range->begin + 1;
        if (range->alias != UL_PLAN_NONE && !fits)
            return ul_diag_set(
                json->diag, UL_INVALID,
                "\"ranges\": entry %u, %s, takes over a range that does not end there", i,
                ul_quote(json->arena, range->name));
        total_bytes += range->size_bytes + saved->alignment_bytes;
        if (total_bytes > MAX_BYTES)
            return ul_diag_set(json->diag, UL_INVALID,
                               "\"ranges\": \"size_bytes\" of all are no size");
    }
    return UL_OK;
}

/* Positions of the range, ascending. */
static enum ul_status read_list(struct ul_json *json, const json_t *list, uint32_t index,
                                struct ul_saved_range *range)
{
    size_t count = json_array_size(list);
    uint32_t *readers = UL_NEW_ARRAY(json->arena, uint32_t, count);
    bool is_good = json_is_array(list) && count <= range->end - range->begin;
    for (size_t i = 0; i < count && is_good; i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t at = json_integer_value(item);
        is_good = json_is_integer(item) && at >= (json_int_t)range->begin &&
                  at < (json_int_t)range->end && (i == 0 || (uint32_t)at > readers[i - 1]);
        readers[i] = is_good ? (uint32_t)at : 0;
    }
    if (!is_good)
        return ul_diag_set(json->diag, UL_INVALID,
                           "\"ranges\": \"readers\" %u is no ascending list of positions of the "
                           "range",
                           index);
    range->readers = readers;
    range->reader_count = (uint32_t)count;
    return UL_OK;
}

static enum ul_status read_readers(struct ul_json *json, struct ul_saved_range *ranges,
                                   uint32_t count, bool *is_there)
{
    const json_t *lists = json_object_get(json_object_get(json->root, "ranges"), "readers");
    *is_there = lists != NULL;
    if (lists == NULL)
        return UL_OK;
    if (json_array_size(lists) != count)
        return ul_diag_set(json->diag, UL_INVALID, "\"ranges\": \"readers\" is not complete");
    for (uint32_t i = 0; i < count; i++)
        UL_TRY(read_list(json, json_array_get(lists, i), i, &ranges[i]));
    return UL_OK;
}

enum { VALUE, COPY, SPACE, ALIAS, OFFSET, SIZE, BEGIN, END, COLUMN_COUNT };

static enum ul_status read_ranges(struct ul_json *json, struct ul_saved *saved)
{
    static const char *const keys[COLUMN_COUNT] = {"value",        "copy",       "space", "alias",
                                                   "offset_bytes", "size_bytes", "begin", "end"};
    uint64_t *columns[COLUMN_COUNT];
    const char **names, **types, **classes;
    uint32_t *count = &saved->range_count;
    for (uint32_t c = 0; c < COLUMN_COUNT; c++) {
        uint64_t max = c == OFFSET || c == SIZE ? MAX_BYTES : UINT32_MAX - 1;
        UL_TRY(ul_json_column(json, "ranges", keys[c], c == VALUE || c == ALIAS, max, &columns[c],
                              count, c == VALUE));
    }
    UL_TRY(ul_json_texts(json, "ranges", "name", &names, *count));
    UL_TRY(ul_json_texts(json, "ranges", "type", &types, *count));
    UL_TRY(ul_json_texts(json, "ranges", "class", &classes, *count));
    struct ul_saved_range *ranges = UL_NEW_ARRAY(json->arena, struct ul_saved_range, *count);
    for (uint32_t i = 0; i < *count; i++) {
        ranges[i] = (struct ul_saved_range){.is_scratch = columns[VALUE][i] == UL_PLAN_NONE,
                                            .name = names[i],
                                            .type = types[i],
                                            .copy = (uint32_t)columns[COPY][i],
                                            .space = (uint32_t)columns[SPACE][i],
                                            .alias = (uint32_t)columns[ALIAS][i],
                                            .offset_bytes = columns[OFFSET][i],
                                            .size_bytes = columns[SIZE][i],
                                            .begin = (uint32_t)columns[BEGIN][i],
                                            .end = (uint32_t)columns[END][i]};
        UL_TRY(ul_json_class(json, classes[i], i, &ranges[i].class));
        if (ranges[i].begin > ranges[i].end || ranges[i].end > saved->step_count)
            return ul_diag_set(json->diag, UL_INVALID,
                               "\"ranges\": entry %u, %s, names steps that are not there", i,
                               ul_quote(json->arena, names[i]));
    }
    saved->ranges = ranges;
    UL_TRY(read_readers(json, ranges, *count, &saved->has_readers));
    return check_ranges(json, saved);
}

/* Follows from the sizes. A plan that was made before the process was compared says what is saved
 * of the buffer, and is shown as a newer one. */
static void find_savings(struct ul_saved *saved)
{
    struct ul_saved_facts *facts = &saved->facts;
    bool of_buffer = facts->budget_of_arena || saved->process_bytes == UINT64_MAX;
    for (uint32_t i = 0; i < facts->remedy_count; i++) {
        struct ul_saved_remedy *remedy = &facts->remedies[i];
        remedy->saved_bytes = of_buffer || remedy->process_of[0] != '\0'
                                  ? (int64_t)saved->reserved_bytes - (int64_t)remedy->reserved_bytes
                                  : (int64_t)saved->process_bytes - (int64_t)remedy->process_bytes;
    }
}

static enum ul_status read_all(struct ul_json *json, struct ul_saved *saved)
{
    UL_TRY(read_head(json, saved));
    UL_TRY(read_steps(json, saved));
    UL_TRY(read_ranges(json, saved));
    UL_TRY(ul_saved_read_facts(json, saved));
    find_savings(saved);
    return UL_OK;
}

enum ul_status ul_saved_read(struct ul_arena *arena, const char *text, size_t length,
                             struct ul_saved *saved, struct ul_diag *diag)
{
    struct ul_json json = {.arena = arena, .diag = diag};
    *saved = (struct ul_saved){.peak_step = 0};
    enum ul_status status = ul_json_parse(&json, text, length);
    if (status == UL_OK)
        status = read_all(&json, saved);
    json_decref(json.root);
    return status;
}

const struct ul_saved_remedy *ul_saved_cheapest(const struct ul_saved *saved)
{
    const struct ul_saved_facts *facts = &saved->facts;
    const struct ul_saved_remedy *best = NULL;
    for (uint32_t i = 0; i < facts->remedy_count; i++) {
        const struct ul_saved_remedy *remedy = &facts->remedies[i];
        if (!remedy->is_applied && remedy->fits &&
            (best == NULL || remedy->extra_cost < best->extra_cost))
            best = remedy;
    }
    return best;
}

const char *ul_saved_option(const struct ul_saved *saved, const char *name)
{
    for (uint32_t i = 0; i < saved->option_count; i++)
        if (strcmp(saved->options[i].name, name) == 0)
            return saved->options[i].value;
    return NULL;
}

const struct ul_saved_step *ul_saved_maker(const struct ul_saved *saved,
                                           const struct ul_saved_range *range)
{
    bool is_given = range->class == UL_PLAN_WEIGHTS || range->class == UL_PLAN_OPTIMIZER ||
                    range->class == UL_PLAN_INPUTS || range->class == UL_PLAN_OTHERS;
    return is_given || range->begin >= saved->step_count ? NULL : &saved->steps[range->begin];
}

const char *ul_saved_range_name(const struct ul_saved *saved, struct ul_arena *arena,
                                uint32_t range)
{
    const struct ul_saved_step *maker = ul_saved_maker(saved, &saved->ranges[range]);
    if (!saved->ranges[range].is_scratch)
        return saved->ranges[range].name;
    return ul_arena_printf(arena, "(scratch) %s", maker != NULL ? maker->node : "");
}

uint32_t ul_saved_alive(const struct ul_saved *saved, struct ul_arena *arena, uint32_t **alive)
{
    bool *taken_over = UL_NEW_ARRAY(arena, bool, saved->range_count);
    uint32_t count = 0;
    *alive = UL_NEW_ARRAY(arena, uint32_t, saved->range_count);
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        if (range->alias != UL_PLAN_NONE && range->begin <= saved->peak_step)
            taken_over[range->alias] = true;
    }
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        if (range->space == 0 && range->begin <= saved->peak_step &&
            saved->peak_step < range->end && !taken_over[i])
            (*alive)[count++] = i;
    }
    return count;
}

void ul_saved_curves(const struct ul_saved *saved, struct ul_arena *arena,
                     uint64_t *curves[UL_SAVED_CURVES])
{
    uint32_t length = saved->step_count > 0 ? saved->step_count : 1;
    for (uint32_t c = 0; c < UL_SAVED_CURVES; c++)
        curves[c] = UL_NEW_ARRAY(arena, uint64_t, (uint64_t)length + 1);
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        bool takes_over = range->alias != UL_PLAN_NONE;
        uint32_t begin = takes_over ? range->begin + 1 : range->begin;
        uint64_t padding = (saved->alignment_bytes - range->size_bytes % saved->alignment_bytes) %
                           saved->alignment_bytes;
        if (range->space != 0)
            continue;
        if (begin < range->end) {
            curves[range->class][begin] += range->size_bytes;
            curves[range->class][range->end] -= range->size_bytes;
            curves[UL_PLAN_CLASS_COUNT][begin] += padding;
            curves[UL_PLAN_CLASS_COUNT][range->end] -= padding;
        }
        if (!takes_over || range->begin >= length)
            continue;
        /* Where both are alive, the older one's bytes are of the newer one's class. */
        const struct ul_saved_range *older = &saved->ranges[range->alias];
        curves[older->class][range->begin] -= older->size_bytes;
        curves[older->class][range->begin + 1] += older->size_bytes;
        curves[range->class][range->begin] += older->size_bytes;
        curves[range->class][range->begin + 1] -= older->size_bytes;
    }
    for (uint32_t c = 0; c < UL_SAVED_CURVES; c++)
        for (uint32_t p = 1; p < length; p++)
            curves[c][p] += curves[c][p - 1];
}
