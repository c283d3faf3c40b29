/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that run a root, and the sizes that they take in a program for a range of sizes. */
#include "codegen/emit/emit_internal.h"
#include "codegen/program/sized.h"

#include <inttypes.h>

static const struct ul_program_sized *sized_of(const struct ul_emitter *emitter)
{
    return emitter->program->sized;
}

/* ---- model.h ---- */

static void put_member(struct ul_text *text, const struct ul_program_size *size)
{
    ul_text_printf(text, "    int64_t %s; /* ", size->identifier);
    for (uint32_t v = 0; v < size->value_count; v++)
        ul_text_printf(text, "%s%" PRId64, v == 0 ? "" : ", ", size->values[v]);
    if (size->value_count == 0)
        ul_text_printf(text, "%" PRId64 " to %" PRId64 " by %" PRId64, size->low, size->high,
                       size->step);
    ul_text_put(text, " */\n");
}

void ul_emit_sizes_struct(struct ul_emitter *emitter)
{
    const struct ul_program_sized *sized = sized_of(emitter);
    struct ul_text *text = emitter->text;
    if (sized == NULL)
        return;
    ul_text_printf(
        text,
        "/* The sizes of a run, each within its range. Inputs and outputs have the shapes "
        "that\n * follow from them; MODEL.inputs and MODEL.outputs have the largest. */\n"
        "struct %s_sizes {\n",
        ul_emit_root_prefix(emitter));
    for (uint32_t s = 0; s < sized->size_count; s++)
        put_member(text, &sized->sizes[s]);
    ul_text_put(text, "};\n\n");
    if (ul_emit_layout(emitter) != NULL)
        ul_text_printf(text,
                       "/* The bytes of an arena for a run with these sizes; 0: one is out of its "
                       "range. Values "
                       "lie as\n * low as the sizes of a run allow, so that an arena of fewer than "
                       "%s_ARENA_BYTES serves runs\n * that need no more. */\n"
                       "uint64_t %s_arena_bytes_at(const struct %s_sizes *sizes);\n\n",
                       ul_emit_upper(emitter->arena, emitter->options->prefix),
                       ul_emit_root_prefix(emitter), ul_emit_root_prefix(emitter));
}

const char *ul_emit_sizes_parameter(struct ul_emitter *emitter)
{
    return sized_of(emitter) == NULL
               ? ""
               : ul_arena_printf(emitter->arena, "const struct %s_sizes *sizes, ",
                                 ul_emit_root_prefix(emitter));
}

/* ---- model.c ---- */

void ul_emit_sizes_locals(struct ul_emitter *emitter)
{
    const struct ul_program_sized *sized = sized_of(emitter);
    for (uint32_t s = 0; sized != NULL && s < sized->size_count; s++)
        ul_text_printf(emitter->text, "    const int64_t n%u = run->sizes[%u];\n    (void)n%u;\n",
                       s, s, s);
}

static void put_input_sizes(struct ul_emitter *emitter)
{
    const struct ul_program_sized *sized = sized_of(emitter);
    const struct ul_block *root = ul_emit_root(emitter);
    uint32_t count = 0;
    ul_text_put(emitter->text, "static const uint32_t input_sizes[] = {");
    for (uint32_t i = 0; i < root->input_count; i++) {
        const struct ul_value *value = &emitter->program->graph->values[root->inputs[i]];
        for (uint32_t d = 0; d < value->type.rank; d++, count++) {
            uint32_t size = sized->input_sizes[count];
            ul_text_put(emitter->text, count % 8 == 0 ? "\n    " : " ");
            if (size == UL_NONE)
                ul_text_put(emitter->text, "UL_SIZE_NONE,");
            else
                ul_text_printf(emitter->text, "%u,", size);
        }
    }
    ul_text_put(emitter->text, count == 0 ? "0};\n" : "\n};\n");
}

/* The dimensions of a list of values, from number `count` on; returns the number behind them. */
static uint32_t put_dims(struct ul_emitter *emitter, const ul_value_id *values,
                         uint32_t value_count, uint32_t count)
{
    const struct ul_program_sized *sized = sized_of(emitter);
    for (uint32_t i = 0; i < value_count; i++) {
        const struct ul_type *type = &emitter->program->graph->values[values[i]].type;
        for (uint32_t d = 0; d < type->rank; d++) {
            const struct ul_formula *formula = sized->numbers[values[i]][d];
            ul_text_printf(emitter->text, "    numbers[%u] = ", count++);
            if (formula != NULL)
                ul_formula_print(emitter->text, formula, NULL);
            else
                ul_text_printf(emitter->text, "%" PRId64, type->dims[d]);
            ul_text_put(emitter->text, ";\n");
        }
    }
    return count;
}

/* A table of the sizes, each with its range or a piece of it. */
static void put_size_table(struct ul_emitter *emitter, const char *name,
                           const struct ul_program_size *sizes)
{
    struct ul_text *text = emitter->text;
    for (uint32_t s = 0; s < sized_of(emitter)->size_count; s++) {
        if (sizes[s].value_count == 0)
            continue;
        ul_text_printf(text, "static const int64_t size_values_%u[] = {", s);
        for (uint32_t v = 0; v < sizes[s].value_count; v++)
            ul_text_printf(text, "%s%" PRId64, v == 0 ? "" : ", ", sizes[s].values[v]);
        ul_text_put(text, "};\n");
    }
    ul_text_printf(text, "static const struct ul_size %s[] = {\n", name);
    for (uint32_t s = 0; s < sized_of(emitter)->size_count; s++) {
        ul_text_put(text, "    {");
        ul_emit_string(text, sizes[s].name);
        ul_text_printf(text, ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %u, ", sizes[s].low,
                       sizes[s].high, sizes[s].step, sizes[s].value_count);
        if (sizes[s].value_count > 0)
            ul_text_printf(text, "size_values_%u},\n", s);
        else
            ul_text_put(text, "NULL},\n");
    }
    ul_text_put(text, "};\n");
}

/* The dimensions of a root's inputs and outputs, by the sizes. */
static void put_size_numbers(struct ul_emitter *emitter)
{
    const struct ul_program_sized *sized = sized_of(emitter);
    const struct ul_block *root = ul_emit_root(emitter);
    struct ul_text *text = emitter->text;
    ul_text_printf(text, "static void %s(const int64_t *n, int64_t *numbers)\n{\n",
                   ul_emit_root_array(emitter, "size_numbers"));
    for (uint32_t s = 0; s < sized->size_count; s++)
        ul_text_printf(text, "    const int64_t n%u = n[%u];\n", s, s);
    uint32_t count = put_dims(emitter, root->inputs, root->input_count, 0);
    emitter->edge_number_count = put_dims(emitter, root->outputs, root->output_count, count);
    for (uint32_t s = 0; s < sized->size_count; s++)
        ul_text_printf(text, "    (void)n%u;\n", s);
    ul_text_put(text, "}\n\n");
}

void ul_emit_sizes_tables(struct ul_emitter *emitter)
{
    const struct ul_program_sized *sized = sized_of(emitter);
    uint32_t roots = emitter->program->graph->root_count;
    if (sized == NULL)
        return;
    put_size_table(emitter, "size_table", sized->sizes);
    put_input_sizes(emitter);
    for (emitter->root = 0; emitter->root < roots; emitter->root++) {
        if (roots > 1)
            put_size_table(emitter, ul_emit_root_array(emitter, "size_table"),
                           sized->pieces[emitter->root]);
        put_size_numbers(emitter);
    }
    emitter->root = ul_emit_first_model(emitter);
    ul_emit_layout_tables(emitter);
}

void ul_emit_sizes_fields(struct ul_emitter *emitter, bool is_piece)
{
    if (sized_of(emitter) != NULL)
        ul_text_printf(emitter->text,
                       "    .sizes = %s,\n    .size_count = %u,\n    .input_sizes = "
                       "input_sizes,\n    .edge_number_count = %u,\n    .size_numbers = "
                       "%s,\n",
                       is_piece ? ul_emit_root_array(emitter, "size_table") : "size_table",
                       sized_of(emitter)->size_count, emitter->edge_number_count,
                       ul_emit_root_array(emitter, "size_numbers"));
    if (ul_emit_layout(emitter) != NULL)
        ul_text_printf(emitter->text, "    .layout = &%s,\n",
                       ul_emit_root_array(emitter, "layout"));
}

/* ---- the functions that run a root ---- */

/* Begins a function that takes sizes: n, their numbers. */
static void put_numbers(struct ul_emitter *emitter)
{
    const struct ul_program_sized *sized = sized_of(emitter);
    UL_ASSERT(sized->size_count > 0);
    ul_text_printf(emitter->text, "    int64_t n[%u] = {0};\n", sized->size_count);
    for (uint32_t s = 0; s < sized->size_count; s++)
        ul_text_printf(emitter->text, "    n[%u] = sizes != NULL ? sizes->%s : 0;\n", s,
                       sized->sizes[s].identifier);
}

/* The begin of a function that runs: the model at its sizes, as `at`. */
static void put_sizes(struct ul_emitter *emitter)
{
    const struct ul_block *root = ul_emit_root(emitter);
    struct ul_text *text = emitter->text;
    const char *model = ul_emit_root_model(emitter);
    ul_text_printf(text,
                   "    struct ul_failure unused;\n"
                   "    struct ul_rt_tensor tensors[%u];\n    int64_t numbers[%u];\n"
                   "    uint64_t places[%u];\n"
                   "    struct ul_model at;\n"
                   "    if (failure == NULL)\n        failure = &unused;\n"
                   "    memset(failure, 0, sizeof *failure);\n",
                   root->input_count + root->output_count + 1, emitter->edge_number_count + 1,
                   emitter->layout_number_count + 1);
    put_numbers(emitter);
    ul_text_printf(text,
                   "    if (ul_sizes_check(&%s, sizes != NULL ? n : NULL, failure) != UL_OK)\n"
                   "        return (int)failure->result;\n"
                   "    ul_model_at(&%s, n, tensors, numbers, places, &at);\n",
                   model, model);
}

/* The number of an entry; in a piece of a range it follows from sizes. */
static const char *entry_text(const struct ul_emitter *emitter, uint32_t entry)
{
    bool is_piece = ul_emit_first_model(emitter) > 0 && entry == UL_PROGRAM_RUN;
    return is_piece ? ul_arena_printf(emitter->arena, "at.first_entry + %u", entry)
                    : ul_arena_printf(emitter->arena, "%u", ul_emit_root_entry(emitter, entry));
}

static void put_entry(struct ul_emitter *emitter, const char *name, uint32_t entry, const char *to)
{
    bool is_run = entry == UL_PROGRAM_RUN;
    bool is_sized = is_run && emitter->program->sized != NULL;
    ul_text_printf(emitter->text,
                   "int %s_%s(%s, %sconst void *const *from,%s%sstruct ul_failure *failure)\n{\n",
                   ul_emit_root_prefix(emitter), name, emitter->language->handle,
                   is_sized ? ul_emit_sizes_parameter(emitter) : "",
                   is_run ? " void *const *to," : "",
                   is_run || !emitter->language->runs_on_host ? "\n    " : " ");
    if (is_sized)
        put_sizes(emitter);
    ul_text_put(emitter->text, "    return (int)");
    emitter->language->put_entry(emitter, is_sized ? "at" : ul_emit_root_model(emitter),
                                 entry_text(emitter, entry), to);
    ul_text_put(emitter->text, ";\n}\n\n");
}

/* The bytes of an arena for sizes. */
static void put_arena_bytes(struct ul_emitter *emitter)
{
    struct ul_text *text = emitter->text;
    if (ul_emit_layout(emitter) == NULL)
        return;
    ul_text_printf(text,
                   "uint64_t %s_arena_bytes_at(const struct %s_sizes *sizes)\n{\n"
                   "    uint64_t places[%u];\n    struct ul_failure failure;\n",
                   ul_emit_root_prefix(emitter), ul_emit_root_prefix(emitter),
                   emitter->layout_number_count + 1);
    put_numbers(emitter);
    ul_text_printf(text,
                   "    if (ul_sizes_check(&%s, sizes != NULL ? n : NULL, &failure) != UL_OK)\n    "
                   "    return 0;\n"
                   "    return ul_layout_place(ul_sizes_piece(&%s, n), n, places);\n}\n\n",
                   ul_emit_root_model(emitter), ul_emit_root_model(emitter));
}

void ul_emit_root_functions(struct ul_emitter *emitter)
{
    uint32_t set_up = ul_emit_root_entry(emitter, UL_PROGRAM_SET_UP);
    put_arena_bytes(emitter);
    put_entry(emitter, "run", UL_PROGRAM_RUN, "to");
    if (emitter->program->entries[set_up].input_count > 0)
        put_entry(emitter, "set_up", UL_PROGRAM_SET_UP, "NULL");
}
