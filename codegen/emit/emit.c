/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the emitted folders of all targets: places and names as text, the steps in order with
 * the regions around them, the head of model.h, main.c. */
#include "codegen/emit/emit_internal.h"
#include "codegen/program/formula.h"
#include "codegen/program/sized.h"
#include "ir/view.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* ---- places ---- */

const struct ul_program_layout *ul_emit_layout(const struct ul_emitter *emitter)
{
    return emitter->program->sized != NULL ? emitter->program->sized->layout : NULL;
}

uint32_t ul_emit_slot(const struct ul_emitter *emitter, const struct ul_plan_range *range)
{
    const struct ul_program_layout *layout = ul_emit_layout(emitter);
    return layout == NULL ? UL_PLAN_NONE : layout->stacking.slots[range - emitter->plan->ranges];
}

static uint32_t index_in(const ul_value_id *values, uint32_t count, ul_value_id value)
{
    for (uint32_t i = 0; i < count; i++) {
        if (values[i] == value)
            return i;
    }
    return UL_NONE;
}

/* A value that is overwritten in place is one buffer, given as an output, since it is written. */
static struct ul_emit_place callers_place(const struct ul_emitter *emitter,
                                          const struct ul_program_place *place)
{
    const struct ul_graph *graph = emitter->program->graph;
    bool is_donated = place->kind == UL_PLACE_DONATED;
    ul_value_id made = is_donated ? place->output : place->value;
    for (uint32_t r = 0; r < graph->root_count; r++) {
        const struct ul_block *root = &graph->blocks[r];
        uint32_t input = index_in(root->inputs, root->input_count, place->value);
        uint32_t output = index_in(root->outputs, root->output_count, made);
        if (input != UL_NONE && !is_donated)
            return (struct ul_emit_place){.space = UL_EMIT_INPUT, .index = input};
        if (output != UL_NONE)
            return (struct ul_emit_place){.space = UL_EMIT_OUTPUT, .index = output};
    }
    UL_ASSERT(false); /* the caller has buffers for nothing else */
    return (struct ul_emit_place){.space = UL_EMIT_OUTPUT};
}

static struct ul_emit_place place_of(const struct ul_emitter *emitter, uint32_t place,
                                     const struct ul_plan_range *range)
{
    static const enum ul_emit_space spaces[] = {[UL_PROGRAM_ARENA] = UL_EMIT_ARENA,
                                                [UL_PROGRAM_ROM] = UL_EMIT_ROM,
                                                [UL_PROGRAM_OFFLOAD] = UL_EMIT_OFFLOAD};
    if (range->space == UL_PROGRAM_CALLER)
        return callers_place(emitter, &emitter->program->places[place]);
    return (struct ul_emit_place){.space = spaces[range->space],
                                  .offset_bytes = range->offset_bytes,
                                  .slot_number = ul_emit_slot(emitter, range) + 1};
}

struct ul_emit_place ul_emit_place(const struct ul_emitter *emitter, uint32_t place,
                                   uint32_t position)
{
    const struct ul_plan *plan = emitter->plan;
    UL_ASSERT(place < emitter->program->place_count);
    const struct ul_plan_range *range =
        ul_plan_find_range(emitter->program->problem, plan, place, position);
    if (range == NULL) { /* a program without steps has no positions at which a value lives */
        UL_ASSERT(plan->position_count == 0 &&
                  plan->value_ranges[place] < plan->value_ranges[place + 1]);
        range = &plan->ranges[plan->value_ranges[place]];
    }
    return place_of(emitter, place, range);
}

struct ul_emit_place ul_emit_home(const struct ul_emitter *emitter, uint32_t place)
{
    const struct ul_plan *plan = emitter->plan;
    UL_ASSERT(emitter->program->problem->values[place].persistent);
    UL_ASSERT(plan->value_ranges[place] < plan->value_ranges[place + 1]);
    return place_of(emitter, place, &plan->ranges[plan->value_ranges[place]]);
}

struct ul_emit_place ul_emit_value_place(const struct ul_emitter *emitter, ul_value_id base,
                                         uint32_t position)
{
    UL_ASSERT(base < emitter->program->graph->value_count);
    return ul_emit_place(emitter, emitter->program->value_places[base], position);
}

const char *ul_emit_space_name(enum ul_emit_space space)
{
    static const char *const names[] = {[UL_EMIT_ARENA] = "UL_SPACE_ARENA",
                                        [UL_EMIT_INPUT] = "UL_SPACE_INPUT",
                                        [UL_EMIT_OUTPUT] = "UL_SPACE_OUTPUT",
                                        [UL_EMIT_ROM] = "UL_SPACE_ROM",
                                        [UL_EMIT_OFFLOAD] = "UL_SPACE_OFFLOAD"};
    return names[space];
}

void ul_emit_string(struct ul_text *text, const char *string)
{
    ul_text_put(text, "\"");
    for (const unsigned char *at = (const unsigned char *)string; *at != '\0'; at++) {
        if (isprint(*at) && *at != '"' && *at != '\\' && *at != '?')
            ul_text_printf(text, "%c", *at);
        else
            ul_text_printf(text, "\\%03o", *at);
    }
    ul_text_put(text, "\"");
}

/* Writes an untrusted name inside a comment: nothing in it ends the comment or the line. */
static void emit_comment(struct ul_text *text, const char *name)
{
    enum { MAX_COLUMNS = 100 };
    for (int i = 0; name[i] != '\0' && i < MAX_COLUMNS; i++) {
        bool plain = isprint((unsigned char)name[i]) && strchr("*?\\", name[i]) == NULL;
        ul_text_printf(text, "%c", plain ? name[i] : '_');
    }
}

bool ul_emit_is_rom_far(const struct ul_emitter *emitter)
{
    const uint64_t near_bytes = (uint64_t)1 << 30; /* of the 2^31 that a call may span on x86-64 */
    return emitter->program->options.weights_rom &&
           emitter->plan->reserved_bytes[UL_PROGRAM_ROM] > near_bytes;
}

/* The variable for the bank that contains an offset of the arena; returns the offset there. */
static uint64_t put_bank(struct ul_emitter *emitter, uint64_t offset_bytes)
{
    const struct ul_plan *plan = emitter->plan;
    uint32_t bank = plan->bank_count;
    while (bank > 1 && (plan->banks[bank - 1].size_bytes == 0 ||
                        offset_bytes < plan->banks[bank - 1].begin_bytes))
        bank--;
    ul_text_put(emitter->text, "a");
    if (bank < 2)
        return offset_bytes;
    ul_text_printf(emitter->text, "%u", bank - 1);
    return offset_bytes - plan->banks[bank - 1].begin_bytes;
}

void ul_emit_scratch(struct ul_emitter *emitter, uint32_t position)
{
    if (emitter->scratch_slots[position] != 0) {
        ul_text_printf(emitter->text, "a + run->places[%u]", emitter->scratch_slots[position] - 1);
        return;
    }
    uint64_t offset_bytes = put_bank(emitter, emitter->scratch_offsets[position]);
    ul_text_printf(emitter->text, " + %" PRIu64, offset_bytes);
}

void ul_emit_address(struct ul_emitter *emitter, const struct ul_program_address *address,
                     uint32_t position)
{
    struct ul_emit_place place = ul_emit_place(emitter, address->place, position);
    if (place.slot_number != 0) {
        ul_text_printf(emitter->text, "a + run->places[%u]", place.slot_number - 1);
        place.offset_bytes = 0;
    } else if (place.space == UL_EMIT_ARENA)
        place.offset_bytes = put_bank(emitter, place.offset_bytes);
    else if (place.space == UL_EMIT_ROM)
        ul_text_printf(emitter->text, "%s_rom%s", emitter->options->prefix,
                       ul_emit_is_rom_far(emitter) ? "_begin" : "");
    else
        emitter->language->put_buffer(emitter, place);
    if (address->offset != NULL) {
        ul_text_printf(emitter->text, " + %" PRIu64 " + ", place.offset_bytes);
        ul_formula_put(emitter->text, address->offset, 0);
    } else {
        ul_text_printf(emitter->text, " + %" PRIu64,
                       place.offset_bytes + (uint64_t)address->offset_bytes);
    }
    if (address->loop == UL_PLAN_NONE)
        return;
    ul_text_printf(emitter->text, " + r%u * ", address->loop);
    ul_formula_put(emitter->text, address->stride, address->stride_bytes);
}

/* ---- steps ---- */

/* Whether the steps of a region are in braces: an entry is a function. */
static bool is_braced(const struct ul_program_region *region)
{
    return region->kind == UL_PLAN_LOOP || region->kind == UL_PLAN_BRANCH;
}

static uint32_t depth_of(const struct ul_program *program, uint32_t region)
{
    uint32_t depth = 0;
    for (; program->regions[region].parent != UL_PLAN_NONE;
         region = program->regions[region].parent)
        depth += is_braced(&program->regions[region]);
    return depth;
}

static bool is_inside(const struct ul_program *program, uint32_t region, uint32_t ancestor)
{
    for (uint32_t r = region; r != UL_PLAN_NONE; r = program->regions[r].parent) {
        if (r == ancestor)
            return true;
    }
    return false;
}

static void open_region(struct ul_emitter *emitter, uint32_t region, uint32_t position)
{
    const struct ul_program_region *info = &emitter->program->regions[region];
    ul_text_printf(emitter->text, "%*s", (int)(4 * depth_of(emitter->program, region)), "");
    if (info->kind == UL_PLAN_LOOP) {
        ul_text_printf(emitter->text, "for (int64_t r%u = 0; r%u < ", region, region);
        ul_formula_put(emitter->text, info->round_count, info->rounds);
        ul_text_printf(emitter->text, "; r%u++) {\n", region);
    } else
        emitter->language->put_branch(emitter, region, position);
}

static void enter_region(struct ul_emitter *emitter, uint32_t from, uint32_t to, uint32_t position)
{
    if (from == to)
        return;
    enter_region(emitter, from, emitter->program->regions[to].parent, position);
    if (is_braced(&emitter->program->regions[to]))
        open_region(emitter, to, position);
}

/* Closes and opens the regions between two positions. */
static uint32_t change_region(struct ul_emitter *emitter, uint32_t from, uint32_t to,
                              uint32_t position)
{
    const struct ul_program *program = emitter->program;
    while (!is_inside(program, to, from)) {
        if (is_braced(&program->regions[from]))
            ul_text_printf(emitter->text, "%*s}\n", (int)(4 * depth_of(program, from)), "");
        from = program->regions[from].parent;
    }
    enter_region(emitter, from, to, position);
    return to;
}

void ul_emit_step(struct ul_emitter *emitter, uint32_t position, uint32_t indent)
{
    const struct ul_program_step *step =
        ul_program_step_at(emitter->program, &emitter->plan->positions[position]);
    ul_text_printf(emitter->text, "%*s", (int)(4 * indent), "");
    emitter->language->put_mark(emitter, step, position);
    ul_text_printf(emitter->text, " /* %s ", step->op);
    emit_comment(emitter->text, emitter->program->graph->nodes[step->node].name);
    ul_text_printf(emitter->text, " */\n%*s", (int)(4 * indent), "");
    emitter->language->put_step(emitter, step, position, indent);
}

void ul_emit_find_entries(struct ul_emitter *emitter)
{
    uint32_t count = emitter->plan->position_count;
    emitter->entry_runs = UL_NEW_ARRAY(emitter->arena, bool *, emitter->program->entry_count);
    emitter->joined = UL_NEW_ARRAY(emitter->arena, uint32_t *, emitter->program->entry_count);
    for (uint32_t e = 0; e < emitter->program->entry_count; e++) {
        emitter->entry_runs[e] = UL_NEW_ARRAY(emitter->arena, bool, (uint64_t)count + 1);
        ul_program_mark_entry(emitter->program, emitter->plan, e, emitter->arena,
                              emitter->entry_runs[e]);
        emitter->joined[e] = UL_NEW_ARRAY(emitter->arena, uint32_t, (uint64_t)count + 1);
        ul_program_find_joined(emitter->program, emitter->plan, emitter->entry_runs[e],
                               emitter->joined[e]);
    }
}

uint32_t ul_emit_joined(const struct ul_emitter *emitter, uint32_t entry, uint32_t position,
                        uint32_t positions[UL_PROGRAM_JOINED])
{
    uint32_t wanted = emitter->joined[entry][position], count = 0;
    UL_ASSERT(wanted > 0 && wanted <= UL_PROGRAM_JOINED);
    for (uint32_t p = position; count < wanted; p++) {
        UL_ASSERT(p < emitter->plan->position_count);
        if (emitter->entry_runs[entry][p])
            positions[count++] = p;
    }
    return count;
}

uint32_t ul_emit_joint(struct ul_emitter *emitter, const uint32_t *positions, uint32_t count)
{
    struct ul_emit_joint joint = {.count = count};
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_position *at = &emitter->plan->positions[positions[i]];
        joint.kernels[i] = ul_program_step_at(emitter->program, at)->kernel;
    }
    for (uint32_t i = 0; i < emitter->joint_count; i++)
        if (emitter->joints[i].count == count &&
            memcmp(emitter->joints[i].kernels, joint.kernels, count * sizeof *joint.kernels) == 0)
            return i;
    UL_GROW(emitter->arena, emitter->joints, emitter->joint_count, emitter->joint_capacity);
    emitter->joints[emitter->joint_count] = joint;
    return emitter->joint_count++;
}

void ul_emit_entry_span(const struct ul_emitter *emitter, uint32_t entry, uint32_t *begin,
                        uint32_t *end)
{
    const bool *runs = emitter->entry_runs[entry];
    *begin = 0;
    *end = 0;
    UL_ASSERT(entry < emitter->program->entry_count);
    for (uint32_t p = 0; p < emitter->plan->position_count; p++) {
        if (!runs[p])
            continue;
        *begin = *begin == *end ? p : *begin;
        *end = p + 1;
    }
}

void ul_emit_steps(struct ul_emitter *emitter, uint32_t entry)
{
    const struct ul_program *program = emitter->program;
    uint32_t region = 0;
    uint32_t begin, end;
    ul_emit_entry_span(emitter, entry, &begin, &end);
    for (uint32_t p = begin; p < end; p++) {
        const struct ul_plan_position *at = &emitter->plan->positions[p];
        if (!emitter->entry_runs[entry][p])
            continue;
        region = change_region(emitter, region, ul_program_region_at(program, at), p);
        bool joins = emitter->language->put_joined != NULL;
        uint32_t positions[UL_PROGRAM_JOINED], indent = depth_of(program, region) + 1;
        if (joins && emitter->joined[entry][p] == 0)
            continue;
        if (joins && emitter->joined[entry][p] > 1)
            emitter->language->put_joined(emitter, positions,
                                          ul_emit_joined(emitter, entry, p, positions), indent);
        else if (at->kind == UL_PLAN_RUN)
            ul_emit_step(emitter, p, indent);
        else
            ul_emit_transfer(emitter, entry, p);
    }
    change_region(emitter, region, 0, end);
    ul_emit_last_waits(emitter, entry);
}

/* Finds the scratch of each position in the plan's ranges. */
void ul_emit_find_scratch(struct ul_emitter *emitter)
{
    const struct ul_plan *plan = emitter->plan;
    emitter->scratch_offsets = UL_NEW_ARRAY(emitter->arena, uint64_t, plan->position_count + 1);
    emitter->scratch_slots = UL_NEW_ARRAY(emitter->arena, uint32_t, plan->position_count + 1);
    for (uint32_t i = 0; i < plan->range_count; i++) {
        const struct ul_plan_range *range = &plan->ranges[i];
        if (range->value != UL_PLAN_NONE)
            continue;
        emitter->scratch_offsets[range->begin] = range->offset_bytes;
        emitter->scratch_slots[range->begin] = ul_emit_slot(emitter, range) + 1;
    }
}

/* ---- files ---- */

const struct ul_block *ul_emit_root(const struct ul_emitter *emitter)
{
    return &emitter->program->graph->blocks[emitter->root];
}

/* Whether its roots are pieces of a range of sizes. */
static bool has_pieces(const struct ul_emitter *emitter)
{
    return emitter->program->sized != NULL && emitter->program->graph->root_count > 1;
}

uint32_t ul_emit_model_count(const struct ul_emitter *emitter)
{
    return has_pieces(emitter) ? 1 : emitter->program->graph->root_count;
}

uint32_t ul_emit_first_model(const struct ul_emitter *emitter)
{
    UL_ASSERT(ul_emit_model_count(emitter) > 0);
    return emitter->program->graph->root_count - ul_emit_model_count(emitter);
}

const char *ul_emit_root_prefix(const struct ul_emitter *emitter)
{
    return ul_emit_model_count(emitter) == 1 ? emitter->options->prefix
                                             : ul_emit_root(emitter)->name;
}

const char *ul_emit_root_model(const struct ul_emitter *emitter)
{
    return ul_arena_printf(emitter->arena, "%s_model", ul_emit_root_prefix(emitter));
}

const char *ul_emit_run_model(const struct ul_emitter *emitter)
{
    return has_pieces(emitter) ? "by ul_model_at, for the sizes of the run: at"
                               : ul_emit_root_model(emitter);
}

void ul_emit_each_model(struct ul_emitter *emitter, void (*put)(struct ul_emitter *))
{
    uint32_t first = ul_emit_first_model(emitter);
    for (uint32_t r = first; r < emitter->program->graph->root_count; r++) {
        emitter->root = r;
        put(emitter);
    }
    emitter->root = first;
}

uint32_t ul_emit_root_entry(const struct ul_emitter *emitter, uint32_t entry)
{
    UL_ASSERT(entry < UL_PROGRAM_ROOT_ENTRIES || emitter->root == 0);
    return emitter->root * UL_PROGRAM_ROOT_ENTRIES + entry;
}

const char *ul_emit_root_array(const struct ul_emitter *emitter, const char *name)
{
    bool is_only = emitter->program->graph->root_count == 1;
    return is_only ? name : ul_arena_printf(emitter->arena, "root%u_%s", emitter->root, name);
}

void ul_emit_root_span(const struct ul_emitter *emitter, uint32_t *first, uint32_t *last)
{
    bool is_only = emitter->program->graph->root_count == 1;
    uint32_t count = emitter->plan->position_count;
    uint32_t begin = 0, end = count == 0 ? 1 : count;
    if (!is_only)
        ul_emit_entry_span(emitter, ul_emit_root_entry(emitter, UL_PROGRAM_RUN), &begin, &end);
    *first = begin;
    *last = end > begin ? end - 1 : begin;
}

const char *ul_emit_upper(struct ul_arena *arena, const char *prefix)
{
    char *copy = ul_arena_copy_string(arena, prefix);
    for (char *at = copy; *at != '\0'; at++)
        *at = (char)toupper((unsigned char)*at);
    return copy;
}

/* Scale and zero-point for the integers of a float model's inputs and outputs. */
static void put_edges(struct ul_emitter *emitter, const char *big)
{
    const struct ul_block *block = ul_emit_root(emitter);
    bool any = false;
    for (uint32_t i = 0; i < block->input_count + block->output_count; i++) {
        bool input = i < block->input_count;
        uint32_t number = input ? i : i - block->input_count;
        const char *kind = input ? "INPUT" : "OUTPUT";
        const struct ul_value *info =
            &emitter->program->graph
                 ->values[input ? block->inputs[number] : block->outputs[number]];
        if (info->edge_scale == 0)
            continue;
        if (!any)
            ul_text_put(emitter->text,
                        "/* The model's numbers are (x - zero) * scale of these integers x. */\n");
        any = true;
        ul_text_printf(emitter->text, "#define %s_%s_SCALE_%u ", big, kind, number);
        ul_text_put_float(emitter->text, info->edge_scale, true);
        ul_text_printf(emitter->text, "f\n#define %s_%s_ZERO_%u (%" PRId64 ")\n", big, kind, number,
                       info->edge_zero);
    }
    if (any)
        ul_text_put(emitter->text, "\n");
}

/* The inputs and outputs of the root, one line for each. */
static void put_ports(struct ul_emitter *emitter)
{
    const char *big = ul_emit_upper(emitter->arena, ul_emit_root_prefix(emitter));
    const struct ul_graph *graph = emitter->program->graph;
    const struct ul_block *block = ul_emit_root(emitter);
    struct ul_text *text = emitter->text;
    ul_text_put(text, " * Inputs and outputs, in order:\n");
    for (uint32_t i = 0; i < block->input_count + block->output_count; i++) {
        bool input = i < block->input_count;
        ul_value_id value = input ? block->inputs[i] : block->outputs[i - block->input_count];
        const struct ul_value *info = &graph->values[value];
        ul_text_printf(text, " *   %s %u: ", input ? "input" : "output",
                       input ? i : i - block->input_count);
        emit_comment(text, ul_root_plain_name(graph, emitter->root, info->name));
        ul_text_put(text, " ");
        struct ul_type type = ul_value_edge_type(graph, value);
        ul_type_print(text, &type);
        if (info->edge_scale != 0) {
            ul_text_put(text, " = (x - zero) * scale: see");
            ul_text_printf(text, " %s_%s_SCALE", big, input ? "INPUT" : "OUTPUT");
            ul_text_printf(text, "_%u", input ? i : i - block->input_count);
        }
        if (info->donor != UL_NONE) {
            ul_text_put(text, ", overwrites ");
            emit_comment(text,
                         ul_root_plain_name(graph, emitter->root, graph->values[info->donor].name));
        }
        ul_text_put(text, "\n");
    }
}

/* The headers of the roots, which a program with several includes. */
static void put_root_headers(struct ul_emitter *emitter)
{
    const struct ul_graph *graph = emitter->program->graph;
    for (uint32_t r = 0; r < graph->root_count; r++)
        ul_text_printf(emitter->text, "#include \"%s.h\"\n", graph->blocks[r].name);
}

/* The bytes that the caller must provide. */
static void put_sizes(struct ul_emitter *emitter, const char *big)
{
    const struct ul_plan *plan = emitter->plan;
    for (uint32_t b = 0; b < plan->bank_count; b++) {
        const char *name = emitter->program->options.banks[b].name;
        ul_text_printf(emitter->text, "#define %s_%s_BYTES UINT64_C(%" PRIu64 ")\n", big,
                       ul_emit_upper(emitter->arena, name), plan->banks[b].size_bytes);
    }
    if (plan->bank_count > 0)
        ul_text_put(emitter->text, "/* All of them, one behind the other. */\n");
    ul_text_printf(emitter->text,
                   "#define %s_ARENA_BYTES UINT64_C(%" PRIu64 ")\n"
                   "#define %s_ARENA_ALIGN %" PRIu64 "\n",
                   big, plan->reserved_bytes[0], big, plan->alignment_bytes);
}

void ul_emit_header_begin(struct ul_emitter *emitter, const char *purpose)
{
    bool is_program = (emitter->part & UL_EMIT_PROGRAM) != 0;
    bool is_root = (emitter->part & UL_EMIT_ROOT) != 0;
    const char *prefix = is_root ? ul_emit_root_prefix(emitter) : emitter->options->prefix;
    const char *big = ul_emit_upper(emitter->arena, prefix);
    struct ul_text *text = emitter->text;
    const struct ul_block *block = ul_emit_root(emitter);
    ul_text_printf(text, "/* %s\n", purpose);
    if (is_root)
        put_ports(emitter);
    ul_text_printf(text,
                   " * " UL_EMIT_SPDX
                   " */\n#ifndef ULLAGE_%s_H\n#define ULLAGE_%s_H\n\n#include \"ul_model.h\"\n",
                   big, big);
    if (!is_root)
        put_root_headers(emitter);
    ul_text_put(text, "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
                      "#if defined(__GNUC__)\n#pragma GCC visibility push(default)\n#endif\n\n");
    if (is_program)
        put_sizes(emitter, big);
    if (is_program && !is_root)
        ul_text_put(text, "\n");
    if (!is_root)
        return;
    ul_text_printf(text,
                   "#define %s_INPUT_COUNT %u\n#define %s_OUTPUT_COUNT %u\n\n"
                   "extern const struct ul_model %s;\n\n",
                   big, block->input_count, big, block->output_count, ul_emit_root_model(emitter));
    put_edges(emitter, big);
}

const char *ul_emit_set_up_text(struct ul_emitter *emitter)
{
    uint32_t set_up = ul_emit_root_entry(emitter, UL_PROGRAM_SET_UP);
    if (emitter->program->entries[set_up].input_count == 0)
        return "";
    return ul_arena_printf(
        emitter->arena,
        "/* Gives inputs that stay in the arena their first values; runs go on with what an "
        "output\n"
        " * leaves there, without a look at `inputs`. They are 0 until then; called again, all "
        "begins\n"
        " * anew. A NULL one stays as it is. */\n"
        "int %s_set_up(%s, const void *const *inputs, struct ul_failure *failure);\n\n",
        ul_emit_root_prefix(emitter), emitter->language->handle);
}

void ul_emit_main_c(struct ul_emitter *emitter)
{
    ul_text_printf(emitter->text,
                   "/* " UL_EMIT_SPDX " */\n#include \"model.h\"\n#include \"ul_program.h\"\n\n"
                   "int main(int argc, char **argv)\n{\n"
                   "    return ul_program_main(&%s_model, argc, argv);\n}\n",
                   emitter->options->prefix);
}
