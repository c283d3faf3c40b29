/* SPDX-License-Identifier: Apache-2.0 */
/* The tables at the end of model.c: the description of a model, as runtime/lib/ul_model.h defines
 * it. */
#include "codegen/emit/emit_internal.h"
#include "codegen/program/target.h"
#include "ir/op.h"
#include "ir/view.h"
#include "planner/model/timeline.h"

#include <inttypes.h>
#include <string.h>

/* ---- weights, inputs, outputs ---- */

static void put_section(struct ul_emitter *emitter, uint32_t place)
{
    const struct ul_graph *graph = emitter->program->graph;
    const struct ul_pack *pack = emitter->program->places[place].pack;
    ul_value_id value = emitter->program->places[place].value;
    struct ul_emit_place home = ul_emit_home(emitter, place);
    UL_ASSERT(home.space == UL_EMIT_ARENA || pack == NULL);
    ul_text_printf(emitter->text, "    {%" PRIu64 ", %" PRIu64 ", %u, %s, ", home.offset_bytes,
                   ul_value_bytes(graph, value), ul_value_element_bytes(graph, value),
                   ul_emit_space_name(home.space));
    if (pack != NULL)
        ul_text_printf(emitter->text, "&packs[%u]},\n", ul_emit_pack_index(emitter, pack));
    else
        ul_text_put(emitter->text, "NULL},\n");
}

static void put_splat(struct ul_emitter *emitter, uint32_t place)
{
    ul_value_id value = emitter->program->places[place].value;
    const struct ul_value *info = &emitter->program->graph->values[value];
    uint32_t size_bytes = ul_value_element_bytes(emitter->program->graph, value);
    unsigned char element[sizeof info->tensor->splat];
    uint64_t word = 0;
    ul_tensor_read_as(info->tensor, ul_value_storage(emitter->program->graph, value), 0, 1,
                      element);
    for (uint32_t i = 0; i < size_bytes; i++)
        word |= (uint64_t)element[i] << (8 * i);
    struct ul_emit_place home = ul_emit_home(emitter, place);
    ul_text_printf(emitter->text,
                   "    {%" PRIu64 ", %" PRIu64 ", UINT64_C(0x%" PRIx64 "), %u, %s},\n",
                   home.offset_bytes, ul_type_elements(&info->type), word, size_bytes,
                   ul_emit_space_name(home.space));
}

static void count_weight(struct ul_emitter *emitter, uint32_t place)
{
    (void)place;
    emitter->weight_count++;
}

static uint32_t count_weights(struct ul_emitter *emitter, bool splat)
{
    emitter->weight_count = 0;
    ul_emit_each_weight(emitter, splat, count_weight);
    return emitter->weight_count;
}

static void put_dims(struct ul_emitter *emitter, const char *name, const ul_value_id *values,
                     uint32_t count)
{
    const struct ul_graph *graph = emitter->program->graph;
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_type *type = &graph->values[values[i]].type;
        if (type->rank == 0)
            continue;
        ul_text_printf(emitter->text, "static const int64_t %s_dims_%u[] = {", name, i);
        for (uint32_t d = 0; d < type->rank; d++)
            ul_text_printf(emitter->text, "%s%" PRId64, d == 0 ? "" : ", ", type->dims[d]);
        ul_text_put(emitter->text, "};\n");
    }
}

/* As in ul_model.h: for an input, 1 + the number of the output that overwrites it; for such an
 * output, 1 + that of the input, or UL_DONATED_WEIGHT; 0: neither. */
static uint32_t donation_partner(const struct ul_emitter *emitter, ul_value_id value)
{
    const struct ul_graph *graph = emitter->program->graph;
    const struct ul_block *root = ul_emit_root(emitter);
    for (uint32_t i = 0; i < root->input_count; i++) {
        if (root->inputs[i] == graph->values[value].donor)
            return i + 1;
    }
    for (uint32_t i = 0; i < root->output_count; i++) {
        if (graph->values[root->outputs[i]].donor == value)
            return i + 1;
    }
    const uint32_t weight = UINT32_MAX; /* UL_DONATED_WEIGHT */
    return graph->values[value].donor != UL_NONE ? weight : 0;
}

static void put_tensors(struct ul_emitter *emitter, const char *name, const ul_value_id *values,
                        uint32_t count, uint32_t position)
{
    const struct ul_graph *graph = emitter->program->graph;
    struct ul_text *text = emitter->text;
    if (count == 0)
        return;
    put_dims(emitter, name, values, count);
    ul_text_printf(text, "static const struct ul_rt_tensor %ss[] = {\n", name);
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_value *info = &graph->values[values[i]];
        ul_text_put(text, "    {");
        ul_emit_string(text, ul_root_plain_name(graph, emitter->root, info->name));
        const struct ul_type type = ul_value_edge_type(graph, values[i]);
        ul_text_printf(text, ", (enum ul_rt_type)%d, %u, ", (int)type.dtype, type.rank);
        if (info->type.rank == 0)
            ul_text_put(text, "NULL");
        else
            ul_text_printf(text, "%s_dims_%u", name, i);
        uint32_t base = emitter->program->value_places[info->view.base];
        bool lasts = emitter->program->problem->values[base].persistent;
        struct ul_emit_place place =
            lasts ? ul_emit_home(emitter, base) : ul_emit_place(emitter, base, position);
        ul_text_printf(text, ", %" PRIu64 ", %s, %" PRIu64 ", %u},\n", ul_type_bytes(&type),
                       ul_emit_space_name(place.space),
                       place.offset_bytes + (uint64_t)info->view.offset_bytes,
                       donation_partner(emitter, values[i]));
    }
    ul_text_put(text, "};\n");
}

/* ---- entry points ---- */

static void put_numbers_of(struct ul_emitter *emitter, const struct ul_program_entry *entry,
                           const char *what, const uint32_t *list, uint32_t count)
{
    if (count == 0)
        return;
    ul_text_printf(emitter->text, "static const uint32_t %s_%s[] = {", entry->name, what);
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(emitter->text, "%s%u", i == 0 ? "" : ", ", list[i]);
    ul_text_put(emitter->text, "};\n");
}

static const char *or_null(struct ul_emitter *emitter, bool there, const char *name,
                           const char *what)
{
    return there ? ul_arena_printf(emitter->arena, "%s_%s", name, what) : "NULL";
}

static void put_entries(struct ul_emitter *emitter)
{
    const struct ul_program *program = emitter->program;
    struct ul_text *text = emitter->text;
    for (uint32_t e = 0; e < program->entry_count; e++) {
        const struct ul_program_entry *entry = &program->entries[e];
        put_numbers_of(emitter, entry, "inputs", entry->inputs, entry->input_count);
        put_numbers_of(emitter, entry, "outputs", entry->outputs, entry->output_count);
    }
    ul_text_put(text, "static const struct ul_entry entries[] = {\n");
    for (uint32_t e = 0; e < program->entry_count; e++) {
        const struct ul_program_entry *entry = &program->entries[e];
        const char *name = entry->name;
        uint32_t begin, end;
        ul_emit_entry_span(emitter, e, &begin, &end);
        ul_text_printf(
            text, "    {\"%s\", %s, %s, %s, %u, %u, %u, %u},\n", name,
            or_null(emitter, begin < end && emitter->language->runs_on_host, entry->steps, "steps"),
            or_null(emitter, entry->input_count > 0, name, "inputs"),
            or_null(emitter, entry->output_count > 0, name, "outputs"), entry->input_count,
            entry->output_count, begin, end);
    }
    ul_text_put(text, "};\n");
}

/* ---- live ranges ---- */

static const char *range_name(const struct ul_emitter *emitter, const struct ul_plan_range *range)
{
    const struct ul_program *program = emitter->program;
    if (range->value == UL_PLAN_NONE) {
        const struct ul_plan_position *at = &emitter->plan->positions[range->begin];
        return ul_arena_printf(emitter->arena, "scratch of %s", program->steps[at->step].name);
    }
    return program->problem->values[range->value].name;
}

static bool is_in_space(const struct ul_plan_range *range, uint32_t space)
{
    return range->space == space && range->size_bytes != 0;
}

static bool is_arena_range(const struct ul_plan_range *range)
{
    return is_in_space(range, UL_PROGRAM_ARENA);
}

/* The number in the table of each range of the plan. */
static uint32_t *number_ranges(const struct ul_emitter *emitter)
{
    const struct ul_plan *plan = emitter->plan;
    uint32_t *rows = UL_NEW_ARRAY(emitter->arena, uint32_t, plan->range_count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->range_count; i++) {
        rows[i] = count;
        count += is_arena_range(&plan->ranges[i]);
    }
    return rows;
}

static uint32_t put_ranges(struct ul_emitter *emitter, const char *name, uint32_t space,
                           const uint32_t *rows)
{
    const struct ul_plan *plan = emitter->plan;
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->range_count; i++) {
        const struct ul_plan_range *range = &plan->ranges[i];
        if (!is_in_space(range, space))
            continue;
        if (count == 0)
            ul_text_printf(emitter->text, "static const struct ul_range %s[] = {\n", name);
        ul_text_put(emitter->text, "    {");
        ul_emit_string(emitter->text, range_name(emitter, range));
        ul_text_printf(emitter->text, ", (enum ul_row)%d, %" PRIu64 ", %" PRIu64 ", %u, %u, ",
                       (int)range->class, range->offset_bytes, range->size_bytes, range->begin,
                       range->end);
        if (range->alias == UL_PLAN_NONE || !is_arena_range(&plan->ranges[range->alias]))
            ul_text_put(emitter->text, "UL_RANGE_NONE},\n");
        else
            ul_text_printf(emitter->text, "%u},\n", rows[range->alias]);
        count++;
    }
    if (count > 0)
        ul_text_put(emitter->text, "};\n");
    return count;
}

/* ---- steps and their views ---- */

/* Shapes are shared: each distinct (dims, strides) is in the table once. */
struct shapes {
    uint32_t *begins;
    uint32_t begin_count, begin_capacity;
    int64_t *numbers;
    uint32_t number_count, number_capacity;
    uint32_t *table; /* hash -> index into begins */
    uint32_t table_size;
    uint32_t *ranks;
    uint32_t rank_capacity;
};

static uint32_t shape_hash(const int64_t *numbers, uint32_t count)
{
    uint64_t hash = count;
    for (uint32_t i = 0; i < count; i++) {
        hash = (hash ^ (uint64_t)numbers[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return (uint32_t)hash;
}

static void shapes_grow(struct ul_emitter *emitter, struct shapes *shapes)
{
    enum { FIRST_SIZE = 64 };
    uint32_t size = shapes->table_size == 0 ? FIRST_SIZE : 2 * shapes->table_size;
    shapes->table = UL_NEW_ARRAY(emitter->arena, uint32_t, size);
    shapes->table_size = size;
    memset(shapes->table, 0xFF, size * sizeof *shapes->table);
    for (uint32_t i = 0; i < shapes->begin_count; i++) {
        uint32_t slot =
            shape_hash(shapes->numbers + shapes->begins[i], 2 * shapes->ranks[i]) & (size - 1);
        while (shapes->table[slot] != UL_NONE)
            slot = (slot + 1) & (size - 1);
        shapes->table[slot] = i;
    }
}

static uint32_t shape_get(struct ul_emitter *emitter, struct shapes *shapes,
                          const struct ul_value *value)
{
    int64_t numbers[2 * UL_LIMIT_RANK];
    uint32_t rank = value->type.rank;
    for (uint32_t d = 0; d < rank; d++) {
        numbers[d] = value->type.dims[d];
        numbers[rank + d] = value->view.strides[d];
    }
    if (2 * (shapes->begin_count + 1) > shapes->table_size)
        shapes_grow(emitter, shapes);
    uint32_t mask = shapes->table_size - 1;
    uint32_t slot = shape_hash(numbers, 2 * rank) & mask;
    for (; shapes->table[slot] != UL_NONE; slot = (slot + 1) & mask) {
        uint32_t at = shapes->table[slot];
        if (shapes->ranks[at] == rank &&
            (rank == 0 || memcmp(shapes->numbers + shapes->begins[at], numbers,
                                 2 * rank * sizeof *numbers) == 0))
            return shapes->begins[at];
    }
    UL_GROW(emitter->arena, shapes->begins, shapes->begin_count, shapes->begin_capacity);
    UL_GROW(emitter->arena, shapes->ranks, shapes->begin_count, shapes->rank_capacity);
    shapes->begins[shapes->begin_count] = shapes->number_count;
    shapes->ranks[shapes->begin_count] = rank;
    shapes->table[slot] = shapes->begin_count++;
    for (uint32_t i = 0; i < 2 * rank; i++) {
        UL_GROW(emitter->arena, shapes->numbers, shapes->number_count, shapes->number_capacity);
        shapes->numbers[shapes->number_count++] = numbers[i];
    }
    return shapes->begins[shapes->begin_count - 1];
}

/* One view that is written at a position: of `value`, at an address. */
static void put_view(struct ul_emitter *emitter, struct shapes *shapes, struct ul_text *views,
                     const struct ul_value *value, const struct ul_program_address *at,
                     uint32_t position)
{
    struct ul_emit_place place = ul_emit_place(emitter, at->place, position);
    ul_text_printf(views, "    {%s, %u, %" PRIu64 ", (enum ul_rt_type)%d, %u, %u},\n",
                   at->loop != UL_PLAN_NONE ? "UL_SPACE_PART" : ul_emit_space_name(place.space),
                   place.index, place.offset_bytes + (uint64_t)at->offset_bytes,
                   (int)(value->storage != UL_DTYPE_NONE ? value->storage : value->type.dtype),
                   value->type.rank, shape_get(emitter, shapes, value));
}

/* The operands that a Concat copies, where others are in place already: those may not have been
 * written yet. Returns their number, or 0 where it writes all of its output. */
static uint32_t put_copied(struct ul_emitter *emitter, struct shapes *shapes, struct ul_text *views,
                           const struct ul_value *value, const struct ul_program_address *at,
                           uint32_t position)
{
    const struct ul_graph *graph = emitter->program->graph;
    const struct ul_node *node =
        value->kind == UL_VALUE_NODE ? &graph->nodes[value->producer] : NULL;
    uint32_t placed = 0;
    if (node == NULL || (ul_op_get(node->op)->flags & UL_OP_JOINS) == 0)
        return 0;
    for (uint32_t i = 0; i < node->input_count; i++)
        placed += ul_concat_is_placed(graph, node, i);
    for (uint32_t i = 0; placed > 0 && i < node->input_count; i++) {
        struct ul_value slice = graph->values[node->inputs[i]];
        struct ul_program_address begin = *at;
        if (ul_concat_is_placed(graph, node, i))
            continue;
        slice.view = ul_concat_slice(graph, node, i);
        begin.offset_bytes = slice.view.offset_bytes;
        put_view(emitter, shapes, views, &slice, &begin, position);
    }
    return placed > 0 ? node->input_count - placed : 0;
}

/* ---- operands ---- */

struct operands {
    struct ul_text text;
    uint32_t count;
    const uint32_t *rows; /* see number_ranges */
};

static void put_operand_row(struct operands *operands, uint32_t range)
{
    ul_text_printf(&operands->text, "%s%u,", operands->count++ % 16 == 0 ? "\n    " : " ",
                   operands->rows[range]);
}

static void put_operand(const struct ul_emitter *emitter, struct operands *operands, uint32_t place,
                        uint32_t position)
{
    const struct ul_plan *plan = emitter->plan;
    const struct ul_plan_range *range =
        place == UL_PLAN_NONE
            ? NULL
            : ul_plan_find_range(emitter->program->problem, plan, place, position);
    if (range == NULL || !is_arena_range(range))
        return;
    put_operand_row(operands, (uint32_t)(range - plan->ranges));
}

/* The condition of a branch is read before the branch's first step is announced. */
static void put_conditions(const struct ul_emitter *emitter, struct operands *operands)
{
    const struct ul_program *program = emitter->program;
    for (uint32_t p = 0; p < emitter->plan->position_count; p++) {
        uint32_t region = ul_program_region_at(program, &emitter->plan->positions[p]);
        for (uint32_t r = region; r != UL_PLAN_NONE; r = program->regions[r].parent) {
            if (program->regions[r].kind == UL_PLAN_BRANCH)
                put_operand(emitter, operands, program->regions[r].condition.place, p);
        }
    }
}

/* ---- views ---- */

/* The views that a step writes. A scanned output, whose slice moves with the round, is a single
 * place that is written in part; there is none for a buffer of the caller, whose other parts are
 * not known. Returns their number. */
static uint32_t put_views(struct ul_emitter *emitter, struct shapes *shapes, struct ul_text *views,
                          const struct ul_program_step *step, uint32_t position)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < step->arg_count; i++) {
        struct ul_program_address at = step->args[i];
        bool moves = at.loop != UL_PLAN_NONE;
        if (!step->written[i] || step->views[i] == UL_NONE)
            continue;
        const struct ul_value *value = &emitter->program->graph->values[step->views[i]];
        if (moves && ul_emit_place(emitter, at.place, position).space != UL_EMIT_ARENA)
            continue;
        if (moves) /* backwards it begins elsewhere */
            at.offset_bytes = value->view.offset_bytes;
        uint32_t copied = moves ? 0 : put_copied(emitter, shapes, views, value, &at, position);
        if (copied == 0)
            put_view(emitter, shapes, views, value, &at, position);
        count += copied == 0 ? 1 : copied;
    }
    return count;
}

static void put_one_step(struct ul_emitter *emitter, const struct ul_program_step *step,
                         const struct ul_plan_position *at, uint32_t view_begin,
                         uint32_t view_count, uint32_t operand_begin, uint32_t operand_count)
{
    struct ul_text *text = emitter->text;
    const struct ul_node *node = &emitter->program->graph->nodes[step->node];
    const char *name = at->copy == 0
                           ? step->name
                           : ul_arena_printf(emitter->arena, "%s again %u", step->name, at->copy);
    const struct ul_plan_step *planned = &emitter->program->problem->steps[at->step];
    ul_text_put(text, "    {");
    ul_emit_string(text, name);
    ul_text_put(text, ", ");
    ul_emit_string(text, step->kind == UL_STEP_KERNEL ? emitter->program->kernels[step->kernel].name
                         : step->kind == UL_STEP_CALL ? step->implementation
                         : step->kind == UL_STEP_COPY ? "memcpy"
                                                      : "");
    ul_text_put(text, ", ");
    ul_emit_string(text, node->name);
    ul_text_put(text, ", ");
    ul_emit_string(text, step->op);
    ul_text_printf(text, ", %u, %u, %" PRIu64 ", %" PRIu64 ", %.9g, %u, %u, %u},\n", view_begin,
                   view_count, step->work.flop_count, step->traffic.moved_bytes,
                   (double)planned->alternatives[at->alternative].cost * 1e-9,
                   step->kind == UL_STEP_CALL ? ul_emit_call_number(emitter, step) + 1 : 0,
                   operand_begin, operand_count);
}

/* ---- transfers ---- */

/* What is complete after a position: its transfer, or those that it waits for. Destinations are
 * views, sources in the arena operands. Returns the number of views. */
static uint32_t put_moved(struct ul_emitter *emitter, struct shapes *shapes, struct ul_text *views,
                          struct operands *operands, uint32_t position)
{
    const struct ul_plan *plan = emitter->plan;
    uint32_t count = 0;
    for (uint32_t p = 0; p <= position; p++) {
        const struct ul_emit_transfer *transfer = &emitter->transfers[p];
        if (plan->positions[p].kind != UL_PLAN_COPY || transfer->done != position ||
            transfer->size_bytes == 0)
            continue;
        struct ul_value bytes = {.type = {.dtype = UL_U8, .rank = 1}, .storage = UL_DTYPE_NONE};
        bool saves = !plan->positions[p].loads;
        bytes.type.dims[0] = (int64_t)transfer->size_bytes;
        bytes.view.strides[0] = 1;
        put_operand_row(operands, transfer->range);
        ul_text_printf(views, "    {%s, 0, %" PRIu64 ", UL_TYPE_U8, 1, %u},\n",
                       ul_emit_space_name(saves ? UL_EMIT_OFFLOAD : UL_EMIT_ARENA),
                       saves ? transfer->offload_offset_bytes : transfer->arena_offset_bytes,
                       shape_get(emitter, shapes, &bytes));
        count++;
    }
    return count;
}

/* `span`: when it is done, by the plan. */
static void put_transfer_step(struct ul_emitter *emitter, uint32_t position,
                              const struct ul_account_span *span, uint32_t view_begin,
                              uint32_t view_count, uint32_t operand_begin, uint32_t operand_count)
{
    const struct ul_plan_position *at = &emitter->plan->positions[position];
    struct ul_text *text = emitter->text;
    uint32_t moved = at->kind == UL_PLAN_WAIT ? at->awaited : position;
    const struct ul_plan_position *awaited = &emitter->plan->positions[moved];
    const struct ul_program *program = emitter->program;
    bool is_run = awaited->kind == UL_PLAN_RUN;
    uint64_t size_bytes = at->kind == UL_PLAN_WAIT ? 0 : emitter->transfers[position].size_bytes;
    ul_text_put(text, "    {");
    ul_emit_string(text, ul_emit_transfer_name(emitter, position));
    ul_text_printf(text, ", \"%s\", ", is_run ? "stream" : "offload");
    ul_emit_string(text,
                   is_run ? program->graph->nodes[ul_program_step_at(program, awaited)->node].name
                          : program->problem->values[awaited->value].name);
    ul_text_printf(text, ", \"%s\", %u, %u, 0, %" PRIu64 ", %.9g, 0, %u, %u},\n",
                   ul_plan_word(ul_plan_word_of(at->kind, at->loads)), view_begin, view_count,
                   size_bytes, (double)(span->end - span->begin) * 1e-9, operand_begin,
                   operand_count);
}

/* Writes steps[], views[], shapes[]; returns the number of views, and of shape numbers. */
static uint32_t put_steps(struct ul_emitter *emitter, struct operands *operands,
                          uint32_t *shape_count)
{
    const struct ul_plan *plan = emitter->plan;
    struct shapes shapes = {.begin_count = 0};
    const struct ul_account_span *spans =
        ul_account_spans(emitter->arena, emitter->program->problem, plan);
    struct ul_text views;
    ul_text_init(&views, emitter->arena);
    uint32_t view_count = 0;
    if (plan->position_count > 0)
        ul_text_put(emitter->text, "static const struct ul_step steps[] = {\n");
    for (uint32_t p = 0; p < plan->position_count; p++) {
        uint32_t operand_begin = operands->count, count;
        if (plan->positions[p].kind != UL_PLAN_RUN) {
            count = put_moved(emitter, &shapes, &views, operands, p);
            put_transfer_step(emitter, p, &spans[p], view_count, count, operand_begin,
                              operands->count - operand_begin);
            view_count += count;
            continue;
        }
        const struct ul_program_step *step =
            ul_program_step_at(emitter->program, &plan->positions[p]);
        count = put_views(emitter, &shapes, &views, step, p);
        for (uint32_t i = 0; i < step->arg_count; i++)
            put_operand(emitter, operands, step->args[i].place, p);
        put_one_step(emitter, step, &plan->positions[p], view_count, count, operand_begin,
                     operands->count - operand_begin);
        view_count += count;
    }
    if (plan->position_count > 0)
        ul_text_put(emitter->text, "};\n");
    if (view_count > 0)
        ul_text_printf(emitter->text, "static const struct ul_rt_view views[] = {\n%s};\n",
                       views.data);
    *shape_count = shapes.number_count;
    if (shapes.number_count > 0) {
        ul_text_put(emitter->text, "static const int64_t shapes[] = {");
        for (uint32_t i = 0; i < shapes.number_count; i++)
            ul_text_printf(emitter->text, "%s%" PRId64 ",", i % 16 == 0 ? "\n    " : " ",
                           shapes.numbers[i]);
        ul_text_put(emitter->text, "\n};\n");
    }
    return view_count;
}

/* ---- the mark of set-up ---- */

enum { MARK_BYTES = 8 };

struct marker {
    struct ul_emitter base; /* must be first, so that visits find the rest */
    const bool *is_donated;
    uint64_t offset_bytes;
    unsigned char mark[MARK_BYTES];
    uint32_t kinds; /* how many distinct bytes other than 0 the mark has */
};

static uint32_t count_kinds(const unsigned char *bytes)
{
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < MARK_BYTES; i++) {
        uint32_t before = 0;
        while (before < i && bytes[before] != bytes[i])
            before++;
        kinds += before == i && bytes[i] != 0;
    }
    return kinds;
}

/* Memory that was not set up is zeros, or one byte repeated: the more distinct bytes, the surer. */
static void offer_mark(struct ul_emitter *emitter, uint32_t place)
{
    enum { LOOKED_AT = 512 };
    ul_value_id value = emitter->program->places[place].value;
    struct marker *marker = (struct marker *)emitter;
    const struct ul_graph *graph = emitter->program->graph;
    unsigned char bytes[LOOKED_AT];
    uint64_t size = ul_value_bytes(graph, value);
    uint64_t element_bytes = ul_value_element_bytes(graph, value);
    struct ul_emit_place home = ul_emit_home(emitter, place);
    if (emitter->program->places[place].pack != NULL || marker->is_donated[value] ||
        home.space != UL_EMIT_ARENA)
        return;
    size = (size < LOOKED_AT ? size : LOOKED_AT) / element_bytes;
    ul_tensor_read_as(graph->values[value].tensor, ul_value_storage(graph, value), 0, size, bytes);
    for (uint64_t at = 0; at + MARK_BYTES <= size * element_bytes; at += MARK_BYTES) {
        uint32_t kinds = count_kinds(bytes + at);
        if (kinds > marker->kinds) {
            marker->kinds = kinds;
            marker->offset_bytes = home.offset_bytes + at;
            memcpy(marker->mark, bytes + at, MARK_BYTES);
        }
    }
}

static void put_mark(struct ul_emitter *emitter)
{
    const struct ul_graph *graph = emitter->program->graph;
    bool *is_donated = UL_NEW_ARRAY(emitter->arena, bool, graph->value_count);
    struct marker marker = {.base = *emitter, .is_donated = is_donated};
    for (ul_value_id v = 0; v < graph->value_count; v++) {
        if (graph->values[v].donor != UL_NONE)
            is_donated[graph->values[v].donor] = true;
    }
    ul_emit_each_weight(&marker.base, false, offer_mark);
    ul_emit_each_weight(&marker.base, true, offer_mark);
    if (marker.kinds == 0)
        return;
    ul_text_printf(emitter->text, "    .mark_offset_bytes = %" PRIu64 ",\n    .mark = {",
                   marker.offset_bytes);
    for (uint32_t i = 0; i < MARK_BYTES; i++)
        ul_text_printf(emitter->text, "%s0x%02x", i == 0 ? "" : ", ", marker.mark[i]);
    ul_text_put(emitter->text, "},\n");
}

/* ---- the model ---- */

static void put_digest(struct ul_text *text, const char *field, const char *hex)
{
    ul_text_printf(text, "    .%s = {", field);
    for (size_t i = 0; i + 1 < strlen(hex); i += 2)
        ul_text_printf(text, "%s0x%.2s", i == 0 ? "" : ", ", hex + i);
    ul_text_put(text, "},\n");
}

static void put_rows(struct ul_emitter *emitter)
{
    const struct ul_plan_rows *rows = &emitter->plan->rows;
    ul_text_put(emitter->text, "    .row_bytes = {");
    for (int i = 0; i < UL_PLAN_CLASS_COUNT; i++)
        ul_text_printf(emitter->text, "%" PRIu64 ", ", rows->class_bytes[i]);
    ul_text_printf(emitter->text, "%" PRIu64 ", %" PRIu64 "},\n", rows->alignment_bytes,
                   rows->holes_bytes);
}

static void put_array(struct ul_text *text, const char *field, const char *array, uint32_t count)
{
    if (count > 0)
        ul_text_printf(text, "    .%s = %s,\n", field, array);
}

/* Lengths of tables that all roots share: those of weights, and those that a program may lack. */
struct tables {
    uint32_t section_count, splat_count;
    uint32_t range_count, offload_range_count, view_count, shape_count, operand_count, bare_begin;
};

static struct tables put_optional_tables(struct ul_emitter *emitter)
{
    struct tables tables = {.section_count = 0};
    struct operands operands = {.rows = number_ranges(emitter)};
    ul_text_init(&operands.text, emitter->arena);
    ul_text_put(emitter->text, "#ifndef UL_NO_TABLES\n");
    tables.range_count = put_ranges(emitter, "ranges", UL_PROGRAM_ARENA, operands.rows);
    tables.offload_range_count =
        put_ranges(emitter, "offload_ranges", UL_PROGRAM_OFFLOAD, operands.rows);
    tables.view_count = put_steps(emitter, &operands, &tables.shape_count);
    tables.bare_begin = operands.count;
    put_conditions(emitter, &operands);
    tables.operand_count = operands.count;
    if (operands.count > 0)
        ul_text_printf(emitter->text, "static const uint32_t operands[] = {%s\n};\n",
                       operands.text.data);
    ul_text_put(emitter->text, "#endif\n\n");
    return tables;
}

/* How the program stores f32, where not as f32, and whether products round it. */
static void put_numbers(struct ul_text *text, const struct ul_program *program)
{
    const struct ul_graph *graph = program->graph;
    enum ul_dtype storage = UL_DTYPE_NONE;
    bool is_declared = false;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        storage = storage == UL_DTYPE_NONE ? graph->values[v].storage : storage;
        is_declared = is_declared || graph->values[v].declared != UL_DTYPE_NONE;
    }
    if (storage != UL_DTYPE_NONE)
        ul_text_printf(text, "    .storage = (enum ul_rt_type)%d,\n", (int)storage);
    if (is_declared)
        ul_text_put(text, "    .declared = 1,\n");
    if (program->options.tf32)
        ul_text_put(text, "    .tf32 = 1,\n");
}

/* Fields of a model on the host that others do not have. */
static void put_parts(struct ul_emitter *emitter, bool loads)
{
    struct ul_text *text = emitter->text;
    if (loads)
        ul_text_put(text, "    .load = ul_weights_load,\n");
    if (loads && emitter->pack_count > 0)
        ul_text_printf(text, "    .pack = %s,\n", ul_emit_packer(emitter));
    if (emitter->transfer_count > 0)
        ul_text_put(text, "    .offloading = &offloading,\n");
}

/* Where values are offloaded to, if the plan offloads any. */
static void put_offload(struct ul_emitter *emitter)
{
    const struct ul_program *program = emitter->program;
    struct ul_text *text = emitter->text;
    ul_text_printf(text, "    .offload_bytes = %" PRIu64 ",\n",
                   emitter->plan->reserved_bytes[UL_PROGRAM_OFFLOAD]);
    if (program->offload_state != UL_PLAN_NONE)
        ul_text_printf(text, "    .offload_state_offset_bytes = %" PRIu64 ",\n",
                       ul_emit_home(emitter, program->offload_state).offset_bytes);
    if (program->options.offload.file == NULL)
        return;
    ul_text_put(text, "    .offload_file = ");
    ul_emit_string(text, program->options.offload.file);
    ul_text_put(text, ",\n");
}

/* Writes the memories that the arena consists of. */
static void put_banks(struct ul_emitter *emitter)
{
    const struct ul_plan *plan = emitter->plan;
    if (plan->bank_count == 0)
        return;
    ul_text_put(emitter->text, "static const struct ul_bank banks[] = {\n");
    for (uint32_t b = 0; b < plan->bank_count; b++) {
        const struct ul_plan_bank *bank = &emitter->program->options.banks[b];
        ul_text_printf(emitter->text, "    {\"%s\", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "},\n",
                       bank->name, plan->banks[b].begin_bytes, plan->banks[b].size_bytes,
                       bank->capacity_bytes);
    }
    ul_text_put(emitter->text, "};\n\n");
}

static void put_offloading(struct ul_emitter *emitter)
{
    if (emitter->language->runs_on_host && emitter->transfer_count > 0)
        ul_text_put(emitter->text, "static const struct ul_offloading offloading = {\n"
                                   "    .attach = ul_offload_attach,\n    .of = ul_offload_of,\n"
                                   "    .save = ul_offload_save,\n    .load = ul_offload_load,\n"
                                   "    .finish = ul_offload_finish,\n};\n\n");
}

/* The descriptions of all models; the header declares each. */
static void put_roots(struct ul_emitter *emitter)
{
    const struct ul_graph *graph = emitter->program->graph;
    if (ul_emit_model_count(emitter) == 1)
        return;
    ul_text_put(emitter->text, "static const struct ul_model *const roots[] = {");
    for (uint32_t r = 0; r < graph->root_count; r++)
        ul_text_printf(emitter->text, "%s&%s_model", r == 0 ? "" : ", ", graph->blocks[r].name);
    ul_text_put(emitter->text, "};\n\n");
}

/* The tables, and how much is in each. */
static void put_counts(struct ul_emitter *emitter, const struct tables *tables)
{
    const struct ul_block *block = ul_emit_root(emitter);
    const struct ul_plan *plan = emitter->plan;
    struct ul_text *text = emitter->text;
    ul_text_printf(text,
                   "    .section_count = %u,\n    .splat_count = %u,\n    .input_count = %u,\n"
                   "    .output_count = %u,\n    .step_count = %u,\n#ifndef UL_NO_TABLES\n    "
                   ".range_count = %u,\n    .offload_range_count = %u,\n"
                   "    .view_count = %u,\n    .shape_count = %u,\n"
                   "    .operand_count = %u,\n    .bare_begin = %u,\n",
                   tables->section_count, tables->splat_count, block->input_count,
                   block->output_count, plan->position_count, tables->range_count,
                   tables->offload_range_count, tables->view_count, tables->shape_count,
                   tables->operand_count, tables->bare_begin);
    put_array(text, "steps", "steps", plan->position_count);
    put_array(text, "ranges", "ranges", tables->range_count);
    put_array(text, "offload_ranges", "offload_ranges", tables->offload_range_count);
    put_array(text, "views", "views", tables->view_count);
    put_array(text, "shapes", "shapes", tables->shape_count);
    put_array(text, "operands", "operands", tables->operand_count);
    put_rows(emitter);
    ul_text_printf(text, "    .peak_step = %u,\n#endif\n};\n", plan->peak_position);
}

static void put_root_tensors(struct ul_emitter *emitter)
{
    const struct ul_block *block = ul_emit_root(emitter);
    uint32_t first, last;
    ul_emit_root_span(emitter, &first, &last);
    put_tensors(emitter, ul_emit_root_array(emitter, "input"), block->inputs, block->input_count,
                first);
    put_tensors(emitter, ul_emit_root_array(emitter, "output"), block->outputs, block->output_count,
                last);
}

/* The model, or a piece of it, whose name this is. */
static void put_model(struct ul_emitter *emitter, const struct tables *tables, const char *piece)
{
    const struct ul_graph *graph = emitter->program->graph;
    const struct ul_block *block = ul_emit_root(emitter);
    const struct ul_plan *plan = emitter->plan;
    struct ul_text *text = emitter->text;
    bool loads = !emitter->program->options.weights_rom;
    ul_text_printf(text,
                   "%sconst struct ul_model %s = {\n    .name = ", piece != NULL ? "static " : "",
                   piece != NULL ? piece : ul_emit_root_model(emitter));
    ul_emit_string(text, ul_emit_model_count(emitter) == 1 ? graph->name : block->name);
    ul_text_printf(text, ",\n    .compiler = \"ullage " UL_VERSION "\",\n    .target = \"%s\",\n",
                   emitter->program->options.target->traits.name);
    put_numbers(text, emitter->program);
    if (emitter->program->options.thread_count > 1)
        ul_text_printf(text,
                       "    .thread_count = %u,\n#ifdef _OPENMP\n"
                       "    .thread_limit = ul_thread_limit,\n"
                       "    .start_threads = ul_threads_start,\n#endif\n",
                       emitter->program->options.thread_count);
    put_digest(text, "model_sha256", emitter->options->model_sha256);
    put_digest(text, "plan_sha256", emitter->options->plan_sha256);
    ul_text_printf(text,
                   "    .arena_bytes = %" PRIu64 ",\n    .arena_align = %" PRIu64 ",\n"
                   "    .rom_bytes = %" PRIu64 ",\n"
                   "    .payload_bytes = %" PRIu64 ",\n"
                   "    .payload_hash = UINT64_C(0x%" PRIx64 "),\n",
                   plan->reserved_bytes[UL_PROGRAM_ARENA], plan->alignment_bytes,
                   plan->reserved_bytes[UL_PROGRAM_ROM], loads ? emitter->payload_bytes : 0,
                   loads ? emitter->payload_hash : 0);
    if (emitter->transfer_count > 0)
        put_offload(emitter);
    if (plan->bank_count > 0)
        ul_text_printf(text,
                       "    .banks = banks,\n    .bank_count = %u,\n"
                       "    .bank_state_offset_bytes = %" PRIu64 ",\n",
                       plan->bank_count,
                       ul_emit_home(emitter, emitter->program->bank_state).offset_bytes);
    if (emitter->language->runs_on_host)
        put_parts(emitter, loads && tables->section_count + tables->splat_count > 0);
    emitter->language->put_runner(emitter);
    ul_text_printf(text,
                   "    .entry_count = sizeof entries / sizeof *entries,\n"
                   "    .entries = entries,\n    .first_entry = %u,\n",
                   ul_emit_root_entry(emitter, 0));
    if (piece == NULL && graph->root_count > 1)
        ul_text_put(text, "    .roots = roots,\n    .root_count = sizeof roots / sizeof *roots,\n");
    if (emitter->program->options.training != NULL)
        ul_text_put(text, "    .training = &training,\n");
    put_array(text, "sections", "sections", tables->section_count);
    put_array(text, "splats", "splats", tables->splat_count);
    if (loads && !emitter->program->options.target->traits.memory_is_separate)
        put_mark(emitter);
    ul_emit_sizes_fields(emitter, piece != NULL);
    put_array(text, "inputs", ul_emit_root_array(emitter, "inputs"), block->input_count);
    put_array(text, "outputs", ul_emit_root_array(emitter, "outputs"), block->output_count);
    put_counts(emitter, tables);
}

/* The descriptions of the pieces of a range of sizes. */
static void put_pieces(struct ul_emitter *emitter, const struct tables *tables)
{
    uint32_t first = ul_emit_first_model(emitter);
    for (uint32_t r = 0; first > 0 && r <= first; r++) {
        emitter->root = r;
        put_model(emitter, tables, ul_arena_printf(emitter->arena, "piece%u", r));
    }
    emitter->root = first;
    if (first == 0)
        return;
    ul_text_put(emitter->text, "static const struct ul_model *const roots[] = {");
    for (uint32_t r = 0; r <= first; r++)
        ul_text_printf(emitter->text, "%s&piece%u", r == 0 ? "" : ", ", r);
    ul_text_put(emitter->text, "};\n\n");
}

void ul_emit_tables(struct ul_emitter *emitter)
{
    /* Weights in read-only memory are in place before the program starts. */
    bool loads = !emitter->program->options.weights_rom;
    uint32_t sections = loads ? count_weights(emitter, false) : 0;
    uint32_t splats = loads ? count_weights(emitter, true) : 0;
    if (sections > 0) {
        ul_text_put(emitter->text, "static const struct ul_section sections[] = {\n");
        ul_emit_each_weight(emitter, false, put_section);
        ul_text_put(emitter->text, "};\n");
    }
    if (splats > 0) {
        ul_text_put(emitter->text, "static const struct ul_splat splats[] = {\n");
        ul_emit_each_weight(emitter, true, put_splat);
        ul_text_put(emitter->text, "};\n");
    }
    for (emitter->root = 0; emitter->root < emitter->program->graph->root_count; emitter->root++)
        put_root_tensors(emitter);
    emitter->root = ul_emit_first_model(emitter);
    ul_emit_sizes_tables(emitter);
    put_entries(emitter);
    if (emitter->program->options.training != NULL)
        ul_emit_training(emitter);
    struct tables tables = put_optional_tables(emitter);
    tables.section_count = sections;
    tables.splat_count = splats;
    put_offloading(emitter);
    put_banks(emitter);
    put_roots(emitter);
    put_pieces(emitter, &tables);
    for (; emitter->root < emitter->program->graph->root_count; emitter->root++)
        put_model(emitter, &tables, NULL);
    emitter->root = ul_emit_first_model(emitter);
}
