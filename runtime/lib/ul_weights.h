/* SPDX-License-Identifier: 0BSD */
/*
 * The file of weights: the 64-bit hash that guards it (and compares the steps of two runs), where
 * large weights lie in it, and how a program that has weights in its arena reads them to their
 * places. A program that has no weights, or has them as read-only data, does without this.
 *
 * The hash finds accidents (truncation, flipped bits, another model's file); it is no protection
 * against an adversary. Four independent lanes take 32 bytes at a time, so that it runs at memory
 * speed. The result does not depend on how the bytes were cut into calls, nor on the byte order of
 * the machine.
 *
 * Ownership: everything is the caller's. Failures: see enum ul_result. C99, and C++ for target
 * cuda. */
#ifndef UL_WEIGHTS_H
#define UL_WEIGHTS_H

#include "ul_model.h"
#include "ul_run.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- places and hash: what the compiler that writes the file has too ---- */

/* A large weight that is stored as it is in the arena has the same place in a page in both, so that
   a program may take the file's own pages instead of copying them. This is how many zeros come
   before a weight for offset_bytes of the arena, at `at_bytes` of the payload. */
#define UL_PAGE_BYTES 4096u
#define UL_PAGED_WEIGHT_BYTES 1048576u

static inline uint64_t ul_weights_gap(uint64_t offset_bytes, uint64_t size_bytes, int packed,
                                      uint64_t at_bytes)
{
    if (packed || size_bytes < UL_PAGED_WEIGHT_BYTES)
        return 0;
    return (offset_bytes - at_bytes) & (UL_PAGE_BYTES - 1);
}

struct ul_hash {
    uint64_t lanes[4];
    uint64_t total_bytes;
    unsigned char tail[32]; /* bytes that do not fill a block yet: total_bytes % 32 of them */
};

static inline uint64_t ul_hash_rotate(uint64_t word, unsigned count)
{
    return (word << count) | (word >> (64u - count));
}

static inline uint64_t ul_hash_word(const unsigned char *bytes)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
#else
    return (uint64_t)bytes[0] | (uint64_t)bytes[1] << 8 | (uint64_t)bytes[2] << 16 |
           (uint64_t)bytes[3] << 24 | (uint64_t)bytes[4] << 32 | (uint64_t)bytes[5] << 40 |
           (uint64_t)bytes[6] << 48 | (uint64_t)bytes[7] << 56;
#endif
}

/* One step of a lane: odd multiplier (a bijection) and a rotation that feeds high bits back. */
static inline uint64_t ul_hash_mix(uint64_t lane, uint64_t word)
{
    return ul_hash_rotate((lane ^ word) * UINT64_C(0x9e3779b97f4a7c15), 29);
}

static inline void ul_hash_init(struct ul_hash *hash)
{
    hash->lanes[0] = UINT64_C(0x243f6a8885a308d3); /* the digits of pi */
    hash->lanes[1] = UINT64_C(0x13198a2e03707344);
    hash->lanes[2] = UINT64_C(0xa4093822299f31d0);
    hash->lanes[3] = UINT64_C(0x082efa98ec4e6c89);
    hash->total_bytes = 0;
}

/* Takes `block_count` blocks of 32 bytes. */
static inline void ul_hash_blocks(struct ul_hash *hash, const unsigned char *bytes,
                                  size_t block_count)
{
    uint64_t a = hash->lanes[0], b = hash->lanes[1], c = hash->lanes[2], d = hash->lanes[3];
    for (size_t i = 0; i < block_count; i++, bytes += 32) {
        a = ul_hash_mix(a, ul_hash_word(bytes));
        b = ul_hash_mix(b, ul_hash_word(bytes + 8));
        c = ul_hash_mix(c, ul_hash_word(bytes + 16));
        d = ul_hash_mix(d, ul_hash_word(bytes + 24));
    }
    hash->lanes[0] = a;
    hash->lanes[1] = b;
    hash->lanes[2] = c;
    hash->lanes[3] = d;
}

static inline void ul_hash_add(struct ul_hash *hash, const void *data, size_t size_bytes)
{
    const unsigned char *bytes = (const unsigned char *)data;
    size_t held = (size_t)(hash->total_bytes % 32);
    hash->total_bytes += size_bytes;
    while (held != 0 && size_bytes != 0) {
        hash->tail[held++] = *bytes++;
        size_bytes--;
        if (held == 32) {
            ul_hash_blocks(hash, hash->tail, 1);
            held = 0;
        }
    }
    if (size_bytes == 0)
        return;
    ul_hash_blocks(hash, bytes, size_bytes / 32);
    bytes += size_bytes / 32 * 32;
    for (size_t i = 0; i < size_bytes % 32; i++)
        hash->tail[i] = bytes[i];
}

/* The hash of everything added so far; more may be added afterwards. */
static inline uint64_t ul_hash_get(const struct ul_hash *hash)
{
    uint64_t sum = hash->total_bytes;
    for (int i = 0; i < 4; i++)
        sum = ul_hash_mix(sum, hash->lanes[i]);
    for (size_t i = 0; i < (size_t)(hash->total_bytes % 32); i++)
        sum = ul_hash_mix(sum, hash->tail[i]);
    sum ^= sum >> 32;
    sum *= UINT64_C(0xd6e8feb86659fd93);
    return sum ^ sum >> 32;
}

/* ---- the file ---- */

static inline int ul_weights_read(const struct ul_weights_source *source, uint64_t offset_bytes,
                                  void *target, uint64_t size_bytes)
{
    if (source->memory == NULL)
        return source->read(source->context, offset_bytes, target, size_bytes);
    memcpy(target, (const unsigned char *)source->memory + offset_bytes, (size_t)size_bytes);
    return 0;
}

/* Checks the trailer against the model and finds the payload. */
static inline enum ul_result ul_weights_find(const struct ul_model *model,
                                             const struct ul_weights_source *source,
                                             uint64_t *payload_offset, struct ul_failure *failure)
{
    unsigned char trailer[UL_TRAILER_BYTES];
    if (source == NULL || (source->memory == NULL && source->read == NULL))
        return ul_fail(failure, UL_WEIGHTS_MISSING, model->payload_bytes, 0);
    uint64_t size = source->size_bytes;
    if (size < UL_TRAILER_BYTES)
        return ul_fail(failure, UL_WEIGHTS_INVALID, UL_TRAILER_BYTES, size);
    if (ul_weights_read(source, size - UL_TRAILER_BYTES, trailer, UL_TRAILER_BYTES) != 0)
        return ul_fail(failure, UL_WEIGHTS_UNREADABLE, UL_TRAILER_BYTES, 0);
    uint64_t version_and_size = UL_TRAILER_VERSION | (uint64_t)UL_TRAILER_BYTES << 32;
    if (memcmp(trailer, UL_TRAILER_MAGIC, 8) != 0 || ul_hash_word(trailer + 8) != version_and_size)
        return ul_fail(failure, UL_WEIGHTS_INVALID, 0, 0);
    uint64_t stored = ul_hash_word(trailer + 16);
    if (stored != model->payload_bytes || stored > size - UL_TRAILER_BYTES)
        return ul_fail(failure, UL_WEIGHTS_WRONG_SIZE, model->payload_bytes,
                       stored == model->payload_bytes ? size - UL_TRAILER_BYTES : stored);
    if (ul_hash_word(trailer + 24) != model->payload_hash)
        return ul_fail(failure, UL_WEIGHTS_WRONG_HASH, 0, 0);
    *payload_offset = size - UL_TRAILER_BYTES - stored;
    return UL_OK;
}

/* ---- to their places ---- */

/* The rest of something in the file, which is hashed on its way: through a little of the stack, or
   straight from memory. */
struct ul_weights_reader {
    const struct ul_weights_source *source;
    struct ul_hash *hash;
    uint64_t offset_bytes, left_bytes;
    int failed;
    unsigned char staged[8192];
};

/* A ul_next_piece. */
static inline const unsigned char *ul_weights_next(void *context, uint64_t *size_bytes)
{
    struct ul_weights_reader *reader = (struct ul_weights_reader *)context;
    const struct ul_weights_source *source = reader->source;
    const unsigned char *bytes = reader->staged;
    uint64_t piece = reader->left_bytes;
    if (piece > sizeof reader->staged)
        piece = sizeof reader->staged;
    if (piece == 0)
        return NULL;
    if (source->memory != NULL)
        bytes = (const unsigned char *)source->memory + reader->offset_bytes;
    else if (source->read(source->context, reader->offset_bytes, reader->staged, piece) != 0) {
        reader->failed = 1;
        reader->left_bytes = 0;
        return NULL;
    }
    ul_hash_add(reader->hash, bytes, (size_t)piece);
    reader->offset_bytes += piece;
    reader->left_bytes -= piece;
    *size_bytes = piece;
    return bytes;
}

static inline void ul_weights_reader_init(struct ul_weights_reader *reader,
                                          const struct ul_weights_source *source,
                                          uint64_t offset_bytes, uint64_t size_bytes,
                                          struct ul_hash *hash)
{
    reader->source = source;
    reader->hash = hash;
    reader->offset_bytes = offset_bytes;
    reader->left_bytes = size_bytes;
    reader->failed = 0;
}

/* Hands size_bytes of the file to the hash alone. */
static inline int ul_weights_pass(const struct ul_weights_source *source, uint64_t offset_bytes,
                                  uint64_t size_bytes, struct ul_hash *hash)
{
    struct ul_weights_reader reader;
    ul_weights_reader_init(&reader, source, offset_bytes, size_bytes, hash);
    while (ul_weights_next(&reader, &size_bytes) != NULL)
        continue;
    return reader.failed;
}

/* Reads a section to its place in pieces that are hashed while they are in cache. */
static inline int ul_weights_copy(const struct ul_weights_source *source, uint64_t offset_bytes,
                                  unsigned char *target, uint64_t size_bytes, struct ul_hash *hash)
{
    const uint64_t piece_bytes = 262144;
    while (size_bytes != 0) {
        uint64_t piece = size_bytes < piece_bytes ? size_bytes : piece_bytes;
        if (ul_weights_read(source, offset_bytes, target, piece) != 0)
            return 1;
        ul_hash_add(hash, target, (size_t)piece);
        offset_bytes += piece;
        target += piece;
        size_bytes -= piece;
    }
    return 0;
}

/* Reads a section that is packed as it comes. */
static inline int ul_weights_pack(const struct ul_model *model,
                                  const struct ul_weights_source *source, uint64_t offset_bytes,
                                  unsigned char *target, const struct ul_section *section,
                                  struct ul_hash *hash)
{
    struct ul_weights_reader reader;
    ul_weights_reader_init(&reader, source, offset_bytes, section->size_bytes, hash);
    uint64_t stored_bytes = model->pack(section->pack, target, ul_weights_next, &reader);
    if (ul_run_is_big_endian())
        ul_run_swap(target, stored_bytes, section->element_bytes);
    return reader.failed;
}

/* Reads a section to where it is offloaded to, through a little of the stack. */
static inline enum ul_result ul_weights_offload(const struct ul_model *model, const void *arena,
                                                const struct ul_weights_source *source,
                                                uint64_t offset_bytes,
                                                const struct ul_section *section,
                                                struct ul_hash *hash)
{
    const struct ul_offload *offload = model->offloading->of(model, arena);
    unsigned char staged[4096];
    for (uint64_t at = 0; at < section->size_bytes; at += sizeof staged) {
        uint64_t left = section->size_bytes - at;
        uint64_t piece = left < sizeof staged ? left : sizeof staged;
        if (ul_weights_read(source, offset_bytes + at, staged, piece) != 0)
            return UL_WEIGHTS_UNREADABLE;
        ul_hash_add(hash, staged, (size_t)piece);
        if (ul_run_is_big_endian())
            ul_run_swap(staged, piece, section->element_bytes);
        if (model->offloading->save(offload, section->offset_bytes + at, staged, piece) != 0)
            return UL_OFFLOAD_FAILED;
    }
    return UL_OK;
}

/* Puts one section into place: as the file's own pages, or copied. */
static inline int ul_weights_place(const struct ul_weights_source *source, uint64_t offset_bytes,
                                   unsigned char *target, const struct ul_section *section,
                                   struct ul_hash *hash)
{
    uint64_t size_bytes = section->size_bytes;
    if (source->memory == NULL && source->map != NULL && !ul_run_is_big_endian() &&
        size_bytes >= UL_PAGED_WEIGHT_BYTES &&
        source->map(source->context, offset_bytes, target, size_bytes) == 0)
        return ul_weights_pass(source, offset_bytes, size_bytes, hash); /* but does not copy it */
    int failed = ul_weights_copy(source, offset_bytes, target, size_bytes, hash);
    if (ul_run_is_big_endian())
        ul_run_swap(target, size_bytes, section->element_bytes);
    return failed;
}

/* Every section goes straight to its place, in the layout that it has there: no second copy of the
 * weights exists. */
static inline enum ul_result ul_weights_section(const struct ul_model *model,
                                                const struct ul_weights_source *source,
                                                uint64_t offset_bytes, unsigned char *arena,
                                                const struct ul_section *section,
                                                struct ul_hash *hash)
{
    unsigned char *target = ul_at(model, arena, section->offset_bytes);
    int failed;
    if (section->space == UL_SPACE_OFFLOAD)
        return ul_weights_offload(model, arena, source, offset_bytes, section, hash);
    if (section->pack != NULL)
        failed = ul_weights_pack(model, source, offset_bytes, target, section, hash);
    else
        failed = ul_weights_place(source, offset_bytes, target, section, hash);
    return failed != 0 ? UL_WEIGHTS_UNREADABLE : UL_OK;
}

static inline enum ul_result ul_weights_load_sections(const struct ul_model *model,
                                                      const struct ul_weights_source *source,
                                                      unsigned char *arena,
                                                      struct ul_failure *failure)
{
    uint64_t begin = 0, at = 0; /* where the payload begins in the source; a place in the payload */
    struct ul_hash hash;
    enum ul_result result = ul_weights_find(model, source, &begin, failure);
    if (result != UL_OK)
        return result;
    ul_hash_init(&hash);
    for (uint32_t i = 0; i < model->section_count; i++) {
        const struct ul_section *section = &model->sections[i];
        uint64_t gap =
            ul_weights_gap(section->offset_bytes, section->size_bytes, section->pack != NULL, at);
        if (ul_weights_pass(source, begin + at, gap, &hash) != 0)
            result = UL_WEIGHTS_UNREADABLE;
        else
            result = ul_weights_section(model, source, begin + at + gap, arena, section, &hash);
        if (result != UL_OK)
            return ul_fail(failure, result, section->size_bytes, 0);
        at += gap + section->size_bytes;
    }
    if (ul_hash_get(&hash) != model->payload_hash)
        return ul_fail(failure, UL_WEIGHTS_WRONG_HASH, 0, 0);
    return UL_OK;
}

/* The first total_bytes of a splat, or all of them. */
static inline void ul_weights_fill(const struct ul_splat *splat, unsigned char *target,
                                   uint64_t total_bytes)
{
    unsigned char value[8];
    for (uint32_t k = 0; k < 8; k++)
        value[k] = (unsigned char)(splat->value >> 8 * k & 0xffu);
    if (ul_run_is_big_endian())
        ul_run_swap(value, splat->element_bytes, splat->element_bytes);
    uint64_t done_bytes = total_bytes != 0 ? splat->element_bytes : 0;
    memcpy(target, value, (size_t)done_bytes);
    while (done_bytes < total_bytes) { /* what is there doubles */
        uint64_t piece = total_bytes - done_bytes;
        if (piece > done_bytes)
            piece = done_bytes;
        if (piece > 65536) /* from cache: the first 64 KiB, whole elements */
            piece = 65536;
        memcpy(target + done_bytes, target, (size_t)piece);
        done_bytes += piece;
    }
}

static inline enum ul_result ul_weights_fill_splats(const struct ul_model *model,
                                                    unsigned char *arena,
                                                    struct ul_failure *failure)
{
    unsigned char staged[1024]; /* whole elements */
    for (uint32_t i = 0; i < model->splat_count; i++) {
        const struct ul_splat *splat = &model->splats[i];
        uint64_t total_bytes = splat->element_count * splat->element_bytes;
        if (splat->space != UL_SPACE_OFFLOAD) {
            ul_weights_fill(splat, ul_at(model, arena, splat->offset_bytes), total_bytes);
            continue;
        }
        ul_weights_fill(splat, staged, total_bytes < sizeof staged ? total_bytes : sizeof staged);
        for (uint64_t at = 0; at < total_bytes; at += sizeof staged) {
            uint64_t left = total_bytes - at;
            if (model->offloading->save(model->offloading->of(model, arena),
                                        splat->offset_bytes + at, staged,
                                        left < sizeof staged ? left : sizeof staged) != 0)
                return ul_fail(failure, UL_OFFLOAD_FAILED, total_bytes, at);
        }
    }
    return UL_OK;
}

/* What ul_model's `load` is: brings all weights to their places. */
static inline enum ul_result ul_weights_load(const struct ul_model *model,
                                             const struct ul_weights_source *source,
                                             unsigned char *arena, struct ul_failure *failure)
{
    enum ul_result result = UL_OK;
    if (model->payload_bytes != 0)
        result = ul_weights_load_sections(model, source, arena, failure);
    return result != UL_OK ? result : ul_weights_fill_splats(model, arena, failure);
}

#endif
