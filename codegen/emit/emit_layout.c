/* SPDX-License-Identifier: Apache-2.0 */
/* A layout whose offsets follow from sizes, as model.c has it: the bytes of ranges, and who lies
 * below whom. */
#include "codegen/emit/emit_internal.h"
#include "codegen/program/sized.h"

#include <inttypes.h>
#include <string.h>

/* The number of each range among those whose offsets change. */
static uint32_t *number_rows(const struct ul_emitter *emitter, uint32_t *count)
{
    const struct ul_program_layout *layout = ul_emit_layout(emitter);
    uint32_t *rows = UL_NEW_ARRAY(emitter->arena, uint32_t, emitter->plan->range_count + 1);
    *count = 0;
    for (uint32_t i = 0; i < emitter->plan->range_count; i++) {
        rows[i] = *count;
        *count += layout->stacking.slots[i] != UL_PLAN_NONE;
    }
    return rows;
}

static uint32_t point_count(const struct ul_program_layout *layout, uint32_t range)
{
    return layout->point_counts[layout->roots[range]];
}

/* The first range with the same table. */
static uint32_t first_table(const struct ul_program_layout *layout, uint32_t range)
{
    uint32_t first = 0;
    while (layout->tables[first] == NULL || layout->roots[first] != layout->roots[range] ||
           memcmp(layout->tables[first], layout->tables[range],
                  point_count(layout, range) * sizeof *layout->tables[first]) != 0)
        first++;
    return first;
}

static void put_tables(struct ul_emitter *emitter)
{
    const struct ul_program_layout *layout = ul_emit_layout(emitter);
    for (uint32_t i = 0; i < emitter->plan->range_count; i++) {
        if (layout->tables[i] == NULL || first_table(layout, i) != i)
            continue;
        ul_text_printf(emitter->text, "static const uint64_t bytes_%u[] = {", i);
        UL_ASSERT(point_count(layout, i) <= UL_LIMIT_SIZE_POINTS);
        for (uint32_t p = 0; p < point_count(layout, i); p++)
            ul_text_printf(emitter->text, "%s%" PRIu64 ",", p % 12 == 0 ? "\n    " : " ",
                           layout->tables[i][p]);
        ul_text_put(emitter->text, "\n};\n");
    }
}

/* The point of the sizes n0, n1 ... in the root's piece. */
static void put_point(struct ul_emitter *emitter)
{
    const struct ul_program_sized *sized = emitter->program->sized;
    const struct ul_program_size *piece = sized->pieces[emitter->root];
    UL_ASSERT(sized->size_count > 0);
    ul_text_put(emitter->text, "    const int64_t point = ");
    for (uint32_t s = 1; s < sized->size_count; s++)
        ul_text_put(emitter->text, "(");
    for (uint32_t s = 0; s < sized->size_count; s++) {
        const struct ul_program_size *size = &piece[s];
        if (s > 0)
            ul_text_printf(emitter->text, ") * %" PRId64 " + ",
                           (size->high - size->low) / size->step + 1);
        ul_text_printf(emitter->text, "(n%u - %" PRId64 ") / %" PRId64, s, size->low, size->step);
    }
    ul_text_put(emitter->text, ";\n    (void)point;\n");
}

static void put_bytes(struct ul_emitter *emitter)
{
    const struct ul_program_layout *layout = ul_emit_layout(emitter);
    const struct ul_program_sized *sized = emitter->program->sized;
    uint32_t count = 0;
    ul_text_printf(emitter->text, "static void %s(const int64_t *n, uint64_t *bytes)\n{\n",
                   ul_emit_root_array(emitter, "layout_bytes"));
    for (uint32_t s = 0; s < sized->size_count; s++)
        ul_text_printf(emitter->text, "    const int64_t n%u = n[%u];\n", s, s);
    put_point(emitter);
    for (uint32_t i = 0; i < emitter->plan->range_count; i++) {
        if (layout->stacking.slots[i] == UL_PLAN_NONE)
            continue;
        ul_text_printf(emitter->text, "    bytes[%u] = ", count++);
        if (layout->roots[i] != emitter->root) {
            ul_text_put(emitter->text, "0;\n");
            continue;
        }
        if (layout->tables[i] != NULL) {
            ul_text_printf(emitter->text, "bytes_%u[point];\n", first_table(layout, i));
            continue;
        }
        ul_text_put(emitter->text, "(uint64_t)(");
        ul_formula_put(emitter->text, layout->bytes[i], 0);
        ul_text_put(emitter->text, ");\n");
    }
    ul_text_put(emitter->text, count == 0 ? "    (void)bytes;\n}\n" : "}\n");
}

/* The slots of inputs and then of outputs. */
static void put_edges(struct ul_emitter *emitter)
{
    const struct ul_program *program = emitter->program;
    const struct ul_block *root = ul_emit_root(emitter);
    uint32_t first, last;
    ul_emit_root_span(emitter, &first, &last);
    ul_text_printf(emitter->text, "static const uint32_t %s[] = {",
                   ul_emit_root_array(emitter, "edge_slots"));
    for (uint32_t i = 0; i < root->input_count + root->output_count; i++) {
        bool is_input = i < root->input_count;
        ul_value_id id = is_input ? root->inputs[i] : root->outputs[i - root->input_count];
        uint32_t place = program->value_places[program->graph->values[id].view.base];
        const struct ul_plan_range *range =
            ul_plan_find_range(program->problem, emitter->plan, place, is_input ? first : last);
        uint32_t slot = range == NULL ? UL_PLAN_NONE : ul_emit_slot(emitter, range);
        if (slot == UL_PLAN_NONE)
            ul_text_put(emitter->text, " UL_SLOT_NONE,");
        else
            ul_text_printf(emitter->text, " %u,", slot);
    }
    ul_text_put(emitter->text, " UL_SLOT_NONE};\n");
}

/* The layout of the root's runs, which move `count` ranges. */
static void put_layout(struct ul_emitter *emitter, uint32_t count)
{
    const struct ul_program_layout *layout = ul_emit_layout(emitter);
    const struct ul_plan_stacking *stacking = &layout->stacking;
    put_bytes(emitter);
    put_edges(emitter);
    ul_text_printf(
        emitter->text,
        "static const struct ul_layout %s = {\n"
        "    .floor_bytes = %" PRIu64 ",\n    .least_bytes = %" PRIu64 ",\n"
        "    .state_offset_bytes = %" PRIu64 ",\n"
        "    .slot_count = %u,\n    .row_count = %u,\n    .pair_count = %u,\n"
        "    .row_slots = row_slots,\n    .pairs = below,\n"
        "    .edge_slots = %s,\n    .bytes = %s,\n};\n",
        ul_emit_root_array(emitter, "layout"), stacking->floor_bytes, layout->least_bytes,
        ul_emit_home(emitter, emitter->program->bytes_state).offset_bytes, stacking->slot_count,
        count, stacking->pair_count, ul_emit_root_array(emitter, "edge_slots"),
        ul_emit_root_array(emitter, "layout_bytes"));
}

void ul_emit_layout_tables(struct ul_emitter *emitter)
{
    const struct ul_program_layout *layout = ul_emit_layout(emitter);
    struct ul_text *text = emitter->text;
    uint32_t count;
    if (layout == NULL)
        return;
    const struct ul_plan_stacking *stacking = &layout->stacking;
    const uint32_t *rows = number_rows(emitter, &count);
    put_tables(emitter);
    ul_text_put(text, "static const uint32_t row_slots[] = {");
    for (uint32_t i = 0, n = 0; i < emitter->plan->range_count; i++)
        if (stacking->slots[i] != UL_PLAN_NONE)
            ul_text_printf(text, "%s%u,", n++ % 16 == 0 ? "\n    " : " ", stacking->slots[i]);
    ul_text_put(text, " UL_SLOT_NONE};\nstatic const struct ul_below below[] = {");
    for (uint32_t p = 0; p < stacking->pair_count; p++)
        ul_text_printf(text, "%s{%u, %u},", p % 8 == 0 ? "\n    " : " ",
                       rows[stacking->pairs[p].range], stacking->pairs[p].slot);
    ul_text_put(text, " {0, UL_SLOT_NONE}};\n");
    for (emitter->root = 0; emitter->root < emitter->program->graph->root_count; emitter->root++)
        put_layout(emitter, count);
    emitter->root = ul_emit_first_model(emitter);
    emitter->layout_number_count = stacking->slot_count + count;
}
