/* SPDX-License-Identifier: 0BSD */
/*
 * Random numbers without state: Philox4x32 with 10 rounds (Salmon, Moraes, Dror and Shaw,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A draw is a pure function of a seed, a
 * stream (which operator), a round (which step of training) and the number of the element; so a
 * recomputed step, another order or another number of threads draws the same numbers.
 * Nothing fails. Pure C99; also CUDA device code and C++17 (ul_scalar.h).
 */
#ifndef UL_RANDOM_H
#define UL_RANDOM_H

#include "ul_scalar.h"

#include <math.h>
#include <stdint.h>

struct ul_random {
    uint32_t words[4];
};

UL_FUNCTION struct ul_random ul_random_draw(uint64_t seed, uint32_t stream, uint32_t round,
                                            uint64_t element)
{
    uint32_t c0 = (uint32_t)element, c1 = (uint32_t)(element >> 32), c2 = stream, c3 = round;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < 10; i++) {
        uint64_t p0 = (uint64_t)c0 * 0xd2511f53u, p1 = (uint64_t)c2 * 0xcd9e8d57u;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    const struct ul_random draw = {{c0, c1, c2, c3}};
    return draw;
}

/* In [0, 1), 24 bits. */
UL_FUNCTION float ul_random_uniform_f32(uint64_t seed, uint32_t stream, uint32_t round,
                                        uint64_t element)
{
    return (float)(ul_random_draw(seed, stream, round, element).words[0] >> 8) * 0x1p-24f;
}

/* In [0, 1), 53 bits. */
UL_FUNCTION double ul_random_uniform_f64(uint64_t seed, uint32_t stream, uint32_t round,
                                         uint64_t element)
{
    struct ul_random draw = ul_random_draw(seed, stream, round, element);
    uint64_t bits = (uint64_t)draw.words[0] << 32 | draw.words[1];
    return (double)(bits >> 11) * 0x1p-53;
}

/* Mean 0, variance 1 (Box and Muller, 1958; the logarithm's argument is in (0, 1]). */
UL_FUNCTION double ul_random_normal_f64(uint64_t seed, uint32_t stream, uint32_t round,
                                        uint64_t element)
{
    struct ul_random draw = ul_random_draw(seed, stream, round, element);
    uint64_t a = (uint64_t)draw.words[0] << 32 | draw.words[1];
    uint64_t b = (uint64_t)draw.words[2] << 32 | draw.words[3];
    double radius = sqrt(-2.0 * log((double)((a >> 11) + 1) * 0x1p-53));
    return radius * cos(6.283185307179586 * ((double)(b >> 11) * 0x1p-53));
}

UL_FUNCTION float ul_random_normal_f32(uint64_t seed, uint32_t stream, uint32_t round,
                                       uint64_t element)
{
    return (float)ul_random_normal_f64(seed, stream, round, element);
}

/* 1 with probability p, else 0. */
UL_FUNCTION int ul_random_bernoulli(uint64_t seed, uint32_t stream, uint32_t round,
                                    uint64_t element, double p)
{
    return ul_random_uniform_f64(seed, stream, round, element) < p;
}

#endif
