/* SPDX-License-Identifier: 0BSD */
/* CRC-32 as zip archives use it (ISO 3309: polynomial 0x04c11db7, bits reversed), four bytes at a
 * time: table k is for a byte followed by k bytes of 0 (Kounavis and Berry, 2005). */
#include "ul_internal.h"

void ul_crc_init(struct ul_crc *crc)
{
    crc->state = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = (value & 1) != 0 ? value >> 1 ^ 0xedb88320u : value >> 1;
        crc->tables[0][i] = value;
    }
    for (int k = 1; k < 4; k++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t before = crc->tables[k - 1][i];
            crc->tables[k][i] = crc->tables[0][before & 0xff] ^ before >> 8;
        }
}

static uint32_t get32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void ul_crc_add(struct ul_crc *crc, const void *bytes, size_t size_bytes)
{
    const unsigned char *at = bytes;
    uint32_t state = crc->state;
    for (; size_bytes >= 4; size_bytes -= 4, at += 4) {
        state ^= get32(at);
        state = crc->tables[3][state & 0xff] ^ crc->tables[2][state >> 8 & 0xff] ^
                crc->tables[1][state >> 16 & 0xff] ^ crc->tables[0][state >> 24];
    }
    for (; size_bytes > 0; size_bytes--)
        state = crc->tables[0][(state ^ *at++) & 0xff] ^ state >> 8;
    crc->state = state;
}

uint32_t ul_crc_get(const struct ul_crc *crc)
{
    return ~crc->state;
}
