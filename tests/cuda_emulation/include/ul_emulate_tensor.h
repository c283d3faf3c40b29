/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that nobody waits for and products of matrices for tests/cuda_emulation: what
 * runtime/cuda/ul_tensor.cuh says in instructions of a device. Lanes hold parts of matrices as the
 * PTX manual has them for ldmatrix and mma.m16n8k16; products are added in order of k.
 *
 * A copy is done as late as may be, by the wait that it must have come for; until then its place
 * holds no numbers (all bits set), so that neither what was there before nor what is to come can be
 * read from it. With an odd UL_EMULATE_ORDER it is done as early as may be. The thread that began
 * it writes, and so the thread sanitizer sees it.
 *
 * Checked: sizes, alignment, that copies go to shared memory of the block, that no block ends
 * before its copies came, that matrices lie in shared memory. With UL_EMULATE_BANKS the eight rows
 * of a matrix must lie in different banks, or ul_emulate_fail. Failures: ul_emulate_fail.
 */
#ifndef UL_EMULATE_TENSOR_H
#define UL_EMULATE_TENSOR_H

#include "ul_emulate.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* ---- copies; fibers.cc keeps them ---- */

struct ul_emulate_copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned size_bytes;
};
/* Checks it, and keeps it for the thread; true where it is to be done at once instead. */
bool ul_emulate_copy_begin(const struct ul_emulate_copy *copy, const void *from, int line);
void ul_emulate_copies_close(void);
/* The next copy of the thread's that is not in its last `left` groups; false: no more. */
bool ul_emulate_copy_next(struct ul_emulate_copy *copy, unsigned left);
/* size_bytes from `place` on are the block's shared memory. */
void ul_emulate_need_shared(const void *place, size_t size_bytes, const char *who, int line);

static inline void ul_emulate_copy_do(const struct ul_emulate_copy *copy)
{
    if (copy->from != NULL)
        memcpy(copy->to, copy->from, copy->size_bytes);
    else
        memset(copy->to, 0, copy->size_bytes);
}

template <int BYTES>
static inline void ul_copy(void *to, const void *from, bool is_there, int line = __builtin_LINE())
{
    const struct ul_emulate_copy copy = {to, is_there ? from : NULL, BYTES};
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "what devices move at once");
    const bool is_now = ul_emulate_copy_begin(&copy, from, line);
    memset(to, 0xff, BYTES);
    if (is_now)
        ul_emulate_copy_do(&copy);
}

static inline void ul_copies_close(void)
{
    ul_emulate_copies_close();
}

template <int LEFT> static inline void ul_copies_wait(void)
{
    struct ul_emulate_copy copy;
    while (ul_emulate_copy_next(&copy, LEFT))
        ul_emulate_copy_do(&copy);
}

/* ---- matrices ---- */

/* What a lane brings: a row of one matrix. */
struct ul_emulate_row {
    uint16_t elements[8];
    const uint16_t *place;
    uint32_t *to;
    bool turns;
};

/* By the last lane, for all; fibers.cc. */
void ul_emulate_matrices(unsigned mask, void *const *given);

static inline void ul_emulate_matrices_load(uint32_t (&to)[4], const uint16_t *row, bool turns,
                                            int line)
{
    struct ul_emulate_row mine = {{}, row, to, turns};
    ul_emulate_need_shared(row, 16, "a matrix", line);
    memcpy(mine.elements, row, 16); /* by the lane, which the thread sanitizer is to see */
    ul_emulate_meet(0xffffffffu, &mine, ul_emulate_matrices, false, "matrices", line);
}

static inline void ul_matrices_read(uint32_t (&to)[4], const uint16_t *row,
                                    int line = __builtin_LINE())
{
    ul_emulate_matrices_load(to, row, false, line);
}

static inline void ul_matrices_turn(uint32_t (&to)[4], const uint16_t *row,
                                    int line = __builtin_LINE())
{
    ul_emulate_matrices_load(to, row, true, line);
}

/* ---- products ---- */

struct ul_emulate_product {
    float *sums;
    const uint32_t *a;
    uint32_t b[2];
};

template <class KIND> struct ul_emulate_products {
    /* By the last lane, for all. */
    __attribute__((no_sanitize("thread"))) static void all(unsigned, void *const *given)
    {
        float a[16][16], b[16][8];
        ul_note_product();
        for (int lane = 0; lane < 32; lane++) {
            const struct ul_emulate_product *of = (const struct ul_emulate_product *)given[lane];
            const int r = lane / 4, c = lane % 4 * 2;
            for (int e = 0; e < 2; e++) {
                for (int i = 0; i < 4; i++)
                    a[r + i % 2 * 8][c + i / 2 * 8 + e] =
                        KIND::value((uint16_t)(of->a[i] >> 16 * e));
                for (int i = 0; i < 2; i++)
                    b[c + 8 * i + e][r] = KIND::value((uint16_t)(of->b[i] >> 16 * e));
            }
        }
        for (int lane = 0; lane < 32; lane++) {
            float *sums = ((const struct ul_emulate_product *)given[lane])->sums;
            for (int i = 0; i < 4; i++) {
                const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
                for (int k = 0; k < 16; k++)
                    sums[i] += a[row][k] * b[k][column];
            }
        }
    }
};

template <class KIND>
static inline void ul_multiply(KIND, float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                               uint32_t b1, int line = __builtin_LINE())
{
    struct ul_emulate_product mine = {sums, a, {b0, b1}};
    ul_emulate_meet(0xffffffffu, &mine, ul_emulate_products<KIND>::all, false, "a product", line);
}

template <class KIND> static inline uint32_t ul_round_pair(KIND, float x, float y)
{
    return KIND::round(x) | (uint32_t)KIND::round(y) << 16;
}

static inline float ul_exp2(float x)
{
    return exp2f(x);
}

#endif
