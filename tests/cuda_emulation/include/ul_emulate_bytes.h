/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of bytes for tests/cuda_emulation: what runtime/cuda/ul_contract_bytes.cuh says in
 * instructions of a device. Lanes hold parts of tiles as the PTX manual has them for
 * mma.m16n8k32 of 8-bit integers. Sums wrap. Failures: ul_emulate_fail, by ul_emulate_meet.
 */
#ifndef UL_EMULATE_BYTES_H
#define UL_EMULATE_BYTES_H

#include "ul_emulate.h"

#include <stdint.h>

/* Byte i of a word. */
template <bool SIGNED> static inline int32_t ul_byte_at(uint32_t word, int i)
{
    const uint8_t byte = (uint8_t)(word >> 8 * i);
    return SIGNED ? (int32_t)(int8_t)byte : (int32_t)byte;
}

/* What a lane brings to a product of tiles. */
struct ul_bytes_given {
    uint32_t *sums;
    const uint32_t *a, *b;
};

template <bool A_SIGNED, bool B_SIGNED> struct ul_bytes {
    static inline void add(uint32_t &sum, uint32_t a, uint32_t b)
    {
        for (int i = 0; i < 4; i++)
            sum += (uint32_t)(ul_byte_at<A_SIGNED>(a, i) * ul_byte_at<B_SIGNED>(b, i));
    }

    static inline void multiply(uint32_t (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                int line = __builtin_LINE())
    {
        struct ul_bytes_given mine = {sums, a, b};
        ul_emulate_meet(0xffffffffu, &mine, multiply_all, true, "a product of bytes", line);
    }

    /* By the last lane, for all. */
    __attribute__((no_sanitize("thread"))) static void multiply_all(unsigned, void *const *given)
    {
        uint32_t a[16][8], b[8][8];
        ul_note_product();
        for (int lane = 0; lane < 32; lane++) {
            const struct ul_bytes_given *all = (const struct ul_bytes_given *)given[lane];
            for (int i = 0; i < 4; i++)
                a[lane / 4 + 8 * (i % 2)][lane % 4 + 4 * (i / 2)] = all->a[i];
            for (int i = 0; i < 2; i++)
                b[lane / 4][lane % 4 + 4 * i] = all->b[i];
        }
        for (int lane = 0; lane < 32; lane++) {
            for (int i = 0; i < 4; i++) {
                const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
                for (int word = 0; word < 8; word++)
                    add(((const struct ul_bytes_given *)given[lane])->sums[i], a[row][word],
                        b[column][word]);
            }
        }
    }
};

#endif
