/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the graph: values by name, nodes in order, nested graphs as blocks. */
#include "ir/build.h"
#include "frontend/frontend_internal.h"
#include "ir/op_names.h"

#include "ir/op.h"
#include "ir/training.h"

#include <stdlib.h>
#include <string.h>

ul_value_id ul_scope_find(const struct ul_scope *scope, const char *name)
{
    for (; scope != NULL; scope = scope->outer) {
        uint32_t value = ul_names_find(&scope->names, name);
        if (value != UL_NONE)
            return value;
    }
    return UL_NONE;
}

enum ul_status ul_scope_bind(struct ul_model_builder *builder, struct ul_scope *scope,
                             const char *name, ul_value_id value)
{
    UL_ASSERT(name != NULL && value != UL_NONE);
    if (value < UL_SEQUENCE_FIRST && ul_gradient_is_by(builder, name))
        builder->graph->values[value].flags |= UL_VALUE_INDEPENDENT;
    if (ul_names_add(&scope->names, name, value))
        return UL_OK;
    return ul_diag_set(builder->diag, UL_INVALID, "two values are called %s",
                       ul_quote(builder->scratch, name));
}

const char *ul_builder_name(const struct ul_model_builder *builder, const char *name)
{
    return ul_arena_printf(builder->graph->arena, "%s%s", builder->prefix, name);
}

const char *ul_builder_describe(const struct ul_model_builder *builder, const char *name,
                                const char *op)
{
    const char *full =
        ul_arena_printf(builder->scratch, "%s%s", builder->prefix, name == NULL ? "" : name);
    const char *quoted_op = ul_quote(builder->scratch, op == NULL ? "" : op);
    return ul_arena_printf(builder->scratch, "node %s (%.*s)", ul_quote(builder->scratch, full),
                           (int)strlen(quoted_op) - 2, quoted_op + 1);
}

void ul_builder_problem(struct ul_model_builder *builder, const char *domain, const char *op,
                        const char *node, const char *reason)
{
    UL_ASSERT(domain != NULL && op != NULL && node != NULL && reason != NULL);
    struct ul_onnx_model *model = builder->model;
    struct ul_arena *arena = builder->graph->arena;
    for (uint32_t i = 0; i < model->problem_count; i++) {
        struct ul_model_problem *known = &model->problems[i];
        if (strcmp(known->domain, domain) == 0 && strcmp(known->op, op) == 0 &&
            strcmp(known->reason, reason) == 0) {
            known->node_count++;
            return;
        }
    }
    enum { MAX_PROBLEMS = 1000 }; /* nobody reads more, and the search above is linear */
    if (model->problem_count == MAX_PROBLEMS)
        return;
    UL_GROW(arena, model->problems, model->problem_count, model->problem_capacity);
    struct ul_model_problem *problem = &model->problems[model->problem_count++];
    problem->domain = ul_arena_copy_string(arena, domain);
    problem->op = ul_arena_copy_string(arena, op);
    problem->node = ul_quote(arena, ul_builder_name(builder, node));
    problem->reason = ul_arena_copy_string(arena, reason);
    problem->node_count = 1;
}

bool ul_proto_unknown(const ProtobufCMessage *message, uint32_t field, uint32_t nth,
                      const unsigned char **data, size_t *size_bytes)
{
    for (unsigned i = 0; i < message->n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *unknown = &message->unknown_fields[i];
        if (unknown->tag != field || nth-- > 0)
            continue;
        /* The bytes begin with their length, which the decoder leaves there. */
        size_t skip = 0;
        while (skip < unknown->len && (unknown->data[skip] & 0x80) != 0)
            skip++;
        UL_ASSERT(skip < unknown->len);
        *data = unknown->data + skip + 1;
        *size_bytes = unknown->len - skip - 1;
        return true;
    }
    return false;
}

const char *ul_proto_entry(const struct ul_model_builder *builder, const ProtobufCMessage *message,
                           uint32_t field, const char *key)
{
    const unsigned char *data = NULL;
    size_t size = 0;
    for (uint32_t i = 0; ul_proto_unknown(message, field, i, &data, &size); i++) {
        const Onnx__StringStringEntryProto *entry =
            onnx__string_string_entry_proto__unpack(builder->allocator, size, data);
        if (entry != NULL && entry->key != NULL && entry->value != NULL &&
            strstr(entry->key, key) != NULL)
            return entry->value;
    }
    return NULL;
}

/* The line of the author's source that made a node: the innermost frame of PyTorch's stack trace,
 * from the metadata (torch.export) or the doc string (the older exporter). */
static const char *source_line(struct ul_model_builder *builder, const char *trace)
{
    enum { LONGEST = 240 };
    const char *line = trace;
    for (const char *at = strstr(trace, "File \""); at != NULL; at = strstr(at + 1, "File \""))
        line = at;
    size_t length = strcspn(line, "\n");
    if (length > LONGEST)
        length = LONGEST;
    if (length == 0)
        return NULL;
    return ul_arena_printf(builder->graph->arena, "%.*s", (int)length, line);
}

static const char *find_source(struct ul_model_builder *builder, const Onnx__NodeProto *proto)
{
    const char *trace = ul_proto_entry(builder, &proto->base, UL_WIRE_NODE_METADATA, "stack_trace");
    if (trace != NULL)
        return source_line(builder, trace);
    if (proto->doc_string != NULL && proto->doc_string[0] != '\0')
        return source_line(builder, proto->doc_string);
    return NULL;
}

/* Why a value that is used does not exist, or NULL; the text follows the value's name. */
static const char *why_missing(const struct ul_model_builder *builder, ul_value_id value)
{
    UL_ASSERT(value != UL_NONE && value != UL_ABSENT);
    if (ul_sequence_is(value) || builder->graph->values[value].kind != UL_VALUE_DEAD)
        return NULL;
    for (uint32_t i = 0; i < builder->withheld_count; i++)
        if (builder->withheld[i].value == value)
            return builder->withheld[i].reason;
    return "is an output that an old operator gives in training only";
}

static enum ul_status resolve_inputs(struct ul_old_node *node, const Onnx__NodeProto *proto)
{
    struct ul_model_builder *builder = node->builder;
    for (size_t i = 0; i < proto->n_input; i++) {
        const char *name = proto->input[i];
        if (name[0] == '\0')
            continue;
        ul_value_id value = ul_scope_find(builder->scope, name);
        if (value == UL_NONE)
            return ul_diag_set(builder->diag, UL_INVALID,
                               "%s: input %zu, %s, is neither an input, nor a weight, nor the "
                               "output of a node",
                               ul_builder_describe(builder, node->name, node->op), i,
                               ul_quote(builder->scratch, name));
        if (value == UL_ABSENT)
            continue;
        const char *missing = why_missing(builder, value);
        if (missing != NULL)
            ul_builder_problem(
                builder, node->domain, node->op, node->name,
                ul_arena_printf(builder->scratch, "has input %zu, which %s", i, missing));
        ul_old_set_input(node, (uint32_t)i, value);
    }
    return UL_OK;
}

static enum ul_status start_node(struct ul_model_builder *builder, const Onnx__NodeProto *proto,
                                 struct ul_old_node *node)
{
    memset(node, 0, sizeof *node);
    node->builder = builder;
    node->domain = ul_domain_canonical(proto->domain);
    node->op = proto->op_type;
    node->name = proto->name == NULL ? "" : proto->name;
    if (node->op == NULL || node->op[0] == '\0')
        return ul_diag_set(builder->diag, UL_INVALID, "node %s names no operator",
                           ul_quote(builder->scratch, ul_builder_name(builder, node->name)));
    if (node->name[0] == '\0' && proto->n_output > 0)
        node->name = proto->output[0];
    if (proto->n_input > UL_LIMIT_NODE_INPUTS || proto->n_output > UL_LIMIT_NODE_INPUTS)
        return ul_diag_set(builder->diag, UL_UNSUPPORTED, "%s: more than %d inputs or outputs",
                           ul_builder_describe(builder, node->name, node->op),
                           UL_LIMIT_NODE_INPUTS);
    node->version = ul_opsets_version(builder->opsets, node->domain);
    if (node->version == 0 && node->domain[0] == '\0' && ul_function_find(builder, proto) == NULL)
        return ul_diag_set(builder->diag, UL_INVALID,
                           "%s: the model imports no operator set of ai.onnx",
                           ul_builder_describe(builder, node->name, node->op));
    node->source = find_source(builder, proto);
    node->outputs = UL_NEW_ARRAY(builder->scratch, const char *, proto->n_output);
    node->results = UL_NEW_ARRAY(builder->scratch, ul_value_id, proto->n_output);
    node->declared_count = (uint32_t)proto->n_output;
    node->emitted = UL_NONE;
    for (size_t i = 0; i < proto->n_output; i++) {
        node->outputs[i] = proto->output[i];
        node->results[i] = UL_NONE;
        if (proto->output[i][0] != '\0')
            node->output_count = (uint32_t)i + 1;
    }
    return resolve_inputs(node, proto);
}

/* The tensor of a Constant node, whichever attribute holds it; NULL with a problem noted. */
static enum ul_status constant_value(struct ul_old_node *node, const struct ul_tensor **out)
{
    struct ul_arena *arena = node->builder->graph->arena;
    *out = NULL;
    for (uint32_t i = 0; i < node->attr_count; i++) {
        const struct ul_attr *attr = &node->attrs[i];
        int64_t count = attr->count;
        struct ul_type type = ul_type_make(UL_F32, 0, NULL);
        if (attr->kind == UL_ATTR_TENSOR && strcmp(attr->name, "value") == 0) {
            *out = attr->tensor;
        } else if (strcmp(attr->name, "value_int") == 0 && attr->kind == UL_ATTR_INT) {
            *out = ul_tensor_new_ints(arena, UL_I64, 0, NULL, &attr->i);
        } else if (strcmp(attr->name, "value_ints") == 0 && attr->kind == UL_ATTR_INTS) {
            *out = ul_tensor_new_ints(arena, UL_I64, 1, &count, attr->ints);
        } else if (strcmp(attr->name, "value_float") == 0 && attr->kind == UL_ATTR_FLOAT) {
            float value = (float)attr->f;
            *out = ul_tensor_new(arena, &type, &value);
        } else if (strcmp(attr->name, "value_floats") == 0 && attr->kind == UL_ATTR_FLOATS) {
            float *values = UL_NEW_ARRAY(node->builder->scratch, float, attr->count);
            for (uint32_t k = 0; k < attr->count; k++)
                values[k] = (float)attr->floats[k];
            type = ul_type_make(UL_F32, 1, &count);
            *out = ul_tensor_new(arena, &type, values);
        }
    }
    if (*out == NULL)
        ul_old_problem(node, "holds no dense tensor of numbers; string and sparse constants are "
                             "not supported");
    return UL_OK;
}

static void count_weight(struct ul_model_builder *builder, const struct ul_tensor *tensor)
{
    builder->model->weight_count++;
    builder->model->weight_bytes += ul_type_bytes(&tensor->type);
}

/* Makes weights of Constant nodes and of Identity of a constant; *done says whether the node was
 * one. */
static enum ul_status build_constant(struct ul_old_node *node, bool *done)
{
    struct ul_graph *graph = node->builder->graph;
    *done = false;
    if (node->domain[0] != '\0' || node->output_count != 1)
        return UL_OK;
    if (strcmp(node->op, "Constant") == 0) {
        const struct ul_tensor *tensor = NULL;
        UL_TRY(constant_value(node, &tensor));
        if (tensor != NULL) {
            node->results[0] = ul_graph_add_weight(
                graph, ul_builder_name(node->builder, node->outputs[0]), tensor);
            count_weight(node->builder, tensor);
        }
        *done = true;
    } else if (strcmp(node->op, "Identity") == 0 && node->input_count == 1 &&
               node->inputs[0] != UL_NONE &&
               graph->values[node->inputs[0]].kind == UL_VALUE_WEIGHT &&
               !ul_gradient_is_by(node->builder, node->outputs[0])) {
        node->results[0] = node->inputs[0];
        *done = true;
    }
    return UL_OK;
}

static enum ul_status bind_results(struct ul_old_node *node, struct ul_scope *scope)
{
    UL_ASSERT(node->output_count <= node->declared_count);
    struct ul_model_builder *builder = node->builder;
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i][0] == '\0')
            continue;
        if (node->results[i] == UL_NONE)
            node->results[i] =
                ul_graph_add_value(builder->graph, node->outputs[i], UL_VALUE_DEAD, NULL);
        UL_TRY(ul_scope_bind(builder, scope, node->outputs[i], node->results[i]));
    }
    return UL_OK;
}

uint64_t ul_builder_used_bytes(const struct ul_model_builder *builder)
{
    return builder->graph->arena->used_bytes + builder->scratch->used_bytes;
}

uint64_t ul_builder_inlined_bytes(const struct ul_model_builder *builder)
{
    return builder->inlined_bytes + ul_builder_used_bytes(builder) - builder->inlined_from_bytes;
}

/* A few kilobytes of functions that call functions stand for millions of nodes. */
static enum ul_status check_inlined(const struct ul_model_builder *builder,
                                    const struct ul_old_node *node)
{
    if (builder->active_count == 0 || ul_builder_inlined_bytes(builder) <= UL_LIMIT_INLINED_BYTES)
        return UL_OK;
    return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                       "%s: the calls of the model's functions stand for so many nodes that these "
                       "take over %s of memory; export the model with fewer calls",
                       ul_builder_describe(builder, node->name, node->op),
                       ul_size_format(builder->scratch, UL_LIMIT_INLINED_BYTES));
}

/* The third argument of the lookup; negative where there is none. */
static int64_t padding_of(const char *call)
{
    const char *at = strstr(call, "aten.embedding.default](args = (");
    const char *end = at == NULL ? NULL : strstr(at, "), ");
    for (uint32_t comma = 0; at != NULL && comma < 2; comma++)
        at = strchr(at + 1, ',');
    return at == NULL || (end != NULL && at > end) ? -1 : strtoll(at + 1, NULL, 10);
}

/* Reads what torch's exporter notes about a node, for training. For detach(), which is an Identity,
 * it notes %detach : ... call_function[target=torch.ops.aten.detach.default](...); for a lookup in
 * an embedding it notes the padding index. */
static void read_call(struct ul_old_node *node, const Onnx__NodeProto *proto)
{
    struct ul_model_builder *builder = node->builder;
    bool is_identity = strcmp(node->op, "Identity") == 0;
    bool is_lookup = strcmp(node->op, "Gather") == 0;
    if (builder->options == NULL || !builder->options->marks_initializers ||
        node->domain[0] != '\0' || !(is_identity || is_lookup))
        return;
    const char *call = ul_proto_entry(builder, &proto->base, UL_WIRE_NODE_METADATA, "fx_node");
    if (call != NULL && is_identity && strstr(call, "aten.detach.") != NULL) {
        node->domain = "ullage";
        node->op = "StopGradient";
    }
    if (call != NULL && is_lookup && padding_of(call) >= 0)
        ul_old_set_int(node, UL_TRAINING_PADDING, padding_of(call));
}

static enum ul_status build_node(struct ul_model_builder *builder, const Onnx__NodeProto *proto,
                                 struct ul_scope *scope)
{
    struct ul_old_node node;
    if (builder->graph->node_count >= UL_LIMIT_NODES ||
        builder->graph->value_count >= UL_LIMIT_VALUES)
        return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                           "the graph has more than %u nodes or %u values once functions are "
                           "inlined",
                           UL_LIMIT_NODES, UL_LIMIT_VALUES);
    builder->scope = scope;
    UL_TRY(start_node(builder, proto, &node));
    UL_TRY(check_inlined(builder, &node));
    const Onnx__FunctionProto *function = ul_function_find(builder, proto);
    if (function != NULL) {
        UL_TRY(ul_function_inline(builder, function, proto, &node));
        return bind_results(&node, scope);
    }
    UL_TRY(ul_attributes_decode(&node, proto));
    read_call(&node, proto);
    if (!node.finished)
        UL_TRY(ul_sequence_node(&node));
    bool done = node.finished;
    if (!done)
        UL_TRY(build_constant(&node, &done));
    if (!done)
        UL_TRY(ul_upgrade_node(&node));
    return bind_results(&node, scope);
}

enum ul_status ul_build_nodes(struct ul_model_builder *builder, size_t node_count,
                              Onnx__NodeProto *const *nodes, struct ul_scope *scope)
{
    const uint32_t *order = NULL;
    UL_TRY(ul_order_nodes(builder, node_count, nodes, &order));
    for (size_t i = 0; i < node_count; i++)
        UL_TRY(build_node(builder, nodes[order == NULL ? i : order[i]], scope));
    return UL_OK;
}

/* Whether an initializer is the default of an input that stays an input. */
static bool is_default(const struct ul_model_builder *builder, const char *name)
{
    const struct ul_onnx_model *model = builder->model;
    for (uint32_t i = 0; i < model->input_count; i++)
        if (model->inputs[i].has_default && strcmp(model->inputs[i].name, name) == 0)
            return true;
    return false;
}

static enum ul_status build_initializers(struct ul_model_builder *builder,
                                         const Onnx__GraphProto *proto, struct ul_scope *scope)
{
    for (size_t i = 0; i < proto->n_sparse_initializer; i++) {
        const Onnx__TensorProto *values = proto->sparse_initializer[i]->values;
        const char *name = values == NULL || values->name == NULL ? "" : values->name;
        ul_builder_problem(builder, "", "sparse_initializer", name,
                           "sparse weights are not supported; export the model with dense ones");
        UL_TRY(ul_scope_bind(builder, scope, name,
                             ul_graph_add_value(builder->graph, name, UL_VALUE_NODE, NULL)));
    }
    for (size_t i = 0; i < proto->n_initializer; i++) {
        const char *name = proto->initializer[i]->name;
        if (name == NULL || name[0] == '\0')
            return ul_diag_set(builder->diag, UL_INVALID, "initializer %zu has no name", i);
        if (ul_names_find(&scope->names, name) != UL_NONE &&
            (builder->block != 0 || is_default(builder, name)))
            continue; /* an argument of a function, which is always given */
        const struct ul_tensor *tensor = NULL;
        UL_TRY(ul_tensor_decode(builder, proto->initializer[i], name, &tensor));
        ul_value_id value =
            ul_graph_add_weight(builder->graph, ul_builder_name(builder, name), tensor);
        if (builder->options != NULL && builder->options->marks_initializers)
            builder->graph->values[value].flags |= UL_VALUE_TRAINED;
        UL_TRY(ul_scope_bind(builder, scope, name, value));
        count_weight(builder, tensor);
    }
    return UL_OK;
}

static enum ul_status build_arguments(struct ul_model_builder *builder,
                                      const Onnx__GraphProto *proto, struct ul_scope *scope)
{
    for (size_t i = 0; i < proto->n_input; i++) {
        struct ul_model_port port;
        ul_describe_port(builder, proto->input[i], &port);
        if (strcmp(port.kind, "tensor") != 0 && strcmp(port.kind, "unknown") != 0)
            ul_builder_problem(builder, "", "argument", port.name,
                               "of a nested graph is no tensor; only dense tensors are supported");
        ul_value_id value = ul_graph_add_value(builder->graph, ul_builder_name(builder, port.name),
                                               UL_VALUE_ARGUMENT, NULL);
        ul_block_add_input(builder->graph, builder->block, value);
        if (proto->input[i]->name != NULL)
            UL_TRY(ul_scope_bind(builder, scope, proto->input[i]->name, value));
    }
    return UL_OK;
}

/* An output of the model must be the value of a node, appear once and have its own name; so an
 * output that is an input, a weight or another output gets a node. `taken` has an entry for every
 * value. */
static ul_value_id own_output(struct ul_model_builder *builder, const char *name, ul_value_id value,
                              bool *taken)
{
    const struct ul_value *info = &builder->graph->values[value];
    bool own = info->kind == UL_VALUE_NODE && strcmp(info->name, name) == 0 && !taken[value];
    taken[value] = true;
    if (own)
        return value;
    struct ul_build build = ul_build_last(builder->graph, 0, name);
    return ul_build_value(&build, UL_OP_Identity, &value, 1, NULL);
}

void ul_builder_overwrite(struct ul_model_builder *builder, ul_value_id old, ul_value_id made)
{
    UL_GROW(builder->scratch, builder->overwritten, builder->overwritten_count,
            builder->overwritten_capacity);
    builder->overwritten[builder->overwritten_count++] = (struct ul_overwritten){old, made};
}

/* Adds an output for each input or weight that a node overwrites. */
static enum ul_status add_overwritten(struct ul_model_builder *builder, struct ul_names *seen,
                                      bool *taken)
{
    for (uint32_t i = 0; i < builder->overwritten_count; i++) {
        const struct ul_overwritten *pair = &builder->overwritten[i];
        const struct ul_value *old = &builder->graph->values[pair->old];
        if (old->kind != UL_VALUE_INPUT && old->kind != UL_VALUE_WEIGHT)
            continue;
        const char *name = ul_arena_printf(builder->graph->arena, "%s_out", old->name);
        if (!ul_names_add(seen, name, 0))
            return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                               "%s is overwritten twice, or there is an output %s besides",
                               ul_quote(builder->scratch, old->name),
                               ul_quote(builder->scratch, name));
        ul_block_add_output(builder->graph, 0, own_output(builder, name, pair->made, taken));
    }
    return UL_OK;
}

static bool is_made(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_value *info = &graph->values[value];
    return info->kind == UL_VALUE_NODE &&
           (info->producer == UL_NONE || graph->nodes[info->producer].parent == 0);
}

/* Finds the value of that name that a node makes, inside inlined functions too. */
static enum ul_status find_made(struct ul_model_builder *builder, const struct ul_scope *scope,
                                const char *name, ul_value_id *found)
{
    const struct ul_graph *graph = builder->graph;
    struct ul_nearest nearest = {.word = name};
    *found = ul_scope_find(scope, name);
    if (*found < UL_SEQUENCE_FIRST && is_made(graph, *found))
        return UL_OK;
    for (ul_value_id v = 0; v < graph->value_count; v++) {
        *found = v;
        if (is_made(graph, v) && strcmp(graph->values[v].name, name) == 0)
            return UL_OK;
        if (is_made(graph, v))
            ul_nearest_offer(&nearest, graph->values[v].name);
    }
    return ul_diag_set(builder->diag, UL_USAGE, "--output %s: no node makes such a value%s",
                       ul_quote(builder->scratch, name),
                       ul_nearest_text(builder->scratch, &nearest, ""));
}

/* The output as the file declares it, or a port without a type where the file does not. */
static struct ul_model_port describe_chosen(const struct ul_onnx_model *model, const char *name)
{
    for (uint32_t i = 0; i < model->output_count; i++) {
        if (strcmp(model->outputs[i].name, name) == 0)
            return model->outputs[i];
    }
    return (struct ul_model_port){.name = name, .kind = "tensor", .rank = UL_RANK_UNKNOWN};
}

/* Makes the values of --output the only outputs, in the description too. */
static enum ul_status build_chosen(struct ul_model_builder *builder, const struct ul_scope *scope)
{
    struct ul_names seen;
    ul_names_init(&seen, builder->scratch);
    uint32_t count = builder->options->output_count, made = 0;
    bool *taken = UL_NEW_ARRAY(builder->scratch, bool, builder->graph->value_count);
    struct ul_model_port *ports = UL_NEW_ARRAY(builder->graph->arena, struct ul_model_port, count);
    for (uint32_t i = 0; i < count; i++) {
        const char *name =
            ul_arena_copy_string(builder->graph->arena, builder->options->outputs[i]);
        ul_value_id value = UL_NONE;
        UL_TRY(find_made(builder, scope, name, &value));
        if (!ul_names_add(&seen, name, 0))
            continue;
        ul_block_add_output(builder->graph, 0, own_output(builder, name, value, taken));
        ports[made++] = describe_chosen(builder->model, name);
    }
    builder->model->outputs = ports;
    builder->model->output_count = made;
    return UL_OK;
}

/* Outputs as they are collected: their values, and the description of the model's own. */
struct outputs {
    struct ul_model_builder *builder;
    struct ul_names seen;
    bool *taken;
    struct ul_model_port *ports;
    uint32_t port_count, port_capacity;
};

static enum ul_status add_output(struct outputs *outputs, const struct ul_model_port *port,
                                 ul_value_id value)
{
    struct ul_model_builder *builder = outputs->builder;
    const char *missing = why_missing(builder, value);
    if (missing != NULL)
        ul_builder_problem(builder, "", "output", port->name, missing);
    if (builder->block == 0) {
        if (!ul_names_add(&outputs->seen, port->name, 0))
            return ul_diag_set(builder->diag, UL_INVALID, "two outputs are called %s",
                               ul_quote(builder->scratch, port->name));
        value = own_output(builder, port->name, value, outputs->taken);
        UL_GROW(builder->graph->arena, outputs->ports, outputs->port_count, outputs->port_capacity);
        outputs->ports[outputs->port_count++] = *port;
    }
    ul_block_add_output(builder->graph, builder->block, value);
    return UL_OK;
}

/* Adds a sequence that the model returns: each of its tensors is an output, called NAME[0] and so
 * on. */
static enum ul_status add_sequence(struct outputs *outputs, const struct ul_model_port *port,
                                   ul_value_id value)
{
    struct ul_model_builder *builder = outputs->builder;
    const struct ul_sequence *sequence = &builder->sequences[value - UL_SEQUENCE_FIRST];
    if (builder->block != 0 || sequence->count == 0)
        ul_builder_problem(builder, "", "output", port->name,
                           builder->block != 0
                               ? "is a sequence; only dense tensors are supported"
                               : "is a sequence without a tensor; leave it out by --output");
    for (uint32_t i = 0; builder->block == 0 && i < sequence->count; i++) {
        struct ul_model_port item = {.kind = "tensor", .dtype = port->dtype};
        item.rank = UL_RANK_UNKNOWN;
        item.sequence = port->name;
        item.name = ul_sequence_item_name(builder->graph->arena, port->name, i);
        UL_TRY(add_output(outputs, &item, sequence->items[i]));
    }
    return UL_OK;
}

static enum ul_status build_outputs(struct ul_model_builder *builder, const Onnx__GraphProto *proto,
                                    const struct ul_scope *scope)
{
    if (builder->block == 0 && builder->options->output_count > 0)
        return build_chosen(builder, scope);
    if (builder->block == 0 && proto->n_output == 0 && builder->overwritten_count == 0)
        return ul_diag_set(builder->diag, UL_INVALID,
                           "the graph has no outputs, so that there is nothing to compute; name "
                           "those that are wanted with --output");
    struct outputs outputs = {.builder = builder};
    ul_names_init(&outputs.seen, builder->scratch);
    outputs.taken = UL_NEW_ARRAY(builder->scratch, bool, builder->graph->value_count);
    struct ul_names listed; /* names of the model's outputs; `seen` has the program's, where a
                               sequence is its tensors */
    ul_names_init(&listed, builder->scratch);
    for (size_t i = 0; i < proto->n_output; i++) {
        struct ul_model_port port;
        ul_describe_port(builder, proto->output[i], &port);
        if (builder->block == 0 && !ul_names_add(&listed, port.name, 0))
            continue; /* the same value again: the program has it once */
        ul_value_id value = ul_scope_find(scope, port.name);
        if (value == UL_ABSENT)
            ul_builder_problem(
                builder, "", "output", port.name,
                "is an optional without an element; only dense tensors are supported");
        else if (value == UL_NONE)
            return ul_diag_set(builder->diag, UL_INVALID,
                               "output %s is neither an input, nor a weight, nor the output of a "
                               "node",
                               ul_quote(builder->scratch, port.name));
        else if (ul_sequence_is(value))
            UL_TRY(add_sequence(&outputs, &port, value));
        else
            UL_TRY(add_output(&outputs, &port, value));
    }
    if (builder->block != 0)
        return UL_OK;
    if (builder->model->problem_count ==
        0) { /* otherwise the description stays as the file declares it */
        builder->model->outputs = outputs.ports;
        builder->model->output_count = outputs.port_count;
    }
    return add_overwritten(builder, &outputs.seen, outputs.taken);
}

/* Finds what a called graph returns. */
static enum ul_status find_returned(struct ul_old_node *node, const Onnx__GraphProto *proto,
                                    const struct ul_scope *scope, const struct ul_graph_call *call)
{
    struct ul_model_builder *builder = node->builder;
    for (uint32_t i = 0; i < call->output_count; i++) {
        const char *name = proto->output[i]->name == NULL ? "" : proto->output[i]->name;
        ul_value_id value = ul_scope_find(scope, name);
        bool is_sequence = call->makes_sequences && ul_sequence_is(value);
        if (!is_sequence &&
            (value >= UL_SEQUENCE_FIRST || builder->graph->values[value].kind == UL_VALUE_DEAD))
            return ul_diag_set(builder->diag, UL_INVALID,
                               "%s: the graph %s makes no tensor called %s",
                               ul_builder_describe(builder, node->name, node->op),
                               ul_quote(builder->scratch, proto->name == NULL ? "" : proto->name),
                               ul_quote(builder->scratch, name));
        call->outputs[i] = value;
    }
    return UL_OK;
}

enum ul_status ul_build_called(struct ul_old_node *node, const Onnx__GraphProto *proto,
                               const struct ul_graph_call *call)
{
    struct ul_model_builder *builder = node->builder;
    const char *prefix = builder->prefix;
    const struct ul_scope *outer = builder->scope;
    struct ul_scope scope = {.outer = outer};
    ul_names_init(&scope.names, builder->scratch);
    if (proto->n_input != call->input_count || proto->n_output < call->output_count)
        return ul_diag_set(builder->diag, UL_INVALID,
                           "%s: a graph has %zu inputs and %zu outputs, where %u and %u are wanted",
                           ul_builder_describe(builder, node->name, node->op), proto->n_input,
                           proto->n_output, (unsigned)call->input_count,
                           (unsigned)call->output_count);
    UL_TRY(ul_function_enter(builder, node, NULL));
    builder->prefix = call->number == 0
                          ? ul_arena_printf(builder->scratch, "%s%s/", prefix, node->name)
                          : ul_arena_printf(builder->scratch, "%s%s/%u/", prefix, node->name,
                                            (unsigned)call->number);
    for (uint32_t i = 0; i < call->input_count; i++) {
        ul_value_id value = call->inputs[i] == UL_NONE ? UL_ABSENT : call->inputs[i];
        if (proto->input[i]->name != NULL)
            UL_TRY(ul_scope_bind(builder, &scope, proto->input[i]->name, value));
    }
    UL_TRY(build_initializers(builder, proto, &scope));
    UL_TRY(ul_build_nodes(builder, proto->n_node, proto->node, &scope));
    builder->prefix = prefix;
    builder->scope = outer;
    ul_function_leave(builder);
    return find_returned(node, proto, &scope, call);
}

enum ul_status ul_build_graph(struct ul_model_builder *builder, const Onnx__GraphProto *proto,
                              struct ul_scope *scope)
{
    if (builder->block != 0)
        UL_TRY(build_arguments(builder, proto, scope));
    UL_TRY(build_initializers(builder, proto, scope));
    UL_TRY(ul_build_nodes(builder, proto->n_node, proto->node, scope));
    return build_outputs(builder, proto, scope);
}
