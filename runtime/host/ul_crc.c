/* CRC-32 as zip archives use it (ISO 3309: polynomial 0x04c11db7, bits reversed). */
#include "ul_internal.h"

void ul_crc_init(struct ul_crc *crc)
{
    crc->state = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = (value & 1) != 0 ? value >> 1 ^ 0xedb88320u : value >> 1;
        crc->table[i] = value;
    }
}

void ul_crc_add(struct ul_crc *crc, const void *bytes, size_t size_bytes)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size_bytes; i++)
        crc->state = crc->table[(crc->state ^ at[i]) & 0xff] ^ crc->state >> 8;
}

uint32_t ul_crc_get(const struct ul_crc *crc)
{
    return ~crc->state;
}
