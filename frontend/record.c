/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what torch.onnx.export notes in a graph about how the network is trained, and about ranges
 * of its sizes.
 *
 *      # inputs                                        the graph's metadata
 *      p_conv_weight: PARAMETER target='conv.weight'
 *      b_mean: BUFFER target='mean' persistent=True
 *      x: USER_INPUT
 *
 *      # outputs
 *      getitem_3: BUFFER_MUTATION target='bn.running_mean'
 *
 * Problem: initializers are parameters, buffers, and constants that the exporter made of both.
 * Method: where there is such a record, parameters are the initializers that it calls so; those
 * that are not in the file have become something else in the exporter. Without the record nothing
 * is done. Notes on single nodes are read where the nodes are built. Where the exporter does not
 * optimize, it gives results the names of buffers (mean): nodes are in order, and those after such
 * a result read the result. */
#include "frontend/frontend_internal.h"

#include <stdlib.h>
#include <string.h>

#define CONSTRAINTS "pkg.torch.export.ExportedProgram.range_constraints"
#define SIGNATURE "pkg.torch.export.ExportedProgram.graph_signature"

/* The text between quotes after `what` in the line; NULL: the line does not have it. */
static const char *target_of(struct ul_model_builder *builder, const char *line, size_t length,
                             const char *what)
{
    const char *text = ul_arena_printf(builder->scratch, "%.*s", (int)length, line);
    const char *begin = strstr(text, what);
    const char *end = begin == NULL ? NULL : strchr(begin + strlen(what), '\'');
    if (end == NULL)
        return NULL;
    begin += strlen(what);
    return ul_arena_printf(builder->graph->arena, "%.*s", (int)(end - begin), begin);
}

static void add_lost(struct ul_model_builder *builder, const char *name)
{
    struct ul_onnx_model *model = builder->model;
    UL_GROW(builder->graph->arena, model->lost, model->lost_count, model->lost_capacity);
    model->lost[model->lost_count++] = name;
}

static bool ends(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static void read_line(struct ul_model_builder *builder, const struct ul_scope *scope,
                      const char *line, size_t length)
{
    const char *parameter = target_of(builder, line, length, ": PARAMETER target='");
    const char *changed = target_of(builder, line, length, ": BUFFER_MUTATION target='");
    ul_value_id value = parameter != NULL ? ul_scope_find(scope, parameter) : UL_NONE;
    if (parameter != NULL && value == UL_NONE)
        add_lost(builder, parameter);
    else if (parameter != NULL && value < builder->graph->value_count)
        builder->graph->values[value].flags |= UL_VALUE_PARAMETER;
    bool is_statistic =
        changed != NULL && (ends(changed, "running_mean") || ends(changed, "running_var"));
    if (is_statistic && ul_scope_find(scope, changed) == UL_NONE)
        add_lost(builder, changed);
}

void ul_record_read(struct ul_model_builder *builder, const Onnx__GraphProto *proto,
                    const struct ul_scope *scope)
{
    struct ul_graph *graph = builder->graph;
    const char *text =
        builder->options == NULL || !builder->options->marks_initializers
            ? NULL
            : ul_proto_entry(builder, &proto->base, UL_WIRE_GRAPH_METADATA, SIGNATURE);
    if (text == NULL || strstr(text, ": PARAMETER target='") == NULL)
        return;
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, "\n");
        read_line(builder, scope, at, length);
        at += length + (at[length] == '\n');
    }
    for (uint32_t v = 0; v < graph->value_count; v++)
        if ((graph->values[v].flags & UL_VALUE_TRAINED) != 0 &&
            (graph->values[v].flags & UL_VALUE_PARAMETER) == 0)
            graph->values[v].flags |= UL_VALUE_BUFFER;
}

/* ---- Names that torch gives twice ---- */

static void rename_inputs(const struct ul_names *renamed, const Onnx__NodeProto *node,
                          char *const *names)
{
    for (size_t i = 0; i < node->n_input; i++) {
        uint32_t found = ul_names_find(renamed, node->input[i]);
        if (found != UL_NONE)
            node->input[i] = names[found];
    }
    for (size_t a = 0; a < node->n_attribute; a++) {
        const Onnx__GraphProto *inner = node->attribute[a]->g;
        for (size_t n = 0; inner != NULL && n < inner->n_node; n++)
            rename_inputs(renamed, inner->node[n], names);
    }
}

static void take(struct ul_names *taken, const char *name)
{
    if (name != NULL)
        (void)!ul_names_add(taken, name, 0);
}

/* Collects the names that results must not get. */
static void take_names(struct ul_names *taken, const Onnx__GraphProto *proto)
{
    for (size_t i = 0; i < proto->n_input; i++)
        take(taken, proto->input[i]->name);
    for (size_t i = 0; i < proto->n_initializer; i++)
        take(taken, proto->initializer[i]->name);
    for (size_t n = 0; n < proto->n_node; n++)
        for (size_t o = 0; o < proto->node[n]->n_output; o++)
            take(taken, proto->node[n]->output[o]);
}

/* NAME_1, or NAME with the first number that is not taken. */
static char *new_name(struct ul_model_builder *builder, struct ul_names *taken, const char *name)
{
    char *found = NULL;
    for (unsigned number = 1; found == NULL || !ul_names_add(taken, found, 0); number++)
        found = ul_arena_printf(builder->scratch, "%s_%u", name, number);
    return found;
}

void ul_record_rename(struct ul_model_builder *builder, const Onnx__GraphProto *proto)
{
    struct ul_names weights, taken, renamed;
    char **names = NULL;
    uint32_t count = 0, capacity = 0;
    if (ul_proto_entry(builder, &proto->base, UL_WIRE_GRAPH_METADATA, SIGNATURE) == NULL)
        return;
    ul_names_init(&weights, builder->scratch);
    ul_names_init(&taken, builder->scratch);
    ul_names_init(&renamed, builder->scratch);
    take_names(&taken, proto);
    for (size_t i = 0; i < proto->n_initializer; i++)
        take(&weights, proto->initializer[i]->name);
    for (size_t n = 0; n < proto->n_node; n++) {
        const Onnx__NodeProto *node = proto->node[n];
        rename_inputs(&renamed, node, names);
        for (size_t o = 0; o < node->n_output; o++) {
            const char *name = node->output[o];
            if (ul_names_find(&weights, name) == UL_NONE || !ul_names_add(&renamed, name, count))
                continue;
            UL_GROW(builder->scratch, names, count, capacity);
            names[count] = new_name(builder, &taken, name);
            node->output[o] = names[count++];
        }
    }
    for (size_t i = 0; i < proto->n_output; i++) {
        const char *name = proto->output[i]->name;
        uint32_t found = name == NULL ? UL_NONE : ul_names_find(&renamed, name);
        if (found != UL_NONE)
            proto->output[i]->name = names[found];
    }
}

/* ---- ranges of sizes ---- */

/* Reads "NAME: VR[2, 512]" in a list of such; "int_oo" is no end, which is 0 here. */
static bool find_range(const char *list, const char *name, long long *low, long long *high)
{
    size_t length = strlen(name);
    for (const char *at = strstr(list, name); at != NULL; at = strstr(at + 1, name)) {
        char *end;
        bool begins = at == list || at[-1] == '{' || at[-1] == ' ';
        if (!begins || strncmp(at + length, ": VR[", 5) != 0)
            continue;
        *low = strtoll(at + length + 5, &end, 10);
        if (end == at + length + 5 || *low < 0 || strncmp(end, ", ", 2) != 0)
            return false;
        *high = strtoll(end + 2, &end, 10);
        return *high == 0 || (*end == ']' && *high >= *low);
    }
    return false;
}

void ul_record_put_range(const struct ul_model_builder *builder, const char *name,
                         struct ul_text *text)
{
    const char *list = builder->proto == NULL || name[0] == '\0'
                           ? NULL
                           : ul_proto_entry(builder, &builder->proto->graph->base,
                                            UL_WIRE_GRAPH_METADATA, CONSTRAINTS);
    const char *flag = ul_word_quote(text->arena, name);
    long long low, high;
    if (list == NULL || !find_range(list, name, &low, &high))
        return;
    UL_ASSERT(low >= 0 && (high == 0 || high >= low));
    if (high == 0 || high > UL_LIMIT_DIM)
        ul_text_printf(text, "; the file says that it is %lld or more", low);
    else
        ul_text_printf(text,
                       "; the file says that it is %lld to %lld, and --dim %s=%lld..%lld makes one "
                       "program for all of these",
                       low, high, flag, low, high);
}
