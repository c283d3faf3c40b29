/* SPDX-License-Identifier: 0BSD */
/*
 * Transforms 3x3 weights for Winograd's method (ul_winograd.h) while they are read, nine by nine as
 * they come, beside ul_pack.h for weights that are copied.
 *
 * Invariants: with pack->winograd elements are read as little-endian floats, and what is written
 * are floats of this machine. Ownership: all memory is the caller's. Nothing fails. Pure C99; needs
 * no library.
 */
#ifndef UL_WINOGRAD_PACK_H
#define UL_WINOGRAD_PACK_H

#include "ul_pack.h"
#include "ul_winograd.h"

#include <stddef.h>
#include <string.h>

#define UL_WINOGRAD_FLOAT_BYTES 4u

struct ul_winograd_packer {
    const struct ul_pack *pack;
    unsigned char *target;
    int64_t output, channel; /* whose weights come next */
    uint32_t tap_count;      /* of those, came already */
    unsigned char taps[9 * UL_WINOGRAD_FLOAT_BYTES];
};

/* Panels of transformed weights: the columns past the last output are zero. */
static inline void ul_winograd_packer_init(struct ul_winograd_packer *packer,
                                           const struct ul_pack *pack, unsigned char *target)
{
    const int64_t cols = pack->blocks[0], used = pack->dims[0] % cols;
    const int64_t begin = pack->dims[0] / cols * pack->strides[0];
    const int64_t row_count = used != 0 ? UL_WINOGRAD_POINTS * pack->dims[1] : 0;
    memset(packer, 0, sizeof *packer);
    packer->pack = pack;
    packer->target = target;
    for (int64_t row = 0; row < row_count; row++)
        memset(packer->target + (begin + row * cols + used) * (int64_t)UL_WINOGRAD_FLOAT_BYTES, 0,
               (size_t)(cols - used) * UL_WINOGRAD_FLOAT_BYTES);
}

/* The floats that nine weights are, as they are stored: little-endian. */
static inline void ul_winograd_packer_read(float taps[9], const unsigned char *stored)
{
    for (int i = 0; i < 9; i++, stored += UL_WINOGRAD_FLOAT_BYTES) {
        uint32_t bits = stored[0] | (uint32_t)stored[1] << 8 | (uint32_t)stored[2] << 16 |
                        (uint32_t)stored[3] << 24;
        memcpy(&taps[i], &bits, sizeof bits);
    }
}

/* Transforms the nine weights that are there. */
static inline void ul_winograd_packer_put(struct ul_winograd_packer *packer)
{
    const struct ul_pack *pack = packer->pack;
    const int64_t cols = pack->blocks[0];
    const int64_t place = packer->output / cols * pack->strides[0] + packer->output % cols +
                          packer->channel * pack->strides[1];
    unsigned char *to = packer->target + place * (int64_t)UL_WINOGRAD_FLOAT_BYTES;
    float u[UL_WINOGRAD_POINTS], taps[9];
    ul_winograd_packer_read(taps, packer->taps);
    ul_winograd_weight(u, taps);
    for (int p = 0; p < UL_WINOGRAD_POINTS; p++) {
        memcpy(to, &u[p], UL_WINOGRAD_FLOAT_BYTES);
        to += pack->strides[3] * (int64_t)UL_WINOGRAD_FLOAT_BYTES;
    }
    if (++packer->channel == pack->dims[1]) {
        packer->channel = 0;
        packer->output++;
    }
}

static inline void ul_winograd_packer_add(struct ul_winograd_packer *packer,
                                          const unsigned char *elements, uint64_t count)
{
    while (count != 0) {
        uint32_t missing = 9 - packer->tap_count;
        uint32_t part = count < missing ? (uint32_t)count : missing;
        memcpy(packer->taps + packer->tap_count * UL_WINOGRAD_FLOAT_BYTES, elements,
               part * UL_WINOGRAD_FLOAT_BYTES);
        elements += part * UL_WINOGRAD_FLOAT_BYTES;
        count -= part;
        packer->tap_count += part;
        if (packer->tap_count == 9) {
            packer->tap_count = 0;
            ul_winograd_packer_put(packer);
        }
    }
}

/* What ul_model's `pack` is where some weights are transformed: ul_packer_take of the others. */
static inline uint64_t ul_winograd_packer_take(const struct ul_pack *pack, unsigned char *target,
                                               const unsigned char *(*next)(void *reader,
                                                                            uint64_t *size_bytes),
                                               void *reader)
{
    struct ul_winograd_packer packer;
    const unsigned char *piece;
    uint64_t size_bytes = 0;
    if (pack->winograd == 0)
        return ul_packer_take(pack, target, next, reader);
    ul_winograd_packer_init(&packer, pack, target);
    while ((piece = next(reader, &size_bytes)) != NULL)
        ul_winograd_packer_add(&packer, piece, size_bytes / UL_WINOGRAD_FLOAT_BYTES);
    return 0;
}

#endif
