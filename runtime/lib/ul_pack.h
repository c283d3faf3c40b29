/* SPDX-License-Identifier: 0BSD */
/*
 * Puts a stored, row-major weight into the layout of struct ul_pack while it is read: pieces of the
 * weight, in file order and of any number of elements, are scattered to their places as they come,
 * so that no second copy of the weight ever exists.
 *
 *      ul_packer_init(&packer, pack, target);        zeros what no element falls on
 *      ul_packer_add(&packer, piece, count);         until every element came once
 *
 * Method. The place of element [i0, i1 ...] is a sum over the axes, so each axis has an offset of
 * its own that steps like an odometer: its digits are its inner blocks, the finest first, then its
 * tiles. Neighbouring axes without blocks that form one row are taken as one. Along the last axis,
 * a group of elements with one distance between them (its finest block, or all of it) is copied by
 * a plain loop, or by memcpy where they lie side by side; nothing is divided per element.
 *
 * Sums of i8 weights (pack->sum_flags) are added up as the weights come: each group of them along
 * the last axis goes to one word of a table, or to one word each, at a place by the other axes.
 *
 * Invariants: elements have 4, 2 or 1 bytes and are copied as bits; those of pack->winograd, which
 * are transformed, are ul_winograd_pack.h's. Ownership: all memory is the caller's. Nothing fails:
 * a pack whose numbers are wrong is the compiler's bug. Pure C99; needs no library.
 */
#ifndef UL_PACK_H
#define UL_PACK_H

#include "ul_call.h"

#include <stddef.h>

/* A digit of an axis: `count` steps of `stride` elements make one step of the next digit. */
struct ul_packer_digit {
    int64_t count;
    int64_t stride;
    int64_t at;
};

struct ul_packer_axis {
    int64_t size;
    int64_t at;
    int64_t sum_stride; /* in the tables of sums */
    uint32_t digit_count;
    struct ul_packer_digit digits[UL_PACK_BLOCKS + 1];
};

struct ul_packer {
    unsigned char *target;
    size_t element_bytes;
    uint32_t rank;
    struct ul_packer_axis axes[UL_CALL_RANK];
    int64_t place;              /* of the next element */
    const struct ul_pack *sums; /* NULL: there are none */
};

/* The digits of axis `d`: its blocks from the finest on, then its tiles. */
static inline void ul_packer_axis_init(struct ul_packer_axis *axis, const struct ul_pack *pack,
                                       uint32_t d)
{
    int64_t inner = 1; /* elements of the tile inside of block b */
    memset(axis, 0, sizeof *axis);
    axis->size = pack->dims[d];
    axis->sum_stride = pack->sum_strides[d];
    for (uint32_t b = pack->block_count; b-- > 0;) {
        if (pack->block_dims[b] == d && pack->blocks[b] > 1) {
            struct ul_packer_digit *digit = &axis->digits[axis->digit_count++];
            digit->count = pack->blocks[b];
            digit->stride = inner;
        }
        inner *= pack->blocks[b];
    }
    axis->digits[axis->digit_count].count = INT64_MAX;
    axis->digits[axis->digit_count++].stride = pack->strides[d];
}

/* Finds the axes that count: none of one element, and rows that are one axis as one. There is at
 * least one. */
static inline void ul_packer_axes_init(struct ul_packer *packer, const struct ul_pack *pack)
{
    packer->rank = 0;
    for (uint32_t d = 0; d < pack->rank; d++) {
        struct ul_packer_axis *axis = &packer->axes[packer->rank];
        struct ul_packer_axis *outer = packer->rank != 0 ? axis - 1 : NULL;
        ul_packer_axis_init(axis, pack, d);
        if (axis->size == 1)
            continue;
        if (outer != NULL && outer->digit_count == 1 && axis->digit_count == 1 &&
            outer->digits[0].stride == axis->digits[0].stride * axis->size &&
            outer->sum_stride == axis->sum_stride * axis->size) {
            outer->size *= axis->size;
            outer->sum_stride = axis->sum_stride;
            outer->digits[0].stride = axis->digits[0].stride;
            continue;
        }
        packer->rank++;
    }
    if (packer->rank == 0) {
        ul_packer_axis_init(&packer->axes[0], pack, 0);
        packer->rank = 1;
    }
}

/* Tiles of axis `d`, and how many elements each has along it. */
static inline int64_t ul_packer_tiles(const struct ul_pack *pack, uint32_t d, int64_t *block)
{
    *block = 1;
    for (uint32_t b = 0; b < pack->block_count; b++)
        if (pack->block_dims[b] == d)
            *block *= pack->blocks[b];
    return (pack->dims[d] + *block - 1) / *block;
}

/* Zeros the tiles at the end of axis `d` that elements fill only in part. */
static inline void ul_packer_zero_edge(const struct ul_pack *pack, uint32_t d,
                                       int64_t tile_elements, unsigned char *target)
{
    int64_t counts[UL_CALL_RANK], at[UL_CALL_RANK] = {0}, block, place = 0;
    for (uint32_t i = 0; i < pack->rank; i++)
        counts[i] = ul_packer_tiles(pack, i, &block);
    place = (counts[d] - 1) * pack->strides[d];
    for (uint32_t i = 0; i < pack->rank;) {
        if (i == 0)
            memset(target + (size_t)place * pack->element_bytes, 0,
                   (size_t)tile_elements * pack->element_bytes);
        if (i == d) {
            i++;
        } else if (++at[i] < counts[i]) {
            place += pack->strides[i];
            i = 0;
        } else {
            place -= (counts[i] - 1) * pack->strides[i];
            at[i++] = 0;
        }
    }
}

/* Zeros what no element lands on (and some of what will be overwritten). */
static inline void ul_packer_zero_padding(const struct ul_pack *pack, unsigned char *target)
{
    int64_t tile_elements = 1, tile_count = 1, block;
    for (uint32_t b = 0; b < pack->block_count; b++)
        tile_elements *= pack->blocks[b];
    for (uint32_t d = 0; d < pack->rank; d++)
        tile_count *= ul_packer_tiles(pack, d, &block);
    if ((uint64_t)(tile_elements * tile_count) * pack->element_bytes != pack->size_bytes) {
        memset(target, 0, (size_t)pack->size_bytes); /* gaps between the tiles */
        return;
    }
    for (uint32_t d = 0; d < pack->rank; d++)
        if (ul_packer_tiles(pack, d, &block) * block != pack->dims[d])
            ul_packer_zero_edge(pack, d, tile_elements, target);
}

static inline void ul_packer_init(struct ul_packer *packer, const struct ul_pack *pack,
                                  unsigned char *target)
{
    memset(packer, 0, sizeof *packer);
    packer->target = target;
    packer->element_bytes = pack->element_bytes;
    ul_packer_axes_init(packer, pack);
    if (pack->sum_flags != 0) {
        packer->sums = pack;
        memset(target, 0, (size_t)pack->size_bytes);
    } else {
        ul_packer_zero_padding(pack, target);
    }
}

/* Goes `count` elements along an axis, at most to its end, and to the end of its finest digit.
   Returns 1 when the whole axis starts over. */
static inline int ul_packer_step(struct ul_packer *packer, struct ul_packer_axis *axis,
                                 int64_t count)
{
    axis->at += count;
    if (axis->at == axis->size) {
        axis->at = 0;
        packer->place += axis->digits[0].stride * count;
        for (uint32_t i = 0; i < axis->digit_count; i++) {
            struct ul_packer_digit *digit = &axis->digits[i];
            int64_t at = i == 0 ? digit->at + count : digit->at;
            packer->place -= at * digit->stride;
            digit->at = 0;
        }
        return 1;
    }
    for (uint32_t i = 0; i < axis->digit_count; i++, count = 1) {
        struct ul_packer_digit *digit = &axis->digits[i];
        digit->at += count;
        packer->place += count * digit->stride;
        if (digit->at != digit->count)
            break;
        packer->place -= digit->at * digit->stride;
        digit->at = 0;
    }
    return 0;
}

/* Copies elements to places that are one distance apart. */
static inline void ul_packer_copy(unsigned char *target, int64_t stride,
                                  const unsigned char *elements, int64_t count,
                                  size_t element_bytes)
{
    if (stride == 1) {
        memcpy(target, elements, (size_t)count * element_bytes);
        return;
    }
    /* The size as a constant, so that copying an element is one instruction. */
    for (int64_t i = 0; i < count && element_bytes == 2; i++)
        memcpy(target + i * stride * 2, elements + i * 2, 2);
    for (int64_t i = 0; i < count && element_bytes == 1; i++)
        target[i * stride] = elements[i];
    for (int64_t i = 0; i < count && element_bytes == 4; i++)
        memcpy(target + i * stride * 4, elements + i * 4, 4);
}

/* Adds one weight, or the sum of several, to its word in each table. */
static inline void ul_packer_sum(const struct ul_packer *packer, int64_t word, int64_t weight)
{
    const struct ul_pack *pack = packer->sums;
    for (int64_t t = 0; t < 2; t++) {
        unsigned char *at =
            packer->target + pack->sums_offset_bytes + (t * pack->sum_count + word) * 4;
        int32_t sum;
        if (pack->sum_factors[t] == 0)
            continue;
        memcpy(&sum, at, sizeof sum);
        sum += (int32_t)weight * pack->sum_factors[t];
        memcpy(at, &sum, sizeof sum);
    }
}

/* The next `count` weights along the last axis. */
static inline void ul_packer_add_sums(const struct ul_packer *packer, const unsigned char *elements,
                                      int64_t count)
{
    const struct ul_packer_axis *last = &packer->axes[packer->rank - 1];
    int64_t word = 0, sum = 0;
    for (uint32_t d = 0; d < packer->rank; d++)
        word += packer->axes[d].at * packer->axes[d].sum_stride;
    for (int64_t i = 0; i < count; i++) {
        int64_t weight = (int64_t)elements[i] - (elements[i] > INT8_MAX ? 256 : 0);
        if (last->sum_stride == 0)
            sum += weight;
        else
            ul_packer_sum(packer, word + i * last->sum_stride, weight);
    }
    if (last->sum_stride == 0)
        ul_packer_sum(packer, word, sum);
}

/* The next `count` elements of the weight as it is stored. */
static inline void ul_packer_add(struct ul_packer *packer, const unsigned char *elements,
                                 uint64_t count)
{
    struct ul_packer_axis *last = &packer->axes[packer->rank - 1];
    const int64_t stride = last->digits[0].stride, finest = last->digits[0].count;
    while (count != 0) {
        int64_t group = last->size - last->at, rest = finest - last->digits[0].at;
        if (group > rest)
            group = rest;
        if ((uint64_t)group > count)
            group = (int64_t)count;
        ul_packer_copy(packer->target + packer->place * (int64_t)packer->element_bytes, stride,
                       elements, group, packer->element_bytes);
        if (packer->sums != NULL)
            ul_packer_add_sums(packer, elements, group);
        elements += (size_t)group * packer->element_bytes;
        count -= (uint64_t)group;
        int carry = ul_packer_step(packer, last, group);
        for (uint32_t d = packer->rank - 1; carry && d-- > 0;)
            carry = ul_packer_step(packer, &packer->axes[d], 1);
    }
}

/* What ul_model's `pack` is: brings all pieces of a weight to their places. */
static inline uint64_t
ul_packer_take(const struct ul_pack *pack, unsigned char *target,
               const unsigned char *(*next)(void *reader, uint64_t *size_bytes), void *reader)
{
    struct ul_packer packer;
    const unsigned char *piece;
    uint64_t size_bytes = 0;
    ul_packer_init(&packer, pack, target);
    while ((piece = next(reader, &size_bytes)) != NULL)
        ul_packer_add(&packer, piece, size_bytes / pack->element_bytes);
    return pack->size_bytes;
}

#endif
