/* SPDX-License-Identifier: Apache-2.0 */
/* Packed integers of 2 and 4 bits as bytes: every first element and length up to a few vectors, no
   byte beside. */
#include "ul_contract_int.h"

#include "test.h"

#include <string.h>

enum { MOST = 200, GUARD = 0x5a };

typedef void unpack(int8_t *to, const uint8_t *from, int64_t first, int64_t count);

static void check_type(unpack *of_type, int bits, int sign)
{
    uint8_t bytes[MOST];
    int8_t to[MOST + 1];
    for (int i = 0; i < MOST; i++)
        bytes[i] = (uint8_t)(i * 37 + 11);
    for (int first = 0; first < 9; first++) {
        for (int count = 0; count <= MOST; count++) {
            memset(to, GUARD, sizeof to);
            of_type(to, bytes, first, count);
            for (int i = 0; i < count; i++) {
                int at = (first + i) * bits;
                int code = bytes[at / 8] >> at % 8 & ((1 << bits) - 1);
                CHECK(to[i] == (code ^ sign) - sign);
            }
            CHECK(to[count] == GUARD);
        }
    }
}

int main(void)
{
    check_type(ul_unpack_i2, 2, 2);
    check_type(ul_unpack_u2, 2, 0);
    check_type(ul_unpack_i4, 4, 8);
    check_type(ul_unpack_u4, 4, 0);
    return TEST_RESULT();
}
