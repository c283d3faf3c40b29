/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products for the emulated libraries: out[i, j] = sum over l of a(i, l) * b(l, j), in f32,
 * in the order of l. Operands are functions, so that one loop serves every layout and type.
 *
 * Packed panels of PANEL rows and COLUMNS columns keep the inner loop on registers.
 */
#ifndef PRODUCT_H
#define PRODUCT_H

#include "ul_small_float.h"

#include <algorithm>
#include <stdint.h>
#include <string.h>
#include <vector>

enum { PRODUCT_PANEL = 64, PRODUCT_COLUMNS = 4, PRODUCT_ROWS = 512 };

/* Elements in memory. */
enum element { ELEMENT_F32, ELEMENT_F16, ELEMENT_BF16, ELEMENT_I8, ELEMENT_I32 };

static inline size_t element_bytes(enum element type)
{
    return type == ELEMENT_I8 ? 1 : type == ELEMENT_F32 || type == ELEMENT_I32 ? 4 : 2;
}

static inline float element_get(const void *base, enum element type, int64_t at)
{
    if (type == ELEMENT_F32)
        return ((const float *)base)[at];
    uint16_t bits = ((const uint16_t *)base)[at];
    return type == ELEMENT_F16 ? ul_f16_to_f32(bits) : ul_bf16_to_f32(bits);
}

static inline void element_put(void *base, enum element type, int64_t at, float x)
{
    if (type == ELEMENT_F32)
        ((float *)base)[at] = x;
    else
        ((uint16_t *)base)[at] = type == ELEMENT_F16 ? ul_f32_to_f16(x) : ul_f32_to_bf16(x);
}

/* Rounded to the 10 bits that TF32 keeps after the first one. */
static inline float element_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7F800000u) != 0x7F800000u)
        bits = (bits + 0x0FFFu + (bits >> 13 & 1u)) & ~0x1FFFu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void product_tile(const float *a, const float *b, int64_t depth,
                                float sums[PRODUCT_COLUMNS][PRODUCT_PANEL])
{
    float s0[PRODUCT_PANEL] = {0}, s1[PRODUCT_PANEL] = {0};
    float s2[PRODUCT_PANEL] = {0}, s3[PRODUCT_PANEL] = {0};
    for (int64_t l = 0; l < depth; l++, a += PRODUCT_PANEL, b += PRODUCT_COLUMNS) {
        float b0 = b[0], b1 = b[1], b2 = b[2], b3 = b[3];
#pragma GCC unroll 64
        for (int i = 0; i < PRODUCT_PANEL; i++) {
            s0[i] += a[i] * b0;
            s1[i] += a[i] * b1;
            s2[i] += a[i] * b2;
            s3[i] += a[i] * b3;
        }
    }
    memcpy(sums[0], s0, sizeof s0);
    memcpy(sums[1], s1, sizeof s1);
    memcpy(sums[2], s2, sizeof s2);
    memcpy(sums[3], s3, sizeof s3);
}

/* put(i, j, sum) for all i < rows, j < columns. b_row(j, out, stride) writes b(0 .. depth - 1, j).
 */
template <class A, class B, class Put>
void product(int64_t rows, int64_t columns, int64_t depth, const A &a, const B &b_row,
             const Put &put)
{
    int64_t max_rows = std::min<int64_t>(rows, PRODUCT_ROWS);
    int64_t panels = (max_rows + PRODUCT_PANEL - 1) / PRODUCT_PANEL;
    std::vector<float> packed((size_t)(panels * PRODUCT_PANEL * depth));
    std::vector<float> column((size_t)(PRODUCT_COLUMNS * depth));
    float sums[PRODUCT_COLUMNS][PRODUCT_PANEL];
    for (int64_t i0 = 0; i0 < rows; i0 += PRODUCT_ROWS) {
        int64_t i1 = std::min<int64_t>(rows, i0 + PRODUCT_ROWS);
        for (int64_t i = i0; i < i0 + (i1 - i0 + PRODUCT_PANEL - 1) / PRODUCT_PANEL * PRODUCT_PANEL;
             i++) {
            int64_t panel = (i - i0) / PRODUCT_PANEL, at = (i - i0) % PRODUCT_PANEL;
            float *to = &packed[(size_t)(panel * PRODUCT_PANEL * depth + at)];
            for (int64_t l = 0; l < depth; l++)
                to[l * PRODUCT_PANEL] = i < i1 ? a(i, l) : 0;
        }
        for (int64_t j0 = 0; j0 < columns; j0 += PRODUCT_COLUMNS) {
            int64_t width = std::min<int64_t>(PRODUCT_COLUMNS, columns - j0);
            std::fill(column.begin(), column.end(), 0.0f);
            for (int64_t j = 0; j < width; j++)
                b_row(j0 + j, &column[(size_t)j], (int64_t)PRODUCT_COLUMNS);
            for (int64_t p0 = i0; p0 < i1; p0 += PRODUCT_PANEL) {
                product_tile(&packed[(size_t)((p0 - i0) * depth)], column.data(), depth, sums);
                for (int64_t j = 0; j < width; j++) {
                    for (int64_t i = p0; i < std::min<int64_t>(i1, p0 + PRODUCT_PANEL); i++)
                        put(i, j0 + j, sums[j][i - p0]);
                }
            }
        }
    }
}

#endif
