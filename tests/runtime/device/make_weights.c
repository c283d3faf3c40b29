/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the weights file of the model; with --hash, prints the hash that model.c names. */
#include "model.h"

#include "ul_weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static unsigned char file[16 + 496 + BIG_BYTES + UL_TRAILER_BYTES];

static void put_word(unsigned char *target, uint64_t value, unsigned size_bytes)
{
    for (unsigned i = 0; i < size_bytes; i++)
        target[i] = (unsigned char)(value >> 8 * i & 0xff);
}

/* W = 1, 2, 3, 4; big[i] = i * 2654435761 modulo 2^32. */
int main(int argc, char **argv)
{
    static const uint32_t w[4] = {0x3f800000, 0x40000000, 0x40400000, 0x40800000};
    const size_t payload_bytes = sizeof file - UL_TRAILER_BYTES;
    unsigned char *trailer = file + payload_bytes;
    struct ul_hash hash;
    for (unsigned i = 0; i < 4; i++)
        put_word(file + 4 * i, w[i], 4);
    for (uint32_t i = 0; i < BIG_COUNT; i++)
        put_word(file + 512 + (size_t)4 * i, i * UINT32_C(2654435761), 4);
    ul_hash_init(&hash);
    ul_hash_add(&hash, file, payload_bytes);
    memcpy(trailer, UL_TRAILER_MAGIC, 8);
    put_word(trailer + 8, UL_TRAILER_VERSION, 4);
    put_word(trailer + 12, UL_TRAILER_BYTES, 4);
    put_word(trailer + 16, payload_bytes, 8);
    put_word(trailer + 24, ul_hash_get(&hash), 8);
    if (argc == 2 && strcmp(argv[1], "--hash") == 0)
        return printf("0x%016" PRIx64 "\n", ul_hash_get(&hash)) < 0;
    FILE *out = argc == 2 ? fopen(argv[1], "wb") : NULL;
    if (out == NULL)
        return 1;
    size_t written = fwrite(file, 1, sizeof file, out);
    return fclose(out) != 0 || written != sizeof file;
}
