/* SPDX-License-Identifier: 0BSD */
/*
 * What the compiler that writes a weights file and the program that reads it share: the 64-bit hash
 * that guards it (and compares the steps of two runs), and where large weights lie in it.
 *
 * It finds accidents (truncation, flipped bits, another model's file), it is no protection against
 * an adversary. Four independent lanes take 32 bytes at a time, so that it runs at memory speed.
 * The result does not depend on how the bytes were cut into calls, nor on the byte order of the
 * machine. Nothing fails; the caller owns the state.
 */
#ifndef UL_HASH_H
#define UL_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A large weight that is stored as it lies in the
   arena has the same place in a page in both, so that a program may take the file's own pages
   instead of copying them: these are the zeros before a weight for offset_bytes of the arena, at
   `at_bytes` of the payload. */
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

#endif
