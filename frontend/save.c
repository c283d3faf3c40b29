/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a graph as an ONNX file.
 *
 * Method: the graph's message is a list of pieces: heads that are written here, and the borrowed
 * bytes of weights. Its length is known when all pieces are there, and the head of the model goes
 * before it. Names are those of the graph; a value whose name an earlier value has gets its number
 * added. Left undone: nested graphs (If, Loop, Scan) and models over 2 GiB are refused. */
#include "frontend/frontend_internal.h"
#include "ir/op.h"

#include <string.h>

/* The operator set that is written. Rows of the operator table have the newest semantics; since
 * this set, operators gained only types and attributes that graphs of older models do not use. */
enum { SAVED_OPSET = 21, SAVED_IR_VERSION = 10 };

struct piece {
    const void *data;
    uint64_t size_bytes;
};

struct save {
    struct ul_arena *arena;
    const struct ul_graph *graph;
    struct ul_diag *diag;
    const char **names; /* for each value */
    struct piece *pieces;
    uint32_t count, capacity;
    uint64_t size_bytes; /* of all pieces */
    const char **domains;
    uint32_t domain_count, domain_capacity;
};

static void put_piece(struct save *save, const void *data, uint64_t size_bytes)
{
    UL_GROW(save->arena, save->pieces, save->count, save->capacity);
    save->pieces[save->count++] = (struct piece){data, size_bytes};
    save->size_bytes = ul_size_add_or_die(save->size_bytes, size_bytes);
}

static void put_number(struct ul_text *text, uint32_t field, int64_t value)
{
    ul_wire_put_key(text, field, UL_WIRE_VARINT);
    ul_wire_put_varint(text, (uint64_t)value);
}

static void put_message(struct ul_text *text, uint32_t field, const struct ul_text *message)
{
    ul_wire_put_bytes(text, field, message->data, message->length);
}

static void put_float(struct ul_text *text, uint32_t field, double value)
{
    float narrow = (float)value;
    unsigned char bytes[sizeof narrow];
    memcpy(bytes, &narrow, sizeof narrow);
    ul_wire_put_key(text, field, UL_WIRE_FIXED32);
    ul_text_put_bytes(text, bytes, sizeof bytes);
}

/* ---- names ---- */

static void name_value(struct save *save, struct ul_names *taken, ul_value_id value)
{
    const char *name = save->graph->values[value].name;
    if (save->names[value] != NULL)
        return;
    if (name[0] == '\0' || !ul_names_add(taken, name, value)) {
        name = ul_arena_printf(save->arena, "%s__%u", name, (unsigned)value);
        while (!ul_names_add(taken, name, value))
            name = ul_arena_printf(save->arena, "%s_", name);
    }
    save->names[value] = name;
}

/* The model's own inputs and outputs come first: their names are a contract. */
static void name_values(struct save *save)
{
    const struct ul_block *root = ul_graph_only_root(save->graph);
    struct ul_names taken;
    ul_names_init(&taken, save->arena);
    save->names = UL_NEW_ARRAY(save->arena, const char *, save->graph->value_count);
    for (uint32_t i = 0; i < root->input_count; i++)
        name_value(save, &taken, root->inputs[i]);
    for (uint32_t i = 0; i < root->output_count; i++)
        name_value(save, &taken, root->outputs[i]);
    for (uint32_t v = 0; v < save->graph->value_count; v++) {
        if (save->graph->values[v].kind != UL_VALUE_DEAD)
            name_value(save, &taken, v);
    }
}

/* ---- tensors ---- */

static const unsigned char *raw_bytes(struct save *save, const struct ul_tensor *tensor)
{
    bool packs = ul_dtype_get(tensor->type.dtype)->bits < 8;
    if (tensor->data != NULL && !packs)
        return tensor->data;
    unsigned char *bytes = ul_arena_alloc(save->arena, ul_type_bytes(&tensor->type));
    if (packs)
        ul_tensor_pack(tensor, bytes);
    else
        ul_tensor_read(tensor, 0, ul_type_elements(&tensor->type), bytes);
    return bytes;
}

static void put_tensor_head(struct ul_text *text, const struct ul_tensor *tensor, const char *name)
{
    for (uint32_t d = 0; d < tensor->type.rank; d++)
        put_number(text, 1, tensor->type.dims[d]);
    put_number(text, 2, (int64_t)tensor->type.dtype);
    if (name != NULL)
        ul_wire_put_string(text, 8, name);
    ul_wire_put_key(text, 9, UL_WIRE_BYTES);
    ul_wire_put_varint(text, ul_type_packed_bytes(&tensor->type));
}

/* Writes the weight as an initializer: its data are a piece of their own. */
static void put_weight(struct save *save, ul_value_id value)
{
    const struct ul_tensor *tensor = save->graph->values[value].tensor;
    UL_ASSERT(tensor != NULL && save->names[value] != NULL);
    uint64_t stored_bytes = ul_type_packed_bytes(&tensor->type);
    struct ul_text head, inner;
    ul_text_init(&inner, save->arena);
    put_tensor_head(&inner, tensor, save->names[value]);
    ul_text_init(&head, save->arena);
    ul_wire_put_key(&head, 5, UL_WIRE_BYTES);
    ul_wire_put_varint(&head, ul_size_add_or_die(inner.length, stored_bytes));
    ul_text_put_bytes(&head, inner.data, inner.length);
    put_piece(save, head.data, head.length);
    put_piece(save, raw_bytes(save, tensor), stored_bytes);
}

/* ---- nodes ---- */

/* Fields and types have the numbers of AttributeProto and its AttributeType. */
static void put_attribute(struct save *save, struct ul_text *node, const struct ul_attr *attr)
{
    static const int64_t types[] = {
        [UL_ATTR_FLOAT] = 1,  [UL_ATTR_INT] = 2,  [UL_ATTR_STRING] = 3, [UL_ATTR_TENSOR] = 4,
        [UL_ATTR_FLOATS] = 6, [UL_ATTR_INTS] = 7, [UL_ATTR_STRINGS] = 8};
    struct ul_text text, tensor;
    ul_text_init(&text, save->arena);
    ul_wire_put_string(&text, 1, attr->name);
    switch (attr->kind) {
    case UL_ATTR_FLOAT:
        put_float(&text, 2, attr->f);
        break;
    case UL_ATTR_INT:
        put_number(&text, 3, attr->i);
        break;
    case UL_ATTR_STRING:
        ul_wire_put_string(&text, 4, attr->s);
        break;
    case UL_ATTR_TENSOR:
        ul_text_init(&tensor, save->arena);
        put_tensor_head(&tensor, attr->tensor, NULL);
        ul_text_put_bytes(&tensor, raw_bytes(save, attr->tensor),
                          (size_t)ul_type_packed_bytes(&attr->tensor->type));
        put_message(&text, 5, &tensor);
        break;
    case UL_ATTR_FLOATS:
        for (uint32_t i = 0; i < attr->count; i++)
            put_float(&text, 7, attr->floats[i]);
        break;
    case UL_ATTR_INTS:
        for (uint32_t i = 0; i < attr->count; i++)
            put_number(&text, 8, attr->ints[i]);
        break;
    case UL_ATTR_STRINGS:
        for (uint32_t i = 0; i < attr->count; i++)
            ul_wire_put_string(&text, 9, attr->strings[i]);
        break;
    }
    put_number(&text, 20, types[attr->kind]);
    put_message(node, 5, &text);
}

static void add_domain(struct save *save, const char *domain)
{
    for (uint32_t i = 0; i < save->domain_count; i++) {
        if (strcmp(save->domains[i], domain) == 0)
            return;
    }
    UL_GROW(save->arena, save->domains, save->domain_count, save->domain_capacity);
    save->domains[save->domain_count++] = domain;
}

static enum ul_status put_node(struct save *save, ul_node_id id)
{
    const struct ul_node *node = &save->graph->nodes[id];
    const struct ul_op_info *info = ul_op_get(node->op);
    struct ul_text text, outer;
    if (node->block_count > 0)
        return ul_diag_set(save->diag, UL_UNSUPPORTED,
                           "%s has graphs of its own, which cannot be written as ONNX again",
                           ul_node_describe(save->graph, id, save->arena));
    ul_text_init(&text, save->arena);
    for (uint32_t k = 0; k < node->input_count; k++)
        ul_wire_put_string(&text, 1,
                           node->inputs[k] == UL_NONE ? "" : save->names[node->inputs[k]]);
    for (uint32_t k = 0; k < node->output_count; k++)
        ul_wire_put_string(&text, 2,
                           node->outputs[k] == UL_NONE ? "" : save->names[node->outputs[k]]);
    ul_wire_put_string(&text, 3, node->name);
    ul_wire_put_string(&text, 4, info->name);
    for (uint32_t a = 0; a < node->attr_count; a++)
        put_attribute(save, &text, &node->attrs[a]);
    if (info->domain != NULL) {
        ul_wire_put_string(&text, 7, info->domain);
        add_domain(save, info->domain);
    }
    ul_text_init(&outer, save->arena);
    put_message(&outer, 1, &text);
    put_piece(save, outer.data, outer.length);
    return UL_OK;
}

/* ---- the graph and the model ---- */

static void put_port(struct save *save, uint32_t field, ul_value_id value)
{
    const struct ul_type *type = &save->graph->values[value].type;
    struct ul_text shape, tensor, kind, port, outer;
    ul_text_init(&shape, save->arena);
    for (uint32_t d = 0; d < type->rank; d++) {
        struct ul_text dim;
        ul_text_init(&dim, save->arena);
        put_number(&dim, 1, type->dims[d]);
        put_message(&shape, 1, &dim);
    }
    ul_text_init(&tensor, save->arena);
    put_number(&tensor, 1, (int64_t)type->dtype);
    put_message(&tensor, 2, &shape);
    ul_text_init(&kind, save->arena);
    put_message(&kind, 1, &tensor);
    ul_text_init(&port, save->arena);
    ul_wire_put_string(&port, 1, save->names[value]);
    put_message(&port, 2, &kind);
    ul_text_init(&outer, save->arena);
    put_message(&outer, field, &port);
    put_piece(save, outer.data, outer.length);
}

static enum ul_status put_graph(struct save *save)
{
    const struct ul_graph *graph = save->graph;
    const struct ul_block *root = ul_graph_only_root(graph);
    struct ul_text name;
    for (uint32_t i = 0; i < root->node_count; i++)
        UL_TRY(put_node(save, root->nodes[i]));
    ul_text_init(&name, save->arena);
    ul_wire_put_string(&name, 2, graph->name);
    put_piece(save, name.data, name.length);
    const uint32_t *uses = ul_graph_count_uses(graph, save->arena);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind == UL_VALUE_WEIGHT && uses[v] > 0)
            put_weight(save, v);
    }
    for (uint32_t i = 0; i < root->input_count; i++)
        put_port(save, 11, root->inputs[i]);
    for (uint32_t i = 0; i < root->output_count; i++)
        put_port(save, 12, root->outputs[i]);
    return UL_OK;
}

static void put_opset(struct save *save, struct ul_text *model, const char *domain, int64_t version)
{
    struct ul_text opset;
    ul_text_init(&opset, save->arena);
    ul_wire_put_string(&opset, 1, domain);
    put_number(&opset, 2, version);
    put_message(model, 8, &opset);
}

/* Writes all of the model except the graph's own bytes. */
static void put_model_head(struct save *save, struct ul_text *head)
{
    ul_text_init(head, save->arena);
    put_number(head, 1, SAVED_IR_VERSION);
    ul_wire_put_string(head, 2, "ullage");
    ul_wire_put_string(head, 3, UL_VERSION);
    put_opset(save, head, "", SAVED_OPSET);
    for (uint32_t i = 0; i < save->domain_count; i++)
        put_opset(save, head, save->domains[i], 1);
    ul_wire_put_key(head, 7, UL_WIRE_BYTES);
    ul_wire_put_varint(head, save->size_bytes);
}

static enum ul_status write(struct save *save, const char *path)
{
    struct ul_file_writer writer;
    struct ul_text head;
    UL_TRY(put_graph(save));
    if (save->size_bytes > INT32_MAX)
        return ul_diag_set(save->diag, UL_UNSUPPORTED,
                           "%s: would be over 2 GiB, which a model in "
                           "one file cannot be",
                           path);
    put_model_head(save, &head);
    UL_TRY(ul_file_begin(&writer, path, save->diag));
    fwrite(head.data, 1, head.length, writer.stream);
    for (uint32_t i = 0; i < save->count; i++)
        fwrite(save->pieces[i].data, 1, (size_t)save->pieces[i].size_bytes, writer.stream);
    return ul_file_commit(&writer, save->diag);
}

enum ul_status ul_frontend_save(const struct ul_graph *graph, const char *path,
                                struct ul_diag *diag)
{
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct save save = {.arena = &arena, .graph = graph, .diag = diag};
    name_values(&save);
    enum ul_status status = write(&save, path);
    ul_arena_done(&arena);
    return status;
}

enum ul_status ul_frontend_write_tensor(const struct ul_tensor *tensor, const char *name,
                                        const char *path, struct ul_diag *diag)
{
    struct ul_arena arena;
    struct ul_file_writer writer;
    struct ul_text head;
    ul_arena_init(&arena);
    struct save save = {.arena = &arena, .diag = diag};
    ul_text_init(&head, &arena);
    put_tensor_head(&head, tensor, name);
    enum ul_status status = ul_file_begin(&writer, path, diag);
    if (status == UL_OK) {
        fwrite(head.data, 1, head.length, writer.stream);
        fwrite(raw_bytes(&save, tensor), 1, (size_t)ul_type_packed_bytes(&tensor->type),
               writer.stream);
        status = ul_file_commit(&writer, diag);
    }
    ul_arena_done(&arena);
    return status;
}
