/* SPDX-License-Identifier: Apache-2.0 */
/* External data: tensors whose bytes are in another file than the model.
 *
 * The location is hostile. It must be relative and without "..", and must lead, through any
 * symbolic links, to a regular file below the model's directory. Files are mapped once and stay
 * mapped until ul_model_done. */
#define _XOPEN_SOURCE 700
#include "frontend/frontend_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct place {
    const char *location;
    uint64_t offset_bytes;
    uint64_t length_bytes;
    bool has_length;
};

static bool parse_number(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    if (*text == '\0')
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (value > (UINT64_MAX - 9) / 10)
            return false;
        value = value * 10 + (uint64_t)(*text - '0');
    }
    *out = value;
    return *text == '\0';
}

static enum ul_status read_place(struct ul_model_builder *builder, const Onnx__TensorProto *proto,
                                 const char *owner, struct place *place)
{
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const Onnx__StringStringEntryProto *entry = proto->external_data[i];
        const char *value = entry->value == NULL ? "" : entry->value;
        bool good = true;
        if (entry->key == NULL)
            continue;
        if (strcmp(entry->key, "location") == 0) {
            place->location = value;
        } else if (strcmp(entry->key, "offset") == 0) {
            good = parse_number(value, &place->offset_bytes);
        } else if (strcmp(entry->key, "length") == 0) {
            good = parse_number(value, &place->length_bytes);
            place->has_length = true;
        }
        if (!good)
            return ul_diag_set(builder->diag, UL_INVALID,
                               "tensor %s: external data has %s %s, which is not a number",
                               ul_quote(builder->scratch, owner), entry->key,
                               ul_quote(builder->scratch, value));
    }
    if (place->location == NULL || place->location[0] == '\0')
        return ul_diag_set(builder->diag, UL_INVALID, "tensor %s: external data without location",
                           ul_quote(builder->scratch, owner));
    return UL_OK;
}

static bool leaves_directory(const char *location)
{
    if (location[0] == '/' || location[0] == '\\')
        return true;
    for (const char *part = location; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return true;
    }
    return false;
}

static bool is_below(const char *directory, const char *path)
{
    size_t length = strlen(directory);
    if (strncmp(directory, path, length) != 0)
        return false;
    return (length > 0 && directory[length - 1] == '/') || path[length] == '/';
}

/* The file's path, with all symbolic links resolved. */
static enum ul_status resolve(struct ul_model_builder *builder, const char *owner,
                              const char *location, const char **out)
{
    const char *quoted_owner = ul_quote(builder->scratch, owner);
    const char *quoted = ul_quote(builder->scratch, location);
    if (leaves_directory(location))
        return ul_diag_set(builder->diag, UL_INVALID,
                           "tensor %s: external data %s is outside the model's directory",
                           quoted_owner, quoted);
    if (builder->directory == NULL)
        return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                           "tensor %s: external data %s needs a model that is read from a file",
                           quoted_owner, quoted);
    const char *joined = ul_arena_printf(builder->scratch, "%s/%s", builder->directory, location);
    char directory[PATH_MAX];
    char path[PATH_MAX];
    struct stat info;
    if (realpath(builder->directory, directory) == NULL || realpath(joined, path) == NULL)
        return ul_diag_set(builder->diag, UL_IO, "tensor %s: external data %s: %s", quoted_owner,
                           quoted, strerror(errno));
    if (!is_below(directory, path))
        return ul_diag_set(builder->diag, UL_INVALID,
                           "tensor %s: external data %s leads outside the model's directory",
                           quoted_owner, quoted);
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return ul_diag_set(builder->diag, UL_INVALID,
                           "tensor %s: external data %s is not a regular file", quoted_owner,
                           quoted);
    *out = ul_arena_copy_string(builder->graph->arena, path);
    return UL_OK;
}

enum ul_status ul_model_map(const struct ul_frontend_options *options, struct ul_arena *arena,
                            const char *path, struct ul_file *file, struct ul_diag *diag)
{
    const struct ul_onnx_model *lender = options != NULL ? options->lender : NULL;
    for (uint32_t i = 0; lender != NULL && i < lender->file_count; i++) {
        if (strcmp(lender->files[i].path, path) != 0)
            continue;
        UL_ASSERT(lender->files[i].file.data != NULL || lender->files[i].file.size_bytes == 0);
        *file = lender->files[i].file;
        file->mapped = false; /* by this model */
        return UL_OK;
    }
    return ul_file_map(file, arena, path, diag);
}

static enum ul_status map_once(struct ul_model_builder *builder, const char *path,
                               const struct ul_file **out)
{
    struct ul_onnx_model *model = builder->model;
    for (uint32_t i = 0; i < model->file_count; i++) {
        if (strcmp(model->files[i].path, path) == 0) {
            *out = &model->files[i].file;
            return UL_OK;
        }
    }
    struct ul_file file;
    UL_TRY(ul_model_map(builder->options, builder->graph->arena, path, &file, builder->diag));
    UL_GROW(builder->graph->arena, model->files, model->file_count, model->file_capacity);
    model->files[model->file_count].file = file;
    model->files[model->file_count].path = path;
    *out = &model->files[model->file_count++].file;
    return UL_OK;
}

/* Most tensors of a model share one file, so its location is resolved once. */
static enum ul_status open_location(struct ul_model_builder *builder, const char *owner,
                                    const char *location, const struct ul_file **out)
{
    if (builder->last_location != NULL && strcmp(builder->last_location, location) == 0) {
        *out = &builder->model->files[builder->last_file].file;
        return UL_OK;
    }
    const char *path = NULL;
    UL_TRY(resolve(builder, owner, location, &path));
    UL_TRY(map_once(builder, path, out));
    builder->last_location = location;
    builder->last_file = 0;
    while (&builder->model->files[builder->last_file].file != *out)
        builder->last_file++;
    return UL_OK;
}

enum ul_status ul_external_find(struct ul_model_builder *builder, const Onnx__TensorProto *proto,
                                const char *owner, uint64_t wanted_bytes, const unsigned char **out)
{
    struct place place = {0};
    UL_TRY(read_place(builder, proto, owner, &place));
    const struct ul_file *file = NULL;
    UL_TRY(open_location(builder, owner, place.location, &file));
    if (place.has_length && place.length_bytes != wanted_bytes)
        return ul_diag_set(builder->diag, UL_INVALID,
                           "tensor %s: external data of %llu bytes, but its type needs %llu",
                           ul_quote(builder->scratch, owner),
                           (unsigned long long)place.length_bytes,
                           (unsigned long long)wanted_bytes);
    if (place.offset_bytes > file->size_bytes ||
        wanted_bytes > file->size_bytes - place.offset_bytes)
        return ul_diag_set(builder->diag, UL_INVALID,
                           "tensor %s: %llu bytes at offset %llu are beyond the end of %s",
                           ul_quote(builder->scratch, owner), (unsigned long long)wanted_bytes,
                           (unsigned long long)place.offset_bytes,
                           ul_quote(builder->scratch, place.location));
    *out = file->data + place.offset_bytes;
    return UL_OK;
}
