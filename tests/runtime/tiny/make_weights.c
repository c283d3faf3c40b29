/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the weights file of the tiny model; with --hash, prints the hash that model.c names. */
#include "ul_model.h"
#include "ul_weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void put_word(unsigned char *target, uint64_t value, unsigned size_bytes)
{
    for (unsigned i = 0; i < size_bytes; i++)
        target[i] = (unsigned char)(value >> 8 * i & 0xff);
}

/* W[k][j] = (k - 3) * 0.25 + j * 0.125, exact in binary. */
static void make_payload(unsigned char *payload)
{
    for (int k = 0; k < 8; k++)
        for (int j = 0; j < 4; j++) {
            float value = (float)(k - 3) * 0.25f + (float)j * 0.125f;
            uint32_t bits;
            memcpy(&bits, &value, 4);
            put_word(payload + (k * 4 + j) * 4, bits, 4);
        }
}

int main(int argc, char **argv)
{
    unsigned char file[128 + UL_TRAILER_BYTES];
    struct ul_hash hash;
    make_payload(file);
    ul_hash_init(&hash);
    ul_hash_add(&hash, file, 128);
    memcpy(file + 128, UL_TRAILER_MAGIC, 8);
    put_word(file + 136, UL_TRAILER_VERSION, 4);
    put_word(file + 140, UL_TRAILER_BYTES, 4);
    put_word(file + 144, 128, 8);
    put_word(file + 152, ul_hash_get(&hash), 8);
    if (argc == 2 && strcmp(argv[1], "--hash") == 0)
        return printf("0x%016" PRIx64 "\n", ul_hash_get(&hash)) < 0;
    FILE *out = argc == 2 ? fopen(argv[1], "wb") : NULL;
    if (out == NULL)
        return 1;
    size_t written = fwrite(file, 1, sizeof file, out);
    return fclose(out) != 0 || written != sizeof file;
}
