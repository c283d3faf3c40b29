/* SPDX-License-Identifier: Apache-2.0 */
/* Turns AttributeProto into attributes of the graph. References in bodies of functions are resolved
 * to what the caller gave. */
#include "frontend/frontend_internal.h"
#include "ir/op.h"

#include <string.h>

const Onnx__AttributeProto *ul_attribute_resolve(const struct ul_model_builder *builder,
                                                 const Onnx__AttributeProto *attr)
{
    if (attr->ref_attr_name == NULL || attr->ref_attr_name[0] == '\0')
        return attr;
    const struct ul_bindings *bindings = builder->bindings;
    for (uint32_t i = 0; bindings != NULL && i < bindings->count; i++) {
        if (strcmp(bindings->names[i], attr->ref_attr_name) == 0)
            return bindings->attrs[i];
    }
    return NULL;
}

/* IR versions before 2 had no type field; then the field that is filled says it. */
static int type_of(const Onnx__AttributeProto *attr)
{
    if (attr->type != 0)
        return (int)attr->type;
    if (attr->n_ints > 0)
        return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    if (attr->n_floats > 0)
        return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS;
    if (attr->n_strings > 0)
        return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS;
    if (attr->t != NULL)
        return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    if (attr->g != NULL)
        return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
    if (attr->has_s)
        return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
    if (attr->has_i)
        return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    if (attr->has_f)
        return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    return 0;
}

static enum ul_status bad(const struct ul_old_node *node, const char *name, const char *what)
{
    struct ul_model_builder *builder = node->builder;
    return ul_diag_set(builder->diag, UL_INVALID, "%s: attribute %s %s",
                       ul_builder_describe(builder, node->name, node->op),
                       ul_quote(builder->scratch, name), what);
}

static bool string_of(struct ul_arena *arena, const ProtobufCBinaryData *bytes, const char **out)
{
    if (bytes->len > 0 && memchr(bytes->data, 0, bytes->len) != NULL)
        return false;
    char *text = ul_arena_alloc(arena, (uint64_t)bytes->len + 1);
    if (bytes->len > 0)
        memcpy(text, bytes->data, bytes->len);
    *out = text;
    return true;
}

static bool decode_strings(struct ul_arena *arena, const Onnx__AttributeProto *proto,
                           struct ul_attr *attr)
{
    const char **strings = UL_NEW_ARRAY(arena, const char *, proto->n_strings);
    for (size_t i = 0; i < proto->n_strings; i++) {
        if (!string_of(arena, &proto->strings[i], &strings[i]))
            return false;
    }
    attr->strings = strings;
    return true;
}

static void decode_floats(struct ul_arena *arena, const Onnx__AttributeProto *proto,
                          struct ul_attr *attr)
{
    double *floats = UL_NEW_ARRAY(arena, double, proto->n_floats);
    for (size_t i = 0; i < proto->n_floats; i++)
        floats[i] = (double)proto->floats[i];
    attr->floats = floats;
}

/* Attributes that are graphs, by name, and their index among the blocks of their node. */
static const struct {
    const char *name;
    uint32_t slot;
} graph_slots[] = {
    {"then_branch", 0}, {"else_branch", 1}, {"body", 0}, {"score_mod", 0}, {"prob_mod", 1}};

static enum ul_status add_graph(struct ul_old_node *node, const char *name,
                                const Onnx__GraphProto *graph)
{
    enum { SLOTS = sizeof graph_slots / sizeof *graph_slots };
    uint32_t at = 0;
    while (at < SLOTS && strcmp(name, graph_slots[at].name) != 0)
        at++;
    bool is_known = at < SLOTS;
    uint32_t slot = is_known ? graph_slots[at].slot : 0;
    if (graph == NULL)
        return bad(node, name, "says that it holds a graph, but has none");
    if (!is_known && ul_op_find(node->domain, node->op) == UL_OP_NONE)
        return UL_OK; /* the operator is not supported, which is reported once for the whole node */
    if (!is_known)
        return bad(node, name, "is a graph, which no operator has by this name");
    if (node->graphs[slot] != NULL)
        return bad(node, name, "appears twice");
    node->graphs[slot] = graph;
    node->graph_count++;
    return UL_OK;
}

static enum ul_status decode_one(struct ul_old_node *node, const char *name,
                                 const Onnx__AttributeProto *proto)
{
    struct ul_model_builder *builder = node->builder;
    struct ul_arena *arena = builder->graph->arena;
    struct ul_attr attr = {.name = ul_arena_copy_string(arena, name)};
    switch (type_of(proto)) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
        attr.kind = UL_ATTR_INT;
        attr.i = proto->i;
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
        attr.kind = UL_ATTR_FLOAT;
        attr.f = (double)proto->f;
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
        attr.kind = UL_ATTR_STRING;
        if (!string_of(arena, &proto->s, &attr.s))
            return bad(node, name, "holds a NUL byte");
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
        attr.kind = UL_ATTR_INTS;
        attr.count = (uint32_t)proto->n_ints;
        attr.ints = ul_arena_copy(arena, proto->ints, sizeof *proto->ints * proto->n_ints);
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
        attr.kind = UL_ATTR_FLOATS;
        attr.count = (uint32_t)proto->n_floats;
        decode_floats(arena, proto, &attr);
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS:
        attr.kind = UL_ATTR_STRINGS;
        attr.count = (uint32_t)proto->n_strings;
        if (!decode_strings(arena, proto, &attr))
            return bad(node, name, "holds a NUL byte");
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
        attr.kind = UL_ATTR_TENSOR;
        if (proto->t == NULL)
            return bad(node, name, "says that it holds a tensor, but has none");
        UL_TRY(ul_tensor_decode(builder, proto->t, ul_builder_name(builder, node->name),
                                &attr.tensor));
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH:
        return add_graph(node, name, proto->g);
    case 0:
        return bad(node, name, "has no type");
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO:
        if (strcmp(node->op, "Optional") == 0)
            return UL_OK; /* the blocks that there would be; sequence.c asks whether there are any
                           */
        /* fall through */
    default:
        ul_old_problem(node, "an attribute is a list of graphs or of tensors, a sparse tensor or "
                             "a type; only dense tensors are supported");
        return UL_OK;
    }
    UL_GROW(builder->scratch, node->attrs, node->attr_count, node->attr_capacity);
    node->attrs[node->attr_count++] = attr;
    return UL_OK;
}

enum ul_status ul_attributes_decode(struct ul_old_node *node, const Onnx__NodeProto *proto)
{
    if (proto->n_attribute > UL_LIMIT_NODE_INPUTS)
        return bad(node, "", "list is too long");
    for (size_t i = 0; i < proto->n_attribute; i++) {
        const char *name = proto->attribute[i]->name;
        const Onnx__AttributeProto *attr = ul_attribute_resolve(node->builder, proto->attribute[i]);
        if (name == NULL || name[0] == '\0')
            return bad(node, "", "without a name");
        if (attr == NULL || strncmp(name, "__", 2) == 0)
            continue; /* a function's attribute that the caller left out, or a tool's note */
        if (ul_old_attr(node, name) != NULL)
            return bad(node, name, "appears twice");
        const char *wrong = ul_schema_wrong(node, name, type_of(attr));
        if (wrong != NULL)
            return bad(node, name, wrong);
        UL_TRY(decode_one(node, name, attr));
    }
    return UL_OK;
}
