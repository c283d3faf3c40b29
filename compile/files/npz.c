/* SPDX-License-Identifier: Apache-2.0 */
/* numpy's .npz: a zip archive (PKWARE's APPNOTE 6.3) of stored .npy files, as trainers and
 * numpy.savez write it. Sizes and offsets come from the directory at the end, in their 64-bit form
 * too. The file is hostile, so each is checked against the file's size. */
#include "compile/files/tensor_file.h"

#include <string.h>

enum {
    END_BYTES = 22, /* size of the directory's end record, without its comment */
    COMMENT_BYTES = 65535,
    LOCATOR_BYTES = 20,
    WIDE_END_BYTES = 56,
    CENTRAL_BYTES = 46,
    LOCAL_BYTES = 30
};

struct zip {
    struct ul_arena *arena;
    struct ul_diag *diag;
    const char *path;
    const unsigned char *data;
    uint64_t size_bytes;
};

struct directory {
    uint64_t begin, end, count;
};

static uint64_t get(const unsigned char *at, unsigned byte_count)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < byte_count; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static enum ul_status bad(const struct zip *zip, const char *why)
{
    return ul_diag_set(zip->diag, UL_INVALID, "%s: not a sound .npz file: %s", zip->path, why);
}

/* Finds the 64-bit end record, to which a locator before the other one leads. */
static bool find_wide_end(const struct zip *zip, uint64_t end, struct directory *directory)
{
    if (end < LOCATOR_BYTES || get(zip->data + end - LOCATOR_BYTES, 4) != 0x07064b50u)
        return false;
    uint64_t at = get(zip->data + end - LOCATOR_BYTES + 8, 8);
    if (at > zip->size_bytes || zip->size_bytes - at < WIDE_END_BYTES ||
        get(zip->data + at, 4) != 0x06064b50u)
        return false;
    directory->count = get(zip->data + at + 32, 8);
    directory->end = get(zip->data + at + 40, 8); /* its size, so far */
    directory->begin = get(zip->data + at + 48, 8);
    return true;
}

static enum ul_status find_directory(const struct zip *zip, struct directory *directory)
{
    uint64_t least = zip->size_bytes > END_BYTES + COMMENT_BYTES
                         ? zip->size_bytes - END_BYTES - COMMENT_BYTES
                         : 0;
    uint64_t at = zip->size_bytes < END_BYTES ? 0 : zip->size_bytes - END_BYTES;
    while (at > least && get(zip->data + at, 4) != 0x06054b50u)
        at--;
    if (zip->size_bytes < END_BYTES || get(zip->data + at, 4) != 0x06054b50u)
        return bad(zip, "no directory at its end; numpy.savez(\"data.npz\", NAME=array) makes one, "
                        "with the name of each input of the model");
    directory->count = get(zip->data + at + 10, 2);
    directory->end = get(zip->data + at + 12, 4);
    directory->begin = get(zip->data + at + 16, 4);
    bool wide = directory->count == 0xffff || directory->end == UINT32_MAX ||
                directory->begin == UINT32_MAX;
    if (wide && !find_wide_end(zip, at, directory))
        return bad(zip, "no 64-bit directory");
    if (directory->begin > zip->size_bytes || directory->end > zip->size_bytes - directory->begin)
        return bad(zip, "the directory lies outside of it");
    directory->end += directory->begin;
    return UL_OK;
}

/* Reads sizes and offset from an extra field where 32 bits are too few. */
static bool read_wide(const unsigned char *extra, uint64_t extra_bytes, uint64_t *const numbers[3])
{
    while (extra_bytes >= 4) {
        uint64_t tag = get(extra, 2), size = get(extra + 2, 2), at = 4;
        if (size > extra_bytes - 4)
            return false;
        for (int i = 0; tag == 1 && i < 3; i++) {
            if (*numbers[i] != UINT32_MAX)
                continue;
            if (size + 4 - at < 8)
                return false;
            *numbers[i] = get(extra + at, 8);
            at += 8;
        }
        extra += 4 + size;
        extra_bytes -= 4 + size;
    }
    return true;
}

/* Reads the entry that a record of the directory describes. */
static enum ul_status read_record(const struct zip *zip, const unsigned char *record,
                                  struct ul_npz_entry *entry)
{
    struct ul_arena *keep = zip->arena;
    uint64_t size_bytes = get(record + 24, 4), stored_bytes = get(record + 20, 4);
    uint64_t local = get(record + 42, 4), name_bytes = get(record + 28, 2);
    const char *name = (const char *)record + CENTRAL_BYTES;
    if (!read_wide(record + CENTRAL_BYTES + name_bytes, get(record + 30, 2),
                   (uint64_t *const[]){&size_bytes, &stored_bytes, &local}))
        return bad(zip, "an entry's sizes are cut off");
    if (get(record + 10, 2) != 0)
        return ul_diag_set(zip->diag, UL_UNSUPPORTED,
                           "%s: is compressed; write it with numpy.savez, not "
                           "numpy.savez_compressed",
                           zip->path);
    if ((get(record + 8, 2) & 1) != 0 || size_bytes != stored_bytes)
        return bad(zip, "an entry is encrypted, or has two sizes");
    if (memchr(name, '\0', name_bytes) != NULL)
        return bad(zip, "a name has a byte that is 0");
    if (local > zip->size_bytes || zip->size_bytes - local < LOCAL_BYTES ||
        get(zip->data + local, 4) != 0x04034b50u)
        return bad(zip, "an entry lies outside of it");
    uint64_t begin =
        local + LOCAL_BYTES + get(zip->data + local + 26, 2) + get(zip->data + local + 28, 2);
    if (begin > zip->size_bytes || size_bytes > zip->size_bytes - begin)
        return bad(zip, "an entry is cut short");
    bool npy = name_bytes >= 4 && memcmp(name + name_bytes - 4, ".npy", 4) == 0;
    entry->name = ul_arena_printf(keep, "%.*s", (int)(name_bytes - (npy ? 4 : 0)), name);
    entry->npy = (struct ul_file){.data = zip->data + begin, .size_bytes = size_bytes};
    entry->crc = (uint32_t)get(record + 16, 4);
    return UL_OK;
}

enum ul_status ul_npz_list(struct ul_arena *arena, const struct ul_file *file, const char *path,
                           const struct ul_npz_entry **entries, uint32_t *count,
                           struct ul_diag *diag)
{
    const struct zip zip = {arena, diag, path, file->data, file->size_bytes};
    struct directory directory = {0};
    struct ul_npz_entry *list = NULL;
    uint32_t capacity = 0;
    *count = 0;
    UL_TRY(find_directory(&zip, &directory));
    for (uint64_t at = directory.begin; at < directory.end;) {
        const unsigned char *record = zip.data + at;
        uint64_t left = directory.end - at;
        if (left < CENTRAL_BYTES || get(record, 4) != 0x02014b50u)
            return bad(&zip, "its directory is damaged");
        uint64_t size =
            CENTRAL_BYTES + get(record + 28, 2) + get(record + 30, 2) + get(record + 32, 2);
        if (size > left)
            return bad(&zip, "its directory is cut short");
        UL_GROW(arena, list, *count, capacity);
        UL_TRY(read_record(&zip, record, &list[*count]));
        ++*count;
        at += size;
    }
    if (*count != directory.count)
        return bad(&zip, "its directory has another number of entries than it says");
    *entries = list;
    return UL_OK;
}

/* The checksum of zip archives: CRC-32, reflected. */
static uint32_t crc_of(const struct ul_file *file)
{
    uint32_t table[256], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = table[i] >> 1 ^ ((table[i] & 1) != 0 ? 0xedb88320u : 0);
    }
    for (uint64_t i = 0; i < file->size_bytes; i++)
        crc = crc >> 8 ^ table[(crc ^ file->data[i]) & 0xff];
    return ~crc;
}

enum ul_status ul_npz_read(struct ul_arena *arena, const struct ul_npz_entry *entry,
                           const char *path, const struct ul_tensor **tensor, struct ul_diag *diag)
{
    const char *shown = ul_arena_printf(arena, "%s, %s", path, ul_quote(arena, entry->name));
    if (crc_of(&entry->npy) != entry->crc)
        return ul_diag_set(diag, UL_INVALID, "%s: its checksum is wrong", shown);
    return ul_tensor_read_npy(arena, &entry->npy, shown, tensor, diag);
}
