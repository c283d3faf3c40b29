/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for upgrades: they read and change a node between the file's operator set and the
 * newest one, and emit nodes into the graph. */
#include "frontend/frontend_internal.h"
#include "ir/infer.h"
#include "ir/op.h"

#include <string.h>

const struct ul_attr *ul_old_attr(const struct ul_old_node *node, const char *name)
{
    for (uint32_t i = 0; i < node->attr_count; i++) {
        if (strcmp(node->attrs[i].name, name) == 0)
            return &node->attrs[i];
    }
    return NULL;
}

int64_t ul_old_int(const struct ul_old_node *node, const char *name, int64_t otherwise)
{
    const struct ul_attr *attr = ul_old_attr(node, name);
    return attr != NULL && attr->kind == UL_ATTR_INT ? attr->i : otherwise;
}

const char *ul_old_string(const struct ul_old_node *node, const char *name, const char *otherwise)
{
    const struct ul_attr *attr = ul_old_attr(node, name);
    return attr != NULL && attr->kind == UL_ATTR_STRING ? attr->s : otherwise;
}

static void set_attr(struct ul_old_node *node, const struct ul_attr *attr)
{
    UL_ASSERT(attr->name != NULL);
    ul_old_remove_attr(node, attr->name);
    UL_GROW(node->builder->scratch, node->attrs, node->attr_count, node->attr_capacity);
    node->attrs[node->attr_count++] = *attr;
}

void ul_old_set_int(struct ul_old_node *node, const char *name, int64_t value)
{
    struct ul_attr attr = {.name = name, .kind = UL_ATTR_INT, .i = value};
    set_attr(node, &attr);
}

void ul_old_set_string(struct ul_old_node *node, const char *name, const char *value)
{
    UL_ASSERT(value != NULL);
    struct ul_attr attr = {.name = name, .kind = UL_ATTR_STRING, .s = value};
    set_attr(node, &attr);
}

void ul_old_remove_attr(struct ul_old_node *node, const char *name)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < node->attr_count; i++) {
        if (strcmp(node->attrs[i].name, name) != 0)
            node->attrs[kept++] = node->attrs[i];
    }
    node->attr_count = kept;
}

ul_value_id ul_old_input(const struct ul_old_node *node, uint32_t index)
{
    return index < node->input_count ? node->inputs[index] : UL_NONE;
}

void ul_old_set_input(struct ul_old_node *node, uint32_t index, ul_value_id value)
{
    UL_ASSERT(index < UL_LIMIT_NODE_INPUTS);
    while (node->input_count <= index) {
        UL_GROW(node->builder->scratch, node->inputs, node->input_count, node->input_capacity);
        node->inputs[node->input_count++] = UL_NONE;
    }
    node->inputs[index] = value;
}

static const char *helper_name(const struct ul_old_node *node, const char *what)
{
    return ul_arena_printf(node->builder->scratch, "%s%s/%s", node->builder->prefix, node->name,
                           what);
}

struct ul_build *ul_old_build(struct ul_old_node *node)
{
    struct ul_model_builder *builder = node->builder;
    if (node->build.name == NULL)
        node->build = (struct ul_build){
            .graph = builder->graph,
            .at = UL_BUILD_LAST,
            .name = ul_arena_printf(builder->scratch, "%s%s", builder->prefix, node->name),
            .source = node->source,
            .scratch = builder->scratch,
            .names_op = true};
    node->build.block = builder->block;
    UL_ASSERT(node->build.graph == builder->graph);
    return &node->build;
}

void ul_old_set_result(struct ul_old_node *node, uint32_t output, ul_value_id value)
{
    if (output >= node->output_count || value == UL_NONE) /* after an error */
        return;
    UL_ASSERT(value < node->builder->graph->value_count);
    struct ul_value *info = &node->builder->graph->values[value];
    ul_value_id before = node->results[output];
    if (before != UL_NONE && before != value)
        node->builder->graph->values[before].name =
            ul_arena_copy_string(node->builder->graph->arena, helper_name(node, "inner"));
    node->results[output] = value;
    if (node->outputs[output][0] != '\0' && info->kind == UL_VALUE_NODE)
        info->name = ul_builder_name(node->builder, node->outputs[output]);
}

void ul_old_withhold(struct ul_old_node *node, uint32_t output, const char *reason)
{
    UL_ASSERT(reason != NULL);
    struct ul_model_builder *builder = node->builder;
    if (output >= node->output_count)
        return;
    ul_value_id value =
        ul_graph_add_value(builder->graph, node->outputs[output], UL_VALUE_DEAD, NULL);
    node->results[output] = value;
    UL_GROW(builder->scratch, builder->withheld, builder->withheld_count,
            builder->withheld_capacity);
    builder->withheld[builder->withheld_count++] = (struct ul_withheld){value, reason};
}

/* Checks what the graph's verifier demands of a node; a file that breaks it is invalid. */
static enum ul_status check_arity(const struct ul_old_node *node, const struct ul_op_info *row)
{
    UL_ASSERT(row->min_inputs <= row->max_inputs && row->min_outputs <= row->max_outputs);
    struct ul_model_builder *builder = node->builder;
    const char *name = ul_builder_describe(builder, node->name, node->op);
    if (node->input_count < row->min_inputs || node->input_count > row->max_inputs)
        return ul_diag_set(builder->diag, UL_INVALID, "%s: %u input%s given, %u to %u expected",
                           name, (unsigned)node->input_count, ul_plural(node->input_count),
                           (unsigned)row->min_inputs, (unsigned)row->max_inputs);
    if (node->output_count < row->min_outputs || node->output_count > row->max_outputs)
        return ul_diag_set(builder->diag, UL_INVALID, "%s: %u output%s given, %u to %u expected",
                           name, (unsigned)node->output_count, ul_plural(node->output_count),
                           (unsigned)row->min_outputs, (unsigned)row->max_outputs);
    for (uint32_t i = 0; i < row->min_inputs; i++) {
        if (node->inputs[i] == UL_NONE)
            return ul_diag_set(builder->diag, UL_INVALID, "%s: input %u is required", name,
                               (unsigned)i);
    }
    uint32_t blocks = (row->flags & UL_OP_CONTROL) == 0 ? 0 : strcmp(row->name, "If") == 0 ? 2 : 1;
    if (node->graph_count != blocks || (blocks > 0 && node->graphs[0] == NULL))
        return ul_diag_set(builder->diag, UL_INVALID, "%s: has %u nested graphs, not %u", name,
                           (unsigned)node->graph_count, (unsigned)blocks);
    return UL_OK;
}

/* Operators whose number of results depends on their data. */
static const char *const by_data[] = {"Compress", "NonMaxSuppression", "NonZero", "Unique"};

static bool is_by_data(const struct ul_old_node *node)
{
    for (size_t i = 0; i < sizeof by_data / sizeof *by_data; i++) {
        if (node->domain[0] == '\0' && strcmp(node->op, by_data[i]) == 0)
            return true;
    }
    return false;
}

/* Says so, with the options that cut the model before the first such node; after that one there are
 * no values to cut at. */
static const char *why_by_data(struct ul_old_node *node)
{
    struct ul_model_builder *builder = node->builder;
    struct ul_text text;
    bool can_name = !builder->has_named_cut && builder->block == 0 && builder->prefix[0] == '\0';
    bool can_end = false;
    ul_text_init(&text, builder->scratch);
    ul_text_put(&text, "makes as many elements as its data say, and sizes are fixed at compile "
                       "time; end the model before it with --output");
    for (uint32_t i = 0; i < node->input_count && can_name; i++) {
        ul_value_id input = node->inputs[i];
        if (input >= UL_SEQUENCE_FIRST || builder->graph->values[input].kind != UL_VALUE_NODE)
            continue;
        ul_text_printf(&text, "%s %s", can_end ? " --output" : "",
                       ul_quote(builder->scratch, builder->graph->values[input].name));
        builder->has_named_cut = true;
        can_end = true;
    }
    ul_text_put(&text, can_end ? "" : " NAME");
    return text.data;
}

/* Whether the values follow from constants and sizes, so that they are constants where all sizes
 * are given. The output of a node that is refused, or of unknown type so far, may also be one:
 * that has a problem of its own. The answer is no where they depend on more values than WALK, each
 * counted as often as it is read. */
static bool follow_from_sizes(const struct ul_model_builder *builder, const ul_value_id *values,
                              uint32_t value_count)
{
    enum { WALK = 256 };
    const struct ul_graph *graph = builder->graph;
    ul_value_id next[WALK];
    uint32_t count = 0;
    if (value_count > WALK)
        return false;
    for (uint32_t i = 0; i < value_count; i++)
        next[count++] = values[i];
    for (uint32_t at = 0; at < count; at++) {
        if (next[at] == UL_NONE)
            continue;
        if (next[at] >= graph->value_count)
            return false; /* a sequence */
        const struct ul_value *value = &graph->values[next[at]];
        if (value->kind == UL_VALUE_WEIGHT || value->tensor != NULL)
            continue;
        if (value->kind != UL_VALUE_NODE)
            return false;
        if (value->producer == UL_NONE)
            continue;
        const struct ul_node *made = &graph->nodes[value->producer];
        if ((ul_op_get(made->op)->flags & UL_OP_SHAPE_ONLY) != 0)
            continue;
        if (made->block_count > 0 || count + made->input_count > WALK)
            return false;
        for (uint32_t i = 0; i < made->input_count; i++)
            next[count++] = made->inputs[i];
    }
    return true;
}

/* Refuses an operator that the table does not have, with the remedy where there is one. */
static const char *why_unknown(struct ul_old_node *node)
{
    if (is_by_data(node))
        return why_by_data(node);
    if (node->version == 0)
        return "is not an operator of a domain that the model imports, nor one of its functions";
    if (node->domain[0] == '\0')
        return "is not supported";
    if (strcmp(node->domain, "com.microsoft") == 0)
        return "is not supported; export the model, or save it at onnxruntime's basic level "
               "(graph_optimization_level ORT_ENABLE_BASIC), without it";
    return "is of a domain that is not supported; export the model with operators of ai.onnx, or "
           "with this one as a function of the model";
}

void ul_old_emit_self(struct ul_old_node *node)
{
    struct ul_model_builder *builder = node->builder;
    struct ul_graph *graph = builder->graph;
    ul_op_id op = ul_op_find(node->domain, node->op);
    node->finished = true;
    if (op == UL_OP_NONE && is_by_data(node) && builder->has_open_inputs &&
        follow_from_sizes(builder, node->inputs, node->input_count)) {
        ul_old_unsized(node, "makes as many elements as its data say, and those follow from sizes "
                             "that are not known; give the dimensions sizes with --dim or --shape");
        return;
    }
    if (op == UL_OP_NONE) {
        ul_old_problem(node, why_unknown(node));
        return;
    }
    while (node->input_count > 0 && node->inputs[node->input_count - 1] == UL_NONE)
        node->input_count--;
    if (check_arity(node, ul_op_get(op)) != UL_OK)
        return; /* the diag has the message; ul_upgrade_node returns it */
    /* The nodes are named later: names with the prefixes of functions are long, and this copies
     * them once. */
    ul_node_id id =
        ul_graph_add_node(graph, builder->block, op, "", node->input_count, node->output_count);
    graph->nodes[id].name = ul_builder_name(builder, node->name);
    graph->nodes[id].source = node->source;
    for (uint32_t i = 0; i < node->input_count; i++)
        graph->nodes[id].inputs[i] = node->inputs[i];
    for (uint32_t i = 0; i < node->attr_count; i++)
        ul_node_set_attr(graph, id, &node->attrs[i]);
    for (uint32_t i = 0; i < node->output_count; i++)
        ul_old_set_result(node, i, graph->nodes[id].outputs[i]);
    node->emitted = id;
}

/* Infers types of the nodes emitted since the last time. A failure is left to the pass that infers
 * all types later and reports it; the types are unknown here then. */
static void catch_up(struct ul_model_builder *builder)
{
    struct ul_graph *graph = builder->graph;
    for (; builder->next_to_infer < graph->node_count; builder->next_to_infer++) {
        ul_node_id node = builder->next_to_infer;
        struct ul_diag ignored = {0};
        if ((ul_op_get(graph->nodes[node].op)->flags & UL_OP_CONTROL) != 0)
            continue;
        if (ul_node_infer(graph, node, builder->scratch, &ignored) == UL_OK)
            (void)ul_node_fold(graph, node, builder->scratch);
    }
}

struct ul_type ul_old_type(struct ul_old_node *node, ul_value_id value)
{
    if (value == UL_NONE)
        return (struct ul_type){.rank = UL_RANK_UNKNOWN};
    catch_up(node->builder);
    return node->builder->graph->values[value].type;
}

const struct ul_tensor *ul_old_tensor(struct ul_old_node *node, ul_value_id value)
{
    if (value == UL_NONE)
        return NULL;
    catch_up(node->builder);
    return node->builder->graph->values[value].tensor;
}

enum ul_dtype ul_old_dtype(struct ul_old_node *node, uint32_t input)
{
    struct ul_type type = ul_old_type(node, ul_old_input(node, input));
    return type.dtype == UL_DTYPE_NONE ? UL_F32 : type.dtype;
}

void ul_old_unsized(struct ul_old_node *node, const char *reason)
{
    struct ul_model_builder *builder = node->builder;
    uint32_t count = builder->model->problem_count;
    ul_old_problem(node, reason);
    if (builder->model->problem_count > count) {
        builder->model->problems[count].is_unsized = true;
        builder->unsized_count++;
    }
}

void ul_old_not_known(struct ul_old_node *node, ul_value_id value, const char *reason)
{
    const struct ul_model_builder *builder = node->builder;
    bool is_constant =
        value < builder->graph->value_count && builder->graph->values[value].tensor != NULL;
    if (builder->has_open_inputs && value != UL_NONE && !is_constant &&
        follow_from_sizes(builder, &value, 1))
        ul_old_unsized(node, reason);
    else
        ul_old_problem(node, reason);
}

bool ul_old_problem(struct ul_old_node *node, const char *reason)
{
    ul_builder_problem(node->builder, node->domain, node->op, node->name, reason);
    node->finished = true;
    for (uint32_t i = 0; i < node->output_count; i++)
        node->results[i] =
            ul_graph_add_value(node->builder->graph, node->outputs[i], UL_VALUE_NODE, NULL);
    return false;
}
