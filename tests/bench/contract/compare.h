/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of any type that the tests of contractions have, and how far they may be apart. C99 and
 * C++. */
#ifndef CONTRACT_COMPARE_H
#define CONTRACT_COMPARE_H

#include "case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static size_t size_of(int dtype)
{
    switch (dtype) {
    case 1:
    case 6:
    case 12:
        return 4;
    case 7:
    case 11:
    case 13:
        return 8;
    case 4:
    case 5:
    case 10:
    case 16:
        return 2;
    default:
        return 1;
    }
}

static double value_of(const unsigned char *place, int dtype)
{
    union {
        float f;
        double d;
        int32_t i;
        uint32_t u;
        int64_t l;
        uint64_t m;
        uint16_t h;
    } x;
    x.m = 0;
    memcpy(&x, place, size_of(dtype));
    switch (dtype) {
    case 1:
        return (double)x.f;
    case 11:
        return x.d;
    case 6:
        return x.i;
    case 12:
        return x.u;
    case 7:
        return (double)x.l;
    case 13:
        return (double)x.m;
    case 10:
        return (double)ul_f16_to_f32(x.h);
    case 16:
        return (double)ul_bf16_to_f32(x.h);
    case 3:
        return (signed char)*place;
    case 4:
        return x.h;
    case 5:
        return (int16_t)x.h;
    default:
        return *place;
    }
}

static double tolerance_of(int dtype)
{
    return dtype == 1 ? 1e-4 : dtype == 11 ? 1e-11 : dtype == 10 ? 2e-3 : dtype == 16 ? 2e-2 : 0;
}

/* Elements in order, or the first that differs. */
static int compare(const char *name, const unsigned char *got, const unsigned char *want,
                   const struct kernel_buffer *buffer)
{
    size_t bytes = size_of(buffer->dtype);
    for (uint64_t i = 0; i < buffer->element_count; i++) {
        double g = value_of(got + i * bytes, buffer->dtype);
        double w = value_of(want + i * bytes, buffer->dtype);
        if (!(fabs(g - w) <= tolerance_of(buffer->dtype) * (1 + fabs(w)))) {
            fprintf(stderr, "%s: element %llu is %g, not %g\n", name, (unsigned long long)i, g, w);
            return 1;
        }
    }
    return 0;
}

#endif
