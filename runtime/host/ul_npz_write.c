/*
 * Outputs as one .npz: a zip archive (PKWARE's APPNOTE 6.3) of stored .npy files, without times, so
 * that equal outputs make equal files.
 */
#include "ul_internal.h"

#include <stdlib.h>
#include <string.h>

#define NAME_LIMIT 4096

struct archive {
    FILE *file;
    struct ul_crc crc;
    uint64_t written;
};

struct member {
    uint32_t crc;
    uint64_t size_bytes;
    uint64_t offset_bytes;
};

static void put_bytes(struct archive *archive, const void *bytes, size_t size_bytes)
{
    archive->written += fwrite(bytes, 1, size_bytes, archive->file);
}

static void put_number(struct archive *archive, uint64_t value, uint32_t size_bytes)
{
    for (uint32_t i = 0; i < size_bytes; i++) {
        unsigned char byte = (unsigned char)(value >> 8 * i & 0xff);
        put_bytes(archive, &byte, 1);
    }
}

/* What the local and the central record have in common, from "version needed" on. */
static void put_common(struct archive *archive, const struct member *member, const char *name)
{
    put_number(archive, 20, 2);         /* version needed: 2.0 */
    put_number(archive, 0x0800, 2);     /* names are UTF-8 */
    put_number(archive, 0, 2);          /* stored */
    put_number(archive, 0x00210000, 4); /* 1980-01-01 00:00: no times in outputs */
    put_number(archive, member->crc, 4);
    put_number(archive, member->size_bytes, 4);
    put_number(archive, member->size_bytes, 4);
    put_number(archive, strlen(name) + 4, 2);
    put_number(archive, 0, 2); /* no extra field */
}

static void put_name(struct archive *archive, const char *name)
{
    put_bytes(archive, name, strlen(name));
    put_bytes(archive, ".npy", 4);
}

static void put_member(const struct ul_session *s, struct archive *archive, uint32_t index,
                       struct member *member)
{
    const struct ul_rt_tensor *tensor = &s->model->outputs[index];
    const void *data = ul_session_output(s, index);
    char header[UL_NPY_HEADER_BYTES];
    size_t header_bytes = ul_npy_header(tensor, header, sizeof header);
    ul_crc_init(&archive->crc);
    ul_crc_add(&archive->crc, header, header_bytes);
    ul_crc_add(&archive->crc, data, (size_t)tensor->size_bytes);
    member->crc = ul_crc_get(&archive->crc);
    member->size_bytes = header_bytes + tensor->size_bytes;
    member->offset_bytes = archive->written;
    put_number(archive, 0x04034b50u, 4);
    put_common(archive, member, tensor->name);
    put_name(archive, tensor->name);
    put_bytes(archive, header, header_bytes);
    put_bytes(archive, data, (size_t)tensor->size_bytes);
}

static void put_directory(const struct ul_session *s, struct archive *archive,
                          const struct member *members)
{
    uint64_t begin = archive->written;
    for (uint32_t i = 0; i < s->model->output_count; i++) {
        put_number(archive, 0x02014b50u, 4);
        put_number(archive, 0x0314, 2); /* made by Unix, 2.0 */
        put_common(archive, &members[i], s->model->outputs[i].name);
        put_number(archive, 0, 6);                    /* no comment, disk 0, binary */
        put_number(archive, UINT64_C(0x81a40000), 4); /* a file, rw-r--r-- */
        put_number(archive, members[i].offset_bytes, 4);
        put_name(archive, s->model->outputs[i].name);
    }
    uint64_t size_bytes = archive->written - begin;
    put_number(archive, 0x06054b50u, 4);
    put_number(archive, 0, 4);
    put_number(archive, s->model->output_count, 2);
    put_number(archive, s->model->output_count, 2);
    put_number(archive, size_bytes, 4);
    put_number(archive, begin, 4);
    put_number(archive, 0, 2);
}

/* Does everything fit the 32-bit form of the format? */
static bool fits(const struct ul_model *model)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < model->output_count; i++) {
        uint64_t name_bytes = strlen(model->outputs[i].name);
        if (name_bytes > NAME_LIMIT)
            return false;
        total += model->outputs[i].size_bytes + UL_NPY_HEADER_BYTES + 2 * name_bytes + 128;
    }
    return total < UINT32_MAX && model->output_count < 0xffff;
}

int ul_npz_write(const struct ul_session *s, const char *path)
{
    struct ul_writer writer;
    struct archive archive;
    uint32_t count = s->model->output_count;
    if (!fits(s->model))
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "the outputs are too large for one .npz file; use --output-dir");
    struct member *members = calloc(count + 1, sizeof *members);
    if (members == NULL)
        return ul_out_of_memory(s, (count + 1) * sizeof *members);
    int status = ul_writer_open(s, &writer, path);
    if (status == UL_EXIT_OK) {
        archive.file = writer.file;
        archive.written = 0;
        for (uint32_t i = 0; i < count; i++)
            put_member(s, &archive, i, &members[i]);
        put_directory(s, &archive, members);
        status = ul_writer_close(s, &writer, true);
    }
    free(members);
    return status;
}
