/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include <ctype.h>
#include <string.h>

bool ul_size_add(uint64_t a, uint64_t b, uint64_t *out)
{
    *out = a + b;
    return a <= UINT64_MAX - b;
}

bool ul_size_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    *out = a * b;
    return a == 0 || b <= UINT64_MAX / a;
}

uint64_t ul_size_add_saturating(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return ul_size_add(a, b, &sum) ? sum : UINT64_MAX;
}

uint64_t ul_size_mul_saturating(uint64_t a, uint64_t b)
{
    uint64_t product;
    return ul_size_mul(a, b, &product) ? product : UINT64_MAX;
}

uint64_t ul_size_mul_or_die(uint64_t a, uint64_t b)
{
    uint64_t product;
    bool fits = ul_size_mul(a, b, &product);
    UL_ASSERT(fits);
    return product;
}

uint64_t ul_size_add_or_die(uint64_t a, uint64_t b)
{
    uint64_t sum;
    bool fits = ul_size_add(a, b, &sum);
    UL_ASSERT(fits);
    return sum;
}

uint64_t ul_size_align_or_die(uint64_t size, uint64_t alignment)
{
    UL_ASSERT(alignment != 0 && (alignment & (alignment - 1)) == 0);
    uint64_t mask = alignment - 1;
    UL_ASSERT(size <= UINT64_MAX - mask);
    return (size + mask) & ~mask;
}

uint64_t ul_size_gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t ul_gcd(int64_t a, int64_t b)
{
    return (int64_t)ul_size_gcd(a < 0 ? -(uint64_t)a : (uint64_t)a,
                                b < 0 ? -(uint64_t)b : (uint64_t)b);
}

static bool unit_parse(const char *unit, unsigned *shift)
{
    static const char *const letters = "KMGT";
    if (*unit == '\0' || strcmp(unit, "B") == 0) {
        *shift = 0;
        return true;
    }
    const char *letter = strchr(letters, toupper((unsigned char)*unit));
    if (letter == NULL)
        return false;
    *shift = 10u * (unsigned)(letter - letters + 1);
    return unit[1] == '\0' || strcmp(unit + 1, "iB") == 0;
}

bool ul_size_parse(const char *text, uint64_t *out)
{
    /* Digits with at most one point: "1.5GiB" is what people write. */
    uint64_t whole = 0;
    uint64_t fraction = 0;
    uint64_t scale = 1;
    const char *at = text;
    if (!isdigit((unsigned char)*at))
        return false;
    for (; isdigit((unsigned char)*at); at++) {
        if (!ul_size_mul(whole, 10, &whole) || !ul_size_add(whole, (uint64_t)(*at - '0'), &whole))
            return false;
    }
    if (*at == '.') {
        for (at++; isdigit((unsigned char)*at) && scale < 1000000; at++) {
            fraction = fraction * 10 + (uint64_t)(*at - '0');
            scale *= 10;
        }
    }
    unsigned shift;
    while (*at == ' ')
        at++;
    if (!unit_parse(at, &shift) || (fraction != 0 && shift == 0))
        return false;
    uint64_t unit = (uint64_t)1 << shift;
    uint64_t part = (uint64_t)((double)fraction / (double)scale * (double)unit);
    return ul_size_mul(whole, unit, &whole) && ul_size_add(whole, part, out);
}
