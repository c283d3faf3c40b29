/* SPDX-License-Identifier: 0BSD */
/*
 * numpy's .npz: a zip archive (PKWARE's APPNOTE 6.3) of .npy files. Entries are stored, not
 * compressed, as numpy.savez writes them; what numpy.savez_compressed writes is refused with that
 * advice. Sizes and offsets come from the central directory, also in their 64-bit form; every one
 * is checked against the file.
 */
#include "ul_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define END_BYTES 22 /* end of central directory, without its comment */
#define END_SEARCH (65535 + END_BYTES)
#define CENTRAL_BYTES 46
#define LOCAL_BYTES 30

struct entry {
    uint32_t method;
    uint32_t flags;
    uint32_t crc;
    uint64_t stored_bytes;
    uint64_t size_bytes;
    uint64_t local_offset;
    const char *name; /* not terminated */
    uint32_t name_bytes;
};

struct directory {
    unsigned char *bytes;
    uint64_t size_bytes;
};

static uint32_t get16(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

static uint32_t get32(const unsigned char *at)
{
    return get16(at) | get16(at + 2) << 16;
}

static uint64_t get64(const unsigned char *at)
{
    return get32(at) | (uint64_t)get32(at + 4) << 32;
}

static int invalid(const struct ul_session *s, const struct ul_reader *reader, const char *why)
{
    char shown[UL_SHOWN_BYTES];
    return ul_error(s, UL_EXIT_INVALID, "%s: not a sound .npz file: %s",
                    ul_shown(shown, reader->name), why);
}

/* Follows the locator in front of the end record to the 64-bit end record. */
static bool find_wide_end(struct ul_reader *reader, uint64_t end_offset, uint64_t *offset,
                          uint64_t *size_bytes, uint64_t *count)
{
    unsigned char locator[20], wide[56];
    if (end_offset < sizeof locator || !ul_reader_seek(reader, end_offset - sizeof locator) ||
        !ul_reader_get(reader, locator, sizeof locator) || get32(locator) != 0x07064b50u)
        return false;
    if (!ul_reader_seek(reader, get64(locator + 8)) || !ul_reader_get(reader, wide, sizeof wide) ||
        get32(wide) != 0x06064b50u)
        return false;
    *count = get64(wide + 32);
    *size_bytes = get64(wide + 40);
    *offset = get64(wide + 48);
    return true;
}

/* The central directory, read into memory that the caller frees. */
static int read_directory(const struct ul_session *s, struct ul_reader *reader, uint64_t total,
                          struct directory *directory)
{
    uint64_t tail_bytes = total < END_SEARCH ? total : END_SEARCH;
    unsigned char *tail = malloc(END_SEARCH);
    uint64_t at = tail_bytes < END_BYTES ? 0 : tail_bytes - END_BYTES + 1;
    uint64_t offset, size_bytes, count;
    if (tail == NULL)
        return ul_out_of_memory(s, END_SEARCH);
    bool found =
        ul_reader_seek(reader, total - tail_bytes) && ul_reader_get(reader, tail, tail_bytes);
    while (found && at > 0 && get32(tail + at - 1) != 0x06054b50u)
        at--;
    if (!found || at == 0) {
        free(tail);
        return invalid(s, reader, "no directory at its end");
    }
    const unsigned char *end = tail + at - 1;
    count = get16(end + 10);
    size_bytes = get32(end + 12);
    offset = get32(end + 16);
    if (count == 0xffff || size_bytes == UINT32_MAX || offset == UINT32_MAX)
        found = find_wide_end(reader, total - tail_bytes + at - 1, &offset, &size_bytes, &count);
    free(tail);
    if (!found || offset > total || size_bytes > total - offset)
        return invalid(s, reader, "the directory lies outside of it");
    directory->bytes = malloc((size_t)size_bytes + 1);
    directory->size_bytes = size_bytes;
    if (directory->bytes == NULL)
        return ul_out_of_memory(s, size_bytes);
    if (ul_reader_seek(reader, offset) && ul_reader_get(reader, directory->bytes, size_bytes))
        return UL_EXIT_OK;
    return invalid(s, reader, "the directory cannot be read");
}

/* Reads the 64-bit sizes, which an extra field has in this order where the 32-bit ones are full. */
static bool read_wide_sizes(const unsigned char *extra, uint32_t extra_bytes, struct entry *entry)
{
    uint64_t *wide[] = {&entry->size_bytes, &entry->stored_bytes, &entry->local_offset};
    while (extra_bytes >= 4) {
        uint32_t tag = get16(extra), size = get16(extra + 2);
        if (size > extra_bytes - 4)
            return false;
        const unsigned char *at = extra + 4, *end = at + size;
        for (int i = 0; tag == 1 && i < 3; i++)
            if (*wide[i] == UINT32_MAX) {
                if (end - at < 8)
                    return false;
                *wide[i] = get64(at);
                at += 8;
            }
        extra += 4 + size;
        extra_bytes -= 4 + size;
    }
    return true;
}

/* Reads the entry at *at and goes on to the next; false at the end or on nonsense. */
static bool next_entry(const struct directory *directory, uint64_t *at, struct entry *entry)
{
    const unsigned char *bytes = directory->bytes + *at;
    uint64_t left = directory->size_bytes - *at;
    if (left < CENTRAL_BYTES || get32(bytes) != 0x02014b50u)
        return false;
    uint32_t name_bytes = get16(bytes + 28), extra_bytes = get16(bytes + 30);
    uint64_t record_bytes = CENTRAL_BYTES + name_bytes + extra_bytes + get16(bytes + 32);
    if (record_bytes > left)
        return false;
    entry->flags = get16(bytes + 8);
    entry->method = get16(bytes + 10);
    entry->crc = get32(bytes + 16);
    entry->stored_bytes = get32(bytes + 20);
    entry->size_bytes = get32(bytes + 24);
    entry->local_offset = get32(bytes + 42);
    entry->name = (const char *)bytes + CENTRAL_BYTES;
    entry->name_bytes = name_bytes;
    *at += record_bytes;
    return read_wide_sizes(bytes + CENTRAL_BYTES + name_bytes, extra_bytes, entry);
}

/* "x.npy" and "x" are both called x. */
static bool name_is(const struct entry *entry, const char *key)
{
    size_t size = strlen(key);
    if (entry->name_bytes == size + 4 && memcmp(entry->name + size, ".npy", 4) == 0)
        return memcmp(entry->name, key, size) == 0;
    return entry->name_bytes == size && memcmp(entry->name, key, size) == 0;
}

static int find_entry(const struct ul_session *s, const struct ul_reader *reader,
                      const struct directory *directory, const char *key, const char *fallback,
                      struct entry *entry)
{
    const char *wanted = key != NULL ? key : fallback;
    uint64_t at = 0, count = 0;
    struct entry candidate;
    char names[1024] = "", shown[UL_SHOWN_BYTES], shown_key[UL_SHOWN_BYTES];
    size_t used = 0;
    for (; next_entry(directory, &at, &candidate); count++) {
        char name[64];
        *entry = candidate;
        if (name_is(entry, wanted))
            return UL_EXIT_OK;
        snprintf(name, sizeof name, "%.*s", (int)(entry->name_bytes < 40 ? entry->name_bytes : 40),
                 entry->name);
        if (used + 4 * sizeof name < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used == 0 ? "" : ", ", ul_shown(shown, name));
    }
    if (count == 1 && key == NULL)
        return UL_EXIT_OK;
    return ul_error(s, UL_EXIT_INVALID, "%s: has no entry '%s'; it holds: %s",
                    ul_shown(shown, reader->name), ul_shown(shown_key, wanted),
                    count == 0 ? "nothing" : names);
}

/* Puts the reader in front of the entry's data and bounds it to them. */
static int enter(const struct ul_session *s, struct ul_reader *reader, uint64_t total,
                 const struct entry *entry)
{
    unsigned char local[LOCAL_BYTES];
    char shown[UL_SHOWN_BYTES];
    if (entry->method != 0)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "%s: is compressed; write it with numpy.savez, not numpy.savez_compressed",
                        ul_shown(shown, reader->name));
    if ((entry->flags & 1) != 0)
        return invalid(s, reader, "an entry is encrypted");
    if (entry->stored_bytes != entry->size_bytes)
        return invalid(s, reader, "a stored entry has two sizes");
    if (!ul_reader_seek(reader, entry->local_offset) ||
        !ul_reader_get(reader, local, LOCAL_BYTES) || get32(local) != 0x04034b50u)
        return invalid(s, reader, "an entry lies outside of it");
    uint64_t data = entry->local_offset + LOCAL_BYTES + get16(local + 26) + get16(local + 28);
    if (data > total || entry->size_bytes > total - data || !ul_reader_seek(reader, data))
        return invalid(s, reader, "an entry is cut short");
    reader->left_bytes = entry->size_bytes;
    return UL_EXIT_OK;
}

/* Reads the entry once for its checksum, then goes back to its beginning. */
static int check_crc(const struct ul_session *s, struct ul_reader *reader, uint64_t total,
                     const struct entry *entry)
{
    unsigned char piece[4096];
    struct ul_crc crc;
    ul_crc_init(&crc);
    while (reader->left_bytes > 0) {
        uint64_t size = reader->left_bytes < sizeof piece ? reader->left_bytes : sizeof piece;
        if (!ul_reader_get(reader, piece, size))
            return invalid(s, reader, "an entry cannot be read");
        ul_crc_add(&crc, piece, (size_t)size);
    }
    if (ul_crc_get(&crc) != entry->crc)
        return invalid(s, reader, "an entry is damaged (its checksum is wrong)");
    return enter(s, reader, total, entry);
}

int ul_npz_read(const struct ul_session *s, struct ul_reader *reader, const char *key,
                const char *what, const struct ul_rt_tensor *tensor, void *data)
{
    struct directory directory = {NULL, 0};
    struct entry entry = {0, 0, 0, 0, 0, 0, NULL, 0};
    uint64_t total;
    if (!ul_reader_seek(reader, 0))
        return invalid(s, reader, "a pipe will not do");
    total = reader->left_bytes;
    int status = read_directory(s, reader, total, &directory);
    if (status == UL_EXIT_OK)
        status = find_entry(s, reader, &directory, key, tensor->name, &entry);
    if (status == UL_EXIT_OK)
        status = enter(s, reader, total, &entry);
    if (status == UL_EXIT_OK && data != NULL)
        status = check_crc(s, reader, total, &entry);
    if (status == UL_EXIT_OK)
        status = ul_npy_read(s, reader, what, tensor, data);
    free(directory.bytes);
    return status;
}

int ul_npz_visit(const struct ul_session *s, struct ul_reader *reader, ul_npz_name *visit,
                 void *context)
{
    enum { NAME_LIMIT = 4096 };
    struct directory directory = {NULL, 0};
    struct entry entry;
    uint64_t at = 0;
    char name[NAME_LIMIT];
    if (!ul_reader_seek(reader, 0))
        return invalid(s, reader, "a pipe will not do");
    int status = read_directory(s, reader, reader->left_bytes, &directory);
    while (status == UL_EXIT_OK && next_entry(&directory, &at, &entry)) {
        uint32_t size = entry.name_bytes;
        if (size >= 4 && memcmp(entry.name + size - 4, ".npy", 4) == 0)
            size -= 4;
        if (size >= sizeof name) {
            status = invalid(s, reader, "an entry has an absurd name");
            break;
        }
        memcpy(name, entry.name, size);
        name[size] = '\0';
        status = visit(context, name);
    }
    free(directory.bytes);
    return status;
}
