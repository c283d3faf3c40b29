/* SPDX-License-Identifier: Apache-2.0 */
/* Model-local functions: a call is replaced by the function's body.
 *
 * A body sees its formal inputs, and nothing else of the graph around the call. Attribute
 * references resolve to what the caller gave, or to the function's default. Bodies call other
 * functions, but never themselves. Names inside get the call's name as a prefix. */
#include "frontend/frontend_internal.h"

#include <string.h>

static const char *overload_of(const ProtobufCMessage *message, uint32_t field,
                               struct ul_arena *arena)
{
    const unsigned char *data = NULL;
    size_t size = 0;
    if (!ul_proto_unknown(message, field, 0, &data, &size))
        return "";
    char *text = ul_arena_alloc(arena, (uint64_t)size + 1);
    if (size > 0)
        memcpy(text, data, size);
    return text;
}

static const char *function_key(struct ul_arena *arena, const char *domain, const char *name,
                                const char *overload)
{
    return ul_arena_printf(arena, "%s\x01%s\x01%s", ul_domain_canonical(domain),
                           name == NULL ? "" : name, overload);
}

enum ul_status ul_functions_index(struct ul_model_builder *builder)
{
    ul_names_init(&builder->functions, builder->scratch);
    for (size_t i = 0; i < builder->proto->n_functions; i++) {
        const Onnx__FunctionProto *function = builder->proto->functions[i];
        const char *overload =
            overload_of(&function->base, UL_WIRE_FUNCTION_OVERLOAD, builder->scratch);
        const char *key =
            function_key(builder->scratch, function->domain, function->name, overload);
        if (!ul_names_add(&builder->functions, key, (uint32_t)i))
            return ul_diag_set(
                builder->diag, UL_INVALID, "function %s is defined twice",
                ul_quote(builder->scratch, function->name == NULL ? "" : function->name));
    }
    return UL_OK;
}

const Onnx__FunctionProto *ul_function_find(const struct ul_model_builder *builder,
                                            const Onnx__NodeProto *node)
{
    if (builder->functions.count == 0)
        return NULL;
    const char *overload = overload_of(&node->base, UL_WIRE_NODE_OVERLOAD, builder->scratch);
    const char *key = function_key(builder->scratch, node->domain, node->op_type, overload);
    uint32_t index = ul_names_find(&builder->functions, key);
    return index == UL_NONE ? NULL : builder->proto->functions[index];
}

static void bind(struct ul_bindings *bindings, const char *name, const Onnx__AttributeProto *attr)
{
    for (uint32_t i = 0; i < bindings->count; i++) {
        if (strcmp(bindings->names[i], name) == 0)
            return;
    }
    bindings->names[bindings->count] = name;
    bindings->attrs[bindings->count++] = attr;
}

/* Binds attributes: what the caller gave comes before the function's defaults. */
static enum ul_status bind_attributes(struct ul_model_builder *builder,
                                      const Onnx__FunctionProto *function,
                                      const Onnx__NodeProto *node, struct ul_bindings *bindings)
{
    uint32_t defaults = 0;
    const unsigned char *data = NULL;
    size_t size = 0;
    while (ul_proto_unknown(&function->base, UL_WIRE_FUNCTION_ATTRIBUTE, defaults, &data, &size))
        defaults++;
    uint64_t max = (uint64_t)node->n_attribute + defaults;
    bindings->names = UL_NEW_ARRAY(builder->scratch, const char *, max);
    bindings->attrs = UL_NEW_ARRAY(builder->scratch, const Onnx__AttributeProto *, max);
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__AttributeProto *attr = ul_attribute_resolve(builder, node->attribute[i]);
        if (attr != NULL && node->attribute[i]->name != NULL)
            bind(bindings, node->attribute[i]->name, attr);
    }
    for (uint32_t i = 0; i < defaults; i++) {
        (void)ul_proto_unknown(&function->base, UL_WIRE_FUNCTION_ATTRIBUTE, i, &data, &size);
        const Onnx__AttributeProto *attr =
            onnx__attribute_proto__unpack(builder->allocator, size, data);
        if (attr == NULL || attr->name == NULL)
            return ul_diag_set(builder->diag, UL_INVALID,
                               "function %s: a default attribute cannot be read",
                               ul_quote(builder->scratch, function->name));
        bind(bindings, attr->name, attr);
    }
    return UL_OK;
}

static enum ul_status bind_inputs(struct ul_model_builder *builder,
                                  const Onnx__FunctionProto *function,
                                  const struct ul_old_node *node, struct ul_scope *scope)
{
    if (node->input_count > function->n_input || node->output_count > function->n_output)
        return ul_diag_set(builder->diag, UL_INVALID,
                           "%s: called with %u inputs and %u outputs, but the function has %zu "
                           "and %zu",
                           ul_builder_describe(builder, node->name, node->op),
                           (unsigned)node->input_count, (unsigned)node->output_count,
                           function->n_input, function->n_output);
    for (uint32_t i = 0; i < function->n_input; i++) {
        ul_value_id value = i < node->input_count ? node->inputs[i] : UL_NONE;
        UL_TRY(ul_scope_bind(builder, scope, function->input[i],
                             value == UL_NONE ? UL_ABSENT : value));
    }
    return UL_OK;
}

enum ul_status ul_function_enter(struct ul_model_builder *builder, const struct ul_old_node *node,
                                 const Onnx__FunctionProto *function)
{
    for (uint32_t i = 0; function != NULL && i < builder->active_count; i++) {
        if (builder->active[i] == function)
            return ul_diag_set(builder->diag, UL_INVALID, "%s: the function calls itself",
                               ul_builder_describe(builder, node->name, node->op));
    }
    if (builder->depth >= UL_LIMIT_NESTING)
        return ul_diag_set(builder->diag, UL_INVALID,
                           "%s: functions and graphs are nested more than %d deep",
                           ul_builder_describe(builder, node->name, node->op), UL_LIMIT_NESTING);
    if (++builder->call_count > UL_LIMIT_CALLS)
        return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                           "%s: the model calls its functions, and graphs that sequences go "
                           "through, more than %u times, counting calls inside them",
                           ul_builder_describe(builder, node->name, node->op), UL_LIMIT_CALLS);
    if (builder->active_count == 0)
        builder->inlined_from_bytes = ul_builder_used_bytes(builder);
    builder->active[builder->active_count++] = function;
    builder->depth++;
    return UL_OK;
}

void ul_function_leave(struct ul_model_builder *builder)
{
    UL_ASSERT(builder->active_count > 0 && builder->depth > 0);
    builder->depth--;
    builder->active_count--;
    if (builder->active_count == 0)
        builder->inlined_bytes = ul_builder_inlined_bytes(builder);
}

/* Takes the function's own imports; for other domains the model's imports hold. */
static void own_opsets(struct ul_model_builder *builder, const Onnx__FunctionProto *function,
                       struct ul_opsets *opsets)
{
    const struct ul_opsets *outer = builder->opsets;
    struct ul_model_opset *sets = UL_NEW_ARRAY(builder->scratch, struct ul_model_opset,
                                               (uint64_t)function->n_opset_import + outer->count);
    for (size_t i = 0; i < function->n_opset_import; i++) {
        sets[opsets->count].domain = ul_domain_canonical(function->opset_import[i]->domain);
        sets[opsets->count++].version = function->opset_import[i]->version;
    }
    UL_ASSERT(opsets->count == function->n_opset_import);
    opsets->sets = sets;
    for (uint32_t i = 0; i < outer->count; i++) {
        if (ul_opsets_version(opsets, outer->sets[i].domain) == 0)
            sets[opsets->count++] = outer->sets[i];
    }
}

static enum ul_status bind_outputs(struct ul_model_builder *builder,
                                   const Onnx__FunctionProto *function, struct ul_old_node *node,
                                   const struct ul_scope *scope)
{
    UL_ASSERT(node->output_count <= function->n_output);
    for (uint32_t i = 0; i < node->output_count; i++) {
        ul_value_id value = ul_scope_find(scope, function->output[i]);
        node->results[i] = value;
        if (value == UL_NONE || value == UL_ABSENT)
            return ul_diag_set(builder->diag, UL_INVALID,
                               "%s: the function's output %s is made by none of its nodes",
                               ul_builder_describe(builder, node->name, node->op),
                               ul_quote(builder->scratch, function->output[i]));
        if (ul_sequence_is(value))
            continue;
        struct ul_value *result = &builder->graph->values[value];
        if (result->kind == UL_VALUE_NODE && node->outputs[i][0] != '\0')
            result->name = ul_builder_name(builder, node->outputs[i]);
    }
    return UL_OK;
}

enum ul_status ul_function_inline(struct ul_model_builder *builder,
                                  const Onnx__FunctionProto *function, const Onnx__NodeProto *proto,
                                  struct ul_old_node *node)
{
    struct ul_model_builder saved = *builder;
    struct ul_scope scope = {0};
    struct ul_bindings bindings = {0};
    struct ul_opsets opsets = {0};
    ul_names_init(&scope.names, builder->scratch);
    UL_TRY(ul_function_enter(builder, node, function));
    UL_TRY(bind_attributes(builder, function, proto, &bindings));
    UL_TRY(bind_inputs(builder, function, node, &scope));
    own_opsets(builder, function, &opsets);
    UL_TRY(ul_opsets_check(builder, &opsets));
    builder->bindings = &bindings;
    builder->opsets = &opsets;
    builder->prefix = ul_arena_printf(builder->scratch, "%s%s/", saved.prefix,
                                      node->name[0] != '\0' ? node->name : node->op);
    UL_TRY(ul_build_nodes(builder, function->n_node, function->node, &scope));
    builder->bindings = saved.bindings;
    builder->opsets = saved.opsets;
    builder->prefix = saved.prefix;
    ul_function_leave(builder);
    return bind_outputs(builder, function, node, &scope);
}
