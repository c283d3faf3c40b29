/* SPDX-License-Identifier: Apache-2.0 */
/* A compile from its beginning to the graph as it is in the file; and its end. */
#include "compile/compile_internal.h"
#include "planner/order/order.h"

#include <string.h>

void ul_compile_progress(const struct ul_compile *compile, const char *what)
{
    if (compile->progress != NULL)
        compile->progress(compile->progress_context, what);
}

void ul_compile_init(struct ul_compile *compile)
{
    memset(compile, 0, sizeof *compile);
    ul_arena_init(&compile->keep);
    ul_arena_init(&compile->scratch);
    compile->options.base.table = &ul_compile_option_table;
    compile->options.base.arena = &compile->keep;
    compile->orders = ul_order_memo_new(&compile->keep);
}

void ul_compile_done(struct ul_compile *compile)
{
    if (compile->quantized_folder != NULL)
        ul_temporary_remove(compile->quantized_folder);
    bool is_own = compile->earlier == NULL || compile->earlier->libraries != compile->libraries;
    if (compile->libraries != NULL && is_own)
        ul_libraries_close(compile->libraries);
    if (compile->loaded)
        ul_model_done(&compile->model);
    for (uint32_t r = 0; r < compile->root_count; r++)
        if (compile->roots[r].part != NULL && !compile->roots[r].is_borrowed)
            ul_compile_done(compile->roots[r].part);
    for (uint32_t i = 0; i < compile->adopted_count; i++)
        ul_arena_done(compile->adopted[i]);
    ul_arena_done(&compile->scratch);
    ul_arena_done(&compile->keep);
}

enum ul_status ul_compile_set(struct ul_compile *compile, const char *name, const char *value)
{
    UL_ASSERT(!compile->loaded);
    const struct ul_option *row = ul_option_find(&ul_compile_option_table, name);
    struct ul_nearest nearest = {.word = name};
    ul_option_offer_all(&nearest, &ul_compile_option_table, ~0u);
    if (row == NULL)
        return ul_diag_set(&compile->diag, UL_USAGE, "there is no option --%s%s",
                           ul_option_shown(&compile->keep, name),
                           ul_nearest_text(&compile->keep, &nearest, "--"));
    if ((value == NULL) != (row->kind == UL_OPTION_FLAG))
        return ul_diag_set(&compile->diag, UL_USAGE, "option --%s takes %s value", name,
                           value == NULL ? "a" : "no");
    return ul_option_set(&compile->options.base, row, value, &compile->diag);
}

/* ---- load ---- */

static void list_dims(struct ul_compile *compile, struct ul_frontend_options *frontend)
{
    const struct ul_named_sizes *list = &compile->options.dims;
    struct ul_frontend_dim *dims =
        UL_NEW_ARRAY(&compile->keep, struct ul_frontend_dim, list->count);
    for (uint32_t i = 0; i < list->count; i++)
        dims[i] =
            (struct ul_frontend_dim){.name = list->items[i].name, .size = list->items[i].dims[0]};
    frontend->dims = dims;
    frontend->dim_count = list->count;
}

static void list_shapes(struct ul_compile *compile, struct ul_frontend_options *frontend)
{
    const struct ul_named_sizes *list = &compile->options.shapes;
    struct ul_frontend_shape *shapes =
        UL_NEW_ARRAY(&compile->keep, struct ul_frontend_shape, list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        shapes[i] =
            (struct ul_frontend_shape){.input = list->items[i].name, .rank = list->items[i].rank};
        memcpy(shapes[i].dims, list->items[i].dims, sizeof shapes[i].dims);
    }
    frontend->shapes = shapes;
    frontend->shape_count = list->count;
}

static enum ul_status read_consts(struct ul_compile *compile, struct ul_frontend_options *frontend)
{
    const struct ul_pairs *list = &compile->options.consts;
    struct ul_frontend_const *consts =
        UL_NEW_ARRAY(&compile->keep, struct ul_frontend_const, list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        consts[i].input = list->items[i].name;
        UL_TRY(ul_tensor_read_file(&compile->keep, list->items[i].value, &consts[i].tensor,
                                   &compile->diag));
    }
    frontend->consts = consts;
    frontend->const_count = list->count;
    return UL_OK;
}

/* Counts elements of weights; tensors of one number are settings, those of truth values and 64-bit
 * integers are masks and shapes. */
static uint64_t count_weights(const struct ul_graph *graph)
{
    uint64_t count = 0;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        if (value->kind == UL_VALUE_WEIGHT && value->type.rank > 0 &&
            value->type.dtype != UL_BOOL && value->type.dtype != UL_I64)
            count += ul_type_elements(&value->type);
    }
    return count;
}

/* Whether these options read the same graph. */
static bool is_same_given(const struct ul_frontend_options *a, const struct ul_frontend_options *b)
{
    bool same = a->dim_count == b->dim_count && a->shape_count == b->shape_count &&
                a->output_count == b->output_count && a->const_count + b->const_count == 0 &&
                a->marks_initializers == b->marks_initializers &&
                a->keeps_defaults == b->keeps_defaults;
    for (uint32_t i = 0; same && i < a->dim_count; i++)
        same = a->dims[i].size == b->dims[i].size && strcmp(a->dims[i].name, b->dims[i].name) == 0;
    for (uint32_t i = 0; same && i < a->shape_count; i++)
        same = strcmp(a->shapes[i].input, b->shapes[i].input) == 0 &&
               a->shapes[i].rank == b->shapes[i].rank &&
               memcmp(a->shapes[i].dims, b->shapes[i].dims,
                      a->shapes[i].rank * sizeof *a->shapes[i].dims) == 0;
    for (uint32_t i = 0; same && i < a->output_count; i++)
        same = strcmp(a->outputs[i], b->outputs[i]) == 0;
    return same;
}

/* Takes the graph that the compile before this one has read and owns. */
static bool take_read(struct ul_compile *compile, const char *model_path)
{
    const struct ul_compile *earlier = compile->earlier;
    if (earlier == NULL || !earlier->keeps_read || earlier->as_read.block_count == 0 ||
        strcmp(earlier->model.path, model_path) != 0 ||
        !is_same_given(&earlier->given, &compile->given))
        return false;
    ul_graph_copy(&compile->graph, &compile->keep, &earlier->as_read);
    compile->model = earlier->model;
    return true;
}

enum ul_status ul_compile_load(struct ul_compile *compile, const char *model_path)
{
    struct ul_frontend_options *given = &compile->given;
    UL_ASSERT(!compile->loaded);
    UL_TRY(ul_compile_check_options(compile));
    *given = (struct ul_frontend_options){.outputs = compile->options.outputs.items,
                                          .output_count = compile->options.outputs.count,
                                          .marks_initializers = compile->options.train,
                                          .keeps_defaults = compile->options.keep_defaults,
                                          .is_trial = compile->is_trial && compile->largest != NULL,
                                          .lender = compile->lender};
    list_dims(compile, given);
    list_shapes(compile, given);
    UL_TRY(read_consts(compile, given));
    if (!take_read(compile, model_path)) {
        compile->loaded = true;
        UL_TRY(ul_frontend_load(&compile->graph, &compile->keep, model_path, given, &compile->model,
                                &compile->diag));
        if (compile->keeps_read)
            ul_graph_copy(&compile->as_read, &compile->keep, &compile->graph);
    }
    compile->weight_elements = count_weights(&compile->graph);
    compile->notice = compile->model.notice;
    return UL_OK;
}

enum ul_status ul_compile_load_ports(struct ul_compile *compile, const char *model_path)
{
    enum ul_status status = ul_compile_load(compile, model_path);
    return compile->model.has_open_dims ? UL_OK : status;
}

/* Appends text to the message. */
static void add_text(struct ul_diag *diag, const char *text)
{
    size_t length = strlen(diag->text);
    snprintf(diag->text + length, sizeof diag->text - length, "\nThese may be left out: %s", text);
}

enum ul_status ul_compile_load_settled(struct ul_compile *compile, const char *model_path)
{
    enum ul_status status = ul_compile_load(compile, model_path);
    uint32_t size_count = compile->options.dims.count;
    if (status == UL_OK || !compile->model.has_open_dims)
        return status;
    const char *told = ul_compile_settle(compile, model_path);
    if (told[0] == '\0')
        return status;
    if (compile->options.dims.count > size_count) {
        ul_model_done(&compile->model);
        compile->loaded = false;
        compile->diag = (struct ul_diag){.status = UL_OK};
        status = ul_compile_load(compile, model_path);
    }
    if (status == UL_OK)
        compile->notice = compile->notice == NULL
                              ? told
                              : ul_arena_printf(&compile->keep, "%s; %s", compile->notice, told);
    else if (compile->model.has_open_dims)
        add_text(&compile->diag, told);
    return status;
}
