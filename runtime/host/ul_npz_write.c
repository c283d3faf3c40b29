/* SPDX-License-Identifier: 0BSD */
/*
 * One .npz: a zip archive (PKWARE's APPNOTE 6.3) of stored .npy files, without times, so that
 * equal arrays make equal files. What 32 bits cannot count is written in the 64-bit form, as
 * numpy does. */
#include "ul_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LIMIT 4096 /* what ul_npz_visit reads */
#define PIECE_BYTES 65536
#ifndef UL_NPZ_WIDE /* tests write small files in the wide form */
#define UL_NPZ_WIDE UINT32_MAX
#endif

struct archive {
    FILE *file;
    struct ul_crc crc;
    uint64_t written;
    unsigned char *piece; /* PIECE_BYTES */
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

static bool is_wide(const struct ul_npz_member *member)
{
    return member->size_bytes >= UL_NPZ_WIDE || member->offset_bytes >= UL_NPZ_WIDE;
}

/* What the local and the central record have in common, from "version needed" on; the central one
 * has the offset in its extra field too. */
static void put_common(struct archive *archive, const struct ul_npz_member *member, bool central)
{
    bool wide = is_wide(member);
    uint64_t size_bytes = wide ? UINT32_MAX : member->size_bytes;
    put_number(archive, wide ? 45 : 20, 2); /* version needed */
    put_number(archive, 0x0800, 2);         /* names are UTF-8 */
    put_number(archive, 0, 2);              /* stored */
    put_number(archive, 0x00210000, 4);     /* 1980-01-01 00:00: no times in outputs */
    put_number(archive, member->crc, 4);
    put_number(archive, size_bytes, 4);
    put_number(archive, size_bytes, 4);
    put_number(archive, strlen(member->tensor.name) + 4, 2);
    put_number(archive, !wide ? 0 : central ? 28 : 20, 2);
}

static void put_name(struct archive *archive, const struct ul_npz_member *member, bool central)
{
    put_bytes(archive, member->tensor.name, strlen(member->tensor.name));
    put_bytes(archive, ".npy", 4);
    if (!is_wide(member))
        return;
    put_number(archive, 1, 2);
    put_number(archive, central ? 24 : 16, 2);
    put_number(archive, member->size_bytes, 8);
    put_number(archive, member->size_bytes, 8);
    if (central)
        put_number(archive, member->offset_bytes, 8);
}

/* Adds its elements to the checksum, and to the file where that is open for them. */
static int put_elements(struct archive *archive, const struct ul_npz_member *member, bool writes)
{
    uint64_t size_bytes = member->tensor.size_bytes;
    for (uint64_t at = 0; at < size_bytes; at += PIECE_BYTES) {
        size_t size = size_bytes - at < PIECE_BYTES ? (size_t)(size_bytes - at) : PIECE_BYTES;
        const unsigned char *bytes = archive->piece;
        int status = UL_EXIT_OK;
        if (member->data != NULL)
            bytes = (const unsigned char *)member->data + at;
        else
            status = member->read(member->context, at, archive->piece, size);
        if (status != UL_EXIT_OK)
            return status;
        if (writes)
            put_bytes(archive, bytes, size);
        else
            ul_crc_add(&archive->crc, bytes, size);
    }
    return UL_EXIT_OK;
}

static int put_member(struct archive *archive, struct ul_npz_member *member)
{
    char header[UL_NPY_HEADER_BYTES];
    size_t header_bytes = ul_npy_header(&member->tensor, header, sizeof header);
    ul_crc_init(&archive->crc);
    ul_crc_add(&archive->crc, header, header_bytes);
    int status = put_elements(archive, member, false);
    member->crc = ul_crc_get(&archive->crc);
    member->size_bytes = header_bytes + member->tensor.size_bytes;
    member->offset_bytes = archive->written;
    put_number(archive, 0x04034b50u, 4);
    put_common(archive, member, false);
    put_name(archive, member, false);
    put_bytes(archive, header, header_bytes);
    return status == UL_EXIT_OK ? put_elements(archive, member, true) : status;
}

static void put_wide_end(struct archive *archive, uint64_t begin, uint64_t end, uint64_t count)
{
    put_number(archive, 0x06064b50u, 4);
    put_number(archive, 44, 8); /* bytes after this */
    put_number(archive, 0x0314, 2);
    put_number(archive, 45, 2);
    put_number(archive, 0, 8); /* one disk */
    put_number(archive, count, 8);
    put_number(archive, count, 8);
    put_number(archive, end - begin, 8);
    put_number(archive, begin, 8);
    put_number(archive, 0x07064b50u, 4);
    put_number(archive, 0, 4);
    put_number(archive, end, 8);
    put_number(archive, 1, 4);
}

static void put_directory(struct archive *archive, const struct ul_npz_member *members,
                          uint32_t count)
{
    uint64_t begin = archive->written;
    for (uint32_t i = 0; i < count; i++) {
        put_number(archive, 0x02014b50u, 4);
        put_number(archive, 0x0314, 2); /* made by Unix, 2.0 */
        put_common(archive, &members[i], true);
        put_number(archive, 0, 6);                    /* no comment, disk 0, binary */
        put_number(archive, UINT64_C(0x81a40000), 4); /* a file, rw-r--r-- */
        put_number(archive, is_wide(&members[i]) ? UINT32_MAX : members[i].offset_bytes, 4);
        put_name(archive, &members[i], true);
    }
    uint64_t end = archive->written;
    bool wide = end >= UL_NPZ_WIDE || count >= 0xffff;
    if (wide)
        put_wide_end(archive, begin, end, count);
    put_number(archive, 0x06054b50u, 4);
    put_number(archive, 0, 4);
    put_number(archive, wide ? 0xffff : count, 2);
    put_number(archive, wide ? 0xffff : count, 2);
    put_number(archive, wide ? UINT32_MAX : end - begin, 4);
    put_number(archive, wide ? UINT32_MAX : begin, 4);
    put_number(archive, 0, 2);
}

static int put_archive(const struct ul_session *s, struct archive *archive, const char *path,
                       struct ul_npz_member *members, uint32_t count, bool durable)
{
    struct ul_writer writer;
    int status = ul_writer_open(s, &writer, path);
    if (status != UL_EXIT_OK)
        return status;
    writer.durable = durable;
    archive->file = writer.file;
    for (uint32_t i = 0; status == UL_EXIT_OK && i < count; i++)
        status = put_member(archive, &members[i]);
    put_directory(archive, members, count);
    int closed = ul_writer_close(s, &writer, status == UL_EXIT_OK);
    return status == UL_EXIT_OK ? closed : status;
}

int ul_npz_write(const struct ul_session *s, const char *path, struct ul_npz_member *members,
                 uint32_t count, bool durable)
{
    struct archive archive;
    char shown[UL_SHOWN_BYTES];
    for (uint32_t i = 0; i < count; i++)
        if (strlen(members[i].tensor.name) + 4 >= NAME_LIMIT)
            return ul_error(s, UL_EXIT_UNSUPPORTED, "'%s' is too long a name for a .npz file",
                            ul_shown(shown, members[i].tensor.name));
    memset(&archive, 0, sizeof archive);
    archive.piece = malloc(PIECE_BYTES);
    if (archive.piece == NULL)
        return ul_out_of_memory(s, PIECE_BYTES);
    int status = put_archive(s, &archive, path, members, count, durable);
    free(archive.piece);
    return status;
}
