/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a model with other weights: the file stays as it is, apart from the data of some
 * initializers.
 *
 * Method: walk the messages that lead to tensors (wire.c has checked all of them before) and note
 * the result as a list of pieces: runs of the file, weights, and heads of messages, whose length is
 * known when they are complete. Nothing large is copied. Fields that are not known here stay,
 * except for those that say that a node trains (export_mode.c). Tensors in external data go to one
 * new file. Left undone: a model over 2 GiB without external data is refused, as protobuf refuses
 * it. */
#define _XOPEN_SOURCE 700
#include "frontend/export_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum kind { MODEL, GRAPH, NODE, ATTRIBUTE, SPARSE, FUNCTION, TENSOR, INITIALIZER, NONE };

enum { FIELD_LOCATION = 14, FIELD_NAME = 8, FIELD_RAW = 9, FIELD_EXTERNAL = 13 };

/* Fields that lead to tensors. */
static const struct {
    enum kind kind;
    uint32_t field;
    enum kind nested;
} leads[] = {{MODEL, 7, GRAPH},        {MODEL, 25, FUNCTION},   {GRAPH, 1, NODE},
             {GRAPH, 5, INITIALIZER},  {GRAPH, 15, SPARSE},     {NODE, 5, ATTRIBUTE},
             {ATTRIBUTE, 5, TENSOR},   {ATTRIBUTE, 6, GRAPH},   {ATTRIBUTE, 10, TENSOR},
             {ATTRIBUTE, 11, GRAPH},   {ATTRIBUTE, 22, SPARSE}, {ATTRIBUTE, 23, SPARSE},
             {SPARSE, 1, TENSOR},      {SPARSE, 2, TENSOR},     {FUNCTION, 7, NODE},
             {FUNCTION, 11, ATTRIBUTE}};

struct piece {
    const void *data;
    uint64_t size_bytes;
};

struct pieces {
    struct piece *items;
    uint32_t count, capacity;
    uint64_t size_bytes; /* of all pieces */
};

struct export
{
    struct ul_model_builder builder; /* for external data and messages */
    const unsigned char *data;       /* the model */
    const struct ul_export_tensor *tensors;
    bool *found; /* for each tensor */
    struct ul_names names;
    struct pieces model;
    struct pieces beside; /* the new file of external data */
    const char *location; /* its name in the model */
    bool has_apart;       /* factors that become initializers */
    bool turns;           /* nodes in training mode become those of inference */
    uint32_t turned_count;
    /* where nodes change their mode: the names that nodes read and that graphs return */
    struct ul_names used;
};

static void put(struct export *export, struct pieces *pieces, const void *data, uint64_t size_bytes)
{
    struct piece *last = pieces->count > 0 ? &pieces->items[pieces->count - 1] : NULL;
    pieces->size_bytes = ul_size_add_or_die(pieces->size_bytes, size_bytes);
    if (last != NULL && last->data != NULL &&
        (const unsigned char *)last->data + last->size_bytes == data) {
        last->size_bytes += size_bytes;
        return;
    }
    UL_GROW(export->builder.scratch, pieces->items, pieces->count, pieces->capacity);
    pieces->items[pieces->count++] = (struct piece){data, size_bytes};
}

static void put_number(struct ul_text *text, uint32_t field, uint32_t wire_type, uint64_t value)
{
    ul_wire_put_key(text, field, wire_type);
    ul_wire_put_varint(text, value);
}

/* Reserves a place for the head of a message that begins now. */
static uint32_t open_message(struct export *export)
{
    struct pieces *pieces = &export->model;
    UL_GROW(export->builder.scratch, pieces->items, pieces->count, pieces->capacity);
    pieces->items[pieces->count] = (struct piece){NULL, 0};
    return pieces->count++;
}

static void close_message(struct export *export, uint32_t head, uint64_t begin_bytes,
                          uint32_t field)
{
    struct ul_text text;
    struct piece *piece = &export->model.items[head];
    UL_ASSERT(piece->data == NULL && export->model.size_bytes >= begin_bytes);
    ul_text_init(&text, export->builder.scratch);
    put_number(&text, field, UL_WIRE_BYTES, export->model.size_bytes - begin_bytes);
    *piece = (struct piece){text.data, text.length};
    export->model.size_bytes += text.length;
}

static void put_entry(struct ul_text *text, const char *key, const char *value)
{
    struct ul_text entry;
    ul_text_init(&entry, text->arena);
    put_number(&entry, 1, UL_WIRE_BYTES, strlen(key));
    ul_text_put(&entry, key);
    put_number(&entry, 2, UL_WIRE_BYTES, strlen(value));
    ul_text_put(&entry, value);
    put_number(text, FIELD_EXTERNAL, UL_WIRE_BYTES, entry.length);
    ul_text_put_bytes(text, entry.data, entry.length);
}

/* Writes the data to the external file, on whole pages where that is worth it, and their place to
 * the model. */
static void put_beside(struct export *export, const void *data, uint64_t size_bytes)
{
    enum { SMALL_BYTES = 65536, SMALL_ALIGN = 64, PAGE_BYTES = 4096 };
    static const unsigned char zeros[PAGE_BYTES];
    struct ul_arena *arena = export->builder.scratch;
    struct ul_text text;
    uint64_t align = size_bytes < SMALL_BYTES ? SMALL_ALIGN : PAGE_BYTES;
    uint64_t gap = (align - export->beside.size_bytes % align) % align;
    put(export, &export->beside, zeros, gap);
    uint64_t offset_bytes = export->beside.size_bytes;
    put(export, &export->beside, data, size_bytes);
    ul_text_init(&text, arena);
    put_entry(&text, "location", export->location);
    put_entry(&text, "offset", ul_arena_printf(arena, "%llu", (unsigned long long)offset_bytes));
    put_entry(&text, "length", ul_arena_printf(arena, "%llu", (unsigned long long)size_bytes));
    put_number(&text, FIELD_LOCATION, UL_WIRE_VARINT, 1);
    put(export, &export->model, text.data, text.length);
}

static void put_inside(struct export *export, const void *data, uint64_t size_bytes)
{
    struct ul_text text;
    ul_text_init(&text, export->builder.scratch);
    put_number(&text, FIELD_RAW, UL_WIRE_BYTES, size_bytes);
    put(export, &export->model, text.data, text.length);
    put(export, &export->model, data, size_bytes);
}

/* Writes all fields of a tensor except its data, and where the data are. A `name` that is not NULL
 * replaces the tensor's own. */
static void put_fields(struct export *export, const struct ul_wire_field *tensor, const char *name,
                       bool with_data)
{
    static const bool is_data[] = {[4] = true,
                                   [5] = true,
                                   [6] = true,
                                   [7] = true,
                                   [FIELD_RAW] = true,
                                   [10] = true,
                                   [11] = true,
                                   [FIELD_EXTERNAL] = true,
                                   [FIELD_LOCATION] = true};
    for (uint64_t at = tensor->begin; at < tensor->end;) {
        struct ul_wire_field field = {0};
        uint64_t begin = at;
        const char *wrong = ul_wire_next(export->data, &at, tensor->end, &field);
        UL_ASSERT(wrong == NULL); /* the scan has checked this field */
        bool goes = field.number < sizeof is_data && is_data[field.number] && !with_data;
        if (!goes && (field.number != FIELD_NAME || name == NULL))
            put(export, &export->model, export->data + begin, at - begin);
    }
    if (name == NULL)
        return;
    struct ul_text text;
    ul_text_init(&text, export->builder.scratch);
    put_number(&text, FIELD_NAME, UL_WIRE_BYTES, strlen(name));
    ul_text_put(&text, name);
    put(export, &export->model, text.data, text.length);
}

static enum kind nested_kind(enum kind kind, uint32_t field)
{
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++)
        if (leads[i].kind == kind && leads[i].field == field)
            return leads[i].nested;
    return NONE;
}

/* Finds what an initializer becomes; NULL: it stays. */
static enum ul_status find_new(struct export *export, const Onnx__TensorProto *proto,
                               const char *name, const struct ul_export_tensor **found)
{
    struct ul_model_builder *builder = &export->builder;
    struct ul_text got;
    struct ul_type type;
    uint32_t number = ul_names_find(&export->names, name);
    *found = NULL;
    if (number == UL_NONE)
        return UL_OK;
    *found = &export->tensors[number];
    export->found[number] = true;
    UL_TRY(ul_tensor_type(builder, proto, name, &type));
    const struct ul_tensor *tensor = (*found)->tensor;
    if (tensor == NULL ? ul_export_lora_fits(*found, &type) : ul_type_equal(&type, &tensor->type))
        return UL_OK;
    ul_text_init(&got, builder->scratch);
    ul_type_print(&got, tensor != NULL ? &tensor->type : &(*found)->left->type);
    if (tensor == NULL) {
        ul_text_put(&got, " and ");
        ul_type_print(&got, &(*found)->right->type);
    }
    return ul_diag_set(builder->diag, UL_INVALID,
                       "initializer %s is %s in the model and %s%s in the checkpoint",
                       ul_quote(builder->scratch, name), ul_type_text(builder->scratch, &type),
                       tensor == NULL ? "has factors " : "", got.data);
}

/* Reads a tensor without its data; `wire` has their place. */
static enum ul_status read_tensor(struct export *export, const struct ul_wire_field *field,
                                  struct ul_wire *wire, const Onnx__TensorProto **proto)
{
    struct ul_model_builder *builder = &export->builder;
    ProtobufCAllocator allocator = ul_proto_allocator(builder->scratch);
    UL_TRY(ul_wire_scan(wire, builder->scratch, UL_WIRE_TENSOR, export->data + field->begin,
                        field->end - field->begin, builder->diag));
    *proto =
        onnx__tensor_proto__unpack(&allocator, wire->slim.length, (const uint8_t *)wire->slim.data);
    return *proto != NULL ? UL_OK
                          : ul_diag_set(builder->diag, UL_INVALID, "not a valid ONNX tensor");
}

/* Finds the data of a tensor that is written anew; NULL: the data stay as they are. */
static enum ul_status find_bytes(struct export *export, struct ul_wire *wire,
                                 const Onnx__TensorProto *proto, const char *name,
                                 const struct ul_export_tensor *found, const unsigned char **bytes,
                                 uint64_t *size_bytes)
{
    struct ul_model_builder *builder = &export->builder;
    struct ul_type type;
    *bytes = NULL;
    if (found != NULL && found->tensor != NULL) {
        *bytes = found->tensor->data;
        *size_bytes = ul_type_packed_bytes(&found->tensor->type);
        return UL_OK;
    }
    if (found != NULL && found->is_apart && found->base != NULL) {
        *bytes = found->base->data;
        *size_bytes = ul_type_bytes(&found->base->type);
        return UL_OK;
    }
    if (found != NULL && !found->is_apart) {
        const struct ul_tensor *weight = found->base;
        builder->wire = wire;
        enum ul_status status =
            weight != NULL ? UL_OK : ul_tensor_decode(builder, proto, name, &weight);
        builder->wire = NULL;
        UL_TRY(status);
        *bytes = ul_export_lora_merge(builder->scratch, found, weight);
        *size_bytes = ul_type_bytes(&weight->type);
        return UL_OK;
    }
    if (proto->data_location != 1)
        return UL_OK;
    UL_TRY(ul_tensor_type(builder, proto, name, &type));
    *size_bytes = ul_type_packed_bytes(&type);
    return ul_external_find(builder, proto, name, *size_bytes, bytes);
}

static enum ul_status copy_tensor(struct export *export, const struct ul_wire_field *field,
                                  uint64_t begin, bool is_initializer)
{
    struct ul_wire wire;
    const Onnx__TensorProto *proto = NULL;
    const struct ul_export_tensor *found = NULL;
    const unsigned char *bytes = NULL;
    uint64_t size_bytes = 0;
    UL_TRY(read_tensor(export, field, &wire, &proto));
    const char *name = proto->name == NULL ? "" : proto->name, *renamed = NULL;
    if (is_initializer)
        UL_TRY(find_new(export, proto, name, &found));
    UL_TRY(find_bytes(export, &wire, proto, name, found, &bytes, &size_bytes));
    if (found != NULL && found->tensor == NULL && found->is_apart)
        renamed = ul_arena_printf(export->builder.scratch, "%s/base", name);
    if (bytes == NULL && renamed == NULL) {
        put(export, &export->model, export->data + begin, field->end - begin);
        return UL_OK;
    }
    uint32_t head = open_message(export);
    uint64_t begin_bytes = export->model.size_bytes;
    put_fields(export, field, renamed, bytes == NULL);
    if (bytes != NULL && proto->data_location == 1)
        put_beside(export, bytes, size_bytes);
    else if (bytes != NULL)
        put_inside(export, bytes, size_bytes);
    close_message(export, head, begin_bytes, field->number);
    return UL_OK;
}

/* Writes the factors of an initializer, where they are kept apart. */
static enum ul_status put_factors(struct export *export, const struct ul_wire_field *field)
{
    struct ul_wire wire;
    const Onnx__TensorProto *proto = NULL;
    const struct ul_export_tensor *found = NULL;
    struct ul_type type;
    struct ul_text text;
    UL_TRY(read_tensor(export, field, &wire, &proto));
    const char *name = proto->name == NULL ? "" : proto->name;
    UL_TRY(find_new(export, proto, name, &found));
    if (found == NULL || found->tensor != NULL || !found->is_apart)
        return UL_OK;
    UL_TRY(ul_tensor_type(&export->builder, proto, name, &type));
    ul_text_init(&text, export->builder.scratch);
    ul_export_lora_apart(&text, found, &type);
    put(export, &export->model, text.data, text.length);
    return UL_OK;
}

/* An initializer that a caller may replace is an input too, and cannot be made by a node. */
static enum ul_status check_input(struct export *export, const struct ul_wire_field *port)
{
    for (uint64_t at = port->begin; at < port->end;) {
        struct ul_wire_field field = {0};
        const char *wrong = ul_wire_next(export->data, &at, port->end, &field);
        UL_ASSERT(wrong == NULL);
        if (field.number != 1 || field.wire_type != UL_WIRE_BYTES)
            continue;
        const char *name =
            ul_arena_printf(export->builder.scratch, "%.*s", (int)(field.end - field.begin),
                            (const char *)export->data + field.begin);
        uint32_t number = ul_names_find(&export->names, name);
        const struct ul_export_tensor *found = number == UL_NONE ? NULL : &export->tensors[number];
        if (found != NULL && found->tensor == NULL && found->is_apart)
            return ul_diag_set(export->builder.diag, UL_UNSUPPORTED,
                               "--apart: the initializer %s is an input of its graph too: leave "
                               "--apart out, or save the model without that input",
                               ul_quote(export->builder.scratch, name));
    }
    return UL_OK;
}

/* Writes what goes before the nodes of a graph: factors of its initializers. */
static enum ul_status begin_graph(struct export *export, uint64_t begin, uint64_t end)
{
    enum { INPUT = 11 };
    for (uint64_t at = begin; export->has_apart && at < end;) {
        struct ul_wire_field field = {0};
        const char *wrong = ul_wire_next(export->data, &at, end, &field);
        UL_ASSERT(wrong == NULL);
        if (field.wire_type != UL_WIRE_BYTES)
            continue;
        if (nested_kind(GRAPH, field.number) == INITIALIZER)
            UL_TRY(put_factors(export, &field));
        else if (field.number == INPUT)
            UL_TRY(check_input(export, &field));
    }
    return UL_OK;
}

static void note_name(struct export *export, const struct ul_wire_field *field)
{
    const char *name =
        ul_arena_printf(export->builder.scratch, "%.*s", (int)(field->end - field->begin),
                        (const char *)export->data + field->begin);
    if (ul_names_find(&export->used, name) != UL_NONE)
        return;
    bool is_new = ul_names_add(&export->used, name, 0);
    UL_ASSERT(is_new);
}

/* Notes the names that fields read: in a node, in the outputs of a function, and in a graph, whose
 * outputs are messages that begin with their name. */
static void note_used(struct export *export, enum kind kind, uint64_t begin, uint64_t end)
{
    enum { NODE_INPUT = 1, FUNCTION_OUTPUT = 5, GRAPH_OUTPUT = 12, INFO_NAME = 1 };
    for (uint64_t at = begin; at < end;) {
        struct ul_wire_field field = {0};
        const char *wrong = ul_wire_next(export->data, &at, end, &field);
        UL_ASSERT(wrong == NULL);
        enum kind nested =
            field.wire_type == UL_WIRE_BYTES ? nested_kind(kind, field.number) : NONE;
        bool is_name = field.wire_type == UL_WIRE_BYTES &&
                       ((kind == NODE && field.number == NODE_INPUT) ||
                        (kind == FUNCTION && field.number == FUNCTION_OUTPUT) ||
                        (kind == NONE && field.number == INFO_NAME));
        if (is_name)
            note_name(export, &field);
        else if (nested != NONE && nested < SPARSE)
            note_used(export, nested, field.begin, field.end);
        else if (nested == FUNCTION || (kind == GRAPH && field.number == GRAPH_OUTPUT))
            note_used(export, nested, field.begin, field.end);
    }
}

/* Handles results that a node does not have in inference, where something reads them. */
static enum ul_status put_running(struct export *export, const struct ul_export_mode *mode,
                                  uint32_t number)
{
    struct ul_arena *scratch = export->builder.scratch;
    if (mode->other != NULL && ul_names_find(&export->used, mode->other) != UL_NONE)
        return ul_diag_set(export->builder.diag, UL_UNSUPPORTED,
                           "node %s is in training mode, and its result %s, which it has there "
                           "alone, is read: cut what reads it, or give --training-mode, which "
                           "leaves the model in that mode",
                           ul_quote(scratch, mode->name != NULL ? mode->name : ""),
                           ul_quote(scratch, mode->other));
    for (uint32_t i = 0; i < 2; i++) {
        const char *output = mode->outputs[i];
        struct ul_text node;
        if (output == NULL || ul_names_find(&export->used, output) == UL_NONE)
            continue;
        ul_text_init(&node, scratch);
        ul_export_mode_identity(&node, mode->running[i], output);
        uint32_t head = open_message(export);
        uint64_t begin_bytes = export->model.size_bytes;
        put(export, &export->model, node.data, node.length);
        close_message(export, head, begin_bytes, number);
    }
    return UL_OK;
}

/* A message in a message. */
struct nested {
    struct ul_export_mode mode; /* for a node */
    bool turns;                 /* the node changes its mode */
    uint32_t head;
    uint64_t begin_bytes;
};

static struct nested open_nested(struct export *export, enum kind kind,
                                 const struct ul_wire_field *field)
{
    struct nested nested = {.turns = kind == NODE && export->turns};
    if (nested.turns)
        ul_export_mode_read(&nested.mode, export->builder.scratch, export->data, field);
    nested.head = open_message(export);
    nested.begin_bytes = export->model.size_bytes;
    return nested;
}

static enum ul_status close_nested(struct export *export, const struct nested *nested,
                                   uint32_t number)
{
    if (nested->turns && nested->mode.becomes != NULL) {
        struct ul_text text;
        ul_text_init(&text, export->builder.scratch);
        ul_export_mode_operator(&text, nested->mode.becomes);
        put(export, &export->model, text.data, text.length);
    }
    close_message(export, nested->head, nested->begin_bytes, number);
    if (!nested->turns || !nested->mode.trains)
        return UL_OK;
    export->turned_count++;
    return put_running(export, &nested->mode, number);
}

/* Copies a message; `mode` says which fields a node loses. The scan has bounded how deep messages
 * nest. */
static enum ul_status copy_message(struct export *export, enum kind kind, uint64_t begin,
                                   uint64_t end, struct ul_export_mode *mode)
{
    if (kind == GRAPH)
        UL_TRY(begin_graph(export, begin, end));
    for (uint64_t at = begin; at < end;) {
        struct ul_wire_field field = {0};
        uint64_t start = at;
        const char *wrong = ul_wire_next(export->data, &at, end, &field);
        UL_ASSERT(wrong == NULL);
        enum kind inner = field.wire_type == UL_WIRE_BYTES ? nested_kind(kind, field.number) : NONE;
        if (mode != NULL && ul_export_mode_drops(mode, export->data, &field))
            continue;
        if (inner == NONE) {
            put(export, &export->model, export->data + start, at - start);
        } else if (inner == TENSOR || inner == INITIALIZER) {
            UL_TRY(copy_tensor(export, &field, start, inner == INITIALIZER));
        } else {
            struct nested nested = open_nested(export, inner, &field);
            UL_TRY(copy_message(export, inner, field.begin, field.end,
                                nested.turns ? &nested.mode : NULL));
            UL_TRY(close_nested(export, &nested, field.number));
        }
    }
    return UL_OK;
}

static enum ul_status check(const struct export *export, uint32_t count)
{
    struct ul_diag *diag = export->builder.diag;
    for (uint32_t i = 0; i < count; i++)
        if (!export->found[i])
            return ul_diag_set(diag, UL_INVALID, "%s is no initializer of the model",
                               ul_quote(export->builder.scratch, export->tensors[i].name));
    if (export->model.size_bytes > INT32_MAX)
        return ul_diag_set(diag, UL_UNSUPPORTED,
                           "the result would be over 2 GiB; save the model with external data "
                           "first");
    return UL_OK;
}

static enum ul_status write_pieces(const struct pieces *pieces, const char *path,
                                   struct ul_diag *diag)
{
    struct ul_file_writer writer;
    UL_TRY(ul_file_begin(&writer, path, diag));
    for (uint32_t i = 0; i < pieces->count; i++)
        fwrite(pieces->items[i].data, 1, (size_t)pieces->items[i].size_bytes, writer.stream);
    return ul_file_commit(&writer, diag);
}

/* The new external data must not overwrite the files that they are made from. */
static enum ul_status write_beside(const struct export *export, const char *path)
{
    const struct ul_onnx_model *model = export->builder.model;
    char resolved[PATH_MAX];
    bool exists = realpath(path, resolved) != NULL;
    for (uint32_t i = 0; exists && i < model->file_count; i++)
        if (strcmp(model->files[i].path, resolved) == 0)
            return ul_diag_set(export->builder.diag, UL_USAGE,
                               "%s would destroy the model's external data; give another name",
                               path);
    return write_pieces(&export->beside, path, export->builder.diag);
}

static enum ul_status write(const struct export *export, const char *target)
{
    struct ul_diag *diag = export->builder.diag;
    if (export->beside.count == 0)
        return write_pieces(&export->model, target, diag);
    if (strcmp(target, "-") == 0)
        return ul_diag_set(diag, UL_USAGE,
                           "a model with external data takes two files; give -o FILE");
    UL_TRY(write_beside(export, ul_arena_printf(export->builder.scratch, "%s.data", target)));
    return write_pieces(&export->model, target, diag);
}

static enum ul_status export_file(struct export *export, const struct ul_file *file,
                                  const char *target, uint32_t count)
{
    struct ul_model_builder *builder = &export->builder;
    struct ul_wire wire;
    const char *slash = strrchr(target, '/');
    export->data = file->data;
    export->location =
        ul_arena_printf(builder->scratch, "%s.data", slash == NULL ? target : slash + 1);
    export->found = UL_NEW_ARRAY(builder->scratch, bool, count);
    ul_names_init(&export->names, builder->scratch);
    ul_names_init(&export->used, builder->scratch);
    for (uint32_t i = 0; i < count; i++)
        export->has_apart = export->has_apart || export->tensors[i].is_apart;
    for (uint32_t i = 0; i < count; i++)
        if (!ul_names_add(&export->names, export->tensors[i].name, i))
            return ul_diag_set(builder->diag, UL_INVALID, "%s is there twice",
                               ul_quote(builder->scratch, export->tensors[i].name));
    UL_TRY(ul_wire_scan(&wire, builder->scratch, UL_WIRE_MODEL, file->data, file->size_bytes,
                        builder->diag));
    if (export->turns)
        note_used(export, MODEL, 0, file->size_bytes);
    UL_TRY(copy_message(export, MODEL, 0, file->size_bytes, NULL));
    UL_TRY(check(export, count));
    return write(export, target);
}

enum ul_status ul_frontend_export(struct ul_arena *arena, const char *path, const char *target,
                                  const struct ul_export_tensor *tensors, uint32_t count,
                                  uint32_t *turned_count, struct ul_diag *diag)
{
    struct ul_file file;
    struct ul_arena scratch;
    struct ul_graph graph;
    struct ul_onnx_model model = {0};
    UL_ASSERT(tensors != NULL || count == 0);
    UL_TRY(ul_file_map(&file, arena, path, diag));
    ul_arena_init(&scratch);
    ul_graph_init(&graph, arena, "");
    struct export export = {.builder = {.graph = &graph,
                                        .scratch = &scratch,
                                        .diag = diag,
                                        .model = &model,
                                        .directory = ul_model_directory(arena, path),
                                        .prefix = ""},
                            .tensors = tensors,
                            .turns = turned_count != NULL};
    enum ul_status status = export_file(&export, &file, target, count);
    if (turned_count != NULL)
        *turned_count = export.turned_count;
    ul_model_done(&model);
    ul_arena_done(&scratch);
    ul_file_unmap(&file);
    return status;
}
