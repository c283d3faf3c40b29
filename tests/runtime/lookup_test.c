/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups of bytes: all values of both types, every length up to a few vectors, in place and apart,
   no byte beside. */
#include "ul_lookup.h"

#include "test.h"

#include <string.h>

enum { MOST = 300, GUARD = 0xa5 };

static void check_length(const unsigned char *table, int count, int offset, int is_signed,
                         int apart)
{
    unsigned char from[MOST + 64], to[MOST + 64];
    for (int i = 0; i < MOST + 64; i++)
        from[i] = (unsigned char)(i * 7 + offset);
    memset(to, GUARD, sizeof to);
    if (!apart)
        memcpy(to + offset, from + offset, (size_t)count);
    const unsigned char *source = apart ? from + offset : to + offset;
    (is_signed ? ul_lookup_i8 : ul_lookup_u8)(to + offset, source, table, count);
    for (int i = 0; i < MOST + 64; i++) {
        int inside = i >= offset && i < offset + count;
        int place = is_signed ? (signed char)from[i] + 128 : from[i];
        CHECK(to[i] == (inside ? table[place] : GUARD));
    }
}

int main(void)
{
    unsigned char table[256];
    for (int i = 0; i < 256; i++)
        table[i] = (unsigned char)(i * 167 + i / 16 + 3);
    for (int count = 0; count <= MOST; count++)
        for (int form = 0; form < 4; form++)
            check_length(table, count, count % 5, form & 1, form >> 1);
    return TEST_RESULT();
}
