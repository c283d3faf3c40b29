/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of the model. Their types become static here, from the file and from --dim, --shape
 * and --const. All dimensions that stay open are reported at once, each with the flag that closes
 * it. */
#include "frontend/frontend_internal.h"

#include <string.h>

struct inputs {
    struct ul_model_builder *builder;
    struct ul_dimensions dimensions;
    struct ul_text unbound;
};

static const char *quote(const struct inputs *inputs, const char *text)
{
    return ul_quote(inputs->builder->scratch, text);
}

static const struct ul_frontend_shape *find_shape(const struct inputs *inputs, const char *name)
{
    const struct ul_frontend_options *options = inputs->builder->options;
    for (uint32_t i = 0; i < options->shape_count; i++) {
        if (strcmp(options->shapes[i].input, name) == 0)
            return &options->shapes[i];
    }
    return NULL;
}

static bool is_sequence(const struct ul_model_port *port)
{
    return strcmp(port->kind, "sequence") == 0;
}

static const char *item_name(const struct inputs *inputs, const char *name, uint32_t index)
{
    return ul_sequence_item_name(inputs->builder->scratch, name, index);
}

static const struct ul_tensor *find_const(const struct inputs *inputs, const char *name)
{
    const struct ul_frontend_options *options = inputs->builder->options;
    for (uint32_t i = 0; i < options->const_count; i++) {
        if (strcmp(options->consts[i].input, name) == 0)
            return options->consts[i].tensor;
    }
    return NULL;
}

/* Compares a shape that the user gave with the file's, and binds the symbols in the file's. */
static enum ul_status apply_shape(struct inputs *inputs, const struct ul_model_port *port,
                                  uint32_t rank, const int64_t *dims, const char *flag)
{
    struct ul_diag *diag = inputs->builder->diag;
    if (port->rank != UL_RANK_UNKNOWN && port->rank != rank)
        return ul_diag_set(diag, UL_USAGE, "%s: input %s has %u dimensions, not %u", flag,
                           quote(inputs, port->name), (unsigned)port->rank, (unsigned)rank);
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] < 0 || dims[i] > UL_LIMIT_DIM)
            return ul_diag_set(diag, UL_USAGE, "%s: input %s: dimension %u is out of range: %lld",
                               flag, quote(inputs, port->name), (unsigned)i, (long long)dims[i]);
        if (port->rank == UL_RANK_UNKNOWN)
            continue;
        if (port->dims[i].size >= 0 && port->dims[i].size != dims[i])
            return ul_diag_set(diag, UL_USAGE,
                               "%s: input %s: the model fixes dimension %u at %lld, not %lld", flag,
                               quote(inputs, port->name), (unsigned)i,
                               (long long)port->dims[i].size, (long long)dims[i]);
        if (port->dims[i].symbol != NULL)
            UL_TRY(
                ul_dimensions_bind(&inputs->dimensions, port->dims[i].symbol, dims[i], port->name));
    }
    return UL_OK;
}

static enum ul_status apply_options(struct inputs *inputs)
{
    const struct ul_onnx_model *model = inputs->builder->model;
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct ul_model_port *port = &model->inputs[i];
        const struct ul_tensor *constant = find_const(inputs, port->name);
        const struct ul_frontend_shape *shape = find_shape(inputs, port->name);
        if (constant != NULL)
            UL_TRY(apply_shape(inputs, port, constant->type.rank, constant->type.dims, "--const"));
        if (shape != NULL)
            UL_TRY(apply_shape(inputs, port, shape->rank, shape->dims, "--shape"));
    }
    return UL_OK;
}

static enum ul_status check_dims(struct inputs *inputs)
{
    const struct ul_frontend_options *options = inputs->builder->options;
    for (uint32_t i = 0; i < options->dim_count; i++) {
        const struct ul_frontend_dim *dim = &options->dims[i];
        uint32_t index = ul_dimensions_find(&inputs->dimensions, dim->name);
        if (index == UL_NONE)
            return ul_diag_set(inputs->builder->diag, UL_USAGE,
                               "--dim %s: the model has no such dimension; it has:%s",
                               quote(inputs, dim->name), ul_dimensions_list(&inputs->dimensions));
        if (dim->size < 0 || dim->size > UL_LIMIT_DIM)
            return ul_diag_set(inputs->builder->diag, UL_USAGE, "--dim %s=%lld is out of range",
                               quote(inputs, dim->name), (long long)dim->size);
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(options->dims[k].name, dim->name) == 0 && options->dims[k].size != dim->size)
                return ul_diag_set(inputs->builder->diag, UL_USAGE,
                                   "--dim %s is given twice, with the sizes %lld and %lld",
                                   quote(inputs, dim->name), (long long)options->dims[k].size,
                                   (long long)dim->size);
        }
        int64_t known = inputs->dimensions.items[index].size;
        if (known >= 0 && known != dim->size)
            return ul_diag_set(inputs->builder->diag, UL_USAGE,
                               "--dim %s=%lld: --shape, --const or test data make it %lld",
                               quote(inputs, dim->name), (long long)dim->size, (long long)known);
        UL_TRY(ul_dimensions_bind(&inputs->dimensions, dim->name, dim->size, ""));
    }
    return UL_OK;
}

static enum ul_status unknown_input(const struct inputs *inputs, const char *flag, const char *name)
{
    const struct ul_onnx_model *model = inputs->builder->model;
    struct ul_text text;
    ul_text_init(&text, inputs->builder->scratch);
    for (uint32_t i = 0; i < model->input_count; i++) {
        const char *input = model->inputs[i].name;
        ul_text_printf(&text, "%s %s", i == 0 ? "" : ",", quote(inputs, input));
        if (is_sequence(&model->inputs[i]))
            ul_text_printf(&text, ", a sequence of %s and so on",
                           quote(inputs, item_name(inputs, input, 0)));
    }
    return ul_diag_set(inputs->builder->diag, UL_USAGE,
                       "%s %s: the model has no such input; it has:%s", flag, quote(inputs, name),
                       model->input_count == 0 ? " none" : text.data);
}

/* Whether a tensor of a sequence has a shape or a value, so that it is an input or a weight. */
static bool has_item(const struct inputs *inputs, const char *item)
{
    return find_shape(inputs, item) != NULL || find_const(inputs, item) != NULL;
}

/* Adds the names of the tensors of sequences to the names of ports. None may appear twice, and a
 * sequence itself may have neither a shape nor a value. */
static enum ul_status check_item_names(const struct inputs *inputs, struct ul_names *names)
{
    const struct ul_model_builder *builder = inputs->builder;
    const struct ul_model_port *ports = builder->model->inputs;
    for (uint32_t i = 0; i < builder->model->input_count; i++) {
        if (is_sequence(&ports[i]) && has_item(inputs, ports[i].name))
            return ul_diag_set(builder->diag, UL_USAGE,
                               "%s %s: it is a sequence: give each of its tensors a %s, %s and so "
                               "on",
                               find_shape(inputs, ports[i].name) != NULL ? "--shape" : "--const",
                               quote(inputs, ports[i].name),
                               find_shape(inputs, ports[i].name) != NULL ? "shape" : "value",
                               quote(inputs, item_name(inputs, ports[i].name, 0)));
        for (uint32_t k = 0; is_sequence(&ports[i]); k++) {
            const char *name = item_name(inputs, ports[i].name, k);
            if (!has_item(inputs, name))
                break;
            if (!ul_names_add(names, name, i))
                return ul_diag_set(builder->diag, UL_INVALID, "two inputs are called %s",
                                   quote(inputs, name));
        }
    }
    for (uint32_t i = 0; i < builder->options->shape_count; i++) {
        if (ul_names_find(names, builder->options->shapes[i].input) == UL_NONE)
            return unknown_input(inputs, "--shape", builder->options->shapes[i].input);
    }
    return UL_OK;
}

static enum ul_status check_names(const struct inputs *inputs)
{
    const struct ul_model_builder *builder = inputs->builder;
    struct ul_names names;
    ul_names_init(&names, builder->scratch);
    for (uint32_t i = 0; i < builder->model->input_count; i++) {
        const char *name = builder->model->inputs[i].name;
        if (name[0] == '\0')
            return ul_diag_set(builder->diag, UL_INVALID, "input %u has no name", (unsigned)i);
        if (!ul_names_add(&names, name, i))
            return ul_diag_set(builder->diag, UL_INVALID, "two inputs are called %s",
                               quote(inputs, name));
    }
    UL_TRY(check_item_names(inputs, &names));
    for (uint32_t i = 0; i < builder->options->const_count; i++) {
        if (ul_names_find(&names, builder->options->consts[i].input) == UL_NONE)
            return unknown_input(inputs, "--const", builder->options->consts[i].input);
    }
    return UL_OK;
}

static int64_t size_of(const struct inputs *inputs, const char *symbol)
{
    uint32_t index = ul_dimensions_find(&inputs->dimensions, symbol);
    UL_ASSERT(index != UL_NONE);
    return inputs->dimensions.items[index].size;
}

static void put_shape_hint(struct inputs *inputs, const struct ul_model_port *port)
{
    ul_text_put(&inputs->unbound, "give --shape ");
    ul_text_put(&inputs->unbound, ul_word_quote(inputs->builder->scratch, port->name));
    ul_text_put(&inputs->unbound, "=");
    for (uint32_t d = 0; port->rank != UL_RANK_UNKNOWN && d < port->rank; d++) {
        int64_t size = port->dims[d].size;
        if (size < 0 && port->dims[d].symbol != NULL)
            size = size_of(inputs, port->dims[d].symbol);
        ul_text_put(&inputs->unbound, d == 0 ? "" : ",");
        if (size >= 0)
            ul_text_printf(&inputs->unbound, "%lld", (long long)size);
        else
            ul_text_put(&inputs->unbound, "N");
    }
    if (port->rank == UL_RANK_UNKNOWN)
        ul_text_put(&inputs->unbound, "N,N,...");
}

/* Asks for the size of a dimension that has a name. */
static void ask_for(struct inputs *inputs, const struct ul_model_port *port, uint32_t axis)
{
    const char *flags = ul_dimensions_ask(&inputs->dimensions, port->dims[axis].symbol);
    if (flags[0] == '\0')
        return;
    ul_text_printf(&inputs->unbound, "\n  dimension %u of input %s: give %s", (unsigned)axis,
                   quote(inputs, port->name), flags);
    ul_record_put_range(inputs->builder, port->dims[axis].symbol, &inputs->unbound);
}

/* Fills `type` as far as it is known, and notes what is not known. */
static void close_type(struct inputs *inputs, const struct ul_model_port *port,
                       struct ul_type *type)
{
    const struct ul_frontend_shape *shape = find_shape(inputs, port->name);
    type->dtype = port->dtype;
    type->rank = shape != NULL ? shape->rank : port->rank;
    if (type->rank == UL_RANK_UNKNOWN) {
        ul_text_printf(&inputs->unbound, "\n  input %s has no shape: ", quote(inputs, port->name));
        put_shape_hint(inputs, port);
        inputs->builder->model->has_unnamed_dims = true;
        return;
    }
    for (uint32_t d = 0; d < type->rank; d++) {
        const struct ul_model_dim *dim = port->rank == UL_RANK_UNKNOWN ? NULL : &port->dims[d];
        type->dims[d] = shape != NULL ? shape->dims[d] : dim->size;
        if (type->dims[d] >= 0 || dim == NULL)
            continue;
        if (dim->symbol == NULL) {
            ul_text_printf(&inputs->unbound,
                           "\n  dimension %u of input %s has no name: ", (unsigned)d,
                           quote(inputs, port->name));
            put_shape_hint(inputs, port);
            inputs->builder->model->has_unnamed_dims = true;
            continue;
        }
        type->dims[d] = size_of(inputs, dim->symbol);
        if (type->dims[d] < 0)
            ask_for(inputs, port, d);
    }
    for (uint32_t d = 0; d < type->rank; d++) {
        if (type->dims[d] < 0) {
            *type = (struct ul_type){.dtype = type->dtype, .rank = UL_RANK_UNKNOWN};
            return;
        }
    }
}

static enum ul_status check_port(struct inputs *inputs, const struct ul_model_port *port)
{
    struct ul_model_builder *builder = inputs->builder;
    if (strcmp(port->kind, "unknown") == 0)
        return ul_diag_set(builder->diag, UL_INVALID, "input %s has no type",
                           quote(inputs, port->name));
    if (is_sequence(port) && port->dtype == UL_DTYPE_NONE) {
        ul_builder_problem(builder, "", "input", port->name,
                           "is a sequence of something else than tensors, which alone are "
                           "supported; export the model with tensor inputs");
        return UL_OK;
    }
    if (!is_sequence(port) && strcmp(port->kind, "tensor") != 0) {
        ul_builder_problem(builder, "", "input", port->name,
                           ul_arena_printf(builder->scratch,
                                           "is %s %s; only dense tensors are supported, so export "
                                           "the model with tensor inputs",
                                           port->kind[0] == 'o' ? "an" : "a", port->kind));
        return UL_OK;
    }
    if (port->rank != UL_RANK_UNKNOWN && port->rank > UL_LIMIT_RANK)
        return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                           "input %s: rank %u is above the limit of %d", quote(inputs, port->name),
                           (unsigned)port->rank, UL_LIMIT_RANK);
    if (!ul_dtype_is_computed(port->dtype))
        ul_builder_problem(builder, "", "input", port->name,
                           ul_arena_printf(builder->scratch,
                                           "has element type %s, which is not "
                                           "computed with",
                                           ul_dtype_get(port->dtype)->name));
    return UL_OK;
}

static enum ul_status wrong_const(const struct inputs *inputs, const char *name,
                                  enum ul_dtype wanted, const struct ul_tensor *constant)
{
    return ul_diag_set(inputs->builder->diag, UL_USAGE, "--const: input %s is %s, not %s",
                       quote(inputs, name), ul_dtype_get(wanted)->name,
                       ul_dtype_get(constant->type.dtype)->name);
}

/* Adds a tensor of a sequence: an input, or a weight where it is a constant of the compile. */
static enum ul_status add_item(struct inputs *inputs, const char *name, enum ul_dtype dtype,
                               ul_value_id *item)
{
    struct ul_model_builder *builder = inputs->builder;
    const struct ul_tensor *constant = find_const(inputs, name);
    const struct ul_frontend_shape *shape = find_shape(inputs, name);
    if (constant != NULL && constant->type.dtype != dtype)
        return wrong_const(inputs, name, dtype, constant);
    struct ul_type type =
        constant != NULL ? constant->type : ul_type_make(dtype, shape->rank, shape->dims);
    if (!ul_dtype_is_computed(type.dtype) || !ul_type_in_limits(&type))
        return ul_diag_set(builder->diag, UL_UNSUPPORTED, "input %s: no tensor can be like that",
                           quote(inputs, name));
    if (constant != NULL) {
        *item = ul_graph_add_weight(builder->graph, name, constant);
        return UL_OK;
    }
    *item = ul_graph_add_value(builder->graph, name, UL_VALUE_INPUT, &type);
    ul_block_add_input(builder->graph, 0, *item);
    return UL_OK;
}

/* Adds the tensors of a sequence: those that have a shape or a value. */
static enum ul_status add_sequence(struct inputs *inputs, const struct ul_model_port *port,
                                   struct ul_scope *scope)
{
    struct ul_model_builder *builder = inputs->builder;
    ul_value_id *items = NULL;
    uint32_t count = 0, capacity = 0;
    const char *name;
    while (has_item(inputs, name = item_name(inputs, port->name, count))) {
        UL_GROW(builder->scratch, items, count, capacity);
        UL_TRY(add_item(inputs, ul_arena_copy_string(builder->graph->arena, name), port->dtype,
                        &items[count++]));
    }
    return ul_scope_bind(builder, scope, port->name,
                         ul_builder_add_sequence(builder, items, count));
}

/* Notes that the number and shapes of the tensors of a sequence are open, like a dimension without
 * a size. A value without a producer stands for the sequence until they are given. */
static enum ul_status add_open_sequence(struct inputs *inputs, const struct ul_model_port *port,
                                        struct ul_scope *scope)
{
    struct ul_model_builder *builder = inputs->builder;
    ul_text_printf(
        &inputs->unbound,
        "\n  input %s is a sequence: give each of its tensors a shape, --shape %s=N,N,... and so "
        "on; one without tensors is not supported",
        quote(inputs, port->name),
        ul_word_quote(builder->scratch, item_name(inputs, port->name, 0)));
    builder->model->has_unnamed_dims = true;
    return ul_scope_bind(builder, scope, port->name,
                         ul_graph_add_value(builder->graph, port->name, UL_VALUE_NODE, NULL));
}

static enum ul_status add_input(struct inputs *inputs, struct ul_model_port *port,
                                struct ul_scope *scope)
{
    struct ul_model_builder *builder = inputs->builder;
    if (is_sequence(port) && has_item(inputs, item_name(inputs, port->name, 0)))
        return add_sequence(inputs, port, scope);
    UL_TRY(check_port(inputs, port));
    if (is_sequence(port) && ul_dtype_is_computed(port->dtype))
        return add_open_sequence(inputs, port, scope);
    const struct ul_tensor *constant = find_const(inputs, port->name);
    if (constant != NULL) {
        if (port->dtype != constant->type.dtype)
            return wrong_const(inputs, port->name, port->dtype, constant);
        port->is_weight = true;
        return ul_scope_bind(builder, scope, port->name,
                             ul_graph_add_weight(builder->graph, port->name, constant));
    }
    struct ul_type type = {.rank = UL_RANK_UNKNOWN};
    if (strcmp(port->kind, "tensor") == 0)
        close_type(inputs, port, &type);
    if (type.rank != UL_RANK_UNKNOWN && !ul_type_in_limits(&type))
        return ul_diag_set(builder->diag, UL_INVALID,
                           "input %s: its shape takes more bytes than a tensor may have",
                           quote(inputs, port->name));
    ul_value_id value = ul_graph_add_value(builder->graph, port->name, UL_VALUE_INPUT, &type);
    ul_block_add_input(builder->graph, 0, value);
    return ul_scope_bind(builder, scope, port->name, value);
}

enum ul_status ul_inputs_build(struct ul_model_builder *builder, struct ul_scope *scope,
                               const char **unbound)
{
    struct inputs inputs = {.builder = builder};
    ul_dimensions_init(&inputs.dimensions, builder);
    ul_dimensions_describe(&inputs.dimensions);
    ul_text_init(&inputs.unbound, builder->scratch);
    *unbound = NULL;
    UL_TRY(check_names(&inputs));
    UL_TRY(apply_options(&inputs));
    UL_TRY(check_dims(&inputs));
    UL_TRY(ul_dimensions_settle(&inputs.dimensions));
    ul_dimensions_describe(&inputs.dimensions);
    /* describe.c made the ports; this marks those that are constants. */
    struct ul_model_port *ports = ul_arena_copy(builder->graph->arena, builder->model->inputs,
                                                sizeof *ports * builder->model->input_count);
    for (uint32_t i = 0; i < builder->model->input_count; i++)
        UL_TRY(add_input(&inputs, &ports[i], scope));
    builder->model->inputs = ports;
    if (inputs.unbound.length > 0)
        *unbound = inputs.unbound.data;
    return UL_OK;
}
