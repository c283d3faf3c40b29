/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded data: a folder with input_0.pb, output_0.pb and so on, one file for each input or output
 * that the model declares.
 *
 * Problem: a tensor's file is a TensorProto, a sequence's a SequenceProto (onnx-data.proto), each
 * of whose tensors is an input or output of the program; the bytes do not say which of the two they
 * are. Method: the model's declaration decides. Each message has a field for its name, by which a
 * file finds its port; where the names do not find all ports, the files' numbers count. Left
 * undone: optionals, maps, sparse tensors, and sequences of anything but tensors are refused. */
#include "frontend/frontend_internal.h"

#include <string.h>

enum {
    TENSOR_NAME = 8,    /* in TensorProto */
    OTHER_NAME = 1,     /* in SequenceProto, MapProto and OptionalProto */
    ELEMENT_TYPE = 2,   /* in SequenceProto: 1 is a tensor */
    TENSOR_VALUES = 3,  /* in SequenceProto */
    OPTIONAL_VALUES = 7 /* in SequenceProto, its last field */
};

/* The bytes of a file, which need not end in NUL; NULL: there are none. */
struct span {
    const unsigned char *bytes;
    uint64_t size_bytes;
};

struct own_names {
    struct span tensor, other;
};

static bool is_tensor(const struct ul_model_port *port)
{
    return strcmp(port->kind, "tensor") == 0;
}

/* Whether the port is a tensor of a sequence, but not the first. */
static bool is_later_item(const struct ul_model_port *ports, uint32_t index)
{
    return index > 0 && ports[index].sequence != NULL && ports[index - 1].sequence != NULL &&
           strcmp(ports[index].sequence, ports[index - 1].sequence) == 0;
}

/* The names of the file, read as a tensor and as anything else; errors in the file are reported
 * when it is read. */
static struct own_names find_names(const struct ul_file *file)
{
    struct own_names names = {.tensor = {NULL, 0}};
    struct ul_wire_field field;
    for (uint64_t at = 0; at < file->size_bytes;) {
        if (ul_wire_next(file->data, &at, file->size_bytes, &field) != NULL)
            break;
        struct span span = {file->data + field.begin, field.end - field.begin};
        if (field.wire_type == UL_WIRE_BYTES && field.number == TENSOR_NAME)
            names.tensor = span;
        if (field.wire_type == UL_WIRE_BYTES && field.number == OTHER_NAME)
            names.other = span;
    }
    return names;
}

static bool is_called(const struct span *span, const char *name)
{
    return span->size_bytes > 0 && span->size_bytes == strlen(name) &&
           memcmp(span->bytes, name, (size_t)span->size_bytes) == 0;
}

/* Finds the port with the file's number, where its name says nothing. */
static void place_by_number(struct ul_recorded *file, uint32_t number,
                            const struct ul_model_port *ports, uint32_t port_count)
{
    for (uint32_t p = 0; p < port_count; p++) {
        if (is_later_item(ports, p) || number-- != 0)
            continue;
        file->port = p;
        file->kind = ports[p].sequence != NULL ? "sequence" : ports[p].kind;
        return;
    }
}

static void place_by_name(struct ul_recorded *file, const struct own_names *names,
                          const struct ul_model_port *ports, uint32_t port_count)
{
    for (uint32_t p = 0; p < port_count && file->port == UL_NONE; p++) {
        if (is_called(&names->tensor, ports[p].name))
            file->kind = "tensor"; /* so are scores of which ZipMap would make maps */
        else if (!is_tensor(&ports[p]) && is_called(&names->other, ports[p].name))
            file->kind = ports[p].kind;
        else if (ports[p].sequence != NULL && is_called(&names->other, ports[p].sequence))
            file->kind = "sequence";
        else
            continue;
        file->port = p;
    }
}

/* Whether the files that found their ports cover all ports. */
static bool covers(const struct ul_recorded *files, uint32_t count,
                   const struct ul_model_port *ports, uint32_t port_count)
{
    for (uint32_t p = 0, first = 0; p < port_count; p++) {
        first = is_later_item(ports, p) ? first : p;
        bool is_found = false;
        for (uint32_t i = 0; i < count && !is_found; i++) {
            bool is_whole = strcmp(files[i].kind, "sequence") == 0 && files[i].port == first;
            is_found = files[i].port == p || is_whole;
        }
        if (!is_found)
            return false;
    }
    return true;
}

/* Finds a file's port, by the name in the file (number UL_NONE) or by its number. */
static enum ul_status place(struct ul_arena *arena, struct ul_recorded *file, uint32_t number,
                            const struct ul_model_port *ports, uint32_t port_count,
                            struct ul_diag *diag)
{
    struct ul_file mapped;
    UL_TRY(ul_file_map(&mapped, arena, file->path, diag));
    struct own_names names = find_names(&mapped);
    if (number == UL_NONE)
        place_by_name(file, &names, ports, port_count);
    else
        place_by_number(file, number, ports, port_count);
    while (strcmp(file->kind, "sequence") == 0 && file->port + file->width < port_count &&
           is_later_item(ports, file->port + file->width))
        file->width++;
    bool is_wrong = file->port != UL_NONE && strcmp(file->kind, "tensor") == 0 &&
                    ul_wire_holds_tensors(mapped.data, mapped.size_bytes);
    ul_file_unmap(&mapped);
    return is_wrong ? ul_diag_set(diag, UL_INVALID, "%s: %s", file->path, UL_WIRE_NO_TENSOR)
                    : UL_OK;
}

enum ul_status ul_recorded_list(struct ul_arena *arena, const char *directory, const char *kind,
                                const struct ul_model_port *ports, uint32_t port_count,
                                struct ul_recorded **files, uint32_t *count, struct ul_diag *diag)
{
    uint32_t capacity = 0, wanted = 0;
    *files = NULL;
    *count = 0;
    for (uint32_t i = 0;; i++) {
        struct ul_recorded file = {.kind = "tensor", .port = UL_NONE, .width = 1};
        file.path = ul_arena_printf(arena, "%s/%s_%u.pb", directory, kind, (unsigned)i);
        if (!ul_file_exists(file.path))
            break;
        UL_TRY(place(arena, &file, UL_NONE, ports, port_count, diag));
        UL_GROW(arena, *files, *count, capacity);
        (*files)[(*count)++] = file;
    }
    if (covers(*files, *count, ports, port_count))
        return UL_OK;
    for (uint32_t p = 0; p < port_count; p++)
        wanted += !is_later_item(ports, p);
    if (*count > wanted)
        return ul_diag_set(diag, UL_INVALID, "%s: holds %u %ss, the model has %u", directory,
                           (unsigned)*count, kind, (unsigned)wanted);
    for (uint32_t i = 0; i < *count; i++) {
        if ((*files)[i].port == UL_NONE)
            UL_TRY(place(arena, &(*files)[i], i, ports, port_count, diag));
    }
    return UL_OK;
}

/* ---- sequences ---- */

/* Whether SequenceProto has such a field. Some fields of other messages have its numbers, but
 * another wire type. */
static bool is_of_sequence(const struct ul_wire_field *field)
{
    uint32_t wire_type = field->number == ELEMENT_TYPE ? UL_WIRE_VARINT : UL_WIRE_BYTES;
    return field->number <= OPTIONAL_VALUES && field->wire_type == wire_type;
}

static const char *element_text(uint64_t type)
{
    static const char *const names[] = {
        "nothing that is known", "tensors", "sparse tensors", "sequences", "maps", "optionals"};
    return names[type < sizeof names / sizeof *names ? type : 0];
}

static enum ul_status read_item(struct ul_arena *arena, const struct span *span, uint32_t number,
                                const struct ul_tensor **tensor, struct ul_diag *diag)
{
    const char *owner = ul_arena_printf(arena, "%u of the sequence", (unsigned)number);
    enum ul_status status =
        ul_tensor_parse(arena, span->bytes, span->size_bytes, owner, tensor, NULL, diag);
    if (status != UL_OK)
        ul_diag_prefix(diag, ul_arena_printf(arena, "tensor %u", (unsigned)number));
    return status;
}

static enum ul_status read_items(struct ul_arena *arena, const struct ul_file *file,
                                 const struct ul_tensor ***tensors, uint32_t *count,
                                 struct ul_diag *diag)
{
    uint32_t capacity = 0;
    struct ul_wire_field field;
    for (uint64_t at = 0; at < file->size_bytes;) {
        uint64_t start = at;
        const char *wrong = ul_wire_next(file->data, &at, file->size_bytes, &field);
        if (wrong != NULL || !is_of_sequence(&field))
            return ul_diag_set(diag, UL_INVALID,
                               "not a SequenceProto, which the model's sequence has here: %s at "
                               "byte %llu",
                               wrong != NULL ? wrong : "a field of another message",
                               (unsigned long long)start);
        if (field.number == ELEMENT_TYPE && field.value > 1)
            return ul_diag_set(diag, UL_UNSUPPORTED,
                               "holds a sequence of %s; only sequences of tensors are read",
                               element_text(field.value));
        if (field.number != TENSOR_VALUES)
            continue;
        if (*count == UL_LIMIT_SEQUENCE)
            return ul_diag_set(diag, UL_UNSUPPORTED, "holds a sequence of more than %u tensors",
                               UL_LIMIT_SEQUENCE);
        struct span span = {file->data + field.begin, field.end - field.begin};
        UL_GROW(arena, *tensors, *count, capacity);
        UL_TRY(read_item(arena, &span, *count, &(*tensors)[*count], diag));
        ++*count;
    }
    return UL_OK;
}

static enum ul_status read_sequence(struct ul_arena *arena, const char *path,
                                    const struct ul_tensor ***tensors, uint32_t *count,
                                    struct ul_diag *diag)
{
    struct ul_file file;
    UL_TRY(ul_file_map(&file, arena, path, diag));
    enum ul_status status = read_items(arena, &file, tensors, count, diag);
    return ul_file_close(&file, path, status, diag);
}

enum ul_status ul_recorded_read(struct ul_arena *arena, const struct ul_recorded *file,
                                const struct ul_tensor ***tensors, uint32_t *count,
                                struct ul_diag *diag)
{
    *tensors = NULL;
    *count = 0;
    if (strcmp(file->kind, "sequence") == 0)
        return read_sequence(arena, file->path, tensors, count, diag);
    if (strcmp(file->kind, "tensor") != 0)
        return ul_diag_set(diag, UL_UNSUPPORTED,
                           "%s: holds %s %s, as the model says; only tensors and sequences of "
                           "tensors are read",
                           file->path, file->kind[0] == 'o' ? "an" : "a", file->kind);
    *tensors = UL_NEW_ARRAY(arena, const struct ul_tensor *, 1);
    *count = 1;
    return ul_frontend_read_tensor(arena, file->path, &(*tensors)[0], NULL, diag);
}
