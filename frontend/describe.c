/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a model file: what it declares, counts and imports, before anything is built. */
#include "frontend/frontend_internal.h"

#include <stdlib.h>
#include <string.h>

const char *ul_domain_canonical(const char *domain)
{
    if (domain == NULL || strcmp(domain, "ai.onnx") == 0)
        return "";
    return domain;
}

int64_t ul_opsets_version(const struct ul_opsets *opsets, const char *domain)
{
    int64_t version = 0;
    for (uint32_t i = 0; i < opsets->count; i++) {
        if (strcmp(opsets->sets[i].domain, domain) == 0 && opsets->sets[i].version > version)
            version = opsets->sets[i].version;
    }
    return version;
}

static const char *copy_or_empty(struct ul_arena *arena, const char *text)
{
    return text == NULL ? "" : ul_arena_copy_string(arena, text);
}

static void describe_tensor(struct ul_arena *arena, int32_t elem_type,
                            const Onnx__TensorShapeProto *shape, struct ul_model_port *port)
{
    if (elem_type > 0 && elem_type < UL_DTYPE_COUNT)
        port->dtype = (enum ul_dtype)elem_type;
    if (shape == NULL)
        return;
    port->rank = (uint32_t)(shape->n_dim > UL_LIMIT_VALUES ? UL_LIMIT_VALUES : shape->n_dim);
    struct ul_model_dim *dims = UL_NEW_ARRAY(arena, struct ul_model_dim, port->rank);
    for (uint32_t i = 0; i < port->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        dims[i].size = -1;
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
            dim->dim_value >= 0)
            dims[i].size = dim->dim_value;
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
            dim->dim_param != NULL && dim->dim_param[0] != '\0' &&
            strcmp(dim->dim_param, "?") != 0) /* some exporters call every unknown "?" */
            dims[i].symbol = ul_arena_copy_string(arena, dim->dim_param);
    }
    port->dims = dims;
}

void ul_describe_port(struct ul_model_builder *builder, const Onnx__ValueInfoProto *info,
                      struct ul_model_port *port)
{
    struct ul_arena *arena = builder->graph->arena;
    memset(port, 0, sizeof *port);
    port->name = copy_or_empty(arena, info->name);
    port->kind = "unknown";
    port->rank = UL_RANK_UNKNOWN;
    const Onnx__TypeProto *type = info->type;
    if (type == NULL)
        return;
    switch ((int)type->value_case) {
    case ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE:
        port->kind = "tensor";
        describe_tensor(arena, type->tensor_type->elem_type, type->tensor_type->shape, port);
        break;
    case ONNX__TYPE_PROTO__VALUE_SPARSE_TENSOR_TYPE:
        port->kind = "sparse tensor";
        describe_tensor(arena, type->sparse_tensor_type->elem_type, type->sparse_tensor_type->shape,
                        port);
        break;
    case ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE:
        port->kind = "sequence";
        type = type->sequence_type->elem_type;
        if (type != NULL && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
            describe_tensor(arena, type->tensor_type->elem_type, NULL, port);
        break;
    case ONNX__TYPE_PROTO__VALUE_MAP_TYPE:
        port->kind = "map";
        break;
    case ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE:
        port->kind = "optional";
        break;
    default:
        break;
    }
}

struct count {
    struct ul_model_builder *builder;
    struct ul_names index; /* domain, name -> operator */
    uint32_t operator_count, operator_capacity;
    struct ul_model_operator *operators;
};

static void count_node(struct count *count, const Onnx__NodeProto *node)
{
    struct ul_model_builder *builder = count->builder;
    const char *domain = ul_domain_canonical(node->domain);
    const char *op = node->op_type == NULL ? "" : node->op_type;
    const char *key = ul_arena_printf(builder->scratch, "%s\x01%s", domain, op);
    uint32_t index = ul_names_find(&count->index, key);
    if (index == UL_NONE) {
        struct ul_arena *arena = builder->graph->arena;
        index = count->operator_count;
        (void)!ul_names_add(&count->index, key, index);
        UL_GROW(arena, count->operators, count->operator_count, count->operator_capacity);
        struct ul_model_operator *row = &count->operators[count->operator_count++];
        memset(row, 0, sizeof *row);
        row->domain = ul_arena_copy_string(arena, domain);
        row->name = ul_arena_copy_string(arena, op);
        row->version = ul_opsets_version(builder->opsets, domain);
        row->is_function = ul_function_find(builder, node) != NULL;
    }
    count->operators[index].node_count++;
}

static void count_nodes(struct count *count, size_t node_count, Onnx__NodeProto *const *nodes)
{
    for (size_t i = 0; i < node_count; i++) {
        count_node(count, nodes[i]);
        for (size_t k = 0; k < nodes[i]->n_attribute; k++) {
            const Onnx__GraphProto *graph = nodes[i]->attribute[k]->g;
            if (graph != NULL)
                count_nodes(count, graph->n_node, graph->node);
        }
    }
}

static int compare_operators(const void *a, const void *b)
{
    const struct ul_model_operator *x = a;
    const struct ul_model_operator *y = b;
    int by_domain = strcmp(x->domain, y->domain);
    return by_domain != 0 ? by_domain : strcmp(x->name, y->name);
}

static void describe_operators(struct ul_model_builder *builder)
{
    struct count count = {.builder = builder};
    ul_names_init(&count.index, builder->scratch);
    count_nodes(&count, builder->proto->graph->n_node, builder->proto->graph->node);
    for (size_t i = 0; i < builder->proto->n_functions; i++)
        count_nodes(&count, builder->proto->functions[i]->n_node,
                    builder->proto->functions[i]->node);
    if (count.operator_count > 1)
        qsort(count.operators, count.operator_count, sizeof *count.operators, compare_operators);
    builder->model->operator_count = count.operator_count;
    builder->model->operators = count.operators;
}

/* Takes open dimensions of an input that has a default from the initializer. */
static void close_default(struct ul_model_builder *builder, const Onnx__TensorProto *initializer,
                          struct ul_model_port *port)
{
    struct ul_diag ignored = {.status = UL_OK}, *saved = builder->diag;
    struct ul_type type;
    builder->diag = &ignored; /* the decoder reports what is wrong */
    enum ul_status status = ul_tensor_type(builder, initializer, port->name, &type);
    builder->diag = saved;
    bool fits = port->rank == UL_RANK_UNKNOWN || port->rank == type.rank;
    if (status != UL_OK || !fits)
        return;
    struct ul_model_dim *dims = UL_NEW_ARRAY(builder->graph->arena, struct ul_model_dim, type.rank);
    for (uint32_t d = 0; d < type.rank; d++) {
        bool is_said = port->rank != UL_RANK_UNKNOWN && port->dims[d].size >= 0;
        dims[d].size = is_said ? port->dims[d].size : type.dims[d];
    }
    port->rank = type.rank;
    port->dims = dims;
}

/* Before version 4 of the format every initializer was also listed among the inputs, as a
 * constant. */
enum { IR_WITH_DEFAULTS = 4 };

static void describe_inputs(struct ul_model_builder *builder)
{
    const Onnx__GraphProto *graph = builder->proto->graph;
    struct ul_onnx_model *model = builder->model;
    struct ul_arena *arena = builder->graph->arena;
    struct ul_names initialized;
    ul_names_init(&initialized, builder->scratch);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        if (graph->initializer[i]->name != NULL)
            (void)!ul_names_add(&initialized, graph->initializer[i]->name, (uint32_t)i);
    }
    struct ul_model_port *inputs = UL_NEW_ARRAY(arena, struct ul_model_port, graph->n_input);
    struct ul_model_port *defaults = UL_NEW_ARRAY(arena, struct ul_model_port, graph->n_input);
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *name = graph->input[i]->name;
        uint32_t index = name == NULL ? UL_NONE : ul_names_find(&initialized, name);
        if (index != UL_NONE && model->ir_version < IR_WITH_DEFAULTS)
            continue;
        bool is_kept = index == UL_NONE || builder->options->keeps_defaults;
        struct ul_model_port *port =
            is_kept ? &inputs[model->input_count++] : &defaults[model->default_count++];
        ul_describe_port(builder, graph->input[i], port);
        port->has_default = index != UL_NONE;
        if (port->has_default)
            close_default(builder, graph->initializer[index], port);
    }
    model->inputs = inputs;
    model->defaults = defaults;
}

static void describe_ports(struct ul_model_builder *builder)
{
    const Onnx__GraphProto *graph = builder->proto->graph;
    struct ul_arena *arena = builder->graph->arena;
    describe_inputs(builder);
    struct ul_model_port *outputs = UL_NEW_ARRAY(arena, struct ul_model_port, graph->n_output);
    for (size_t i = 0; i < graph->n_output; i++)
        ul_describe_port(builder, graph->output[i], &outputs[i]);
    builder->model->outputs = outputs;
    builder->model->output_count = (uint32_t)graph->n_output;
}

void ul_describe_model(struct ul_model_builder *builder)
{
    struct ul_onnx_model *model = builder->model;
    struct ul_arena *arena = builder->graph->arena;
    model->ir_version = builder->proto->ir_version;
    model->producer_name = copy_or_empty(arena, builder->proto->producer_name);
    model->producer_version = copy_or_empty(arena, builder->proto->producer_version);
    describe_ports(builder);
    describe_operators(builder);
}
