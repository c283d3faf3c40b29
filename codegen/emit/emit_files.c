/* SPDX-License-Identifier: Apache-2.0 */
/* The files of an emitted folder that are not generated text: weights and the runtime. */
#define _POSIX_C_SOURCE 200809L
#include "codegen/emit/emit_internal.h"
#include "codegen/program/target.h"
#include "codegen/program/weights_file.h"

#include "ir/view.h"
#include "runtime/lib/ul_winograd_pack.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the place is that of a weight with elements, and the plan has it. */
static bool is_stored(const struct ul_emitter *emitter, uint32_t place)
{
    const struct ul_program *program = emitter->program;
    const struct ul_program_place *info = &program->places[place];
    const uint32_t *ranges = &emitter->plan->value_ranges[place];
    if (ranges[0] == ranges[1])
        return false;
    if (info->kind != UL_PLACE_VALUE && info->kind != UL_PLACE_DONATED)
        return false;
    const struct ul_value *value = &program->graph->values[info->value];
    return value->kind == UL_VALUE_WEIGHT && ul_type_elements(&value->type) > 0;
}

void ul_emit_each_weight(struct ul_emitter *emitter, bool splat,
                         void (*visit)(struct ul_emitter *, uint32_t))
{
    const struct ul_program *program = emitter->program;
    for (uint32_t i = 0; i < program->place_count; i++) {
        const struct ul_program_place *place = &program->places[i];
        if (is_stored(emitter, i) && (program->graph->values[place->value].tensor->data == NULL &&
                                      place->pack == NULL) == splat)
            visit(emitter, i);
    }
}

/* ---- weights ---- */

static void each_weight_by_offset(struct ul_emitter *emitter,
                                  void (*visit)(struct ul_emitter *, uint32_t))
{
    const struct ul_program *program = emitter->program;
    struct ul_ranked *list = UL_NEW_ARRAY(emitter->arena, struct ul_ranked, program->place_count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < program->place_count; i++) {
        if (is_stored(emitter, i))
            list[count++] =
                (struct ul_ranked){.rank = ul_emit_place(emitter, i, 0).offset_bytes, .index = i};
    }
    ul_ranked_sort(list, count);
    for (uint32_t i = 0; i < count; i++)
        visit(emitter, list[i].index);
}

struct weight_writer {
    struct ul_emitter base; /* must be first, so that visits find the rest */
    FILE *stream;
    struct ul_weights_hash hash;
    uint64_t written_bytes;
};

static void put_weight_bytes(struct weight_writer *writer, const void *bytes, uint64_t size_bytes)
{
    for (uint64_t at = 0; at < size_bytes; at += UL_FILE_CHUNK_BYTES) {
        const unsigned char *chunk = (const unsigned char *)bytes + at;
        uint64_t left = size_bytes - at;
        uint64_t part = left < UL_FILE_CHUNK_BYTES ? left : UL_FILE_CHUNK_BYTES;
        ul_weights_hash_add(&writer->hash, chunk, (size_t)part);
        fwrite(chunk, 1, (size_t)part, writer->stream);
        if (part >= UL_FILE_CHUNK_BYTES / 4)
            ul_file_release(chunk, part);
    }
    writer->written_bytes += size_bytes;
}

enum { CHUNK_BYTES = 4096 };

/* Writes the elements of a weight that is a splat, is not aligned, or must be rounded. */
static void put_weight_elements(struct weight_writer *writer, ul_value_id value)
{
    const struct ul_graph *graph = writer->base.program->graph;
    const struct ul_value *info = &graph->values[value];
    unsigned char chunk[CHUNK_BYTES] = {0};
    uint64_t element_bytes = ul_value_element_bytes(graph, value);
    uint64_t count = ul_type_elements(&info->type);
    for (uint64_t at = 0; at < count;) {
        uint64_t part = CHUNK_BYTES / element_bytes;
        part = count - at < part ? count - at : part;
        ul_tensor_read_as(info->tensor, ul_value_storage(graph, value), at, part, chunk);
        put_weight_bytes(writer, chunk, part * element_bytes);
        at += part;
    }
}

/* Writes a weight with its channels innermost, one filter after the other. */
static void put_filters(struct weight_writer *writer, ul_value_id value)
{
    const struct ul_graph *graph = writer->base.program->graph;
    const struct ul_value *info = &graph->values[value];
    uint64_t filters = (uint64_t)info->type.dims[0], channels = (uint64_t)info->type.dims[1];
    uint64_t count = ul_type_elements(&info->type) / filters, places = count / channels;
    uint64_t element_bytes = ul_value_element_bytes(graph, value);
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    unsigned char *plain = ul_arena_alloc(&scratch, ul_size_mul_or_die(count, element_bytes));
    unsigned char *turned = ul_arena_alloc(&scratch, ul_size_mul_or_die(count, element_bytes));
    UL_ASSERT(places * channels == count);
    for (uint64_t k = 0; k < filters; k++) {
        ul_tensor_read_as(info->tensor, ul_value_storage(graph, value), k * count, count, plain);
        for (uint64_t i = 0; i < count; i++)
            memcpy(turned + (i % places * channels + i / places) * element_bytes,
                   plain + i * element_bytes, element_bytes);
        put_weight_bytes(writer, turned, count * element_bytes);
    }
    ul_arena_done(&scratch);
}

/* Writes the zeros that bring a large weight to its place in a page. */
static void put_weight_gap(struct weight_writer *writer, uint32_t place)
{
    static const unsigned char zeros[UL_FILE_PAGE_BYTES];
    const struct ul_program *program = writer->base.program;
    put_weight_bytes(
        writer, zeros,
        ul_weights_file_gap(ul_emit_home(&writer->base, place).offset_bytes,
                            ul_value_bytes(program->graph, program->places[place].value),
                            program->places[place].pack != NULL, writer->written_bytes));
}

static void write_weight(struct ul_emitter *emitter, uint32_t place)
{
    struct weight_writer *writer = (struct weight_writer *)emitter;
    ul_value_id value = emitter->program->places[place].value;
    const struct ul_value *info = &emitter->program->graph->values[value];
    put_weight_gap(writer, place);
    if ((info->flags & UL_VALUE_CHANNELS_LAST) != 0)
        put_filters(writer, value);
    else if (info->tensor->data == NULL || info->storage != UL_DTYPE_NONE)
        put_weight_elements(writer, value);
    else
        put_weight_bytes(writer, info->tensor->data, ul_type_bytes(&info->type));
}

/* The rest of a weight, some elements at a time: its own elements, several of which a pack may take
 * as one. */
struct stored {
    const struct weight_writer *writer;
    ul_value_id value;
    uint64_t element_bytes, at, count;
    unsigned char chunk[CHUNK_BYTES];
};

static const unsigned char *next_stored(void *context, uint64_t *size_bytes)
{
    struct stored *stored = context;
    const struct ul_graph *graph = stored->writer->base.program->graph;
    uint64_t left = stored->count - stored->at, part = CHUNK_BYTES / stored->element_bytes;
    part = left < part ? left : part;
    ul_tensor_read_as(graph->values[stored->value].tensor, ul_value_storage(graph, stored->value),
                      stored->at, part, stored->chunk);
    stored->at += part;
    *size_bytes = part * stored->element_bytes;
    return part > 0 ? stored->chunk : NULL;
}

/* Writes it in the library's layout, as a program that reads its weights into the arena does. */
static void put_packed_weight(struct weight_writer *writer, ul_value_id value,
                              const struct ul_pack *pack)
{
    struct ul_arena scratch;
    struct stored stored = {
        .writer = writer,
        .value = value,
        .element_bytes = ul_value_element_bytes(writer->base.program->graph, value),
        .count = ul_type_elements(&writer->base.program->graph->values[value].type)};
    ul_arena_init(&scratch);
    unsigned char *packed = ul_arena_alloc(&scratch, pack->size_bytes);
    ul_winograd_packer_take(pack, packed, next_stored, &stored);
    put_weight_bytes(writer, packed, pack->size_bytes);
    ul_arena_done(&scratch);
}

/* Read-only data: the file is the memory, with every weight at its planned offset. */
static void write_rom_weight(struct ul_emitter *emitter, uint32_t place)
{
    struct weight_writer *writer = (struct weight_writer *)emitter;
    const struct ul_pack *pack = emitter->program->places[place].pack;
    ul_value_id value = emitter->program->places[place].value;
    uint64_t offset = ul_emit_place(emitter, place, 0).offset_bytes;
    const unsigned char gap[CHUNK_BYTES] = {0};
    UL_ASSERT(offset >= writer->written_bytes && offset - writer->written_bytes <= CHUNK_BYTES);
    put_weight_bytes(writer, gap, offset - writer->written_bytes);
    if (pack != NULL)
        put_packed_weight(writer, value, pack);
    else
        put_weight_elements(writer, value);
}

static void put_trailer(struct weight_writer *writer)
{
    unsigned char trailer[UL_FILE_TRAILER_BYTES];
    ul_weights_file_trailer(writer->written_bytes, ul_weights_hash_get(&writer->hash), trailer);
    fwrite(trailer, 1, sizeof trailer, writer->stream);
}

enum ul_status ul_emit_weights(struct ul_emitter *emitter, const char *directory)
{
    struct weight_writer writer = {.base = *emitter};
    struct ul_file_writer file;
    UL_TRY(ul_file_begin(&file, ul_arena_printf(emitter->arena, "%s/weights.bin", directory),
                         emitter->diag));
    writer.stream = file.stream;
    ul_weights_hash_init(&writer.hash);
    if (emitter->program->options.weights_rom) {
        each_weight_by_offset(&writer.base, write_rom_weight);
    } else {
        ul_emit_each_weight(&writer.base, false, write_weight);
        put_trailer(&writer);
    }
    emitter->payload_bytes = writer.written_bytes;
    emitter->payload_hash = ul_weights_hash_get(&writer.hash);
    return ul_file_commit(&file, emitter->diag);
}

/* ---- the runtime ---- */

static bool has_ending(const char *name, const char *ending)
{
    size_t length = strlen(name);
    size_t tail = strlen(ending);
    return length > tail && strcmp(name + length - tail, ending) == 0;
}

bool ul_emit_is_runtime_file(const char *name)
{
    return strncmp(name, "ul_", 3) == 0 && (has_ending(name, ".c") || has_ending(name, ".h") ||
                                            has_ending(name, ".cu") || has_ending(name, ".cuh"));
}

/* ---- which of its files ---- */

const char *ul_emit_stem(const struct ul_emitter *emitter)
{
    return emitter->options->is_library_alone ? emitter->options->prefix : "model";
}

static void add_name(struct ul_emitter *emitter, const char *name)
{
    struct ul_emit_names *set = emitter->included;
    for (uint32_t i = 0; i < set->count; i++) {
        if (strcmp(set->names[i], name) == 0)
            return;
    }
    UL_GROW(emitter->arena, set->names, set->count, set->capacity);
    set->names[set->count++] = name;
}

void ul_emit_add_includes(struct ul_emitter *emitter, const char *source, size_t length)
{
    static const char before[] = "#include \"";
    enum { BEFORE = sizeof before - 1 };
    for (size_t at = 0; at + BEFORE < length;) {
        const char *line = source + at, *end = memchr(line, '\n', length - at);
        size_t size = end == NULL ? length - at : (size_t)(end - line);
        const char *quote = size <= BEFORE ? NULL : memchr(line + BEFORE, '"', size - BEFORE);
        if (quote != NULL && memcmp(line, before, BEFORE) == 0) {
            const char *name = ul_arena_printf(emitter->arena, "%.*s", (int)(quote - line - BEFORE),
                                               line + BEFORE);
            if (ul_emit_is_runtime_file(name))
                add_name(emitter, name);
        }
        at += size + 1;
    }
}

static int is_source(const struct dirent *entry)
{
    return ul_emit_is_runtime_file(entry->d_name) &&
           (has_ending(entry->d_name, ".c") || has_ending(entry->d_name, ".cu"));
}

/* Adds the sources of one room from which the program is made. */
static enum ul_status add_room(struct ul_emitter *emitter, const char *room)
{
    struct dirent **entries;
    const char *from =
        ul_arena_printf(emitter->arena, "%s/%s", emitter->options->runtime_dir, room);
    int count = scandir(from, &entries, is_source, alphasort);
    if (count < 0)
        return ul_diag_set(emitter->diag, UL_IO,
                           "%s: the runtime's files are not there (%s); install ullage with "
                           "cmake --install, or set ULLAGE_RUNTIME to its runtime folder",
                           from, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (ul_emit_takes_file(emitter, entries[i]->d_name))
            add_name(emitter, ul_arena_copy_string(emitter->arena, entries[i]->d_name));
        free(entries[i]);
    }
    free(entries);
    return UL_OK;
}

enum ul_status ul_emit_find_sources(struct ul_emitter *emitter)
{
    const struct ul_emit_options *options = emitter->options;
    const char *const *rooms = emitter->program->options.target->runtime_rooms;
    bool is_program = !options->is_library_alone;
    for (uint32_t i = 0; rooms[i] != NULL; i++) {
        if (is_program || strcmp(rooms[i], "host") != 0) /* the room of main */
            UL_TRY(add_room(emitter, rooms[i]));
    }
    return UL_OK;
}

const char *ul_emit_sources(const struct ul_emitter *emitter, const char *ending)
{
    struct ul_text text;
    ul_text_init(&text, emitter->arena);
    for (uint32_t i = 0; i < emitter->included->count; i++) {
        if (has_ending(emitter->included->names[i], ending))
            ul_text_printf(&text, " %s", emitter->included->names[i]);
    }
    return text.length > 0 ? text.data : "";
}

/* ---- copies of files, from whichever room ---- */

static enum ul_status copy_file(struct ul_emitter *emitter, const char *from, const char *name,
                                const char *directory)
{
    struct ul_file file;
    const char *to = ul_arena_printf(emitter->arena, "%s/%s", directory, name);
    UL_TRY(ul_file_map(&file, emitter->arena, from, emitter->diag));
    enum ul_status status = ul_file_write(to, file.data, file.size_bytes, emitter->diag);
    ul_emit_add_includes(emitter, (const char *)file.data, file.size_bytes);
    ul_file_unmap(&file);
    return status;
}

/* Its path, in the first of the target's rooms that has it. NULL: none has it, since it is included
 * only under some condition (tests/cuda_emulation has such a header). */
static const char *find_file(struct ul_emitter *emitter, const char *name)
{
    const char *const *rooms = emitter->program->options.target->runtime_rooms;
    for (uint32_t i = 0; rooms[i] != NULL; i++) {
        const char *path = ul_arena_printf(emitter->arena, "%s/%s/%s",
                                           emitter->options->runtime_dir, rooms[i], name);
        if (access(path, F_OK) == 0)
            return path;
    }
    return NULL;
}

enum ul_status ul_emit_runtime(struct ul_emitter *emitter, const char *directory)
{
    for (uint32_t i = 0; i < emitter->included->count; i++) { /* the list grows */
        const char *name = emitter->included->names[i];
        const char *path = find_file(emitter, name);
        if (path != NULL)
            UL_TRY(copy_file(emitter, path, name, directory));
    }
    return copy_file(emitter,
                     ul_arena_printf(emitter->arena, "%s/LICENSE", emitter->options->runtime_dir),
                     "LICENSE", directory);
}
